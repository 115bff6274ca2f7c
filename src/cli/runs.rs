//! `legwork runs`: lists the records of runs. `legwork runs prune`: removes old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use super::arguments::format_parser;
use super::env::CliEnv;
use super::output::printable;
use crate::catalog::{self, Entry, KeepReason, PruneRules, Pruned};
use crate::error::Error;
use crate::job::Duration as JobDuration;
use crate::record::{ObservedLease, RUNS, RunRow, RunStatus};
use crate::reports;
use crate::reports::run_table::RunTable;
use crate::text::{format_size, pluralize};

/// How long a list waits for signs of life of runs on other machines.
const MAX_LIST_OBSERVATION: Duration = Duration::from_millis(2_500);
/// How many damaged records are named after a table.
const MAX_NAMED: usize = 20;
const SECONDS_OF: [(char, u64); 2] = [('w', 7 * 24 * 3600), ('d', 24 * 3600)];

/// Options of `legwork runs`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// Only the runs of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only runs with this outcome, and maps that have a row with it; may be repeated
    ///
    /// In addition to the outcomes of runs: running, not_started, damaged, other_format.
    #[arg(long, value_name = "OUTCOME", value_parser = parse_outcome)]
    outcome: Vec<String>,
    /// Only the newest N
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// List each row of a map
    #[arg(long)]
    rows: bool,
    /// The output format
    #[arg(long, default_value = "text", value_parser = format_parser(reports::RUN_LISTS))]
    format: String,
}

#[derive(Debug, clap::Subcommand)]
enum RunsCommand {
    /// Remove the records of runs that have ended
    ///
    /// At least one of --older-than and --keep must be given; with both, a record is removed only if both allow it. A map is
    /// removed with all of its rows or not at all. Records that can be resumed, that a process uses, that git tracks or that
    /// this version can't read are kept.
    Prune(PruneArgs),
}

/// Options of `legwork runs prune`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["older_than", "keep"]))]
struct PruneArgs {
    /// Remove only what ended longer ago, such as 30d, 2w or 12h
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    older_than: Option<Duration>,
    /// Keep the newest N records of each job
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Only the runs of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Also remove records that could be resumed
    #[arg(long)]
    include_resumable: bool,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
}

fn parse_outcome(text: &str) -> Result<String, String> {
    let names: Vec<String> = RunStatus::all().into_iter().map(RunStatus::name).collect();
    if names.iter().any(|name| name == text) {
        Ok(text.to_owned())
    } else {
        Err(format!("use one of {}", names.join(", ")))
    }
}

/// Parses an age: like a duration in a job, also with weeks and days.
fn parse_age(text: &str) -> Result<Duration, String> {
    let help = "write it like `30d`, `2w` or `12h`";
    let mut seconds = 0_u64;
    let mut rest = text;
    for (unit, of_unit) in SECONDS_OF {
        let digits = rest.len() - rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        if let Some(behind) = rest[digits..].strip_prefix(unit).filter(|_| digits > 0) {
            let number: u64 = rest[..digits].parse().map_err(|_| format!("`{text}` is too long"))?;
            seconds = seconds.saturating_add(number.saturating_mul(of_unit));
            rest = behind;
        }
    }
    if !rest.is_empty() {
        let rest = JobDuration::parse(rest).map_err(|_| format!("`{text}` isn't an age; {help}"))?;
        seconds = seconds.saturating_add(rest.get().as_secs());
    }
    match seconds {
        0 => Err(format!("`{text}` isn't an age; {help}")),
        // A century, so that no time is out of bounds.
        seconds => Ok(Duration::from_secs(seconds.min(100 * 365 * 24 * 3600))),
    }
}

pub(super) fn runs(options: &RunsArgs, env: &CliEnv) -> Result<u8, Error> {
    match &options.command {
        Some(RunsCommand::Prune(options)) => prune(options, env),
        None => list(options, env),
    }
}

fn list(options: &RunsArgs, env: &CliEnv) -> Result<u8, Error> {
    let observation = ObservedLease::observation().min(MAX_LIST_OBSERVATION);
    let entries = catalog::list(&options.out, options.job.as_deref(), (env.clock)(), observation)?;
    let is_empty = entries.is_empty();
    let entries = if options.rows {
        let mut rows: Vec<Entry> = entries.into_iter().flat_map(with_rows).collect();
        rows.sort_by_key(|entry| std::cmp::Reverse(entry.since));
        rows
    } else {
        entries
    };
    let is_wanted = |entry: &Entry| {
        options.outcome.is_empty() || options.outcome.iter().any(|outcome| entry.row.has_outcome(outcome))
    };
    let limit = options.limit.unwrap_or(usize::MAX);
    let mut shown: Vec<Entry> = entries.into_iter().filter(is_wanted).take(limit).collect();
    catalog::read_unfinished(&mut shown, env.prices()?, (env.clock)());
    let rows: Vec<_> = shown.into_iter().map(|entry| entry.row).collect();
    let display = env.console.stdout_display();
    let table = RunTable::new(rows, std::io::stdout().is_terminal().then_some(display.width));
    env.console.print_formatted(&options.format, &reports::find(reports::RUN_LISTS, &options.format)(&table, display));
    if options.format != "text" {
        return Ok(0);
    }
    if table.runs.is_empty() {
        let out = printable(&options.out.to_string_lossy());
        let job = options.job.as_ref().map(|job| format!(" of the job {}", printable(job))).unwrap_or_default();
        env.console.eprint(&match is_empty {
            true => format!("there are no runs{job} in {out} yet"),
            false => format!("no run{job} in {out} has this outcome"),
        });
    }
    warn_of_defects(&table.runs, env);
    Ok(0)
}

