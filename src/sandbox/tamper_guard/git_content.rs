//! Whether what a command has put into a git folder is safe: new repositories, references and indexes.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::dir_fd::{hard_links, kind, kind_of, list, read, stat};
use super::file_state::MAX_GIT_FILE_BYTES;
use super::git_index;

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
    if within == Path::new("index") {
        return read(folder, name, MAX_GIT_FILE_BYTES)
            .is_some_and(|content| git_index::has_only_worktree_paths(&content));
    }
    if !(within == Path::new("HEAD") || within == Path::new("ORIG_HEAD") || within.starts_with("refs")) {
        return true;
    }
    let Some(content) = read(folder, name, MAX_REFERENCE_BYTES) else { return false };
    let text = String::from_utf8_lossy(&content);
    let text = text.trim_end();
    match text.strip_prefix("ref:") {
        Some(target) => target.trim_start().starts_with("refs/") && !target.contains(".."),
        None => matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
    }
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

#[cfg(test)]
mod tests {
    use super::is_safe_config;

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
