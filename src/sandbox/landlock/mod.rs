//! The tier without namespaces: landlock's rules, a seccomp filter and the loss of all capabilities, which a process takes
//! on itself before it becomes a command.

mod probe;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::{fs, io};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};

use super::chmod_broker::{ChmodBroker, WritableRoots, taken};
use super::readable_paths::find_readable;
use super::{SandboxPolicy, capabilities, seccomp};
use crate::job::Network;

/// The newest version of landlock whose rules are known here. An older kernel gets those that it knows.
const LATEST_ABI: ABI = ABI::V7;
/// The version since when a command can't send signals to the runner and other processes.
const SIGNAL_SCOPE_ABI: i32 = 6;
/// Devices that hold nothing and lead nowhere.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// How commands of a run are confined without namespaces. Made once; the rules are about the files that exist then.
#[derive(Debug, Clone)]
pub struct Landlock(Arc<LandlockInner>);

#[derive(Debug)]
struct LandlockInner {
    write_ruleset: OwnedFd,
    read_only_ruleset: OwnedFd,
    filter: Vec<u8>,
    chmod_broker: ChmodBroker,
    temporary: PathBuf,
    abi: i32,
}

impl Landlock {
    /// Makes the rules. `home` is the empty folder that commands get as theirs; their temporary files go into a folder
    /// within it, for `/tmp` is everyone's: what others left there isn't read, and nothing is left there for others.
    ///
    /// # Errors
    /// Where the kernel has no landlock or no seccomp, where this machine's calls aren't known here, or the home or the
    /// workspace can't be opened.
    pub fn prepare(boundary: &SandboxPolicy, home: &Path) -> io::Result<Self> {
        let abi = version()?;
        let filter = seccomp::landlock_filter(boundary.network, abi);
        if filter.is_empty() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no filter is known for this architecture"));
        }
        let home = home.canonicalize()?;
        let temporary = home.join(".tmp");
        match fs::DirBuilder::new().mode(0o700).create(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let rules = LandlockRules::new(boundary, &home);
        let attendant = ChmodBroker::start(WritableRoots {
            writable: rules.writable.clone(),
            writable_unless_read_only: rules.writable_unless_read_only.clone(),
            // Of a folder that is open in part, only the look after each call knows which.
            protected: boundary
                .protected
                .iter()
                .filter(|path| !boundary.allowed_changes.allows_below(path))
                .cloned()
                .collect(),
        })?;
        Ok(Self(Arc::new(LandlockInner {
            write_ruleset: rules.ruleset(true)?,
            read_only_ruleset: rules.ruleset(false)?,
            filter,
            chmod_broker: attendant,
            temporary,
            abi,
        })))
    }

    /// What this kernel's landlock can't keep from commands, in a few words each.
    pub fn limitations(&self) -> Vec<&'static str> {
        if self.0.abi < SIGNAL_SCOPE_ABI { vec!["signals to other processes of the same user"] } else { Vec::new() }
    }

    /// Confines a command that isn't started yet. It gets the private folder as `TMPDIR`.
    #[allow(unsafe_code)]
    pub fn confine(&self, command: &mut Command, read_only: bool) {
        command.env("TMPDIR", &self.0.temporary);
        let prepared = Arc::clone(&self.0);
        // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
        unsafe {
            command.pre_exec(move || prepared.enter(read_only));
        }
    }
}

impl LandlockInner {
    /// Takes the restrictions on this process.
    fn enter(&self, read_only: bool) -> io::Result<()> {
        capabilities::drop_all()?;
        let rules = if read_only { &self.read_only_ruleset } else { &self.write_ruleset };
        restrict_self(rules)?;
        let listener = install(&self.filter)?;
        self.chmod_broker.send_listener(listener.as_raw_fd(), read_only)
    }
}

/// Keeps commands from the abstract unix sockets of other processes, which have no place in the file system: those of D-Bus
/// and X11, for instance. It confines nothing else, so it can be put around a program that mounts.
#[derive(Debug)]
pub(super) struct SocketScope(Arc<OwnedFd>);

