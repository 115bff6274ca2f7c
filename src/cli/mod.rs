//! The commands; the only place that prints, reads the environment and the clock.

mod diff;
mod execute;
mod explain;
mod granted_permissions;
mod init;
mod output;
mod output_queue;
mod prices;
mod process_hardening;
mod progress;
mod provider_config;
mod providers;
mod read_files;
mod record_key;
mod replay;
mod replay_source;
mod result_file;
mod resume;
mod run;
mod sandbox_options;
mod save_case;
mod secrets;
mod show;
mod step_summary;
mod symlink_guard;
mod test;
mod user_config;
mod validate;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use self::output::Console;
use self::secrets::is_secret_name;
use crate::cases;
use crate::diagnostic::Diagnostic;
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::lints::provider_keys;
use crate::pricing::Prices;
use crate::process::fd_limit;
use crate::providers::user_servers::{ParsedServers, UserServers};
#[cfg(target_os = "linux")]
use crate::sandbox::restorer;
use crate::schema;

/// Runs agent jobs declared in YAML: unattended, bounded, recorded.
#[derive(Debug, Parser)]
#[command(name = "legwork", version, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job
    Run(run::RunArgs),
    /// Go on with a run that was cut off
    Resume(resume::ResumeArgs),
    /// Run a recorded run again, offline, and say where it differs
    Replay(replay::ReplayArgs),
    /// Run the cases of jobs, offline, and hold what happens against what is expected
    Test(test::TestArgs),
    /// Check job files: everything that is wrong, each in its place
    Validate(validate::ValidateArgs),
    /// Say what findings mean, with examples
    Explain(explain::ExplainArgs),
    /// Show a run's transcript
    Show(show::ShowArgs),
    /// Show two runs side by side
    Diff(diff::DiffArgs),
    /// Show what models cost
    Prices(prices::PricesArgs),
    /// List where replies can come from: providers, and servers of your own
    Providers(providers::ProvidersArgs),
    /// Write a first job
    Init(init::InitArgs),
    /// Print the JSON Schema of job files, of scripts, of expect.yaml, of result.json or of a journal's lines
    Schema {
        /// Of what
        #[arg(value_enum, default_value = "job")]
        kind: SchemaKind,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemaKind {
    /// Job files
    Job,
    /// Scripts: what `--model replay/FILE` answers from
    Script,
    /// result.json
    Result,
    /// The lines of events.jsonl
    Events,
    /// expect.yaml: what cases expect
    Expect,
}

/// What the program finds around it, read once at the start.
struct CliEnv {
    /// Variables that are valid Unicode.
    variables: BTreeMap<String, String>,
    current_folder: PathBuf,
    console: Console,
    clock: fn() -> jiff::Timestamp,
    /// What models cost by what the user says, once it was asked for, or what is wrong with that.
    prices: OnceCell<Result<Prices, Vec<Diagnostic>>>,
    /// What the user's own configuration names, once it was asked for.
    servers: OnceCell<ParsedServers>,
}

impl CliEnv {
    /// A variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Runs the command line and returns the exit code.
pub fn main() -> u8 {
    #[cfg(target_os = "linux")]
    if let Some(code) = run_restorer() {
        return code;
    }
    #[allow(clippy::disallowed_methods)]
    let (variables, folder) = {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        (variables.collect::<BTreeMap<_, _>>(), std::env::current_dir())
    };
    let out = Console::new(&variables);
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; anything else is the command line's fault.
            let code = u8::from(error.use_stderr()) * 2;
            return if out.print_clap_message(&error).is_ok() { code } else { 2 };
        }
    };
    let done = folder
        .map_err(|source| Error::Environment { message: "the current folder can't be found".into(), source })
        .and_then(|folder| {
            let around = CliEnv {
                variables,
                current_folder: folder,
                console: out,
                clock: jiff::Timestamp::now,
                prices: OnceCell::new(),
                servers: OnceCell::new(),
            };
            dispatch(arguments.command, &around)
        });
    let code = done.unwrap_or_else(|error| {
        out.error(&error);
        error.exit_code()
    });
    out.flush();
    match out.take_stdout_error() {
        Some(source) => {
            let unprinted = Error::Environment { message: "the answer can't be printed".into(), source };
            out.error(&unprinted);
            // What went wrong before weighs more.
            if code == 0 { unprinted.exit_code() } else { code }
        }
        None => code,
    }
}

/// The process that another legwork has started to restore protected files when that one was killed; `None` for any other.
#[cfg(target_os = "linux")]
fn run_restorer() -> Option<u8> {
    #[allow(clippy::disallowed_methods)]
    let mut arguments = std::env::args_os().skip(1);
    let is_restorer = arguments.next().is_some_and(|argument| argument == restorer::ARGUMENT);
    is_restorer.then(|| {
        process_hardening::harden(|_| false);
        let descriptor = arguments.next().unwrap_or_default();
        u8::from(restorer::run_restorer(&descriptor.to_string_lossy()).is_err()) * 2
    })
}

fn dispatch(command: Command, around: &CliEnv) -> Result<u8, Error> {
    if matches!(command, Command::Run(_) | Command::Resume(_) | Command::Replay(_) | Command::Test(_)) {
        let is_secret = |name: &str| is_secret_name(name) || name.ends_with("_BASE_URL");
        let runs_nothing = matches!(&command, Command::Replay(options) if !options.runs_tools());
        let servers = if runs_nothing { &UserServers::default() } else { &around.user_servers_with_findings().servers };
        let is_key = |name: &str| provider_keys().any(|key| key == name) || servers.key_envs().any(|key| key == name);
        process_hardening::harden(|name| is_secret(name) || is_key(name));
        fd_limit::raise_limit();
    }
    match command {
        Command::Run(options) => run::run(&options, around),
        Command::Resume(options) => resume::resume(&options, around),
        Command::Replay(options) => replay::replay(&options, around),
        Command::Test(options) => test::test(&options, around),
        Command::Validate(options) => validate::validate(&options, around),
        Command::Explain(options) => explain::explain(&options, around),
        Command::Show(options) => show::show(&options, around),
        Command::Diff(options) => diff::diff(&options, around),
        Command::Prices(options) => prices::prices(&options, around),
        Command::Providers(options) => providers::providers(&options, around),
        Command::Init(options) => init::init(&options, around),
        Command::Schema { kind: of } => {
            let schema = match of {
                SchemaKind::Job => schema::job_schema(),
                SchemaKind::Script => schema::script_schema(),
                SchemaKind::Result => schema::result_schema(),
                SchemaKind::Events => schema::event_schema(),
                SchemaKind::Expect => cases::expect_schema(),
            };
            around.console.print(&format!("{schema:#}"));
            Ok(0)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "legwork", &mut script);
            around.console.print(&String::from_utf8_lossy(&script));
            Ok(0)
        }
    }
}

/// A `--format` that takes the formats which have a form for a subject.
fn format_parser(subject: Subject) -> clap::builder::PossibleValuesParser {
    let fitting = formats::FORMATS.iter().filter(|format| format.subjects().contains(&subject));
    clap::builder::PossibleValuesParser::new(fitting.map(|format| format.name()))
}
