//! The result of a call as text for the model, and images and PDFs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::attachment::{Attachment, MediaSupport, MediaType};
use crate::message::ToolError;
use crate::tools::ToolOutput;

/// Converts a result: its texts, its resources and its data become text. Images and PDFs are attached if the model takes them. What
/// is neither is left out with a note.
pub(super) fn to_output(result: CallToolResult, media: MediaSupport) -> Result<ToolOutput, ToolError> {
    let is_error = result.is_error == Some(true);
    // An error is text only.
    let media = if is_error { MediaSupport::default() } else { media };
    let mut attachments = Vec::new();
    let mut parts: Vec<String> =
        result.content.iter().map(|block| block_text(block, media, &mut attachments)).collect();
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
    if is_error { Err(ToolError(text)) } else { Ok(ToolOutput { text, attachments, ..ToolOutput::default() }) }
}

/// Whether a text says what the data says: the same JSON, or its only value, as the official SDK for Python wraps a text.
fn repeats(text: &str, data: &Value) -> bool {
    let only = data.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
    only.and_then(Value::as_str) == Some(text)
        || serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *data)
}

fn block_text(block: &ContentBlock, media: MediaSupport, attachments: &mut Vec<Attachment>) -> String {
    let mut file = |what: &str, kind: &str, data: &str| match attachment(data, media) {
        Ok(Some(attachment)) => {
            let text = format!("[{}]", attachment.describe());
            attachments.push(attachment);
            text
        }
        Ok(None) => left_out(what, kind, data.len()),
        Err(why) => format!("[{what} was left out: it {why}]"),
    };
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => file("an image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                file(&format!("the resource {uri}"), mime_type.as_deref().unwrap_or("unknown type"), blob)
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

/// The image or PDF in base64, whatever the server calls it; `None` if the model doesn't take it.
///
/// # Errors
/// It is damaged or too large.
fn attachment(data: &str, media: MediaSupport) -> Result<Option<Attachment>, String> {
    let Ok(bytes) = STANDARD.decode(data) else { return Ok(None) };
    match MediaType::detect(&bytes).filter(|kind| media.takes(*kind)) {
        Some(kind) => Attachment::new(kind, bytes).map(Some),
        None => Ok(None),
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
        let output = to_output(serde_json::from_value(result).unwrap(), MediaSupport::default());
        output.map(|output| output.text).map_err(|error| error.0)
    }

    #[test]
    fn images_go_to_models_that_take_them() {
        let image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0sum.\0\0\0\0IENDsum.";
        let result = |bytes: &[u8]| {
            let block = json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": "text/plain" });
            serde_json::from_value::<CallToolResult>(json!({ "content": [block] })).unwrap()
        };
        let shown = to_output(result(image), MediaSupport::ALL).unwrap();
        assert_eq!(shown.text, "[PNG image, 2 x 3 pixels, 45 bytes]");
        assert_eq!(shown.attachments[0].data, image.as_slice());
        let cut = to_output(result(&image[..40]), MediaSupport::ALL).unwrap();
        assert_eq!(cut.text, "[an image was left out: it is a PNG image that is cut off or damaged]");
        assert!(cut.attachments.is_empty());
        assert!(
            to_output(result(image), MediaSupport::default())
                .unwrap()
                .text
                .contains("an image was left out: text/plain")
        );
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
