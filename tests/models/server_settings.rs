//! What `providers.toml` sets for servers and built-in providers: headers, query parameters, and keys from a command.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::models::user_servers::{configure, server_config};
use crate::support::program::Program;
use crate::support::server::{Answer, Checks, KEY, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;
use crate::support::tls;

const JOB: &str = "model: local/some-model\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n";

/// The APIs of servers, the suffixes of their base addresses, and the header with the key.
const APIS: [(&str, &str, &str, &str); 4] = [
    ("anthropic", "", "x-api-key", ""),
    ("openai", "/v1", "authorization", "Bearer "),
    ("openai-chat", "/v1", "authorization", "Bearer "),
    ("gemini", "", "x-goog-api-key", ""),
];

fn folder(job: &str, servers: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", job);
    configure(&folder, servers);
    folder
}

fn run(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml"]).env("LEGWORK_RETRY_BASE_MS", "1")
}

/// Writes a program into the home folder, and returns the setting that runs it.
fn key_command(folder: &TestFolder, script: &str) -> String {
    let path = folder.home().join("get-key");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("key_command = [\"{}\", \"an argument\"]", path.display())
}

/// A program that prints another key each time, and counts how often it ran.
const COUNTING: &str = "echo x >> \"$HOME/calls\"; echo \"short-lived-key-$(wc -l < \"$HOME/calls\" | tr -d ' ')\"";

fn calls(folder: &TestFolder) -> usize {
    std::fs::read_to_string(folder.home().join("calls")).unwrap_or_default().lines().count()
}

#[test]
fn headers_and_query_parameters_are_sent_and_never_recorded() {
    for (api, end, ..) in APIS {
        let server = Server::with(Checks::None, |request: &Request| {
            let query = request.path().split_once('?').map_or("", |(_, query)| query);
            let has = |pair: &str| query.split('&').any(|it| it == pair);
            let is_right = request.header("x-team") == Some("build machines")
                && request.header("x-gateway-token") == Some("Bearer a-gateway-token")
                && request.header("accept-language") == Some("en")
                && has("api-version=2024-10-21")
                && has("tenant=a-secret-tenant");
            // The server repeats what is secret, as a reply and as an error.
            if is_right { Answer::text("a-gateway-token a-secret-tenant") } else { Answer::status(400) }
        });
        let settings = "headers = { X-Team = \"build machines\", X-Gateway-Token = \"env:GATEWAY_TOKEN\", Accept-Language = \"en\" }\n\
                        query = { api-version = \"2024-10-21\", tenant = \"env:TENANT\" }";
        let folder = folder(JOB, &server_config(api, &format!("{}{end}", server.url()), settings));
        let with_values =
            || run(&folder).env("GATEWAY_TOKEN", "Bearer a-gateway-token").env("TENANT", "a-secret-tenant");
        let ended = with_values().run();
        ended.assert_code(0).assert_stdout("[masked:GATEWAY_TOKEN] [masked:TENANT]\n");
        for secret in ["a-gateway-token", "a-secret-tenant"] {
            ended.assert_not_printed(secret).run_folder().assert_absent(secret);
        }
        // Commands don't get the variables, and a job can't ask for them.
        folder.write("job.yaml", format!("{JOB}env: [TENANT]\n"));
        with_values().run().assert_code(3).assert_stderr_contains("api-key-in-env");
        folder.write("job.yaml", JOB);
        run(&folder)
            .env("TENANT", "a-secret-tenant")
            .run()
            .assert_code(5)
            .assert_stderr_contains("GATEWAY_TOKEN is not set")
            .assert_stderr_contains("header or query parameter of `local` in ");
        let odd = run(&folder).env("GATEWAY_TOKEN", "line\nbreak-in-token").env("TENANT", "x").run();
        odd.assert_code(5).assert_stderr_contains("GATEWAY_TOKEN contains a control").assert_not_printed("break-in");
    }
}

#[test]
fn a_built_in_provider_takes_the_same_settings() {
    let server = Server::start(ScriptedAgents::of([Answer::text("Hello.")]));
    let job = JOB.replace("local/some-model", "anthropic/claude-sonnet-4-5");
    let folder =
        folder(&job, "[providers.anthropic]\nheaders = { anthropic-beta = \"some-feature\" }\ncontext = 54321\n");
    run(&folder).arg("--dry-run").run().assert_code(0).assert_stdout_contains("context 54321");
    run(&folder).anthropic(&server).run().assert_code(0).assert_stdout("Hello.\n");
    let requests = server.finish();
    assert_eq!(requests[0].header("anthropic-beta"), Some("some-feature"));
    assert_eq!(requests[0].header("x-api-key"), Some(KEY));
    for (wrong, words) in [
        ("base_url = \"http://127.0.0.1:1\"", "set ANTHROPIC_BASE_URL"),
        ("key_env = \"OTHER\"", "set ANTHROPIC_API_KEY"),
        ("api = \"openai\"", "its `api` can't be changed here"),
    ] {
        configure(&folder, &format!("[providers.anthropic]\n{wrong}\n"));
        run(&folder).run().assert_code(5).assert_stderr_contains("reserved-name").assert_stderr_contains(words);
    }
}

#[test]
fn a_header_can_be_the_key_of_a_built_in_provider() {
    let server = Server::with(Checks::None, |request: &Request| {
        match (request.header("authorization"), request.header("x-api-key")) {
            (Some("Bearer the-only-token"), None) => Answer::text("Hello."),
            _ => Answer::status(401),
        }
    });
    let job = JOB.replace("local/some-model", "anthropic/claude-sonnet-4-5");
    let folder = folder(&job, "[providers.anthropic]\nheaders = { Authorization = \"env:TOKEN_HEADER\" }\n");
    let ended = run(&folder).env("ANTHROPIC_BASE_URL", server.url()).env("TOKEN_HEADER", "Bearer the-only-token").run();
    ended.assert_code(0).assert_stdout("Hello.\n");
}

/// The server accepts each key for a few requests, so that it expires in the middle of the run.
#[test]
fn a_run_survives_keys_that_expire() {
    for (api, end, header, prefix) in APIS {
        let requests = AtomicUsize::new(0);
        let accepted = Arc::new(Mutex::new(Vec::<String>::new()));
        let seen = Arc::clone(&accepted);
        let server = Server::with(Checks::None, move |request: &Request| {
            let key = request.header(header).unwrap_or_default().strip_prefix(prefix).unwrap_or_default().to_owned();
            let expected = format!("short-lived-key-{}", requests.load(Ordering::SeqCst) / 3 + 1);
            if key != expected {
                let (status, words) = match api {
                    "openai" => (403, "The token has expired"),
                    "gemini" => (400, "API key expired. Please renew the API key"),
                    _ => (401, "Invalid key"),
                };
                return Answer::status(status).error("authentication_error", &format!("{words}: {key}."));
            }
            seen.lock().unwrap().push(key);
            match requests.fetch_add(1, Ordering::SeqCst) {
                turn @ 0..9 => {
                    Answer::calls(&[("glob", json!({ "pattern": format!("*{turn}") }))]).number_calls(request.number)
                }
                _ => Answer::text("Done: short-lived-key-1 short-lived-key-4"),
            }
        });
        let folder = folder(&JOB.replace("[]", "[glob]"), "");
        let command = key_command(&folder, COUNTING);
        configure(&folder, &server_config(api, &format!("{}{end}", server.url()), &command));
        let ended = run(&folder).run();
        ended.assert_code(0).assert_stdout("Done: [masked:local.key_command] [masked:local.key_command]\n");
        assert_eq!((calls(&folder), accepted.lock().unwrap().len()), (4, 10), "{api}");
        ended.assert_not_printed("short-lived").run_folder().assert_absent("short-lived");
    }
}

#[test]
fn concurrent_requests_renew_a_key_once() {
    let server = Server::with(Checks::None, |request: &Request| {
        let body = String::from_utf8_lossy(request.bytes()).into_owned();
        match request.header("x-api-key") {
            // Each subagent's request with the first key is refused; the parent's is accepted.
            Some("short-lived-key-1") if body.contains("Look at") && !body.contains("Delegate.") => {
                Answer::status(401).error("authentication_error", "expired")
            }
            Some("short-lived-key-1") => {
                let call = json!({ "agent": "scout", "prompt": "Look at it." });
                Answer::calls(&[("task", call.clone()), ("task", call.clone()), ("task", call.clone()), ("task", call)])
                    .number_calls(request.number)
            }
            Some("short-lived-key-2") => Answer::text("ok"),
            _ => Answer::status(400),
        }
    });
    let job = "model: local/some-model\nparent: { prompt: Delegate., tools: [task] }\n\
               subagents: { scout: { description: Looks., tools: [] } }\nlimits: { tokens: 100000 }\n";
    let folder = folder(job, "");
    let command = key_command(&folder, COUNTING);
    configure(&folder, &server_config("anthropic", &server.url(), &command));
    run(&folder).run().assert_code(0).assert_stdout("ok\n");
    assert_eq!(calls(&folder), 2);
}

#[test]
fn a_key_is_renewed_when_its_time_is_up() {
    let server = Server::with(Checks::None, |request: &Request| match request.header("x-api-key") {
        Some("short-lived-key-1") => {
            Answer::calls(&[("bash", json!({ "command": "sleep 1.1" }))]).number_calls(request.number)
        }
        Some("short-lived-key-2") => Answer::text("second key"),
        _ => Answer::status(400),
    });
    let folder = folder(&JOB.replace("[]", "[bash]"), "");
    let command = key_command(&folder, COUNTING);
    configure(&folder, &server_config("anthropic", &server.url(), &format!("{command}\nkey_ttl = \"1s\"")));
    run(&folder).run().assert_code(0).assert_stdout("second key\n");
}

#[test]
fn a_key_that_is_refused_twice_ends_the_run() {
    let server =
        Server::with(Checks::None, |_: &Request| Answer::status(401).error("authentication_error", "Who are you?"));
    let folder = folder(JOB, "");
    let command = key_command(&folder, COUNTING);
    configure(&folder, &server_config("anthropic", &server.url(), &command));
    let ended = run(&folder).run();
    ended.assert_code(5).assert_stderr_contains("the key came from `key_command` of `local` in ");
    assert_eq!((calls(&folder), server.count()), (2, 2));
}

/// The command gets nothing of the job and no key, and its output is never shown.
#[test]
fn the_command_runs_apart_from_the_job() {
    let server = Server::with(Checks::None, |request: &Request| match request.header("x-api-key") {
        Some("a-printed-key") => Answer::text("Hello."),
        _ => Answer::status(401),
    });
    let folder = folder(JOB, "");
    let command = key_command(
        &folder,
        "env > \"$HOME/env\"; pwd > \"$HOME/folder\"; printf %s \"$1\" > \"$HOME/argument\"; cat > \"$HOME/input\"; \
         echo a-printed-key; echo a-secret-on-stderr >&2",
    );
    configure(&folder, &server_config("anthropic", &server.url(), &command));
    let ended = run(&folder).env("ANTHROPIC_API_KEY", KEY).env("AWS_PROFILE", "team").stdin("x").run();
    ended.assert_code(0).assert_stdout("Hello.\n").assert_not_printed("a-secret-on-stderr");
    let read = |name: &str| std::fs::read_to_string(folder.home().join(name)).unwrap();
    let variables = read("env");
    assert!(variables.contains("AWS_PROFILE=team") && variables.contains("HOME="), "{variables}");
    assert!(!variables.contains(KEY) && !variables.contains("LEGWORK_RETRY"), "{variables}");
    assert_eq!((read("folder").trim(), &*read("argument"), &*read("input")), ("/", "an argument", ""));
    // Nothing runs for a plan or a check of the job.
    std::fs::remove_file(folder.home().join("env")).unwrap();
    run(&folder).arg("--dry-run").run().assert_code(0);
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
    folder.legwork(&["providers"]).run().assert_code(0).assert_stdout_contains("from key_command");
    assert!(!folder.home().join("env").exists());
}

#[test]
fn a_command_that_prints_no_key_is_reported_before_the_run() {
    let folder = folder(JOB, "");
    for (script, words) in [
        ("exit 3", "failed with exit code 3"),
        ("kill -9 $$", "was killed by a signal"),
        ("true", "printed nothing"),
        ("echo; echo", "printed nothing"),
        ("echo first-secret-line; echo second-secret-line", "printed more than one line"),
        ("echo two-secret words", "printed a space"),
        ("echo short", "printed fewer than 8 characters"),
        ("yes secret", "printed more than 16384 bytes"),
        ("sleep 60", "didn't end within 300ms"),
        ("sleep 60 & echo a-secret-key; wait", "didn't end within 300ms"),
    ] {
        let command = key_command(&folder, script);
        configure(&folder, &server_config("openai-chat", "http://127.0.0.1:1/v1", &command));
        let timeout = if words.contains("300ms") { "300" } else { "30000" };
        let ended = run(&folder).env("LEGWORK_KEY_COMMAND_TIMEOUT_MS", timeout).run();
        ended.assert_code(5).assert_stderr_contains(words).assert_stderr_contains("`key_command` of `local` in ");
        ended.assert_not_printed("secret");
        assert!(!folder.exists("runs"), "{script}");
    }
    for (command, words) in [
        ("key_command = [\"no-such-program-anywhere\"]".to_owned(), "can't be found"),
        (format!("key_command = [\"/bin/sh\", \"{}\"]", folder.at("job.yaml").display()), "in the workspace"),
    ] {
        configure(&folder, &server_config("openai-chat", "http://127.0.0.1:1/v1", &command));
        run(&folder).run().assert_code(5).assert_stderr_contains(words);
    }
}

/// Nothing that the command has started stays behind.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_the_command() {
    let folder = folder(JOB, "");
    let target = folder.at("pid");
    let script = format!("sleep 300 & echo $! > \"$HOME/pid\"; mv \"$HOME/pid\" '{}'; wait", target.display());
    let command = key_command(&folder, &script);
    configure(&folder, &server_config("openai-chat", "http://127.0.0.1:1/v1", &command));
    for (signal, code) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        let running = run(&folder).spawn();
        folder.wait_for("pid");
        running.signal(signal);
        running.wait().assert_code(code);
        let pid = folder.read("pid").trim().to_owned();
        std::fs::remove_file(folder.at("pid")).unwrap();
        // It was killed, and takes a moment to end.
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_left = || !stat().is_empty() && !stat().contains(") Z ");
        let begun = std::time::Instant::now();
        while is_left() && begun.elapsed() < std::time::Duration::from_secs(30) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!is_left(), "{signal:?}: {}", stat());
        assert!(!folder.exists("runs"));
    }
}

