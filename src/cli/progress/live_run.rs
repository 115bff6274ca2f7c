//! What a run is doing and what it has used, from its events.

use std::time::Duration;

use indexmap::IndexMap;
use indicatif::FormattedDuration;

use super::event_line::event_line;
use crate::cli::output::printable;
use crate::event::{AgentModel, AgentPhase, Event, JournalEntry, PARENT, RunModel, RunUse, RunningStep, Spend};
use crate::plan::{Plan, PlannedLimits};
use crate::pricing::Prices;
use crate::reports::run_stats;
use crate::run::ResumeState;
use crate::running_clock::RunningInstant;
use crate::text::{pluralize, truncate};

/// The most characters that are shown of what an agent does.
const MAX_ACTION_CHARS: usize = 160;

/// What a run is doing and what it has used.
pub(super) struct LiveRun {
    limits: PlannedLimits,
    /// The parent's.
    max_turns: u32,
    started: RunningInstant,
    /// How long the run ran before this process.
    elapsed_before: Duration,
    /// When the part of each agent in this process began, in the order in which they started.
    agents: IndexMap<String, RunningInstant>,
    model: RunModel,
    used: RunUse,
}

/// `12.3k $0.02`; empty before anything is spent.
fn short_spend(spend: &Spend) -> String {
    match spend.usage.total() {
        0 => String::new(),
        tokens => format!("{} {}", run_stats::tokens(tokens), spend.cost_usd.map_or("$?".to_owned(), short_cost)),
    }
}

/// What one agent is doing.
pub(super) struct LiveAgent<'a> {
    /// Its id.
    pub(super) id: &'a str,
    /// When its part in this process began.
    pub(super) started: RunningInstant,
    model: &'a AgentModel,
}

impl LiveRun {
    /// Of a run that is about to start, or to continue after what is recorded of it.
    pub(super) fn new(plan: &Plan, prices: &Prices, earlier: Option<&ResumeState>) -> Self {
        let mut status = Self {
            limits: plan.limits.clone(),
            max_turns: plan.parent.max_turns,
            started: RunningInstant::now(),
            elapsed_before: earlier.map(ResumeState::elapsed).unwrap_or_default(),
            agents: IndexMap::new(),
            model: RunModel::default(),
            used: RunUse::priced(prices),
        };
        for entry in earlier.map(ResumeState::entries).unwrap_or_default() {
            status.apply(entry);
        }
        status
    }

    /// Takes the next event.
    pub(super) fn apply(&mut self, entry: &JournalEntry) {
        self.used.apply(entry);
        self.model.apply(&entry.agent, &entry.event, entry.at);
        match &entry.event {
            Event::RunStarted(_)
            | Event::Resumed(_)
            | Event::RunFinished(_)
            | Event::StateRead(_)
            | Event::StateSet(_) => {}
            _ if self.agents.contains_key(&entry.agent) => {}
            _ => {
                self.agents.insert(entry.agent.clone(), RunningInstant::now());
            }
        }
    }

