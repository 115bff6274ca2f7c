use super::*;

#[tokio::test]
async fn a_request_contains_what_was_asked() {
    for dialect in dialects() {
        let server = ScriptedServer::start([streamed(&*dialect, &text_reply())]).await;
        prompted(&*dialect, &server.url).ask(request(), &RecordingObserver::default()).await.unwrap();
        let received = &server.received()[0];
        assert_eq!(received.line, dialect.request_line());
        let header = |name: &str| received.headers.get(name).map(String::as_str);
        assert_eq!(header("content-type"), Some("application/json"));
        assert_eq!(header("user-agent"), Some("legwork/test"));
        assert!(received.headers.values().any(|value| value.contains(TEST_KEY)), "the key goes along");
        let heard = ParsedRequest {
            model: dialect.model()[0].to_owned(),
            system: "Be brief.".to_owned(),
            tools: vec!["glob".to_owned(), "grep".to_owned()],
            may_call: true,
            max_tokens: 8000,
            streams: true,
            turns: vec![RequestTurn::User("Hello".to_owned())],
        };
        assert_eq!(dialect.parse_request(&received.json()), heard);
    }
}

#[tokio::test]
async fn results_of_parallel_calls_are_sent_in_order_with_failures_marked() {
    for dialect in dialects() {
        let server =
            ScriptedServer::start([streamed(&*dialect, &tool_call_reply()), streamed(&*dialect, &text_reply())]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        // Serialized and parsed as in the journal, like on resume.
        let recorded = serde_json::to_string(&reply).unwrap();
        conversation.push(&Message::Assistant(serde_json::from_str(&recorded).unwrap()));
        let results = vec![result("toolu_1", "Cargo.toml \"x\"\n", false), result("toolu_2", "no such file", true)];
        conversation.push(&Message::User(UserMessage {
            results,
            text: Some("Go on.".to_owned()),
            ..UserMessage::default()
        }));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let received = server.received();
        assert_eq!((received[0].connection, received[1].connection), (0, 0), "one connection serves both");
        let words = |text: &str| text.to_owned();
        let pattern = |pattern: &str| json!({ "pattern": pattern });
        assert_eq!(
            dialect.parse_request(&received[1].json()).turns,
            [
                RequestTurn::User(words("Hello")),
                RequestTurn::Thought(words("Let me see — é😀")),
                RequestTurn::Text(words("I look.")),
                RequestTurn::Call(words("toolu_1"), words("glob"), pattern("**/*.toml")),
                RequestTurn::Call(words("toolu_2"), words("grep"), pattern("é\n")),
                RequestTurn::ToolResult(words("toolu_1"), words("Cargo.toml \"x\"\n"), false),
                RequestTurn::ToolResult(words("toolu_2"), words("no such file"), true),
                RequestTurn::User(words("Go on.")),
            ]
        );
    }
}

#[tokio::test]
async fn tools_stay_listed_if_calls_are_not_allowed() {
    for dialect in dialects() {
        let server = ScriptedServer::start([streamed(&*dialect, &text_reply())]).await;
        let last = ReplyRequest { tools_allowed: false, max_tokens: 300, ..request() };
        prompted(&*dialect, &server.url).ask(last.clone(), &RecordingObserver::default()).await.unwrap();
        let heard = dialect.parse_request(&server.received()[0].json());
        assert_eq!((heard.tools.len(), heard.may_call, heard.max_tokens), (2, false, 300));
        // An agent without tools isn't forbidden to call them.
        let bare = ConversationConfig { system: " ".to_owned(), tools: Vec::new(), ..setup(&*dialect) };
        let mut conversation = connect(dialect.spec(), &dialect.variables(&server.url)).unwrap().open(bare).unwrap();
        conversation.push(&Message::User(UserMessage::text("Hello")));
        conversation.ask(last, &RecordingObserver::default()).await.unwrap();
        let body = server.received()[1].json();
        let heard = dialect.parse_request(&body);
        assert_eq!((heard.system.as_str(), heard.tools.len()), ("", 0));
        assert!(!body.to_string().contains("tool"), "{body}");
    }
}

#[tokio::test]
async fn each_request_starts_with_the_previous_one() {
    for dialect in dialects() {
        let server = ScriptedServer::start([streamed(&*dialect, &tool_call_reply())]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let mut sizes = vec![conversation.prompt_bytes()];
        for turn in 0..6 {
            let ask = ReplyRequest { tools_allowed: turn < 5, max_tokens: 8000 - turn, ..request() };
            let reply = conversation.ask(ask, &RecordingObserver::default()).await.unwrap();
            let results = reply.tool_calls().map(|call| result(&call.id, "found", turn == 2)).collect();
            conversation.push(&Message::Assistant(reply));
            let text = (turn == 3).then(|| "A remark.".to_owned());
            conversation.push(&Message::User(UserMessage { results, text, ..UserMessage::default() }));
            sizes.push(conversation.prompt_bytes());
        }
        assert!(sizes.is_sorted() && sizes[0] > 0);
        let bodies: Vec<String> = server
            .received()
            .into_iter()
            .map(|received| dialect.conversation_json(str::from_utf8(&received.body).unwrap()))
            .collect();
        for (before, after) in bodies.iter().zip(&bodies[1..]) {
            assert!(before.len() > 50 && after.len() > before.len() + 50);
            assert!(after.starts_with(&**before), "{after}\nbegins otherwise than\n{before}");
        }
    }
}

#[tokio::test]
async fn no_empty_text_and_no_invalid_name_is_sent() {
    for dialect in dialects() {
        let blank = ReplyPart::Text(vec![" \n"]);
        let strange = ReplyPart::Call("a", "functions.bash x", vec!["{}"]);
        let answers = [
            streamed(&*dialect, &ReplySpec(vec![blank.clone(), strange], ReplyEnding::ToolUse)),
            streamed(&*dialect, &ReplySpec(vec![blank], ReplyEnding::EndTurn)),
            streamed(&*dialect, &text_reply()),
        ];
        let server = ScriptedServer::start(answers).await;
        let mut conversation = prompted(&*dialect, &server.url);
        for results in [vec![result("a", "", true)], Vec::new()] {
            let reply = conversation.ask(last_request(), &RecordingObserver::default()).await.unwrap();
            conversation.push(&Message::Assistant(reply));
            conversation.push(&Message::User(UserMessage {
                results,
                text: Some("\n".to_owned()),
                ..UserMessage::default()
            }));
        }
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let words = |text: &str| text.to_owned();
        let mut turns = dialect.parse_request(&server.received()[2].json()).turns;
        // APIs differ in how a model's empty text is sent back: unchanged, as a placeholder, or not at all.
        turns.retain(|turn| !matches!(turn, RequestTurn::Text(text) if ["", "(nothing)"].contains(&text.trim())));
        assert_eq!(
            turns,
            [
                RequestTurn::User(words("Hello")),
                RequestTurn::Call(words("a"), words("functions_bash_x"), json!({})),
                RequestTurn::ToolResult(words("a"), words("(nothing)"), true),
                RequestTurn::User(words("(nothing)")),
            ]
        );
    }
}

/// Some servers store data in ids or show them to the model.
#[tokio::test]
async fn ids_of_any_form_are_sent_back_unchanged() {
    let ids = ["functions.glob:0", "call_2e__thought__AY89+a/18==", "é 1", "x".repeat(3_000).leak()];
    for dialect in dialects() {
        let calls = ids.map(|id| ReplyPart::Call(id, "glob", vec!["{}"])).to_vec();
        let server = ScriptedServer::start([streamed(&*dialect, &ReplySpec(calls, ReplyEnding::ToolUse))]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let results = reply.tool_calls().map(|call| result(&call.id, "found", false)).collect();
        conversation.push(&Message::Assistant(reply));
        conversation.push(&Message::User(UserMessage::results(results)));
        conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
        let turns = dialect.parse_request(&server.received()[1].json()).turns;
        let (mut called, mut answered) = (Vec::new(), Vec::new());
        for turn in turns {
            match turn {
                RequestTurn::Call(id, ..) => called.push(id),
                RequestTurn::ToolResult(id, ..) => answered.push(id),
                _ => {}
            }
        }
        assert_eq!((called, answered), (ids.map(str::to_owned).to_vec(), ids.map(str::to_owned).to_vec()));
    }
}
