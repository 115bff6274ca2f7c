use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::allowed_changes::AllowedChanges;
use super::super::{GuardedFiles, ObjectStages, RecordVerifier, SandboxPolicy};
use super::TamperGuard;
use crate::egress::NetworkAccess;

fn workspace() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap().join("work");
    fs::create_dir_all(root.join(".git/hooks/sub")).unwrap();
    fs::write(root.join(".git/hooks/pre-commit"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join(".git/hooks/pre-commit"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join(".git/hooks/sub/x"), "x").unwrap();
    fs::write(root.join(".git/config"), "[core]\n").unwrap();
    fs::write(root.join("job.yaml"), "model: a/b\n").unwrap();
    symlink("job.yaml", root.join("link.yaml")).unwrap();
    (folder, root)
}

fn guard(root: &Path) -> TamperGuard {
    TamperGuard::new(&policy(root), &policy(root).protected)
}

fn policy(root: &Path) -> SandboxPolicy {
    let names = [".git/hooks", ".git/config", ".git/commondir", "job.yaml", "link.yaml", "later/deep.yaml"];
    SandboxPolicy {
        workspace: root.to_owned(),
        protected: names.iter().map(|name| root.join(name)).collect(),
        protected_links: vec![],
        allowed_changes: AllowedChanges::default(),
        network: NetworkAccess::None,
        readable: vec![],
        writable: vec![],
        hidden_files: vec![],
        home: None,
        path_dirs: vec![],
        object_stages: ObjectStages::default(),
        guarded_files: GuardedFiles::default(),
    }
}

/// Everything below a folder: name, mode, and content or target.
fn contents(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            all.push((path, metadata.permissions().mode(), content));
        }
    }
    all.sort();
    all
}

/// The changed paths, and whether they end the run.
fn check_attack(root: &Path, attack: impl FnOnce()) -> (Vec<PathBuf>, bool) {
    let mut guard = guard(root);
    assert_eq!(guard.check(false), Ok(None));
    let before = contents(root);
    attack();
    let found = guard.check(false);
    assert_eq!(contents(root), before);
    assert_eq!(guard.check(false), Ok(None), "a second check finds everything restored");
    match found {
        Ok(undone) => (undone.unwrap().removed.iter().map(|path| root.join(path)).collect(), false),
        Err(error) => {
            assert_eq!(error.not_restored, Vec::<PathBuf>::new());
            (error.changed, true)
        }
    }
}

#[test]
fn every_kind_of_change_is_detected_and_reverted() {
    let (_folder, root) = workspace();
    let at = |name: &str| root.join(name);
    type Attack<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let attacks: [Attack<'_>; 15] = [
        (".git/config", Box::new(|| fs::write(at(".git/config"), "[core]\nfsmonitor = x\n").unwrap())),
        // As long as before.
        (".git/config", Box::new(|| fs::write(at(".git/config"), "[cora]\n").unwrap())),
        (".git/config", Box::new(|| fs::remove_file(at(".git/config")).unwrap())),
        ("job.yaml", Box::new(|| fs::set_permissions(at("job.yaml"), fs::Permissions::from_mode(0o666)).unwrap())),
        (".git/hooks/post-commit", Box::new(|| fs::write(at(".git/hooks/post-commit"), "x").unwrap())),
        (".git/hooks/sub/x", Box::new(|| fs::write(at(".git/hooks/sub/x"), "y").unwrap())),
        (".git/hooks", Box::new(|| fs::remove_dir_all(at(".git/hooks")).unwrap())),
        (
            ".git/hooks",
            Box::new(|| {
                fs::rename(at(".git/hooks"), at(".git/aside")).unwrap();
                symlink("aside", at(".git/hooks")).unwrap();
                fs::remove_dir_all(at(".git/aside")).unwrap();
            }),
        ),
        (".git/hooks", Box::new(|| fs::set_permissions(at(".git/hooks"), fs::Permissions::from_mode(0o0)).unwrap())),
        (
            "later/deep.yaml",
            Box::new(|| {
                // Only the file is protected; the folder stays.
                fs::create_dir(at("later")).unwrap();
                fs::write(at("later/deep.yaml"), "x").unwrap();
            }),
        ),
        (
            "later/deep.yaml",
            Box::new(|| {
                symlink(".git", at("later")).unwrap();
            }),
        ),
        (".git/commondir", Box::new(|| fs::create_dir_all(at(".git/commondir/a/b")).unwrap())),
        (
            "link.yaml",
            Box::new(|| {
                fs::remove_file(at("link.yaml")).unwrap();
                symlink("other.yaml", at("link.yaml")).unwrap();
            }),
        ),
        (
            "link.yaml",
            Box::new(|| {
                fs::remove_file(at("link.yaml")).unwrap();
                fs::create_dir(at("link.yaml")).unwrap();
            }),
        ),
        (
            "job.yaml",
            Box::new(|| {
                fs::remove_file(at("job.yaml")).unwrap();
                fs::create_dir_all(at("job.yaml/a")).unwrap();
            }),
        ),
    ];
    for (number, (name, attack)) in attacks.iter().enumerate() {
        if number == 9 {
            let mut guard = guard(&root);
            attack();
            assert_eq!(guard.check(false).unwrap_err().changed, [at(name)]);
            assert!(!at(name).exists());
            fs::remove_dir(at("later")).unwrap();
            continue;
        }
        let is_removal = [2, 6].contains(&number);
        assert_eq!(check_attack(&root, attack), (vec![at(name)], !is_removal), "attack {number}");
    }
}

