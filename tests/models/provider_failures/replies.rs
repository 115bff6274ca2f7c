//! Complete but unusual replies: odd stop reasons, odd calls, and too many or too large calls.

use serde_json::json;

use super::{FinishedRun, MAX_TRIES, answers_then, call};
use crate::running::runs::folder_with;
use crate::support::server::{Answer, Request, ScriptedAgents, Server};

/// A reply with this stop reason, which the API may not define.
fn with_stop_reason(answer: Answer, reason: &str) -> Answer {
    let answer = answer.stop(reason);
    if reason == "stop_of_tomorrow" { answer.nonstandard() } else { answer }
}

#[test]
fn a_reply_that_keeps_pausing_ends_at_the_turn_limit() {
    let server = Server::start(|request: &Request| {
        if request.can_call_tools() {
            Answer::text("Still searching.").stop("pause_turn")
        } else {
            Answer::text("So far.")
        }
    });
    let ran = FinishedRun::of(folder_with("parent: { prompt: Go., tools: [bash], max_turns: 4 }\n"), |program| {
        program.anthropic(&server)
    });
    ran.assert_outcome(4, "turn_limit").ended.assert_stdout("So far.\n");
    assert_eq!(server.finish().len(), 5);
}

#[test]
fn calls_run_only_if_the_reply_stopped_for_tool_use() {
    for (stop, code, outcome, requests, runs) in [
        ("tool_use", 0, "completed", 2, true),
        ("end_turn", 0, "completed", 2, true),
        ("stop_of_tomorrow", 0, "completed", 2, true),
        ("pause_turn", 0, "completed", 2, true),
        ("refusal", 1, "refused", 1, false),
        ("model_context_window_exceeded", 4, "context_full", 1, false),
        ("max_tokens", 0, "completed", 2, false),
    ] {
        let server = answers_then(vec![with_stop_reason(call("touch ran"), stop)], Answer::text("Over."));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(code, outcome);
        assert_eq!((server.finish().len(), ran.folder.exists("ran")), (requests, runs), "{stop}");
    }
}

#[test]
fn a_truncated_call_is_requested_again_once() {
    let half = || Answer::empty().then_broken_call("bash", "{\"command\": \"touch r").stop("max_tokens");
    let server = Server::start(ScriptedAgents::of([call("true"), half(), call("true"), half(), Answer::text("Over.")]));
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed");
    let requests = server.finish();
    assert_eq!(requests[2].messages().len(), requests[1].messages().len(), "the half is not in it");

    let server = Server::start(ScriptedAgents::of([call("true"), half(), half()]));
    FinishedRun::against(&server).assert_outcome(4, "reply_cut");
    server.finish();
}

#[test]
fn a_final_reply_with_an_unknown_stop_reason_is_an_answer() {
    for stop in ["stop_sequence", "stop_of_tomorrow"] {
        let server = Server::start(ScriptedAgents::of([with_stop_reason(Answer::text("There."), stop)]));
        FinishedRun::against(&server).assert_outcome(0, "completed").ended.assert_stdout("There.\n");
        server.finish();
    }
    let server = answers_then(vec![], Answer::text("I call it.").stop("tool_use"));
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(75, "provider_failed").ended.assert_stderr_contains("but has none");
    assert_eq!(server.finish().len(), MAX_TRIES, "a call that got lost isn't success");
}

#[test]
fn an_empty_reply_ends_the_run_only_after_tool_calls() {
    let server = answers_then(vec![], Answer::empty());
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(75, "provider_failed")
        .ended
        .assert_stdout("")
        .assert_stderr_contains("an empty reply (tried 3 times)");
    assert_eq!(server.finish().len(), 3, "nothing done and nothing said isn't success");
    let server = Server::start(ScriptedAgents::of([call("true").then_text("I try."), Answer::empty()]));
    FinishedRun::against(&server)
        .assert_outcome(0, "completed")
        .ended
        .assert_stdout("")
        .assert_stderr_contains("the last reply has no text");
    server.finish();
    let server = Server::start(ScriptedAgents::of([
        Answer::text(" \n").then_text("").then_call("bash", &json!({"command": "true"})),
        Answer::text("There."),
    ]));
    FinishedRun::against(&server).assert_outcome(0, "completed");
    server.finish();
}

#[test]
fn calls_with_duplicate_ids_get_unique_ids() {
    let twins = |text: &str| {
        Answer::empty()
            .then_call_as("same", "bash", &json!({"command": format!("echo {text} 1 | tee -a ran")}))
            .then_call_as("same", "bash", &json!({"command": format!("echo {text} 2 | tee -a ran")}))
            .allow_changed_echo()
    };
    let server = Server::start(ScriptedAgents::of([twins("a"), twins("b"), Answer::text("Over.")]));
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed");
    assert_eq!(ran.folder.read("ran"), "a 1\na 2\nb 1\nb 2\n");
    let requests = server.finish();
    let texts: Vec<String> = requests[1].results().into_iter().map(|result| result.text).collect();
    assert!(texts[0].contains("a 1") && texts[1].contains("a 2"), "{texts:?}");
}

