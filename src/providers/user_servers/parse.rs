//! Parses `providers.toml`, and reports every mistake with its location.

use std::sync::Arc;

use super::redact::{is_env_var_name, redact};
use super::{ContextWindows, UserServer, UserServers};
use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_name};
use crate::job::{NAME_FORM, is_name};
use crate::process::is_always_passed;
use crate::providers::{PROVIDERS, ProviderSpec, base_url, find};
use crate::toml_file::{DeString, DeTable, DeValue, Spanned, TableReader, TomlReader, quotable};

/// The parsed file.
#[derive(Debug)]
pub struct ParsedServers {
    /// The servers with a valid name, API and address.
    pub servers: UserServers,
    /// All mistakes, in the order of their locations.
    pub findings: Vec<Diagnostic>,
}

impl UserServers {
    /// Parses the file. Findings never quote text that could be a secret.
    pub fn read(source: &Arc<Source>) -> ParsedServers {
        let (reading, root) = TomlReader::parse(source);
        let path: Arc<str> = Arc::from(source.name.as_str());
        let mut file = TableReader::new(&reading, root.get_ref(), 0..0);
        let tables = file.named_tables("providers");
        let servers: Vec<UserServer> =
            tables.into_iter().filter_map(|(name, fields)| read_server(&name, fields, &path)).collect();
        let defined = root.get_ref().get("providers").map(Spanned::get_ref);
        let names = defined.and_then(DeValue::as_table).into_iter().flat_map(DeTable::keys);
        let names = names.map(|name| name.get_ref().to_string());
        let is_valid = |name: &String| servers.iter().any(|server| server.name == *name);
        let invalid_names = names.filter(|name| !is_valid(name)).collect();
        // What is in the wrong place may still be servers.
        let is_misplaced = defined.is_some_and(|value| !value.is_table()) || file.unread().next().is_some();
        let is_unparsable = reading.is_incomplete() || is_misplaced;
        file.finish();
        let harmless = Source::new(source.name.as_str(), redact(&source.text));
        let findings = reading.finish().into_iter().map(|finding| with_source(finding, &harmless)).collect();
        let servers = UserServers {
            servers: servers.into(),
            file: Some(path),
            invalid_names,
            is_unparsable,
            ..UserServers::default()
        };
        ParsedServers { servers, findings }
    }
}

/// The finding for a file that can't be read as text, without any of its content.
pub fn unreadable(finding: Diagnostic) -> Diagnostic {
    let harmless = Source::new(finding.span.source.name.as_str(), redact(&finding.span.source.text));
    with_source(finding, &harmless)
}

fn with_source(finding: Diagnostic, source: &Arc<Source>) -> Diagnostic {
    Diagnostic { span: SourceSpan { source: Arc::clone(source), ..finding.span }, ..finding }
}

/// Reads a server's table. `None` if its name, API or address is invalid.
fn read_server(name: &Spanned<&str>, mut fields: TableReader<'_, '_>, file: &Arc<str>) -> Option<UserServer> {
    let text = *name.get_ref();
    let built_in = find(text);
    if let Some(spec) = built_in {
        let message = format!("`{text}` is a built-in provider");
        let change = spec.default_endpoint.map(|home| format!("; to change its address, set {}", home.base_url_env));
        let help = format!("use another name{}", change.unwrap_or_default());
        fields.error("reserved-name", name.span(), message, help);
    } else if !is_name(text) {
        fields.error("bad-name", name.span(), "this isn't a valid name of a server", NAME_FORM);
    }
    let api = fields.text("api").and_then(|text| read_api(&fields, &text));
    let base_url = fields.text("base_url").and_then(|text| read_base_url(&fields, &text));
    let key_env = fields.text("key_env").and_then(|text| read_key_env(&fields, &text));
    let context_windows = fields.value("context").map(|value| read_windows(&fields, value)).unwrap_or_default();
    for (key, example) in [("api", "openai-chat"), ("base_url", "http://127.0.0.1:8080/v1")] {
        // A misspelled key isn't missing, too.
        if fields.unread().next().is_some() {
            break;
        }
        fields.require(key, format!("add it, as in `{key} = \"{example}\"`"));
    }
    for key in fields.unread() {
        let folded = key.get_ref().to_ascii_lowercase();
        let is_of_secret =
            ["key", "token", "secret", "password", "auth", "bearer"].iter().any(|word| folded.contains(word));
        if is_of_secret && !folded.ends_with("env") {
            let help = "put it into an environment variable, and write its name: `key_env = \"LOCAL_API_KEY\"`";
            fields.error("api-key-in-file", key.span(), "this file must not contain a key", help);
        } else {
            fields.report_unknown(key);
        }
    }
    let (api, base_url) = (api?, base_url?);
    let home = find(api).and_then(|spec| spec.default_endpoint);
    let is_official = home.is_some_and(|home| base_url::is_on_host_of(&base_url, home.base_url));
    let (name, file) = (text.to_owned(), Arc::clone(file));
    let is_valid = built_in.is_none() && is_name(&name);
    is_valid.then_some(UserServer { name, file, api, base_url, key_env, context_windows, is_official })
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

fn read_api(fields: &TableReader<'_, '_>, text: &Spanned<&str>) -> Option<&'static str> {
    let apis = || apis().map(|spec| spec.name);
    let found = apis().find(|api| api == text.get_ref());
    if found.is_none() {
        let all = apis().map(|api| format!("`{api}`")).collect::<Vec<_>>().join(", ");
        let help = match suggest_name(text.get_ref(), apis()) {
            Some(near) => format!("did you mean `{near}`? The APIs are {all}"),
            None => format!("use one of {all}; most servers and gateways speak `openai-chat`"),
        };
        fields.error("unknown-value", text.span(), format!("there is no API `{}`", quotable(text.get_ref())), help);
    }
    found
}

fn read_base_url(fields: &TableReader<'_, '_>, text: &Spanned<&str>) -> Option<String> {
    if base_url::parse(text.get_ref()).is_none() {
        let message = format!("this {}", base_url::invalid_reason(text.get_ref()));
        fields.error("invalid-value", text.span(), message, "write it like `http://127.0.0.1:8080/v1`");
        return None;
    }
    Some(text.get_ref().trim().to_owned())
}

fn read_key_env(fields: &TableReader<'_, '_>, text: &Spanned<&str>) -> Option<String> {
    let (name, span) = (*text.get_ref(), text.span());
    if !is_env_var_name(name) {
        let help = "write the name of the variable with the key, in capitals, and never the key itself";
        fields.error("bad-env-name", span, "this isn't the name of an environment variable", help);
    } else if is_always_passed(name) || name.ends_with("_BASE_URL") || name.starts_with("LEGWORK_") {
        let message = format!("`{name}` has another meaning, so it can't hold a key");
        fields.error("invalid-value", span, message, "use a separate variable for the key");
    } else {
        return Some(name.to_owned());
    }
    None
}

/// The built-in providers with an API: the values of `api`.
fn apis() -> impl Iterator<Item = &'static ProviderSpec> {
    PROVIDERS.iter().filter(|spec| spec.default_endpoint.is_some())
}
