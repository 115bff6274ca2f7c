//! Tests specific to this API. The conformance suite has those that all providers pass.

mod dialect;
mod items;

pub(crate) use self::dialect::{OpenaiDialect, answered, error, growth};

use serde_json::{Value, json};

use self::dialect::{response, sent, usage};
use super::request::{OpenaiEncoder, RequestDialect};
use crate::job::Thinking;
use crate::message::{BlockContent, Message, Reply, StopReason, UserMessage};
use crate::providers::conformance_tests::{
    RecordingObserver, TEST_KEY, WireDialect, ask_once, ask_once_with, connect, last_request, prompted, request,
    result, setup, streamed, tool_call_reply,
};
use crate::providers::test_server::{ScriptedResponse, ScriptedServer};
use crate::providers::transport::http_conversation::RequestEncoder as _;
use crate::providers::{ConversationConfig, ProviderErrorKind, ReplyRequest};

async fn reply_of(events: &[Value]) -> Reply {
    let answer = ScriptedResponse::stream([sent(events).concat().as_bytes()]);
    ask_once_with(&OpenaiDialect, last_request(), vec![answer]).await.0.unwrap()
}

fn done(index: u64, item: &Value) -> Value {
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

fn completed(items: &[Value]) -> Value {
    json!({ "type": "response.completed", "response": response(items, "completed", None) })
}

fn message(text: &str) -> Value {
    json!({ "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

fn written(setup: &ConversationConfig, way: RequestDialect) -> Value {
    let mut body = OpenaiEncoder::new(setup, way);
    body.push(&Message::User(UserMessage::text("Hello")));
    serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap()
}

#[test]
fn a_request_is_what_the_api_expects() {
    let tool = |name: &str| {
        json!({ "type": "function", "name": name, "description": "does \"it\"", "parameters": { "type": "object" },
            "strict": false })
    };
    let mut expected = json!({
        "model": "gpt-5.1", "max_output_tokens": 8000, "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "parallel_tool_calls": true, "instructions": "Be brief.",
        "tools": [tool("glob"), tool("grep")],
        "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] }],
    });
    assert_eq!(written(&setup(&OpenaiDialect), RequestDialect { effort: None, has_openai_rules: false }), expected);
    let own = written(&setup(&OpenaiDialect), RequestDialect { effort: Some("minimal"), has_openai_rules: true });
    expected.as_object_mut().unwrap().shift_remove("parallel_tool_calls");
    expected["reasoning"] = json!({ "effort": "minimal" });
    expected["prompt_cache_key"] = own["prompt_cache_key"].clone();
    assert!(own["prompt_cache_key"].as_str().unwrap().starts_with("legwork-"));
    assert_eq!(own, expected);
    let mut plain = setup(&OpenaiDialect);
    plain.model.name = "gpt-4.1".to_owned();
    assert_eq!(written(&plain, RequestDialect { effort: None, has_openai_rules: true }).get("include"), None);
    let mut body = OpenaiEncoder::new(&plain, RequestDialect { effort: None, has_openai_rules: true });
    body.push(&Message::User(UserMessage::text("Hello")));
    let few: Value =
        serde_json::from_slice(&body.body_chunks(&ReplyRequest { max_tokens: 1, ..request() }).concat()).unwrap();
    assert_eq!(few["max_output_tokens"], 16);
}

#[test]
fn a_temperature_is_sent_if_the_model_accepts_it() {
    let asked = |name: &str, effort, temperature: f64| {
        let mut setup = setup(&OpenaiDialect);
        (setup.model.name, setup.model.temperature) = (name.to_owned(), Some(temperature));
        written(&setup, RequestDialect { effort, has_openai_rules: true }).get("temperature").cloned()
    };
    assert_eq!(asked("gpt-5.6-sol", Some("none"), 0.0), Some(json!(0.0)));
    assert_eq!(asked("gpt-5.6-sol", Some("low"), 1.0), None);
    assert_eq!(asked("gpt-4.1", None, 1.0), Some(json!(1.0)));
}

#[tokio::test]
async fn items_are_sent_back_unchanged_and_in_order() {
    let server = ScriptedServer::start([streamed(&OpenaiDialect, &tool_call_reply())]).await;
    let mut conversation = prompted(&OpenaiDialect, &server.url);
    let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let recorded = serde_json::to_string(&reply).unwrap();
    conversation.push(&Message::Assistant(serde_json::from_str(&recorded).unwrap()));
    let results = vec![result("toolu_1", "found", false), result("toolu_2", "found", false)];
    conversation.push(&Message::User(UserMessage::results(results)));
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let body = server.received()[1].json();
    let items = body["input"].as_array().unwrap();
    let whole = OpenaiDialect.whole(&tool_call_reply());
    assert_eq!(json!(items[1..5]), whole["output"]);
    assert_eq!(items[5], json!({ "type": "function_call_output", "call_id": "toolu_1", "output": "found" }));
    let sent = String::from_utf8(server.received()[1].body.clone()).unwrap();
    assert!(sent.contains(&whole["output"][0].to_string()), "byte for byte");
}

#[tokio::test]
async fn reasoning_is_sent_back_only_if_the_server_accepts_it() {
    let thought = |id: &str, encrypted: Value| json!({ "id": id, "type": "reasoning", "summary": [], "encrypted_content": encrypted });
    let items = [thought("rs_1", json!("x")), thought("rs_2", json!(null)), message("Hi"), thought("rs_3", json!("x"))];
    let reply = reply_of(&[completed(&items)]).await;
    assert_eq!(reply.blocks.len(), 4);
    let back = |has_openai_rules| {
        let mut body = OpenaiEncoder::new(&setup(&OpenaiDialect), RequestDialect { effort: None, has_openai_rules });
        body.push(&Message::Assistant(reply.clone()));
        let body: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
        body["input"].clone()
    };
    assert_eq!(back(true), json!([items[0], items[2]]));
    assert_eq!(back(false), json!([items[0], items[1], items[2]]));
    let only_thoughts = reply_of(&[completed(&items[..2])]).await;
    let mut body = OpenaiEncoder::new(&setup(&OpenaiDialect), RequestDialect { effort: None, has_openai_rules: true });
    body.push(&Message::Assistant(only_thoughts));
    let body: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
    assert_eq!(body["input"], json!([{ "type": "message", "role": "assistant", "content": "(nothing)" }]));
}

#[tokio::test]
async fn redacted_or_renamed_items_are_reencoded() {
    let call = json!({ "id": "fc_1", "type": "function_call", "call_id": "a", "name": "glob", "arguments": "{ }" });
    let mut reply = reply_of(&[completed(&[message("Hi"), call])]).await;
    reply.blocks[0].raw = None;
    let BlockContent::Call(call) = &mut reply.blocks[1].content else { unreachable!() };
    call.id = "b".to_owned();
    let mut body = OpenaiEncoder::new(&setup(&OpenaiDialect), RequestDialect { effort: None, has_openai_rules: true });
    body.push(&Message::Assistant(reply));
    let body: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
    let expected = json!([
        { "type": "message", "role": "assistant", "content": "Hi" },
        { "type": "function_call", "call_id": "b", "name": "glob", "arguments": "{ }" },
    ]);
    assert_eq!(body["input"], expected);
}

#[tokio::test]
async fn an_item_is_taken_from_its_final_event_or_the_response() {
    let delta = |text: &str| json!({ "type": "response.output_text.delta", "output_index": 0, "delta": text });
    for events in [
        vec![delta("H"), delta("i"), done(0, &message("Hi!")), completed(&[])],
        vec![delta("H"), completed(&[message("Hi!")])],
        vec![completed(&[message("Hi!")])],
        vec![json!({ "type": "response.output_item.done", "item": message("Hi!") }), completed(&[])],
    ] {
        let reply = reply_of(&events).await;
        assert_eq!((reply.text().as_str(), reply.blocks.len()), ("Hi!", 1), "{events:?}");
    }
}

#[tokio::test]
async fn a_truncated_reply_keeps_its_text() {
    let added = |item: Value| json!({ "type": "response.output_item.added", "output_index": 0, "item": item });
    let incomplete =
        json!({ "type": "response.incomplete", "response": response(&[], "incomplete", Some("max_output_tokens")) });
    let delta = json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "Hel" });
    let mut begun = message("");
    begun["content"] = json!([]);
    let reply = reply_of(&[added(begun), delta, incomplete.clone()]).await;
    assert_eq!((reply.text().as_str(), &reply.stop), ("Hel", &StopReason::MaxTokens));
    let call = json!({ "id": "fc_1", "type": "function_call", "call_id": "a", "name": "glob", "arguments": "" });
    let piece = json!({ "type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"a\"" });
    let reply = reply_of(&[added(call), piece, incomplete]).await;
    assert!(reply.tool_calls().next().unwrap().input_error.is_some());
}

#[tokio::test]
async fn finish_reasons_are_mapped() {
    let mut refusing = message("");
    refusing["content"] = json!([{ "type": "refusal", "refusal": "I can't do that." }]);
    let reply = reply_of(&[completed(&[refusing])]).await;
    assert_eq!((reply.text().as_str(), reply.stop), ("I can't do that.", StopReason::Refusal));
    for (reason, stop) in [
        (Some("content_filter"), StopReason::Refusal),
        (Some("max_messages"), StopReason::Other("max_messages".to_owned())),
        (Some("max_tokens"), StopReason::MaxTokens),
        // Without a reason, the status alone says that the reply is incomplete.
        (None, StopReason::MaxTokens),
    ] {
        let end = json!({ "type": "response.incomplete", "response": response(&[message("x")], "incomplete", reason) });
        assert_eq!(reply_of(&[end]).await.stop, stop);
    }
}

#[tokio::test]
async fn a_failed_response_is_an_error_with_its_usage() {
    let failed = |code: &str| {
        let mut response = response(&[], "failed", None);
        response["error"] = json!({ "code": code, "message": "sorry" });
        response["usage"] = usage();
        let event = json!({ "type": "response.failed", "response": response });
        ScriptedResponse::stream([sent(&[event]).concat().as_bytes()])
    };
    let good = || streamed(&OpenaiDialect, &tool_call_reply());
    for code in ["server_error", "rate_limit_exceeded", "vector_store_timeout"] {
        let (_, seen, requests) = ask_once(&OpenaiDialect, vec![failed(code), good()]).await;
        assert_eq!(requests, 2);
        let retry = seen.retries.lock().unwrap()[0].clone();
        assert!(retry.reason.ends_with(&format!("({code}): sorry")), "{}", retry.reason);
        assert_eq!((retry.usage.input_tokens, retry.usage.output_tokens), (10, 42));
    }
    for (code, kind) in
        [("invalid_prompt", ProviderErrorKind::Rejected), ("context_length_exceeded", ProviderErrorKind::ContextFull)]
    {
        let (fault, _, requests) = ask_once(&OpenaiDialect, vec![failed(code), good()]).await;
        assert_eq!((fault.unwrap_err().kind, requests), (kind, 1), "{code}");
    }
    let nested = "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"m\"}}\n\n";
    let (fault, _, _) = ask_once(&OpenaiDialect, vec![ScriptedResponse::stream([nested.as_bytes()])]).await;
    assert_eq!(fault.unwrap_err().kind, ProviderErrorKind::ContextFull);
    for status in ["in_progress", "queued", "cancelled"] {
        let body = response(&[message("x")], status, None).to_string();
        let answer = ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &body);
        assert_eq!(ask_once(&OpenaiDialect, vec![answer, good()]).await.2, 2, "{status}");
    }
}

#[test]
fn thinking_levels_depend_on_the_model() {
    let at = |base: &str, model: &str, thinking| {
        let variables = [("OPENAI_BASE_URL", base.to_owned()), ("OPENAI_API_KEY", TEST_KEY.to_owned())];
        let provider = connect(&super::SPEC, &variables).unwrap();
        let mut setup = setup(&OpenaiDialect);
        (setup.model.name, setup.model.thinking) = (model.to_owned(), Some(thinking));
        provider.open(setup).map(|_| ()).map_err(|fault| (fault.kind, fault.hint.is_some()))
    };
    assert_eq!(at("", "gpt-5.6-sol", Thinking::High), Ok(()));
    assert_eq!(at("", "o3", Thinking::Off), Err((ProviderErrorKind::Rejected, true)));
    assert_eq!(at("http://localhost/v1", "o3", Thinking::Off), Ok(()));
}

#[tokio::test]
async fn a_rejected_include_is_left_out_by_all_agents_from_then_on() {
    for (message, code) in [
        ("Encrypted content is not supported with this model.", 400),
        ("Unknown parameter: 'include'.", 400),
        (
            "litellm.BadRequestError: OpenAIException - {\"message\": \"Encrypted content is not supported with this model.\", \"param\": \"include\"}",
            400,
        ),
    ] {
        let error = json!({ "error": { "message": message, "type": "invalid_request_error", "param": "include", "code": null } });
        let refusal =
            ScriptedResponse::new(&format!("{code} x"), "content-type: application/json\r\n", &error.to_string());
        let server = ScriptedServer::start([refusal, streamed(&OpenaiDialect, &tool_call_reply())]).await;
        let provider = connect(OpenaiDialect.spec(), &OpenaiDialect.variables(&server.url)).unwrap();
        let seen = RecordingObserver::default();
        let mut agents = [0, 1].map(|_| provider.open(setup(&OpenaiDialect)).unwrap());
        for agent in &mut agents {
            agent.push(&Message::User(UserMessage::text("Hello")));
            agent.ask(request(), &seen).await.unwrap();
        }
        let includes: Vec<bool> =
            server.received().iter().map(|request| request.json().get("include").is_some()).collect();
        assert_eq!(includes, [true, false, false], "{message}");
        assert!(seen.retries.lock().unwrap().is_empty());
    }
    // This error is about the content that was sent, not about the option.
    let error = json!({ "error": { "message": "The encrypted content gAAA could not be verified.", "code": "invalid_encrypted_content" } });
    let refusal = ScriptedResponse::new("400 x", "content-type: application/json\r\n", &error.to_string());
    let (fault, _, requests) = ask_once(&OpenaiDialect, vec![refusal]).await;
    assert_eq!((fault.unwrap_err().kind, requests), (ProviderErrorKind::Rejected, 1));
}
