//! Decides whether an agent's answer is final: its data must be there, and the job's checks must pass. The model gets
//! the output of failed checks as long as the job allows repairs.

use super::agent_state::Agent;
use super::journal_cursor::Recorded;
use super::run_abort::RunAbort;
use super::script::{MAX_OUTPUT_CHARS, Script, ScriptEnd};
use crate::event::{CheckFinished, CheckStarted, NoteSent, Outcome, ResultTaken};
use crate::message::Reply;
use crate::plan::PlannedCheck;
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::{EnvironmentError, Streams};
use crate::running_clock::RunningInstant;
use crate::text::truncate::truncate_middle;

/// The most characters of output that the model reads about all failed checks together.
const MAX_REPORT_CHARS: usize = 20_000;

/// What the model reads if it answers without its data.
const REMINDER: &str = "Your work must end with data, and you haven't submitted any that matches its schema. Call \
                        `submit_result` now with all of it, fix what it reports, and then end. This is the only reminder.";

/// What the parent reads if the run has to propose something and hasn't.
const PROPOSE_REMINDER: &str = "Your work must end with a proposal, and nothing was accepted. Call one of the tools that propose \
                                something now, or `nothing_to_do` with the reason, and then end. This is the only reminder.";

/// Why a run that proposed nothing is incomplete.
const NOTHING_PROPOSED: &str = "the job requires an output, and no agent proposed one or called `nothing_to_do`";

impl Agent<'_> {
    /// Whether the run has to propose something before it ends, or the record says that the parent was reminded here.
    fn must_still_propose(&self) -> bool {
        let Some(proposals) = self.run.proposals.as_ref().filter(|_| self.is_parent()) else { return false };
        let was_reminded = || self.cursor.next_note().is_some_and(|note| note == PROPOSE_REMINDER);
        proposals.outputs().rules.required && (proposals.accepted().is_empty() || was_reminded())
    }

    /// Handles a reply without calls. Returns the outcome, or `None` if the agent continues with a note.
    pub(super) async fn conclude(&mut self, reply: Reply) -> Result<Option<Outcome>, RunAbort> {
        if !self.run.deps.plan.checks.is_empty() {
            self.run.wait_for_baseline().await?;
        }
        let why = self.take_result_from_text(&reply).await?;
        if self.output.tool.is_none() || self.output.result.is_some() {
            return match self.must_still_propose() {
                false => self.run_checks(reply).await,
                true if std::mem::replace(&mut self.output.was_asked_to_propose, true) => {
                    self.run.note(Outcome::ResultInvalid, NOTHING_PROPOSED);
                    Ok(Some(Outcome::ResultInvalid))
                }
                true => self.continue_with_note(reply, PROPOSE_REMINDER.to_owned()).map(|()| None),
            };
        }
        if std::mem::replace(&mut self.output.was_reminded, true) {
            return Ok(Some(Outcome::ResultInvalid));
        }
        let why = why.map(|why| format!("\n\nThe JSON in your last text isn't the data: {why}"));
        self.continue_with_note(reply, format!("{REMINDER}{}", why.unwrap_or_default()))?;
        Ok(None)
    }

    /// Takes the text of a reply as the data if it is valid: some models answer with JSON instead of calling the tool. A later
    /// text replaces an earlier one, but no data that was submitted. Returns what is wrong with JSON that isn't valid.
    pub(super) async fn take_result_from_text(&mut self, reply: &Reply) -> Result<Option<String>, RunAbort> {
        let Some(tool) = &self.output.tool else { return Ok(None) };
        if self.output.result.is_some() && !self.output.is_from_text {
            return Ok(None);
        }
        let result = match self.cursor.next_result_taken() {
            Some(None) => Err(tool.read_text(&reply.text()).await.err().flatten()),
            Some(Some(recorded)) if !self.cursor.is_replay() => Ok(recorded.clone()),
            Some(Some(_)) | None => tool.read_text(&reply.text()).await,
        };
        match result {
            Ok(result) => {
                self.record(ResultTaken { result: result.clone() })?;
                (self.output.result, self.output.is_from_text) = (Some(result), true);
                Ok(None)
            }
            Err(why) => Ok(why),
        }
    }

    /// Answers a reply with a note; a resumed agent gets the recorded note.
    pub(super) fn continue_with_note(&mut self, reply: Reply, text: String) -> Result<(), RunAbort> {
        let recorded = self.cursor.next_note();
        self.record(NoteSent { text: text.clone() })?;
        // A reply without any block isn't a message.
        if !reply.blocks.is_empty() {
            self.context.append_reply(reply);
        }
        self.context.pending.get_or_insert_default().text = Some(recorded.unwrap_or(text));
        Ok(())
    }

    /// Runs all checks. Returns the outcome, or `None` if one failed and the agent repairs it.
    async fn run_checks(&mut self, reply: Reply) -> Result<Option<Outcome>, RunAbort> {
        let plan = &self.run.deps.plan;
        let checks: Vec<&PlannedCheck> = plan.active_checks().filter(|check| self.run.has_check(&check.name)).collect();
        if !self.is_parent() || checks.is_empty() {
            return Ok(Some(Outcome::Completed));
        }
        self.check_attempt += 1;
        let mut failed = Vec::new();
        for check in checks {
            // The recorded agent ended without this check.
            if let Some(outcome) = self.cursor.final_result().map(|end| end.outcome) {
                if outcome != Outcome::Completed && outcome != Outcome::ChecksFailed {
                    self.run.check_running()?;
                }
                return Ok(Some(outcome));
            }
            let finished = self.run_check(check).await?;
            if !finished.passed {
                failed.push(finished);
            }
        }
        let hit =
            self.cursor.next_run_limit().or_else(|| self.run.upload_reached().filter(|_| !self.cursor.is_replay()));
        if let Some(hit) = hit {
            if !reply.blocks.is_empty() {
                self.context.append_reply(reply);
            }
            self.limit.get_or_insert(hit);
            return Ok(None);
        }
        if failed.is_empty() {
            return Ok(Some(Outcome::Completed));
        }
        if self.check_attempt > plan.repairs {
            self.run.note(Outcome::ChecksFailed, &failure_summary(&failed));
            return Ok(Some(Outcome::ChecksFailed));
        }
        self.continue_with_note(reply, failure_report(&failed))?;
        Ok(None)
    }

    /// Runs a check, or takes its recorded result. A recorded check without a result runs again.
    async fn run_check(&mut self, check: &PlannedCheck) -> Result<CheckFinished, RunAbort> {
        let started = CheckStarted { name: check.name.clone(), attempt: self.check_attempt };
        match self.cursor.take_check(&started) {
            None => {
                self.go_live("check_started", "it runs a check, and the record has no further one")?;
                self.run.record(self.id(), started)?;
                self.run.flush(self.id()).await?;
            }
            Some(recorded) => {
                self.record_again(started)?;
                match recorded {
                    Recorded::Known(finished) => {
                        let (name, attempt) = (check.name.clone(), self.check_attempt);
                        self.record_again(CheckFinished { name, attempt, ..finished.clone() })?;
                        return Ok(finished);
                    }
                    Recorded::Rerun => {}
                    Recorded::Unfinished if self.cursor.is_replay() => {
                        return Err(self.leave_record("the record has no end of its check"));
                    }
                    Recorded::Unfinished => {
                        self.run.check_running()?;
                        if let Some(end) = self.cursor.final_result() {
                            let message = format!("the run ended during the check `{}`", check.name);
                            return Err(RunAbort::new(end.outcome, message));
                        }
                    }
                }
            }
        }
        let (finished, failure) = self.run_check_command(check).await?;
        self.run.record(self.id(), finished.clone())?;
        self.run.fail(failure)?;
        Ok(finished)
    }

    async fn run_check_command(
        &self,
        check: &PlannedCheck,
    ) -> Result<(CheckFinished, Option<EnvironmentError>), RunAbort> {
        let started = RunningInstant::now();
        let tools = &self.run.deps.tools;
        let script = Script {
            title: &format!("check {}", check.name),
            run: &check.run,
            timeout_ms: check.timeout_ms,
            environment: &self.run.check_environment,
            sandbox: &tools.sandbox,
        };
        let mut output = CommandOutput::new(&tools.redactor, MAX_OUTPUT_CHARS);
        let streams = Streams { shown: &mut output, stdout: None };
        let ScriptEnd { exit_code, reason, refused, failure } = script.run(self.run, streams).await?;
        let mut output = output.finish();
        if let Some(reason) = reason {
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
            output.push_str(&tools.redactor.redact(&reason));
        }
        if let Some(refused) = refused {
            output.push_str(if output.is_empty() || output.ends_with('\n') { "" } else { "\n" });
            output.push_str(&refused);
        }
        let finished = CheckFinished {
            name: check.name.clone(),
            attempt: self.check_attempt,
            passed: exit_code == Some(0),
            exit_code,
            output,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        Ok((finished, failure))
    }
}

