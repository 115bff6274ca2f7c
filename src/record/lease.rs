//! The lease of a record: which process owns it while its run goes on, and when that process last showed that it is alive.
//!
//! The folder's lock decides between processes of one machine. Network file systems may not carry locks to other machines,
//! so the owner also keeps a file `lease` and counts in it once a second. A process on another machine that sees the count
//! stand still for [`OBSERVATION`] takes the lease over. No two clocks are compared: each side measures durations only.
//!
//! An owner that was suspended counts, and then reads whose lease it is, before it writes to the record again. One that takes
//! a lease over moves it away, and then reads the count again. So at least one of the two notices the other.
//!
//! The file also says how many lines of each journal are on the disk. It isn't flushed for that, so a crash of the machine may
//! leave lower numbers, but no higher ones: a journal that has fewer lines has lost some.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::files::{is_without_locks, open_file, temporary};
use crate::error::{Error, TakenOver};
use crate::workspace::open_beneath::is_local_filesystem;

/// The file, which exists while a run goes on and after it was killed.
pub(super) const LEASE_FILE: &str = "lease";
/// How often the owner counts.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the count must stand still until another machine takes the lease over.
const OBSERVATION: Duration = Duration::from_secs(10);
/// How often the count is read meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many other processes may take or release the lease while this one tries to.
const MAX_ATTEMPTS: usize = 10;
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
}

/// What a lease's file holds: the owner, on a line of fixed length the count and the time, and a line for each journal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeaseState {
    owner: Owner,
    count: u64,
    at: Option<Timestamp>,
    flushed: FlushedLines,
}

/// The lease of a record, held until it is released or dropped.
#[derive(Debug)]
pub(super) struct Lease {
    record: PathBuf,
    owner: Owner,
    counter: Arc<Counter>,
    /// Ends the lease's own thread, if it has one.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    /// Whether an earlier owner was killed. Then a run that doesn't start leaves the file, with the time of that owner.
    had_owner: bool,
    is_released: AtomicBool,
}

/// A lease that was looked at and not taken.
#[derive(Debug, Clone)]
pub struct SeenLease {
    record: PathBuf,
    state: LeaseState,
}

impl SeenLease {
    /// The lease of a record; `None` if it has none.
    pub(super) fn of(record: &Path) -> Option<Self> {
        Some(Self { record: record.to_owned(), state: read(record)? })
    }

    /// Whether the lock of the record says whether its owner is alive: it is or was a process of this machine, since the machine
    /// was started.
    pub(super) fn is_local(&self) -> bool {
        self.state.owner.boot == Owner::this_process().boot && has_locks(&self.record)
    }

    /// When the owner was last alive, if its run had started.
    pub fn last_alive(&self) -> Option<Timestamp> {
        self.state.at
    }

    /// Whether the owner has counted since the lease was looked at, or another process has taken it. Then the run goes on.
    pub fn has_changed(&self) -> bool {
        read(&self.record).is_none_or(|now| now.owner != self.state.owner || now.count != self.state.count)
    }

    /// How long an owner on another machine must not count until it is known to be dead.
    pub fn observation() -> Duration {
        observation()
    }
}

/// Counts in the file.
#[derive(Debug)]
struct Counter {
    file: File,
    /// Whether other machines see what is written only after it is flushed.
    is_remote: bool,
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
}

