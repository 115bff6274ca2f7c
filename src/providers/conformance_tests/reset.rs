use super::*;

/// A conversation that is rebuilt from the same messages is the same byte for byte. With one more message, it only
/// grows.
#[tokio::test]
async fn a_rebuilt_conversation_is_equal_and_its_ids_stay_reserved() {
    for dialect in dialects() {
        let server = ScriptedServer::start([streamed(&*dialect, &tool_call_reply())]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let bare = open(&*dialect, &server.url).prompt_bytes();
        let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let ids: Vec<String> = reply.tool_calls().map(|call| call.id.clone()).collect();
        let results = ids.iter().map(|id| result(id, "found", false)).collect();
        let messages = [
            Message::User(UserMessage::text("Hello")),
            Message::Assistant(reply),
            Message::User(UserMessage::results(results)),
        ];
        messages[1..].iter().for_each(|message| conversation.push(message));
        let size = conversation.prompt_bytes();
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        conversation.clear();
        assert_eq!(conversation.prompt_bytes(), bare, "{}", dialect.request_line());
        messages.iter().for_each(|message| conversation.push(message));
        assert_eq!(conversation.prompt_bytes(), size, "{}", dialect.request_line());
        let again = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        assert!(again.tool_calls().all(|call| !ids.contains(&call.id)), "{:?}", again.tool_calls().collect::<Vec<_>>());
        conversation.push(&Message::User(UserMessage::text("Sum up.")));
        let last = ReplyRequest { tools_allowed: false, ..request() };
        conversation.ask(last, &RecordingObserver::default()).await.unwrap();
        let received = server.received();
        assert_eq!(str::from_utf8(&received[1].body), str::from_utf8(&received[2].body));
        let [before, after] = [2, 3].map(|at| dialect.conversation_json(str::from_utf8(&received[at].body).unwrap()));
        // The last message itself can continue.
        let before = before.trim_end_matches(['"', '}', ']']);
        assert!(after.starts_with(before), "{after}\nbegins otherwise than\n{before}");
        let heard = dialect.parse_request(&received[3].json());
        assert_eq!(heard.turns.last(), Some(&RequestTurn::User("Sum up.".to_owned())));
        assert!(!heard.may_call && heard.tools.len() == 2);
        // The same with another first message.
        conversation.clear();
        conversation.push(&Message::User(UserMessage::text("Hello again")));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let heard = dialect.parse_request(&server.received()[4].json());
        assert_eq!(heard.turns, [RequestTurn::User("Hello again".to_owned())]);
        assert_eq!((heard.system.as_str(), heard.tools.len()), ("Be brief.", 2));
    }
}
