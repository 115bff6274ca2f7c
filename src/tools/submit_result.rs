//! `submit_result`: how an agent returns data. It isn't granted by an allowlist; every agent with a result schema has it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::timed_validation::{TimedValidation, VALIDATION_TIMEOUT};
use super::tool::{CallFuture, Tool, ToolContext};
use crate::json_schema::ToolSchema;
use crate::message::ToolError;

/// The answer to a valid submission.
const ACCEPTED: &str = "Accepted: the data is valid and is now the result. Continue if there is more to do, or finish. \
                        Submitting again replaces it.";

/// The `submit_result` tool of one agent.
#[derive(Debug)]
pub struct SubmitResult {
    schema: Arc<ToolSchema>,
    /// The longest data as JSON, in characters.
    max_chars: Option<usize>,
    validation: TimedValidation,
}

impl SubmitResult {
    /// The tool's name.
    pub const NAME: &str = "submit_result";

    /// Accepts data that matches a self-contained schema and has at most `max_chars` characters as JSON.
    ///
    /// # Errors
    /// If the schema is invalid.
    pub fn new(schema: &Value, max_chars: Option<usize>) -> Result<Self, String> {
        Ok(Self { schema: Arc::new(ToolSchema::new(schema)?), max_chars, validation: TimedValidation::default() })
    }

    /// The data of a submission that was accepted before.
    pub fn accepted(&self, input: &RawValue) -> Option<Value> {
        self.schema.parse_data(input).ok()
    }

    /// The data in the text of a reply: JSON that matches the schema and is the whole text, its only code block, or the only
    /// object in it.
    ///
    /// # Errors
    /// What is wrong with the JSON in the text; `None` if it has none.
    pub async fn read_text(&self, text: &str) -> Result<Value, Option<String>> {
        let Some(json) = json_in_text(text) else { return Err(None) };
        let Ok(json) = RawValue::from_string(json.to_owned()) else { return Err(None) };
        let mut why = None;
        // The model may write the data, or what it would submit.
        for input in [self.schema.to_input(&json), json] {
            match self.check(&input, VALIDATION_TIMEOUT).await {
                Ok(()) => return self.accepted(&input).ok_or(None),
                Err(ToolError(error)) => {
                    why.get_or_insert(error);
                }
            }
        }
        Err(why)
    }

    /// Validates an input on a thread, which is abandoned after the timeout.
    async fn check(&self, input: &RawValue, timeout: Duration) -> Result<(), ToolError> {
        let (schema, input, max_chars) = (Arc::clone(&self.schema), input.to_owned(), self.max_chars);
        self.validation.run(timeout, move || validate(&schema, &input, max_chars)).await
    }
}

/// The part of a text that is meant as JSON: all of it, its only code block, or the only object in it.
fn json_in_text(text: &str) -> Option<&str> {
    const FENCES: [&str; 2] = ["```", "~~~"];
    let is_json = |part: &str| serde_json::from_str::<&RawValue>(part).is_ok();
    let text = without_mark(text);
    if is_json(text) {
        return Some(text);
    }
    let mut fences = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if FENCES.iter().any(|fence| line.trim_start().starts_with(fence)) {
            fences.push((at, line));
        }
        at += line.len();
    }
    match fences[..] {
        // The block may have no end.
        [] | [_] => only_object(text),
        [(start, first), (end, last)] => {
            let language = first.trim().trim_start_matches(['`', '~']).to_ascii_lowercase();
            let content = without_mark(&text[start + first.len()..end]);
            let is_meant = ["", "json", "jsonc", "json5"].contains(&&*language) && FENCES.contains(&last.trim());
            (is_meant && is_json(content)).then_some(content)
        }
        // A text with several blocks shows examples.
        _ => None,
    }
}

/// A text without the spaces and byte order marks around it.
fn without_mark(text: &str) -> &str {
    text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}')
}

/// The only object of JSON in a text, without those within it.
fn only_object(text: &str) -> Option<&str> {
    /// How many braces are tried.
    const MAX_STARTS: usize = 100;
    let (mut found, mut at) = (None, 0);
    for _ in 0..MAX_STARTS {
        let Some(start) = text[at..].find('{').map(|start| at + start) else { return found };
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<&RawValue>();
        at = match values.next() {
            Some(Ok(_)) => {
                let end = start + values.byte_offset();
                if found.replace(&text[start..end]).is_some() {
                    return None;
                }
                end
            }
            _ => start + 1,
        };
    }
    None
}

