//! The async runtime that runs agents.

use crate::error::Error;

/// Starts an async runtime on the current thread.
///
/// # Errors
/// The system has no descriptors left.
pub fn start_runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::environment("the async runtime can't be started"))
}
