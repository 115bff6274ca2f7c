//! The lease of a record: which process owns it while its run lasts, and when that process last showed that it is alive.
//!
//! The folder's lock decides between processes of one machine that have opened the record on the same local file system. On
//! all others, locks may not reach each other: those of two machines, and of two mounts of one folder in one machine. So the
//! owner also keeps a file `lease` and counts in it once a second. A process whose lock says nothing about the owner, and that
//! sees the count stand still for [`OBSERVATION`], takes the lease over. No two clocks are compared: each side measures
//! durations only.
//!
//! Only one process can take over from an owner: the one that creates the file `lease.ID`, with the owner's id. Then it reads
//! the count again, and renames its file to `lease`. If it is killed before that, another process takes over from it. An owner
//! that was suspended counts, and then looks for both files, before it writes to the record again. So at least one of the two
//! notices the other.
//!
//! The file also says how many lines of each journal are on the disk. It isn't flushed for that, so a crash of the machine may
//! leave lower numbers, but no higher ones: a journal that has fewer lines has lost some.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, RenameFlags, flock, fstat, renameat, renameat_with};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::files::{create_shared_file, open_file_in, open_for_update, retry_stale};
use super::heartbeat::{BEAT, Heartbeat, MISSED_BEATS};
use crate::error::{Error, TakenOver};
use crate::running_clock::Suspensions;
use crate::sync::IgnorePoison;
use crate::workspace::open_beneath::is_local_filesystem;
use crate::workspace::open_root::OpenRoot;

/// The file, which exists while a run lasts and after it was killed.
pub(super) const LEASE_FILE: &str = "lease";
/// How long the count must stand still until another machine takes the lease over.
const OBSERVATION: Duration = BEAT.saturating_mul(MISSED_BEATS);
/// How often the count is read meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many other processes may take or release the lease while this one tries to.
const MAX_ATTEMPTS: usize = 10;
/// The id of the owner of a file that can't be read.
const UNKNOWN: &str = "unknown";
/// The greatest size of the file in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// The most journals of which the file has the number of lines.
const MAX_JOURNALS: usize = 500;

/// How many lines of a journal are on the disk, by agent.
pub(super) type FlushedLines = Vec<(String, u64)>;

/// The owner of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    /// A random number, different for every lease.
    id: String,
    /// The name of the machine.
    host: String,
    /// Identifies the machine since it was started.
    boot: String,
    pid: u32,
    /// The device of the record, if it is on a local file system and the owner holds its lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<u64>,
}

/// What a lease's file holds: the owner, on a line of fixed length the count and the time, and a line for each journal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeaseState {
    /// The whole content. It changes whenever the owner counts.
    text: Vec<u8>,
    /// `None` if the file is damaged, perhaps by a crash of the machine, or not written completely.
    owner: Option<Owner>,
    at: Option<Timestamp>,
    flushed: FlushedLines,
}

impl LeaseState {
    /// The name of the file of the one process that may take over from the owner.
    fn successor(&self) -> String {
        successor(self.owner.as_ref().map_or(UNKNOWN, |owner| &owner.id))
    }

    fn is_of(&self, owner: &Owner) -> bool {
        self.owner.as_ref() == Some(owner)
    }

    /// Whether the owner is known to be dead if this process, which would be the next owner, holds the record's lock.
    fn is_dead_for(&self, next: &Owner) -> bool {
        // A damaged file is from a crash of this machine.
        self.owner.as_ref().map_or(next.device.is_some(), |owner| next.is_excluded_by_lock(owner))
    }
}

/// The lease of a record, held until it is released or dropped.
#[derive(Debug)]
pub(super) struct Lease {
    record: PathBuf,
    owner: Owner,
    counter: Arc<Counter>,
    /// The lease's own thread, if it has one.
    heartbeat: Option<Heartbeat>,
    /// Whether an earlier owner was killed. Then a run that doesn't start leaves the file, with the time of that owner.
    had_owner: bool,
    is_released: AtomicBool,
}

/// A lease that was looked at and not taken.
#[derive(Debug, Clone)]
pub struct ObservedLease {
    record: PathBuf,
    state: LeaseState,
}

impl ObservedLease {
    /// The lease of a record; `None` if it has none.
    pub(super) fn of(record: &Path) -> Option<Self> {
        let record = record.canonicalize().ok()?;
        let state = read(&record).filter(|state| state.owner.is_some())?;
        Some(Self { record, state })
    }

    /// Whether the lock of the record says whether its owner is alive: it is or was a process of this machine, since the machine
    /// was started, and the lock reached it.
    pub(super) fn is_local(&self) -> bool {
        self.state.is_dead_for(&Owner::of(&self.record, simulated_boot_id().is_none()))
    }

