//! The pages of rules, and a list of rules, as a terminal shows them.

use super::DisplayOptions;
use crate::diagnostic::{Rule, Severity};

/// The widest lines of prose; longer ones are hard to read.
const MAX_PROSE_WIDTH: usize = 100;
/// The indentation of examples and summaries.
const INDENT: &str = "    ";

/// The full pages, one after another.
pub(super) fn full_pages(rules: &[&Rule], display: DisplayOptions) -> String {
    let pages: Vec<String> =
        rules.iter().map(|rule| title(rule, display) + "\n\n" + &body(rule.page, display)).collect();
    pages.join("\n")
}

/// The title and the summary of each rule.
pub(super) fn rule_list(rules: &[&Rule], display: DisplayOptions) -> String {
    let entry = |rule: &&Rule| {
        let width = prose_width(display) - INDENT.len();
        let summary: String = wrap(&rule.summary(), width).iter().map(|line| format!("{INDENT}{line}\n")).collect();
        title(rule, display) + "\n" + &summary
    };
    rules.iter().map(entry).collect()
}

/// `error[unknown-tool]`, as above a finding.
fn title(rule: &Rule, display: DisplayOptions) -> String {
    let colour = match rule.severity {
        Severity::Error => "1;31",
        Severity::Warning => "1;33",
    };
    display.paint(&format!("{}[{}]", rule.severity.as_str(), rule.code), colour)
}

/// Converts a page from Markdown to text: wraps prose, indents code.
pub(super) fn body(markdown: &str, display: DisplayOptions) -> String {
    let mut text = String::new();
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in markdown.lines().chain([""]) {
        let is_fence = line.starts_with("```");
        let ends = line.is_empty() || is_fence || line.starts_with("- ") || line.starts_with('#');
        if !in_code && ends {
            text += &prose(&std::mem::take(&mut paragraph), prose_width(display));
        }
        if is_fence {
            in_code = !in_code;
        } else if in_code {
            text += format!("{INDENT}{line}").trim_end();
            text.push('\n');
        } else if line.is_empty() {
            if !text.ends_with("\n\n") {
                text.push('\n');
            }
        } else if line.starts_with('#') {
            text += &display.paint(line.trim_start_matches('#').trim(), "1;36");
            text.push('\n');
        } else {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph += line.trim();
        }
    }
    text.trim_end().to_owned() + "\n"
}

/// Wraps a paragraph or a list item.
fn prose(paragraph: &str, width: usize) -> String {
    let (first, rest, words) = match paragraph.strip_prefix("- ") {
        Some(item) => ("- ", "  ", item),
        None => ("", "", paragraph),
    };
    let lines = wrap(words, width - first.len());
    lines.iter().enumerate().map(|(at, line)| format!("{}{line}\n", if at == 0 { first } else { rest })).collect()
}

/// Breaks text into lines of at most `width` characters. Words are never broken.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn prose_width(display: DisplayOptions) -> usize {
    display.width.clamp(40, MAX_PROSE_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "A first paragraph of some words\nthat is longer than a line of forty.\n\n\
        - an item that needs two lines, since it is long\n- another\n\n## Bad\n\n```yaml\na:\n\n  - b\n```\n\nThe end.\n";
    const RULE: Rule = Rule { code: "some-code", severity: Severity::Warning, page: PAGE };

    #[test]
    fn prose_is_wrapped_and_code_is_not() {
        insta::assert_snapshot!(full_pages(&[&RULE, &RULE], DisplayOptions { colour: false, width: 40 }), @r"
        warning[some-code]

        A first paragraph of some words that is
        longer than a line of forty.

        - an item that needs two lines, since it
          is long
        - another

        Bad

            a:

              - b

        The end.

        warning[some-code]

        A first paragraph of some words that is
        longer than a line of forty.

        - an item that needs two lines, since it
          is long
        - another

        Bad

            a:

              - b

        The end.
        ");
    }

    #[test]
    fn lists_show_summaries() {
        insta::assert_snapshot!(rule_list(&[&RULE, &RULE], DisplayOptions { colour: false, width: 60 }), @r"
        warning[some-code]
            A first paragraph of some words that is longer than a
            line of forty.
        warning[some-code]
            A first paragraph of some words that is longer than a
            line of forty.
        ");
    }

    #[test]
    fn colours_are_optional() {
        let shown = full_pages(&[&RULE], DisplayOptions { colour: true, width: 80 });
        assert!(shown.starts_with("\u{1b}[1;33mwarning[some-code]\u{1b}[0m\n") && shown.contains("\u{1b}[1;36mBad"));
        assert!(!full_pages(&[&RULE], DisplayOptions { colour: false, width: 80 }).contains('\u{1b}'));
    }
}
