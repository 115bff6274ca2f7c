//! Which cases there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cases::{EXPECT_FILE, RECORD_FOLDER, SCRIPT_FILE, TESTS};
use crate::cli::input;
use crate::diagnostic::Diagnostic;
use crate::job::Job;
use crate::yaml;

/// A case's folder, absolute, and the job file that it is about, where there is one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) folder: PathBuf,
    pub(super) job: Option<PathBuf>,
}

/// What paths name: job files, folders, folders of cases, cases. Each case once, in the order of the names.
///
/// # Errors
/// Paths that aren't there.
pub(super) fn named(paths: &[PathBuf]) -> (Vec<Found>, Vec<Diagnostic>) {
    let (mut found, mut findings) = (BTreeSet::new(), Vec::new());
    for path in paths {
        match path.canonicalize() {
            Ok(real) => found.extend(at(&real)),
            Err(error) => findings.push(input::suggest_job(path, input::unreadable(path, &input::words(&error)))),
        }
    }
    (found.into_iter().collect(), findings)
}

fn at(path: &Path) -> Vec<Found> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let above = path.parent().unwrap_or(Path::new("/"));
    if !path.is_dir() {
        // A file of a case stands for the case.
        if above.join(EXPECT_FILE).exists() && name(above.parent().and_then(Path::parent).unwrap_or(above)) == TESTS {
            return of_case(above);
        }
        let jobs = folders(&above.join(TESTS)).into_iter();
        return jobs.flat_map(|folder| of_job(&folder)).filter(|found| found.job.as_deref() == Some(path)).collect();
    }
    if name(above) == TESTS && !path.join(EXPECT_FILE).exists() && !is_tests(path) {
        return of_job(path);
    }
    if above.parent().is_some_and(|tests| name(tests) == TESTS) && is_case(path) {
        return of_case(path);
    }
    let walk = ignore::WalkBuilder::new(path)
        .require_git(false)
        .git_global(false)
        .git_exclude(false)
        // What lies below a folder of cases is theirs.
        .filter_entry(|entry| entry.depth() == 0 || !entry.path().parent().is_some_and(is_tests))
        .build();
    let tests =
        walk.filter_map(Result::ok).map(ignore::DirEntry::into_path).filter(|path| is_tests(path) && path.is_dir());
    tests.flat_map(|tests| folders(&tests)).flat_map(|folder| of_job(&folder)).collect()
}

fn is_tests(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == TESTS)
}

/// Whether a folder is a case, whatever it is a case of.
fn is_case(folder: &Path) -> bool {
    [EXPECT_FILE, SCRIPT_FILE, RECORD_FOLDER].iter().any(|name| folder.join(name).exists())
}

fn of_case(folder: &Path) -> Vec<Found> {
    vec![Found { folder: folder.to_owned(), job: folder.parent().and_then(job_of) }]
}

/// The cases in `tests/<job>`. Where there is such a job, every folder is one; elsewhere only what says so, for many
/// projects have a folder called `tests`.
fn of_job(folder: &Path) -> Vec<Found> {
    let job = job_of(folder);
    let cases = folders(folder).into_iter().filter(|case| job.is_some() || case.join(EXPECT_FILE).exists());
    cases.map(|folder| Found { folder, job: job.clone() }).collect()
}

/// The job file that `tests/<job>` is about: the one of that name beside `tests`, or else the one that gives itself that
/// name.
fn job_of(folder: &Path) -> Option<PathBuf> {
    let name = folder.file_name()?.to_str()?;
    let beside = folder.parent()?.parent()?;
    let by_file = ["yaml", "yml"].map(|ending| beside.join(format!("{name}.{ending}")));
    if let Some(job) = by_file.into_iter().find(|path| path.is_file()) {
        return Some(job);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(beside).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let is_job = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml") && !input::is_script(path)
    };
    files.into_iter().filter(is_job).find(|path| {
        let source = input::read_source(path).ok();
        let job = source.and_then(|source| yaml::read::<Job>(&source).value);
        job.and_then(|job| job.name).is_some_and(|own| own.value == name)
    })
}

/// The folders in a folder, hidden ones left out, in the order of their names.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_shown = |path: &PathBuf| {
        path.is_dir() && path.file_name().and_then(|name| name.to_str()).is_some_and(|name| !name.starts_with('.'))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_shown).collect();
    found.sort();
    found
}
