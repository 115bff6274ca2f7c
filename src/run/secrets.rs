//! The secrets of a run: what is masked, and what commands see in their environment.

use std::collections::BTreeMap;

use crate::lints::provider_keys;
use crate::mcp::ServerSpec;
use crate::plan::{Plan, SecretInputs};
use crate::process::Environment;
use crate::providers::PROVIDERS;
use crate::providers::user_servers::UserServers;
use crate::redaction::{self, Redactor, is_secret_name};
use crate::text::percent_decode;

/// The proxy variables of HTTP libraries, whose URLs can contain credentials.
const PROXY_VARIABLES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// The secrets of a run.
#[derive(Clone)]
pub struct RunSecrets {
    /// Masks them.
    pub redactor: Redactor,
    /// The variables that commands see.
    pub environment: Environment,
    /// The secrets that commands see.
    command_secrets: Vec<(String, String)>,
    /// The names of those that are too short to be masked.
    too_short: Vec<String>,
}

impl RunSecrets {
    /// Collects the secret inputs, the secret variables in `env`, the keys of providers and servers, and the passwords in
    /// URLs.
    pub fn new(
        variables: &BTreeMap<String, String>,
        servers: &UserServers,
        plan: &Plan,
        secrets: &SecretInputs,
    ) -> Self {
        let is_key = |name: &String| servers.key_envs().any(|key| key == name);
        let env_names: Vec<String> = plan.env.iter().filter(|name| !is_key(name)).cloned().collect();
        let value_of = |name: &str| Some((name.to_owned(), variable(variables, name)?.to_owned()));
        let mut known: Vec<(String, String)> = secrets.pairs().to_vec();
        known.extend(env_names.iter().filter(|name| is_secret_name(name)).filter_map(|name| value_of(name)));
        known.extend(env_names.iter().filter_map(|name| url_password(value_of(name)?)).flat_map(raw_and_decoded));
        known.extend(server_secrets(variables, plan.mcp.values()).into_iter().filter(|(name, _)| !is_key(name)));
        let (_, too_short) = Redactor::new(&known);
        let command_secrets = known.clone();
        known.extend(provider_keys().filter_map(value_of));
        known.extend(servers.key_envs().filter_map(value_of).flat_map(with_token));
        let otlp_headers = variables.keys().filter(|name| is_otlp_secret(name) && name.ends_with("HEADERS"));
        known.extend(otlp_headers.filter_map(|name| value_of(name)).flat_map(header_values));
        let base_urls =
            PROVIDERS.iter().filter_map(|entry| Some(entry.default_endpoint?.base_url_env)).chain(PROXY_VARIABLES);
        let urls: Vec<(String, String)> = base_urls.filter_map(value_of).collect();
        let server_urls = servers.iter().map(|server| (server.name.clone(), server.base_url.clone()));
        known.extend(urls.into_iter().chain(server_urls).flat_map(url_credentials));
        Self {
            redactor: Redactor::new(&known).0,
            environment: Environment::new(variables, &env_names, secrets.pairs()),
            command_secrets,
            too_short,
        }
    }

    /// The secrets that commands see and that are masked, with their names.
    pub fn redacted_command_secrets(&self) -> Vec<(String, String)> {
        let is_masked = |(_, value): &&(String, String)| value.chars().count() >= redaction::MIN_SECRET_CHARS;
        self.command_secrets.iter().filter(is_masked).cloned().collect()
    }

    /// What the user should know about secrets that commands see and that may appear in the record.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.too_short.iter().map(|name| {
            let least = redaction::MIN_SECRET_CHARS;
            format!("{name} isn't masked, as it has fewer than {least} characters: it may appear in the record")
        })
    }

    /// The lines to mask in the log of a CI system.
    pub fn log_mask_lines(&self) -> impl Iterator<Item = String> {
        self.command_secrets.iter().flat_map(|(_, value)| redaction::log_mask_lines(value))
    }
}

/// The secrets that tool servers get: the variables with secret names, passwords in URLs, and all headers from variables.
pub fn server_secrets<'a>(
    variables: &BTreeMap<String, String>,
    servers: impl Iterator<Item = &'a ServerSpec>,
) -> Vec<(String, String)> {
    let value_of = |name: &str| Some((name.to_owned(), variable(variables, name)?.to_owned()));
    let mut known = Vec::new();
    for server in servers {
        known.extend(server.env.iter().filter(|name| is_secret_name(name)).filter_map(|name| value_of(name)));
        known.extend(server.env.iter().filter_map(|name| url_password(value_of(name)?)).flat_map(raw_and_decoded));
        known.extend(server.header_variables().filter_map(value_of).flat_map(with_token));
    }
    known
}

