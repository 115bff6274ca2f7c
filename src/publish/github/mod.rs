//! GitHub's REST API.

mod checks;
mod comments;
mod git_objects;
mod issues;
mod pull_requests;
mod repository;
mod requests;
mod reviews;

use super::failure::Failure;
use super::forge::{
    BranchHead, CheckRun, Forge, ForgeFile, NewCommit, NewPullRequest, Post, PullRequest, Review, Settle, Target, Visit,
};
use super::http_client::NOT_ACCEPTED;
use super::mark::Mark;
use crate::outputs::ChangedFile;
use requests::{Repository, User};

pub(super) use repository::Github;

pub(super) use requests::HEADERS;

/// The login of the token that Actions makes for each job, which may not ask who it is.
pub(super) const ACTIONS_LOGIN: &str = "github-actions[bot]";

impl Forge for Github {
    fn login(&self) -> Result<String, Failure> {
        match self.http.get::<User>("/user", &[]) {
            // Its other requests would end in the same way.
            Err(Failure::Forbidden(why)) if why.starts_with(NOT_ACCEPTED) => Err(Failure::Forbidden(why)),
            Err(Failure::Forbidden(_)) if self.on_actions => Ok(ACTIONS_LOGIN.to_owned()),
            Err(Failure::Forbidden(why)) => {
                Err(Failure::Forbidden(format!("it may not ask; name its user with --login NAME ({why})")))
            }
            user => Ok(user?.login),
        }
    }

    fn default_branch(&self) -> Result<String, Failure> {
        let found: Repository = self.http.get(&self.root, &[])?;
        Ok(found.default_branch)
    }

    fn back_off(&self, attempt: u32) {
        self.http.back_off(attempt);
    }

    fn comments(&self, target: Target, visit: Visit<'_, Post>) -> Result<(), Failure> {
        comments::list(self, target.number, visit)
    }

    fn create_comment(&self, target: Target, body: &str) -> Result<Post, Failure> {
        comments::create(self, target.number, body)
    }

    fn update_comment(&self, _: Target, id: u64, body: &str) -> Result<Post, Failure> {
        comments::update(self, id, body)
    }

    fn issues_since(&self, since: jiff::Timestamp, visit: Visit<'_, Post>) -> Result<(), Failure> {
        issues::list_since(self, since, visit)
    }

    fn create_issue(&self, title: &str, body: &str, labels: &[String]) -> Result<Post, Failure> {
        issues::create(self, title, body, labels)
    }

    fn is_open(&self, target: Target) -> Result<bool, Failure> {
        issues::is_open(self, target.number)
    }

    fn close(&self, target: Target, reason: &str) -> Result<Post, Failure> {
        issues::close(self, target.number, reason)
    }

    fn labels(&self, target: Target) -> Result<Vec<String>, Failure> {
        issues::labels(self, target.number)
    }

    fn add_labels(&self, target: Target, labels: &[String]) -> Result<(), Failure> {
        issues::add_labels(self, target.number, labels)
    }

    fn remove_label(&self, target: Target, label: &str) -> Result<(), Failure> {
        issues::remove_label(self, target.number, label)
    }

    fn pull_request(&self, number: u64) -> Result<PullRequest, Failure> {
        pull_requests::get(self, number)
    }

    fn pull_requests_of(&self, repository: &str, branch: &str, visit: Visit<'_, PullRequest>) -> Result<(), Failure> {
        pull_requests::of_branch(self, repository, branch, visit)
    }

    fn create_pull_request(&self, new: &NewPullRequest) -> Result<Post, Failure> {
        pull_requests::create(self, new)
    }

    fn update_pull_request(&self, number: u64, title: &str, body: &str) -> Result<Post, Failure> {
        pull_requests::update(self, number, title, body)
    }

    fn changed_files(&self, number: u64) -> Result<Vec<ChangedFile>, Failure> {
        pull_requests::changed_files(self, number)
    }

    fn review(&self, number: u64, review: &Review, mark: &Mark, settle: &dyn Settle) -> Result<Post, Failure> {
        reviews::publish(self, number, review, mark, settle)
    }

    fn branch(&self, name: &str) -> Result<Option<BranchHead>, Failure> {
        git_objects::branch(self, name)
    }

    fn find_commit(&self, sha: &str) -> Result<Option<BranchHead>, Failure> {
        git_objects::find_commit(self, sha)
    }

    fn file(&self, commit: &str, path: &str) -> Result<Option<ForgeFile>, Failure> {
        git_objects::file(self, commit, path)
    }

    fn content(&self, _: &str, _: &str, file: &ForgeFile) -> Result<Vec<u8>, Failure> {
        git_objects::content(self, &file.object)
    }

    fn commit(&self, new: &NewCommit<'_>) -> Result<BranchHead, Failure> {
        git_objects::commit(self, new)
    }

    fn find_check(&self, check: &CheckRun) -> Result<Option<Post>, Failure> {
        checks::find(self, check)
    }

    fn create_check(&self, check: &CheckRun) -> Result<Post, Failure> {
        checks::create(self, check)
    }
}
