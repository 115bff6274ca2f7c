//! Invariants of every record, whatever the model.

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::record::RunFolder;
use crate::support::test_folder::TestFolder;

/// The journals of all agents of a run, line by line, each checked.
fn journals(record: &RunFolder) -> Vec<Vec<Value>> {
    let files = record.files();
    let subagents = files.iter().filter_map(|name| name.strip_prefix("subagents/")?.strip_suffix(".events.jsonl"));
    std::iter::once(record.events()).chain(subagents.map(|id| record.events_of(id))).collect()
}

/// The values of all events of a kind, over all agents.
pub(super) fn events(record: &RunFolder, kind: &str) -> Vec<Value> {
    let all = journals(record).into_iter().flatten();
    all.filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

/// Asserts that the record is complete, that its usage is the sum of its replies', that it can be rebuilt from its
/// journals, and that it replays as equal. Returns the result.
#[track_caller]
pub(super) fn assert_complete(folder: &TestFolder, ended: &ProgramOutput) -> Value {
    let record = ended.run_folder();
    let result = record.result();
    let mut sum = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0});
    for reply in events(&record, "reply_received") {
        for (name, total) in sum.as_object_mut().expect("counts") {
            *total = json!(total.as_u64().unwrap_or(0) + reply["reply"]["usage"][name].as_u64().expect("a count"));
        }
    }
    for retrying in events(&record, "retrying") {
        for (name, total) in sum.as_object_mut().expect("counts") {
            *total = json!(total.as_u64().unwrap_or(0) + retrying["retry"]["usage"][name].as_u64().expect("a count"));
        }
    }
    assert_eq!(result["usage"], sum, "usage adds up\n{}", ended.full_output());
    assert!(sum["input_tokens"].as_u64() > Some(0) && sum["output_tokens"].as_u64() > Some(0), "{sum}");
    for file in ["transcript.md", "report.html", "plan.json", "job.yaml"] {
        assert!(record.has(file), "{file} is missing\n{}", ended.full_output());
    }
    let transcript = record.transcript();
    folder.legwork(&["show", "latest", "--rebuild"]).run().assert_code(0);
    assert_eq!(record.transcript(), transcript, "made again");
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal: ");
    result
}
