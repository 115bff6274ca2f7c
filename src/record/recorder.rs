//! Creates a run's folder and writes to it while the run goes on.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::authenticity::record_verifier;
use super::disk_reserve::DiskReserve;
use super::heartbeat::Heartbeat;
use super::layout::{LATEST, RUNS};
use super::lock::RecordLock;
use super::temp_files::temporary;
use crate::error::Error;
use crate::event::{Durability, Event, JournalEntry};
use crate::journal::record_files::create_parent_dir;
use crate::journal::{FaultInjection, JournalEnd, JournalSet, RecordKey, digest_secrets};
use crate::sandbox::RecordVerifier;

/// The previous state of the path of a file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    /// Nothing.
    Missing,
    /// Something else.
    Different,
    /// The same content; the file wasn't touched.
    Identical,
}

/// Writes a run's folder. Only the owner can read the files.
#[derive(Debug)]
pub struct Recorder {
    pub(super) folder: PathBuf,
    run_id: String,
    pub(super) journals: Mutex<JournalSet>,
    pub(super) reserve: DiskReserve,
    /// Held while the run goes on.
    lock: RecordLock,
    /// Set until the run starts.
    unstarted: Mutex<Option<UnstartedRun>>,
    pub(super) heartbeat: Mutex<Option<Heartbeat>>,
    /// Seals the record.
    key: Option<RecordKey>,
    /// Faults to inject, for tests.
    pub faults: FaultInjection,
}

/// What to restore if a run ends before it starts.
#[derive(Debug)]
struct UnstartedRun {
    latest: PathBuf,
    /// The former target of `latest`, if it existed.
    target: Option<PathBuf>,
}

