//! Servers that aren't the expected ones: each is identified, with its address and a suggestion.

mod certificates;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, Checks, KEY, Request, Server};
use crate::support::tcp_peer::ClosedPort;
use crate::support::test_folder::TestFolder;
use crate::support::tls;

const JOB: &str = "parent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n";

/// A model of each API, and the path of its requests.
const MODELS: [(&str, &str); 4] = [
    ("anthropic/some-model", "/v1/messages"),
    ("openai/some-model", "/v1/responses"),
    ("openai-chat/some-model", "/v1/chat/completions"),
    ("gemini/some-model", "/v1beta/models/some-model:streamGenerateContent"),
];

/// A prepared run, in its folder.
struct PreparedRun(TestFolder, Program);

impl PreparedRun {
    fn env(self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        Self(self.0, self.1.env(name, value))
    }

    /// Asserts the outcome, and that the output shows no secret.
    #[track_caller]
    fn expect_outcome(self, code: i32, outcome: &str) -> FinishedRun {
        let ended = self.1.run();
        ended.assert_code(code).assert_not_printed(KEY).assert_not_printed("hush");
        if code > 0 {
            ended.assert_stderr_contains("help:");
        }
        let record = ended.run_folder();
        record.assert_absent(KEY);
        record.assert_absent("hush");
        assert_eq!(record.result()["outcome"], outcome, "{}", ended.full_output());
        FinishedRun { ended, _folder: self.0 }
    }
}

/// A finished run, with its folder.
struct FinishedRun {
    ended: ProgramOutput,
    _folder: TestFolder,
}

impl std::ops::Deref for FinishedRun {
    type Target = ProgramOutput;

    fn deref(&self) -> &ProgramOutput {
        &self.ended
    }
}

/// Runs against an address with credentials and a query, which must not be shown.
fn run_against(model: &str, scheme: &str, address: SocketAddr) -> PreparedRun {
    let folder = folder_with(JOB);
    let base = format!("{scheme}://me:hush-hush@{address}/v1?tenant=hush-hush");
    let program = folder.legwork(&["run", "job.yaml", "--model", model]);
    let program = program.env("LEGWORK_RETRY_BASE_MS", "1").env("ANTHROPIC_API_KEY", KEY).env("OPENAI_API_KEY", KEY);
    let program = program.env("ANTHROPIC_BASE_URL", &base).env("OPENAI_BASE_URL", &base);
    let program = program.env("GEMINI_API_KEY", KEY).env("GOOGLE_GEMINI_BASE_URL", base.replace("/v1?", "/?"));
    PreparedRun(folder, program)
}

/// Runs against a server that answers every request in this way.
#[track_caller]
fn run_with_answer(model: &str, code: i32, outcome: &str, answer: Answer) -> FinishedRun {
    let server = Server::with(Checks::None, move |_: &Request| answer.clone());
    let ended = run_against(model, "http", server.address()).expect_outcome(code, outcome);
    assert_eq!(server.count(), if code == 5 { 1 } else { 6 }, "requests\n{}", ended.full_output());
    ended.assert_stderr_contains(&format!("http://{}/v1", server.address()));
    ended
}

fn ok(media_type: &str, body: &str) -> Answer {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n", body.len());
    Answer::raw(format!("{head}connection: close\r\n\r\n{body}"))
}

fn events(data: &[Value]) -> Answer {
    let body: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    ok("text/event-stream", &body)
}

