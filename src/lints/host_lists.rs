//! The lists of hosts that a job allows, with the files that they name.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_name};
use crate::egress::{HostRule, NameErrorKind};
use crate::job::{HostEntry, Job, JobNetwork, MAX_HOSTS, Network, NetworkWord};
use crate::template::{JobDir, PromptFileError, stray_tags};
use crate::text::sanitize;
use crate::yaml::Spanned;

/// How many files of hosts a job can name.
const MAX_FILES: usize = 20;
/// The form of an entry, in words.
const FORM: &str = "write a name such as `api.example.com`, with a port if it isn't 443: `db.example.com:5432`";

/// A rule and the place where it is written.
pub(super) type PlacedRule = (HostRule, SourceSpan);

/// The lists of a job, files and sets expanded.
#[derive(Debug, Default)]
pub struct HostLists {
    pub(super) run: Vec<PlacedRule>,
    pub(super) subagents: IndexMap<String, Vec<PlacedRule>>,
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

    /// All rules with their places.
    pub(super) fn all(&self) -> impl Iterator<Item = &PlacedRule> {
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
