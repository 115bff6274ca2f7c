//! Normalizes an agent's journal so that two runs can be compared: without interruptions, and with calls in order.

use std::collections::{HashMap, VecDeque};

use crate::event::{AgentFinished, Event, JournalEntry};

/// The turn of an event in an agent's normalized journal, from 1.
pub(super) fn turn(events: &[JournalEntry], seq: u64) -> u32 {
    let asked = events.iter().rev().find_map(|entry| match &entry.event {
        Event::RequestStarted(asked) if entry.seq <= seq => Some(asked.turn.max(1)),
        _ => None,
    });
    asked.unwrap_or(1)
}

/// The events of an agent as if the run had never been interrupted, with each call directly before its result.
pub(super) fn normalize(agent: &str, events: Vec<JournalEntry>) -> Vec<JournalEntry> {
    let events = without_resumes(agent, events);
    let mut ordered = Vec::with_capacity(events.len());
    let mut calls = Vec::new();
    for entry in events {
        if is_call_event(agent, &entry.event) {
            calls.push(entry);
        } else {
            ordered.append(&mut pair_calls(std::mem::take(&mut calls)));
            ordered.push(entry);
        }
    }
    ordered.append(&mut pair_calls(calls));
    ordered
}

fn is_call_event(agent: &str, event: &Event) -> bool {
    match event {
        Event::CallStarted(_) | Event::CallFinished(_) => true,
        Event::AgentFinished(end) => end.id != agent,
        _ => false,
    }
}

/// Removes the traces of interruptions: ends that weren't the last, and requests that were sent again.
fn without_resumes(agent: &str, events: Vec<JournalEntry>) -> Vec<JournalEntry> {
    let resumed = events.iter().rposition(|entry| matches!(entry.event, Event::Resumed(_)));
    let last = events.len().saturating_sub(1);
    let is_own = |end: &AgentFinished| end.id == agent;
    let mut kept: Vec<JournalEntry> = Vec::with_capacity(events.len());
    for (at, entry) in events.into_iter().enumerate() {
        match &entry.event {
            Event::RunStarted(_)
            | Event::Resumed(_)
            | Event::RequestInterrupted(_)
            | Event::RunFinished(_)
            | Event::WorkspaceChanged(_)
            | Event::OutputsProposed(_)
            | Event::StateSet(_)
            | Event::NetworkUsed(_)
            | Event::NetworkRefused(_) => continue,
            Event::AgentFinished(end) if end.outcome.was_cut_off() => {
                let went_on =
                    resumed.is_some_and(|resumed| at < resumed) || (end.subagent.is_some() && is_own(end) && at < last);
                if went_on {
                    continue;
                }
            }
            Event::RequestStarted(_) => drop_last_request(&mut kept),
            Event::BeforeStarted(step) => drop_last_step(&mut kept, &step.name),
            _ => {}
        }
        kept.push(entry);
    }
    kept
}

/// Removes a request without a reply from the end: the next one was sent in its place.
fn drop_last_request(kept: &mut Vec<JournalEntry>) {
    let is_try = |entry: &&JournalEntry| matches!(entry.event, Event::Retrying(_) | Event::RequestFailed(_));
    let tries = kept.iter().rev().take_while(is_try).count();
    let asked = kept.len().checked_sub(tries + 1);
    if let Some(asked) = asked.filter(|asked| matches!(kept[*asked].event, Event::RequestStarted(_))) {
        kept.truncate(asked);
    }
}

/// Removes an earlier try of a step before the agent from the end: it runs again in its place.
fn drop_last_step(kept: &mut Vec<JournalEntry>, name: &str) {
    let is_try = |entry: &&JournalEntry| match &entry.event {
        Event::BeforeStarted(step) => step.name == name,
        Event::BeforeFinished(step) => step.name == name,
        _ => false,
    };
    let tries = kept.iter().rev().take_while(is_try).count();
    kept.truncate(kept.len() - tries);
}

