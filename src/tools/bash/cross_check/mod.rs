//! A second opinion: a whole parser of bash's language (rable, which is tested against bash's own) must read in a command
//! what the strict reader read in it. It comes after the strict reader, so that nothing nested or long reaches it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rable::{ListOperator, Node, NodeKind, PipeSep};

use super::ast::{ScriptToken, ShellScript, UnsupportedSyntax, parse};

/// Reads a command with both.
///
/// # Errors
/// The first thing in it that can't be judged, or that they differ.
pub(super) fn parse_and_cross_check(text: &str) -> Result<ShellScript, UnsupportedSyntax> {
    let script = parse(text)?;
    if agrees_with_rable(text, &script) {
        Ok(script)
    } else {
        Err(UnsupportedSyntax::new("something that can be read in two ways", text))
    }
}

/// Whether the whole parser reads just this script.
fn agrees_with_rable(text: &str, script: &ShellScript) -> bool {
    // A panic in it is no more than a command that it can't read.
    let parsed = catch_unwind(AssertUnwindSafe(|| rable::parse(text, true)));
    let Ok(Ok(nodes)) = parsed else { return false };
    let mut pieces = Vec::new();
    let mut known = true;
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            pieces.push(ScriptToken::Operator(";"));
        }
        known &= list(node, &mut pieces).is_some();
    }
    known && pieces == script.tokens()
}

/// Adds the pieces of a list of commands; `None` where there is anything else in it than plain commands.
fn list<'a>(node: &'a Node, pieces: &mut Vec<ScriptToken<'a>>) -> Option<()> {
    match &node.kind {
        NodeKind::List { items } => {
            for (index, item) in items.iter().enumerate() {
                list(&item.command, pieces)?;
                let joint = match item.operator {
                    Some(ListOperator::And) => "&&",
                    Some(ListOperator::Or) => "||",
                    Some(ListOperator::Semi) => ";",
                    Some(ListOperator::Background) => return None,
                    None if index + 1 < items.len() => return None,
                    None => return Some(()),
                };
                if index + 1 < items.len() {
                    pieces.push(ScriptToken::Operator(joint));
                } else if joint != ";" {
                    return None;
                }
            }
            Some(())
        }
        NodeKind::Negation { pipeline: inner } => {
            pieces.push(ScriptToken::Not);
            pipeline(inner, pieces)
        }
        _ => pipeline(node, pieces),
    }
}

fn pipeline<'a>(node: &'a Node, pieces: &mut Vec<ScriptToken<'a>>) -> Option<()> {
    let NodeKind::Pipeline { commands, separators } = &node.kind else { return command(node, false, pieces) };
    for (index, node) in commands.iter().enumerate() {
        let after = separators.get(index);
        command(node, after == Some(&PipeSep::PipeBoth), pieces)?;
        match after {
            Some(PipeSep::Pipe) => pieces.push(ScriptToken::Operator("|")),
            Some(PipeSep::PipeBoth) => pieces.push(ScriptToken::Operator("|&")),
            None => {}
        }
    }
    Some(())
}

/// A plain command. Where `|&` follows, the parser adds a redirection of its own.
fn command<'a>(node: &'a Node, both: bool, pieces: &mut Vec<ScriptToken<'a>>) -> Option<()> {
    let NodeKind::Command { assignments, words, redirects } = &node.kind else { return None };
    if !assignments.is_empty() || words.is_empty() {
        return None;
    }
    for node in words {
        pieces.push(ScriptToken::Word(word(node)?));
    }
    let written = redirects.len().checked_sub(usize::from(both))?;
    for node in &redirects[..written] {
        let NodeKind::Redirect { op, target, fd, varfd: None } = &node.kind else { return None };
        let stream = if *fd < 0 { String::new() } else { fd.to_string() };
        pieces.push(ScriptToken::Redirection(format!("{stream}{op}{}", word(target)?)));
    }
    Some(())
}

/// A word in which nothing is expanded.
fn word(node: &Node) -> Option<&str> {
    let NodeKind::Word { value, parts, .. } = &node.kind else { return None };
    parts.iter().all(|part| matches!(part.kind, NodeKind::WordLiteral { .. })).then_some(value)
}

#[cfg(test)]
mod tests;
