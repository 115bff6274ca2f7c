use futures_util::FutureExt;

use super::request_estimate::FINAL_PROMPT_EXTRA_TOKENS;
use super::*;
use crate::map::MapBudget;
use crate::map::ledger;

fn limits() -> PlannedLimits {
    PlannedLimits {
        cost_usd: None,
        tokens: None,
        wall_clock_ms: None,
        tool_calls: None,
        subagents: None,
        upload_bytes: None,
        parallel_subagents: 1,
    }
}

fn of_tokens(limit: u64) -> Budget {
    Budget::new(PlannedLimits { tokens: Some(limit), ..limits() })
}

fn of_cost(limit: f64) -> Budget {
    Budget::new(PlannedLimits { cost_usd: Some(limit), ..limits() })
}

impl ReserveError {
    fn hit(self) -> LimitReached {
        match self {
            Self::Limit(hit) => hit,
            Self::Ledger(error) => panic!("{error}"),
        }
    }
}

fn used(tokens: u64) -> Usage {
    Usage { input_tokens: tokens, ..Usage::default() }
}

fn wish(prompt_tokens: u64, max_tokens: u32) -> RequestEstimate {
    let rates = Rates { input: 100.0, output: 1000.0, cache_read: 10.0, cache_write: 100.0 };
    RequestEstimate { prompt_tokens, max_tokens, rates: Some(rates), reserves_final_request: false }
}

fn work(prompt_tokens: u64, max_tokens: u32) -> RequestEstimate {
    RequestEstimate { reserves_final_request: true, ..wish(prompt_tokens, max_tokens) }
}

/// The result if the request needn't wait; `None` if it must.
fn try_now(budget: &Budget, wish: RequestEstimate) -> Option<Result<Reservation<'_>, LimitReached>> {
    budget.reserve(wish).now_or_never().map(|reserved| reserved.map_err(ReserveError::hit))
}

fn now(budget: &Budget, wish: RequestEstimate) -> Reservation<'_> {
    try_now(budget, wish).expect("it doesn't wait").unwrap()
}

fn refused(budget: &Budget, wish: RequestEstimate) -> String {
    try_now(budget, wish).expect("it doesn't wait").unwrap_err().limit
}

#[test]
fn replies_are_shortened_to_what_is_left_and_then_refused() {
    let budget = of_tokens(2_000);
    now(&budget, wish(500, 1_000)).settle(&used(1_400), None);
    assert_eq!(now(&budget, wish(100, 1_000)).max_tokens, 500);
    assert_eq!(now(&budget, wish(344, 1_000)).max_tokens, 256);
    assert_eq!(refused(&budget, wish(345, 1_000)), "limits.tokens");
    now(&budget, wish(100, 1_000)).settle(&used(700), None);
    assert_eq!(refused(&budget, wish(0, 1_000)), "limits.tokens", "overspent");
}

#[test]
fn cost_counts_prompt_and_reply() {
    let budget = of_cost(1.0);
    let first = now(&budget, wish(1_000, 10_000));
    assert_eq!(first.max_tokens, 900);
    first.settle(&used(1_000), Some(0.1));
    assert_eq!(now(&budget, wish(0, 10_000)).max_tokens, 900);
    now(&budget, wish(0, 600)).settle(&used(600), None);
    let hit = try_now(&budget, wish(1_000, 10_000)).unwrap().unwrap_err();
    assert_eq!(hit.limit, "limits.cost_usd", "what isn't known costs what was set aside");
    assert_eq!(hit.message, "$0.7000 of $1.0000 are spent, and the rest isn't enough to continue");
}

#[test]
fn requests_without_a_price_are_allowed_as_long_as_priced_ones() {
    let unpriced = RequestEstimate { rates: None, ..wish(50_000, 10_000) };
    let budget = of_cost(1.0);
    let request = now(&budget, unpriced);
    assert_eq!((request.max_tokens, request.most.cost_usd), (10_000, 0.0));
    request.settle(&used(10_000), None);
    now(&budget, wish(0, 1000)).settle(&used(1000), Some(1.0));
    assert_eq!(try_now(&budget, unpriced).unwrap().unwrap_err().limit, "limits.cost_usd");
}

#[test]
fn a_short_reply_does_not_reach_the_limit() {
    assert_eq!(now(&of_tokens(100), wish(10, 50)).max_tokens, 50);
}

