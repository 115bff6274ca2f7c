//! CI systems.

pub(crate) mod ci_files;
pub(crate) mod github_action;
