//! Reads what servers send as leniently as other clients do: text that isn't quite UTF-8, and answers with missing or unknown
//! parts. Whatever answers a request is passed on, so that no call waits for an answer that has arrived.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::sync::IgnorePoison;
use crate::text::surrogates;

/// The most requests whose answers are awaited.
const MAX_ASKED: usize = 10_000;

/// What was asked for, which says how an answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    ToolList,
    ToolCall,
}

/// Reads the messages of one server.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageReader {
    asked: Arc<Mutex<HashMap<RequestId, Asked>>>,
}

/// The parts of a response. The result may be too deeply nested to be read.
#[derive(Deserialize)]
struct Response<'a> {
    id: Option<RequestId>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl MessageReader {
    /// Must be called before a message is sent.
    pub(super) fn sending(&self, message: &ClientJsonRpcMessage) {
        let mut asked = self.asked.lock().ignore_poison();
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let what = match &request.request {
                    ClientRequest::ListToolsRequest(_) => Asked::ToolList,
                    ClientRequest::CallToolRequest(_) => Asked::ToolCall,
                    _ => return,
                };
                if asked.len() < MAX_ASKED {
                    asked.insert(request.id.clone(), what);
                }
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    asked.remove(id);
                }
            }
            _ => {}
        }
    }

    /// The messages in a JSON text, which may be a list of them. None if it is no message.
    pub(super) fn read(&self, bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        let text = surrogates::replace_unpaired(text);
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Array(messages)) => messages.into_iter().filter_map(|message| self.message(message)).collect(),
            Ok(message) => self.message(message).into_iter().collect(),
            Err(error) => match serde_json::from_str(&as_json(&text)) {
                Ok(message) => self.message(message).into_iter().collect(),
                Err(_) => self.unreadable_answer(&text, &error.to_string()).into_iter().collect(),
            },
        }
    }

    fn message(&self, mut message: Value) -> Option<ServerJsonRpcMessage> {
        let fields = message.as_object_mut()?;
        let mut id = fields.get("id").and_then(|id| RequestId::deserialize(id).ok());
        if fields.contains_key("error") && !fields.contains_key("method") {
            // A server that couldn't read a request doesn't know its id.
            id = id.or_else(|| self.only_asked());
            if let Some(id) = &id {
                self.take_asked(id);
                fields.insert("id".to_owned(), json!(id));
            }
        }
        if let Some(server) = fields.get_mut("result").and_then(|result| result.get_mut("serverInfo")) {
            complete_server_info(server);
        }
        let is_answer = fields.contains_key("result") && !fields.contains_key("method");
        if let Some(id) = id.as_ref().filter(|_| is_answer) {
            let asked = self.take_asked(id);
            if let Some(result) = fields.get_mut("result") {
                match asked {
                    Some(Asked::ToolList) => *result = tool_list(std::mem::take(result)),
                    Some(Asked::ToolCall) => *result = call_result(std::mem::take(result)),
                    None => {}
                }
            }
        }
        match serde_json::from_value(message) {
            Ok(message) => Some(message),
            Err(error) if is_answer => id.map(|id| refusal(id, &error.to_string())),
            Err(_) => None,
        }
    }

    /// Fails the request that an answer is for which can't be read, such as one with too many levels.
    fn unreadable_answer(&self, text: &str, why: &str) -> Option<ServerJsonRpcMessage> {
        let response: Response<'_> = serde_json::from_str(text).ok()?;
        let id = response.id.filter(|_| response.result.is_some())?;
        self.take_asked(&id);
        Some(refusal(id, why))
    }

    /// The request whose answer is awaited, if it is the only one.
    fn only_asked(&self) -> Option<RequestId> {
        let asked = self.asked.lock().ignore_poison();
        asked.keys().next().filter(|_| asked.len() == 1).cloned()
    }

    fn take_asked(&self, id: &RequestId) -> Option<Asked> {
        let mut asked = self.asked.lock().ignore_poison();
        let as_number = || Some(RequestId::Number(id.to_string().parse().ok()?));
        // Some servers make a text of the number.
        asked.remove(id).or_else(|| asked.remove(&as_number()?))
    }
}

