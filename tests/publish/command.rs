//! The command `legwork publish`, from the record of a run to the forge.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{Death, Fault, ForgeAnswer, ForgeServer, LOGIN, TOKEN};
use crate::support::in_parallel;
use crate::support::journal::with_checksums;
use crate::support::program::{Program, ProgramOutput};
use crate::support::test_folder::TestFolder;

const KEY: &str = "a key of enough length";

const JOB: &str = r#"
name: triage
model: replay/replies.yaml
outputs:
  comment: { target: 3 }
  labels: { target: 3, add: [bug], max: 2 }
  docs: { kind: pull_request, labels: [automation], paths: ["docs/**"] }
parent:
  prompt: { file: prompt.md }
  tools: [write_file, { output: [comment, labels, docs, nothing_to_do] }]
"#;

const SCRIPT: &str = r#"
parent:
  - calls: [{ tool: write_file, input: { path: docs/new.md, content: "new\n" } }]
  - calls:
      - { tool: comment, input: { body: "It is a bug.\n\n````\nx\n````" } }
      - { tool: labels, input: { add: [bug] } }
      - { tool: docs, input: { title: Add docs, body: They were missing. } }
  - text: Done.
"#;

/// A committed folder with a job.
fn folder_with(job: &str, script: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder
        .write("job.yaml", job)
        .write("replies.yaml", script)
        .write("prompt.md", "Look.\n")
        .write(".gitignore", "runs/\n");
    folder.commit_all();
    folder
}

/// The same after a run.
fn recorded(job: &str, script: &str) -> TestFolder {
    let folder = folder_with(job, script);
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).env("LEGWORK_RECORD_KEY", KEY).run().assert_code(0);
    folder
}

fn forge(folder: &TestFolder) -> ForgeServer<Github> {
    ForgeServer::start(Github::new(Git::of(folder, "main")))
}

/// `legwork publish` in a workflow for issue 3.
fn publish(folder: &TestFolder, server: &ForgeServer<Github>, more: &[&str]) -> Program {
    let event = json!({ "repository": { "full_name": "o/r" }, "issue": { "number": 3 } });
    let path = folder.home().join("event.json");
    if !path.exists() {
        std::fs::write(&path, event.to_string()).unwrap();
    }
    let program = folder.legwork(&["publish", "latest", "--job", "job.yaml"]).args(more);
    let program =
        program.env("GITHUB_API_URL", server.url()).env("GITHUB_TOKEN", TOKEN).env("GITHUB_REPOSITORY", "o/r");
    let quick = program.env("LEGWORK_PUBLISH_PAUSE_MS", "0").env("LEGWORK_RETRY_BASE_MS", "1");
    quick.env("GITHUB_EVENT_PATH", path).env("LEGWORK_RECORD_KEY", KEY)
}

fn published(folder: &TestFolder) -> Value {
    let path = folder.at("runs/triage/latest").canonicalize().unwrap().join("published.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What is on the forge, without ids.
fn content(server: &ForgeServer<Github>) -> String {
    let api = server.api();
    let pulls: Vec<_> = api.pulls.values().map(|pull| [&pull["title"], &pull["body"]]).collect();
    let branches: Vec<_> = api.git.branches.keys().collect();
    format!("{:?}\n{pulls:?}\n{:?}\n{branches:?}", api.own_comments(), api.issues[&3]["labels"])
}

#[test]
fn a_record_is_published_once() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    let ended = publish(&folder, &server, &[]).run();
    ended.assert_code(0).assert_stderr("").assert_not_printed(TOKEN);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ended.stdout);
    assert!(
        lines[0].starts_with("done     docs-1 (pull_request): https://github.example/o/r/pull/"),
        "{}",
        ended.stdout
    );
    assert!(lines[1].starts_with("done     comment-1 (comment): https://"), "{}", ended.stdout);
    assert_eq!(lines[2], "done     labels-1 (labels)");
    let run = folder.at("runs/triage/latest").canonicalize().unwrap();
    let branch = format!("legwork/triage/{}", run.file_name().unwrap().display());
    assert_eq!(server.api().git.text(&branch, "docs/new.md").as_deref(), Some("new\n"));
    assert_eq!(server.api().violations, [""; 0]);
    let entries = published(&folder)["entries"].clone();
    assert_eq!(entries["comment-1"]["state"], "done");
    assert!(entries["comment-1"]["url"].as_str().is_some_and(|url| url.starts_with("https://")));
    let (before, requests) = (content(&server), server.log().len());
    publish(&folder, &server, &[]).run().assert_code(0);
    assert_eq!((content(&server), server.log().len()), (before, requests));
    assert!(
        !std::fs::read_dir(&run).unwrap().flatten().any(|file| file.file_name().to_string_lossy().contains("lock"))
    );
}

