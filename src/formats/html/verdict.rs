//! The verdict of a run in words: why it ended, what to do next, and what went wrong on the way.

use minijinja::{Value, context};

use super::outline::{Outline, call_anchor, checks_failed, has_failed};
use crate::conversation::{Call, CallEnd, Conversation, ReplyBlock, StepKind, Turn};
use crate::event::{LimitReached, Outcome, PARENT, RunResult};
use crate::formats::run_stats;
use crate::text::{pluralize, truncate};

/// The most problems that are listed.
const MAX_PROBLEMS: usize = 100;
const MAX_EXCERPT_CHARS: usize = 220;

/// Why the run ended, in a sentence or two.
pub(super) fn reason(conversation: &Conversation) -> String {
    let Some(result) = &conversation.result else {
        return "The run hasn't ended, or its process was killed before it could write its result.".to_owned();
    };
    let why = match result.outcome {
        Outcome::Completed => return completed(result),
        Outcome::ChecksFailed => "The parent finished, but a check doesn't pass",
        Outcome::ResultInvalid => "The parent finished, but its data doesn't fit the schema",
        Outcome::Refused => "The model refused to continue",
        Outcome::TurnLimit => "The parent used all of its turns",
        Outcome::BudgetExceeded => "A limit of the run was reached",
        Outcome::TimedOut => "The time of the run was up",
        Outcome::Stuck => "The same call failed again and again",
        Outcome::ReplyCut => "The last reply was cut off by max_tokens",
        Outcome::ContextFull => "The conversation filled the model's context window",
        Outcome::EnvironmentFailed => "The environment failed",
        Outcome::ProviderRejected => "The provider refused the key, the model or the request",
        Outcome::ReplayDiffers => "The replay differs from its record",
        Outcome::ProviderFailed => "The provider failed after all tries",
        Outcome::Interrupted => "The run was interrupted",
    };
    match &result.error {
        Some(error) => format!("{why}: {}", full_stop(error.message.trim())),
        None => format!("{why}."),
    }
}

fn completed(result: &RunResult) -> String {
    let checks = run_stats::last_checks(result);
    let attempts = checks.iter().map(|check| check.attempt).max().unwrap_or_default();
    let repairs = attempts.saturating_sub(1);
    match (checks.len(), repairs) {
        (0, _) => "The parent finished its work.".to_owned(),
        (1, 0) => "The parent finished its work, and the check passed.".to_owned(),
        (count, 0) => format!("The parent finished its work, and all {count} checks passed."),
        (count, _) => {
            let all = if count == 1 { "the check".to_owned() } else { format!("all {count} checks") };
            format!("The parent finished its work, and {all} passed after {}.", pluralize(u64::from(repairs), "repair"))
        }
    }
}

fn full_stop(text: &str) -> String {
    if text.ends_with(['.', '!', '?', ':']) { text.to_owned() } else { format!("{text}.") }
}

/// What to do next: a hint, and the command that continues the run if it can continue.
pub(super) fn next_steps(conversation: &Conversation) -> (Option<String>, Option<String>) {
    let hint = conversation.result.as_ref().and_then(|result| result.error.as_ref()?.hint.clone());
    let run_id = match (&conversation.result, &conversation.started) {
        (Some(result), _) => &result.run_id,
        (None, Some((_, started))) => &started.run_id,
        (None, None) => return (hint, None),
    };
    let resume = format!("legwork resume {run_id}");
    let command = match &conversation.result {
        None => Some(resume),
        Some(result) if result.outcome.can_be_resumed() => Some(resume),
        Some(result) if result.outcome.is_a_limit() => {
            raised_limit(conversation, result.outcome).map(|limit| format!("{resume} --limit {limit}"))
        }
        Some(_) => None,
    };
    (hint, command)
}

/// The limit that ended the run as an option with twice its value: `cost_usd=4.00`.
fn raised_limit(conversation: &Conversation, outcome: Outcome) -> Option<String> {
    let reached = conversation.parent.steps.iter().rev().find_map(|step| match &step.kind {
        StepKind::LimitReached(LimitReached { limit, .. }) => Some(limit.as_str()),
        _ => None,
    });
    let limits = &conversation.plan.limits;
    match reached.unwrap_or_default() {
        _ if outcome == Outcome::TimedOut => {
            Some(format!("wall_clock={}s", limits.wall_clock_ms?.div_ceil(1_000).saturating_mul(2)))
        }
        "max_turns" if outcome == Outcome::TurnLimit => {
            Some(format!("max_turns={}", u64::from(conversation.plan.parent.max_turns) * 2))
        }
        "limits.cost_usd" => Some(format!("cost_usd={:.2}", limits.cost_usd? * 2.0)),
        "limits.tokens" => Some(format!("tokens={}", limits.tokens?.saturating_mul(2))),
        "limits.tool_calls" => Some(format!("tool_calls={}", limits.tool_calls?.saturating_mul(2))),
        "limits.subagents" => Some(format!("subagents={}", limits.subagents?.saturating_mul(2))),
        _ => None,
    }
}

