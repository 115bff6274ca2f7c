//! Subagents with `workspace: own` work in copies, and their changes come back in the order of the calls.

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::bubblewrap::bubblewrap_works;
use crate::support::sample;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "
parent: { prompt: Parent., tools: [task] }
subagents:
  writer: { description: Writes., tools: [bash, read_file, write_file], workspace: own }
protect: [kept]
";

const TEXT: &str = "one\n2\n3\n4\nfive\n";

fn task(prompt: &str) -> (&'static str, Value) {
    ("task", json!({ "prompt": prompt }))
}

fn bash(command: &str) -> Answer {
    Answer::calls(&[("bash", json!({ "command": command }))])
}

/// Replies without a state, so that a run can be killed and resumed: each prompt of a subagent is its command.
fn serve() -> Server {
    Server::with(Checks::AllowRepeats, |request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Parent.", 0) => Answer::calls(&[
            task("sed -i s/one/ONE/ text && echo a > a && rm -f gone"),
            task("sed -i s/five/FIVE/ text"),
        ]),
        ("Parent.", _) => Answer::text("Merged."),
        // A command that was interrupted isn't repeated by legwork.
        (command, turn) if turn == 0 || request.results()[0].text.contains("was interrupted") => bash(command),
        _ => Answer::text("Changed."),
    })
}

fn folder(git: bool) -> TestFolder {
    let folder = folder_with(JOB);
    folder.write("text", "committed\n").write("kept", "kept\n").write("gone", "x\n");
    if git {
        folder.write(".gitignore", "runs/\n");
        folder.commit_all();
    }
    // Uncommitted changes are part of the copies.
    folder.write("text", TEXT);
    folder
}

fn assert_no_copy_left(folder: &TestFolder, why: &str) {
    assert!(!folder.exists("runs/.workspaces"), "{why}: {:?}", folder.list());
    if folder.exists(".git") {
        assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1, "{why}");
    }
}

fn assert_merged(folder: &TestFolder, why: &str) {
    assert_eq!(folder.read("text"), "ONE\n2\n3\n4\nFIVE\n", "{why}");
    assert_eq!(folder.read("a"), "a\n", "{why}");
    assert!(!folder.exists("gone"), "{why}");
    assert_no_copy_left(folder, why);
}

#[test]
fn a_folder_that_a_subagent_replaces_by_a_file_comes_back() {
    let folder = folder_with(JOB);
    folder.write("data/inner", "x\n");
    let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Parent.", 0) => Answer::calls(&[task("rm -r data && echo file > data")]),
        (command, 0) => bash(command),
        _ => Answer::text("Done."),
    });
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    assert_eq!(folder.read("data"), "file\n");
    server.finish();
}

#[test]
fn changes_in_a_copy_of_a_folder_inside_a_repository_come_back() {
    let serve = || {
        Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
            ("Parent.", 0) => Answer::calls(&[task("echo new >> file")]),
            (command, 0) => bash(command),
            _ => Answer::text("Done."),
        })
    };
    // A repository without a commit, and a folder that git ignores.
    for has_commit in [false, true] {
        let folder = folder_with(JOB);
        folder.write("sub/file", "old\n").write(".gitignore", "sub\n");
        folder.git(&["init", "--quiet"]);
        if has_commit {
            folder.commit_all();
        }
        let server = serve();
        folder.legwork(&["run", "job.yaml", "--workspace", "sub"]).anthropic(&server).run().assert_code(0);
        assert_eq!(folder.read("sub/file"), "old\nnew\n", "a commit: {has_commit}");
        assert_no_copy_left(&folder, "sub");
        server.finish();
    }
}

#[test]
fn changes_of_two_subagents_in_one_file_are_merged() {
    for git in [true, false] {
        let folder = folder(git);
        let server = serve();
        let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
        ended.assert_code(0).assert_stdout("Merged.\n");
        assert_merged(&folder, &format!("git: {git}"));
        let requests = server.finish();
        let results = requests.last().unwrap().results();
        let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "[writer-1 changed 3 files, and the workspace has its changes now: `a`, `gone`, `text`]\n\nChanged.",
                "[writer-2 changed 1 file, and the workspace has its changes now: `text`]\n\nChanged.",
            ]
        );
        let patch = std::fs::read_to_string(ended.run_folder().path().join("changes.patch")).unwrap();
        for line in ["+ONE", "+FIVE", "+++ b/a"] {
            assert!(patch.contains(line), "{patch}");
        }
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
        if git {
            assert_eq!(folder.git(&["log", "--oneline"]).lines().count(), 1);
            assert_eq!(folder.git(&["diff", "--cached", "--name-only"]), "");
        }
    }
}

