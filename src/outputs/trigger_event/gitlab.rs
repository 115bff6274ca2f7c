//! What GitLab says about the start of a pipeline: the variables of its CI, or the body of a webhook.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::TriggerError;
use super::forms::{is_branch, is_commit, is_repository};
use super::input::{parse, server, variable};
use crate::outputs::trigger::{Branch, Forge, Subject, Trigger};
use crate::text::truncate::ellipsize;

/// Where GitLab's pages are.
const GITLAB: &str = "https://gitlab.com";
const SERVER_URL: &str = "CI_SERVER_URL";

/// The trigger in the variables of GitLab CI.
///
/// # Errors
/// A variable has no valid value.
pub(super) fn from_variables(variables: &BTreeMap<String, String>) -> Result<Trigger, TriggerError> {
    let get = |name: &'static str| variable(variables, name);
    let repository = path(variables, "CI_PROJECT_PATH")?.unwrap_or_default();
    let none = Trigger {
        forge: Forge::Gitlab,
        server: server(variables, SERVER_URL, GITLAB)?,
        subject: Subject::Other,
        number: None,
        head: None,
        base: None,
        repository,
    };
    let commit = get("CI_COMMIT_SHA").filter(|sha| is_commit(sha));
    let Some(iid) = get("CI_MERGE_REQUEST_IID") else {
        let head = get("CI_COMMIT_BRANCH").zip(commit).filter(|(name, _)| is_branch(name));
        let head = head.map(|(name, sha)| branch(name, sha, Some(none.repository.clone())));
        return Ok(Trigger { head, ..none });
    };
    let expected = "the number of a merge request";
    let number = iid.parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| TriggerError::Variable {
        name: "CI_MERGE_REQUEST_IID",
        value: ellipsize(iid, 80),
        expected,
    })?;
    // The merge request is in the project that it is for, which isn't the one of a fork's pipeline.
    let repository = path(variables, "CI_MERGE_REQUEST_PROJECT_PATH")?.unwrap_or_else(|| none.repository.clone());
    // Of a pipeline for merged results, CI_COMMIT_SHA is a commit that isn't in the branch.
    let head_sha = get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA").filter(|sha| is_commit(sha)).or(commit);
    let head = get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME").zip(head_sha).filter(|(name, _)| is_branch(name));
    let source = path(variables, "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH")?;
    let base_sha = get("CI_MERGE_REQUEST_TARGET_BRANCH_SHA").or_else(|| get("CI_MERGE_REQUEST_DIFF_BASE_SHA"));
    let base = get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME").zip(base_sha.filter(|sha| is_commit(sha)));
    Ok(Trigger {
        subject: Subject::PullRequest,
        number: Some(number),
        head: head.map(|(name, sha)| branch(name, sha, source)),
        base: base.filter(|(name, _)| is_branch(name)).map(|(name, sha)| branch(name, sha, Some(repository.clone()))),
        repository,
        ..none
    })
}

/// What is read of a webhook.
#[derive(Deserialize)]
struct Webhook {
    project: Option<Project>,
    object_attributes: Option<Attributes>,
    /// There if the object is a note on one.
    issue: Option<Numbered>,
    merge_request: Option<Attributes>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    after: Option<String>,
    object_kind: Option<String>,
}

#[derive(Deserialize)]
struct Project {
    path_with_namespace: String,
}

#[derive(Deserialize)]
struct Numbered {
    iid: u64,
}

#[derive(Deserialize)]
struct Attributes {
    iid: Option<u64>,
    source_branch: Option<String>,
    source: Option<Project>,
    last_commit: Option<Commit>,
}

#[derive(Deserialize)]
struct Commit {
    id: String,
}

/// The trigger in the body of a webhook, which GitLab passes to a pipeline as the file in `TRIGGER_PAYLOAD`.
///
/// # Errors
/// Why it isn't one.
pub(super) fn from_webhook(text: &[u8], variables: &BTreeMap<String, String>) -> Result<Trigger, String> {
    let hook: Webhook = parse(text)?;
    let project = hook.project.map(|project| project.path_with_namespace).ok_or("it has no `project`")?;
    if !is_repository(&project) {
        return Err(format!("its project `{}` isn't a path", ellipsize(&project, 80)));
    }
    let none = Trigger {
        forge: Forge::Gitlab,
        server: server(variables, SERVER_URL, GITLAB).map_err(|error| error.to_string())?,
        repository: project,
        subject: Subject::Other,
        number: None,
        head: None,
        base: None,
    };
    let merge_request = match hook.object_kind.as_deref() {
        Some("merge_request") => hook.object_attributes,
        Some("issue") => {
            let iid = hook.object_attributes.and_then(|attributes| attributes.iid);
            let number = Some(iid.filter(|iid| *iid > 0).ok_or("its issue has no `iid`")?);
            return Ok(Trigger { subject: Subject::Issue, number, ..none });
        }
        _ => hook.merge_request,
    };
    if let Some(request) = merge_request {
        let number = Some(request.iid.filter(|iid| *iid > 0).ok_or("its merge request has no `iid`")?);
        let head = request.source_branch.zip(request.last_commit.map(|commit| commit.id));
        let source = request.source.map(|source| source.path_with_namespace).filter(|path| is_repository(path));
        let head = head.filter(|(name, sha)| is_branch(name) && is_commit(sha));
        let head = head.map(|(name, sha)| branch(&name, &sha, source));
        return Ok(Trigger { subject: Subject::PullRequest, number, head, ..none });
    }
    if let Some(issue) = hook.issue {
        return Ok(Trigger { subject: Subject::Issue, number: Some(issue.iid), ..none });
    }
    let pushed = hook.reference.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
    let head = pushed.zip(hook.after.as_deref()).filter(|(name, sha)| is_branch(name) && is_commit(sha));
    let head = head.map(|(name, sha)| branch(name, sha, Some(none.repository.clone())));
    Ok(Trigger { head, ..none })
}

fn branch(name: &str, sha: &str, repository: Option<String>) -> Branch {
    Branch { name: name.to_owned(), sha: sha.to_owned(), repository }
}

/// The path of a project in a variable.
fn path(variables: &BTreeMap<String, String>, name: &'static str) -> Result<Option<String>, TriggerError> {
    match variable(variables, name) {
        Some(value) if !is_repository(value) => {
            Err(TriggerError::Variable { name, value: ellipsize(value, 80), expected: "the path of a project" })
        }
        value => Ok(value.map(str::to_owned)),
    }
}
