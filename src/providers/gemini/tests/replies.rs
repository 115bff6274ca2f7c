use serde_json::{Value, json};

use super::dialect::{SIGNED, response, sent};
use super::{GeminiDialect, answers, of_model, reply_of, sent_back, streamed};
use crate::message::{BlockContent, Message, StopReason, Usage};
use crate::providers::ProviderErrorKind;
use crate::providers::conformance_tests::{WireDialect, ask_once, text_reply};
use crate::providers::test_server::ScriptedResponse;

fn views(reply: &crate::message::Reply) -> Vec<String> {
    let view = |view: &BlockContent| match view {
        BlockContent::Text(text) => format!("text {text}"),
        BlockContent::Thinking(text) => format!("thought {text}"),
        BlockContent::Call(call) => format!("call {}", call.tool),
        BlockContent::Other(kind) => format!("other {kind}"),
    };
    reply.blocks.iter().map(|block| view(&block.content)).collect()
}

#[tokio::test]
async fn signatures_keep_their_position_however_the_stream_splits_text() {
    let signed = |text: &str| json!({ "text": text, "thoughtSignature": SIGNED });
    let call = json!({ "functionCall": { "name": "glob", "args": {}, "id": "x1" }, "thoughtSignature": SIGNED });
    let plain = |text: &str| json!({ "text": text });
    let thought = |text: &str| json!({ "text": text, "thought": true });
    for (parts, expected_views, back) in [
        // A text's signature is in its last piece or in a separate part.
        (vec![plain("Hel"), plain("lo"), signed(" you")], vec!["text Hello you"], vec![plain("Hello"), signed(" you")]),
        (vec![plain("Hi"), signed("")], vec!["text Hi"], vec![plain("Hi"), signed("")]),
        (vec![signed("a"), plain("b"), plain("c")], vec!["text abc"], vec![signed("a"), plain("bc")]),
        (vec![signed("")], vec!["thought "], vec![signed("")]),
        (
            vec![json!({ "thoughtSignature": SIGNED })],
            vec!["thought "],
            vec![json!({ "thoughtSignature": SIGNED, "text": "" })],
        ),
        (
            vec![thought("Let"), thought(" me"), plain("I "), plain("look."), call.clone()],
            vec!["thought Let me", "text I look.", "call glob"],
            vec![thought("Let me"), plain("I look."), call.clone()],
        ),
        (
            vec![thought("A"), signed(""), call.clone()],
            vec!["thought A", "thought ", "call glob"],
            vec![thought("A"), signed(""), call],
        ),
        (vec![plain(""), json!({}), plain("x")], vec!["text x"], vec![plain("x")]),
    ] {
        let texts: Vec<String> = parts.iter().map(Value::to_string).collect();
        let reply = reply_of(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(views(&reply), expected_views, "{parts:?}");
        // Serialized and parsed as in the journal, like on resume.
        let recorded: crate::message::Reply = serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap();
        let contents = sent_back(&of_model("gemini-3.8-flash"), [Message::Assistant(recorded)]);
        assert_eq!(contents, json!([{ "role": "model", "parts": back }]), "{parts:?}");
    }
}

#[tokio::test]
async fn unknown_parts_are_sent_back_unchanged() {
    let parts = [
        r#"{"executableCode":{"language":"PYTHON","code":"1+1"}}"#,
        r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"2"},"thoughtSignature":"eA=="}"#,
        r#"{"text":"2","partMetadata":{"a": 1}}"#,
    ];
    let reply = reply_of(&parts).await;
    assert_eq!(views(&reply), ["other executableCode", "other codeExecutionResult", "text 2"]);
    let contents = sent_back(&of_model("gemini-3.8-flash"), [Message::Assistant(reply)]);
    let expected: Vec<Value> = parts.iter().map(|part| serde_json::from_str(part).unwrap()).collect();
    assert_eq!(contents[0]["parts"], json!(expected));
}

