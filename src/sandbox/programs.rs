//! Finds programs that are started outside of the sandbox, or to make it, and cleans what they are started with. A command must
//! not have been able to put them there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, access};

#[cfg(target_os = "linux")]
use super::policy::SandboxPolicy;
use crate::text::bounded::read_up_to;
use crate::workspace::path_resolver::canonical_as_far_as_possible;

/// The owner of files whose real owner has no number here: user_namespaces(7).
#[cfg(target_os = "linux")]
const OVERFLOW_UID: u32 = 65_534;

/// Looks for a program in absolute folders. Those that can be changed in `writable` folders are skipped: a tool may have written
/// them, or they came with the workspace. Links are resolved unless that would change the program's name.
pub fn find(name: &str, path: impl Iterator<Item = PathBuf>, writable: &[PathBuf]) -> Option<PathBuf> {
    find_outside(name, path, &Folders::new(writable))
}

/// The same for folders that are known already.
pub fn find_outside(name: &str, path: impl Iterator<Item = PathBuf>, writable: &Folders) -> Option<PathBuf> {
    let mut files = path.filter(|folder| folder.is_absolute()).filter_map(|folder| {
        let link = folder.join(name);
        Some((link.canonicalize().ok()?, link))
    });
    let (file, link) = files.find(|(file, link)| is_program(file) && !can_be_changed(link, writable))?;
    // Some programs do different things under different names.
    Some(if file.file_name() == link.file_name() { file } else { link })
}

/// Whether a program can be changed by whoever can write to these folders: the file itself, a link on the way to it, or the
/// program that its first line names.
pub fn can_be_changed(program: &Path, writable: &Folders) -> bool {
    let interpreter = || {
        let start = read_up_to(File::open(program).ok()?, MAX_FIRST_LINE).ok()?;
        let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.to_owned();
        String::from_utf8(line).ok()
    };
    writable.lead_through(program) || interpreter().is_some_and(|line| writable.are_named_in(&line))
}

/// How much of the first line of a script is read, in bytes.
const MAX_FIRST_LINE: u64 = 4096;
/// The most links that Linux follows in one path.
const MAX_LINKS: u32 = 40;

/// Folders that commands can write to.
#[derive(Debug, Clone, Default)]
pub struct Folders(Vec<PathBuf>);

impl Folders {
    /// These folders. Some may not exist yet.
    pub fn new(folders: &[PathBuf]) -> Self {
        Self(folders.iter().map(|folder| canonical_as_far_as_possible(folder)).collect())
    }

    /// Whether an absolute path leads through one of the folders: it is in one, a link on its way is in one, or leads into one.
    /// It needn't exist.
    pub fn lead_through(&self, path: &Path) -> bool {
        let is_inside = |path: &Path| self.0.iter().any(|folder| path.starts_with(folder));
        let parts =
            |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).rev().collect::<Vec<OsString>>();
        let (mut rest, mut at, mut links) = (parts(path), PathBuf::from("/"), 0);
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => drop(at.pop()),
                Some(Component::Normal(name)) => {
                    let next = at.join(name);
                    // The folder itself can be on the way to what is above it.
                    if is_inside(&next) && !self.0.contains(&next) {
                        return true;
                    }
                    match fs::read_link(&next) {
                        Ok(_) if links == MAX_LINKS => return true,
                        Ok(target) => {
                            links += 1;
                            rest.extend(parts(&target));
                        }
                        Err(_) => at = next,
                    }
                }
                _ => {}
            }
        }
        // On a file system that treats different names as equal.
        is_inside(&canonical_as_far_as_possible(path))
    }

    /// Whether a text, such as the value of a variable, names a path that leads through one of the folders.
    pub fn are_named_in(&self, text: &str) -> bool {
        let separators = [':', ';', ',', '=', '"', '\'', '@', '(', ')', '|', '<', '>', '&', '[', ']', '{', '}'];
        let is_named = |part: &str| {
            // `file:///folder`, `-I/folder`
            part.find('/').is_some_and(|start| self.lead_through(Path::new(&part[start..])))
        };
        let parts = text.split(|letter: char| letter.is_whitespace() || separators.contains(&letter));
        // A name may have any of these characters.
        parts.chain([text]).any(is_named)
    }

    /// The folders for temporary files, those outside first.
    pub fn temporary_folders(&self) -> Vec<PathBuf> {
        let known = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
        let candidates = std::iter::once(std::env::temp_dir()).chain(known);
        let existing = candidates.filter_map(|folder| folder.canonicalize().ok()).filter(|folder| folder.is_dir());
        let (mut outside, inside): (Vec<_>, Vec<_>) = existing.partition(|folder| !self.lead_through(folder));
        // If the workspace is `/`, nothing is outside.
        outside.extend(inside);
        outside
    }

    /// The absolute folders of a `PATH` that don't lead through one of the folders.
    pub fn clean_path(&self, path: &str) -> String {
        let is_kept = |folder: &&str| folder.starts_with('/') && !self.lead_through(Path::new(folder));
        path.split(':').filter(is_kept).collect::<Vec<_>>().join(":")
    }

    /// The environment of a program that runs outside of the sandbox: without variables that name something in the folders, which
    /// it could load or run, and with a `PATH` without them.
    pub fn clean_variables(&self, variables: &mut BTreeMap<String, String>) {
        let path = variables.get("PATH").map(|path| self.clean_path(path));
        variables.retain(|_, value| !self.are_named_in(value));
        // An empty one would mean the current folder to some programs.
        let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT_PATH.to_owned());
        variables.insert("PATH".to_owned(), path);
    }
}

