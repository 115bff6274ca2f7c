//! Conversations that exceed the context window: old results are truncated, then earlier messages are summarized.

mod interrupted;
mod oversized;
mod preserved_thinking;
mod reply_allowance;
mod scripted_replies;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::models::providers::MODELS;
use crate::support::job::{EndedRun, Job};
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// The context window, and the longest reply.
const WINDOW: u64 = 6_000;
const MAX_REPLY_TOKENS: u64 = 600;

/// A file that is read repeatedly. A result with it has about 4,000 characters.
fn lines() -> String {
    (0..80).map(|number| format!("{number}: some words to fill a line of this file\n")).collect()
}

fn folder(model: &str, more: &str) -> TestFolder {
    let folder = TestFolder::new();
    let job = format!(
        "model: {model}\nparent: {{ prompt: Read on., tools: [read_file, todo], max_tokens: {MAX_REPLY_TOKENS} }}\n\
         limits: {{ tokens: 1000000 }}\n{more}"
    );
    folder.write("job.yaml", job).write("notes.txt", lines());
    folder
}

fn with_window(name: &str) -> String {
    format!("{{ name: {name}, context: {WINDOW} }}")
}

fn run(folder: &TestFolder, server: &Server) -> EndedRun {
    Job::in_folder(folder).anthropic(server).openai(server).gemini(server).run()
}

/// A prompt's tokens, as the server counts them.
fn tokens(request: &Request) -> u64 {
    request.bytes().len() as u64 / 4
}

fn asks_for_a_summary(request: &Request) -> bool {
    request.last_text().contains("fills the model's window")
}

/// A model that thinks and reads for a number of turns, and writes a summary on request.
fn reader(turns: usize) -> impl Fn(&Request) -> Answer + Send + Sync {
    reader_with_signatures(turns, |_| "c2lnbmF0dXJl".to_owned())
}

/// The same model, with its own signature on the thinking of each reply.
fn reader_with_signatures(
    turns: usize,
    sign: impl Fn(&Request) -> String + Send + Sync,
) -> impl Fn(&Request) -> Answer + Send + Sync {
    let (request_count, summed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    move |request: &Request| {
        let reply = if asks_for_a_summary(request) {
            let number = summed.fetch_add(1, Ordering::SeqCst) + 1;
            Answer::text(&format!("SUMMARY {number}: the notes were read."))
        } else {
            match request_count.fetch_add(1, Ordering::SeqCst) + 1 {
                turn if turn > turns => Answer::text("All is read."),
                turn => Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))])
                    .then_text(&format!("Turn {turn}. {}", "I think about it. ".repeat(60)))
                    .thinking("What next?", &sign(request)),
            }
        };
        reply.usage(tokens(request), 300)
    }
}

fn events_of_type(run: &RunFolder, kind: &str) -> Vec<Value> {
    events_of_type_in(&run.events(), kind)
}

fn events_of_type_in(events: &[Value], kind: &str) -> Vec<Value> {
    events.iter().filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

#[test]
fn long_conversations_are_compacted_with_every_provider() {
    for (model, api) in MODELS {
        let folder = folder(&with_window(model), "");
        let server = Server::start(reader(20));
        let ended = run(&folder, &server);
        ended.assert_code(0).assert_stdout("All is read.\n");
        let requests = server.finish();
        let record = ended.run_folder();
        let (shortened, summed_up) =
            (events_of_type(&record, "results_truncated"), events_of_type(&record, "context_compacted"));
        assert!(!shortened.is_empty() && summed_up.len() >= 2, "{model}: {} {}", shortened.len(), summed_up.len());
        assert!(requests.iter().all(|request| request.api() == api));
        for request in &requests {
            assert!(tokens(request) + request.max_tokens() <= WINDOW, "{model}: {}", tokens(request));
        }
        // The tools are listed but forbidden, so that the prompt's prefix stays the cached one.
        let summaries: Vec<_> = requests.iter().filter(|request| asks_for_a_summary(request)).collect();
        assert_eq!(summaries.len(), summed_up.len(), "{model}");
        assert!(summaries.iter().all(|request| !request.can_call_tools() && request.tools() == ["read_file", "todo"]));
        // This is a summary of messages that contain a summary.
        assert!(summaries[1].prompt().contains("SUMMARY 1: the notes were read."), "{}", summaries[1].prompt());
        let last = requests.last().unwrap();
        let prompt = last.prompt();
        assert!(prompt.starts_with("Read on.\n\n[") && prompt.contains(&format!("SUMMARY {}", summaries.len())));
        assert!(!prompt.contains("SUMMARY 1:"), "{prompt}");
        // Compaction frees much space at once, so most requests continue the previous one.
        let steps = shortened.len() + summed_up.len();
        assert!(steps * 2 < 20, "{model}: {steps}");
        assert_recorded(&folder, &record, requests.len() as u64);
    }
}

#[test]
fn the_plan_of_an_agent_follows_the_summary() {
    let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "");
    let (next, asked) = (reader(20), AtomicUsize::new(0));
    let server = Server::start(move |request: &Request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::calls(&[("todo", json!({ "items": [{ "text": "Read all notes", "status": "in_progress" }] }))]),
        _ => next(request),
    });
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("All is read.\n");
    let prompt = server.finish().last().unwrap().prompt();
    assert!(
        prompt.contains("the notes were read.\n\n[Your plan, as you last set it with `todo`:]\n[>] Read all notes"),
        "{prompt}"
    );
}

