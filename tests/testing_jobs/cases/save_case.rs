//! `legwork run --save-case`: a real run becomes a case.

use serde_json::json;

use super::{JOB, leftover_files, run};
use crate::support::bubblewrap::bubblewrap_works;
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

fn save(folder: &TestFolder, name: &str) -> Program {
    std::fs::create_dir_all(folder.home().join("tmp")).unwrap();
    folder.legwork(&["run", "jobs/job.yaml", "--save-case", name]).env("TMPDIR", folder.home().join("tmp"))
}

fn saved(folder: &TestFolder, answers: impl IntoIterator<Item = Answer>) -> ProgramOutput {
    let server = Server::start(ScriptedAgents::of(answers));
    save(folder, "real").anthropic(&server).run()
}

#[test]
fn a_real_run_becomes_a_case_that_passes() {
    let folder = TestFolder::new();
    let job = format!(
        "{JOB}inputs: {{ style: {{ type: string, default: '012' }}, token: {{ type: string, secret: true }} }}\n"
    );
    folder
        .write("jobs/job.yaml", job.replace("max_turns: 5", "max_turns: 9"))
        .write("a.txt", "hi\n")
        .write("gone.txt", "x\n");
    folder.write(".env", "PASSWORD=hunter2\n").write(".gitignore", "/ignored\n").write("ignored/x", "x").commit_all();
    let path = folder.at("a.txt").display().to_string();
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[
            ("read_file", json!({ "path": path })),
            ("bash", json!({ "command": "rm gone.txt; pwd > where.txt" })),
        ]),
        Answer::calls(&[("task", json!({ "agent": "helper", "prompt": "Look." }))]),
        Answer::text("Nothing to see."),
        Answer::calls(&[("write_file", json!({ "path": path, "content": "hello\nno\n" }))]),
        Answer::text("Done."),
    ]));
    let ended = save(&folder, "real").anthropic(&server).args(["--set", "token=hunter2-hunter2"]).run();
    ended
        .assert_code(0)
        .assert_stdout("Done.\n")
        .assert_stderr_contains("case:   jobs/tests/job/real (4 files in its workspace)")
        .assert_stderr_contains("skipped .env: may contain secrets")
        .assert_stderr_contains("secret inputs are replaced by placeholders: token");
    assert!(!ended.stderr.contains("the saved case fails"), "{}", ended.stderr);
    let at = |name: &str| folder.read(&format!("jobs/tests/job/real/{name}"));
    assert_eq!(at("inputs.yaml"), "style: '012'\n");
    assert_eq!(at("workspace/a.txt"), "hi\n", "as it was before");
    assert_eq!(at("workspace/dot-gitignore"), "/ignored\n");
    assert_eq!(at("expect/a.txt"), "hello\nno\n");
    assert_eq!(at("expect/where.txt"), "/workspace\n");
    assert_eq!(
        at("expect.yaml"),
        "outcome: completed\nmax_turns: 4\nfiles:\n  a.txt: snapshot\n  gone.txt: absent\n  where.txt: snapshot\ntools:\n  bash: \
         called\n  read_file: called\n  task: called\n  write_file: called\ngit:\n- message: Start\n"
    );
    let script = at("script.yaml");
    assert!(script.starts_with("workspace: /workspace\nparent:\n"), "{script}");
    assert!(script.contains("path: /workspace/a.txt") && script.contains("helper-1:"), "{script}");
    for name in folder.list().iter().filter(|name| name.starts_with("jobs/tests/") && folder.at(name).is_file()) {
        let text = folder.read(name);
        assert!(!text.contains("hunter2") && !text.contains(&folder.path().display().to_string()), "{name}: {text}");
    }
    assert_eq!(leftover_files(&folder), Vec::<String>::new());
    run(&folder, &[]).assert_code(0).assert_stdout_contains("ok   job/real");
    folder.legwork(&["validate", "jobs"]).run().assert_code(0);

    // The name must not exist yet.
    let before = folder.list();
    let ended = save(&folder, "real").anthropic(&server).args(["--set", "token=hunter2-hunter2"]).run();
    ended.assert_code(2).assert_stderr_contains("jobs/tests/job/real already exists");
    save(&folder, "No!")
        .anthropic(&server)
        .args(["--set", "token=hunter2-hunter2"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("isn't a valid case name");
    assert_eq!(folder.list(), before, "nothing was run");
}

#[test]
fn a_case_has_what_links_lead_to_and_files_beyond_the_limit_for_all() {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB).write(".gitignore", "/ignored\n").write("ignored/x", "x");
    for number in 0..2001 {
        folder.write(&format!("data/{number}.txt"), "few words\n");
    }
    folder.write("last/file.txt", "words\n").write("last/other.txt", "words\n");
    for (target, link) in [("data", "folder"), ("data/7.txt", "one"), ("../one", "data/two")] {
        std::os::unix::fs::symlink(target, folder.at(link)).unwrap();
    }
    let read = ["folder/5.txt", "data/two", "last/file.txt", "ignored/x"];
    let calls = read.map(|path| ("read_file", json!({ "path": path })));
    let ended = saved(&folder, [Answer::calls(&calls), Answer::text("Done.")]);
    ended
        .assert_code(0)
        .assert_stderr_contains("(6 files in its workspace, which are all that the run used)")
        .assert_stderr_contains("skipped ignored/x: git ignores it");
    assert!(!ended.stderr.contains("more than"), "{}", ended.stderr);
    let workspace = "jobs/tests/job/real/workspace/";
    let copied = folder.list().into_iter().filter_map(|path| Some(path.strip_prefix(workspace)?.to_owned()));
    let copied: Vec<String> = copied.filter(|path| !folder.at(format!("{workspace}{path}")).is_dir()).collect();
    for path in ["data/5.txt", "data/7.txt", "data/two", "last/file.txt", "one"] {
        assert!(copied.iter().any(|copy| copy == path), "{path}: {copied:?}");
    }
    run(&folder, &[]).assert_code(0).assert_stdout_contains("ok   job/real");
}

