//! Writes the time to the record regularly, to show how long a killed run had been running. The journal doesn't show that: a
//! command can run for long after the last line.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;

use crate::journal::record_files::private_file_options;

/// The file, which exists while a run goes on and after it was killed.
const HEARTBEAT_FILE: &str = "heartbeat";

/// How often it is written.
const PERIOD: Duration = Duration::from_secs(1);

/// Writes the time regularly until it is dropped.
#[derive(Debug)]
pub(super) struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts writing. If the file or the thread can't be created, there is no heartbeat, only the journal.
    pub(super) fn start(record: &Path, clock: fn() -> Timestamp) -> Self {
        let (stop, stopped) = channel();
        let beat = |file: File| {
            move || {
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    // In place and always of the same length, so nothing can be left over.
                    let _ = file.write_all_at(line(clock()).as_bytes(), 0);
                }
            }
        };
        let file =
            private_file_options().create(true).truncate(false).write(true).open(record.join(HEARTBEAT_FILE)).ok();
        let file = file.filter(|file| file.write_all_at(line(clock()).as_bytes(), 0).is_ok());
        let thread =
            file.and_then(|file| std::thread::Builder::new().name(HEARTBEAT_FILE.to_owned()).spawn(beat(file)).ok());
        Self { stop: Some(stop), thread }
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
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn line(at: Timestamp) -> String {
    format!("{at:.9}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_heartbeat_stays_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Heartbeat::last(folder.path()), None);
        let at = || Timestamp::from_second(1_700_000_000).unwrap();
        drop(Heartbeat::start(folder.path(), at));
        assert_eq!(Heartbeat::last(folder.path()), Some(at()));
        fs::write(folder.path().join(HEARTBEAT_FILE), "20").unwrap();
        assert_eq!(Heartbeat::last(folder.path()), None, "half a line is invalid");
        Heartbeat::remove(folder.path());
        assert!(!folder.path().join(HEARTBEAT_FILE).exists());
    }
}
