//! `legwork map`: runs a job once for each row of a file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use super::arguments::{ColumnArgs, parse_assignment, parse_limits};
use super::env::CliEnv;
use super::map_screen::{MapScreen, PrintedMap};
use super::next_command::NextCommand;
use super::output::printable;
use super::output_files::OutputFileArgs;
use super::output_target::OutputTarget;
use super::prepared_job::{JobArgs, PreparedJob};
use super::read_files;
use crate::error::Error;
use crate::isolation::Isolation;
use crate::map::engines::Shard;
use crate::map::recorded_row::RetryRows;
use crate::map::rows::{self, MAX_FILE_BYTES, RowFormat, Rows, default_map_name, name_mistake};
use crate::map::{MapOptions, MapPlan, RowIds, WholeMapLimits};
use crate::plan::Plan;
use crate::reports::{self, PlanPreview};
use crate::run::Signals;
use crate::text::bounded::read_up_to;

/// How long a map may take to end after a signal: hundreds of rows write their results. GitHub's runner waits for 7.5 seconds
/// before it sends the next signal, and containers for 10.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(7);

const MAP_EXIT_CODES: &str = "\
Exit codes: 0 if all rows completed; 1 if a row ended without success; 2 for a usage error, or if a row's record belongs to \
another plan; 3 if the job or a row is invalid (then no row is run); 4 if a limit of the map was reached; 5 if the environment \
or the provider doesn't allow a row to run; 75 if a row can continue later, by the same command; 128 plus the signal number after \
a signal.";

