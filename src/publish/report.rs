//! What became of the outputs of a record.

use super::failure::Failure;
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_TEMPORARY};
use crate::outputs::{Preview, PreviewPart};
use crate::reports::proposed::{append_parts, fenced};
use crate::text::sanitize;

/// The longest line of a summary, in characters.
const MAX_LINE_CHARS: usize = 1_000;

/// The most characters of all texts in the summary of a step, of which GitHub shows at most 1 MiB.
const MAX_SUMMARY_CHARS: usize = 200_000;

/// What became of one output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryReport {
    /// Its id; in a map, with the row's id before it.
    pub id: String,
    /// The kind of output.
    pub kind: &'static str,
    /// What became of it.
    pub status: EntryStatus,
}

/// What became of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryStatus {
    /// It was published now, or was found.
    Done {
        /// Its address.
        url: Option<String>,
    },
    /// An earlier process has published it.
    AlreadyDone {
        /// Its address.
        url: Option<String>,
    },
    /// It would be published: what would be sent.
    Planned(Preview),
    /// It wasn't, and may be later.
    Later(String),
    /// It may not be published.
    Refused(String),
    /// The token isn't accepted, or lacks a permission.
    Forbidden(String),
    /// It announces something that isn't there.
    Waiting(String),
}

impl From<Failure> for EntryStatus {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unclear(why) => {
                Self::Later(format!("{why}. Nobody knows whether it is there; the same command looks for it first"))
            }
            Failure::Later(why) => Self::Later(why),
            Failure::Forbidden(why) => Self::Forbidden(why),
            Failure::Missing(why) | Failure::Refused(why) => Self::Refused(why),
        }
    }
}

/// What became of all outputs.
#[derive(Debug, Default)]
pub struct PublishReport {
    /// The outputs, in the order in which they were published.
    pub entries: Vec<EntryReport>,
    /// The runs of which nothing can be published, and why.
    pub problems: Vec<(String, String)>,
    /// The runs with nothing to do, and why.
    pub idle: Vec<(String, String)>,
}

impl PublishReport {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        let any = |is: fn(&EntryStatus) -> bool| self.entries.iter().any(|entry| is(&entry.status));
        match () {
            () if any(|status| matches!(status, EntryStatus::Later(_))) => EXIT_TEMPORARY,
            () if !self.problems.is_empty() => EXIT_FAILED,
            () if any(|status| matches!(status, EntryStatus::Refused(_))) => EXIT_FAILED,
            () if any(|status| matches!(status, EntryStatus::Forbidden(_))) => EXIT_ENVIRONMENT,
            () if any(|status| matches!(status, EntryStatus::Waiting(_))) => EXIT_TEMPORARY,
            () => 0,
        }
    }

    /// The report as text: one line for each output, and below it what would be published.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let label = |id: &str| sanitize::line(id);
        for (run, why) in &self.problems {
            text += &format!("refused  {}: {}\n", label(run), sanitize::line(why));
        }
        for (run, why) in &self.idle {
            text += &format!("nothing  {}: {}\n", label(run), sanitize::line(why));
        }
        for EntryReport { id, kind, status } in &self.entries {
            let (verb, rest) = match status {
                EntryStatus::Done { url } | EntryStatus::AlreadyDone { url } => {
                    ("done", url.clone().unwrap_or_default())
                }
                EntryStatus::Planned(preview) => ("would", sanitize::line(&preview.title)),
                EntryStatus::Later(why) => ("later", sanitize::line(why)),
                EntryStatus::Refused(why) => ("refused", sanitize::line(why)),
                EntryStatus::Forbidden(why) => ("refused", sanitize::line(why)),
                EntryStatus::Waiting(why) => ("waiting", sanitize::line(why)),
            };
            text += format!("{verb:<8} {} ({kind}): {rest}", label(id)).trim_end_matches([':', ' ']);
            text.push('\n');
            let EntryStatus::Planned(preview) = status else { continue };
            for part in &preview.parts {
                text += &match part {
                    PreviewPart::Line(line) => format!("{}\n", sanitize::line(line)),
                    PreviewPart::Markdown(part) | PreviewPart::Plain(part) => {
                        format!("{}\n", fenced(&sanitize::text(part)))
                    }
                };
            }
        }
        if text.is_empty() {
            text = "nothing to publish\n".to_owned();
        }
        text
    }

    /// The report for the summary of a step of GitHub's workflows.
    pub fn step_summary(&self, is_dry_run: bool) -> String {
        let mut page = format!("### legwork publish{}\n\n", if is_dry_run { " (dry run)" } else { "" });
        let mut left = MAX_SUMMARY_CHARS;
        for (run, why) in self.problems.iter().chain(&self.idle) {
            page += &format!("- {}: {}\n", escape(run), escape(why));
        }
        for EntryReport { id, kind, status } in &self.entries {
            let verdict = match status {
                EntryStatus::Done { url: Some(url) } | EntryStatus::AlreadyDone { url: Some(url) } => {
                    format!("[done]({url})")
                }
                EntryStatus::Done { .. } | EntryStatus::AlreadyDone { .. } => "done".to_owned(),
                EntryStatus::Planned(preview) => escape(&preview.title),
                EntryStatus::Later(why)
                | EntryStatus::Refused(why)
                | EntryStatus::Forbidden(why)
                | EntryStatus::Waiting(why) => format!("**not published**: {}", escape(why)),
            };
            page += &format!("- {} ({kind}): {verdict}\n", escape(id));
            if let EntryStatus::Planned(preview) = status {
                append_parts(&mut page, &preview.parts, &mut left);
            }
        }
        page
    }
}

fn escape(text: &str) -> String {
    sanitize::escape_markdown(text, MAX_LINE_CHARS)
}
