//! File tools of the real program in a workspace that another process attacks.

use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::report_skipped;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/script.yaml\nparent:\n  prompt: Go.\n  tools: [TOOLS]\nlimits: { tool_calls: 1000 }\n";

/// A job that makes these calls, one in each reply.
fn folder_with(tools: &str, replies: &[Vec<(&str, Value)>]) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB.replace("TOOLS", tools));
    let replies: Vec<Value> = replies
        .iter()
        .map(|calls| json!({ "calls": calls.iter().map(|(tool, input)| json!({ "tool": tool, "input": input })).collect::<Vec<_>>() }))
        .chain([json!({ "text": "done" })])
        .collect();
    // JSON is YAML.
    folder.write("script.yaml", json!({ "parent": replies }).to_string());
    folder
}

/// The results of the calls in order, and whether they failed.
fn tool_results(ended: &ProgramOutput) -> Vec<(String, bool)> {
    let events = ended.run_folder().events();
    let of_type = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let finished: HashMap<&str, &Value> = of_type("call_finished")
        .map(|event| &event["data"]["result"])
        .map(|result| (result["call_id"].as_str().unwrap(), result))
        .collect();
    // Calls of reading tools can finish in any order, so they are sorted.
    let replies = of_type("reply_received").flat_map(|event| event["data"]["reply"]["blocks"].as_array().unwrap());
    let calls = replies.filter_map(|block| block["content"]["call"]["id"].as_str());
    calls
        .map(|id| (finished[id]["text"].as_str().unwrap().to_owned(), finished[id]["is_error"].as_bool().unwrap()))
        .collect()
}

/// Whether a command works on this machine as root of its own user namespace.
fn unshare_works() -> bool {
    let tried = Command::new("unshare").args(["-rm", "sh", "-c", "mount -t tmpfs x /mnt"]).output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        report_skipped("namespaces of one's own can't be made here");
    }
    works
}

/// Runs the job in its own namespaces, after a shell command that mounts something.
fn run_with_mount(folder: &TestFolder, mount: &str) -> ProgramOutput {
    let script = format!("{mount} && exec \"$0\" run job.yaml");
    folder.program("unshare", &["-rm", "sh", "-c", &script, env!("CARGO_BIN_EXE_legwork")]).run()
}

#[test]
fn five_hundred_calls_while_a_folder_is_swapped_with_a_link() {
    const SECRET: &str = "the secret of outside";
    let call = |number: usize| match number % 6 {
        // A run without any success ends as stuck.
        0 => ("write_file", json!({ "path": format!("steady/{number}"), "content": "x" })),
        1 => ("write_file", json!({ "path": format!("d/new-{number}"), "content": "x" })),
        2 => {
            ("edit_file", json!({ "path": "d/file", "old_text": "harmless", "new_text": format!("harmless {number}") }))
        }
        3 => ("read_file", json!({ "path": "d/file", "limit": number })),
        4 => ("glob", json!({ "pattern": format!("d/*{}", "*".repeat(number % 2)), "path": "." })),
        _ => ("grep", json!({ "pattern": format!("secret|harmless|{number}"), "path": "d" })),
    };
    let replies: Vec<Vec<_>> = (0..10).map(|turn| (turn * 50..turn * 50 + 50).map(call).collect()).collect();
    let folder = folder_with("write_file, edit_file, read_file, glob, grep", &replies);
    let outside = folder.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), format!("harmless {SECRET}")).unwrap();
    std::fs::write(outside.join("only-outside"), SECRET).unwrap();
    folder.write("d/file", "harmless");
    symlink(&outside, folder.at("link")).unwrap();
    let (d, link, over) = (folder.at("d"), folder.at("link"), AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                exchange(&d, &link);
            }
        });
        let ended = folder.legwork(&["run", "job.yaml"]).spawn();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ended.wait()));
        over.store(true, Ordering::Relaxed);
        ended
    });
    let ended = ended.unwrap();
    ended.assert_code(0).assert_not_printed(SECRET);
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), format!("harmless {SECRET}"));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2);
    ended.run_folder().assert_absent(SECRET);
    ended.run_folder().assert_absent("only-outside");
    let answers = tool_results(&ended);
    assert_eq!(answers.len(), 500);
    let of = |kind: usize| answers.iter().skip(kind).step_by(6).filter(|(_, failed)| !failed).count();
    assert_eq!(of(0), 84);
    for kind in 1..6 {
        assert!(of(kind) > 0, "no call of kind {kind} succeeded in the race");
    }
}

