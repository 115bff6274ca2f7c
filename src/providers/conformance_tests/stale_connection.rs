//! Connections that the server has closed after a response.

use std::time::Duration;

use super::{RecordingObserver, connect, dialects, prompted, request, setup, streamed, text_reply};
use crate::message::{Message, UserMessage};
use crate::providers::test_server::{ConnectionEnd, ScriptedResponse, ScriptedServer};

/// The response, after which the connection is closed when the next request arrives, without reading it.
fn closing_on_next(answer: ScriptedResponse) -> ScriptedResponse {
    ScriptedResponse(answer.0, ConnectionEnd::CloseOnNext)
}

#[tokio::test]
async fn a_request_on_a_closed_connection_is_resent_and_is_not_a_failed_attempt() {
    for dialect in dialects() {
        let server = ScriptedServer::start([closing_on_next(streamed(&*dialect, &text_reply()))]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let seen = RecordingObserver::default();
        for _ in 0..3 {
            let reply = conversation.ask(request(), &seen).await.unwrap();
            conversation.push(&Message::Assistant(reply));
            conversation.push(&Message::User(UserMessage::text("and now?")));
        }
        assert!(seen.retries.lock().unwrap().is_empty());
        let connections: Vec<usize> = server.received().iter().map(|request| request.connection).collect();
        assert_eq!(connections, [0, 1, 2], "each was read once, by a connection of its own");
    }
}

#[tokio::test]
async fn a_connection_that_ends_later_is_a_failed_attempt() {
    for dialect in dialects() {
        let late = ScriptedResponse(vec![], ConnectionEnd::CloseAfter(Duration::from_millis(600)));
        let good = || streamed(&*dialect, &text_reply());
        let server = ScriptedServer::start([good(), late, good()]).await;
        let mut variables = dialect.variables(&server.url);
        // A request on a stale connection can take a fifth of the connect timeout to fail.
        let bounds = [("LEGWORK_RETRY_BASE_MS", "2"), ("LEGWORK_CONNECT_TIMEOUT_MS", "2500")];
        variables.extend(bounds.map(|(name, number)| (name, number.to_owned())));
        let mut conversation = connect(dialect.spec(), &variables).unwrap().open(setup(&*dialect)).unwrap();
        conversation.push(&Message::User(UserMessage::text("Hello")));
        let seen = RecordingObserver::default();
        for _ in 0..2 {
            conversation.ask(request(), &seen).await.unwrap();
        }
        let retries = seen.retries.lock().unwrap();
        assert!(retries.len() == 1 && retries[0].reason.contains("the request to"), "{retries:?}");
        assert_eq!(server.received().len(), 3);
    }
}

#[tokio::test]
async fn a_server_that_keeps_closing_connections_is_a_failure() {
    for dialect in dialects() {
        let nothing = ScriptedResponse(vec![], ConnectionEnd::Close);
        let server = ScriptedServer::start([
            streamed(&*dialect, &text_reply()),
            nothing.clone(),
            nothing,
            streamed(&*dialect, &text_reply()),
        ])
        .await;
        let mut conversation = prompted(&*dialect, &server.url);
        let seen = RecordingObserver::default();
        conversation.ask(request(), &seen).await.unwrap();
        conversation.ask(request(), &seen).await.unwrap();
        assert_eq!(seen.retries.lock().unwrap().len(), 1, "the first time may be the connection's fault");
        assert_eq!(server.received().len(), 4);
    }
}
