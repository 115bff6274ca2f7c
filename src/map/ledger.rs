//! The budget of a map, shared by all processes that run its rows. Each process has a file of its own with the most that it
//! may have used: its claim. It raises the claim before it asks a model, reads the claims of all others, and takes it back if
//! together they exceed the limit. So the limit holds without a lock, and what a killed process had claimed counts as spent. A
//! lock only keeps processes from raising their claims at the same moment, in which case all of them would be refused.
//!
//! A process claims what is spent and reserved, and a small part of what is left, so that it rarely has to write. What it
//! doesn't use soon it gives back. At every beat it also touches its file, so others know that it is alive and may give back
//! more. They wait for that before they are refused. A process is dead if its file stands still for ten beats of the
//! one that looks at it. No clocks, process ids or names of machines are compared, and nothing is taken from a dead process:
//! one that was only suspended still has what it claimed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, flock, openat, utimensat};
use serde::{Deserialize, Serialize};

use crate::budget::Amount;
use crate::record::{
    BEAT, Heartbeat, ObservedPeer, open_file_in, remove_abandoned_files, replace_shared_file, retry_stale,
};
use crate::sync::IgnorePoison;
use crate::workspace::open_root::OpenRoot;

/// The suffix of the processes' files.
const SUFFIX: &str = ".json";
/// The size of a file in bytes. What it holds is shorter, and blanks follow.
const FILE_BYTES: usize = 320;
/// The greatest size of a file in bytes.
const MAX_FILE_BYTES: u64 = 10_000;
/// How many files are read at most: one for each process that was ever started.
const MAX_FILES: usize = 100_000;
/// A process claims this part of what is left, beyond what it needs. It is lost if the process is killed.
const SPARE_PARTS: u64 = 1_024;
/// The file that is locked while a claim is raised.
const LOCK_FILE: &str = "lock";
/// How long to wait for that lock. The limit holds without it.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The limits of a map.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MapLimits {
    /// Input and output tokens.
    pub tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
}

impl MapLimits {
    /// The key of the limit that a spend exceeds.
    fn exceeded(&self, spend: Amount) -> Option<&'static str> {
        // Prices are decimal fractions, which a sum meets only nearly.
        const EPSILON: f64 = 1e-9;
        match (self.tokens, self.cost_usd) {
            (Some(limit), _) if spend.tokens > limit => Some("tokens"),
            (_, Some(limit)) if spend.cost_usd > limit + EPSILON => Some("cost_usd"),
            _ => None,
        }
    }

    /// What a process claims beyond what it needs if this much is claimed together.
    fn spare(&self, all: Amount) -> Amount {
        Amount {
            tokens: self.tokens.map_or(0, |limit| limit.saturating_sub(all.tokens) / SPARE_PARTS),
            cost_usd: self.cost_usd.map_or(0.0, |limit| (limit - all.cost_usd).max(0.0) / SPARE_PARTS as f64),
        }
    }

    /// Whether a claim is enough.
    fn covers(&self, claimed: Amount, needed: Amount) -> bool {
        (self.tokens.is_none() || needed.tokens <= claimed.tokens)
            && (self.cost_usd.is_none() || needed.cost_usd <= claimed.cost_usd)
    }
}

/// What a process's file holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Claim {
    /// What it may have used at most.
    claimed: Amount,
    /// What it has used for certain.
    spent: Amount,
    /// What requests that were stopped may have used beyond that.
    #[serde(default)]
    lost: Amount,
    /// Whether the process has ended, so that this never changes.
    #[serde(default)]
    is_final: bool,
}

/// The part of this process in the budget of a map.
#[derive(Debug)]
pub struct Ledger {
    shared: Arc<SharedLedger>,
    /// Shows that this process is alive, and gives back what it doesn't use.
    _heartbeat: Heartbeat,
}

