//! The schema of the lines of a journal.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::tidy::each;
use crate::event::{Event, FORMAT};

/// The schema of one line of a journal in the current format, draft 2020-12. The form of `data` depends on `type`: there is
/// one alternative for each.
pub fn event_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let (mut kinds, mut choices) = (Vec::new(), Vec::new());
    for (kind, meaning, data) in Event::schemas(&mut generator) {
        kinds.push(kind);
        choices.push(json!({
            "title": kind,
            "description": meaning.trim(),
            "properties": { "type": { "const": kind }, "data": data },
            "required": ["type"],
        }));
    }
    let mut types = generator.take_definitions(true);
    types.values_mut().for_each(deny_unknown_fields);
    pin_format(&mut types);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "legwork event",
        "description": format!("One line of a journal (events.jsonl, subagents/ID.events.jsonl), format {FORMAT}."),
        "type": "object",
        "properties": {
            "seq": { "description": "Number of the line in its journal.", "type": "integer", "minimum": 1 },
            "at": { "description": "Time in UTC.", "type": "string", "format": "date-time" },
            "suspended_ms": {
                "description": "For how long this part of the run couldn't run before: its process was stopped, or the machine \
                                slept. Missing if that is nothing.",
                "type": "integer",
                "minimum": 1,
            },
            "agent": { "description": "The agent: `parent`, or a subagent's id.", "type": "string", "minLength": 1 },
            "type": { "description": "The kind of the event.", "enum": kinds },
            "data": { "description": "The event itself; its form depends on `type`.", "type": "object" },
            "mac": {
                "description": "HMAC-SHA256, in hexadecimal digits, over the `sum` of the line before and this line up to \
                                `,\"mac\":`, with the key of the record. Only in lines that start or resume a run.",
                "type": "string",
                "pattern": "^[0-9a-f]{64}$",
            },
            "seal": {
                "description": "HMAC-SHA256, in hexadecimal digits, over the SHA-256 of all lines before it in all journals \
                                and this line up to `,\"seal\":`, with the key of the record. Only in the line with which a \
                                run ends.",
                "type": "string",
                "pattern": "^[0-9a-f]{64}$",
            },
            "sum": {
                "description": "The first 16 hexadecimal digits of SHA-256 over the `sum` of the line before (nothing for \
                                the first) and this line up to `,\"sum\":`.",
                "type": "string",
                "pattern": "^[0-9a-f]{16}$",
            },
        },
        "required": ["seq", "at", "agent", "type", "data", "sum"],
        "additionalProperties": false,
        "oneOf": choices,
        "$defs": types,
    })
}

/// Forbids other fields: a journal has none.
fn deny_unknown_fields(schema: &mut Value) {
    each(schema, &mut |parts| {
        if parts.get("type") == Some(&json!("object")) && parts.contains_key("properties") {
            parts.entry("additionalProperties").or_insert(json!(false));
        }
        if let Some(Value::String(text)) = parts.get_mut("description") {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    });
}

/// Sets the record format of this schema.
fn pin_format(types: &mut Map<String, Value>) {
    for kind in ["RunStarted", "Plan"] {
        if let Some(format) = types.get_mut(kind).and_then(|schema| schema.pointer_mut("/properties/format")) {
            format["const"] = json!(FORMAT);
        }
    }
}
