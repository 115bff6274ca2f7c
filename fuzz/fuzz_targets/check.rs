//! Bytes through the reader, the lints, every format, and into a plan.
#![no_main]

#[path = "../../tests/properties/holds.rs"]
mod holds;

use std::path::Path;
use std::sync::LazyLock;

use legwork::template::Folder;
use libfuzzer_sys::fuzz_target;

/// Where prompt files are read from: the jobs among the seeds name some.
static FOLDER: LazyLock<Option<Folder>> =
    LazyLock::new(|| Folder::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../jobs")).ok());

fuzz_target!(|bytes: &[u8]| {
    holds::everything("fuzz.yaml", bytes, FOLDER.as_ref());
});
