//! `legwork prices`: what models cost.

mod table;

use std::path::PathBuf;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::Surroundings;
use super::print::printable;
use crate::diagnostic::{Diagnostic, nearest};
use crate::error::Error;
use crate::lints::model_argument;
use crate::price::{Origin, Prices, Sheet, TABLE, TABLE_DATE};
use crate::providers::address::{is_at, shown_base};
use crate::providers::{self, Entry, Model, PROVIDERS};

/// Options of `legwork prices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prices are list prices, so that what legwork says of a run's cost is an estimate. Your own go before the table's: they stand \
in legwork/prices.toml in your configuration folder ($XDG_CONFIG_HOME, else ~/.config).

Exit codes: 0, 1 where the price of a model that was named isn't known, 2 for a wrong command line, 5 where prices.toml or \
providers.toml has mistakes.")]
pub(super) struct Options {
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
struct Priced {
    /// `provider/name`.
    model: String,
    /// Who says so; null where the price isn't known.
    source: Option<Source>,
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
    rates: Vec<Rate>,
    /// Why the price isn't known; null where it is.
    unknown: Option<String>,
    /// What to do about that.
    #[serde(skip)]
    help: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// The table that legwork comes with.
    Table,
    /// The user's own file.
    PricesToml,
    /// Nobody is asked.
    Replay,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, Serialize)]
struct Rate {
    /// For prompts of more tokens than this.
    above: u64,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct Answer {
    format: u32,
    /// The day whose prices these are, in UTC.
    date: String,
    /// Where the table comes from.
    table: &'static str,
    /// The day on which that was published.
    table_date: &'static str,
    /// The user's own file, where it has prices.
    file: Option<String>,
    models: Vec<Priced>,
}

pub(super) fn prices(options: &Options, around: &Surroundings) -> Result<u8, Error> {
    let asking = Asking { prices: around.prices()?, file: around.prices_file(), around, now: (around.clock)() };
    let mut models = Vec::new();
    for argument in &options.models {
        match asking.named(argument) {
            Some(all) => models.extend(all.iter().map(|name| asking.ask(name))),
            None => {
                let own = asking.prices.own().models().any(|known| known == argument);
                let model = match argument.split_once('/') {
                    Some((provider, name)) if own => asking.model(provider, name),
                    _ => model_argument(argument, around.servers()?).map_err(|finding| refused(argument, &finding))?,
                };
                models.push(asking.ask(&model));
            }
        }
    }
    if options.models.is_empty() {
        models = asking.all().iter().map(|model| asking.ask(model)).collect();
    }
    let answer = Answer {
        format: 1,
        date: asking.now.to_zoned(TimeZone::UTC).date().to_string(),
        table: TABLE,
        table_date: TABLE_DATE,
        file: asking.file().filter(|_| asking.prices.own().models().next().is_some()),
        models,
    };
    if options.format == "json" {
        let json = serde_json::to_string_pretty(&answer).unwrap_or_default();
        around.out.answer(&crate::formats::harmless::json(&json));
    } else {
        let is_list = options.models.iter().all(|argument| !argument.contains('/'));
        let text = if is_list { table::list(&answer) } else { table::pages(&answer) };
        around.out.answer(&crate::formats::harmless::text(&text));
        for help in answer.models.iter().filter_map(|priced| priced.help.as_ref()).filter(|_| !is_list) {
            around.out.beside(&format!("help: {}", printable(help)));
        }
    }
    let is_named = |priced: &&Priced| options.models.contains(&priced.model);
    let has_unknown = answer.models.iter().filter(is_named).any(|priced| priced.source.is_none());
    Ok(u8::from(has_unknown))
}

struct Asking<'a> {
    prices: &'a Prices,
    file: Option<PathBuf>,
    around: &'a Surroundings,
    now: jiff::Timestamp,
}