    /// When the owner was last alive, if its run had started.
    pub fn last_alive(&self) -> Option<Timestamp> {
        self.state.at
    }

    /// Whether the owner has counted since the lease was looked at, or another process has taken it. Then the run continues.
    pub fn has_changed(&self) -> bool {
        read(&self.record).is_none_or(|now| now != self.state)
    }

    /// How long an owner that no lock tells of must not count until it is known to be dead.
    pub fn observation() -> Duration {
        observation()
    }
}

/// Counts in the file.
#[derive(Debug)]
struct Counter {
    /// `None` after the lease was released.
    file: Mutex<Option<File>>,
    /// Whether the file system isn't one of this machine's: others may see what is written only after it is flushed.
    is_remote: bool,
    /// Whether another process was seen to have the lease.
    is_lost: AtomicBool,
    /// Where the second line begins.
    offset: u64,
    count: AtomicU64,
    /// When it last counted in time, or had checked whose lease it is, in milliseconds of the boot clock.
    last_ms: AtomicU64,
    /// The time at which the last owner was seen, which stays in the file until the run starts.
    last_seen: Option<Timestamp>,
    /// What the file has after the second line.
    flushed: Mutex<FlushedLines>,
    /// Set when the run starts.
    clock: OnceLock<fn() -> Timestamp>,
    /// For how long this process couldn't run since it has the lease.
    suspensions: Suspensions,
    /// The same in milliseconds, as the last event has it.
    recorded_suspensions: AtomicU64,
}

impl Counter {
    /// Counts in the file.
    fn write(&self) -> io::Result<()> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // Without the time in which it couldn't run since the last event.
        let not_running = self.suspensions.total_ms().saturating_sub(self.recorded_suspensions.load(Ordering::Relaxed));
        let alive_until = |clock: &fn() -> Timestamp| {
            let now = clock();
            now.checked_sub(Duration::from_millis(not_running)).unwrap_or(now)
        };
        let at = self.clock.get().map(alive_until).or(self.last_seen);
        let file = self.lock_file();
        let Some(file) = &*file else { return Ok(()) };
        // In place and always of the same length, so nothing can be left over.
        file.write_all_at(count_line(count, at).as_bytes(), self.offset)?;
        if self.is_remote {
            file.sync_data()?;
        }
        Ok(())
    }

    /// Writes how many lines of an agent's journal are on the disk. If that fails, the file has a lower number.
    fn write_flushed(&self, agent: &str, lines: u64) {
        let mut flushed = self.flushed.lock().ignore_poison();
        let found = flushed.iter().position(|(known, _)| known == agent);
        if found.is_none() && flushed.len() >= MAX_JOURNALS {
            return;
        }
        let at = found.unwrap_or(flushed.len());
        let before: usize = flushed[..at].iter().map(|(agent, lines)| flushed_line(agent, *lines).len()).sum();
        let offset = self.offset + (count_line(0, None).len() + before) as u64;
        let file = self.lock_file();
        let line = flushed_line(agent, lines);
        if file.as_ref().is_none_or(|file| file.write_all_at(line.as_bytes(), offset).is_err()) {
            return;
        }
        match flushed.get_mut(at) {
            Some(known) => known.1 = lines,
            None => flushed.push((agent.to_owned(), lines)),
        }
    }

    fn lock_file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().ignore_poison()
    }

    /// Counts in time. An owner that is late stays late until it has checked whose lease it is: this thread may be the first to
    /// run after a suspension.
    fn count(&self) -> io::Result<()> {
        // Before it writes: it may be suspended meanwhile.
        let now = boot_ms();
        self.write()?;
        if !self.is_late(now) {
            self.last_ms.fetch_max(now, Ordering::Relaxed);
        }
        Ok(())
    }

    fn is_late(&self, now: u64) -> bool {
        u128::from(now.saturating_sub(self.last_ms.load(Ordering::Relaxed))) >= late().as_millis()
    }
}

/// Counts in a file once a second, and looks whose lease it is.
fn count_on_own_thread(counter: &Arc<Counter>, file: LeaseFile) -> Option<Heartbeat> {
    let counter = Arc::clone(counter);
    let beat = move || {
        // A failure shows when the owner is late.
        let _ = counter.count();
        if file.is_lost() {
            counter.is_lost.store(true, Ordering::Relaxed);
        }
    };
    Heartbeat::start(LEASE_FILE, BEAT, beat).ok()
}

