//! Executes many runs at once on a few threads, each with a runtime of its own: the rows of a map, or test cases.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, available_parallelism, scope};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::runtime::start_runtime;
use crate::error::Error;
use crate::record::{RunSlot, RunSlots};
use crate::sync::IgnorePoison;

/// The stack of a thread that executes runs, as large as that of the main thread usually is.
const STACK_BYTES: usize = 8 << 20;

/// How often it is asked whether a run may start that has to wait.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Whether a run may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It may.
    Now,
    /// Not yet.
    Later,
    /// Neither this run nor any other.
    Never,
}

/// Executes the runs with these numbers in order, at most `jobs` at once; those that only wait for the disk don't
/// count, and are at most as many. `may_start` is asked before each run. `run` returns whether the run is to start once more, as
/// the next one. Returns the numbers of the runs that weren't started or are to start once more.
///
/// # Errors
/// If no thread or runtime can be started. Nothing has run then.
pub fn run_many<F: AsyncFn(usize, Arc<RunSlot>) -> bool + Sync>(
    numbers: Vec<usize>,
    jobs: usize,
    may_start: &(dyn Fn(usize) -> Start + Sync),
    run: &F,
) -> Result<Vec<usize>, Error> {
    let jobs = jobs.min(numbers.len()).max(1);
    let processors = available_parallelism().map_or(1, usize::from);
    let threads = jobs.min(2 * processors);
    let runtimes = (0..threads).map(|_| start_runtime()).collect::<Result<Vec<_>, _>>()?;
    let (queue, is_closed) = (Mutex::new(VecDeque::from(numbers)), Arc::<AtomicBool>::default());
    let next = || {
        let mut queue = queue.lock().ignore_poison();
        let start = queue.front().map_or(Start::Never, |number| may_start(*number));
        let number = if start == Start::Now { queue.pop_front() } else { None };
        is_closed.store(number.is_none() || queue.is_empty(), Ordering::SeqCst);
        number.ok_or(start == Start::Later)
    };
    let run = async |number: usize, slot: Arc<RunSlot>| {
        if run(number, slot).await {
            queue.lock().ignore_poison().push_front(number);
        }
    };
    let mut failures = Vec::new();
    scope(|scope| {
        for (thread, runtime) in runtimes.into_iter().enumerate() {
            // Together they have exactly as many places as there are jobs.
            let places = jobs / threads + usize::from(thread < jobs % threads);
            let (next, is_closed, run) = (&next, &is_closed, &run);
            let work = move || {
                runtime.block_on(async {
                    let (mut active, slots) = (FuturesUnordered::new(), Arc::new(RunSlots::new(Arc::clone(is_closed))));
                    loop {
                        let mut has_to_wait = false;
                        while active.len() < places + slots.given_up().min(places) {
                            let number = match next() {
                                Ok(number) => number,
                                Err(later) => {
                                    has_to_wait = later;
                                    break;
                                }
                            };
                            active.push(run(number, slots.slot()));
                            // The request of this run leaves before the next one starts.
                            tokio::select! {
                                biased;
                                _ = active.next() => {}
                                () = tokio::task::yield_now() => {}
                            }
                        }
                        if active.is_empty() && !has_to_wait {
                            break;
                        }
                        tokio::select! {
                            Some(()) = active.next() => {}
                            () = slots.changed() => {}
                            () = tokio::time::sleep(POLL_INTERVAL), if has_to_wait => {}
                        }
                    }
                });
                // A thread that reads from a slow disk must not delay the end.
                runtime.shutdown_background();
            };
            let started =
                Builder::new().name(format!("runs-{thread}")).stack_size(STACK_BYTES).spawn_scoped(scope, work);
            failures.extend(started.err());
        }
    });
    match failures.pop() {
        // Fewer threads execute all runs, too.
        Some(error) if failures.len() + 1 == threads => Err(Error::environment("no thread can be started")(error)),
        _ => Ok(queue.into_inner().ignore_poison().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn every_row_runs_once_and_no_more_than_the_jobs_at_once() {
        for jobs in [1, 3, 50, 1_000] {
            let (active, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let ran: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            let run = async |row: usize, _slot| {
                most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(3)).await;
                active.fetch_sub(1, Ordering::SeqCst);
                ran[row].fetch_add(1, Ordering::SeqCst);
                false
            };
            let left = run_many((0..100).collect(), jobs, &|_| Start::Now, &run).unwrap();
            assert!(left.is_empty() && ran.iter().all(|count| count.load(Ordering::SeqCst) == 1));
            assert!(most.load(Ordering::SeqCst) <= jobs, "{jobs}");
            assert!(jobs == 1 || most.load(Ordering::SeqCst) > 1, "{jobs}");
        }
    }

    #[test]
    fn a_row_begins_while_another_only_waits_for_the_disk() {
        let begun = AtomicUsize::new(0);
        let run = async |row: usize, slot: Arc<RunSlot>| {
            let others = begun.fetch_add(1, Ordering::SeqCst);
            assert!(row == others, "in order");
            if row == 0 {
                slot.give_up();
                while begun.load(Ordering::SeqCst) < 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // At most one row waits for the disk beside one job.
                tokio::time::sleep(Duration::from_millis(20)).await;
                assert_eq!(begun.load(Ordering::SeqCst), 2);
            } else {
                slot.give_up();
                tokio::time::sleep(Duration::from_millis(if row == 1 { 60 } else { 0 })).await;
            }
            false
        };
        assert!(run_many((0..4).collect(), 1, &|_| Start::Now, &run).unwrap().is_empty());
        assert_eq!(begun.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn the_last_rows_know_that_none_follows() {
        let followed = Mutex::new(Vec::new());
        let run = async |row: usize, slot: Arc<RunSlot>| {
            followed.lock().unwrap().push((row, slot.give_up()));
            false
        };
        assert!(run_many((0..3).collect(), 1, &|_| Start::Now, &run).unwrap().is_empty());
        assert_eq!(followed.into_inner().unwrap(), [(0, true), (1, true), (2, false)]);
    }

    #[test]
    fn no_row_starts_after_the_first_no() {
        let ran = AtomicUsize::new(0);
        let run = async |_: usize, _slot| {
            ran.fetch_add(1, Ordering::SeqCst);
            false
        };
        let may_start = |_| if ran.load(Ordering::SeqCst) < 4 { Start::Now } else { Start::Never };
        let left = run_many((0..10).collect(), 1, &may_start, &run).unwrap();
        assert_eq!(left, (4..10).collect::<Vec<_>>());
        assert!(run_many(Vec::new(), 4, &|_| Start::Now, &run).unwrap().is_empty());
    }

    #[test]
    fn a_row_that_has_to_wait_is_started_later_and_one_runs_once_more() {
        let (asked, ran) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let may_start = |_| if asked.fetch_add(1, Ordering::SeqCst) < 2 { Start::Later } else { Start::Now };
        let run = async |row: usize, _slot| {
            let mut ran = ran.lock().unwrap();
            ran.push(row);
            ran.len() == 1
        };
        assert!(run_many((0..3).collect(), 1, &may_start, &run).unwrap().is_empty());
        assert_eq!(ran.into_inner().unwrap(), [0, 0, 1, 2]);
    }
}
