//! Asks a model for data with a schema, through the input of a tool.

use jsonschema::Draft;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::draft::draft_of;
use super::keywords::for_each_subschema;
use super::{SchemaValidator, Violation};

/// The property that holds data which isn't an object: a tool's input is always one.
const WRAPPER: &str = "result";
/// How many violations are reported at once.
const MAX_VIOLATIONS: usize = 40;
/// The longest report, in characters.
const MAX_CHARS: usize = 12_000;
/// Keywords that providers reject at the root of a tool's input.
const FORBIDDEN_AT_ROOT: [&str; 8] = ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const"];

/// A schema for data that a model returns by calling a tool.
#[derive(Debug)]
pub struct ToolSchema {
    schema: SchemaValidator,
    input_schema: Value,
    /// The property that holds the data, unless the data is the whole input.
    wrapper: Option<&'static str>,
}

impl ToolSchema {
    /// Makes a tool's input of a bundled schema.
    ///
    /// # Errors
    /// The first error in the schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        Self::with_wrapper(schema, (!is_plain_object(schema)).then_some(WRAPPER))
    }

    /// Makes a tool's input of a bundled schema: an object that has the data in a property.
    ///
    /// # Errors
    /// The first error in the schema.
    pub fn in_property(schema: &Value, property: &'static str) -> Result<Self, String> {
        Self::with_wrapper(schema, Some(property))
    }

    fn with_wrapper(schema: &Value, wrapper: Option<&'static str>) -> Result<Self, String> {
        let converted = to_draft_2020_12(schema);
        let input_schema = match wrapper {
            Some(wrapper) => wrap_in_object(converted, wrapper),
            None => converted,
        };
        Ok(Self { schema: SchemaValidator::new(schema)?, input_schema, wrapper })
    }

    /// The JSON Schema of the tool's input: an object, in the draft that providers use.
    pub fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    /// The tool's input for this data.
    pub fn to_input(&self, data: &RawValue) -> Box<RawValue> {
        let wrapped = |wrapper| RawValue::from_string(format!("{{\"{wrapper}\":{data}}}")).ok();
        self.wrapper.and_then(wrapped).unwrap_or_else(|| data.to_owned())
    }

    /// Takes the data out of a tool's input without validation.
    ///
    /// # Errors
    /// A message for the model: the input isn't JSON, or has no data.
    pub fn parse_data(&self, input: &RawValue) -> Result<Value, String> {
        let input: Value = serde_json::from_str(input.get()).map_err(|error| format!("this isn't JSON: {error}"))?;
        match (self.wrapper, input) {
            (None, data) => Ok(data),
            (Some(wrapper), Value::Object(mut fields)) if fields.len() == 1 && fields.contains_key(wrapper) => {
                Ok(fields.shift_remove(wrapper).unwrap_or_default())
            }
            (Some(wrapper), _) => {
                Err(format!("expected an object with only the property `{wrapper}`, which holds the data"))
            }
        }
    }

    /// Takes the data out of a tool's input and validates it. With a recursive schema, the time has no bound.
    ///
    /// # Errors
    /// A message for the model with all violations, up to a bound.
    pub fn read_validated(&self, input: &RawValue) -> Result<Value, String> {
        let data = self.parse_data(input)?;
        let (violations, more) = self.schema.violations(&data, MAX_VIOLATIONS);
        let above = self.wrapper.map(|wrapper| format!("/{wrapper}")).unwrap_or_default();
        if violations.is_empty() { Ok(data) } else { Err(violations_message(violations, more, &above)) }
    }
}

fn violations_message(violations: Vec<Violation>, more: usize, above: &str) -> String {
    let all = violations.len() + more;
    let mut text = match all {
        1 => "The data doesn't fit its schema:".to_owned(),
        all => format!("The data doesn't fit its schema, for {all} reasons:"),
    };
    for (shown, violation) in violations.into_iter().enumerate() {
        let line = Violation { path: format!("{above}{}", violation.path), ..violation }.to_string();
        if text.chars().count() + line.chars().count() > MAX_CHARS {
            return text + &format!("\n- and {} more", all - shown);
        }
        text += &format!("\n- {line}");
    }
    if more > 0 { text + &format!("\n- and {more} more") } else { text }
}

/// Whether a schema can be used for a tool's input as it is.
fn is_plain_object(schema: &Value) -> bool {
    let Some(fields) = schema.as_object() else { return false };
    // The property names that providers accept at the root.
    let is_plain = |name: &String| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    fields.get("type").is_some_and(|kind| kind == "object")
        && !FORBIDDEN_AT_ROOT.iter().any(|keyword| fields.contains_key(*keyword))
        && fields.get("properties").and_then(Value::as_object).is_none_or(|named| named.keys().all(is_plain))
}

/// The schema of an object that holds the data in one property.
fn wrap_in_object(mut schema: Value, wrapper: &str) -> Value {
    let mut held = Map::new();
    if let Value::Object(fields) = &mut schema {
        for keyword in ["$defs", "definitions"] {
            held.extend(fields.shift_remove_entry(keyword));
        }
    }
    let mut whole = json!({
        "type": "object",
        "properties": { wrapper: schema },
        "required": [wrapper],
        "additionalProperties": false,
    });
    if let Value::Object(whole) = &mut whole {
        whole.extend(held);
    }
    for_each_subschema(&mut whole, &mut |schema| {
        let Some(Value::String(reference)) = schema.get_mut("$ref") else { return };
        let is_held = |pointer: &&str| pointer.starts_with("/$defs/") || pointer.starts_with("/definitions/");
        if let Some(pointer) = reference.strip_prefix('#').filter(|pointer| !is_held(pointer)) {
            *reference = format!("#/properties/{wrapper}{pointer}");
        }
    });
    whole
}

/// Converts a schema to draft 2020-12, which providers use.
fn to_draft_2020_12(schema: &Value) -> Value {
    let draft = draft_of(schema).and_then(Result::ok).unwrap_or(Draft::Draft202012);
    let mut schema = schema.clone();
    for_each_subschema(&mut schema, &mut |schema| {
        let Value::Object(fields) = schema else { return };
        fields.shift_remove("$schema");
        if draft != Draft::Draft202012 {
            replace_old_keywords(fields);
        }
    });
    schema
}

/// Replaces the keywords of older drafts in a schema, not in its subschemas.
pub(super) fn replace_old_keywords(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(items)) = fields.get("items") {
        let items = Value::Array(items.clone());
        fields.shift_remove("items");
        fields.insert("prefixItems".to_owned(), items);
        if let Some(rest) = fields.shift_remove("additionalItems") {
            fields.insert("items".to_owned(), rest);
        }
    }
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(Value::Bool(is_exclusive)) = fields.get(exclusive).cloned() {
            fields.shift_remove(exclusive);
            if let Some(limit) = fields.get(bound).cloned().filter(|_| is_exclusive) {
                fields.shift_remove(bound);
                fields.insert(exclusive.to_owned(), limit);
            }
        }
    }
}
