//! `--fix` and `--diff`: applies or shows the safe fixes for all checked files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diff;
use super::input_files::{InputFile, is_yaml};
use super::load::{CheckedFile, LoadedFile, LoadedKind, check, load};
use super::{atomic_replace, read_files};
use crate::cli::env::CliEnv;
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::lints::autofix::{self, FixResult, PromptReaders};
use crate::lints::{JobTrust, UserConfig};
use crate::template::{FileId, JobDir, MAX_FILE_BYTES};
use crate::text::diff::for_terminal;

/// What to do with fixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FixMode {
    /// Write them to the files.
    Write,
    /// Print them as a diff.
    Diff,
}

/// Fixes one file after another, and finally the prompt files that they share.
pub(super) struct Fixer<'a> {
    env: &'a CliEnv,
    mode: FixMode,
    /// Whether a file couldn't be written.
    pub(super) has_failed: bool,
    /// The changes in the order of the files.
    pub(super) diff: String,
    /// The jobs that read prompt files, with their indices among the checked files.
    jobs: Vec<(usize, PromptReader)>,
    /// The names of prompt files with fixes.
    prompts: BTreeSet<String>,
    diffed_files: HashSet<FileId>,
}

/// A job that reads prompt files.
struct PromptReader {
    /// The names of the prompt files.
    prompts: Vec<String>,
    /// The folder for prompt files.
    folder: PathBuf,
    /// The text of the job, if it differs from the file.
    text: Option<Arc<Source>>,
}

impl<'a> Fixer<'a> {
    pub(super) fn new(env: &'a CliEnv, mode: FixMode) -> Self {
        Self {
            env,
            mode,
            has_failed: false,
            diff: String::new(),
            jobs: Vec::new(),
            prompts: BTreeSet::new(),
            diffed_files: HashSet::new(),
        }
    }

