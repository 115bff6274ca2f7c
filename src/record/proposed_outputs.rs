//! `outputs.json`: what a run proposes to do outside, derived from its journal.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::artifacts::WrittenFile;
use super::recorder::Recorder;
use crate::event::{ChangeKind, PARENT, RunModel};
use crate::journal::{journal_file, last_checksum};
use crate::outputs::{Accepted, OUTPUTS_FILE, OutputsFile, Patch, PatchFile};
use crate::text::hex;

/// The version of the file.
const FORMAT: u32 = 1;
/// The longest last line of a journal, in bytes.
const MAX_LAST_LINE: u64 = 256 << 10;

impl Recorder {
    /// Writes what a run that has ended proposes, if its job has outputs. Its last line is in the journal.
    pub(super) fn make_outputs(&self, model: &RunModel) -> io::Result<Option<WrittenFile>> {
        let Some(mut file) = outputs_file(model) else { return Ok(None) };
        file.journal_head = self.journal_head()?;
        let existing = self.write_with(OUTPUTS_FILE, |out| {
            serde_json::to_writer_pretty(&mut *out, &file)?;
            out.write_all(b"\n")
        })?;
        Ok(Some((OUTPUTS_FILE.to_owned(), existing)))
    }

    /// The checksum of the last complete line of the parent's journal.
    fn journal_head(&self) -> io::Result<String> {
        let mut journal = self.open_folder().open_file(Path::new(&journal_file(PARENT)))?;
        let length = journal.metadata()?.len();
        journal.seek(SeekFrom::Start(length.saturating_sub(MAX_LAST_LINE)))?;
        let mut tail = Vec::new();
        journal.take(MAX_LAST_LINE).read_to_end(&mut tail)?;
        last_checksum(&tail).ok_or_else(|| io::Error::other("the journal has no complete last line"))
    }
}

/// What a run proposes, without the head of its journal; `None` if its job has no outputs, or it hasn't ended.
pub fn outputs_file(model: &RunModel) -> Option<OutputsFile> {
    outputs_file_with(model, model.proposed.as_ref()?)
}

/// The same of a run whose job has no outputs: it proposes nothing.
pub fn empty_outputs_file(model: &RunModel) -> Option<OutputsFile> {
    outputs_file_with(model, &Accepted::default())
}

fn outputs_file_with(model: &RunModel, accepted: &Accepted) -> Option<OutputsFile> {
    let (_, started) = model.started.as_ref()?;
    let needs_patch = accepted.entries.iter().any(|entry| entry.kind.has_patch());
    let patch = model.changed.as_ref().filter(|_| needs_patch).map(|changed| Patch {
        base_commit: started.commit.clone().unwrap_or_default(),
        sha256: hex(&Sha256::digest(changed.patch.as_bytes())),
        files: changed
            .changes
            .iter()
            .map(|change| PatchFile { path: change.path.clone(), change: change_name(change.change).to_owned() })
            .collect(),
        bytes: changed.patch.len() as u64,
    });
    Some(OutputsFile {
        format: FORMAT,
        run_id: started.run_id.clone(),
        job: started.job.clone(),
        job_sha256: hex(&Sha256::digest(started.job_file.as_bytes())),
        files: started.job_files.clone(),
        journal_head: String::new(),
        trigger: started.plan.outputs.as_ref().and_then(|outputs| outputs.trigger.clone()),
        entries: accepted.entries.clone(),
        nothing_to_do: accepted.nothing_to_do.clone(),
        patch,
    })
}

fn change_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
    }
}
