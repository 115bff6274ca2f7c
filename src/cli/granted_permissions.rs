//! What a record grants, for whoever is to trust one that was made elsewhere.

use super::CliEnv;
use super::output::printable;
use crate::job::{GitAccess, Network};
use crate::plan::Plan;

/// Says on stderr what a run may do that goes on from a record.
pub(super) fn show(around: &CliEnv, plan: &Plan) {
    around.console.eprint("the record grants:");
    for line in permission_lines(plan) {
        around.console.eprint(&format!("  {}", printable(&line)));
    }
}

fn permission_lines(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("workspace: {}", plan.workspace)];
    if plan.network == Network::Open {
        lines.push("network: open".to_owned());
    }
    let variables = plan.env.iter().cloned().chain(plan.secret_inputs.iter().map(|name| format!("the input {name}")));
    let variables: Vec<String> = variables.collect();
    if !variables.is_empty() {
        lines.push(format!("commands see: {}", variables.join(", ")));
    }
    if plan.git == GitAccess::Commit {
        lines.push("git: commit".to_owned());
    }
    if !plan.allow_changes.is_empty() {
        lines.push(format!("commands may change: {}", plan.allow_changes.join(", ")));
    }
    let names = std::iter::once("parent").chain(plan.subagents.keys().map(String::as_str));
    for (name, agent) in names.zip(plan.agents()) {
        let tools: Vec<String> = agent
            .tools
            .iter()
            .map(|tool| match tool.options.as_object().is_none_or(serde_json::Map::is_empty) {
                true => tool.name.clone(),
                false => format!("{} {}", tool.name, tool.options),
            })
            .collect();
        let tools = if tools.is_empty() { "no tools".to_owned() } else { tools.join(", ") };
        lines.push(format!("{name}: {} with {tools}", agent.model));
    }
    lines.extend(plan.active_checks().map(|check| format!("check {}: {}", check.name, check.run)));
    lines
}
