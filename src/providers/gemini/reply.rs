//! A reply out of the events of a stream, or out of one JSON body. Knows no network.
//!
//! Every event is a whole `GenerateContentResponse` with the parts that are new; the last has a `finishReason`, but others may
//! have one, too: older models' all did, and some servers' do between the steps of a reply. So a reply ends with its stream.
//! The counts of tokens are those so far. A server that doesn't know `alt=sse` sends a list of the same.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::parts::{Fields, PartAssembler};
use crate::message::{Block, BlockContent, Reply, StopReason, Usage};
use crate::providers::lossy_string::LossyString;
use crate::providers::openai::UsageEstimate;
use crate::providers::transport::http_conversation;
use crate::providers::transport::http_conversation::StreamError;

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

/// Why it ended.
#[derive(Debug)]
struct ReplyEnd {
    /// In one of the API's words.
    reason: String,
    /// In a sentence.
    message: Option<String>,
    /// Whether the prompt was refused, and there is no reply.
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

/// Token counts as the API names them. `prompt_token_count` has what was read from a cache in it, but not what tools of
/// Google's own added; the reply's tokens don't have the thoughts in them.
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

    /// `None` where nothing was counted.
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
    /// A reply to a prompt of so many bytes.
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

    /// Takes one response; whether it is one.
    fn push_response(&mut self, json: &str, say: &dyn Fn(&str)) -> Result<bool, StreamError> {
        let response: GenerateContentResponse =
            serde_json::from_str(json).map_err(|error| StreamError::not_a_reply("reply", &error))?;
        if response.error.is_some_and(|error| error.get() != "null") {
            return Err(StreamError::Api(json.to_owned()));
        }
        let word = |word: Option<LossyString>| word.map(|LossyString(word)| word).filter(|word| !word.is_empty());
        let is_one = response.candidates.is_some() || response.prompt_feedback.is_some();
        self.id = word(response.response_id).or(self.id.take());
        self.model = word(response.model_version).or(self.model.take());
        self.counts.update(response.usage_metadata.unwrap_or_default());
        let feedback = response.prompt_feedback.unwrap_or_default();
        if let Some(reason) = word(feedback.block_reason) {
            self.end = Some(ReplyEnd { reason, message: word(feedback.block_reason_message), is_blocked: true });
        }
        if let Some(candidate) = response.candidates.into_iter().flatten().next() {
            for part in candidate.content.unwrap_or_default().parts.unwrap_or_default() {
                let heard = self.parts.grow(part, say);
                self.estimate.add_output(heard);
                if heard > 0 {
                    // What goes on hasn't ended.
                    self.end = None;
                }
            }
            if let Some(reason) = word(candidate.finish_reason).filter(|reason| reason != "FINISH_REASON_UNSPECIFIED") {
                self.end = Some(ReplyEnd { reason, message: word(candidate.finish_message), is_blocked: false });
            }
        }
        Ok(is_one)
    }
}

impl http_conversation::ReplyAssembler for GeminiAssembler {
    fn push_event(&mut self, name: &str, data: &str, say: &dyn Fn(&str)) -> Result<(), StreamError> {
        match data.trim_start() {
            data if data.starts_with('{') => match self.push_response(data, say) {
                Err(StreamError::Malformed(_)) if !matches!(name, "" | "message") => Ok(()),
                outcome => outcome.map(|_| ()),
            },
            data if data.starts_with("[{") => self.push_body(data.as_bytes(), say),
            // Such as the `[DONE]` that some gateways send.
            _ => Ok(()),
        }
    }

    fn push_body(&mut self, body: &[u8], say: &dyn Fn(&str)) -> Result<(), StreamError> {
        let json = String::from_utf8_lossy(body);
        let json = json.trim();
        let responses: Vec<Box<RawValue>> = if json.starts_with('[') {
            serde_json::from_str(json)
        } else {
            serde_json::from_str(json).map(|response| vec![response])
        }
        .map_err(|error| StreamError::not_a_reply("reply", &error))?;
        let mut is_one = false;
        for response in &responses {
            is_one |= self.push_response(response.get(), say)?;
        }
        if is_one { Ok(()) } else { Err(StreamError::Malformed("it is JSON, but no reply".to_owned())) }
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
            return Err(StreamError::Malformed("a reply without a finish reason, so without its end".to_owned()));
        };
        let blocks = self.parts.finish();
        let mut blocks = blocks.map_err(|error| StreamError::Malformed(format!("a part can't be read: {error}")))?;
        let has_calls = blocks.iter().any(|block| matches!(block.content, BlockContent::Call(_)));
        let stop = match reason.as_str() {
            "STOP" if has_calls => StopReason::ToolUse,
            "STOP" => StopReason::EndTurn,
            // The latter is the bound on a single request, which may be lower than what was asked for.
            "MAX_TOKENS" | "CONTINUATION" => StopReason::MaxTokens,
            // What the model meant as a call, or to say, is lost, and the next try may well be whole.
            _ if !is_blocked && is_incomplete(&reason) && !(has_calls && reason.ends_with("_TOOL_CALL")) => {
                let why = message.map(|message| format!(": {message}")).unwrap_or_default();
                return Err(StreamError::Malformed(format!("a reply that the API itself broke off ({reason}){why}")));
            }
            _ if is_blocked || is_refusal(&reason) => {
                // Else nothing would say why.
                let why = message.map(|message| format!(": {message}")).unwrap_or_default();
                blocks.push(Block::from(BlockContent::Other(format!("{reason}{why}"))));
                StopReason::Refusal
            }
            _ => StopReason::Other(reason),
        };
        Ok(Reply { blocks, stop, usage, model: self.model, request_id: request_id.or(self.id) })
    }
}

/// The reasons of <https://ai.google.dev/api/generate-content#FinishReason> for which something of a reply is missing, or all
/// of it. A call of a tool that there isn't may be there all the same.
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

/// Those that a filter gives.
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
