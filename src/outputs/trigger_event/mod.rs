//! Finds out what started this process on a forge: from an event file, or from the variables of a CI system.
//!
//! Nothing here is asked of the forge. What strangers can choose, such as the name of a fork's branch, is only checked for its
//! form.

mod error;
mod github;
mod gitlab;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use self::error::TriggerError;
use super::trigger::{Forge, Subject, Trigger};
use crate::text::bounded::read_at_most;

/// The largest event file in bytes. GitHub's webhooks have at most this.
pub const MAX_EVENT_BYTES: u64 = 25 << 20;

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
    fn with_number(&self, trigger: Trigger) -> Trigger {
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
    let file = File::open(path).map_err(unreadable)?;
    let read = read_at_most(file, MAX_EVENT_BYTES).map_err(unreadable)?;
    read.ok_or_else(|| TriggerError::TooLarge { path: path.to_owned() })
}

/// Reads JSON.
///
/// # Errors
/// What is wrong, and where. No text of the file is in it.
fn parse<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Result<T, String> {
    let start = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    if !start.is_empty() && start[0] != b'{' {
        return Err("it isn't a JSON object".to_owned());
    }
    serde_json::from_slice(start).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        match error.classify() {
            serde_json::error::Category::Eof if start.is_empty() => "it is empty".to_owned(),
            serde_json::error::Category::Eof => format!("the JSON is cut off at {place}"),
            serde_json::error::Category::Data => format!("at {place}, a value has another type than in an event"),
            _ => format!("it isn't JSON at {place}"),
        }
    })
}

/// The value of a variable that isn't empty.
fn variable<'v>(variables: &'v BTreeMap<String, String>, name: &str) -> Option<&'v str> {
    variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether this is the path of a repository: names of ordinary characters with slashes between them.
pub fn is_repository(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !matches!(name, "" | "." | "..") && name.bytes().all(is_allowed)
    };
    text.len() <= 512 && text.contains('/') && text.split('/').all(is_name)
}

/// Whether this is the id of a commit that exists: the one of zeros stands for none.
pub fn is_commit(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
    matches!(text.len(), 40 | 64) && is_hex && text.bytes().any(|byte| byte != b'0')
}

/// Whether this can be the name of a branch, as git checks it.
pub fn is_branch(text: &str) -> bool {
    let is_bad = |char: char| char.is_control() || " ~^:?*[\\".contains(char);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    text.len() <= 255
        && !text.contains(is_bad)
        && !text.contains("..")
        && !text.contains("@{")
        && !text.ends_with('.')
        && !text.starts_with('-')
        && text != "@"
        && text.split('/').all(is_part)
}

/// The address of a server, without a slash at its end.
///
/// # Errors
/// It isn't an address of the web.
fn server(variables: &BTreeMap<String, String>, name: &'static str, default: &str) -> Result<String, TriggerError> {
    let value = variable(variables, name).unwrap_or(default).trim_end_matches('/');
    let is_plain = value.len() <= 512 && value.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain && (value.starts_with("https://") || value.starts_with("http://")) {
        return Ok(value.to_owned());
    }
    let value = crate::text::truncate::ellipsize(value, 80);
    Err(TriggerError::Variable { name, value, expected: "the address of a server (https://...)" })
}

#[cfg(test)]
mod tests;
