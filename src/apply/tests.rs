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

    fn content_of(&self, _: &Path, object: &str) -> Option<Vec<u8>> {
        self.known.iter().find(|content| is_object(Some(object), content)).cloned()
    }

    fn blocker(&self, path: &Path) -> Option<Blocker> {
        let below: Vec<PathBuf> =
            self.files.keys().filter(|file| file.starts_with(path) && *file != path).cloned().collect();
        let is_file_above = path.ancestors().skip(1).any(|above| self.files.contains_key(above));
        match below.is_empty() {
            true => is_file_above.then_some(Blocker::FileAbove),
            false => Some(Blocker::Folder(below)),
        }
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
    // For a file that is gone, this would make the index forget it.
    if after.is_some() {
        git(&["add", "-N", "."]);
    }
    git(&["diff", "--full-index", "--no-color"])
}

/// The patch that a run makes of a binary file.
fn binary_patch(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> String {
    let name = |content: Option<&[u8]>| content.map_or("0".repeat(40), |content| hex(&object_id(content, false)));
    let (header, mode) = match (before, after) {
        (None, _) => ("new file mode 100644\n", ""),
        (_, None) => ("deleted file mode 100644\n", ""),
        _ => ("", " 100644"),
    };
    let content = crate::git::binary_patch::encode(after.unwrap_or_default());
    format!("diff --git a/{path} b/{path}\n{header}index {}..{}{mode}\n{content}", name(before), name(after))
}

#[test]
fn binary_files_are_merged_whole_or_not_at_all() {
    let (old, new, other) = ("\0one\r\n", "\0two", "\0one\n");
    let bytes = |text: Option<&'static str>| text.map(str::as_bytes);
    for (before, after, found, expected) in [
        (Some(old), Some(new), Some(old), Ok(Some(new))),
        (Some(old), Some(new), Some(new), Ok(None)),
        (Some(old), Some(new), Some(other), Err("it is a binary file, and was changed since the run started")),
        (Some(old), Some(new), None, Err("it was deleted, and the run changed it")),
        (None, Some(new), None, Ok(Some(new))),
        (None, Some(new), Some(old), Err("it exists already, with another content")),
        (Some(old), None, Some(old), Ok(None)),
        // Other line ends are another content.
        (Some(old), None, Some(other), Err("it was changed, and the run deleted it")),
    ] {
        let files: Vec<(&str, &str)> = found.iter().map(|text| ("image", *text)).collect();
        let mut session = session(&files, &[old]);
        match (session.merge_patch("run", &binary_patch("image", bytes(before), bytes(after))), expected) {
            (Ok(_), Ok(expected)) => {
                let state = states(&session).pop().and_then(|(_, text)| text);
                assert_eq!(state.as_deref(), expected);
            }
            (Err(conflicts), Err(why)) => assert_eq!(conflicts[0].why, why),
            (merged, _) => panic!("{before:?} {after:?} {found:?}: {merged:?}"),
        }
    }
}

#[test]
fn a_broken_section_of_a_binary_file_is_refused() {
    let good = binary_patch("image", None, Some(b"\0"));
    let deleted = binary_patch("image", Some(b"\0"), None);
    let text = "@@ -0,0 +1 @@\n+a\n";
    fn header_of(patch: &str) -> &str {
        patch.split_once("GIT").unwrap().0
    }
    for (patch, why) in [
        (good.replace("literal 1", "literal 2"), "can't be unpacked"),
        (good.replace("literal 1", "literal 99999999999"), "too large together"),
        (good.replace("literal 1", "delta 1"), "isn't there whole"),
        (good.trim_end().to_owned() + "\n", "cut off"),
        (good.replace("100644", "120000"), "a link isn't a binary file"),
        (good.replace("index ", "# "), "have no names"),
        (good.clone() + text, "text and binary"),
        (good.replace("GIT", &format!("{text}GIT")), "text and binary"),
        (header_of(&deleted).to_owned() + good.strip_prefix(header_of(&good)).unwrap(), "has a content"),
        (
            good.replace("index 0", "index 1").replace(&hex(&object_id(b"\0", false)), &"1".repeat(40)),
            "doesn't give the content",
        ),
    ] {
        let conflicts = session(&[], &[]).merge_patch("run", &patch).unwrap_err();
        assert!(conflicts[0].path.as_os_str().is_empty() && conflicts[0].why.contains(why), "{why}: {conflicts:?}");
    }
    // Many that are large once they are unpacked.
    let zeros = vec![0; 1 << 20];
    let many: String = (0..33).map(|number| binary_patch(&format!("f{number}"), None, Some(&zeros))).collect();
    let conflicts = session(&[], &[]).merge_patch("run", &many).unwrap_err();
    assert!(conflicts[0].why.contains("too large together"), "{conflicts:?}");
}

fn lines(numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|number| format!("{number}\n")).collect()
}

