//! Context files, skills, and conversations that outgrow the context window.

pub(crate) mod compaction;
pub(crate) mod context_files;
pub(crate) mod skills;
