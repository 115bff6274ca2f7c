//! The verdict of a run in words: why it ended, what to do next, and what went wrong on the way.

use minijinja::{Value, context};

use super::outline::{AgentOutline, Outline, call_anchor};
use crate::conversation::{Conversation, StepKind};
use crate::event::{LimitReached, Outcome, RunResult};
use crate::reports::problems::{Problem, problems_of};
use crate::reports::run_stats;
use crate::text::{pluralize, truncate};

/// The most problems that are listed.
const MAX_PROBLEMS: usize = 100;
const MAX_EXCERPT_CHARS: usize = 220;
const MAX_TITLE_CHARS: usize = 120;

/// Why the run ended, in a sentence or two.
pub(super) fn reason(conversation: &Conversation) -> String {
    let Some(result) = &conversation.result else {
        return "The run hasn't ended, or its process was killed before it could write its result.".to_owned();
    };
    let why = match result.outcome {
        Outcome::Completed => return completed(result),
        Outcome::Skipped => {
            let condition = result.skipped_by.as_deref().unwrap_or_default();
            return format!("There was nothing to do, so no agent started: `skip_if` is true, {condition}");
        }
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
pub(super) fn problems(outline: &Outline<'_>, has_ended: bool) -> (Vec<Value>, usize) {
    let mut all = outline.agents.iter().flat_map(|outlined| {
        problems_of(outlined.agent, has_ended).into_iter().map(move |problem| (outlined, problem))
    });
    let row = |(outlined, problem): (&AgentOutline<'_>, Problem<'_>)| {
        let step = problem.step.and_then(|step| outlined.steps.get(step)).unwrap_or(&outlined.anchor);
        let anchor = problem.part.map_or_else(|| step.clone(), |part| call_anchor(step, part));
        let cost = problem.turn.and_then(|turn| turn.cost_usd).map(|cost| run_stats::cost(Some(cost)));
        context! {
            agent => outlined.agent.id.as_str(), anchor, title => truncate::ellipsize(&problem.view.line(), MAX_TITLE_CHARS),
            excerpt => excerpt(&problem.text.shown), turn => problem.turn.map(|turn| turn.number), cost,
        }
    };
    let rows = all.by_ref().take(MAX_PROBLEMS).map(row).collect();
    (rows, all.count())
}

/// The beginning of a text on one line.
fn excerpt(text: &str) -> String {
    let head = truncate::first(text.trim_start(), 4 * MAX_EXCERPT_CHARS);
    truncate::ellipsize(&head.split_whitespace().collect::<Vec<_>>().join(" "), MAX_EXCERPT_CHARS)
}
