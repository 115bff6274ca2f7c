//! Looks up the prices of models: first the user's, then the table's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use genai_prices::{Calculator, ModelInfo, PriceRequest, UsageKey};

use super::model_names::matches_model;
use super::rates::{PriceKey, Rates, Tier};
use super::user_prices::UserPrices;
use crate::message::Usage;
use crate::models::{self, Vendor};
use crate::sync::IgnorePoison;

/// The source of the table.
pub const TABLE_VERSION: &str = "genai-prices 0.2.1";
/// The publication date of the table.
pub const TABLE_DATE: &str = "2026-10-30";

/// The prices: the user's take precedence over those of the table, of which a lookup decodes what it needs.
#[derive(Debug, Default, Clone)]
pub struct Prices {
    user_prices: Arc<UserPrices>,
    user_prices_unreadable: bool,
    /// The base addresses of providers with an address other than their own, without credentials.
    base_urls: Arc<BTreeMap<String, String>>,
    /// The last rates that were looked up.
    last_rates: Arc<Mutex<KeptRates>>,
}

type KeptRates = Vec<(RatesKey, Option<Rates>)>;

/// What the rates in an embedded table depend on. They change at most once a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RatesKey {
    list: &'static str,
    name: String,
    is_flex: bool,
    /// The number of the [`TIER_STARTS`] below the length of the prompt.
    tier: usize,
    minute: u64,
}

/// The price of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPricing {
    /// The model's name in the table; `None` if the price comes from the user's file.
    pub listed_as: Option<String>,
    /// The rates, from the shortest prompts up; never empty.
    pub tiers: Vec<Tier>,
    /// Its context window in tokens, if known.
    pub context_window: Option<u64>,
    /// The limit on its prompt in tokens, if it is less than the window.
    pub prompt_limit: Option<u64>,
    /// Whether it is the price of the server in use, rather than the vendor's.
    pub is_for_server: bool,
}

/// Whether the whole table was loaded in the background.
static HAS_LOADED_ALL: AtomicBool = AtomicBool::new(false);

/// The prompt lengths at which the rates of models in the table change.
const TIER_STARTS: [u64; 9] = [32_000, 100_000, 128_000, 199_999, 200_000, 256_000, 272_000, 512_000, 524_288];

/// How many rates are kept for the next lookups.
const MAX_LAST_RATES: usize = 16;

/// The price of flex processing at Google, as a share of the standard price
/// (<https://ai.google.dev/gemini-api/docs/flex-inference>).
const GOOGLE_FLEX_SHARE: f64 = 0.5;

impl Prices {
    /// The prices in the table, without the user's.
    pub fn new() -> Self {
        Self::default()
    }

    /// The table and the user's prices.
    pub fn with_user_prices(user_prices: UserPrices) -> Self {
        Self { user_prices: Arc::new(user_prices), ..Self::default() }
    }

    /// The prices in the table, if the user's prices can't be read. Then no model is reported as having no price.
    pub fn with_unreadable_user_prices() -> Self {
        Self { user_prices_unreadable: true, ..Self::default() }
    }

    /// Sets the base addresses of providers, which may be those of other providers in the table.
    #[must_use]
    pub fn with_base_urls(self, addresses: BTreeMap<String, String>) -> Self {
        Self { base_urls: Arc::new(addresses), ..self }
    }

    /// The user's prices.
    pub fn user_prices(&self) -> &UserPrices {
        &self.user_prices
    }

    /// Prepares what every lookup needs on another thread. Lookups wait for it.
    pub fn prepare_in_background() {
        // Without a thread, the first lookup prepares it.
        let _ = std::thread::Builder::new().name("prices".to_owned()).spawn(|| drop(Calculator::from_json("[]")));
    }

