//! A map: one job over many rows. This folder checks the rows, knows what a map leaves on disk, and turns the records of its
//! rows into tables.

mod check_rows;
mod folder;
mod results;
mod results_gather;
mod results_reader;
mod results_writer;
mod row_workspaces;
mod shared_prefixes;

pub use self::check_rows::check_rows;
pub use self::folder::{MAP_FORMAT, MapFolder, MapManifest, RowIds};
pub use self::results::Results;
pub use self::results_gather::{GatherError, gather};
pub use self::results_reader::{RowReading, read_row};
pub use self::results_writer::TableFiles;
pub use self::row_workspaces::RowWorkspaces;
pub use self::shared_prefixes::SharedPrefixes;
