//! `submit_result`: how an agent hands over data. No allowlist names it: whoever is asked for data has it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::{Tool, ToolContext, ToolError};
use crate::json_schema::ToolSchema;

/// What a model is told of a submission that fits.
const TAKEN: &str = "Taken: the data fits and is the result by now. Go on if there is more to do, or end; another call \
                     with other data replaces it.";

/// How long validating one submission may take. An ordinary one takes less than a millisecond.
const MAX_TIME: Duration = Duration::from_secs(10);

/// The tool of one agent, whose data has a schema of its own.
#[derive(Debug)]
pub struct SubmitResult {
    submission: Arc<ToolSchema>,
    /// The greatest size of the data as JSON, in characters.
    max_chars: Option<usize>,
    /// One validation at a time: one that takes too long can't be stopped.
    idle: Arc<Semaphore>,
}

impl SubmitResult {
    /// The tool's name.
    pub const NAME: &str = "submit_result";

    /// Asks for data that fits a schema that stands alone, and is at most so many characters long as JSON.
    ///
    /// # Errors
    /// Says what is wrong with the schema.
    pub fn new(schema: &Value, most: Option<usize>) -> Result<Self, String> {
        Ok(Self { submission: Arc::new(ToolSchema::new(schema)?), max_chars: most, idle: Arc::new(Semaphore::new(1)) })
    }

    /// The data out of a call's input that was accepted before.
    pub fn accepted(&self, input: &RawValue) -> Option<Value> {
        self.submission.parse_data(input).ok()
    }

    /// Validates a call's input, in a thread that is left behind where it takes longer than that.
    async fn check(&self, input: &RawValue, limit: Duration) -> Result<(), ToolError> {
        let idle = tokio::time::timeout(limit, Arc::clone(&self.idle).acquire_owned());
        let Ok(Ok(permit)) = idle.await else {
            return Err(ToolError::new("Not taken. The validation of an earlier submission is still going on."));
        };
        let (submission, owned, most) = (Arc::clone(&self.submission), input.to_owned(), self.max_chars);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            validate(&submission, &owned, most)
        });
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Err(ToolError(format!("Not taken. The validation failed: {error}"))),
            Err(_) => Err(ToolError(format!(
                "Not taken. Validating the data took longer than {} seconds: the schema applies too many parts of itself to \
                 nested data. Submit data with less nesting.",
                limit.as_secs()
            ))),
        }
    }
}

/// Tells the model everything that keeps data from being the result.
fn validate(submission: &ToolSchema, input: &RawValue, most: Option<usize>) -> Result<(), ToolError> {
    let data = submission
        .read_validated(input)
        .map_err(|why| ToolError(format!("Not taken. {why}\nFix all of it and submit the whole data again.")))?;
    let length = data.to_string().chars().count();
    match most {
        Some(most) if length > most => Err(ToolError(format!(
            "Not taken. The data has {length} characters as JSON, and can have {most} at most. Submit less: leave out \
             what can be found in a file, or put it into one and say which."
        ))),
        _ => Ok(()),
    }
}

impl Tool for SubmitResult {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> String {
        "Hands over the result of your work as data. It counts where it fits the schema; otherwise you are told what is \
         wrong. Submit before you end, and all of it in one call: the last submission that fits is the result, and nothing \
         that you only write in a reply is part of it."
            .to_owned()
    }

    fn input_schema(&self) -> Value {
        self.submission.input_schema().clone()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let left = scope.limits.deadline.saturating_duration_since(Instant::now());
            self.check(input, MAX_TIME.min(left)).await.map(|()| TAKEN.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tool: &SubmitResult, input: &Value) -> Result<Value, String> {
        let input = RawValue::from_string(input.to_string()).unwrap();
        let checked = validate(&tool.submission, &input, tool.max_chars).map_err(|ToolError(why)| why);
        checked.map(|()| tool.accepted(&input).unwrap())
    }

    #[test]
    fn what_fits_is_the_result_and_what_does_not_is_told() {
        let tool = SubmitResult::new(&json!({ "type": "array", "items": { "type": "integer" } }), None).unwrap();
        assert_eq!(tool.input_schema()["properties"]["result"]["type"], "array");
        assert_eq!(read(&tool, &json!({ "result": [1] })), Ok(json!([1])));
        let why = read(&tool, &json!({ "result": ["a"] })).unwrap_err();
        assert!(
            why.contains("/result/0: expected a whole number") && why.contains("submit the whole data again"),
            "{why}"
        );
    }

    #[test]
    fn what_is_too_large_for_a_summary_is_not_taken() {
        let tool = SubmitResult::new(&json!({ "type": "object" }), Some(20)).unwrap();
        assert!(read(&tool, &json!({ "a": "123456789012" })).is_ok());
        let why = read(&tool, &json!({ "a": "1234567890123" })).unwrap_err();
        assert!(why.contains("has 21 characters") && why.contains("20 at most"), "{why}");
    }

    #[tokio::test]
    async fn a_validation_that_takes_too_long_is_given_up() {
        let twice = json!([{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }]);
        let schema = json!({
            "type": "object",
            "properties": { "c": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "properties": { "c": { "allOf": twice } } } },
        });
        let tool = SubmitResult::new(&schema, None).unwrap();
        let nested = |depth| (0..depth).fold(json!({}), |inside, _| json!({ "c": inside }));
        let input = |depth| RawValue::from_string(nested(depth).to_string()).unwrap();
        tool.check(&input(3), MAX_TIME).await.unwrap();
        // Its thread takes some seconds, and works on.
        let ToolError(why) = tool.check(&input(18), Duration::ZERO).await.unwrap_err();
        assert!(why.contains("took longer than 0 seconds"), "{why}");
        let ToolError(why) = tool.check(&input(3), Duration::from_millis(1)).await.unwrap_err();
        assert!(why.contains("still going on"), "{why}");
    }
}
