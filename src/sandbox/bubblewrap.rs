//! The tier `bubblewrap`: namespaces of their own for every command, made by `bwrap`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::MemfdFlags;

use super::landlock::SocketScope;
use super::mounts::{HostPaths, MountLayout};
use super::scratch_dirs::ScratchDirs;
use super::tier_probe::{self, ProbeError};
use super::{PreparedCommand, SandboxPolicy, seccomp};
use crate::job::Network;

/// What every command gets. No new privileges is bubblewrap's own doing.
const FLAGS: [&str; 9] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
];

/// The owner of files whose owner has no number here: user_namespaces(7).
const OVERFLOW_UID: u32 = 65_534;

/// What not every machine lets bubblewrap do.
#[derive(Debug, Clone, Copy)]
struct OptionalFeatures {
    /// A `/proc` of the sandbox's own. A container that hides parts of its `/proc` forbids it.
    new_proc: bool,
    /// No further user namespaces. Versions before 0.8 don't know it.
    disable_userns: bool,
    /// A report of whether the command was started. Versions before 0.4 don't know it.
    json_status: bool,
}

/// In the order in which they are tried.
const FEATURE_SETS: [OptionalFeatures; 6] = [
    OptionalFeatures { new_proc: true, disable_userns: true, json_status: true },
    OptionalFeatures { new_proc: true, disable_userns: false, json_status: true },
    OptionalFeatures { new_proc: true, disable_userns: false, json_status: false },
    OptionalFeatures { new_proc: false, disable_userns: true, json_status: true },
    OptionalFeatures { new_proc: false, disable_userns: false, json_status: true },
    OptionalFeatures { new_proc: false, disable_userns: false, json_status: false },
];

/// Starts commands through `bwrap`.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    boundary: SandboxPolicy,
    fixed: HostPaths,
    /// The calls that commands may make; empty where they aren't known for this machine.
    filter: Vec<u8>,
    private: Arc<ScratchDirs>,
    extras: OptionalFeatures,
    /// Around commands that share the machine's network, where the kernel has it.
    scope: Option<SocketScope>,
}

impl Bubblewrap {
    /// Looks for a `bwrap` that can be trusted and tries it as every command will use it. Gives what is lacking, too.
    ///
    /// # Errors
    /// Why it can't be used, in a few words.
    pub(super) fn reach(
        boundary: SandboxPolicy,
        private: Arc<ScratchDirs>,
    ) -> Result<(Self, Option<String>), BubblewrapUnavailable> {
        let program = find(&boundary)?;
        let shell = tier_probe::shell(&boundary).ok_or(BubblewrapUnavailable {
            why: "there is no bash to try it with".to_owned(),
            remedy: Some("Install bash"),
        })?;
        let fixed = HostPaths::detect(&boundary);
        let filter = seccomp::bubblewrap_filter(boundary.network);
        let open = boundary.network == Network::Open;
        // A bwrap with the set-user-id bit needs the privileges that the scope would take from it.
        let gains = fs::metadata(&program).is_ok_and(|metadata| metadata.mode() & 0o4000 != 0);
        let scope = if open && !gains { SocketScope::new().ok() } else { None };
        let mut this = Self { program, boundary, fixed, filter, private, extras: FEATURE_SETS[0], scope };
        let deadline = tier_probe::deadline();
        let mut first = None;
        for extras in FEATURE_SETS {
            this.extras = extras;
            match this.probe(&shell, deadline) {
                Ok(()) => {
                    let mut shortfalls = Vec::new();
                    if !extras.new_proc {
                        shortfalls.push(
                            "the system doesn't let bubblewrap mount a new /proc, so commands see the names and arguments \
                             of other processes",
                        );
                    }
                    if open && this.scope.is_none() {
                        shortfalls.push(
                            "commands with an open network reach abstract unix sockets, such as those of D-Bus and X11: \
                             that takes Linux 6.12 and a bwrap without the set-user-id bit",
                        );
                    }
                    return Ok((this, (!shortfalls.is_empty()).then(|| shortfalls.join("; "))));
                }
                Err(ProbeError::TimedOut) => {
                    return Err(BubblewrapUnavailable { why: ProbeError::TimedOut.to_string(), remedy: None });
                }
                Err(unfit) => first = first.or(Some(unfit)),
            }
        }
        let why = first.map_or_else(String::new, |unfit| unfit.to_string());
        let restriction = restriction(|setting| fs::read_to_string(setting).ok());
        Err(BubblewrapUnavailable {
            why: restriction.map_or(why.clone(), |(what, _)| format!("{why} ({what})")),
            remedy: restriction.map(|(_, remedy)| remedy),
        })
    }

