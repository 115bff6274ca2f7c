//! `--result FILE`.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{FINDINGS, job, valid_data};
use crate::support::test_folder::TestFolder;

/// A job whose parent gives this answer, after one submission or without any.
fn scripted(data: Option<serde_json::Value>) -> TestFolder {
    let folder = job("", FINDINGS);
    // Without valid data, the run makes one more request.
    let times = if data == Some(valid_data()) { 1 } else { 2 };
    let call = data.map(|data| json!({ "calls": [{ "tool": "submit_result", "input": data }] }));
    let replies: Vec<_> = call.into_iter().chain(std::iter::repeat_n(json!({ "text": "Said." }), times)).collect();
    folder.write("replies.yaml", json!({ "parent": replies }).to_string());
    folder
}

const RUN: &[&str] = &["run", "job.yaml", "--model", "replay/replies.yaml", "--result", "out.json"];

#[test]
fn the_file_contains_only_the_data() {
    let folder = scripted(Some(valid_data()));
    folder.write("out.json", "an older one, and longer than any result of these tests will ever come to be by itself");
    let ended = folder.legwork(RUN).run();
    ended.assert_code(0).assert_stdout("Said.\n").assert_stderr_contains("result: out.json");
    let expected = format!("{:#}\n", valid_data());
    assert_eq!(folder.read("out.json"), expected);
    assert!(folder.list().iter().all(|name| !name.starts_with(".legwork")), "{:?}", folder.list());
    // The umask of these tests is unknown, so the test compares the mode with that of another file.
    folder.write("like.txt", "");
    let mode = |name: &str| std::fs::metadata(folder.at(name)).unwrap().permissions().mode();
    assert_eq!(mode("out.json"), mode("like.txt"));
    // Resuming a finished run writes the file again.
    std::fs::remove_file(folder.at("out.json")).unwrap();
    folder
        .legwork(&["resume", "latest", "--result", "out.json"])
        .run()
        .assert_code(0)
        .assert_stderr_contains("has ended: completed");
    assert_eq!(folder.read("out.json"), expected);
}

#[test]
fn missing_folders_are_created() {
    let folder = scripted(Some(valid_data()));
    let run = ["run", "job.yaml", "--model", "replay/replies.yaml", "--result", "out/of/it.json"];
    folder.legwork(&run).arg("--dry-run").run().assert_code(0);
    assert!(!folder.exists("out"));
    folder.legwork(&run).run().assert_code(0).assert_stderr_contains("result: out/of/it.json");
    assert_eq!(folder.read("out/of/it.json"), format!("{:#}\n", valid_data()));
    std::fs::remove_dir_all(folder.at("out")).unwrap();
    folder.legwork(&["resume", "latest", "--result", "out/of/it.json"]).run().assert_code(0);
    assert_eq!(folder.read("out/of/it.json"), format!("{:#}\n", valid_data()));
}

#[test]
fn a_run_without_a_result_removes_an_old_result_file() {
    for data in [None, Some(json!({ "verdict": 1 }))] {
        let folder = scripted(data);
        folder.write("out.json", "{}");
        folder.legwork(RUN).run().assert_code(1).assert_stderr_contains("result_invalid");
        assert!(!folder.exists("out.json"));
    }
    let folder = scripted(None);
    folder.write("out.json", "{}").write("job.yaml", "model: [");
    folder.legwork(RUN).run().assert_code(3);
    assert!(!folder.exists("out.json"), "an old file must not look like this run's");
}

#[test]
fn a_dry_run_does_not_write_the_file_and_shows_the_schema() {
    let folder = scripted(Some(valid_data()));
    folder.write("out.json", "{}");
    let ended = folder.legwork(RUN).args(["--dry-run", "--verbose"]).run();
    ended
        .assert_code(0)
        .assert_stdout_contains("  result schema\n")
        .assert_stdout_contains("  |     \"verdict\": {\n")
        .assert_stdout_contains("  tool submit_result\n");
    assert_eq!(folder.read("out.json"), "{}");
    let plan = folder.legwork(&["run", "job.yaml", "--dry-run", "--format", "json"]).run();
    assert_eq!(plan.json()["parent"]["returns"]["required"], json!(["verdict", "findings"]));
}

#[test]
fn an_impossible_result_file_is_rejected_before_anything_is_spent() {
    let folder = scripted(Some(valid_data()));
    folder.write("text.yaml", "model: replay/replies.yaml\nparent: { prompt: Go., tools: [] }\n");
    std::fs::create_dir(folder.at("folder")).unwrap();
    let refused = |arguments: &[&str], why: &str| {
        folder
            .legwork(&["run", "--model", "replay/replies.yaml"])
            .args(arguments)
            .run()
            .assert_code(2)
            .assert_stderr_contains(why);
    };
    refused(&["text.yaml", "--result", "out.json"], "the job `text` has no `result`");
    refused(&["text.yaml", "--result", "out.json", "--dry-run"], "the job `text` has no `result`");
    refused(&["job.yaml", "--result", "folder"], "regular file");
    refused(&["job.yaml", "--result", "replies.yaml/out.json"], "Not a directory");
    refused(&["job.yaml", "--result", "/proc/gone/out.json"], "can't write to /proc/gone");
    refused(&["job.yaml", "--result", "./job.yaml"], "is the job file");
    assert!(!folder.exists("runs") && folder.exists("job.yaml"));
    folder.write("replies.yaml", r#"{ "parent": [{ "text": "Said." }] }"#);
    folder.legwork(&["run", "text.yaml"]).run().assert_code(0);
    folder
        .legwork(&["resume", "latest", "--result", "out.json"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("has no `result`");
}
