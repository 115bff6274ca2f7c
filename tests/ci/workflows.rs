//! The workflows and pipelines of the book's chapter "Acting outside", run from its text against a loopback forge.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::actions_runner::ActionsRunner;
use crate::house::source::{read, root};
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::gitlab::Gitlab;
use crate::support::forge::{ForgeRequest, ForgeServer, TOKEN};
use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;
use legwork::outputs::{KINDS, github_text, on_gitlab};

const PAGE: &str = "docs/src/acting-outside.md";

const JOB: &str = "model: replay/replies.yaml\nparent: { prompt: Review it., tools: [read_file, { output: [review] }] }\noutputs: { review: {} }\n";
const SCRIPT: &str = "parent:\n  - calls: [{ tool: read_file, input: { path: src/a.py } }]\n  - calls: [{ tool: review, input: { body: Look., comments: [{ path: src/a.py, line: 2, body: 'Why? $(touch pwned)' }] } }]\n  - text: Done.\n";

/// The job of the chapter's workflows of GitHub.
const REAL: &str = "jobs/review-pull-request.yaml";

/// That of this repository, with a script for its model.
fn real_job() -> String {
    let job = read(REAL);
    let model = job.lines().find(|line| line.starts_with("model: ")).unwrap();
    job.replace(model, "model: replay/replies.yaml")
}

/// Copies a folder of this repository to the same place in another one.
fn copy_into(folder: &TestFolder, name: &str) {
    for entry in std::fs::read_dir(root().join(name)).unwrap().map(Result::unwrap) {
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => copy_into(folder, &name),
            false => drop(folder.write(&name, std::fs::read(entry.path()).unwrap())),
        }
    }
}

/// The YAML block of the chapter that begins with these lines.
fn example(start: &str) -> Value {
    let page = read(PAGE);
    let block = page.split("```yaml\n").skip(1).find(|block| block.starts_with(start));
    let block = block.unwrap_or_else(|| panic!("{PAGE} has no {start}"));
    serde_yaml::from_str(block.split("\n```").next().unwrap()).unwrap()
}

/// A repository whose branch `feature` adds a line.
struct Place {
    folder: TestFolder,
    base: String,
    head: String,
}

impl Place {
    /// The pull request has this job file.
    fn new(job: &str) -> Self {
        let folder = TestFolder::new();
        folder.write("jobs/review.yaml", JOB).write("jobs/replies.yaml", SCRIPT).write("src/a.py", "a\nc\nd\n");
        folder.write(REAL, real_job());
        copy_into(&folder, "jobs/prompts");
        folder.write(".gitignore", "/runs/\n/pull/\n/record/\n/event/\n").commit_all();
        let base = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
        folder.git(&["checkout", "--quiet", "-b", "feature"]);
        folder.write("src/a.py", "a\nb\nc\nd\n").write("jobs/review.yaml", job).write(REAL, job).commit_all();
        let head = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
        folder.git(&["checkout", "--quiet", "main"]);
        folder.git(&["update-ref", "refs/remotes/origin/main", "main"]);
        Self { folder, base, head }
    }

    fn pull_request(&self, repository: &str) -> Value {
        let branch = |name: &str, sha: &str, repository: &str| json!({ "ref": name, "sha": sha, "repo": { "full_name": repository } });
        let (head, base) = (branch("feature", &self.head, repository), branch("main", &self.base, "o/r"));
        let pull = json!({ "number": 7, "title": "Add b", "body": null, "draft": false, "head": head, "base": base });
        json!({ "repository": { "full_name": "o/r" }, "pull_request": pull })
    }

    fn github(&self, repository: &str) -> ForgeServer<Github> {
        let server = ForgeServer::start(Github::new(Git::of(&self.folder, "main")));
        server.api().add_pull(7, "feature", &self.head, repository);
        server
    }

    /// What the first job has checked out is on another machine.
    fn new_machine(&self) {
        self.folder.git(&["worktree", "prune"]);
        for name in ["runs", "pull", "record", "event"] {
            let _ = std::fs::remove_dir_all(self.folder.at(name));
        }
        self.folder.git(&["worktree", "prune"]);
        self.folder.git(&["checkout", "--quiet", "main"]);
    }
}

/// The permissions of a token that allow a request, of which one is enough.
fn permissions_for(request: &ForgeRequest) -> Vec<String> {
    let access = if request.method == "GET" { "read" } else { "write" };
    let names: &[&str] = match request.parts().iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["user"] => return Vec::new(),
        ["repos", "o", "r"] => &["metadata"],
        ["repos", "o", "r", "issues", ..] => &["issues", "pull-requests"],
        ["repos", "o", "r", "pulls", ..] => &["pull-requests"],
        ["repos", "o", "r", "git" | "commits", ..] => &["contents"],
        other => panic!("{other:?}"),
    };
    names.iter().map(|name| format!("{name}: {access}")).collect()
}

