//! Which inputs a job's texts use.

use std::collections::HashSet;

/// The inputs that some text names, whatever comes of it when it is rendered.
#[derive(Debug, Default)]
pub struct UsedInputs {
    pub(super) inputs: HashSet<String>,
    /// `inputs` is used as a whole, or by names that are only known when the text is rendered.
    pub(super) all: bool,
    /// Some text couldn't be read to its end.
    pub(super) is_incomplete: bool,
}

impl UsedInputs {
    /// Whether some text uses the input.
    pub fn has(&self, input: &str) -> bool {
        self.all || self.inputs.contains(input)
    }

    /// Whether every text was read to its end, so that what isn't used is known.
    pub fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    pub(super) fn add(&mut self, input: &str) {
        if !self.inputs.contains(input) {
            self.inputs.insert(input.to_owned());
        }
    }
}
