//! The corpus: texts that must be refused, with their places, and texts that must pass.

mod good;
mod hostile;
mod properties;

use super::*;
use crate::outputs::Forge;

/// What the corpus is checked by.
pub(super) struct Setting {
    mentions: Vec<String>,
    links: Vec<String>,
}

impl Setting {
    pub(super) fn new() -> Self {
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            mentions: strings(&["octocat", "acme/docs", "@release.bot"]),
            links: strings(&["docs.example.org", "*.wiki.example", "api.example.org:8443", "bücher.example"]),
        }
    }

    pub(super) fn rules(&self) -> TextRules<'_> {
        let own = OwnRepository { forge: Forge::Github, server: "https://github.com", repository: "acme/site" };
        TextRules { mentions: &self.mentions, links: &self.links, own: Some(own), closes: None }
    }
}

#[test]
fn titles_are_one_short_line_with_the_same_rules() {
    let setting = Setting::new();
    let rules = setting.rules();
    for (title, prefix) in [
        ("Fix the parser of `Vec<T>` (#12)", "[docs] "),
        ("# Not a heading", ""),
        ("[ci]: speed up", ""),
        ("- a, b & c < d", "fix: "),
        ("修正 👩‍💻", ""),
        (&"é".repeat(193), "[docs] "),
    ] {
        assert_eq!(check_title(title, prefix, &rules), Ok(()), "{title}");
    }
    for (title, prefix, rule, column) in [
        ("", "x", "empty-title", 1),
        (" \t", "x", "empty-title", 1),
        ("a\nb", "", "line-break", 2),
        ("a\rb", "", "line-break", 2),
        ("é\n", "", "line-break", 2),
        ("a\u{2028}b", "", "invisible-character", 2),
        (&"é".repeat(194), "[docs] ", "too-long", 194),
        (&"a".repeat(70_000), "", "too-long", 201),
        ("#12: a crash", "fix: ", "closing-keyword", 1),
        ("closes #1", "", "closing-keyword", 1),
        ("a `closes #1`", "", "closing-keyword", 4),
        ("a @torvalds", "[docs] ", "mention", 3),
        ("(https://evil.example)", "[docs]", "link-host", 1),
        ("    <script>", "", "raw-html", 5),
        ("/close", "[docs] ", "quick-action", 1),
        ("a `[masked:KEY]`", "", "mask", 4),
    ] {
        let violation = check_title(title, prefix, &rules).expect_err(title);
        assert_eq!((violation.rule, violation.line, violation.column), (rule, 1, column), "{title}: {violation}");
    }
}

#[test]
fn messages_of_commits_have_no_code() {
    let setting = Setting::new();
    let rules = setting.rules();
    assert_eq!(check_message("Parse `Vec<T>`\n\n- one\n\nSigned-off-by: A <a@example.org>\n", &rules), Ok(()));
    for (message, rule, line) in [
        ("a\n\n```\nfixes #12\n```", "closing-keyword", 4),
        ("a\n\nLegwork: JOB KEY", "mark", 3),
        ("a\n\n legwork : JOB KEY", "mark", 3),
        ("a <script>", "raw-html", 1),
    ] {
        let violation = check_message(message, &rules).expect_err(message);
        assert_eq!((violation.rule, violation.line), (rule, line), "{message}");
    }
}

#[test]
fn keywords_may_close_the_one_issue_that_is_named() {
    let setting = Setting::new();
    let rules = TextRules { closes: Some(12), ..setting.rules() };
    for text in [
        "Closes #12.",
        "fixes: #12",
        "**Resolves** #12",
        "Fixes acme/site#12 and GH-12",
        "Closes https://github.com/acme/site/issues/12, and more",
        "closes #12, #12",
        "See #13; closes #12",
    ] {
        assert_eq!(check_body(text, &rules), Ok(()), "{text}");
    }
    for text in [
        "Closes #1",
        "Closes #123",
        "Closes #12, #13",
        "Closes #12 and #13",
        "closes issues #12 and #13",
        "Fixes other/site#12",
        "Fixes https://github.com/other/site/issues/12",
        "Fixes https://github.com.evil.example/acme/site/issues/12",
        "Closes #99999999999999999999999",
    ] {
        assert!(check_body(text, &rules).is_err(), "{text}");
    }
    let violation = check_body("Closes #13", &rules).unwrap_err();
    assert!(violation.why.contains("only #12 may be closed"), "{violation}");
}

