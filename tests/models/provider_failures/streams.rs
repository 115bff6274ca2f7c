//! Streams that are cut, malformed, or endless.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::{FinishedRun, JOB, MAX_TRIES, answers_then, call};
use crate::running::runs::folder_with;
use crate::support::server::{Answer, EventTransform, Request, ScriptedAgents, Server};

#[test]
fn a_cut_stream_is_discarded_and_retried() {
    let cut_before = Mutex::new(HashSet::new());
    let cuts_seen = Arc::new(AtomicUsize::new(0));
    let cuts_made = Arc::clone(&cuts_seen);
    // In each turn, the server first cuts the reply at a different position and then sends it completely.
    let server = Server::start(move |request: &Request| {
        let turn = request.turn();
        let answer = Answer::text("Working on it.")
            .thinking("Hm.", "c2ln")
            .then_call_as(&format!("toolu_{turn:03}"), "bash", &json!({"command": format!("echo {turn} >>ran")}))
            .usage(100, 10);
        let ends = answer.event_ends(request);
        // The cuts are before all events, and within each event, before its last byte, and after it. After the last
        // event but one, the reply is complete.
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let in_events = starts.zip(&ends).flat_map(|(start, end)| [usize::midpoint(start, *end), end - 1, *end]);
        let mut cuts: Vec<usize> = std::iter::once(0).chain(in_events).collect();
        cuts.truncate(cuts.len() - 4);
        cuts_made.store(cuts.len(), Ordering::SeqCst);
        match cuts.get(turn) {
            None => Answer::text("Done.").usage(100, 10),
            Some(cut) if cut_before.lock().unwrap().insert(turn) => answer.cut_after_bytes(*cut),
            Some(_) => answer,
        }
    });
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed").ended.assert_stdout("Done.\n");
    let cuts = cuts_seen.load(Ordering::SeqCst);
    assert!(cuts > 40, "{cuts}");
    assert_eq!(server.finish().len(), 2 * cuts + 1);
    assert_eq!(ran.retries().len(), cuts);
    let once_each: String = (0..cuts).map(|turn| format!("{turn}\n")).collect();
    assert_eq!(ran.folder.read("ran"), once_each, "no tool of a dropped reply ran");
    // A reply that is cut before the end of the first event has no usage; there are four such cuts.
    let known = 2 * cuts + 1 - 3;
    let result = ran.result();
    assert_eq!(result["usage"]["input_tokens"], 100 * known);
    assert!(result["usage"]["output_tokens"].as_u64().unwrap() as usize > 10 * (cuts + 1));
    assert!(result["cost_usd"].as_f64().unwrap() > 100.0 * known as f64 * 3e-6);
    let texts = ran.ended.run_folder().transcript().matches("Working on it.").count();
    assert_eq!(texts, cuts, "no text of a dropped reply is kept");
}

#[test]
fn errors_in_a_stream_are_classified_by_type() {
    for (kind, code, outcome, requests) in [
        ("overloaded_error", 75, "provider_failed", MAX_TRIES),
        ("rate_limit_error", 75, "provider_failed", MAX_TRIES),
        ("api_error", 75, "provider_failed", MAX_TRIES),
        ("error_of_tomorrow", 75, "provider_failed", MAX_TRIES),
        ("invalid_request_error", 5, "provider_rejected", 1),
        ("authentication_error", 5, "provider_rejected", 1),
        ("permission_error", 5, "provider_rejected", 1),
    ] {
        let server = Server::start(move |_: &Request| {
            let answer = call("touch ran").fail_after_events(6, kind, "sorry");
            if kind == "error_of_tomorrow" { answer.nonstandard() } else { answer }
        });
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(code, outcome).ended.assert_stderr_contains("sorry");
        assert_eq!(server.finish().len(), requests, "{kind}");
        assert_eq!(ran.result()["usage"]["input_tokens"], 12 * requests, "{kind}");
        assert!(!ran.folder.exists("ran"));
    }
    let overloaded = call("touch ran").fail_after_events(6, "overloaded_error", "busy");
    let server = answers_then(vec![overloaded], Answer::text("There."));
    FinishedRun::against(&server).assert_outcome(0, "completed");
    assert_eq!(server.finish().len(), 2);
}

