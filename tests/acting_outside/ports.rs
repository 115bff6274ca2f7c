//! Public automations as jobs: each is valid, can be planned, runs, and what it proposes is on a loopback forge afterwards. Its workflow
//! has no script.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::house::source::root;
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{ForgeServer, TOKEN};
use crate::support::in_parallel;
use crate::support::program::Program;
use crate::support::test_folder::TestFolder;

/// What starts an automation.
#[derive(Clone, Copy)]
enum Start {
    /// A person, or a schedule.
    Nothing,
    Issue,
    PullRequest,
    /// A comment on a pull request.
    Comment,
    /// A run of CI for a pull request.
    Run,
}

struct Port {
    /// The start of its folder's name.
    number: &'static str,
    arguments: &'static [&'static str],
    start: Start,
    /// The outputs that are published, in order.
    published: &'static [&'static str],
}

const fn port(
    number: &'static str,
    arguments: &'static [&'static str],
    start: Start,
    published: &'static [&'static str],
) -> Port {
    Port { number, arguments, start, published }
}

const PORTS: &[Port] = &[
    port("01", &[], Start::Nothing, &[]),
    port("02", &["--set", "about=1.2.0, discounts"], Start::Nothing, &[]),
    port("03", &[], Start::Nothing, &[]),
    port("04", &[], Start::PullRequest, &["review-1"]),
    port("05", &[], Start::Nothing, &["docs-1"]),
    port("06", &[], Start::Issue, &["labels-1", "comment-1"]),
    port("07", &["--set", "run=77"], Start::Nothing, &["issue-1"]),
    port("08", &[], Start::Comment, &["review-1"]),
    port("09", &[], Start::Nothing, &[]),
    port("10", &["--set", "query=Which files have tests?"], Start::Nothing, &[]),
    port("11", &["--set", "picture=receipt.png"], Start::Nothing, &[]),
    port("12", &["--set", "run=77"], Start::Run, &["fix-1"]),
    port("13", &["--set", "run=77"], Start::Run, &["comment-1", "rerun-1"]),
    port("14", &[], Start::PullRequest, &["review-1"]),
    port("15", &[], Start::Nothing, &["labels-1", "labels-2"]),
    port("16", &["--set", "base=origin/main"], Start::PullRequest, &["comment-1"]),
    port("17", &["--set", "task=discount(10, 33) isn't rounded"], Start::Nothing, &[]),
    port("18", &["--set", "prompt=Too many digits", "--set", "test=test_cart.sh"], Start::Nothing, &[]),
];

/// What `gh` prints in these tests.
const GH: &str = r#"#!/bin/sh
case "$*" in
"issue list"*) echo '[{"number": 3, "title": "crash", "body": ""}, {"number": 4, "title": "how?", "body": ""}]' ;;
"pr list"*) echo '[{"number": 12, "title": "Add discount", "body": "", "mergedAt": "2026-01-01T00:00:00Z"}]' ;;
"run view 77 --log-failed") echo 'AssertionError: Error in test_total' ;;
"run view 77 --json jobs"*) echo '["test"]' ;;
"run view 77 --json url"*) echo 'https://ci.example.org/77' ;;
"run rerun 77 --failed") echo "$GH_TOKEN" > reran ;;
*) echo "gh $*: not expected" >&2; exit 1 ;;
esac
"#;

fn ports_folder() -> PathBuf {
    root().join("tests/acting_outside/ports")
}

fn folder_of(number: &str) -> PathBuf {
    let folders = std::fs::read_dir(ports_folder()).unwrap().map(|entry| entry.unwrap().path());
    let starts = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(number);
    folders.into_iter().find(starts).unwrap()
}

/// A small project with a change that isn't in `origin/main`, and the job of a port in `jobs`.
fn repository(port: &Path) -> TestFolder {
    let folder = TestFolder::new();
    let test = "grep -q 'def total' src/shop/cart.py\ngrep -q 'round(' src/shop/cart.py || { echo 'too many digits'; exit 1; }\n";
    let cart = "\"\"\"A cart.\"\"\"\n\n\ndef total(prices):\n    return sum(prices)\n";
    folder
        .write("README.md", "# shop\n")
        .write("AGENTS.md", "Small functions, a test for each.\n")
        .write("docs/usage.md", "# Usage\n\n`total` adds prices.\n")
        .write("pyproject.toml", "[project]\nname = \"shop\"\nversion = \"1.2.0\"\n")
        .write("src/shop/__init__.py", "")
        .write("src/shop/cart.py", cart)
        .write("tests/test_cart.sh", test)
        .write("receipt.png", PNG)
        .write(".gitignore", "runs/\nbin/\nreran\n__pycache__/\n");
    copy(&port.join("jobs"), &folder, "jobs");
    folder.commit_all();
    folder.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    let discount = "\n\ndef discount(price, percent):\n    return price * (1 - percent / 100)\n";
    folder.write("src/shop/cart.py", format!("{cart}{discount}")).commit_all();
    folder.write("bin/gh", GH);
    std::fs::set_permissions(folder.at("bin/gh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A white picture of one pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55\0\0\0\nIDATx\xdac\xf8\x0f\0\x01\x01\x01\0\x1b\xb6\xee\x56\0\0\0\0IEND\xaeB`\x82";

fn copy(from: &Path, to: &TestFolder, name: &str) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), to, &name),
            false => drop(to.write(&name, std::fs::read(entry.path()).unwrap())),
        }
    }
}

