//! Joins the rows of several folders of maps, such as the artifacts of a matrix, into one table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::manifest::MAP_FORMAT;
use super::row_reading::{RowReading, read_row, report_in};
use super::rows::{id_mistake, original_id};
use super::tables::{MapRow, ProblemKind, RowState, TABLE_FORMAT, TableFiles, TableProblem};
use crate::event::ErrorInfo;
use crate::pricing::Prices;
use crate::record::{is_of_file_system, open_file, read_file};
use crate::text::pluralize;

/// How deep below a named folder maps are searched for: `artifact/runs/JOB/MAP`.
const MAX_DEPTH: usize = 5;
/// How many folders are searched.
const MAX_SEARCHED: usize = 100_000;
/// How many rows and other entries are read.
const MAX_ENTRIES: usize = 300_000;
/// How many problems are kept.
const MAX_PROBLEMS: usize = 100_000;
/// The longest line of `results.jsonl` that is read, in bytes.
const MAX_LINE_BYTES: u64 = 128 << 20;
/// The largest `map.json`, `plan.json` and `results.jsonl` that are read, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
const MAX_PLAN_BYTES: u64 = 64 << 20;
const MAX_TABLE_BYTES: u64 = 64 << 30;

/// Why folders can't be gathered at all.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// There is no map.
    #[error("there is no map in {0}")]
    NoMap(String),
    /// The joined tables would replace one that is the only source of its rows.
    #[error("`{}` has a table and no records, and the table would be replaced", .0.display())]
    OnlyTable(PathBuf),
    /// There are too many entries.
    #[error("{}: there are more than {MAX_ENTRIES} rows", .0.display())]
    TooMany(PathBuf),
    /// A folder can't be read.
    #[error("`{}` can't be read", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The tables can't be written.
    #[error("the tables in `{}` can't be written; choose another folder with --to DIR", path.display())]
    Write {
        /// Their folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Joins the rows of the maps in folders into tables in the folder `to`, which exists. `wanted` are the ids of all rows in
/// their order, if they are known. `prices` are for the costs of runs that haven't ended. Nothing is written yet.
///
/// # Errors
/// If there is no map, or a folder can't be read.
pub fn gather(
    folders: &[PathBuf],
    wanted: Option<&[String]>,
    to: &Path,
    prices: &Prices,
) -> Result<TableFiles, GatherError> {
    let write_error = |source| GatherError::Write { path: to.to_owned(), source };
    let to = to.canonicalize().map_err(write_error)?;
    let mut gathering = Gathering::default();
    gathering.find_maps(folders, &to)?;
    gathering.list_rows()?;
    if let Some(map) = gathering.tables.keys().map(|number| &gathering.maps[*number]).find(|map| map.path == to) {
        return Err(GatherError::OnlyTable(map.shown.clone()));
    }
    gathering.find_job();
    let name = match gathering.maps.as_slice() {
        [map] => map.name(),
        maps => pluralize(maps.len() as u64, "folder"),
    };
    let job = gathering.job.clone().unwrap_or_default();
    let mut ids: Vec<String> = gathering.rows.keys().cloned().collect();
    ids.sort_by_cached_key(|id| natural_order(id));
    let mut tables =
        TableFiles::new(&to, &job, &name, wanted.unwrap_or_default(), RowState::Missing).map_err(write_error)?;
    let expected: HashSet<&str> = wanted.unwrap_or_default().iter().map(String::as_str).collect();
    for id in wanted.unwrap_or_default() {
        gathering.take_row(id, &mut tables, prices).map_err(write_error)?;
        if tables.state(id) == Some(RowState::Missing) {
            let message = "there is no record of this row".to_owned();
            let error = ErrorInfo { code: RowState::Missing.name().to_owned(), message: message.clone(), hint: None };
            let row = MapRow { error: Some(error), ..MapRow::new(id, RowState::Missing) };
            tables.put(&row, None).map_err(write_error)?;
            gathering.problem(ProblemKind::Missing, Some(id), None, message);
        }
    }
    for id in ids.iter().filter(|id| !expected.contains(id.as_str())) {
        let path = gathering.rows[id].first().map(|found| gathering.shown(found, id));
        let is_previous_attempt = gathering.take_row(id, &mut tables, prices).map_err(write_error)?;
        if wanted.is_some() && !is_previous_attempt {
            gathering.problem(ProblemKind::Unexpected, Some(id), path, "the row isn't in the rows file".to_owned());
        }
    }
    tables.table.problems = gathering.problems;
    if tables.table.job.is_empty() {
        tables.table.job = gathering.job.unwrap_or_default();
    }
    Ok(tables)
}

/// A map that was found.
#[derive(Debug)]
struct FoundMap {
    /// The path as it is shown.
    shown: PathBuf,
    /// The canonical path.
    path: PathBuf,
}

impl FoundMap {
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Where a row was found.
#[derive(Debug)]
enum Found {
    /// In `rows/` of the map with this number.
    Record(usize),
    /// In `results.jsonl` of the map with this number, which has no records: the offset of its line.
    Line(usize, u64),
}

#[derive(Debug, Default)]
struct Gathering {
    maps: Vec<FoundMap>,
    job: Option<String>,
    rows: BTreeMap<String, Vec<Found>>,
    problems: Vec<TableProblem>,
    entries: usize,
    /// Open tables, by the number of their map.
    tables: HashMap<usize, BufReader<File>>,
}

impl Gathering {
    fn problem(&mut self, kind: ProblemKind, id: Option<&str>, path: Option<String>, message: String) {
        match self.problems.len() {
            MAX_PROBLEMS.. => {}
            last if last == MAX_PROBLEMS - 1 => {
                let message = "there are more problems than can be listed".to_owned();
                self.problems.push(TableProblem { kind: ProblemKind::Damaged, id: None, path: None, message });
            }
            _ => self.problems.push(TableProblem { kind, id: id.map(ToOwned::to_owned), path, message }),
        }
    }

    /// Finds the maps that folders are or have below them.
    fn find_maps(&mut self, folders: &[PathBuf], to: &Path) -> Result<(), GatherError> {
        let mut known = HashSet::new();
        let mut searched = 0;
        for folder in folders {
            let failed = |source| GatherError::Folder { path: folder.clone(), source };
            let real = folder.canonicalize().map_err(failed)?;
            let mut search = Search { to, searched: &mut searched, found: Vec::new(), links: Vec::new() };
            search.visit(folder, &real, 0).map_err(failed)?;
            let Search { found, links, .. } = search;
            // Those within the folder lead to what is found anyway.
            let is_outside = |target: &Path| !target.starts_with(&real) && !real.starts_with(target);
            for (shown, target) in links.into_iter().filter(|(_, target)| is_outside(target)) {
                let mut behind = Search { to, searched: &mut searched, found: Vec::new(), links: Vec::new() };
                // A folder that can't be read may be anything.
                if behind.visit(&shown, &target, 1).is_ok() && !behind.found.is_empty() {
                    let message = "there is a map behind this symbolic link, which isn't followed; name it itself";
                    self.problem(ProblemKind::Foreign, None, Some(shown.display().to_string()), message.to_owned());
                }
            }
            if searched > MAX_SEARCHED {
                return Err(GatherError::TooMany(folder.clone()));
            }
            if found.is_empty() {
                let path = Some(folder.display().to_string());
                self.problem(ProblemKind::Foreign, None, path, "there is no map in this folder".to_owned());
            }
            for map in found {
                let path = Some(map.shown.display().to_string());
                if !known.insert(map.path.clone()) {
                    self.problem(ProblemKind::Duplicate, None, path, "the folder is named twice".to_owned());
                    continue;
                }
                match read_job_name(&map.path, "map.json", MAX_MANIFEST_BYTES, Some(MAP_FORMAT)) {
                    Err(JobNameError::OtherFormat(format)) => {
                        let message = format!(
                            "its map.json has the format {format}, and this legwork reads format {MAP_FORMAT}; none of its rows \
                             is used"
                        );
                        self.problem(ProblemKind::Foreign, None, path, message);
                        continue;
                    }
                    Ok(Some(job)) if self.job.as_ref().is_some_and(|known| *known != job) => {
                        let known = self.job.clone().unwrap_or_default();
                        let message =
                            format!("it is a map of the job `{job}` instead of `{known}`; none of its rows is used");
                        self.problem(ProblemKind::Foreign, None, path, message);
                        continue;
                    }
                    Ok(job) => self.job = self.job.take().or(job),
                    Err(JobNameError::Invalid(why)) => {
                        self.problem(ProblemKind::Torn, None, path, format!("map.json {why}"));
                    }
                }
                self.maps.push(map);
            }
        }
        if self.maps.is_empty() {
            let names: Vec<String> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
            return Err(GatherError::NoMap(names.join(", ")));
        }
        Ok(())
    }

    fn list_rows(&mut self) -> Result<(), GatherError> {
        for number in 0..self.maps.len() {
            let folder = self.maps[number].path.join("rows");
            let failed = |source| GatherError::Folder { path: folder.clone(), source };
            let kind = fs::symlink_metadata(&folder);
            if kind.as_ref().is_ok_and(|found| !found.is_dir()) {
                let path = self.maps[number].shown.join("rows").display().to_string();
                self.problem(ProblemKind::Foreign, None, Some(path), "it isn't a folder".to_owned());
                continue;
            }
            let listing = match fs::read_dir(&folder) {
                Ok(listing) => listing,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.list_table(number)?;
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let mut foreign = Vec::new();
            for entry in listing {
                self.count(number)?;
                let entry = entry.map_err(failed)?;
                let name = entry.file_name();
                let is_id = |id: &str| id_mistake(id).is_none();
                // The number of an earlier record can make the name longer than an id may be.
                let id = name.to_str().filter(|name| is_id(name) || original_id(name).is_some_and(is_id));
                match id {
                    Some(id) => self.rows.entry(id.to_owned()).or_default().push(Found::Record(number)),
                    // File managers leave such files.
                    None if is_of_file_system(&name)
                        || name.as_encoded_bytes().starts_with(b".")
                            && entry.file_type().is_ok_and(|kind| kind.is_file()) => {}
                    None => foreign.push(self.maps[number].shown.join("rows").join(name).display().to_string()),
                }
            }
            foreign.sort();
            for path in foreign {
                self.problem(ProblemKind::Foreign, None, Some(path), "its name can't be the id of a row".to_owned());
            }
        }
        Ok(())
    }

    /// Takes the job of the first record that has one, if no map says which job it is of.
    fn find_job(&mut self) {
        if self.job.is_none() {
            let records = self.rows.iter().flat_map(|(id, found)| found.iter().map(move |found| (id, found)));
            self.job = records
                .filter_map(|(id, found)| match found {
                    Found::Record(number) => Some(self.maps[*number].path.join("rows").join(id)),
                    Found::Line(..) => None,
                })
                .filter(|record| fs::symlink_metadata(record).is_ok_and(|found| found.is_dir()))
                .find_map(|record| read_job_name(&record, "plan.json", MAX_PLAN_BYTES, None).ok().flatten());
        }
    }

    fn count(&mut self, number: usize) -> Result<(), GatherError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES { Err(GatherError::TooMany(self.maps[number].shown.clone())) } else { Ok(()) }
    }

    /// Lists the lines of the table of a map without records.
    fn list_table(&mut self, number: usize) -> Result<(), GatherError> {
        let path = self.maps[number].shown.join("results.jsonl").display().to_string();
        let file = match open_file(&self.maps[number].path, "results.jsonl", MAX_TABLE_BYTES) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.problem(ProblemKind::Damaged, None, Some(path), format!("it can't be read: {error}"));
                return Ok(());
            }
        };
        let mut table = BufReader::with_capacity(256 << 10, file);
        let (mut offset, mut line) = (0, 0);
        loop {
            line += 1;
            let text = match read_line(&mut table) {
                Ok(text) if text.is_empty() => break,
                Ok(text) => text,
                Err(error) => {
                    self.problem(ProblemKind::Damaged, None, Some(path), format!("line {line} can't be read: {error}"));
                    return Ok(());
                }
            };
            self.count(number)?;
            let start = offset;
            offset += text.len() as u64;
            match parse_line(&text) {
                Ok(row) => self.rows.entry(row.id).or_default().push(Found::Line(number, start)),
                Err((kind, why)) => self.problem(kind, None, Some(path.clone()), format!("line {line} {why}")),
            }
        }
        self.tables.insert(number, table);
        Ok(())
    }

    /// The path of a row's record for messages.
    fn shown(&self, found: &Found, id: &str) -> String {
        match found {
            Found::Record(number) => self.maps[*number].shown.join("rows").join(id).display().to_string(),
            Found::Line(number, _) => self.maps[*number].shown.join("results.jsonl").display().to_string(),
        }
    }

    /// Reads all that was found of a row, and takes the best of it. Returns whether it was only earlier records of another row.
    fn take_row(&mut self, id: &str, tables: &mut TableFiles, prices: &Prices) -> io::Result<bool> {
        let found = self.rows.remove(id).unwrap_or_default();
        let mut set_aside = 0;
        let mut best: Option<(MapRow, String, Option<PathBuf>)> = None;
        for found in &found {
            let shown = self.shown(found, id);
            let (row, record) = match found {
                Found::Record(number) => {
                    let record = self.maps[*number].path.join("rows").join(id);
                    let reading = read_row(&record, id, self.job.as_deref(), prices);
                    if matches!(reading, RowReading::PreviousAttempt(_)) {
                        set_aside += 1;
                        continue;
                    }
                    let (row, problem) = reading.into_row(id, &shown);
                    if let Some(TableProblem { kind, path, message, .. }) = problem {
                        self.problem(kind, Some(id), path, message);
                    }
                    let Some(row) = row else { continue };
                    (row, Some(record))
                }
                Found::Line(number, offset) => match self.line(*number, *offset) {
                    Ok(row) => (row, None),
                    Err(error) => {
                        self.problem(ProblemKind::Damaged, Some(id), Some(shown), format!("it can't be read: {error}"));
                        continue;
                    }
                },
            };
            best = Some(match best {
                None => (row, shown, record),
                Some(first) => self.better(id, first, (row, shown, record)),
            });
        }
        let Some((mut row, _, record)) = best else { return Ok(set_aside > 0 && set_aside == found.len()) };
        let to = tables.folder().to_owned();
        row.record = record.as_ref().map(|record| relative(&to, record).to_string_lossy().into_owned());
        let report = record.and_then(|record| report_in(&record));
        let report = report.and_then(|report| relative(&to, &report).to_str().map(ToOwned::to_owned));
        tables.put(&row, report).map(|_| false)
    }

    /// The better of two records of a row, and a problem that names the other one.
    fn better(
        &mut self,
        id: &str,
        first: (MapRow, String, Option<PathBuf>),
        second: (MapRow, String, Option<PathBuf>),
    ) -> (MapRow, String, Option<PathBuf>) {
        let rank = |row: &MapRow| match row.state {
            _ if row.is_final() => 3,
            RowState::Ended => 2,
            RowState::Unfinished => 1,
            _ => 0,
        };
        let plain = |row: &MapRow| MapRow { record: None, ..row.clone() };
        let has_other_inputs = first.0.state != RowState::Damaged
            && second.0.state != RowState::Damaged
            && !first.0.inputs.is_empty()
            && !second.0.inputs.is_empty()
            && first.0.inputs != second.0.inputs;
        let are_final = first.0.is_final() && second.0.is_final();
        let are_equal = plain(&first.0) == plain(&second.0);
        let (best, other) = if rank(&second.0) > rank(&first.0) { (second, first) } else { (first, second) };
        let (kind, why) = match () {
            () if are_equal => (ProblemKind::Duplicate, "there is an equal record".to_owned()),
            () if has_other_inputs => (ProblemKind::Conflict, "there is a record with other inputs".to_owned()),
            () if are_final => {
                let outcomes = [&other.0, &best.0].map(|row| row.outcome.map(|it| it.to_string()).unwrap_or_default());
                let [other, best] = outcomes;
                (
                    ProblemKind::Conflict,
                    format!("the row ended more than once, `{best}` and `{other}`, and they differ"),
                )
            }
            () => (ProblemKind::Duplicate, "there is a record that got further".to_owned()),
        };
        let message = format!("{why}; this one isn't used, but {}", best.1);
        self.problem(kind, Some(id), Some(other.1), message);
        best
    }

    fn line(&mut self, number: usize, offset: u64) -> io::Result<MapRow> {
        let table = self.tables.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        table.seek(SeekFrom::Start(offset))?;
        parse_line(&read_line(table)?).map_err(|(_, why)| io::Error::new(io::ErrorKind::InvalidData, why))
    }
}

