//! Deviations of servers that imitate the API.

use serde_json::json;

use super::*;
use crate::message::{BlockContent, Reply, StopReason, Usage};
use crate::providers::test_server::{ConnectionEnd, ScriptedResponse};

/// A stream whose first and last events report this usage.
fn counting(start: &Value, end: &Value) -> String {
    let text = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
    let mut delta = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": end });
    if delta["usage"].is_null() {
        delta.as_object_mut().unwrap().remove("usage");
    }
    events(&[
        json!({ "type": "message_start", "message": { "id": "m", "content": [], "usage": start } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        text(&"word ".repeat(80)),
        delta,
        json!({ "type": "message_stop" }),
    ])
}

#[tokio::test]
async fn a_zero_count_does_not_replace_an_earlier_one() {
    let usage = |input, read, written, output| Usage {
        input_tokens: input,
        output_tokens: output,
        cache_read_tokens: read,
        cache_write_tokens: written,
        ..Usage::default()
    };
    for (start, end, expected) in [
        (
            json!({ "input_tokens": 90, "output_tokens": 1 }),
            json!({ "input_tokens": 0, "output_tokens": 7 }),
            usage(90, 0, 0, 7),
        ),
        (
            json!({ "input_tokens": 90, "cache_read_input_tokens": 10, "output_tokens": 1 }),
            json!({ "input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 7 }),
            usage(90, 10, 0, 7),
        ),
        // Counts that are only complete at the end.
        (
            json!({ "input_tokens": 0, "output_tokens": 0 }),
            json!({ "input_tokens": 90, "output_tokens": 7 }),
            usage(90, 0, 0, 7),
        ),
        (
            json!({ "input_tokens": 100, "output_tokens": 0 }),
            json!({ "input_tokens": 0, "cache_read_input_tokens": 100, "output_tokens": 7 }),
            usage(0, 100, 0, 7),
        ),
        // Without a final count, output is estimated from the received text.
        (json!({ "input_tokens": 90, "output_tokens": 1 }), json!(null), usage(90, 0, 0, 100)),
        (json!({ "input_tokens": 90, "output_tokens": 1 }), json!({}), usage(90, 0, 0, 100)),
    ] {
        assert_eq!(ask_once(&counting(&start, &end)).await.usage, expected, "{start} {end}");
    }
}

/// A reply whose blocks have these indexes.
fn numbered(blocks: &[(u64, Value)], stops: bool) -> String {
    let mut all = vec![start()];
    for (index, block) in blocks {
        all.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        let piece = json!({ "type": "input_json_delta", "partial_json": "{\"a\":1}" });
        if block["type"] == "tool_use" {
            all.push(json!({ "type": "content_block_delta", "index": index, "delta": piece }));
        }
        if stops {
            all.push(json!({ "type": "content_block_stop", "index": index }));
        }
    }
    all.push(
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 2 } }),
    );
    all.push(json!({ "type": "message_stop" }));
    events(&all)
}

fn kinds(reply: &Reply) -> Vec<String> {
    let kind = |view: &BlockContent| match view {
        BlockContent::Text(text) => format!("text {text}"),
        BlockContent::Call(call) => format!("call {} {}", call.id, call.input.get()),
        BlockContent::Thinking(_) => "thought".to_owned(),
        BlockContent::Other(kind) => kind.clone(),
    };
    reply.blocks.iter().map(|block| kind(&block.content)).collect()
}

#[tokio::test]
async fn blocks_with_repeated_indexes_are_distinguished() {
    let text = json!({ "type": "text", "text": "I look." });
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "glob", "input": {} });
    let expected = ["text I look.", "call a {\"a\":1}", "call b {\"a\":1}"];
    for numbers in [[0, 1, 2], [0, 1, 1], [0, 0, 0], [0, 2, 4]] {
        let blocks = [(numbers[0], text.clone()), (numbers[1], call("a")), (numbers[2], call("b"))];
        let reply = ask_once(&numbered(&blocks, true)).await;
        assert_eq!(
            (kinds(&reply), reply.stop),
            (expected.map(str::to_owned).to_vec(), StopReason::ToolUse),
            "{numbers:?}"
        );
    }
    // If a block starts again before it has ended, something is missing.
    let twice = numbered(&[(0, text), (1, call("a")), (1, call("b"))], false);
    let good = reply(&[text_block("Hi")], "end_turn");
    let server = ScriptedServer::start([twice, good].map(|body| ScriptedResponse::stream([body.as_bytes()]))).await;
    let seen = RecordingObserver::default();
    prompted(&server.url).ask(request(), &seen).await.unwrap();
    assert!(seen.retries.lock().unwrap()[0].reason.contains("a block starts twice"));
}

