//! Providers that fail in different ways: the run ends as documented, after a bounded number of requests.

mod replies;
mod streams;

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::in_parallel;
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, KEY, Request, Server};
use crate::support::tcp_peer::{ClosedPort, PeerBehaviour, TcpPeer};
use crate::support::test_folder::TestFolder;

const JOB: &str = "parent:\n  prompt: Go.\n  tools: [bash]\n  max_turns: 99\n";
/// The number of attempts for one request.
const MAX_TRIES: usize = 6;

/// A finished run, with its folder.
struct FinishedRun {
    folder: TestFolder,
    ended: ProgramOutput,
}

impl FinishedRun {
    fn of(folder: TestFolder, start: impl FnOnce(Program) -> Program) -> Self {
        let program = folder.legwork(&["run", "job.yaml"]).env("LEGWORK_RETRY_BASE_MS", "1");
        let ended = start(program).run();
        Self { folder, ended }
    }

    /// The job that runs against the failing server.
    fn against(server: &Server) -> Self {
        Self::of(folder_with(JOB), |program| program.anthropic(server))
    }

    fn result(&self) -> Value {
        self.ended.run_folder().result()
    }

    /// The failed attempts that were retried.
    fn retries(&self) -> Vec<Value> {
        let events = self.ended.run_folder().events();
        let of_retries = events.into_iter().filter(|event| event["type"] == "retrying");
        of_retries.map(|event| event["data"]["retry"].clone()).collect()
    }

    /// Asserts the outcome and the exit code.
    #[track_caller]
    fn assert_outcome(&self, code: i32, outcome: &str) -> &Self {
        self.ended.assert_code(code);
        assert_eq!(self.result()["outcome"], outcome, "{}", self.ended.full_output());
        self
    }
}

/// The first requests get these answers, and all others get the last one.
fn answers_then(answers: Vec<Answer>, all_others: Answer) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |_: &Request| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        answers.get(number).unwrap_or(&all_others).clone()
    })
}

fn call(command: &str) -> Answer {
    Answer::calls(&[("bash", json!({"command": command}))])
}

#[test]
fn transient_statuses_are_retried() {
    for statuses in [[408, 409, 425, 500, 501], [429, 502, 503, 504, 599]] {
        let answers = statuses.map(|status| Answer::status(status).error("api_error", "later"));
        let server = answers_then(answers.to_vec(), Answer::text("There."));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(0, "completed").ended.assert_stdout("There.\n");
        assert_eq!(server.finish().len(), MAX_TRIES);
        let retries = ran.retries();
        for (at, status) in statuses.iter().enumerate() {
            assert!(retries[at]["reason"].as_str().unwrap().contains(&format!("answered {status}")), "{retries:?}");
            assert!(retries[at]["wait_ms"].as_u64().unwrap() <= 1 << at, "a pause beyond its bound: {retries:?}");
        }
    }
}

#[test]
fn a_failing_provider_is_tried_six_times() {
    for status in [408, 409, 425, 500, 503] {
        let server = Server::start(move |_: &Request| Answer::status(status).error("overloaded_error", "Overloaded"));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(75, "provider_failed")
            .ended
            .assert_stderr_contains("(tried 6 times)")
            .assert_stderr_contains("help:");
        assert_eq!((server.finish().len(), ran.retries().len()), (MAX_TRIES, MAX_TRIES - 1), "{status}");
    }
}

#[test]
fn an_overloaded_provider_is_retried_until_the_time_limit() {
    for status in [429, 529] {
        let overloaded = Answer::status(status).error("overloaded_error", "Overloaded");
        let server = answers_then(vec![overloaded.clone(); 2 * MAX_TRIES], Answer::text("There."));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(0, "completed").ended.assert_stdout("There.\n");
        assert_eq!((server.finish().len(), ran.retries().len()), (2 * MAX_TRIES + 1, 2 * MAX_TRIES), "{status}");

        let server = answers_then(vec![], overloaded);
        let ran = FinishedRun::of(folder_with(JOB), |program| {
            program.anthropic(&server).env("LEGWORK_RETRY_PATIENCE_MS", "200")
        });
        ran.assert_outcome(75, "provider_failed")
            .ended
            .assert_stderr_contains("the next try would start in")
            .assert_stderr_contains("help:");
        assert_eq!(server.finish().len(), ran.retries().len() + 1, "{status}");
    }
}

#[test]
fn rejected_requests_are_final() {
    for status in [400, 401, 402, 403, 404, 405, 422] {
        let server = Server::start(move |_: &Request| Answer::status(status).error("api_error", "never"));
        let ran = FinishedRun::against(&server);
        ran.assert_outcome(5, "provider_rejected").ended.assert_stderr_contains("never");
        assert_eq!((server.finish().len(), ran.retries().len()), (1, 0), "{status}");
    }
    let too_long = "prompt is too long: 209000 tokens > 200000 maximum";
    let server = Server::start(|_: &Request| Answer::status(400).error("invalid_request_error", too_long));
    FinishedRun::against(&server).assert_outcome(4, "context_full");
    assert_eq!(server.finish().len(), 1);
    // This is a proxy's own status, so the content of its page makes no difference.
    let server = Server::start(|_: &Request| {
        Answer::raw(
            "HTTP/1.1 413 Payload Too Large\r\ncontent-type: text/html\r\ncontent-length: 18\r\n\r\n<html>nginx</html>",
        )
    });
    FinishedRun::against(&server)
        .assert_outcome(4, "context_full")
        .ended
        .assert_stderr_contains("413 Payload Too Large");
    assert_eq!(server.finish().len(), 1);
}

