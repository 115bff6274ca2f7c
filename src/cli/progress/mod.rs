//! Progress of runs and maps on stderr: live lines on a terminal, otherwise a log with a line per notable event.

mod event_line;
mod heartbeat;
mod live_line;
mod live_screen;
mod log_groups;
mod map_progress;
mod run_progress;
mod live_run;
mod suspend;
mod ticker;

pub(super) use self::map_progress::MapProgress;
pub(super) use self::run_progress::{RunProgress, can_be_live};
