//! Why the record of a run may not continue, as data and, once, in words.

use std::path::{Path, PathBuf};

use crate::plan::diff::PlanChange;
use crate::text::shell_words::shell_quote;

/// The verdict on a record that was made elsewhere, where one of ours is needed.
pub const OTHER_KEY: &str = "this record was made on another machine or with another key";

/// The verdict on the record of the run with this id, where another one is needed.
pub fn record_of(run_id: &str) -> String {
    format!("it is the record of the run `{run_id}`")
}

/// The verdict on an earlier attempt of the run with this id, where another record is needed.
pub fn previous_attempt_of(run_id: &str) -> String {
    format!("it is an earlier attempt of the run `{run_id}`")
}

/// Why a record may not continue.
#[derive(Debug)]
pub enum Obstacle {
    /// It was made on another machine or with another key, so no one here has approved the permissions in it.
    Foreign {
        /// Whether its run has ended, so that only its answer is wanted.
        has_ended: bool,
    },
    /// It is the record of another run.
    OtherRun {
        /// The id of that run.
        run_id: String,
    },
    /// It is an earlier attempt of a run, which was started again.
    PreviousAttempt {
        /// The id of that run.
        run_id: String,
    },
    /// It is a copy of a record that still exists.
    Copied {
        /// The record that was copied.
        original: PathBuf,
    },
    /// Its run has another plan.
    OtherPlan {
        /// The differences, from the recorded plan to the new one.
        changes: Vec<PlanChange>,
    },
    /// The workspace has another commit checked out than during the run.
    OtherCommit {
        /// The commit that is checked out.
        now: String,
        /// The commit at the time of the run.
        then: String,
    },
    /// The state of the job has changed since the run has read it: another run has saved its own, or somebody has edited it.
    StateChanged {
        /// Its file.
        file: PathBuf,
    },
    /// Secrets have other values than during the run.
    ChangedSecrets {
        /// Their names.
        names: Vec<String>,
    },
    /// A journal has fewer lines than were on the disk.
    LinesLost {
        /// The journal in the record.
        journal: String,
        /// How many lines it has.
        lines: u64,
        /// How many were on the disk, at least.
        flushed: u64,
    },
    /// The run ended at a limit that isn't higher now.
    Limit {
        /// Its name for `--limit`.
        name: &'static str,
        /// What was used of it, in words.
        used: String,
        /// The argument for `--limit` that allows more.
        argument: String,
    },
}

/// What continues a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContinuedBy {
    /// `legwork resume`.
    Resume,
    /// `legwork run --key`.
    Key,
    /// `legwork map`, as a row.
    Row,
}

impl Obstacle {
    /// What is wrong, in one sentence that names the record.
    pub(super) fn message(&self, record: &Path) -> String {
        let path = record.display();
        match self {
            Self::Foreign { .. } => format!("{path}: {OTHER_KEY}"),
            Self::OtherRun { run_id } => format!("{path}: {}", record_of(run_id)),
            Self::PreviousAttempt { run_id } => format!("{path}: {}", previous_attempt_of(run_id)),
            Self::Copied { original } => {
                format!("{path}: this is a copy of the record {}, which still exists", original.display())
            }
            Self::OtherPlan { changes } => {
                format!("{path}: this record is of a run with another plan; these differ: {}", change_list(changes))
            }
            Self::OtherCommit { now, then } => {
                format!("{path}: the workspace is at commit {now}, and the run was at {then}")
            }
            Self::StateChanged { file } => {
                format!("{path}: the state of the job has changed since the run has read it: {}", file.display())
            }
            Self::ChangedSecrets { names } => {
                format!("{path}: these secrets have changed since the run was interrupted: {}", names.join(", "))
            }
            Self::LinesLost { journal, lines, flushed } => format!(
                "{path}: {journal} has lost lines at its end: it has {lines}, and at least {flushed} were on the disk"
            ),
            Self::Limit { name, .. } => {
                format!("{path}: the run ended at its limit `{name}`, which --limit doesn't raise")
            }
        }
    }

