//! Finds a run by its folder, its id or the beginning of its id, its key, `JOB/KEY`, the id of a row, `MAP/ROW`, `JOB/MAP/ROW`,
//! `JOB/latest`, or `latest`.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::files::{LATEST, ROWS, has_run_files};
use super::journal_files::{first_entry, journal_reader};
use super::keyed::MAP_FILE;
use crate::error::Error;
use crate::event::PARENT;

/// Finds a run's folder below `out`, or anywhere if `wanted` is a path.
///
/// A run for which `is_foreign` is true came with a checkout. It never counts as the latest.
///
/// # Errors
/// If there is no run yet, or not exactly one matches.
pub fn find_run(out: &Path, wanted: &str, is_foreign: &dyn Fn(&Path) -> bool) -> Result<PathBuf, Error> {
    let as_folder = Path::new(wanted);
    if has_run_files(as_folder) {
        return Ok(as_folder.to_owned());
    }
    let no_such_run = || {
        let (wanted, out) = (wanted.to_owned(), out.to_owned());
        let newest = || (wanted.rsplit('/').next() == Some(LATEST)).then(|| newest_map(&out, &wanted)).flatten();
        match map_named(&out, &wanted).or_else(newest) {
            Some(map) => Error::IsMap { wanted, map },
            None if has_runs_of(&out, &wanted) => Error::IsJob { job: wanted, out },
            None if !Path::new(&wanted).exists() && !has_runs(&out) => Error::NoRuns { out },
            None => Error::NoSuchRun { wanted, out },
        }
    };
    if wanted.contains('/') {
        let below = out.join(wanted);
        let is_latest = below.file_name() == Some(LATEST.as_ref());
        if has_run_files(&below) || has_run_name(&below) {
            return if is_latest && is_foreign(&below) { Err(no_such_run()) } else { Ok(below) };
        }
        return only(out, wanted, rows_named(out, as_folder))?.ok_or_else(no_such_run);
    }
    let runs = all_runs(out);
    if wanted == LATEST {
        let mut runs: Vec<PathBuf> = runs;
        runs.sort_by_cached_key(|run| start_order(run));
        return runs.into_iter().rev().find(|run| !is_foreign(run)).ok_or_else(no_such_run);
    }
    let name = |run: &PathBuf| run.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    // A key can be the beginning of another one.
    let (exact, others): (Vec<PathBuf>, Vec<PathBuf>) =
        runs.into_iter().partition(|run| name(run).is_some_and(|id| id == wanted));
    let starts = |run: &PathBuf| name(run).is_some_and(|id| id.starts_with(wanted));
    let mut matches = if exact.is_empty() { others.into_iter().filter(starts).collect() } else { exact };
    if matches.is_empty() {
        matches = rows_named(out, as_folder);
    }
    only(out, wanted, matches)?.ok_or_else(no_such_run)
}

/// The one run that matches a name, if any does.
fn only(out: &Path, wanted: &str, mut matches: Vec<PathBuf>) -> Result<Option<PathBuf>, Error> {
    matches.sort();
    if matches.len() > 1 { Err(ambiguous(out, wanted, &matches)) } else { Ok(matches.pop()) }
}

/// The map with a folder, a name, or `JOB/MAP`.
fn map_named(out: &Path, wanted: &str) -> Option<PathBuf> {
    let of_jobs = folders(out).map(|job| job.join(wanted));
    [PathBuf::from(wanted), out.join(wanted)].into_iter().chain(of_jobs).find(|folder| is_map(folder))
}

/// The map that was started last, of all jobs, or for `JOB/latest` of one.
fn newest_map(out: &Path, wanted: &str) -> Option<PathBuf> {
    let jobs: Vec<PathBuf> = match wanted.rsplit_once('/') {
        Some((job, _)) => vec![out.join(job)],
        None => folders(out).collect(),
    };
    let maps = jobs.iter().flat_map(|job| folders(job)).filter(|folder| is_map(folder));
    maps.max_by_key(|map| fs::metadata(map.join(MAP_FILE)).and_then(|data| data.modified()).ok())
}

/// Whether a name is that of a job that has runs or maps.
fn has_runs_of(out: &Path, name: &str) -> bool {
    let is_name = !name.contains('/') && !name.starts_with('.') && !name.is_empty();
    is_name && folders(&out.join(name)).any(|run| has_run_files(&run) || has_run_name(&run) || is_map(&run))
}

fn is_map(folder: &Path) -> bool {
    folder.join(MAP_FILE).is_file()
}

