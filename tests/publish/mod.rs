//! Publishing what runs have proposed.

mod binary_files;
mod command;
mod engine;
mod hostile_forges;
mod kinds;
mod kills;
mod on_gitlab;
