//! The capabilities of models.

use crate::job::Thinking;

/// The temperature of a request that doesn't set one.
pub const DEFAULT_TEMPERATURE: f64 = 1.0;

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
