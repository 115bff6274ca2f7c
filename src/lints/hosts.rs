//! Lists of hosts mean what they say: no strangers' hosts, no wildcards, and nothing for a subagent that the job doesn't have.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, SourceSpan, rule, suggest_name};
use crate::egress::{HostList, HostRule};
use crate::job::{Agent, JobNetwork, NetworkWord};

use crate::yaml::Node;

use super::{Lint, LintContext};

/// Checks what lists of hosts mean.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Error "bad-host"),
        rule!(Error "wider-network"),
        rule!(Warning "shared-host"),
        rule!(Warning "wildcard-host"),
    ],
    check,
};

/// Hosts that strangers can read or write, and why.
const SHARED_HOSTS: &[(&str, &str)] = &[
    ("0x0.st", PASTES),
    ("dpaste.com", PASTES),
    ("dpaste.org", PASTES),
    ("file.io", PASTES),
    ("gist.github.com", PASTES),
    ("gist.githubusercontent.com", PASTES),
    ("hastebin.com", PASTES),
    ("ix.io", PASTES),
    ("paste.rs", PASTES),
    ("pastebin.com", PASTES),
    ("transfer.sh", PASTES),
    ("termbin.com", PASTES),
    ("api.telegram.org", MESSAGES),
    ("discord.com", MESSAGES),
    ("discordapp.com", MESSAGES),
    ("hooks.slack.com", MESSAGES),
    ("ntfy.sh", MESSAGES),
    ("slack.com", MESSAGES),
    ("blob.core.windows.net", OBJECTS),
    ("digitaloceanspaces.com", OBJECTS),
    ("r2.cloudflarestorage.com", OBJECTS),
    ("s3.amazonaws.com", OBJECTS),
    ("storage.googleapis.com", OBJECTS),
    ("interact.sh", REQUESTS),
    ("oast.fun", REQUESTS),
    ("pipedream.net", REQUESTS),
    ("requestbin.com", REQUESTS),
    ("webhook.site", REQUESTS),
    ("ngrok-free.app", REQUESTS),
    ("ngrok.io", REQUESTS),
    ("trycloudflare.com", REQUESTS),
    ("docs.google.com", FILES),
    ("drive.google.com", FILES),
    ("dropbox.com", FILES),
];
const PASTES: &str = "keeps texts that everybody can write and read";
const MESSAGES: &str = "passes messages on to whoever has an account";
const OBJECTS: &str = "has the storage of all customers, and everybody can be one";
const REQUESTS: &str = "shows requests to whoever has set that up";
const FILES: &str = "keeps the files of all users, and everybody can be one";

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let (job, lists) = (subject.job, subject.hosts);
    let mut seen = Vec::new();
    for (rule, place) in lists.all() {
        if seen.iter().any(|other: &SourceSpan| other.range == place.range && Arc::ptr_eq(&other.source, &place.source))
        {
            continue;
        }
        if let Some(finding) = shared_host(rule, place).or_else(|| wildcard_host(rule, place)) {
            seen.push(place.clone());
            findings.push(finding);
        }
    }
    for agent in job.agents() {
        findings.extend(wider(subject, &agent));
    }
}

/// A warning about a host that strangers can read or write.
fn shared_host(rule: &HostRule, place: &SourceSpan) -> Option<Diagnostic> {
    let shown = rule.pattern.to_string();
    let bare = shown.strip_prefix("*.").unwrap_or(&shown);
    let (_, why) = SHARED_HOSTS
        .iter()
        .find(|(host, _)| bare == *host || bare.strip_suffix(host).is_some_and(|rest| rest.ends_with('.')))?;
    let message = format!("`{shown}` {why}");
    let finding = Diagnostic::warning("shared-host", place.clone(), message);
    Some(finding.help("an agent can send there what it has read, and get its orders from there: leave the host out, or let another job use it"))
}

/// A warning about a wildcard.
fn wildcard_host(rule: &HostRule, place: &SourceSpan) -> Option<Diagnostic> {
    if !rule.pattern.is_wildcard() {
        return None;
    }
    let message = format!(
        "`{rule}` allows every name below it, and a looked-up name can carry data to whoever runs its name server"
    );
    let finding = Diagnostic::warning("wildcard-host", place.clone(), message);
    Some(finding.help("name the hosts; `legwork show RUN --network` lists the ones that a run needed"))
}

/// A subagent whose network is more than the job's.
fn wider(subject: &LintContext<'_>, agent: &Agent<'_>) -> Option<Diagnostic> {
    let job = subject.job;
    let (name, network) = (agent.name?, agent.network?);
    if network.node.is_placeholder() || !network.value.is_some() {
        return None;
    }
    let declared = subject.root.get("network");
    // What the job's value is meant to be isn't known.
    if declared.as_ref().is_some_and(Node::is_incomplete) {
        return None;
    }
    let finding = |place: SourceSpan, message: String, help: String| {
        let finding = Diagnostic::error("wider-network", place, message);
        let finding = match &declared {
            Some(declared) => finding.label(declared.place(), "what the job allows"),
            None => finding,
        };
        Some(finding.help(help))
    };
    let help_none = "add it to the job's own `network`: a subagent has at most that".to_owned();
    match (&job.network, &network.value) {
        (JobNetwork::Word(NetworkWord::Open), _) => None,
        (JobNetwork::Word(NetworkWord::None), _) => finding(
            network.place(),
            format!("the subagent `{}` has a network, and the job has none", name.value),
            help_none,
        ),
        (JobNetwork::Hosts(_), JobNetwork::Word(_)) => finding(
            network.place(),
            format!("the subagent `{}` has an open network, and the job a list of hosts", name.value),
            "leave it out, or list hosts of the job's list".to_owned(),
        ),
        (JobNetwork::Hosts(_), JobNetwork::Hosts(_)) => {
            let lists = subject.hosts;
            let run: HostList = lists.run.iter().map(|(rule, _)| rule.clone()).collect();
            let own = lists.subagents.get(&name.value)?;
            let (rule, place) = own.iter().find(|(rule, _)| !run.rules().iter().any(|wider| rule.is_within(wider)))?;
            let known: Vec<String> = run.rules().iter().map(ToString::to_string).collect();
            let help = match suggest_name(&rule.to_string(), known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`? If not, {help_none}"),
                None => help_none,
            };
            finding(
                place.clone(),
                format!("the job doesn't allow `{rule}`, so the subagent `{}` can't have it", name.value),
                help,
            )
        }
    }
}
