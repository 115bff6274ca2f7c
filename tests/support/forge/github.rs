//! GitHub. The body of each request is checked against GitHub's own description of its API.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::git::{Commit, Entry, Git};
use super::{Api, ForgeAnswer, ForgeRequest, LOGIN, page, violations};

/// Operations that were cut out of GitHub's description (@octokit/openapi).
const OPERATIONS: &str = include_str!("../../publish/github-requests.json");

/// A repository `o/r`.
pub(crate) struct Github {
    pub(crate) git: Git,
    /// Issues and pull requests, by number.
    pub(crate) issues: BTreeMap<u64, Value>,
    pub(crate) comments: Vec<Value>,
    pub(crate) reviews: Vec<Value>,
    pub(crate) pulls: BTreeMap<u64, Value>,
    /// The changed files of pull requests.
    pub(crate) files: BTreeMap<u64, Vec<Value>>,
    pub(crate) checks: Vec<Value>,
    /// What is wrong with the requests.
    pub(crate) violations: Vec<String>,
    /// Whether the token may ask for its user.
    pub(crate) knows_user: bool,
    operations: Value,
    next: u64,
}

impl Github {
    pub(crate) fn new(git: Git) -> Self {
        let operations: Value = serde_json::from_str(OPERATIONS).expect("the operations");
        let mut github = Self {
            git,
            issues: BTreeMap::new(),
            comments: Vec::new(),
            reviews: Vec::new(),
            pulls: BTreeMap::new(),
            files: BTreeMap::new(),
            checks: Vec::new(),
            violations: Vec::new(),
            knows_user: true,
            operations,
            next: 1_000,
        };
        github.add_issue(3, &["needs-triage"]);
        github
    }

    pub(crate) fn add_issue(&mut self, number: u64, labels: &[&str]) {
        let labels: Vec<Value> = labels.iter().map(|name| json!({ "name": name })).collect();
        let issue = json!({
            "number": number, "title": "bug", "body": "", "state": "open", "labels": labels, "user": { "login": "mallory" },
            "html_url": format!("https://github.example/o/r/issues/{number}"),
        });
        self.issues.insert(number, issue);
    }

    /// Adds a pull request from a branch of a repository.
    pub(crate) fn add_pull(&mut self, number: u64, branch: &str, sha: &str, repository: &str) {
        self.add_issue(number, &[]);
        let pull = json!({
            "number": number, "title": "t", "body": "", "state": "open", "user": { "login": "alice" },
            "head": { "ref": branch, "sha": sha, "repo": { "full_name": repository } },
            "base": { "ref": "main", "sha": sha, "repo": { "full_name": "o/r" } },
            "html_url": format!("https://github.example/o/r/pull/{number}"),
        });
        self.pulls.insert(number, pull);
        let patch = "@@ -1,3 +1,4 @@\n a\n+b\n c\n d";
        self.files.insert(number, vec![json!({ "filename": "src/a.py", "patch": patch })]);
    }

    pub(crate) fn add_comment(&mut self, issue: u64, login: &str, body: &str) -> u64 {
        let id = self.id();
        self.comments.push(json!({
            "id": id, "issue": issue, "body": body, "user": { "login": login },
            "html_url": format!("https://github.example/o/r/issues/{issue}#issuecomment-{id}"),
        }));
        id
    }

