//! Tool servers are declared completely, and agents list existing ones.

use std::collections::{HashMap, HashSet};

use reqwest::Url;

use crate::diagnostic::{Diagnostic, Severity, rule, suggest_name};
use crate::job::{
    Agent, HeaderValue, MAX_SERVER_SECONDS, MAX_SERVERS, McpServer, NAME_FORM, ServerEntry, SubagentWorkspace,
    allows_tool, is_name, tool_name_error,
};
use crate::mcp::container_program;
use crate::providers::base_url::is_loopback;
use crate::providers::user_servers::looks_like_key;
use crate::redaction::is_secret_name;
use crate::text::sanitize;
use crate::yaml::{NodeKind, Spanned};

use super::{Lint, LintContext, join_names, listed_twice};

/// Checks tool servers, and the entries of agents for them.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Error "unknown-server"),
        rule!(Error "bad-server"),
        rule!(Error "bad-server-entry"),
        rule!(Error "bad-tool-lock"),
        rule!(Warning "server-in-container"),
        rule!(Warning "unused-server"),
    ],
    check,
};

/// Headers that the protocol or the connection sets.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Parts of the names of headers that hold secrets.
const SECRET_HEADERS: &[&str] = &["auth", "cookie", "key", "password", "secret", "token"];
/// The form of an entry's names, in words.
const TOOL_FORM: &str = "write the name of a tool as the server has it, or the start of names and `*`: `list_*`";

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    if let Some((name, _)) = job.mcp.get_index(MAX_SERVERS) {
        let message = format!("more than {MAX_SERVERS} servers are declared");
        findings.push(Diagnostic::error("bad-server", name.place(), message).help("remove some, or make several jobs"));
    }
    for (name, server) in &job.mcp {
        if !is_name(&name.value) {
            let message = format!("`{}` isn't a valid name of a server", name.value);
            findings.push(Diagnostic::error("bad-server", name.place(), message).help(NAME_FORM));
        } else if name.value.starts_with(|first: char| first.is_ascii_digit()) {
            // The names of its tools begin with it.
            let message = format!("the name of the server `{}` begins with a digit, which Gemini refuses", name.value);
            findings.push(Diagnostic::error("bad-server", name.place(), message).help("begin with a letter"));
        }
        let written = subject.root.get("mcp").and_then(|servers| servers.get(&name.value));
        // A value that can't be read is reported where it is read.
        let is_empty = written.is_none_or(|server| {
            server.kind() == NodeKind::Mapping && server.get("command").is_none() && server.get("url").is_none()
        });
        check_server(name, server, is_empty, findings);
    }
    for agent in job.agents() {
        check_entries(subject, &agent, findings);
    }
    let used: HashSet<&str> = job.server_entries().map(|entry| entry.server.value.as_str()).collect();
    for (name, _) in job.mcp.iter().filter(|(name, _)| subject.is_complete && !used.contains(name.value.as_str())) {
        let message = format!("no agent uses the server `{}`", name.value);
        let help =
            format!("add `{{ mcp: {}, allow: [TOOL, ...] }}` to the `tools` of an agent, or remove it", name.value);
        findings.push(Diagnostic::warning("unused-server", name.place(), message).help(help));
    }
    check_lock(subject, findings);
}

