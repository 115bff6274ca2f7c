//! `--fix` and `--diff`: what can be mended for certain, in every file that was checked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diff::{self, For};
use super::files::{File, is_yaml};
use super::load::{Kind, Loaded, check, load};
use super::{Checked, Surroundings, input, replace};
use crate::diagnostic::{Diagnostic, Source};
use crate::error::Error;
use crate::lints::mend::{self, Mended, Readers};
use crate::lints::{Origin, Own};
use crate::template::{FileId, Folder, MAX_FILE_BYTES};

/// What to do with what can be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Write it into the files.
    Write,
    /// Show it.
    Show,
}

/// Mends one file after another, and at last the prompt files that they share.
pub(super) struct Mending<'a> {
    around: &'a Surroundings,
    way: Way,
    /// A file couldn't be written.
    pub(super) has_failed: bool,
    /// What would change, in the order of the files.
    pub(super) diff: String,
    /// The jobs that read prompt files, each with its number among the checked files.
    jobs: Vec<(usize, Job)>,
    /// The names of prompt files with something to mend.
    prompts: BTreeSet<String>,
    shown: HashSet<FileId>,
}

/// A job that reads prompt files.
struct Job {
    /// Their names.
    prompts: Vec<String>,
    /// Where these are looked up.
    folder: PathBuf,
    /// Its text, where that isn't the file's.
    text: Option<Arc<Source>>,
}

impl<'a> Mending<'a> {
    pub(super) fn new(around: &'a Surroundings, way: Way) -> Self {
        Self {
            around,
            way,
            has_failed: false,
            diff: String::new(),
            jobs: Vec::new(),
            prompts: BTreeSet::new(),
            shown: HashSet::new(),
        }
    }

    /// Mends the file with this number by itself. What is wrong with it as it is now is left in `checked`.
    pub(super) fn file(&mut self, number: usize, mut loaded: Loaded, checked: &mut Checked) {
        let source = loaded.source.clone();
        let mut text = loaded.path.is_none().then(|| source.clone());
        let mut wanted = prompts_to_mend(&checked.findings, &source.name);
        let mut prompts = std::mem::take(&mut checked.prompts);
        let is_own = |finding: &Diagnostic| fixed(finding).is_some_and(|own| Arc::ptr_eq(own, &source));
        if source.is_quotable() && checked.findings.iter().any(is_own) && self.is_first(loaded.path.as_deref()) {
            let mended = match &loaded.kind {
                Kind::Job(folder) => mend::job(&source, folder.as_ref(), &loaded.own),
                Kind::Script(job) => mend::script(&source, job.as_deref()),
            };
            if self.make(&source.name, loaded.path.as_deref(), &source.text, &mended) {
                loaded.source = Source::new(source.name.as_str(), mended.text);
                let now = check(&loaded);
                wanted = prompts_to_mend(&now.findings, &source.name);
                prompts = now.prompts;
                match self.way {
                    Way::Write => checked.findings = now.findings,
                    Way::Show => text = Some(loaded.source),
                }
            }
        }
        if !prompts.is_empty() {
            self.jobs.push((number, Job { prompts, folder: loaded.folder, text }));
            self.prompts.extend(wanted);
        }
    }

    /// Mends the prompt files of all jobs. What is wrong with the files then is left in `all`; `again` checks a job.
    pub(super) fn prompts(&mut self, all: &mut [Checked], again: &dyn Fn(usize) -> Option<(Loaded, Checked)>) {
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
            let reads = |job: &Job, id_of: &mut dyn FnMut(&str) -> Option<FileId>| {
                job.prompts.iter().any(|prompt| id_of(prompt) == Some(id))
            };
            let of_it: Vec<&(usize, Job)> = jobs.iter().filter(|(_, job)| reads(job, &mut id_of)).collect();
            let own = self.around.own_and_findings().0;
            let checked = of_it.iter().map(|(_, job)| job.folder.as_path());
            let Some(others) = neighbours(Path::new(&name), id, checked, &own, &mut known) else {
                self.around
                    .out
                    .warning(&format!("{name} isn't fixed: too many files beside it may be jobs that read it"));
                continue;
            };
            let read = input::read_bounded(Path::new(&name), MAX_FILE_BYTES as usize);
            let Some(text) = read.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
            let mut readers = readers(&of_it, others, &own, again);
            let mended = mend::prompt(&text, id, &mut readers);
            if self.make(&name, Some(Path::new(&name)), &text, &mended) && self.way == Way::Write {
                for (number, _) in of_it {
                    if let (Some(checked), Some((_, now))) = (all.get_mut(*number), again(*number)) {
                        *checked = now;
                    }
                }
            }
        }
    }

    /// Whether a file isn't shown already under another name: a diff can change it only once.
    fn is_first(&mut self, path: Option<&Path>) -> bool {
        let id = path.and_then(|path| path.metadata().ok()).map(|data| FileId::of(&data));
        self.way == Way::Write || id.is_none_or(|id| self.shown.insert(id))
    }

    /// Writes or shows a change; whether there is one.
    fn make(&mut self, name: &str, path: Option<&Path>, before: &str, mended: &Mended) -> bool {
        let out = self.around.out;
        if mended.count > 0 && self.way == Way::Show {
            let real = diff::name(path.unwrap_or(Path::new(name)), &self.around.folder);
            let reader = if out.is_for_person() { For::Person(out.look()) } else { For::Program };
            self.diff += &diff::unified(&real, before, &mended.text, reader);
        } else if let (Some(path), 1..) = (path, mended.count)
            && let Err(source) = replace::replace(path, before, &mended.text)
        {
            self.has_failed = true;
            out.error(&Error::Environment { message: format!("{name} can't be mended"), source });
            return false;
        }
        let mut said = Vec::new();
        if mended.count > 0 && self.way == Way::Write {
            said.push(format!("{} mended", mended.count));
        }
        match mended.left {
            0 => {}
            1 => said.push("1 fix left out, for it would bring other errors".to_owned()),
            more => said.push(format!("{more} fixes left out, for they would bring other errors")),
        }
        if !said.is_empty() {
            out.beside(&super::printable(&format!("{name}: {}", said.join(", "))));
        }
        mended.count > 0
    }
}