#[derive(Debug)]
struct SharedLedger {
    folder: OpenRoot,
    name: String,
    limits: MapLimits,
    /// The lock file; `None` if it can't be opened.
    lock_file: Option<File>,
    process: Mutex<OwnSpend>,
    /// What all processes have used, for display.
    total: Mutex<Total>,
}

#[derive(Debug, Default)]
struct OwnSpend {
    /// What the file says.
    written: Claim,
    /// What may be used without another look at the others.
    granted: Amount,
    spent: Amount,
    lost: Amount,
    reserved: Amount,
    /// How many reservations there are. Sums of fractions don't return to exactly 0.
    reservations: usize,
    /// What was used and reserved at the last beat.
    at_last_beat: Amount,
    /// The other processes, by the names of their files. No file is ever removed, but a listing may leave out one that is
    /// replaced meanwhile.
    others: BTreeMap<String, OtherProcess>,
}

/// Another process: what its file says, and when it was touched.
type OtherProcess = ObservedPeer<(Claim, Option<SystemTime>)>;

#[derive(Debug, Default)]
struct Total {
    process: Amount,
    /// What the files of the others say.
    others: Amount,
    /// What the records said at the start, without `own`: the files of killed processes may say less.
    recorded: Amount,
}

impl OwnSpend {
    fn used(&self) -> Amount {
        self.spent.plus(self.lost).plus(self.reserved)
    }

    fn add_reservation(&mut self, request: Amount) {
        self.reserved = self.reserved.plus(request);
        self.reservations += 1;
    }

    /// The claims of all other processes together.
    fn others_claimed(&self) -> Amount {
        self.others.values().fold(Amount::default(), |sum, other| sum.plus(other.seen.0.claimed))
    }
}

/// Whether another process is alive and has claimed more than it has used.
fn may_give_back(other: &OtherProcess) -> bool {
    let Claim { claimed, spent, lost, is_final } = other.seen.0;
    let spent = spent.plus(lost);
    let is_dead = is_final || other.is_silent();
    !is_dead && (claimed.tokens > spent.tokens || claimed.cost_usd > spent.cost_usd)
}

/// A limit of a map that leaves no room.
#[derive(Debug, Clone, PartialEq)]
pub struct MapLimitHit {
    /// Its key: `tokens` or `cost_usd`.
    pub limit: &'static str,
    /// What all processes have claimed.
    pub claimed: Amount,
    /// Whether part of it is only reserved, by this or another process, and may be returned.
    pub may_change: bool,
}

impl Ledger {
    /// Opens the ledger in a folder, a canonical path, which is created if need be. `name` is a new name for the file of this process.
    ///
    /// # Errors
    /// If the folder or the file can't be written, or no thread can be started.
    pub fn open(folder: &Path, name: &str, limits: MapLimits) -> io::Result<Self> {
        let above = OpenRoot::open_canonical(folder.parent().unwrap_or(folder))?;
        let folder = OpenRoot::of(above.create_dir(folder, 0o700)?, folder);
        remove_abandoned_files(folder.folder());
        // It could be a link or a pipe.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock_file = openat(folder.folder(), LOCK_FILE, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from);
        let shared = Arc::new(SharedLedger {
            folder,
            name: format!("{name}{SUFFIX}"),
            limits,
            lock_file,
            process: Mutex::default(),
            total: Mutex::default(),
        });
        shared.write(&mut shared.lock(), Claim::default())?;
        // A file that can't be read is an error as soon as a request depends on it.
        let _ = shared.beat();
        let beating = Arc::clone(&shared);
        // The next request meets the same failure.
        let heartbeat = Heartbeat::start("ledger", beat_interval(), move || drop(beating.beat()))?;
        Ok(Self { shared, _heartbeat: heartbeat })
    }

    /// Reserves what a request may use at most. `Ok(Err(...))` if the limit leaves no room for it.
    ///
    /// # Errors
    /// If the files can't be read or written; nothing is reserved then.
    pub fn reserve(&self, request: Amount) -> io::Result<Result<(), MapLimitHit>> {
        self.shared.reserve(request)
    }

