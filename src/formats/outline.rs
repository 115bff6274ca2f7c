//! A plan as text: what a person reads before letting it run.

use std::fmt::Write;

use super::{figures, harmless};
use crate::plan::{Plan, PlannedAgent};

/// Every agent with its prompts, tools and numbers, then what the whole run may use and can cost at most.
pub(super) fn plan(plan: &Plan, most_cost: Option<f64>) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = outline(&mut text, plan, most_cost);
    text
}

fn outline(text: &mut String, plan: &Plan, most_cost: Option<f64>) -> std::fmt::Result {
    writeln!(text, "job         {}", plan.job)?;
    if let Some(description) = &plan.description {
        writeln!(text, "            {}", description.trim().replace('\n', "\n            "))?;
    }
    writeln!(text, "workspace   {}", plan.workspace)?;
    for (name, value) in &plan.inputs {
        writeln!(text, "input       {name} = {value}")?;
    }
    for name in &plan.secret_inputs {
        writeln!(text, "input       {name} = (secret, for bash as $INPUT_{})", name.to_uppercase())?;
    }
    agent(text, "parent", &plan.parent)?;
    for (name, subagent) in &plan.subagents {
        agent(text, &format!("subagent {name}"), subagent)?;
    }
    let limits = &plan.limits;
    let count = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    writeln!(text, "\nlimits")?;
    writeln!(
        text,
        "  cost                {}",
        limits.cost_usd.map_or("none".to_owned(), |usd| figures::cost(Some(usd)))
    )?;
    writeln!(text, "  tokens              {}", count(limits.tokens))?;
    writeln!(text, "  wall clock          {}", limits.wall_clock_ms.map_or("none".to_owned(), figures::duration))?;
    writeln!(text, "  tool calls          {}", count(limits.tool_calls))?;
    writeln!(text, "  subagents           {}, {} at once", count(limits.subagents), limits.parallel_subagents)?;
    writeln!(text, "\nenv         {}", if plan.env.is_empty() { "none".to_owned() } else { plan.env.join(", ") })?;
    writeln!(text, "network     {} (asked of the sandbox)", word(&plan.network))?;
    writeln!(text, "keep        {}", word(&plan.keep))?;
    match most_cost {
        Some(usd) => writeln!(text, "cost        at most {}", figures::cost(Some(usd))),
        None => writeln!(text, "cost        unbounded: set limits.cost_usd"),
    }
}

fn agent(text: &mut String, title: &str, agent: &PlannedAgent) -> std::fmt::Result {
    writeln!(text, "\n{title}")?;
    if let Some(description) = &agent.description {
        writeln!(text, "  for         {}", description.trim().replace('\n', "\n              "))?;
    }
    let thinking = agent.model.thinking.map_or(String::new(), |thinking| format!(", thinking {}", word(&thinking)));
    writeln!(text, "  model       {}{thinking}", agent.model)?;
    writeln!(text, "  max_turns   {}", agent.max_turns)?;
    writeln!(text, "  max_tokens  {}", agent.max_tokens)?;
    if agent.tools.is_empty() {
        writeln!(text, "  tools       none")?;
    }
    for (number, tool) in agent.tools.iter().enumerate() {
        let label = if number == 0 { "tools" } else { "" };
        let options = if tool.options.is_null() { String::new() } else { format!(" {}", tool.options) };
        writeln!(text, "  {label:<11} {}{options}", tool.name)?;
    }
    block(text, "system", &agent.system)?;
    if let Some(prompt) = &agent.prompt {
        block(text, "prompt", prompt)?;
    }
    Ok(())
}

fn block(text: &mut String, title: &str, content: &str) -> std::fmt::Result {
    writeln!(text, "  {title}")?;
    for line in content.trim_end().lines() {
        writeln!(text, "    | {}", harmless::line(line))?;
    }
    Ok(())
}

/// The word that the job file has for a value.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
