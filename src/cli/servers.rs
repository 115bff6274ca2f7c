//! The user's own `providers.toml`: where it is, read once where a command needs it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Surroundings, input};
use crate::error::Error;
use crate::providers::named::{FILE, Read, Servers, unread};
use crate::{toml_file, yaml};

impl Surroundings {
    /// The servers that the user's own configuration names; none where there is no such file.
    ///
    /// # Errors
    /// The file has mistakes. Then it isn't known which variables hold keys, so nothing may run.
    pub(super) fn servers(&self) -> Result<&Servers, Error> {
        match self.read_servers() {
            Read { findings, .. } if !findings.is_empty() => Err(Error::Configuration(findings.clone())),
            Read { servers, .. } => Ok(servers),
        }
    }

    /// As [`Surroundings::servers`], with what is wrong beside those that are right.
    pub(super) fn read_servers(&self) -> &Read {
        self.servers.get_or_init(|| match self.servers_file() {
            Some(path) => read(&path),
            None => Read { servers: Servers::default(), findings: Vec::new() },
        })
    }

    /// Where the file is, or would be.
    pub(super) fn servers_file(&self) -> Option<PathBuf> {
        self.configuration_file(FILE)
    }

    /// Where a file of legwork's own configuration is, or would be: below `$XDG_CONFIG_HOME`, else below `~/.config`. A
    /// relative folder counts for nothing (<https://specifications.freedesktop.org/basedir/latest>).
    pub(super) fn configuration_file(&self, name: &str) -> Option<PathBuf> {
        let folder = |name: &str| self.variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let configuration = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
        Some(configuration.join("legwork").join(name))
    }
}

/// What to do about a file of one's own configuration that can't be read: nobody has named it.
pub(super) const UNREADABLE: &str = "let it be a regular file that you may read, or remove it";

fn read(path: &Path) -> Read {
    let name = path.to_string_lossy();
    // Who may not look into the folder has no configuration in it.
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied);
    if path.symlink_metadata().is_err_and(|error| is_absent(error.kind())) {
        return Read { servers: Servers::none_in(&name), findings: Vec::new() };
    }
    let source = match input::read_bounded(path, yaml::MAX_BYTES) {
        Ok(bytes) => toml_file::source(&name, &bytes),
        Err(why) => Err(input::unreadable(path, &why).help(UNREADABLE)),
    };
    match source {
        Ok(source) => Servers::read(&source),
        Err(finding) => Read { servers: Servers::unknown_in(&name), findings: vec![unread(finding)] },
    }
}
