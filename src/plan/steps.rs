//! The steps of a plan that run before the agent.

use serde_json::Value;

use super::PlannedStep;
use super::checks::check_script;
use super::resolve_inputs::ResolvedInputs;
use crate::diagnostic::Diagnostic;
use crate::job::{BeforeStep, DEFAULT_STEP_SECONDS};

/// Plans a step.
pub(super) fn plan_step(
    step: &BeforeStep,
    schema: Option<Value>,
    inputs: &ResolvedInputs,
) -> Result<PlannedStep, Box<Diagnostic>> {
    check_script(&step.run, !step.is_once(), inputs)?;
    Ok(PlannedStep {
        name: step.name.value.clone(),
        run: step.run.value.clone(),
        timeout_ms: step.timeout.as_ref().map_or(DEFAULT_STEP_SECONDS * 1000, |timeout| timeout.value.milliseconds()),
        schema,
        optional: step.is_optional(),
        once: step.is_once(),
    })
}
