//! The jobs of this repository run from their scripts, in any repository.

use std::path::Path;

use serde_json::Value;

use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

/// The events of jobs that an issue or a pull request starts, as the book gives them.
pub(crate) const EVENTS: &[(&str, &str)] = &[
    ("triage-issue", "jobs/tests/triage-issue/defect/event.json"),
    ("review-pull-request", "jobs/tests/review-pull-request/finding-confirmed/event.json"),
];

/// The names of all jobs in `jobs/`.
pub(crate) fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|name| name.strip_suffix(".yaml").map(ToOwned::to_owned))
        .filter(|name| !name.ends_with(".script"))
        .collect();
    names.sort();
    names
}

/// A small crate in a git repository, with the jobs in it.
pub(crate) fn repository(commits: usize) -> TestFolder {
    let folder = TestFolder::new();
    folder
        .write("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        .write("README.md", "# small\n\nA small crate.\n")
        .write("src/lib.rs", "//! Small.\n\n/// Two.\npub fn two() -> u32 {\n    2\n}\n");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs"), &folder, "jobs");
    folder.commit_all();
    for number in 1..commits {
        folder.write("NOTES.md", format!("{number}\n")).commit_all();
    }
    folder
}

fn copy(from: &Path, to: &TestFolder, name: &str) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), to, &name);
        } else {
            to.write(&name, std::fs::read(entry.path()).unwrap());
        }
    }
}

fn run(folder: &TestFolder, name: &str) -> ProgramOutput {
    let (job, script) = (format!("jobs/{name}.yaml"), format!("replay/jobs/{name}.script.yaml"));
    let event = EVENTS.iter().find(|(of, _)| *of == name).map(|(_, event)| ["--event", event]);
    folder.legwork(&["run", &job, "--model", &script]).args(event.iter().flatten()).run()
}

/// The tools whose calls failed, in all agents of a run.
fn failed_tools(ended: &ProgramOutput, name: &str) -> Vec<Value> {
    let record = ended.run_folder_in(format!("runs/{name}"));
    let subagents = record.result()["subagents"].as_array().unwrap().clone();
    let children = subagents.iter().flat_map(|subagent| record.events_of(subagent["id"].as_str().unwrap()));
    let finished = record.events().into_iter().chain(children).filter(|event| event["type"] == "call_finished");
    let calls: Vec<Value> = finished.map(|mut event| event["data"].take()).collect();
    assert!(!calls.is_empty(), "{name}: no tool was called\n{}", ended.full_output());
    calls.into_iter().filter(|call| call["result"]["is_error"] != false).collect()
}

#[test]
fn every_job_runs_from_its_script_in_a_new_repository() {
    for commits in [1, 2] {
        let folder = repository(commits);
        for name in names() {
            let ended = run(&folder, &name);
            ended.assert_code(0);
            assert!(!ended.stdout.trim().is_empty(), "{name} answers nothing\n{}", ended.full_output());
            assert_eq!(failed_tools(&ended, &name), Vec::<Value>::new(), "{name}, {commits} commits: failed calls");
            let file = std::fs::read(ended.run_folder_in(format!("runs/{name}")).path().join("outputs.json"));
            let file: Value = file.map(|text| serde_json::from_slice(&text).unwrap()).unwrap_or_default();
            let proposed = file["entries"][0].is_object() || file["nothing_to_do"].is_string();
            let is_to_propose = EVENTS.iter().any(|(of, _)| *of == name) || name == "fix-failing-ci";
            assert_eq!(proposed, is_to_propose, "{name} proposes something, or says that there is nothing to do");
        }
        let changed = folder.git(&["status", "--short", "--", ":!runs"]);
        let written = "?? slug.sh\n?? slug_test.sh\n?? tour-report.md\n";
        assert_eq!(changed, written, "only new-module and the tour write files, and say so");
    }
}

#[test]
fn the_tour_writes_its_report_and_delegates_in_parallel() {
    let folder = repository(1);
    let ended = run(&folder, "tour");
    ended.assert_code(0).assert_stdout_contains("tour-report.md");
    assert!(folder.read("tour-report.md").starts_with("# A tour of "));
    let record = ended.run_folder();
    let result = record.result();
    let ids: Vec<&str> =
        result["subagents"].as_array().unwrap().iter().map(|subagent| subagent["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["explorer-1", "tester-1"]);
    let events = record.events();
    let tasks: Vec<&str> = events
        .iter()
        .filter(|event| event["data"]["tool"] == "task")
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(tasks, ["call_started", "call_started", "call_finished", "call_finished"], "both at once");
}

/// Examples name models that still exist: a retired model gets a warning, in a job or in the documentation.
#[test]
fn no_job_uses_a_retired_model() {
    let folder = repository(1);
    folder.legwork(&["init", "first", "--folder", "new"]).run().assert_code(0);
    let jobs: Vec<String> =
        names().iter().map(|name| format!("jobs/{name}.yaml")).chain(["new/first.yaml".into()]).collect();
    let validated = folder.legwork(&["validate"]).args(&jobs).run();
    validated.assert_code(0);
    assert!(!validated.full_output().contains("retired-model"), "{}", validated.full_output());
    let run = |model: &str| folder.legwork(&["run", "new/first.yaml", "--dry-run", "--model", model]).run();
    let warning = "`claude-opus-4-1` is retired by its vendor on 2026-08-05; use a newer one, such as `anthropic/claude-opus-5-5`";
    run("anthropic/claude-opus-4-1").assert_code(0).assert_stderr_contains(warning);
    run("anthropic/claude-opus-5-5").assert_code(0).assert_stderr("");
}
