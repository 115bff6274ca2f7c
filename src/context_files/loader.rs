//! Loads the context files and skills of a job, and reports everything that is wrong with them.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::file_reader::{self, FileError, FileReader, ReadFile};
use super::skill_file;
use super::texts::{AgentFiles, ContextFile, WorkspaceFiles, digest};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::job::{self, CONTEXT_BYTES, ContextEntry, Job, MAX_AGENT_FILES, MAX_CONTEXT_BYTES, SkillEntry};
use crate::text::pluralize;
use crate::yaml::Spanned;

/// The most different entries of a job, in all its lists together, that are read.
const MAX_ENTRIES: usize = 500;

/// The most bytes that are read for a job, all its agents together.
const MAX_TOTAL_BYTES: usize = 16 << 20;

/// Reads all context files and skills of a job, or without a workspace, only checks how they are written. What is wrong with
/// them is added to the findings; `job` may be partial.
pub(crate) fn load(job: &Job, files: Option<&WorkspaceFiles>, findings: &mut Vec<Diagnostic>) -> AgentFiles {
    let reader = files.map(FileReader::new);
    let mut loader = FileLoader { reader, remaining: MAX_ENTRIES, total: 0, files: AgentFiles::default(), findings };
    for entries in std::iter::once(&job.context[..]).chain(job.agents().map(|agent| agent.own_context)) {
        loader.context(entries);
    }
    for entries in std::iter::once(&job.skills[..]).chain(job.agents().map(|agent| agent.own_skills)) {
        loader.skills(entries);
    }
    loader.check_sizes(job);
    loader.check_names(job);
    loader.files
}

/// Loads entry by entry.
struct FileLoader<'a> {
    /// None if there is no workspace.
    reader: Option<FileReader<'a>>,
    /// How many more entries are read.
    remaining: usize,
    /// How many bytes were read.
    total: usize,
    files: AgentFiles,
    findings: &'a mut Vec<Diagnostic>,
}

