//! Git's text files, above all its configuration.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::text::bounded::read_up_to;
use rustix::fs::{Mode, OFlags};

/// How much of a text file is read, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The most files of the user's configuration that are read for trusted repositories.
const MAX_INCLUDED_FILES: usize = 20;

/// A parsed git configuration file, see git-config(1), "CONFIGURATION FILE". Subsection names are dropped.
#[derive(Debug, Default)]
pub(crate) struct GitConfig {
    /// Section, key (both lowercase) and value.
    entries: Vec<(String, String, String)>,
}

impl GitConfig {
    /// Reads a file. A missing file counts as empty.
    pub(crate) fn read(path: &Path) -> Self {
        read_text(path).map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// All values of a key, in file order.
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
                let Some((name, rest)) = section_header(rest) else { continue };
                section = name;
                line = rest.trim_start();
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let key = key.trim().to_lowercase();
            if !key.is_empty() && !key.starts_with(['#', ';']) {
                config.entries.push((section.clone(), key, unquote(value)));
            }
        }
        config
    }
}

/// The repositories of other users that the user's own configuration trusts: the values of `safe.directory`.
pub fn safe_directories(home: &Path, config_home: Option<&Path>) -> Vec<String> {
    let config_home = config_home.map_or_else(|| home.join(".config"), Path::to_owned);
    let expand = |path: &str| path.strip_prefix("~/").map(|rest| home.join(rest));
    // The last file comes first: git reads the one in the home folder after the other, and included files in their place.
    let mut queue = vec![home.join(".gitconfig"), config_home.join("git/config")];
    let mut trusted = Vec::new();
    for _ in 0..MAX_INCLUDED_FILES {
        let Some(file) = queue.pop() else { break };
        let config = GitConfig::read(&file);
        for folder in config.values("safe", "directory") {
            match folder {
                // An empty value discards those before it.
                "" => trusted.clear(),
                _ => trusted.push(expand(folder).map_or(folder.to_owned(), |path| path.to_string_lossy().into_owned())),
            }
        }
        let included = config.values("include", "path").filter(|path| !path.is_empty());
        let folder = file.parent().unwrap_or(home);
        queue.extend(included.map(|path| expand(path).unwrap_or_else(|| folder.join(path))));
    }
    trusted
}

/// The file with the user's own list of ignored files, which needn't exist. Included files aren't read.
pub fn own_ignore_file(home: &Path, config_home: Option<&Path>) -> PathBuf {
    let config_home = config_home.map_or_else(|| home.join(".config"), Path::to_owned);
    let named = [home.join(".gitconfig"), config_home.join("git/config")].iter().find_map(|file| {
        GitConfig::read(file)
            .values("core", "excludesfile")
            .last()
            .filter(|path| !path.is_empty())
            .map(ToOwned::to_owned)
    });
    match named {
        Some(path) => path.strip_prefix("~/").map_or_else(|| PathBuf::from(&path), |path| home.join(path)),
        None => config_home.join("git/ignore"),
    }
}

/// The name of a section header and the rest of its line.
fn section_header(text: &str) -> Option<(String, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => {
                // `[section.sub]` is the old spelling of `[section "sub"]`.
                let name = text[..at].split([' ', '\t', '"', '.']).next()?;
                return Some((name.to_lowercase(), &text[at + 1..]));
            }
            _ => {}
        }
    }
    None
}

/// A value without its quotes, escapes and trailing comment.
fn unquote(value: &str) -> String {
    let (mut unquoted, mut quoted) = (String::new(), false);
    let mut chars = value.trim_start().chars();
    // The length up to the last character that isn't trailing white space.
    let mut length = 0;
    while let Some(char) = chars.next() {
        match char {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => unquoted.extend(chars.next().map(|char| match char {
                'n' => '\n',
                't' => '\t',
                other => other,
            })),
            other => unquoted.push(other),
        }
        if quoted || !char.is_whitespace() {
            length = unquoted.len();
        }
    }
    unquoted.truncate(length);
    unquoted
}

/// Opens a regular file, without blocking on a FIFO.
pub fn open_regular_file(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// The text of a regular file, up to [`MAX_FILE_BYTES`].
pub(super) fn read_text(path: &Path) -> Option<String> {
    read_text_up_to(path, MAX_FILE_BYTES)
}

/// The text of a regular file, up to `max_bytes`.
pub(super) fn read_text_up_to(path: &Path, max_bytes: u64) -> Option<String> {
    let bytes = read_up_to(open_regular_file(path)?, max_bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_parsed_as_git_parses_it() {
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
    fn a_fifo_does_not_block() {
        let folder = tempfile::TempDir::new().unwrap();
        let pipe = folder.path().join("config");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(GitConfig::read(&pipe).entries.len(), 0);
    }
}
