//! Compares what an agent did when it was recorded with what it does now.

use serde_json::Value;

use super::normalized_event::turn;
use super::report::{EventLocation, ReplayDifference};
use crate::event::{Event, JournalEntry, NoResult, Outcome};
use crate::redaction::MARKER_PREFIX;

/// The fields that depend on clocks, prices and other agents, by the type of event. They are never compared.
const IGNORED_FIELDS: &[(&str, &[&str])] = &[
    ("request_started", &["reserved_tokens", "reserved_cost_usd"]),
    ("reply_received", &["duration_ms"]),
    ("results_truncated", &["tokens_before", "tokens_after"]),
    ("context_compacted", &["tokens_before", "tokens_after"]),
    ("call_finished", &["duration_ms", "file_version"]),
    ("before_finished", &["duration_ms"]),
    ("check_finished", &["duration_ms"]),
    ("agent_finished", &["usage", "cost_usd", "cut_off_requests", "duration_ms"]),
];

/// How strictly two journals are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompareRules {
    /// Whether the record goes up to the agent's end.
    pub(super) is_complete: bool,
    /// Whether the `max_tokens` of requests are compared.
    pub(super) max_tokens: bool,
    /// Whether tools run for real. A different result then doesn't end the comparison: the replies after it are recorded.
    pub(super) tools: bool,
}

/// The first difference, up to the end of the record. If tools ran for real, every different result, and the first other
/// difference.
pub(super) fn differences(
    agent: &str,
    then: &[JournalEntry],
    now: &[JournalEntry],
    rules: CompareRules,
) -> Vec<ReplayDifference> {
    let mut rest = now.iter();
    let mut found = Vec::new();
    for (at, recorded) in then.iter().enumerate() {
        let replayed = loop {
            match rest.next() {
                // A record that was cut off during parallel calls lacks the ends of some.
                Some(entry) if !rules.is_complete && is_unrecorded(agent, entry, &then[at..]) => {}
                other => break other,
            }
        };
        let is_same = replayed.is_some_and(|replayed| events_match(agent, recorded, replayed, rules));
        if !is_same {
            found.push(difference(agent, (Some(recorded), then), (replayed, now)));
            if !rules.tools || !replayed.is_some_and(|replayed| are_same_result(&recorded.event, &replayed.event)) {
                return found;
            }
        }
    }
    let more = rest.next().filter(|_| rules.is_complete);
    found.extend(more.map(|more| difference(agent, (None, then), (Some(more), now))));
    found
}

/// Whether both are results of the same call or check.
fn are_same_result(then: &Event, now: &Event) -> bool {
    match (then, now) {
        (Event::CallFinished(then), Event::CallFinished(now)) => then.result.call_id == now.result.call_id,
        (Event::CheckFinished(then), Event::CheckFinished(now)) => then.name == now.name,
        _ => false,
    }
}

/// Whether this is the end of a call that the rest of the record doesn't have.
fn is_unrecorded(agent: &str, entry: &JournalEntry, rest: &[JournalEntry]) -> bool {
    match &entry.event {
        Event::CallFinished(now) => !rest.iter().any(|then| match &then.event {
            Event::CallFinished(then) => then.result.call_id == now.result.call_id,
            _ => false,
        }),
        Event::AgentFinished(now) if now.id != agent => {
            !rest.iter().any(|then| matches!(&then.event, Event::AgentFinished(then) if then.id == now.id))
        }
        _ => false,
    }
}

fn events_match(agent: &str, then: &JournalEntry, now: &JournalEntry, rules: CompareRules) -> bool {
    match (&then.event, &now.event) {
        // The recorded call has no known result.
        (Event::CallFinished(then), Event::CallFinished(now)) if then.no_result == Some(NoResult::Interrupted) => {
            then.result.call_id == now.result.call_id
        }
        // The step that failed may be missing in the subagent's journal.
        (Event::AgentFinished(then), Event::AgentFinished(now))
            if then.id != agent && then.outcome == Outcome::EnvironmentFailed && then.outcome == now.outcome =>
        {
            then.id == now.id
        }
        _ => values_match(&comparable_data(then, rules), &comparable_data(now, rules)),
    }
}

