//! What a run has proposed, read from its record. A record can come from anywhere, so its parts are compared with each other.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::answer::{ANSWER_OUTPUT, answer_entry};
use super::mark::{Mark, entry_digest};
use crate::apply::RunChanges;
use crate::error::Error;
use crate::event::{Event, Outcome, PARENT, RunModel, WorkspaceChanged};
use crate::journal::RecordKey;
use crate::outputs::{Entry, OUTPUTS_FILE, Outputs, OutputsFile, Trigger};
use crate::record::{Record, empty_outputs_file, outputs_file, read_file};

/// The largest `outputs.json` that is read, in bytes.
const MAX_OUTPUTS_BYTES: u64 = 64 << 20;
/// The tool that runs commands.
const BASH: &str = "bash";

/// What a run has proposed.
#[derive(Debug)]
pub struct Submission {
    /// The row's id, if a map is published.
    pub row: Option<String>,
    /// The record's folder.
    pub folder: PathBuf,
    /// What it proposes.
    pub file: OutputsFile,
    /// How the run ended; `None` if it hasn't.
    pub outcome: Option<Outcome>,
    /// When it started.
    pub started_at: Timestamp,
    /// Its patch, or why that can't be published.
    pub patch: Result<String, String>,
    /// Its changes, if they are known.
    pub changed: Option<WorkspaceChanged>,
    /// The id of the run in marks.
    pub run: String,
    /// What its seal says.
    pub seal: SealCheck,
    /// How its commands were confined.
    pub sandbox: SandboxUse,
    /// The values of the steps before the agent that decide lists of outputs, as the record has them.
    pub list_steps: Map<String, Value>,
    /// What the job file in this checkout allows.
    pub policy: Outputs,
}

/// A run that proposed nothing, because it didn't come to its end.
#[derive(Debug)]
pub struct Unproposed {
    /// Why.
    pub why: String,
    /// Whether there was nothing to do, which is no failure.
    pub is_idle: bool,
}

/// What the seal of a record says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealCheck {
    /// It was made with the key, and nothing has changed since.
    Sealed,
    /// It has none.
    Unsealed,
    /// There is no key to check it with.
    Unchecked,
}

/// How the commands of a run were confined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxUse {
    /// The tiers of its parts.
    pub tiers: Vec<String>,
    /// Whether it started a command, a check or a tool server.
    pub has_commands: bool,
}

impl SandboxUse {
    /// Whether all commands ran in this tier.
    pub fn is_only(&self, tier: &str) -> bool {
        !self.has_commands || self.tiers.iter().all(|used| used == tier)
    }
}

impl Submission {
    /// Reads a record, before anything is known about what the job allows. `map` is the name of the map and the row's id. With
    /// `comment`, the answer is proposed as a comment with this id. `Err` inside says why nothing can be published of the run: it
    /// didn't come to its end.
    ///
    /// # Errors
    /// It isn't a record of a job with outputs, its parts don't fit each other, or its seal doesn't fit.
    pub fn read(
        folder: &Path,
        map: Option<(&str, &str)>,
        key: Option<&RecordKey>,
        comment: Option<&str>,
    ) -> Result<Result<(Self, Record), Unproposed>, Error> {
        let refused = |why: &str| Error::NotARecord { path: folder.to_owned(), why: why.to_owned() };
        let changes = RunChanges::read(folder)?;
        let record = Record::open(folder)?;
        let mut model = RunModel::default();
        let mut sandbox = SandboxUse { has_commands: !record.plan.mcp.is_empty(), ..SandboxUse::default() };
        for (agent, entries) in record.journals()? {
            for entry in entries {
                sandbox.see(&entry.event);
                if agent == PARENT {
                    model.apply(PARENT, &entry.event, entry.at);
                }
            }
        }
        let (started_at, _) = model.started.as_ref().ok_or_else(|| refused("its journal has no beginning"))?;
        let started_at = *started_at;
        let is_answered = comment.is_some() && changes.outcome == Some(Outcome::Completed);
        let derived = outputs_file(&model).or_else(|| empty_outputs_file(&model).filter(|_| is_answered));
        let Some(mut file) = derived else {
            return match changes.outcome {
                Some(Outcome::Completed) => Err(refused("its job has no `outputs`")),
                Some(Outcome::Skipped) => Ok(Err(Unproposed { why: "the run was skipped".to_owned(), is_idle: true })),
                Some(outcome) => Ok(Err(Unproposed { why: format!("the run ended as {outcome}"), is_idle: false })),
                None => {
                    let why = "the run hasn't ended; `legwork resume` finishes it".to_owned();
                    Ok(Err(Unproposed { why, is_idle: false }))
                }
            };
        };
        file.journal_head = record.journal_head()?;
        compare(folder, &file)?;
        if let Some(id) = comment.filter(|_| file.nothing_to_do.is_none()) {
            file.entries.extend(answer_entry(&model, id));
        }
        let run = map.map_or(&*file.run_id, |(name, _)| name).to_owned();
        let submission = Self {
            row: map.map(|(_, row)| row.to_owned()),
            folder: folder.to_owned(),
            outcome: changes.outcome,
            started_at,
            patch: changes.patch,
            list_steps: model.list_steps().clone(),
            changed: model.changed,
            run,
            seal: check_seal(&record, key)?,
            sandbox,
            policy: Outputs::default(),
            file,
        };
        Ok(Ok((submission, record)))
    }