/// The jobs as they are read, by their folders; `others` weren't asked for, and a fix must not break them either.
fn readers(
    jobs: &[&(usize, Job)],
    others: Vec<(PathBuf, Arc<Source>)>,
    own: &Own,
    again: &dyn Fn(usize) -> Option<(Loaded, Checked)>,
) -> Vec<Readers> {
    let checked = jobs.iter().filter_map(|(number, job)| {
        let source = job.text.clone().or_else(|| again(*number).map(|(loaded, _)| loaded.source));
        Some((job.folder.clone(), source?))
    });
    let mut all: Vec<(PathBuf, Arc<Source>)> = checked.collect();
    let names: HashSet<PathBuf> =
        all.iter().filter_map(|(_, source)| Path::new(&source.name).canonicalize().ok()).collect();
    let is_new = |source: &Source| Path::new(&source.name).canonicalize().is_ok_and(|path| !names.contains(&path));
    all.extend(others.into_iter().filter(|(_, source)| is_new(source)));
    let mut found: Vec<(PathBuf, Readers)> = Vec::new();
    for (path, source) in all {
        if let Some((_, readers)) = found.iter_mut().find(|(folder, _)| *folder == path) {
            readers.jobs.push(source);
        } else if let Ok(folder) = Folder::open(&path) {
            found.push((path, Readers { folder, jobs: vec![source], own: own.clone() }));
        }
    }
    found.into_iter().map(|(_, readers)| readers).collect()
}

/// How many files are read to find the jobs that share a prompt file.
const MAX_NEIGHBOURS: usize = 500;

/// A job that stands where one that reads a prompt file could.
struct Neighbour {
    source: Arc<Source>,
    folder: PathBuf,
    prompts: Vec<String>,
}

impl Neighbour {
    /// Reads a file; `None` where it isn't a job that reads prompt files.
    fn read(path: &Path, own: &Own) -> Option<Self> {
        let file = File::Path(path.to_owned());
        let loaded = load(&file, Path::new("-"), Origin::Trusted, own).ok()?;
        let prompts = if matches!(loaded.kind, Kind::Job(_)) { check(&loaded).prompts } else { Vec::new() };
        (!prompts.is_empty()).then_some(Self { source: loaded.source, folder: loaded.folder, prompts })
    }
}

/// All jobs that read a prompt file, asked for or not. A prompt stands below the folder of its job, so they are in the
/// folders above it: up to the repository's, or without one, up to the highest of those that were asked for. `None`
/// where there are too many files to look at.
fn neighbours<'a>(
    prompt: &Path,
    id: FileId,
    checked: impl Iterator<Item = &'a Path>,
    own: &Own,
    known: &mut HashMap<PathBuf, Option<Neighbour>>,
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
            if looked_at > MAX_NEIGHBOURS {
                return None;
            }
            let neighbour = known.entry(path).or_insert_with_key(|path| Neighbour::read(path, own));
            let is_it = |name: &String| fs::metadata(name).is_ok_and(|data| FileId::of(&data) == id);
            if let Some(job) = neighbour.as_ref().filter(|job| job.prompts.iter().any(is_it)) {
                found.push((job.folder.clone(), job.source.clone()));
            }
        }
    }
    Some(found)
}

/// What a finding's fix changes.
fn fixed(finding: &Diagnostic) -> Option<&Arc<Source>> {
    finding.fix.as_ref().map(|fix| &fix.place.source)
}

/// The names of the files beside the job with something to mend.
fn prompts_to_mend(findings: &[Diagnostic], job: &str) -> Vec<String> {
    let names = findings.iter().filter_map(fixed).map(|source| &source.name);
    names.filter(|name| *name != job).cloned().collect()
}
