//! `legwork resume`: goes on with a run that was cut off.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::execute::{Execution, connect_providers, execute};
use super::output::printable;
use super::result_file::ResultFile;
use super::run::{limit_error, parse_assignment, parse_limits, read_secret_inputs, resolve_workspace};
use super::sandbox_options::SandboxOptions;
use super::secrets::RunSecrets;
use super::{CliEnv, format_parser, granted_permissions};
use crate::error::Error;
use crate::event::{Event, JournalEntry, PARENT, RunOptions};
use crate::formats::Subject;
use crate::record::{LATEST, RUNS, Record, Recorder, ResumedRecord, find_run};
use crate::run::{ResumeState, Signals, UsedLimit, head_commit};
use crate::workspace_changes::has_tracked_files;

/// Options of `legwork resume`.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// A folder, a run id or the start of one, JOB/latest, or latest; default: the newest run
    run: Option<String>,
    /// Give a secret input again: NAME=VALUE; NAME=@FILE takes a file's text, NAME=@- standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<String>,
    /// Give a secret input again, from an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_assignment)]
    set_env: Vec<String>,
    /// The folder that the tools work in; default: the run's own
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Go on even where another commit is checked out than the run began with, a secret has another value, or the record is
    /// a copy of one that is there
    #[arg(long)]
    force: bool,
    /// Go on with a record that was made elsewhere, and say what it grants
    #[arg(long)]
    trust_record: bool,
    /// Put this limit in the place of the run's: cost_usd, tokens, wall_clock, tool_calls, subagents, parallel_subagents,
    /// max_turns, or SUBAGENT.max_turns; may be repeated. A run that a limit ended goes on where that one is raised
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    limit: Vec<String>,
    /// Where the runs lie
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    #[command(flatten)]
    sandbox_options: SandboxOptions,
    /// What stdout gets: the last text, result.json, or the events as they happen
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Run))]
    format: String,
    /// Write the data that the job ends with to this file, too; without data there is no such file after the run
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
}

