//! Mends the kinds of files that there are.

use std::sync::Arc;

use super::{Looked, Mended, mend};
use crate::diagnostic::Source;
use crate::job::Job;
use crate::lints::{Origin, Own, check_from, check_script};
use crate::template::{FileId, Folder};

/// Mends a job file; its prompt files stay as they are.
pub fn job(source: &Arc<Source>, folder: Option<&Folder>, own: &Own) -> Mended {
    mend(&source.text, source.text.len(), &mut |text| {
        let source = Source::new(source.name.as_str(), text);
        Looked::at(check_from(&source, folder, Origin::Trusted, own).findings, &source)
    })
}

/// Mends a script, which belongs to `job` where there is one.
pub fn script(source: &Arc<Source>, job: Option<&Job>) -> Mended {
    mend(&source.text, source.text.len(), &mut |text| {
        let source = Source::new(source.name.as_str(), text);
        Looked::at(check_script(&source, job), &source)
    })
}

/// Jobs with the same folder.
#[derive(Debug)]
pub struct Readers {
    /// Where their prompts are looked up.
    pub folder: Folder,
    /// The job files.
    pub jobs: Vec<Arc<Source>>,
    /// What the user's own configuration says.
    pub own: Own,
}

/// Mends a prompt file, of which `text` is the whole text as it is on disk, for all the jobs that read it.
pub fn prompt(text: &str, file: FileId, readers: &mut [Readers]) -> Mended {
    let jobs = readers.iter().flat_map(|readers| &readers.jobs);
    let bytes = jobs.map(|job| job.text.len() + text.len()).sum();
    mend(text, bytes, &mut |text| {
        let mut each = Vec::new();
        let mut given = Vec::new();
        for Readers { folder, jobs, own } in &mut *readers {
            folder.read_instead(file, text);
            for job in jobs {
                each.push(check_from(job, Some(folder), Origin::Trusted, own).findings);
            }
            given.extend(folder.given());
        }
        let is_given = |source: &Arc<Source>| given.iter().any(|given| Arc::ptr_eq(given, source));
        Looked::through(each, is_given, |offset| as_written(text, offset))
    })
}

/// Where something stands in a file, which stands at `offset` in what templates read of it (see [`crate::template::as_read`]).
fn as_written(text: &str, offset: usize) -> usize {
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
    use crate::template::as_read;

    #[test]
    fn places_are_found_behind_line_ends_and_marks() {
        for text in ["\u{feff}a\r\nb\rc\n\r\nd", "a\nb", "", "\u{feff}", "ä\r\nö"] {
            let read = as_read(text);
            let letters: Vec<(usize, char)> = read.char_indices().collect();
            for (offset, letter) in letters.into_iter().filter(|(_, letter)| *letter != '\n') {
                assert!(text[as_written(text, offset)..].starts_with(letter), "{text:?} {offset}");
            }
            assert_eq!(as_written(text, read.len()), text.len(), "{text:?}");
        }
    }
}