#[tokio::test]
async fn a_reply_without_its_last_event_is_accepted_if_it_is_complete() {
    let text = json!({ "type": "text", "text": "I look." });
    let call = json!({ "type": "tool_use", "id": "a", "name": "glob", "input": {} });
    let stop = events(&[json!({ "type": "message_stop" })]);
    for (stops, requests) in [(true, 1), (false, 2)] {
        let whole = numbered(&[(0, text.clone()), (1, call.clone())], stops);
        let body = whole.strip_suffix(&stop).unwrap();
        let parts = || ScriptedResponse::stream([body.as_bytes()]);
        let broken_off =
            ScriptedResponse::stream([(body.to_owned() + "event: mess").as_bytes()]).cut(ConnectionEnd::Close);
        for first in [parts(), broken_off] {
            let server = ScriptedServer::start([first, ScriptedResponse::stream([whole.as_bytes()])]).await;
            let reply = prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap();
            assert_eq!(
                (server.received().len(), &reply.stop, reply.usage.output_tokens),
                (requests, &StopReason::ToolUse, 2)
            );
            assert_eq!(kinds(&reply), ["text I look.", "call a {\"a\":1}"]);
        }
    }
    // A stop reason in the first event doesn't end the reply.
    let early = json!({ "type": "message_start", "message": { "content": [], "stop_reason": "end_turn" } });
    let server = ScriptedServer::start(
        [events(&[early]), numbered(&[(0, text)], true)].map(|body| ScriptedResponse::stream([body.as_bytes()])),
    );
    prompted(&server.await.url).ask(request(), &RecordingObserver::default()).await.unwrap_err();
}

#[tokio::test]
async fn text_in_the_start_of_a_block_is_a_part_of_it() {
    let piece = json!({ "type": "text_delta", "text": "lo" });
    let body = reply(&[(json!({ "type": "text", "text": "Hel" }), vec![piece])], "end_turn");
    let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()])]).await;
    let reply = prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap();
    assert_eq!(reply.text(), "Hello");
}

