//! Assembles a reply from the events of a stream, or from one JSON body.
//!
//! Every event is a whole `GenerateContentResponse` with the new parts. The last one has a `finishReason`, but others
//! may have one, too: older models sent it in every event, and some servers send it between the steps of a reply. So a
//! reply ends when its stream ends. Token counts are totals so far. A server that ignores `alt=sse` sends a list of the
//! same objects.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::parts::PartAssembler;
use crate::message::{Block, BlockContent, Reply, StopReason, Usage};
use crate::providers::assembler::{ReplyAssembler, StreamError, UsageEstimate};
use crate::providers::json::{Fields, LossyString, non_empty};

/// A reply that is being received.
#[derive(Debug)]
pub(super) struct GeminiAssembler {
    estimate: UsageEstimate,
    id: Option<String>,
    model: Option<String>,
    parts: PartAssembler,
    counts: UsageCounts,
    end: Option<ReplyEnd>,
}

/// Why the reply ended.
#[derive(Debug)]
struct ReplyEnd {
    /// One of the API's constants.
    reason: String,
    /// The message, if any.
    message: Option<String>,
    /// Whether the prompt was blocked, so that there is no reply.
    is_blocked: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GenerateContentResponse {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<UsageCounts>,
    model_version: Option<LossyString>,
    response_id: Option<LossyString>,
    error: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate {
    content: Option<Content>,
    finish_reason: Option<LossyString>,
    finish_message: Option<LossyString>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content {
    parts: Option<Vec<Fields>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<LossyString>,
    block_reason_message: Option<LossyString>,
}

/// Token counts. `prompt_token_count` includes cached tokens, but not those that Google's own tools added;
/// `candidates_token_count` doesn't include thoughts.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UsageCounts {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl UsageCounts {
    fn update(&mut self, later: Self) {
        self.prompt_token_count = later.prompt_token_count.or(self.prompt_token_count);
        self.cached_content_token_count = later.cached_content_token_count.or(self.cached_content_token_count);
        self.tool_use_prompt_token_count = later.tool_use_prompt_token_count.or(self.tool_use_prompt_token_count);
        self.candidates_token_count = later.candidates_token_count.or(self.candidates_token_count);
        self.thoughts_token_count = later.thoughts_token_count.or(self.thoughts_token_count);
    }

    /// The usage, or `None` if nothing was counted.
    fn usage(self) -> Option<Usage> {
        let prompt = self.prompt_token_count.filter(|tokens| *tokens > 0)?;
        let read = self.cached_content_token_count.unwrap_or_default().min(prompt);
        let added = self.tool_use_prompt_token_count.unwrap_or_default();
        let said = self.candidates_token_count.unwrap_or_default();
        Some(Usage {
            input_tokens: (prompt - read).saturating_add(added),
            output_tokens: said.saturating_add(self.thoughts_token_count.unwrap_or_default()),
            cache_read_tokens: read,
            cache_write_tokens: 0,
        })
    }
}

impl GeminiAssembler {
    /// A reply to a prompt of this size.
    pub(super) fn new(prompt_bytes: usize) -> Self {
        let estimate = UsageEstimate::new(prompt_bytes);
        Self {
            estimate,
            id: None,
            model: None,
            parts: PartAssembler::default(),
            counts: UsageCounts::default(),
            end: None,
        }
    }

    /// Takes one response object. Returns whether it is from this API.
    fn push_response(&mut self, json: &str, on_text: &dyn Fn(&str)) -> Result<bool, StreamError> {
        let response: GenerateContentResponse =
            serde_json::from_str(json).map_err(|error| StreamError::not_a_reply("reply", &error))?;
        if response.error.is_some_and(|error| error.get() != "null") {
            return Err(StreamError::Api(json.to_owned()));
        }
        let is_response = response.candidates.is_some() || response.prompt_feedback.is_some();
        self.id = non_empty(response.response_id).or(self.id.take());
        self.model = non_empty(response.model_version).or(self.model.take());
        self.counts.update(response.usage_metadata.unwrap_or_default());
        let feedback = response.prompt_feedback.unwrap_or_default();
        if let Some(reason) = non_empty(feedback.block_reason) {
            self.end = Some(ReplyEnd { reason, message: non_empty(feedback.block_reason_message), is_blocked: true });
        }
        if let Some(candidate) = response.candidates.into_iter().flatten().next() {
            for part in candidate.content.unwrap_or_default().parts.unwrap_or_default() {
                let size = self.parts.grow(part, on_text);
                self.estimate.add_output(size);
                if size > 0 {
                    // The reply continues.
                    self.end = None;
                }
            }
            if let Some(reason) =
                non_empty(candidate.finish_reason).filter(|reason| reason != "FINISH_REASON_UNSPECIFIED")
            {
                self.end = Some(ReplyEnd { reason, message: non_empty(candidate.finish_message), is_blocked: false });
            }
        }
        Ok(is_response)
    }
}

impl ReplyAssembler for GeminiAssembler {
    fn push_event(&mut self, name: &str, data: &str, on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        match data.trim_start() {
            data if data.starts_with('{') => match self.push_response(data, on_text) {
                Err(StreamError::Malformed(_)) if !matches!(name, "" | "message") => Ok(()),
                outcome => outcome.map(|_| ()),
            },
            data if data.starts_with("[{") => self.push_body(data.as_bytes(), on_text),
            // For example, the `[DONE]` of some gateways.
            _ => Ok(()),
        }
    }

    fn push_body(&mut self, body: &[u8], on_text: &dyn Fn(&str)) -> Result<(), StreamError> {
        let json = String::from_utf8_lossy(body);
        let json = json.trim();
        let responses: Vec<Box<RawValue>> = if json.starts_with('[') {
            serde_json::from_str(json)
        } else {
            serde_json::from_str(json).map(|response| vec![response])
        }
        .map_err(|error| StreamError::not_a_reply("reply", &error))?;
        let mut is_response = false;
        for response in &responses {
            is_response |= self.push_response(response.get(), on_text)?;
        }
        if is_response { Ok(()) } else { Err(StreamError::Malformed("it is JSON, but not a reply".to_owned())) }
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    fn usage(&self) -> Usage {
        self.estimate.usage(self.counts.usage(), self.end.is_some())
    }

    fn finish(self, request_id: Option<String>) -> Result<Reply, StreamError> {
        let usage = self.usage();
        let Some(ReplyEnd { reason, message, is_blocked }) = self.end else {
            return Err(StreamError::Malformed("the reply has no finish reason, so its end is missing".to_owned()));
        };
        let blocks = self.parts.finish();
        let mut blocks = blocks.map_err(|error| StreamError::unreadable("a part", &error))?;
        let has_calls = blocks.iter().any(|block| matches!(block.content, BlockContent::Call(_)));
        let stop = match reason.as_str() {
            "STOP" if has_calls => StopReason::ToolUse,
            "STOP" => StopReason::EndTurn,
            // `CONTINUATION` means the limit of a single request, which may be lower than the requested one.
            "MAX_TOKENS" | "CONTINUATION" => StopReason::MaxTokens,
            // A call or text is lost, and a retry may succeed.
            _ if !is_blocked && is_incomplete(&reason) && !(has_calls && reason.ends_with("_TOOL_CALL")) => {
                let why = message.map(|message| format!(": {message}")).unwrap_or_default();
                return Err(StreamError::Malformed(format!("the API ended the reply early ({reason}){why}")));
            }
            _ if is_blocked || is_refusal(&reason) => {
                // Without this, the reply wouldn't contain the reason.
                let why = message.map(|message| format!(": {message}")).unwrap_or_default();
                blocks.push(Block::from(BlockContent::Other(format!("{reason}{why}"))));
                StopReason::Refusal
            }
            _ => StopReason::Other(reason),
        };
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

/// Whether some or all of a reply is missing (<https://ai.google.dev/api/generate-content#FinishReason>). A call of an
/// unknown tool may still be present.
fn is_incomplete(reason: &str) -> bool {
    const LOST: [&str; 6] = [
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "OTHER",
    ];
    LOST.contains(&reason)
}

/// Whether the reason is that of a content filter.
fn is_refusal(reason: &str) -> bool {
    const FILTERS: [&str; 9] = [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
    ];
    const OF_IMAGES: [&str; 3] = ["IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"];
    FILTERS.contains(&reason) || OF_IMAGES.contains(&reason)
}
