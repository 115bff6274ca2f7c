//! The journals of one run: the parent's and those of its subagents.

use std::collections::HashMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::fault_injection::FaultInjection;
use super::journal::Journal;
use super::{journal_file, private_file_options};

/// How many lines a journal has, and the checksum of the last.
pub(super) type JournalEnd = (u64, String);

/// By the agents' ids.
#[derive(Debug, Default)]
pub(super) struct JournalSet {
    open: HashMap<String, Journal>,
    /// Those whose files are there, with their ends when they were last opened or closed.
    there: HashMap<String, JournalEnd>,
}

impl JournalSet {
    /// Those that an earlier part of the run has written.
    pub(super) fn from_ends(there: HashMap<String, JournalEnd>) -> Self {
        Self { open: HashMap::new(), there }
    }

    /// An agent's journal, open to be written on.
    pub(super) fn open_for_append(
        &mut self,
        agent: &str,
        folder: &Path,
        trial: &FaultInjection,
    ) -> io::Result<&mut Journal> {
        if !self.open.contains_key(agent) {
            self.make(agent, folder, trial)?;
            let path = folder.join(journal_file(agent));
            let file = appending().open(&path)?;
            let (lines, sum) = self.there.get(agent).cloned().unwrap_or_default();
            self.open.insert(agent.to_owned(), Journal::new(file, path, lines, sum));
        }
        self.open.get_mut(agent).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes an agent's journal without a line, unless it is there.
    pub(super) fn make(&mut self, agent: &str, folder: &Path, trial: &FaultInjection) -> io::Result<()> {
        if self.there.contains_key(agent) {
            return Ok(());
        }
        let path = folder.join(journal_file(agent));
        trial.operation()?;
        make_folder_of(&path, folder)?;
        appending().create_new(true).open(path)?;
        self.there.insert(agent.to_owned(), JournalEnd::default());
        Ok(())
    }

    /// Closes an agent's journal: hundreds of subagents would otherwise hold hundreds of descriptors.
    pub(super) fn close(&mut self, agent: &str) {
        if let Some(journal) = self.open.remove(agent) {
            self.there.insert(agent.to_owned(), journal.position());
        }
    }

    /// Closes them all.
    pub(super) fn close_all(&mut self) {
        for agent in self.open.keys().cloned().collect::<Vec<_>>() {
            self.close(&agent);
        }
    }
}

fn appending() -> OpenOptions {
    let mut options = private_file_options();
    // Read, too: to see whether somebody else wrote there.
    options.read(true).append(true);
    options
}

/// Makes the folder below the run's own that a file goes to. The run's own is never made again: where it was deleted,
/// half a record must not come up in its place.
pub(super) fn make_folder_of<'a>(path: &'a Path, run: &'a Path) -> io::Result<&'a Path> {
    let folder = path.parent().unwrap_or(run);
    if folder != run {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // A link would lead out of the record.
            _ if !std::fs::symlink_metadata(folder)?.is_dir() => {
                let why = format!("`{}` is not a folder", folder.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            _ => {}
        }
    }
    Ok(folder)
}
