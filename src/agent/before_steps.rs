//! What happens before the parent starts: the job's steps run, `skip_if` decides whether there is anything to do, and the prompt
//! and the conditions of checks are rendered with what the steps print.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::agent_state::Agent;
use super::journal_cursor::{JournalCursor, Recorded};
use super::run_abort::RunAbort;
use super::run_state::RunState;
use super::script::{MAX_OUTPUT_CHARS, Script, ScriptEnd};
use super::step_deps::{FILES_VARIABLE, LateState, StepDeps};
use super::step_files::StepFiles;
use crate::event::{AgentFinished, BeforeFinished, BeforeStarted, Event, Outcome, PARENT, RunSkipped, StateRead};
use crate::job::{FILES_PART, MAX_STEP_BYTES};
use crate::json_schema::SchemaValidator;
use crate::message::{ToolCall, ToolResult};
use crate::plan::{LateValues, PlannedStep};
use crate::process::bounded_output::CommandOutput;
use crate::process::spawn::{EnvironmentError, RawOutput, Streams};
use crate::running_clock::RunningInstant;
use crate::sandbox::Sandbox;
use crate::text::truncate;
use crate::tools::set_state::SetState;

/// How long the validation of a step's output may take. It usually takes less than a millisecond.
const VALIDATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How many violations of its schema are reported.
const MAX_VIOLATIONS: usize = 5;
/// The longest line of standard error in a message, in characters.
const MAX_LINE_CHARS: usize = 300;

/// How the parent starts.
enum ParentStart {
    /// With this prompt.
    Prompt(String),
    /// Not at all: there is nothing to do.
    Skipped,
}

impl<'t> Agent<'t> {
    /// Runs the steps before the agent and then the job's parent to its end. `starting` is called in between.
    pub async fn run_parent(run: &'t RunState, starting: impl FnOnce()) -> AgentFinished {
        let started = RunningInstant::now();
        let summary = Self::empty_summary(PARENT.to_owned(), None, None);
        let (mut elapsed, mut recorded) = (Duration::ZERO, None);
        let start = match run.take_cursor(PARENT) {
            Err(abort) => Err(abort),
            Ok(mut cursor) => {
                elapsed = cursor.elapsed;
                let start = Steps { run, cursor: &mut cursor, files: None, sandbox: None }.run().await;
                recorded = cursor.final_result().cloned();
                run.return_cursor(PARENT, cursor);
                start
            }
        };
        let outcome = match start {
            Ok(ParentStart::Prompt(prompt)) => {
                starting();
                return Self::run(run, &run.deps.plan.parent, summary, prompt, started).await;
            }
            Ok(ParentStart::Skipped) => Outcome::Skipped,
            Err(abort) => run.abort_run(abort, true),
        };
        if let Some(recorded) = recorded {
            return recorded;
        }
        let duration_ms = u64::try_from((elapsed + started.elapsed()).as_millis()).unwrap_or(u64::MAX);
        let mut end = AgentFinished { outcome, duration_ms, ..summary };
        if let Err(abort) = run.record(PARENT, end.clone()) {
            end.outcome = run.abort_run(abort, true);
        }
        end
    }
}

impl RunState {
    /// Runs the steps before the agent, and nothing else. Returns whether there is nothing to do.
    ///
    /// # Errors
    /// A step failed, or the run was stopped.
    pub async fn run_steps(&self) -> Result<bool, RunAbort> {
        let mut cursor = self.take_cursor(PARENT)?;
        let start = Steps { run: self, cursor: &mut cursor, files: None, sandbox: None }.run().await?;
        Ok(matches!(start, ParentStart::Skipped))
    }

    /// The state at the start, and the one that the parent has set; `None` if the job keeps none or the run hasn't come so far.
    pub fn states(&self) -> Option<(&Value, Option<Value>)> {
        let before = &self.late.get().filter(|_| self.deps.plan.state.is_some())?.state;
        Some((before, self.shared().state.clone()))
    }

    /// Takes the state that the parent sets with a call, if it does.
    pub(super) fn take_set_state(&self, call: &ToolCall, result: &ToolResult) {
        if let Some(value) = SetState::accepted(call, result).filter(|_| self.deps.plan.state.is_some()) {
            self.shared().state = Some(value);
        }
    }

