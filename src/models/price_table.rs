//! A vendor's part of the price table, of which a lookup decodes only the models that can have the name.

use std::sync::{LazyLock, OnceLock};

use genai_prices::{Calculator, ModelInfo};
use serde::Deserialize;

/// How many names get a table of their own. For more, the whole table is decoded once.
const MAX_NAMES: usize = 16;

/// A vendor's part of the price table. The first line of its text is the vendor, and each further one is the rule for the names
/// of a model, a tab, and the rest of the model. To decode all of it takes longer than everything else in a short run.
pub struct PriceTable {
    text: &'static str,
    /// Tables with the models that a name can mean, in the order of the first lookups.
    of_names: [OnceLock<NamedTable>; MAX_NAMES],
    whole: LazyLock<Option<Calculator>>,
}

/// What a lookup of a name needs.
struct NamedTable {
    name: String,
    /// `None` if the whole table is needed.
    table: Option<Calculator>,
    /// The model that it means.
    model: OnceLock<Option<ModelInfo<'static>>>,
}

/// The table of a vendor, from its file.
macro_rules! price_table {
    ($file:literal) => {
        PriceTable {
            text: include_str!($file),
            of_names: [const { OnceLock::new() }; MAX_NAMES],
            whole: LazyLock::new(|| decode(include_str!($file), |_| true)),
        }
    };
}

pub(super) static ANTHROPIC: PriceTable = price_table!("../pricing/anthropic.tsv");
pub(super) static OPENAI: PriceTable = price_table!("../pricing/openai.tsv");
pub(super) static GOOGLE: PriceTable = price_table!("../pricing/google.tsv");

impl PriceTable {
    /// A table that finds this model if the vendor's table has it.
    pub fn for_model(&self, name: &str) -> Option<&Calculator> {
        self.of_name(name).and_then(|known| known.table.as_ref()).or_else(|| self.whole())
    }

    /// The model that a name means, as `find` finds it in the table of [`Self::for_model`]. Names that were looked up before
    /// aren't searched again.
    pub fn model(
        &'static self,
        name: &str,
        find: impl FnOnce(&'static Calculator) -> Option<ModelInfo<'static>>,
    ) -> Option<ModelInfo<'static>> {
        let find = || find(self.for_model(name)?);
        match self.of_name(name) {
            Some(known) => *known.model.get_or_init(find),
            None => find(),
        }
    }

    /// What is known of a name, unless there are too many others.
    fn of_name(&self, name: &str) -> Option<&NamedTable> {
        let new = || NamedTable { name: name.to_owned(), table: self.decode_for(name), model: OnceLock::new() };
        self.of_names.iter().map(|slot| slot.get_or_init(new)).find(|known| known.name == name)
    }

    /// The whole table.
    pub fn whole(&self) -> Option<&Calculator> {
        self.whole.as_ref()
    }

    /// The file.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// A table with the models that a name can mean; `None` if only the whole table shows which model it is, or if that was
    /// decoded anyway.
    fn decode_for(&self, name: &str) -> Option<Calculator> {
        if LazyLock::get(&self.whole).is_some() {
            return None;
        }
        // Matching ignores case.
        let name = name.to_lowercase();
        let mut is_certain = false;
        let possible: Vec<bool> = models(self.text)
            .map(|(rule, _)| {
                let matched = serde_json::from_str::<Rule>(rule).map_or(Match::Perhaps, |rule| rule.matches(&name));
                is_certain |= matched == Match::Yes;
                matched != Match::No
            })
            .collect();
        // Names that no rule matches are looked up a second time, with another form of the date in them.
        let has_other_form = name.is_empty() || name.contains("-20");
        if !is_certain && (has_other_form || possible.contains(&true)) {
            return None;
        }
        decode(self.text, |number| possible.get(number) == Some(&true))
    }
}

/// The rules and the other fields of the models in a table.
fn models(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.lines().skip(1).filter_map(|line| line.split_once('\t'))
}

/// A table with the models whose numbers are wanted.
fn decode(text: &'static str, is_wanted: impl Fn(usize) -> bool) -> Option<Calculator> {
    let vendor = text.lines().next()?.strip_suffix('}')?;
    let wanted = models(text).enumerate().filter(|(number, _)| is_wanted(*number));
    let objects: Option<Vec<String>> =
        wanted.map(|(_, (rule, rest))| Some(format!(r#"{{"match":{rule},{}"#, rest.strip_prefix('{')?))).collect();
    Calculator::from_json(format!(r#"[{vendor},"models":[{}]}}]"#, objects?.join(","))).ok()
}

/// Which names mean a model.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    And(Vec<Rule>),
    Or(Vec<Rule>),
    Contains(String),
    EndsWith(String),
    Equals(String),
    StartsWith(String),
    Regex(String),
}

/// Whether a name matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    Perhaps,
    Yes,
}

impl Rule {
    /// Whether a name in lower case matches, if that is known without compiling patterns.
    fn matches(&self, name: &str) -> Match {
        let certain = |is_match| if is_match { Match::Yes } else { Match::No };
        match self {
            Self::And(rules) => rules.iter().map(|rule| rule.matches(name)).min().unwrap_or(Match::Yes),
            Self::Or(rules) => rules.iter().map(|rule| rule.matches(name)).max().unwrap_or(Match::No),
            Self::Contains(part) => certain(name.contains(&part.to_lowercase())),
            Self::EndsWith(part) => certain(name.ends_with(&part.to_lowercase())),
            Self::Equals(whole) => certain(name == whole.to_lowercase()),
            Self::StartsWith(part) => certain(name.starts_with(&part.to_lowercase())),
            Self::Regex(pattern) => match first_words_of(pattern) {
                Some(words) if !name.starts_with(&words) || name.len() == words.len() => Match::No,
                _ => Match::Perhaps,
            },
        }
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

    #[test]
    fn a_name_gets_the_models_that_it_can_mean() {
        // Another table than the one of all tests, of which the whole may be decoded.
        let own = price_table!("../pricing/anthropic.tsv");
        let models = |table: &Calculator| table.providers().next().unwrap().models().count();
        for (name, expected) in [
            ("claude-haiku-4-5", Some(1)),
            ("Claude-Haiku-4-5", Some(1)),
            ("claude-haiku-4-5-20251001", Some(1)),
            // No model, in any form.
            ("nonesuch", Some(0)),
            // Perhaps one with another form of the date, or one that a pattern matches.
            ("nonesuch-20251001", None),
            ("", None),
        ] {
            assert_eq!(own.decode_for(name).as_ref().map(models), expected, "{name}");
        }
        assert!(models(own.whole().unwrap()) > 20);
        // More names than have their own tables.
        for number in 0..2 * MAX_NAMES {
            assert_eq!(models(own.for_model(&format!("nonesuch-{number}")).unwrap()), models(own.whole().unwrap()));
        }
        // Each rule is understood.
        for table in [&ANTHROPIC, &OPENAI, &GOOGLE] {
            assert!(super::models(table.text).all(|(rule, _)| serde_json::from_str::<Rule>(rule).is_ok()));
        }
    }
}
