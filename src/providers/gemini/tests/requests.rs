use serde_json::{Value, json};
use std::sync::Arc;

use super::{GeminiDialect, answers, of_model, reply_of, sent_back};
use crate::job::Thinking;
use crate::message::{Block, BlockContent, Message, Reply, StopReason, ToolCall, Usage, UserMessage};
use crate::providers::conformance_tests::{
    RecordingObserver, TEST_KEY, connect, request, result, setup, streamed, tool_call_reply,
};
use crate::providers::gemini::SPEC;
use crate::providers::gemini::request::GeminiEncoder;
use crate::providers::test_server::ScriptedServer;
use crate::providers::transport::http_conversation::RequestEncoder as _;
use crate::providers::{ConversationConfig, Model, ProviderErrorKind, ReplyRequest, RequestOptions};

fn written(setup: &ConversationConfig, ask: &ReplyRequest) -> Value {
    let mut body = GeminiEncoder::new(setup);
    body.push(&Message::User(UserMessage::text("Hello")));
    serde_json::from_slice(&body.body_chunks(ask).concat()).unwrap()
}

#[test]
fn a_request_is_what_the_api_expects() {
    let tool = |name: &str| json!({ "name": name, "description": "does \"it\"", "parametersJsonSchema": { "type": "object" } });
    let mut expected = json!({
        "generationConfig": { "maxOutputTokens": 8000 },
        "systemInstruction": { "parts": [{ "text": "Be brief." }] },
        "tools": [{ "functionDeclarations": [tool("glob"), tool("grep")] }],
        "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }],
    });
    assert_eq!(written(&setup(&GeminiDialect), &request()), expected);
    let mut asking = of_model("gemini-2.5-flash");
    asking.model.temperature = Some(0.5);
    asking.model.stop = vec!["END".to_owned(), "\n\n".to_owned()];
    asking.model.thinking = Some(Thinking::Low);
    expected["generationConfig"] = json!({ "maxOutputTokens": 8000, "temperature": 0.5, "stopSequences": ["END", "\n\n"],
        "thinkingConfig": { "thinkingBudget": 2048, "includeThoughts": true } });
    assert_eq!(written(&asking, &request()), expected);
    expected["toolConfig"] = json!({ "functionCallingConfig": { "mode": "NONE" } });
    assert_eq!(written(&asking, &ReplyRequest { tools_allowed: false, ..request() }), expected);
}

#[tokio::test]
async fn parts_are_sent_back_unchanged_and_results_separately_from_text() {
    let server = ScriptedServer::start([streamed(&GeminiDialect, &tool_call_reply())]).await;
    let mut conversation = crate::providers::conformance_tests::prompted(&GeminiDialect, &server.url);
    let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    conversation.push(&Message::Assistant(reply));
    let results = vec![result("toolu_1", "found", false), result("toolu_2", "no such file", true)];
    conversation.push(&Message::User(UserMessage {
        results,
        text: Some("Go on.".to_owned()),
        ..UserMessage::default()
    }));
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let received = server.received();
    let body = String::from_utf8(received[1].body.clone()).unwrap();
    let call = r#"{"functionCall":{"name":"glob","args":{"pattern": "**/*.toml"},"id":"toolu_1"},"thoughtSignature":"EhcKFQHRFKi4cGl6emE="}"#;
    assert!(body.contains(call), "byte for byte: {body}");
    let answer = |id: &str, name: &str, response: Value| json!({ "functionResponse": { "id": id, "name": name, "response": response } });
    let contents = received[1].json()["contents"].clone();
    assert_eq!(
        contents[2],
        json!({ "role": "user", "parts": [
            answer("toolu_1", "glob", json!({ "output": "found" })),
            answer("toolu_2", "grep", json!({ "error": "no such file" })),
        ] })
    );
    assert_eq!(contents[3], json!({ "role": "user", "parts": [{ "text": "Go on." }] }));
    assert_eq!(contents.as_array().unwrap().len(), 4);
}

