//! What a start of a map will do. Nothing is written yet, and nothing is asked.

use super::checked_rows::CheckedRows;
use super::manifest::{MapFolder, MapManifest};
use super::map_options::{MAX_NAMED, MapOptions, first_names};
use super::recorded_row::RowPlan;
use super::rows::Rows;
use crate::error::Error;
use crate::git::Repository;
use crate::isolation::Isolation;
use crate::journal::RecordKey;
use crate::lints::ValidJob;
use crate::plan::{InputValues, Plan};
use crate::run::{CheckedJob, Host, check_cost_limit, head_commit};
use crate::text::pluralize;

/// A map whose rows are all valid.
pub struct MapPlan {
    /// What the user asks of it.
    pub options: MapOptions,
    /// Its rows.
    pub rows: Rows,
    /// Its folder, which needn't exist yet.
    pub folder: MapFolder,
    /// How the rows are kept apart.
    pub isolation: Isolation,
    pub(super) inputs: InputValues,
    pub(super) manifest: Option<MapManifest>,
    pub(super) checked: CheckedRows,
}

impl MapPlan {
    /// Checks all rows with their records. `inputs` are those that all rows share.
    ///
    /// # Errors
    /// A row is invalid or may not continue, or the map was started with other options.
    pub fn new(
        options: MapOptions,
        rows: Rows,
        mut inputs: InputValues,
        job: &CheckedJob,
        host: &Host<'_>,
    ) -> Result<Self, Error> {
        refuse_state(&job.job)?;
        options.check_retry(&rows)?;
        let folder = MapFolder::new(&job.job_dir, &options.name);
        let manifest = folder.read_manifest()?;
        manifest.as_ref().map_or(Ok(()), |manifest| options.check_ids(manifest))?;
        folder.check_subfolders()?;
        let checked = CheckedRows::check(&options, &rows, &mut inputs, &folder, job, host)?;
        let isolation = isolation(&options, &folder, manifest.as_ref(), &checked.first.plan, job, host)?;
        if options.limits.of_all.cost_usd.is_some() {
            let mut limited = checked.first.plan.clone();
            limited.limits.cost_usd = options.limits.of_all.cost_usd;
            check_cost_limit(&limited, &job.user_config)?;
        }
        Ok(Self { options, rows, folder, isolation, inputs, manifest, checked })
    }

    /// The plan of the first row that runs, or of the first row.
    pub fn first(&self) -> &RowPlan {
        &self.checked.first
    }

    /// Whether any row runs.
    pub fn has_work(&self) -> bool {
        !self.checked.to_run.is_empty()
    }

    /// What the user should know about the records.
    pub fn warnings(&self) -> Vec<String> {
        let CheckedRows { foreign, unusable, defects, .. } = &self.checked;
        let foreign = (!foreign.is_empty()).then(|| {
            format!(
                "the records of {} were made on another machine or with another key: {}; their results count; if you don't know \
                 who made them, move them away",
                pluralize(foreign.len() as u64, "ended row"),
                first_names(foreign),
            )
        });
        let others = unusable.values().take(MAX_NAMED).chain(defects.iter().take(MAX_NAMED)).cloned();
        foreign.into_iter().chain(others).collect()
    }

    /// How many rows there are, in one line.
    pub fn summary(&self) -> String {
        let CheckedRows { to_run, ended, resumed, unusable, .. } = &self.checked;
        let of_shard = to_run.len() + ended + unusable.len();
        let of_shard = self.options.shard.map(|shard| format!(", {of_shard} of them in shard {shard}"));
        let unusable = match unusable.len() {
            0 => String::new(),
            count => format!(", {count} can't run"),
        };
        format!(
            "{}: {}{}: {ended} ended before, {resumed} to continue, {} to start{unusable}",
            self.options.name,
            pluralize(self.rows.rows.len() as u64, "row"),
            of_shard.unwrap_or_default(),
            to_run.len() - resumed,
        )
    }

