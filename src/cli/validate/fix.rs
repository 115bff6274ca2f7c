//! `--fix` and `--diff`: what can be mended for certain, in every file that was checked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diff;
use super::input_files::{InputFile, is_yaml};
use super::load::{LoadedFile, LoadedKind, check, load};
use super::{CheckedFile, CliEnv, atomic_replace, read_files};
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::lints::autofix::{self, FixResult, PromptReaders};
use crate::lints::{JobTrust, UserConfig};
use crate::template::{FileId, JobDir, MAX_FILE_BYTES};
use crate::text::diff::for_terminal;

/// What to do with what can be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FixMode {
    /// Write it into the files.
    Write,
    /// Show it.
    Diff,
}

/// Mends one file after another, and at last the prompt files that they share.
pub(super) struct Fixer<'a> {
    env: &'a CliEnv,
    mode: FixMode,
    /// A file couldn't be written.
    pub(super) has_failed: bool,
    /// What would change, in the order of the files.
    pub(super) diff: String,
    /// The jobs that read prompt files, each with its number among the checked files.
    jobs: Vec<(usize, PromptReader)>,
    /// The names of prompt files with something to mend.
    prompts: BTreeSet<String>,
    diffed_files: HashSet<FileId>,
}

/// A job that reads prompt files.
struct PromptReader {
    /// Their names.
    prompts: Vec<String>,
    /// Where these are looked up.
    folder: PathBuf,
    /// Its text, where that isn't the file's.
    text: Option<Arc<Source>>,
}

impl<'a> Fixer<'a> {
    pub(super) fn new(around: &'a CliEnv, way: FixMode) -> Self {
        Self {
            env: around,
            mode: way,
            has_failed: false,
            diff: String::new(),
            jobs: Vec::new(),
            prompts: BTreeSet::new(),
            diffed_files: HashSet::new(),
        }
    }

    /// Mends the file with this number by itself. What is wrong with it as it is now is left in `checked`.
    pub(super) fn fix_file(&mut self, number: usize, mut loaded: LoadedFile, checked: &mut CheckedFile) {
        let source = loaded.source.clone();
        let mut text = loaded.path.is_none().then(|| source.clone());
        let mut wanted = prompts_to_fix(&checked.findings, &source.name);
        let mut prompts = std::mem::take(&mut checked.prompts);
        let is_own = |finding: &Diagnostic| source_of_fix(finding).is_some_and(|own| Arc::ptr_eq(own, &source));
        if source.is_quotable() && checked.findings.iter().any(is_own) && self.is_first_diff(loaded.path.as_deref()) {
            let mended = match &loaded.kind {
                LoadedKind::Job(folder) => autofix::fix_job(&source, folder.as_ref(), &loaded.user_config),
                LoadedKind::Script(job) => autofix::fix_script(&source, job.as_deref()),
            };
            if self.apply(&source.name, loaded.path.as_deref(), &source.text, &mended) {
                loaded.source = Source::new(source.name.as_str(), mended.text);
                let now = check(&loaded);
                wanted = prompts_to_fix(&now.findings, &source.name);
                prompts = now.prompts;
                match self.mode {
                    FixMode::Write => checked.findings = now.findings,
                    FixMode::Diff => text = Some(loaded.source),
                }
            }
        }
        if !prompts.is_empty() {
            self.jobs.push((number, PromptReader { prompts, folder: loaded.folder, text }));
            self.prompts.extend(wanted);
        }
    }

