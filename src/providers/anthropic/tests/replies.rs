use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::message::{BlockContent, StopReason, ToolResult, Usage};
use crate::providers::anthropic::reply::AnthropicDecoder;
use crate::providers::assembler::ReplyAssembler;
use crate::providers::test_server::{ConnectionEnd, ScriptedResponse};
use crate::providers::transport::sse::Decoder;

fn mixed() -> String {
    reply(
        &[
            (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                vec![
                    json!({ "type": "thinking_delta", "thinking": "Let me " }),
                    json!({ "type": "thinking_delta", "thinking": "see — é😀" }),
                    json!({ "type": "signature_delta", "signature": "EqQB+/sig==" }),
                ],
            ),
            (json!({ "type": "redacted_thinking", "data": "opaque" }), vec![]),
            text_block("Hello ä€"),
            call_block("toolu_1", &["", "{\"pat", "tern\": ", "\"**/*.toml\"}"]),
            (
                json!({ "type": "text", "text": "cited", "citations": [{ "type": "tomorrows", "a": 1.50 }] }),
                vec![
                    json!({ "type": "citations_delta", "citation": { "type": "tomorrows", "b": 12345678901234567890u64 } }),
                ],
            ),
            (
                json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} }),
                vec![json!({ "type": "input_json_delta", "partial_json": "{\"query\":\"x\"}" })],
            ),
            (
                json!({ "type": "novelty", "content": "be", "n": null }),
                vec![json!({ "type": "novelty_delta", "content": "gun", "n": 7 })],
            ),
        ],
        "tool_use",
    )
}

/// The content of [`mixed`] as it must be sent back.
fn mixed_sent_back() -> Value {
    json!([
        { "type": "thinking", "thinking": "Let me see — é😀", "signature": "EqQB+/sig==" },
        { "type": "redacted_thinking", "data": "opaque" },
        { "type": "text", "text": "Hello ä€" },
        { "type": "tool_use", "id": "toolu_1", "name": "glob", "input": { "pattern": "**/*.toml" } },
        { "type": "text", "text": "cited", "citations": [{ "type": "tomorrows", "a": 1.50 }, { "type": "tomorrows", "b": 12345678901234567890u64 }] },
        { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } },
        { "type": "novelty", "content": "begun", "n": 7 },
    ])
}

