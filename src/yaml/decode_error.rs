//! The error of the deserializer, on its way from a `Deserialize` to the node where it is recorded.

use std::cell::RefCell;
use std::fmt::{self, Display};

use serde::de::{self, Expected, Unexpected};

use super::findings::excerpt;
use crate::diagnostic::{Suggestion, suggest};

/// The error of our deserializer.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// It is recorded already, or its cause is.
    Reported,
    /// A part can't be replaced by a placeholder, so the whole is dropped.
    PartDropped,
    /// A required key is missing.
    Missing(&'static str),
    /// The node isn't what was expected.
    WrongType(String),
    /// Anything else, ready to be shown.
    Detailed(Box<ErrorDetail>),
}

/// A finding without its place.
#[derive(Debug)]
pub struct ErrorDetail {
    /// The rule's code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The replacement for the invalid text.
    pub fix: Option<String>,
}

impl ErrorDetail {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: None, fix: None }
    }

    /// An unknown name; `near` is the suggestion.
    pub(super) fn unknown_name(
        code: &'static str,
        message: String,
        known: &[&str],
        near: Option<Suggestion<'_>>,
    ) -> Self {
        let list = match known {
            [] => "none is known".to_owned(),
            [only] => format!("expected `{only}`"),
            _ => format!("expected one of {}", listed(known)),
        };
        let help = match near {
            Some(near) => format!("did you mean `{}`? {list}", near.name),
            None => list,
        };
        let fix = near.filter(|near| near.is_certain).map(|near| near.name.to_owned());
        Self { code, message, help: Some(help), fix }
    }
}

impl DecodeError {
    /// An error with a help text.
    pub(super) fn with_help(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Detailed(Box::new(ErrorDetail { help: Some(help.into()), ..ErrorDetail::new(code, message) }))
    }

    pub(super) fn wrong_type(expected: impl Into<String>) -> Self {
        Self::WrongType(expected.into())
    }

    /// An unknown name, with a suggestion if one is near.
    fn unknown_name(code: &'static str, message: String, name: &str, known: &[&str]) -> Self {
        let near = suggest(name, known.iter().copied()).or_else(|| value_alias(name, known));
        Self::Detailed(Box::new(ErrorDetail::unknown_name(code, message, known, near)))
    }
}

/// The names of types in other languages.
const VALUE_ALIASES: &[(&str, &str)] = &[
    ("array", "list"),
    ("bool", "boolean"),
    ("double", "number"),
    ("file", "path"),
    ("float", "number"),
    ("int", "integer"),
    ("str", "string"),
    ("text", "string"),
];

/// The known value for a type's name in another language.
fn value_alias<'a>(word: &str, known: &[&'a str]) -> Option<Suggestion<'a>> {
    let (_, here) = VALUE_ALIASES.iter().find(|(other, _)| other.eq_ignore_ascii_case(word))?;
    known.iter().find(|name| **name == *here).map(|name| Suggestion { name, is_certain: true })
}

pub(super) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported | Self::PartDropped => f.write_str("already reported"),
            Self::Missing(key) => write!(f, "required key `{key}` is missing"),
            Self::WrongType(expected) => write!(f, "expected {expected}"),
            Self::Detailed(detail) => f.write_str(&detail.message),
        }
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: Display>(message: T) -> Self {
        let text = message.to_string();
        let detail = unpack_coded_error(&text).unwrap_or_else(|| ErrorDetail::new("invalid-value", text));
        Self::Detailed(Box::new(detail))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::wrong_type(expected.to_string())
    }

    fn invalid_value(value: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let (code, shown) = match value {
            Unexpected::Unsigned(value) => ("out-of-range", value.to_string()),
            Unexpected::Signed(value) => ("out-of-range", value.to_string()),
            Unexpected::Float(value) => ("out-of-range", value.to_string()),
            Unexpected::Str(text) => ("invalid-value", format!("\"{}\"", excerpt(text))),
            other => ("invalid-value", other.to_string()),
        };
        let message = format!("expected {expected}, found {shown}");
        Self::Detailed(Box::new(ErrorDetail::new(code, message)))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::unknown_name("unknown-value", format!("unknown value `{}`", excerpt(variant)), variant, known)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::unknown_name("unknown-key", format!("unknown key `{}`", excerpt(field)), field, known)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

thread_local! {
    /// The codes in error texts, by number.
    static CODES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Separates the parts of an error text with a code; no file can contain it.
const SEPARATOR: char = '\u{1}';

/// An error for a hand-written `Deserialize` that keeps its own code and help. The YAML reader reports it at the node that
/// is being decoded; other deserializers show the message.
///
/// The text of the error is `SEPARATOR number SEPARATOR help SEPARATOR message`, with the code's number in
/// a list of the thread and U+0001 as separator. A plain `Error::custom("...")` gets the code `invalid-value`.
pub fn coded_error<E: de::Error>(code: &'static str, message: impl Display, help: Option<&str>) -> E {
    let number = CODES.with_borrow_mut(|codes| {
        codes.iter().position(|known| *known == code).unwrap_or_else(|| {
            codes.push(code);
            codes.len() - 1
        })
    });
    let clean = |text: &str| text.replace(SEPARATOR, " ");
    let (message, help) = (clean(&message.to_string()), clean(help.unwrap_or_default()));
    E::custom(format_args!("{SEPARATOR}{number}{SEPARATOR}{help}{SEPARATOR}{message}"))
}

fn unpack_coded_error(text: &str) -> Option<ErrorDetail> {
    let mut parts = text.strip_prefix(SEPARATOR)?.splitn(3, SEPARATOR);
    let number: usize = parts.next()?.parse().ok()?;
    let help = parts.next()?;
    let message = parts.next()?.to_owned();
    let code = CODES.with_borrow(|codes| codes.get(number).copied())?;
    Some(ErrorDetail { code, message, help: (!help.is_empty()).then(|| help.to_owned()), fix: None })
}
