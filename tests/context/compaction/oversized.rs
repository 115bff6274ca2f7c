//! Invalid or oversized summaries, and prompts and results that are too long at the start.

use serde_json::{Value, json};

use super::{MAX_REPLY_TOKENS, WINDOW, asks_for_a_summary, events_of_type, folder, reader, run, tokens, with_window};
use crate::models::providers::MODELS;
use crate::support::job::EndedRun;
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// A long run whose summaries all have this text.
fn run_with_summary(summary: &Answer) -> (TestFolder, EndedRun, Vec<Value>) {
    let folder = folder(&with_window("anthropic/claude-haiku-4-5"), "");
    let (reads, summary) = (reader(9), summary.clone());
    let server = Server::start(move |request: &Request| match asks_for_a_summary(request) {
        true => summary.clone().usage(10, 1),
        false => reads(request),
    });
    let ended = run(&folder, &server);
    for request in server.finish() {
        assert!(tokens(&request) + request.max_tokens() <= WINDOW, "{}", tokens(&request));
    }
    let summed_up = events_of_type(&ended.run_folder(), "context_compacted");
    (folder, ended, summed_up)
}

#[test]
fn text_before_a_refusal_is_not_a_summary() {
    let (_folder, ended, summed_up) = run_with_summary(&Answer::text("First I read the").stop("refusal"));
    assert!(summed_up.is_empty());
    ended.assert_code(4).assert_error_contains("and the requested summary was refused");
    assert!(ended.run_folder().transcript().contains("_Compaction failed: the summary was refused_"));
    assert!(ended.run_folder().file("report.html").contains("Compaction failed: the summary was refused"));
}

#[test]
fn a_tool_call_is_not_a_summary() {
    let call = Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))]);
    let (_folder, ended, summed_up) = run_with_summary(&call);
    assert!(summed_up.is_empty());
    ended.assert_code(4).assert_error_contains("and the requested summary is empty");
    let record = ended.run_folder();
    assert_eq!(record.result()["tool_calls"], record.result()["turns"], "it is not run");
}

#[test]
fn a_truncated_summary_is_marked() {
    let (_folder, ended, summed_up) = run_with_summary(&Answer::text("The notes say that").stop("max_tokens"));
    ended.assert_code(0);
    assert_eq!(summed_up[0]["summary"], "The notes say that\n[The summary was cut here.]");
}

#[test]
fn an_oversized_summary_is_truncated() {
    let (_folder, ended, summed_up) = run_with_summary(&Answer::text(&"many words ".repeat(4_000)));
    ended.assert_code(0);
    let longest = summed_up.iter().map(|event| event["summary"].as_str().unwrap().len()).max().unwrap();
    assert!((1_000..MAX_REPLY_TOKENS as usize * 6 + 200).contains(&longest), "{longest}");
}

#[test]
fn an_uncounted_prompt_is_sent_to_the_provider() {
    let folder = folder("{ name: openai-chat/x, context: 100000 }", "");
    let ask = |words: usize| {
        folder.write("prompt.txt", "words and ".repeat(words));
        folder.write("job.yaml", folder.read("job.yaml").replace("prompt: Read on.", "prompt: { file: prompt.txt }"));
        let server = Server::start(|_: &Request| Answer::text("Seen."));
        (run(&folder, &server), server.finish().len())
    };
    let (ended, requests) = ask(30_000);
    ended.assert_code(0);
    assert_eq!(requests, 1, "its 300 kB may be 75,000 tokens");
    // A request that can't fit isn't sent, because some servers would truncate it silently.
    let (ended, requests) = ask(70_000);
    ended
        .assert_code(4)
        .assert_error_contains("the prompt, with the system prompt and the tools, takes about 28")
        .assert_error_contains("Shorten the prompt");
    assert_eq!(requests, 0);
}

#[test]
fn truncation_continues_until_the_prompt_fits() {
    for (model, _) in MODELS {
        let model = match model.split_once('/') {
            Some((provider @ ("anthropic" | "gemini"), _)) => format!("{provider}/nonesuch-1"),
            _ => model.to_owned(),
        };
        let folder = folder(&model, "");
        folder.write("notes.txt", "some words to fill a line of this file\n".repeat(1_200));
        let server = Server::start(|request: &Request| match (tokens(request), request.turn()) {
            (4_000.., _) => Answer::status(400).error("invalid_request_error", "prompt is too long: 4001 > 4000"),
            (_, 0) => Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))]),
            _ => Answer::text("Seen."),
        });
        let ended = run(&folder, &server);
        ended.assert_code(0).assert_stdout("Seen.\n");
        let requests = server.finish();
        let shortened = events_of_type(&ended.run_folder(), "results_truncated");
        let lengths: Vec<_> = shortened.iter().filter_map(|event| event["chars"].as_u64()).collect();
        assert_eq!(lengths, [20_000, 10_000], "{model}: {} requests", requests.len());
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
    }
}
