//! Where an edited plan makes itself felt in a conversation of which no event shows it: what a request carries, and limits
//! that would bite, or bite no more.

use jiff::Timestamp;
use serde_json::Value;

use super::moment::Moment;
use super::past::Past;
use super::report::{Difference, Place};
use crate::agent::Stopwatch;
use crate::event::{Event, Outcome, PARENT, Usage};
use crate::message::Stop;
use crate::plan::{Plan, PlannedAgent};
use crate::price::Prices;
use crate::providers::{FaultKind, Model};
use crate::tools::task::Task;
use crate::tools::{Grant, Tool};

/// All such places; several may be of one agent.
pub(super) fn bites(past: &Past, edited: &Plan, prices: &Prices) -> Vec<Difference> {
    let mut found = Vec::new();
    for (agent, moments) in &past.agents {
        let (Some(then), Some(now)) = (past.plan().agent(agent), edited.agent(agent)) else { continue };
        let at = |moment: Option<&Moment>, why: String| moment.map(|moment| place(agent, moment, why));
        found.extend(requests(moments, then, now).and_then(|(moment, why)| at(Some(moment), why)));
        found.extend(lengths(moments, then, now).and_then(|(moment, why)| at(Some(moment), why)));
        found.extend(room(moments, past.plan(), edited, then, now).and_then(|(moment, why)| at(Some(moment), why)));
        for tool in &then.tools {
            if let Some(why) = changed(tool, past.plan(), now, edited) {
                found.extend(at(first_call(moments, &tool.name), why));
            }
        }
    }
    found.extend(checks(past, edited));
    found.extend(limits(past, edited, prices));
    found
}

fn place(agent: &str, moment: &Moment, why: String) -> Difference {
    Difference {
        place: Place { agent: agent.to_owned(), turn: moment.turn, event: Some(moment.seq), after: None },
        at: Some(moment.at),
        recorded: None,
        replayed: None,
        why: Some(why),
    }
}

/// What every request carries.
fn requests<'a>(moments: &'a [Moment], then: &PlannedAgent, now: &PlannedAgent) -> Option<(&'a Moment, String)> {
    let what = if then.system != now.system {
        "the system prompt"
    } else if then.model.thinking != now.model.thinking {
        "how much the model may think"
    } else if then.model.temperature != now.model.temperature {
        "the temperature"
    } else if then.model.stop != now.model.stop {
        "the list of texts that end a reply"
    } else if then.returns != now.returns {
        "the data that it ends with"
    } else {
        return None;
    };
    let first = moments.iter().find(|moment| matches!(moment.event, Event::Asked(_)))?;
    Some((first, format!("{what} is another")))
}

/// The first reply that would be longer or shorter.
fn lengths<'a>(moments: &'a [Moment], then: &PlannedAgent, now: &PlannedAgent) -> Option<(&'a Moment, String)> {
    let (then, now) = (then.max_tokens, now.max_tokens);
    let is_other = |moment: &&Moment| match &moment.event {
        Event::Replied(replied) if now > then => replied.reply.stop == Stop::MaxTokens,
        Event::Replied(replied) => replied.reply.usage.output_tokens > u64::from(now),
        _ => false,
    };
    let moment = moments.iter().filter(|_| then != now).find(is_other)?;
    Some((moment, format!("max_tokens is {now} instead of {then}")))
}

/// Where room was made in the window, or would be, where that goes another way.
fn room<'a>(
    moments: &'a [Moment],
    before: &Plan,
    after: &Plan,
    then: &PlannedAgent,
    now: &PlannedAgent,
) -> Option<(&'a Moment, String)> {
    let made = |moment: &&Moment| match &moment.event {
        Event::Shortened(_) => true,
        Event::Asked(asked) => asked.keeps_turns.is_some(),
        Event::AskFailed(failed) => failed.kind == FaultKind::ContextFull,
        Event::Replied(replied) => replied.reply.stop == Stop::ContextFull,
        Event::AgentFinished(end) => end.outcome == Outcome::ContextFull,
        _ => false,
    };
    if before.compaction != after.compaction {
        let word = |plan: &Plan| serde_json::to_value(plan.compaction).unwrap_or_default();
        let why = format!("compaction is {} instead of {}", word(after), word(before)).replace('"', "");
        return Some((moments.iter().find(made)?, why));
    }
    let (was, is) = (then.model.context, now.model.context);
    if was == is {
        return None;
    }
    let shown = |context: Option<u64>| context.map_or_else(|| "what is known".to_owned(), |tokens| tokens.to_string());
    let outgrows = |moment: &&Moment| match &moment.event {
        Event::Replied(replied) => {
            is.is_some_and(|window| replied.reply.usage.prompt() + u64::from(now.max_tokens) > window)
        }
        _ => false,
    };
    let moment = moments.iter().find(|moment| made(moment) || outgrows(moment))?;
    Some((moment, format!("the model's context is {} instead of {}", shown(is), shown(was))))
}

