//! The lines of the pull request that started a run, from the objects of its clone.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use crate::git::{GitProgram, changes_between};
use crate::outputs::{ChangedFile, ReviewLines, Trigger, TriggerChanges};

/// The lines of a pull request that can be commented on. They are read when they are needed for the first time.
pub(super) struct PullRequestLines {
    git: Option<GitProgram>,
    workspace: PathBuf,
    /// The commits of its two branches, if the event names them.
    commits: Option<(String, String)>,
    lines: OnceCell<Result<Arc<ReviewLines>, String>>,
}

impl PullRequestLines {
    /// For the trigger of a run in this workspace.
    pub(super) fn new(git: Option<GitProgram>, workspace: PathBuf, trigger: Option<&Trigger>) -> Self {
        let branches = trigger.and_then(|trigger| trigger.base.as_ref().zip(trigger.head.as_ref()));
        let commits = branches.map(|(base, head)| (base.sha.clone(), head.sha.clone()));
        Self { git, workspace, commits, lines: OnceCell::new() }
    }

    async fn read(&self) -> Result<Arc<ReviewLines>, String> {
        let (base, head) = self.commits.clone().ok_or("the event doesn't name the commits of both branches")?;
        let git = self.git.clone().ok_or("there is no git that no command of a run can change")?;
        let workspace = self.workspace.clone();
        let compared = tokio::task::spawn_blocking(move || changes_between(&git, &workspace, &base, &head));
        let files = compared.await.map_err(|error| error.to_string())??;
        let files: Vec<ChangedFile> = files
            .into_iter()
            .map(|file| ChangedFile { path: file.path, old_path: file.old_path, hunks: Some(file.hunks) })
            .collect();
        Ok(Arc::new(ReviewLines::new(&files)))
    }
}

impl TriggerChanges for PullRequestLines {
    fn review_lines(&self) -> BoxFuture<'_, Result<Arc<ReviewLines>, String>> {
        Box::pin(async { self.lines.get_or_init(|| self.read()).await.clone() })
    }
}
