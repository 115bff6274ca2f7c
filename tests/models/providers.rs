//! The same job with every provider's wire format. Only `--model` changes.

use serde_json::{Value, json};

use crate::getting_started::jobs;
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, Api, Checks, KEY, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// The value of `--model`, and the API that it selects.
pub(crate) const MODELS: [(&str, Api); 4] = [
    ("anthropic/claude-haiku-4-5", Api::Messages),
    ("openai-chat/some-model", Api::Chat),
    ("openai/some-model", Api::Responses),
    ("gemini/gemini-3.8-flash", Api::Gemini),
];

const JOB: &str = "\
model: anthropic/claude-sonnet-4-6
parent:
  system: You lead.
  prompt: Find out.
  tools: [bash, read_file, task]
subagents:
  explorer: { description: Looks around., system: You explore., tools: [read_file, glob] }
limits: { cost_usd: 1, tokens: 100000 }
";

fn folder() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("notes/a.txt", "alpha\n");
    folder
}

fn start(folder: &TestFolder, server: &Server, model: &str, more: &[&str]) -> Program {
    folder.legwork(&["run", "job.yaml", "--model", model]).args(more).anthropic(server).openai(server).gemini(server)
}

fn run(folder: &TestFolder, server: &Server, model: &str) -> ProgramOutput {
    start(folder, server, model, &[]).run()
}

/// Replies of a parent that delegates and of a subagent that reads: thinking, parallel calls, and a failing call.
fn script(form: impl Fn(Answer) -> Answer) -> ScriptedAgents {
    let task = json!({"agent": "explorer", "description": "notes", "prompt": "Explore the notes."});
    let parent = [
        Answer::calls(&[("read_file", json!({"path": "missing.txt"})), ("bash", json!({"command": "echo \"é\""}))])
            .then_text("I look — é😀.")
            .thinking("Where to look?", "c2lnbmF0dXJl"),
        Answer::calls(&[("task", task)]),
        Answer::text("It says alpha."),
    ];
    let explorer = [
        Answer::calls(&[("glob", json!({"pattern": "notes/*"})), ("read_file", json!({"path": "notes/a.txt"}))]),
        Answer::text("The note says alpha.").usage(20, 9).cache(100, 30),
    ];
    ScriptedAgents::new().agent("Find out.", parent.map(&form)).agent("Explore the notes.", explorer.map(&form))
}

fn check(ended: &ProgramOutput, requests: &[std::sync::Arc<Request>], api: Api) {
    ended.assert_code(0).assert_stdout("It says alpha.\n").assert_not_printed(KEY);
    let record = ended.run_folder();
    record.assert_absent(KEY);
    let result = record.result();
    assert_eq!(
        (&result["outcome"], &result["turns"], &result["tool_calls"]),
        (&json!("completed"), &json!(3), &json!(3))
    );
    // Google doesn't count tokens that are written to a cache.
    let (input, written) = if api == Api::Gemini { (98, 0) } else { (68, 30) };
    let usage =
        json!({"input_tokens": input, "output_tokens": 37, "cache_read_tokens": 100, "cache_write_tokens": written});
    assert_eq!(result["usage"], usage);
    let is_listed = matches!(api, Api::Messages | Api::Gemini);
    assert_eq!(result["cost_usd"].is_null(), !is_listed, "the list knows `some-model` of nobody");
    assert_eq!(
        ended.stderr.matches("warning[untracked-cost]").count(),
        usize::from(!is_listed),
        "{}",
        ended.full_output()
    );
    let of_parent: Vec<_> = requests.iter().filter(|request| request.prompt() == "Find out.").collect();
    let of_explorer: Vec<_> = requests.iter().filter(|request| request.prompt() == "Explore the notes.").collect();
    assert_eq!((of_parent.len(), of_explorer.len()), (3, 2));
    assert!(requests.iter().all(|request| request.api() == api && request.streams()));
    assert_eq!((of_parent[0].system().as_str(), of_explorer[0].system().as_str()), ("You lead.", "You explore."));
    assert_eq!(of_parent[0].tools(), ["bash", "read_file", "task"]);
    let results = of_parent[1].results();
    assert!(results[0].is_error && results[0].text.contains("missing.txt"), "{results:?}");
    assert!(!results[1].is_error && results[1].text.contains('é'), "{results:?}");
    assert!(of_parent[2].results()[0].text.contains("The note says alpha."));
    assert!(of_explorer[1].results()[1].text.contains("alpha"));
}