/// Asserts that a job has the permissions for these requests, and no further ones to write.
fn assert_permissions(job: &Value, requests: &[ForgeRequest]) {
    let granted: BTreeMap<String, String> = serde_json::from_value(job["permissions"].clone()).unwrap();
    let allows = |needed: &String| {
        let (name, access) = needed.split_once(": ").unwrap();
        granted.get(name).is_some_and(|given| given == access || given == "write") || name == "metadata"
    };
    for request in requests {
        let needed = permissions_for(request);
        assert!(needed.is_empty() || needed.iter().any(allows), "{} {}: {granted:?}", request.method, request.path);
    }
    for (name, _) in granted.iter().filter(|(_, access)| *access == "write") {
        let is_used = |request: &ForgeRequest| permissions_for(request).contains(&format!("{name}: write"));
        assert!(requests.iter().any(is_used), "{name}: write isn't needed");
    }
    assert_eq!(granted.get("contents").map(String::as_str), Some("read"), "for the checkout");
}

#[test]
fn the_book_publishes_in_a_second_job_with_least_permissions() {
    // The pull request's own job file counts for nothing.
    let place = Place::new("model: other/x\n");
    let server = place.github("o/r");
    let workflow = example("# .github/workflows/review.yml\nname: review\non: pull_request");
    let event = place.pull_request("o/r");
    let runner = ActionsRunner::new(&place.folder, &server.url(), "pull_request", &event);
    let review = runner.job(&workflow, "review");
    assert!(!review.has_failed, "{}", review.printed);
    assert!(server.log().is_empty(), "the agent's job has no token");
    assert_permissions(&workflow["jobs"]["review"], &[]);
    place.new_machine();
    for attempt in 0..2 {
        let publish = runner.job(&workflow, "publish");
        assert!(!publish.has_failed, "{}", publish.printed);
        let reviews = server.api().reviews.clone();
        assert_eq!(reviews.len(), 1, "attempt {attempt}");
        assert_eq!((&reviews[0]["commit_id"], &reviews[0]["comments"][0]["line"]), (&json!(place.head), &json!(2)));
        // A job that is started again has another machine.
        place.new_machine();
    }
    assert_permissions(&workflow["jobs"]["publish"], &server.log());
    assert!(!place.folder.exists("pwned") && server.api().violations.is_empty());
    // Another job file in the base branch than the one that ran.
    place.folder.write(REAL, real_job().replace("max_comments: 10", "max_comments: 1"));
    let publish = runner.job(&workflow, "publish");
    assert!(publish.has_failed && publish.printed.contains("the job file differs"), "{}", publish.printed);
    // The artifact is another record, such as one that was made without the key.
    let fork = ActionsRunner::new(&place.folder, &server.url(), "pull_request", &place.pull_request("mallory/r"));
    place.folder.git(&["checkout", "--quiet", "--force", "main"]);
    let mut keyless = workflow.clone();
    keyless["jobs"]["review"]["steps"][2]["env"] = json!({});
    place.new_machine();
    let review = fork.job(&keyless, "review");
    assert!(!review.has_failed, "{}", review.printed);
    let publish = fork.job(&workflow, "publish");
    assert!(publish.has_failed && publish.printed.contains("made with another key"), "{}", publish.printed);
}

