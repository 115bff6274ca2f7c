//! Whether what a command has put into a git folder is safe: new repositories, references and indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::dir_fd::{hard_links, kind, kind_of, list, read, stat};
use super::file_state::MAX_GIT_FILE_BYTES;
use crate::git::index::{HASH_LENGTHS, IndexReader};
use crate::git::is_dot_git;

/// The longest configuration that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 << 10;
/// The longest reference that is read, in bytes.
const MAX_REFERENCE_BYTES: u64 = 1000;
/// The most entries that are examined: a commit after `git init` makes an object for each file.
const MAX_ENTRIES: usize = 200_000;

/// The keys that a new configuration may set. None of them names a program or another file.
const SAFE_CONFIG_KEYS: [(&str, &str); 10] = [
    ("core", "repositoryformatversion"),
    ("core", "filemode"),
    ("core", "bare"),
    ("core", "logallrefupdates"),
    ("core", "symlinks"),
    ("core", "ignorecase"),
    ("core", "precomposeunicode"),
    ("extensions", "objectformat"),
    ("user", "name"),
    ("user", "email"),
];

/// Whether a git folder has nothing but what `git init` makes and what commands may add with `git: commit`.
pub(super) fn is_fresh_git_dir(folder: &OwnedFd, name: &OsStr) -> bool {
    kind(folder, name) == Some(FileType::Directory)
        && is_fresh_folder(folder, name, &PathBuf::new(), &mut { MAX_ENTRIES })
}

fn is_fresh_folder(folder: &OwnedFd, name: &OsStr, within: &Path, left: &mut usize) -> bool {
    let Ok((opened, listed)) = list(folder, name) else { return false };
    if listed.len() > *left {
        return false;
    }
    *left -= listed.len();
    listed.iter().all(|(name, _)| {
        let Some(stat) = stat(&opened, name) else { return false };
        let within = within.join(name);
        let Some(path) = within.to_str() else { return false };
        let parts: Vec<&str> = path.split('/').collect();
        match kind_of(&stat) {
            FileType::Directory => {
                let is_known = match parts.as_slice() {
                    ["hooks" | "info" | "branches" | "refs" | "logs" | "objects"] => true,
                    ["refs", "heads" | "tags", ..] | ["logs", ..] | ["objects", ..] => parts.len() < 40,
                    _ => false,
                };
                is_known && is_fresh_folder(&opened, name, &within, left)
            }
            FileType::RegularFile => match parts.as_slice() {
                ["config"] => {
                    hard_links(&stat) == 1
                        && read(&opened, name, MAX_CONFIG_BYTES).is_some_and(|text| is_safe_config(&text))
                }
                ["hooks", hook] => hook.ends_with(".sample"),
                ["objects", "info", ..] => false,
                ["objects", ..] => true,
                ["HEAD" | "ORIG_HEAD" | "index" | "COMMIT_EDITMSG" | "description"]
                | ["info", "exclude"]
                | ["refs", "heads" | "tags", ..]
                | ["logs", ..] => hard_links(&stat) == 1 && is_safe_git_file(&opened, name, &within),
                _ => false,
            },
            _ => false,
        }
    })
}

/// Whether a reference names an object or another reference, since git writes to what it names, and whether an index names
/// only files of the working tree. `within` is the path from the root of the git folder.
pub(super) fn is_safe_git_file(folder: &OwnedFd, name: &OsStr, within: &Path) -> bool {
    let content = |max| read(folder, name, max);
    match within.to_str() {
        Some("index") => content(MAX_GIT_FILE_BYTES).is_some_and(|content| has_only_worktree_paths(&content)),
        Some("packed-refs") => content(MAX_GIT_FILE_BYTES).is_some_and(|content| packed_references(&content).is_some()),
        Some("MERGE_HEAD" | "FETCH_HEAD") => content(MAX_GIT_FILE_BYTES).is_some_and(|content| {
            String::from_utf8_lossy(&content).lines().all(|line| line.split('\t').next().is_some_and(is_object_name))
        }),
        Some("AUTO_MERGE" | "CHERRY_PICK_HEAD" | "HEAD" | "ORIG_HEAD" | "REVERT_HEAD") => {
            content(MAX_REFERENCE_BYTES).is_some_and(|content| is_safe_reference(&content))
        }
        _ if within.starts_with("refs") => {
            content(MAX_REFERENCE_BYTES).is_some_and(|content| is_safe_reference(&content))
        }
        _ => true,
    }
}

