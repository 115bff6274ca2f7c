//! All errors at once, each at its place.

use indexmap::IndexMap;
use serde::Deserialize;

use super::super::Spanned;
use super::{decoded, findings, listed};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what counts is what is wrong")]
struct Job {
    name: String,
    model: Option<String>,
    #[serde(default)]
    keep: Option<Keep>,
    #[serde(default)]
    inputs: IndexMap<Spanned<String>, Input>,
    parent: Agent,
    #[serde(default)]
    subagents: IndexMap<String, Agent>,
    #[serde(default)]
    limits: Limits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Keep {
    Always,
    OnFailure,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what counts is what is wrong")]
struct Input {
    r#type: Type,
    #[serde(default)]
    secret: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    String,
    Integer,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    prompt: Spanned<String>,
    tools: Vec<Tool>,
    max_turns: Option<u8>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Tool {
    Bash,
    Glob,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what counts is what is wrong")]
struct Limits {
    cost_usd: Option<f64>,
    tokens: Option<u64>,
}

const PLANTED: &str = "\
name: 12
modle: x
keep: sometimes
colour: red
inputs:
  one: {type: strng, secret: yes}
  two: {secret: maybe}
  one: {type: string}
parent:
  prompt: [a]
  tools: [glob, grep, {bash: {timeout: 2m}}, bash, glob]
  max_turns: 300
subagents:
  first:
    prompt: &p ok
    tools: glob
    max_turns: -1
  second:
    prompt: *q
  third: nothing
  fourth: {prompt: x, tools: [], <<: {a: b}}
  fifth: {prompt: !mine x, tools: []}
limits:
  cost_usd: .inf
  tokens: 1.5
";

#[test]
fn everything_at_once() {
    let decoded = decoded::<Job>(PLANTED);
    insta::assert_snapshot!(listed(&decoded.findings), @r#"
    1:7-9 wrong-type: expected a string, found the integer 12
    2:1-6 unknown-key: unknown key `modle`
    3:7-16 unknown-value: unknown value `sometimes`
    4:1-7 unknown-key: unknown key `colour`
    6:15-20 unknown-value: unknown value `strng`
    6:30-33 wrong-type: expected a boolean, found the string "yes"
    7:3-6 missing-key: required key `type` is missing
    7:17-22 wrong-type: expected a boolean, found the string "maybe"
    8:3-6 duplicate-key: key `one` is set twice in this mapping
    10:11-14 wrong-type: expected a string, found a list
    11:17-21 unknown-value: unknown value `grep`
    11:23-44 wrong-type: expected `bash` or `glob`, found a mapping
    12:14-17 out-of-range: expected an integer of at most 255, found 300
    16:12-16 wrong-type: expected a list, found the string "glob"
    17:16-18 out-of-range: expected an integer of at least 0, found -1
    18:3-9 missing-key: required key `tools` is missing
    19:13-15 unknown-anchor: no anchor `&q` before this alias
    20:10-17 wrong-type: expected a mapping, found the string "nothing"
    21:34-36 merge-key: merge keys (`<<`) are not part of YAML 1.2
    22:19-24 unknown-tag: unknown tag `!mine`
    24:13-17 out-of-range: expected a finite number, found the number .inf
    25:11-14 wrong-type: expected an integer, found the number 1.5
    "#);
    let job = decoded.value.expect("a partial value");
    assert_eq!(job.parent.tools, [Tool::Glob, Tool::Bash, Tool::Glob]);
    assert_eq!(job.subagents.keys().collect::<Vec<_>>(), ["first", "second", "third", "fourth", "fifth"]);
    assert_eq!((job.parent.max_turns, job.subagents["first"].prompt.as_str()), (None, "ok"));
    assert!(job.parent.prompt.node.is_placeholder() && !job.subagents["first"].prompt.node.is_placeholder());
    assert!(super::decoded::<Job>(PLANTED).into_result().is_err());
}

#[test]
fn helps_and_fixes() {
    let decoded = decoded::<Job>(PLANTED);
    let of = |code: &str, nth: usize| {
        let finding = decoded.findings.iter().filter(|finding| finding.code == code).nth(nth).unwrap();
        let fix = finding.fix.as_ref().map(|fix| (super::slice(&fix.span), fix.replacement.clone()));
        format!("{} | {fix:?}", finding.help.clone().unwrap_or_default())
    };
    insta::assert_snapshot!([
        of("wrong-type", 0),
        of("unknown-key", 0),
        of("unknown-key", 1),
        of("unknown-value", 0),
        of("unknown-value", 1),
        of("wrong-type", 1),
        of("merge-key", 0),
    ].join("\n"), @r#"
    put it in quotes: "12" | Some(("12", "\"12\""))
    did you mean `model`? expected one of `name`, `model`, `keep`, `inputs`, `parent`, `subagents`, `limits` | Some(("modle", "model"))
    expected one of `name`, `model`, `keep`, `inputs`, `parent`, `subagents`, `limits` | None
    expected one of `always`, `on_failure` | None
    did you mean `string`? expected one of `string`, `integer` | Some(("strng", "string"))
    in YAML 1.2 the booleans are `true` and `false` | Some(("yes", "true"))
    write the keys out, or use an alias (`*name`) for a whole value | None
    "#);
    let duplicate = decoded.findings.iter().find(|finding| finding.code == "duplicate-key").unwrap();
    assert_eq!((duplicate.labels[0].span.start(), &*duplicate.labels[0].text), ((6, 3), "first set here"));
}

#[test]
fn syntax() {
    for (text, expected) in [
        ("", "1:1-1 empty-file: the file is empty\n"),
        ("# only\n---\n", "1:1-1 empty-file: the file is empty\n"),
        ("a: 1\n---\nb: 2\n", "2:1-4 multiple-documents: a second document starts here\n"),
        ("a: b: c\n", "1:5-6 yaml-syntax: a `: ` isn't allowed here\n"),
        ("a:\n\tb: 1\n", "2:1-2 yaml-syntax: a tab in the indentation\n"),
        ("a: \"x", "1:4-5 yaml-syntax: this quote is never closed\n"),
        ("a: \"x\nb: 1\n", "1:4-5 yaml-syntax: this quote is never closed\n"),
        ("a: \"x\ny\"\n", "2:1-2 yaml-syntax: this line is part of a quoted string but isn't indented\n"),
        ("a: [1, 2\n", "1:4-5 yaml-syntax: this `[` is never closed\n"),
        ("a: [1, 2}\n", "1:4-5 yaml-syntax: this `[` is closed by `}`\n"),
        ("a: @x\n", "1:4-5 yaml-syntax: a value can't start with `@`\n"),
        ("a: \"\\d\"\n", "1:5-7 yaml-syntax: unknown escape in a double-quoted string\n"),
        (
            "a: {{ x }}\nb: 1\nb: 2\n",
            "1:4-11 yaml-syntax: a value that starts with `{{` needs quotes\n3:1-2 duplicate-key: key `b` is set twice in this mapping\n",
        ),
        (
            "a: \u{1b}[31mx\u{1b}[0m\nb: 1\n",
            "1:4-5 yaml-syntax: control character U+001B isn't allowed\n1:10-11 yaml-syntax: control character U+001B isn't allowed\n",
        ),
        ("a: x\u{7}\n", "1:5-6 yaml-syntax: control character U+0007 isn't allowed\n"),
        ("? [a]\n: b\n", "1:3-6 wrong-type: a key must be a scalar\n"),
        (
            "a: !!int x\nb: !!map []\n",
            "1:10-11 wrong-type: `x` doesn't fit its tag `!!int`\n2:4-9 wrong-type: the tag `!!map` doesn't fit what follows\n",
        ),
        ("a: *x\nb: &x 1\n", "1:4-6 unknown-anchor: no anchor `&x` before this alias\n"),
    ] {
        assert_eq!(findings::<super::super::Node>(text), expected, "{text}");
    }
}

#[test]
fn a_template_without_quotes_has_a_fix() {
    let finding = &decoded::<serde_json::Value>("a: {{ inputs.x }}\n").findings[0];
    assert_eq!(finding.fix.as_ref().unwrap().replacement, "\"{{ inputs.x }}\"");
}

#[test]
fn a_wrong_alias_shows_where_its_value_comes_from() {
    let decoded = decoded::<IndexMap<String, Vec<u8>>>("a: &x [1]\nb: *x\nc: [*x]\n");
    assert_eq!(listed(&decoded.findings), "3:5-7 wrong-type: expected an integer, found a list\n");
    assert_eq!(decoded.findings[0].labels[0].span.start(), (1, 7));
    assert_eq!(decoded.value.unwrap()["b"], [1]);
}

#[test]
fn ranges_of_integers() {
    assert_eq!(findings::<u8>("256"), "1:1-4 out-of-range: expected an integer of at most 255, found 256\n");
    assert_eq!(
        findings::<i32>("-2147483649"),
        "1:1-12 out-of-range: expected an integer of at least -2147483648, found -2147483649\n"
    );
    assert_eq!(
        findings::<u64>("18446744073709551616").split(':').nth(2),
        Some(" expected an integer of at most 18446744073709551615, found 18446744073709551616\n")
    );
    assert_eq!(findings::<std::num::NonZeroU32>("0"), "1:1-2 out-of-range: expected a nonzero u32, found 0\n");
    assert_eq!(findings::<u32>("1.0"), "1:1-4 wrong-type: expected an integer, found the number 1.0\n");
    assert_eq!(
        findings::<serde_json::Value>("[.nan]"),
        "1:2-6 out-of-range: expected a finite number, found the number .nan\n"
    );
}

#[test]
fn missing_keys_of_the_whole_and_of_items() {
    assert_eq!(
        findings::<Agent>("max_turns: 1\n"),
        "1:1-10 missing-key: required key `prompt` is missing\n1:1-10 missing-key: required key `tools` is missing\n"
    );
    assert_eq!(
        findings::<IndexMap<String, Agent>>("a:\n  prompt: x\nb:\n"),
        "1:1-2 missing-key: required key `tools` is missing\n3:1-2 wrong-type: expected a mapping, found nothing\n"
    );
}

#[test]
fn every_finding_has_a_help() {
    let deep = "[".repeat(70);
    for (text, word) in [
        ("", "write a job"),
        ("# nothing\n", "write a job"),
        (deep.as_str(), "fewer levels"),
        ("a: &a [*a]\n", "write the value out"),
        ("a: *b\n", "&NAME"),
        ("a: 1\na: 2\n", "remove one"),
        ("a: \"x\n", "quote"),
        ("a: [1\n", "close"),
        ("a: [1}\n", "close"),
        ("a: !!int x\n", "remove the tag"),
        ("[1]: 2\n", "as the key"),
        ("a: &\n", "in quotes"),
    ] {
        let decoded = crate::yaml::read::<serde_json::Value>(&crate::diagnostic::Source::new("f.yaml", text));
        assert!(!decoded.findings.is_empty(), "{text:?}");
        for finding in decoded.findings {
            let help = finding.help.unwrap_or_else(|| panic!("{text:?}: {}: no help", finding.message));
            assert!(help.contains(word), "{text:?}: {}: {help}", finding.message);
        }
    }
}
