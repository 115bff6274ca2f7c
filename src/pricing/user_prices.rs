//! The user's own prices: `prices.toml`.
//!
//! ```toml
//! [models."local/qwen3-8b"]    # the model as a job writes it
//! input = 0.1                  # US dollars for a million tokens
//! output = 0.4
//! cache_read = 0.01            # default: as input
//! cache_write = 0.1            # default: as input
//!
//! [[models."local/qwen3-8b".tiers]]
//! above = 200000               # prompts with more tokens than this have these rates, for all their tokens
//! input = 0.2                  # other rates are those of the tier below
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::rates::{PriceKey, Rates, Tier};
use crate::diagnostic::{Diagnostic, Source};
use crate::toml_file::{TableReader, TomlReader};

/// The maximum plausible rate: a dollar for a token.
const MAX_RATE: f64 = 1e6;

/// Whether the provider of a model in the file exists, and whether it has prices.
#[derive(Debug)]
pub enum PricedProvider {
    /// It is a provider or a server.
    Known,
    /// Its replies cost nothing.
    Free,
    /// It doesn't exist. Contains a hint about what may be meant.
    Unknown(String),
}

/// The prices in the user's file.
#[derive(Debug, Default)]
pub struct UserPrices {
    /// By `provider/name`; the tiers in ascending order, the first from 0.
    models: BTreeMap<String, Vec<Tier>>,
}

impl UserPrices {
    /// Parses the file.
    ///
    /// # Errors
    /// All mistakes. If there are any, the whole file is ignored.
    pub fn read(
        source: &Arc<Source>,
        check_provider: &dyn Fn(&str) -> PricedProvider,
    ) -> Result<Self, Vec<Diagnostic>> {
        let (reading, root) = TomlReader::parse(source);
        let mut file = TableReader::new(&reading, root.get_ref(), 0..0);
        let mut models = BTreeMap::new();
        for (name, entry) in file.named_tables("models") {
            check_name(&reading, name.get_ref(), name.span(), check_provider);
            if let Some(tiers) = read_model(&reading, entry) {
                models.insert((*name.get_ref()).to_owned(), tiers);
            }
        }
        file.finish();
        let findings = reading.finish();
        if findings.is_empty() { Ok(Self { models }) } else { Err(findings) }
    }

    /// The models that it has a price for, as `provider/name`.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    /// Whether it has a price for the model.
    pub fn has(&self, item: PriceKey<'_>) -> bool {
        self.tiers(item).is_some()
    }

    /// The tiers of a model, if the file has it.
    pub(super) fn tiers(&self, item: PriceKey<'_>) -> Option<&[Tier]> {
        if self.models.is_empty() {
            return None;
        }
        self.models.get(&format!("{}/{}", item.provider, item.name)).map(Vec::as_slice)
    }

    /// The rates of a model for a prompt of this length, if the file has it.
    pub(super) fn rates(&self, item: PriceKey<'_>, prompt_tokens: u64) -> Option<Rates> {
        let tiers = self.tiers(item)?;
        let tier = tiers.iter().rev().find(|tier| prompt_tokens > tier.above).or(tiers.first())?;
        Some(tier.rates)
    }
}

/// The rates of a model or tier as written: input, output, cache reads and cache writes.
type PartialRates = [Option<f64>; 4];

fn read_rates(reading: &TomlReader<'_>, fields: &mut TableReader<'_, '_>) -> PartialRates {
    ["input", "output", "cache_read", "cache_write"].map(|key| {
        let number = fields.number(key)?;
        let value = *number.get_ref();
        if (0.0..=MAX_RATE).contains(&value) {
            return Some(value);
        }
        let message = format!("`{key}` can't be {value}");
        let finding = Diagnostic::error("out-of-range", reading.place(number.span()), message);
        reading.report(finding.help("write US dollars for a million tokens: a number from 0 to 1000000"));
        None
    })
}

fn to_rates([input, output, cache_read, cache_write]: PartialRates) -> Option<Rates> {
    let input = input?;
    let (cache_read, cache_write) = (cache_read.unwrap_or(input), cache_write.unwrap_or(input));
    Some(Rates { input, output: output?, cache_read, cache_write })
}