#[test]
fn an_html_page_is_reported_by_its_title() {
    let page = "<!doctype html><html><title>Sign in to Example</title><body>hush-hush</body></html>";
    for (model, _) in MODELS {
        let ended = run_with_answer(model, 5, "provider_rejected", ok("text/html; charset=utf-8", page));
        ended
            .assert_stderr_contains("text/html")
            .assert_stderr_contains("Sign in to Example")
            .assert_stderr_contains("is a login page intercepting the request?");
        let head =
            format!("HTTP/1.1 403 Forbidden\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        run_with_answer(model, 5, "provider_rejected", Answer::raw(format!("{head}{page}")))
            .assert_stderr_contains("Sign in to Example");
        let head = format!("HTTP/1.1 502 Bad\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        run_with_answer(model, 75, "provider_failed", Answer::raw(format!("{head}{page}")))
            .assert_stderr_contains("Sign in to Example");
    }
}

#[test]
fn responses_that_are_not_from_an_api_are_identified() {
    let packed = |status: &str| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n");
        let mut bytes = format!("{head}content-length: 6\r\nconnection: close\r\n\r\n").into_bytes();
        bytes.extend([0x1f, 0x8b, 8, 0, 0, 0]);
        Answer::raw(bytes)
    };
    for (model, _) in MODELS {
        let rejected = |answer: Answer| run_with_answer(model, 5, "provider_rejected", answer);
        rejected(packed("200 OK")).assert_stderr_contains("sent a compressed response (gzip), which wasn't requested");
        rejected(packed("400 Bad Request"))
            .assert_stderr_contains("its body is compressed (gzip), which wasn't requested");
        rejected(ok("application/json", "")).assert_stderr_contains("answered with an empty body instead of a reply");
        rejected(ok("image/png", "\u{1}\u{2}\0")).assert_stderr_contains("(it isn't JSON): binary data");
        rejected(ok("application/json", "null"))
            .assert_stderr_contains("(it is JSON, but not a ")
            .assert_stderr_contains("): null");
        rejected(ok("text/html", "<style>a</style><h1>504 Gateway\nTime-out</h1>"))
            .assert_stderr_contains("): a page: 504 Gateway Time-out");
        // The content type makes no difference.
        let page = "\n<!doctype html><title lang=en>Sign in</title>";
        for kind in ["application/json", "text/plain", "text/event-stream"] {
            rejected(ok(kind, page))
                .assert_stderr_contains("a page titled \"Sign in\"")
                .assert_stderr_contains("login page");
        }
        let no_content = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
        rejected(Answer::raw(no_content))
            .assert_stderr_contains("answered 204 No Content")
            .assert_stderr_contains("the address of the ");
        let endless = ok("application/json", &" ".repeat(9 << 20));
        rejected(endless).assert_stderr_contains("answered with ");
    }
}

#[test]
fn an_html_page_during_a_run_is_retried() {
    let page = "<html><title>Maintenance</title></html>";
    let job = "parent: { prompt: Go., tools: [glob] }\n";
    for (model, _) in MODELS {
        for (junk, code, outcome, requests) in [(1, 0, "completed", 3), (99, 75, "provider_failed", 1 + 6)] {
            let count = AtomicUsize::new(0);
            let server =
                Server::with(Checks::AllowRepeats, move |_: &Request| match count.fetch_add(1, Ordering::SeqCst) {
                    0 => Answer::calls(&[("glob", json!({"pattern": "*"}))]),
                    number if number <= junk => ok("text/html", page),
                    _ => Answer::text("Done."),
                });
            let folder = folder_with(job);
            let program = folder.legwork(&["run", "job.yaml", "--model", model]).env("LEGWORK_RETRY_BASE_MS", "1");
            let program = program.anthropic(&server).openai(&server).gemini(&server);
            let ended = PreparedRun(folder, program).expect_outcome(code, outcome);
            assert_eq!(server.count(), requests, "{}", ended.full_output());
            if code > 0 {
                ended
                    .assert_stderr_contains("a page titled \"Maintenance\" (tried 6 times)")
                    .assert_stderr_contains("try again later");
            }
        }
    }
}

#[test]
fn a_connection_timeout_is_reported() {
    for (model, _) in MODELS {
        // The server accepts the connection and never speaks TLS.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let program = run_against(model, "https", listener.local_addr().unwrap());
        let program = program.env("SSL_CERT_FILE", tls::file("authority.pem"));
        let ended = program.env("LEGWORK_CONNECT_TIMEOUT_MS", "50").expect_outcome(75, "provider_failed");
        ended
            .assert_stderr_contains("can't connect to https://")
            .assert_stderr_contains("timed out after 50ms")
            .assert_not_printed("deadline has elapsed");
    }
}

/// A reply of each API, complete and as the start of a stream, with the API's name and the suggestion.
fn foreign_api_answers() -> Vec<(&'static str, Value, Value, &'static str, &'static str)> {
    vec![
        (
            "openai-chat",
            json!({"id": "c", "object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}),
            json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "hi"}}]}),
            "the Chat Completions API",
            "openai-chat/some-model",
        ),
        (
            "openai",
            json!({"id": "r", "object": "response", "status": "completed", "output": []}),
            json!({"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress", "output": []}}),
            "the Responses API",
            "openai/some-model",
        ),
        (
            "anthropic",
            json!({"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}),
            json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}}),
            "the Messages API",
            "anthropic/some-model",
        ),
        (
            "gemini",
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}),
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}}]}),
            "the Gemini API",
            "gemini/some-model",
        ),
        (
            "",
            json!({"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": true}),
            json!({"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": false}),
            "Ollama's own API",
            "with an address that ends with /v1",
        ),
    ]
}

