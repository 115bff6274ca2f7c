use std::collections::HashMap;
use std::process::Command;

use super::*;

/// Files in memory.
#[derive(Debug, Default)]
struct MemoryFiles {
    files: HashMap<PathBuf, FileState>,
    known: Vec<Vec<u8>>,
}

impl FileSource for MemoryFiles {
    fn current(&self, path: &Path) -> Result<Option<FileState>, String> {
        Ok(self.files.get(path).cloned())
    }

    fn content_of(&self, object: &str) -> Option<Vec<u8>> {
        self.known.iter().find(|content| is_object(Some(object), content)).cloned()
    }
}

fn regular(text: &str) -> FileState {
    FileState { content: text.as_bytes().to_vec(), kind: FileKind::Regular }
}

fn session(files: &[(&str, &str)], known: &[&str]) -> MergeSession<MemoryFiles> {
    let files = files.iter().map(|(path, text)| (PathBuf::from(path), regular(text))).collect();
    MergeSession::new(MemoryFiles { files, known: known.iter().map(|text| text.as_bytes().to_vec()).collect() })
}

/// The patch that git makes of a change.
fn patch(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(folder.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q"]);
    let write = |text: Option<&str>| match text {
        Some(text) => {
            std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(path), text).unwrap();
        }
        None => drop(std::fs::remove_file(folder.path().join(path))),
    };
    write(before);
    git(&["add", "-A"]);
    write(after);
    git(&["add", "-N", "."]);
    git(&["diff", "--full-index", "--no-color"])
}

fn lines(numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|number| format!("{number}\n")).collect()
}

fn states(session: &MergeSession<MemoryFiles>) -> Vec<(String, Option<String>)> {
    let text = |state: &FileState| String::from_utf8(state.content.clone()).unwrap();
    session.changed_files().map(|(path, state)| (path.to_string_lossy().into_owned(), state.map(text))).collect()
}

#[test]
fn patches_of_several_runs_are_merged_in_order() {
    let base = lines(1..=30);
    let (first, second) = (base.replace("\n3\n", "\nthree\n"), base.replace("\n20\n", "\ntwenty\n"));
    let mut session = session(&[("a/file", &base), ("gone", "x\n")], &[]);
    let merge = |session: &mut MergeSession<MemoryFiles>, label: &str, patch: &str| session.merge_patch(label, patch);
    merge(&mut session, "one", &patch("a/file", Some(&base), Some(&first))).unwrap();
    merge(&mut session, "two", &patch("a/file", Some(&base), Some(&second))).unwrap();
    merge(&mut session, "two", &patch("new file", None, Some("text"))).unwrap();
    merge(&mut session, "two", &patch("gone", Some("x\n"), None)).unwrap();
    let both = first.replace("\n20\n", "\ntwenty\n");
    let expected = [("a/file", Some(both.as_str())), ("gone", None), ("new file", Some("text"))];
    assert_eq!(states(&session), expected.map(|(path, text)| (path.to_owned(), text.map(str::to_owned))));
    let again = states(&session);
    merge(&mut session, "again", &patch("a/file", Some(&base), Some(&first))).unwrap();
    assert_eq!(states(&session), again, "what is applied already changes nothing");
}

#[test]
fn a_patch_with_a_conflict_is_not_merged_at_all() {
    let base = lines(1..=9);
    let mut session = session(&[("file", &base)], &[]);
    session.merge_patch("one", &patch("file", Some(&base), Some(&base.replace('5', "five")))).unwrap();
    let conflicting = patch("new", None, Some("x\n")) + &patch("file", Some(&base), Some(&base.replace('5', "V")));
    let conflict =
        FileConflict { path: "file".into(), why: "both changed it at line 5".into(), earlier: Some("one".into()) };
    assert_eq!(session.merge_patch("two", &conflicting), Err(vec![conflict]));
    assert_eq!(states(&session).len(), 1);
    for (patch, why) in [
        (
            patch("file", Some("other\n"), Some("x\n")),
            "it was changed since the run started, and its content at that time isn't known",
        ),
        (patch("file", None, Some("x\n")), "it exists already, with another content"),
        (patch("file", Some("other\n"), None), "it was changed, and the run deleted it"),
        (patch("missing", Some("a\n"), Some("b\n")), "it was deleted, and the run changed it"),
    ] {
        assert_eq!(session.merge_patch("x", &patch).unwrap_err()[0].why, why);
    }
}

