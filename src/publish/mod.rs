//! Publishes what runs have proposed on a forge: a process of its own, with a token and without a model.
//!
//! Each output is published once. What is about to be published is noted in `published.json`, then looked for on the forge by its
//! [`Mark`], then written, then noted as done. Whatever happens in between, the next process continues.

mod answer;
mod change_outputs;
mod command_output;
mod commit_files;
mod connect;
mod failure;
mod forge;
mod github;
mod gitlab;
mod http_client;
mod mark;
mod policy;
mod publisher;
mod published_file;
mod report;
mod session;
mod submission;
mod text_outputs;

pub use self::answer::allow_answer;
pub use self::command_output::CommandPlace;
pub use self::connect::{TOKEN_VARIABLES, connect};
pub use self::failure::Failure;
pub use self::forge::{Forge, Visit};
pub use self::http_client::Notify;
pub use self::mark::Mark;
pub use self::policy::job_differences;
pub use self::published_file::{
    PUBLISHED_FILE, PublishedEntry, PublishedFile, PublishedOf, PublishedSeal, PublishedState, read_published,
};
pub use self::publisher::Publisher;
pub use self::report::{EntryReport, EntryStatus, PublishReport};
pub use self::session::PublishRequest;
pub use self::submission::{SandboxUse, SealCheck, Submission, Unproposed};
