//! `legwork apply`: puts the changes of runs into the workspace.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::arguments::{format_parser, resolve_workspace};
use super::env::CliEnv;
use super::map_rows::{MAP_FILE, MAX_MAP_BYTES, find_map, row_ids};
use super::output::shell_quote;
use crate::apply::{
    APPLY_REPORTS, AppliedRun, ApplyReport, ApplyStatus, FileConflict, FileProblem, MergeSession, MergedPatch,
    RunChanges, TargetFiles, UnwrittenFile, WriteReport, write_back,
};
use crate::error::Error;
use crate::event::Outcome;
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_FAILED};
use crate::git::Repository;
use crate::isolation::is_own_workspace;
use crate::journal::RecordKey;
use crate::map::MapManifest;
use crate::record::{RUNS, find_run, read_file};
use crate::reports;
use crate::run::Signals;
use crate::sandbox::protected_paths::{ProtectedPaths, ProtectionConfig};
use crate::text::folded_path::FoldedPath;
use crate::workspace::write_protection::could_form_git_dir;
use crate::workspace_changes::has_tracked_files;

/// How long the files may take to be written after a signal.
const WRITE_GRACE: Duration = Duration::from_secs(30);
/// How many files the plan of a run may protect or not protect.
const MAX_PROTECTED: usize = 10_000;
/// How many different sets of protected files are searched for. The rows of a map share theirs.
const MAX_PROTECTIONS: usize = 200;

/// Options of `legwork apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
RUN names a run as for `legwork show`. MAP is the folder of a map, its name, or JOB/MAP. The rows of a map are applied in the \
order of its results.jsonl; rows that didn't complete are skipped unless they are named themselves.

Exit codes: 0 if all changes are applied; 1 if those of some run aren't, because of a conflict or because they may not be (the \
others are applied); 2 for a usage error; 5 if a file can't be written; 129, 130 or 143 after a signal.")]
pub(super) struct ApplyArgs {
    /// The runs and maps, in the order in which their changes are applied
    #[arg(required = true, value_name = "RUN|MAP")]
    runs: Vec<String>,
    /// Only report what would be applied
    #[arg(long)]
    check: bool,
    /// Also apply records that were made elsewhere, with what they say about protected files
    #[arg(long)]
    trust_record: bool,
    /// Also change files that have changes that aren't committed, or that git doesn't track
    #[arg(long)]
    allow_dirty: bool,
    /// The folder that is changed
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// The folder with the records of runs
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    out: PathBuf,
    /// The output format
    #[arg(long, default_value = "text", value_parser = format_parser(APPLY_REPORTS))]
    format: String,
}

