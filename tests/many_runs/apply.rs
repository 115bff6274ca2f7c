//! `legwork apply`: the changes of runs that worked in copies of the workspace are merged into it.

mod hostile_records;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::program::{Program, ProgramOutput};
use crate::support::test_folder::TestFolder;

/// The folder of runs, next to the workspace.
pub(crate) const OUT: &str = "../runs";
/// The map that [`row`] adds records to.
pub(crate) const MAP: &str = "../runs/job/fixes";

pub(crate) const JOB: &str = "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [bash] }\n";

/// A repository with one file of thirty numbered lines and some more files.
pub(crate) fn repository() -> TestFolder {
    let folder = plain_folder();
    folder.commit_all();
    folder
}

fn plain_folder() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("lines.txt", lines()).write("gone.txt", "gone\n").write("run.sh", "#!/bin/sh\n");
    folder.write("becomes-link.txt", "text\n").write("sub/inner.txt", lines());
    folder
}

pub(crate) fn lines() -> String {
    (1..=30).map(|line| format!("{line}\n")).collect()
}

#[track_caller]
pub(crate) fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().expect("sh");
    let printed = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    assert!(output.status.success(), "{command}\n{printed}");
    printed
}

/// Runs a job with these commands in a copy of the workspace, and returns the record's folder.
#[track_caller]
pub(crate) fn run_in_copy(folder: &TestFolder, id: &str, commands: &[&str], job: &str, subfolder: &str) -> PathBuf {
    let root = folder.path().parent().unwrap().to_owned();
    fs::create_dir_all(root.join("copies")).unwrap();
    sh(&format!("cp -a {} {}", folder.path().display(), root.join("copies").join(id).display()));
    let turn = |command: &&str| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
    let turns: Vec<Value> = commands.iter().map(turn).chain([json!({ "text": "done" })]).collect();
    fs::write(root.join("replies.yaml"), json!({ "parent": turns }).to_string()).unwrap();
    fs::write(root.join("job.yaml"), job).unwrap();
    let workspace = format!("../copies/{id}/{subfolder}");
    let arguments =
        ["run", "../job.yaml", "--model", "replay/../replies.yaml", "--out", OUT, "--workspace", &workspace];
    let ended = folder.legwork(&arguments).env("DEPLOY_TOKEN", "a-very-secret-token").run();
    assert!(ended.exited_with(0) || ended.exited_with(1), "{}", ended.full_output());
    folder.at("../runs/job/latest").canonicalize().unwrap()
}

/// Adds a row to the map: a run with these commands in a copy of the workspace.
#[track_caller]
pub(crate) fn row(folder: &TestFolder, id: &str, commands: &[&str]) -> PathBuf {
    row_of(folder, id, commands, JOB, "")
}

#[track_caller]
pub(crate) fn row_of(folder: &TestFolder, id: &str, commands: &[&str], job: &str, subfolder: &str) -> PathBuf {
    let record = run_in_copy(folder, id, commands, job, subfolder);
    let rows = folder.at(MAP).join("rows");
    fs::create_dir_all(&rows).unwrap();
    fs::write(folder.at(MAP).join("map.json"), "{}").unwrap();
    let target = rows.join(id);
    fs::rename(record, &target).unwrap();
    target
}

pub(crate) fn apply(folder: &TestFolder, arguments: &[&str]) -> Program {
    folder.legwork(&["apply", "--out", OUT]).args(arguments)
}

/// The state of each run in the JSON report, as `run status`.
pub(crate) fn statuses(ended: &ProgramOutput) -> Vec<String> {
    let report = ended.json();
    let runs = report["runs"].as_array().expect("runs").clone();
    runs.iter().map(|run| format!("{} {}", run["run"].as_str().unwrap(), run["status"].as_str().unwrap())).collect()
}

