//! The tier `landlock`, without namespaces: before a process becomes a command, it restricts itself by landlock rules and a
//! seccomp filter and drops all capabilities.

mod git_files;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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

use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

pub use self::git_files::restrict_git;

use super::host_access::HostAccess;
use super::policy::{PreparedCommand, SandboxPolicy};
use super::readable_paths::find_readable;
use super::syscall_broker::{NO_DOOR, SyscallBroker, WritableRoots};
use super::tier_probe::Probe;
use super::{seccomp, tier_probe};
use crate::egress::{CallEgress, NetworkAccess, ProxyUsers};

/// The newest landlock version that is used. On an older kernel, the rules that it doesn't know are left out.
const LATEST_ABI: ABI = ABI::V7;
/// The version since which a command can't send signals to this process and others.
const SIGNAL_SCOPE_ABI: i32 = 6;
/// What a shell tries in addition to printing its status. It opens only files of the shell itself and of this process: without
/// confinement, a process of the same user can open `comm` and `environ`.
const PROBE_SCRIPT: &str = r#"
(: > /proc/self/comm) 2> /dev/null && echo "writes"
(: < "/proc/$1/environ") 2> /dev/null && echo "reads"
kill -0 "$1" 2> /dev/null && echo "signals"
: > "$TMPDIR/.probe" && chmod 600 "$TMPDIR/.probe" && rm "$TMPDIR/.probe" && echo "works"
echo end
"#;
/// Devices that commands may use: they hold no data.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Confines the commands of a run without namespaces. The rules apply to the files that exist when it is created.
#[derive(Debug)]
pub struct Landlock {
    write_ruleset: OwnedFd,
    read_only_ruleset: OwnedFd,
    filter: Vec<u8>,
    syscall_broker: SyscallBroker,
    network: NetworkAccess,
    temp_dir: PathBuf,
    abi: i32,
}

impl Landlock {
    /// Creates the rules. `home` is the empty home folder that commands get. Their temporary files go into a folder in it,
    /// because other users share `/tmp`: commands must not read their files nor leave files for them.
    ///
    /// # Errors
    /// If the kernel has no landlock or no seccomp, the system calls of this architecture aren't known, or the home folder or
    /// the workspace can't be opened.
    pub fn prepare(policy: &SandboxPolicy, home: &Path) -> io::Result<Arc<Self>> {
        let abi = version()?;
        let filter = seccomp::landlock_filter(policy.network, abi);
        if filter.is_empty() {
            return Err(io::Error::other("there is no system call filter for this architecture"));
        }
        let home = home.canonicalize()?;
        let temp_dir = home.join(".tmp");
        // With `recursive`, an existing folder isn't an error.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&temp_dir)?;
        let rules = LandlockRules::new(policy, home);
        Ok(Arc::new(Self {
            write_ruleset: rules.ruleset(true)?,
            read_only_ruleset: rules.ruleset(false)?,
            filter,
            syscall_broker: SyscallBroker::start(rules.roots)?,
            network: policy.network,
            temp_dir,
            abi,
        }))
    }

    /// Runs a confined shell and checks what it can do. Takes at most five seconds.
    ///
    /// # Errors
    /// Says what isn't confined, or doesn't work.
    pub fn probe(self: &Arc<Self>) -> Result<(), String> {
        let mut shell = Command::new("/bin/sh");
        let script = [tier_probe::STATUS_SCRIPT, PROBE_SCRIPT].concat();
        shell.args(["-c", &script, "sh", &std::process::id().to_string()]);
        shell.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        self.confine(&mut shell, true, None).map_err(|error| error.to_string())?;
        let prepared = PreparedCommand::direct(shell);
        let printed = Probe::start(std::iter::once(Ok(prepared)), tier_probe::deadline())?.wait()?;
        tier_probe::check_status(&printed, &["CapPrm", "CapEff"], true)?;
        let has = |line: &str| printed.lines().any(|printed| printed == line);
        let problems = [
            (!has("end"), "a confined shell doesn't run to its end"),
            (has("writes"), "commands can change files outside of the workspace"),
            (has("reads"), "commands can read other processes"),
            (self.scopes_signals() && has("signals"), "commands can send signals to other processes"),
            (!has("works"), "commands can't use their temporary folder"),
        ];
        problems.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, problem)| Err((*problem).to_owned()))
    }

    /// Whether this kernel keeps commands from sending signals to other processes.
    pub fn scopes_signals(&self) -> bool {
        self.abi >= SIGNAL_SCOPE_ABI
    }

    /// Confines a command that will be started, and sets its `TMPDIR`. With hosts that it may reach, it finds a proxy by its
    /// variables, and returns what must be served then.
    ///
    /// # Errors
    /// The system refuses a socket.
    #[allow(unsafe_code)]
    pub fn confine(
        self: &Arc<Self>,
        command: &mut Command,
        read_only: bool,
        egress: Option<&CallEgress>,
    ) -> io::Result<Option<HostAccess>> {
        command.env("TMPDIR", &self.temp_dir);
        let mut door = NO_DOOR;
        let hosts = match egress.filter(|_| self.network == NetworkAccess::Hosts) {
            Some(egress) => {
                let proxy = egress.proxy(ProxyUsers::Door)?;
                command.envs(proxy.door().variables());
                door = self.syscall_broker.add_door(proxy.door());
                Some(HostAccess::Proxy(proxy))
            }
            None => None,
        };
        let prepared = Arc::clone(self);
        // SAFETY: between fork and exec only system calls are made: nothing is allocated, locked or dropped.
        unsafe {
            command.pre_exec(move || prepared.enter(read_only, door));
        }
        Ok(hosts)
    }

    /// Applies the restrictions to this process.
    fn enter(&self, read_only: bool, door: u64) -> io::Result<()> {
        drop_capabilities()?;
        let rules = if read_only { &self.read_only_ruleset } else { &self.write_ruleset };
        restrict_self(rules)?;
        let listener = install(&self.filter)?;
        self.syscall_broker.send_listener(&listener, read_only, door)
    }
}

