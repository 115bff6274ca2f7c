use serde_json::{Value, json};

use super::*;
use crate::error::Error;
use crate::event::{JournalEntry, PARENT};
use crate::journal::JournalError;

/// The cost of a request with [`usage`], in US dollars.
const COST: f64 = 0.001_5;

/// A line of a journal: what happened, and its data.
type Line = (&'static str, Value);

fn plan() -> Plan {
    let agent = json!({
        "model": { "provider": "anthropic", "name": "claude-haiku-4-5" }, "system": "", "tools": [], "max_turns": 20,
        "max_tokens": 1_000,
    });
    let limits = json!({
        "cost_usd": null, "tokens": null, "wall_clock_ms": null, "tool_calls": null, "subagents": null,
        "parallel_subagents": 1,
    });
    let plan = json!({
        "format": 2, "job": "j", "workspace": "/w", "inputs": {}, "parent": agent, "subagents": { "look": agent },
        "limits": limits, "env": [], "network": "none", "keep": "always",
    });
    serde_json::from_value(plan).unwrap()
}

/// The conversation of journals with these lines. One that ends with the line `torn` is incomplete there.
fn read(journals: &[(&str, Vec<Line>)]) -> Conversation {
    let agents: Vec<String> = journals.iter().map(|(agent, _)| (*agent).to_owned()).collect();
    let open = |agent: &str| -> Result<_, Error> {
        let found = journals.iter().find(|(name, _)| *name == agent);
        Ok(found.map(|(name, lines)| {
            let entries = lines.iter().enumerate().map(|(at, (kind, data))| {
                let time = Timestamp::from_second(1_790_000_000 + at as i64).unwrap();
                let line = json!({ "seq": at + 1, "at": time, "agent": *name, "type": *kind, "data": data });
                match *kind {
                    "torn" => Err(JournalError::Torn { line: at as u64 + 1 }),
                    _ => Ok(JournalEntry::from_json(&line.to_string()).unwrap()),
                }
            });
            entries.collect::<Vec<_>>().into_iter()
        }))
    };
    Conversation::read(&plan(), None, &agents, open, None)
}

fn usage() -> Value {
    json!({ "input_tokens": 1_000, "output_tokens": 100 })
}

fn agent_started() -> Line {
    let data = json!({ "subagent": null, "description": null, "model": "anthropic/claude-haiku-4-5", "prompt": "Go." });
    ("agent_started", data)
}

fn request(turn: u32) -> Line {
    let data = json!({
        "turn": turn, "max_tokens": 1, "tools_allowed": true, "reserved_tokens": 500, "reserved_cost_usd": 0.25,
    });
    ("request_started", data)
}

/// A reply with a call of each id, or with a text.
fn reply(turn: u32, calls: &[&str]) -> Line {
    let call =
        |id: &&str| json!({ "content": { "call": { "id": id, "tool": "task", "input": { "prompt": "Look." } } } });
    let mut blocks: Vec<Value> = calls.iter().map(call).collect();
    blocks.insert(0, json!({ "content": { "text": format!("Text {turn}.") } }));
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let reply = json!({ "blocks": blocks, "stop": stop, "usage": usage() });
    ("reply_received", json!({ "turn": turn, "reply": reply, "duration_ms": 7 }))
}

fn call_started(id: &str, child: Option<&str>) -> Line {
    ("call_started", json!({ "call_id": id, "tool": "task", "subject": format!("do {id}"), "child": child }))
}

fn call_finished(id: &str, text: &str) -> Line {
    let result = json!({ "call_id": id, "text": text, "is_error": false });
    ("call_finished", json!({ "tool": "task", "result": result, "duration_ms": 5 }))
}

fn agent_finished(id: &str, cost: Option<f64>) -> Line {
    let data = json!({
        "id": id, "subagent": null, "description": null, "outcome": "completed", "text": "Done.", "turns": 1,
        "tool_calls": 0, "usage": usage(), "cost_usd": cost, "duration_ms": 9,
    });
    ("agent_finished", data)
}

fn retrying(attempt: u32) -> Line {
    let retry = json!({ "attempt": attempt, "wait_ms": 10, "reason": "overloaded", "usage": {} });
    ("retrying", json!({ "retry": retry }))
}

/// The steps of an agent, a word each.
fn outline(agent: &AgentConversation) -> String {
    let word = |step: &Step| match &step.kind {
        StepKind::Turn(turn) => {
            let calls: Vec<String> = turn
                .calls
                .iter()
                .map(|call| format!(" {}={}", call.id, call.result.as_ref().map_or("-", |text| &text.shown)))
                .collect();
            format!("t{}{}", turn.number, calls.concat())
        }
        StepKind::Before(step, value) => format!("step {}: {}", step.name, value.shown),
        StepKind::NetworkUsed(used) => format!("reached {}", used.host),
        StepKind::NetworkRefused(refused) => format!("refused {}", refused.target()),
        StepKind::Skipped(condition) => format!("skipped by {condition}"),
        StepKind::StateRead(value) => format!("state {}", value.shown),
        StepKind::StateSet(difference) => format!("state for the next run {}", difference.shown),
        StepKind::Note(_) => "note".to_owned(),
        StepKind::ResultTaken => "result taken".to_owned(),
        StepKind::ModelChanged(changed) => format!("changed to {}", changed.to),
        StepKind::ResultsTruncated(_) => "truncated".to_owned(),
        StepKind::Compacted(_, summary) => format!("compacted: {}", summary.shown),
        StepKind::LimitReached(reached) => format!("limit {}", reached.limit),
        StepKind::LimitRaised(limit) => format!("raised {limit}"),
        StepKind::Resumed(_) => "resumed".to_owned(),
        StepKind::Checks(checks) => format!("checks {}", checks.attempt),
    };
    agent.steps.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn costs(agent: &AgentConversation) -> Vec<Option<f64>> {
    agent.turns().map(|turn| turn.cost_usd.map(|usd| (usd * 1e9).round() / 1e9)).collect()
}

#[test]
fn calls_are_in_the_order_asked_each_with_its_own_result() {
    let lines = vec![
        agent_started(),
        request(1),
        reply(1, &["a", "b", "c"]),
        call_started("b", None),
        call_started("a", None),
        call_finished("b", "of b"),
        call_finished("a", "of a"),
        request(2),
        // The same id again, twice.
        reply(2, &["a", "a"]),
        call_started("a", None),
        call_started("a", None),
        call_finished("a", "first"),
        call_finished("a", "second"),
        call_finished("x", "not asked for"),
        request(3),
        reply(3, &[]),
    ];
    let read = read(&[(PARENT, lines)]);
    assert_eq!(outline(&read.parent), "t1 a=of a b=of b c=-, t2 a=first a=second x=not asked for, t3");
    let calls: Vec<&Call> = read.parent.turns().flat_map(|turn| &turn.calls).collect();
    assert_eq!((calls[0].subject.as_str(), calls[0].duration_ms), ("do a", 5));
    assert!(calls[2].started_at.is_none() && calls[2].result.is_none());
    assert_eq!(read.missing, [""; 0]);
}

#[test]
fn turns_have_costs_only_if_these_add_up_to_the_recorded_sum() {
    let with_sum = |sum: Option<f64>| {
        let lines = vec![
            agent_started(),
            request(1),
            retrying(1),
            reply(1, &["a"]),
            call_started("a", None),
            call_finished("a", ""),
            request(2),
            reply(2, &[]),
            agent_finished(PARENT, sum),
        ];
        costs(&read(&[(PARENT, lines)]).parent)
    };
    assert_eq!(with_sum(Some(2.0 * COST)), [Some(COST), Some(COST)]);
    assert_eq!(with_sum(Some(2.0 * COST + 1e-15)), [Some(COST), Some(COST)], "a rounded sum");
    for other in [Some(COST), Some(0.0), Some(2.1 * COST), Some(-1.0), None] {
        assert_eq!(with_sum(other), [None, None], "{other:?}");
    }
    // Half a run: the prices may be others.
    assert_eq!(costs(&read(&[(PARENT, vec![agent_started(), request(1), reply(1, &[])])]).parent), [None]);
}

#[test]
fn a_request_that_is_sent_again_counts_as_its_reservation() {
    let resumed = json!({ "version": "0.1.0", "workspace": "/w", "sandbox": "off", "commit": null });
    let lines = vec![
        agent_started(),
        request(1),
        retrying(1),
        ("resumed", resumed),
        request(1),
        retrying(1),
        retrying(2),
        reply(1, &[]),
        agent_finished(PARENT, Some(COST + 0.25)),
    ];
    let read = read(&[(PARENT, lines)]);
    assert_eq!(outline(&read.parent), "resumed, t1");
    assert_eq!((read.parent.dropped.len(), costs(&read.parent)), (1, vec![Some(COST)]));
    let turn = read.parent.turns().next().unwrap();
    assert_eq!(turn.retries.iter().map(|(_, retry)| retry.attempt).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn failed_and_discarded_requests_are_turns_with_their_reasons() {
    let failed = json!({ "kind": "failed", "reason": "529 for too long", "usage": {} });
    let lines = vec![
        agent_started(),
        request(1),
        reply(1, &["a"]),
        ("reply_discarded", json!({ "reason": "cut off" })),
        request(2),
        retrying(1),
        ("request_failed", failed),
    ];
    let read = read(&[(PARENT, lines)]);
    let turns: Vec<&Turn> = read.parent.turns().collect();
    assert_eq!((turns[0].discarded.as_deref(), turns[0].calls[0].started_at), (Some("cut off"), None));
    assert_eq!((turns[1].failed.as_deref(), turns[1].retries.len()), (Some("529 for too long"), 1));
    assert!(turns[0].is_turn() && !turns[1].is_turn());
}

#[test]
fn compaction_marks_the_last_call_of_an_id_and_keeps_the_smallest_length() {
    let truncated = |chars: u64| {
        let data = json!({ "call_ids": ["a", "gone"], "chars": chars, "tokens_before": 9, "tokens_after": 5 });
        ("results_truncated", data)
    };
    let mut summary_request = request(3);
    summary_request.1["kept_turns"] = json!(1);
    let compacted = json!({ "summary": "So far.", "kept_turns": 1, "tokens_before": 9, "tokens_after": 2 });
    let lines = vec![
        agent_started(),
        request(1),
        reply(1, &["a"]),
        call_started("a", None),
        call_finished("a", "old"),
        request(2),
        reply(2, &["a"]),
        call_started("a", None),
        call_finished("a", "new"),
        truncated(500),
        truncated(200),
        truncated(300),
        summary_request,
        reply(3, &[]),
        ("context_compacted", compacted),
        request(3),
        reply(3, &[]),
    ];
    let read = read(&[(PARENT, lines)]);
    let expected = "t1 a=old, t2 a=new, truncated, truncated, truncated, t3, compacted: So far., t3";
    assert_eq!(outline(&read.parent), expected);
    let calls: Vec<Option<u64>> =
        read.parent.turns().flat_map(|turn| &turn.calls).map(|call| call.truncated_to).collect();
    assert_eq!(calls, [None, Some(200)]);
    let kinds: Vec<TurnKind> = read.parent.turns().map(|turn| turn.kind).collect();
    assert_eq!(kinds, [TurnKind::Turn, TurnKind::Turn, TurnKind::Summary, TurnKind::Turn]);
}

#[test]
fn a_raised_limit_removes_what_followed_it() {
    let lines = vec![
        agent_started(),
        request(1),
        reply(1, &["a", "b"]),
        call_started("a", None),
        call_finished("a", "kept"),
        call_finished("b", "refused"),
        ("limit_reached", json!({ "limit": "limits.tool_calls", "message": "1 of 1" })),
        request(2),
        reply(2, &[]),
        ("limit_raised", json!({ "limit": "limits.tool_calls", "calls": ["b"] })),
        call_started("b", None),
        call_finished("b", "run"),
        request(2),
        reply(2, &[]),
        agent_finished(PARENT, Some(3.0 * COST)),
    ];
    let read = read(&[(PARENT, lines)]);
    assert_eq!(outline(&read.parent), "t1 a=kept b=run, raised limits.tool_calls, t2");
    assert_eq!(read.parent.dropped.len(), 2);
    assert_eq!(costs(&read.parent), [Some(COST), Some(COST)], "the removed reply counts as spent");
}

#[test]
fn a_subagent_whose_limit_was_raised_goes_on_in_its_call() {
    let lines = vec![
        agent_started(),
        request(1),
        reply(1, &["a", "a"]),
        call_started("a", Some("look-1")),
        call_started("a", None),
        agent_finished("look-1", None),
        call_finished("a", "cut off"),
        ("limit_reached", json!({ "limit": "limits.tokens", "message": "used" })),
        ("limit_raised", json!({ "limit": "limits.tokens", "subagents": ["look-1"] })),
        call_finished("a", "second"),
        call_finished("a", "whole"),
    ];
    let read = read(&[(PARENT, lines)]);
    assert_eq!(outline(&read.parent), "t1 a=whole a=second, raised limits.tokens");
    assert!(read.parent.children().all(|child| child.id == "look-1" && child.finished.is_none()));
}

#[test]
fn subagents_are_in_their_calls_and_what_is_missing_is_named() {
    let parent = vec![
        agent_started(),
        request(1),
        reply(1, &["a", "b", "c"]),
        call_started("a", Some("look-1")),
        call_started("b", Some("look-2")),
        call_started("c", Some("look-2")),
        agent_finished("look-2", None),
        call_finished("b", "second"),
    ];
    let child = vec![agent_started(), request(1), ("torn", Value::Null)];
    let read = read(&[(PARENT, parent), ("look-1", child), ("look-9", vec![agent_started()])]);
    let ids: Vec<&str> = read.agents().map(|agent| agent.id.as_str()).collect();
    assert_eq!(ids, [PARENT, "look-1", "look-2", "look-9"]);
    let second = read.agents().nth(2).unwrap();
    assert!(second.has_no_journal && second.finished.is_some());
    assert_eq!((second.prompt.shown.as_str(), outline(read.agents().nth(1).unwrap()).as_str()), ("Look.", "t1"));
    let missing = read.missing.join("\n");
    for part in [
        "subagents/look-1.events.jsonl ends early: line 3 is incomplete.",
        "There is no subagents/look-2.events.jsonl: only the result of look-2 is known.",
        "Several calls name the subagent look-2: it is shown with the first one.",
        "The call that started look-9 isn't in the parent's journal.",
    ] {
        assert!(missing.contains(part), "{part}\n{missing}");
    }
    assert!(!read.is_damaged);
}

#[test]
fn planted_journals_make_no_cycles() {
    let starts = |child: &str| vec![agent_started(), request(1), reply(1, &["a"]), call_started("a", Some(child))];
    // The parent and the subagents start each other, and themselves.
    for (of_parent, of_child) in [("look-1", PARENT), ("look-1", "look-1"), (PARENT, "look-1"), ("look-1", "look-2")] {
        let journals = [(PARENT, starts(of_parent)), ("look-1", starts(of_child)), ("look-2", starts("look-1"))];
        let read = read(&journals);
        let mut ids: Vec<&str> = read.agents().map(|agent| agent.id.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["look-1", "look-2", PARENT], "{of_parent} {of_child}");
        let below = read.agents().skip(1).map(|agent| agent.children().count()).sum::<usize>();
        assert_eq!(below, 0, "only the parent has subagents");
    }
    // An event of another agent ends a journal.
    let lines = [agent_started()];
    let open = |_: &str| -> Result<_, Error> {
        let line = json!({
            "seq": 1, "at": Timestamp::UNIX_EPOCH, "agent": "look-7", "type": lines[0].0, "data": lines[0].1,
        });
        Ok(Some(vec![Ok(JournalEntry::from_json(&line.to_string()).unwrap())].into_iter()))
    };
    let read = Conversation::read(&plan(), None, &[], open, None);
    assert!(read.is_damaged && read.parent.started_at.is_none());
    assert!(read.missing[0].contains("another agent's events"), "{:?}", read.missing);
}

#[test]
fn a_journal_without_beginning_or_requests_is_shown() {
    let stray = vec![
        call_finished("a", "before any reply"),
        reply(4, &["b"]),
        call_finished("b", "of b"),
        (
            "check_finished",
            json!({ "name": "c", "attempt": 2, "passed": false, "exit_code": 1, "output": "o", "duration_ms": 1 }),
        ),
        ("limit_raised", json!({ "limit": "max_turns" })),
        agent_finished("look-5", None),
    ];
    let read = read(&[(PARENT, stray)]);
    assert_eq!(outline(&read.parent), "t4 b=of b, checks 2, raised max_turns");
    assert!(read.result.is_none() && read.started.is_none());
    let nothing = Conversation::read(&plan(), None, &[], |_| Ok(None::<std::vec::IntoIter<_>>), None);
    assert!(nothing.missing[0].starts_with("There is no events.jsonl"), "{:?}", nothing.missing);
}

#[test]
fn long_texts_are_cut_with_their_length() {
    let text = Text::new("äöü…x", 3);
    assert_eq!((text.shown.as_str(), text.omitted_chars), ("äöü", 2));
    assert_eq!(Text::new("äöü", 3), Text { shown: "äöü".into(), omitted_chars: 0 });
}
