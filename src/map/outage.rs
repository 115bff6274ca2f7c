//! What the rows of a map learn from each other while their provider is down: no further row starts, one row tries again after
//! growing pauses, and all continue when the provider has replied to any of them. A provider that no row has ever reached, or
//! that refuses every row, ends the map soon: then the address or the key is probably wrong.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::event::{ErrorInfo, Event, JournalEntry};
use crate::providers::Contact;
use crate::run::{RunObserver, Start};
use crate::running_clock::RunningInstant;
use crate::sync::IgnorePoison;

/// How long an outage may last until the map ends.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// If no row has ever reached the provider, an outage may last for this part of the limit.
const UNREACHED_PART: u32 = 30;
/// After how many refused rows the map ends if the provider has never replied.
const MAX_REFUSED: u32 = 3;
/// The first pause is this part of the limit, and each further one is twice as long.
const FIRST_PAUSE_PART: u32 = 180;
/// The longest pause is this part of the limit.
const LONGEST_PAUSE_PART: u32 = 15;

/// Decides whether rows start, by what became of those that have run.
#[derive(Debug)]
pub struct OutageGate {
    limit: Duration,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    outage: Option<Outage>,
    /// When the provider last replied to a row.
    last_reply: Option<Instant>,
    /// Whether a server has ever answered as the API does.
    is_reached: bool,
    /// How many rows the provider has refused before it replied to any.
    refused: u32,
    end: Option<MapEnd>,
}

/// Why the map ends before all rows have run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapEnd {
    /// The provider has stopped replying.
    Outage,
    /// No row has reached the provider. Says why, and what to do.
    NeverReached(Option<ErrorInfo>),
    /// The provider has refused the first rows for a reason that all others share. Says why, and what to do.
    Refused(Option<ErrorInfo>),
}

#[derive(Debug)]
struct Outage {
    began: RunningInstant,
    pause: Duration,
    next_try: Instant,
    /// The row that tries whether the provider is back.
    trying: Option<usize>,
    /// The error of the first row.
    error: Option<ErrorInfo>,
}

/// What a row that couldn't reach its provider does.
#[derive(Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// It continues when the provider is back. The first row of an outage says so.
    Wait {
        /// Whether it is the first.
        is_first: bool,
    },
    /// It ends: the provider has replied to other rows meanwhile, or the outage takes too long.
    End,
}

impl OutageGate {
    /// A gate that lets all rows start.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::with_limit(limit())
    }

    fn with_limit(limit: Duration) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Whether a row may start now. If it may during an outage, it is the only one.
    pub fn may_start(&self, row: usize) -> Start {
        let mut state = self.lock();
        let now = Instant::now();
        if state.end.is_some() {
            return Start::Never;
        }
        let (is_reached, limit) = (state.is_reached, self.limit_of(&state));
        let Some(outage) = &mut state.outage else { return Start::Now };
        if outage.began.elapsed() >= limit {
            let error = outage.error.take();
            state.end = Some(if is_reached { MapEnd::Outage } else { MapEnd::NeverReached(error) });
            return Start::Never;
        }
        if outage.trying.is_some() || now < outage.next_try {
            return Start::Later;
        }
        outage.trying = Some(row);
        Start::Now
    }

    /// Takes the events of a row that starts or continues.
    pub fn watch(self: &Arc<Self>) -> Arc<RowWatch> {
        Arc::new(RowWatch { gate: Arc::clone(self), requested_at: Mutex::new(now()) })
    }

    /// A row has ended because its provider failed. `contact` is what all requests to the provider have shown.
    pub fn row_failed(
        &self,
        row: usize,
        watch: &RowWatch,
        contact: Contact,
        error: Option<&ErrorInfo>,
    ) -> AfterFailure {
        let (requested_at, outage_began) = *watch.requested_at.lock().ignore_poison();
        let mut state = self.lock();
        state.is_reached |= contact == Contact::Answered;
        if state.end.is_some() || state.last_reply.is_some_and(|last| last > requested_at) {
            return AfterFailure::End;
        }
        let now = Instant::now();
        let first_pause = self.limit / FIRST_PAUSE_PART;
        match &mut state.outage {
            Some(outage) => {
                if outage.trying == Some(row) {
                    outage.trying = None;
                    outage.pause = (outage.pause * 2).min(self.limit / LONGEST_PAUSE_PART);
                    outage.next_try = now + outage.pause;
                }
                AfterFailure::Wait { is_first: false }
            }
            None => {
                // The requests of rows that have failed at the same time began this long ago.
                state.outage = Some(Outage {
                    began: outage_began,
                    pause: first_pause,
                    next_try: now + first_pause,
                    trying: None,
                    error: error.cloned(),
                });
                AfterFailure::Wait { is_first: true }
            }
        }
    }

    /// A row has ended because its provider refuses it. `contact` is what all requests to the provider have shown.
    pub fn row_refused(&self, contact: Contact, error: Option<&ErrorInfo>) {
        let mut state = self.lock();
        state.is_reached |= contact == Contact::Answered;
        if !state.is_reached {
            state.refused += 1;
            if state.refused >= MAX_REFUSED && state.end.is_none() {
                state.end = Some(MapEnd::Refused(error.cloned()));
            }
        }
    }

    /// A row has ended otherwise. If it was to try the provider, another one may.
    pub fn row_ended(&self, row: usize) {
        if let Some(outage) = self.lock().outage.as_mut().filter(|outage| outage.trying == Some(row)) {
            outage.trying = None;
        }
    }

    /// Why the map ends before all rows have run.
    pub fn end(&self) -> Option<MapEnd> {
        self.lock().end.clone()
    }

    /// How long an outage may last.
    pub fn limit(&self) -> Duration {
        self.limit_of(&self.lock())
    }

    fn limit_of(&self, state: &GateState) -> Duration {
        if state.is_reached { self.limit } else { self.limit / UNREACHED_PART }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().ignore_poison()
    }
}