    /// Says what started the process that publishes. The answer is for its issue or pull request.
    pub fn set_trigger(&mut self, trigger: Option<Trigger>) {
        let number = trigger.as_ref().and_then(|trigger| trigger.number);
        self.file
            .entries
            .iter_mut()
            .filter(|entry| entry.name == ANSWER_OUTPUT)
            .for_each(|entry| entry.target = number);
        self.policy.trigger = trigger;
    }

    /// The id of an entry in all that is published together.
    pub fn id_of(&self, entry: &Entry) -> String {
        match &self.row {
            Some(row) => format!("{row}/{}", entry.id),
            None => entry.id.clone(),
        }
    }

    /// The digest of an entry.
    pub fn digest_of(&self, entry: &Entry) -> String {
        let patch = self.file.patch.as_ref().map(|patch| &*patch.sha256);
        match entry.name == ANSWER_OUTPUT {
            // Where nothing is left to publish, nobody looks up which pull request it was for.
            true => entry_digest(&Entry { target: None, ..entry.clone() }, patch),
            false => entry_digest(entry, patch),
        }
    }

    /// The mark of an entry; `None` if a part of it can't be in a mark.
    pub fn mark_of(&self, entry: &Entry) -> Option<Mark> {
        Mark::new(&self.file.job, &self.id_of(entry), &self.run, &self.digest_of(entry))
    }
}

impl SandboxUse {
    fn see(&mut self, event: &Event) {
        match event {
            Event::RunStarted(started) => self.tiers.push(started.sandbox.clone()),
            Event::Resumed(resumed) => self.tiers.push(resumed.sandbox.clone()),
            Event::CallStarted(started) if started.tool == BASH => self.has_commands = true,
            Event::CheckFinished(_) => self.has_commands = true,
            _ => {}
        }
    }
}

/// Refuses an `outputs.json` that says something else than the journal.
fn compare(folder: &Path, derived: &OutputsFile) -> Result<(), Error> {
    let path = || folder.join(OUTPUTS_FILE);
    let text = match read_file(folder, OUTPUTS_FILE, MAX_OUTPUTS_BYTES) {
        // The journal has all of it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(|source| Error::Record { path: path(), source })?,
    };
    let refused = |why: String| Error::NotARecord { path: path(), why };
    let file: OutputsFile = serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))?;
    match file == *derived {
        true => Ok(()),
        false => Err(refused("it differs from the journal; `legwork show --rebuild` restores it".to_owned())),
    }
}

/// Checks that the journals are as they were when the run ended.
fn check_seal(record: &Record, key: Option<&RecordKey>) -> Result<SealCheck, Error> {
    let Some(key) = key else { return Ok(SealCheck::Unchecked) };
    match record.is_sealed_by(key)? {
        None => Ok(SealCheck::Unsealed),
        Some(true) => Ok(SealCheck::Sealed),
        Some(false) => Err(Error::usage(
            format!("{}: the record was changed, or made with another key", record.folder.display()),
            "Its seal doesn't fit the key in LEGWORK_RECORD_KEY: publish the record of the run itself, with the key of that run.",
        )),
    }
}
