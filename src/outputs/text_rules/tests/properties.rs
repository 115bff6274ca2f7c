//! Random recombinations of the corpus.

use proptest::prelude::*;
use proptest::sample::select;

use super::good::GOOD;
use super::hostile::{HOSTILE, place};
use super::*;

/// Pieces that change how what follows is read.
const PIECES: &[&str] = &[
    "`",
    "``",
    "```",
    "\n```\n",
    "~~~\n",
    "\n",
    "\n\n",
    "    ",
    "\t",
    "> ",
    "- ",
    "1. ",
    "# ",
    "|",
    "\n|---|---|\n",
    "<details>",
    "</details>",
    "<summary>",
    "<sub>",
    "<!--",
    "-->",
    "<",
    ">",
    "[",
    "]",
    "](",
    ")",
    "![",
    "[^1]: ",
    "[a]: ",
    "\\",
    "&",
    ";",
    "&#64;",
    "@",
    "#1",
    "closes ",
    "/close",
    "https://",
    "evil.example",
    "docs.example.org",
    "//",
    "$",
    "$$",
    "*",
    "**",
    "_",
    "~~",
    "===\n",
    "---\n",
    "\r",
    "\u{200d}",
    "\u{fe0f}",
    "é",
    "👩",
    "a",
    " ",
    "${{",
    "legwork",
    "[masked:",
    "javascript:",
    "www.",
    "[[",
    "]]",
    ": ",
    "^",
    "~",
];

fn texts() -> impl Strategy<Value = String> {
    let corpus: Vec<String> = HOSTILE.iter().flat_map(|(_, texts)| *texts).map(|marked| place(marked).0).collect();
    let corpus = corpus.into_iter().chain(GOOD.iter().map(|text| (*text).to_owned())).collect::<Vec<_>>();
    let piece = prop_oneof![4 => select(PIECES).prop_map(str::to_owned), 1 => select(corpus)];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Ways to embed a text so that it means the same.
const WAYS: &[&str] = &["paragraph", "item", "quote", "details", "footnote", "nested"];

fn embed(text: &str, way: &str) -> String {
    let indent = |text: &str, first: &str, other: &str| {
        let lines = text.split('\n').enumerate();
        lines
            .map(|(index, line)| if index == 0 { format!("{first}{line}") } else { format!("\n{other}{line}") })
            .collect::<String>()
    };
    match way {
        "item" => indent(text, "- ", "  "),
        "quote" => indent(text, "> ", "> "),
        "details" => format!("<details>\n<summary>a</summary>\n\n{text}\n\n</details>"),
        "footnote" => format!("a[^n]\n\n{}", indent(text, "[^n]: ", "    ")),
        "nested" => indent(&indent(text, "- ", "  "), "> ", "> "),
        _ => format!("Before.\n\n{text}\n\nAfter."),
    }
}

#[test]
fn hostile_texts_are_refused_wherever_they_are() {
    let setting = Setting::new();
    for (rule, texts) in HOSTILE {
        for marked in *texts {
            // The first line of a text is no other than those that follow, except for settings.
            let (text, ..) = place(marked);
            for way in WAYS.iter().filter(|_| *rule != "front-matter") {
                // In code, commands count at the beginning of the line only.
                if text.contains("/lgtm") && ["quote", "nested"].contains(way) {
                    continue;
                }
                let embedded = embed(&text, way);
                assert!(check_body(&embedded, &setting.rules()).is_err(), "{rule}, {way}: {embedded:?} passes");
            }
            let is_inline = !text.contains(['\n', '|']) && !text.starts_with("    ") && *rule != "quick-action";
            if is_inline
                && !text.to_lowercase().starts_with("duplicate of")
                && *rule != "front-matter"
                && *rule != "link-definition"
            {
                let row = format!("| a | b |\n|---|---|\n| {text} | c |");
                assert!(check_body(&row, &setting.rules()).is_err(), "{rule}: {row:?} passes");
            }
        }
    }
}

#[test]
fn good_texts_pass_wherever_they_are() {
    let setting = Setting::new();
    for text in GOOD {
        for way in ["paragraph", "details", "item", "quote"] {
            // In a list, only fences are code; behind a quote's mark, tabs are narrower.
            let is_indented = text.lines().any(|line| line.starts_with("    <"));
            if way == "item" && is_indented || text.starts_with('\t') {
                continue;
            }
            let embedded = embed(text, way);
            assert_eq!(check_body(&embedded, &setting.rules()), Ok(()), "{way}: {embedded:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_and_each_refusal_has_a_place_in_the_text(text in texts()) {
        let setting = Setting::new();
        for violation in [
            check_body(&text, &setting.rules()),
            check_title(&text, "[a] ", &setting.rules()),
            check_message(&text, &setting.rules()),
        ].into_iter().filter_map(Result::err) {
            let line = text.split('\n').nth(violation.line - 1);
            let columns = line.map(|line| line.chars().count() + 1);
            prop_assert!(columns.is_some_and(|columns| (1..=columns).contains(&violation.column)), "{text:?}: {violation}");
        }
    }

    #[test]
    fn accepted_texts_stay_accepted_side_by_side(pair in prop::array::uniform2(select(GOOD))) {
        let setting = Setting::new();
        let text = format!("A\n\n{}\n\nB\n\n{}", pair[0], pair[1]);
        prop_assert_eq!(check_body(&text, &setting.rules()), Ok(()), "{:?}", text);
    }

    #[test]
    fn a_hostile_text_is_refused_after_a_good_one(
        good in select(GOOD),
        hostile in select(HOSTILE.iter().filter(|(rule, _)| *rule != "front-matter").flat_map(|(_, texts)| *texts).collect::<Vec<_>>()),
    ) {
        let setting = Setting::new();
        let text = format!("{good}\n\nB\n\n{}", place(hostile).0);
        prop_assert!(check_body(&text, &setting.rules()).is_err(), "{:?} passes", text);
    }
}