fn states(session: &MergeSession<MemoryFiles>) -> Vec<(String, Option<String>)> {
    let text = |state: &FileState| String::from_utf8(state.content.clone()).unwrap();
    session.changed_files().map(|(path, _, state)| (path.to_string_lossy().into_owned(), state.map(text))).collect()
}

use crate::git::program::git_program;

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
fn the_size_of_a_session_counts_each_file_once() {
    let base = lines(1..=30);
    let mut session = session(&[("file", &base)], &[]);
    for line in 2..30 {
        let changed = base.replace(&format!("\n{line}\n"), &format!("\n{line} x\n"));
        let _ = session.merge_patch("row", &patch("file", Some(&base), Some(&changed)));
    }
    session.merge_patch("row", &patch("new", None, Some("12345"))).unwrap();
    let held = states(&session).iter().filter_map(|(_, text)| text.as_ref()).map(String::len).sum::<usize>();
    assert_eq!(session.bytes, base.len() + held);
    session.merge_patch("row", &patch("new", Some("12345"), None)).unwrap();
    assert_eq!(session.bytes, base.len() + held - 5);
}

#[test]
fn a_patch_with_a_conflict_is_not_merged_at_all() {
    let base = lines(1..=9);
    let mut session = session(&[("file", &base)], &[]);
    session.merge_patch("one", &patch("file", Some(&base), Some(&base.replace('5', "five")))).unwrap();
    let conflicting = patch("new", None, Some("x\n")) + &patch("file", Some(&base), Some(&base.replace('5', "V")));
    let conflict = FileConflict {
        path: "file".into(),
        why: "both changed it at line 5".into(),
        lines: vec![5],
        earlier: vec!["one".into()],
    };
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
    let defect = files.merge_patch("x", &forged).unwrap_err().remove(0);
    let why = "`file`: the patch doesn't give the content that it names";
    assert_eq!((defect.path, defect.why.as_str()), (PathBuf::new(), why));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/tmp", folder.path().join("link")).unwrap();
    let files = TargetFiles::new(folder.path(), Some(git_program())).unwrap();
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
    let committed = TargetFiles::new(root, Some(git_program())).unwrap().git_status().unwrap().unwrap();
    let assert_obstacle = |committed: &target_files::GitStatus, path: &str, why: &str| {
        let found = committed.obstacle(Path::new(path)).unwrap();
        assert!(found.starts_with(why) && found.contains("--allow-dirty"), "{path}: {found}");
    };
    assert_eq!(committed.obstacle(Path::new("clean")), None);
    assert_obstacle(&committed, "dirty", "it has changes that aren't committed; commit or stash it");
    assert_obstacle(&committed, "sub/dirty", "it has changes that aren't committed; commit or stash it");
    assert_obstacle(&committed, "new", "it isn't tracked by git; commit or stash it");
    std::fs::create_dir_all(root.join("nested/deep")).unwrap();
    std::fs::write(root.join("nested/.git"), "gitdir: ../.git/modules/nested").unwrap();
    assert_obstacle(&committed, "nested/deep/file", "it is in a nested repository, whose changes aren't looked for");
    std::fs::remove_dir_all(root.join("nested")).unwrap();
    let below = TargetFiles::new(&root.join("sub"), Some(git_program())).unwrap().git_status().unwrap().unwrap();
    assert_obstacle(&below, "dirty", "it has changes that aren't committed");
    assert_obstacle(&below, "clean", "it isn't tracked by git");
    std::fs::write(root.join(".git/index"), "broken").unwrap();
    assert!(TargetFiles::new(root, Some(git_program())).unwrap().git_status().is_err());

    let files = TargetFiles::new(root, Some(git_program())).unwrap();
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

#[test]
fn a_conflict_names_the_runs_that_changed_the_same_lines() {
    let base = lines(1..=40);
    let change = |line: u32, word: &str| {
        patch("file", Some(&base), Some(&base.replace(&format!("\n{line}\n"), &format!("\n{word}\n"))))
    };
    let mut session = session(&[("file", &base)], &[]);
    session.merge_patch("one", &change(5, "five")).unwrap();
    session.merge_patch("two", &change(30, "thirty")).unwrap();
    session.merge_patch("one again", &change(5, "five")).unwrap();
    for (line, earlier) in [(5, "one"), (30, "two")] {
        let conflict = session.merge_patch("three", &change(line, "x")).unwrap_err().remove(0);
        assert_eq!((conflict.lines, conflict.earlier), (vec![line as usize], vec![earlier.to_owned()]));
    }
}

#[test]
fn a_conflict_with_the_workspace_names_no_run() {
    let base = lines(1..=40);
    let mine = base.replace("\n5\n", "\nmine\n");
    let mut session = session(&[("file", &mine)], &[&base]);
    session.merge_patch("one", &patch("file", Some(&base), Some(&base.replace("\n30\n", "\nthirty\n")))).unwrap();
    let theirs = patch("file", Some(&base), Some(&base.replace("\n5\n", "\ntheirs\n")));
    let conflict = session.merge_patch("two", &theirs).unwrap_err().remove(0);
    assert_eq!((conflict.lines, conflict.earlier), (vec![5], vec![]));
}

#[test]
fn files_and_folders_of_one_name_are_a_conflict() {
    let mut session = session(&[("a", "1\n")], &[]);
    session.merge_patch("one", &patch("new", None, Some("x\n"))).unwrap();
    let below = session.merge_patch("two", &patch("new/file", None, Some("x\n"))).unwrap_err().remove(0);
    assert_eq!((below.path, below.why.as_str()), ("new/file".into(), "`new` is a file"));
    assert_eq!(below.earlier, ["one"]);
    session.merge_patch("three", &patch("folder/file", None, Some("x\n"))).unwrap();
    session.merge_patch("again", &patch("folder/other", None, Some("x\n"))).unwrap();
    session.merge_patch("again", &patch("folder/third", None, Some("x\n"))).unwrap();
    let above = session.merge_patch("four", &patch("folder", None, Some("x\n"))).unwrap_err().remove(0);
    assert_eq!((above.path, above.why.as_str()), ("folder".into(), "it is a folder"));
    assert_eq!(above.earlier, ["three", "again"]);
    // A file that the same patch deletes makes room.
    let replaced = patch("a", Some("1\n"), None) + &patch("a/b", None, Some("x\n"));
    session.merge_patch("five", &replaced).unwrap();
    assert_eq!(states(&session)[..2], [("a".to_owned(), None), ("a/b".to_owned(), Some("x\n".to_owned()))]);
}

#[test]
fn a_file_that_becomes_a_link_is_merged_once() {
    let link = FileState { content: b"target".to_vec(), kind: FileKind::Link };
    let id = |text: &str| hex(&object_id(text.as_bytes(), false));
    let none = "0".repeat(40);
    let header = "diff --git a/file b/file\n";
    let to_link = format!(
        "{header}deleted file mode 100644\nindex {}..{none}\n--- a/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n\
         {header}new file mode 120000\nindex {none}..{}\n--- /dev/null\n+++ b/file\n@@ -0,0 +1 @@\n+target\n\\ No newline at end of file\n",
        id("1\n"),
        id("target")
    );
    let mut files = session(&[("file", "1\n")], &[]);
    files.merge_patch("one", &to_link).unwrap();
    assert_eq!(files.changed_files().next().unwrap().2, Some(&link));
    assert_eq!(files.merge_patch("again", &to_link), Ok(vec![]), "it is a link already");
    let edit = patch("file", Some("1\n"), Some("2\n"));
    assert_eq!(files.merge_patch("two", &edit).unwrap_err()[0].why, "it was a file, and is a symbolic link now");
    let mut other = session(&[("file", "2\n")], &[]);
    assert_eq!(other.merge_patch("one", &to_link).unwrap_err()[0].why, "it was changed, and the run deleted it");
    let twice = edit.clone() + &edit;
    assert!(session(&[("file", "1\n")], &[]).merge_patch("x", &twice).unwrap_err()[0].why.contains("twice"));
}

#[test]
fn a_link_to_nothing_is_a_defect() {
    let id = |text: &str| hex(&object_id(text.as_bytes(), false));
    for target in ["a\0b".to_owned(), "x".repeat(5_000)] {
        let text = format!(
            "diff --git a/l b/l\nnew file mode 120000\nindex {}..{}\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+{target}\n\\ No newline at \
             end of file\n",
            "0".repeat(40),
            id(&target)
        );
        let defect = session(&[], &[]).merge_patch("x", &text).unwrap_err().remove(0);
        assert_eq!((defect.path, defect.why.as_str()), (PathBuf::new(), "`l`: the target of the link isn't a path"));
    }
}

#[test]
fn a_file_that_changes_before_it_is_written_stays_and_ends_the_writing() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    ["a", "b", "c", "gone"].iter().for_each(|name| write(name, "1\n"));
    let mut session = MergeSession::new(TargetFiles::new(folder.path(), Some(git_program())).unwrap());
    for name in ["a", "b", "c"] {
        session.merge_patch(name, &patch(name, Some("1\n"), Some("2\n"))).unwrap();
    }
    let replaced = patch("gone", Some("1\n"), None) + &patch("gone/below", None, Some("2\n"));
    session.merge_patch("gone", &replaced).unwrap();
    write("b", "mine\n");
    let report = write_back(&session);
    assert_eq!(report.written, [PathBuf::from("gone"), "a".into()]);
    assert_eq!(report.failed, Some(("b".into(), "it changed in the meantime".to_owned())));
    assert_eq!(report.unwritten, [PathBuf::from("c"), "gone/below".into()]);
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!((text("a").as_str(), text("b").as_str(), text("c").as_str()), ("2\n", "mine\n", "1\n"));
}

