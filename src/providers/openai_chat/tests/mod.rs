//! Tests specific to this API and the servers that imitate it. The conformance suite has those that all providers pass.

mod calls;
mod dialect;
mod requests;

pub(crate) use self::dialect::{OpenaiChatDialect, growth};

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use self::dialect::{chunk, sent};
use crate::message::{BlockContent, Message, Reply, StopReason, UserMessage};
use crate::providers::conformance_tests::{RecordingObserver, ask_once, connect, prompted, request, result, setup};
use crate::providers::test_server::{ConnectionEnd, ScriptedResponse, ScriptedServer};

/// A stream of these deltas, followed by the finish reason.
fn stream(deltas: &[Value], finish: &str) -> String {
    let mut chunks: Vec<Value> = deltas.iter().map(|delta| chunk(delta, None)).collect();
    chunks.push(chunk(&json!({}), Some(finish)));
    sent(&chunks).concat() + "data: [DONE]\n\n"
}

async fn reply_of(body: &str) -> Reply {
    ask_once(&OpenaiChatDialect, vec![ScriptedResponse::stream([body.as_bytes()])]).await.0.unwrap()
}

fn piece(call: &Value) -> Value {
    json!({ "tool_calls": [call] })
}

#[tokio::test]
async fn a_stream_can_end_without_done() {
    let chunks = sent(&[chunk(&json!({ "content": "Hi" }), None), chunk(&json!({ "content": "!" }), Some("stop"))]);
    let whole = chunks.concat();
    let broken = format!("{whole}data: {{\"choi");
    for answer in [
        ScriptedResponse::stream([whole.as_bytes()]),
        ScriptedResponse::stream([whole.as_bytes()]).cut(ConnectionEnd::Close),
        ScriptedResponse::stream([broken.as_bytes()]).cut(ConnectionEnd::Close),
        ScriptedResponse::new("200 OK", "", &whole),
    ] {
        let (reply, _, requests) = ask_once(&OpenaiChatDialect, vec![answer]).await;
        assert_eq!((reply.unwrap().text().as_str(), requests), ("Hi!", 1));
    }
    let unfinished = format!("{}data: [DONE]\n\n", chunks[0]);
    let good = ScriptedResponse::stream([whole.as_bytes()]);
    let (reply, seen, _) =
        ask_once(&OpenaiChatDialect, vec![ScriptedResponse::stream([unfinished.as_bytes()]), good]).await;
    assert_eq!(reply.unwrap().text(), "Hi!");
    assert!(seen.retries.lock().unwrap()[0].reason.contains("has no stop reason"));
}

#[tokio::test]
async fn a_stream_with_only_keep_alives_is_closed_after_the_reply() {
    const MOST: usize = 200;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut Vec::new()).await.unwrap();
        let said = sent(&[chunk(&json!({ "content": "Hi!" }), Some("stop"))]).concat();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        stream.write_all(format!("{head}{said}").as_bytes()).await.unwrap();
        for sent in 0..MOST {
            if stream.write_all(b": still here\n\n").await.is_err() {
                return sent;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        MOST
    });
    let variables = [("OPENAI_BASE_URL", url), ("LEGWORK_IDLE_TIMEOUT_MS", "300".to_owned())];
    let mut conversation = connect(&super::SPEC, &variables).unwrap().open(setup(&OpenaiChatDialect)).unwrap();
    conversation.push(&Message::User(UserMessage::text("Hello")));
    assert_eq!(conversation.ask(request(), &RecordingObserver::default()).await.unwrap().text(), "Hi!");
    drop(conversation);
    assert!(server.await.unwrap() < MOST);
}

#[tokio::test]
async fn a_message_beside_the_delta_is_ignored() {
    let mut both = chunk(&json!({ "content": "Hi!" }), Some("stop"));
    both["choices"][0]["message"] = json!({ "content": "Hi!" });
    assert_eq!(reply_of(&sent(&[both]).concat()).await.text(), "Hi!");
}