impl SocketScope {
    /// Makes it.
    ///
    /// # Errors
    /// Where the kernel doesn't know it (before Linux 6.12).
    pub(super) fn new() -> io::Result<Self> {
        if version()? < SIGNAL_SCOPE_ABI {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let ruleset = Ruleset::default().scope(Scope::AbstractUnixSocket).and_then(Ruleset::create);
        let descriptor = ruleset.map(Option::<OwnedFd>::from).map_err(io::Error::other)?;
        Ok(Self(Arc::new(descriptor.ok_or(io::ErrorKind::Unsupported)?)))
    }

    /// Puts it around a command that isn't started yet.
    #[allow(unsafe_code)]
    pub(super) fn enter(&self, command: &mut Command) {
        let rules = Arc::clone(&self.0);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                capabilities::no_new_privileges()?;
                restrict_self(&rules)
            });
        }
    }
}

/// The version of landlock that the kernel speaks.
#[allow(unsafe_code)]
fn version() -> io::Result<i32> {
    const ASK_FOR_THE_VERSION: u32 = 1;
    let nothing: *const u8 = std::ptr::null();
    // SAFETY: the call reads nothing where it is asked for the version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, ASK_FOR_THE_VERSION) };
    match version {
        1.. => Ok(version as i32),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
fn restrict_self(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and a number.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Installs a filter and gives its listener, which is closed on exec.
#[allow(unsafe_code)]
fn install(filter: &[u8]) -> io::Result<OwnedFd> {
    let length = filter.len() / size_of::<libc::sock_filter>();
    let program =
        libc::sock_fprog { len: length as u16, filter: filter.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program outlives the call, which copies it, byte by byte, so that it needn't be aligned.
    let listener =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if listener < 0 { Err(io::Error::last_os_error()) } else { Ok(taken(listener as i32)) }
}

/// What is allowed, before it is told to the kernel.
struct LandlockRules<'a> {
    boundary: &'a SandboxPolicy,
    /// Always.
    writable: Vec<PathBuf>,
    /// Where commands aren't read-only.
    writable_unless_read_only: Vec<PathBuf>,
    readable: Vec<PathBuf>,
    listed: Vec<PathBuf>,
}

impl<'a> LandlockRules<'a> {
    fn new(boundary: &'a SandboxPolicy, home: &Path) -> Self {
        let users_home = boundary.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let machine = find_readable(users_home.as_deref(), rustix::process::geteuid().is_root());
        let mut readable = machine.whole;
        readable.extend(boundary.readable.iter().cloned());
        // A folder of programs that holds a whole home isn't one.
        let leads_home = |path: &PathBuf| users_home.as_ref().is_some_and(|home| home.starts_with(path));
        readable.extend(
            boundary.path_dirs.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| !leads_home(path)),
        );
        let canonical = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let changeable = std::iter::once(&boundary.workspace).chain(&boundary.writable).map(canonical).collect();
        Self {
            boundary,
            writable: vec![home.to_owned()],
            writable_unless_read_only: changeable,
            readable,
            listed: machine.listed,
        }
    }

    fn ruleset(&self, writes: bool) -> io::Result<OwnedFd> {
        self.create_ruleset(writes)
            .map_err(io::Error::other)
            .and_then(|created| Option::<OwnedFd>::from(created).ok_or_else(|| io::ErrorKind::Unsupported.into()))
    }

    fn create_ruleset(&self, writes: bool) -> Result<RulesetCreated, RulesetError> {
        let read = AccessFs::from_read(LATEST_ABI);
        let device = AccessFs::IoctlDev | AccessFs::MakeChar | AccessFs::MakeBlock;
        let write = AccessFs::from_all(LATEST_ABI) & !device;
        let names: BitFlags<AccessFs> = AccessFs::ReadDir.into();
        let cut = self.boundary.network == Network::None;
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(LATEST_ABI))?
            .scope(Scope::Signal)?
            .scope(Scope::AbstractUnixSocket)?;
        if cut {
            ruleset = ruleset.handle_access(AccessNet::from_all(LATEST_ABI))?;
        }
        let mut created = ruleset.create()?;
        for (paths, access) in [
            (self.readable.as_slice(), read),
            (self.listed.as_slice(), names),
            (self.writable.as_slice(), write),
            (self.writable_unless_read_only.as_slice(), if writes { write } else { read }),
        ] {
            for path in paths {
                created = allow(created, path, access)?;
            }
        }
        for path in DEVICES {
            created = allow(created, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev)?;
        }
        Ok(created)
    }
}

/// Allows access beneath a path; nothing where it can't be opened.
fn allow(created: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(created) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(LATEST_ABI) };
    created.add_rule(PathBeneath::new(file, access))
}