/// The value of a header, which may have a word before its token.
fn with_token((name, value): (String, String)) -> impl Iterator<Item = (String, String)> {
    let token = value.split_once(' ').map(|(_, token)| (name.clone(), token.to_owned()));
    [(name, value)].into_iter().chain(token)
}

/// The values in a list of headers, `name=value,name=value`.
fn header_values((name, headers): (String, String)) -> Vec<(String, String)> {
    let values = headers.split(',').filter_map(|header| header.split_once('='));
    values.flat_map(|(_, value)| raw_and_decoded((name.clone(), value.trim().to_owned()))).collect()
}

/// Whether a variable has the headers or the address of an OpenTelemetry collector, which can have credentials.
pub fn is_otlp_secret(name: &str) -> bool {
    name.starts_with("OTEL_EXPORTER_OTLP_") && (name.ends_with("HEADERS") || name.ends_with("ENDPOINT"))
}

/// The password in a URL. A password that equals the user name is a placeholder, not a secret.
fn url_password((name, url): (String, String)) -> Option<(String, String)> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let (user, password) = authority.rsplit_once('@')?.0.split_once(':')?;
    (user != password).then(|| (name, password.to_owned()))
}

/// The secrets in the URL of a server or a proxy: the password, a user name without password that is as long as a key, and
/// query parameters with secret names.
fn url_credentials((name, url): (String, String)) -> Vec<(String, String)> {
    const MIN_KEY_LEN: usize = 16;
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let user = user.filter(|user| !user.contains(':') && user.len() >= MIN_KEY_LEN).map(str::to_owned);
    let query = rest.split_once('?').map_or("", |(_, query)| query.split('#').next().unwrap_or_default());
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let values =
        pairs.filter(|(key, _)| is_secret_name(&key.replace(['-', '.'], "_"))).map(|(_, value)| value.to_owned());
    let found: Vec<String> = user.into_iter().chain(values).collect();
    let password = url_password((name.clone(), url));
    password.into_iter().chain(found.into_iter().map(|value| (name.clone(), value))).flat_map(raw_and_decoded).collect()
}

/// A part of a URL as written, and percent-decoded if that differs.
fn raw_and_decoded((name, part): (String, String)) -> Vec<(String, String)> {
    let decoded = percent_decode(&part);
    let written = (decoded != part).then_some((name.clone(), part));
    written.into_iter().chain([(name, decoded)]).collect()
}

/// The value of a variable, if it is set and not empty.
pub(super) fn variable<'a>(variables: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognized_by_whole_words() {
        for name in [
            "GITHUB_TOKEN",
            "npm_config_authtoken",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD",
            "API_KEY",
            "OPENAI_APIKEY",
            "GH_PAT",
            "DB_PASS",
            "SIGNING_KEY_PASSPHRASE",
            "NPM_AUTH",
            "GOOGLE_CREDENTIALS",
            "SSH_PRIVATE_KEY",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "GIT_AUTHOR_NAME",
            "SSH_AUTH_SOCK",
            "KEYBOARD",
            "MONKEYS",
            "CARGO_HOME",
            "PATH",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "TOKENIZER",
            "COMPASS",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn passwords_in_urls_are_found() {
        let found = |address: &str| url_password(("URL".into(), address.into())).map(|(_, password)| password);
        assert_eq!(found("http://me:p@ss:w0rd@host:8080/path?x=a:b@c").as_deref(), Some("p@ss:w0rd"));
        assert_eq!(found("postgres://postgres:postgres@db/postgres"), None);
        for none in ["", "host:80", "https://host/a:b@c", "https://me@host"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn secrets_in_server_urls_are_found() {
        let found = |address: &str| {
            let found = url_credentials(("URL".into(), address.into()));
            found.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(found("http://me:p%40ssw0rd@host/v1?api-version=2024-02-01"), ["p%40ssw0rd", "p@ssw0rd"]);
        assert_eq!(found("https://0123456789abcdef@host/v1"), ["0123456789abcdef"]);
        assert_eq!(found("https://host/v1?api-key=a%2Bb&x=1#y?key=2"), ["a%2Bb", "a+b"]);
        for none in ["", "host:80", "https://developer@host", "https://host/v1?monkey=1"] {
            assert!(found(none).is_empty(), "{none}");
        }
    }
}
