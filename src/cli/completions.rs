//! `legwork completions`: scripts for shells, and the values that they offer.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Arg, Command};
use clap_complete::Shell;

use super::env::CliEnv;
use super::output::quote_word;
use super::prices;
use crate::error::Error;
use crate::plan;
use crate::record::{LATEST, MAP_FILE, ROWS, RUNS, RunStatus, folders, is_timestamp};

/// Options of `legwork completions`.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
    /// The words after `legwork` up to the cursor: prints what the last one can be, each with a tab and a description
    #[arg(last = true, hide = true)]
    words: Vec<String>,
}

/// The most values that are offered.
const MAX_VALUES: usize = 1_000;

/// Asks legwork for the values. Without any, bash offers files.
const BASH: &str = r#"_legwork() {
    local IFS=$'\n' line
    COMPREPLY=()
    while read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <(command legwork completions bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _legwork legwork
"#;

const ZSH: &str = r#"#compdef legwork
_legwork() {
    local -a values descriptions
    local line
    for line in "${(@f)$(command legwork completions zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        values+=("${line%%$'\t'*}")
        line=${line%$'\t'}
        descriptions+=("${line/$'\t'/  -- }")
    done
    if (( $#values )); then
        compadd -l -d descriptions -a values
    else
        _files
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _legwork "$@"
else
    compdef _legwork legwork
fi
"#;

const FISH: &str = r#"function __legwork_values
    set --local words (commandline --tokenize --cut-at-cursor --current-process)
    set --local word (commandline --current-token --cut-at-cursor)
    command legwork completions fish -- $words[2..] "$word" 2>/dev/null
end
complete --command legwork --condition '__legwork_values | string length --quiet' --no-files --arguments '(__legwork_values)'
"#;

/// A value and what it means.
type Candidate = (String, String);

/// Prints the script of a shell, or values.
pub(super) fn completions(options: &CompletionsArgs, mut command: Command, env: &CliEnv) -> Result<u8, Error> {
    if let Some((typed, before)) = options.words.split_last() {
        command.build();
        let mut candidates = complete(&command, before, typed, options.shell, env);
        candidates.retain(|(value, _)| value.starts_with(typed.trim_start_matches('=')) && quote_word(value) == *value);
        candidates.truncate(MAX_VALUES);
        let lines: Vec<String> = candidates.iter().map(|(value, help)| format!("{value}\t{help}")).collect();
        if !lines.is_empty() {
            env.console.print(&lines.join("\n"));
        }
        return Ok(0);
    }
    match options.shell {
        Shell::Bash => env.console.print(BASH.trim_end()),
        Shell::Zsh => env.console.print(ZSH.trim_end()),
        Shell::Fish => env.console.print(FISH.trim_end()),
        shell => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "legwork", &mut script);
            env.console.print(&String::from_utf8_lossy(&script));
        }
    }
    Ok(0)
}

/// The words before the one that is completed.
struct TypedWords<'a> {
    command: &'a Command,
    /// How many arguments without a name there are.
    positionals: usize,
    /// The option that the next word is the value of.
    pending: Option<&'a Arg>,
    /// Whether there was a `--`.
    is_escaped: bool,
    /// The values of options.
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> TypedWords<'a> {
    fn parse(command: &'a Command, words: &'a [String]) -> Self {
        let mut typed = Self { command, positionals: 0, pending: None, is_escaped: false, values: BTreeMap::new() };
        for word in words {
            typed.add(word);
        }
        typed
    }

    fn add(&mut self, word: &'a str) {
        // Bash splits words at equals signs.
        if word == "=" && self.pending.is_some() {
            return;
        }
        if let Some(option) = self.pending.take() {
            self.values.insert(option.get_long().unwrap_or_default(), word);
        } else if self.is_escaped || !word.starts_with('-') || word == "-" {
            match self.command.find_subcommand(word) {
                Some(command) if self.positionals == 0 && !self.is_escaped => self.command = command,
                _ => self.positionals += 1,
            }
        } else if word == "--" {
            self.is_escaped = true;
        } else if let Some((name, value)) = word.split_once('=') {
            self.values.extend(self.option(name).and_then(Arg::get_long).map(|name| (name, value)));
        } else {
            self.pending = self.option(word).filter(|option| option.get_action().takes_values());
        }
    }

    /// The option that a word names.
    fn option(&self, word: &str) -> Option<&'a Arg> {
        let mut options = self.command.get_arguments();
        match word.strip_prefix("--") {
            Some(name) => options.find(|option| option.get_long() == Some(name)),
            None => options.find(|option| option.get_short().is_some() && option.get_short() == word.chars().last()),
        }
    }
}