    /// The values of `before`, by name, once the steps have run.
    pub fn before_values(&self) -> Option<&Map<String, Value>> {
        self.late.get().map(|late| &late.before)
    }
}

/// The steps of a run.
struct Steps<'t, 'c> {
    run: &'t RunState,
    /// The parent's journal.
    cursor: &'c mut JournalCursor,
    /// Opened for the first step that runs.
    files: Option<StepFiles>,
    sandbox: Option<Arc<Sandbox>>,
}

impl Steps<'_, '_> {
    async fn run(mut self) -> Result<ParentStart, RunAbort> {
        let run = self.run;
        let (plan, run_id) = (&run.deps.plan, run.deps.run_id.as_str());
        if !plan.has_late_values() {
            return Ok(ParentStart::Prompt(plan.parent.prompt.clone().unwrap_or_default()));
        }
        let mut values = LateValues { state: self.take_state().await?, ..LateValues::default() };
        if let Some(files) = &run.deps.steps.files {
            values.before.insert(FILES_PART.to_owned(), files.to_string_lossy().into_owned().into());
        }
        for step in &plan.before {
            let finished = self.take(step).await?;
            if let Some(why) = finished.error.as_ref().filter(|_| !step.optional) {
                return Err(RunAbort::step_failed(&step.name, why));
            }
            values.before.insert(step.name.clone(), finished.value);
        }
        // Tool servers run already, and may not change what the steps have left.
        run.deps.tools.sandbox.record_written().map_err(EnvironmentError::Unconfined)?;
        if let Some(proposals) = &run.proposals {
            proposals.set_steps(&values.before).map_err(|why| RunAbort::late_template(&why))?;
        }
        if plan.is_skipped(run_id, &values).map_err(|why| RunAbort::late_template(&why))? {
            let condition = plan.skip_if().unwrap_or_default().to_owned();
            self.record(RunSkipped { condition })?;
            let LateValues { before, state } = values;
            let _ = run.late.set(LateState { before, state, ..LateState::default() });
            return Ok(ParentStart::Skipped);
        }
        let (before, state) = (values.before.clone(), values.state.clone());
        let mut late = LateState { before, state, skipped_checks: HashSet::new() };
        for check in plan.active_checks() {
            let runs = plan.late_check_runs(&check.name, run_id, &values);
            if !runs.map_err(|why| RunAbort::late_template(&why))? {
                late.skipped_checks.insert(check.name.clone());
            }
        }
        // It is there only once.
        let _ = run.late.set(late);
        if let Some(prompt) = self.cursor.recorded_prompt() {
            return Ok(ParentStart::Prompt(prompt));
        }
        let prompt = plan.late_prompt(run_id, &values).map_err(|why| RunAbort::late_template(&why))?;
        Ok(ParentStart::Prompt(run.deps.tools.redactor.redact(&prompt).into_owned()))
    }

    /// Records an event, unless the journal of a resumed run has it.
    fn record(&mut self, event: impl Into<Event>) -> Result<(), RunAbort> {
        let event = event.into();
        if self.cursor.advance(&event)? { self.run.record(PARENT, event) } else { Ok(()) }
    }

    /// Takes the recorded state, or the one that the run begins with. Null if the job keeps none.
    async fn take_state(&mut self) -> Result<Value, RunAbort> {
        let run = self.run;
        let Some(planned) = &run.deps.plan.state else { return Ok(Value::Null) };
        let recorded = self.cursor.take_state();
        if self.cursor.is_replay() {
            let Some(read) = recorded else {
                let why = "the record has no state".to_owned();
                return Err(self.cursor.stopped().cloned().unwrap_or_else(|| run.diverge(PARENT, &why)));
            };
            run.record(PARENT, read.clone())?;
            return Ok(read.value);
        }
        if let Some(read) = recorded {
            return Ok(read.value);
        }
        if !self.cursor.is_exhausted() {
            return Err(self.cursor.mismatch("state_read"));
        }
        let StateRead { mut value, sha256 } = run.deps.steps.state.clone();
        // The first value is null if the job doesn't say what it is, whatever the schema.
        if value != planned.initial {
            let what = "the state";
            value = fitting(value, planned.schema.clone(), what).await.map_err(|why| RunAbort::unfit_state(&why))?;
        }
        let read = StateRead { value: run.deps.tools.redactor.redact_json(value), sha256 };
        run.record(PARENT, read.clone())?;
        Ok(read.value)
    }

