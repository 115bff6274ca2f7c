//! Room in the model's window: where the next request wouldn't fit, old results are shortened, then what went before is
//! summed up.

use super::message_history::{SUMMARY_CUT_NOTE, SUMMARY_INSTRUCTION, TRUNCATED_RESULT_CHARS};
use super::{Agent, RequestKind, RequestOutcome, RunAbort};
use crate::event::{ContextCompacted, ResultsTruncated};
use crate::job::Compaction;
use crate::message::{Message, StopReason, UserMessage};
use crate::tools::toolbox::{MAX_RESULT_CHARS, truncate_middle};

/// The longest summary, in tokens.
const MAX_SUMMARY_TOKENS: u32 = 16_000;
/// A summary's request is tried at most so often.
const MAX_SUMMARY_TRIES: u32 = 2;
/// No tokenizer makes of so many bytes of a text less than one token, on the whole; prose has four to five.
const MAX_BYTES_PER_TOKEN: u64 = 6;

/// What is done next to make room for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionStep {
    /// Nothing: the request is made.
    Proceed,
    /// The results of these calls are shortened to so many characters.
    TruncateResults {
        /// The calls' ids.
        call_ids: Vec<String>,
        /// How many characters each has then at most.
        chars: u64,
    },
    /// All but so many of the last turns is summed up.
    Summarize {
        /// How many.
        kept_turns: u32,
    },
    /// Nothing helps: the agent ends.
    GiveUp,
}

/// What was done already to make room for one request.
#[derive(Debug, Default)]
pub(super) struct CompactionState {
    /// What the provider said when it had no room for the request; and what the request had in tokens, as estimated, where
    /// that is all there is to go by.
    overflow: Option<(Option<u64>, String)>,
    results_truncated: bool,
    /// To how many characters all results were shortened, new ones as well, where they were.
    truncated_to: Option<u64>,
    summarized: bool,
    /// How often a summary was asked for.
    summary_tries: u32,
    /// Whether a summary may be asked for with all as it is.
    is_summary_too_long: bool,
    /// Why what came when a summary was asked for is none.
    summary_failure: Option<&'static str>,
}

impl CompactionState {
    /// Whether the provider had room so far.
    pub(super) fn is_fresh(&self) -> bool {
        self.overflow.is_none()
    }

    /// What is said where nothing helped. `beginning`: the tokens of what all turns begin with, where none was made.
    fn failure_message(&self, window: Option<u64>, max_tokens: u32, beginning: Option<u64>) -> String {
        let what = match (&self.overflow, window, beginning) {
            (Some((_, why)), ..) => why.clone(),
            (None, Some(window), Some(tokens)) => format!(
                "the prompt, with all that goes with it, takes about {tokens} tokens, and the model's window has {window} for \
                 it and a reply of {max_tokens}"
            ),
            (None, Some(window), None) => format!(
                "the conversation doesn't fit the model's window of {window} tokens beside a reply of {max_tokens}"
            ),
            (None, None, _) => "the conversation doesn't fit the model's window".to_owned(),
        };
        match self.summary_failure {
            Some(why) => {
                format!("{what}, what could be shortened was not enough, and the summary that was asked for {why}")
            }
            None if self.results_truncated || self.truncated_to.is_some() || self.summary_tries > 0 => {
                format!("{what}, and what could be shortened was not enough")
            }
            None => what,
        }
    }
}