/// Blocks abstract unix sockets of other processes, such as those of D-Bus and X11, which no mount can hide. It restricts
/// nothing else, so it can be applied to a program that mounts.
#[derive(Debug)]
pub(super) struct SocketScope(Arc<OwnedFd>);

impl SocketScope {
    /// # Errors
    /// If the kernel doesn't support it (before Linux 6.12).
    pub(super) fn new() -> io::Result<Self> {
        if version()? < SIGNAL_SCOPE_ABI {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let ruleset = Ruleset::default().scope(Scope::AbstractUnixSocket).and_then(Ruleset::create);
        let descriptor = ruleset.map(Option::<OwnedFd>::from).map_err(io::Error::other)?;
        Ok(Self(Arc::new(descriptor.ok_or(io::ErrorKind::Unsupported)?)))
    }

    /// Applies it to a command that will be started.
    #[allow(unsafe_code)]
    pub(super) fn enter(&self, command: &mut Command) {
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

/// Clears every capability set, and keeps this process and its children from gaining privileges by executing a file, even as
/// root. Makes only system calls, because it runs between fork and exec.
fn drop_capabilities() -> io::Result<()> {
    set_no_new_privs(true)?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    // This needs a capability. Without it, `no_new_privs` already prevents that any are gained.
    let _ = set_capabilities_secure_bits(bits);
    // The kernel knows fewer capabilities than a set has bits, and refuses the first unknown one.
    for number in 0..64 {
        if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)).is_err() {
            break;
        }
    }
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// The kernel's landlock version.
#[allow(unsafe_code)]
fn version() -> io::Result<i32> {
    const CREATE_RULESET_VERSION: u32 = 1;
    let nothing: *const u8 = std::ptr::null();
    // SAFETY: with this flag, the call reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, CREATE_RULESET_VERSION) };
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

/// Installs a filter and returns its listener, which is closed on exec.
#[allow(unsafe_code)]
fn install(filter: &[u8]) -> io::Result<OwnedFd> {
    let length = filter.len() / size_of::<libc::sock_filter>();
    let program =
        libc::sock_fprog { len: length as u16, filter: filter.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program outlives the call, which copies it byte by byte, so it needn't be aligned.
    let listener =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// The paths that are allowed, before the rulesets are created.
struct LandlockRules {
    network: NetworkAccess,
    roots: WritableRoots,
    readable: Vec<PathBuf>,
    listed: Vec<PathBuf>,
}

impl LandlockRules {
    fn new(policy: &SandboxPolicy, home: PathBuf) -> Self {
        let users_home = policy.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let machine = find_readable(users_home.as_deref(), rustix::process::geteuid().is_root());
        let mut readable = machine.whole;
        readable.extend(policy.readable.iter().cloned());
        // An entry of `PATH` must not expose the whole home folder.
        let contains_home = |path: &PathBuf| users_home.as_ref().is_some_and(|home| home.starts_with(path));
        readable.extend(
            policy.path_dirs.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| !contains_home(path)),
        );
        let canonical = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let writable = policy.writable_roots().map(canonical).collect();
        // Partly protected folders are left to the check after each command.
        let protected = policy.protected.iter().filter(|path| !policy.allowed_changes.allows_below(path));
        let guarded = policy.guarded_files.clone();
        let roots = WritableRoots { home, writable, protected: protected.cloned().collect(), guarded };
        Self { network: policy.network, roots, readable, listed: machine.listed }
    }

    fn ruleset(&self, writes: bool) -> io::Result<OwnedFd> {
        let created = self.create_ruleset(writes).map_err(io::Error::other)?;
        Option::from(created).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn create_ruleset(&self, writes: bool) -> Result<RulesetCreated, RulesetError> {
        let read = AccessFs::from_read(LATEST_ABI);
        let device = AccessFs::IoctlDev | AccessFs::MakeChar | AccessFs::MakeBlock;
        let write = AccessFs::from_all(LATEST_ABI) & !device;
        let names: BitFlags<AccessFs> = AccessFs::ReadDir.into();
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(LATEST_ABI))?
            .scope(Scope::Signal)?
            .scope(Scope::AbstractUnixSocket)?;
        if self.network != NetworkAccess::Open {
            ruleset = ruleset.handle_access(AccessNet::from_all(LATEST_ABI))?;
        }
        let mut created = ruleset.create()?;
        for (paths, access) in [
            (self.readable.as_slice(), read),
            (self.listed.as_slice(), names),
            (std::slice::from_ref(&self.roots.home), write),
            (self.roots.writable.as_slice(), if writes { write } else { read }),
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

/// Allows access to a path and everything below it. A path that can't be opened is skipped.
fn allow(created: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(created) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(LATEST_ABI) };
    created.add_rule(PathBeneath::new(file, access))
}
