//! A real model on a real server: llama.cpp's, with 135 million parameters. `tests/interop/llama.sh` starts it and runs
//! these tests. They test the protocol, not what the model knows: the loop ends, the record is complete, and usage
//! adds up.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::record_checks::{assert_complete, events};
use crate::getting_started::jobs;
use crate::support::program::Program;
use crate::support::test_folder::TestFolder;

/// The same server over each of its APIs.
const MODELS: [&str; 3] = ["openai-chat/smollm2", "anthropic/smollm2", "openai/smollm2"];

const JOB: &str = "\
model: openai-chat/smollm2
parent:
  system: Be brief.
  prompt: Use the tool read_file with path set to notes/a.txt.
  tools: [read_file]
  max_turns: 3
  max_tokens: 60
limits: { tokens: 20000 }
";

/// Its address, from `LEGWORK_LLAMA_URL`: `http://127.0.0.1:PORT`.
fn address() -> String {
    std::env::var("LEGWORK_LLAMA_URL").expect("LEGWORK_LLAMA_URL: run tests/interop/llama.sh")
}

fn folder(job: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", job).write("notes/a.txt", "alpha\n");
    folder
}

/// A run with `--model` alone: only the address of that model's API is set.
fn start(folder: &TestFolder, job: &str, model: &str) -> Program {
    let program = folder.legwork(&["run", job, "--model", model]);
    let program = match model.split_once('/') {
        Some(("anthropic", _)) => program.env("ANTHROPIC_BASE_URL", address()).env("ANTHROPIC_API_KEY", "none"),
        _ => program.env("OPENAI_BASE_URL", format!("{}/v1", address())),
    };
    program.env("LEGWORK_IDLE_TIMEOUT_MS", "300000").timeout(Duration::from_secs(3600))
}

/// Statistics for readers of the test's output.
fn print_stats(what: &str, model: &str, result: &Value, took: Duration) {
    let usage = &result["usage"];
    let mut line = format!("{what} over {model}: {}, {} turns", result["outcome"], result["turns"]);
    let _ = write!(line, ", {} calls, usage {usage}, {:.1} s", result["tool_calls"], took.as_secs_f64());
    eprintln!("{line}");
}

/// One after another, because the machine has one model.
#[test]
#[ignore = "needs a model: tests/interop/llama.sh"]
fn a_real_model_works_over_each_of_its_servers_apis() {
    for model in MODELS {
        check_loop(model);
        check_subagent(model);
        check_oversized_prompt(model);
        check_truncated_reply(model);
        check_interruption(model);
    }
}

/// The possible outcomes of a loop with a model that understands little of its task, and writes until the window is
/// full.
const ENDS: [&str; 8] =
    ["completed", "reply_cut", "turn_limit", "stuck", "context_full", "timed_out", "result_invalid", "checks_failed"];

/// The jobs in `jobs/` unchanged, with `--model` alone, one after the other, because the server caches the last
/// prompt.
#[test]
#[ignore = "needs a model: tests/interop/llama.sh"]
fn the_repositorys_own_jobs_run_on_a_real_model() {
    let mut calls = 0;
    for job in jobs::names() {
        for model in &MODELS[..2] {
            calls += check_bundled_job(&job, model);
        }
    }
    calls += check_bundled_job("find-test-framework", MODELS[2]);
    assert!(calls > 0, "no job came to a tool");
}

