//! The tools that work on files: what they share, and how their work is scheduled.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{parse, schema};
use super::tool::{Builtin, CallFuture, Tool, ToolContext, ToolOutput, no_options};
use super::tool_state::ToolState;
use crate::attachment::MediaSupport;
use crate::message::ToolError;
use crate::process::CallLimits;
use crate::redaction::Redactor;
use crate::workspace::Workspace;

/// How long a read-only tool may take to notice that its time is up.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// How many file tools work concurrently in this process. Each takes up to about 100 MB: a file, its changed version, and
/// the compiled patterns of ignore files.
const MAX_CONCURRENT_FILE_CALLS: usize = 8;

/// A tool without options that works on files.
pub(super) struct FileTool<I, O = String> {
    pub(super) name: &'static str,
    /// The description for the model.
    pub(super) description: &'static str,
    pub(super) reads_only: bool,
    /// Whether its results have the content of files.
    pub(super) reads_content: bool,
    /// Performs a call on a blocking thread.
    pub(super) run: fn(&I, &FileCall) -> Result<O, ToolError>,
}

/// What a call can use.
pub(super) struct FileCall {
    pub(super) workspace: Arc<Workspace>,
    pub(super) state: Arc<ToolState>,
    pub(super) redactor: Redactor,
    pub(super) limits: CallLimits,
    pub(super) media: MediaSupport,
}

impl<I, O> FileTool<I, O> {
    /// The row for [`TOOLS`](super::TOOLS).
    pub(super) const fn builtin(
        &self,
        subject_field: &'static str,
        build: fn(&Value) -> Result<Box<dyn Tool>, String>,
    ) -> Builtin {
        Builtin {
            name: self.name,
            reads_only: self.reads_only,
            starts_commands: false,
            changes_files: !self.reads_only,
            reads_content: self.reads_content,
            parent_only: false,
            subject_field: Some(subject_field),
            parse_options: no_options,
            options_schema: || None,
            build,
        }
    }
}

impl<I, O> Tool for FileTool<I, O>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Into<ToolOutput> + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> String {
        self.description.to_owned()
    }

    fn input_schema(&self) -> Value {
        schema::<I>()
    }

    fn reads_only(&self) -> bool {
        self.reads_only
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let input: I = parse(input)?;
            let call = FileCall {
                workspace: context.workspace.clone(),
                state: context.state.clone(),
                redactor: context.redactor.clone(),
                limits: context.limits.clone(),
                media: context.media,
            };
            let run = self.run;
            let work = run_blocking(move || run(&input, &call).map(Into::into));
            if self.reads_only { until_stopped(context.limits, work).await } else { work.await }
        })
    }
}

/// Runs file work on a blocking thread. At most [`MAX_CONCURRENT_FILE_CALLS`] run at the same time.
async fn run_blocking(
    work: impl FnOnce() -> Result<ToolOutput, ToolError> + Send + 'static,
) -> Result<ToolOutput, ToolError> {
    static PERMITS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(MAX_CONCURRENT_FILE_CALLS);
    // The semaphore is never closed.
    let permit = PERMITS.acquire().await.ok();
    let work = move || {
        let _permit = permit;
        work()
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ToolError(format!("internal error: {error}"))),
    }
}

/// Abandons read-only work soon after its time is up. The work checks the limits itself, but a slow disk or a slow regular
/// expression can delay that.
async fn until_stopped(
    limits: &CallLimits,
    work: impl Future<Output = Result<ToolOutput, ToolError>>,
) -> Result<ToolOutput, ToolError> {
    let timed_out = async {
        tokio::select! {
            () = limits.cancel.cancelled() => {}
            () = limits.deadline.expired() => {}
        }
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        result = work => result,
        () = timed_out => Err(ToolError::new(limits.stop_reason().unwrap_or("the run's time is up"))),
    }
}