#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[cfg(not(target_os = "linux"))]
fn exchange(one: &Path, other: &Path) {
    let between = one.with_extension("between");
    let _ = std::fs::rename(one, &between)
        .and_then(|()| std::fs::rename(other, one))
        .and_then(|()| std::fs::rename(between, other));
}

#[test]
fn system_folders_mounted_in_the_workspace_cannot_be_read() {
    if !unshare_works() {
        return;
    }
    let calls = vec![
        ("read_file", json!({ "path": "p/self/environ" })),
        ("read_file", json!({ "path": "alias/self/environ" })),
        ("read_file", json!({ "path": "environ" })),
        ("grep", json!({ "pattern": "HUNTER", "path": "p/self" })),
        ("grep", json!({ "pattern": "HUNTER", "path": "p/self/environ" })),
        ("grep", json!({ "pattern": "HUNTER=[H]|^needle" })),
        ("grep", json!({ "pattern": "HUNTER", "path": "environ" })),
        ("glob", json!({ "pattern": "p/self/**" })),
        ("edit_file", json!({ "path": "p/self/comm", "old_text": "legwork", "new_text": "other" })),
        ("edit_file", json!({ "path": "environ", "old_text": "HUNTER", "new_text": "other" })),
        ("write_file", json!({ "path": "p/self/comm", "content": "other", "overwrite": true })),
        ("write_file", json!({ "path": "p/self/oom_score_adj", "content": "500", "overwrite": true })),
        ("read_file", json!({ "path": "zero" })),
        ("grep", json!({ "pattern": "x", "path": "zero" })),
        ("read_file", json!({ "path": "plain" })),
    ];
    let folder = folder_with("read_file, grep, glob, edit_file, write_file", &[calls]);
    folder.write("plain", "needle\n").write("environ", "").write("zero", "").write("p/.keep", "");
    symlink("p", folder.at("alias")).unwrap();
    let mounts = "mount --rbind /proc p && mount --bind /proc/$$/environ environ && mount --bind /dev/zero zero \
                  && HUNTER=HUNTER2 && export HUNTER";
    let ended = run_with_mount(&folder, mounts);
    ended.assert_code(0);
    let answers = tool_results(&ended);
    for (number, (text, failed)) in answers.iter().enumerate() {
        let expected = !matches!(number, 5 | 14);
        assert!(*failed == expected && !text.contains("HUNTER2"), "{number}: {text}");
    }
    assert_eq!(answers[5].0, "plain:1:needle");
    ended.run_folder().assert_absent("HUNTER2");
}

#[test]
fn a_full_disk_keeps_the_old_file_and_leaves_no_other() {
    if !unshare_works() {
        return;
    }
    let large = "x".repeat(1 << 20);
    let calls = vec![
        ("write_file", json!({ "path": "small/file", "content": "old" })),
        ("write_file", json!({ "path": "small/file", "content": large })),
        ("write_file", json!({ "path": "small/new", "content": large })),
        ("glob", json!({ "pattern": "small/.*" })),
        ("glob", json!({ "pattern": "small/*" })),
        ("read_file", json!({ "path": "small/file" })),
    ];
    let folder = folder_with("read_file, glob, write_file", &[calls]);
    folder.write("small/.keep", "");
    let ended = run_with_mount(&folder, "mount -t tmpfs -o size=256k x small");
    ended.assert_code(0);
    let answers = tool_results(&ended);
    assert!(answers[1].1 && answers[1].0.contains("No space left"), "{}", answers[1].0);
    assert!(answers[2].1);
    assert!(answers[3].0.contains("no matches"), "{}", answers[3].0);
    assert_eq!(answers[4].0, "small/file");
    assert_eq!(answers[5].0, "     1\told");
}

