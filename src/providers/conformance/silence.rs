use super::super::FaultKind;
use super::*;
use crate::message::Stop;

fn nothing(dialect: &dyn Dialect) -> Answer {
    streamed_oddly(dialect, &Said(vec![], Ending::Said))
}

#[tokio::test]
async fn a_first_reply_with_nothing_in_it_is_asked_for_again_and_then_a_failure() {
    for dialect in dialects() {
        let (reply, seen, requests) =
            asked(&*dialect, vec![nothing(&*dialect), nothing(&*dialect), streamed(&*dialect, &hello())]).await;
        assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 3));
        let retries = seen.retries.lock().unwrap().clone();
        assert!(retries.iter().all(|retry| retry.why.ends_with("sent a reply with nothing in it")), "{retries:?}");
        assert!(retries.iter().all(|retry| retry.spent.prompt() > 0), "it was paid all the same: {retries:?}");
        let (fault, _, requests) = asked(&*dialect, vec![nothing(&*dialect)]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (FaultKind::Failed, 3));
        assert!(fault.message.ends_with("sent a reply with nothing in it (tried 3 times)"), "{}", fault.message);
        assert!(fault.hint.is_some() && fault.spent.prompt() > 0);
    }
}

/// Others see what was done, or that nothing was.
#[tokio::test]
async fn a_first_reply_with_nothing_in_it_is_an_end_where_it_need_not_say_anything() {
    for dialect in dialects() {
        let ask = Ask { needs_words: false, ..request() };
        let (reply, seen, requests) = asked_for(&*dialect, ask, vec![nothing(&*dialect)]).await;
        assert!(reply.unwrap().is_silent());
        let tries = if dialect.entry().name == "gemini" { 3 } else { 1 };
        assert_eq!((requests, seen.retries.lock().unwrap().len()), (tries, tries - 1));
    }
}

/// A model that has done its work may have nothing to add.
#[tokio::test]
async fn nothing_behind_the_answers_to_calls_is_an_end() {
    for dialect in dialects() {
        let server = Server::start([streamed(&*dialect, &calling()), nothing(&*dialect)]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let seen = Seen::default();
        let reply = conversation.ask(request(), &seen).await.unwrap();
        let results = reply.calls().map(|call| result(&call.id, "found", false)).collect();
        conversation.push(&Message::Assistant(reply));
        conversation.push(&Message::User(UserMessage { results, text: None }));
        let last = conversation.ask(request(), &seen).await.unwrap();
        assert!(last.is_silent() && last.stop == Stop::EndTurn, "{last:?}");
        // Gemini's API says nothing at times where there is more to say.
        let tries = if dialect.entry().name == "gemini" { 3 } else { 1 };
        assert_eq!(server.received().len(), 1 + tries, "{}", dialect.entry().name);
        assert_eq!(seen.retries.lock().unwrap().len(), tries - 1);
    }
}

/// Whoever is asked for a last word, or a summary, knows what to do without one.
#[tokio::test]
async fn nothing_where_no_tool_may_be_called_is_taken_as_it_is() {
    for dialect in dialects() {
        let server = Server::start([nothing(&*dialect)]).await;
        let reply = prompted(&*dialect, &server.url).ask(last_request(), &Seen::default()).await.unwrap();
        assert!(reply.is_silent() && server.received().len() == 1);
    }
}
