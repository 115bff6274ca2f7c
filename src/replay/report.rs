//! The result of a replay, for people and for programs.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::event::{Outcome, PARENT};
use crate::exit_code::EXIT_ENVIRONMENT;
use crate::journal::journal_file;
use crate::plan::diff;
use crate::text::diff::unified;
use crate::text::pluralize;

/// Version of the JSON form.
const FORMAT: u32 = 1;

/// Lines of a diff that people are shown.
const SHOWN_LINES: usize = 60;

/// The result of a replay.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// The recorded run's id.
    pub run_id: String,
    /// How the recorded run ended; `None` if its journal was cut off.
    pub recorded: Option<Outcome>,
    /// The agents that were compared.
    pub agents: usize,
    /// Their turns.
    pub turns: u64,
    /// Their calls.
    pub calls: u64,
    /// The agents that didn't run again, each with the reason.
    pub left_out: Vec<String>,
    /// The first difference of each agent, the earliest first. If tools ran for real, every different result.
    pub differences: Vec<ReplayDifference>,
    /// What differs between the recorded plan and the one that was replayed.
    pub plan: Vec<diff::PlanChange>,
    /// What stopped the replay itself, if anything did: a signal, or a tool that broke the sandbox.
    pub stopped: Option<Outcome>,
}

/// The first difference between two runs.
#[derive(Debug, Clone)]
pub struct ReplayDifference {
    /// Where.
    pub place: EventLocation,
    /// When that happened in the recorded run.
    pub at: Option<Timestamp>,
    /// The type and the compared data of the recorded event; `None` if the record has no further one.
    pub recorded: Option<(&'static str, Value)>,
    /// The event of the replay; `None` if there was none.
    pub replayed: Option<(&'static str, Value)>,
    /// The reason, if more is known than the events say.
    pub why: Option<String>,
}

/// A place in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLocation {
    /// The agent's id.
    pub agent: String,
    /// Its turn, from 1.
    pub turn: u32,
    /// The event's number in the agent's journal, from 1: its line.
    pub event: Option<u64>,
    /// The number of the last event, if the difference is after it.
    pub after: Option<u64>,
}

impl std::fmt::Display for EventLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, turn {}", self.agent, self.turn)?;
        let file = journal_file(&self.agent);
        match (self.event, self.after) {
            (Some(event), _) => write!(f, ", event {event} ({file}:{event})"),
            (None, Some(last)) => write!(f, ", after event {last} ({file}:{last})"),
            (None, None) => Ok(()),
        }
    }
}

impl ReplayReport {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.plan.is_empty()
    }

    /// The process's exit code.
    pub fn exit_code(&self, signal: Option<u8>) -> u8 {
        match self.stopped {
            Some(Outcome::Interrupted) => Outcome::Interrupted.exit_code(signal),
            Some(_) => EXIT_ENVIRONMENT,
            None if self.is_equal() => 0,
            None => Outcome::ReplayDiffers.exit_code(None),
        }
    }

    /// `equal`, `replay_differs`, or what stopped the replay.
    pub fn outcome(&self) -> String {
        match self.stopped {
            Some(outcome) => outcome.to_string(),
            None if self.is_equal() => "equal".to_owned(),
            None => Outcome::ReplayDiffers.to_string(),
        }
    }

    /// Says in a few words what was compared.
    pub fn stats_line(&self) -> String {
        let agents = pluralize(self.agents as u64, "agent");
        let cut = if self.recorded.is_none() { ", up to where the record was cut off" } else { "" };
        format!("{agents}, {}, {}{cut}", pluralize(self.turns, "turn"), pluralize(self.calls, "call"))
    }

    /// The report for people: one line if all is equal, else the differences. The text isn't sanitized.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for difference in &self.plan {
            text += &format!("plan: {difference}\n");
        }
        match self.differences.as_slice() {
            [] if self.plan.is_empty() => text += &format!("equal: {}\n", self.stats_line()),
            [] => text += &format!("the recorded conversation stays as it is: {}\n", self.stats_line()),
            [first, others @ ..] => {
                let (first_differs, also) = match self.plan.is_empty() {
                    true => ("first difference at", "also differs at"),
                    false => ("the conversation would first differ at", "would also differ at"),
                };
                text += &format!("{first_differs} {first}\n{}", truncated_diff(&first.diff()));
                for other in others {
                    text += &format!("{also} {other}\n");
                }
            }
        }
        text
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        let differences: Vec<Value> = self.differences.iter().map(ReplayDifference::json).collect();
        json!({
            "format": FORMAT,
            "run_id": self.run_id,
            "outcome": self.outcome(),
            "recorded_outcome": self.recorded,
            "compared": { "agents": self.agents, "turns": self.turns, "calls": self.calls },
            "left_out": self.left_out,
            "plan": self.plan,
            "differences": differences,
        })
    }

    /// Sorts the differences by time, those of a subagent before its parent's. Unless `keep_all`, only the first one of each
    /// agent is kept.
    pub(super) fn sort(&mut self, keep_all: bool) {
        self.differences.sort_by_key(|difference| {
            let EventLocation { agent, turn, event, .. } = &difference.place;
            let at = (difference.at.is_none(), difference.at);
            (at, agent == PARENT, agent.clone(), *turn, event.is_none(), *event)
        });
        let mut seen = BTreeSet::new();
        self.differences.retain(|difference| keep_all || seen.insert(difference.place.agent.clone()));
    }
}