#[test]
fn what_a_command_says_was_published_is_not_believed() {
    let folder = folder_with(JOB, SCRIPT);
    // With the key in the environment, and with that of this machine.
    for key in [Some(KEY), None] {
        let run = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]);
        let run = if let Some(key) = key { run.env("LEGWORK_RECORD_KEY", key) } else { run };
        run.run().assert_code(0);
        folder.git(&["clean", "--quiet", "--force", "docs"]);
        let server = forge(&folder);
        let publish = |more: &[&str]| match key {
            Some(_) => publish(&folder, &server, more),
            None => publish(&folder, &server, more).env_remove("LEGWORK_RECORD_KEY"),
        };
        publish(&["--only", "docs-1"]).run().assert_code(0);
        let file = folder.at("runs/triage/latest").canonicalize().unwrap().join("published.json");
        let text = std::fs::read_to_string(&file).unwrap();
        publish(&["--dry-run"]).run().assert_code(0).assert_stdout_contains("docs-1");
        // The record's own entries, as a command of a later run could write them.
        let planted = text.replace("docs-1", "comment-1");
        assert_ne!(planted, text);
        std::fs::write(&file, planted).unwrap();
        let requests = server.log().len();
        for more in [&[][..], &["--dry-run"]] {
            let refused = publish(more).run();
            refused
                .assert_code(2)
                .assert_stderr_contains("wasn't written by `legwork publish` with the key of the record");
        }
        assert_eq!(server.log().len(), requests);
        std::fs::remove_file(&file).unwrap();
        publish(&[]).run().assert_code(0);
        assert_eq!(server.api().own_comments().len(), 1);
    }
}

#[test]
fn a_publisher_that_is_killed_at_any_request_continues() {
    let folder = recorded(JOB, SCRIPT);
    let clean = forge(&folder);
    let start =
        |server: &ForgeServer<Github>, state: &str| publish(&folder, server, &["--state", state, "--only", "docs-1"]);
    start(&clean, "clean.json").run().assert_code(0);
    let requests = clean.log().len();
    assert!((10..60).contains(&requests), "{requests}");
    let points: Vec<(usize, bool)> = (0..requests).flat_map(|request| [(request, false), (request, true)]).collect();
    for (request, after) in points {
        let server = forge(&folder);
        let (signal, signalled) = channel();
        server.die(Death { request, after, signal: Some(signal) });
        let state = format!("state-{request}-{after}.json");
        let running = start(&server, &state).spawn();
        signalled.recv_timeout(Duration::from_secs(60)).expect("the request");
        running.signal(Signal::KILL);
        assert_eq!(running.wait().signal(), Some(9));
        server.revive();
        start(&server, &state).run().assert_code(0);
        assert_eq!(content(&server), content(&clean), "killed at request {request}, after its effect: {after}");
    }
}

#[test]
fn twenty_processes_publish_each_output_once() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    publish(&folder, &server, &["--dry-run"]).run().assert_code(0);
    let ended = in_parallel(0..20, |_| publish(&folder, &server, &[]).run());
    for ended in &ended {
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
    }
    publish(&folder, &server, &[]).run().assert_code(0);
    let made = server.api().pulls.values().filter(|pull| pull["user"]["login"] == LOGIN).count();
    assert_eq!((server.api().own_comments().len(), made), (1, 1));
}

