//! Room in the model's window: where the next request wouldn't fit, old results are shortened, then what went before is
//! summed up.

use super::messages::{CUT, INSTRUCTION, SHORT};
use super::{Agent, Answer, Halt, Kind};
use crate::event::{Shortened, SummedUp};
use crate::job::Compaction;
use crate::message::{Message, Stop, UserMessage};
use crate::tools::toolbox::{MAX_CHARS, bounded};

/// The longest summary, in tokens.
const SUMMARY_TOKENS: u32 = 16_000;
/// A summary's request is tried at most so often.
const TRIES: u32 = 2;
/// No tokenizer makes of so many bytes of a text less than one token, on the whole; prose has four to five.
const SPARSEST: u64 = 6;

/// What is done next to make room for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Nothing: the request is made.
    Go,
    /// The results of these calls are shortened to so many characters.
    Shorten {
        /// The calls' ids.
        call_ids: Vec<String>,
        /// How many characters each has then at most.
        chars: u64,
    },
    /// All but so many of the last turns is summed up.
    SumUp {
        /// How many.
        kept_turns: u32,
    },
    /// Nothing helps: the agent ends.
    Full,
}

/// What was done already to make room for one request.
#[derive(Debug, Default)]
pub(super) struct Effort {
    /// What the provider said when it had no room for the request; and what the request had in tokens, as estimated, where
    /// that is all there is to go by.
    refused: Option<(Option<u64>, String)>,
    shortened: bool,
    /// To how many characters all results were shortened, new ones as well, where they were.
    squeezed: Option<u64>,
    summed_up: bool,
    /// How often a summary was asked for.
    tries: u32,
    /// Whether a summary may be asked for with all as it is.
    is_summary_too_long: bool,
    /// Why what came when a summary was asked for is none.
    no_summary: Option<&'static str>,
}

impl Effort {
    /// Whether the provider had room so far.
    pub(super) fn is_fresh(&self) -> bool {
        self.refused.is_none()
    }

    /// What is said where nothing helped. `beginning`: the tokens of what all turns begin with, where none was made.
    fn why(&self, window: Option<u64>, max_tokens: u32, beginning: Option<u64>) -> String {
        let what = match (&self.refused, window, beginning) {
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
        match self.no_summary {
            Some(why) => {
                format!("{what}, what could be shortened was not enough, and the summary that was asked for {why}")
            }
            None if self.shortened || self.squeezed.is_some() || self.tries > 0 => {
                format!("{what}, and what could be shortened was not enough")
            }
            None => what,
        }
    }
}

impl Agent<'_> {
    /// What the next prompt takes, with an eye on the window: rather too much than too little. What is new counts as text
    /// that is dense in tokens, and no count of a provider is believed that leaves out what it had in its cache.
    pub(super) fn window_tokens(&self) -> u64 {
        let size = self.conversation.size();
        let (tokens, new) = match self.known {
            Some((tokens, before)) if tokens > 0 => (tokens, size.saturating_sub(before)),
            _ => (0, size),
        };
        tokens.saturating_add(new as u64 * 2 / 5).max(size as u64 / 8)
    }

    /// What the provider had no room for, and what it said.
    /// `is_news`: whether it named the window, which then says how much is too much.
    pub(super) fn refused(&self, effort: &mut Effort, why: String, is_news: bool) {
        effort.refused = Some((Some(self.window_tokens()).filter(|_| !is_news), why));
    }

    /// Whether anything can be done about a window that is full.
    pub(super) fn can_make_room(&mut self) -> bool {
        let mut effort = Effort::default();
        self.refused(&mut effort, String::new(), false);
        self.way(&effort, true) != Way::Full
    }