#[test]
fn the_same_job_runs_over_every_provider() {
    for (model, api) in MODELS {
        let folder = folder();
        let server = Server::start(script(|answer| answer));
        let ended = run(&folder, &server, model);
        check(&ended, &server.finish(), api);
        let transcript = ended.run_folder().transcript();
        assert!(transcript.contains("I look — é😀.") && transcript.contains("It says alpha."), "{transcript}");
    }
}

#[test]
fn streamed_bytes_and_complete_replies_give_the_same_result() {
    for (model, api) in MODELS {
        for form in [|answer: Answer| answer.chunk(1), |answer: Answer| answer.non_streaming()] {
            let folder = folder();
            let server = Server::start(script(form));
            check(&run(&folder, &server, model), &server.finish(), api);
        }
    }
}

#[test]
fn an_image_is_replaced_by_a_note_for_a_model_that_takes_none() {
    for (model, _) in MODELS.into_iter().filter(|(model, _)| model.ends_with("some-model")) {
        let folder = folder();
        folder.write("notes/plan.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        let server = answering([
            Answer::calls(&[
                ("read_file", json!({"path": "notes/plan.png"})),
                ("read_file", json!({"path": "notes/a.txt"})),
            ]),
            Answer::text("Seen."),
        ]);
        run(&folder, &server, model).assert_code(0).assert_stdout("Seen.\n");
        let results = server.finish()[1].results();
        assert!(!results[0].is_error && results[0].text.contains("is an image (PNG, 16 bytes)"), "{results:?}");
        assert!(
            results[0].text.contains("only text can be returned") && results[1].text.contains("alpha"),
            "{results:?}"
        );
    }
}

fn answering(answers: impl IntoIterator<Item = Answer>) -> Server {
    Server::start(ScriptedAgents::of(answers))
}

