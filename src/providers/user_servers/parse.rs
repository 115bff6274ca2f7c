//! Parses `providers.toml`, and reports every mistake with its location.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::UserServers;
use super::redact::{is_env_var_name, redact};
use super::server::{ContextWindows, UserServer};
use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_certain_name, suggest_name};
use crate::job::{NAME_FORM, is_name};
use crate::process::is_always_passed;
use crate::providers::{PROVIDERS, ProviderSpec, base_url, find};
use crate::toml_file::{DeValue, Spanned, TomlReader};

/// The keys of a server's table.
const KEYS: [&str; 4] = ["api", "base_url", "key_env", "context"];

/// Other names that people write for the keys.
const KEY_ALIASES: [(&str, &str); 15] = [
    ("type", "api"),
    ("provider", "api"),
    ("protocol", "api"),
    ("url", "base_url"),
    ("base", "base_url"),
    ("address", "base_url"),
    ("endpoint", "base_url"),
    ("api_base", "base_url"),
    ("host", "base_url"),
    ("env", "key_env"),
    ("env_key", "key_env"),
    ("api_key_env", "key_env"),
    ("context_window", "context"),
    ("context_length", "context"),
    ("window", "context"),
];

/// The parsed file.
#[derive(Debug)]
pub struct ParsedServers {
    /// The servers without mistakes.
    pub servers: UserServers,
    /// All mistakes, in the order of their locations.
    pub findings: Vec<Diagnostic>,
}

impl UserServers {
    /// Parses the file. Findings never quote text that could be a secret.
    pub fn read(source: &Arc<Source>) -> ParsedServers {
        let (reading, root) = TomlReader::parse(source);
        let mut file =
            ServersParser { reading, file: Arc::from(source.name.as_str()), mistakes: 0, broken: Vec::new() };
        let mut servers = Vec::new();
        let mut is_torn = file.reading.is_incomplete();
        for (key, value) in root.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("providers", DeValue::Table(table)) => {
                    servers.extend(table.iter().filter_map(|(name, value)| file.server(name, value)));
                }
                ("providers", _) => {
                    is_torn = true;
                    file.wrong_type(value, "a table", "write `[providers.NAME]` above each server");
                }
                (name, _) => {
                    // It may still contain servers.
                    is_torn = true;
                    let finding = file.error("unknown-key", key.span(), format!("unknown key `{}`", quotable(name)));
                    file.report(match suggest_name(name, ["providers"]) {
                        Some(near) => finding.help(format!("did you mean `{near}`?")),
                        None => finding.help("write each server as a table `[providers.NAME]`"),
                    });
                }
            }
        }
        let ServersParser { reading, file, broken, .. } = file;
        let harmless = Source::new(source.name.as_str(), redact(&source.text));
        let findings = reading.finish().into_iter().map(|finding| with_redacted_source(finding, &harmless)).collect();
        let servers = UserServers {
            servers: servers.into(),
            file: Some(file),
            invalid_names: broken.into(),
            is_unparsable: is_torn,
            ..UserServers::default()
        };
        ParsedServers { servers, findings }
    }
}

/// The finding for a file that can't be read as text, without any of its content.
pub fn unreadable(finding: Diagnostic) -> Diagnostic {
    let harmless = Source::new(finding.span.source.name.as_str(), redact(&finding.span.source.text));
    with_redacted_source(finding, &harmless)
}

fn with_redacted_source(finding: Diagnostic, harmless: &Arc<Source>) -> Diagnostic {
    let place = SourceSpan { source: Arc::clone(harmless), range: finding.span.range.clone() };
    match finding.code {
        // The name of the key could be a secret itself.
        "duplicate-key" if !finding.message.starts_with("the table") => {
            Diagnostic::error("duplicate-key", place, "this key is set twice in this table").help("keep one of the two")
        }
        "duplicate-key" => {
            Diagnostic::error("duplicate-key", place, "this table is there twice").help("keep one of the two")
        }
        _ => Diagnostic { span: place, ..finding },
    }
}

struct ServersParser<'s> {
    reading: TomlReader<'s>,
    /// Its name.
    file: Arc<str>,
    /// How many mistakes have been reported.
    mistakes: usize,
    broken: Vec<String>,
}