/// The counters of this process on file systems of this machine. One thread counts in all of them: a map has hundreds.
static LOCAL_COUNTERS: LocalCounters = LocalCounters(Mutex::new((Vec::new(), None)));

/// Counters, and the thread once there has been one.
struct LocalCounters(Mutex<(Vec<Weak<Counter>>, Option<Heartbeat>)>);

impl LocalCounters {
    fn add(&'static self, counter: &Arc<Counter>) {
        let mut state = self.0.lock().ignore_poison();
        state.0.push(Arc::downgrade(counter));
        if state.1.is_none() {
            state.1 = Heartbeat::start(LEASE_FILE, BEAT, || self.count_all()).ok();
        }
    }

    fn count_all(&self) {
        let mut state = self.0.lock().ignore_poison();
        state.0.retain(|counter| counter.strong_count() > 0);
        let counters: Vec<_> = state.0.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        // A failure shows when the owner is late.
        counters.iter().for_each(|counter| drop(counter.count()));
    }
}

impl Lease {
    /// Takes the lease of a record. This may take [`OBSERVATION`] if the record's lock, which this process may hold, doesn't tell
    /// whether an earlier owner is alive.
    ///
    /// # Errors
    /// If another process has it ([`Error::InUse`]), or the file can't be written.
    pub(super) fn take(record: &Path, is_locked: bool) -> Result<Self, Error> {
        let failed = |source| Error::Record { path: record.join(LEASE_FILE), source };
        let owner = Owner::of(record, is_locked);
        for _ in 0..MAX_ATTEMPTS {
            if let Some(file) = create(record, &owner).map_err(failed)? {
                return Ok(Self::start(record, owner, file, (None, FlushedLines::new()), false));
            }
            let Some(found) = read(record) else {
                // It was released meanwhile. Some systems notice that only after a while.
                std::thread::sleep(POLL_INTERVAL);
                continue;
            };
            match take_over(record, &found, &owner).map_err(failed)? {
                TakeOver::Taken(file, last) => {
                    remove_successors(record, &owner);
                    return Ok(Self::start(record, owner, file, last, true));
                }
                TakeOver::InUse => break,
                TakeOver::Released => {}
            }
        }
        Err(Error::InUse { path: record.to_owned() })
    }

    /// Removes the lease that a killed process has left in a locked record whose run is final, unless another machine
    /// may have written it.
    pub(super) fn remove_left(record: &OpenRoot) {
        let is_of_this_machine = |state: &LeaseState| state.owner.as_ref().is_none_or(|owner| owner.device.is_some());
        if is_local_filesystem(record.folder()) && read(record.path()).as_ref().is_some_and(is_of_this_machine) {
            let _ = record.remove_file(LEASE_FILE.as_ref());
            remove_successors(record.path(), &Owner::of(record.path(), true));
        }
    }

    fn start(
        record: &Path,
        owner: Owner,
        file: File,
        (last_seen, flushed): (Option<Timestamp>, FlushedLines),
        had_owner: bool,
    ) -> Self {
        let offset = owner.line().len() as u64;
        let is_remote = !is_local_filesystem(file.as_fd());
        let counter = Arc::new(Counter {
            file: Mutex::new(Some(file)),
            is_remote,
            is_lost: AtomicBool::new(false),
            offset,
            count: AtomicU64::new(0),
            last_ms: AtomicU64::new(boot_ms()),
            last_seen,
            flushed: Mutex::new(flushed),
            clock: OnceLock::new(),
            suspensions: Suspensions::since_now(),
            recorded_suspensions: AtomicU64::new(0),
        });
        let heartbeat = if is_remote {
            // Every write waits for the other machine, so leases don't wait for each other.
            count_on_own_thread(&counter, LeaseFile { record: record.to_owned(), owner: owner.clone() })
        } else {
            LOCAL_COUNTERS.add(&counter);
            None
        };
        Self { record: record.to_owned(), owner, counter, heartbeat, had_owner, is_released: AtomicBool::new(false) }
    }

    /// From now on, the file has the time of the clock: the run has started.
    pub(super) fn start_clock(&self, clock: fn() -> Timestamp) {
        let _ = self.counter.clock.set(clock);
        let _ = self.counter.count();
    }

    /// For how long this process couldn't run since it has the lease, for an event that is recorded now.
    pub(super) fn suspended_ms(&self) -> u64 {
        let total = self.counter.suspensions.total_ms();
        self.counter.recorded_suspensions.store(total, Ordering::Relaxed);
        total
    }

    /// Keeps how many lines of an agent's journal are on the disk.
    pub(super) fn set_flushed(&self, agent: &str, lines: u64) {
        self.counter.write_flushed(agent, lines);
    }

