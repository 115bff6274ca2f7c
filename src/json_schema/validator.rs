//! Values held against a schema.

use jsonschema::{PatternOptions, Validator};
use serde_json::{Value, json};

use super::Violation;
use super::draft::Draft;

/// How often a pattern may go back before it counts as not matching.
const MAX_BACKTRACKS: usize = 100_000;

/// A schema that stands alone.
#[derive(Debug)]
pub struct SchemaValidator {
    validator: Validator,
}

impl SchemaValidator {
    /// Makes it ready. `$schema` says its draft, 2020-12 where there is none; `format` is held against values in each.
    ///
    /// # Errors
    /// Says the first thing that is wrong with it.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let draft = Draft::of(schema).transpose()?.unwrap_or(Draft::Draft2020);
        let built = jsonschema::options()
            .with_draft(draft.to_crate_draft())
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS))
            .should_validate_formats(true)
            .offline()
            .build(schema);
        built.map(|validator| Self { validator }).map_err(|error| Violation::of(&error).message)
    }

    /// What keeps a value from fitting, at most so much of it, and how much more there is (of which no more than 1,000 are
    /// counted). Nothing where it fits.
    pub fn violations(&self, value: &Value, most: usize) -> (Vec<Violation>, usize) {
        let mut errors = self.validator.iter_errors(value).take(most + 1_000);
        let mut told: Vec<Violation> = Vec::new();
        for error in errors.by_ref() {
            let mistake = Violation::of(&error);
            if !told.contains(&mistake) {
                told.push(mistake);
            }
            if told.len() >= most {
                break;
            }
        }
        let more = errors.count();
        (told, more)
    }

    /// Whether a value fits.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }
}

/// What is wrong with a regular expression, where something is.
pub(super) fn pattern_error(pattern: &str, draft: Draft) -> Option<String> {
    let alone = json!({ "$schema": draft.uri(), "pattern": pattern });
    SchemaValidator::new(&alone).err()
}
