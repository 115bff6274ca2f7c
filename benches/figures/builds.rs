//! How long a newcomer's builds take, from nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::aims;

/// The first command of the README.
const FIRST: &[&str] = &["run", "--locked", "--", "run", "jobs/tour.yaml", "--model", "replay/jobs/tour.script.yaml"];
const RELEASE: &[&str] = &["build", "--locked", "--release"];

/// Builds in an empty folder, which takes minutes and 3 GB of disk, and adds the times. The dependencies have been downloaded for
/// this program.
pub(crate) fn time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let records = folder.path().join("runs");
    let first = [FIRST, &["--out", records.to_str().expect("a plain path")]].concat();
    for (what, aim, arguments) in
        [("the first command of the README, with its build", 120.0, &*first), ("a release build", 240.0, RELEASE)]
    {
        aims::at_most(what, aim, seconds(arguments, folder.path()), "s");
    }
}

fn seconds(arguments: &[&str], target: &Path) -> f64 {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        let shapes_builds = ["CARGO_INCREMENTAL", "CARGO_BUILD_", "CARGO_PROFILE_", "RUSTFLAGS", "MAKEFLAGS"];
        if shapes_builds.iter().any(|part| name_text.contains(part)) {
            command.env_remove(&name);
        }
    }
    let start = Instant::now();
    let output = command.env("CARGO_TARGET_DIR", target).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    start.elapsed().as_secs_f64()
}