/// A command that fails later is tried again, because the run has done something already.
#[test]
fn a_command_that_fails_for_a_while_is_run_again() {
    let server = Server::with(Checks::None, |request: &Request| match request.header("x-api-key") {
        Some("short-lived-key-4") => Answer::text("Hello."),
        _ => Answer::status(401).error("authentication_error", "expired"),
    });
    let folder = folder(JOB, "");
    let failing =
        COUNTING.replace("; echo \"short", "; case $(wc -l < \"$HOME/calls\") in *2|*3) exit 1;; esac; echo \"short");
    let command = key_command(&folder, &failing);
    configure(&folder, &server_config("anthropic", &server.url(), &command));
    let ended = run(&folder).run();
    ended.assert_code(0).assert_stdout("Hello.\n");
    assert_eq!(calls(&folder), 4);
}

#[test]
fn mistakes_in_settings_are_found_without_showing_values() {
    let folder = folder(JOB, "");
    for (setting, code) in [
        ("headers = { Authorization = \"very-secret\" }", "api-key-in-file"),
        ("headers = { X-Api-Key = \"very-secret\" }", "api-key-in-file"),
        ("headers = { X-Team = \"Bearer very-secret\" }", "api-key-in-file"),
        ("headers = { X-Session-Token = \"very-secret\" }", "api-key-in-file"),
        ("headers = { Host = \"very-secret\" }", "invalid-value"),
        ("headers = { \"X Team\" = \"very-secret\" }", "invalid-value"),
        ("headers = { X-Team = \"\" }", "invalid-value"),
        ("headers = { X-Team = \"very-secret\\n\" }", "invalid-value"),
        ("headers = { X-Team = 1 }", "wrong-type"),
        ("headers = { X-Team = \"a\", x-team = \"b\" }", "duplicate-key"),
        ("headers = [\"very-secret\"]", "wrong-type"),
        ("headers = { X-Team = \"env:very-secret\" }", "bad-env-name"),
        ("headers = { X-Team = \"env:PATH\" }", "invalid-value"),
        ("query = { key = \"very-secret\" }", "api-key-in-file"),
        ("query = \"very-secret\"", "wrong-type"),
        ("key_command = \"echo very-secret\"", "wrong-type"),
        ("key_command = []", "invalid-value"),
        ("key_command = [1]", "wrong-type"),
        ("key_command = [\"./very-secret\"]", "invalid-value"),
        ("key_command = [\"echo\", \"sk-very-secret\"]", "api-key-in-file"),
        ("key_command = [\"echo\"]\nkey_ttl = \"very-secret\"", "bad-duration"),
        ("key_command = [\"echo\"]\nkey_env = \"SOME_KEY\"", "invalid-value"),
        ("key_ttl = \"1h\"", "invalid-value"),
        ("timeouts = \"10m\"", "wrong-type"),
        ("timeouts = { idle = 10 }", "wrong-type"),
        ("timeouts = { idle = \"very-secret\" }", "bad-duration"),
        ("timeouts = { idle = \"25h\" }", "out-of-range"),
        ("timeouts = { read = \"10m\" }", "unknown-key"),
        ("tries = 0", "out-of-range"),
        ("tries = 101", "out-of-range"),
        ("tries = \"3\"", "wrong-type"),
        ("client_cert = \"very-secret.pem\"", "invalid-value"),
        ("client_cert = 1", "wrong-type"),
        ("client_key = \"/very-secret.key\"", "invalid-value"),
    ] {
        configure(&folder, &server_config("openai-chat", "http://127.0.0.1:1/v1", setting));
        let ended = folder.legwork(&["validate", "job.yaml"]).run();
        ended.assert_stdout_contains(code).assert_not_printed("secret");
        assert_eq!(ended.full_output().matches("providers.toml:").count(), 1, "{setting}\n{}", ended.full_output());
        run(&folder).run().assert_code(5).assert_stderr_contains(code).assert_not_printed("secret");
    }
}

