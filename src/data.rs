//! Data that agents end with: JSON Schemas as jobs hold them, and values held against them. Nobody else knows the crate
//! that does the latter, which changes often.
//!
//! A schema is read with everything that it refers to (`reader`) and becomes one that stands alone: files below the job's
//! folder are put in, and every reference leads to a place within it. Nothing is ever fetched.

mod bundle;
mod cycle;
mod draft;
mod fit;
mod keywords;
mod mistake;
mod place;
mod reader;
mod references;
mod submission;
#[cfg(test)]
mod tests;
mod visit;

use crate::diagnostic::{Rule, rule};

pub use fit::Schema;
pub use mistake::Mistake;
pub use reader::Reader;
pub use submission::Submission;

/// What can be wrong with a schema, beside what can be wrong with its files.
pub const RULES: &[Rule] = &[rule!(Error "bad-schema"), rule!(Error "bad-reference"), rule!(Warning "unknown-keyword")];

/// The greatest size of a schema with all its files, in bytes of JSON.
pub const MAX_BYTES: usize = 1024 * 1024;

/// The greatest number of files that a job's schemas may name.
pub const MAX_FILES: usize = 100;
