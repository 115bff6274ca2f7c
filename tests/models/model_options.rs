//! The model options of a job.

use serde_json::{Value, json};

use crate::support::server::{Answer, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

fn job(model: &str) -> String {
    format!("model: {model}\nparent: {{ prompt: Go., tools: [], max_tokens: 700 }}\nlimits: {{ tokens: 100000 }}\n")
}

/// The request of a job with this model, and the record of the run.
fn request_and_record(model: &str) -> (Value, Value) {
    let folder = TestFolder::new();
    folder.write("job.yaml", job(model));
    let server = Server::start(ScriptedAgents::of([Answer::text("Up to here").stop("stop_sequence")]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).openai(&server).gemini(&server).run();
    ended.assert_code(0).assert_stdout("Up to here\n");
    let record = ended.run_folder();
    (server.finish()[0].raw_body().clone(), record.plan()["parent"]["model"].clone())
}

#[test]
fn options_are_encoded_for_each_provider_and_a_stop_sequence_ends_a_reply() {
    let (body, model) =
        request_and_record("{ name: anthropic/claude-haiku-4-5, temperature: 0, stop: [END, \"\\n##\"] }");
    assert_eq!(
        (&body["temperature"], &body["stop_sequences"], &body["max_tokens"]),
        (&json!(0.0), &json!(["END", "\n##"]), &json!(700))
    );
    let recorded =
        json!({ "provider": "anthropic", "name": "claude-haiku-4-5", "temperature": 0.0, "stop": ["END", "\n##"] });
    assert_eq!(model, recorded);
    let (body, _) = request_and_record("{ name: openai-chat/some-model, temperature: 1.5, stop: [END] }");
    assert_eq!((&body["temperature"], &body["stop"], &body["max_tokens"]), (&json!(1.5), &json!(["END"]), &json!(700)));
    let (body, _) = request_and_record("{ name: openai/some-model, temperature: 0.25, thinking: high }");
    assert_eq!(
        (&body["temperature"], &body["reasoning"], &body["max_output_tokens"]),
        (&json!(0.25), &json!({ "effort": "high" }), &json!(700))
    );
    let (body, _) = request_and_record("{ name: gemini/gemini-2.5-flash, temperature: 0, stop: [END], thinking: low }");
    let thinking = json!({ "thinkingBudget": 525, "includeThoughts": true });
    assert_eq!(
        body["generationConfig"],
        json!({ "maxOutputTokens": 700, "temperature": 0.0, "stopSequences": ["END"], "thinkingConfig": thinking })
    );
}

#[test]
fn options_do_not_apply_to_another_model() {
    let own = "{ name: anthropic/claude-haiku-4-5, temperature: 0.5, stop: [END], context: 100000 }";
    for model in ["anthropic/claude-opus-5", "openai-chat/some-model", "openai/some-model"] {
        let folder = TestFolder::new();
        folder.write("job.yaml", job(own));
        let server = Server::start(ScriptedAgents::of([Answer::text("Done.")]));
        let ended = folder.legwork(&["run", "job.yaml", "--model", model]).anthropic(&server).openai(&server).run();
        ended.assert_code(0).assert_stderr_contains(
            "the `temperature`, `stop` and `context` of anthropic/claude-haiku-4-5 aren't used for",
        );
        let body = server.finish()[0].raw_body().clone();
        assert!(["temperature", "stop", "stop_sequences"].iter().all(|name| body.get(name).is_none()), "{body}");
    }
    let folder = TestFolder::new();
    folder.write("job.yaml", job(own)).write("job.script.yaml", "parent: [{ text: Done. }]\n");
    let line = ["run", "job.yaml", "--model", "replay/job.script.yaml"];
    let ended = folder.legwork(&line).run();
    ended.assert_code(0);
    assert!(!ended.stderr.contains("aren't used for"), "{}", ended.stderr);
}

#[test]
fn the_plan_shows_the_models_options() {
    let folder = TestFolder::new();
    let own = "{ name: openai-chat/gpt-4.1, temperature: 0, stop: [END, \"a\\nb\"], context: 32000 }";
    folder.write("job.yaml", job(own));
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    shown
        .assert_code(0)
        .assert_stdout_contains("openai-chat/gpt-4.1, temperature 0, stop [\"END\",\"a\\nb\"], context 32000");
}

#[test]
fn all_unsupported_options_are_reported_at_once_and_nothing_is_requested() {
    let folder = TestFolder::new();
    folder.write("job.yaml", job("{ name: anthropic/claude-opus-5-5, thinking: off, temperature: 0, stop: [\" \"] }"));
    let server = Server::start(|_: &Request| Answer::text("never"));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended
        .assert_code(3)
        .assert_stderr_contains("always thinks")
        .assert_stderr_contains("doesn't support `temperature`")
        .assert_stderr_contains("of white space");
    assert_eq!(server.count(), 0);
}

#[test]
fn a_models_max_tokens_apply_to_agents_without_their_own() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "\
model: { name: anthropic/claude-haiku-4-5, max_tokens: 700, temperature: 0 }
parent: { prompt: Go., tools: [task] }
subagents:
  plain: { description: The job's., tools: [] }
  own: { description: Its own., tools: [], max_tokens: 600 }
  other: { description: Another model., tools: [], model: { name: anthropic/claude-opus-4-5, max_tokens: 500 } }
  bare: { description: Another model., tools: [], model: anthropic/claude-opus-4-5 }
limits: { tokens: 100000 }
",
    );
    let calls = ["plain", "own", "other", "bare"].map(|agent| ("task", json!({ "agent": agent, "prompt": agent })));
    let expected = [("", 700), ("bare", 4000), ("other", 500), ("own", 600), ("plain", 700)];
    for model in [None, Some("openai/some-model")] {
        let calls = calls.clone();
        let server = Server::start(move |request: &Request| match (&*request.prompt(), request.turn()) {
            ("Go.", 0) => Answer::calls(&calls),
            _ => Answer::text("Done."),
        });
        let program = folder.legwork(&["run", "job.yaml"]).args(model.iter().flat_map(|model| ["--model", model]));
        let ended = program.anthropic(&server).openai(&server).run();
        ended.assert_code(0);
        // No other option of the replaced model is kept.
        assert_eq!(
            ended.stderr.contains("the `temperature` of anthropic/claude-haiku-4-5 isn't used for"),
            model.is_some()
        );
        let plan = ended.run_folder().plan();
        let mut requested: Vec<(String, u64)> = Vec::new();
        for request in server.finish() {
            let agent = if request.prompt() == "Go." { String::new() } else { request.prompt() };
            let planned = if agent.is_empty() { &plan["parent"] } else { &plan["subagents"][&agent] };
            assert_eq!(planned["max_tokens"], request.max_tokens(), "{agent}");
            requested.push((agent, request.max_tokens()));
        }
        requested.sort();
        requested.dedup();
        assert_eq!(requested, expected.map(|(agent, tokens)| (agent.to_owned(), tokens)));
    }
    folder.write(
        "job.yaml",
        job("{ name: anthropic/claude-haiku-4-5, max_tokens: 600 }").replace(", max_tokens: 700", ""),
    );
    folder.legwork(&["run", "job.yaml", "--dry-run"]).run().assert_code(0).assert_stdout_contains("max_tokens  600");
}

#[test]
fn models_that_always_think_have_room_for_it_and_more_levels_are_sent() {
    let job =
        |model: &str| format!("model: {model}\nparent: {{ prompt: Go., tools: [] }}\nlimits: {{ tokens: 900000 }}\n");
    let body = |model: &str| {
        let folder = TestFolder::new();
        folder.write("job.yaml", job(model));
        let server = Server::start(ScriptedAgents::of([Answer::text("Done.")]));
        folder.legwork(&["run", "job.yaml"]).anthropic(&server).openai(&server).gemini(&server).run().assert_code(0);
        server.finish()[0].raw_body().clone()
    };
    assert_eq!(body("anthropic/claude-sonnet-5-5")["max_tokens"], json!(8000));
    assert_eq!(body("anthropic/claude-opus-5-5")["max_tokens"], json!(24000));
    assert_eq!(body("gemini/gemini-4-argon")["generationConfig"]["maxOutputTokens"], json!(24000));
    let body = body("{ name: openai/gpt-6-astra, thinking: max }");
    assert_eq!((&body["max_output_tokens"], &body["reasoning"]["effort"]), (&json!(40000), &json!("max")));
}

#[test]
fn flex_processing_is_requested_priced_and_retried_while_there_is_no_room() {
    for (model, path, cost) in [
        ("openai/gpt-5.1", "/service_tier", 0.0825),
        ("openai-chat/gpt-5.1", "/service_tier", 0.0825),
        ("gemini/gemini-2.5-pro", "/serviceTier", 0.0825),
    ] {
        let folder = TestFolder::new();
        let limits = "limits: { cost_usd: 5 }\n";
        let parent = "parent: { prompt: Go., tools: [] }";
        folder.write("job.yaml", format!("model: {{ name: {model}, tier: flex }}\n{parent}\n{limits}"));
        // More failures than an ordinary request is tried, and none of them is charged.
        let server = Server::start(|request: &Request| match request.number {
            0..4 => Answer::status(503).error("server_error", "No capacity."),
            4..8 => Answer::status(429).error("resource_unavailable", "Resource unavailable."),
            _ => Answer::text("Done.").usage(100_000, 4_000),
        });
        let program = folder.legwork(&["run", "job.yaml"]).env("LEGWORK_RETRY_BASE_MS", "1");
        let ended = program.openai(&server).gemini(&server).run();
        ended.assert_code(0).assert_stdout("Done.\n");
        let requests = server.finish();
        assert_eq!(requests.len(), 9, "{model}");
        assert!(requests.iter().all(|request| request.raw_body().pointer(path) == Some(&json!("flex"))), "{model}");
        assert_eq!(ended.run_folder().result()["cost_usd"], json!(cost), "{model}");
        folder.legwork(&["run", "job.yaml", "--dry-run"]).run().assert_stdout_contains("tier flex");
        // An ordinary request ends after its tries.
        folder.write("job.yaml", format!("model: {model}\n{parent}\n{limits}"));
        let server = Server::start(|_: &Request| Answer::status(503).error("server_error", "No capacity."));
        let program = folder.legwork(&["run", "job.yaml"]).env("LEGWORK_RETRY_BASE_MS", "1");
        program.openai(&server).gemini(&server).run().assert_code(75);
        assert_eq!(server.count(), 6, "{model}");
    }
}
