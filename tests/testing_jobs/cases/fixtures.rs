//! The workspace of a case, and what its run can't access.

use super::{JOB, case, leftover_files, run, test};
use crate::support::test_folder::TestFolder;

/// A folder with a case whose parent runs a command.
fn with_command(job: &str, command: &str, expect: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("jobs/job.yaml", job);
    case(&folder, "one", expect);
    let script = serde_json::json!({ "parent": [
        { "calls": [{ "tool": "bash", "input": { "command": command } }] }, { "text": "Done." },
    ] });
    folder.write("jobs/tests/job/one/script.yaml", script.to_string());
    folder
}

#[test]
fn git_file_names_links_and_modes_are_preserved() {
    let command = "touch said names; ls -A | sort > names; ./run.sh > said; cat link >> said";
    let folder =
        with_command(JOB, command, "failed_calls: 0\nfiles: { names: snapshot, said: { is: \"ran\\nhi\" } }\n");
    let at = |name: &str| format!("jobs/tests/job/one/workspace/{name}");
    folder.write(&at("dot-gitignore"), "/x\n").write(&at("run.sh"), "#!/bin/sh\necho ran\n").write(&at(".hidden"), "");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.at(at("run.sh")), mode).unwrap();
    std::os::unix::fs::symlink("a.txt", folder.at(at("link"))).unwrap();
    folder.write("jobs/tests/job/one/expect/names", ".gitignore\n.hidden\na.txt\nlink\nnames\nrun.sh\nsaid\n");
    run(&folder, &[]).assert_code(0);
}

#[test]
fn a_repository_is_created_deterministically() {
    let command =
        "git log --format='%H %an %s%d' > log; git status --short > status; cat old 2>&1 | head -n 1 > old.txt; true";
    let expect = "failed_calls: 0\nfiles: { log: snapshot, status: { is: '?? a.txt\n\n?? log\n\n?? status' } }\ngit:\n\
                  - { message: One, folder: first, tag: v1 }\n- { message: 'Two; $(three)', folder: second, remove: [old] }\n";
    let folder = with_command(JOB, command, expect);
    folder.write("jobs/tests/job/one/first/old", "x\n").write("jobs/tests/job/one/second/new", "y\n");
    // The configuration of this machine has no effect.
    std::fs::write(
        folder.home().join(".gitconfig"),
        "[user]\nname = me\n[commit]\ngpgSign = true\n[init]\ndefaultBranch = x\n",
    )
    .unwrap();
    run(&folder, &["--accept"]).assert_code(0).assert_stdout_contains("updated");
    let log = folder.read("jobs/tests/job/one/expect/log");
    let lines: Vec<&str> = log.lines().map(|line| &line[41..]).collect();
    assert_eq!(lines, ["legwork test Two; $(three) (HEAD -> main)", "legwork test One (tag: v1)"]);
    run(&folder, &[]).assert_code(0);
}

#[test]
fn the_repository_of_a_case_is_made_without_the_environment_of_git() {
    let command = "git log --format='%an %ae %cn %s' > log; git branch --show-current >> log; true";
    let expect = "failed_calls: 0\nfiles: { log: { is: \"legwork test test@example.org legwork test Start\\nmain\" } }\n\
                  git: [{ message: Start }]\n";
    let folder = with_command(JOB, command, expect);
    folder.git(&["init", "--quiet"]);
    let hook = format!("#!/bin/sh\ntouch '{}'\n", folder.home().join("hook-ran").display());
    let home = |name: &str| folder.home().join(name);
    for hooks in ["hooks", "template/hooks"] {
        std::fs::create_dir_all(home(hooks)).unwrap();
        for name in ["pre-commit", "post-commit", "reference-transaction", "post-index-change"] {
            let path = home(hooks).join(name);
            std::fs::write(&path, &hook).unwrap();
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    let config = format!("[core]\nhooksPath = {}\n[init]\ndefaultBranch = x\n", home("hooks").display());
    std::fs::write(home("config"), config).unwrap();
    let outside = folder.git(&["status", "--short"]);
    let test = super::test(&folder, &[])
        .env("GIT_DIR", folder.at(".git"))
        .env("GIT_WORK_TREE", folder.path())
        .env("GIT_INDEX_FILE", home("index"))
        .env("GIT_OBJECT_DIRECTORY", home("objects"))
        .env("GIT_TEMPLATE_DIR", home("template"))
        .env("GIT_CONFIG_GLOBAL", home("config"))
        .env("GIT_CONFIG_SYSTEM", home("config"))
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.hooksPath")
        .env("GIT_CONFIG_VALUE_0", home("hooks"))
        .env("GIT_CONFIG_PARAMETERS", format!("'core.hooksPath={}'", home("hooks").display()))
        .env("GIT_TRACE", home("hook-ran"))
        .env("GIT_AUTHOR_NAME", "me")
        .env("GIT_COMMITTER_EMAIL", "me@example.org");
    test.run().assert_code(0);
    assert_eq!(folder.git(&["status", "--short"]), outside, "nothing was added to the repository around it");
    assert_eq!(["hook-ran", "index", "objects"].map(|name| home(name).exists()), [false; 3]);
}

#[test]
fn a_case_gets_no_key_and_no_network() {
    let job = format!(
        "{JOB}network: open\nenv: [GRANTED, MY_TOKEN]\ninputs: {{ token: {{ type: string, secret: true }} }}\n"
    );
    let command =
        "env | cut -d= -f1 | sort > names; echo \"$GRANTED\" > granted; cat /proc/net/dev | grep -c : > devices; true";
    let expect = "failed_calls: 0\nfiles:\n  names: { lacks: [ANTHROPIC, TOKEN=, MY_TOKEN, ELSE], contains: [GRANTED, INPUT_TOKEN] }\n  \
                  granted: { is: given }\n  devices: { is: '1' }\n";
    let folder = with_command(&job, command, expect);
    let program = test(&folder, &["--sandbox", "required"]);
    let ended = program
        .env("ANTHROPIC_API_KEY", "sk-not-to-be-seen")
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
        .env("GRANTED", "given")
        .env("MY_TOKEN", "not-to-be-seen")
        .env("ELSE", "x")
        .run();
    if ended.exited_with(1) && ended.stdout.contains("bubblewrap") {
        return crate::support::report_skipped("bubblewrap doesn't work here");
    }
    ended.assert_code(0);
    // Without a script or a record, no case bypasses --offline.
    folder.write("job.yaml", JOB);
    let ended = folder.legwork(&["run", "job.yaml", "--offline"]).env("ANTHROPIC_API_KEY", "sk-x").run();
    ended.assert_code(2).assert_stderr_contains("needs the network").assert_stderr_contains("--model replay/FILE");
}

#[test]
fn a_case_that_times_out_is_killed_with_its_processes() {
    let folder = with_command(JOB, "touch begun; sleep 600", "timeout: 1s\n");
    let ended = run(&folder, &[]);
    ended.assert_code(1).assert_stdout_contains("timed out after 1 s");
    assert_eq!(leftover_files(&folder).len(), 1);
}

#[test]
fn a_workspace_that_cannot_be_created_fails_its_case() {
    let folder = with_command(JOB, "true", "git: [{ message: a }, { message: b, remove: [nothing] }]\n");
    let ended = run(&folder, &[]);
    ended
        .assert_code(1)
        .assert_stdout_contains("can't create the workspace")
        .assert_stdout_contains("expect.yaml:1:6")
        .assert_stdout_contains("can't remove nothing");
}
