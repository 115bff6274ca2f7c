//! The run folder: its names, writing it while a run goes on, reading it afterwards.

mod artifacts;
mod authenticity;
mod disk_reserve;
mod fault_injection;
mod files;
mod heartbeat;
mod journal;
mod journal_set;
mod lock;
mod lookup;
mod read;
mod rebuild;
mod resume;
mod seal;
mod temp_files;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;

use self::disk_reserve::DiskReserve;
pub use self::fault_injection::FaultInjection;
use self::heartbeat::Heartbeat;
use self::journal::is_sealed;
pub use self::journal::{JournalError, JournalReader};
use self::journal_set::{JournalSet, make_folder_of};
use self::lock::RecordLock;
pub use self::lookup::find_run;
pub use self::read::Record;
pub use self::rebuild::Rebuilt;
pub use self::resume::ResumedRecord;
pub use self::seal::RecordKey;
pub use self::temp_files::temporary;
use crate::error::Error;
use crate::event::{CallStarted, Durability, Event, JournalEntry, PARENT};
use crate::sandbox::RecordVerifier;

/// The folder that runs go to when nobody says otherwise.
pub const RUNS: &str = "runs";

/// The newest run, on the command line.
pub const LATEST: &str = "latest";

/// What the workspace was at the start of the run, as long as the run can go on.
pub const BASELINE_FILE: &str = "workspace.start";

/// What the run has changed in the workspace, where it has changed anything.
const PATCH_FILE: &str = "changes.patch";

/// Where an agent's journal lies, relative to the run's folder.
pub fn journal_file(agent: &str) -> String {
    if agent == PARENT { "events.jsonl".to_owned() } else { format!("subagents/{agent}.events.jsonl") }
}

/// What stood in the place of a file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    /// Nothing.
    Missing,
    /// Something else.
    Different,
    /// The very same, which was left alone.
    Identical,
}

/// Writes a run's folder. All files are readable by their owner alone.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    run_id: String,
    journals: Mutex<JournalSet>,
    reserve: DiskReserve,
    /// Held as long as the run goes on.
    lock: RecordLock,
    /// Where `latest` led before, as long as the run hasn't begun: then neither it nor its folder is to stay.
    unstarted: Mutex<Option<UnstartedRun>>,
    heartbeat: Mutex<Option<Heartbeat>>,
    /// What says that the record was made here.
    key: Option<RecordKey>,
    /// What is to go wrong, for tests.
    pub faults: FaultInjection,
}

/// What there was before a run that hasn't begun.
#[derive(Debug)]
struct UnstartedRun {
    latest: PathBuf,
    /// Its target, where it was there.
    target: Option<PathBuf>,
}