#[test]
fn tries_and_timeouts_are_those_of_the_file() {
    let folder = folder(JOB, "");
    for (tries, words) in [("1", "(tried once)"), ("3", "(tried 3 times)"), ("8", "(tried 8 times)")] {
        let server = Server::with(Checks::None, |_: &Request| Answer::status(500).error("api_error", "Broken."));
        configure(&folder, &server_config("anthropic", &server.url(), &format!("tries = {tries}")));
        run(&folder).run().assert_code(75).assert_stderr_contains(words);
        assert_eq!(server.count().to_string(), tries);
    }
    for (timeouts, words) in
        [("first_byte = \"1s\"", "didn't answer within 1s"), ("total = \"1s\"", "didn't finish its response within 1s")]
    {
        let server = Server::with(Checks::None, |_: &Request| Answer::text("never").hang());
        let settings = format!("tries = 1\ntimeouts = {{ {timeouts} }}");
        configure(&folder, &server_config("anthropic", &server.url(), &settings));
        run(&folder).run().assert_code(75).assert_stderr_contains(words);
    }
    let server = Server::with(Checks::None, |_: &Request| Answer::text("A long text.").cut_after_events(2).hang());
    configure(&folder, &server_config("anthropic", &server.url(), "tries = 1\ntimeouts = { idle = \"1s\" }"));
    run(&folder).run().assert_code(75).assert_stderr_contains("sent nothing for 1s");
    // The server accepts the connection and never speaks TLS.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("https://{}", listener.local_addr().unwrap());
    configure(&folder, &server_config("anthropic", &base_url, "tries = 1\ntimeouts = { connect = \"1s\" }"));
    let program = run(&folder).env("SSL_CERT_FILE", tls::file("authority.pem"));
    program.run().assert_code(75).assert_stderr_contains("timed out after 1s");
}

