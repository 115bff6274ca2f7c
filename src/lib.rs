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
//! [`message::ToolError`] as a tool result; the operator gets an [`error::Error`] with a hint and an exit code; a panic is
//! for us, and never on input.

pub mod text;
pub mod message;
pub mod diagnostic;
pub mod git;
pub mod workspace;
pub mod yaml;
pub mod toml_file;
pub mod template;
pub mod json_schema;
pub mod job;
pub mod redaction;
pub mod pricing;
pub mod sandbox;
pub mod process;
pub mod tools;
pub mod providers;
pub mod lints;
pub mod plan;
pub mod event;
pub mod schema;
pub mod error;
pub mod cases;
pub mod formats;
pub mod record;
pub mod workspace_changes;
pub mod budget;
pub mod agent;
pub mod checks;
pub mod run;
pub mod replay;
pub mod cli;
