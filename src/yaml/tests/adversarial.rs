//! Hostile inputs: reading each one ends soon, without a panic and with a finding.

use serde::Deserialize;
use serde_json::Value;

use super::super::Node;
use super::super::limits::MAX_FINDINGS;
use super::{decoded, findings};

/// The codes of the findings. With more than linear time, these inputs wouldn't end within a test run.
fn codes(text: &str) -> Vec<&'static str> {
    decoded::<Value>(text).findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn deep_nesting() {
    for opener in ["[", "{a: ", "- ", "? ", "[{a: "] {
        assert_eq!(codes(&opener.repeat(200_000)), ["too-deep"], "{opener}");
    }
    let stairs: String = (0..300).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    assert_eq!(codes(&stairs), ["too-deep"]);
    assert_eq!(codes(&format!("{}{}", "[".repeat(64), "]".repeat(64))), [""; 0]);
}

/// A line repeated up to a quarter of a mebibyte.
fn flood(line: &str) -> String {
    line.repeat((1 << 18) / line.len())
}

#[test]
fn endless_syntax_errors() {
    for line in [
        "a: b: c\n",
        "a: 1\nkey\n",
        "a: \"x\n",
        "a: 'x\n",
        "- [\n",
        "a: [x,\n",
        "\ta: 1\n",
        "a: @\n",
        "a: |\nb\n",
        "]\n",
        "a: 1\n<<<<<<< a\n",
        "a: 1\n<<<<<<< a\n=======\n>>>>>>> a\n",
        "a: \"\\d\"\n",
        "b: 1\na:1\n",
        "  a: 1\n a: 1\n",
        "a: \u{1}\n",
        "{\"a\": 1 \"b\"",
    ] {
        let decoded = decoded::<Value>(&flood(line));
        assert!(!decoded.findings.is_empty() && decoded.findings.len() <= MAX_FINDINGS + 1, "{line:?}");
        assert!(!decoded.gaps.is_empty(), "{line:?}");
        assert!(decoded.into_result().is_err(), "{line:?}");
    }
}

#[test]
fn one_endless_line() {
    for (before, piece) in [
        ("a: \"", "x"),
        ("a: 'x", "''"),
        ("a: [", "[x], "),
        ("", "\""),
        ("a: ", "' "),
        ("", "{\"a\"}"),
        ("a: @", "x "),
        ("a: b: ", "c: "),
    ] {
        let decoded = decoded::<Value>(&format!("{before}{}", flood(piece)));
        assert!(!decoded.findings.is_empty() && !decoded.gaps.is_empty(), "{before} {piece}");
    }
}

#[test]
fn nothing_is_read_after_too_many_syntax_errors() {
    let text = format!("first: 1\n{}last: 1\n", "a: b: c\n".repeat(30));
    let decoded = decoded::<Value>(&text);
    let codes: Vec<&str> = decoded.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == "yaml-syntax").count(), 21);
    assert_eq!(codes.last(), Some(&"too-many-findings"));
    assert_eq!(decoded.findings.last().unwrap().message, "there may be more findings; fix these first");
    assert_eq!(decoded.value.unwrap()["first"], 1);
}

#[test]
fn an_alias_bomb() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = level - 1;
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(", "));
    }
    let codes = codes(&bomb);
    assert!(codes.contains(&"too-large"), "{codes:?}");
    let text = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1_000_000), vec!["*a"; 1000].join(", "));
    assert!(self::codes(&text).contains(&"too-large"));
}

#[test]
fn a_tower_of_aliases() {
    let mut tower = "a0: &a0 x\n".to_owned();
    for level in 1..200 {
        tower += &format!("a{level}: &a{level} [[[[*a{}]]]]\n", level - 1);
    }
    assert!(codes(&tower).contains(&"too-deep"));
}