#[test]
fn nothing_of_a_subagent_is_applied_that_conflicts() {
    for git in [true, false] {
        let folder = folder(git);
        let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
            ("Parent.", 0) => Answer::calls(&[
                task("sed -i s/one/first/ text"),
                task("sed -i s/one/second/ text && echo b > b"),
                task("sed -i s/five/FIVE/ text"),
            ]),
            ("Parent.", _) => Answer::text("Done."),
            (command, 0) => bash(command),
            _ => Answer::text("Changed."),
        });
        let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
        ended.assert_code(0);
        assert_eq!(folder.read("text"), "first\n2\n3\n4\nFIVE\n", "git: {git}");
        assert!(!folder.exists("b"), "nothing of the second subagent");
        let requests = server.finish();
        let results = requests.last().unwrap().results();
        assert_eq!(results.iter().map(|result| result.is_error).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(
            results[1].text,
            "[The changes of writer-2 conflict with the workspace, so none of them were applied:\n\
             - `text`: both changed it at line 1]\n\nChanged."
        );
        assert_no_copy_left(&folder, "conflict");
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
    }
}

#[test]
fn a_copy_is_confined_and_protected_as_the_workspace_is() {
    let folder = folder(true);
    let original = folder.at("text").to_string_lossy().into_owned();
    let (read, write) = (original.clone(), original);
    // Landlock can't keep a command from such a change, which ends the run.
    let is_prevented = cfg!(target_os = "macos") || bubblewrap_works();
    let append = move |file: &str| if is_prevented { format!("echo x >> {file}") } else { "false".to_owned() };
    let server = Server::start(move |request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Parent.", 0) => Answer::calls(&[task("Child.")]),
        ("Child.", 0) => Answer::calls(&[
            ("bash", json!({ "command": "sed -i s/one/ONE/ text" })),
            // The path of the original is that of the copy for file tools.
            ("read_file", json!({ "path": read })),
            ("bash", json!({ "command": format!("echo outside >> {write}") })),
            ("bash", json!({ "command": "git status --short text" })),
            ("bash", json!({ "command": "git -c user.name=x -c user.email=x@x commit --allow-empty -m x" })),
            ("bash", json!({ "command": append(".git") })),
            ("bash", json!({ "command": append("kept") })),
            ("write_file", json!({ "path": "job.yaml", "content": "x", "overwrite": true })),
        ]),
        ("Child.", _) => Answer::text("Tried."),
        _ => Answer::text("Done."),
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0);
    let requests = server.finish();
    let child = requests.iter().rfind(|request| request.prompt() == "Child.").unwrap();
    let results = child.results();
    let errors: Vec<bool> = results.iter().map(|result| result.is_error).collect();
    // What it writes at the place of the original is in its private /tmp, or is refused.
    assert_eq!(errors[..2], [false, false], "{results:#?}");
    assert_eq!(errors[3..], [false, true, true, true, true], "{results:#?}");
    assert!(results[1].text.contains("ONE"), "{}", results[1].text);
    assert_eq!(results[3].text.trim(), "M text");
    assert_eq!(folder.read("text"), TEXT.replace("one", "ONE"));
    assert_eq!(folder.read("kept"), "kept\n");
    assert_eq!(folder.git(&["log", "--oneline"]).lines().count(), 1);
    assert_no_copy_left(&folder, "confined");
}