pub(super) fn apply(options: &ApplyArgs, env: &CliEnv) -> Result<u8, Error> {
    let candidates = find_candidates(options, env)?;
    let workspace = resolve_workspace(&options.workspace)?;
    let git = env.git_program(&env.changeable_folders(&workspace, std::slice::from_ref(&options.out)));
    let unreadable = || Error::environment(format!("the workspace {} can't be read", workspace.display()));
    let mut files = TargetFiles::new(&workspace, git).map_err(unreadable())?;
    let maps = manifests(&candidates);
    maps.values().filter_map(|map| map.snapshot.clone()).for_each(|snapshot| files.add_snapshot(snapshot));
    let committed = match options.allow_dirty {
        true => None,
        false => files.git_status().map_err(Error::environment(
            "git can't say which files have changes that aren't committed (--allow-dirty applies without that check)",
        ))?,
    };
    let obstacle = |path: &Path| committed.as_ref().and_then(|committed| committed.obstacle(path));
    let mut protection = Protection::new(env, &workspace, options);
    let mut session = MergeSession::new(files.clone());
    let mut runs = merge_runs(&mut session, &candidates, &maps, &obstacle, &mut protection)?;
    let diverged = session.diverged();
    if !diverged.is_empty() {
        // Changes that are in such a file already could be merged into it once more, where lines repeat.
        drop(session);
        let mut replay = MergeSession::replay(files.clone(), diverged);
        merge_runs(&mut replay, &candidates, &maps, &|_| None, &mut protection)?;
        session = MergeSession::repeat(files, &replay.into_replay());
        runs = merge_runs(&mut session, &candidates, &maps, &obstacle, &mut protection)?;
    }
    let mut signals = None;
    let path_text = |path: &Path| path.to_string_lossy().into_owned();
    let written = match options.check {
        true => WriteReport {
            written: session.changed_files().map(|(path, ..)| path.to_owned()).collect(),
            ..WriteReport::default()
        },
        false => {
            // A signal would otherwise leave half of a run's changes, and temporary files. A second SIGINT still does.
            signals = Some(Signals::catch_within(WRITE_GRACE)?);
            write_back(&session)
        }
    };
    let report = ApplyReport {
        format: 1,
        check: options.check,
        workspace: path_text(&workspace),
        runs,
        files: written.written.iter().map(|path| path_text(path)).collect(),
        failed: written.failed.map(|(path, reason)| UnwrittenFile { path: path_text(&path), reason }),
        unwritten: written.unwritten.iter().map(|path| path_text(path)).collect(),
    };
    let text = reports::find(APPLY_REPORTS, &options.format)(&report, env.console.stdout_display());
    env.console.print_formatted(&options.format, &text);
    let is_rejected = |run: &AppliedRun| matches!(run.status, ApplyStatus::Conflict | ApplyStatus::Refused);
    let signal = signals.and_then(|signals| signals.first());
    Ok(match &report.failed {
        Some(failed) => {
            report_failure(&report, failed, env);
            EXIT_ENVIRONMENT
        }
        None if let Some(number) = signal => {
            env.console.warning("the signal came while files were written, so all of them were written first");
            128 + number
        }
        None if report.runs.iter().any(is_rejected) => EXIT_FAILED,
        None => 0,
    })
}

/// Says which files were written, and which weren't.
fn report_failure(report: &ApplyReport, failed: &UnwrittenFile, env: &CliEnv) {
    let list = |files: &[String]| if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    env.console.warning(&format!("`{}` wasn't written: {}", failed.path, failed.reason));
    env.console.warning(&format!("written before it: {}", list(&report.files)));
    env.console.warning(&format!("not written after it: {}", list(&report.unwritten)));
    env.console.warning("the same command applies the rest, once the file can be written");
}

/// What became of a run's changes.
enum Verdict {
    /// They are part of the session: the files that they change.
    Merged(Vec<String>),
    /// They aren't, for a reason that concerns the whole run.
    Rejected(ApplyStatus, String),
    /// They aren't, because of these files.
    Problems(ApplyStatus, Vec<FileProblem>),
}

/// Merges the changes of all runs into the session, in order.
fn merge_runs(
    session: &mut MergeSession<TargetFiles>,
    candidates: &[Candidate],
    maps: &HashMap<PathBuf, MapManifest>,
    obstacle: &dyn Fn(&Path) -> Option<&'static str>,
    protection: &mut Protection<'_>,
) -> Result<Vec<AppliedRun>, Error> {
    let mut runs = Vec::new();
    for candidate in candidates {
        let mut run = AppliedRun {
            run: candidate.label.clone(),
            folder: candidate.folder.to_string_lossy().into_owned(),
            status: ApplyStatus::Unchanged,
            reason: None,
            files: Vec::new(),
            problems: Vec::new(),
        };
        match merge_run(session, candidate, maps, obstacle, protection)? {
            Verdict::Merged(files) if files.is_empty() => {}
            Verdict::Merged(files) => (run.status, run.files) = (ApplyStatus::Applied, files),
            Verdict::Rejected(status, reason) => (run.status, run.reason) = (status, Some(reason)),
            Verdict::Problems(status, problems) => (run.status, run.problems) = (status, problems),
        }
        runs.push(run);
    }
    Ok(runs)
}

