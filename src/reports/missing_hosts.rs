//! The hosts that a run asked for and that its lists don't have, as YAML to paste into the job.

use std::collections::{BTreeMap, BTreeSet};

use crate::conversation::{Conversation, StepKind};
use crate::egress::{DEFAULT_PORT, HostRule};

/// The entries that lists of the run would need, sorted. A name that was only looked up counts as one for port 443.
pub fn missing_hosts(conversation: &Conversation) -> Vec<HostRule> {
    let mut ports: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    let steps = conversation.agents().flat_map(|agent| &agent.steps);
    for refused in steps.filter_map(|step| match &step.kind {
        StepKind::NetworkRefused(refused) if refused.reason.is_about_list() => Some(refused),
        _ => None,
    }) {
        ports.entry(&refused.host).or_default().extend(refused.port);
    }
    let entries = ports.into_iter().flat_map(|(host, ports)| {
        let ports = if ports.is_empty() { BTreeSet::from([DEFAULT_PORT]) } else { ports };
        ports.into_iter().map(move |port| format!("{host}:{port}"))
    });
    // A command chose the names, and an address is no entry.
    let mut rules: Vec<HostRule> = entries.filter_map(|entry| HostRule::parse_entry(&entry).ok()).flatten().collect();
    rules.sort();
    rules.dedup();
    rules
}

/// The entries as the `network` of a job.
pub fn network_yaml(rules: &[HostRule]) -> String {
    let lines = rules.iter().map(|rule| format!("    - {rule}\n"));
    format!("network:\n  allow:\n{}", lines.collect::<String>())
}
