use serde_json::json;

use super::*;
use crate::job::Thinking;
use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall, ToolResult, Usage};
use crate::providers::test_server::ScriptedResponse;

fn answer() -> ScriptedResponse {
    ScriptedResponse::stream([reply(&[text_block("Hi")], "end_turn").as_bytes()])
}

fn assistant(views: Vec<BlockContent>) -> Message {
    Message::Assistant(Reply {
        blocks: views.into_iter().map(Block::from).collect(),
        stop: StopReason::EndTurn,
        usage: Usage::default(),
        model: None,
        request_id: None,
    })
}

fn call(id: &str, tool: &str) -> BlockContent {
    let input = serde_json::value::RawValue::from_string("{\"a\":  1}".to_owned()).unwrap();
    BlockContent::Call(ToolCall { id: id.to_owned(), tool: tool.to_owned(), input: input.into(), input_error: None })
}

fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: text.to_owned(), is_error, ..ToolResult::default() }
}

#[tokio::test]
async fn a_request_is_what_the_api_expects() {
    let server = ScriptedServer::start([answer()]).await;
    let base = format!("{}/v1/", server.url);
    let mut conversation = prompted(&base);
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /v1/messages HTTP/1.1");
    let header = |name: &str| received.headers.get(name).map(String::as_str);
    assert_eq!(header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(header("x-api-key"), Some(SECRET));
    assert_eq!(header("authorization"), Some(&*format!("Bearer {SECRET}")));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("user-agent"), Some("legwork/test"));
    assert_eq!(header("transfer-encoding"), None);
    let mark = json!({ "type": "ephemeral" });
    assert_eq!(
        received.json(),
        json!({
            "model": "claude-sonnet-4-5", "max_tokens": 8000, "stream": true,
            "tools": [
                { "name": "glob", "description": "does \"it\"", "input_schema": { "type": "object" } },
                { "name": "grep", "description": "does \"it\"", "input_schema": { "type": "object" }, "cache_control": mark },
            ],
            "system": [{ "type": "text", "text": "Be brief.", "cache_control": mark }],
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hello", "cache_control": mark }] }],
        })
    );
}

#[tokio::test]
async fn thinking_and_tool_choice_are_sent() {
    let server = ScriptedServer::start([answer()]).await;
    let mut conversation = open_conversation(&server.url, setup(Some(Thinking::Low)));
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation.ask(ReplyRequest { tools_allowed: false, ..request() }, &RecordingObserver::default()).await.unwrap();
    let bare = ConversationConfig { system: String::new(), tools: Vec::new(), ..setup(None) };
    let mut conversation = open_conversation(&server.url, bare);
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation.ask(ReplyRequest { tools_allowed: false, ..request() }, &RecordingObserver::default()).await.unwrap();
    let [first, second] = [0, 1].map(|at| server.received()[at].json());
    assert_eq!(first["tool_choice"], json!({ "type": "none" }));
    assert_eq!(first["thinking"], json!({ "type": "enabled", "budget_tokens": 2048 }));
    assert_eq!(first["tools"].as_array().unwrap().len(), 2);
    for absent in ["tool_choice", "thinking", "tools", "system"] {
        assert!(second.get(absent).is_none(), "{absent}");
    }
}

#[tokio::test]
async fn temperature_and_stop_sequences_are_sent_if_the_model_accepts_them() {
    let server = ScriptedServer::start([answer()]).await;
    let asked = async |name: &str, thinking: Option<Thinking>, temperature: f64, stop: &[&str]| {
        let mut setup = setup(thinking);
        setup.model.name = name.to_owned();
        (setup.model.temperature, setup.model.stop) =
            (Some(temperature), stop.iter().map(|text| (*text).to_owned()).collect());
        let mut conversation = open_conversation(&server.url, setup);
        conversation.push(&Message::User(UserMessage::text("Hello")));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let body = server.received().last().unwrap().json();
        ["temperature", "stop_sequences"].map(|name| body.get(name).cloned())
    };
    assert_eq!(
        asked("claude-haiku-4-5", None, 0.0, &["END", "é\""]).await,
        [json!(0.0), json!(["END", "é\""])].map(Some)
    );
    assert_eq!(asked("claude-haiku-4-5", Some(Thinking::Low), 1.0, &[]).await, [None, None]);
    assert_eq!(asked("claude-opus-5", None, 1.0, &["END"]).await, [None, Some(json!(["END"]))]);
}