    /// Fixes the file with this index on its own. Updates `checked` with the remaining findings.
    pub(super) fn fix_file(&mut self, number: usize, mut loaded: LoadedFile, checked: &mut CheckedFile) {
        let source = loaded.source.clone();
        let mut text = loaded.path.is_none().then(|| source.clone());
        let mut wanted = prompts_to_fix(&checked.findings, &source.name);
        let mut prompts = std::mem::take(&mut checked.prompts);
        let is_own = |finding: &Diagnostic| source_of_fix(finding).is_some_and(|own| Arc::ptr_eq(own, &source));
        if source.is_quotable() && checked.findings.iter().any(is_own) && self.is_first_diff(loaded.path.as_deref()) {
            let fixed = match &loaded.kind {
                LoadedKind::Job(folder) => autofix::fix_job(&source, folder.as_ref(), &loaded.user_config),
                LoadedKind::Script(job) => autofix::fix_script(&source, job.as_deref()),
            };
            if self.apply(&source.name, loaded.path.as_deref(), &source.text, &fixed) {
                loaded.source = Source::new(source.name.as_str(), fixed.text);
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

    /// Fixes the prompt files of all jobs. Updates `all` with the remaining findings. `recheck` checks a job again.
    pub(super) fn fix_prompts(
        &mut self,
        all: &mut [CheckedFile],
        recheck: &dyn Fn(usize) -> Option<(LoadedFile, CheckedFile)>,
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
            let readers_of_file: Vec<&(usize, PromptReader)> =
                jobs.iter().filter(|(_, job)| reads(job, &mut id_of)).collect();
            let user_config = self.env.user_config_with_findings().0;
            let checked = readers_of_file.iter().map(|(_, job)| job.folder.as_path());
            let Some(others) = jobs_sharing_prompt(Path::new(&name), id, checked, &user_config, &mut known) else {
                self.env
                    .console
                    .warning(&format!("{name} isn't fixed: too many other files could be jobs that read it"));
                continue;
            };
            let read = read_files::read_bounded(Path::new(&name), MAX_FILE_BYTES as usize);
            let Some(text) = read.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
            let mut readers = prompt_readers(&readers_of_file, others, &user_config, recheck);
            let fixed = autofix::fix_prompt(&text, id, &mut readers);
            if self.apply(&name, Some(Path::new(&name)), &text, &fixed) && self.mode == FixMode::Write {
                for (number, _) in readers_of_file {
                    if let (Some(checked), Some((_, now))) = (all.get_mut(*number), recheck(*number)) {
                        *checked = now;
                    }
                }
            }
        }
    }

    /// Whether the file hasn't been diffed under another name: a diff can change a file only once.
    fn is_first_diff(&mut self, path: Option<&Path>) -> bool {
        let id = path.and_then(|path| path.metadata().ok()).map(|data| FileId::of(&data));
        self.mode == FixMode::Write || id.is_none_or(|id| self.diffed_files.insert(id))
    }

    /// Writes or shows a change. Returns whether there was one.
    fn apply(&mut self, name: &str, path: Option<&Path>, before: &str, fixed: &FixResult) -> bool {
        let out = self.env.console;
        if fixed.applied > 0 && self.mode == FixMode::Diff {
            let real = diff::diff_path(path.unwrap_or(Path::new(name)), &self.env.current_folder);
            let patch = diff::patch(&real, before, &fixed.text);
            self.diff += &match out.is_interactive() {
                true => for_terminal(&patch, out.stdout_display().colour),
                false => patch,
            };
        } else if let (Some(path), 1..) = (path, fixed.applied)
            && let Err(source) = atomic_replace::replace_file(path, before, &fixed.text)
        {
            self.has_failed = true;
            out.error(&Error::Environment { message: format!("can't fix {name}"), source });
            return false;
        }
        let mut parts = Vec::new();
        if fixed.applied > 0 && self.mode == FixMode::Write {
            parts.push(format!("{} fixed", fixed.applied));
        }
        match fixed.skipped {
            0 => {}
            1 => parts.push("1 fix skipped, as it would cause other errors".to_owned()),
            more => parts.push(format!("{more} fixes skipped, as they would cause other errors")),
        }
        if !parts.is_empty() {
            out.eprint(&super::printable(&format!("{name}: {}", parts.join(", "))));
        }
        fixed.applied > 0
    }
}

/// The jobs that read a prompt file, grouped by folder. `others` aren't being checked, but fixes must not break them either.
fn prompt_readers(
    jobs: &[&(usize, PromptReader)],
    others: Vec<(PathBuf, Arc<Source>)>,
    user_config: &UserConfig,
    recheck: &dyn Fn(usize) -> Option<(LoadedFile, CheckedFile)>,
) -> Vec<PromptReaders> {
    let checked = jobs.iter().filter_map(|(number, job)| {
        let source = job.text.clone().or_else(|| recheck(*number).map(|(loaded, _)| loaded.source));
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
            found.push((path, PromptReaders { folder, jobs: vec![source], user_config: user_config.clone() }));
        }
    }
    found.into_iter().map(|(_, readers)| readers).collect()
}

/// The most files to read in search of jobs that share a prompt file.
const MAX_NEIGHBOUR_FILES: usize = 500;

/// A job in a folder where jobs could share a prompt file.
struct NeighbourJob {
    source: Arc<Source>,
    folder: PathBuf,
    prompts: Vec<String>,
}

impl NeighbourJob {
    /// Reads a file. `None` if it isn't a job that reads prompt files.
    fn read(path: &Path, user_config: &UserConfig) -> Option<Self> {
        let file = InputFile::Path(path.to_owned());
        let loaded = load(&file, Path::new("-"), JobTrust::Trusted, user_config).ok()?;
        let prompts = if matches!(loaded.kind, LoadedKind::Job(_)) { check(&loaded).prompts } else { Vec::new() };
        (!prompts.is_empty()).then_some(Self { source: loaded.source, folder: loaded.folder, prompts })
    }
}

/// All jobs that read a prompt file, whether or not they are being checked. They can only be in its parent folders: this
/// searches those up to the repository root, or without one, up to the topmost folder of a checked job. `None` if there are
/// too many files.
fn jobs_sharing_prompt<'a>(
    prompt: &Path,
    id: FileId,
    checked: impl Iterator<Item = &'a Path>,
    user_config: &UserConfig,
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
    let mut visited = 0;
    for folder in &folders[..count] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = entries.filter(|path| is_yaml(path.file_name()) && path.is_file()).collect();
        paths.sort();
        for path in paths {
            visited += 1;
            if visited > MAX_NEIGHBOUR_FILES {
                return None;
            }
            let neighbour = known.entry(path).or_insert_with_key(|path| NeighbourJob::read(path, user_config));
            let is_prompt = |name: &String| fs::metadata(name).is_ok_and(|data| FileId::of(&data) == id);
            if let Some(job) = neighbour.as_ref().filter(|job| job.prompts.iter().any(is_prompt)) {
                found.push((job.folder.clone(), job.source.clone()));
            }
        }
    }
    Some(found)
}

/// The source that a finding's fix changes.
fn source_of_fix(finding: &Diagnostic) -> Option<&Arc<Source>> {
    finding.fix.as_ref().map(|fix| &fix.span.source)
}

/// The names of the files with fixes, except for the job itself.
fn prompts_to_fix(findings: &[Diagnostic], job: &str) -> Vec<String> {
    let names = findings.iter().filter_map(source_of_fix).map(|source| &source.name);
    names.filter(|name| *name != job).cloned().collect()
}