impl ServersParser<'_> {
    fn error(&self, code: &'static str, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.reading.place(span), message)
    }

    fn report(&mut self, finding: Diagnostic) {
        self.mistakes += 1;
        self.reading.report(finding);
    }

    fn report_error(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let finding = self.error(code, span, message).help(help);
        self.report(finding);
    }

    fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, wanted: &str, help: impl Into<String>) {
        let is = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.report_error("wrong-type", value.span(), format!("expected {wanted}, found {is}"), help);
    }

    /// Reads a server's table. `None` if it has mistakes.
    fn server(&mut self, name: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Option<UserServer> {
        let before = self.mistakes;
        let text = name.get_ref().as_ref();
        if let Some(ours) = find(text) {
            let what = format!("`{}` is a built-in provider", ours.name);
            let help = match ours.default_endpoint {
                Some(home) => {
                    format!("use another name; to change the address of `{text}`, set {}", home.base_url_env)
                }
                None => "use another name".to_owned(),
            };
            self.report_error("reserved-name", name.span(), what, help);
        } else if !is_name(text) {
            self.report_error("bad-name", name.span(), "this isn't a valid name of a server", NAME_FORM);
        }
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value, "a table", format!("write `[providers.{}]` above its keys", quotable(text)));
            self.broken.push(text.to_owned());
            return None;
        };
        let (mut api, mut base_url, mut key_env, mut windows) = (None, None, None, ContextWindows::default());
        let mut has = [false; KEYS.len()];
        for (key, value) in table {
            let Some(at) = KEYS.iter().position(|known| *known == key.get_ref().as_ref()) else {
                if let Some(meant) = self.report_unknown_key(key) {
                    has[meant] = true;
                }
                continue;
            };
            has[at] = true;
            if KEYS[at] == "context" {
                windows = self.windows(value);
                continue;
            }
            let DeValue::String(text) = value.get_ref() else {
                self.wrong_type(value, "a string", "put it in quotes");
                continue;
            };
            match at {
                0 => api = self.api(text, value.span()),
                1 => base_url = self.base_url(text, value.span()),
                _ => key_env = self.key_env(text, value.span()),
            }
        }
        // Don't report a misspelled or unreadable key as missing, too.
        for (key, example) in [(0, "openai-chat"), (1, "http://127.0.0.1:8080/v1")] {
            if !has[key] && !self.reading.is_incomplete() {
                let (key, span) = (KEYS[key], name.span());
                let help = format!("add it, as in `{key} = \"{example}\"`");
                self.report_error("missing-key", span, format!("required key `{key}` is missing"), help);
            }
        }
        if self.mistakes > before || self.reading.is_incomplete() {
            self.broken.push(text.to_owned());
            return None;
        }
        let (name, file) = (text.to_owned(), Arc::clone(&self.file));
        let (api, base_url) = (api?, base_url?);
        let home = find(api).and_then(|spec| spec.default_endpoint);
        let is_official = home.is_some_and(|home| base_url::is_on_host_of(&base_url, home.base_url));
        Some(UserServer { name, file, api, base_url, key_env, context_windows: windows, is_official })
    }

    /// Reads a number of tokens for all models, or a table by model.
    fn windows(&mut self, value: &Spanned<DeValue<'_>>) -> ContextWindows {
        let mut windows = ContextWindows::default();
        match value.get_ref() {
            DeValue::Table(table) => {
                for (model, value) in table {
                    let window = self.window(value);
                    windows.models.extend(window.map(|window| (model.get_ref().to_string(), window)));
                }
            }
            _ => windows.all = self.window(value),
        }
        windows
    }

    fn window(&mut self, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(value, "a number of tokens", "write `context = 32768`, or `context = { MODEL = 32768 }`");
            return None;
        };
        let tokens = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|tokens| *tokens > 0);
        if tokens.is_none() {
            let help = "leave it out to use the window in the price table";
            self.report_error("out-of-range", value.span(), "`context` must be at least 1", help);
        }
        tokens
    }

    fn api(&mut self, text: &str, span: Range<usize>) -> Option<&'static str> {
        let known = || apis().map(|entry| entry.name);
        if let Some(api) = known().find(|api| *api == text) {
            return Some(api);
        }
        let all = known().map(|api| format!("`{api}`")).collect::<Vec<_>>().join(", ");
        let finding = self.error("unknown-value", span, format!("there is no API `{}`", quotable(text)));
        self.report(match suggest_name(text, known()) {
            Some(near) => finding.help(format!("did you mean `{near}`? The APIs are {all}")),
            None => finding.help(format!("use one of {all}; most servers and gateways speak `openai-chat`")),
        });
        None
    }

    fn base_url(&mut self, text: &str, span: Range<usize>) -> Option<String> {
        if base_url::parse(text).is_some() {
            return Some(text.trim().to_owned());
        }
        let help = "write it like `http://127.0.0.1:8080/v1`";
        self.report_error("invalid-value", span, format!("this {}", base_url::invalid_reason(text)), help);
        None
    }

    fn key_env(&mut self, text: &str, span: Range<usize>) -> Option<String> {
        if !is_env_var_name(text) {
            let help = "write the name of the variable with the key, in capitals, and never the key itself";
            self.report_error("bad-env-name", span, "this isn't the name of an environment variable", help);
            return None;
        }
        if is_always_passed(text) {
            let what = format!("`{text}` is passed to every command, so it can't hold a key");
            self.report_error("invalid-value", span, what, "use a separate variable for the key");
            return None;
        }
        if let Some(meaning) = known_variable_use(text) {
            let what = format!("`{text}` isn't a key: it {meaning}");
            self.report_error("invalid-value", span, what, "use a separate variable for the key, and write its name");
            return None;
        }
        Some(text.to_owned())
    }

    /// Reports an unknown key, and returns the index of the key that is probably meant.
    fn report_unknown_key(&mut self, key: &Spanned<Cow<'_, str>>) -> Option<usize> {
        let text = key.get_ref().as_ref();
        let folded = text.to_ascii_lowercase().replace('-', "_");
        let meant = KEY_ALIASES.iter().find(|(word, _)| *word == folded).map(|(_, ours)| *ours);
        let meant = meant.or_else(|| suggest_certain_name(text, KEYS));
        let is_secret =
            ["key", "token", "secret", "password", "auth", "bearer"].iter().any(|word| folded.contains(word));
        if is_secret && meant.is_none_or(|ours| ours == "key_env" && !folded.ends_with("env")) {
            let help = "put it into an environment variable, and write its name: `key_env = \"LOCAL_API_KEY\"`";
            self.report_error("api-key-in-file", key.span(), "this file must not contain a key", help);
            return None;
        }
        let message = format!("unknown key `{}`", quotable(text));
        let finding = self.error("unknown-key", key.span(), message);
        self.report(match meant {
            Some(ours) => finding.help(format!("did you mean `{ours}`?")),
            None if folded.starts_with("model") => finding.help("remove it: jobs name the model, as in `NAME/MODEL`"),
            None => finding.help("the keys are `api`, `base_url`, `key_env` and `context`"),
        });
        KEYS.iter().position(|known| Some(*known) == meant)
    }
}