#[test]
fn a_file_that_the_user_changed_is_merged_if_the_base_is_known() {
    let base = lines(1..=20);
    let mine = base.replace("\n2\n", "\nmine\n");
    let change = patch("file", Some(&base), Some(&base.replace("\n15\n", "\ntheirs\n")));
    assert!(session(&[("file", &mine)], &[]).merge_patch("one", &change).is_err());
    let mut session = session(&[("file", &mine)], &[&base]);
    session.merge_patch("one", &change).unwrap();
    assert_eq!(states(&session)[0].1.as_deref(), Some(&*mine.replace("\n15\n", "\ntheirs\n")));
}

#[test]
fn hostile_patches_are_refused() {
    let good = patch("file", Some("1\n2\n"), Some("1\ntwo\n"));
    for (bad, why) in [
        (good.replace("a/file", "a/../x").replace("b/file", "b/../x"), "the path leads out of the workspace"),
        (good.replace("a/file", "a//etc/x").replace("b/file", "b//etc/x"), "the path leads out of the workspace"),
        (
            good.replace("a/file", "a/.GIT/config").replace("b/file", "b/.GIT/config"),
            "the path leads into a git folder",
        ),
        (good.replace("+two\n", ""), "the patch is cut off"),
        (good.replace("@@ -1,2 +1,2 @@", "@@ -1,99999999999999999999 +1 @@"), "the hunk can't be read"),
        ("hello\n".to_owned(), "it isn't a patch of legwork"),
    ] {
        let mut session = session(&[("file", "1\n2\n")], &[]);
        let found = session.merge_patch("x", &bad).unwrap_err();
        assert!(found[0].why.contains(why), "{found:?} {bad}");
    }
    let forged = good.replace("+two", "+three");
    let mut files = session(&[("file", "1\n2\n")], &[]);
    assert_eq!(files.merge_patch("x", &forged).unwrap_err()[0].why, "the patch doesn't give the content that it names");
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/tmp", folder.path().join("link")).unwrap();
    let files = TargetFiles::new(folder.path()).unwrap();
    assert_eq!(files.write(Path::new("link/x"), Some(&regular("x"))).unwrap_err().to_string(), "`link` isn't a folder");
    assert_eq!(files.current(Path::new("link/x")), Err("`link` isn't a folder".to_owned()));
}

#[test]
fn files_are_written_with_their_kind_and_uncommitted_ones_are_found() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let git =
        |arguments: &[&str]| assert!(Command::new("git").args(arguments).current_dir(root).status().unwrap().success());
    git(&["init", "-q"]);
    std::fs::create_dir(root.join("sub")).unwrap();
    for name in ["clean", "dirty", "sub/dirty"] {
        std::fs::write(root.join(name), "1\n").unwrap();
    }
    git(&["add", "-A"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "x"]);
    std::fs::write(root.join("dirty"), "2\n").unwrap();
    std::fs::write(root.join("sub/dirty"), "2\n").unwrap();
    std::fs::write(root.join("new"), "2\n").unwrap();
    let uncommitted =
        |folder: &Path, names: &[&str]| TargetFiles::new(folder).unwrap().uncommitted(names.iter().map(Path::new));
    assert_eq!(uncommitted(root, &["clean", "dirty", "new", "missing"]), ["dirty", "new"].map(PathBuf::from).into());
    assert_eq!(uncommitted(&root.join("sub"), &["dirty"]), ["dirty"].map(PathBuf::from).into());

    let files = TargetFiles::new(root).unwrap();
    let script = FileState { content: b"#!/bin/sh\n".to_vec(), kind: FileKind::Executable };
    let link = FileState { content: b"clean".to_vec(), kind: FileKind::Link };
    for (path, state) in [("deep/er/script", &script), ("link", &link), ("clean", &script)] {
        files.write(Path::new(path), Some(state)).unwrap();
        assert_eq!(files.current(Path::new(path)), Ok(Some(state.clone())));
    }
    assert_eq!(root.join("clean").metadata().unwrap().permissions().mode() & 0o111, 0o111);
    files.write(Path::new("deep/er/script"), None).unwrap();
    assert!(!root.join("deep").exists() && root.join("sub").exists());
}