fn retries(ended: &ProgramOutput) -> Vec<String> {
    let events = ended.run_folder().events();
    let retries = events.iter().filter(|event| event["type"] == "retrying");
    retries.map(|event| event["data"]["retry"]["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn transient_errors_are_retried_with_the_same_request() {
    for (model, _) in MODELS {
        let folder = folder();
        let server = answering([
            Answer::status(429).error("rate_limit_error", "Slow down.").header("retry-after-ms", "5"),
            Answer::text("Cut.").cut_after_events(2),
            Answer::text("Failing.").fail_after_events(2, "overloaded_error", "Too busy."),
            Answer::text("Done."),
        ]);
        let ended = start(&folder, &server, model, &[]).env("LEGWORK_RETRY_BASE_MS", "1").run();
        ended.assert_code(0).assert_stdout("Done.\n");
        let retries = retries(&ended);
        assert_eq!(retries.len(), 3, "{retries:?}");
        assert!(retries[0].contains("Slow down.") && retries[2].contains("Too busy."), "{retries:?}");
        let requests = server.finish();
        assert!(requests.windows(2).all(|pair| pair[0].bytes() == pair[1].bytes()));
    }
}

#[test]
fn every_stop_reason_is_handled() {
    for (model, _) in MODELS {
        for (answer, code, outcome) in [
            (Answer::text("Half").stop("max_tokens"), 4, "reply_cut"),
            (Answer::text("No.").stop("refusal"), 1, "refused"),
            (Answer::status(400).error("invalid_request_error", "prompt is too long: 9 > 8"), 4, "context_full"),
            (Answer::status(401).error("authentication_error", "No such key."), 5, "provider_rejected"),
            (
                Answer::status(500).error("api_error", "Broken.").header("x-should-retry", "false"),
                75,
                "provider_failed",
            ),
        ] {
            let folder = folder();
            let server = answering([answer]);
            let ended = run(&folder, &server, model);
            ended.assert_code(code).assert_not_printed(KEY);
            let result = ended.run_folder().result();
            assert_eq!(result["outcome"], outcome, "{model}");
            let message = result["error"]["message"].as_str().unwrap();
            assert!(result["error"]["hint"].is_string() || outcome == "context_full", "{model}: {message}");
            // The message names the owner of the content filter.
            let filter = match model.split_once('/').unwrap().0 {
                "gemini" => Some(" refused (SAFETY)"),
                "openai" | "openai-chat" => Some(" refused (content_filter)"),
                _ => None,
            };
            assert!(outcome != "refused" || filter.is_none_or(|words| message.ends_with(words)), "{model}: {message}");
            let refusal = filter.filter(|_| outcome == "refused").map(|words| {
                format!("_The model refused: {}_", words.trim_start_matches(" refused (").trim_end_matches(')'))
            });
            assert!(refusal.is_none_or(|refusal| ended.run_folder().transcript().contains(&refusal)), "{model}");
            assert!(outcome == "refused" || !message.contains(" refused ("), "{model}: {message}");
        }
    }
}

#[test]
fn the_last_request_lists_the_tools_and_forbids_them() {
    for (model, _) in MODELS {
        let folder = TestFolder::new();
        folder.write(
            "job.yaml",
            "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [glob], max_turns: 2 }\nlimits: { tokens: 100000 }\n",
        );
        let server = answering([
            Answer::calls(&[("glob", json!({"pattern": "*"}))]),
            Answer::calls(&[("glob", json!({"pattern": "*"}))]),
            Answer::text("Summed up."),
        ]);
        run(&folder, &server, model).assert_code(4);
        let requests = server.finish();
        assert!(requests[1].can_call_tools() && !requests[2].can_call_tools());
        assert_eq!(requests[2].tools(), ["glob"]);
        assert!(requests[2].last_text().contains("The work ends here") && requests[2].results().len() == 1);
    }
}

#[test]
fn a_killed_run_resumes_with_the_recorded_replies() {
    for (model, _) in MODELS {
        let folder = folder();
        let server = Server::with(Checks::AllowRepeats, script(|answer| answer));
        let cut = start(&folder, &server, model, &["--sandbox", "off"]).env("LEGWORK_KILL_AFTER", "8").run();
        assert_eq!(cut.signal(), Some(9));
        let resumed = folder.legwork(&["resume", "latest", "--sandbox", "off"]);
        let ended = resumed.anthropic(&server).openai(&server).gemini(&server).run();
        ended.assert_code(0).assert_stdout("It says alpha.\n");
        server.finish();
    }
}

const COSTLY: &str =
    "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [] }\nlimits: { cost_usd: 0.25 }\n";

#[test]
fn a_cost_limit_is_enforced_for_listed_models_on_every_provider() {
    for model in ["anthropic/claude-haiku-4-5", "openai-chat/gpt-5.1", "openai/gpt-5.1", "gemini/gemini-3.8-flash"] {
        let folder = TestFolder::new();
        folder.write("job.yaml", COSTLY);
        let server = answering([Answer::text("Done.").usage(1000, 100)]);
        let ended = run(&folder, &server, model);
        ended.assert_code(0);
        assert!(!ended.stderr.contains("untracked-cost"), "{}", ended.full_output());
        let cost = ended.run_folder().result()["cost_usd"].as_f64().unwrap();
        assert!(cost > 0.0005 && cost < 0.01, "{model}: {cost}");
        folder.write("job.yaml", COSTLY.replace("0.25", "0.0001"));
        let ended = run(&folder, &server, model);
        ended.assert_code(4);
        assert_eq!(ended.run_folder().result()["outcome"], "budget_exceeded");
        assert_eq!(server.count(), 1, "{model}");
    }
}

#[test]
fn an_unlisted_model_runs_at_a_local_address() {
    let folder = TestFolder::new();
    let server = Server::start(|_: &Request| Answer::text("Done."));
    let message = |ended: &ProgramOutput, code: i32, finding: &str| {
        ended
            .assert_code(code)
            .assert_stderr_contains(finding)
            .assert_stderr_contains("job.yaml:3:")
            .assert_stderr_contains("prices.toml");
    };
    for model in ["anthropic/nonesuch", "openai-chat/nonesuch", "openai/nonesuch", "gemini/nonesuch"] {
        folder.write("job.yaml", COSTLY);
        let with_cost_alone = run(&folder, &server, model);
        if model.starts_with("openai-chat/") {
            message(&with_cost_alone, 0, "warning[untracked-cost]");
        } else {
            // The name could be a typo.
            message(&with_cost_alone, 3, "error[unknown-price]");
            with_cost_alone.assert_stderr_contains("also limit `tokens`");
        }
        folder.write("job.yaml", COSTLY.replace("0.25", "0.25, tokens: 50000"));
        let with_both = run(&folder, &server, model);
        message(&with_both, 0, "warning[untracked-cost]");
        assert_eq!(with_both.run_folder().result()["cost_usd"], Value::Null);
        let dry = start(&folder, &server, model, &["--dry-run"]).run();
        message(&dry, 0, "warning[untracked-cost]");
        dry.assert_stdout_contains("unknown: no price for").assert_stdout_contains("limits.tokens still applies");
        // This address belongs to another machine, so no request is sent.
        let away = start(&folder, &server, model, &[]).env("ANTHROPIC_BASE_URL", "http://192.0.2.1");
        let away = away.env("OPENAI_BASE_URL", "http://192.0.2.1/v1").env("GOOGLE_GEMINI_BASE_URL", "http://192.0.2.1");
        message(&away.run(), 3, "error[unknown-price]");
    }
    folder.write("job.yaml", COSTLY.replace("anthropic/claude-haiku-4-5", "openai-chat/nonesuch"));
    let validated = |base: &str| folder.legwork(&["validate", "job.yaml"]).env("OPENAI_BASE_URL", base).run();
    validated("http://localhost:8080/v1").assert_code(0).assert_stdout_contains("warning[untracked-cost]");
    validated("").assert_code(3).assert_stdout_contains("error[unknown-price]");
}

#[test]
fn the_cost_limit_ends_a_run_with_unpriced_subagents() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [task] }\n\
         subagents: { own: { description: d, system: You are own., tools: [glob], model: openai-chat/own } }\nlimits: { cost_usd: 0.02 }\n",
    );
    let task = json!({"agent": "own", "prompt": "Look."});
    let expensive = Answer::calls(&[("task", task.clone()), ("task", task)]).usage(1_000, 5_000);
    let server = Server::start(ScriptedAgents::new().agent("Go.", [expensive]).agent("Look.", []));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).openai(&server).run();
    ended.assert_code(4).assert_stderr_contains("untracked-cost");
    let result = ended.run_folder().result();
    assert_eq!(result["outcome"], "budget_exceeded");
    assert!((result["cost_usd"].as_f64().unwrap() - 0.026).abs() < 1e-9, "{result}");
    assert_eq!(server.count(), 1);
}