/// The answer to a request whose own answer can't be used.
fn refusal(id: RequestId, why: &str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, format!("its answer can't be read: {why}"), None);
    ServerJsonRpcMessage::error(error, Some(id))
}

/// Adds the name and the version that the SDK requires of a server.
fn complete_server_info(server: &mut Value) {
    if !server.is_object() {
        *server = json!({});
    }
    for field in ["name", "version"] {
        if !server.get(field).is_some_and(Value::is_string) {
            server[field] =
                server.get(field).filter(|value| value.is_number()).map_or_else(String::new, Value::to_string).into();
        }
    }
}

/// A text that is almost JSON, as JSON: control characters in its strings are escaped, and the numbers that JSON doesn't have
/// are null.
fn as_json(text: &str) -> String {
    const NUMBERS: [&str; 4] = ["NaN", "-Infinity", "Infinity", "undefined"];
    let mut json = String::with_capacity(text.len());
    let (mut rest, mut is_string) = (text, false);
    while let Some(letter) = rest.chars().next() {
        let mut taken = letter.len_utf8();
        match letter {
            '"' => {
                is_string = !is_string;
                json.push('"');
            }
            '\\' if is_string => {
                let escaped = rest[taken..].chars().next();
                json.push('\\');
                json.extend(escaped);
                taken += escaped.map_or(0, char::len_utf8);
            }
            letter if is_string && u32::from(letter) < 0x20 => json += &format!("\\u{:04x}", u32::from(letter)),
            letter => match NUMBERS.iter().find(|number| !is_string && rest.starts_with(*number)) {
                Some(number) => {
                    json += "null";
                    taken = number.len();
                }
                None => json.push(letter),
            },
        }
        rest = &rest[taken..];
    }
    json
}

/// A list of tools with what is used of it.
fn tool_list(mut result: Value) -> Value {
    let tools = match result.get_mut("tools").map(Value::take) {
        Some(Value::Array(tools)) => tools,
        // Not a list of tools: the error is reported where it is used.
        _ => return result,
    };
    let tool = |tool: Value| {
        let Value::Object(mut fields) = tool else { return None };
        let name = fields.shift_remove("name").filter(Value::is_string)?;
        let schema = fields.shift_remove("inputSchema").filter(|schema| !schema.is_null());
        // Anything but an object is refused by the SDK, so it is refused here for this tool only.
        let schema = match schema {
            // Anything is valid.
            None | Some(Value::Bool(true)) => json!({}),
            Some(schema) if schema.is_object() => schema,
            Some(schema) => json!({ "type": schema }),
        };
        let mut kept = Map::from_iter([("name".to_owned(), name), ("inputSchema".to_owned(), schema)]);
        kept.extend(fields.shift_remove_entry("description").filter(|(_, text)| text.is_string()));
        Some(Value::Object(kept))
    };
    let mut list = Map::from_iter([("tools".to_owned(), tools.into_iter().filter_map(tool).collect())]);
    let next = result.get("nextCursor").and_then(Value::as_str).filter(|cursor| !cursor.is_empty());
    list.extend(next.map(|cursor| ("nextCursor".to_owned(), cursor.into())));
    Value::Object(list)
}

/// The result of a call with content that the SDK knows.
fn call_result(result: Value) -> Value {
    let Value::Object(mut fields) = result else { return json!({ "content": [text_block(result)] }) };
    if fields.get("resultType").is_some_and(|kind| kind != "complete") {
        return Value::Object(fields);
    }
    let blocks = match fields.shift_remove("content") {
        None | Some(Value::Null) => match fields.shift_remove("toolResult") {
            // The protocol of 2024-10-07 has this field.
            Some(Value::String(text)) => vec![text.into()],
            Some(data) if !data.is_null() => vec![data.to_string().into()],
            _ => Vec::new(),
        },
        Some(Value::Array(blocks)) => blocks,
        Some(block) => vec![block],
    };
    let mut kept = Map::from_iter([("content".to_owned(), blocks.into_iter().map(content_block).collect())]);
    kept.extend(fields.shift_remove_entry("structuredContent").filter(|(_, data)| !data.is_null()));
    kept.insert("isError".to_owned(), (fields.get("isError") == Some(&Value::Bool(true))).into());
    Value::Object(kept)
}

