//! Where an edited plan changes a conversation although no event shows it: what requests contain, and limits that would be
//! reached, or no longer would.

use jiff::Timestamp;
use serde_json::Value;

use super::normalized_event::NormalizedEvent;
use super::recorded_run::RecordedRun;
use super::report::{EventLocation, ReplayDifference};
use crate::agent::Stopwatch;
use crate::event::{Event, Outcome, PARENT, Usage};
use crate::message::StopReason;
use crate::plan::{Plan, PlannedAgent};
use crate::pricing::Prices;
use crate::providers::{Model, ProviderErrorKind};
use crate::tools::task::Task;
use crate::tools::{Tool, ToolGrant};

/// All such places. An agent can have several.
pub(super) fn edit_impact(past: &RecordedRun, edited: &Plan, prices: &Prices) -> Vec<ReplayDifference> {
    let mut found = Vec::new();
    for (agent, events) in &past.agents {
        let (Some(then), Some(now)) = (past.plan().agent(agent), edited.agent(agent)) else { continue };
        let at = |moment: Option<&NormalizedEvent>, why: String| moment.map(|moment| place(agent, moment, why));
        found.extend(request_change(events, then, now).and_then(|(moment, why)| at(Some(moment), why)));
        found.extend(max_tokens_change(events, then, now).and_then(|(moment, why)| at(Some(moment), why)));
        found.extend(
            compaction_change(events, past.plan(), edited, then, now).and_then(|(moment, why)| at(Some(moment), why)),
        );
        for tool in &then.tools {
            if let Some(why) = tool_change(tool, past.plan(), now, edited) {
                found.extend(at(first_call(events, &tool.name), why));
            }
        }
    }
    found.extend(check_change(past, edited));
    found.extend(limit_changes(past, edited, prices));
    found
}

fn place(agent: &str, moment: &NormalizedEvent, why: String) -> ReplayDifference {
    ReplayDifference {
        place: EventLocation { agent: agent.to_owned(), turn: moment.turn, event: Some(moment.seq), after: None },
        at: Some(moment.at),
        recorded: None,
        replayed: None,
        why: Some(why),
    }
}

/// A change of what every request contains.
fn request_change<'a>(
    events: &'a [NormalizedEvent],
    then: &PlannedAgent,
    now: &PlannedAgent,
) -> Option<(&'a NormalizedEvent, String)> {
    let what = if then.system != now.system {
        "the system prompt"
    } else if then.model.thinking != now.model.thinking {
        "the thinking effort"
    } else if then.model.temperature != now.model.temperature {
        "the temperature"
    } else if then.model.stop != now.model.stop {
        "the list of stop sequences"
    } else if then.returns != now.returns {
        "the schema of the result"
    } else {
        return None;
    };
    let first = events.iter().find(|moment| matches!(moment.event, Event::RequestStarted(_)))?;
    Some((first, format!("{what} changed")))
}

/// The first reply that the new `max_tokens` would make longer or shorter.
fn max_tokens_change<'a>(
    events: &'a [NormalizedEvent],
    then: &PlannedAgent,
    now: &PlannedAgent,
) -> Option<(&'a NormalizedEvent, String)> {
    let (then, now) = (then.max_tokens, now.max_tokens);
    let is_other = |moment: &&NormalizedEvent| match &moment.event {
        Event::ReplyReceived(replied) if now > then => replied.reply.stop == StopReason::MaxTokens,
        Event::ReplyReceived(replied) => replied.reply.usage.output_tokens > u64::from(now),
        _ => false,
    };
    let moment = events.iter().filter(|_| then != now).find(is_other)?;
    Some((moment, format!("max_tokens is {now} instead of {then}")))
}

/// The first place where compaction happened, or would happen, if the plan changes it.
fn compaction_change<'a>(
    events: &'a [NormalizedEvent],
    before: &Plan,
    after: &Plan,
    then: &PlannedAgent,
    now: &PlannedAgent,
) -> Option<(&'a NormalizedEvent, String)> {
    let made = |moment: &&NormalizedEvent| match &moment.event {
        Event::ResultsTruncated(_) => true,
        Event::RequestStarted(asked) => asked.kept_turns.is_some(),
        Event::RequestFailed(failed) => failed.kind == ProviderErrorKind::ContextFull,
        Event::ReplyReceived(replied) => replied.reply.stop == StopReason::ContextFull,
        Event::AgentFinished(end) => end.outcome == Outcome::ContextFull,
        _ => false,
    };
    if before.compaction != after.compaction {
        let word = |plan: &Plan| serde_json::to_value(plan.compaction).unwrap_or_default();
        let why = format!("compaction is {} instead of {}", word(after), word(before)).replace('"', "");
        return Some((events.iter().find(made)?, why));
    }
    let (was, is) = (then.model.context, now.model.context);
    if was == is {
        return None;
    }
    let shown =
        |context: Option<u64>| context.map_or_else(|| "the known window".to_owned(), |tokens| tokens.to_string());
    let outgrows = |moment: &&NormalizedEvent| match &moment.event {
        Event::ReplyReceived(replied) => {
            is.is_some_and(|window| replied.reply.usage.prompt() + u64::from(now.max_tokens) > window)
        }
        _ => false,
    };
    let moment = events.iter().find(|moment| made(moment) || outgrows(moment))?;
    Some((moment, format!("the model's context is {} instead of {}", shown(is), shown(was))))
}

