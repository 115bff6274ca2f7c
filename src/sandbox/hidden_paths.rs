//! What of the system commands don't see, though we could read it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders of services' sockets, and of other people's files.
const HIDDEN_DIRS: [&str; 4] = ["/run", "/var/run", "/home", "/root"];
/// Where root looks for what only root may read, with how deep.
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
/// How many entries are looked at there.
const LOOKED_AT: usize = 20_000;
/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Ordinary users' numbers: login.defs(5), `UID_MIN` and `nobody`.
const HUMAN_UIDS: std::ops::Range<u32> = 1000..65_534;

/// Folders that are shown empty.
pub(super) fn hidden_dirs() -> BTreeSet<PathBuf> {
    let known = HIDDEN_DIRS.iter().map(PathBuf::from);
    let homes = read("/etc/passwd").lines().filter_map(human_home).collect::<Vec<_>>();
    // A home folder that is no one's own, such as `/` or `/nonexistent`, or one that is the system's.
    let own = homes.into_iter().filter(|home| {
        home.components().count() > 2
            && !["/usr", "/bin", "/etc", "/dev", "/proc", "/sys"].iter().any(|top| home.starts_with(top))
    });
    let all = known.chain(own).filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_dir());
    let all: BTreeSet<PathBuf> = all.collect();
    let outermost = all.iter().filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above)));
    outermost.cloned().collect()
}

/// The home folder in a line of passwd(5), where it is a person's.
fn human_home(line: &str) -> Option<PathBuf> {
    let fields: Vec<&str> = line.split(':').collect();
    let number: u32 = fields.get(2)?.parse().ok()?;
    let home = Path::new(fields.get(5)?);
    (HUMAN_UIDS.contains(&number) && home.is_absolute()).then(|| home.to_owned())
}

/// What only its owner or a group may read, where the owner is root and we are it: `/etc/shadow` and its like. Anyone else
/// is kept out by the system itself.
pub(super) fn root_only_paths() -> BTreeSet<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return BTreeSet::new();
    }
    unreadable_by_others(&ROOT_SEARCH_DIRS.map(|(top, depth)| (PathBuf::from(top), depth)))
}

/// What others may not read in some folders, each searched as many folders deep.
pub(super) fn unreadable_by_others(tops: &[(PathBuf, usize)]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut looked_at = 0;
    for top in tops {
        let mut open = vec![top.clone()];
        while let Some((folder, depth)) = open.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                looked_at += 1;
                if looked_at > LOOKED_AT {
                    return found;
                }
                let Ok(metadata) = entry.metadata() else { continue };
                let kind = metadata.file_type();
                // Each costs every command a mount.
                let is_empty = || match kind.is_dir() {
                    true => fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none()),
                    false => metadata.len() == 0,
                };
                let open_to_all = metadata.mode() & if kind.is_dir() { 0o005 } else { 0o004 } != 0;
                if !open_to_all && (kind.is_dir() || kind.is_file()) && !is_empty() {
                    found.insert(entry.path());
                } else if open_to_all && kind.is_dir() && depth > 1 {
                    open.push((entry.path(), depth - 1));
                }
            }
        }
    }
    found
}

/// The sockets of services that run now, as far as they lie in the file system and we know of them.
pub(super) fn listening_sockets() -> BTreeSet<PathBuf> {
    let listed = read("/proc/net/unix");
    let paths = listed.lines().filter_map(|line| line.split_whitespace().nth(7)).map(PathBuf::from);
    let sockets = paths.filter(|path| path.is_absolute()).filter_map(|path| path.canonicalize().ok());
    sockets.filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())).collect()
}

/// Where the names of the network's machines are looked up, without links.
pub(super) fn resolv_conf() -> Option<PathBuf> {
    Path::new("/etc/resolv.conf").canonicalize().ok()
}

fn read(path: &str) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    if file.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_have_homes_and_services_do_not() {
        let home = |line| human_home(line).map(|home| home.display().to_string());
        assert_eq!(home("ada:x:1000:1000:Ada:/data/ada:/bin/bash").as_deref(), Some("/data/ada"));
        for line in
            ["daemon:x:1:1:daemon:/usr/sbin:/bin/false", "nobody:x:65534:65534::/nonexistent:/bin/false", "", "a:b"]
        {
            assert_eq!(home(line), None, "{line}");
        }
    }

    #[test]
    fn sockets_that_are_listened_on_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("service.sock");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(listening_sockets().contains(&path), "{:?}", listening_sockets());
    }

    #[test]
    fn what_others_may_not_read_is_found_as_deep_as_its_folder_is_searched() {
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
    fn root_alone_has_something_to_hide() {
        let hidden = root_only_paths();
        if rustix::process::geteuid().is_root() {
            assert!(hidden.contains(Path::new("/etc/shadow")), "{hidden:?}");
            assert!(!hidden.contains(Path::new("/etc/passwd")), "{hidden:?}");
        } else {
            assert!(hidden.is_empty(), "{hidden:?}");
        }
    }
}
