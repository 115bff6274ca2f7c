//! What a text does by naming things: mentions, keywords that close issues, references to other repositories.

use std::ops::Range;

use super::links::is_forge_listed;
use super::live::{Live, is_word};
use super::rules::TextRules;
use super::violation::Finding;

/// The longest name of a repository or a team.
const MAX_NAME: usize = 255;
/// The longest number.
const MAX_DIGITS: usize = 20;

/// Words that close an issue when its number follows, on GitHub or GitLab.
const CLOSING: &[&str] = &[
    "close",
    "closes",
    "closed",
    "closing",
    "fix",
    "fixes",
    "fixed",
    "fixing",
    "resolve",
    "resolves",
    "resolved",
    "resolving",
    "implement",
    "implements",
    "implemented",
    "implementing",
];

/// Parts of addresses that are followed by the number of an issue or a pull request.
const ISSUE_PATHS: &[&str] = &["/issues/", "/pull/", "/pulls/", "/merge_requests/", "/work_items/"];

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.' | '/')
}

/// Whether one of some sorted ranges contains an index.
fn is_in(ranges: &[Range<usize>], index: usize) -> bool {
    let after = ranges.partition_point(|range| range.start <= index);
    after.checked_sub(1).is_some_and(|range| ranges[range].contains(&index))
}

/// Finds a mention that isn't listed. `addresses` are the parts of the text that are links.
pub(super) fn mention(live: &Live, addresses: &[Range<usize>], rules: &TextRules<'_>) -> Option<Finding> {
    (0..live.len()).find_map(|index| {
        if live.char(index) != '@' {
            return None;
        }
        let before = live.before(index);
        let is_in_address = before == Some('/') && is_in(addresses, index);
        if before.is_some_and(is_word) || is_in_address {
            return None;
        }
        let dots = live.run(index + 1, MAX_NAME, |char| char == '.');
        if !is_word(live.char(dots)) {
            return None;
        }
        let end = live.run(index + 1, MAX_NAME, is_name);
        let name = live.text(index + 1..end);
        let name = name.trim_end_matches(['.', '/']);
        let is_listed = |listed: &String| listed.trim_start_matches('@').eq_ignore_ascii_case(name);
        if rules.mentions.iter().any(is_listed) {
            return None;
        }
        let why =
            "nobody but the logins that the job lists may be mentioned, who would be notified: write the name without \
                   `@`, or put it in backticks"
                .to_owned();
        Some(Finding { rule: "mention", at: live.at(index), end: live.at(index) + 1 + name.len(), why })
    })
}

/// A reference to an issue or a pull request.
struct Reference {
    /// The repository, if it is named.
    repository: Option<String>,
    /// Its number; `None` if it is too long for one.
    number: Option<u64>,
    /// The index behind it.
    end: usize,
}

/// The reference at an index.
fn reference(live: &Live, index: usize, rules: &TextRules<'_>) -> Option<Reference> {
    let number = |begins: usize| {
        let end = live.run(begins, MAX_DIGITS, |char| char.is_ascii_digit());
        (end > begins).then(|| (live.text(begins..end).parse().ok(), end))
    };
    if live.has_word(index, "https://") || live.has_word(index, "http://") {
        let end = live.run(index, 2_000, |char| !char.is_whitespace() && !"<>()[]\"'`|".contains(char));
        let address = live.text(index..end);
        let (path, digits) = ISSUE_PATHS.iter().find_map(|path| address.split_once(path))?;
        let digits = &digits[..digits.bytes().take_while(u8::is_ascii_digit).count()];
        let path = path.trim_end_matches("/-");
        let server = rules.own.as_ref().map_or("", |own| own.server.trim_end_matches('/'));
        let is_own = path.get(..server.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(server));
        let repository = if is_own { path[server.len()..].trim_start_matches('/') } else { path };
        return (!digits.is_empty()).then(|| Reference {
            repository: Some(repository.to_owned()),
            number: digits.parse().ok(),
            end,
        });
    }
    if live.has_word(index, "gh-") {
        return number(index + 3).map(|(number, end)| Reference { repository: None, number, end });
    }
    let name_ends = live.run(index, MAX_NAME, is_name);
    if live.char(name_ends) != '#' {
        return None;
    }
    let repository = (name_ends > index).then(|| live.text(index..name_ends));
    number(name_ends + 1).map(|(number, end)| Reference { repository, number, end })
}

