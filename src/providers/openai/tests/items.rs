//! Items and events as other servers send them: without indexes, incomplete, or with extra fields.

use serde_json::{Value, json};

use super::dialect::{response, sent};
use super::{completed, done, message, reply_of};
use crate::message::{BlockContent, Message, Reply, StopReason};
use crate::providers::conformance_tests::{ask_once, request, setup};
use crate::providers::openai::request::{OpenaiEncoder, RequestDialect};
use crate::providers::openai::tests::OpenaiDialect;
use crate::providers::test_server::ScriptedResponse;
use crate::providers::transport::http_conversation::RequestEncoder as _;

fn call(number: u32, arguments: &str) -> Value {
    json!({ "id": format!("fc_{number}"), "type": "function_call", "status": "completed",
        "call_id": format!("call_{number}"), "name": "glob", "arguments": arguments })
}

fn begun(index: u64, item: &Value) -> Value {
    let mut item = item.clone();
    for (name, nothing) in [("arguments", json!("")), ("content", json!([]))] {
        if item.get(name).is_some() {
            item[name] = nothing;
        }
    }
    json!({ "type": "response.output_item.added", "output_index": index, "item": item })
}

/// All events for an item.
fn told(index: u64, item: &Value) -> Vec<Value> {
    let said = |kind: &str, name: &str, said: &Value| json!({ "type": format!("response.{kind}"), "item_id": item["id"], "output_index": index, name: said });
    let (what, name, all) = match item.get("arguments") {
        Some(arguments) => ("function_call_arguments", "arguments", arguments),
        None => ("output_text", "text", &item["content"][0]["text"]),
    };
    let (one, two) = all.as_str().unwrap().split_at(2);
    vec![
        begun(index, item),
        said(&format!("{what}.delta"), "delta", &json!(one)),
        said(&format!("{what}.delta"), "delta", &json!(two)),
        said(&format!("{what}.done"), name, all),
        done(index, item),
    ]
}

fn without(name: &str, events: &[Value]) -> Vec<Value> {
    let without = |event: &Value| {
        let mut event = event.clone();
        event.as_object_mut().unwrap().shift_remove(name);
        event
    };
    events.iter().map(without).collect()
}

fn of_kind(word: &str, events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| !event["type"].as_str().unwrap().contains(word)).cloned().collect()
}

fn shown(reply: &Reply) -> Vec<String> {
    let shown = |view: &BlockContent| match view {
        BlockContent::Text(text) | BlockContent::Thinking(text) | BlockContent::Other(text) => text.clone(),
        BlockContent::Call(call) => format!("{} {} {}", call.id, call.tool, call.input),
    };
    reply.blocks.iter().map(|block| shown(&block.content)).collect()
}

#[tokio::test]
async fn items_are_distinguished_whatever_their_indexes() {
    let items = [message("Look."), call(1, "{\"n\":1}"), call(2, "{\"n\":2}")];
    let numbered = |numbers: [u64; 3]| -> Vec<Value> {
        numbers.into_iter().zip(&items).flat_map(|(number, item)| told(number, item)).collect()
    };
    let right = numbered([0, 1, 2]);
    let in_turn: Vec<Value> = (0..5).flat_map(|step| [1, 2].map(|at| told(0, &items[at])[step].clone())).collect();
    // A different id in each event, as GitHub's gateway sends them.
    let mut renamed = right.clone();
    for (number, event) in renamed.iter_mut().enumerate() {
        let event = event.as_object_mut().unwrap();
        event.insert("item_id".to_owned(), json!(format!("x{number}")));
        if let Some(item) = event.get_mut("item") {
            item["id"] = json!(format!("y{number}"));
        }
    }
    let twice = right.iter().flat_map(|event| [event.clone(), event.clone()]);
    let twice = of_kind("delta", &twice.collect::<Vec<_>>());
    let last_first = [told(2, &items[2]), told(0, &items[0]), told(1, &items[1])].concat();
    for (name, events) in [
        ("as they should be", right.clone()),
        ("all zero", numbered([0, 0, 0])),
        ("from one", numbered([1, 2, 3])),
        ("not", without("output_index", &right)),
        ("neither number nor id", without("item_id", &without("output_index", &right))),
        ("in turn, all zero", [told(0, &items[0]), in_turn].concat()),
        ("renamed", renamed),
        ("twice", twice),
        ("last first", last_first),
        ("no deltas", of_kind("delta", &right)),
        ("no ends", of_kind("item.done", &right)),
        ("ends alone", of_kind("item.done", &of_kind("delta", &right))),
    ] {
        for end in [completed(&items), completed(&[])] {
            let reply = reply_of(&[&events[..], &[end]].concat()).await;
            assert_eq!(shown(&reply), ["Look.", "call_1 glob {\"n\":1}", "call_2 glob {\"n\":2}"], "{name}");
            assert_eq!(reply.stop, StopReason::ToolUse);
        }
    }
}