    fn agent(&self, id: &str) -> Option<LiveAgent<'_>> {
        let (id, started) = self.agents.get_key_value(id)?;
        Some(LiveAgent { id, started: *started, model: self.model.agents.get(id)? })
    }

    /// The agents that are at work, in the order in which they started.
    pub(super) fn active_agents(&self) -> impl Iterator<Item = LiveAgent<'_>> {
        self.agents.keys().filter_map(|id| self.agent(id)).filter(|agent| agent.model.end.is_none())
    }

    /// The parent, if it has started.
    pub(super) fn parent(&self) -> Option<LiveAgent<'_>> {
        self.agent(PARENT)
    }

    /// The description of a subagent's task; empty if there is none.
    pub(super) fn description(&self, id: &str) -> String {
        self.agent(id).map(|agent| agent.description()).unwrap_or_default()
    }

    /// The cost so far; `None` if a price isn't known.
    pub(super) fn cost(&self) -> Option<f64> {
        self.used.total.cost_usd
    }

    /// How long the run has run, with its earlier parts.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed_before + self.started.elapsed()
    }

    /// The cost so far and the limit of which the largest share is used: `$0.12 of $0.50, 24 %`, or
    /// `$0.12, 12 of 50 turns, 24 %`.
    pub(super) fn cost_and_limit(&self) -> String {
        let cost = self.cost().map_or("cost unknown".to_owned(), short_cost);
        let turns = self.parent().map_or(0, |parent| parent.turn());
        let elapsed = self.elapsed();
        let count = |used: u64, limit: Option<u64>, what: &str| {
            limit.map(|limit| (used as f64 / limit.max(1) as f64, format!("{used} of {}", pluralize(limit, what))))
        };
        let used = self.used.total.usage.total();
        let tokens = self.limits.tokens.map(|limit| {
            let text = format!("{} of {} tokens", run_stats::tokens(used), run_stats::tokens(limit));
            (used as f64 / limit.max(1) as f64, text)
        });
        let time = self.limits.wall_clock_ms.map(|limit| {
            let text = format!("{} of {}", FormattedDuration(elapsed), FormattedDuration(Duration::from_millis(limit)));
            (elapsed.as_secs_f64() * 1e3 / limit.max(1) as f64, text)
        });
        let of_cost = self.limits.cost_usd.zip(self.cost()).map(|(limit, used)| {
            (if limit > 0.0 { used / limit } else { 1.0 }, format!("{cost} of {}", run_stats::cost(Some(limit))))
        });
        let (calls, subagents) = self.used.calls();
        let others = [
            count(u64::from(turns), Some(u64::from(self.max_turns)), "turn"),
            tokens,
            time,
            count(calls, self.limits.tool_calls, "tool call"),
            count(subagents, self.limits.subagents, "subagent"),
        ];
        let nearest = others.into_iter().flatten().max_by(|(a, _), (b, _)| a.total_cmp(b));
        let text = match (of_cost, nearest) {
            (Some((share, text)), other) if other.as_ref().is_none_or(|(other, _)| *other <= share) => {
                format!("{text}, {}", percent(share))
            }
            (_, Some((share, text))) => format!("{cost}, {text}, {}", percent(share)),
            (_, None) => cost,
        };
        run_stats::with_cut_off(text, &self.used.cut_off)
    }

    /// What the run does, in one line for a log: `parent turn 12, explorer-1 bash cargo test`.
    pub(super) fn activity(&self) -> String {
        const MAX_AGENTS: usize = 4;
        let agents: Vec<LiveAgent<'_>> = self.active_agents().collect();
        let named = agents.iter().take(MAX_AGENTS).map(|agent| match agent.id {
            PARENT if agents.len() > 1 => format!("parent turn {}", agent.turn()),
            PARENT => format!("parent turn {} {}", agent.turn(), agent.action()),
            id => format!("{id} {}", agent.action()),
        });
        let mut parts: Vec<String> = named.collect();
        match agents.len() {
            0 => parts.push("no agent at work".to_owned()),
            count if count > MAX_AGENTS => parts.push(format!("{} more agents", count - MAX_AGENTS)),
            _ => {}
        }
        parts.join(", ")
    }
}

impl LiveRun {
    /// The tokens and the cost so far, in few characters.
    pub(super) fn spent(&self) -> String {
        short_spend(&self.used.total)
    }

    /// The tokens and the cost of an agent so far, in few characters; empty before its first reply.
    pub(super) fn spent_by(&self, id: &str) -> String {
        self.used.agent(id).map(|agent| short_spend(&agent.spend)).unwrap_or_default()
    }

    /// What the run mainly does: what its subagents do, or else the parent.
    pub(super) fn main_activity(&self) -> String {
        let subagents: Vec<LiveAgent<'_>> = self.active_agents().filter(|agent| agent.id != PARENT).collect();
        match (subagents.as_slice(), self.parent()) {
            ([], Some(parent)) => parent.action(),
            ([], None) => "starting".to_owned(),
            ([only], _) => format!("{} {}", only.id, only.action()),
            ([first, rest @ ..], _) => format!("{} {} (and {} more)", first.id, first.action(), rest.len()),
        }
    }
}