#[test]
fn rows_that_change_different_places_of_a_file_are_both_applied() {
    let folder = repository();
    row(&folder, "first", &["sed -i 's/^3$/three/' lines.txt"]);
    row(&folder, "second", &["sed -i 's/^20$/twenty/' lines.txt; echo new > new.txt"]);
    row(&folder, "third", &["cat lines.txt"]);
    let merged = lines().replace("\n3\n", "\nthree\n").replace("\n20\n", "\ntwenty\n");

    let check = apply(&folder, &["fixes", "--check"]).run();
    check.assert_code(0).assert_stdout_contains("3 runs: 2 applied, 1 unchanged; 2 files would be written");
    assert_eq!(folder.read("lines.txt"), lines());
    assert!(!folder.exists("new.txt"));

    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(0).assert_stderr("").assert_stdout(
        "applied   first: lines.txt\n\
         applied   second: lines.txt, new.txt\n\
         unchanged third\n\
         3 runs: 2 applied, 1 unchanged; 2 files written\n",
    );
    assert_eq!((folder.read("lines.txt"), folder.read("new.txt").as_str()), (merged.clone(), "new\n"));

    // Everything is there already: the files have uncommitted changes now, but nothing changes them.
    let again = apply(&folder, &["job/fixes", "--format", "json"]).run();
    again.assert_code(0);
    assert_eq!(statuses(&again), ["first unchanged", "second unchanged", "third unchanged"]);
    assert_eq!(again.json()["files"], json!([]));
    assert_eq!(folder.read("lines.txt"), merged);
}

#[test]
fn a_conflict_names_the_line_and_both_rows_and_keeps_the_rest_of_that_row_out() {
    let folder = repository();
    row(&folder, "a", &["sed -i 's/^5$/five/' lines.txt"]);
    row(&folder, "b", &["sed -i 's/^5$/V/' lines.txt; echo b > b.txt"]);
    row(&folder, "c", &["echo c > c.txt"]);
    let check = apply(&folder, &[MAP, "--check"]).run();
    check.assert_code(1);
    assert!(!folder.exists("c.txt"));
    let ended = apply(&folder, &[MAP]).run();
    ended.assert_code(1).assert_stdout(
        "applied   a: lines.txt\n\
         conflict  b\n          lines.txt: both changed it at line 5 (changed before by a)\n\
         applied   c: c.txt\n\
         3 runs: 2 applied, 1 conflict; 2 files written\n",
    );
    assert_eq!(folder.read("lines.txt"), lines().replace("\n5\n", "\nfive\n"));
    assert!(!folder.exists("b.txt") && folder.exists("c.txt"));
    let report = apply(&folder, &["job/fixes", "--check", "--format", "json", "--allow-dirty"]).run();
    let problem = &report.json()["runs"][1]["problems"][0];
    assert_eq!(
        (&problem["path"], &problem["lines"], &problem["earlier"]),
        (&json!("lines.txt"), &json!([5]), &json!([])),
        "what is in the workspace is of no run of this command"
    );
}

#[test]
fn applying_again_changes_nothing_even_if_lines_repeat() {
    let base = "x\np\nq\nr\n1\n1\n1\n";
    let folder = TestFolder::new();
    folder.write("f", base).commit_all();
    row(&folder, "a", &["sed -i '$ d' f"]);
    row(&folder, "b", &["sed -i s/x/y/ f"]);
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("2 applied");
    folder.commit_all();
    let unchanged = "unchanged a\nunchanged b\n2 runs: 2 unchanged; 0 files written\n";
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout(unchanged);
    assert_eq!(folder.read("f"), "y\np\nq\nr\n1\n1\n");
    // With another change of the user's, the contents are compared.
    folder.write("f", "y\np\nmine\nr\n1\n1\n");
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout(unchanged);
    folder.write("f", base);
    apply(&folder, &["fixes", "--allow-dirty"]).run().assert_code(0).assert_stdout_contains("2 applied");
    assert_eq!(folder.read("f"), "y\np\nq\nr\n1\n1\n");
}

#[test]
fn the_order_is_that_of_the_results() {
    let folder = repository();
    for id in ["a", "b", "c"] {
        row(&folder, id, &[&format!("sed -i 's/^5$/{id}/' lines.txt")]);
    }
    fs::write(
        folder.at(MAP).join("results.jsonl"),
        "{\"id\":\"c\"}\nnonsense\n{\"id\":\"../../..\"}\n{\"id\":\"a\",\"x\":[]}\n{\"id\":\"c\"}\n{\"id\":",
    )
    .unwrap();
    let ended = apply(&folder, &["fixes", "--format", "json"]).run();
    ended.assert_code(1);
    assert_eq!(statuses(&ended), ["c applied", "a conflict", "b conflict"]);
    assert_eq!(folder.read("lines.txt"), lines().replace("\n5\n", "\nc\n"));
}

