//! Why a node couldn't be decoded, on its way from a `Deserialize` to the place where it is recorded.

use std::cell::RefCell;
use std::fmt::{self, Display};

use serde::de::{self, Expected, Unexpected};

use super::findings::excerpt;
use crate::diagnostic::{Near, near};

/// The error of our deserializer.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is recorded, or its cause is.
    Recorded,
    /// A part that can't be made up takes the whole with it.
    PartDropped,
    /// A required key isn't there.
    Missing(&'static str),
    /// Something of another type was expected than the node is.
    WrongType { expected: String, help: Option<String>, fix: Option<String> },
    /// Anything else, ready to be shown.
    Said(Box<Said>),
}

/// A finding without its place.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) fix: Option<String>,
}

impl Said {
    pub(super) fn plain(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: None, fix: None }
    }
}

impl Fault {
    pub(super) fn said(code: &'static str, message: impl Into<String>) -> Self {
        Self::Said(Box::new(Said::plain(code, message)))
    }

    /// With what to do about it.
    pub(super) fn helped(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Said(Box::new(Said { help: Some(help.into()), ..Said::plain(code, message) }))
    }

    pub(super) fn wrong_type(expected: impl Into<String>) -> Self {
        Self::WrongType { expected: expected.into(), help: None, fix: None }
    }

    /// None of the known names.
    pub(super) fn unknown(code: &'static str, message: String, name: &str, known: &[&str]) -> Self {
        let near = near(name, known.iter().copied()).or_else(|| elsewhere(name, known));
        Self::unknown_but_near(code, message, known, near)
    }

    /// None of the known names; probably `near` is meant.
    pub(super) fn unknown_but_near(
        code: &'static str,
        message: String,
        known: &[&str],
        near: Option<Near<'_>>,
    ) -> Self {
        let list = match known {
            [] => "there are none".to_owned(),
            _ => format!("known are {}", listed(known)),
        };
        let help = match near {
            Some(near) => format!("did you mean `{}`? {list}", near.name),
            None => list,
        };
        let fix = near.filter(|near| near.is_only).map(|near| near.name.to_owned());
        Self::Said(Box::new(Said { code, message, help: Some(help), fix }))
    }
}

/// What values are called in other languages.
const ELSEWHERE: &[(&str, &str)] = &[
    ("array", "list"),
    ("bool", "boolean"),
    ("double", "number"),
    ("file", "path"),
    ("float", "number"),
    ("int", "integer"),
    ("str", "string"),
    ("text", "string"),
];

/// The known value that a word of another language stands for.
fn elsewhere<'a>(word: &str, known: &[&'a str]) -> Option<Near<'a>> {
    let (_, here) = ELSEWHERE.iter().find(|(other, _)| other.eq_ignore_ascii_case(word))?;
    known.iter().find(|name| **name == *here).map(|name| Near { name, is_only: true })
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded | Self::PartDropped => f.write_str("already reported"),
            Self::Missing(key) => write!(f, "required key `{key}` is missing"),
            Self::WrongType { expected, .. } => write!(f, "expected {expected}"),
            Self::Said(said) => f.write_str(&said.message),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        let text = message.to_string();
        match unpack(&text) {
            Some(said) => Self::Said(Box::new(said)),
            None => Self::said("invalid-value", text),
        }
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
        Self::said(code, format!("expected {expected}, found {shown}"))
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let help = Some(format!("write {expected}"));
        let message = format!("expected {expected}, found {length} items");
        Self::Said(Box::new(Said { code: "wrong-type", message, help, fix: None }))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::unknown("unknown-value", format!("unknown value `{}`", excerpt(variant)), variant, known)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::unknown("unknown-key", format!("unknown key `{}`", excerpt(field)), field, known)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        let help = Some("remove one of the two".to_owned());
        let message = format!("key `{field}` is set twice");
        Self::Said(Box::new(Said { code: "duplicate-key", message, help, fix: None }))
    }
}

thread_local! {
    /// Codes that travel through error texts, by number.
    static CODES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Separates the parts of an error text that carries a code; no file can hold it.
const SEPARATOR: char = '\u{1}';

/// An error for a `Deserialize` written by hand that keeps its own code and help. The YAML reader shows it at the
/// node that was being decoded; other deserializers show the message.
///
/// The text of the error is `SEPARATOR number SEPARATOR help SEPARATOR message`, with the code's number in a
/// thread's own list and U+0001 as separator. A plain `Error::custom("...")` gets the code `invalid-value`.
pub fn invalid<E: de::Error>(code: &'static str, message: impl Display, help: Option<&str>) -> E {
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

fn unpack(text: &str) -> Option<Said> {
    let mut parts = text.strip_prefix(SEPARATOR)?.splitn(3, SEPARATOR);
    let number: usize = parts.next()?.parse().ok()?;
    let help = parts.next()?;
    let message = parts.next()?.to_owned();
    let code = CODES.with_borrow(|codes| codes.get(number).copied())?;
    Some(Said { code, message, help: (!help.is_empty()).then(|| help.to_owned()), fix: None })
}
