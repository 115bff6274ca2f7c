//! Parses the settings that a server in `providers.toml` and a built-in provider have in common.

use std::ops::Range;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};

use super::redact::is_env_var_name;
use super::settings::{
    ClientCertificate, ConfigValue, ContextWindows, KeyCommandSettings, ModelNames, ServerSettings, TimeoutSettings,
};
use crate::job;
use crate::process::is_always_passed;
use crate::toml_file::{DeString, DeValue, Spanned, TableReader, quotable};

/// The most headers, query parameters or arguments.
const MAX_ENTRIES: usize = 64;
/// The longest plain value in bytes.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// The longest timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// The most tries of a request.
const MAX_TRIES: u32 = 100;
/// Headers that legwork or the HTTP library sets, because the message depends on them.
const RESERVED_HEADERS: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the settings. `label` is where they come from.
pub(super) fn read_settings(fields: &mut TableReader<'_, '_>, label: String) -> ServerSettings {
    let headers = fields.value("headers").map(|value| read_headers(fields, value)).unwrap_or_default();
    let query = fields.value("query").map(|value| read_query(fields, value)).unwrap_or_default();
    let argv = fields.value("key_command").map(|value| (value.span(), read_argv(fields, value)));
    let ttl = fields.text("key_ttl").map(|text| (text.span(), read_duration(fields, &text)));
    if let (None, Some((span, _))) = (&argv, &ttl) {
        fields.error("invalid-value", span.clone(), "`key_ttl` needs `key_command`", "add `key_command`, or remove it");
    }
    let ttl = ttl.and_then(|(_, ttl)| ttl);
    let key_command = argv.and_then(|(_, argv)| argv).map(|argv| KeyCommandSettings { argv, ttl });
    let context_windows = fields.value("context").map(|value| read_windows(fields, value)).unwrap_or_default();
    let images = fields.value("images").and_then(|value| read_models(fields, "images", value));
    let pdfs = fields.value("pdfs").and_then(|value| read_models(fields, "pdfs", value));
    let timeouts = read_timeouts(fields);
    let tries = fields.count("tries").and_then(|tries| read_tries(fields, &tries));
    let client_certificate = read_client_certificate(fields);
    ServerSettings {
        label,
        headers,
        query,
        key_command,
        timeouts,
        tries,
        client_certificate,
        context_windows,
        images,
        pdfs,
    }
}

fn read_timeouts(fields: &mut TableReader<'_, '_>) -> TimeoutSettings {
    let example = "write it like `timeouts = { first_byte = \"10m\" }`";
    let Some(mut table) = fields.table("timeouts", example) else { return TimeoutSettings::default() };
    let mut timeout = |key| {
        let text = table.text(key)?;
        let timeout = read_duration(&table, &text)?;
        if timeout > MAX_TIMEOUT {
            table.error("out-of-range", text.span(), "a timeout is at most a day", "write it like `10m`");
        }
        Some(timeout)
    };
    let [connect, first_byte, idle, total] = ["connect", "first_byte", "idle", "total"].map(&mut timeout);
    table.finish();
    TimeoutSettings { connect, first_byte, idle, total }
}

fn read_tries(fields: &TableReader<'_, '_>, tries: &Spanned<u64>) -> Option<u32> {
    let count = u32::try_from(*tries.get_ref()).ok().filter(|count| (1..=MAX_TRIES).contains(count));
    if count.is_none() {
        let message = format!("`tries` is a number from 1 to {MAX_TRIES}");
        fields.error("out-of-range", tries.span(), message, "1 means that nothing is tried again");
    }
    count
}

fn read_client_certificate(fields: &mut TableReader<'_, '_>) -> Option<ClientCertificate> {
    let [certificate, key] = ["client_cert", "client_key"].map(|name| fields.text(name));
    for text in certificate.iter().chain(&key) {
        if !text.get_ref().starts_with('/') && !text.get_ref().starts_with("~/") {
            let help = "begin it with `/` or `~/`";
            fields.error("invalid-value", text.span(), "this isn't the absolute path of a PEM file", help);
        }
    }
    if let (None, Some(key)) = (&certificate, &key) {
        let help = "add `client_cert`, the file with the certificate";
        fields.error("invalid-value", key.span(), "`client_key` needs `client_cert`", help);
    }
    let path = |text: Spanned<&str>| (*text.get_ref()).to_owned();
    Some(ClientCertificate { certificate: path(certificate?), key: key.map(path) })
}