impl FileLoader<'_> {
    fn context(&mut self, entries: &[Spanned<ContextEntry>]) {
        if let Some(entry) = entries.get(MAX_AGENT_FILES) {
            let message = format!("more than {MAX_AGENT_FILES} entries are listed");
            self.findings.push(Diagnostic::error("unreadable-context", entry.place(), message).help("use a glob"));
        }
        for entry in entries.iter().take(MAX_AGENT_FILES) {
            let label = entry.value.label();
            if entry.node.is_placeholder() || entry.node.is_incomplete() || self.files.context.contains_key(&label) {
                continue;
            }
            if !self.admit(entry.place(), "unreadable-context") {
                return;
            }
            let reference = entry.value.reference().map(|reference| reference.value.as_str());
            let checked = file_reader::check_entry(entry.value.path(), reference);
            let read = checked.and_then(|()| match &mut self.reader {
                None => Ok(None),
                Some(reader) => match reader.recorded().context.get(&label) {
                    Some(files) => Ok(Some(files.clone())),
                    None => read_context(reader, &entry.value).map(Some),
                },
            });
            match read {
                Ok(files) => {
                    self.total += files.iter().flatten().map(|file| file.text.len()).sum::<usize>();
                    self.files.context.extend(files.map(|files| (label, files)));
                }
                Err(error) => self.findings.push(error.finding("unreadable-context", place_of_path(entry))),
            }
        }
    }

    /// Counts an entry. False if there are too many, which is reported once.
    fn admit(&mut self, place: SourceSpan, code: &'static str) -> bool {
        if self.remaining == 1 {
            let message = format!("the agents have more than {} different entries together", MAX_ENTRIES - 1);
            self.findings.push(Diagnostic::error(code, place.clone(), message).help("list fewer"));
        }
        if self.total > MAX_TOTAL_BYTES && self.remaining > 0 {
            let message = format!("the files of all agents have more than {} MiB together", MAX_TOTAL_BYTES >> 20);
            self.findings.push(Diagnostic::error(code, place, message).help("list fewer or shorter files"));
            self.remaining = 0;
        }
        self.remaining = self.remaining.saturating_sub(1);
        self.remaining > 0
    }

    fn skills(&mut self, entries: &[Spanned<SkillEntry>]) {
        if let Some(entry) = entries.get(MAX_AGENT_FILES) {
            let message = format!("more than {MAX_AGENT_FILES} skills are listed");
            self.findings.push(Diagnostic::error("bad-skill", entry.place(), message).help("list fewer"));
        }
        for entry in entries.iter().take(MAX_AGENT_FILES) {
            let label = entry.value.label();
            if entry.node.is_placeholder() || entry.node.is_incomplete() || self.files.skills.contains_key(&label) {
                continue;
            }
            if !self.admit(entry.place(), "bad-skill") {
                return;
            }
            let reference = entry.value.reference().map(|reference| reference.value.as_str());
            let read =
                skill_file::check_entry(entry.value.path(), reference).and_then(|folder| match &mut self.reader {
                    None => Ok(None),
                    Some(reader) => match reader.recorded().skills.get(&label) {
                        Some(skill) => Ok(Some(skill.clone())),
                        None => skill_file::read(reader, folder, reference).map(Some),
                    },
                });
            match read {
                Ok(skill) => {
                    self.total += skill.as_ref().map_or(0, |skill| skill.body.len());
                    self.files.skills.extend(skill.map(|skill| (label, skill)));
                }
                Err(error) => {
                    let place = match &entry.value {
                        SkillEntry::Path(_) => entry.place(),
                        SkillEntry::Committed(committed) => committed.folder.place(),
                    };
                    self.findings.push(error.finding("bad-skill", place));
                }
            }
        }
    }

    /// Reports the entries with which the context of an agent becomes too large, each once.
    fn check_sizes(&mut self, job: &Job) {
        let limit = u64::from(job::value_or(job.context_bytes.as_ref(), CONTEXT_BYTES));
        let mut reported = HashSet::new();
        for agent in job.agents() {
            let labels: Vec<String> = job.context_of(&agent).map(|entry| entry.value.label()).collect();
            let total: u64 = self.files.context_of(&labels).map(|file| file.text.len() as u64).sum();
            if total <= limit {
                continue;
            }
            let size =
                |count: usize| self.files.context_of(&labels[..count]).map(|file| file.text.len() as u64).sum::<u64>();
            let Some(last) = (1..=labels.len()).find(|count| size(*count) > limit) else { continue };
            let Some(entry) =
                job.context_of(&agent).nth(last - 1).filter(|_| reported.insert(labels[last - 1].clone()))
            else {
                continue;
            };
            let whose = agent.name.map_or_else(|| "the parent".to_owned(), |name| format!("`{}`", name.value));
            let message = format!(
                "the context files of {whose} have {} together, and the limit is {limit}",
                pluralize(total, "byte")
            );
            let enough = total.next_multiple_of(1024);
            let help = match enough <= u64::from(MAX_CONTEXT_BYTES) {
                true => format!("list fewer or shorter files, or raise the limit: `context_bytes: {enough}`"),
                false => "list fewer or shorter files".to_owned(),
            };
            self.findings.push(Diagnostic::error("context-too-large", place_of_path(entry), message).help(help));
        }
    }

    /// Reports skills of one agent with the same name.
    fn check_names(&mut self, job: &Job) {
        let mut reported = HashSet::new();
        for agent in job.agents() {
            let mut names: IndexMap<&str, String> = IndexMap::new();
            for entry in job.skills_of(&agent) {
                let label = entry.value.label();
                let Some(skill) = self.files.skills.get(&label) else { continue };
                match names.get(skill.name.as_str()) {
                    Some(first) if *first != label && reported.insert(label.clone()) => {
                        let message = format!("`{first}` and `{label}` are both called `{}`", skill.name);
                        let finding = Diagnostic::error("bad-skill", entry.place(), message);
                        self.findings.push(finding.help("an agent calls a skill by its name: remove one of the two"));
                    }
                    Some(_) => {}
                    None => drop(names.insert(&skill.name, label)),
                }
            }
        }
    }
}

/// Reads the files of an entry.
fn read_context(reader: &mut FileReader<'_>, entry: &ContextEntry) -> Result<Vec<ContextFile>, FileError> {
    let reference = entry.reference().map(|reference| reference.value.as_str());
    let paths = match reference {
        // A file whose name looks like a glob can be named, too.
        None if file_reader::is_glob(entry.path()) && !reader.exists(entry.path()) => reader.find(entry.path())?,
        _ => vec![entry.path().to_owned()],
    };
    let mut files = Vec::new();
    let mut total = 0;
    for path in &paths {
        let ReadFile { path, commit, text } = reader.read(path, reference)?;
        total += text.len();
        if total > MAX_CONTEXT_BYTES as usize {
            let message = format!("the files that match `{}` have more than 1 MiB together", entry.path());
            return Err(FileError::new(message, "use a narrower pattern"));
        }
        let sha256 = Some(digest(&text));
        files.push(ContextFile { path, reference: reference.map(str::to_owned), commit, sha256, text });
    }
    Ok(files)
}

fn place_of_path(entry: &Spanned<ContextEntry>) -> SourceSpan {
    match &entry.value {
        ContextEntry::Path(_) => entry.place(),
        ContextEntry::Committed(committed) => committed.file.place(),
    }
}
