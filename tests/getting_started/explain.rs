//! `legwork explain` and its pages.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::house::source::files;

use crate::support::test_folder::TestFolder;

/// The output of `legwork explain --format json`: all rules.
fn rules() -> Vec<Value> {
    let printed = TestFolder::new().legwork(&["explain", "--format", "json"]).run();
    printed.assert_code(0).assert_stderr("");
    assert_eq!(printed.json()["format"], 1);
    printed.json()["rules"].as_array().expect("a list of rules").clone()
}

#[test]
fn explain_prints_the_page_of_a_code() {
    let folder = TestFolder::new();
    let text = folder.legwork(&["explain", "unknown-tool", "duplicate-env", "--format", "text"]).run();
    text.assert_code(0)
        .assert_stdout_contains("error[unknown-tool]\n\n")
        .assert_stdout_contains("\nwarning[duplicate-env]\n\n")
        .assert_stdout_contains("\nBad\n");
    text.assert_stdout_contains("    model: ").assert_not_printed("```").assert_not_printed("\u{1b}");
    let coloured = folder.legwork(&["explain", "unknown-tool", "--format=text"]).env("CLICOLOR_FORCE", "1").run();
    coloured.assert_code(0).assert_stdout_contains("\u{1b}[1;31merror[unknown-tool]\u{1b}[0m\n");
    let piped = folder.legwork(&["explain", "unknown-tool"]).run();
    piped
        .assert_code(0)
        .assert_stdout_contains("# error[unknown-tool]\n\n")
        .assert_stdout_contains("\n## Bad\n\n```yaml\n");
    let pasted = folder.legwork(&["explain", "error[unknown-tool]", "--format=json"]).run();
    pasted.assert_code(0);
    let rule = &pasted.json()["rules"][0];
    assert_eq!((&rule["code"], &rule["severity"]), (&"unknown-tool".into(), &"error".into()));
    assert!(rule["page"].as_str().unwrap().contains("## Good"), "{rule}");
}

#[test]
fn all_codes_are_listed_without_an_argument() {
    let rules = rules();
    let codes: Vec<&str> = rules.iter().filter_map(|rule| rule["code"].as_str()).collect();
    assert!(codes.is_sorted() && codes.contains(&"yaml-syntax") && codes.contains(&"missing-input"), "{codes:?}");
    let list = TestFolder::new().legwork(&["explain"]).run();
    list.assert_code(0);
    assert_eq!(list.stdout.lines().count(), codes.len());
    list.assert_stdout_contains("- `unknown-tool` (error): ");
    let text = TestFolder::new().legwork(&["explain", "--format", "text"]).run();
    assert_eq!(text.stdout.lines().filter(|line| !line.starts_with(' ')).count(), codes.len());
}

#[test]
fn an_unknown_code_gets_a_suggestion() {
    let folder = TestFolder::new();
    let near = folder.legwork(&["explain", "unknown_tol"]).run();
    near.assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("unknown_tol")
        .assert_stderr_contains("Did you mean `unknown-tool`?");
    folder
        .legwork(&["explain", "unknown-tool", "nonsense"])
        .run()
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("legwork explain");
}

#[test]
fn findings_name_the_explain_command() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/x\nparent: { prompt: x, tools: [Bahs] }\nfoo: 1\n");
    let ended = folder.legwork(&["validate", "job.yaml"]).run();
    ended.assert_code(3).assert_stdout_contains("`legwork explain unknown-tool");
    assert!(ended.stdout.lines().last().unwrap().starts_with("2 errors"), "{}", ended.full_output());
}

/// Rules that no example can show, each with a reason.
const WITHOUT_EXAMPLES: [(&str, &str); 13] = [
    ("bad-tool-lock", "it is about a file beside the job"),
    ("bad-set-argument", "the command line is refused before"),
    ("api-key-in-file", "it is about no job"),
    ("reserved-name", "it is about no job"),
    ("empty-file", "there would be nothing to see"),
    ("not-utf8", "a page is UTF-8"),
    ("too-deep", "65 brackets"),
    ("too-large", "4 MiB"),
    ("too-many-findings", "more than a hundred mistakes"),
    ("too-many-includes", "a dozen files"),
    ("toml-syntax", "the file lies in the user's configuration folder"),
    ("untracked-cost", "it takes a server on this machine"),
    ("unreadable", "a file that isn't there"),
];

/// The code block of a section of a page.
fn example<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let section = page.split_once(&format!("\n## {heading}\n\n"))?.1;
    let block =
        section.strip_prefix("```yaml\n").unwrap_or_else(|| panic!("{heading} begins with its example: {page}"));
    let (block, rest) = block.split_once("\n```\n").unwrap_or_else(|| panic!("{heading} has an end: {page}"));
    assert!(rest.is_empty() || rest.starts_with("\n## "), "text stands before the examples: {page}");
    Some(block)
}

/// The parts of an example: files by name, and a command to run.
struct Example {
    files: Vec<(String, String)>,
    command: Option<Vec<String>>,
}

