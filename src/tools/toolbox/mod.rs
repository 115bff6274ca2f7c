//! The tools of one agent.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt;
use serde_json::value::RawValue;

use super::TOOLS;
use super::server_tool::ToolServers;
pub use super::tool::MAX_RESULT_CHARS;
use super::tool::{Tool, ToolContext, ToolGrant, ToolOutput, ToolSpec};
use super::tool_state::{FileVersion, ToolState};
use crate::attachment::{Attachment, AttachmentTotals, MediaSupport};
use crate::diagnostic::suggest_name;
use crate::egress::{CallEgress, CallTraffic, Egress};
use crate::job::{GitAccess, SERVER_SEPARATOR};
use crate::message::{ToolCall, ToolError, ToolResult};
use crate::outputs::Proposal;
pub use crate::process::CallLimits;
use crate::process::Environment;
use crate::process::spawn::EnvironmentError;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::sync::IgnorePoison;
pub use crate::text::truncate::truncate_middle;
use crate::workspace::Workspace;

/// What tools and checks work with.
#[derive(Debug, Clone)]
pub struct ToolDeps {
    /// The folder that they work in.
    pub workspace: Arc<Workspace>,
    /// The secrets that must not appear in their output.
    pub redactor: Arc<Redactor>,
    /// The environment variables that commands see.
    pub environment: Arc<Environment>,
    /// How commands are confined.
    pub sandbox: Arc<Sandbox>,
    /// The way out of commands; `None` if they reach nothing or everything.
    pub egress: Option<Egress>,
    /// The tool servers; `None` if none runs.
    pub servers: Option<Arc<dyn ToolServers>>,
    /// The files that steps before the agent have left, which tools can read by their absolute paths.
    pub files: Option<Arc<Workspace>>,
}

/// How a call ended.
#[derive(Debug)]
pub struct CallOutcome {
    /// What the model reads.
    pub result: ToolResult,
    /// The file that the agent has seen.
    pub file_version: Option<FileVersion>,
    /// What the call proposes to do outside.
    pub proposal: Option<Proposal>,
    /// Why the run must end, if it must.
    pub failure: Option<EnvironmentError>,
}

/// The tools of one agent, and its state.
pub struct Toolbox {
    tools: Vec<Box<dyn Tool>>,
    deps: ToolDeps,
    state: ToolState,
    /// Which files the agent's model takes.
    media: MediaSupport,
    /// The images and documents of the agent's conversation.
    attached: Mutex<AttachmentTotals>,
    /// What the job lets commands change in git folders.
    git: Option<GitAccess>,
}

impl Toolbox {
    /// Creates the granted tools.
    ///
    /// # Errors
    /// If a grant names an unknown tool, or has options that its tool doesn't accept.
    pub fn new(grants: &[ToolGrant], deps: ToolDeps) -> Result<Self, String> {
        let build = |grant: &ToolGrant| {
            let known = TOOLS.iter().find(|tool| tool.name == grant.name);
            known.ok_or_else(|| format!("unknown tool `{}`", grant.name)).and_then(|tool| (tool.build)(&grant.options))
        };
        let tools = grants.iter().map(build).collect::<Result<_, _>>()?;
        let state = ToolState::new(Arc::clone(&deps.redactor));
        Ok(Self { tools, deps, state, media: MediaSupport::default(), attached: Mutex::default(), git: None })
    }

    /// Tells the model what commands may change in git folders.
    pub fn set_git(&mut self, git: GitAccess) {
        self.git = Some(git);
    }

    /// Sets which files the agent's model takes. Without it, results are text only.
    pub fn set_media(&mut self, media: MediaSupport) {
        self.media = media;
    }