#[test]
fn differences_of_the_new_case_are_reported() {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB);
    let random = json!({ "command": "head -c 16 /dev/urandom | od -An -tx1 > random.txt" });
    let ended = saved(&folder, [Answer::calls(&[("bash", random)]), Answer::text("Done.")]);
    ended
        .assert_code(0)
        .assert_stderr_contains("the saved case fails")
        .assert_stderr_contains("random.txt differs from expect/random.txt");
    run(&folder, &[]).assert_code(1);
}

#[test]
fn a_run_with_another_outcome_becomes_a_case_that_expects_it() {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB.replace("max_turns: 5", "max_turns: 1"));
    let look = || Answer::calls(&[("read_file", json!({ "path": "gone" }))]);
    let ended = saved(&folder, [look(), Answer::text("Too short.")]);
    ended.assert_code(4).assert_stderr_contains("case:   jobs/tests/job/real (an empty workspace)");
    assert!(folder.read("jobs/tests/job/real/expect.yaml").starts_with("outcome: turn_limit\nmax_turns: 1\n"));
    run(&folder, &[]).assert_code(0);
}

#[test]
fn a_run_that_a_script_cannot_repeat_is_not_saved() {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB);
    let server = Server::start(ScriptedAgents::of([Answer::status(401)]));
    let ended = save(&folder, "real").anthropic(&server).run();
    ended
        .assert_code(5)
        .assert_stderr_contains("no case was saved: a script can't reproduce the outcome `provider_rejected`");
    assert!(!folder.exists("jobs/tests"));
    assert_eq!(leftover_files(&folder), Vec::<String>::new());
}

#[test]
fn a_link_that_the_run_has_made_leads_the_case_nowhere() {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB);
    let outside = folder.home().join("elsewhere");
    std::fs::create_dir_all(&outside).unwrap();
    let command = format!("ln -s {} tests", outside.display());
    let answers = [Answer::calls(&[("bash", json!({ "command": command }))]), Answer::text("Done.")];
    let server = Server::start(ScriptedAgents::of(answers));
    let ended = folder.legwork(&["run", "job.yaml", "--save-case", "real"]).anthropic(&server).run();
    ended.assert_code(0).assert_stderr_contains("no case was saved in tests/job/real: `tests/job` is a symbolic link");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    server.finish();
}

/// They read ignore files in folders where commands can make anything.
#[cfg(target_os = "linux")]
#[test]
fn what_a_command_puts_in_place_of_ignore_files_holds_no_later_command() {
    // In landlock a command that adds folders beside the job ends the run.
    if !bubblewrap_works() {
        return;
    }
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", JOB);
    let command = "mkfifo .gitignore; mkdir -p jobs/b jobs/c; mkfifo jobs/b/.gitignore jobs/b/.ignore; \
                   ln -s /dev/zero jobs/c/.gitignore; truncate -s 1T jobs/c/.ignore";
    let ended = saved(&folder, [Answer::calls(&[("bash", json!({ "command": command }))]), Answer::text("Done.")]);
    ended.assert_code(0).assert_stderr_contains("case:   jobs/tests/job/real");
    folder.legwork(&["validate", "jobs"]).run().assert_code(0);
    folder.legwork(&["test", "jobs"]).run().assert_stdout_contains("1 case");
}
