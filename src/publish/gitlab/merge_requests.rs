//! Merge requests.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::issues::joined;
use super::project::Gitlab;
use super::requests::Issue;
use crate::outputs::{Branch, ChangedFile, KindName, Subject, gitlab_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{NewPullRequest, Post, PullRequest, Target, Visit};
use crate::publish::http_client::Effect;

/// The most files of a merge request that are read.
const MAX_FILES: usize = 3_000;

/// A merge request.
#[derive(Deserialize)]
pub(super) struct MergeRequest {
    #[serde(flatten)]
    issue: Issue,
    source_branch: String,
    #[serde(default)]
    draft: bool,
    sha: Option<String>,
    source_project_id: Option<u64>,
    target_project_id: Option<u64>,
    pub(super) diff_refs: Option<DiffRefs>,
}

/// The commits of a merge request's changes.
#[derive(Clone, Deserialize)]
pub(super) struct DiffRefs {
    pub(super) base_sha: String,
    pub(super) start_sha: String,
    pub(super) head_sha: String,
}

impl MergeRequest {
    fn into_pull_request(self, project: &str) -> PullRequest {
        // Another project is a fork; its name isn't needed.
        let is_ours = self.source_project_id.is_some() && self.source_project_id == self.target_project_id;
        PullRequest {
            is_open: self.issue.state == "opened",
            head: Branch {
                name: self.source_branch,
                sha: self.sha.unwrap_or_default(),
                repository: is_ours.then(|| project.to_owned()),
            },
            post: self.issue.into(),
        }
    }
}

pub(super) fn find(gitlab: &Gitlab, number: u64) -> Result<MergeRequest, Failure> {
    let target = Target { subject: Subject::PullRequest, number };
    let found: Result<MergeRequest, _> = gitlab.http.get(&gitlab.path_of(target), &[]);
    found.map_err(|failure| failure.needing("the scope `api`").when_missing(|| gitlab.absent(target)))
}

pub(super) fn get(gitlab: &Gitlab, number: u64) -> Result<PullRequest, Failure> {
    Ok(find(gitlab, number)?.into_pull_request(&gitlab.project))
}

pub(super) fn of_branch(
    gitlab: &Gitlab,
    repository: &str,
    branch: &str,
    visit: Visit<'_, PullRequest>,
) -> Result<(), Failure> {
    let is_ours = repository.eq_ignore_ascii_case(&gitlab.project);
    let query = [("state", "all"), ("source_branch", branch)];
    let mut visit_own = |found: MergeRequest| {
        let found = found.into_pull_request(&gitlab.project);
        found.head.name != branch || found.head.repository.is_some() != is_ours || visit(found)
    };
    gitlab.http.list(&format!("{}/merge_requests", gitlab.root), &query, &mut visit_own)
}

pub(super) fn create(gitlab: &Gitlab, new: &NewPullRequest) -> Result<Post, Failure> {
    let title = title_of(&new.title, new.draft);
    let content = json!({
        "source_branch": new.branch,
        "target_branch": new.base,
        "title": title,
        "description": new.body,
        "labels": joined(&new.labels)?,
    });
    let path = format!("{}/merge_requests", gitlab.root);
    let made: Result<MergeRequest, _> = gitlab.http.send(Effect::Content, &Method::POST, &path, &content);
    made.map(|made| made.issue.into()).map_err(|failure| failure.needing(&gitlab_text(KindName::PullRequest)))
}

pub(super) fn update(gitlab: &Gitlab, number: u64, title: &str, body: &str) -> Result<Post, Failure> {
    let target = Target { subject: Subject::PullRequest, number };
    // It stays a draft, or ready if somebody has made it so.
    let content = json!({ "title": title_of(title, find(gitlab, number)?.draft), "description": body });
    let made: Result<MergeRequest, _> =
        gitlab.http.send(Effect::Content, &Method::PUT, &gitlab.path_of(target), &content);
    made.map(|made| made.issue.into()).map_err(|failure| failure.needing(&gitlab_text(KindName::PullRequest)))
}

/// The title of a merge request. GitLab knows drafts by it.
fn title_of(title: &str, is_draft: bool) -> String {
    if is_draft { format!("Draft: {title}") } else { title.to_owned() }
}

#[derive(Deserialize)]
struct Diff {
    old_path: String,
    new_path: String,
    diff: Option<String>,
}

pub(super) fn changed_files(gitlab: &Gitlab, number: u64) -> Result<Vec<ChangedFile>, Failure> {
    let path = format!("{}/merge_requests/{number}/diffs", gitlab.root);
    let mut files = Vec::new();
    gitlab.http.list(&path, &[], &mut |diff: Diff| {
        files.push(ChangedFile { path: diff.new_path, old_path: diff.old_path, hunks: diff.diff });
        files.len() < MAX_FILES
    })?;
    Ok(files)
}
