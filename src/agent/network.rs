//! What commands, checks, steps and tool servers reach, as events of the run and in words for the model.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::run_abort::RunAbort;
use super::run_state::RunState;
use crate::egress::{CallEgress, CallTraffic, Egress, HostList, NetworkAccess};
use crate::event::{LimitReached, NetworkRefused, NetworkUsed};
use crate::job::Network;
use crate::text::pluralize;
use crate::tools::toolbox::ToolDeps;

/// How many refusals a run records; the last one counts the rest.
const MAX_REFUSED_LINES: u64 = 1_000;
/// How many refused hosts the model reads after a call.
const MAX_SHOWN_REFUSED: usize = 5;
/// How many hosts that it may reach the model reads.
const MAX_SHOWN_HOSTS: usize = 20;
/// How often what a running command has sent is recorded, so that a kill doesn't lose it.
const RECORD_INTERVAL: Duration = Duration::from_secs(2);
/// The key of the limit on what commands send.
const UPLOAD_KEY: &str = "limits.upload";

impl RunState {
    /// Gives tools the network of a subagent, if it has another one than the run.
    pub(super) fn narrow_network(&self, id: &str, is_own_copy: bool, tools: &mut ToolDeps) {
        let plan = &self.deps.plan;
        let Some(network) = plan.agent(id).and_then(|agent| agent.network.as_ref()) else { return };
        let base = self.deps.network.egress.as_ref();
        tools.egress = network.hosts().zip(base).map(|(hosts, base)| base.scope(hosts));
        if plan.network == Network::Open
            && *network != Network::Open
            && !is_own_copy
            && let Some(narrowed) = &self.deps.network.narrowed
        {
            tools.sandbox = Arc::clone(narrowed);
        }
    }

    /// What the sandbox of a subagent's commands must allow.
    pub(super) fn network_access(&self, id: &str) -> NetworkAccess {
        let plan = &self.deps.plan;
        match (&plan.network, plan.agent(id).and_then(|agent| agent.network.as_ref())) {
            (Network::Open, Some(Network::None | Network::Allow(_))) => NetworkAccess::Hosts,
            (of_run, _) => of_run.into(),
        }
    }

    /// The limit on what commands send, if it is reached.
    pub(super) fn upload_reached(&self) -> Option<LimitReached> {
        let meter = self.deps.network.egress.as_ref()?.upload();
        meter.reached().is_cancelled().then(|| {
            let message = format!(
                "commands have sent all that they may, {}",
                pluralize(meter.limit().unwrap_or_default(), "byte")
            );
            LimitReached::new(UPLOAD_KEY, message)
        })
    }

    /// Records what was reached.
    fn record_used(&self, agent: &str, call: &str, traffic: &CallTraffic) -> Result<(), RunAbort> {
        traffic.used.iter().try_for_each(|used| {
            let call = call.to_owned();
            let (host, port) = (used.host.to_string(), used.port);
            let (connections, sent_bytes, received_bytes) = (used.connections, used.sent_bytes, used.received_bytes);
            self.record(agent, NetworkUsed { call, host, port, connections, sent_bytes, received_bytes })
        })
    }

    /// Records what was refused.
    fn record_refused(&self, agent: &str, call: &str, traffic: &CallTraffic) -> Result<(), RunAbort> {
        for refused in &traffic.refused {
            let host = self.deps.tools.redactor.redact(&refused.host).into_owned();
            let (port, reason, count) = (refused.port, refused.reason, refused.count);
            let line = NetworkRefused { call: call.to_owned(), host, port, reason, count };
            let is_within = {
                let mut shared = self.shared();
                let lines = &mut shared.refused_lines;
                lines.count += 1;
                let is_within = lines.count + self.deps.network.refused_lines < MAX_REFUSED_LINES;
                match &mut lines.rest {
                    _ if is_within => {}
                    Some(rest) => rest.count = rest.count.saturating_add(line.count),
                    rest => *rest = Some(line.clone()),
                }
                is_within
            };
            if is_within {
                self.record(agent, line)?;
            }
        }
        Ok(())
    }

    /// Records what something that isn't a call has reached and was refused.
    ///
    /// # Errors
    /// The journal can't be written.
    pub fn record_traffic(&self, agent: &str, what: &str, traffic: &CallTraffic) -> Result<(), RunAbort> {
        self.record_used(agent, what, traffic)?;
        self.record_refused(agent, what, traffic)
    }

