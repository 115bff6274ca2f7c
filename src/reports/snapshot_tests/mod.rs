//! Snapshots of the formats for findings.

mod machine_formats;

use std::sync::Arc;

use super::{DisplayOptions, FINDINGS, find};
use crate::diagnostic::{Diagnostic, Source, SourceSpan};
use crate::yaml;

const LOOK: DisplayOptions = DisplayOptions { colour: false, width: 80 };

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what counts is what is wrong")]
struct Job {
    name: String,
    max_turns: u8,
    list: Vec<bool>,
}

fn show(format: &str, findings: &[Diagnostic]) -> String {
    find(FINDINGS, format)(findings, LOOK)
}

fn findings_of(text: &str) -> Vec<Diagnostic> {
    yaml::read::<Job>(&Source::new("jobs/a.yaml", text)).findings
}

fn at(source: &Arc<Source>, part: &str) -> SourceSpan {
    let start = source.text.find(part).unwrap();
    SourceSpan { source: Arc::clone(source), range: start..start + part.len() }
}

const SMALL: &str = "\u{feff}name: 12\r\nmax_turn: ä\r\nlist:\r\n  - yes\r\nname: b\r\n";

#[test]
fn text_shows_excerpts_and_fixes() {
    insta::assert_snapshot!(show("text", &findings_of(SMALL)), @r#"
    error[wrong-type]: expected a string, found the integer 12
     --> jobs/a.yaml:1:7
      |
    1 | name: 12
      |       ^^
      |
    help: put it in quotes: "12"
      |
    1 - name: 12
    1 + name: "12"
      |

    error[unknown-key]: unknown key `max_turn`
     --> jobs/a.yaml:2:1
      |
    2 | max_turn: ä
      | ^^^^^^^^
      |
    help: did you mean `max_turns`? expected one of `name`, `max_turns`, `list`
      |
    2 | max_turns: ä
      |         +

    error[wrong-type]: expected an integer, found the string "ä"
     --> jobs/a.yaml:2:11
      |
    2 | max_turn: ä
      |           ^
      |
      = help: write a whole number, such as 10

    error[wrong-type]: expected a boolean, found the string "yes"
     --> jobs/a.yaml:4:5
      |
    4 |   - yes
      |     ^^^
      |
    help: in YAML 1.2 the booleans are `true` and `false`
      |
    4 -   - yes
    4 +   - true
      |

    error[duplicate-key]: key `name` is set twice in this mapping
     --> jobs/a.yaml:5:1
      |
    1 | name: 12
      | ---- first set here
    ...
    5 | name: b
      | ^^^^
      |
      = help: remove one of the two

    To learn more, try `legwork explain wrong-type unknown-key duplicate-key`.
    5 errors
    "#);
}

#[test]
fn json_has_all_fields() {
    insta::assert_snapshot!(show("json", &findings_of(SMALL)[..2]), @r#"
    {
      "format": 1,
      "diagnostics": [
        {
          "file": "jobs/a.yaml",
          "line": 1,
          "column": 7,
          "end_line": 1,
          "end_column": 9,
          "severity": "error",
          "code": "wrong-type",
          "message": "expected a string, found the integer 12",
          "help": "put it in quotes: \"12\"",
          "labels": [],
          "fix": {
            "file": "jobs/a.yaml",
            "line": 1,
            "column": 7,
            "end_line": 1,
            "end_column": 9,
            "with": "\"12\""
          }
        },
        {
          "file": "jobs/a.yaml",
          "line": 2,
          "column": 1,
          "end_line": 2,
          "end_column": 9,
          "severity": "error",
          "code": "unknown-key",
          "message": "unknown key `max_turn`",
          "help": "did you mean `max_turns`? expected one of `name`, `max_turns`, `list`",
          "labels": [],
          "fix": {
            "file": "jobs/a.yaml",
            "line": 2,
            "column": 1,
            "end_line": 2,
            "end_column": 9,
            "with": "max_turns"
          }
        }
      ]
    }
    "#);
    assert_eq!(show("json", &[]), "{\n  \"format\": 1,\n  \"diagnostics\": []\n}\n");
}

#[test]
fn github_has_annotations() {
    insta::assert_snapshot!(show("github", &findings_of(SMALL)), @r#"
    ::error file=jobs/a.yaml,line=1,endLine=1,col=7,endColumn=9,title=wrong-type::expected a string, found the integer 12%0Aput it in quotes: "12"
    ::error file=jobs/a.yaml,line=2,endLine=2,col=1,endColumn=9,title=unknown-key::unknown key `max_turn`%0Adid you mean `max_turns`? expected one of `name`, `max_turns`, `list`
    ::error file=jobs/a.yaml,line=2,endLine=2,col=11,endColumn=12,title=wrong-type::expected an integer, found the string "ä"%0Awrite a whole number, such as 10
    ::error file=jobs/a.yaml,line=4,endLine=4,col=5,endColumn=8,title=wrong-type::expected a boolean, found the string "yes"%0Ain YAML 1.2 the booleans are `true` and `false`
    ::error file=jobs/a.yaml,line=5,endLine=5,col=1,endColumn=5,title=duplicate-key::key `name` is set twice in this mapping%0Aremove one of the two
    "#);
}

#[test]
fn no_findings_give_no_output() {
    assert_eq!((show("text", &[]), show("github", &[])), (String::new(), String::new()));
}

#[test]
fn labels_far_away_and_in_other_sources_are_shown() {
    let lines: String = (1..=60).map(|number| format!("key{number}: value\n")).collect();
    let source = Source::new("a.yaml", lines);
    let other = Source::new("b.md", "first\nsecond {{ x }}");
    let finding = Diagnostic::warning("unused-input", at(&source, "key50"), "nothing uses it")
        .label(at(&source, "key48"), "near")
        .label(at(&source, "key2:"), "far away")
        .label(at(&other, "{{ x }}"), "elsewhere")
        .help("remove it");
    insta::assert_snapshot!(show("text", &[finding]), @r#"
    warning[unused-input]: nothing uses it
      --> a.yaml:50:1
       |
    48 | key48: value
       | ----- near
    49 | key49: value
    50 | key50: value
       | ^^^^^
       |
      ::: a.yaml:2:1
       |
     2 | key2: value
       | ----- far away
       |
      ::: b.md:2:8
       |
     2 | second {{ x }}
       |        ------- elsewhere
       |
       = help: remove it

    To learn more, try `legwork explain unused-input`.
    1 warning
    "#);
}

#[test]
fn long_spans_are_shortened() {
    let source = Source::new("a.yaml", "a:\n  b: 1\n  c: 2\nd: 3\n".to_owned() + &"e\n".repeat(100));
    let some = Diagnostic::error("some", at(&source, "b: 1\n  c: 2"), "some lines");
    let many = Diagnostic::error("many", SourceSpan { source, range: 5..120 }, "many lines");
    insta::assert_snapshot!(show("text", &[some, many]), @r#"
    error[some]: some lines
     --> a.yaml:2:3
      |
    2 | /   b: 1
    3 | |   c: 2
      | |______^

    error[many]: many lines
     --> a.yaml:2:3
      |
    2 |   b: 1
      |   ^^^^

    2 errors
    "#);
}

#[test]
fn control_characters_are_replaced() {
    let source =
        Source::new("a\u{1b}]0;x\u{7}\n::error::x", "k: \u{1b}[31mred\u{202e}\u{9b}0m\n::set-output name=x::y\n");
    let finding = Diagnostic::error("bad", at(&source, "red"), "bad \u{1b}[2J%0A\n::add-mask::x")
        .label(at(&source, "::set"), "\u{1b}[0m\nlabel")
        .help("a\r\n::stop-commands::x")
        .replace_with("\u{1b}[1m");
    insta::assert_snapshot!(show("text", std::slice::from_ref(&finding)), @r#"
    error[bad]: bad ␛[2J%0A ::add-mask::x
     --> a␛]0;x␇ ::error::x:1:9
      |
    1 | k: ␛[31mred��0m
      |         ^^^
    2 | ::set-output name=x::y
      | ----- ␛[0m label
      |
    help: a  ::stop-commands::x
      |
    1 - k: ␛[31mred��0m
    1 + k: ␛[31m␛[1m��0m
      |

    1 error
    "#);
    insta::assert_snapshot!(show("github", &[finding]), @r#"::error file=a␛]0;x␇ %3A%3Aerror%3A%3Ax,line=1,endLine=1,col=9,endColumn=12,title=bad::bad ␛[2J%250A ::add-mask::x%0Aa  ::stop-commands::x"#);
}

#[test]
fn a_very_long_line_is_cut_around_the_span() {
    let source = Source::new(
        "a.json",
        format!("{{\"a\": \"{}\", \"needle\": \"{}\"}}", "x".repeat(900_000), "ä".repeat(900_000)),
    );
    let shown = show("text", &[Diagnostic::error("bad", at(&source, "\"needle\""), "a needle")]);
    assert!(
        shown.contains("--> a.json:1:900011") && shown.contains("\"needle\"") && shown.contains("^^^^^^^^"),
        "{shown}"
    );
    assert!(shown.len() < 500, "{}", shown.len());
    let everything = SourceSpan { range: 0..source.text.len(), source };
    assert!(show("text", &[Diagnostic::error("bad", everything, "all of it")]).len() < 2000);
}

#[test]
fn github_gets_nine_annotations_per_level_and_a_count() {
    let source = Source::new("./a.yaml", "x\n");
    let error = Diagnostic::error("e", at(&source, "x"), "m");
    let warning = Diagnostic::warning("w", at(&source, "x"), "m");
    let shown = show("github", &[vec![error; 21], vec![warning; 9]].concat());
    let count = |start: &str| shown.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("::error file=a.yaml,line=1,"), count("::error"), count("::warning")), (9, 10, 9));
    assert!(shown.contains("::error::12 more errors in the log of this step\n"), "{shown}");
    assert_eq!(count("./a.yaml:1:1: error[e]: m"), 12);
}

#[test]
fn colours_are_optional() {
    let coloured = find(FINDINGS, "text")(&findings_of("name: 12"), DisplayOptions { colour: true, width: 80 });
    assert!(coloured.contains("\u{1b}["));
    assert!(!show("text", &findings_of("name: 12")).contains('\u{1b}'));
}

#[test]
fn empty_files_and_spans_at_the_end_are_shown() {
    let source = Source::new("a.yaml", "a: 1\n");
    let end = SourceSpan { source, range: 5..5 };
    insta::assert_snapshot!(show("text", &[findings_of("").remove(0), Diagnostic::error("end", end, "at the end")]), @r"
    error[empty-file]: the file is empty
    --> jobs/a.yaml:1:1
     = help: write a job into it, or use another file

    error[end]: at the end
     --> a.yaml:2:1
      |
    2 |
      | ^

    To learn more, try `legwork explain empty-file`.
    2 errors
    ");
}

#[test]
fn concise_has_one_line_per_finding() {
    insta::assert_snapshot!(show("concise", &findings_of(SMALL)), @r#"
    jobs/a.yaml:1:7: error[wrong-type]: expected a string, found the integer 12
    jobs/a.yaml:2:1: error[unknown-key]: unknown key `max_turn`
    jobs/a.yaml:2:11: error[wrong-type]: expected an integer, found the string "ä"
    jobs/a.yaml:4:5: error[wrong-type]: expected a boolean, found the string "yes"
    jobs/a.yaml:5:1: error[duplicate-key]: key `name` is set twice in this mapping
    "#);
    let source = Source::new("::error::\u{1b}[2J\n::x ##[add-mask]y", "k: v\n");
    let finding = Diagnostic::warning("odd", at(&source, "v"), "holds \u{202e}\u{9b}0m\r\n::add-mask::x ##vso[y]z");
    insta::assert_snapshot!(show("concise", &[finding]), @r"./::error::␛[2J ::x ##\[add-mask]y:1:4: warning[odd]: holds ��0m  ::add-mask::x ##vso\[y]z");
}
