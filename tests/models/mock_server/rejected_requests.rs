//! Requests that the test server rejects, as the provider would.

use super::*;

/// The server's errors for requests that each start a conversation.
fn violations(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let server = Server::start(|_: &Request| Answer::text("good"));
    let mut body = ask(&[user("go")]);
    change(&mut body);
    let response = Client::of(&server).post(&body);
    let wrong = server.take_violations();
    assert_eq!(response.status, if wrong.is_empty() { 200 } else { 400 });
    wrong
}

#[test]
fn bodies_that_the_api_rejects_are_rejected() {
    type Change = fn(&mut Value);
    let history = |body: &mut Value, more: Value| {
        body["messages"] = more;
    };
    assert!(violations(|_| {}).is_empty());
    let cases: [(&str, Change); 29] = [
        ("temperature", |body| body["temperature"] = json!(1.5)),
        ("top_k", |body| body["top_k"] = json!(1)),
        ("unknown field", |body| body["prompt"] = json!("x")),
        ("model is", |body| body["model"] = json!("")),
        ("max_tokens is 0", |body| body["max_tokens"] = json!(0)),
        ("stream is", |body| body["stream"] = json!("yes")),
        ("system is", |body| body["system"] = json!("")),
        ("a block of system", |body| body["system"] = json!([{"type": "text", "text": " \n"}])),
        ("tools is []", |body| body["tools"] = json!([])),
        ("not unique", |body| body["tools"] = json!([bash(), bash()])),
        ("ill-formed", |body| body["tools"][0]["name"] = json!("read file")),
        ("no description", |body| body["tools"][0]["description"] = json!("")),
        ("input_schema", |body| body["tools"][0]["input_schema"] = json!({"type": "array"})),
        ("tool_choice is", |body| body["tool_choice"] = json!("none")),
        ("tool_choice without tools", |body| {
            body["tool_choice"] = json!({"type": "none"});
            body.as_object_mut().unwrap().remove("tools");
        }),
        ("budget_tokens", |body| body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024})),
        ("forces a tool", |body| {
            body["thinking"] = json!({"type": "adaptive"});
            body["tool_choice"] = json!({"type": "any"});
        }),
        ("no messages", |body| body["messages"] = json!([])),
        ("instead of \"user\"", |body| body["messages"] = json!([assistant("hello")])),
        ("instead of \"assistant\"", |body| body["messages"] = json!([user("a"), user("b")])),
        ("the content of message 0", |body| body["messages"] = json!([user("  ")])),
        ("the content of message 0", |body| body["messages"] = json!([user(json!([]))])),
        ("can't be", |body| body["messages"] = json!([user(json!([{"type": "text", "text": ""}]))])),
        ("can't be", |body| body["messages"] = json!([user(json!([call("toolu_a")]))])),
        ("instead of []", |body| body["messages"] = json!([user(json!([result("toolu_x", "y")]))])),
        ("5 cache_control marks", |body| {
            let marked = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
            body["messages"] = json!([user(Value::from(vec![marked; 5]))]);
        }),
        ("cache_control is", |body| body["tools"][0]["cache_control"] = json!({"type": "forever"})),
        ("the ttl of", |body| body["tools"][0]["cache_control"] = json!({"type": "ephemeral", "ttl": "2h"})),
        ("after a ttl='5m' one", |body| {
            body["tools"][0]["cache_control"] = json!({"type": "ephemeral"});
            body["system"] = json!([
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            ]);
        }),
    ];
    for (expected, change) in cases {
        let wrong = violations(change);
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected:?} isn't in {wrong:?}");
    }
    let messages = |blocks: Value, answers: Value| json!([user("go"), assistant(blocks), user(answers)]);
    let calls = || json!([call("toolu_a"), call("toolu_b")]);
    let empty_error = json!({"type": "tool_result", "tool_use_id": "toolu_a", "content": "", "is_error": true});
    let text = json!({"type": "text", "text": "and"});
    let unsigned = json!([{"type": "thinking", "thinking": "x", "signature": ""}]);
    let cases = [
        ("answers the calls", messages(calls(), json!([result("toolu_a", "1")]))),
        ("answers the calls", messages(calls(), json!([result("toolu_b", "2"), result("toolu_a", "1")]))),
        ("answers the calls", messages(calls(), json!("never mind"))),
        (
            "answers the calls",
            messages(calls(), json!([result("toolu_a", "1"), result("toolu_a", "1"), result("toolu_b", "2")])),
        ),
        ("in front of a tool_result", messages(json!([call("toolu_a")]), json!([text, result("toolu_a", "1")]))),
        ("two calls have the id", messages(json!([call("toolu_a"), call("toolu_a")]), json!([result("toolu_a", "1")]))),
        ("can't be", messages(json!([call("toolu_a")]), json!([empty_error]))),
        ("can't be", messages(unsigned, json!("go on"))),
        ("ends with a thought", messages(json!([{"type": "redacted_thinking", "data": "eA=="}]), json!("go on"))),
        ("nothing answers the calls", json!([user("go"), assistant(json!([call("toolu_a")]))])),
    ];
    for (expected, messages) in cases {
        let wrong = violations(|body| history(body, messages));
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected:?} isn't in {wrong:?}");
    }
}