    /// Mends the prompt files of all jobs. What is wrong with the files then is left in `all`; `again` checks a job.
    pub(super) fn fix_prompts(
        &mut self,
        all: &mut [CheckedFile],
        again: &dyn Fn(usize) -> Option<(LoadedFile, CheckedFile)>,
    ) {
        let mut ids: HashMap<String, Option<FileId>> = HashMap::new();
        let mut id_of = |name: &str| {
            *ids.entry(name.to_owned()).or_insert_with(|| fs::metadata(name).ok().map(|data| FileId::of(&data)))
        };
        let mut files: BTreeMap<FileId, String> = BTreeMap::new();
        for name in std::mem::take(&mut self.prompts) {
            if let Some(id) = id_of(&name) {
                files.entry(id).or_insert(name);
            }
        }
        let jobs = std::mem::take(&mut self.jobs);
        let mut files: Vec<(String, FileId)> = files.into_iter().map(|(id, name)| (name, id)).collect();
        files.sort();
        let mut known = HashMap::new();
        for (name, id) in files {
            let reads = |job: &PromptReader, id_of: &mut dyn FnMut(&str) -> Option<FileId>| {
                job.prompts.iter().any(|prompt| id_of(prompt) == Some(id))
            };
            let of_it: Vec<&(usize, PromptReader)> = jobs.iter().filter(|(_, job)| reads(job, &mut id_of)).collect();
            let own = self.env.user_config_with_findings().0;
            let checked = of_it.iter().map(|(_, job)| job.folder.as_path());
            let Some(others) = jobs_sharing_prompt(Path::new(&name), id, checked, &own, &mut known) else {
                self.env
                    .console
                    .warning(&format!("{name} isn't fixed: too many files beside it may be jobs that read it"));
                continue;
            };
            let read = read_files::read_bounded(Path::new(&name), MAX_FILE_BYTES as usize);
            let Some(text) = read.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
            let mut readers = prompt_readers(&of_it, others, &own, again);
            let mended = autofix::fix_prompt(&text, id, &mut readers);
            if self.apply(&name, Some(Path::new(&name)), &text, &mended) && self.mode == FixMode::Write {
                for (number, _) in of_it {
                    if let (Some(checked), Some((_, now))) = (all.get_mut(*number), again(*number)) {
                        *checked = now;
                    }
                }
            }
        }
    }

    /// Whether a file isn't shown already under another name: a diff can change it only once.
    fn is_first_diff(&mut self, path: Option<&Path>) -> bool {
        let id = path.and_then(|path| path.metadata().ok()).map(|data| FileId::of(&data));
        self.mode == FixMode::Write || id.is_none_or(|id| self.diffed_files.insert(id))
    }

    /// Writes or shows a change; whether there is one.
    fn apply(&mut self, name: &str, path: Option<&Path>, before: &str, mended: &FixResult) -> bool {
        let out = self.env.console;
        if mended.applied > 0 && self.mode == FixMode::Diff {
            let real = diff::diff_path(path.unwrap_or(Path::new(name)), &self.env.current_folder);
            let patch = diff::patch(&real, before, &mended.text);
            self.diff += &match out.is_interactive() {
                true => for_terminal(&patch, out.stdout_display().colour),
                false => patch,
            };
        } else if let (Some(path), 1..) = (path, mended.applied)
            && let Err(source) = atomic_replace::replace_file(path, before, &mended.text)
        {
            self.has_failed = true;
            out.error(&Error::Environment { message: format!("{name} can't be mended"), source });
            return false;
        }
        let mut said = Vec::new();
        if mended.applied > 0 && self.mode == FixMode::Write {
            said.push(format!("{} mended", mended.applied));
        }
        match mended.skipped {
            0 => {}
            1 => said.push("1 fix left out, for it would bring other errors".to_owned()),
            more => said.push(format!("{more} fixes left out, for they would bring other errors")),
        }
        if !said.is_empty() {
            out.eprint(&super::printable(&format!("{name}: {}", said.join(", "))));
        }
        mended.applied > 0
    }
}

