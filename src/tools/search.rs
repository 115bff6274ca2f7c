//! The walk that `glob` and `grep` share: what ignore files say holds, and nothing outside the workspace is followed.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};

use super::{CallLimits, Refusal, Workspace};

/// Where to look.
pub(super) struct Search<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) limits: &'a CallLimits,
    /// Canonical path from the root: a folder, or one file.
    pub(super) base: PathBuf,
    /// Whether hidden files are looked at.
    pub(super) hidden: bool,
    /// Looks only at files that this allows.
    pub(super) only: Option<Override>,
}

/// Something beneath the base.
pub(super) struct Entry {
    /// Path from the root.
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
    pub(super) is_file: bool,
}

/// A visitor's wish to end the walk.
pub(super) struct Enough;

impl Search<'_> {
    /// Visits everything beneath the base in the order of the names. Gives the reason if the run's end cut it short.
    pub(super) fn walk(
        &self,
        mut visit: impl FnMut(Entry) -> Result<(), Enough>,
    ) -> Result<Option<&'static str>, Refusal> {
        if self.workspace.passed_over().holds(&self.base) {
            return Err(Refusal(format!("`{}` is left out of searches", self.base.display())));
        }
        let root = self.workspace.root().to_owned();
        let mut builder =
            WalkBuilder::new(if self.base == Path::new(".") { root.clone() } else { root.join(&self.base) });
        // Ignore files of the repository hold, those of whoever runs us don't. They hold without a repository, too.
        builder.git_global(false).require_git(false).hidden(!self.hidden).follow_links(false);
        builder.sort_by_file_name(Ord::cmp);
        if let Some(only) = &self.only {
            builder.overrides(only.clone());
        }
        let passed_over = self.workspace.passed_over();
        let walked = root.clone();
        builder.filter_entry(move |entry| {
            entry.depth() == 0 || !entry.path().strip_prefix(&walked).is_ok_and(|path| passed_over.holds(path))
        });
        for (count, entry) in builder.build().enumerate() {
            if count % 256 == 255
                && let Some(why) = self.limits.over()
            {
                return Ok(Some(why));
            }
            // What can't be read is no match.
            let Ok(entry) = entry else { continue };
            let Ok(path) = entry.path().strip_prefix(&root) else { continue };
            let kind = entry.file_type();
            let is_folder = kind.is_some_and(|kind| kind.is_dir());
            if entry.depth() == 0 && is_folder {
                continue;
            }
            let is_file = kind.is_some_and(|kind| kind.is_file());
            if visit(Entry { path: path.to_owned(), is_folder, is_file }).is_err() {
                break;
            }
        }
        Ok(None)
    }
}

/// Reads a glob in the manner of ignore files: `*.rs` at any depth, `!*.rs` for all others.
pub(super) fn only(glob: &str, workspace: &Workspace) -> Result<Override, Refusal> {
    let mut builder = OverrideBuilder::new(workspace.root());
    let built = builder.add(glob).and_then(|builder| builder.build());
    built.map_err(|error| Refusal(format!("bad glob: {error}")))
}
