//! What the README, the jobs and the schemas promise is what the program does.

use std::collections::BTreeSet;

use serde_json::Value;

use super::source::{files, read, root};
use crate::support::test_folder::TestFolder;

/// The commands that the program itself names.
fn commands() -> BTreeSet<String> {
    let help = TestFolder::new().legwork(&["--help"]).run();
    help.assert_code(0).assert_stderr("");
    let listed = help.stdout.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    // A line that is indented further goes on with the text above it.
    let names = listed.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}

/// The commands in the first column of a table whose head is `command`.
fn commands_in(text: &str) -> BTreeSet<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| command ")).skip(2);
    let cells = rows.take_while(|line| line.starts_with('|')).filter_map(|row| row.split('|').nth(1));
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names = spans.filter_map(|span| span.trim_start_matches("legwork ").split_whitespace().next());
    names.filter(|name| !name.starts_with('-')).map(ToOwned::to_owned).collect()
}

/// The insides of code blocks in one of these languages.
fn code_blocks(text: &str, languages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: String =
            lines.by_ref().take_while(|line| !line.starts_with("```")).map(|line| format!("{line}\n")).collect();
        if languages.contains(&language) {
            found.push(block);
        }
    }
    found
}

/// Whether YAML is a whole job: not a script, a workflow, or a piece of a job.
fn is_job(text: &str) -> bool {
    serde_yaml::from_str::<Value>(text).is_ok_and(|value| value["parent"]["prompt"] != Value::Null)
}

#[test]
fn the_readme_lists_the_commands_that_there_are() {
    let readme = read("README.md");
    let commands = commands();
    assert!(commands.contains("run") && commands.contains("validate"), "{commands:?}");
    assert_eq!(commands_in(&readme), commands, "the table of commands in README.md, and `legwork --help`");
    for block in code_blocks(&readme, &["sh", "bash", "console", "yaml"]) {
        for line in block.lines() {
            let line = line.trim_start().trim_start_matches("$ ").trim_start_matches("- run: ");
            let Some(name) = line.strip_prefix("legwork ").and_then(|rest| rest.split_whitespace().next()) else {
                continue;
            };
            assert!(name.starts_with('-') || commands.contains(name), "README.md: there is no `legwork {name}`");
        }
    }
}

#[test]
fn every_job_in_the_readme_is_valid() {
    let jobs: Vec<String> =
        code_blocks(&read("README.md"), &["yaml"]).into_iter().filter(|text| is_job(text)).collect();
    assert!(!jobs.is_empty(), "README.md shows no job");
    for job in jobs {
        let folder = TestFolder::new();
        for (_, rest) in job.match_indices("file: ").map(|(at, found)| job.split_at(at + found.len())) {
            let path: String =
                rest.chars().take_while(|letter| !letter.is_whitespace() && !"},".contains(*letter)).collect();
            folder.write(&path, "Be brief.\n");
        }
        folder.write("example.yaml", &job);
        folder.legwork(&["validate", "example.yaml"]).run().assert_code(0);
    }
}

#[test]
fn every_job_of_the_repository_is_valid() {
    let yaml: Vec<String> = files("jobs").iter().map(|path| path.display().to_string()).collect();
    let (scripts, jobs): (Vec<&String>, Vec<&String>) = yaml
        .iter()
        .filter(|path| path.ends_with(".yaml") && !path.contains("/tests/"))
        .partition(|path| path.ends_with(".script.yaml"));
    assert!(jobs.len() >= 5, "jobs: {jobs:?}");
    for job in &jobs {
        let script = job.replace(".yaml", ".script.yaml");
        assert!(scripts.contains(&&script), "{job} can't be run without a key: there is no {script}");
    }
    let path = root().join("jobs");
    let ended = TestFolder::new().legwork(&["validate"]).arg(&path).run();
    ended.assert_code(0);
}

#[test]
fn the_schemas_are_those_of_the_types() {
    for (arguments, file) in [
        (["schema"].as_slice(), "schemas/job.schema.json"),
        (&["schema", "script"], "schemas/script.schema.json"),
        (&["schema", "expect"], "schemas/expect.schema.json"),
        (&["schema", "result"], "schemas/result.schema.json"),
        (&["schema", "events"], "schemas/events.schema.json"),
    ] {
        let printed = TestFolder::new().legwork(arguments).run();
        printed.assert_code(0);
        assert!(printed.stdout == read(file), "{file} is old: write the output of `legwork {}`", arguments.join(" "));
    }
}

#[test]
fn papers_are_read_as_they_are_meant() {
    let text = "| command | does |\n|---|---|\n| `legwork run JOB` | runs, `--x` |\n| `legwork init`, `schema` | `y` |\n\n\
                | command | z |\n```yaml\na: 1\n```\ntext\n```\nno\n```\n";
    assert_eq!(commands_in(text), ["init", "run", "schema"].map(String::from).into());
    assert_eq!(code_blocks(text, &["yaml"]), ["a: 1\n"]);
    assert!(is_job("model: a/b\nparent: { prompt: x, tools: [] }"));
    assert!(!is_job("parent:\n  - text: x"));
    assert!(!is_job("on: push\njobs: {}"));
}