/// Parallel calls end in any order: each is put directly before its subagent's end and its result.
fn pair_calls(calls: Vec<JournalEntry>) -> Vec<JournalEntry> {
    let mut started = Vec::new();
    let mut answers: HashMap<String, VecDeque<JournalEntry>> = HashMap::new();
    let mut ends: HashMap<String, JournalEntry> = HashMap::new();
    for entry in calls {
        match &entry.event {
            Event::CallFinished(finished) => {
                answers.entry(finished.result.call_id.clone()).or_default().push_back(entry);
            }
            Event::AgentFinished(end) => drop(ends.insert(end.id.clone(), entry)),
            _ => started.push(entry),
        }
    }
    let mut ordered = Vec::new();
    for entry in started {
        let Event::CallStarted(call) = &entry.event else { continue };
        let end = call.child.as_ref().and_then(|child| ends.remove(child));
        let answer = answers.get_mut(&call.call_id).and_then(VecDeque::pop_front);
        ordered.push(entry);
        ordered.extend(end);
        ordered.extend(answer);
    }
    // Events that belong to no call aren't from legwork, but are compared, too.
    let mut rest: Vec<JournalEntry> = ends.into_values().chain(answers.into_values().flatten()).collect();
    rest.sort_by_key(|entry| entry.seq);
    ordered.append(&mut rest);
    ordered
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::event::{CallFinished, CallStarted, Outcome, PARENT, RequestStarted, Resumed, Usage};
    use crate::message::ToolResult;

    fn numbered(events: impl IntoIterator<Item = Event>) -> Vec<JournalEntry> {
        let at = Timestamp::from_second(1).unwrap();
        (1..)
            .zip(events)
            .map(|(seq, event)| JournalEntry { seq, at, suspended_ms: 0, agent: String::new(), event })
            .collect()
    }

    fn shown(agent: &str, events: impl IntoIterator<Item = Event>) -> Vec<(u64, u32)> {
        let events = normalize(agent, numbered(events));
        events.iter().map(|entry| (entry.seq, turn(&events, entry.seq))).collect()
    }

    fn asked(turn: u32) -> Event {
        RequestStarted {
            turn,
            max_tokens: 1,
            tools_allowed: true,
            reserved_tokens: 1,
            reserved_cost_usd: None,
            kept_turns: None,
            model: None,
        }
        .into()
    }

    fn started(call_id: &str, child: Option<&str>) -> Event {
        let (call_id, child) = (call_id.to_owned(), child.map(str::to_owned));
        CallStarted { call_id, tool: "task".into(), subject: String::new(), child }.into()
    }

    fn answered(call_id: &str) -> Event {
        let result =
            ToolResult { call_id: call_id.to_owned(), text: String::new(), is_error: false, ..ToolResult::default() };
        CallFinished {
            tool: "task".into(),
            result,
            duration_ms: 1,
            file_version: None,
            no_result: None,
            merged: None,
            proposal: None,
        }
        .into()
    }

    fn ended(id: &str, outcome: Outcome) -> Event {
        AgentFinished {
            id: id.to_owned(),
            subagent: (id != PARENT).then(|| "a".to_owned()),
            description: None,
            outcome,
            text: String::new(),
            refusal: None,
            result: None,
            answered_by: None,
            turns: 1,
            tool_calls: 0,
            compactions: 0,
            usage: Usage::default(),
            cost_usd: None,
            cut_off_requests: Default::default(),
            duration_ms: 1,
        }
        .into()
    }

    fn resumed() -> Event {
        Resumed {
            version: "1".into(),
            workspace: "/w".into(),
            sandbox: "off".into(),
            commit: None,
            limits: Default::default(),
            last_seen: None,
            folder: String::new(),
            options: Default::default(),
            secrets: Default::default(),
            has_new_secrets: false,
        }
        .into()
    }

    #[test]
    fn parallel_calls_come_one_after_another_with_their_ends() {
        let events = [
            asked(2),
            started("1", Some("a-1")),
            started("2", Some("a-2")),
            ended("a-2", Outcome::Completed),
            answered("2"),
            ended("a-1", Outcome::Completed),
            answered("1"),
            asked(3),
        ];
        let expected = [(1, 2), (2, 2), (6, 2), (7, 2), (3, 2), (4, 2), (5, 2), (8, 3)];
        assert_eq!(shown(PARENT, events), expected);
    }

    #[test]
    fn an_interrupted_and_resumed_run_is_one_run() {
        use Outcome::{Completed, Interrupted};
        let events = [asked(1), ended("a-1", Interrupted), ended(PARENT, Interrupted), resumed(), asked(1)];
        assert_eq!(shown(PARENT, events), [(5, 1)], "the request was sent again");
        let events = [asked(1), ended(PARENT, Interrupted), resumed(), ended(PARENT, Interrupted)];
        assert_eq!(shown(PARENT, events), [(1, 1), (4, 1)], "the last end stays");
        assert_eq!(shown("a-1", [ended("a-1", Interrupted), asked(2), ended("a-1", Completed)]), [(2, 2), (3, 2)]);
        assert_eq!(shown("a-1", [asked(1), ended("a-1", Interrupted)]), [(1, 1), (2, 1)]);
    }
}
