//! An input of a job.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::prompt::PATH_PATTERN;
use crate::yaml::{self, Node, Spanned};

/// One input: a value that can or must be given when the job starts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "input", extend("allOf" = by_type()))]
pub struct Input {
    /// The type of the value.
    #[serde(rename = "type")]
    pub kind: Spanned<InputType>,

    /// What it is for.
    pub description: Option<String>,

    /// The value if none is given. Without a default, the input is required.
    #[schemars(extend("type" = ["string", "number", "boolean", "array"]))]
    pub default: Option<Node>,

    /// The values that a `string` can have.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    #[serde(rename = "enum", default, deserialize_with = "enum_of_strings")]
    #[schemars(with = "Option<Vec<String>>")]
    pub choices: Option<EnumValues>,

    /// Whether untrusted users can write the text. Such an input can't be used in a system prompt.
    #[schemars(extend("default" = false))]
    pub untrusted: Option<Spanned<bool>>,

    /// Whether the value is secret: it is never in a prompt or in the record. Commands get it as `$INPUT_NAME`, the name in
    /// capitals.
    #[schemars(extend("default" = false))]
    pub secret: Option<Spanned<bool>>,
}

/// The values of an enum.
type EnumValues = Spanned<Vec<Spanned<String>>>;

/// Reads an enum. What its values are is said only if the input can have one.
fn enum_of_strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EnumValues>, D::Error> {
    let node = Node::deserialize(deserializer)?;
    if node.is_placeholder() || node.is_null() {
        return Ok(None);
    }
    let kind = node.parent().and_then(|input| input.get("type"));
    let kind = kind.and_then(|kind| serde_json::from_value(Value::from(kind.as_str()?)).ok());
    if let Some(kind) = kind.filter(|kind: &InputType| *kind != InputType::String) {
        let message = format!("only a string can have an enum, not {}", with_article(kind.noun()));
        let help = "write `type: string` and the values in quotes, or remove the enum";
        return Err(yaml::coded_error("bad-enum", message, Some(help)));
    }
    Ok(node.decode_nested())
}

/// JSON Schema of the conditions that `type` and `secret` set for the other keys.
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
        "patternErrorMessage": "a path is relative to the workspace and stays below it",
    });
    vec![
        of(InputType::String, json!({ "type": "string" })),
        of(InputType::Integer, json!({ "type": "integer", "minimum": i64::MIN, "maximum": i64::MAX })),
        of(InputType::Number, json!({ "type": "number" })),
        of(InputType::Boolean, json!({ "type": "boolean" })),
        of(InputType::Path, path.clone()),
        of(InputType::Image, path),
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
                "errorMessage": "a secret doesn't belong in a job file",
            }),
        ),
    ]
}

impl Input {
    /// Whether its value is a path of the workspace.
    pub fn is_path(&self) -> bool {
        matches!(self.kind.value, InputType::Path | InputType::Image)
    }

    /// Whether its value is secret.
    pub fn is_secret(&self) -> bool {
        yaml::value_or(self.secret.as_ref(), false)
    }

    /// Whether untrusted users can write it.
    pub fn is_untrusted(&self) -> bool {
        yaml::value_or(self.untrusted.as_ref(), false)
    }
}

/// A noun with its article.
pub fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// The types of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputType {
    /// Any text.
    String,
    /// A signed 64-bit integer.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A path below the workspace, relative to it.
    Path,
    /// A list of texts.
    List,
    /// The path of an image or a PDF, which the parent gets with its first message.
    Image,
}

impl InputType {
    /// The type in words.
    pub fn noun(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Path => "path",
            Self::List => "list of strings",
            Self::Image => "image",
        }
    }
}

/// The environment variable in which commands get an input.
pub fn input_variable(name: &str) -> String {
    format!("INPUT_{}", name.to_uppercase())
}