/// The jobs as they are read, by their folders; `others` weren't asked for, and a fix must not break them either.
fn prompt_readers(
    jobs: &[&(usize, PromptReader)],
    others: Vec<(PathBuf, Arc<Source>)>,
    own: &UserConfig,
    again: &dyn Fn(usize) -> Option<(LoadedFile, CheckedFile)>,
) -> Vec<PromptReaders> {
    let checked = jobs.iter().filter_map(|(number, job)| {
        let source = job.text.clone().or_else(|| again(*number).map(|(loaded, _)| loaded.source));
        Some((job.folder.clone(), source?))
    });
    let mut all: Vec<(PathBuf, Arc<Source>)> = checked.collect();
    let names: HashSet<PathBuf> =
        all.iter().filter_map(|(_, source)| Path::new(&source.name).canonicalize().ok()).collect();
    let is_new = |source: &Source| Path::new(&source.name).canonicalize().is_ok_and(|path| !names.contains(&path));
    all.extend(others.into_iter().filter(|(_, source)| is_new(source)));
    let mut found: Vec<(PathBuf, PromptReaders)> = Vec::new();
    for (path, source) in all {
        if let Some((_, readers)) = found.iter_mut().find(|(folder, _)| *folder == path) {
            readers.jobs.push(source);
        } else if let Ok(folder) = JobDir::open(&path) {
            found.push((path, PromptReaders { folder, jobs: vec![source], user_config: own.clone() }));
        }
    }
    found.into_iter().map(|(_, readers)| readers).collect()
}

/// How many files are read to find the jobs that share a prompt file.
const MAX_NEIGHBOUR_FILES: usize = 500;

/// A job that stands where one that reads a prompt file could.
struct NeighbourJob {
    source: Arc<Source>,
    folder: PathBuf,
    prompts: Vec<String>,
}

impl NeighbourJob {
    /// Reads a file; `None` where it isn't a job that reads prompt files.
    fn read(path: &Path, own: &UserConfig) -> Option<Self> {
        let file = InputFile::Path(path.to_owned());
        let loaded = load(&file, Path::new("-"), JobTrust::Trusted, own).ok()?;
        let prompts = if matches!(loaded.kind, LoadedKind::Job(_)) { check(&loaded).prompts } else { Vec::new() };
        (!prompts.is_empty()).then_some(Self { source: loaded.source, folder: loaded.folder, prompts })
    }
}

/// All jobs that read a prompt file, asked for or not. A prompt stands below the folder of its job, so they are in the
/// folders above it: up to the repository's, or without one, up to the highest of those that were asked for. `None`
/// where there are too many files to look at.
fn jobs_sharing_prompt<'a>(
    prompt: &Path,
    id: FileId,
    checked: impl Iterator<Item = &'a Path>,
    own: &UserConfig,
    known: &mut HashMap<PathBuf, Option<NeighbourJob>>,
) -> Option<Vec<(PathBuf, Arc<Source>)>> {
    let Ok(prompt) = prompt.canonicalize() else { return Some(Vec::new()) };
    let folders: Vec<&Path> = prompt.ancestors().skip(1).collect();
    let repository = folders.iter().position(|folder| folder.join(".git").exists());
    let highest = checked
        .filter_map(|folder| folder.canonicalize().ok())
        .filter_map(|folder| folders.iter().position(|above| *above == folder))
        .max();
    let count = repository.or(highest).map_or(0, |last| last + 1);
    let mut found = Vec::new();
    let mut looked_at = 0;
    for folder in &folders[..count] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = entries.filter(|path| is_yaml(path.file_name()) && path.is_file()).collect();
        paths.sort();
        for path in paths {
            looked_at += 1;
            if looked_at > MAX_NEIGHBOUR_FILES {
                return None;
            }
            let neighbour = known.entry(path).or_insert_with_key(|path| NeighbourJob::read(path, own));
            let is_it = |name: &String| fs::metadata(name).is_ok_and(|data| FileId::of(&data) == id);
            if let Some(job) = neighbour.as_ref().filter(|job| job.prompts.iter().any(is_it)) {
                found.push((job.folder.clone(), job.source.clone()));
            }
        }
    }
    Some(found)
}

/// What a finding's fix changes.
fn source_of_fix(finding: &Diagnostic) -> Option<&Arc<Source>> {
    finding.fix.as_ref().map(|fix| &fix.span.source)
}

/// The names of the files beside the job with something to mend.
fn prompts_to_fix(findings: &[Diagnostic], job: &str) -> Vec<String> {
    let names = findings.iter().filter_map(source_of_fix).map(|source| &source.name);
    names.filter(|name| *name != job).cloned().collect()
}