    /// Starts to decode the whole table on another thread, if a lookup of these models needs it. Lookups wait for it.
    pub fn load_in_background<'a>(&self, items: impl IntoIterator<Item = PriceKey<'a>>) {
        let is_elsewhere = items.into_iter().any(|item| self.base_urls.contains_key(item.provider));
        if is_elsewhere && !HAS_LOADED_ALL.swap(true, Ordering::Relaxed) {
            // Without a thread, the first lookup decodes it.
            let _ = std::thread::Builder::new().name("prices".to_owned()).spawn(Calculator::bundled);
        }
    }

    /// The provider in the table with the address of this provider or server.
    pub fn provider_at_base_url(&self, provider: &str) -> Option<&'static str> {
        let base = self.base_urls.get(provider)?;
        Some(Calculator::bundled().find_provider(None, Some(base)).ok()??.id())
    }

    /// A model's entry in the table, with the provider and the name to look it up. The provider at the address takes
    /// precedence over the vendor.
    fn locate<'i>(&self, item: PriceKey<'i>) -> Option<(&'i str, &'i str, ModelInfo<'static>)> {
        let at_address = self.provider_at_base_url(item.provider).map(|list| (list, item.name));
        let mut places = at_address.into_iter().chain([(item.price_provider, item.price_model)]);
        places.find_map(|(list, name)| Some((list, name, find_in_list(list, name)?)))
    }

    /// The cost of one request in US dollars, at the prices of the time `at`. `None` if the price is unknown. For
    /// several requests, add up their costs instead of their tokens: a long prompt may cost more per token than two
    /// short ones.
    pub fn cost(&self, item: PriceKey<'_>, usage: &Usage, at: SystemTime) -> Option<f64> {
        let cost = match self.user_prices.rates(item, usage.prompt()) {
            Some(rates) => rates.cost(usage),
            None => {
                let (list, name, _) = self.locate(item)?;
                cost_with_hour_cache(list, name, usage, at, item.is_flex)?
            }
        };
        cost.is_finite().then_some(cost)
    }

    /// The rates at the time `at` for a prompt of this length, as long prompts may cost more. `None` if the price is
    /// unknown.
    pub fn rates(&self, item: PriceKey<'_>, prompt_tokens: u64, at: SystemTime) -> Option<Rates> {
        if let Some(rates) = self.user_prices.rates(item, prompt_tokens) {
            return Some(rates);
        }
        if let Some(vendor) = Vendor::find(item.price_provider).filter(|_| !self.base_urls.contains_key(item.provider))
        {
            return self.embedded_rates(vendor.id, item, prompt_tokens, at);
        }
        let (list, name, _) = self.locate(item)?;
        rates_in_table(list, name, prompt_tokens, at, item.is_flex)
    }

    /// The rates of a vendor's model, of which each turn of a run asks for the same ones.
    fn embedded_rates(
        &self,
        list: &'static str,
        item: PriceKey<'_>,
        prompt_tokens: u64,
        at: SystemTime,
    ) -> Option<Rates> {
        let tier = TIER_STARTS.partition_point(|start| *start < prompt_tokens);
        let minute = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
        let key = RatesKey { list, name: item.price_model.to_owned(), is_flex: item.is_flex, tier, minute };
        let mut last = self.last_rates.lock().ignore_poison();
        if let Some((_, rates)) = last.iter().find(|(known, _)| *known == key) {
            return *rates;
        }
        // Any other length in the tier has the same rates.
        let prompt_tokens = tier.checked_sub(1).map_or(0, |start| TIER_STARTS[start] + 1);
        let rates =
            self.locate(item).and_then(|(list, name, _)| rates_in_table(list, name, prompt_tokens, at, item.is_flex));
        if last.len() >= MAX_LAST_RATES {
            last.clear();
        }
        last.push((key, rates));
        rates
    }

    /// Whether there is a price for the model.
    pub fn has_price(&self, item: PriceKey<'_>) -> bool {
        self.user_prices_unreadable || self.user_prices.has(item) || self.locate(item).is_some()
    }

    /// Whether the table has a price for a model, but none for flex processing, which the vendor then doesn't offer.
    pub fn lacks_flex(&self, item: PriceKey<'_>, at: SystemTime) -> bool {
        let rates = |is_flex| {
            let (list, name, _) = self.locate(item)?;
            rates_in_table(list, name, 0, at, is_flex)
        };
        rates(false).is_some_and(|standard| rates(true) == Some(standard))
    }

    /// The models of a provider in the table that have a price. A vendor's list doesn't include models of other
    /// vendors.
    pub fn models(&self, list: &str) -> impl Iterator<Item = &'static str> {
        let table = table_of(list, "");
        let is_found = move |list: &str, id: &str| {
            let is_anothers =
                Vendor::find(list).is_some() && models::identify_vendor(id).is_some_and(|(maker, _)| maker != list);
            !is_anothers && table_of(list, id).is_some_and(|table| find_model(table, list, id).is_some())
        };
        let provider = table.and_then(|table| table.providers().find(|known| known.id() == list));
        let ids =
            provider.into_iter().flat_map(|provider| provider.models().map(move |model| (provider.id(), model.id())));
        ids.filter(move |(list, id)| is_found(list, id)).map(|(_, id)| id)
    }

    /// The context window of a model in tokens, if known.
    pub fn context_window(&self, item: PriceKey<'_>) -> Option<u64> {
        let (list, _, info) = self.locate(item)?;
        info.context_window().or_else(|| models::context_window(list, info.id()))
    }

    /// The limit on a model's prompt in tokens, if it is less than its window.
    pub fn prompt_limit(&self, item: PriceKey<'_>) -> Option<u64> {
        models::prompt_limit(self.locate(item)?.2.id(), self.context_window(item)?)
    }

    /// All details of a model's price at the time `at`. `None` if it is unknown.
    pub fn model_pricing(&self, item: PriceKey<'_>, at: SystemTime) -> Option<ModelPricing> {
        let (listed_as, is_for_server, tiers) = match self.user_prices.tiers(item) {
            Some(tiers) => (None, true, tiers.to_vec()),
            None => {
                let (list, name, info) = self.locate(item)?;
                let is_for_server = self.provider_at_base_url(item.provider) == Some(list);
                let tier = |above: u64| {
                    Some(Tier { above, rates: rates_in_table(list, name, above.saturating_add(1), at, item.is_flex)? })
                };
                let mut tiers = [0].into_iter().chain(TIER_STARTS).map(tier).collect::<Option<Vec<_>>>()?;
                tiers.dedup_by_key(|tier| tier.rates);
                (Some(info.id().to_owned()), is_for_server, tiers)
            }
        };
        let (context_window, prompt_limit) = (self.context_window(item), self.prompt_limit(item));
        Some(ModelPricing { listed_as, tiers, context_window, prompt_limit, is_for_server })
    }
}