/// The `PATH` where nothing of the user's is left.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// Finds the first program of this name in `PATH` that no other user and no earlier command could have put there.
///
/// # Errors
/// Why the first program found isn't trusted; `None` if there is none.
#[cfg(target_os = "linux")]
pub(super) fn find_trusted(name: &str, policy: &SandboxPolicy) -> Result<PathBuf, Option<String>> {
    let mut distrusted = None;
    for folder in policy.path_dirs.iter().filter(|folder| folder.is_absolute()) {
        let Ok(file) = folder.join(name).canonicalize() else { continue };
        if !is_program(&file) {
            continue;
        }
        // The folders on the way count as well as the file.
        let paths = [folder.canonicalize().unwrap_or_default(), folder.clone(), file.clone()];
        match paths.iter().find_map(|path| distrust_reason(path, policy)) {
            None => return Ok(file),
            Some(reason) => {
                distrusted.get_or_insert_with(|| format!("{} isn't trusted: {reason}", file.display()));
            }
        }
    }
    Err(distrusted)
}

/// Why a path can't be trusted, if it can't.
#[cfg(target_os = "linux")]
fn distrust_reason(path: &Path, policy: &SandboxPolicy) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    if policy.writable_roots().any(|root| path.starts_with(root)) {
        return Some(format!("commands may write to {}", path.display()));
    }
    let user = rustix::process::geteuid().as_raw();
    for above in path.ancestors() {
        let metadata = above.metadata().ok()?;
        let is_sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if metadata.mode() & 0o002 != 0 && !is_sticky {
            return Some(format!("every user may write to {}", above.display()));
        }
        if ![0, user, OVERFLOW_UID].contains(&metadata.uid()) {
            return Some(format!("{} belongs to another user", above.display()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_that_commands_can_redirect_is_found_by_each_of_its_steps() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for made in ["ws/bin", "ws/sub", "out/bin", "other"] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        fs::write(root.join("out/bin/git"), "").unwrap();
        // Out of the workspace, through it, and out of it again.
        symlink(root.join("out"), root.join("ws/link")).unwrap();
        symlink(root.join("ws/link/bin"), root.join("other/bin")).unwrap();
        symlink("loop", root.join("other/loop")).unwrap();
        symlink(root.join("ws"), root.join("alias")).unwrap();
        let folders = Folders::new(&[root.join("alias")]);
        for inside in [
            "ws/bin",
            "ws",
            "ws/new/x",
            "alias/x",
            "other/bin/git",
            "ws/link/bin/git",
            "ws/sub/../../out",
            "other/loop/x",
        ] {
            assert!(folders.lead_through(&root.join(inside)), "{inside}");
        }
        for outside in ["out/bin/git", "other/new", "ws2", "ws/../out", "wsx/bin"] {
            assert!(!folders.lead_through(&root.join(outside)), "{outside}");
        }
        let ws = root.join("ws/x").display().to_string();
        for named in [
            &format!("--require={ws}"),
            &format!("-I{ws}"),
            &format!("a:{ws}"),
            &format!("file://{ws}"),
            &format!("\"{ws}\""),
        ] {
            assert!(folders.are_named_in(named), "{named}");
        }
        assert!(!folders.are_named_in(&root.join("out:a/b c=d").display().to_string()));
        let path = format!("{0}/out/bin:{0}/ws/bin:.::bin:{0}/other/bin:/usr/bin", root.display());
        assert_eq!(folders.clean_path(&path), format!("{}/out/bin:/usr/bin", root.display()));
    }
}
