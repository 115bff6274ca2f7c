//! `legwork prices`: what models cost.

mod table;

use std::path::PathBuf;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::CliEnv;
use super::output::printable;
use crate::diagnostic::{Diagnostic, suggest_name};
use crate::error::Error;
use crate::lints::model_argument;
use crate::pricing::{ModelPricing, PriceSource, Prices, TABLE_DATE, TABLE_VERSION};
use crate::providers::base_url::{display_base, is_on_host_of};
use crate::providers::{self, Model, PROVIDERS, ProviderSpec};

/// Options of `legwork prices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prices are list prices, so that what legwork says of a run's cost is an estimate. Your own go before the table's: they stand \
in legwork/prices.toml in your configuration folder ($XDG_CONFIG_HOME, else ~/.config).

Exit codes: 0, 1 where the price of a model that was named isn't known, 2 for a wrong command line, 5 where prices.toml or \
providers.toml has mistakes.")]
pub(super) struct PricesArgs {
    /// A model as jobs write it, such as anthropic/claude-sonnet-5-5, or a provider alone for all of its models; without
    /// one, all models of all providers are listed
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// How to print
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

/// What is known of one model's price.
#[derive(Debug, Serialize)]
struct ModelPrice {
    /// `provider/name`.
    model: String,
    /// Who says so; null where the price isn't known.
    source: Option<ListedSource>,
    /// The name under which the table has the model; null where the price isn't the table's.
    listed_as: Option<String>,
    /// The address where it is asked, without credentials; null where that is its provider's own.
    asked_at: Option<String>,
    /// How many tokens prompt and reply may have together; null where that isn't known.
    context_window: Option<u64>,
    /// How many tokens a prompt may have, where that is less; null where it isn't, or isn't known.
    prompt_limit: Option<u64>,
    /// Whether the table has the price of the very server that is asked.
    #[serde(skip)]
    is_of_server: bool,
    /// From the shortest prompts up; empty where the price isn't known.
    rates: Vec<TierRate>,
    /// Why the price isn't known; null where it is.
    unknown: Option<String>,
    /// What to do about that.
    #[serde(skip)]
    help: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ListedSource {
    /// The table that legwork comes with.
    Table,
    /// The user's own file.
    PricesToml,
    /// Nobody is asked.
    Replay,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, Serialize)]
struct TierRate {
    /// For prompts of more tokens than this.
    above: u64,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct PricesOutput {
    format: u32,
    /// The day whose prices these are, in UTC.
    date: String,
    /// Where the table comes from.
    table: &'static str,
    /// The day on which that was published.
    table_date: &'static str,
    /// The user's own file, where it has prices.
    file: Option<String>,
    models: Vec<ModelPrice>,
}

pub(super) fn prices(options: &PricesArgs, around: &CliEnv) -> Result<u8, Error> {
    let asking =
        PriceLookup { prices: around.prices()?, file: around.prices_file(), env: around, now: (around.clock)() };
    let mut models = Vec::new();
    for argument in &options.models {
        match asking.models_of_provider(argument) {
            Some(all) => models.extend(all.iter().map(|name| asking.look_up(name))),
            None => {
                let own = asking.prices.user_prices().models().any(|known| known == argument);
                let model = match argument.split_once('/') {
                    Some((provider, name)) if own => asking.resolve_model(provider, name),
                    _ => model_argument(argument, around.user_servers()?)
                        .map_err(|finding| unknown_model_error(argument, &finding))?,
                };
                models.push(asking.look_up(&model));
            }
        }
    }
    if options.models.is_empty() {
        models = asking.all_models().iter().map(|model| asking.look_up(model)).collect();
    }
    let answer = PricesOutput {
        format: 1,
        date: asking.now.to_zoned(TimeZone::UTC).date().to_string(),
        table: TABLE_VERSION,
        table_date: TABLE_DATE,
        file: asking.user_file().filter(|_| asking.prices.user_prices().models().next().is_some()),
        models,
    };
    if options.format == "json" {
        let json = serde_json::to_string_pretty(&answer).unwrap_or_default();
        around.console.print(&crate::text::sanitize::escape_json(&json));
    } else {
        let is_list = options.models.iter().all(|argument| !argument.contains('/'));
        let text = if is_list { table::model_list(&answer) } else { table::model_details(&answer) };
        around.console.print(&crate::text::sanitize::text(&text));
        for help in answer.models.iter().filter_map(|priced| priced.help.as_ref()).filter(|_| !is_list) {
            around.console.eprint(&format!("help: {}", printable(help)));
        }
    }
    let is_named = |priced: &&ModelPrice| options.models.contains(&priced.model);
    let has_unknown = answer.models.iter().filter(is_named).any(|priced| priced.source.is_none());
    Ok(u8::from(has_unknown))
}

struct PriceLookup<'a> {
    prices: &'a Prices,
    file: Option<PathBuf>,
    env: &'a CliEnv,
    now: jiff::Timestamp,
}

impl PriceLookup<'_> {
    /// The models of a provider, if `argument` is one's name. What only the user's file names counts, too.
    fn models_of_provider(&self, argument: &str) -> Option<Vec<Model>> {
        let entry = providers::find(argument).filter(|entry| !entry.vendor.is_empty());
        let at_address = self.prices.provider_at_base_url(argument);
        let mut models = self.user_models(Some(argument));
        if entry.is_none() && at_address.is_none() && models.is_empty() {
            return None;
        }
        let listed = self.prices.models(at_address.or(entry.map(|entry| entry.vendor)).unwrap_or_default());
        let listed: Vec<Model> = listed.map(|name| self.resolve_model(argument, name)).collect();
        models.retain(|own| !listed.contains(own));
        Some([listed, models].concat())
    }

