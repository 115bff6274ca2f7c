//! A map: one job over many rows. This folder checks the rows, knows what a map leaves on disk, and turns the records of its
//! rows into tables.

mod budget;
mod check_rows;
pub mod engines;
mod gather;
pub mod ledger;
mod manifest;
pub mod outage;
mod results;
mod row_reading;
pub mod recorded_row;
pub mod rows;
pub mod schedule;
pub mod tables;
mod workspaces;

pub use self::budget::MapBudget;
pub use self::check_rows::check_rows;
pub use self::gather::{GatherError, gather};
pub use self::manifest::{MAP_FORMAT, MapFolder, MapManifest, RowIds};
pub use self::results::Results;
pub use self::workspaces::RowWorkspaces;
