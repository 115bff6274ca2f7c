//! References of git folders: whether they changed in a way that isn't allowed, and stashes that must not be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;

use super::TamperGuard;
use super::dir_fd::{open_parent_or, read};
use super::file_state::{FileState, MAX_GIT_FILE_BYTES, SnapshotBudget};
use super::git_content::{is_object_name, packed_references};
use super::tree_check::{self, Location};
use crate::workspace::atomic_write::CompleteFile;

/// The log of the stash in a git folder: each line is a stash.
const STASH_LOG: &str = "logs/refs/stash";
/// Files with the name of a commit that only they keep: the uncommitted work that an unfinished command has put aside.
const AUTOSTASHES: [&str; 3] = ["rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH"];

/// The log of HEAD in a git folder.
const HEAD_LOG: &str = "logs/HEAD";
/// Who makes entries that git hasn't made.
const LOG_AUTHOR: &str = "legwork <legwork@localhost>";

/// The entries of the log of HEAD for commits that a command has made and that are about to be undone.
#[derive(Debug)]
pub(super) struct UndoneCommits {
    git_dir: PathBuf,
    entries: Vec<String>,
}

/// A stash that a command has made.
#[derive(Debug)]
pub(super) struct NewStash {
    git_dir: PathBuf,
    commit: String,
    /// The rest of the line in the log: who, when and a message.
    rest: String,
}

/// Whether commands may change a reference with `git: commit`. Others belong to the user: what a fetch has brought, replacements of
/// objects, the state of a bisection.
fn may_change(name: &str) -> bool {
    name == "refs/stash" || ["refs/heads/", "refs/tags/", "refs/notes/"].iter().any(|prefix| name.starts_with(prefix))
}

impl TamperGuard {
    /// The references of a git folder that have a value that isn't allowed. It doesn't matter whether they are packed.
    pub(super) fn wrong_references(&self, git_dir: &Path) -> Vec<PathBuf> {
        let (before, now) = (self.references_before(git_dir), self.references_now(git_dir));
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let changed: Vec<&String> = names.into_iter().filter(|name| before.get(*name) != now.get(*name)).collect();
        let wrong: Vec<PathBuf> =
            changed.iter().filter(|name| !may_change(name)).map(|name| git_dir.join(name)).collect();
        if !wrong.is_empty() {
            return wrong;
        }
        let objects = |values: Vec<&String>| -> Vec<String> {
            values.into_iter().filter(|value| is_object_name(value)).cloned().collect()
        };
        let new = objects(changed.iter().filter_map(|name| now.get(*name)).collect());
        if new.is_empty() || self.has_all(git_dir, &new, &objects(before.values().collect())) {
            return Vec::new();
        }
        changed.iter().map(|name| git_dir.join(name)).collect()
    }

    fn references_before(&self, git_dir: &Path) -> BTreeMap<String, String> {
        let packed = match self.recorded(&git_dir.join("packed-refs")) {
            Some(FileState::File(_, Some(content))) => packed_references(content).unwrap_or_default(),
            _ => BTreeMap::new(),
        };
        with_loose(packed, self.recorded(&git_dir.join("refs")))
    }

    fn references_now(&self, git_dir: &Path) -> BTreeMap<String, String> {
        let packed = self.read_now(&git_dir.join("packed-refs"));
        let packed = packed.and_then(|content| packed_references(&content)).unwrap_or_default();
        let path = git_dir.join("refs");
        let refs = self.open(&path).ok().map(|(folder, name)| {
            let policy = self.allowed_changes.policy_for(&path);
            let at = Location::new(&folder, &name, &policy);
            tree_check::capture(at, FileState::Missing, &mut SnapshotBudget::new(true))
        });
        with_loose(packed, refs.as_ref())
    }

    /// The recorded state of a path.
    fn recorded(&self, path: &Path) -> Option<&FileState> {
        let guarded = self.paths.iter().find(|guarded| path.starts_with(&guarded.path))?;
        path.strip_prefix(&guarded.path).ok()?.iter().try_fold(&guarded.state, |state, name| match state {
            FileState::Folder(_, entries) => entries.get(name),
            _ => None,
        })
    }

    /// Opens the folder of a guarded path.
    fn open(&self, path: &Path) -> Result<(OwnedFd, std::ffi::OsString), Errno> {
        self.open_or(path, |_, _| Err(Errno::NOENT))
    }

