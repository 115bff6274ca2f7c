//! Sizes in bytes, such as `500kB`.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::yaml;

/// The units with their number of bytes.
const UNITS: &[(&str, u64)] = &[("kB", 1_000), ("MB", 1_000_000), ("KiB", 1 << 10), ("MiB", 1 << 20), ("B", 1)];
const FORM: &str = "write it like `500kB` or `2MB`";

/// A size in bytes: a number with `B`, `kB`, `MB`, `KiB` or `MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// The form of a size.
    pub(super) const PATTERN: &str = "^[1-9][0-9]{0,8}(kB|MB|KiB|MiB|B)$";

    /// The bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Reads a size; `None` if the text has another form.
    ///
    /// ```
    /// # use legwork::job::Size;
    /// assert_eq!(Size::parse("500kB").map(Size::bytes), Some(500_000));
    /// assert_eq!(Size::parse("5 GB"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let number: u64 = number.parse().ok().filter(|_| !number.starts_with('0') && number.len() <= 9)?;
        number.checked_mul(*bytes).map(Self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as `500kB`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text)
                    .ok_or_else(|| yaml::coded_error("bad-size", format!("`{text}` isn't a size"), Some(FORM)))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": Self::PATTERN, "patternErrorMessage": FORM })
    }
}
