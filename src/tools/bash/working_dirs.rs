//! The directories in which a command may run after `cd`.

use std::path::{Component, Path, PathBuf};

use super::ast::{Pipeline, SimpleCommand};

/// The most directories in which a command may run.
const MAX_DIRS: usize = 32;

/// Whether a command is `cd`.
pub(super) fn is_cd(command: &SimpleCommand) -> bool {
    command.words.first().is_some_and(|name| name == "cd")
}

/// The directories in which the next command may run, depending on whether the previous one succeeded.
pub(super) struct WorkingDirs {
    succeeded: Vec<PathBuf>,
    failed: Vec<PathBuf>,
    /// The operator before the next command.
    operator: &'static str,
}

impl WorkingDirs {
    /// Starts at the root of the workspace.
    pub(super) fn at(root: &Path) -> Self {
        Self { succeeded: vec![root.to_owned()], failed: Vec::new(), operator: ";" }
    }

    /// The directories in which the next command may run.
    pub(super) fn before(&mut self) -> &[PathBuf] {
        match self.operator {
            "&&" => &self.succeeded,
            "||" => &self.failed,
            _ => {
                let failed = std::mem::take(&mut self.failed);
                add(&mut self.succeeded, failed);
                &self.succeeded
            }
        }
    }

    /// Applies a pipeline. Each `cd` in it becomes `cd -P`, which resolves links as this does. By default, a shell resolves
    /// `link/..` to the folder that contains the link.
    pub(super) fn pass(&mut self, pipeline: &mut Pipeline, root: &Path) -> Result<(), String> {
        let before = self.before().to_vec();
        let mut after = before.clone();
        let is_single = pipeline.commands.len() == 1;
        for command in pipeline.commands.iter_mut().filter(|command| is_cd(command)) {
            let targets = resolve_cd(command, &before, root)?;
            // In a pipe, `cd` runs in a subshell.
            if is_single {
                after = targets;
            }
        }
        let (succeeded, failed) = if pipeline.negated { (before, after) } else { (after, before) };
        match self.operator {
            "&&" => {
                self.succeeded = succeeded;
                add(&mut self.failed, failed);
            }
            "||" => {
                add(&mut self.succeeded, succeeded);
                self.failed = failed;
            }
            _ => (self.succeeded, self.failed) = (succeeded, failed),
        }
        self.operator = pipeline.operator;
        if self.succeeded.len() + self.failed.len() > MAX_DIRS { Err("too many `cd`".to_owned()) } else { Ok(()) }
    }
}

fn add(folders: &mut Vec<PathBuf>, more: Vec<PathBuf>) {
    for folder in more {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
}

/// Where a `cd` leads from each of some directories.
fn resolve_cd(command: &mut SimpleCommand, from: &[PathBuf], root: &Path) -> Result<Vec<PathBuf>, String> {
    let [_, target] = command.words.as_slice() else { return Err("`cd` without exactly one argument".to_owned()) };
    if target.is_empty() || target.starts_with('-') {
        return Err(format!("`cd {target}`"));
    }
    let mut reached = Vec::new();
    for folder in from {
        let joined = folder.join(target);
        // A path that doesn't exist yet contains no links.
        let folder = joined.canonicalize().unwrap_or_else(|_| normalize(&joined));
        if !folder.starts_with(root) {
            return Err(format!("`cd {target}` (it may leave the workspace)"));
        }
        add(&mut reached, vec![folder]);
    }
    // The prefix `./` disables `CDPATH`.
    let explicit_target = if target.starts_with('/') { target.clone() } else { format!("./{target}") };
    command.words = ["cd", "-P", &explicit_target].map(str::to_owned).to_vec();
    Ok(reached)
}

fn normalize(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normalized.pop();
            }
            Component::CurDir => {}
            part => normalized.push(part),
        }
    }
    normalized
}