    /// Takes the recorded end of a step, or runs it. A recorded step without an end runs again.
    async fn take(&mut self, step: &PlannedStep) -> Result<BeforeFinished, RunAbort> {
        let run = self.run;
        let started = BeforeStarted { name: step.name.clone() };
        let recorded = self.cursor.take_step(&step.name, step.optional);
        if self.cursor.is_replay() {
            let Some(Recorded::Known(finished)) = recorded else {
                let difference = format!("the record has no value of the step `{}`", step.name);
                return Err(self.cursor.stopped().cloned().unwrap_or_else(|| run.diverge(PARENT, &difference)));
            };
            run.record(PARENT, started)?;
            run.record(PARENT, finished.clone())?;
            return Ok(finished);
        }
        if let Some(Recorded::Known(finished)) = recorded {
            return Ok(finished);
        }
        if !self.cursor.is_exhausted() {
            return Err(self.cursor.mismatch("before_started"));
        }
        run.check_running()?;
        run.record(PARENT, started)?;
        run.flush(PARENT).await?;
        let (finished, failure) = match run.deps.steps.given.get(&step.name) {
            Some(value) => {
                let value = run.deps.tools.redactor.redact_json(value.clone());
                (BeforeFinished { name: step.name.clone(), value, ..BeforeFinished::default() }, None)
            }
            None => self.execute(step).await?,
        };
        run.record(PARENT, finished.clone())?;
        run.fail(failure)?;
        Ok(finished)
    }