    fn open_or(
        &self,
        path: &Path,
        missing: impl Fn(&OwnedFd, &OsStr) -> Result<(), Errno>,
    ) -> Result<(OwnedFd, std::ffi::OsString), Errno> {
        let guarded = self.paths.iter().find(|guarded| path.starts_with(&guarded.path)).ok_or(Errno::NOENT)?;
        let relative = guarded.relative.join(path.strip_prefix(&guarded.path).map_err(|_| Errno::NOENT)?);
        let (folder, name) = open_parent_or(&guarded.root, &relative, missing)?;
        Ok((folder, name.to_owned()))
    }

    fn read_now(&self, path: &Path) -> Option<Vec<u8>> {
        let (folder, name) = self.open(path).ok()?;
        read(&folder, &name, MAX_GIT_FILE_BYTES)
    }

    /// The stashes that are about to be undone.
    pub(super) fn new_stashes(&self) -> Vec<NewStash> {
        let mut stashes = Vec::new();
        for git_dir in &self.allowed_changes.git_folders {
            let before = self.recorded_text(&git_dir.join(STASH_LOG));
            let known: BTreeSet<&str> = before.lines().filter_map(new_commit).collect();
            let now = self.text_now(&git_dir.join(STASH_LOG));
            for line in now.lines() {
                if let Some(commit) = new_commit(line).filter(|commit| !known.contains(commit)) {
                    let rest = line.splitn(3, ' ').nth(2).unwrap_or_default();
                    let (commit, rest) = (commit.to_owned(), rest.to_owned());
                    stashes.push(NewStash { git_dir: git_dir.clone(), commit, rest });
                }
            }
            // A reference without a log, too.
            for name in AUTOSTASHES.iter().chain(&["refs/stash"]) {
                let before = self.recorded_text(&git_dir.join(name));
                let now = self.text_now(&git_dir.join(name));
                let commit = now.trim();
                let is_new = is_object_name(commit) && before.trim() != commit && !known.contains(commit);
                if is_new && !stashes.iter().any(|stash| stash.commit == commit) {
                    let rest = format!("{}autostash", log_author());
                    stashes.push(NewStash { git_dir: git_dir.clone(), commit: commit.to_owned(), rest });
                }
            }
        }
        stashes.retain(|stash| self.has_all(&stash.git_dir, std::slice::from_ref(&stash.commit), &[]));
        stashes
    }

    fn has_all(&self, git_dir: &Path, names: &[String], known: &[String]) -> bool {
        // A linked worktree has no objects of its own.
        let store =
            self.objects.iter().find(|store| store.path.parent().is_some_and(|above| git_dir.starts_with(above)));
        store.is_none_or(|store| store.has_all(names, known))
    }

    /// The commits that are about to be undone, and that a later step of the command may have removed from the working tree: a
    /// commit that is followed by nothing leaves its files there.
    pub(super) fn undone_commits(&self) -> Vec<UndoneCommits> {
        let mut undone = Vec::new();
        for git_dir in &self.allowed_changes.git_folders {
            let before = self.recorded_text(&git_dir.join(HEAD_LOG));
            let entries: BTreeSet<&str> = before.lines().collect();
            let known: Vec<String> = before.lines().filter_map(new_commit).map(str::to_owned).collect();
            let now = self.text_now(&git_dir.join(HEAD_LOG));
            let new: Vec<&str> =
                now.lines().filter(|line| !entries.contains(line) && new_commit(line).is_some()).collect();
            let commits: Vec<String> = new
                .iter()
                .filter_map(|line| new_commit(line))
                .filter(|id| !known.iter().any(|known| known == id))
                .map(str::to_owned)
                .collect();
            let is_in_tree =
                new.iter().all(|line| line.split_once('\t').is_some_and(|(_, what)| what.starts_with("commit")));
            if !is_in_tree && !commits.is_empty() && self.has_all(git_dir, &commits, &known) {
                let entries = new.into_iter().map(str::to_owned).collect();
                undone.push(UndoneCommits { git_dir: git_dir.clone(), entries });
            }
        }
        undone
    }

    /// Adds commits that were undone to the log of HEAD, where `git reflog` shows them. Returns whether there were any.
    pub(super) fn keep_commits(&mut self, undone: &[UndoneCommits]) -> bool {
        let mut has_kept = false;
        for UndoneCommits { git_dir, entries } in undone {
            let mut log = self.text_now(&git_dir.join(HEAD_LOG));
            let name = |line: Option<&str>| line.and_then(new_commit).map(str::to_owned);
            let last = name(entries.last().map(String::as_str)).unwrap_or_default();
            let head = name(log.lines().last()).unwrap_or_else(|| last.clone());
            for entry in entries {
                log.push_str(entry);
                log.push('\n');
            }
            log.push_str(&format!("{last} {head} {}undone by legwork\n", log_author()));
            has_kept |= self.write(&git_dir.join(HEAD_LOG), log.as_bytes()).is_ok();
        }
        if has_kept {
            self.recapture_git();
        }
        has_kept
    }

