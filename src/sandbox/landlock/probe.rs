//! Whether the confinement really confines here: a shell tries what must fail, and what must work.

use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Landlock, SIGNAL_SCOPE_ABI};

/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Each line that it prints is a finding. What it opens is the shell's own or the runner's, so that no other file is
/// needed: `comm` and `environ` are open to the same user, where nothing confines it.
const SCRIPT: &str = r#"
while read -r name value; do
    case $name in CapPrm:|CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$name$value";; esac
done < /proc/self/status
(: > /proc/self/comm) 2> /dev/null && echo "writes"
(read -r line < "/proc/$1/environ") 2> /dev/null && echo "reads"
(: < "/proc/$1/environ") 2> /dev/null && echo "reads"
kill -0 "$1" 2> /dev/null && echo "signals"
: > "$TMPDIR/.probe" && chmod 600 "$TMPDIR/.probe" && rm "$TMPDIR/.probe" && echo "works"
echo end
"#;

impl Landlock {
    /// Confines a shell and looks at what it can do.
    ///
    /// # Errors
    /// Says what isn't as it must be. It takes at most five seconds.
    pub fn probe(&self) -> Result<(), String> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "sh", &std::process::id().to_string()]);
        shell.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.confine(&mut shell, true);
        let mut child = shell.spawn().map_err(|error| format!("a command can't be confined: {error}"))?;
        let printed = read(&mut child);
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
        check_output(&printed?, self.0.abi >= SIGNAL_SCOPE_ABI)
    }
}

fn read(child: &mut Child) -> Result<String, String> {
    let mut text = Vec::new();
    let Some(mut pipe) = child.stdout.take() else { return Err("the probe has no output".into()) };
    let deadline = Instant::now() + TIMEOUT;
    let mut buffer = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: left.as_secs() as _, tv_nsec: i64::from(left.subsec_nanos()) };
        let ready = poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)], Some(&wait));
        match ready {
            Ok(0) => return Err(format!("the probe took longer than {} s", TIMEOUT.as_secs())),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(format!("the probe can't be waited for: {error}")),
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(count) if text.len() < 1 << 16 => text.extend(&buffer[..count]),
            Ok(_) => return Err("the probe prints too much".into()),
            Err(error) => return Err(format!("the probe can't be read: {error}")),
        }
    }
}

fn check_output(printed: &str, scopes_signals: bool) -> Result<(), String> {
    let has = |line: &str| printed.lines().any(|printed| printed == line);
    let none = "0000000000000000";
    let privileged = |set: &str| !has(&format!("{set}:{none}"));
    for (wrong, what) in [
        (!has("end"), "a confined shell doesn't run to its end"),
        (privileged("CapEff") || privileged("CapPrm"), "capabilities stay"),
        (!has("NoNewPrivs:1"), "new privileges can be gained"),
        (!has("Seccomp:2"), "no system call is filtered"),
        (has("writes"), "files can be changed"),
        (has("reads"), "other processes can be read"),
        (scopes_signals && has("signals"), "other processes can be sent signals"),
        (!has("works"), "the private folder can't be used"),
    ] {
        if wrong {
            return Err(what.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_reason() {
        let good = "CapPrm:0000000000000000\nCapEff:0000000000000000\nNoNewPrivs:1\nSeccomp:2\nworks\nend\n";
        assert_eq!(check_output(good, true), Ok(()));
        for bad in ["end\n", "works\n", "NoNewPrivs:1\n", "Seccomp:2\n", "CapEff:0000000000000000\n"] {
            assert!(check_output(&good.replace(bad, ""), true).is_err(), "{bad}");
        }
        for bad in ["writes", "reads", "signals"] {
            assert!(check_output(&format!("{good}{bad}\n"), true).is_err(), "{bad}");
        }
        assert_eq!(check_output(&format!("{good}signals\n"), false), Ok(()));
    }
}