#[test]
fn nothing_outside_is_touched_through_a_link() {
    let (folder, root) = workspace();
    let outside = folder.path().join("outside");
    fs::create_dir_all(outside.join("hooks")).unwrap();
    fs::write(outside.join("hooks/theirs"), "x").unwrap();
    fs::write(outside.join("config"), "theirs\n").unwrap();
    let before = contents(&outside);
    let mut guard = guard(&root);
    fs::remove_dir_all(root.join(".git")).unwrap();
    symlink(&outside, root.join(".git")).unwrap();
    let error = guard.check(false).unwrap_err();
    assert_eq!(error.changed, [root.join(".git/hooks"), root.join(".git/config")]);
    assert_eq!(contents(&outside), before);
    assert_eq!(fs::read_to_string(root.join(".git/config")).unwrap(), "[core]\n");
    assert!(!fs::symlink_metadata(root.join(".git")).unwrap().is_symlink());
}

#[test]
fn a_protected_file_in_an_excluded_folder_stays_protected() {
    let (_folder, root) = workspace();
    let mut policy = policy(&root);
    policy.allowed_changes.unprotected = vec![root.join(".git")];
    let mut guard = TamperGuard::new(&policy, &policy.protected);
    fs::write(root.join(".git/config"), "[core]\nfsmonitor = x\n").unwrap();
    assert_eq!(guard.check(false).unwrap_err().changed, [root.join(".git/config")]);
    assert_eq!(fs::read_to_string(root.join(".git/config")).unwrap(), "[core]\n");
}

#[test]
fn a_file_rewritten_with_the_same_content_is_unchanged() {
    let (_folder, root) = workspace();
    let mut guard = guard(&root);
    fs::write(root.join(".git/config"), "[core]\n").unwrap();
    fs::write(root.join("other"), "x").unwrap();
    fs::write(root.join(".git/index"), "x").unwrap();
    assert_eq!(guard.check(false), Ok(None));
}

#[test]
fn changes_between_commands_are_accepted() {
    let (_folder, root) = workspace();
    let mut guard = guard(&root);
    fs::write(root.join("job.yaml"), "model: c/d\n").unwrap();
    fs::create_dir(root.join("later")).unwrap();
    fs::write(root.join("later/deep.yaml"), "x").unwrap();
    guard.rebaseline().unwrap();
    assert_eq!(guard.check(false), Ok(None));
    fs::write(root.join("job.yaml"), "model: e/f\n").unwrap();
    assert!(guard.check(false).is_err());
    assert_eq!(fs::read_to_string(root.join("job.yaml")).unwrap(), "model: c/d\n");
}

#[test]
fn a_change_of_a_large_file_is_detected_but_not_reverted() {
    let (_folder, root) = workspace();
    fs::write(root.join("job.yaml"), vec![b'#'; 2 << 20]).unwrap();
    let mut guard = guard(&root);
    fs::write(root.join("job.yaml"), "x").unwrap();
    let error = guard.check(false).unwrap_err();
    assert_eq!(error.not_restored, [root.join("job.yaml")]);
    assert!(error.to_string().contains("could not be restored"), "{error}");
}

#[test]
fn the_record_of_an_ended_run_may_change_only_if_the_run_is_resumed() {
    let (_folder, root) = workspace();
    let (runs, record) = (root.join("runs"), root.join("runs/job/20260101-000000-aaaaaa"));
    fs::create_dir_all(record.join("subagents")).unwrap();
    for name in ["result.json", "events.jsonl", "subagents/a-1.md"] {
        fs::write(record.join(name), "x").unwrap();
    }
    let own = runs.join("job/20260102-000000-aaaaaa");
    fs::create_dir_all(&own).unwrap();
    let mut guard = guard(&root).with_records(&policy(&root), &runs, &own, None);
    assert_eq!(guard.check(false), Ok(None));
    let lock = fs::File::open(&record).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for name in ["lease", ".tmp-legwork-abcdef", "events.jsonl", "subagents/a-1.md"] {
        fs::write(record.join(name), "more").unwrap();
    }
    fs::remove_file(record.join("result.json")).unwrap();
    fs::write(own.join("lease"), "now").unwrap();
    fs::write(own.join(".tmp-legwork-abcdef"), "half").unwrap();
    assert_eq!(guard.check(false), Ok(None), "the run was resumed");
    // Closing it may not be enough: a process that another test just started may hold it open for a moment.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
    assert!(guard.check(false).is_err(), "the run isn't resumed");
    guard.rebaseline().unwrap();
    assert_eq!(guard.check(false), Ok(None), "it was changed while no command ran");
    fs::write(record.join("events.jsonl"), "planted").unwrap();
    assert!(guard.check(false).is_err());
}

