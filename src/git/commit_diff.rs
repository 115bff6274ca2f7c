//! What a branch changes: the differences between two commits, read from the object store.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Repository;
use super::process::GitProcess;
use super::program::GitProgram;
use crate::text::bounded::read_at_most;

/// How long git may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest diff that is read, in bytes.
const MAX_DIFF_BYTES: u64 = 64 << 20;
/// The most lines of the name of a commit, in bytes.
const MAX_NAME_BYTES: u64 = 1 << 10;

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DifferingFile {
    /// Its path from the root of the repository. Bytes that aren't UTF-8 are replaced.
    pub(crate) path: String,
    /// Its path before.
    pub(crate) old_path: String,
    /// The hunks of its diff, with three lines of context; empty for files that aren't text.
    pub(crate) hunks: String,
}

/// The files in which `head` differs from the commit where it left `base`, as forges show a pull request. Both are full names of
/// commits. Nothing is fetched, and no program of a repository is run.
///
/// # Errors
/// Why they can't be compared, as the end of a sentence.
pub(crate) fn changes_between(
    git: &GitProgram,
    folder: &Path,
    base: &str,
    head: &str,
) -> Result<Vec<DifferingFile>, String> {
    let repository = Repository::discover(folder).ok_or("the workspace isn't in a git repository")?;
    let deadline = Instant::now() + TIMEOUT;
    let print = |arguments: &[&str], most: u64| -> Result<Option<Vec<u8>>, String> {
        let failed = |error: std::io::Error| format!("git failed: {error}");
        let mut command = git.on_objects(&repository.common_dir);
        command.args(arguments).stderr(Stdio::null());
        let mut process = GitProcess::start(command, deadline).map_err(failed)?;
        let output = match process.take_pipes() {
            (_, Some(stdout)) => read_at_most(stdout, most).map_err(failed)?,
            _ => None,
        };
        let Some(output) = output else { return Err(format!("the diff is larger than {} MiB", most >> 20)) };
        Ok(process.wait().map_err(failed)?.success().then_some(output))
    };
    for (commit, what) in [(base, "base"), (head, "head")] {
        let name = format!("{commit}^{{commit}}");
        if print(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name], MAX_NAME_BYTES)?.is_none() {
            return Err(format!("the {what} commit {} isn't in this clone", &commit[..commit.len().min(10)]));
        }
    }
    let common = print(&["merge-base", "--", base, head], MAX_NAME_BYTES)?;
    let common = common.as_deref().and_then(|name| str::from_utf8(name).ok()).map(str::trim).unwrap_or_default();
    if common.is_empty() {
        return Err("the commit where its branch began isn't in this clone".to_owned());
    }
    let arguments = [
        "diff-tree",
        "-r",
        "--raw",
        "-p",
        "-z",
        "-M",
        "-U3",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--diff-algorithm=myers",
        "--ignore-submodules=none",
        "--submodule=short",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        common,
        head,
        "--",
    ];
    let output = print(&arguments, MAX_DIFF_BYTES)?.ok_or("git can't compare its commits: objects are missing")?;
    files_of(&output).ok_or_else(|| "git printed a diff in another form".to_owned())
}

/// The files in the output of git: entries that end with NUL, an empty one, and then the diff of each.
fn files_of(output: &[u8]) -> Option<Vec<DifferingFile>> {
    if output.is_empty() {
        return Some(Vec::new());
    }
    let mut files = Vec::new();
    let mut rest = output;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Some(entry) = next_field(&mut rest)? {
        let status = entry.rsplit(|byte| *byte == b' ').next()?.first().copied()?;
        let old_path = next_field(&mut rest)??;
        let path = if matches!(status, b'R' | b'C') { next_field(&mut rest)?? } else { old_path };
        // A file that becomes a link has two diffs.
        let diffs = if status == b'T' { 2 } else { 1 };
        files.push((DifferingFile { path: text(path), old_path: text(old_path), hunks: String::new() }, diffs));
    }
    let patch = String::from_utf8_lossy(rest);
    let mut starts: Vec<usize> = patch.match_indices("\ndiff --git ").map(|(at, _)| at + 1).collect();
    starts.splice(0..0, patch.starts_with("diff --git ").then_some(0));
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    let mut sections = starts.iter().zip(ends).map(|(start, end)| &patch[*start..end]);
    let files: Option<Vec<DifferingFile>> = files
        .into_iter()
        .map(|(file, diffs)| {
            let sections: Vec<&str> = sections.by_ref().take(diffs).collect();
            let hunks = sections.iter().filter_map(|section| Some(&section[section.find("\n@@ ")? + 1..]));
            (sections.len() == diffs).then(|| DifferingFile { hunks: hunks.collect(), ..file })
        })
        .collect();
    files.filter(|_| sections.next().is_none())
}

