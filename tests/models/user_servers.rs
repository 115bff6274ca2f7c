//! User-defined servers in `providers.toml`, and all places that accept their names.

use serde_json::{Value, json};

use crate::support::program::Program;
use crate::support::server::{Answer, Checks, KEY, Request, ScriptedAgents, Server};
use crate::support::tcp_peer::ClosedPort;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: local/some-model\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n";

/// The APIs of servers, and the suffixes of their base addresses.
const APIS: [(&str, &str); 4] = [("anthropic", ""), ("openai", "/v1"), ("openai-chat", "/v1"), ("gemini", "")];

/// A folder with a job, and with this `providers.toml` in the home folder.
fn folder(servers: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB);
    configure(&folder, servers);
    folder
}

pub(crate) fn configure(folder: &TestFolder, servers: &str) {
    let above = folder.home().join(".config/legwork");
    std::fs::create_dir_all(&above).and_then(|()| std::fs::write(above.join("providers.toml"), servers)).unwrap();
}

pub(crate) fn server_config(api: &str, base_url: &str, rest: &str) -> String {
    format!("[providers.local]\napi = \"{api}\"\nbase_url = \"{base_url}\"\n{rest}\n")
}

fn run(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml"])
}

/// A context window belongs to a model, not to its spelling. The user's file can set it, and `--model` keeps it.
#[test]
fn a_context_window_is_kept_for_the_same_model() {
    let folder = folder(&server_config("openai-chat", "http://127.0.0.1:1/v1", "context = { small = 16384 }"));
    let job = "model: { name: openai-chat/m, context: 9000, temperature: 0.5 }\nparent: { prompt: Go., tools: [] }\n\
               limits: { tokens: 100000 }\n";
    folder.write("job.yaml", job);
    let window = |model: &str| {
        let plan = run(&folder).args(["--model", model, "--dry-run", "--format", "json"]).run();
        plan.assert_code(0);
        (plan.json()["parent"]["model"]["context"].clone(), plan.stderr.contains("context"))
    };
    assert_eq!(window("openai-chat/m"), (json!(9000), false));
    assert_eq!(window("openai-chat/other"), (Value::Null, true));
    assert_eq!(window("local/small"), (json!(16384), true));
    assert_eq!(window("local/large"), (Value::Null, true));
    // The job's own value takes precedence.
    folder.write("job.yaml", JOB.replace("some-model", "small"));
    run(&folder).arg("--dry-run").run().assert_code(0).assert_stdout_contains("context 16384");
    folder.write("job.yaml", JOB.replace("local/some-model", "{ name: local/small, context: 500000 }"));
    run(&folder).arg("--dry-run").run().assert_code(0).assert_stdout_contains("context 500000");
}

#[test]
fn a_user_server_gets_its_key() {
    for (api, end) in APIS {
        let server = Server::start(ScriptedAgents::of([Answer::text("Hello.")]));
        let folder = folder(&server_config(api, &format!("{}{end}", server.url()), "key_env = \"LOCAL_KEY\""));
        // The variables of the API's built-in provider apply only to that provider.
        let ended = run(&folder)
            .env("LOCAL_KEY", KEY)
            .env("OPENAI_BASE_URL", "http://127.0.0.1:1")
            .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
            .env("OPENAI_API_KEY", "another-key-altogether")
            .env("ANTHROPIC_API_KEY", "another-key-altogether")
            .run();
        ended.assert_code(0).assert_stdout("Hello.\n").assert_not_printed(KEY);
        let record = ended.run_folder();
        record.assert_absent(KEY);
        record.assert_absent("another-key");
        let result = record.result();
        assert_eq!((&result["model"], &result["cost_usd"]), (&json!("local/some-model"), &Value::Null), "{api}");
        let plan: Value =
            serde_json::from_str(&std::fs::read_to_string(record.path().join("plan.json")).unwrap()).unwrap();
        assert_eq!(plan["parent"]["model"]["server"], json!({"api": api, "is_official": false}));
        assert_eq!(server.finish().len(), 1);
        let by_argument = run(&folder).args(["--model", "local/other", "--dry-run"]).run();
        by_argument.assert_code(0).assert_stdout_contains("local/other");
    }
}