#[test]
fn the_book_publishes_for_forks_in_a_second_workflow() {
    // The pull request's own job file counts for nothing.
    let place = Place::new("model: other/x\n");
    let server = place.github("mallory/r");
    let first = example("# .github/workflows/pull-request.yml");
    assert_eq!(first["permissions"], json!({}));
    let second = example("# .github/workflows/review.yml\nname: review\non:\n  workflow_run");
    assert_eq!(second["on"]["workflow_run"]["workflows"][0], first["name"]);
    let event = place.pull_request("mallory/r");
    ActionsRunner::new(&place.folder, &server.url(), "pull_request", &event).job(&first, "event");
    let followed = |repository: &str, conclusion: &str| {
        let run = json!({
            "id": 76, "event": "pull_request", "conclusion": conclusion, "head_branch": "feature", "head_sha": place.head,
            "head_repository": { "full_name": repository }, "pull_requests": [],
        });
        let repository = json!({ "full_name": "o/r", "default_branch": "main" });
        json!({ "action": "completed", "repository": repository, "workflow_run": run })
    };
    let event = followed("mallory/r", "success");
    let runner = ActionsRunner::new(&place.folder, &server.url(), "workflow_run", &event);
    let review = runner.job(&second, "review");
    assert!(!review.has_failed, "{}", review.printed);
    assert!(server.log().is_empty());
    let permissions = &second["jobs"]["review"]["permissions"];
    assert_eq!(*permissions, json!({ "actions": "read", "contents": "read" }));
    place.new_machine();
    for _ in 0..2 {
        let publish = runner.job(&second, "publish");
        assert!(!publish.has_failed, "{}", publish.printed);
        assert_eq!(server.api().reviews.len(), 1);
        place.new_machine();
    }
    assert_permissions(&second["jobs"]["publish"], &server.log());
    // The fork has changed the first workflow, so that its event names another pull request.
    server.api().add_pull(8, "feature", &place.head, "eve/r");
    let event = followed("eve/r", "success");
    let runner = ActionsRunner::new(&place.folder, &server.url(), "workflow_run", &event);
    let publish = runner.job(&second, "publish");
    assert!(publish.has_failed && publish.printed.contains("another issue or pull request"), "{}", publish.printed);
    // The branch has moved on.
    server.api().pulls.get_mut(&8).unwrap()["head"]["sha"] = json!("f".repeat(40));
    place.new_machine();
    let publish = runner.job(&second, "publish");
    assert!(publish.has_failed && publish.printed.contains("no issue and no pull request"), "{}", publish.printed);
    assert_eq!(server.api().reviews.len(), 1);
    // A workflow that failed isn't followed.
    let event = followed("eve/r", "failure");
    let runner = ActionsRunner::new(&place.folder, &server.url(), "workflow_run", &event);
    assert!(runner.job(&second, "review").steps.is_empty());
}

/// Runs a job of a pipeline of merge request 7.
fn pipeline_job(place: &Place, server: &ForgeServer<Gitlab>, job: &Value, more: &[(&str, &str)]) -> ProgramOutput {
    let bin = place.folder.home().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_legwork"), bin.join("legwork"));
    let script: Vec<&str> = job["script"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let (api, base, head) = (server.url(), place.base.as_str(), place.head.as_str());
    let known = [
        ("PATH", path.as_str()),
        ("GITLAB_CI", "true"),
        ("CI_API_V4_URL", &api),
        ("CI_SERVER_URL", "https://gitlab.example"),
        ("CI_PROJECT_PATH", "g/r"),
        ("CI_JOB_TOKEN", "job-token"),
        ("CI_COMMIT_SHA", head),
        ("CI_MERGE_REQUEST_IID", "7"),
        ("CI_MERGE_REQUEST_PROJECT_PATH", "g/r"),
        ("CI_MERGE_REQUEST_SOURCE_PROJECT_PATH", "g/r"),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "feature"),
        ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"),
        ("CI_MERGE_REQUEST_DIFF_BASE_SHA", base),
        ("LEGWORK_PUBLISH_PAUSE_MS", "0"),
    ];
    let variables = job["variables"].as_object().into_iter().flatten();
    let variables = variables.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or("0")));
    let shell = place.folder.program("sh", &["-e", "-c", &script.join("\n")]);
    let variables = known.iter().copied().chain(variables).chain(more.iter().copied());
    variables.fold(shell, |shell, (name, value)| shell.env(name, value)).run()
}

/// The job of a component, with these inputs.
fn component(name: &str, inputs: &[(&str, &str)]) -> (String, Value) {
    let text = read(format!("templates/{name}.yml"));
    let (spec, job) = text.split_once("\n---\n").unwrap();
    let spec: Value = serde_yaml::from_str(spec).unwrap();
    let known = spec["spec"]["inputs"].as_object().unwrap();
    assert!(inputs.iter().all(|(name, _)| known.contains_key(*name)), "{inputs:?}");
    let filled = known.iter().fold(job.to_owned(), |job, (name, input)| {
        let given = inputs.iter().find(|(known, _)| known == name).map(|(_, value)| (*value).to_owned());
        let default = || input.get("default").unwrap_or_else(|| panic!("{name} is required"));
        let value = given.unwrap_or_else(|| default().as_str().map_or_else(|| default().to_string(), str::to_owned));
        job.replace(&format!("$[[ inputs.{name} ]]"), &value)
    });
    let jobs: serde_json::Map<String, Value> = serde_yaml::from_str(&filled).unwrap();
    jobs.into_iter().next().unwrap()
}

/// The variable that a job passes on.
fn record_of(place: &Place, dotenv: &str) -> String {
    let text = place.folder.read(dotenv);
    text.lines().find_map(|line| line.strip_prefix("LEGWORK_RECORD=")).expect("the record").to_owned()
}

