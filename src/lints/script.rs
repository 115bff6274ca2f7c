//! A script's subagents are those that its job can start.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Source, nearest, only_nearest};
use crate::job::{GENERAL, Job, ToolEntry};
use crate::providers::replay::{Call, Script};
use crate::tools::TOOLS;
use crate::tools::submit_result::SubmitResult;
use crate::tools::task::Task;
use crate::yaml::Spanned;

use super::listed;

/// The parent's id.
const PARENT: &str = "parent";
/// How a script says that a model gets something wrong.
const ON_PURPOSE: &str = "with `mistaken: true` beside it, the model makes that mistake and is told so";

/// Everything that is wrong with a script. Without its job, only the form of its subagents' ids can be judged.
pub fn check_script(source: &Arc<Source>, job: Option<&Job>) -> Vec<Diagnostic> {
    let read = Script::read_all(source);
    let mut findings = read.findings;
    let agents = job.map(Agents::of);
    for id in &read.ids {
        match (parts(&id.value), &agents) {
            (None, _) => findings.push(without_number(id, agents.as_ref())),
            (Some(_), Some(Agents::Unsure) | None) => {}
            (Some(_), Some(Agents::None)) => {
                let finding = unknown(id, "the job's parent has no `task`, so that it starts no subagent".to_owned());
                findings.push(finding.help("put `task` into the parent's `tools`, or remove `subagents` here"));
                // It is the same mistake for all of them.
                break;
            }
            (Some(name), Some(Agents::Named(names))) => findings.extend(stranger(id, name, names)),
        }
    }
    if let Some(job) = job {
        findings.extend(read.calls.iter().filter_map(|call| misfit(call, job)));
    }
    findings.sort_by_key(|finding| finding.place.span.start);
    super::bound(&mut findings);
    findings
}

/// What is wrong with a call: the agent doesn't have the tool, or the job not the subagent.
fn misfit(call: &Call, job: &Job) -> Option<Diagnostic> {
    let who = if call.agent == PARENT { "the parent" } else { call.agent.as_str() };
    let tools = tools(&call.agent, job)?;
    let name = call.tool.value.as_str();
    if !tools.contains(&name) {
        let finding = Diagnostic::error("unknown-tool", call.tool.place(), format!("{who} has no tool `{name}`"));
        return Some(match only_nearest(name, tools.iter().copied()) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_at(call.tool.place(), meant),
            None => finding.help(ON_PURPOSE),
        });
    }
    let node = call.subagent.as_ref().filter(|_| name == Task::NAME)?;
    let subagent = node.as_str()?;
    let Agents::Named(names) = Agents::of(job) else { return None };
    if names.contains(&subagent) {
        return None;
    }
    let finding = Diagnostic::error("unknown-subagent", node.place(), format!("the job has no subagent `{subagent}`"));
    Some(match only_nearest(subagent, names.iter().copied()) {
        Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_at(node.place(), meant),
        None => finding.help(format!("{}; {ON_PURPOSE}", those(&names))),
    })
}

/// The tools of an agent, by its id; `None` where they can't be said for sure.
fn tools<'a>(agent: &str, job: &'a Job) -> Option<Vec<&'a str>> {
    let of = |entries: &'a [Spanned<ToolEntry>], returns: bool| -> Option<Vec<&'a str>> {
        let mut names: Vec<&str> = entries.iter().map(|entry| entry.value.name()).collect();
        let is_known = |name: &&str| TOOLS.iter().any(|tool| tool.name == *name);
        names.iter().all(is_known).then(|| {
            names.extend(returns.then_some(SubmitResult::NAME));
            names
        })
    };
    let own = || of(&job.parent.tools.value, job.result.is_some());
    if agent == PARENT {
        return own();
    }
    match job.subagents.get(parts(agent)?) {
        Some(subagent) => of(&subagent.tools.value, subagent.returns.is_some()),
        // What else is wrong with it is said of its id.
        None => None,
    }
}

/// The subagents that a job can start.
enum Agents<'a> {
    /// It can't be said, for the parent's tools are not all known.
    Unsure,
    /// There are none.
    None,
    /// These.
    Named(Vec<&'a str>),
}

impl<'a> Agents<'a> {
    fn of(job: &'a Job) -> Self {
        let tools = &job.parent.tools.value;
        let is_known = |name: &str| TOOLS.iter().any(|tool| tool.name == name);
        match job.delegates() {
            true if job.subagents.is_empty() => Self::Named(vec![GENERAL]),
            true => Self::Named(job.subagents.keys().map(|name| name.value.as_str()).collect()),
            false if tools.iter().all(|entry| is_known(entry.value.name())) => Self::None,
            false => Self::Unsure,
        }
    }
}

/// The name in an id such as `explorer-1`; `None` where there is no number, or one that is never given.
fn parts(id: &str) -> Option<&str> {
    let (name, number) = id.rsplit_once('-')?;
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit()) && !number.is_empty();
    (is_number && !number.starts_with('0') && !name.is_empty()).then_some(name)
}

fn unknown(id: &Spanned<String>, message: String) -> Diagnostic {
    Diagnostic::error("unknown-subagent", id.place(), message)
}

fn without_number(id: &Spanned<String>, agents: Option<&Agents<'_>>) -> Diagnostic {
    let stem = id.value.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end_matches('-');
    let name = match agents {
        Some(Agents::Named(names)) => nearest(stem, names.iter().copied()).or(names.first().copied()),
        _ => None,
    };
    let example = name.unwrap_or("explorer");
    unknown(id, format!("`{}` is no subagent's id", id.value)).help(format!(
        "an id is a subagent's name and a number, counted from 1 in the order of the calls: `{example}-1`"
    ))
}

fn stranger(id: &Spanned<String>, name: &str, names: &[&str]) -> Option<Diagnostic> {
    if names.contains(&name) {
        return None;
    }
    let number = &id.value[name.len() + 1..];
    let finding = unknown(id, format!("the job has no subagent `{name}`"));
    Some(if name == GENERAL {
        finding.help(format!("`{GENERAL}` is there only where a job names no subagents; {}", those(names)))
    } else if let Some(near) = nearest(name, names.iter().copied()) {
        let finding = finding.help(format!("did you mean `{near}-{number}`?"));
        match only_nearest(name, names.iter().copied()) {
            Some(meant) => finding.replace_at(id.node.place_of(0..name.len()), meant),
            None => finding,
        }
    } else {
        finding.help(those(names))
    })
}

fn those(names: &[&str]) -> String {
    match names {
        [only] => format!("the only one is `{only}`"),
        several => format!("there are {}", listed(several.iter().copied())),
    }
}