/// Options of `legwork map`.
#[derive(Debug, clap::Args)]
#[command(after_help = MAP_EXIT_CODES)]
pub(super) struct MapArgs {
    #[command(flatten)]
    pub(in crate::cli) job: JobArgs,
    /// The file with the rows: CSV with a header line, JSONL or JSON; - for standard input
    ///
    /// Each column or key is an input of the job. All rows are checked before the first one runs.
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// The column with the id of each row, which names its record; default: a digest of the row's values
    ///
    /// Where a value can't name a folder, such as a path, the id is its letters and digits with a short digest.
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    #[command(flatten)]
    columns: ColumnArgs,
    /// How many rows run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    jobs: u32,
    /// The name of the map; default: map- and the name of the rows file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Limit the whole map; may be repeated
    ///
    /// The limits are cost_usd and tokens, which hold for all processes and all starts of this map, and wall_clock, which
    /// holds for this process. The limits of the job hold for each row.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    limit: Vec<String>,
    /// Run rows again that have ended before
    ///
    /// `failed` are those that ended with exit code 1 or 4. Their earlier records are kept, with a number after their names.
    #[arg(long, value_enum, value_name = "WHICH")]
    retry: Option<RetryRows>,
    /// Start no more rows after this many have ended without success
    ///
    /// Rows whose provider fails don't count: while it does, no row starts, and one tries again after growing pauses. After
    /// half an hour without a reply, or after a minute if no row has ever reached it, the map ends with exit code 75.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_failures: Option<u32>,
    /// How the rows' workspaces are kept apart; default: worktree or copy if an agent can change files, else none
    ///
    /// `worktree` gives each row a git worktree, `copy` a copy of the folder; both begin with the workspace as it is when the
    /// map starts first, and are removed when the row has ended. With `none`, all rows work in the workspace itself.
    #[arg(long, value_enum)]
    isolate: Option<IsolateArg>,
    /// Run only one of several equal parts of the rows: K/N, or auto for the part that the engine assigns to this process
    ///
    /// `auto` reads the variables of Slurm, Kubernetes, AWS Batch, Cloud Run, GitLab or Buildkite.
    #[arg(long, value_name = "K/N|auto")]
    shard: Option<String>,
    /// Also write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Check everything, print what would run and the plan of the first row, and stop
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IsolateArg {
    /// A git worktree for each row
    Worktree,
    /// A copy of the workspace for each row
    Copy,
    /// The workspace itself for all rows
    None,
}

impl From<IsolateArg> for Isolation {
    fn from(argument: IsolateArg) -> Self {
        match argument {
            IsolateArg::Worktree => Self::Worktree,
            IsolateArg::Copy => Self::Copy,
            IsolateArg::None => Self::None,
        }
    }
}

pub(super) fn map(args: &MapArgs, env: &CliEnv) -> Result<u8, Error> {
    let options = args.options(env)?;
    if args.job.is_stdin() && args.rows.as_os_str() == "-" {
        let message = "standard input can't be both the job and the rows";
        return Err(Error::usage(message, "Name a file for one of them."));
    }
    let job = PreparedJob::read(&args.job, BTreeMap::new(), options.limits.of_all.cost_usd.is_some(), env)?;
    let rows = read_rows(args, &job)?;
    let plan = MapPlan::new(options, rows, job.inputs()?, &job.checked, &job.host)?;
    let first = plan.first();
    job.check_options(&first.plan)?;
    plan.warnings().iter().for_each(|warning| env.console.warning(warning));
    let secrets = job.host.secrets(&first.plan, &first.secrets);
    if args.dry_run {
        plan.missing_files(&job.checked).iter().for_each(|warning| env.console.warning(warning));
        return print_dry_run(args, env, &plan, &first.plan.clone().redacted(&secrets.redactor));
    }
    plan.remove_left_leases();
    let junit = args.junit.as_deref().map(|path| prepare_junit(path, args, &job)).transpose()?;
    let printed = PrintedMap {
        folder: args.job.out.join(job.checked.job.name()).join(&plan.options.name),
        real_folder: plan.folder.path.clone(),
        next: NextCommand::again(env, &[], &first.plan.secret_inputs, &secrets.redactor),
        junit,
    };
    if !plan.has_work() {
        env.console.eprint(&printable(&plan.summary()));
        return printed.print(plan.refresh(&job.checked, &job.host)?, env);
    }
    let key = MapPlan::record_key(&job.checked, &job.host)?;
    let job = job.connect(&first.plan, secrets, None)?;
    args.job.check_out(&job.checked, env)?;
    // From here on, a signal must let the records be closed.
    let signals = Signals::catch_within(SHUTDOWN_GRACE)?;
    env.console.eprint(&printable(&plan.summary()));
    let screen = MapScreen::new(env, &job);
    printed.print(plan.run(&job, &key, &signals, &screen)?, env)
}

impl MapArgs {
    /// What the user asks of the map.
    fn options(&self, env: &CliEnv) -> Result<MapOptions, Error> {
        let variable = |name: &str| env.variable(name).map(str::to_owned);
        let shard = self.shard.as_deref().map(|shard| Shard::parse(shard, &variable)).transpose();
        Ok(MapOptions {
            limits: WholeMapLimits::parse(parse_limits(&self.limit))?,
            shard: shard.map_err(|error| Error::usage(error.message, error.hint))?,
            name: map_name(self)?,
            rows_file: self.rows.to_string_lossy().into_owned(),
            ids: self.id.clone().map_or(RowIds::Digest, RowIds::Column),
            jobs: self.jobs as usize,
            retry: self.retry,
            max_failures: self.max_failures,
            isolation: self.isolate.map(Isolation::from),
        })
    }
}

/// Opens the file of `--junit` before anything is spent, and removes that of an earlier start.
fn prepare_junit(path: &Path, args: &MapArgs, job: &PreparedJob<'_>) -> Result<OutputTarget, Error> {
    let target = OutputFileArgs::open_junit(path, Some(job.args.job_path()), Some(&args.rows))?;
    target.remove()?;
    Ok(target)
}

/// The name of the map, which is the name of its folder.
fn map_name(args: &MapArgs) -> Result<String, Error> {
    let name = args.name.clone().unwrap_or_else(|| match args.rows.to_str() {
        Some("-") => "map-stdin".to_owned(),
        _ => default_map_name(&args.rows),
    });
    match name_mistake("name", &name) {
        None => Ok(name),
        Some(why) => Err(Error::usage(
            format!("--name: {why}"),
            "Use letters, digits, `.`, `_` and `-`, at most 100, a letter or digit first.",
        )),
    }
}

fn read_rows(args: &MapArgs, job: &PreparedJob<'_>) -> Result<Rows, Error> {
    let is_stdin = args.rows.as_os_str() == "-";
    if is_stdin && args.job.set.iter().any(|argument| argument.ends_with("=@-")) {
        return Err(Error::usage(
            "--rows - and --set NAME=@- both read standard input",
            "Put the rows or the value into a file.",
        ));
    }
    let unreadable = |why: String| {
        Error::usage(
            format!("--rows {}: {why}", args.rows.display()),
            "Name a CSV, JSONL or JSON file, or - for stdin.",
        )
    };
    let content = if is_stdin {
        read_up_to(io::stdin().lock(), MAX_FILE_BYTES as u64 + 1).map_err(|error| unreadable(error.to_string()))?
    } else {
        read_files::read_bounded(&args.rows, MAX_FILE_BYTES).map_err(unreadable)?
    };
    let format = RowFormat::detect(&args.rows, &content);
    let name = if is_stdin { "<stdin>".into() } else { args.rows.to_string_lossy() };
    rows::read(&name, content, format, args.columns.with_id(args.id.as_deref()), job.checked.job.job())
        .map_err(Error::Invalid)
}

fn print_dry_run(args: &MapArgs, env: &CliEnv, map: &MapPlan, plan: &Plan) -> Result<u8, Error> {
    let isolation = match map.isolation {
        Isolation::Worktree => "a git worktree for each row",
        Isolation::Copy => "a copy of the folder for each row",
        Isolation::None => "shared by all rows",
    };
    env.console.print_sanitized(&format!(
        "{}\nworkspace: {isolation}\n\nThe plan of the first row:\n",
        printable(&map.summary())
    ));
    let preview = PlanPreview {
        state: None,
        plan,
        cost_bound: &plan.cost_bound(env.prices()?, (env.clock)()),
        sandbox: &args.job.sandbox_options.describe(plan),
        verbose: false,
        display: env.console.stdout_display(),
    };
    env.console.print_formatted("text", &reports::find(reports::PLANS, "text")(&preview));
    Ok(0)
}