impl Recorder {
    /// Makes the folder `out/<job>/<run id>` and points `out/<job>/latest` at it. A folder `out` that wasn't there
    /// gets a `.gitignore` for everything. With a key, the record can be told from one that was made elsewhere.
    ///
    /// # Errors
    /// Where the folder can't be made.
    pub fn create(out: &Path, job: &str, run_id: &str, key: Option<RecordKey>) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Record { path, source }
        };
        let is_new = !out.exists();
        let of_job = out.join(job);
        let latest = of_job.join("latest");
        let in_the_way = |why: &str| io::Error::new(io::ErrorKind::AlreadyExists, why);
        if is_new && out.is_symlink() {
            return Err(failed(out)(in_the_way("it is a link to nothing")));
        }
        // A rename would silently replace a file, and a folder would spoil the run once it is begun.
        if fs::symlink_metadata(&latest).is_ok_and(|found| !found.is_symlink()) {
            return Err(failed(&latest)(in_the_way(
                "there is something that is no link, where one is made to the newest run",
            )));
        }
        private_dir_builder().create(&of_job).map_err(failed(&of_job))?;
        let ignore = out.join(".gitignore");
        if is_new || (out.file_name() == Some(RUNS.as_ref()) && !ignore.exists()) {
            // A link to nothing is not followed, which would make a file elsewhere.
            match OpenOptions::new().write(true).create_new(true).open(&ignore) {
                Ok(mut file) => file.write_all(b"*\n").map_err(|error| {
                    // An empty one would ignore nothing, and stay.
                    let _ = fs::remove_file(&ignore);
                    let _ = fs::remove_dir(&of_job);
                    let _ = fs::remove_dir(out);
                    failed(&ignore)(error)
                })?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&ignore)(error)),
            }
        }
        let folder = of_job.join(run_id);
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder))?;
        let reserve = DiskReserve::allocate(&folder);
        let lock = RecordLock::take(&folder)?;
        let unbegun = UnstartedRun { latest: latest.clone(), target: fs::read_link(&latest).ok() };
        let recorder = Self {
            folder,
            run_id: run_id.to_owned(),
            journals: Mutex::default(),
            reserve,
            lock,
            unstarted: Mutex::new(Some(unbegun)),
            heartbeat: Mutex::default(),
            key,
            faults: FaultInjection::default(),
        };
        replace_symlink(&latest, Path::new(&recorder.run_id)).map_err(failed(&latest))?;
        Ok(recorder)
    }

    /// From now on the record says again and again that the run goes on, until it is finished.
    pub fn keep_alive(&self, clock: fn() -> Timestamp) {
        *lock(&self.heartbeat) = Some(Heartbeat::begin(&self.folder, clock));
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder's lock once more, for whoever is part of the run and may outlive this process.
    pub fn lock(&self) -> Option<OwnedFd> {
        self.lock.another()
    }

    /// Tells the records of other runs that were made here from those that a command has made up; `None` without a key.
    pub fn origin_check(&self) -> Option<RecordVerifier> {
        let key = self.key.clone()?;
        Some(RecordVerifier(Arc::new(move |folder, path| authenticity::is_sealed_for_path(path, folder, &key))))
    }

    /// The run's id: the folder's name.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// What stands for the values of a run's secrets in its record, by their names; nothing without a key.
    pub fn digests(&self, run_id: &str, secrets: &[(String, String)]) -> BTreeMap<String, String> {
        self.key.as_ref().map(|key| seal::digests(key, run_id, secrets)).unwrap_or_default()
    }

    /// Appends an event to its agent's journal and returns it as it was written.
    ///
    /// # Errors
    /// Where it couldn't be written whole; a half line is cut off when the journal is read.
    pub fn append(&self, agent: &str, event: Event, durability: Durability, at: Timestamp) -> io::Result<JournalEntry> {
        self.lock.is_at(&self.folder)?;
        let mut journals = self.journals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Event::CallStarted(CallStarted { child: Some(child), .. }) = &event {
            // Before anything of it can be told: where a subagent was begun, a journal that isn't there was taken away.
            journals.make(child, &self.folder, &self.faults)?;
        }
        let journal = journals.open_for_append(agent, &self.folder, &self.faults)?;
        let entry = JournalEntry { seq: journal.next(), at, agent: agent.to_owned(), event };
        let key = self.key.as_ref().filter(|_| is_sealed(&entry.event));
        journal.append(&entry, durability, &self.faults, key)?;
        if matches!(entry.event, Event::RunStarted(_)) {
            lock(&self.unstarted).take();
        }
        self.faults.event();
        let ended = matches!(&entry.event, Event::AgentFinished(finished) if finished.id == agent && agent != PARENT);
        if ended {
            journals.close(agent);
        }
        Ok(entry)
    }

    /// Writes a file of the folder so that it appears whole or not at all.
    fn write(&self, name: &str, content: &[u8], durability: Durability) -> io::Result<ExistingFile> {
        self.write_with(name, durability, |out| out.write_all(content))
    }

    fn write_with(
        &self,
        name: &str,
        durability: Durability,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<ExistingFile> {
        self.lock.is_at(&self.folder)?;
        let path = self.folder.join(name);
        self.faults.operation()?;
        let folder = make_folder_of(&path, &self.folder)?;
        let mut file = io::BufWriter::with_capacity(64 * 1024, temporary(folder)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let found = compare_files(&path, file.path());
        if found == ExistingFile::Identical {
            return Ok(found);
        }
        if durability == Durability::Flushed {
            self.faults.operation()?;
            file.as_file().sync_data()?;
        }
        self.faults.operation()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(found)
    }
}

impl Drop for Recorder {
    /// A run that couldn't begin leaves nothing: an empty record would be the newest one.
    fn drop(&mut self) {
        let Some(UnstartedRun { latest, target }) = lock(&self.unstarted).take() else { return };
        if self.lock.is_at(&self.folder).is_err() {
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

/// Makes a link, or has it lead elsewhere.
fn replace_symlink(link: &Path, target: &Path) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".latest-");
    name.push(target.file_name().unwrap_or_default());
    let fresh = link.with_file_name(name);
    let made = std::os::unix::fs::symlink(target, &fresh).and_then(|()| fs::rename(&fresh, link));
    if made.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    made
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What stands in the place of a file that is to come there.
fn compare_files(path: &Path, fresh: &Path) -> ExistingFile {
    // A pipe that somebody put there would be waited for.
    let Ok(there) = fs::symlink_metadata(path) else { return ExistingFile::Missing };
    let is_same = || -> io::Result<bool> {
        if !there.is_file() || there.len() != fs::metadata(fresh)?.len() {
            return Ok(false);
        }
        let (mut one, mut other) = (File::open(path)?, File::open(fresh)?);
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

fn private_dir_builder() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Allocates the id of a new run of a job below `out`. Ids sort by time and are easy to type: the time in UTC and six random
/// digits of base 32.
pub fn new_run_id(out: &Path, job: &str, now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    loop {
        // Every RandomState has fresh keys, so an empty hash is a random number.
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
