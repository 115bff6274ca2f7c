//! The journals of one run: the parent's and those of its subagents.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;

use super::fault_injection::FaultInjection;
use super::line_format::{is_sealed, journal_file};
use super::record_files::{create_parent_dir, private_file_options};
use super::seal::RecordKey;
use super::writer::{Journal, JournalEnd};
use crate::event::{CallStarted, Durability, Event, JournalEntry, PARENT};

/// Journals by agent id.
#[derive(Debug)]
pub(crate) struct JournalSet {
    folder: PathBuf,
    key: Option<RecordKey>,
    open: HashMap<String, Journal>,
    /// All that have a file, with their ends when they were last opened or closed.
    ends: HashMap<String, JournalEnd>,
}

impl JournalSet {
    /// Journals in a run's folder. `ends` has those that an earlier part of the run has written.
    pub(crate) fn new(folder: PathBuf, key: Option<RecordKey>, ends: HashMap<String, JournalEnd>) -> Self {
        Self { folder, key, open: HashMap::new(), ends }
    }

    /// Appends an event to its agent's journal, sealed if it should be and there is a key.
    pub(crate) fn append(
        &mut self,
        agent: &str,
        event: Event,
        durability: Durability,
        at: Timestamp,
        faults: &FaultInjection,
    ) -> io::Result<JournalEntry> {
        if let Event::CallStarted(CallStarted { child: Some(child), .. }) = &event {
            // Before the subagent can write anything: if a subagent was started, a missing journal means that it was removed.
            self.create(child, faults)?;
        }
        let key = self.key.clone().filter(|_| is_sealed(&event));
        let journal = self.open_for_append(agent, faults)?;
        let entry = JournalEntry { seq: journal.next_seq(), at, agent: agent.to_owned(), event };
        journal.append(&entry, durability, faults, key.as_ref())?;
        if matches!(&entry.event, Event::AgentFinished(finished) if finished.id == agent && agent != PARENT) {
            // Hundreds of subagents must not take hundreds of descriptors.
            self.close(agent);
        }
        Ok(entry)
    }

    /// Opens an agent's journal for appending.
    fn open_for_append(&mut self, agent: &str, faults: &FaultInjection) -> io::Result<&mut Journal> {
        if !self.open.contains_key(agent) {
            self.create(agent, faults)?;
            let path = self.folder.join(journal_file(agent));
            let file = appending().open(&path)?;
            let end = self.ends.get(agent).cloned().unwrap_or_default();
            self.open.insert(agent.to_owned(), Journal::new(file, path, end));
        }
        self.open.get_mut(agent).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Creates an agent's journal without a line, unless it exists.
    fn create(&mut self, agent: &str, faults: &FaultInjection) -> io::Result<()> {
        if self.ends.contains_key(agent) {
            return Ok(());
        }
        let path = self.folder.join(journal_file(agent));
        faults.operation()?;
        create_parent_dir(&path, &self.folder)?;
        appending().create_new(true).open(path)?;
        self.ends.insert(agent.to_owned(), JournalEnd::default());
        Ok(())
    }

    fn close(&mut self, agent: &str) {
        if let Some(journal) = self.open.remove(agent) {
            self.ends.insert(agent.to_owned(), journal.end());
        }
    }

    /// Closes all journals.
    pub(crate) fn close_all(&mut self) {
        for agent in self.open.keys().cloned().collect::<Vec<_>>() {
            self.close(&agent);
        }
    }
}

fn appending() -> OpenOptions {
    let mut options = private_file_options();
    // Also for reading, to find out whether another program wrote to it.
    options.read(true).append(true);
    options
}
