//! All tests of the whole program, in one binary.
#![allow(clippy::print_stderr, reason = "a test that can't be made here says why")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that can't continue fails, and it needs the machine's PATH"
)]

mod acting_outside;
mod boundary;
mod ci;
mod context;
mod getting_started;
mod harness;
mod house;
mod limits_and_costs;
mod many_runs;
mod models;
mod publish;
mod records;
mod results;
mod running;
#[allow(dead_code, reason = "a harness offers more than any one day's tests use")]
mod support;
mod testing_jobs;
mod tool_servers;
mod tools;
mod validation;
