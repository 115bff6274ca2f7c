//! The folder of a map and the rows' workspaces, while this process uses them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;

use super::budget::MapBudget;
use super::ledger::Ledger;
use super::manifest::{MAP_FORMAT, MapFolder, MapManifest};
use super::map_options::first_names;
use super::map_plan::{MapPlan, without_submodules};
use super::recorded_row::needs_no_workspace;
use super::results::Results;
use super::rows::original_id;
use super::workspaces::{RowWorkspaces, isolation_error};
use crate::error::Error;
use crate::isolation::{Isolation, Snapshot};
use crate::journal::RecordKey;
use crate::pricing::round_usd;
use crate::record::{create_job_dir, new_run_id};
use crate::run::{CheckedJob, Host};
use crate::text::pluralize;
use crate::workspace::open_beneath::file_id;
use crate::workspace::open_root::OpenRoot;

/// A map whose rows can run.
pub(super) struct OpenMap {
    pub(super) workspaces: RowWorkspaces,
    /// What this process shares with others.
    pub(super) budget: Arc<MapBudget>,
    pub(super) results: Mutex<Results>,
    /// The folder as it was opened at the start, so that another one in its place is noticed.
    opened: OpenRoot,
    path: PathBuf,
    /// Says to other processes that the map runs.
    _held: File,
}

/// Where the rows' workspaces are.
struct WorkspaceFolder {
    /// The folder of all runs.
    out: OpenRoot,
    /// That of the map's rows in it.
    path: PathBuf,
}

impl OpenMap {
    /// Creates the folder and its manifest, or takes the workspaces from the manifest that is there.
    ///
    /// # Errors
    /// The folder can't be used, or another process has started the map with other options.
    pub(super) fn open(plan: &MapPlan, job: &CheckedJob, host: &Host<'_>, key: &RecordKey) -> Result<Self, Error> {
        let MapPlan { folder, options, .. } = plan;
        let failed = |source| Error::Record { path: folder.path.clone(), source };
        let process = new_run_id(&job.job_dir, (host.clock)());
        let setup = MapSetup { plan, job, host, key, process: &process };
        let (workspaces, preparing) = setup.prepare()?;
        remove_leftovers(&workspaces, folder, host);
        let (path, limits) = (folder.ledger(), options.limits.of_all);
        let ledger = Ledger::open(&path, &process, limits).map_err(|source| Error::Record { path, source })?;
        let budget = MapBudget::new(ledger, limits);
        let held = folder.hold().map_err(failed)?;
        // Not earlier: other runs at the same time recognize its folder by one of the two locks.
        drop(preparing);
        let opened = folder.open().map_err(failed)?;
        let results = open_results(plan, job, host)?;
        let (usage, cost_usd, _) = results.table().totals();
        // The ledger has what other processes have reserved.
        let (reserved_tokens, reserved_cost_usd) = results.table().reserved();
        let (used, paid) = (usage.total().saturating_sub(reserved_tokens), (cost_usd - reserved_cost_usd).max(0.0));
        budget.count_recorded(used, round_usd(paid)).map_err(failed)?;
        let (budget, results) = (Arc::new(budget), Mutex::new(results));
        Ok(Self { workspaces, budget, results, opened, path: folder.path.clone(), _held: held })
    }

    /// Whether the map's folder is still there.
    pub(super) fn has_folder(&self) -> bool {
        let same = fs::metadata(&self.path).and_then(|found| {
            let opened = self.opened.stat("".as_ref())?;
            Ok((found.dev(), found.ino()) == file_id(&opened))
        });
        same.is_ok_and(|same| same)
    }
}

/// Brings the tables of a map up to date of which no row runs, and removes workspaces that no row needs.
///
/// # Errors
/// The folder can't be used.
pub(super) fn refresh(plan: &MapPlan, job: &CheckedJob, host: &Host<'_>) -> Result<Results, Error> {
    let failed = |source| Error::Record { path: plan.folder.path.clone(), source };
    let folder = WorkspaceFolder::create(plan, job)?;
    let snapshot = plan.manifest.as_ref().and_then(|manifest| manifest.snapshot.clone());
    let snapshot = snapshot.filter(|snapshot| snapshot.is_of(&job.workspace, &folder.path));
    let workspaces = RowWorkspaces::new(&job.workspace, &folder.out, &folder.path, snapshot);
    remove_leftovers(&workspaces, &plan.folder, host);
    let mut results = open_results(plan, job, host)?;
    results.finish().map_err(failed)?;
    discard_snapshot(plan, &workspaces, &results);
    Ok(results)
}

/// Removes the snapshot if no row starts again.
pub(super) fn discard_snapshot(plan: &MapPlan, workspaces: &RowWorkspaces, results: &Results) {
    if results.have_completed() {
        workspaces.discard_snapshot(|| plan.rows.rows.iter().any(|row| plan.folder.has_changes(&row.id)));
    }
}

fn open_results(plan: &MapPlan, job: &CheckedJob, host: &Host<'_>) -> Result<Results, Error> {
    let ids = plan.ids();
    note_other_rows(&plan.folder, &ids, host);
    let opened = Results::open(&plan.folder, job.job.name(), &ids, host.prices.clone());
    opened.map_err(|source| Error::Record { path: plan.folder.path.clone(), source })
}

impl WorkspaceFolder {
    /// Creates the map's folder, and opens that of all runs, where the workspaces are.
    fn create(plan: &MapPlan, job: &CheckedJob) -> Result<Self, Error> {
        create_job_dir(&job.out, &plan.folder.path)?;
        let out =
            OpenRoot::open_canonical(&job.out).map_err(|source| Error::Record { path: job.out.clone(), source })?;
        let path = MapFolder::workspaces(out.path(), job.job.name(), &plan.options.name);
        MapFolder::check_workspaces(out.path(), &path)?;
        Ok(Self { out, path })
    }
}

