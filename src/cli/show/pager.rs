//! Shows a long text on a terminal in the user's pager.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::env::CliEnv;
use crate::cli::output::shell_quote;
use crate::sandbox::programs::Folders;

/// The pager that is used if the environment names none.
const LESS: &str = "less";
/// One screen is printed without waiting, colours are shown, and the text stays on the screen at the end.
const LESS_OPTIONS: &str = "-FRX";
/// The exit codes of `sh` for a command that doesn't exist or can't be run.
const NOT_FOUND: [i32; 2] = [126, 127];

/// Shows a text in `$LEGWORK_PAGER`, `$PAGER` or less. Returns false if there is no pager, and nothing was shown.
///
/// `workspace` is a folder that others can write to: nothing in it is started.
pub(super) fn page(text: &str, env: &CliEnv, workspace: &Path) -> bool {
    let changeable = env.changeable_folders(workspace, &[]);
    let Some(mut command) = pager(env, &changeable) else { return false };
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

fn pager(env: &CliEnv, changeable: &Folders) -> Option<Command> {
    let variables = env.program_variables(changeable);
    let named = ["LEGWORK_PAGER", "PAGER"].iter().find_map(|name| env.variables.get(*name));
    let mut command = match named.map(|named| named.trim()) {
        Some("" | "cat") => return None,
        Some(named) if is_changeable(named, env, changeable) => {
            env.console
                .warning("the pager in $LEGWORK_PAGER or $PAGER isn't used: it is in the workspace or its repository");
            return None;
        }
        Some(named) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &with_known_program(named, env, changeable)]);
            command
        }
        None => {
            let mut command = Command::new(env.program(LESS, changeable)?);
            command.arg(LESS_OPTIONS);
            command
        }
    };
    // As git does, for a pager that is less without options.
    let has_options = named.is_none() || variables.contains_key("LESS");
    command.env_clear().envs(variables);
    if !has_options {
        command.env("LESS", LESS_OPTIONS.trim_start_matches('-'));
    }
    Some(command)
}

/// A command line whose program is a path outside of the folders, if it is a name: a folder of PATH outside of them may have a
/// link into them.
fn with_known_program(line: &str, env: &CliEnv, changeable: &Folders) -> String {
    let name = line.split_whitespace().next().unwrap_or_default();
    let is_name = name.chars().all(|char| char.is_ascii_alphanumeric() || "-_.+".contains(char));
    match env.program(name, changeable).filter(|_| is_name) {
        Some(program) => format!("{}{}", shell_quote(&program), &line[line.find(name).unwrap_or(0) + name.len()..]),
        None => line.to_owned(),
    }
}

/// Whether a command line names something in the folders, as a path from the root or from the current folder.
fn is_changeable(line: &str, env: &CliEnv, changeable: &Folders) -> bool {
    let is_file = |(number, word): (usize, &str)| {
        let path = env.current_folder.join(word.trim_matches(['"', '\'']));
        // A program without a slash is looked up in PATH.
        (number > 0 || word.contains('/')) && path.exists() && changeable.lead_through(&path)
    };
    changeable.are_named_in(line) || line.split_whitespace().enumerate().any(is_file)
}

fn run(command: &mut Command, text: &str) -> std::io::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // The user may leave the pager before the end.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait()
}
