//! The tier `bubblewrap`: every command gets its own namespaces, made by `bwrap`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use rustix::fs::MemfdFlags;

use super::call_id::{CALL_ID_VARIABLE, call_prefix};
use super::host_access::{HostAccess, WaitingCommand};
use super::kill_guard::KillGuard;
use super::landlock::SocketScope;
use super::mounts::{HostPaths, MountLayout};
use super::policy::{MAX_RESTARTS, PreparedCommand, SandboxPolicy, SandboxUnavailable};
use super::probe_cache::{CachedProbe, ProbeCache};
use super::scratch_dirs::ScratchDirs;
use super::tier_probe::Probe;
use super::{programs, seccomp, tier_probe};
use crate::egress::{CallEgress, Egress, EgressRules, NetworkAccess, UploadMeter};
use crate::job::GitAccess;
use crate::sync::IgnorePoison;

/// The flags for every command. Bubblewrap itself sets `no_new_privs`.
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

/// Starts commands through `bwrap`.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    policy: SandboxPolicy,
    /// Found when the first command is prepared, which is the probe.
    host_paths: OnceLock<HostPaths>,
    /// The seccomp filter; empty if system calls aren't known for this architecture.
    filter: Vec<u8>,
    options: BwrapOptions,
    /// For commands that share the machine's network, if the kernel supports it.
    socket_scope: Option<SocketScope>,
    /// A probe that hasn't ended yet.
    pending: Mutex<Option<PendingProbe>>,
    /// The result of that probe.
    confirmed: OnceLock<Result<(), String>>,
    /// Ends what bubblewrap leaves if this program is killed; `None` if that process can't be started.
    kill_guard: OnceLock<Option<Arc<KillGuard>>>,
    /// Dropped after the probe.
    scratch: Arc<ScratchDirs>,
}

/// What not every machine allows. The default is the best.
#[derive(Debug, Clone, Copy)]
struct BwrapOptions {
    /// A separate `/proc`. A container that hides parts of its own `/proc` forbids it.
    new_proc: bool,
    /// Commands can't make user namespaces. Needs bubblewrap 0.8.
    disable_userns: bool,
}

impl Default for BwrapOptions {
    fn default() -> Self {
        Self { new_proc: true, disable_userns: true }
    }
}

/// A probe that runs in the background, because it has succeeded in an earlier run.
#[derive(Debug)]
struct PendingProbe {
    probe: Probe,
    cached: CachedProbe,
}

