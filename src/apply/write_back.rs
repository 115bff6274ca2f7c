//! Writes the merged files into the workspace.

use std::path::PathBuf;

use super::{FileSource, MergeSession, TargetFiles};

/// What was written.
#[derive(Debug, Default)]
pub struct WriteReport {
    /// The files that have their new state, in the order in which they were written.
    pub written: Vec<PathBuf>,
    /// The file that couldn't be written, and why.
    pub failed: Option<(PathBuf, String)>,
    /// The files after it, which weren't written.
    pub unwritten: Vec<PathBuf>,
}

/// Writes the files that the patches of a session changed one by one, and stops at the first that can't be written.
pub fn write_back(session: &MergeSession<TargetFiles>) -> WriteReport {
    let files = session.source();
    let mut report = WriteReport::default();
    for (path, before, after) in session.changes_to_write() {
        if report.failed.is_some() {
            report.unwritten.push(path.to_owned());
            continue;
        }
        let written = files.current(path).and_then(|current| match current.as_ref() == before {
            true => files.write(path, after).map_err(|error| error.to_string()),
            false => Err("it changed in the meantime".to_owned()),
        });
        match written {
            Ok(()) => report.written.push(path.to_owned()),
            Err(why) => report.failed = Some((path.to_owned(), why)),
        }
    }
    report
}