    /// Counts what a request has really used.
    pub fn count(&self, used: Amount) {
        let mut process = self.shared.lock();
        process.spent = process.spent.plus(used);
        self.shared.lock_total().process = process.spent;
    }

    /// Counts what a request that was stopped may have used beyond what was received.
    pub fn count_unknown(&self, most: Amount) {
        let mut process = self.shared.lock();
        process.lost = process.lost.plus(most);
    }

    /// Counts what the records of all rows have used together and the files of the ledger don't have: without a limit, a process
    /// writes its file once a second, and what it used since then is missing if it was killed.
    ///
    /// # Errors
    /// If the files can't be read or written.
    pub fn count_recorded(&self, recorded: Amount) -> io::Result<()> {
        let shared = &*self.shared;
        let mut process = shared.lock();
        // Another process that starts at the same time must see what this one has counted.
        let _turn = shared.wait_for_turn();
        shared.read_others(&mut process)?;
        let missing = recorded.minus(process.others_claimed().plus(process.spent));
        // Costs are rounded in the records.
        if missing.tokens > 0 {
            process.spent = process.spent.plus(missing);
            let claim = Claim { claimed: process.used(), spent: process.spent, lost: process.lost, is_final: false };
            shared.write(&mut process, claim)?;
        }
        *shared.lock_total() =
            Total { process: process.spent, recorded: recorded.minus(process.spent), ..Total::default() };
        Ok(())
    }

    /// Returns a reservation.
    pub fn release(&self, reserved: Amount) {
        let mut process = self.shared.lock();
        process.reservations = process.reservations.saturating_sub(1);
        process.reserved = if process.reservations == 0 { Amount::default() } else { process.reserved.minus(reserved) };
    }

    /// Returns what this process has claimed and not used, for good: it reserves nothing any more.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn close(&self) -> io::Result<()> {
        let mut process = self.shared.lock();
        let claim = Claim { claimed: process.used(), spent: process.spent, lost: process.lost, is_final: true };
        self.shared.write(&mut process, claim)
    }

    /// What all processes have used for certain, known at the last beat.
    pub fn total(&self) -> Amount {
        let total = self.shared.lock_total();
        total.process.plus(total.others.max(total.recorded))
    }
}

impl SharedLedger {
    fn reserve(&self, request: Amount) -> io::Result<Result<(), MapLimitHit>> {
        let mut process = self.lock();
        let needed = process.used().plus(request);
        if !self.limits.covers(process.granted, needed) {
            let turn = self.wait_for_turn();
            self.read_others(&mut process)?;
            let mut all = process.others_claimed().plus(needed);
            let mut hit = self.limits.exceeded(all);
            // If even the claims of the others leave no room, nothing needs to be raised.
            if hit.is_none() {
                let claimed = needed.plus(self.limits.spare(all));
                let (spent, lost) = (process.spent, process.lost);
                self.write(&mut process, Claim { claimed, spent, lost, is_final: false })?;
                // Without the lock, another process may have raised its claim meanwhile.
                self.read_others(&mut process)?;
                all = process.others_claimed().plus(claimed);
                hit = self.limits.exceeded(all);
                if hit.is_none() {
                    process.granted = claimed;
                }
            }
            if let Some(limit) = hit {
                self.give_back(&mut process)?;
                let may_change = process.reservations > 0 || process.others.values().any(may_give_back);
                let claimed = process.others_claimed().plus(process.used());
                return Ok(Err(MapLimitHit { limit, claimed, may_change }));
            }
            drop(turn);
        }
        process.add_reservation(request);
        Ok(Ok(()))
    }

    /// Claims no more than what is used and reserved.
    fn give_back(&self, process: &mut OwnSpend) -> io::Result<()> {
        process.granted = process.used();
        let claim = Claim { claimed: process.granted, spent: process.spent, lost: process.lost, is_final: false };
        if claim == process.written { Ok(()) } else { self.write(process, claim) }
    }