#[test]
fn a_dry_run_needs_no_token_and_shows_each_text() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    let summary = folder.home().join("summary.md");
    let dry = || publish(&folder, &server, &["--dry-run"]).env_remove("GITHUB_TOKEN").env("GITHUB_ACTIONS", "true");
    let ended = dry().env("GITHUB_STEP_SUMMARY", &summary).run();
    ended.assert_code(0).assert_stdout_contains("would    comment-1 (comment): comment on #3\n");
    ended.assert_stdout_contains("`````\nIt is a bug.\n\n````\nx\n````\n`````\n");
    ended.assert_stdout_contains("pull request with 1 changed file: Add docs");
    assert_eq!(server.log().len(), 0);
    let page = std::fs::read_to_string(summary).unwrap();
    assert!(page.starts_with("### legwork publish (dry run)\n") && page.contains("`````\nIt is a bug."), "{page}");
    publish(&folder, &server, &[]).env_remove("GITHUB_TOKEN").run().assert_code(5).assert_stderr_contains("no token");
}

#[track_caller]
#[test]
fn a_dry_run_knows_that_an_issue_has_no_check() {
    let job = JOB.replace("  labels: { target: 3, add: [bug], max: 2 }", "  labels: { kind: check }");
    let folder = recorded(&job, &SCRIPT.replace("{ add: [bug] }", "{ conclusion: success, summary: Fine. }"));
    let server = forge(&folder);
    for more in [&["--dry-run"][..], &[]] {
        let ended = publish(&folder, &server, more).run();
        ended
            .assert_code(1)
            .assert_stdout_contains("labels-1 (check): an issue has no commit that a check could be for");
    }
}

fn assert_refused(ended: &ProgramOutput, code: i32, why: &str, server: &ForgeServer<Github>) {
    ended.assert_code(code).assert_stderr_contains(why);
    assert_eq!(server.writes(), [""; 0]);
}

#[test]
fn another_job_file_or_another_event_publishes_nothing() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    let run = || publish(&folder, &server, &[]).run();
    folder.write("job.yaml", JOB.replace("add: [bug]", "add: [other]"));
    assert_refused(&run(), 2, "the job file differs from the one that ran", &server);
    folder.write("job.yaml", JOB.replace("triage", "another"));
    assert_refused(&run(), 2, "the record is of the job `triage`, not of `another`", &server);
    folder.write("job.yaml", JOB).write("prompt.md", "Publish all.\n");
    assert_refused(&run(), 2, "`prompt.md` differs from the one that the run used", &server);
    folder.write("prompt.md", "Look.\n").write("event.json", "[]");
    let ended = publish(&folder, &server, &["--event", "event.json"]).run();
    assert_refused(&ended, 2, "event.json isn't an event of a forge: it isn't a JSON object", &server);
    folder.write("event.json", r#"{"repository":{"full_name":"x/y"},"issue":{"number":3}}"#);
    let ended = publish(&folder, &server, &["--event", "event.json"]).run();
    assert_refused(&ended, 2, "the event is of x/y, and this is o/r", &server);
    let ended = publish(&folder, &server, &[]).env("CI_PROJECT_PATH", "g/r").env_remove("GITHUB_EVENT_PATH").run();
    assert_refused(&ended, 2, "--to github or --to gitlab", &server);
    let ended = publish(&folder, &server, &["--only", "comment-2"]).run();
    assert_refused(&ended, 2, "no output has the id `comment-2`", &server);
    run().assert_code(0);
}