/// A block of content with what is used of it. One of an unknown kind becomes a note.
fn content_block(block: Value) -> Value {
    let Value::Object(mut fields) = block else { return text_block(block) };
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let has_text = |field: &str| fields.get(field).is_some_and(Value::is_string);
    match kind.as_str() {
        "text" => text_block(fields.shift_remove("text").unwrap_or_default()),
        "image" | "audio" if has_text("data") => {
            let media = fields.get("mimeType").and_then(Value::as_str).unwrap_or("unknown type");
            json!({ "type": kind, "data": fields.get("data"), "mimeType": media })
        }
        "resource" => resource_block(fields.get("resource")),
        "resource_link" if has_text("uri") => {
            let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
            let mut link = json!({ "type": kind, "uri": fields.get("uri"), "name": name });
            if has_text("description") {
                link["description"] = fields.shift_remove("description").unwrap_or_default();
            }
            link
        }
        _ => left_out(&kind),
    }
}

fn resource_block(resource: Option<&Value>) -> Value {
    let text = |field: &str| resource?.get(field).filter(|value| value.is_string());
    let uri = text("uri").cloned().unwrap_or_else(|| "unknown".into());
    match (text("text"), text("blob")) {
        (Some(text), _) => json!({ "type": "resource", "resource": { "uri": uri, "text": text } }),
        (None, Some(blob)) => {
            let mut resource = json!({ "uri": uri, "blob": blob });
            if let Some(media) = text("mimeType") {
                resource["mimeType"] = media.clone();
            }
            json!({ "type": "resource", "resource": resource })
        }
        (None, None) => left_out("resource"),
    }
}

fn left_out(kind: &str) -> Value {
    let what = if kind.is_empty() { "an unknown kind".to_owned() } else { format!("the kind `{kind}`") };
    json!({ "type": "text", "text": format!("[content of {what} was left out]") })
}