const REPLY: &str = r#"{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

#[test]
fn a_client_certificate_is_shown_to_the_server() {
    let folder = folder(JOB, "");
    let address = tls::start_for(Some("client.pem"), "right.pem", REPLY);
    let base_url = format!("https://{address}");
    let with = |settings: &str| {
        configure(&folder, &server_config("anthropic", &base_url, &format!("tries = 1\n{settings}")));
        let ended = run(&folder).env("SSL_CERT_FILE", tls::file("authority.pem")).run();
        ended.assert_not_printed("hidden-path").assert_not_printed("servers.key");
        ended
    };
    let above = folder.home().join("hidden-path");
    std::fs::create_dir(&above).unwrap();
    let copy = |name: &str, to: &str| std::fs::copy(tls::file(name), above.join(to)).unwrap();
    let key = std::fs::read_to_string(tls::file("servers.key")).unwrap();
    let secret = key.lines().nth(1).unwrap();
    copy("client.pem", "client.pem");
    copy("servers.key", "client.key");
    let ended = with("client_cert = \"~/hidden-path/client.pem\"\nclient_key = \"~/hidden-path/client.key\"");
    ended.assert_code(0).assert_stdout("Hello.\n").assert_not_printed(secret);
    ended.run_folder().assert_absent("hidden-path");
    ended.run_folder().assert_absent(secret);
    // Both in one file, by its absolute path.
    let both = std::fs::read_to_string(above.join("client.pem")).unwrap() + &key;
    std::fs::write(above.join("both.pem"), both).unwrap();
    let absolute = above.join("both.pem");
    with(&format!("client_cert = \"{}\"", absolute.display())).assert_code(0).assert_stdout("Hello.\n");
    // Without it, the server refuses the connection.
    assert!(!with("").exited_with(0));
    std::fs::remove_dir_all(folder.at("runs")).unwrap();

    std::fs::write(above.join("encrypted.key"), key.replace("PRIVATE", "ENCRYPTED PRIVATE")).unwrap();
    copy("right.pem", "other.pem");
    std::fs::write(above.join("large.pem"), "x".repeat((1 << 20) + 1)).unwrap();
    std::fs::copy(tls::file("servers.key"), folder.at("client.key")).unwrap();
    std::os::unix::fs::symlink(folder.path(), above.join("link")).unwrap();
    for (certificate, key, words) in [
        ("missing.pem", "client.key", "`client_cert` of `local` in "),
        ("client.pem", "missing.key", "`client_key` of `local` in "),
        ("client.pem", "client.pem", "don't have a certificate and its key"),
        ("client.key", "client.key", "don't have a certificate and its key"),
        ("client.pem", "encrypted.key", "has a password"),
        ("large.pem", "client.key", "is larger than 1048576 bytes"),
        (".", "client.key", "isn't a regular file"),
        ("client.pem", "link/client.key", "is in the workspace"),
    ] {
        let settings = format!("client_cert = \"~/hidden-path/{certificate}\"\nclient_key = \"~/hidden-path/{key}\"");
        with(&settings).assert_code(5).assert_stderr_contains(words).assert_not_printed(secret);
        assert!(!folder.exists("runs"), "{certificate} {key}");
    }
    configure(&folder, &server_config("anthropic", "http://127.0.0.1:1", "client_cert = \"~/hidden-path/both.pem\""));
    run(&folder).run().assert_code(5).assert_stderr_contains("needs an https:// address");
}

