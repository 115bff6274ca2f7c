//! Mends the kinds of files that there are.

use std::sync::Arc;

use super::{FixResult, TextReport, fix_text};
use crate::diagnostic::Source;
use crate::job::Job;
use crate::lints::{JobTrust, UserConfig, check_script, check_with};
use crate::template::{FileId, JobDir};

/// Mends a job file; its prompt files stay as they are.
pub fn fix_job(source: &Arc<Source>, folder: Option<&JobDir>, own: &UserConfig) -> FixResult {
    fix_text(&source.text, source.text.len(), &mut |text| {
        let source = Source::new(source.name.as_str(), text);
        TextReport::of_source(check_with(&source, folder, JobTrust::Trusted, own).findings, &source)
    })
}

/// Mends a script, which belongs to `job` where there is one.
pub fn fix_script(source: &Arc<Source>, job: Option<&Job>) -> FixResult {
    fix_text(&source.text, source.text.len(), &mut |text| {
        let source = Source::new(source.name.as_str(), text);
        TextReport::of_source(check_script(&source, job), &source)
    })
}

/// Jobs with the same folder.
#[derive(Debug)]
pub struct PromptReaders {
    /// Where their prompts are looked up.
    pub folder: JobDir,
    /// The job files.
    pub jobs: Vec<Arc<Source>>,
    /// What the user's own configuration says.
    pub user_config: UserConfig,
}

/// Mends a prompt file, of which `text` is the whole text as it is on disk, for all the jobs that read it.
pub fn fix_prompt(text: &str, file: FileId, readers: &mut [PromptReaders]) -> FixResult {
    let jobs = readers.iter().flat_map(|readers| &readers.jobs);
    let bytes = jobs.map(|job| job.text.len() + text.len()).sum();
    fix_text(text, bytes, &mut |text| {
        let mut each = Vec::new();
        let mut given = Vec::new();
        for PromptReaders { folder, jobs, user_config: own } in &mut *readers {
            folder.set_overlay(file, text);
            for job in jobs {
                each.push(check_with(job, Some(folder), JobTrust::Trusted, own).findings);
            }
            given.extend(folder.overlay_sources());
        }
        let is_given = |source: &Arc<Source>| given.iter().any(|given| Arc::ptr_eq(given, source));
        TextReport::of_readers(each, is_given, |offset| raw_offset(text, offset))
    })
}

/// Where something stands in a file, which stands at `offset` in what templates read of it (see [`crate::template::as_read`]).
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
    fn places_are_found_behind_line_ends_and_marks() {
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
