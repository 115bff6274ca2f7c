//! The source of a `replay/FILE` model's replies: a script or a recorded run.

use std::collections::BTreeMap;
use std::path::Path;

use super::read_files;
use crate::agent::{JournalSplit, RaisedLimits};
use crate::diagnostic::Severity;
use crate::error::Error;
use crate::event::Event;
use crate::job::{Job, SERVER_SEPARATOR};
use crate::journal::journal_file;
use crate::lints;
use crate::message::ToolResult;
use crate::providers::replay::{AgentReplies, Script, ScriptedAnswers};
use crate::record::Record;

/// Opens a script file or a run folder. If the job is known, the script must match it.
///
/// # Errors
/// It doesn't exist or is invalid.
pub(super) fn open_replay_source(path: &Path, job: Option<&Job>) -> Result<Script, Error> {
    if path.is_dir() {
        return replies_of_record(path);
    }
    let source = read_files::read_source(path).map_err(|finding| {
        Error::Invalid(vec![match near_source(path) {
            Some(near) => finding.help(format!("did you mean `replay/{near}`?")),
            None => finding,
        }])
    })?;
    let mut findings = lints::check_script(&source, job);
    findings.retain(|finding| finding.severity == Severity::Error);
    if !findings.is_empty() {
        return Err(Error::Invalid(findings));
    }
    Script::read(&source).map_err(Error::Invalid)
}

/// The script that is meant by a path without a file: scripts are beside their jobs, so `jobs/` is missing in the path, or is
/// there twice because a job names its script from its own folder.
fn near_source(path: &Path) -> Option<String> {
    let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
    if path.exists() {
        None
    } else if folder.join("jobs").join(name).is_file() {
        Some(format!("jobs/{name}"))
    } else {
        (folder.file_name()? == "jobs" && folder.parent()?.join(name).is_file()).then(|| name.to_owned())
    }
}

/// The recorded replies of a run, by agent.
fn replies_of_record(folder: &Path) -> Result<Script, Error> {
    let record = Record::open(folder)?;
    let (mut replies, mut answers) = (BTreeMap::new(), ScriptedAnswers::new());
    let servers = record.plan.mcp.iter().map(|(name, server)| (name.clone(), server.tools.clone().unwrap_or_default()));
    let servers: BTreeMap<_, _> = servers.collect();
    let is_of_server =
        |tool: &str| tool.split_once(SERVER_SEPARATOR).is_some_and(|(server, _)| servers.contains_key(server));
    for (agent, entries) in record.journals()? {
        let (mut agent_replies, mut summaries, mut kept_turns) = (Vec::new(), BTreeMap::new(), None);
        let place = folder.join(journal_file(&agent)).display().to_string();
        // Leave out what the agent did because of a limit that was raised later.
        for entry in JournalSplit::new(&agent, entries, &RaisedLimits::default()).active {
            match entry.event {
                Event::RequestStarted(request) => kept_turns = request.kept_turns,
                Event::ReplyReceived(received) => {
                    summaries.extend(kept_turns.map(|kept| (agent_replies.len(), kept)));
                    agent_replies.push((received.reply, format!("{place}:{}", entry.seq)));
                }
                Event::CallFinished(end) if is_of_server(&end.tool) => {
                    let ToolResult { call_id, text, is_error, .. } = end.result;
                    answers.insert((agent.clone(), call_id), if is_error { Err(text) } else { Ok(text) });
                }
                _ => {}
            }
        }
        replies.insert(agent, AgentReplies { replies: agent_replies, place, summaries });
    }
    let (name, workspace) = (folder.display().to_string(), Some(record.plan.workspace));
    Ok(Script { name, is_recorded: true, agents: replies, workspace, servers, answers })
}
