//! Finds the files to check.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ignore::WalkState;

use super::load::STDIN;
use super::read_files::{self, is_yaml};
use crate::diagnostic::Diagnostic;
use crate::sync::IgnorePoison;
use crate::workspace::ignore_filter::IgnoreFilter;

/// Where jobs are if no path is given.
pub(super) const DEFAULT_FOLDER: &str = "jobs";

/// Expands paths to files, each file once. A folder stands for all YAML files in it, sorted by name, except for hidden and
/// ignored files and folders called `tests`. Symbolic links to folders aren't followed.
pub(super) fn expand_paths(paths: &[PathBuf]) -> Vec<Result<PathBuf, Diagnostic>> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for path in paths {
        if path == Path::new(STDIN) {
            all.extend(seen.insert(path.clone()).then(|| Ok(path.clone())));
            continue;
        }
        for found in walk_folder(path) {
            let is_new = match &found {
                Ok(path) if paths.len() > 1 => seen.insert(canonical_folder(path)),
                _ => true,
            };
            all.extend(is_new.then_some(found));
        }
    }
    all
}

/// A path whose folder is canonical. The file name stays, even if it is a link, as it determines the kind of the file.
fn canonical_folder(path: &Path) -> PathBuf {
    match (read_files::parent_folder(path).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

fn walk_folder(path: &Path) -> Vec<Result<PathBuf, Diagnostic>> {
    // The name decides: a folder called like a job file is reported as unreadable.
    if path == Path::new(DEFAULT_FOLDER) && std::fs::symlink_metadata(path).is_err() {
        let finding = read_files::unreadable_file(path, "no such file or folder");
        let help = "name the files with your jobs, or write a first job with `legwork init`";
        return vec![Err(finding.help(help))];
    }
    if is_yaml(path) || !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }
    // The rules of this machine or this clone must not change which jobs are checked.
    let filter = IgnoreFilter::shared(path);
    let walk = filter
        .walk()
        .filter_entry(move |entry| {
            let is_tests = entry.file_name() == "tests" && entry.path().is_dir();
            let is_in_file = entry.depth() > 1 && entry.path().parent().is_some_and(is_yaml);
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0 || !(is_tests || is_in_file || filter.is_ignored(entry.path(), is_folder))
        })
        .build_parallel();
    let found = Mutex::new(Vec::new());
    walk.run(|| {
        Box::new(|entry| {
            let entry = match entry {
                Ok(entry) if entry.depth() > 0 && is_yaml(entry.path()) => Ok(entry.into_path()),
                Ok(_) => return WalkState::Continue,
                Err(error) => Err(error),
            };
            found.lock().ignore_poison().push(entry);
            WalkState::Continue
        })
    });
    let mut found = found.into_inner().ignore_poison();
    let path_of = |entry: &Result<PathBuf, ignore::Error>| match entry {
        Ok(path) => path.clone(),
        Err(error) => error_path(error).unwrap_or(path).to_owned(),
    };
    found.sort_by_cached_key(path_of);
    let mut files: Vec<_> = found.into_iter().map(|entry| entry.map_err(|error| walk_error(path, &error))).collect();
    if files.is_empty() {
        let finding = read_files::unreadable_file(path, "no job files in this folder");
        files.push(Err(finding.help("name a job file, or a folder with job files that aren't hidden or ignored; `legwork init` writes a first one")));
    }
    files
}

fn error_path(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } => error_path(err),
        _ => None,
    }
}

fn walk_error(root: &Path, error: &ignore::Error) -> Diagnostic {
    match error {
        ignore::Error::WithPath { path, err } => walk_error(path, err),
        ignore::Error::WithDepth { err, .. } => walk_error(root, err),
        ignore::Error::Io(error) => read_files::unreadable_file(root, &read_files::io_error_text(error)),
        other => read_files::unreadable_file(root, &other.to_string()),
    }
}