/// Rounds away floating-point errors, to a trillionth of a dollar, which is far below the price of a token.
pub fn round_usd(usd: f64) -> f64 {
    (usd * 1e12).round() / 1e12
}

/// The embedded part of the table with those of a provider's prices that a lookup of this model needs, or the whole table.
fn table_of(list: &str, name: &str) -> Option<&'static Calculator> {
    if list.is_empty() {
        return None;
    }
    let embedded = Vendor::find(list).and_then(|vendor| vendor.price_table.for_model(name));
    Some(embedded.unwrap_or_else(Calculator::bundled))
}

/// The cost of one request, also where the table has no price for cache writes for an hour.
fn cost_with_hour_cache(list: &str, name: &str, usage: &Usage, at: SystemTime, is_flex: bool) -> Option<f64> {
    let cost = cost_in_table(list, name, usage, at, is_flex)?;
    if usage.cache_write_1h_tokens == 0 {
        return Some(cost);
    }
    let for_minutes = cost_in_table(list, name, &Usage { cache_write_1h_tokens: 0, ..*usage }, at, is_flex)?;
    if cost > for_minutes {
        return Some(cost);
    }
    Some(cost + rates_in_table(list, name, usage.prompt(), at, is_flex)?.hour_surcharge(usage))
}

/// The cost of one request for a model that was located in the table.
fn cost_in_table(list: &str, name: &str, usage: &Usage, at: SystemTime, is_flex: bool) -> Option<f64> {
    let usage = to_table_usage(usage);
    let request = PriceRequest::new(name, &usage).with_provider_id(list).with_timestamp(at);
    // The table has OpenAI's flex prices. Google's are half of the standard ones.
    let (request, share) = match is_flex {
        true if list == "google" => (request, GOOGLE_FLEX_SHARE),
        true => (request.with_price_context("service_tier", "flex"), 1.0),
        false => (request, 1.0),
    };
    Some(table_of(list, name)?.calculate(&request).ok()?.total_price * share).filter(|cost| cost.is_finite())
}

