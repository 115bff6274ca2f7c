//! An `enum` whose values are those of a list input: `enum: "{{ inputs.labels }}"`.

use std::borrow::Cow;

use serde_json::Value;

use super::keywords::{for_each_subschema, subschemas};

/// The input that a text names: `{{ inputs.NAME }}` and nothing else.
pub fn named_input(text: &str) -> Option<&str> {
    named_variable(text, "inputs.")
}

/// The step before the agent that a text names: `{{ before.NAME }}` and nothing else.
pub fn named_step(text: &str) -> Option<&str> {
    named_variable(text, "before.")
}

fn named_variable<'t>(text: &'t str, of: &str) -> Option<&'t str> {
    let inside = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    // Signs that trim blanks change nothing here.
    let inside = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
    let name = inside.strip_prefix(of)?.trim();
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    is_name.then_some(name)
}

/// The names of the inputs that the enums of a schema take their values from, in the schema's order.
pub fn enum_inputs(schema: &Value) -> Vec<String> {
    let named = schema.get("enum").and_then(Value::as_str).and_then(named_input).map(str::to_owned);
    named.into_iter().chain(subschemas(schema).into_iter().flat_map(|part| enum_inputs(part.schema))).collect()
}

/// A schema in which each `enum` that names an input has that input's values, without repetitions.
pub fn with_enum_values(schema: &Value, values_of: impl Fn(&str) -> Vec<Value>) -> Cow<'_, Value> {
    if enum_inputs(schema).is_empty() {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    for_each_subschema(&mut schema, &mut |part| {
        let Some(listed) = part.get_mut("enum") else { return };
        let Some(name) = listed.as_str().and_then(named_input) else { return };
        let mut values: Vec<Value> = Vec::new();
        for value in values_of(name) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        *listed = Value::Array(values);
    });
    Cow::Owned(schema)
}

/// A schema that validators accept before the values of inputs are known.
pub(super) fn with_stand_ins(schema: &Value) -> Cow<'_, Value> {
    with_enum_values(schema, |_| vec![Value::Null])
}
