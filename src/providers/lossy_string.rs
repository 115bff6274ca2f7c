//! Text that JSON can hold and Rust can't.

use serde::Deserialize;

/// Text in which half a surrogate pair, which JSON can hold and Rust can't, is replaced.
#[derive(Debug, Default)]
pub(super) struct LossyString(pub(super) String);

impl<'de> Deserialize<'de> for LossyString {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = LossyString;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<LossyString, E> {
                Ok(LossyString(text.to_owned()))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<LossyString, E> {
                Ok(LossyString(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}
