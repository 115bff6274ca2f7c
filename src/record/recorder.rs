//! Creates a run's folder and writes to it while the run lasts.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use rustix::fs::{AtFlags, FallocateFlags, Mode, fallocate, fstat, mkdirat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::files::{LATEST, RUNS, create_file, remove_temporary_files, temporary_in};
use super::flush::{FlushQueue, FlushRequest};
use super::journal_set::JournalSet;
use super::lease::remove_unused_leases;
use super::lock::RecordLock;
use super::read::Record;
use super::run_slot::RunSlot;
use super::state::is_previous_attempt;
use crate::error::Error;
use crate::event::{Event, JournalEntry, PARENT};
use crate::journal::{FaultInjection, JournalEnd, JournalReader, RecordKey, journal_file};
use crate::sandbox::RecordVerifier;
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::sync::IgnorePoison;
use crate::workspace::new_file::NewFile;
use crate::workspace::open_beneath;
use crate::workspace::open_root::OpenRoot;

/// The disk space that is reserved for the end of a run, in bytes: many times the size of `result.json`, and enough for the
/// transcript and report of a short run.
const RESERVE_BYTES: u64 = 256 * 1024;

/// The longest first line that is read to recognize a record, in bytes. It contains the job and its plan.
const MAX_FIRST_LINE_BYTES: u64 = 16 << 20;

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
    /// The run's folder.
    pub folder: PathBuf,
    /// The run's id, which is the folder's name.
    pub run_id: String,
    journals: Mutex<JournalSet>,
    /// An unnamed file that takes up space until it is closed. The system closes it even if the run is killed.
    reserve: Mutex<Option<File>>,
    /// Held while the run lasts.
    pub(super) lock: RecordLock,
    /// Set until the run starts.
    unstarted: Mutex<Option<UnstartedRun>>,
    /// Seals the record.
    key: Option<RecordKey>,
    /// Flushes the files of many runs together.
    pub flush_queue: Option<FlushQueue>,
    /// The slot of a row of a map, which it gives up when it only waits for the disk.
    pub slot: Option<Arc<RunSlot>>,
    /// Faults to inject, for tests.
    pub faults: FaultInjection,
}

/// What to restore if a run ends before it starts.
#[derive(Debug)]
struct UnstartedRun {
    /// The link `latest` and its former target, if it existed.
    latest: Option<(PathBuf, Option<PathBuf>)>,
}

impl Recorder {
    /// Creates the folder of a run in its job's folder, which is below `out`, and lets `latest` there link to it. Both are
    /// canonical paths of folders that needn't exist. If `out` doesn't, it gets a `.gitignore` for everything. With a key, the
    /// record can be distinguished from one that was made elsewhere.
    ///
    /// # Errors
    /// If the folder can't be created.
    pub fn create(out: &Path, job_dir: &Path, run_id: &str, key: Option<RecordKey>) -> Result<Self, Error> {
        check_latest(job_dir)?;
        let opened = create_job_dir(out, job_dir)?;
        let folder = job_dir.join(run_id);
        mkdirat(opened.folder(), run_id, Mode::RWXU).map_err(|error| record_error(&folder)(error.into()))?;
        let lock = RecordLock::take(&folder)?;
        let reserve = reserve_disk_space(lock.root.folder());
        let mut recorder = Self::new(folder, run_id.to_owned(), lock, reserve, HashMap::new(), key);
        recorder.remove_if_unstarted();
        recorder.link_latest(job_dir)?;
        Ok(recorder)
    }

    /// Removes the record at the end if the run hasn't started by then.
    pub(super) fn remove_if_unstarted(&mut self) {
        *lock_mutex(&self.unstarted) = Some(UnstartedRun { latest: None });
    }

    /// Lets `latest` in a job's folder link to this record, until the record is removed because the run didn't start.
    pub(super) fn link_latest(&self, job_dir: &Path) -> Result<(), Error> {
        let link = job_dir.join(LATEST);
        let target = fs::read_link(&link).ok();
        if let Some(unstarted) = lock_mutex(&self.unstarted).as_mut() {
            unstarted.latest = Some((link.clone(), target));
        }
        replace_symlink(&link, Path::new(&self.run_id)).map_err(record_error(&link))
    }

    pub(super) fn new(
        folder: PathBuf,
        run_id: String,
        lock: RecordLock,
        reserve: Option<File>,
        journal_ends: HashMap<String, JournalEnd>,
        key: Option<RecordKey>,
    ) -> Self {
        Self {
            journals: Mutex::new(JournalSet::new(lock.root.at(&folder), key.clone(), journal_ends)),
            folder,
            run_id,
            reserve: Mutex::new(reserve),
            lock,
            unstarted: Mutex::default(),
            key,
            flush_queue: None,
            slot: None,
            faults: FaultInjection::default(),
        }
    }

