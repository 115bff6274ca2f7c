//! Reads the record of one row into a row of a table: from `result.json`, or else from the journal.

use std::fs;
use std::io::{self, BufReader};
use std::path::Path;

use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::tables::{MapRow, ProblemKind, RowState};
use crate::error::other_format;
use crate::event::{CutOffRequests, ErrorInfo, Event, Outcome, PARENT, RunModel, Usage, is_agent_id};
use crate::journal::{JournalError, JournalReader, journal_file};
use crate::pricing::{Prices, round_usd};
use crate::record::{
    FileDefect, LOST_START, RESULT_FILE, has_lost_start, is_set_aside, open_file, read_result, read_versioned,
    used_instead,
};

/// The largest journal that is read, in bytes.
const MAX_JOURNAL_BYTES: u64 = 2 << 30;
/// The most entries of a record's folder that are looked at.
const MAX_LISTED: usize = 100;

/// What was found in a row's folder.
#[derive(Debug)]
pub enum RowReading {
    /// A record of the row, and what is wrong with it, if anything.
    Row(Box<MapRow>, Option<(ProblemKind, String)>),
    /// An earlier record of another row, which was set aside under a number.
    SetAside,
    /// Something else, and why it isn't a record of the row.
    Foreign(String),
    /// Nothing.
    Absent,
}

/// Reads the record of a row. `job` is the name of the map's job, if it is known. `prices` are for the cost of a run that hasn't
/// ended.
pub fn read_row(record: &Path, id: &str, job: Option<&str>, prices: &Prices) -> RowReading {
    match fs::symlink_metadata(record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return RowReading::Absent,
        Err(error) => return damaged(id, format!("its folder can't be read: {error}")),
        Ok(found) if found.is_symlink() => return RowReading::Foreign("it is a symbolic link".to_owned()),
        Ok(found) if !found.is_dir() => return RowReading::Foreign("it isn't a folder".to_owned()),
        Ok(_) => {}
    }
    let result = match read_result(record) {
        Ok(result) => result,
        Err(FileDefect::OtherFormat(format)) => return RowReading::Foreign(other_format(format)),
        Err(FileDefect::Unreadable(why)) => {
            return without_result(record, id, job, prices, Some(format!("{RESULT_FILE} {why}")));
        }
    };
    let Some(result) = result else { return without_result(record, id, job, prices, None) };
    if let Some(other) = other_run(record, id, job, &result.run_id, &result.job) {
        return other;
    }
    if result.exit_code != exit_code(result.outcome, result.exit_code) {
        let (outcome, code) = (result.outcome, result.exit_code);
        return damaged(id, format!("result.json says `{outcome}` with the exit code {code}"));
    }
    let (inputs, problem) = match read_inputs(record) {
        Ok(inputs) if has_lost_start(record) => (inputs, Some((ProblemKind::Torn, LOST_START.to_owned()))),
        Ok(inputs) => (inputs, None),
        Err(why) => (IndexMap::new(), Some((ProblemKind::Torn, format!("{why}, so its inputs aren't known")))),
    };
    RowReading::Row(Box::new(MapRow::ended(id, inputs, result)), problem)
}

/// The exit code that belongs to an outcome. That of an interrupted run depends on the signal.
fn exit_code(outcome: Outcome, recorded: u8) -> u8 {
    match outcome {
        Outcome::Interrupted if matches!(recorded, 129 | 130 | 143) => recorded,
        outcome => outcome.exit_code(None),
    }
}

/// What a record is that isn't that of the row.
fn other_run(record: &Path, id: &str, job: Option<&str>, run_id: &str, recorded_job: &str) -> Option<RowReading> {
    if let Some(job) = job.filter(|job| *job != recorded_job) {
        return Some(RowReading::Foreign(format!("it is a record of the job `{recorded_job}` instead of `{job}`")));
    }
    match run_id == id {
        true => None,
        false if is_set_aside(&record.with_file_name(run_id), record) => Some(RowReading::SetAside),
        false => Some(RowReading::Foreign(format!("it is the record of the run `{run_id}`"))),
    }
}

