//! Writes the merged files into the workspace.

use std::path::PathBuf;

use super::{FileSource, MergeSession, TargetFiles};
use crate::process::fd_limit::max_concurrent_agents;
use crate::record::flush_together;

/// The most files that are written before they are flushed.
const MAX_BATCH: usize = 1_000;
/// How many files take no more descriptors than an agent does.
const FILES_PER_AGENT: usize = 4;

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

/// Writes the files that the patches of a session changed in order, and stops at the first that can't be written. A file has its
/// old or its new state, also after a crash of the machine. Files are flushed to the disk a few at once.
pub fn write_back(session: &MergeSession<TargetFiles>) -> WriteReport {
    write(session, true)
}

/// The same, also for files that another program changes meanwhile.
pub(crate) fn overwrite(session: &MergeSession<TargetFiles>) -> WriteReport {
    write(session, false)
}

fn write(session: &MergeSession<TargetFiles>, is_checked: bool) -> WriteReport {
    let files = session.source();
    let mut report = WriteReport::default();
    let changes = session.changes_to_write();
    let most = max_concurrent_agents().saturating_mul(FILES_PER_AGENT).min(MAX_BATCH);
    for batch in changes.chunks(most) {
        if report.failed.is_some() {
            report.unwritten.extend(batch.iter().map(|(path, ..)| (*path).to_owned()));
            continue;
        }
        let mut begun = Vec::with_capacity(batch.len());
        let mut failed = None;
        for (path, before, after) in batch {
            let current = if is_checked { files.current(path).map(Some) } else { Ok(None) };
            let write = current.and_then(|current| match current {
                Some(current) if current.as_ref() != *before => Err("it changed in the meantime".to_owned()),
                _ => files.begin_write(path, *after).map_err(|error| error.to_string()),
            });
            match write {
                Ok(write) => begun.push((*path, write)),
                Err(why) => {
                    failed = Some(((*path).to_owned(), why));
                    break;
                }
            }
        }
        let unbegun = &batch[(begun.len() + usize::from(failed.is_some())).min(batch.len())..];
        let flushed = flush_together(begun.iter().filter_map(|(_, write)| Some(write.as_ref()?.file())));
        for (path, write) in begun {
            if report.failed.is_some() {
                report.unwritten.push(path.to_owned());
                continue;
            }
            let finished = match (write, &flushed) {
                (None, _) => Ok(()),
                (Some(_), Err(error)) => Err(error.to_string()),
                (Some(write), Ok(())) => write.finish(is_checked).map_err(|error| error.to_string()),
            };
            match finished {
                Ok(()) => report.written.push(path.to_owned()),
                Err(why) => report.failed = Some((path.to_owned(), why)),
            }
        }
        match (&report.failed, failed) {
            (Some(_), Some((path, _))) => report.unwritten.push(path),
            (None, failed) => report.failed = failed,
            (Some(_), None) => {}
        }
        report.unwritten.extend(unbegun.iter().map(|(path, ..)| (*path).to_owned()));
    }
    report
}
