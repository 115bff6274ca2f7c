//! What bounds a request, and what is counted where nobody counts.

use super::super::FaultKind;
use super::super::scripted::End;
use super::*;

fn good(dialect: &dyn Dialect) -> Answer {
    streamed(dialect, &hello())
}

/// A conversation with one prompt and other bounds.
fn bounded(dialect: &dyn Dialect, url: &str, bounds: &[(&'static str, &str)]) -> Box<dyn Conversation> {
    let mut variables = dialect.variables(url);
    variables.push(("LEGWORK_RETRY_BASE_MS", "2".to_owned()));
    variables.extend(bounds.iter().map(|(name, bound)| (*name, (*bound).to_owned())));
    let mut conversation = connect(dialect.entry(), &variables).unwrap().open(setup(dialect)).unwrap();
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation
}

#[tokio::test]
async fn no_try_begins_after_the_deadline() {
    for dialect in dialects() {
        let body = dialect.error(429, "Slow down.").to_string();
        let busy = Answer::new("429 x", "content-type: application/json\r\nretry-after: 5\r\n", &body);
        let server = Server::start([busy, good(&*dialect)]).await;
        let ask = Ask { deadline: Instant::now() + Duration::from_secs(3), ..request() };
        let fault = prompted(&*dialect, &server.url).ask(ask, &Seen::default()).await.unwrap_err();
        assert_eq!((fault.kind, server.received().len()), (FaultKind::Failed, 1));
        assert!(fault.message.contains("the next try would be 5.0 s away"), "{}", fault.message);
    }
}

#[tokio::test]
async fn signs_of_life_do_not_keep_a_request_for_ever() {
    for dialect in dialects() {
        let sign = b": alive\n\n".as_slice();
        let signs = Answer::stream(std::iter::repeat_n(sign, 20_000)).cut(End::Hang);
        let server = Server::start([signs, good(&*dialect)]).await;
        let mut conversation = bounded(&*dialect, &server.url, &[("LEGWORK_REQUEST_TIMEOUT_MS", "300")]);
        let seen = Seen::default();
        conversation.ask(request(), &seen).await.unwrap();
        let retries = seen.retries.lock().unwrap();
        assert!(retries[0].why.ends_with("didn't finish its answer within 300ms"), "{}", retries[0].why);
    }
}

#[tokio::test]
async fn an_answer_is_bounded_in_length() {
    let sign = format!(":{}\n", "x".repeat((1 << 20) - 2));
    for dialect in dialects() {
        let said = Said(vec![Part::Text(vec!["some words "; 70])], Ending::Said);
        let parts: Vec<String> = dialect.events(&said).iter().map(|event| format!("{event}{sign}")).collect();
        let endless = Answer::stream(parts.iter().map(String::as_bytes)).cut(End::Hang);
        let server = Server::start([endless, good(&*dialect)]).await;
        let fault = prompted(&*dialect, &server.url).ask(request(), &Seen::default()).await.unwrap_err();
        assert!(fault.message.ends_with("answered with more than 67108864 bytes"), "{}", fault.message);
        assert_eq!(server.received().len(), 1, "the next one would be no other");
    }
}

#[tokio::test]
async fn what_nobody_counts_is_estimated() {
    let said = Said(vec![Part::Text(vec!["word "; 200])], Ending::Said);
    let uncounted = |body: &str| body.replace("\"usage\":", "\"x\":").replace("\"usageMetadata\":", "\"x\":");
    for dialect in dialects() {
        let stream = uncounted(&dialect.events(&said).concat());
        let whole = uncounted(&dialect.whole(&said).to_string());
        for answer in
            [Answer::stream([stream.as_bytes()]), Answer::new("200 OK", "content-type: application/json\r\n", &whole)]
        {
            let server = Server::start([answer]).await;
            let mut conversation = bounded(&*dialect, &server.url, &[("LEGWORK_IDLE_TIMEOUT_MS", "200")]);
            let prompt = (conversation.size() / 3) as u64;
            let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } =
                conversation.ask(request(), &Seen::default()).await.unwrap().usage;
            assert_eq!((input_tokens, cache_read_tokens, cache_write_tokens), (prompt, 0, 0), "{}", dialect.line());
            assert!((240..=260).contains(&output_tokens), "{output_tokens} of 1000 bytes: {}", dialect.line());
        }
    }
}

#[tokio::test]
async fn a_limit_for_max_tokens_that_a_refusal_names_holds_for_all_conversations() {
    for dialect in dialects() {
        let message = "max_tokens is too large: 8000. This model supports at most 4096 completion tokens.";
        let refusal = dialect.error(400, message).to_string();
        let refused = || Answer::new("400 Bad Request", "content-type: application/json\r\n", &refusal);
        let server = Server::start([refused(), good(&*dialect), good(&*dialect), good(&*dialect), refused()]).await;
        let mut variables = dialect.variables(&server.url);
        variables.push(("LEGWORK_RETRY_BASE_MS", "2".to_owned()));
        let provider = connect(dialect.entry(), &variables).unwrap();
        let asked = async |max_tokens| {
            let mut conversation = provider.open(setup(&*dialect)).unwrap();
            conversation.push(&Message::User(UserMessage::text("Hello")));
            conversation.ask(Ask { max_tokens, ..request() }, &Seen::default()).await
        };
        for max_tokens in [8000, 8000, 2000] {
            asked(max_tokens).await.unwrap();
        }
        // It says so again, and there is nothing left to try.
        assert_eq!(asked(8000).await.unwrap_err().kind, FaultKind::Rejected);
        let received = server.received();
        let asked_for: Vec<u64> = received.iter().map(|request| dialect.hear(&request.json()).max_tokens).collect();
        assert_eq!(asked_for, [8000, 4096, 4096, 2000, 4096], "{}", dialect.line());
    }
}
