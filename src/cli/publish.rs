//! `legwork publish`: publishes what runs have proposed.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use indexmap::IndexMap;
use serde_json::Value;

use super::arguments::{RUN_HELP, parse_assignment};
use super::ci_files;
use super::env::CliEnv;
use super::map_rows::{MAP_FILE, MAX_MAP_BYTES, find_map, row_ids};
use super::read_files;
use crate::context_files::WorkspaceFiles;
use crate::error::Error;
use crate::event::Outcome;
use crate::job::value::{ListSeparator, parse_value};
use crate::journal::RecordKey;
use crate::lints::{self, JobTrust, RECORD_KEY, ValidJob};
use crate::map::MapManifest;
use crate::outputs::{Forge, MAX_KEY, Outputs, Subject, Trigger, TriggerError, TriggerQuery, is_key};
use crate::plan::resolve_outputs;
use crate::publish::{
    CommandPlace, PUBLISHED_FILE, PublishReport, PublishRequest, PublishedSeal, SealCheck, Submission, Unproposed,
    allow_answer, job_differences,
};
use crate::record::{RUNS, find_run, read_file};
use crate::sandbox::programs::Folders;
use crate::text::sanitize;
use crate::workspace_changes::has_tracked_files;
use crate::yaml::Node;

/// Options of `legwork publish`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(super) struct PublishArgs {
    /// The run or the map
    #[arg(value_name = "RUN|MAP")]
    run: String,
    /// The job file in this checkout, which says what may be published
    #[arg(long, value_name = "FILE")]
    job: PathBuf,
    /// Only print what would be published; needs no token
    #[arg(long)]
    dry_run: bool,
    /// Publish only the output with this id
    #[arg(long, value_name = "ID")]
    only: Option<String>,
    /// Confirm the value of an input from which outputs take a list or a target: NAME=VALUE
    ///
    /// Needed where the record isn't sealed with the key in `LEGWORK_RECORD_KEY`, and the value isn't the job's default.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<String>,
    /// The forge, where the variables of both are set
    #[arg(long)]
    to: Option<ForgeName>,
    /// The repository, where no event names it
    #[arg(long, value_name = "OWNER/NAME")]
    repo: Option<String>,
    /// The file of the event that started this process; default: that of the CI system
    #[arg(long, value_name = "FILE")]
    event: Option<PathBuf>,
    /// The number of the issue or pull request, where the event has none: a schedule, or a workflow that follows another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    number: Option<u64>,
    /// Publish the run's answer, too: as a comment on the event's issue or pull request, in place of that of earlier runs
    ///
    /// Jobs need no `outputs` for it. KEY tells the comments of a job from each other; default: answer.
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "answer", value_parser = parse_key)]
    comment: Option<String>,
    /// The login of the token's user, where the token may not ask for it
    ///
    /// What others wrote is never taken for an output that is published already.
    #[arg(long, value_name = "NAME")]
    login: Option<String>,
    /// Refuse a record that isn't sealed with the key in `LEGWORK_RECORD_KEY`, or whose commands ran without bubblewrap
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    require: Vec<Requirement>,
    /// Note what is published in this file instead of `published.json` in the record
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
}

fn help() -> String {
    format!(
        "{RUN_HELP} MAP is the folder of a map, its name, or JOB/MAP.\n\nThe token is read from GITHUB_TOKEN, GH_TOKEN or \
         GITLAB_TOKEN. All that the record has is checked again with the job file of --job; where that, or a file that it names, \
         isn't the one of the run, nothing is published.\n\nExit codes: 0 if all is published or there is nothing to do; 1 if \
         something may not be published, or the run didn't complete; 2 for a usage error, another record or another job file; 3 \
         if the job file is invalid; 5 without a token or a permission, or if a requirement isn't met; 75 if the same command \
         can publish the rest later."
    )
}

fn parse_key(text: &str) -> Result<String, String> {
    match is_key(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("a key is 1 to {MAX_KEY} of A-Za-z0-9._/-")),
    }
}

/// A forge on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ForgeName {
    /// GitHub, or a server with its API
    Github,
    /// GitLab
    Gitlab,
}

/// What a record must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Requirement {
    /// All commands ran in bubblewrap, or there were none
    Bubblewrap,
    /// Its seal fits the key in `LEGWORK_RECORD_KEY`
    Sealed,
}