#[test]
fn cycles() {
    assert_eq!(
        findings::<Value>("a: &a [1, *a]\nb: &b {c: {d: *b}}\n"),
        "1:11-13 cyclic-alias: the alias `*a` refers to a value that contains it\n\
         2:15-17 cyclic-alias: the alias `*b` refers to a value that contains it\n"
    );
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Two {
    first: String,
    second: String,
}

#[test]
fn very_many_errors_are_counted() {
    let text: String = (0..400).map(|number| format!("k{number}: x\n")).collect();
    let decoded = decoded::<indexmap::IndexMap<String, u8>>(&text);
    assert_eq!(decoded.findings.len(), MAX_FINDINGS + 1);
    assert_eq!(decoded.findings[MAX_FINDINGS].message, "300 more findings are not shown");
    assert_eq!(decoded.findings[MAX_FINDINGS].span.start().0, 101);
    assert_eq!(decoded.value.unwrap().len(), 400);
    let text: String = (0..1200).map(|number| format!("k{number}: x\n")).collect();
    let last = super::decoded::<indexmap::IndexMap<String, u8>>(&text).findings.pop().unwrap();
    assert_eq!((last.code, &*last.message), ("too-many-findings", "at least 900 more findings are not shown"));
    // Three rounds read these keys, and count each once.
    let text: String = (0..1200).map(|number| format!("k{number}: x\n")).collect();
    let last = super::decoded::<Two>(&text).findings.pop().unwrap();
    assert_eq!((last.code, &*last.message), ("too-many-findings", "1102 more findings are not shown"));
    let repeated = "a: 1\n".repeat(20_000);
    assert_eq!(codes(&repeated).len(), MAX_FINDINGS + 1);
}

#[test]
fn a_big_file_with_an_error_at_its_end() {
    let mut text: String = (0..20_000).map(|number| format!("k{number}: [{number}]\n")).collect();
    text += "last: 1\n";
    let decoded = decoded::<indexmap::IndexMap<String, Vec<u32>>>(&text);
    assert_eq!(super::listed(&decoded.findings), "20001:7-8 wrong-type: expected a list, found the integer 1\n");
    assert_eq!(codes(&"- 1\n".repeat(300_000)), ["too-large"]);
    assert_eq!(codes(&"x".repeat(5_000_000)), ["too-large"]);
}

#[test]
fn a_recursive_type() {
    #[derive(Debug, serde::Deserialize)]
    struct Endless {
        #[expect(dead_code, reason = "only its decoding matters")]
        next: Box<Endless>,
    }
    let decoded = decoded::<Endless>("next: {next: {}}");
    assert!(decoded.value.is_none());
    assert_eq!(super::listed(&decoded.findings), "1:8-12 missing-key: required key `next` is missing\n");
}

#[test]
fn broken_documents() {
    let pieces = [
        "a",
        ": ",
        ":",
        "- ",
        "-",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\n",
        "\n  ",
        "\n\t",
        "'",
        "\"",
        "\\",
        "|",
        ">",
        "|-2\n",
        "&a ",
        "*a",
        "!",
        "!!int ",
        "<<",
        "? ",
        "#",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "@",
        "`",
        "ä",
        "😀",
        "\u{2028}",
        "\r",
        "\r\n",
        "~",
        "1",
        "\u{feff}",
    ];
    let mut random = super::spans::Random(7);
    for _ in 0..10_000 {
        let text: String = (0..random.below(24)).map(|_| pieces[random.below(pieces.len())]).collect();
        let decoded = decoded::<Node>(&text);
        assert!(decoded.value.is_some() || !decoded.findings.is_empty(), "{text:?}");
        assert!(!decoded.findings.is_empty() || decoded.gaps.is_empty(), "{text:?}");
        for finding in &decoded.findings {
            assert!(text.get(finding.span.range.clone()).is_some(), "{text:?} {finding:?}");
            let fix = finding.fix.as_ref().map(|fix| fix.span.range.clone());
            assert!(fix.is_none_or(|span| text.get(span).is_some()), "{text:?} {finding:?}");
        }
        if let Some(node) = decoded.value {
            let finite = node.decode::<Value>();
            let found = [decoded.findings, finite.findings].concat();
            assert!(!found.is_empty() || finite.value == Some(node.to_json()), "{text:?}");
        }
    }
}
