//! The journals of one run: the parent's and those of its subagents.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use jiff::Timestamp;

use super::files::{create_file, open_for_appending};
use super::flush::FlushRequest;
use crate::event::{CallStarted, Event, JournalEntry, PARENT};
use crate::journal::{FaultInjection, Journal, JournalEnd, RecordKey, RunDigests, RunSealer, journal_file};
use crate::workspace::open_root::OpenRoot;

/// How many folders above a journal may be as new as it is: the run's, its job's, and the folder of all runs.
const MAX_NEW_PARENTS: usize = 3;

/// Journals by agent id.
#[derive(Debug)]
pub(super) struct JournalSet {
    root: OpenRoot,
    key: Option<RecordKey>,
    open: HashMap<String, Journal>,
    /// All that have a file, with their ends when they were last opened or closed.
    ends: HashMap<String, JournalEnd>,
}

impl JournalSet {
    /// Journals in a run's folder. `ends` has those that an earlier part of the run has written.
    pub(super) fn new(root: OpenRoot, key: Option<RecordKey>, ends: HashMap<String, JournalEnd>) -> Self {
        Self { root, key, open: HashMap::new(), ends }
    }

    /// Whether an agent's journal is open for appending.
    pub(super) fn is_open(&self, agent: &str) -> bool {
        self.open.contains_key(agent)
    }

    /// Appends an event to its agent's journal.
    pub(super) fn append(
        &mut self,
        agent: &str,
        event: Event,
        (at, suspended_ms): (Timestamp, u64),
        faults: &FaultInjection,
    ) -> io::Result<JournalEntry> {
        if let Event::CallStarted(CallStarted { child: Some(child), .. }) = &event {
            // Before the subagent can write anything: if a subagent was started, a missing journal means that it was removed.
            self.create(child, faults)?;
        }
        if !self.open.contains_key(agent) {
            let path = self.root.path().join(journal_file(agent));
            let file = match self.create(agent, faults)? {
                Some(file) => file,
                None => open_for_appending(self.root.folder(), &journal_file(agent))?,
            };
            let end = self.ends.get(agent).cloned().unwrap_or_default();
            self.open.insert(agent.to_owned(), Journal::new(file, path, end)?);
        }
        let digests = matches!(event, Event::RunFinished(_)).then(|| self.digests());
        let (key, digests) = (self.key.clone(), digests.as_ref());
        let sealer =
            |line: &str| key.as_ref().zip(digests).map(|(key, digests)| key.run_mac(digests, line)).unwrap_or_default();
        let seal: Option<RunSealer<'_>> = if key.is_some() && digests.is_some() { Some(&sealer) } else { None };
        let journal = self.open.get_mut(agent).ok_or(io::ErrorKind::NotFound)?;
        let entry = JournalEntry { seq: journal.next_seq(), at, suspended_ms, agent: agent.to_owned(), event };
        journal.append(&entry, faults, self.key.as_ref(), seal)?;
        if matches!(&entry.event, Event::AgentFinished(finished) if finished.id == agent && agent != PARENT) {
            // Hundreds of subagents must not take hundreds of descriptors.
            self.ends.insert(agent.to_owned(), journal.end().clone());
            self.open.remove(agent);
        }
        Ok(entry)
    }

    /// The digests of all that was recorded so far.
    fn digests(&self) -> RunDigests {
        let mut digests = RunDigests::default();
        for (agent, end) in &self.ends {
            digests.add(agent, &self.open.get(agent).map_or(end, Journal::end).digest);
        }
        digests
    }

    /// What must be flushed for an agent's events to be on the disk.
    pub(super) fn take_unflushed(&mut self, agent: &str) -> FlushRequest {
        let Some(journal) = self.open.get_mut(agent) else { return FlushRequest::default() };
        let Some((file, is_new)) = journal.take_unflushed() else { return FlushRequest::default() };
        let journal_lines = Some(journal.end().lines);
        let path = self.root.path().join(journal_file(agent));
        let folders = path.ancestors().skip(1).take(if is_new { MAX_NEW_PARENTS } else { 0 });
        let folders = folders.map(Path::to_owned).collect();
        FlushRequest { files: vec![file], folders, journal_lines, can_wait: false }
    }

    /// How many lines an agent's journal has.
    pub(super) fn lines(&self, agent: &str) -> u64 {
        let end = self.open.get(agent).map(Journal::end).or_else(|| self.ends.get(agent));
        end.map_or(0, |end| end.lines)
    }

    /// An agent's events couldn't be flushed.
    pub(super) fn break_off(&mut self, agent: &str) {
        self.open.get_mut(agent).map(Journal::break_off);
    }

    /// Creates an agent's journal without a line; `None` if it exists.
    fn create(&mut self, agent: &str, faults: &FaultInjection) -> io::Result<Option<File>> {
        if self.ends.contains_key(agent) {
            return Ok(None);
        }
        faults.operation()?;
        let file = create_file(&self.root, &journal_file(agent))?;
        self.ends.insert(agent.to_owned(), JournalEnd::default());
        Ok(Some(file))
    }
}