#[test]
fn a_record_that_was_changed_is_refused_by_its_seal() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    let run = folder.at("runs/triage/latest").canonicalize().unwrap();
    publish(&folder, &server, &["--require", "sealed", "--dry-run"]).run().assert_code(0).assert_stderr("");
    let ended = publish(&folder, &server, &[]).env("LEGWORK_RECORD_KEY", "another key of that length").run();
    assert_refused(&ended, 2, "made with another key", &server);
    let ended = publish(&folder, &server, &["--require", "sealed"]).env_remove("LEGWORK_RECORD_KEY").run();
    assert_refused(&ended, 5, "can't be checked without the key", &server);
    let ended = publish(&folder, &server, &["--dry-run"]).env_remove("LEGWORK_RECORD_KEY").run();
    ended.assert_code(0).assert_stderr_contains("the seal of the record wasn't checked");
    folder.allow_forged_records();
    let (journal, outputs) = (run.join("events.jsonl"), run.join("outputs.json"));
    let text = std::fs::read_to_string(&journal).unwrap();
    let outputs_text = std::fs::read_to_string(&outputs).unwrap();
    std::fs::write(&outputs, outputs_text.replace("It is a bug", "It is not")).unwrap();
    assert_refused(&publish(&folder, &server, &[]).run(), 2, "it differs from the journal", &server);
    std::fs::remove_file(&outputs).unwrap();
    let forged = with_checksums(&text.replace("It is a bug", "It is not"));
    std::fs::write(&journal, &forged).unwrap();
    assert_refused(&publish(&folder, &server, &[]).run(), 2, "the record was changed", &server);
    // The line with which the run ends is sealed, too.
    let last = text.lines().last().unwrap();
    assert!(last.contains("\"seal\":\""), "{last}");
    std::fs::write(&journal, with_checksums(&text.replace("\"exit_code\":0", "\"exit_code\":1"))).unwrap();
    assert_refused(&publish(&folder, &server, &[]).run(), 2, "the record was changed", &server);
    // Without the seal, and with it after more lines.
    let seal = last.split("\"seal\":\"").nth(1).unwrap().split('"').next().unwrap();
    let unsealed = with_checksums(&text.replace(&format!(",\"seal\":\"{seal}\""), ""));
    std::fs::write(&journal, unsealed).unwrap();
    let ended = publish(&folder, &server, &["--dry-run"]).run();
    ended.assert_code(0).assert_stderr_contains("the record has no seal");
    let ended = publish(&folder, &server, &["--require", "sealed"]).run();
    assert_refused(&ended, 5, "has no seal", &server);
    std::fs::write(&journal, text).unwrap();
    publish(&folder, &server, &["--require", "sealed,bubblewrap"]).run().assert_code(0);
}

#[test]
fn the_sandbox_of_commands_can_be_required() {
    let job = "name: triage\nmodel: replay/replies.yaml\noutputs:\n  comment: { target: 3 }\nparent: { prompt: Go., tools: [bash, { output: [comment] }] }\n";
    let script = "parent:\n  - calls: [{ tool: bash, input: { command: 'true' } }]\n  - calls: [{ tool: comment, input: { body: x } }]\n  - text: Done.\n";
    let folder = recorded(job, script);
    let server = forge(&folder);
    let ended = publish(&folder, &server, &["--require", "bubblewrap"]).run();
    assert_refused(&ended, 5, "and --require asks for bubblewrap", &server);
    publish(&folder, &server, &[]).run().assert_code(0);
}

#[test]
fn an_unsealed_record_does_not_say_what_may_be_published() {
    let job = "name: triage\nmodel: replay/replies.yaml\ninputs: { labels: { type: list, default: [bug] } }\noutputs:\n  labels: { target: 3, add: '{{ inputs.labels }}' }\nparent: { prompt: Go, tools: [{ output: [labels] }] }\n";
    let script = "parent:\n  - calls: [{ tool: labels, input: { add: [admin] } }]\n  - text: Done.\n";
    let folder = folder_with(job, script);
    let run = || folder.legwork(&["run", "job.yaml", "--set", "labels=bug,admin"]);
    run().run().assert_code(0);
    let server = forge(&folder);
    let unsealed = |more: &[&str]| publish(&folder, &server, more).env_remove("LEGWORK_RECORD_KEY").run();
    assert_refused(&unsealed(&[]), 2, "depend on the input `labels`", &server);
    assert_refused(&unsealed(&["--set", "labels=bug"]), 2, "than --set gives", &server);
    unsealed(&["--set", "labels=bug,admin"]).assert_code(0);
    run().env("LEGWORK_RECORD_KEY", KEY).run().assert_code(0);
    publish(&folder, &server, &[]).run().assert_code(0);
}

#[test]
fn a_link_in_a_record_is_not_followed() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    let (record, victim) = (folder.at("runs/triage/latest").canonicalize().unwrap(), folder.at("victim"));
    std::fs::create_dir(&victim).unwrap();
    for name in ["published.json.lock", "published.json"] {
        std::os::unix::fs::symlink(&victim, record.join(name)).unwrap();
        publish(&folder, &server, &[]).run().assert_code(5);
        assert!(victim.is_dir() && std::fs::read_dir(&victim).unwrap().next().is_none(), "{name}");
        std::fs::remove_file(record.join(name)).unwrap();
    }
    assert!(server.api().own_comments().is_empty());
}