fn read_headers(fields: &TableReader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Vec<(HeaderName, ConfigValue)> {
    let mut headers: Vec<(HeaderName, ConfigValue)> = Vec::new();
    for (name, span, value) in entries(fields, value, "headers = { X-Team = \"build\" }") {
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            let message = format!("`{}` isn't the name of a header", quotable(&name));
            fields.error("invalid-value", span, message, "write it like `X-Team`");
            continue;
        };
        if RESERVED_HEADERS.contains(&header.as_str()) {
            let message = format!("legwork sets the header `{header}` itself");
            fields.error("invalid-value", span, message, "remove it");
        } else if headers.iter().any(|(known, _)| *known == header) {
            fields.error("duplicate-key", span, "this header is set twice", "keep one of the two");
        } else if let Some(value) = read_value(fields, &name, value) {
            let is_invalid = |text: &String| HeaderValue::from_str(text).is_err();
            match &value.1 {
                ConfigValue::Plain(text) if is_invalid(text) => {
                    let message = "a header can't have line breaks and control characters";
                    fields.error("invalid-value", value.0, message, "remove them");
                }
                _ => headers.push((header, value.1)),
            }
        }
    }
    headers
}

fn read_query(fields: &TableReader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Vec<(String, ConfigValue)> {
    let entries = entries(fields, value, "query = { api-version = \"2024-10-21\" }");
    let read = |(name, _, value): (String, _, _)| Some((name.clone(), read_value(fields, &name, value)?.1));
    entries.into_iter().filter_map(read).collect()
}

type Entry<'t, 's> = (String, Range<usize>, &'t Spanned<DeValue<'s>>);

/// The entries of a table, by name.
fn entries<'t, 's>(fields: &TableReader<'_, '_>, value: &'t Spanned<DeValue<'s>>, example: &str) -> Vec<Entry<'t, 's>> {
    let Some(table) = value.get_ref().as_table() else {
        fields.wrong_type(value, "a table", &format!("write it like `{example}`"));
        return Vec::new();
    };
    if table.len() > MAX_ENTRIES {
        fields.error("out-of-range", value.span(), format!("more than {MAX_ENTRIES} entries"), "remove some");
        return Vec::new();
    }
    table.iter().map(|(name, value)| (name.get_ref().to_string(), name.span(), value)).collect()
}

/// A plain value, or `env:NAME`, with its place.
fn read_value(
    fields: &TableReader<'_, '_>,
    name: &str,
    value: &Spanned<DeValue<'_>>,
) -> Option<(Range<usize>, ConfigValue)> {
    let DeValue::String(text) = value.get_ref() else {
        fields.wrong_type(value, "a string", "put it in quotes");
        return None;
    };
    let (text, span) = (text.as_ref(), value.span());
    if let Some(variable) = text.strip_prefix("env:") {
        return read_key_env(fields, variable, &span).map(|name| (span, ConfigValue::Env(name)));
    }
    if is_secret_name(name) || looks_like_key(text) {
        let help = "put it into an environment variable, and write its name: `\"env:GATEWAY_TOKEN\"`";
        fields.error("api-key-in-file", span, "this file must not contain a key", help);
        return None;
    }
    if text.is_empty() || text.len() > MAX_VALUE_BYTES {
        let message = format!("a value has 1 to {MAX_VALUE_BYTES} bytes");
        fields.error("invalid-value", span, message, "write a value, or remove it");
        return None;
    }
    Some((span, ConfigValue::Plain(text.to_owned())))
}

/// Whether the name of a header or parameter says that its value is a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(['-', '_', '.']);
    words.any(|word| {
        ["key", "apikey", "auth", "authorization", "bearer", "cookie", "password", "sig", "signature"].contains(&word)
            || word.ends_with("token")
            || word.ends_with("secret")
    })
}

/// Whether a text looks like a key or a token.
pub(crate) fn looks_like_key(text: &str) -> bool {
    const STARTS: [&str; 14] = [
        "sk-",
        "Bearer ",
        "bearer ",
        "Basic ",
        "basic ",
        "eyJ",
        "AIza",
        "AKIA",
        "ASIA",
        "ghp_",
        "github_pat_",
        "glpat-",
        "xox",
        "ya29.",
    ];
    STARTS.iter().any(|start| text.starts_with(start))
}