#[test]
fn a_kill_during_a_write_leaves_no_partial_file() {
    let content = "x".repeat(1 << 16);
    let call = |number: usize| ("write_file", json!({ "path": format!("w/{number}"), "content": content }));
    let calls: Vec<_> = (0..40).map(call).collect();
    let folder = folder_with("write_file", &[calls]);
    folder.write("w/first", "");
    let mut met = 0;
    for round in 0..4 {
        let running = folder.legwork(&["run", "job.yaml"]).timeout(Duration::from_secs(120)).spawn();
        folder.wait_for(&format!("w/{}", round * 7));
        running.signal(rustix::process::Signal::KILL);
        let ended = running.wait();
        met += usize::from(ended.signal().is_some());
        for entry in std::fs::read_dir(folder.at("w")).unwrap().map(Result::unwrap) {
            let (name, size) = (entry.file_name(), entry.metadata().unwrap().len());
            assert!(!name.to_string_lossy().ends_with(".tmp"), "{name:?} was left");
            assert!(name == "first" || size == 1 << 16, "{name:?} has {size} bytes");
            std::fs::remove_file(entry.path()).unwrap();
        }
        folder.write("w/first", "");
    }
    assert!(met > 0, "the run was always over before it could be killed");
}

#[test]
fn files_of_the_job_are_protected_even_if_missing_at_the_start() {
    let paths = [
        "job.yaml",
        "script.yaml",
        "prompts/main.md",
        "prompts/part.md",
        "prompts/missing.md",
        "runs/x/1/result.json",
        ".husky/pre-commit",
        ".git/hooks/pre-commit",
        ".gitconfig-of-team",
        "hard.yaml",
    ];
    let mut calls: Vec<_> = paths
        .iter()
        .map(|path| ("write_file", json!({ "path": path, "content": "changed", "overwrite": true })))
        .collect();
    calls.push(("write_file", json!({ "path": "src/fine", "content": "fine" })));
    let folder = folder_with("write_file", &[calls]);
    folder
        .write("job.yaml", JOB.replace("TOOLS", "write_file").replace("Go.", "{ file: prompts/main.md }"))
        .write("prompts/main.md", "{% include 'prompts/part.md' %}{% include 'prompts/missing.md' ignore missing %}")
        .write("prompts/part.md", "Go.")
        .commit_all();
    std::fs::hard_link(folder.at("prompts/part.md"), folder.at("hard.yaml")).unwrap();
    folder.git(&["config", "core.hooksPath", ".husky"]);
    folder.git(&["config", "include.path", "../.gitconfig-of-team"]);
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0);
    let answers = tool_results(&ended);
    for (path, (text, failed)) in paths.iter().zip(&answers) {
        assert!(*failed && (text.contains("read-only for tools") || text.contains("belongs to git")), "{path}: {text}");
    }
    assert_eq!(answers.last().unwrap().0, "created `src/fine`: 1 line, 4 bytes");
    assert!(!folder.exists("prompts/missing.md") && !folder.exists(".husky"));
}

/// The test uses a minimal root file system, so other files of the machine don't matter.
#[test]
fn the_root_folder_as_workspace_does_not_hang() {
    if !unshare_works() {
        return;
    }
    let calls = vec![
        ("read_file", json!({ "path": "/proc/self/environ" })),
        ("grep", json!({ "pattern": "HUNTER2", "path": "/proc/self" })),
        ("read_file", json!({ "path": "dev/zero" })),
        ("grep", json!({ "pattern": "x", "path": "dev/tty" })),
        ("glob", json!({ "pattern": "*", "path": "/sys" })),
        ("write_file", json!({ "path": "/dev/null", "content": "x", "overwrite": true })),
        ("write_file", json!({ "path": "/job.yaml", "content": "x", "overwrite": true })),
        ("write_file", json!({ "path": "/tmp/new", "content": "x" })),
        ("glob", json!({ "pattern": "/tmp/n*" })),
    ];
    let folder = folder_with("read_file, grep, glob, write_file", &[calls]);
    // `chroot` isn't on every user's PATH.
    let script = "PATH=$PATH:/usr/sbin:/sbin && mkdir root && mount -t tmpfs x root && cd root && mkdir proc dev sys tmp bin && \
                  for folder in proc dev sys; do mount --rbind /$folder $folder || exit 9; done && \
                  { ! [ -d dev/shm ] || mount -t tmpfs x dev/shm; } && \
                  touch bin/legwork && mount --bind \"$0\" bin/legwork && \
                  for file in $(ldd \"$0\" | grep -o '/[^ ]*'); do \
                    mkdir -p ./${file%/*} && cp $file ./$file || exit 9; \
                  done && cp ../job.yaml ../script.yaml . && \
                  HUNTER=HUNTER2 chroot . /bin/legwork run job.yaml --workspace / --out /runs; code=$?; \
                  cp -r runs ..; exit $code";
    let ended = folder.program("unshare", &["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_legwork")]).run();
    ended.assert_code(0);
    let answers = tool_results(&ended);
    for (text, failed) in &answers[..7] {
        assert!(*failed && !text.contains("HUNTER2"), "{text}");
    }
    assert!(!answers[7].1, "{}", answers[7].0);
    assert_eq!(answers[8].0, "tmp/new");
    let changes = ended.run_folder().result()["changes"].clone();
    assert_eq!(changes[0]["path"], "tmp/new", "{changes}");
}

