//! `legwork providers`: lists the providers and the user's own servers.

use serde::Serialize;

use super::env::CliEnv;
use super::output::printable;
use super::prices::align_columns;
use crate::error::Error;
use crate::providers::base_url::display_base;
use crate::providers::user_servers::{ServerSettings, UserServer};
use crate::providers::{PROVIDERS, ProviderSpec};

/// Options of `legwork providers`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows the API, the base URL and the variable of the key of each. Keys are never shown, and URLs are shown without credentials. \
Your own servers are in legwork/providers.toml in your configuration folder ($XDG_CONFIG_HOME, or ~/.config).

Exit codes: 0, or 5 if providers.toml has mistakes.")]
pub(super) struct ProvidersArgs {
    /// The output format
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

/// A provider or server in the output.
#[derive(Debug, Serialize)]
struct ProviderRow<'a> {
    name: &'a str,
    /// Whether it is built in.
    built_in: bool,
    /// The built-in provider whose API it has; null if no server is used.
    api: Option<&'a str>,
    /// The base URL; null if there is none or it is invalid.
    address: Option<String>,
    /// The variable or file with the base URL; null for the default.
    address_from: Option<String>,
    /// The variable with the key; null if no key is sent, or a command prints it.
    key: Option<KeyStatus<'a>>,
    /// Whether a command prints the key.
    key_command: bool,
}

#[derive(Debug, Serialize)]
struct KeyStatus<'a> {
    variable: &'a str,
    is_set: bool,
    /// The variable is set, but empty, so there is no key.
    is_empty: bool,
}

pub(super) fn providers(options: &ProvidersArgs, env: &CliEnv) -> Result<u8, Error> {
    let servers = env.user_servers()?;
    let has_command = |name: &str| servers.settings(name).is_some_and(ServerSettings::has_key_command);
    let built_in = PROVIDERS.iter().map(|entry| built_in_row(entry, env, has_command(entry.name)));
    let rows: Vec<ProviderRow<'_>> =
        built_in.chain(servers.iter().map(|server| user_server_row(server, env))).collect();
    if options.format == "json" {
        let all = serde_json::json!({ "format": 1, "file": servers.file(), "providers": rows });
        env.console.print(&crate::text::sanitize::escape_json(&format!("{all:#}")));
        return Ok(0);
    }
    env.console.print_sanitized(&provider_table(&rows));
    if let (None, Some(file)) = (servers.iter().next(), servers.file()) {
        env.console.eprint(&format!("add your own servers to {}", printable(file)));
    }
    Ok(0)
}

fn key_status<'a>(variable: &'a str, env: &CliEnv) -> KeyStatus<'a> {
    let value = env.variables.get(variable);
    KeyStatus { variable, is_set: value.is_some(), is_empty: value.is_some_and(String::is_empty) }
}

fn built_in_row<'a>(entry: &'a ProviderSpec, env: &CliEnv, key_command: bool) -> ProviderRow<'a> {
    let base_url = |variable| env.variable(variable).filter(|base| !base.trim().is_empty());
    let base = entry.default_endpoint.and_then(|home| Some((home.base_url_env, base_url(home.base_url_env)?)));
    ProviderRow {
        name: entry.name,
        built_in: true,
        api: entry.default_endpoint.map(|_| entry.name),
        address: match base {
            Some((_, base)) => display_base(base),
            None => entry.default_endpoint.map(|home| home.base_url.to_owned()),
        },
        address_from: base.map(|(variable, _)| variable.to_owned()),
        key_command,
        key: if key_command {
            None
        } else {
            let keys = || entry.key_envs.iter().rev().map(|variable| key_status(variable, env));
            let usable = keys().find(|key| key.is_set && !key.is_empty);
            usable.or_else(|| keys().find(|key| key.is_set)).or_else(|| keys().last())
        },
    }
}

fn user_server_row<'a>(server: &'a UserServer, env: &CliEnv) -> ProviderRow<'a> {
    ProviderRow {
        name: &server.name,
        built_in: false,
        api: Some(server.api),
        address: display_base(&server.base_url),
        address_from: Some(server.file.to_string()),
        key_command: server.settings.has_key_command(),
        key: server.key_env.as_deref().map(|variable| key_status(variable, env)),
    }
}

fn provider_table(providers: &[ProviderRow<'_>]) -> String {
    let mut rows = vec![["name", "api", "address", "key"].map(str::to_owned)];
    rows.extend(providers.iter().map(|provider| {
        let address = match (&provider.address, &provider.address_from) {
            (Some(address), Some(from)) => format!("{address} ({from})"),
            (Some(address), None) => address.clone(),
            (None, Some(from)) => format!("none: {from} isn't an http:// or https:// address"),
            (None, None) => "a script or a recorded run".to_owned(),
        };
        let key = match &provider.key {
            Some(KeyStatus { variable, is_empty: true, .. }) => format!("{variable} (set, but empty)"),
            Some(KeyStatus { variable, is_set: true, .. }) => format!("{variable} (set)"),
            Some(KeyStatus { variable, is_set: false, .. }) => format!("{variable} (not set)"),
            None if provider.key_command => "from key_command".to_owned(),
            None => "no key".to_owned(),
        };
        [provider.name.to_owned(), provider.api.unwrap_or("-").to_owned(), printable(&address), key]
    }));
    align_columns(&rows, 0..0, "")
}