/// What a well-known variable is for, if it isn't a key: the value of `key_env` is redacted everywhere and hidden from
/// commands.
fn known_variable_use(name: &str) -> Option<&'static str> {
    let is_address = PROVIDERS.iter().any(|entry| entry.default_endpoint.is_some_and(|home| home.base_url_env == name));
    Some(match name {
        _ if is_address || name.ends_with("_BASE_URL") => "names an address",
        "HTTP_PROXY" | "HTTPS_PROXY" | "ALL_PROXY" | "FTP_PROXY" => "names a proxy",
        "NO_PROXY" => "names the hosts that are asked without a proxy",
        "SSL_CERT_FILE" | "SSL_CERT_DIR" => "names certificates",
        "PWD" | "OLDPWD" | "XDG_CONFIG_HOME" | "XDG_CACHE_HOME" | "XDG_DATA_HOME" | "XDG_STATE_HOME"
        | "XDG_RUNTIME_DIR" => "names a folder",
        "LD_PRELOAD" | "LD_LIBRARY_PATH" | "DYLD_INSERT_LIBRARIES" | "DYLD_LIBRARY_PATH" => "names libraries",
        "EDITOR" | "VISUAL" | "PAGER" | "BROWSER" => "names a program",
        "CI" | "TERM" | "COLUMNS" | "LINES" | "NO_COLOR" | "CLICOLOR" | "CLICOLOR_FORCE" | "FORCE_COLOR" | "SHLVL"
        | "HOSTNAME" | "DISPLAY" => "says where the program runs",
        "GITHUB_ENV"
        | "GITHUB_PATH"
        | "GITHUB_OUTPUT"
        | "GITHUB_STATE"
        | "GITHUB_STEP_SUMMARY"
        | "GITHUB_ACTIONS"
        | "GITHUB_REPOSITORY"
        | "GITHUB_WORKSPACE" => "is the CI system's own",
        _ if name.starts_with("LEGWORK_") => "is one of legwork's own",
        _ => return None,
    })
}

/// The built-in providers with an API: the values of `api`.
fn apis() -> impl Iterator<Item = &'static ProviderSpec> {
    PROVIDERS.iter().filter(|spec| spec.default_endpoint.is_some())
}

/// A word from the file for use in a message, unless it is long enough to be a misplaced key.
fn quotable(text: &str) -> &str {
    if text.len() <= 24 { text } else { "…" }
}