#[test]
fn records_at_the_top_of_the_workspace_are_read_only_and_hidden() {
    let calls = vec![
        ("write_file", json!({ "path": "job/latest/result.json", "content": "{}", "overwrite": true })),
        ("write_file", json!({ "path": "job/new", "content": "" })),
        ("grep", json!({ "pattern": "run_start[e]d" })),
        ("write_file", json!({ "path": "other/new", "content": "" })),
    ];
    let folder = folder_with("write_file, grep", &[calls]);
    let ended = folder.legwork(&["run", "job.yaml", "--out", "."]).run();
    ended.assert_code(0);
    assert!(!folder.exists("job/new") && folder.exists("other/new"));
    let transcript = ended.run_folder_in("job").transcript();
    assert!(transcript.contains("no matches"), "{transcript}");
}

#[test]
fn a_new_repository_is_reported() {
    let make = "mkdir -p sub/x.git/objects sub/x.git/refs && touch sub/x.git/HEAD && mkdir more && touch more/.git";
    let folder = folder_with("bash", &[vec![("bash", json!({ "command": make }))]]);
    folder.commit_all();
    folder
        .legwork(&["run", "job.yaml"])
        .run()
        .assert_code(0)
        .assert_stderr_contains("commands created a git repository, `more/.git` and 1 more: ");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0).assert_not_printed("commands created");
}

#[test]
fn a_new_repository_behind_many_files_is_reported() {
    // The search stops after the nearest 50,000 files, and this workspace has more.
    let make = "for folder in $(seq 120); do mkdir -p a/$folder; (cd a/$folder && touch $(seq 430)); done; \
                mkdir -p z/y/x/w/v/u && git init -q z/y/x/w/v/u";
    let folder = folder_with("bash", &[vec![("bash", json!({ "command": make }))]]);
    folder.commit_all();
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0).assert_stderr_contains("commands created a git repository, `z/y/x/w/v/u/.git`: ");
}

#[test]
fn configuration_of_other_programs_is_read_only_unless_the_job_allows_it() {
    let refused = [
        ".github/workflows/ci.yml",
        ".github/workflows/new.yml",
        ".envrc",
        ".vscode/tasks.json",
        ".gitlab-ci.yml",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        "jobs/evil.yaml",
        "other.yaml",
        "deploy/prod.sh",
        "Deploy/prod.sh",
        ".github/workflows/../workflows/ci.yml",
    ];
    let allowed = [
        ".github/workflows/release.yml",
        "deploy/notes/today.md",
        "values.yaml",
        ".github/workflows/../workflows/release.yml",
    ];
    let write = |path: &&str| ("write_file", json!({ "path": path, "content": "changed\n", "overwrite": true }));
    let calls = refused.iter().chain(&allowed).map(write).collect();
    let folder = folder_with("write_file", &[calls]);
    folder
        .write(
            "job.yaml",
            folder.read("job.yaml")
                + "protect: [deploy/]\nallow_changes: [.github/workflows/release.yml, deploy/notes]\n",
        )
        .write("other.yaml", "model: a/b\nparent: { prompt: x, tools: [] }\n")
        .write("values.yaml", "replicas: 3\n")
        .write(".github/workflows/ci.yml", "on: push\n");
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    let answers = tool_results(ended.assert_code(0));
    for (path, (text, failed)) in refused.iter().zip(&answers) {
        assert!(*failed && text.contains("read-only for tools"), "{path}: {text}");
    }
    for (path, (text, failed)) in allowed.iter().zip(&answers[refused.len()..]) {
        assert!(!failed, "{path}: {text}");
    }
    assert_eq!(folder.read(".github/workflows/ci.yml"), "on: push\n");
}
