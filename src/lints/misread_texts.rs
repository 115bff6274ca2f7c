//! Finds texts that YAML or legwork reads otherwise than they are probably meant.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::PromptText;
use crate::yaml::Node;

use super::{Lint, LintContext};

/// Prompts that are the path of a file, and texts that end at a comment.
pub(super) const LINT: Lint =
    Lint { rules: &[rule!(Warning "path-as-prompt"), rule!(Warning "comment-in-text")], check };

/// The endings of the names of prompt files.
const PROMPT_ENDINGS: [&str; 7] = [".md", ".markdown", ".txt", ".j2", ".jinja", ".jinja2", ".prompt"];

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let prompt = std::iter::once(("prompt", &job.parent.prompt));
    let systems = job.agents().filter_map(|agent| Some(("system", agent.system?)));
    for (key, text) in prompt.chain(systems) {
        if let PromptText::Text(written) = &text.value
            && !text.node.is_placeholder()
            && !has_unknown_tag(subject, &text.node)
        {
            findings.extend(path_as_prompt(subject, key, &text.node, written));
            findings.extend(cut_by_comment(&text.node));
        }
    }
    let names = job.checks.iter().map(|check| &check.name.node);
    names.filter(|node| !node.is_placeholder()).for_each(|node| findings.extend(cut_by_comment(node)));
}

/// Whether a tag before a text was reported: then the text isn't what is meant.
fn has_unknown_tag(subject: &LintContext<'_>, node: &Node) -> bool {
    let SourceSpan { source, range } = node.place();
    let is_before = |tag: &SourceSpan| {
        source.text.get(tag.range.end..range.start).is_some_and(|between| between.trim().is_empty())
            || tag.range.contains(&range.start)
    };
    subject.reported.iter().any(|found| found.code == "unknown-tag" && is_before(&found.span))
}

/// Reports a text that is the path of a prompt file.
fn path_as_prompt(subject: &LintContext<'_>, key: &str, node: &Node, text: &str) -> Option<Diagnostic> {
    let path = text.trim();
    let path = path.strip_prefix('@').unwrap_or(path);
    let path = path.strip_prefix("./").unwrap_or(path);
    if path.is_empty() || path.contains(char::is_whitespace) || path.contains("{{") {
        return None;
    }
    let is_file = subject.folder.is_some_and(|folder| folder.read(path).is_ok());
    let has_ending = PROMPT_ENDINGS.iter().any(|ending| path.to_ascii_lowercase().ends_with(ending));
    if !is_file && !has_ending {
        return None;
    }
    let message = format!("the text of `{key}` is the path of a file, not what is in the file");
    let finding = Diagnostic::warning("path-as-prompt", node.place(), message);
    Some(match is_file {
        true => finding.help(format!("write `{key}: {{ file: {path} }}` for the text of the file")),
        false => finding.help(format!(
            "write `{key}: {{ file: PATH }}` for the text of a file; the path begins in the folder of the job file"
        )),
    })
}

/// Reports a text without quotes that ends at a `#` that is probably part of it, as in `Fix issue #12`.
fn cut_by_comment(node: &Node) -> Option<Diagnostic> {
    let whole = node.place();
    let range = &whole.range;
    let rest = whole.source.text[range.end..].lines().next().unwrap_or_default();
    let comment = rest.trim_start();
    let is_comment = comment.len() < rest.len() && comment.starts_with('#');
    // Most comments have a space after their `#`.
    let is_text = is_comment && comment[1..].starts_with(char::is_alphanumeric) && !comment.contains("legwork:");
    if !node.is_plain() || !is_text || node.as_str().is_none() {
        return None;
    }
    let start = range.end + rest.len() - comment.len();
    let end = start + comment.trim_end().len();
    let place = SourceSpan { range: start..end, ..whole };
    let finding =
        Diagnostic::warning("comment-in-text", place, "` #` starts a comment of YAML: this isn't part of the text");
    Some(finding.help("put the text in quotes; if it is a comment, write a space after its `#`"))
}
