//! Tool calls in the forms that servers send them.

use serde_json::json;

use super::{OpenaiChatDialect, piece, reply_of, stream};
use crate::message::{Reply, StopReason};
use crate::providers::conformance_tests::ask_once;
use crate::providers::test_server::ScriptedResponse;

fn calls(reply: &Reply) -> Vec<[&str; 3]> {
    reply.tool_calls().map(|call| [call.id.as_str(), call.tool.as_str(), call.input.get()]).collect()
}

#[tokio::test]
async fn calls_of_every_form_are_assembled() {
    let f = |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
    for (deltas, expected) in [
        // No ids.
        (
            vec![
                json!({ "tool_calls": [{ "index": 0, "function": f("a", "{}") }, { "index": 1, "function": f("b", "{}") }] }),
            ],
            vec![["call00001", "a", "{}"], ["call00002", "b", "{}"]],
        ),
        // The same id twice, and a numeric id.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "{}") })),
                piece(&json!({ "index": 1, "id": "x", "function": f("b", "{}") })),
                piece(&json!({ "index": 2, "id": 7, "function": f("c", "{}") })),
            ],
            vec![["x", "a", "{}"], ["call00001", "b", "{}"], ["7", "c", "{}"]],
        ),
        // Arguments that are an object, null or missing.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": { "name": "a", "arguments": { "n": 1.50 } } })),
                piece(&json!({ "index": 1, "id": "y", "function": { "name": "b", "arguments": null } })),
                piece(&json!({ "index": 2, "id": "z", "function": { "name": "c" } })),
            ],
            vec![["x", "a", "{\"n\":1.5}"], ["y", "b", "{}"], ["z", "c", "{}"]],
        ),
        // All calls at index 0, distinguished by ids, or by names alone.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "{\"n\":") })),
                piece(&json!({ "index": 0, "function": { "arguments": "1}" } })),
                piece(&json!({ "index": 0, "id": "y", "function": f("a", "{\"n\":2}") })),
            ],
            vec![["x", "a", "{\"n\":1}"], ["y", "a", "{\"n\":2}"]],
        ),
        (
            vec![
                piece(&json!({ "index": 0, "id": "", "function": f("a", "{\"n\":1}") })),
                piece(&json!({ "index": 0, "id": "", "function": f("b", "{\"n\":2}") })),
            ],
            vec![["call00001", "a", "{\"n\":1}"], ["call00002", "b", "{\"n\":2}"]],
        ),
        // No index; id and name in each piece.
        (
            vec![
                piece(&json!({ "id": "x", "function": f("a", "{\"n\":") })),
                piece(&json!({ "id": "x", "function": f("a", "1}") })),
                piece(&json!({ "id": "y", "function": f("a", "{}") })),
            ],
            vec![["x", "a", "{\"n\":1}"], ["y", "a", "{}"]],
        ),
        // Interleaved pieces of two calls.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "type": "function", "function": f("a", "") })),
                piece(&json!({ "index": 1, "id": "y", "type": "function", "function": f("b", "") })),
                piece(&json!({ "index": 0, "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "index": 1, "function": { "arguments": "{}" } })),
                piece(&json!({ "index": 0, "id": null, "function": { "name": null, "arguments": "1}" } })),
            ],
            vec![["x", "a", "{\"n\":1}"], ["y", "b", "{}"]],
        ),
        // A new id for every piece, with the name in the first piece or in all.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "") })),
                piece(&json!({ "index": 0, "id": "y", "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "index": 0, "id": "z", "function": { "name": null, "arguments": "1}" } })),
                piece(&json!({ "index": 0, "id": "w", "function": { "arguments": "" } })),
            ],
            vec![["x", "a", "{\"n\":1}"]],
        ),
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "") })),
                piece(&json!({ "index": 0, "id": "y", "function": f("a", "{\"n\":") })),
                piece(&json!({ "index": 0, "id": "z", "function": f("a", "1}") })),
            ],
            vec![["x", "a", "{\"n\":1}"]],
        ),
        // Neither index nor id, or one id for all. The entries of one list are different calls.
        (
            vec![json!({ "tool_calls": [{ "function": f("a", "") }, { "function": f("b", "") }] })],
            vec![["call00001", "a", "{}"], ["call00002", "b", "{}"]],
        ),
        (
            vec![json!({ "tool_calls": [
                { "id": "x", "function": f("a", "{\"n\":1}") }, null, { "id": "x", "function": f("a", "{\"n\":2}") },
            ] })],
            vec![["x", "a", "{\"n\":1}"], ["call00001", "a", "{\"n\":2}"]],
        ),
        // One id for all calls, each in a separate chunk, with and without an index.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "{\"n\":1}") })),
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "{\"n\":2}") })),
                piece(&json!({ "id": "x", "function": f("a", "{\"n\":3}") })),
            ],
            vec![["x", "a", "{\"n\":1}"], ["call00001", "a", "{\"n\":2}"], ["call00002", "a", "{\"n\":3}"]],
        ),
        // An index that comes late, counts pieces, or is a string.
        (
            vec![
                piece(&json!({ "id": "x", "function": f("a", "") })),
                piece(&json!({ "index": 0, "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "index": 0, "function": { "arguments": "1}" } })),
            ],
            vec![["x", "a", "{\"n\":1}"]],
        ),
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "") })),
                piece(&json!({ "index": 1, "id": "x", "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "index": 2, "id": "x", "function": { "arguments": "1}" } })),
            ],
            vec![["x", "a", "{\"n\":1}"]],
        ),
        (
            vec![
                piece(&json!({ "index": "0", "id": "x", "function": f("a", "") })),
                piece(&json!({ "index": "1", "id": "y", "function": f("b", "") })),
                piece(&json!({ "index": "0", "function": { "arguments": "{\"n\":1}" } })),
                piece(&json!({ "index": "1", "function": { "arguments": "{\"n\":2}" } })),
            ],
            vec![["x", "a", "{\"n\":1}"], ["y", "b", "{\"n\":2}"]],
        ),
        // An empty object as a placeholder for the input, and the whole input after its pieces.
        (
            vec![
                piece(&json!({ "index": 0, "id": "x", "function": { "name": "a", "arguments": {} } })),
                piece(&json!({ "index": 0, "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "index": 0, "function": { "arguments": "1}" } })),
                piece(&json!({ "index": 0, "id": "x", "function": f("a", "{\"n\":1}") })),
                piece(&json!({ "index": 0, "function": { "arguments": "{\"n\":1}" } })),
            ],
            vec![["x", "a", "{\"n\":1}"]],
        ),
        // Neither index nor id, name and input in separate chunks: another name, the same name, a call without input.
        (
            vec![
                piece(&json!({ "function": f("a", "") })),
                piece(&json!({ "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "function": { "arguments": "1}" } })),
                piece(&json!({ "function": f("b", "") })),
                piece(&json!({ "function": { "arguments": "{\"n\":2}" } })),
                piece(&json!({ "function": { "name": "b" } })),
                piece(&json!({ "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "function": { "arguments": "3}" } })),
            ],
            vec![["call00001", "a", "{\"n\":1}"], ["call00002", "b", "{\"n\":2}"], ["call00003", "b", "{\"n\":3}"]],
        ),
        (
            vec![
                piece(&json!({ "function": f("glob", "") })),
                piece(&json!({ "function": f("grep", "") })),
                piece(&json!({ "function": { "arguments": "{\"n\":2}" } })),
            ],
            vec![["call00001", "glob", "{}"], ["call00002", "grep", "{\"n\":2}"]],
        ),
        (
            vec![
                piece(&json!({ "function": f("gl", "") })),
                piece(&json!({ "function": f("ob", "") })),
                piece(&json!({ "function": { "arguments": "{\"n\":2}" } })),
            ],
            vec![["call00001", "glob", "{\"n\":2}"]],
        ),
        // The same with one index for all, and with the name in each piece and after the last one.
        (
            vec![
                piece(&json!({ "index": 0, "function": f("a", "") })),
                piece(&json!({ "index": 0, "function": { "arguments": "{\"n\":1}" } })),
                piece(&json!({ "index": 0, "function": f("a", "") })),
                piece(&json!({ "index": 0, "function": { "arguments": "{\"n\":2}" } })),
            ],
            vec![["call00001", "a", "{\"n\":1}"], ["call00002", "a", "{\"n\":2}"]],
        ),
        (
            vec![
                piece(&json!({ "function": f("a", "{\"n\":") })),
                piece(&json!({ "function": f("a", "1}") })),
                piece(&json!({ "function": f("a", "") })),
                piece(&json!({ "function": { "arguments": "" } })),
            ],
            vec![["call00001", "a", "{\"n\":1}"]],
        ),
        // Several calls begin in one chunk, and their inputs arrive together or in sequence.
        (
            vec![
                json!({ "tool_calls": [{ "function": f("a", "") }, { "function": f("a", "") }] }),
                json!({ "tool_calls": [{ "function": { "arguments": "{\"n\":" } }, { "function": { "arguments": "{\"n\":" } }] }),
                json!({ "tool_calls": [{ "function": { "arguments": "1}" } }, { "function": { "arguments": "2}" } }] }),
            ],
            vec![["call00001", "a", "{\"n\":1}"], ["call00002", "a", "{\"n\":2}"]],
        ),
        (
            vec![
                json!({ "tool_calls": [{ "function": f("a", "") }, { "function": f("b", "") }] }),
                piece(&json!({ "function": { "arguments": "{\"n\":" } })),
                piece(&json!({ "function": { "arguments": "1}" } })),
                piece(&json!({ "function": { "arguments": "{\"n\":2" } })),
                piece(&json!({ "function": { "arguments": "}" } })),
            ],
            vec![["call00001", "a", "{\"n\":1}"], ["call00002", "b", "{\"n\":2}"]],
        ),
        // One call in both the current and the older form.
        (
            vec![
                json!({ "function_call": f("a", "{}"), "tool_calls": [{ "index": 0, "id": "x", "function": f("a", "{}") }] }),
            ],
            vec![["x", "a", "{}"]],
        ),
        // The older form.
        (
            vec![
                json!({ "function_call": f("a", "{\"n\":") }),
                json!({ "function_call": { "arguments": "1}" } }),
                json!({ "function_call": null }),
            ],
            vec![["call00001", "a", "{\"n\":1}"]],
        ),
    ] {
        for finish in ["tool_calls", "stop", "function_call"] {
            let reply = reply_of(&stream(&deltas, finish)).await;
            assert_eq!(calls(&reply), expected, "{deltas:?}");
            assert_eq!(reply.stop, StopReason::ToolUse);
        }
    }
}

#[tokio::test]
async fn calls_are_limited_in_number() {
    let call = |index: usize| json!({ "index": index, "function": { "name": "a", "arguments": "{}" } });
    let many =
        |count: usize| stream(&[json!({ "tool_calls": (0..count).map(call).collect::<Vec<_>>() })], "tool_calls");
    assert_eq!(reply_of(&many(1_000)).await.tool_calls().count(), 1_000);
    let answers = [many(1_001), many(1)].map(|body| ScriptedResponse::stream([body.as_bytes()]));
    let (_, seen, _) = ask_once(&OpenaiChatDialect, answers.to_vec()).await;
    assert!(seen.retries.lock().unwrap()[0].reason.contains("more than 1000 calls"));
}