/// The index behind white space without an empty line.
fn skip_blank(live: &Live, index: usize) -> usize {
    let blank_ends = live.run(index, MAX_NAME, char::is_whitespace);
    let line_breaks = (index..blank_ends).filter(|index| live.char(*index) == '\n').count();
    if line_breaks > 1 { index } else { blank_ends }
}

/// Finds a keyword that closes an issue, other than the one that may be closed.
pub(super) fn closing(live: &Live, rules: &TextRules<'_>) -> Option<Finding> {
    let mut index = 0;
    while index < live.len() {
        let begins_word = live.char(index).is_ascii_alphabetic() && !live.before(index).is_some_and(is_word);
        if begins_word
            && let Some(finding) = closing_at(live, index, rules).or_else(|| duplicate_at(live, index, rules))
        {
            return Some(finding);
        }
        index += 1;
    }
    None
}

/// The references that follow the keyword at an index.
fn closing_at(live: &Live, index: usize, rules: &TextRules<'_>) -> Option<Finding> {
    let word_ends = live.run(index, 16, is_word);
    let word = live.text(index..word_ends).to_ascii_lowercase();
    if !CLOSING.contains(&&*word) {
        return None;
    }
    let mut next = skip_blank(live, word_ends);
    if live.char(next) == ':' {
        next = skip_blank(live, next + 1);
    }
    for noun in ["issues ", "issue "] {
        if live.has_word(next, noun) {
            next = skip_blank(live, next + noun.len());
        }
    }
    while let Some(reference) = reference(live, next, rules) {
        let is_own = reference.repository.as_ref().is_none_or(|repository| {
            rules.own.as_ref().is_some_and(|own| own.repository.eq_ignore_ascii_case(repository))
        });
        if !is_own || reference.number.is_none() || reference.number != rules.closes {
            let allowed = match rules.closes {
                Some(number) => format!("only #{number} may be closed"),
                None => "this text must not close issues".to_owned(),
            };
            let why = format!(
                "`{word}` before a number closes that issue, and {allowed}: write it differently, such as `for #1`"
            );
            return Some(Finding { rule: "closing-keyword", at: live.at(index), end: live.at(reference.end), why });
        }
        next = skip_blank(live, reference.end);
        if matches!(live.char(next), ',' | ';' | '&') {
            next = skip_blank(live, next + 1);
        }
        if live.has_word(next, "and ") {
            next = skip_blank(live, next + 4);
        }
    }
    None
}

/// `Duplicate of #1` at the beginning of a line, which marks the issue on GitHub.
fn duplicate_at(live: &Live, index: usize, rules: &TextRules<'_>) -> Option<Finding> {
    const KEYWORD: &str = "duplicate of ";
    if !live.has_word(index, KEYWORD) {
        return None;
    }
    let before = live.letters[..index].iter().rev().map(|letter| letter.char).find(|char| !matches!(char, ' ' | '\t'));
    let reference = reference(live, skip_blank(live, index + KEYWORD.len()), rules)?;
    if before.is_some_and(|before| before != '\n') {
        return None;
    }
    let why = "a line that begins so marks the issue as a duplicate: begin the line with something else".to_owned();
    Some(Finding { rule: "closing-keyword", at: live.at(index), end: live.at(reference.end), why })
}

/// Finds a reference to an issue of another repository, where it would be seen.
pub(super) fn other_repository(live: &Live, addresses: &[Range<usize>], rules: &TextRules<'_>) -> Option<Finding> {
    if is_forge_listed(rules) {
        return None;
    }
    (0..live.len()).find_map(|index| {
        let is_number = matches!(live.char(index), '#' | '!') && live.char(index + 1).is_ascii_digit();
        if !is_number || is_in(addresses, index) {
            return None;
        }
        let is_name = |letter: &&super::live::Letter| is_name(letter.char);
        let length = live.letters[..index].iter().rev().take(MAX_NAME).take_while(is_name).count();
        let begins = live.run(index - length, length, |char| !char.is_ascii_alphanumeric());
        let name = live.text(begins..index);
        let (owner, repository) = name.split_once('/')?;
        let is_own = rules.own.as_ref().is_some_and(|own| own.repository.eq_ignore_ascii_case(&name));
        if is_own || owner.is_empty() || repository.is_empty() {
            return None;
        }
        let why =
            "a number with the name of another repository is a link to it, and is seen there: put it in backticks"
                .to_owned();
        let end = live.at(index) + 2;
        Some(Finding { rule: "other-repository", at: live.at(begins), end, why })
    })
}
