//! What `git init` makes.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::file_state::{kind_of, links, read, stat};
use super::tree_check::{self, list};

/// The longest configuration that is looked into, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 << 10;
/// The most entries that are looked at: a commit after `git init` makes an object for each file.
const MOST_ENTRIES: usize = 200_000;

/// What a new configuration may set: none of it names a program or another file.
const KEYS: [(&str, &str); 10] = [
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

/// Whether a git folder holds nothing but what `git init` puts there, and what commands may add with `git: commit`.
pub(super) fn is_fresh_git_dir(folder: &OwnedFd, name: &OsStr) -> bool {
    let mut left = MOST_ENTRIES;
    stat(folder, Path::new(name).as_os_str()).is_some_and(|stat| kind_of(&stat) == FileType::Directory)
        && is_fresh_folder(folder, name, &PathBuf::new(), &mut left)
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
                    links(&stat) == 1 && read(&opened, name, MAX_CONFIG_BYTES).is_some_and(|text| is_safe_config(&text))
                }
                ["hooks", hook] => hook.ends_with(".sample"),
                ["objects", "info", ..] => false,
                ["objects", ..] => true,
                ["HEAD" | "ORIG_HEAD" | "index" | "COMMIT_EDITMSG" | "description"]
                | ["info", "exclude"]
                | ["refs", "heads" | "tags", ..]
                | ["logs", ..] => links(&stat) == 1 && tree_check::is_safe_git_file(&opened, name, &within),
                _ => false,
            },
            _ => false,
        }
    })
}

/// Whether a configuration sets nothing but the known keys. It is read more strictly than git does, so that both can't
/// understand it differently.
fn is_safe_config(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut section = "";
    text.lines().all(|line| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            return KEYS.iter().any(|(known, _)| *known == name);
        }
        let Some((key, value)) = line.split_once('=') else { return line.is_empty() };
        let key = key.trim().to_ascii_lowercase();
        KEYS.contains(&(section, key.as_str()))
            && !value.contains(['\\', '"', '#', ';'])
            && !value.chars().any(|letter| letter.is_control() && letter != '\t')
    })
}

#[cfg(test)]
mod tests {
    use super::is_safe_config;

    #[test]
    fn a_configuration_that_names_programs_is_not_fresh() {
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
