//! A map: one job over many rows. [`MapPlan::new`] checks the rows and their records, [`MapPlan::run`] runs them, and
//! [`Results`] turns the records into tables.

mod budget;
mod check_rows;
mod checked_rows;
pub mod engines;
mod gather;
pub mod ledger;
mod limits;
mod manifest;
mod map_options;
mod map_plan;
mod map_run;
mod observer;
mod once_steps;
mod open_map;
pub mod outage;
mod results;
mod row_reading;
pub mod recorded_row;
pub mod rows;
mod runner;
pub mod tables;
mod workspaces;

pub use self::budget::MapBudget;
pub use self::check_rows::check_rows;
pub use self::gather::{GatherError, gather};
pub use self::limits::WholeMapLimits;
pub use self::manifest::{MAP_FORMAT, MapFolder, MapManifest, RowIds};
pub use self::map_options::MapOptions;
pub use self::map_plan::{MapPlan, refuse_state};
pub use self::map_run::{MapEnded, MapRest};
pub use self::observer::{EndedRow, MapObserver, MapStart};
pub use self::results::Results;
pub use self::row_reading::read_unfinished_run;
pub use self::workspaces::RowWorkspaces;
