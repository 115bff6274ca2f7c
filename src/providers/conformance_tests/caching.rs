//! Requests must share their prefix byte for byte, because prompt caches match prefixes.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::*;
use crate::providers::test_server::ReceivedRequest;

const ENDS: [char; 3] = ['"', '}', ']'];
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// The members of a request as written, without the conversation; and the conversation, without cache marks and without
/// the closing brackets at its end, because the last message can continue.
fn parts(received: &ReceivedRequest) -> (IndexMap<String, String>, String) {
    let all: IndexMap<String, Box<RawValue>> = serde_json::from_slice(&received.body).unwrap();
    let mut all: IndexMap<String, String> =
        all.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect();
    let said = ["messages", "input", "contents"].iter().find_map(|name| all.shift_remove(*name)).unwrap();
    (all, said.replace(MARK, "").trim_end_matches(ENDS).to_owned())
}

fn asking(dialect: &dyn WireDialect, url: &str) -> Box<dyn Conversation> {
    let mut setup = setup(dialect);
    (setup.model.temperature, setup.model.stop) = (Some(0.5), vec!["END".to_owned()]);
    let mut variables = dialect.variables(url);
    variables.push(("LEGWORK_RETRY_BASE_MS", "2".to_owned()));
    connect(dialect.spec(), &variables).unwrap().open(setup).unwrap()
}

/// The message after a round trip through the journal's format.
fn recorded(message: &Message) -> Message {
    match message {
        Message::Assistant(reply) => {
            Message::Assistant(serde_json::from_str(&serde_json::to_string(reply).unwrap()).unwrap())
        }
        user @ Message::User(_) => user.clone(),
    }
}

/// Runs a conversation with thoughts, parallel calls, a failed call, a failed attempt, a discarded reply, notes, and a
/// final request without tool calls. Returns the pushed messages.
async fn conversation(dialect: &dyn WireDialect, server: &ScriptedServer) -> Vec<Message> {
    let mut conversation = asking(dialect, &server.url);
    let mut pushed = Vec::new();
    let mut push = |conversation: &mut Box<dyn Conversation>, message: Message| {
        conversation.push(&message);
        pushed.push(message);
    };
    push(&mut conversation, Message::User(UserMessage::text("Hello \"you\"]")));
    for turn in 0..4 {
        let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        if turn == 2 {
            // The reply is discarded, and the note about it is merged into the previous user message.
            push(&mut conversation, Message::User(UserMessage::text("That was cut. Once more.")));
            continue;
        }
        let results = reply.tool_calls().map(|call| result(&call.id, "found\n", turn == 1)).collect();
        push(&mut conversation, Message::Assistant(reply));
        let text = (turn == 1).then(|| "A remark.".to_owned());
        push(&mut conversation, Message::User(UserMessage { results, text, ..UserMessage::default() }));
    }
    let last = ReplyRequest { tools_allowed: false, ..request() };
    conversation.ask(last, &RecordingObserver::default()).await.unwrap();
    pushed
}

fn answers(dialect: &dyn WireDialect) -> [ScriptedResponse; 3] {
    let busy = ScriptedResponse::new(
        "529 Busy",
        "content-type: application/json\r\n",
        &dialect.error(529, "Busy.").to_string(),
    );
    [streamed(dialect, &tool_call_reply()), busy, streamed(dialect, &tool_call_reply())]
}

#[tokio::test]
async fn each_request_extends_the_bytes_of_the_previous_one() {
    for dialect in dialects() {
        let server = ScriptedServer::start(answers(&*dialect)).await;
        conversation(&*dialect, &server).await;
        let all = server.received();
        assert_eq!(all.len(), 6);
        assert_eq!(all[1].body, all[2].body, "a request is tried again as it was");
        let parts: Vec<_> = all.iter().map(parts).collect();
        for pair in parts[..5].windows(2) {
            let [(options, said), (next_options, next)] = pair else { unreachable!() };
            assert_eq!(options, next_options, "system prompt, tools and options stay, in their order");
            assert!(next.starts_with(&**said), "{next}\nbegins otherwise than\n{said}");
        }
        let [(options, said), (last_options, last)] = &parts[4..] else { unreachable!() };
        assert!(last.len() > said.len() && last.starts_with(&**said));
        // The final request differs only in the option that forbids tool calls.
        let other: Vec<&String> =
            last_options.keys().filter(|name| options.get(*name) != last_options.get(*name)).collect();
        assert!(other.len() == 1 && other[0].to_lowercase().contains("tool"), "{other:?}");
        assert!(options.keys().all(|name| last_options.contains_key(name)));
    }
}

#[tokio::test]
async fn cache_marks_are_limited_to_four() {
    for dialect in dialects() {
        let server = ScriptedServer::start(answers(&*dialect)).await;
        conversation(&*dialect, &server).await;
        for received in server.received() {
            let body = String::from_utf8(received.body).unwrap();
            assert_eq!(body.matches("cache_control").count(), body.matches(MARK).count());
            assert!(body.matches(MARK).count() <= 4, "the API takes at most four: {body}");
        }
    }
}

#[tokio::test]
async fn a_conversation_from_the_journal_has_the_same_bytes() {
    for dialect in dialects() {
        let server = ScriptedServer::start(answers(&*dialect)).await;
        let pushed = conversation(&*dialect, &server).await;
        let mut resumed = asking(&*dialect, &server.url);
        for message in &pushed {
            resumed.push(&recorded(message));
        }
        resumed.ask(ReplyRequest { tools_allowed: false, ..request() }, &RecordingObserver::default()).await.unwrap();
        // Another run of the same job starts with the same bytes.
        let mut another = asking(&*dialect, &server.url);
        another.push(&pushed[0]);
        another.ask(request(), &RecordingObserver::default()).await.unwrap();
        let all = server.received();
        assert_eq!(all.len(), 8);
        let text = |at: usize| str::from_utf8(&all[at].body).unwrap();
        assert_eq!(text(6), text(5));
        assert_eq!(text(7), text(0));
    }
}
