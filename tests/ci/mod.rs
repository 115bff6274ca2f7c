//! CI systems.

pub(crate) mod actions_runner;
pub(crate) mod ci_files;
pub(crate) mod github_action;
pub(crate) mod workflows;