#[test]
fn every_kind_of_change_is_applied() {
    let folder = repository();
    let commands = [
        "rm gone.txt; chmod +x run.sh; ln -s lines.txt link; mkdir -p deep/er; printf 'no end' > deep/er/new",
        "rm becomes-link.txt; ln -s run.sh becomes-link.txt; : > empty; rm sub/inner.txt; echo x > 'a \"name\" [é]'",
    ];
    row(&folder, "all", &commands);
    apply(&folder, &["fixes"]).run().assert_code(0);
    let copy = folder.at("../copies/all");
    // Git has no empty folders.
    fs::remove_dir(copy.join("sub")).unwrap();
    sh(&format!("diff -r --no-dereference -x .git {} {}", copy.display(), folder.path().display()));
    let mode = |name: &str| fs::metadata(folder.at(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run.sh"), mode("deep/er/new")), (0o755, 0o644));
    assert_eq!(fs::read_link(folder.at("becomes-link.txt")).unwrap(), PathBuf::from("run.sh"));
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("1 unchanged; 0 files written");
}

#[test]
fn a_file_that_one_row_deletes_and_another_one_replaces_by_a_link_is_a_conflict() {
    let folder = repository();
    row(&folder, "a", &["rm gone.txt"]);
    row(&folder, "b", &["rm gone.txt; ln -s lines.txt gone.txt"]);
    for first in ["applied   a: gone.txt", "unchanged a"] {
        let ended = apply(&folder, &["fixes"]).run();
        ended.assert_code(1).assert_stdout_contains(first);
        ended.assert_stdout_contains("gone.txt: it was deleted, and the run changed it");
        assert!(fs::symlink_metadata(folder.at("gone.txt")).is_err());
    }
}

#[test]
fn a_folder_that_becomes_a_file_and_the_reverse_are_applied_also_again() {
    let folder = repository();
    row(&folder, "all", &["rm -r sub; echo file > sub; rm gone.txt; mkdir gone.txt; echo inner > gone.txt/inner"]);
    // A file that the patch doesn't delete keeps the folder.
    folder.write("sub/mine.txt", "mine\n");
    let kept = apply(&folder, &["fixes"]).run();
    kept.assert_code(1).assert_stdout_contains("sub: it is a folder").assert_stdout_contains("0 files written");
    assert_eq!((folder.read("sub/mine.txt").as_str(), folder.read("gone.txt").as_str()), ("mine\n", "gone\n"));
    fs::remove_file(folder.at("sub/mine.txt")).unwrap();
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("4 files written");
    sh(&format!("diff -r -x .git {} {}", folder.at("../copies/all").display(), folder.path().display()));
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("1 unchanged; 0 files written");
}

#[test]
fn a_folder_that_becomes_a_link_is_applied_also_again() {
    let folder = repository();
    row(&folder, "a", &["rm -r sub; ln -s elsewhere sub"]);
    sh(&format!("mkdir {0}; echo theirs > {0}/inner.txt", folder.at("elsewhere").display()));
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("2 files written");
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("1 unchanged; 0 files written");
    assert_eq!(folder.read("elsewhere/inner.txt"), "theirs\n");
    // With a link to another place, it isn't known what the deletion means.
    sh(&format!("cd {} && rm sub && ln -s . sub", folder.path().display()));
    apply(&folder, &["fixes"]).run().assert_code(1).assert_stdout_contains("sub/inner.txt: `sub` isn't a folder");
}

#[test]
fn a_file_that_git_checked_out_with_other_line_ends_keeps_its_own() {
    let folder = plain_folder();
    folder.write(".gitattributes", "* text=auto\n");
    folder.commit_all();
    row(&folder, "a", &["sed -i 's/^3$/three/' lines.txt; rm sub/inner.txt"]);
    row(&folder, "b", &["sed -i 's/^20$/twenty/' lines.txt"]);
    let crlf = |text: &str| text.replace('\n', "\r\n");
    folder.write("lines.txt", crlf(&lines())).write("sub/inner.txt", crlf(&lines()));
    // For git, nothing has changed.
    folder.git(&["add", "--all"]);
    assert_eq!(folder.git(&["status", "--porcelain"]), "");
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("2 runs: 2 applied; 2 files written");
    let merged = lines().replace("\n3\n", "\nthree\n").replace("\n20\n", "\ntwenty\n");
    assert_eq!(folder.read("lines.txt"), crlf(&merged));
    assert!(!folder.exists("sub/inner.txt"));
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("2 unchanged; 0 files written");
}

#[test]
fn a_file_with_uncommitted_changes_is_refused_unless_allowed() {
    let folder = repository();
    row(&folder, "dirty", &["sed -i 's/^20$/twenty/' lines.txt; echo x > x.txt"]);
    row(&folder, "clean", &["echo y > y.txt"]);
    folder.write("lines.txt", lines().replace("\n2\n", "\nmine\n"));
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("lines.txt: it has changes that aren't committed; commit or stash it");
    assert!(!folder.exists("x.txt") && folder.exists("y.txt"));
    apply(&folder, &["fixes", "--allow-dirty"]).run().assert_code(0);
    assert_eq!(folder.read("lines.txt"), lines().replace("\n2\n", "\nmine\n").replace("\n20\n", "\ntwenty\n"));
    // A file that git doesn't track can't be restored either.
    folder.write("untracked.txt", "1\n");
    row(&folder, "untracked", &["echo 2 > untracked.txt"]);
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("untracked.txt: it isn't tracked by git");
    assert_eq!(folder.read("untracked.txt"), "1\n");
}

#[test]
fn a_file_in_which_git_does_not_look_for_changes_is_refused_unless_allowed() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let folder = repository();
        row(&folder, "a", &["sed -i 's/^20$/twenty/' lines.txt"]);
        folder.git(&["update-index", flag, "lines.txt"]);
        folder.write("lines.txt", lines().replace("\n2\n", "\nmine\n"));
        assert_eq!(folder.git(&["status", "--porcelain"]), "");
        let ended = apply(&folder, &["fixes"]).run();
        ended.assert_code(1).assert_stdout_contains("lines.txt: git doesn't look for changes in it");
        apply(&folder, &["fixes", "--allow-dirty"]).run().assert_code(0);
        assert_eq!(folder.read("lines.txt"), lines().replace("\n2\n", "\nmine\n").replace("\n20\n", "\ntwenty\n"));
    }
}

