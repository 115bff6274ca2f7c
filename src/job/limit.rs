//! A limit that can be lifted.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

use super::{Duration, MAX_DURATION};
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
    /// The limit, where there is one.
    pub fn as_option(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::Max(limit) => Some(limit),
        }
    }
}

/// What a limit can count.
pub trait LimitValue: Sized {
    /// What to expect, in words.
    const EXPECTED: &'static str;

    /// From a whole number.
    ///
    /// # Errors
    /// Where it isn't written as one.
    fn from_number<E: de::Error>(number: u64) -> Result<Self, E>;

    /// From a number with a fraction.
    ///
    /// # Errors
    /// Where it isn't written as one.
    fn from_fraction<E: de::Error>(number: f64) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Float(number), &Self::EXPECTED))
    }

    /// From a text other than `none`.
    ///
    /// # Errors
    /// Where it isn't written as one.
    fn from_text<E: de::Error>(text: &str) -> Result<Self, E>;
}

impl LimitValue for u64 {
    const EXPECTED: &'static str = yaml::EXPECTED_COUNT;

    fn from_number<E: de::Error>(number: u64) -> Result<Self, E> {
        Ok(number)
    }

    fn from_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Str(text), &Self::EXPECTED))
    }
}

impl LimitValue for f64 {
    const EXPECTED: &'static str = yaml::EXPECTED_AMOUNT;

    fn from_number<E: de::Error>(number: u64) -> Result<Self, E> {
        Ok(number as Self)
    }

    fn from_fraction<E: de::Error>(number: f64) -> Result<Self, E> {
        Ok(number)
    }

    fn from_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Str(text), &Self::EXPECTED))
    }
}

impl LimitValue for Duration {
    const EXPECTED: &'static str = "a duration such as `20m`, or `none`";

    fn from_number<E: de::Error>(number: u64) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Unsigned(number), &Self::EXPECTED))
    }

    fn from_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Self::parse(text).map_err(|why| yaml::coded_error("bad-duration", why, Some(&Self::help(text, ", or `none`"))))
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
                T::from_number(number).map(Limit::Max)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Limit<T>, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &T::EXPECTED)),
                }
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Limit<T>, E> {
                T::from_fraction(number).map(Limit::Max)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit<T>, E> {
                if text == "none" { Ok(Limit::Unlimited) } else { T::from_text(text).map(Limit::Max) }
            }
        }
        deserializer.deserialize_any(NumberOrNone(PhantomData))
    }
}

/// A limit that there isn't unless the job sets it: `none` says the same as leaving it out.
///
/// # Errors
/// Where it isn't written as a limit.
pub(super) fn unless_none<'de, D: Deserializer<'de>, T: LimitValue>(
    deserializer: D,
) -> Result<Option<Spanned<T>>, D::Error> {
    let given = Option::<Spanned<Limit<T>>>::deserialize(deserializer)?;
    Ok(given.and_then(|Spanned { value, node }| value.as_option().map(|value| Spanned { value, node })))
}

impl JsonSchema for Limit<f64> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AmountLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": "^none$",
            "patternErrorMessage": "write a number greater than 0, or `none` for no limit",
            "defaultSnippets": [{ "label": "none", "description": "No limit.", "body": "none" }],
        })
    }
}

impl JsonSchema for Limit<u64> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CountLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": "^none$",
            "patternErrorMessage": "write a number from 1 up, or `none` for no limit",
            "defaultSnippets": [{ "label": "none", "description": "No limit.", "body": "none" }],
        })
    }
}

impl JsonSchema for Limit<Duration> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DurationLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": format!("^none$|{}", Duration::pattern(MAX_DURATION)),
            "patternErrorMessage": "write it like `90s`, `20m` or `1h30m`, at most 30 days, or `none` for no limit",
            "defaultSnippets": [{ "label": "none", "description": "No limit.", "body": "none" }],
        })
    }
}
