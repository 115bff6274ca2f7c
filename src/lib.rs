//! legwork runs agent jobs that live in a repository as YAML files.
//!
//! # The walk of the data
//!
//! [`cli`] reads the file; [`job`] parses it with places, by way of [`yaml`]; [`lints`] returns all
//! [`diagnostic::Diagnostic`]s or a [`lints::ValidJob`], the only thing that a [`plan::Plan`] can be made from;
//! [`plan`] renders the prompts; [`run`] starts the parent [`agent::Agent`]; every step is an [`event::Event`]; the
//! [`record::Recorder`] appends it and a [`formats::Format`] shows it.
//!
//! `validate` stops after the lints, `run --dry-run` after the plan; `show` goes from record to format.
//!
//! # The layers
//!
//! The modules stand below in the order of their layers: each uses only those before it.
//!
//! # Errors have four readers
//!
//! The job's author gets [`diagnostic::Diagnostic`]s, all at once and each with its place; the model gets a
//! [`tools::ToolError`] as a tool result; the operator gets an [`error::Error`] with a hint and an exit code; a panic is
//! for us, and never on input.

pub mod agent;
pub mod budget;
pub mod cases;
pub mod checks;
pub mod cli;
pub mod diagnostic;
pub mod error;
pub mod event;
pub mod formats;
pub mod git;
pub mod job;
pub mod json_schema;
pub mod lints;
pub mod message;
pub mod models;
pub mod plan;
pub mod pricing;
pub mod process;
pub mod providers;
pub mod record;
pub mod redaction;
pub mod replay;
pub mod run;
pub mod sandbox;
pub mod schema;
pub mod template;
pub mod text;
pub mod toml_file;
pub mod tools;
pub mod workspace;
pub mod workspace_changes;
pub mod yaml;