/// Whether there is any run or map.
fn has_runs(out: &Path) -> bool {
    folders(out).any(|job| folders(&job).any(|run| has_run_files(&run) || has_run_name(&run) || is_map(&run)))
}

/// The error for several runs that match a name. Runs with the same id are listed with their jobs.
fn ambiguous(out: &Path, wanted: &str, runs: &[PathBuf]) -> Error {
    let names: Vec<_> = runs.iter().filter_map(|run| run.file_name()).collect();
    let has_equal = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
    let id = |run: &PathBuf| {
        let path = if has_equal { run.strip_prefix(out).ok()? } else { Path::new(run.file_name()?) };
        let parts = path.components().map(|part| part.as_os_str().to_string_lossy());
        Some(parts.filter(|part| part != ROWS).collect::<Vec<_>>().join("/"))
    };
    Error::AmbiguousRun { wanted: wanted.to_owned(), ids: runs.iter().filter_map(id).collect() }
}

/// The records of the rows of maps that are named `ROW`, `MAP/ROW` or `JOB/MAP/ROW`.
fn rows_named(out: &Path, wanted: &Path) -> Vec<PathBuf> {
    let parts: Option<Vec<_>> = wanted
        .components()
        .map(|part| match part {
            // Names with a leading dot are neither jobs nor maps nor rows.
            Component::Normal(name) if !name.as_encoded_bytes().starts_with(b".") => Some(name),
            _ => None,
        })
        .collect();
    let rows: Vec<PathBuf> = match parts.as_deref() {
        Some([row]) => {
            let maps = folders(out).flat_map(|job| folders(&job).collect::<Vec<_>>());
            maps.map(|map| map.join(ROWS).join(row)).collect()
        }
        Some([map, row]) => folders(out).map(|job| job.join(map).join(ROWS).join(row)).collect(),
        Some([job, map, row]) => vec![out.join(job).join(map).join(ROWS).join(row)],
        _ => Vec::new(),
    };
    rows.into_iter().filter(|row| has_run_files(row)).collect()
}

/// The length of the time in a run's id.
const TIMESTAMP_LEN: usize = "20260101-000000".len();

/// A sort key for when a run started: the second in its id, or in its journal if the id is a key, and within the same second,
/// since when its job's `latest` links to it.
fn start_order(run: &Path) -> (String, Option<std::time::SystemTime>, String) {
    let id = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let link = run.parent().map(|job| job.join(LATEST));
    let link = link.filter(|link| fs::read_link(link).is_ok_and(|target| target.as_os_str() == id.as_str()));
    let made = link.and_then(|link| fs::symlink_metadata(link).ok()?.modified().ok());
    let in_journal = || {
        let first = first_entry(&mut journal_reader(run, PARENT).ok()?).ok()??;
        Some(first.at.strftime("%Y%m%d-%H%M%S").to_string())
    };
    let second = match is_timestamp(&id) {
        true => Some(id.chars().take(TIMESTAMP_LEN).collect()),
        false => in_journal(),
    };
    (second.unwrap_or_default(), made, id)
}

/// Whether a folder has a name like a run without a key. A run that was interrupted before it had a plan still counts as the
/// latest.
fn has_run_name(folder: &Path) -> bool {
    let name = folder.canonicalize().ok().and_then(|folder| Some(folder.file_name()?.to_str()?.to_owned()));
    name.is_some_and(|id| is_timestamp(&id))
}

/// Whether an id begins with a time, as that of a run without a key does.
pub fn is_timestamp(id: &str) -> bool {
    let shape = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    id.bytes().map(shape).take(TIMESTAMP_LEN).eq("00000000-000000".bytes())
}

/// The folders in a folder, without those with a leading dot: no job or run has such a name, but files that the tamper guard
/// renamed do. `latest` isn't a folder.
pub fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let listing = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_regular = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    listing.filter(is_regular).filter(is_folder).map(|entry| entry.path())
}

