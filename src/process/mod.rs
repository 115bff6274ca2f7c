//! Processes: starting commands, what they print, and the end of everything that they started.

pub mod bounded_output;
pub mod fd_limit;
#[cfg(target_os = "linux")]
pub mod proc_stat;
#[cfg(target_os = "linux")]
pub mod process_tree;
pub mod reaper;
pub mod spawn;