#[test]
fn headers_that_the_api_rejects_are_rejected() {
    let good = [
        "POST /v1/messages HTTP/1.1",
        "host: x",
        "anthropic-version: 2023-06-01",
        &format!("x-api-key: {KEY}"),
        "content-type: application/json",
    ];
    let cases = [
        (0, "GET /v1/messages HTTP/1.1", "instead of POST"),
        (0, "POST /v1/complete HTTP/1.1", "instead of POST"),
        (1, "accept: */*", "no host"),
        (2, "anthropic-version: 2024-01-01", "anthropic-version is"),
        (2, "accept: */*", "anthropic-version is None"),
        (3, "x-api-key: sk-ant-other", "a key that isn't"),
        (3, "authorization: Basic abc", "a key that isn't"),
        (3, "accept: */*", "no key"),
        (4, "content-type: text/plain", "content-type is"),
    ];
    let body = ask(&[user("go")]).to_string();
    for (place, line, expected) in cases {
        let server = Server::start(|_: &Request| Answer::text("good"));
        let mut lines = good;
        lines[place] = line;
        let mut client = Client::of(&server);
        client.write(format!("{}\r\ncontent-length: {}\r\n\r\n{body}", lines.join("\r\n"), body.len()));
        assert_eq!(client.response().status, 400);
        let wrong = server.take_violations();
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected:?} isn't in {wrong:?}");
    }
    let server = Server::start(|_: &Request| Answer::text("good"));
    let mut client = Client::of(&server);
    client.write("POST /v1/messages\r\n\r\n");
    assert_eq!(client.line(), "");
    assert!(server.take_violations()[0].contains("not a request line"));
}

/// The server's error for a second request, after the first one, `go`, was answered.
fn violations_of_second_request(answer: Answer, messages: &[Value]) -> Vec<String> {
    let server = Server::start(move |request: &Request| match request.number {
        0 => answer.clone(),
        _ => Answer::text("good"),
    });
    let _ = Client::of(&server).post(&ask(&[user("go")]));
    let _ = Client::of(&server).post(&ask(messages));
    server.take_violations()
}

