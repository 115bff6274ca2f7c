//! `legwork providers`: where replies can come from.

use serde::Serialize;

use super::CliEnv;
use super::output::printable;
use crate::error::Error;
use crate::providers::base_url::display_base;
use crate::providers::user_servers::UserServer;
use crate::providers::{PROVIDERS, ProviderSpec};

/// Options of `legwork providers`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys are never shown, only the names of the variables that they come from; addresses without credentials.

Exit codes: 0, or 5 where providers.toml has mistakes.")]
pub(super) struct ProvidersArgs {
    /// How to print them
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

/// A provider, as it is listed.
#[derive(Debug, Serialize)]
struct ProviderRow<'a> {
    name: &'a str,
    /// Whether it is legwork's own.
    built_in: bool,
    /// The provider of legwork's own whose API is spoken; null where no server is asked.
    api: Option<&'a str>,
    /// The base address; null where there is none, or where what stands there is none.
    address: Option<String>,
    /// What says so: a variable or a file; null for the provider's own.
    address_from: Option<String>,
    /// The variable with the key; null where no key is sent.
    key: Option<KeyStatus<'a>>,
}

#[derive(Debug, Serialize)]
struct KeyStatus<'a> {
    variable: &'a str,
    is_set: bool,
    /// Set, but to nothing, so that there is no key.
    is_empty: bool,
}

pub(super) fn providers(options: &ProvidersArgs, around: &CliEnv) -> Result<u8, Error> {
    let servers = around.user_servers()?;
    let built_in = PROVIDERS.iter().map(|entry| built_in_row(entry, around));
    let listed: Vec<ProviderRow<'_>> =
        built_in.chain(servers.iter().map(|server| user_server_row(server, around))).collect();
    if options.format == "json" {
        let all = serde_json::json!({ "format": 1, "file": servers.file(), "providers": listed });
        around.console.print(&crate::text::sanitize::escape_json(&format!("{all:#}")));
        return Ok(0);
    }
    around.console.print_sanitized(&provider_table(&listed));
    if let (None, Some(file)) = (servers.iter().next(), servers.file()) {
        around.console.eprint(&format!("servers of your own are named in {}", printable(file)));
    }
    Ok(0)
}

fn key_status<'a>(variable: &'a str, around: &CliEnv) -> KeyStatus<'a> {
    let value = around.variables.get(variable);
    KeyStatus { variable, is_set: value.is_some(), is_empty: value.is_some_and(String::is_empty) }
}

fn built_in_row<'a>(entry: &'a ProviderSpec, around: &CliEnv) -> ProviderRow<'a> {
    let given = |variable| around.variable(variable).filter(|base| !base.trim().is_empty());
    let base = entry.default_endpoint.and_then(|home| Some((home.base_url_env, given(home.base_url_env)?)));
    ProviderRow {
        name: entry.name,
        built_in: true,
        api: entry.default_endpoint.map(|_| entry.name),
        address: match base {
            Some((_, base)) => display_base(base),
            None => entry.default_endpoint.map(|home| home.base_url.to_owned()),
        },
        address_from: base.map(|(variable, _)| variable.to_owned()),
        key: {
            let keys = || entry.key_envs.iter().rev().map(|variable| key_status(variable, around));
            let full = keys().find(|key| key.is_set && !key.is_empty);
            full.or_else(|| keys().find(|key| key.is_set)).or_else(|| keys().last())
        },
    }
}

fn user_server_row<'a>(server: &'a UserServer, around: &CliEnv) -> ProviderRow<'a> {
    ProviderRow {
        name: server.name(),
        built_in: false,
        api: Some(server.api()),
        address: display_base(server.base_url()),
        address_from: Some(server.file().to_owned()),
        key: server.key_env().map(|variable| key_status(variable, around)),
    }
}

fn provider_table(listed: &[ProviderRow<'_>]) -> String {
    let mut rows = vec![["name", "api", "address", "key"].map(str::to_owned)];
    rows.extend(listed.iter().map(|one| {
        let address = match (&one.address, &one.address_from) {
            (Some(address), Some(from)) => format!("{address} ({from})"),
            (Some(address), None) => address.clone(),
            (None, Some(from)) => format!("none: {from} isn't an http:// or https:// address"),
            (None, None) => "a script, or the folder of a recorded run".to_owned(),
        };
        let key = match &one.key {
            Some(KeyStatus { variable, is_empty: true, .. }) => format!("{variable}, which is set, but empty"),
            Some(KeyStatus { variable, is_set: true, .. }) => format!("{variable}, which is set"),
            Some(KeyStatus { variable, is_set: false, .. }) => format!("{variable}, which is not set"),
            None => "no key".to_owned(),
        };
        [one.name.to_owned(), one.api.unwrap_or("-").to_owned(), printable(&address), key]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let line = |[name, api, address, key]: &[String; 4]| {
        let [one, two, three] = widths;
        format!("{name:one$}  {api:two$}  {address:three$}  {key}\n")
    };
    rows.iter().map(line).collect()
}