fn now() -> (Instant, RunningInstant) {
    (Instant::now(), RunningInstant::now())
}

/// Takes the events of one row.
#[derive(Debug)]
pub struct RowWatch {
    gate: Arc<OutageGate>,
    /// When it last tried to reach the provider.
    requested_at: Mutex<(Instant, RunningInstant)>,
}

impl RunObserver for RowWatch {
    fn event(&self, entry: &JournalEntry) {
        match &entry.event {
            Event::RequestStarted(_) | Event::Retrying(_) => {
                *self.requested_at.lock().ignore_poison() = now();
            }
            Event::ReplyReceived(_) => {
                let mut state = self.gate.lock();
                state.last_reply = Some(Instant::now());
                state.is_reached = true;
                state.outage = None;
            }
            _ => {}
        }
    }
}

/// How long an outage may last. Tests of debug builds can make it shorter.
fn limit() -> Duration {
    #[allow(clippy::disallowed_methods)]
    let shorter = if cfg!(debug_assertions) { std::env::var("LEGWORK_OUTAGE_MS").ok() } else { None };
    shorter.and_then(|ms| ms.parse().ok()).map_or(LIMIT, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Arc<OutageGate> {
        Arc::new(OutageGate::with_limit(Duration::from_secs(1_800)))
    }

    fn pretend_it_began_earlier(gate: &OutageGate, seconds: u64) {
        let mut state = gate.lock();
        let outage = state.outage.as_mut().unwrap();
        outage.began = outage.began.before(Duration::from_secs(seconds));
    }

    fn failed(gate: &OutageGate, row: usize, watch: &RowWatch) -> AfterFailure {
        gate.row_failed(row, watch, Contact::Answered, None)
    }

    #[test]
    fn during_an_outage_one_row_tries_at_a_time_and_the_map_ends_at_the_limit() {
        let gate = gate();
        let [first, second] = [gate.watch(), gate.watch()];
        assert_eq!(gate.may_start(0), Start::Now);
        assert_eq!(failed(&gate, 0, &first), AfterFailure::Wait { is_first: true });
        assert_eq!(failed(&gate, 1, &second), AfterFailure::Wait { is_first: false });
        assert_eq!(gate.may_start(0), Start::Later, "a pause first");
        let pause_is_over = || gate.lock().outage.as_mut().unwrap().next_try = Instant::now();
        pause_is_over();
        assert_eq!([gate.may_start(0), gate.may_start(1)], [Start::Now, Start::Later]);
        assert_eq!(failed(&gate, 0, &first), AfterFailure::Wait { is_first: false });
        assert_eq!(gate.lock().outage.as_ref().unwrap().pause, Duration::from_secs(20));
        pause_is_over();
        assert_eq!(gate.may_start(1), Start::Now);
        gate.row_ended(1);
        assert_eq!(gate.may_start(1), Start::Now, "it ended for another reason, such as a limit");
        pretend_it_began_earlier(&gate, 1_800);
        assert_eq!(gate.may_start(2), Start::Never);
        assert_eq!(gate.end(), Some(MapEnd::Outage));
        assert_eq!(failed(&gate, 1, &second), AfterFailure::End);
    }

    #[test]
    fn a_row_ends_if_only_its_own_requests_fail() {
        let gate = gate();
        let failing = gate.watch();
        gate.lock().last_reply = Some(Instant::now() + Duration::from_secs(1));
        assert_eq!(failed(&gate, 0, &failing), AfterFailure::End);
        assert_eq!(gate.may_start(1), Start::Now);
    }

    #[test]
    fn a_provider_that_was_never_reached_ends_the_map_after_a_minute_and_an_answer_gives_it_half_an_hour() {
        let error = ErrorInfo { code: String::new(), message: "no such host".to_owned(), hint: None };
        for reached in [false, true] {
            let gate = gate();
            let watch = gate.watch();
            gate.row_failed(0, &watch, Contact::None, Some(&error));
            assert_eq!(gate.limit(), Duration::from_secs(60));
            if reached {
                failed(&gate, 1, &watch);
            }
            pretend_it_began_earlier(&gate, 60);
            assert_eq!(gate.may_start(0) == Start::Never, !reached);
            assert_eq!(gate.end(), (!reached).then(|| MapEnd::NeverReached(Some(error.clone()))));
        }
    }

    #[test]
    fn three_refused_rows_end_the_map_unless_the_provider_has_answered_any() {
        let gate = gate();
        gate.row_refused(Contact::Refused, None);
        gate.row_refused(Contact::Refused, None);
        assert_eq!(gate.may_start(2), Start::Now);
        gate.row_refused(Contact::Refused, None);
        assert_eq!((gate.may_start(3), gate.end()), (Start::Never, Some(MapEnd::Refused(None))));
        let gate = self::gate();
        (0..9).for_each(|_| gate.row_refused(Contact::Answered, None));
        assert_eq!((gate.may_start(3), gate.end()), (Start::Now, None));
    }
}