#[test]
fn a_signal_while_files_are_written_leaves_no_row_half_applied() {
    let folder = repository();
    row(&folder, "a", &["for number in $(seq 1000 1600); do echo x > f$number; done"]);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let running = apply(&folder, &["fixes"]).spawn();
        folder.wait_for("f1000");
        running.signal(signal);
        // It may have written everything just before.
        let ended = running.wait();
        assert!(ended.exited_with(0) || ended.exited_with(128 + signal.as_raw()), "{}", ended.full_output());
        ended.assert_stdout_contains("1 applied; 601 files written");
        let names = folder.list();
        assert_eq!(names.iter().filter(|name| name.starts_with('f')).count(), 601);
        assert!(!names.iter().any(|name| name.contains(".legwork-")), "no temporary file is left");
        folder.git(&["clean", "--quiet", "--force"]);
    }
}

#[test]
fn a_run_in_a_folder_with_much_text_has_a_complete_patch() {
    let folder = plain_folder();
    // More than the record of a run stores of its workspace.
    for number in 0..40 {
        folder.write(&format!("text/{number}.txt"), "text\n".repeat(200_000));
    }
    row(&folder, "a", &["sed -i 's/^20$/twenty/' lines.txt"]);
    row(&folder, "b", &["echo more >> text/0.txt; echo more >> text/39.txt"]);
    let ended = apply(&folder, &["fixes"]).run();
    ended
        .assert_code(1)
        .assert_stdout_contains("applied   a: lines.txt")
        .assert_stdout_contains("weren't stored (`text/");
}

