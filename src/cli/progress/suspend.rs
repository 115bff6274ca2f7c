//! Ctrl-Z: the live lines are erased before the shell writes where they were.

use std::sync::Once;
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::output_queue;
use crate::process::job_control::is_job_of_a_shell;

/// The time that a process needs at most to stop itself.
const STOP_TIME: Duration = Duration::from_millis(20);

static STARTED: Once = Once::new();

/// Erases the live lines whenever the process is stopped from the terminal, from now on. Without a shell that can let it go
/// on, stopping stays as the system does it.
pub(super) fn erase_on_suspend() {
    STARTED.call_once(|| {
        if is_job_of_a_shell() {
            // Without a thread, the lines remain below the shell's prompt.
            let _ = thread::Builder::new().name("suspend".to_owned()).spawn(handle_signals);
        }
    });
}

fn handle_signals() {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let Ok(mut stops) = signal(SignalKind::from_raw(Signal::TSTP.as_raw())) else { return };
        while stops.recv().await.is_some() {
            // The system doesn't stop a process either that nothing can let continue.
            if is_job_of_a_shell() {
                output_queue::pause_live_lines();
                let _ = kill_process(getpid(), Signal::STOP);
                sleep(STOP_TIME);
                output_queue::resume_live_lines();
            }
        }
    });
}