impl Recorder {
    /// Creates the folder `out/<job>/<run id>` and lets `out/<job>/latest` link to it. If `out` doesn't exist yet, it gets a
    /// `.gitignore` for everything. With a key, the record can be distinguished from one that was made elsewhere.
    ///
    /// # Errors
    /// If the folder can't be created.
    pub fn create(out: &Path, job: &str, run_id: &str, key: Option<RecordKey>) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Record { path, source }
        };
        let job_dir = out.join(job);
        let latest = job_dir.join(LATEST);
        let exists = |why: &str| io::Error::new(io::ErrorKind::AlreadyExists, why);
        let is_new = !out.exists();
        if is_new && out.is_symlink() {
            return Err(failed(out)(exists("it is a dangling link")));
        }
        // A rename would silently replace a file, and would fail for a folder after the run has been created.
        if fs::symlink_metadata(&latest).is_ok_and(|found| !found.is_symlink()) {
            return Err(failed(&latest)(exists("it must be a link to the newest run, and something else is there")));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&job_dir).map_err(failed(&job_dir))?;
        let ignore_file = out.join(".gitignore");
        if is_new || (out.file_name() == Some(RUNS.as_ref()) && !ignore_file.exists()) {
            // `create_new` doesn't follow a dangling link, which would create a file elsewhere.
            match OpenOptions::new().write(true).create_new(true).open(&ignore_file) {
                Ok(mut file) => file.write_all(b"*\n").map_err(|error| {
                    // An empty file would ignore nothing and stay.
                    let _ = fs::remove_file(&ignore_file);
                    let _ = fs::remove_dir(&job_dir);
                    let _ = fs::remove_dir(out);
                    failed(&ignore_file)(error)
                })?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&ignore_file)(error)),
            }
        }
        let folder = job_dir.join(run_id);
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder))?;
        let reserve = DiskReserve::allocate(&folder);
        let lock = RecordLock::take(&folder)?;
        let recorder = Self::new(folder, run_id.to_owned(), lock, reserve, HashMap::new(), key);
        let target = fs::read_link(&latest).ok();
        *lock_mutex(&recorder.unstarted) = Some(UnstartedRun { latest: latest.clone(), target });
        replace_symlink(&latest, Path::new(&recorder.run_id)).map_err(failed(&latest))?;
        Ok(recorder)
    }

    pub(super) fn new(
        folder: PathBuf,
        run_id: String,
        lock: RecordLock,
        reserve: DiskReserve,
        journal_ends: HashMap<String, JournalEnd>,
        key: Option<RecordKey>,
    ) -> Self {
        Self {
            journals: Mutex::new(JournalSet::new(folder.clone(), key.clone(), journal_ends)),
            folder,
            run_id,
            reserve,
            lock,
            unstarted: Mutex::default(),
            heartbeat: Mutex::default(),
            key,
            faults: FaultInjection::default(),
        }
    }

    /// Starts writing a heartbeat to the record, until the run is finished.
    pub fn keep_alive(&self, clock: fn() -> Timestamp) {
        *lock_mutex(&self.heartbeat) = Some(Heartbeat::start(&self.folder, clock));
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Duplicates the folder's lock for a process that is part of the run and may outlive this one.
    pub fn lock(&self) -> Option<OwnedFd> {
        self.lock.duplicate()
    }

    /// Distinguishes records of other runs that were made here from planted ones; `None` without a key.
    pub fn origin_check(&self) -> Option<RecordVerifier> {
        self.key.clone().map(record_verifier)
    }

    /// The run's id, which is the folder's name.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Digests that identify the values of a run's secrets in its record, by name; none without a key.
    pub fn digests(&self, run_id: &str, secrets: &[(String, String)]) -> BTreeMap<String, String> {
        self.key.as_ref().map(|key| digest_secrets(key, run_id, secrets)).unwrap_or_default()
    }

    /// Appends an event to its agent's journal and returns the entry.
    ///
    /// # Errors
    /// If it couldn't be written completely. Half a line is cut off when the journal is read.
    pub fn append(&self, agent: &str, event: Event, durability: Durability, at: Timestamp) -> io::Result<JournalEntry> {
        self.lock.check_path(&self.folder)?;
        let mut journals = lock_mutex(&self.journals);
        let entry = journals.append(agent, event, durability, at, &self.faults)?;
        if matches!(entry.event, Event::RunStarted(_)) {
            lock_mutex(&self.unstarted).take();
        }
        self.faults.event();
        Ok(entry)
    }

    /// Writes a file of the record so that it appears completely or not at all.
    pub(super) fn write(&self, name: &str, content: &[u8], durability: Durability) -> io::Result<ExistingFile> {
        self.write_with(name, durability, |out| out.write_all(content))
    }

    pub(super) fn write_with(
        &self,
        name: &str,
        durability: Durability,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<ExistingFile> {
        self.lock.check_path(&self.folder)?;
        let path = self.folder.join(name);
        self.faults.operation()?;
        let folder = create_parent_dir(&path, &self.folder)?;
        let mut file = io::BufWriter::with_capacity(64 * 1024, temporary(folder)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let existing = compare_files(&path, file.path());
        if existing == ExistingFile::Identical {
            return Ok(existing);
        }
        if durability == Durability::Flushed {
            self.faults.operation()?;
            file.as_file().sync_data()?;
        }
        self.faults.operation()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(existing)
    }
}

impl Drop for Recorder {
    /// Removes the record of a run that never began; otherwise an empty record would be the newest one.
    fn drop(&mut self) {
        let Some(UnstartedRun { latest, target }) = lock_mutex(&self.unstarted).take() else { return };
        if self.lock.check_path(&self.folder).is_err() {
            return;
        }
        if fs::read_link(&latest).is_ok_and(|found| found == Path::new(&self.run_id)) {
            let _ = match target {
                Some(target) => replace_symlink(&latest, &target),
                None => fs::remove_file(&latest),
            };
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Creates a link, or changes its target.
fn replace_symlink(link: &Path, target: &Path) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".latest-");
    name.push(target.file_name().unwrap_or_default());
    let new_link = link.with_file_name(name);
    let result = symlink(target, &new_link).and_then(|()| fs::rename(&new_link, link));
    if result.is_err() {
        let _ = fs::remove_file(&new_link);
    }
    result
}

pub(super) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares what is at a path with the new file that will replace it.
fn compare_files(path: &Path, new: &Path) -> ExistingFile {
    let Ok(existing) = fs::symlink_metadata(path) else { return ExistingFile::Missing };
    let is_same = || -> io::Result<bool> {
        // Opening a pipe would block.
        if !existing.is_file() || existing.len() != fs::metadata(new)?.len() {
            return Ok(false);
        }
        let (mut one, mut other) = (File::open(path)?, File::open(new)?);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        loop {
            left.clear();
            right.clear();
            (&mut one).take(64 * 1024).read_to_end(&mut left)?;
            (&mut other).take(64 * 1024).read_to_end(&mut right)?;
            if left != right || left.is_empty() {
                return Ok(left == right);
            }
        }
    };
    if is_same().unwrap_or(false) { ExistingFile::Identical } else { ExistingFile::Different }
}

/// Allocates the id of a new run of a job below `out`. Ids sort by time and are easy to type: the time in UTC and six random
/// digits of base 32.
pub fn new_run_id(out: &Path, job: &str, now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    loop {
        // Every RandomState has new keys, so an empty hash is a random number.
        let mut random = RandomState::new().build_hasher().finish();
        let mut id = format!("{}-", now.strftime("%Y%m%d-%H%M%S"));
        for _ in 0..6 {
            id.push(char::from(DIGITS[(random % 32) as usize]));
            random /= 32;
        }
        if fs::symlink_metadata(out.join(job).join(&id)).is_err() {
            return id;
        }
    }
}