#[test]
fn a_conversation_that_changes_earlier_messages_is_rejected() {
    let calls = json!([call("toolu_a"), call("toolu_b")]);
    let results = json!([result("toolu_a", "1"), result("toolu_b", "2")]);
    let good = [user("go"), assistant(calls.clone()), user(results.clone())];
    assert_eq!(violations_of_second_request(answer_with_two_calls(), &good), [""; 0]);
    let mut changed = good.clone();
    changed[1]["content"][0]["input"]["command"] = json!("false");
    assert!(violations_of_second_request(answer_with_two_calls(), &changed)[0].contains("a reply came back changed"));
    assert_eq!(violations_of_second_request(answer_with_two_calls().allow_changed_echo(), &changed), [""; 0]);
    let mut rewritten = good.clone();
    rewritten[0] = user("something else");
    assert!(violations_of_second_request(answer_with_two_calls(), &rewritten)[0].contains("changed what it had sent"));
    assert!(
        violations_of_second_request(answer_with_two_calls().cut_after_events(3), &good)[0].contains("never got whole")
    );
    assert!(violations_of_second_request(Answer::text("bye"), &good)[0].contains("go on from no request"));
    let dropped = [user("go"), assistant(calls), user(results)];
    let signed = answer_with_two_calls().thinking("hm", "c2ln");
    assert!(violations_of_second_request(signed, &dropped)[0].contains("a reply came back changed"));
    // Thinking can't be the last block.
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let silent = [user("go"), assistant(json!([thought, {"type": "text", "text": "-"}])), user("well?")];
    assert_eq!(violations_of_second_request(Answer::empty().thinking("hm", "c2ln"), &silent), [""; 0]);
    // Blank text can't be sent back; a second agent can have the same prompt.
    assert_eq!(violations_of_second_request(answer_with_two_calls().then_text(""), &dropped), [""; 0]);
    assert_eq!(violations_of_second_request(answer_with_two_calls(), &dropped[..1]), [""; 0]);
}

#[test]
fn a_complete_reply_is_requested_once_and_the_setup_is_constant() {
    let turns = [user("go"), assistant(json!([call("toolu_a")])), user(json!([result("toolu_a", "1")]))];
    let answers = |request: &Request| match request.turn() {
        0 => Answer::empty().then_call_as("toolu_a", "bash", &json!({"command": "true"})),
        _ => Answer::text("done"),
    };
    for (checks, count) in [(Checks::All, 1), (Checks::AllowRepeats, 0)] {
        let server = Server::with(checks, answers);
        for messages in [&turns[..1], &turns, &turns] {
            let _ = Client::of(&server).post(&ask(messages));
        }
        let wrong = server.take_violations();
        assert_eq!(wrong.iter().filter(|what| what.contains("asks again")).count(), count, "{wrong:?}");
    }
    let server = Server::start(answers);
    let _ = Client::of(&server).post(&ask(&turns[..1]));
    let mut other = ask(&turns);
    other["system"] = json!("another system prompt");
    let _ = Client::of(&server).post(&other);
    assert!(server.take_violations()[0].contains("changed in the middle"));
}

#[test]
fn a_paused_reply_continues_in_the_same_message() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let script = ScriptedAgents::of([
        Answer::text("one").stop("pause_turn"),
        Answer::text("two").then_call_as("toolu_a", "bash", &json!({"command": "true"})),
        Answer::text("three"),
    ]);
    let server = Server::start(script);
    let mut client = Client::of(&server);
    let _ = client.post(&ask(&[user("go")]));
    let _ = client.post(&ask(&[user("go"), assistant(json!([text("one")]))]));
    let both = assistant(json!([text("one"), text("two"), call("toolu_a")]));
    let _ = client.post(&ask(&[user("go"), both, user(json!([result("toolu_a", "1")]))]));
    assert_eq!(server.finish().len(), 3);
    let wrong = violations_of_second_request(Answer::text("one"), &[user("go"), assistant(json!([text("one")]))]);
    assert!(wrong[0].contains("a reply that had ended"));
}

#[test]
fn a_server_script_requires_that_all_replies_are_used() {
    let script = ScriptedAgents::new()
        .agent("list the files", [Answer::text("child")])
        .agent("go", [Answer::text("parent"), Answer::text("never")]);
    let server = Server::start(script);
    let mut client = Client::of(&server);
    assert!(client.post(&ask(&[user("go")])).body.contains("parent"));
    assert!(client.post(&ask(&[user("list the files")])).body.contains("child"));
    assert_eq!(client.post(&ask(&[user("list the files")])).status, 400);
    assert_eq!(client.post(&ask(&[user("who?")])).status, 400);
    let wrong = server.take_violations();
    assert!(wrong[0].contains("no further answer") && wrong[1].contains("no agent in the script"), "{wrong:?}");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.finish()));
    let text = *panic.err().unwrap().downcast::<String>().unwrap();
    assert!(text.contains("1 answers for \"go\" were never asked for"), "{text}");
}

