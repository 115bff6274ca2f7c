use serde_json::json;

use super::*;
use crate::providers::ProviderErrorKind;
use crate::providers::test_server::{ConnectionEnd, ScriptedResponse};

const JSON: &str = "content-type: application/json\r\n";

fn error(kind: &str, message: &str) -> String {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_body" }).to_string()
}

fn good() -> ScriptedResponse {
    ScriptedResponse::stream([reply(&[text_block("Hi")], "end_turn").as_bytes()])
}

async fn fault_of(answers: Vec<ScriptedResponse>) -> (ProviderError, usize) {
    let server = ScriptedServer::start(answers).await;
    let fault = prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap_err();
    assert!(!format!("{fault:?}").contains(SECRET), "{fault:?}");
    (fault, server.received().len())
}

#[tokio::test]
async fn final_statuses_are_not_retried() {
    for (status, kind, words, hint) in [
        ("400 Bad Request", ProviderErrorKind::Rejected, "bad field", None),
        ("401 Unauthorized", ProviderErrorKind::Rejected, "bad field", Some("ANTHROPIC_API_KEY")),
        ("402 Payment Required", ProviderErrorKind::Rejected, "bad field", Some("billing")),
        ("403 Forbidden", ProviderErrorKind::Rejected, "bad field", Some("ANTHROPIC_API_KEY")),
        ("404 Not Found", ProviderErrorKind::Rejected, "bad field", Some("`claude-sonnet-4-5`")),
        ("413 Payload Too Large", ProviderErrorKind::ContextFull, "bad field", None),
        ("422 Unprocessable Entity", ProviderErrorKind::Rejected, "bad field", None),
    ] {
        let body = error("some_error", &format!("bad field\u{1b}[31m\nfor {SECRET}"));
        let (fault, requests) = fault_of(vec![ScriptedResponse::new(status, JSON, &body)]).await;
        assert_eq!((fault.kind, requests), (kind, 1), "{status}");
        let expected = format!("answered {status} (some_error): {words} [31m for [secret] [req_body]");
        assert!(fault.message.ends_with(&expected), "{}", fault.message);
        assert_eq!(fault.hint.is_some(), hint.is_some());
        assert!(fault.hint.unwrap_or_default().contains(hint.unwrap_or_default()));
    }
}

#[tokio::test]
async fn a_full_context_window_has_its_own_error_kind() {
    for message in [
        "prompt is too long: 209000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
        // Messages of other servers over this API.
        "Trying to keep the first 9 tokens when context the overflows. However, the model is loaded with context length of \
         only 8 tokens, which is not enough.",
        "The decoder prompt (length 9) is longer than the maximum model length of 8.",
    ] {
        let (fault, _) =
            fault_of(vec![ScriptedResponse::new("400 Bad Request", JSON, &error("invalid_request_error", message))])
                .await;
        assert_eq!(fault.kind, ProviderErrorKind::ContextFull);
    }
    for kind in ["invalid_request_error", "server_error"] {
        let event = events(&[start()]) + "event: error\ndata: " + &error(kind, "prompt is too long") + "\n\n";
        assert_eq!(
            fault_of(vec![ScriptedResponse::stream([event.as_bytes()])]).await.0.kind,
            ProviderErrorKind::ContextFull
        );
    }
}

#[tokio::test]
async fn temporary_statuses_are_retried() {
    for status in ["408 x", "409 x", "429 Too Many Requests", "500 x", "502 x", "503 x", "529 x"] {
        let answer = ScriptedResponse::new(status, JSON, &error("overloaded_error", "Overloaded"));
        let server = ScriptedServer::start([answer.clone(), answer, good()]).await;
        let seen = RecordingObserver::default();
        assert_eq!(prompted(&server.url).ask(request(), &seen).await.unwrap().text(), "Hi");
        let retries = seen.retries.lock().unwrap();
        assert_eq!(retries.iter().map(|retry| retry.attempt).collect::<Vec<_>>(), [1, 2]);
        assert!(retries[0].reason.contains("(overloaded_error): Overloaded"), "{}", retries[0].reason);
        assert_eq!(server.received()[0].body, server.received()[2].body);
    }
    let (fault, requests) =
        fault_of(vec![ScriptedResponse::new("503 x", JSON, &error("overloaded_error", "Overloaded"))]).await;
    assert_eq!((fault.kind, requests), (ProviderErrorKind::Failed, 6));
    assert!(fault.message.ends_with("(tried 6 times)"), "{}", fault.message);
}

