//! Parses `providers.toml`, and reports every mistake with its location.

use std::sync::Arc;

use super::parse_settings::{read_key_env, read_settings};
use super::redact::redact;
use super::settings::ServerSettings;
use super::{UserServer, UserServers};
use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_name};
use crate::job::{NAME_FORM, is_name};
use crate::providers::{PROVIDERS, ProviderSpec, base_url, find};
use crate::toml_file::{DeTable, DeValue, Spanned, TableReader, TomlReader, quotable};

/// The parsed file.
#[derive(Debug, Clone)]
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
        let (mut servers, mut built_in) = (Vec::new(), Vec::new());
        for (name, fields) in tables {
            match find(name.get_ref()) {
                Some(spec) if spec.default_endpoint.is_some() => {
                    built_in.push((spec.name.to_owned(), read_built_in(&name, fields, &path)));
                }
                _ => servers.extend(read_server(&name, fields, &path)),
            }
        }
        let defined = root.get_ref().get("providers").map(Spanned::get_ref);
        let names = defined.and_then(DeValue::as_table).into_iter().flat_map(DeTable::keys);
        let names = names.map(|name| name.get_ref().to_string());
        let is_valid = |name: &String| {
            servers.iter().any(|server: &UserServer| server.name == *name)
                || built_in.iter().any(|(built_in, _)| built_in == name)
        };
        let invalid_names = names.filter(|name| !is_valid(name)).collect();
        // What is in the wrong place may still be servers.
        let is_misplaced = defined.is_some_and(|value| !value.is_table()) || file.unread().next().is_some();
        let is_unparsable = reading.is_incomplete() || is_misplaced;
        file.finish();
        let harmless = Source::new(source.name.as_str(), redact(&source.text));
        let findings = reading.finish().into_iter().map(|finding| with_source(finding, &harmless)).collect();
        let servers = UserServers {
            servers: servers.into(),
            built_in: built_in.into(),
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
    if built_in.is_some() {
        let message = format!("`{text}` is a built-in provider");
        fields.error("reserved-name", name.span(), message, "use another name");
    } else if !is_name(text) {
        fields.error("bad-name", name.span(), "this isn't a valid name of a server", NAME_FORM);
    }
    let api = fields.text("api").and_then(|text| read_api(&fields, &text));
    let base_url = fields.text("base_url").and_then(|text| read_base_url(&fields, &text));
    let key_env = fields.text("key_env");
    let settings = read_settings(&mut fields, format!("`{text}` in {file}"));
    if let (Some(key_env), true) = (&key_env, settings.has_key_command()) {
        let message = "`key_env` and `key_command` are both set";
        fields.error("invalid-value", key_env.span(), message, "keep one of the two");
    }
    let key_env = key_env.and_then(|text| read_key_env(&fields, text.get_ref(), &text.span()));
    for (key, example) in [("api", "openai-chat"), ("base_url", "http://127.0.0.1:8080/v1")] {
        // A misspelled key isn't missing, too.
        if fields.unread().next().is_some() {
            break;
        }
        fields.require(key, format!("add it, as in `{key} = \"{example}\"`"));
    }
    report_unread(&fields, |_| None);
    let (api, base_url) = (api?, base_url?);
    let home = find(api).and_then(|spec| spec.default_endpoint);
    let is_official = home.is_some_and(|home| base_url::is_on_host_of(&base_url, home.base_url));
    let (name, file) = (text.to_owned(), Arc::clone(file));
    let is_valid = built_in.is_none() && is_name(&name);
    is_valid.then_some(UserServer { name, file, api, base_url, key_env, settings, is_official })
}

/// Reads the settings of a built-in provider.
fn read_built_in(name: &Spanned<&str>, mut fields: TableReader<'_, '_>, file: &Arc<str>) -> ServerSettings {
    let spec = find(name.get_ref());
    let variables = spec.map_or_else(String::new, |spec| spec.key_envs.join(" or "));
    let base_url_env = spec.and_then(|spec| spec.default_endpoint).map_or("", |home| home.base_url_env);
    let settings = read_settings(&mut fields, format!("`{}` in {file}", name.get_ref()));
    report_unread(&fields, |key| {
        let change = match key {
            "api" => "remove it".to_owned(),
            "base_url" => format!("set {base_url_env}"),
            "key_env" => format!("set {variables}"),
            _ => return None,
        };
        let message = format!("`{}` is a built-in provider: its `{key}` can't be changed here", name.get_ref());
        Some((message, format!("{change}, or use another name for a server of your own")))
    });
    settings
}

/// Reports the keys that weren't read. Those that seem to hold a secret get another message, and so do those for which
/// `reserved` returns a message with its help.
fn report_unread(fields: &TableReader<'_, '_>, reserved: impl Fn(&str) -> Option<(String, String)>) {
    for key in fields.unread() {
        if let Some((message, help)) = reserved(key.get_ref()) {
            fields.error("reserved-name", key.span(), message, help);
            continue;
        }
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

/// The built-in providers with an API: the values of `api`.
fn apis() -> impl Iterator<Item = &'static ProviderSpec> {
    PROVIDERS.iter().filter(|spec| spec.default_endpoint.is_some())
}
