//! What commands may read of the machine in landlock's tier. Landlock can't hide single paths, so everything that may be read
//! is listed around what may not.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::hidden_paths;

/// Folders that are hidden on every machine: home folders, temporary files, sockets and keys of services, and devices. A few
/// files in `/run` and `/dev` are allowed elsewhere.
const HIDDEN: [&str; 8] = ["/home", "/root", "/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/lost+found"];
/// Readable in spite of that: the resolver's configuration, which `/etc/resolv.conf` links to.
const RESOLVER_PATHS: [&str; 3] = ["/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf"];
/// How deep folders in `/` are searched for files that only root may read.
const SEARCH_DEPTHS: [(&str, usize); 10] = [
    ("/etc", 8),
    ("/var", 3),
    ("/srv", 4),
    ("/opt", 4),
    ("/mnt", 3),
    ("/media", 3),
    ("/usr", 0),
    ("/nix", 0),
    ("/proc", 0),
    ("/sys", 0),
];
/// Folders that are searched although the folder around them isn't, as in bubblewrap's tier.
const EXTRA_SCANS: [(&str, usize); 1] = [("/usr/local/etc", 3)];
/// The depth for other folders.
const DEFAULT_SEARCH_DEPTH: usize = 2;
/// The most entries that are examined. Further folders are judged by their own permissions only.
const MAX_ENTRIES: usize = 50_000;

/// The paths of the machine that commands may read.
#[derive(Debug, Default)]
pub(super) struct ReadablePaths {
    /// Files, and folders with everything in them.
    pub(super) whole: Vec<PathBuf>,
    /// Folders whose entries commands may list, with those of folders in them.
    pub(super) listed: Vec<PathBuf>,
}

/// Finds the readable paths. `home` is hidden as well. For root, who can read everything, files that not everyone may read are
/// hidden, too: `/etc/shadow`, the machine's keys, data of services.
pub(super) fn find_readable(home: Option<&Path>, is_root: bool) -> ReadablePaths {
    let mut hidden: Vec<PathBuf> = HIDDEN.iter().map(PathBuf::from).collect();
    hidden.extend(hidden_paths::hidden_dirs());
    hidden.extend(home.filter(|home| home.parent().is_some()).map(Path::to_owned));
    let closed = if is_root {
        hidden_paths::unreadable_by_others(&EXTRA_SCANS.map(|(top, depth)| (PathBuf::from(top), depth)))
    } else {
        BTreeSet::new()
    };
    let mut search = ReadableSearch { hidden, closed, is_root, left: MAX_ENTRIES, found: ReadablePaths::default() };
    let all = Path::new("/");
    if search.scan(all, None) == Visibility::Whole {
        search.found.whole.push(all.to_owned());
    }
    search.found.whole.extend(RESOLVER_PATHS.iter().map(PathBuf::from).filter(|path| path.exists()));
    search.found
}

struct ReadableSearch {
    hidden: Vec<PathBuf>,
    /// Files that only root may read in folders that aren't searched otherwise.
    closed: BTreeSet<PathBuf>,
    is_root: bool,
    left: usize,
    found: ReadablePaths,
}

/// How much of a folder may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Whole,
    /// All names, but not all contents.
    Names,
    /// Some entries, which were added to the result.
    Partial,
}

impl ReadableSearch {
    fn scan(&mut self, folder: &Path, depth: Option<usize>) -> Visibility {
        let Ok(entries) = fs::read_dir(folder) else { return Visibility::Whole };
        let mut seen = Visibility::Whole;
        let mut whole = Vec::new();
        for entry in entries.flatten() {
            self.left = self.left.saturating_sub(1);
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_symlink() {
                // Only its target matters.
                continue;
            }
            let inside = if self.hidden.contains(&path) {
                Visibility::Partial
            } else if self.is_root && !is_world_readable(&metadata) {
                Visibility::Names
            } else if metadata.is_dir() {
                self.inside(&path, depth)
            } else {
                Visibility::Whole
            };
            match inside {
                Visibility::Whole => whole.push(path),
                Visibility::Names if seen == Visibility::Whole => seen = Visibility::Names,
                Visibility::Names => {}
                Visibility::Partial => seen = Visibility::Partial,
            }
        }
        if seen != Visibility::Whole {
            self.found.whole.append(&mut whole);
        }
        if seen == Visibility::Names {
            self.found.listed.push(folder.to_owned());
        }
        seen
    }

