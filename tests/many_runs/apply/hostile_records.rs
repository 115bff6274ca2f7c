//! Records that were modified, damaged, or made elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{JOB, apply, repository, row, row_of, statuses};
use crate::support::journal::with_checksums;
use crate::support::test_folder::{TestFolder, empty_folder};

/// Changes the text of a row's journal, with valid checksums.
fn forge(record: &Path, from: &str, to: &str) {
    let journal = record.join("events.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    assert!(text.contains(from), "{from:?} isn't in the journal");
    fs::write(journal, with_checksums(&text.replace(from, to))).unwrap();
}

#[track_caller]
fn assert_refused(folder: &TestFolder, why: &str) {
    let ended = apply(folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("refused ").assert_stdout_contains(why);
    ended.assert_stdout_contains("0 files written");
    assert!(!folder.exists("new.txt"), "{}", ended.full_output());
}

#[test]
fn a_record_that_was_modified_is_refused() {
    let folder = repository();
    let record = row(&folder, "a", &["echo new > new.txt"]);
    let keep = folder.at("../keep");
    super::sh(&format!("cp -a {} {}", record.display(), keep.display()));
    let restore = || super::sh(&format!("rm -rf {0} && cp -a {1} {0}", record.display(), keep.display()));

    let journal = fs::read_to_string(record.join("events.jsonl")).unwrap();
    fs::write(record.join("events.jsonl"), journal.replace("+new", "+bad")).unwrap();
    assert_refused(&folder, "in its journal, ");

    // With valid checksums: the content isn't the one that the patch names.
    restore();
    fs::remove_file(record.join("changes.patch")).unwrap();
    forge(&record, "+new", "+bad");
    assert_refused(&folder, "the patch doesn't give the content that it names");

    restore();
    fs::write(record.join("changes.patch"), "").unwrap();
    assert_refused(&folder, "its changes.patch differs from its journal");
    fs::remove_file(record.join("changes.patch")).unwrap();
    symlink("/etc/passwd", record.join("changes.patch")).unwrap();
    assert_refused(&folder, "its changes.patch can't be read");
    fs::remove_file(record.join("changes.patch")).unwrap();
    fs::File::create(record.join("changes.patch")).unwrap().set_len(1 << 40).unwrap();
    assert_refused(&folder, "its changes.patch can't be read");

    for mode in ["160000", "104755", "40000"] {
        restore();
        fs::remove_file(record.join("changes.patch")).unwrap();
        forge(&record, "new file mode 100644", &format!("new file mode {mode}"));
        assert_refused(&folder, "the mode isn't that of a file");
    }

    restore();
    fs::remove_file(record.join("changes.patch")).unwrap();
    forge(&record, "\"path\":\"new.txt\"", "\"path\":\"other.txt\"");
    assert_refused(&folder, "its patch and its list of changed files disagree about `new.txt`");

    restore();
    fs::write(record.join("events.jsonl"), "").unwrap();
    fs::write(record.join("plan.json"), "[").unwrap();
    assert_refused(&folder, "isn't a run's record");

    restore();
    apply(&folder, &["fixes"]).run().assert_code(0);
    assert_eq!(folder.read("new.txt"), "new\n");
}

#[test]
fn no_path_leads_out_of_the_workspace_or_into_git() {
    let folder = repository();
    let record = row(&folder, "a", &["echo new > new.txt"]);
    fs::remove_file(record.join("changes.patch")).unwrap();
    let mut name = "new.txt";
    for (path, why) in [
        ("../escaped.txt", "the path leads out of the workspace"),
        (".git/hooks/post-checkout", "the path leads into a git folder"),
        ("sub/.GIT/config", "the path leads into a git folder"),
    ] {
        forge(&record, name, path);
        name = path;
        assert_refused(&folder, why);
    }
    assert!(!folder.exists("../escaped.txt") && !folder.exists(".git/hooks/post-checkout"));
    // A link in the workspace leads out of it as well.
    forge(&record, name, "out/new.txt");
    fs::create_dir(folder.at("../outside")).unwrap();
    symlink("../outside", folder.at("out")).unwrap();
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("`out` isn't a folder");
    assert!(!folder.exists("../outside/new.txt"));
}

#[test]
fn a_row_that_is_a_link_or_no_record_is_refused_and_the_others_are_applied() {
    let folder = repository();
    let record = row(&folder, "b", &["echo new > new.txt"]);
    let rows = record.parent().unwrap();
    let elsewhere = folder.at("../elsewhere");
    super::sh(&format!("cp -a {} {}", record.display(), elsewhere.display()));
    symlink(&elsewhere, rows.join("a")).unwrap();
    fs::create_dir(rows.join("c")).unwrap();
    fs::write(rows.join("d"), "").unwrap();
    fs::create_dir(rows.join(".moved-aside")).unwrap();
    let ended = apply(&folder, &["fixes", "--format", "json"]).run();
    ended.assert_code(1);
    assert_eq!(statuses(&ended), ["a refused", "b applied", "c refused", "d refused"]);
    assert!(folder.exists("new.txt"));
}

#[test]
fn a_run_that_was_killed_is_skipped_and_refused_if_named() {
    let folder = repository();
    let record = row(&folder, "a", &["echo new > new.txt"]);
    let journal = fs::read_to_string(record.join("events.jsonl")).unwrap();
    let cut: String = journal.lines().take(4).map(|line| format!("{line}\n")).collect();
    fs::write(record.join("events.jsonl"), cut).unwrap();
    apply(&folder, &["fixes"]).run().assert_code(0).assert_stdout_contains("skipped   a: it hasn't ended");
    let named = apply(&folder, &[record.to_str().unwrap()]).run();
    named.assert_code(1).assert_stdout_contains("refused   a: the run hasn't ended");
    assert!(!folder.exists("new.txt"));
}

#[test]
fn protected_files_change_only_if_the_run_had_the_permission_here() {
    let folder = repository();
    folder.write(".github/ci.yaml", "1\n").commit_all();
    let job = format!("{JOB}allow_changes: [.github]\n");
    let record = row_of(&folder, "a", &["echo 2 > .github/ci.yaml; echo new > new.txt"], &job, "");
    // Another machine's key: the permission could be forged.
    let other = empty_folder();
    let ended = apply(&folder, &["fixes"]).env("HOME", other.path()).run();
    ended
        .assert_code(1)
        .assert_stdout_contains(".github/ci.yaml: it is protected, and the permission to change it is in");
    assert!(!folder.exists("new.txt"));
    apply(&folder, &["fixes"]).run().assert_code(0);
    assert_eq!(folder.read(".github/ci.yaml"), "2\n");

    // Without the permission, a record that says so isn't believed.
    folder.commit_all();
    let second = row(&folder, "b", &["echo v > newer.txt"]);
    fs::remove_file(second.join("changes.patch")).unwrap();
    forge(&second, "newer.txt", ".github/ci2.yaml");
    fs::remove_dir_all(&record).unwrap();
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("it is protected, and the job has no permission to change it");
    forge(&second, "\"keep\":", "\"allow_changes\":[\".github\"],\"keep\":");
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("in a record from another machine or with another key");
    assert!(!folder.exists(".github/ci2.yaml"));
}

#[test]
fn jobs_and_records_of_the_workspace_are_protected() {
    let folder = repository();
    row(&folder, "a", &["mkdir -p tasks; echo 'parent: { prompt: x }' > tasks/x.yaml"]);
    let record = folder.at(super::MAP).join("rows/a");
    fs::remove_file(record.join("changes.patch")).unwrap();
    forge(&record, "tasks/x.yaml", "jobs/x.yaml");
    folder.write("jobs/mine.yaml", "parent: { prompt: y }\n");
    let ended = apply(&folder, &["fixes"]).run();
    ended.assert_code(1).assert_stdout_contains("jobs/x.yaml: it is protected");
    forge(&record, "jobs/x.yaml", "runs/x.yaml");
    let rows = record.parent().unwrap().parent().unwrap().to_str().unwrap().to_owned();
    let ended = folder.legwork(&["apply", &rows]).run();
    ended.assert_code(1).assert_stdout_contains("runs/x.yaml: it is protected");
}

#[test]
fn permissions_that_take_too_long_to_check_are_refused() {
    let folder = repository();
    let record = row(&folder, "a", &["echo new > new.txt"]);
    let many: Vec<String> = (0..10_001).map(|number| format!("\"p{number}\"")).collect();
    forge(&record, "\"keep\":", &format!("\"protect\":[{}],\"keep\":", many.join(",")));
    assert_refused(&folder, "its plan has too many protected files");
}

#[test]
fn a_link_out_of_the_workspace_is_refused() {
    let folder = repository();
    for (id, command, why) in [
        ("a", "ln -s /etc/passwd new.txt", "new.txt: it would be a link to /etc/passwd, outside of the workspace"),
        (
            "b",
            "mkdir d; ln -s ../../x d/l; : > new.txt",
            "d/l: it would be a link to ../../x, outside of the workspace",
        ),
    ] {
        row(&folder, id, &[command]);
        assert_refused(&folder, why);
        fs::remove_dir_all(folder.at(super::MAP).join("rows").join(id)).unwrap();
    }
    row(&folder, "c", &["mkdir -p d; ln -s ../sub/inner.txt d/l"]);
    apply(&folder, &["fixes"]).run().assert_code(0);
    assert_eq!(fs::read_link(folder.at("d/l")).unwrap(), Path::new("../sub/inner.txt"));
}
