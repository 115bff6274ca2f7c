//! The governor against simulated servers. The simulation has its own clock, so it is exact and fast.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// How a server counts requests.
#[derive(Debug, Clone, Copy)]
enum Counting {
    /// A token bucket that refills at a constant rate.
    Bucket { per_second: f64, capacity: f64 },
    /// A fixed number of requests in each window.
    Window { most: f64, seconds: f64 },
}

/// The `retry-after` that a rejected client gets.
#[derive(Debug, Clone, Copy)]
enum Advice {
    Nothing,
    /// A constant number of seconds, whatever the server's state.
    Seconds(f64),
    /// The actual time until the server accepts a request again, in whole seconds.
    Honest,
}

#[derive(Debug, Clone, Copy)]
struct Server {
    counting: Counting,
    advice: Advice,
    sends_headers: bool,
    /// Seconds until the head of a reply, and from there to its end.
    latency: (f64, f64),
    tokens: f64,
    at: f64,
}

impl Server {
    fn new(counting: Counting, advice: Advice, sends_headers: bool, latency: (f64, f64)) -> Self {
        let mut server = Self { counting, advice, sends_headers, latency, tokens: 0.0, at: 0.0 };
        server.tokens = server.most();
        server
    }

    fn most(&self) -> f64 {
        match self.counting {
            Counting::Bucket { capacity, .. } => capacity,
            Counting::Window { most, .. } => most,
        }
    }

    fn refill(&mut self, now: f64) {
        match self.counting {
            Counting::Bucket { per_second, capacity } => {
                self.tokens = (self.tokens + (now - self.at) * per_second).min(capacity);
            }
            Counting::Window { most, seconds } => {
                if (now / seconds).floor() > (self.at / seconds).floor() {
                    self.tokens = most;
                }
            }
        }
        self.at = now;
    }

    /// Seconds until the server accepts a request.
    fn wait(&mut self, now: f64) -> f64 {
        self.refill(now);
        match self.counting {
            _ if self.tokens >= 1.0 => 0.0,
            Counting::Bucket { per_second, .. } => (1.0 - self.tokens) / per_second + 1e-6,
            Counting::Window { seconds, .. } => ((now / seconds).floor() + 1.0) * seconds - now + 1e-6,
        }
    }

    fn takes(&mut self, now: f64) -> bool {
        let takes = self.wait(now) == 0.0;
        self.tokens -= f64::from(u8::from(takes));
        takes
    }

    fn pause(&mut self, now: f64) -> Option<Duration> {
        match self.advice {
            Advice::Nothing => None,
            Advice::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
            Advice::Honest => Some(Duration::from_secs_f64(self.wait(now).ceil())),
        }
    }

