use super::super::ProviderErrorKind;
use super::*;
use crate::message::StopReason;

fn nothing(dialect: &dyn WireDialect) -> ScriptedResponse {
    streamed_oddly(dialect, &ReplySpec(vec![], ReplyEnding::EndTurn))
}

#[tokio::test]
async fn an_empty_first_reply_is_retried_and_then_a_failure() {
    for dialect in dialects() {
        let (reply, seen, requests) =
            ask_once(&*dialect, vec![nothing(&*dialect), nothing(&*dialect), streamed(&*dialect, &text_reply())]).await;
        assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 3));
        let retries = seen.retries.lock().unwrap().clone();
        assert!(retries.iter().all(|retry| retry.reason.ends_with("sent an empty reply")), "{retries:?}");
        assert!(retries.iter().all(|retry| retry.usage.prompt() > 0), "it was paid anyway: {retries:?}");
        let (fault, _, requests) = ask_once(&*dialect, vec![nothing(&*dialect)]).await;
        let fault = fault.unwrap_err();
        assert_eq!((fault.kind, requests), (ProviderErrorKind::Failed, 3));
        assert!(fault.message.ends_with("sent an empty reply (tried 3 times)"), "{}", fault.message);
        assert!(fault.hint.is_some() && fault.usage.prompt() > 0);
    }
}

/// Callers that don't require content judge by what was done.
#[tokio::test]
async fn an_empty_first_reply_is_accepted_if_content_is_not_required() {
    for dialect in dialects() {
        let ask = ReplyRequest { requires_content: false, ..request() };
        let (reply, seen, requests) = ask_once_with(&*dialect, ask, vec![nothing(&*dialect)]).await;
        assert!(reply.unwrap().is_empty_reply());
        let tries = if dialect.spec().name == "gemini" { 3 } else { 1 };
        assert_eq!((requests, seen.retries.lock().unwrap().len()), (tries, tries - 1));
    }
}

/// A model that has done its work may have nothing to add.
#[tokio::test]
async fn an_empty_reply_after_tool_results_ends_the_turn() {
    for dialect in dialects() {
        let server = ScriptedServer::start([streamed(&*dialect, &tool_call_reply()), nothing(&*dialect)]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let seen = RecordingObserver::default();
        let reply = conversation.ask(request(), &seen).await.unwrap();
        let results = reply.tool_calls().map(|call| result(&call.id, "found", false)).collect();
        conversation.push(&Message::Assistant(reply));
        conversation.push(&Message::User(UserMessage::results(results)));
        let last = conversation.ask(request(), &seen).await.unwrap();
        assert!(last.is_empty_reply() && last.stop == StopReason::EndTurn, "{last:?}");
        // Gemini's API sometimes sends an empty reply although the model has more to say.
        let tries = if dialect.spec().name == "gemini" { 3 } else { 1 };
        assert_eq!(server.received().len(), 1 + tries, "{}", dialect.spec().name);
        assert_eq!(seen.retries.lock().unwrap().len(), tries - 1);
    }
}

/// The callers that request a final message or a summary handle an empty one.
#[tokio::test]
async fn an_empty_reply_is_accepted_if_tools_are_not_allowed() {
    for dialect in dialects() {
        let server = ScriptedServer::start([nothing(&*dialect)]).await;
        let reply = prompted(&*dialect, &server.url).ask(last_request(), &RecordingObserver::default()).await.unwrap();
        assert!(reply.is_empty_reply() && server.received().len() == 1);
    }
}