/// All runs except the rows of maps.
fn all_runs(out: &Path) -> Vec<PathBuf> {
    let runs = folders(out).flat_map(|job| folders(&job).collect::<Vec<_>>());
    runs.filter(|run| has_run_files(run) || has_run_name(run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_every_kind_of_name() {
        let out = tempfile::tempdir().unwrap();
        for run in ["a/20260101-000000-aaaaaa", "a/20260102-000000-bbbbbb", "b/20260103-000000-cccccc"] {
            fs::create_dir_all(out.path().join(run)).unwrap();
            fs::write(out.path().join(run).join("plan.json"), "{}").unwrap();
        }
        for aside in [".x.not-a-record/20270101-000000-aaaaaa", "a/.20270101-000000-aaaaaa.not-a-record"] {
            fs::create_dir_all(out.path().join(aside)).unwrap();
            fs::write(out.path().join(aside).join("plan.json"), "{}").unwrap();
        }
        std::os::unix::fs::symlink("20260102-000000-bbbbbb", out.path().join("a/latest")).unwrap();
        let find =
            |wanted: &str| find_run(out.path(), wanted, &|_| false).map(|run| run.to_string_lossy().into_owned());
        assert!(find("latest").unwrap().ends_with("cccccc"));
        assert!(find("a/latest").unwrap().ends_with("a/latest"));
        assert!(find("20260102").unwrap().ends_with("bbbbbb"));
        assert!(find(&out.path().join("b/20260103-000000-cccccc").to_string_lossy()).unwrap().ends_with("cccccc"));
        assert!(matches!(find("2026010"), Err(Error::AmbiguousRun { ids, .. }) if ids.len() == 3));
        assert!(matches!(find("2027"), Err(Error::NoSuchRun { .. })));
        assert!(matches!(find("c/latest"), Err(Error::NoSuchRun { .. })));
        fs::create_dir_all(out.path().join("b/20260104-000000-dddddd")).unwrap();
        fs::create_dir_all(out.path().join("b/other")).unwrap();
        assert!(find("latest").unwrap().ends_with("dddddd"), "it was interrupted before it had a plan");
        let foreign = |run: &Path| run.canonicalize().unwrap().to_string_lossy().ends_with(['d', 'b']);
        assert!(find_run(out.path(), "latest", &foreign).unwrap().ends_with("20260103-000000-cccccc"));
        assert!(matches!(find_run(out.path(), "a/latest", &foreign), Err(Error::NoSuchRun { .. })));
        assert!(find_run(out.path(), "20260102", &foreign).is_ok(), "its id still finds it");
    }

    #[test]
    fn no_runs_at_all_is_a_separate_error() {
        let out = tempfile::tempdir().unwrap();
        for wanted in ["latest", "a/latest", "20260102"] {
            assert!(matches!(find_run(out.path(), wanted, &|_| false), Err(Error::NoRuns { .. })), "{wanted}");
        }
        let other = out.path().to_string_lossy();
        assert!(
            matches!(find_run(out.path(), &other, &|_| false), Err(Error::NoSuchRun { .. })),
            "a folder that isn't a run"
        );
    }

    #[test]
    fn keys_and_rows_are_found_by_their_names() {
        let out = tempfile::tempdir().unwrap();
        let runs = [
            "a/nightly",
            "a/nightly.1",
            "a/nightly-2",
            "a/shared",
            "b/shared",
            "a/m/rows/7",
            "b/m/rows/7",
            "b/m/rows/8",
        ];
        for run in runs {
            fs::create_dir_all(out.path().join(run)).unwrap();
            fs::write(out.path().join(run).join("plan.json"), "{}").unwrap();
        }
        let find = |wanted: &str| {
            let run = find_run(out.path(), wanted, &|_| false)?;
            Ok(run.strip_prefix(out.path()).unwrap().to_string_lossy().into_owned())
        };
        for (wanted, run) in [
            ("nightly", "a/nightly"),
            ("nightly.", "a/nightly.1"),
            ("b/shared", "b/shared"),
            ("8", "b/m/rows/8"),
            ("m/8", "b/m/rows/8"),
            ("a/m/7", "a/m/rows/7"),
        ] {
            assert_eq!(find(wanted).unwrap(), run, "{wanted}");
        }
        let ambiguous = |wanted: &str| match find(wanted) {
            Err(Error::AmbiguousRun { ids, .. }) => ids.join(" "),
            other => panic!("{wanted}: {other:?}"),
        };
        assert_eq!(ambiguous("shared"), "a/shared b/shared");
        assert_eq!(ambiguous("night"), "nightly nightly-2 nightly.1");
        assert_eq!(ambiguous("m/7"), "a/m/7 b/m/7");
        assert_eq!(ambiguous("7"), "a/m/7 b/m/7");
        for unknown in ["m", "m/9", "c/m/7", "9", "..", "m/../m/8", "../x/m/7", "a/m/rows/9"] {
            let found: Result<String, Error> = find(unknown);
            assert!(matches!(found, Err(Error::NoSuchRun { .. })), "{unknown}: {found:?}");
        }
        fs::write(out.path().join("b/m/map.json"), "{}").unwrap();
        for map in ["m", "b/m"] {
            let found: Result<String, Error> = find(map);
            assert!(matches!(&found, Err(Error::IsMap { map, .. }) if map.ends_with("b/m")), "{map}: {found:?}");
        }
    }
}