/// The patch from one text to another, as for [`patch`], without git.
fn quick_patch(before: &str, after: &str) -> String {
    let id = |text: &str| hex(&object_id(text.as_bytes(), false));
    let hunks: String = crate::text::diff::hunks(before, after).iter().map(ToString::to_string).collect();
    format!("diff --git a/f b/f\nindex {}..{} 100644\n--- a/f\n+++ b/f\n{hunks}", id(before), id(after))
}

/// Merges patches of `f` into a workspace in which it has a text, as `legwork apply` does. Returns the new text; `None` if there
/// is a conflict.
fn apply_all(text: &str, base: &str, rows: &[&String]) -> Option<String> {
    let source = || session(&[("f", text)], &[base]).source;
    let merge_all = |session: &mut MergeSession<MemoryFiles>| {
        rows.iter().all(|row| session.merge_patch("row", &quick_patch(base, row)).is_ok())
    };
    let mut session = MergeSession::new(source());
    let mut is_clean = merge_all(&mut session);
    if !session.diverged().is_empty() {
        let mut replay = MergeSession::replay(source(), session.diverged());
        merge_all(&mut replay);
        session = MergeSession::repeat(source(), &replay.into_replay());
        is_clean = merge_all(&mut session);
    }
    let changed = states(&session).pop().and_then(|(_, text)| text);
    is_clean.then(|| changed.unwrap_or_else(|| text.to_owned()))
}