fn damaged(id: &str, why: String) -> RowReading {
    let error = ErrorInfo { code: RowState::Damaged.name().to_owned(), message: why.clone(), hint: None };
    let row = MapRow { error: Some(error), ..MapRow::new(id, RowState::Damaged) };
    RowReading::Row(Box::new(row), Some((ProblemKind::Damaged, why)))
}

/// Reads a record without a usable result from its journal. `defect` says why `result.json` can't be used, if there is one.
fn without_result(record: &Path, id: &str, job: Option<&str>, prices: &Prices, defect: Option<String>) -> RowReading {
    let mut journal = Journal::new(prices);
    let end = journal.read_all(record);
    if let Err(JournalFailure::OtherFormat(format)) = end {
        return RowReading::Foreign(other_format(format));
    }
    let Some((started_at, started)) = journal.summary.started.take() else {
        return match (end, defect) {
            (Err(JournalFailure::Invalid(why)), _) => damaged(id, why),
            (_, Some(defect)) => damaged(id, defect),
            // The job and the plan are written before the journal.
            _ if is_fresh(record) => RowReading::Row(Box::new(MapRow::new(id, RowState::Unfinished)), None),
            _ => RowReading::Foreign("it isn't a run's record: it has no journal".to_owned()),
        };
    };
    if let Some(other) = other_run(record, id, job, &started.run_id, &started.job) {
        return other;
    }
    let inputs = started.plan.inputs.clone();
    journal.summary.started = Some((started_at, started));
    if let Err(JournalFailure::Invalid(why)) = end {
        return damaged(id, why);
    }
    let torn = journal.is_torn.then(|| {
        let why = "the last line of its journal is incomplete, because the run was killed; it can be resumed";
        (ProblemKind::Torn, why.to_owned())
    });
    match journal.summary.result() {
        Some(result) => {
            let problem = defect.map(|defect| (ProblemKind::Torn, used_instead(&defect)));
            RowReading::Row(Box::new(MapRow::ended(id, inputs, result)), problem)
        }
        None => {
            let row = MapRow {
                inputs,
                turns: journal.turns,
                tool_calls: journal.tool_calls,
                usage: journal.usage,
                cost_usd: journal.cost_usd.map(round_usd),
                cut_off_requests: journal.cut_off_requests,
                started_at: Some(started_at),
                ..MapRow::new(id, RowState::Unfinished)
            };
            let defect = defect.map(|defect| (ProblemKind::Torn, format!("{defect}, and its journal has no end")));
            RowReading::Row(Box::new(row), defect.or(torn))
        }
    }
}

/// Whether a folder has at most what a run leaves that was killed before its first event.
fn is_fresh(record: &Path) -> bool {
    let is_ours = |name: &str| {
        matches!(name, "job.yaml" | "plan.json" | "events.jsonl" | "subagents" | "attachments" | "workspace.start")
            || name.starts_with("lease")
            || name.starts_with('.')
    };
    let listing = fs::read_dir(record).into_iter().flatten().flatten().take(MAX_LISTED);
    listing.into_iter().all(|entry| is_ours(&entry.file_name().to_string_lossy()))
}

/// The values of the inputs, from `plan.json` or else from the journal's first entry.
fn read_inputs(record: &Path) -> Result<IndexMap<String, Value>, String> {
    #[derive(Deserialize)]
    struct PlanInputs {
        inputs: IndexMap<String, Value>,
    }
    let why = match read_versioned::<PlanInputs>(record, "plan.json") {
        Ok(Some(plan)) => return Ok(plan.inputs),
        Ok(None) => "is missing".to_owned(),
        Err(defect) => defect.to_string(),
    };
    let file = open_file(record, &journal_file(PARENT), MAX_JOURNAL_BYTES);
    let first = file.ok().and_then(|file| JournalReader::new(BufReader::new(file)).next()?.ok());
    match first.map(|entry| entry.event) {
        Some(Event::RunStarted(started)) => Ok(started.plan.inputs),
        _ => Err(format!("plan.json {why}")),
    }
}