#[tokio::test]
async fn a_call_without_an_id_gets_a_local_id_that_is_not_sent() {
    let calls = [r#"{"functionCall":{"name":"glob","args":{"a":1}}}"#, r#"{"functionCall":{"name":"grep"}}"#];
    let reply = reply_of(&calls).await;
    let ids: Vec<String> = reply.tool_calls().map(|call| call.id.clone()).collect();
    assert_eq!((ids[0].as_str(), ids[1].as_str()), ("call00001", "call00002"));
    assert_eq!((reply.tool_calls().last().unwrap().input.get(), &reply.stop), ("{}", &StopReason::ToolUse));
    let answered = answers(&[&ids[0], &ids[1]]);
    let contents = sent_back(&of_model("gemini-2.5-flash"), [Message::Assistant(reply), answered]);
    let answer = |name: &str| json!({ "functionResponse": { "name": name, "response": { "output": "found" } } });
    let calls: Vec<Value> = calls.iter().map(|call| serde_json::from_str(call).unwrap()).collect();
    assert_eq!(
        contents,
        json!([{ "role": "model", "parts": calls }, { "role": "user", "parts": [answer("glob"), answer("grep")] }])
    );
}

#[tokio::test]
async fn a_duplicate_id_is_replaced_locally_and_sent_back_unchanged() {
    let call = r#"{"functionCall":{"name":"glob","args":{},"id":"a"},"thoughtSignature":"eA=="}"#;
    let reply = reply_of(&[call, call]).await;
    let ids: Vec<String> = reply.tool_calls().map(|call| call.id.clone()).collect();
    assert_eq!(ids[0], "a");
    assert_ne!(ids[1], "a");
    let answered = answers(&[&ids[0], &ids[1]]);
    let contents = sent_back(&of_model("gemini-3.8-flash"), [Message::Assistant(reply), answered]);
    assert_eq!(contents[0]["parts"][1], serde_json::from_str::<Value>(call).unwrap());
    assert_eq!(contents[1]["parts"][1]["functionResponse"]["id"], "a");
}

#[tokio::test]
async fn finish_reasons_are_mapped() {
    let text = r#"{"text":"x"}"#.to_owned();
    for (reason, stop) in [
        ("STOP", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("CONTINUATION", StopReason::MaxTokens),
        ("SAFETY", StopReason::Refusal),
        ("RECITATION", StopReason::Refusal),
        ("SPII", StopReason::Refusal),
        ("LANGUAGE", StopReason::Refusal),
        ("A_NEW_ONE", StopReason::Other("A_NEW_ONE".to_owned())),
    ] {
        let (reply, _) = streamed(&[response(std::slice::from_ref(&text), Some(reason))]).await;
        assert_eq!((reply.text().as_str(), reply.stop), ("x", stop), "{reason}");
    }
    let (silent, _) = streamed(&[response(&[], Some("PROHIBITED_CONTENT"))]).await;
    assert_eq!((views(&silent), silent.stop), (vec!["other PROHIBITED_CONTENT".to_owned()], StopReason::Refusal));
}

#[tokio::test]
async fn a_blocked_prompt_is_a_refusal() {
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "Not this." },
        "usageMetadata": { "promptTokenCount": 9, "totalTokenCount": 9 }, "responseId": "r1" });
    let (reply, _) = streamed(&[blocked.to_string()]).await;
    assert_eq!(
        (views(&reply), &reply.stop),
        (vec!["other PROHIBITED_CONTENT: Not this.".to_owned()], &StopReason::Refusal)
    );
    assert_eq!(reply.usage, Usage { input_tokens: 9, ..Usage::default() });
    let json = ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &blocked.to_string());
    assert_eq!(ask_once(&GeminiDialect, vec![json]).await.0.unwrap().stop, StopReason::Refusal);
}

#[tokio::test]
async fn a_malformed_call_is_retried() {
    let mut broken: Value = serde_json::from_str(&response(&[], Some("MALFORMED_FUNCTION_CALL"))).unwrap();
    broken["candidates"][0]["finishMessage"] = json!("Malformed function call: glob(");
    let answer = ScriptedResponse::stream([sent(&[broken.to_string()]).concat().as_bytes()]);
    let good = ScriptedResponse::stream([GeminiDialect.events(&text_reply()).concat().as_bytes()]);
    let (reply, seen, requests) = ask_once(&GeminiDialect, vec![answer, good]).await;
    assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 2));
    let retry = seen.retries.lock().unwrap()[0].clone();
    assert!(retry.reason.ends_with("(MALFORMED_FUNCTION_CALL): Malformed function call: glob("), "{}", retry.reason);
    assert_eq!((retry.usage.output_tokens, retry.usage.cache_read_tokens), (42, 7));
}

