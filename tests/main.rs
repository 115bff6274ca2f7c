//! All tests of the whole program, in one binary.
#![allow(clippy::print_stderr, reason = "a test that can't be made here says why")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that can't go on fails, and it needs the machine's PATH"
)]

#[cfg(target_os = "linux")]
mod attacks;
mod bad_input;
mod bad_servers;
mod bash_rules;
mod caching;
mod cases;
mod changes;
mod checks;
mod ci_logs;
mod commands;
mod compaction;
#[cfg(target_os = "linux")]
mod confinement;
mod counterparties;
mod delegation;
mod diff;
mod dry_run;
mod endpoints;
mod escapes;
mod explain;
mod faults;
mod harness;
mod house;
mod jobs;
mod journal;
mod limits;
mod loopback;
mod memory;
mod options;
mod prices;
mod processes;
mod properties;
mod proved;
mod provider_faults;
mod providers;
mod raised_limits;
mod rate_limits;
mod reading;
mod replay;
mod results;
mod resume;
mod runs;
mod secrets;
mod servers;
mod signals;
mod spending;
mod storage;
mod strangers;
#[allow(dead_code, reason = "a harness offers more than any one day's tests use")]
mod support;
mod trust;
mod validate;