/// Merges the changes of a run into the session, whole or not at all.
fn merge_run(
    session: &mut MergeSession<TargetFiles>,
    candidate: &Candidate,
    maps: &HashMap<PathBuf, MapManifest>,
    obstacle: &dyn Fn(&Path) -> Option<&'static str>,
    protection: &mut Protection<'_>,
) -> Result<Verdict, Error> {
    let refused = |reason: String| Ok(Verdict::Rejected(ApplyStatus::Refused, reason));
    if candidate.row.is_some() && fs::symlink_metadata(&candidate.folder).is_ok_and(|data| data.is_symlink()) {
        return refused("its record is a symbolic link".to_owned());
    }
    let changes = match RunChanges::read(&candidate.folder) {
        Ok(changes) => changes,
        Err(error) => return refused(error.to_string()),
    };
    if let Some(why) = changes.defect() {
        protection.env.console.warning(&format!("{}: {why}", candidate.label));
    }
    let map = candidate.map_folder().and_then(|folder| maps.get(folder));
    let recorded = map.and_then(|map| map.workspace.as_ref()).unwrap_or(&changes.workspace);
    check_workspace(session.source().root(), &candidate.label, recorded)?;
    if candidate.row.is_some() && changes.outcome != Some(Outcome::Completed) {
        let how = changes.outcome.map_or("it hasn't ended".to_owned(), |outcome| format!("it ended as {outcome}"));
        return Ok(Verdict::Rejected(ApplyStatus::Skipped, how));
    }
    let patch = match &changes.patch {
        Ok(patch) => patch,
        Err(why) => return refused(why.clone()),
    };
    let merged = match session.prepare(&candidate.label, patch) {
        Ok(merged) => merged,
        Err(conflicts) => return Ok(conflict(conflicts)),
    };
    if let Some(why) = protection.excess(&changes) {
        return refused(why.to_owned());
    }
    let problems = protection.problems(&changes, &merged)?;
    if !problems.is_empty() {
        return Ok(Verdict::Problems(ApplyStatus::Refused, problems));
    }
    if merged.changed_files().next().is_some() && !protection.is_trusted(&changes)? {
        return refused(
            "its record was made on another machine or with another key, so what its job protects isn't known; look at its \
             changes.patch, then use --trust-record (machines that share records need the same LEGWORK_RECORD_KEY)"
                .to_owned(),
        );
    }
    let dirty: Vec<FileProblem> = merged
        .changed_files()
        .filter(|path| session.source().has_file(path))
        .filter_map(|path| Some(problem(path, obstacle(path)?.to_owned())))
        .collect();
    if !dirty.is_empty() {
        return Ok(Verdict::Problems(ApplyStatus::Refused, dirty));
    }
    let files = merged.changed_files().map(|path| path.to_string_lossy().into_owned()).collect();
    session.accept(merged);
    Ok(Verdict::Merged(files))
}

/// The verdict about a patch that can't be merged. Conflicts without a path concern all of it.
fn conflict(conflicts: Vec<FileConflict>) -> Verdict {
    if let Some(whole) = conflicts.iter().find(|conflict| conflict.path.as_os_str().is_empty()) {
        return Verdict::Rejected(ApplyStatus::Refused, whole.why.clone());
    }
    let of_file = |conflict: FileConflict| FileProblem {
        path: conflict.path.to_string_lossy().into_owned(),
        reason: conflict.why,
        lines: conflict.lines,
        earlier: conflict.earlier,
    };
    Verdict::Problems(ApplyStatus::Conflict, conflicts.into_iter().map(of_file).collect())
}

fn problem(path: &Path, reason: String) -> FileProblem {
    FileProblem { path: path.to_string_lossy().into_owned(), reason, lines: Vec::new(), earlier: Vec::new() }
}

/// A run whose changes may be applied.
#[derive(Debug)]
struct Candidate {
    /// The run's name in the report.
    label: String,
    folder: PathBuf,
    /// The id, if it is a row of a map that was named as a whole.
    row: Option<String>,
}