impl Counter {
    /// Counts in the file.
    fn write(&self) -> io::Result<()> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let at = self.clock.get().map(|clock| clock()).or(self.last_seen);
        // In place and always of the same length, so nothing can be left over.
        self.file.write_all_at(count_line(count, at).as_bytes(), self.offset)?;
        if self.is_remote {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Writes how many lines of an agent's journal are on the disk. If that fails, the file has a lower number.
    fn write_flushed(&self, agent: &str, lines: u64) {
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = flushed.iter().position(|(known, _)| known == agent);
        if found.is_none() && flushed.len() >= MAX_JOURNALS {
            return;
        }
        let at = found.unwrap_or(flushed.len());
        let before: usize = flushed[..at].iter().map(|(agent, lines)| flushed_line(agent, *lines).len()).sum();
        let offset = self.offset + (count_line(0, None).len() + before) as u64;
        if self.file.write_all_at(flushed_line(agent, lines).as_bytes(), offset).is_err() {
            return;
        }
        match flushed.get_mut(at) {
            Some(known) => known.1 = lines,
            None => flushed.push((agent.to_owned(), lines)),
        }
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

/// Counts in a file once a second until the sender is dropped.
fn count_on_own_thread(counter: &Arc<Counter>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = channel();
    let counter = Arc::clone(counter);
    let thread = std::thread::Builder::new().name(LEASE_FILE.to_owned()).spawn(move || {
        while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            // A failure shows when the owner is late.
            let _ = counter.count();
        }
    });
    Some((stop, thread.ok()?))
}

/// The counters of this process on file systems of this machine. One thread counts in all of them: a map has hundreds.
static LOCAL_COUNTERS: LocalCounters = LocalCounters(Mutex::new((Vec::new(), false)));

/// Counters, and whether the thread runs.
struct LocalCounters(Mutex<(Vec<Weak<Counter>>, bool)>);

impl LocalCounters {
    fn add(&'static self, counter: &Arc<Counter>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.push(Arc::downgrade(counter));
        if !state.1 {
            let thread = std::thread::Builder::new().name(LEASE_FILE.to_owned()).spawn(|| self.count_all());
            state.1 = thread.is_ok();
        }
    }

    /// Counts once a second until no lease is left.
    fn count_all(&self) {
        loop {
            std::thread::sleep(PERIOD);
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.retain(|counter| counter.strong_count() > 0);
            if state.0.is_empty() {
                state.1 = false;
                return;
            }
            let counters: Vec<_> = state.0.iter().filter_map(Weak::upgrade).collect();
            drop(state);
            // A failure shows when the owner is late.
            counters.iter().for_each(|counter| drop(counter.count()));
        }
    }
}

impl Lease {
    /// Takes the lease of a record. This may take [`OBSERVATION`] where another machine had it, or if this process doesn't hold
    /// the record's lock because the file system has none.
    ///
    /// # Errors
    /// If another process has it ([`Error::InUse`]), or the file can't be written.
    pub(super) fn take(record: &Path, is_locked: bool) -> Result<Self, Error> {
        let failed = |source| Error::Record { path: record.join(LEASE_FILE), source };
        let in_use = || Error::InUse { path: record.to_owned() };
        let owner = Owner::this_process();
        let (mut had_owner, mut last_seen, mut flushed) = (false, None, FlushedLines::new());
        for _ in 0..MAX_ATTEMPTS {
            if let Some(file) = create(record, &owner, last_seen, &flushed).map_err(failed)? {
                return Ok(Self::start(record, owner, file, (last_seen, flushed), had_owner));
            }
            match read(record) {
                Some(found) if !is_dead(record, &found, is_locked) => return Err(in_use()),
                Some(found) if !remove_dead(record, &found).map_err(failed)? => return Err(in_use()),
                Some(found) => (had_owner, last_seen, flushed) = (true, found.at, found.flushed),
                // It is damaged, perhaps by a crash of the machine: the record's lock keeps other processes of this machine out.
                None if is_local(record) => drop(fs::remove_file(record.join(LEASE_FILE))),
                // It was released in the meantime, or it is damaged.
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
        // No legwork writes such a file.
        let _ = fs::remove_file(record.join(LEASE_FILE));
        let file = create(record, &owner, None, &[]).map_err(failed)?.ok_or_else(in_use)?;
        Ok(Self::start(record, owner, file, (None, FlushedLines::new()), true))
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
            file,
            is_remote,
            offset,
            count: AtomicU64::new(0),
            last_ms: AtomicU64::new(boot_ms()),
            last_seen,
            flushed: Mutex::new(flushed),
            clock: OnceLock::new(),
        });
        let thread = if is_remote {
            // Every write waits for the other machine, so leases don't wait for each other.
            count_on_own_thread(&counter)
        } else {
            LOCAL_COUNTERS.add(&counter);
            None
        };
        Self { record: record.to_owned(), owner, counter, thread, had_owner, is_released: AtomicBool::new(false) }
    }

    /// From now on, the file has the time of the clock: the run has started.
    pub(super) fn start_clock(&self, clock: fn() -> Timestamp) {
        let _ = self.counter.clock.set(clock);
        let _ = self.counter.count();
    }

    /// Keeps how many lines of an agent's journal are on the disk.
    pub(super) fn set_flushed(&self, agent: &str, lines: u64) {
        self.counter.write_flushed(agent, lines);
    }

    /// How many lines of each journal were on the disk, as far as it is known.
    pub(super) fn flushed(&self) -> FlushedLines {
        self.counter.flushed.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        if !self.counter.is_late(now) || self.is_released.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.counter.write()?;
        match read(&self.record) {
            Some(found) if found.owner == self.owner => {
                self.counter.last_ms.fetch_max(now, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(io::Error::other(TakenOver)),
        }
    }

    /// Tells whether this process still owns the lease. One that was suspended may not.
    pub(super) fn ownership(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let (file, counter) = (self.file(), Arc::clone(&self.counter));
        move || !counter.is_late(boot_ms()) || file.is_own()
    }

    /// The record was moved, and the file with it.
    pub(super) fn follow(&mut self, record: &Path) {
        record.clone_into(&mut self.record);
    }

    /// Removes the file, because the run has ended.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
        self.file().remove();
    }

    /// Leaves the file to the next run of this process, because this run has ended for good: to remove a file and create
    /// another one takes some disks milliseconds. Where other machines may see the file, it is removed.
    pub(super) fn leave_to_next_run(&self) {
        if self.counter.is_remote {
            return self.release();
        }
        self.is_released.store(true, Ordering::Relaxed);
        UNUSED_LEASES.lock().unwrap_or_else(PoisonError::into_inner).push(self.file());
    }

    fn file(&self) -> LeaseFile {
        LeaseFile { record: self.record.clone(), owner: self.owner.clone() }
    }
}

/// The files of leases that runs of this process have left to the next ones: no more than have run at the same time.
static UNUSED_LEASES: Mutex<Vec<LeaseFile>> = Mutex::new(Vec::new());

/// Removes the files that runs of this process have left to the next ones.
pub(super) fn remove_unused_leases() {
    let unused = std::mem::take(&mut *UNUSED_LEASES.lock().unwrap_or_else(PoisonError::into_inner));
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
        read(&self.record).is_some_and(|found| found.owner == self.owner)
    }

    fn remove(&self) {
        if self.is_own() {
            let _ = fs::remove_file(self.record.join(LEASE_FILE));
        }
    }

    /// Moves the file to another record of this process, and makes it the lease of a new owner. `None` if that isn't possible.
    fn move_to(&self, record: &Path, owner: &Owner, last_seen: Option<Timestamp>) -> Option<File> {
        if !self.is_own() {
            return None;
        }
        let (from, to) = (self.record.join(LEASE_FILE), record.join(LEASE_FILE));
        if renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE).is_err() {
            self.remove();
            return None;
        }
        let file = File::options().read(true).write(true).open(&to).ok()?;
        let text = owner.line() + &count_line(0, last_seen);
        // Of this process, so the text is as long as the old one. The numbers of lines are those of the other record.
        file.write_all_at(text.as_bytes(), 0).ok()?;
        file.set_len(text.len() as u64).ok()?;
        Some(file)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
        let has_started = self.counter.clock.get().is_some();
        if !has_started && !self.had_owner && !self.is_released.load(Ordering::Relaxed) {
            self.release();
        }
    }
}

impl Owner {
    fn this_process() -> Self {
        static BOOT: LazyLock<String> = LazyLock::new(|| boot_id().trim().to_owned());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // Elsewhere than on Linux and macOS, a restart of the machine isn't noticed.
        let boot = simulated_boot_id().unwrap_or_else(|| BOOT.clone());
        let boot = if boot.is_empty() { host.clone() } else { boot };
        Self { id: random_id(), host: host.chars().take(100).collect(), boot, pid: std::process::id() }
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

/// If the owner hasn't counted for this long, it checks whether the lease is still its own before it goes on.
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

/// Creates the file, complete or not at all; `None` if there is one already.
fn create(
    record: &Path,
    owner: &Owner,
    last_seen: Option<Timestamp>,
    flushed: &[(String, u64)],
) -> io::Result<Option<File>> {
    let mut unused = None;
    if flushed.is_empty() {
        unused = UNUSED_LEASES.lock().unwrap_or_else(PoisonError::into_inner).pop();
    }
    if let Some(file) = unused.and_then(|unused| unused.move_to(record, owner, last_seen)) {
        return Ok(Some(file));
    }
    let mut file = temporary(record)?;
    file.write_all(owner.line().as_bytes())?;
    file.write_all(count_line(0, last_seen).as_bytes())?;
    flushed.iter().try_for_each(|(agent, lines)| file.write_all(flushed_line(agent, *lines).as_bytes()))?;
    // Only other machines read it before this process ends.
    if !is_local_filesystem(file.as_file().as_fd()) {
        file.as_file().sync_data()?;
    }
    match file.persist_noclobber(record.join(LEASE_FILE)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error.error),
    }
}

/// Reads a lease; `None` if there is none that was written completely.
fn read(record: &Path) -> Option<LeaseState> {
    read_file(record, LEASE_FILE)
}

fn read_file(record: &Path, name: &str) -> Option<LeaseState> {
    let mut text = String::new();
    open_file(record, name, MAX_BYTES).ok()?.read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    let owner = serde_json::from_str(lines.next()?).ok()?;
    let (count, at) = lines.next()?.trim_end().split_once(' ')?;
    let flushed = lines.filter_map(|line| {
        let (agent, lines) = line.split_once(' ')?;
        Some((agent.to_owned(), lines.parse().ok()?))
    });
    Some(LeaseState { owner, count: count.parse().ok()?, at: at.trim().parse().ok(), flushed: flushed.collect() })
}

/// Whether a record is on a file system whose locks reach all processes that can open the record.
fn is_local(record: &Path) -> bool {
    simulated_boot_id().is_none() && File::open(record).is_ok_and(|folder| is_local_filesystem(folder.as_fd()))
}

/// Whether the file system of a record has locks.
fn has_locks(record: &Path) -> bool {
    let locked = File::open(record).map(|folder| flock(&folder, FlockOperation::NonBlockingLockShared));
    simulated_boot_id().is_none() && locked.is_ok_and(|locked| !locked.is_err_and(is_without_locks))
}

/// Whether the owner of a lease is dead. On this machine it is if this process has got the folder's lock.
fn is_dead(record: &Path, found: &LeaseState, is_locked: bool) -> bool {
    if is_locked && found.owner.boot == Owner::this_process().boot {
        return true;
    }
    let start = Instant::now();
    let observation = observation();
    while start.elapsed() < observation {
        std::thread::sleep(POLL_INTERVAL.min(observation));
        match read(record) {
            Some(now) if now.owner == found.owner && now.count == found.count => {}
            // It was released, or someone else was faster: the caller looks again.
            None => return true,
            Some(_) => return false,
        }
    }
    true
}

/// Removes the lease of a dead owner. Returns false if the owner turns out to be alive, or if someone else was faster.
fn remove_dead(record: &Path, found: &LeaseState) -> io::Result<bool> {
    let aside = format!("{LEASE_FILE}.{}", random_id());
    match fs::rename(record.join(LEASE_FILE), record.join(&aside)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        renamed => renamed?,
    }
    let moved = read_file(record, &aside);
    let is_expected = moved.as_ref().is_some_and(|moved| moved.owner == found.owner && moved.count == found.count);
    if !is_expected {
        // Put it back, unless someone has taken the lease meanwhile.
        let _ = fs::hard_link(record.join(&aside), record.join(LEASE_FILE));
    }
    fs::remove_file(record.join(&aside))?;
    Ok(is_expected)
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
    // Elsewhere, the monotonic clock goes on while the machine is suspended.
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
        let owner = |folder: &tempfile::TempDir| read(folder.path()).map(|state| state.owner);
        let left = lease(&first);
        left.start_clock(clock);
        let file = left.file();
        let next = Owner::this_process();
        assert!(file.move_to(second.path(), &next, None).is_some());
        assert_eq!((owner(&first), read(second.path()).unwrap().at), (None, None));
        assert_eq!(owner(&second), Some(next.clone()));
        let moved = LeaseFile { record: second.path().to_owned(), owner: next };
        assert!(file.move_to(third.path(), &Owner::this_process(), None).is_none(), "it has moved already");
        let other = lease(&third);
        assert!(moved.move_to(third.path(), &Owner::this_process(), None).is_none(), "it doesn't replace another one");
        assert_eq!((owner(&second), owner(&third)), (None, Some(other.owner.clone())));
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

    #[test]
    fn a_lease_that_changes_while_it_is_taken_over_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::take(folder.path(), true).unwrap();
        let seen = read(folder.path()).unwrap();
        lease.counter.count().unwrap();
        assert!(!remove_dead(folder.path(), &seen).unwrap(), "the owner has counted meanwhile");
        assert_eq!(read(folder.path()).unwrap().owner, lease.owner);
        let seen = read(folder.path()).unwrap();
        assert!(remove_dead(folder.path(), &seen).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