/// Reads a line with its end; empty at the end of the file.
fn read_line(table: &mut BufReader<File>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    table.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    if line.len() as u64 == MAX_LINE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
    }
    Ok(line)
}

fn parse_line(line: &[u8]) -> Result<MapRow, (ProblemKind, String)> {
    let Some(text) = line.strip_suffix(b"\n") else {
        return Err((ProblemKind::Torn, "is incomplete".to_owned()));
    };
    let row: MapRow = serde_json::from_slice(text)
        .map_err(|error| (ProblemKind::Damaged, format!("isn't a row of a map: {error}")))?;
    if row.format != TABLE_FORMAT {
        let message = format!("has the format {}, and this legwork reads format {TABLE_FORMAT}", row.format);
        return Err((ProblemKind::Foreign, message));
    }
    match id_mistake(&row.id) {
        Some(why) => Err((ProblemKind::Damaged, format!("isn't a row of a map: {why}"))),
        None if (row.state == RowState::Ended) != row.outcome.is_some() => {
            Err((ProblemKind::Damaged, "isn't a row of a map: its state and its outcome don't fit".to_owned()))
        }
        None => Ok(row),
    }
}

/// The search for maps.
struct Search<'a> {
    /// The folder of the joined tables, which isn't one of the maps unless it is named.
    to: &'a Path,
    searched: &'a mut usize,
    found: Vec<FoundMap>,
    /// Symbolic links to folders, each with its target.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Search<'_> {
    /// Adds the maps that a folder is or has below it. Links aren't followed.
    fn visit(&mut self, shown: &Path, path: &Path, depth: usize) -> io::Result<()> {
        *self.searched += 1;
        if *self.searched > MAX_SEARCHED || (depth > 0 && path == self.to) {
            return Ok(());
        }
        let kind = |name: &str| fs::symlink_metadata(path.join(name)).ok();
        let is_map =
            kind("map.json").is_some_and(|found| found.is_file()) || kind("rows").is_some_and(|found| found.is_dir());
        if is_map {
            self.found.push(FoundMap { shown: shown.to_owned(), path: path.to_owned() });
            return Ok(());
        }
        let known = self.found.len();
        let listing = fs::read_dir(path)?;
        if depth < MAX_DEPTH {
            let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            let (folders, others): (Vec<_>, Vec<_>) = listing.flatten().partition(is_folder);
            let links = others.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            let targets = links.filter_map(|link| Some((link.file_name(), link.path().canonicalize().ok()?)));
            self.links.extend(targets.filter(|(_, to)| to.is_dir()).map(|(name, to)| (shown.join(name), to)));
            let mut folders: Vec<_> = folders.iter().map(fs::DirEntry::file_name).collect();
            folders.sort();
            for name in folders {
                self.visit(&shown.join(&name), &path.join(&name), depth + 1)?;
            }
        }
        // A table without records, unless it is the table of maps below it.
        if self.found.len() == known && kind("results.jsonl").is_some_and(|found| found.is_file()) {
            self.found.push(FoundMap { shown: shown.to_owned(), path: path.to_owned() });
        }
        Ok(())
    }
}

