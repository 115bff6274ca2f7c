//! All tests of the whole program, in one binary.
#![allow(clippy::print_stderr, reason = "a test that can't be made here says why")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that can't continue fails, and it needs the machine's PATH"
)]

mod apply;
mod bad_input;
mod bash_rules;
mod budget;
mod cases;
mod checks;
mod ci_files;
mod cli_commands;
mod compaction;
mod context_files;
mod diff;
mod doctor;
mod dry_run;
mod endpoints;
mod engines;
mod everyday_options;
mod explain;
mod exports;
mod fallback;
mod file_tool_escapes;
mod forged_records;
mod gather;
mod github_action;
mod harness;
mod house;
mod human_output;
mod images;
mod interop;
mod job_lifecycle;
mod jobs;
mod journal;
mod keyed_runs;
mod limit_overrides;
mod limits;
mod live_progress;
mod log_injection;
mod map;
mod map_example;
mod mcp;
mod misconfigured_servers;
mod mock_server;
mod model_options;
mod newcomer;
mod own_programs;
mod prices;
mod process_cleanup;
mod prompt_caching;
mod properties;
mod prune;
mod provider_failures;
mod providers;
mod rate_limits;
mod record_state;
mod record_storage;
mod record_trust;
mod replay;
mod report;
mod resume;
mod run_failures;
mod run_list;
mod runs;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod sandbox_attacks;
#[cfg(target_os = "macos")]
mod seatbelt;
mod secrets;
mod server_settings;
mod shared_folder;
mod show;
mod signals;
mod skills;
mod step_words;
mod structured_results;
mod subagents;
#[allow(dead_code, reason = "a harness offers more than any one day's tests use")]
mod support;
#[cfg(target_os = "linux")]
mod suspensions;
mod text_replies;
mod tool_memory;
mod untrusted_jobs;
mod user_servers;
mod validate;
mod ways_to_continue;
mod workspace_changes;