pub(super) fn resume(options: &ResumeArgs, around: &CliEnv) -> Result<u8, Error> {
    let folder = find_run(&options.out, options.run.as_deref().unwrap_or(LATEST), &has_tracked_files)?;
    let signals = Signals::catch()?;
    let limits = parse_limits(&options.limit);
    // A record that can't be read is refused below.
    let named = Record::open(&folder).map(|record| PathBuf::from(record.plan.workspace)).ok();
    let folders: Vec<&Path> =
        [options.workspace.as_deref(), named.as_deref(), Some(&folder)].into_iter().flatten().collect();
    let key = around.record_key(&folders)?;
    let reopened = match Recorder::resume(&folder, !limits.is_empty(), key) {
        Err(ended @ Error::RunEnded { outcome, .. }) => {
            let ended_so = printable(&ended.to_string());
            if outcome.is_a_limit() {
                around.console.eprint(&ended_so);
                if let Some(used) = limit_that_ended(&Record::open(&folder)?)? {
                    around.console.eprint(&format!("help:   {}", raise_limit_hint(&used, &folder)));
                }
            } else {
                let newest = match &options.run {
                    None => "; this is the newest run, name another with `legwork resume RUN`",
                    Some(_) => "",
                };
                around.console.eprint(&format!("{ended_so}; only one that was cut off can go on{newest}"));
            }
            if let Some(file) = ResultFile::prepare(options.result.as_deref())? {
                let record = Record::open(&folder)?;
                ResultFile::check_result_option(options.result.as_deref(), &record.plan)?;
                file.make_folder()?;
                file.make_folder()?;
                record.result.iter().try_for_each(|result| file.write(result))?;
            }
            return Ok(ended.exit_code());
        }
        reopened => reopened?,
    };
    let ResumedRecord { recorder, record, journals, last_seen, has_our_key: is_ours } = reopened;
    let mut plan = record.plan;
    let servers = around.user_servers()?;
    for agent in std::iter::once(&mut plan.parent).chain(plan.subagents.values_mut()) {
        agent.model.server = servers.server_info(&agent.model.provider);
    }
    let mut before = load_resume_state(journals, &folder)?;
    if !is_ours {
        granted_permissions::show(around, &plan);
        if !options.trust_record {
            return Err(Error::ForeignRecord { path: folder });
        }
    }
    if !options.force
        && let Some(original) = find_original(before.folder(), recorder.folder(), &before.started().run_id)
    {
        return Err(Error::Copied { path: folder, original });
    }
    let earlier = match is_ours {
        true => before.options().clone(),
        // What only a command line can grant, it has to grant here.
        false => RunOptions { untrusted: before.options().untrusted, ..RunOptions::default() },
    };
    let confinement = options.sandbox_options.or_recorded(&earlier);
    if earlier.untrusted && confinement.is_off() {
        return Err(Error::Usage {
            message: "an untrusted job is not run without a sandbox".into(),
            hint: Some("Leave out --sandbox off.".into()),
        });
    }
    let result_path = options.result.clone().or(earlier.result.as_ref().map(PathBuf::from));
    ResultFile::check_result_option(result_path.as_deref(), &plan)?;
    before.last_seen = last_seen;
    let used = record.result.as_ref().map_or(Ok(None), |result| before.used_limit(result)).map_err(limit_error)?;
    before.replace_limits(&mut plan, limits).map_err(limit_error)?;
    if let Some(used) = used.filter(|used| !used.leaves_more(&plan.limits, plan.parent.max_turns)) {
        return Err(Error::Usage {
            message: format!("the run ended at its limit `{}`, and --limit doesn't raise that", used.name),
            hint: Some(raise_limit_hint(&used, &folder)),
        });
    }
    let (last, then) = before.last_workspace();
    let workspace = resolve_workspace(options.workspace.as_deref().unwrap_or(Path::new(last)))?;
    let now = head_commit(&workspace);
    if then != now.as_deref() && !options.force {
        let named = |commit: Option<&str>| commit.unwrap_or("none").to_owned();
        return Err(Error::CommitMismatch { now: named(now.as_deref()), then: named(then) });
    }
    plan.workspace = workspace.to_string_lossy().into_owned();
    let secrets = read_secret_inputs(&options.set, &options.set_env, around, &plan.secret_inputs)?;
    let scripts = before.started().scripts.iter().map(|(name, path)| (name.clone(), PathBuf::from(path))).collect();
    let confidences = RunSecrets::new(around, servers, &plan, &secrets);
    if is_ours {
        let now = recorder.digests(&before.started().run_id, &confidences.redacted_command_secrets());
        let changed = before.changed_secrets(&now).join(", ");
        if !changed.is_empty() && !options.force {
            return Err(Error::Usage {
                message: format!("a secret has another value than before the run was cut off: {changed}"),
                hint: Some(
                    "The workspace may hold the old one, which would no longer be masked: give that, or start the job \
                     anew. --force goes on, without changes.patch."
                        .into(),
                ),
            });
        }
        if !changed.is_empty() {
            before.has_new_secrets = true;
            around.console.warning(&format!("the old value of these secrets is not masked any more: {changed}"));
        }
    }
    let providers = connect_providers(around, &plan, &scripts, &confidences.mask, None)?;
    let out = runs_folder(recorder.folder(), &before.started().run_id, &plan.job);
    let protected: Vec<PathBuf> = before.started().protected.iter().map(PathBuf::from).collect();
    let confined = confinement.prepare_sandbox(around, &plan, &protected, &out)?;
    let result_file = ResultFile::prepare(result_path.as_deref())?;
    if let Some(file) = &result_file {
        file.make_folder()?;
    }
    execute(
        Execution {
            plan,
            secrets: confidences,
            job_file: "",
            protected_paths: protected,
            runs_folder: out,
            sandbox: confined,
            display_folder: &folder,
            format: &options.format,
            providers,
            scripts,
            recorder,
            result_file,
            options: RunOptions {
                result: result_path.map(|file| around.current_folder.join(file).to_string_lossy().into_owned()),
                untrusted: earlier.untrusted,
                offline: earlier.offline,
                ..confinement.to_run_options(&around.current_folder)
            },
            resume_state: Some(before),
            signals,
            observer: None,
        },
        around,
    )
}

/// The record that this one is a copy of, where that is there.
fn find_original(then: &Path, now: &Path, run_id: &str) -> Option<PathBuf> {
    let identity = |folder: &Path| Some((fs::metadata(folder).ok()?.dev(), fs::metadata(folder).ok()?.ino()));
    if then == now || !then.is_absolute() || identity(then)? == identity(now)? {
        return None;
    }
    let first = Record::open(then).ok()?.entries(PARENT).ok()?.next()?.ok()?;
    let is_same = matches!(&first.event, Event::RunStarted(started) if started.run_id == run_id);
    is_same.then(|| then.to_owned())
}

fn load_resume_state(journals: BTreeMap<String, Vec<JournalEntry>>, folder: &Path) -> Result<ResumeState, Error> {
    ResumeState::new(journals).ok_or_else(|| Error::NotARecord {
        path: folder.to_owned(),
        why: "it was cut off before anything happened; start the job anew".to_owned(),
    })
}

/// The limit that ended a run that isn't to go on.
fn limit_that_ended(record: &Record) -> Result<Option<UsedLimit>, Error> {
    let before = load_resume_state(record.journals()?, record.folder())?;
    record.result.as_ref().map_or(Ok(None), |result| before.used_limit(result)).map_err(limit_error)
}

/// How a run goes on that a limit ended.
fn raise_limit_hint(used: &UsedLimit, folder: &Path) -> String {
    let run = printable(&folder.to_string_lossy());
    format!("{}; give it more: legwork resume {run} --limit {}", used.used(), used.argument())
}

/// The folder of all runs that a run's folder lies in. A record that was moved elsewhere is by itself: what lies around
/// it isn't to be kept from the tools.
pub(super) fn runs_folder(folder: &Path, run_id: &str, job: &str) -> PathBuf {
    let of_job = folder.parent().filter(|parent| folder.ends_with(run_id) && parent.ends_with(job));
    of_job.and_then(Path::parent).unwrap_or(folder).to_owned()
}
