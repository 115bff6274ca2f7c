//! GitLab's REST API.

mod commits;
mod issues;
mod merge_requests;
mod notes;
mod project;
mod requests;
mod reviews;
mod statuses;

use super::failure::Failure;
use super::forge::{
    BranchHead, CheckRun, Forge, ForgeFile, NewCommit, NewPullRequest, Post, PullRequest, Review, Settle, Target, Visit,
};
use super::mark::Mark;
use crate::outputs::ChangedFile;
use requests::{Project, User};

pub(super) use project::Gitlab;

pub(super) use requests::HEADERS;

impl Forge for Gitlab {
    fn login(&self) -> Result<String, Failure> {
        let user: User = self.http.get("/user", &[]).map_err(|failure| failure.needing("the scope `api`"))?;
        Ok(user.username)
    }

    fn default_branch(&self) -> Result<String, Failure> {
        let found: Project = self.http.get(&self.root, &[])?;
        Ok(found.default_branch)
    }

    fn back_off(&self, attempt: u32) {
        self.http.back_off(attempt);
    }

    fn comments(&self, target: Target, visit: Visit<'_, Post>) -> Result<(), Failure> {
        notes::list(self, target, visit)
    }

    fn create_comment(&self, target: Target, body: &str) -> Result<Post, Failure> {
        notes::create(self, target, body)
    }

    fn update_comment(&self, target: Target, id: u64, body: &str) -> Result<Post, Failure> {
        notes::update(self, target, id, body)
    }

    fn issues_since(&self, since: jiff::Timestamp, visit: Visit<'_, Post>) -> Result<(), Failure> {
        issues::list_since(self, since, visit)
    }

    fn create_issue(&self, title: &str, body: &str, labels: &[String]) -> Result<Post, Failure> {
        issues::create(self, title, body, labels)
    }

    fn is_open(&self, target: Target) -> Result<bool, Failure> {
        issues::is_open(self, target)
    }

    fn close(&self, target: Target, _: &str) -> Result<Post, Failure> {
        issues::close(self, target)
    }

    fn labels(&self, target: Target) -> Result<Vec<String>, Failure> {
        issues::labels(self, target)
    }

    fn add_labels(&self, target: Target, labels: &[String]) -> Result<(), Failure> {
        issues::change_labels(self, target, "add_labels", labels)
    }

    fn remove_label(&self, target: Target, label: &str) -> Result<(), Failure> {
        issues::change_labels(self, target, "remove_labels", &[label.to_owned()])
    }

    fn pull_request(&self, number: u64) -> Result<PullRequest, Failure> {
        merge_requests::get(self, number)
    }

    fn pull_requests_of(&self, repository: &str, branch: &str, visit: Visit<'_, PullRequest>) -> Result<(), Failure> {
        merge_requests::of_branch(self, repository, branch, visit)
    }

    fn create_pull_request(&self, new: &NewPullRequest) -> Result<Post, Failure> {
        merge_requests::create(self, new)
    }

    fn update_pull_request(&self, number: u64, title: &str, body: &str) -> Result<Post, Failure> {
        merge_requests::update(self, number, title, body)
    }

    fn changed_files(&self, number: u64) -> Result<Vec<ChangedFile>, Failure> {
        merge_requests::changed_files(self, number)
    }

    fn review(&self, number: u64, review: &Review, mark: &Mark, settle: &dyn Settle) -> Result<Post, Failure> {
        reviews::publish(self, number, review, mark, settle)
    }

    fn branch(&self, name: &str) -> Result<Option<BranchHead>, Failure> {
        commits::branch(self, name)
    }

    fn find_commit(&self, sha: &str) -> Result<Option<BranchHead>, Failure> {
        commits::find(self, sha)
    }

    fn file(&self, commit: &str, path: &str) -> Result<Option<ForgeFile>, Failure> {
        Ok(commits::file(self, commit, path)?.map(|(file, _)| file))
    }

    fn content(&self, commit: &str, path: &str, _: &ForgeFile) -> Result<Vec<u8>, Failure> {
        let found = commits::file(self, commit, path)?;
        found.map(|(_, content)| content).ok_or_else(|| Failure::Unclear("a file is gone".to_owned()))
    }

    fn commit(&self, new: &NewCommit<'_>) -> Result<BranchHead, Failure> {
        commits::create(self, new)
    }

    fn find_check(&self, check: &CheckRun) -> Result<Option<Post>, Failure> {
        statuses::find(self, check)
    }

    fn create_check(&self, check: &CheckRun) -> Result<Post, Failure> {
        statuses::create(self, check)
    }
}