/// A reply from another provider, with that provider's JSON.
fn foreign() -> Reply {
    let raw = |json: Value| Some(Arc::from(serde_json::value::to_raw_value(&json).unwrap()));
    let call = |id: &str, raw| {
        let input = Arc::from(serde_json::value::RawValue::from_string("{\"a\":1}".to_owned()).unwrap());
        Block {
            content: BlockContent::Call(ToolCall {
                id: id.to_owned(),
                tool: "glob".to_owned(),
                input,
                input_error: None,
            }),
            raw,
        }
    };
    let blocks = vec![
        Block {
            content: BlockContent::Thinking("Hm.".to_owned()),
            raw: raw(json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" })),
        },
        Block {
            content: BlockContent::Text("I look.".to_owned()),
            raw: raw(json!({ "type": "text", "text": "I look.", "citations": [1] })),
        },
        Block {
            content: BlockContent::Other("server_tool_use".to_owned()),
            raw: raw(json!({ "type": "server_tool_use" })),
        },
        call(
            "toolu_1",
            raw(json!({ "type": "tool_use", "id": "toolu_1", "name": "glob", "input": { "a": 1 }, "x": 2 })),
        ),
        call("toolu_2", raw(json!({ "extra_content": { "google": { "thought_signature": "s" } } }))),
        call("toolu_3", None),
    ];
    Reply { blocks, stop: StopReason::ToolUse, usage: Usage::default(), model: None, request_id: None }
}

#[test]
fn replies_from_other_providers_are_reencoded() {
    let ids = ["toolu_1", "toolu_2", "toolu_3"];
    let messages = || [Message::Assistant(foreign()), answers(&ids)];
    let call = |id: &str, is_first: bool| {
        let mut part = json!({ "functionCall": { "id": id, "name": "glob", "args": { "a": 1 } } });
        if is_first {
            part["thoughtSignature"] = json!("skip_thought_signature_validator");
        }
        part
    };
    let contents = sent_back(&of_model("gemini-3.8-flash"), messages());
    let expected = json!([{ "text": "I look." }, call(ids[0], true), call(ids[1], false), call(ids[2], false)]);
    assert_eq!(contents[0]["parts"], expected);
    assert_eq!(contents[1]["parts"][2]["functionResponse"]["id"], "toolu_3");
    // Older models don't accept signatures, and not all of their servers accept ids.
    let contents = sent_back(&of_model("gemini-2.5-flash"), messages());
    let call = json!({ "functionCall": { "name": "glob", "args": { "a": 1 } } });
    assert_eq!(contents[0]["parts"], json!([{ "text": "I look." }, call, call, call]));
    assert_eq!(
        contents[1]["parts"][2],
        json!({ "functionResponse": { "name": "glob", "response": { "output": "found" } } })
    );
}

#[tokio::test]
async fn redacted_renamed_or_unsigned_parts_are_reencoded() {
    let named = |name: &str| {
        format!(r#"{{"functionCall":{{"name":"{name}","args":{{}},"id":"a"}},"thoughtSignature":"eA=="}}"#)
    };
    let back =
        |reply: Reply| sent_back(&of_model("gemini-3.8-flash"), [Message::Assistant(reply)])[0]["parts"][0].clone();
    let masked = |mut reply: Reply| {
        reply.blocks[0].raw = None;
        reply
    };
    let expected = |name: &str, signature: &str| json!({ "functionCall": { "name": name, "args": {}, "id": "a" }, "thoughtSignature": signature });
    let nobody = "skip_thought_signature_validator";
    assert_eq!(back(masked(reply_of(&[&named("glob")]).await)), expected("glob", nobody));
    assert_eq!(back(reply_of(&[&named("functions.bash x")]).await), expected("functions_bash_x", "eA=="));
    assert_eq!(back(reply_of(&[&named("7up")]).await), expected("_7up", "eA=="));
    let unsigned = r#"{"functionCall":{"name":"glob","args":{},"id":"a"}}"#;
    assert_eq!(back(reply_of(&[unsigned]).await), expected("glob", nobody));
    let broken = r#"{"functionCall":{"name":"glob","args":[1],"id":"a"},"thoughtSignature":"eA=="}"#;
    let reply = reply_of(&[broken]).await;
    assert!(reply.tool_calls().next().unwrap().input_error.is_some());
    assert_eq!(back(reply), expected("glob", "eA=="));
}

#[tokio::test]
async fn address_and_key_are_the_same_as_in_googles_clients() {
    let url_of = async |model: &str, path: &str, keys: &[(&'static str, &str)]| {
        let server = ScriptedServer::start([streamed(&GeminiDialect, &tool_call_reply())]).await;
        let mut variables = vec![("GOOGLE_GEMINI_BASE_URL", format!("{}{path}", server.url))];
        variables.extend(keys.iter().map(|(name, key)| (*name, (*key).to_owned())));
        let provider = connect(&SPEC, &variables).unwrap();
        let mut conversation = provider.open(of_model(model)).unwrap();
        conversation.push(&Message::User(UserMessage::text("Hello")));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let received = server.received().remove(0);
        (received.line, received.headers.get("x-goog-api-key").cloned())
    };
    let (first, second) = ("first-key-0123", "second-key-0123");
    let at = |path: &str| format!("POST {path} HTTP/1.1");
    let line = at("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
    for (path, keys, sent) in [
        ("", vec![("GEMINI_API_KEY", second)], Some(second)),
        ("/", vec![("GOOGLE_API_KEY", first)], Some(first)),
        ("/v1beta", vec![("GEMINI_API_KEY", second), ("GOOGLE_API_KEY", first)], Some(first)),
        ("/v1beta/models/", vec![("GEMINI_API_KEY", second), ("GOOGLE_API_KEY", "")], Some(second)),
        ("", vec![], None),
    ] {
        assert_eq!(url_of("gemini-2.5-pro", path, &keys).await, (line.clone(), sent.map(str::to_owned)), "{path}");
    }
    let (line, _) = url_of("models/a b/../c?d", "/gate?team=7", &[]).await;
    assert_eq!(line, at("/gate/v1beta/models/a%20b%2F..%2Fc%3Fd:streamGenerateContent?team=7&alt=sse"));
}

#[test]
fn two_different_keys_give_a_warning() {
    let warning = |keys: &[(&str, &str)]| {
        let variables: Vec<(&str, String)> = keys.iter().map(|(name, key)| (*name, (*key).to_owned())).collect();
        let provider = connect(&SPEC, &variables).unwrap();
        provider.warning()
    };
    assert_eq!(warning(&[("GEMINI_API_KEY", TEST_KEY)]), None);
    assert_eq!(warning(&[("GEMINI_API_KEY", TEST_KEY), ("GOOGLE_API_KEY", TEST_KEY)]), None);
    let two = warning(&[("GEMINI_API_KEY", TEST_KEY), ("GOOGLE_API_KEY", "another-key")]).unwrap();
    assert!(two.contains("GOOGLE_API_KEY is used") && !two.contains(TEST_KEY), "{two}");
    let fault = connect(&SPEC, &[("GOOGLE_API_KEY", "a b".to_owned())]).err().unwrap();
    assert!(fault.message.starts_with("GOOGLE_API_KEY contains a space"), "{}", fault.message);
}

#[test]
fn unsupported_options_of_each_model_are_known() {
    let options = |name: &str, change: fn(&mut Model)| {
        let mut model = Model::new("gemini", name);
        change(&mut model);
        let wish = RequestOptions { model: &model, has_tools: true, max_tokens: 8_000 };
        (SPEC.unsupported_options)(&wish).into_iter().map(|untaken| untaken.option).collect::<Vec<_>>()
    };
    assert_eq!(options("gemini-2.5-pro", |model| model.thinking = Some(Thinking::Off)), ["thinking"]);
    assert_eq!(options("gemini-2.5-flash", |model| model.thinking = Some(Thinking::Off)), [""; 0]);
    assert_eq!(options("gemini-3.8-flash", |model| model.temperature = Some(0.0)), ["temperature"]);
    assert_eq!(options("gemini-3.8-flash", |model| model.temperature = Some(1.0)), [""; 0]);
    assert_eq!(options("gemini-2.5-pro", |model| model.temperature = Some(0.0)), [""; 0]);
    assert_eq!(options("any", |model| model.stop = vec!["x".to_owned(); 6]), ["stop"]);
    assert_eq!(options("any", |model| model.stop = vec!["x".to_owned(); 5]), [""; 0]);
    let open = |base: &str| {
        let variables = [("GOOGLE_GEMINI_BASE_URL", base.to_owned()), ("GEMINI_API_KEY", TEST_KEY.to_owned())];
        let mut setup = of_model("gemini-2.5-pro");
        setup.model.thinking = Some(Thinking::Off);
        let opened = connect(&SPEC, &variables).unwrap().open(setup);
        opened.map(|_| ()).map_err(|fault| (fault.kind, fault.hint.is_some()))
    };
    assert_eq!(open(""), Err((ProviderErrorKind::Rejected, true)));
    assert_eq!(open("http://localhost:1"), Ok(()));
}
