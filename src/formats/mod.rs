//! How things are shown. A new format is one file here and one line in [`FORMATS`].

pub mod comparison;
mod comparison_text;
mod concise;
mod excerpt;
mod fingerprint;
mod github;
mod gitlab;
mod html;
#[cfg(test)]
mod injection_tests;
mod json;
mod jsonl;
mod junit;
pub mod markdown;
mod plan_text;
mod rule_docs;
pub mod run_stats;
mod sarif;
#[cfg(test)]
mod snapshot_tests;
pub mod step_summary;
mod test_text;
mod text;
mod uri;

use std::io::{self, Write};

use self::comparison::Comparison;
use crate::cases::{CaseReport, TestReport};
use crate::diagnostic::{Diagnostic, OmittedFindings, Rule, Severity};
use crate::event::{JournalEntry, RunResult, in_call_order};
use crate::plan::{CostBound, Plan};

/// A way to show things. Each method has what it shows; `None` where the format has no form for it.
pub trait Format: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it has a form for.
    fn subjects(&self) -> &'static [Subject];

    /// All findings of a command, as one text that ends with a line end unless it is empty.
    fn diagnostics(&self, findings: &[Diagnostic], look: DisplayOptions) -> Option<String> {
        let _ = (findings, look);
        None
    }

    /// What rules are about, each with its whole page, as one text.
    fn rule_pages(&self, rules: &[&Rule], look: DisplayOptions) -> Option<String> {
        let _ = (rules, look);
        None
    }

    /// A list of rules, as one text.
    fn rule_list(&self, rules: &[&Rule], look: DisplayOptions) -> Option<String> {
        let _ = (rules, look);
        None
    }

    /// A plan, before it is run.
    fn plan(&self, preview: &PlanPreview<'_>) -> Option<String> {
        let _ = preview;
        None
    }

    /// An event as it happens, as one line without a line end.
    fn event(&self, entry: &JournalEntry) -> Option<String> {
        let _ = entry;
        None
    }

    /// What stdout gets when a run has ended.
    fn run_result(&self, result: &RunResult) -> Option<String> {
        let _ = result;
        None
    }

    /// Two runs side by side.
    fn comparison(&self, comparison: &Comparison, look: DisplayOptions) -> Option<String> {
        let _ = (comparison, look);
        None
    }

    /// A case as it ends, without a line end.
    fn case_result(&self, case: &CaseReport, look: DisplayOptions) -> Option<String> {
        let _ = (case, look);
        None
    }

    /// What came of all cases, as one text. Where [`Format::case`] shows each, it is what is left to say.
    fn test_report(&self, report: &TestReport, look: DisplayOptions) -> Option<String> {
        let _ = (report, look);
        None
    }

    /// A run from its first to its last event.
    ///
    /// # Errors
    /// Where it can't be written to `out`.
    fn transcript(&self, story: &mut Transcript<'_>, out: &mut dyn Write) -> Option<io::Result<()>> {
        let _ = (story, out);
        None
    }
}

/// What a dry run shows.
pub struct PlanPreview<'a> {
    /// What would run.
    pub plan: &'a Plan,
    /// The most that it can cost.
    pub cost_bound: &'a CostBound,
    /// How tools would be confined, in a few words.
    pub sandbox: &'a str,
    /// Whether to show what models are told of their tools.
    pub verbose: bool,
    /// What the reader's display can do.
    pub display: DisplayOptions,
}

/// A run that is told from its record.
pub struct Transcript<'a> {
    /// What was planned.
    pub plan: &'a Plan,
    /// How it ended; `None` where it didn't.
    pub result: Option<&'a RunResult>,
    /// The parent's events, in the order in which they are read.
    entries: Box<dyn Iterator<Item = JournalEntry> + 'a>,
}

impl<'a> Transcript<'a> {
    /// Takes the parent's events as its journal has them, oldest first.
    pub fn new(
        plan: &'a Plan,
        result: Option<&'a RunResult>,
        journal: impl Iterator<Item = JournalEntry> + 'a,
    ) -> Self {
        Self { plan, result, entries: Box::new(in_call_order(journal)) }
    }
}

/// What there is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Findings: [`Format::diagnostics`].
    Diagnostics,
    /// What findings mean: [`Format::pages`] and [`Format::list`].
    Rules,
    /// A run while it goes on and when it has ended: [`Format::event`], [`Format::answer`], and its [`Format::plan`].
    Run,
    /// A recorded run: [`Format::story`].
    Transcript,
    /// Two recorded runs: [`Format::comparison`].
    Comparison,
    /// Cases that were run: [`Format::case`] and [`Format::cases`].
    Cases,
}

/// What the reader's display can do.
#[derive(Debug, Clone, Copy)]
pub struct DisplayOptions {
    /// Whether escape sequences for colours may be used.
    pub colour: bool,
    /// Columns of a line; longer source lines are cut around what is shown.
    pub width: usize,
}

/// All formats.
pub static FORMATS: &[&dyn Format] = &[
    &text::Text,
    &concise::Concise,
    &json::Json,
    &jsonl::Jsonl,
    &junit::Junit,
    &github::Github,
    &sarif::Sarif,
    &gitlab::Gitlab,
    &markdown::Markdown,
    &html::Html,
];

/// The format of that name.
pub fn find(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

/// How many findings of a severity there are, those included that aren't shown.
fn count(findings: &[Diagnostic], severity: Severity) -> usize {
    let mut all = OmittedFindings::default();
    findings.iter().for_each(|finding| all.add(finding));
    match severity {
        Severity::Error => all.errors,
        Severity::Warning => all.warnings,
    }
}

/// `1 error`, `2 errors`.
fn pluralize(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in FORMATS {
            assert_eq!(find(format.name()).map(Format::name), Some(format.name()));
        }
        assert!(find("xml").is_none());
    }
}
