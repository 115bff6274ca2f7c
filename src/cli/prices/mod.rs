//! `legwork prices`: shows what models cost.

mod table;

use jiff::tz::TimeZone;

pub(super) use self::table::align_columns;
use self::table::{ListedSource, ModelPrice, PricesOutput};
use super::env::CliEnv;
use super::output::printable;
use crate::diagnostic::{Diagnostic, suggest_name};
use crate::error::Error;
use crate::lints::model_argument;
use crate::pricing::{Prices, TABLE_DATE, TABLE_VERSION, Tier};
use crate::providers::base_url::{display_base, is_on_host_of};
use crate::providers::{self, Model, PROVIDERS, ProviderSpec};

/// Options of `legwork prices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
These are list prices, so the cost of a run is an estimate. To override them, put your own prices into legwork/prices.toml in \
your configuration folder ($XDG_CONFIG_HOME, or ~/.config).

Exit codes: 0; 1 if the price of a named model is unknown; 2 for a usage error; 5 if prices.toml or providers.toml has \
mistakes.")]
pub(super) struct PricesArgs {
    /// A model, as PROVIDER/NAME, or a provider; default: all models of all providers
    ///
    /// For a model, shows the rates for short and long prompts, the context window and the source of the price. For a
    /// provider, lists its models.
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// The output format
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

pub(super) fn prices(options: &PricesArgs, env: &CliEnv) -> Result<u8, Error> {
    let file = env.prices_file().map(|path| path.to_string_lossy().into_owned());
    let lookup = PriceLookup { prices: env.prices()?, file, env, now: (env.clock)() };
    let mut models = Vec::new();
    for argument in &options.models {
        match lookup.models_of_provider(argument) {
            Some(all) => models.extend(all.iter().map(|name| lookup.look_up(name))),
            None => {
                let has_user_price = lookup.prices.user_prices().models().any(|known| known == argument);
                let model = match argument.split_once('/') {
                    Some((provider, name)) if has_user_price => lookup.resolve_model(provider, name),
                    _ => model_argument(argument, env.user_servers()?)
                        .map_err(|finding| unknown_model_error(argument, &finding))?,
                };
                models.push(lookup.look_up(&model));
            }
        }
    }
    if options.models.is_empty() {
        models = lookup.all_models().iter().map(|model| lookup.look_up(model)).collect();
    }
    let output = PricesOutput {
        format: 1,
        date: lookup.now.to_zoned(TimeZone::UTC).date().to_string(),
        table: TABLE_VERSION,
        table_date: TABLE_DATE,
        file: lookup.file.clone().filter(|_| lookup.prices.user_prices().models().next().is_some()),
        models,
    };
    if options.format == "json" {
        let json = serde_json::to_string_pretty(&output).unwrap_or_default();
        env.console.print(&crate::text::sanitize::escape_json(&json));
    } else {
        let is_list = options.models.iter().all(|argument| !argument.contains('/'));
        let text = if is_list { table::model_list(&output) } else { table::model_details(&output) };
        env.console.print(&crate::text::sanitize::text(&text));
        for help in output.models.iter().filter_map(|priced| priced.help.as_ref()).filter(|_| !is_list) {
            env.console.eprint(&format!("help: {}", printable(help)));
        }
    }
    let is_named = |priced: &&ModelPrice| options.models.contains(&priced.model);
    let has_unknown = output.models.iter().filter(is_named).any(|priced| priced.source.is_none());
    Ok(u8::from(has_unknown))
}

/// The names of all models that have a price.
pub(super) fn model_names(env: &CliEnv) -> Vec<String> {
    let Ok(prices) = env.prices() else { return Vec::new() };
    let lookup = PriceLookup { prices, file: None, env, now: (env.clock)() };
    lookup.all_models().iter().map(ToString::to_string).collect()
}

struct PriceLookup<'a> {
    prices: &'a Prices,
    /// The path of the user's file for display.
    file: Option<String>,
    env: &'a CliEnv,
    now: jiff::Timestamp,
}

impl PriceLookup<'_> {
    /// The models of a provider; `None` if no provider has the name `argument`. Includes those in prices.toml.
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

    /// Every model of the table, once, and those in prices.toml.
    fn all_models(&self) -> Vec<Model> {
        // Providers with a common API have the models of another provider.
        let vendors = PROVIDERS.iter().filter(|spec| !spec.vendor.is_empty() && !spec.is_common_api);
        let listed =
            |spec: &'static ProviderSpec| self.prices.models(spec.vendor).map(|model| Model::new(spec.name, model));
        let mut models: Vec<Model> = vendors.flat_map(listed).collect();
        let mut own = self.user_models(None);
        own.retain(|model| !models.contains(model));
        models.append(&mut own);
        models
    }

    /// The models in prices.toml.
    fn user_models(&self, of: Option<&str>) -> Vec<Model> {
        let names = self.prices.user_prices().models().filter_map(|model| model.split_once('/'));
        let wanted = names.filter(|(provider, _)| of.is_none_or(|of| of == *provider));
        wanted.map(|(provider, name)| self.resolve_model(provider, name)).collect()
    }

    /// A model of a built-in provider or of one of the user's servers.
    fn resolve_model(&self, provider: &str, name: &str) -> Model {
        Model { server: self.env.parsed_servers().servers.server_info(provider), ..Model::new(provider, name) }
    }

    fn look_up(&self, model: &Model) -> ModelPrice {
        let price = ModelPrice {
            model: model.to_string(),
            asked_at: custom_endpoint(model, self.env),
            ..ModelPrice::default()
        };
        if model.is_scripted() {
            return ModelPrice { source: Some(ListedSource::Replay), rates: vec![Tier::default()], ..price };
        }
        let Some(known) = self.prices.model_pricing(model.price_key(), self.now.into()) else {
            let file = self.file.as_deref().unwrap_or("legwork/prices.toml in your configuration folder");
            let help = match suggest_name(&model.name, self.prices.models(model.price_provider())) {
                Some(near) => {
                    format!("did you mean `{}/{near}`? Otherwise, set its price in {file}", model.provider)
                }
                None => format!("set its price in {file}"),
            };
            return ModelPrice { unknown: Some("not in the price table"), help: Some(help), ..price };
        };
        ModelPrice {
            source: Some(if known.listed_as.is_some() { ListedSource::Table } else { ListedSource::PricesToml }),
            listed_as: known.listed_as,
            context_window: known.context_window,
            prompt_limit: known.prompt_limit,
            is_of_server: known.is_for_server,
            rates: known.tiers,
            ..price
        }
    }
}

/// The base URL of a model's server, if it isn't the provider's own.
fn custom_endpoint(model: &Model, env: &CliEnv) -> Option<String> {
    let (_, base, spec) = env.base_urls().find(|(name, ..)| *name == model.provider)?;
    display_base(base).filter(|_| !is_on_host_of(base, spec.default_endpoint.map_or("", |home| home.base_url)))
}

/// The error for an argument that names neither a model nor a provider.
fn unknown_model_error(argument: &str, finding: &Diagnostic) -> Error {
    let near = suggest_name(argument, PROVIDERS.iter().map(|entry| entry.name)).filter(|_| !argument.contains('/'));
    let hint = near.map(|near| format!("Did you mean `{near}`?")).or_else(|| finding.help.clone());
    Error::Usage { message: format!("`{argument}`: {}", finding.message), hint }
}
