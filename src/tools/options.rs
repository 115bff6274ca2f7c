//! What a job may set about a tool.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::diagnostic::Diagnostic;
use crate::yaml::{Decoded, Node};

/// JSON Schema of a tool's options, without references.
pub(super) fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// For tools that have no options.
pub(super) fn none(node: Option<&Node>) -> Decoded<Value> {
    let findings = node.filter(|node| !node.is_null()).map(|node| {
        Diagnostic::error("unexpected-tool-options", node.place(), "this tool has no options")
            .help("write only its name")
    });
    Decoded { value: Some(Value::Null), findings: findings.into_iter().collect(), gaps: Vec::new() }
}
