//! The job's own checks in a transcript.

use std::io::{self, Write};

use super::{code, fenced, one_line};
use crate::event::{CheckFinished, CheckStarted};
use crate::formats::figures;
use crate::plan::Plan;

/// The attempt that is told of, and the check that has begun.
#[derive(Default)]
pub(super) struct Attempt {
    number: u32,
    open: Option<CheckStarted>,
}

impl Attempt {
    /// A check begins; the first of an attempt has a heading for all.
    pub(super) fn begin(&mut self, out: &mut dyn Write, started: CheckStarted) -> io::Result<()> {
        if self.number != started.attempt {
            self.number = started.attempt;
            match started.attempt {
                1 => writeln!(out, "\n## Checks\n")?,
                attempt => writeln!(out, "\n## Checks, attempt {attempt}\n")?,
            }
        }
        self.open = Some(started);
        Ok(())
    }

    /// It has ended.
    pub(super) fn end(&mut self, out: &mut dyn Write, plan: &Plan, finished: &CheckFinished) -> io::Result<()> {
        self.open = None;
        let time = figures::duration(finished.duration_ms);
        writeln!(out, "### {}: {} ({time})\n", one_line(&finished.name), figures::check(finished))?;
        command(out, plan, &finished.name)?;
        if !finished.output.trim().is_empty() {
            fenced(out, "", &finished.output)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// One that was begun and has no end: the run ended before, or went on later.
    pub(super) fn unfinished(&mut self, out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
        let Some(started) = self.open.take() else { return Ok(()) };
        writeln!(out, "### {} (not finished)\n", one_line(&started.name))?;
        command(out, plan, &started.name)
    }
}

fn command(out: &mut dyn Write, plan: &Plan, name: &str) -> io::Result<()> {
    match plan.checks.iter().find(|check| check.name == name) {
        None => Ok(()),
        Some(check) if check.run.contains(['\n', '\r', '`']) || check.run.len() > 100 => {
            fenced(out, "sh", check.run.trim_end())?;
            writeln!(out)
        }
        Some(check) => writeln!(out, "- run: {}\n", code(&check.run)),
    }
}