#[test]
fn what_was_published_can_be_noted_elsewhere() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    publish(&folder, &server, &["--state", "state.json", "--only", "comment-1"]).run().assert_code(75);
    assert_eq!(server.api().own_comments(), [""; 0], "it waits for the pull request");
    publish(&folder, &server, &["--state", "state.json"]).run().assert_code(0);
    assert_eq!(server.api().own_comments().len(), 1);
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).env("LEGWORK_RECORD_KEY", KEY).run();
    let ended = publish(&folder, &server, &["--state", "state.json"]).run();
    ended.assert_code(2).assert_stderr_contains("state.json is of another record: its run is");
}

#[test]
fn runs_that_did_not_complete_publish_nothing() {
    let job = "name: triage\nmodel: replay/replies.yaml\noutputs:\n  comment: { target: 3, on: [completed, checks_failed] }\n  second: { kind: comment, target: 3 }\nchecks: [{ name: never, run: 'false' }]\nparent: { prompt: Go., tools: [{ output: [comment, second] }] }\n";
    let calls = "parent:\n  - calls: [{ tool: comment, input: { body: x } }, { tool: second, input: { body: y } }]\n  - text: Done.\n";
    let folder = folder_with(job, calls);
    let server = forge(&folder);
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).env("LEGWORK_RECORD_KEY", KEY).run().assert_code(1);
    let ended = publish(&folder, &server, &[]).run();
    ended.assert_code(1).assert_stdout_contains("refused  second-1 (comment): the run ended as checks_failed");
    assert_eq!(server.api().own_comments().len(), 1, "an output can be published with checks that failed");
}

#[test]
fn a_run_with_nothing_to_do_publishes_nothing_and_succeeds() {
    let script = "parent:\n  - calls: [{ tool: nothing_to_do, input: { reason: All is well. } }]\n  - text: Done.\n";
    let folder = recorded(JOB, script);
    let server = forge(&folder);
    let ended = publish(&folder, &server, &[]).env_remove("GITHUB_TOKEN").run();
    ended.assert_code(0).assert_stdout_contains("All is well.");
    assert_eq!(server.log().len(), 0);
}

#[test]
fn the_rows_of_a_map_are_published_each_once() {
    let job = "name: triage\nmodel: replay/replies.yaml\ninputs: { issue: { type: integer } }\noutputs:\n  comment: { target: '{{ inputs.issue }}' }\nparent: { prompt: 'Go {{ inputs.issue }}', tools: [{ output: [comment] }] }\n";
    let script = "parent:\n  - calls: [{ tool: comment, input: { body: hello } }]\n  - text: Done.\n";
    let folder = folder_with(job, script);
    folder.write("rows.csv", "id,issue\none,3\ntwo,4\n");
    let map = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "id", "--sandbox", "off"]);
    map.env("LEGWORK_RECORD_KEY", KEY).run().assert_code(0);
    let server = forge(&folder);
    server.api().add_issue(4, &[]);
    server.fail(
        "POST /repos/o/r/issues/4/comments",
        1,
        Fault::Instead(ForgeAnswer::error(403, "no").header("retry-after", "999")),
    );
    let start = || {
        let program = folder.legwork(&["publish", "map-rows", "--job", "job.yaml", "--repo", "o/r"]);
        let program = program.env("GITHUB_API_URL", server.url()).env("GITHUB_TOKEN", TOKEN);
        program.env("LEGWORK_PUBLISH_PAUSE_MS", "0").env("LEGWORK_RECORD_KEY", KEY)
    };
    let ended = start().run();
    ended.assert_code(75).assert_stdout_contains("later    two/comment-1 (comment): the forge's rate limit");
    start().run().assert_code(0);
    let comments = server.api().own_comments();
    assert_eq!(comments.len(), 2);
    assert!(comments[0].contains("<!-- legwork triage one/comment-1 map-20"), "{comments:?}");
    assert!(folder.exists("runs/triage/map-rows/published.json"));
    let ended = start().args(["--only", "two/comment-1"]).run();
    ended.assert_code(0).assert_stdout_contains("done     two/comment-1 (comment): https://");
}

