//! The job's own checks in a transcript.

use std::io::{self, Write};

use super::{inline_code, single_line, write_truncated_block};
use crate::event::{CheckFinished, CheckStarted};
use crate::formats::run_stats;
use crate::plan::Plan;

/// The attempt that is told of, and the check that has begun.
#[derive(Default)]
pub(super) struct CheckAttempt {
    number: u32,
    running: Option<CheckStarted>,
}

impl CheckAttempt {
    /// A check begins; the first of an attempt has a heading for all.
    pub(super) fn write_start(&mut self, out: &mut dyn Write, started: CheckStarted) -> io::Result<()> {
        if self.number != started.attempt {
            self.number = started.attempt;
            match started.attempt {
                1 => writeln!(out, "\n## Checks\n")?,
                attempt => writeln!(out, "\n## Checks, attempt {attempt}\n")?,
            }
        }
        self.running = Some(started);
        Ok(())
    }

    /// It has ended.
    pub(super) fn write_end(&mut self, out: &mut dyn Write, plan: &Plan, finished: &CheckFinished) -> io::Result<()> {
        self.running = None;
        let time = run_stats::duration(finished.duration_ms);
        writeln!(out, "### {}: {} ({time})\n", single_line(&finished.name), run_stats::check_verdict(finished))?;
        command(out, plan, &finished.name)?;
        if !finished.output.trim().is_empty() {
            write_truncated_block(out, "", &finished.output)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// One that was begun and has no end: the run ended before, or went on later.
    pub(super) fn write_unfinished(&mut self, out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
        let Some(started) = self.running.take() else { return Ok(()) };
        writeln!(out, "### {} (not finished)\n", single_line(&started.name))?;
        command(out, plan, &started.name)
    }
}

fn command(out: &mut dyn Write, plan: &Plan, name: &str) -> io::Result<()> {
    match plan.checks.iter().find(|check| check.name == name) {
        None => Ok(()),
        Some(check) if check.run.contains(['\n', '\r', '`']) || check.run.len() > 100 => {
            write_truncated_block(out, "sh", check.run.trim_end())?;
            writeln!(out)
        }
        Some(check) => writeln!(out, "- run: {}\n", inline_code(&check.run)),
    }
}
