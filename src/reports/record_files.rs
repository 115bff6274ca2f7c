//! The files of a record that people read: the transcript, the report, and the pages about subagents.

use std::io;
use std::path::Path;

use super::{html, markdown};
use crate::conversation::{AgentConversation, Conversation, MAX_SHOWN_CHARS};
use crate::event::{AgentFinished, PARENT, RunResult, summary_file};
use crate::plan::Plan;
use crate::record::{
    ExistingFile, REPORT_FILE, Recorder, TRANSCRIPT_FILE, WrittenFile, open_file_in, read_conversation,
};
use crate::text::bounded::read_up_to;

/// The largest page about a subagent that is compared, in bytes.
const MAX_PAGE_BYTES: u64 = 128 << 20;

/// Writes a subagent's summary. Its conversation follows in the same file when the run has ended.
///
/// # Errors
/// If the file couldn't be written.
pub fn write_summary(recorder: &Recorder, finished: &AgentFinished) -> io::Result<WrittenFile> {
    let name = summary_file(&finished.id);
    let existing = recorder.write(&name, markdown::subagent_summary(finished).as_bytes())?;
    Ok((name, existing))
}

/// Writes the transcript, the report and the pages about the subagents that have ended.
///
/// # Errors
/// If a file couldn't be written, or a journal is damaged.
pub fn write_reports(recorder: &Recorder, plan: &Plan, result: Option<&RunResult>) -> io::Result<Vec<WrittenFile>> {
    let conversation = read_conversation(&recorder.folder, plan, result.cloned(), Some(MAX_SHOWN_CHARS));
    if conversation.is_damaged {
        return Err(io::Error::other(format!("the journal can't be used: {}", conversation.missing.join(" "))));
    }
    let write = |out: &mut dyn io::Write| markdown::transcript(&conversation, out);
    let mut made = vec![(TRANSCRIPT_FILE.to_owned(), recorder.write_with(TRANSCRIPT_FILE, write)?)];
    for agent in conversation.agents().filter(|agent| agent.id != PARENT) {
        made.extend(write_subagent_page(recorder, &conversation, agent)?);
    }
    let is_file = || recorder.open_folder().open_file(Path::new(REPORT_FILE)).is_ok();
    let report = if conversation.agents().any(|agent| agent.has_no_journal) && is_file() {
        // A report that was written from all journals has more than can be written now.
        ExistingFile::Identical
    } else {
        recorder.write_with(REPORT_FILE, |out| html::report(&conversation, out))?
    };
    made.push((REPORT_FILE.to_owned(), report));
    Ok(made)
}

/// Writes the page about a subagent, if it has ended.
fn write_subagent_page(
    recorder: &Recorder,
    conversation: &Conversation,
    agent: &AgentConversation,
) -> io::Result<Option<WrittenFile>> {
    let Some(finished) = &agent.finished else { return Ok(None) };
    let name = summary_file(&agent.id);
    if agent.has_no_journal {
        // A page that was written from the journal has more than can be written now.
        let summary = markdown::subagent_summary(finished);
        let is_current = open_file_in(recorder.open_folder().folder(), &name, MAX_PAGE_BYTES)
            .and_then(|file| read_up_to(file, MAX_PAGE_BYTES))
            .is_ok_and(|existing| existing.starts_with(summary.as_bytes()));
        if is_current {
            return Ok(Some((name, ExistingFile::Identical)));
        }
    }
    let write = |out: &mut dyn io::Write| markdown::subagent_page(conversation, agent, out);
    let existing = recorder.write_with(&name, write)?;
    Ok(Some((name, existing)))
}
