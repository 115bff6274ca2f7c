//! What stands in files never steers who reads the findings: no terminal, no CI system, no program.

use std::sync::Arc;

use serde_json::Value;

use super::{FORMATS, Format, Look, Subject, harmless};
use crate::diagnostic::{Diagnostic, Place, Source};

/// Pieces that do harm somewhere: workflow commands in both of GitHub's forms, Azure's and TeamCity's, escape
/// sequences in 7 and 8 bits, bidirectional overrides, every line end, what ends strings and properties.
const HARM: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}0m\u{202e}\u{2066}\u{200b}\u{2028}\r\n::add-mask::x\r::error::y\u{85}\
    \n  ::stop-commands::z\n##[add-mask]x ##vso[task.setvariable variable=PATH]x ##teamcity[x]\n%0A%25,file=b,line=9::\
    \"}],\\\" </script>\u{feff}\0\u{7f}`[a](https://example.org)";

/// Findings with harm in all that comes from files.
fn findings() -> Vec<Diagnostic> {
    let source = Source::new(format!("::error::{HARM}/a.yaml"), format!("key: {HARM}\nlast: {HARM}"));
    let place = |part: &str| {
        let start = source.text.find(part).unwrap();
        Place { source: Arc::clone(&source), span: start..start + part.len() }
    };
    let empty = Source::new(HARM, "");
    vec![
        Diagnostic::error("unknown-key", place("2J"), format!("unknown {HARM}"))
            .label(place("last"), HARM)
            .help(HARM)
            .replace_with(HARM),
        Diagnostic::warning("duplicate-env", place(HARM), HARM).help(HARM),
        Diagnostic::error("empty-file", Place { source: empty, span: 0..0 }, HARM).help(HARM),
    ]
}

fn shown(format: &dyn Format, colour: bool) -> Option<String> {
    format.diagnostics(&findings(), Look { colour, width: 80 })
}

fn printing() -> impl Iterator<Item = &'static dyn Format> {
    FORMATS.iter().copied().filter(|format| format.shows().contains(&Subject::Diagnostics))
}

#[test]
fn nothing_reaches_a_terminal_but_text() {
    assert_eq!(printing().count(), 6);
    for format in printing() {
        let text = shown(format, false).unwrap();
        let steering = text.chars().find(|letter| *letter != '\n' && harmless::stand_in(*letter).is_some());
        assert_eq!(steering, None, "{}:\n{text}", format.name());
        assert!(text.ends_with('\n'), "{}", format.name());
    }
    let coloured = shown(super::find("text").unwrap(), true).unwrap();
    for piece in coloured.split('\u{1b}').skip(1) {
        let (sequence, _) = piece.split_once('m').unwrap();
        assert!(
            sequence.trim_start_matches('[').bytes().all(|byte| byte.is_ascii_digit() || byte == b';'),
            "{piece:?}"
        );
    }
}

#[test]
fn no_line_is_a_command_of_a_ci_system() {
    for format in printing() {
        let text = shown(format, false).unwrap();
        for opening in ["##[", "##vso[", "##teamcity["] {
            let places = text.matches(opening).count();
            assert!(places == 0 || format.name() == "github", "{}: {places} times {opening}\n{text}", format.name());
        }
        for line in text.lines().filter(|line| line.trim_start().starts_with("::")) {
            let ours = ["::error file=", "::warning file="].iter().any(|start| line.starts_with(start));
            assert!(format.name() == "github" && ours, "{}: {line}", format.name());
        }
    }
}

#[test]
fn github_reads_one_command_a_finding() {
    let text = shown(super::find("github").unwrap(), false).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    for line in text.lines() {
        let (properties, _) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
        let (_, properties) = properties.split_once(' ').unwrap();
        let names: Vec<&str> = properties.split(',').map(|pair| pair.split_once('=').unwrap().0).collect();
        assert!(names.starts_with(&["file", "line", "endLine"]) && names.ends_with(&["title"]), "{line}");
    }
}

#[test]
fn concise_has_one_line_a_finding() {
    assert_eq!(shown(super::find("concise").unwrap(), false).unwrap().lines().count(), 3);
}

#[test]
fn programs_get_what_was_there() {
    let read = |name: &str| serde_json::from_str::<Value>(&shown(super::find(name).unwrap(), false).unwrap()).unwrap();
    let plain = read("json");
    assert_eq!(plain["diagnostics"][1]["message"], HARM);
    assert_eq!(plain["diagnostics"][0]["fix"]["with"], HARM);
    assert_eq!(plain["diagnostics"][0]["labels"][0]["text"], HARM);
    let sarif = read("sarif");
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"], HARM);
    let uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
    assert!(uri.starts_with("%3A%3Aerror%3A%3A%1B%5B2J") && uri.ends_with("/a.yaml"), "{uri}");
    assert!(!result["message"]["text"].as_str().unwrap().contains("[a](https"), "{result}");
    let gitlab = read("gitlab");
    assert_eq!(gitlab[0]["location"]["path"], format!("::error::{HARM}/a.yaml"));
    assert!(!gitlab[0]["description"].as_str().unwrap().contains('\n'));
}
