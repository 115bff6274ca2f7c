//! A map: one job over many rows. This folder knows what a map leaves on disk, and turns the records of its rows into tables.

mod folder;
mod results;
mod results_gather;
mod results_reader;
mod results_writer;

pub use self::folder::{MapFolder, MapManifest};
pub use self::results::Results;
pub use self::results_gather::{GatherError, gather};
pub use self::results_reader::{RowReading, read_row};
pub use self::results_writer::{TableFiles, write_output_file};