/// Says in one sentence which checks failed.
fn failure_summary(failed: &[CheckFinished]) -> String {
    let named = |check: &CheckFinished| format!("`{}` ({})", check.name, exit_text(check));
    let names: Vec<String> = failed.iter().map(named).collect();
    let attempts = match failed.first().map_or(1, |check| check.attempt) {
        1 => String::new(),
        attempts => format!(" in {attempts} attempts"),
    };
    let (noun, verb) = if failed.len() == 1 { ("check", "doesn't pass") } else { ("checks", "don't pass") };
    format!("the {noun} {} {verb}{attempts}", names.join(", "))
}

fn exit_text(check: &CheckFinished) -> String {
    check.exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"))
}

/// The note that the model reads about failed checks.
fn failure_report(failed: &[CheckFinished]) -> String {
    let mut text =
        "Checks that your work must pass have failed. Fix the problems that they report, then give your final \
                    answer again; all checks run again after it.\n"
            .to_owned();
    let most = MAX_REPORT_CHARS / failed.len().max(1);
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
    fn the_report_for_the_model_has_every_failed_check_and_is_bounded() {
        let long = format!("begin{}end", "x".repeat(50_000));
        let report =
            failure_report(&[failed("a", Some(1), "short\n"), failed("b", None, &long), failed("c", Some(2), &long)]);
        assert!(report.contains("## a (exit code 1)\n\nshort\n\n## b (no exit code)\n\nbegin"), "{report:.300}");
        assert!(report.len() < MAX_REPORT_CHARS + 500, "{}", report.len());
        assert_eq!((report.matches("begin").count(), report.matches("end\n").count()), (2, 2));
        assert!(failure_report(&[failed("a", Some(1), " \n")]).ends_with("\n\n(no output)\n"));
        let many: Vec<CheckFinished> = (0..100).map(|_| failed("n", Some(1), &long)).collect();
        assert!(failure_report(&many).len() < MAX_REPORT_CHARS + 100 * 100);
    }

    #[test]
    fn the_summary_for_the_operator_names_the_failed_checks() {
        assert_eq!(
            failure_summary(&[failed("a", Some(1), "")]),
            "the check `a` (exit code 1) doesn't pass in 2 attempts"
        );
        assert_eq!(
            failure_summary(&[failed("a", Some(1), ""), failed("b", None, "")]),
            "the checks `a` (exit code 1), `b` (no exit code) don't pass in 2 attempts"
        );
    }
}
