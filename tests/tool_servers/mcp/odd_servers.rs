//! Servers with a fault that other clients tolerate, and hostile ones.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::transcript;
use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// A job with this server whose model makes these calls.
fn folder(server: &str, allow: &str, calls: &[&str], more: &str) -> TestFolder {
    let folder = TestFolder::new();
    let job = format!(
        "model: replay/job.script.yaml\nmcp:\n  s: {{ {server} }}\n{more}parent:\n  prompt: Go.\n  \
         tools: [{{ mcp: s, allow: {allow} }}]\n"
    );
    let turns: String = calls.iter().map(|call| format!("  - calls: [{{ tool: {call} }}]\n")).collect();
    folder.write("job.yaml", job).write("job.script.yaml", format!("parent:\n{turns}  - text: done\n"));
    folder.write("odd.py", include_str!("odd.py"));
    folder
}

fn program(mode: &str) -> String {
    format!("command: [/usr/bin/python3, odd.py, {mode}], timeout: 20s")
}

fn run(folder: &TestFolder) -> ProgramOutput {
    folder.legwork(&["run", "job.yaml"]).run()
}

/// What the transcript of a run with one call of `echo` has.
fn called(mode: &str) -> String {
    let folder = folder(&program(mode), "[echo]", &["s__echo, input: { text: hi }"], "");
    let ended = run(&folder);
    ended.assert_code(0);
    transcript(&ended)
}

/// A server with an address that ends with the test.
struct HttpServer(Child);

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn odd_answers_are_read() {
    for (mode, text) in [
        ("surrogate", "x \u{fffd} KNOWN"),
        ("bad-utf8", "caf\u{fffd} KNOWN"),
        ("no-content", "(no output)"),
        ("null-content", "(no output)"),
        ("text-content", "PLAIN"),
        ("unknown-content", "KNOWN\n\n[content of the kind `video` was left out]"),
        ("progress", "\n500 of 500\nready"),
        ("deep", "its answer can't be read: recursion limit exceeded"),
        ("other-ids", "KNOWN"),
        ("bytes", "KNOWN"),
        ("closes-within", "the server `s` gave no answer, so the effect of the call is unknown"),
        ("pages", "KNOWN"),
        ("stuck-cursor", "KNOWN"),
        ("empty-cursor", "KNOWN"),
        ("odd-tools", "KNOWN"),
        ("no-type", "KNOWN"),
        ("empty-schema", "KNOWN"),
        ("clear-schema", "KNOWN"),
        ("old-result", "KNOWN"),
        ("not-a-number", "{\"x\":null}"),
        ("control", "KNOWN"),
        ("lost-id", "Parse error: KNOWN"),
        ("no-version", "KNOWN"),
    ] {
        let transcript = called(mode);
        assert!(transcript.contains(text) && !transcript.contains("WRONG"), "{mode}: {transcript}");
    }
}