#[tokio::test]
async fn an_incomplete_final_item_is_completed_from_its_events() {
    let mut hollow = told(0, &call(1, "{\"n\":1}"));
    hollow[4]["item"]["arguments"] = json!("");
    assert_eq!(shown(&reply_of(&[hollow, vec![completed(&[])]].concat()).await), ["call_1 glob {\"n\":1}"]);
    let mut hollow = told(0, &message("Look."));
    hollow[4]["item"]["content"] = json!([]);
    assert_eq!(shown(&reply_of(&[hollow, vec![completed(&[])]].concat()).await), ["Look."]);
    let mut plain = message("");
    plain["content"] = json!("Look.");
    assert_eq!(shown(&reply_of(&[completed(&[plain])]).await), ["Look."]);
    let refusal = |kind: &str, name: &str| json!({ "type": kind, "output_index": 0, name: "I can't." });
    for said in [refusal("response.refusal.delta", "delta"), refusal("response.refusal.done", "refusal")] {
        let reply = reply_of(&[begun(0, &message("")), said, completed(&[])]).await;
        assert_eq!((shown(&reply), reply.stop), (vec!["I can't.".to_owned()], StopReason::Refusal));
    }
}

#[tokio::test]
async fn an_input_is_sent_back_as_a_string_whatever_its_type() {
    for (arguments, expected) in [
        (json!({ "n": 1 }), "{\"n\":1}"),
        (json!(null), "{}"),
        (json!(""), "{}"),
        (json!(" null"), "{}"),
        (json!("\"{\\\"n\\\":1}\""), "{\"n\":1}"),
        (json!(" {\"n\": 1}"), " {\"n\": 1}"),
    ] {
        let mut item = call(1, "");
        item["arguments"] = arguments;
        let reply = reply_of(&[done(0, &item), completed(&[])]).await;
        let mut body =
            OpenaiEncoder::new(&setup(&OpenaiDialect), RequestDialect { effort: None, has_openai_rules: true });
        body.push(&Message::Assistant(reply));
        let body: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
        assert_eq!(body["input"][0]["arguments"], expected);
    }
}

#[tokio::test]
async fn encrypted_reasoning_in_the_final_response_is_sent_back() {
    // As LiteLLM's proxy sends thoughts of Claude.
    let thought = json!({ "id": "rs_1", "type": "reasoning",
        "summary": [{ "type": "summary_text", "text": "Let me see." }] });
    let sealed = json!("[{\"type\":\"thinking\",\"thinking\":\"Let me see.\",\"signature\":\"sig=\"}]");
    let listed = json!({ "type": "reasoning", "id": "rs_1", "status": "completed", "role": "assistant",
        "content": [{ "type": "output_text", "text": "Let me see.", "annotations": [] }], "encrypted_content": sealed });
    let call = call(2, "{}");
    let mut known = thought.clone();
    known["encrypted_content"] = json!("enc");
    for (told, expected) in [(&thought, &sealed), (&known, &json!("enc"))] {
        let events = [done(0, told), done(1, &call), completed(&[listed.clone(), call.clone()])];
        let reply = reply_of(&events).await;
        assert_eq!(shown(&reply), ["Let me see.", "call_2 glob {}"]);
        let mut body =
            OpenaiEncoder::new(&setup(&OpenaiDialect), RequestDialect { effort: None, has_openai_rules: false });
        body.push(&Message::Assistant(reply));
        let body: Value = serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap();
        let mut back = thought.clone();
        back["encrypted_content"] = expected.clone();
        assert_eq!(body["input"][0], back);
    }
}

#[tokio::test]
async fn messages_of_one_reply_are_separated_by_blank_lines() {
    let mut second = message("Two.");
    second["id"] = json!("msg_2");
    let events = [told(0, &message("One.")), told(1, &second), vec![completed(&[])]].concat();
    assert_eq!(heard(&events).await, "One.\n\nTwo.");
}

fn parts(texts: &[&str]) -> Value {
    let mut item = message("");
    let part = |text: &&str| json!({ "type": "output_text", "text": text, "annotations": [] });
    item["content"] = texts.iter().map(part).collect();
    item
}

/// The events for a part of the first item: its deltas, and its end.
fn part_said(index: Option<u64>, pieces: &[&str], end: Option<&str>) -> Vec<Value> {
    let event = |kind: &str, name: &str, text: &str| {
        let mut event = json!({ "type": format!("response.output_text.{kind}"), "output_index": 0, name: text });
        if let Some(index) = index {
            event["content_index"] = json!(index);
        }
        event
    };
    let deltas = pieces.iter().map(|piece| event("delta", "delta", piece));
    deltas.chain(end.map(|all| event("done", "text", all))).collect()
}

async fn heard(events: &[Value]) -> String {
    let (reply, _, requests) =
        ask_once(&OpenaiDialect, vec![ScriptedResponse::stream([sent(events).concat().as_bytes()])]).await;
    assert_eq!(requests, 1);
    reply.unwrap().text()
}

