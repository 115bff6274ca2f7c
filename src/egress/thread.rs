//! The thread that serves the connections of a run, so that nothing else in this process delays them.

use std::io;
use std::sync::Mutex;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::sync::IgnorePoison;

/// How many names are resolved at once.
const MAX_RESOLVERS: usize = 32;

/// The thread. It starts with the first command, and ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct EgressThread(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    handle: Handle,
    end: CancellationToken,
    thread: JoinHandle<()>,
}

impl EgressThread {
    /// Where tasks can be started.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn handle(&self) -> io::Result<Handle> {
        let mut running = self.0.lock().ignore_poison();
        if let Some(running) = &*running {
            return Ok(running.handle.clone());
        }
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(MAX_RESOLVERS).build()?;
        let handle = runtime.handle().clone();
        let end = CancellationToken::new();
        let ended = end.clone();
        let serve = move || {
            runtime.block_on(ended.cancelled());
            // Resolvers may hang.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("egress".to_owned()).spawn(serve)?;
        *running = Some(Running { handle: handle.clone(), end, thread });
        Ok(handle)
    }
}

impl Drop for EgressThread {
    fn drop(&mut self) {
        if let Some(Running { end, thread, .. }) = self.0.get_mut().ignore_poison().take() {
            end.cancel();
            // Its own tasks can hold the last reference.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
