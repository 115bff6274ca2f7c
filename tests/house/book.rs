//! The generated pages of the book: the command line reference and the rules.
//!
//! To update them, run `UPDATE_BOOK=1 cargo test --test all house::book`.

use std::fmt::Write;

use clap::{Arg, Command};
use legwork::diagnostic::Rule;
use legwork::reports::{self, DisplayOptions};

use super::source::{files, read, root};

/// The rules in the order and in the groups of the page that lists them.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Files and YAML",
        &[
            "unreadable",
            "empty-file",
            "not-utf8",
            "too-large",
            "too-deep",
            "yaml-syntax",
            "multiple-documents",
            "merge-key",
            "unknown-anchor",
            "cyclic-alias",
            "unknown-tag",
            "unused-anchor",
            "comment-in-text",
            "escape-in-text",
            "unexpanded-variable",
            "duplicate-key",
            "toml-syntax",
            "too-many-findings",
            "unused-allow",
        ],
    ),
    (
        "Keys and values",
        &[
            "unknown-key",
            "missing-key",
            "wrong-type",
            "empty-value",
            "unknown-value",
            "invalid-value",
            "out-of-range",
            "number-with-underscores",
            "bad-duration",
            "bad-size",
            "bad-name",
            "confusable-names",
            "reserved-name",
        ],
    ),
    (
        "Models and costs",
        &[
            "bad-model",
            "unknown-provider",
            "unknown-model",
            "retired-model",
            "unsupported-option",
            "bad-stop-sequence",
            "bad-fallback",
            "context-window-too-small",
            "no-cost-limit",
            "unknown-price",
            "untracked-cost",
            "api-key-in-file",
        ],
    ),
    (
        "Tools and agents",
        &[
            "unknown-tool",
            "duplicate-tool",
            "bad-tool-entry",
            "unexpected-tool-options",
            "bad-bash-rule",
            "rule-test-failed",
            "empty-allow",
            "bad-output",
            "unknown-output",
            "unused-output",
            "bad-state",
            "unused-state",
            "missing-trigger",
            "task-in-subagent",
            "unknown-subagent",
            "unused-subagents",
            "empty-subagents",
            "unused-own-workspace",
            "no-description",
            "empty-description",
            "empty-prompt",
            "empty-reply",
            "single-turn-with-tools",
        ],
    ),
    (
        "Tool servers",
        &["bad-server", "unknown-server", "bad-server-entry", "bad-tool-lock", "server-in-container", "unused-server"],
    ),
    (
        "Context files and skills",
        &[
            "unreadable-context",
            "context-too-large",
            "changeable-context",
            "hidden-characters",
            "bad-skill",
            "missing-skill-tool",
        ],
    ),
    (
        "Inputs",
        &[
            "bad-default",
            "bad-enum",
            "bad-secret",
            "image-left-out",
            "unused-input",
            "unknown-input",
            "missing-input",
            "bad-input",
            "duplicate-input",
            "unreadable-input",
            "bad-set-argument",
        ],
    ),
    ("Rows", &["rows-syntax", "no-rows", "bad-row-id", "duplicate-row-id", "secret-column"]),
    (
        "Templates",
        &[
            "template-syntax",
            "single-brace",
            "dollar-before-tag",
            "path-as-prompt",
            "undefined-variable",
            "unknown-filter",
            "unknown-test",
            "unknown-function",
            "macro-arguments",
            "not-a-template",
            "secret-in-template",
            "untrusted-in-system",
            "dynamic-include",
            "include-cycle",
            "too-many-includes",
            "outside-folder",
            "unreadable-file",
            "render-failed",
            "empty-by-default",
        ],
    ),
    (
        "Checks and results",
        &[
            "empty-step",
            "duplicate-step",
            "empty-check",
            "duplicate-check",
            "ignored-failure",
            "folded-script",
            "bad-condition",
            "repairs-without-checks",
            "shell-syntax",
            "timeout-beyond-limit",
            "bad-schema",
            "bad-reference",
            "unknown-keyword",
        ],
    ),
    (
        "Environment and trust",
        &[
            "bad-env-name",
            "api-key-in-env",
            "forbidden-env",
            "duplicate-env",
            "unused-env",
            "unused-network",
            "bad-host",
            "wider-network",
            "shared-host",
            "wildcard-host",
            "bad-protected-path",
            "duplicate-path",
            "lethal-trifecta",
            "forbidden-if-untrusted",
        ],
    ),
];

