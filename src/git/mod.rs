//! What is read of git's own folders, without starting git.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The longest file that is read, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The most folders that are looked at for submodules.
const MOST_FOLDERS: usize = 2_000;

/// Where a `.git` file leads.
pub(crate) fn gitfile_target(file: &Path) -> Option<PathBuf> {
    let text = read(file)?;
    Some(file.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

/// The git folder that a worktree's own one shares; else the folder itself.
pub(crate) fn common_dir(folder: &Path) -> PathBuf {
    read(&folder.join("commondir")).map_or_else(|| folder.to_owned(), |path| folder.join(path.trim()))
}

/// The root of a git folder's working tree, as far as the folder says: a worktree's leads there, a submodule's names it.
pub(crate) fn worktree_root(folder: &Path) -> Option<PathBuf> {
    if let Some(dot_git) = read(&folder.join("gitdir")) {
        return folder.join(dot_git.trim()).parent().map(Path::to_owned);
    }
    let named = GitConfig::read(&folder.join("config")).values("core", "worktree").last().map(|tree| folder.join(tree));
    named.or_else(|| folder.parent().filter(|_| folder.ends_with(".git")).map(Path::to_owned))
}

/// Whether git takes a folder for a git folder, as far as its entries say.
pub(crate) fn is_git_dir(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Whether the git folder of a worktree or a submodule says, for its part, that the `.git` file belongs to it. Git alone
/// writes that: a file that came with an archive can't make a stranger's folder a git folder.
pub(crate) fn is_linked_back(folder: &Path, dot_git: &Path) -> bool {
    let same =
        |path: PathBuf| matches!((path.canonicalize(), dot_git.canonicalize()), (Ok(one), Ok(other)) if one == other);
    if !is_git_dir(folder) {
        return false;
    }
    if let Some(path) = read(&folder.join("gitdir")) {
        return same(folder.join(path.trim()));
    }
    let config = GitConfig::read(&folder.join("config"));
    config.values("core", "worktree").last().is_some_and(|tree| same(folder.join(tree).join(".git")))
}

/// The submodules' git folders below `modules`; a submodule's name may have several parts.
pub(crate) fn submodule_git_dirs(modules: &Path, most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![modules.to_owned()];
    for _ in 0..MOST_FOLDERS {
        let Some(folder) = open.pop().filter(|_| found.len() < most) else { break };
        if folder != modules && is_git_dir(&folder) {
            open.push(folder.join("modules"));
            found.push(folder);
            continue;
        }
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(folders.map(|entry| entry.path()).take(MOST_FOLDERS));
    }
    found
}

/// A regular file, opened without waiting for the other end of a FIFO.
pub fn open_regular_file(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// The beginning of a regular file's text.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The repository that a folder lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The root of its working tree.
    pub worktree: PathBuf,
    /// The working tree's own git folder, with its index.
    pub git_dir: PathBuf,
    /// The git folder with the objects: the same, but for a worktree.
    pub common_dir: PathBuf,
    /// Whether objects are named by SHA-256 instead of SHA-1.
    pub sha256: bool,
}

impl Repository {
    /// Looks for it as git does, from the folder upwards. A `.git` file counts where its repository knows of it.
    pub fn discover(folder: &Path) -> Option<Self> {
        let (tree, dot_git) = folder.ancestors().find_map(|tree| {
            let dot_git = tree.join(".git");
            dot_git.exists().then(|| (tree.to_owned(), dot_git))
        })?;
        let own = match dot_git.is_dir() {
            true => Some(dot_git).filter(|folder| is_git_dir(folder)),
            false => gitfile_target(&dot_git).filter(|folder| is_linked_back(folder, &dot_git)),
        };
        let own = own?.canonicalize().ok()?;
        let common = common_dir(&own).canonicalize().ok()?;
        let config = GitConfig::read(&common.join("config"));
        let sha256 = config.values("extensions", "objectformat").last() == Some("sha256");
        Some(Self { worktree: tree, git_dir: own, common_dir: common, sha256 })
    }
}

/// A git configuration file: git-config(1), "CONFIGURATION FILE". Subsections are left out.
#[derive(Debug, Default)]
pub(crate) struct GitConfig {
    /// Section, key (both in lower case) and value.
    entries: Vec<(String, String, String)>,
}

impl GitConfig {
    /// Reads a file; one that is missing holds nothing.
    pub(crate) fn read(path: &Path) -> Self {
        read(path).map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// All values of a key, in their order.
    pub(crate) fn values<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
        let wanted = move |entry: &&(String, String, String)| entry.0 == section && entry.1 == key;
        self.entries.iter().filter(wanted).map(|(.., value)| value.as_str())
    }

    fn parse(text: &str) -> Self {
        let mut config = Self::default();
        let mut section = String::new();
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace("\\\n", "");
        for line in text.lines() {
            let mut line = line.trim_start();
            if let Some(rest) = line.strip_prefix('[') {
                let Some((name, rest)) = header(rest) else { continue };
                section = name;
                line = rest.trim_start();
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let key = key.trim().to_lowercase();
            if !key.is_empty() && !key.starts_with(['#', ';']) {
                config.entries.push((section.clone(), key, unquoted(value)));
            }
        }
        config
    }
}

/// A section's name, and what follows its header on the line.
fn header(text: &str) -> Option<(String, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => {
                // `[section.sub]` is an old way to write `[section "sub"]`.
                let name = text[..at].split([' ', '\t', '"', '.']).next()?;
                return Some((name.to_lowercase(), &text[at + 1..]));
            }
            _ => {}
        }
    }
    None
}

/// A value without its quotes, escapes and comment.
fn unquoted(value: &str) -> String {
    let (mut found, mut quoted) = (String::new(), false);
    let mut letters = value.trim_start().chars();
    let mut kept = 0;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => found.extend(letters.next().map(|letter| match letter {
                'n' => '\n',
                't' => '\t',
                other => other,
            })),
            other => found.push(other),
        }
        if quoted || !letter.is_whitespace() {
            kept = found.len();
        }
    }
    found.truncate(kept);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_read_as_git_reads_it() {
        let config = GitConfig::parse(
            "\u{feff}# x\n[CORE]\n\tHooksPath = \"a b\" # c\n bare\n[core] hooksPath = x\\\\y\\\nz ; c\r\n\
             [include]path=../.gitconfig\n[includeIf \"gitdir:a]b\"] path = q\n[alias]\ncore.hooksPath = no\n",
        );
        assert_eq!(config.values("core", "hookspath").collect::<Vec<_>>(), ["a b", "x\\yz"]);
        assert_eq!(config.values("include", "path").collect::<Vec<_>>(), ["../.gitconfig"]);
        assert_eq!(config.values("includeif", "path").collect::<Vec<_>>(), ["q"]);
        assert_eq!(config.values("core", "bare").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let folder = tempfile::TempDir::new().unwrap();
        let pipe = folder.path().join("config");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).unwrap();
        assert_eq!(GitConfig::read(&pipe).entries.len(), 0);
        assert_eq!(gitfile_target(&pipe), None);
    }
}
pub mod head;