/// What went wrong, in the order of the conversation, and how much more there is.
pub(super) fn problems(outline: &Outline<'_>) -> (Vec<Value>, usize) {
    let mut problems = Vec::new();
    let mut count = 0_usize;
    for outlined in &outline.agents {
        let mut add = |anchor: &str, title: String, text: &str, turn: Option<&Turn>| {
            count += 1;
            if problems.len() < MAX_PROBLEMS {
                problems.push(context! {
                    agent => outlined.agent.id.as_str(), anchor, title, excerpt => excerpt(text),
                    turn => turn.map(|turn| turn.number), cost => turn.and_then(|turn| turn.cost_usd).map(|cost| run_stats::cost(Some(cost))),
                });
            }
        };
        for (step, anchor) in outlined.agent.steps.iter().zip(&outlined.steps) {
            match &step.kind {
                StepKind::Turn(turn) => {
                    if let [.., (_, last)] = turn.retries.as_slice() {
                        let tries = pluralize(turn.retries.len() as u64, "try").replace("trys", "tries");
                        add(anchor, format!("{tries} of a request failed"), &last.reason, Some(turn));
                    }
                    if let Some(why) = &turn.failed {
                        add(anchor, "no reply".to_owned(), why, Some(turn));
                    }
                    if let Some(why) = &turn.discarded {
                        add(anchor, "reply discarded".to_owned(), why, Some(turn));
                    }
                    for block in &turn.blocks {
                        if let ReplyBlock::Refusal(why) = block {
                            add(anchor, "the model refused".to_owned(), &why.shown, Some(turn));
                        }
                    }
                    for (at, call) in turn.calls.iter().enumerate().filter(|(_, call)| has_failed(call)) {
                        let subject = truncate::ellipsize(&call.subject, 80);
                        let title = format!("{} {subject}", call.tool).trim_end().to_owned();
                        add(&call_anchor(anchor, at), title, &failure(call), Some(turn));
                    }
                }
                StepKind::Checks(attempt) if checks_failed(attempt) => {
                    for (at, (name, _, end)) in attempt.checks.iter().enumerate() {
                        let anchor = &call_anchor(anchor, at);
                        let title = format!("check {name}, attempt {}", attempt.attempt);
                        match end {
                            None => add(anchor, title, "It didn't end.", None),
                            Some((_, end)) if !end.passed => add(anchor, title, last_line(&end.output), None),
                            Some(_) => {}
                        }
                    }
                }
                StepKind::LimitReached(limit) => {
                    add(anchor, format!("limit {}", limit.limit), &limit.message, None);
                }
                _ => {}
            }
        }
        let finished = outlined.agent.finished.as_ref().filter(|finished| finished.outcome != Outcome::Completed);
        if let Some(finished) = finished.filter(|_| outlined.agent.id != PARENT) {
            add(
                &outlined.anchor,
                format!("ended with {}", finished.outcome).replace('_', " "),
                finished.refusal.as_deref().unwrap_or(""),
                None,
            );
        }
    }
    (problems, count - count.min(MAX_PROBLEMS))
}

/// Why a call has no good result.
pub(super) fn failure(call: &Call) -> String {
    match (call.end(), &call.result) {
        (CallEnd::Succeeded | CallEnd::Failed, Some(result)) => result.shown.clone(),
        (CallEnd::Interrupted, _) => format!("{}: its effect is unknown", CallEnd::Interrupted),
        (end, _) => end.to_string(),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().unwrap_or_default()
}

/// The beginning of a text on one line.
fn excerpt(text: &str) -> String {
    let head = truncate::first(text.trim_start(), 4 * MAX_EXCERPT_CHARS);
    truncate::ellipsize(&head.split_whitespace().collect::<Vec<_>>().join(" "), MAX_EXCERPT_CHARS)
}
