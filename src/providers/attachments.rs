//! What the APIs have in common about images and documents in requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::model::Model;
use crate::attachment::{Attachment, MediaSupport};
use crate::models::token_estimate::text_bytes;

/// Encodes the images and documents of one conversation.
#[derive(Debug)]
pub(crate) struct AttachmentEncoder {
    model: Model,
    media: MediaSupport,
    /// The bytes that they take in the body.
    encoded_bytes: usize,
    /// The tokens that they take.
    tokens: u64,
}

impl AttachmentEncoder {
    /// An encoder for a conversation without images and documents.
    pub(crate) fn new(model: &Model) -> Self {
        Self { media: model.media(), model: model.clone(), encoded_bytes: 0, tokens: 0 }
    }

    /// The parts of a message: `part` gets a file and its bytes in base64. What the model doesn't take is left out, and a note
    /// at the end of `text` says so.
    pub(crate) fn encode(
        &mut self,
        attachments: &[Attachment],
        text: &mut String,
        part: impl Fn(&Attachment, &str) -> Value,
    ) -> Vec<Value> {
        let mut parts = Vec::with_capacity(attachments.len());
        for attachment in attachments {
            let why = match attachment {
                _ if !self.media.takes(attachment.media_type) => "this model doesn't take it",
                // A replay doesn't read it.
                _ if attachment.data.is_empty() => "its bytes are in the record",
                _ => {
                    let base64 = STANDARD.encode(&attachment.data);
                    self.encoded_bytes += base64.len();
                    self.tokens = self.tokens.saturating_add(self.model.attachment_tokens(attachment));
                    parts.push(part(attachment, &base64));
                    continue;
                }
            };
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[A {} was left out: {why}.]", attachment.media_type.noun()));
        }
        parts
    }

    /// The size of a prompt from that of its body: an image or a document counts as a text with as many tokens.
    pub(crate) fn prompt_bytes(&self, body: usize) -> usize {
        body.saturating_sub(self.encoded_bytes).saturating_add(text_bytes(self.tokens))
    }

    /// Forgets all messages.
    pub(crate) fn clear(&mut self) {
        (self.encoded_bytes, self.tokens) = (0, 0);
    }
}

/// A file as a `data:` URL.
pub(crate) fn data_url(attachment: &Attachment, base64: &str) -> String {
    format!("data:{};base64,{base64}", attachment.media_type.mime())
}

/// A name for a file, which OpenAI's APIs require.
pub(crate) fn file_name(attachment: &Attachment) -> String {
    let digits: String = attachment.digest.chars().take(12).collect();
    format!("{digits}.{}", attachment.media_type.extension())
}