impl Candidate {
    /// The folder of the map, if the run is a row of one.
    fn map_folder(&self) -> Option<&Path> {
        self.folder.parent()?.parent()
    }
}

/// The runs that the command line names, each once.
fn find_candidates(options: &ApplyArgs, env: &CliEnv) -> Result<Vec<Candidate>, Error> {
    let mut candidates = Vec::new();
    let mut empty = None;
    for wanted in &options.runs {
        match find_map(&options.out, wanted)? {
            Some(map) => {
                let name = map.canonicalize().unwrap_or_else(|_| map.clone());
                let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let ids = row_ids(&map, env)?;
                if ids.is_empty() {
                    empty.get_or_insert(map);
                    continue;
                }
                candidates.extend(ids.into_iter().map(|id| Candidate {
                    label: if options.runs.len() == 1 { id.clone() } else { format!("{name}/{id}") },
                    folder: map.join("rows").join(&id),
                    row: Some(id),
                }));
            }
            None => {
                let folder = find_run(&options.out, wanted, &has_tracked_files).map_err(|error| match error {
                    Error::NoSuchRun { .. } | Error::NoRuns { .. } => Error::usage(
                        format!("no run and no map is called `{wanted}` in {}", options.out.display()),
                        "Name a run by its folder or its id, and a map by its folder, its name or JOB/MAP.",
                    ),
                    other => other,
                })?;
                let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                let label = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
                candidates.push(Candidate { label, folder, row: None });
            }
        }
    }
    if let Some(path) = empty.filter(|_| candidates.is_empty()) {
        return Err(Error::NotARecord { path, why: "no row of this map has been started yet".to_owned() });
    }
    // A row that is named itself is applied even if its run didn't complete.
    let real = |candidate: &Candidate| candidate.folder.canonicalize().unwrap_or_else(|_| candidate.folder.clone());
    let named: HashSet<PathBuf> = candidates.iter().filter(|it| it.row.is_none()).map(real).collect();
    let mut seen = HashSet::new();
    candidates.retain_mut(|candidate| {
        let folder = real(candidate);
        if named.contains(&folder) {
            candidate.row = None;
        }
        seen.insert(folder)
    });
    Ok(candidates)
}

/// The manifests of the maps that these runs are rows of, by the maps' folders. A record can come from anywhere, so their
/// snapshots may be of any folder.
fn manifests(candidates: &[Candidate]) -> HashMap<PathBuf, MapManifest> {
    let maps: HashSet<&Path> = candidates.iter().filter_map(Candidate::map_folder).collect();
    let manifest = |map: &Path| {
        let text = read_file(map, MAP_FILE, MAX_MAP_BYTES).ok()?;
        Some((map.to_owned(), serde_json::from_slice::<MapManifest>(&text).ok()?))
    };
    maps.into_iter().filter_map(manifest).collect()
}

/// Refuses changes that were made in a folder above or below the workspace: their paths would lead to other files. Records
/// from other machines have other absolute paths.
fn check_workspace(workspace: &Path, run: &str, recorded: &Path) -> Result<(), Error> {
    let Ok(recorded) = recorded.canonicalize() else { return Ok(()) };
    let is_nested = recorded.starts_with(workspace) || workspace.starts_with(&recorded);
    // A worktree has the same paths as its repository, wherever it is.
    let is_other_worktree = || match (Repository::discover(&recorded), Repository::discover(workspace)) {
        (Some(one), Some(other)) => one.worktree != other.worktree && one.common_dir == other.common_dir,
        _ => false,
    };
    if recorded == workspace || !is_nested || is_own_workspace(&recorded) || is_other_worktree() {
        return Ok(());
    }
    Err(Error::usage(
        format!("the changes of {run} were made in {}, not in {}", recorded.display(), workspace.display()),
        format!("Their paths begin there: use --workspace {}, or run the command there.", shell_quote(&recorded)),
    ))
}

