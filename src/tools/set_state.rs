//! `set_state`: how the parent replaces the value that a job keeps between its runs. It isn't granted by an allowlist: the parent
//! of every job with `state` has it, and nobody else.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::output::refuse_secrets;
use super::timed_validation::{TimedValidation, VALIDATION_TIMEOUT};
use super::tool::{CallFuture, Tool, ToolContext};
use crate::job::{MAX_STATE_DEPTH, json_depth};
use crate::json_schema::ToolSchema;
use crate::message::{ToolCall, ToolError, ToolResult};

/// The property of the input with the value.
const VALUE: &str = "value";

/// The `set_state` tool.
#[derive(Debug)]
pub struct SetState {
    schema: Arc<ToolSchema>,
    /// The longest value as JSON, in bytes.
    max_bytes: u64,
    validation: TimedValidation,
}

impl SetState {
    /// The tool's name.
    pub const NAME: &str = "set_state";

    /// Accepts values that match a self-contained schema and have at most `max_bytes` as JSON.
    ///
    /// # Errors
    /// If the schema is invalid.
    pub fn new(schema: &Value, max_bytes: u64) -> Result<Self, String> {
        let schema = Arc::new(ToolSchema::in_property(schema, VALUE)?);
        Ok(Self { schema, max_bytes, validation: TimedValidation::default() })
    }

    /// The value that a call has set; `None` if it is another tool's, or was refused.
    pub fn accepted(call: &ToolCall, result: &ToolResult) -> Option<Value> {
        if call.tool != Self::NAME || result.is_error || call.input_error.is_some() {
            return None;
        }
        let mut input: Value = serde_json::from_str(call.input.get()).ok()?;
        input.get_mut(VALUE).map(Value::take)
    }
}

/// Why a value can't be kept because of its size or its form, if so.
pub fn value_mistake(value: &Value, max_bytes: u64) -> Option<String> {
    if json_depth(value) > MAX_STATE_DEPTH {
        return Some(format!("its lists and mappings are nested more than {MAX_STATE_DEPTH} levels deep"));
    }
    let bytes = value.to_string().len() as u64;
    (bytes > max_bytes).then(|| format!("it has {bytes} bytes as JSON, and the limit is {max_bytes}"))
}

fn validate(schema: &ToolSchema, input: &RawValue, max_bytes: u64) -> Result<(), ToolError> {
    let rejected = |why: String| {
        ToolError(format!("Rejected. {why}\nThe state is as before. Fix it and set the complete value again."))
    };
    let value = schema.parse_data(input).map_err(rejected)?;
    if let Some(why) = value_mistake(&value, max_bytes) {
        return Err(rejected(format!("The value can't be kept: {why}.")));
    }
    schema.read_validated(input).map(drop).map_err(rejected)
}

impl Tool for SetState {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> String {
        format!(
            "Replaces the state, a value that the next run of this job gets. `value` is the whole new state: what isn't in it is \
             forgotten. It is kept if this run completes; of several calls, the last one counts. At most {} bytes as JSON.",
            self.max_bytes
        )
    }

    fn input_schema(&self) -> Value {
        self.schema.input_schema().clone()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            refuse_secrets(input, context).map_err(|why| {
                ToolError(format!("Rejected. The value can't be kept: {why}.\nThe state is as before."))
            })?;
            let (schema, input, max_bytes) = (Arc::clone(&self.schema), input.to_owned(), self.max_bytes);
            let timeout = VALIDATION_TIMEOUT.min(context.limits.deadline.end().left());
            self.validation.run(timeout, move || validate(&schema, &input, max_bytes)).await?;
            Ok("Accepted: this is the state of the next run if this run completes.".to_owned().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_the_schema_the_size_and_the_depth() {
        let schema =
            ToolSchema::in_property(&json!({ "type": "array", "items": { "type": "integer" } }), VALUE).unwrap();
        let check = |input: Value| {
            let input = RawValue::from_string(input.to_string()).unwrap();
            validate(&schema, &input, 12).map_err(|ToolError(why)| why)
        };
        assert_eq!(check(json!({ "value": [1, 2] })), Ok(()));
        for (input, why) in [
            (json!({ "value": ["a"] }), "/value/0: expected a whole number"),
            (json!([1]), "with only the property `value`"),
            (json!({ "value": [1], "more": 2 }), "with only the property `value`"),
            (json!({ "value": [1_000, 2_000, 3_000] }), "it has 16 bytes as JSON, and the limit is 12"),
            (json!({ "value": (0..100).fold(json!(1), |inner, _| json!([inner])) }), "more than 64 levels deep"),
        ] {
            let found = check(input.clone()).unwrap_err();
            assert!(found.contains(why) && found.contains("The state is as before"), "{input}: {found}");
        }
    }

    #[test]
    fn an_object_is_in_the_property_too() {
        let tool = SetState::new(&json!({ "type": "object", "required": ["a"] }), 10).unwrap();
        assert_eq!(tool.input_schema()["properties"]["value"]["required"], json!(["a"]));
        assert_eq!(tool.input_schema()["required"], json!(["value"]));
    }
}