fn text(event: &[u8]) -> String {
    String::from_utf8(event.to_vec()).unwrap()
}

#[test]
fn every_event_stream_syntax_is_accepted() {
    let forms: [EventTransform; 6] = [
        |event| event.iter().map(|byte| if *byte == b'\n' { b'\r' } else { *byte }).collect(),
        |event| text(event).replace('\n', "\r\n").into_bytes(),
        // The data spans several lines, with line ends between its JSON tokens.
        |event| text(event).replace(",\"", "\ndata: ,\ndata:\"").into_bytes(),
        |event| [b": a comment\n:\nid: 7\nretry: 1\nunknown\n", event].concat(),
        // The name follows the data, and there is no space after the colons.
        |event| {
            let lines: Vec<String> = text(event).lines().rev().map(|line| line.replacen(": ", ":", 1)).collect();
            format!("{}\n\n", lines.join("\n").trim_start()).into_bytes()
        },
        |event| [b"\n\ndata:\n\nevent: nothing\n\n", event].concat(),
    ];
    for (number, form) in forms.into_iter().enumerate() {
        for size in [1, 100_000] {
            let answers = [call("echo once >>ran"), Answer::text("Grüße.")]
                .map(|answer| answer.transform_events(form).chunk(size));
            let server = Server::start(ScriptedAgents::of(answers));
            let ran = FinishedRun::against(&server);
            ran.assert_outcome(0, "completed").ended.assert_stdout("Grüße.\n");
            assert_eq!(server.finish().len(), 2, "form {number} in pieces of {size}");
            assert_eq!(ran.folder.read("ran"), "once\n");
        }
    }
}

/// A call after the end of the reply isn't part of the reply, even in the same packet.
#[test]
fn a_call_after_the_end_of_the_reply_does_not_run() {
    let form: EventTransform = |event| {
        let late = if event.starts_with(b"event: message_stop") {
            concat!(
                "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":7,\"content_block\":",
                "{\"type\":\"tool_use\",\"id\":\"late\",\"name\":\"bash\",\"input\":{\"command\":\"touch late\"}}}\n\n",
                "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":7}\n\n",
                "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\n",
            )
        } else if event.starts_with(b"event: response.completed") {
            concat!(
                "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":7,\"item\":",
                "{\"type\":\"function_call\",\"id\":\"fc_late\",\"call_id\":\"late\",\"name\":\"bash\",",
                "\"arguments\":\"{\\\"command\\\":\\\"touch late\\\"}\",\"status\":\"completed\"}}\n\n",
            )
        } else if event.starts_with(b"data: [DONE]") {
            concat!(
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":7,\"id\":\"late\",\"type\":\"function\",",
                "\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"command\\\":\\\"touch late\\\"}\"}}]},",
                "\"finish_reason\":\"tool_calls\"}]}\n\n",
            )
        } else {
            ""
        };
        [event, late.as_bytes()].concat()
    };
    for model in ["anthropic/claude-sonnet-4-6", "openai/some-model", "openai-chat/some-model"] {
        let folder = folder_with("");
        folder.write("job.yaml", format!("model: {model}\nparent: {{ prompt: Go., tools: [bash] }}\n"));
        let server = Server::start(ScriptedAgents::of([Answer::text("Done.").transform_events(form).chunk(1 << 20)]));
        let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).openai(&server).run();
        ended.assert_code(0).assert_stdout("Done.\n");
        assert_eq!((server.finish().len(), folder.exists("late")), (1, false), "{model}");
    }
}