    /// How many lines of each journal were on the disk, if known.
    pub(super) fn flushed(&self) -> FlushedLines {
        self.counter.flushed.lock().ignore_poison().clone()
    }

    /// The time at which the last owner was seen, if it was killed.
    pub(super) fn last_seen(&self) -> Option<Timestamp> {
        self.counter.last_seen
    }

    /// Checks that the lease is still this process's own, if it hasn't counted for some time: it may have been suspended.
    ///
    /// # Errors
    /// If it isn't, or if the file can't be written.
    pub(super) fn check(&self) -> io::Result<()> {
        let now = boot_ms();
        if self.is_released.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.counter.is_lost.load(Ordering::Relaxed) {
            return Err(io::Error::other(TakenOver));
        }
        if !self.counter.is_late(now) {
            return Ok(());
        }
        let written = self.counter.write();
        // A file that was replaced can't be written any more.
        let file = self.file();
        if !file.is_own() || file.has_successor() {
            return Err(io::Error::other(TakenOver));
        }
        written?;
        self.counter.last_ms.fetch_max(now, Ordering::Relaxed);
        Ok(())
    }

    /// Tells whether this process still owns the lease. One that was suspended may not.
    pub(super) fn ownership(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let (file, counter) = (self.file(), Arc::clone(&self.counter));
        move || {
            let is_lost = counter.is_lost.load(Ordering::Relaxed);
            !is_lost && (!counter.is_late(boot_ms()) || file.is_own() && !file.has_successor())
        }
    }

    /// The record was moved, and the file with it.
    pub(super) fn follow(&mut self, record: &Path) {
        record.clone_into(&mut self.record);
    }

    /// Removes the file, because the run has ended.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
        // Closed first: a network file system keeps an open file under another name.
        drop(self.counter.lock_file().take());
        self.file().remove();
    }

    /// Whether it is the lease of the record at this path, too.
    pub(super) fn is_in(&self, record: &Path) -> bool {
        record.canonicalize().is_ok_and(|record| LeaseFile { record, owner: self.owner.clone() }.is_own())
    }

    /// Whether this is the name of a file of this lease.
    pub(super) fn is_file(&self, name: &str) -> bool {
        name == LEASE_FILE || name == successor(&self.owner.id)
    }

    /// Leaves the file to the next run of this process, because this run is final: to remove a file and create
    /// another one takes some disks milliseconds. Where other machines may see the file, it is removed.
    pub(super) fn leave_to_next_run(&self) {
        if self.counter.is_remote {
            return self.release();
        }
        self.is_released.store(true, Ordering::Relaxed);
        unused_leases().push_back(self.file());
    }

    fn file(&self) -> LeaseFile {
        LeaseFile { record: self.record.clone(), owner: self.owner.clone() }
    }
}

/// The files of leases that runs of this process have left to the next ones: no more than have run at the same time.
static UNUSED_LEASES: Mutex<VecDeque<LeaseFile>> = Mutex::new(VecDeque::new());

fn unused_leases() -> MutexGuard<'static, VecDeque<LeaseFile>> {
    UNUSED_LEASES.lock().ignore_poison()
}

/// Removes the files that runs of this process have left to the next ones.
pub(super) fn remove_unused_leases() {
    let unused = std::mem::take(&mut *unused_leases());
    unused.iter().for_each(LeaseFile::remove);
}

/// The file of a lease, in the record of the run that had it.
#[derive(Debug)]
struct LeaseFile {
    record: PathBuf,
    owner: Owner,
}

impl LeaseFile {
    fn is_own(&self) -> bool {
        read(&self.record).is_some_and(|found| found.is_of(&self.owner))
    }

    /// Whether another process is taking the lease over.
    fn has_successor(&self) -> bool {
        open(&self.record).is_ok_and(|record| record.stat(successor(&self.owner.id).as_ref()).is_ok())
    }

