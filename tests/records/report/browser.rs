//! The report in a real browser, with scripts on and off.

use std::process::Command;

use super::{hostile_run, long_run, repaired_run};
use crate::acting_outside::reports::proposing_run;
use crate::house::source::root;
use crate::support::report_skipped;

#[test]
fn the_report_works_in_a_browser() {
    let Some(browser) = std::env::var_os("LEGWORK_CHROMIUM") else {
        report_skipped("LEGWORK_CHROMIUM names no Chromium");
        return;
    };
    let (repaired, hostile, long) = (repaired_run(), hostile_run(), long_run(2_000));
    let proposing = proposing_run(&[]);
    let mut command = Command::new("python3");
    command.arg(root().join("tests/browser/report.py")).arg(&browser);
    for (_, ended) in [&repaired, &hostile, &long, &proposing] {
        command.arg(ended.run_folder().path().join("report.html"));
    }
    // Where the images of the book are written to.
    command.args(std::env::var_os("LEGWORK_SCREENSHOTS"));
    let output = command.output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout);
    eprintln!("{text}");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}