/// What the journals of a run say.
struct Journal<'a> {
    summary: RunModel,
    turns: u32,
    tool_calls: u64,
    usage: Usage,
    /// What the requests that were answered have cost; `None` if a price isn't known.
    cost_usd: Option<f64>,
    cut_off_requests: CutOffRequests,
    prices: &'a Prices,
    is_torn: bool,
}

/// Why a journal can't be used.
enum JournalFailure {
    OtherFormat(u64),
    Invalid(String),
}

impl<'a> Journal<'a> {
    fn new(prices: &'a Prices) -> Self {
        Self {
            summary: RunModel::default(),
            turns: 0,
            tool_calls: 0,
            usage: Usage::default(),
            cost_usd: Some(0.0),
            cut_off_requests: CutOffRequests::NONE,
            prices,
            is_torn: false,
        }
    }

    /// Counts what a request of an agent has used.
    fn count(&mut self, agent: &str, fallback: Option<&str>, used: Usage, at: Timestamp) {
        self.usage += used;
        let planned = self.summary.started.as_ref().and_then(|(_, started)| started.plan.agent(agent));
        let model = planned.map(|planned| planned.model_named(fallback));
        let cost = match model {
            _ if used == Usage::default() => Some(0.0),
            Some(model) if model.is_scripted() => Some(0.0),
            Some(model) => self.prices.cost(model.price_key(), &used, at.into()),
            None => None,
        };
        self.cost_usd = self.cost_usd.zip(cost).map(|(before, now)| before + now);
    }

    /// Reads the parent's journal and those of its subagents.
    fn read_all(&mut self, record: &Path) -> Result<(), JournalFailure> {
        let mut children = Vec::new();
        self.read(record, PARENT, &mut children)?;
        if self.summary.result().is_none() {
            for child in children {
                self.read(record, &child, &mut Vec::new())?;
            }
        }
        Ok(())
    }

    fn read(&mut self, record: &Path, agent: &str, children: &mut Vec<String>) -> Result<(), JournalFailure> {
        let name = journal_file(agent);
        let file = match open_file(record, &name, MAX_JOURNAL_BYTES) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(JournalFailure::Invalid(format!("{name} can't be read: {error}"))),
        };
        // The fallback that was asked last.
        let mut fallback = None;
        let mut open = None;
        for entry in JournalReader::new(BufReader::with_capacity(64 << 10, file)) {
            let entry = match entry {
                Ok(entry) if entry.agent == agent => entry,
                Ok(_) => return Err(JournalFailure::Invalid(format!("{name} has another agent's events"))),
                Err(JournalError::Torn { .. }) => {
                    self.is_torn = true;
                    break;
                }
                Err(JournalError::OtherFormat { format, .. }) => return Err(JournalFailure::OtherFormat(format)),
                Err(error) => return Err(JournalFailure::Invalid(format!("{name}: {error}"))),
            };
            if agent == PARENT {
                self.summary.apply(&entry.agent, &entry.event, entry.at);
            }
            match &entry.event {
                Event::RequestStarted(request) => {
                    fallback.clone_from(&request.model);
                    let most = CutOffRequests::one(request.reserved_tokens, request.reserved_cost_usd);
                    self.cut_off_requests += open.replace(most).unwrap_or_default();
                }
                Event::CallStarted(started) => {
                    self.tool_calls += u64::from(agent == PARENT);
                    let child = started.child.as_ref().filter(|child| is_agent_id(child) && !children.contains(child));
                    children.extend(child.cloned());
                }
                Event::Retrying(event) => self.count(agent, fallback.as_deref(), event.retry.usage, entry.at),
                Event::RequestFailed(event) => {
                    open = None;
                    self.count(agent, fallback.as_deref(), event.usage, entry.at);
                }
                Event::RequestInterrupted(event) => {
                    open = None;
                    self.count(agent, fallback.as_deref(), event.usage, entry.at);
                }
                Event::ReplyReceived(received) => {
                    open = None;
                    self.count(agent, fallback.as_deref(), received.reply.usage, entry.at);
                    if agent == PARENT {
                        self.turns = self.turns.max(received.turn);
                    }
                }
                _ => {}
            }
        }
        self.cut_off_requests += open.unwrap_or_default();
        Ok(())
    }
}
