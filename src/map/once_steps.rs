//! The steps before the agent that a map runs once for all of its rows. Their values are in the map's folder, so that the same
//! command, and other processes, take them from there.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::map_plan::MapPlan;
use crate::error::Error;
use crate::record::{FILES_FOLDER, create_shared_file, open_file};
use crate::run::{ConnectedJob, Signals, start_runtime};

/// The file with the values.
const VALUES_FILE: &str = "before.json";
/// The version of its format.
const FORMAT: u32 = 1;
/// The largest file that is read: each of the steps can print 1 MiB, which JSON escapes.
const MAX_BYTES: u64 = 512 << 20;

/// The values of the steps that run once, and the folder with their files.
#[derive(Default)]
pub(super) struct OnceSteps {
    pub(super) values: Map<String, Value>,
    pub(super) files: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct ValuesFile {
    format: u32,
    values: Map<String, Value>,
}

impl OnceSteps {
    /// Takes the values from the map's folder, or runs the steps in the workspace that all rows start from. If two processes run
    /// them at the same time, all rows get what the first one writes.
    ///
    /// # Errors
    /// A step failed, or the file can't be used.
    pub(super) fn of(plan: &MapPlan, job: &ConnectedJob<'_>, signals: &Signals) -> Result<Self, Error> {
        let mut steps = plan.checked.first.plan.clone();
        steps.before.retain(|step| step.once);
        if steps.before.is_empty() {
            return Ok(Self::default());
        }
        let folder = &plan.folder.path;
        let failed = |source| Error::Record { path: folder.join(VALUES_FILE), source };
        if let Some(values) = Self::read(plan).map_err(failed)? {
            return Ok(values);
        }
        // Conditions and the prompt are those of the rows.
        steps.late.texts.clear();
        steps.workspace = job.checked.workspace.to_string_lossy().into_owned();
        let setup = job.set_up(steps, folder, signals.for_part())?;
        let runtime = start_runtime()?;
        let ended = runtime.block_on(setup.execute_steps("", folder));
        runtime.shutdown_background();
        let run = ended?.map_err(|abort| match signals.first() {
            Some(signal) => Error::StoppedAtStart { signal },
            None => Error::environment(abort.message)(io::Error::other("no row has started")),
        })?;
        let text = serde_json::to_vec(&ValuesFile { format: FORMAT, values: run.values })
            .map_err(|error| failed(error.into()))?;
        let opened = File::open(folder).map_err(failed)?;
        create_shared_file(opened.as_fd(), VALUES_FILE, &text, true).map_err(failed)?;
        Self::read(plan).map_err(failed)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    fn read(plan: &MapPlan) -> io::Result<Option<Self>> {
        let file = match open_file(&plan.folder.path, VALUES_FILE, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let read: ValuesFile = serde_json::from_reader(io::BufReader::new(file))?;
        let names = plan.checked.first.plan.before.iter().filter(|step| step.once).map(|step| &step.name);
        let missing = names.into_iter().find(|name| !read.values.contains_key(*name));
        if read.format != FORMAT || missing.is_some() {
            let why = "it isn't of this job: remove it, and the steps run again";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Some(Self { values: read.values, files: Some(plan.folder.path.join(FILES_FOLDER)) }))
    }
}