#[test]
fn applying_again_changes_nothing_even_if_lines_repeat() {
    let mut random = 7_u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % below
    };
    let (mut clean, mut merged_elsewhere) = (0, 0);
    for at in 0..3_000 {
        let alphabet = [2, 3, 6][at % 3];
        let base: Vec<u32> = (0..1 + next(8)).map(|_| next(alphabet)).collect();
        let text = |lines: &[u32]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let mut row = || {
            let mut lines = base.clone();
            for _ in 0..1 + next(2) {
                let at = next(u32::try_from(lines.len()).unwrap() + 1) as usize;
                match next(3) {
                    0 if at < lines.len() => drop(lines.remove(at)),
                    1 if at < lines.len() => lines[at] = next(alphabet),
                    _ => lines.insert(at, next(alphabet)),
                }
            }
            text(&lines)
        };
        let (a, b, c) = (row(), row(), row());
        let base = text(&base);
        let direct = merge(&base, &a, &b).ok();
        let first = apply_all(&base, &base, &[&a, &b]);
        assert_eq!(first, direct, "{base:?} {a:?} {b:?}: the first time");
        let Some(first) = first else { continue };
        clean += 1;
        assert_eq!(apply_all(&first, &base, &[&a, &b]).as_ref(), Some(&first), "{base:?} {a:?} {b:?}");
        // A third row that comes later, with another change.
        if let (false, Ok(all)) = ([&a, &b].contains(&&c), merge(&base, &first, &c)) {
            merged_elsewhere += 1;
            assert_eq!(apply_all(&first, &base, &[&a, &b, &c]).as_ref(), Some(&all), "{base:?} {a:?} {b:?} {c:?}");
        }
    }
    assert!(clean > 1_000 && merged_elsewhere > 500, "{clean} {merged_elsewhere}");
}