#[test]
fn what_a_text_may_contain_is_checked_again() {
    let folder = recorded(JOB, SCRIPT);
    let server = forge(&folder);
    folder.allow_forged_records();
    let run = folder.at("runs/triage/latest").canonicalize().unwrap();
    let text = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    std::fs::remove_file(run.join("outputs.json")).unwrap();
    let forge_journal = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        std::fs::write(run.join("events.jsonl"), with_checksums(&text.replace(from, to))).unwrap();
        publish(&folder, &server, &["--dry-run"]).env_remove("LEGWORK_RECORD_KEY").run()
    };
    let ended = forge_journal("\"add\":[\"bug\"]", "\"add\":[\"admin\"]");
    ended.assert_code(1).assert_stdout_contains("refused  labels-1 (labels):");
    let ended = forge_journal("\"target\":3", "\"target\":4");
    ended.assert_code(1).assert_stdout_contains("another issue or pull request");
}

/// A folder with the pull request of the case of `jobs/review-pull-request.yaml`, its event, and the run that reviews it. The job is
/// `job.yaml`, and its folder is that of a checkout of the repository.
fn reviewed() -> TestFolder {
    let jobs = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs");
    let case = jobs.join("tests/review-pull-request/finding-confirmed");
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let folder = TestFolder::new();
    folder
        .write("job.yaml", read(jobs.join("review-pull-request.yaml")))
        .write("replies.yaml", read(case.join("script.yaml")))
        .write(".gitignore", "runs/\nstate-*\n")
        .write("limit.py", read(case.join("before/limit.py")));
    for name in ["lead.md", "pull-request.md", "propose.md", "reviewer.md", "steps.md", "verifier.md"] {
        folder.write(&format!("prompts/review/{name}"), read(jobs.join("prompts/review").join(name)));
    }
    for name in ["ground-rules.md", "evidence.md"] {
        folder.write(&format!("prompts/{name}"), read(jobs.join("prompts").join(name)));
    }
    folder.commit_all();
    let base = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    folder.write("limit.py", read(case.join("workspace/limit.py"))).commit_all();
    let head = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let branch = |name: &str, sha: &str| json!({ "ref": name, "sha": sha, "repo": { "full_name": "o/r" } });
    let mut event: Value = serde_json::from_str(&read(case.join("event.json"))).unwrap();
    event["repository"] = json!({ "full_name": "o/r" });
    event["pull_request"]["head"] = branch("feature", &head);
    event["pull_request"]["base"] = branch("main", &base);
    std::fs::write(folder.home().join("event.json"), event.to_string()).unwrap();
    let run = ["run", "job.yaml", "--model", "replay/replies.yaml", "--set", "focus=correctness", "--set"];
    let program = folder.legwork(&run).arg(format!("base={base}")).env("LEGWORK_RECORD_KEY", KEY);
    program.env("GITHUB_EVENT_PATH", folder.home().join("event.json")).run().assert_code(0);
    folder
}

/// Adds a pull request with the change of [`reviewed`] to a forge.
fn add_pull(server: &ForgeServer<Github>, number: u64, head: &str, repository: &str) {
    let mut api = server.api();
    api.add_pull(number, "feature", head, repository);
    let patch = "@@ -1,2 +1,4 @@\n-def clamp(value, most):\n-    return min(value, most)\n+def clamp(value, most, least=0):\n+    if least > most:\n+        return None\n+    return max(least, min(value, most))";
    api.files.insert(number, vec![json!({ "filename": "limit.py", "patch": patch })]);
}