impl std::fmt::Display for ReplayDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.place)?;
        match (&self.recorded, &self.replayed) {
            (Some((then, _)), Some((now, _))) if then == now => write!(f, ": {then}")?,
            (Some((then, _)), Some((now, _))) => write!(f, ": {now} instead of {then}")?,
            (Some((then, _)), None) => write!(f, ": {then} is missing")?,
            (None, Some((now, _))) => write!(f, ": {now} is new")?,
            (None, None) => {}
        }
        match &self.why {
            Some(why) if self.recorded.is_none() && self.replayed.is_none() => write!(f, ": {why}"),
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
}

impl ReplayDifference {
    /// Both events as a unified diff; empty if there is no event.
    pub fn diff(&self) -> String {
        let shown = |event: &Option<(&'static str, Value)>| match event {
            Some((kind, data)) => format!("{kind}\n{}", outline(data)),
            None => String::new(),
        };
        let diff = unified(&shown(&self.recorded), &shown(&self.replayed));
        if diff.is_empty() { diff } else { format!("--- recorded\n+++ replayed\n{diff}") }
    }

    fn json(&self) -> Value {
        let event = |event: &Option<(&'static str, Value)>| {
            event.as_ref().map(|(kind, data)| json!({ "type": kind, "data": data }))
        };
        json!({
            "agent": self.place.agent,
            "turn": self.place.turn,
            "event": self.place.event,
            "recorded": event(&self.recorded),
            "replayed": event(&self.replayed),
            "diff": self.diff(),
            "why": self.why,
        })
    }
}

/// The beginning of a long diff.
fn truncated_diff(diff: &str) -> String {
    let more = diff.lines().count().saturating_sub(SHOWN_LINES);
    if more < 2 {
        return diff.to_owned();
    }
    let shown: String = diff.split_inclusive('\n').take(SHOWN_LINES).collect();
    format!("{shown}[{more} more lines: see --format json]\n")
}

/// Data line by line, with the lines of multi-line texts as they are, so that a diff shows which of them changed.
fn outline(value: &Value) -> String {
    let mut text = String::new();
    put(&mut text, value, 1);
    text
}

fn put(text: &mut String, value: &Value, depth: usize) {
    let margin = "  ".repeat(depth);
    let mut field = |name: &str, value: &Value| match value {
        Value::String(lines) if lines.contains('\n') => {
            text.push_str(&format!("{margin}{name}:\n"));
            for line in lines.split_inclusive('\n') {
                text.push_str(&format!("{margin}  | {}\n", line.trim_end_matches('\n')));
            }
        }
        Value::String(line) => text.push_str(&format!("{margin}{name}: {line}\n")),
        Value::Object(fields) if !fields.is_empty() => {
            text.push_str(&format!("{margin}{name}:\n"));
            put(text, value, depth + 1);
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            text.push_str(&format!("{margin}{name}:\n"));
            put(text, value, depth + 1);
        }
        other => text.push_str(&format!("{margin}{name}: {other}\n")),
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| field(name, value)),
        Value::Array(items) => items.iter().for_each(|item| field("-", item)),
        other => field("", other),
    }
}
