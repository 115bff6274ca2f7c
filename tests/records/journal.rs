//! The journal: its format, the files derived from it, and the order of its writes.

mod file_versions;
mod hostile_records;
mod rebuild;
mod schema;
mod write_ordering;

use serde_json::{Value, json};

use crate::support::record::RunFolder;
use crate::support::test_folder::TestFolder;

/// A parent and two parallel subagents, each of which changes something.
const JOB: &str = r#"
model: anthropic/claude-haiku-4-5
description: Does "this" and that.   # a comment, kept
inputs: { factor: { type: number, default: 0.1 } }
parent: { prompt: "Go {{ inputs.factor }}.", tools: [task, bash, read_file, todo], max_turns: 60 }
subagents:
  worker: { tools: [bash, read_file] }
limits: { tokens: 100000 }
"#;

const RUN: &[&str] = &["run", "job.yaml", "--model", "replay/replies.yaml"];

fn bash(command: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": command } })
}

/// A folder with the job, and replies that make these changes.
fn prepared() -> TestFolder {
    let task = |prompt: &str| json!({ "tool": "task", "input": { "prompt": prompt, "description": prompt } });
    let worker = |name: &str| {
        let calls = [bash(&format!("echo {name} >> log")), bash("exit 3")];
        json!([
            { "thinking": "hm", "calls": calls, "usage": { "input_tokens": 3, "output_tokens": 4 } },
            { "text": format!("{name} is *done*.\n") },
        ])
    };
    let replies = json!({
        "parent": [
            { "text": "First.", "calls": [task("a"), task("b"), bash("echo one >> log")] },
            { "calls": [
                { "tool": "read_file", "input": { "path": "job.yaml" } },
                { "tool": "todo", "input": { "items": [{ "text": "end", "status": "pending" }] } },
                { "tool": "nonesuch", "input": {}, "mistaken": true },
            ] },
            { "text": "All\n\ndone: `x`." },
        ],
        "subagents": { "worker-1": worker("a"), "worker-2": worker("b") },
    });
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("replies.yaml", replies.to_string());
    folder
}

/// The only run of a folder.
fn latest(folder: &TestFolder) -> RunFolder {
    RunFolder::new(folder.at("runs/job/latest").canonicalize().expect("a run"))
}

/// The names of all journals, by agent.
fn journals(record: &RunFolder) -> Vec<String> {
    record.files().into_iter().filter(|name| name.ends_with("events.jsonl")).collect()
}