/// Parses one model's table. Returns `None` and reports it if a required key is missing.
fn read_model(reading: &TomlReader<'_>, mut fields: TableReader<'_, '_>) -> Option<Vec<Tier>> {
    let mut written = read_rates(reading, &mut fields);
    for key in ["input", "output"] {
        fields.require(key, "write US dollars for a million tokens, such as `0.25`, or 0 if it is free");
    }
    let mut tiers: Vec<Tier> = to_rates(written).map(|rates| Tier { above: 0, rates }).into_iter().collect();
    for mut fields in fields.tables("tiers") {
        let above = fields.count("above");
        fields.require(
            "above",
            "write the number of prompt tokens above which these rates apply, such as `above = 200000`",
        );
        let rates = read_rates(reading, &mut fields);
        // Missing rates are those of the tier below.
        written = std::array::from_fn(|at| rates[at].or(written[at]));
        if let (Some(above), Some(rates)) = (above, to_rates(written)) {
            let below = tiers.last().map_or(0, |below| below.above);
            if *above.get_ref() > below {
                tiers.push(Tier { above: *above.get_ref(), rates });
            } else {
                let message = format!("`above` must be more than {below}");
                let finding = Diagnostic::error("out-of-range", reading.place(above.span()), message);
                reading.report(finding.help("write the tiers in ascending order, each once"));
            }
        }
        fields.finish();
    }
    fields.finish();
    Some(tiers).filter(|tiers| tiers.first().is_some_and(|first| first.above == 0))
}

