//! What a run has used, event by event: tokens, cost and calls.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::{CutOffRequests, Event, JournalEntry, PARENT, RunStarted, Usage};
use crate::plan::PlannedAgent;
use crate::pricing::Prices;
use crate::providers::Model;

/// Tokens and their cost.
#[derive(Debug, Clone, Copy)]
pub struct Spend {
    /// The tokens.
    pub usage: Usage,
    /// The cost in US dollars; `None` if a price isn't known.
    pub cost_usd: Option<f64>,
}

impl Default for Spend {
    fn default() -> Self {
        Self { usage: Usage::default(), cost_usd: Some(0.0) }
    }
}

impl std::ops::AddAssign for Spend {
    fn add_assign(&mut self, more: Self) {
        self.usage += more.usage;
        self.cost_usd = self.cost_usd.zip(more.cost_usd).map(|(before, now)| before + now);
    }
}

/// What a run has used. The events of an agent come in their order; those of different agents may come in any.
#[derive(Debug, Default)]
pub struct RunUse {
    /// Of all agents together.
    pub total: Spend,
    /// The requests that killed parts of the run have sent. What was reserved for them is in the total.
    pub cut_off: CutOffRequests,
    agents: HashMap<String, AgentUse>,
    /// The models of the parent and of the subagents, by their names. Each agent's own is the first, then come its fallbacks.
    models: BTreeMap<String, Vec<Model>>,
    /// Without prices, only what a script replies has a known cost.
    prices: Option<Prices>,
}

/// What an agent has used.
#[derive(Debug, Default)]
pub struct AgentUse {
    /// Tokens and their cost.
    pub spend: Spend,
    /// How many calls it has started.
    pub calls: u64,
    /// How many of them started a subagent.
    pub subagents: u64,
    /// The fallback that it asked last.
    fallback: Option<String>,
    open: Option<OpenRequest>,
}

/// A request that hasn't ended: what is reserved for it, and the part of its tokens that is for the reply.
#[derive(Debug)]
struct OpenRequest {
    reserved_tokens: u64,
    reserved_cost_usd: Option<f64>,
    max_tokens: u32,
}

impl RunUse {
    /// Of a run whose requests have these prices.
    pub fn priced(prices: &Prices) -> Self {
        Self { prices: Some(prices.clone()), ..Self::default() }
    }

    /// What an agent has used, if any of its events were taken.
    pub fn agent(&self, id: &str) -> Option<&AgentUse> {
        self.agents.get(id)
    }

    /// How many calls all agents have started, and how many of these started subagents.
    pub fn calls(&self) -> (u64, u64) {
        self.agents.values().fold((0, 0), |(calls, subagents), agent| {
            (calls.saturating_add(agent.calls), subagents.saturating_add(agent.subagents))
        })
    }

    /// Takes the next entry of a journal.
    pub fn apply(&mut self, entry: &JournalEntry) {
        self.apply_event(&entry.agent, &entry.event, entry.at);
    }

    /// Takes the next event of an agent and its time.
    pub(super) fn apply_event(&mut self, id: &str, event: &Event, at: Timestamp) {
        let used = match event {
            Event::RunStarted(started) => return self.take_models(started),
            // What killed requests have used isn't known, so it counts in full.
            Event::Resumed(_) => return self.count_open_requests(),
            Event::RequestStarted(request) => {
                self.count_open_request(id);
                let agent = self.agent_mut(id);
                agent.fallback.clone_from(&request.model);
                agent.open = Some(OpenRequest {
                    reserved_tokens: request.reserved_tokens,
                    reserved_cost_usd: request.reserved_cost_usd,
                    max_tokens: request.max_tokens,
                });
                return;
            }
            Event::CallStarted(call) => {
                let agent = self.agent_mut(id);
                agent.calls = agent.calls.saturating_add(1);
                agent.subagents = agent.subagents.saturating_add(u64::from(call.child.is_some()));
                return;
            }
            Event::Retrying(event) => event.retry.usage,
            Event::RequestFailed(event) => event.usage,
            Event::RequestInterrupted(event) => event.usage,
            Event::ReplyReceived(event) => event.reply.usage,
            _ => return,
        };
        let cost_usd = request_cost(self.prices.as_ref(), self.model_of(id), &used, at);
        let spend = Spend { usage: used, cost_usd };
        self.total += spend;
        let agent = self.agent_mut(id);
        agent.spend += spend;
        if !matches!(event, Event::Retrying(_)) {
            agent.open = None;
        }
    }

    /// Counts what was reserved for requests that have no end.
    pub fn count_open_requests(&mut self) {
        let open = self.agents.iter().filter(|(_, agent)| agent.open.is_some());
        let open: Vec<String> = open.map(|(id, _)| id.clone()).collect();
        open.iter().for_each(|id| self.count_open_request(id));
    }

    fn count_open_request(&mut self, id: &str) {
        let agent = self.agent_mut(id);
        let Some(request) = agent.open.take() else { return };
        let (tokens, cost_usd) = (request.reserved_tokens, request.reserved_cost_usd);
        let output_tokens = u64::from(request.max_tokens).min(tokens);
        let usage = Usage { input_tokens: tokens - output_tokens, output_tokens, ..Usage::default() };
        agent.spend += Spend { usage, cost_usd };
        self.total += Spend { usage, cost_usd };
        self.cut_off += CutOffRequests::one(tokens, cost_usd);
    }

    fn agent_mut(&mut self, id: &str) -> &mut AgentUse {
        self.agents.entry(id.to_owned()).or_default()
    }

    fn take_models(&mut self, started: &RunStarted) {
        let models = |agent: &PlannedAgent| agent.models().cloned().collect();
        let plan = started.plan.as_ref();
        self.models = plan.subagents.iter().map(|(name, agent)| (name.clone(), models(agent))).collect();
        self.models.insert(PARENT.to_owned(), models(&plan.parent));
    }

    /// The model that an agent asks.
    fn model_of(&self, id: &str) -> Option<&Model> {
        let name = if id == PARENT { PARENT } else { id.rsplit_once('-')?.0 };
        let models = self.models.get(name)?;
        let fallback = self.agents.get(id).and_then(|agent| agent.fallback.as_deref());
        let asked = models.iter().find(|model| fallback.is_some_and(|name| model.to_string() == name));
        asked.or(models.first())
    }
}

/// The cost of a request in US dollars; `None` if the price isn't known.
pub fn request_cost(prices: Option<&Prices>, model: Option<&Model>, usage: &Usage, at: Timestamp) -> Option<f64> {
    match model {
        _ if *usage == Usage::default() => Some(0.0),
        Some(model) if model.is_scripted() => Some(0.0),
        Some(model) => prices?.cost(model.price_key(), usage, at.into()),
        None => None,
    }
}
