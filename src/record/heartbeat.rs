//! How a process shows that it is alive, and how others notice that it isn't: it changes a file once a second, and is dead for
//! those who see the file stand still for ten of these beats. Nobody compares clocks.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a process shows that it is alive.
pub const BEAT: Duration = Duration::from_secs(1);
/// For how many beats the file of a dead process stands still.
pub const MISSED_BEATS: u32 = 10;

/// A thread that shows that this process is alive until this is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Calls `beat` again and again, for the first time after the interval. `name` is that of the thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(name: &str, interval: Duration, mut beat: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                beat();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Heartbeat {
    /// Waits for a beat that has begun.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What another process shows, and for how many beats of this one it hasn't changed.
#[derive(Debug)]
pub struct ObservedPeer<T> {
    /// What was seen last.
    pub seen: T,
    missed: u32,
}

impl<T: PartialEq> ObservedPeer<T> {
    /// A process that was seen for the first time.
    pub fn new(seen: T) -> Self {
        Self { seen, missed: 0 }
    }

    /// Notes what the process shows now.
    pub fn see(&mut self, now: T) {
        if now != self.seen {
            *self = Self::new(now);
        }
    }

    /// Counts a beat of this process.
    pub fn beat(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }

    /// Whether the process has missed so many beats that it is dead.
    pub fn is_silent(&self) -> bool {
        self.missed >= MISSED_BEATS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_missed_beats_are_too_many_and_a_change_is_a_sign_of_life() {
        let mut other = ObservedPeer::new(1);
        for _ in 0..MISSED_BEATS {
            assert!(!other.is_silent());
            other.see(1);
            other.beat();
        }
        assert!(other.is_silent());
        other.see(2);
        assert!(!other.is_silent());
    }

    #[test]
    fn no_beat_follows_the_end() {
        let (beat, beats) = channel();
        let beat = move || {
            let _ = beat.send(());
        };
        let heart = Heartbeat::start("test", Duration::from_millis(1), beat).unwrap();
        beats.recv().unwrap();
        drop(heart);
        // The thread has ended, and its sender with it.
        while beats.try_recv().is_ok() {}
        assert_eq!(beats.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }
}
