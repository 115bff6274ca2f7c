use serde_json::json;

use super::*;
use crate::job::Thinking;
use crate::providers::conformance_tests::{TEST_KEY, connect, setup};
use crate::providers::openai_chat::SPEC;
use crate::providers::openai_chat::request::{OpenaiChatEncoder, RequestDialect};
use crate::providers::transport::http_conversation::RequestEncoder as _;
use crate::providers::{ConversationConfig, ProviderErrorKind};

const ELSEWHERE: RequestDialect = RequestDialect { effort: None, has_openai_rules: false, takes_cache_key: false };

fn written(setup: &ConversationConfig, way: RequestDialect) -> Value {
    let mut body = OpenaiChatEncoder::new(setup, way);
    body.push(&Message::User(UserMessage::text("Hello")));
    serde_json::from_slice(&body.body_chunks(&request()).concat()).unwrap()
}

#[test]
fn a_request_is_what_the_api_expects() {
    let function =
        |name: &str| json!({ "name": name, "description": "does \"it\"", "parameters": { "type": "object" } });
    let mut expected = json!({
        "model": "gpt-4.1", "max_tokens": 8000, "stream": true, "stream_options": { "include_usage": true },
        "tools": [
            { "type": "function", "function": function("glob") },
            { "type": "function", "function": function("grep") },
        ],
        "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hello" }],
    });
    assert_eq!(written(&setup(&OpenaiChatDialect), ELSEWHERE), expected);
    let own = RequestDialect { effort: Some("low"), has_openai_rules: true, takes_cache_key: true };
    let at_openai = written(&setup(&OpenaiChatDialect), own);
    expected.as_object_mut().unwrap().shift_remove("max_tokens");
    expected["max_completion_tokens"] = json!(8000);
    expected["reasoning_effort"] = json!("low");
    let key = at_openai["prompt_cache_key"].as_str().unwrap();
    assert!(key.starts_with("legwork-") && key.len() <= 64, "{key}");
    expected["prompt_cache_key"] = json!(key);
    assert_eq!(at_openai, expected);
    assert_eq!(written(&setup(&OpenaiChatDialect), own)["prompt_cache_key"], key);
    let other = ConversationConfig { agent: "explorer-1".to_owned(), ..setup(&OpenaiChatDialect) };
    assert_ne!(written(&other, own)["prompt_cache_key"], key);
}

#[test]
fn temperature_and_stop_sequences_are_sent_if_the_model_accepts_them() {
    let asked = |name: &str, temperature: f64, stop: &[&str]| {
        let mut setup = setup(&OpenaiChatDialect);
        (setup.model.name, setup.model.temperature) = (name.to_owned(), Some(temperature));
        setup.model.stop = stop.iter().map(|text| (*text).to_owned()).collect();
        let body = written(&setup, ELSEWHERE);
        ["temperature", "stop"].map(|name| body.get(name).cloned())
    };
    assert_eq!(asked("somebodys-own", 1.5, &["END", "\n"]), [json!(1.5), json!(["END", "\n"])].map(Some));
    assert_eq!(asked("o3", 1.0, &[]), [None, None]);
}

#[test]
fn consecutive_texts_are_merged() {
    let mut body = OpenaiChatEncoder::new(&setup(&OpenaiChatDialect), ELSEWHERE);
    for text in ["say \"a\"", "b\nc"] {
        body.push(&Message::User(UserMessage::text(text)));
    }
    let whole = body.body_chunks(&request()).concat();
    let sent: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(sent["messages"][1]["content"], "say \"a\"\n\nb\nc");
    assert_eq!(sent["messages"].as_array().unwrap().len(), 2);
    let head = sent["messages"].to_string().len() + sent["tools"].to_string().len();
    assert!(body.prompt_bytes().abs_diff(head) < 30);
}

