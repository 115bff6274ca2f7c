//! Limits of a request, and usage estimates for servers that report no counts.

use super::super::ProviderErrorKind;
use super::super::test_server::ConnectionEnd;
use super::*;

fn good(dialect: &dyn WireDialect) -> ScriptedResponse {
    streamed(dialect, &text_reply())
}

/// A conversation with one prompt and these limits.
fn bounded(dialect: &dyn WireDialect, url: &str, bounds: &[(&'static str, &str)]) -> Box<dyn Conversation> {
    let mut variables = dialect.variables(url);
    variables.push(("LEGWORK_RETRY_BASE_MS", "2".to_owned()));
    variables.extend(bounds.iter().map(|(name, bound)| (*name, (*bound).to_owned())));
    let mut conversation = connect(dialect.spec(), &variables).unwrap().open(setup(dialect)).unwrap();
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation
}

#[tokio::test]
async fn no_attempt_starts_after_the_deadline() {
    for dialect in dialects() {
        let body = dialect.error(429, "Slow down.").to_string();
        let busy = ScriptedResponse::new("429 x", "content-type: application/json\r\nretry-after: 5\r\n", &body);
        let server = ScriptedServer::start([busy, good(&*dialect)]).await;
        let ask = ReplyRequest { deadline: RunningInstant::now() + Duration::from_secs(3), ..request() };
        let fault = prompted(&*dialect, &server.url).ask(ask, &RecordingObserver::default()).await.unwrap_err();
        assert_eq!((fault.kind, server.received().len()), (ProviderErrorKind::Failed, 1));
        assert!(fault.message.contains("the next try would start in 5.0 s"), "{}", fault.message);
    }
}

#[tokio::test]
async fn keep_alive_events_do_not_extend_the_request_timeout() {
    for dialect in dialects() {
        let sign = b": alive\n\n".as_slice();
        let signs = ScriptedResponse::stream(std::iter::repeat_n(sign, 20_000)).cut(ConnectionEnd::Hang);
        let server = ScriptedServer::start([signs, good(&*dialect)]).await;
        let mut conversation = bounded(&*dialect, &server.url, &[("LEGWORK_REQUEST_TIMEOUT_MS", "300")]);
        let seen = RecordingObserver::default();
        conversation.ask(request(), &seen).await.unwrap();
        let retries = seen.retries.lock().unwrap();
        assert!(retries[0].reason.ends_with("didn't finish its response within 300ms"), "{}", retries[0].reason);
    }
}

#[tokio::test]
async fn a_response_is_limited_in_length() {
    let sign = format!(":{}\n", "x".repeat((1 << 20) - 2));
    for dialect in dialects() {
        let said = ReplySpec(vec![ReplyPart::Text(vec!["some words "; 70])], ReplyEnding::EndTurn);
        let parts: Vec<String> = dialect.events(&said).iter().map(|event| format!("{event}{sign}")).collect();
        let endless = ScriptedResponse::stream(parts.iter().map(String::as_bytes)).cut(ConnectionEnd::Hang);
        let server = ScriptedServer::start([endless, good(&*dialect)]).await;
        let fault = prompted(&*dialect, &server.url).ask(request(), &RecordingObserver::default()).await.unwrap_err();
        assert!(fault.message.ends_with("answered with more than 67108864 bytes"), "{}", fault.message);
        assert_eq!(server.received().len(), 1, "the next one would be no other");
    }
}

#[tokio::test]
async fn missing_usage_is_estimated() {
    let said = ReplySpec(vec![ReplyPart::Text(vec!["word "; 200])], ReplyEnding::EndTurn);
    let uncounted = |body: &str| body.replace("\"usage\":", "\"x\":").replace("\"usageMetadata\":", "\"x\":");
    for dialect in dialects() {
        let stream = uncounted(&dialect.events(&said).concat());
        let whole = uncounted(&dialect.whole(&said).to_string());
        for answer in [
            ScriptedResponse::stream([stream.as_bytes()]),
            ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &whole),
        ] {
            let server = ScriptedServer::start([answer]).await;
            let mut conversation = bounded(&*dialect, &server.url, &[("LEGWORK_IDLE_TIMEOUT_MS", "200")]);
            let prompt = (conversation.prompt_bytes() / 3) as u64;
            let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, .. } =
                conversation.ask(request(), &RecordingObserver::default()).await.unwrap().usage;
            assert_eq!(
                (input_tokens, cache_read_tokens, cache_write_tokens),
                (prompt, 0, 0),
                "{}",
                dialect.request_line()
            );
            assert!((240..=260).contains(&output_tokens), "{output_tokens} of 1000 bytes: {}", dialect.request_line());
        }
    }
}

#[tokio::test]
async fn a_max_tokens_limit_from_an_error_applies_to_all_conversations() {
    for dialect in dialects() {
        let message = "max_tokens is too large: 8000. This model supports at most 4096 completion tokens.";
        let refusal = dialect.error(400, message).to_string();
        let refused = || ScriptedResponse::new("400 Bad Request", "content-type: application/json\r\n", &refusal);
        let server =
            ScriptedServer::start([refused(), good(&*dialect), good(&*dialect), good(&*dialect), refused()]).await;
        let mut variables = dialect.variables(&server.url);
        variables.push(("LEGWORK_RETRY_BASE_MS", "2".to_owned()));
        let provider = connect(dialect.spec(), &variables).unwrap();
        let asked = async |max_tokens| {
            let mut conversation = provider.open(setup(&*dialect)).unwrap();
            conversation.push(&Message::User(UserMessage::text("Hello")));
            conversation.ask(ReplyRequest { max_tokens, ..request() }, &RecordingObserver::default()).await
        };
        for max_tokens in [8000, 8000, 2000] {
            asked(max_tokens).await.unwrap();
        }
        // The error comes again although the limit was applied, so it is final.
        assert_eq!(asked(8000).await.unwrap_err().kind, ProviderErrorKind::Rejected);
        let received = server.received();
        let asked_for: Vec<u64> =
            received.iter().map(|request| dialect.parse_request(&request.json()).max_tokens).collect();
        assert_eq!(asked_for, [8000, 4096, 4096, 2000, 4096], "{}", dialect.request_line());
    }
}
