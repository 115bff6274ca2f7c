//! What can be decoded.

use std::num::NonZeroU32;

use indexmap::IndexMap;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::{Node, NodeKind, Spanned, coded_error, report};
use super::{decoded, findings, slice, whole};
use crate::diagnostic::Diagnostic;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Tool {
    Bash,
    ReadFile,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct All {
    text: String,
    flag: bool,
    small: u8,
    big: u64,
    negative: i64,
    ratio: f64,
    letter: char,
    absent: Option<String>,
    null: Option<String>,
    present: Option<u16>,
    list: Vec<i32>,
    map: IndexMap<String, Vec<bool>>,
    tools: Vec<Tool>,
    pair: (String, u8),
    nested: Spanned<Option<Spanned<NonZeroU32>>>,
    #[serde(default)]
    fallback: u8,
    unit: (),
}

const ALL: &str = r#"
text: "no\ttab"
flag: True
small: 0o17
big: 18446744073709551615
negative: -0012
ratio: 3
letter: ä
null: ~
present: 0xFF
list: [1, 2, 012]
map: {b: [true], a: []}
tools:
  - bash
  - read_file
pair: [x, 1]
nested: 7
unit: null
"#;

#[test]
fn every_kind_of_type() {
    let all: All = whole(ALL);
    assert_eq!((&*all.text, all.small, all.big, all.negative), ("no\ttab", 15, u64::MAX, -12));
    assert_eq!((all.ratio, all.letter, all.present, &*all.list), (3.0, 'ä', Some(255), &[1, 2, 12][..]));
    assert_eq!(all.map.keys().collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(all.tools, [Tool::Bash, Tool::ReadFile]);
    assert_eq!(all.nested.as_ref().unwrap().get(), 7);
    assert_eq!(slice(&all.nested.place()), "7");
    assert_eq!((all.absent, all.null, all.fallback, all.pair), (None, None, 0, ("x".to_owned(), 1)));
}

#[test]
fn json_is_yaml() {
    let text = "{\n\t\"a\": [1, 2.5, true, null, \"\\u00e4\\/\\ud83d\\ude00\"],\n\t\"b\":{\"c\":\"d: e # f\"}\n}\n";
    let value: serde_json::Value = whole(text);
    assert_eq!(value, serde_json::from_str::<serde_json::Value>(text).unwrap());
    assert_eq!(whole::<Node>(text).to_json(), value);
}

#[test]
fn a_map_with_the_places_of_its_keys() {
    let map: IndexMap<Spanned<String>, Spanned<i32>> = whole("one: 1\n\"two\": 2\n");
    assert_eq!(map.keys().map(|key| slice(&key.place())).collect::<Vec<_>>(), ["one", "\"two\""]);
    assert_eq!(map.get("two").map(|value| value.value), Some(2));
    assert_eq!(map.keys().next().unwrap().place().start(), (1, 1));
}

#[test]
fn yaml_1_1_words_are_strings() {
    let list: Vec<String> = whole("[no, on, yes, off, 1_000, 0b1, 12:30, y, !!str 12]");
    assert_eq!(list, ["no", "on", "yes", "off", "1_000", "0b1", "12:30", "y", "12"]);
}

#[test]
fn aliases_have_the_values_of_their_anchors() {
    let map: IndexMap<String, Spanned<Vec<String>>> = whole("a: &x [p, q]\nb: *x\n");
    assert_eq!(map["a"].value, map["b"].value);
    assert_eq!(slice(&map["b"].place()), "*x");
}

/// Reads itself with `deserialize_any`, as types of other crates do.
#[derive(Debug, PartialEq)]
enum Any {
    Text(String),
    Number(i64),
    Keys(Vec<String>),
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Asker;
        impl<'de> Visitor<'de> for Asker {
            type Value = Any;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text, a number or a mapping")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Any, E> {
                match text {
                    "bad" => Err(coded_error("bad-text", "the text is bad", Some("write a good one"))),
                    "worse" => Err(E::custom("the text is worse")),
                    _ => Ok(Any::Text(text.to_owned())),
                }
            }
            fn visit_i64<E>(self, number: i64) -> Result<Any, E> {
                Ok(Any::Number(number))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Any, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                    keys.push(key);
                }
                Ok(Any::Keys(keys))
            }
        }
        deserializer.deserialize_any(Asker)
    }
}

#[test]
fn types_that_ask_for_anything() {
    let list: Vec<Any> = whole("[a, 5, {x: 1, y: [2]}]");
    assert_eq!(list, [Any::Text("a".into()), Any::Number(5), Any::Keys(vec!["x".into(), "y".into()])]);
    let decoded = decoded::<Vec<Any>>("[bad, ok, worse, [1]]");
    assert_eq!(decoded.value.unwrap(), [Any::Text("ok".into())]);
    assert_eq!(decoded.findings[0].help.as_deref(), Some("write a good one"));
    assert_eq!(
        super::listed(&decoded.findings),
        "1:2-5 bad-text: the text is bad\n1:11-16 invalid-value: the text is worse\n\
         1:18-21 wrong-type: expected a text, a number or a mapping, found a list\n"
    );
}

