//! `legwork show`: prints what happened in a run, follows it while it runs, opens its report, or rebuilds its record.

mod follow;
mod pager;
mod print;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::print::{print, write_failed};
use super::arguments::RUN_HELP;
use super::env::CliEnv;
use super::gather::gather_error;
use super::output::{printable, shell_quote};
use crate::conversation::{Conversation, MAX_SHOWN_CHARS};
use crate::error::{Error, Obstacle};
use crate::event::{PARENT, is_agent_id};
use crate::map::tables::{RowState, map_rows};
use crate::record::{ExistingFile, LATEST, ROWS, RUNS, Record, Recorder, find_run, read_file};
use crate::reports::conversation_text::{Selection, Target, write_selection};
use crate::reports::missing_hosts::{missing_hosts, network_yaml};
use crate::reports::record_files::write_reports;
use crate::run::cannot_resume;
use crate::text::sanitize;
use crate::workspace_changes::has_tracked_files;

/// The largest page of another version that is shown, in bytes.
const MAX_PAGE_BYTES: u64 = 64 << 20;

/// How many rows of a map are checked before its report is opened.
const MAX_CHECKED_ROWS: usize = 20;

/// Options of `legwork show`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct ShowArgs {
    /// The run
    #[arg(default_value = LATEST)]
    run: String,
    /// The agent whose conversation is shown, such as explorer-1. Default: the parent, and for --errors all agents
    agent: Option<String>,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Show only this turn
    #[arg(long, value_name = "N", conflicts_with_all = ["errors", "follow"])]
    turn: Option<u32>,
    /// Show only what went wrong: failed calls and checks, retries, limits, discarded replies
    #[arg(long, conflicts_with = "follow")]
    errors: bool,
    /// Print only the data of a job with `result`, as JSON
    #[arg(long, conflicts_with_all = ["agent", "turn", "errors", "follow", "open", "rebuild"])]
    result: bool,
    /// Print only the hosts that the run asked for and its lists don't have, as YAML for the job
    #[arg(long, conflicts_with_all = ["agent", "turn", "errors", "follow", "open", "rebuild", "result"])]
    network: bool,
    /// Show what happens in a run until it ends
    #[arg(long)]
    follow: bool,
    /// Print to the terminal directly, without $LEGWORK_PAGER, $PAGER or less
    #[arg(long)]
    no_pager: bool,
    /// Open the HTML report in a browser instead
    #[arg(long, conflicts_with_all = ["agent", "turn", "errors", "follow"])]
    open: bool,
    /// With --open: trust a record that was made elsewhere
    #[arg(long, requires = "open")]
    trust_record: bool,
    /// Rebuild the other files of the record from its journals instead, and list them
    #[arg(long, conflicts_with_all = ["agent", "turn", "errors", "follow", "open"])]
    rebuild: bool,
}

pub(super) fn show(options: &ShowArgs, env: &CliEnv) -> Result<u8, Error> {
    let folder = match find_run(&options.out, &options.run, &has_tracked_files) {
        Err(Error::IsMap { map, wanted }) => return show_map(&map, wanted, options, env),
        found => found?,
    };
    if options.rebuild {
        return rebuild(&folder, env);
    }
    if options.result {
        return print_result(&Record::open(&folder)?, env);
    }
    if options.open {
        return open_report(&folder, &[Record::open(&folder)?], options, env);
    }
    let display = env.console.stdout_display();
    let target = match display.colour || io::stdout().is_terminal() {
        true => Target::Terminal(display),
        false => Target::Markdown,
    };
    if options.follow {
        follow::follow(&folder, options.agent.as_deref(), target, env)?;
        return Ok(0);
    }
    let record = match Record::open_damaged(&folder) {
        Err(error @ Error::OtherFormat { .. }) => return show_written_page(&folder, options, error, env),
        opened => opened?,
    };
    let mut conversation = record.conversation(Some(MAX_SHOWN_CHARS));
    conversation.missing.extend(record.defect.iter().map(|why| format!("{why}.")));
    if options.network {
        return Ok(print_missing_hosts(&conversation, env));
    }
    let selection = selection(options, &conversation)?;
    let mut text = Vec::new();
    if !write_selection(&conversation, selection, target, &mut text).map_err(write_failed)? {
        return Err(no_such_turn(selection));
    }
    let text = String::from_utf8_lossy(&text);
    let workspace = Path::new(&conversation.plan.workspace);
    let may_page = !options.no_pager && !env.console.is_ci && io::stdout().is_terminal();
    let is_dumb = env.variable("TERM").is_none_or(|term| term == "dumb");
    if !may_page || is_dumb || !pager::page(&text, env, workspace) {
        print(&text, target, env);
    }
    for missing in &conversation.missing {
        env.console.warning(missing);
    }
    Ok(0)
}