    /// The bodies of the comments by the token's user.
    pub(crate) fn own_comments(&self) -> Vec<String> {
        let own = self.comments.iter().filter(|comment| comment["user"]["login"] == LOGIN);
        own.map(|comment| comment["body"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn create_review(&mut self, number: u64, body: &Value) -> ForgeAnswer {
        let files = self.files.get(&number).cloned().unwrap_or_default();
        for comment in body["comments"].as_array().into_iter().flatten() {
            let file = files.iter().find(|file| file["filename"] == comment["path"]);
            let lines = file.map(|file| new_lines(file["patch"].as_str().unwrap_or_default())).unwrap_or_default();
            if !lines.contains(&comment["line"].as_u64().unwrap_or_default()) {
                return ForgeAnswer::json(
                    422,
                    &json!({ "message": "Unprocessable Entity", "errors": ["Line could not be resolved"] }),
                );
            }
        }
        let id = self.id();
        let mut review = body.clone();
        review["id"] = json!(id);
        review["pull"] = json!(number);
        review["user"] = json!({ "login": LOGIN });
        review["html_url"] = json!(format!("https://github.example/o/r/pull/{number}#pullrequestreview-{id}"));
        self.reviews.push(review.clone());
        ForgeAnswer::json(200, &review)
    }

    fn create_pull(&mut self, body: &Value) -> ForgeAnswer {
        let branch = body["head"].as_str().unwrap_or_default().to_owned();
        let is_taken = self.pulls.values().any(|pull| pull["head"]["ref"] == *branch && pull["state"] == "open");
        let Some(sha) = self.git.branches.get(&branch).filter(|_| !is_taken).cloned() else {
            return ForgeAnswer::error(422, "Validation Failed");
        };
        let number = self.id();
        self.add_pull(number, &branch, &sha, "o/r");
        let pull = self.pulls.get_mut(&number).expect("the pull request");
        for key in ["title", "body", "draft"] {
            pull[key] = body[key].clone();
        }
        pull["base"]["ref"] = body["base"].clone();
        pull["user"]["login"] = json!(LOGIN);
        ForgeAnswer::json(201, pull)
    }

    fn git_request(&mut self, request: &ForgeRequest, path: &[&str]) -> ForgeAnswer {
        let body = &request.body;
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        match (&*request.method, path) {
            ("POST", ["blobs"]) => {
                let content = STANDARD.decode(text("content")).expect("base64");
                ForgeAnswer::json(201, &json!({ "sha": self.git.add_blob(content) }))
            }
            ("GET", ["blobs", sha]) => match self.git.blobs.get(*sha) {
                Some(content) => {
                    let content = format!("{}\n", STANDARD.encode(content));
                    ForgeAnswer::json(200, &json!({ "sha": sha, "content": content, "encoding": "base64" }))
                }
                None => missing(),
            },
            ("GET", ["trees", sha]) => match self.git.trees.get(*sha) {
                Some(entries) => {
                    let entries: Vec<Value> = entries.iter().map(|(path, entry)| tree_entry(path, entry)).collect();
                    ForgeAnswer::json(200, &json!({ "sha": sha, "tree": entries, "truncated": false }))
                }
                None => missing(),
            },
            ("POST", ["trees"]) => self.create_tree(body),
            ("POST", ["commits"]) => {
                let parents = body["parents"].as_array().into_iter().flatten();
                let parents: Vec<String> = parents.filter_map(|sha| sha.as_str().map(str::to_owned)).collect();
                if !self.git.trees.contains_key(&text("tree")) {
                    return ForgeAnswer::error(422, "Tree SHA does not exist");
                }
                let commit = Commit { tree: text("tree"), parents, message: text("message") };
                let sha = self.git.add_commit(commit);
                ForgeAnswer::json(201, &self.commit(&sha))
            }
            ("GET", ["commits", sha]) if self.git.commits.contains_key(*sha) => {
                ForgeAnswer::json(200, &self.commit(sha))
            }
            ("GET", ["ref", "heads", branch @ ..]) => match self.git.branches.get(&branch.join("/")) {
                Some(sha) => ForgeAnswer::json(200, &json!({ "object": { "sha": sha } })),
                None => missing(),
            },
            ("POST", ["refs"]) => {
                let branch = text("ref").trim_start_matches("refs/heads/").to_owned();
                if self.git.branches.contains_key(&branch) {
                    return ForgeAnswer::error(422, "Reference already exists");
                }
                self.git.branches.insert(branch, text("sha"));
                ForgeAnswer::json(201, &json!({ "object": { "sha": text("sha") } }))
            }
            ("PATCH", ["refs", "heads", branch @ ..]) => {
                let branch = branch.join("/");
                let new = self.git.commits.get(&text("sha")).cloned();
                let is_forward = new.is_some_and(|new| new.parents.first() == self.git.branches.get(&branch));
                if !is_forward && body["force"] != true {
                    return ForgeAnswer::error(422, "Update is not a fast forward");
                }
                self.git.branches.insert(branch, text("sha"));
                ForgeAnswer::json(200, &json!({ "object": { "sha": text("sha") } }))
            }
            _ => missing(),
        }
    }

    fn create_tree(&mut self, body: &Value) -> ForgeAnswer {
        let mut files = self.git.files(body["base_tree"].as_str().unwrap_or_default());
        for entry in body["tree"].as_array().into_iter().flatten() {
            let path = entry["path"].as_str().unwrap_or_default().to_owned();
            match entry["sha"].as_str() {
                None if files.remove(&path).is_none() => return ForgeAnswer::error(422, "GitRPC::BadObjectState"),
                None => {}
                Some(sha) if !self.git.blobs.contains_key(sha) => {
                    return ForgeAnswer::error(422, "tree.sha is invalid");
                }
                Some(sha) => {
                    let mode = entry["mode"].as_str().unwrap_or_default().to_owned();
                    files.insert(path, Entry { mode, sha: sha.to_owned() });
                }
            }
        }
        ForgeAnswer::json(201, &json!({ "sha": self.git.add_tree(&files) }))
    }

    fn commit(&self, sha: &str) -> Value {
        let Commit { tree, parents, message } = &self.git.commits[sha];
        let parents: Vec<Value> = parents.iter().map(|sha| json!({ "sha": sha })).collect();
        let url = format!("https://github.example/o/r/commit/{sha}");
        json!({ "sha": sha, "tree": { "sha": tree }, "parents": parents, "message": message, "html_url": url })
    }

    fn issue_request(&mut self, request: &ForgeRequest, path: &[&str]) -> ForgeAnswer {
        let body = &request.body;
        let number = path.first().and_then(|part| part.parse().ok()).unwrap_or_default();
        match (&*request.method, path) {
            ("GET", []) => {
                let issues: Vec<Value> = self.issues.values().rev().cloned().collect();
                page(&issues, request)
            }
            ("POST", []) => {
                let number = self.id();
                let labels: Vec<&str> =
                    body["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                self.add_issue(number, &labels);
                let issue = self.issues.get_mut(&number).expect("the issue");
                issue["title"] = body["title"].clone();
                issue["body"] = body["body"].clone();
                issue["user"]["login"] = json!(LOGIN);
                ForgeAnswer::json(201, issue)
            }
            ("PATCH", ["comments", id]) => {
                let comment = self.comments.iter_mut().find(|comment| comment["id"].as_u64() == id.parse().ok());
                let Some(comment) = comment else { return missing() };
                comment["body"] = body["body"].clone();
                ForgeAnswer::json(200, comment)
            }
            _ if !self.issues.contains_key(&number) => missing(),
            ("GET", [_]) => ForgeAnswer::json(200, &self.issues[&number]),
            ("PATCH", [_]) => {
                let issue = self.issues.get_mut(&number).expect("the issue");
                issue["state"] = body["state"].clone();
                issue["state_reason"] = body["state_reason"].clone();
                ForgeAnswer::json(200, issue)
            }
            ("GET", [_, "comments"]) => {
                let of_issue = |comment: &&Value| comment["issue"] == number;
                let comments: Vec<Value> = self.comments.iter().filter(of_issue).cloned().collect();
                page(&comments, request)
            }
            ("POST", [_, "comments"]) => {
                let text = body["body"].as_str().unwrap_or_default().to_owned();
                if text.chars().count() > 65_536 {
                    return ForgeAnswer::json(
                        422,
                        &json!({ "message": "Validation Failed", "errors": [{ "code": "too_long" }] }),
                    );
                }
                self.add_comment(number, LOGIN, &text);
                ForgeAnswer::json(201, self.comments.last().expect("the comment"))
            }
            ("POST", [_, "labels"]) => {
                let labels = self.issues.get_mut(&number).expect("the issue")["labels"].as_array_mut().expect("labels");
                for name in body["labels"].as_array().into_iter().flatten() {
                    if !labels.iter().any(|label| label["name"] == *name) {
                        labels.push(json!({ "name": name }));
                    }
                }
                ForgeAnswer::json(200, &json!(labels))
            }
            ("DELETE", [_, "labels", name]) => {
                let labels = self.issues.get_mut(&number).expect("the issue")["labels"].as_array_mut().expect("labels");
                labels.retain(|label| label["name"] != **name);
                ForgeAnswer::json(200, &json!(labels))
            }
            _ => missing(),
        }
    }

    fn pull_request(&mut self, request: &ForgeRequest, path: &[&str]) -> ForgeAnswer {
        let number = path.first().and_then(|part| part.parse().ok()).unwrap_or_default();
        match (&*request.method, path) {
            ("GET", []) => {
                let head = request.query("head").and_then(|head| head.split_once(':'));
                let is_wanted = |pull: &&Value| {
                    head.is_none_or(|(owner, branch)| {
                        let repository = pull["head"]["repo"]["full_name"].as_str().unwrap_or_default();
                        pull["head"]["ref"] == *branch && repository.starts_with(&format!("{owner}/"))
                    })
                };
                let pulls: Vec<Value> = self.pulls.values().filter(is_wanted).cloned().collect();
                page(&pulls, request)
            }
            ("POST", []) => self.create_pull(&request.body),
            _ if !self.pulls.contains_key(&number) => missing(),
            ("GET", [_]) => ForgeAnswer::json(200, &self.pulls[&number]),
            ("PATCH", [_]) => {
                let pull = self.pulls.get_mut(&number).expect("the pull request");
                pull["title"] = request.body["title"].clone();
                pull["body"] = request.body["body"].clone();
                ForgeAnswer::json(200, pull)
            }
            ("GET", [_, "files"]) => page(&self.files.get(&number).cloned().unwrap_or_default(), request),
            ("GET", [_, "reviews"]) => {
                let reviews: Vec<Value> = self.reviews.iter().filter(|it| it["pull"] == number).cloned().collect();
                page(&reviews, request)
            }
            ("POST", [_, "reviews"]) => self.create_review(number, &request.body),
            _ => missing(),
        }
    }
}

impl Api for Github {
    fn answer(&mut self, request: &ForgeRequest) -> ForgeAnswer {
        let parts = request.parts();
        let path: Vec<&str> = parts.iter().map(String::as_str).collect();
        if request.method != "GET" {
            self.violations.extend(violations(&self.operations, request, &path));
        }
        match (&*request.method, path.as_slice()) {
            ("GET", ["user"]) if self.knows_user => ForgeAnswer::json(200, &json!({ "login": LOGIN, "id": 1 })),
            ("GET", ["user"]) => ForgeAnswer::error(403, "Resource not accessible by integration"),
            ("GET", ["repos", "o", "r"]) => {
                ForgeAnswer::json(200, &json!({ "full_name": "o/r", "default_branch": "main" }))
            }
            (_, ["repos", "o", "r", "git", rest @ ..]) => self.git_request(request, rest),
            (_, ["repos", "o", "r", "issues", rest @ ..]) => self.issue_request(request, rest),
            (_, ["repos", "o", "r", "pulls", rest @ ..]) => self.pull_request(request, rest),
            ("GET", ["repos", "o", "r", "commits", sha, "check-runs"]) => {
                let name = request.query("check_name").unwrap_or_default();
                let is_wanted = |check: &&Value| check["head_sha"] == **sha && check["name"] == *name;
                let runs: Vec<Value> = self.checks.iter().filter(is_wanted).cloned().collect();
                ForgeAnswer::json(200, &json!({ "total_count": runs.len(), "check_runs": runs }))
            }
            ("POST", ["repos", "o", "r", "check-runs"]) => {
                let mut check = request.body.clone();
                check["id"] = json!(self.id());
                self.checks.push(check.clone());
                ForgeAnswer::json(201, &check)
            }
            _ => missing(),
        }
    }
}

fn missing() -> ForgeAnswer {
    ForgeAnswer::error(404, "Not Found")
}

fn tree_entry(path: &str, entry: &Entry) -> Value {
    let (mode, kind) = if entry.mode == "40000" { ("040000", "tree") } else { (&*entry.mode, "blob") };
    json!({ "path": path, "mode": mode, "type": kind, "sha": entry.sha })
}

/// The lines of the new version that a patch shows.
fn new_lines(patch: &str) -> Vec<u64> {
    let (mut lines, mut at) = (Vec::new(), 0);
    for line in patch.split('\n') {
        if let Some(rest) = line.strip_prefix("@@ -") {
            let start = rest.split_once(" +").and_then(|(_, new)| new.split([',', ' ']).next()?.parse().ok());
            at = start.expect("a hunk");
        } else if line.starts_with([' ', '+']) {
            lines.push(at);
            at += 1;
        }
    }
    lines
}