impl Asking<'_> {
    /// The models of a provider, if `argument` is one's name. What only the user's file names counts, too.
    fn named(&self, argument: &str) -> Option<Vec<Model>> {
        let entry = providers::find(argument).filter(|entry| !entry.prices.is_empty());
        let at_address = self.prices.list_at(argument);
        let mut models = self.own(Some(argument));
        if entry.is_none() && at_address.is_none() && models.is_empty() {
            return None;
        }
        let listed = self.prices.models(at_address.or(entry.map(|entry| entry.prices)).unwrap_or_default());
        let listed: Vec<Model> = listed.map(|name| self.model(argument, name)).collect();
        models.retain(|own| !listed.contains(own));
        Some([listed, models].concat())
    }

    /// Every model of the table, once, and those of the user's file.
    fn all(&self) -> Vec<Model> {
        let mut lists: Vec<&str> = Vec::new();
        let mut models = Vec::new();
        for Entry { name, prices, .. } in PROVIDERS.iter().filter(|entry| !entry.prices.is_empty()) {
            // Another API of one provider has the same models at the same prices.
            if !lists.contains(prices) {
                lists.push(prices);
                models.extend(self.prices.models(prices).map(|model| Model::new(*name, model)));
            }
        }
        let own: Vec<Model> = self.own(None).into_iter().filter(|own| !models.contains(own)).collect();
        [models, own].concat()
    }

    /// The models in the user's file.
    fn own(&self, of: Option<&str>) -> Vec<Model> {
        let named = self.prices.own().models().filter_map(|model| model.split_once('/'));
        let wanted = named.filter(|(provider, _)| of.is_none_or(|of| of == *provider));
        wanted.map(|(provider, name)| self.model(provider, name)).collect()
    }

    /// A model of a provider of ours, or of a server of the user's own.
    fn model(&self, provider: &str, name: &str) -> Model {
        Model { server: self.around.read_servers().servers.served(provider), ..Model::new(provider, name) }
    }

    fn ask(&self, model: &Model) -> Priced {
        let none = Priced {
            model: model.to_string(),
            source: None,
            listed_as: None,
            asked_at: elsewhere(model, self.around),
            context_window: None,
            prompt_limit: None,
            is_of_server: false,
            rates: Vec::new(),
            unknown: None,
            help: None,
        };
        if model.provider == "replay" {
            let nothing = Rate { above: 0, input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 };
            return Priced { source: Some(Source::Replay), rates: vec![nothing], ..none };
        }
        let give = format!(
            "give it a price in {}",
            self.file().unwrap_or_else(|| "legwork/prices.toml in your configuration folder".to_owned())
        );
        match self.prices.sheet(model.item(), self.now.into()) {
            Some(Sheet { origin, tiers, context_window, prompt_limit, is_of_server }) => {
                let (source, listed_as) = match origin {
                    Origin::Own => (Source::PricesToml, None),
                    Origin::Table(id) => (Source::Table, Some(id)),
                };
                let rates = tiers.iter().map(|tier| Rate {
                    above: tier.above,
                    input: exact(tier.rates.input),
                    output: exact(tier.rates.output),
                    cache_read: exact(tier.rates.cache_read),
                    cache_write: exact(tier.rates.cache_write),
                });
                let rates = rates.collect();
                Priced { source: Some(source), listed_as, context_window, prompt_limit, is_of_server, rates, ..none }
            }
            None => Priced {
                unknown: Some("the table has no such model".to_owned()),
                help: Some(match nearest(&model.name, self.prices.models(model.price_list())) {
                    Some(near) => format!("did you mean `{}/{near}`? Otherwise {give}", model.provider),
                    None => give,
                }),
                ..none
            },
        }
    }

    fn file(&self) -> Option<String> {
        self.file.as_ref().map(|path| path.to_string_lossy().into_owned())
    }
}

/// Where a model is asked, if that isn't at its provider's own address.
fn elsewhere(model: &Model, around: &Surroundings) -> Option<String> {
    let server = around.read_servers().servers.get(&model.provider);
    let home = providers::find(server.map_or(&model.provider, |server| server.api()))?.home?;
    let base = match server {
        Some(server) => server.base_url(),
        None => around.variable(home.variable)?,
    };
    shown_base(base).filter(|_| !is_at(base, home.address))
}

/// A rate without what figuring it out from the price of many tokens has added to it.
fn exact(rate: f64) -> f64 {
    (rate * 1e6).round() / 1e6
}

/// What names no model of a provider.
fn refused(argument: &str, finding: &Diagnostic) -> Error {
    let near = nearest(argument, PROVIDERS.iter().map(|entry| entry.name)).filter(|_| !argument.contains('/'));
    let hint = match (near, &finding.help) {
        (Some(near), _) => Some(format!("Did you mean `{near}`?")),
        (None, help) => help.clone(),
    };
    Error::Usage { message: format!("`{argument}`: {}", finding.message), hint }
}
