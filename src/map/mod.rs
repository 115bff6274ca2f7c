//! A map: one job over many rows. This folder checks the rows, knows what a map leaves on disk, and turns the records of its
//! rows into tables.

mod check_rows;
mod folder;
mod row_workspaces;

pub use self::check_rows::check_rows;
pub use self::folder::{MAP_FORMAT, MapFolder, MapManifest};
pub use self::row_workspaces::RowWorkspaces;