#[test]
fn requests_wait_for_the_reservations_of_others() {
    let budget = of_tokens(2_000);
    let first = now(&budget, wish(500, 1_000));
    let mut second = Box::pin(budget.reserve(wish(100, 1_000)));
    assert!(second.as_mut().now_or_never().is_none(), "no reply is made shorter by a reservation");
    assert_eq!(now(&budget, wish(100, 400)).max_tokens, 400, "what fits beside it doesn't wait");
    assert!(second.as_mut().now_or_never().is_none());
    assert_eq!(refused(&budget, wish(1_800, 400)), "limits.tokens", "what never fits doesn't wait");
    first.settle(&used(600), None);
    let second = second.now_or_never().expect("it was woken").unwrap();
    assert_eq!(second.max_tokens, 1_000);
    drop(second);
    assert_eq!(now(&budget, wish(0, 2_000)).max_tokens, 1_400, "a reservation that is dropped has used nothing");
}

#[test]
fn a_waiting_request_is_refused_when_others_have_used_everything() {
    let budget = of_cost(1.0);
    let first = now(&budget, wish(1_000, 900));
    let mut second = Box::pin(budget.reserve(wish(1_000, 900)));
    assert!(second.as_mut().now_or_never().is_none());
    first.settle(&used(1_900), Some(0.95));
    assert_eq!(second.now_or_never().unwrap().unwrap_err().hit().limit, "limits.cost_usd");
}

#[tokio::test]
async fn concurrent_requests_stay_within_the_limit_and_all_end() {
    let budget = of_tokens(10_000);
    let agent = |number: u64| {
        let budget = &budget;
        async move {
            let mut requests = 0;
            while let Ok(reservation) = budget.reserve(wish(100 + number, 900)).await {
                tokio::task::yield_now().await;
                let all = reservation.most.tokens;
                reservation.settle(&used(all), None);
                requests += 1;
            }
            requests
        }
    };
    let requests: u32 = futures_util::future::join_all((0..20).map(agent)).await.into_iter().sum();
    let spent = budget.lock();
    assert!(
        spent.spent.tokens <= 10_000 && spent.spent.tokens > 10_000 - 256 - 120,
        "{} by {requests}",
        spent.spent.tokens
    );
    assert_eq!((spent.reservations, spent.reserved.tokens), (0, 0));
}

#[test]
fn turns_leave_room_for_the_final_request() {
    for left in (0..20_000).step_by(7) {
        let budget = of_tokens(left);
        match try_now(&budget, work(500, 3_000)).unwrap() {
            Ok(reservation) => {
                // At worst, it uses everything, and the prompt grows by all that was reserved for that.
                let prompt = reservation.most.tokens + FINAL_PROMPT_EXTRA_TOKENS;
                let all = reservation.most.tokens;
                reservation.settle(&used(all), None);
                assert!(now(&budget, wish(prompt, 3_000)).max_tokens >= MIN_REPLY_TOKENS, "{left}");
            }
            Err(hit) => assert!(left < 2 * 500 + 3 * 256 + FINAL_PROMPT_EXTRA_TOKENS, "{left}: {hit:?}"),
        }
    }
    for cents in 0..500 {
        let budget = of_cost(f64::from(cents) / 100.0);
        if let Ok(reservation) = try_now(&budget, work(500, 3_000)).unwrap() {
            let (tokens, cost) = (reservation.most.tokens, reservation.most.cost_usd);
            // A little less, because sums of fractions aren't exact.
            reservation.settle(&used(tokens), Some(cost - 1e-9));
            assert!(
                now(&budget, wish(tokens + FINAL_PROMPT_EXTRA_TOKENS, 3_000)).max_tokens >= MIN_REPLY_TOKENS,
                "{cents}"
            );
        } else {
            assert!(cents < 100, "{cents}");
        }
    }
}

/// The prompt keeps its length and each reply is short, turn after turn, and then comes the final request.
#[test]
fn little_more_than_one_request_stays_unused() {
    const REPLY: u64 = 60;
    for (limit, prompt) in (2_000..40_000).step_by(97).flat_map(|limit| [300, 500, 1_500].map(|prompt| (limit, prompt)))
    {
        let budget = of_tokens(limit);
        let mut unused = limit;
        while let Ok(reservation) = try_now(&budget, work(prompt, 8_000)).unwrap() {
            reservation.settle(&used(prompt + REPLY), None);
            unused -= prompt + REPLY;
        }
        if let Ok(last) = try_now(&budget, wish(prompt, 8_000)).unwrap() {
            last.settle(&used(prompt + REPLY), None);
            unused -= prompt + REPLY;
        }
        assert!(unused < prompt + 4 * u64::from(MIN_REPLY_TOKENS), "{unused} of {limit}, at {prompt} a prompt");
    }
}

#[test]
fn held_tokens_are_available_later() {
    let budget = of_tokens(5_000);
    let kept = budget.hold(1_000, None);
    now(&budget, wish(100, 8_000)).settle(&used(3_744), None);
    assert_eq!(refused(&budget, wish(0, 8_000)), "limits.tokens");
    drop(kept);
    assert_eq!(now(&budget, wish(1_000, 8_000)).max_tokens, 256);
}

