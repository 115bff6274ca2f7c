//! Runs the steps before an agent without the agent: for `run --before-only`, and for the steps that a map runs once for its rows.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::confinement::{ConfinedTools, RecordAccess};
use super::recording_sink::RunObserver;
use super::session::{Backends, Prepared, RunSetup};
use super::state_file::StateSource;
use super::way_out::way_out;
use crate::agent::{FILES_VARIABLE, NetworkDeps, RunAbort, RunDeps, RunState, StepDeps, write_event};
use crate::error::Error;
use crate::event::{Event, JournalEntry, Sink};
use crate::job::FILES_PART;
use crate::record::FILES_FOLDER;

/// Steps that have run without an agent.
#[derive(Debug)]
pub struct StepsRun {
    /// The values by name, without the folder of files.
    pub values: Map<String, Value>,
    /// Whether `skip_if` is true.
    pub is_skipped: bool,
}

impl RunSetup<'_> {
    /// Runs only the steps before the agent. No record is written: the files that they leave are in `files` in `folder`.
    ///
    /// # Errors
    /// The sandbox can't be used here, or the folder can't be created.
    pub async fn execute_steps(self, run_id: &str, folder: &Path) -> Result<Result<StepsRun, RunAbort>, Error> {
        let Self { prepared, confinement, backends, observers } = self;
        let Prepared { plan, mut secrets, given_steps, event, state, options, .. } = prepared;
        let state = state.as_ref().map(StateSource::start).unwrap_or_default();
        let Backends { host, signals, .. } = backends;
        let files = folder.join(FILES_FOLDER);
        match std::fs::create_dir(&files) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::Record { path: files, source: error });
            }
            _ => {}
        }
        if let Some(event) = &event {
            write_event(&files, event).map_err(|source| Error::Record { path: files.clone(), source })?;
        }
        let variable = (FILES_VARIABLE.to_owned(), files.to_string_lossy().into_owned());
        secrets.environment = secrets.environment.with_variables([variable]);
        let confined = confinement.for_record(&RecordAccess::read_only(folder), std::iter::empty())?.without_record();
        let mut tools = confined.open(Path::new(&plan.workspace), vec![folder.to_owned()], secrets, None)?;
        let egress = way_out(&plan, &options, 0, &host)?;
        tools.egress = plan.network.hosts().and(egress.clone());
        let network = NetworkDeps { egress, ..NetworkDeps::default() };
        let ConfinedTools { confine_steps, .. } = confined;
        let plan = plan.redacted(&tools.redactor);
        let sink = Arc::new(Shown { observers, clock: host.clock });
        let run = RunState::new(RunDeps {
            clock: host.clock,
            network,
            steps: StepDeps { confine: Some(confine_steps), files: Some(files), given: given_steps, state },
            stop: signals.stop.child_token(),
            ..RunDeps::new(run_id.to_owned(), plan, BTreeMap::new(), tools, sink)
        });
        let ended = run.run_steps().await;
        Ok(ended.map(|is_skipped| {
            let mut values = run.before_values().cloned().unwrap_or_default();
            values.shift_remove(FILES_PART);
            StepsRun { values, is_skipped }
        }))
    }
}

/// Shows events that no journal keeps.
struct Shown {
    observers: Vec<Arc<dyn RunObserver>>,
    clock: fn() -> Timestamp,
}

impl Sink for Shown {
    fn record(&self, agent: &str, event: Event) -> io::Result<()> {
        let entry = JournalEntry { seq: 1, at: (self.clock)(), suspended_ms: 0, agent: agent.to_owned(), event };
        self.observers.iter().for_each(|observer| observer.event(&entry));
        Ok(())
    }

    fn flush<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