#[test]
fn no_key_is_sent_if_none_is_configured() {
    for (api, end) in APIS {
        let server = Server::with(Checks::None, |request: &Request| {
            match ["authorization", "x-api-key", "x-goog-api-key"].map(|name| request.header(name)) {
                [None, None, None] => Answer::text("Hello."),
                _ => Answer::status(400),
            }
        });
        let folder = folder(&server_config(api, &format!("{}{end}", server.url()), ""));
        run(&folder)
            .env("OPENAI_API_KEY", KEY)
            .env("ANTHROPIC_API_KEY", KEY)
            .env("GEMINI_API_KEY", KEY)
            .run()
            .assert_code(0)
            .assert_stdout("Hello.\n");
        let refusing =
            Server::with(Checks::None, |_: &Request| Answer::status(401).error("authentication_error", "Who?"));
        configure(&folder, &server_config(api, &format!("{}{end}", refusing.url()), ""));
        run(&folder)
            .run()
            .assert_code(5)
            .assert_stderr_contains("no key was sent")
            .assert_stderr_contains("`key_env` of `local` in ");
    }
}

#[test]
fn a_missing_key_is_reported_before_the_run_starts() {
    for (api, _) in APIS {
        let folder = folder(&server_config(api, "http://127.0.0.1:1", "key_env = \"LOCAL_KEY\""));
        run(&folder).run().assert_code(5).assert_stderr_contains("LOCAL_KEY is not set");
        run(&folder).env("LOCAL_KEY", "").run().assert_code(5).assert_stderr_contains("LOCAL_KEY is set, but empty");
        run(&folder)
            .env("LOCAL_KEY", "two words")
            .run()
            .assert_code(5)
            .assert_stderr_contains("LOCAL_KEY contains a space")
            .assert_not_printed("two words");
        assert!(!folder.exists("runs"));
    }
}

#[test]
fn errors_name_the_server_and_the_file() {
    for (api, _) in APIS {
        let closed = ClosedPort::hold();
        let port = closed.address().port();
        let folder = folder(&server_config(api, &format!("http://127.0.0.1:{port}/v1"), ""));
        let ended = run(&folder).env("LEGWORK_RETRY_BASE_MS", "1").run();
        ended
            .assert_code(75)
            .assert_stderr_contains("refused")
            .assert_stderr_contains("is the server running, and is `base_url` of `local` in ");
        ended.assert_stderr_contains("providers.toml").assert_not_printed("_BASE_URL");
        let server = Server::with(Checks::None, |_: &Request| {
            Answer::status(404).error("not_found_error", "No such model.").nonstandard()
        });
        configure(&folder, &server_config(api, &server.url(), ""));
        let ended = run(&folder).run();
        ended
            .assert_code(5)
            .assert_stderr_contains("is `some-model` the model's name")
            .assert_stderr_contains("`base_url` of `local` in ");
        ended.assert_not_printed("_BASE_URL");
    }
}

#[test]
fn the_folder_follows_the_xdg_specification() {
    let server = Server::with(Checks::None, |_: &Request| Answer::text("Hello."));
    let folder = TestFolder::new();
    folder
        .write("job.yaml", JOB)
        .write("../conf/legwork/providers.toml", server_config("anthropic", &server.url(), ""));
    run(&folder)
        .run()
        .assert_code(3)
        .assert_stderr_contains("unknown-provider")
        .assert_stderr_contains("/.config/legwork/providers.toml");
    run(&folder)
        .env("XDG_CONFIG_HOME", "../conf")
        .run()
        .assert_code(3)
        .assert_stderr_contains("/.config/legwork/providers.toml");
    run(&folder).env("XDG_CONFIG_HOME", folder.at("../conf")).run().assert_code(0);
    run(&folder).env_remove("HOME").run().assert_code(3).assert_stderr_contains("in providers.toml");
    configure(&folder, &server_config("anthropic", "http://127.0.0.1:1", ""));
    run(&folder).env("XDG_CONFIG_HOME", folder.at("../conf")).run().assert_code(0);
}