/// Validates a submission. The error tells the model everything that is wrong with it.
fn validate(schema: &ToolSchema, input: &RawValue, max_chars: Option<usize>) -> Result<(), ToolError> {
    let data = schema
        .read_validated(input)
        .map_err(|why| ToolError(format!("Rejected. {why}\nFix all errors and submit the complete data again.")))?;
    let length = data.to_string().chars().count();
    match max_chars {
        Some(max_chars) if length > max_chars => Err(ToolError(format!(
            "Rejected. The data has {length} characters as JSON, but the limit is {max_chars}. Submit less, for example by \
             writing details to a file and returning its path."
        ))),
        _ => Ok(()),
    }
}

impl Tool for SubmitResult {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> String {
        "Submits the result of your work as data. The data is validated against the schema, and errors are returned. \
         Submit all of it in one call before you finish: the last valid submission is the result, and text in your \
         replies is not part of it."
            .to_owned()
    }

    fn input_schema(&self) -> Value {
        self.schema.input_schema().clone()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let remaining = context.limits.deadline.end().left();
            self.check(input, VALIDATION_TIMEOUT.min(remaining)).await.map(|()| ACCEPTED.to_owned().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tool: &SubmitResult, input: &Value) -> Result<Value, String> {
        let input = RawValue::from_string(input.to_string()).unwrap();
        let checked = validate(&tool.schema, &input, tool.max_chars).map_err(|ToolError(why)| why);
        checked.map(|()| tool.accepted(&input).unwrap())
    }

    #[test]
    fn the_json_of_a_text_is_found_whatever_is_around_it() {
        let json = "{\"title\": \"T\", \"n\": {}}";
        for text in [
            json.to_owned(),
            format!("\u{feff}{json}\n"),
            format!("```json\n{json}\n```"),
            format!("~~~JSON\n\u{feff}{json}\n~~~"),
            format!("Here it is:\n\n```jsonc\r\n{json}\r\n```\r\nDone."),
            format!("Result: {json} Done {{soon}}."),
            format!("<answer>{json}</answer>"),
            format!("```json\n{json}"),
        ] {
            assert_eq!(json_in_text(&text), Some(json), "{text}");
        }
        for text in
            [format!("{json} or {json}"), format!("```\n{json}\n```\nor\n```\n{json}\n```"), "a {b} c".to_owned()]
        {
            assert_eq!(json_in_text(&text), None, "{text}");
        }
        assert_eq!(json_in_text("[1, 2]"), Some("[1, 2]"));
        assert_eq!(json_in_text(&"{".repeat(1_000_000)), None);
    }

    #[test]
    fn valid_data_is_accepted_and_errors_are_returned() {
        let tool = SubmitResult::new(&json!({ "type": "array", "items": { "type": "integer" } }), None).unwrap();
        assert_eq!(tool.input_schema()["properties"]["result"]["type"], "array");
        assert_eq!(read(&tool, &json!({ "result": [1] })), Ok(json!([1])));
        let why = read(&tool, &json!({ "result": ["a"] })).unwrap_err();
        assert!(
            why.contains("/result/0: expected a whole number") && why.contains("submit the complete data again"),
            "{why}"
        );
    }

    #[test]
    fn data_that_is_too_long_is_rejected() {
        let tool = SubmitResult::new(&json!({ "type": "object" }), Some(20)).unwrap();
        assert!(read(&tool, &json!({ "a": "123456789012" })).is_ok());
        let why = read(&tool, &json!({ "a": "1234567890123" })).unwrap_err();
        assert!(why.contains("has 21 characters") && why.contains("the limit is 20"), "{why}");
    }

    #[tokio::test]
    async fn a_slow_validation_is_abandoned() {
        let twice = json!([{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }]);
        let schema = json!({
            "type": "object",
            "properties": { "c": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "properties": { "c": { "allOf": twice } } } },
        });
        let tool = SubmitResult::new(&schema, None).unwrap();
        let nested = |depth| (0..depth).fold(json!({}), |inside, _| json!({ "c": inside }));
        let input = |depth| RawValue::from_string(nested(depth).to_string()).unwrap();
        tool.check(&input(3), VALIDATION_TIMEOUT).await.unwrap();
        // Its thread continues for some seconds.
        let ToolError(why) = tool.check(&input(18), Duration::ZERO).await.unwrap_err();
        assert!(why.contains("took longer than 0 seconds"), "{why}");
        let ToolError(why) = tool.check(&input(3), Duration::from_millis(1)).await.unwrap_err();
        assert!(why.contains("still being validated"), "{why}");
    }
}