fn is_safe_reference(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    let text = text.trim_end();
    match text.strip_prefix("ref:") {
        Some(target) => target.trim_start().starts_with("refs/") && !target.contains(".."),
        None => is_object_name(text),
    }
}

pub(super) fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The references in a `packed-refs` file, by name; `None` if it holds anything else.
pub(super) fn packed_references(content: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut references = BTreeMap::new();
    for line in std::str::from_utf8(content).ok()?.lines() {
        match line.split_once(' ') {
            _ if line.starts_with("# pack-refs with:") => {}
            _ if line.strip_prefix('^').is_some_and(is_object_name) => {}
            Some((id, name)) if is_object_name(id) && name.starts_with("refs/") && !name.contains("..") => {
                references.insert(name.to_owned(), id.to_owned());
            }
            _ => return None,
        }
    }
    Some(references)
}

/// Whether a configuration sets nothing but safe keys. This parser is stricter than git's, so that the two can't disagree on
/// what a line means.
fn is_safe_config(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut section = "";
    text.lines().all(|line| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            return SAFE_CONFIG_KEYS.iter().any(|(known, _)| *known == name);
        }
        let Some((key, value)) = line.split_once('=') else { return line.is_empty() };
        let key = key.trim().to_ascii_lowercase();
        SAFE_CONFIG_KEYS.contains(&(section, key.as_str()))
            && !value.contains(['\\', '"', '#', ';'])
            && !value.chars().any(|letter| letter.is_control() && letter != '\t')
    })
}

/// The keys that ordinary commands set: `git config` of a person or of the output, `git remote`, `git submodule`,
/// `git sparse-checkout` and `git branch`. A section with `*` has a subsection. None of them names a program.
const HARMLESS_KEYS: [(&str, &str); 36] = [
    ("core", "repositoryformatversion"),
    ("core", "filemode"),
    ("core", "autocrlf"),
    ("core", "eol"),
    ("core", "safecrlf"),
    ("core", "quotepath"),
    ("core", "longpaths"),
    ("core", "sparsecheckout"),
    ("core", "sparsecheckoutcone"),
    ("index", "sparse"),
    ("index", "version"),
    ("extensions", "worktreeconfig"),
    ("user", "name"),
    ("user", "email"),
    ("author", "name"),
    ("author", "email"),
    ("committer", "name"),
    ("committer", "email"),
    ("init", "defaultbranch"),
    ("color", "ui"),
    ("commit", "gpgsign"),
    ("tag", "gpgsign"),
    ("pull", "rebase"),
    ("pull", "ff"),
    ("push", "default"),
    ("merge", "conflictstyle"),
    ("remote *", "url"),
    ("remote *", "pushurl"),
    ("remote *", "fetch"),
    ("remote *", "prune"),
    ("branch *", "remote"),
    ("branch *", "merge"),
    ("branch *", "rebase"),
    ("submodule *", "url"),
    ("submodule *", "active"),
    ("submodule", "active"),
];