    /// What the rows' workspaces won't have, if that is known without making them.
    pub fn missing_files(&self, job: &CheckedJob) -> Option<String> {
        let repository = Repository::discover(&job.workspace).filter(|_| self.isolation == Isolation::Worktree)?;
        repository.worktree.join(".gitmodules").exists().then(|| without_submodules("see .gitmodules"))
    }

    /// The key that signs the map and its records.
    ///
    /// # Errors
    /// There is none.
    pub fn record_key(job: &CheckedJob, host: &Host<'_>) -> Result<RecordKey, Error> {
        (host.record_key)(&job.workspace)?.ok_or_else(|| {
            let message = "a map needs signed records, or its rows couldn't be recognized later";
            Error::usage(message, "Set LEGWORK_RECORD_KEY to at least 16 random characters.")
        })
    }

    /// The ids of all rows, in order.
    pub(super) fn ids(&self) -> Vec<String> {
        self.rows.rows.iter().map(|row| row.id.clone()).collect()
    }
}

/// That worktrees don't have the files of these repositories.
pub(super) fn without_submodules(which: &str) -> String {
    format!(
        "git worktrees don't have the files of submodules and nested repositories ({which}), so the rows don't see them; with \
         --isolate copy, each row gets a copy of the whole folder",
    )
}

/// Refuses a job that keeps a state: its rows would run at the same time, and each replace what the others have kept.
///
/// # Errors
/// It keeps one.
pub fn refuse_state(job: &ValidJob) -> Result<(), Error> {
    if job.job().state.is_none() {
        return Ok(());
    }
    Err(Error::usage(
        "a map can't run a job with `state`: its rows run at the same time, and each would replace what the others have kept",
        "Run the job alone with `legwork run`, or remove `state`: `map` itself remembers which rows have ended.",
    ))
}

/// How the rows are kept apart: as before, as the user says, or as the job needs it.
fn isolation(
    options: &MapOptions,
    folder: &MapFolder,
    manifest: Option<&MapManifest>,
    plan: &Plan,
    job: &CheckedJob,
    host: &Host<'_>,
) -> Result<Isolation, Error> {
    let asked = options.isolation;
    let chosen = || {
        asked.unwrap_or_else(|| match plan.changes_files() {
            // Without a commit there can be no worktrees.
            true if head_commit(&job.workspace).is_none() => Isolation::Copy,
            true => Isolation::for_workspace(&job.workspace, job.git.as_ref()),
            false => Isolation::None,
        })
    };
    let Some(manifest) = manifest else { return Ok(chosen()) };
    let key = (host.record_key)(&job.workspace)?;
    // A command that can write to the folder of runs must not decide that rows change the user's files.
    let is_ours = key.is_some_and(|key| manifest.is_sealed_by(&key, &folder.name()))
        && manifest.job == job.job.name()
        && manifest.workspace.as_ref() == Some(&job.workspace);
    if !is_ours && manifest.isolation != chosen() {
        let (recorded, chosen) = (isolate_argument(manifest.isolation), isolate_argument(chosen()));
        return Err(Error::usage(
            format!(
                "{} was made on another machine, for another workspace or with another key, and says `--isolate {recorded}`, \
                 where this start chooses `--isolate {chosen}`",
                folder.manifest().display()
            ),
            format!(
                "If the map is yours and you want that, add --isolate {recorded}. Otherwise choose another name for the map \
                 with --name NAME, or move its folder away. Machines that share runs need the same LEGWORK_RECORD_KEY."
            ),
        ));
    }
    if asked.is_some_and(|asked| asked != manifest.isolation) {
        return Err(Error::usage(
            "the map was started with another --isolate",
            "Remove --isolate, or choose another name for the map with --name NAME.",
        ));
    }
    Ok(manifest.isolation)
}

/// The value of `--isolate`.
fn isolate_argument(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Worktree => "worktree",
        Isolation::Copy => "copy",
        Isolation::None => "none",
    }
}
