//! What tokens cost, by the table of the crate genai-prices.
//!
//! The whole table takes some 50 ms of a core to decode, longer than all else that a short run does. So the providers
//! that we speak to have their part of it in `price/`, cut out by the test below, which also fails when the crate's
//! table has moved on; any other provider is looked up in the whole table.

use std::sync::OnceLock;
use std::time::SystemTime;

use genai_prices::{Calculator, PriceRequest, UsageKey};

use crate::message::Usage;

/// Providers that have their part of the table here.
const PARTS: &[Part] = &[
    Part { provider: "anthropic", json: include_str!("price/anthropic.json"), table: &ANTHROPIC },
    Part { provider: "openai", json: include_str!("price/openai.json"), table: &OPENAI },
    Part { provider: "google", json: include_str!("price/google.json"), table: &GOOGLE },
];
static ANTHROPIC: OnceLock<Option<Calculator>> = OnceLock::new();
static OPENAI: OnceLock<Option<Calculator>> = OnceLock::new();
static GOOGLE: OnceLock<Option<Calculator>> = OnceLock::new();

struct Part {
    provider: &'static str,
    json: &'static str,
    table: &'static OnceLock<Option<Calculator>>,
}

impl Part {
    fn table(&self) -> Option<&'static Calculator> {
        self.table.get_or_init(|| Calculator::from_json(self.json).ok()).as_ref()
    }
}

/// The table of prices. It is decoded part by part, when a part is first needed.
#[derive(Debug, Default, Clone, Copy)]
pub struct Prices;

/// US dollars for a million tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Prompt tokens that no cache knows.
    pub input: f64,
    /// Tokens of the reply.
    pub output: f64,
    /// Prompt tokens read from a cache.
    pub cache_read: f64,
    /// Prompt tokens written to a cache.
    pub cache_write: f64,
}

impl Prices {
    /// The table.
    pub fn new() -> Self {
        Self
    }

    /// Begins to decode these providers' parts on another thread. Whoever asks before it is done waits for it.
    pub fn load_in_background<'a>(providers: impl IntoIterator<Item = &'a str>) -> Self {
        for part in providers.into_iter().filter_map(part_of) {
            // Without a thread it is decoded where it is needed.
            let _ = std::thread::Builder::new().name("prices".to_owned()).spawn(|| part.table().is_some());
        }
        Self
    }

    fn table(self, provider: &str) -> &'static Calculator {
        part_of(provider).and_then(Part::table).unwrap_or_else(Calculator::bundled)
    }

    /// What one request costs in US dollars at the prices of `at`; `None` where the table has no price for the model. Of
    /// many requests ask one by one: a long prompt may cost more per token than two short ones.
    pub fn cost(self, provider: &str, model: &str, usage: &Usage, at: SystemTime) -> Option<f64> {
        // The table's `input_tokens` are the whole prompt, and it takes off what the caches count.
        let usage = genai_prices::Usage::from([
            (UsageKey::INPUT_TOKENS, usage.prompt() as f64),
            (UsageKey::CACHE_READ_TOKENS, usage.cache_read_tokens as f64),
            (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write_tokens as f64),
            (UsageKey::OUTPUT_TOKENS, usage.output_tokens as f64),
        ]);
        let request = PriceRequest::new(model, &usage).with_provider_id(provider).with_timestamp(at);
        let price = self.table(provider).calculate(&request).ok()?;
        price.total_price.is_finite().then_some(price.total_price)
    }

    /// What the single kinds cost at the prices of `at`, with a prompt of that length: some models cost more beyond one.
    /// `None` where the table has no price for the model.
    pub fn rates(self, provider: &str, model: &str, prompt_tokens: u64, at: SystemTime) -> Option<Rates> {
        let prompt = prompt_tokens.max(1000);
        let cost = |usage| self.cost(provider, model, &usage, at);
        let of_prompt = |usage| Some(cost(usage)? / prompt as f64 * 1e6);
        let asked = Usage { input_tokens: prompt, ..Usage::default() };
        Some(Rates {
            input: of_prompt(asked)?,
            output: (cost(Usage { output_tokens: 1000, ..asked })? - cost(asked)?) * 1000.0,
            cache_read: of_prompt(Usage { cache_read_tokens: prompt, ..Usage::default() })?,
            cache_write: of_prompt(Usage { cache_write_tokens: prompt, ..Usage::default() })?,
        })
    }

    /// Whether the table has a price for the model.
    pub fn knows(self, provider: &str, model: &str) -> bool {
        let nothing = genai_prices::Usage::new();
        self.table(provider).calculate(&PriceRequest::new(model, &nothing).with_provider_id(provider)).is_ok()
    }

    /// The models of a provider that the table has a price for.
    pub fn models(self, provider: &str) -> impl Iterator<Item = &'static str> {
        let known = self.table(provider).providers().find(|known| known.id() == provider);
        known.into_iter().flat_map(genai_prices::ProviderInfo::models).map(genai_prices::ModelInfo::id)
    }

    /// How many tokens a model's prompt and reply may have together; `None` where the table doesn't say.
    pub fn context_window(self, provider: &str, model: &str) -> Option<u64> {
        let nothing = genai_prices::Usage::new();
        let request = PriceRequest::new(model, &nothing).with_provider_id(provider);
        let known = self.table(provider).calculate(&request).ok()?;
        let provider = self.table(provider).providers().find(|provider| provider.id() == known.provider_id)?;
        provider.models().find(|model| model.id() == known.model_id)?.context_window()
    }
}

