//! What publishing needs of a forge.

use super::failure::Failure;
use super::mark::Mark;
use crate::outputs::{Branch, Subject};
use crate::outputs::{ChangedFile, LineComment};

/// Something with a text that is on a forge: a comment, a review, an issue, a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// Its id, or its number.
    pub id: u64,
    /// Who wrote it; empty if nobody knows.
    pub author: String,
    /// Its text.
    pub body: String,
    /// The address of its page.
    pub url: Option<String>,
}

/// An issue or a pull request that something is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// What it is. On GitHub, both have the same numbers.
    pub subject: Subject,
    /// Its number.
    pub number: u64,
}

/// A pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// It, as what somebody wrote.
    pub post: Post,
    /// Whether it is open.
    pub is_open: bool,
    /// The branch with its commits.
    pub head: Branch,
}

/// A review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The commit that was read.
    pub commit: String,
    /// Its text, without a mark.
    pub body: String,
    /// Its comments.
    pub comments: Vec<LineComment>,
    /// Whether it asks for changes.
    pub requests_changes: bool,
}

/// What a pull request gets when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// The branch with its commit.
    pub branch: String,
    /// The branch that it is for.
    pub base: String,
    /// Its title.
    pub title: String,
    /// Its text, with the mark.
    pub body: String,
    /// Whether it is a draft.
    pub draft: bool,
    /// Its labels.
    pub labels: Vec<String>,
}

/// A file in a commit on the forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeFile {
    /// Its mode as git writes it; `None` if the forge doesn't say more than that it isn't a program.
    pub mode: Option<String>,
    /// The name of its content in git.
    pub object: String,
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFile {
    /// Its path in the repository.
    pub path: String,
    /// Whether the base commit has it.
    pub is_in_base: bool,
    /// What it is afterwards; `None` if it is deleted.
    pub new: Option<NewFile>,
}

/// A file after a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// Its mode as git writes it.
    pub mode: String,
    /// The name of its content in git.
    pub object: String,
    /// Its content; `None` if it is that of the base commit.
    pub content: Option<Vec<u8>>,
}

/// How a commit becomes the head of its branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchUpdate {
    /// The branch is created.
    Create,
    /// The branch is there, and what it has is replaced.
    Replace,
    /// The branch is at the commit's parent, and moves on.
    FastForward,
}

/// A commit that is to be made.
#[derive(Debug, Clone)]
pub struct NewCommit<'a> {
    /// The branch.
    pub branch: &'a str,
    /// How the branch gets it.
    pub update: BranchUpdate,
    /// Its parent.
    pub base: &'a str,
    /// Its message, with the mark.
    pub message: &'a str,
    /// Its files.
    pub files: &'a [CommitFile],
}

/// The head of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchHead {
    /// The commit.
    pub sha: String,
    /// Its message.
    pub message: String,
    /// Its parents.
    pub parents: Vec<String>,
    /// The address of its page.
    pub url: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    /// The commit.
    pub commit: String,
    /// The check's name.
    pub name: String,
    /// The run and the key.
    pub external_id: String,
    /// The conclusion, in the words of GitHub.
    pub conclusion: String,
    /// What it says.
    pub summary: String,
}

/// Looks for what a mark is on, and writes it if it isn't there: again only after it was looked up again.
pub trait Settle {
    /// Returns what `find` finds or `write` makes.
    ///
    /// # Errors
    /// Either fails for good.
    fn settle(
        &self,
        find: &dyn Fn() -> Result<Found, Failure>,
        write: &dyn Fn(Option<&Post>) -> Result<Post, Failure>,
    ) -> Result<Post, Failure>;

    /// What a post is for a mark.
    fn compare(&self, post: &Post, mark: &Mark, updates: bool) -> Option<Found>;
}

/// Takes the items of a list, until it returns false.
pub type Visit<'a, T> = &'a mut dyn FnMut(T) -> bool;

/// What was found on a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// What was to be published.
    Same(Post),
    /// What an earlier run has published, which is to be replaced.
    Older(Post),
}

/// A forge, in one repository.
pub trait Forge {
    /// The login of the token's own user.
    ///
    /// # Errors
    /// As [`Failure`] says, here and below.
    fn login(&self) -> Result<String, Failure>;
    /// The branch that pull requests are for.
    fn default_branch(&self) -> Result<String, Failure>;
    /// Waits before something is tried again.
    fn back_off(&self, attempt: u32);

    /// Passes the comments on an issue or a pull request to `visit`, until that returns false.
    fn comments(&self, target: Target, visit: Visit<'_, Post>) -> Result<(), Failure>;
    /// Writes a comment.
    fn create_comment(&self, target: Target, body: &str) -> Result<Post, Failure>;
    /// Replaces the text of a comment.
    fn update_comment(&self, target: Target, id: u64, body: &str) -> Result<Post, Failure>;

    /// Passes the issues that changed since a time to `visit`, until that returns false.
    fn issues_since(&self, since: jiff::Timestamp, visit: Visit<'_, Post>) -> Result<(), Failure>;
    /// Creates an issue.
    fn create_issue(&self, title: &str, body: &str, labels: &[String]) -> Result<Post, Failure>;
    /// Whether an issue is open.
    fn is_open(&self, target: Target) -> Result<bool, Failure>;
    /// Closes an issue.
    fn close(&self, target: Target, reason: &str) -> Result<Post, Failure>;
    /// The labels of an issue or a pull request.
    fn labels(&self, target: Target) -> Result<Vec<String>, Failure>;
    /// Adds labels.
    fn add_labels(&self, target: Target, labels: &[String]) -> Result<(), Failure>;
    /// Removes a label.
    fn remove_label(&self, target: Target, label: &str) -> Result<(), Failure>;

    /// A pull request.
    fn pull_request(&self, number: u64) -> Result<PullRequest, Failure>;
    /// Passes the pull requests of a branch in a repository to `visit`, until that returns false.
    fn pull_requests_of(&self, repository: &str, branch: &str, visit: Visit<'_, PullRequest>) -> Result<(), Failure>;
    /// Creates a pull request.
    fn create_pull_request(&self, new: &NewPullRequest) -> Result<Post, Failure>;
    /// Replaces title and text of a pull request.
    fn update_pull_request(&self, number: u64, title: &str, body: &str) -> Result<Post, Failure>;
    /// The files that a pull request changes.
    fn changed_files(&self, number: u64) -> Result<Vec<ChangedFile>, Failure>;
    /// Publishes a review.
    fn review(&self, number: u64, review: &Review, mark: &Mark, settle: &dyn Settle) -> Result<Post, Failure>;

    /// The head of a branch; `None` if there is no such branch.
    fn branch(&self, name: &str) -> Result<Option<BranchHead>, Failure>;
    /// A commit; `None` if the forge doesn't have it.
    fn find_commit(&self, sha: &str) -> Result<Option<BranchHead>, Failure>;
    /// A file in a commit; `None` if there is none at the path.
    fn file(&self, commit: &str, path: &str) -> Result<Option<ForgeFile>, Failure>;
    /// The content of a file in a commit.
    fn content(&self, commit: &str, path: &str, file: &ForgeFile) -> Result<Vec<u8>, Failure>;
    /// Makes a commit the head of a branch.
    fn commit(&self, new: &NewCommit<'_>) -> Result<BranchHead, Failure>;

    /// The address of a check with this content; `None` if there is none.
    fn find_check(&self, check: &CheckRun) -> Result<Option<Post>, Failure>;
    /// Publishes a check.
    fn create_check(&self, check: &CheckRun) -> Result<Post, Failure>;
}
