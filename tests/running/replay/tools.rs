//! `replay --tools`: recorded replies with real tools.

use super::{JOB, SCRIPT, record_run};
use crate::support::test_folder::TestFolder;

#[test]
fn real_tools_in_the_original_workspace_give_the_same_results() {
    let (folder, _) = record_run(JOB, SCRIPT);
    let fresh = TestFolder::new();
    fresh.write("notes.txt", "hello\n");
    let replay = || folder.legwork(&["replay", "latest", "--tools", "--workspace"]).arg(fresh.path()).run();
    replay().assert_code(0).assert_stdout("equal: 3 agents, 6 turns, 6 calls\n");
    assert_eq!(fresh.read("out.txt"), "one\ntwo\n");
    // The file exists this time, which changes the result.
    replay()
        .assert_code(7)
        .assert_stdout_contains("first difference at parent, turn 2, event ")
        .assert_stdout_contains("call_finished");
}

#[test]
fn differences_are_shown_and_the_replay_continues() {
    let (folder, run) = record_run(JOB, SCRIPT);
    folder.write("notes.txt", "goodbye\n");
    std::fs::remove_file(folder.at("out.txt")).unwrap();
    let ended = folder.legwork(&["replay", "latest", "--tools"]).run();
    ended.assert_code(7).assert_stdout_contains("goodbye").assert_stdout_contains("read_file");
    assert_eq!(folder.read("out.txt"), "one\ntwo\n", "the calls behind the difference were made, too");
    assert_eq!(run.result()["outcome"], "completed", "the record stays as it is");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn checks_run_their_real_commands() {
    let job = format!("{JOB}checks: [{{ name: there, run: test -f out.txt }}]\n");
    let folder = TestFolder::new();
    folder.write("job.yaml", job).write("replies.yaml", SCRIPT).write("notes.txt", "hello\n");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    std::fs::remove_file(folder.at("out.txt")).unwrap();
    folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal: ");
    folder.legwork(&["replay", "latest", "--tools"]).run().assert_code(0).assert_stdout_contains("equal: ");
    // A folder has the name of the file, so it can't be written.
    std::fs::remove_file(folder.at("out.txt")).unwrap();
    std::fs::create_dir(folder.at("out.txt")).unwrap();
    let ended = folder.legwork(&["replay", "latest", "--tools", "--format", "json"]).run();
    let json = ended.assert_code(7).json();
    let kinds: Vec<&str> =
        json["differences"].as_array().unwrap().iter().filter_map(|it| it["recorded"]["type"].as_str()).collect();
    assert!(kinds.contains(&"call_finished") && kinds.contains(&"check_finished"), "{json:#}");
}

#[test]
fn what_the_job_lets_agents_change_can_be_changed_again() {
    let job = "model: replay/replies.yaml\nparent: { prompt: Go., tools: [write_file] }\nprotect: [deploy/]\n\
               allow_changes: [deploy/notes]\nlimits: { tokens: 100000 }\n";
    let script =
        "parent:\n  - calls: [{ tool: write_file, input: { path: deploy/notes/a, content: x } }]\n  - text: Written.\n";
    let (folder, _) = record_run(job, script);
    let fresh = TestFolder::new();
    let replayed = folder.legwork(&["replay", "latest", "--tools", "--workspace"]).arg(fresh.path()).run();
    replayed.assert_code(0).assert_stdout("equal: 1 agent, 2 turns, 1 call\n");
    assert_eq!(fresh.read("deploy/notes/a"), "x");
}
