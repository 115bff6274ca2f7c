//! Models that accept thinking only after the messages for which it was produced, as newer Claude models do
//! (<https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks>).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{events_of_type, folder, reader_with_signatures, run, tokens, with_window};
use crate::support::server::{Answer, Checks, Request, Server};

/// The state of a server with that check: the prefix that belongs to each issued signature.
#[derive(Default)]
struct PrefixCheck(Mutex<HashMap<String, Value>>);

fn is_thinking(block: &Value) -> bool {
    ["thinking", "redacted_thinking"].iter().any(|kind| block["type"] == *kind)
}

fn content(message: &Value) -> &[Value] {
    message["content"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The content before a block: system prompt, tools, messages without thinking and cache marks, and the earlier
/// thinking.
fn prefix(request: &Request, message: usize, block: usize) -> Value {
    let body = request.body();
    let before = request.messages().iter().enumerate().take(message + 1).flat_map(|(at, sent)| {
        let blocks = if at == message { &content(sent)[..block] } else { content(sent) };
        blocks.iter().map(|block| {
            let mut block = block.clone();
            block.as_object_mut().unwrap().remove("cache_control");
            (sent["role"].clone(), block)
        })
    });
    let (thinking, spoken): (Vec<_>, Vec<_>) = before.partition(|(_, block)| is_thinking(block));
    json!([
        body["system"].to_string().replace(MARK, ""),
        body["tools"].to_string().replace(MARK, ""),
        spoken,
        thinking.last()
    ])
}

const MARK: &str = r#""cache_control":{"type":"ephemeral"},"#;

impl PrefixCheck {
    /// Signs the thinking of the reply to a request.
    fn sign(&self, request: &Request) -> String {
        let mut issued = self.0.lock().unwrap();
        let signature = format!("c2ln{:04}", issued.len());
        issued.insert(signature.clone(), prefix(request, request.messages().len(), 0));
        signature
    }

    /// The API's answer to a request with thinking that was issued for another prefix.
    fn refusal(&self, request: &Request) -> Option<Answer> {
        let issued = self.0.lock().unwrap();
        for (at, message) in request.messages().iter().enumerate() {
            for (index, block) in content(message).iter().enumerate().filter(|(_, block)| is_thinking(block)) {
                let signature = block["signature"].as_str().unwrap();
                if issued.get(signature) != Some(&prefix(request, at, index)) {
                    let why = format!(
                        "messages.{at}.content.{index}: Invalid `signature` in `thinking` block. The block is bound to a \
                         different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` \
                         to \"drop_block\"."
                    );
                    return Some(Answer::status(400).error("invalid_request_error", &why));
                }
            }
        }
        None
    }
}

/// A server that checks prefixes, and the number of requests that it rejected.
fn server(turns: usize, checks: Checks) -> (Server, Arc<Mutex<usize>>) {
    let check = Arc::new(PrefixCheck::default());
    let refused = Arc::new(Mutex::new(0));
    let (signing, counted) = (Arc::clone(&check), Arc::clone(&refused));
    let reads = reader_with_signatures(turns, move |request: &Request| signing.sign(request));
    let server = Server::with(checks, move |request: &Request| match check.refusal(request) {
        Some(refusal) => {
            *counted.lock().unwrap() += 1;
            refusal
        }
        None => reads(request),
    });
    (server, refused)
}

fn thinking_in(request: &Request) -> usize {
    request.messages().iter().flat_map(content).filter(|block| is_thinking(block)).count()
}

#[test]
fn thinking_after_changed_messages_is_dropped() {
    for (model, knows) in [
        ("anthropic/claude-opus-5-5", true),
        ("openai-chat/anthropic/claude-sonnet-5.5", true),
        // A deployment can have any name, so only the error shows what to leave out.
        ("anthropic/my-deployment", false),
        ("openai-chat/my-deployment", false),
    ] {
        let folder = folder(&with_window(model), "");
        let (server, refused) = server(20, Checks::All);
        let ended = run(&folder, &server);
        ended.assert_code(0).assert_stdout("All is read.\n");
        let record = ended.run_folder();
        assert!(
            !events_of_type(&record, "results_truncated").is_empty()
                && events_of_type(&record, "context_compacted").len() >= 2,
            "{model}"
        );
        assert_eq!(*refused.lock().unwrap() == 0, knows, "{model}");
        let requests = server.finish();
        // Thinking after the change is sent back as usual.
        assert!(requests.iter().any(|request| thinking_in(request) > 1), "{model}");
    }
}

/// Models without the check keep all thinking: older Claude models reject a turn without its thinking.
#[test]
fn other_models_keep_their_thinking_after_a_summary() {
    for model in ["anthropic/claude-haiku-4-5", "openai-chat/some-model"] {
        let folder = folder(&with_window(model), "");
        let server = Server::start(super::reader(20));
        run(&folder, &server).assert_code(0);
        for request in server.finish() {
            let replies = request.messages().iter().filter(|message| message["role"] == "assistant").count();
            assert_eq!(thinking_in(&request), replies, "{model}: {} tokens", tokens(&request));
        }
    }
}

#[test]
fn a_resumed_run_drops_the_same_thinking_after_compaction() {
    let model = with_window("anthropic/claude-opus-5-5");
    let whole = folder(&model, "");
    let (first, _) = server(20, Checks::All);
    let ended = run(&whole, &first);
    ended.assert_code(0);
    let events = ended.run_folder().events();
    for kind in ["results_truncated", "context_compacted"] {
        let number = events.iter().position(|event| event["type"] == kind).unwrap() + 1;
        let folder = folder(&model, "");
        let (server, refused) = server(20, Checks::AllowRepeats);
        let number = number.to_string();
        let cut = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("LEGWORK_KILL_AFTER", number).run();
        assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
        folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0).assert_stdout("All is read.\n");
        assert_eq!(*refused.lock().unwrap(), 0, "{kind}");
    }
}