#[tokio::test]
async fn cache_marks_move_and_the_bytes_before_them_stay() {
    let server = ScriptedServer::start([answer()]).await;
    let mut conversation = prompted(&server.url);
    let mut sizes = vec![conversation.prompt_bytes()];
    for turn in 0..4 {
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let id = format!("toolu_{turn}");
        conversation.push(&assistant(vec![BlockContent::Text("I look.".to_owned()), call(&id, "glob")]));
        let message = UserMessage::results(vec![result(&id, "found", false)]);
        conversation.push(&Message::User(message));
        sizes.push(conversation.prompt_bytes());
    }
    assert!(sizes.is_sorted());
    let bodies: Vec<String> =
        server.received().into_iter().map(|received| String::from_utf8(received.body).unwrap()).collect();
    let mark = r#","cache_control":{"type":"ephemeral"}"#;
    for (turn, body) in bodies.iter().enumerate() {
        assert_eq!(body.matches(mark).count(), 4.min(3 + turn));
        assert!(body.ends_with(&format!("{mark}}}]}}]}}")), "the last block of the last message is marked");
    }
    for (before, after) in bodies.iter().zip(&bodies[1..]) {
        let before = before.replace(mark, "");
        let stays = before.strip_suffix("]}").unwrap();
        assert!(after.replace(mark, "").starts_with(stays));
    }
}