/// The next field that ends with NUL; none for the empty one that ends the entries.
#[expect(clippy::option_option, reason = "no field, and the end of the fields")]
fn next_field<'o>(rest: &mut &'o [u8]) -> Option<Option<&'o [u8]>> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let field = &rest[..end];
    *rest = &rest[end + 1..];
    Some((!field.is_empty()).then_some(field))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::git::program::git_program;

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let mut command = git_program().in_own_repository(folder);
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    #[test]
    fn a_branch_is_compared_with_where_it_began() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let lines =
            |range: std::ops::RangeInclusive<u32>| range.map(|line| format!("line {line}\n")).collect::<String>();
        git(folder.path(), &["init", "--quiet", "--initial-branch=main"]);
        fs::write(at("moved \"a\".txt"), lines(1..=30)).unwrap();
        fs::write(at("gone"), "x\n").unwrap();
        fs::write(at("becomes a link"), "x\n").unwrap();
        let commit = || {
            git(folder.path(), &["add", "--all"]);
            git(folder.path(), &["commit", "--quiet", "--message=c"]);
            git(folder.path(), &["rev-parse", "HEAD"])
        };
        let start = commit();
        git(folder.path(), &["checkout", "--quiet", "-b", "branch"]);
        fs::rename(at("moved \"a\".txt"), at("new\nname")).unwrap();
        fs::write(at("new\nname"), lines(1..=30).replace("line 9\n", "diff --git a/x b/x\n")).unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::remove_file(at("becomes a link")).unwrap();
        symlink("gone", at("becomes a link")).unwrap();
        fs::write(at("binary"), b"a\0b").unwrap();
        let head = commit();
        git(folder.path(), &["checkout", "--quiet", "main"]);
        fs::write(at("only on main"), "x\n").unwrap();
        let base = commit();
        // What the repository configures doesn't change the form, and runs nothing.
        for (key, value) in
            [("diff.external", "false"), ("diff.noprefix", "true"), ("diff.context", "9"), ("diff.renames", "false")]
        {
            git(folder.path(), &["config", key, value]);
        }
        let files = changes_between(&git_program(), folder.path(), &base, &head).unwrap();
        let names: Vec<(&str, &str)> = files.iter().map(|file| (&*file.old_path, &*file.path)).collect();
        let expected = [
            ("becomes a link", "becomes a link"),
            ("binary", "binary"),
            ("gone", "gone"),
            ("moved \"a\".txt", "new\nname"),
        ];
        assert_eq!(names, expected);
        assert_eq!(files[1].hunks, "");
        assert!(files[3].hunks.starts_with("@@ -6,7 +6,7 @@ line 5\n line 6\n"), "{}", files[3].hunks);
        assert_eq!(changes_between(&git_program(), folder.path(), &start, &start), Ok(Vec::new()));
        let missing = changes_between(&git_program(), folder.path(), &"a".repeat(40), &head);
        assert_eq!(missing, Err("the base commit aaaaaaaaaa isn't in this clone".to_owned()));
        let other = git(folder.path(), &["commit-tree", "-m", "other", "HEAD^{tree}"]);
        let unrelated = changes_between(&git_program(), folder.path(), &other, &head);
        assert_eq!(unrelated, Err("the commit where its branch began isn't in this clone".to_owned()));
    }
}
