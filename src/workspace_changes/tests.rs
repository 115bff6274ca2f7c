//! Tests that need access to internals.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, statat};
use tokio_util::sync::CancellationToken;

use super::baseline_file::by_path::{path_to_text, text_to_path};
use super::file_stat::FileStat;
use super::patch::{PatchSide, section, split_by_path};
use super::tracked_files::TrackedFiles;
use super::{ChangeTracker, Deadline, FileId};
use crate::event::{Change, ChangeKind, WorkspaceChanged};
use crate::git::Repository;
use crate::redaction::Redactor;
use crate::workspace::Workspace;
use crate::workspace::open_beneath::file_id;
use crate::workspace::open_root::OpenRoot;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=b", "-c", "commit.gpgSign=false"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder))
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text() -> impl Strategy<Value = Option<String>> {
    let line = prop::sample::select(vec!["a", "b", "a\r", "", "# x", "--- a", "diff --git a/x b/x", "ä\t"]);
    let lines = (prop::collection::vec(line, 0..12), any::<bool>());
    let text = lines.prop_map(|(lines, ends)| lines.join("\n") + if ends { "\n" } else { "" });
    prop::option::weighted(0.9, text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_a_patch_reproduces_the_end(files in prop::collection::vec((text(), text(), any::<(bool, bool)>()), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let mode = |executable| if executable { 0o100_755 } else { 0o100_644 };
        let mut patch = String::new();
        for (number, (old, new, (before, after))) in files.iter().enumerate() {
            let name = format!("f {number}");
            if let Some(old) = old {
                let path = folder.path().join(&name);
                std::fs::write(&path, old).unwrap();
                let bits = std::os::unix::fs::PermissionsExt::from_mode(if *before { 0o755 } else { 0o644 });
                std::fs::set_permissions(&path, bits).unwrap();
            }
            let old = old.as_deref().map(|text| PatchSide { mode: mode(*before), text });
            let new = new.as_deref().map(|text| PatchSide { mode: mode(*after), text });
            patch += &section(Path::new(&name), old, new).text;
        }
        if !patch.is_empty() {
            let file = folder.path().join("patch");
            std::fs::write(&file, &patch).unwrap();
            git(folder.path(), &["apply", "--whitespace=nowarn", "patch"]);
        }
        for (number, (_, new, _)) in files.iter().enumerate() {
            let is = std::fs::read_to_string(folder.path().join(format!("f {number}"))).ok();
            prop_assert_eq!(&is, new, "{}", patch);
        }
        let changed = files.iter().filter(|(old, new, (before, after))| {
            old != new || (old.is_some() && before != after)
        });
        let changes = (0..files.len()).map(|number| Change { path: format!("f {number}"), change: ChangeKind::Modified, lines_added: None, lines_removed: None });
        let recorded = WorkspaceChanged { changes: changes.collect(), patch, ..WorkspaceChanged::default() };
        prop_assert_eq!(split_by_path(&recorded).len(), changed.count());
    }

    #[test]
    fn a_path_is_read_back_from_text(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let path = PathBuf::from(OsStr::from_bytes(&bytes));
        prop_assert_eq!(text_to_path(&path_to_text(&path)), path);
    }
}

/// Takes a baseline, lets the folder change, and compares.
fn changed(root: &Path, outputs: Vec<FileId>, happens: impl FnOnce()) -> WorkspaceChanged {
    let record = tempfile::tempdir().unwrap();
    let tracker = ChangeTracker {
        workspace: Arc::new(Workspace::open(root, Vec::new(), Vec::new()).unwrap()),
        record: OpenRoot::open(record.path()).unwrap(),
        mask: Arc::new(Redactor::new(&[]).0),
        outputs,
        git: None,
        shows_content: true,
    };
    let pace = || Deadline::new(Duration::from_secs(3600), CancellationToken::new());
    tracker.take_baseline(&pace()).unwrap();
    happens();
    tracker.compare_with_baseline(&pace()).unwrap()
}

#[test]
fn files_beyond_the_limit_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let files = |count: usize| {
        changed(folder.path(), Vec::new(), || {
            (0..count).for_each(|number| std::fs::write(folder.path().join(format!("f{number}")), "").unwrap());
            (count..6000).for_each(|number| drop(std::fs::remove_file(folder.path().join(format!("f{number}")))));
        })
    };
    let all = files(5003);
    assert_eq!((all.changes.len(), all.total), (5000, Some(5003)));
    let incomplete = all.incomplete.unwrap();
    assert!(incomplete.contains("5003 files have changed, and only the first 5000 are listed"), "{incomplete}");
    let exactly = files(3);
    assert_eq!((exactly.changes.len(), exactly.total, exactly.incomplete), (5000, None, None));
}

#[test]
fn output_files_do_not_count_as_changes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("out"), "").unwrap();
    std::fs::write(at("other"), "").unwrap();
    let outputs = vec![file_id(&statat(CWD, at("out"), AtFlags::empty()).unwrap())];
    let changed = changed(folder.path(), outputs, || {
        std::fs::write(at("out"), "printed").unwrap();
        std::fs::write(at("other"), "changed").unwrap();
    });
    let paths: Vec<&str> = changed.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["other"]);
}

