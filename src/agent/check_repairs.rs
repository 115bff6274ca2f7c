//! What must hold after the parent's last answer: the job's checks, again and again as long as there are repairs.

use futures_util::future::BoxFuture;

use super::{Agent, AgentStep, RunAbort};
use crate::event::{CheckFinished, CheckStarted, Durability, Outcome};
use crate::message::Reply;
use crate::plan::PlannedCheck;
use crate::tools::toolbox::{CallLimits, truncate_middle};

/// The most that the model is told of what failed checks have printed, in characters, all of them together.
const MAX_REPORT_CHARS: usize = 20_000;

/// Who looks whether a check passes.
pub trait CheckRunner: Send + Sync {
    /// Looks; `attempt` counts from 1. `None` where `limits` ended it: then nothing is known.
    fn run<'a>(
        &'a self,
        check: &'a PlannedCheck,
        attempt: u32,
        limits: &'a CallLimits,
    ) -> BoxFuture<'a, Option<CheckRun>>;
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    /// The command's exit code; `None` where it had none. 0 is a pass.
    pub exit_code: Option<i32>,
    /// What it printed, masked and bounded; and why it has no exit code, where that is so.
    pub output: String,
    /// Its running time in milliseconds.
    pub duration_ms: u64,
}

impl Agent<'_> {
    /// How the agent ends with an answer that is good otherwise; `None` where a check failed and it goes on.
    pub(super) async fn run_checks(&mut self, reply: Reply) -> Result<Option<Outcome>, RunAbort> {
        let plan = &self.tree.plan;
        if self.subagent.is_some() || plan.active_checks().next().is_none() {
            return Ok(Some(Outcome::Completed));
        }
        self.attempt += 1;
        let mut failed = Vec::new();
        for check in plan.active_checks() {
            // It ended without this check.
            if let Some(outcome) = self.cursor.peek_end().map(|end| end.outcome) {
                if outcome != Outcome::Completed && outcome != Outcome::ChecksFailed {
                    self.tree.check_running()?;
                }
                return Ok(Some(outcome));
            }
            let finished = self.run_check(check).await?;
            if !finished.passed {
                failed.push(finished);
            }
        }
        if failed.is_empty() {
            return Ok(Some(Outcome::Completed));
        }
        if self.attempt > plan.repairs {
            self.tree.note(Outcome::ChecksFailed, &failure_summary(&failed));
            return Ok(Some(Outcome::ChecksFailed));
        }
        self.continue_with_note(reply, failure_report(&failed))?;
        Ok(None)
    }

    /// Runs a check, or takes what came of it from the journal. One that was begun there and hasn't ended is run again.
    async fn run_check(&mut self, check: &PlannedCheck) -> Result<CheckFinished, RunAbort> {
        let started = CheckStarted { name: check.name.clone(), attempt: self.attempt };
        if self.cursor.is_exhausted() {
            self.tree.admit(&self.id, AgentStep::StartCheck)?;
            self.tree.record(&self.id, started, Durability::Flushed)?;
            self.tree.admit(&self.id, AgentStep::FinishCheck)?;
        } else {
            self.record(started)?;
            if let Some(finished) = self.cursor.take_check_result() {
                return Ok(finished);
            }
            if let Some(end) = self.cursor.peek_end() {
                let outcome = end.outcome;
                self.tree.check_running()?;
                let message = format!("the run ended while the check `{}` was under way", check.name);
                return Err(RunAbort { outcome, message, hint: None });
            }
            self.tree.check_running()?;
        }
        let limits = CallLimits { deadline: self.tree.deadline.into(), cancel: self.tree.stop.clone() };
        let Some(reviewed) = self.tree.check_runner.run(check, self.attempt, &limits).await else {
            return Err(self.tree.wait_for_stop().await);
        };
        let finished = CheckFinished {
            name: check.name.clone(),
            attempt: self.attempt,
            passed: reviewed.exit_code == Some(0),
            exit_code: reviewed.exit_code,
            output: reviewed.output,
            duration_ms: reviewed.duration_ms,
        };
        self.tree.record(&self.id, finished.clone(), Durability::Written)?;
        self.tree.check_integrity()?;
        Ok(finished)
    }
}

/// Which checks failed, in one sentence.
fn failure_summary(failed: &[CheckFinished]) -> String {
    let named = |check: &CheckFinished| format!("`{}` ({})", check.name, exit_text(check));
    let shown: Vec<String> = failed.iter().take(5).map(named).collect();
    let more = match failed.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let attempts = match failed.first().map_or(1, |check| check.attempt) {
        1 => String::new(),
        attempts => format!(" in {attempts} attempts"),
    };
    let (noun, verb) = if failed.len() == 1 { ("check", "doesn't pass") } else { ("checks", "don't pass") };
    format!("the {noun} {}{more} {verb}{attempts}", shown.join(", "))
}

fn exit_text(check: &CheckFinished) -> String {
    check.exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"))
}

/// What the model is told of failed checks.
fn failure_report(failed: &[CheckFinished]) -> String {
    let mut text =
        "Checks that this work must pass have failed. Mend what they found, then give your last answer again; all \
                    checks run again after it.\n"
            .to_owned();
    // Short ones leave their part to the others.
    let mut lengths: Vec<usize> = failed.iter().map(|check| check.output.chars().count()).collect();
    lengths.sort_unstable();
    let (mut left, mut most) = (MAX_REPORT_CHARS, MAX_REPORT_CHARS);
    for (at, length) in lengths.iter().enumerate() {
        most = left / (lengths.len() - at);
        if *length > most {
            break;
        }
        left -= length;
        most = MAX_REPORT_CHARS;
    }
    for check in failed {
        let output = truncate_middle(check.output.trim_end().to_owned(), most);
        let shown = if output.is_empty() { "(no output)" } else { &output };
        text.push_str(&format!("\n## {} ({})\n\n{shown}\n", check.name, exit_text(check)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str, exit_code: Option<i32>, output: &str) -> CheckFinished {
        let (name, output) = (name.to_owned(), output.to_owned());
        CheckFinished { name, attempt: 2, passed: false, exit_code, output, duration_ms: 1 }
    }

    #[test]
    fn the_model_is_told_of_each_and_not_too_much() {
        let long = format!("begin{}end", "x".repeat(50_000));
        let told =
            failure_report(&[failed("a", Some(1), "short\n"), failed("b", None, &long), failed("c", Some(2), &long)]);
        assert!(told.contains("## a (exit code 1)\n\nshort\n\n## b (no exit code)\n\nbegin"), "{told:.300}");
        assert!(told.len() < MAX_REPORT_CHARS + 500 && told.len() > MAX_REPORT_CHARS - 500, "{}", told.len());
        assert_eq!((told.matches("begin").count(), told.matches("end\n").count()), (2, 2));
        assert!(failure_report(&[failed("a", Some(1), " \n")]).ends_with("\n\n(no output)\n"));
        let many: Vec<CheckFinished> = (0..100).map(|_| failed("n", Some(1), &long)).collect();
        assert!(failure_report(&many).len() < MAX_REPORT_CHARS + 100 * 100);
    }

    #[test]
    fn the_operator_is_told_which() {
        assert_eq!(
            failure_summary(&[failed("a", Some(1), "")]),
            "the check `a` (exit code 1) doesn't pass in 2 attempts"
        );
        let many: Vec<CheckFinished> = (0..7).map(|number| failed(&number.to_string(), None, "")).collect();
        assert!(
            failure_summary(&many).contains("`4` (no exit code) and 2 more don't pass"),
            "{}",
            failure_summary(&many)
        );
    }
}