/// What the transcript of a run with one call of `echo` on a server with an address has.
fn called_over_http(mode: &str, kind: &str) -> String {
    let folder = folder("url: ADDRESS", "[echo]", &["s__echo, input: { text: hi }"], "");
    let mut command = Command::new("/usr/bin/python3");
    command.args(["odd.py", mode, kind]).current_dir(folder.path()).stdout(Stdio::piped());
    let mut server = HttpServer(command.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let address = format!("\"http://127.0.0.1:{}/mcp\", timeout: 20s", port.trim());
    folder.write("job.yaml", folder.read("job.yaml").replace("ADDRESS", &address));
    let ended = run(&folder);
    ended.assert_code(0);
    transcript(&ended)
}

#[test]
fn the_first_answer_of_an_address_in_the_newest_protocol_may_be_late() {
    let transcript = called_over_http("late", "json");
    assert!(transcript.contains("KNOWN"), "{transcript}");
}

#[test]
fn odd_answers_are_read_over_http() {
    for kind in ["json", "sse"] {
        for (mode, text) in [
            ("surrogate", "x \u{fffd} KNOWN"),
            ("bad-utf8", "caf\u{fffd} KNOWN"),
            ("no-content", "(no output)"),
            ("unknown-content", "[content of the kind `video` was left out]"),
            ("deep", "its answer can't be read: recursion limit exceeded"),
            ("stuck-cursor", "KNOWN"),
        ] {
            let transcript = called_over_http(mode, kind);
            assert!(transcript.contains(text), "{kind} {mode}: {transcript}");
        }
    }
}

#[test]
fn hostile_servers_are_refused() {
    for (mode, why) in [
        ("endless", "lists its tools on more than 1000 pages"),
        ("huge-schema", "has a schema of"),
        ("huge-list", "doesn't list its tools: legwork stopped it: it sent a message of more than 16 MiB"),
        ("notes", "it sent more than 64 MiB without an answer"),
    ] {
        let folder = folder(&program(mode), "[echo]", &[], "");
        run(&folder).assert_code(5).assert_stderr_contains(why);
    }
}

#[test]
fn the_start_of_servers_is_bounded_by_the_run_s_time_and_says_what_they_wrote() {
    let folder = folder(&program("pretty"), "[echo]", &[], "limits: { wall_clock: 2s }\n");
    let ended = run(&folder);
    ended.assert_code(4).assert_stderr_contains("the run's time is up (`wall_clock`)");
    ended.assert_stderr_contains("--limit wall_clock=");
    ended.assert_stderr_contains("lines to stdout that are no messages (JSON-RPC, one a line), the first of them: {");
}

#[test]
fn every_server_that_cannot_be_used_is_named() {
    let servers = "command: [no-such-program] }\n  t: { command: [sh, -c, \"exit 4\"] }\n  \
                   u: { url: \"https://127.0.0.1:1/\", headers: { X-Y: { env: NOT_SET } } }\n  \
                   v: { url: \"https://127.0.0.1:1/\", headers: { X-Y: { env: NOT_SET } }, required: false";
    let folder =
        folder(servers, "[a] }, { mcp: t, allow: [a] }, { mcp: u, allow: [a] }, { mcp: v, allow: [a]", &[], "");
    let ended = run(&folder);
    ended.assert_code(5);
    for why in [
        "the tool server `s` can't be started",
        "the tool server `t` didn't start: it ended with exit code 4",
        "the tool server `u` needs the variable NOT_SET",
    ] {
        ended.assert_stderr_contains(why);
    }
    ended.assert_not_printed("the tool server `v`");
    let optional = folder
        .read("job.yaml")
        .replace("  s:", "  w:")
        .replace("{ mcp: s, allow: [a] }, { mcp: t, allow: [a] }, { mcp: u, allow: [a] }, ", "");
    folder.write("job.yaml", optional);
    run(&folder)
        .assert_code(0)
        .assert_stderr_contains("`v` needs the variable NOT_SET, which isn't set; the run continues without it");
}

#[test]
fn tools_whose_names_models_cannot_have_get_others() {
    let allow = "[\"calendar.read\", calendar_read, \"user/*\", \"with space\", \"xxxxxxxx*\", \"\u{65e5}*\"]";
    let server = Server::start(|request: &Request| {
        let names = request.tools();
        match request.turn() {
            0 => {
                let other = names.iter().find(|name| name.starts_with("s__calendar_read_")).unwrap();
                Answer::empty().then_call(other, &json!({ "text": "dotted" }))
            }
            1 => Answer::empty().then_call("s__user_update", &json!({})),
            _ => {
                assert_eq!(names.len(), 6, "{names:?}");
                assert!(names.iter().all(|name| name.len() <= 64 && name.is_ascii()), "{names:?}");
                Answer::text("done")
            }
        }
    });
    let folder = folder(&program("names"), allow, &[], "");
    folder.write("job.yaml", folder.read("job.yaml").replace("replay/job.script.yaml", "anthropic/claude-sonnet-5-5"));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0);
    let transcript = transcript(&ended);
    assert!(transcript.contains(r#"KNOWN {"text": "dotted"}"#) && transcript.contains("KNOWN {}"), "{transcript}");
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
    folder.legwork(&["replay"]).run().assert_code(0).assert_stdout_contains("equal");
    // The lock file has the server's own names, and a script those of the model.
    folder.legwork(&["mcp", "lock", "job.yaml"]).run().assert_code(0).assert_stderr_contains("6 tools of 1 server");
    let lock = folder.read("job.mcp.lock.json");
    assert!(lock.contains("\"calendar.read\"") && lock.contains("\"with space\""), "{lock}");
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
    let script =
        "mcp: [s]\nparent:\n  - calls: [{ tool: s__user_update, input: {}, answer: scripted }]\n  - text: done\n";
    folder.write("other.script.yaml", script);
    let scripted = folder.legwork(&["run", "job.yaml", "--model", "replay/other.script.yaml"]).run();
    scripted.assert_code(0);
    assert!(super::transcript(&scripted).contains("scripted"));
}

#[test]
fn models_get_schemas_that_every_provider_accepts() {
    let apis: [(&str, &str); 4] = [
        ("anthropic/claude-sonnet-5-5", "/tools/0/input_schema"),
        ("openai/gpt-5.4", "/tools/0/parameters"),
        ("openai-chat/m", "/tools/0/function/parameters"),
        ("gemini/gemini-3-pro", "/tools/0/functionDeclarations/0/parametersJsonSchema"),
    ];
    for (model, pointer) in apis {
        for mode in ["no-properties", "odd-keys", "only-reference"] {
            let at = pointer.to_owned();
            let server = Server::start(move |request: &Request| {
                let schema = request.raw_body().pointer(&at).unwrap_or_else(|| panic!("{at}: {}", request.raw_body()));
                assert_eq!(schema["type"], "object");
                check_properties(schema);
                Answer::text("done")
            });
            let folder = folder(&program(mode), "[echo]", &[], "");
            folder.write("job.yaml", folder.read("job.yaml").replace("replay/job.script.yaml", model));
            let program = folder.legwork(&["run", "job.yaml"]);
            program.anthropic(&server).openai(&server).gemini(&server).run().assert_code(0);
        }
    }
}

/// Checks the properties of a schema and of those in it.
fn check_properties(schema: &Value) {
    if schema["type"] == "array" {
        assert!(schema.get("items").is_some(), "{schema}");
    }
    if schema["type"] == "object" {
        for (name, property) in schema["properties"].as_object().unwrap_or_else(|| panic!("{schema}")) {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
            assert!(name.len() <= 64 && name.bytes().all(is_plain), "{name}");
            check_properties(property);
        }
    }
}

#[test]
fn a_call_has_the_server_s_own_names_of_properties() {
    let call = "s__echo, input: { _filter: f, a_b: { c_d: [1] }, other: { _filter: g } }";
    let folder = folder(&program("odd-keys"), "[echo]", &[call], "");
    let ended = run(&folder);
    ended.assert_code(0);
    let expected = r#"KNOWN {"$filter": "f", "a b": {"c/d": [1]}, "other": {"_filter": "g"}}"#;
    assert!(transcript(&ended).contains(expected), "{}", transcript(&ended));
}

#[test]
fn a_server_gets_the_values_that_a_job_declares() {
    for env in ["{ LOG_LEVEL: debug }", "[{ LOG_LEVEL: debug }]", "[MY_TOKEN, { LOG_LEVEL: debug }]"] {
        let server = format!("{}, env: {env}", program("variables"));
        let folder = folder(&server, "[echo]", &["s__echo"], "");
        folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
        let ended = folder.legwork(&["run", "job.yaml"]).env("MY_TOKEN", "hunter2-hunter2").run();
        ended.assert_code(0);
        let token = if env.contains("MY_TOKEN") { "[masked:MY_TOKEN]" } else { "None" };
        assert!(transcript(&ended).contains(&format!("KNOWN debug {token}")), "{}", transcript(&ended));
        assert_eq!(ended.run_folder().plan()["mcp"]["s"]["env_values"]["LOG_LEVEL"], "debug");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_with_another_network_keeps_its_home_and_temporary_folders() {
    use crate::boundary::sandbox::path_without_bwrap;

    for bubblewrap in [true, false] {
        let server = format!("{}, network: open", program("scratch"));
        let folder =
            folder(&server, "[echo]", &["s__echo", "s__echo"], "inputs: { n: { type: string, default: a } }\n");
        let path = path_without_bwrap(&folder);
        let legwork = |arguments: &[&str]| {
            let program = folder.legwork(arguments);
            if bubblewrap { program } else { program.env("PATH", &path) }
        };
        let ended = legwork(&["run", "job.yaml"]).run();
        ended.assert_code(0);
        assert_eq!(transcript(&ended).matches("KNOWN links=True").count(), 2, "{}", transcript(&ended));
        // Killed before the second call, and resumed.
        let killed = legwork(&["run", "job.yaml"]).env("LEGWORK_KILL_AFTER", "8").run();
        assert_eq!(killed.signal(), Some(9), "{}", killed.full_output());
        let resumed = legwork(&["resume", "latest"]).run();
        resumed.assert_code(0);
        assert!(transcript(&resumed).contains("KNOWN links=True"), "{}", transcript(&resumed));
        folder.write("rows.csv", "n\na\nb\n");
        let rows = legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "n"]).run();
        rows.assert_code(0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn tools_are_locked_without_bubblewrap_and_without_records() {
    use crate::boundary::sandbox::path_without_bwrap;

    let folder = folder(&program("plain"), "[echo]", &[], "");
    assert!(!folder.at("runs").exists());
    let ended = folder.legwork(&["mcp", "lock", "job.yaml"]).env("PATH", path_without_bwrap(&folder)).run();
    ended.assert_code(0).assert_stderr_contains("1 tool of 1 server");
    assert!(!folder.at("runs").exists());
}
