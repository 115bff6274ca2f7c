//! What one agent remembers from call to call.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::TodoItem;

/// What one agent has read and planned. Two agents never share one.
#[derive(Debug, Default)]
pub struct Memory {
    seen: Mutex<HashMap<PathBuf, [u8; 32]>>,
    todo: Mutex<Vec<TodoItem>>,
}

impl Memory {
    /// Remembers a file's content as this agent has read or written it; the path is canonical, from the workspace.
    pub(super) fn saw(&self, path: &Path, content: &[u8]) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), digest(content));
    }

    /// Whether the content is another than this agent last saw. A file that it never saw has not changed.
    pub(super) fn changed(&self, path: &Path, content: &[u8]) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied();
        seen.is_some_and(|seen| seen != digest(content))
    }

    /// The agent's plan.
    pub fn todo(&self) -> Vec<TodoItem> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_todo(&self, items: Vec<TodoItem>) {
        *self.todo.lock().unwrap_or_else(PoisonError::into_inner) = items;
    }
}

fn digest(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}