    /// Whether another process certainly has the lease, or it was removed.
    fn is_lost(&self) -> bool {
        match open_and_read(&self.record, LEASE_FILE) {
            Ok(found) => found.owner.is_some() && !found.is_of(&self.owner),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    fn remove(&self) {
        if self.is_own() {
            let _ = remove_file(&self.record, LEASE_FILE);
        }
    }

    /// Moves the file to another record of this process, and makes it the lease of a new owner. `None` if that isn't possible;
    /// then the file may still be where it was.
    fn move_to(&self, record: &Path, owner: &Owner) -> Option<File> {
        // No other process takes the lease over meanwhile.
        let (old, new) = (open(&self.record).ok()?, open(record).ok()?);
        flock(old.folder(), FlockOperation::NonBlockingLockExclusive).ok()?;
        let text = owner.line() + &count_line(0, None);
        // Opened first: a command could put a link in its place.
        let file = open_for_update(old.folder(), LEASE_FILE).ok();
        let rename =
            || renameat_with(old.folder(), LEASE_FILE, new.folder(), LEASE_FILE, RenameFlags::NOREPLACE).is_ok();
        let Some(file) = file.filter(|_| self.is_own() && rename()) else {
            self.remove();
            return None;
        };
        // The numbers of lines are those of the other record.
        let written = file.write_all_at(text.as_bytes(), 0).and_then(|()| file.set_len(text.len() as u64));
        // Nobody else has the new record's lock.
        written.inspect_err(|_| drop(new.remove_file(LEASE_FILE.as_ref()))).ok().map(|()| file)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.heartbeat.take());
        let has_started = self.counter.clock.get().is_some();
        if !has_started && !self.had_owner && !self.is_released.load(Ordering::Relaxed) {
            self.release();
        }
    }
}

impl Owner {
    /// This process as the owner of a record, whose lock it may hold.
    fn of(record: &Path, is_locked: bool) -> Self {
        let folder = open(record).ok().filter(|folder| is_locked && is_local_filesystem(folder.folder()));
        // The type differs between systems.
        #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
        let device = folder.and_then(|folder| fstat(folder.folder()).ok()).map(|found| found.st_dev as u64);
        Self { device, ..Self::this_process() }
    }

    /// Whether another owner would hold the record's lock if it were alive, and not this process.
    fn is_excluded_by_lock(&self, other: &Self) -> bool {
        self.device.is_some() && (&self.device, &self.boot) == (&other.device, &other.boot)
    }

    fn this_process() -> Self {
        static BOOT: LazyLock<String> = LazyLock::new(|| boot_id().trim().to_owned());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // Elsewhere than on Linux and macOS, a restart of the machine isn't noticed.
        let boot = simulated_boot_id().unwrap_or_else(|| BOOT.clone());
        let boot = if boot.is_empty() { host.clone() } else { boot };
        Self { id: random_id(), host: host.chars().take(100).collect(), boot, pid: std::process::id(), device: None }
    }

    fn line(&self) -> String {
        // Plain strings and a number can be written as JSON.
        format!("{}\n", serde_json::to_string(self).unwrap_or_default())
    }
}

/// Lets tests of debug builds act as another machine, whose locks don't arrive here.
pub(super) fn simulated_boot_id() -> Option<String> {
    #[allow(clippy::disallowed_methods)]
    let boot = if cfg!(debug_assertions) { std::env::var("LEGWORK_BOOT_ID").ok() } else { None };
    boot
}

/// If the owner hasn't counted for this long, it checks whether the lease is still its own before it continues.
fn late() -> Duration {
    observation() * 2 / 5
}

/// How long the count must stand still. Tests of debug builds can make it shorter.
fn observation() -> Duration {
    #[allow(clippy::disallowed_methods)]
    let shorter = if cfg!(debug_assertions) { std::env::var("LEGWORK_LEASE_OBSERVATION_MS").ok() } else { None };
    shorter.and_then(|ms| ms.parse().ok()).map_or(OBSERVATION, Duration::from_millis)
}

fn random_id() -> String {
    use std::hash::{BuildHasher, Hasher};
    // Every RandomState has new keys, so an empty hash is a random number.
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn count_line(count: u64, at: Option<Timestamp>) -> String {
    let at = at.map_or_else(|| "-".repeat(30), |at| format!("{at:.9}"));
    format!("{count:020} {at:30}\n")
}

fn flushed_line(agent: &str, lines: u64) -> String {
    format!("{agent} {lines:020}\n")
}

/// Creates the file of an owner that follows no other one; `None` if there is one already.
fn create(record: &Path, owner: &Owner) -> io::Result<Option<File>> {
    // The oldest one: the run that left the newest one may hold its record's lock for another moment.
    let unused = owner.device.and_then(|_| unused_leases().pop_front());
    if let Some(unused) = unused {
        if let Some(file) = unused.move_to(record, owner) {
            return Ok(Some(file));
        }
        // Who reads the record locks it for a moment, too.
        if unused.is_own() {
            unused_leases().push_back(unused);
        }
    }
    create_named(record, LEASE_FILE, owner, None, &[])
}

fn create_named(
    record: &Path,
    name: &str,
    owner: &Owner,
    last_seen: Option<Timestamp>,
    flushed: &[(String, u64)],
) -> io::Result<Option<File>> {
    let mut text = owner.line() + &count_line(0, last_seen);
    text.extend(flushed.iter().map(|(agent, lines)| flushed_line(agent, *lines)));
    // On a local file system, the lock decides after a crash of the machine.
    let folder = open(record)?;
    if !create_shared_file(folder.folder(), name, text.as_bytes(), owner.device.is_none())? {
        return Ok(None);
    }
    let opened = open_for_update(folder.folder(), name);
    // Elsewhere, another process may have removed or replaced it.
    let is_own = owner.device.is_some() || read_file(record, name).is_some_and(|found| found.is_of(owner));
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened?).filter(|_| is_own)),
    }
}

