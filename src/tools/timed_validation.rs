//! Validates what models send, on a thread that is abandoned if it takes too long: a recursive schema can take any time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::message::ToolError;

/// How long a validation may take. It usually takes less than a millisecond.
pub(super) const VALIDATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Permits one validation at a time, because one that takes too long can't be stopped.
#[derive(Debug)]
pub(super) struct TimedValidation(Arc<Semaphore>);

impl Default for TimedValidation {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl TimedValidation {
    /// Validates with a function that returns what is wrong.
    pub(super) async fn run(
        &self,
        timeout: Duration,
        validate: impl FnOnce() -> Result<(), ToolError> + Send + 'static,
    ) -> Result<(), ToolError> {
        let idle = tokio::time::timeout(timeout, Arc::clone(&self.0).acquire_owned());
        let Ok(Ok(permit)) = idle.await else {
            return Err(ToolError::new("Rejected. An earlier submission is still being validated."));
        };
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            validate()
        });
        match tokio::time::timeout(timeout, work).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(ToolError(format!("Rejected. Internal error in the validation: {error}"))),
            Err(_) => Err(ToolError(format!(
                "Rejected. Validating the data took longer than {} seconds, because the schema is too complex for deeply nested \
                 data. Submit data with less nesting.",
                timeout.as_secs()
            ))),
        }
    }
}
