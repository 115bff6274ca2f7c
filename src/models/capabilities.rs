//! The capabilities of models.

use super::image_tokens::ImageTokens;
use crate::attachment::{Attachment, MediaType};
use crate::job::Thinking;

/// The temperature of a request that doesn't set one.
pub const DEFAULT_TEMPERATURE: f64 = 1.0;

/// The page of a PDF, if a model's own number isn't known: dense text, and an image.
const UNKNOWN_PAGE_TOKENS: u32 = 4_500;
/// The formula of a model without a known one. Many open models take a token for 28 x 28 pixels.
const UNKNOWN_IMAGE: ImageTokens = ImageTokens::Patches { edge: 28, max: 5_000, percent: 100 };

/// What a model supports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capabilities {
    /// Whether this is a known model, so that unsupported options can be reported in advance. Other models are newer,
    /// on a gateway or self-hosted.
    pub is_known: bool,
    /// How much it can think.
    pub thinking: ThinkingSupport,
    /// Which temperatures it accepts.
    pub temperature: TemperatureSupport,
    /// The maximum number of output tokens of a reply, if known.
    pub max_output_tokens: Option<u32>,
    /// Whether it refuses stop sequences.
    pub rejects_stop_sequences: bool,
    /// When it may have tools in the Chat Completions API.
    pub chat_tools: ChatTools,
    /// Whether its calls have to be sent back with ids and signatures (Gemini's thought signatures).
    pub signs_calls: bool,
    /// Whether its thinking may be sent back only if the preceding messages are unchanged.
    pub has_prefix_bound_thinking: bool,
    /// How many tokens an image takes; `None` if it takes no images.
    pub image_tokens: Option<ImageTokens>,
    /// How many tokens a page of a PDF takes at most; `None` if it takes no PDFs.
    pub pdf_page_tokens: Option<u32>,
    /// Whether the results of its calls can contain images and documents. Only Gemini models differ.
    pub takes_media_in_results: bool,
}

/// How much a model can think, and how requests control it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinkingSupport {
    /// How a request asks for thinking.
    pub control: ThinkingControl,
    /// The amounts that it accepts.
    pub levels: &'static [Thinking],
    /// How thinking is turned off.
    pub off: ThinkingOff,
    /// Whether it thinks unless it is turned off.
    pub is_on_by_default: bool,
}

/// How a request asks for thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingControl {
    /// It can't: the model never thinks, or requests can't control it.
    Unsupported,
    /// By a number of tokens within the reply.
    Budget {
        /// The minimum; the reply has to be longer.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// By a word.
    Level,
}

/// How thinking is turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingOff {
    /// By not asking for it.
    Omit,
    /// By this word.
    Word(&'static str),
    /// The model always thinks.
    Impossible,
}

/// Which temperatures a model accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TemperatureSupport {
    /// Any that the job file allows.
    Any,
    /// Any up to `max`, but only the default while it thinks.
    FixedWhileThinking {
        /// The maximum.
        max: f64,
    },
    /// Only the default, which may not even be sent.
    Fixed,
    /// It accepts any and ignores it.
    Ignored,
}

/// When a model may have tools in the Chat Completions API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatTools {
    /// Always.
    Always,
    /// Only with thinking turned off.
    WithoutThinking,
    /// Never.
    Never,
}

impl Capabilities {
    /// The tokens that an image or a document takes, estimated. A model that isn't in the table may take it, too.
    pub fn attachment_tokens(&self, attachment: &Attachment) -> u64 {
        match attachment.media_type {
            MediaType::Pdf => {
                u64::from(attachment.likely_pages()) * u64::from(self.pdf_page_tokens.unwrap_or(UNKNOWN_PAGE_TOKENS))
            }
            _ => self.image_tokens.unwrap_or(UNKNOWN_IMAGE).count(attachment.width, attachment.height),
        }
    }
}

impl ThinkingSupport {
    /// Whether a model thinks if this is requested.
    pub fn is_active(&self, thinking: Option<Thinking>) -> bool {
        thinking.map_or(self.is_on_by_default, |thinking| thinking != Thinking::Off)
    }

    /// How many more output tokens a reply gets by default to leave room for the thinking, which counts as part of it.
    /// OpenAI advises at least 25,000 for both at first (<https://developers.openai.com/api/docs/guides/reasoning>), and
    /// Anthropic a large number for `xhigh` and `max`
    /// (<https://platform.claude.com/docs/en/build-with-claude/effort>).
    pub fn default_room(&self, thinking: Option<Thinking>) -> u32 {
        match thinking {
            Some(Thinking::XHigh | Thinking::Max) => 32_000,
            _ if self.off == ThinkingOff::Impossible && self.control != ThinkingControl::Unsupported => 16_000,
            _ => 0,
        }
    }

    /// Whether the minimum budget for the requested thinking takes up the whole reply.
    pub fn exceeds_reply(&self, thinking: Option<Thinking>, max_tokens: u32) -> bool {
        let is_on = thinking.is_some_and(|thinking| thinking != Thinking::Off);
        is_on && matches!(self.control, ThinkingControl::Budget { min, .. } if max_tokens <= min)
    }
}

/// The common word for an amount of thinking.
pub fn effort_name(thinking: Thinking) -> &'static str {
    match thinking {
        Thinking::Off => "none",
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
        Thinking::XHigh => "xhigh",
        Thinking::Max => "max",
    }
}
