//! A map: one job over many rows. This folder knows what a map leaves on disk, and turns the records of its rows into tables.

mod folder;

pub use self::folder::{MapFolder, MapManifest};