#[test]
fn an_auth_token_is_sent_as_a_bearer_token() {
    const TOKEN: &str = "an-auth-token-of-a-gateway";
    let server = Server::with(Checks::None, |request: &Request| {
        match (request.header("authorization"), request.header("x-api-key")) {
            (Some("Bearer an-auth-token-of-a-gateway"), None) => Answer::text(&format!("Hello {TOKEN}.")),
            _ => Answer::status(401).error("authentication_error", "Who?"),
        }
    });
    let folder = folder(&JOB.replace("local/some-model", "anthropic/claude-sonnet-4-5"), "");
    let with = |variables: &[(&str, &str)]| {
        let program = run(&folder).env("ANTHROPIC_BASE_URL", server.url());
        variables.iter().fold(program, |program, (name, value)| program.env(name, value)).run()
    };
    let ended = with(&[("ANTHROPIC_AUTH_TOKEN", TOKEN)]);
    ended.assert_code(0).assert_stdout("Hello [masked:ANTHROPIC_AUTH_TOKEN].\n").assert_not_printed(TOKEN);
    ended.run_folder().assert_absent(TOKEN);
    let both = with(&[("ANTHROPIC_AUTH_TOKEN", TOKEN), ("ANTHROPIC_API_KEY", KEY)]);
    both.assert_code(0).assert_stderr_contains("ANTHROPIC_AUTH_TOKEN and ANTHROPIC_API_KEY are both set");
    let empty = with(&[("ANTHROPIC_AUTH_TOKEN", ""), ("ANTHROPIC_API_KEY", KEY)]);
    empty.assert_code(5).assert_stderr_contains("the key came from ANTHROPIC_API_KEY");
    with(&[("ANTHROPIC_AUTH_TOKEN", "another-token")])
        .assert_code(5)
        .assert_stderr_contains("from ANTHROPIC_AUTH_TOKEN");
    with(&[("ANTHROPIC_AUTH_TOKEN", "two words")])
        .assert_code(5)
        .assert_stderr_contains("ANTHROPIC_AUTH_TOKEN contains");
    with(&[]).assert_code(5).assert_stderr_contains("ANTHROPIC_API_KEY is not set");
    folder.write("job.yaml", format!("{JOB}env: [ANTHROPIC_AUTH_TOKEN]\n"));
    with(&[]).assert_code(3).assert_stderr_contains("api-key-in-env");
}

