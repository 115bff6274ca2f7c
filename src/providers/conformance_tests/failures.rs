use futures_util::future::join_all;

use super::super::ProviderErrorKind;
use super::super::test_server::ConnectionEnd;
use super::*;

const JSON: &str = "content-type: application/json\r\n";

fn error(dialect: &dyn WireDialect, status: u16, headers: &str) -> ScriptedResponse {
    let body = dialect.error(status, &format!("sorry\u{1b}[31m\nfor {TEST_KEY}")).to_string();
    keep(dialect, What::Error, &body);
    ScriptedResponse::new(&format!("{status} Words"), &format!("{JSON}{headers}"), &body)
}

fn good(dialect: &dyn WireDialect) -> ScriptedResponse {
    streamed(dialect, &text_reply())
}

#[tokio::test]
async fn temporary_statuses_are_retried() {
    join_all(dialects().into_iter().map(async |dialect| {
        for status in [408, 409, 425, 429, 500, 502, 503, 529] {
            let answer = error(&*dialect, status, "");
            let (reply, seen, requests) = ask_once(&*dialect, vec![answer.clone(), answer, good(&*dialect)]).await;
            assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 3));
            let retries = seen.retries.lock().unwrap();
            assert_eq!(retries.iter().map(|retry| retry.attempt).collect::<Vec<_>>(), [1, 2]);
            assert!(retries[0].reason.contains("sorry [31m for [secret]"), "{}", retries[0].reason);
        }
        let (fault, _, requests) = ask_once(&*dialect, vec![error(&*dialect, 502, "")]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (ProviderErrorKind::Failed, 6));
        assert!(fault.message.ends_with("(tried 6 times)"), "{}", fault.message);
    }))
    .await;
}

#[tokio::test]
async fn a_rate_limit_is_bounded_by_time_not_by_attempts() {
    // At the same time, because they mostly wait.
    join_all(dialects().into_iter().map(async |dialect| {
        for (status, headers) in [(429, ""), (529, ""), (503, "retry-after-ms: 1\r\n")] {
            let refusals = vec![error(&*dialect, status, headers); 9];
            let (reply, seen, requests) = ask_once(&*dialect, [refusals, vec![good(&*dialect)]].concat()).await;
            assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 10));
            assert_eq!(seen.retries.lock().unwrap().last().unwrap().attempt, 9);
        }
        let endless = error(&*dialect, 429, "retry-after: 99999999999999999999999\r\n");
        let (fault, _, requests) = ask_once(&*dialect, vec![endless, good(&*dialect)]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (ProviderErrorKind::Failed, 1));
        assert!(fault.message.contains("the next try would start in more than a year"), "{}", fault.message);
    }))
    .await;
}

