//! Checks a replay script against its job: it uses only existing tools and subagents.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Source, suggest_certain_name, suggest_name};
use crate::job::{GENERAL_SUBAGENT, Job, SERVER_SEPARATOR, ServerEntry, allows_model_name};
use crate::providers::replay::{CallSite, Script};
use crate::tools::TOOLS;
use crate::tools::set_state::SetState;
use crate::tools::skill::SkillTool;
use crate::tools::submit_result::SubmitResult;
use crate::tools::task::Task;
use crate::yaml::Spanned;

use super::join_names;

/// The parent's id.
const PARENT: &str = "parent";
/// The help for a call that is meant to fail.
const MISTAKEN_HELP: &str = "add `mistaken: true` to the call if the model is meant to make this mistake";

/// Reports everything that is wrong with a script. Without its job, only the form of its ids is checked.
pub fn check_script(source: &Arc<Source>, job: Option<&Job>) -> Vec<Diagnostic> {
    let read = Script::parse(source);
    let mut findings = read.findings;
    // Which subagents a parent with unknown tools starts isn't known.
    let job_with_tools = job.filter(|job| job.delegates() || agent_tools(PARENT, job).is_some());
    let names = job_with_tools.map(startable_subagents);
    for id in &read.ids {
        match (subagent_name(&id.value), &names) {
            (None, _) => findings.push(without_number(id, names.as_deref().unwrap_or_default())),
            (Some(_), None) => {}
            (Some(_), Some(names)) if names.is_empty() => {
                let finding = unknown(id, "the job's parent has no `task`, so it starts no subagents".to_owned());
                findings.push(finding.help("add `task` to the parent's `tools`, or remove `subagents` here"));
                // The others have the same error.
                break;
            }
            (Some(name), Some(names)) => findings.extend(undeclared_subagent(id, name, names)),
        }
    }
    if let Some(job) = job {
        findings.extend(read.servers.iter().filter_map(|server| unknown_server(server, job)));
        findings.extend(read.calls.iter().filter_map(|call| call_error(call, job)));
    }
    findings.sort_by_key(|finding| finding.span.range.start);
    super::truncate_findings(&mut findings);
    findings
}

/// The error in a call: the agent doesn't have the tool, or the job doesn't have the subagent.
fn call_error(call: &CallSite, job: &Job) -> Option<Diagnostic> {
    let who = if call.agent == PARENT { "the parent" } else { call.agent.as_str() };
    let tools = agent_tools(&call.agent, job)?;
    let name = call.tool.value.as_str();
    if !tools.has(name) {
        let tools = tools.names;
        let finding = Diagnostic::error("unknown-tool", call.tool.place(), format!("{who} has no tool `{name}`"));
        return Some(match suggest_certain_name(name, tools.iter().copied()) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_at(call.tool.place(), meant),
            None => finding.help(MISTAKEN_HELP),
        });
    }
    let node = call.subagent.as_ref().filter(|_| name == Task::NAME)?;
    let subagent = node.as_str()?;
    let names = startable_subagents(job);
    if names.is_empty() || names.contains(&subagent) {
        return None;
    }
    let finding = Diagnostic::error("unknown-subagent", node.place(), format!("the job has no subagent `{subagent}`"));
    Some(match suggest_certain_name(subagent, names.iter().copied()) {
        Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_at(node.place(), meant),
        None => finding.help(format!("{}; {MISTAKEN_HELP}", list_subagents(&names))),
    })
}

/// A server that the job doesn't have.
fn unknown_server(server: &Spanned<String>, job: &Job) -> Option<Diagnostic> {
    let names = || job.mcp.keys().map(|name| name.value.as_str());
    if server.node.is_placeholder() || names().any(|name| name == server.value) {
        return None;
    }
    let message = format!("the job has no tool server `{}`", server.value);
    let finding = Diagnostic::error("unknown-server", server.place(), message);
    Some(match suggest_name(&server.value, names()) {
        Some(near) => finding.help(format!("did you mean `{near}`?")),
        None => finding.help("remove it, or declare it in the job under `mcp`"),
    })
}

/// The tools of an agent.
struct AgentTools<'a> {
    names: Vec<&'a str>,
    servers: Vec<&'a ServerEntry>,
}

