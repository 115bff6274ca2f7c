use super::super::test_server::ConnectionEnd;
use super::*;
use crate::message::{BlockContent, StopReason};

#[tokio::test]
async fn text_deltas_are_joined() {
    for dialect in dialects() {
        let (reply, _, _) = ask_once(&*dialect, vec![streamed(&*dialect, &text_reply())]).await;
        let reply = reply.unwrap();
        assert_eq!(reply.text(), "Hello ä€😀");
        assert_eq!((reply.stop, reply.usage), (StopReason::EndTurn, dialect.usage()));
        assert_eq!(reply.model.as_deref(), Some(dialect.model()[1]));
        assert_eq!(reply.request_id.as_deref(), Some("req_head"));
        assert_eq!(reply.blocks.len(), 1);
    }
}

#[tokio::test]
async fn calls_are_assembled_from_pieces_in_order() {
    for dialect in dialects() {
        let reply = ask_once(&*dialect, vec![streamed(&*dialect, &tool_call_reply())]).await.0.unwrap();
        let calls: Vec<[&str; 3]> =
            reply.tool_calls().map(|call| [call.id.as_str(), call.tool.as_str(), call.input.get()]).collect();
        let expected =
            [["toolu_1", "glob", "{\"pattern\": \"**/*.toml\"}"], ["toolu_2", "grep", "{\"pattern\":\"é\\n\"}"]];
        assert_eq!(calls, expected);
        assert_eq!((reply.stop, reply.usage), (StopReason::ToolUse, dialect.usage()));
        assert!(matches!(&reply.blocks[0].content, BlockContent::Thinking(text) if text == "Let me see — é😀"));
        let text = reply.blocks.iter().position(|block| matches!(block.content, BlockContent::Text(_)));
        assert_eq!(text, Some(1));
    }
}

