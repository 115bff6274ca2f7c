//! Where `cd` leads, as far as can be told before a command runs.

use std::path::{Component, Path, PathBuf};

use super::ast::{Pipeline, SimpleCommand};

/// How many folders a command may stand in.
const MAX_FOLDERS: usize = 32;

/// Whether it changes the folder.
pub(super) fn is_cd(command: &SimpleCommand) -> bool {
    command.words.first().is_some_and(|name| name == "cd")
}

/// The folders that a command can stand in, by how the one before it ended.
pub(super) struct WorkingDirs {
    succeeded: Vec<PathBuf>,
    failed: Vec<PathBuf>,
    /// What stands before the next command.
    operator: &'static str,
}

impl WorkingDirs {
    /// At the workspace's top.
    pub(super) fn at(root: &Path) -> Self {
        Self { succeeded: vec![root.to_owned()], failed: Vec::new(), operator: ";" }
    }

    /// Where the next command can be.
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

    /// Follows a pipeline. Every `cd` in it is made one that goes the way of the links on disk, as this does: a shell
    /// takes `link/..` for the folder that the link lies in.
    pub(super) fn pass(&mut self, pipeline: &mut Pipeline, root: &Path) -> Result<(), String> {
        let before = self.before().to_vec();
        let mut after = before.clone();
        let alone = pipeline.commands.len() == 1;
        for command in pipeline.commands.iter_mut().filter(|command| is_cd(command)) {
            let reached = resolve_cd(command, &before, root)?;
            // In a pipe it is a process of its own that changes its folder.
            if alone {
                after = reached;
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
        if self.succeeded.len() + self.failed.len() > MAX_FOLDERS { Err("too many `cd`".to_owned()) } else { Ok(()) }
    }
}

fn add(folders: &mut Vec<PathBuf>, more: Vec<PathBuf>) {
    for folder in more {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
}

/// Where a `cd` leads from each of the folders.
fn resolve_cd(command: &mut SimpleCommand, from: &[PathBuf], root: &Path) -> Result<Vec<PathBuf>, String> {
    let [_, target] = command.words.as_slice() else { return Err("`cd` without exactly one folder".to_owned()) };
    if target.is_empty() || target.starts_with('-') {
        return Err(format!("`cd {target}`"));
    }
    let mut reached = Vec::new();
    for folder in from {
        let joined = folder.join(target);
        // What doesn't exist yet can't be a link.
        let folder = joined.canonicalize().unwrap_or_else(|_| without_dots(&joined));
        if !folder.starts_with(root) {
            return Err(format!("`cd {target}` (it may lead out of the workspace)"));
        }
        add(&mut reached, vec![folder]);
    }
    // With `./` before it, no `CDPATH` is searched.
    let from_here = if target.starts_with('/') { target.clone() } else { format!("./{target}") };
    command.words = ["cd", "-P", &from_here].map(str::to_owned).to_vec();
    Ok(reached)
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