/// The folder of a map, before its rows run.
struct MapSetup<'a> {
    plan: &'a MapPlan,
    job: &'a CheckedJob,
    host: &'a Host<'a>,
    /// Seals the manifest.
    key: &'a RecordKey,
    /// Distinguishes this process from all others of the map.
    process: &'a str,
}

impl MapSetup<'_> {
    /// Creates the folder and its manifest. Another process may do the same, but only after the file that is returned is closed.
    fn prepare(&self) -> Result<(RowWorkspaces, File), Error> {
        let Self { plan, job, host, key, .. } = self;
        let of_rows = WorkspaceFolder::create(plan, job)?;
        let lock = plan.folder.lock()?;
        let manifest = match plan.folder.read_manifest()? {
            Some(manifest) => manifest,
            None => {
                let new = self.new_manifest(self.take_snapshot(&of_rows)?, (host.clock)());
                // Where the file system has no locks, another process may have been first.
                plan.folder.write_manifest(&new, key, false)?;
                plan.folder.read_manifest()?.unwrap_or(new)
            }
        };
        plan.options.check_ids(&manifest)?;
        if manifest.isolation != plan.isolation {
            let message = "another process has started the map with another --isolate at the same time";
            return Err(Error::usage(message, "Start it with the same options."));
        }
        let snapshot = self.with_usable_snapshot(manifest, &of_rows)?.snapshot;
        RowWorkspaces::remove_unused_snapshots(&of_rows.out, &of_rows.path, snapshot.as_ref());
        let missing = snapshot.as_ref().map(|snapshot| snapshot.missing_repositories(job.git.as_ref()));
        let missing = missing.unwrap_or_default();
        if !missing.is_empty() {
            (host.warn)(&without_submodules(&first_names(&missing)));
        }
        let workspaces = RowWorkspaces::new(&job.workspace, &of_rows.out, &of_rows.path, snapshot);
        Ok((workspaces.with_git(job.git.clone()), lock))
    }

    /// The manifest, with another snapshot if its own is gone or may not be used.
    fn with_usable_snapshot(&self, manifest: MapManifest, of_rows: &WorkspaceFolder) -> Result<MapManifest, Error> {
        let Self { plan, job, host, key, .. } = self;
        let is_ours = manifest.is_sealed_by(key, &plan.options.name) && manifest.job == job.job.name();
        let is_usable = |snapshot: &Snapshot| {
            snapshot.is_of(&job.workspace, &of_rows.path) && snapshot.is_available(job.git.as_ref())
        };
        let is_gone = !manifest.snapshot.as_ref().map_or(plan.isolation == Isolation::None, is_usable);
        if is_ours && !is_gone {
            return Ok(manifest);
        }
        let taken = self.take_snapshot(of_rows)?;
        // An unsealed manifest can name any file.
        if is_gone || taken != manifest.snapshot {
            let why = if is_gone { "is gone" } else { "in map.json isn't sealed with this key" };
            (host.warn)(&format!(
                "the snapshot of the workspace {why}, so rows that start now begin with the workspace as it is now"
            ));
        }
        let manifest = match is_ours {
            true => MapManifest { snapshot: taken, ..manifest },
            false => self.new_manifest(taken, manifest.started_at),
        };
        plan.folder.write_manifest(&manifest, key, true)?;
        Ok(manifest)
    }

    fn take_snapshot(&self, of_rows: &WorkspaceFolder) -> Result<Option<Snapshot>, Error> {
        let Self { plan, job, process, .. } = self;
        let (out, git) = (&of_rows.out, job.git.as_ref());
        RowWorkspaces::take_snapshot(plan.isolation, &job.workspace, &of_rows.path, out, process, git)
            .map_err(isolation_error)
    }

    fn new_manifest(&self, snapshot: Option<Snapshot>, started_at: Timestamp) -> MapManifest {
        let Self { plan, job, .. } = self;
        MapManifest {
            format: MAP_FORMAT,
            job: job.job.name().to_owned(),
            rows_file: plan.options.rows_file.clone(),
            ids: Some(plan.options.ids.clone()),
            workspace: Some(job.workspace.clone()),
            isolation: plan.isolation,
            snapshot,
            started_at,
            mac: None,
        }
    }
}

/// Removes the workspaces of rows that have ended, which killed processes have left.
fn remove_leftovers(workspaces: &RowWorkspaces, folder: &MapFolder, host: &Host<'_>) {
    if let Err(error) = workspaces.remove_leftovers(|id| needs_no_workspace(&folder.row(id))) {
        (host.warn)(&format!("the workspaces of rows that have ended can't be removed: {error}"));
    }
}

/// Says which records belong to no row of the file.
fn note_other_rows(folder: &MapFolder, ids: &[String], host: &Host<'_>) {
    let known: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let recorded: HashSet<String> = folder.recorded_rows().unwrap_or_default().into_iter().collect();
    // `--retry` adds a number to the names of earlier records.
    let is_earlier = |id: &str| original_id(id).is_some_and(|id| known.contains(id) || recorded.contains(id));
    let others = recorded.iter().filter(|id| !known.contains(id.as_str()) && !is_earlier(id));
    let mut others: Vec<String> = others.cloned().collect();
    others.sort_unstable();
    if others.is_empty() {
        return;
    }
    (host.warn)(&format!(
        "the map has records of {} that the rows file doesn't have (any more): {}; they are kept, and aren't part of the \
         results",
        pluralize(others.len() as u64, "row"),
        first_names(&others),
    ));
}
