//! The kinds of files that models take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest image, in bytes. Anthropic accepts 5 MB of base64
/// (<https://platform.claude.com/docs/en/build-with-claude/vision>).
pub(super) const MAX_IMAGE_BYTES: u64 = 3_900_000;
/// The largest PDF, in bytes. Together with the limit of a conversation, it keeps requests below the providers' limits.
pub(super) const MAX_PDF_BYTES: u64 = 10_000_000;
/// The kinds of files that models take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MediaType {
    /// A PNG image.
    #[serde(rename = "image/png")]
    Png,
    /// A JPEG image.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// A GIF image.
    #[serde(rename = "image/gif")]
    Gif,
    /// A WebP image.
    #[serde(rename = "image/webp")]
    Webp,
    /// A PDF document.
    #[serde(rename = "application/pdf")]
    Pdf,
}

/// Which files a model takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MediaSupport {
    /// Whether it takes PNG, JPEG and WebP images.
    pub images: bool,
    /// Whether it takes GIF images.
    #[serde(default)]
    pub gifs: bool,
    /// Whether it takes PDFs.
    pub pdfs: bool,
}

impl MediaSupport {
    /// Everything.
    pub const ALL: Self = Self { images: true, gifs: true, pdfs: true };

    /// Whether the model takes files of this kind.
    pub fn takes(&self, kind: MediaType) -> bool {
        match kind {
            MediaType::Png | MediaType::Jpeg | MediaType::Webp => self.images,
            MediaType::Gif => self.gifs,
            MediaType::Pdf => self.pdfs,
        }
    }
}

impl MediaType {
    /// Recognizes a file by its first bytes; its name doesn't matter.
    pub fn detect(start: &[u8]) -> Option<Self> {
        match start {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            // A text can begin with the same letters.
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] if start.contains(&0) => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [b'%', b'P', b'D', b'F', b'-', b'1' | b'2', b'.', ..] => Some(Self::Pdf),
            _ => None,
        }
    }

    /// The name on the wire.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Pdf => "application/pdf",
        }
    }

    /// The ending of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::Webp => "webp",
            Self::Pdf => "pdf",
        }
    }

    /// The kind in words.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Png => "PNG image",
            Self::Jpeg => "JPEG image",
            Self::Gif => "GIF image",
            Self::Webp => "WebP image",
            Self::Pdf => "PDF document",
        }
    }

    /// The largest file of this kind, in bytes.
    pub fn max_bytes(self) -> u64 {
        if self == Self::Pdf { MAX_PDF_BYTES } else { MAX_IMAGE_BYTES }
    }
}
