//! `--fix` and `--diff`: applies or shows the safe fixes for all checked files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::load::{CheckedFile, Checker, LoadedFile, LoadedKind};
use super::{atomic_replace, read_files};
use crate::cli::env::CliEnv;
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::git::is_worktree_root;
use crate::lints::autofix::{self, FixResult, PromptReaders};
use crate::template::{FileId, JobDir, MAX_FILE_BYTES};
use crate::text::diff::{for_terminal, hunks, quote_header_path};

/// The most files to read in search of jobs that share a prompt file.
const MAX_NEIGHBOUR_FILES: usize = 500;

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
    checker: &'a Checker<'a>,
    mode: FixMode,
    /// Whether a file couldn't be written.
    pub(super) has_failed: bool,
    /// The changes in the order of the files.
    pub(super) diff: String,
    /// The jobs that read prompt files.
    jobs: Vec<PromptReader>,
    /// The names of prompt files with fixes.
    prompts: BTreeSet<String>,
    diffed_files: HashSet<FileId>,
}

/// A job that reads prompt files.
struct PromptReader {
    /// Its index among the checked files.
    number: usize,
    source: Arc<Source>,
    /// The folder for prompt files.
    folder: PathBuf,
    prompts: Vec<FileId>,
}

impl<'a> Fixer<'a> {
    pub(super) fn new(env: &'a CliEnv, checker: &'a Checker<'a>, mode: FixMode) -> Self {
        Self {
            env,
            checker,
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
        let source = Arc::clone(&loaded.source);
        let is_own = |finding: &Diagnostic| source_of_fix(finding).is_some_and(|own| Arc::ptr_eq(own, &source));
        let mut rechecked = None;
        if source.is_quotable() && checked.findings.iter().any(is_own) && self.is_first_diff(loaded.path.as_deref()) {
            let fixed = match &loaded.kind {
                LoadedKind::Job(folder) => autofix::fix_job(&source, folder.as_ref(), &self.checker.user_config),
                LoadedKind::Script(job) => autofix::fix_script(&source, job.as_deref()),
            };
            if self.apply(&source.name, loaded.path.as_deref(), &source.text, &fixed) {
                loaded.source = Source::new(source.name.as_str(), fixed.text);
                rechecked = Some(self.checker.check(&loaded));
            }
        }
        let now = rechecked.as_ref().unwrap_or(checked);
        if !now.prompts.is_empty() {
            let fixed = now.findings.iter().filter_map(source_of_fix).map(|source| &source.name);
            self.prompts.extend(fixed.filter(|name| **name != source.name).cloned());
            let prompts = now.prompts.iter().filter_map(|name| file_id(Path::new(name))).collect();
            self.jobs.push(PromptReader { number, source: loaded.source, folder: loaded.folder, prompts });
        }
        if let (Some(rechecked), FixMode::Write) = (rechecked, self.mode) {
            *checked = rechecked;
        }
    }

    /// Fixes the prompt files of all jobs. Updates `all` with the remaining findings.
    pub(super) fn fix_prompts(&mut self, all: &mut [CheckedFile]) {
        let jobs = std::mem::take(&mut self.jobs);
        let (mut seen, mut neighbours) = (HashSet::new(), HashMap::new());
        for name in std::mem::take(&mut self.prompts) {
            let path = Path::new(&name);
            let Some(id) = file_id(path).filter(|id| seen.insert(*id)) else { continue };
            let read = read_files::read_bounded(path, MAX_FILE_BYTES as usize);
            let Some(text) = read.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
            let readers = || jobs.iter().filter(|job| job.prompts.contains(&id));
            let Some(paths) = neighbour_files(path, readers().map(|job| job.folder.as_path())) else {
                self.env
                    .console
                    .warning(&format!("{name} isn't fixed: too many other files could be jobs that read it"));
                continue;
            };
            let checked: HashSet<Option<FileId>> =
                jobs.iter().map(|job| file_id(Path::new(&job.source.name))).collect();
            for path in paths.iter().filter(|path| !checked.contains(&file_id(path))) {
                neighbours.entry(path.clone()).or_insert_with(|| self.read_job(path));
            }
            let others = paths.iter().filter_map(|path| neighbours.get(path)?.as_ref());
            let mut by_folder: BTreeMap<&Path, Vec<Arc<Source>>> = BTreeMap::new();
            for job in readers().chain(others.filter(|job| job.prompts.contains(&id))) {
                by_folder.entry(&job.folder).or_default().push(Arc::clone(&job.source));
            }
            let opened = by_folder.into_iter().filter_map(|(folder, jobs)| {
                let user_config = self.checker.user_config.clone();
                Some(PromptReaders { folder: JobDir::open(folder).ok()?, jobs, user_config })
            });
            let fixed = autofix::fix_prompt(&text, id, &mut opened.collect::<Vec<_>>());
            if self.apply(&name, Some(path), &text, &fixed) && self.mode == FixMode::Write {
                for job in readers() {
                    all[job.number] = self.checker.check_job(&job.source, JobDir::open(&job.folder).ok().as_ref());
                }
            }
        }
    }

    /// Reads a file that isn't being checked; `None` if it isn't a job that reads prompt files.
    fn read_job(&self, path: &Path) -> Option<PromptReader> {
        let loaded = self.checker.load(path).ok()?;
        let checked = self.checker.check(&loaded);
        let prompts: Vec<FileId> = checked.prompts.iter().filter_map(|name| file_id(Path::new(name))).collect();
        let LoadedFile { source, folder, .. } = loaded;
        (!prompts.is_empty()).then_some(PromptReader { number: usize::MAX, source, folder, prompts })
    }

    /// Whether the file hasn't been diffed under another name: a diff can change a file only once.
    fn is_first_diff(&mut self, path: Option<&Path>) -> bool {
        self.mode == FixMode::Write || path.and_then(file_id).is_none_or(|id| self.diffed_files.insert(id))
    }

    /// Writes or shows a change. Returns whether there was one.
    fn apply(&mut self, name: &str, path: Option<&Path>, before: &str, fixed: &FixResult) -> bool {
        let out = &self.env.console;
        if fixed.applied > 0 && self.mode == FixMode::Diff {
            let real = diff_path(path.unwrap_or(Path::new(name)), &self.env.current_folder);
            let patch = patch(&real, before, &fixed.text);
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

/// The YAML files that could be jobs that read a prompt file: those in its parent folders up to the root of the repository, or
/// without one, up to the topmost folder of a job that is known to read it. `None` if there are too many.
fn neighbour_files<'a>(prompt: &Path, readers: impl Iterator<Item = &'a Path>) -> Option<Vec<PathBuf>> {
    let Ok(prompt) = prompt.canonicalize() else { return Some(Vec::new()) };
    let folders: Vec<&Path> = prompt.ancestors().skip(1).collect();
    let of_readers = readers.filter_map(|folder| folder.canonicalize().ok());
    let highest = of_readers.filter_map(|folder| folders.iter().position(|above| *above == folder)).max();
    let repository = folders.iter().position(|folder| is_worktree_root(folder));
    let searched = &folders[..repository.or(highest).map_or(0, |last| last + 1)];
    let entries = searched.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| read_files::is_yaml(path) && path.is_file());
    let paths: Vec<PathBuf> = paths.take(MAX_NEIGHBOUR_FILES + 1).collect();
    (paths.len() <= MAX_NEIGHBOUR_FILES).then_some(paths)
}

/// The source that a finding's fix changes.
fn source_of_fix(finding: &Diagnostic) -> Option<&Arc<Source>> {
    finding.fix.as_ref().map(|fix| &fix.span.source)
}

pub(super) fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|data| FileId::of(&data))
}

