//! What is checked before a run starts.

pub(crate) mod bad_input;
pub(crate) mod dry_run;
pub(crate) mod properties;
pub(crate) mod untrusted_jobs;
pub(crate) mod validate;