#[test]
fn own_pages_are_free_on_each_forge() {
    for (forge, server, repository, free, refused) in [
        (
            Forge::Gitlab,
            "https://gitlab.example:8443/",
            "group/sub/site",
            "https://gitlab.example:8443/group/sub/site/-/issues/1",
            "https://gitlab.example/group/sub/site/-/issues/1",
        ),
        (Forge::Gitlab, "http://gitlab.local", "a/b", "http://gitlab.local/a/b", "http://gitlab.local/a/bc"),
        (Forge::Github, "https://github.com", "a/b", "https://GitHub.com:443/A/B.git", "https://github.com/a/b.github"),
    ] {
        let rules = TextRules { own: Some(OwnRepository { forge, server, repository }), ..TextRules::default() };
        for text in [free.to_owned(), format!("[a]({free})"), format!("<{free}>"), format!("**{free}**.")] {
            assert_eq!(check_body(&text, &rules), Ok(()), "{text}");
        }
        for text in [refused.to_owned(), format!("[a]({refused})"), format!("<{refused}>"), format!("**{refused}**.")] {
            check_body(&text, &rules).expect_err(&text);
        }
    }
    let nothing = TextRules::default();
    check_body("https://github.com/a/b", &nothing).unwrap_err();
    assert_eq!(check_body("[a](docs/b.md), #12", &nothing), Ok(()));
}

#[test]
fn quick_actions_count_in_code_where_gitlab_would_execute_them() {
    let setting = Setting::new();
    let github = setting.rules();
    let own = OwnRepository { forge: Forge::Gitlab, server: "https://gitlab.com", repository: "a/b" };
    let gitlab = TextRules { own: Some(own), ..github };
    for text in ["~~~\n/close\n~~~", "- a\n\n  ```\n  /merge now\n  ```", "    /assign me"] {
        assert_eq!(check_body(text, &github), Ok(()), "{text}");
        assert_eq!(check_body(text, &gitlab).unwrap_err().rule, "quick-action", "{text}");
    }
    for text in ["```\n/usr/bin/env\n/status/x\n```", "a `/close`"] {
        assert_eq!(check_body(text, &gitlab), Ok(()), "{text}");
    }
    assert_eq!(check_body("```\n/lgtm\n```", &github).unwrap_err().rule, "quick-action");
}

#[test]
fn a_violation_names_its_place_without_hidden_characters() {
    let setting = Setting::new();
    let shown = check_body("é\n  a\u{202e}b", &setting.rules()).unwrap_err().to_string();
    let expected = "bidirectional-character at line 2, column 4 (`U+202E`): U+202E changes the direction of the text: leave it out";
    assert_eq!(shown, expected);
    let hint = check_body("<details>\n`<T>`\n</details>", &setting.rules()).unwrap_err();
    assert!(hint.why.contains("leave a line empty after the tag") && hint.excerpt == "`<T>`", "{hint}");
}

#[test]
fn hostile_lengths_take_linear_time() {
    let setting = Setting::new();
    let rules = setting.rules();
    let units = [
        "[",
        "[a](",
        "<",
        "<a",
        "`",
        "``a`",
        "*",
        "_*",
        "&",
        "&#",
        "> ",
        "https://docs.example.org/(",
        "closes #",
        "@a/",
        "a/b#1 ",
        "|",
        "\n",
        "\n/",
        "$`",
        "[^a]",
        "a.",
        "~a~",
        "x\n: y\n\n",
    ];
    for unit in units {
        let text = unit.repeat(MAX_BODY_CHARS / unit.chars().count());
        // The time isn't asserted on; a quadratic step would make this test take minutes.
        if let Err(violation) = check_body(&text, &rules) {
            assert!(violation.line >= 1 && violation.column >= 1);
        }
    }
}
