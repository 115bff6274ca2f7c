//! Decides which names belong to a model in the price table.
//!
//! The table matches prefixes, so that `claude-sonnet-4-5xyz` would have the price of `claude-sonnet-4-5`. Here, a name
//! matches only if the part after the known prefix is a version, a date or a common suffix.

/// Suffixes that don't change which model a name means.
const VARIANT_SUFFIXES: &[&str] = &[
    "latest",
    "default",
    "preview",
    "exp",
    "experimental",
    "beta",
    "free",
    "thinking",
    "text",
    "live",
    "native",
    "audio",
    "tts",
    "image",
    "it",
    "maas",
    "customtools",
];

/// Suffixes that the table counts to a model only where its id begins like this.
const VENDOR_SUFFIXES: &[(&str, &[&str])] = &[("gpt-", &["chat", "codex", "codex-max", "search", "high", "diarize"])];

/// Whether a name that the table finds under `id` belongs to that model. Before the id, a gateway may add a prefix. A name
/// without the id is another name that the table knows.
pub(super) fn matches_model(name: &str, id: &str) -> bool {
    let (name, base) = (name.replace('.', "-"), id.replace('.', "-"));
    // The customer chooses the suffix of a fine-tuned model.
    id.starts_with("ft:")
        || !name.to_ascii_lowercase().contains(&base.to_ascii_lowercase())
        || name.match_indices(&base).any(|(at, _)| {
            let (before, behind) = (&name[..at], &name[at + base.len()..]);
            (before.is_empty() || before.ends_with(['/', '-', ':'])) && is_variant_suffix(id, behind)
        })
}

/// Whether a text is empty or a valid suffix: versions, dates and known words, each after a separator.
fn is_variant_suffix(id: &str, text: &str) -> bool {
    const SEPARATORS: [char; 4] = ['-', '@', ':', '_'];
    let vendor_suffixes =
        VENDOR_SUFFIXES.iter().filter(|(prefix, _)| id.starts_with(prefix)).flat_map(|(_, words)| *words);
    let after_word =
        vendor_suffixes.filter_map(|word| text.strip_prefix('-')?.strip_prefix(word)).min_by_key(|rest| rest.len());
    let Some(rest) = after_word.unwrap_or(text).strip_prefix(SEPARATORS) else {
        return text.is_empty() || after_word == Some("");
    };
    if rest == "0" {
        return true;
    }
    let mut numbers = Vec::new();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_size = |part: &str| part.strip_suffix(['b', 'k', 'm']).is_some_and(is_number);
    let mut before = "";
    for part in rest.split(SEPARATORS) {
        if is_number(part) && !before.starts_with('v') {
            numbers.push(part.len());
        } else if !is_number(part)
            && !part.strip_prefix('v').is_some_and(is_number)
            && !is_size(part)
            && !VARIANT_SUFFIXES.contains(&part)
        {
            return false;
        }
        before = part;
    }
    // 001, 0613, 20250929, 2025-04-14, 04-14, 09-2025
    matches!(*numbers, [] | [3 | 4 | 8] | [4, 2, 2] | [2, 2] | [2, 4])
}

#[cfg(test)]
mod tests {
    use crate::pricing::{PriceKey, Prices};

    fn knows(list: &str, name: &str) -> bool {
        Prices::new().has_price(PriceKey {
            provider: list,
            name,
            price_provider: list,
            price_model: name,
            is_flex: false,
        })
    }

    #[test]
    fn a_snapshot_belongs_to_its_model() {
        for (list, names) in [
            (
                "anthropic",
                &[
                    "claude-sonnet-4-5",
                    "claude-sonnet-4.5",
                    "claude-sonnet-4-5-20250929",
                    "claude-sonnet-4-5@20250929",
                    "claude-sonnet-4-5-latest",
                    "claude-sonnet-4-5-20250929-v1:0",
                    "claude-sonnet-4-20250514",
                    "claude-sonnet-4@20250514",
                    "claude-3-7-sonnet-20250219",
                    "claude-opus-4-0",
                ][..],
            ),
            ("openai", &["gpt-4o-2024-08-06", "gpt-4-0613", "gpt-5.6-sol-2026-07-01", "o3-mini", "gpt-5-chat-latest"]),
            ("openai", &["ft:gpt-4o-2024-08-06:us:x:1", "gpt-4o-realtime-preview-2024-12-17"]),
            (
                "google",
                &[
                    "gemini-2.5-pro",
                    "gemini-2.5-pro-preview-06-05",
                    "gemini-2.0-flash-001",
                    "gemini-1.5-flash-8b",
                    "gemini-3.1-pro-preview-customtools",
                    "gemini-3-pro-preview-11-2025",
                    "publishers/anthropic/models/claude-sonnet-4-5@20250929",
                ],
            ),
        ] {
            for name in names {
                assert!(knows(list, name), "{list}: {name}");
            }
        }
    }

    #[test]
    fn a_known_name_with_an_unknown_suffix_is_unknown() {
        for (list, names) in [
            (
                "anthropic",
                &[
                    "claude-sonnet-4-5xyz",
                    "claude-sonnet-4.5-xyz",
                    "claude-sonnet-4-5-xyz",
                    "claude-sonnet-4-5”",
                    "claude-sonnet-4-5-2025092",
                    "claude-sonnet-4-5-20250929x",
                    "claude-sonnet-4-50",
                    "claude-opus-4-10",
                    "claude-sonnet-4-5-1",
                    "claude-sonnet-4-5-",
                    "xclaude-haiku-5.5",
                    "claude-sonnet-4-5-max",
                ][..],
            ),
            ("openai", &["gpt-5-nano-x", "gpt-5-max", "gpt-5-chatty", "gpt-4.5-previews", "gpt-3.5-turbo-instructor"]),
            ("google", &["gemini-2.5-prooo", "gemini-2.5-pro-max", "gemini-3.6-flashy", "gemini-1.5-pro-9"]),
        ] {
            for name in names {
                assert!(!knows(list, name), "{list}: {name}");
            }
        }
    }
}
