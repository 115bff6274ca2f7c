//! A vendor's part of the price table, decoded as far as a lookup needs it.

use std::sync::LazyLock;

use genai_prices::Calculator;
use serde_json::Value;

/// A vendor's part of the price table. To compile the patterns of names in it takes longer than everything else in a short run,
/// so a lookup gets a table without those that begin with other words than the name.
pub struct PriceTable {
    json: &'static str,
    plain: LazyLock<Option<PlainTable>>,
    whole: LazyLock<Option<Calculator>>,
}

/// A table without the patterns that begin with certain words.
struct PlainTable {
    calculator: Calculator,
    first_words: Vec<String>,
}

/// The table of a vendor, from its file.
macro_rules! price_table {
    ($file:literal) => {
        PriceTable {
            json: include_str!($file),
            plain: LazyLock::new(|| PlainTable::decode(include_str!($file))),
            whole: LazyLock::new(|| Calculator::from_json(include_str!($file)).ok()),
        }
    };
}

pub(super) static ANTHROPIC: PriceTable = price_table!("../pricing/anthropic.json");
pub(super) static OPENAI: PriceTable = price_table!("../pricing/openai.json");
pub(super) static GOOGLE: PriceTable = price_table!("../pricing/google.json");

impl PriceTable {
    /// A table that finds this model if the vendor's table has it.
    pub fn for_model(&self, name: &str) -> Option<&Calculator> {
        let plain = self.plain.as_ref()?;
        // Matching ignores case.
        let name = name.to_lowercase();
        let needs_patterns = plain.first_words.iter().any(|words| name.len() > words.len() && name.starts_with(words));
        if needs_patterns { self.whole() } else { Some(&plain.calculator) }
    }

    /// The whole table.
    pub fn whole(&self) -> Option<&Calculator> {
        self.whole.as_ref()
    }

    /// Decodes the table that most lookups need.
    pub fn load(&self) {
        LazyLock::force(&self.plain);
    }

    /// Whether [`Self::load`] was called.
    pub fn is_loaded(&self) -> bool {
        LazyLock::get(&self.plain).is_some()
    }

    /// The file.
    pub fn json(&self) -> &'static str {
        self.json
    }
}

impl PlainTable {
    fn decode(json: &str) -> Option<Self> {
        let mut table = serde_json::from_str(json).ok()?;
        let mut first_words = Vec::new();
        remove_patterns(&mut table, &mut first_words);
        Some(Self { calculator: Calculator::from_json(table.to_string()).ok()?, first_words })
    }
}

/// Removes the alternatives that are patterns, and adds the words with which they begin.
fn remove_patterns(value: &mut Value, first_words: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| remove_patterns(item, first_words)),
        Value::Object(fields) => {
            if let Some(Value::Array(alternatives)) = fields.get_mut("or") {
                alternatives.retain(|alternative| {
                    let Some(words) = alternative["regex"].as_str().and_then(first_words_of) else { return true };
                    first_words.push(words);
                    false
                });
            }
            fields.values_mut().for_each(|field| remove_patterns(field, first_words));
        }
        _ => {}
    }
}

/// The text with which every match of a pattern begins before at least one more character, in lower case; `None` if that isn't
/// known.
fn first_words_of(pattern: &str) -> Option<String> {
    let words = pattern.strip_prefix('^')?.replace(r"\.", "\u{0}");
    let end = words.find(|c: char| !c.is_ascii_alphanumeric() && !['-', '\u{0}'].contains(&c))?;
    let (words, rest) = words.split_at(end);
    let is_more = rest.starts_with('[') || rest.starts_with(r"\d");
    let is_certain = is_more && !rest.contains(['?', '*', '|']) && !rest.contains("{0");
    (is_certain && !words.is_empty()).then(|| words.replace('\u{0}', ".").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_every_match() {
        for (pattern, words) in [
            (r"^claude-fable-5-\d{8}$", Some("claude-fable-5-")),
            (r"^claude-opus-5[-@]\d{8}$", Some("claude-opus-5")),
            (r"^gpt-5\.6-Luna-\d{4}$", Some("gpt-5.6-luna-")),
            (r"^a[bc]?d", None),
            (r"^ab?c", None),
            (r"^a|b", None),
            (r"^a\d|b", None),
            (r"^a$", None),
            (r"^(a|b)c", None),
            (r"gpt-\d", None),
        ] {
            assert_eq!(first_words_of(pattern).as_deref(), words, "{pattern}");
        }
    }
}
