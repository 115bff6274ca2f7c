//! Finds programs that are started outside of the sandbox, or to make it. A command must not have been able to put them there.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

#[cfg(target_os = "linux")]
use super::policy::SandboxPolicy;

/// The owner of files whose real owner has no number here: user_namespaces(7).
#[cfg(target_os = "linux")]
const OVERFLOW_UID: u32 = 65_534;

/// Looks for a program in absolute folders. Files in or below a `writable` folder are skipped: a tool may have written them,
/// or they came with the workspace. Links are resolved unless that would change the program's name.
pub fn find(name: &str, path: impl Iterator<Item = PathBuf>, writable: &[PathBuf]) -> Option<PathBuf> {
    let writable: Vec<PathBuf> = writable.iter().map(|folder| canonical(folder)).collect();
    let is_writable = |file: &Path| writable.iter().any(|folder| file.starts_with(folder));
    let mut files = path.filter(|folder| folder.is_absolute()).filter_map(|folder| {
        let link = folder.join(name);
        Some((link.canonicalize().ok()?, link, folder))
    });
    // The folder counts as well as the file: a link in it may lead elsewhere tomorrow.
    let (file, link, _) =
        files.find(|(file, _, folder)| is_program(file) && !is_writable(file) && !is_writable(&canonical(folder)))?;
    // Some programs do different things under different names.
    Some(if file.file_name() == link.file_name() { file } else { link })
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

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
    let own = rustix::process::geteuid().as_raw();
    for above in path.ancestors() {
        let metadata = above.metadata().ok()?;
        let is_sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if metadata.mode() & 0o002 != 0 && !is_sticky {
            return Some(format!("every user may write to {}", above.display()));
        }
        if ![0, own, OVERFLOW_UID].contains(&metadata.uid()) {
            return Some(format!("{} belongs to another user", above.display()));
        }
    }
    None
}