impl AgentTools<'_> {
    /// Whether it has a tool. Which of the tools that match a pattern a server has isn't known.
    fn has(&self, name: &str) -> bool {
        let is_allowed = |(server, tool): (&str, &str)| {
            let mut entries = self.servers.iter().filter(|entry| entry.server.value == server);
            entries.any(|entry| entry.allow.value.iter().any(|pattern| allows_model_name(&pattern.value, tool)))
        };
        self.names.contains(&name) || name.split_once(SERVER_SEPARATOR).is_some_and(is_allowed)
    }
}

/// The tools of an agent, by its id; `None` if they aren't known.
fn agent_tools<'a>(agent: &str, job: &'a Job) -> Option<AgentTools<'a>> {
    let has_state = agent == PARENT && job.state.is_some();
    let (entries, has_result, skills) = match agent {
        PARENT => (&job.parent.tools, job.result.is_some(), &job.parent.skills),
        _ => {
            let subagent = job.subagents.get(subagent_name(agent)?)?;
            (&subagent.tools, subagent.returns.is_some(), &subagent.skills)
        }
    };
    let has_skills = !job.skills.is_empty() || !skills.is_empty();
    let servers: Vec<&ServerEntry> = entries.value.iter().filter_map(|entry| entry.value.server()).collect();
    let builtin = entries.value.iter().filter(|entry| entry.value.server().is_none());
    let names: Vec<&str> = builtin.map(|entry| entry.value.name()).collect();
    let is_known = names.iter().all(|name| TOOLS.iter().any(|tool| tool.name == *name));
    let of_keys = [
        has_skills.then_some(SkillTool::NAME),
        has_result.then_some(SubmitResult::NAME),
        has_state.then_some(SetState::NAME),
    ];
    let names = names.into_iter().chain(of_keys.into_iter().flatten()).collect();
    is_known.then_some(AgentTools { names, servers })
}

/// The names of the subagents that a job can start.
pub fn startable_subagents(job: &Job) -> Vec<&str> {
    match job.delegates() {
        true if job.subagents.is_empty() => vec![GENERAL_SUBAGENT],
        true => job.subagents.keys().map(|name| name.value.as_str()).collect(),
        false => Vec::new(),
    }
}

/// The name in an id such as `explorer-1`; `None` if its number is missing or impossible.
pub fn subagent_name(id: &str) -> Option<&str> {
    let (name, number) = id.rsplit_once('-')?;
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit()) && !number.is_empty();
    (is_number && !number.starts_with('0') && !name.is_empty()).then_some(name)
}

fn unknown(id: &Spanned<String>, message: String) -> Diagnostic {
    Diagnostic::error("unknown-subagent", id.place(), message)
}

fn without_number(id: &Spanned<String>, names: &[&str]) -> Diagnostic {
    let stem = id.value.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end_matches('-');
    let example = suggest_name(stem, names.iter().copied()).or(names.first().copied()).unwrap_or("explorer");
    unknown(id, format!("`{}` isn't a subagent's id", id.value)).help(format!(
        "an id is a subagent's name and a number, counted from 1 in the order of the calls: `{example}-1`"
    ))
}

fn undeclared_subagent(id: &Spanned<String>, name: &str, names: &[&str]) -> Option<Diagnostic> {
    if names.contains(&name) {
        return None;
    }
    let number = &id.value[name.len() + 1..];
    let finding = unknown(id, format!("the job has no subagent `{name}`"));
    Some(if name == GENERAL_SUBAGENT {
        finding.help(format!(
            "`{GENERAL_SUBAGENT}` exists only if a job has no subagents of its own; {}",
            list_subagents(names)
        ))
    } else if let Some(near) = suggest_name(name, names.iter().copied()) {
        let finding = finding.help(format!("did you mean `{near}-{number}`?"));
        match suggest_certain_name(name, names.iter().copied()) {
            Some(meant) => finding.replace_at(id.node.place_of_range(0..name.len()), meant),
            None => finding,
        }
    } else {
        finding.help(list_subagents(names))
    })
}

fn list_subagents(names: &[&str]) -> String {
    match names {
        [only] => format!("the only subagent is `{only}`"),
        several => format!("expected one of {}", join_names(several.iter().copied())),
    }
}