fn event(start: Start, base: &str, head: &str) -> Option<Value> {
    let branch = |name: &str, sha: &str| json!({ "ref": name, "sha": sha, "repo": { "full_name": "o/r" } });
    let pull = json!({ "number": 7, "title": "Add {{ discount }}", "body": null, "draft": false, "head": branch("discount", head), "base": branch("main", base) });
    let mut event = match start {
        Start::Nothing => return None,
        Start::Issue => json!({ "issue": { "number": 3, "title": "total is wrong", "body": null } }),
        Start::PullRequest => json!({ "pull_request": pull }),
        Start::Comment => json!({ "issue": { "number": 7, "pull_request": {} }, "comment": { "body": "/grumpy" } }),
        Start::Run => {
            json!({ "workflow_run": { "id": 77, "head_branch": "discount", "head_sha": head, "pull_requests": [pull] } })
        }
    };
    event["repository"] = json!({ "full_name": "o/r" });
    Some(event)
}

fn check(port: &Port) {
    let source = folder_of(port.number);
    let folder = repository(&source);
    let job =
        std::fs::read_dir(source.join("jobs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let job = job.into_iter().find(|name| name.ends_with(".yaml") && !name.ends_with(".script.yaml")).unwrap();
    let (job, script) = (format!("jobs/{job}"), format!("replay/jobs/{}", job.replace(".yaml", ".script.yaml")));
    let head = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let git = Git::of(&folder, "main");
    let base = folder.git(&["rev-parse", "origin/main"]).trim().to_owned();
    let event = event(port.start, &base, &head).map(|event| {
        let path = folder.home().join("event.json");
        std::fs::write(&path, event.to_string()).unwrap();
        path
    });
    let path = format!("{}:{}", folder.at("bin").display(), std::env::var("PATH").unwrap());
    let start = |arguments: &[&str]| -> Program {
        let program =
            folder.legwork(arguments).env("PATH", &path).env("GH_TOKEN", TOKEN).env("GITHUB_REPOSITORY", "o/r");
        match &event {
            Some(event) => program.env("GITHUB_EVENT_PATH", event),
            None => program,
        }
    };
    let validated = start(&["validate", "jobs"]).run();
    validated.assert_code(0).assert_stdout("").assert_stderr_contains("no findings");
    start(&["run", &job, "--dry-run"]).args(port.arguments).run().assert_code(0);
    let ended = start(&["run", &job, "--model", &script]).args(port.arguments).run();
    ended.assert_code(0);
    let workflow = std::fs::read_to_string(source.join("workflow.yml")).unwrap_or_default();
    let is_script = |line: &str| ["run:", "- run:"].iter().any(|key| line.trim_start().starts_with(key));
    assert!(!workflow.lines().any(is_script), "{workflow}");
    assert_eq!(workflow.contains("publish: true"), !port.published.is_empty());
    if port.published.is_empty() {
        return;
    }
    let server = ForgeServer::start(Github::new(git));
    {
        let mut api = server.api();
        api.git.branches.insert("discount".to_owned(), head.clone());
        api.add_issue(3, &[]);
        api.add_issue(4, &[]);
        api.add_pull(7, "discount", &head, "o/r");
        let patch = "@@ -4,2 +4,6 @@\n def total(prices):\n     return sum(prices)\n+\n+\n+def discount(price, percent):\n+    return price * (1 - percent / 100)";
        api.files.insert(7, vec![json!({ "filename": "src/shop/cart.py", "patch": patch })]);
    }
    let publish = || {
        let program = start(&["publish", "latest", "--job", &job]).env("GITHUB_API_URL", server.url());
        let program = program.env("GITHUB_TOKEN", TOKEN).env("LEGWORK_PUBLISH_PAUSE_MS", "0");
        program.env("RERUN_TOKEN", "of its own").env("RERUN_ID", "77").run()
    };
    let ended = publish();
    ended.assert_code(0);
    let done = ended.stdout.lines().filter_map(|line| line.strip_prefix("done     "));
    let mut done: Vec<&str> = done.map(|line| line.split(' ').next().unwrap_or_default()).collect();
    let mut expected = port.published.to_vec();
    done.sort_unstable();
    expected.sort_unstable();
    assert_eq!(done, expected, "{}: {}", port.number, ended.full_output());
    assert_eq!(server.api().violations, [""; 0], "{}", port.number);
    let requests = server.log().len();
    publish().assert_code(0);
    assert_eq!(server.log().len(), requests, "{}: each is published once", port.number);
    if port.published.contains(&"rerun-1") {
        assert_eq!(folder.read("reran"), "of its own\n");
    }
}

#[test]
fn public_automations_run_and_act_without_scripts_in_their_workflows() {
    assert_eq!(std::fs::read_dir(ports_folder()).unwrap().count(), PORTS.len() + 1, "and the README");
    in_parallel(PORTS, check);
}
