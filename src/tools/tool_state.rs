//! What one agent remembers from call to call.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::TodoItem;
use crate::redaction::Redactor;

/// What one agent has read and planned, as one call meets it. Two agents never share one; the calls of one agent do.
#[derive(Debug, Default)]
pub struct ToolState {
    shared: Arc<SharedState>,
    /// What must not be found out from a digest.
    mask: Arc<Redactor>,
    /// What this call has seen.
    seen: Mutex<Option<FileVersion>>,
}

/// What all calls of an agent have in common.
#[derive(Debug, Default)]
struct SharedState {
    files: Mutex<HashMap<PathBuf, String>>,
    todo: Mutex<Vec<TodoItem>>,
}

/// A file as an agent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileVersion {
    /// Its path, canonical, from the workspace.
    pub path: String,
    /// SHA-256 of its whole content, in hexadecimal digits.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
}

impl ToolState {
    /// The memory of an agent that remembers nothing yet.
    pub(super) fn new(mask: Arc<Redactor>) -> Self {
        Self { mask, ..Self::default() }
    }

    /// The same agent's, for another call.
    pub(super) fn for_call(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), mask: Arc::clone(&self.mask), seen: Mutex::default() }
    }

    /// Remembers a file's content as this agent has read or written it; the path is canonical, from the workspace.
    pub(super) fn record_file(&self, path: &Path, content: &[u8]) {
        let sha256 = digest(content);
        lock(&self.shared.files).insert(path.to_owned(), sha256.clone());
        // From a digest a short secret could be found by trying, where the rest of the file is known.
        let is_secret = |text: &str| matches!(self.mask.redact(text), std::borrow::Cow::Owned(_));
        let is_safe = self.mask.is_empty() || !is_secret(&String::from_utf8_lossy(content));
        let path = path.to_str().filter(|path| is_safe && !is_secret(path));
        *lock(&self.seen) = path.map(|path| FileVersion { path: path.to_owned(), sha256 });
    }

    /// What this call saw, to be written down.
    pub(super) fn seen(&self) -> Option<FileVersion> {
        lock(&self.seen).take()
    }

    /// Remembers what an earlier part of the run saw.
    pub(super) fn restore_version(&self, seen: &FileVersion) {
        lock(&self.shared.files).insert(PathBuf::from(&seen.path), seen.sha256.clone());
    }

    /// Whether the content is another than this agent last saw. A file that it never saw has not changed.
    pub(super) fn has_changed(&self, path: &Path, content: &[u8]) -> bool {
        let seen = lock(&self.shared.files).get(path).cloned();
        seen.is_some_and(|seen| seen != digest(content))
    }

    /// The agent's plan.
    pub fn todo(&self) -> Vec<TodoItem> {
        lock(&self.shared.todo).clone()
    }

    pub(super) fn set_todo(&self, items: Vec<TodoItem>) {
        *lock(&self.shared.todo) = items;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
