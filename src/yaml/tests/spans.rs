//! Places: from decoded text to the source.

use super::super::Node;
use super::{slice, whole};

/// A small deterministic generator (the constants of Knuth's MMIX).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// The source text and the place of `part`, a part of the decoded text of `key`.
fn written(text: &str, part: &str) -> (String, (usize, usize)) {
    let document: Node = whole(text);
    let node = document.get("k").unwrap();
    let decoded = node.text().unwrap().to_owned();
    let at = decoded.find(part).unwrap_or_else(|| panic!("{part:?} in {decoded:?}"));
    let place = node.place_of_range(at..at + part.len());
    (slice(&place), place.start())
}

#[test]
fn every_style() {
    for (text, part, source, line_and_column) in [
        ("k: plain {x} text # c\n", "{x}", "{x}", (1, 10)),
        ("k: over\n   lines {x}\n\n   end\n", "{x}", "{x}", (2, 10)),
        ("k: over\n   lines\n", "over lines", "over\n   lines", (1, 4)),
        ("k: 'it''s {x}'\n", "{x}", "{x}", (1, 11)),
        ("k: 'it''s {x}'\n", "'", "''", (1, 7)),
        ("k: \"a\\tb \\u00e4 \\ud83d\\ude00{x}\"\n", "{x}", "{x}", (1, 29)),
        ("k: \"a\\tb \\u00e4\"\n", "ä", "\\u00e4", (1, 10)),
        ("k: \"a \\\n    b {x}\\n\"\n", "{x}", "{x}", (2, 7)),
        ("k: \"a\n\n    b {x}\"\n", "b {x}", "b {x}", (3, 5)),
        ("k: |\n  one\n    {x}\n", "{x}", "{x}", (3, 5)),
        ("k: |\n\n \n  one {x}\n\n", "{x}", "{x}", (4, 7)),
        ("k: |2-\n    one\n  {x}\n\n", "{x}", "{x}", (3, 3)),
        ("k: >-\n  one\n  two {x}\n  three\n\n   more {y}\n  end {z}\n", "{x}", "{x}", (3, 7)),
        ("k: >-\n  one\n  two {x}\n  three\n\n   more {y}\n  end {z}\n", "{y}", "{y}", (6, 9)),
        ("k: >-\n  one\n  two {x}\n  three\n\n   more {y}\n  end {z}\n", "{z}", "{z}", (7, 7)),
        ("k: >-\n  one\n  two\n", "one two", "one\n  two", (2, 3)),
        ("\u{feff}k: |\r\n  ä\r\n  {x}\r\n", "{x}", "{x}", (3, 3)),
        ("k: >\r\n  ä\r\n  b {x}\r\n", "ä b {x}", "ä\r\n  b {x}", (2, 3)),
        ("k: \"日本 {x}\"\n", "{x}", "{x}", (1, 8)),
        ("j: &a |\n  one {x}\nk: *a\n", "{x}", "{x}", (2, 7)),
        ("k: !!str 12 # c\n", "2", "2", (1, 11)),
        ("- x\n", "", "", (0, 0)),
    ] {
        if line_and_column.0 > 0 {
            assert_eq!(written(text, part), (source.to_owned(), line_and_column), "{text}");
        }
    }
}

#[test]
fn an_empty_range_and_one_past_the_end() {
    let node: Node = whole("k: \"a\\tb\"\n");
    let value = node.get("k").unwrap();
    assert_eq!(value.place_of_range(2..2).range, 7..7);
    assert_eq!(value.place_of_range(3..3).range, 8..8);
    assert_eq!(value.place_of_range(0..99).range, 4..8);
    assert_eq!(whole::<Node>("k:\n").get("k").unwrap().place_of_range(0..0).start(), (1, 1));
}

