//! What a `replay/FILE` model answers from: a script, or a recorded run.

use std::collections::BTreeMap;
use std::path::Path;

use super::read_files;
use crate::agent::{JournalSplit, RaisedLimits};
use crate::diagnostic::Severity;
use crate::error::Error;
use crate::event::{Event, PARENT};
use crate::job::Job;
use crate::journal::journal_file;
use crate::lints;
use crate::providers::replay::{AgentReplies, Script};
use crate::record::Record;

/// Opens a script file or a run's folder. Where the job is known, the script has to fit it.
///
/// # Errors
/// Where it isn't there or isn't valid.
pub(super) fn open_replay_source(path: &Path, job: Option<&Job>) -> Result<Script, Error> {
    if path.is_dir() {
        return replies_of_record(path);
    }
    let source = read_files::read_source(path).map_err(|finding| Error::Invalid(vec![finding]))?;
    let mut findings = lints::check_script(&source, job);
    findings.retain(|finding| finding.severity == Severity::Error);
    if !findings.is_empty() {
        return Err(Error::Invalid(findings));
    }
    Script::read(&source).map_err(Error::Invalid)
}

/// The replies that a run has recorded, agent by agent.
fn replies_of_record(folder: &Path) -> Result<Script, Error> {
    let record = Record::open(folder)?;
    let mut replies = BTreeMap::new();
    let agents = std::iter::once(PARENT.to_owned()).chain(record.subagents()?);
    for agent in agents {
        let (mut of_agent, mut summaries, mut keeps) = (Vec::new(), BTreeMap::new(), None);
        let file = folder.join(journal_file(&agent));
        let entries: Result<Vec<_>, _> = record.entries(&agent)?.collect();
        let entries = entries.map_err(|flaw| Error::NotARecord {
            path: folder.to_owned(),
            why: format!("the journal of {agent} can't be used: {flaw}"),
        })?;
        // Where a limit was raised, what the agent did because of it is no part of its work.
        for entry in JournalSplit::new(&agent, entries, &RaisedLimits::default()).active {
            match entry.event {
                Event::RequestStarted(asked) => keeps = asked.kept_turns,
                Event::ReplyReceived(replied) => {
                    let place = format!("{}:{}", file.display(), entry.seq);
                    summaries.extend(keeps.map(|kept| (of_agent.len(), kept)));
                    of_agent.push((replied.reply, place));
                }
                _ => {}
            }
        }
        let place = file.display().to_string();
        replies.insert(agent, AgentReplies { replies: of_agent, place, summaries });
    }
    Ok(Script::from_replies(folder.display().to_string(), replies).with_workspace(record.plan.workspace))
}
