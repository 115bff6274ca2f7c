//! A record in a list of records.

use indexmap::IndexMap;
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::state::RecordState;
use crate::event::{CutOffRequests, Outcome, Usage};

/// What a line of the table shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// A run that isn't a row of a map.
    #[default]
    Run,
    /// A map with all of its rows.
    Map,
    /// The run of one row of a map.
    Row,
}

/// What is known about the run of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// It has ended.
    Ended(Outcome),
    /// A process executes it.
    Running,
    /// It was killed, and can be resumed.
    Interrupted,
    /// It was killed before its first event, or is about to start.
    #[default]
    NotStarted,
    /// The record can't be read.
    Damaged,
    /// Another version wrote the record, in another format.
    OtherFormat,
    /// The rows of a map have several of these.
    Mixed,
}

impl RunStatus {
    /// The status of a record in this state; `None` if there is no record.
    pub(super) fn of(state: &RecordState) -> Option<Self> {
        Some(match state.unqualified() {
            RecordState::Absent | RecordState::Foreign(..) | RecordState::PreviousAttempt(..) => return None,
            RecordState::NotStarted => Self::NotStarted,
            RecordState::Running => Self::Running,
            RecordState::Interrupted => Self::Interrupted,
            RecordState::Ended { result, .. } => Self::Ended(result.outcome),
            RecordState::Damaged(_) => Self::Damaged,
            RecordState::OtherFormat { .. } => Self::OtherFormat,
        })
    }

    /// All of them.
    pub fn all() -> Vec<Self> {
        let others = [Self::Running, Self::NotStarted, Self::Damaged, Self::OtherFormat, Self::Mixed];
        Outcome::ALL.into_iter().map(Self::Ended).chain(others).collect()
    }

    /// The name in JSON and in the table: that of the outcome, if the run has ended.
    pub fn name(self) -> String {
        match self {
            Self::Ended(outcome) => outcome.to_string(),
            Self::Running => "running".to_owned(),
            Self::Interrupted => Outcome::Interrupted.to_string(),
            Self::NotStarted => "not_started".to_owned(),
            Self::Damaged => "damaged".to_owned(),
            Self::OtherFormat => "other_format".to_owned(),
            Self::Mixed => "mixed".to_owned(),
        }
    }
}

impl Serialize for RunStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl JsonSchema for RunStatus {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RunStatus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<String> = Self::all().into_iter().map(Self::name).collect();
        json_schema!({
            "description": "The outcome of a run that has ended, or what is known about another one. `mixed` is a map whose rows differ.",
            "type": "string",
            "enum": names,
        })
    }
}

/// A record, or a map.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct RunRow {
    /// What it is.
    pub kind: RowKind,
    /// The name for other commands: `JOB/ID`, `JOB/KEY` or `JOB/MAP/ROW`; of a map `JOB/MAP`.
    pub run: String,
    /// The folder.
    pub path: String,
    /// The job.
    pub job: String,
    /// The run's id; empty for maps, and if it isn't known.
    pub run_id: String,
    /// The key of a run with `--key`, or the id of a row.
    pub key: Option<String>,
    /// How the run ended, or what is known about it.
    #[serde(rename = "outcome")]
    pub status: RunStatus,
    /// The exit code of the run, if it has ended.
    pub exit_code: Option<u8>,
    /// Why the run didn't complete, or what is wrong with the record.
    pub error: Option<String>,
    /// What is wrong with the record.
    #[serde(skip)]
    pub defect: Option<String>,
    /// When it started.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// When it ended; of an interrupted run, the time of its last event.
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Timestamp>,
    /// The running time in milliseconds; of a map, from its start to its end.
    pub duration_ms: Option<u64>,
    /// The parent's turns.
    pub turns: Option<u64>,
    /// The parent's tool calls.
    pub tool_calls: Option<u64>,
    /// Tokens of the whole run.
    pub usage: Option<Usage>,
    /// The estimated cost in US dollars; null if it isn't known. Of a map, the sum of the known costs of its rows.
    pub cost_usd: Option<f64>,
    /// The requests that were cut off. What was reserved for them is part of the tokens and the cost. Absent if there are none.
    #[serde(default, skip_serializing_if = "CutOffRequests::is_none")]
    pub cut_off_requests: CutOffRequests,
    /// The parent's model.
    pub model: Option<String>,
    /// Whether `legwork resume`, or the same `legwork map` again, continues it.
    #[serde(rename = "resumable")]
    pub is_resumable: bool,
    /// Of a map, the number of its rows that have started, by their outcomes.
    pub rows: Option<IndexMap<String, u64>>,
}

impl RunRow {
    /// A row of which nothing else is known.
    pub fn new(kind: RowKind, status: RunStatus) -> Self {
        Self { kind, status, ..Self::default() }
    }

    /// Whether the row, or a row of the map, has this outcome.
    pub fn has_outcome(&self, name: &str) -> bool {
        self.status.name() == name || self.rows.as_ref().is_some_and(|rows| rows.contains_key(name))
    }
}
