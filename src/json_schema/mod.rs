//! Data that agents end with: JSON Schemas as jobs hold them, and values held against them. Nobody else knows the crate
//! that does the latter, which changes often.
//!
//! A schema is read with everything that it refers to (`reader`) and becomes one that stands alone: files below the job's
//! folder are put in, and every reference leads to a place within it. Nothing is ever fetched.

mod bundle;
mod cycle;
mod draft;
mod json_pointer;
mod keywords;
mod references;
mod schema_reader;
mod schema_walk;
#[cfg(test)]
mod tests;
mod tool_schema;
mod validator;
mod violation;

use crate::diagnostic::{Rule, rule};

pub use schema_reader::SchemaReader;
pub use tool_schema::ToolSchema;
pub use validator::SchemaValidator;
pub use violation::Violation;

/// What can be wrong with a schema, beside what can be wrong with its files.
pub const RULES: &[Rule] = &[rule!(Error "bad-schema"), rule!(Error "bad-reference"), rule!(Warning "unknown-keyword")];

/// The greatest size of a schema with all its files, in bytes of JSON.
pub const MAX_BYTES: usize = 1024 * 1024;

/// The greatest number of files that a job's schemas may name.
pub const MAX_FILES: usize = 100;