    /// Takes note of the stashes that the user has. Called when no command runs.
    pub(super) fn find_user_stashes(&mut self) {
        let logs = self.allowed_changes.git_folders.iter().map(|git_dir| {
            let log = self.recorded_text(&git_dir.join(STASH_LOG));
            let entries = log.lines().filter(|line| new_commit(line).is_some_and(|id| !self.made_stashes.contains(id)));
            (git_dir.clone(), entries.map(str::to_owned).collect::<Vec<String>>())
        });
        self.user_stashes = logs.filter(|(_, entries)| !entries.is_empty()).collect();
    }

    /// Adds the user's stashes again that a command has dropped. Returns whether there were any.
    pub(super) fn restore_user_stashes(&mut self) -> bool {
        let mut has_restored = false;
        for git_dir in &self.allowed_changes.git_folders {
            let users = self.user_stashes.get(git_dir).map_or(&[][..], Vec::as_slice);
            let log = self.text_now(&git_dir.join(STASH_LOG));
            let now: Vec<&str> = log.lines().filter_map(new_commit).collect();
            let is_users = |line: &str| users.iter().any(|user| new_commit(user) == new_commit(line));
            let new: Vec<&str> = log.lines().filter(|line| new_commit(line).is_some() && !is_users(line)).collect();
            self.made_stashes.extend(new.iter().filter_map(|line| new_commit(line)).map(str::to_owned));
            if users.iter().filter_map(|line| new_commit(line)).all(|id| now.contains(&id)) {
                continue;
            }
            let (mut text, mut last) = (String::new(), String::new());
            for line in users.iter().map(String::as_str).chain(new) {
                let (id, rest) = (new_commit(line).unwrap_or_default(), line.splitn(3, ' ').nth(2).unwrap_or_default());
                let before = if last.is_empty() { "0".repeat(id.len()) } else { last };
                text.push_str(&format!("{before} {id} {rest}\n"));
                last = id.to_owned();
            }
            let written = self.write(&git_dir.join(STASH_LOG), text.as_bytes());
            let written =
                written.and_then(|()| self.write(&git_dir.join("refs/stash"), format!("{last}\n").as_bytes()));
            has_restored |= written.is_ok();
        }
        has_restored
    }

    /// Adds entries again that a command has removed from the logs of references that are still there: they lead to commits that
    /// nothing else may lead to. For the same reason, the log of HEAD gets an entry for each deleted branch.
    pub(super) fn restore_logs(&self, changed: &BTreeSet<PathBuf>, with_changed_references: &BTreeSet<PathBuf>) {
        for git_dir in &self.allowed_changes.git_folders {
            let logs = git_dir.join("logs");
            let changed: Vec<&PathBuf> = changed.iter().filter(|path| path.starts_with(&logs)).collect();
            if changed.is_empty() && !with_changed_references.contains(git_dir) {
                continue;
            }
            let now = self.references_now(git_dir);
            for name in self.recorded_logs(&logs) {
                let path = logs.join(&name);
                let is_changed = changed.iter().any(|changed| path.starts_with(changed));
                // That of the stash is restored in another way, and that of a deleted branch belongs to nothing.
                let is_there = name == "HEAD" || (name != "refs/stash" && now.contains_key(&name));
                if is_changed && is_there {
                    self.restore_log(&path);
                }
            }
            self.keep_deleted_branches(git_dir, &now);
        }
    }

    /// The names of the logs that were recorded below a folder.
    fn recorded_logs(&self, logs: &Path) -> Vec<String> {
        fn add(state: &FileState, name: &str, names: &mut Vec<String>) {
            match state {
                FileState::Folder(_, entries) => {
                    for (entry, state) in entries {
                        let Some(entry) = entry.to_str() else { continue };
                        add(state, &if name.is_empty() { entry.to_owned() } else { format!("{name}/{entry}") }, names);
                    }
                }
                FileState::File(..) => names.push(name.to_owned()),
                _ => {}
            }
        }
        let mut names = Vec::new();
        if let Some(state) = self.recorded(logs) {
            add(state, "", &mut names);
        }
        names
    }

    fn restore_log(&self, path: &Path) {
        let before = self.recorded_text(path);
        let now = self.text_now(path);
        if now.starts_with(&before) {
            return;
        }
        let known: BTreeSet<&str> = before.lines().collect();
        let new = now.lines().filter(|line| !known.contains(line) && new_commit(line).is_some());
        let all: String = before.lines().chain(new).map(|line| format!("{line}\n")).collect();
        // If it fails, the log is as the command left it, which is allowed.
        let _ = self.write(path, all.as_bytes());
    }

