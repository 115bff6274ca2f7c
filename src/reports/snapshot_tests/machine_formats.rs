//! Snapshots of the formats for programs.

use super::{at, show};
use crate::diagnostic::{Diagnostic, Source};

/// A warning with labels here and elsewhere and a fix, and an error over two lines.
fn two() -> Vec<Diagnostic> {
    let source = Source::new("./jobs/a b.yaml", "ä: duplicate-env\nenv: [A,\n  A]\n");
    let other = Source::new("/p/é.md", "x {{ y }}");
    vec![
        Diagnostic::warning("duplicate-env", at(&source, "A]"), "`A` is here [twice](1)")
            .label(at(&source, "A,"), "first here")
            .label(at(&other, "{{ y }}"), "used here")
            .help("remove one")
            .replace_with(""),
        Diagnostic::error("unknown-tool", at(&source, "[A,\n  A]"), "a list"),
    ]
}

#[test]
fn sarif_for_code_scanning() {
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
                "text": "`A` is here [twice\\](1)\nremove one"
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
fn gitlab_code_quality() {
    insta::assert_snapshot!(show("gitlab", &two()), @r#"
    [
      {
        "description": "`A` is here [twice](1): remove one",
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
fn json_has_labels_and_fixes() {
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
          "message": "`A` is here [twice](1)",
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
