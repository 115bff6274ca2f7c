//! The results of a map while it runs: a line of `results.jsonl` when a row ends, and tables that are always readable.
//!
//! Other processes may run other rows of the same map. Every process reads their results from their records, so the last one
//! that ends leaves tables of all rows. No locks are needed for that.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use indexmap::IndexMap;
use serde_json::Value;

use super::manifest::MapFolder;
use super::row_reading::{read_row, report_in};
use super::tables::{MapRow, MapTable, ProblemKind, RowState, TableFiles, TableProblem};
use crate::event::RunResult;
use crate::pricing::Prices;
use crate::record::REPORT_FILE;

/// How long the tables for people stay as they are, at least.
const MIN_INTERVAL: Duration = Duration::from_secs(3);
/// How many times the duration of writing them, so that a large map doesn't spend its time on tables.
const INTERVAL_FACTOR: u32 = 20;
/// How often the tables are written at the end if other processes finish rows at the same time.
const MAX_FINAL_WRITES: usize = 5;

/// The results of a map.
#[derive(Debug)]
pub struct Results {
    folder: MapFolder,
    job: String,
    /// For the cost of runs that haven't ended.
    prices: Prices,
    ids: Vec<String>,
    files: TableFiles,
    /// The time and the size of each `result.json` that was read.
    seen: HashMap<String, Stamp>,
    problems: HashMap<String, TableProblem>,
    last_write: Option<Instant>,
    interval: Duration,
}

type Stamp = (Option<SystemTime>, u64);

impl Results {
    /// Reads the results that a map's folder has, and writes `results.jsonl` again. `ids` are all rows in their order, also
    /// those that other processes run.
    ///
    /// # Errors
    /// If the folder can't be read or written.
    pub fn open(folder: &MapFolder, job: &str, ids: &[String], prices: Prices) -> io::Result<Self> {
        let name = folder.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut results = Self {
            files: TableFiles::new(&folder.path, job, &name, ids, RowState::NotStarted)?,
            folder: folder.clone(),
            job: job.to_owned(),
            prices,
            ids: ids.to_vec(),
            seen: HashMap::new(),
            problems: HashMap::new(),
            last_write: None,
            interval: MIN_INTERVAL,
        };
        results.refresh(true)?;
        results.write_all()?;
        Ok(results)
    }