fn check_server(name: &Spanned<String>, server: &McpServer, is_empty: bool, findings: &mut Vec<Diagnostic>) {
    let mut containers = Vec::new();
    let mut report = |place, message: String, help: &str| {
        findings.push(Diagnostic::error("bad-server", place, message).help(help));
    };
    match (&server.command, &server.url) {
        (None, None) if !is_empty => {}
        (None, None) => {
            let help = "write `command: [PROGRAM, ARGUMENT, ...]` or `url: https://...`";
            report(name.place(), format!("the server `{}` has neither a command nor an address", name.value), help);
        }
        (Some(_), Some(url)) => {
            report(url.place(), "a server has either `command` or `url`".to_owned(), "remove one of the two");
        }
        (Some(command), None) => {
            let words = &command.value;
            let is_blank =
                words.first().is_none_or(|program| program.value.trim().is_empty() && !program.node.is_placeholder());
            if is_blank && !command.node.is_placeholder() && !command.node.is_incomplete() {
                report(command.place(), "the command is empty".to_owned(), "write `command: [PROGRAM, ARGUMENT, ...]`");
            }
            if let Some(word) = words.iter().find(|word| word.value.contains('\0')) {
                report(word.place(), "an argument can't contain a NUL character".to_owned(), "remove it");
            }
            if let Some(word) = words.iter().find(|word| has_secret(&word.value)) {
                let help =
                    "let the program read it from a variable, `env: [NAME]`, and set its value when you start the job";
                report(word.place(), "an argument is a secret, which doesn't belong in a job file".to_owned(), help);
            }
            let texts: Vec<&str> = words.iter().map(|word| word.value.as_str()).collect();
            if let Some((program, index)) = container_program(&texts) {
                let message = format!("`{program}` can't start a container from the sandbox");
                containers.push(Diagnostic::warning("server-in-container", words[index].place(), message).help(
                    "name the program that the image runs, such as `[npx, -y, SERVER@1.2.3]`; or start the container yourself and \
                     write its address, `url: \"http://127.0.0.1:PORT/mcp\"`",
                ));
            }
            if let Some((header, _)) = server.headers.first() {
                report(header.place(), "only a server with `url` has headers".to_owned(), "remove `headers`");
            }
            if let Some(variable) = &server.client_cert {
                let message = "only a server with `url` has a client certificate".to_owned();
                report(variable.place(), message, "remove `client_cert`");
            }
        }
        (None, Some(url)) => {
            if let Some(variable) = server.env.names().first().or(server.env.values().next().map(|(name, _)| name)) {
                let help = "for a header, write `headers: { NAME: { env: VARIABLE } }`";
                report(variable.place(), "only a server with `command` has variables".to_owned(), help);
            }
            if let Some(network) = &server.network {
                report(network.place(), "only a server with `command` has `network`".to_owned(), "remove it");
            }
            if let Some(variable) = server.client_cert.as_ref().filter(|_| url.value.starts_with("http:")) {
                let message = "a client certificate needs an https:// address".to_owned();
                report(variable.place(), message, "remove it, or use an https:// address");
            }
            if let Some((message, help)) = url_error(server, &url.value).filter(|_| !url.node.is_placeholder()) {
                report(url.place(), message, help);
            }
        }
    }
    for (variable, value) in server.env.values().filter(|(_, value)| !value.node.is_placeholder()) {
        let name = &variable.value;
        if value.value.contains('\0') {
            report(value.place(), format!("the value of `{name}` can't contain a NUL character"), "remove it");
        } else if !value.value.is_empty()
            && (is_secret_name(name) || looks_like_key(&value.value) || has_secret(&value.value))
        {
            let message = format!("the value of `{name}` is a secret, which doesn't belong in a job file");
            report(
                value.place(),
                message,
                "write only the name, `env: [NAME]`, and set its value when you start the job",
            );
        }
    }
    for (header, value) in &server.headers {
        if let Some((message, help)) =
            header_error(&header.value, &value.value).filter(|_| !value.node.is_placeholder())
        {
            report(header.place(), message, help);
        }
    }
    if let Some(timeout) = server.timeout.as_ref().filter(|timeout| timeout.value.get().as_secs() > MAX_SERVER_SECONDS)
    {
        findings.push(Diagnostic::error("out-of-range", timeout.place(), "`timeout` can be at most `1h`"));
    }
    findings.append(&mut containers);
}

/// Whether a text has a key, or a password in an address.
fn has_secret(text: &str) -> bool {
    // Packages and hosts may begin like a key.
    let is_key = |part: &str| {
        let part = part.trim_matches(['"', '\'']);
        part.len() >= 20 && part.contains(|letter: char| letter.is_ascii_digit()) && looks_like_key(part)
    };
    let has_password =
        || Url::parse(text).is_ok_and(|address| address.password().is_some_and(|word| !word.starts_with('$')));
    text.split(['=', ' ', ':', ',']).any(is_key) || has_password()
}

fn url_error(server: &McpServer, url: &str) -> Option<(String, &'static str)> {
    let form = "write an address such as `https://HOST/mcp`";
    let Ok(parsed) = Url::parse(url) else { return Some(("this isn't an address".to_owned(), form)) };
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none_or(str::is_empty) {
        return Some(("this isn't an http or https address".to_owned(), form));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let help = "remove them; a secret belongs into a variable: `headers: { Authorization: { env: NAME } }`";
        return Some(("the address contains credentials".to_owned(), help));
    }
    if parsed.query_pairs().any(|(_, value)| looks_like_key(&value)) {
        let help = "send it in a header: `headers: { Authorization: { env: NAME } }`";
        return Some(("the address contains a secret, which doesn't belong in a job file".to_owned(), help));
    }
    let secret = server.headers.values().find_map(|value| match &value.value {
        HeaderValue::Variable(variable) => Some(&variable.env),
        HeaderValue::Text(_) => None,
    });
    let variable = secret.filter(|_| parsed.scheme() == "http" && !is_loopback(url))?;
    Some((format!("`{variable}` would be sent in plaintext, because the address isn't https"), form))
}

fn header_error(name: &str, value: &HeaderValue) -> Option<(String, &'static str)> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 100 || !name.bytes().all(is_token) {
        return Some(("this isn't the name of a header".to_owned(), "write a name such as `Authorization`"));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with("mcp-") {
        return Some((
            format!("a job can't set the header `{name}`"),
            "remove it: legwork sets it as the protocol demands",
        ));
    }
    match value {
        HeaderValue::Text(text) | HeaderValue::Variable(crate::job::HeaderVariable { prefix: text, .. })
            if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) =>
        {
            Some((format!("the value of `{name}` isn't plain ASCII on one line"), "write letters, digits and signs"))
        }
        HeaderValue::Text(_) if SECRET_HEADERS.iter().any(|part| lower.contains(part)) => {
            let help = "take it from a variable: `{ env: NAME }`, or `{ env: NAME, prefix: \"Bearer \" }`";
            Some((format!("the value of `{name}` is a secret, which doesn't belong in a job file"), help))
        }
        _ => None,
    }
}