#[test]
fn retry_after_is_respected_and_ends_the_run_if_it_is_too_long() {
    let throttled = |name: &str, value: &str| Answer::status(429).header(name, value).error("rate_limit_error", "slow");
    let server = answers_then(
        vec![throttled("retry-after-ms", "40"), throttled("retry-after", "0"), throttled("retry-after", "0.05")],
        Answer::text("There."),
    );
    let ran = FinishedRun::against(&server);
    ran.assert_outcome(0, "completed");
    let waits: Vec<u64> = ran.retries().iter().map(|retry| retry["wait_ms"].as_u64().unwrap()).collect();
    assert!(waits[0] == 40 && waits[1] <= 2 && waits[2] == 50, "{waits:?}");
    assert_eq!(server.finish().len(), 4);

    for (limits, after, away) in [
        ("wall_clock: 1m", "90", "90.0 s"),
        ("wall_clock: none", "7200", "7200.0 s"),
        ("wall_clock: none", "99999999999999999999999", "more than a year"),
        ("wall_clock: none", "Fri, 31 Dec 9999 23:59:59 GMT", "more than a year"),
    ] {
        let server = Server::start(move |_: &Request| throttled("retry-after", after));
        let ran = FinishedRun::of(folder_with(&format!("{JOB}limits: {{ {limits} }}\n")), |program| {
            program.anthropic(&server)
        });
        ran.assert_outcome(75, "provider_failed")
            .ended
            .assert_stderr_contains(&format!("the next try would start in {away}"));
        assert_eq!(server.finish().len(), 1);
    }
}

#[test]
fn the_servers_retry_header_is_respected() {
    let server =
        Server::start(|_: &Request| Answer::status(503).header("x-should-retry", "false").error("api_error", "no"));
    FinishedRun::against(&server).assert_outcome(75, "provider_failed");
    assert_eq!(server.finish().len(), 1);
    let passing = Answer::status(400).header("x-should-retry", "true").error("api_error", "soon");
    let server = answers_then(vec![passing.clone()], Answer::text("There."));
    FinishedRun::against(&server).assert_outcome(0, "completed");
    assert_eq!(server.finish().len(), 2);
    let server = answers_then(vec![], passing);
    FinishedRun::against(&server).assert_outcome(75, "provider_failed");
    assert_eq!(server.finish().len(), MAX_TRIES);
}

/// A run whose attempts all fail. A server that hangs needs a short timeout.
fn run_unanswered(url: &str, hangs: bool) -> FinishedRun {
    let ran = FinishedRun::of(folder_with(JOB), |program| {
        program
            .env("ANTHROPIC_BASE_URL", url)
            .env("ANTHROPIC_API_KEY", KEY)
            .env("LEGWORK_IDLE_TIMEOUT_MS", if hangs { "40" } else { "20000" })
    });
    ran.assert_outcome(75, "provider_failed")
        .ended
        .assert_stderr_contains("tried 6 times")
        .assert_stderr_contains("help:");
    assert_eq!(ran.retries().len(), MAX_TRIES - 1);
    assert_eq!(ran.result()["usage"]["input_tokens"], 0);
    ran
}

#[test]
fn failing_connections_are_tried_six_times() {
    let closed = ClosedPort::hold();
    let port = closed.address().port();
    run_unanswered(&format!("http://127.0.0.1:{port}"), false).ended.assert_stderr_contains("refused");
    for (manner, why) in [
        (PeerBehaviour::Reset, "the request to"),
        (PeerBehaviour::Close, "the request to"),
        (PeerBehaviour::Silent, "didn't answer within 120ms"),
    ] {
        let peer = TcpPeer::start(manner);
        run_unanswered(&peer.url(), matches!(manner, PeerBehaviour::Silent)).ended.assert_stderr_contains(why);
        peer.wait_for(MAX_TRIES);
    }
}

#[test]
fn endless_headers_are_tried_six_times() {
    let half = "HTTP/1.1 200 OK\r\ncontent-type: text/ev";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\n";
    let answers = [
        (half, false, "the request to"),
        (half, true, "didn't answer within 120ms"),
        (head, false, "was cut off"),
        (head, true, "sent nothing for 40ms"),
    ];
    in_parallel(answers, |(text, hangs, why)| {
        let answer = if hangs { Answer::raw(text).hang() } else { Answer::raw(text) };
        let server = Server::start(move |_: &Request| answer.clone());
        run_unanswered(&server.url(), hangs).ended.assert_stderr_contains(why);
        server.wait_for(MAX_TRIES);
        assert_eq!(server.finish().len(), MAX_TRIES, "{why}");
    });
}
