//! The lists of hosts that a job allows, with the files that they name.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::diagnostic::{Diagnostic, Source, SourceSpan, rule, suggest_name};
use crate::egress::{HostList, HostRule, NameErrorKind};
use crate::job::{Agent, HostEntry, Job, JobNetwork, MAX_HOSTS, Network, NetworkWord};
use crate::template::{JobDir, PromptFileError, stray_tags};
use crate::text::sanitize;
use crate::yaml::Spanned;

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

/// How many files of hosts a job can name.
const MAX_FILES: usize = 20;
/// The form of an entry, in words.
const FORM: &str = "write a name such as `api.example.com`, with a port if it isn't 443: `db.example.com:5432`";

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

/// A rule and the place where it is written.
type PlacedRule = (HostRule, SourceSpan);

/// The lists of a job, files and sets expanded.
#[derive(Debug, Default)]
pub struct HostLists {
    run: Vec<PlacedRule>,
    subagents: IndexMap<String, Vec<PlacedRule>>,
    servers: IndexMap<String, Vec<PlacedRule>>,
    /// The files that were read, by their paths from the job's folder.
    pub(super) read: Vec<(String, Arc<Source>)>,
}

impl HostLists {
    /// Reads the lists of a job.
    pub(super) fn load(job: &Job, folder: Option<&JobDir>, findings: &mut Vec<Diagnostic>) -> Self {
        let mut reader = Reader { folder, files: BTreeMap::new(), findings };
        let run = reader.list(&job.network);
        let of_subagent = |(name, network): (&Spanned<String>, &Spanned<JobNetwork>)| {
            (name.value.clone(), reader.list(&network.value))
        };
        let subagents = job.subagents.iter().filter_map(|(name, subagent)| Some((name, subagent.network.as_ref()?)));
        let subagents = subagents.map(of_subagent).collect();
        let servers = job.mcp.iter().filter_map(|(name, server)| Some((name, server.network.as_ref()?)));
        let servers = servers.map(|(name, network)| (name.value.clone(), reader.list(&network.value))).collect();
        let read = reader.files.into_iter().filter_map(|(path, file)| Some((path, file?.0))).collect();
        Self { run, subagents, servers, read }
    }

    /// What the job's commands reach.
    pub fn network(&self, job: &Job) -> Network {
        resolve(&job.network, &self.run)
    }

    /// What the commands of a subagent reach, if it isn't what the job's do.
    pub fn of_subagent(&self, name: &str, network: Option<&Spanned<JobNetwork>>) -> Option<Network> {
        let rules = self.subagents.get(name).map(Vec::as_slice).unwrap_or_default();
        network.map(|network| resolve(&network.value, rules))
    }

    /// What the program of a tool server reaches.
    pub fn of_server(&self, name: &str, network: Option<&Spanned<JobNetwork>>) -> Network {
        let rules = self.servers.get(name).map(Vec::as_slice).unwrap_or_default();
        network.map(|network| resolve(&network.value, rules)).unwrap_or_default()
    }

    fn all(&self) -> impl Iterator<Item = &PlacedRule> {
        self.run.iter().chain(self.subagents.values().flatten()).chain(self.servers.values().flatten())
    }
}

fn resolve(network: &JobNetwork, rules: &[PlacedRule]) -> Network {
    match network {
        JobNetwork::Word(NetworkWord::None) => Network::None,
        JobNetwork::Word(NetworkWord::Open) => Network::Open,
        JobNetwork::Hosts(_) => Network::Allow(rules.iter().map(|(rule, _)| rule.clone()).collect()),
    }
}

/// A file of hosts: its text, and the rules of its lines.
type HostFileLines = (Arc<Source>, Vec<PlacedRule>);

struct Reader<'a> {
    folder: Option<&'a JobDir>,
    /// `None` for one that can't be read.
    files: BTreeMap<String, Option<HostFileLines>>,
    findings: &'a mut Vec<Diagnostic>,
}