fn text_block(value: Value) -> Value {
    let text = match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    json!({ "type": "text", "text": text })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, ListToolsRequest, ServerResult};

    use super::*;

    /// What a reader makes of an answer to the request 1.
    fn answer(request: ClientRequest, answer: &[u8]) -> ServerJsonRpcMessage {
        let reader = MessageReader::default();
        reader.sending(&ClientJsonRpcMessage::request(request, RequestId::Number(1)));
        let mut messages = reader.read(answer);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(reader.asked.lock().unwrap().is_empty());
        messages.remove(0)
    }

    /// The text of the result of a call.
    fn called(result: &[u8]) -> String {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("echo")));
        let line = [br#"{"jsonrpc":"2.0","id":1,"result":"#, result, b"}"].concat();
        match answer(request, &line) {
            ServerJsonRpcMessage::Response(response) => match response.result {
                ServerResult::CallToolResult(result) => {
                    let output =
                        super::super::call_result::to_output(result, crate::attachment::MediaSupport::default());
                    output.map_or_else(|error| format!("error: {}", error.0), |output| output.text)
                }
                other => panic!("{other:?}"),
            },
            ServerJsonRpcMessage::Error(error) => format!("refused: {}", error.error.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_without_an_id_answers_the_only_request_and_a_server_needs_no_version() {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("echo")));
        let error = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
        match answer(request, error) {
            ServerJsonRpcMessage::Error(error) => {
                assert_eq!((error.id, &*error.error.message), (Some(RequestId::Number(1)), "Parse error"));
            }
            other => panic!("{other:?}"),
        }
        let info = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"odd"}}}"#;
        let read = MessageReader::default().read(info);
        assert!(
            matches!(&read[..], [ServerJsonRpcMessage::Response(response)] if matches!(response.result, ServerResult::InitializeResult(_))),
            "{read:?}"
        );
    }

    #[test]
    fn whatever_answers_a_call_is_its_answer() {
        for (result, expected) in [
            (r#"{"content":[{"type":"text","text":"a"}]}"#, "a"),
            (r#"{"content":[{"type":"text","text":"a","annotations":5}],"isError":null,"_meta":7}"#, "a"),
            (r#"{"content":[{"type":"text","text":"x \ud83d y"}]}"#, "x \u{fffd} y"),
            ("{}", "(no output)"),
            ("{\"content\":[{\"type\":\"text\",\"text\":\"a\u{1}b\\\"\tc\"}]}", "a\u{1}b\"\tc"),
            (r#"{"content":[],"structuredContent":{"a":NaN,"b":[-Infinity,"NaN"]}}"#, r#"{"a":null,"b":[null,"NaN"]}"#),
            (r#"{"toolResult":"old"}"#, "old"),
            (r#"{"toolResult":{"a":1}}"#, r#"{"a":1}"#),
            (r#"{"content":null}"#, "(no output)"),
            (r#"{"content":null,"structuredContent":{"r":1}}"#, r#"{"r":1}"#),
            (r#"{"structuredContent":[1]}"#, "[1]"),
            (r#"{"content":"plain"}"#, "plain"),
            (r#""plain""#, "plain"),
            (r#"{"content":["plain",{"type":"text","text":42}]}"#, "plain\n\n42"),
            (
                r#"{"content":[{"type":"text","text":"a"},{"type":"video","data":"x"},{}]}"#,
                "a\n\n[content of the kind `video` was left out]\n\n[content of an unknown kind was left out]",
            ),
            (r#"{"content":[{"type":"image","data":"AAAA"}]}"#, "[an image was left out: unknown type, 3 bytes]"),
            (r#"{"content":[{"type":"resource","resource":{"text":"a"}}]}"#, "[resource unknown]\na"),
            (r#"{"content":[{"type":"resource"}]}"#, "[content of the kind `resource` was left out]"),
            (r#"{"content":[{"type":"resource_link","uri":"a:b"}]}"#, "[link to the resource a:b ()]"),
            (r#"{"content":[{"type":"text","text":"a"}],"isError":true}"#, "error: a"),
        ] {
            assert_eq!(called(result.as_bytes()), expected, "{result}");
        }
        assert_eq!(called(b"{\"content\":[{\"type\":\"text\",\"text\":\"caf\xe9\"}]}"), "caf\u{fffd}");
        let deep = format!("{{\"structuredContent\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(called(deep.as_bytes()).contains("its answer can't be read: recursion limit"));
    }

    #[test]
    fn lists_of_tools_are_read_without_what_is_not_used() {
        let list = |result: &str| {
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::default());
            match answer(request, format!(r#"{{"jsonrpc":"2.0","id":"1","result":{result}}}"#).as_bytes()) {
                ServerJsonRpcMessage::Response(response) => match response.result {
                    ServerResult::ListToolsResult(list) => list,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        let odd = list(
            r#"{"tools":[{"name":"a","description":null,"inputSchema":null,"icons":5,"title":7},{"name":3},"x",
                {"name":"b","description":"B","inputSchema":{"type":"object"},"annotations":"y"}],
                "nextCursor":"","ttlMs":-1,"resultType":null}"#,
        );
        let names: Vec<&str> = odd.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!((names, odd.next_cursor), (vec!["a", "b"], None));
        assert_eq!(list(r#"{"tools":[],"nextCursor":"2"}"#).next_cursor.as_deref(), Some("2"));
        assert_eq!(list(r#"{"tools":[],"nextCursor":null}"#).next_cursor, None);
    }

    #[test]
    fn other_texts_are_no_messages() {
        let reader = MessageReader::default();
        for text in ["", "listening on stdio", "{", "[1, 2]", "7", r#"{"jsonrpc":"2.0"}"#] {
            assert!(reader.read(text.as_bytes()).is_empty(), "{text}");
        }
        let note = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(reader.read(format!("\u{feff}[{note},{note}]\r").as_bytes()).len(), 2);
    }
}
