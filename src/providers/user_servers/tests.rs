use super::*;
use crate::diagnostic::Source;
use crate::providers::PROVIDERS;

/// All findings, one per line, with the source line that an excerpt would show.
fn found(text: &str) -> String {
    let read = UserServers::read(&Source::new("providers.toml", text));
    let line = |finding: &crate::diagnostic::Diagnostic| {
        let ((line, column), (_, end)) = (finding.span.start(), finding.span.end());
        let quoted = &finding.span.source.text[finding.span.source.line_span(line)];
        let help = finding.help.as_deref().unwrap_or_default();
        format!("{line}:{column}-{end} {}: {} | {help} | {quoted}\n", finding.code, finding.message)
    };
    read.findings.iter().map(line).collect()
}

fn read(text: &str) -> UserServers {
    let ParsedServers { servers, findings } = UserServers::read(&Source::new("/c/providers.toml", text));
    assert!(findings.is_empty(), "{findings:?}");
    servers
}

#[test]
fn servers_are_read() {
    let servers = read(
        "# mine\n[providers.local]\napi = \"openai-chat\"\nbase_url = \" http://me:pw@127.0.0.1:8080/v1 \"\n\n\
         [providers.team-b]\nbase_url = 'https://api.anthropic.com'\napi = 'anthropic'\nkey_env = 'TEAM_B_KEY'\n\
         [providers]\ninline = { api = \"openai\", base_url = \"https://eu.api.openai.com/v1\" }\n",
    );
    assert_eq!(servers.names().collect::<Vec<_>>(), ["local", "team-b", "inline"]);
    assert_eq!(servers.key_envs().collect::<Vec<_>>(), ["TEAM_B_KEY"]);
    let local = servers.get("local").unwrap();
    assert_eq!(local.base_url, "http://me:pw@127.0.0.1:8080/v1");
    assert_eq!((local.api, local.key_env.as_deref(), &*local.file), ("openai-chat", None, "/c/providers.toml"));
    assert!(!format!("{servers:?}").contains("pw"), "{servers:?}");
    assert!(servers.get("other").is_none() && !servers.is_invalid("other"));
    let official = |name| servers.server_info(name).unwrap().is_official;
    assert_eq!([official("local"), official("team-b"), official("inline")], [false, true, true]);
    let values = "headers = { X-A = \"env:A_TOKEN\" }\nquery = { a = \"b\", c = \"env:C\" }\n";
    let built_in = read(&format!("[providers.openai]\n{values}context = 7\n"));
    assert_eq!(built_in.key_envs().collect::<Vec<_>>(), ["A_TOKEN", "C"]);
    assert!(built_in.get("openai").is_none() && built_in.server_info("openai").is_none());
    assert!(!built_in.is_invalid("openai") && built_in.settings("openai").is_some());
    assert_eq!(built_in.context_window("openai", "gpt-6"), Some(7));
    assert_eq!(read("").names().count(), 0);
    assert_eq!(read("\u{feff}[providers]\r\n").file(), Some("/c/providers.toml"));
}

#[test]
fn a_server_entry_can_set_context_windows() {
    let server = |name: &str, rest: &str| {
        format!("[providers.{name}]\napi = \"openai-chat\"\nbase_url = \"http://h\"\n{rest}\n")
    };
    let servers = read(
        &[
            server("none", ""),
            server("all", "context = 32_768"),
            server("each", "[providers.each.context]\n\"org/qwen3:8b\" = 40960\nsmall = 0x1000"),
        ]
        .concat(),
    );
    for (name, model, window) in [
        ("none", "m", None),
        ("all", "m", Some(32_768)),
        ("each", "org/qwen3:8b", Some(40_960)),
        ("each", "small", Some(4_096)),
        ("each", "other", None),
        ("nobody", "m", None),
    ] {
        assert_eq!(servers.context_window(name, model), window, "{name}/{model}");
    }
    let recorded = Model { server: servers.server_info("all"), context: Some(7), ..Model::new("all", "m") };
    assert_eq!(UserServers::recorded([&recorded].into_iter()).context_window("all", "m"), Some(7));
    for wrong in
        ["context = 0", "context = -1", "context = \"x\"", "context = 1.5", "context = { m = [] }", "window = 1"]
    {
        assert_eq!(found(&server("a", wrong)).lines().count(), 1, "{wrong}");
    }
}

#[test]
fn every_provider_that_asks_servers_is_an_api() {
    for entry in PROVIDERS.iter().filter(|entry| !entry.is_scripted()) {
        let home = entry.default_endpoint.unwrap();
        let servers = read(&format!("[providers.x]\napi = \"{}\"\nbase_url = \"{}\"\n", entry.name, home.base_url));
        assert!(servers.server_info("x").unwrap().is_official, "{}", entry.name);
    }
    assert!(found("[providers.x]\napi = \"replay\"\nbase_url = \"http://h\"\n").contains("unknown-value"));
}

