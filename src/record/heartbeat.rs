//! A sign of life in the record: until when a run that was killed had run. The journal says so only up to its last line,
//! and a command can run for long after that.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;

use super::private_file_options;

/// The file, there only while a run goes on, and after it was killed.
const HEARTBEAT_FILE: &str = "heartbeat";

/// How often it is written.
const PERIOD: Duration = Duration::from_secs(1);

/// Writes the time again and again, until it is dropped.
#[derive(Debug)]
pub(super) struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Begins. A disk that doesn't take it, or a system without another thread, has none; then the journal has to do.
    pub(super) fn begin(record: &Path, clock: fn() -> Timestamp) -> Self {
        let (stop, stopped) = channel();
        let beat = |file: File| {
            move || {
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    // In place, with always the same length: no operation that can leave anything behind.
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

    /// When the last one was, in a record of a run that was killed.
    pub(super) fn last(record: &Path) -> Option<Timestamp> {
        let path = record.join(HEARTBEAT_FILE);
        let is_ours = |found: &fs::Metadata| found.is_file() && found.len() < 100;
        fs::symlink_metadata(&path).ok().filter(is_ours)?;
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Takes the file away: the run has ended.
    pub(super) fn forget(record: &Path) {
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
    fn the_last_one_stays_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Heartbeat::last(folder.path()), None);
        let at = || Timestamp::from_second(1_700_000_000).unwrap();
        drop(Heartbeat::begin(folder.path(), at));
        assert_eq!(Heartbeat::last(folder.path()), Some(at()));
        fs::write(folder.path().join(HEARTBEAT_FILE), "20").unwrap();
        assert_eq!(Heartbeat::last(folder.path()), None, "half a line is none");
        Heartbeat::forget(folder.path());
        assert!(!folder.path().join(HEARTBEAT_FILE).exists());
    }
}