#[test]
fn an_unknown_server_name_says_where_to_define_it() {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB);
    let file = folder.home().join(".config/legwork/providers.toml").display().to_string();
    let ended = folder.legwork(&["validate", "job.yaml"]).run();
    ended
        .assert_code(3)
        .assert_stdout_contains("error[unknown-provider]")
        .assert_stdout_contains("[providers.NAME]")
        .assert_stdout_contains(&file);
    run(&folder).args(["--model", "replay/x.yaml"]).run().assert_code(3).assert_stderr_contains("unknown-provider");
    configure(&folder, &server_config("openai", "http://127.0.0.1:1", ""));
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0).assert_stdout("");
    folder.write("job.yaml", JOB.replace("local", "locla"));
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("did you mean `local`?");
    folder.legwork(&["validate", "--fix", "job.yaml"]).run().assert_code(0);
    assert_eq!(folder.read("job.yaml"), JOB);
}

#[test]
fn a_broken_file_stops_only_commands_that_need_it() {
    let folder =
        folder("[providers.local]\napi = \"openai-cat\"\nbaseurl = 'http://h'\napi_key = \"sk-very-secret\"\n");
    folder.write("other.yaml", JOB.replace("local/some-model", "anthropic/claude-haiku-4-5").replace("tools", "tolls"));
    folder.write("tour.script.yaml", "parent: [{ text: Hello. }]\n");
    for arguments in [
        ["run", "job.yaml"].as_slice(),
        &["run", "job.yaml", "--dry-run"],
        &["run", "job.yaml", "--model", "replay/tour.script.yaml"],
        &["providers"],
    ] {
        let ended = folder.legwork(arguments).run();
        ended
            .assert_code(5)
            .assert_stdout("")
            .assert_stderr_contains("providers.toml:2:7")
            .assert_stderr_contains("did you mean `openai-chat`?");
        ended
            .assert_stderr_contains("providers.toml:3:1")
            .assert_stderr_contains("api-key-in-file")
            .assert_not_printed("very-secret");
    }
    let ended = folder.legwork(&["validate", "job.yaml", "other.yaml", "--format", "json"]).run();
    ended.assert_code(3).assert_not_printed("very-secret");
    let found = ended.json();
    let codes: Vec<&str> =
        found["diagnostics"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect();
    assert_eq!(codes[..3], ["unknown-value", "unknown-key", "api-key-in-file"]);
    assert!(!codes.contains(&"unknown-provider") && codes.len() > 3, "{codes:?}");
    // The servers in the file are unknown, so there are no findings about them.
    let limited = JOB.replace("tokens: 100000", "cost_usd: 1");
    folder.write("job.yaml", JOB).write("limited.yaml", limited);
    for job in ["job.yaml", "limited.yaml"] {
        let found = folder.legwork(&["validate", job, "--format", "json"]).run().json();
        let codes: Vec<&Value> = found["diagnostics"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
        assert_eq!(codes, ["unknown-value", "unknown-key", "api-key-in-file"]);
    }
    for format in ["text", "github", "sarif"] {
        folder
            .legwork(&["validate", "job.yaml", "--format", format])
            .run()
            .assert_code(3)
            .assert_not_printed("very-secret");
    }
    folder.legwork(&["explain", "api-key-in-file"]).run().assert_code(0);
    folder.legwork(&["schema"]).run().assert_code(0).assert_stderr("");
}

#[test]
fn an_unreadable_file_or_a_folder_in_its_place_is_reported() {
    let folder = folder("\u{0}");
    run(&folder).run().assert_code(5).assert_stderr_contains("toml-syntax");
    let file = folder.home().join(".config/legwork/providers.toml");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    run(&folder).run().assert_code(5).assert_stderr_contains("not-utf8");
    // Secrets can be next to any syntax error, so errors must not quote the file.
    let secret = server_config("openai", "http://me:hush-hush-\u{e4}@host", "");
    let latin: Vec<u8> = secret.chars().map(|letter| u8::try_from(letter).unwrap()).collect();
    let wide: Vec<u8> = "\u{feff}".encode_utf16().chain(secret.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    for bytes in [latin, wide, format!("{secret}# me:hush-hush\0").into_bytes()] {
        std::fs::write(&file, bytes).unwrap();
        run(&folder)
            .run()
            .assert_code(5)
            .assert_stderr_contains("providers.toml:")
            .assert_stderr_contains("save ")
            .assert_not_printed("hush")
            .assert_not_printed("h␀u");
    }
    std::fs::write(&file, "#".repeat(5 << 20)).unwrap();
    run(&folder)
        .run()
        .assert_code(5)
        .assert_stderr_contains("too-large")
        .assert_stderr_contains("help: is it the right file?");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    run(&folder).run().assert_code(5).assert_stderr_contains("it is a folder");
    // The file may define the server that a job names.
    let validated = folder.legwork(&["validate", "job.yaml"]).run();
    validated
        .assert_code(3)
        .assert_stdout_contains("it is a folder")
        .assert_stdout_contains("or remove it")
        .assert_stdout_contains("1 error\n");
}

#[test]
fn its_key_is_treated_like_a_providers_key() {
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[
            ("bash", json!({"command": "env; cat found.txt"})),
            ("read_file", json!({"path": "found.txt"})),
        ]),
        Answer::text("Done."),
    ]));
    let folder = folder(&server_config("anthropic", &server.url(), "key_env = \"MY_LLM\""));
    let job = "model: local/m\nparent: { prompt: Go., tools: [bash, read_file] }\nlimits: { tokens: 100000 }\n";
    folder.write("job.yaml", job).write("found.txt", format!("left here: {KEY}\n"));
    let ended = run(&folder).env("MY_LLM", KEY).run();
    ended.assert_code(0).assert_not_printed(KEY);
    ended.run_folder().assert_absent(KEY);
    let results = server.finish()[1].results();
    assert!(results.iter().all(|result| result.text.contains("left here: [masked:MY_LLM]")), "{results:?}");
    assert!(!results[0].text.contains("MY_LLM="), "{results:?}");
    for name in ["MY_LLM", "my_llm"] {
        folder.write("job.yaml", format!("{job}env: [{name}]\n"));
        folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("error[api-key-in-env]");
        run(&folder).env("MY_LLM", KEY).run().assert_code(3).assert_stderr_contains("api-key-in-env");
    }
}

