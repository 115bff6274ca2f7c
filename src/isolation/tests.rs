use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;
use crate::git::program::git_program;

/// Runs git without the repository's hooks: only those that other programs start leave a mark.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.hooksPath=/dev/null"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn out(folder: &tempfile::TempDir) -> OpenRoot {
    root_of(folder.path())
}

fn root_of(path: &Path) -> OpenRoot {
    OpenRoot::open(path).unwrap()
}

/// The files of a folder without `.git`.
fn contents(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".git") {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            match path.symlink_metadata().unwrap() {
                data if data.is_dir() => folders.push(path),
                data if data.is_symlink() => {
                    drop(found.insert(name, format!("-> {}", path.read_link().unwrap().display())));
                }
                _ => drop(found.insert(name, fs::read_to_string(path).unwrap())),
            }
        }
    }
    found
}

/// A repository with a commit and uncommitted changes of every kind.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    git(root, &["init", "-q"]);
    for (name, text) in [
        ("kept", "1"),
        ("changed", "1"),
        ("deleted", "1"),
        ("staged", "1"),
        ("sub/inner", "1"),
        ("assumed", "1"),
        ("skipped", "1"),
        (".gitignore", "ignored\n"),
    ] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", "first"]);
    fs::write(root.join("changed"), "2").unwrap();
    fs::remove_file(root.join("deleted")).unwrap();
    fs::write(root.join("staged"), "2").unwrap();
    git(root, &["add", "staged"]);
    git(root, &["update-index", "--assume-unchanged", "assumed"]);
    git(root, &["update-index", "--skip-worktree", "skipped"]);
    fs::write(root.join("assumed"), "2").unwrap();
    fs::write(root.join("skipped"), "2").unwrap();
    fs::write(root.join("new file"), "new").unwrap();
    fs::write(root.join("ignored"), "x").unwrap();
    fs::create_dir(root.join("runs")).unwrap();
    fs::write(root.join("runs/record"), "x").unwrap();
    // Git doesn't always tell a hook where the repository is.
    let script = format!("#!/bin/sh\ntouch '{}'\n", root.canonicalize().unwrap().join("hook-ran").display());
    for hook in ["post-checkout", "post-index-change"] {
        let path = root.join(".git/hooks").join(hook);
        fs::write(&path, &script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn expected() -> BTreeMap<String, String> {
    let files = [
        ("kept", "1"),
        ("changed", "2"),
        ("staged", "2"),
        ("sub/inner", "1"),
        ("assumed", "2"),
        ("skipped", "2"),
        (".gitignore", "ignored\n"),
        ("new file", "new"),
    ];
    files.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
}

#[test]
fn a_worktree_begins_with_the_uncommitted_changes_and_leaves_the_repository_alone() {
    let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let state = || {
        let index = fs::read(root.join(".git/index")).unwrap();
        (
            index,
            git(&root, &["status", "--porcelain"]),
            git(&root, &["for-each-ref"]),
            git(&root, &["log", "--all", "--format=%H"]),
        )
    };
    let before = state();
    let excluded = [root.join("runs")];
    let snapshot = Snapshot::take(
        Isolation::Worktree,
        &root_of(&root),
        &out(&elsewhere),
        elsewhere.path(),
        &excluded,
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    // Later changes aren't part of it.
    fs::write(root.join("kept"), "later").unwrap();
    let targets = [elsewhere.path().join("a"), elsewhere.path().join("b")];
    for target in &targets {
        assert_eq!(snapshot.make_workspace(&out(&elsewhere), target, Some(&git_program())).unwrap(), *target);
        assert_eq!(contents(target), expected());
        let status = git(target, &["status", "--porcelain"]);
        let expected = [" M assumed", " M changed", " D deleted", " M skipped", " M staged", "?? \"new file\""];
        assert_eq!(status.lines().collect::<Vec<_>>(), expected);
    }
    fs::write(root.join("kept"), "1").unwrap();
    assert_eq!(git(&root, &["worktree", "list"]).lines().count(), 3);
    fs::write(targets[0].join("kept"), "mine").unwrap();
    assert_eq!(contents(&targets[1]), expected(), "they are separate");
    // The folder of one is gone, as after a kill in the middle of its removal.
    fs::remove_dir_all(&targets[1]).unwrap();
    assert_eq!(
        snapshot.make_workspace(&out(&elsewhere), &targets[0], Some(&git_program())).unwrap(),
        targets[0],
        "what is left of an earlier try is replaced"
    );
    assert_eq!(contents(&targets[0]), expected());
    for target in &targets {
        snapshot.remove_workspace(&out(&elsewhere), target).unwrap();
    }
    assert_eq!(git(&root, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(state(), before);
    assert!(snapshot.is_available(Some(&git_program())) && !root.join("hook-ran").exists());
    git(&root, &["-c", "core.hooksPath=.git/hooks", "checkout", "--quiet", "--detach"]);
    assert!(root.join("hook-ran").exists(), "the hook works");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing is left");
}

/// Git compares whole seconds, and reads a file again that isn't older than the index.
#[test]
fn a_change_in_the_second_in_which_the_index_was_written_is_not_lost() {
    let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    fs::write(root.join("kept"), "1").unwrap();
    git(&root, &["add", "kept"]);
    fs::write(root.join("kept"), "2").unwrap();
    let same_second = fs::metadata(root.join("kept")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(root.join(".git/index")).unwrap().set_modified(same_second).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let snapshot = Snapshot::take(
        Isolation::Worktree,
        &root_of(&root),
        &out(&elsewhere),
        elsewhere.path(),
        &[],
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    snapshot.make_workspace(&out(&elsewhere), &elsewhere.path().join("a"), Some(&git_program())).unwrap();
    assert_eq!(fs::read_to_string(elsewhere.path().join("a/kept")).unwrap(), "2");
    snapshot.remove_workspace(&out(&elsewhere), &elsewhere.path().join("a")).unwrap();
}

#[test]
fn a_workspace_below_the_root_of_a_repository_stays_there() {
    let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let snapshot = Snapshot::take(
        Isolation::Worktree,
        &root_of(&root.join("sub")),
        &out(&elsewhere),
        elsewhere.path(),
        &[],
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    let target = elsewhere.path().join("a");
    assert_eq!(snapshot.make_workspace(&out(&elsewhere), &target, Some(&git_program())).unwrap(), target.join("sub"));
    assert_eq!(fs::read_to_string(target.join("changed")).unwrap(), "2");
    snapshot.remove_workspace(&out(&elsewhere), &target).unwrap();
}

#[test]
fn a_copy_has_everything_but_the_excluded_folders() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = folder.path();
    fs::create_dir_all(root.join("locked/inner")).unwrap();
    fs::create_dir(root.join("runs")).unwrap();
    fs::write(root.join("runs/record"), "x").unwrap();
    fs::write(root.join("locked/inner/file"), "text").unwrap();
    std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    fs::set_permissions(root.join("locked/inner/file"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(root.join("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    let snapshot = Snapshot::take(
        Isolation::Copy,
        &root_of(root),
        &out(&elsewhere),
        elsewhere.path(),
        &[root.join("runs")],
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    let target = elsewhere.path().join("a");
    snapshot.make_workspace(&out(&elsewhere), &target, Some(&git_program())).unwrap();
    let expected = [("link", "-> ../outside"), ("locked/inner/file", "text")];
    assert_eq!(contents(&target), expected.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    let mode = |name: &str| target.join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("locked/inner/file"), mode("locked")), (0o755, 0o555));
    snapshot.remove_workspace(&out(&elsewhere), &target).unwrap();
    snapshot.discard(&out(&elsewhere)).unwrap();
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

/// Git would commit to the user's branch there.
#[test]
fn a_copy_of_a_worktree_is_no_repository() {
    let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    let worktree = elsewhere.path().join("worktree");
    git(folder.path(), &["worktree", "add", "--quiet", worktree.to_str().unwrap()]);
    let snapshot = Snapshot::take(
        Isolation::Copy,
        &root_of(&worktree),
        &out(&elsewhere),
        elsewhere.path(),
        &[],
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    let target = elsewhere.path().join("a");
    snapshot.make_workspace(&out(&elsewhere), &target, Some(&git_program())).unwrap();
    assert!(worktree.join(".git").is_file() && target.join("kept").is_file());
    assert!(!target.join(".git").exists());
}

#[test]
fn a_workspace_that_can_have_no_worktree_is_an_error() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let take = || {
        Snapshot::take(
            Isolation::Worktree,
            &root_of(folder.path()),
            &out(&elsewhere),
            elsewhere.path(),
            &[],
            Some(&git_program()),
        )
        .unwrap_err()
        .to_string()
    };
    assert!(take().contains("isn't in a git repository"));
    assert_eq!(Isolation::for_workspace(folder.path(), Some(&git_program())), Isolation::Copy);
    git(folder.path(), &["init", "-q"]);
    assert!(take().contains("has no commit yet"));
}

/// The names of git's notes of worktrees.
fn notes(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(".git/worktrees")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn many_worktrees_can_be_made_and_removed_at_the_same_time() {
    let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let snapshot = Snapshot::take(
        Isolation::Worktree,
        &root_of(&root),
        &out(&elsewhere),
        elsewhere.path(),
        &[],
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    std::thread::scope(|scope| {
        for worker in 0..12 {
            let target = elsewhere.path().join(format!("w{worker}"));
            let (snapshot, elsewhere) = (&snapshot, &elsewhere);
            scope.spawn(move || {
                for _ in 0..4 {
                    snapshot.make_workspace(&out(elsewhere), &target, Some(&git_program())).unwrap();
                    snapshot.remove_workspace(&out(elsewhere), &target).unwrap();
                }
            });
        }
    });
    assert_eq!(notes(&root), [""; 0]);
}

#[test]
fn what_a_killed_git_has_left_is_not_in_the_way() {
    let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let snapshot = Snapshot::take(
        Isolation::Worktree,
        &root_of(&root),
        &out(&elsewhere),
        elsewhere.path(),
        &[],
        Some(&git_program()),
    )
    .unwrap()
    .unwrap();
    let workspaces = elsewhere.path().join(WORKSPACES_FOLDER);
    let [torn, gone, made] = ["torn", "gone", "made"].map(|name| workspaces.join(name));
    // Git writes `gitdir` before `commondir`, and no git works in the repository while that is empty.
    let note = root.join(".git/worktrees/torn");
    fs::create_dir_all(&note).unwrap();
    fs::write(note.join("gitdir"), format!("{}\n", torn.join(".git").display())).unwrap();
    fs::write(note.join("commondir"), "").unwrap();
    snapshot.make_workspace(&out(&elsewhere), &made, Some(&git_program())).unwrap();
    assert_eq!(notes(&root), ["made"]);
    // The folder of a worktree is gone, and git still lists it.
    snapshot.make_workspace(&out(&elsewhere), &gone, Some(&git_program())).unwrap();
    fs::remove_dir_all(&gone).unwrap();
    git(&root, &["worktree", "add", "-q", "--detach", &elsewhere.path().join("foreign").to_string_lossy()]);
    fs::remove_dir_all(elsewhere.path().join("foreign")).unwrap();
    snapshot.forget_missing(&out(&elsewhere), &workspaces).unwrap();
    let mut left = notes(&root);
    left.sort();
    assert_eq!(left, ["foreign", "made"], "only ours are removed");
    snapshot.remove_workspace(&out(&elsewhere), &made).unwrap();
    assert_eq!(notes(&root), ["foreign"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_copy_holds_nothing_from_outside_while_folders_and_links_are_swapped() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    for made in [root.join("d"), outside.clone()] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(outside.join("file"), "secret").unwrap();
    fs::write(root.join("d/file"), "harmless").unwrap();
    fs::write(root.join("f"), "harmless").unwrap();
    std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
    std::os::unix::fs::symlink("../outside/file", root.join("link-to-file")).unwrap();
    let (opened, out) = (root_of(&root), out(&elsewhere));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (one, other) in [("d", "link"), ("f", "link-to-file")] {
                    let _ = renameat_with(CWD, root.join(one), CWD, root.join(other), RenameFlags::EXCHANGE);
                }
            }
        });
        for number in 0..300 {
            let target = elsewhere.path().join("start");
            let Ok(Some(snapshot)) = Snapshot::take(Isolation::Copy, &opened, &out, &target, &[], Some(&git_program()))
            else {
                continue;
            };
            let Snapshot::Copy { folder } = &snapshot else { continue };
            let found = contents(folder);
            assert!(found.values().all(|text| text != "secret"), "try {number}: {found:?}");
            snapshot.discard(&out).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nothing_is_made_or_removed_through_a_link_in_place_of_a_folder_above() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("file"), "x").unwrap();
    let out = out(&elsewhere);
    let target = elsewhere.path().join("start");
    let snapshot = Snapshot::take(Isolation::Copy, &root_of(folder.path()), &out, &target, &[], Some(&git_program()))
        .unwrap()
        .unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("a")).unwrap();
    std::os::unix::fs::symlink(outside.path(), elsewhere.path().join("rows")).unwrap();
    let workspace = elsewhere.path().join("rows/a");
    assert!(
        snapshot.make_workspace(&out, &workspace, Some(&git_program())).is_err()
            && snapshot.remove_workspace(&out, &workspace).is_err()
    );
    assert!(outside.path().join("a").is_dir() && contents(outside.path()).is_empty());
}

#[test]
fn git_gets_no_note_of_a_worktree_behind_a_link() {
    let outside = tempfile::tempdir().unwrap();
    let is_refused = |swap: &dyn Fn(&Path)| {
        let (folder, elsewhere) = (repository(), tempfile::tempdir().unwrap());
        let root = folder.path().canonicalize().unwrap();
        let out = out(&elsewhere);
        let snapshot =
            Snapshot::take(Isolation::Worktree, &root_of(&root), &out, elsewhere.path(), &[], Some(&git_program()));
        let snapshot = snapshot.unwrap().unwrap();
        swap(&root);
        snapshot.make_workspace(&out, &elsewhere.path().join("a"), Some(&git_program())).is_err()
    };
    let link = |to: &Path, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
    // What a command can do while the run lasts.
    assert!(is_refused(&|root| link(outside.path(), root.join(".git/worktrees"))));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let other = repository();
    let git_dir = other.path().join(".git");
    assert!(is_refused(&|root| {
        fs::rename(root.join(".git"), root.join("moved")).unwrap();
        link(&git_dir, root.join(".git"));
    }));
    assert!(!git_dir.join("worktrees").exists(), "another repository");
}

#[cfg(target_os = "linux")]
#[test]
fn git_gets_no_note_outside_while_its_folder_is_swapped_with_a_link() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let (folder, elsewhere, outside) = (repository(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let out = out(&elsewhere);
    let snapshot =
        Snapshot::take(Isolation::Worktree, &root_of(&root), &out, elsewhere.path(), &[], Some(&git_program()));
    let snapshot = snapshot.unwrap().unwrap();
    let (notes, link) = (root.join(".git/worktrees"), root.join("link"));
    fs::create_dir(&notes).unwrap();
    // A file keeps the folder from being removed when it is empty.
    fs::write(notes.join("kept"), "").unwrap();
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let (done, swaps) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &notes, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let target = elsewhere.path().join("a");
        for _ in 0..10 {
            let _ = snapshot.make_workspace(&out, &target, Some(&git_program()));
            let _ = snapshot.remove_workspace(&out, &target);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(swaps.load(Ordering::Relaxed) > 0);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
