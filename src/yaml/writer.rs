//! Writes YAML that this reader, and any other of YAML 1.2 or 1.1, reads as the same data: what isn't plainly a text is in
//! quotes, texts of several lines are blocks, and what is short stands on one line.

use serde_json::{Map, Value};

/// The longest list or mapping that stands on one line, in characters.
const SHORT: usize = 96;

/// The data as a YAML document, with a line end at its end.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(entries) if !entries.is_empty() => mapping(entries, 0, &mut text),
        Value::Array(items) if !items.is_empty() => list(items, 0, &mut text),
        other => text = format!("{}\n", flow(other).unwrap_or_else(|| other.to_string())),
    }
    text
}

fn mapping(entries: &Map<String, Value>, depth: usize, out: &mut String) {
    for (at, (key, value)) in entries.iter().enumerate() {
        // The first entry of an item stands behind its dash.
        if at > 0 || out.is_empty() || out.ends_with('\n') {
            indent(depth, out);
        }
        out.push_str(&scalar(key));
        out.push(':');
        nested(value, depth, out);
    }
}

fn list(items: &[Value], depth: usize, out: &mut String) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 || out.is_empty() || out.ends_with('\n') {
            indent(depth, out);
        }
        out.push('-');
        match (item, flow(item)) {
            (Value::Object(entries), None) => {
                out.push(' ');
                mapping(entries, depth + 1, out);
            }
            (_, _) => nested(item, depth, out),
        }
    }
}

/// What stands behind a key or a dash.
fn nested(value: &Value, depth: usize, out: &mut String) {
    if let Some(short) = flow(value) {
        out.push(' ');
        out.push_str(&short);
        out.push('\n');
        return;
    }
    match value {
        Value::Object(entries) => {
            out.push('\n');
            mapping(entries, depth + 1, out);
        }
        Value::Array(items) => {
            out.push('\n');
            list(items, depth + 1, out);
        }
        Value::String(text) if is_block(text) => block(text, depth + 1, out),
        Value::String(text) => {
            out.push(' ');
            out.push_str(&scalar(text));
            out.push('\n');
        }
        other => {
            out.push(' ');
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// On one line, where it is short and has no text of several lines.
fn flow(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) if text.contains('\n') && is_block(text) => return None,
        Value::String(text) => scalar(text),
        // Items with parts of their own read better one below the other.
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => return None,
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(flow).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(entries) if entries.is_empty() => "{}".to_owned(),
        Value::Object(entries) => {
            let entries: Option<Vec<String>> =
                entries.iter().map(|(key, value)| Some(format!("{}: {}", scalar(key), flow(value)?))).collect();
            format!("{{ {} }}", entries?.join(", "))
        }
        other => other.to_string(),
    };
    let is_short = value.is_string() || text.chars().count() <= SHORT;
    is_short.then_some(text)
}

/// A text on one line, in quotes unless nobody could take it for anything else.
fn scalar(text: &str) -> String {
    let first = text.chars().next().unwrap_or(' ');
    let is_plain = (first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./ ()+=".contains(letter))
        && !text.ends_with(' ')
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// In double quotes, as JSON writes it, and what YAML takes for unprintable or a line end escaped, too.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            _ if must_escape(letter) => out.push_str(&format!("\\U{:08x}", letter as u32)),
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

fn must_escape(letter: char) -> bool {
    (letter.is_control() && letter != '\n')
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a text can be a literal block: every line is shown as it is.
fn is_block(text: &str) -> bool {
    let first = text.trim_start_matches('\n');
    text.contains('\n')
        && !text.chars().any(|letter| must_escape(letter) && letter != '\t')
        // Where the first line is indented, or there is nothing but line ends, the block's own indentation can't be seen.
        && !first.starts_with([' ', '\t'])
        && !first.is_empty()
        && !text.starts_with('\n')
        && !text.lines().any(|line| line.starts_with('\t') || (line.trim().is_empty() && !line.is_empty()))
}

fn block(text: &str, depth: usize, out: &mut String) {
    let ends = text.len() - text.trim_end_matches('\n').len();
    out.push_str(match ends {
        0 => " |-\n",
        1 => " |\n",
        _ => " |+\n",
    });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            indent(depth, out);
            out.push_str(line);
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::{Node, read};
    use super::*;
    use crate::diagnostic::Source;

    fn same(value: &Value) {
        let text = to_yaml(value);
        let decoded = read::<Node>(&Source::new("x.yaml", text.clone()));
        assert!(decoded.findings.is_empty(), "{:?}\n{text}", decoded.findings);
        assert_eq!(&decoded.value.unwrap().to_json(), value, "{text}");
        let other: Value = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(&other, value, "as another reader sees it:\n{text}");
    }

    #[test]
    fn a_script_is_good_to_read() {
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
        let text = "parent:\n  - calls:\n      - { tool: glob, input: { pattern: \"**/*.toml\" } }\n      - tool: write_file\n        \
                    input:\n          path: a.md\n          content: |\n            # A\n\n            - b: c\n  - { text: \"Done: it is \
                    012.\" }\nsubagents: {}\n";
        assert_eq!(to_yaml(&script), text);
        same(&script);
    }

    #[test]
    fn what_could_be_taken_for_something_else_is_in_quotes() {
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
        fn whatever_is_written_is_read_again(value in any_value()) {
            same(&value);
        }
    }
}