    /// Publishes what is spent, gives back what wasn't needed since the last beat, and looks which other processes are alive.
    fn beat(&self) -> io::Result<()> {
        let mut process = self.lock();
        if process.written.is_final {
            return Ok(());
        }
        let used = process.used();
        if std::mem::replace(&mut process.at_last_beat, used) == used {
            process.granted = used;
        }
        let claimed = Amount {
            tokens: self.limits.tokens.map_or(used.tokens, |_| used.tokens.max(process.granted.tokens)),
            cost_usd: self.limits.cost_usd.map_or(used.cost_usd, |_| used.cost_usd.max(process.granted.cost_usd)),
        };
        let claim = Claim { claimed, spent: process.spent, lost: process.lost, is_final: false };
        if claim != process.written || self.touch().is_err() {
            self.write(&mut process, claim)?;
        }
        let read = self.read_others(&mut process);
        let mut others = Amount::default();
        for other in process.others.values_mut() {
            other.beat();
            others = others.plus(other.seen.0.spent);
        }
        self.lock_total().others = others;
        read
    }

    /// Lets no other process raise its claim until the result is dropped, where the file system has locks.
    fn wait_for_turn(&self) -> Option<Turn<'_>> {
        let file = self.lock_file.as_ref()?;
        let start = Instant::now();
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Turn(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                Err(_) => return None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OwnSpend> {
        self.process.lock().ignore_poison()
    }

    fn lock_total(&self) -> MutexGuard<'_, Total> {
        self.total.lock().ignore_poison()
    }

    /// Reads the files of all other processes that haven't ended.
    fn read_others(&self, process: &mut OwnSpend) -> io::Result<()> {
        for name in self.folder.names(Path::new(""))? {
            let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX) && **name != *self.name) else {
                continue;
            };
            if !process.others.contains_key(name) {
                process.others.insert(name.to_owned(), OtherProcess::new((Claim::default(), None)));
            }
            if process.others.len() > MAX_FILES {
                return Err(io::Error::other(format!("`{}` has too many files", self.folder.path().display())));
            }
        }
        for (name, other) in process.others.iter_mut().filter(|(_, other)| !other.seen.0.is_final) {
            let found = retry_stale(|| read_claim(self.folder.folder(), name))
                .map_err(|error| io::Error::new(error.kind(), format!("`{name}` in the map's ledger: {error}")))?;
            other.see(found);
        }
        Ok(())
    }

    /// Writes the file of this process so that others see it complete.
    fn write(&self, process: &mut OwnSpend, claim: Claim) -> io::Result<()> {
        let is_durable = self.limits != MapLimits::default();
        replace_shared_file(self.folder.folder(), &self.name, is_durable, &mut |out| {
            // Always of the same length: who looks at the size of one and reads the next reads all of it.
            out.write_all(format!("{:FILE_BYTES$}", serde_json::to_string(&claim)?).as_bytes())
        })?;
        process.written = claim;
        Ok(())
    }

    /// Changes the time of the file of this process.
    fn touch(&self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        utimensat(self.folder.folder(), self.name.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW).map_err(Into::into)
    }
}

/// The lock of the ledger.
struct Turn<'a>(&'a File);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// The time between two beats. Tests of debug builds can make it shorter.
fn beat_interval() -> Duration {
    #[allow(clippy::disallowed_methods)]
    let shorter = if cfg!(debug_assertions) { std::env::var("LEGWORK_LEDGER_BEAT_MS").ok() } else { None };
    shorter.and_then(|ms| ms.parse().ok()).map_or(BEAT, Duration::from_millis)
}

