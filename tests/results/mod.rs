//! Checks, and results as data.

pub(crate) mod checks;
pub(crate) mod structured_results;
pub(crate) mod text_replies;
