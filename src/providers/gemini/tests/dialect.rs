//! The Gemini API for the suite that all providers pass.

use serde_json::{Value, json};

use crate::message::Usage;
use crate::providers::Entry;
use crate::providers::conformance::{Dialect, Ending, Heard, Part, SECRET, Said, Turn, USAGE, read};
use crate::providers::gemini::reply::Growth;

pub(crate) struct Spoken;

/// What stands for the thoughts before a call.
pub(super) const SIGNED: &str = "EhcKFQHRFKi4cGl6emE=";

/// A response with these parts in the API's own JSON; the last one has a reason and the whole count.
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

/// Responses as a server streams them.
pub(super) fn sent(responses: &[String]) -> Vec<String> {
    responses.iter().map(|response| format!("data: {response}\n\n")).collect()
}

fn word(ending: Ending) -> &'static str {
    match ending {
        Ending::Said | Ending::Called => "STOP",
        Ending::Cut => "MAX_TOKENS",
        Ending::Refused => "PROHIBITED_CONTENT",
    }
}

/// A part in the pieces in which it comes: texts in any, calls whole. What is no JSON comes in a text.
fn pieces(part: &Part, is_first: bool) -> Vec<String> {
    match part {
        Part::Text(pieces) => pieces.iter().map(|piece| json!({ "text": piece }).to_string()).collect(),
        Part::Thought(text) => {
            let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
            [head, tail].map(|piece| json!({ "text": piece, "thought": true }).to_string()).to_vec()
        }
        Part::Call(id, tool, pieces) => {
            let id = if id.is_empty() { String::new() } else { format!(r#","id":"{id}""#) };
            let input = pieces.concat();
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&input).is_ok();
            let args = if is_json { input } else { json!(input).to_string() };
            let signature = if is_first { format!(r#","thoughtSignature":"{SIGNED}""#) } else { String::new() };
            vec![format!(r#"{{"functionCall":{{"name":{},"args":{args}{id}}}{signature}}}"#, json!(tool))]
        }
    }
}

fn all_pieces(parts: &[Part]) -> Vec<String> {
    let first = parts.iter().position(|part| matches!(part, Part::Call(..)));
    parts.iter().enumerate().flat_map(|(place, part)| pieces(part, first == Some(place))).collect()
}

impl Dialect for Spoken {
    fn entry(&self) -> &'static Entry {
        &crate::providers::gemini::ENTRY
    }

    fn variables(&self, url: &str) -> Vec<(&'static str, String)> {
        vec![("GEMINI_API_KEY", SECRET.to_owned()), ("GOOGLE_GEMINI_BASE_URL", format!("{url}/"))]
    }

    fn line(&self) -> &'static str {
        "POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse HTTP/1.1"
    }

    fn model(&self) -> [&'static str; 2] {
        ["gemini-3.8-flash", "gemini-3.8-flash-002"]
    }

    /// It doesn't count what is written to a cache.
    fn usage(&self) -> Usage {
        Usage { input_tokens: USAGE.input_tokens + USAGE.cache_write_tokens, cache_write_tokens: 0, ..USAGE }
    }

    fn events(&self, Said(parts, ending): &Said) -> Vec<String> {
        let mut responses: Vec<String> = all_pieces(parts).into_iter().map(|piece| response(&[piece], None)).collect();
        responses.push(response(&[r#"{"text":""}"#.to_owned()], Some(word(*ending))));
        sent(&responses)
    }

    fn read(&self, chunks: &[&[u8]]) -> Option<(usize, String)> {
        read(Growth::new(0), chunks)
    }

    fn noise(&self) -> &'static str {
        "data: {}\n\ndata: {\"novelty\":[1],\"candidates\":null}\n\nevent: ping\ndata: {\"candidates\":7}\n\n\
         data: [DONE]\n\ndata: {\"candidates\":[{\"content\":{\"role\":\"model\"},\"index\":0}]}\n\n"
    }

    fn whole(&self, Said(parts, ending): &Said) -> Value {
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

    fn full(&self) -> Vec<(u16, Value)> {
        let message = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).";
        vec![(400, self.error(400, message)), (400, json!([self.error(400, message)]))]
    }

    fn hear(&self, body: &Value) -> Heard {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let turn = |role: &str, part: &Value| {
            let (call, answer) = (&part["functionCall"], &part["functionResponse"]);
            match (role, call.is_object(), answer.is_object()) {
                ("model", true, false) => Turn::Call(text(&call["id"]), text(&call["name"]), call["args"].clone()),
                ("user", false, true) => {
                    assert!(answer["name"].is_string(), "{answer}");
                    let response = answer["response"].as_object().unwrap();
                    let (outcome, words) = response.iter().next().unwrap();
                    assert!(response.len() == 1 && ["output", "error"].contains(&outcome.as_str()), "{answer}");
                    Turn::Answered(text(&answer["id"]), text(words), outcome == "error")
                }
                ("user", false, false) => Turn::User(text(&part["text"])),
                ("model", false, false) if part["thought"] == true => Turn::Thought(text(&part["text"])),
                ("model", false, false) => Turn::Text(text(&part["text"])),
                _ => panic!("{role}: {part}"),
            }
        };
        let turns = |content: Value| {
            let role = text(&content["role"]);
            list(&content["parts"]).iter().map(|part| turn(&role, part)).collect::<Vec<_>>()
        };
        Heard {
            // These two stand in the first line.
            model: self.model()[0].to_owned(),
            streams: true,
            system: text(&body["systemInstruction"]["parts"][0]["text"]),
            tools: list(&body["tools"][0]["functionDeclarations"]).iter().map(|tool| text(&tool["name"])).collect(),
            may_call: body["toolConfig"]["functionCallingConfig"]["mode"] != "NONE",
            max_tokens: body["generationConfig"]["maxOutputTokens"].as_u64().unwrap(),
            turns: list(&body["contents"]).into_iter().flat_map(turns).collect(),
        }
    }

    fn conversation(&self, body: &str) -> String {
        body[body.find(r#""systemInstruction":"#).unwrap()..].strip_suffix("]}").unwrap().to_owned()
    }
}
