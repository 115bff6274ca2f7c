//! The texts that a job itself puts on a forge, beside those of the model: prefixes of titles, labels, logins, names of checks.

use super::MAX_TITLE_CHARS;
use super::text_rules::{TextRules, check_body, check_title};

/// The longest label, in characters. GitLab takes 255, GitHub 50.
const MAX_LABEL_CHARS: usize = 255;
/// A title that nothing is wrong with.
const PLAIN_TITLE: &str = "title";

/// Checks what a title begins with, as it is checked with each title.
///
/// # Errors
/// Says what is wrong, and what to write instead.
pub fn check_title_prefix(prefix: &str, rules: &TextRules<'_>) -> Result<(), String> {
    if prefix.chars().count() + PLAIN_TITLE.len() > MAX_TITLE_CHARS {
        return Err(format!(
            "a title has at most {MAX_TITLE_CHARS} characters, and this leaves no room for it: shorten it"
        ));
    }
    match check_title(PLAIN_TITLE, prefix, rules) {
        Err(violation) => Err(format!("{}: {}", violation.rule, violation.why)),
        Ok(()) => Ok(()),
    }
}

/// Checks a label, or the name of a check: one line without characters that nobody sees.
///
/// # Errors
/// Says what is wrong, and what to write instead.
pub fn check_label(label: &str) -> Result<(), String> {
    match () {
        () if label.trim().is_empty() => Err("it is empty: remove it".to_owned()),
        () if label.contains(['\n', '\r', '\t']) => {
            Err("it has a line break or a tab: write it on one line".to_owned())
        }
        () if label.chars().count() > MAX_LABEL_CHARS => {
            Err(format!("it has more than {MAX_LABEL_CHARS} characters: shorten it"))
        }
        // As code it is free of all rules but those about what nobody sees.
        () => match check_body(&format!("~~~~\n{label}\n~~~~\n"), &TextRules::default()) {
            Err(violation) => Err(format!("{}: {}", violation.rule, violation.why)),
            Ok(()) => Ok(()),
        },
    }
}

/// Checks an entry of `mentions`: a login or a team, with `@` or without.
///
/// # Errors
/// Says what is wrong, and what to write instead.
pub fn check_login(login: &str) -> Result<(), String> {
    let name = login.strip_prefix('@').unwrap_or(login);
    let is_part = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part.len() <= 255 && part.bytes().all(is_allowed)
    };
    match name.split('/').count() <= 20 && name.split('/').all(is_part) {
        true => Ok(()),
        false => Err("it isn't a login: write it like `octocat`, a team like `org/team`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_breaks_no_rule_of_titles() {
        let mentions = ["octocat".to_owned()];
        let rules = TextRules { mentions: &mentions, ..TextRules::default() };
        for prefix in ["", "[bot] ", "docs: ", "fix(parser): ", "@octocat: ", "🚀 "] {
            assert_eq!(check_title_prefix(prefix, &rules), Ok(()), "{prefix}");
        }
        for (prefix, why) in [
            ("[bot]\n", "line-break"),
            ("@mallory: ", "mention"),
            ("<b>", "raw-html"),
            ("![x](y) ", "image"),
            ("fixes #1: ", "closing-keyword"),
            ("a\u{202e}b", "bidirectional-character"),
            (&"x".repeat(199), "leaves no room"),
            ("https://evil.example ", "link-host"),
        ] {
            let found = check_title_prefix(prefix, &rules).unwrap_err();
            assert!(found.contains(why), "{prefix}: {found}");
        }
    }

    #[test]
    fn labels_and_logins_are_names() {
        for label in ["bug", "good first issue", "area: docs", "P1 🔥", "a,b", "@x"] {
            assert_eq!(check_label(label), Ok(()), "{label}");
        }
        for label in ["", " ", "a\nb", "a\tb", "a\u{200b}b", "[masked:x]", &"x".repeat(256)] {
            assert!(check_label(label).is_err(), "{label}");
        }
        for login in ["octocat", "@octocat", "org/team", "group/sub/team", "dependabot.x", "a_b"] {
            assert_eq!(check_login(login), Ok(()), "{login}");
        }
        for login in ["", "@", "a b", "@@a", "a/", "a\n", "ä", "dependabot[bot]"] {
            assert!(check_login(login).is_err(), "{login}");
        }
    }
}