/// How a tool has changed. A tool that an agent lost shows in the result of its call.
fn tool_change(tool: &ToolGrant, then: &Plan, now: &PlannedAgent, edited: &Plan) -> Option<String> {
    let same = now.tools.iter().find(|other| other.name == tool.name)?;
    let name = &tool.name;
    if same.options != tool.options {
        return Some(format!("the options of `{name}` changed"));
    }
    if name == Task::NAME && then.task_tool().description() != edited.task_tool().description() {
        return Some("the list of subagents changed".to_owned());
    }
    if name == "bash" && (then.env != edited.env || then.network != edited.network) {
        return Some("the environment or the network of commands changed".to_owned());
    }
    None
}

/// The first check that has changed under the same name.
fn check_change(past: &RecordedRun, edited: &Plan) -> Option<ReplayDifference> {
    let named = |plan: &Plan, name: &str| plan.checks.iter().find(|check| check.name == name).cloned();
    past.agents.get(PARENT)?.iter().find_map(|moment| match &moment.event {
        Event::CheckStarted(check) => {
            let (then, now) = (named(past.plan(), &check.name)?, named(edited, &check.name)?);
            let why = format!("the check `{}` changed", check.name);
            (then != now && !now.skipped).then(|| place(PARENT, moment, why))
        }
        _ => None,
    })
}

fn first_call<'a>(events: &'a [NormalizedEvent], tool: &str) -> Option<&'a NormalizedEvent> {
    events.iter().find(|moment| matches!(&moment.event, Event::CallStarted(call) if call.tool == tool))
}

/// Where changed limits of the whole run are reached, in the order of the events.
fn limit_changes(past: &RecordedRun, edited: &Plan, prices: &Prices) -> Vec<ReplayDifference> {
    let mut all: Vec<(&str, &NormalizedEvent)> = Vec::new();
    for (agent, events) in &past.agents {
        all.extend(events.iter().map(|moment| (agent.as_str(), moment)));
    }
    all.sort_by_key(|(agent, moment)| (moment.at, *agent != PARENT, moment.seq));
    let json = |plan: &Plan| serde_json::to_value(&plan.limits).unwrap_or_default();
    let (then, now) = (json(past.plan()), json(edited));
    let number = |limits: &Value, key: &str| limits.get(key).and_then(Value::as_f64);
    let mut found = Vec::new();
    for key in ["tool_calls", "subagents", "tokens", "cost_usd", "wall_clock_ms"] {
        let (then, now) = (number(&then, key), number(&now, key));
        if then == now {
            continue;
        }
        let bit = all.iter().find(|(_, moment)| is_limit_event(&moment.event, key));
        let bites = now.and_then(|limit| first_over_limit(past, &all, key, limit, prices));
        let shown = |limit: Option<f64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        if let Some((agent, moment)) = [bit, bites].into_iter().flatten().min_by_key(|(_, moment)| moment.at) {
            let why = format!("limits.{key} is {} instead of {}", shown(now), shown(then));
            found.push(place(agent, moment, why));
        }
    }
    found
}

/// Whether the recorded run reached the limit here.
fn is_limit_event(event: &Event, key: &str) -> bool {
    match event {
        Event::LimitReached(reached) => reached.limit.strip_prefix("limits.") == Some(key),
        Event::AgentFinished(end) => end.outcome == Outcome::TimedOut && key == "wall_clock_ms",
        _ => false,
    }
}

/// The first event that exceeds a limit.
fn first_over_limit<'a>(
    past: &RecordedRun,
    all: &'a [(&'a str, &'a NormalizedEvent)],
    key: &str,
    limit: f64,
    prices: &Prices,
) -> Option<&'a (&'a str, &'a NormalizedEvent)> {
    let mut clock = Stopwatch::new(&past.resumed);
    let mut used = 0.0;
    all.iter().find(|(agent, moment)| {
        clock.advance(moment.at);
        let tokens = |usage: &Usage| match (key, past.plan().agent(agent).map(|planned| &planned.model)) {
            ("tokens", _) => usage.total() as f64,
            ("cost_usd", Some(model)) => cost(prices, model, usage, moment.at),
            _ => 0.0,
        };
        match &moment.event {
            Event::ReplyReceived(replied) => used += tokens(&replied.reply.usage),
            Event::Retrying(retrying) => used += tokens(&retrying.retry.usage),
            Event::RequestFailed(failed) => used += tokens(&failed.usage),
            Event::CallStarted(call) => {
                let counts = key == "tool_calls" || (key == "subagents" && call.child.is_some());
                used += f64::from(u8::from(counts));
            }
            Event::RequestStarted(asked) => {
                let reserved = match key {
                    "tokens" => asked.reserved_tokens as f64,
                    "cost_usd" => asked.reserved_cost_usd.unwrap_or_default(),
                    _ => 0.0,
                };
                return used + reserved > limit;
            }
            _ if key == "wall_clock_ms" => return clock.total().as_millis() as f64 > limit,
            _ => {}
        }
        matches!(&moment.event, Event::CallStarted(_)) && used > limit
    })
}

fn cost(prices: &Prices, model: &Model, usage: &Usage, at: Timestamp) -> f64 {
    if model.is_scripted() {
        return 0.0;
    }
    prices.cost(model.price_key(), usage, at.into()).unwrap_or_default()
}
