//! Outputs that are the run's own changes: pull requests, and commits on the trigger's branch.

use super::commit_files::{commit_files, short};
use super::failure::Failure;
use super::forge::{
    BranchHead, BranchUpdate, CommitFile, Found, NewCommit, NewPullRequest, Post, PullRequest, Settle, Target,
};
use super::mark::Mark;
use super::publisher::{Publication, Publisher};
use crate::outputs::trigger_event::is_branch;
use crate::outputs::{Patch, Subject};

/// How often a branch is tried to be moved.
const MAX_ATTEMPTS: u32 = 4;
/// How many commits after ours are looked through.
const MAX_LATER_COMMITS: usize = 100;

/// The commit of an output, before it is made.
struct PlannedCommit<'a> {
    branch: &'a str,
    base: &'a str,
    message: &'a str,
    mark: &'a Mark,
    files: &'a [CommitFile],
}

impl Publisher<'_> {
    pub(super) fn pull_request(
        &self,
        publication: &Publication<'_>,
        title_prefix: &str,
        labels: &[String],
        draft: bool,
        update: bool,
    ) -> Result<Post, Failure> {
        let mark = publication.mark;
        let branch = if update {
            format!("legwork/{}/{}", mark.job, mark.key)
        } else {
            // In a map, each row has its own.
            let run = publication
                .submission
                .row
                .as_ref()
                .map_or_else(|| mark.run.clone(), |row| format!("{}/{row}", mark.run));
            format!("legwork/{}/{run}", mark.job)
        };
        if !is_branch(&branch) {
            return Err(Failure::Refused(format!("`{branch}` can't be the name of a branch")));
        }
        let title = format!("{title_prefix}{}", publication.text("title")?);
        let body = mark.append_to(publication.text("body")?);
        let base = self.base_branch()?;
        let message = mark.append_to_message(&title);
        self.commit_changes(publication, &branch, &message, update)?;
        let find = || self.find_pull_request(&branch, mark, update);
        let new = NewPullRequest { branch: branch.clone(), base, title, body, draft, labels: labels.to_vec() };
        let post = self.settle(&find, &|older| match older {
            Some(older) => self.forge.update_pull_request(older.id, &new.title, &new.body),
            None => self.forge.create_pull_request(&new),
        })?;
        self.set_labels(Target { subject: Subject::PullRequest, number: post.id }, labels, &[])?;
        Ok(post)
    }

    pub(super) fn push(&self, publication: &Publication<'_>) -> Result<Post, Failure> {
        let head = match (&self.trigger.head, self.trigger.subject) {
            (Some(head), Subject::Other) => head.clone(),
            _ => self.forge.pull_request(self.trigger_number()?)?.head,
        };
        if !self.is_ours(head.repository.as_deref()) {
            return Err(Failure::Refused("the branch is in a fork, which is never pushed to".to_owned()));
        }
        let (base, patch) = base_and_patch(publication)?;
        let message = publication.mark.append_to_message(publication.text("message")?);
        let files = commit_files(self.forge, base, patch)?;
        let commit =
            PlannedCommit { branch: &head.name, base, message: &message, mark: publication.mark, files: &files };
        let made = self.retry(|| {
            let now = self.forge.branch(&head.name)?;
            let now = now.ok_or_else(|| Failure::Refused(format!("there is no branch `{}` any more", head.name)))?;
            if now.sha == base {
                return self.forge.commit(&commit.with(BranchUpdate::FastForward));
            }
            self.find_in_history(now, &commit)
        })?;
        Ok(as_post(made))
    }

    /// Makes the commit of a pull request.
    fn commit_changes(
        &self,
        publication: &Publication<'_>,
        branch: &str,
        message: &str,
        update: bool,
    ) -> Result<BranchHead, Failure> {
        let (base, patch) = base_and_patch(publication)?;
        if let (Subject::PullRequest, Some(head)) = (self.trigger.subject, &self.trigger.head)
            && head.sha != base
        {
            return Err(Failure::Refused(format!(
                "the run worked on the commit {}, not on the head {} of the pull request: check that out before `legwork run` \
                 (with actions/checkout, `ref: ${{{{ github.event.pull_request.head.sha }}}}`)",
                short(base),
                short(&head.sha)
            )));
        }
        if self.forge.find_commit(base)?.is_none() {
            return Err(Failure::Refused(format!(
                "the forge doesn't have the commit {} that the run worked on: push it before the run",
                short(base)
            )));
        }
        let files = commit_files(self.forge, base, patch)?;
        let commit = PlannedCommit { branch, base, message, mark: publication.mark, files: &files };
        self.retry(|| match self.forge.branch(branch)? {
            None => self.forge.commit(&commit.with(BranchUpdate::Create)),
            Some(head) if self.is_this(&head, &commit)? => Ok(head),
            Some(head) if update && is_of_output(&head, commit.mark) => {
                self.forge.commit(&commit.with(BranchUpdate::Replace))
            }
            Some(_) => Err(Failure::Refused(format!(
                "the branch `{branch}` has a commit that this output didn't make: merge or delete it"
            ))),
        })
    }

    /// Whether the head of a branch is the commit of the output. Anyone who can push can write its message, so its files are
    /// compared, too.
    fn is_this(&self, head: &BranchHead, commit: &PlannedCommit<'_>) -> Result<bool, Failure> {
        if head.message.trim_end() != commit.message.trim_end() || head.parents != [commit.base] {
            return Ok(false);
        }
        for file in commit.files {
            let found = self.forge.file(&head.sha, &file.path)?;
            let is_same = match (&found, &file.new) {
                (None, None) => true,
                (Some(found), Some(new)) => {
                    found.object == new.object && found.mode.as_ref().is_none_or(|mode| *mode == new.mode)
                }
                _ => false,
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the commit below the head of a branch that others have pushed to since.
    fn find_in_history(&self, head: BranchHead, commit: &PlannedCommit<'_>) -> Result<BranchHead, Failure> {
        let name = commit.branch;
        let moved = || {
            Failure::Refused(format!(
                "the branch `{name}` isn't at the commit {} any more that the run worked on: run the job again",
                short(commit.base)
            ))
        };
        let mut next = Some(head);
        for _ in 0..MAX_LATER_COMMITS {
            let Some(found) = next else { break };
            if self.is_this(&found, commit)? {
                return Ok(found);
            }
            next = match found.parents.first() {
                Some(parent) if parent != commit.base => self.forge.find_commit(parent)?,
                _ => None,
            };
        }
        Err(moved())
    }

    fn find_pull_request(&self, branch: &str, mark: &Mark, update: bool) -> Result<Found, Failure> {
        let (mut found, mut foreign) = (Found::Nothing, false);
        self.forge.pull_requests_of(&self.trigger.repository, branch, &mut |pull: PullRequest| {
            match self.compare(&pull.post, mark, update) {
                Some(Found::Same(post)) => found = Found::Same(post),
                Some(Found::Older(post)) if pull.is_open => found = Found::Older(post),
                _ => foreign |= pull.is_open,
            }
            !matches!(found, Found::Same(_))
        })?;
        match found {
            Found::Nothing if foreign => {
                Err(Failure::Refused(format!("somebody else has a pull request from the branch `{branch}`")))
            }
            found => Ok(found),
        }
    }

    /// The branch that a pull request is for: that of the trigger's pull request, because the change builds on it, else the
    /// default branch.
    fn base_branch(&self) -> Result<String, Failure> {
        if self.trigger.subject != Subject::PullRequest {
            return self.forge.default_branch();
        }
        let head = match &self.trigger.head {
            Some(head) => head.clone(),
            None => self.forge.pull_request(self.trigger_number()?)?.head,
        };
        match self.is_ours(head.repository.as_deref()) {
            true => Ok(head.name),
            false => {
                Err(Failure::Refused("the pull request is from a fork, on which no pull request can build".to_owned()))
            }
        }
    }

    fn is_ours(&self, repository: Option<&str>) -> bool {
        repository.is_some_and(|name| name.eq_ignore_ascii_case(&self.trigger.repository))
    }

    fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut number = 0;
        loop {
            match attempt() {
                Err(Failure::Unclear(_)) if number + 1 < MAX_ATTEMPTS => {
                    self.forge.back_off(number);
                    number += 1;
                }
                done => return done,
            }
        }
    }
}

impl<'a> PlannedCommit<'a> {
    fn with(&self, update: BranchUpdate) -> NewCommit<'a> {
        NewCommit { branch: self.branch, update, base: self.base, message: self.message, files: self.files }
    }
}

/// The commit that the run started from, and its changes.
fn base_and_patch<'p>(publication: &Publication<'p>) -> Result<(&'p str, &'p str), Failure> {
    let Publication { submission, .. } = *publication;
    let patch = submission.patch.as_ref().map_err(|why| Failure::Refused(why.clone()))?;
    let base = submission.file.patch.as_ref().map(|Patch { base_commit, .. }| base_commit.as_str());
    let base = base.filter(|base| crate::outputs::trigger_event::is_commit(base));
    let base =
        base.ok_or_else(|| Failure::Refused("its record doesn't name the commit that the run worked on".to_owned()))?;
    Ok((base, patch))
}

fn is_of_output(head: &BranchHead, mark: &Mark) -> bool {
    Mark::of_message(&head.message).is_some_and(|found| found.is_same_output(mark))
}

fn as_post(head: BranchHead) -> Post {
    Post { id: 0, author: String::new(), body: String::new(), url: head.url }
}