/// Names the records that can't be read in full, and why.
fn warn_of_defects<'r>(rows: impl IntoIterator<Item = &'r RunRow>, env: &CliEnv) {
    let defects: Vec<_> = rows.into_iter().filter_map(|row| Some((&row.path, row.defect.as_ref()?))).collect();
    for (path, defect) in defects.iter().take(MAX_NAMED) {
        env.console.warning(&format!("{path}: {defect}"));
    }
    if let Some(more) = defects.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        env.console.warning(&format!(
            "{} can't be read in full; --format json has the reasons",
            pluralize(more as u64, "more record")
        ));
    }
}

/// The rows of a map instead of the map; a run as it is.
fn with_rows(entry: Entry) -> Vec<Entry> {
    if entry.rows.is_empty() { vec![entry] } else { entry.rows }
}

fn prune(options: &PruneArgs, env: &CliEnv) -> Result<u8, Error> {
    let now = (env.clock)();
    let entries = catalog::list(&options.out, options.job.as_deref(), now, ObservedLease::observation())?;
    if entries.is_empty() {
        env.console.eprint(&format!("there are no runs in {}", printable(&options.out.to_string_lossy())));
        return Ok(0);
    }
    let rules = PruneRules {
        older_than: options.older_than,
        keep: options.keep.unwrap_or_default(),
        include_resumable: options.include_resumable,
    };
    let catalog::Selection { remove, mut keep } = catalog::select(&options.out, entries, &rules, now)?;
    let (mut removed, mut bytes, mut failure) = (0_usize, 0_u64, None);
    let mut print = |pruned: &Pruned, verb: &str| {
        removed += 1;
        bytes += pruned.bytes;
        let row = &pruned.entry.row;
        let when = row.ended_at.map(|at| at.strftime("%Y-%m-%d").to_string()).unwrap_or_default();
        let rows = row.rows.as_ref().map(|_| format!(", {}", pluralize(pruned.entry.rows.len() as u64, "row")));
        let line = format!(
            "{verb} {} ({}, {when}{}, {})",
            row.run,
            row.status.name(),
            rows.unwrap_or_default(),
            format_size(pruned.bytes)
        );
        env.console.print_sanitized(&printable(&line));
    };
    if options.dry_run {
        remove.into_iter().map(Pruned::preview).for_each(|pruned| print(&pruned, "would remove"));
    } else {
        let leftovers = catalog::remove_leftovers(&options.out);
        // Also of jobs whose link a killed process has left as it was.
        let kept = keep.iter().map(|(entry, _)| entry);
        let jobs: BTreeSet<String> = remove.iter().chain(kept).map(|entry| entry.row.job.clone()).collect();
        for entry in remove {
            match catalog::remove(&options.out, entry.clone()) {
                Ok(Ok(pruned)) => print(&pruned, "removed"),
                Ok(Err(reason)) => keep.push((entry, reason)),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        for job in jobs {
            let own = keep.iter().filter(|(_, reason)| *reason != KeepReason::Tracked);
            let mut kept: Vec<&Entry> = own.map(|(entry, _)| entry).filter(|entry| entry.row.job == job).collect();
            kept.sort_by_key(|entry| std::cmp::Reverse(entry.since));
            let updated = catalog::update_latest(&options.out.join(&job), kept);
            failure = failure.or(updated.err());
        }
        bytes += leftovers;
    }
    let verb = if options.dry_run { "would remove" } else { "removed" };
    env.console.eprint(&format!("{verb} {}, {}", pluralize(removed as u64, "record"), format_size(bytes)));
    let mut reasons: BTreeMap<KeepReason, Vec<&Entry>> = BTreeMap::new();
    keep.iter().for_each(|(entry, reason)| reasons.entry(*reason).or_default().push(entry));
    for (reason, entries) in reasons {
        let is_expected = matches!(reason, KeepReason::Newest | KeepReason::Young);
        let names: Vec<&str> = entries.iter().take(5).map(|entry| entry.row.run.as_str()).collect();
        let dots = if entries.len() > names.len() { ", ..." } else { "" };
        let names = if is_expected { String::new() } else { format!(": {}{dots}", names.join(", ")) };
        env.console.eprint(&printable(&format!(
            "kept {}, {}{names}",
            pluralize(entries.len() as u64, "record"),
            reason.text()
        )));
    }
    warn_of_defects(keep.iter().map(|(entry, _)| &entry.row), env);
    failure.map_or(Ok(0), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_weeks_and_days() {
        let days = |text| parse_age(text).map(|age| age.as_secs_f64() / 86_400.0);
        assert_eq!(["30d", "2w", "1w1d", "1d12h", "36h"].map(|text| days(text).unwrap()), [30.0, 14.0, 8.0, 1.5, 1.5]);
        for text in ["", "30", "d", "0d", "1d1w", "-1d", "1.5d", "30 d", "1y"] {
            assert!(days(text).is_err(), "{text}");
        }
    }
}