    fn inside(&mut self, folder: &Path, depth: Option<usize>) -> Visibility {
        let depth = depth.unwrap_or_else(|| {
            SEARCH_DEPTHS
                .iter()
                .find(|(name, _)| folder == Path::new(name))
                .map_or(DEFAULT_SEARCH_DEPTH, |(_, depth)| *depth)
        });
        let contains_hidden = self.hidden.iter().any(|hidden| hidden.starts_with(folder))
            || self.closed.range(folder.to_owned()..).next().is_some_and(|closed| closed.starts_with(folder));
        if contains_hidden || (self.is_root && depth > 0 && self.left > 0) {
            self.scan(folder, Some(depth.saturating_sub(1)))
        } else {
            Visibility::Whole
        }
    }
}

fn is_world_readable(metadata: &Metadata) -> bool {
    let needed = if metadata.is_dir() { 0o005 } else { 0o004 };
    metadata.permissions().mode() & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(hidden: &Path, is_root: bool, folder: &Path) -> (Visibility, Vec<String>) {
        let (hidden, found) = (vec![hidden.to_owned()], ReadablePaths::default());
        let mut search = ReadableSearch { hidden, closed: BTreeSet::new(), is_root, left: MAX_ENTRIES, found };
        let seen = search.scan(folder, Some(5));
        let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
        let mut found: Vec<_> = search.found.whole.iter().map(name).collect();
        found.sort();
        (seen, found)
    }

    #[test]
    fn siblings_of_hidden_folders_are_readable() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        fs::create_dir_all(root.join("a/home/x")).unwrap();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::write(root.join("f"), "").unwrap();
        assert_eq!(
            search(&root.join("a/home"), false, root),
            (Visibility::Partial, vec!["a/b".to_owned(), "f".to_owned()])
        );
        assert_eq!(search(&root.join("none"), false, root), (Visibility::Whole, vec![]));
    }

    /// Makes folders readable for all, whatever the umask is.
    fn open_to_all(root: &Path, folders: &[&str]) {
        for folder in folders {
            fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn root_only_files_are_left_out_of_folders_that_are_not_searched() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("usr/local/etc/app")).unwrap();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        open_to_all(&root, &["usr", "usr/bin", "usr/local", "usr/local/etc", "usr/local/etc/app"]);
        let secret = root.join("usr/local/etc/app/secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let closed = hidden_paths::unreadable_by_others(&[(root.join("usr/local/etc"), 3)]);
        for (closed, expected) in [(BTreeSet::new(), vec!["usr"]), (closed, vec!["usr/bin"])] {
            let (hidden, found) = (vec![root.join("other")], ReadablePaths::default());
            let mut search = ReadableSearch { hidden, closed, is_root: true, left: MAX_ENTRIES, found };
            let mut whole = match search.inside(&root, Some(0)) {
                Visibility::Whole => vec!["usr".to_owned()],
                _ => search
                    .found
                    .whole
                    .iter()
                    .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
                    .collect(),
            };
            whole.sort();
            assert_eq!(whole, expected);
        }
    }

    #[test]
    fn for_root_only_world_readable_files_are_readable() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        fs::create_dir_all(root.join("etc/open")).unwrap();
        fs::create_dir_all(root.join("etc/private/deep")).unwrap();
        open_to_all(root, &["etc"]);
        for (name, mode) in [("etc/shadow", 0o640), ("etc/passwd", 0o644), ("etc/private", 0o710), ("etc/open", 0o755)]
        {
            let path = root.join(name);
            if !path.exists() {
                fs::write(&path, "").unwrap();
            }
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let nothing = Path::new("/nowhere");
        assert_eq!(
            search(nothing, true, root),
            (Visibility::Names, vec!["etc/open".to_owned(), "etc/passwd".to_owned()])
        );
        assert_eq!(search(nothing, false, root), (Visibility::Whole, vec![]));
    }
}
