//! What the tests of the whole program stand on: a folder to work in, the real executable, a provider to talk to.

pub(crate) mod body_dump;
pub(crate) mod journal;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod server;
pub(crate) mod tcp_peer;
pub(crate) mod test_folder;
pub(crate) mod tls;

/// Says why a test did nothing, past the capture of what tests print.
pub(crate) fn report_skipped(why: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "skipped {test}: {why}");
}
