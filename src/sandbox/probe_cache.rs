//! Remembers which probes of bubblewrap have succeeded on this machine.
//!
//! A run whose probe has succeeded before sends its first request while the probe runs again. The first command still waits for
//! it. So a wrong entry costs at most one request, and failures aren't remembered: they would make a run use another tier.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::policy::SandboxPolicy;
use super::protected_paths::canonical_as_far_as_possible;
use crate::sync::IgnorePoison;
use crate::text::hex;
use crate::workspace::new_file::replace_file;

/// The most entries that are kept.
const MAX_ENTRIES: usize = 32;
/// The length of an entry: a SHA-256 in hexadecimal digits.
const KEY_DIGITS: usize = 64;
/// The namespaces that this process is in.
const NAMESPACES: [&str; 6] = ["user", "mnt", "pid", "net", "ipc", "cgroup"];
/// Files of `/proc` that say what the kernel lets this process do.
const PROCESS_STATE: [&str; 2] = ["/proc/self/attr/current", "/proc/self/uid_map"];
/// The lines of `/proc/self/status` that say the same.
const STATUS_FIELDS: [&str; 6] = ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp:"];

/// The probes that have succeeded since this process was started, newest first.
static SUCCEEDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn succeeded() -> MutexGuard<'static, Vec<String>> {
    SUCCEEDED.lock().ignore_poison()
}

/// The file with one entry a line, newest first.
#[derive(Debug, Clone)]
pub(super) struct ProbeCache {
    file: PathBuf,
}

/// The entry of one probe, which may be missing.
#[derive(Debug, Clone)]
pub(super) struct CachedProbe {
    cache: ProbeCache,
    key: String,
}

impl ProbeCache {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// The entry of a probe: of its `setup`, the programs that it starts, this version of legwork, the running system and what
    /// that lets this process do. `None` if commands can write to the file, or if the system can't be identified.
    pub(super) fn probe(&self, setup: &str, programs: &[&Path], policy: &SandboxPolicy) -> Option<CachedProbe> {
        let file = canonical_as_far_as_possible(&self.file);
        if policy.writable_roots().any(|root| file.starts_with(canonical_as_far_as_possible(root))) {
            return None;
        }
        let mut key = Sha256::new();
        let mut add = |part: &str| {
            key.update(part.len().to_le_bytes());
            key.update(part);
        };
        add(env!("CARGO_PKG_VERSION"));
        add(&fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?);
        add(setup);
        for path in programs.iter().copied().chain([Path::new("/")]) {
            let metadata = fs::metadata(path).ok()?;
            add(&format!("{path:?} {}", identity(&metadata)));
        }
        for name in NAMESPACES {
            add(&format!("{:?}", fs::read_link(format!("/proc/self/ns/{name}")).ok()?));
        }
        for path in PROCESS_STATE {
            // A kernel without security modules has no such attribute.
            add(&format!("{:?}", fs::read_to_string(path).ok()));
        }
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let is_relevant = |line: &&str| STATUS_FIELDS.iter().any(|field| line.starts_with(field));
        status.lines().filter(is_relevant).for_each(add);
        Some(CachedProbe { cache: self.clone(), key: hex(&key.finalize()) })
    }

    /// The entries; none if the file isn't there, or if someone else could have written it.
    fn read(&self) -> Vec<String> {
        let is_own =
            |metadata: &Metadata| metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
        let folder = self.file.parent().and_then(|folder| folder.metadata().ok());
        if !folder.is_some_and(|folder| is_own(&folder)) {
            return Vec::new();
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let Ok(file) = options.open(&self.file) else { return Vec::new() };
        let mut text = String::new();
        let max_bytes = MAX_ENTRIES * (KEY_DIGITS + 1);
        let is_readable = file.metadata().is_ok_and(|metadata| metadata.is_file() && is_own(&metadata))
            && file.take(max_bytes as u64 + 1).read_to_string(&mut text).is_ok();
        if !is_readable || text.len() > max_bytes {
            return Vec::new();
        }
        let is_key = |line: &&str| line.len() == KEY_DIGITS && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        text.lines().filter(is_key).map(ToOwned::to_owned).collect()
    }

    /// Replaces the file as a whole. Of several runs that do so at once, one wins.
    fn write(&self, entries: &[String]) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(&self.file);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lines: String = entries.iter().take(MAX_ENTRIES).map(|entry| format!("{entry}\n")).collect();
        replace_file(&self.file, 0o600, lines.as_bytes())
    }
}

