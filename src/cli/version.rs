//! `legwork --version`, and what `--verbose` adds to it.

use super::env::CliEnv;
#[cfg(target_os = "linux")]
use super::sandbox_options::detect_landlock;
use super::sandbox_options::detect_sandbox;
use crate::event::FORMAT;
use crate::pricing::{TABLE_DATE, TABLE_VERSION};
#[cfg(target_os = "linux")]
use crate::sandbox::Tier;

/// The version of the program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the build, if it is known.
pub(super) fn commit() -> Option<&'static str> {
    option_env!("LEGWORK_COMMIT").filter(|commit| !commit.is_empty())
}

/// Prints the version, and with `verbose` what the program was built from and how commands are confined on this machine.
pub(super) fn print(verbose: bool, env: &CliEnv) {
    env.console.print(&format!("legwork {VERSION}"));
    if !verbose {
        return;
    }
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let sandbox = match detect_sandbox(env) {
        #[cfg(target_os = "linux")]
        Ok((tier @ Tier::Bubblewrap, reason)) => {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            match detect_landlock(env) {
                Ok(()) => format!("{tier} works here{reason}; so does landlock"),
                Err(why) => format!("{tier} works here{reason}; landlock doesn't: {why}"),
            }
        }
        Ok((tier, None)) => format!("{tier} works here"),
        Ok((tier, Some(reason))) => format!("{tier} works here: {reason}"),
        Err(reason) => format!("none works here: {reason}"),
    };
    let rows = [
        ("commit", commit().unwrap_or("unknown").to_owned()),
        ("build", format!("{} ({profile})", env!("LEGWORK_TARGET"))),
        ("records", format!("format {FORMAT}")),
        ("prices", format!("{TABLE_VERSION} of {TABLE_DATE}")),
        ("sandbox", sandbox),
    ];
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<9}{value}")).collect();
    env.console.print_sanitized(&(lines.join("\n") + "\n"));
}
