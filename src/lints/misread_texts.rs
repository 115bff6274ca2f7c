//! Finds texts that YAML or legwork reads otherwise than they are probably meant.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::{McpServer, PromptText, ToolEntry, input_variable};
use crate::yaml::{Node, Spanned};

use super::{Lint, LintContext};

/// Prompts that are the path of a file, texts that end at a comment or have an escape sequence by mistake, and variables that
/// nothing replaces.
pub(super) const LINT: Lint = Lint {
    rules: &[
        rule!(Warning "path-as-prompt"),
        rule!(Warning "comment-in-text"),
        rule!(Warning "escape-in-text"),
        rule!(Warning "unexpanded-variable"),
    ],
    check,
};

/// The endings of the names of prompt files.
const PROMPT_ENDINGS: [&str; 12] = [
    ".md",
    ".mdx",
    ".markdown",
    ".txt",
    ".text",
    ".j2",
    ".jinja",
    ".jinja2",
    ".tmpl",
    ".liquid",
    ".prompt",
    ".prompty",
];

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let prompt = std::iter::once(("prompt", &job.parent.prompt));
    let systems = job.agents().filter_map(|agent| Some(("system", agent.system?)));
    for (key, text) in prompt.chain(systems) {
        if let PromptText::Text(written) = &text.value
            && !text.node.is_placeholder()
        {
            findings.extend(path_as_prompt(subject, key, &text.node, written));
            findings.extend(input_as_variable(subject, &text.node, written));
        }
    }
    check_texts(subject, subject.root, findings);
    for server in job.mcp.values() {
        check_server(server, findings);
    }
}

/// Checks every text of a value and of what is in it.
fn check_texts(subject: &LintContext<'_>, node: &Node, findings: &mut Vec<Diagnostic>) {
    node.items().chain(node.entries().map(|(_, value)| value)).for_each(|part| check_texts(subject, &part, findings));
    if node.is_placeholder() || node.as_str().is_none() {
        return;
    }
    findings.extend(escape_in_text(node));
    // ` #` starts a comment in a command, too.
    let place = node.place();
    if !subject.job.scripts().any(|run| run.place().range == place.range) {
        findings.extend(cut_by_comment(node));
    }
}

/// Reports an escape sequence that is a control character, which hardly a text has: `"\bword\b"` is meant for grep.
fn escape_in_text(node: &Node) -> Option<Diagnostic> {
    let is_meant = |letter: char| matches!(letter, '\n' | '\t' | '\r');
    let place = node.place();
    let written = place.source.text.get(place.range.clone()).filter(|written| written.starts_with('"'))?;
    let found = node.as_str()?.chars().find(|letter| letter.is_control() && !is_meant(*letter))?;
    let escape = match found {
        '\0' => "\\0",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\u{1b}' => "\\e",
        _ => "\\",
    };
    // Each escape sequence is two characters or more, so a backslash never escapes the next match.
    let mut at = 0;
    while let Some(next) = written.get(at..)?.find('\\') {
        at += next;
        if written.get(at..)?.starts_with(escape) {
            break;
        }
        at += 2;
    }
    let start = place.range.start + at;
    let end = (start + 2).min(place.range.end);
    let code = u32::from(found);
    let message = format!("in double quotes, this is the control character U+{code:04X}, and no backslash");
    let finding = Diagnostic::warning("escape-in-text", SourceSpan { range: start..end, ..place }, message);
    Some(finding.help("put the text in single quotes, or write each backslash twice"))
}

/// Reports the shell variable of an input in a prompt whose agent has no shell.
fn input_as_variable(subject: &LintContext<'_>, node: &Node, text: &str) -> Option<Diagnostic> {
    let has_bash = |tools: &[Spanned<ToolEntry>]| tools.iter().any(|tool| tool.value.name() == "bash");
    if subject.job.agents().any(|agent| has_bash(agent.tools)) {
        return None;
    }
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    subject.job.inputs().find_map(|(name, _)| {
        let variable = input_variable(&name.value);
        let written = [format!("${{{variable}}}"), format!("${variable}")];
        let (at, written) = written.iter().find_map(|written| Some((text.find(written)?, written)))?;
        let end = at + written.len();
        if !written.ends_with('}') && text[end..].starts_with(is_word) {
            return None;
        }
        let message = format!("`{written}` is a variable of the shell, and stays in the text as it is");
        let finding = Diagnostic::warning("unexpanded-variable", node.place_of_range(at..end), message);
        Some(finding.help(format!("write `{{{{ inputs.{} }}}}`", name.value)))
    })
}

/// Reports what a shell would replace in the command and the variables of a server: no shell starts it.
fn check_server(server: &McpServer, findings: &mut Vec<Diagnostic>) {
    let words = server.command.iter().flat_map(|command| &command.value);
    let program = words.clone().next().map_or("", |word| word.value.as_str());
    let program = program.rsplit('/').next().unwrap_or_default();
    if !["sh", "bash", "dash", "zsh", "ksh"].contains(&program) {
        for word in words {
            let help = "write the value itself, or start a shell: `command: [bash, -c, \"exec PROGRAM ...\"]`";
            findings.extend(unexpanded(&word.node, &word.value, help));
        }
    }
    for (_, value) in server.env.values() {
        let help = "write the value itself; a variable of your own environment is listed by its name: `env: [NAME]`";
        findings.extend(unexpanded(&value.node, &value.value, help));
    }
}

/// Reports a variable, a command or a home folder that a shell would replace.
fn unexpanded(node: &Node, text: &str, help: &str) -> Option<Diagnostic> {
    let is_name = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_alphabetic() || "_{(".contains(letter));
    // A template tag is reported as such.
    let is_variable = |(at, _): &(usize, &str)| is_name(&text[at + 1..]) && !text[at + 1..].starts_with("{{");
    let range = match text.match_indices('$').find(is_variable) {
        Some((at, _)) => {
            let end = text[at..].find(char::is_whitespace).map_or(text.len(), |end| at + end);
            at..end
        }
        None if text.starts_with("~/") => 0..2,
        None => return None,
    };
    let message = format!("`{}` is for a shell, and nothing replaces it here", &text[range.clone()]);
    Some(Diagnostic::warning("unexpanded-variable", node.place_of_range(range), message).help(help))
}

/// Reports a text that is the path of a prompt file.
fn path_as_prompt(subject: &LintContext<'_>, key: &str, node: &Node, text: &str) -> Option<Diagnostic> {
    let path = text.trim();
    let path = path.strip_prefix('@').unwrap_or(path);
    let path = path.strip_prefix("file:").map_or(path, |path| path.trim_start_matches("//"));
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
    let starts_text = |letter: char| letter.is_alphanumeric() || "[{(<!@$%\"'`_".contains(letter);
    let is_text = is_comment && comment[1..].starts_with(starts_text) && !comment.contains("legwork:");
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