#[tokio::test]
async fn the_servers_retry_headers_are_followed() {
    let asked = ScriptedResponse::new("429 x", "retry-after-ms: 30\r\n", "slow down");
    let server = ScriptedServer::start([asked, good()]).await;
    let seen = RecordingObserver::default();
    prompted(&server.url).ask(request(), &seen).await.unwrap();
    assert_eq!(seen.retries.lock().unwrap()[0].wait_ms, 30);

    let (fault, requests) = fault_of(vec![ScriptedResponse::new("429 x", "retry-after: 7200\r\n", "")]).await;
    assert_eq!((fault.kind, requests), (ProviderErrorKind::Failed, 1));
    let (_, requests) = fault_of(vec![ScriptedResponse::new("500 x", "x-should-retry: false\r\n", "")]).await;
    assert_eq!(requests, 1);
    let spent = json!({ "type": "error", "error": { "type": "rate_limit_error", "message": "spent",
        "details": { "error_code": "enforced_spend_limit_reached" } } });
    let (fault, requests) = fault_of(vec![ScriptedResponse::new("429 x", JSON, &spent.to_string())]).await;
    assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1));
    let server = ScriptedServer::start([ScriptedResponse::new("400 x", "x-should-retry: true\r\n", ""), good()]).await;
    prompted(&server.url).ask(request(), &RecordingObserver::default()).await.unwrap();
}

#[tokio::test]
async fn errors_in_the_stream_include_their_usage() {
    let event = |kind: &str| events(&[start()]) + "event: error\ndata: " + &error(kind, "sorry") + "\n\n";
    let overloaded = event("overloaded_error");
    let server = ScriptedServer::start([ScriptedResponse::stream([overloaded.as_bytes()]), good()]).await;
    let seen = RecordingObserver::default();
    prompted(&server.url).ask(request(), &seen).await.unwrap();
    let retry = seen.retries.lock().unwrap()[0].clone();
    assert_eq!((retry.usage.input_tokens, retry.usage.cache_write_tokens), (10, 5));
    let denied = event("permission_error");
    let (fault, requests) = fault_of(vec![ScriptedResponse::stream([denied.as_bytes()])]).await;
    assert_eq!((fault.kind, requests, fault.usage.input_tokens), (ProviderErrorKind::Rejected, 1, 10));
}

#[tokio::test]
async fn a_silent_server_is_timed_out() {
    let head = events(&[start()]);
    let hanging = ScriptedResponse::stream([head.as_bytes()]).cut(ConnectionEnd::Hang);
    let server = ScriptedServer::start([hanging, ScriptedResponse(vec![], ConnectionEnd::Hang), good()]).await;
    let seen = RecordingObserver::default();
    let mut conversation = with_idle_timeout(&server.url, setup(None), "150");
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation.ask(request(), &seen).await.unwrap();
    let retries = seen.retries.lock().unwrap();
    assert!(retries[0].reason.ends_with("sent nothing for 150ms"), "{}", retries[0].reason);
    assert!(retries[1].reason.ends_with("didn't answer within 450ms"), "{}", retries[1].reason);
}

#[tokio::test]
async fn keep_alive_events_do_not_extend_the_request_timeout() {
    let ping = b"event: ping\ndata: {\"type\":\"ping\"}\n\n".as_slice();
    let pings = ScriptedResponse::stream(std::iter::repeat_n(ping, 100_000)).cut(ConnectionEnd::Hang);
    let server = ScriptedServer::start([pings, good()]).await;
    let provider = try_connect(&[
        ("ANTHROPIC_API_KEY", SECRET),
        ("ANTHROPIC_BASE_URL", &server.url),
        ("LEGWORK_RETRY_BASE_MS", "2"),
        ("LEGWORK_REQUEST_TIMEOUT_MS", "300"),
    ]);
    let mut conversation = provider.unwrap().open(setup(None)).unwrap();
    conversation.push(&Message::User(UserMessage::text("Hello")));
    let seen = RecordingObserver::default();
    conversation.ask(request(), &seen).await.unwrap();
    assert!(seen.retries.lock().unwrap()[0].reason.ends_with("didn't finish its response within 300ms"));
}

