//! What a name tells of a Claude model: its family and its version.

const FAMILIES: [&str; 5] = ["opus", "sonnet", "haiku", "fable", "mythos"];

/// A model's name, as far as it is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelName {
    /// Its family and version; without one it is the newest of the family.
    Known(&'static str, Option<(u32, u32)>),
    /// From before there were families: `claude-2.1`.
    Legacy,
    /// A gateway's own, or another maker's.
    Unknown,
}

impl ModelName {
    /// Reads a name as Anthropic and the clouds write it: `claude-3-7-sonnet-latest`, `anthropic.claude-opus-4-6-v1:0`.
    pub(super) fn parse(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        // Longer numbers are dates.
        let mut numbers = words.iter().filter(|word| word.len() <= 2).filter_map(|word| word.parse::<u32>().ok());
        let version = numbers.next().map(|major| (major, numbers.next().unwrap_or_default()));
        match FAMILIES.into_iter().find(|family| words.contains(family)) {
            Some(family) => Self::Known(family, version),
            None if words.contains(&"claude") && matches!(version, Some((1..=3, _))) => Self::Legacy,
            None => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_times_are_read() {
        for (name, expected) in [
            ("claude-3-5-sonnet-20241022", ModelName::Known("sonnet", Some((3, 5)))),
            ("claude-opus-4-20250514", ModelName::Known("opus", Some((4, 0)))),
            ("anthropic.claude-opus-4-6-v1:0", ModelName::Known("opus", Some((4, 6)))),
            ("anthropic/claude-opus-4.7", ModelName::Known("opus", Some((4, 7)))),
            ("claude-mythos-preview", ModelName::Known("mythos", None)),
            ("claude-2.1", ModelName::Legacy),
            ("somebody/model-7", ModelName::Unknown),
        ] {
            assert_eq!(ModelName::parse(name), expected, "{name}");
        }
    }
}
