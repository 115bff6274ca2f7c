//! `legwork show --follow`: shows a run while it runs in another process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::print::{print, write_failed};
use crate::cli::env::CliEnv;
use crate::cli::output::shell_quote;
use crate::conversation::{AgentReader, MAX_SHOWN_CHARS};
use crate::error::Error;
use crate::event::{Event, JournalEntry, PARENT, RunFinished, is_agent_id};
use crate::plan::Plan;
use crate::record::{JournalTail, Record, RunWatch};
use crate::reports::conversation_text::{Progress, Target};

/// How often the journals are read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// An agent that is followed.
struct Followed<'p> {
    tail: JournalTail,
    reader: AgentReader<'p>,
    progress: Progress,
}

impl<'p> Followed<'p> {
    fn new(folder: &Path, plan: &'p Plan, id: &str) -> Self {
        let reader = AgentReader::new(plan, id, MAX_SHOWN_CHARS);
        Self { tail: JournalTail::new(folder, id), reader, progress: Progress::default() }
    }
}

/// Shows an agent until the run has ended, or no process runs it any more. With the parent, the calls of its subagents are shown
/// in a line each.
pub(super) fn follow(folder: &Path, agent: Option<&str>, target: Target, env: &CliEnv) -> Result<(), Error> {
    let mut watch = RunWatch::new(folder);
    let plan = loop {
        let is_running = watch.is_running();
        match Record::open_damaged(folder) {
            Ok(record) => break record.plan,
            // It has just been started.
            Err(error @ Error::OtherFormat { .. }) => return Err(error),
            Err(error) if !is_running => return Err(error),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    };
    let id = agent.unwrap_or(PARENT);
    if !is_agent_id(id) || plan.agent(id).is_none() {
        let names: Vec<String> = plan.subagents.keys().map(|name| format!("{name}-1")).collect();
        let hint = format!("It can have: {}.", [vec![PARENT.to_owned()], names].concat().join(", "));
        return Err(Error::usage(format!("the run has no agent `{id}`"), hint));
    }
    let mut shown = Followed::new(folder, &plan, id);
    let mut children: BTreeMap<String, Followed<'_>> = BTreeMap::new();
    let mut run = RunEnd { tail: JournalTail::new(folder, PARENT), end: None, started: BTreeSet::new() };
    loop {
        // In this order, everything that the process wrote is read.
        let is_running = watch.is_running();
        run.read()?;
        shown.tail.read(|entry| shown.reader.add(entry))?;
        if id == PARENT {
            for child in &run.started {
                children.entry(child.clone()).or_insert_with(|| Followed::new(folder, &plan, child));
            }
        }
        let has_ended = run.end.is_some() || !is_running;
        let mut text = Vec::new();
        for child in children.values_mut() {
            child.tail.read(|entry| child.reader.add(entry))?;
        }
        let write_child = |child: &str, out: &mut dyn Write| match children.get_mut(child) {
            Some(child) => child.progress.write_calls(child.reader.agent(), target, out),
            None => Ok(()),
        };
        let write = shown.progress.write(&plan, has_ended, shown.reader.agent(), target, &mut text, write_child);
        write.map_err(write_failed)?;
        for child in children.values_mut() {
            child.progress.write_calls(child.reader.agent(), target, &mut text).map_err(write_failed)?;
        }
        print(&String::from_utf8_lossy(&text), target, env);
        if let Some(end) = &run.end {
            env.console.eprint(&format!("The run has ended: {}.", end.outcome));
            return Ok(());
        }
        if !is_running {
            let command = format!("legwork resume {}", shell_quote(folder));
            env.console.warning(&format!("no process runs this run any more, and it hasn't ended: `{command}`"));
            return Ok(());
        }
        if env.console.wait_while_read(POLL_INTERVAL) {
            return Ok(());
        }
    }
}

/// What the parent's journal says about the run.
struct RunEnd {
    tail: JournalTail,
    end: Option<RunFinished>,
    /// The subagents that were started.
    started: BTreeSet<String>,
}

impl RunEnd {
    fn read(&mut self) -> Result<(), Error> {
        let (end, started) = (&mut self.end, &mut self.started);
        self.tail.read(|JournalEntry { event, .. }| match event {
            Event::RunFinished(finished) => *end = Some(finished),
            // The run continues after an earlier end.
            Event::Resumed(_) => *end = None,
            Event::CallStarted(call) => started.extend(call.child),
            _ => {}
        })
    }
}