#[tokio::test]
async fn a_refused_connection_is_reported_with_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let fault = prompted(&format!("http://{address}")).ask(request(), &RecordingObserver::default()).await.unwrap_err();
    assert_eq!(fault.kind, ProviderErrorKind::Failed);
    assert!(fault.message.starts_with(&format!("can't connect to http://{address}/v1")), "{}", fault.message);
    assert!(fault.message.contains("refused"), "{}", fault.message);
    assert!(fault.hint.unwrap().contains("ANTHROPIC_BASE_URL"));
}

#[tokio::test]
async fn responses_that_are_not_the_apis_are_shown() {
    let page = ScriptedResponse::new(
        "200 OK",
        "content-type: text/html\r\n",
        "<html><title>Log in\n here</title>secret</html>",
    );
    let (fault, requests) = fault_of(vec![page]).await;
    assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1));
    assert!(fault.message.contains("/v1/messages answered with text/html instead of a reply"), "{}", fault.message);
    assert!(fault.message.ends_with("a page titled \"Log in here\""), "{}", fault.message);
    let (fault, _) = fault_of(vec![ScriptedResponse::new("200 OK", JSON, r#"{"ok":true}"#)]).await;
    assert!(fault.message.ends_with(r#"(it is JSON, but not a message): {"ok":true}"#), "{}", fault.message);
    let (fault, _) =
        fault_of(vec![ScriptedResponse::new("502 Bad Gateway", "x-should-retry: false\r\n", &"x".repeat(100_000))])
            .await;
    assert!(fault.message.len() < 1000);
    let moved = ScriptedResponse::new("307 Temporary Redirect", "location: http://u:p@127.0.0.1:1/x?y\r\n", "");
    let (fault, requests) = fault_of(vec![moved]).await;
    assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1));
    assert!(fault.message.ends_with("redirects to http://127.0.0.1:1/x"), "{}", fault.message);
}

#[tokio::test]
async fn an_invalid_stream_is_a_failure() {
    for body in [
        "event: message_start\ndata: {\n\n".to_owned(),
        events(&[
            start(),
            json!({ "type": "content_block_delta", "index": 3, "delta": { "type": "text_delta", "text": "x" } }),
        ]),
        events(&[
            start(),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": 5 } }),
        ]),
        format!("data: {}\n\n", "x".repeat(9 << 20)),
    ] {
        let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()]), good()]).await;
        let seen = RecordingObserver::default();
        prompted(&server.url).ask(request(), &seen).await.unwrap();
        assert!(seen.retries.lock().unwrap()[0].reason.contains("sent an invalid stream"));
    }
}

#[test]
fn keys_are_checked_before_anything_else() {
    for (key, message) in [
        (None, "ANTHROPIC_API_KEY is not set"),
        (Some(""), "ANTHROPIC_API_KEY is set, but empty"),
        (Some("sk-1\n"), "ANTHROPIC_API_KEY ends with a line break"),
        (Some("sk 1"), "ANTHROPIC_API_KEY contains a space, a control character or a non-ASCII character"),
        (Some("sk-ä"), "ANTHROPIC_API_KEY contains a space, a control character or a non-ASCII character"),
    ] {
        let variables: Vec<(&str, &str)> = key.map(|key| ("ANTHROPIC_API_KEY", key)).into_iter().collect();
        let fault = try_connect(&variables).err().unwrap();
        assert_eq!((fault.kind, fault.message.as_str()), (ProviderErrorKind::Rejected, message));
        assert!(fault.hint.is_some());
    }
    let fault = try_connect(&[("ANTHROPIC_API_KEY", SECRET), ("LEGWORK_RETRY_BASE_MS", "soon")]).err().unwrap();
    assert!(fault.message.starts_with("LEGWORK_RETRY_BASE_MS isn't a number"));
}
