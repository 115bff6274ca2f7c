//! Tests of the house itself: its layers, its tables, its words, its papers.

mod layers;
mod licences;
mod papers;
mod sizes;
pub(crate) mod source;
mod tables;