impl Reader<'_> {
    fn list(&mut self, network: &JobNetwork) -> Vec<PlacedRule> {
        let Some(hosts) = network.hosts() else { return Vec::new() };
        let allow = &hosts.allow;
        let mut rules: Vec<PlacedRule> = Vec::new();
        for entry in allow.value.iter().filter(|entry| !entry.node.is_placeholder()) {
            match &entry.value {
                HostEntry::Host(text) => match read_entry(text, entry.place()) {
                    Ok(read) => rules.extend(read.into_iter().map(|rule| (rule, entry.place()))),
                    Err(finding) => self.findings.push(*finding),
                },
                HostEntry::File(file) if file.file.node.is_placeholder() => {}
                HostEntry::File(file) => rules.extend(self.file(&file.file.value, &file.file.place())),
            }
            if rules.len() > MAX_HOSTS {
                let message = format!("the list has more than {MAX_HOSTS} hosts");
                self.findings.push(Diagnostic::error("bad-host", entry.place(), message).help("use wildcards"));
                break;
            }
        }
        rules
    }

    fn file(&mut self, path: &str, place: &SourceSpan) -> Vec<PlacedRule> {
        if let Some(known) = self.files.get(path) {
            return known.iter().flat_map(|(_, rules)| rules).cloned().collect();
        }
        let unreadable = |why: String| Err(PromptFileError::Unreadable(why));
        let read = match self.folder {
            None => unreadable("can't be read: the job isn't in a folder".to_owned()),
            Some(_) if self.files.len() >= MAX_FILES => {
                unreadable(format!("is one too many: a job's lists can have {MAX_FILES} files"))
            }
            Some(folder) => folder.read(path),
        };
        let read = match read {
            Ok(source) => {
                let rules = self.lines(&source);
                Some((source, rules))
            }
            Err(fault) => {
                let below = "lists of hosts are files below the job file's own folder";
                self.findings.push(fault.to_diagnostic(path, place.clone(), below));
                None
            }
        };
        let rules = read.iter().flat_map(|(_, rules)| rules).cloned().collect();
        self.files.insert(path.to_owned(), read);
        rules
    }

    /// The rules of a file, one a line.
    fn lines(&mut self, source: &Arc<Source>) -> Vec<PlacedRule> {
        let mut rules = Vec::new();
        let mut start = 0;
        for line in source.text.split_inclusive('\n') {
            let range = entry_range(line, start);
            start += line.len();
            if range.is_empty() {
                continue;
            }
            let place = SourceSpan { source: Arc::clone(source), range: range.clone() };
            match read_entry(&source.text[range], place.clone()) {
                Ok(read) => rules.extend(read.into_iter().map(|rule| (rule, place.clone()))),
                Err(finding) => self.findings.push(*finding),
            }
            // The rest is as wrong, and a list has a limit.
            if rules.len() > MAX_HOSTS {
                break;
            }
        }
        rules
    }
}

/// Where the entry of a line is, without its comment and the space around it.
fn entry_range(line: &str, start: usize) -> Range<usize> {
    let entry = line.split('#').next().unwrap_or_default();
    let trimmed = entry.trim();
    let offset = entry.len() - entry.trim_start().len();
    start + offset..start + offset + trimmed.len()
}

/// The rules of an entry.
fn read_entry(text: &str, place: SourceSpan) -> Result<Vec<HostRule>, Box<Diagnostic>> {
    let error = match HostRule::parse_entry(text) {
        Ok(rules) => return Ok(rules),
        Err(error) => error,
    };
    let shown = sanitize::line(text);
    if !stray_tags(text).is_empty() || text.contains("{{") {
        let message = format!("`{shown}` has a tag: a host can't come from an input");
        let help = "write the hosts themselves: who starts the job could choose any other one";
        return Err(Box::new(Diagnostic::error("bad-host", place, message).help(help)));
    }
    let finding = Diagnostic::error("bad-host", place, format!("`{shown}` isn't a host of a list: {error}"));
    let word = suggest_name(text, ["none", "open"]).filter(|_| error.kind == NameErrorKind::UnknownWord);
    Err(Box::new(match (&error.suggestion, error.kind, word) {
        (Some(meant), ..) => finding.help(format!("did you mean `{meant}`?")),
        (None, NameErrorKind::UnknownWord, Some(word)) => {
            finding.help(format!("write `network: {word}` instead of a list"))
        }
        (None, NameErrorKind::WildcardBelowSuffix, _) => {
            finding.help("name the hosts, or a domain: `\"*.pkg.example.com\"`")
        }
        (None, NameErrorKind::Address, _) => finding
            .help("use a name; who starts the run can send it to an address: `--connect-to HOST:PORT:ADDRESS:PORT`"),
        _ => finding.help(FORM),
    }))
}

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
    if declared.as_ref().is_some_and(|declared| declared.is_incomplete()) {
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
