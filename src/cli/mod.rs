//! The commands. Only this module prints and reads the environment and the clock.

mod apply;
mod arguments;
mod ci_files;
mod completions;
mod diff;
mod doctor;
mod emit;
mod env;
mod execute;
mod explain;
mod export;
mod foreign_words;
mod gather;
mod init;
mod man;
mod map;
mod map_rows;
mod map_screen;
mod mcp;
mod next_command;
mod output;
mod output_files;
mod output_queue;
mod output_target;
mod prepared_job;
mod prices;
mod process_hardening;
mod progress;
mod providers;
mod publish;
mod read_files;
mod record_key;
mod replay;
mod replay_source;
mod resume;
mod run;
mod runs;
mod sandbox_options;
mod save_case;
mod show;
mod test;
mod user_config;
mod validate;
mod version;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use self::env::CliEnv;
use self::output::Console;
use crate::cases;
use crate::editor_schema;
use crate::error::Error;
use crate::lints::provider_keys;
use crate::pricing::Prices;
use crate::process::fd_limit;
use crate::providers::user_servers::UserServers;
use crate::redaction::is_secret_name;
use crate::reports::run_table;
#[cfg(target_os = "linux")]
use crate::sandbox::kill_guard;
use crate::sandbox::restorer;

/// Run agent jobs declared in YAML: unattended, bounded, recorded
///
/// stdout gets the answer only. Progress, warnings and the path of the record go to stderr: live status lines on a
/// terminal, and one line per notable event elsewhere, when CI is set, or when TERM is `dumb`. NO_COLOR and CLICOLOR_FORCE
/// are respected.
#[derive(Debug, Parser)]
#[command(name = "legwork", disable_version_flag = true, max_term_width = 100, arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the version
    #[arg(short = 'V', long)]
    version: bool,
    /// With --version: also print the commit, the build, the format of records, and the tiers of the sandbox that work here
    #[arg(long, requires = "version")]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job
    ///
    /// The run is recorded in a new folder, RUNS/JOB/ID.
    Run(run::RunArgs),
    /// Resume an interrupted run
    ///
    /// The run continues from its journals. When a run ends that can be resumed, stderr has the command for it.
    Resume(resume::ResumeArgs),
    /// Run a job once for each row of a file
    ///
    /// Each row has a record of its own. The same command again continues where the map stopped: finished rows don't run again.
    Map(Box<map::MapArgs>),
    /// Replay a recorded run offline and report where it differs
    Replay(replay::ReplayArgs),
    /// Run the test cases of jobs, offline
    ///
    /// A case has scripted or recorded replies. Its outcome, calls, texts and files are compared with its expect.yaml.
    Test(test::TestArgs),
    /// Check job files and report every mistake
    ///
    /// Needs no key and no network, and runs nothing, except git to read context files of a commit.
    Validate(validate::ValidateArgs),
    /// Lock the tools of a job's tool servers
    Mcp {
        /// What to do
        #[command(subcommand)]
        command: mcp::McpCommand,
    },
    /// Explain the codes of findings, with examples
    Explain(explain::ExplainArgs),
    /// Print a run's transcript
    Show(show::ShowArgs),
    /// Write a run in the format of another program: traces, trajectories, messages
    Export(export::ExportArgs),
    /// List the records of runs, or remove old ones
    ///
    /// The newest is first. A map is one line. Only the end and the beginning of each record are read.
    Runs(runs::RunsArgs),
    /// Compare two runs
    ///
    /// Shows the differences in plan, outcome, turns, calls, cost, result, text and changed files.
    Diff(diff::DiffArgs),
    /// Put the changes of runs into the workspace
    ///
    /// For runs that worked in a copy of the workspace, such as the rows of a map. Each run's changes.patch is merged
    /// three-way, whole or not at all. Nothing is written before all runs are merged.
    Apply(apply::ApplyArgs),
    /// Publish on GitHub or GitLab what a run or the rows of a map have proposed
    ///
    /// Comments, reviews, pull requests and so on: the `outputs` of the job. Needs a token, and no model. What is there already
    /// isn't published again.
    Publish(publish::PublishArgs),
    /// Join the results of a map that ran in several folders
    ///
    /// The folders are maps, RUNS/JOB/MAP, or have maps below them: the artifacts of a matrix, or copies from several machines.
    /// Each record that is missing, incomplete, duplicate or foreign is listed.
    Gather(gather::GatherArgs),
    /// Print a file that submits a map to an engine, such as Slurm or Kubernetes
    Emit(emit::EmitArgs),
    /// Show what models cost
    Prices(prices::PricesArgs),
    /// List the providers and your own servers
    Providers(providers::ProvidersArgs),
    /// Write a first job
    ///
    /// Also writes the JSON Schema of jobs next to it, for editors.
    Init(init::InitArgs),
    /// Print the JSON Schema of one of legwork's file formats
    Schema {
        /// The file format
        #[arg(value_enum, default_value = "job")]
        kind: SchemaKind,
    },
    /// Check whether this machine is ready for runs
    ///
    /// Checks the sandbox, git, keys, servers, the disk and the key of records, and says what to do about problems. Spends
    /// nothing.
    Doctor(doctor::DoctorArgs),
    /// Print or write the manual pages
    Man(man::ManArgs),
    /// Print a completion script for a shell
    ///
    /// For bash, zsh and fish it also completes the names of runs, the codes of findings and the names of models: the script asks
    /// the `legwork` on the PATH for them.
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Whether `--quiet` was given.
    fn is_quiet(&self) -> bool {
        match self {
            Self::Run(options) => options.job.quiet,
            Self::Map(options) => options.job.quiet,
            Self::Resume(options) => options.quiet,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemaKind {
    /// Job files
    Job,
    /// Scripts, from which `--model replay/FILE` replies
    Script,
    /// result.json
    Result,
    /// The lines of events.jsonl
    Events,
    /// The output of `runs --format json`
    Runs,
    /// expect.yaml, which says what a test case expects
    Expect,
}

/// The whole command line, as the book's reference and the shell completions describe it.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command line and returns the exit code.
pub fn main() -> u8 {
    if let Some(code) = run_helper() {
        return code;
    }
    #[allow(clippy::disallowed_methods)]
    let (variables, folder, words) = {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let words = std::env::args_os().skip(1).map(|word| word.into_string().ok()).collect();
        (variables.collect::<BTreeMap<_, _>>(), std::env::current_dir(), words)
    };
    let console = Console::new(&variables);
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(mut error) => {
            let command = command();
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            foreign_words::complete(&mut error, &names);
            // Help and the version arrive as errors, too, but for stdout.
            let code = u8::from(error.use_stderr()) * 2;
            return if console.print_clap_message(&error).is_ok() { code } else { 2 };
        }
    };
    let console = console.quiet(arguments.command.as_ref().is_some_and(Command::is_quiet));
    let folder = folder.map_err(Error::environment("the current folder can't be found"));
    let code = folder.and_then(|current_folder| {
        let (prices, servers, warned) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let clock = jiff::Timestamp::now;
        let (console, checkout) = (console.clone(), None);
        let env =
            CliEnv { variables, current_folder, checkout, arguments: words, console, clock, prices, servers, warned };
        match arguments.command {
            Some(command) => dispatch(command, &env),
            None => {
                version::print(arguments.verbose, &env);
                Ok(0)
            }
        }
    });
    let code = code.unwrap_or_else(|error| {
        console.error(&error);
        error.exit_code()
    });
    match output_queue::finish() {
        Some(source) => {
            let error = Error::environment("can't write to stdout")(source);
            console.error(&error);
            // An earlier error takes precedence.
            if code == 0 { error.exit_code() } else { code }
        }
        None => code,
    }
}

/// Runs as one of the processes that finish what the legwork that started them can't do any more if it is killed. `None` if
/// this process isn't one.
fn run_helper() -> Option<u8> {
    #[allow(clippy::disallowed_methods)]
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next()?;
    let run = helper(name.to_str()?)?;
    process_hardening::harden(|_| false);
    Some(u8::from(run(&arguments.next().unwrap_or_default().to_string_lossy()).is_err()) * 2)
}

/// The main function of the process with this name; `None` if it is no such name.
fn helper(name: &str) -> Option<fn(&str) -> std::io::Result<()>> {
    match name {
        restorer::ARGUMENT => Some(restorer::run_restorer),
        #[cfg(target_os = "linux")]
        kill_guard::ARGUMENT => Some(kill_guard::run_kill_guard),
        _ => None,
    }
}

fn dispatch(command: Command, env: &CliEnv) -> Result<u8, Error> {
    let starts_processes = matches!(
        command,
        Command::Run(_)
            | Command::Map(_)
            | Command::Resume(_)
            | Command::Replay(_)
            | Command::Test(_)
            | Command::Mcp { .. }
            | Command::Publish(_)
            | Command::Doctor(_)
    );
    if starts_processes {
        let is_secret =
            |name: &str| is_secret_name(name) || name.ends_with("_BASE_URL") || crate::run::is_otlp_secret(name);
        let runs_nothing = matches!(&command, Command::Replay(options) if !options.tools);
        let servers = if runs_nothing { &UserServers::default() } else { &env.parsed_servers().servers };
        let is_key = |name: &str| provider_keys().any(|key| key == name) || servers.key_envs().any(|key| key == name);
        process_hardening::harden(|name| is_secret(name) || is_key(name));
        fd_limit::raise_limit();
    }
    match command {
        Command::Run(options) => {
            Prices::prepare_in_background();
            run::run(&options, env)
        }
        Command::Map(options) => map::map(&options, env),
        Command::Resume(options) => resume::resume(&options, env),
        Command::Replay(options) => replay::replay(&options, env),
        Command::Test(options) => test::test(&options, env),
        Command::Validate(options) => validate::validate(&options, env),
        Command::Mcp { command } => mcp::mcp(&command, env),
        Command::Explain(options) => explain::explain(&options, env),
        Command::Show(options) => show::show(&options, env),
        Command::Export(options) => export::export(&options, env),
        Command::Runs(options) => runs::runs(&options, env),
        Command::Diff(options) => diff::diff(&options, env),
        Command::Apply(options) => apply::apply(&options, env),
        Command::Publish(options) => publish::publish(&options, env),
        Command::Gather(options) => gather::gather(&options, env),
        Command::Emit(options) => emit::emit(&options, env),
        Command::Prices(options) => prices::prices(&options, env),
        Command::Providers(options) => providers::providers(&options, env),
        Command::Init(options) => init::init(&options, env),
        Command::Schema { kind } => {
            let schema = match kind {
                SchemaKind::Job => editor_schema::job_schema(),
                SchemaKind::Script => editor_schema::script_schema(),
                SchemaKind::Result => editor_schema::result_schema(),
                SchemaKind::Events => editor_schema::event_schema(),
                SchemaKind::Runs => run_table::schema(),
                SchemaKind::Expect => cases::expect_schema(),
            };
            env.console.print(&format!("{schema:#}"));
            Ok(0)
        }
        Command::Doctor(options) => doctor::doctor(&options, env),
        Command::Man(options) => man::man(&options, self::command(), env),
        Command::Completions(options) => completions::completions(&options, self::command(), env),
    }
}
