//! The fixtures of the tests of the whole program: a folder to work in, the real executable, a provider.

pub(crate) mod body_dump;
pub(crate) mod journal;
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