#[test]
fn the_password_in_its_address_is_sent_and_never_shown() {
    for (api, end) in APIS {
        let server = Server::with(Checks::None, |request: &Request| match request.header("authorization") {
            Some("Basic bWU6aHVzaC1odXNoLWh1c2g=") => {
                Answer::status(418).error("teapot", "hush-hush-hush is wrong").nonstandard()
            }
            _ => Answer::text("unknown"),
        });
        let base = format!("http://me:hush-hush-hush@{}{end}", server.address());
        let folder = folder(&server_config(api, &base, ""));
        folder.write("found.txt", "hush-hush-hush");
        let ended = run(&folder).run();
        ended.assert_code(5).assert_stderr_contains("418").assert_not_printed("hush");
        ended.run_folder().assert_absent("hush");
        folder
            .legwork(&["providers"])
            .run()
            .assert_code(0)
            .assert_not_printed("hush")
            .assert_not_printed("me:")
            .assert_stdout_contains(&server.url());
    }
}

#[test]
fn its_models_are_priced_by_name() {
    let limited = |model: &str| {
        format!("model: local/{model}\nparent: {{ prompt: Go., tools: [] }}\nlimits: {{ cost_usd: 1 }}\n")
    };
    let folder = folder(&server_config("anthropic", "https://llm.example", "key_env = \"TEAM_KEY\""));
    folder.write("job.yaml", limited("claude-haiku-4-5"));
    let validate = || folder.legwork(&["validate", "job.yaml"]).run();
    validate().assert_code(0).assert_stdout("");
    run(&folder).arg("--dry-run").run().assert_code(0).assert_stdout_contains("$1.00");
    folder.write("job.yaml", limited("nonesuch"));
    validate().assert_code(3).assert_stdout_contains("unknown-price").assert_stdout_contains("limit `tokens`");
    configure(&folder, &server_config("anthropic", "http://localhost:1", ""));
    validate()
        .assert_code(0)
        .assert_stdout_contains("warning[untracked-cost]")
        .assert_stdout_contains("[models.\"local/nonesuch\"]");
    run(&folder)
        .arg("--dry-run")
        .run()
        .assert_code(0)
        .assert_stdout_contains("limits.cost_usd covers only models with a price");
}

