//! Cross-checks the strict parser: a complete parser for bash (rable, which is tested against bash itself) must find the
//! same commands. It runs after the strict parser, so it never gets long or nested input.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rable::{ListOperator, Node, NodeKind, PipeSep};

use super::ast::{ScriptToken, ShellScript, UnsupportedSyntax, parse};

/// Parses a command with both parsers.
///
/// # Errors
/// The first unsupported syntax, or a difference between the parsers.
pub(super) fn parse_and_cross_check(text: &str) -> Result<ShellScript, UnsupportedSyntax> {
    let script = parse(text)?;
    if agrees_with_rable(text, &script) { Ok(script) } else { Err(UnsupportedSyntax::new("ambiguous syntax", text)) }
}

/// Whether rable parses a command as this script.
fn agrees_with_rable(text: &str, script: &ShellScript) -> bool {
    // A panic counts as a command that it can't parse.
    let parsed = catch_unwind(AssertUnwindSafe(|| rable::parse(text, true)));
    let Ok(Ok(nodes)) = parsed else { return false };
    let mut tokens = Vec::new();
    let mut is_supported = true;
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            tokens.push(ScriptToken::Operator(";"));
        }
        is_supported &= list(node, &mut tokens).is_some();
    }
    is_supported && tokens == script.tokens()
}

/// Adds the tokens of a list of commands; `None` if it contains anything but simple commands.
fn list<'a>(node: &'a Node, tokens: &mut Vec<ScriptToken<'a>>) -> Option<()> {
    match &node.kind {
        NodeKind::List { items } => {
            for (index, item) in items.iter().enumerate() {
                list(&item.command, tokens)?;
                let operator = match item.operator {
                    Some(ListOperator::And) => "&&",
                    Some(ListOperator::Or) => "||",
                    Some(ListOperator::Semi) => ";",
                    Some(ListOperator::Background) => return None,
                    None if index + 1 < items.len() => return None,
                    None => return Some(()),
                };
                if index + 1 < items.len() {
                    tokens.push(ScriptToken::Operator(operator));
                } else if operator != ";" {
                    return None;
                }
            }
            Some(())
        }
        NodeKind::Negation { pipeline: inner } => {
            tokens.push(ScriptToken::Not);
            pipeline(inner, tokens)
        }
        _ => pipeline(node, tokens),
    }
}

fn pipeline<'a>(node: &'a Node, tokens: &mut Vec<ScriptToken<'a>>) -> Option<()> {
    let NodeKind::Pipeline { commands, separators } = &node.kind else { return command(node, false, tokens) };
    for (index, node) in commands.iter().enumerate() {
        let after = separators.get(index);
        command(node, after == Some(&PipeSep::PipeBoth), tokens)?;
        match after {
            Some(PipeSep::Pipe) => tokens.push(ScriptToken::Operator("|")),
            Some(PipeSep::PipeBoth) => tokens.push(ScriptToken::Operator("|&")),
            None => {}
        }
    }
    Some(())
}

/// Adds the tokens of a simple command. Before `|&`, rable adds a redirection that wasn't written.
fn command<'a>(node: &'a Node, pipes_stderr: bool, tokens: &mut Vec<ScriptToken<'a>>) -> Option<()> {
    let NodeKind::Command { assignments, words, redirects } = &node.kind else { return None };
    if !assignments.is_empty() || words.is_empty() {
        return None;
    }
    for node in words {
        tokens.push(ScriptToken::Word(word(node)?));
    }
    let written = redirects.len().checked_sub(usize::from(pipes_stderr))?;
    for node in &redirects[..written] {
        let NodeKind::Redirect { op, target, fd, varfd: None } = &node.kind else { return None };
        let stream = if *fd < 0 { String::new() } else { fd.to_string() };
        tokens.push(ScriptToken::Redirection(format!("{stream}{op}{}", word(target)?)));
    }
    Some(())
}

/// The text of a word without expansions.
fn word(node: &Node) -> Option<&str> {
    let NodeKind::Word { value, parts, .. } = &node.kind else { return None };
    parts.iter().all(|part| matches!(part.kind, NodeKind::WordLiteral { .. })).then_some(value)
}

#[cfg(test)]
mod tests;
