//! Files as they are in a commit, read from the object store. Every object is hashed, from the commit to the file, so what is
//! returned is what the commit holds, wherever git found it (alternates included).

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use super::Repository;
use super::objects::{GitObjects, read_references};
use super::program::GitProgram;
use crate::text::hex;

/// How long reading a commit may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest object that is read, in bytes: a folder's list of names, or a file.
const MAX_OBJECT_BYTES: u64 = 8 << 20;
/// How many annotated tags may point to one another.
const MAX_TAGS: usize = 5;

/// The form of a name of a commit, in words.
pub const REFERENCE_FORM: &str = "write a branch or tag such as `origin/main`, or all digits of a commit";

/// Reads files of one commit.
pub(crate) struct CommittedFiles {
    objects: GitObjects,
    /// The commit's full name.
    pub(crate) commit: String,
    /// Its root folder.
    tree: String,
    /// The length of an object's name in bytes.
    name_length: usize,
    /// The folder in the working tree that paths start from.
    prefix: PathBuf,
}

/// Why a commit can't be found.
#[derive(Debug, Clone)]
pub(crate) struct CommitError {
    /// Why, as words that follow its name.
    pub(crate) why: String,
    /// Whether fetching it may help.
    pub(crate) is_missing: bool,
}

impl From<&str> for CommitError {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), is_missing: false }
    }
}

/// Whether a name can be that of a branch, a tag or a commit. Expressions such as `HEAD~1` aren't names.
pub fn is_reference_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_alphanumeric() || "/._-+#@".contains(letter);
    let has_bad_part = name.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock"));
    !name.starts_with('-')
        && !name.contains("..")
        && name.chars().all(is_allowed)
        && !has_bad_part
        && name.len() <= 250
        && !["HEAD", "@", "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD"].contains(&name)
}

impl CommittedFiles {
    /// Finds a commit in the repository that contains `folder`, from which the paths of files start.
    ///
    /// # Errors
    /// Why it can't be found.
    pub(crate) fn open(git: &GitProgram, folder: &Path, reference: &str) -> Result<Self, CommitError> {
        let outside = || CommitError::from("can't be found: the workspace isn't in a git repository");
        let repository = Repository::discover(folder).ok_or_else(outside)?;
        let deadline = Instant::now() + TIMEOUT;
        let name_length = if repository.sha256 { 32 } else { 20 };
        let git_dir = &repository.common_dir;
        let failed = |error: std::io::Error| CommitError::from(format!("can't be read: git failed: {error}").as_str());
        let missing = |why: &str| CommitError { why: why.to_owned(), is_missing: true };
        let mut objects =
            GitObjects::open(git, git_dir, repository.sha256, MAX_OBJECT_BYTES, deadline).map_err(failed)?;
        let is_id = reference.len() == name_length * 2 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut id = if is_id {
            reference.to_ascii_lowercase()
        } else {
            let names: Vec<String> = match reference.starts_with("refs/") {
                true => vec![reference.to_owned()],
                false => ["tags", "heads", "remotes"].map(|kind| format!("refs/{kind}/{reference}")).to_vec(),
            };
            let found = read_references(git, git_dir, &names, deadline).map_err(failed)?;
            match found.as_slice() {
                [] => return Err(missing("isn't a branch, tag or commit of this clone")),
                [(_, id)] => id.clone(),
                [(one, _), (other, _), ..] => {
                    return Err(CommitError::from(format!("is ambiguous: it may be `{one}` or `{other}`").as_str()));
                }
            }
        };
        let damaged = || missing("isn't in this clone, or is damaged");
        for _ in 0..MAX_TAGS {
            let (kind, content) = objects.object(&id).ok_or_else(damaged)?;
            let text = String::from_utf8_lossy(&content);
            let header = |key: &str| text.lines().next()?.strip_prefix(key).map(str::to_owned);
            match kind.as_str() {
                "tag" => id = header("object ").ok_or_else(damaged)?,
                "commit" => {
                    let tree = header("tree ").ok_or_else(damaged)?;
                    let root = repository.worktree.canonicalize().map_err(failed)?;
                    let folder = folder.canonicalize().map_err(failed)?;
                    let prefix = folder.strip_prefix(root).map(Path::to_owned).unwrap_or_default();
                    return Ok(Self { objects, commit: id, tree, name_length, prefix });
                }
                _ => return Err(CommitError::from("isn't a commit")),
            }
        }
        Err(CommitError::from("is a tag of too many tags"))
    }

    /// The content of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// Why it can't be read, as words that follow its name.
    pub(crate) fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, String> {
        let path = self.prefix.join(path);
        let mut parts = path.components().filter(|part| *part != Component::CurDir).peekable();
        let damaged = || "can't be read: an object isn't in this clone, is larger than 8 MiB, or is damaged".to_owned();
        let mut folder = self.tree.clone();
        while let Some(part) = parts.next() {
            let Component::Normal(name) = part else { return Err("has `..` in its path".to_owned()) };
            let (kind, content) = self.objects.object(&folder).ok_or_else(damaged)?;
            if kind != "tree" {
                return Err(damaged());
            }
            let Some((mode, id)) = entry(&content, name.as_encoded_bytes(), self.name_length) else { return Ok(None) };
            match (mode.as_str(), parts.peek()) {
                ("40000", Some(_)) => folder = id,
                ("40000", None) => return Err("is a folder".to_owned()),
                ("120000", _) => return Err("is, or is behind, a symbolic link".to_owned()),
                ("160000", _) => return Err("is in a submodule, or is one".to_owned()),
                (_, Some(_)) => return Ok(None),
                (_, None) => return self.objects.content(&id).map(Some).ok_or_else(damaged),
            }
        }
        Err("is a folder".to_owned())
    }
}

/// The mode and the object of an entry of a tree object.
fn entry(mut tree: &[u8], name: &[u8], name_length: usize) -> Option<(String, String)> {
    while !tree.is_empty() {
        let end = tree.iter().position(|byte| *byte == 0)?;
        let (header, rest) = (&tree[..end], &tree[end + 1..]);
        let (id, rest) = rest.split_at_checked(name_length)?;
        let space = header.iter().position(|byte| *byte == b' ')?;
        if &header[space + 1..] == name {
            return Some((String::from_utf8_lossy(&header[..space]).into_owned(), hex(id)));
        }
        tree = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_not_names() {
        for name in ["main", "origin/main", "v1.2.3", "release-2", "refs/tags/v1", "feature/#12-x", "0123abcd"] {
            assert!(is_reference_name(name), "{name}");
        }
        for name in [
            "",
            "HEAD",
            "@",
            "HEAD~1",
            "main^",
            "a..b",
            "main:AGENTS.md",
            ":/text",
            "main@{1}",
            "-x",
            "--upload-pack=x",
            "a b",
            "a//b",
            "/a",
            "a/",
            ".git",
            "a\nb",
            "x.lock",
            "*",
        ] {
            assert!(!is_reference_name(name), "{name}");
        }
    }

    #[test]
    fn entries_of_a_tree_are_found_by_their_whole_name() {
        let mut tree = b"100644 a\0".to_vec();
        tree.extend([1; 20]);
        tree.extend(b"40000 ab\0");
        tree.extend([2; 20]);
        assert_eq!(entry(&tree, b"ab", 20), Some(("40000".to_owned(), "02".repeat(20))));
        assert_eq!(entry(&tree, b"a", 20).unwrap().0, "100644");
        assert_eq!(entry(&tree, b"b", 20), None);
        assert_eq!(entry(&tree[..25], b"a", 20), None);
    }
}
