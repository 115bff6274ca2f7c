//! What a job may set about a tool.

use serde_json::Value;

use crate::diagnostic::Diagnostic;
use crate::yaml::{Decoded, Node};

/// For tools that have no options.
pub(super) fn none(node: Option<&Node>) -> Decoded<Value> {
    let findings = node.filter(|node| !node.is_null()).map(|node| {
        Diagnostic::error("tool-options", node.place(), "this tool has no options").help("write only its name")
    });
    Decoded { value: Some(Value::Null), findings: findings.into_iter().collect(), holes: Vec::new() }
}