    /// What to do about it.
    pub(super) fn hint(&self, record: &Path, by: ContinuedBy) -> String {
        let resume = format!("`legwork resume {}", shell_quote(record));
        let again = match by {
            ContinuedBy::Resume => "start a new run",
            ContinuedBy::Key => "start again with --fresh",
            ContinuedBy::Row => "move its record away, and the row starts again",
        };
        match self {
            Self::Foreign { has_ended: true } if by == ContinuedBy::Key => {
                "Its run has ended. Use the LEGWORK_RECORD_KEY with which it was made, another --key, or --fresh."
                    .to_owned()
            }
            Self::Foreign { .. } => {
                let trust = match by {
                    ContinuedBy::Resume => "use --trust-record".to_owned(),
                    _ => format!("resume it with {resume} --trust-record`"),
                };
                format!(
                    "Check what its plan permits, then {trust}. Machines that share runs need the same LEGWORK_RECORD_KEY."
                )
            }
            Self::OtherRun { .. } | Self::PreviousAttempt { .. } => "Move it away, or choose another name.".to_owned(),
            Self::Copied { original } => format!(
                "Resume the original: legwork resume {}. {resume} --force` resumes the copy as well, and the remaining work is \
                 done twice.",
                shell_quote(original)
            ),
            Self::OtherPlan { .. } if by == ContinuedBy::Row => format!(
                "The job or the row has changed since. Choose another name for the map with --name NAME, undo the change, or \
                 move the record away: {}",
                record.display()
            ),
            Self::OtherPlan { .. } => {
                "Use another key, or add --fresh to keep the old record under another name and start again.".to_owned()
            }
            Self::OtherCommit { .. } => format!("Check out that commit, resume it with {resume} --force`, or {again}."),
            Self::StateChanged { .. } => format!(
                "Another run has saved its own, or somebody has edited the file, and the run would replace that. Let it do so with \
                 {resume} --force`, or {again}."
            ),
            Self::ChangedSecrets { .. } => format!(
                "The workspace may contain the old values, which would no longer be masked. Set the old values, resume it \
                 without changes.patch with {resume} --force`, or {again}."
            ),
            Self::LinesLost { lines, .. } => {
                let go = if *lines == 0 { String::new() } else { format!("continue it with {resume} --force`, or ") };
                format!(
                    "What the run did after these lines isn't known, and would be done again. Check the workspace, then {go}{again}."
                )
            }
            Self::Limit { used, argument, .. } => {
                format!("{used}; raise the limit: legwork resume {} --limit {argument}", shell_quote(record))
            }
        }
    }
}

/// Names what differs between two plans; of many differences only the first.
fn change_list(changes: &[PlanChange]) -> String {
    const MOST: usize = 10;
    let names: Vec<&str> = changes.iter().take(MOST).map(|change| change.path.as_str()).collect();
    match changes.len().saturating_sub(MOST) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remedy that the command doesn't have, such as `--fresh` for a row, helps nobody.
    #[test]
    fn each_remedy_is_one_that_its_command_has() {
        let obstacles = || {
            let (now, then) = ("a".to_owned(), "b".to_owned());
            [
                Obstacle::Foreign { has_ended: false },
                Obstacle::Foreign { has_ended: true },
                Obstacle::OtherRun { run_id: "other".to_owned() },
                Obstacle::PreviousAttempt { run_id: "other".to_owned() },
                Obstacle::Copied { original: "runs/job/k".into() },
                Obstacle::OtherCommit { now, then },
                Obstacle::StateChanged { file: "runs/job/state.json".into() },
                Obstacle::ChangedSecrets { names: vec!["TOKEN".to_owned()] },
                Obstacle::LinesLost { journal: "events.jsonl".to_owned(), lines: 0, flushed: 9 },
                Obstacle::LinesLost { journal: "events.jsonl".to_owned(), lines: 1, flushed: 9 },
            ]
        };
        let record = Path::new("runs/job/a b");
        for obstacle in obstacles() {
            assert!(obstacle.message(record).contains("runs/job/a b"), "{obstacle:?}");
            for by in [ContinuedBy::Resume, ContinuedBy::Key, ContinuedBy::Row] {
                let hint = obstacle.hint(record, by);
                assert!(hint.ends_with('.'), "{hint}");
                assert!(by == ContinuedBy::Key || !hint.contains("--fresh"), "{by:?}: {hint}");
                let has_force = hint.contains("--force") || hint.contains("--trust-record");
                assert!(!has_force || by == ContinuedBy::Resume || hint.contains("legwork resume"), "{by:?}: {hint}");
            }
        }
        // Nothing is left that could be resumed.
        let lost = Obstacle::LinesLost { journal: "events.jsonl".to_owned(), lines: 0, flushed: 9 };
        assert!(!lost.hint(record, ContinuedBy::Key).contains("--force"));
        let lost = Obstacle::LinesLost { journal: "events.jsonl".to_owned(), lines: 1, flushed: 9 };
        assert!(lost.hint(record, ContinuedBy::Resume).contains("`legwork resume 'runs/job/a b' --force`"));
    }
}
