//! Test results, as data for formats.

use std::path::PathBuf;

use crate::yaml::Spanned;

/// The results of all cases.
#[derive(Debug, Default)]
pub struct TestReport {
    /// The cases, sorted by name.
    pub cases: Vec<CaseReport>,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// Whether a signal interrupted the tests. Unfinished cases are missing then.
    pub interrupted: bool,
}

impl TestReport {
    /// The number of failed cases.
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.failures.is_empty()).count()
    }
}

/// The result of one case.
#[derive(Debug)]
pub struct CaseReport {
    /// The name: `tour/short`.
    pub name: String,
    /// The folder of the job: `tour`.
    pub job: String,
    /// The folder of the case: `short`.
    pub case: String,
    /// The path of the folder for messages.
    pub folder: String,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The failures; empty if the case passed.
    pub failures: Vec<Failure>,
    /// The updated snapshots, as paths for messages.
    pub updated_snapshots: Vec<String>,
    /// The folder with the workspace and the record; `None` if it was removed.
    pub kept_folder: Option<PathBuf>,
}

/// A failed expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The file, line and column of the expectation, 1-based; `None` if it isn't in a file.
    pub place: Option<(String, usize, usize)>,
    /// The failure in one sentence.
    pub message: String,
    /// Further lines, such as a diff or output.
    pub detail: String,
}

impl Failure {
    /// A failure without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into(), detail: String::new() }
    }

    /// Adds further lines.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds the place of the expectation.
    #[must_use]
    pub fn at(mut self, place: &crate::diagnostic::SourceSpan) -> Self {
        let (line, column) = place.start();
        self.place = Some((place.source.name.clone(), line, column));
        self
    }

    /// Adds the place of a value, if there is one.
    #[must_use]
    pub fn at_value<T>(self, value: Option<&Spanned<T>>) -> Self {
        match value {
            Some(value) => self.at(&value.place()),
            None => self,
        }
    }
}