#[tokio::test]
async fn a_part_without_deltas_is_found_in_any_event() {
    let first = |index, end| part_said(index, &["On", "e, "], end);
    let whole = parts(&["One, ", "two."]);
    let part_done = |index: u64, text: &str| {
        json!({ "type": "response.content_part.done", "output_index": 0,
        "content_index": index, "part": { "type": "output_text", "text": text, "annotations": [] } })
    };
    let begun = || vec![begun(0, &message(""))];
    for (name, events) in [
        ("in its own end", [begun(), first(Some(0), Some("One, ")), part_said(Some(1), &[], Some("two."))].concat()),
        ("without numbers", [begun(), first(None, Some("One, ")), part_said(None, &[], Some("two."))].concat()),
        ("all zero", [begun(), first(Some(0), Some("One, ")), part_said(Some(0), &["two."], Some("two."))].concat()),
        (
            "in the end of the part",
            [begun(), first(Some(0), None), vec![part_done(0, "One, "), part_done(1, "two.")]].concat(),
        ),
        ("an end that says more", [begun(), part_said(Some(0), &["One"], Some("One, two."))].concat()),
        ("in the item", [begun(), first(Some(0), None), vec![done(0, &whole)]].concat()),
    ] {
        for end in [completed(std::slice::from_ref(&whole)), completed(&[])] {
            assert_eq!(heard(&[&events[..], &[end]].concat()).await, "One, two.", "{name}");
        }
    }
    // The response has more than the item's final event.
    let events =
        [begun(), first(Some(0), Some("One, ")), vec![done(0, &parts(&["One, "])), completed(&[whole])]].concat();
    assert_eq!(heard(&events).await, "One, two.");
}

#[tokio::test]
async fn an_item_that_is_only_in_the_response_keeps_its_position() {
    let second = |text: &str| {
        let mut second = message(text);
        second["id"] = json!("msg_2");
        second
    };
    let known = || told(0, &message("One."));
    let mut events = known();
    events.push(completed(&[message("One."), second("Two.")]));
    assert_eq!(heard(&events).await, "One.\n\nTwo.");
    let mut events = known();
    events.push(completed(&[second("Zero."), message("One.")]));
    assert_eq!(heard(&events).await, "Zero.\n\nOne.");
    let events =
        [told(0, &call(1, "{\"n\":1}")), vec![completed(&[call(2, "{\"n\":2}"), call(1, "{\"n\":1}")])]].concat();
    assert_eq!(shown(&reply_of(&events).await), ["call_2 glob {\"n\":2}", "call_1 glob {\"n\":1}"]);
    // If the response has less of an item than its events, the events count.
    let mut events = known();
    events.push(completed(&[parts(&[])]));
    assert_eq!(heard(&events).await, "One.");
}

#[tokio::test]
async fn unknown_and_invalid_fields_are_ignored() {
    let mut end = completed(&[message("Hi!")]);
    end["response"]["output"].as_array_mut().unwrap().insert(0, json!(null));
    end["response"]["incomplete_details"] = json!("");
    for usage in [json!("?"), json!({ "input_tokens": 10.0, "output_tokens": 2.0, "input_tokens_details": [] })] {
        end["response"]["usage"] = usage.clone();
        let odd =
            json!({ "type": "response.tea.brewed", "delta": { "cups": 2 }, "item": 7, "item_id": [], "text": {} });
        let reply = reply_of(&[odd, end.clone()]).await;
        assert_eq!(shown(&reply), ["Hi!"]);
        assert_eq!(reply.usage.input_tokens == 10, usage.is_object());
    }
}

#[tokio::test]
async fn the_status_of_a_response_determines_its_ending() {
    let ending = |kind: &str, status: &str, reason: Option<&str>| json!({ "type": kind, "response": response(&[message("Hi!")], status, reason) });
    for (end, stop) in [
        (ending("response.done", "completed", None), StopReason::EndTurn),
        (ending("response.done", "incomplete", Some("max_output_tokens")), StopReason::MaxTokens),
        (ending("response.completed", "incomplete", Some("content_filter")), StopReason::Refusal),
    ] {
        assert_eq!(reply_of(&[end]).await.stop, stop);
    }
    let mut with_error = ending("response.completed", "completed", None);
    with_error["response"]["error"] = json!({ "code": "server_error", "message": "sorry" });
    for failed in [ending("response.completed", "failed", None), ending("response.done", "cancelled", None), with_error]
    {
        let answers = [failed, completed(&[message("Hi!")])]
            .map(|end| ScriptedResponse::stream([sent(&[end]).concat().as_bytes()]));
        assert_eq!(ask_once(&OpenaiDialect, answers.to_vec()).await.2, 2);
    }
    let mut bare = response(&[message("Hi!")], "completed", None);
    for name in ["object", "status"] {
        bare.as_object_mut().unwrap().shift_remove(name);
    }
    let answer = ScriptedResponse::new("200 OK", "content-type: application/json\r\n", &bare.to_string());
    assert_eq!(ask_once(&OpenaiDialect, vec![answer]).await.0.unwrap().stop, StopReason::EndTurn);
}
