//! Commits that are made by the API: blobs, a tree, a commit, a reference. None has an author or committer of ours, so GitHub signs
//! them as the token's.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::repository::{Github, TreeEntry};
use crate::outputs::{KindName, github_text};
use crate::publish::commit_files::short;
use crate::publish::failure::Failure;
use crate::publish::forge::{BranchHead, BranchUpdate, CommitFile, ForgeFile, NewCommit};
use crate::publish::http_client::{Effect, encode_path};

const READ: &str = "`contents: read`";
/// The most trees that are kept.
const MAX_TREES: usize = 2_000;

#[derive(Deserialize)]
struct Tree {
    tree: Vec<TreeEntry>,
    #[serde(default)]
    truncated: bool,
}

#[derive(Deserialize)]
struct Object {
    sha: String,
}

#[derive(Deserialize)]
struct Reference {
    object: Object,
}

#[derive(Deserialize)]
struct Commit {
    sha: String,
    #[serde(default)]
    message: String,
    tree: Object,
    #[serde(default)]
    parents: Vec<Object>,
    html_url: Option<String>,
}

#[derive(Deserialize)]
struct Blob {
    content: String,
    encoding: String,
}

pub(super) fn branch(github: &Github, name: &str) -> Result<Option<BranchHead>, Failure> {
    let path = format!("{}/git/ref/heads/{}", github.root, encode_path(name));
    let found: Reference = match github.http.get(&path, &[]) {
        Err(Failure::Missing(_)) => return Ok(None),
        found => found.map_err(|failure: Failure| failure.needing(READ))?,
    };
    let commit = find_commit(github, &found.object.sha)?;
    commit.map(Some).ok_or_else(|| Failure::Unclear("the forge has a branch without its commit".to_owned()))
}

pub(super) fn find_commit(github: &Github, sha: &str) -> Result<Option<BranchHead>, Failure> {
    let Some(commit) = get_commit(github, sha)? else { return Ok(None) };
    let parents = commit.parents.into_iter().map(|parent| parent.sha).collect();
    Ok(Some(BranchHead { sha: commit.sha, message: commit.message, parents, url: commit.html_url }))
}

fn get_commit(github: &Github, sha: &str) -> Result<Option<Commit>, Failure> {
    match github.http.get(&format!("{}/git/commits/{}", github.root, encode_path(sha)), &[]) {
        Err(Failure::Missing(_)) => Ok(None),
        found => found.map(Some).map_err(|failure: Failure| failure.needing(READ)),
    }
}

pub(super) fn file(github: &Github, commit: &str, path: &str) -> Result<Option<ForgeFile>, Failure> {
    let Some(commit) = get_commit(github, commit)? else { return Ok(None) };
    let (mut tree, mut parts) = (commit.tree.sha, path.split('/').peekable());
    while let Some(part) = parts.next() {
        let entries = read_tree(github, &tree)?;
        let Some(entry) = entries.iter().find(|entry| entry.path == part) else { return Ok(None) };
        match (entry.kind.as_str(), parts.peek()) {
            ("tree", Some(_)) => tree = entry.sha.clone(),
            ("blob", None) => return Ok(Some(ForgeFile { mode: Some(entry.mode.clone()), object: entry.sha.clone() })),
            _ => return Err(Failure::Refused(format!("`{path}` isn't a file in the commit {}", short(&commit.sha)))),
        }
    }
    Ok(None)
}

fn read_tree(github: &Github, sha: &str) -> Result<Rc<Vec<TreeEntry>>, Failure> {
    if let Some(known) = github.trees.0.borrow().get(sha) {
        return Ok(Rc::clone(known));
    }
    let found: Tree = github.http.get(&format!("{}/git/trees/{}", github.root, encode_path(sha)), &[])?;
    if found.truncated {
        return Err(Failure::Refused("a folder has more files than the forge lists".to_owned()));
    }
    let entries = Rc::new(found.tree);
    let mut trees = github.trees.0.borrow_mut();
    if trees.len() < MAX_TREES {
        trees.insert(sha.to_owned(), Rc::clone(&entries));
    }
    Ok(entries)
}

pub(super) fn content(github: &Github, object: &str) -> Result<Vec<u8>, Failure> {
    let found: Blob = github.http.get(&format!("{}/git/blobs/{}", github.root, encode_path(object)), &[])?;
    let unreadable = || Failure::Unclear("the forge's content of a file can't be read".to_owned());
    match found.encoding.as_str() {
        "base64" => {
            let digits: Vec<u8> = found.content.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            STANDARD.decode(digits).map_err(|_| unreadable())
        }
        "utf-8" => Ok(found.content.into_bytes()),
        _ => Err(unreadable()),
    }
}

pub(super) fn commit(github: &Github, new: &NewCommit<'_>) -> Result<BranchHead, Failure> {
    let base = get_commit(github, new.base)?;
    let base = base.ok_or_else(|| Failure::Refused(format!("the forge has no commit {}", new.base)))?;
    let entries = new.files.iter().map(|file| tree_entry(github, file)).collect::<Result<Vec<Value>, _>>()?;
    let tree: Object = send(github, "trees", &json!({ "base_tree": base.tree.sha, "tree": entries }))?;
    let message = json!({ "message": new.message, "tree": tree.sha, "parents": [new.base] });
    let made: Commit = send(github, "commits", &message)?;
    let head = BranchHead {
        sha: made.sha.clone(),
        message: new.message.to_owned(),
        parents: vec![new.base.to_owned()],
        url: made.html_url,
    };
    let set: Result<Reference, _> = match new.update {
        BranchUpdate::Create => {
            let content = json!({ "ref": format!("refs/heads/{}", new.branch), "sha": made.sha });
            github.http.send(Effect::Content, &Method::POST, &format!("{}/git/refs", github.root), &content)
        }
        BranchUpdate::Replace | BranchUpdate::FastForward => {
            let path = format!("{}/git/refs/heads/{}", github.root, encode_path(new.branch));
            let content = json!({ "sha": made.sha, "force": new.update == BranchUpdate::Replace });
            github.http.send(Effect::Content, &Method::PATCH, &path, &content)
        }
    };
    let set = set.map_err(|failure| failure.needing(&github_text(KindName::Push)))?;
    if set.object.sha != head.sha {
        return Err(Failure::Unclear("the forge answered with another commit".to_owned()));
    }
    Ok(head)
}

fn tree_entry(github: &Github, file: &CommitFile) -> Result<Value, Failure> {
    let Some(new) = &file.new else {
        return Ok(json!({ "path": file.path, "mode": "100644", "type": "blob", "sha": null }));
    };
    if let Some(content) = &new.content {
        let body = json!({ "content": STANDARD.encode(content), "encoding": "base64" });
        let made: Object = send(github, "blobs", &body)?;
        if made.sha != new.object {
            return Err(Failure::Unclear("the forge gave a file another name than git does".to_owned()));
        }
    }
    Ok(json!({ "path": file.path, "mode": new.mode, "type": "blob", "sha": new.object }))
}

/// Creates an object. It can be sent again: it does nothing before a reference leads to it.
fn send<T: serde::de::DeserializeOwned>(github: &Github, kind: &str, content: &Value) -> Result<T, Failure> {
    let path = format!("{}/git/{kind}", github.root);
    let mut attempt = 0;
    loop {
        match github.http.send(Effect::GitObject, &Method::POST, &path, content) {
            Err(Failure::Unclear(_)) if attempt < 3 => {
                github.http.back_off(attempt);
                attempt += 1;
            }
            made => return made.map_err(|failure: Failure| failure.needing(&github_text(KindName::Push))),
        }
    }
}