#[test]
fn a_reply_of_another_api_is_recognized() {
    for (model, _) in MODELS {
        for (api, whole, event, name, hint) in foreign_api_answers() {
            if model.starts_with(&format!("{api}/")) {
                continue;
            }
            for answer in [
                ok("application/json", &whole.to_string()),
                events(&[event.clone(), event.clone()]),
                ok("application/x-ndjson", &format!("{event}\n{whole}\n")),
            ] {
                let ended = run_with_answer(model, 5, "provider_rejected", answer);
                ended.assert_stderr_contains(&format!("answered as {name} does, not as ")).assert_stderr_contains(hint);
            }
        }
    }
}

#[test]
fn an_error_with_status_200_is_recognized_in_every_dialect() {
    let error = json!({"error": {"message": "The model is asleep.", "type": "invalid_request_error", "code": 400}});
    for (model, _) in MODELS {
        for answer in [ok("application/json", &error.to_string()), events(std::slice::from_ref(&error))] {
            let server = Server::with(Checks::None, move |_: &Request| answer.clone());
            let PreparedRun(_folder, program) = run_against(model, "http", server.address());
            program.run().assert_code(5).assert_stderr_contains("The model is asleep.").assert_not_printed("hush");
        }
        let passing = json!({"error": {"message": "The model is asleep.", "type": "server_error", "code": 500}});
        for answer in [ok("application/json", &passing.to_string()), events(&[passing])] {
            run_with_answer(model, 75, "provider_failed", answer).assert_stderr_contains("The model is asleep.");
        }
    }
}

#[test]
fn an_unknown_error_body_is_an_error() {
    for (model, _) in MODELS {
        for (error, said) in [
            (json!({"detail": "Not authenticated"}), "with an error: Not authenticated"),
            (json!({"detail": [{"loc": ["x"], "msg": "Field required"}]}), "with an error: Field required"),
            (json!({"errors": [{"message": "Bad thing", "code": 1000}], "success": false}), "with an error: Bad thing"),
            (json!({"object": "error", "message": "No such model", "code": 404}), "with an error: No such model"),
            (json!({"code": 401, "msg": "Invalid token"}), "with an error: Invalid token"),
        ] {
            run_with_answer(model, 5, "provider_rejected", ok("application/json", &error.to_string()))
                .assert_stderr_contains(&format!("200 {said}"));
            run_with_answer(model, 5, "provider_rejected", ok("text/event-stream", &error.to_string()))
                .assert_stderr_contains(&format!("200 {said}"));
            let event = events(std::slice::from_ref(&error));
            run_with_answer(model, 5, "provider_rejected", event)
                .assert_stderr_contains(&said.replace("with an error", "with an error in the stream"));
        }
    }
}