    /// Records the refusals that there were no lines for.
    ///
    /// # Errors
    /// The journal can't be written.
    pub fn record_refused_rest(&self) -> Result<(), RunAbort> {
        let rest = self.shared().refused_lines.rest.take();
        rest.map_or(Ok(()), |rest| self.record(crate::event::PARENT, rest))
    }
}

/// The network of one call, check or step.
pub(super) struct CallNetwork<'a> {
    run: &'a RunState,
    agent: &'a str,
    /// The id of the call, or what else it is.
    call: &'a str,
    egress: Option<CallEgress>,
    refused: CallTraffic,
}

impl<'a> CallNetwork<'a> {
    pub(super) fn new(run: &'a RunState, agent: &'a str, call: &'a str, egress: Option<&Egress>) -> Self {
        Self { run, agent, call, egress: egress.map(Egress::call), refused: CallTraffic::default() }
    }

    /// The way out, if there is one.
    pub(super) fn egress(&self) -> Option<CallEgress> {
        self.egress.clone()
    }

    /// Waits for the end of the work, and records meanwhile what it sends.
    pub(super) async fn watch<F: Future>(&mut self, work: F) -> Result<F::Output, RunAbort> {
        let mut work = pin!(work);
        if self.egress.is_none() {
            return Ok(work.await);
        }
        let first = tokio::time::Instant::now() + RECORD_INTERVAL;
        let mut interval = tokio::time::interval_at(first, RECORD_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.take()?;
                    return Ok(done);
                }
                _ = interval.tick() => self.take()?,
            }
        }
    }

    fn take(&mut self) -> Result<(), RunAbort> {
        let Some(egress) = &self.egress else { return Ok(()) };
        let traffic = egress.take_traffic();
        self.add(&traffic)
    }

    /// Adds what a tool server has reached for the call.
    pub(super) fn add(&mut self, traffic: &CallTraffic) -> Result<(), RunAbort> {
        self.refused.add_refused(traffic);
        self.run.record_used(self.agent, self.call, traffic)
    }

    /// Records what was refused. Returns the line about it for the model.
    pub(super) fn finish(self) -> Result<Option<String>, RunAbort> {
        self.run.record_refused(self.agent, self.call, &self.refused)?;
        let none = HostList::default();
        let list = self.egress.as_ref().map_or(&none, CallEgress::list);
        let note = refusal_note(&self.refused, list);
        Ok(note.map(|note| self.run.deps.tools.redactor.redact(&note).into_owned()))
    }
}

/// The line about what was refused.
fn refusal_note(traffic: &CallTraffic, list: &HostList) -> Option<String> {
    if traffic.refused.is_empty() {
        return None;
    }
    let shown = traffic.refused.iter().take(MAX_SHOWN_REFUSED);
    let shown = shown.map(|refused| format!("{} ({})", refused.target(), refused.reason));
    let mut hosts = shown.collect::<Vec<_>>().join("; ");
    if let more @ 1.. = traffic.refused.len().saturating_sub(MAX_SHOWN_REFUSED) {
        hosts += &format!("; and {more} more");
    }
    let mut reachable: Vec<String> = list.rules().iter().take(MAX_SHOWN_HOSTS).map(ToString::to_string).collect();
    if let more @ 1.. = list.rules().len().saturating_sub(MAX_SHOWN_HOSTS) {
        reachable.push(format!("and {more} more"));
    }
    let reach =
        if reachable.is_empty() { String::new() } else { format!("; this job may reach: {}", reachable.join(", ")) };
    Some(format!("[no access: {hosts}{reach}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::{HostRule, Refused, RefusedReason};

    #[test]
    fn the_model_reads_at_most_five_refused_hosts_and_what_it_may_reach() {
        let refused =
            |host: &str, port| Refused { host: host.to_owned(), port, reason: RefusedReason::NotListed, count: 2 };
        let list: HostList = ["api.example.com", "db.example.com:5432"]
            .iter()
            .flat_map(|entry| HostRule::parse_entry(entry).unwrap())
            .collect();
        let mut traffic = CallTraffic { refused: vec![refused("files.example.com", Some(443))], used: Vec::new() };
        assert_eq!(
            refusal_note(&traffic, &list).unwrap(),
            "[no access: files.example.com:443 (not in this job's list); this job may reach: api.example.com, db.example.com:5432]"
        );
        traffic.refused.extend((0..7).map(|number| refused(&format!("h{number}.test"), None)));
        let note = refusal_note(&traffic, &list).unwrap();
        assert!(note.contains("; h3.test (not in this job's list); and 3 more; this job"), "{note}");
        assert_eq!(refusal_note(&CallTraffic::default(), &list), None);
    }
}
