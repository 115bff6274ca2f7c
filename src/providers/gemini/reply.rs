//! Decodes the events of a stream, or one JSON body.
//!
//! Every event is a whole `GenerateContentResponse` with the new parts. The last one has a `finishReason`, but others
//! may have one, too: older models sent it in every event, and some servers send it between the steps of a reply. So a
//! reply ends when its stream ends. Token counts are totals so far. A server that ignores `alt=sse` sends a list of the
//! same objects.

use serde_json::Value;
use serde_json::value::RawValue;

use super::parts::{CALL_FIELD, PendingPart, finish_parts};
use crate::message::{Block, StopReason};
use crate::providers::assembler::{
    EventDecoder, PartialReply, StreamError, not_a_reply, parse_body, parse_event, read_field, usage_of_whole_prompt,
};
use crate::providers::json::{FieldLookup, Fields, field, non_empty_field, token_count};

/// The events of a reply.
#[derive(Debug, Default)]
pub(super) struct GeminiDecoder {
    parts: Vec<PendingPart>,
    /// The latest value of each count.
    counts: Value,
    end: Option<ReplyEnd>,
}

/// Why the reply ended.
#[derive(Debug)]
struct ReplyEnd {
    /// One of the API's constants.
    reason: String,
    /// The message after a colon, if there is one.
    message: String,
    /// Whether the prompt was blocked, so that there is no reply.
    is_blocked: bool,
}

impl ReplyEnd {
    /// The end that these fields name, if any.
    fn read(fields: &Fields, reason: &str, message: &str, is_blocked: bool) -> Option<Self> {
        let reason = non_empty_field(fields, reason).filter(|reason| reason != "FINISH_REASON_UNSPECIFIED")?;
        let message = non_empty_field(fields, message).map(|message| format!(": {message}")).unwrap_or_default();
        Some(Self { reason, message, is_blocked })
    }
}

impl GeminiDecoder {
    /// Takes one response object. Returns whether it is from this API.
    fn push_response(&mut self, reply: &mut PartialReply, response: &impl FieldLookup) -> Result<bool, StreamError> {
        reply.identify(response, "responseId", "modelVersion");
        self.count(reply, response);
        let feedback: Option<Fields> = read_field(response, "promptFeedback")?;
        if let Some(feedback) = &feedback {
            self.end = ReplyEnd::read(feedback, "blockReason", "blockReasonMessage", true).or(self.end.take());
        }
        let candidates: Option<Vec<Fields>> = read_field(response, "candidates")?;
        if let Some(candidate) = candidates.iter().flatten().next() {
            let content: Fields = read_field(candidate, "content")?;
            for part in read_field::<Vec<Fields>>(&content, "parts")? {
                if PendingPart::push(&mut self.parts, reply, part) {
                    // The reply continues.
                    self.end = None;
                }
            }
            self.end = ReplyEnd::read(candidate, "finishReason", "finishMessage", false).or(self.end.take());
        }
        reply.is_complete = self.end.is_some();
        Ok(feedback.is_some() || candidates.is_some())
    }

    /// Takes the counts of a response. The prompt's includes cached tokens, but not those that Google's own tools added;
    /// the candidates' doesn't include thoughts.
    fn count(&mut self, reply: &mut PartialReply, response: &impl FieldLookup) {
        let later: Value = field(response, "usageMetadata").unwrap_or_default();
        for (name, count) in later.as_object().into_iter().flatten().filter(|(_, count)| !count.is_null()) {
            self.counts[name] = count.clone();
        }
        let count = |name| token_count(&self.counts, name);
        let prompt = count("/promptTokenCount");
        if prompt > 0 {
            let output = count("/candidatesTokenCount").saturating_add(count("/thoughtsTokenCount"));
            let mut usage = usage_of_whole_prompt(prompt, count("/cachedContentTokenCount"), 0, output);
            usage.input_tokens = usage.input_tokens.saturating_add(count("/toolUsePromptTokenCount"));
            reply.counted = usage;
        }
    }
}

impl EventDecoder for GeminiDecoder {
    fn decode_event(&mut self, reply: &mut PartialReply, name: &str, data: &str) -> Result<(), StreamError> {
        if data.trim_start().starts_with("[{") {
            return self.decode_body(reply, data);
        }
        let is_known = matches!(name, "" | "message");
        let Some(response) = parse_event(data, is_known)? else { return Ok(()) };
        match self.push_response(reply, &response) {
            Err(StreamError::Malformed(_)) if !is_known => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn decode_body(&mut self, reply: &mut PartialReply, json: &str) -> Result<(), StreamError> {
        let list = if json.trim_start().starts_with('[') { json.to_owned() } else { format!("[{json}]") };
        let responses: Vec<Box<RawValue>> =
            serde_json::from_str(&list).map_err(|_| StreamError::malformed("it isn't JSON"))?;
        let mut is_response = false;
        for response in &responses {
            is_response |= self.push_response(reply, &parse_body(response.get(), "reply")?)?;
        }
        if is_response { Ok(()) } else { Err(not_a_reply("reply")) }
    }

    fn finish(self, reply: &mut PartialReply) -> Result<Vec<Block>, StreamError> {
        let has_calls = self.parts.iter().any(|part| part.fields.contains_key(CALL_FIELD));
        if let Some(ReplyEnd { reason, message, is_blocked }) = self.end {
            reply.stop = Some(match reason.as_str() {
                "STOP" => StopReason::EndTurn,
                // `CONTINUATION` means the limit of a single request, which may be lower than the requested one.
                "MAX_TOKENS" | "CONTINUATION" => StopReason::MaxTokens,
                // A call or text is lost, and a retry may succeed.
                _ if !is_blocked && is_incomplete(&reason) && !(has_calls && reason.ends_with("_TOOL_CALL")) => {
                    return Err(StreamError::malformed(format!("the API ended the reply early ({reason}){message}")));
                }
                _ if is_blocked || is_refusal(&reason) => {
                    // Without this, the reply wouldn't contain the reason.
                    reply.refusal = Some(format!("{reason}{message}"));
                    StopReason::Refusal
                }
                _ => StopReason::Other(reason),
            });
        }
        Ok(finish_parts(&self.parts))
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
    const FILTERS: [&str; 12] = [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ];
    FILTERS.contains(&reason)
}