#[tokio::test]
async fn text_of_a_block_start_that_is_repeated_counts_once() {
    let thinks = |piece: &str| json!({ "type": "thinking_delta", "thinking": piece });
    let texts = |piece: &str| json!({ "type": "text_delta", "text": piece });
    let signed = json!({ "type": "signature_delta", "signature": "sg" });
    let thought = |text: &str| json!({ "type": "thinking", "thinking": text, "signature": "" });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let first = "I think about it.";
    for (block, deltas, expected) in [
        (thought(first), vec![thinks(first), thinks(" More."), signed.clone()], "I think about it. More."),
        (
            thought(first),
            vec![thinks(" More."), thinks(first), signed.clone()],
            "I think about it. More.I think about it.",
        ),
        (text("Hello there"), vec![texts("Hello there"), texts("!")], "Hello there!"),
        (text("ha"), vec![texts("ha"), texts("!")], "haha!"),
    ] {
        let reply = ask_once(&reply(&[(block, deltas), text_block("End.")], "end_turn")).await;
        let (BlockContent::Text(said) | BlockContent::Thinking(said)) = &reply.blocks[0].content else {
            panic!("{reply:?}")
        };
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn inputs_in_a_string_are_parsed() {
    let block = |input: Value| (json!({ "type": "tool_use", "id": "a", "name": "glob", "input": input }), vec![]);
    for (input, expected) in [(json!("{\"a\": 1}"), "{\"a\": 1}"), (json!(""), "{}"), (json!(null), "{}")] {
        let reply = ask_once(&reply(&[block(input.clone())], "tool_use")).await;
        let call = reply.tool_calls().next().unwrap();
        assert_eq!((call.input.get(), &call.input_error), (expected, &None), "{input}");
    }
}

#[tokio::test]
async fn an_empty_stop_reason_counts_as_missing() {
    let good = reply(&[text_block("Hello")], "end_turn");
    let empty = json!({ "type": "message_delta", "delta": { "stop_reason": "" }, "usage": { "output_tokens": 42 } });
    let stop = events(&[json!({ "type": "message_stop" })]);
    let after = good.replace(&stop, &(events(&[empty]) + &stop));
    assert_eq!(ask_once(&after).await.stop, StopReason::EndTurn);
}

#[tokio::test]
async fn errors_in_other_forms_are_parsed() {
    for (status, body, words, kind) in [
        (
            "400 x",
            json!({ "error": { "code": 400, "message": "bad field", "type": "BadRequestError" } }),
            "(BadRequestError): bad field",
            crate::providers::ProviderErrorKind::Rejected,
        ),
        (
            "404 x",
            json!({ "detail": "Not Found" }),
            "answered 404 Not Found: Not Found",
            crate::providers::ProviderErrorKind::Rejected,
        ),
        (
            "400 x",
            json!({ "object": "error", "message": "bad field", "type": "BadRequestError", "code": 400 }),
            "(BadRequestError): bad field",
            crate::providers::ProviderErrorKind::Rejected,
        ),
        (
            "422 x",
            json!({ "detail": [{ "loc": ["body"], "msg": "field required", "type": "missing" }] }),
            ": field required",
            crate::providers::ProviderErrorKind::Rejected,
        ),
        (
            "400 x",
            json!({ "message": "The model's maximum context length is 4096 tokens." }),
            "maximum context length",
            crate::providers::ProviderErrorKind::ContextFull,
        ),
        (
            "500 x",
            json!({ "error": { "message": "input (9 tokens) is larger than the max context size (8 tokens)" } }),
            "max context size",
            crate::providers::ProviderErrorKind::ContextFull,
        ),
    ] {
        let answer = ScriptedResponse::new(status, "content-type: application/json\r\n", &body.to_string());
        let server = ScriptedServer::start([answer]).await;
        let fault = prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap_err();
        assert_eq!((fault.kind, server.received().len()), (kind, 1), "{}", fault.message);
        assert!(fault.message.contains(words), "{}", fault.message);
    }
    // In a stream, only the error itself has the status.
    for (error, requests) in [
        (json!({ "error": { "code": 400, "message": "bad field", "type": "BadRequestError" } }), 1),
        (json!({ "error": { "code": "401", "message": "bad key", "type": "auth_error" } }), 1),
        (json!({ "type": "error", "error": { "type": "timeout_error", "message": "slow" } }), 2),
        (json!({ "error": { "code": 429, "message": "slow down", "type": "throttling_error" } }), 2),
    ] {
        for event in [format!("event: error\ndata: {error}\n\n"), format!("data: {error}\n\n")] {
            let failing = events(&[start()]) + &event;
            let good = reply(&[text_block("Hi")], "end_turn");
            let server =
                ScriptedServer::start([failing, good].map(|body| ScriptedResponse::stream([body.as_bytes()]))).await;
            let _ = prompted(&server.url).ask(request(), &RecordingObserver::default()).await;
            assert_eq!(server.received().len(), requests, "{event}");
        }
    }
}