/// Whether a link at a path in the workspace could lead out of it. After a folder, which could be a link itself, `..` could lead
/// anywhere.
fn leads_outside(workspace: &Path, path: &Path, target: &Path) -> bool {
    let (mut depth, beneath) = match target.strip_prefix(workspace) {
        Ok(beneath) => (0, beneath),
        Err(_) => (path.components().count().saturating_sub(1), target),
    };
    let mut is_below = false;
    beneath.components().any(|part| match part {
        Component::Normal(_) => {
            is_below = true;
            false
        }
        Component::CurDir => false,
        Component::ParentDir if is_below || depth == 0 => true,
        Component::ParentDir => {
            depth -= 1;
            false
        }
        Component::RootDir | Component::Prefix(_) => true,
    })
}

/// Decides which files of the workspace no patch may change.
struct Protection<'a> {
    env: &'a CliEnv,
    workspace: &'a Path,
    out: PathBuf,
    home: Option<PathBuf>,
    /// The protected paths.
    found: HashMap<ProtectionKey, Vec<FoldedPath>>,
    key: OnceCell<Option<RecordKey>>,
    trusts_records: bool,
}

/// What the protected paths depend on: the job files, the paths that the job protects, and those that it doesn't.
type ProtectionKey = (Vec<String>, Vec<String>, Vec<String>);

impl<'a> Protection<'a> {
    fn new(env: &'a CliEnv, workspace: &'a Path, options: &ApplyArgs) -> Self {
        let out = env.current_folder.join(&options.out);
        let home = env.variable("HOME").map(PathBuf::from);
        let trusts_records = options.trust_record;
        Self { env, workspace, out, home, found: HashMap::new(), key: OnceCell::new(), trusts_records }
    }

    /// Whether what the plan of a run says about protected files is what the run had, or the user trusts it.
    fn is_trusted(&self, changes: &RunChanges) -> Result<bool, Error> {
        let is_ours = |key: &RecordKey| changes.is_signed_by(key).unwrap_or(false);
        Ok(self.trusts_records || self.record_key()?.is_some_and(is_ours))
    }