/// Opens a record by its canonical path. Nothing is written or removed through a link that has come since.
fn open(record: &Path) -> io::Result<OpenRoot> {
    OpenRoot::open_canonical(record)
}

fn remove_file(record: &Path, name: &str) -> io::Result<()> {
    open(record)?.remove_file(name.as_ref())
}

fn open_and_read(record: &Path, name: &str) -> io::Result<LeaseState> {
    retry_stale(|| read_state(open_file_in(open(record)?.folder(), name, MAX_BYTES)?))
}

/// Reads a lease; `None` if there is none.
fn read(record: &Path) -> Option<LeaseState> {
    read_file(record, LEASE_FILE)
}

fn read_file(record: &Path, name: &str) -> Option<LeaseState> {
    match open_and_read(record, name) {
        Ok(state) => Some(state),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // No legwork writes such a file.
        Err(_) => Some(LeaseState { text: Vec::new(), owner: None, at: None, flushed: FlushedLines::new() }),
    }
}

fn read_state(mut file: File) -> io::Result<LeaseState> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let parse = || -> Option<(Owner, Option<Timestamp>, FlushedLines)> {
        let mut lines =
            std::str::from_utf8(&text).ok()?.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let owner: Owner = serde_json::from_str(lines.next()?).ok()?;
        let (count, at) = lines.next()?.trim_end().split_once(' ')?;
        // It becomes part of a name.
        let is_id = owner.id.len() == 32 && owner.id.bytes().all(|digit| digit.is_ascii_hexdigit());
        count.parse::<u64>().ok().filter(|_| is_id)?;
        let flushed = lines.filter_map(|line| {
            let (agent, lines) = line.split_once(' ')?;
            Some((agent.to_owned(), lines.parse().ok()?))
        });
        Some((owner, at.trim().parse().ok(), flushed.collect()))
    };
    let (owner, at, flushed) =
        parse().map_or((None, None, FlushedLines::new()), |(owner, at, flushed)| (Some(owner), at, flushed));
    Ok(LeaseState { text, owner, at, flushed })
}

/// What has become of an attempt to take a lease over.
enum TakeOver {
    /// This process has it. The last owner was seen at this time, and these lines were on the disk.
    Taken(File, (Option<Timestamp>, FlushedLines)),
    /// Another process has it, or takes it over just now.
    InUse,
    /// It was released meanwhile.
    Released,
}

/// Takes over the lease of an owner that is dead.
fn take_over(record: &Path, found: &LeaseState, next: &Owner) -> io::Result<TakeOver> {
    let (mut name, mut last) = (LEASE_FILE.to_owned(), found.clone());
    // Others may have been killed while they took over from each other.
    for _ in 0..MAX_ATTEMPTS {
        if !last.is_dead_for(next) && !stands_still(record, &name, &last) {
            let is_gone = read_file(record, &name).is_none();
            return Ok(if is_gone { TakeOver::Released } else { TakeOver::InUse });
        }
        let successor = last.successor();
        if let Some(state) = read_file(record, &successor) {
            (name, last) = (successor, state);
            continue;
        }
        let begun = boot_ms();
        let Some(file) = create_named(record, &successor, next, last.at, &last.flushed)? else {
            return Ok(TakeOver::InUse);
        };
        // An owner that counts from now on sees this file first.
        let is_unchanged = read(record).as_ref() == Some(found) && read_file(record, &name).as_ref() == Some(&last);
        // This process may have been suspended, and another one may have taken over from it.
        let is_first = read_file(record, &successor).is_some_and(|now| now.is_of(next));
        let is_late = u128::from(boot_ms().saturating_sub(begun)) >= late().as_millis();
        if !is_unchanged || !is_first || is_late || read_file(record, &self::successor(&next.id)).is_some() {
            if is_first {
                drop(file);
                remove_file(record, &successor)?;
            }
            return Ok(TakeOver::InUse);
        }
        let folder = open(record)?;
        renameat(folder.folder(), successor, folder.folder(), LEASE_FILE)?;
        return Ok(TakeOver::Taken(file, (last.at, last.flushed)));
    }
    Ok(TakeOver::InUse)
}