#[test]
fn a_stream_without_its_last_event_is_complete() {
    let form: EventTransform =
        |event| if event.starts_with(b"event: message_stop") { Vec::new() } else { event.to_vec() };
    let answers = [call("echo once >>ran"), Answer::text("There.")].map(|answer| answer.transform_events(form));
    let server = Server::start(ScriptedAgents::of(answers));
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed").ended.assert_stdout("There.\n");
    assert_eq!((server.finish().len(), ran.retries().len()), (2, 0));
    assert_eq!(ran.folder.read("ran"), "once\n");
}

#[test]
fn invalid_streams_are_discarded_and_retried() {
    let forms: [EventTransform; 5] = [
        |event| text(event).replace('}', "").into_bytes(),
        // All indices are one too high for their block, except the index at its start.
        |event| {
            String::from_utf8(event.to_vec())
                .unwrap()
                .replace("delta\",\"index\":0", "delta\",\"index\":9")
                .into_bytes()
        },
        |event| event.iter().map(|byte| if *byte == b'"' { 0xff } else { *byte }).collect(),
        |event| text(event).replace("\"tool_use\"", "null").into_bytes(),
        |event| if event.starts_with(b"event: content_block") { Vec::new() } else { event.to_vec() },
    ];
    for (number, form) in forms.into_iter().enumerate() {
        let server = answers_then(vec![call("touch ran").transform_events(form); 2], Answer::text("There."));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(0, "completed").ended.assert_stdout("There.\n");
        assert_eq!((server.finish().len(), ran.retries().len()), (3, 2), "form {number}");
        assert!(!ran.folder.exists("ran"));
        let server = answers_then(vec![], call("touch ran").transform_events(form));
        FinishedRun::against(&server).assert_outcome(75, "provider_failed");
        assert_eq!(server.finish().len(), MAX_TRIES, "form {number}");
    }
}

#[test]
fn an_endless_event_is_not_read_to_its_end() {
    let endless: EventTransform = |event| {
        let mut long = event.to_vec();
        long.truncate(long.len() - 2);
        long.resize(9 << 20, b'x');
        long
    };
    let server = answers_then(vec![Answer::text("long").transform_events(endless)], Answer::text("There."));
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed").ended.assert_stdout("There.\n");
    assert_eq!(server.finish().len(), 2);
    assert!(ran.retries()[0]["reason"].as_str().unwrap().contains("longer than 8388608 bytes"));
}

#[test]
fn endless_pings_hit_the_total_timeout_and_slow_ones_the_idle_timeout() {
    for (every, idle, total, why) in [(5, "10000", "150", "within 150ms"), (60_000, "50", "60000", "nothing for 50ms")]
    {
        let pings = Answer::text("never").cut_after_events(3).pings(Duration::from_millis(every));
        let server = answers_then(vec![], pings);
        let ran = FinishedRun::of(folder_with(JOB), |program| {
            program.anthropic(&server).env("LEGWORK_IDLE_TIMEOUT_MS", idle).env("LEGWORK_REQUEST_TIMEOUT_MS", total)
        });
        ran.assert_outcome(75, "provider_failed").ended.assert_stderr_contains(why);
        server.wait_for(MAX_TRIES);
        assert_eq!(server.count(), MAX_TRIES);
        // An attempt has no usage if its first event came too late.
        let used = ran.result()["usage"]["input_tokens"].as_u64().unwrap() as usize;
        assert!(used > 0 && used <= 12 * MAX_TRIES && used.is_multiple_of(12), "{used}");
    }
}

/// An event with deeply nested JSON.
fn deep_event() -> Vec<u8> {
    format!("event: message_start\ndata: {}\n\n", "{\"message\":".repeat(10_000)).into_bytes()
}

#[test]
fn an_event_nested_ten_thousand_levels_deep_is_invalid() {
    let server = answers_then(vec![], Answer::text("x").transform_events(|_| deep_event()));
    FinishedRun::against(&server).assert_outcome(75, "provider_failed");
    assert_eq!(server.finish().len(), MAX_TRIES);
}
