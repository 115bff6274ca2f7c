//! System files that commands don't see although the user could read them.

use std::collections::BTreeSet;
use std::fs::{self, FileType};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders with sockets of services and with home folders.
const HIDDEN_DIRS: [&str; 4] = ["/run", "/var/run", "/home", "/root"];
/// Folders in which files that only root may read are searched for, with the depth.
const ROOT_SEARCH_DIRS: [(&str, usize); 8] = [
    ("/etc", 4),
    ("/var", 3),
    ("/srv", 4),
    ("/opt", 4),
    ("/mnt", 3),
    ("/media", 3),
    ("/boot", 2),
    ("/usr/local/etc", 3),
];
/// The most entries that are examined.
const MAX_ENTRIES: usize = 20_000;
/// The user ids of people: from `UID_MIN`, see login.defs(5), up to `nobody`.
const HUMAN_UIDS: std::ops::Range<u32> = 1000..65_534;

/// Folders that commands see as empty.
pub(super) fn hidden_dirs() -> BTreeSet<PathBuf> {
    let known = HIDDEN_DIRS.iter().map(PathBuf::from);
    let homes = read("/etc/passwd").lines().filter_map(human_home).collect::<Vec<_>>();
    // Not shared paths such as `/` or `/nonexistent`, nor system folders.
    let personal = homes.into_iter().filter(|home| {
        home.components().count() > 2
            && !["/usr", "/bin", "/etc", "/dev", "/proc", "/sys"].iter().any(|top| home.starts_with(top))
    });
    let all = known.chain(personal).filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_dir());
    let all: BTreeSet<PathBuf> = all.collect();
    let outermost = all.iter().filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above)));
    outermost.cloned().collect()
}

/// The home folder in a line of passwd(5), if it belongs to a person.
fn human_home(line: &str) -> Option<PathBuf> {
    let fields: Vec<&str> = line.split(':').collect();
    let number: u32 = fields.get(2)?.parse().ok()?;
    let home = Path::new(fields.get(5)?);
    (HUMAN_UIDS.contains(&number) && home.is_absolute()).then(|| home.to_owned())
}

/// Files such as `/etc/shadow` that only root or a group may read, if this process runs as root. For other users, the
/// system denies access anyway.
pub(super) fn root_only_paths() -> BTreeSet<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return BTreeSet::new();
    }
    unreadable_by_others(&ROOT_SEARCH_DIRS.map(|(top, depth)| (PathBuf::from(top), depth)))
}

/// Files and folders that others may not read, in these folders, each searched to its depth.
pub(super) fn unreadable_by_others(tops: &[(PathBuf, usize)]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut looked_at = 0;
    for top in tops {
        let mut open = vec![top.clone()];
        while let Some((folder, depth)) = open.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                looked_at += 1;
                if looked_at > MAX_ENTRIES {
                    return found;
                }
                // Of links, only the targets matter.
                let is_examined = |kind: &FileType| kind.is_dir() || kind.is_file();
                let Some(kind) = entry.file_type().ok().filter(is_examined) else { continue };
                let Ok(metadata) = entry.metadata() else { continue };
                // Each hidden file costs every command a mount.
                let is_empty = || match kind.is_dir() {
                    true => fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none()),
                    false => metadata.len() == 0,
                };
                let open_to_all = metadata.mode() & if kind.is_dir() { 0o005 } else { 0o004 } != 0;
                if !open_to_all && !is_empty() {
                    found.insert(entry.path());
                } else if open_to_all && kind.is_dir() && depth > 1 {
                    open.push((entry.path(), depth - 1));
                }
            }
        }
    }
    found
}

/// The socket files of running services that `/proc/net/unix` lists, of those paths that commands would see.
pub(super) fn listening_sockets(is_visible: impl Fn(&Path) -> bool) -> BTreeSet<PathBuf> {
    let listed = read("/proc/net/unix");
    let paths: BTreeSet<&Path> =
        listed.lines().filter_map(|line| line.split_whitespace().nth(7)).map(Path::new).collect();
    let sockets = paths.into_iter().filter(|path| path.is_absolute()).filter_map(|path| path.canonicalize().ok());
    let sockets = sockets.filter(|path| is_visible(path));
    sockets.filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())).collect()
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_have_home_folders() {
        let home = |line| human_home(line).map(|home| home.display().to_string());
        assert_eq!(home("ada:x:1000:1000:Ada:/data/ada:/bin/bash").as_deref(), Some("/data/ada"));
        for line in
            ["daemon:x:1:1:daemon:/usr/sbin:/bin/false", "nobody:x:65534:65534::/nonexistent:/bin/false", "", "a:b"]
        {
            assert_eq!(home(line), None, "{line}");
        }
    }

    #[test]
    fn listening_sockets_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("service.sock");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let found = listening_sockets(|_| true);
        assert!(found.contains(&path), "{found:?}");
        assert!(!listening_sockets(|found| *found != path).contains(&path));
    }

    #[test]
    fn files_that_others_may_not_read_are_found_down_to_the_search_depth() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("srv");
        for (name, mode) in [("a/b/secret", 0o600), ("a/b/c/secret", 0o600), ("a/open", 0o644), ("closed/x", 0o644)] {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        for open in ["", "a", "a/b", "a/b/c"] {
            fs::set_permissions(top.join(open), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        let found = unreadable_by_others(&[(top.clone(), 3)]);
        assert_eq!(found, BTreeSet::from([top.join("a/b/secret"), top.join("closed")]));
        assert!(ROOT_SEARCH_DIRS.iter().any(|(top, depth)| *top == "/srv" && *depth >= 3));
    }

    #[test]
    fn only_root_has_root_only_paths() {
        let hidden = root_only_paths();
        if rustix::process::geteuid().is_root() {
            assert!(hidden.contains(Path::new("/etc/shadow")), "{hidden:?}");
            assert!(!hidden.contains(Path::new("/etc/passwd")), "{hidden:?}");
        } else {
            assert!(hidden.is_empty(), "{hidden:?}");
        }
    }
}
