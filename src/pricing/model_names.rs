//! Decides which names belong to a model in the price table.
//!
//! The table matches prefixes, so that `claude-sonnet-4-5xyz` would have the price of `claude-sonnet-4-5`. Here, a name
//! matches only if the part after the known prefix is a version, a date or a common suffix.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::embedded_tables::{EMBEDDED_TABLES, embedded_table};

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

/// Whether a name belongs to the model `id` of the table.
pub(super) fn matches_model(name: &str, list: &str, id: &str) -> bool {
    if name == id {
        return true;
    }
    match embedded_table(list) {
        Some(part) => {
            let bases = BASE_NAMES.get(&(part.provider, id.to_owned())).map_or(&[][..], Vec::as_slice);
            bases.iter().map(String::as_str).chain([id]).any(|base| is_variant(name, base))
        }
        // For models outside the embedded tables, match rules aren't available.
        None => !name.starts_with(id) || is_variant(name, id),
    }
}

/// The texts in the match rules of the embedded tables, by provider and model.
static BASE_NAMES: LazyLock<HashMap<(&str, String), Vec<String>>> = LazyLock::new(|| {
    let mut bases: HashMap<(&str, String), Vec<String>> = HashMap::new();
    for part in EMBEDDED_TABLES.iter() {
        let json: Value = serde_json::from_str(part.json).unwrap_or_default();
        let models = json.as_array().into_iter().flatten().filter_map(|listed| listed["models"].as_array()).flatten();
        for model in models {
            let Some(id) = model["id"].as_str() else { continue };
            collect_match_texts(&model["match"], bases.entry((part.provider, id.to_owned())).or_default());
        }
    }
    bases
});

/// The texts in a match rule, except for regular expressions.
fn collect_match_texts(rule: &Value, found: &mut Vec<String>) {
    match rule {
        Value::Array(rules) => rules.iter().for_each(|rule| collect_match_texts(rule, found)),
        Value::Object(rule) => {
            for (kind, value) in rule {
                match (kind.as_str(), value) {
                    ("regex", _) => {}
                    (_, Value::String(text)) => found.push(text.clone()),
                    _ => collect_match_texts(value, found),
                }
            }
        }
        _ => {}
    }
}

/// Whether a name is `base`, apart from a gateway's prefix and a known suffix.
fn is_variant(name: &str, base: &str) -> bool {
    name.match_indices(base).any(|(at, _)| {
        let (before, behind) = (&name[..at], &name[at + base.len()..]);
        // The customer chooses the suffix of a fine-tuned model.
        let is_tuned = base.starts_with("ft:") || base.ends_with(".ft-");
        (before.is_empty() || before.ends_with(['/', '.', '-'])) && (is_tuned || is_variant_suffix(base, behind))
    })
}

/// Whether a text is a valid suffix: versions, dates and known words, each after a separator.
fn is_variant_suffix(base: &str, text: &str) -> bool {
    const SEPARATORS: [char; 4] = ['-', '@', ':', '_'];
    let rest = match text.strip_prefix(SEPARATORS) {
        Some(rest) => rest,
        None if text.is_empty() => return true,
        None if base.ends_with(SEPARATORS) => text,
        None => return false,
    };
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
        Prices::new().has_price(PriceKey { provider: list, name, price_provider: list, price_model: name })
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
                    "claude-sonnet-4-5-xyz",
                    "claude-sonnet-4-5”",
                    "claude-sonnet-4-5-2025092",
                    "claude-sonnet-4-5-20250929x",
                    "claude-sonnet-4-50",
                    "claude-opus-4-10",
                    "claude-sonnet-4-5-1",
                    "claude-sonnet-4-5-",
                    "xclaude-haiku-5.5",
                ][..],
            ),
            ("openai", &["gpt-5-nano-x", "gpt-4.5-previews", "gpt-3.5-turbo-instructor"]),
            ("google", &["gemini-2.5-prooo", "gemini-2.5-pro-max", "gemini-3.6-flashy", "gemini-1.5-pro-9"]),
        ] {
            for name in names {
                assert!(!knows(list, name), "{list}: {name}");
            }
        }
    }
}