/// Whether two values are the same. A secret is redacted in the record, and may have been assembled from parts that
/// aren't secret.
fn values_match(then: &Value, now: &Value) -> bool {
    match (then, now) {
        (Value::String(then), Value::String(now)) => then == now || text_matches_redacted(then, now),
        (Value::Array(then), Value::Array(now)) => {
            then.len() == now.len() && then.iter().zip(now).all(|(then, now)| values_match(then, now))
        }
        (Value::Object(then), Value::Object(now)) => {
            then.len() == now.len()
                && then.iter().all(|(name, then)| now.get(name).is_some_and(|now| values_match(then, now)))
        }
        _ => then == now,
    }
}

fn text_matches_redacted(then: &str, now: &str) -> bool {
    let Some((before, after)) = then.split_once(MARKER_PREFIX) else { return false };
    let Some(mut rest) = now.strip_prefix(before) else { return false };
    let mut parts =
        after.split(MARKER_PREFIX).map(|part| part.split_once(']').map_or("", |(_, after)| after)).peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// The data of an event without the fields that are never compared.
pub(super) fn comparable_data(entry: &JournalEntry, rules: CompareRules) -> Value {
    let mut data = data(entry);
    let kind = entry.event.kind();
    let ignored = IGNORED_FIELDS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| keys.iter().copied());
    let max_tokens = (kind == "request_started" && !rules.max_tokens).then_some("max_tokens");
    if let Some(fields) = data.as_object_mut() {
        for key in ignored.chain(max_tokens) {
            fields.shift_remove(key);
        }
    }
    if let Some(Value::Object(retry)) = data.get_mut("retry") {
        retry.shift_remove("wait_ms");
    }
    data
}

fn data(entry: &JournalEntry) -> Value {
    let line = entry.to_json().ok().and_then(|line| serde_json::from_str::<Value>(&line).ok());
    line.and_then(|mut line| line.get_mut("data").map(Value::take)).unwrap_or_default()
}

/// The difference between two events, each with its agent's journal.
fn difference(
    agent: &str,
    (then, recorded): (Option<&JournalEntry>, &[JournalEntry]),
    (now, replayed): (Option<&JournalEntry>, &[JournalEntry]),
) -> ReplayDifference {
    let rules = CompareRules { is_complete: true, max_tokens: true, tools: false };
    let last = then.or(recorded.last());
    let turn = match (then, now) {
        (Some(then), _) => turn(recorded, then.seq),
        (None, now) => now.map_or(1, |now| turn(replayed, now.seq)),
    };
    ReplayDifference {
        place: EventLocation {
            agent: agent.to_owned(),
            turn,
            event: then.map(|entry| entry.seq),
            after: last.filter(|_| then.is_none()).map(|entry| entry.seq),
        },
        at: last.map(|entry| entry.at),
        recorded: then.map(|entry| (entry.event.kind(), comparable_data(entry, rules))),
        replayed: now.map(|entry| (entry.event.kind(), comparable_data(entry, rules))),
        why: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_secret_matches_any_text() {
        for (then, now, expected) in [
            ("a [masked:TOKEN] b", "a hunter2-hunter2 b", true),
            ("a [masked:TOKEN] b", "a hunter2 c", false),
            ("[masked:A][masked:B]", "anything", true),
            ("x [masked:A] y [masked:B] z", "x 1 y 2 z", true),
            ("x [masked:A] y [masked:B] z", "x 1 2 z", false),
            ("same", "other", false),
        ] {
            assert_eq!(values_match(&then.into(), &now.into()), expected, "{then} {now}");
        }
    }
}