impl LiveAgent<'_> {
    /// Its turn, from 1.
    pub(super) fn turn(&self) -> u32 {
        self.model.requested_turn.max(1)
    }

    /// The parent's description of the task; empty if there is none.
    pub(super) fn description(&self) -> String {
        truncate::ellipsize(printable(&self.model.description).trim(), MAX_ACTION_CHARS)
    }

    /// What it does: the calls that run, or else that the model thinks, and its last call.
    pub(super) fn action(&self) -> String {
        let line = |event| {
            let line = event_line(self.id, event).unwrap_or_default();
            truncate::ellipsize(&printable(line.trim_end()), MAX_ACTION_CHARS)
        };
        let child = |step: &RunningStep| match &step.started {
            Event::CallStarted(started) => started.child.clone(),
            _ => None,
        };
        let running = &self.model.running;
        let children = running.iter().filter_map(child).count();
        match (running.as_slice(), &self.model.last_started) {
            ([], None) => phase(self.model.phase).to_owned(),
            ([], Some(last)) => format!("{} (last: {})", phase(self.model.phase), line(last)),
            ([only], _) => match child(only) {
                Some(child) => format!("waiting for {child}"),
                None => line(&only.started),
            },
            (all, _) if children == all.len() => format!("waiting for {children} subagents"),
            ([first, rest @ ..], _) => format!("{} (and {} more)", line(&first.started), rest.len()),
        }
    }
}

fn phase(phase: AgentPhase) -> &'static str {
    match phase {
        AgentPhase::Starting => "starting",
        AgentPhase::Thinking => "thinking",
        AgentPhase::Summarizing => "summarizing",
        AgentPhase::Retrying => "retrying",
    }
}

