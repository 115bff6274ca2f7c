//! The result of a call as text for the model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::message::ToolError;

/// Converts a result to text: its texts, its resources and its data. What isn't text is left out with a note.
pub(super) fn to_text(result: CallToolResult) -> Result<String, ToolError> {
    let mut parts: Vec<String> = result.content.iter().map(block_text).collect();
    if let Some(data) = result.structured_content {
        // Servers repeat the data as text for clients that don't know it.
        let is_repeated =
            |block: &ContentBlock| matches!(block, ContentBlock::Text(text) if repeats(&text.text, &data));
        if !result.content.iter().any(is_repeated) {
            parts.push(data.to_string());
        }
    }
    parts.retain(|part| !part.is_empty());
    let text = if parts.is_empty() { "(no output)".to_owned() } else { parts.join("\n\n") };
    if result.is_error == Some(true) { Err(ToolError(text)) } else { Ok(text) }
}

/// Whether a text says what the data says: the same JSON, or its only value, as the official SDK for Python wraps a text.
fn repeats(text: &str, data: &Value) -> bool {
    let only = data.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
    only.and_then(Value::as_str) == Some(text)
        || serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *data)
}

fn block_text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => left_out("an image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                left_out(&format!("the resource {uri}"), kind, blob.len())
            }
            _ => "[a resource of an unknown kind was left out]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let description = link.description.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("[link to the resource {} ({}){description}]", link.uri, link.name)
        }
        _ => "[content of an unknown kind was left out]".to_owned(),
    }
}

/// The note for content that isn't text. `encoded` is its length in base64.
fn left_out(what: &str, kind: &str, encoded: usize) -> String {
    format!("[{what} was left out: {kind}, {} bytes]", encoded / 4 * 3)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(result: Value) -> Result<String, String> {
        to_text(serde_json::from_value(result).unwrap()).map_err(|error| error.0)
    }

    #[test]
    fn everything_becomes_text() {
        let content = json!([
            { "type": "text", "text": "one" },
            { "type": "image", "data": "AAAAAAAA", "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "AAAA", "mimeType": "application/pdf" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c", "description": "three" },
        ]);
        assert_eq!(
            text(json!({ "content": content })).unwrap(),
            "one\n\n[an image was left out: image/png, 6 bytes]\n\n[resource file:///a]\ntwo\n\n[the resource file:///b was \
             left out: application/pdf, 3 bytes]\n\n[link to the resource file:///c (c): three]"
        );
        assert_eq!(text(json!({ "content": [] })).unwrap(), "(no output)");
        assert_eq!(text(json!({ "content": [], "isError": true })).unwrap_err(), "(no output)");
    }

    #[test]
    fn data_is_added_unless_a_text_repeats_it() {
        let data = json!({ "a": [1, 2] });
        assert_eq!(text(json!({ "content": [], "structuredContent": data })).unwrap(), r#"{"a":[1,2]}"#);
        let wrapped =
            json!({ "content": [{ "type": "text", "text": "one" }], "structuredContent": { "result": "one" } });
        assert_eq!(text(wrapped).unwrap(), "one");
        let repeated = json!([{ "type": "text", "text": "{ \"a\": [1, 2] }" }]);
        assert_eq!(text(json!({ "content": repeated, "structuredContent": data })).unwrap(), "{ \"a\": [1, 2] }");
    }
}
