//! `submit_result`: how an agent hands over data. No allowlist names it: whoever is asked for data has it.

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Refusal, Scope, Tool};
use crate::data::Submission;

/// What a model is told of a submission that fits.
const TAKEN: &str = "Taken: the data fits and is the result by now. Go on if there is more to do, or end; another call \
                     with other data replaces it.";

/// The tool of one agent, whose data has a schema of its own.
#[derive(Debug)]
pub struct SubmitResult {
    submission: Submission,
    /// The greatest size of the data as JSON, in characters.
    most: Option<usize>,
}

impl SubmitResult {
    /// The tool's name.
    pub const NAME: &str = "submit_result";

    /// Asks for data that fits a schema that stands alone, and is at most so many characters long as JSON.
    ///
    /// # Errors
    /// Says what is wrong with the schema.
    pub fn new(schema: &Value, most: Option<usize>) -> Result<Self, String> {
        Ok(Self { submission: Submission::new(schema)?, most })
    }

    /// The data out of a call's input.
    ///
    /// # Errors
    /// Tells the model everything that keeps it from being the result.
    pub fn read(&self, input: &RawValue) -> Result<Value, Refusal> {
        let data = self
            .submission
            .read(input)
            .map_err(|why| Refusal(format!("Not taken. {why}\nMend all of it and submit the whole data again.")))?;
        let length = data.to_string().chars().count();
        match self.most {
            Some(most) if length > most => Err(Refusal(format!(
                "Not taken. The data has {length} characters as JSON, and can have {most} at most. Submit less: leave out \
                 what can be found in a file, or put it into one and say which."
            ))),
            _ => Ok(data),
        }
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

    fn call<'a>(&'a self, input: &'a RawValue, _: &'a Scope<'a>) -> BoxFuture<'a, Result<String, Refusal>> {
        Box::pin(async move { self.read(input).map(|_| TAKEN.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tool: &SubmitResult, input: &Value) -> Result<Value, String> {
        tool.read(&RawValue::from_string(input.to_string()).unwrap()).map_err(|Refusal(why)| why)
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
}