#[test]
fn a_run_resumes_at_the_server_that_the_file_names_now() {
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.turn() {
        0 => Answer::calls(&[("glob", json!({"pattern": "*"}))]),
        _ => Answer::text("Over."),
    });
    let folder = folder(&server_config("openai-chat", "http://127.0.0.1:1/v1", "key_env = \"LOCAL_KEY\""));
    folder.write("job.yaml", JOB.replace("[]", "[glob]"));
    configure(&folder, &server_config("openai-chat", &format!("{}/v1", server.url()), "key_env = \"LOCAL_KEY\""));
    let cut = run(&folder).env("LOCAL_KEY", KEY).env("LEGWORK_KILL_AFTER", "4").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    configure(&folder, "");
    let gone = folder.legwork(&["resume", "latest"]).env("LOCAL_KEY", KEY).run();
    gone.assert_code(5)
        .assert_stderr_contains("there is no provider `local`")
        .assert_stderr_contains("legwork providers");
    configure(&folder, &server_config("openai-chat", &format!("{}/v1", server.url()), "key_env = \"NEW_KEY\""));
    folder.legwork(&["resume", "latest"]).env("NEW_KEY", KEY).run().assert_code(0).assert_stdout("Over.\n");
    server.finish();
    // Commands without requests need only the record.
    configure(&folder, "[broken");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    folder.legwork(&["replay", "latest", "--job", "job.yaml"]).run().assert_code(0);
    folder.legwork(&["show", "latest"]).run().assert_code(0).assert_stdout_contains("Over.");
    folder.legwork(&["replay", "latest", "--tools"]).run().assert_code(5).assert_stderr_contains("toml-syntax");
}

#[test]
fn cases_can_use_server_names() {
    let folder = folder(&server_config("openai", "http://127.0.0.1:1", ""));
    folder.write("tests/job/one/script.yaml", "parent: [{ text: Hello. }]\n");
    folder.write("tests/job/one/expect.yaml", "outcome: completed\n");
    folder.legwork(&["test", "job.yaml"]).run().assert_code(0).assert_stdout_contains("1 ");
    configure(&folder, "");
    folder.legwork(&["test", "job.yaml"]).run().assert_code(3).assert_stderr_contains("unknown-provider");
}