#[test]
fn every_version_of_the_index_is_read_as_git_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["a", "ab/c", "ab/cd e", "b/deep/er/file", "b/deep/er/file2", "ümlaut"] {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), name).unwrap();
    }
    git(&root, &["init", "--quiet"]);
    for version in ["2", "3", "4"] {
        git(&root, &["add", "--all"]);
        git(&root, &["update-index", "--index-version", version]);
        std::thread::sleep(std::time::Duration::from_millis(15));
        git(&root, &["update-index", "--really-refresh", "--force-write-index"]);
        let repository = Repository::discover(&root).unwrap();
        let index = TrackedFiles::read(&repository, &root).unwrap();
        let mut names: Vec<String> = index.files.keys().map(|path| path.display().to_string()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "ab/c", "ab/cd e", "b/deep/er/file", "b/deep/er/file2", "ümlaut"], "version {version}");
        for (path, tracked) in &index.files {
            let marks = FileStat::of(&statat(CWD, root.join(path), AtFlags::SYMLINK_NOFOLLOW).unwrap()).unwrap();
            assert!(tracked.matches_stat(&marks, index.written_at), "{}", path.display());
            assert!(!tracked.matches_stat(&marks, marks.mtime), "it is as young as the index");
            assert!(!tracked.matches_stat(&FileStat { size: marks.size + 1, ..marks }, index.written_at));
        }
        let below = TrackedFiles::read(&repository, &root.join("b")).unwrap();
        assert!(below.files.contains_key(Path::new("deep/er/file2")) && below.files.len() == 2);
        let bytes = std::fs::read(root.join(".git/index")).unwrap();
        for length in 0..bytes.len() {
            // A truncated index never causes a panic.
            std::fs::write(root.join(".git/index"), &bytes[..length]).unwrap();
            let _ = TrackedFiles::read(&repository, &root);
        }
        std::fs::write(root.join(".git/index"), bytes).unwrap();
    }
    git(&root, &["update-index", "--split-index"]);
    assert!(
        TrackedFiles::read(&Repository::discover(&root).unwrap(), &root).is_none(),
        "its entries are in another file"
    );
}

/// A partial baseline would show the files that weren't reached as unchanged.
#[test]
fn a_slow_baseline_is_abandoned() {
    let outer = tempfile::tempdir().unwrap();
    for name in ["work/folder", "record"] {
        std::fs::create_dir_all(outer.path().join(name)).unwrap();
    }
    std::fs::write(outer.path().join("work/folder/file"), "x").unwrap();
    let tracker = ChangeTracker {
        workspace: Arc::new(Workspace::open(&outer.path().join("work"), Vec::new(), Vec::new()).unwrap()),
        record: OpenRoot::open(&outer.path().join("record")).unwrap(),
        mask: Arc::default(),
        git: None,
        outputs: Vec::new(),
        shows_content: true,
    };
    let late = tracker.take_baseline(&Deadline::new(Duration::ZERO, CancellationToken::new())).unwrap_err();
    assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
    assert!(
        !tracker.has_baseline()
            && tracker
                .compare_with_baseline(&Deadline::new(Duration::from_secs(60), CancellationToken::new()))
                .is_none()
    );
    tracker.take_baseline(&Deadline::new(Duration::from_secs(60), CancellationToken::new())).unwrap();
    let same =
        tracker.compare_with_baseline(&Deadline::new(Duration::from_secs(60), CancellationToken::new())).unwrap();
    assert_eq!((same.changes.len(), same.incomplete), (0, None));
}
