//! Compaction: if the next request doesn't fit the model's window, old results are truncated, then older turns are replaced
//! by a summary.

use std::collections::HashMap;

use super::agent_state::Agent;
use super::journal_cursor::CompactionStep;
use super::message_history::{
    MessageHistory, PLAN_NOTE, SUMMARY_CUT_NOTE, SUMMARY_INSTRUCTION, TRUNCATED_RESULT_CHARS,
};
use super::request::{RequestKind, RequestOutcome};
use super::run_abort::RunAbort;
use crate::event::{ContextCompacted, ResultsTruncated};
use crate::job::Compaction;
use crate::message::{Message, Reply, StopReason, UserMessage};
use crate::models::token_estimate::{MAX_BYTES_PER_TOKEN, TokenEstimator};
use crate::tools::toolbox::{MAX_RESULT_CHARS, truncate_middle};

/// The most tokens of a summary.
const MAX_SUMMARY_TOKENS: u32 = 16_000;
/// The longest plan that a summary repeats, in characters.
const MAX_PLAN_CHARS: usize = 4_000;
/// How many times a summary is requested before one request.
const MAX_SUMMARY_TRIES: u32 = 2;

/// What was done already to make one request fit.
#[derive(Debug, Default)]
pub(super) struct CompactionState {
    /// What the provider said when the request didn't fit.
    rejection: Option<String>,
    /// The estimated size of that request, where the window isn't known any better.
    rejected_tokens: Option<u64>,
    results_truncated: bool,
    /// The length to which all results were truncated, new ones included.
    truncated_to: Option<u64>,
    summarized: bool,
    summary_tries: u32,
    /// Whether the request for a summary of the whole results was too long.
    is_summary_too_long: bool,
    /// Why the model's answer to the request for a summary can't be used.
    summary_failure: Option<&'static str>,
}

impl CompactionState {
    /// Takes note of a request that didn't fit. `is_new_window`: whether the provider said how large the window is.
    pub(super) fn record_overflow(&mut self, agent: &Agent<'_>, reason: String, is_new_window: bool) {
        self.rejected_tokens = Some(agent.context.high_tokens()).filter(|_| !is_new_window);
        self.rejection = Some(reason);
    }

    /// Whether the provider hasn't rejected the request yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.rejection.is_none()
    }

    /// The error if nothing helps. `first_prompt`: the tokens of the first request, if that is the one that doesn't fit.
    fn failure_message(&self, window: Option<u64>, max_tokens: u32, first_prompt: Option<u64>) -> String {
        let what = match (&self.rejection, window, first_prompt) {
            (Some(reason), ..) => reason.clone(),
            (None, Some(window), Some(tokens)) => format!(
                "the prompt, with the system prompt and the tools, takes about {tokens} tokens, and the model's window has \
                 {window} for it and a reply of {max_tokens}"
            ),
            (None, Some(window), None) => format!(
                "the conversation and a reply of {max_tokens} tokens don't fit the model's window of {window} tokens"
            ),
            (None, None, _) => "the conversation doesn't fit the model's window".to_owned(),
        };
        match self.summary_failure {
            Some(why) => {
                format!("{what}, what could be shortened was not enough, and the requested summary {why}")
            }
            None if self.results_truncated || self.truncated_to.is_some() || self.summary_tries > 0 => {
                format!("{what}, and what could be shortened was not enough")
            }
            None => what,
        }
    }
}