#[test]
fn a_review_is_there_once_wherever_its_publisher_is_killed() {
    let folder = reviewed();
    let head = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let start = || {
        let server = forge(&folder);
        add_pull(&server, 7, &head, "o/r");
        server
    };
    let clean = start();
    publish(&folder, &clean, &["--state", "clean.json"]).run().assert_code(0);
    let requests = clean.log().len();
    for (request, after) in (0..requests).flat_map(|request| [(request, false), (request, true)]) {
        let server = start();
        let (signal, signalled) = channel();
        server.die(Death { request, after, signal: Some(signal) });
        let state = format!("state-{request}-{after}.json");
        let running = publish(&folder, &server, &["--state", &state]).spawn();
        signalled.recv_timeout(Duration::from_secs(60)).expect("the request");
        running.signal(Signal::KILL);
        assert_eq!(running.wait().signal(), Some(9));
        server.revive();
        publish(&folder, &server, &["--state", &state]).run().assert_code(0);
        let reviews = server.api().reviews.clone();
        assert_eq!(reviews.len(), 1, "killed at request {request}, after its effect: {after}");
        assert_eq!((&reviews[0]["commit_id"], &reviews[0]["comments"][0]["line"]), (&json!(head), &json!(3)));
        assert_eq!(server.api().violations, [""; 0]);
    }
    let other = json!({ "repository": { "full_name": "o/r" }, "issue": { "number": 9 } });
    folder.write("other.json", other.to_string());
    let ended = publish(&folder, &clean, &["--event", "other.json"]).run();
    ended.assert_code(2).assert_stderr_contains("the record is for #7, and this process's event is for #9");
}

#[test]
fn a_second_workflow_finds_the_pull_request_of_a_fork() {
    let folder = reviewed();
    let head = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let server = forge(&folder);
    add_pull(&server, 7, &head, "mallory/r");
    let run = json!({ "head_branch": "feature", "head_sha": head, "head_repository": { "full_name": "mallory/r" }, "pull_requests": [] });
    folder.write("run.json", json!({ "repository": { "full_name": "o/r" }, "workflow_run": run }).to_string());
    for _ in 0..2 {
        publish(&folder, &server, &["--event", "run.json"]).run().assert_code(0);
        assert_eq!(server.api().reviews.len(), 1);
    }
    // The record names a pull request that isn't that of the branch.
    add_pull(&server, 8, &head, "eve/r");
    let run = json!({ "head_branch": "feature", "head_sha": head, "head_repository": { "full_name": "eve/r" }, "pull_requests": [] });
    folder.write("run.json", json!({ "repository": { "full_name": "o/r" }, "workflow_run": run }).to_string());
    let ended = publish(&folder, &server, &["--event", "run.json", "--state", "other.json"]).run();
    ended.assert_code(1).assert_stdout_contains("another issue or pull request");
}

#[test]
fn a_skipped_run_has_nothing_to_do() {
    let job = JOB.replace("parent:", "before:\n  - { name: found, run: 'true' }\nskip_if: \"true\"\nparent:");
    let folder = recorded(&job, SCRIPT);
    let server = forge(&folder);
    let ended = publish(&folder, &server, &[]).env_remove("GITHUB_TOKEN").run();
    ended.assert_code(0).assert_stdout_contains("nothing  ");
    assert_eq!(server.log().len(), 0);
}

#[test]
fn only_a_sealed_record_says_what_a_step_decided() {
    let job = JOB.replace("add: [bug]", "add: \"{{ before.names }}\"")
        + "before: [{ name: names, run: cat names.json, trusted: true, schema: { type: array } }]\n";
    let folder = folder_with(&job, SCRIPT);
    folder.write("names.json", "[\"bug\"]\n");
    folder.git(&["add", "--all"]);
    folder.git(&["commit", "--quiet", "--message=names"]);
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).env("LEGWORK_RECORD_KEY", KEY).run().assert_code(0);
    let server = forge(&folder);
    // What the step would print now doesn't count.
    folder.write("names.json", "[]\n");
    let unsealed = publish(&folder, &server, &[]).env_remove("LEGWORK_RECORD_KEY").run();
    unsealed.assert_code(2).assert_stderr_contains(
        "`outputs.labels.add` is what the step `names` printed, and only a sealed record proves that",
    );
    assert!(server.log().is_empty());
    publish(&folder, &server, &[]).run().assert_code(0);
    let labels = server.api().issues[&3]["labels"].to_string();
    assert!(labels.contains("\"bug\""), "{labels}");
}
