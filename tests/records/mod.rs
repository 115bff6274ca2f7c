//! Records, and what is made of them.

pub(crate) mod diff;
pub(crate) mod exports;
pub(crate) mod forged_records;
pub(crate) mod human_output;
pub(crate) mod journal;
pub(crate) mod live_progress;
pub(crate) mod prune;
pub(crate) mod record_state;
pub(crate) mod record_storage;
pub(crate) mod record_trust;
pub(crate) mod report;
pub(crate) mod run_list;
pub(crate) mod show;
pub(crate) mod step_words;