    /// Notes in the log of HEAD where deleted branches led, unless another reference or that log leads there.
    fn keep_deleted_branches(&self, git_dir: &Path, now: &BTreeMap<String, String>) {
        let before = self.references_before(git_dir);
        let mut log = self.text_now(&git_dir.join(HEAD_LOG));
        let is_deleted = |(name, value): &(&String, &String)| {
            name.starts_with("refs/heads/")
                && is_object_name(value)
                && !now.contains_key(*name)
                && !now.values().any(|kept| kept == *value)
                && !log.lines().filter_map(new_commit).any(|kept| kept == *value)
        };
        let deleted: Vec<(&String, &String)> = before.iter().filter(is_deleted).collect();
        if deleted.is_empty() {
            return;
        }
        let head = log.lines().last().and_then(new_commit).map(str::to_owned);
        let mut last = head.clone().unwrap_or_else(|| "0".repeat(deleted[0].1.len()));
        for (name, value) in deleted {
            log.push_str(&format!("{last} {value} {}deleted branch {}\n", log_author(), &name["refs/heads/".len()..]));
            last.clone_from(value);
        }
        // The newest entry is where HEAD is.
        if let Some(head) = head {
            log.push_str(&format!("{last} {head} {}noted by legwork\n", log_author()));
        }
        // If it fails, the commits can still be found by `git fsck`, as without legwork.
        let _ = self.write(&git_dir.join(HEAD_LOG), log.as_bytes());
    }

    fn recorded_text(&self, path: &Path) -> String {
        match self.recorded(path) {
            Some(FileState::File(_, Some(content))) => String::from_utf8_lossy(content).into_owned(),
            _ => String::new(),
        }
    }

    fn text_now(&self, path: &Path) -> String {
        String::from_utf8_lossy(&self.read_now(path).unwrap_or_default()).into_owned()
    }

    fn recapture_git(&mut self) {
        let rules = &self.allowed_changes;
        for guarded in self.paths.iter_mut().filter(|guarded| guarded.is_in_git_dir(rules)) {
            guarded.capture(rules, &mut SnapshotBudget::new(true));
        }
    }

    /// Adds stashes to the user's: their work isn't in the working tree any more. Returns whether there were any.
    pub(super) fn keep_stashes(&mut self, stashes: &[NewStash]) -> bool {
        let mut has_kept = false;
        for NewStash { git_dir, commit, rest } in stashes {
            let mut log = self.text_now(&git_dir.join(STASH_LOG));
            let last = log.lines().last().and_then(new_commit).map(str::to_owned);
            let last = last.unwrap_or_else(|| "0".repeat(commit.len()));
            log.push_str(&format!("{last} {commit} {rest}\n"));
            let written = self.write(&git_dir.join(STASH_LOG), log.as_bytes());
            let written =
                written.and_then(|()| self.write(&git_dir.join("refs/stash"), format!("{commit}\n").as_bytes()));
            has_kept |= written.is_ok();
        }
        if has_kept {
            self.recapture_git();
        }
        has_kept
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (folder, name) = self.open_or(path, |folder, name| mkdirat(folder, name, Mode::from_raw_mode(0o755)))?;
        CompleteFile::write(folder.as_fd(), content, None, 0o644)?.persist(&name).map(drop)
    }
}

/// Who adds an entry to a log, and when.
fn log_author() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{LOG_AUTHOR} {now} +0000\t")
}

/// The commit that an entry of a log leads to.
fn new_commit(line: &str) -> Option<&str> {
    line.split(' ').nth(1).filter(|commit| is_object_name(commit))
}

/// Loose references win over packed ones.
fn with_loose(mut references: BTreeMap<String, String>, loose: Option<&FileState>) -> BTreeMap<String, String> {
    fn add(state: &FileState, name: &str, references: &mut BTreeMap<String, String>) {
        match state {
            FileState::Folder(_, entries) => {
                for (entry, state) in entries {
                    if let Some(entry) = entry.to_str().filter(|entry| !entry.ends_with(".lock")) {
                        add(state, &format!("{name}/{entry}"), references);
                    }
                }
            }
            FileState::File(_, Some(content)) => {
                references.insert(name.to_owned(), String::from_utf8_lossy(content).trim().to_owned());
            }
            _ => {}
        }
    }
    if let Some(loose) = loose {
        add(loose, "refs", &mut references);
    }
    references
}
