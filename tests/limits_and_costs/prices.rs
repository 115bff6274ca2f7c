//! Prices of models: the command that shows them, and user-defined prices.

use serde_json::{Value, json};

use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

const USER_PRICES: &str = "\
[models.\"openai-chat/some-model\"]
input = 100
output = 1000
cache_read = 10

[[models.\"openai-chat/some-model\".tiers]]
above = 1000
input = 200
";

/// The server for `local/...` models.
const SERVER: &str = "[providers.local]\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";

fn folder(own: &str) -> TestFolder {
    let folder = TestFolder::new();
    if !own.is_empty() {
        let configuration = folder.home().join(".config/legwork");
        std::fs::create_dir_all(&configuration).unwrap();
        std::fs::write(configuration.join("providers.toml"), SERVER).unwrap();
        std::fs::write(configuration.join("prices.toml"), own).unwrap();
    }
    folder
}

fn job(limits: &str) -> String {
    format!("model: openai-chat/some-model\nparent: {{ prompt: Go., tools: [] }}\nlimits: {{ {limits} }}\n")
}

fn prices_of(folder: &TestFolder, arguments: &[&str]) -> Program {
    folder.legwork(&["prices"]).args(arguments)
}

fn prices(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    prices_of(folder, arguments).run()
}

fn rates(answer: &ProgramOutput) -> Vec<Value> {
    answer.json()["models"].as_array().unwrap().iter().map(|model| model["rates"].clone()).collect()
}

#[test]
fn a_model_is_shown_with_its_price_source_window_and_rates() {
    let folder = TestFolder::new();
    let shown = prices(&folder, &["anthropic/claude-sonnet-4-5-20250929"]);
    shown.assert_code(0).assert_stderr("");
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines[0], "anthropic/claude-sonnet-4-5-20250929");
    assert!(lines[1].starts_with("  source  genai-prices 0.") && lines[1].ends_with(", as of 2026-10-30"), "{lines:?}");
    assert_eq!(
        lines[2..],
        [
            "  listed  as claude-sonnet-4-5",
            "  window  200,000 tokens",
            "  $ per million tokens          input  output  cache read  cache write",
            "  prompts up to 200,000 tokens   3.00   15.00        0.30         3.75",
            "  prompts over 200,000 tokens    6.00   22.50        0.60         7.50",
        ]
    );
    let models = ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4.1", "openai/gpt-4.1", "replay/x.yaml"];
    let answer = prices(&folder, &[&models[..], &["--format", "json"]].concat());
    answer.assert_code(0).assert_stderr("");
    let rates = rates(&answer);
    assert_eq!(
        rates[0][1],
        json!({"above": 200_000, "input": 6.0, "output": 22.5, "cache_read": 0.6, "cache_write": 7.5})
    );
    assert_eq!(rates[1], rates[2]);
    assert_eq!(rates[3], json!([{"above": 0, "input": 0.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0}]));
    let sources: Vec<Value> =
        answer.json()["models"].as_array().unwrap().iter().map(|model| model["source"].clone()).collect();
    assert_eq!(sources, ["table", "table", "table", "replay"]);
}

#[test]
fn an_unknown_price_is_reported_with_a_reason() {
    let folder = TestFolder::new();
    let near = prices(&folder, &["anthropic/claude-haiku-4-6", "anthropic/claude-haiku-4-5"]);
    near.assert_code(1).assert_stdout_contains("unknown: not in the price table").assert_stdout_contains("5.00");
    near.assert_stderr_contains("did you mean `anthropic/claude-haiku-4-5`?")
        .assert_stderr_contains(".config/legwork/prices.toml");
    let json = prices(&folder, &["openai/none-such", "--format=json"]);
    json.assert_code(1).assert_stderr("");
    assert_eq!(json.json()["models"][0]["source"], Value::Null);
    prices(&folder, &["anthropik/claude-haiku-4-5"])
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("did you mean `anthropic`?");
    prices(&folder, &["antropic"]).assert_code(2).assert_stdout("").assert_stderr_contains("Did you mean `anthropic`?");
    prices(&folder, &["claude-haiku-4-5"]).assert_code(2).assert_stderr_contains("write `anthropic/claude-haiku-4-5`");
}

#[test]
fn prices_at_other_addresses_name_the_address() {
    let folder = folder("[models.\"local/own\"]\ninput = 1\noutput = 2\n");
    std::fs::write(
        folder.home().join(".config/legwork/providers.toml"),
        "[providers.local]\napi = \"anthropic\"\nbase_url = \"http://me:secret@llm.example/x\"\n",
    )
    .unwrap();
    let elsewhere = |arguments: &[&str]| {
        let base = "http://me:secret@127.0.0.1:9/v1";
        prices_of(&folder, arguments).env("OPENAI_BASE_URL", base).run()
    };
    let shown = elsewhere(&["openai-chat/gpt-4.1", "local/claude-haiku-4-5", "local/own"]);
    shown
        .assert_code(0)
        .assert_not_printed("secret")
        .assert_stdout_contains("  server  http://127.0.0.1:9/v1 (its prices may differ from these list prices)");
    shown
        .assert_stdout_contains("  server  http://llm.example/x (its")
        .assert_stdout_contains("  server  http://llm.example/x\n");
    let json = elsewhere(&["openai/gpt-4.1", "anthropic/claude-haiku-4-5", "--format=json"]).json();
    assert_eq!(json["models"][0]["asked_at"], "http://127.0.0.1:9/v1");
    assert_eq!(json["models"][1]["asked_at"], Value::Null);
}

#[test]
fn a_model_behind_a_gateway_has_its_vendors_price_over_any_api() {
    let folder = folder("");
    let server =
        |name: &str, api: &str, base: &str| format!("[providers.{name}]\napi = \"{api}\"\nbase_url = \"{base}\"\n");
    let servers = [
        server("chat", "openai-chat", "http://llm.example/v1"),
        server("messages", "anthropic", "http://llm.example"),
        server("own", "openai-chat", "https://api.openai.com/v1"),
    ];
    let configuration = folder.home().join(".config/legwork");
    std::fs::create_dir_all(&configuration).unwrap();
    std::fs::write(configuration.join("providers.toml"), servers.concat()).unwrap();
    let models = [
        "anthropic/claude-haiku-4-5",
        "chat/claude-haiku-4-5",
        "chat/bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
        "openai-chat/anthropic/claude-haiku-4-5",
        "openai/gpt-4.1",
        "messages/gpt-4.1",
        "gemini/gemini-2.5-pro",
        "chat/vertex/gemini-2.5-pro",
    ];
    let answer = prices(&folder, &[&models[..], &["--format", "json"]].concat());
    answer.assert_code(0);
    let rates = rates(&answer);
    assert!(rates[0].is_array() && rates[0] != rates[4] && rates[4] != rates[6], "{rates:?}");
    assert_eq!([&rates[1], &rates[2], &rates[3]], [&rates[0]; 3]);
    assert_eq!([&rates[5], &rates[7]], [&rates[4], &rates[6]]);
    // OpenAI has no model of the first name, and the vendor of the second model is unknown.
    prices(&folder, &["own/claude-haiku-4-5"]).assert_code(1).assert_stdout_contains("unknown");
    prices(&folder, &["chat/my-own"]).assert_code(1).assert_stdout_contains("unknown");
    // The price is known, so the cost limit can be enforced.
    folder.write("job.yaml", job("cost_usd: 1").replace("openai-chat/some-model", "chat/claude-haiku-4-5"));
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
}

#[test]
fn all_models_are_listed_or_those_of_a_provider() {
    let folder = folder(USER_PRICES);
    let all = prices(&folder, &[]);
    all.assert_code(0)
        .assert_stderr("")
        .assert_stdout_contains("anthropic/claude-haiku-4-5 ")
        .assert_stdout_contains("openai/gpt-4.1 ");
    let own = all.stdout.lines().find(|line| line.starts_with("openai-chat/")).unwrap();
    assert!(own.contains("  100.00  1000.00 ") && own.ends_with("higher above 1,000"), "{own}");
    let of_chat = prices(&folder, &["openai-chat"]);
    of_chat
        .assert_code(0)
        .assert_stdout_contains("openai-chat/gpt-4.1 ")
        .assert_stdout_contains("openai-chat/some-model ");
    assert!(!of_chat.stdout.contains("anthropic/"));
    assert!(all.stdout.lines().all(|line| line == line.trim_end()));
    all.assert_stdout_contains("\nsource: genai-prices");
    let own_alone = self::folder("[models.\"local/qwen3\"]\ninput = 0\noutput = 0\n");
    let of_own = prices(&own_alone, &["local"]);
    of_own.assert_code(0).assert_stdout_contains("local/qwen3 ").assert_stdout_contains("prices.toml");
    assert!(!of_own.stdout.contains("from the table"), "{}", of_own.stdout);
}

/// The command knows the price of every model in the list of a provider, and no list has models of other providers.
#[test]
fn a_listed_model_has_the_same_price_as_a_single_one() {
    let folder = TestFolder::new();
    for provider in ["openai", "gemini", "anthropic"] {
        let list = prices(&folder, &[provider, "--format", "json"]).json();
        let models: Vec<&str> =
            list["models"].as_array().unwrap().iter().map(|model| model["model"].as_str().unwrap()).collect();
        assert!(models.len() > 20 && list["models"].as_array().unwrap().iter().all(|model| model["source"] == "table"));
        let each = prices(&folder, &[&models[..], &["--format", "json"]].concat());
        each.assert_code(0);
        assert_eq!(each.json()["models"], list["models"], "{provider}");
        assert_eq!(models.iter().any(|model| model.contains("/claude-")), provider == "anthropic");
    }
    prices(&folder, &["gemini/claude-sonnet-4-5"]).assert_code(1).assert_stdout_contains("not in the price table");
}

/// The table has models of 47 providers, and recognizes the providers by their addresses.
#[test]
fn a_server_in_the_price_table_is_recognized_by_its_address() {
    let folder = folder("");
    let server = |name: &str, base: &str| {
        format!("[providers.{name}]\napi = \"openai-chat\"\nbase_url = \"{base}\"\nkey_env = \"KEY\"\n")
    };
    let servers = [
        server("router", "https://me:secret@openrouter.ai/api/v1"),
        server("seek", "https://api.deepseek.com"),
        server("grok", "https://api.x.ai/v1"),
    ];
    let configuration = folder.home().join(".config/legwork");
    std::fs::create_dir_all(&configuration).unwrap();
    std::fs::write(configuration.join("providers.toml"), servers.concat()).unwrap();
    let shown = prices(&folder, &["router/deepseek/deepseek-chat-v3.1", "seek/deepseek-chat", "grok/grok-4"]);
    shown
        .assert_code(0)
        .assert_not_printed("secret")
        .assert_stdout_contains("  server  https://openrouter.ai/api/v1\n");
    assert!(!shown.stdout.contains("unknown") && !shown.stdout.contains("may differ"), "{}", shown.stdout);
    prices(&folder, &["seek"]).assert_code(0).assert_stdout_contains("seek/deepseek-chat ");
    let groq = prices_of(&folder, &["openai-chat/openai/gpt-oss-120b"]);
    groq.env("OPENAI_BASE_URL", "https://api.groq.com/openai/v1")
        .run()
        .assert_code(0)
        .assert_stdout_contains("groq.com/openai/v1\n");
    // The price is known, so the cost limit can be enforced.
    folder.write("job.yaml", job("cost_usd: 1").replace("openai-chat/some-model", "seek/deepseek-chat"));
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
}

#[test]
fn user_prices_apply_at_any_address() {
    let folder = folder(USER_PRICES);
    let server = Server::start(|_: &Request| Answer::text("Done.").usage(100, 10).cache(400, 0));
    let run = |limits: &str| {
        folder.write("job.yaml", job(limits));
        folder.legwork(&["run", "job.yaml"]).openai(&server).run()
    };
    let ended = run("cost_usd: 100");
    ended.assert_code(0).assert_stderr_contains("about $0.0240 (estimate)");
    let record = ended.run_folder();
    // The request has 100 new and 400 cached tokens in the prompt, and 10 in the reply.
    let cost = record.result()["cost_usd"].as_f64().unwrap();
    assert!((cost - (100.0 * 100.0 + 400.0 * 10.0 + 10.0 * 1000.0) / 1e6).abs() < 1e-9, "{cost}");
    assert!(record.transcript().contains("about $0.0240 (estimate)"));
    assert!(record.file("report.html").contains("<dt>cost (estimate)</dt><dd>$0.0240</dd>"));
    let too_little = run("cost_usd: 0.01");
    too_little.assert_code(4);
    assert_eq!(too_little.run_folder().result()["outcome"], "budget_exceeded");
    let without = self::folder("");
    without.write("job.yaml", job("cost_usd: 1"));
    let gateway = without.legwork(&["run", "job.yaml"]).env("OPENAI_BASE_URL", "http://192.0.2.1/v1");
    gateway.run().assert_code(3).assert_stderr_contains("prices.toml");
}

#[test]
fn a_long_prompt_costs_the_rates_of_its_tier() {
    let folder = folder(USER_PRICES);
    let server = Server::start(|_: &Request| Answer::text("Done.").usage(1_001, 10));
    folder.write("job.yaml", job("tokens: 100000"));
    let ended = folder.legwork(&["run", "job.yaml"]).openai(&server).run();
    ended.assert_code(0);
    let cost = ended.run_folder().result()["cost_usd"].as_f64().unwrap();
    assert!((cost - (1_001.0 * 200.0 + 10.0 * 1000.0) / 1e6).abs() < 1e-9, "{cost}");
    // Output tokens are the most expensive.
    let plan = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    plan.assert_code(0).assert_stdout_contains("at most $100.00 (limits.tokens at $1000.00 per million");
}

#[test]
fn the_example_in_the_book_is_correct() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/costs-and-limits.md")).unwrap();
    let example = page.split("```toml\n").skip(1).find(|rest| rest.starts_with("[models.")).expect("an example");
    let folder = folder(example.split("```").next().unwrap());
    let local = prices(&folder, &["local/qwen3-8b", "--format", "json"]);
    local.assert_code(0);
    assert_eq!(
        rates(&local)[0][1],
        json!({"above": 200_000, "input": 0.2, "output": 0.4, "cache_read": 0.01, "cache_write": 0.1})
    );
}

