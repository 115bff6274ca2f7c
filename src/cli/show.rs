//! `legwork show`: a run's transcript in the terminal, its report in a browser, or its files made again.

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::CliEnv;
use super::output::printable;
use crate::error::Error;
use crate::event::PARENT;
use crate::formats::{self, Transcript};
use crate::lints::provider_keys;
use crate::record::{ExistingFile, LATEST, RUNS, Record, Recorder, find_run};
use crate::workspace_changes::has_tracked_files;

/// Options of `legwork show`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// A folder, a run id or the start of one, JOB/latest, or latest
    #[arg(default_value = LATEST)]
    run: String,
    /// Where the runs lie
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Open the report in a browser instead
    #[arg(long)]
    open: bool,
    /// Instead, make everything but the journals again from the journals, and list it
    #[arg(long, conflicts_with = "open")]
    rebuild: bool,
}

pub(super) fn show(options: &ShowArgs, around: &CliEnv) -> Result<u8, Error> {
    let folder = find_run(&options.out, &options.run, &has_tracked_files)?;
    if options.rebuild {
        return rebuild(&folder, around);
    }
    if options.open {
        let report = folder.join("report.html");
        if !report.is_file() {
            return Err(Error::NotARecord { path: folder, why: "it has no report.html; the run didn't end".into() });
        }
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let mut opener_of_report = Command::new(opener);
        for key in provider_keys() {
            opener_of_report.env_remove(key);
        }
        let opened = opener_of_report.arg(&report).stdin(Stdio::null()).stdout(Stdio::null()).status();
        return match opened {
            Ok(status) if status.success() => Ok(0),
            Ok(status) => Err(Error::Usage {
                message: format!("{opener} couldn't open {} ({status})", report.display()),
                hint: Some("Open the file yourself.".into()),
            }),
            Err(source) => Err(Error::Environment {
                message: format!("{opener} can't be started to open {}", report.display()),
                source,
            }),
        };
    }
    let record = Record::open(&folder)?;
    let flaw = Cell::new(None);
    let entries = record.entries(PARENT)?.filter_map(|entry| entry.map_err(|found| flaw.set(Some(found))).ok());
    let mut story = Transcript::new(&record.plan, record.result.as_ref(), entries);
    let mut text = Vec::new();
    if let Some(format) = formats::find("markdown")
        && let Some(written) = format.transcript(&mut story, &mut text)
    {
        written.map_err(|source| Error::Record { path: folder.clone(), source })?;
    }
    let text = String::from_utf8_lossy(&text);
    let look = around.console.stdout_display();
    if look.colour || std::io::stdout().is_terminal() {
        around.console.print(&style_for_terminal(&text, look.colour));
    } else {
        around.console.print_untrusted(&text);
    }
    if let Some(flaw) = flaw.take() {
        around.console.warning(&format!("the journal ends early: {flaw}"));
    }
    Ok(0)
}

/// Makes a record's files again, and lists them with what stood in their places.
fn rebuild(folder: &Path, around: &CliEnv) -> Result<u8, Error> {
    let rebuilt = Recorder::rebuild(folder)?;
    for (journal, flaw) in &rebuilt.torn {
        around.console.warning(&format!("{journal} ends early: {flaw}; what stands before it is used"));
    }
    if !rebuilt.has_ended {
        around.console.warning("the journal has no end of the run, so no result.json follows from it");
    }
    let lines = rebuilt.files.iter().map(|(name, found)| {
        let was = match found {
            ExistingFile::Missing => "was missing",
            ExistingFile::Different => "was another",
            ExistingFile::Identical => "as it was",
        };
        format!("{was:<12} {}\n", printable(name))
    });
    around.console.print_sanitized(&lines.collect::<String>());
    Ok(0)
}

/// Makes the transcript's own headings stand out on a terminal, and escape sequences in it harmless.
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
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}
