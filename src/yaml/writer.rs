//! Writes data as YAML that any reader of YAML 1.2 or 1.1 reads as the same data.

use serde_json::Value;

use super::{Node, read};
use crate::diagnostic::Source;

/// The data as a YAML document, with a line end at its end.
///
/// The writer mishandles a few texts, such as blocks with U+2028. What can't be read back is written as JSON, which is
/// YAML, too.
pub fn to_yaml(value: &Value) -> String {
    let is_same = |text: &String| {
        let decoded = read::<Node>(&Source::new("", text.as_str()));
        decoded.findings.is_empty() && decoded.value.is_some_and(|node| node.to_json() == *value)
    };
    serde_yaml::to_string(value).ok().filter(is_same).unwrap_or_else(|| ascii_json(value))
}

/// JSON with YAML escapes for everything but printable ASCII.
fn ascii_json(value: &Value) -> String {
    let mut text = String::new();
    for letter in format!("{value:#}\n").chars() {
        if matches!(letter, ' '..='~' | '\n') {
            text.push(letter);
        } else {
            text.push_str(&format!("\\U{:08x}", u32::from(letter)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn same(value: &Value) {
        let text = to_yaml(value);
        let decoded = read::<Node>(&Source::new("x.yaml", text.clone()));
        assert!(decoded.findings.is_empty(), "{:?}\n{text}", decoded.findings);
        assert_eq!(&decoded.value.unwrap().to_json(), value, "{text}");
        let other: Value = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(&other, value, "as another reader sees it:\n{text}");
    }

    #[test]
    fn texts_of_several_lines_are_blocks() {
        let script = json!({
            "parent": [
                { "calls": [
                    { "tool": "glob", "input": { "pattern": "**/*.toml" } },
                    { "tool": "write_file", "input": { "path": "a.md", "content": "# A\n\n- b: c\n" } },
                ] },
                { "text": "Done: it is 012." },
            ],
            "subagents": {},
        });
        let text = "parent:\n- calls:\n  - tool: glob\n    input:\n      pattern: '**/*.toml'\n  - tool: write_file\n    input:\n      \
                    path: a.md\n      content: |\n        # A\n\n        - b: c\n- text: 'Done: it is 012.'\nsubagents: {}\n";
        assert_eq!(to_yaml(&script), text);
        same(&script);
    }

    #[test]
    fn ambiguous_texts_are_quoted() {
        for text in [
            "012",
            "1_000",
            "no",
            "~",
            "",
            " a",
            "a ",
            "a: b",
            "a #b",
            "- a",
            "\n",
            "a\n",
            "\na",
            " a\nb",
            "a\n\n\n",
            "a\r\nb",
            "\tx\ny",
            "a\n \nb",
            "\u{85}",
            "\u{2028}\n",
            "\u{feff}",
            "{a}",
            "x, y",
            "a\n\tb\n",
            "---\nx",
            "a\n---\nb\n...\n",
            "null",
            "0x1F",
            "=",
        ] {
            same(&json!(text));
            same(&json!({ "key": text, text: [text, { text: text }] }));
        }
        same(&json!([[], {}, null, true, 1, -2.5, [[["deep"]]], [{ "a": [{ "b": "c\nd" }] }]]));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["[ -~]{0,12}", "[a-c:# \n\t-]{0,12}", "\\PC{0,8}", "(\\PC|\n){0,40}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((text.clone(), inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_value_is_read_back(value in any_value()) {
            same(&value);
        }
    }
}
