//! Checks bytes as a job file: reader, lints, every output format, and plan.
#![no_main]

#[path = "../../tests/properties/invariants.rs"]
mod invariants;

use std::path::Path;
use std::sync::LazyLock;

use legwork::template::JobDir;
use libfuzzer_sys::fuzz_target;

/// The folder of the prompt files that the seed jobs name.
static JOB_DIR: LazyLock<Option<JobDir>> =
    LazyLock::new(|| JobDir::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../jobs")).ok());

fuzz_target!(|bytes: &[u8]| {
    invariants::check_all("fuzz.yaml", bytes, JOB_DIR.as_ref());
});
