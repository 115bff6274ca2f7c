//! Tests of the rules of the code base: layers, tables, dependencies, documentation, schemas.

mod book;
mod dependencies;
mod docs;
mod file_graph;
mod file_sizes;
mod layers;
mod programs;
mod registries;
pub(crate) mod source;