#[test]
fn no_tool_can_change_the_file_in_the_workspace() {
    let call = json!({ "tool": "write_file", "input": { "path": "conf/legwork/providers.toml", "content": "evil" }, "mistaken": true });
    let folder = TestFolder::new();
    let text = server_config("anthropic", "http://127.0.0.1:1", "key_env = \"LOCAL_KEY\"");
    folder.write("script.yaml", json!({ "parent": [{ "calls": [call] }, { "text": "Over." }] }).to_string());
    folder.write("job.yaml", JOB.replace("[]", "[write_file]")).write("conf/legwork/providers.toml", &text);
    let run = || run(&folder).env("XDG_CONFIG_HOME", folder.at("conf")).env("LOCAL_KEY", KEY);
    // A model of another provider uses nothing in it.
    run().args(["--model", "replay/script.yaml"]).run().assert_code(0);
    assert_eq!(folder.read("conf/legwork/providers.toml"), text);
    run().run().assert_code(2).assert_stderr_contains("it is in the workspace or its repository");
}

#[test]
fn all_providers_are_listed_without_their_keys() {
    let folder = TestFolder::new();
    let none = folder.legwork(&["providers"]).run();
    none.assert_code(0)
        .assert_stdout_contains("https://api.anthropic.com")
        .assert_stdout_contains("OPENAI_API_KEY (not set)");
    none.assert_stdout_contains("https://api.openai.com/v1").assert_stdout_contains("a script or a recorded run");
    none.assert_stderr_contains("add your own servers to ").assert_stderr_contains("/.config/legwork/providers.toml");
    configure(
        &folder,
        &format!(
            "{}[providers.b]\napi = \"anthropic\"\nbase_url = \"https://h/a?key=secret\"\nkey_env = \"B_KEY\"\n",
            server_config("openai-chat", "http://127.0.0.1:8080/v1/", "")
        ),
    );
    let list = |format: &str| {
        let program = folder.legwork(&["providers", "--format", format]).env("B_KEY", KEY);
        let ended = program.env("OPENAI_BASE_URL", "http://me:secret@gateway.example/v1").run();
        ended.assert_code(0).assert_stderr("").assert_not_printed(KEY).assert_not_printed("secret");
        ended
    };
    let text = list("text");
    text.assert_stdout_contains("http://gateway.example/v1 (OPENAI_BASE_URL)").assert_stdout_contains("B_KEY (set)");
    let row = text.stdout.lines().find(|line| line.starts_with("local ")).unwrap();
    assert!(
        row.contains("openai-chat") && row.contains("http://127.0.0.1:8080/v1 (") && row.ends_with("no key"),
        "{row}"
    );
    let empty = |format: &str| {
        let program = folder.legwork(&["providers", "--format", format]).env("B_KEY", "").env("GOOGLE_API_KEY", "");
        program.env("GEMINI_API_KEY", KEY).run()
    };
    empty("text").assert_stdout_contains("B_KEY (set, but empty)").assert_stdout_contains("GEMINI_API_KEY (set)\n");
    let found = empty("json").json();
    let b = found["providers"].as_array().unwrap().iter().find(|one| one["name"] == "b").unwrap();
    assert_eq!(b["key"], json!({"variable": "B_KEY", "is_set": true, "is_empty": true}));
    let json = list("json").json();
    assert_eq!(json["format"], 1);
    let of = |name: &str| json["providers"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
    assert_eq!(
        of("anthropic"),
        json!({"name": "anthropic", "built_in": true, "api": "anthropic", "address": "https://api.anthropic.com",
               "address_from": null, "key": {"variable": "ANTHROPIC_API_KEY", "is_set": false, "is_empty": false},
               "key_command": false})
    );
    assert_eq!(
        (&of("b")["address"], &of("b")["key"]),
        (&json!("https://h/a"), &json!({"variable": "B_KEY", "is_set": true, "is_empty": false}))
    );
    assert_eq!(
        (&of("local")["key"], &of("replay")["api"], &of("local")["built_in"]),
        (&Value::Null, &Value::Null, &json!(false))
    );
    let odd = folder.legwork(&["providers"]).env("OPENAI_BASE_URL", "gateway").run();
    odd.assert_code(0).assert_stdout_contains("OPENAI_BASE_URL isn't an http:// or https:// address");
}