#[tokio::test]
async fn halves_of_characters_are_joined_or_replaced() {
    // Rust's strings have no halves, so they are put into the JSON.
    let with_halves = |json: &str| json.replace("HIGH", "\\ud83d").replace("LOW", "\\ude00");
    let of = |pieces: [&'static str; 2]| {
        let call = ReplyPart::Call("toolu_1", "glob", pieces.to_vec());
        ReplySpec(vec![ReplyPart::Text(vec!["a HIGH", "LOW b HIGH"]), call], ReplyEnding::ToolUse)
    };
    for dialect in dialects() {
        let said = of(["{\"pattern\":\"HIGH", "LOW HIGH\"}"]);
        let events = dialect.events(&said).concat();
        let whole = with_halves(&dialect.whole(&said).to_string());
        let mut answers = vec![
            ScriptedResponse::stream([with_halves(&events).as_bytes()]),
            ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &whole),
        ];
        // In Gemini's API, an input isn't JSON within a string.
        if dialect.spec().name != "gemini" {
            let events = dialect.events(&of(["{\"pattern\":\"\\ud83d", "\\ude00 \\ud83d\"}"])).concat();
            answers.push(ScriptedResponse::stream([with_halves(&events).as_bytes()]));
        }
        for answer in answers {
            let reply = ask_once(&*dialect, vec![answer]).await.0.unwrap();
            assert_eq!(reply.text(), "a 😀 b \u{fffd}", "{}", dialect.spec().name);
            let call = reply.tool_calls().next().unwrap();
            let input: Value = serde_json::from_str(call.input.get()).unwrap();
            assert_eq!((input, &call.input_error), (json!({ "pattern": "😀 \u{fffd}" }), &None));
            // A value has no halves, so parsing the whole reply as one shows that none is left to be sent back.
            serde_json::from_str::<Value>(&serde_json::to_string(&reply).unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn the_usage_so_far_is_known_when_a_request_is_stopped() {
    for dialect in dialects() {
        let events = dialect.events(&ReplySpec(vec![ReplyPart::Text(vec!["some words"; 20])], ReplyEnding::EndTurn));
        let half = events[..10].concat();
        let answer = ScriptedResponse::stream([half.as_bytes()]).cut(ConnectionEnd::Hang);
        let server = ScriptedServer::start(vec![answer]).await;
        let seen = RecordingObserver::default();
        let mut conversation = prompted(&*dialect, &server.url);
        let arrived = async {
            while seen.progress.lock().unwrap().output_tokens < 10 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            reply = conversation.ask(request(), &seen) => panic!("{reply:?}"),
            () = arrived => {}
        }
        let usage = *seen.progress.lock().unwrap();
        assert!(usage.prompt() > 0, "{}: {usage:?}", dialect.spec().name);
    }
}

#[tokio::test]
async fn thoughts_in_the_text_are_not_part_of_the_answer() {
    for dialect in dialects() {
        let pieces = vec!["<th", "ink>\nI say 42.\n</thi", "nk>\n\nThe answer ", "has a <think>."];
        let said = ReplySpec(vec![ReplyPart::Text(pieces)], ReplyEnding::EndTurn);
        for answer in [streamed(&*dialect, &said), in_one_piece(&*dialect, &said)] {
            let reply = ask_once(&*dialect, vec![answer]).await.0.unwrap();
            assert_eq!(reply.text(), "The answer has a <think>.", "{}", dialect.spec().name);
            assert!(matches!(&reply.blocks[0].content, BlockContent::Thinking(text) if text == "I say 42."));
        }
    }
}

#[tokio::test]
async fn json_over_several_lines_becomes_one_line() {
    for dialect in dialects() {
        let input = vec!["{\n  \"pattern\":\r\n", "  \"a\\nb\"\n}"];
        let said = ReplySpec(vec![ReplyPart::Call("toolu_1", "glob", input)], ReplyEnding::ToolUse);
        let whole = ScriptedResponse::new(
            "200 OK",
            "content-type: application/json\r\n",
            &serde_json::to_string_pretty(&dialect.whole(&said)).unwrap(),
        );
        // Gemini's stream has the input as JSON within the event's line.
        let stream = (dialect.spec().name != "gemini").then(|| streamed(&*dialect, &said));
        for answer in stream.into_iter().chain([whole]) {
            let reply = ask_once(&*dialect, vec![answer]).await.0.unwrap();
            let call = reply.tool_calls().next().unwrap();
            assert_eq!(call.input_error, None);
            assert_eq!(serde_json::from_str::<Value>(call.input.get()).unwrap(), json!({ "pattern": "a\nb" }));
            let line = serde_json::to_string(&reply).unwrap();
            assert!(!line.contains(['\n', '\r']), "{}: {line}", dialect.spec().name);
        }
    }
}

#[tokio::test]
async fn every_stop_reason_is_mapped() {
    for dialect in dialects() {
        for (ending, stop) in [
            (ReplyEnding::EndTurn, StopReason::EndTurn),
            (ReplyEnding::MaxTokens, StopReason::MaxTokens),
            (ReplyEnding::Refusal, StopReason::Refusal),
        ] {
            let said = ReplySpec(text_reply().0, ending);
            let reply = ask_once(&*dialect, vec![streamed(&*dialect, &said)]).await.0.unwrap();
            assert_eq!((&reply.stop, reply.text().as_str()), (&stop, "Hello ä€😀"));
        }
    }
}

#[tokio::test]
async fn a_response_without_streaming_gives_the_same_reply() {
    for dialect in dialects() {
        for said in [text_reply(), tool_call_reply()] {
            let (reply, _, _) = ask_once(&*dialect, vec![in_one_piece(&*dialect, &said)]).await;
            let reply = reply.unwrap();
            let mut other = ask_once(&*dialect, vec![streamed(&*dialect, &said)]).await.0.unwrap();
            assert!(reply.request_id.is_some());
            other.request_id.clone_from(&reply.request_id);
            // Streamed inputs keep the model's spacing. In a whole reply, they are JSON like the rest.
            let same = |reply: &Reply| serde_json::to_string(reply).unwrap().replace("\": \"**", "\":\"**");
            assert_eq!(same(&reply), same(&other));
        }
    }
}

#[tokio::test]
async fn a_stream_can_be_plain_json_or_end_without_a_blank_line() {
    for dialect in dialects() {
        let whole = serde_json::to_string_pretty(&dialect.whole(&text_reply())).unwrap();
        let events = dialect.events(&text_reply()).concat();
        for body in [whole.as_str(), events.trim_end(), &format!("\n\n{events}")] {
            let (reply, _, requests) = ask_once(&*dialect, vec![ScriptedResponse::stream([body.as_bytes()])]).await;
            assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 1), "{body}");
        }
        let plain = ScriptedResponse::new("200 OK", "content-type: text/plain\r\n", &format!("\n\n{events}"));
        assert_eq!(ask_once(&*dialect, vec![plain]).await.0.unwrap().text(), "Hello ä€😀");
        // If it is cut, it isn't taken for another program's response.
        let cut = ScriptedResponse::stream([&whole.as_bytes()[..whole.len() / 2]]);
        assert_eq!(ask_once(&*dialect, vec![cut, streamed(&*dialect, &text_reply())]).await.2, 2);
        for (body, says) in
            [("<html><title>Log in</title></html>", "a page titled"), (r#"{"error":{"message":"no more"}}"#, "no more")]
        {
            let answers = vec![ScriptedResponse::stream([body.as_bytes()]); 6];
            let fault = ask_once(&*dialect, answers).await.0.unwrap_err();
            assert!(fault.message.contains(says), "{}", fault.message);
        }
    }
}

#[tokio::test]
async fn every_chunking_of_a_stream_gives_the_same_reply() {
    for dialect in dialects() {
        let body = dialect.events(&tool_call_reply()).concat().into_bytes();
        let (_, whole) = dialect.read(&[&body]).unwrap();
        for size in [1, 2, 3, 5, 7, 64, 1000] {
            let chunks: Vec<&[u8]> = body.chunks(size).collect();
            assert_eq!(dialect.read(&chunks).unwrap().1, whole, "{} in chunks of {size}", dialect.spec().name);
        }
        for cut in (1..body.len()).step_by(13) {
            assert_eq!(dialect.read(&[&body[..cut], &body[cut..]]).unwrap().1, whole, "cut at {cut}");
        }
        let short = dialect.events(&text_reply()).concat().into_bytes();
        let said = dialect.read(&[&short]).unwrap().1;
        for cut in 1..short.len() {
            assert_eq!(dialect.read(&[&short[..cut], &short[cut..]]).unwrap().1, said, "cut at {cut}");
        }
        // The same over a connection, in HTTP chunks.
        for size in [1, 3, 64] {
            let (reply, seen, _) = ask_once(&*dialect, vec![ScriptedResponse::stream(body.chunks(size))]).await;
            let reply = Reply { request_id: None, ..reply.unwrap() };
            assert!(seen.retries.lock().unwrap().is_empty());
            let whole: Reply = serde_json::from_str(&whole).unwrap();
            let text = |reply: &Reply| serde_json::to_string(reply).unwrap();
            assert_eq!(text(&reply), text(&Reply { request_id: None, ..whole }));
        }
    }
}

#[test]
fn a_reply_is_complete_at_its_end_not_earlier() {
    for dialect in dialects() {
        let events = dialect.events(&tool_call_reply());
        let enough = events[..dialect.events_until_complete(&events)].concat().len();
        let body = events.concat();
        let (complete, _) = dialect.read(&body.as_bytes().chunks(1).collect::<Vec<_>>()).unwrap();
        assert_eq!(complete, enough, "{}", dialect.spec().name);
        assert!(dialect.read(&[&body.as_bytes()[..enough - 1]]).is_none());
    }
}

#[tokio::test]
async fn a_cut_stream_is_retried() {
    for dialect in dialects() {
        for said in [text_reply(), tool_call_reply()] {
            let events = dialect.events(&said);
            let enough = dialect.events_until_complete(&events);
            for cut in 0..enough {
                // Cut by a regular end, and by a closed connection within the next event.
                let part = events[..cut].concat();
                let half = &events[cut][..events[cut].len() / 2];
                let in_order = ScriptedResponse::stream([part.as_bytes()]);
                let closed = ScriptedResponse::stream([(part + half).as_bytes()]).cut(ConnectionEnd::Close);
                for answer in [in_order, closed] {
                    let (reply, seen, requests) = ask_once(&*dialect, vec![answer, streamed(&*dialect, &said)]).await;
                    assert_eq!(reply.unwrap().usage, dialect.usage());
                    assert_eq!(requests, 2, "cut after {cut} of {events:?}");
                    let retries = seen.retries.lock().unwrap();
                    let why = &retries[0].reason;
                    assert!(why.contains("ended before the reply did") || why.contains("was cut off"), "{why}");
                }
            }
            for cut in enough..events.len() {
                for answer in [ScriptedResponse::stream([events[..cut].concat().as_bytes()])] {
                    let (reply, _, requests) = ask_once(&*dialect, vec![answer.clone(), answer]).await;
                    assert_eq!(requests, 1, "cut after {cut}");
                    assert_eq!(reply.unwrap().blocks.len(), said.0.len());
                }
            }
        }
    }
}

#[tokio::test]
async fn received_text_of_a_cut_reply_counts_as_usage() {
    for dialect in dialects() {
        let said = ReplySpec(vec![ReplyPart::Text(vec!["word "; 200])], ReplyEnding::EndTurn);
        let events = dialect.events(&said);
        let cut = ScriptedResponse::stream([events[..events.len() - 5].concat().as_bytes()]);
        let (_, seen, _) = ask_once(&*dialect, vec![cut, streamed(&*dialect, &said)]).await;
        let spent = seen.retries.lock().unwrap()[0].usage;
        assert!((240..=250).contains(&spent.output_tokens) && spent.input_tokens > 0, "{spent:?}");
    }
}

#[tokio::test]
async fn a_reply_is_accepted_at_its_end_whatever_its_content_type() {
    for dialect in dialects() {
        let body = dialect.events(&text_reply()).concat();
        let open = ScriptedResponse::stream([body.as_bytes()]).cut(ConnectionEnd::Hang);
        let plain = ScriptedResponse::new("200 OK", "content-type: text/plain\r\n", &body);
        let unnamed = ScriptedResponse::new("200 OK", "", &body);
        let crlf = ScriptedResponse::stream([body.replace('\n', "\r\n").as_bytes()]);
        for answer in [plain, unnamed, crlf] {
            let (reply, _, requests) = ask_once(&*dialect, vec![answer]).await;
            assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 1));
        }
        // A complete reply is accepted although the stream stays open.
        let server = ScriptedServer::start([open]).await;
        let mut variables = dialect.variables(&server.url);
        variables.push(("LEGWORK_IDLE_TIMEOUT_MS", "200".to_owned()));
        let mut conversation = connect(dialect.spec(), &variables).unwrap().open(setup(&*dialect)).unwrap();
        conversation.push(&Message::User(UserMessage::text("Hello")));
        assert_eq!(conversation.ask(request(), &RecordingObserver::default()).await.unwrap().text(), "Hello ä€😀");
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn unknown_events_are_ignored() {
    for dialect in dialects() {
        let noise = format!(": a comment\n\n{}", dialect.unknown_event());
        let body: String = dialect.events(&tool_call_reply()).iter().map(|event| format!("{noise}{event}")).collect();
        let reply = ask_once(&*dialect, vec![ScriptedResponse::stream([body.as_bytes()])]).await.0.unwrap();
        let quiet = ask_once(&*dialect, vec![streamed(&*dialect, &tool_call_reply())]).await.0.unwrap();
        assert_eq!(serde_json::to_string(&reply).unwrap(), serde_json::to_string(&quiet).unwrap());
    }
}

#[tokio::test]
async fn inputs_that_are_not_objects_are_reported_and_replaced() {
    let nested = || format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100)).leak();
    let long = || format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20)).leak();
    for dialect in dialects() {
        for (pieces, broken) in [
            (vec![""], None),
            (vec!["{}"], None),
            (vec!["{\"a\": ", "tru"], Some("the input isn't valid JSON: EOF while parsing")),
            (vec!["[1]"], Some("the input isn't a JSON object")),
            (vec!["{} {}"], Some("the input isn't valid JSON: trailing characters")),
            (vec![&*nested()], Some("the input is nested deeper than 100 levels")),
            (vec![&*long()], Some("the input is longer than 4194304 bytes")),
        ] {
            let said = ReplySpec(vec![ReplyPart::Call("a", "glob", pieces.clone())], ReplyEnding::ToolUse);
            let reply = ask_once(&*dialect, vec![streamed_oddly(&*dialect, &said)]).await.0.unwrap();
            let call = reply.tool_calls().next().unwrap();
            assert_eq!(call.input.get(), "{}");
            assert_eq!(call.input_error.is_some(), broken.is_some(), "{:?}", call.input_error);
            assert!(call.input_error.as_deref().unwrap_or_default().starts_with(broken.unwrap_or_default()));
        }
    }
}

#[tokio::test]
async fn call_ids_become_unique_within_the_conversation() {
    for dialect in dialects() {
        let call = |id| ReplyPart::Call(id, "glob", vec!["{}"]);
        let said = ReplySpec(vec![call("a"), call("b"), call("")], ReplyEnding::ToolUse);
        let server = ScriptedServer::start([streamed_oddly(&*dialect, &said)]).await;
        let mut conversation = prompted(&*dialect, &server.url);
        let mut ids = Vec::new();
        for _ in 0..3 {
            let reply = conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
            let results = reply.tool_calls().map(|call| result(&call.id, "found", false)).collect();
            ids.extend(reply.tool_calls().map(|call| call.id.clone()));
            conversation.push(&Message::Assistant(reply));
            conversation.push(&Message::User(UserMessage::results(results)));
        }
        assert_eq!(ids[..2], ["a", "b"]);
        assert!(ids.iter().all(|id| !id.is_empty()));
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!((count, ids.len()), (9, 9), "{ids:?}");
    }
}