/// Compaction is reported and counted in the record.
fn assert_recorded(folder: &TestFolder, record: &RunFolder, requests: u64) {
    let result = record.result();
    assert_eq!((&result["turns"], &result["tool_calls"]), (&json!(21), &json!(20)));
    assert_eq!(result["usage"]["output_tokens"], requests * 300, "the summaries' tokens count");
    let transcript = record.transcript();
    assert!(transcript.contains("_Compaction: ") && transcript.contains("## Conversation summary\n"));
    assert_eq!(transcript.matches("## Turn ").count(), 21, "a summary is no turn");
    assert!(!transcript.contains("## Final reply"));
    let page = record.file("report.html");
    assert!(page.contains("Compaction: ") && page.contains("<summary>Conversation summary</summary>"));
    let before = [transcript, page, record.file("result.json")];
    folder.legwork(&["show", "latest", "--rebuild"]).run().assert_code(0);
    assert_eq!(before, ["transcript.md", "report.html", "result.json"].map(|name| record.file(name)));
}

/// A transcript doesn't contain subagent conversations. It reports the compaction next to the call, and in the figures
/// of the summary.
#[test]
fn a_subagents_compaction_is_reported_to_the_parent() {
    let folder = TestFolder::new();
    let model = with_window("openai-chat/local");
    let job = format!(
        "model: {model}\nparent: {{ prompt: Go., tools: [task], max_tokens: {MAX_REPLY_TOKENS} }}\nlimits: {{ tokens: 1000000 }}\n\
         subagents: {{ reader: {{ description: Reads., tools: [read_file], max_tokens: {MAX_REPLY_TOKENS} }} }}\n"
    );
    folder.write("job.yaml", job).write("notes.txt", lines());
    let reads = reader(12);
    let server = Server::start(move |request: &Request| match (request.tools() == ["task"], request.turn()) {
        (true, 0) => Answer::calls(&[("task", json!({ "prompt": "Look." }))]),
        (true, _) => Answer::text("Done."),
        _ => reads(request),
    });
    let ended = run(&folder, &server);
    ended.assert_code(0);
    let record = ended.run_folder();
    let events = record.events_of("reader-1");
    let times = ["results_truncated", "context_compacted"]
        .map(|kind| events_of_type_in(&events, kind).len())
        .iter()
        .sum::<usize>();
    assert!(times > 1, "{times}");
    let transcript = record.transcript();
    let note = format!("_Its conversation was compacted {times} times_");
    assert!(
        transcript.split(": [reader-1](subagents/reader-1.md)").nth(1).is_some_and(|call| call.contains(&note)),
        "{transcript}"
    );
    let page = record.file("subagents/reader-1.md");
    assert!(page.contains(&format!("\ncompactions: {times}\n")));
    assert_eq!(page.matches("Compaction: ").count(), times, "{page}");
    // The parent itself compacted nothing.
    assert!(
        events_of_type(&record, "agent_finished")
            .iter()
            .any(|end| end["id"] == "parent" && end["compactions"].is_null())
    );
}

