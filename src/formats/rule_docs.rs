//! Rules' pages and their list, as a terminal shows them.

use super::DisplayOptions;
use crate::diagnostic::{Rule, Severity};

/// Lines of prose longer than this many columns are hard to read.
const MAX_PROSE_WIDTH: usize = 100;
/// How far examples and explanations are moved in.
const INDENT: &str = "    ";

/// Whole pages, one after the other.
pub(super) fn full_pages(rules: &[&Rule], look: DisplayOptions) -> String {
    let pages: Vec<String> = rules.iter().map(|rule| title(rule, look) + "\n\n" + &body(rule.page, look)).collect();
    pages.join("\n")
}

/// Title and summary of each.
pub(super) fn rule_list(rules: &[&Rule], look: DisplayOptions) -> String {
    let entry = |rule: &&Rule| {
        let width = prose_width(look) - INDENT.len();
        let summary: String = wrap(&rule.summary(), width).iter().map(|line| format!("{INDENT}{line}\n")).collect();
        title(rule, look) + "\n" + &summary
    };
    rules.iter().map(entry).collect()
}

/// `error[unknown-tool]`, as above a finding.
fn title(rule: &Rule, look: DisplayOptions) -> String {
    let colour = match rule.severity {
        Severity::Error => "1;31",
        Severity::Warning => "1;33",
    };
    paint(&format!("{}[{}]", rule.severity.as_str(), rule.code), colour, look)
}

/// A page's Markdown as text: prose wrapped, code moved in.
pub(super) fn body(markdown: &str, look: DisplayOptions) -> String {
    let mut text = String::new();
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in markdown.lines().chain([""]) {
        let is_fence = line.starts_with("```");
        let ends = line.is_empty() || is_fence || line.starts_with("- ") || line.starts_with('#');
        if !in_code && ends {
            text += &prose(&std::mem::take(&mut paragraph), prose_width(look));
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
            text += &paint(line.trim_start_matches('#').trim(), "1;36", look);
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

/// A paragraph or an item of a list.
fn prose(paragraph: &str, width: usize) -> String {
    let (first, rest, words) = match paragraph.strip_prefix("- ") {
        Some(item) => ("- ", "  ", item),
        None => ("", "", paragraph),
    };
    let lines = wrap(words, width - first.len());
    lines.iter().enumerate().map(|(at, line)| format!("{}{line}\n", if at == 0 { first } else { rest })).collect()
}

/// Lines of at most `width` characters, where no word is longer.
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

fn prose_width(look: DisplayOptions) -> usize {
    look.width.clamp(40, MAX_PROSE_WIDTH)
}

fn paint(text: &str, colour: &str, look: DisplayOptions) -> String {
    if look.colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "A first paragraph of some words\nthat is longer than a line of forty.\n\n\
        - an item that needs two lines, since it is long\n- another\n\n## Bad\n\n```yaml\na:\n\n  - b\n```\n\nThe end.\n";
    const RULE: Rule = Rule { code: "some-code", severity: Severity::Warning, page: PAGE };

    #[test]
    fn a_page_is_wrapped_and_its_code_is_not() {
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
    fn a_list_has_the_summaries() {
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
    fn colours_only_where_wanted() {
        let shown = full_pages(&[&RULE], DisplayOptions { colour: true, width: 80 });
        assert!(shown.starts_with("\u{1b}[1;33mwarning[some-code]\u{1b}[0m\n") && shown.contains("\u{1b}[1;36mBad"));
        assert!(!full_pages(&[&RULE], DisplayOptions { colour: false, width: 80 }).contains('\u{1b}'));
    }
}