/// Reports a model name that no job can use.
fn check_name(
    reading: &TomlReader<'_>,
    name: &str,
    span: Range<usize>,
    check_provider: &dyn Fn(&str) -> PricedProvider,
) {
    let is_plain =
        |part: &str| !part.is_empty() && !part.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    let (message, help) = match name.split_once('/') {
        Some((provider, model)) if is_plain(provider) && is_plain(model) => match check_provider(provider) {
            PricedProvider::Known => return,
            PricedProvider::Free => ("replies from a script cost nothing", "remove this table"),
            PricedProvider::Unknown(help) => {
                let message = format!("there is no provider `{provider}`, so this price is never used");
                reading.report(Diagnostic::error("unknown-provider", reading.place(span), message).help(help));
                return;
            }
        },
        _ => (
            "this isn't the name of a model",
            "write it as a job does, in quotes: `[models.\"anthropic/claude-sonnet-4-5\"]`",
        ),
    };
    reading.report(Diagnostic::error("bad-model", reading.place(span), message).help(help));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Usage;
    use crate::pricing::Prices;
    use std::time::SystemTime;

    const QWEN: PriceKey<'_> =
        PriceKey { provider: "local", name: "qwen3-8b", price_provider: "", price_model: "qwen3-8b", is_flex: false };

    fn check_provider(provider: &str) -> PricedProvider {
        match provider {
            "loacl" => PricedProvider::Unknown("local?".to_owned()),
            "replay" => PricedProvider::Free,
            _ => PricedProvider::Known,
        }
    }

    fn prices(text: &str) -> Prices {
        Prices::with_user_prices(UserPrices::read(&Source::new("prices.toml", text), &check_provider).unwrap())
    }

    fn findings(text: &str) -> Vec<String> {
        let findings = UserPrices::read(&Source::new("prices.toml", text), &check_provider).unwrap_err();
        let shown = |finding: &Diagnostic| {
            assert!(finding.help.is_some() || finding.code == "toml-syntax", "{finding:?}");
            let (line, column) = finding.span.start();
            format!("{line}:{column} {}: {}", finding.code, finding.message)
        };
        findings.iter().map(shown).collect()
    }

    #[test]
    fn cache_rates_default_to_the_input_rate() {
        let prices = prices("[models.\"local/qwen3-8b\"]\ninput = 0.1\noutput = 4\n");
        let rates = prices.rates(QWEN, 0, SystemTime::now()).unwrap();
        assert_eq!(rates, Rates { input: 0.1, output: 4.0, cache_read: 0.1, cache_write: 0.1 });
        let usage = Usage {
            input_tokens: 100,
            output_tokens: 10,
            cache_read_tokens: 1000,
            cache_write_tokens: 900,
            ..Usage::default()
        };
        assert!((prices.cost(QWEN, &usage, SystemTime::now()).unwrap() - 0.00024).abs() < 1e-12);
        assert!(prices.has_price(QWEN) && !prices.has_price(PriceKey { name: "qwen3", ..QWEN }));
        assert!(!Prices::new().has_price(QWEN));
    }

    #[test]
    fn a_tier_starts_above_its_bound_and_inherits_missing_rates() {
        let prices = prices(
            "[models.\"local/qwen3-8b\"]\ninput = 1\noutput = 2\ncache_read = 0.5\n\
             [[models.\"local/qwen3-8b\".tiers]]\nabove = 200_000\ninput = 3\n\
             [[models.\"local/qwen3-8b\".tiers]]\nabove = 300_000\noutput = 9\ncache_read = 0\n",
        );
        let rates = |tokens| prices.rates(QWEN, tokens, SystemTime::now()).unwrap();
        assert_eq!(rates(200_000), Rates { input: 1.0, output: 2.0, cache_read: 0.5, cache_write: 1.0 });
        assert_eq!(rates(200_001), Rates { input: 3.0, output: 2.0, cache_read: 0.5, cache_write: 3.0 });
        assert_eq!(rates(300_001), Rates { input: 3.0, output: 9.0, cache_read: 0.0, cache_write: 3.0 });
        let usage = Usage { input_tokens: 1, cache_read_tokens: 200_000, ..Usage::default() };
        assert!((prices.cost(QWEN, &usage, SystemTime::now()).unwrap() - 0.100_003).abs() < 1e-12);
        assert_eq!(prices.model_pricing(QWEN, SystemTime::now()).unwrap().tiers.len(), 3);
    }

    #[test]
    fn user_prices_take_precedence_over_the_table() {
        let name = "claude-haiku-4-5";
        let item =
            PriceKey { provider: "anthropic", name, price_provider: "anthropic", price_model: name, is_flex: false };
        let prices = prices("[models]\n\"anthropic/claude-haiku-4-5\" = { input = 0, output = 0.0 }\n");
        let usage = Usage { input_tokens: 1000, output_tokens: 1000, ..Usage::default() };
        assert_eq!(prices.cost(item, &usage, SystemTime::now()), Some(0.0));
        let name = "claude-haiku-4-5-20251001";
        let other = PriceKey { name, price_model: name, ..item };
        assert!(prices.cost(other, &usage, SystemTime::now()).unwrap() > 0.0);
        assert_eq!(prices.user_prices().models().collect::<Vec<_>>(), ["anthropic/claude-haiku-4-5"]);
        // The user's prices don't change the model's window.
        assert_eq!(prices.model_pricing(item, SystemTime::now()).unwrap().context_window, Some(200_000));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let text = "[model]\n[models.\"local/a\"]\ninput = -1\noutput = \"2\"\ncache = 1\n[models.\"local/b\"]\ninput = inf\n\
                    [models.local]\nc = { input = 1, output = 2 }\n[models.\"replay/x\"]\ninput = 1\noutput = 1\n\
                    [models.\"l/d\"]\ninput = 1\noutput = 1\ntiers = [{ input = 2 }, { above = 5, inputs = 1 }, { above = 5 }]\n";
        assert_eq!(
            findings(text),
            [
                "1:2 unknown-key: unknown key `model`",
                "3:9 out-of-range: `input` can't be -1",
                "4:10 wrong-type: expected a number, found a value of type string",
                "5:1 unknown-key: unknown key `cache`",
                "6:9 missing-key: required key `output` is missing",
                "7:9 out-of-range: `input` can't be inf",
                "8:9 bad-model: this isn't the name of a model",
                "8:9 missing-key: required key `input` is missing",
                "8:9 missing-key: required key `output` is missing",
                "9:1 unknown-key: unknown key `c`",
                "10:9 bad-model: replies from a script cost nothing",
                "16:10 missing-key: required key `above` is missing",
                "16:38 unknown-key: unknown key `inputs`",
                "16:62 out-of-range: `above` must be more than 5",
            ]
        );
        assert_eq!(findings("[models.\"a/b\"]\ninput = = 1\noutput = true\n").len(), 2);
    }
}