/// The errors for several requests to one of OpenAI's APIs.
fn violations_at(path: &str, answer: Answer, requests: &[Value]) -> Vec<String> {
    let server = Server::start(move |_: &Request| answer.clone());
    let mut client = Client::of(&server);
    for request in requests {
        client.post_at(path, request);
    }
    server.take_violations()
}

#[test]
fn chat_completions_requests_are_checked() {
    let path = "/v1/chat/completions";
    let function = json!({"name": "bash", "description": "Runs.", "parameters": {"type": "object"}});
    let good = json!({"model": "m", "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": function}], "messages": [{"role": "user", "content": "Go."}]});
    assert_eq!(violations_at(path, Answer::text("x"), std::slice::from_ref(&good)), [""; 0]);
    let with = |field: &str, value: Value| {
        let mut request = good.clone();
        request[field] = value;
        request
    };
    let call = json!({"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    let messages = |content: Value| json!({"role": "assistant", "content": content, "tool_calls": [call]});
    let answered = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
    let go = &good["messages"][0];
    for (request, words) in [
        (with("system", json!("x")), "unknown field \"system\""),
        (with("max_tokens", json!(0)), "max_tokens is 0"),
        (with("stream_options", json!({})), "doesn't ask for the usage"),
        (with("tool_choice", json!({"type": "none"})), "tool_choice is"),
        (with("messages", json!([go, messages(json!(7)), answered("a")])), "the content of message 1"),
        (with("messages", json!([go, messages(json!(null)), answered("b")])), "instead of [\"a\"]"),
        (with("messages", json!([go, messages(json!(null)), answered("a")])), "go on from no request"),
        (with("messages", json!([{"role": "user", "content": "Go.", "name": "x"}])), "message 0 has a name"),
    ] {
        let wrong = violations_at(path, Answer::text("x"), &[request]);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "{words}: {wrong:?}");
    }
    let answer = Answer::empty().then_call_as("a", "bash", &json!({}));
    let next = |content| with("messages", json!([go, messages(content), answered("a")]));
    assert_eq!(violations_at(path, answer.clone(), &[good.clone(), next(json!(null))]), [""; 0]);
    let wrong = violations_at(path, answer, &[good.clone(), next(json!("Never said."))]);
    assert!(wrong[0].contains("a reply came back changed"), "{wrong:?}");
}

#[test]
fn responses_requests_are_checked() {
    let path = "/v1/responses";
    let tool = json!({"type": "function", "name": "bash", "description": "Runs.", "parameters": {"type": "object"},
        "strict": false});
    let go = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]});
    let good = json!({"model": "m", "max_output_tokens": 99, "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "tools": [tool], "input": [go]});
    assert_eq!(violations_at(path, Answer::text("x"), std::slice::from_ref(&good)), [""; 0]);
    let with = |field: &str, value: Value| {
        let mut request = good.clone();
        request[field] = value;
        request
    };
    let thought = json!({"id": "rs_0_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "c2ln"});
    let call = json!({"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"});
    let answered = json!({"type": "function_call_output", "call_id": "a", "output": "ok"});
    let mut bare = thought.clone();
    bare.as_object_mut().unwrap().shift_remove("encrypted_content");
    for (request, words) in [
        (with("store", json!(true)), "store is true"),
        (with("include", json!([])), "include is []"),
        (with("stop", json!(["x"])), "unknown field \"stop\""),
        (with("input", json!([go, bare, call, answered])), "item 1 is"),
        (with("input", json!([go, thought, answered])), "item 1 is"),
        (with("input", json!([go, call])), "nothing answers the calls"),
    ] {
        let wrong = violations_at(path, Answer::text("x"), &[request]);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "{words}: {wrong:?}");
    }
    let answer = Answer::empty().thinking("Hm.", "c2ln").then_call_as("a", "bash", &json!({}));
    let whole = with("input", json!([go, thought, call, answered]));
    assert_eq!(violations_at(path, answer.clone(), &[good.clone(), whole]), [""; 0]);
    let wrong = violations_at(path, answer, &[good.clone(), with("input", json!([go, call, answered]))]);
    assert!(wrong[0].contains("a reply came back changed"), "{wrong:?}");
}