#[test]
fn nothing_is_added_to_the_record_of_a_run_that_was_killed_or_has_ended() {
    let (_folder, root) = workspace();
    let runs = root.join("runs");
    let [ended, killed, live] = ["ended", "killed", "live"].map(|name| runs.join("job").join(name));
    for record in [&ended, &killed, &live] {
        fs::create_dir_all(record).unwrap();
        fs::write(record.join("events.jsonl"), "x").unwrap();
    }
    fs::write(ended.join("result.json"), "{}").unwrap();
    let lock = fs::File::open(&live).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let own = runs.join("job/own");
    fs::create_dir_all(&own).unwrap();
    let is_continued = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let continued = Arc::clone(&is_continued);
    let has_ended = move |_: &std::os::fd::OwnedFd, _: &Path| continued.load(std::sync::atomic::Ordering::Relaxed);
    let verifier = RecordVerifier(Arc::new(|_, _| true), Arc::new(|| true), Arc::new(has_ended));
    let same_verifier = RecordVerifier(Arc::clone(&verifier.0), Arc::clone(&verifier.1), Arc::clone(&verifier.2));
    let mut guard = guard(&root).with_records(&policy(&root), &runs, &own, Some(verifier));
    assert_eq!(guard.check(false), Ok(None));
    fs::write(live.join("result.json"), "its own").unwrap();
    // `publish` may run at any time.
    fs::write(ended.join("published.json"), "{}").unwrap();
    assert_eq!(guard.check(false), Ok(None));
    // What steps before the agent left.
    fs::create_dir_all(killed.join("files/issues/new")).unwrap();
    fs::write(killed.join("files/issues/1.json"), "{}").unwrap();
    guard.rebaseline().unwrap();
    let mut guard = self::guard(&root).with_records(&policy(&root), &runs, &own, Some(same_verifier));
    assert_eq!(guard.check(false), Ok(None));
    for planted in ["files/2.json", "files/issues/2.json", "files/issues/new/3.json"].map(|name| killed.join(name)) {
        fs::write(&planted, "planted").unwrap();
        assert_eq!(guard.check(false).unwrap_err().changed, std::slice::from_ref(&planted));
        assert!(!planted.exists());
    }
    fs::write(killed.join("files/issues/1.json"), "changed").unwrap();
    assert_eq!(guard.check(false).unwrap_err().changed, [killed.join("files/issues")]);
    guard.rebaseline().unwrap();
    // As a command would write them.
    for planted in [killed.join("result.json"), ended.join("report2.html")] {
        fs::write(&planted, "planted").unwrap();
        let error = guard.check(false).unwrap_err();
        assert_eq!((error.changed.as_slice(), error.not_restored.as_slice()), (&[planted.clone()][..], &[][..]));
        assert!(!planted.exists());
    }
    fs::create_dir(killed.join("subagents")).unwrap();
    assert!(guard.check(false).is_err() && !killed.join("subagents").exists());
    // Another process has resumed the run, and ended it.
    for name in ["events.jsonl", "result.json"] {
        fs::write(killed.join(name), "more").unwrap();
    }
    is_continued.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(guard.check(false), Ok(None));
    is_continued.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(guard.check(false).is_err());
}

/// Git's note of a worktree, as `git worktree add` writes it.
fn write_note(root: &Path, name: &str, worktree: &str) -> PathBuf {
    let note = root.join(".git/worktrees").join(name);
    fs::create_dir_all(note.join("logs")).unwrap();
    fs::write(note.join("gitdir"), format!("{worktree}/.git\n")).unwrap();
    fs::write(note.join("commondir"), "../..\n").unwrap();
    fs::write(note.join("HEAD"), "ref: refs/heads/x\n").unwrap();
    note
}