#[test]
fn a_prompt_that_the_provider_rejects_as_too_long_is_compacted() {
    for (model, _) in MODELS {
        // If the context window is unknown, only the provider's error reveals it.
        let model = match model.split_once('/') {
            Some((provider @ ("anthropic" | "gemini"), _)) => format!("{provider}/nonesuch-1"),
            _ => model.to_owned(),
        };
        let model = model.as_str();
        let server = || {
            let reads = reader(14);
            Server::start(move |request: &Request| match tokens(request) {
                0..5_000 => reads(request),
                _ => Answer::status(400).error("invalid_request_error", "prompt is too long: 5001 > 5000"),
            })
        };
        let folder = folder(model, "");
        let (refusing, again) = (server(), server());
        let ended = run(&folder, &refusing);
        ended.assert_code(0).assert_stdout("All is read.\n");
        refusing.finish();
        let record = ended.run_folder();
        let refused = events_of_type(&record, "request_failed").len();
        let steps =
            events_of_type(&record, "results_truncated").len() + events_of_type(&record, "context_compacted").len();
        // A request for a summary can also be rejected.
        assert!(refused > 1 && steps * 2 > refused, "{model}: {refused} {steps}");
        assert!(!events_of_type(&record, "context_compacted").is_empty());

        folder.write("job.yaml", folder.read("job.yaml") + "compaction: off\n");
        let ended = run(&folder, &again);
        ended
            .assert_code(4)
            .assert_error_contains("prompt is too long")
            .assert_error_contains("Remove `compaction: off`");
        let record = ended.run_folder();
        assert!(
            events_of_type(&record, "results_truncated").is_empty()
                && events_of_type(&record, "context_compacted").is_empty()
        );
        assert_eq!(record.result()["outcome"], "context_full");
    }
}

#[test]
fn a_reply_cut_by_the_context_window_is_requested_again() {
    let folder = folder("anthropic/claude-haiku-4-5", "");
    let request_count = AtomicUsize::new(0);
    let server = Server::start(move |request: &Request| {
        let read = || Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))]);
        match request_count.fetch_add(1, Ordering::SeqCst) {
            0..3 => read(),
            3 => read().stop("model_context_window_exceeded"),
            _ if asks_for_a_summary(request) => Answer::text("It was read."),
            _ => Answer::text("Done."),
        }
    });
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("Done.\n");
    assert!(!events_of_type(&ended.run_folder(), "results_truncated").is_empty());
    assert_eq!(events_of_type(&ended.run_folder(), "reply_discarded").len(), 1);
    assert_eq!(ended.run_folder().result()["tool_calls"], 3, "no call of the reply ran");
}

#[test]
fn compaction_results_truncates_only_results() {
    let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "compaction: results\n");
    let server = Server::start(reader(20));
    let ended = run(&folder, &server);
    ended.assert_code(4).assert_error_contains("tokens don't fit the model's window of ");
    ended.assert_error_contains("Remove `compaction: results`");
    let requests = server.finish();
    assert!(!requests.iter().any(|request| asks_for_a_summary(request)));
    assert!(requests.iter().all(|request| tokens(request) + MAX_REPLY_TOKENS <= WINDOW));
    assert!(requests.len() > 4 && !events_of_type(&ended.run_folder(), "results_truncated").is_empty());
}

/// OpenAI reserves a part of the window for the reply, so the limit for a prompt is lower than the window.
#[test]
fn compaction_starts_at_the_models_prompt_limit() {
    for (model, limit) in [("openai/gpt-6-sol", 922_000), ("openai/gpt-5.1", 272_000)] {
        for (used, makes_room) in [(limit - 20_000, false), (limit + 2_000, true)] {
            let folder = folder(model, "");
            folder.write("job.yaml", folder.read("job.yaml").replace("tokens: 1000000", "tokens: 10000000"));
            let request_count = AtomicUsize::new(0);
            let server = Server::start(move |_: &Request| match request_count.fetch_add(1, Ordering::SeqCst) {
                turn @ 0..2 => Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))])
                    .usage(if turn == 0 { 1_000 } else { used }, 10),
                _ => Answer::text("Done."),
            });
            let ended = run(&folder, &server);
            ended.assert_code(0);
            let record = ended.run_folder();
            let steps =
                events_of_type(&record, "results_truncated").len() + events_of_type(&record, "context_compacted").len();
            assert_eq!(steps > 0, makes_room, "{model} {used}");
        }
    }
}

#[test]
fn an_empty_summary_ends_the_run() {
    for (summary, why) in [(Answer::text("  "), "is empty"), (Answer::text("").stop("refusal"), "was refused")] {
        let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "");
        let reads = reader(20);
        let server = Server::start(move |request: &Request| match asks_for_a_summary(request) {
            true => summary.clone().usage(10, 1),
            false => reads(request),
        });
        let ended = run(&folder, &server);
        ended
            .assert_code(4)
            .assert_error_contains("tokens don't fit the model's window of ")
            .assert_error_contains("Delegate more to subagents");
        assert!(ended.run_folder().transcript().contains(&format!("_Compaction failed: the summary {why}_")));
    }
}