#[tokio::test]
async fn replies_that_break_off_are_retried() {
    let good = || ScriptedResponse::stream([GeminiDialect.events(&text_reply()).concat().as_bytes()]);
    let half = r#"{"text":"Half of"}"#.to_owned();
    for reason in ["UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "OTHER"] {
        for parts in [vec![], vec![half.clone()]] {
            let broken = ScriptedResponse::stream([sent(&[response(&parts, Some(reason))]).concat().as_bytes()]);
            let (reply, seen, requests) = ask_once(&GeminiDialect, vec![broken, good()]).await;
            assert_eq!((reply.unwrap().text().as_str(), requests), ("Hello ä€😀", 2));
            assert!(seen.retries.lock().unwrap()[0].reason.contains(reason));
        }
    }
    // A call to an unknown tool is kept like any other.
    let call = r#"{"functionCall":{"name":"nonesuch","args":{}}}"#.to_owned();
    let (reply, _) = streamed(&[response(&[call], Some("UNEXPECTED_TOOL_CALL"))]).await;
    assert_eq!(reply.tool_calls().count(), 1);
}

#[tokio::test]
async fn a_reply_ends_with_its_stream_not_with_a_finish_reason() {
    let text = |text: &str| vec![json!({ "text": text }).to_string()];
    let signed = r#"{"text":"","thoughtSignature":"eA=="}"#.to_owned();
    let call = r#"{"functionCall":{"name":"glob","args":{}}}"#.to_owned();
    for (responses, expected) in [
        (vec![response(&text("Hel"), Some("STOP")), response(&text("lo"), Some("STOP"))], vec!["text Hello"]),
        (
            vec![response(&[], Some("STOP")), response(&text("Hel"), None), response(&text("lo"), Some("STOP"))],
            vec!["text Hello"],
        ),
        (vec![response(&text("Hello"), Some("STOP")), response(&[signed], None)], vec!["text Hello"]),
        (
            vec![response(&text("I look."), Some("STOP")), response(&[call], Some("STOP"))],
            vec!["text I look.", "call glob"],
        ),
    ] {
        let (reply, _) = streamed(&responses).await;
        assert_eq!(views(&reply), expected, "{responses:?}");
        assert_eq!(reply.usage.output_tokens, 42);
    }
    // A stream that continues after a finish reason and ends without one was cut.
    let cut = ScriptedResponse::stream([sent(&[response(&text("Hel"), Some("STOP")), response(&text("l"), None)])
        .concat()
        .as_bytes()]);
    let good = ScriptedResponse::stream([GeminiDialect.events(&text_reply()).concat().as_bytes()]);
    assert_eq!(ask_once(&GeminiDialect, vec![cut, good]).await.2, 2);
}

#[tokio::test]
async fn null_fields_count_as_missing() {
    let parts = [
        r#"{"text":"Hm.","thought":true,"functionCall":null,"inlineData":null}"#,
        r#"{"text":"I ","thought":null,"thoughtSignature":null,"functionCall":null}"#,
        r#"{"text":"look.","thought":null,"functionCall":null}"#,
        r#"{"text":null,"thought":null,"functionCall":{"id":null,"name":"glob","args":null},"thoughtSignature":"eA=="}"#,
    ];
    let reply = reply_of(&parts).await;
    assert_eq!(views(&reply), ["thought Hm.", "text I look.", "call glob"]);
    let contents = sent_back(&of_model("gemini-3.8-flash"), [Message::Assistant(reply)]);
    let expected = json!([{ "text": "Hm.", "thought": true }, { "text": "I look." },
        { "functionCall": { "id": null, "name": "glob", "args": null }, "thoughtSignature": "eA==" }]);
    assert_eq!(contents[0]["parts"], expected);
}