#[test]
fn lints_use_the_users_prices_and_xdg_config_home() {
    let folder = TestFolder::new();
    folder.write("job.yaml", job("cost_usd: 1")).write("config/legwork/prices.toml", USER_PRICES);
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("unknown-price");
    let named = |folder_name: std::path::PathBuf| {
        folder.legwork(&["validate", "job.yaml"]).env("XDG_CONFIG_HOME", folder_name).run()
    };
    named(folder.at("config")).assert_code(0);
    named("config".into()).assert_code(3).assert_stdout_contains("unknown-price");
}

#[test]
fn a_price_for_an_unknown_provider_is_an_error() {
    let folder = folder("[models.\"loacl/qwen3-8b\"]\ninput = 1\noutput = 2\n");
    folder.write("job.yaml", job("tokens: 1000"));
    let found = |ended: &ProgramOutput, code: i32| {
        ended.assert_code(code);
        let text = ended.full_output();
        for part in ["prices.toml:1:9", "unknown-provider", "there is no provider `loacl`", "did you mean `local`?"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    found(&folder.legwork(&["validate", "job.yaml"]).run(), 3);
    found(&folder.legwork(&["run", "job.yaml", "--dry-run"]).run(), 5);
    // A broken file of servers doesn't define any names.
    std::fs::write(folder.home().join(".config/legwork/providers.toml"), "[providers.loacl]\n").unwrap();
    let broken = folder.legwork(&["validate", "job.yaml"]).run();
    assert!(!broken.assert_code(3).full_output().contains("unknown-provider"), "{}", broken.full_output());
}

#[test]
fn mistakes_in_the_users_prices_are_reported_before_anything_is_spent() {
    let folder = folder("[models.\"openai-chat/some-model\"]\ninput = -1\nouput = 2\n[model]\n");
    folder.write("job.yaml", job("cost_usd: 1"));
    let server = Server::start(|_: &Request| Answer::text("Done."));
    let run = folder.legwork(&["run", "job.yaml"]).openai(&server).run();
    let found = |ended: &ProgramOutput, code: u8| {
        ended.assert_code(i32::from(code));
        let text = ended.full_output();
        for part in ["prices.toml:2:9", "out-of-range", "prices.toml:3:1", "unknown-key", "`output`", "prices.toml:4:2"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    found(&run, 5);
    folder.legwork(&["prices", "--help"]).run().assert_code(0).assert_stdout_contains("5 if prices.toml or");
    assert!(server.requests().is_empty());
    found(&prices(&folder, &["anthropic/claude-haiku-4-5"]), 5);
    found(&folder.legwork(&["run", "job.yaml", "--dry-run"]).run(), 5);
    let validated = folder.legwork(&["validate", "job.yaml"]).run();
    found(&validated, 3);
    assert!(!validated.stdout.contains("unknown-price"), "{}", validated.stdout);
}

#[test]
fn a_run_resumes_only_if_its_cost_limit_can_be_enforced() {
    let folder = TestFolder::new();
    folder.write("job.yaml", job("cost_usd: 1").replace("tools: []", "tools: [glob]"));
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.turn() {
        0 => Answer::calls(&[("glob", json!({"pattern": "*"}))]),
        _ => Answer::text("Done."),
    });
    let cut = folder.legwork(&["run", "job.yaml"]).openai(&server).env("LEGWORK_KILL_AFTER", "4").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    let count = server.count();
    let resume = || folder.legwork(&["resume", "latest"]).openai(&server);
    let elsewhere = resume().env("OPENAI_BASE_URL", "http://192.0.2.1/v1").run();
    elsewhere
        .assert_code(5)
        .assert_stderr_contains("openai-chat/some-model")
        .assert_stderr_contains("limits.cost_usd")
        .assert_stderr_contains("prices.toml");
    assert_eq!(server.count(), count, "no request was sent");
    resume().run().assert_code(0).assert_stdout("Done.\n");
    // The comparison with an edited job makes no request.
    folder.write("job.yaml", job("cost_usd: 2").replace("tools: []", "tools: [glob]"));
    folder.legwork(&["replay", "latest", "--job", "job.yaml"]).run().assert_code(7).assert_stdout_contains("cost_usd");
}

#[test]
fn every_command_shows_the_same_table() {
    let folder = TestFolder::new();
    let shown: Value = prices(&folder, &["--format", "json"]).json();
    let (table, date) = (shown["table"].as_str().unwrap(), shown["table_date"].as_str().unwrap());
    folder
        .legwork(&["--version", "--verbose"])
        .run()
        .assert_code(0)
        .assert_stdout_contains(&format!("{table} of {date}"));
    prices(&folder, &[]).assert_code(0).assert_stdout_contains(&format!("source: {table}, as of {date}"));
    prices(&folder, &["openai/gpt-5"]).assert_code(0).assert_stdout_contains(&format!("{table}, as of {date}"));
}
