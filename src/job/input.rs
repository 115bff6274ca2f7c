//! What a job wants to be given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PATH_PATTERN;
use crate::yaml::{Node, Spanned};

/// One input: what whoever starts the job can or must give.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "input", extend("allOf" = by_type()))]
pub struct Input {
    /// What kind of value it is.
    #[serde(rename = "type")]
    pub kind: Spanned<InputType>,

    /// What it is for.
    pub description: Option<String>,

    /// The value where none is given. Without a default, the input is required.
    #[schemars(extend("type" = ["string", "number", "boolean", "array"]))]
    pub default: Option<Node>,

    /// The values that a `string` can have.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    #[serde(rename = "enum")]
    pub choices: Option<Spanned<Vec<Spanned<String>>>>,

    /// Whether strangers can write the text; such an input is best kept out of system prompts.
    #[schemars(extend("default" = false))]
    pub untrusted: Option<Spanned<bool>>,

    /// Whether the value is secret: it is never put in a prompt or the record; `bash` sees it as `$INPUT_NAME`, the
    /// name in capitals.
    #[schemars(extend("default" = false))]
    pub secret: Option<Spanned<bool>>,
}

/// JSON Schema of what an input's type, and that it is secret, mean for its other keys.
fn by_type() -> Vec<Value> {
    let when = |key: &str, is: Value, then: Value| json!({ "if": { "required": [key], "properties": { key: { "const": is } } }, "then": then });
    let of = |kind: InputType, default: Value| match kind {
        InputType::String => when("type", json!(kind), json!({ "properties": { "default": default } })),
        _ => when(
            "type",
            json!(kind),
            json!({
                "properties": { "default": default, "enum": false },
                "errorMessage": "only a string can have an enum",
            }),
        ),
    };
    let path = json!({
        "type": "string",
        "pattern": PATH_PATTERN,
        "patternErrorMessage": "a path is relative to the workspace and stays beneath it",
    });
    vec![
        of(InputType::String, json!({ "type": "string" })),
        of(InputType::Integer, json!({ "type": "integer", "minimum": i64::MIN, "maximum": i64::MAX })),
        of(InputType::Number, json!({ "type": "number" })),
        of(InputType::Boolean, json!({ "type": "boolean" })),
        of(InputType::Path, path),
        of(InputType::List, json!({ "type": "array", "items": { "type": "string" } })),
        when(
            "secret",
            json!(true),
            json!({
                "properties": {
                    "type": { "const": "string", "errorMessage": "a secret is a string" },
                    "default": false,
                    "enum": false,
                },
                "errorMessage": "a secret doesn't belong into a job file",
            }),
        ),
    ]
}

impl Input {
    /// Whether its value must stay out of every text.
    pub fn is_secret(&self) -> bool {
        super::value_or(self.secret.as_ref(), false)
    }

    /// Whether strangers can write it.
    pub fn is_untrusted(&self) -> bool {
        super::value_or(self.untrusted.as_ref(), false)
    }
}

/// The kinds of values that an input can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputType {
    /// Any text.
    String,
    /// A whole number, 64 bits with sign.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A path beneath the workspace, relative to it.
    Path,
    /// A list of texts.
    List,
}

impl InputType {
    /// The kind in words, as in "is no integer".
    pub fn noun(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Path => "path",
            Self::List => "list of strings",
        }
    }
}

/// The environment variable in which commands get an input.
pub fn input_variable(name: &str) -> String {
    format!("INPUT_{}", name.to_uppercase())
}
