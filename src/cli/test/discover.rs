//! Finds the test cases that paths on the command line name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cases::{EXPECT_FILE, RECORD_FOLDER, SCRIPT_FILE, TESTS_FOLDER};
use crate::cli::read_files;
use crate::diagnostic::Diagnostic;
use crate::job::Job;
use crate::workspace::ignore_filter::IgnoreFilter;
use crate::yaml;

/// The absolute path of a case's folder, and its job file if that exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DiscoveredCase {
    pub(super) folder: PathBuf,
    pub(super) job: Option<PathBuf>,
}

impl DiscoveredCase {
    /// `JOB/CASE`.
    pub(super) fn name(&self) -> String {
        let names = self.folder.iter().rev().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>();
        names.into_iter().rev().collect::<Vec<_>>().join("/")
    }
}

/// Finds all cases for paths of job files, folders, folders of cases and cases: each case once, sorted by name. The findings
/// are about paths that don't exist.
pub(super) fn discover(paths: &[PathBuf]) -> (Vec<DiscoveredCase>, Vec<Diagnostic>) {
    let (mut found, mut findings) = (BTreeSet::new(), Vec::new());
    for path in paths {
        match path.canonicalize() {
            Ok(real) => found.extend(cases_at(&real)),
            Err(error) => findings.push(read_files::suggest_job(
                path,
                read_files::unreadable_file(path, &read_files::io_error_text(&error)),
            )),
        }
    }
    (found.into_iter().collect(), findings)
}

fn cases_at(path: &Path) -> Vec<DiscoveredCase> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    if !path.is_dir() {
        // A file of a case names the case.
        if parent.join(EXPECT_FILE).exists() && is_below_tests_of_job(parent) {
            return single_case(parent);
        }
        let jobs = subfolders(&parent.join(TESTS_FOLDER)).into_iter();
        return jobs
            .flat_map(|folder| cases_of_job(&folder))
            .filter(|found| found.job.as_deref() == Some(path))
            .collect();
    }
    if is_tests_folder(parent) && !path.join(EXPECT_FILE).exists() && !is_tests_folder(path) {
        return cases_of_job(path);
    }
    if is_below_tests_of_job(path) && is_case_folder(path) {
        return single_case(path);
    }
    let filter = IgnoreFilter::shared(path);
    let walk = filter
        .walk()
        .filter_entry(move |entry| {
            // Don't descend into folders of cases.
            let is_case = entry.path().parent().is_some_and(is_tests_folder);
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0 || !(is_case || filter.is_ignored(entry.path(), is_folder))
        })
        .build();
    let tests = walk
        .filter_map(Result::ok)
        .map(ignore::DirEntry::into_path)
        .filter(|path| is_tests_folder(path) && path.is_dir());
    tests.flat_map(|tests| subfolders(&tests)).flat_map(|folder| cases_of_job(&folder)).collect()
}

fn is_tests_folder(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == TESTS_FOLDER)
}

/// Whether a folder is in `tests/JOB`.
fn is_below_tests_of_job(folder: &Path) -> bool {
    folder.ancestors().nth(2).is_some_and(is_tests_folder)
}

/// Whether a folder is a case, whether or not its job exists.
fn is_case_folder(folder: &Path) -> bool {
    [EXPECT_FILE, SCRIPT_FILE, RECORD_FOLDER].iter().any(|name| folder.join(name).exists())
}

fn single_case(folder: &Path) -> Vec<DiscoveredCase> {
    vec![DiscoveredCase { folder: folder.to_owned(), job: folder.parent().and_then(job_file_of) }]
}

/// The cases in `tests/<job>`. If that job exists, every folder is a case. Otherwise only folders with an expect.yaml are,
/// since many projects have a folder called `tests`.
fn cases_of_job(folder: &Path) -> Vec<DiscoveredCase> {
    let job = job_file_of(folder);
    let cases = subfolders(folder).into_iter().filter(|case| job.is_some() || case.join(EXPECT_FILE).exists());
    cases.map(|folder| DiscoveredCase { folder, job: job.clone() }).collect()
}

/// The job file of `tests/<job>`: the file of that name next to `tests`, or else the file whose `name` it is.
fn job_file_of(folder: &Path) -> Option<PathBuf> {
    let name = folder.file_name()?.to_str()?;
    let jobs_folder = folder.parent()?.parent()?;
    let by_file = ["yaml", "yml"].map(|ending| jobs_folder.join(format!("{name}.{ending}")));
    if let Some(job) = by_file.into_iter().find(|path| path.is_file()) {
        return Some(job);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(jobs_folder).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let is_job = |path: &PathBuf| read_files::is_yaml(path) && !read_files::is_script(path);
    files.into_iter().filter(is_job).find(|path| {
        let source = read_files::read_source(path).ok();
        let job = source.and_then(|source| yaml::read::<Job>(&source).value);
        job.and_then(|job| job.name).is_some_and(|job_name| job_name.value == name)
    })
}

/// The folders in a folder, except for hidden ones, sorted by name.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_shown = |path: &PathBuf| {
        path.is_dir() && path.file_name().and_then(|name| name.to_str()).is_some_and(|name| !name.starts_with('.'))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_shown).collect();
    found.sort();
    found
}