#[test]
fn the_jobs_of_this_repository_run_over_every_provider() {
    let jobs = concat!(env!("CARGO_MANIFEST_DIR"), "/jobs");
    for (model, _) in MODELS {
        let folder = TestFolder::new();
        let server = Server::start(|_: &Request| Answer::text("Done."));
        // Those that an event starts need it, and its commits.
        for job in jobs::names().into_iter().filter(|job| !jobs::EVENTS.iter().any(|(of, _)| of == job)) {
            let path = format!("{jobs}/{job}.yaml");
            let ended = folder.legwork(&["run", &path, "--model", model]);
            let ended = ended.anthropic(&server).openai(&server).gemini(&server).run();
            let result = ended.run_folder_in(format!("runs/{job}")).result();
            // Tools that return data can't be called without data, and the test doesn't make up results that a check
            // could test.
            let ends = ["completed", "result_invalid", "checks_failed"].map(|end| json!(end));
            assert!(ends.contains(&result["outcome"]) && result["model"] == model, "{}", ended.full_output());
        }
    }
}

#[test]
fn only_openais_own_address_needs_a_key() {
    let folder = folder();
    for model in ["openai-chat/gpt-5.1", "openai/gpt-5.1"] {
        let without = folder.legwork(&["run", "job.yaml", "--model", model]).run();
        without.assert_code(5).assert_stderr_contains("OPENAI_API_KEY is not set");
        // The server's checks are off because they require a key.
        let server = Server::with(Checks::None, |request: &Request| match request.header("authorization") {
            None => Answer::text("Hello."),
            Some(_) => Answer::status(400),
        });
        let ended = folder.legwork(&["run", "job.yaml", "--model", model]).openai(&server);
        ended.env_remove("OPENAI_API_KEY").run().assert_code(0).assert_stdout("Hello.\n");
        assert_eq!(server.count(), 1);
    }
}

#[test]
fn thinking_is_encoded_for_each_provider() {
    let asked = |model: &str| -> Value {
        let folder = TestFolder::new();
        let options = format!("model: {{ name: {model}, thinking: low }}");
        folder.write(
            "job.yaml",
            format!("{options}\nparent: {{ prompt: Go., tools: [] }}\nlimits: {{ tokens: 100000 }}\n"),
        );
        let server = answering([Answer::text("Hello.")]);
        folder.legwork(&["run", "job.yaml"]).anthropic(&server).openai(&server).gemini(&server).run().assert_code(0);
        server.finish()[0].raw_body().clone()
    };
    assert_eq!(asked("openai-chat/some-model")["reasoning_effort"], "low");
    assert_eq!(asked("openai/some-model")["reasoning"], json!({"effort": "low"}));
    assert_eq!(asked("anthropic/claude-haiku-4-5")["thinking"]["type"], "enabled");
    let of_gemini = |model| asked(model)["generationConfig"]["thinkingConfig"].clone();
    assert_eq!(of_gemini("gemini/gemini-3.8-flash"), json!({"thinkingLevel": "LOW", "includeThoughts": true}));
    assert_eq!(of_gemini("gemini/gemini-2.5-pro"), json!({"thinkingBudget": 2048, "includeThoughts": true}));
}