fn part_of(provider: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.provider == provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(date: &str) -> SystemTime {
        date.parse::<jiff::Timestamp>().unwrap().into()
    }

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-9)
    }

    #[test]
    fn each_kind_of_token_has_its_own_price() {
        let prices = Prices::load_in_background(["anthropic"]);
        let now = at("2026-11-21T00:00:00Z");
        let rates = prices.rates("anthropic", "claude-haiku-4-5-20251001", 0, now).unwrap();
        let expected = [(rates.input, 1.0), (rates.output, 5.0), (rates.cache_read, 0.1), (rates.cache_write, 1.25)];
        assert!(expected.iter().all(|(rate, price)| (rate - price).abs() < 1e-9), "{rates:?}");
        let usage =
            Usage { input_tokens: 1000, output_tokens: 100, cache_read_tokens: 10_000, cache_write_tokens: 200 };
        let sum = (1000.0 + 500.0 + 1000.0 + 250.0) / 1e6;
        assert!(close(prices.cost("anthropic", "claude-haiku-4-5", &usage, now), sum));
        assert!(close(prices.cost("anthropic", "claude-haiku-4-5", &Usage::default(), now), 0.0));
    }

    #[test]
    fn long_prompts_and_other_days_have_other_prices() {
        let prices = Prices::new();
        let long = Usage { cache_read_tokens: 300_000, ..Usage::default() };
        assert!(close(prices.cost("anthropic", "claude-sonnet-4-5", &long, at("2026-11-21T00:00:00Z")), 0.18));
        let rates =
            |tokens| prices.rates("anthropic", "claude-sonnet-4-5", tokens, at("2026-11-21T00:00:00Z")).unwrap();
        let each = |rates: Rates| [rates.input, rates.output, rates.cache_read, rates.cache_write];
        let close_to =
            |rates: Rates, to: [f64; 4]| each(rates).iter().zip(to).all(|(rate, to)| (rate - to).abs() < 1e-9);
        assert!(close_to(rates(1_000), [3.0, 15.0, 0.3, 3.75]), "{:?}", rates(1_000));
        assert!(close_to(rates(300_000), [6.0, 22.5, 0.6, 7.5]), "{:?}", rates(300_000));
        let before = prices.cost("anthropic", "claude-opus-4-6", &long, at("2026-02-20T00:00:00Z"));
        let after = prices.cost("anthropic", "claude-opus-4-6", &long, at("2026-11-21T00:00:00Z"));
        assert!(close(before, 0.3) && close(after, 0.15), "{before:?} {after:?}");
    }

    #[test]
    fn what_is_not_known_has_no_price() {
        let prices = Prices::new();
        let now = at("2026-11-21T00:00:00Z");
        for (provider, model) in
            [("anthropic", "nonesuch-1"), ("replay", "a.yaml"), ("nobody", "claude-haiku-4-5"), ("", "")]
        {
            assert_eq!(prices.cost(provider, model, &Usage::default(), now), None, "{provider}/{model}");
            assert_eq!(prices.rates(provider, model, 0, now), None);
            assert_eq!(prices.context_window(provider, model), None);
        }
    }

    #[test]
    fn every_listed_model_has_a_price() {
        let prices = Prices::new();
        assert!(prices.models("anthropic").any(|model| model == "claude-sonnet-4-5"));
        assert!(prices.models("anthropic").all(|model| prices.knows("anthropic", model)));
        assert!(prices.models("openai").any(|model| model == "gpt-5.1"));
        assert!(prices.models("google").any(|model| model == "gemini-2.5-pro"));
        assert_eq!(prices.models("nobody").next(), None);
    }

    #[test]
    fn windows_are_known() {
        let prices = Prices::new();
        assert_eq!(prices.context_window("anthropic", "claude-haiku-4-5"), Some(200_000));
        assert_eq!(prices.context_window("anthropic", "claude-opus-5-5"), Some(1_000_000));
    }

    fn ids_of(provider: genai_prices::ProviderInfo<'_>) -> Vec<String> {
        provider.models().map(|model| model.id().to_owned()).collect()
    }

    #[test]
    fn each_part_is_the_whole_tables_own() {
        let days = ["2026-01-01T00:00:00Z", "2026-11-21T00:00:00Z", "2027-06-01T00:00:00Z"];
        let usages = [
            Usage { input_tokens: 1000, output_tokens: 10, ..Usage::default() },
            Usage { input_tokens: 5000, cache_read_tokens: 250_000, cache_write_tokens: 70, output_tokens: 1000 },
        ];
        for part in PARTS {
            let whole = Calculator::bundled().providers().find(|provider| provider.id() == part.provider).unwrap();
            let own = part.table().unwrap().providers().next().unwrap();
            let stale = format!(
                "src/price/{0}.json is stale: jq -c '[.[] | select(.id == \"{0}\")]' data/prices.json in the crate's source",
                part.provider
            );
            assert_eq!(ids_of(own), ids_of(whole), "{stale}");
            let cases = days.iter().flat_map(|day| usages.map(|usage| (day, usage)));
            for ((day, usage), model) in cases.flat_map(|case| ids_of(whole).into_iter().map(move |id| (case, id))) {
                let usage = genai_prices::Usage::from([
                    (UsageKey::INPUT_TOKENS, usage.prompt() as f64),
                    (UsageKey::CACHE_READ_TOKENS, usage.cache_read_tokens as f64),
                    (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write_tokens as f64),
                    (UsageKey::OUTPUT_TOKENS, usage.output_tokens as f64),
                ]);
                let request = PriceRequest::new(&model, &usage).with_provider_id(part.provider).with_timestamp(at(day));
                let price = |table: &Calculator| table.calculate(&request).map(|price| price.total_price).ok();
                assert_eq!(price(part.table().unwrap()), price(Calculator::bundled()), "{model} on {day}: {stale}");
            }
        }
    }
}
