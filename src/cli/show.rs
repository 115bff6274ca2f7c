//! `legwork show`: prints a run's transcript, opens its report, or rebuilds its record.

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::arguments::RUN_HELP;
use super::env::CliEnv;
use super::output::printable;
use crate::error::Error;
use crate::event::PARENT;
use crate::formats::{Transcript, markdown};
use crate::lints::provider_keys;
use crate::record::{ExistingFile, LATEST, RUNS, Record, Recorder, find_run};
use crate::workspace_changes::has_tracked_files;

/// Options of `legwork show`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct ShowArgs {
    /// The run
    #[arg(default_value = LATEST)]
    run: String,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Open the HTML report in a browser instead
    #[arg(long)]
    open: bool,
    /// Rebuild the other files of the record from its journals instead, and list them
    #[arg(long, conflicts_with = "open")]
    rebuild: bool,
}

pub(super) fn show(options: &ShowArgs, env: &CliEnv) -> Result<u8, Error> {
    let folder = find_run(&options.out, &options.run, &has_tracked_files)?;
    if options.rebuild {
        return rebuild(&folder, env);
    }
    if options.open {
        return open_report(folder);
    }
    let record = Record::open(&folder)?;
    let defect = Cell::new(None);
    let entries = record.entries(PARENT)?.filter_map(|entry| entry.map_err(|error| defect.set(Some(error))).ok());
    let mut transcript = Transcript::new(&record.plan, record.result.as_ref(), entries);
    let mut text = Vec::new();
    markdown::transcript(&mut transcript, &mut text)
        .map_err(|source| Error::Record { path: folder.clone(), source })?;
    let text = String::from_utf8_lossy(&text);
    let display = env.console.stdout_display();
    if display.colour || std::io::stdout().is_terminal() {
        env.console.print(&style_for_terminal(&text, display.colour));
    } else {
        env.console.print_untrusted(&text);
    }
    if let Some(defect) = defect.take() {
        env.console.warning(&format!("the journal ends early: {defect}"));
    }
    Ok(0)
}

/// Opens the HTML report of a run in a browser.
fn open_report(folder: PathBuf) -> Result<u8, Error> {
    let report = folder.join("report.html");
    if !report.is_file() {
        return Err(Error::NotARecord { path: folder, why: "it has no report.html, as the run hasn't ended".into() });
    }
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    for key in provider_keys() {
        command.env_remove(key);
    }
    let status = command.arg(&report).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status
        .map_err(Error::environment(format!("{opener} can't be started, so {} wasn't opened", report.display())))?;
    if !status.success() {
        let message = format!("{opener} couldn't open {} ({status})", report.display());
        return Err(Error::usage(message, "Open the file in a browser."));
    }
    Ok(0)
}

/// Rebuilds the files of a record and lists which of them have changed.
fn rebuild(folder: &Path, env: &CliEnv) -> Result<u8, Error> {
    let rebuilt = Recorder::rebuild(folder)?;
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

/// Colours the headings of a transcript and sanitizes its text for a terminal.
fn style_for_terminal(markdown: &str, colour: bool) -> String {
    let mut fence: Option<String> = None;
    let mut text = String::with_capacity(markdown.len());
    for line in markdown.lines() {
        let ticks: String = line.chars().take_while(|letter| *letter == '`').collect();
        match &fence {
            None if ticks.len() >= 3 => fence = Some(ticks),
            Some(open) if *open == line => fence = None,
            _ => {}
        }
        let line = printable(&line.replace('\t', "    "));
        if colour && fence.is_none() && line.starts_with('#') {
            text.push_str(&format!("\u{1b}[1;36m{line}\u{1b}[0m\n"));
        } else {
            text += &(line + "\n");
        }
    }
    text
}