/// Prints the hosts that a run asked for and its lists don't have.
fn print_missing_hosts(conversation: &Conversation, env: &CliEnv) -> u8 {
    for missing in &conversation.missing {
        env.console.warning(missing);
    }
    let rules = missing_hosts(conversation);
    if rules.is_empty() {
        env.console.eprint("the run asked for no host that isn't in its lists");
    } else {
        env.console.print_sanitized(&network_yaml(&rules));
    }
    0
}

/// Prints the data that a run ended with.
fn print_result(record: &Record, env: &CliEnv) -> Result<u8, Error> {
    let Some(data) = record.result().and_then(|result| result.result.as_ref()) else {
        let why = match record.result() {
            _ if record.plan.parent.returns.is_none() => "its job has no `result`".to_owned(),
            Some(result) => format!("the run ended as {} without data", result.outcome),
            None => "the run hasn't ended".to_owned(),
        };
        let help = "`legwork show RUN` shows what happened in it.";
        return Err(Error::usage(format!("{} has no result: {why}", record.folder.display()), help));
    };
    env.console.print(&format!("{}\n", sanitize::escape_json(&format!("{data:#}"))));
    Ok(0)
}

/// Shows how the rows of a map ended, or opens its report.
fn show_map(map: &Path, wanted: String, options: &ShowArgs, env: &CliEnv) -> Result<u8, Error> {
    if options.open {
        let rows = std::fs::read_dir(map.join(ROWS)).into_iter().flatten().flatten();
        let records: Vec<Record> =
            rows.filter_map(|row| Record::open(&row.path()).ok()).take(MAX_CHECKED_ROWS).collect();
        return open_report(map, &records, options, env);
    }
    if options.agent.is_some()
        || options.turn.is_some()
        || options.errors
        || options.follow
        || options.rebuild
        || options.result
        || options.network
    {
        return Err(Error::IsMap { wanted, map: map.to_owned() });
    }
    // Nothing is written to the map, which may be another user's, or be running.
    let scratch = tempfile::tempdir().map_err(Error::environment("a temporary folder can't be created"))?;
    let files = crate::map::gather(&[map.to_owned()], None, scratch.path(), env.prices()?).map_err(gather_error)?;
    let text = map_rows(&files.table, env.console.stdout_display());
    env.console.print_formatted("text", &text);
    for (what, file) in [("table", "results.csv"), ("open", "report.html")] {
        let path = map.join(file);
        env.console.eprint(&format!("{:<7} {}", format!("{what}:"), printable(&path.to_string_lossy())));
    }
    if files.table.rows.iter().any(|row| row.state == RowState::Unfinished) {
        let map = shell_quote(map);
        let text = format!("Both are as the last process left them; `legwork gather {map}` writes them again.");
        env.console.eprint(&printable(&text));
    }
    Ok(0)
}

/// Shows the page that another version of legwork has written about the parent or a subagent, if it is there. More of a record
/// in another format can't be read.
fn show_written_page(folder: &Path, options: &ShowArgs, error: Error, env: &CliEnv) -> Result<u8, Error> {
    let page = match options.agent.as_deref() {
        _ if options.turn.is_some() || options.errors => return Err(error),
        None | Some(PARENT) => "transcript.md".to_owned(),
        Some(id) if is_agent_id(id) => format!("subagents/{id}.md"),
        Some(_) => return Err(error),
    };
    let Ok(text) = read_file(folder, &page, MAX_PAGE_BYTES) else { return Err(error) };
    env.console.warning(&format!("{error}; this is the {page} that was written with it"));
    env.console.print_untrusted(&String::from_utf8_lossy(&text));
    Ok(0)
}

