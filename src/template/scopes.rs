//! The names that a template sets itself.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The meaning of a name that a template sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameBinding {
    /// The same as `inputs`, as after `{% set all = inputs %}`.
    Inputs,
    /// Anything else.
    Other,
}

/// Names and their meanings.
pub(super) type VisibleNames = BTreeMap<String, NameBinding>;

/// Scopes, the innermost last.
#[derive(Debug)]
pub(super) struct Scopes {
    stack: Vec<VisibleNames>,
    /// All names in one map, until a scope changes.
    flat: Option<Arc<VisibleNames>>,
}

impl Scopes {
    pub(super) fn new(visible: &VisibleNames) -> Self {
        Self { stack: vec![visible.clone()], flat: None }
    }

    /// Sets a name. A name that is `inputs` in one branch counts as `inputs` after it.
    pub(super) fn set(&mut self, name: &str, meaning: NameBinding) {
        let Some(scope) = self.stack.last_mut() else { return };
        if scope.get(name).is_none_or(|known| meaning < *known) {
            scope.insert(name.to_owned(), meaning);
            self.flat = None;
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<NameBinding> {
        self.stack.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    pub(super) fn push(&mut self, names: &[&str]) {
        self.stack.push(names.iter().map(|name| ((*name).to_owned(), NameBinding::Other)).collect());
        self.flat = None;
    }

    pub(super) fn pop(&mut self) {
        self.stack.pop();
        self.flat = None;
    }

    /// All names that are set at this point.
    pub(super) fn all_visible(&mut self) -> Arc<VisibleNames> {
        let stack = &self.stack;
        let flatten = || Arc::new(stack.iter().flatten().map(|(name, meaning)| (name.clone(), *meaning)).collect());
        self.flat.get_or_insert_with(flatten).clone()
    }
}