/// A program with its arguments.
fn read_argv(fields: &TableReader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    let help = "write the program and its arguments: `key_command = [\"gcloud\", \"auth\", \"print-access-token\"]`";
    let DeValue::Array(items) = value.get_ref() else {
        fields.wrong_type(value, "a list of strings", help);
        return None;
    };
    let mut argv = Vec::new();
    for item in items.iter() {
        let DeValue::String(text) = item.get_ref() else {
            fields.wrong_type(item, "a string", "put it in quotes");
            return None;
        };
        if looks_like_key(text) {
            let help = "let the command read it from where it is kept";
            fields.error("api-key-in-file", item.span(), "this file must not contain a key", help);
            return None;
        }
        argv.push(text.to_string());
    }
    let wrong = match argv.first() {
        None => Some("the list is empty"),
        Some(program) if program.is_empty() => Some("the name of the program is empty"),
        Some(program) if program.contains('/') && !program.starts_with('/') => {
            Some("the path of the program is relative")
        }
        _ if argv.len() > MAX_ENTRIES => Some("the list is too long"),
        _ if argv.iter().any(|text| text.contains('\0') || text.len() > MAX_VALUE_BYTES) => {
            Some("an argument is too long, or has a NUL character")
        }
        _ => None,
    };
    match wrong {
        Some(wrong) => {
            let help = "write the name of a program in PATH, or its absolute path, and its arguments";
            fields.error("invalid-value", value.span(), wrong, help);
            None
        }
        None => Some(argv),
    }
}

/// A duration as in a job.
fn read_duration(fields: &TableReader<'_, '_>, text: &Spanned<&str>) -> Option<Duration> {
    let parsed = job::Duration::parse(text.get_ref());
    if parsed.is_err() {
        let help = "write it like `90s`, `20m` or `1h30m`";
        fields.error("bad-duration", text.span(), "this isn't a duration of at most 30 days", help);
    }
    parsed.ok().map(job::Duration::get)
}

/// The name of a variable with a key, or with a value that may be one. Commands don't get it.
pub(super) fn read_key_env(fields: &TableReader<'_, '_>, name: &str, span: &Range<usize>) -> Option<String> {
    if !is_env_var_name(name) {
        let help = "write the name of the variable with the key, in capitals, and never the key itself";
        fields.error("bad-env-name", span.clone(), "this isn't the name of an environment variable", help);
    } else if is_always_passed(name) || name.ends_with("_BASE_URL") || name.starts_with("LEGWORK_") {
        let message = format!("`{name}` has another meaning, so it can't hold a key");
        fields.error("invalid-value", span.clone(), message, "use a separate variable for the key");
    } else {
        return Some(name.to_owned());
    }
    None
}

/// Reads a number of tokens for all models, or a table by model.
fn read_windows(fields: &TableReader<'_, '_>, value: &Spanned<DeValue<'_>>) -> ContextWindows {
    let window = |value: &Spanned<DeValue<'_>>| {
        let tokens = fields.count_value(value)?;
        if tokens == 0 {
            let help = "leave it out to use the window in the price table";
            fields.error("out-of-range", value.span(), "`context` must be at least 1", help);
        }
        Some(tokens).filter(|tokens| *tokens > 0)
    };
    match value.get_ref().as_table() {
        Some(table) => {
            let of_model =
                |(model, value): (&Spanned<DeString<'_>>, _)| Some((model.get_ref().to_string(), window(value)?));
            ContextWindows { all: None, models: table.iter().filter_map(of_model).collect() }
        }
        None => ContextWindows { all: window(value), models: Vec::new() },
    }
}

/// Reads the names of models, or `true` for all.
fn read_models(fields: &TableReader<'_, '_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<ModelNames> {
    let help = format!("write `{key} = true`, or the models' names: `{key} = [\"qwen3-vl\"]`");
    let items = match value.get_ref() {
        DeValue::Boolean(all) => return Some(ModelNames::All(*all)),
        DeValue::Array(items) => items,
        _ => {
            fields.wrong_type(value, "`true`, `false` or a list of strings", &help);
            return None;
        }
    };
    let name = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(name) => Some(name.to_string()),
        _ => {
            fields.wrong_type(item, "a string", "put it in quotes");
            None
        }
    };
    items.iter().map(name).collect::<Option<_>>().map(ModelNames::Named)
}