    /// Every model of the table, once, and those of the user's file.
    fn all_models(&self) -> Vec<Model> {
        let mut lists: Vec<&str> = Vec::new();
        let mut models = Vec::new();
        for ProviderSpec { name, vendor: prices, .. } in PROVIDERS.iter().filter(|entry| !entry.vendor.is_empty()) {
            // Another API of one provider has the same models at the same prices.
            if !lists.contains(prices) {
                lists.push(prices);
                models.extend(self.prices.models(prices).map(|model| Model::new(*name, model)));
            }
        }
        let own: Vec<Model> = self.user_models(None).into_iter().filter(|own| !models.contains(own)).collect();
        [models, own].concat()
    }

    /// The models in the user's file.
    fn user_models(&self, of: Option<&str>) -> Vec<Model> {
        let named = self.prices.user_prices().models().filter_map(|model| model.split_once('/'));
        let wanted = named.filter(|(provider, _)| of.is_none_or(|of| of == *provider));
        wanted.map(|(provider, name)| self.resolve_model(provider, name)).collect()
    }

    /// A model of a provider of ours, or of a server of the user's own.
    fn resolve_model(&self, provider: &str, name: &str) -> Model {
        Model {
            server: self.env.user_servers_with_findings().servers.server_info(provider),
            ..Model::new(provider, name)
        }
    }

    fn look_up(&self, model: &Model) -> ModelPrice {
        let none = ModelPrice {
            model: model.to_string(),
            source: None,
            listed_as: None,
            asked_at: custom_endpoint(model, self.env),
            context_window: None,
            prompt_limit: None,
            is_of_server: false,
            rates: Vec::new(),
            unknown: None,
            help: None,
        };
        if model.is_scripted() {
            let nothing = TierRate { above: 0, input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 };
            return ModelPrice { source: Some(ListedSource::Replay), rates: vec![nothing], ..none };
        }
        let give = format!(
            "give it a price in {}",
            self.user_file().unwrap_or_else(|| "legwork/prices.toml in your configuration folder".to_owned())
        );
        match self.prices.model_pricing(model.price_key(), self.now.into()) {
            Some(ModelPricing { source: origin, tiers, context_window, prompt_limit, is_for_server: is_of_server }) => {
                let (source, listed_as) = match origin {
                    PriceSource::UserFile => (ListedSource::PricesToml, None),
                    PriceSource::Table(id) => (ListedSource::Table, Some(id)),
                };
                let rates = tiers.iter().map(|tier| TierRate {
                    above: tier.above,
                    input: without_rounding_error(tier.rates.input),
                    output: without_rounding_error(tier.rates.output),
                    cache_read: without_rounding_error(tier.rates.cache_read),
                    cache_write: without_rounding_error(tier.rates.cache_write),
                });
                let rates = rates.collect();
                ModelPrice {
                    source: Some(source),
                    listed_as,
                    context_window,
                    prompt_limit,
                    is_of_server,
                    rates,
                    ..none
                }
            }
            None => ModelPrice {
                unknown: Some("the table has no such model".to_owned()),
                help: Some(match suggest_name(&model.name, self.prices.models(model.price_provider())) {
                    Some(near) => format!("did you mean `{}/{near}`? Otherwise {give}", model.provider),
                    None => give,
                }),
                ..none
            },
        }
    }

    fn user_file(&self) -> Option<String> {
        self.file.as_ref().map(|path| path.to_string_lossy().into_owned())
    }
}

/// Where a model is asked, if that isn't at its provider's own address.
fn custom_endpoint(model: &Model, around: &CliEnv) -> Option<String> {
    let server = around.user_servers_with_findings().servers.get(&model.provider);
    let home = providers::find(server.map_or(&model.provider, |server| server.api()))?.default_endpoint?;
    let base = match server {
        Some(server) => server.base_url(),
        None => around.variable(home.base_url_env)?,
    };
    display_base(base).filter(|_| !is_on_host_of(base, home.base_url))
}

/// A rate without what figuring it out from the price of many tokens has added to it.
fn without_rounding_error(rate: f64) -> f64 {
    (rate * 1e6).round() / 1e6
}

/// What names no model of a provider.
fn unknown_model_error(argument: &str, finding: &Diagnostic) -> Error {
    let near = suggest_name(argument, PROVIDERS.iter().map(|entry| entry.name)).filter(|_| !argument.contains('/'));
    let hint = match (near, &finding.help) {
        (Some(near), _) => Some(format!("Did you mean `{near}`?")),
        (None, help) => help.clone(),
    };
    Error::Usage { message: format!("`{argument}`: {}", finding.message), hint }
}