/// How a tool is another than it was. One that an agent lost shows in the answer to its call.
fn changed(tool: &Grant, then: &Plan, now: &PlannedAgent, edited: &Plan) -> Option<String> {
    let same = now.tools.iter().find(|other| other.name == tool.name)?;
    let name = &tool.name;
    if same.options != tool.options {
        return Some(format!("`{name}` has other options"));
    }
    if name == Task::NAME && then.task().description() != edited.task().description() {
        return Some("the model reads another list of subagents".to_owned());
    }
    if name == "bash" && (then.env != edited.env || then.network != edited.network) {
        return Some("commands see other variables or another network".to_owned());
    }
    None
}

/// The first check that is another under the same name.
fn checks(past: &Past, edited: &Plan) -> Option<Difference> {
    let named = |plan: &Plan, name: &str| plan.checks.iter().find(|check| check.name == name).cloned();
    past.agents.get(PARENT)?.iter().find_map(|moment| match &moment.event {
        Event::CheckStarted(check) => {
            let (then, now) = (named(past.plan(), &check.name)?, named(edited, &check.name)?);
            let why = format!("the check `{}` is another", check.name);
            (then != now && !now.skipped).then(|| place(PARENT, moment, why))
        }
        _ => None,
    })
}

fn first_call<'a>(moments: &'a [Moment], tool: &str) -> Option<&'a Moment> {
    moments.iter().find(|moment| matches!(&moment.event, Event::CallStarted(call) if call.tool == tool))
}

/// Where limits of the whole tree bite, in the order in which things happened.
fn limits(past: &Past, edited: &Plan, prices: &Prices) -> Vec<Difference> {
    let mut all: Vec<(&str, &Moment)> = Vec::new();
    for (agent, moments) in &past.agents {
        all.extend(moments.iter().map(|moment| (agent.as_str(), moment)));
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
        let bit = all.iter().find(|(_, moment)| is_hit(&moment.event, key));
        let bites = now.and_then(|limit| first_beyond(past, &all, key, limit, prices));
        let shown = |limit: Option<f64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        if let Some((agent, moment)) = [bit, bites].into_iter().flatten().min_by_key(|(_, moment)| moment.at) {
            let why = format!("limits.{key} is {} instead of {}", shown(now), shown(then));
            found.push(place(agent, moment, why));
        }
    }
    found
}

/// Whether a limit bit here when the run was recorded.
fn is_hit(event: &Event, key: &str) -> bool {
    match event {
        Event::LimitReached(reached) => reached.limit.strip_prefix("limits.") == Some(key),
        Event::AgentFinished(end) => end.outcome == Outcome::TimedOut && key == "wall_clock_ms",
        _ => false,
    }
}

/// The first event for which a limit has no room.
fn first_beyond<'a>(
    past: &Past,
    all: &'a [(&'a str, &'a Moment)],
    key: &str,
    limit: f64,
    prices: &Prices,
) -> Option<&'a (&'a str, &'a Moment)> {
    let mut clock = Stopwatch::new(&past.resumed);
    let mut used = 0.0;
    all.iter().find(|(agent, moment)| {
        clock.note(moment.at);
        let tokens = |usage: &Usage| match (key, past.plan().agent(agent).map(|planned| &planned.model)) {
            ("tokens", _) => usage.total() as f64,
            ("cost_usd", Some(model)) => cost(prices, model, usage, moment.at),
            _ => 0.0,
        };
        match &moment.event {
            Event::Replied(replied) => used += tokens(&replied.reply.usage),
            Event::Retrying(retrying) => used += tokens(&retrying.retry.spent),
            Event::AskFailed(failed) => used += tokens(&failed.spent),
            Event::CallStarted(call) => {
                let counts = key == "tool_calls" || (key == "subagents" && call.child.is_some());
                used += f64::from(u8::from(counts));
            }
            Event::Asked(asked) => {
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
    if model.provider == "replay" {
        return 0.0;
    }
    prices.cost(model.item(), usage, at.into()).unwrap_or_default()
}
