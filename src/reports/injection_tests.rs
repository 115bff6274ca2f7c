//! Text in files can't inject anything into a terminal, a CI log or a program that reads findings.

use std::sync::Arc;

use serde_json::Value;

use super::{DisplayOptions, FINDINGS};
use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::text::sanitize;

/// Dangerous pieces: both forms of GitHub's workflow commands, those of Azure and TeamCity, 7-bit and 8-bit escape
/// sequences, bidirectional overrides, all kinds of line ends, and delimiters of strings and properties.
const HOSTILE_TEXT: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}0m\u{202e}\u{2066}\u{200b}\u{2028}\r\n::add-mask::x\r::error::y\u{85}\
    \n  ::stop-commands::z\n##[add-mask]x ##vso[task.setvariable variable=PATH]x ##teamcity[x]\n%0A%25,file=b,line=9::\
    \"}],\\\" </script>\u{feff}\0\u{7f}`[a](https://example.org)";

/// Findings with hostile text wherever it comes from files.
fn findings() -> Vec<Diagnostic> {
    let source =
        Source::new(format!("::error::{HOSTILE_TEXT}/a.yaml"), format!("key: {HOSTILE_TEXT}\nlast: {HOSTILE_TEXT}"));
    let place = |part: &str| {
        let start = source.text.find(part).unwrap();
        SourceSpan { source: Arc::clone(&source), range: start..start + part.len() }
    };
    let empty = Source::new(HOSTILE_TEXT, "");
    vec![
        Diagnostic::error("unknown-key", place("2J"), format!("unknown {HOSTILE_TEXT}"))
            .label(place("last"), HOSTILE_TEXT)
            .help(HOSTILE_TEXT)
            .replace_with(HOSTILE_TEXT),
        Diagnostic::warning("duplicate-env", place(HOSTILE_TEXT), HOSTILE_TEXT).help(HOSTILE_TEXT),
        Diagnostic::error("empty-file", SourceSpan { source: empty, range: 0..0 }, HOSTILE_TEXT).help(HOSTILE_TEXT),
    ]
}

fn shown(format: &str, colour: bool) -> String {
    super::find(FINDINGS, format)(&findings(), DisplayOptions { colour, width: 80 })
}

#[test]
fn only_text_reaches_a_terminal() {
    for (format, _) in FINDINGS {
        let text = shown(format, false);
        let control = text.chars().find(|letter| *letter != '\n' && sanitize::replacement_char(*letter).is_some());
        assert_eq!(control, None, "{format}:\n{text}");
        assert!(text.ends_with('\n'), "{format}");
    }
    let coloured = shown("text", true);
    for piece in coloured.split('\u{1b}').skip(1) {
        let (sequence, _) = piece.split_once('m').unwrap();
        assert!(
            sequence.trim_start_matches('[').bytes().all(|byte| byte.is_ascii_digit() || byte == b';'),
            "{piece:?}"
        );
    }
}

#[test]
fn no_line_is_a_ci_command() {
    for (format, _) in FINDINGS {
        let text = shown(format, false);
        for opening in ["##[", "##vso[", "##teamcity["] {
            let places = text.matches(opening).count();
            assert!(places == 0 || *format == "github", "{format}: {places} times {opening}\n{text}");
        }
        for line in text.lines().filter(|line| line.trim_start().starts_with("::")) {
            let ours = ["::error file=", "::warning file="].iter().any(|start| line.starts_with(start));
            assert!(*format == "github" && ours, "{format}: {line}");
        }
    }
}

#[test]
fn github_gets_one_command_per_finding() {
    let text = shown("github", false);
    assert_eq!(text.lines().count(), 3, "{text}");
    for line in text.lines() {
        let (properties, _) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
        let (_, properties) = properties.split_once(' ').unwrap();
        let names: Vec<&str> = properties.split(',').map(|pair| pair.split_once('=').unwrap().0).collect();
        assert!(names.starts_with(&["file", "line", "endLine"]) && names.ends_with(&["title"]), "{line}");
    }
}

#[test]
fn concise_has_one_line_per_finding() {
    assert_eq!(shown("concise", false).lines().count(), 3);
}

#[test]
fn programs_get_the_original_text() {
    let read = |name: &str| serde_json::from_str::<Value>(&shown(name, false)).unwrap();
    let plain = read("json");
    assert_eq!(plain["diagnostics"][1]["message"], HOSTILE_TEXT);
    assert_eq!(plain["diagnostics"][0]["fix"]["with"], HOSTILE_TEXT);
    assert_eq!(plain["diagnostics"][0]["labels"][0]["text"], HOSTILE_TEXT);
    let sarif = read("sarif");
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"], HOSTILE_TEXT);
    let uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
    assert!(uri.starts_with("%3A%3Aerror%3A%3A%1B%5B2J") && uri.ends_with("/a.yaml"), "{uri}");
    assert!(!result["message"]["text"].as_str().unwrap().contains("[a](https"), "{result}");
    let gitlab = read("gitlab");
    assert_eq!(gitlab[0]["location"]["path"], format!("::error::{HOSTILE_TEXT}/a.yaml"));
    assert!(!gitlab[0]["description"].as_str().unwrap().contains('\n'));
}
