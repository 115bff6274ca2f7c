//! The serde `Deserializer` of nodes. A placeholder answers every request with a neutral value.

use std::fmt::Display;

use serde::Deserializer;
use serde::de::Visitor;

use super::decode_error::{DecodeError, ErrorDetail};
use super::decode_recovery::NodeDeserializer;
use super::node::{Content, NODE};
use super::scalar::{self, Scalar, Style};
use super::serde_access::{EnumVariant, ListAccess, MappingAccess};
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

    /// The text of a string; `None` for anything else.
    pub(super) fn string(self) -> Option<String> {
        match self.content() {
            Content::Scalar { text, value: Scalar::String, .. } => Some((**text).to_owned()),
            _ => None,
        }
    }

    fn is_plain(self) -> bool {
        matches!(self.content(), Content::Scalar { style: Style::Plain, .. })
    }

    /// The error for a scalar such as `12` where a string is expected: quotes fix it.
    fn expected_string(self, expected: &str) -> DecodeError {
        match (self.content(), self.scalar()) {
            (Content::Scalar { text, .. }, Some(value)) if value != Scalar::Null && self.is_plain() => {
                let quoted = format!("\"{text}\"");
                let help = Some(format!("put it in quotes: {quoted}"));
                DecodeError::WrongType { expected: expected.to_owned(), help, fix: Some(quoted) }
            }
            _ => DecodeError::wrong_type(expected),
        }
    }

    fn expected_boolean(self) -> DecodeError {
        let expected = "a boolean".to_owned();
        let meant = match self.string().unwrap_or_default().to_lowercase().as_str() {
            _ if !self.is_plain() => None,
            "yes" | "on" => Some("true"),
            "no" | "off" => Some("false"),
            _ => None,
        };
        match meant {
            Some(meant) => {
                let help = Some("in YAML 1.2 the booleans are `true` and `false`".to_owned());
                DecodeError::WrongType { expected, help, fix: Some(meant.to_owned()) }
            }
            None => DecodeError::WrongType { expected, help: None, fix: None },
        }
    }

    fn expected_list(self) -> DecodeError {
        match self.node().text() {
            // Not `-5`, nor `--option`.
            Some(text) if self.is_plain() && text.starts_with('-') && text[1..].starts_with(char::is_alphabetic) => {
                DecodeError::WrongType {
                    expected: "a list".to_owned(),
                    help: Some("a space is missing after the `-`: write `- item`".to_owned()),
                    fix: None,
                }
            }
            Some(text) if !text.is_empty() && text.len() < 40 && self.is_plain() => DecodeError::WrongType {
                expected: "a list".to_owned(),
                help: Some(format!("a list of one item is written `[{text}]`")),
                fix: None,
            },
            _ => DecodeError::wrong_type("a list"),
        }
    }

    /// The help and the number, if a string is a number in quotes or with underscores.
    pub(super) fn intended_number(self, expected: &str) -> Option<(String, String)> {
        let whole = match expected {
            "an integer" | EXPECTED_COUNT => true,
            "a number" | EXPECTED_AMOUNT => false,
            _ => return None,
        };
        let text = self.string()?;
        let (number, help) = match self.node().without_underscores() {
            None if strip_typographic_quotes(&text).is_some() => {
                (strip_typographic_quotes(&text).unwrap_or_default().to_owned(), "write it without quotes:")
            }
            Some(number) => (number, "numbers have no underscores in YAML 1.2; write"),
            None if !self.is_plain() => (text, "write it without quotes:"),
            None => return None,
        };
        let fits = match scalar::plain(&number) {
            Scalar::Integer(_) => true,
            Scalar::Number(value) => !whole && value.is_finite(),
            _ => false,
        };
        fits.then(|| (format!("{help} {number}"), number))
    }

    /// The help for a value of the wrong type.
    pub(super) fn replacement_help(self, expected: &str) -> String {
        match (expected, self.content()) {
            ("a string", Content::Scalar { .. }) => "write a string, or `\"\"` for an empty one".to_owned(),
            ("a string", ..) => "write a string, in quotes if it starts with a bracket or a dash".to_owned(),
            ("an integer", ..) => "write a whole number, such as 10".to_owned(),
            ("a number" | EXPECTED_AMOUNT, ..) => "write a number, such as 1.5".to_owned(),
            ("a boolean", ..) => "write `true` or `false`".to_owned(),
            ("a list", Content::Mapping(_)) => "start each item with `- `".to_owned(),
            ("a list", ..) => "write `[ITEM, ITEM]`, or `[]` for an empty one".to_owned(),
            ("a mapping", Content::List(_)) => "write `key: value` lines without a `-`".to_owned(),
            ("a mapping", ..) => "write `key: value` lines, indented below it".to_owned(),
            ("null", ..) => "leave the value out".to_owned(),
            _ => format!("write {expected}"),
        }
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
        let message = format!("expected a finite number, found {}", self.describe());
        DecodeError::with_help("out-of-range", message, "write a number, such as 1.5")
    }
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
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_i128 visit_i128 i128
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
        deserialize_u128 visit_u128 u128
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
            Content::List(items) => visitor.visit_seq(ListAccess::new(self, items, false)),
            Content::Mapping(pairs) => visitor.visit_map(MappingAccess::new(self, pairs, None)),
            Content::Alias(_) | Content::Invalid => Err(DecodeError::PartDropped),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar() {
            _ if self.is_placeholder() => visitor.visit_bool(false),
            Some(Scalar::Boolean(value)) => visitor.visit_bool(value),
            _ => Err(self.expected_boolean()),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_f64(self.number()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_f64(self.number()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let text = self.string();
        let mut letters = text.iter().flat_map(|text| text.chars());
        match (letters.next(), letters.next()) {
            _ if self.is_placeholder() => visitor.visit_char(' '),
            (Some(letter), None) => visitor.visit_char(letter),
            _ => Err(self.expected_string("a single character")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.content() {
            _ if self.is_placeholder() => visitor.visit_str(""),
            Content::Scalar { text, value: Scalar::String, .. } => visitor.visit_str(text),
            _ => Err(self.expected_string("a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
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

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar() {
            _ if self.is_placeholder() => visitor.visit_unit(),
            Some(Scalar::Null) => visitor.visit_unit(),
            _ => Err(DecodeError::wrong_type("null")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_unit(visitor)
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
            _ if self.is_placeholder() => visitor.visit_seq(ListAccess::new(self, &[], false)),
            Content::List(items) => visitor.visit_seq(ListAccess::new(self, items, false)),
            _ => Err(self.expected_list()),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeError> {
        match self.content() {
            _ if self.is_placeholder() => visitor.visit_seq(ListAccess::placeholders(self, length)),
            Content::List(items) if items.len() == length => visitor.visit_seq(ListAccess::new(self, items, true)),
            Content::List(items) => {
                let message = format!("expected a list of {length} items, found {}", items.len());
                let help = Some(format!("write {length} items"));
                Err(DecodeError::Detailed(Box::new(ErrorDetail { code: "wrong-type", message, help, fix: None })))
            }
            _ => Err(DecodeError::wrong_type(format!("a list of {length} items"))),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(length, visitor)
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
        visitor.visit_enum(EnumVariant::of(self, variants)?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}