/// The line of SUMMARY.md before the pages of rules.
const RULES_ENTRY: &str = "  - [Rules](rules/index.md)\n";

#[test]
fn the_command_line_reference_is_up_to_date() {
    check_page("docs/src/cli.md", &cli_reference());
}

#[test]
fn the_pages_of_rules_are_up_to_date() {
    let markdown = reports::find(reports::RULE_PAGES, "markdown");
    let display = DisplayOptions { colour: false, width: 100 };
    let rules = rules();
    for rule in &rules {
        let page = markdown(&[*rule], display);
        check_page(&rule_path(rule), &page);
    }
    let expected: Vec<String> =
        rules.iter().map(|rule| rule_path(rule)).chain(["docs/src/rules/index.md".to_owned()]).collect();
    for page in files("docs/src/rules") {
        let page = page.to_string_lossy().into_owned();
        assert!(expected.contains(&page), "{page} is the page of no rule: remove it");
    }
    check_page("docs/src/rules/index.md", &rule_index());
    let (before, after) = summary_parts();
    let entries: String = rules.iter().map(|rule| format!("    - [{0}](rules/{0}.md)\n", rule.code)).collect();
    check_page("docs/src/SUMMARY.md", &format!("{before}{entries}{after}"));
}

fn rule_path(rule: &Rule) -> String {
    format!("docs/src/rules/{}.md", rule.code)
}

/// SUMMARY.md before and after the pages of rules.
fn summary_parts() -> (String, String) {
    let summary = read("docs/src/SUMMARY.md");
    let (before, after) = summary.split_once(RULES_ENTRY).expect("SUMMARY.md lists rules/index.md");
    let after: String = after
        .lines()
        .skip_while(|line| line.contains("(rules/") || line.contains("<!-- rules -->"))
        .map(|line| format!("{line}\n"))
        .collect();
    (format!("{before}{RULES_ENTRY}"), after)
}

/// Compares a page with its generated text, or writes it if `UPDATE_BOOK` is set.
fn check_page(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_BOOK").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        return std::fs::write(file, text).unwrap();
    }
    let is_current = std::fs::read_to_string(file).is_ok_and(|current| current == text);
    assert!(is_current, "{path} is out of date: run `UPDATE_BOOK=1 cargo test --test all house::book`");
}

/// All rules, in the order of [`GROUPS`].
fn rules() -> Vec<&'static Rule> {
    let all: Vec<&Rule> = legwork::plan::rules().collect();
    let codes = || GROUPS.iter().flat_map(|(_, codes)| codes.iter());
    for rule in &all {
        let count = codes().filter(|code| **code == rule.code).count();
        assert_eq!(count, 1, "`{}` must be in one of the groups of tests/house/book.rs", rule.code);
    }
    let find = |code: &&str| {
        let rule = all.iter().find(|rule| rule.code == *code);
        *rule.unwrap_or_else(|| panic!("there is no rule `{code}`: remove it from the groups of tests/house/book.rs"))
    };
    codes().map(find).collect()
}

fn rule_index() -> String {
    let rules = rules();
    let mut page = String::from(
        "# Rules\n\nEach finding of [`legwork validate`](../validation.md) has a code. `legwork explain CODE` prints the same \
         pages in the terminal.\n",
    );
    for (group, codes) in GROUPS {
        write!(page, "\n## {group}\n\n| code | severity | |\n|---|---|---|\n").unwrap();
        for rule in rules.iter().filter(|rule| codes.contains(&rule.code)) {
            let summary = rule.summary().replace('|', "\\|");
            writeln!(page, "| [`{0}`]({0}.md) | {1} | {summary} |", rule.code, rule.severity.as_str()).unwrap();
        }
    }
    page
}

