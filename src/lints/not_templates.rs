//! Reports template tags in texts that aren't templates.

use std::ops::Range;

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::{InputType, Job, input_variable};
use crate::template::{StrayTag, TagPurpose, stray_tags};
use crate::yaml::{Node, Spanned};

use super::{Lint, LintContext, outputs};

/// Tags in texts that aren't rendered.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "not-a-template")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    check_node(subject, subject.root, "this text", findings);
}

/// Checks a value and everything in it. `key` is the key that it belongs to.
fn check_node(subject: &LintContext<'_>, node: &Node, key: &str, findings: &mut Vec<Diagnostic>) {
    for item in node.items() {
        check_node(subject, &item, key, findings);
    }
    for (name, value) in node.entries() {
        // The text of a misplaced or misspelled key may be a template once the key is right.
        if subject.reported.iter().any(|found| is_same_place(&found.span, &name.place())) {
            continue;
        }
        // The reader of schemas checks this one, and of an input it has the wrong type.
        if name.text() == Some("enum") && value.as_str().is_some() {
            continue;
        }
        let key = name.text().map_or_else(|| key.to_owned(), |name| format!("`{name}`"));
        check_node(subject, &value, &key, findings);
    }
    let Some(text) = node.as_str().filter(|_| !node.is_placeholder()) else { return };
    let place = node.place();
    if subject.prompts.templates.contains_place(&place) || is_of_output(subject, &place) {
        return;
    }
    let found = match subject.job.scripts().find(|run| is_same_place(&run.place(), &place)) {
        Some(run) => tags_in_command(subject.job, run),
        None => stray_tags(text).into_iter().take(1).map(|tag| tag_in_text(node, &tag, key)).collect(),
    };
    if !found.is_empty() {
        // Other findings in the text are consequences of the tag.
        findings.retain(|finding| !finding.span.is_within(&place));
        findings.extend(found);
    }
}

/// Whether a text is a list or a target of an output that is written as a template. Those have a check of their own.
fn is_of_output(subject: &LintContext<'_>, place: &SourceSpan) -> bool {
    outputs::template_places(subject.job).iter().any(|output| is_same_place(output, place))
}

fn is_same_place(one: &SourceSpan, other: &SourceSpan) -> bool {
    one.is_within(other) && other.is_within(one)
}

fn tag_in_text(node: &Node, tag: &StrayTag, key: &str) -> Diagnostic {
    let message = format!("{key} isn't a template: this tag isn't rendered");
    Diagnostic::error("not-a-template", node.place_of_range(tag.range.clone()), message)
        .help("remove the tag; only `prompt`, `system`, `skip_if` and the `when` of a check are templates")
}

/// Findings for the tags in a check's command, with a fix where a variable of the shell is certain to do the same.
fn tags_in_command(job: &Job, run: &Spanned<String>) -> Vec<Diagnostic> {
    // Tags without variables of the job may belong to another program, but bash itself can't read `${{`.
    let is_expansion = |tag: &StrayTag| run.value[..tag.range.start].ends_with('$');
    let is_stray = |tag: &StrayTag| tag.purpose != TagPurpose::Other || is_expansion(tag);
    let tags = stray_tags(&run.value).into_iter().filter(is_stray);
    let finding = |tag: StrayTag| {
        let place = run.node.place_of_range(tag.range.clone());
        let message = "`run` is plain shell, not a template: this tag isn't rendered";
        let finding = Diagnostic::error("not-a-template", place.clone(), message);
        if tag.purpose == TagPurpose::Other {
            return finding.help(
                "the workflow that starts the job gives it the value as an input, `--set NAME=VALUE`; the command gets it as \
                 `\"$INPUT_NAME\"`",
            );
        }
        let variable = match &tag.purpose {
            TagPurpose::Variable(variable) => variable,
            TagPurpose::Statement => {
                return finding.help("use the shell's own `if` and `for`, or the `when` of the check");
            }
            TagPurpose::Expression | TagPurpose::Other => {
                return finding.help("the command gets every input as a variable: write `\"$INPUT_NAME\"`");
            }
        };
        if variable.starts_with("before.") || variable.starts_with("state.") {
            return finding
                .help("only templates have this value: let the step leave it in a file of `\"$LEGWORK_FILES\"`");
        }
        let input = variable.strip_prefix("inputs.");
        let shell = match (input, variable.as_str()) {
            (Some(name), _) => {
                let shell = input_variable(name);
                match job.inputs().find(|(known, _)| known.value == name).map(|(_, input)| input.kind.value) {
                    None => return finding.help(format!("declare the input `{name}`, and write `\"${shell}\"`")),
                    Some(InputType::List) => {
                        return finding.help(format!(
                            "the list is in `\"${shell}\"`, one item per line; `mapfile -t` reads it into an array"
                        ));
                    }
                    Some(_) => shell,
                }
            }
            (None, "run.id") => "LEGWORK_RUN_ID".to_owned(),
            (None, "workspace") => return finding.help("the command starts in the workspace: write `\"$PWD\"`"),
            (None, "run.date") => return finding.help("write `$(date +%F)`"),
            (None, _) => return finding.help("write the job's name itself"),
        };
        let quoted = format!("\"${shell}\"");
        let finding = finding.help(format!("write `{quoted}`, the value as one word"));
        let is_word = is_unquoted_word(&run.value, &tag.range);
        match in_source(&place, &run.value[tag.range], &run.node, &quoted).filter(|_| is_word) {
            Some(replacement) => finding.replace_with(replacement),
            None => finding,
        }
    };
    tags.map(finding).collect()
}

/// The replacement as the YAML file must write it; `None` if the file doesn't hold the tag letter for letter.
fn in_source(place: &SourceSpan, tag: &str, node: &Node, replacement: &str) -> Option<String> {
    let source = &place.source.text;
    let is_double_quoted = source[node.place().range].starts_with('"');
    let written = if is_double_quoted { replacement.replace('"', "\\\"") } else { replacement.to_owned() };
    (source[place.range.clone()] == *tag).then_some(written)
}

/// Whether a range of a command is certainly one whole word of the shell outside of quotes. False if counting quotes
/// can't decide that (here-documents, backquotes, `$'...'`).
fn is_unquoted_word(command: &str, range: &Range<usize>) -> bool {
    let (before, after) = (&command[..range.start], &command[range.end..]);
    let separates = |letter: char| letter.is_whitespace() || ";|&()".contains(letter);
    let is_word = before.chars().next_back().is_none_or(separates) && after.chars().next().is_none_or(separates);
    let is_simple = !["<<", "`", "$'", "#"].iter().any(|part| before.contains(part));
    let mut quote = None;
    let mut letters = before.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if letter == open => quote = None,
            (None | Some('"'), '\\') => drop(letters.next()),
            _ => {}
        }
    }
    is_word && is_simple && quote.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_unquoted_words_are_recognized() {
        let is_word = |command: &str| {
            let start = command.find('@').unwrap();
            is_unquoted_word(command, &(start..start + 1))
        };
        for command in ["@", "test -f @", "cat @; ls", "(@)", "a 'b' @ 'c'", "echo it\\'s @", "a\n@\nb", "x && @ | y"] {
            assert!(is_word(command), "{command}");
        }
        for command in [
            "'@'",
            "\"a @ b\"",
            "a@",
            "@b",
            "x=@",
            "${@}",
            "cat <<E\n@\nE",
            "`a @ b`",
            "# @",
            "\"$(a @ b)\"",
            "'a\\' 'b @ '",
        ] {
            assert!(!is_word(command), "{command}");
        }
    }
}
