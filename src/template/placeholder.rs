//! Stands for a value that is known only when a run has started: a plan shows it as `<before.issues>`.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};

/// The longest path of a placeholder, in bytes. Beyond it, parts of the value have the same path.
const MAX_PATH: usize = 200;

/// How deep loops over parts of the value can be nested.
const MAX_DEPTH: u8 = 4;

/// A value that isn't known yet, by its path in the template.
#[derive(Debug)]
pub(super) struct Placeholder {
    path: String,
    /// How many loops it is the item of.
    depth: u8,
}

impl Placeholder {
    /// The value of a variable.
    pub(super) fn value(path: impl Into<String>) -> Value {
        Value::from_object(Self { path: path.into(), depth: 0 })
    }

    /// What a filter makes of the value.
    pub(super) fn filtered(&self, filter: &str) -> Value {
        self.part(&format!(" | {filter}"), self.depth)
    }

    fn part(&self, part: &str, depth: u8) -> Value {
        let path = if self.path.len() > MAX_PATH { self.path.clone() } else { format!("{}{part}", self.path) };
        Value::from_object(Self { path, depth })
    }
}

impl Object for Placeholder {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        // Comparing two of them looks at their items, and at the items of these.
        if self.depth < MAX_DEPTH { ObjectRepr::Iterable } else { ObjectRepr::Plain }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        Some(match key.as_str() {
            Some(name) => self.part(&format!(".{name}"), self.depth),
            None => self.part(&format!("[{key}]"), self.depth),
        })
    }

    /// A loop runs once, to show what it makes of each item.
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if self.depth < MAX_DEPTH {
            Enumerator::Values(vec![self.part("[]", self.depth + 1)])
        } else {
            Enumerator::NonEnumerable
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.path)
    }
}
