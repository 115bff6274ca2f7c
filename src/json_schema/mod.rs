//! JSON Schemas of results, and validation against them. Only this module uses the `jsonschema` crate.
//!
//! A schema is read with all files that it refers to, which must be below the job's folder, and bundled into one whose
//! references are all local (`bundle`): providers don't resolve any others. Nothing is ever fetched.

mod bundle;
mod cycle;
mod draft;
mod enum_input;
mod json_pointer;
mod keywords;
mod provider_schema;
mod references;
mod schema_reader;
mod schema_walk;
#[cfg(test)]
mod tests;
mod tool_schema;
mod validator;
mod violation;

use crate::diagnostic::{Rule, rule};

pub use enum_input::{enum_inputs, named_input, named_step, with_enum_values};
pub use provider_schema::{ProviderSchema, repair_invalid};
pub use schema_reader::SchemaReader;
pub use tool_schema::ToolSchema;
pub use validator::SchemaValidator;
pub use violation::Violation;

/// The rules for schemas. Those of their files are elsewhere.
pub const RULES: &[Rule] = &[rule!(Error "bad-schema"), rule!(Error "bad-reference"), rule!(Warning "unknown-keyword")];

/// The greatest size of a schema with all its files, in bytes of JSON.
pub const MAX_BYTES: usize = 1024 * 1024;

/// The greatest number of files that a job's schemas may name.
pub const MAX_FILES: usize = 100;
