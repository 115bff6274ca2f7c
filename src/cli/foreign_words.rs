//! Commands and options of other programs, and what they are called here.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;

use crate::diagnostic::suggest_name;

/// The commands here, each with names that other programs have for them.
const COMMANDS: &[(&str, &[&str])] = &[
    ("validate", &["check", "lint", "verify", "compile", "vet"]),
    (
        "runs",
        &["list", "ls", "history", "ps", "status", "log", "logs", "sessions", "clean", "prune", "rm", "delete", "gc"],
    ),
    ("init", &["new", "create", "add", "generate", "scaffold", "setup"]),
    ("run", &["exec", "execute", "start", "go", "launch", "prompt", "chat", "task", "agent", "rerun"]),
    ("resume", &["continue", "restart", "retry"]),
    (
        "show",
        &[
            "view",
            "cat",
            "print",
            "open",
            "report",
            "transcript",
            "inspect",
            "info",
            "describe",
            "watch",
            "serve",
            "tail",
        ],
    ),
    ("map", &["batch", "foreach", "for-each", "matrix", "each", "bulk"]),
    ("doctor", &["diagnose", "health", "config", "configure", "auth", "login", "env", "debug"]),
    ("prices", &["models", "model", "cost", "costs", "usage", "price"]),
    ("apply", &["merge", "patch"]),
    ("gather", &["collect", "join", "results"]),
    ("test", &["eval", "evals", "tests"]),
    ("diff", &["compare"]),
    ("emit", &["submit", "slurm", "kubernetes"]),
    ("explain", &["rule", "rules"]),
];

/// Options of other programs, and what to use here.
const OPTIONS: &[(&[&str], &str)] = &[
    (
        &["--file", "-f", "--job", "--recipe", "--config", "-c", "--workflow", "--agent-file"],
        "name the job file without an option: 'legwork run JOB.yaml'",
    ),
    (
        &[
            "--param",
            "--params",
            "--parameter",
            "-p",
            "--var",
            "--vars",
            "-v",
            "--variable",
            "--arg",
            "--input",
            "-i",
            "--with",
            "--env",
            "-e",
        ],
        "inputs are given with '--set NAME=VALUE' or '--inputs FILE'",
    ),
    (
        &["--prompt", "--message", "-m", "--text", "--task", "--instruction", "--instructions", "--print"],
        "the prompt is in the job file; what changes is an input: '--set NAME=VALUE'",
    ),
    (
        &["--json", "--output-format", "--output", "-o", "--stream-json"],
        "the output is chosen with '--format json', and the folder of records with '--out DIR'",
    ),
    (
        &[
            "--max-turns",
            "--max-steps",
            "--max-iterations",
            "--timeout",
            "--budget",
            "--max-cost",
            "--max-budget-usd",
            "--max-tokens",
            "--cost-limit",
        ],
        "limits of this run are set with '--limit NAME=VALUE', such as '--limit cost_usd=2' or '--limit wall_clock=20m'",
    ),
    (
        &[
            "--yes",
            "-y",
            "--yolo",
            "--auto",
            "--full-auto",
            "--no-confirm",
            "--headless",
            "--non-interactive",
            "--permission-mode",
            "--dangerously-skip-permissions",
            "--ask-for-approval",
            "-a",
            "--allow-all-tools",
        ],
        "nobody is asked during a run: leave it out; what an agent may do is in the job file",
    ),
    (
        &[
            "--allowed-tools",
            "--allowedTools",
            "--disallowed-tools",
            "--disallowedTools",
            "--tools",
            "--mcp-config",
            "--system-prompt",
            "--append-system-prompt",
            "--agents",
            "--json-schema",
            "--output-schema",
        ],
        "this is part of the job file",
    ),
    (
        &["--cwd", "--cd", "-C", "--dir", "--workdir", "--add-dir", "--working-directory", "--repo"],
        "the folder to work in is '--workspace DIR'",
    ),
    (
        &["--dry", "--plan", "--check", "-n", "--print-plan", "--show-plan", "--explain"],
        "the plan is printed by '--dry-run'",
    ),
    (&["--provider", "--engine"], "the provider is part of the model's name: '--model PROVIDER/NAME'"),
    (&["--api-key", "--key-file", "--token"], "keys come from the environment, such as ANTHROPIC_API_KEY"),
    (
        &["--concurrency", "--parallel", "-j", "--workers", "--threads", "--max-parallel"],
        "the rows of 'legwork map' run at once by '--jobs N'",
    ),
    (&["--continue", "--resume", "-r"], "an interrupted run is continued by 'legwork resume RUN'"),
    (
        &["--debug", "--verbose", "--log-level"],
        "everything that happened is in the record: 'legwork show', or '--format jsonl' while it runs",
    ),
];

/// Completes clap's error at a command or option of another program: says what it is called here. `commands` are the names of
/// those here.
pub(super) fn complete(error: &mut clap::Error, commands: &[&str]) {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            text(error, ContextKind::InvalidSubcommand).and_then(|word| tip_for_command(&word, commands))
        }
        ErrorKind::UnknownArgument => text(error, ContextKind::InvalidArg).and_then(|word| tip_for_option(&word)),
        _ => None,
    };
    let Some(tip) = tip else { return };
    // The similar names are guesses by letters.
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedCommand] {
        error.remove(kind);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

fn tip_for_command(word: &str, commands: &[&str]) -> Option<String> {
    let lower = word.to_lowercase();
    if let Some((here, _)) = COMMANDS.iter().find(|(_, names)| names.contains(&lower.as_str())) {
        return Some(format!("the command for it is '{here}': see 'legwork {here} --help'"));
    }
    if lower == "version" {
        return Some("the version is printed by 'legwork --version'".to_owned());
    }
    let is_file = lower.ends_with(".yaml") || lower.ends_with(".yml") || Path::new(word).is_file();
    // The name of a job in the folder of jobs.
    let is_name = !word.contains(['/', '\\']);
    let file = ["yaml", "yml"].map(|ending| format!("jobs/{word}.{ending}"));
    let job = file.into_iter().find(|file| is_name && Path::new(file).is_file());
    if let Some(job) = job.or_else(|| is_file.then(|| word.to_owned())) {
        return Some(format!("a job is started with 'run': 'legwork run {job}'"));
    }
    let near = suggest_name(&lower, commands.iter().copied())?;
    Some(format!("a similar subcommand exists: '{near}'"))
}

fn tip_for_option(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or(word);
    if let Some((_, help)) = OPTIONS.iter().find(|(names, _)| names.contains(&name)) {
        return Some((*help).to_owned());
    }
    let is_assignment = !word.starts_with('-') && word.contains('=');
    is_assignment.then(|| format!("inputs are given with '--set {word}'"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_word_is_listed_once_and_is_none_of_ours() {
        let command = super::super::command();
        let ours: HashSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let mut seen = HashSet::new();
        for (here, names) in COMMANDS {
            assert!(ours.contains(here), "{here}");
            for name in *names {
                assert!(!ours.contains(name) && seen.insert(name), "{name}");
            }
        }
        for name in OPTIONS.iter().flat_map(|(names, _)| *names) {
            assert!(seen.insert(name), "{name}");
        }
    }
}