    /// Makes room for the next request, where it has none. `None`: it can be made.
    pub(super) async fn make_room(&mut self, effort: &mut Effort, tools_allowed: bool) -> Result<Option<Answer>, Halt> {
        loop {
            match self.way(effort, tools_allowed) {
                Way::Go => return Ok(None),
                Way::Full => {
                    let window = self.window();
                    let beginning = (self.turns == 0).then(|| self.window_tokens());
                    let why = effort.why(window, self.planned.max_tokens, beginning);
                    return Ok(Some(Answer::Full { why, is_news: false }));
                }
                Way::Shorten { call_ids, chars } => {
                    match chars == SHORT as u64 && !effort.shortened {
                        true => effort.shortened = true,
                        false => effort.squeezed = Some(chars),
                    }
                    self.shorten(&call_ids, chars)?;
                }
                Way::SumUp { kept_turns } => {
                    if self.messages.before(kept_turns).is_none() {
                        // A record that is replayed and a plan that was edited: the request that follows is another.
                        return if self.past.is_over() { Ok(None) } else { Err(Halt::unlike(&self.id, "asked")) };
                    }
                    effort.tries += 1;
                    match self.sum_up(kept_turns).await? {
                        Summing::Done => effort.summed_up = true,
                        Summing::Limit(answer) => return Ok(Some(answer)),
                        Summing::TooLong => effort.is_summary_too_long = true,
                        Summing::None(why) => {
                            effort.tries = TRIES;
                            effort.no_summary = Some(why);
                        }
                    }
                }
            }
        }
    }

    /// What is done next: as the journal or the record has it, else as it is decided now.
    fn way(&mut self, effort: &Effort, tools_allowed: bool) -> Way {
        if !self.past.is_over() {
            return self.past.way();
        }
        if let Some(recorded) = &self.tree.recorded {
            return recorded.way(&self.id, tools_allowed);
        }
        self.decide(effort, tools_allowed)
    }

    fn decide(&mut self, effort: &Effort, tools_allowed: bool) -> Way {
        let mode = self.tree.plan.compaction;
        let sums_up = mode == Compaction::Summary && tools_allowed && !effort.summed_up && effort.tries < TRIES;
        if let Some(kept_turns) = self.conversation.summary_ahead().filter(|_| tools_allowed && effort.tries == 0)
            && self.messages.before(kept_turns).is_some()
        {
            return Way::SumUp { kept_turns };
        }
        let tokens = self.window_tokens();
        let max_tokens = u64::from(self.planned.max_tokens);
        // A reply that may take more than half of it gets what the prompt leaves.
        let limit = self.prompt_limit();
        let room = self.window().map(|window| (window - max_tokens.min(window / 2)).min(limit));
        let refused = effort.refused.as_ref().and_then(|(refused, _)| *refused);
        let most = match (refused, room) {
            (None, None) => return Way::Go,
            (None, Some(room)) => room,
            (Some(refused), room) => (refused * 4 / 5).min(room.unwrap_or(u64::MAX)),
        };
        if tokens <= most {
            return Way::Go;
        }
        if mode == Compaction::Off {
            // Whoever switched it off lets the provider judge.
            return if refused.is_some() { Way::Full } else { Way::Go };
        }
        let rate = tokens as f64 / self.conversation.size().max(1) as f64;
        let bytes = |tokens: u64| (tokens as f64 / rate).ceil() as usize;
        let keeps = self.messages.keeps(bytes(most / 4)).filter(|_| sums_up);
        if !effort.shortened {
            // In one big step, so that the prompt stays the same for many turns to come.
            let (call_ids, saved) = self.messages.old_results(bytes(tokens - most * 3 / 5));
            let suffices = saved >= bytes(tokens - most * 4 / 5);
            // A summary of what is whole is better than one of what is shortened.
            let is_first =
                keeps.is_none_or(|keeps| suffices || effort.is_summary_too_long || !self.fits(keeps, tokens, rate));
            if !call_ids.is_empty() && is_first {
                return Way::Shorten { call_ids, chars: SHORT as u64 };
            }
        }
        if let Some((kept_turns, _)) = keeps.filter(|_| !effort.is_summary_too_long || effort.shortened) {
            return Way::SumUp { kept_turns };
        }
        match self.messages.all_results(bytes(tokens - most), effort.squeezed.unwrap_or(u64::MAX)) {
            Some((call_ids, chars)) => Way::Shorten { call_ids, chars },
            // Nobody has counted a token yet: where it may fit after all, the provider judges.
            None if effort.refused.is_none() && self.known.is_none() && self.sparsest_tokens() <= most => Way::Go,
            // Rather a shorter reply than none.
            None if refused.is_none() && self.leaves_a_reply(tokens) => Way::Go,
            None => Way::Full,
        }
    }

    /// The least that the next prompt can take.
    fn sparsest_tokens(&self) -> u64 {
        self.conversation.size() as u64 / SPARSEST
    }