/// Whether a changed configuration has no setting that the former one hasn't, apart from some that no git command takes for
/// anything to run. It is undone anyway.
pub(super) fn adds_only_harmless_settings(former: &[u8], now: &[u8]) -> bool {
    let (Ok(former), Ok(now)) = (std::str::from_utf8(former), std::str::from_utf8(now)) else { return false };
    let former: BTreeSet<(&str, &str)> = lines_of_sections(former).collect();
    lines_of_sections(now).all(|(section, line)| {
        if former.contains(&(section, line)) || line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        // A backslash at its end would hide the next line, and the section of a line must be the one that git sees.
        if line.contains(['\\', ';', '#']) || line.chars().any(|letter| letter.is_control() && letter != '\t') {
            return false;
        }
        let name = section.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
        let section = match name.split_once(' ') {
            Some((name, subsection))
                if subsection.len() > 1 && subsection.starts_with('"') && subsection.ends_with('"') =>
            {
                format!("{} *", name.to_ascii_lowercase())
            }
            _ => name.to_ascii_lowercase(),
        };
        let is_known = |key: &str| HARMLESS_KEYS.iter().any(|known| (known.0, known.1) == (section.as_str(), key));
        match line.split_once('=') {
            _ if line.starts_with('[') => HARMLESS_KEYS.iter().any(|(known, _)| *known == section),
            Some((key, _)) => is_known(&key.trim().to_ascii_lowercase()),
            None => false,
        }
    })
}

/// The lines of a configuration, trimmed, with the header of the section that they are in.
fn lines_of_sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut section = "";
    text.lines().map(move |line| {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
        }
        (section, line)
    })
}

/// Whether no entry is in a git folder or outside of the working tree. A checkout writes a file for each entry, including hooks.
pub(super) fn has_only_worktree_paths(bytes: &[u8]) -> bool {
    let is_readable = |digest: usize| all_paths_pass(bytes, digest, |_| true).is_some();
    let is_harmless = |digest: usize| all_paths_pass(bytes, digest, is_in_the_tree) == Some(true);
    let mut readable = HASH_LENGTHS.into_iter().filter(|digest| is_readable(*digest)).peekable();
    readable.peek().is_some() && readable.all(is_harmless)
}

/// Whether two indexes differ only in the cached state of files, as after `git describe --dirty`.
pub(super) fn has_same_entries(one: &[u8], other: &[u8]) -> bool {
    HASH_LENGTHS.into_iter().any(|digest| {
        let Some((mut one, mut other)) = IndexReader::new(one, digest).zip(IndexReader::new(other, digest)) else {
            return false;
        };
        loop {
            match (one.next(), other.next()) {
                (Some(None), Some(None)) => return one.is_at_end() && other.is_at_end(),
                (Some(Some(entry)), Some(Some(that))) if entry.is_same_content(&that) && one.path() == other.path() => {
                }
                _ => return false,
            }
        }
    })
}

/// Whether all paths pass; `None` if the index is invalid.
fn all_paths_pass(bytes: &[u8], digest: usize, passes: impl Fn(&[u8]) -> bool) -> Option<bool> {
    let mut reader = IndexReader::new(bytes, digest)?;
    let mut all = true;
    while reader.next()?.is_some() {
        all = all && passes(reader.path());
    }
    reader.is_at_end().then_some(all)
}

/// Whether an index that can be read has an entry in a git folder or outside of the working tree.
pub(super) fn has_foreign_paths(bytes: &[u8]) -> bool {
    HASH_LENGTHS.into_iter().any(|digest| all_paths_pass(bytes, digest, is_in_the_tree) == Some(false))
}