#[test]
fn openai_requests_name_the_organization_and_the_project() {
    for model in ["openai/gpt-4.1", "openai-chat/gpt-4.1"] {
        let server = Server::with(Checks::None, |request: &Request| {
            let ids = ["openai-organization", "openai-project"].map(|name| request.header(name).unwrap_or("none"));
            Answer::text(&ids.join(" "))
        });
        let folder = folder(JOB, &server_config("openai", &format!("{}/v1", server.url()), ""));
        let with = |model: &str, ids: [&str; 2]| {
            let program = run(&folder).args(["--model", model]).env("OPENAI_BASE_URL", format!("{}/v1", server.url()));
            program.env("OPENAI_ORG_ID", ids[0]).env("OPENAI_PROJECT_ID", ids[1]).run()
        };
        with(model, ["org-1", "proj_2"]).assert_code(0).assert_stdout("org-1 proj_2\n");
        with(model, ["", "proj_2"]).assert_code(0).assert_stdout("none proj_2\n");
        with(model, ["org\n1", ""]).assert_code(5).assert_stderr_contains("OPENAI_ORG_ID contains");
        // A server of the user's own gets its own headers only.
        with("local/m", ["org-1", "proj_2"]).assert_code(0).assert_stdout("none none\n");
    }
}

/// The servers of the book's chapter, with the host replaced: path with query, header, and its value.
const BOOK: [(&str, &str, &str, &str); 8] = [
    ("azure", "/openai/v1/responses", "authorization", "Bearer the-key-in-the-environment"),
    ("azure-entra", "/openai/v1/responses", "authorization", "Bearer the-key-printed-by-az"),
    (
        "azure-classic",
        "/openai/deployments/MY-DEPLOYMENT/chat/completions?api-version=2024-10-21",
        "api-key",
        "the-key-in-the-environment",
    ),
    ("bedrock-claude", "/anthropic/v1/messages", "x-api-key", "the-key-in-the-environment"),
    ("bedrock", "/v1/chat/completions", "authorization", "Bearer the-key-in-the-environment"),
    (
        "vertex",
        "/v1/projects/MY-PROJECT/locations/global/endpoints/openapi/chat/completions",
        "authorization",
        "Bearer the-key-printed-by-gcloud",
    ),
    (
        "vertex-claude",
        "/v1/projects/MY-PROJECT/locations/global/publishers/anthropic/models/m:streamRawPredict",
        "authorization",
        "Bearer the-key-printed-by-gcloud",
    ),
    ("litellm", "/v1/chat/completions", "authorization", "Bearer the-key-in-the-environment"),
];