impl CachedProbe {
    /// Whether the probe has succeeded in this process, for another row of a map. It isn't repeated then.
    pub(super) fn has_succeeded_now(&self) -> bool {
        succeeded().contains(&self.key)
    }

    /// Whether the probe has succeeded before, perhaps in another process.
    pub(super) fn has_succeeded(&self) -> bool {
        self.cache.read().contains(&self.key)
    }

    /// Remembers the probe in this process.
    pub(super) fn remember_now(self) {
        let mut succeeded = succeeded();
        if !succeeded.contains(&self.key) {
            succeeded.insert(0, self.key);
            succeeded.truncate(MAX_ENTRIES);
        }
    }

    /// Adds the entry to the file, too. If that fails, the next run waits for its probe again.
    pub(super) fn remember(self) {
        self.clone().remember_now();
        let mut entries = self.cache.read();
        entries.retain(|entry| *entry != self.key);
        entries.insert(0, self.key);
        let _ = self.cache.write(&entries);
    }

    /// Removes the entry, with the whole file if it can't be rewritten.
    pub(super) fn forget(self) {
        let mut entries = self.cache.read();
        entries.retain(|entry| *entry != self.key);
        if self.cache.write(&entries).is_err() {
            let _ = fs::remove_file(&self.cache.file);
        }
    }
}

/// What changes when a file is replaced or written.
fn identity(metadata: &Metadata) -> String {
    let times = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec());
    // A folder changes when something is put into it.
    let changes = (!metadata.is_dir()).then_some((metadata.size(), times));
    format!("{} {} {} {} {changes:?}", metadata.dev(), metadata.ino(), metadata.mode(), metadata.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn probe(file: &Path, key: &str) -> CachedProbe {
        CachedProbe { cache: ProbeCache::new(file.to_owned()), key: hex(&Sha256::digest(key)) }
    }

    #[test]
    fn successes_are_remembered_until_they_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("legwork/sandbox-probes");
        assert!(!probe(&file, "a").has_succeeded());
        probe(&file, "a").remember();
        probe(&file, "b").remember();
        assert!(probe(&file, "a").has_succeeded() && probe(&file, "b").has_succeeded());
        assert!(!probe(&file, "c").has_succeeded());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        probe(&file, "a").forget();
        assert!(!probe(&file, "a").has_succeeded() && probe(&file, "b").has_succeeded());
        for number in 0..MAX_ENTRIES {
            probe(&file, &number.to_string()).remember();
        }
        assert!(!probe(&file, "b").has_succeeded(), "the oldest entry is dropped");
        assert!(probe(&file, "0").has_succeeded());
    }

    #[test]
    fn a_file_that_others_could_have_written_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("legwork");
        let file = own.join("sandbox-probes");
        probe(&file, "a").remember();
        let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (path, closed, open) in [(&file, 0o600, 0o622), (&file, 0o600, 0o620), (&own, 0o700, 0o777)] {
            set_mode(path, open);
            assert!(!probe(&file, "a").has_succeeded(), "{path:?} {open:o}");
            set_mode(path, closed);
            assert!(probe(&file, "a").has_succeeded(), "{path:?} {closed:o}");
        }
        fs::rename(&file, own.join("other")).unwrap();
        symlink(own.join("other"), &file).unwrap();
        assert!(!probe(&file, "a").has_succeeded(), "a link");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(!probe(&file, "a").has_succeeded(), "a folder");
        fs::remove_dir(&file).unwrap();
        let line = probe(&file, "a").key;
        for (text, counts) in
            [(format!("x\n{line}\n"), true), (format!("{line}x\n"), false), (format!("{line}\n").repeat(40), false)]
        {
            fs::write(&file, text).unwrap();
            set_mode(&file, 0o600);
            assert_eq!(probe(&file, "a").has_succeeded(), counts);
        }
    }
}