pub(super) fn publish(options: &PublishArgs, env: &CliEnv) -> Result<u8, Error> {
    let (job_text, job) = read_job(options, env)?;
    let trigger = find_trigger(options, env)?;
    let key = match env.variable(RECORD_KEY) {
        Some(_) => env.record_key(&[])?,
        None => None,
    };
    let mut report = PublishReport::default();
    let found = find_records(options, env)?;
    let own_key = match &key {
        Some(key) => Some(key.clone()),
        None => env.existing_record_key(&[&env.current_folder, &options.out]),
    };
    let mut is_own = own_key.is_some();
    if found.is_map && options.comment.is_some() {
        return Err(Error::usage(
            "--comment is for a run, and this is a map",
            "Give the job an output of the kind `comment`.",
        ));
    }
    let mut submissions = Vec::new();
    for (folder, row) in &found.records {
        let map = row.as_ref().map(|row| (found.name.as_str(), row.as_str()));
        let label = row.clone().unwrap_or_else(|| found.name.clone());
        let read = Submission::read(folder, map, key.as_ref(), options.comment.as_deref());
        let (mut submission, record) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(Unproposed { why, is_idle })) => {
                let list = if is_idle { &mut report.idle } else { &mut report.problems };
                list.push((label, why));
                continue;
            }
            // The other rows can be published.
            Err(error @ Error::NotARecord { .. }) if row.is_some() => {
                report.problems.push((label, error.to_string()));
                continue;
            }
            Err(error) => return Err(error),
        };
        is_own = is_own && own_key.as_ref().map_or(Ok(false), |key| record.is_signed_by(key))?;
        check_job(&submission, &job_text, &job, &options.job)?;
        check_trigger(&submission, trigger.as_ref())?;
        check_inputs(&options.set, &submission, &job, &record.plan.inputs)?;
        check_requirements(options, &submission, &label, env)?;
        let policy = resolve_outputs(&job, &record.plan.inputs, trigger.clone()).map_err(Error::Invalid)?;
        submission.policy = with_step_lists(policy.unwrap_or_default(), &submission)?;
        if options.comment.is_some() {
            allow_answer(&mut submission.policy);
        }
        note_idle(&submission, label, &mut report);
        submissions.push(submission);
    }
    warn_of_seals(&submissions, key.as_ref(), env);
    let run = submissions.first().map_or(found.name, |first| first.run.clone());
    let mut request = PublishRequest {
        submissions,
        state: options.state.clone().unwrap_or_else(|| found.folder.join(PUBLISHED_FILE)),
        seal: PublishedSeal { is_needed: is_own, key: own_key },
        job: job.name().to_owned(),
        run,
        is_map: found.is_map,
        trigger,
        only: options.only.clone(),
        login: options.login.clone(),
        commands: command_place(env),
        variables: env.variables.clone(),
        clock: env.clock,
    };
    let console = env.console.clone();
    let published = match options.dry_run {
        true => request.preview()?,
        false => request.publish(Box::new(move |text| console.eprint(text)))?,
    };
    report.entries = published.entries;
    env.console.print_sanitized(&report.text());
    ci_files::write_publication(env, &report, options.dry_run);
    Ok(report.exit_code())
}

/// The job file of this checkout, and its text.
fn read_job(options: &PublishArgs, env: &CliEnv) -> Result<(String, ValidJob), Error> {
    let read = read_files::read_job(&options.job, JobTrust::Trusted);
    let (source, folder) = read.map_err(|finding| Error::Invalid(vec![finding]))?;
    let user_config = env.user_config()?;
    let files: WorkspaceFiles = env.workspace_files(&env.current_folder);
    let checked = lints::check_in(&source, folder.as_ref(), JobTrust::Trusted, &user_config, Some(&files));
    let job = checked.job.ok_or(Error::Invalid(checked.findings))?;
    Ok((source.text.clone(), job))
}

/// What started this process; `None` if nothing says it.
fn find_trigger(options: &PublishArgs, env: &CliEnv) -> Result<Option<Trigger>, Error> {
    let forge = options.to.map(|name| match name {
        ForgeName::Github => Forge::Github,
        ForgeName::Gitlab => Forge::Gitlab,
    });
    let (event, number) = (options.event.as_deref(), options.number);
    let query = TriggerQuery { event, forge, number, variables: &env.variables };
    let usage = |error: TriggerError| Error::usage(error.to_string(), error.hint());
    let found = query.trigger().map_err(usage)?;
    let named = options.repo.as_deref().or_else(|| env.variable("GITHUB_REPOSITORY").filter(|_| found.is_some()));
    match (found, named) {
        (Some(found), Some(name)) if found.forge == Forge::Github && !found.repository.eq_ignore_ascii_case(name) => {
            Err(Error::usage(
                format!("the event is of {}, and this is {}", found.repository, sanitize::line(name)),
                "Publish in the repository of the event.",
            ))
        }
        (None, Some(name)) => named_repository(name, forge, env).map(|named| Some(query.with_number(named))),
        (found, _) => Ok(found),
    }
}