    /// Records from now on when the run was last alive, until it is finished.
    pub fn keep_alive(&self, clock: fn() -> Timestamp) {
        // A run that is resumed in spite of lost lines isn't refused because of them again.
        for (agent, flushed) in self.lock.lease.flushed() {
            let lines = lock_mutex(&self.journals).lines(&agent);
            if lines < flushed {
                self.lock.lease.set_flushed(&agent, lines);
            }
        }
        self.lock.lease.start_clock(clock);
    }

    /// The run's folder, open.
    pub fn open_folder(&self) -> &OpenRoot {
        &self.lock.root
    }

    /// Whether a path leads to this record, perhaps through another mount: it has the same lease.
    pub fn is_at(&self, path: &Path) -> bool {
        self.lock.lease.is_in(path)
    }

    /// Duplicates the folder's lock for a process that is part of the run and may outlive this one.
    pub fn lock(&self) -> Option<OwnedFd> {
        self.lock.duplicate()
    }

    /// Distinguishes records of other runs that were made here from planted ones, and knows whether this process still owns its
    /// own; `None` without a key.
    pub fn origin_check(&self) -> Option<RecordVerifier> {
        let key = self.key.clone()?;
        let end_key = key.clone();
        let is_of_a_run = move |folder: &OwnedFd, path: &Path| is_sealed_for_path(path, folder, &key);
        let has_ended = move |_: &OwnedFd, path: &Path| {
            Record::open(path).and_then(|record| record.is_sealed_by(&end_key)).is_ok_and(|valid| valid == Some(true))
        };
        Some(RecordVerifier(Arc::new(is_of_a_run), Arc::new(self.lock.lease.ownership()), Arc::new(has_ended)))
    }

    /// Digests that identify the values of a run's secrets in its record, by name; none without a key.
    pub fn digests(&self, run_id: &str, secrets: &[(String, String)]) -> BTreeMap<String, String> {
        self.key.as_ref().map(|key| key.digest_secrets(run_id, secrets)).unwrap_or_default()
    }

    /// Appends an event to its agent's journal and returns the entry.
    ///
    /// # Errors
    /// If it couldn't be written completely. Half a line is cut off when the journal is read.
    pub fn append(&self, agent: &str, event: Event, at: Timestamp) -> io::Result<JournalEntry> {
        let mut journals = lock_mutex(&self.journals);
        // An open journal notices by itself if the folder was moved or replaced.
        if journals.is_open(agent) {
            self.lock.lease.check()?;
        } else {
            self.lock.check(&self.folder)?;
        }
        let entry = journals.append(agent, event, (at, self.lock.lease.suspended_ms()), &self.faults)?;
        if matches!(entry.event, Event::RunStarted(_)) {
            lock_mutex(&self.unstarted).take();
        }
        self.faults.event();
        Ok(entry)
    }

    /// Flushes an agent's events to the disk.
    ///
    /// # Errors
    /// If they may not be on the disk. Nothing can be appended then.
    pub async fn flush(&self, agent: &str) -> io::Result<()> {
        self.flush_with_journal(agent, self.take_unflushed(agent)).await
    }

    /// Flushes a request that contains an agent's journal.
    pub(super) async fn flush_with_journal(&self, agent: &str, request: FlushRequest) -> io::Result<()> {
        if request.is_empty() {
            return Ok(());
        }
        let lines = request.journal_lines;
        let flush = async {
            self.faults.operation()?;
            match &self.flush_queue {
                Some(queue) => queue.flush(request).await,
                None => request.flush(&mut HashSet::new()),
            }
        };
        flush.await.inspect_err(|_| lock_mutex(&self.journals).break_off(agent))?;
        lines.into_iter().for_each(|lines| self.lock.lease.set_flushed(agent, lines));
        Ok(())
    }

    /// Starts to flush a request that contains an agent's journal. The future waits for the end.
    pub(super) fn flush_in_background(
        self: &Arc<Self>,
        agent: &'static str,
        request: FlushRequest,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let recorder = Arc::clone(self);
        let started = recorder.faults.operation();
        let flushing = tokio::task::spawn_blocking(move || request.flush(&mut HashSet::new()));
        async move {
            let flushed = flushing.await.map_err(io::Error::other).flatten();
            started.and(flushed).inspect_err(|_| lock_mutex(&recorder.journals).break_off(agent))
        }
    }