/// Responses that aren't the API's: an HTML page, unrelated JSON, an empty body, compressed JSON, a redirect, a
/// firewall's page, no content.
fn junk() -> Vec<ScriptedResponse> {
    let page = "<html><title>Just a moment...</title></html>";
    vec![
        ScriptedResponse::new("200 OK", "content-type: text/html\r\n", page),
        ScriptedResponse::new("200 OK", "content-type: text/event-stream\r\n", page),
        ScriptedResponse::new("200 OK", JSON, r#"{"ok":true}"#),
        ScriptedResponse::new("200 OK", JSON, r#"{"success": false}"#),
        ScriptedResponse::new("200 OK", JSON, "oops"),
        ScriptedResponse::new("200 OK", JSON, "null"),
        ScriptedResponse::new("200 OK", JSON, ""),
        ScriptedResponse::new("200 OK", "content-type: application/json\r\ncontent-encoding: gzip\r\n", "\u{1f}?"),
        ScriptedResponse::new("204 No Content", "", ""),
        ScriptedResponse::new("302 Found", "location: /login\r\n", ""),
        ScriptedResponse::new("403 Forbidden", "content-type: text/html\r\n", page),
        ScriptedResponse::new("404 Not Found", "content-type: text/html\r\n", page),
    ]
}

#[tokio::test]
async fn invalid_responses_are_retried_after_a_valid_one() {
    for dialect in dialects() {
        for junk in junk() {
            let server = ScriptedServer::start([good(&*dialect), junk.clone(), good(&*dialect), junk]).await;
            let mut conversation = prompted(&*dialect, &server.url);
            let seen = RecordingObserver::default();
            for reply in 0..2 {
                let reply =
                    conversation.ask(request(), &seen).await.unwrap_or_else(|fault| panic!("{reply}: {fault:?}"));
                assert_eq!(reply.text(), "Hello ä€😀");
            }
            assert_eq!((seen.retries.lock().unwrap().len(), server.received().len()), (1, 3));
            // The first request of another agent.
            let fault = prompted(&*dialect, &server.url).ask(request(), &seen).await.unwrap_err();
            assert_eq!((fault.kind, server.received().len()), (ProviderErrorKind::Failed, 3 + 6), "{}", fault.message);
            assert!(fault.message.ends_with("(tried 6 times)"), "{}", fault.message);
        }
    }
}

#[tokio::test]
async fn an_api_rejection_is_final_even_after_valid_responses() {
    for dialect in dialects() {
        for status in [400, 401, 403, 404] {
            let server = ScriptedServer::start([good(&*dialect), error(&*dialect, status, ""), good(&*dialect)]).await;
            let mut conversation = prompted(&*dialect, &server.url);
            conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
            let fault = conversation.ask(request(), &RecordingObserver::default()).await.unwrap_err();
            assert_eq!((fault.kind, server.received().len()), (ProviderErrorKind::Rejected, 2), "{status}");
        }
    }
}

#[tokio::test]
async fn final_statuses_are_not_retried() {
    for dialect in dialects() {
        let keys = dialect.spec().key_envs[0];
        for (status, hint) in
            [(400, None), (401, Some(keys)), (402, Some("billing")), (403, Some(keys)), (404, Some(dialect.model()[0]))]
        {
            let (fault, _, requests) = ask_once(&*dialect, vec![error(&*dialect, status, "")]).await;
            let fault = fault.unwrap_err();
            assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1), "{status}");
            assert!(!format!("{fault:?}").contains(TEST_KEY), "{fault:?}");
            assert!(fault.message.contains(&format!("answered {status}")), "{}", fault.message);
            assert!(fault.hint.unwrap_or_default().contains(hint.unwrap_or_default()));
        }
    }
}

#[tokio::test]
async fn the_servers_retry_headers_are_followed() {
    for dialect in dialects() {
        let asked_for = error(&*dialect, 429, "retry-after-ms: 30\r\n");
        let (_, seen, _) = ask_once(&*dialect, vec![asked_for, good(&*dialect)]).await;
        assert_eq!(seen.retries.lock().unwrap()[0].wait_ms, 30);
        for (headers, requests) in [("retry-after: 7200\r\n", 1), ("x-should-retry: false\r\n", 1)] {
            let (fault, _, count) = ask_once(&*dialect, vec![error(&*dialect, 503, headers), good(&*dialect)]).await;
            assert_eq!((fault.unwrap_err().kind, count), (ProviderErrorKind::Failed, requests));
        }
        let again = error(&*dialect, 400, "x-should-retry: true\r\n");
        assert_eq!(ask_once(&*dialect, vec![again, good(&*dialect)]).await.2, 2);
    }
}

#[tokio::test]
async fn a_full_context_window_has_its_own_error_kind() {
    for dialect in dialects() {
        for (status, body) in dialect.context_full_errors() {
            let answer = ScriptedResponse::new(&format!("{status} Words"), JSON, &body.to_string());
            let (fault, _, requests) = ask_once(&*dialect, vec![answer]).await;
            assert_eq!((fault.unwrap_err().kind, requests), (ProviderErrorKind::ContextFull, 1), "{body}");
        }
    }
}

