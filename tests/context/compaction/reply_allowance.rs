//! The space that the context window leaves for a reply, and windows that only the server knows.

use serde_json::json;

use super::{events_of_type, events_of_type_in, run, tokens};
use crate::models::providers::MODELS;
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

fn folder(model: &str, max_tokens: u64) -> TestFolder {
    let folder = TestFolder::new();
    let job = format!(
        "model: {model}\nparent: {{ prompt: Read on., tools: [read_file], max_tokens: {max_tokens} }}\n\
         limits: {{ tokens: 1000000 }}\n"
    );
    folder.write("job.yaml", job).write("notes.txt", "some words\n");
    folder
}

/// One turn that reads, with a reply of this many words and tokens, then the final answer.
fn reader(words: usize, output: u64) -> impl Fn(&Request) -> Answer + Send + Sync {
    move |request: &Request| match request.turn() {
        0 => {
            let reads = Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))]);
            reads.then_text(&"words ".repeat(words)).usage(tokens(request), output)
        }
        _ => Answer::text("All is read.").usage(tokens(request), 7),
    }
}

#[test]
fn a_reply_allowance_shrinks_with_the_window() {
    const WINDOW: u64 = 6_000;
    for (model, _) in MODELS {
        let folder = folder(&format!("{{ name: {model}, context: {WINDOW} }}"), 5_000);
        // The first reply alone exceeds the window minus the longest reply.
        let server = Server::start(reader(2_200, 3_300));
        let ended = run(&folder, &server);
        ended.assert_code(0).assert_stdout("All is read.\n");
        let requests = server.finish();
        let most: Vec<u64> = requests.iter().map(|request| request.max_tokens()).collect();
        assert!(most.len() == 2 && most[1] < most[0] && most[1] >= WINDOW / 8, "{model}: {most:?}");
        assert!(requests.iter().all(|request| tokens(request) + request.max_tokens() <= WINDOW));
        let asked: Vec<u64> = events_of_type(&ended.run_folder(), "request_started")
            .iter()
            .filter_map(|asked| asked["max_tokens"].as_u64())
            .collect();
        assert_eq!(asked, most, "each is in the record");
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
    }
}

#[test]
fn a_reply_cut_at_the_end_of_the_window_is_retried_once() {
    let folder = folder("{ name: anthropic/claude-haiku-4-5, context: 6000 }", 5_000);
    let cut = Server::start(|request: &Request| match request.turn() {
        0 => Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))]).then_text(&"words ".repeat(1_500)),
        _ => Answer::text("It goes on and").stop("max_tokens"),
    });
    let ended = run(&folder, &cut);
    ended
        .assert_code(4)
        .assert_error_contains("context_full: the reply was cut: the conversation fills the model's window");
    assert_eq!(ended.run_folder().result()["text"], "It goes on and");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

/// A server that rejects requests whose prompt and longest reply don't fit into its window.
fn server_with_window(
    window: u64,
    says: fn(&Request, u64) -> String,
    reads: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> Server {
    Server::start(move |request: &Request| match tokens(request) + request.max_tokens() {
        all if all > window => Answer::status(400).error("invalid_request_error", &says(request, window)),
        _ => reads(request),
    })
}

#[test]
fn a_context_window_from_an_error_is_remembered() {
    let words = |request: &Request, window: u64| {
        let (prompt, reply) = (tokens(request), request.max_tokens());
        format!(
            "This model's maximum context length is {window} tokens. However, you requested {} tokens ({prompt} in the \
             messages, {reply} in the completion).",
            prompt + reply
        )
    };
    let folder = TestFolder::new();
    let job = "model: openai-chat/local\nparent: { prompt: Read on., tools: [read_file, task] }\n\
               subagents: { reader: { description: Reads., tools: [read_file], max_tokens: 7900 } }\n\
               limits: { tokens: 1000000 }\n";
    folder.write("job.yaml", job).write("notes.txt", "some words\n");
    let server = server_with_window(8_192, words, |request: &Request| {
        let reply = match (request.turn(), request.prompt().contains("Look.")) {
            (0, false) => Answer::calls(&[("task", json!({ "prompt": "Look." }))]),
            (0, true) => Answer::calls(&[("read_file", json!({ "path": "notes.txt" }))]),
            _ => Answer::text("Seen."),
        };
        reply.usage(tokens(request), 7)
    });
    let ended = run(&folder, &server);
    ended.assert_code(0).assert_stdout("Seen.\n");
    assert_eq!(server.finish().len(), 5, "one was refused, and no other ran into it");
    let record = ended.run_folder();
    let failed = events_of_type(&record, "request_failed");
    assert_eq!((failed.len(), &failed[0]["window"]), (1, &json!(8192)));
    let children = events_of_type_in(&record.events_of("reader-1"), "request_started");
    assert!(children.iter().all(|asked| asked["max_tokens"].as_u64().is_some_and(|most| most < 7_900)));
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn a_server_that_keeps_changing_its_window_is_not_retried_forever() {
    let folder = folder("openai-chat/local", 8_000);
    let server = server_with_window(
        0,
        |request, _| format!("This model's maximum context length is {} tokens.", request.max_tokens() - 1),
        |_| unreachable!(),
    );
    run(&folder, &server).assert_code(4).assert_error_contains("maximum context length");
    assert_eq!(server.finish().len(), 2);
}