    async fn execute(&mut self, step: &PlannedStep) -> Result<(BeforeFinished, Option<EnvironmentError>), RunAbort> {
        let began = RunningInstant::now();
        let run = self.run;
        self.open()?;
        let (Some(files), Some(sandbox)) = (&self.files, &self.sandbox) else {
            return Err(RunAbort::step_failed(&step.name, "this run can't run it"));
        };
        let folder = (FILES_VARIABLE.to_owned(), files.path().to_string_lossy().into_owned());
        let environment = run.step_environment(step.once).with_variables([folder]);
        let title = format!("step {}", step.name);
        let (run_text, timeout_ms) = (&step.run, step.timeout_ms);
        let script = Script { title: &title, run: run_text, timeout_ms, environment: &environment, sandbox };
        let redactor = &run.deps.tools.redactor;
        let mut shown = CommandOutput::new(redactor, MAX_OUTPUT_CHARS);
        let mut stdout = RawOutput::new(MAX_STEP_BYTES);
        let ScriptEnd { exit_code, reason, refused, failure } =
            script.run(run, Streams { shown: &mut shown, stdout: Some(&mut stdout) }).await?;
        let mut stderr = shown.finish();
        if let Some(hit) = run.upload_reached() {
            run.record(PARENT, hit.clone())?;
            return Err(RunAbort::new(Outcome::BudgetExceeded, hit.message));
        }
        let value = match (exit_code, reason) {
            _ if stdout.is_too_long => Err(format!("it printed more than {} MiB", MAX_STEP_BYTES >> 20)),
            (Some(0), None) => value_of(step, stdout.bytes).await,
            (code, reason) => {
                let why = reason.unwrap_or_else(|| format!("exit code {}", code.unwrap_or_default()));
                let last = stderr.trim_end().lines().next_back().unwrap_or_default();
                Err(if last.is_empty() { why } else { format!("{why}: {}", truncate::ellipsize(last, MAX_LINE_CHARS)) })
            }
        };
        if let Some(refused) = refused {
            stderr.push_str(if stderr.is_empty() || stderr.ends_with('\n') { "" } else { "\n" });
            stderr.push_str(&refused);
        }
        let value = value.and_then(|value| files.keep().map(|()| value));
        let (value, warning, error) = match value {
            Ok((value, warning)) => (redactor.redact_json(value), warning, None),
            Err(why) => (Value::Null, None, Some(redactor.redact(&why).into_owned())),
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let name = step.name.clone();
        Ok((BeforeFinished { name, value, error, warning, exit_code, stderr, duration_ms }, failure))
    }

    /// Opens the folder for files, and confines the steps.
    fn open(&mut self) -> Result<(), RunAbort> {
        let StepDeps { confine, files, .. } = &self.run.deps.steps;
        let (None, Some(confine), Some(kept)) = (&self.files, confine, files) else { return Ok(()) };
        let failed = |why: String| {
            RunAbort::new(Outcome::EnvironmentFailed, format!("the steps before the agent can't run: {why}"))
        };
        let files = StepFiles::open(kept).map_err(|error| failed(format!("no folder for their files: {error}")))?;
        self.sandbox = Some(confine(files.path()).map_err(failed)?);
        self.files = Some(files);
        Ok(())
    }
}

impl RunState {
    /// Whether a check runs whose condition is known only now that the steps have run.
    pub(super) fn has_check(&self, name: &str) -> bool {
        self.late.get().is_none_or(|late| !late.skipped_checks.contains(name))
    }
}

/// The value of a step that has succeeded, and what the user should know about it.
async fn value_of(step: &PlannedStep, output: Vec<u8>) -> Result<(Value, Option<String>), String> {
    let Some(schema) = step.schema.clone() else { return Ok(text_value(output)) };
    let text = String::from_utf8(output).map_err(|error| {
        format!("its output isn't JSON, because it isn't UTF-8 at byte {}", error.utf8_error().valid_up_to())
    })?;
    let value: Value = serde_json::from_str(&text).map_err(|error| format!("its output isn't JSON: {error}"))?;
    fitting(value, schema, "its output").await.map(|value| (value, None))
}

/// A value that fits a schema. The error says of `what` why it doesn't.
async fn fitting(value: Value, schema: Value, what: &'static str) -> Result<Value, String> {
    let work = tokio::task::spawn_blocking(move || {
        let (violations, more) = SchemaValidator::new(&schema)?.violations(&value, MAX_VIOLATIONS);
        let mut lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        lines.extend((more > 0).then(|| format!("and {more} more")));
        if lines.is_empty() { Ok(value) } else { Err(format!("{what} doesn't fit the schema: {}", lines.join("; "))) }
    });
    match tokio::time::timeout(VALIDATION_TIMEOUT, work).await {
        Ok(Ok(validated)) => validated,
        Ok(Err(error)) => Err(format!("{what} can't be validated: {error}")),
        Err(_) => Err(format!("validating {what} takes too long: the schema is too complex for deeply nested data")),
    }
}

/// The output of a step without a schema: a text without its last line break.
fn text_value(output: Vec<u8>) -> (Value, Option<String>) {
    let (mut text, warning) = match String::from_utf8(output) {
        Ok(text) => (text, None),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let warning = format!("the output isn't UTF-8 at byte {at}: U+FFFD replaces what can't be read");
            (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(warning))
        }
    };
    let end = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text).len());
    text.truncate(end.unwrap_or(text.len()));
    (text.into(), warning)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(schema: Option<Value>) -> PlannedStep {
        let (name, run) = ("n".to_owned(), "true".to_owned());
        PlannedStep { name, run, timeout_ms: 1, schema, optional: false, once: false }
    }

    #[tokio::test]
    async fn an_output_is_a_text_or_json_of_its_schema() {
        let text = |bytes: &[u8]| text_value(bytes.to_vec());
        assert_eq!(text(b"a\n\n"), (json!("a\n"), None));
        assert_eq!(text(b"a\r\n"), (json!("a"), None));
        let (value, warning) = text(b"a\xff\n");
        assert_eq!(value, json!("a\u{fffd}"));
        assert!(warning.unwrap().contains("at byte 1"));
        let list = step(Some(json!({ "type": "array", "items": { "type": "integer" } })));
        assert_eq!(value_of(&list, b"[1]\n".to_vec()).await, Ok((json!([1]), None)));
        for (output, why) in [
            (&b"[1, \"a\"]"[..], "/1: expected a whole number"),
            (b"[1", "line 1 column 2"),
            (b"", "its output isn't JSON"),
            (b"[\xff]", "isn't UTF-8 at byte 1"),
        ] {
            let error = value_of(&list, output.to_vec()).await.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