#[test]
fn a_repository_that_git_cannot_read_is_an_error() {
    let folder = repository();
    row(&folder, "a", &["echo y > y.txt"]);
    folder.write(".git/index", "broken");
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(5).assert_stdout("").assert_stderr_contains("--allow-dirty");
    assert!(!folder.exists("y.txt"));
    apply(&folder, &["fixes", "--allow-dirty"]).run().assert_code(0);
}

#[test]
fn a_folder_without_git_is_merged_from_the_files_as_they_are() {
    let folder = plain_folder();
    row(&folder, "a", &["sed -i 's/^3$/three/' lines.txt"]);
    row(&folder, "b", &["sed -i 's/^20$/twenty/' lines.txt; rm gone.txt"]);
    apply(&folder, &["fixes"]).run().assert_code(0);
    assert_eq!(folder.read("lines.txt"), lines().replace("\n3\n", "\nthree\n").replace("\n20\n", "\ntwenty\n"));
    assert!(!folder.exists("gone.txt"));
    // Nothing has the content from before the changes, except for the copy that the map started from.
    let row = folder.at(MAP).join("rows/a");
    let mine = lines().replace("\n25\n", "\nmine\n");
    folder.write("lines.txt", &mine);
    let ended = apply(&folder, &[row.to_str().unwrap()]).run();
    ended.assert_code(1).assert_stdout_contains("its content at that time isn't known");
    assert_eq!(folder.read("lines.txt"), mine);
    folder.write("../snapshot/lines.txt", lines());
    let manifest = json!({
        "format": 1, "job": "job", "rows_file": "fixes.csv", "isolation": "copy", "started_at": "2026-11-23T08:00:00Z",
        "snapshot": { "kind": "copy", "folder": folder.at("../snapshot") },
    });
    folder.write("../runs/job/fixes/map.json", manifest.to_string());
    apply(&folder, &[row.to_str().unwrap()]).run().assert_code(0);
    assert_eq!(folder.read("lines.txt"), mine.replace("\n3\n", "\nthree\n"));
}

#[test]
fn a_workspace_below_the_root_of_the_repository_is_changed() {
    let folder = repository();
    row_of(&folder, "inner", &["sed -i 's/^3$/three/' inner.txt; echo n > new.txt"], JOB, "sub");
    folder.write("sub/inner.txt", lines().replace("\n20\n", "\nmine\n"));
    let arguments = ["fixes", "--workspace", "sub"];
    apply(&folder, &arguments).run().assert_code(1).assert_stdout_contains("inner.txt: it has changes");
    apply(&folder, &arguments).arg("--allow-dirty").run().assert_code(0);
    assert_eq!(folder.read("sub/inner.txt"), lines().replace("\n20\n", "\nmine\n").replace("\n3\n", "\nthree\n"));
    assert!(folder.exists("sub/new.txt") && !folder.exists("new.txt"));
}

#[test]
fn a_run_that_did_not_complete_is_applied_only_if_it_is_named() {
    let folder = repository();
    let job = format!("{JOB}checks: [{{ name: never, run: 'false' }}]\n");
    let failed = row_of(&folder, "failed", &["echo f > f.txt"], &job, "");
    row(&folder, "good", &["echo g > g.txt"]);
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(0).assert_stdout_contains("skipped   failed: it ended as checks_failed");
    assert!(!folder.exists("f.txt") && folder.exists("g.txt"));
    let ended = apply(&folder, &["fixes", failed.to_str().unwrap(), "--format", "json"]).run();
    ended.assert_code(0);
    assert_eq!(statuses(&ended), ["fixes/failed applied", "fixes/good unchanged"], "each run once");
    assert!(folder.exists("f.txt"));
}

