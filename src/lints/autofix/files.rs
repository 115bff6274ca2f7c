//! Fixes jobs, scripts and prompt files.

use std::sync::Arc;

use super::{FixResult, TextReport, fix_text};
use crate::diagnostic::Source;
use crate::job::Job;
use crate::lints::{JobTrust, UserConfig, check_script, check_with};
use crate::template::{FileId, JobDir};

/// Fixes a job file, without its prompt files.
pub fn fix_job(source: &Arc<Source>, folder: Option<&JobDir>, user_config: &UserConfig) -> FixResult {
    fix_text(&source.text, source.text.len(), &mut |text| {
        let source = Source::new(source.name.as_str(), text);
        TextReport::of_source(check_with(&source, folder, JobTrust::Trusted, user_config).findings, &source)
    })
}

/// Fixes a script, which may belong to a job.
pub fn fix_script(source: &Arc<Source>, job: Option<&Job>) -> FixResult {
    fix_text(&source.text, source.text.len(), &mut |text| {
        let source = Source::new(source.name.as_str(), text);
        TextReport::of_source(check_script(&source, job), &source)
    })
}

/// Jobs in the same folder.
#[derive(Debug)]
pub struct PromptReaders {
    /// The folder of their prompts.
    pub folder: JobDir,
    /// The job files.
    pub jobs: Vec<Arc<Source>>,
    /// The user's own configuration.
    pub user_config: UserConfig,
}

/// Fixes a prompt file for all the jobs that use it. `text` is its whole text on disk.
pub fn fix_prompt(text: &str, file: FileId, readers: &mut [PromptReaders]) -> FixResult {
    let jobs = readers.iter().flat_map(|readers| &readers.jobs);
    let bytes = jobs.map(|job| job.text.len() + text.len()).sum();
    fix_text(text, bytes, &mut |text| {
        let mut each = Vec::new();
        let mut given = Vec::new();
        for PromptReaders { folder, jobs, user_config } in &mut *readers {
            folder.set_overlay(file, text);
            for job in jobs {
                each.push(check_with(job, Some(folder), JobTrust::Trusted, user_config).findings);
            }
            given.extend(folder.overlay_sources());
        }
        let is_given = |source: &Arc<Source>| given.iter().any(|given| Arc::ptr_eq(given, source));
        TextReport::of_readers(each, is_given, |offset| raw_offset(text, offset))
    })
}

/// The offset in a file of an offset in the template that was read from it (see [`crate::template::as_read`]).
fn raw_offset(text: &str, offset: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = text.len() - text.trim_start_matches('\u{feff}').len();
    for _ in 0..offset {
        at += if bytes[at..].starts_with(b"\r\n") { 2 } else { 1 };
    }
    at.min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::normalize_text;

    #[test]
    fn offsets_account_for_line_ends_and_byte_order_marks() {
        for text in ["\u{feff}a\r\nb\rc\n\r\nd", "a\nb", "", "\u{feff}", "ä\r\nö"] {
            let read = normalize_text(text);
            let letters: Vec<(usize, char)> = read.char_indices().collect();
            for (offset, letter) in letters.into_iter().filter(|(_, letter)| *letter != '\n') {
                assert!(text[raw_offset(text, offset)..].starts_with(letter), "{text:?} {offset}");
            }
            assert_eq!(raw_offset(text, read.len()), text.len(), "{text:?}");
        }
    }
}