/// Whether an owner doesn't count.
fn stands_still(record: &Path, name: &str, found: &LeaseState) -> bool {
    let start = Instant::now();
    let observation = observation();
    while start.elapsed() < observation {
        std::thread::sleep(POLL_INTERVAL.min(observation));
        if read_file(record, name).as_ref() != Some(found) {
            return false;
        }
    }
    true
}

fn successor(id: &str) -> String {
    format!("{LEASE_FILE}.{id}")
}

/// Removes what killed processes have left that wanted to take the lease over from earlier owners.
fn remove_successors(record: &Path, owner: &Owner) {
    let (prefix, own) = (successor(""), successor(&owner.id));
    let Ok(record) = open(record) else { return };
    for name in record.names("".as_ref()).unwrap_or_default() {
        if name.as_encoded_bytes().starts_with(prefix.as_bytes()) && name != *own {
            let _ = record.remove_file(name.as_ref());
        }
    }
}

/// What the system calls the time since it was started; empty if it doesn't say.
#[cfg(not(target_os = "macos"))]
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(target_os = "macos")]
#[allow(unsafe_code)]
fn boot_id() -> String {
    let mut buffer = [0_u8; 64];
    let mut length = buffer.len();
    let (name, none) = (c"kern.bootsessionuuid".as_ptr(), std::ptr::null_mut());
    // SAFETY: the buffer has this many bytes, and no new value is given.
    let status = unsafe { libc::sysctlbyname(name, buffer.as_mut_ptr().cast(), &raw mut length, none, 0) };
    let text = if status == 0 { buffer.get(..length).unwrap_or_default() } else { &[] };
    String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()
}

