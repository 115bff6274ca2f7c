//! Checks that the confinement works on this machine: a shell tries what must fail, and what must work.

use std::process::Command;

use super::super::tier_probe;
use super::{Landlock, SIGNAL_SCOPE_ABI};

/// Prints a line for each finding. It opens only files of the shell itself and of this process: without confinement, a process
/// of the same user can open `comm` and `environ`.
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
    /// Runs a confined shell and checks what it can do. Takes at most five seconds.
    ///
    /// # Errors
    /// Says what isn't confined, or doesn't work.
    pub fn probe(&self) -> Result<(), String> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "sh", &std::process::id().to_string()]);
        shell.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        self.confine(&mut shell, true);
        let output = tier_probe::output(&mut shell, tier_probe::deadline()).map_err(|error| error.to_string())?;
        check_output(&output.stdout, self.0.abi >= SIGNAL_SCOPE_ABI)
    }
}

fn check_output(printed: &str, scopes_signals: bool) -> Result<(), String> {
    let has = |line: &str| printed.lines().any(|printed| printed == line);
    let none = "0000000000000000";
    let privileged = |set: &str| !has(&format!("{set}:{none}"));
    let problems = [
        (!has("end"), "a confined shell doesn't run to its end"),
        (privileged("CapEff") || privileged("CapPrm"), "commands keep capabilities"),
        (!has("NoNewPrivs:1"), "commands can gain privileges"),
        (!has("Seccomp:2"), "system calls aren't filtered"),
        (has("writes"), "commands can change files outside of the workspace"),
        (has("reads"), "commands can read other processes"),
        (scopes_signals && has("signals"), "commands can send signals to other processes"),
        (!has("works"), "commands can't use their temporary folder"),
    ];
    problems.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, problem)| Err((*problem).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_detected() {
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