/// A scalar in a random style, made of words that can be found again.
fn scalar(random: &mut Random, line_end: &str) -> String {
    let words = ["a", "ä", "日本", "{{ x }}", "it's", "b:c", "😀", "d#e", "\\", "\"q\"", "-", "\t."];
    let style = random.below(5);
    let indent = " ".repeat(2 + random.below(3));
    let mut text = match style {
        0 => "w".to_owned(),
        1 => "'".to_owned(),
        2 => "\"".to_owned(),
        _ => {
            let header = if style == 3 { "|" } else { ">" };
            let chomp = ["", "-", "+"][random.below(3)];
            let explicit = if random.below(3) == 0 { indent.len().to_string() } else { String::new() };
            format!("{header}{explicit}{chomp}{line_end}{}{indent}w", line_end.repeat(random.below(3)))
        }
    };
    for number in 0..random.below(14) {
        let word = words[random.below(words.len())];
        let word = match style {
            1 => word.replace('\'', "''"),
            2 if random.below(3) == 0 => word.chars().map(|letter| format!("\\U{:08x}", letter as u32)).collect(),
            2 => word.replace('\\', "\\\\").replace('"', "\\\""),
            _ => word.to_owned(),
        };
        let gap = match random.below(6) {
            0 => format!("{line_end}{indent}"),
            1 => format!("{line_end}{line_end}{indent}"),
            2 if style > 2 => format!("{line_end}{indent}  "),
            3 if style > 2 => format!("  {line_end}   {line_end}{indent}"),
            2 if style == 2 => format!(" \\{line_end}{indent}"),
            _ => " ".to_owned(),
        };
        text += &format!("{gap}<{number}{word}>");
    }
    match style {
        1 => text += "'",
        2 => text += "\"",
        _ => {}
    }
    text + &line_end.repeat(random.below(3))
}

#[test]
fn many_generated_scalars() {
    let mut random = Random(42);
    let mut seen = 0;
    for round in 0..1500 {
        let line_end = ["\n", "\r\n"][random.below(2)];
        let text = format!("k: {}{line_end}z: end{line_end}", scalar(&mut random, line_end));
        let document: Node = whole(&text);
        let node = document.get("k").unwrap();
        let decoded = node.text().unwrap();
        for (at, letter) in decoded.char_indices() {
            let place = node.place_of_range(at..at + letter.len_utf8());
            let source = text.get(place.range.clone()).unwrap_or_else(|| panic!("boundary in {text:?}"));
            assert!(source.len() < text.len() / 2 || text.len() < 24, "{round}: no match in {text:?}");
            match letter {
                '\n' | ' ' | '\'' | '"' | '\\' => {}
                _ if source.starts_with('\\') => assert_eq!(source, format!("\\U{:08x}", letter as u32), "{text:?}"),
                _ => assert_eq!(source, letter.to_string(), "{text:?}"),
            }
            seen += 1;
        }
        for number in 0..14 {
            let Some(at) = decoded.find(&format!("<{number}")) else { break };
            assert_eq!(
                slice(&node.place_of_range(at..at + format!("<{number}").len())),
                format!("<{number}"),
                "{text:?}"
            );
        }
    }
    assert!(seen > 20_000, "{seen}");
}

#[test]
fn lists_and_mappings() {
    let node: Node = whole("a:\n  - x: 1\n    y: [1,\n      2]\n  - {p: q}\nb: |\n  text\n\n\nc:\n");
    let list = node.get("a").unwrap();
    assert_eq!(slice(&list.place()), "- x: 1\n    y: [1,\n      2]\n  - {p: q}");
    assert_eq!(slice(&list.place_for_missing()), "a");
    let items: Vec<Node> = list.items().collect();
    assert_eq!(
        (slice(&items[0].place_for_missing()), slice(&items[1].place_for_missing())),
        ("x".to_owned(), "{p: q}".to_owned())
    );
    assert_eq!(slice(&node.get("b").unwrap().place()), "text");
    assert_eq!(slice(&node.get("c").unwrap().place()), "c");
}