/// The time since the machine was started, suspended time included.
fn boot_ms() -> u64 {
    // Elsewhere, the monotonic clock keeps running while the machine is suspended.
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    #[test]
    fn the_time_of_a_killed_owner_stays_until_the_next_one_starts() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path();
        let seen = || Lease::take(record, true).unwrap().last_seen();
        assert_eq!(seen(), None);
        assert!(!record.join(LEASE_FILE).exists(), "the run never started");
        let lease = Lease::take(record, true).unwrap();
        lease.start_clock(clock);
        // It ends like a killed process: the file stays.
        drop(lease);
        assert_eq!(seen(), Some(clock()));
        assert_eq!(seen(), Some(clock()), "this run didn't start either");
        Lease::take(record, true).unwrap().release();
        assert!(!record.join(LEASE_FILE).exists());
        fs::write(record.join(LEASE_FILE), "{").unwrap();
        assert_eq!(seen(), None, "a damaged file doesn't block the record for ever");
    }

    #[test]
    fn a_lease_that_was_left_moves_to_the_next_run() {
        let [first, second, third] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        let lease = |folder: &tempfile::TempDir| Lease::take(folder.path(), true).unwrap();
        let owner = |folder: &tempfile::TempDir| read(folder.path())?.owner;
        let left = lease(&first);
        left.start_clock(clock);
        let file = left.file();
        let next = Owner::of(second.path(), true);
        drop(left);
        assert!(file.move_to(second.path(), &next).is_some());
        assert_eq!((owner(&first), read(second.path()).unwrap().at), (None, None));
        assert_eq!(owner(&second), Some(next.clone()));
        let moved = LeaseFile { record: second.path().to_owned(), owner: next };
        assert!(file.move_to(third.path(), &Owner::this_process()).is_none(), "it has moved already");
        let other = lease(&third);
        assert!(moved.move_to(third.path(), &Owner::this_process()).is_none(), "it doesn't replace another one");
        assert_eq!((owner(&second), owner(&third)), (None, Some(other.owner.clone())));
    }

    #[test]
    fn a_lease_whose_record_was_locked_when_the_next_run_started_is_removed_later() {
        let [first, second] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        let left = Lease::take(first.path(), true).unwrap();
        if left.counter.is_remote {
            return;
        }
        left.start_clock(clock);
        // Nobody's run moves it meanwhile: each waits for the lock.
        let reader = File::open(first.path()).unwrap();
        flock(&reader, FlockOperation::LockShared).unwrap();
        left.leave_to_next_run();
        let next = Lease::take(second.path(), true).unwrap();
        assert_eq!((names(first.path()), names(second.path())), (vec![LEASE_FILE.into()], vec![LEASE_FILE.into()]));
        // Closing isn't enough: a program that another test starts may have a copy of the descriptor for a moment.
        flock(&reader, FlockOperation::Unlock).unwrap();
        remove_unused_leases();
        assert!(names(first.path()).is_empty());
        assert!(read(second.path()).unwrap().is_of(&next.owner));
    }

    #[test]
    fn an_owner_that_was_late_notices_that_it_has_lost_the_lease() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lease::take(folder.path(), true).unwrap();
        first.counter.last_ms.store(0, Ordering::Relaxed);
        first.check().unwrap();
        let second = Lease::take(folder.path(), true).unwrap();
        first.check().unwrap();
        first.counter.last_ms.store(0, Ordering::Relaxed);
        first.counter.count().unwrap();
        assert!(first.check().unwrap_err().to_string().contains("another process has taken over"));
        first.release();
        second.counter.last_ms.store(0, Ordering::Relaxed);
        second.check().expect("the first one doesn't release what it doesn't own");
    }

    fn names(record: &Path) -> Vec<String> {
        let names = fs::read_dir(record).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn an_owner_that_counts_while_its_lease_is_taken_over_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::take(folder.path(), true).unwrap();
        let seen = read(folder.path()).unwrap();
        lease.counter.count().unwrap();
        let next = Owner::of(folder.path(), true);
        assert!(matches!(take_over(folder.path(), &seen, &next), Ok(TakeOver::InUse)));
        assert!(read(folder.path()).unwrap().is_of(&lease.owner));
        assert_eq!(names(folder.path()), [LEASE_FILE]);
    }

    #[test]
    fn one_of_many_takes_over() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path();
        let killed = Lease::take(record, true).unwrap();
        killed.start_clock(clock);
        drop(killed);
        let seen = read(record).unwrap();
        let take = || {
            let next = Owner::of(record, true);
            let taken = take_over(record, &seen, &next).unwrap();
            matches!(taken, TakeOver::Taken(..)).then_some(next)
        };
        let owners: Vec<Owner> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..20).map(|_| scope.spawn(take)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(owners.len(), 1);
        assert!(read(record).unwrap().is_of(&owners[0]));
        assert_eq!(names(record), [LEASE_FILE]);
    }

    #[test]
    fn a_process_that_was_killed_while_it_took_over_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path();
        let killed = Lease::take(record, true).unwrap();
        killed.start_clock(clock);
        drop(killed);
        // Two more are killed before they rename their files.
        for _ in 0..2 {
            let mut last = read(record).unwrap();
            while let Some(next) = read_file(record, &last.successor()) {
                last = next;
            }
            create_named(record, &last.successor(), &Owner::of(record, true), last.at, &last.flushed).unwrap().unwrap();
        }
        assert_eq!(names(record).len(), 3);
        let lease = Lease::take(record, true).unwrap();
        assert_eq!((lease.last_seen(), names(record)), (Some(clock()), vec![LEASE_FILE.to_owned()]));
        lease.release();
        assert!(names(record).is_empty());
    }

    #[test]
    fn an_owner_that_was_late_notices_who_takes_over_just_now() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::take(folder.path(), true).unwrap();
        let next = Owner::of(folder.path(), true);
        create_named(folder.path(), &successor(&lease.owner.id), &next, None, &[]).unwrap().unwrap();
        lease.check().unwrap();
        lease.counter.last_ms.store(0, Ordering::Relaxed);
        assert!(lease.check().unwrap_err().to_string().contains("another process has taken over"));
    }

    #[test]
    fn only_the_lock_of_the_same_file_system_tells_of_an_owner() {
        let folder = tempfile::tempdir().unwrap();
        let own = Owner::of(folder.path(), true);
        if own.device.is_none() {
            return;
        }
        assert!(own.is_excluded_by_lock(&Owner::of(folder.path(), true)));
        // It doesn't hold the lock, or has another mount, or is on another machine.
        let others = [
            Owner::of(folder.path(), false),
            Owner { device: own.device.map(|device| device + 1), ..own.clone() },
            Owner { boot: "other".into(), ..own.clone() },
        ];
        for other in others {
            assert!(!own.is_excluded_by_lock(&other) && !other.is_excluded_by_lock(&own), "{other:?}");
        }
        // Nor is any file name taken from a record.
        let forged = Owner { id: "../../../../../../../../etc/passw".into(), ..own };
        fs::write(folder.path().join(LEASE_FILE), forged.line() + &count_line(0, None)).unwrap();
        assert_eq!(read(folder.path()).unwrap().owner, None);
    }
}