/// Parses an example: `job.yaml`, further files after a line `# NAME`, then a line `$ COMMAND`. An example that
/// starts with `# NAME` has no `job.yaml`.
fn parse_example(block: &str) -> Example {
    let mut files = vec![("job.yaml".to_owned(), String::new())];
    let mut command = None;
    for line in block.lines() {
        let name = line
            .strip_prefix("# ")
            .filter(|name| !name.contains(' ') && [".md", ".yaml", ".csv"].iter().any(|ending| name.ends_with(ending)));
        if let Some(words) = line.strip_prefix("$ legwork ") {
            command = Some(words.split_whitespace().map(str::to_owned).collect());
        } else if let Some(name) = name {
            files.push((name.to_owned(), String::new()));
        } else if let Some((_, text)) = files.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    files.retain(|(name, text)| name != "job.yaml" || !text.is_empty());
    Example { files, command }
}

/// All examples below one heading, by their rules' codes.
fn examples(heading: &str) -> BTreeMap<String, Example> {
    let of = |rule: &Value| {
        let block = example(rule["page"].as_str().unwrap(), heading)?;
        Some((rule["code"].as_str().unwrap().to_owned(), parse_example(block)))
    };
    rules().iter().filter_map(of).collect()
}

/// Writes each example into a folder named after its rule.
fn write_examples(examples: &BTreeMap<String, Example>) -> TestFolder {
    let folder = TestFolder::new();
    for (code, example) in examples {
        for (name, text) in &example.files {
            folder.write(&format!("jobs/{code}/{name}"), text);
            // Context files and skills are looked up in the workspace.
            if name.ends_with(".md") {
                folder.write(name, text);
            }
        }
    }
    folder
}

/// The codes that `validate` finds in each example.
fn findings_by_example(folder: &TestFolder) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for finding in folder.legwork(&["validate", "--format=json"]).run().json()["diagnostics"].as_array().unwrap() {
        let file = finding["file"].as_str().unwrap();
        let example = file.split('/').nth(1).unwrap_or_else(|| panic!("{finding}"));
        found.entry(example.to_owned()).or_default().insert(finding["code"].as_str().unwrap().to_owned());
    }
    found
}

#[test]
fn every_bad_example_has_findings_of_its_rule_only() {
    let examples = examples("Bad");
    let folder = write_examples(&examples);
    let found = findings_by_example(&folder);
    let mut wrong = Vec::new();
    for (code, example) in &examples {
        let codes: Vec<&str> = found.get(code).into_iter().flatten().map(String::as_str).collect();
        let Some(command) = &example.command else {
            wrong.extend((codes != [code]).then(|| format!("{code}: {codes:?}")));
            continue;
        };
        assert!(codes.is_empty(), "{code}: the job itself is right: {codes:?}");
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let ended = folder.legwork(&arguments).in_folder(format!("jobs/{code}")).run();
        let explained = ended
            .assert_code(3)
            .stderr
            .lines()
            .filter(|line| ["error[", "warning["].iter().any(|it| line.starts_with(it)));
        let codes: Vec<&str> = explained.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
        assert!(!codes.is_empty() && codes.iter().all(|it| it == code), "{code}: {codes:?}\n{}", ended.full_output());
    }
    assert!(wrong.is_empty(), "bad examples in src/explained give other findings: {wrong:#?}");
}

#[test]
fn no_good_example_has_a_finding() {
    let examples = examples("Good");
    let folder = write_examples(&examples);
    let found = findings_by_example(&folder);
    assert!(found.is_empty(), "the good examples in src/explained: {found:?}");
    for (code, example) in &examples {
        if let Some(command) = &example.command {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            folder.legwork(&arguments).in_folder(format!("jobs/{code}")).run().assert_code(0).assert_stderr("");
        }
    }
}

#[test]
fn every_page_has_the_required_sections() {
    let rules = rules();
    let mut codes = BTreeSet::new();
    for rule in &rules {
        let (code, page) = (rule["code"].as_str().unwrap(), rule["page"].as_str().unwrap());
        assert!(codes.insert(code.to_owned()), "two rules have the code {code}");
        let words =
            |word: &str| !word.is_empty() && word.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        assert!(code.split('-').all(words), "{code} is no kebab-case");
        let summary = rule["summary"].as_str().unwrap();
        let is_sentence = summary.ends_with('.') && summary.starts_with(|first: char| !first.is_lowercase());
        assert!(is_sentence && (20..=400).contains(&summary.len()), "{code}: {summary:?} isn't one or two sentences");
        assert!(
            page.ends_with('\n') && !page.ends_with("\n\n") && page.lines().all(|line| line.len() <= 130),
            "{code}"
        );
        let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        let excused = WITHOUT_EXAMPLES.iter().any(|(without, _)| *without == code);
        assert_eq!(headings, if excused { vec![] } else { vec!["## Bad", "## Good"] }, "{code}");
        for heading in ["Bad", "Good"] {
            let lines = example(page, heading).map_or(0, |block| block.lines().count());
            assert!(lines <= 14, "{code}: an example of {lines} lines");
        }
    }
    for (code, why) in WITHOUT_EXAMPLES {
        assert!(codes.contains(code), "{code} ({why}) is gone: take it off the list");
    }
    let pages: BTreeSet<String> =
        files("src/explained").iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(pages, codes, "files in src/explained, and rules");
}