#[test]
fn every_mistake_is_found_at_once() {
    insta::assert_snapshot!(found(
        "\
model = 1
[provider.a]
[providers]
b = 7
[providers.Upper]
api = \"openai-cat\"
base_url = \"127.0.0.1:8080\"
[providers.openai]
api = \"openai\"
base_url = \"https://gateway.example/v1\"
[providers.replay]
[providers.c]
url = \"http://h\"
type = \"openai-chat\"
api_key = \"sk-very-secret\"
[providers.d]
api = 1
base_url = true
key_env = \"sk-very-secret\"
models = []
headers = []
[providers.e]
api = \"nothing\"
base_url = \"http://h\"
key_env = \"PATH\"
key = \"sk-very-secret\"
timeout = 3
"
    ));
}

#[test]
fn a_syntax_error_does_not_hide_other_findings() {
    let found = found(
        "[providers.f]\napi = \"openai-chat\"\napi = \"openai-chat\"\nbase_url = 'h'\n[providers.g]\napi = \"openai-chat\n\
         base_url = http://h\n",
    );
    let heads: Vec<&str> = found.lines().map(|line| line.split(':').nth(1).unwrap_or_default()).collect();
    let codes = ["duplicate-key", "invalid-value", "toml-syntax", "toml-syntax"];
    assert!(codes.len() == heads.len() && heads.iter().zip(codes).all(|(head, code)| head.ends_with(code)), "{found}");
}

#[test]
fn no_finding_shows_what_could_be_a_key() {
    const KEY: &str = "sk-ant-very-secret-0123456789";
    for text in [
        format!("[providers.a]\napi_key = \"{KEY}\"\n"),
        format!("[providers.a]\nkey_env = \"{KEY}\"\n"),
        format!("[providers.a]\nbase_url = \"me:{KEY}@host\"\n"),
        format!("[providers.a]\nbase_url = \"http://me:{KEY}@host\"\napi = 1\n"),
        format!("[providers.a]\napi = \"{KEY}\"\n"),
        format!("[providers.a]\nkey_env = {KEY}\n"),
        format!("[providers.a]\n{KEY}\n"),
        format!("[providers.a]\n{KEY} = 1\n"),
        format!("[providers]\na = \"{KEY}\"\n"),
        format!("[providers]\na = [\"{KEY}\"]\n"),
        format!("[providers]\na = {{ api_key = \"{KEY}\" }}\n"),
        format!("{KEY} = 1\n"),
        format!("[providers.a]\nwhatever = \"\"\"\n{KEY}\n"),
        format!("[providers.a]\napi = \"openai-chat\" \"{KEY}\"\n"),
    ] {
        let found = found(&text);
        assert!(!found.is_empty() && !found.contains("secret"), "{text}\n{found}");
    }
}

#[test]
fn a_variable_with_another_meaning_is_rejected_as_a_key() {
    let with = |name: &str| {
        found(&format!("[providers.a]\napi = \"openai-chat\"\nbase_url = \"http://h\"\nkey_env = \"{name}\"\n"))
    };
    for (name, words) in [
        ("ANTHROPIC_BASE_URL", "`ANTHROPIC_BASE_URL` has another meaning, so it can't hold a key"),
        ("GOOGLE_GEMINI_BASE_URL", "another meaning"),
        ("LEGWORK_LOG", "another meaning"),
        ("PATH", "another meaning"),
        ("HOME", "another meaning"),
    ] {
        let found = with(name);
        assert!(found.contains(words) && found.contains("4:11"), "{found}");
    }
    for name in ["LOCAL_API_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "HF_TOKEN", "PROXY_KEY"]
    {
        assert_eq!(with(name), "", "{name}");
    }
}

#[test]
fn invalid_servers_are_known_by_name() {
    let read = UserServers::read(&Source::new("f", "[providers.a]\n[providers]\nb = 1\n"));
    assert!(["a", "b"].iter().all(|name| read.servers.is_invalid(name)) && read.servers.get("a").is_none());
}

#[test]
fn a_missing_server_is_invalid_if_another_part_could_define_it() {
    for text in
        ["[provider.a]\n", "[[providers]]\nname = 'a'\n", "providers = 'a'\n", "a = 1\n", "[providers.b]\nx = = 1\n"]
    {
        assert!(UserServers::read(&Source::new("f", text)).servers.is_invalid("a"), "{text}");
    }
    assert!(!UserServers::read(&Source::new("f", "[providers.b]\nx = 1\n")).servers.is_invalid("a"));
    assert!(UserServers::unreadable_in("f").is_invalid("a") && !UserServers::empty_in("f").is_invalid("a"));
}

#[test]
fn any_text_is_parsed_without_a_crash() {
    for text in
        ["[", "[providers", "[[providers.a]]", "providers = [", "=", "a.b.c = 1", "\0", "'''", "[providers.ä]\n😀"]
    {
        assert!(!found(text).is_empty(), "{text}");
    }
    assert!(!found(&"[".repeat(100_000)).is_empty());
    assert!(!found(&format!("a = {}", "[".repeat(100_000))).is_empty());
    assert!(!found(&"[providers.a]\n".repeat(5_000)).is_empty());
}
