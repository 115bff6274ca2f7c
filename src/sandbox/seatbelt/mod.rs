//! The tier `seatbelt` on macOS: every command is started by `sandbox-exec` with a profile for the kernel.

mod profile;

#[cfg(target_os = "macos")]
use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

#[cfg(target_os = "macos")]
use self::profile::{Profile, ProfilePaths};
#[cfg(target_os = "macos")]
use super::{
    home,
    policy::{PreparedCommand, SandboxPolicy, SandboxUnavailable},
    scratch_dirs::ScratchDirs,
    tier_probe,
};
#[cfg(target_os = "macos")]
use crate::job::Network;

/// The program that applies a profile to itself and then becomes the command. Only root can replace it.
#[cfg(target_os = "macos")]
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// What a shell tries with the profile of the run's commands and a protected file. `$1` is a folder that commands have no
/// access to, `$2` the process of legwork, and `$3` the number of a port on which it listens.
#[cfg(any(test, target_os = "macos"))]
const PROBE_SCRIPT: &str = r#"
cd "$TMPDIR" || exit
(: > "$1/new") 2> /dev/null && echo "writes"
(read -r line < "$1/file") 2> /dev/null && echo "reads"
ln "$1/file" link 2> /dev/null && echo "links"
kill -0 "$2" 2> /dev/null && echo "signals"
(: > probe/folder/protected) 2> /dev/null && echo "changes"
(: > probe/folder/missing) 2> /dev/null && echo "creates"
ln probe/folder/protected second 2> /dev/null && echo "names"
mv probe/folder probe/other 2> /dev/null && echo "moves"
(: < "/dev/tcp/127.0.0.1/$3") 2> /dev/null && echo "connects"
/usr/bin/nc -z -w 1 127.0.0.1 "$3" > /dev/null 2>&1 && echo "connects"
: > file && ln file other && mv other third && rm file third && (read -r line < probe/folder/protected) && echo "works"
echo "end"
"#;

/// Starts commands through `sandbox-exec`.
#[derive(Debug)]
#[cfg(target_os = "macos")]
pub(super) struct Seatbelt {
    profile: Profile,
    read_only_profile: Profile,
    scratch: Arc<ScratchDirs>,
}

#[cfg(target_os = "macos")]
impl Seatbelt {
    /// Makes the profiles, and runs a shell to find out whether they are enforced.
    ///
    /// # Errors
    /// If they aren't, or something doesn't work.
    pub(super) fn detect(policy: &SandboxPolicy, scratch: Arc<ScratchDirs>) -> Result<Self, SandboxUnavailable> {
        let unavailable = |reason: &str| SandboxUnavailable {
            reasons: vec![format!("seatbelt can't be used: {reason}")],
            remedy: None,
        };
        if rustix::process::geteuid().is_root() {
            let remedy = Some("Run legwork as an ordinary user");
            return Err(SandboxUnavailable {
                remedy,
                ..unavailable("it doesn't hide what only root can read from root")
            });
        }
        if let Some(home) = policy.home.as_ref().and_then(|home| home.canonicalize().ok()) {
            // Commands get another home folder, in which they look for toolchains and for the folders opened to them.
            let opened: Vec<PathBuf> = policy.readable.iter().chain(&policy.writable).cloned().collect();
            home::link_toolchains(&home, &scratch.home(), &opened);
        }
        let folders = || [scratch.home(), scratch.tmp()];
        let profile_for = |read_only| {
            let paths = ProfilePaths::new(policy, folders(), read_only);
            Profile::new(&paths, policy.network).map_err(|reason| unavailable(&reason))
        };
        let seatbelt = Self { profile: profile_for(false)?, read_only_profile: profile_for(true)?, scratch };
        seatbelt.probe(policy).map_err(|reason| unavailable(&reason))?;
        Ok(seatbelt)
    }

    /// See [`Sandbox::command`](super::Sandbox::command).
    pub(super) fn command(
        &self,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
        read_only: bool,
    ) -> Command {
        self.scratch.settle();
        let profile = if read_only { &self.read_only_profile } else { &self.profile };
        self.command_with(profile, program, folder, variables)
    }

    fn command_with(
        &self,
        profile: &Profile,
        program: &Path,
        folder: &Path,
        variables: &BTreeMap<String, String>,
    ) -> Command {
        let mut command = Command::new(SANDBOX_EXEC);
        for (name, path) in profile.parameters() {
            let mut value = std::ffi::OsString::from(format!("{name}="));
            value.push(path);
            command.arg("-D").arg(value);
        }
        command.arg("-p").arg(&profile.text).arg("--").arg(program);
        command.current_dir(folder).env_clear().envs(variables);
        command.env("HOME", self.scratch.home()).env("TMPDIR", self.scratch.tmp());
        command
    }

