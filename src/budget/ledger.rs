//! The budget of a map, shared by all processes that run its rows. Each process has a file of its own with the most that it
//! may have used. It raises that claim before it asks a model, reads the claims of all others, and takes it back if together
//! they exceed the limit. So no lock is needed, and what a killed process had claimed counts as spent. A process that has no
//! limit writes what it has used whenever a row ends, for later ones with a limit.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::record::{remove_abandoned_files, replace_shared_file};

/// The suffix of the files.
const SUFFIX: &str = ".json";
/// The greatest size of a file in bytes.
const MAX_FILE_BYTES: u64 = 10_000;
/// How many files are read at most: one for each process that was ever started.
const MAX_FILES: usize = 100_000;
/// How long what was used isn't written again, so that a map with many short rows doesn't spend its time on that.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(200);
/// A process claims this part of a limit at once, so that it rarely has to write.
const CHUNKS: u64 = 256;

/// Tokens and dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spend {
    /// Input and output tokens.
    pub tokens: u64,
    /// US dollars.
    pub cost_usd: f64,
}

impl Spend {
    fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost_usd: self.cost_usd + other.cost_usd }
    }

    fn minus(self, other: Self) -> Self {
        // Sums of fractions don't return to exactly 0.
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost_usd: (self.cost_usd - other.cost_usd).max(0.0) }
    }
}

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
    fn exceeded(&self, spend: Spend) -> Option<&'static str> {
        // Prices are decimal fractions, which a sum meets only nearly.
        const EPSILON: f64 = 1e-9;
        match (self.tokens, self.cost_usd) {
            (Some(limit), _) if spend.tokens > limit => Some("tokens"),
            (_, Some(limit)) if spend.cost_usd > limit + EPSILON => Some("cost_usd"),
            _ => None,
        }
    }

    /// How much a process claims at once.
    fn chunk(&self) -> Spend {
        Spend {
            tokens: self.tokens.unwrap_or_default() / CHUNKS,
            cost_usd: self.cost_usd.unwrap_or_default() / CHUNKS as f64,
        }
    }
}

/// What a process's file holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Claim {
    /// What it may have used at most.
    claimed: Spend,
    /// What it has used for certain.
    spent: Spend,
}

/// The part of this process in the budget of a map.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    name: String,
    limits: MapLimits,
    own: Mutex<OwnSpend>,
}

#[derive(Debug, Default)]
struct OwnSpend {
    /// What the file says.
    claimed: Spend,
    spent: Spend,
    reserved: Spend,
    /// How many reservations there are. Sums of fractions don't return to exactly 0.
    reservations: usize,
    last_checkpoint: Option<Instant>,
    /// The names of the other processes' files. No file is ever removed, but a listing may leave out one that is replaced
    /// meanwhile.
    others: BTreeSet<String>,
}

impl OwnSpend {
    fn add_reservation(&mut self, request: Spend) {
        self.reserved = self.reserved.plus(request);
        self.reservations += 1;
    }
}

/// A limit of a map that leaves no room.
#[derive(Debug, Clone, PartialEq)]
pub struct MapLimitHit {
    /// Its key: `tokens` or `cost_usd`.
    pub limit: &'static str,
    /// What all processes have claimed.
    pub claimed: Spend,
    /// Whether part of it is only reserved by this process and may be returned.
    pub may_change: bool,
}

