//! All tests of the whole program, in one binary.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that can't go on fails, and it needs the machine's PATH"
)]

mod bad_input;
mod commands;
mod dry_run;
mod explain;
mod faults;
mod harness;
mod house;
mod jobs;
mod loopback;
mod properties;
mod provider_faults;
mod resume;
mod runs;
mod spending;
#[allow(dead_code, reason = "a harness offers more than any one day's tests use")]
mod support;
mod validate;