fn named_repository(name: &str, forge: Option<Forge>, env: &CliEnv) -> Result<Trigger, Error> {
    if !crate::outputs::trigger_event::is_repository(name) {
        return Err(Error::usage(
            format!("--repo {}: this isn't OWNER/NAME", sanitize::line(name)),
            "Name a repository.",
        ));
    }
    let forge = forge.unwrap_or(Forge::Github);
    let server = match forge {
        Forge::Github => env.variable("GITHUB_SERVER_URL").unwrap_or("https://github.com"),
        Forge::Gitlab => env.variable("CI_SERVER_URL").unwrap_or("https://gitlab.com"),
    };
    Ok(Trigger {
        forge,
        repository: name.to_owned(),
        server: server.trim_end_matches('/').to_owned(),
        subject: Subject::Other,
        number: None,
        head: None,
        base: None,
    })
}

/// The records that are published together.
struct FoundRecords {
    folder: PathBuf,
    name: String,
    is_map: bool,
    /// Each with the id of the row, if it is one.
    records: Vec<(PathBuf, Option<String>)>,
}

fn find_records(options: &PublishArgs, env: &CliEnv) -> Result<FoundRecords, Error> {
    let canonical = |folder: PathBuf| folder.canonicalize().unwrap_or(folder);
    let name_of = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(map) = find_map(&options.out, &options.run)? {
        let folder = canonical(map);
        let ids = row_ids(&folder, env)?;
        let records = ids.into_iter().map(|id| (folder.join("rows").join(&id), Some(id))).collect();
        return Ok(FoundRecords {
            name: map_id(&folder).unwrap_or_else(|| name_of(&folder)),
            is_map: true,
            records,
            folder,
        });
    }
    let folder = canonical(find_run(&options.out, &options.run, &has_tracked_files)?);
    Ok(FoundRecords { name: name_of(&folder), is_map: false, records: vec![(folder.clone(), None)], folder })
}

/// Identifies a map among all of its job, wherever its folder was copied to: by the time at which it was started first.
fn map_id(folder: &Path) -> Option<String> {
    let text = read_file(folder, MAP_FILE, MAX_MAP_BYTES).ok()?;
    let manifest: MapManifest = serde_json::from_slice(&text).ok()?;
    Some(manifest.started_at.strftime("map-%Y%m%dT%H%M%S%3f").to_string())
}

/// Refuses a record of another job, or of another version of it.
fn check_job(submission: &Submission, text: &str, job: &ValidJob, path: &Path) -> Result<(), Error> {
    let differences = job_differences(&submission.file, text, job);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::usage(
        format!("{}: {}", path.display(), differences.join("; ")),
        "Publish with the job file of the commit that the run had, or run the job again.",
    ))
}

/// Refuses a record of another repository, or of another issue or pull request than the event of this process.
fn check_trigger(submission: &Submission, own: Option<&Trigger>) -> Result<(), Error> {
    let (Some(recorded), Some(own)) = (&submission.file.trigger, own) else { return Ok(()) };
    let is_same = recorded.forge == own.forge && recorded.repository.eq_ignore_ascii_case(&own.repository);
    let differs = |what: String| Err(Error::usage(what, "Publish a record with the event that started its run."));
    if !is_same {
        return differs(format!("the record is of {}, and this is {}", recorded.repository, own.repository));
    }
    match (recorded.number, own.number) {
        (Some(recorded), Some(own)) if recorded != own => {
            differs(format!("the record is for #{recorded}, and this process's event is for #{own}"))
        }
        _ => Ok(()),
    }
}