#[test]
fn tries_end_before_they_exceed_the_limit() {
    let budget = of_tokens(3_000);
    let reservation = now(&budget, wish(500, 1_000));
    for _ in 0..3 {
        reservation.count_failed(&used(500), None).unwrap();
    }
    assert_eq!(reservation.count_failed(&used(500), None).unwrap_err().limit, "limits.tokens");
    reservation.settle(&Usage::default(), None);
    assert_eq!(now(&budget, wish(500, 1_000)).max_tokens, 500);
}

#[test]
fn calls_and_subagents_are_counted_to_their_limit() {
    let budget = Budget::new(PlannedLimits { tool_calls: Some(1), subagents: Some(1), ..limits() });
    budget.count_call().unwrap();
    assert_eq!(budget.count_call().unwrap_err().limit, "limits.tool_calls");
    budget.count_subagent().unwrap();
    assert_eq!(budget.count_subagent().unwrap_err().limit, "limits.subagents");
}

#[test]
fn a_reached_limit_reports_what_is_held() {
    let budget = of_tokens(9_000);
    now(&budget, wish(0, 3_000)).settle(&used(3_648), None);
    let kept = budget.hold(3_000, None);
    let hit = try_now(&budget, work(1_066, 1_000)).unwrap().unwrap_err();
    assert_eq!(
        hit.message,
        "3648 of 9000 tokens are used, 3256 are held for agents that wait for their subagents, and the rest isn't enough to continue: \
         the next prompt alone takes about 1066, and the final request more than that again"
    );
    drop(kept);
    let hit = try_now(&budget, wish(6_000, 1_000)).unwrap().unwrap_err();
    assert!(hit.message.ends_with("to continue: the next prompt alone takes about 6000"), "{}", hit.message);
    assert!(!hit.message.contains("kept"), "{}", hit.message);
}

fn map_of_tokens(folder: &std::path::Path, process: &str, limit: u64) -> Arc<MapBudget> {
    let limits = ledger::MapLimits { tokens: Some(limit), cost_usd: None };
    Arc::new(MapBudget::new(ledger::Ledger::open(folder, process, limits).unwrap(), limits))
}

#[tokio::test]
async fn the_rows_of_a_map_wait_for_each_other_and_then_share_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let map = map_of_tokens(folder.path(), "one", 2_000);
    let row = |limit: Option<u64>| {
        Budget::new(PlannedLimits { tokens: limit, ..limits() }).within_map(Some(Arc::<MapBudget>::clone(&map)))
    };
    let (first, second) = (row(None), row(Some(100_000)));
    let reserved = now(&first, wish(500, 1_000));
    assert!(try_now(&second, wish(500, 1_000)).is_none(), "the first row may return what it has reserved");
    reserved.settle(&used(700), None);
    let shorter = now(&second, wish(500, 1_000));
    assert_eq!((shorter.max_tokens, shorter.limit), (800, "limits.map"));
    drop(shorter);
    assert!(map.exhausted().is_none());
    now(&second, wish(500, 700)).settle(&used(1_100), None);
    assert_eq!(refused(&second, wish(100, 1_000)), "limits.map");
    assert_eq!(refused(&first, wish(100, 1_000)), "limits.map");
    assert!(map.exhausted().unwrap().contains("1800 of the map's 2000 tokens"), "{:?}", map.exhausted());
    assert!(try_now(&row(Some(300)), wish(100, 1_000)).is_some_and(|refused| refused.is_err()));
}

#[tokio::test]
async fn a_row_waits_for_what_other_processes_may_give_back() {
    let folder = tempfile::tempdir().unwrap();
    let row = |process: &str| Budget::new(limits()).within_map(Some(map_of_tokens(folder.path(), process, 10_000)));
    let (one, other) = (row("one"), row("other"));
    now(&one, wish(1_000, 5_000)).settle(&used(5_500), None);
    let held = now(&one, wish(1_000, 2_000));
    // Neither what the other process has reserved nor a part that it claims ahead is available.
    assert!(try_now(&other, wish(1_300, 1_000)).is_none());
    held.settle(&used(100), None);
    // The other process gives the rest back at a beat, although none of its rows ends.
    let given = other.reserve(wish(3_300, 1_000)).await.unwrap();
    assert_eq!(given.max_tokens, 1_000);
    drop(given);
    // What was sent and has no known end counts as used.
    let mut interrupted = now(&other, wish(3_000, 1_300));
    interrupted.mark_sent();
    drop(interrupted);
    assert!(other.reserve(wish(100, 300)).await.is_err());
    // A damaged ledger isn't free money.
    std::fs::write(folder.path().join("third.json"), "{").unwrap();
    let failed = other.reserve(wish(1_000, 1_000)).now_or_never().unwrap().unwrap_err();
    assert!(matches!(failed, ReserveError::Ledger(_)), "{failed:?}");
}
