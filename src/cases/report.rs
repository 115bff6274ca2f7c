//! What came of cases: plain data, for formats to show.

use std::path::PathBuf;

/// What came of all cases.
#[derive(Debug, Default)]
pub struct TestReport {
    /// Each case, in the order of the names.
    pub cases: Vec<CaseReport>,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// Whether a signal ended it: cases that didn't come to their end aren't in it.
    pub interrupted: bool,
}

impl TestReport {
    /// How many cases failed.
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.failures.is_empty()).count()
    }
}

/// What came of one case.
#[derive(Debug)]
pub struct CaseReport {
    /// Its name: `tour/short`.
    pub name: String,
    /// The folder of its job: `tour`.
    pub job: String,
    /// Its own folder's name: `short`.
    pub case: String,
    /// Its folder, as it is shown.
    pub folder: String,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// What isn't as expected; empty where it passed.
    pub failures: Vec<Failure>,
    /// Snapshots that were renewed, as they are shown.
    pub updated_snapshots: Vec<String>,
    /// Where the workspace and the record still lie; `None` where they are gone.
    pub kept_folder: Option<PathBuf>,
}

/// Something that isn't as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where the expectation stands: file, line and column, from 1. `None` where no line says it.
    pub place: Option<(String, usize, usize)>,
    /// What isn't as expected, in one sentence.
    pub message: String,
    /// More of it, in lines: a diff, what was printed. Empty where there is no more.
    pub detail: String,
}

impl Failure {
    /// One without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into(), detail: String::new() }
    }

    /// Adds lines.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Says where the expectation stands.
    #[must_use]
    pub fn at(mut self, place: &crate::diagnostic::SourceSpan) -> Self {
        let (line, column) = place.start();
        self.place = Some((place.source.name.clone(), line, column));
        self
    }
}