/// Runs one of them in a small repository with two commits. Returns the number of tool calls.
fn check_bundled_job(job: &str, model: &str) -> u64 {
    let folder = jobs::repository(2);
    let begun = Instant::now();
    let ended = start(&folder, &format!("jobs/{job}.yaml"), model).run();
    let result = assert_complete(&folder, &ended);
    print_stats(job, model, &result, begun.elapsed());
    assert!(ENDS.iter().any(|outcome| result["outcome"] == *outcome), "{job} over {model}\n{}", ended.full_output());
    let code = result["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok()).expect("an exit code");
    ended.assert_code(code).assert_stderr_contains("untracked-cost");
    let record = ended.run_folder();
    assert_eq!(events(&record, "retrying"), [Value::Null; 0], "{job} over {model}\n{}", ended.full_output());
    assert_eq!((&result["model"], &result["cost_usd"]), (&json!(model), &Value::Null));
    for subagent in record.plan()["subagents"].as_object().expect("subagents").values() {
        let requests =
            [&subagent["model"]["provider"], &subagent["model"]["name"]].map(|part| part.as_str().unwrap_or_default());
        assert_eq!(requests.join("/"), model, "all agents ask the same server");
    }
    result["tool_calls"].as_u64().expect("a count")
}

fn check_loop(model: &str) {
    let folder = folder(JOB);
    let begun = Instant::now();
    let ended = start(&folder, "job.yaml", model).run();
    let result = assert_complete(&folder, &ended);
    print_stats("loop", model, &result, begun.elapsed());
    assert!(ENDS[..4].iter().any(|outcome| result["outcome"] == *outcome), "{}", ended.full_output());
    assert!(result["tool_calls"].as_u64() >= Some(1), "the model calls its tool\n{}", ended.full_output());
    let record = ended.run_folder();
    assert!(record.transcript().contains("alpha"), "the tool's answer is in the transcript\n{}", ended.full_output());
    assert_eq!(events(&record, "retrying"), [Value::Null; 0], "nothing failed on the way\n{}", ended.full_output());
    assert_eq!(result["cost_usd"], Value::Null, "the price is unknown");
}

fn check_subagent(model: &str) {
    let job = "\
model: openai-chat/smollm2
parent:
  system: Be brief.
  prompt: Use the tool task with prompt set to Read notes/a.txt.
  tools: [task]
  max_turns: 2
  max_tokens: 60
subagents:
  reader: { description: Reads., system: Be brief., tools: [read_file], max_turns: 2, max_tokens: 40 }
limits: { tokens: 20000 }
";
    let folder = folder(job);
    let begun = Instant::now();
    let ended = start(&folder, "job.yaml", model).run();
    let result = assert_complete(&folder, &ended);
    print_stats("task", model, &result, begun.elapsed());
}

fn check_oversized_prompt(model: &str) {
    let prompt = "word and number ".repeat(2500);
    let job = JOB.replace("Use the tool read_file with path set to notes/a.txt.", &prompt);
    let folder = folder(&job.replace("20000", "200000"));
    let ended = start(&folder, "job.yaml", model).run();
    ended.assert_code(4);
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["turns"]), (&json!("context_full"), &json!(0)), "{}", ended.full_output());
}

fn check_truncated_reply(model: &str) {
    let job = JOB
        .replace("Use the tool read_file with path set to notes/a.txt.", "Tell me all about the sea.")
        .replace("tools: [read_file]", "tools: []")
        .replace("max_tokens: 60", "max_tokens: 16");
    let folder = folder(&job);
    let ended = start(&folder, "job.yaml", model).run();
    ended.assert_code(4);
    assert_eq!(ended.run_folder().result()["outcome"], "reply_cut", "{}", ended.full_output());
}

fn check_interruption(model: &str) {
    let job = JOB
        .replace("Use the tool read_file with path set to notes/a.txt.", "Count from 1 to 1000.")
        .replace("max_tokens: 60", "max_tokens: 2000");
    let folder = folder(&job);
    let running = start(&folder, "job.yaml", model).arg("--out").arg("out").spawn();
    folder.wait_for("out/job/latest/events.jsonl");
    // During the reply or while the prompt is read. In both cases it has to end.
    running.signal(Signal::INT);
    let begun = Instant::now();
    let ended = running.wait();
    ended.assert_code(130);
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    let result = ended.run_folder_in("out/job").result();
    assert_eq!(result["outcome"], "interrupted", "{}", ended.full_output());
}
