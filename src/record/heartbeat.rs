//! Writes the time to the record regularly, to show how long a killed run had been running. The journal doesn't show that: a
//! command can run for long after the last line.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use jiff::Timestamp;

use super::files::private_file_options;

/// The file, which exists while a run goes on and after it was killed.
const HEARTBEAT_FILE: &str = "heartbeat";

/// How often it is written.
const PERIOD: Duration = Duration::from_secs(1);

/// The time is written regularly until this is dropped.
pub(super) type Heartbeat = Sender<()>;

/// Starts writing.
///
/// # Errors
/// If the file or the thread can't be created.
pub(super) fn start(record: &Path, clock: fn() -> Timestamp) -> io::Result<Heartbeat> {
    let file = private_file_options().create(true).truncate(false).write(true).open(record.join(HEARTBEAT_FILE))?;
    // In place and always of the same length, so nothing can be left over.
    let beat = move |file: &File| file.write_all_at(format!("{:.9}\n", clock()).as_bytes(), 0);
    beat(&file)?;
    let (stop, stopped) = channel();
    std::thread::Builder::new().name(HEARTBEAT_FILE.to_owned()).spawn(move || {
        while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            let _ = beat(&file);
        }
    })?;
    Ok(stop)
}

/// The last heartbeat of a killed run.
pub(super) fn last(record: &Path) -> Option<Timestamp> {
    let path = record.join(HEARTBEAT_FILE);
    let is_plausible = |found: &fs::Metadata| found.is_file() && found.len() < 100;
    fs::symlink_metadata(&path).ok().filter(is_plausible)?;
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Removes the file because the run has ended.
pub(super) fn remove(record: &Path) {
    let _ = fs::remove_file(record.join(HEARTBEAT_FILE));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_heartbeat_stays_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last(folder.path()), None);
        let at = || Timestamp::from_second(1_700_000_000).unwrap();
        drop(start(folder.path(), at).unwrap());
        assert_eq!(last(folder.path()), Some(at()));
        fs::write(folder.path().join(HEARTBEAT_FILE), "20").unwrap();
        assert_eq!(last(folder.path()), None, "half a line is invalid");
        remove(folder.path());
        assert!(!folder.path().join(HEARTBEAT_FILE).exists());
    }
}