#[test]
fn the_clouds_of_the_book_get_what_they_expect() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    let server = Server::with(Checks::None, move |request: &Request| {
        let headers = ["authorization", "api-key", "x-api-key"].map(|name| {
            let value = request.header(name).map(str::to_owned);
            (name, value)
        });
        requests.lock().unwrap().push((request.path().to_owned(), headers));
        Answer::status(404).error("not_found_error", "No.")
    });
    let chapter =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/models-and-servers.md")).unwrap();
    let block = chapter.split("## Clouds and gateways").nth(1).unwrap().split("```toml\n").nth(1).unwrap();
    let host = |line: &str| match line.strip_prefix("base_url = \"").and_then(|url| url.split_once("://")) {
        Some((_, rest)) => format!("base_url = \"{}{}\n", server.url(), &rest[rest.find('/').unwrap()..]),
        None => format!("{line}\n"),
    };
    let servers: String = block.split("```").next().unwrap().lines().map(host).collect();
    assert_eq!(servers.matches("[providers.").count(), BOOK.len());
    let folder = folder(&JOB.replace("local/some-model", "azure/m"), &servers);
    let programs = folder.home().join("bin");
    std::fs::create_dir(&programs).unwrap();
    for name in ["az", "gcloud"] {
        let path = programs.join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho the-key-printed-by-{name}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, path, header, value) in BOOK {
        let mut program = run(&folder).args(["--model", &format!("{name}/m")]);
        for variable in ["AZURE_OPENAI_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "LITELLM_KEY"] {
            program = program.env(variable, "the-key-in-the-environment");
        }
        let path_variable = format!("{}:/usr/bin:/bin", programs.display());
        program.env("PATH", path_variable).run().assert_code(5).assert_not_printed("the-key");
        let (asked, headers) = seen.lock().unwrap().pop().unwrap();
        let found = headers.iter().find(|(known, _)| *known == header).and_then(|(_, value)| value.as_deref());
        assert_eq!((&*asked, found), (path, Some(value)), "{name}");
    }
}

