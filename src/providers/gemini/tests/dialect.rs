//! The Gemini API's dialect for the conformance suite.

use serde_json::{Value, json};

use crate::message::Usage;
use crate::providers::ProviderSpec;
use crate::providers::assembler::ReplyAssembler;
use crate::providers::conformance_tests::{
    ParsedRequest, ReplyEnding, ReplyPart, ReplySpec, RequestTurn, TEST_KEY, USAGE, WireDialect, read,
};
use crate::providers::gemini::reply::GeminiDecoder;

pub(crate) struct GeminiDialect;

/// The signature in a call, which represents the model's thoughts before it.
pub(super) const SIGNED: &str = "EhcKFQHRFKi4cGl6emE=";

/// A response with these parts, given as the API's JSON. The last response has a finish reason and the final usage.
pub(super) fn response(parts: &[String], reason: Option<&str>) -> String {
    let end = reason.map(|reason| format!(r#","finishReason":"{reason}""#)).unwrap_or_default();
    let mut counts = json!({ "promptTokenCount": 22, "cachedContentTokenCount": 7, "totalTokenCount": 22,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 22 }] });
    if reason.is_some() {
        counts["candidatesTokenCount"] = json!(12);
        counts["thoughtsTokenCount"] = json!(30);
        counts["totalTokenCount"] = json!(64);
    }
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{}],"role":"model"}}{end},"index":0}}],"usageMetadata":{counts},"modelVersion":"gemini-3.8-flash-002","responseId":"kd0haeCO"}}"#,
        parts.join(",")
    )
}

/// The events that stream these responses.
pub(super) fn sent(responses: &[String]) -> Vec<String> {
    responses.iter().map(|response| format!("data: {response}\n\n")).collect()
}

fn word(ending: ReplyEnding) -> &'static str {
    match ending {
        ReplyEnding::EndTurn | ReplyEnding::ToolUse => "STOP",
        ReplyEnding::MaxTokens => "MAX_TOKENS",
        ReplyEnding::Refusal => "PROHIBITED_CONTENT",
    }
}

/// The pieces that a part is streamed in: text is split, calls are whole. An input that isn't JSON is sent as a string.
fn pieces(part: &ReplyPart, is_first: bool) -> Vec<String> {
    match part {
        ReplyPart::Text(pieces) => pieces.iter().map(|piece| json!({ "text": piece }).to_string()).collect(),
        ReplyPart::Thought(text) => {
            let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
            [head, tail].map(|piece| json!({ "text": piece, "thought": true }).to_string()).to_vec()
        }
        ReplyPart::Call(id, tool, pieces) => {
            let id = if id.is_empty() { String::new() } else { format!(r#","id":"{id}""#) };
            let input = pieces.concat();
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&input).is_ok();
            let args = if is_json { input } else { json!(input).to_string() };
            let signature = if is_first { format!(r#","thoughtSignature":"{SIGNED}""#) } else { String::new() };
            vec![format!(r#"{{"functionCall":{{"name":{},"args":{args}{id}}}{signature}}}"#, json!(tool))]
        }
    }
}

fn all_pieces(parts: &[ReplyPart]) -> Vec<String> {
    let first = parts.iter().position(|part| matches!(part, ReplyPart::Call(..)));
    parts.iter().enumerate().flat_map(|(place, part)| pieces(part, first == Some(place))).collect()
}

impl WireDialect for GeminiDialect {
    fn spec(&self) -> &'static ProviderSpec {
        &crate::providers::gemini::SPEC
    }

    fn variables(&self, url: &str) -> Vec<(&'static str, String)> {
        vec![("GEMINI_API_KEY", TEST_KEY.to_owned()), ("GOOGLE_GEMINI_BASE_URL", format!("{url}/"))]
    }

    fn request_line(&self) -> &'static str {
        "POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse HTTP/1.1"
    }

    fn model(&self) -> [&'static str; 2] {
        ["gemini-3.8-flash", "gemini-3.8-flash-002"]
    }

    /// The API doesn't count tokens that are written to a cache.
    fn usage(&self) -> Usage {
        Usage { input_tokens: USAGE.input_tokens + USAGE.cache_write_tokens, cache_write_tokens: 0, ..USAGE }
    }

    fn events(&self, ReplySpec(parts, ending): &ReplySpec) -> Vec<String> {
        let mut responses: Vec<String> = all_pieces(parts).into_iter().map(|piece| response(&[piece], None)).collect();
        responses.push(response(&[r#"{"text":""}"#.to_owned()], Some(word(*ending))));
        sent(&responses)
    }

    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)> {
        read(ReplyAssembler::new(0, GeminiDecoder::default()), chunks)
    }

    fn unknown_event(&self) -> &'static str {
        "data: {}\n\ndata: {\"novelty\":[1],\"candidates\":null}\n\nevent: ping\ndata: {\"candidates\":7}\n\n\
         data: [DONE]\n\ndata: {\"candidates\":[{\"content\":{\"role\":\"model\"},\"index\":0}]}\n\n"
    }

    fn whole(&self, ReplySpec(parts, ending): &ReplySpec) -> Value {
        serde_json::from_str(&response(&all_pieces(parts), Some(word(*ending)))).unwrap()
    }

    fn error(&self, status: u16, message: &str) -> Value {
        let word = match status {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            _ => "INTERNAL",
        };
        json!({ "error": { "code": status, "message": message, "status": word } })
    }

    fn context_full_errors(&self) -> Vec<(u16, Value)> {
        let message = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).";
        vec![(400, self.error(400, message)), (400, json!([self.error(400, message)]))]
    }

    fn parse_request(&self, body: &Value) -> ParsedRequest {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let turn = |role: &str, part: &Value| {
            let (call, answer) = (&part["functionCall"], &part["functionResponse"]);
            match (role, call.is_object(), answer.is_object()) {
                ("model", true, false) => {
                    RequestTurn::Call(text(&call["id"]), text(&call["name"]), call["args"].clone())
                }
                ("user", false, true) => {
                    assert!(answer["name"].is_string(), "{answer}");
                    let response = answer["response"].as_object().unwrap();
                    let (outcome, words) = response.iter().next().unwrap();
                    assert!(response.len() == 1 && ["output", "error"].contains(&outcome.as_str()), "{answer}");
                    RequestTurn::ToolResult(text(&answer["id"]), text(words), outcome == "error")
                }
                ("user", false, false) => RequestTurn::User(text(&part["text"])),
                ("model", false, false) if part["thought"] == true => RequestTurn::Thought(text(&part["text"])),
                ("model", false, false) => RequestTurn::Text(text(&part["text"])),
                _ => panic!("{role}: {part}"),
            }
        };
        let turns = |content: Value| {
            let role = text(&content["role"]);
            list(&content["parts"]).iter().map(|part| turn(&role, part)).collect::<Vec<_>>()
        };
        ParsedRequest {
            // The path has the model and the method; the body doesn't.
            model: self.model()[0].to_owned(),
            streams: true,
            system: text(&body["systemInstruction"]["parts"][0]["text"]),
            tools: list(&body["tools"][0]["functionDeclarations"]).iter().map(|tool| text(&tool["name"])).collect(),
            may_call: body["toolConfig"]["functionCallingConfig"]["mode"] != "NONE",
            max_tokens: body["generationConfig"]["maxOutputTokens"].as_u64().unwrap(),
            turns: list(&body["contents"]).into_iter().flat_map(turns).collect(),
        }
    }

    fn conversation_json(&self, body: &str) -> String {
        body[body.find(r#""systemInstruction":"#).unwrap()..].strip_suffix("]}").unwrap().to_owned()
    }
}