fn is_in_the_tree(path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    path.components().all(|part| matches!(part, Component::Normal(name) if !is_dot_git(name)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(folder).env_remove("GIT_DIR").env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    }

    #[test]
    fn an_index_is_read_in_every_version_and_with_both_digests() {
        for (format, version) in [("sha1", "2"), ("sha1", "4"), ("sha256", "2"), ("sha256", "4")] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let index = || std::fs::read(root.join(".git/index")).unwrap();
            git(root, &["init", "-q", &format!("--object-format={format}")]);
            for name in ["a/one", "a/two", ".xit/hooks/post-checkout"] {
                std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
                std::fs::write(root.join(name), name).unwrap();
            }
            git(root, &["add", "-N", "a/one"]);
            git(root, &["add", "-f", "."]);
            git(root, &["update-index", "--index-version", version]);
            let before = index();
            assert!(has_only_worktree_paths(&before), "{format} {version}");
            let at = before.windows(4).position(|part| part == b".xit").unwrap();
            let mut planted = before.clone();
            planted[at..at + 4].copy_from_slice(b".git");
            assert!(!has_only_worktree_paths(&planted), "{format} {version}");
            assert!(!has_same_entries(&before, &planted));
            std::fs::File::open(root.join("a/one")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            git(root, &["update-index", "-q", "--refresh"]);
            assert!(index() != before && has_same_entries(&before, &index()), "{format} {version}");
            assert!(
                !has_only_worktree_paths(&before[..before.len() - 1])
                    && !has_only_worktree_paths(b"DIRC")
                    && !has_only_worktree_paths(b"")
            );
        }
    }

    /// Half a gigabyte of paths in a hundred kilobytes, and as much more for each further entry.
    #[test]
    fn an_index_of_long_shared_paths_is_refused() {
        let index = |length: usize, count: u32| {
            let mut bytes = [b"DIRC".as_slice(), &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
            for number in 0..count {
                bytes.extend([0; 62]);
                bytes.push(0);
                bytes.extend(if number == 0 { "x".repeat(length) } else { "x".to_owned() }.as_bytes());
                bytes.push(0);
            }
            bytes.extend([0; 20]);
            bytes
        };
        assert!(has_only_worktree_paths(&index(4000, 10)) && !has_only_worktree_paths(&index(100_000, 5000)));
        assert!(has_same_entries(&index(4000, 10), &index(4000, 10)));
        assert!(!has_same_entries(&index(100_000, 5000), &index(100_000, 5000)));
    }

    #[test]
    fn ordinary_settings_are_harmless_and_programs_are_not() {
        let former = "[core]\n\tbare = false\n\tfsmonitor = mine\n[alias]\n\tst = !x\n";
        let adds = |more: &str| adds_only_harmless_settings(former.as_bytes(), format!("{former}{more}").as_bytes());
        for harmless in [
            "",
            "[user]\n\tname = A B\n\temail = a@b\n",
            "[remote \"other\"]\n\turl = https://x.example/y\n\tfetch = +refs/heads/*:refs/remotes/other/*\n",
            "[submodule \"a b\"]\n\tactive = true\n[core]\n\tsparseCheckout = true\n",
        ] {
            assert!(adds(harmless), "{harmless}");
        }
        for harmful in [
            "[core]\n\tfsmonitor = other\n",
            "[core]\n\thooksPath = x\n",
            "[alias]\n\tci = !x\n",
            "[user]\n\tname = a\\\n\tx\n",
            "[user]\n\tname = a\n[core] pager = x\n",
            "[remote \"x\"]\n\tuploadpack = x\n",
            "[core \"x\"]\n\tbare = x\n",
            "[include]\n\tpath = x\n",
            "[user]\n\tst = !x\n",
            "[submodule \"a\"]\n\tupdate = !x\n",
            "[filter \"a\"]\n\tclean = x\n",
            "[user]\n\tname\n",
        ] {
            assert!(!adds(harmful), "{harmful}");
        }
        assert!(adds_only_harmless_settings(former.as_bytes(), b"[core]\n\tbare = false\n"));
    }

    #[test]
    fn a_configuration_that_names_programs_is_not_safe() {
        for good in [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n[user]\n\tname = A B\n",
        ] {
            assert!(is_safe_config(good.as_bytes()), "{good}");
        }
        for bad in [
            "[core]\n\tfsmonitor = ./x\n",
            "[core]\n\thooksPath = hooks\n",
            "[core] fsmonitor = x\n",
            "[alias]\n\tst = !x\n",
            "[core]\n\tbare = false\\\n\tfsmonitor = x\n",
            "[include]\n\tpath = x\n",
            "[core \"x\"]\n\tbare = true\n",
            "[user]\n\tname = \"a\n",
            "core.bare = true\n",
            "[core]\n\tworktree = /\n",
        ] {
            assert!(!is_safe_config(bad.as_bytes()), "{bad}");
        }
    }
}
