//! The ids of agents, which are also file names in a record.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use super::PARENT;

/// The longest name of a subagent with its number, in bytes.
const MAX_LENGTH: usize = 64 + 21;

/// Whether a text is an agent's id: `parent`, or a subagent's name and number such as `explorer-1`.
pub fn is_agent_id(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_subagent = || text.rsplit_once('-').is_some_and(|(name, number)| is_name(name) && is_number(number));
    text == PARENT || (text.len() <= MAX_LENGTH && is_subagent())
}

fn checked<'de, D: Deserializer<'de>, T: AsRef<str>>(id: T) -> Result<T, D::Error> {
    match is_agent_id(id.as_ref()) {
        true => Ok(id),
        false => Err(serde::de::Error::custom(format!("`{}` is not an agent's id", id.as_ref().escape_debug()))),
    }
}

pub(super) fn agent_id<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    checked::<D, _>(String::deserialize(input)?)
}

pub(super) fn optional_agent_id<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(input)?.map(checked::<D, _>).transpose()
}

pub(super) fn borrowed_agent_id<'de: 'a, 'a, D: Deserializer<'de>>(input: D) -> Result<Cow<'a, str>, D::Error> {
    // A function of its own replaces the field's `borrow`, so the text is always owned.
    checked::<D, _>(Cow::Owned(String::deserialize(input)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_safe_file_names() {
        for good in ["parent", "explorer-1", "a-b-12", "0-0"] {
            assert!(is_agent_id(good), "{good}");
        }
        for bad in ["", "explorer", "-1", "a-", "../evil-1", "a/b-1", "A-1", "a-1\0", "a\n-1", "a.b-1"] {
            assert!(!is_agent_id(bad), "{bad:?}");
        }
        assert!(!is_agent_id(&format!("{}-1", "a".repeat(100))));
    }
}
