//! Images and PDFs that go to a model as they are, not as text.

mod header;
mod media_type;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::media_type::{MediaSupport, MediaType};
use crate::text::{hex, pluralize};

/// The largest file of any kind, in bytes.
pub const MAX_BYTES: u64 = media_type::MAX_PDF_BYTES;
/// The longest edge of an image, in pixels: Anthropic's limit for up to [`MAX_COUNT`] images in a request.
const MAX_EDGE: u32 = 8_000;
/// The most pages of a PDF, and of all PDFs of a conversation
/// (<https://platform.claude.com/docs/en/build-with-claude/pdf-support>).
const MAX_PAGES: u32 = 100;
/// The most attachments of a conversation.
const MAX_COUNT: usize = 20;
/// The most bytes of all attachments of a conversation. In base64 they take 16 MB; Gemini accepts 20 MB of inline data
/// (<https://ai.google.dev/gemini-api/docs/image-understanding>), Anthropic a request of 32 MB.
const MAX_TOTAL_BYTES: u64 = 12_000_000;
/// A PDF whose pages can't be counted is taken to have one for this many bytes.
const BYTES_PER_PAGE: u64 = 20_000;
/// The length of a digest in characters.
const DIGEST_CHARS: usize = 64;

/// A file that goes to a model as it is. Journals have everything but its bytes, which are in a file of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {
    /// The SHA-256 of its bytes in hexadecimal. The record has the bytes in `attachments/`, in a file with this name and the
    /// ending of the media type.
    pub digest: String,
    /// What it is.
    pub media_type: MediaType,
    /// Its size in bytes.
    pub bytes: u64,
    /// The width of an image in pixels.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub width: u32,
    /// The height of an image in pixels.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub height: u32,
    /// The number of pages of a PDF, if it can be counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages: u32,
    /// The bytes; empty if they weren't read from the record.
    #[serde(skip)]
    pub data: Bytes,
}

impl Attachment {
    /// An attachment of these bytes. Nothing is decoded: only headers are read, and whether the file is complete.
    ///
    /// # Errors
    /// The file is too large, damaged, or of a form that providers refuse; the text says why and follows the file's name.
    pub fn new(media_type: MediaType, data: impl Into<Bytes>) -> Result<Self, String> {
        let data: Bytes = data.into();
        let noun = media_type.noun();
        let bytes = data.len() as u64;
        if bytes > media_type.max_bytes() {
            return Err(too_large(media_type, bytes));
        }
        let header = header::read(media_type, &data).map_err(|why| format!("is a {noun} that {why}"))?;
        let header::Header { width, height, pages } = header;
        if width.max(height) > MAX_EDGE {
            return Err(format!(
                "is a {noun} of {width} x {height} pixels, and at most {MAX_EDGE} x {MAX_EDGE} can be sent"
            ));
        }
        if pages > MAX_PAGES {
            return Err(format!("is a {noun} with {pages} pages, and at most {MAX_PAGES} can be sent"));
        }
        Ok(Self { digest: hex(&Sha256::digest(&data)), media_type, bytes, width, height, pages, data })
    }

    /// The file's name in the record, from its folder. `None` if a record has a digest that isn't one.
    pub fn file_name(&self) -> Option<String> {
        let is_digest = self.digest.len() == DIGEST_CHARS
            && self.digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_digest.then(|| format!("attachments/{}.{}", self.digest, self.media_type.extension()))
    }

    /// Whether these are its bytes.
    pub fn has_bytes(&self, data: &[u8]) -> bool {
        data.len() as u64 == self.bytes && hex(&Sha256::digest(data)) == self.digest
    }

    /// What it is, in a few words: `PNG image, 1280 x 800 pixels, 34567 bytes`.
    pub fn describe(&self) -> String {
        let Self { media_type, bytes, width, height, pages, .. } = self;
        let size = match media_type {
            MediaType::Pdf if *pages == 0 => String::new(),
            MediaType::Pdf => format!(", {}", pluralize(u64::from(*pages), "page")),
            _ => format!(", {width} x {height} pixels"),
        };
        format!("{}{size}, {}", media_type.noun(), pluralize(*bytes, "byte"))
    }

    /// The number of pages of a PDF, estimated from its size if they can't be counted.
    pub fn likely_pages(&self) -> u32 {
        let estimate = || u32::try_from(self.bytes / BYTES_PER_PAGE + 1).unwrap_or(MAX_PAGES).min(MAX_PAGES);
        match self.media_type {
            MediaType::Pdf if self.pages == 0 => estimate(),
            MediaType::Pdf => self.pages.min(MAX_PAGES),
            _ => 0,
        }
    }
}

/// Why a file of this size can't be attached; the text follows the file's name.
pub fn too_large(media_type: MediaType, bytes: u64) -> String {
    format!("is a {} of {bytes} bytes, and at most {} can be sent", media_type.noun(), media_type.max_bytes())
}

/// The attachments of one conversation.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttachmentTotals {
    count: usize,
    bytes: u64,
    pages: u32,
}

impl AttachmentTotals {
    /// Adds an attachment.
    ///
    /// # Errors
    /// Why the conversation has no room for it, in a sentence without its final stop.
    pub fn try_add(&mut self, attachment: &Attachment) -> Result<(), String> {
        let mut sum = *self;
        sum.add(attachment);
        if sum.count > MAX_COUNT {
            return Err(format!(
                "the conversation has {MAX_COUNT} images and documents already, and more can't be sent"
            ));
        }
        if sum.bytes > MAX_TOTAL_BYTES {
            return Err(format!(
                "the images and documents of the conversation would take more than {MAX_TOTAL_BYTES} bytes together"
            ));
        }
        if sum.pages > MAX_PAGES {
            return Err(format!("the PDFs of the conversation would have more than {MAX_PAGES} pages together"));
        }
        *self = sum;
        Ok(())
    }

    /// Adds an attachment that the conversation has.
    pub fn add(&mut self, attachment: &Attachment) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(attachment.bytes);
        self.pages = self.pages.saturating_add(attachment.likely_pages());
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
