//! The user's own `providers.toml`: where it is, read once where a command needs it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{CliEnv, read_files};
use crate::error::Error;
use crate::providers::user_servers::{FILE_NAME, ParsedServers, UserServers, unreadable};
use crate::{toml_file, yaml};

impl CliEnv {
    /// The servers that the user's own configuration names; none where there is no such file.
    ///
    /// # Errors
    /// The file has mistakes. Then it isn't known which variables hold keys, so nothing may run.
    pub(super) fn user_servers(&self) -> Result<&UserServers, Error> {
        match self.user_servers_with_findings() {
            ParsedServers { findings, .. } if !findings.is_empty() => Err(Error::Configuration(findings.clone())),
            ParsedServers { servers, .. } => Ok(servers),
        }
    }

    /// As [`CliEnv::servers`], with what is wrong beside those that are right.
    pub(super) fn user_servers_with_findings(&self) -> &ParsedServers {
        self.servers.get_or_init(|| match self.providers_file() {
            Some(path) => read_providers_file(&path),
            None => ParsedServers { servers: UserServers::default(), findings: Vec::new() },
        })
    }

    /// Where the file is, or would be.
    pub(super) fn providers_file(&self) -> Option<PathBuf> {
        self.config_file(FILE_NAME)
    }

    /// Where a file of legwork's own configuration is, or would be: below `$XDG_CONFIG_HOME`, else below `~/.config`. A
    /// relative folder counts for nothing (<https://specifications.freedesktop.org/basedir/latest>).
    pub(super) fn config_file(&self, name: &str) -> Option<PathBuf> {
        let folder = |name: &str| self.variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let configuration = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
        Some(configuration.join("legwork").join(name))
    }
}

/// What to do about a file of one's own configuration that can't be read: nobody has named it.
pub(super) const UNREADABLE_CONFIG_HELP: &str = "let it be a regular file that you may read, or remove it";

fn read_providers_file(path: &Path) -> ParsedServers {
    let name = path.to_string_lossy();
    // Who may not look into the folder has no configuration in it.
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied);
    if path.symlink_metadata().is_err_and(|error| is_absent(error.kind())) {
        return ParsedServers { servers: UserServers::empty_in(&name), findings: Vec::new() };
    }
    let source = match read_files::read_bounded(path, yaml::MAX_BYTES) {
        Ok(bytes) => toml_file::read_source(&name, &bytes),
        Err(why) => Err(read_files::unreadable_file(path, &why).help(UNREADABLE_CONFIG_HELP)),
    };
    match source {
        Ok(source) => UserServers::read(&source),
        Err(finding) => {
            ParsedServers { servers: UserServers::unreadable_in(&name), findings: vec![unreadable(finding)] }
        }
    }
}