/// Reports several findings from one node.
#[derive(Debug)]
struct Chosen(Vec<String>);

impl<'de> Deserialize<'de> for Chosen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        if node.kind() != NodeKind::List {
            return Err(D::Error::custom("expected a list of names"));
        }
        for item in node.items().filter(|item| item.as_str().is_none()) {
            report(Diagnostic::error("no-name", item.place(), format!("{} is no name", item.describe())));
        }
        Ok(Self(node.items().filter_map(|item| item.as_str().map(str::to_owned)).collect()))
    }
}

#[derive(Debug, Deserialize)]
struct Holder {
    chosen: Chosen,
    #[serde(default)]
    #[expect(dead_code, reason = "only its decoding matters")]
    count: u8,
}

#[test]
fn several_findings_from_one_node_each_once() {
    let decoded = decoded::<Holder>("chosen: [a, 1, b, {}]\ncount: x\n");
    assert_eq!(decoded.value.unwrap().chosen.0, ["a", "b"]);
    assert_eq!(
        super::listed(&decoded.findings),
        "1:13-14 no-name: the integer 1 is no name\n1:19-21 no-name: a mapping is no name\n\
         2:8-9 wrong-type: expected an integer, found the string \"x\"\n"
    );
    assert_eq!(findings::<Vec<Holder>>("[{count: 1}]"), "1:2-12 missing-key: required key `chosen` is missing\n");
    assert_eq!(findings::<Holder>("chosen: no"), "1:9-11 invalid-value: expected a list of names\n");
    assert_eq!(findings::<Holder>("chosen: *no"), "1:9-12 unknown-anchor: no anchor `&no` before this alias\n");
}

#[derive(Debug, Deserialize)]
struct Later {
    kind: String,
    body: Node,
}

#[test]
fn a_node_is_decoded_later() {
    let later: Later = whole("kind: tool\nbody:\n  text: 1.10\n  list: [a, ~]\n");
    assert_eq!((&*later.kind, later.body.own_key().unwrap().as_str()), ("tool", Some("body")));
    assert_eq!(later.body.get("text").unwrap().text(), Some("1.10"));
    assert_eq!(later.body.entries().count(), 2);
    assert!(later.body.get("list").unwrap().items().nth(1).unwrap().is_null());
    let wrong = later.body.decode::<IndexMap<String, u8>>();
    assert_eq!(
        super::listed(&wrong.findings),
        "3:9-13 wrong-type: expected an integer, found the number 1.10\n\
         4:9-15 wrong-type: expected an integer, found a list\n"
    );
    assert_eq!(later.body.to_json(), serde_json::json!({"text": 1.1, "list": ["a", null]}));
}

#[test]
fn a_spanned_value_has_the_schema_of_its_value() {
    let schema = schemars::schema_for!(IndexMap<Spanned<String>, Spanned<Vec<Spanned<u8>>>>);
    assert_eq!(
        schema.get("additionalProperties"),
        schemars::schema_for!(IndexMap<String, Vec<u8>>).get("additionalProperties")
    );
    assert!(serde_json::from_str::<Spanned<u8>>("1").is_err());
}