impl Agent<'_> {
    /// What the next prompt takes, with an eye on the window: rather too much than too little. What is new counts as text
    /// that is dense in tokens, and no count of a provider is believed that leaves out what it had in its cache.
    pub(super) fn max_prompt_estimate(&self) -> u64 {
        let size = self.conversation.prompt_bytes();
        let (tokens, new) = match self.last_measured {
            Some((tokens, before)) if tokens > 0 => (tokens, size.saturating_sub(before)),
            _ => (0, size),
        };
        tokens.saturating_add(new as u64 * 2 / 5).max(size as u64 / 8)
    }

    /// What the provider had no room for, and what it said.
    /// `is_news`: whether it named the window, which then says how much is too much.
    pub(super) fn record_overflow(&self, effort: &mut CompactionState, why: String, is_news: bool) {
        effort.overflow = Some((Some(self.max_prompt_estimate()).filter(|_| !is_news), why));
    }

    /// Whether anything can be done about a window that is full.
    pub(super) fn can_compact(&mut self) -> bool {
        let mut effort = CompactionState::default();
        self.record_overflow(&mut effort, String::new(), false);
        self.next_compaction_step(&effort, true) != CompactionStep::GiveUp
    }

    /// Makes room for the next request, where it has none. `None`: it can be made.
    pub(super) async fn compact(
        &mut self,
        effort: &mut CompactionState,
        tools_allowed: bool,
    ) -> Result<Option<RequestOutcome>, RunAbort> {
        loop {
            match self.next_compaction_step(effort, tools_allowed) {
                CompactionStep::Proceed => return Ok(None),
                CompactionStep::GiveUp => {
                    let window = self.window();
                    let beginning = (self.turns == 0).then(|| self.max_prompt_estimate());
                    let why = effort.failure_message(window, self.planned.max_tokens, beginning);
                    return Ok(Some(RequestOutcome::ContextFull { reason: why, is_new_window: false }));
                }
                CompactionStep::TruncateResults { call_ids, chars } => {
                    match chars == TRUNCATED_RESULT_CHARS as u64 && !effort.results_truncated {
                        true => effort.results_truncated = true,
                        false => effort.truncated_to = Some(chars),
                    }
                    self.truncate_results(&call_ids, chars)?;
                }
                CompactionStep::Summarize { kept_turns } => {
                    if self.history.messages_before(kept_turns).is_none() {
                        // A record that is replayed and a plan that was edited: the request that follows is another.
                        return if self.cursor.is_exhausted() {
                            Ok(None)
                        } else {
                            Err(RunAbort::journal_mismatch(&self.id, "request_started"))
                        };
                    }
                    effort.summary_tries += 1;
                    match self.summarize(kept_turns).await? {
                        SummaryOutcome::Done => effort.summarized = true,
                        SummaryOutcome::LimitReached(answer) => return Ok(Some(answer)),
                        SummaryOutcome::TooLong => effort.is_summary_too_long = true,
                        SummaryOutcome::Unusable(why) => {
                            effort.summary_tries = MAX_SUMMARY_TRIES;
                            effort.summary_failure = Some(why);
                        }
                    }
                }
            }
        }
    }

    /// What is done next: as the journal or the record has it, else as it is decided now.
    fn next_compaction_step(&mut self, effort: &CompactionState, tools_allowed: bool) -> CompactionStep {
        if !self.cursor.is_exhausted() {
            return self.cursor.next_compaction_step();
        }
        if let Some(recorded) = &self.tree.replay_driver {
            return recorded.next_compaction_step(&self.id, tools_allowed);
        }
        self.choose_compaction_step(effort, tools_allowed)
    }

    fn choose_compaction_step(&mut self, effort: &CompactionState, tools_allowed: bool) -> CompactionStep {
        let mode = self.tree.plan.compaction;
        let sums_up = mode == Compaction::Summary
            && tools_allowed
            && !effort.summarized
            && effort.summary_tries < MAX_SUMMARY_TRIES;
        if let Some(kept_turns) =
            self.conversation.upcoming_summary().filter(|_| tools_allowed && effort.summary_tries == 0)
            && self.history.messages_before(kept_turns).is_some()
        {
            return CompactionStep::Summarize { kept_turns };
        }
        let tokens = self.max_prompt_estimate();
        let max_tokens = u64::from(self.planned.max_tokens);
        // A reply that may take more than half of it gets what the prompt leaves.
        let limit = self.prompt_limit();
        let room = self.window().map(|window| (window - max_tokens.min(window / 2)).min(limit));
        let refused = effort.overflow.as_ref().and_then(|(refused, _)| *refused);
        let most = match (refused, room) {
            (None, None) => return CompactionStep::Proceed,
            (None, Some(room)) => room,
            (Some(refused), room) => (refused * 4 / 5).min(room.unwrap_or(u64::MAX)),
        };
        if tokens <= most {
            return CompactionStep::Proceed;
        }
        if mode == Compaction::Off {
            // Whoever switched it off lets the provider judge.
            return if refused.is_some() { CompactionStep::GiveUp } else { CompactionStep::Proceed };
        }
        let rate = tokens as f64 / self.conversation.prompt_bytes().max(1) as f64;
        let bytes = |tokens: u64| (tokens as f64 / rate).ceil() as usize;
        let keeps = self.history.turns_to_keep(bytes(most / 4)).filter(|_| sums_up);
        if !effort.results_truncated {
            // In one big step, so that the prompt stays the same for many turns to come.
            let (call_ids, saved) = self.history.old_results_to_truncate(bytes(tokens - most * 3 / 5));
            let suffices = saved >= bytes(tokens - most * 4 / 5);
            // A summary of what is whole is better than one of what is shortened.
            let is_first = keeps.is_none_or(|keeps| {
                suffices || effort.is_summary_too_long || !self.summary_request_fits(keeps, tokens, rate)
            });
            if !call_ids.is_empty() && is_first {
                return CompactionStep::TruncateResults { call_ids, chars: TRUNCATED_RESULT_CHARS as u64 };
            }
        }
        if let Some((kept_turns, _)) = keeps.filter(|_| !effort.is_summary_too_long || effort.results_truncated) {
            return CompactionStep::Summarize { kept_turns };
        }
        match self.history.results_to_truncate(bytes(tokens - most), effort.truncated_to.unwrap_or(u64::MAX)) {
            Some((call_ids, chars)) => CompactionStep::TruncateResults { call_ids, chars },
            // Nobody has counted a token yet: where it may fit after all, the provider judges.
            None if effort.overflow.is_none() && self.last_measured.is_none() && self.min_prompt_estimate() <= most => {
                CompactionStep::Proceed
            }
            // Rather a shorter reply than none.
            None if refused.is_none() && self.leaves_room_for_reply(tokens) => CompactionStep::Proceed,
            None => CompactionStep::GiveUp,
        }
    }

    /// The least that the next prompt can take.
    fn min_prompt_estimate(&self) -> u64 {
        self.conversation.prompt_bytes() as u64 / MAX_BYTES_PER_TOKEN
    }

    /// Whether a summary that leaves so much out can be asked for with all as it is.
    fn summary_request_fits(&mut self, (_, kept): (u32, usize), tokens: u64, rate: f64) -> bool {
        let asks = SUMMARY_INSTRUCTION.len() as u64 / 2 + u64::from(self.summary_max_tokens());
        let prompt = tokens.saturating_sub((kept as f64 * rate) as u64);
        prompt + SUMMARY_INSTRUCTION.len() as u64 / 2 <= self.prompt_limit()
            && self.window().is_none_or(|window| prompt + asks <= window)
    }

    /// The longest summary that is asked for, in tokens.
    fn summary_max_tokens(&mut self) -> u32 {
        let most = self.window().map_or(u64::MAX, |window| (window / 4).max(256));
        self.planned.max_tokens.min(MAX_SUMMARY_TOKENS).min(u32::try_from(most).unwrap_or(u32::MAX))
    }

    pub(super) fn truncate_results(&mut self, call_ids: &[String], chars: u64) -> Result<(), RunAbort> {
        let before = (self.max_prompt_estimate(), self.conversation.prompt_bytes());
        let call_ids = self.history.truncate_results(call_ids, chars);
        if let Some(recorded) = &self.tree.replay_driver {
            recorded.results_truncated(&self.id);
        }
        self.rebuild_conversation(self.history.as_slice().len(), None);
        let tokens_after = self.reestimate_tokens(before);
        self.compactions += 1;
        self.record(ResultsTruncated { call_ids, chars, tokens_before: before.0, tokens_after })
    }

    /// Asks for a summary of all but the last turns, and goes on from it.
    async fn summarize(&mut self, kept_turns: u32) -> Result<SummaryOutcome, RunAbort> {
        let before = (self.max_prompt_estimate(), self.conversation.prompt_bytes());
        let summed = self.history.messages_before(kept_turns).map_or(0, <[Message]>::len);
        let known = self.last_measured;
        self.rebuild_conversation(summed, Some(SUMMARY_INSTRUCTION));
        self.reestimate_tokens(before);
        let max_tokens = self.summary_max_tokens();
        let answer = self.send_request(RequestKind::Summary { kept_turns, max_tokens }).await?;
        let summing = match answer {
            RequestOutcome::Reply(reply) => match reply.unusable_summary_reason() {
                Some(_) if reply.stop == StopReason::ContextFull => SummaryOutcome::TooLong,
                Some(why) => SummaryOutcome::Unusable(why),
                None => {
                    // Its blocks are masked; a secret can reach from one into the next.
                    let summary = self.tree.mask.redact(reply.text().trim()).into_owned();
                    // A server may give more than it is asked for.
                    let mut summary = truncate_middle(
                        summary,
                        MAX_RESULT_CHARS.min(max_tokens as usize * MAX_BYTES_PER_TOKEN as usize),
                    );
                    if reply.stop == StopReason::MaxTokens {
                        summary = format!("{summary}\n{SUMMARY_CUT_NOTE}");
                    }
                    self.history.replace_with_summary(&summary, kept_turns);
                    self.rebuild_conversation(self.history.as_slice().len(), None);
                    let tokens_after = self.reestimate_tokens(before);
                    self.compactions += 1;
                    self.record(ContextCompacted { summary, kept_turns, tokens_before: before.0, tokens_after })?;
                    return Ok(SummaryOutcome::Done);
                }
            },
            RequestOutcome::ContextFull { .. } => SummaryOutcome::TooLong,
            answer @ RequestOutcome::LimitReached(_) => SummaryOutcome::LimitReached(answer),
        };
        self.rebuild_conversation(self.history.as_slice().len(), None);
        self.last_measured = known;
        Ok(summing)
    }

    /// Puts the first so many messages in the place of all, and perhaps a remark behind them.
    fn rebuild_conversation(&mut self, messages: usize, remark: Option<&str>) {
        self.conversation.clear();
        for message in self.history.as_slice().iter().take(messages) {
            self.conversation.push(message);
        }
        if let Some(remark) = remark {
            self.conversation.push(&Message::User(UserMessage::text(remark)));
        }
    }

    /// Estimates the tokens of a conversation that was begun anew, by what the one before had a byte.
    fn reestimate_tokens(&mut self, (tokens, size): (u64, usize)) -> u64 {
        let now = self.conversation.prompt_bytes();
        let tokens = (tokens as f64 / size.max(1) as f64 * now as f64).ceil() as u64;
        self.last_measured = Some((tokens, now)).filter(|_| tokens > 0);
        tokens
    }
}

/// What came of a summary's request.
enum SummaryOutcome {
    Done,
    /// A limit had no room for it.
    LimitReached(RequestOutcome),
    /// It didn't fit the window itself.
    TooLong,
    /// What came is none: why.
    Unusable(&'static str),
}