    fn reported(&mut self, now: f64) -> Vec<LimitReport> {
        self.refill(now);
        let missing = self.most() - self.tokens;
        let reset = match self.counting {
            Counting::Bucket { per_second, .. } => missing / per_second,
            Counting::Window { seconds, .. } => ((now / seconds).floor() + 1.0) * seconds - now,
        };
        let reported = LimitReport {
            table_index: 0,
            unit: Unit::Requests,
            limit: Some(self.most()),
            remaining: self.tokens.floor(),
            // Anthropic's reset times have whole seconds.
            is_clock_time: false,
            reset: Duration::from_secs_f64(if reset > 2.0 { reset.ceil() } else { reset }),
        };
        if self.sends_headers { vec![reported] } else { Vec::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake,
    /// The response to an agent's request with this number: the head of a reply, or a rejection.
    Head(usize, u64),
    Refusal(usize, u64, Option<Duration>),
    End(usize, u64),
}

/// The result of a simulation.
#[derive(Debug)]
struct Outcome {
    seconds: f64,
    refused: usize,
    /// The most requests rejected within half a second, except those in flight at the first rejection.
    storm: usize,
}

/// Simulates agents that each make a number of requests in sequence. Without a governor, each request starts as soon as
/// the server would accept it, which is the ideal.
fn run(mut server: Server, agents: usize, each: usize, is_governed: bool) -> Outcome {
    let begun = Instant::now();
    let at = |seconds: f64| begun + Duration::from_secs_f64(seconds);
    let mut state = GovernorState::new(Duration::from_secs(1));
    let mut random = 7_u64;
    let mut chance = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut queue: VecDeque<usize> = (0..agents).collect();
    let mut left = vec![each; agents];
    // In microseconds, because floats have no total order.
    let mut events: BinaryHeap<Reverse<(u64, Event)>> = BinaryHeap::new();
    let mut refusals = Vec::new();
    let mut headers = HashMap::new();
    let mut now = 0.0;
    let mut woken = 0;
    let micros = |seconds: f64| (seconds * 1e6).ceil() as u64;
    loop {
        while let Some(agent) = queue.front().copied() {
            let admitted = if is_governed {
                state.admit(at(now)).map_err(|until| until.map(|until| (until - begun).as_secs_f64()))
            } else {
                match server.wait(now) {
                    0.0 => Ok(0),
                    wait => Err(Some(now + wait)),
                }
            };
            match admitted {
                Ok(number) => {
                    queue.pop_front();
                    let pause = (!server.takes(now)).then(|| server.pause(now));
                    headers.insert(number, server.reported(now));
                    let (after, event) = match pause {
                        None => (server.latency.0, Event::Head(agent, number)),
                        Some(pause) => (0.1, Event::Refusal(agent, number, pause)),
                    };
                    events.push(Reverse((micros(now + after), event)));
                }
                Err(until) => {
                    // At most one wake-up per time.
                    if let Some(until) = until.map(micros).filter(|until| *until != woken) {
                        woken = until;
                        events.push(Reverse((until, Event::Wake)));
                    }
                    break;
                }
            }
        }
        let Some(Reverse((time, event))) = events.pop() else { break };
        now = time as f64 / 1e6;
        assert!(now < 36_000.0, "it never ends");
        match event {
            Event::Wake => {}
            Event::Head(agent, number) => {
                if is_governed {
                    state.apply_headers(at(now), number, &headers[&number]);
                    state.on_accepted(number);
                }
                events.push(Reverse((micros(now + server.latency.1), Event::End(agent, number))));
            }
            Event::Refusal(agent, number, pause) => {
                state.apply_headers(at(now), number, &headers[&number]);
                state.on_throttle(at(now), number, Throttle { retry_after: pause, is_for_rate: true }, chance());
                state.on_finished(number);
                refusals.push(now);
                queue.push_back(agent);
            }
            Event::End(agent, number) => {
                if is_governed {
                    state.on_finished(number);
                }
                left[agent] -= 1;
                if left[agent] > 0 {
                    queue.push_back(agent);
                } else if left.iter().all(|left| *left == 0) {
                    break;
                }
            }
        }
    }
    // Rejections of requests that were in flight at the first one can't be avoided.
    let first = refusals.first().copied().unwrap_or_default();
    let later: Vec<f64> = refusals.iter().copied().filter(|time| *time > first + 0.5).collect();
    let storm = |start: &f64| later.iter().filter(|time| (*start..*start + 0.5).contains(*time)).count();
    Outcome { seconds: now, refused: refusals.len(), storm: later.iter().map(storm).max().unwrap_or_default() }
}

/// Servers of many kinds, each with the allowed delay over the ideal in seconds: one window, at most.
fn servers() -> Vec<(Server, f64)> {
    let mut servers = Vec::new();
    let minute = 50.0 / 60.0;
    for (counting, window) in [
        (Counting::Bucket { per_second: minute, capacity: 50.0 }, 1.0),
        (Counting::Bucket { per_second: minute, capacity: 1.0 }, 1.0),
        (Counting::Window { most: 50.0, seconds: 60.0 }, 60.0),
        (Counting::Bucket { per_second: 1.0, capacity: 1.0 }, 1.0),
        (Counting::Bucket { per_second: 2.0, capacity: 2.0 }, 1.0),
        (Counting::Bucket { per_second: 4.0, capacity: 4.0 }, 1.0),
        (Counting::Window { most: 3.0, seconds: 1.0 }, 1.0),
    ] {
        // The last advice is longer than most of these limits need.
        for advice in [Advice::Nothing, Advice::Honest, Advice::Seconds(0.2), Advice::Seconds(2.0)] {
            for sends_headers in [false, true] {
                for latency in [(0.05, 0.05), (2.0, 8.0)] {
                    servers.push((Server::new(counting, advice, sends_headers, latency), window));
                }
            }
        }
    }
    servers
}

#[test]
fn agents_finish_close_to_the_ideal_time_without_bursts_of_rejections() {
    let mut ratios = Vec::new();
    for (server, window) in servers() {
        for agents in [8, 12, 20] {
            let each = 10;
            let (ideal, outcome) = (run(server, agents, each, false), run(server, agents, each, true));
            let told = || format!("{outcome:?} instead of {}: {agents} agents, {server:?}", ideal.seconds);
            assert!(outcome.seconds <= 1.45 * ideal.seconds + window + 5.0, "{}", told());
            assert!(outcome.refused <= agents + agents * each / 5, "{}", told());
            assert!(outcome.storm <= agents * 3 / 4, "{}", told());
            ratios.push(outcome.seconds / ideal.seconds);
        }
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[ratios.len() / 2] < 1.1, "half of them take no more than a tenth longer: {ratios:?}");
    assert!(ratios[ratios.len() * 9 / 10] < 1.35, "nine of ten take no more than a third longer: {ratios:?}");
}

fn throttle(seconds: impl Into<Option<u64>>) -> Throttle {
    Throttle { retry_after: seconds.into().map(Duration::from_secs), is_for_rate: true }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_rejection_closes_the_gate_for_all_and_requests_resume_one_by_one() {
    let (mut state, begun) = (GovernorState::new(SECOND), Instant::now());
    for number in 1..=12 {
        assert_eq!(state.admit(begun), Ok(number));
    }
    for number in 1..=12 {
        assert!(state.on_throttle(begun, number, throttle(2), 0.5) >= 2 * SECOND);
        state.on_finished(number);
    }
    // Jitter is at most a quarter of the pause.
    let opens = begun + 2 * SECOND + SECOND / 4;
    assert_eq!(state.admit(begun + 2 * SECOND), Err(Some(opens)));
    assert_eq!(state.admit(opens), Ok(13));
    let next = state.admit(opens).unwrap_err().unwrap();
    assert!((opens + SECOND / 10..opens + SECOND / 5).contains(&next));
    assert_eq!(state.admit(next), Ok(14));
}

#[test]
fn the_backoff_doubles_until_a_request_is_accepted() {
    let (mut state, mut now) = (GovernorState::new(SECOND), Instant::now());
    let mut waits = Vec::new();
    for _ in 0..9 {
        let number = state.admit(now).unwrap();
        let wait = state.on_throttle(now, number, throttle(None), 1.0);
        state.on_finished(number);
        now += wait + 10 * SECOND;
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    let number = state.admit(now).unwrap();
    state.on_accepted(number);
    let number = state.admit(now + 10 * SECOND).unwrap();
    assert_eq!(state.on_throttle(now + 10 * SECOND, number, throttle(None), 1.0), SECOND);
}

#[test]
fn an_endless_pause_is_reported_and_does_not_overflow() {
    let (mut state, now) = (GovernorState::new(SECOND), Instant::now());
    let number = state.admit(now).unwrap();
    let endless = Throttle { retry_after: Some(Duration::MAX), is_for_rate: false };
    assert_eq!(state.on_throttle(now, number, endless, 0.9), Duration::MAX);
    assert_eq!(state.admit(now), Err(Some(now + MAX_CLOSURE)));
}

#[test]
fn headers_delay_a_request_before_it_is_rejected() {
    let (mut state, now) = (GovernorState::new(SECOND), Instant::now());
    let report = |remaining| LimitReport {
        table_index: 0,
        unit: Unit::Requests,
        limit: Some(50.0),
        remaining,
        reset: 60 * SECOND,
        is_clock_time: true,
    };
    for number in 1..=3 {
        assert_eq!(state.admit(now), Ok(number));
    }
    // Two requests remained, and the later ones have used both.
    state.apply_headers(now, 1, &[report(2.0)]);
    let ready = state.admit(now).unwrap_err().unwrap();
    assert_eq!(ready, now + (60 * SECOND).div_f64(48.0));
    // A late response to an earlier request has older information.
    state.apply_headers(now, 3, &[report(10.0)]);
    state.apply_headers(now, 2, &[report(0.0)]);
    assert_eq!(state.admit(now), Ok(4));
    // Invalid values don't delay requests for long.
    state.apply_headers(now, 4, &[LimitReport { limit: None, reset: Duration::MAX, ..report(0.0) }]);
    assert_eq!(state.admit(now), Err(Some(now + MAX_HEADER_WAIT)));
}

#[test]
fn token_limits_use_the_average_usage_of_requests() {
    let (mut state, now) = (GovernorState::new(SECOND), Instant::now());
    let usage = Usage { input_tokens: 1_000, output_tokens: 200, cache_read_tokens: 50_000, ..Usage::default() };
    state.on_reply(&usage);
    let number = state.admit(now).unwrap();
    let report = |unit, remaining| {
        [LimitReport {
            table_index: 1,
            unit,
            limit: Some(61_000.0),
            remaining,
            reset: 60 * SECOND,
            is_clock_time: true,
        }]
    };
    // Cached tokens don't count.
    state.apply_headers(now, number, &report(Unit::InputTokens, 1_000.0));
    assert_eq!(state.admit(now), Ok(number + 1));
    state.on_finished(number + 1);
    let held = state.admit(now).unwrap_err().unwrap();
    assert_eq!(held, now + SECOND, "60,000 tokens come back within a minute, and 1,000 are missing");
}

#[test]
fn concurrency_is_reduced_after_a_rejection_until_requests_are_accepted_again() {
    let (mut state, begun) = (GovernorState::new(SECOND), Instant::now());
    let numbers: Vec<u64> = (0..20).map(|_| state.admit(begun).unwrap()).collect();
    let overloaded = Throttle { retry_after: None, is_for_rate: false };
    state.on_throttle(begun, 20, overloaded, 0.0);
    let later = begun + 100 * SECOND;
    assert_eq!(state.admit(later), Err(None), "twenty are under way, and half of that is allowed");
    numbers.iter().skip(9).for_each(|number| state.on_finished(*number));
    assert_eq!(state.admit(later), Ok(21));
    assert_eq!(state.admit(later + SECOND), Err(None));
    state.on_accepted(21);
    assert_eq!(state.admit(later + SECOND), Ok(22));
}

#[tokio::test]
async fn a_dropped_waiter_gives_up_its_turn() {
    let governor = RateGovernor::shared([7; 32], Duration::from_millis(1));
    let first = governor.admit().await;
    let pause = Some(Duration::from_millis(30));
    first.on_throttle(Throttle { retry_after: pause, is_for_rate: true });
    drop(first);
    // The first is dropped while it waits for the gate, the second while it waits for the first.
    let waits = async { drop((governor.admit().await, governor.admit().await)) };
    assert!(tokio::time::timeout(Duration::from_millis(5), waits).await.is_err());
    drop(governor.admit().await);
    assert!(!governor.has_replied());
    assert!(Arc::ptr_eq(&governor, &RateGovernor::shared([7; 32], Duration::from_millis(1))));
    assert!(!Arc::ptr_eq(&governor, &RateGovernor::shared([8; 32], Duration::from_millis(1))));
}