/// Why the name of a job can't be read.
enum JobNameError {
    OtherFormat(u64),
    Invalid(String),
}

/// The job in `map.json` or `plan.json`; `None` if the file doesn't exist. `only_format` is the only format that is read.
fn read_job_name(
    folder: &Path,
    name: &str,
    max_bytes: u64,
    only_format: Option<u32>,
) -> Result<Option<String>, JobNameError> {
    #[derive(Deserialize)]
    struct Named {
        job: String,
    }
    #[derive(Deserialize)]
    struct Versioned {
        format: u64,
    }
    let content = match read_file(folder, name, max_bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| JobNameError::Invalid(format!("can't be read: {error}")))?,
    };
    match (only_format, serde_json::from_slice::<Versioned>(&content)) {
        (Some(only), Ok(Versioned { format })) if format != u64::from(only) => {
            return Err(JobNameError::OtherFormat(format));
        }
        _ => {}
    }
    match serde_json::from_slice::<Named>(&content) {
        Ok(named) => Ok(Some(named.job)),
        Err(error) if error.is_eof() => Err(JobNameError::Invalid("ends in the middle".to_owned())),
        Err(error) => Err(JobNameError::Invalid(format!("can't be read: {error}"))),
    }
}

/// A sort key by which `row-2` is before `row-10`.
fn natural_order(id: &str) -> (String, String) {
    let mut key = String::new();
    let mut digits = String::new();
    for char in id.chars().chain(['\0']) {
        if char.is_ascii_digit() {
            digits.push(char);
            continue;
        }
        if !digits.is_empty() {
            key += &format!("{:0>100}", digits.trim_start_matches('0'));
            digits.clear();
        }
        key.push(char);
    }
    (key, id.to_owned())
}

/// The path from one folder to a file or folder elsewhere. Both are canonical.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_as_people_do() {
        let mut ids = ["row-10", "row-2", "b", "row-02", "a10b2", "a10b10", "a9"];
        ids.sort_by_cached_key(|id| natural_order(id));
        assert_eq!(ids, ["a9", "a10b2", "a10b10", "b", "row-02", "row-2", "row-10"]);
    }

    #[test]
    fn a_path_leads_from_one_folder_to_another() {
        let path = |from: &str, to: &str| relative(Path::new(from), Path::new(to)).display().to_string();
        assert_eq!(path("/a/b", "/a/b/rows/x"), "rows/x");
        assert_eq!(path("/a/b", "/a/c/x"), "../c/x");
        assert_eq!(path("/a/b/c", "/d"), "../../../d");
    }
}
