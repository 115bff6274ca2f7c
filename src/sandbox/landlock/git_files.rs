//! Keeps legwork's own git to the files that it needs. It needn't keep a program from harm as the tiers do: only links that lead
//! elsewhere must not be followed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use landlock::{Access, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError};
use rustix::thread::set_no_new_privs;

use super::{DEVICES, LATEST_ABI, allow, restrict_self, version};
use crate::git::{GitFiles, Restriction};

/// What every program needs to start: the loader, libraries and their lists. None of it is secret.
const SYSTEM_PATHS: [&str; 14] = [
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local/lib",
    "/usr/share",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/gitattributes",
];
/// The folders beside that of a program with what belongs to it.
const PROGRAM_FOLDERS: [&str; 4] = ["lib", "lib64", "libexec", "share"];

#[derive(Debug)]
struct GitRules(Arc<OwnedFd>);

/// Makes the rules for git. There are none on a kernel without landlock.
///
/// # Errors
/// If the kernel refuses them.
pub fn restrict_git(files: &GitFiles) -> io::Result<Option<Arc<dyn Restriction>>> {
    if version().is_err() {
        return Ok(None);
    }
    let rules = create_ruleset(files).map_err(io::Error::other)?;
    Ok(rules.map(|rules| Arc::new(GitRules(Arc::new(rules))) as Arc<dyn Restriction>))
}

fn create_ruleset(files: &GitFiles) -> Result<Option<OwnedFd>, RulesetError> {
    let read = AccessFs::from_read(LATEST_ABI);
    let kinds = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::MakeFifo;
    let write = AccessFs::from_all(LATEST_ABI) & !(kinds | AccessFs::IoctlDev | AccessFs::Execute);
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(LATEST_ABI))?.create()?;
    for path in SYSTEM_PATHS.iter().map(PathBuf::from).chain(program_paths(&files.program)) {
        rules = allow(rules, &path, read)?;
    }
    for path in DEVICES {
        rules = allow(rules, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    let contents: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    for (folders, access) in [(&files.readable, contents), (&files.writable, write)] {
        for folder in folders {
            rules = rules.add_rule(PathBeneath::new(folder.as_fd(), access))?;
        }
    }
    Ok(rules.into())
}

/// The program and what belongs to it.
fn program_paths(program: &Path) -> Vec<PathBuf> {
    let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let prefix = program.parent().and_then(Path::parent).map(Path::to_owned);
    let beside = prefix.into_iter().flat_map(|prefix| PROGRAM_FOLDERS.map(|name| prefix.join(name)));
    beside.chain([program.clone()]).collect()
}

impl Restriction for GitRules {
    #[allow(unsafe_code)]
    fn restrict(&self, command: &mut Command) {
        let rules = Arc::clone(&self.0);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                set_no_new_privs(true)?;
                restrict_self(&rules)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use std::process::Stdio;

    use super::*;
    use crate::git::program::{git_program, run};
    use crate::git::{GitProgram, Repository};

    /// Whether a command succeeds, and what it prints.
    fn outcome(command: Command) -> (bool, String) {
        let output = run(command).unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    #[test]
    fn git_follows_no_link_out_of_what_it_needs() {
        if version().is_err() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let [workspace, outside, copy, home] = ["ws", "outside", "copy", "home"].map(|name| root.join(name));
        for folder in [&workspace, &outside, &copy, &home] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(outside.join("secret"), "outside\n").unwrap();
        fs::create_dir(workspace.join("d")).unwrap();
        fs::write(workspace.join("d/secret"), "inside\n").unwrap();
        let plain = git_program();
        for arguments in
            [&["init", "-q"][..], &["add", "-A"], &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "i"]]
        {
            let mut command = plain.in_own_repository(&workspace);
            command.args(arguments);
            let done = outcome(command);
            assert!(done.0, "{done:?}");
        }
        let git = GitProgram::new(plain.path().to_owned(), root.clone(), restrict_git);
        let repository = Repository::discover(&workspace).unwrap();
        let tree = git.working_tree(&repository).unwrap();
        // Git reads the tree, and adds an object and an index.
        fs::write(workspace.join("new"), "new\n").unwrap();
        for arguments in [&["add", "--all"][..], &["write-tree"], &["status", "--porcelain"]] {
            let done = outcome(tree.command(arguments));
            assert!(done.0, "{arguments:?}: {done:?}");
        }
        let written = outcome(tree.command(&["write-tree"])).1;
        let is_denied = |command: Command| {
            let (succeeded, text) = outcome(command);
            assert!(!succeeded && text.contains("ermission denied"), "{text}");
        };
        // What a folder that is swapped for a link leads to.
        symlink(&outside, workspace.join("link")).unwrap();
        for path in [outside.join("secret"), workspace.join("link/secret")] {
            is_denied(tree.command(&["hash-object", "--no-filters", "--", &path.to_string_lossy()]));
        }
        let prefix = |folder: &Path| format!("--prefix={}/", folder.display());
        for folder in [&outside, &workspace.join("other")] {
            is_denied(tree.command(&["checkout-index", "--all", &prefix(folder)]));
        }
        // Filling a folder changes nothing else, and adds no objects.
        let opened = fs::File::open(&copy).unwrap();
        let fill = git.filled_tree(&repository, &copy, opened.as_fd()).unwrap();
        let filled = outcome(fill.command(&["read-tree", "--reset", "-u", &written]));
        assert!(filled.0 && fs::read_to_string(copy.join("d/secret")).unwrap() == "inside\n", "{filled:?}");
        for folder in [&outside, &workspace.join("other")] {
            is_denied(fill.command(&["checkout-index", "--all", &prefix(folder)]));
        }
        fs::write(copy.join("more"), "more\n").unwrap();
        let mut add = fill.command(&["hash-object", "-w", "more"]);
        add.stdin(Stdio::null());
        let added = outcome(add);
        assert!(!added.0 && added.1.contains("insufficient permission"), "{added:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        // Another folder at the path of the one to fill.
        fs::rename(&copy, root.join("moved")).unwrap();
        symlink(&outside, &copy).unwrap();
        let refilled = outcome(fill.command(&["read-tree", "--reset", "-u", "HEAD"]));
        assert!(fs::read_dir(&outside).unwrap().count() == 1 && !refilled.0, "{refilled:?}");
    }
}
