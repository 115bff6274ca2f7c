//! Shows a long text on a terminal in the user's pager.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::env::CliEnv;
use crate::lints::provider_keys;

/// The pager that is used if the environment names none.
const LESS: &str = "less";
/// One screen is printed without waiting, colours are shown, and the text stays on the screen at the end.
const LESS_OPTIONS: &str = "-FRX";
/// The exit codes of `sh` for a command that doesn't exist or can't be run.
const NOT_FOUND: [i32; 2] = [126, 127];

/// Shows a text in `$LEGWORK_PAGER`, `$PAGER` or less. Returns false if there is no pager, and nothing was shown.
///
/// `workspace` is a folder that others can write to: no program in it is used, unless a variable names it.
pub(super) fn page(text: &str, env: &CliEnv, workspace: &Path) -> bool {
    let Some(mut command) = pager(env, workspace) else { return false };
    for key in provider_keys() {
        command.env_remove(key);
    }
    // Ctrl-C is for the pager.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let _caught = runtime.as_ref().ok().and_then(|runtime| {
        let _entered = runtime.enter();
        signal(SignalKind::interrupt()).ok()
    });
    match run(&mut command, text) {
        Ok(status) if status.code().is_some_and(|code| NOT_FOUND.contains(&code)) => {
            env.console.warning("the pager in $LEGWORK_PAGER or $PAGER can't be started");
            false
        }
        Ok(_) => true,
        Err(error) => {
            env.console.warning(&format!("the pager can't be started: {error}"));
            false
        }
    }
}

fn pager(env: &CliEnv, workspace: &Path) -> Option<Command> {
    let named = ["LEGWORK_PAGER", "PAGER"].iter().find_map(|name| env.variables.get(*name));
    if let Some(named) = named.map(|named| named.trim()) {
        if named.is_empty() || named == "cat" {
            return None;
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", named]);
        // As git does, for a pager that is less without options.
        if !env.variables.contains_key("LESS") {
            command.env("LESS", LESS_OPTIONS.trim_start_matches('-'));
        }
        return Some(command);
    }
    let mut command = Command::new(find_less(env, workspace)?);
    command.arg(LESS_OPTIONS);
    Some(command)
}

/// Finds less in the absolute folders of `$PATH` outside of the workspace and the current folder.
fn find_less(env: &CliEnv, workspace: &Path) -> Option<PathBuf> {
    let is_trusted = |folder: &PathBuf| {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        folder.is_absolute() && !real.starts_with(workspace) && !real.starts_with(&env.current_folder)
    };
    let folders = std::env::split_paths(env.variable("PATH")?);
    folders.filter(is_trusted).map(|folder| folder.join(LESS)).find(|path| path.is_file())
}

fn run(command: &mut Command, text: &str) -> std::io::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // The user may leave the pager before the end.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait()
}
