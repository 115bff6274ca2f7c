//! `legwork resume`: goes on with a run that was cut off.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::confidences::Confidences;
use super::confine::Confinement;
use super::live::{Live, connect, live};
use super::print::printable;
use super::result_file::ResultFile;
use super::run::{bad_limit, given_secrets, limits, pair, workspace};
use super::{Surroundings, format_parser, grants};
use crate::changes::is_tracked;
use crate::error::Error;
use crate::event::{Entry, Event, PARENT, RunOptions};
use crate::formats::Subject;
use crate::record::{LATEST, RUNS, Record, Recorder, Reopened, find_run};
use crate::run::{Before, Signals, UsedLimit, commit};

/// Options of `legwork resume`.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// A folder, a run id or the start of one, JOB/latest, or latest; default: the newest run
    run: Option<String>,
    /// Give a secret input again: NAME=VALUE; NAME=@FILE takes a file's text, NAME=@- standard input
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<String>,
    /// Give a secret input again, from an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = pair)]
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
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    limit: Vec<String>,
    /// Where the runs lie
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    #[command(flatten)]
    confinement: Confinement,
    /// What stdout gets: the last text, result.json, or the events as they happen
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Run))]
    format: String,
    /// Write the data that the job ends with to this file, too; without data there is no such file after the run
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
}

pub(super) fn resume(options: &Options, around: &Surroundings) -> Result<u8, Error> {
    let folder = find_run(&options.out, options.run.as_deref().unwrap_or(LATEST), &is_tracked)?;
    let signals = Signals::catch()?;
    let limits = limits(&options.limit);
    // A record that can't be read is refused below.
    let named = Record::open(&folder).map(|record| PathBuf::from(record.plan.workspace)).ok();
    let folders: Vec<&Path> =
        [options.workspace.as_deref(), named.as_deref(), Some(&folder)].into_iter().flatten().collect();
    let key = around.record_key(&folders)?;
    let reopened = match Recorder::reopen(&folder, !limits.is_empty(), key) {
        Err(ended @ Error::Ended { outcome, .. }) => {
            let ended_so = printable(&ended.to_string());
            if outcome.is_a_limit() {
                around.out.beside(&ended_so);
                if let Some(used) = used_limit(&Record::open(&folder)?)? {
                    around.out.beside(&format!("help:   {}", go_on(&used, &folder)));
                }
            } else {
                let newest = match &options.run {
                    None => "; this is the newest run, name another with `legwork resume RUN`",
                    Some(_) => "",
                };
                around.out.beside(&format!("{ended_so}; only one that was cut off can go on{newest}"));
            }
            if let Some(file) = ResultFile::prepare(options.result.as_deref())? {
                let record = Record::open(&folder)?;
                ResultFile::check(options.result.as_deref(), &record.plan)?;
                file.make_folder()?;
                file.make_folder()?;
                record.result.iter().try_for_each(|result| file.write(result))?;
            }
            return Ok(ended.exit_code());
        }
        reopened => reopened?,
    };
    let Reopened { recorder, record, journals, last_seen, is_ours } = reopened;
    let mut plan = record.plan;
    let servers = around.servers()?;
    for agent in std::iter::once(&mut plan.parent).chain(plan.subagents.values_mut()) {
        agent.model.server = servers.served(&agent.model.provider);
    }
    let mut before = begun(journals, &folder)?;
    if !is_ours {
        grants::show(around, &plan);
        if !options.trust_record {
            return Err(Error::ForeignRecord { path: folder });
        }
    }
    if !options.force
        && let Some(original) = original(before.folder(), recorder.folder(), &before.started().run_id)
    {
        return Err(Error::Copied { path: folder, original });
    }
    let earlier = match is_ours {
        true => before.options().clone(),
        // What only a command line can grant, it has to grant here.
        false => RunOptions { untrusted: before.options().untrusted, ..RunOptions::default() },
    };
    let confinement = options.confinement.or(&earlier);
    if earlier.untrusted && confinement.is_off() {
        return Err(Error::Usage {
            message: "an untrusted job is not run without a sandbox".into(),
            hint: Some("Leave out --sandbox off.".into()),
        });
    }
    let result_path = options.result.clone().or(earlier.result.as_ref().map(PathBuf::from));
    ResultFile::check(result_path.as_deref(), &plan)?;
    before.last_seen = last_seen;
    let used = record.result.as_ref().map_or(Ok(None), |result| before.used_limit(result)).map_err(bad_limit)?;
    before.replace_limits(&mut plan, limits).map_err(bad_limit)?;
    if let Some(used) = used.filter(|used| !used.leaves_more(&plan.limits, plan.parent.max_turns)) {
        return Err(Error::Usage {
            message: format!("the run ended at its limit `{}`, and --limit doesn't raise that", used.name),
            hint: Some(go_on(&used, &folder)),
        });
    }
    let (last, then) = before.place();
    let workspace = workspace(options.workspace.as_deref().unwrap_or(Path::new(last)))?;
    let now = commit(&workspace);
    if then != now.as_deref() && !options.force {
        let named = |commit: Option<&str>| commit.unwrap_or("none").to_owned();
        return Err(Error::Moved { now: named(now.as_deref()), then: named(then) });
    }
    plan.workspace = workspace.to_string_lossy().into_owned();
    let secrets = given_secrets(&options.set, &options.set_env, around, &plan.secret_inputs)?;
    let scripts = before.started().scripts.iter().map(|(name, path)| (name.clone(), PathBuf::from(path))).collect();
    let confidences = Confidences::new(around, servers, &plan, &secrets);
    if is_ours {
        let now = recorder.digests(&before.started().run_id, &confidences.masked());
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
            around.out.warning(&format!("the old value of these secrets is not masked any more: {changed}"));
        }
    }
    let providers = connect(around, &plan, &scripts, &confidences.mask, None)?;
    let out = runs(recorder.folder(), &before.started().run_id, &plan.job);
    let protected: Vec<PathBuf> = before.started().protected.iter().map(PathBuf::from).collect();
    let confined = confinement.reach(around, &plan, &protected, &out)?;
    let result_file = ResultFile::prepare(result_path.as_deref())?;
    if let Some(file) = &result_file {
        file.make_folder()?;
    }
    live(
        Live {
            plan,
            confidences,
            job_file: "",
            protected,
            out,
            confined,
            shown_folder: &folder,
            format: &options.format,
            providers,
            scripts,
            recorder,
            result_file,
            options: RunOptions {
                result: result_path.map(|file| around.folder.join(file).to_string_lossy().into_owned()),
                untrusted: earlier.untrusted,
                offline: earlier.offline,
                ..confinement.kept(&around.folder)
            },
            before: Some(before),
            signals,
            observer: None,
        },
        around,
    )
}

