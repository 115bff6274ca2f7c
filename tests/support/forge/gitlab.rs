//! GitLab. Each request is checked against what GitLab documents of its API.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::git::{Commit, Entry, Git};
use super::{Api, ForgeAnswer, ForgeRequest, LOGIN, page, violations};

/// Operations, written by hand from GitLab's documentation of its API.
const OPERATIONS: &str = include_str!("../../publish/gitlab-requests.json");

/// A project `g/r`.
pub(crate) struct Gitlab {
    pub(crate) git: Git,
    /// Issues and merge requests, by their kind and number.
    pub(crate) issues: BTreeMap<(String, u64), Value>,
    pub(crate) notes: Vec<Value>,
    pub(crate) statuses: Vec<Value>,
    /// What is wrong with the requests.
    pub(crate) violations: Vec<String>,
    operations: Value,
    next: u64,
}

/// GitLab knows drafts by their titles.
fn is_draft(issue: &Value) -> bool {
    issue["title"].as_str().is_some_and(|title| title.starts_with("Draft: "))
}

impl Gitlab {
    pub(crate) fn new(git: Git) -> Self {
        let operations = serde_json::from_str(OPERATIONS).expect("the operations");
        let (issues, violations) = (BTreeMap::new(), Vec::new());
        let mut gitlab =
            Self { git, issues, notes: Vec::new(), statuses: Vec::new(), violations, operations, next: 1_000 };
        gitlab.add("issues", 3);
        gitlab
    }

    /// Adds an issue or a merge request.
    pub(crate) fn add(&mut self, kind: &str, number: u64) -> &mut Value {
        let issue = json!({
            "iid": number, "title": "t", "description": "", "state": "opened", "labels": [], "author": { "username": "mallory" },
            "web_url": format!("https://gitlab.example/g/r/-/{kind}/{number}"),
        });
        self.issues.entry((kind.to_owned(), number)).or_insert(issue)
    }

    /// Adds a merge request from a branch of the project.
    pub(crate) fn add_merge_request(&mut self, number: u64, branch: &str, sha: &str) -> &mut Value {
        let request = self.add("merge_requests", number);
        request["source_branch"] = json!(branch);
        request["sha"] = json!(sha);
        request["source_project_id"] = json!(1);
        request["target_project_id"] = json!(1);
        request["diff_refs"] = json!({ "base_sha": "b", "start_sha": "s", "head_sha": sha });
        request
    }