fn selection<'c>(options: &ShowArgs, conversation: &'c Conversation) -> Result<Selection<'c>, Error> {
    let find = |id: &String| {
        conversation.agents().find(|agent| agent.id == *id).ok_or_else(|| {
            let ids: Vec<&str> = conversation.agents().map(|agent| agent.id.as_str()).collect();
            Error::usage(format!("the run has no agent `{id}`"), format!("It has: {}.", ids.join(", ")))
        })
    };
    let agent = options.agent.as_ref().map(find).transpose()?;
    Ok(match options.turn {
        _ if options.errors => Selection::Errors(agent),
        Some(turn) => Selection::Turn(agent.unwrap_or(&conversation.parent), turn),
        None => Selection::Agent(agent.unwrap_or(&conversation.parent)),
    })
}

fn no_such_turn(selection: Selection<'_>) -> Error {
    let Selection::Turn(agent, number) = selection else {
        return Error::usage("there is nothing to show", "Use `legwork show RUN`.");
    };
    let last = agent.turns().map(|turn| turn.number).max().unwrap_or_default();
    let id = if agent.id.is_empty() { PARENT } else { &agent.id };
    Error::usage(format!("{id} has no turn {number}"), format!("Its last turn is {last}."))
}

/// Opens the HTML report of a run or a map in a browser. One that was made elsewhere could hold any script. `records` are those of
/// the run, or of rows.
fn open_report(folder: &Path, records: &[Record], options: &ShowArgs, env: &CliEnv) -> Result<u8, Error> {
    let report = env.current_folder.join(folder).join("report.html");
    if !report.is_file() {
        let why = "it has no report.html, as the run hasn't ended".into();
        return Err(Error::NotARecord { path: folder.to_owned(), why });
    }
    let mut folders = vec![options.out.clone(), folder.to_owned()];
    folders.extend(records.iter().map(|record| PathBuf::from(&record.plan.workspace)));
    if !options.trust_record {
        let key = env.record_key(&folders.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        let is_ours = |record: &Record| key.as_ref().is_some_and(|key| record.is_signed_by(key).unwrap_or(false));
        if records.is_empty() || !records.iter().all(is_ours) {
            return Err(cannot_resume(folder, Obstacle::Foreign { has_ended: false }));
        }
    }
    let changeable = env.changeable_folders(&env.current_folder, &folders);
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let failed = format!("{opener} can't be started, so {} wasn't opened", report.display());
    let Some(program) = env.program(opener, &changeable) else {
        return Err(Error::usage(
            failed,
            format!("Open the file in a browser. There is no {opener} on the PATH outside of the workspace."),
        ));
    };
    let mut command = Command::new(program);
    command.env_clear().envs(env.program_variables(&changeable)).current_dir("/");
    let status = command.arg(&report).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(Error::environment(failed))?;
    if !status.success() {
        let message = format!("{opener} couldn't open {} ({status})", report.display());
        return Err(Error::usage(message, "Open the file in a browser."));
    }
    Ok(0)
}

/// Rebuilds the files of a record and lists which of them have changed.
fn rebuild(folder: &Path, env: &CliEnv) -> Result<u8, Error> {
    let rebuilt = Recorder::rebuild(folder, write_reports)?;
    for (journal, defect) in &rebuilt.torn {
        env.console.warning(&format!("{journal}: {defect}; the events before it are used"));
    }
    if !rebuilt.has_ended {
        env.console.warning("the journal has no end of the run, so there is no result.json");
    }
    let lines = rebuilt.files.iter().map(|(name, existing)| {
        let status = match existing {
            ExistingFile::Missing => "created",
            ExistingFile::Different => "replaced",
            ExistingFile::Identical => "unchanged",
        };
        format!("{status:<10} {}\n", printable(name))
    });
    env.console.print_sanitized(&lines.collect::<String>());
    Ok(0)
}
