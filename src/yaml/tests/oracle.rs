//! Another YAML implementation reads the same documents.

use super::super::Node;
use super::whole;

const DOCUMENTS: &[&str] = &[
    "a: 1\nb: [x, 'y', \"z\\n\"]\nc: {d: null, e: ~}\n",
    "- a\n-   b: 1\n    c: 2\n-\n  - nested\n  - - deep\n",
    "text: |\n  one\n    two\n\n  three\nfolded: >-\n  a\n  b\n\n  c\n   d\n  e\n",
    "keep: |+\n  x\n\n\nstrip: |-\n  x\n\nindented: |2\n    x\n  y\n",
    "plain: many words\n  over lines\n\n  and a paragraph\nurl: http://x.y/z#frag\ntime: 12:30\n",
    "'quoted key': 'it''s'\n\"double\": \"\\x41\\u00e4\\U0001F600 \\\"q\\\" a\\\n  b\"\n",
    "nums: [0, -1, +2, 1.5, -1e3, 0x1F, 0o17, .5, 12e03]\nstrs: [no, yes, on, 1_000, 1.2.3, '12', \"true\"]\n",
    "anchor: &a {x: [1, 2]}\nuse: *a\nagain: [*a, *a]\n",
    "? a\n: b\nempty:\nlist:\n- same indent\n- ok\n",
    "{a: [1, {b: c}], \"d\":e, f: }\n",
    "# comment\n---\na: b # c\n...\n",
    "umlaut: äöü\nemoji: \"😀\"\n日本: 語\n",
    "a: !!str 12\nb: !!int 7\n",
    "env:\n  - NAME=value\n  - path: /a/b\nrun: cargo test -- --nocapture\n",
];

#[test]
fn two_readers_agree() {
    for text in DOCUMENTS {
        let theirs: serde_json::Value = serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(whole::<serde_json::Value>(text), theirs, "{text}");
        assert_eq!(whole::<Node>(text).to_json(), theirs, "{text}");
    }
}

#[test]
fn line_ends_and_byte_order_marks_change_nothing() {
    for text in DOCUMENTS {
        let unix: serde_json::Value = whole(text);
        assert_eq!(whole::<serde_json::Value>(&format!("\u{feff}{}", text.replace('\n', "\r\n"))), unix, "{text}");
    }
}

#[test]
fn written_yaml_is_read_back() {
    let value = serde_json::json!({
        "no": ["on", "~", "1_000", "012", 12, 1.5, true, null, "", " x", "a\nb\n", "a: b", "{{ x }}", "'", "\"", "#"],
        "deep": {"a": [{"b": [[1]]}]}, "日本": "語", "u": u64::MAX, "tabs\t": "\u{1b}",
    });
    assert_eq!(whole::<serde_json::Value>(&serde_yaml::to_string(&value).unwrap()), value);
}

/// Where the input ends there is no line break to keep: `b-chomped-last` (YAML 1.2.2, section 8.1.1.2) is a line feed or the
/// end of the input. A last line of nothing but spaces is read as the YAML test suite has it (JEF9).
#[test]
fn a_block_that_ends_with_the_input_ends_without_a_line_break() {
    for text in [
        "a: |\n  x",
        "a: |+\n  x\n\n  y",
        "a: |-\n  x",
        "a:\n  - b: >2+\n\n      word more",
        "a: >2\n\n  word more\n  and more",
        "a: >2\n\n\n    word\n\n  more\n",
        "a: |\n  x\n# aside",
        "a: |+\n  x\n\n  ",
        "a: >\n  x\n\n\n",
        "--- |2\n   x\n  y",
        "a: |\r\n  x\r\n  y",
    ] {
        let theirs: serde_json::Value = serde_yaml::from_str(text).unwrap();
        assert_eq!(whole::<serde_json::Value>(text), theirs, "{text:?}");
    }
    assert_eq!(whole::<serde_json::Value>("a: |\n  x"), serde_json::json!({ "a": "x" }));
    assert_eq!(whole::<serde_json::Value>("- |+\n   "), serde_json::json!(["\n"]));
}
