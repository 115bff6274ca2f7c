//! What readers get to see.

use std::sync::Arc;

use super::{Look, find};
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::yaml;

const LOOK: Look = Look { colour: false, width: 80 };

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what counts is what is wrong")]
struct Job {
    name: String,
    max_turns: u8,
    list: Vec<bool>,
}

fn show(format: &str, findings: &[Diagnostic]) -> String {
    find(format).unwrap().diagnostics(findings, LOOK).unwrap()
}

fn wrong(text: &str) -> Vec<Diagnostic> {
    yaml::read::<Job>(&Source::new("jobs/a.yaml", text)).findings
}

fn at(source: &Arc<Source>, part: &str) -> Place {
    let start = source.text.find(part).unwrap();
    Place { source: Arc::clone(source), span: start..start + part.len() }
}

const SMALL: &str = "\u{feff}name: 12\r\nmax_turn: ä\r\nlist:\r\n  - yes\r\nname: b\r\n";

#[test]
fn for_people() {
    insta::assert_snapshot!(show("text", &wrong(SMALL)), @r#"
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
    help: did you mean `max_turns`? known are `name`, `max_turns`, `list`
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
fn for_programs() {
    insta::assert_snapshot!(show("json", &wrong(SMALL)[..2]), @r#"
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
          "help": "did you mean `max_turns`? known are `name`, `max_turns`, `list`",
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
fn for_github() {
    insta::assert_snapshot!(show("github", &wrong(SMALL)), @r#"
    ::error file=jobs/a.yaml,line=1,endLine=1,col=7,endColumn=9,title=wrong-type::expected a string, found the integer 12%0Aput it in quotes: "12"
    ::error file=jobs/a.yaml,line=2,endLine=2,col=1,endColumn=9,title=unknown-key::unknown key `max_turn`%0Adid you mean `max_turns`? known are `name`, `max_turns`, `list`
    ::error file=jobs/a.yaml,line=2,endLine=2,col=11,endColumn=12,title=wrong-type::expected an integer, found the string "ä"%0Awrite a whole number, such as 10
    ::error file=jobs/a.yaml,line=4,endLine=4,col=5,endColumn=8,title=wrong-type::expected a boolean, found the string "yes"%0Ain YAML 1.2 the booleans are `true` and `false`
    ::error file=jobs/a.yaml,line=5,endLine=5,col=1,endColumn=5,title=duplicate-key::key `name` is set twice in this mapping%0Aremove one of the two
    "#);
}

#[test]
fn nothing_to_show() {
    assert_eq!((show("text", &[]), show("github", &[])), (String::new(), String::new()));
}

#[test]
fn warnings_labels_far_away_and_other_sources() {
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
fn a_place_of_many_lines() {
    let source = Source::new("a.yaml", "a:\n  b: 1\n  c: 2\nd: 3\n".to_owned() + &"e\n".repeat(100));
    let some = Diagnostic::error("some", at(&source, "b: 1\n  c: 2"), "some lines");
    let many = Diagnostic::error("many", Place { source, span: 5..120 }, "many lines");
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
fn nothing_in_a_file_steers_the_reader() {
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
fn a_very_long_line_is_cut_around_the_place() {
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
    let everything = Place { span: 0..source.text.len(), source };
    assert!(show("text", &[Diagnostic::error("bad", everything, "all of it")]).len() < 2000);
}

#[test]
fn github_gets_nine_of_a_level_and_a_count() {
    let source = Source::new("./a.yaml", "x\n");
    let error = Diagnostic::error("e", at(&source, "x"), "m");
    let warning = Diagnostic::warning("w", at(&source, "x"), "m");
    let shown = show("github", &[vec![error; 21], vec![warning; 9]].concat());
    let count = |start: &str| shown.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("::error file=a.yaml,line=1,"), count("::error"), count("::warning")), (9, 10, 9));
    assert!(shown.contains("::error::12 more errors, not shown as annotations\n"), "{shown}");
}

#[test]
fn colours_only_where_wanted() {
    let coloured = find("text").unwrap().diagnostics(&wrong("name: 12"), Look { colour: true, width: 80 }).unwrap();
    assert!(coloured.contains("\u{1b}["));
    assert!(!show("text", &wrong("name: 12")).contains('\u{1b}'));
}

#[test]
fn an_empty_file_and_places_at_its_end() {
    let source = Source::new("a.yaml", "a: 1\n");
    let end = Place { source, span: 5..5 };
    insta::assert_snapshot!(show("text", &[wrong("").remove(0), Diagnostic::error("end", end, "at the end")]), @r"
    error[empty-file]: the file is empty
    --> jobs/a.yaml:1:1
     = help: write something into it, or name another file

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
fn concise_is_a_line_each() {
    insta::assert_snapshot!(show("concise", &wrong(SMALL)), @r#"
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

/// A warning with labels here and elsewhere and a fix, and an error over two lines.
fn two() -> Vec<Diagnostic> {
    let source = Source::new("./jobs/a b.yaml", "ä: duplicate-env\nenv: [A,\n  A]\n");
    let other = Source::new("/p/é.md", "x {{ y }}");
    vec![
        Diagnostic::warning("duplicate-env", at(&source, "A]"), "`A` stands here [twice](1)")
            .label(at(&source, "A,"), "first here")
            .label(at(&other, "{{ y }}"), "used here")
            .help("remove one")
            .replace_with(""),
        Diagnostic::error("unknown-tool", at(&source, "[A,\n  A]"), "a list"),
    ]
}

#[test]
fn for_code_scanning() {
    let text = show("sarif", &two());
    let mut log: serde_json::Value = serde_json::from_str(&text).unwrap();
    for rule in log["runs"][0]["tool"]["driver"]["rules"].as_array_mut().unwrap() {
        assert!(rule["help"]["markdown"].as_str().unwrap().contains("\n## Bad\n"), "{rule}");
        assert!(rule["help"]["text"].as_str().unwrap().contains("\nBad\n\n    "), "{rule}");
        for part in ["shortDescription", "fullDescription", "help"] {
            assert!(rule[part]["text"].as_str().is_some_and(|text| !text.is_empty()), "{part}");
            rule[part] = "...".into();
        }
    }
    log["runs"][0]["tool"]["driver"]["version"] = "...".into();
    log["runs"][0]["tool"]["driver"]["semanticVersion"] = "...".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&log).unwrap(), @r#"
    {
      "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
      "version": "2.1.0",
      "runs": [
        {
          "tool": {
            "driver": {
              "name": "legwork",
              "semanticVersion": "...",
              "version": "...",
              "rules": [
                {
                  "id": "duplicate-env",
                  "shortDescription": "...",
                  "fullDescription": "...",
                  "help": "...",
                  "defaultConfiguration": {
                    "level": "warning"
                  }
                },
                {
                  "id": "unknown-tool",
                  "shortDescription": "...",
                  "fullDescription": "...",
                  "help": "...",
                  "defaultConfiguration": {
                    "level": "error"
                  }
                }
              ]
            }
          },
          "invocations": [
            {
              "executionSuccessful": true,
              "toolExecutionNotifications": []
            }
          ],
          "columnKind": "unicodeCodePoints",
          "results": [
            {
              "ruleId": "duplicate-env",
              "level": "warning",
              "message": {
                "text": "`A` stands here [twice\\](1)\nremove one"
              },
              "locations": [
                {
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "jobs/a%20b.yaml",
                      "uriBaseId": "%SRCROOT%"
                    },
                    "region": {
                      "startLine": 3,
                      "startColumn": 3,
                      "endLine": 3,
                      "endColumn": 5
                    }
                  }
                }
              ],
              "partialFingerprints": {
                "legwork/v1": "d9e89bda4094f640c01f40e548461b28"
              },
              "ruleIndex": 0,
              "relatedLocations": [
                {
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "jobs/a%20b.yaml",
                      "uriBaseId": "%SRCROOT%"
                    },
                    "region": {
                      "startLine": 2,
                      "startColumn": 7,
                      "endLine": 2,
                      "endColumn": 9
                    }
                  },
                  "id": 1,
                  "message": {
                    "text": "first here"
                  }
                },
                {
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "file:///p/%C3%A9.md"
                    },
                    "region": {
                      "startLine": 1,
                      "startColumn": 3,
                      "endLine": 1,
                      "endColumn": 10
                    }
                  },
                  "id": 2,
                  "message": {
                    "text": "used here"
                  }
                }
              ],
              "fixes": [
                {
                  "description": {
                    "text": "remove one"
                  },
                  "artifactChanges": [
                    {
                      "artifactLocation": {
                        "uri": "jobs/a%20b.yaml",
                        "uriBaseId": "%SRCROOT%"
                      },
                      "replacements": [
                        {
                          "deletedRegion": {
                            "startLine": 3,
                            "startColumn": 3,
                            "endLine": 3,
                            "endColumn": 5
                          },
                          "insertedContent": {
                            "text": ""
                          }
                        }
                      ]
                    }
                  ]
                }
              ]
            },
            {
              "ruleId": "unknown-tool",
              "level": "error",
              "message": {
                "text": "a list"
              },
              "locations": [
                {
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "jobs/a%20b.yaml",
                      "uriBaseId": "%SRCROOT%"
                    },
                    "region": {
                      "startLine": 2,
                      "startColumn": 6,
                      "endLine": 3,
                      "endColumn": 5
                    }
                  }
                }
              ],
              "partialFingerprints": {
                "legwork/v1": "1454abae607f63dd24093bad2aa54724"
              },
              "ruleIndex": 1
            }
          ]
        }
      ]
    }
    "#);
    let empty: serde_json::Value = serde_json::from_str(&show("sarif", &[])).unwrap();
    assert_eq!((&empty["version"], &empty["runs"][0]["results"]), (&"2.1.0".into(), &serde_json::json!([])));
}

#[test]
fn for_gitlab() {
    insta::assert_snapshot!(show("gitlab", &two()), @r#"
    [
      {
        "description": "`A` stands here [twice](1): remove one",
        "check_name": "duplicate-env",
        "fingerprint": "d9e89bda4094f640c01f40e548461b28",
        "severity": "minor",
        "location": {
          "path": "jobs/a b.yaml",
          "lines": {
            "begin": 3,
            "end": 3
          }
        }
      },
      {
        "description": "a list",
        "check_name": "unknown-tool",
        "fingerprint": "1454abae607f63dd24093bad2aa54724",
        "severity": "major",
        "location": {
          "path": "jobs/a b.yaml",
          "lines": {
            "begin": 2,
            "end": 3
          }
        }
      }
    ]
    "#);
    assert_eq!(show("gitlab", &[]), "[]\n");
}

#[test]
fn labels_and_fixes_for_programs() {
    insta::assert_snapshot!(show("json", &two()[..1]), @r#"
    {
      "format": 1,
      "diagnostics": [
        {
          "file": "./jobs/a b.yaml",
          "line": 3,
          "column": 3,
          "end_line": 3,
          "end_column": 5,
          "severity": "warning",
          "code": "duplicate-env",
          "message": "`A` stands here [twice](1)",
          "help": "remove one",
          "labels": [
            {
              "file": "./jobs/a b.yaml",
              "line": 2,
              "column": 7,
              "end_line": 2,
              "end_column": 9,
              "text": "first here"
            },
            {
              "file": "/p/é.md",
              "line": 1,
              "column": 3,
              "end_line": 1,
              "end_column": 10,
              "text": "used here"
            }
          ],
          "fix": {
            "file": "./jobs/a b.yaml",
            "line": 3,
            "column": 3,
            "end_line": 3,
            "end_column": 5,
            "with": ""
          }
        }
      ]
    }
    "#);
}