#[test]
fn new_results_larger_than_the_window_are_truncated() {
    let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "");
    folder.write("notes.txt", lines().repeat(5));
    let read = ("read_file", json!({ "path": "notes.txt" }));
    let calls = [read.clone(), read.clone(), read];
    let request_count = AtomicUsize::new(0);
    let server = Server::start(move |_: &Request| match request_count.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::calls(&calls),
        _ => Answer::text("Seen."),
    });
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("Seen.\n");
    assert_eq!(events_of_type(&ended.run_folder(), "results_truncated")[0]["call_ids"].as_array().unwrap().len(), 3);
    let requests = server.finish();
    assert_eq!(requests.len(), 2, "there is nothing to sum up");
    assert!(tokens(&requests[1]) + MAX_REPLY_TOKENS <= WINDOW);
    let results = requests[1].results();
    assert!(
        results.iter().all(|result| result.text.starts_with("[shortened") && result.text.contains("0: some words"))
    );
}

#[test]
fn a_limit_without_room_for_a_summary_ends_the_run() {
    let job = folder(&with_window("anthropic/claude-haiku-4-5"), "");
    let server = Server::start(reader(20));
    let whole = run(&job, &server).run_folder().events();
    let at = whole.iter().position(|event| !event["data"]["kept_turns"].is_null()).unwrap();
    let used: u64 = whole[..at].iter().map(|event| sum(&event["data"]["reply"]["usage"])).sum();
    let reserved = whole[at]["data"]["reserved_tokens"].as_u64().unwrap();

    let limit = used + reserved + 300;
    job.write("job.yaml", job.read("job.yaml").replace("1000000", &limit.to_string()));
    let server = Server::start(reader(20));
    let ended = run(&job, &server);
    ended.assert_code(4);
    let requests = server.finish();
    let record = ended.run_folder();
    assert_eq!(record.result()["outcome"], "budget_exceeded");
    assert!(
        events_of_type(&record, "request_started").iter().all(|request_count| request_count["kept_turns"].is_null()),
        "no summary was asked for"
    );
    assert!(sum(&record.result()["usage"]) <= limit);
    // The final request must fit into the window.
    let last = requests.last().unwrap();
    assert!(last.last_text().contains("The work ends here") && tokens(last) + last.max_tokens() <= WINDOW);
}

fn sum(usage: &Value) -> u64 {
    usage.as_object().into_iter().flatten().filter_map(|(_, tokens)| tokens.as_u64()).sum()
}

#[test]
fn a_subagents_conversation_is_compacted() {
    let folder = TestFolder::new();
    let model = with_window("anthropic/claude-haiku-4-5");
    folder.write(
        "job.yaml",
        format!(
            "model: anthropic/claude-haiku-4-5\nparent: {{ prompt: Lead., tools: [task] }}\nsubagents:\n  reader: {{ description: \
             Reads., tools: [read_file, todo], model: {model}, max_tokens: {MAX_REPLY_TOKENS} }}\nlimits: {{ tokens: 1000000 }}\n"
        ),
    );
    folder.write("notes.txt", lines());
    let (reads, led) = (reader(12), AtomicUsize::new(0));
    let server = Server::start(move |request: &Request| match request.prompt().starts_with("Lead.") {
        false => reads(request),
        true => match led.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::calls(&[("task", json!({ "prompt": "Read on." }))]),
            _ => Answer::text("Led."),
        },
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended
        .assert_code(0)
        .assert_stdout("Led.\n")
        .assert_stderr_contains("reader-1       Compaction: conversation summarized except for the last");
    server.finish();
    let record = ended.run_folder();
    assert!(record.summary("reader-1").contains("All is read."));
    let events = record.events_of("reader-1");
    let times = events_of_type_in(&events, "context_compacted").len();
    let page = record.file("subagents/reader-1.md");
    assert!(times > 0 && page.matches("Compaction: conversation summarized").count() == times, "{page}");
    assert!(events_of_type(&record, "context_compacted").is_empty());
    assert!(!record.transcript().contains("Compaction: "), "it is the subagent's");
}

#[test]
fn a_secret_in_a_summary_is_redacted() {
    let folder =
        folder(&with_window("anthropic/claude-haiku-4-5"), "inputs: { token: { type: string, secret: true } }\n");
    let (reads, request_count) = (reader(10), Arc::new(AtomicUsize::new(0)));
    let server = Server::start(move |request: &Request| match asks_for_a_summary(request) {
        true if request_count.fetch_add(1, Ordering::SeqCst) == 0 => {
            Answer::text("It is hush-hush-hush.").usage(tokens(request), 9)
        }
        _ => reads(request),
    });
    let ended = folder
        .legwork(&["run", "job.yaml", "--set-env", "token=T"])
        .env("T", "hush-hush-hush")
        .anthropic(&server)
        .run();
    ended.assert_code(0);
    ended.run_folder().assert_absent("hush-hush-hush");
    let requests = server.finish();
    assert!(requests.iter().any(|request| request.prompt().contains("It is [masked:token].")));
    assert!(!requests.iter().any(|request| request.prompt().contains("hush-hush-hush")));
}