/// A cost in few characters: `$0.004`, `$0.12`, `$12.30`.
pub(super) fn short_cost(usd: f64) -> String {
    match usd {
        _ if usd > 0.0 && usd < 0.001 => "<$0.001".to_owned(),
        _ if usd > 0.0 && usd < 0.01 => format!("${usd:.3}"),
        _ => format!("${usd:.2}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).min(100.0).floor())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::event::Usage;

    fn plan(limits: &serde_json::Value) -> Plan {
        let agent = json!({
            "model": { "provider": "anthropic", "name": "claude-haiku-4-5" }, "system": "", "tools": [], "max_turns": 20,
            "max_tokens": 1_000,
        });
        let mut all = json!({
            "cost_usd": null, "tokens": null, "wall_clock_ms": null, "tool_calls": null, "subagents": null,
            "parallel_subagents": 1,
        });
        for (name, value) in limits.as_object().unwrap() {
            all[name] = value.clone();
        }
        let plan = json!({
            "format": 2, "job": "j", "workspace": "/w", "inputs": {}, "parent": agent, "subagents": { "look": agent },
            "limits": all, "env": [], "network": "none", "keep": "always",
        });
        serde_json::from_value(plan).unwrap()
    }

    fn entry(agent: &str, kind: &str, data: &serde_json::Value) -> JournalEntry {
        let at = Timestamp::UNIX_EPOCH;
        let line = json!({ "seq": 1, "at": at, "agent": agent, "type": kind, "data": data });
        JournalEntry::from_json(&line.to_string()).unwrap()
    }

    fn call(id: &str, subject: &str, child: Option<&str>) -> serde_json::Value {
        json!({ "call_id": id, "tool": "bash", "subject": subject, "child": child })
    }

    fn request(turn: u32) -> serde_json::Value {
        json!({ "turn": turn, "max_tokens": 1, "tools_allowed": true, "reserved_tokens": 500, "reserved_cost_usd": 0.25 })
    }

    #[test]
    fn the_nearest_limit_is_shown() {
        let status = |limits: serde_json::Value| {
            let mut status = LiveRun::new(&plan(&limits), &Prices::default(), None);
            status.apply(&entry(PARENT, "request_started", &request(5)));
            for number in 0..3 {
                status.apply(&entry(PARENT, "call_started", &call(&number.to_string(), "x", None)));
            }
            let usage = Usage { input_tokens: 12_300, ..Usage::default() };
            status.used.total = Spend { usage, cost_usd: Some(0.12) };
            status
        };
        assert_eq!(status(json!({})).cost_and_limit(), "$0.12, 5 of 20 turns, 25 %");
        assert_eq!(status(json!({ "cost_usd": 0.4 })).cost_and_limit(), "$0.12 of $0.40, 30 %");
        assert_eq!(
            status(json!({ "cost_usd": 0.4, "tool_calls": 4 })).cost_and_limit(),
            "$0.12, 3 of 4 tool calls, 75 %"
        );
        assert_eq!(status(json!({ "tokens": 20_000 })).cost_and_limit(), "$0.12, 12.3k of 20.0k tokens, 61 %");
        let mut late = status(json!({ "wall_clock_ms": 100_000 }));
        late.elapsed_before = Duration::from_secs(90);
        assert_eq!(late.cost_and_limit(), "$0.12, 00:01:30 of 00:01:40, 90 %");
        late.used.total.cost_usd = None;
        assert!(late.cost_and_limit().starts_with("cost unknown, "));
    }

    #[test]
    fn an_agent_does_what_runs_or_thinks_about_what_it_did_last() {
        let mut status = LiveRun::new(&plan(&json!({})), &Prices::default(), None);
        let action = |status: &LiveRun, id: &str| status.agent(id).unwrap().action();
        status.apply(&entry(
            "look-1",
            "agent_started",
            &json!({ "description": "a\u{1b}[2Jb", "model": "m", "prompt": "" }),
        ));
        assert_eq!(status.description("look-1"), "a␛[2Jb");
        status.apply(&entry("look-1", "request_started", &request(1)));
        assert_eq!(action(&status, "look-1"), "thinking");
        status.apply(&entry("look-1", "call_started", &call("1", "cargo test", None)));
        status.apply(&entry("look-1", "call_started", &call("2", "ls", None)));
        assert_eq!(action(&status, "look-1"), "bash cargo test (and 1 more)");
        status.apply(&entry(PARENT, "call_started", &call("1", "", Some("look-1"))));
        assert_eq!(action(&status, PARENT), "waiting for look-1");
        assert_eq!(status.activity(), "look-1 bash cargo test (and 1 more), parent turn 1");
        let result = |id: &str| {
            let result = json!({ "call_id": id, "text": "", "is_error": false });
            json!({ "tool": "bash", "result": result, "duration_ms": 1 })
        };
        status.apply(&entry("look-1", "call_finished", &result("1")));
        status.apply(&entry("look-1", "call_finished", &result("2")));
        status.apply(&entry("look-1", "request_started", &request(2)));
        assert_eq!(action(&status, "look-1"), "thinking (last: bash ls)");
    }

    #[test]
    fn a_request_that_was_killed_counts_with_what_it_had_reserved() {
        let mut status = LiveRun::new(&plan(&json!({ "cost_usd": 0.5 })), &Prices::default(), None);
        status.apply(&entry(PARENT, "request_started", &request(1)));
        assert_eq!((status.used.total.usage.total(), status.cost()), (0, Some(0.0)));
        status.apply(&entry(
            PARENT,
            "resumed",
            &json!({ "version": "1", "workspace": "/w", "sandbox": "off", "commit": null }),
        ));
        assert_eq!((status.used.total.usage.total(), status.cost()), (500, Some(0.25)));
        let expected = "$0.25 of $0.50, 50 %, including $0.25 reserved for 1 request that was cut off";
        assert_eq!(status.cost_and_limit(), expected);
    }

    #[test]
    fn costs_are_short() {
        assert_eq!([0.0, 0.0004, 0.004, 0.25, 12.3].map(short_cost), ["$0.00", "<$0.001", "$0.004", "$0.25", "$12.30"]);
        assert_eq!([0.0, 0.249, 0.999, 7.0].map(percent), ["0 %", "24 %", "99 %", "100 %"]);
    }
}