#[test]
fn a_patch_that_is_not_complete_is_refused_with_its_reason() {
    let folder = repository();
    row(&folder, "binary", &["printf '\\000\\001' > image.png; echo t > text.txt"]);
    let job = format!("{JOB}env: [DEPLOY_TOKEN]\n");
    row_of(&folder, "secret", &["echo \"$DEPLOY_TOKEN\" > leaked.txt; echo u > u.txt"], &job, "");
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1);
    ended.assert_stdout_contains(
        "refused   binary: its patch isn't complete: the patch leaves out files that aren't text",
    );
    ended.assert_stdout_contains("refused   secret: its patch isn't complete: secrets are masked in the patch");
    assert!(!folder.exists("text.txt") && !folder.exists("u.txt") && !folder.exists("leaked.txt"));
}

#[test]
fn a_file_that_cannot_be_written_ends_the_command_and_the_report_says_what_was() {
    let folder = repository();
    row(&folder, "a", &["echo 1 > a.txt; head -c 100000 /dev/zero | tr '\\0' x > b.txt; echo 3 > c.txt; rm gone.txt"]);
    let legwork = env!("CARGO_BIN_EXE_legwork");
    let limited = |more: &str| format!("trap '' XFSZ; ulimit -f 8; exec '{legwork}' apply --out {OUT} fixes {more}");
    let ended = folder.program("/bin/sh", &["-c", &limited("")]).run();
    ended.assert_code(5).assert_stderr_contains("`b.txt` wasn't written: ");
    ended
        .assert_stderr_contains("written before it: gone.txt, a.txt")
        .assert_stderr_contains("not written after it: c.txt");
    assert!(folder.exists("a.txt") && !folder.exists("b.txt") && !folder.exists("c.txt") && !folder.exists("gone.txt"));
    assert_eq!(folder.list().iter().filter(|name| name.contains(".legwork-")).count(), 0, "no temporary file is left");
    let report = folder.program("/bin/sh", &["-c", &limited("--format json")]).run();
    report.assert_code(5);
    let report = report.json();
    assert_eq!((&report["files"], &report["failed"]["path"]), (&json!([]), &json!("b.txt")));
    assert_eq!(report["unwritten"], json!(["c.txt"]));
    apply(&folder, &["fixes"]).run().assert_code(0);
    assert!(folder.exists("b.txt") && folder.exists("c.txt"));
}