/// Refuses inputs that decide what may be published, and whose values only an unsealed record says.
fn check_inputs(
    given: &[String],
    submission: &Submission,
    job: &ValidJob,
    recorded: &IndexMap<String, Value>,
) -> Result<(), Error> {
    let names = lints::output_inputs(job.job());
    for (name, input) in job.job().inputs().filter(|(name, _)| names.contains(&name.value)) {
        let name = name.value.as_str();
        let recorded = recorded.get(name).cloned().unwrap_or_default();
        let set = given.iter().filter_map(|text| text.split_once('=')).rfind(|(set, _)| *set == name);
        let confirmed = match set {
            Some((_, text)) => parse_value(input.kind.value, text, ListSeparator::Commas)
                .map_err(|why| Error::usage(format!("--set {name}: the value {why}"), "See the job's `inputs`."))?,
            None if submission.seal == SealCheck::Sealed => continue,
            None => input.default.as_ref().map(Node::to_json).unwrap_or_default(),
        };
        if recorded != confirmed {
            let what = format!("the outputs depend on the input `{name}`, and the run had another value of it");
            let than = if set.is_some() { "than --set gives" } else { "than the job's default" };
            let hint =
                "Repeat the value of the run with --set, or set the same LEGWORK_RECORD_KEY for `run` and `publish`.";
            return Err(Error::usage(format!("{what} {than}"), hint));
        }
    }
    Ok(())
}

/// Takes the lists that steps before the agent have printed. Only a sealed record says what they were: anyone could have written
/// another one.
fn with_step_lists(policy: Outputs, submission: &Submission) -> Result<Outputs, Error> {
    let Some((place, step)) = policy.from_steps.first_key_value() else { return Ok(policy) };
    if submission.seal != SealCheck::Sealed {
        return Err(Error::usage(
            format!("`outputs.{place}` is what the step `{step}` printed, and only a sealed record proves that"),
            "Set the same LEGWORK_RECORD_KEY for `run` and `publish`.",
        ));
    }
    let refused = |why: String| Error::usage(why, "Run the job again.");
    policy.with_step_lists(&submission.list_steps).map_err(refused)
}

fn check_requirements(options: &PublishArgs, submission: &Submission, label: &str, env: &CliEnv) -> Result<(), Error> {
    let unmet =
        |message: String, hint: &str| Err(Error::CannotPublish { message, hint: hint.to_owned(), is_temporary: false });
    for requirement in &options.require {
        match requirement {
            Requirement::Sealed if submission.seal != SealCheck::Sealed => {
                let why =
                    if env.variable(RECORD_KEY).is_some() { "has no seal" } else { "can't be checked without the key" };
                return unmet(
                    format!("{label}: the record {why}, and --require asks for a sealed one"),
                    "Set the same LEGWORK_RECORD_KEY for `run` and `publish`.",
                );
            }
            Requirement::Bubblewrap if !submission.sandbox.is_only("bubblewrap") => {
                return unmet(
                    format!(
                        "{label}: its commands ran in `{}`, and --require asks for bubblewrap",
                        submission.sandbox.tiers.join(", ")
                    ),
                    "Install bubblewrap where the job runs, and run it with --sandbox bubblewrap.",
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Says why nothing is published of a run without entries.
fn note_idle(submission: &Submission, label: String, report: &mut PublishReport) {
    if !submission.file.entries.is_empty() {
        return;
    }
    match (submission.outcome, &submission.file.nothing_to_do) {
        (Some(Outcome::Completed | Outcome::Skipped), Some(reason)) => report.idle.push((label, reason.clone())),
        (Some(Outcome::Completed | Outcome::Skipped), None) => {
            report.idle.push((label, "the run proposed nothing".to_owned()));
        }
        (Some(outcome), _) => report.problems.push((label, format!("the run ended as {outcome}"))),
        (None, _) => report.problems.push((label, "the run hasn't ended".to_owned())),
    }
}

fn warn_of_seals(submissions: &[Submission], key: Option<&RecordKey>, env: &CliEnv) {
    if submissions.is_empty() {
        return;
    }
    if key.is_none() {
        env.console.warning("the seal of the record wasn't checked, because LEGWORK_RECORD_KEY isn't set");
    } else if submissions.iter().any(|submission| submission.seal != SealCheck::Sealed) {
        env.console.warning("the record has no seal, so anyone who could write to it may have changed it");
    }
}

/// Commands run in the current folder, which is the checkout.
fn command_place(env: &CliEnv) -> CommandPlace {
    let bash = env.program("bash", &Folders::default()).unwrap_or_else(|| PathBuf::from("/bin/bash"));
    CommandPlace { folder: env.current_folder.clone(), bash, variables: env.variables.clone() }
}
