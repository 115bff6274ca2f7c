//! Finds out what started this process on a forge: from an event file, or from the variables of a CI system.
//!
//! Nothing here is asked of the forge. What strangers can choose, such as the name of a fork's branch, is only checked for its
//! form.

mod error;
mod forms;
mod github;
mod gitlab;
mod input;
mod written;

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;

pub use self::error::TriggerError;
pub use self::forms::{MAX_EVENT_BYTES, is_branch, is_commit, is_repository};
use self::input::{parse, variable};
use super::trigger::{Forge, Subject, Trigger};
use crate::text::bounded::read_at_most;

/// What is known about the start of this process.
#[derive(Debug, Clone, Copy)]
pub struct TriggerQuery<'a> {
    /// The file of an event, if the user names one.
    pub event: Option<&'a Path>,
    /// The forge, if the user names it.
    pub forge: Option<Forge>,
    /// The number of an issue or pull request, for events without one (a schedule, a workflow that follows another).
    pub number: Option<u64>,
    /// The environment variables.
    pub variables: &'a BTreeMap<String, String>,
}

impl TriggerQuery<'_> {
    /// What started this process; `None` if nothing says that it was started on a forge.
    ///
    /// # Errors
    /// If the event file can't be read or isn't an event, or the forge isn't known.
    pub fn trigger(&self) -> Result<Option<Trigger>, TriggerError> {
        let found = match self.event {
            Some(file) => Some(self.of_file(file)?),
            None => self.of_variables()?,
        };
        Ok(found.map(|trigger| self.with_number(trigger)))
    }

    /// A number that the user gives replaces that of the event.
    pub fn with_number(&self, trigger: Trigger) -> Trigger {
        match self.number {
            Some(number) if trigger.number != Some(number) => {
                // The branches are those of another one.
                let subject = if trigger.subject == Subject::Issue { Subject::Issue } else { Subject::PullRequest };
                Trigger { number: Some(number), subject, head: None, base: None, ..trigger }
            }
            _ => trigger,
        }
    }

    fn of_file(&self, path: &Path) -> Result<Trigger, TriggerError> {
        let text = read_event(path)?;
        let wrong = |why: String| TriggerError::NotAnEvent { path: path.to_owned(), why };
        let Kind { object_kind } = parse(&text).map_err(wrong)?;
        match object_kind {
            Some(_) => gitlab::from_webhook(&text, self.variables).map_err(wrong),
            None => github::from_event(&text, self.variables).map_err(wrong),
        }
    }

    /// The bytes of the event's file, if there is one.
    ///
    /// # Errors
    /// The file that the user names can't be read. That of a CI system may be out of reach in a container.
    pub fn event_text(&self) -> Result<Option<Vec<u8>>, TriggerError> {
        match (self.event, variable(self.variables, "GITHUB_EVENT_PATH")) {
            (Some(file), _) => read_event(file).map(Some),
            (None, Some(file)) => Ok(read_event(Path::new(file)).ok()),
            (None, None) => Ok(None),
        }
    }

    fn of_variables(&self) -> Result<Option<Trigger>, TriggerError> {
        let is_set = |name: &str| variable(self.variables, name).is_some();
        let on_github = is_set("GITHUB_REPOSITORY") || is_set("GITHUB_EVENT_PATH");
        let on_gitlab = is_set("CI_PROJECT_PATH");
        match (self.forge, on_github, on_gitlab) {
            (None, true, true) => Err(TriggerError::BothForges),
            (Some(Forge::Gitlab), _, true) | (None, false, true) => gitlab::from_variables(self.variables).map(Some),
            (Some(Forge::Github), true, _) | (None, true, false) => match variable(self.variables, "GITHUB_EVENT_PATH")
            {
                Some(file) => self.of_file(&PathBuf::from(file)).map(Some),
                None => github::from_variables(self.variables).map(Some),
            },
            _ => Ok(None),
        }
    }
}

/// What tells a webhook of GitLab from an event of GitHub.
#[derive(Deserialize)]
struct Kind {
    object_kind: Option<String>,
}

fn read_event(path: &Path) -> Result<Vec<u8>, TriggerError> {
    let unreadable = |source| TriggerError::Unreadable { path: path.to_owned(), source };
    let file = open_event(path).map_err(unreadable)?;
    let read = read_at_most(file, MAX_EVENT_BYTES).map_err(unreadable)?;
    read.ok_or_else(|| TriggerError::TooLarge { path: path.to_owned() })
}

/// Opens a regular file. Nothing is waited for: another program could have put a pipe there.
fn open_event(path: &Path) -> io::Result<File> {
    let require_file = |metadata: Metadata| match metadata.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::other("it isn't a regular file")),
    };
    require_file(fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    require_file(file.metadata()?)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
