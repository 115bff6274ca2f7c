//! `--result FILE`: the data that a run ends with, alone in a file.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::event::RunResult;
use crate::plan::Plan;

/// The file, which holds this run's data or isn't there.
#[derive(Debug)]
pub(super) struct ResultFile {
    path: PathBuf,
}

impl ResultFile {
    /// Takes an earlier run's file away, so that nobody takes it for this one's.
    pub(super) fn prepare(path: Option<&Path>) -> Result<Option<Self>, Error> {
        let Some(path) = path else { return Ok(None) };
        let file = Self { path: path.to_owned() };
        file.remove_stale()?;
        Ok(Some(file))
    }

    /// Makes the folder that it is to be in, and makes sure that it can be written there.
    pub(super) fn make_folder(&self) -> Result<(), Error> {
        let above = self.parent_folder();
        let refused =
            |error: io::Error| self.usage_error(&format!("nothing can be written to {}: {error}", above.display()));
        fs::create_dir_all(above).map_err(refused)?;
        tempfile::tempfile_in(above).map(drop).map_err(refused)
    }

    /// Whether such a file can be written at all.
    pub(super) fn check_result_option(path: Option<&Path>, plan: &Plan) -> Result<(), Error> {
        match path {
            Some(path) if plan.parent.returns.is_none() => Err(Error::Usage {
                message: format!("--result {}: the job `{}` ends with a text, not with data", path.display(), plan.job),
                hint: Some("Say in the job what the data is, `result: { schema: ... }`, or leave out --result.".into()),
            }),
            _ => Ok(()),
        }
    }

    /// Writes what a run has ended with, whole or not at all. One that ended without data leaves no file.
    pub(super) fn write(&self, result: &RunResult) -> Result<(), Error> {
        let Some(data) = &result.result else { return self.remove_stale() };
        let written = || -> io::Result<()> {
            let mut json = serde_json::to_vec_pretty(data)?;
            json.push(b'\n');
            // As any file that a command is told to write: the umask says who may read it.
            let mode = Permissions::from_mode(0o666);
            let mut file =
                tempfile::Builder::new().prefix(".legwork-").permissions(mode).tempfile_in(self.parent_folder())?;
            file.write_all(&json)?;
            file.persist(&self.path)?;
            Ok(())
        };
        written().map_err(|source| Error::Environment {
            message: format!("{} can't be written", self.path.display()),
            source,
        })
    }

    /// Its path, as the user named it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn parent_folder(&self) -> &Path {
        self.path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn remove_stale(&self) -> Result<(), Error> {
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| self.usage_error(&error.to_string()))?,
        };
        if !found.is_file() && !found.is_symlink() {
            return Err(self.usage_error("it is no regular file"));
        }
        fs::remove_file(&self.path)
            .map_err(|error| self.usage_error(&format!("the file that is there can't be replaced: {error}")))
    }

    fn usage_error(&self, why: &str) -> Error {
        Error::Usage {
            message: format!("--result {}: {why}", self.path.display()),
            hint: Some("Name a file in a folder that you may write to.".into()),
        }
    }
}