#[tokio::test]
async fn marks_for_an_hour_precede_the_others_until_a_server_refuses_them() {
    let refusal = |why: &str| {
        let body = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": why } });
        ScriptedResponse::new("400 Bad Request", "content-type: application/json\r\n", &body.to_string())
    };
    let (other, ttl) = ("system.0: it was throttled", "tools.1.custom.cache_control.ephemeral.ttl: Extra inputs");
    let server = ScriptedServer::start([answer(), refusal(other), refusal(ttl), answer(), refusal(ttl)]).await;
    let hour = ConversationConfig { caches_for_hour: true, ..setup(None) };
    let mut conversation = open_conversation(&server.url, hour);
    conversation.push(&Message::User(UserMessage::text("Hello")));
    let mut sizes = Vec::new();
    for is_answered in [true, false, true, false] {
        sizes.push(conversation.prompt_bytes());
        let asked = conversation.ask(request(), &RecordingObserver::default()).await;
        assert_eq!(asked.is_ok(), is_answered);
    }
    let bodies: Vec<String> =
        server.received().into_iter().map(|received| String::from_utf8(received.body).unwrap()).collect();
    let (mark, hour_mark) =
        (r#","cache_control":{"type":"ephemeral"}"#, r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#);
    let counts: Vec<_> =
        bodies.iter().map(|body| (body.matches(hour_mark).count(), body.matches(mark).count())).collect();
    assert_eq!(counts, [(2, 1), (2, 1), (2, 1), (0, 3), (0, 3)]);
    assert!(bodies[0].rfind(hour_mark) < bodies[0].find(mark));
    assert_eq!(bodies[0].replace(hour_mark, mark), bodies[3]);
    assert_eq!(sizes[2] - sizes[3], 2 * (hour_mark.len() - mark.len()));
}

#[tokio::test]
async fn nothing_is_sent_that_the_api_rejects() {
    let server = ScriptedServer::start([answer()]).await;
    let mut conversation = prompted(&server.url);
    let blank = || BlockContent::Text(" \n".to_owned());
    let thought = || {
        let raw = r#"{"type":"thinking","thinking":"","signature":"s"}"#.to_owned();
        Block {
            content: BlockContent::Thinking(String::new()),
            raw: Some(serde_json::value::RawValue::from_string(raw).unwrap().into()),
        }
    };
    conversation.push(&assistant(vec![blank(), call("x.1", "functions.bash"), call("", ""), blank()]));
    conversation.push(&Message::User(UserMessage {
        results: vec![result("x.1", "", true), result("", "  ", false)],
        text: Some("\n".to_owned()),
        ..UserMessage::default()
    }));
    conversation.push(&assistant(vec![]));
    conversation.push(&Message::User(UserMessage::default()));
    let Message::Assistant(mut reply) = assistant(vec![blank()]) else { unreachable!() };
    reply.blocks.insert(0, thought());
    conversation.push(&Message::Assistant(reply));
    conversation.push(&Message::User(UserMessage::text("Sum up.")));
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let nothing = json!({ "type": "text", "text": "(nothing)" });
    let contents: Vec<Value> = server.received()[0].json()["messages"].as_array().unwrap()[1..]
        .iter()
        .map(|message| message["content"].clone())
        .collect();
    let mut expected = json!([
        [
            { "type": "tool_use", "id": "x.1", "name": "functions_bash", "input": { "a": 1 } },
            { "type": "tool_use", "id": "_", "name": "_", "input": { "a": 1 } },
        ],
        [
            { "type": "tool_result", "tool_use_id": "x.1", "content": "(nothing)", "is_error": true },
            { "type": "tool_result", "tool_use_id": "_", "content": "(nothing)" },
        ],
        [nothing],
        [nothing],
        [{ "type": "thinking", "thinking": "", "signature": "s" }, nothing],
        [{ "type": "text", "text": "Sum up." }],
    ]);
    for marked in [3, 5] {
        expected[marked][0]["cache_control"] = json!({ "type": "ephemeral" });
    }
    assert_eq!(json!(contents), expected);
}

#[test]
fn endpoint_urls_are_derived_from_the_base_url() {
    let shown = |base: &str| {
        let variable = |name: &str| (name == "ANTHROPIC_BASE_URL").then(|| base.to_owned());
        let connect = ConnectContext {
            providers: crate::providers::PROVIDERS,
            env: &variable,
            server: None,
            settings: None,
            script: None,
            user_agent: "x",
            redactor: &Redactor::default(),
        };
        let endpoint = crate::providers::transport::endpoint::Endpoint::new(
            &connect,
            crate::providers::anthropic::NAMES,
            "https://api.anthropic.com",
            "/v1/messages",
        );
        endpoint.map(|endpoint| endpoint.display_url).map_err(|fault| fault.message)
    };
    for (base, expected) in [
        ("", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1/messages"),
        (" https://gate.example/claude/v1// \n", "https://gate.example/claude/v1/messages"),
        ("https://me:pass@gate.example:8443/?token=t", "https://gate.example:8443/v1/messages"),
    ] {
        assert_eq!(shown(base).unwrap(), expected);
    }
    let wrong = "ANTHROPIC_BASE_URL isn't an http:// or https:// address";
    for (base, why) in [("gate.example", ""), ("ftp://x", ""), ("http://", ": empty host"), ("file:///etc", "")] {
        assert_eq!(shown(base).unwrap_err(), format!("{wrong}{why}"));
    }
}

#[tokio::test]
async fn a_long_conversation_is_sent_whole_at_every_turn() {
    let server = ScriptedServer::start([answer()]).await;
    let mut conversation = prompted(&server.url);
    let text = "0123456789".repeat(5_000);
    for turn in 0..20 {
        let id = format!("toolu_{turn}");
        conversation.push(&assistant(vec![call(&id, "glob")]));
        let message = UserMessage::results(vec![result(&id, &text, false)]);
        conversation.push(&Message::User(message));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    }
    let received = server.received();
    assert!(received.last().unwrap().body.len() > 1_000_000);
    for (turn, received) in received.iter().enumerate() {
        assert_eq!(received.json()["messages"].as_array().unwrap().len(), 3 + 2 * turn);
    }
}