#[test]
fn an_authentication_error_names_the_credentials_that_were_sent() {
    for (model, _) in &MODELS[1..3] {
        for status in ["401 Unauthorized", "403 Forbidden"] {
            let answer = Answer::raw(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
            let ended = run_with_answer(model, 5, "provider_rejected", answer);
            ended.assert_stderr_contains("the user and password in OPENAI_BASE_URL were sent, and no key");
        }
    }
}

#[test]
fn a_not_found_error_suggests_the_version_path() {
    for model in ["openai/some-model", "openai-chat/some-model", "anthropic/some-model"] {
        let server = Server::with(Checks::None, |_: &Request| {
            Answer::raw("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        });
        let PreparedRun(_folder, program) = run_against(model, "http", server.address());
        let base = format!("http://{}", server.address());
        let ended = program.env("OPENAI_BASE_URL", &base).env("ANTHROPIC_BASE_URL", &base).run();
        ended.assert_code(5);
        assert_eq!(
            ended.stderr.contains("let the address end with that"),
            model.starts_with("openai"),
            "{}",
            ended.full_output()
        );
    }
}

#[test]
fn a_redirect_error_suggests_the_address() {
    for (model, path) in MODELS {
        for (location, shown) in [
            (format!("https://me:hush-hush@other.example{path}?key=hush-hush"), format!("https://other.example{path}")),
            ("/login?back=hush-hush".to_owned(), "/login".to_owned()),
            (format!("/eu{path}"), format!("/eu{path}")),
        ] {
            let answer =
                Answer::raw(format!("HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"));
            let ended = run_with_answer(model, 5, "provider_rejected", answer);
            ended.assert_stderr_contains("redirects to http").assert_stderr_contains(&shown);
            match location.starts_with("/login") {
                true => ended.assert_stderr_contains("login page"),
                false => {
                    ended.assert_stderr_contains("put http").assert_stderr_contains("_BASE_URL, if you trust that")
                }
            };
        }
        let answer = Answer::raw("HTTP/1.1 302 Found\r\nlocation: javascript:alert(1)\r\ncontent-length: 0\r\n\r\n");
        run_with_answer(model, 5, "provider_rejected", answer)
            .assert_stderr_contains("redirects to javascript:alert(1)");
        let itself = Answer::raw("HTTP/1.1 308 Moved\r\nlocation: ?\r\ncontent-length: 0\r\n\r\n");
        run_with_answer(model, 5, "provider_rejected", itself)
            .assert_stderr_contains("that is the same address")
            .assert_not_printed("if you trust");
    }
}

fn run_with_any_answer(model: &str, answer: Answer) -> FinishedRun {
    let server = Server::with(Checks::None, move |_: &Request| answer.clone());
    run_against(model, "http", server.address()).expect_outcome(5, "provider_rejected")
}

#[test]
fn a_refused_connection_is_a_temporary_failure() {
    for (model, _) in MODELS {
        let closed = ClosedPort::hold();
        let address = closed.address();
        let ended = run_against(model, "http", address).expect_outcome(75, "provider_failed");
        ended
            .assert_stderr_contains("refused")
            .assert_stderr_contains("is the server running")
            .assert_stderr_contains("_BASE_URL");
    }
}

#[test]
fn a_server_without_the_endpoint_suggests_openai_chat() {
    for (model, _) in MODELS {
        let nothing = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}";
        let ended = run_with_answer(model, 5, "provider_rejected", Answer::raw(nothing));
        assert_eq!(
            ended.stderr.contains("`openai-chat/MODEL`"),
            !model.starts_with("openai-chat/"),
            "{}",
            ended.full_output()
        );
    }
}