    /// The bodies of the notes by the token's user.
    pub(crate) fn own_notes(&self) -> Vec<String> {
        let own = self.notes.iter().filter(|note| note["author"]["username"] == LOGIN);
        own.map(|note| note["body"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add_note(&mut self, kind: &str, number: u64, body: &Value) -> Value {
        let id = self.id();
        let note = json!({
            "id": id, "kind": kind, "number": number, "body": body["body"], "author": { "username": LOGIN },
            "position": body["position"], "system": false,
        });
        self.notes.push(note.clone());
        note
    }

    fn issue_request(&mut self, request: &ForgeRequest, kind: &str, path: &[&str]) -> ForgeAnswer {
        let body = &request.body;
        let number: u64 = path.first().and_then(|part| part.parse().ok()).unwrap_or_default();
        let key = (kind.to_owned(), number);
        match (&*request.method, path) {
            ("GET", []) => {
                let branch = request.query("source_branch");
                let is_wanted = |issue: &Value| branch.is_none_or(|branch| issue["source_branch"] == *branch);
                let of_kind = self.issues.iter().filter(|((known, _), issue)| known == kind && is_wanted(issue));
                let issues: Vec<Value> = of_kind.map(|(_, issue)| issue.clone()).collect();
                page(&issues, request)
            }
            ("POST", []) => {
                let number = self.id();
                let sha = body["source_branch"].as_str().and_then(|branch| self.git.branches.get(branch)).cloned();
                if let Some(sha) = sha {
                    self.add_merge_request(number, body["source_branch"].as_str().unwrap_or_default(), &sha);
                }
                let issue = self.add(kind, number);
                for name in ["title", "description", "target_branch"] {
                    issue[name] = body[name].clone();
                }
                issue["draft"] = json!(is_draft(issue));
                issue["labels"] =
                    json!(body["labels"].as_str().unwrap_or_default().split_terminator(',').collect::<Vec<_>>());
                issue["author"]["username"] = json!(LOGIN);
                ForgeAnswer::json(201, issue)
            }
            _ if !self.issues.contains_key(&key) => missing(),
            ("GET", [_]) => ForgeAnswer::json(200, &self.issues[&key]),
            ("PUT", [_]) => {
                let issue = self.issues.get_mut(&key).expect("it");
                if body["state_event"] == "close" {
                    issue["state"] = json!("closed");
                }
                for name in ["title", "description"] {
                    if !body[name].is_null() {
                        issue[name] = body[name].clone();
                    }
                }
                issue["draft"] = json!(is_draft(issue));
                let labels = issue["labels"].as_array_mut().expect("labels");
                for label in body["add_labels"].as_str().unwrap_or_default().split_terminator(',') {
                    labels.push(json!(label));
                }
                for label in body["remove_labels"].as_str().unwrap_or_default().split_terminator(',') {
                    labels.retain(|known| known != label);
                }
                ForgeAnswer::json(200, issue)
            }
            ("GET", [_, "notes"]) => {
                let is_wanted = |note: &&Value| note["kind"] == *kind && note["number"] == number;
                let notes: Vec<Value> = self.notes.iter().filter(is_wanted).cloned().collect();
                page(&notes, request)
            }
            ("POST", [_, "notes"]) => {
                let note = self.add_note(kind, number, body);
                ForgeAnswer::json(201, &note)
            }
            ("PUT", [_, "notes", id]) => {
                let note = self.notes.iter_mut().find(|note| note["id"].as_u64() == id.parse().ok());
                let Some(note) = note else { return missing() };
                note["body"] = body["body"].clone();
                ForgeAnswer::json(200, note)
            }
            ("POST", [_, "discussions"]) => {
                let position = &body["position"];
                if position["new_path"] != "src/a.py"
                    || position["new_line"].is_null() && position["old_line"].is_null()
                {
                    return ForgeAnswer::error(
                        400,
                        "400 (Bad request) \"Note {:line_code=>[\"can't be blank\"]}\" not given",
                    );
                }
                let note = self.add_note(kind, number, body);
                ForgeAnswer::json(201, &json!({ "id": "d", "notes": [note] }))
            }
            ("GET", [_, "diffs"]) => {
                let diff = "@@ -1,3 +1,4 @@\n a\n+b\n c\n d\n";
                page(&[json!({ "old_path": "src/a.py", "new_path": "src/a.py", "diff": diff })], request)
            }
            _ => missing(),
        }
    }

    fn commit(&self, sha: &str) -> Value {
        let Commit { parents, message, .. } = &self.git.commits[sha];
        let url = format!("https://gitlab.example/g/r/-/commit/{sha}");
        json!({ "id": sha, "message": message, "parent_ids": parents, "web_url": url })
    }

    fn create_commit(&mut self, body: &Value) -> ForgeAnswer {
        let branch = body["branch"].as_str().unwrap_or_default().to_owned();
        let start = body["start_sha"].as_str().map(str::to_owned);
        let now = self.git.branches.get(&branch).cloned();
        if start.is_some() && now.is_some() && body["force"] != true {
            return ForgeAnswer::error(400, "A branch called that already exists.");
        }
        let Some(parent) = start.or(now).filter(|sha| self.git.commits.contains_key(sha)) else {
            return ForgeAnswer::error(400, "You can only create or edit files when you are on a branch");
        };
        let mut files = self.git.files(&self.git.commits[&parent].tree);
        for action in body["actions"].as_array().into_iter().flatten() {
            let path = action["file_path"].as_str().unwrap_or_default().to_owned();
            let is_there = files.contains_key(&path);
            match action["action"].as_str().unwrap_or_default() {
                "create" if is_there => return ForgeAnswer::error(400, "A file with this name already exists"),
                "update" | "delete" | "chmod" if !is_there => {
                    return ForgeAnswer::error(400, "A file with this name doesn't exist");
                }
                "delete" => drop(files.remove(&path)),
                "chmod" => {
                    let mode = if action["execute_filemode"] == true { "100755" } else { "100644" };
                    mode.clone_into(&mut files.get_mut(&path).expect("the file").mode);
                }
                _ => {
                    let content = STANDARD.decode(action["content"].as_str().unwrap_or_default()).expect("base64");
                    let mode = files.get(&path).map_or("100644".to_owned(), |file| file.mode.clone());
                    let sha = self.git.add_blob(content);
                    files.insert(path, Entry { mode, sha });
                }
            }
        }
        let tree = self.git.add_tree(&files);
        let message = body["commit_message"].as_str().unwrap_or_default().to_owned();
        let sha = self.git.add_commit(Commit { tree, parents: vec![parent], message });
        self.git.branches.insert(branch, sha.clone());
        ForgeAnswer::json(201, &self.commit(&sha))
    }

    fn repository_request(&mut self, request: &ForgeRequest, path: &[&str]) -> ForgeAnswer {
        match (&*request.method, path) {
            ("GET", ["branches", name]) => match self.git.branches.get(*name) {
                Some(sha) => ForgeAnswer::json(200, &json!({ "name": name, "commit": self.commit(sha) })),
                None => missing(),
            },
            ("GET", ["commits", sha]) if self.git.commits.contains_key(*sha) => {
                ForgeAnswer::json(200, &self.commit(sha))
            }
            ("GET", ["commits", sha, "statuses"]) => {
                let name = request.query("name").unwrap_or_default();
                let is_wanted = |status: &&Value| status["sha"] == **sha && status["name"] == *name;
                let statuses: Vec<Value> = self.statuses.iter().filter(is_wanted).cloned().collect();
                page(&statuses, request)
            }
            ("POST", ["commits"]) => self.create_commit(&request.body),
            ("GET", ["files", path]) => {
                let commit = request.query("ref").and_then(|sha| self.git.commits.get(sha));
                let file = commit.and_then(|commit| self.git.files(&commit.tree).remove(*path));
                let Some(Entry { mode, sha }) = file else { return missing() };
                let content = STANDARD.encode(&self.git.blobs[&sha]);
                ForgeAnswer::json(
                    200,
                    &json!({ "blob_id": sha, "content": content, "encoding": "base64", "execute_filemode": mode == "100755" }),
                )
            }
            _ => missing(),
        }
    }
}

impl Api for Gitlab {
    fn answer(&mut self, request: &ForgeRequest) -> ForgeAnswer {
        let parts = request.parts();
        let path: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.violations.extend(violations(&self.operations, request, &path));
        match (&*request.method, path.as_slice()) {
            ("GET", ["user"]) => ForgeAnswer::json(200, &json!({ "username": LOGIN })),
            ("GET", ["projects", "g/r"]) => ForgeAnswer::json(200, &json!({ "id": 1, "default_branch": "main" })),
            (_, ["projects", "g/r", kind @ ("issues" | "merge_requests"), rest @ ..]) => {
                self.issue_request(request, kind, rest)
            }
            (_, ["projects", "g/r", "repository", rest @ ..]) => self.repository_request(request, rest),
            ("POST", ["projects", "g/r", "statuses", sha]) => {
                let body = &request.body;
                let id = self.id();
                self.statuses.push(json!({
                    "id": id, "sha": sha, "status": body["state"], "name": body["name"], "description": body["description"],
                }));
                ForgeAnswer::json(201, self.statuses.last().expect("the status"))
            }
            _ => missing(),
        }
    }
}

fn missing() -> ForgeAnswer {
    ForgeAnswer::error(404, "404 Not found")
}
