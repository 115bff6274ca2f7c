//! One run, from its plan to its end: [`Prepared`] says what to do, [`Session::open`] starts tool servers and opens the record, and
//! [`Session::run`] runs the agents until the record is complete. The command line, the rows of a map, and tests all start here.

mod change_tracking;
mod confinement;
mod connect;
mod host;
mod recording_sink;
mod resume_state;
mod run_error;
mod secrets;
mod session;
mod signals;
pub mod tool_servers;
mod used_limit;

pub use self::confinement::{
    Confined, ConfinedTools, Confinement, RecordAccess, RunPlaces, SandboxRequest, SandboxScope, UNCONFINED_RISK,
};
pub use self::connect::connect;
pub use self::host::Host;
pub use self::recording_sink::RunObserver;
pub use self::resume_state::ResumeState;
pub use self::secrets::{RunSecrets, is_otlp_secret, server_secrets};
pub use self::session::{Backends, Ended, OpenRecord, Prepared, Session};
pub use self::signals::Signals;
pub use self::used_limit::UsedLimit;
pub use crate::git::head_commit;