#[test]
fn a_hundred_calls_in_one_reply_are_answered_in_order() {
    let folder = folder_with(
        "parent:\n  prompt: Go.\n  tools: [read_file, write_file, task]\nsubagents:\n  child: { tools: [] }\n",
    );
    let mut calls = Answer::empty();
    for number in 0..100 {
        folder.write(&format!("in/{number}.txt"), format!("text {number}\n"));
        calls = match number % 10 {
            7 => calls.then_call("task", &json!({"prompt": format!("child {number}")})),
            8 => calls.then_call("write_file", &json!({"path": format!("out/{number}.txt"), "content": "x"})),
            _ => calls.then_call("read_file", &json!({"path": format!("in/{number}.txt")})),
        };
    }
    let server = Server::start(move |request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Go.", 0) => calls.clone(),
        ("Go.", _) => Answer::text("All."),
        (prompt, _) => Answer::text(prompt),
    });
    let ran = FinishedRun::of(folder, |program| program.anthropic(&server));
    ran.assert_outcome(0, "completed");
    let requests = server.finish();
    assert_eq!(requests.len(), 12);
    let results = requests.last().unwrap().results();
    assert_eq!((results.len(), results.iter().filter(|result| result.is_error).count()), (100, 0));
    for (number, result) in results.iter().enumerate().filter(|(number, _)| number % 10 != 8) {
        let expected = if number % 10 == 7 { format!("child {number}") } else { format!("text {number}") };
        assert!(result.text.contains(&expected), "{number}: {}", result.text);
    }
}

#[test]
fn a_multiline_input_is_one_line_of_the_journal() {
    let input = "{\n  \"command\":\r\n    \"touch ran\"\n}\n";
    let server = Server::start(ScriptedAgents::of([
        Answer::empty().then_broken_call("bash", input),
        Answer::text("Read back."),
    ]));
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed").ended.assert_stdout("Read back.\n");
    assert!(ran.folder.exists("ran"));
    server.finish();
}

#[test]
fn an_input_nested_ten_thousand_levels_deep_is_an_error() {
    let deep = |open: &str, close: &str| format!("{{\"command\": {}1{}}}", open.repeat(10_000), close.repeat(10_000));
    for input in [deep("[", "]"), deep("{\"a\":", "}"), deep("[", "")] {
        let server = Server::start(ScriptedAgents::of([
            Answer::empty().then_broken_call("bash", &input).then_call("bash", &json!({"command": "touch ran"})),
            Answer::text("Flat, then."),
        ]));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(0, "completed").ended.assert_stdout("Flat, then.\n");
        let results = server.finish()[1].results();
        assert!(results[0].is_error && results[0].text.starts_with("the input is"), "{:?}", results[0]);
        assert!(!results[1].is_error && ran.folder.exists("ran"));
        let record = ran.ended.run_folder();
        let again = ran.folder.legwork(&["run", "job.yaml", "--out", "again", "--model"]);
        again.arg(format!("replay/{}", record.path().display())).run().assert_code(0).assert_stdout("Flat, then.\n");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_input_of_fifty_megabytes_is_an_error_and_not_stored() {
    use std::sync::{Arc, OnceLock};

    let folder = folder_with(super::JOB);
    let pid = Arc::new(OnceLock::new());
    let peak = Arc::new(OnceLock::new());
    let (of, seen) = (Arc::clone(&pid), Arc::clone(&peak));
    let long = format!("{{\"command\": \"true # {}\"}}", "x".repeat(50_000_000));
    let server = Server::start(move |request: &Request| {
        if request.turn() == 0 {
            return Answer::empty().then_broken_call("bash", &long);
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", of.wait())).unwrap();
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        // The pages of the program itself don't count.
        let _ = seen.set(kilobytes("VmHWM:").saturating_sub(kilobytes("RssFile:")));
        Answer::text("Shorter, then.")
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    pid.set(running.pid()).unwrap();
    let ended = running.wait();
    ended.assert_code(0).assert_stdout("Shorter, then.\n");
    let requests = server.finish();
    assert_eq!(requests.len(), 2);
    let result = &requests[1].results()[0];
    assert!(result.is_error && result.text.contains("longer than"), "{result:?}");
    let peak = peak.get().unwrap();
    assert!(*peak < 50_000, "{peak} kB at the most: more than the input itself");
}
