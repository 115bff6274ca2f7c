//! `replay --job`: the differences that an edited job file would make.

use serde_json::Value;

use super::{JOB, SCRIPT, differences, record_run};

/// Replays an edited job. Returns the JSON of exit code 7, or of an equal replay.
fn edited(from: &str, to: &str) -> Value {
    let (folder, _) = record_run(JOB, SCRIPT);
    assert!(JOB.contains(from), "{from}");
    folder.write("edited.yaml", format!("name: job\n{}", JOB.replacen(from, to, 1)));
    let ended = folder.legwork(&["replay", "latest", "--job", "edited.yaml", "--format", "json"]).run();
    ended.assert_code(if from == to { 0 } else { 7 }).json()
}

fn paths(json: &Value) -> Vec<&str> {
    json["plan"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect()
}

fn at(agent: &str, turn: u64, why: &str) -> (String, u64, String) {
    (agent.to_owned(), turn, why.to_owned())
}

#[test]
fn an_edited_prompt_is_shown_as_a_diff_and_takes_effect_at_the_first_turn() {
    let (folder, _) = record_run(JOB, SCRIPT);
    folder.write("job.yaml", JOB.replace("Be brief.", "Be thorough."));
    let ended = folder.legwork(&["replay", "latest", "--job", "job.yaml"]).run();
    ended
        .assert_code(7)
        .assert_stdout_contains("plan: parent.system\n@@ -1,2 +1,2 @@\n You lead.\n-Be brief.\n+Be thorough.\n");
    ended.assert_stdout_contains("the conversation would first differ at parent, turn 1, event ");
    ended.assert_stdout_contains("the system prompt changed");
    let json = edited("Look at the", "Look well at the");
    assert_eq!(paths(&json), ["parent.prompt"]);
    assert_eq!((differences(&json)[0].0.as_str(), differences(&json)[0].1), ("parent", 1));
}

#[test]
fn an_unchanged_job_has_no_differences() {
    let json = edited("Be brief.", "Be brief.");
    assert_eq!((json["outcome"].as_str(), paths(&json)), (Some("equal"), vec![]));
}

#[test]
fn a_limit_takes_effect_at_the_turn_that_reaches_it() {
    let json = edited("  prompt: Look", "  max_turns: 2\n  prompt: Look");
    assert_eq!((paths(&json), differences(&json)), (vec!["parent.max_turns"], vec![at("parent", 3, "")]));
    let json = edited("  prompt: Look", "  max_turns: 20\n  prompt: Look");
    assert_eq!((paths(&json), differences(&json)), (vec!["parent.max_turns"], vec![]));
    let json = edited("tokens: 100000", "tokens: 100000, tool_calls: 4");
    assert_eq!(differences(&json), [at("parent", 2, "limits.tool_calls is 4 instead of 1000")]);
    let json = edited("tokens: 100000", "tokens: 100000, subagents: 1");
    assert_eq!(differences(&json), [at("parent", 1, "limits.subagents is 1 instead of 50")]);
}

#[test]
fn a_removed_tool_takes_effect_at_its_first_call() {
    let json = edited("write_file, todo", "todo");
    assert_eq!(paths(&json), ["parent.tools.write_file"]);
    assert_eq!(differences(&json), [at("parent", 2, "")]);
    let json = edited("tools: [read_file] }", "tools: [glob] }");
    assert_eq!(paths(&json), ["subagents.reader.tools.read_file", "subagents.reader.tools.glob"]);
    assert!(differences(&json).contains(&at("reader-1", 1, "")), "{json:#}");
    let json = edited("write_file, todo", "write_file, grep, todo");
    // A model that calls a missing tool gets the list of tools.
    assert_eq!((paths(&json), differences(&json)), (vec!["parent.tools.grep"], vec![at("parent", 2, "")]));
}

#[test]
fn new_inputs_need_defaults_and_removed_inputs_are_ignored() {
    let (folder, _) = record_run(JOB, SCRIPT);
    let with = |inputs: &str| JOB.replace("  what: { type: string, default: notes }\n", inputs);
    folder.write(
        "job.yaml",
        with("  what: { type: string }\n  how: { type: string }\n  token: { type: string, secret: true }\n"),
    );
    let replay = || folder.legwork(&["replay", "latest", "--job", "job.yaml"]).run();
    replay()
        .assert_code(3)
        .assert_stdout("")
        .assert_stderr_contains("the input `how` is required")
        .assert_stderr_contains("add a default");
    folder.write("job.yaml", with("  what: { type: string }\n  how: { type: string, default: fast }\n"));
    replay()
        .assert_code(7)
        .assert_stdout_contains("plan: inputs.how: (nothing) -> \"fast\"")
        .assert_stdout_contains("stays as it is");
    folder.write("job.yaml", "parent: {}\n");
    replay().assert_code(3).assert_stdout("").assert_stderr_contains("job.yaml:1:");
    folder.legwork(&["replay", "latest", "--job", "job.yaml", "--tools"]).run().assert_code(2);
}

#[test]
fn a_model_from_the_command_line_is_kept() {
    let (folder, _) = record_run(JOB, SCRIPT);
    folder.write("own.yaml", JOB.replace("model: replay/replies.yaml", "model: anthropic/claude-haiku-4-5"));
    let run = folder.legwork(&["run", "own.yaml", "--model", "replay/replies.yaml", "--out", "others"]).run();
    run.assert_code(0);
    let ended = folder.legwork(&["replay", "own/latest", "--out", "others", "--job", "own.yaml"]).run();
    ended.assert_code(0).assert_stdout_contains("equal: ");
}
