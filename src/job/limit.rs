//! Limits that can be `none`.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde_json::json;

use super::duration::{Duration, MAX_DURATION, help};
use super::size::Size;
use crate::yaml::{self, Spanned};

/// A number, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit<T> {
    /// No limit.
    Unlimited,
    /// This much.
    Max(T),
}

impl<T> Limit<T> {
    /// The limit, or `None` if there isn't one.
    pub fn as_option(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::Max(limit) => Some(limit),
        }
    }
}

/// What a limit can count.
pub trait LimitValue: Sized {
    /// The name of the limit's JSON Schema.
    const SCHEMA_NAME: &'static str;
    /// What the value must be, in words.
    const EXPECTED: &'static str;

    /// JSON Schema of the limit, `none` included.
    fn schema() -> Schema;

    /// From a YAML value other than `none`.
    ///
    /// # Errors
    /// The value isn't of that form.
    fn from_yaml<E: de::Error>(value: Unexpected<'_>) -> Result<Self, E>;
}

impl LimitValue for u64 {
    const SCHEMA_NAME: &'static str = "CountLimit";
    const EXPECTED: &'static str = yaml::EXPECTED_COUNT;

    fn schema() -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": "^none$",
            "patternErrorMessage": "write a number from 1 up, or `none` for no limit",
        })
    }

    fn from_yaml<E: de::Error>(value: Unexpected<'_>) -> Result<Self, E> {
        match value {
            Unexpected::Unsigned(number) => Ok(number),
            other => Err(E::invalid_type(other, &Self::EXPECTED)),
        }
    }
}

impl LimitValue for f64 {
    const SCHEMA_NAME: &'static str = "AmountLimit";
    const EXPECTED: &'static str = yaml::EXPECTED_AMOUNT;

    fn schema() -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": "^none$",
            "patternErrorMessage": "write a number greater than 0, or `none` for no limit",
        })
    }

    fn from_yaml<E: de::Error>(value: Unexpected<'_>) -> Result<Self, E> {
        match value {
            Unexpected::Unsigned(number) => Ok(number as Self),
            Unexpected::Float(number) => Ok(number),
            other => Err(E::invalid_type(other, &Self::EXPECTED)),
        }
    }
}

impl LimitValue for Duration {
    const SCHEMA_NAME: &'static str = "DurationLimit";
    const EXPECTED: &'static str = "a duration such as `20m`, or `none`";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": format!("^none$|{}", Duration::pattern(MAX_DURATION)),
            "patternErrorMessage": "write it like `90s`, `20m` or `1h30m`, at most 30 days, or `none` for no limit",
        })
    }

    fn from_yaml<E: de::Error>(value: Unexpected<'_>) -> Result<Self, E> {
        let Unexpected::Str(text) = value else { return Err(E::invalid_type(value, &Self::EXPECTED)) };
        Self::parse(text)
            .map_err(|why| yaml::coded_error("bad-duration", why, Some(&format!("{}, or `none`", help(text)))))
    }
}

impl LimitValue for Size {
    const SCHEMA_NAME: &'static str = "SizeLimit";
    const EXPECTED: &'static str = "a size such as `50MB`, or `none`";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": format!("^none$|{}", Self::PATTERN),
            "patternErrorMessage": "write it like `500kB` or `50MB`, or `none` for no limit",
        })
    }

    fn from_yaml<E: de::Error>(value: Unexpected<'_>) -> Result<Self, E> {
        let Unexpected::Str(text) = value else { return Err(E::invalid_type(value, &Self::EXPECTED)) };
        Self::parse(text).ok_or_else(|| {
            let help = "write it like `500kB` or `50MB`, or `none`";
            yaml::coded_error("bad-size", format!("`{text}` isn't a size"), Some(help))
        })
    }
}

impl<'de, T: LimitValue> Deserialize<'de> for Limit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrNone<T>(PhantomData<T>);
        impl<T: LimitValue> Visitor<'_> for NumberOrNone<T> {
            type Value = Limit<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Limit<T>, E> {
                T::from_yaml(Unexpected::Unsigned(number)).map(Limit::Max)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Limit<T>, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &T::EXPECTED)),
                }
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Limit<T>, E> {
                T::from_yaml(Unexpected::Float(number)).map(Limit::Max)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit<T>, E> {
                if text == "none" { Ok(Limit::Unlimited) } else { T::from_yaml(Unexpected::Str(text)).map(Limit::Max) }
            }
        }
        deserializer.deserialize_any(NumberOrNone(PhantomData))
    }
}

/// Reads a limit without a default: `none` means the same as leaving the key out.
///
/// # Errors
/// The value isn't a limit.
pub(super) fn unless_none<'de, D: Deserializer<'de>, T: LimitValue>(
    deserializer: D,
) -> Result<Option<Spanned<T>>, D::Error> {
    let given = Option::<Spanned<Limit<T>>>::deserialize(deserializer)?;
    Ok(given.and_then(|Spanned { value, node }| value.as_option().map(|value| Spanned { value, node })))
}

impl<T: LimitValue> JsonSchema for Limit<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::SCHEMA_NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = T::schema();
        schema.insert(
            "defaultSnippets".to_owned(),
            json!([{ "label": "none", "description": "No limit.", "body": "none" }]),
        );
        schema
    }
}
