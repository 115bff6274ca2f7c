//! `--result FILE`: writes the result of a run to a file.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::read_files::parent_folder;
use crate::error::Error;
use crate::event::RunResult;
use crate::plan::Plan;

/// The result file. It contains the result of this run or doesn't exist.
#[derive(Debug)]
pub(super) struct ResultFile {
    /// The path as the user wrote it.
    pub(super) path: PathBuf,
}

impl ResultFile {
    /// Removes the file of an earlier run, so that it can't be mistaken for this run's.
    pub(super) fn prepare(path: Option<&Path>) -> Result<Option<Self>, Error> {
        let Some(path) = path else { return Ok(None) };
        let file = Self { path: path.to_owned() };
        file.remove_stale()?;
        Ok(Some(file))
    }

    /// Creates the folder of the file, and checks that it is writable.
    pub(super) fn make_folder(&self) -> Result<(), Error> {
        let folder = parent_folder(&self.path);
        let refused = |error: io::Error| self.usage_error(&format!("can't write to {}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(refused)?;
        tempfile::tempfile_in(folder).map(drop).map_err(refused)
    }

    /// Refuses `--result` for a job without a result.
    pub(super) fn check_result_option(path: Option<&Path>, plan: &Plan) -> Result<(), Error> {
        match path {
            Some(path) if plan.parent.returns.is_none() => Err(Error::usage(
                format!("--result {}: the job `{}` has no `result`", path.display(), plan.job),
                "Add `result: { schema: ... }` to the job, or remove --result.",
            )),
            _ => Ok(()),
        }
    }

    /// Writes the result of a run atomically. A run without a result leaves no file.
    pub(super) fn write(&self, result: &RunResult) -> Result<(), Error> {
        let Some(data) = &result.result else { return self.remove_stale() };
        let written = || -> io::Result<()> {
            let mut json = serde_json::to_vec_pretty(data)?;
            json.push(b'\n');
            // As for any output file, the umask decides who may read it.
            let mode = Permissions::from_mode(0o666);
            let mut file = tempfile::Builder::new()
                .prefix(".legwork-")
                .permissions(mode)
                .tempfile_in(parent_folder(&self.path))?;
            file.write_all(&json)?;
            file.persist(&self.path)?;
            Ok(())
        };
        written().map_err(Error::environment(format!("can't write {}", self.path.display())))
    }

    fn remove_stale(&self) -> Result<(), Error> {
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| self.usage_error(&error.to_string()))?,
        };
        if !found.is_file() && !found.is_symlink() {
            return Err(self.usage_error("not a regular file"));
        }
        fs::remove_file(&self.path)
            .map_err(|error| self.usage_error(&format!("the existing file can't be replaced: {error}")))
    }

    fn usage_error(&self, why: &str) -> Error {
        Error::usage(
            format!("--result {}: {why}", self.path.display()),
            "Name a file in a folder that you can write to.",
        )
    }
}