#[tokio::test]
async fn a_reply_without_a_finish_reason_is_accepted_if_it_is_complete() {
    let said = chunk(&json!({ "content": "Hi!" }), None);
    let call =
        json!({ "tool_calls": [{ "index": 0, "id": "x", "function": { "name": "a", "arguments": "{\"n\":1}" } }] });
    let mut half = call.clone();
    half["tool_calls"][0]["function"]["arguments"] = json!("{\"n\":");
    let counted = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 2 } });
    let mut counted_early = said.clone();
    counted_early["usage"] = counted["usage"].clone();
    let whole = json!({ "object": "chat.completion", "choices": [{ "message": { "content": "Hi!" } }] }).to_string();
    let done = |chunks: &[Value]| ScriptedResponse::stream([(sent(chunks).concat() + "data: [DONE]\n\n").as_bytes()]);
    for (answer, stop) in [
        (done(&[said.clone(), counted.clone()]), Some(StopReason::EndTurn)),
        (done(&[chunk(&call, None)]), Some(StopReason::ToolUse)),
        (ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &whole), Some(StopReason::EndTurn)),
        (done(&[counted_early]), None),
        (done(&[chunk(&half, None)]), None),
        (ScriptedResponse::stream([sent(&[said, counted]).concat().as_bytes()]), None),
    ] {
        let good = stream(&[json!({ "content": "Again." })], "length");
        let (reply, _, requests) =
            ask_once(&OpenaiChatDialect, vec![answer, ScriptedResponse::stream([good.as_bytes()])]).await;
        assert_eq!(reply.unwrap().stop, stop.clone().unwrap_or(StopReason::MaxTokens));
        assert_eq!(requests, if stop.is_some() { 1 } else { 2 });
    }
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    for (word, stop) in [
        ("stop", StopReason::EndTurn),
        ("length", StopReason::MaxTokens),
        ("content_filter", StopReason::Refusal),
        ("sensitive", StopReason::Refusal),
        ("model_length", StopReason::ContextFull),
        ("model_context_window_exceeded", StopReason::ContextFull),
        ("STOP", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("max_output_tokens", StopReason::MaxTokens),
        ("SAFETY", StopReason::Refusal),
        ("tea_time", StopReason::Other("tea_time".to_owned())),
    ] {
        assert_eq!(reply_of(&stream(&[json!({ "content": "x" })], word)).await.stop, stop);
    }
    let refusal = stream(&[json!({ "refusal": "I can't " }), json!({ "refusal": "do that." })], "stop");
    let reply = reply_of(&refusal).await;
    assert_eq!((reply.stop.clone(), reply.text().as_str()), (StopReason::Refusal, "I can't do that."));
    // Some servers send an empty reason with each piece.
    let empty = sent(&[chunk(&json!({ "content": "x" }), Some("")), chunk(&json!({}), Some("stop"))]).concat();
    assert_eq!(reply_of(&empty).await.text(), "x");
    for (word, why) in [
        ("tool_calls", "but has none"),
        ("error", "finish_reason \"error\""),
        ("insufficient_system_resource", "finish_reason"),
        ("network_error", "finish_reason"),
        ("abort", "finish_reason \"abort\""),
    ] {
        let answers = [word, "stop"]
            .map(|word| ScriptedResponse::stream([stream(&[json!({ "content": "x" })], word).as_bytes()]));
        let (_, seen, _) = ask_once(&OpenaiChatDialect, answers.to_vec()).await;
        let retries = seen.retries.lock().unwrap();
        assert!(retries[0].reason.contains(why), "{}", retries[0].reason);
    }
}

fn with_usage(usage: &Value, in_choice: bool) -> String {
    let mut last = chunk(&json!({ "content": "x".repeat(40) }), Some("stop"));
    let place = if in_choice { &mut last["choices"][0]["usage"] } else { &mut last["usage"] };
    *place = usage.clone();
    sent(&[last]).concat() + "data: [DONE]\n\n"
}