    /// Takes the inputs and the result of a row that has run in this process, and appends its line to `results.jsonl`. Its
    /// record is complete.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn row_ended(&mut self, id: &str, inputs: IndexMap<String, Value>, result: RunResult) -> io::Result<()> {
        self.seen.extend(stamp(&self.folder.row(id).join("result.json")).map(|found| (id.to_owned(), found)));
        self.problems.remove(id);
        self.put(MapRow::ended(id, inputs, result))?.map_or(Ok(()), |line| self.files.append(&line))
    }

    /// Reads the record of a row that this process couldn't run. If another one has, that one appends its line.
    ///
    /// # Errors
    /// If the tables can't be written.
    pub fn row_not_run(&mut self, id: &str) -> io::Result<()> {
        self.read(id).map(drop)
    }

    /// Writes `results.csv` and `report.html` if that is due.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn update(&mut self) -> io::Result<()> {
        if self.last_write.is_some_and(|last| last.elapsed() < self.interval) {
            return Ok(());
        }
        let start = Instant::now();
        self.refresh(false)?;
        self.list_problems();
        self.files.write_for_people()?;
        self.interval = MIN_INTERVAL.max(start.elapsed() * INTERVAL_FACTOR);
        self.last_write = Some(Instant::now());
        Ok(())
    }

    /// Writes all tables at the end of this process's rows.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.refresh(true)?;
        for _ in 0..MAX_FINAL_WRITES {
            self.write_all()?;
            // A row that another process finished since may be missing from its tables, if they were replaced just now.
            if !self.refresh(false)? {
                break;
            }
        }
        Ok(())
    }

    /// All rows as JUnit XML.
    pub fn junit(&self) -> String {
        self.files.junit()
    }

    /// All rows in short.
    pub fn table(&self) -> &MapTable {
        &self.files.table
    }

    /// Whether all rows, also those of other shards, have ended with success, so that none starts again.
    pub fn have_completed(&self) -> bool {
        self.table().rows.iter().all(|row| row.exit_code == Some(0))
    }

    fn write_all(&mut self) -> io::Result<()> {
        self.list_problems();
        self.files.write()?;
        self.last_write = Some(Instant::now());
        Ok(())
    }

    fn list_problems(&mut self) {
        self.files.table.problems = self.ids.iter().filter_map(|id| self.problems.get(id).cloned()).collect();
    }

    /// Reads the results of rows that have changed. With `journals`, the rows that haven't ended are read from their journals.
    /// Returns whether there was one that has ended.
    fn refresh(&mut self, journals: bool) -> io::Result<bool> {
        let mut has_news = false;
        for id in self.ids.clone() {
            let record = self.folder.row(&id);
            match stamp(&record.join("result.json")) {
                Some(found) if self.seen.get(&id) == Some(&found) => {}
                Some(_) => has_news |= self.read(&id)?.is_some(),
                None if journals && record.exists() => drop(self.read(&id)?),
                None => {
                    self.seen.remove(&id);
                    self.problems.remove(&id);
                    let state = if record.exists() { RowState::Unfinished } else { RowState::NotStarted };
                    if self.files.state(&id) != Some(state) {
                        self.files.note(&MapRow::new(&id, state), None);
                    }
                }
            }
        }
        Ok(has_news)
    }

    /// Reads a row's record. Returns its line if the run has ended.
    fn read(&mut self, id: &str) -> io::Result<Option<String>> {
        let record = self.folder.row(id);
        // Before the file is read, so that a later change is noticed.
        let found = stamp(&record.join("result.json"));
        self.problems.remove(id);
        let reading = read_row(&record, id, Some(&self.job), &self.prices);
        let (row, problem) = reading.into_row(id, &format!("rows/{id}"));
        let state = if problem.is_some() { RowState::Damaged } else { RowState::NotStarted };
        let row = row.unwrap_or_else(|| MapRow::new(id, state));
        // A run that is running may be writing the last line of its journal.
        let problem = problem.filter(|it| row.state != RowState::Unfinished || it.kind != ProblemKind::Torn);
        self.problems.extend(problem.map(|problem| (id.to_owned(), problem)));
        self.seen.extend(found.map(|found| (id.to_owned(), found)));
        self.put(row)
    }

    /// Takes a row. Returns its line if the run has ended.
    fn put(&mut self, mut row: MapRow) -> io::Result<Option<String>> {
        let path = format!("rows/{}", row.id);
        let report = report_in(&self.folder.path.join(&path)).map(|_| format!("{path}/{REPORT_FILE}"));
        row.record = Some(path);
        if row.state != RowState::Ended {
            self.files.note(&row, report);
            return Ok(None);
        }
        self.files.put(&row, report).map(Some)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.modified().ok(), found.len()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::event::FORMAT;

    /// The folder of a map whose rows are written by hand.
    struct TestMap {
        folder: tempfile::TempDir,
        ids: Vec<String>,
    }

    impl TestMap {
        fn new(ids: &[&str]) -> Self {
            let ids = ids.iter().map(ToString::to_string).collect();
            Self { folder: tempfile::tempdir().unwrap(), ids }
        }

        fn open(&self) -> Results {
            Results::open(&MapFolder { path: self.folder.path().to_owned() }, "j", &self.ids, Prices::new()).unwrap()
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.at(name)).unwrap()
        }

        /// Writes the record of a row that has ended.
        fn end(&self, id: &str, outcome: &str, code: u8) {
            let folder = self.at("rows").join(id);
            fs::create_dir_all(&folder).unwrap();
            let result = json!({
                "format": FORMAT, "run_id": id, "job": "j", "outcome": outcome, "exit_code": code, "text": "first\nsecond",
                "result": { "answer": format!("of {id}") }, "error": null, "started_at": "2026-01-01T00:00:00Z",
                "finished_at": "2026-01-01T00:00:01Z", "duration_ms": 1000, "turns": 2, "tool_calls": 1,
                "usage": { "input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 0, "cache_write_tokens": 0 },
                "cost_usd": 0.5, "model": "a/b", "sandbox": "off", "subagents": [], "checks": [], "changes": null,
            });
            fs::write(folder.join("plan.json"), json!({ "format": FORMAT, "inputs": { "n": id } }).to_string())
                .unwrap();
            fs::write(folder.join("result.json"), result.to_string()).unwrap();
        }

        /// Hands over the result of a row that has ended.
        fn row_ended(&self, results: &mut Results, id: &str) {
            let result = serde_json::from_str(&self.read(&format!("rows/{id}/result.json"))).unwrap();
            results.row_ended(id, IndexMap::from([("n".to_owned(), json!(id))]), result).unwrap();
        }

        fn lines(&self) -> Vec<(String, String)> {
            let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
            let pair = |line: Value| {
                (line["id"].as_str().unwrap().to_owned(), line["outcome"].as_str().unwrap_or("none").to_owned())
            };
            self.read("results.jsonl").lines().map(parse).map(pair).collect()
        }
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(id, outcome)| ((*id).to_owned(), (*outcome).to_owned())).collect()
    }

    #[test]
    fn a_line_is_appended_when_a_row_ends_and_all_are_in_order_at_the_end() {
        let map = TestMap::new(&["a", "b", "c"]);
        let mut results = map.open();
        assert_eq!(map.lines(), []);
        map.end("c", "completed", 0);
        map.row_ended(&mut results, "c");
        map.end("a", "refused", 1);
        map.row_ended(&mut results, "a");
        assert_eq!(map.lines(), pairs(&[("c", "completed"), ("a", "refused")]));
        assert_eq!(results.table().exit_code(), 75, "b hasn't started");
        let line: Value = serde_json::from_str(map.read("results.jsonl").lines().next().unwrap()).unwrap();
        assert_eq!((&line["inputs"], &line["result"]), (&json!({ "n": "c" }), &json!({ "answer": "of c" })));
        assert_eq!((&line["text"], &line["record"]), (&json!("first"), &json!("rows/c")));
        results.finish().unwrap();
        assert_eq!(map.lines(), pairs(&[("a", "refused"), ("c", "completed")]));
        assert!(results.junit().contains("tests=\"3\" failures=\"1\" errors=\"1\""));
        assert!(map.read("results.csv").lines().nth(1).unwrap().starts_with("a,ended,refused,1,a,of a,first,"));
        assert!(map.read("report.html").contains("not_started"));
        let modes = ["results.jsonl", "results.csv", "report.html"].map(|name| {
            use std::os::unix::fs::PermissionsExt;
            map.at(name).metadata().unwrap().permissions().mode() & 0o777
        });
        assert_eq!(modes, [0o600; 3], "as private as the records");
    }

    #[test]
    fn a_torn_line_of_a_killed_process_is_replaced() {
        let map = TestMap::new(&["a", "b"]);
        map.end("a", "completed", 0);
        fs::write(map.at("results.jsonl"), "{\"id\":\"a\",\"ou").unwrap();
        let mut results = map.open();
        assert_eq!(map.lines(), pairs(&[("a", "completed")]));
        fs::write(map.at("results.jsonl"), "{\"id\":\"a\",\"ou").unwrap();
        map.end("b", "completed", 0);
        map.row_ended(&mut results, "b");
        assert_eq!(map.lines(), pairs(&[("a", "completed"), ("b", "completed")]));
        fs::remove_file(map.at("results.jsonl")).unwrap();
        map.row_ended(&mut results, "b");
        assert_eq!(map.lines(), pairs(&[("a", "completed"), ("b", "completed")]), "once, although it ended twice");
        assert_eq!(results.table().exit_code(), 0);
    }

    #[test]
    fn rows_of_other_processes_are_in_the_tables_of_the_last_one() {
        let map = TestMap::new(&["a", "b", "c"]);
        let (mut one, mut other) = (map.open(), map.open());
        map.end("a", "completed", 0);
        map.row_ended(&mut one, "a");
        map.end("b", "stuck", 4);
        map.row_ended(&mut other, "b");
        one.finish().unwrap();
        fs::create_dir(map.at("rows/c")).unwrap();
        other.finish().unwrap();
        assert_eq!(map.lines(), pairs(&[("a", "completed"), ("b", "stuck")]));
        assert_eq!(other.table().rows[2].state, RowState::Unfinished);
        // The row runs again.
        fs::remove_dir_all(map.at("rows/b")).unwrap();
        map.end("b", "completed", 0);
        map.end("c", "completed", 0);
        one.finish().unwrap();
        assert_eq!(map.lines(), pairs(&[("a", "completed"), ("b", "completed"), ("c", "completed")]));
    }

    #[test]
    fn a_record_that_is_not_the_rows_own_is_named() {
        let map = TestMap::new(&["a", "b"]);
        map.end("a", "completed", 0);
        fs::rename(map.at("rows/a"), map.at("rows/b")).unwrap();
        map.end("a", "completed", 1);
        let mut results = map.open();
        results.finish().unwrap();
        let problems: Vec<_> = results.table().problems.iter().map(|it| (it.kind, it.message.as_str())).collect();
        assert_eq!(
            problems,
            [
                (ProblemKind::Damaged, "result.json says `completed` with the exit code 1"),
                (ProblemKind::Foreign, "it is the record of the run `a`"),
            ]
        );
        assert_eq!(results.table().exit_code(), 5);
    }
}
