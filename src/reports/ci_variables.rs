//! How a run or a map ended as variables for the later steps and jobs of a CI system.
//!
//! A result comes from a model, so no value may end its variable, begin another one, or be expanded by the CI system.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use crate::event::RunResult;
use crate::text::sanitize;

/// The longest result in bytes. The next step gets it in a variable, and Linux starts no program with one beyond 128 KiB
/// (`MAX_ARG_STRLEN`, <https://man7.org/linux/man-pages/man2/execve.2.html>).
const MAX_RESULT_BYTES: usize = 100 << 10;
/// The greatest size of the file for GitLab, in bytes
/// (<https://docs.gitlab.com/ci/yaml/artifacts_reports/#artifactsreportsdotenv>).
const MAX_DOTENV_BYTES: usize = 5 << 10;

/// A variable: its name as an output of GitHub, and its value.
pub type Variable = (&'static str, String);

/// The variables of a run. `record` is its folder as the user would write it; `current` is the current folder.
pub fn of_run(result: &RunResult, record: &Path, current: &Path) -> Vec<Variable> {
    let data = result.result.as_ref().map(|data| sanitize::escape_json(&data.to_string()));
    let mut variables = vec![
        ("outcome", result.outcome.to_string()),
        ("exit-code", result.exit_code.to_string()),
        ("cost-usd", result.cost_usd.map(|usd| usd.to_string()).unwrap_or_default()),
        ("run-id", result.run_id.clone()),
        ("record", record.to_string_lossy().into_owned()),
        ("result", data.filter(|data| data.len() <= MAX_RESULT_BYTES).unwrap_or_default()),
    ];
    add_files(&mut variables, record, current, &[("report", "report.html"), ("transcript", "transcript.md")]);
    variables
}

/// Adds the paths of files, if they exist.
pub fn add_files(variables: &mut Vec<Variable>, folder: &Path, current: &Path, files: &[(&'static str, &str)]) {
    for (name, file) in files {
        let path = folder.join(file);
        if current.join(&path).is_file() {
            variables.push((name, path.to_string_lossy().into_owned()));
        }
    }
}

/// Variables in the form of the file that `GITHUB_OUTPUT` names.
pub fn github_output(variables: &[Variable]) -> String {
    let mut text = String::new();
    for (name, value) in variables {
        if value.contains(char::is_control) || value.contains(['\u{2028}', '\u{2029}']) {
            let end = delimiter(value);
            text += &format!("{name}<<{end}\n{value}\n{end}\n");
        } else {
            text += &format!("{name}={value}\n");
        }
    }
    text
}

/// A random line that a value doesn't contain.
fn delimiter(value: &str) -> String {
    loop {
        // Every RandomState has new keys, so an empty hash is a random number.
        let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
        let delimiter = format!("legwork_{:016x}{:016x}", random(), random());
        if !value.contains(&delimiter) {
            return delimiter;
        }
    }
}

/// Variables as a file for GitLab's `artifacts:reports:dotenv`, and the names of those that it can't take. GitLab expands `$NAME`
/// and `%NAME%` in their values, which could insert a secret of another job: the result has them in an escaped form, and other
/// values with these characters are left out. So is a result that would make the file too large.
pub fn dotenv(variables: &[Variable]) -> (String, Vec<String>) {
    let mut lines = Vec::new();
    let mut left_out = Vec::new();
    for (name, value) in variables {
        let variable = format!("LEGWORK_{}", name.to_uppercase().replace('-', "_"));
        let value = match *name {
            "result" => value.replace('$', "\\u0024").replace('%', "\\u0025"),
            _ => value.clone(),
        };
        let is_unsafe = value.contains(['$', '%', '\u{2028}', '\u{2029}'])
            || value.contains(char::is_control)
            || value.trim() != value;
        if is_unsafe { left_out.push(variable) } else { lines.push((variable, value)) }
    }
    let size =
        |lines: &[(String, String)]| lines.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    while size(&lines) > MAX_DOTENV_BYTES {
        let Some(longest) = (0..lines.len()).max_by_key(|at| lines[*at].1.len()) else { break };
        left_out.push(lines.remove(longest).0);
    }
    (lines.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of outputs as GitHub's runner does.
    fn parse_github(text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut lines = text.split_terminator('\n');
        while let Some(line) = lines.next() {
            let (equals, heredoc) = (line.find('='), line.find("<<"));
            match (equals, heredoc) {
                (Some(at), heredoc) if heredoc.is_none_or(|other| at < other) => {
                    found.push((line[..at].to_owned(), line[at + 1..].to_owned()));
                }
                (_, Some(at)) => {
                    let value: Vec<&str> = lines.by_ref().take_while(|other| *other != &line[at + 2..]).collect();
                    found.push((line[..at].to_owned(), value.join("\n")));
                }
                _ => panic!("`{line}` in {text}"),
            }
        }
        found
    }

    #[test]
    fn no_value_ends_its_output_or_begins_another() {
        let hostile = [
            "a\nPATH=/x",
            "a<<EOF",
            "=",
            "x\r::add-mask::y",
            "##[group]a\nrecord<<b\nc\nb",
            "\u{2028}a=b",
            "legwork_0\n",
        ];
        let variables: Vec<Variable> = hostile.iter().map(|value| ("result", (*value).to_owned())).collect();
        let expected: Vec<_> = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        assert_eq!(parse_github(&github_output(&variables)), expected);
    }

    #[test]
    fn gitlab_gets_lines_that_it_does_not_expand() {
        let data = serde_json::json!({ "a": "$CI_JOB_TOKEN %PATH% \"b\" ${c}" });
        let variables = [
            ("outcome", "completed".to_owned()),
            ("record", "runs/$HOME/x".to_owned()),
            ("report", "a\nb=c".to_owned()),
            ("result", data.to_string()),
        ];
        let (text, left_out) = dotenv(&variables);
        assert_eq!(left_out, ["LEGWORK_RECORD", "LEGWORK_REPORT"]);
        assert!(!text.contains(['$', '%']), "{text}");
        let (outcome, result) = text.split_once('\n').unwrap();
        assert_eq!(outcome, "LEGWORK_OUTCOME=completed");
        let result = result.strip_prefix("LEGWORK_RESULT=").unwrap().trim_end();
        assert_eq!(serde_json::from_str::<serde_json::Value>(result).unwrap(), data);
    }

    #[test]
    fn the_file_for_gitlab_is_not_too_large() {
        let variables = [("outcome", "stuck".to_owned()), ("result", format!("\"{}\"", "x".repeat(MAX_DOTENV_BYTES)))];
        let (text, left_out) = dotenv(&variables);
        assert_eq!((text.as_str(), left_out), ("LEGWORK_OUTCOME=stuck\n", vec!["LEGWORK_RESULT".to_owned()]));
    }
}