    /// What must be flushed for an agent's events to be on the disk.
    pub(super) fn take_unflushed(&self, agent: &str) -> FlushRequest {
        lock_mutex(&self.journals).take_unflushed(agent)
    }

    /// Frees the space that was reserved for the end of the run.
    pub(super) fn release_disk_space(&self) {
        drop(lock_mutex(&self.reserve).take());
        remove_unused_files();
    }

    /// Leaves the space that was reserved to the next run of this process: to free it and reserve it again takes some disks
    /// milliseconds.
    pub(super) fn return_disk_space(&self) {
        lock_mutex(&UNUSED_RESERVES).extend(lock_mutex(&self.reserve).take());
    }

    /// Writes a file whose content is in the journal's first line, too. Half of it does no harm, so a new one needs no temporary
    /// file.
    pub(super) fn write_new(&self, name: &str, content: &[u8]) -> io::Result<ExistingFile> {
        self.lock.check(&self.folder)?;
        self.faults.operation()?;
        match create_file(self.open_folder(), name) {
            Ok(file) => {
                let mut file = &file;
                self.faults.write(|| file.write_all(&content[..content.len() / 2]))?;
                file.write_all(content).map(|()| ExistingFile::Missing)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.write(name, content),
            Err(error) => Err(error),
        }
    }

    /// Writes a file of the record so that it appears completely or not at all.
    ///
    /// # Errors
    /// If it couldn't be written.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<ExistingFile> {
        self.write_with(name, |out| out.write_all(content))
    }

