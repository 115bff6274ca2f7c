//! Detects an agent that only repeats failing calls.

use crate::message::ToolCall;

/// The same failing call this many times in a row is a loop.
const MAX_IDENTICAL_FAILURES: u32 = 5;
/// This many failing calls in a row are a loop, whatever they are.
const MAX_CONSECUTIVE_FAILURES: u32 = 20;

/// Counts failing calls in a row.
#[derive(Debug, Default)]
pub(super) struct StuckDetector {
    last: Option<ToolCall>,
    identical: u32,
    consecutive: u32,
}

impl StuckDetector {
    /// Counts a finished call. Calls are counted in order.
    pub(super) fn record(&mut self, call: &ToolCall, failed: bool) {
        if self.stuck_reason().is_some() {
            return;
        }
        if !failed {
            *self = Self::default();
            return;
        }
        let content = |call: &ToolCall| (call.tool.clone(), call.input.get().to_owned(), call.input_error.clone());
        let is_same = self.last.as_ref().is_some_and(|last| content(last) == content(call));
        self.identical = if is_same { self.identical + 1 } else { 1 };
        self.consecutive += 1;
        self.last = Some(call.clone());
    }

    /// Why the agent is stuck, if it is.
    pub(super) fn stuck_reason(&self) -> Option<String> {
        let tool = &self.last.as_ref()?.tool;
        if self.identical >= MAX_IDENTICAL_FAILURES {
            Some(format!("the same call of `{tool}` failed {MAX_IDENTICAL_FAILURES} times in a row"))
        } else if self.consecutive >= MAX_CONSECUTIVE_FAILURES {
            Some(format!("{MAX_CONSECUTIVE_FAILURES} calls failed in a row, the last one of `{tool}`"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(input: &str) -> ToolCall {
        let input: Box<serde_json::value::RawValue> = serde_json::from_str(input).unwrap();
        ToolCall { id: "1".into(), tool: "bash".into(), input: input.into(), input_error: None }
    }

    #[test]
    fn five_identical_failures_in_a_row_are_a_loop() {
        let mut failures = StuckDetector::default();
        for _ in 0..4 {
            failures.record(&call("{}"), true);
        }
        failures.record(&call("{}"), false);
        for _ in 0..4 {
            failures.record(&call("{}"), true);
        }
        assert_eq!(failures.stuck_reason(), None);
        failures.record(&call("{}"), true);
        assert!(failures.stuck_reason().unwrap().contains("5 times"));
        failures.record(&call("{}"), false);
        assert!(failures.stuck_reason().is_some(), "a success later in the same reply doesn't undo it");
    }

    #[test]
    fn twenty_different_failures_in_a_row_are_a_loop() {
        let mut failures = StuckDetector::default();
        for number in 0..19 {
            failures.record(&call(&number.to_string()), true);
        }
        assert_eq!(failures.stuck_reason(), None);
        failures.record(&call("19"), true);
        assert!(failures.stuck_reason().unwrap().contains("20 calls"));
    }
}
