//! What would be published, in words and with each text.

use serde_json::Value;

use super::submission::Submission;
use crate::outputs::{Entry, Kind, Output, Trigger};
use crate::text::pluralize;

/// What publishing an entry would do: paragraphs of Markdown.
pub(super) fn preview(
    submission: &Submission,
    entry: &Entry,
    output: &Output,
    trigger: Option<&Trigger>,
) -> Vec<String> {
    let field = |name: &str| entry.data.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = entry.target.or_else(|| trigger.and_then(|trigger| trigger.number));
    let place = number.map_or("<trigger>".to_owned(), |number| format!("#{number}"));
    let list = |name: &str| {
        let list = entry.data.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let files = submission.file.patch.as_ref().map_or(0, |patch| patch.files.len() as u64);
    let files = pluralize(files, "changed file");
    match &output.kind {
        Kind::Comment { update, .. } => {
            let verb = if *update { "comment, or update of an earlier one, on" } else { "comment on" };
            vec![format!("{verb} {place}"), fenced(field("body"))]
        }
        Kind::Review { request_changes, .. } => {
            let verb = if *request_changes { "review that requests changes of" } else { "review of" };
            let mut parts = vec![format!("{verb} {place}"), fenced(field("body"))];
            for comment in entry.data.get("comments").and_then(Value::as_array).into_iter().flatten() {
                let text = |name: &str| comment.get(name).and_then(Value::as_str).unwrap_or_default();
                parts.push(format!("{}, line {}", text("path"), comment.get("line").unwrap_or(&Value::Null)));
                parts.push(fenced(text("body")));
            }
            parts
        }
        Kind::PullRequest { title_prefix, .. } => {
            let title = format!("{title_prefix}{}", field("title"));
            vec![format!("pull request with {files}: {title}"), fenced(field("body"))]
        }
        Kind::Push { .. } => vec![format!("commit with {files} on the branch of {place}"), fenced(field("message"))],
        Kind::Issue { title_prefix, .. } => {
            vec![format!("issue: {title_prefix}{}", field("title")), fenced(field("body"))]
        }
        Kind::Labels { .. } => {
            let parts =
                [("add", list("add")), ("remove", list("remove"))].into_iter().filter(|(_, names)| !names.is_empty());
            let parts: Vec<String> = parts.map(|(verb, names)| format!("{verb} {names}")).collect();
            vec![format!("labels of {place}: {}", parts.join("; "))]
        }
        Kind::Close {} => vec![format!("close {place} as {}", field("reason"))],
        Kind::Check { check_name } => {
            vec![format!("check `{check_name}`: {}", field("conclusion")), fenced(field("summary"))]
        }
        Kind::Command { run, .. } => {
            let data = entry.data.get("data").unwrap_or(&entry.data);
            vec![format!("command: {}", run.trim()), fenced(&format!("{data:#}"))]
        }
    }
}

/// A text in a fence that is longer than any in it.
fn fenced(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::fenced;

    #[test]
    fn a_fence_is_longer_than_any_in_the_text() {
        assert_eq!(fenced("a"), "```\na\n```");
        assert_eq!(fenced("````\nx\n````\n"), "`````\n````\nx\n````\n`````");
    }
}