fn rates_in_table(list: &str, name: &str, prompt_tokens: u64, at: SystemTime, is_flex: bool) -> Option<Rates> {
    let prompt = prompt_tokens.max(1000);
    let cost = |usage| cost_in_table(list, name, &usage, at, is_flex);
    let without_rounding_error = |rate: f64| (rate * 1e6).round() / 1e6;
    let of_prompt = |usage| Some(without_rounding_error(cost(usage)? / prompt as f64 * 1e6));
    let asked = Usage { input_tokens: prompt, ..Usage::default() };
    Some(Rates {
        input: of_prompt(asked)?,
        output: without_rounding_error((cost(Usage { output_tokens: 1000, ..asked })? - cost(asked)?) * 1000.0),
        cache_read: of_prompt(Usage { cache_read_tokens: prompt, ..Usage::default() })?,
        cache_write: of_prompt(Usage { cache_write_tokens: prompt, ..Usage::default() })?,
    })
}

/// A provider's model.
fn find_in_list(list: &str, name: &str) -> Option<ModelInfo<'static>> {
    match Vendor::find(list) {
        Some(vendor) => vendor.price_table.model(name, |table| find_model(table, list, name)),
        None => find_model(table_of(list, name)?, list, name),
    }
}

/// A provider's model in the table.
fn find_model(table: &'static Calculator, list: &str, name: &str) -> Option<ModelInfo<'static>> {
    let nothing = genai_prices::Usage::new();
    let found = table.calculate(&PriceRequest::new(name, &nothing).with_provider_id(list)).ok()?;
    if !matches_model(name, &found.model_id) {
        return None;
    }
    let is_found = |model: &ModelInfo<'static>| model.id() == found.model_id;
    let listed = table.providers().find(|provider| provider.id() == found.provider_id)?.models().find(is_found);
    // Some providers refer to other providers' models and their prices.
    listed.or_else(|| table.providers().flat_map(genai_prices::ProviderInfo::models).find(is_found))
}

fn to_table_usage(usage: &Usage) -> genai_prices::Usage {
    // The table's `input_tokens` are the whole prompt, from which it subtracts cached tokens.
    genai_prices::Usage::from([
        (UsageKey::INPUT_TOKENS, usage.prompt() as f64),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read_tokens as f64),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write_tokens as f64),
        (UsageKey::CACHE_WRITE_1H_TOKENS, usage.cache_write_1h_tokens.min(usage.cache_write_tokens) as f64),
        (UsageKey::OUTPUT_TOKENS, usage.output_tokens as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::VENDORS;

    fn at(date: &str) -> SystemTime {
        date.parse::<jiff::Timestamp>().unwrap().into()
    }

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-9)
    }

    fn listed<'a>(list: &'a str, name: &'a str) -> PriceKey<'a> {
        PriceKey { provider: list, name, price_provider: list, price_model: name, is_flex: false }
    }

    #[test]
    fn each_kind_of_token_has_its_own_price() {
        let prices = Prices::new();
        prices.load_in_background([listed("anthropic", "claude-haiku-4-5")]);
        let now = at("2026-11-21T00:00:00Z");
        let rates = prices.rates(listed("anthropic", "claude-haiku-4-5-20251001"), 0, now).unwrap();
        let expected = [(rates.input, 1.0), (rates.output, 5.0), (rates.cache_read, 0.1), (rates.cache_write, 1.25)];
        assert!(expected.iter().all(|(rate, price)| (rate - price).abs() < 1e-9), "{rates:?}");
        let usage = Usage {
            input_tokens: 1000,
            output_tokens: 100,
            cache_read_tokens: 10_000,
            cache_write_tokens: 200,
            ..Usage::default()
        };
        let sum = (1000.0 + 500.0 + 1000.0 + 250.0) / 1e6;
        assert!(close(prices.cost(listed("anthropic", "claude-haiku-4-5"), &usage, now), sum));
        assert!(close(prices.cost(listed("anthropic", "claude-haiku-4-5"), &Usage::default(), now), 0.0));
    }

    #[test]
    fn a_cache_write_for_an_hour_costs_twice_the_input() {
        let now = at("2026-11-21T00:00:00Z");
        let write =
            |tokens, hour| Usage { cache_write_tokens: tokens, cache_write_1h_tokens: hour, ..Usage::default() };
        // The last two lists have no price of their own for it.
        for (list, name, input) in [
            ("anthropic", "claude-haiku-4-5", 1.0),
            ("anthropic", "claude-sonnet-4-5", 3.0),
            ("openrouter", "anthropic/claude-sonnet-4", 3.0),
            ("aws", "anthropic.claude-sonnet-4-20250514-v1:0", 3.0),
        ] {
            let cost = |usage| Prices::new().cost(listed(list, name), &usage, now);
            assert!(close(cost(write(1000, 0)), 1250.0 * input / 1e6), "{list}: {:?}", cost(write(1000, 0)));
            let sum = (600.0 * 1.25 + 400.0 * 2.0) * input / 1e6;
            assert!(close(cost(write(1000, 400)), sum), "{list}: {:?}", cost(write(1000, 400)));
            let rates = Prices::new().rates(listed(list, name), 1000, now).unwrap();
            assert!(close(Some(rates.cache_write_1h()), 2.0 * input), "{list}: {rates:?}");
        }
    }

    #[test]
    fn no_listed_price_of_a_cache_write_for_an_hour_exceeds_the_reserved_one() {
        let now = at("2026-11-21T00:00:00Z");
        let prices = Prices::new();
        for name in prices.models("anthropic") {
            for tokens in [1000, 300_000] {
                let usage = Usage { cache_write_tokens: tokens, cache_write_1h_tokens: tokens, ..Usage::default() };
                let cost = prices.cost(listed("anthropic", name), &usage, now).unwrap();
                let rate = prices.rates(listed("anthropic", name), tokens, now).unwrap().cache_write_1h();
                assert!(cost <= rate * tokens as f64 / 1e6 + 1e-9, "{name}: {cost} {rate}");
            }
        }
    }

    #[test]
    fn prices_depend_on_prompt_length_and_date() {
        let prices = Prices::new();
        let long = Usage { cache_read_tokens: 300_000, ..Usage::default() };
        assert!(close(prices.cost(listed("anthropic", "claude-sonnet-4-5"), &long, at("2026-11-21T00:00:00Z")), 0.18));
        let rates = |tokens| {
            prices.rates(listed("anthropic", "claude-sonnet-4-5"), tokens, at("2026-11-21T00:00:00Z")).unwrap()
        };
        let each = |rates: Rates| [rates.input, rates.output, rates.cache_read, rates.cache_write];
        let close_to =
            |rates: Rates, to: [f64; 4]| each(rates).iter().zip(to).all(|(rate, to)| (rate - to).abs() < 1e-9);
        assert!(close_to(rates(1_000), [3.0, 15.0, 0.3, 3.75]), "{:?}", rates(1_000));
        assert!(close_to(rates(300_000), [6.0, 22.5, 0.6, 7.5]), "{:?}", rates(300_000));
        let before = prices.cost(listed("anthropic", "claude-opus-4-6"), &long, at("2026-02-20T00:00:00Z"));
        let after = prices.cost(listed("anthropic", "claude-opus-4-6"), &long, at("2026-11-21T00:00:00Z"));
        assert!(close(before, 0.3) && close(after, 0.15), "{before:?} {after:?}");
    }

    #[test]
    fn flex_processing_has_its_own_price() {
        let prices = Prices::new();
        let now = at("2026-11-21T00:00:00Z");
        let usage = Usage { input_tokens: 100_000, output_tokens: 10_000, ..Usage::default() };
        for (list, name, standard) in
            [("openai", "gpt-5", 0.225), ("google", "gemini-2.5-pro", 0.225), ("openai", "gpt-4.1", 0.28)]
        {
            let item = |is_flex| PriceKey { is_flex, ..listed(list, name) };
            let has_flex = name != "gpt-4.1";
            assert!(close(prices.cost(item(false), &usage, now), standard), "{name}");
            let expected = if has_flex { standard / 2.0 } else { standard };
            assert!(close(prices.cost(item(true), &usage, now), expected), "{name}");
            assert_eq!(prices.lacks_flex(item(true), now), !has_flex, "{name}");
        }
    }

    #[test]
    fn rounding_removes_floating_point_errors() {
        assert_eq!(round_usd(0.1 + 0.2), 0.3);
        assert_eq!(round_usd(0.011_793 + 0.017_695_5), 0.029_488_5);
        assert_eq!(round_usd(2.5e-9), 2.5e-9);
    }

    #[test]
    fn unknown_models_have_no_price() {
        let prices = Prices::new();
        let now = at("2026-11-21T00:00:00Z");
        for (provider, model) in
            [("anthropic", "nonesuch-1"), ("replay", "a.yaml"), ("nobody", "claude-haiku-4-5"), ("", "")]
        {
            assert_eq!(prices.cost(listed(provider, model), &Usage::default(), now), None, "{provider}/{model}");
            assert_eq!(prices.rates(listed(provider, model), 0, now), None);
            assert_eq!(prices.context_window(listed(provider, model)), None);
        }
    }

    #[test]
    fn every_listed_model_has_a_price() {
        let prices = Prices::new();
        assert!(prices.models("anthropic").any(|model| model == "claude-sonnet-4-5"));
        assert!(prices.models("anthropic").all(|model| prices.has_price(listed("anthropic", model))));
        assert!(prices.models("openai").any(|model| model == "gpt-5.1"));
        assert!(prices.models("google").any(|model| model == "gemini-2.5-pro"));
        assert_eq!(prices.models("nobody").next(), None);
        for vendor in &VENDORS {
            assert!(prices.models(vendor.id).count() > 20);
            for model in prices.models(vendor.id) {
                assert!(prices.has_price(listed(vendor.id, model)), "{model}");
            }
        }
        assert!(!prices.models("google").any(|model| model.starts_with("claude-")));
    }

    #[test]
    fn a_models_price_is_found_by_the_servers_address() {
        let addresses = [
            ("router", "https://openrouter.ai/api/v1"),
            ("seek", "https://api.deepseek.com/v1"),
            ("grok", "https://api.x.ai/v1"),
            ("le", "https://api.mistral.ai/v1"),
            ("quick", "https://api.groq.com/openai/v1"),
            ("azure", "https://me.openai.azure.com/openai/v1"),
            ("mine", "https://llm.example/v1"),
        ];
        let addresses = addresses.map(|(name, base)| (name.to_owned(), base.to_owned()));
        let prices = Prices::new().with_base_urls(BTreeMap::from(addresses));
        let item = |provider, name| PriceKey { provider, name, price_provider: "", price_model: name, is_flex: false };
        for (provider, model, list) in [
            ("router", "deepseek/deepseek-chat-v3.1", Some("openrouter")),
            ("seek", "deepseek-chat", Some("deepseek")),
            ("grok", "grok-4", Some("x-ai")),
            ("le", "mistral-large-latest", Some("mistral")),
            ("quick", "openai/gpt-oss-120b", Some("groq")),
            ("azure", "gpt-4.1", Some("azure")),
            ("mine", "deepseek-chat", None),
        ] {
            assert_eq!(prices.provider_at_base_url(provider), list, "{provider}");
            assert_eq!(prices.has_price(item(provider, model)), list.is_some(), "{model}");
            let rates = prices.rates(item(provider, model), 0, at("2026-11-21T00:00:00Z"));
            assert_eq!(rates.is_some_and(|rates| rates.input > 0.0), list.is_some(), "{model}");
        }
        // If the provider at the address has no price, the vendor may have one.
        let of_maker = PriceKey {
            price_provider: "anthropic",
            price_model: "claude-haiku-4-5",
            ..item("seek", "claude-haiku-4-5")
        };
        assert!(prices.has_price(of_maker));
        assert!(!Prices::new().has_price(item("router", "deepseek/deepseek-chat-v3.1")));
    }

    #[test]
    fn the_table_version_matches_the_lock_file() {
        let locked =
            include_str!("../../Cargo.lock").split("[[package]]").find(|entry| entry.contains("\"genai-prices\"\nv"));
        let (name, version) = TABLE_VERSION.split_once(' ').unwrap();
        let expected = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(locked.unwrap().trim_start().starts_with(&expected), "{TABLE_VERSION} isn't {locked:?}");
    }

    #[test]
    fn the_table_date_follows_the_last_check_in_the_table() {
        // The table says of many prices when they were verified; other dates in it are those of price changes to come.
        let mut checked: Vec<jiff::civil::Date> = Vec::new();
        for vendor in &VENDORS {
            let parts = vendor.price_table.text().split("verified on ").skip(1);
            checked.extend(parts.filter_map(|rest| rest.get(..10)?.parse::<jiff::civil::Date>().ok()));
        }
        let last = checked.into_iter().max().unwrap();
        let date: jiff::civil::Date = TABLE_DATE.parse().unwrap();
        assert!((last..=last.saturating_add(jiff::Span::new().days(31))).contains(&date), "{last} {date}");
    }

    #[test]
    fn windows_are_known() {
        let prices = Prices::new();
        assert_eq!(prices.context_window(listed("anthropic", "claude-haiku-4-5")), Some(200_000));
        assert_eq!(prices.context_window(listed("anthropic", "claude-opus-5-5")), Some(1_000_000));
    }

    fn ids_of(provider: genai_prices::ProviderInfo<'_>) -> Vec<String> {
        provider.models().map(|model| model.id().to_owned()).collect()
    }

    #[test]
    fn each_embedded_table_equals_its_part_of_the_whole_table() {
        let days = ["2026-01-01T00:00:00Z", "2026-11-21T00:00:00Z", "2027-06-01T00:00:00Z"];
        let usages = [
            Usage { input_tokens: 1000, output_tokens: 10, ..Usage::default() },
            Usage {
                input_tokens: 5000,
                cache_read_tokens: 250_000,
                cache_write_tokens: 70,
                cache_write_1h_tokens: 20,
                output_tokens: 1000,
            },
        ];
        for vendor in &VENDORS {
            let whole = Calculator::bundled().providers().find(|provider| provider.id() == vendor.id).unwrap();
            let own = vendor.price_table.whole().unwrap().providers().next().unwrap();
            let stale = format!(
                "src/pricing/{0}.tsv is stale: jq -r '.[] | select(.id == \"{0}\") | ({{id, name, api_pattern: \"-\"}} | \
                 tojson), (.models[] | \"\\(.match)\\t\\(del(.match, .name, .description))\")' data/prices.json in the \
                 crate's source",
                vendor.id
            );
            assert_eq!(ids_of(own), ids_of(whole), "{stale}");
            let cases = days.iter().flat_map(|day| usages.map(|usage| (day, usage)));
            for ((day, usage), model) in cases.flat_map(|case| ids_of(whole).into_iter().map(move |id| (case, id))) {
                let usage = to_table_usage(&usage);
                let request = PriceRequest::new(&model, &usage).with_provider_id(vendor.id).with_timestamp(at(day));
                let price = |table: &Calculator| table.calculate(&request).map(|price| price.total_price).ok();
                for table in [vendor.price_table.whole(), vendor.price_table.for_model(&model)] {
                    assert_eq!(price(table.unwrap()), price(Calculator::bundled()), "{model} on {day}: {stale}");
                }
            }
        }
    }

    #[test]
    fn kept_rates_are_those_of_each_prompt_and_time() {
        let prices = Prices::new();
        for vendor in &VENDORS {
            let table = vendor.price_table.whole().unwrap();
            for name in ids_of(table.providers().next().unwrap()).iter().filter(|name| !name.contains("audio")) {
                for day in ["2026-03-12T23:59:59Z", "2026-11-21T12:00:30Z"].map(at) {
                    for prompt in [0, 999, 200_000, 200_001, 900_000] {
                        for is_flex in [false, true] {
                            let item = PriceKey { is_flex, ..listed(vendor.id, name) };
                            let expected = rates_in_table(vendor.id, name, prompt, day, is_flex);
                            let expected = expected.filter(|_| prices.has_price(item));
                            for _ in 0..2 {
                                assert_eq!(prices.rates(item, prompt, day), expected, "{name}: {prompt} {is_flex}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn windows_are_added_only_where_the_table_has_none() {
        for (list, name, window) in models::WINDOWS {
            let in_table = table_of(list, name).and_then(|table| find_model(table, list, name));
            assert_eq!(in_table.map(ModelInfo::id), Some(name), "the table has no such model");
            assert_eq!(in_table.and_then(ModelInfo::context_window), None, "{name}: the table has it now");
            assert_eq!(Prices::new().context_window(listed(list, name)), Some(window));
        }
        let by_address = listed("google", "gemini-3.1-pro-preview-customtools");
        assert_eq!(Prices::new().context_window(by_address), Some(1_048_576));
    }

    #[test]
    fn a_prompt_can_have_a_limit_below_the_window() {
        for (name, window, most) in [
            ("gpt-6-sol", 1_050_000, Some(922_000)),
            ("gpt-6.1-terra", 1_050_000, Some(922_000)),
            ("gpt-5.4", 1_050_000, Some(922_000)),
            ("gpt-5.1", 400_000, Some(272_000)),
            ("gpt-5-mini", 400_000, Some(272_000)),
            ("gpt-5-pro", 400_000, None),
            ("gpt-4.1", 1_000_000, None),
        ] {
            let item = listed("openai", name);
            assert_eq!(Prices::new().context_window(item), Some(window), "{name}");
            assert_eq!(Prices::new().prompt_limit(item), most, "{name}");
        }
        assert_eq!(Prices::new().prompt_limit(listed("anthropic", "claude-opus-5-5")), None);
        assert_eq!(models::prompt_limit("openai/gpt-6-sol", 1_050_000), Some(922_000));
    }

    fn tiers(list: &str, name: &str, day: &str) -> Vec<(u64, [f64; 4])> {
        let at = format!("{day}T12:00:00Z").parse::<jiff::Timestamp>().unwrap().into();
        let sheet = Prices::new()
            .model_pricing(
                PriceKey { provider: list, name, price_provider: list, price_model: name, is_flex: false },
                at,
            )
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
        let item =
            PriceKey { provider: "anthropic", name, price_provider: "anthropic", price_model: name, is_flex: false };
        let sheet = Prices::new().model_pricing(item, SystemTime::now()).unwrap();
        assert_eq!((sheet.listed_as, sheet.context_window), (Some("claude-haiku-4-5".to_owned()), Some(200_000)));
        assert_eq!(Prices::new().model_pricing(PriceKey { price_model: "nonesuch", ..item }, SystemTime::now()), None);
        assert_eq!(Prices::new().model_pricing(PriceKey { price_provider: "", ..item }, SystemTime::now()), None);
    }

    #[test]
    fn every_tier_of_the_embedded_tables_is_listed() {
        fn check(value: &serde_json::Value) {
            match value {
                serde_json::Value::Array(items) => items.iter().for_each(check),
                serde_json::Value::Object(fields) => {
                    if let Some(start) = fields.get("start").and_then(serde_json::Value::as_f64) {
                        assert!(TIER_STARTS.contains(&(start as u64)), "{start}");
                    }
                    fields.values().for_each(check);
                }
                _ => {}
            }
        }
        for vendor in &VENDORS {
            for line in vendor.price_table.text().lines() {
                check(&serde_json::from_str(line.rsplit('\t').next().unwrap()).unwrap());
            }
        }
    }
}