    /// Writes a file of the record so that it appears completely or not at all.
    ///
    /// # Errors
    /// If it couldn't be written.
    pub fn write_with(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<ExistingFile> {
        match self.write_temporary(name, write)? {
            (_, ExistingFile::Identical) => Ok(ExistingFile::Identical),
            (file, existing) => self.persist(file, name).map(|()| existing),
        }
    }

    /// Writes a file that hasn't got its name yet, and compares it with what has.
    pub(super) fn write_temporary(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<(NewFile, ExistingFile)> {
        self.lock.check(&self.folder)?;
        self.faults.operation()?;
        let path = Path::new(name);
        let folder = self.open_folder().create_dir(path.parent().unwrap_or(Path::new("")), 0o700)?;
        let file = temporary_in(folder.as_fd())?;
        let mut out = io::BufWriter::with_capacity(64 * 1024, file.file());
        write(&mut out)?;
        out.flush()?;
        drop(out);
        let existing = compare_files(self.open_folder(), path, file.file());
        Ok((file, existing))
    }

    /// Gives a temporary file its name.
    pub(super) fn persist(&self, file: NewFile, name: &str) -> io::Result<()> {
        self.lock.lease.check()?;
        self.faults.operation()?;
        file.persist(Path::new(name).file_name().ok_or(io::ErrorKind::InvalidInput)?).map(drop)
    }
}

impl Drop for Recorder {
    /// Removes the record of a run that never began; otherwise an empty record would be the newest one.
    fn drop(&mut self) {
        let Some(UnstartedRun { latest }) = lock_mutex(&self.unstarted).take() else { return };
        if self.lock.check(&self.folder).is_err() {
            return;
        }
        if let Some((latest, target)) = latest
            && fs::read_link(&latest).is_ok_and(|found| found == Path::new(&self.run_id))
        {
            let _ = match target {
                Some(target) => replace_symlink(&latest, &target),
                None => point_latest_to(latest.parent().unwrap_or(&latest), None),
            };
        }
        // Closed first: on a network file system, an open file keeps its folder from being removed.
        lock_mutex(&self.reserve).take();
        self.lock.lease.release();
        let above = self.folder.parent().map(OpenRoot::open_canonical);
        if let Some(Ok(above)) = above {
            let _ = above.remove_tree(&self.folder);
        }
    }
}

/// An error of a path in the folder of records.
pub(super) fn record_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Record { path, source }
}

/// Checks that `latest` in a job's folder is a link or doesn't exist.
///
/// # Errors
/// A rename would silently replace a file, and would fail for a folder after the run has been created.
pub(super) fn check_latest(job_dir: &Path) -> Result<(), Error> {
    let latest = job_dir.join(LATEST);
    if fs::symlink_metadata(&latest).is_ok_and(|found| !found.is_symlink()) {
        let why = "it must be a link to the newest run, and something else is there";
        return Err(record_error(&latest)(io::Error::new(io::ErrorKind::AlreadyExists, why)));
    }
    Ok(())
}

/// Creates a folder for records below `out`, or opens it. The parts of both paths that exist are canonical: a link that has
/// come since is an error. If `out` doesn't exist yet, it gets a `.gitignore` for everything.
///
/// # Errors
/// If a folder or the file can't be created.
pub fn create_job_dir(out: &Path, job_dir: &Path) -> Result<OpenRoot, Error> {
    let is_new = !out.exists();
    if is_new && out.is_symlink() {
        return Err(record_error(out)(io::Error::new(io::ErrorKind::AlreadyExists, "it is a dangling link")));
    }
    let existing = job_dir.ancestors().find(|folder| folder.exists()).unwrap_or(job_dir);
    let created = OpenRoot::open_canonical(existing).and_then(|root| {
        let folder = root.create_dir(job_dir, 0o700)?;
        Ok((OpenRoot::of(folder, job_dir), root))
    });
    let (created, existing) = created.map_err(|error| {
        let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let link = || io::Error::new(io::ErrorKind::AlreadyExists, "a symbolic link is in the way");
        record_error(job_dir)(if is_link { link() } else { error })
    })?;
    let ignore_file = out.join(".gitignore");
    if !is_new && (out.file_name() != Some(RUNS.as_ref()) || ignore_file.exists()) {
        return Ok(created);
    }
    let above = if is_new { Ok(existing) } else { OpenRoot::open_canonical(out) };
    match above.and_then(|above| {
        above.create_file(&ignore_file, b"*\n", 0o666).inspect_err(|error| {
            if error.kind() != io::ErrorKind::AlreadyExists {
                // An empty file would ignore nothing and stay.
                let _ = above.remove_file(&ignore_file);
                let _ = above.remove_dir(job_dir);
                let _ = above.remove_dir(out);
            }
        })
    }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(record_error(&ignore_file)(error)),
        _ => Ok(created),
    }
}

/// Locks the folder of a run that isn't running, and removes what a killed process has left there.
pub(super) fn take(folder: &Path) -> Result<(PathBuf, RecordLock), Error> {
    let folder = folder.canonicalize().map_err(|source| Error::Record { path: folder.to_owned(), source })?;
    let lock = RecordLock::take(&folder)?;
    remove_temporary_files(&lock.root);
    Ok((folder, lock))
}

/// The space that runs of this process had reserved and didn't need: no more than have run at the same time.
static UNUSED_RESERVES: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Frees the disk space and removes the files that runs of this process have left to the next ones.
pub fn remove_unused_files() {
    lock_mutex(&UNUSED_RESERVES).clear();
    remove_unused_leases();
}

/// Reserves space on the disk of a folder, if the file system supports it.
pub(super) fn reserve_disk_space(folder: BorrowedFd<'_>) -> Option<File> {
    take_reserve(&UNUSED_RESERVES, folder)
}

/// Takes an unused reserve on the disk of a folder, or makes one.
fn take_reserve(unused: &Mutex<Vec<File>>, folder: BorrowedFd<'_>) -> Option<File> {
    let device = |file: BorrowedFd<'_>| fstat(file).ok().map(|found| found.st_dev);
    let found = lock_mutex(unused).pop();
    if let Some(found) = found.filter(|file| device(file.as_fd()) == device(folder)) {
        return Some(found);
    }
    // A network file system gives an open file without a name another name, and has a disk that isn't this machine's.
    if !open_beneath::is_local_filesystem(folder) {
        return None;
    }
    let file = temporary_in(folder).ok()?.into_unnamed().ok()?;
    fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).ok()?;
    Some(file)
}

/// Whether the parent's journal in a folder begins with a line that was sealed with the key, for a record at this path. In a
/// copy of another record, the line has another path.
fn is_sealed_for_path(path: &Path, folder: &OwnedFd, key: &RecordKey) -> bool {
    let Ok(Some(file)) = open_beneath::open_regular_file(folder.as_fd(), journal_file(PARENT).as_ref()) else {
        return false;
    };
    let mut entries = JournalReader::new(BufReader::new(file.take(MAX_FIRST_LINE_BYTES)));
    let Some(Ok(entry)) = entries.next() else { return false };
    let Event::RunStarted(started) = entry.event else { return false };
    let made_at = canonical_as_far_as_possible(Path::new(&started.folder));
    entries.is_sealed_by(key) && (made_at == path || is_previous_attempt(&made_at, path))
}