fn check_entries(subject: &LintContext<'_>, agent: &Agent<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let mut earlier: HashMap<&str, &ServerEntry> = HashMap::new();
    for entry in agent.tools.iter().filter_map(|entry| entry.value.server()) {
        let name = entry.server.value.as_str();
        if entry.server.node.is_placeholder() {
            continue;
        }
        match job.mcp.get(name) {
            None => {
                let message = format!("there is no server `{name}`");
                let finding = Diagnostic::error("unknown-server", entry.server.place(), message);
                let known = || job.mcp.keys().map(|known| known.value.as_str());
                findings.push(match suggest_name(name, known()) {
                    Some(near) => finding.help(format!("did you mean `{near}`?")),
                    None if job.mcp.is_empty() => {
                        finding.help(format!("declare it: `mcp: {{ {name}: {{ command: [PROGRAM, ...] }} }}`"))
                    }
                    None => finding.help(format!("declared are {}", join_names(known()))),
                });
            }
            Some(server) => {
                let setting = agent.workspace.filter(|workspace| workspace.value == SubagentWorkspace::Own);
                if let Some(setting) = setting.filter(|_| server.command.is_some()) {
                    let message =
                        format!("the server `{name}` works in the parent's workspace, not in the subagent's copy");
                    findings.push(
                        Diagnostic::error("bad-server-entry", entry.server.place(), message)
                            .label(setting.place(), "the copy")
                            .help("remove the entry, or let the subagent share the parent's workspace"),
                    );
                }
            }
        }
        if let Some(first) = earlier.insert(name, entry) {
            let places = (entry.server.place(), first.server.place());
            findings.push(listed_twice(Severity::Error, "duplicate-tool", name, places.0, places.1));
        }
        check_names(entry, findings);
    }
}

/// Checks the names of tools in an entry.
fn check_names(entry: &ServerEntry, findings: &mut Vec<Diagnostic>) {
    let allow = &entry.allow;
    if allow.value.is_empty() && !allow.node.is_placeholder() && !allow.node.is_incomplete() {
        let finding = Diagnostic::warning("empty-allow", allow.place(), "an empty `allow` permits no tool");
        findings.push(finding.help("list the tools of the server, or remove the entry"));
    }
    let mut earlier: HashMap<&str, &Spanned<String>> = HashMap::new();
    for tool in allow.value.iter().filter(|tool| !tool.node.is_placeholder()) {
        let text = tool.value.as_str();
        let start = text.strip_suffix('*').unwrap_or(text);
        let checked = if start.is_empty() && text == "*" { "x" } else { start };
        if start.contains('*') {
            let message = "`*` can only be the last character";
            findings.push(Diagnostic::error("bad-server-entry", tool.place(), message).help(TOOL_FORM));
        } else if let Some(why) = tool_name_error(checked) {
            let message = format!("no tool can be called `{}`: {why}", sanitize::line(text));
            findings.push(Diagnostic::error("bad-server-entry", tool.place(), message).help(TOOL_FORM));
        } else if let Some(first) = earlier.insert(text, tool) {
            findings.push(listed_twice(Severity::Error, "duplicate-tool", text, tool.place(), first.place()));
        }
    }
}

/// Compares the entries with the lock file.
fn check_lock(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let help = "run `legwork mcp lock JOB`";
    let lock = match subject.tool_lock {
        None => return,
        Some(Err(why)) => {
            if let Some(key) = subject.root.get("mcp") {
                let place = key.own_key().map_or_else(|| key.place(), |key| key.place());
                findings.push(Diagnostic::error("bad-tool-lock", place, why.as_str()).help(help));
            }
            return;
        }
        Some(Ok(lock)) => lock,
    };
    for entry in subject.job.server_entries() {
        let name = entry.server.value.as_str();
        if !subject.job.mcp.contains_key(name) || entry.server.node.is_placeholder() {
            continue;
        }
        let Some(tools) = lock.tools(name) else {
            let message = format!("the lock file has no tools of the server `{name}`");
            findings.push(Diagnostic::error("bad-tool-lock", entry.server.place(), message).help(help));
            continue;
        };
        for pattern in &entry.allow.value {
            if !pattern.node.is_placeholder() && !tools.keys().any(|tool| allows_tool(&pattern.value, tool)) {
                let message = format!("the lock file has no tool `{}` of the server `{name}`", pattern.value);
                let finding = Diagnostic::error("bad-tool-lock", pattern.place(), message);
                findings.push(match suggest_name(&pattern.value, tools.keys().map(String::as_str)) {
                    Some(near) => finding.help(format!("did you mean `{near}`? If not, {help}")),
                    None => finding.help(help),
                });
            }
        }
    }
}