fn cli_reference() -> String {
    let mut command = legwork::cli::command();
    command.build();
    let mut page = format!("# Command line\n\n{}\n", paragraphs(&about(&command), ""));
    page += "\n| command | |\n|---|---|\n";
    let names: Vec<String> = subcommands(&command).map(|command| command.get_name().to_owned()).collect();
    for subcommand in subcommands(&command) {
        let name = subcommand.get_name();
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(page, "| [`legwork {name}`](#legwork-{name}) | {} |", escape(&about)).unwrap();
    }
    for name in names {
        let subcommand = command.find_subcommand_mut(&name).unwrap();
        page += &command_section(subcommand);
    }
    page
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| command.get_name() != "help")
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.map(ToString::to_string).unwrap_or_default()
}

fn command_section(command: &mut Command) -> String {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let title = command.get_bin_name().unwrap_or(command.get_name());
    let mut section = format!("\n## {title}\n\n{}\n", paragraphs(&about(command), ""));
    write!(section, "\n```text\n{usage}\n```\n").unwrap();
    let shown = || {
        command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str()))
    };
    let heading = |argument: &Arg| match argument.get_help_heading() {
        Some(heading) => heading.to_owned(),
        None if argument.is_positional() => "Arguments".to_owned(),
        None => "Options".to_owned(),
    };
    let mut headings = vec!["Arguments".to_owned(), "Options".to_owned()];
    headings.extend(shown().map(heading));
    let mut seen = Vec::new();
    for title in headings {
        if seen.contains(&title) {
            continue;
        }
        let entries: String = shown().filter(|argument| heading(argument) == title).map(argument_entry).collect();
        if !entries.is_empty() {
            write!(section, "\n{title}:\n\n{entries}").unwrap();
        }
        seen.push(title);
    }
    if let Some(after) = command.get_after_help() {
        write!(section, "\n{}\n", paragraphs(&after.to_string(), "")).unwrap();
    }
    let names: Vec<String> = subcommands(command).map(|command| command.get_name().to_owned()).collect();
    for name in names {
        section += &command_section(command.find_subcommand_mut(&name).unwrap());
    }
    section
}

/// A list item with an argument's name, help, values and default.
fn argument_entry(argument: &Arg) -> String {
    let values: Vec<String> =
        argument.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let name = match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("{short}--{long} {}", values.join(" ")),
        Some(long) => format!("{short}--{long}"),
        None => values.join(" "),
    };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut entry = format!("- `{name}`: {}\n", paragraphs(&help, "  "));
    let flag = !argument.get_action().takes_values();
    let possible = argument.get_possible_values();
    if !flag && possible.iter().any(|value| value.get_help().is_some()) {
        entry.push('\n');
        for value in &possible {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            writeln!(entry, "  - `{}`: {}", value.get_name(), escape(&help)).unwrap();
        }
    } else if !flag && !possible.is_empty() {
        let names: Vec<String> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
        write!(entry, "\n  Values: {}\n", names.join(", ")).unwrap();
    }
    let defaults: Vec<String> = argument.get_default_values().iter().map(|it| format!("`{}`", it.display())).collect();
    if !flag && !defaults.is_empty() {
        write!(entry, "\n  Default: {}\n", defaults.join(", ")).unwrap();
    }
    entry
}

/// The paragraphs of a help text as Markdown. All but the first are indented.
fn paragraphs(text: &str, indent: &str) -> String {
    text.split("\n\n").map(escape).collect::<Vec<_>>().join(&format!("\n\n{indent}"))
}

/// Escapes characters that Markdown would interpret as HTML or emphasis outside of code spans.
fn escape(text: &str) -> String {
    let escaped = |(at, part): (usize, &str)| match at % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*").replace('|', "\\|"),
        _ => format!("`{part}`"),
    };
    text.trim().split('`').enumerate().map(escaped).collect()
}