#[tokio::test]
async fn other_servers_get_the_effort_unchanged_and_need_no_key() {
    let body = stream(&[json!({ "content": "Hi" })], "stop");
    let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()])]).await;
    let provider = connect(&SPEC, &[("OPENAI_BASE_URL", format!("{}/api/", server.url))]).unwrap();
    let mut setup = setup(&OpenaiChatDialect);
    (setup.model.name, setup.model.thinking) = ("somebodys-own".to_owned(), Some(Thinking::Off));
    let mut conversation = provider.open(setup).unwrap();
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /api/chat/completions HTTP/1.1");
    assert_eq!(received.headers.get("authorization"), None);
    assert_eq!(received.json()["reasoning_effort"], "none");
    assert_eq!(received.json()["max_tokens"], 8000);
    assert_eq!(received.json().get("prompt_cache_key"), None);
}

#[tokio::test]
async fn a_rejected_option_is_left_out_at_once_and_permanently() {
    let mistral = json!({ "object": "error", "message": { "detail": [{ "type": "extra_forbidden", "loc": ["body",
        "stream_options", "include_usage"], "msg": "Extra inputs are not permitted", "input": true }] },
        "type": "invalid_request_error", "param": null, "code": null });
    let openais = json!({ "error": { "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
        'max_completion_tokens' instead.", "type": "invalid_request_error", "param": "max_tokens",
        "code": "unsupported_parameter" } });
    let refusing = |status: &str, body: &Value| {
        ScriptedResponse::new(status, "content-type: application/json\r\n", &body.to_string())
    };
    let good = ScriptedResponse::stream([stream(&[json!({ "content": "Hi" })], "stop").as_bytes()]);
    let answers =
        [refusing("422 Unprocessable Entity", &mistral), refusing("500 Internal Server Error", &openais), good];
    let server = ScriptedServer::start(answers).await;
    let mut conversation = prompted(&OpenaiChatDialect, &server.url);
    let seen = RecordingObserver::default();
    for _ in 0..2 {
        conversation.ask(request(), &seen).await.unwrap();
    }
    assert!(seen.retries.lock().unwrap().is_empty());
    let said: Vec<[bool; 3]> = server
        .received()
        .iter()
        .map(|request| {
            ["stream_options", "max_tokens", "max_completion_tokens"].map(|name| request.json().get(name).is_some())
        })
        .collect();
    assert_eq!(said, [[true, true, false], [false, true, false], [false, false, true], [false, false, true]]);
    // The request is changed and sent again only once.
    let refused = || refusing("400 Bad Request", &openais);
    let (fault, _, requests) = ask_once(&OpenaiChatDialect, vec![refused(), refused(), refused()]).await;
    assert_eq!((fault.unwrap_err().kind, requests), (ProviderErrorKind::Rejected, 2));
}

#[tokio::test]
async fn credentials_in_the_url_take_precedence_over_the_key() {
    let body = stream(&[json!({ "content": "Hi" })], "stop");
    let server = ScriptedServer::start([ScriptedResponse::stream([body.as_bytes()])]).await;
    let base = server.url.replace("http://", "http://me:letmein@");
    let variables = [("OPENAI_BASE_URL", base), ("OPENAI_API_KEY", TEST_KEY.to_owned())];
    let mut conversation = connect(&SPEC, &variables).unwrap().open(setup(&OpenaiChatDialect)).unwrap();
    conversation.push(&Message::User(UserMessage::text("Hello")));
    conversation.ask(request(), &RecordingObserver::default()).await.unwrap();
    assert_eq!(server.received()[0].headers["authorization"], "Basic bWU6bGV0bWVpbg==");
}

#[test]
fn a_warning_names_the_address_that_everything_is_sent_to() {
    let variables = [("OPENAI_BASE_URL", "http://gate.example/v1".to_owned()), ("OPENAI_API_KEY", TEST_KEY.to_owned())];
    assert!(
        connect(&SPEC, &variables)
            .unwrap()
            .warning()
            .unwrap()
            .contains("the key is sent to http://gate.example/v1/chat")
    );
    let without = connect(&SPEC, &[("OPENAI_BASE_URL", "http://gate.example".to_owned())]).unwrap();
    assert!(without.warning().unwrap().contains("everything is sent to http://gate.example/chat/completions"));
}
