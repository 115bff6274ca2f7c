//! Describes why a value doesn't fit its schema.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::text::{pluralize, truncate::ellipsize};

/// The longest description of one violation, in characters.
const MAX_WORDS: usize = 600;
/// The longest piece of a value or a schema that is quoted, in characters.
const MAX_QUOTED: usize = 120;
/// How many alternatives are described, and how many violations of each.
const MAX_ALTERNATIVES: usize = 6;
const MAX_OF_EACH: usize = 3;
/// How deep alternatives within alternatives are described.
const MAX_NESTED: usize = 2;

/// One reason why a value doesn't fit a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The place in the value as a JSON pointer; empty for the whole value.
    pub path: String,
    /// What was expected and what was found, in at most 600 characters.
    pub message: String,
}

impl Violation {
    pub(super) fn of(error: &ValidationError<'_>) -> Self {
        Self { path: error.instance_path().to_string(), message: ellipsize(&describe(error, 0), MAX_WORDS) }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.path.is_empty() { "the whole value" } else { &self.path };
        write!(f, "{place}: {}", self.message)
    }
}

/// What was expected, and what was found.
pub(super) fn describe(error: &ValidationError<'_>, depth: usize) -> String {
    use ValidationErrorKind as Kind;
    let found = || quoted(error.instance());
    let size = || describe_size(error.instance());
    let items = |count: u64| pluralize(count, "item");
    let fields = |count: u64| if count == 1 { "1 property".to_owned() } else { format!("{count} properties") };
    let letters = |count: u64| pluralize(count, "character");
    match error.kind() {
        Kind::Type { kind } => format!("expected {}, found {}", types(kind), found()),
        Kind::Enum { options } => format!("expected one of {}, found {}", quoted(options), found()),
        Kind::Constant { expected_value } => format!("expected {}, found {}", quoted(expected_value), found()),
        Kind::Required { property } => format!("{} is missing", quoted(property)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> =
                unexpected.iter().take(20).map(|name| quoted(&Value::from(name.as_str()))).collect();
            let more = if unexpected.len() > names.len() { " and more" } else { "" };
            format!("the schema doesn't allow {}{more}", names.join(", "))
        }
        Kind::AdditionalItems { limit } => format!("expected at most {}", items(*limit as u64)),
        Kind::UnevaluatedItems { .. } => "there are more items than there can be".to_owned(),
        Kind::Minimum { limit } => format!("expected {limit} or more, found {}", found()),
        Kind::Maximum { limit } => format!("expected {limit} or less, found {}", found()),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}, found {}", found()),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}, found {}", found()),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}, found {}", found()),
        Kind::MinItems { limit } => format!("expected at least {}, found {}", items(*limit), found()),
        Kind::MaxItems { limit } => format!("expected at most {}, found {}", items(*limit), size()),
        Kind::MinProperties { limit } => format!("expected at least {}, found {}", fields(*limit), found()),
        Kind::MaxProperties { limit } => format!("expected at most {}, found {}", fields(*limit), size()),
        Kind::MinLength { limit } => format!("expected at least {}, found {}", letters(*limit), found()),
        Kind::MaxLength { limit } => format!("expected at most {}, found {}", letters(*limit), size()),
        Kind::Pattern { pattern } => format!("expected a string that matches `{}`, found {}", short(pattern), found()),
        Kind::Format { format } => format!("expected a string with the format `{}`, found {}", short(format), found()),
        Kind::UniqueItems => "expected items that are all different".to_owned(),
        Kind::Contains => "expected an item that fits `contains`".to_owned(),
        Kind::FalseSchema => format!("no value is allowed here, found {}", found()),
        Kind::Not { schema } => format!("expected anything that doesn't fit {}, found {}", quoted(schema), found()),
        Kind::PropertyNames { error: name } => format!("a property's name doesn't fit: {}", describe(name, depth)),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            format!("fits none of the {} alternatives{}", context.len(), alternatives(error, context, depth))
        }
        Kind::OneOfMultipleValid { .. } => "fits more than one of the alternatives of `oneOf`".to_owned(),
        _ => short(&error.to_string()),
    }
}

/// What each alternative expects.
fn alternatives(outer: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>], depth: usize) -> String {
    if depth >= MAX_NESTED || context.is_empty() {
        return String::new();
    }
    let above = outer.instance_path().to_string();
    let each = context.iter().take(MAX_ALTERNATIVES).enumerate().map(|(number, errors)| {
        let described = errors.iter().take(MAX_OF_EACH).map(|error| {
            let path = error.instance_path().to_string();
            let below = path.strip_prefix(&above).unwrap_or(&path);
            let place = if below.is_empty() { String::new() } else { format!("{below} ") };
            format!("{place}{}", describe(error, depth + 1))
        });
        format!("({}) {}", number + 1, described.collect::<Vec<_>>().join(", and "))
    });
    format!(": {}", each.collect::<Vec<_>>().join("; "))
}

fn types(kind: &TypeKind) -> String {
    let named = |kind: JsonType| match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    };
    match kind {
        TypeKind::Single(kind) => named(*kind).to_owned(),
        TypeKind::Multiple(kinds) => kinds.iter().map(named).collect::<Vec<_>>().join(" or "),
    }
}

/// A value as JSON, cut if it is long.
pub(super) fn quoted(value: &Value) -> String {
    short(&value.to_string())
}

/// The length of a list, object or string.
fn describe_size(value: &Value) -> String {
    match value {
        Value::Array(items) => items.len().to_string(),
        Value::Object(fields) => fields.len().to_string(),
        Value::String(text) => text.chars().count().to_string(),
        other => quoted(other),
    }
}

fn short(text: &str) -> String {
    ellipsize(text, MAX_QUOTED)
}