#[test]
fn runs_are_applied_in_the_order_of_the_command_line() {
    let folder = repository();
    let ids: Vec<String> = ["x", "y"]
        .iter()
        .map(|word| run_in_copy(&folder, word, &[&format!("sed -i 's/^5$/{word}/' lines.txt")], JOB, ""))
        .map(|record| record.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let ended = apply(&folder, &[&ids[1], &ids[0], "job/latest", "--format", "json"]).run();
    ended.assert_code(1);
    assert_eq!(statuses(&ended), [format!("{} applied", ids[1]), format!("{} conflict", ids[0])]);
    assert_eq!(folder.read("lines.txt"), lines().replace("\n5\n", "\ny\n"));
}

#[test]
fn changes_that_were_made_in_a_folder_above_or_below_are_refused() {
    let folder = TestFolder::new();
    folder.write("f", "1\n").write("sub/f", "1\n").commit_all();
    let job = "name: job\nmodel: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [] }\n\
               checks: [{ name: edit, run: 'echo 2 > f' }]\nlimits: { cost_usd: 1 }\n";
    folder.write("../job.yaml", job).write("../replies.yaml", "parent: [{ text: done }]\n");
    folder.write("../rows.jsonl", "{\"id\":\"a\"}\n");
    let start = |arguments: &[&str]| {
        let ended = folder.legwork(arguments).args(["--model", "replay/../replies.yaml", "--out", OUT]).run();
        ended.assert_code(0);
    };
    let map = |name: &str, more: &[&str]| {
        start(&[&["map", "../job.yaml", "--rows", "../rows.jsonl", "--id", "id", "--name", name], more].concat());
    };
    let below = folder.at("sub").canonicalize().unwrap();
    let assert_refused = |name: &str, workspace: &str, made_in: &Path| {
        let ended = apply(&folder, &[name, "--workspace", workspace, "--allow-dirty"]).run();
        let made_in = made_in.display();
        ended.assert_code(2).assert_stderr_contains(&format!("were made in {made_in}, not in "));
        ended.assert_stderr_contains(&format!("use --workspace {made_in}, or"));
    };
    for isolation in ["worktree", "copy"] {
        map(isolation, &["--workspace", "sub", "--isolate", isolation]);
        assert_refused(isolation, ".", &below);
        assert_eq!((folder.read("f").as_str(), folder.read("sub/f").as_str()), ("1\n", "1\n"));
        apply(&folder, &[isolation, "--workspace", "sub"])
            .run()
            .assert_code(0)
            .assert_stdout_contains("applied   a: f");
        assert_eq!((folder.read("f").as_str(), folder.read("sub/f").as_str()), ("1\n", "2\n"));
        folder.write("sub/f", "1\n");
    }
    map("root", &["--isolate", "copy"]);
    assert_refused("root", "sub", &folder.path().canonicalize().unwrap());
    start(&["run", "../job.yaml", "--workspace", "sub"]);
    assert_refused("job/latest", ".", &below);
    // A worktree of the repository has the same paths, although it is below.
    folder.write("sub/f", "1\n");
    folder.git(&["worktree", "add", "-q", "tree"]);
    start(&["run", "../job.yaml", "--workspace", "tree"]);
    apply(&folder, &["job/latest"]).run().assert_code(0).assert_stdout_contains(": f\n");
}

#[test]
fn names_that_are_no_run_and_no_map_are_usage_errors() {
    let folder = repository();
    row(&folder, "a", &["echo a > a.txt"]);
    apply(&folder, &[]).run().assert_code(2);
    apply(&folder, &["missing"]).run().assert_code(2).assert_stderr_contains("no run and no map is called `missing`");
    // An unknown name among others: nothing is applied.
    apply(&folder, &["fixes", "missing"]).run().assert_code(2);
    assert!(!folder.exists("a.txt"));
    for (path, content) in [("../runs/other/fixes/map.json", "{}"), ("../runs/job/empty/map.json", "{}")] {
        folder.write(path, content);
    }
    apply(&folder, &["fixes"]).run().assert_code(2).assert_stderr_contains("several maps are called `fixes`");
    apply(&folder, &["empty"]).run().assert_code(2).assert_stderr_contains("no row of this map has been started yet");
    apply(&folder, &["job/fixes", "--workspace", "nowhere"]).run().assert_code(2).assert_stderr_contains("nowhere");
    apply(&folder, &["job/fixes"]).run().assert_code(0);
}

/// The example of the book.
#[test]
fn the_book_shows_what_apply_prints() {
    let folder = TestFolder::new();
    folder.write("src/app/cart.py", lines()).commit_all();
    row(&folder, "cart", &["sed -i 's/^5$/five/' src/app/cart.py"]);
    row(&folder, "checkout", &["sed -i 's/^5$/V/' src/app/cart.py"]);
    row(&folder, "orders", &["true"]);
    let shown = apply(&folder, &["fixes", "--check"]).run();
    let page = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/src/many-runs.md")).unwrap();
    assert!(
        page.contains(&shown.assert_code(1).stdout),
        "docs/src/many-runs.md shows something else\n{}",
        shown.stdout
    );
}

/// Files with CRLF line endings, and repositories whose objects have other names.
#[test]
fn a_changed_file_is_merged_although_git_names_its_content_differently() {
    for setup in ["git init -q --object-format=sha256", "git init -q && git config core.autocrlf true"] {
        let folder = TestFolder::new();
        let text = if setup.contains("autocrlf") { lines().replace('\n', "\r\n") } else { lines() };
        folder.write("lines.txt", &text);
        sh(&format!("cd {} && {setup}", folder.path().display()));
        folder.commit_all();
        row(&folder, "a", &["sed -i 's/^3\\(\r\\?\\)$/three\\1/' lines.txt"]);
        folder.write("lines.txt", text.replacen("20", "twenty", 1));
        apply(&folder, &["fixes", "--allow-dirty"]).run().assert_code(0).assert_stdout_contains("applied   a");
        assert_eq!(folder.read("lines.txt"), text.replacen("20", "twenty", 1).replacen("\n3", "\nthree", 1));
    }
}
