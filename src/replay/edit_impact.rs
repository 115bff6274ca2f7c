//! Where an edited plan changes a conversation although no event shows it: what requests contain, and limits that would be
//! reached, or no longer would.

use std::collections::HashMap;

use serde_json::Value;

use super::normalized_event::turn;
use super::recorded_run::RecordedRun;
use super::report::{EventLocation, ReplayDifference};
use crate::event::{Event, JournalEntry, Outcome, PARENT, Stopwatch, Usage};
use crate::message::StopReason;
use crate::plan::Plan;
use crate::pricing::Prices;
use crate::providers::ProviderErrorKind;
use crate::tools::skill::SkillTool;
use crate::tools::task::Task;
use crate::tools::{Tool, starts_commands};

/// All such places. An agent can have several.
pub(super) fn edit_impact(past: &RecordedRun, edited: &Plan, prices: &Prices) -> Vec<ReplayDifference> {
    let recorded = &past.started.plan;
    let mut found = Vec::new();
    for (agent, events) in &past.agents {
        let (Some(then), Some(now)) = (recorded.agent(agent), edited.agent(agent)) else { continue };
        let mut report = |has_changed: bool, why: &str, takes_effect: &dyn Fn(&Event) -> bool| {
            let first = events.iter().filter(|_| has_changed).find(|entry| takes_effect(&entry.event));
            found.extend(first.map(|entry| place(past, agent, entry, why.to_owned())));
        };
        let is_request = |event: &Event| matches!(event, Event::RequestStarted(_));
        let has_other_prompt = recorded.system_prompt(then) != edited.system_prompt(now);
        report(has_other_prompt, "the system prompt changed", &is_request);
        report(then.model.thinking != now.model.thinking, "the thinking effort changed", &is_request);
        report(then.model.temperature != now.model.temperature, "the temperature changed", &is_request);
        report(then.model.stop != now.model.stop, "the list of stop sequences changed", &is_request);
        report(then.returns != now.returns, "the schema of the result changed", &is_request);

        let why = format!("max_tokens is {} instead of {}", now.max_tokens, then.max_tokens);
        report(then.max_tokens != now.max_tokens, &why, &|event| match event {
            Event::ReplyReceived(replied) if now.max_tokens > then.max_tokens => {
                replied.reply.stop == StopReason::MaxTokens
            }
            Event::ReplyReceived(replied) => replied.reply.usage.output_tokens > u64::from(now.max_tokens),
            _ => false,
        });

        let why = format!("compaction is {:?} instead of {:?}", edited.compaction, recorded.compaction).to_lowercase();
        report(recorded.compaction != edited.compaction, &why, &is_compaction);
        let (was, is) = (then.model.context, now.model.context);
        let window = |tokens: Option<u64>| tokens.map_or_else(|| "the known window".to_owned(), |it| it.to_string());
        let why = format!("the model's context is {} instead of {}", window(is), window(was));
        report(was != is, &why, &|event| match event {
            Event::ReplyReceived(replied) if is.is_some() => {
                is_compaction(event) || is < Some(replied.reply.usage.prompt() + u64::from(now.max_tokens))
            }
            _ => is_compaction(event),
        });

        for tool in &then.tools {
            let Some(same) = now.tools.iter().find(|other| other.name == tool.name) else { continue };
            let is_call = |event: &Event| matches!(event, Event::CallStarted(call) if call.tool == tool.name);
            report(same.options != tool.options, &format!("the options of `{}` changed", tool.name), &is_call);
            let has_other_subagents = recorded.task_tool().description() != edited.task_tool().description();
            report(tool.name == Task::NAME && has_other_subagents, "the list of subagents changed", &is_call);
            let has_other_commands = recorded.env != edited.env || recorded.network != edited.network;
            let why = "the environment or the network of commands changed";
            report(starts_commands(&tool.name) && has_other_commands, why, &is_call);
        }
        let bodies = |plan: &Plan, skills: &[String]| {
            plan.files.skills_of(skills).map(|skill| skill.body.clone()).collect::<Vec<_>>()
        };
        report(
            bodies(recorded, &then.skills) != bodies(edited, &now.skills),
            "the text of a skill changed",
            &|event| matches!(event, Event::CallStarted(call) if call.tool == SkillTool::NAME),
        );
        for step in recorded.before.iter().filter(|_| agent == PARENT) {
            let now = edited.before.iter().find(|other| other.name == step.name);
            let why = format!("the step `{}` changed", step.name);
            report(now.is_some_and(|now| now != step), &why, &|event| match event {
                Event::BeforeStarted(started) => started.name == step.name,
                _ => false,
            });
        }
        for check in recorded.checks.iter().filter(|_| agent == PARENT) {
            let now = edited.checks.iter().find(|other| other.name == check.name && !other.skipped);
            let why = format!("the check `{}` changed", check.name);
            report(now.is_some_and(|now| now != check), &why, &|event| match event {
                Event::CheckStarted(started) => started.name == check.name,
                _ => false,
            });
        }
    }
    found.extend(limit_changes(past, edited, prices));
    found
}