    /// Checks with a shell what the profile prevents, in folders of its own.
    fn probe(&self, policy: &SandboxPolicy) -> Result<(), String> {
        let explain = |error: std::io::Error| error.to_string();
        let (tmp, closed) = (self.scratch.tmp(), self.scratch.closed());
        let inside = tmp.join("probe/folder");
        for folder in [&closed, &inside] {
            fs::create_dir_all(folder).map_err(explain)?;
        }
        for file in [closed.join("file"), inside.join("protected")] {
            fs::write(file, "x\n").map_err(explain)?;
        }
        let mut paths = ProfilePaths::new(policy, [self.scratch.home(), tmp.clone()], false);
        paths.protected.extend(["protected", "missing"].map(|name| inside.join(name)));
        let profile = Profile::new(&paths, policy.network)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(explain)?;
        let port = listener.local_addr().map_err(explain)?.port();
        let variables = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let mut shell = self.command_with(&profile, Path::new("/bin/bash"), Path::new("/"), &variables);
        shell.args(["-c", PROBE_SCRIPT, "bash"]).arg(&closed);
        shell.args([std::process::id().to_string(), port.to_string()]);
        let prepared = PreparedCommand::direct(shell);
        let printed = tier_probe::Probe::start(std::iter::once(Ok(prepared)), tier_probe::deadline())?.wait()?;
        listener.set_nonblocking(true).map_err(explain)?;
        // Independent of what the shell reports.
        let has_connected = !matches!(listener.accept(), Err(error) if error.kind() == ErrorKind::WouldBlock);
        let _ = fs::remove_dir_all(tmp.join("probe"));
        check_probe(&printed, has_connected && policy.network == Network::None)
    }
}

/// Says what is wrong with what the shell of the probe printed.
#[cfg(any(test, target_os = "macos"))]
fn check_probe(printed: &str, has_connected: bool) -> Result<(), String> {
    let has = |line: &str| printed.lines().any(|printed| printed == line);
    let problems = [
        (!has("end"), "a confined shell doesn't run to its end"),
        (has("writes"), "commands can change files outside of the workspace"),
        (has("reads"), "commands can read hidden files"),
        (has("links"), "commands can give files outside of the workspace a name in it"),
        (has("signals"), "commands can send signals to other processes"),
        (has("changes") || has("creates"), "commands can change protected files"),
        (has("moves"), "commands can move the folders of protected files"),
        (has("names"), "commands can give protected files another name"),
        (has_connected, "commands can connect to programs on this machine"),
        (!has("works"), "commands can't use their temporary folder"),
    ];
    problems.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, problem)| Err((*problem).to_owned()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs the script without a sandbox. With `is_open`, everything that it tries is possible.
    fn probe(is_open: bool) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (closed, tmp) = (folder.path().join("closed"), folder.path().join("tmp"));
        std::fs::create_dir_all(tmp.join("probe/folder")).unwrap();
        std::fs::write(tmp.join("probe/folder/protected"), "x\n").unwrap();
        if is_open {
            std::fs::create_dir(&closed).unwrap();
            std::fs::write(closed.join("file"), "x\n").unwrap();
        }
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut bash = Command::new("bash");
        bash.args(["-c", PROBE_SCRIPT, "bash"]).arg(&closed).args([&std::process::id().to_string(), &port]);
        String::from_utf8(bash.env("TMPDIR", &tmp).output().unwrap().stdout).unwrap()
    }

    #[test]
    fn without_a_sandbox_the_probe_notices_everything() {
        let printed = probe(true);
        for line in ["writes", "reads", "links", "signals", "changes", "creates", "moves", "names", "connects", "end"] {
            assert!(printed.lines().any(|found| found == line), "{line}: {printed}");
        }
        assert_eq!(check_probe(&printed, true).unwrap_err(), "commands can change files outside of the workspace");
        let printed = probe(false);
        assert!(!printed.contains("writes") && !printed.contains("reads") && !printed.contains("links"), "{printed}");
    }

    #[test]
    fn each_finding_of_the_probe_is_a_problem() {
        assert_eq!(check_probe("works\nend\n", false), Ok(()));
        for (printed, connected, problem) in [
            ("", false, "run to its end"),
            ("works\n", false, "run to its end"),
            ("end\n", false, "temporary folder"),
            ("reads\nworks\nend\n", false, "read hidden files"),
            ("links\nworks\nend\n", false, "a name in it"),
            ("signals\nworks\nend\n", false, "signals"),
            ("changes\nworks\nend\n", false, "change protected files"),
            ("creates\nworks\nend\n", false, "change protected files"),
            ("moves\nworks\nend\n", false, "move the folders"),
            ("names\nworks\nend\n", false, "another name"),
            ("works\nend\n", true, "connect"),
        ] {
            let error = check_probe(printed, connected).unwrap_err();
            assert!(error.contains(problem), "{printed}: {error}");
        }
    }
}
