//! Normalizes an agent's journal so that two runs can be compared: without interruptions, and with calls in order.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::event::{AgentFinished, Event, JournalEntry};

/// An event and its place.
#[derive(Debug, Clone)]
pub(super) struct NormalizedEvent {
    /// Its number in its journal, from 1.
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    /// The agent's turn, from 1.
    pub(super) turn: u32,
    pub(super) event: Event,
}

impl From<JournalEntry> for NormalizedEvent {
    fn from(entry: JournalEntry) -> Self {
        Self { seq: entry.seq, at: entry.at, turn: 1, event: entry.event }
    }
}

/// The events of an agent as if the run had never been interrupted, with each call directly before its result.
pub(super) fn normalize(agent: &str, events: Vec<NormalizedEvent>) -> Vec<NormalizedEvent> {
    let mut events = without_resumes(agent, events);
    let mut turn = 1;
    for moment in &mut events {
        if let Event::RequestStarted(asked) = &moment.event {
            turn = asked.turn.max(1);
        }
        moment.turn = turn;
    }
    let mut ordered = Vec::with_capacity(events.len());
    let mut calls = Vec::new();
    for moment in events {
        if is_call_event(agent, &moment.event) {
            calls.push(moment);
        } else {
            ordered.append(&mut pair_calls(std::mem::take(&mut calls)));
            ordered.push(moment);
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
fn without_resumes(agent: &str, events: Vec<NormalizedEvent>) -> Vec<NormalizedEvent> {
    let resumed = events.iter().rposition(|moment| matches!(moment.event, Event::Resumed(_)));
    let last = events.len().saturating_sub(1);
    let is_own = |end: &AgentFinished| end.id == agent;
    let mut kept: Vec<NormalizedEvent> = Vec::with_capacity(events.len());
    for (at, moment) in events.into_iter().enumerate() {
        match &moment.event {
            Event::RunStarted(_) | Event::Resumed(_) | Event::RunFinished(_) | Event::WorkspaceChanged(_) => continue,
            Event::AgentFinished(end) if end.outcome.was_cut_off() => {
                let went_on =
                    resumed.is_some_and(|resumed| at < resumed) || (end.subagent.is_some() && is_own(end) && at < last);
                if went_on {
                    continue;
                }
            }
            Event::RequestStarted(_) => drop_last_request(&mut kept),
            _ => {}
        }
        kept.push(moment);
    }
    kept
}

/// Removes a request without a reply from the end: the next one was sent in its place.
fn drop_last_request(kept: &mut Vec<NormalizedEvent>) {
    let is_try = |moment: &&NormalizedEvent| matches!(moment.event, Event::Retrying(_) | Event::RequestFailed(_));
    let tries = kept.iter().rev().take_while(is_try).count();
    let asked = kept.len().checked_sub(tries + 1);
    if let Some(asked) = asked.filter(|asked| matches!(kept[*asked].event, Event::RequestStarted(_))) {
        kept.truncate(asked);
    }
}

/// Parallel calls end in any order: each is put directly before its subagent's end and its result.
fn pair_calls(calls: Vec<NormalizedEvent>) -> Vec<NormalizedEvent> {
    let mut started = Vec::new();
    let mut answers: HashMap<String, VecDeque<NormalizedEvent>> = HashMap::new();
    let mut ends: HashMap<String, NormalizedEvent> = HashMap::new();
    for moment in calls {
        match &moment.event {
            Event::CallFinished(finished) => {
                answers.entry(finished.result.call_id.clone()).or_default().push_back(moment);
            }
            Event::AgentFinished(end) => drop(ends.insert(end.id.clone(), moment)),
            _ => started.push(moment),
        }
    }
    let mut ordered = Vec::new();
    for moment in started {
        let Event::CallStarted(call) = &moment.event else { continue };
        let end = call.child.as_ref().and_then(|child| ends.remove(child));
        let answer = answers.get_mut(&call.call_id).and_then(VecDeque::pop_front);
        ordered.push(moment);
        ordered.extend(end);
        ordered.extend(answer);
    }
    // Events that belong to no call aren't from legwork, but are compared, too.
    let mut rest: Vec<NormalizedEvent> = ends.into_values().chain(answers.into_values().flatten()).collect();
    rest.sort_by_key(|moment| moment.seq);
    ordered.append(&mut rest);
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CallFinished, CallStarted, Outcome, PARENT, RequestStarted, Resumed, Usage};
    use crate::message::ToolResult;

    fn numbered(events: impl IntoIterator<Item = Event>) -> Vec<NormalizedEvent> {
        let at = Timestamp::from_second(1).unwrap();
        (1..).zip(events).map(|(seq, event)| NormalizedEvent { seq, at, turn: 1, event }).collect()
    }

    fn shown(agent: &str, events: impl IntoIterator<Item = Event>) -> Vec<(u64, u32)> {
        normalize(agent, numbered(events)).iter().map(|moment| (moment.seq, moment.turn)).collect()
    }

    fn asked(turn: u32) -> Event {
        RequestStarted {
            turn,
            max_tokens: 1,
            tools_allowed: true,
            reserved_tokens: 1,
            reserved_cost_usd: None,
            kept_turns: None,
        }
        .into()
    }

    fn started(call_id: &str, child: Option<&str>) -> Event {
        let (call_id, child) = (call_id.to_owned(), child.map(str::to_owned));
        CallStarted { call_id, tool: "task".into(), subject: String::new(), child }.into()
    }

    fn answered(call_id: &str) -> Event {
        let result = ToolResult { call_id: call_id.to_owned(), text: String::new(), is_error: false };
        CallFinished { tool: "task".into(), result, duration_ms: 1, file_version: None, no_result: None }.into()
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
            turns: 1,
            tool_calls: 0,
            compactions: 0,
            usage: Usage::default(),
            cost_usd: None,
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