    /// Sets the images and documents that the conversation has. Together they are bounded.
    pub fn set_attached<'a>(&self, attachments: impl IntoIterator<Item = &'a Attachment>) {
        let mut totals = AttachmentTotals::default();
        attachments.into_iter().for_each(|attachment| totals.add(attachment));
        *self.attached.lock().ignore_poison() = totals;
    }

    /// Adds an image or a document to the conversation, if the model takes it and there is room for it.
    fn attach(&self, attachment: &Attachment) -> Result<(), String> {
        if !self.media.takes(attachment.media_type) {
            return Err("this model doesn't take it".to_owned());
        }
        self.attached.lock().ignore_poison().try_add(attachment)
    }

    /// Adds a tool, or replaces the one with the same name.
    pub fn add(&mut self, tool: Box<dyn Tool>) {
        match self.tools.iter_mut().find(|known| known.name() == tool.name()) {
            Some(known) => *known = tool,
            None => self.tools.push(tool),
        }
    }

    /// The tools as the model sees them.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| ToolSpec::with_git_rules(tool.as_ref(), self.git)).collect()
    }

    /// Whether the tool exists and changes nothing.
    pub fn reads_only(&self, name: &str) -> bool {
        self.find(name).is_some_and(Tool::reads_only)
    }

    /// Whether the tool exists.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The agent's plan, from its last call of `todo`, a line for each step.
    pub fn plan(&self) -> String {
        self.state.plan()
    }

    /// Restores what a call left in the agent's state before the run was interrupted.
    pub fn restore_state(&self, call: &ToolCall, result: &ToolResult, seen: Option<&FileVersion>) {
        let mut attached = self.attached.lock().ignore_poison();
        result.attachments.iter().for_each(|attachment| attached.add(attachment));
        drop(attached);
        if let Some(seen) = seen {
            self.state.restore_version(seen);
        }
        if let Some(tool) = self.find(&call.tool).filter(|_| !result.is_error && call.input_error.is_none()) {
            tool.restore_state(&call.input, &self.state);
        }
    }

    /// The way out of commands, if there is a list of hosts.
    pub fn egress(&self) -> Option<&Egress> {
        self.deps.egress.as_ref()
    }

    /// What the tool server of a call has reached and was refused since the last time; `None` if the call has none.
    pub fn take_server_traffic(&self, call: &ToolCall) -> Option<CallTraffic> {
        let (server, _) = call.tool.split_once(SERVER_SEPARATOR)?;
        let traffic = self.deps.servers.as_ref()?.take_traffic(server);
        Some(traffic).filter(|traffic| !traffic.is_empty())
    }

    /// Performs a call whose commands have no way out.
    pub async fn call(&self, call: &ToolCall, limits: CallLimits) -> CallOutcome {
        self.call_with(call, limits, None).await
    }

    /// Performs a call. Its commands reach the hosts of `egress`. Mistakes of the model and panics of a tool become results with `is_error`. The text is redacted, then
    /// truncated to [`MAX_RESULT_CHARS`].
    pub async fn call_with(&self, call: &ToolCall, limits: CallLimits, egress: Option<&CallEgress>) -> CallOutcome {
        let state = Arc::new(self.state.for_call());
        let failure = OnceLock::new();
        let (output, is_error) = match self.run(call, &state, &limits, egress, &failure).await {
            Ok(output) => (output, false),
            Err(ToolError(text)) => (text.into(), true),
        };
        let ToolOutput { mut text, mut attachments, proposal } = output;
        attachments.retain(|attachment| {
            let attached = self.attach(attachment);
            if let Err(why) = &attached {
                text.push_str(&format!("\n[A {} was left out: {why}.]", attachment.media_type.noun()));
            }
            attached.is_ok()
        });
        let text = match self.deps.redactor.redact(&text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text,
        };
        let text = truncate_middle(text, MAX_RESULT_CHARS);
        let moved = || self.deps.workspace.check_not_moved().err().map(EnvironmentError::WorkspaceMoved);
        CallOutcome {
            result: ToolResult { call_id: call.id.clone(), text, is_error, attachments },
            file_version: state.seen(),
            proposal,
            failure: failure.into_inner().filter(EnvironmentError::ends_run).or_else(moved),
        }
    }

    async fn run(
        &self,
        call: &ToolCall,
        state: &Arc<ToolState>,
        limits: &CallLimits,
        egress: Option<&CallEgress>,
        failure: &OnceLock<EnvironmentError>,
    ) -> Result<ToolOutput, ToolError> {
        let Some(tool) = self.find(&call.tool) else { return Err(self.unknown_tool(&call.tool)) };
        if let Some(why) = &call.input_error {
            return Err(ToolError(why.clone()));
        }
        self.deps.workspace.check_not_moved().map_err(|error| ToolError(error.to_string()))?;
        // What is seen there says nothing about files of the workspace.
        let files =
            self.deps.files.as_ref().filter(|files| tool.reads_only() && names_path_below(&call.input, files.root()));
        let own_state = files.map(|_| Arc::new(ToolState::new(Arc::clone(&self.deps.redactor))));
        let context = ToolContext {
            call_id: &call.id,
            workspace: files.unwrap_or(&self.deps.workspace),
            state: own_state.as_ref().unwrap_or(state),
            redactor: &self.deps.redactor,
            environment: &self.deps.environment,
            sandbox: &self.deps.sandbox,
            egress,
            media: self.media,
            limits,
            failure,
        };
        // A panic in a tool must not end the run. Locks on shared state ignore poisoning.
        let result = AssertUnwindSafe(async { tool.call(&call.input, &context).await }).catch_unwind().await;
        result.unwrap_or_else(|_| Err(ToolError(format!("internal error: `{}` failed on this input", call.tool))))
    }

    fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().map(Box::as_ref).find(|tool| tool.name() == name)
    }

    fn unknown_tool(&self, name: &str) -> ToolError {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        let name: String = name.chars().take(100).collect();
        let suggestion = suggest_name(&name, names.iter().copied())
            .map_or(String::new(), |similar| format!(" (did you mean `{similar}`?)"));
        if names.is_empty() {
            return ToolError(format!("unknown tool `{name}`: you have no tools"));
        }
        ToolError(format!("unknown tool `{name}`{suggestion}; available tools: {}", names.join(", ")))
    }
}

/// Whether the `path` of a call's input is absolute and below a folder.
fn names_path_below(input: &RawValue, folder: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct PathOf<'a> {
        #[serde(borrow)]
        path: Option<Cow<'a, str>>,
    }
    let named = serde_json::from_str::<PathOf<'_>>(input.get()).ok().and_then(|input| input.path);
    named.is_some_and(|path| Path::new(&*path).starts_with(folder))
}

#[cfg(test)]
pub(crate) mod tests;
