//! The serde `Deserializer` of nodes. A placeholder answers every request with a neutral value.

use std::fmt::Display;

use serde::de::{IntoDeserializer, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::decode_error::{DecodeError, listed};
use super::decode_recovery::NodeDeserializer;
use super::node::{Content, NODE, Node, NodeKind};
use super::scalar::{self, Scalar};
use super::serde_access::{ListAccess, MappingAccess};
use super::spanned::SPANNED;
use crate::diagnostic::strip_typographic_quotes;

/// The expected value of a count that may be unlimited, as its hand-written `Deserialize` says.
pub const EXPECTED_COUNT: &str = "a whole number, or `none`";

/// The expected value of an amount that may be unlimited.
pub const EXPECTED_AMOUNT: &str = "a number, or `none`";

/// The entries of a mapping; a placeholder has none.
fn pairs<'a>(node: NodeDeserializer<'a>) -> Option<&'a [(u32, u32)]> {
    match node.content() {
        _ if node.is_placeholder() => Some(&[]),
        Content::Mapping(pairs) => Some(pairs),
        _ => None,
    }
}

impl NodeDeserializer<'_> {
    /// The meaning of a scalar; `None` for anything else.
    fn scalar(self) -> Option<Scalar> {
        match self.content() {
            Content::Scalar { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// The help for a value that isn't what was expected, and the text to write instead, if it is certain.
    pub(super) fn correction(self, expected: &str) -> (String, Option<String>) {
        let node = self.node();
        let plain = node.text().filter(|_| node.is_plain()).unwrap_or_default();
        let boolean =
            |meant: &str| ("in YAML 1.2 the booleans are `true` and `false`".to_owned(), Some(meant.to_owned()));
        let help = match (expected, node.kind()) {
            ("a string", NodeKind::Boolean(_) | NodeKind::Integer(_) | NodeKind::Number(_)) if node.is_plain() => {
                let quoted = format!("\"{plain}\"");
                return (format!("put it in quotes: {quoted}"), Some(quoted));
            }
            ("a string", NodeKind::List | NodeKind::Mapping) => {
                "write a string, in quotes if it starts with a bracket or a dash"
            }
            ("a string", _) => "write a string, or `\"\"` for an empty one",
            ("an integer" | "a number" | EXPECTED_COUNT | EXPECTED_AMOUNT, _) => {
                let is_whole = matches!(expected, "an integer" | EXPECTED_COUNT);
                return match (intended_number(&node, is_whole), expected) {
                    (Some((help, number)), _) => (format!("{help} {number}"), Some(number)),
                    (None, "an integer") => ("write a whole number, such as 10".to_owned(), None),
                    (None, EXPECTED_COUNT) => (format!("write {expected}"), None),
                    (None, _) => ("write a number, such as 1.5".to_owned(), None),
                };
            }
            ("a boolean", _) if matches!(plain.to_lowercase().as_str(), "yes" | "on") => return boolean("true"),
            ("a boolean", _) if matches!(plain.to_lowercase().as_str(), "no" | "off") => return boolean("false"),
            ("a boolean", _) => "write `true` or `false`",
            // Not `-5`, nor `--option`.
            ("a list", _) if plain.strip_prefix('-').is_some_and(|item| item.starts_with(char::is_alphabetic)) => {
                "a space is missing after the `-`: write `- item`"
            }
            ("a list", _) if !plain.is_empty() && plain.len() < 40 => {
                let what = if plain.contains(',') { "a list" } else { "a list of one item" };
                return (format!("{what} is written `[{plain}]`"), None);
            }
            ("a list", NodeKind::Mapping) => "start each item with `- `",
            ("a list", _) => "write `[ITEM, ITEM]`, or `[]` for an empty one",
            ("a mapping", NodeKind::List) => "write `key: value` lines without a `-`",
            ("a mapping", _) => "write `key: value` lines, indented below it",
            (_, NodeKind::Integer(_)) if expected.starts_with("a duration") => {
                return (format!("write it with a unit: `{plain}s`, `{plain}m` or `{plain}h`"), None);
            }
            _ => return (format!("write {expected}"), None),
        };
        (help.to_owned(), None)
    }

    fn integer<T>(self, least: T, greatest: T) -> Result<T, DecodeError>
    where
        T: TryFrom<i128> + Display + Copy,
    {
        let out_of_range = |value: i128| {
            let bound = if value < 0 { format!("at least {least}") } else { format!("at most {greatest}") };
            let help = format!("write a whole number of {bound}");
            DecodeError::with_help("out-of-range", format!("expected an integer of {bound}, found {value}"), help)
        };
        match self.scalar() {
            _ if self.is_placeholder() => T::try_from(1).map_err(|_| DecodeError::PartDropped),
            Some(Scalar::Integer(value)) => T::try_from(value).map_err(|_| out_of_range(value)),
            _ => Err(DecodeError::wrong_type("an integer")),
        }
    }

    fn number(self) -> Result<f64, DecodeError> {
        match self.scalar() {
            _ if self.is_placeholder() => Ok(1.0),
            Some(Scalar::Integer(value)) => Ok(value as f64),
            Some(Scalar::Number(value)) if value.is_finite() => Ok(value),
            Some(Scalar::Number(_)) => Err(self.not_finite()),
            _ => Err(DecodeError::wrong_type("a number")),
        }
    }

    fn not_finite(self) -> DecodeError {
        let message = format!("expected a finite number, found {}", self.node().describe());
        DecodeError::with_help("out-of-range", message, "write a number, such as 1.5")
    }
}

fn one_of(names: &[&str]) -> String {
    let names = listed(names);
    names.rsplit_once(", ").map_or(names.clone(), |(rest, last)| format!("{rest} or {last}"))
}

/// The number that a text means, and the help: `$2`, `500k`, `2M`.
fn abbreviated_number(text: &str) -> Option<(String, &'static str)> {
    if let Some(amount) = text.strip_prefix('$') {
        return Some((amount.trim_start().to_owned(), "write it without the currency:"));
    }
    let zeros = match text.chars().next_back()? {
        'k' | 'K' => "000",
        'm' | 'M' => "000000",
        _ => return None,
    };
    let digits = text[..text.len() - 1].trim_end();
    let is_number = !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (format!("{digits}{zeros}"), "write it in full:"))
}

/// The help and the number, if a string is a number in quotes or with underscores.
fn intended_number(node: &Node, is_whole: bool) -> Option<(&'static str, String)> {
    let text = node.as_str()?;
    let (number, help) = match (node.without_underscores(), strip_typographic_quotes(text)) {
        (Some(number), _) => (number, "numbers have no underscores in YAML 1.2; write"),
        (None, Some(number)) => (number.to_owned(), "write it without quotes:"),
        (None, None) if !node.is_plain() => (text.to_owned(), "write it without quotes:"),
        (None, None) => abbreviated_number(text)?,
    };
    let fits = match scalar::plain(&number) {
        Scalar::Integer(_) => true,
        Scalar::Number(value) => !is_whole && value.is_finite(),
        _ => false,
    };
    fits.then_some((help, number))
}

macro_rules! integers {
    ($($deserialize:ident $visit:ident $type:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(self.integer($type::MIN, $type::MAX)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DecodeError;

    integers! {
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.is_placeholder() {
            return visitor.visit_unit();
        }
        match self.content() {
            Content::Scalar { text, value, .. } => match *value {
                Scalar::Null => visitor.visit_unit(),
                Scalar::Boolean(value) => visitor.visit_bool(value),
                Scalar::String => visitor.visit_str(text),
                Scalar::Number(value) if value.is_finite() => visitor.visit_f64(value),
                Scalar::Number(_) => Err(self.not_finite()),
                Scalar::Integer(value) => match (i64::try_from(value), u64::try_from(value)) {
                    (Ok(value), _) => visitor.visit_i64(value),
                    (_, Ok(value)) => visitor.visit_u64(value),
                    _ => visitor.visit_f64(value as f64),
                },
            },
            Content::List(items) => visitor.visit_seq(ListAccess::new(self, items)),
            Content::Mapping(pairs) => visitor.visit_map(MappingAccess::new(self, pairs, None)),
            Content::Alias(_) | Content::Invalid => Err(DecodeError::PartDropped),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar() {
            _ if self.is_placeholder() => visitor.visit_bool(false),
            Some(Scalar::Boolean(value)) => visitor.visit_bool(value),
            _ => Err(DecodeError::wrong_type("a boolean")),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_f64(self.number()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.content() {
            _ if self.is_placeholder() => visitor.visit_str(""),
            Content::Scalar { text, value: Scalar::String, .. } => visitor.visit_str(text),
            _ => Err(DecodeError::wrong_type("a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar() {
            _ if self.is_placeholder() => visitor.visit_none(),
            Some(Scalar::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == NODE {
            self.node().pass_to_visitor();
            return visitor.visit_unit();
        }
        if name == SPANNED {
            self.node().pass_to_visitor();
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.content() {
            _ if self.is_placeholder() => visitor.visit_seq(ListAccess::new(self, &[])),
            Content::List(items) => visitor.visit_seq(ListAccess::new(self, items)),
            _ => Err(DecodeError::wrong_type("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match pairs(self) {
            Some(pairs) => visitor.visit_map(MappingAccess::new(self, pairs, None)),
            None => Err(DecodeError::wrong_type("a mapping")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match pairs(self) {
            Some(pairs) => visitor.visit_map(MappingAccess::new(self, pairs, Some(fields))),
            None => Err(DecodeError::wrong_type("a mapping")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match (self.content(), variants) {
            (_, [first, ..]) if self.is_placeholder() => visitor.visit_enum(first.into_deserializer()),
            (Content::Scalar { text, value: Scalar::String, .. }, _) => {
                visitor.visit_enum((**text).into_deserializer())
            }
            _ => Err(DecodeError::wrong_type(one_of(variants))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}