#[test]
fn worktrees_of_rows_come_and_go_and_others_do_not() {
    let (_folder, root) = workspace();
    let own = |name: &str| format!("/somewhere/runs/.workspaces/job/map-rows/{name}");
    let mut policy = policy(&root);
    policy.allowed_changes.git_folders.insert(root.join(".git"));
    let paths = [root.join(".git")];
    let mut guard = TamperGuard::new(&policy, &paths);
    let a = write_note(&root, "a", &own("a"));
    assert_eq!(guard.check(false), Ok(None), "the first worktree of the repository");
    guard.rebaseline().unwrap();
    write_note(&root, "b", &own("b"));
    fs::create_dir(root.join(".git/worktrees/c")).unwrap();
    fs::write(root.join(".git/worktrees/c/locked"), "initializing").unwrap();
    fs::remove_dir_all(&a).unwrap();
    assert_eq!(guard.check(false), Ok(None));
    assert!(root.join(".git/worktrees/b").exists() && !a.exists(), "nothing is taken back");
    fs::remove_dir_all(root.join(".git/worktrees")).unwrap();
    assert_eq!(guard.check(false), Ok(None), "the last one takes the folder of notes with it");
    // A note that makes git read another configuration, or one of a worktree of the user's own.
    let user = write_note(&root, "user", "/home/user/worktree");
    write_note(&root, "b", &own("b"));
    let mut guard = TamperGuard::new(&policy, &paths);
    for attack in [
        ("b/config.worktree", "[core]\nfsmonitor = x\n"),
        ("b/commondir", "/elsewhere\n"),
        ("b/gitdir", "/elsewhere/.git\n"),
        ("b/hooks/x", "x"),
        ("b/info/attributes", "* filter=x\n"),
        ("user/HEAD", "x"),
    ] {
        let path = root.join(".git/worktrees").join(attack.0);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, attack.1).unwrap();
        assert!(guard.check(false) != Ok(None), "{attack:?}");
        fs::remove_dir_all(root.join(".git/worktrees/b")).unwrap_or_default();
        write_note(&root, "b", &own("b"));
        assert_eq!(guard.check(false), Ok(None), "{attack:?}");
    }
    fs::remove_dir_all(&user).unwrap();
    assert!(guard.check(false) != Ok(None) && user.join("gitdir").exists(), "it is restored");
}

#[test]
fn a_workspace_in_a_folder_that_commands_can_change_is_moved_back() {
    type Attack = fn(&Path);
    let attacks: [(&str, Attack); 4] = [
        ("replaced by a copy", |root| {
            let away = root.with_file_name("away");
            fs::rename(root, &away).unwrap();
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            fs::write(root.join(".git/config"), "[core]\n\tfsmonitor = touch x\n").unwrap();
            fs::write(away.join(".git/config"), "[core]\n\tfsmonitor = touch x\n").unwrap();
        }),
        ("replaced by a link to itself", |root| {
            fs::rename(root, root.with_file_name("away")).unwrap();
            symlink("away", root).unwrap();
        }),
        ("moved into its replacement", |root| {
            let away = root.with_file_name("away");
            fs::create_dir(&away).unwrap();
            fs::rename(root, away.join("in")).unwrap();
            fs::rename(&away, root).unwrap();
        }),
        ("moved to where nobody may go", |root| {
            let away = root.with_file_name("away");
            fs::create_dir(&away).unwrap();
            fs::rename(root, away.join("in")).unwrap();
            fs::set_permissions(away.join("in"), fs::Permissions::from_mode(0o000)).unwrap();
            fs::set_permissions(&away, fs::Permissions::from_mode(0o000)).unwrap();
        }),
    ];
    for restores_after_kill in [false, true] {
        for (name, attack) in attacks {
            let (outer, root) = workspace();
            let outer = outer.path().canonicalize().unwrap();
            let policy = SandboxPolicy { writable: vec![outer.clone()], ..policy(&root) };
            let mut guard = TamperGuard::new(&policy, &policy.protected);
            assert_eq!(guard.check(false), Ok(None));
            let before = contents(&root);
            attack(&root);
            let snapshot = guard.snapshot();
            let mut checking = if restores_after_kill { TamperGuard::from_snapshot(&snapshot).unwrap() } else { guard };
            let error = checking.check(false).unwrap_err();
            assert_eq!(error.not_restored, Vec::<PathBuf>::new(), "{name}");
            assert!(error.changed.contains(&root), "{name}: {error}");
            assert_eq!(contents(&root), before, "{name}");
            assert_eq!(checking.check(false), Ok(None), "{name}");
            let away = outer.join("away");
            if away.exists() {
                fs::set_permissions(&away, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
    }
}

#[test]
fn records_are_not_pruned_while_they_are_watched() {
    let (_outer, root) = workspace();
    fs::create_dir_all(root.join("runs/job/1")).unwrap();
    let pruning = fs::File::open(root.join("runs")).unwrap();
    let take = |lock| rustix::fs::flock(&pruning, lock);
    let guard = guard(&root).with_records(&policy(&root), &root.join("runs"), &root.join("runs/job/1"), None);
    assert!(take(rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err());
    drop(guard);
    take(rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
}
