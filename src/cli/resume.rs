//! `legwork resume`: goes on with a run that was cut off.

use std::path::{Path, PathBuf};

use super::confidences::Confidences;
use super::confine::Confinement;
use super::live::{Live, connect, live};
use super::print::printable;
use super::result_file::ResultFile;
use super::run::{given_secrets, pair, workspace};
use super::{Surroundings, format_parser};
use crate::error::Error;
use crate::formats::Subject;
use crate::record::{LATEST, RUNS, Record, Recorder, Reopened, find_run};
use crate::run::{Before, Signals, commit};

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
    /// Go on even where another commit is checked out than the run began with
    #[arg(long)]
    force: bool,
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
    let folder = find_run(&options.out, options.run.as_deref().unwrap_or(LATEST))?;
    let result_file = ResultFile::prepare(options.result.as_deref())?;
    let signals = Signals::catch()?;
    let reopened = match Recorder::reopen(&folder) {
        Err(ended @ Error::Ended { .. }) => {
            let ended_so = printable(&ended.to_string());
            let newest = match &options.run {
                None => "; this is the newest run, name another with `legwork resume RUN`",
                Some(_) => "",
            };
            around.out.beside(&format!("{ended_so}; only one that was cut off can go on{newest}"));
            if let Some(file) = &result_file {
                let record = Record::open(&folder)?;
                ResultFile::check(options.result.as_deref(), &record.plan)?;
                file.make_folder()?;
                record.result.iter().try_for_each(|result| file.write(result))?;
            }
            return Ok(ended.exit_code());
        }
        reopened => reopened?,
    };
    let Reopened { recorder, record, journals } = reopened;
    let mut plan = record.plan;
    let servers = around.servers()?;
    for agent in std::iter::once(&mut plan.parent).chain(plan.subagents.values_mut()) {
        agent.model.server = servers.served(&agent.model.provider);
    }
    ResultFile::check(options.result.as_deref(), &plan)?;
    if let Some(file) = &result_file {
        file.make_folder()?;
    }
    let before = Before::new(journals).ok_or_else(|| Error::NotARecord {
        path: folder.clone(),
        why: "it was cut off before anything happened; start the job anew".to_owned(),
    })?;
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
    let providers = connect(around, &plan, &scripts, &confidences.mask, None)?;
    let out = runs(recorder.folder(), &before.started().run_id, &plan.job);
    let protected: Vec<PathBuf> = before.started().protected.iter().map(PathBuf::from).collect();
    let confined = options.confinement.reach(around, &plan, &protected, &out)?;
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
            before: Some(before),
            signals,
            observer: None,
        },
        around,
    )
}

/// The folder of all runs that a run's folder lies in. A record that was moved elsewhere is by itself: what lies around
/// it isn't to be kept from the tools.
pub(super) fn runs(folder: &Path, run_id: &str, job: &str) -> PathBuf {
    let of_job = folder.parent().filter(|parent| folder.ends_with(run_id) && parent.ends_with(job));
    of_job.and_then(Path::parent).unwrap_or(folder).to_owned()
}