#[tokio::test]
async fn errors_in_a_stream_are_classified_by_their_status() {
    for dialect in dialects() {
        let events = dialect.events(&text_reply());
        for cut in 0..dialect.events_until_complete(&events) {
            let part = events[..cut].concat();
            let failing = |status| part.clone() + &dialect.error_event(status, "sorry");
            let passing = ScriptedResponse::stream([failing(500).as_bytes()]);
            let (reply, seen, requests) = ask_once(&*dialect, vec![passing, good(&*dialect)]).await;
            assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 2));
            assert!(seen.retries.lock().unwrap()[0].reason.contains("sorry"));
            let last = ScriptedResponse::stream([failing(400).as_bytes()]);
            let (fault, _, requests) = ask_once(&*dialect, vec![last, good(&*dialect)]).await;
            assert_eq!((fault.unwrap_err().kind, requests), (ProviderErrorKind::Rejected, 1));
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_timed_out() {
    for dialect in dialects() {
        let events = dialect.events(&text_reply());
        let hanging = ScriptedResponse::stream([events[..1].concat().as_bytes()]).cut(ConnectionEnd::Hang);
        let server =
            ScriptedServer::start([hanging, ScriptedResponse(vec![], ConnectionEnd::Hang), good(&*dialect)]).await;
        let mut variables = dialect.variables(&server.url);
        variables.extend([("LEGWORK_RETRY_BASE_MS", "2".to_owned()), ("LEGWORK_IDLE_TIMEOUT_MS", "150".to_owned())]);
        let mut conversation = connect(dialect.spec(), &variables).unwrap().open(setup(&*dialect)).unwrap();
        conversation.push(&Message::User(UserMessage::text("Hello")));
        let seen = RecordingObserver::default();
        conversation.ask(request(), &seen).await.unwrap();
        let retries = seen.retries.lock().unwrap();
        assert!(retries[0].reason.ends_with("sent nothing for 150ms"), "{}", retries[0].reason);
        assert!(retries[1].reason.ends_with("didn't answer within 450ms"), "{}", retries[1].reason);
    }
}

#[tokio::test]
async fn responses_that_are_not_the_apis_are_shown() {
    for dialect in dialects() {
        let fault_of = async |answer: ScriptedResponse| {
            let (fault, _, requests) = ask_once(&*dialect, vec![answer]).await;
            let fault = fault.unwrap_err();
            assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1), "{fault:?}");
            fault
        };
        let page = ScriptedResponse::new(
            "200 OK",
            "content-type: text/html\r\n",
            "<html><title>Log in\n here</title>x</html>",
        );
        let fault = fault_of(page).await;
        assert!(fault.message.contains("answered with text/html instead of a reply"), "{}", fault.message);
        assert!(fault.message.ends_with("a page titled \"Log in here\""), "{}", fault.message);
        let fault = fault_of(ScriptedResponse::new("200 OK", JSON, r#"{"ok":true}"#)).await;
        assert!(fault.message.ends_with(r#"{"ok":true}"#), "{}", fault.message);
        for other in dialects().iter().filter(|other| other.request_line() != dialect.request_line()) {
            fault_of(ScriptedResponse::new("200 OK", JSON, &other.whole(&text_reply()).to_string())).await;
        }
        let moved = ScriptedResponse::new("307 Temporary Redirect", "location: http://u:p@127.0.0.1:1/x?y\r\n", "");
        let fault = fault_of(moved).await;
        assert!(fault.message.ends_with("redirects to http://127.0.0.1:1/x"), "{}", fault.message);
    }
}

#[tokio::test]
async fn an_error_with_status_200_is_an_error() {
    for dialect in dialects() {
        let body = dialect.error(401, "no such key").to_string();
        let (fault, _, requests) = ask_once(&*dialect, vec![ScriptedResponse::new("200 OK", JSON, &body)]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1));
        assert!(fault.message.contains("no such key"), "{}", fault.message);
    }
}

#[tokio::test]
async fn invalid_streams_fail_and_are_limited_in_size() {
    for dialect in dialects() {
        let events = dialect.events(&text_reply());
        let cut = format!("{}data: {{\"choices\": [{{\n\n", events[0]);
        let long = format!("data: {}\n\n", "x".repeat(9 << 20));
        for body in [cut, long] {
            let (reply, seen, _) =
                ask_once(&*dialect, vec![ScriptedResponse::stream([body.as_bytes()]), good(&*dialect)]).await;
            reply.unwrap();
            assert_eq!(seen.retries.lock().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_stream_without_progress_is_closed_and_not_retried() {
    let comment = format!(": {}\n\n", "x".repeat(1 << 20));
    for dialect in dialects() {
        let begun = dialect.events(&text_reply())[0].clone();
        let noise = format!("{comment}{}", dialect.unknown_event());
        let parts = std::iter::once(begun.as_bytes()).chain(std::iter::repeat_n(noise.as_bytes(), 20));
        let (fault, _, requests) = ask_once(&*dialect, vec![ScriptedResponse::stream(parts), good(&*dialect)]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (ProviderErrorKind::Failed, 1), "{}", fault.message);
        assert!(fault.message.ends_with("without any part of a reply"), "{}", fault.message);
        // The count of bytes without a reply starts again at each piece.
        let events = dialect.events(&ReplySpec(vec![ReplyPart::Text(vec!["some words "; 3])], ReplyEnding::EndTurn));
        let far = [&comment.repeat(6), &events[0], &events[1], &comment.repeat(6), &events[2..].concat()];
        let answer = ScriptedResponse::stream(far.map(String::as_bytes));
        assert_eq!(ask_once(&*dialect, vec![answer]).await.0.unwrap().text(), "some words some words some words ");
    }
}

#[tokio::test]
async fn json_labeled_as_a_stream_is_read_as_json() {
    let named = |body: &str| ScriptedResponse::new("200 OK", "content-type: text/event-stream\r\n", body);
    for dialect in dialects() {
        let error = dialect.error(400, "no such field").to_string();
        let (fault, _, requests) = ask_once(&*dialect, vec![named(&error), good(&*dialect)]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1), "{}", fault.message);
        assert!(fault.message.contains("no such field"), "{}", fault.message);
        let whole = named(&dialect.whole(&text_reply()).to_string());
        assert_eq!(ask_once(&*dialect, vec![whole]).await.0.unwrap().text(), "Hello ä€😀");
    }
}

#[tokio::test]
async fn a_refused_connection_is_reported_with_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for dialect in dialects() {
        let fault = prompted(&*dialect, &format!("http://{address}"))
            .ask(request(), &RecordingObserver::default())
            .await
            .unwrap_err();
        assert_eq!(fault.kind, ProviderErrorKind::Failed);
        assert!(fault.message.starts_with(&format!("can't connect to http://{address}/v1")), "{}", fault.message);
        assert!(fault.hint.unwrap().contains("_BASE_URL"));
    }
}

#[test]
fn keys_are_checked_before_anything_else() {
    for dialect in dialects() {
        let name = dialect.spec().key_envs[0];
        for (key, words) in [
            (None, "is not set"),
            (Some(""), "is set, but empty"),
            (Some("sk-1\n"), "ends with a line break"),
            (Some("sk ä"), "contains a space"),
        ] {
            let variables: Vec<(&str, String)> = key.map(|key| (name, key.to_owned())).into_iter().collect();
            let fault = connect(dialect.spec(), &variables).err().unwrap();
            assert_eq!(fault.kind, ProviderErrorKind::Rejected);
            assert!(fault.message.starts_with(name) && fault.message.contains(words), "{}", fault.message);
        }
    }
}
