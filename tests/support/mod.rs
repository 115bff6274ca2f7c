//! The fixtures of the tests of the whole program: a folder to work in, the real executable, a provider.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) mod body_dump;
pub(crate) mod bubblewrap;
pub(crate) mod forge;
pub(crate) mod job;
pub(crate) mod journal;
mod process_state;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod server;
pub(crate) mod tcp_peer;
pub(crate) mod terminal;
pub(crate) mod test_folder;
pub(crate) mod tls;

/// Prints why a test did nothing, in spite of output capturing.
pub(crate) fn report_skipped(why: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "skipped {test}: {why}");
}

/// A sample of points, such as the events of a run or attacks, spread over all of them: others at each call and in each run of
/// the tests, so that the calls of a loop try each together. All of them if `LEGWORK_TEST_POINTS` is `all`.
pub(crate) fn sample<T>(points: impl IntoIterator<Item = T>, most: usize) -> Vec<T> {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let all: Vec<T> = points.into_iter().collect();
    if std::env::var_os("LEGWORK_TEST_POINTS").is_some_and(|points| points == "all") {
        return all;
    }
    let step = all.len().div_ceil(most).max(1);
    let first = (std::process::id() as usize).wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
    all.into_iter().skip(first % step).step_by(step).collect()
}

/// Tests several items at the same time, because they mostly wait: each on a thread that has the name of the test. Returns
/// the results in the order of the items.
pub(crate) fn in_parallel<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    test: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let (name, test) = (std::thread::current().name().unwrap_or_default().to_owned(), &test);
    std::thread::scope(|scope| {
        let start = |item| {
            let thread = std::thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, move || test(item)).expect("a thread")
        };
        let threads: Vec<_> = items.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}