#[test]
fn the_book_publishes_in_a_second_job_of_a_pipeline() {
    let place = Place::new(JOB);
    place.folder.git(&["checkout", "--quiet", "feature"]);
    let server = ForgeServer::start(Gitlab::new(Git::of(&place.folder, "feature")));
    server.api().add_merge_request(7, "feature", &place.head);
    let pipeline = example("# .gitlab-ci.yml");
    pipeline_job(&place, &server, &pipeline["review"], &[]).assert_code(0);
    assert!(server.log().is_empty());
    assert_eq!(pipeline["review"]["artifacts"]["reports"]["dotenv"], "run.env");
    let record = record_of(&place, "run.env");
    let publish = |job: &Value, more: &[(&str, &str)]| {
        pipeline_job(&place, &server, job, &[&[("LEGWORK_RECORD", record.as_str())], more].concat())
    };
    let token = ("GITLAB_TOKEN", TOKEN);
    let job = &pipeline["publish"];
    publish(job, &[]).assert_code(5).assert_stderr_contains("CI_JOB_TOKEN can't write notes");
    for _ in 0..2 {
        publish(job, &[token]).assert_code(0);
        assert_eq!(server.api().own_notes().len(), 2, "a comment on a line, and the review");
        std::fs::remove_file(place.folder.at(&record).join("published.json")).unwrap();
    }
    assert_eq!(server.api().violations, [""; 0]);
    assert!(!place.folder.exists("pwned"));
    // Where GitHub's variables are set, too, the job has said which one is meant.
    publish(job, &[token, ("GITHUB_REPOSITORY", "o/r")]).assert_code(0);
}

#[test]
fn the_components_for_gitlab_run_and_publish() {
    let place = Place::new(JOB);
    place.folder.git(&["checkout", "--quiet", "feature"]);
    place.folder.write(
        "webhook.json",
        json!({
            "object_kind": "issue", "project": { "path_with_namespace": "g/r" }, "object_attributes": { "iid": 3 },
        })
        .to_string(),
    );
    let server = ForgeServer::start(Gitlab::new(Git::of(&place.folder, "feature")));
    server.api().add_merge_request(7, "feature", &place.head);
    let includes = example("include:");
    let [run, publish] = includes["include"].as_array().unwrap().as_slice() else { panic!("two components") };
    let of = |include: &Value, more: &[(&str, &str)]| {
        let name =
            include["component"].as_str().unwrap().rsplit('/').next().unwrap().split('@').next().unwrap().to_owned();
        let inputs: BTreeMap<String, String> = serde_json::from_value(include["inputs"].clone()).unwrap();
        let inputs: Vec<_> =
            inputs.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(more.iter().copied()).collect();
        component(&name, &inputs)
    };
    let (name, job) = of(run, &[("sandbox", "auto")]);
    pipeline_job(&place, &server, &job, &[]).assert_code(0);
    let record = record_of(&place, "legwork.env");
    let with_token = [("LEGWORK_RECORD", record.as_str()), ("GITLAB_TOKEN", TOKEN)];
    let (_, job) = of(publish, &[("comment", "true"), ("name", "publish `id`")]);
    assert_eq!(job["needs"], json!([name]));
    for _ in 0..2 {
        pipeline_job(&place, &server, &job, &with_token).assert_code(0);
        let notes = server.api().own_notes();
        assert_eq!(
            notes.iter().filter(|note| note.starts_with("Done.\n\n<!-- legwork review publish--id- ")).count(),
            1,
            "{notes:?}"
        );
        assert_eq!(notes.len(), 3, "{notes:?}");
    }
    let (_, keyed) = of(publish, &[]);
    let key = ("LEGWORK_RECORD_KEY", "another key of that length");
    pipeline_job(&place, &server, &keyed, &[with_token[0], with_token[1], key]).assert_code(2);
    // The pipeline of a webhook, for an issue that the record isn't for; and of a schedule.
    let (_, other) = of(publish, &[("event", "webhook.json")]);
    let ended = pipeline_job(&place, &server, &other, &with_token);
    ended.assert_code(2).assert_stderr_contains("the record is for #7, and this process's event is for #3");
    let (_, scheduled) = of(publish, &[("number", "7")]);
    let schedule = [with_token[0], with_token[1], ("CI_MERGE_REQUEST_IID", "")];
    pipeline_job(&place, &server, &scheduled, &schedule).assert_code(0);
    assert_eq!(server.api().own_notes().len(), 3);
}

#[test]
fn the_book_has_the_permissions_of_each_kind() {
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    let row = |kind: &legwork::outputs::KindName| {
        let role = on_gitlab(*kind).unwrap_or("none");
        format!("| `{}` | {} | {role} |", kind.name(), or_none(github_text(*kind)))
    };
    let rows: Vec<String> = KINDS.iter().map(row).collect();
    let page = read(PAGE);
    assert!(page.contains(&rows.join("\n")), "{PAGE} needs\n{}", rows.join("\n"));
}
