//! What an agent remembers between its tool calls.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::redaction::Redactor;
use crate::sync::IgnorePoison;
use crate::text::hex;

/// The state of an agent, as one of its calls sees it. All calls of an agent share it; agents don't.
#[derive(Debug, Default)]
pub struct ToolState {
    shared: Arc<SharedState>,
    /// Secrets that must not be recoverable from a hash.
    redactor: Arc<Redactor>,
    /// The file that this call has read or written.
    seen: Mutex<Option<FileVersion>>,
}

#[derive(Debug, Default)]
struct SharedState {
    files: Mutex<HashMap<PathBuf, String>>,
    plan: Mutex<String>,
}

/// The version of a file that an agent has seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileVersion {
    /// Its canonical path from the workspace.
    pub path: String,
    /// SHA-256 of its content, in hexadecimal digits.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
}

impl ToolState {
    /// The empty state of a new agent.
    pub(super) fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor, ..Self::default() }
    }

    /// The same agent's state for another call.
    pub(super) fn for_call(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), redactor: Arc::clone(&self.redactor), seen: Mutex::default() }
    }

    /// Remembers a file's content as the agent has read or written it. The path is canonical, from the workspace.
    pub(super) fn record_file(&self, path: &Path, content: &[u8]) {
        let sha256 = hex(&Sha256::digest(content));
        self.shared.files.lock().ignore_poison().insert(path.to_owned(), sha256.clone());
        // If the rest of the file is known, a short secret could be guessed from the hash.
        let is_secret = |text: &str| matches!(self.redactor.redact(text), Cow::Owned(_));
        let is_safe = self.redactor.is_empty() || !is_secret(&String::from_utf8_lossy(content));
        let path = path.to_str().filter(|path| is_safe && !is_secret(path));
        *self.seen.lock().ignore_poison() = path.map(|path| FileVersion { path: path.to_owned(), sha256 });
    }

    /// The file that this call has seen, for the journal.
    pub(super) fn seen(&self) -> Option<FileVersion> {
        self.seen.lock().ignore_poison().take()
    }

    /// Remembers a file that the agent saw before the run was resumed.
    pub(super) fn restore_version(&self, seen: &FileVersion) {
        self.shared.files.lock().ignore_poison().insert(PathBuf::from(&seen.path), seen.sha256.clone());
    }

    /// Whether the agent has read or written a file.
    pub(super) fn has_seen(&self, path: &Path) -> bool {
        self.shared.files.lock().ignore_poison().contains_key(path)
    }

    /// Whether a file has changed since the agent last saw it. False for a file that it never saw.
    pub(super) fn has_changed(&self, path: &Path, content: &[u8]) -> bool {
        let seen = self.shared.files.lock().ignore_poison().get(path).cloned();
        seen.is_some_and(|seen| seen != hex(&Sha256::digest(content)))
    }

    /// The agent's plan, a line for each step.
    pub(super) fn plan(&self) -> String {
        self.shared.plan.lock().ignore_poison().clone()
    }

    pub(super) fn set_plan(&self, plan: String) {
        *self.shared.plan.lock().ignore_poison() = plan;
    }
}