/// What the word after `words` can be.
fn complete(command: &Command, words: &[String], typed: &str, shell: Shell, env: &CliEnv) -> Vec<Candidate> {
    let before = TypedWords::parse(command, words);
    let values = |argument: &Arg, typed: &str| values_of(argument, typed, &before, env);
    let mut candidates = match (before.pending, typed.split_once('=')) {
        (Some(option), _) => values(option, typed.trim_start_matches('=')),
        (None, Some((name, value))) if typed.starts_with("--") && !before.is_escaped => {
            let values = before.option(name).map(|option| values(option, value)).unwrap_or_default();
            values.into_iter().map(|(value, help)| (format!("{name}={value}"), help)).collect()
        }
        _ if typed.starts_with('-') && !before.is_escaped => {
            let options = before.command.get_arguments().filter(|option| !option.is_hide_set());
            options
                .filter_map(|option| Some((format!("--{}", option.get_long()?), summary(option.get_help()))))
                .collect()
        }
        _ => {
            let commands = before.command.get_subcommands().filter(|_| before.positionals == 0 && !before.is_escaped);
            let commands = commands.filter(|command| !command.is_hide_set());
            let mut all: Vec<Candidate> =
                commands.map(|command| (command.get_name().to_owned(), summary(command.get_about()))).collect();
            let positionals: Vec<&Arg> = before.command.get_positionals().collect();
            // Only the last one can be repeated.
            let is_repeated = |last: &&&Arg| last.get_num_args().is_some_and(|count| count.max_values() > 1);
            let argument = positionals.get(before.positionals).or(positionals.last().filter(is_repeated));
            all.extend(
                argument.filter(|argument| !argument.is_hide_set()).into_iter().flat_map(|it| values(it, typed)),
            );
            all
        }
    };
    if shell == Shell::Bash {
        // It would take what is before the colon for another word.
        candidates.retain(|(value, _)| !value.contains(':'));
    }
    candidates
}

/// The values of an argument that are known.
fn values_of(argument: &Arg, typed: &str, words: &TypedWords<'_>, env: &CliEnv) -> Vec<Candidate> {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return shown.map(|value| (value.get_name().to_owned(), summary(value.get_help()))).collect();
    }
    let name = argument.get_value_names().and_then(|names| names.first()).map(clap::builder::Str::as_str);
    let out = env.current_folder.join(words.values.get("out").copied().unwrap_or(RUNS));
    match name {
        Some("RUN" | "RUN|MAP") => runs(&out, typed),
        // The positional argument of this name is a file.
        Some("JOB") if argument.get_long().is_some() => plain(folders(&out).map(|job| file_name(&job))),
        Some("CODE") => {
            let mut rules: Vec<Candidate> = plan::rules().map(|rule| (rule.code.to_owned(), rule.summary())).collect();
            rules.sort();
            rules
        }
        Some("OUTCOME") => plain(RunStatus::all().into_iter().map(RunStatus::name)),
        Some("MODEL") => plain(prices::model_names(env).into_iter()),
        _ => Vec::new(),
    }
}

/// The names of runs and maps, and those of a map's rows if they are asked for.
fn runs(out: &Path, typed: &str) -> Vec<Candidate> {
    let mut found = vec![(LATEST.to_owned(), "the newest run".to_owned())];
    for job_dir in folders(out) {
        let job = file_name(&job_dir);
        if job_dir.join(LATEST).is_symlink() {
            found.push((format!("{job}/{LATEST}"), "the newest run of this job".to_owned()));
        }
        for folder in folders(&job_dir) {
            let name = format!("{job}/{}", file_name(&folder));
            let is_map = folder.join(MAP_FILE).is_file();
            if is_map && typed.starts_with(&format!("{name}/")) {
                found.extend(plain(folders(&folder.join(ROWS)).map(|row| format!("{name}/{}", file_name(&row)))));
            }
            // The start of a run's id names it, too.
            if !typed.is_empty() && file_name(&folder).starts_with(typed) && is_timestamp(&file_name(&folder)) {
                found.push((file_name(&folder), format!("a run of {job}")));
            }
            found.push((name, if is_map { "a map".to_owned() } else { String::new() }));
        }
    }
    found
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn plain(values: impl Iterator<Item = String>) -> Vec<Candidate> {
    values.map(|value| (value, String::new())).collect()
}

/// The first line of a help text.
fn summary(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(|help| help.to_string().lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
}