#[tokio::test]
async fn tokens_are_counted_in_disjoint_kinds() {
    let counted = |counts: Value| {
        let mut last: Value = serde_json::from_str(&response(&[r#"{"text":"x"}"#.to_owned()], Some("STOP"))).unwrap();
        last["usageMetadata"] = counts;
        last.to_string()
    };
    let all = json!({ "promptTokenCount": 100, "cachedContentTokenCount": 60, "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 7, "thoughtsTokenCount": 30, "totalTokenCount": 142 });
    let (reply, _) = streamed(&[counted(all)]).await;
    let expected = Usage { input_tokens: 45, output_tokens: 37, cache_read_tokens: 60, ..Usage::default() };
    assert_eq!((reply.usage, reply.usage.total()), (expected, 142));
    // A count from an earlier response is kept if the last response doesn't have it.
    let first = counted(json!({ "promptTokenCount": 100, "cachedContentTokenCount": 60 }));
    let first = first.replace(r#","finishReason":"STOP""#, "");
    let (reply, _) = streamed(&[first, counted(json!({ "candidatesTokenCount": 7 }))]).await;
    assert_eq!((reply.usage.cache_read_tokens, reply.usage.output_tokens), (60, 7));
    // Without counts from the server, usage is estimated.
    let (reply, _) = streamed(&[counted(Value::Null)]).await;
    assert!(reply.usage.input_tokens > 50, "{:?}", reply.usage);
}

#[tokio::test]
async fn a_list_of_responses_is_one_reply() {
    let parts = |text: &str| vec![json!({ "text": text }).to_string()];
    let list = format!("[{},\n{}]", response(&parts("Hel"), None), response(&parts("lo"), Some("STOP")));
    let whole = ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &list);
    let (reply, _, _) = ask_once(&GeminiDialect, vec![whole]).await;
    assert_eq!(reply.unwrap().text(), "Hello");
    let failing = format!("[{},{}]", response(&parts("Hel"), None), GeminiDialect.error(403, "no"));
    let failing = ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &failing);
    let (fault, _, requests) = ask_once(&GeminiDialect, vec![failing]).await;
    assert_eq!((fault.unwrap_err().kind, requests), (ProviderErrorKind::Rejected, 1));
}

#[tokio::test]
async fn the_retry_delay_of_an_error_is_respected() {
    let retry = |delay: &str| {
        let mut error = GeminiDialect.error(429, "Slow down.");
        error["error"]["details"] =
            json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay }]);
        error.to_string()
    };
    let json = |body: &str| ScriptedResponse::new("429 Too Many Requests", "content-type: application/json\r\n", body);
    let good = || ScriptedResponse::stream([GeminiDialect.events(&text_reply()).concat().as_bytes()]);
    let (_, seen, requests) = ask_once(&GeminiDialect, vec![json(&retry("0.04s")), good()]).await;
    assert_eq!((seen.retries.lock().unwrap()[0].wait_ms, requests), (40, 2));
    let in_stream = ScriptedResponse::stream([format!("data: {}\n\n", retry("0.03s")).as_bytes()]);
    let (_, seen, _) = ask_once(&GeminiDialect, vec![in_stream, good()]).await;
    assert_eq!(seen.retries.lock().unwrap()[0].wait_ms, 30);
    // The pause is longer than the remaining time, so there is no retry.
    assert_eq!(ask_once(&GeminiDialect, vec![json(&retry("3600s")), good()]).await.2, 1);
}

#[tokio::test]
async fn a_bad_key_is_named() {
    let mut error = GeminiDialect.error(400, "API key not valid. Please pass a valid API key.");
    error["error"]["details"] = json!([{ "reason": "API_KEY_INVALID", "domain": "googleapis.com" }]);
    let answer = ScriptedResponse::new("400 Bad Request", "content-type: application/json\r\n", &error.to_string());
    let (fault, _, requests) = ask_once(&GeminiDialect, vec![answer]).await;
    let fault = fault.unwrap_err();
    assert_eq!((fault.kind, requests), (ProviderErrorKind::Rejected, 1));
    assert!(fault.hint.unwrap().starts_with("the key came from GEMINI_API_KEY"));
}