#[test]
fn a_run_killed_after_any_event_merges_everything_once() {
    let mut killed = 0;
    for number in sample(1..=80, 40) {
        let folder = folder(number % 4 < 2);
        let server = serve();
        let kill = number.to_string();
        let cut = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("LEGWORK_KILL_AFTER", &kill).run();
        if cut.signal().is_none() {
            cut.assert_code(0);
            break;
        }
        killed += 1;
        let why = format!("killed after event {number}");
        let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
        if !ended.full_output().contains("has ended") {
            ended.assert_code(0);
        }
        assert_merged(&folder, &why);
    }
    assert!(killed > 10, "{killed}");
}

/// The folder of a run that was killed when both subagents had ended and nothing was merged.
fn killed_before_the_merge(git: bool, server: &Server) -> TestFolder {
    // After twelve events, neither has ended.
    for number in 12.. {
        let folder = folder(git);
        let cut =
            folder.legwork(&["run", "job.yaml"]).anthropic(server).env("LEGWORK_KILL_AFTER", number.to_string()).run();
        assert_eq!(cut.signal(), Some(9), "both subagents have ended before the run does");
        let journal = folder.read("runs/job/latest/events.jsonl");
        if journal.matches("\"type\":\"agent_finished\"").count() == 2 {
            return folder;
        }
    }
    unreachable!()
}

#[test]
fn what_was_merged_before_a_kill_is_not_merged_twice() {
    let server = serve();
    let folder = killed_before_the_merge(true, &server);
    assert_eq!(folder.read("text"), TEXT);
    // As if the kill had come in the middle of the merge.
    folder.write("text", TEXT.replace("one", "ONE"));
    folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0).assert_stdout("Merged.\n");
    assert_merged(&folder, "merged twice");
}

#[test]
fn the_effect_of_a_subagent_whose_copy_is_gone_is_unknown() {
    let server = serve();
    let folder = killed_before_the_merge(false, &server);
    std::fs::remove_dir_all(folder.at("runs/.workspaces")).unwrap();
    folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0).assert_stdout("Merged.\n");
    assert_eq!(folder.read("text"), TEXT);
    let requests = server.finish();
    for result in requests.last().unwrap().results() {
        let text = &result.text;
        let is_unknown = text.contains("may be in the workspace") && text.contains("copy of the workspace is gone");
        assert!(result.is_error && is_unknown, "{text}");
    }
}

#[test]
fn a_subagent_does_not_continue_without_its_copy() {
    let folder = folder(true);
    let server = serve();
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("LEGWORK_KILL_AFTER", "12").run();
    let journal = folder.read("runs/job/latest/events.jsonl");
    assert_eq!(journal.matches("\"type\":\"agent_finished\"").count(), 0, "{journal}");
    std::fs::remove_dir_all(folder.at("runs/.workspaces")).unwrap();
    let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    ended.assert_code(5).assert_stderr_contains("its copy of the workspace is gone");
    assert_eq!(folder.read("text"), TEXT);
}

#[test]
fn a_replay_with_tools_is_refused() {
    let folder = folder(false);
    let server = serve();
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    let refused = folder.legwork(&["replay", "latest", "--tools"]).run();
    refused.assert_code(2).assert_stderr_contains("workspace: own");
}

#[test]
fn the_plan_shows_which_subagent_works_in_a_copy() {
    let folder = folder(false);
    let planned = folder.legwork(&["run", "job.yaml", "--dry-run"]).env("ANTHROPIC_API_KEY", "x").run();
    planned.assert_code(0);
    assert!(planned.stdout.contains("workspace   own (a copy"), "{}", planned.stdout);
}

#[test]
fn the_parent_is_told_which_files_git_ignores() {
    let folder = folder(true);
    folder.write(".gitignore", "runs/\nbuild/\n*.log\n");
    let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Parent.", 0) => {
            Answer::calls(&[task("mkdir -p build/deep && echo 1 > build/deep/x && echo 2 > a.log && echo 3 > b")])
        }
        ("Parent.", _) => Answer::text("Done."),
        (command, 0) => bash(command),
        _ => Answer::text("Made build/deep/x."),
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0);
    let told = server.requests().last().unwrap().results()[0].text.clone();
    let note = "not taken over, because git ignores it: `a.log`, `build/`";
    assert!(told.contains(note), "{told}");
    ended.assert_stderr_contains(note);
    assert!(folder.exists("b") && !folder.exists("build"));
}
