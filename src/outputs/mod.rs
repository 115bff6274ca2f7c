//! What a run proposes to do outside: typed outputs, which `legwork publish` applies later, without a model.
//!
//! The agent proposes through one tool for each output of the job. A call is checked and accepted or refused at once; an
//! accepted call is an [`Entry`]. A later process checks all of it again and applies it, with the policy of the job file in its own
//! checkout.

mod check;
mod entry;
mod output;
mod outputs_file;
mod permissions;
mod policy_texts;
mod preview;
mod proposals;
mod review_lines;
mod step_lists;
mod text_rules;
mod trigger;
pub mod trigger_event;

pub use check::{Checked, Checker, nothing_to_do_schema};
pub use entry::{Entry, MAX_KEY, Proposal, is_key};
pub use output::{KINDS, Kind, KindName, Output, Outputs, PatchRules, Rules, Target};
pub use outputs_file::{OUTPUTS_FILE, OutputsFile, Patch, PatchFile};
pub use permissions::{Permission, github_text, gitlab_text, on_github, on_gitlab};
pub use policy_texts::{check_label, check_login, check_title_prefix};
pub use preview::{Preview, PreviewPart};
pub use proposals::{Accepted, OwnChanges, Proposals, Request, TriggerChanges};
pub use review_lines::{ChangedFile, LineComment, ProposedComment, ReviewLines};
pub use step_lists::{check_list_entry, normal_list_entry, unknown_list};
pub use text_rules::{OwnRepository, TextRules, Violation, check_body, check_message, check_title};
pub use trigger::{Branch, Forge, Subject, Trigger};
pub use trigger_event::{TriggerError, TriggerQuery};

/// The longest text that a model can propose, in characters. GitHub accepts 65,536, with the mark.
pub const MAX_BODY_CHARS: usize = 60_000;
/// The most links in one text.
pub const MAX_LINKS: usize = 50;
/// The longest title with its prefix, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// How the answer to a refused call begins. The reason follows.
pub const REFUSED: &str = "Refused: ";
/// How the answer to a refused call ends.
pub const NOT_ACCEPTED: &str = "\nNothing was accepted. Fix it and call again.";

/// The environment variables that hold a forge's token. No command of a job gets them.
pub const FORGE_TOKENS: &[&str] = &["GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN"];

/// Whether an environment variable holds a forge's token.
pub fn is_forge_token(variable: &str) -> bool {
    FORGE_TOKENS.contains(&variable)
}