/// The record that this one is a copy of, where that is there.
fn original(then: &Path, now: &Path, run_id: &str) -> Option<PathBuf> {
    let identity = |folder: &Path| Some((fs::metadata(folder).ok()?.dev(), fs::metadata(folder).ok()?.ino()));
    if then == now || !then.is_absolute() || identity(then)? == identity(now)? {
        return None;
    }
    let first = Record::open(then).ok()?.entries(PARENT).ok()?.next()?.ok()?;
    let is_same = matches!(&first.event, Event::RunStarted(started) if started.run_id == run_id);
    is_same.then(|| then.to_owned())
}

fn begun(journals: BTreeMap<String, Vec<Entry>>, folder: &Path) -> Result<Before, Error> {
    Before::new(journals).ok_or_else(|| Error::NotARecord {
        path: folder.to_owned(),
        why: "it was cut off before anything happened; start the job anew".to_owned(),
    })
}

/// The limit that ended a run that isn't to go on.
fn used_limit(record: &Record) -> Result<Option<UsedLimit>, Error> {
    let before = begun(record.journals()?, record.folder())?;
    record.result.as_ref().map_or(Ok(None), |result| before.used_limit(result)).map_err(bad_limit)
}

/// How a run goes on that a limit ended.
fn go_on(used: &UsedLimit, folder: &Path) -> String {
    let run = printable(&folder.to_string_lossy());
    format!("{}; give it more: legwork resume {run} --limit {}", used.used(), used.argument())
}

/// The folder of all runs that a run's folder lies in. A record that was moved elsewhere is by itself: what lies around
/// it isn't to be kept from the tools.
pub(super) fn runs(folder: &Path, run_id: &str, job: &str) -> PathBuf {
    let of_job = folder.parent().filter(|parent| folder.ends_with(run_id) && parent.ends_with(job));
    of_job.and_then(Path::parent).unwrap_or(folder).to_owned()
}
