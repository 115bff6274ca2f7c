//! Writes the tables of a map: `results.jsonl`, `results.csv`, `report.html` and JUnit XML. Each file is replaced as a whole,
//! so that readers always see a complete one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::csv::CsvTable;
use super::table::{MapRow, MapTable, RowState};
use super::{html, junit};
use crate::git::open_regular_file;
use crate::record::{open_for_appending, remove_abandoned_files, replace_shared_file, retry_stale, temporary_in};
use crate::text::bounded::read_up_to;
use crate::text::sanitize;
use crate::workspace::open_root::OpenRoot;

/// The names of the tables in their folder.
const JSONL: &str = "results.jsonl";
const CSV: &str = "results.csv";
const REPORT: &str = "report.html";
/// How much of a file is read to recognize a table.
const HEAD_BYTES: u64 = 1024;

/// The tables in one folder. Rows are kept in a temporary file, and only a short form of each is in memory.
#[derive(Debug)]
pub struct TableFiles {
    folder: OpenRoot,
    /// The rows in short, and their problems.
    pub table: MapTable,
    /// Where each row is in `table.rows`.
    positions: HashMap<String, usize>,
    /// The lines of rows in the order in which they came.
    spool: File,
    spool_bytes: u64,
    /// Where each row's line is in the spool.
    lines: Vec<Option<(u64, u64)>>,
}

impl TableFiles {
    /// Tables of these rows, which haven't been read yet, in a folder that exists.
    ///
    /// # Errors
    /// If the folder can't be written to.
    pub fn new(
        folder: &Path,
        job: &str,
        name: &str,
        ids: impl IntoIterator<Item = impl AsRef<str>>,
        state: RowState,
    ) -> io::Result<Self> {
        let folder = OpenRoot::open(folder)?;
        remove_abandoned_files(folder.folder());
        let mut files = Self {
            table: MapTable::new(job, name),
            positions: HashMap::new(),
            // It has no name, so nothing of it remains if this process is killed.
            spool: temporary_in(folder.folder())?.into_unnamed()?,
            folder,
            spool_bytes: 0,
            lines: Vec::new(),
        };
        for id in ids {
            files.note(&MapRow::new(id.as_ref(), state), None);
        }
        Ok(files)
    }

    /// The folder of the tables.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Takes what is known about a row that has no line in `results.jsonl`.
    pub fn note(&mut self, row: &MapRow, report: Option<String>) {
        let summary = self.table.summarize(row, report);
        match self.positions.get(&row.id) {
            Some(at) => {
                self.table.rows[*at] = summary;
                self.lines[*at] = None;
            }
            None => {
                self.positions.insert(row.id.clone(), self.table.rows.len());
                self.table.rows.push(summary);
                self.lines.push(None);
            }
        }
    }

    /// Takes a row. Returns its line.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn put(&mut self, row: &MapRow, report: Option<String>) -> io::Result<String> {
        let line = sanitize::escape_json(&serde_json::to_string(row)?) + "\n";
        self.spool.write_all_at(line.as_bytes(), self.spool_bytes)?;
        self.note(row, report);
        let length = line.len() as u64;
        if let Some(at) = self.positions.get(&row.id) {
            self.lines[*at] = Some((self.spool_bytes, length));
        }
        self.spool_bytes += length;
        Ok(line)
    }

    /// What is known about a row.
    pub fn state(&self, id: &str) -> Option<RowState> {
        self.positions.get(id).map(|at| self.table.rows[*at].state)
    }

    /// Appends a line to `results.jsonl`. A file that is missing or doesn't end with a whole line is written again, and so is one
    /// that a command has replaced by a link or a pipe.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let appended = retry_stale(|| {
            let mut file = open_for_appending(self.folder.folder(), JSONL)?;
            // With another name, the file could be one of the user's.
            let fits = file.metadata()?.nlink() == 1 && ends_with_a_line(&mut file)?;
            if fits {
                // One write, so that lines of several processes don't mix.
                file.write_all(line.as_bytes())?;
            }
            Ok(fits)
        });
        match appended {
            Ok(true) => Ok(()),
            Ok(false) => self.write_jsonl(),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
                self.write_jsonl()
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `results.jsonl`, `results.csv` and `report.html` with the rows in their order.
    ///
    /// # Errors
    /// If a file can't be written. Each file is complete anyway, as it was before or as it is now.
    pub fn write(&mut self) -> io::Result<()> {
        self.write_jsonl()?;
        self.write_for_people()
    }

    /// Writes `results.csv` and `report.html`.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn write_for_people(&mut self) -> io::Result<()> {
        replace_shared_file(self.folder.folder(), CSV, false, &mut |out| {
            let mut csv = CsvTable::new(out, &self.table)?;
            for place in self.lines.iter().flatten() {
                csv.row(&serde_json::from_slice::<MapRow>(&self.read_line(*place)?)?)?;
            }
            csv.finish()
        })?;
        replace_shared_file(self.folder.folder(), REPORT, false, &mut |out| html::report(&self.table, out))
    }

    fn write_jsonl(&mut self) -> io::Result<()> {
        replace_shared_file(self.folder.folder(), JSONL, false, &mut |out| {
            self.lines.iter().flatten().try_for_each(|place| out.write_all(&self.read_line(*place)?))
        })
    }

    fn read_line(&self, (offset, length): (u64, u64)) -> io::Result<Vec<u8>> {
        let mut line = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.spool.read_exact_at(&mut line, offset)?;
        Ok(line)
    }

    /// All rows as JUnit XML.
    pub fn junit(&self) -> String {
        junit::report(&self.table)
    }
}

/// The name of something in a folder that a table would replace, and that isn't an earlier table.
pub fn foreign_file(folder: &Path) -> Option<&'static str> {
    let marks = [
        (JSONL, "{\"format\":"),
        (CSV, "id,state,outcome,"),
        (REPORT, "Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-"),
    ];
    let is_foreign = |name: &str, mark: &str| {
        let path = folder.join(name);
        let Ok(found) = path.symlink_metadata() else { return false };
        let head =
            open_regular_file(&path).filter(|_| found.is_file()).and_then(|file| read_up_to(file, HEAD_BYTES).ok());
        head.is_none_or(|head| !head.is_empty() && !String::from_utf8_lossy(&head).contains(mark))
    };
    marks.into_iter().find(|(name, mark)| is_foreign(name, mark)).map(|(name, _)| name)
}

/// Whether a file is empty or its last byte ends a line.
fn ends_with_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}
