//! The first steps of a user: commands, messages, and the repository's own jobs.

pub(crate) mod cli_commands;
pub(crate) mod doctor;
pub(crate) mod everyday_options;
pub(crate) mod explain;
pub(crate) mod job_lifecycle;
pub(crate) mod jobs;
pub(crate) mod newcomer;