/// Lets `latest` in a job's folder link to a record, or removes it.
///
/// # Errors
/// If the link can't be changed.
pub fn point_latest_to(job_dir: &Path, run: Option<&str>) -> io::Result<()> {
    match run {
        Some(run) => replace_symlink(&job_dir.join(LATEST), Path::new(run)),
        None => OpenRoot::open(job_dir)?.remove_file(LATEST.as_ref()),
    }
}

/// Creates a link, or changes its target.
fn replace_symlink(link: &Path, target: &Path) -> io::Result<()> {
    let folder = OpenRoot::open(link.parent().unwrap_or(Path::new(".")))?;
    let folder = folder.folder();
    // It has the name of the run that makes it, so that others recognize it.
    let mut new_link = std::ffi::OsString::from(".latest-");
    new_link.push(target.file_name().unwrap_or_default());
    symlinkat(target, folder, &new_link)?;
    renameat(folder, &new_link, folder, link.file_name().unwrap_or_default()).map_err(|error| {
        let _ = unlinkat(folder, &new_link, AtFlags::empty());
        error.into()
    })
}

pub(super) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

/// Compares what is at a path with the new file that will replace it.
fn compare_files(record: &OpenRoot, path: &Path, mut new: &File) -> ExistingFile {
    if record.stat(path).is_err() {
        return ExistingFile::Missing;
    }
    let mut is_same = || {
        let mut old = record.open_file(path)?;
        if old.metadata()?.len() != new.metadata()?.len() {
            return Ok(false);
        }
        let (mut old_content, mut new_content) = (Vec::new(), Vec::new());
        old.read_to_end(&mut old_content)?;
        new.rewind()?;
        new.read_to_end(&mut new_content)?;
        Ok::<bool, io::Error>(old_content == new_content)
    };
    if is_same().unwrap_or(false) { ExistingFile::Identical } else { ExistingFile::Different }
}

/// Allocates the id of a new run in its job's folder. Ids sort by time and are easy to type: the time in UTC and six random
/// digits of base 32.
pub fn new_run_id(job_dir: &Path, now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    loop {
        // Every RandomState has new keys, so an empty hash is a random number.
        let mut random = RandomState::new().build_hasher().finish();
        let mut id = format!("{}-", now.strftime("%Y%m%d-%H%M%S"));
        for _ in 0..6 {
            id.push(char::from(DIGITS[(random % 32) as usize]));
            random /= 32;
        }
        if fs::symlink_metadata(job_dir.join(&id)).is_err() {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{OpenedRecord, RecordOpenOptions};

    #[test]
    fn nothing_is_written_behind_a_link_that_came_after_the_paths_were_resolved() {
        for swapped in ["runs", "runs/job", "runs/job/map"] {
            let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let root = folder.path().canonicalize().unwrap();
            let (out, job_dir) = (root.join("runs"), root.join("runs/job"));
            fs::create_dir_all(job_dir.join("map/rows")).unwrap();
            let in_place = fs::rename(root.join(swapped), root.join("moved"));
            in_place.and_then(|()| std::os::unix::fs::symlink(outside.path(), root.join(swapped))).unwrap();
            let keyed = |folder: &Path| {
                let path = RecordOpenOptions {
                    out: &out,
                    folder,
                    links_latest: false,
                    raises_a_limit: false,
                    set_aside: None,
                    key: None,
                    write_reports: |_, _, _| Ok(Vec::new()),
                };
                OpenedRecord::open(&path).map(drop)
            };
            if swapped != "runs/job/map" {
                assert!(Recorder::create(&out, &job_dir, "run", None).is_err(), "{swapped}");
                assert!(keyed(&job_dir.join("key")).is_err(), "{swapped}");
            }
            assert!(keyed(&job_dir.join("map/rows/row")).is_err(), "{swapped}");
            assert!(RecordLock::take(&job_dir.join("map")).is_err(), "{swapped}");
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{swapped}");
        }
    }

    #[test]
    fn the_reserve_takes_space_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        use std::os::unix::fs::MetadataExt;

        let opened = File::open(folder.path()).unwrap();
        let reserve = reserve_disk_space(opened.as_fd());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // The file system of the temporary folder may not support it.
        if let Some(file) = reserve {
            let taken = file.metadata().unwrap();
            assert!(taken.blocks() * 512 >= RESERVE_BYTES && taken.nlink() == 0, "{taken:?}");
            // The next run uses it.
            let unused = Mutex::new(vec![file]);
            assert_eq!(take_reserve(&unused, opened.as_fd()).unwrap().metadata().unwrap().ino(), taken.ino());
            assert!(lock_mutex(&unused).is_empty() && take_reserve(&unused, opened.as_fd()).is_some());
        }
    }
}
