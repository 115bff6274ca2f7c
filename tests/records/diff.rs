//! `legwork diff`: two records in comparison.

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: anthropic/claude-haiku-4-5
parent:
  prompt: |
    Write a file.
    Be quick.
  tools: [bash, task]
subagents:
  helper: { system: You help., tools: [bash] }
limits: { tokens: 100000 }
";

fn bash(command: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": command } })
}

fn run(folder: &TestFolder, job: &str, parent: &Value) -> String {
    folder.write("job.yaml", job);
    let helper = json!([{ "calls": [bash("true")] }, { "text": "helped" }]);
    let helps = parent.to_string().contains("helper");
    let subagents = if helps { json!({ "helper-1": helper }) } else { json!({}) };
    let script = json!({ "parent": parent, "subagents": subagents });
    std::fs::write(folder.home().join("replies.yaml"), script.to_string()).unwrap();
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/../home/replies.yaml"]).run();
    let first = ended.stderr.lines().find_map(|line| line.strip_prefix("record: ")).expect("a record").to_owned();
    first.rsplit('/').next().unwrap().to_owned()
}

/// Two runs. The second does more than the first, and different things.
fn two_runs(folder: &TestFolder) -> [String; 2] {
    folder.write("same.txt", "1\n").write("file.txt", "1\n");
    let work = |lines: &str| bash(&format!("printf 1 > same.new; printf '{lines}' > file.new"));
    let first = run(folder, JOB, &json!([{ "calls": [work("a\\n")] }, { "text": "Did it." }]));
    std::fs::remove_file(folder.at("same.new")).unwrap();
    std::fs::remove_file(folder.at("file.new")).unwrap();
    let task = json!({ "tool": "task", "input": { "prompt": "help", "agent": "helper" } });
    let second = run(
        folder,
        &JOB.replace("quick", "slow").replace("100000", "200000"),
        &json!([
            { "calls": [work("b\\n"), task] },
            { "calls": [bash("echo x > more; echo a-very-long-name > a-name-that-is-longer-than-a-column")] },
            { "text": "Did it.\nAnd more: \u{1b}[31m." },
        ]),
    );
    [first, second]
}

fn diff(folder: &TestFolder, runs: &[String; 2], more: &[&str]) -> ProgramOutput {
    folder.legwork(&["diff", &runs[0], &runs[1]]).args(more).run()
}

#[test]
fn two_runs_are_compared_side_by_side() {
    let folder = TestFolder::new();
    let runs = two_runs(&folder);
    let shown = diff(&folder, &runs, &[]);
    shown.assert_code(0).assert_stderr("");
    let mut text = shown.stdout.clone();
    for (run, name) in runs.iter().zip(["<first run-----------", "<second run----------"]) {
        text = text.replace(run, name);
    }
    insta::with_settings!({ filters => vec![
        (r"(\ntime .{10})[^\n]*", "$1[two times]"),
        (r"\n(sandbox .{8})[^\n]*", "\n$1[two tiers]"),
    ] }, {
        insta::assert_snapshot!(text);
    });
    for line in shown.stdout.lines() {
        assert!(line.chars().count() <= 80 && line == line.trim_end() && !line.contains('\u{1b}'), "{line:?}");
    }
}

#[test]
fn the_comparison_is_available_as_json() {
    let folder = TestFolder::new();
    let runs = two_runs(&folder);
    let comparison = diff(&folder, &runs, &["--format", "json"]).json();
    assert_eq!((&comparison["format"], &comparison["same_job"]), (&json!(1), &json!(true)));
    assert_eq!(comparison["runs"][0]["run_id"], runs[0].as_str());
    assert_eq!(comparison["runs"][1]["tools"], json!({ "bash": 3, "task": 1 }));
    assert_eq!(comparison["runs"][1]["subagents"][0]["id"], "helper-1");
    let plan: Vec<&str> =
        comparison["plan"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(plan, ["parent.prompt", "limits.tokens"]);
    assert!(comparison["plan"][0]["diff"].as_str().unwrap().contains("-Be quick.\n+Be slow.\n"), "{comparison:#}");
    let files: Vec<_> = comparison["files"].as_array().unwrap().iter().map(|it| (&it["path"], &it["same"])).collect();
    assert_eq!(files[1], (&json!("file.new"), &json!(false)));
    assert_eq!(files[3], (&json!("same.new"), &json!(true)));
    assert_eq!(comparison["files"][2]["changes"][0], Value::Null);
    assert!(comparison["text"].as_str().unwrap().contains("+And more"));
    let same = folder.legwork(&["diff", &runs[0], &runs[0], "--format", "json"]).run().json();
    assert_eq!((&same["plan"], &same["text"], &same["result"]), (&json!([]), &Value::Null, &json!([])));
}

#[test]
fn different_jobs_and_unfinished_runs_can_be_compared() {
    let folder = TestFolder::new();
    let first = run(&folder, JOB, &json!([{ "calls": [bash("true")] }, { "text": "Did it." }]));
    let other = run(&folder, &format!("name: other\n{JOB}"), &json!([{ "text": "x" }]));
    let shown = folder.legwork(&["diff", &first, "other/latest"]).run();
    shown
        .assert_code(0)
        .assert_stdout_contains("These runs are of different jobs.")
        .assert_stdout_contains("job           * job   ")
        .assert_stdout_contains(&other);
    let killed = folder
        .legwork(&["run", "job.yaml", "--model", "replay/../home/replies.yaml"])
        .env("LEGWORK_KILL_AFTER", "4")
        .run();
    assert_eq!(killed.signal(), Some(9));
    let shown = folder.legwork(&["diff", &first, "latest"]).run();
    shown
        .assert_code(0)
        .assert_stdout_contains("not ended")
        .assert_stdout_contains("its numbers are from its journals");
    folder.legwork(&["diff", &first, "nonesuch"]).run().assert_code(2).assert_stderr_contains("nonesuch");
    folder.legwork(&["diff", &first]).run().assert_code(2);
}