impl Ledger {
    /// Opens the ledger in a folder, which is created if need be. `name` is a new name for the file of this process.
    ///
    /// # Errors
    /// If the folder or the file can't be written.
    pub fn open(folder: &Path, name: &str, limits: MapLimits) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        remove_abandoned_files(folder);
        let ledger = Self { folder: folder.to_owned(), name: format!("{name}{SUFFIX}"), limits, own: Mutex::default() };
        ledger.write(Claim::default())?;
        Ok(ledger)
    }

    /// Reserves what a request may use at most. `Ok(Err(...))` if the limit leaves no room for it.
    ///
    /// # Errors
    /// If the files can't be read or written; nothing is reserved then.
    pub fn reserve(&self, request: Spend) -> io::Result<Result<(), MapLimitHit>> {
        let mut own = self.lock();
        // Without a limit, there is nothing to compare, and what was used is written at the end.
        if self.limits == MapLimits::default() {
            own.add_reservation(request);
            return Ok(Ok(()));
        }
        let needed = own.spent.plus(own.reserved).plus(request);
        if needed.tokens > own.claimed.tokens || needed.cost_usd > own.claimed.cost_usd {
            let before = own.claimed;
            let wished = needed.plus(self.limits.chunk());
            let mut hit = None;
            // If even the claims of the others leave no room, nothing needs to be written.
            let all = self.others(&mut own)?.plus(needed);
            if let Some(limit) = self.limits.exceeded(all) {
                let may_change = own.reservations > 0;
                return Ok(Err(MapLimitHit { limit, claimed: all.minus(request), may_change }));
            }
            // Near the limit there is no room for more than the request itself.
            for claimed in [wished, needed] {
                self.write(Claim { claimed, spent: own.spent })?;
                let all = self.others(&mut own)?.plus(claimed);
                hit = self.limits.exceeded(all).map(|limit| (limit, all));
                if hit.is_none() {
                    own.claimed = claimed;
                    break;
                }
            }
            if let Some((limit, all)) = hit {
                self.write(Claim { claimed: before, spent: own.spent })?;
                let may_change = own.reservations > 0;
                return Ok(Err(MapLimitHit { limit, claimed: all.minus(request), may_change }));
            }
        }
        own.add_reservation(request);
        Ok(Ok(()))
    }

    /// Counts what a request has really used.
    pub fn count(&self, used: Spend) {
        let mut own = self.lock();
        own.spent = own.spent.plus(used);
    }

    /// Returns a reservation.
    pub fn release(&self, reserved: Spend) {
        let mut own = self.lock();
        own.reservations = own.reservations.saturating_sub(1);
        own.reserved = if own.reservations == 0 { Spend::default() } else { own.reserved.minus(reserved) };
    }

    /// Writes what was used so far, if there are no limits: then nothing is claimed in advance. A later start with a limit
    /// counts it, also if this process is killed. Writes at most once in [`CHECKPOINT_INTERVAL`].
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn checkpoint(&self) -> io::Result<()> {
        let mut own = self.lock();
        let is_early = own.last_checkpoint.is_some_and(|last| last.elapsed() < CHECKPOINT_INTERVAL);
        if is_early || self.limits != MapLimits::default() || own.spent == own.claimed {
            return Ok(());
        }
        own.last_checkpoint = Some(Instant::now());
        self.store(own)
    }

    /// Returns what this process has claimed and not used.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn close(&self) -> io::Result<()> {
        self.store(self.lock())
    }

    /// Claims no more than what is used and reserved.
    fn store(&self, mut own: MutexGuard<'_, OwnSpend>) -> io::Result<()> {
        own.claimed = own.spent.plus(own.reserved);
        self.write(Claim { claimed: own.claimed, spent: own.spent })
    }

    /// What all processes have used or may have used.
    ///
    /// # Errors
    /// If the files can't be read.
    pub fn total(&self) -> io::Result<Spend> {
        let mut own = self.lock();
        Ok(self.others(&mut own)?.plus(own.claimed))
    }

    fn lock(&self) -> MutexGuard<'_, OwnSpend> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claims of all other processes.
    fn others(&self, own: &mut OwnSpend) -> io::Result<Spend> {
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let name = name.to_str().filter(|name| name.ends_with(SUFFIX) && **name != *self.name);
            own.others.extend(name.map(str::to_owned));
            if own.others.len() > MAX_FILES {
                return Err(io::Error::other(format!("`{}` has too many files", self.folder.display())));
            }
        }
        own.others.iter().try_fold(Spend::default(), |sum, name| {
            let claim = read_claim(&self.folder.join(name))
                .map_err(|error| io::Error::new(error.kind(), format!("`{name}` in the map's ledger: {error}")))?;
            Ok(sum.plus(claim.claimed))
        })
    }

    /// Writes the file of this process so that others see it complete.
    fn write(&self, claim: Claim) -> io::Result<()> {
        let is_durable = self.limits != MapLimits::default();
        replace_shared_file(&self.folder, &self.name, is_durable, &mut |out| {
            serde_json::to_writer(out, &claim).map_err(Into::into)
        })
    }
}

fn read_claim(path: &Path) -> io::Result<Claim> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    let claim: Claim = serde_json::from_str(&text)?;
    let is_valid = |spend: Spend| spend.cost_usd.is_finite() && spend.cost_usd >= 0.0;
    match is_valid(claim.claimed) && is_valid(claim.spent) {
        true => Ok(claim),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the cost isn't a positive number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MapLimits = MapLimits { tokens: Some(1_000), cost_usd: None };

    fn tokens(tokens: u64) -> Spend {
        Spend { tokens, cost_usd: 0.0 }
    }

    #[test]
    fn the_claims_of_all_processes_stay_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| Ledger::open(folder.path(), name, LIMITS).unwrap();
        let (one, other) = (open("one"), open("other"));
        one.reserve(tokens(600)).unwrap().unwrap();
        let hit = other.reserve(tokens(500)).unwrap().unwrap_err();
        assert_eq!((hit.limit, hit.may_change), ("tokens", false));
        other.reserve(tokens(390)).unwrap().unwrap();
        one.count(tokens(100));
        one.release(tokens(600));
        one.close().unwrap();
        other.reserve(tokens(500)).unwrap().unwrap();
        let total = other.total().unwrap().tokens;
        assert!((990..=993).contains(&total), "a little more than was asked for is claimed: {total}");
        // It is killed: its file stays, and so does its claim.
        drop(other);
        let third = open("third");
        third.reserve(tokens(11)).unwrap().unwrap_err();
        third.reserve(tokens(1_000 - total)).unwrap().unwrap();
    }

    #[test]
    fn many_processes_at_once_never_claim_more_than_the_limit() {
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
        assert!(reserved > 500, "{reserved}");
    }

    #[test]
    fn a_request_does_not_wait_for_reservations_that_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let usd = |cost_usd| Spend { tokens: 0, cost_usd };
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
        killed.checkpoint().unwrap();
        let limited = Ledger::open(folder.path(), "other", LIMITS).unwrap();
        limited.reserve(tokens(501)).unwrap().unwrap_err();
        limited.reserve(tokens(500)).unwrap().unwrap();
        // A limit claims in advance, so a row that ends returns nothing of it.
        limited.checkpoint().unwrap();
        assert_eq!(limited.total().unwrap(), tokens(1_000));
    }

    #[test]
    fn a_damaged_file_is_an_error_rather_than_free_money() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path(), "one", LIMITS).unwrap();
        for damaged in ["", "{\"claimed\":{\"tokens\":-1,\"cost_usd\":0},\"spent\":{\"tokens\":0,\"cost_usd\":0}}"] {
            fs::write(folder.path().join("other.json"), damaged).unwrap();
            assert!(ledger.reserve(tokens(1)).unwrap_err().to_string().contains("`other.json`"), "{damaged}");
        }
    }
}