impl Bubblewrap {
    /// Looks for a `bwrap` that can be trusted and probes it with the flags that every command gets. Also returns what is
    /// missing compared with the best setup.
    ///
    /// If the same probe has succeeded before, according to `cache`, this doesn't wait for its end: the first command does.
    ///
    /// # Errors
    /// If it can't be used.
    pub(super) fn detect(
        policy: SandboxPolicy,
        scratch: Arc<ScratchDirs>,
        cache: Option<&ProbeCache>,
    ) -> Result<(Arc<Self>, Option<String>), SandboxUnavailable> {
        let unavailable = |reason: &str, remedy| SandboxUnavailable {
            reasons: vec![format!("bubblewrap can't be used: {reason}")],
            remedy,
        };
        let program = programs::find_trusted("bwrap", &policy).map_err(|distrusted| match distrusted {
            Some(reason) => unavailable(&reason, Some("Install bubblewrap where only root can write")),
            None => unavailable(
                "there is no `bwrap` in PATH (its package is called bubblewrap)",
                Some("Install bubblewrap"),
            ),
        })?;
        let shell = tier_probe::shell(&policy)
            .ok_or_else(|| unavailable("there is no bash to test it with", Some("Install bash")))?;
        let failed = |error: io::Error| unavailable(&format!("git's objects can't be kept ({error})"), None);
        if policy.allowed_changes.git == GitAccess::Commit {
            policy.object_stages.create(&policy.object_folders()).map_err(failed)?;
        }
        let has_network = policy.network == NetworkAccess::Open;
        // A bwrap with the set-user-id bit needs the privileges that the scope would take away.
        let is_setuid = fs::metadata(&program).is_ok_and(|metadata| metadata.mode() & 0o4000 != 0);
        let mut bubblewrap = Arc::new(Self {
            filter: seccomp::bubblewrap_filter(policy.network),
            socket_scope: if has_network && !is_setuid { SocketScope::new().ok() } else { None },
            program,
            policy,
            host_paths: OnceLock::new(),
            options: BwrapOptions::default(),
            pending: Mutex::default(),
            confirmed: OnceLock::new(),
            kill_guard: OnceLock::new(),
            scratch,
        });
        let deadline = tier_probe::deadline();
        let cached = cache.and_then(|cache| bubblewrap.cached_probe(cache, &shell));
        if cached.as_ref().is_some_and(CachedProbe::has_succeeded_now) {
            let degradation = bubblewrap.degradation();
            return Ok((bubblewrap, degradation));
        }
        if let Some(cached) = cached.clone().filter(CachedProbe::has_succeeded)
            && let Ok(probe) = bubblewrap.start_probe(&shell, deadline)
        {
            *bubblewrap.pending.lock().ignore_poison() = Some(PendingProbe { probe, cached });
            let degradation = bubblewrap.degradation();
            return Ok((bubblewrap, degradation));
        }
        let mut first_error = None;
        for (new_proc, disable_userns) in [(true, true), (true, false), (false, true), (false, false)] {
            if let Some(bubblewrap) = Arc::get_mut(&mut bubblewrap) {
                bubblewrap.options = BwrapOptions { new_proc, disable_userns };
            }
            let printed = bubblewrap.start_probe(&shell, deadline).and_then(Probe::wait);
            if let Err(error) = printed.and_then(|printed| bubblewrap.check_probe(&printed)) {
                first_error.get_or_insert(error);
                continue;
            }
            if let Some(cached) = cached.filter(|_| new_proc && disable_userns) {
                cached.remember();
            }
            let degradation = bubblewrap.degradation();
            return Ok((bubblewrap, degradation));
        }
        let reason = first_error.unwrap_or_default();
        Err(match restriction(|setting| fs::read_to_string(setting).ok()) {
            Some((restriction, remedy)) => unavailable(&format!("{reason} ({restriction})"), Some(remedy)),
            None => unavailable(&reason, None),
        })
    }

    /// What is missing compared with the best setup.
    fn degradation(&self) -> Option<String> {
        let mut degradations = Vec::new();
        if !self.options.new_proc {
            degradations.push(
                "the system doesn't let bubblewrap mount a new /proc, so commands see the names and arguments of other \
                 processes",
            );
        }
        if self.policy.network == NetworkAccess::Open && self.socket_scope.is_none() {
            degradations.push(
                "commands with network access reach abstract unix sockets, such as those of D-Bus and X11; preventing \
                 that takes Linux 6.12 and a bwrap without the set-user-id bit",
            );
        }
        (!degradations.is_empty()).then(|| degradations.join("; "))
    }

    /// The place in the cache for the result of the probe with the best options. It depends on all that the result depends on.
    fn cached_probe(&self, cache: &ProbeCache, shell: &Path) -> Option<CachedProbe> {
        let SandboxPolicy { workspace, network, readable, writable, hidden_files, home, path_dirs, .. } = &self.policy;
        let settings = RESTRICTIONS.map(|(setting, ..)| fs::read_to_string(setting).ok());
        let setup = format!(
            "{FLAGS:?} {:?} {:?} {:?} {settings:?} {workspace:?} {network:?} {readable:?} {writable:?} {hidden_files:?} {home:?} {path_dirs:?}",
            self.options,
            self.filter,
            self.socket_scope.is_some(),
        );
        cache.probe(&setup, &[&self.program, shell], &self.policy)
    }

