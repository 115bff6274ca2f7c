//! What one agent can do: exactly the tools of its allowlist.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

pub use super::bounds::bounded;
use super::environment::Environment;
use super::workspace::Workspace;
use super::{Grant, Memory, Refusal, Scope, Seen, TOOLS, TodoItem, Tool, ToolSpec};
use crate::diagnostic::nearest;
use crate::mask::Mask;
use crate::message::{ToolCall, ToolResult};
use crate::sandbox::Sandbox;

/// The longest text of a result, in characters.
pub const MAX_CHARS: usize = 50_000;

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
    pub(super) fn over(&self) -> Option<&'static str> {
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
    mask: Arc<Mask>,
    environment: Arc<Environment>,
    sandbox: Arc<Sandbox>,
    memory: Memory,
}

impl Toolbox {
    /// Makes the granted tools, in their order.
    ///
    /// # Errors
    /// Says which grant names no tool, or has options that its tool doesn't take.
    pub fn new(
        grants: &[Grant],
        workspace: Arc<Workspace>,
        mask: Arc<Mask>,
        environment: Arc<Environment>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Self, String> {
        let make = |grant: &Grant| {
            let known = TOOLS.iter().find(|tool| tool.name == grant.name);
            known
                .ok_or_else(|| format!("there is no tool `{}`", grant.name))
                .and_then(|tool| (tool.build)(&grant.options))
        };
        let tools = grants.iter().map(make).collect::<Result<_, _>>()?;
        let memory = Memory::new(Arc::clone(&mask));
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
    pub fn recall(&self, call: &ToolCall, result: &ToolResult, seen: Option<&Seen>) {
        if let Some(seen) = seen {
            self.memory.recall(seen);
        }
        if let Some(tool) = self.find(&call.tool).filter(|_| !result.is_error && call.broken.is_none()) {
            tool.recall(&call.input, &self.memory);
        }
    }

    /// Answers a call, and tells which file the agent has seen by it. Whatever the model got wrong, and a tool that
    /// panics, is an answer with `is_error`. The text is masked, then bounded to [`MAX_CHARS`].
    pub async fn call(&self, call: &ToolCall, limits: CallLimits) -> (ToolResult, Option<Seen>) {
        let memory = Arc::new(self.memory.for_call());
        let (text, is_error) = match self.run(call, &memory, &limits).await {
            Ok(text) => (text, false),
            Err(Refusal(text)) => (text, true),
        };
        let text = match self.mask.text(&text) {
            std::borrow::Cow::Owned(masked) => masked,
            std::borrow::Cow::Borrowed(_) => text,
        };
        (ToolResult { call_id: call.id.clone(), text: bounded(text, MAX_CHARS), is_error }, memory.seen())
    }

    async fn run(&self, call: &ToolCall, memory: &Arc<Memory>, limits: &CallLimits) -> Result<String, Refusal> {
        let Some(tool) = self.find(&call.tool) else { return Err(self.unknown(&call.tool)) };
        if let Some(why) = &call.broken {
            return Err(Refusal(why.clone()));
        }
        self.workspace.is_there().map_err(|error| Refusal(error.to_string()))?;
        let scope = Scope {
            call_id: &call.id,
            workspace: &self.workspace,
            memory,
            mask: &self.mask,
            environment: &self.environment,
            sandbox: &self.sandbox,
            limits,
        };
        // A tool that panics must not take the run with it; what it shares is locked without fear of poison.
        let answer = AssertUnwindSafe(async { tool.call(&call.input, &scope).await }).catch_unwind().await;
        answer.unwrap_or_else(|_| Err(Refusal(format!("`{}` broke on this input", call.tool))))
    }

    fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().map(Box::as_ref).find(|tool| tool.name() == name)
    }

    fn unknown(&self, name: &str) -> Refusal {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        let name: String = name.chars().take(100).collect();
        let meant =
            nearest(&name, names.iter().copied()).map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
        if names.is_empty() {
            return Refusal(format!("there is no tool `{name}`: you have no tools"));
        }
        Refusal(format!("there is no tool `{name}`{meant}; there are: {}", names.join(", ")))
    }
}

#[cfg(test)]
pub(crate) mod tests;
