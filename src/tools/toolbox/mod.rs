//! What one agent can do: exactly the tools of its allowlist.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::environment::Environment;
use super::{FileVersion, TOOLS, TodoItem, Tool, ToolContext, ToolError, ToolGrant, ToolSpec, ToolState};
use crate::diagnostic::suggest_name;
use crate::message::{ToolCall, ToolResult};
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
pub use crate::text::truncate::truncate_middle;
use crate::workspace::Workspace;

/// The longest text of a result, in characters.
pub const MAX_RESULT_CHARS: usize = 50_000;

/// When a call must be over.
#[derive(Debug, Clone)]
pub struct CallLimits {
    /// When the run's time is up.
    pub deadline: Instant,
    /// Fires when the run ends early.
    pub cancel: CancellationToken,
}

impl CallLimits {
    /// Why the call must stop now, if it must.
    pub(crate) fn stop_reason(&self) -> Option<&'static str> {
        if self.cancel.is_cancelled() {
            Some("the run was cancelled")
        } else if Instant::now() >= self.deadline {
            Some("the run's time is up")
        } else {
            None
        }
    }
}

/// The tools of one agent, with what it remembers.
pub struct Toolbox {
    tools: Vec<Box<dyn Tool>>,
    workspace: Arc<Workspace>,
    mask: Arc<Redactor>,
    environment: Arc<Environment>,
    sandbox: Arc<Sandbox>,
    memory: ToolState,
}

impl Toolbox {
    /// Makes the granted tools, in their order.
    ///
    /// # Errors
    /// Says which grant names no tool, or has options that its tool doesn't take.
    pub fn new(
        grants: &[ToolGrant],
        workspace: Arc<Workspace>,
        mask: Arc<Redactor>,
        environment: Arc<Environment>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Self, String> {
        let make = |grant: &ToolGrant| {
            let known = TOOLS.iter().find(|tool| tool.name == grant.name);
            known
                .ok_or_else(|| format!("there is no tool `{}`", grant.name))
                .and_then(|tool| (tool.build)(&grant.options))
        };
        let tools = grants.iter().map(make).collect::<Result<_, _>>()?;
        let memory = ToolState::new(Arc::clone(&mask));
        Ok(Self { tools, workspace, mask, environment, sandbox, memory })
    }

    /// Adds a tool that is only known at run time. It takes the place of one with the same name.
    pub fn add(&mut self, tool: Box<dyn Tool>) {
        match self.tools.iter_mut().find(|known| known.name() == tool.name()) {
            Some(known) => *known = tool,
            None => self.tools.push(tool),
        }
    }

    /// Puts something in the place of each tool, under the same name.
    #[must_use]
    pub fn map(mut self, replace: impl FnMut(Box<dyn Tool>) -> Box<dyn Tool>) -> Self {
        self.tools = self.tools.into_iter().map(replace).collect();
        self
    }

    /// What the model is told, in the order of the allowlist.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| ToolSpec::of(tool.as_ref())).collect()
    }

    /// Whether there is such a tool and it changes nothing.
    pub fn reads_only(&self, name: &str) -> bool {
        self.find(name).is_some_and(Tool::reads_only)
    }

    /// Whether there is such a tool.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The agent's plan, as its last call of `todo` left it.
    pub fn todo(&self) -> Vec<TodoItem> {
        self.memory.todo()
    }

    /// Remembers what a call that was answered before the run was cut off left in the agent's memory.
    pub fn restore_state(&self, call: &ToolCall, result: &ToolResult, seen: Option<&FileVersion>) {
        if let Some(seen) = seen {
            self.memory.restore_version(seen);
        }
        if let Some(tool) = self.find(&call.tool).filter(|_| !result.is_error && call.input_error.is_none()) {
            tool.restore_state(&call.input, &self.memory);
        }
    }

    /// Answers a call, and tells which file the agent has seen by it. Whatever the model got wrong, and a tool that
    /// panics, is an answer with `is_error`. The text is masked, then bounded to [`MAX_CHARS`].
    pub async fn call(&self, call: &ToolCall, limits: CallLimits) -> (ToolResult, Option<FileVersion>) {
        let memory = Arc::new(self.memory.for_call());
        let (text, is_error) = match self.run(call, &memory, &limits).await {
            Ok(text) => (text, false),
            Err(ToolError(text)) => (text, true),
        };
        let text = match self.mask.redact(&text) {
            std::borrow::Cow::Owned(masked) => masked,
            std::borrow::Cow::Borrowed(_) => text,
        };
        (
            ToolResult { call_id: call.id.clone(), text: truncate_middle(text, MAX_RESULT_CHARS), is_error },
            memory.seen(),
        )
    }

    async fn run(&self, call: &ToolCall, memory: &Arc<ToolState>, limits: &CallLimits) -> Result<String, ToolError> {
        let Some(tool) = self.find(&call.tool) else { return Err(self.unknown(&call.tool)) };
        if let Some(why) = &call.input_error {
            return Err(ToolError(why.clone()));
        }
        self.workspace.check_not_moved().map_err(|error| ToolError(error.to_string()))?;
        let scope = ToolContext {
            call_id: &call.id,
            workspace: &self.workspace,
            state: memory,
            mask: &self.mask,
            environment: &self.environment,
            sandbox: &self.sandbox,
            limits,
        };
        // A tool that panics must not take the run with it; what it shares is locked without fear of poison.
        let answer = AssertUnwindSafe(async { tool.call(&call.input, &scope).await }).catch_unwind().await;
        answer.unwrap_or_else(|_| Err(ToolError(format!("`{}` broke on this input", call.tool))))
    }

    fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().map(Box::as_ref).find(|tool| tool.name() == name)
    }

    fn unknown(&self, name: &str) -> ToolError {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        let name: String = name.chars().take(100).collect();
        let meant = suggest_name(&name, names.iter().copied())
            .map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
        if names.is_empty() {
            return ToolError(format!("there is no tool `{name}`: you have no tools"));
        }
        ToolError(format!("there is no tool `{name}`{meant}; there are: {}", names.join(", ")))
    }
}

#[cfg(test)]
pub(crate) mod tests;
