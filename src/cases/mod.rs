//! Test cases of jobs. The folder of a case is `tests/<job>/<case>/` next to the job file. It has the replies of the models
//! (`script.yaml` or `record/`), the inputs and the initial workspace (`inputs.yaml`, `workspace/`), and the expectations
//! (`expect.yaml`, and snapshots in `expect/` and `text.md`).

mod case;
mod evaluate;
mod expect;
pub mod fixture;
pub mod generate;
mod matchers;
mod output_expectations;
mod placeholder;
mod report;
mod runner;
mod snapshot;
mod validate;

pub use self::case::{
    BEFORE_FILE, Case, EVENT_FILE, EXPECT_FILE, INPUTS_FILE, OUTPUTS_SNAPSHOT, RECORD_FOLDER, SCRIPT_FILE,
    SNAPSHOTS_FOLDER, TESTS_FOLDER, TEXT_SNAPSHOT,
};
pub use self::expect::{Expect, WORKSPACE_FOLDER, expect_schema};
pub use self::output_expectations::outputs_snapshot;
pub use self::placeholder::{WORKSPACE_PLACEHOLDER, with_placeholder};
pub use self::report::{CaseReport, Failure, TestReport};
pub use self::runner::{CaseEnd, CaseEngine, CaseRun, RunnerConfig, placeholder_secret, run_case, temporary_folder};
pub use self::validate::check;
