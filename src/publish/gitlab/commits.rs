//! Commits, which GitLab makes with one request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::project::Gitlab;
use crate::outputs::{KindName, gitlab_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{BranchHead, BranchUpdate, CommitFile, ForgeFile, NewCommit};
use crate::publish::http_client::{Effect, encode};

const PROGRAM_MODE: &str = "100755";
const LINK_MODE: &str = "120000";

#[derive(Deserialize)]
struct Branch {
    commit: Commit,
}

#[derive(Deserialize)]
struct Commit {
    id: String,
    message: Option<String>,
    #[serde(default)]
    parent_ids: Vec<String>,
    web_url: Option<String>,
}

impl From<Commit> for BranchHead {
    fn from(found: Commit) -> Self {
        Self {
            sha: found.id,
            message: found.message.unwrap_or_default(),
            parents: found.parent_ids,
            url: found.web_url,
        }
    }
}

#[derive(Deserialize)]
struct File {
    content: String,
    encoding: String,
    blob_id: String,
    #[serde(default)]
    execute_filemode: bool,
}

pub(super) fn branch(gitlab: &Gitlab, name: &str) -> Result<Option<BranchHead>, Failure> {
    match gitlab.http.get::<Branch>(&format!("{}/repository/branches/{}", gitlab.root, encode(name)), &[]) {
        Err(Failure::Missing(_)) => Ok(None),
        found => Ok(Some(found?.commit.into())),
    }
}

pub(super) fn find(gitlab: &Gitlab, sha: &str) -> Result<Option<BranchHead>, Failure> {
    match gitlab.http.get::<Commit>(&format!("{}/repository/commits/{}", gitlab.root, encode(sha)), &[]) {
        Err(Failure::Missing(_)) => Ok(None),
        found => Ok(Some(found?.into())),
    }
}

/// A file with its content.
pub(super) fn file(gitlab: &Gitlab, commit: &str, path: &str) -> Result<Option<(ForgeFile, Vec<u8>)>, Failure> {
    let address = format!("{}/repository/files/{}", gitlab.root, encode(path));
    let found: File = match gitlab.http.get(&address, &[("ref", commit)]) {
        Err(Failure::Missing(_)) => return Ok(None),
        found => found?,
    };
    let unreadable = || Failure::Unclear("the forge's content of a file can't be read".to_owned());
    let content = match found.encoding.as_str() {
        "base64" => STANDARD.decode(found.content).map_err(|_| unreadable())?,
        _ => return Err(unreadable()),
    };
    // It doesn't tell a link from a file.
    let mode = found.execute_filemode.then(|| PROGRAM_MODE.to_owned());
    Ok(Some((ForgeFile { mode, object: found.blob_id }, content)))
}

pub(super) fn create(gitlab: &Gitlab, new: &NewCommit<'_>) -> Result<BranchHead, Failure> {
    let actions = new.files.iter().map(actions).collect::<Result<Vec<_>, _>>()?.concat();
    let mut content = json!({ "branch": new.branch, "commit_message": new.message, "actions": actions });
    match new.update {
        BranchUpdate::Create => content["start_sha"] = json!(new.base),
        BranchUpdate::Replace => {
            content["start_sha"] = json!(new.base);
            content["force"] = json!(true);
        }
        BranchUpdate::FastForward => {}
    }
    let path = format!("{}/repository/commits", gitlab.root);
    let made: Result<Commit, _> = gitlab.http.send(Effect::Content, &Method::POST, &path, &content);
    made.map(BranchHead::from).map_err(|failure| failure.needing(&gitlab_text(KindName::PullRequest)))
}

fn actions(file: &CommitFile) -> Result<Vec<Value>, Failure> {
    let Some(new) = &file.new else { return Ok(vec![json!({ "action": "delete", "file_path": file.path })]) };
    if new.mode == LINK_MODE {
        let what = format!("`{}` would be a symbolic link, which GitLab's API can't make", file.path);
        let hint = "nothing of the change is published; take it from the record with `legwork apply`";
        return Err(Failure::Refused(format!("{what}: {hint}")));
    }
    let is_program = new.mode == PROGRAM_MODE;
    let mode = json!({ "action": "chmod", "file_path": file.path, "execute_filemode": is_program });
    let Some(content) = &new.content else { return Ok(vec![mode]) };
    let action = if file.is_in_base { "update" } else { "create" };
    let content = STANDARD.encode(content);
    let write = json!({ "action": action, "file_path": file.path, "content": content, "encoding": "base64" });
    Ok(if file.is_in_base || is_program { vec![write, mode] } else { vec![write] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::forge::NewFile;

    #[test]
    fn a_link_is_refused_with_what_to_do() {
        let (mode, object) = (LINK_MODE.to_owned(), String::new());
        let new = Some(NewFile { mode, object, content: Some(b"target".to_vec()) });
        let link = CommitFile { path: "docs/link".to_owned(), is_in_base: false, new };
        let refused = "`docs/link` would be a symbolic link, which GitLab's API can't make: nothing of the change is published; take \
                       it from the record with `legwork apply`";
        assert_eq!(actions(&link), Err(Failure::Refused(refused.to_owned())));
        let removed = CommitFile { new: None, ..link };
        assert_eq!(actions(&removed), Ok(vec![json!({ "action": "delete", "file_path": "docs/link" })]));
    }
}