    fn probe(&self, shell: &Path, deadline: std::time::Instant) -> Result<(), ProbeError> {
        // A read-only workspace takes no other kind of mount and fewer of them, so this shows that it can be had, too.
        let mut start = self
            .command(shell, &self.boundary.workspace, &BTreeMap::new(), false)
            .map_err(|error| ProbeError::Fails(error.to_string()))?;
        tier_probe::run(&mut start.command, !self.filter.is_empty(), deadline)
    }

    /// See [`Sandbox::command`](super::Sandbox::command).
    pub(super) fn command(
        &self,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
        read_only: bool,
    ) -> io::Result<PreparedCommand> {
        let OptionalFeatures { new_proc: fresh_processes, disable_userns: no_further_users, json_status: report } =
            self.extras;
        let layout = MountLayout::new(&self.boundary, &self.fixed, &self.private, read_only, fresh_processes);
        let mut arguments: Vec<OsString> = FLAGS.map(OsString::from).into();
        if no_further_users {
            arguments.push("--disable-userns".into());
        }
        if self.boundary.network == Network::None {
            arguments.push("--unshare-net".into());
        }
        arguments.extend(layout.bwrap_arguments());
        arguments.extend(["--chdir".into(), folder.as_os_str().to_owned()]);
        // Not in bubblewrap's own environment, where the dynamic linker would heed some of them before there is a
        // sandbox, nor on its command line, which other people can read.
        let own = [("HOME", layout.home.as_os_str()), ("TMPDIR", OsStr::new("/tmp"))];
        let own_names = own.map(|(name, _)| name);
        let given = variables.iter().filter(|(name, _)| !own_names.contains(&name.as_str()));
        let given = given.map(|(name, value)| (name.as_str(), OsStr::new(value)));
        for (name, value) in given.chain(own) {
            arguments.extend(["--setenv".into(), name.into(), value.to_owned()]);
        }
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir("/");
        let descriptor = arguments_file(&arguments)?;
        command.arg("--args").arg(descriptor.as_raw_fd().to_string());
        inherit_fd(&mut command, descriptor);
        if !self.filter.is_empty() {
            let descriptor = memfd(&self.filter)?;
            command.arg("--seccomp").arg(descriptor.as_raw_fd().to_string());
            inherit_fd(&mut command, descriptor);
        }
        if let Some(scope) = &self.scope {
            scope.enter(&mut command);
        }
        let mut reader = None;
        if report {
            let (from, to) = io::pipe()?;
            rustix::io::ioctl_fionbio(&from, true)?;
            let descriptor = OwnedFd::from(to);
            command.arg("--json-status-fd").arg(descriptor.as_raw_fd().to_string());
            inherit_fd(&mut command, descriptor);
            reader = Some(from);
        }
        command.arg("--").arg(program);
        Ok(PreparedCommand { command, is_supervised: false, status_pipe: reader })
    }
}

/// Why bubblewrap can't be used.
#[derive(Debug)]
pub(super) struct BubblewrapUnavailable {
    pub(super) why: String,
    /// What helps, as the beginning of a sentence, where that is known.
    pub(super) remedy: Option<&'static str>,
}

/// Settings of the kernel that keep ordinary users from user namespaces: file, value, what it means, what helps.
/// Sources: Ubuntu's release notes for 23.10, Debian's for 11, and user_namespaces(7).
const RESTRICTIONS: [(&str, &str, &str, &str); 3] = [
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor allows user namespaces only to programs whose profile says so",
        "Give bwrap an AppArmor profile that allows `userns`, or set the kernel's \
         `kernel.apparmor_restrict_unprivileged_userns` to 0",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "the kernel keeps user namespaces from ordinary users",
        "Set the kernel's `kernel.unprivileged_userns_clone` to 1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "the kernel allows no user namespaces",
        "Set the kernel's `user.max_user_namespaces` to a number greater than 0",
    ),
];