impl Agent<'_> {
    /// Whether compaction can do anything about a full window.
    pub(super) fn can_compact(&self) -> bool {
        let mut state = CompactionState::default();
        state.record_overflow(self, String::new(), false);
        // If the messages can't be read, compaction reports why.
        !matches!(self.next_compaction_step(&state, RequestKind::Turn), Ok(CompactionStep::GiveUp))
    }

    /// Makes the next request fit the window. Returns an outcome if the request can't be sent.
    pub(super) async fn compact(
        &mut self,
        state: &mut CompactionState,
        kind: RequestKind,
    ) -> Result<Option<RequestOutcome>, RunAbort> {
        loop {
            match self.next_compaction_step(state, kind)? {
                CompactionStep::Proceed => return Ok(None),
                CompactionStep::GiveUp => {
                    let first_prompt = (self.summary.turns == 0).then(|| self.context.high_tokens());
                    let reason = state.failure_message(self.window(), self.max_tokens, first_prompt);
                    return Ok(Some(RequestOutcome::ContextFull { reason, is_new_window: false }));
                }
                CompactionStep::TruncateResults { call_ids, chars } => {
                    if chars == TRUNCATED_RESULT_CHARS as u64 && !state.results_truncated {
                        state.results_truncated = true;
                    } else {
                        state.truncated_to = Some(chars);
                    }
                    self.truncate_results(&call_ids, chars)?;
                }
                CompactionStep::Summarize { kept_turns } => {
                    if self.load_history()?.messages_before(kept_turns).is_none() {
                        // The replay of an edited plan can have fewer turns. The next request then differs.
                        return if self.cursor.is_replay() {
                            Ok(None)
                        } else {
                            Err(self.cursor.mismatch("request_started"))
                        };
                    }
                    state.summary_tries += 1;
                    if let Some(outcome) = self.summarize(kept_turns, state).await? {
                        return Ok(Some(outcome));
                    }
                }
            }
        }
    }

    /// The next step, as the record has it or as it is decided now.
    fn next_compaction_step(&self, state: &CompactionState, kind: RequestKind) -> Result<CompactionStep, RunAbort> {
        let recorded = self.cursor.next_compaction_step(kind == RequestKind::Final);
        recorded.map_or_else(|| self.choose_compaction_step(state, kind), Ok)
    }

    fn choose_compaction_step(&self, state: &CompactionState, kind: RequestKind) -> Result<CompactionStep, RunAbort> {
        let context = &self.context;
        let mode = self.run.deps.plan.compaction;
        let is_turn = kind == RequestKind::Turn;
        if let Some(kept_turns) =
            context.conversation.upcoming_summary().filter(|_| is_turn && state.summary_tries == 0)
            && self.load_history()?.messages_before(kept_turns).is_some()
        {
            return Ok(CompactionStep::Summarize { kept_turns });
        }
        let tokens = context.high_tokens();
        let max_tokens = u64::from(self.max_tokens);
        // A reply that may take more than half of the window gets what the prompt leaves.
        let window = self.window().map(|window| (window - max_tokens.min(window / 2)).min(context.prompt_limit));
        let rejected = state.rejected_tokens;
        let most = match (rejected, window) {
            (None, None) => return Ok(CompactionStep::Proceed),
            (None, Some(window)) => window,
            (Some(rejected), window) => (rejected * 4 / 5).min(window.unwrap_or(u64::MAX)),
        };
        if tokens <= most {
            return Ok(CompactionStep::Proceed);
        }
        if mode == Compaction::Off {
            // With compaction switched off, the provider decides what fits.
            return Ok(if rejected.is_some() { CompactionStep::GiveUp } else { CompactionStep::Proceed });
        }
        let history = self.load_history()?;
        let tokens_per_byte = tokens as f64 / context.bytes().max(1) as f64;
        let bytes = |tokens: u64| (tokens as f64 / tokens_per_byte).ceil() as usize;
        let may_summarize =
            mode == Compaction::Summary && is_turn && !state.summarized && state.summary_tries < MAX_SUMMARY_TRIES;
        let kept = history.turns_to_keep(bytes(most / 4)).filter(|_| may_summarize);
        if !state.results_truncated {
            // In one large step, so that the prompt stays the same for many turns to come.
            let (call_ids, saved) = history.old_results_to_truncate(bytes(tokens - most * 3 / 5));
            let is_enough = saved >= bytes(tokens - most * 4 / 5);
            // A summary of whole results is better than one of truncated results.
            let is_first = kept.is_none_or(|kept| {
                is_enough || state.is_summary_too_long || !self.summary_request_fits(kept, tokens, tokens_per_byte)
            });
            if !call_ids.is_empty() && is_first {
                return Ok(CompactionStep::TruncateResults { call_ids, chars: TRUNCATED_RESULT_CHARS as u64 });
            }
        }
        if let Some((kept_turns, _)) = kept.filter(|_| !state.is_summary_too_long || state.results_truncated) {
            return Ok(CompactionStep::Summarize { kept_turns });
        }
        let below = state.truncated_to.unwrap_or(u64::MAX);
        Ok(match history.results_to_truncate(bytes(tokens - most), below) {
            Some((call_ids, chars)) => CompactionStep::TruncateResults { call_ids, chars },
            // If the provider hasn't counted any tokens yet and the prompt may fit, the provider decides.
            None if state.is_fresh()
                && !context.estimator.has_count()
                && TokenEstimator::low(context.bytes()) <= most =>
            {
                CompactionStep::Proceed
            }
            // A shorter reply is better than none.
            None if rejected.is_none() && self.leaves_room_for_reply(tokens) => CompactionStep::Proceed,
            None => CompactionStep::GiveUp,
        })
    }

    /// Whether a request for a summary, without the kept turns, fits the window without truncated results.
    fn summary_request_fits(&self, (_, kept_bytes): (u32, usize), tokens: u64, tokens_per_byte: f64) -> bool {
        let instruction = SUMMARY_INSTRUCTION.len() as u64 / 2;
        let prompt = tokens.saturating_sub((kept_bytes as f64 * tokens_per_byte) as u64) + instruction;
        prompt <= self.context.prompt_limit
            && self.window().is_none_or(|window| prompt + u64::from(self.summary_max_tokens()) <= window)
    }

    /// The most tokens of the next summary.
    fn summary_max_tokens(&self) -> u32 {
        let most = self.window().map_or(u64::MAX, |window| (window / 4).max(256));
        self.max_tokens.min(MAX_SUMMARY_TOKENS).min(u32::try_from(most).unwrap_or(u32::MAX))
    }

    /// Truncates the results of these calls in the conversation.
    pub(super) fn truncate_results(&mut self, call_ids: &[String], chars: u64) -> Result<(), RunAbort> {
        self.shorten_results(call_ids, chars, false)
    }

    /// Removes the images and documents of these calls, because a request with them was refused.
    pub(super) fn remove_refused_images(&mut self, call_ids: &[String]) -> Result<(), RunAbort> {
        self.shorten_results(call_ids, MAX_RESULT_CHARS as u64, true)
    }

    fn shorten_results(&mut self, call_ids: &[String], chars: u64, refused: bool) -> Result<(), RunAbort> {
        let before = (self.context.high_tokens(), self.context.bytes());
        let mut history = self.load_history()?;
        // The journal has the original ids.
        let aliases = &self.context.call_aliases;
        let call_ids: Vec<String> = call_ids.iter().map(|id| aliases.get(id).unwrap_or(id).clone()).collect();
        let mut call_ids = history.truncate_results(&call_ids, chars, refused);
        let originals: HashMap<&String, &String> = aliases.iter().map(|(original, alias)| (alias, original)).collect();
        call_ids.iter_mut().for_each(|id| *id = originals.get(&*id).map_or_else(|| id.clone(), |it| (*it).clone()));
        self.rebuild_conversation(&history.messages, None);
        self.replace_history(history);
        let tokens_after = self.rescale_tokens(before);
        self.summary.compactions += u32::from(!refused);
        self.record(ResultsTruncated { call_ids, chars, refused, tokens_before: before.0, tokens_after })
    }

    /// Replaces all turns but the last ones by a summary that the model writes. Returns an outcome if there is no summary
    /// because a limit leaves no room for the request, or because the model failed.
    async fn summarize(
        &mut self,
        kept_turns: u32,
        state: &mut CompactionState,
    ) -> Result<Option<RequestOutcome>, RunAbort> {
        let before = (self.context.high_tokens(), self.context.bytes());
        let estimator = self.context.estimator;
        let summarized = self.load_history()?;
        self.rebuild_conversation(
            summarized.messages_before(kept_turns).unwrap_or_default(),
            Some(SUMMARY_INSTRUCTION),
        );
        drop(summarized);
        self.rescale_tokens(before);
        let max_tokens = self.summary_max_tokens();
        let mut ended = None;
        match self.send_request(RequestKind::Summary { kept_turns, max_tokens }).await? {
            RequestOutcome::ContextFull { .. } | RequestOutcome::ImagesRefused(_) => state.is_summary_too_long = true,
            outcome @ (RequestOutcome::LimitReached(_) | RequestOutcome::ProviderFailed(_)) => ended = Some(outcome),
            RequestOutcome::Reply(reply) => match reply.unusable_summary_reason() {
                Some(_) if reply.stop == StopReason::ContextFull => state.is_summary_too_long = true,
                Some(why) => {
                    state.summary_tries = MAX_SUMMARY_TRIES;
                    state.summary_failure = Some(why);
                }
                None => {
                    state.summarized = true;
                    let summary = self.summary_text(&reply, max_tokens);
                    let mut history = self.load_history()?;
                    history.replace_with_summary(&summary, kept_turns);
                    self.rebuild_conversation(&history.messages, None);
                    self.replace_history(history);
                    let tokens_after = self.rescale_tokens(before);
                    self.summary.compactions += 1;
                    self.record(ContextCompacted { summary, kept_turns, tokens_before: before.0, tokens_after })?;
                    return Ok(None);
                }
            },
        }
        self.rebuild_conversation(&self.load_history()?.messages, None);
        self.context.estimator = estimator;
        Ok(ended)
    }

    fn summary_text(&self, reply: &Reply, max_tokens: u32) -> String {
        // The blocks are redacted one by one; a secret can span two of them.
        let text = self.run.deps.tools.redactor.redact(reply.text().trim()).into_owned();
        // A server may send more than it is asked for.
        let most = MAX_RESULT_CHARS.min(max_tokens as usize * MAX_BYTES_PER_TOKEN as usize);
        let plan = truncate_middle(self.toolbox.plan(), MAX_PLAN_CHARS.min(most / 2));
        let mut text = truncate_middle(text, most - plan.chars().count().min(most / 2));
        if reply.stop == StopReason::MaxTokens {
            text = format!("{text}\n{SUMMARY_CUT_NOTE}");
        }
        if plan.is_empty() { text } else { format!("{text}\n\n{PLAN_NOTE}\n{plan}") }
    }

    /// Reads the messages of the conversation.
    pub(super) fn load_history(&self) -> Result<MessageHistory, RunAbort> {
        let context = &self.context;
        context.history.load(&context.message_file).map_err(|error| RunAbort::messages_unreadable(&error))
    }

    pub(super) fn replace_history(&mut self, history: MessageHistory) {
        self.toolbox.set_attached(history.attachments());
        let context = &mut self.context;
        context.history.replace(&context.message_file, history);
    }

    /// Starts the provider's conversation again with these messages, and perhaps a note at the end.
    pub(super) fn rebuild_conversation(&mut self, messages: &[Message], note: Option<&str>) {
        let context = &mut self.context;
        context.conversation.clear();
        messages.iter().for_each(|message| context.conversation.push(message));
        if let Some(note) = note {
            context.conversation.push(&Message::User(UserMessage::text(note)));
        }
    }

    /// Estimates the tokens of a conversation that was rebuilt, from those of the conversation before and its size.
    fn rescale_tokens(&mut self, (tokens, bytes): (u64, usize)) -> u64 {
        let now = self.context.bytes();
        let tokens = (tokens as f64 / bytes.max(1) as f64 * now as f64).ceil() as u64;
        self.context.estimator = TokenEstimator::default();
        if tokens > 0 {
            self.context.estimator.set(tokens, now);
        }
        tokens
    }
}
