//! `legwork diff`: compares two recorded runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::Value;

use super::arguments::{RUN_HELP, format_parser};
use super::env::CliEnv;
use crate::error::Error;
use crate::event::{Change, Event, PARENT, RunModel, RunUse, WorkspaceChanged};
use crate::plan::Plan;
use crate::plan::diff::diff_values;
use crate::record::{RUNS, find_run};
use crate::reports;
use crate::reports::comparison::{ChangedFile, ComparedRun, Comparison};
use crate::text::diff::unified;
use crate::workspace_changes::{has_tracked_files, split_by_path};

/// Options of `legwork diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct DiffArgs {
    /// The first run
    #[arg(value_name = "RUN")]
    before: String,
    /// The second run
    #[arg(value_name = "RUN")]
    after: String,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// The output format
    #[arg(long, default_value = "text", value_parser = format_parser(reports::COMPARISONS))]
    format: String,
}

pub(super) fn diff(options: &DiffArgs, env: &CliEnv) -> Result<u8, Error> {
    let read = |run: &str| LoadedRun::read(&find_run(&options.out, run, &has_tracked_files)?, env);
    let (one, other) = (read(&options.before)?, read(&options.after)?);
    let comparison = Comparison {
        format: 1,
        same_job: one.plan.job == other.plan.job,
        plan: one.plan.changes_to(&other.plan),
        result: diff_values(&one.result, &other.result),
        text: (one.text != other.text).then(|| unified(&one.text, &other.text)),
        files: compare_files(one.changes.as_ref(), other.changes.as_ref()),
        runs: [one.side, other.side],
    };
    let text = reports::find(reports::COMPARISONS, &options.format)(&comparison, env.console.stdout_display());
    env.console.print_formatted(&options.format, &text);
    Ok(0)
}

/// What `diff` needs of a recorded run.
struct LoadedRun {
    plan: Plan,
    side: ComparedRun,
    text: String,
    result: Value,
    changes: Option<WorkspaceChanged>,
}

impl LoadedRun {
    fn read(folder: &Path, env: &CliEnv) -> Result<Self, Error> {
        let record = env.open_record(folder)?;
        let (mut summary, mut used) = (RunModel::default(), RunUse::default());
        let recorded_id = record.result().map(|result| result.run_id.clone());
        let mut run_id = recorded_id.unwrap_or_else(|| folder.display().to_string());
        for agent in record.agents()? {
            for entry in record.entries(&agent)? {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(defect) => {
                        env.console.warning(&format!("the journal of {agent} in {run_id} is incomplete: {defect}"));
                        break;
                    }
                };
                summary.apply(&agent, &entry.event, entry.at);
                used.apply(&entry);
                if let Event::RunStarted(started) = &entry.event {
                    run_id.clone_from(&started.run_id);
                }
            }
        }
        let mut tools: IndexMap<String, u64> = IndexMap::new();
        for agent in summary.agents.values() {
            agent.calls.iter().for_each(|(tool, calls)| *tools.entry(tool.clone()).or_default() += calls);
        }
        tools.sort_by(|one, calls, other, other_calls| other_calls.cmp(calls).then_with(|| one.cmp(other)));
        let parent = summary.agents.remove(PARENT).unwrap_or_default();
        let result = record.state.into_result();
        let side = ComparedRun {
            run_id,
            job: record.plan.job.clone(),
            model: record.plan.parent.model.to_string(),
            outcome: result.as_ref().map(|result| result.outcome),
            turns: result.as_ref().map_or(parent.turn, |result| result.turns),
            tool_calls: result.as_ref().map_or_else(
                || tools.values().sum(),
                |result| {
                    let of_children = result.subagents.iter().map(|child| child.tool_calls);
                    of_children.fold(result.tool_calls, u64::saturating_add)
                },
            ),
            tools,
            usage: result.as_ref().map_or(used.total.usage, |result| result.usage),
            cost_usd: result.as_ref().and_then(|result| result.cost_usd),
            duration_ms: result.as_ref().map(|result| result.duration_ms),
            sandbox: result.as_ref().map(|result| result.sandbox.clone()),
            subagents: result.as_ref().map(|result| result.subagents.clone()).unwrap_or_default(),
            checks: result.as_ref().map(|result| result.checks.clone()).unwrap_or_default(),
            has_changes: result.as_ref().is_some_and(|result| result.changes.is_some()),
            changed_files: summary.changed.as_ref().and_then(|changed| changed.total),
        };
        let text = result.as_ref().map_or(parent.last_text, |result| result.text.clone());
        let data = result.and_then(|result| result.result).unwrap_or_default();
        Ok(Self { plan: record.plan, side, text, result: data, changes: summary.changed })
    }
}

/// The files that at least one of the runs changed.
fn compare_files(one: Option<&WorkspaceChanged>, other: Option<&WorkspaceChanged>) -> Vec<ChangedFile> {
    let mut files: BTreeMap<&str, [Option<Change>; 2]> = BTreeMap::new();
    for (at, changed) in [one, other].into_iter().enumerate() {
        for change in changed.into_iter().flat_map(|changed| &changed.changes) {
            files.entry(&change.path).or_default()[at] = Some(change.clone());
        }
    }
    let patches = [one, other].map(|changed| changed.map(split_by_path).unwrap_or_default());
    let file = |(path, changes): (&str, _)| ChangedFile {
        path: path.to_owned(),
        changes,
        same: patches[0].get(path).zip(patches[1].get(path)).map(|(one, other)| one == other),
    };
    files.into_iter().map(file).collect()
}
