//! Events of GitHub: the file that Actions writes for a workflow.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::TriggerError;
use super::forms::{is_branch, is_commit, is_repository};
use super::input::{parse, server, variable};
use crate::outputs::trigger::{Branch, Forge, Subject, Trigger};
use crate::text::truncate::ellipsize;

/// Where GitHub's pages are.
const GITHUB: &str = "https://github.com";
const SERVER_URL: &str = "GITHUB_SERVER_URL";
const REPOSITORY: &str = "GITHUB_REPOSITORY";

/// What is read of an event. Which one it is shows in what it has.
#[derive(Deserialize)]
struct Event {
    repository: Option<Repository>,
    issue: Option<Issue>,
    pull_request: Option<PullRequest>,
    workflow_run: Option<WorkflowRun>,
    /// The pushed branch or tag, with `refs/`.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The pushed commit.
    after: Option<String>,
    schedule: Option<String>,
    action: Option<String>,
}

#[derive(Deserialize)]
struct Repository {
    full_name: String,
    html_url: Option<String>,
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    /// There if the issue is a pull request.
    pull_request: Option<Present>,
}

#[derive(Deserialize)]
struct Present {}

#[derive(Deserialize)]
struct PullRequest {
    number: u64,
    head: Option<PullBranch>,
    base: Option<PullBranch>,
}

#[derive(Deserialize)]
struct PullBranch {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    repo: Option<BranchRepository>,
}

/// Of the two names, a pull request has the first, and the short form in a workflow run the second.
#[derive(Deserialize)]
struct BranchRepository {
    full_name: Option<String>,
    /// The address of the repository in the API: `.../repos/OWNER/NAME`.
    url: Option<String>,
}

#[derive(Deserialize)]
struct WorkflowRun {
    head_branch: Option<String>,
    head_sha: Option<String>,
    head_repository: Option<BranchRepository>,
    /// Those of this repository whose branch it ran for: none for a fork's.
    #[serde(default)]
    pull_requests: Option<Vec<PullRequest>>,
}

/// The trigger in the text of an event file.
///
/// # Errors
/// Why it isn't an event.
pub(super) fn from_event(text: &[u8], variables: &BTreeMap<String, String>) -> Result<Trigger, String> {
    let event: Event = parse(text)?;
    let named = event.repository.as_ref().map(|repository| repository.full_name.as_str());
    let repository = named.or_else(|| variable(variables, REPOSITORY));
    let is_known = named.is_some() || event.schedule.is_some() || event.reference.is_some() || event.action.is_some();
    let Some(repository) = repository.filter(|_| is_known) else {
        return Err("it has no `repository`".to_owned());
    };
    if !is_repository(repository) || repository.matches('/').count() != 1 {
        return Err(format!("its repository `{}` isn't OWNER/NAME", ellipsize(repository, 80)));
    }
    let page = event.repository.as_ref().and_then(|found| found.html_url.as_deref());
    let from_page = page.and_then(|page| page.strip_suffix(repository)).unwrap_or(GITHUB);
    let server = server(variables, SERVER_URL, from_page).map_err(|error| error.to_string())?;
    let none = Trigger {
        forge: Forge::Github,
        repository: repository.to_owned(),
        server,
        subject: Subject::Other,
        number: None,
        head: None,
        base: None,
    };
    if let Some(pull) = event.pull_request {
        return of_pull_request(none, pull);
    }
    if let Some(issue) = event.issue {
        let subject = if issue.pull_request.is_some() { Subject::PullRequest } else { Subject::Issue };
        return Ok(Trigger { subject, number: Some(number(issue.number)?), ..none });
    }
    if let Some(run) = event.workflow_run {
        return of_workflow_run(none, run);
    }
    let pushed = event.reference.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
    let head = pushed.zip(event.after.as_deref()).filter(|(name, sha)| is_branch(name) && is_commit(sha));
    let head = head.map(|(name, sha)| Branch {
        name: name.to_owned(),
        sha: sha.to_owned(),
        repository: Some(none.repository.clone()),
    });
    Ok(Trigger { head, ..none })
}

/// The trigger where Actions has left no event file.
///
/// # Errors
/// A variable has no valid value.
pub(super) fn from_variables(variables: &BTreeMap<String, String>) -> Result<Trigger, TriggerError> {
    let repository = variable(variables, REPOSITORY).unwrap_or_default();
    if !is_repository(repository) || repository.matches('/').count() != 1 {
        let value = ellipsize(repository, 80);
        return Err(TriggerError::Variable { name: REPOSITORY, value, expected: "OWNER/NAME" });
    }
    Ok(Trigger {
        forge: Forge::Github,
        repository: repository.to_owned(),
        server: server(variables, SERVER_URL, GITHUB)?,
        subject: Subject::Other,
        number: None,
        head: None,
        base: None,
    })
}

fn of_pull_request(none: Trigger, pull: PullRequest) -> Result<Trigger, String> {
    let number = number(pull.number)?;
    let head = pull.head.map(|found| branch(found, "head")).transpose()?;
    let base = pull.base.map(|found| branch(found, "base")).transpose()?;
    Ok(Trigger { subject: Subject::PullRequest, number: Some(number), head, base, ..none })
}

fn of_workflow_run(none: Trigger, run: WorkflowRun) -> Result<Trigger, String> {
    // Pull requests of other repositories have the same branch where they are forks of this one.
    let is_ours = |pull: &PullRequest| {
        let repository = pull.base.as_ref().and_then(|base| name_of(base.repo.as_ref()?));
        repository.is_none_or(|name| name.eq_ignore_ascii_case(&none.repository))
    };
    let mut pulls = run.pull_requests.unwrap_or_default();
    pulls.retain(is_ours);
    if pulls.len() == 1
        && let Some(pull) = pulls.pop()
    {
        return of_pull_request(none, pull);
    }
    let head = run.head_branch.zip(run.head_sha).filter(|(name, sha)| is_branch(name) && is_commit(sha));
    let repository = run.head_repository.as_ref().and_then(name_of);
    let head = head.map(|(name, sha)| Branch { name, sha, repository });
    Ok(Trigger { head, ..none })
}

fn branch(found: PullBranch, side: &str) -> Result<Branch, String> {
    if !is_branch(&found.name) {
        return Err(format!("the name of its {side} branch can't be one of git"));
    }
    if !is_commit(&found.sha) {
        return Err(format!("the commit of its {side} branch isn't the id of one"));
    }
    let repository = found.repo.as_ref().and_then(name_of);
    Ok(Branch { name: found.name, sha: found.sha, repository })
}

fn name_of(repository: &BranchRepository) -> Option<String> {
    let from_url = || repository.url.as_deref()?.rsplit_once("/repos/").map(|(_, name)| name);
    let name = repository.full_name.as_deref().or_else(from_url)?;
    is_repository(name).then(|| name.to_owned())
}

fn number(number: u64) -> Result<u64, String> {
    match number {
        1..=9_007_199_254_740_991 => Ok(number),
        _ => Err(format!("{number} isn't the number of an issue or a pull request")),
    }
}