fn place(past: &RecordedRun, agent: &str, entry: &JournalEntry, why: String) -> ReplayDifference {
    let turn = past.agents.get(agent).map_or(1, |events| turn(events, entry.seq));
    ReplayDifference {
        place: EventLocation { agent: agent.to_owned(), turn, event: Some(entry.seq), after: None },
        at: Some(entry.at),
        recorded: None,
        replayed: None,
        why: Some(why),
    }
}

/// Whether compaction happened here, or would have been necessary.
fn is_compaction(event: &Event) -> bool {
    match event {
        Event::ResultsTruncated(_) => true,
        Event::RequestStarted(asked) => asked.kept_turns.is_some(),
        Event::RequestFailed(failed) => failed.kind == ProviderErrorKind::ContextFull,
        Event::ReplyReceived(replied) => replied.reply.stop == StopReason::ContextFull,
        Event::AgentFinished(end) => end.outcome == Outcome::ContextFull,
        _ => false,
    }
}

/// Where changed limits of the whole run are reached, in the order of the events.
fn limit_changes(past: &RecordedRun, edited: &Plan, prices: &Prices) -> Vec<ReplayDifference> {
    let mut all: Vec<(&str, &JournalEntry)> = Vec::new();
    for (agent, events) in &past.agents {
        all.extend(events.iter().map(|entry| (agent.as_str(), entry)));
    }
    all.sort_by_key(|(agent, entry)| (entry.at, *agent != PARENT, entry.seq));
    let json = |plan: &Plan| serde_json::to_value(&plan.limits).unwrap_or_default();
    let (then, now) = (json(&past.started.plan), json(edited));
    let number = |limits: &Value, key: &str| limits.get(key).and_then(Value::as_f64);
    let mut found = Vec::new();
    for key in ["tool_calls", "subagents", "tokens", "cost_usd", "wall_clock_ms"] {
        let (then, now) = (number(&then, key), number(&now, key));
        if then == now {
            continue;
        }
        let bit = all.iter().find(|(_, entry)| is_limit_event(&entry.event, key));
        let bites = now.and_then(|limit| first_over_limit(past, &all, key, limit, prices));
        let shown = |limit: Option<f64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        if let Some((agent, entry)) = [bit, bites].into_iter().flatten().min_by_key(|(_, entry)| entry.at) {
            let why = format!("limits.{key} is {} instead of {}", shown(now), shown(then));
            found.push(place(past, agent, entry, why));
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
    all: &'a [(&'a str, &'a JournalEntry)],
    key: &str,
    limit: f64,
    prices: &Prices,
) -> Option<&'a (&'a str, &'a JournalEntry)> {
    let mut clock = Stopwatch::new(&past.resumed);
    let mut used = 0.0;
    // The fallbacks that agents asked last.
    let mut fallbacks: HashMap<&str, Option<&str>> = HashMap::new();
    all.iter().find(|(agent, entry)| {
        clock.advance(entry.at, entry.suspended_ms);
        if let Event::RequestStarted(asked) = &entry.event {
            fallbacks.insert(*agent, asked.model.as_deref());
        }
        let fallback = fallbacks.get(agent).copied().flatten();
        let model = past.started.plan.agent(agent).map(|planned| planned.model_named(fallback));
        let amount = |usage: &Usage| match (key, model) {
            ("tokens", _) => usage.total() as f64,
            ("cost_usd", Some(model)) if !model.is_scripted() => {
                prices.cost(model.price_key(), usage, entry.at.into()).unwrap_or_default()
            }
            _ => 0.0,
        };
        used += match &entry.event {
            Event::ReplyReceived(replied) => amount(&replied.reply.usage),
            Event::Retrying(retrying) => amount(&retrying.retry.usage),
            Event::RequestFailed(failed) => amount(&failed.usage),
            Event::CallStarted(_) if key == "tool_calls" => 1.0,
            Event::CallStarted(call) if key == "subagents" && call.child.is_some() => 1.0,
            _ => 0.0,
        };
        match (&entry.event, key) {
            (_, "wall_clock_ms") => clock.total().as_millis() as f64 > limit,
            (Event::RequestStarted(asked), "tokens") => used + asked.reserved_tokens as f64 > limit,
            (Event::RequestStarted(asked), "cost_usd") => used + asked.reserved_cost_usd.unwrap_or_default() > limit,
            (Event::CallStarted(_), _) => used > limit,
            _ => false,
        }
    })
}