/// The first setting that forbids user namespaces: what it means, and what helps.
fn restriction(read: impl Fn(&str) -> Option<String>) -> Option<(&'static str, &'static str)> {
    let forbids =
        |(setting, value, ..): &&(&str, &str, &str, &str)| read(setting).is_some_and(|is| is.trim() == *value);
    RESTRICTIONS.iter().find(forbids).map(|(.., what, remedy)| (*what, *remedy))
}

/// A file in memory with the arguments, each with a NUL after it.
fn arguments_file(arguments: &[OsString]) -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    for argument in arguments {
        if argument.as_bytes().contains(&0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path or a variable holds a NUL"));
        }
        bytes.extend_from_slice(argument.as_bytes());
        bytes.push(0);
    }
    memfd(&bytes)
}

fn memfd(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("legwork", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Leaves a descriptor open for the command, and for it alone.
#[allow(unsafe_code)]
fn inherit_fd(command: &mut Command, descriptor: OwnedFd) {
    let keep = move || rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).map_err(io::Error::from);
    // SAFETY: between fork and exec only one system call is made.
    unsafe {
        command.pre_exec(keep);
    }
}

/// The first `bwrap` of `PATH` that nobody else could have put there, a command of an earlier run least of all.
fn find(boundary: &SandboxPolicy) -> Result<PathBuf, BubblewrapUnavailable> {
    let mut distrusted = None;
    for entry in boundary.path_dirs.iter().filter(|entry| entry.is_absolute()) {
        let Ok(file) = entry.join("bwrap").canonicalize() else { continue };
        if !file.is_file() || rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_err() {
            continue;
        }
        // The way there counts as well as what is there.
        let ways = [entry.canonicalize().unwrap_or_default(), entry.clone(), file.clone()];
        match ways.iter().find_map(|way| distrust_reason(way, boundary)) {
            None => return Ok(file),
            Some(why) => distrusted = distrusted.or_else(|| Some(format!("{} isn't trusted: {why}", file.display()))),
        }
    }
    Err(match distrusted {
        Some(why) => BubblewrapUnavailable { why, remedy: Some("Install bubblewrap where only root can write") },
        None => BubblewrapUnavailable {
            why: "there is no `bwrap` in PATH (its package is called bubblewrap)".to_owned(),
            remedy: Some("Install bubblewrap"),
        },
    })
}

/// Why a path can't be trusted, if it can't.
fn distrust_reason(path: &Path, boundary: &SandboxPolicy) -> Option<String> {
    let open = std::iter::once(&boundary.workspace).chain(&boundary.writable);
    if open.into_iter().any(|open| path.starts_with(open)) {
        return Some(format!("{} lies where commands may write", path.display()));
    }
    let own = rustix::process::geteuid().as_raw();
    for above in path.ancestors() {
        let metadata = fs::metadata(above).ok()?;
        let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if metadata.mode() & 0o002 != 0 && !sticky {
            return Some(format!("anyone may write to {}", above.display()));
        }
        if ![0, own, OVERFLOW_UID].contains(&metadata.uid()) {
            return Some(format!("{} belongs to somebody else", above.display()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_forbids_user_namespaces_is_named() {
        let with = |setting: &'static str, value: &'static str| {
            restriction(move |asked| (asked == setting).then(|| format!("{value}\n"))).map(|(what, _)| what)
        };
        for (setting, forbids, word) in [
            ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
            ("/proc/sys/kernel/unprivileged_userns_clone", "0", "ordinary users"),
            ("/proc/sys/user/max_user_namespaces", "0", "allows no"),
        ] {
            assert!(with(setting, forbids).is_some_and(|what| what.contains(word)), "{setting}");
        }
        assert_eq!(with("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0"), None);
        assert_eq!(with("/proc/sys/user/max_user_namespaces", "15000"), None);
    }
}
