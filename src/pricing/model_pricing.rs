//! The price of a model with all details, for display.

use std::time::SystemTime;

use serde::Deserialize;
use serde_json::Value;

use super::embedded_tables::embedded_table;
use super::prices::Prices;
use super::rates::{PriceKey, Rates, Tier};

/// The price of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPricing {
    /// Where the price comes from.
    pub source: PriceSource,
    /// The rates, from the shortest prompts up; never empty.
    pub tiers: Vec<Tier>,
    /// Its context window in tokens, if known.
    pub context_window: Option<u64>,
    /// The limit on its prompt in tokens, if it is less than the window.
    pub prompt_limit: Option<u64>,
    /// Whether it is the price of the server in use, rather than the vendor's.
    pub is_for_server: bool,
}

/// Where a price comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriceSource {
    /// The user's file.
    UserFile,
    /// The table, under this name.
    Table(String),
}

impl Prices {
    /// All details of a model's price at the time `at`. `None` if it is unknown.
    pub fn model_pricing(&self, item: PriceKey<'_>, at: SystemTime) -> Option<ModelPricing> {
        let (context_window, prompt_limit) = (self.context_window(item), self.prompt_limit(item));
        if let Some(tiers) = self.user_prices().tiers(item) {
            return Some(ModelPricing {
                source: PriceSource::UserFile,
                tiers,
                context_window,
                prompt_limit,
                is_for_server: true,
            });
        }
        let (list, _) = self.locate(item)?;
        let id = self.model_info(item)?.id();
        let mut tiers: Vec<Tier> = Vec::new();
        for above in std::iter::once(0).chain(tier_starts(list, id)) {
            let rates = self.rates(item, above.saturating_add(1), at)?;
            // The tier may exist only on another date.
            if tiers.last().is_none_or(|below| !below.rates.is_close_to(&rates)) {
                tiers.push(Tier { above, rates });
            }
        }
        let is_of_server = self.provider_at_base_url(item.provider) == Some(list);
        Some(ModelPricing {
            source: PriceSource::Table(id.to_owned()),
            tiers,
            context_window,
            prompt_limit,
            is_for_server: is_of_server,
        })
    }
}

impl Rates {
    /// Whether two rates are equal, apart from rounding errors, as they are computed from total costs.
    fn is_close_to(&self, other: &Self) -> bool {
        let each = |rates: &Self| [rates.input, rates.output, rates.cache_read, rates.cache_write];
        each(self).iter().zip(each(other)).all(|(one, other)| (one - other).abs() <= 1e-6 * one.max(other))
    }
}

/// The bounds to try for providers without an embedded table.
const COMMON_TIER_STARTS: [u64; 9] = [32_000, 100_000, 128_000, 199_999, 200_000, 256_000, 272_000, 512_000, 524_288];

/// The prompt lengths at which a rate of a model changes on any date, in ascending order. The crate has no function for
/// that, but its data contains them.
fn tier_starts(list: &str, id: &str) -> Vec<u64> {
    #[derive(Deserialize)]
    struct Listed<'a> {
        #[serde(borrow)]
        models: Vec<ListedModel<'a>>,
    }
    #[derive(Deserialize)]
    struct ListedModel<'a> {
        id: std::borrow::Cow<'a, str>,
        prices: Value,
    }
    let Some(part) = embedded_table(list) else { return COMMON_TIER_STARTS.to_vec() };
    let parts = serde_json::from_str::<Vec<Listed<'_>>>(part.json).ok();
    let models = parts.into_iter().flatten().flat_map(|listed| listed.models);
    let mut found = Vec::new();
    models.filter(|model| model.id == id).for_each(|model| collect_starts(&model.prices, &mut found));
    found.sort_unstable();
    found.dedup();
    found
}

/// Collects the numbers in all fields named `start`.
fn collect_starts(prices: &Value, found: &mut Vec<u64>) {
    match prices {
        Value::Array(items) => items.iter().for_each(|item| collect_starts(item, found)),
        Value::Object(fields) => {
            found.extend(fields.get("start").and_then(Value::as_f64).map(|start| start as u64));
            fields.values().for_each(|value| collect_starts(value, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(list: &str, name: &str, day: &str) -> Vec<(u64, [f64; 4])> {
        let at = format!("{day}T12:00:00Z").parse::<jiff::Timestamp>().unwrap().into();
        let sheet = Prices::new()
            .model_pricing(PriceKey { provider: list, name, price_provider: list, price_model: name }, at)
            .unwrap();
        let rounded = |rate: f64| (rate * 1e6).round() / 1e6;
        let each = |Rates { input, output, cache_read, cache_write }| [input, output, cache_read, cache_write];
        sheet.tiers.iter().map(|tier| (tier.above, each(tier.rates).map(rounded))).collect()
    }

    #[test]
    fn long_prompts_have_separate_rates() {
        let day = "2026-11-21";
        let expected = [(0, [3.0, 15.0, 0.3, 3.75]), (200_000, [6.0, 22.5, 0.6, 7.5])];
        assert_eq!(tiers("anthropic", "claude-sonnet-4-5-20250929", day), expected);
        assert_eq!(tiers("anthropic", "claude-haiku-4-5", day), [(0, [1.0, 5.0, 0.1, 1.25])]);
        // It has no separate price for cache writes.
        let expected = [(0, [2.5, 15.0, 0.25, 2.5]), (272_000, [5.0, 22.5, 0.5, 5.0])];
        assert_eq!(tiers("openai", "gpt-5.4", day), expected);
    }

    #[test]
    fn a_tier_of_another_date_is_not_listed() {
        assert_eq!(tiers("anthropic", "claude-opus-4-6", "2026-03-12").len(), 2);
        assert_eq!(tiers("anthropic", "claude-opus-4-6", "2026-03-13"), [(0, [5.0, 25.0, 0.5, 6.25])]);
    }

    #[test]
    fn the_source_is_the_models_name_in_the_table() {
        let name = "claude-haiku-4-5-20251001";
        let item = PriceKey { provider: "anthropic", name, price_provider: "anthropic", price_model: name };
        let sheet = Prices::new().model_pricing(item, SystemTime::now()).unwrap();
        assert_eq!(
            (sheet.source, sheet.context_window),
            (PriceSource::Table("claude-haiku-4-5".to_owned()), Some(200_000))
        );
        assert_eq!(Prices::new().model_pricing(PriceKey { price_model: "nonesuch", ..item }, SystemTime::now()), None);
        assert_eq!(Prices::new().model_pricing(PriceKey { price_provider: "", ..item }, SystemTime::now()), None);
    }
}
