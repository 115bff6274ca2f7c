//! Output formats. A new one is a function in a file of its own, and a line in the table of what it shows.

mod call_input;
pub mod ci_variables;
pub mod comparison;
mod concise;
mod conversation;
pub mod conversation_text;
mod display;
mod excerpt;
mod fingerprint;
mod github;
mod gitlab;
pub mod html;
#[cfg(test)]
mod injection_tests;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod missing_hosts;
mod plan_text;
mod problems;
pub(crate) mod proposed;
pub mod record_files;
mod rule_docs;
pub mod run_stats;
pub mod run_table;
mod sarif;
#[cfg(test)]
mod snapshot_tests;
pub mod step_summary;
pub mod step_view;
pub mod test_text;
mod text;
pub(crate) mod uri;

use self::comparison::Comparison;
pub use self::display::DisplayOptions;
pub(crate) use self::display::{LineWriter, to_json};
pub use self::plan_text::{PlanPreview, StatePreview};
use self::run_table::RunTable;
use crate::cases::TestReport;
use crate::diagnostic::{Diagnostic, Rule};
use crate::event::RunResult;

/// The formats of one kind of output: their names on the command line, and the functions that render it.
pub type Formats<F> = &'static [(&'static str, F)];

/// All findings of a command. The text is empty or ends with a line end.
pub static FINDINGS: Formats<fn(&[Diagnostic], DisplayOptions) -> String> = &[
    ("text", text::findings),
    ("concise", concise::findings),
    ("json", json::findings),
    ("github", github::findings),
    ("sarif", sarif::findings),
    ("gitlab", gitlab::findings),
];

/// The full pages of rules.
pub static RULE_PAGES: Formats<fn(&[&Rule], DisplayOptions) -> String> =
    &[("text", rule_docs::full_pages), ("json", json::rules), ("markdown", markdown::rule_pages)];

/// A list of rules with their summaries.
pub static RULE_LISTS: Formats<fn(&[&Rule], DisplayOptions) -> String> =
    &[("text", rule_docs::rule_list), ("json", json::rules), ("markdown", markdown::rule_list)];

/// A plan, before it is run.
pub static PLANS: Formats<fn(&PlanPreview<'_>) -> String> =
    &[("text", plan_text::plan), ("json", json::plan), ("jsonl", json::plan_line)];

/// What stdout gets at the end of a run. With `jsonl`, it already got every event.
pub static ANSWERS: Formats<fn(&RunResult) -> String> =
    &[("text", text::answer), ("json", json::answer), ("jsonl", |_| String::new())];

/// A comparison of two runs.
pub static COMPARISONS: Formats<fn(&Comparison, DisplayOptions) -> String> =
    &[("text", comparison::page), ("json", json::comparison)];

/// A list of records.
pub static RUN_LISTS: Formats<fn(&RunTable, DisplayOptions) -> String> =
    &[("text", run_table::text), ("json", run_table::json)];

/// The report of all test cases. That of `text` leaves out what [`test_text::case_line`] showed.
pub static TEST_REPORTS: Formats<fn(&TestReport, DisplayOptions) -> String> =
    &[("text", test_text::summary), ("json", json::test_report), ("junit", junit::test_report)];

/// The format of that name, or the first one of the table.
pub fn find<F: Copy>(formats: Formats<F>, name: &str) -> F {
    formats.iter().find(|(known, _)| *known == name).unwrap_or(&formats[0]).1
}
