//! legwork runs agent jobs that are declared as YAML files in a repository.
//!
//! # Data flow
//!
//! [`cli`] reads the job file. [`yaml`] and [`job`] decode it and keep the place of every value. [`lints`] returns all
//! [`diagnostic::Diagnostic`]s, or a [`lints::ValidJob`], the only source of a [`plan::Plan`]. [`plan`] renders the prompts.
//! [`run`] starts the parent [`agent::Agent`]. Every step is an [`event::Event`], which the [`record::Recorder`] appends to
//! the journal and a format in [`reports`] shows.
//!
//! `validate` stops after the lints and `run --dry-run` after the plan. `show` goes from a record to a format.
//!
//! # Layers
//!
//! The modules are listed in the order of their layers: each uses only the ones above it.
//!
//! # Errors
//!
//! Job authors get [`diagnostic::Diagnostic`]s: all mistakes at once, each with its place. The model gets a
//! [`message::ToolError`] as a tool result. The user gets an [`error::Error`] with a hint and an exit code. A panic is a bug,
//! and no input may cause one.

pub mod sync;
pub mod running_clock;
pub mod temporary_folder;
pub mod exit_code;
pub mod text;
pub mod attachment;
pub mod message;
pub mod diagnostic;
pub mod git;
pub mod workspace;
pub mod isolation;
pub mod yaml;
pub mod toml_file;
pub mod template;
pub mod json_schema;
pub mod redaction;
pub mod outputs;
pub mod egress;
pub mod job;
pub mod models;
pub mod pricing;
pub mod sandbox;
pub mod process;
pub mod tools;
pub mod providers;
pub mod mcp;
pub mod context_files;
pub mod lints;
pub mod plan;
pub mod event;
pub mod editor_schema;
pub mod error;
pub mod cases;
pub mod journal;
pub mod conversation;
pub mod record;
pub mod reports;
pub mod workspace_changes;
pub mod apply;
pub mod budget;
pub mod agent;
pub mod run;
pub mod map;
pub mod publish;
pub mod catalog;
pub mod replay;
pub mod exports;
pub mod cli;
