//! What must not be seen, and what `bash` sees.

use super::CliEnv;
use crate::lints::provider_keys;
use crate::plan::{Plan, SecretInputs};
use crate::process::Environment;
use crate::providers::PROVIDERS;
use crate::providers::base_url::percent_decode;
use crate::providers::user_servers::UserServers;
use crate::redaction::{self, Redactor};

/// Variables with addresses of proxies, which can hold credentials, as HTTP libraries read them.
const PROXY_VARIABLES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// The secrets of a run.
pub(super) struct RunSecrets {
    pub(super) mask: Redactor,
    pub(super) environment: Environment,
    /// Those that commands see: a CI system must know them, for it masks what others print later.
    command_secrets: Vec<(String, String)>,
}

impl RunSecrets {
    /// Takes the secret inputs, what of the granted variables is secret, and what legwork itself must keep: the
    /// providers' and servers' keys and the passwords of addresses. Warns of granted ones that are too short to be masked.
    pub(super) fn new(around: &CliEnv, servers: &UserServers, plan: &Plan, secrets: &SecretInputs) -> Self {
        let is_key = |name: &String| servers.key_envs().any(|key| key == name);
        let env: Vec<String> = plan.env.iter().filter(|name| !is_key(name)).cloned().collect();
        let set = |name: &str| Some((name.to_owned(), around.variable(name)?.to_owned()));
        let mut known: Vec<(String, String)> = secrets.pairs().to_vec();
        known.extend(env.iter().filter(|name| is_secret_name(name)).filter_map(|name| set(name)));
        known.extend(env.iter().filter_map(|name| url_password(set(name)?)).flat_map(raw_and_decoded));
        let (_, too_short) = Redactor::new(&known);
        for name in too_short {
            around.console.warning(&format!(
                "{name} is not masked, for it has less than {} characters: it may show in the record",
                redaction::MIN_SECRET_CHARS
            ));
        }
        let granted = known.clone();
        known.extend(provider_keys().filter_map(set));
        known.extend(servers.key_envs().filter_map(set));
        let addresses =
            PROVIDERS.iter().filter_map(|entry| Some(entry.default_endpoint?.base_url_env)).chain(PROXY_VARIABLES);
        let addresses: Vec<(String, String)> = addresses.filter_map(set).collect();
        let own = servers.iter().map(|server| (server.name().to_owned(), server.base_url().to_owned()));
        known.extend(addresses.into_iter().chain(own).flat_map(url_credentials));
        Self {
            mask: Redactor::new(&known).0,
            environment: Environment::new(&around.variables, &env, secrets.pairs()),
            command_secrets: granted,
        }
    }

    /// The secrets that commands see and that are masked, by their names.
    pub(super) fn redacted_command_secrets(&self) -> Vec<(String, String)> {
        self.command_secrets
            .iter()
            .filter(|(_, value)| value.chars().count() >= redaction::MIN_SECRET_CHARS)
            .cloned()
            .collect()
    }

    /// Tells GitHub's runner what to mask in the log and in later steps. It reads commands from stderr as well as from
    /// stdout; nothing is told where stderr is a file, which would keep them.
    pub(super) fn register_github_masks(&self, around: &CliEnv) {
        if around.variable("GITHUB_ACTIONS") != Some("true") || around.console.is_stderr_file() {
            return;
        }
        for line in self.command_secrets.iter().flat_map(|(_, value)| redaction::log_mask_lines(value)) {
            around.console.eprint_raw(&format!("::add-mask::{}", line.replace('%', "%25")));
        }
    }
}

/// Whether a variable's name says that its value is a secret: one of its words does.
pub(super) fn is_secret_name(name: &str) -> bool {
    const ENDINGS: [&str; 7] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIALS"];
    const WORDS: [&str; 9] = ["KEY", "KEYS", "TOKENS", "SECRETS", "CREDENTIAL", "PASS", "PAT", "AUTH", "COOKIE"];
    // What the value names, and not what it is.
    const PLACES: [&str; 6] = ["FILE", "PATH", "DIR", "HOME", "SOCK", "URL"];
    let name = name.to_ascii_uppercase();
    let mut words = name.split('_').filter(|word| !word.is_empty()).peekable();
    let last = name.rsplit('_').next().unwrap_or_default();
    !PLACES.contains(&last)
        && words.any(|word| WORDS.contains(&word) || ENDINGS.iter().any(|ending| word.ends_with(ending)))
}

/// The password of an address: what stands between the user's name and the `@`. One that is the user's name is none.
fn url_password((name, address): (String, String)) -> Option<(String, String)> {
    let authority = address.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let (user, password) = authority.rsplit_once('@')?.0.split_once(':')?;
    (user != password).then(|| (name, password.to_owned()))
}

/// What of the address of a server or a proxy is secret: its password; a user without one that is as long as a key; what
/// its query says by a name that tells of a secret.
fn url_credentials((name, address): (String, String)) -> Vec<(String, String)> {
    const LEAST_KEY: usize = 16;
    let rest = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let user = user.filter(|user| !user.contains(':') && user.len() >= LEAST_KEY).map(str::to_owned);
    let query = rest.split_once('?').map_or("", |(_, query)| query.split('#').next().unwrap_or_default());
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let values =
        pairs.filter(|(key, _)| is_secret_name(&key.replace(['-', '.'], "_"))).map(|(_, value)| value.to_owned());
    let found: Vec<String> = user.into_iter().chain(values).collect();
    let password = url_password((name.clone(), address));
    password.into_iter().chain(found.into_iter().map(|value| (name.clone(), value))).flat_map(raw_and_decoded).collect()
}

/// A part of an address as it is written, and as it is meant.
fn raw_and_decoded((name, part): (String, String)) -> Vec<(String, String)> {
    let decoded = percent_decode(&part);
    let written = (decoded != part).then_some((name.clone(), part));
    written.into_iter().chain([(name, decoded)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_of_secrets_by_whole_words() {
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
    fn passwords_are_found_in_addresses() {
        let found = |address: &str| url_password(("URL".into(), address.into())).map(|(_, password)| password);
        assert_eq!(found("http://me:p@ss:w0rd@host:8080/path?x=a:b@c").as_deref(), Some("p@ss:w0rd"));
        assert_eq!(found("postgres://postgres:postgres@db/postgres"), None);
        for none in ["", "host:80", "https://host/a:b@c", "https://me@host"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_secret_in_the_address_of_a_server_is_found() {
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