#[cfg(target_os = "linux")]
#[test]
fn files_are_never_written_or_read_outside_while_folders_and_links_are_swapped() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    for made in [root.join("d/e"), outside.join("e")] {
        std::fs::create_dir_all(made).unwrap();
    }
    std::fs::write(outside.join("e/secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
    let files = TargetFiles::new(&root, None).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, root.join("d"), CWD, root.join("link"), RenameFlags::EXCHANGE);
            }
        });
        let mut written = 0;
        for number in 0..2_000 {
            let path = PathBuf::from(format!("d/e/{number}"));
            written += usize::from(files.write(&path, Some(&regular("x"))).is_ok());
            assert!(!matches!(files.current(Path::new("d/e/secret")), Ok(Some(_))), "try {number}");
            let _ = files.write(Path::new("d/e/secret"), None);
        }
        done.store(true, Ordering::Relaxed);
        assert!(written > 0);
    });
    let found: Vec<_> = std::fs::read_dir(outside.join("e")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, ["secret"]);
}

#[test]
fn thousands_of_files_are_written_in_batches_and_a_failure_stops_them_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let patch = |count: usize| -> String {
        let section = |number: usize| {
            format!(
                "diff --git a/d/{number:04} b/d/{number:04}\nnew file mode 100644\nindex {}..{}\n--- /dev/null\n+++ \
                 b/d/{number:04}\n@@ -0,0 +1 @@\n+x\n",
                "0".repeat(40),
                hex(&object_id(b"x\n", false))
            )
        };
        (0..count).map(section).collect()
    };
    let mut session = MergeSession::new(TargetFiles::new(folder.path(), None).unwrap());
    session.merge_patch("x", &patch(1_000)).unwrap();
    // A folder that appeared meanwhile is in the way of one of them.
    std::fs::create_dir_all(folder.path().join("d/0300")).unwrap();
    let report = write_back(&session);
    assert_eq!((report.written.len(), report.unwritten.len()), (300, 699));
    assert_eq!(report.failed.unwrap().0, PathBuf::from("d/0300"));
    assert_eq!(std::fs::read_dir(folder.path().join("d")).unwrap().count(), 301, "and no temporary file");
    std::fs::remove_dir(folder.path().join("d/0300")).unwrap();
    let mut session = MergeSession::new(TargetFiles::new(folder.path(), None).unwrap());
    session.merge_patch("x", &patch(1_000)).unwrap();
    assert_eq!(write_back(&session).written.len(), 700);
}
