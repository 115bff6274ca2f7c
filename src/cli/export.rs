//! `legwork export`: writes a recorded run in the format of another program, and sends the traces of runs that have ended.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use rustix::fs::Mode;

use super::arguments::{RUN_HELP, reject_escaping_symlinks};
use super::env::CliEnv;
use super::output::printable;
use super::read_files::parent_folder;
use crate::error::Error;
use crate::event::{Outcome, PARENT, is_agent_id};
use crate::exports::messages::apis;
use crate::exports::otlp::{SenderSettings, sender};
use crate::exports::{EXPORTS, Export, ExportError, ExportFormat};
use crate::record::{LATEST, RUNS, Record, find_run, is_record_file};
use crate::workspace::new_file::{self, NewFile};
use crate::workspace_changes::has_tracked_files;

/// The longest that sending may take after a signal: a CI system soon kills the process.
const MAX_TIME_AFTER_SIGNAL: Duration = Duration::from_secs(2);

/// Options of `legwork export`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct ExportArgs {
    /// The run
    #[arg(default_value = LATEST)]
    run: String,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// The format
    ///
    /// `otlp`: OpenTelemetry traces by the conventions for generative AI, as JSON lines. `atif`: the Agent Trajectory
    /// Interchange Format, version 1.8. `messages`: the conversation of one agent as JSON of its provider's API, the body
    /// of the next request.
    #[arg(long, value_parser = PossibleValuesParser::new(EXPORTS.iter().map(|format| format.name)))]
    format: String,
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With otlp: include the texts of messages, and the inputs and results of calls
    #[arg(long)]
    with_content: bool,
    /// With messages: the agent, such as explorer-1; default: the parent
    #[arg(long, value_name = "ID", value_parser = parse_agent)]
    agent: Option<String>,
    /// With messages: the API to write for; default: the one that the agent used
    #[arg(long, value_name = "API", value_parser = PossibleValuesParser::new(apis().map(|api| api.name)))]
    api: Option<String>,
}

fn parse_agent(id: &str) -> Result<String, String> {
    if id == PARENT || is_agent_id(id) {
        return Ok(id.to_owned());
    }
    Err("an agent is `parent`, or a subagent and its number, such as explorer-1".to_owned())
}

pub(super) fn export(options: &ExportArgs, env: &CliEnv) -> Result<u8, Error> {
    let unknown = || Error::usage("this format doesn't exist", "Choose one that --help lists.");
    let format = EXPORTS.iter().find(|format| format.name == options.format).ok_or_else(unknown)?;
    options.check(format)?;
    let record = env.open_record(&find_run(&options.out, &options.run, &has_tracked_files)?)?;
    let variable = |name: &str| env.variables.get(name).cloned();
    let export = Export {
        with_content: options.with_content,
        agent: options.agent.as_deref().unwrap_or(PARENT),
        api: options.api.as_deref(),
        ..Export::new(&record, &variable, &env.parsed_servers().servers)
    };
    let written = match &options.output {
        Some(path) => check_output(path).and_then(|()| write_file(path, format, &export)),
        None => write_stdout(format, &export),
    };
    for warning in written? {
        env.console.warning(warning.trim_end_matches('.'));
    }
    if let Some(path) = &options.output {
        env.console.eprint(&format!("written: {}", printable(&path.to_string_lossy())));
    }
    Ok(0)
}

impl ExportArgs {
    /// Refuses the options of other formats.
    fn check(&self, format: &ExportFormat) -> Result<(), Error> {
        let given =
            [("--with-content", self.with_content), ("--agent", self.agent.is_some()), ("--api", self.api.is_some())];
        match given.into_iter().find(|(option, is_given)| *is_given && !format.options.contains(option)) {
            Some((option, _)) => {
                let message = format!("{option} has no effect with --format {}", format.name);
                Err(Error::usage(message, format!("Remove {option}, or choose another format.")))
            }
            None => Ok(()),
        }
    }
}

/// Writes to stdout. A reader that doesn't read to the end isn't an error.
fn write_stdout(format: &ExportFormat, export: &Export<'_>) -> Result<Vec<String>, Error> {
    let mut out = BufWriter::new(io::stdout().lock());
    match (format.write)(export, &mut out).and_then(|warnings| out.flush().map(|()| warnings).map_err(Into::into)) {
        Err(ExportError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Vec::new()),
        Err(ExportError::Output(error)) => Err(Error::environment("can't write to stdout")(error)),
        Err(ExportError::Failed(error)) => Err(error),
        Ok(warnings) => Ok(warnings),
    }
}

/// Refuses files of records, and paths through links that lead out of the current folder: a command may have made them.
fn check_output(path: &Path) -> Result<(), Error> {
    if is_record_file(path) {
        let message = format!("--output {}: it is part of a record", path.display());
        return Err(Error::usage(message, "Name another file."));
    }
    let hint = "Remove the link, or name the file of --output by the path that it leads to.";
    reject_escaping_symlinks(Path::new("."), parent_folder(path), hint)
}

/// Writes a file, whole or not at all. Like the record, only its owner can read it. A pipe or device is written directly.
fn write_file(path: &Path, format: &ExportFormat, export: &Export<'_>) -> Result<Vec<String>, Error> {
    let failed = |error| match error {
        ExportError::Failed(error) => error,
        ExportError::Output(error) => {
            let message = format!("can't write {}: {error}", path.display());
            Error::usage(message, "Name a file in a folder that exists and that you can write to.")
        }
    };
    let output = |error: io::Error| failed(ExportError::Output(error));
    if fs::metadata(path).is_ok_and(|data| !data.is_file()) {
        let mut out = BufWriter::new(fs::OpenOptions::new().write(true).open(path).map_err(output)?);
        let warnings = (format.write)(export, &mut out).map_err(failed)?;
        return out.flush().map(|()| warnings).map_err(output);
    }
    let folder = fs::File::open(parent_folder(path)).map_err(output)?;
    let new = NewFile::create(folder.as_fd(), new_file::PREFIX, Mode::RUSR | Mode::WUSR).map_err(output)?;
    let mut out = BufWriter::new(new.file());
    let warnings = (format.write)(export, &mut out).map_err(failed)?;
    out.flush().map_err(output)?;
    drop(out);
    new.persist(path.file_name().unwrap_or_default()).map_err(output)?;
    Ok(warnings)
}

/// Sends the traces of a run that has ended, if OpenTelemetry's variables ask for it. Returns warnings.
///
/// # Errors
/// They weren't sent: the warning that says why.
pub(super) async fn send_traces(folder: &Path, outcome: Outcome, env: &CliEnv) -> Result<Vec<String>, String> {
    let variable = |name: &str| env.variables.get(name).cloned();
    let sender = SenderSettings::new(&variable).map_err(|why| format!("no traces are sent: {why}"))?;
    let Some(mut sender) = sender else { return Ok(Vec::new()) };
    if outcome == Outcome::Interrupted {
        sender = sender.at_most(MAX_TIME_AFTER_SIGNAL);
    }
    let record = Record::open(folder).map_err(|error| format!("no traces are sent: {error}"))?;
    let export = Export::new(&record, &variable, &env.parsed_servers().servers);
    let failed = |why: String| format!("the traces weren't sent to {}: {why}", sender.display_url);
    sender::send(&export, &sender).await.map_err(failed)
}
