//! The result of a call, as the model gets it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::attachment::{Attachment, MAX_BYTES, MediaType};
use crate::message::ToolError;
use crate::tools::ToolOutput;

/// Converts a result: its texts, its resources and its data to text, its images and PDFs to attachments. What is neither is
/// left out with a note. An error is only text.
pub(super) fn to_output(result: CallToolResult) -> Result<ToolOutput, ToolError> {
    let is_error = result.is_error == Some(true);
    let mut attachments = (!is_error).then(Vec::new);
    let mut parts: Vec<String> = result.content.iter().map(|block| block_text(block, &mut attachments)).collect();
    if let Some(data) = result.structured_content {
        // Servers repeat the data as text for clients that don't know it.
        let is_repeated =
            |block: &ContentBlock| matches!(block, ContentBlock::Text(text) if is_same_json(&text.text, &data));
        if !result.content.iter().any(is_repeated) {
            parts.push(data.to_string());
        }
    }
    parts.retain(|part| !part.is_empty());
    let text = if parts.is_empty() { "(no output)".to_owned() } else { parts.join("\n\n") };
    match attachments {
        Some(attachments) => Ok(ToolOutput { text, attachments }),
        None => Err(ToolError(text)),
    }
}

fn is_same_json(text: &str, data: &Value) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *data)
}

fn block_text(block: &ContentBlock, attachments: &mut Option<Vec<Attachment>>) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            attach(&image.data, attachments).unwrap_or_else(|| left_out("an image", &image.mime_type, image.data.len()))
        }
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                match attach(blob, attachments) {
                    Some(note) => format!("[resource {uri}]\n{note}"),
                    None => left_out(&format!("the resource {uri}"), kind, blob.len()),
                }
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

/// Adds an image or a PDF that can be sent, recognized by its bytes, and returns the line in its place.
fn attach(encoded: &str, attachments: &mut Option<Vec<Attachment>>) -> Option<String> {
    let attachments = attachments.as_mut()?;
    if encoded.len() as u64 / 4 * 3 > MAX_BYTES {
        return None;
    }
    let data = STANDARD.decode(encoded).ok()?;
    let attachment = Attachment::new(MediaType::detect(&data)?, data).ok()?;
    let note = format!("[{}]", attachment.describe());
    attachments.push(attachment);
    Some(note)
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
        to_output(serde_json::from_value(result).unwrap()).map(|output| output.text).map_err(|error| error.0)
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
    fn images_and_pdfs_are_attached() {
        let image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        let pdf = STANDARD.encode("%PDF-1.7\n/Type /Page\n%%EOF\n");
        let content = json!([
            { "type": "image", "data": image, "mimeType": "image/jpeg" },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": pdf, "mimeType": "application/pdf" } },
            { "type": "image", "data": &image[..40], "mimeType": "image/png" },
        ]);
        let output = to_output(serde_json::from_value(json!({ "content": content })).unwrap()).unwrap();
        assert_eq!(
            output.text,
            "[PNG image, 1 x 1 pixels, 70 bytes]\n\n[resource file:///b]\n[PDF document, 1 page, 27 bytes]\n\n[an image was \
             left out: image/png, 30 bytes]"
        );
        let kinds: Vec<MediaType> = output.attachments.iter().map(|attachment| attachment.media_type).collect();
        assert_eq!(kinds, [MediaType::Png, MediaType::Pdf], "as their bytes say");
    }

    #[test]
    fn data_is_added_unless_a_text_repeats_it() {
        let data = json!({ "a": [1, 2] });
        assert_eq!(text(json!({ "content": [], "structuredContent": data })).unwrap(), r#"{"a":[1,2]}"#);
        let repeated = json!([{ "type": "text", "text": "{ \"a\": [1, 2] }" }]);
        assert_eq!(text(json!({ "content": repeated, "structuredContent": data })).unwrap(), "{ \"a\": [1, 2] }");
    }
}
