//! One run, from its plan to its end: [`Prepared`] says what to do, [`Session::open`] starts tool servers and opens the record, and
//! [`Session::run`] runs the agents until the record is complete. The command line, the rows of a map, and tests all start here.

mod change_tracking;
mod checked_job;
mod confinement;
mod connect;
mod connected_job;
mod host;
mod keyed_run;
mod obstacles;
mod plan_differences;
mod pull_request_lines;
mod recording_sink;
mod resume_state;
mod resumed_run;
mod runtime;
mod run_error;
mod schedule;
mod secrets;
mod session;
mod signals;
mod state_file;
mod steps_only;
pub mod tool_servers;
mod used_limit;
mod way_out;

pub use self::checked_job::{CheckedJob, RunIdentity, check_cost_limit, run_date};
pub use self::confinement::{
    Confined, ConfinedTools, Confinement, RecordAccess, RunPlaces, SandboxRequest, SandboxScope, UNCONFINED_RISK,
};
pub use self::connect::{OpenedScript, Scripts, USER_AGENT, connect, connect_scripts};
pub use self::connected_job::ConnectedJob;
pub use self::host::{Host, RecordKeys};
pub use self::keyed_run::{KeyedRun, KeyedTarget, OpenRun, keyed_folder, load_resume_state, open_keyed_run};
pub use self::obstacles::reached_limit;
pub use self::plan_differences::{RecordedRun, plan_differences};
pub use self::recording_sink::RunObserver;
pub use self::resume_state::ResumeState;
pub use self::resumed_run::{ResumedRun, cannot_resume, runs_folder};
pub use self::runtime::start_runtime;
pub use self::schedule::{Start, run_many};
pub use self::secrets::{RunSecrets, is_otlp_secret, server_secrets};
pub use self::session::{Backends, Ended, OpenRecord, Prepared, RunSetup, Session};
pub use self::signals::Signals;
pub use self::state_file::{Settled, StateFile, StateSource, may_be_unsaved, read_state, state_content};
pub use self::steps_only::StepsRun;
pub use self::used_limit::UsedLimit;
pub use self::way_out::way_out;
pub use crate::git::head_commit;
