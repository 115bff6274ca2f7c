//! Tests of the house itself: its layers, its tables, its words, its papers.

mod docs;
mod file_sizes;
mod layers;
mod licences;
mod registries;
pub(crate) mod source;