    /// Whether a summary that leaves so much out can be asked for with all as it is.
    fn fits(&mut self, (_, kept): (u32, usize), tokens: u64, rate: f64) -> bool {
        let asks = INSTRUCTION.len() as u64 / 2 + u64::from(self.summary_tokens());
        let prompt = tokens.saturating_sub((kept as f64 * rate) as u64);
        prompt + INSTRUCTION.len() as u64 / 2 <= self.prompt_limit()
            && self.window().is_none_or(|window| prompt + asks <= window)
    }

    /// The longest summary that is asked for, in tokens.
    fn summary_tokens(&mut self) -> u32 {
        let most = self.window().map_or(u64::MAX, |window| (window / 4).max(256));
        self.planned.max_tokens.min(SUMMARY_TOKENS).min(u32::try_from(most).unwrap_or(u32::MAX))
    }

    pub(super) fn shorten(&mut self, call_ids: &[String], chars: u64) -> Result<(), Halt> {
        let before = (self.window_tokens(), self.conversation.size());
        let call_ids = self.messages.shorten(call_ids, chars);
        if let Some(recorded) = &self.tree.recorded {
            recorded.shortened(&self.id);
        }
        self.begin_anew(self.messages.all().len(), None);
        let tokens_after = self.estimate(before);
        self.compactions += 1;
        self.record(Shortened { call_ids, chars, tokens_before: before.0, tokens_after })
    }

    /// Asks for a summary of all but the last turns, and goes on from it.
    async fn sum_up(&mut self, kept_turns: u32) -> Result<Summing, Halt> {
        let before = (self.window_tokens(), self.conversation.size());
        let summed = self.messages.before(kept_turns).map_or(0, <[Message]>::len);
        let known = self.known;
        self.begin_anew(summed, Some(INSTRUCTION));
        self.estimate(before);
        let max_tokens = self.summary_tokens();
        let answer = self.request(Kind::Summary { kept_turns, max_tokens }).await?;
        let summing = match answer {
            Answer::Reply(reply) => match reply.why_no_summary() {
                Some(_) if reply.stop == Stop::ContextFull => Summing::TooLong,
                Some(why) => Summing::None(why),
                None => {
                    // Its blocks are masked; a secret can reach from one into the next.
                    let summary = self.tree.mask.text(reply.text().trim()).into_owned();
                    // A server may give more than it is asked for.
                    let mut summary = bounded(summary, MAX_CHARS.min(max_tokens as usize * SPARSEST as usize));
                    if reply.stop == Stop::MaxTokens {
                        summary = format!("{summary}\n{CUT}");
                    }
                    self.messages.sum_up(&summary, kept_turns);
                    self.begin_anew(self.messages.all().len(), None);
                    let tokens_after = self.estimate(before);
                    self.compactions += 1;
                    self.record(SummedUp { summary, kept_turns, tokens_before: before.0, tokens_after })?;
                    return Ok(Summing::Done);
                }
            },
            Answer::Full { .. } => Summing::TooLong,
            answer @ Answer::Limit(_) => Summing::Limit(answer),
        };
        self.begin_anew(self.messages.all().len(), None);
        self.known = known;
        Ok(summing)
    }

    /// Puts the first so many messages in the place of all, and perhaps a remark behind them.
    fn begin_anew(&mut self, messages: usize, remark: Option<&str>) {
        self.conversation.clear();
        for message in self.messages.all().iter().take(messages) {
            self.conversation.push(message);
        }
        if let Some(remark) = remark {
            self.conversation.push(&Message::User(UserMessage::text(remark)));
        }
    }

    /// Estimates the tokens of a conversation that was begun anew, by what the one before had a byte.
    fn estimate(&mut self, (tokens, size): (u64, usize)) -> u64 {
        let now = self.conversation.size();
        let tokens = (tokens as f64 / size.max(1) as f64 * now as f64).ceil() as u64;
        self.known = Some((tokens, now)).filter(|_| tokens > 0);
        tokens
    }
}

/// What came of a summary's request.
enum Summing {
    Done,
    /// A limit had no room for it.
    Limit(Answer),
    /// It didn't fit the window itself.
    TooLong,
    /// What came is none: why.
    None(&'static str),
}