/// The whole diff of one file; empty if nothing differs. `name` is the file's, relative to the current folder.
fn patch(name: &str, before: &str, after: &str) -> String {
    let hunks: String = hunks(before, after).iter().map(ToString::to_string).collect();
    if hunks.is_empty() {
        return hunks;
    }
    let path = |side: &str| quote_header_path(format!("{side}/{name}").as_bytes());
    format!("--- {}\n+++ {}\n{hunks}", path("a"), path("b"))
}

/// A file's name relative to the current folder with all links resolved, as `git apply` requires. Outside of the
/// folder, it is the path without the parts that a diff can't have.
fn diff_path(path: &Path, current: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| current.join(path));
    let current = current.canonicalize().unwrap_or_else(|_| current.to_owned());
    let shown = real.strip_prefix(&current).unwrap_or(&real);
    let plain: PathBuf = shown.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    plain.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunk_has_three_lines_around() {
        let before: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let after = before.replace("\n10\n", "\nten\n");
        let diff = patch("jobs/a.yaml", &before, &after);
        let expected = "--- a/jobs/a.yaml\n+++ b/jobs/a.yaml\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n";
        assert_eq!(diff, expected);
        assert_eq!(patch("a", "same\n", "same\n"), "");
    }

    #[test]
    fn line_endings_are_kept() {
        let diff = patch("a", "\u{feff}x\r\ny\rz", "\u{feff}x\r\nY\rz");
        let hunk =
            "@@ -1,2 +1,2 @@\n \u{feff}x\r\n-y\rz\n\\ No newline at end of file\n+Y\rz\n\\ No newline at end of file\n";
        assert_eq!(diff, format!("--- a/a\n+++ b/a\n{hunk}"));
    }

    #[test]
    fn a_path_is_relative_to_the_current_folder() {
        assert_eq!(diff_path(Path::new("./jobs/./x.yaml"), Path::new("/none")), "jobs/x.yaml");
        assert_eq!(diff_path(Path::new("/elsewhere/x.yaml"), Path::new("/none")), "elsewhere/x.yaml");
    }
}
