//! Validates values against a schema.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Value, json};

use super::Violation;
use super::draft::{draft_of, draft_uri};

/// How often a pattern may backtrack before it counts as not matching.
const MAX_BACKTRACKS: usize = 100_000;

/// A compiled schema.
#[derive(Debug)]
pub struct SchemaValidator {
    validator: Validator,
}

impl SchemaValidator {
    /// Compiles a bundled schema. Its draft is that of `$schema`, by default 2020-12; `format` is checked in every draft.
    ///
    /// # Errors
    /// The first error in the schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let draft = draft_of(schema).transpose()?.unwrap_or(Draft::Draft202012);
        let built = jsonschema::options()
            .with_draft(draft)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS))
            .should_validate_formats(true)
            .offline()
            .build(schema);
        built.map(|validator| Self { validator }).map_err(|error| Violation::of(&error).message)
    }

    /// The violations of a value, up to a number, and how many more there are (at most 1,000 are counted).
    pub fn violations(&self, value: &Value, most: usize) -> (Vec<Violation>, usize) {
        let mut errors = self.validator.iter_errors(value).take(most + 1_000);
        let mut violations: Vec<Violation> = Vec::new();
        for error in errors.by_ref() {
            let violation = Violation::of(&error);
            if !violations.contains(&violation) {
                violations.push(violation);
            }
            if violations.len() >= most {
                break;
            }
        }
        let more = errors.count();
        (violations, more)
    }

    /// Whether a value fits.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }
}

/// The error in a regular expression, if there is one.
pub(super) fn pattern_error(pattern: &str, draft: Draft) -> Option<String> {
    let alone = json!({ "$schema": draft_uri(draft), "pattern": pattern });
    SchemaValidator::new(&alone).err()
}
