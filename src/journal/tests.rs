use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::line_format::checksum;
use super::writer::Journal;
use super::*;
use crate::event::{Event, JournalEntry, NoteSent};

fn written(texts: &[&str]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut journal = Journal::new(file.reopen().unwrap(), file.path().to_owned(), JournalEnd::default()).unwrap();
    for text in texts {
        let event = Event::NoteSent(NoteSent { text: (*text).to_owned() });
        let at = "2026-01-02T03:04:05Z".parse().unwrap();
        let entry = JournalEntry { seq: journal.next_seq(), at, suspended_ms: 0, agent: "parent".to_owned(), event };
        journal.append(&entry, &FaultInjection::default(), None, None).unwrap();
    }
    std::fs::read_to_string(file.path()).unwrap()
}

fn read(text: impl AsRef<[u8]>) -> (Vec<u64>, Option<JournalError>) {
    let (mut seqs, mut error) = (Vec::new(), None);
    for entry in JournalReader::new(text.as_ref()) {
        match entry {
            Ok(entry) => seqs.push(entry.seq),
            Err(found) => error = Some(found),
        }
    }
    (seqs, error)
}

#[test]
fn entries_that_were_written_are_read() {
    let (seqs, error) = read(written(&["a", "b\n,\"sum\":\"", "c"]));
    assert_eq!(seqs, [1, 2, 3]);
    assert!(error.is_none());
}

#[test]
fn a_change_by_another_program_is_detected_and_a_touch_is_ignored() {
    type Attack = (&'static str, fn(&Path));
    let attacks: [Attack; 5] = [
        ("touch", |path| {
            File::options().append(true).open(path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }),
        ("add", |path| File::options().append(true).open(path).unwrap().write_all(b"{}\n").unwrap()),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(10).unwrap()),
        ("change", |path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, text.replace("one", "two")).unwrap();
        }),
        // Even with valid checksums.
        ("another", |path| std::fs::write(path, written(&["two"])).unwrap()),
    ];
    for (name, attack) in attacks {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = File::options().read(true).append(true).open(file.path()).unwrap();
        let mut journal = Journal::new(opened, file.path().to_owned(), JournalEnd::default()).unwrap();
        let mut append = |text: &str| {
            let event = Event::NoteSent(NoteSent { text: text.to_owned() });
            let at = "2026-01-02T03:04:05Z".parse().unwrap();
            let entry =
                JournalEntry { seq: journal.next_seq(), at, suspended_ms: 0, agent: "parent".to_owned(), event };
            journal.append(&entry, &FaultInjection::default(), None, None)
        };
        append("one").unwrap();
        attack(file.path());
        assert_eq!(append("next").is_ok(), name == "touch", "{name}");
        if name == "touch" {
            assert_eq!(read(std::fs::read_to_string(file.path()).unwrap()).0, [1, 2]);
        }
    }
}

#[test]
fn a_cut_loses_only_the_incomplete_line() {
    // This cuts inside characters, too.
    let text = written(&["one", "zwölf", "three"]);
    for cut in 0..text.len() {
        let text = &text.as_bytes()[..cut];
        let (seqs, error) = read(text);
        let whole = text.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(seqs.len(), whole, "cut at {cut}");
        let at_an_end = text.last().is_none_or(|last| *last == b'\n');
        assert_eq!(error.is_none(), at_an_end, "cut at {cut}: {error:?}");
        assert!(error.is_none_or(|error| matches!(error, JournalError::Torn { .. })), "cut at {cut}");
    }
}

#[test]
fn a_changed_byte_is_not_mistaken_for_an_incomplete_line() {
    let text = written(&["one", "zwölf"]);
    for at in 0..text.len() {
        for with in [b'\n', b'x', 0, 0xff] {
            let mut bytes = text.clone().into_bytes();
            if std::mem::replace(&mut bytes[at], with) == with {
                continue;
            }
            let (seqs, error) = read(&bytes);
            assert_eq!(seqs.len(), usize::from(at > text.find('\n').unwrap()), "{with} at {at}");
            assert!(matches!(error, Some(JournalError::Modified { .. })), "{with} at {at}: {error:?}");
        }
    }
}

#[test]
fn a_changed_line_and_a_missing_line_are_found() {
    let text = written(&["one", "two", "three"]);
    let (seqs, error) = read(text.replace("two", "twO"));
    assert_eq!(seqs, [1]);
    assert!(matches!(error, Some(JournalError::Modified { line: 2, .. })));
    let without: Vec<&str> = text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
    let (seqs, error) = read(format!("{}\n", without.join("\n")));
    assert_eq!(seqs, [1]);
    assert!(matches!(error, Some(JournalError::Modified { line: 2, .. })));
}

/// Any lines, with correct checksums.
fn with_checksums(bodies: &[&str]) -> String {
    let mut before = String::new();
    let mut text = String::new();
    for body in bodies {
        before = checksum(&before, body);
        text.push_str(&format!("{body},\"sum\":\"{before}\"}}\n"));
    }
    text
}

#[test]
fn another_format_is_distinguished_from_a_change() {
    let line = r#"{"seq":1,"at":"2026-01-02T03:04:05Z","agent":"parent","type":"run_started","data":{"format":7"#;
    let (_, error) = read(with_checksums(&[&format!(r#"{line},"version":"2.0.0"}}"#)]));
    assert!(
        matches!(error, Some(JournalError::OtherFormat { format: 7, version: Some(version) }) if version == "2.0.0")
    );
    let (_, error) = read(format!("{line}}}}}\n"));
    assert!(
        matches!(error, Some(JournalError::OtherFormat { format: 7, version: None })),
        "its checksums may be different"
    );
    let (_, error) = read(with_checksums(&[&format!("{}}}", line.replace('7', "2"))]));
    assert!(matches!(error, Some(JournalError::Unrecognized { line: 1, .. })), "{error:?}");
    let painted = r#"{"seq":1,"at":"2026-01-02T03:04:05Z","agent":"parent","type":"painted","data":{}"#;
    let (_, error) = read(with_checksums(&[painted]));
    assert!(matches!(error, Some(JournalError::Unrecognized { line: 1, why }) if why.contains("painted")));
}