    fn start_probe(self: &Arc<Self>, shell: &Path, deadline: Instant) -> Result<Probe, String> {
        let (bubblewrap, shell) = (Arc::clone(self), shell.to_owned());
        let prepare = move || {
            // A read-only workspace needs fewer mounts and no other kind of mount, so it works if this works.
            let workspace = &bubblewrap.policy.workspace;
            // Nothing is reached, but the sockets are made.
            let egress = Egress::new(EgressRules::default(), UploadMeter::default()).call();
            let mut prepared = bubblewrap.prepare_command(&shell, workspace, &BTreeMap::new(), false, Some(&egress))?;
            prepared.command.args(["-c", tier_probe::BASH_STATUS_SCRIPT]);
            Ok(prepared)
        };
        Probe::start(iter::repeat_with(prepare).take(1 + MAX_RESTARTS), deadline)
    }

    fn check_probe(&self, printed: &str) -> Result<(), String> {
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        tier_probe::check_status(printed, &sets, !self.filter.is_empty())
    }

    /// Judges a probe that ran in the background.
    fn conclude(&self, printed: Result<String, String>, cached: CachedProbe) -> Result<(), String> {
        let result = printed.and_then(|printed| self.check_probe(&printed));
        match result {
            Ok(()) => cached.remember_now(),
            // The next run waits for its probe before anything is spent, and looks for another tier.
            Err(_) => cached.forget(),
        }
        result
    }

    /// See [`Sandbox::confirm`](super::Sandbox::confirm).
    pub(super) fn confirm(&self) -> io::Result<()> {
        let wait = || {
            let pending = self.pending.lock().ignore_poison().take();
            let Some(PendingProbe { probe, cached }) = pending else { return Ok(()) };
            let Err(reason) = self.conclude(probe.wait(), cached) else { return Ok(()) };
            let cause = restriction(|setting| fs::read_to_string(setting).ok());
            let cause = cause.map(|(what, _)| format!(" ({what})")).unwrap_or_default();
            Err(format!("bubblewrap worked in an earlier run, and now it doesn't: {reason}{cause}"))
        };
        self.confirmed.get_or_init(wait).clone().map_err(io::Error::other)
    }

    /// See [`Sandbox::command`](super::Sandbox::command).
    pub(super) fn command(
        &self,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
        read_only: bool,
        egress: Option<&CallEgress>,
    ) -> io::Result<PreparedCommand> {
        self.confirm()?;
        self.prepare_command(program, folder, variables, read_only, egress)
    }

    fn prepare_command(
        &self,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
        read_only: bool,
        egress: Option<&CallEgress>,
    ) -> io::Result<PreparedCommand> {
        self.scratch.settle();
        self.kill_guard.get_or_init(|| KillGuard::shared().ok());
        let BwrapOptions { new_proc, disable_userns } = self.options;
        let host_paths = self.host_paths.get_or_init(|| HostPaths::detect(&self.policy, &self.scratch));
        let layout = MountLayout::new(&self.policy, host_paths, &self.scratch, read_only, new_proc);
        let hidden = layout.hidden_paths();
        let mut arguments: Vec<OsString> = FLAGS.map(OsString::from).into();
        if disable_userns {
            arguments.push("--disable-userns".into());
        }
        if self.policy.network != NetworkAccess::Open {
            arguments.push("--unshare-net".into());
        }
        arguments.extend(layout.bwrap_arguments());
        arguments.extend(["--chdir".into(), folder.as_os_str().to_owned()]);
        // Variables aren't set in bubblewrap's own environment, where the dynamic linker would read some of them outside of
        // the sandbox, nor on its command line, which other users can read.
        let hides = |name: &str| self.policy.network == NetworkAccess::Hosts && is_proxy_variable(name);
        let fixed = [("HOME", layout.home.as_os_str()), ("TMPDIR", OsStr::new("/tmp"))];
        let given = variables.iter().map(|(name, value)| (name.as_str(), OsStr::new(value)));
        let given = given.filter(|(name, _)| fixed.iter().all(|(own_name, _)| own_name != name) && !hides(name));
        for (name, value) in given.chain(fixed) {
            arguments.extend(["--setenv".into(), name.into(), value.to_owned()]);
        }
        let mut command = Command::new(&self.program);
        // A command's own id replaces that of the probe.
        command.env_clear().env(CALL_ID_VARIABLE, format!("{}probe", call_prefix())).current_dir("/");
        pass_fd(&mut command, "--args", arguments_file(&arguments)?);
        if !self.filter.is_empty() {
            pass_fd(&mut command, "--seccomp", memfd(&self.filter)?);
        }
        if let Some(scope) = &self.socket_scope {
            scope.enter(&mut command);
        }
        let (status_pipe, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&status_pipe, true)?;
        pass_fd(&mut command, "--json-status-fd", writer.into());
        let hosts = match egress.filter(|_| self.policy.network == NetworkAccess::Hosts) {
            Some(egress) => {
                let (reader, start) = io::pipe()?;
                pass_fd(&mut command, "--block-fd", reader.into());
                Some(HostAccess::Namespace(WaitingCommand::new(egress, status_pipe.try_clone()?, start)))
            }
            None => None,
        };
        command.arg("--").arg(program);
        Ok(PreparedCommand { command, is_supervised: false, status_pipe: Some(status_pipe), hidden, hosts })
    }
}