/// Reads a file and when it was last touched.
fn read_claim(folder: BorrowedFd<'_>, name: &str) -> io::Result<(Claim, Option<SystemTime>)> {
    let mut text = String::new();
    let mut file = open_file_in(folder, name, MAX_FILE_BYTES)?;
    file.read_to_string(&mut text)?;
    let claim: Claim = serde_json::from_str(&text)?;
    let is_valid = |spend: Amount| spend.cost_usd.is_finite() && spend.cost_usd >= 0.0;
    match is_valid(claim.claimed) && is_valid(claim.spent) {
        true => Ok((claim, file.metadata()?.modified().ok())),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the cost isn't a positive number")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;
    use crate::record::MISSED_BEATS;

    const LIMITS: MapLimits = MapLimits { tokens: Some(1_000), cost_usd: None };

    fn tokens(tokens: u64) -> Amount {
        Amount { tokens, cost_usd: 0.0 }
    }

    fn file(folder: &Path, name: &str) -> Claim {
        read_claim(File::open(folder).unwrap().as_fd(), name).unwrap().0
    }

    #[test]
    fn the_claims_of_all_processes_stay_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| Ledger::open(folder.path(), name, LIMITS).unwrap();
        let (one, other) = (open("one"), open("other"));
        one.reserve(tokens(600)).unwrap().unwrap();
        let hit = other.reserve(tokens(500)).unwrap().unwrap_err();
        assert_eq!((hit.limit, hit.may_change), ("tokens", true));
        other.reserve(tokens(390)).unwrap().unwrap();
        one.count(tokens(100));
        one.release(tokens(600));
        one.close().unwrap();
        other.reserve(tokens(500)).unwrap().unwrap();
        // It is killed: its file stays, and so does its claim.
        drop(other);
        let third = open("third");
        third.reserve(tokens(11)).unwrap().unwrap_err();
        third.reserve(tokens(10)).unwrap().unwrap();
    }

    #[test]
    fn many_processes_at_once_use_the_whole_limit_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let reserved: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|worker| {
                    let folder = folder.path();
                    scope.spawn(move || {
                        let ledger = Ledger::open(folder, &format!("worker-{worker}"), LIMITS).unwrap();
                        (0..50).filter(|_| ledger.reserve(tokens(7)).unwrap().is_ok()).count() as u64 * 7
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(reserved <= 1_000, "{reserved}");
        assert!(reserved >= 990, "{reserved}");
    }

    #[test]
    fn a_claim_is_a_little_more_than_what_is_needed_and_the_rest_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let limits = MapLimits { tokens: Some(10_240_000), cost_usd: None };
        let ledger = Ledger::open(folder.path(), "one", limits).unwrap();
        let claimed = || file(folder.path(), "one.json").claimed.tokens;
        ledger.reserve(tokens(1_000)).unwrap().unwrap();
        assert!((1_000..=11_000).contains(&claimed()), "{}", claimed());
        ledger.count(tokens(400));
        ledger.release(tokens(1_000));
        // It may be needed for the next request, unless that takes longer.
        (0..2).for_each(|_| ledger.shared.beat().unwrap());
        assert_eq!(claimed(), 400);
        let other = Ledger::open(folder.path(), "other", limits).unwrap();
        other.shared.beat().unwrap();
        assert_eq!(other.total(), tokens(400));
        // Near the limit, a process claims no more than it needs.
        other.reserve(tokens(10_239_000)).unwrap().unwrap();
        assert_eq!(file(folder.path(), "other.json").claimed.tokens, 10_239_000);
    }

    #[test]
    fn a_process_is_dead_if_its_file_stands_still_and_what_it_claimed_stays_spent() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| Ledger::open(folder.path(), name, LIMITS).unwrap();
        let (one, other) = (open("one"), open("other"));
        one.reserve(tokens(600)).unwrap().unwrap();
        let refused = || other.reserve(tokens(500)).unwrap().unwrap_err();
        for _ in 0..3 * MISSED_BEATS {
            // The clock of some file systems has long ticks.
            std::thread::sleep(Duration::from_millis(5));
            one.shared.beat().unwrap();
            other.shared.beat().unwrap();
        }
        assert!(refused().may_change, "it is alive");
        assert_eq!(other.total(), tokens(0), "nothing is spent yet");
        drop(one);
        for _ in 0..=MISSED_BEATS {
            other.shared.beat().unwrap();
        }
        let hit = refused();
        assert!(!hit.may_change && hit.claimed.tokens == 600, "{hit:?}");
        assert_eq!(other.total(), tokens(0), "how much of it is spent isn't known");
    }

    #[test]
    fn what_a_killed_process_without_a_limit_has_not_written_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let killed = Ledger::open(folder.path(), "killed", MapLimits::default()).unwrap();
        killed.reserve(tokens(300)).unwrap().unwrap();
        killed.count(tokens(300));
        drop(killed);
        assert_eq!(file(folder.path(), "killed.json").spent, tokens(0));
        for name in ["one", "other"] {
            let ledger = Ledger::open(folder.path(), name, LIMITS).unwrap();
            ledger.count_recorded(tokens(300)).unwrap();
            assert_eq!(ledger.total(), tokens(300), "{name}");
            let hit = ledger.reserve(tokens(701)).unwrap().unwrap_err();
            assert_eq!((hit.limit, hit.claimed), ("tokens", tokens(300)), "{name}");
        }
    }

    #[test]
    fn a_lock_that_is_never_released_is_not_waited_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path(), "one", LIMITS).unwrap();
        let stuck = File::open(folder.path().join(LOCK_FILE)).unwrap();
        flock(&stuck, FlockOperation::LockExclusive).unwrap();
        ledger.reserve(tokens(1_000)).unwrap().unwrap();
        ledger.reserve(tokens(1)).unwrap().unwrap_err();
    }

    #[test]
    fn a_request_does_not_wait_for_reservations_that_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let usd = |cost_usd| Amount { tokens: 0, cost_usd };
        let limits = MapLimits { tokens: None, cost_usd: Some(1.0) };
        let ledger = Ledger::open(folder.path(), "one", limits).unwrap();
        // In floating point, 0.1 + 0.2 - 0.1 - 0.2 is greater than 0.
        for cost in [0.1, 0.2] {
            ledger.reserve(usd(cost)).unwrap().unwrap();
        }
        assert!(ledger.reserve(usd(0.9)).unwrap().unwrap_err().may_change);
        [0.1, 0.2].into_iter().for_each(|cost| ledger.release(usd(cost)));
        ledger.count(usd(0.3));
        assert!(!ledger.reserve(usd(0.9)).unwrap().unwrap_err().may_change, "nothing is reserved any more");
    }

    #[test]
    fn what_a_killed_process_without_a_limit_has_used_counts_for_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let killed = Ledger::open(folder.path(), "one", MapLimits::default()).unwrap();
        killed.reserve(tokens(600)).unwrap().unwrap();
        killed.count(tokens(500));
        killed.release(tokens(600));
        killed.shared.beat().unwrap();
        drop(killed);
        let limited = Ledger::open(folder.path(), "other", LIMITS).unwrap();
        limited.reserve(tokens(501)).unwrap().unwrap_err();
        limited.reserve(tokens(500)).unwrap().unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error_rather_than_free_money() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path(), "one", LIMITS).unwrap();
        let other = folder.path().join("other.json");
        let refused = |what: &str| {
            let error = ledger.reserve(tokens(1)).unwrap_err().to_string();
            assert!(error.contains("`other.json`"), "{what}: {error}");
        };
        for damaged in ["", "{\"claimed\":{\"tokens\":-1,\"cost_usd\":0},\"spent\":{\"tokens\":0,\"cost_usd\":0}}"] {
            fs::write(&other, damaged).unwrap();
            refused(damaged);
        }
        // Nor is anything that isn't a file, and none of it is waited for.
        fs::remove_file(&other).unwrap();
        std::os::unix::fs::symlink("one.json", &other).unwrap();
        refused("a link");
        fs::remove_file(&other).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&other).status().unwrap().success());
        refused("a pipe");
    }
}