#[tokio::test]
async fn every_block_is_kept_and_sent_back_unchanged() {
    let body = mixed();
    let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()])])
        .await
        .allow_part_types(&["novelty", "tomorrows"]);
    let mut conversation = prompted(&server.url);
    let seen = RecordingObserver::default();
    let reply = conversation.ask(request(), &seen).await.unwrap();
    assert_eq!(reply.text(), "Hello ä€cited");
    assert_eq!(reply.stop, StopReason::ToolUse);
    assert_eq!(reply.model.as_deref(), Some("claude-sonnet-4-5-20250929"));
    assert_eq!(reply.request_id.as_deref(), Some("req_head"));
    let usage =
        Usage { input_tokens: 10, output_tokens: 42, cache_read_tokens: 7, cache_write_tokens: 5, ..Usage::default() };
    assert_eq!(reply.usage, usage);
    assert!(matches!(&reply.blocks[0].content, BlockContent::Thinking(text) if text == "Let me see — é😀"));
    assert!(reply.blocks[2].raw.is_none() && reply.blocks[3].raw.is_none());
    assert!(matches!(&reply.blocks[6].content, BlockContent::Other(kind) if kind == "novelty"));
    let call = reply.tool_calls().next().unwrap();
    assert_eq!((call.tool.as_str(), call.input.get()), ("glob", r#"{"pattern": "**/*.toml"}"#));

    // Serialized and parsed as in the journal, like on resume.
    let recorded = serde_json::to_string(&reply).unwrap();
    conversation.push(&Message::Assistant(serde_json::from_str(&recorded).unwrap()));
    let results = vec![ToolResult {
        call_id: call.id.clone(),
        text: "Cargo.toml".to_owned(),
        is_error: false,
        ..ToolResult::default()
    }];
    conversation.push(&Message::User(UserMessage {
        results,
        text: Some("go on".to_owned()),
        ..UserMessage::default()
    }));
    conversation.ask(request(), &seen).await.unwrap();
    let received = server.received();
    assert_eq!(received[1].json()["messages"][1]["content"], mixed_sent_back());
    let body = String::from_utf8(received[1].body.clone()).unwrap();
    assert!(body.contains(r#"{"type":"thinking","thinking":"Let me see — é😀","signature":"EqQB+/sig=="}"#));
    assert!(body.contains(r#""a":1.5}"#) && body.contains("12345678901234567890"));
    assert_eq!((received[0].connection, received[1].connection), (0, 0), "one connection serves both");
}

#[test]
fn every_chunking_of_the_bytes_gives_the_same_reply() {
    let body = mixed();
    let read = |chunks: &mut dyn Iterator<Item = &[u8]>| {
        let mut growth = ReplyAssembler::new(0, AnthropicDecoder::default());
        let mut decoder = Decoder::new(1 << 20);
        for chunk in chunks {
            decoder.feed(chunk, |name, data| growth.push_event(name, data)).unwrap();
        }
        growth
    };
    let whole = serde_json::to_string(&read(&mut [body.as_bytes()].into_iter()).finish(None).unwrap()).unwrap();
    for size in [1, 2, 3, 7, 64, 1000] {
        let growth = read(&mut body.as_bytes().chunks(size));
        assert!(growth.is_finished());
        assert_eq!(serde_json::to_string(&growth.finish(None).unwrap()).unwrap(), whole, "in chunks of {size}");
    }
    for cut in 0..body.len() {
        assert!(!read(&mut [&body.as_bytes()[..cut]].into_iter()).is_finished(), "ended at {cut} of {}", body.len());
    }
}

#[tokio::test]
async fn a_cut_stream_is_retried() {
    let body = reply(&[text_block("Hello")], "end_turn");
    let ends: Vec<usize> = body.match_indices("\n\n").map(|(at, _)| at + 2).collect();
    // Cut between events and inside each event, by a closed connection and by a regular end. Only the last event can be
    // missing.
    let mut answers = Vec::new();
    for end in &ends[..ends.len() - 2] {
        answers.push(ScriptedResponse::stream([&body.as_bytes()[..*end]]));
        answers.push(ScriptedResponse::stream([&body.as_bytes()[..*end + 9]]).cut(ConnectionEnd::Close));
    }
    for answer in answers {
        let server = ScriptedServer::start([answer, ScriptedResponse::stream([body.as_bytes()])]).await;
        let seen = RecordingObserver::default();
        let reply = prompted(&server.url).ask(request(), &seen).await.unwrap();
        assert_eq!(reply.text(), "Hello");
        let retries = seen.retries.lock().unwrap();
        assert_eq!(retries.len(), 1);
        assert!(retries[0].reason.contains("ended before the reply did") || retries[0].reason.contains("was cut off"));
        assert_eq!(retries[0].usage.input_tokens, 10);
    }
}

#[tokio::test]
async fn a_reply_that_is_cut_off_twice_has_nothing_of_the_first_tries() {
    let piece = |text: &str| json!({ "type": "text_delta", "text": text });
    let body = reply(&[(json!({ "type": "text", "text": "" }), vec![piece("Hel"), piece("lo")])], "end_turn");
    let cut = body.find("\"lo\"").unwrap();
    let answers = [&body[..cut], &body[..cut], &body].map(|part| ScriptedResponse::stream([part.as_bytes()]));
    let server = ScriptedServer::start(answers).await;
    let seen = RecordingObserver::default();
    assert_eq!(prompted(&server.url).ask(request(), &seen).await.unwrap().text(), "Hello");
    assert_eq!(seen.retries.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn received_text_of_a_cut_reply_counts_as_usage() {
    let text = "word ".repeat(200);
    let body = reply(&[text_block(&text)], "end_turn");
    let server = ScriptedServer::start(
        [&body[..body.find("content_block_stop").unwrap()], &body[..]]
            .map(|part| ScriptedResponse::stream([part.as_bytes()])),
    )
    .await;
    let seen = RecordingObserver::default();
    let whole = prompted(&server.url).ask(request(), &seen).await.unwrap();
    assert_eq!(seen.retries.lock().unwrap()[0].usage.output_tokens, 250, "the API had said 1");
    assert_eq!(whole.usage.output_tokens, 42);
}

#[tokio::test]
async fn inputs_are_limited_in_length_and_depth() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let quoted = format!("{{\"a\":\"{}\\\"{}\"}}", "[{".repeat(200), "[".repeat(200));
    let long = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
    for (input, broken) in [
        (nested(100), None),
        (nested(101), Some("the input is nested deeper than 100 levels")),
        (nested(100_000), Some("the input is nested deeper than 100 levels")),
        (quoted, None),
        (long(4 << 20), None),
        (long((4 << 20) + 1), Some("the input is longer than 4194304 bytes")),
        (long(20 << 20), Some("the input is longer than 4194304 bytes")),
    ] {
        let pieces: Vec<&str> = input.as_bytes().chunks(1 << 20).map(|piece| str::from_utf8(piece).unwrap()).collect();
        let reply = ask_once(&reply(&[call_block("a", &pieces)], "tool_use")).await;
        let call = reply.tool_calls().next().unwrap();
        assert_eq!(call.input_error.as_deref(), broken);
        assert_eq!(call.input.get(), if broken.is_some() { "{}" } else { &input });
    }
}

#[tokio::test]
async fn a_response_without_streaming_is_accepted() {
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": "Hi" }, { "type": "thinking", "thinking": "t", "signature": "s" },
            { "type": "tool_use", "id": "a", "name": "glob", "input": { "pattern": "*" } }],
        "usage": { "input_tokens": 3, "output_tokens": 4 } });
    let answer = ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &message.to_string());
    let server = ScriptedServer::start([answer]).await;
    let reply = prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap();
    assert_eq!((reply.text().as_str(), reply.blocks.len(), reply.usage.output_tokens), ("Hi", 3, 4));
    assert_eq!(reply.tool_calls().next().unwrap().input.get(), r#"{"pattern":"*"}"#);
}

#[tokio::test]
async fn a_reply_is_complete_at_its_last_event_whatever_its_content_type() {
    let body = reply(&[text_block("Hi")], "end_turn");
    let open = ScriptedResponse::stream([body.as_bytes()]).cut(ConnectionEnd::Hang);
    let plain = ScriptedResponse::new("200 OK", "content-type: text/plain\r\n", &body);
    let unnamed = ScriptedResponse::new("200 OK", "", &body);
    let cut = ScriptedResponse::new("200 OK", "", &body[..body.find("message_delta").unwrap()]);
    let server = ScriptedServer::start([open, plain, unnamed, cut, ScriptedResponse::stream([body.as_bytes()])]).await;
    let mut conversation = prompted(&server.url);
    let seen = RecordingObserver::default();
    for _ in 0..4 {
        assert_eq!(conversation.ask(request(), &seen).await.unwrap().text(), "Hi");
    }
    assert_eq!(seen.retries.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn inputs_that_are_not_objects_are_reported_and_replaced() {
    let cases: [(&[&str], &str, Option<&str>); 6] = [
        (&[], "{}", None),
        (&[""], "{}", None),
        (&["{\"a\":1}"], "{\"a\":1}", None),
        (&["{\"a\": ", "tru"], "{}", Some("the input isn't valid JSON: EOF while parsing")),
        (&["[1]"], "{}", Some("the input isn't a JSON object")),
        (&["{} {}"], "{}", Some("the input isn't valid JSON: trailing characters")),
    ];
    for (pieces, input, broken) in cases {
        let reply = ask_once(&reply(&[call_block("a", pieces)], "tool_use")).await;
        let call = reply.tool_calls().next().unwrap();
        assert_eq!(call.input.get(), input);
        assert_eq!(call.input_error.is_some(), broken.is_some(), "{pieces:?}");
        assert!(call.input_error.as_deref().unwrap_or_default().starts_with(broken.unwrap_or_default()));
    }
    let without = (json!({ "type": "tool_use", "id": "a", "name": "glob" }), vec![]);
    let given = (json!({ "type": "tool_use", "id": "b", "name": "glob", "input": { "x": 1 } }), vec![]);
    let reply = ask_once(&reply(&[without, given], "tool_use")).await;
    assert_eq!(reply.tool_calls().map(|call| call.input.get()).collect::<Vec<_>>(), ["{}", r#"{"x":1}"#]);
}

#[tokio::test]
async fn call_ids_become_unique_within_the_conversation() {
    let caller = (
        json!({ "type": "tool_use", "id": "a", "name": "glob", "input": {}, "caller": { "type": "direct" } }),
        vec![json!({ "type": "input_json_delta", "partial_json": "{\"n\":1}" })],
    );
    let body = reply(&[call_block("a", &[]), caller, call_block("", &[]), call_block("b c", &[])], "tool_use");
    let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()])]).await;
    let mut conversation = prompted(&server.url);
    let ids = |reply: &crate::message::Reply| reply.tool_calls().map(|call| call.id.clone()).collect::<Vec<_>>();
    let first = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    assert_eq!(ids(&first), ["a", "a-2", "call", "b c"]);
    let raw: &RawValue = first.blocks[1].raw.as_deref().unwrap();
    assert_eq!(raw.get(), r#"{"type":"tool_use","id":"a-2","name":"glob","input":{"n":1},"caller":{"type":"direct"}}"#);
    let ids_of_first = ids(&first);
    conversation.push(&Message::Assistant(first));
    let results = ids_of_first
        .into_iter()
        .map(|call_id| ToolResult { call_id, text: String::new(), is_error: false, ..ToolResult::default() })
        .collect();
    conversation.push(&Message::User(UserMessage {
        results,
        text: Some("again".to_owned()),
        ..UserMessage::default()
    }));
    let second = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    assert_eq!(ids(&second), ["a-3", "a-4", "call-2", "b c-2"]);
}

#[tokio::test]
async fn a_reply_without_a_stop_reason_is_retried() {
    let good = reply(&[text_block("Hello")], "end_turn");
    let delta = good.split_inclusive("\n\n").find(|event| event.contains("message_delta")).unwrap();
    let answers = [good.replace(delta, ""), good.replace("\"end_turn\"", "null")];
    for cut in answers {
        let server = ScriptedServer::start([
            ScriptedResponse::stream([cut.as_bytes()]),
            ScriptedResponse::stream([good.as_bytes()]),
        ])
        .await;
        let seen = RecordingObserver::default();
        let reply = prompted(&server.url).ask(request(), &seen).await.unwrap();
        assert_eq!((reply.text().as_str(), reply.stop), ("Hello", StopReason::EndTurn));
        let retries = seen.retries.lock().unwrap();
        assert!(retries.len() == 1 && retries[0].reason.contains("stop reason"), "{retries:?}");
    }
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let cases = [
        // The reply has a call.
        ("end_turn", StopReason::ToolUse),
        ("tool_use", StopReason::ToolUse),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal),
        ("pause_turn", StopReason::Pause),
        ("model_context_window_exceeded", StopReason::ContextFull),
        ("stop_sequence", StopReason::ToolUse),
        ("tea_time", StopReason::Other("tea_time".to_owned())),
    ];
    for (word, stop) in cases {
        assert_eq!(ask_once(&reply(&[call_block("x", &[])], word)).await.stop, stop);
    }
}

#[tokio::test]
async fn unknown_events_are_ignored() {
    let body = format!(
        "event: hello\ndata: not json\n\n{}event: new_thing\ndata: {{\"type\":\"new_thing\",\"index\":\"x\"}}\n\ndata: [DONE]\n\n",
        reply(&[text_block("half a \u{fffd} pair")], "end_turn").replace('\u{fffd}', "\\ud83d")
    );
    assert_eq!(ask_once(&body).await.text(), "half a \u{fffd} pair");
}

#[test]
fn five_thousand_deltas_are_one_text() {
    let deltas = (0..5000).map(|n| json!({ "type": "text_delta", "text": format!("word {n} ") })).collect();
    let body = reply(&[(json!({ "type": "text", "text": "" }), deltas)], "end_turn");
    let mut growth = ReplyAssembler::new(0, AnthropicDecoder::default());
    let mut decoder = Decoder::new(1 << 20);
    for chunk in body.as_bytes().chunks(1400) {
        decoder.feed(chunk, |name, data| growth.push_event(name, data)).unwrap();
    }
    assert_eq!(growth.finish(None).unwrap().text().len(), 48_890);
}

#[tokio::test]
async fn the_explanation_of_a_refusal_is_kept() {
    let refused = reply(&[text_block("Half")], "refusal");
    let why = |details: &str| {
        refused.replace("\"stop_sequence\":null", &format!("\"stop_sequence\":null,\"stop_details\":{details}"))
    };
    for (details, expected) in [
        ("null", None),
        (r#"{"type":"refusal","category":null,"explanation":null}"#, None),
        (r#"{"type":"refusal","category":"bio","explanation":null}"#, Some("bio")),
        (r#"{"type":"refusal","category":"cyber","explanation":"It may harm."}"#, Some("cyber: It may harm.")),
    ] {
        let reply = ask_once(&why(details)).await;
        assert_eq!((reply.text().as_str(), &reply.stop), ("Half", &StopReason::Refusal));
        let other = reply.blocks.iter().find_map(|block| match &block.content {
            BlockContent::Other(why) => Some(why.as_str()),
            _ => None,
        });
        assert_eq!(other, expected);
    }
}
