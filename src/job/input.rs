//! What a job wants to be given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::yaml::{Node, Spanned};

/// One input: what whoever starts the job can or must give.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What kind of value it is.
    #[serde(rename = "type")]
    pub kind: Spanned<InputType>,

    /// What it is for.
    pub description: Option<String>,

    /// The value where none is given. Without a default, the input is required.
    pub default: Option<Node>,

    /// The values that a `string` can have.
    #[serde(rename = "enum")]
    pub choices: Option<Spanned<Vec<Spanned<String>>>>,

    /// Whether strangers can write the text; such an input is best kept out of system prompts.
    pub untrusted: Option<Spanned<bool>>,

    /// Whether the value is secret: it is never put in a prompt or the record; `bash` sees it as `$INPUT_NAME`, the
    /// name in capitals.
    pub secret: Option<Spanned<bool>>,
}

impl Input {
    /// Whether its value must stay out of every text.
    pub fn is_secret(&self) -> bool {
        super::or(self.secret.as_ref(), false)
    }

    /// Whether strangers can write it.
    pub fn is_untrusted(&self) -> bool {
        super::or(self.untrusted.as_ref(), false)
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
