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
use super::patch::{PatchSide, SideContent, section, split_by_path};
use super::tracked_files::TrackedFiles;
use super::{ChangeTracker, Deadline, FileId};
use crate::apply::{MergeSession, TargetFiles, write_back};
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
            let old = old.as_deref().map(|text| PatchSide { mode: mode(*before), content: SideContent::Text(text) });
            let new = new.as_deref().map(|text| PatchSide { mode: mode(*after), content: SideContent::Text(text) });
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
        let changes = (0..files.len()).map(|number| Change { path: format!("f {number}"), change: ChangeKind::Modified, lines_added: None, lines_removed: None, binary: None });
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
    compared(root, outputs, &[], false, happens)
}

fn compared(
    root: &Path,
    outputs: Vec<FileId>,
    secrets: &[(String, String)],
    keeps_binary: bool,
    happens: impl FnOnce(),
) -> WorkspaceChanged {
    let record = tempfile::tempdir().unwrap();
    let tracker = ChangeTracker {
        workspace: Arc::new(Workspace::open(root, Vec::new(), Vec::new()).unwrap()),
        record: OpenRoot::open(record.path()).unwrap(),
        mask: Arc::new(Redactor::new(secrets).0),
        outputs,
        git: None,
        shows_content: true,
        keeps_binary,
    };
    let pace = || Deadline::new(Duration::from_secs(3600), CancellationToken::new());
    tracker.take_baseline(&pace()).unwrap();
    happens();
    tracker.compare_with_baseline(&pace()).unwrap()
}

/// Bytes that can't be packed.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u32 = 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn git_and_legwork_apply_a_patch_with_binary_files() {
    let long = noise(5_000);
    type BeforeAndAfter<'a> = (&'a str, Option<&'a [u8]>, Option<&'a [u8]>);
    let files: &[BeforeAndAfter<'_>] = &[
        ("added", None, Some(&long)),
        ("changed", Some(b"\0one\r\n"), Some(b"\0two\n")),
        ("deleted", Some(&long), None),
        ("not utf-8", Some(b"caf\xe9\n"), Some(b"caf\xe8\n")),
        ("text/of binary", Some(b"\0"), Some(b"text\n")),
        ("text/to binary", Some(b"text\n"), Some(b"\0")),
        ("text/only", Some(b"text\n"), Some(b"other\n")),
        ("emptied", Some(b"\0"), Some(b"")),
        ("same", Some(b"\0"), Some(b"\0")),
    ];
    let [folder, by_git, by_legwork] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let write = |root: &Path, name: &str, content: Option<&[u8]>| match content {
        Some(content) => {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), content).unwrap();
        }
        None => drop(std::fs::remove_file(root.join(name))),
    };
    for root in [&folder, &by_git, &by_legwork] {
        files.iter().for_each(|(name, before, _)| write(root.path(), name, *before));
    }
    let changed = compared(folder.path(), Vec::new(), &[], true, || {
        files.iter().for_each(|(name, _, after)| write(folder.path(), name, *after));
    });
    assert_eq!(changed.incomplete, None);
    let is_line = |line: &str| line.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ');
    assert!(changed.patch.lines().all(is_line), "{}", changed.patch);
    let sizes = |name: &str| {
        let change = changed.changes.iter().find(|change| change.path == name).unwrap();
        (change.lines_added, change.lines_removed, change.binary)
    };
    assert_eq!([sizes("added"), sizes("deleted")], [(None, None, Some(5_000)); 2]);
    assert_eq!((sizes("text/of binary"), sizes("text/only")), ((None, None, Some(1)), (Some(1), Some(1), None)));
    std::fs::write(by_git.path().join("patch"), &changed.patch).unwrap();
    git(by_git.path(), &["apply", "patch"]);
    let target = TargetFiles::in_folder(OpenRoot::open(by_legwork.path()).unwrap(), None);
    let mut session = MergeSession::new(target);
    session.merge_patch("run", &changed.patch).unwrap();
    assert_eq!(write_back(&session).failed, None);
    for root in [&by_git, &by_legwork] {
        for (name, _, after) in files {
            assert_eq!(std::fs::read(root.path().join(name)).ok().as_deref(), *after, "{name}");
        }
    }
    assert_eq!(split_by_path(&changed).len(), files.len() - 1);
}

#[test]
fn a_patch_leaves_out_binary_files_that_are_too_long_or_have_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = [("TOKEN".to_owned(), "hunter2-hunter2".to_owned())];
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    let changed = compared(folder.path(), Vec::new(), &secrets, true, || {
        write("a", &noise(600_000));
        write("b", &noise(600_000));
        write("c", &noise((1 << 20) + 1));
        write("d", b"\0hunter2-hunter2\xff");
    });
    assert_eq!(
        changed.incomplete.as_deref(),
        Some(
            "the patch leaves out files that are too large or weren't stored (`c`); the patch leaves out binary files with a secret, \
             which can't be masked in them (`d`); the patch leaves out files that would make it too long (`b`)"
        )
    );
    // Content that packs well is bounded by its own size.
    let changed = compared(folder.path(), Vec::new(), &[], true, || {
        (0..40).for_each(|number| write(&format!("zeros{number:02}"), &[0; 1 << 20]));
    });
    let incomplete = changed.incomplete.unwrap();
    assert!(incomplete.contains("would make it too long (`zeros32`, `zeros33`"), "{incomplete}");
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
        keeps_binary: false,
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