#[tokio::test]
async fn usage_of_every_server_is_normalized() {
    for (usage, [input, output, read, written]) in [
        (json!({ "prompt_tokens": 100, "completion_tokens": 5 }), [100, 5, 0, 0]),
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": { "cached_tokens": 64 } }),
            [36, 5, 64, 0],
        ),
        (json!({ "prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64 }), [36, 5, 64, 0]),
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 64, "prompt_tokens_details": null }),
            [36, 5, 64, 0],
        ),
        // Reasoning that is only in the total.
        (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 125 }), [100, 25, 0, 0]),
        // Portkey's counts for Claude, where the prompt excludes cached tokens; LiteLLM's, where it includes them.
        (
            json!({ "prompt_tokens": 6, "cache_read_input_tokens": 23, "cache_creation_input_tokens": 30,
                "completion_tokens": 207, "total_tokens": 266, "prompt_tokens_details": { "cached_tokens": 23 } }),
            [6, 207, 23, 30],
        ),
        (
            json!({ "completion_tokens": 148, "prompt_tokens": 100, "total_tokens": 248,
                "prompt_tokens_details": { "cached_tokens": 23 }, "cache_read_input_tokens": 23,
                "cache_creation_input_tokens": 30 }),
            [47, 148, 23, 30],
        ),
        // Floats, and values that aren't counts.
        (
            json!({ "prompt_tokens": 100.0, "completion_tokens": 5.0, "total_tokens": "?", "cached_tokens": -1 }),
            [100, 5, 0, 0],
        ),
        // More cached tokens than the prompt has.
        (json!({ "prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 1000 }), [0, 5, 100, 0]),
    ] {
        for in_choice in [false, true] {
            let own = reply_of(&with_usage(&usage, in_choice)).await.usage;
            let counts = [own.input_tokens, own.output_tokens, own.cache_read_tokens, own.cache_write_tokens];
            assert_eq!(counts, [input, output, read, written], "{usage}");
        }
    }
}

#[tokio::test]
async fn empty_counts_and_errors_are_ignored() {
    let text = chunk(&json!({ "content": "x".repeat(40) }), Some("stop"));
    let counted =
        |output: u64| json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": output } });
    let nothing = json!({ "choices": [], "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 } });
    for (chunks, output) in [(vec![text.clone(), counted(5), nothing], 5), (vec![counted(0), text.clone()], 10)] {
        let own = reply_of(&(sent(&chunks).concat() + "data: [DONE]\n\n")).await.usage;
        assert_eq!([own.input_tokens, own.output_tokens], [100, output]);
    }
    for nothing in [json!(null), json!(""), json!({}), json!(false)] {
        let mut chunk = text.clone();
        chunk["error"] = nothing;
        assert_eq!(reply_of(&sent(&[chunk]).concat()).await.text().len(), 40);
    }
}

#[tokio::test]
async fn missing_usage_is_estimated() {
    let size = prompted(&OpenaiChatDialect, "http://127.0.0.1:1").prompt_bytes() as u64;
    for usage in [json!(null), json!({}), json!({ "prompt_tokens": 0, "completion_tokens": 0 }), json!("?")] {
        let own = reply_of(&with_usage(&usage, false)).await.usage;
        assert_eq!([own.input_tokens, own.output_tokens], [size / 3, 10], "{usage}");
    }
}

#[tokio::test]
async fn reasoning_is_sent_back_with_calls_in_its_original_field() {
    let call = || piece(&json!({ "index": 0, "id": "x", "function": { "name": "glob", "arguments": "{}" } }));
    let details = |text: &str| json!([{ "type": "reasoning.text", "text": text, "format": "f", "index": 0 }]);
    let signed = json!([{ "type": "reasoning.text", "text": null, "signature": "sig", "index": 0 }]);
    let encrypted = json!([{ "type": "reasoning.encrypted", "data": "zz", "index": 1 }]);
    let claudes = |text: &str, block: Value| {
        json!({ "reasoning_content": text, "thinking_blocks": [block.clone()], "content": "",
            "provider_specific_fields": { "thinking_blocks": [block] } })
    };
    for (deltas, view, sent_back) in [
        (
            vec![json!({ "reasoning_content": "Let me " }), json!({ "reasoning_content": "see." }), call()],
            Some("Let me see."),
            json!({ "reasoning_content": "Let me see." }),
        ),
        (vec![json!({ "reasoning": "Hm." }), call()], Some("Hm."), json!({ "reasoning": "Hm." })),
        (
            vec![json!({ "reasoning": "Hm.", "reasoning_content": "Hm." }), call()],
            Some("Hm."),
            json!({ "reasoning_content": "Hm." }),
        ),
        // DeepSeek requires the field even if it is empty.
        (vec![json!({ "reasoning_content": "" }), call()], Some(""), json!({ "reasoning_content": "" })),
        (vec![json!({ "reasoning_content": null, "reasoning": null }), call()], None, json!({})),
        (
            vec![
                json!({ "reasoning": "Let ", "reasoning_details": details("Let ") }),
                json!({ "reasoning": "me.", "reasoning_details": details("me.") }),
                json!({ "reasoning_details": signed }),
                json!({ "reasoning_details": encrypted }),
                call(),
            ],
            Some("Let me."),
            json!({ "reasoning_details": [
                { "type": "reasoning.text", "text": "Let me.", "format": "f", "index": 0, "signature": "sig" },
                { "type": "reasoning.encrypted", "data": "zz", "index": 1 },
            ] }),
        ),
        // Thinking blocks of Claude, as LiteLLM's proxy streams them.
        (
            vec![
                claudes("Let me ", json!({ "type": "thinking", "thinking": "Let me " })),
                claudes("see.", json!({ "type": "thinking", "thinking": "see." })),
                claudes("", json!({ "type": "thinking", "thinking": "", "signature": "sigA=" })),
                claudes("", json!({ "type": "redacted_thinking", "data": "zz" })),
                claudes(" And so.", json!({ "type": "thinking", "thinking": " And so." })),
                claudes("", json!({ "type": "thinking", "signature": "sigB=", "thinking": "" })),
                claudes("Unsigned", json!({ "type": "thinking", "thinking": "Unsigned" })),
                call(),
            ],
            Some("Let me see. And so.Unsigned"),
            json!({ "reasoning_content": "Let me see. And so.Unsigned", "thinking_blocks": [
                { "type": "thinking", "thinking": "Let me see.", "signature": "sigA=" },
                { "type": "redacted_thinking", "data": "zz" },
                { "type": "thinking", "thinking": " And so.", "signature": "sigB=" },
            ] }),
        ),
        (
            vec![json!({ "thinking_blocks": [{ "type": "thinking", "thinking": "Hm.", "signature": "s" }] }), call()],
            Some("Hm."),
            json!({ "thinking_blocks": [{ "type": "thinking", "thinking": "Hm.", "signature": "s" }] }),
        ),
        // Mistral's parts have no field to be sent back in.
        (
            vec![
                json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }] }] }),
                call(),
            ],
            Some("Hm."),
            json!({}),
        ),
    ] {
        let body = stream(&deltas, "tool_calls");
        let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()])]).await;
        let mut conversation = prompted(&OpenaiChatDialect, &server.url);
        let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let thought = reply.blocks.iter().find_map(|block| match &block.content {
            BlockContent::Thinking(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(thought, view);
        conversation.push(&Message::Assistant(reply));
        conversation.push(&Message::User(UserMessage::results(vec![result("x", "found", false)])));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let mut message = server.received()[1].json()["messages"][2].clone();
        let fields = message.as_object_mut().unwrap();
        for known in ["role", "content", "tool_calls"] {
            assert!(fields.shift_remove(known).is_some());
        }
        assert_eq!(message, sent_back);
    }
}

#[tokio::test]
async fn extra_fields_of_a_call_are_sent_back_with_it() {
    let call = json!({ "index": 0, "id": "x", "type": "function", "function": { "name": "glob", "arguments": "{}" },
        "extra_content": { "google": { "thought_signature": "s" } }, "nothing": null });
    let server =
        ScriptedServer::start([ScriptedResponse::stream([stream(&[piece(&call)], "tool_calls").as_bytes()])]).await;
    let mut conversation = prompted(&OpenaiChatDialect, &server.url);
    let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let recorded = serde_json::to_string(&reply).unwrap();
    conversation.push(&Message::Assistant(serde_json::from_str(&recorded).unwrap()));
    conversation.push(&Message::User(UserMessage::results(vec![result("x", "found", false)])));
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    assert_eq!(
        server.received()[1].json()["messages"][2]["tool_calls"][0],
        json!({ "id": "x", "type": "function", "function": { "name": "glob", "arguments": "{}" },
            "extra_content": { "google": { "thought_signature": "s" } } })
    );
}

#[tokio::test]
async fn text_in_parts_and_further_choices_are_understood() {
    let mut second = chunk(&json!({ "content": "no" }), Some("stop"));
    second["choices"][0]["index"] = json!(1);
    let parts = chunk(&json!({ "content": [{ "type": "text", "text": "Hi" }, { "type": "reference" }] }), None);
    let body = sent(&[second, parts, chunk(&json!({}), Some("stop"))]).concat();
    assert_eq!(reply_of(&body).await.text(), "Hi");
    let half = stream(&[json!({ "content": "half a \u{fffd} pair" })], "stop").replace('\u{fffd}', "\\ud83d");
    assert_eq!(reply_of(&half).await.text(), "half a \u{fffd} pair");
}