#[derive(Debug, Deserialize)]
struct Open {
    id: u8,
    #[serde(flatten)]
    rest: IndexMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum Either {
    One(u8),
    Many(Vec<u8>),
}

#[test]
fn errors_in_types_that_serde_buffers() {
    let open: Open = whole("id: 1\nx: [1]\ny: z\n");
    assert_eq!((open.id, open.rest.len()), (1, 2));
    assert_eq!(whole::<Vec<Either>>("[1, [2]]"), [Either::One(1), Either::Many(vec![2])]);
    assert!(findings::<Vec<Either>>("[1, x]").starts_with("1:5-6 invalid-value: "));
}

#[test]
fn a_report_outside_of_decoding_is_ignored() {
    let node: Node = whole("a");
    report(Diagnostic::error("lost", node.place(), "lost"));
    assert_eq!(findings::<String>("a"), "");
}

#[test]
fn warnings_do_not_make_a_value_invalid() {
    #[derive(Debug)]
    struct Old;
    impl<'de> Deserialize<'de> for Old {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let node = Node::deserialize(deserializer)?;
            report(Diagnostic::warning("old", node.place(), "this is old"));
            let inner: Option<Vec<u8>> = node.decode_nested();
            inner.map(|_| Self).ok_or_else(|| D::Error::custom("unused"))
        }
    }
    let fine = decoded::<Old>("[1]");
    assert_eq!(super::listed(&fine.findings), "1:1-4 old: this is old\n");
    assert!(fine.into_result().is_ok());
    let wrong = decoded::<Old>("[x]");
    assert_eq!(wrong.findings.len(), 2);
    assert!(wrong.into_result().is_err());
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Spoken {
    system: Option<String>,
    prompt: String,
    tools: Vec<String>,
}

static HINTS: crate::yaml::FormatHints = crate::yaml::FormatHints { key_aliases: SYNONYMS, ..crate::yaml::NO_HINTS };

const SYNONYMS: crate::yaml::KeyAliases =
    &[("system", &["instructions"]), ("prompt", &["instructions", "user_prompt"]), ("tools", &["allowed_tools"])];

#[test]
fn aliases_of_keys_are_accepted_with_a_finding() {
    let read = |text: &str| {
        let source = crate::diagnostic::Source::new("f.yaml", text);
        crate::yaml::read_with::<Spoken>(&source, &HINTS)
    };
    let decoded = read("system: s\n'Instructions': x\nallowedTools: [a, 1]\n");
    assert_eq!(
        decoded.value,
        Some(Spoken { system: Some("s".to_owned()), prompt: "x".to_owned(), tools: vec!["a".to_owned()] })
    );
    let fix = |nth: usize| decoded.findings[nth].fix.as_ref().map(|fix| (slice(&fix.span), fix.replacement.clone()));
    assert_eq!(fix(0), None, "it may mean two things");
    assert_eq!(fix(1), Some(("allowedTools".to_owned(), "tools".to_owned())));
    assert_eq!(
        decoded.findings.iter().map(|finding| finding.code).collect::<Vec<_>>(),
        ["unknown-key", "unknown-key", "wrong-type"]
    );
    let fixes = |text: &str| read(text).findings.iter().map(|finding| finding.fix.is_some()).collect::<Vec<_>>();
    assert_eq!(fixes("user_prompt: p\ntools: []\n"), [true]);
    // Of two that mean the same, the author has to say which one is right.
    assert_eq!(fixes("user_prompt: p\nprmpt: q\ntools: []\n"), [false, false]);
    assert_eq!(fixes("prompt: p\nPrompt: q\ntools: []\n"), [false]);
    assert_eq!(read("prompt: p\ntools: []\n").findings.len(), 0);
}

#[test]
fn a_fix_needs_one_nearest_name_and_keeps_its_quotes() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "what counts is what is wrong")]
    struct Two {
        gate: Option<Color>,
        gale: Option<Color>,
    }
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Color {
        Green,
    }
    let decoded = decoded::<Two>("Gale: green\ngate: \"grean\"\n");
    assert_eq!(decoded.findings[0].fix.as_ref().unwrap().replacement, "gale");
    assert_eq!(slice(&decoded.findings[1].fix.as_ref().unwrap().span), "grean");
    let unsure = super::decoded::<Two>("gaze: green\n");
    assert!(
        unsure.findings[0].help.as_ref().unwrap().starts_with("did you mean `gate`?")
            && unsure.findings[0].fix.is_none()
    );
    let taken = super::decoded::<Two>("Gate: green\ngate: green\n");
    assert!(
        taken.findings[0].help.as_ref().unwrap().starts_with("did you mean `gate`, which is set already?")
            && taken.findings[0].fix.is_none()
    );
}

#[test]
fn numbers_that_are_strings() {
    for (text, fix) in [
        ("1_000", Some(("1_000", "1000"))),
        ("\"12\"", Some(("\"12\"", "12"))),
        ("'1_000'", None),
        ("_1", None),
        ("1_", None),
        ("1_x", None),
        ("1_0.5", None),
    ] {
        let finding = decoded::<u32>(text).findings.remove(0);
        let found = finding.fix.map(|fix| (slice(&fix.span), fix.replacement));
        assert_eq!(found, fix.map(|(place, with)| (place.to_owned(), with.to_owned())), "{text}");
    }
    assert_eq!(decoded::<f64>("-1_0.5").findings[0].fix.as_ref().unwrap().replacement, "-10.5");
    let node: Node = whole("- 1_000\n- '1_000'\n- a_b\n- 1000\n- |\n  1_000\n");
    let plain: Vec<bool> = node.items().map(|item| item.is_plain()).collect();
    let bare: Vec<Option<String>> = node.items().map(|item| item.without_underscores()).collect();
    assert_eq!(plain, [true, false, true, true, false]);
    assert_eq!(bare, [Some("1000".to_owned()), None, None, None, None]);
}

#[test]
fn the_inside_of_quotes() {
    let map: Node = whole("a: \"x y\"\nb: 'z'\nc: plain\nd: [q]\ne: &e \"\"\nf: *e\n");
    let inside: Vec<String> = map.entries().map(|(_, value)| slice(&value.content_place())).collect();
    assert_eq!(inside, ["x y", "z", "plain", "[q]", "", ""]);
}
