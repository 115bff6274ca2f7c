//! What an output does once it is published, in words and with each of its texts. Reports of runs and `legwork publish` say the
//! same about it.

use serde_json::Value;

use super::entry::Entry;
use super::output::{Kind, Output};
use crate::text::pluralize;

/// What publishing an output does. All texts are untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// What happens, on one line: `comment on #3`.
    pub title: String,
    /// What is written.
    pub parts: Vec<PreviewPart>,
}

/// A part of what is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviewPart {
    /// A line about the text after it: the place of a review's comment.
    Line(String),
    /// Markdown, as the model wrote it.
    Markdown(String),
    /// Another text as it is: a commit's message, a command's data.
    Plain(String),
}

impl Preview {
    /// What publishing an entry does. `output` is what the job allows, if it allows it; `number` that of the trigger, if it is
    /// known; `changed_files` counts the run's own changes.
    pub fn of(entry: &Entry, output: Option<&Output>, number: Option<u64>, changed_files: u64) -> Self {
        let field = |name: &str| entry.data.get(name).and_then(Value::as_str).unwrap_or_default();
        let text = |name: &str| PreviewPart::Markdown(field(name).to_owned());
        let number = entry.target.or(number);
        let place = number.map_or("<trigger>".to_owned(), |number| format!("#{number}"));
        let list = |name: &str| {
            let list = entry.data.get(name).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        };
        let files = pluralize(changed_files, "changed file");
        let Some(output) = output else {
            let data = PreviewPart::Plain(format!("{:#}", entry.data));
            return Self { title: entry.kind.name().to_owned(), parts: vec![data] };
        };
        let (title, parts) = match &output.kind {
            Kind::Comment { update, .. } => {
                let verb = if *update { "comment, or update of an earlier one, on" } else { "comment on" };
                (format!("{verb} {place}"), vec![text("body")])
            }
            Kind::Review { request_changes, .. } => {
                let verb = if *request_changes { "review that requests changes of" } else { "review of" };
                let comments = entry.data.get("comments").and_then(Value::as_array).into_iter().flatten();
                let parts = std::iter::once(text("body")).chain(comments.flat_map(review_comment));
                (format!("{verb} {place}"), parts.collect())
            }
            Kind::PullRequest { title_prefix, .. } => {
                (format!("pull request with {files}: {title_prefix}{}", field("title")), vec![text("body")])
            }
            Kind::Push { .. } => {
                let message = PreviewPart::Plain(field("message").to_owned());
                (format!("commit with {files} on the branch of {place}"), vec![message])
            }
            Kind::Issue { title_prefix, labels, .. } => {
                let chosen = list("labels");
                let labels = labels.iter().map(String::as_str).chain(Some(&*chosen));
                let labels: Vec<&str> = labels.filter(|label| !label.is_empty()).collect();
                let labels =
                    (!labels.is_empty()).then(|| PreviewPart::Line(format!("with the labels {}", labels.join(", "))));
                let parts = labels.into_iter().chain([text("body")]);
                (format!("issue: {title_prefix}{}", field("title")), parts.collect())
            }
            Kind::Labels { .. } => {
                let parts = [("add", list("add")), ("remove", list("remove"))];
                let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
                let parts: Vec<String> = parts.map(|(verb, names)| format!("{verb} {names}")).collect();
                (format!("labels of {place}: {}", parts.join("; ")), Vec::new())
            }
            Kind::Close {} => (format!("close {place} as {}", field("reason")), Vec::new()),
            Kind::Check { check_name } => {
                (format!("check `{check_name}`: {}", field("conclusion")), vec![text("summary")])
            }
            Kind::Command { run, .. } => {
                let data = entry.data.get("data").unwrap_or(&entry.data);
                (format!("command: {}", run.trim()), vec![PreviewPart::Plain(format!("{data:#}"))])
            }
        };
        Self { title, parts }
    }
}

/// A comment on lines: its place, and its text.
fn review_comment(comment: &Value) -> [PreviewPart; 2] {
    let text = |name: &str| comment.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| comment.get(name).and_then(Value::as_u64);
    let lines = match (number("start_line"), number("line")) {
        (Some(first), Some(last)) => format!("lines {first} to {last}"),
        (_, line) => format!("line {}", line.unwrap_or_default()),
    };
    let side = if text("side") == "LEFT" { " before the change" } else { "" };
    [PreviewPart::Line(format!("{}, {lines}{side}", text("path"))), PreviewPart::Markdown(text("body").to_owned())]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::outputs::KindName;

    fn preview(kind: Kind, name: KindName, target: Option<u64>, data: Value) -> (String, Vec<String>) {
        let entry = Entry {
            id: "x-1".to_owned(),
            name: "x".to_owned(),
            kind: name,
            key: None,
            target,
            data,
            agent: "parent".to_owned(),
            call_id: "c".to_owned(),
        };
        let output = Output { target: None, max: 1, on_checks_failed: false, kind };
        let Preview { title, parts } = Preview::of(&entry, Some(&output), None, 2);
        let text = |part| match part {
            PreviewPart::Line(line) => format!("> {line}"),
            PreviewPart::Markdown(text) | PreviewPart::Plain(text) => text,
        };
        (title, parts.into_iter().map(text).collect())
    }

    #[test]
    fn an_output_is_in_words_with_all_of_its_texts() {
        let comments = json!([
            { "path": "src/a.rs", "line": 4, "body": "Why?" },
            { "path": "src/b.rs", "line": 9, "start_line": 7, "side": "LEFT", "body": "Gone." },
        ]);
        let review = preview(
            Kind::Review { max_comments: 5, request_changes: false },
            KindName::Review,
            Some(7),
            json!({ "body": "Two things.", "comments": comments }),
        );
        let parts =
            ["Two things.", "> src/a.rs, line 4", "Why?", "> src/b.rs, lines 7 to 9 before the change", "Gone."];
        assert_eq!(review, ("review of #7".to_owned(), parts.map(str::to_owned).to_vec()));
        let issue = preview(
            Kind::Issue { title_prefix: "[bot] ".into(), labels: vec!["bug".into()], choose: vec!["docs".into()] },
            KindName::Issue,
            None,
            json!({ "title": "Crash", "body": "It does.", "labels": ["docs"] }),
        );
        let parts = ["> with the labels bug, docs", "It does."];
        assert_eq!(issue, ("issue: [bot] Crash".to_owned(), parts.map(str::to_owned).to_vec()));
        let labels = Kind::Labels { add: vec!["bug".into()], remove: Vec::new() };
        let labels = preview(labels, KindName::Labels, None, json!({ "add": ["bug"] }));
        assert_eq!(labels, ("labels of <trigger>: add bug".to_owned(), Vec::new()));
    }
}