#[test]
fn claude_on_vertex_has_its_model_in_the_address_and_a_renewed_key() {
    // The server checks each body, and that no header names the version of the API.
    let server = Server::start(|request: &Request| match request.turn() {
        0 => Answer::calls(&[("glob", serde_json::json!({ "pattern": "*.yaml" }))]).thinking("Where?", "c2lnbmF0dXJl"),
        _ => Answer::text("Done."),
    });
    let base = format!("{}/v1/projects/p/locations/global/publishers/anthropic/models", server.url());
    let model = "vertex-claude/claude-sonnet-4-5@20250929";
    let job = format!("model: {model}\nparent: {{ prompt: Go., tools: [glob] }}\nlimits: {{ cost_usd: 1 }}\n");
    let servers = format!(
        "[providers.vertex-claude]\napi = \"anthropic\"\nbase_url = \"{base}/\"\nkey_command = [\"print-key\"]\n"
    );
    let folder = folder(&job, &servers);
    let programs = folder.home().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let program = programs.join("print-key");
    std::fs::write(&program, format!("#!/bin/sh\necho {KEY}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run(&folder).env("PATH", format!("{}:/usr/bin:/bin", programs.display())).run();
    ended.assert_code(0).assert_stdout("Done.\n").assert_not_printed(KEY);
    let requests = server.finish();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(request.path().ends_with("/models/claude-sonnet-4-5@20250929:streamRawPredict"), "{}", request.path());
        let body = request.raw_body();
        assert_eq!((body.get("model"), &body["stream"]), (None, &serde_json::json!(true)), "{body}");
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
        assert_eq!(request.header("x-api-key"), None);
    }
    assert!(ended.run_folder().result()["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0));
}

/// The proxy doesn't work, so only a request that bypasses it reaches the server, whose certificate is for another name.
#[cfg(target_os = "linux")]
#[test]
fn no_proxy_excludes_ports() {
    // Not a loopback address, but it leads to one.
    let port = tls::start("other-name.pem", REPLY).port();
    let folder = folder(JOB, &server_config("anthropic", &format!("https://0.0.0.0:{port}"), "tries = 1"));
    let with = |no_proxy: &str| {
        let program = run(&folder).env("HTTPS_PROXY", "http://127.0.0.1:1").env("NO_PROXY", no_proxy);
        program.env("SSL_CERT_FILE", tls::file("authority.pem")).run()
    };
    for no_proxy in ["", "0.0.0.0:1", "*.0.0.0.0"] {
        with(no_proxy).assert_code(75).assert_stderr_contains("does the proxy in HTTPS_PROXY work");
    }
    for no_proxy in [format!("0.0.0.0:{port}"), format!("x, *.y:1, 0.0.0.0:{port}")] {
        with(&no_proxy).assert_code(5).assert_stderr_contains("is for another name");
    }
}
