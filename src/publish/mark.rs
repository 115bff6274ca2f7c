//! Marks: the last line of what was published, by which a later process finds it again.

use sha2::{Digest, Sha256};

use crate::outputs::{Entry, is_key};
use crate::text::hex;

/// What a mark in a body begins with. Nothing that a model writes may contain it.
const START: &str = "<!-- legwork ";
const END: &str = " -->";
/// The trailer of a commit.
const TRAILER: &str = "Legwork: ";
/// How many hexadecimal digits of a digest are in a mark.
const DIGEST_DIGITS: usize = 16;

/// Identifies something that was published: which output of which run it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The name of the job.
    pub job: String,
    /// The entry's id, in a map with the row's id before it.
    pub key: String,
    /// The run's id; for a row, the map's name.
    pub run: String,
    /// The digest of the entry.
    pub digest: String,
}

impl Mark {
    /// The mark; `None` if a part has a character that marks can't have.
    pub fn new(job: &str, key: &str, run: &str, digest: &str) -> Option<Self> {
        let is_valid = |part: &str| part.split('/').all(is_key);
        [job, key, run, digest].into_iter().all(is_valid).then(|| Self {
            job: job.to_owned(),
            key: key.to_owned(),
            run: run.to_owned(),
            digest: digest.to_owned(),
        })
    }

    fn words(&self) -> String {
        let Self { job, key, run, digest } = self;
        format!("{job} {key} {run} {digest}")
    }

    /// The text with the mark as its last line.
    pub fn append_to(&self, text: &str) -> String {
        format!("{}\n\n{START}{}{END}", text.trim_end(), self.words())
    }

    /// The message of a commit with the mark as its trailer.
    pub fn append_to_message(&self, message: &str) -> String {
        format!("{}\n\n{TRAILER}{}\n", message.trim_end(), self.words())
    }

    /// The mark in the last line of a body.
    pub fn of_body(body: &str) -> Option<Self> {
        Self::parse(last_line(body).strip_prefix(START)?.strip_suffix(END)?)
    }

    /// The mark in the last line of a commit's message.
    pub fn of_message(message: &str) -> Option<Self> {
        Self::parse(last_line(message).strip_prefix(TRAILER)?)
    }

    fn parse(words: &str) -> Option<Self> {
        let mut words = words.split(' ');
        let mark = Self::new(words.next()?, words.next()?, words.next()?, words.next()?)?;
        words.next().is_none().then_some(mark)
    }

    /// Whether both are of the same output, of whichever run.
    pub fn is_same_output(&self, other: &Self) -> bool {
        self.job == other.job && self.key == other.key
    }

    /// A part of something that the forge keeps in several pieces, each with a mark of its own.
    pub fn piece(&self, number: usize, content: &str) -> Self {
        let digest = digest_of(&[self.digest.as_bytes(), content.as_bytes()]);
        Self { key: format!("{}.{number}", self.key), digest, ..self.clone() }
    }
}

/// The last line with something in it.
fn last_line(text: &str) -> &str {
    text.trim_end().rsplit('\n').next().unwrap_or_default().trim_end()
}

/// The digest of an entry, with that of the changes that it publishes.
pub(super) fn entry_digest(entry: &Entry, patch_sha256: Option<&str>) -> String {
    let Entry { id, name, kind, key, target, data, .. } = entry;
    let identity = serde_json::json!([id, name, kind, key, target, data]);
    let patch = patch_sha256.filter(|_| kind.has_patch()).unwrap_or_default();
    digest_of(&[identity.to_string().as_bytes(), patch.as_bytes()])
}

fn digest_of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..DIGEST_DIGITS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_in_the_last_line_only() {
        let mark = Mark::new("triage", "row-1/comment-1", "20260101-a", "0123456789abcdef").unwrap();
        let body = mark.append_to("Hello\n");
        assert_eq!(body, "Hello\n\n<!-- legwork triage row-1/comment-1 20260101-a 0123456789abcdef -->");
        assert_eq!(Mark::of_body(&body.replace('\n', "\r\n")), Some(mark.clone()));
        assert_eq!(Mark::of_body(&format!("{body}\nmore")), None);
        assert_eq!(Mark::of_body("<!-- legwork a b c d e -->"), None);
        assert_eq!(Mark::of_body("<!-- legwork a b c -->"), None);
        assert_eq!(Mark::of_body("<!-- legwork a b c d\u{a0} -->"), None);
        let message = mark.append_to_message("Fix it");
        assert_eq!(message, "Fix it\n\nLegwork: triage row-1/comment-1 20260101-a 0123456789abcdef\n");
        assert_eq!(Mark::of_message(&message), Some(mark.clone()));
        assert_ne!(mark.piece(1, "a"), mark.piece(1, "b"));
        assert!(Mark::new("a b", "k", "r", "d").is_none());
        assert!(Mark::new("a", "k//x", "r", "d").is_none());
    }
}