    /// Why the permissions of a run can't be checked in reasonable time.
    fn excess(&self, changes: &RunChanges) -> Option<&'static str> {
        let RunChanges { plan, job_files, .. } = changes;
        match () {
            () if job_files.len() + plan.protect.len() + plan.allow_changes.len() > MAX_PROTECTED => {
                Some("its plan has too many protected files")
            }
            () if self.found.len() >= MAX_PROTECTIONS => {
                Some("the jobs of this command protect too many different files; apply fewer runs at once")
            }
            () => None,
        }
    }

    /// The protected files among those that a patch changes, unless the run had the permission to change them.
    fn problems(&mut self, changes: &RunChanges, merged: &MergedPatch) -> Result<Vec<FileProblem>, Error> {
        let hits = self.protected(changes, &[], merged.changed_files().collect());
        let named: Vec<FoldedPath> =
            merged.changed_files().filter(|path| could_form_git_dir(path)).map(FoldedPath::new).collect();
        let in_git: Vec<&Path> = merged.changed_files().filter(|path| self.is_in_git_folder(path, &named)).collect();
        if !in_git.is_empty() {
            let why = "it would be in a folder that git takes for a repository, whose configuration it obeys";
            return Ok(in_git.into_iter().map(|path| problem(path, why.to_owned())).collect());
        }
        let leads_out = |(path, target): &(&Path, &Path)| leads_outside(self.workspace, path, target);
        let links: Vec<_> = merged.new_links().filter(leads_out).collect();
        if !links.is_empty() {
            let why =
                |target: &Path| format!("it would be a link to {}, outside of the workspace", shell_quote(target));
            return Ok(links.into_iter().map(|(path, target)| problem(path, why(target))).collect());
        }
        if hits.is_empty() {
            return Ok(Vec::new());
        }
        let allowed = &changes.plan.allow_changes;
        let refused =
            |hits: Vec<&Path>, why: &str| hits.into_iter().map(|path| problem(path, why.to_owned())).collect();
        let left = if allowed.is_empty() { hits.clone() } else { self.protected(changes, allowed, hits.clone()) };
        if !left.is_empty() {
            return Ok(refused(left, "it is protected, and the job has no permission to change it"));
        }
        if self.is_trusted(changes)? {
            return Ok(Vec::new());
        }
        Ok(refused(
            hits,
            "it is protected, and the permission to change it is in a record from another machine or with another key \
             (--trust-record trusts it; machines that share records need the same LEGWORK_RECORD_KEY)",
        ))
    }

    /// Whether a file is below a folder by whose entries git recognizes a repository. `named` are the files of the patch with
    /// the name of such an entry.
    fn is_in_git_folder(&self, path: &Path, named: &[FoldedPath]) -> bool {
        let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        folders.into_iter().any(|folder| {
            let is_added = |name: &str| {
                !named.is_empty() && {
                    let wanted = FoldedPath::new(&folder.join(name));
                    named.iter().any(|other| other.is_within(&wanted))
                }
            };
            let has =
                |name: &str| fs::symlink_metadata(self.workspace.join(folder).join(name)).is_ok() || is_added(name);
            has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
        })
    }

    /// The protected ones among some files, if a job may change the paths in `allowed`.
    fn protected<'p>(&mut self, changes: &RunChanges, allowed: &[String], files: Vec<&'p Path>) -> Vec<&'p Path> {
        let key = (changes.job_files.clone(), changes.plan.protect.clone(), allowed.to_vec());
        let found = self.found.entry(key).or_insert_with(|| {
            let files = self.env.user_config_files();
            let in_workspace = files.into_iter().filter(|file| file.starts_with(self.workspace));
            let job_files: Vec<PathBuf> = changes.job_files.iter().map(PathBuf::from).chain(in_workspace).collect();
            let found = ProtectedPaths::find(&ProtectionConfig {
                workspace: self.workspace,
                job_files: &job_files,
                out: &self.out,
                home: self.home.as_deref(),
                git: changes.plan.git,
                protect: &changes.plan.protect,
                allow_changes: allowed,
                write: &[],
                has_commands: false,
                time: None,
            });
            found.paths.iter().chain(&found.links).map(|path| FoldedPath::new(path)).collect()
        });
        let is_protected = |file: &&Path| {
            let file = FoldedPath::new(&self.workspace.join(file));
            found.iter().any(|path| file.is_within(path))
        };
        files.into_iter().filter(is_protected).collect()
    }

    fn record_key(&self) -> Result<Option<&RecordKey>, Error> {
        if self.key.get().is_none() {
            let key = self.env.record_key(&[self.workspace, &self.out])?;
            return Ok(self.key.get_or_init(|| key).as_ref());
        }
        Ok(self.key.get().and_then(Option::as_ref))
    }
}

#[cfg(test)]
mod link_tests {
    use super::*;

    #[test]
    fn only_links_that_stay_in_the_workspace_are_inside() {
        for (path, target, is_outside) in [
            ("l", "file", false),
            ("l", "a/b", false),
            ("l", ".", false),
            ("a/b/l", "../../file", false),
            ("a/l", "./../b", false),
            ("l", "/home/me/space/file", false),
            ("l", "/home/me/space", false),
            ("l", "/etc/passwd", true),
            ("l", "/home/me/spaces", true),
            ("l", "/home/me/space/../x", true),
            ("l", "..", true),
            ("a/l", "../../x", true),
            // `a` could be a link to a folder that isn't as deep.
            ("x/y/l", "a/../z", true),
        ] {
            let found = leads_outside(Path::new("/home/me/space"), Path::new(path), Path::new(target));
            assert_eq!(found, is_outside, "{path} -> {target}");
        }
    }
}