impl Drop for Bubblewrap {
    fn drop(&mut self) {
        let pending = self.pending.get_mut().ignore_poison().take();
        // No command was started. A probe that is still running is killed.
        if let Some(PendingProbe { probe, cached }) = pending
            && let Some(printed) = probe.result()
        {
            let _ = self.conclude(printed, cached);
        }
    }
}

/// Kernel settings that keep ordinary users from creating user namespaces: file, value, meaning and remedy.
/// Sources: Ubuntu's release notes for 23.10, Debian's for 11, and user_namespaces(7).
const RESTRICTIONS: [(&str, &str, &str, &str); 3] = [
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor allows user namespaces only to programs whose profile permits them",
        "Give bwrap an AppArmor profile that allows `userns`, or set the kernel's \
         `kernel.apparmor_restrict_unprivileged_userns` to 0",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "the kernel allows user namespaces only to root",
        "Set the kernel's `kernel.unprivileged_userns_clone` to 1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "the kernel allows no user namespaces",
        "Set the kernel's `user.max_user_namespaces` to a number greater than 0",
    ),
];

/// The meaning and remedy of the first setting that forbids user namespaces.
fn restriction(read: impl Fn(&str) -> Option<String>) -> Option<(&'static str, &'static str)> {
    let forbids =
        |(setting, value, ..): &&(&str, &str, &str, &str)| read(setting).is_some_and(|is| is.trim() == *value);
    RESTRICTIONS.iter().find(forbids).map(|(.., what, remedy)| (*what, *remedy))
}

/// Whether a variable names a proxy. Commands need none, and reach none that isn't in their list.
fn is_proxy_variable(name: &str) -> bool {
    ["http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// A memory file with the arguments, each followed by a NUL.
fn arguments_file(arguments: &[OsString]) -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    for argument in arguments {
        if argument.as_bytes().contains(&0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path or a variable contains a NUL"));
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

/// Lets the command, and no other process, inherit a descriptor, whose number is an option's argument.
#[allow(unsafe_code)]
fn pass_fd(command: &mut Command, option: &str, descriptor: OwnedFd) {
    command.arg(option).arg(descriptor.as_raw_fd().to_string());
    let clear_cloexec =
        move || rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).map_err(io::Error::from);
    // SAFETY: only one system call is made between fork and exec.
    unsafe {
        command.pre_exec(clear_cloexec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_forbids_user_namespaces_is_reported() {
        let with = |setting: &'static str, value: &'static str| {
            restriction(move |asked| (asked == setting).then(|| format!("{value}\n"))).map(|(what, _)| what)
        };
        for (setting, forbids, word) in [
            ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
            ("/proc/sys/kernel/unprivileged_userns_clone", "0", "only to root"),
            ("/proc/sys/user/max_user_namespaces", "0", "allows no"),
        ] {
            assert!(with(setting, forbids).is_some_and(|what| what.contains(word)), "{setting}");
        }
        assert_eq!(with("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0"), None);
        assert_eq!(with("/proc/sys/user/max_user_namespaces", "15000"), None);
    }
}
