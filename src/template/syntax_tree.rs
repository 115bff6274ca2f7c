//! Helpers for several checks: the names that a statement sets, and the statements within it.

use std::ops::Range;

use minijinja::machinery::ast::{Expr, Macro, Stmt};

/// The bytes that an expression covers. The engine's own span of a chain such as `a.b.c` begins at its last part.
pub(super) fn range(expression: &Expr<'_>) -> Range<usize> {
    let span = expression.span();
    let base = match expression {
        Expr::GetAttr(it) => Some(&it.expr),
        Expr::GetItem(it) => Some(&it.expr),
        Expr::Slice(it) => Some(&it.expr),
        Expr::Call(it) => Some(&it.expr),
        _ => None,
    };
    let start = base.map_or(span.start_offset as usize, |base| range(base).start.min(span.start_offset as usize));
    start..span.end_offset as usize
}

/// The statements within a statement, one list for each of its branches.
pub(super) fn bodies<'s, 'a>(statement: &'s Stmt<'a>) -> Vec<&'s [Stmt<'a>]> {
    match statement {
        Stmt::Template(it) => vec![&it.children],
        Stmt::ForLoop(it) => vec![&it.body, &it.else_body],
        Stmt::IfCond(it) => vec![&it.true_body, &it.false_body],
        Stmt::WithBlock(it) => vec![&it.body],
        Stmt::SetBlock(it) => vec![&it.body],
        Stmt::AutoEscape(it) => vec![&it.body],
        Stmt::FilterBlock(it) => vec![&it.body],
        Stmt::Block(it) => vec![&it.body],
        Stmt::Macro(it) => vec![&it.body],
        Stmt::CallBlock(it) => vec![&it.macro_decl.body],
        Stmt::EmitExpr(_)
        | Stmt::EmitRaw(_)
        | Stmt::Set(_)
        | Stmt::Import(_)
        | Stmt::FromImport(_)
        | Stmt::Extends(_)
        | Stmt::Include(_)
        | Stmt::Do(_) => Vec::new(),
    }
}

/// The macro that a statement declares.
pub(super) fn declared_macro<'s, 'a>(statement: &'s Stmt<'a>) -> Option<&'s Macro<'a>> {
    match statement {
        Stmt::Macro(it) => Some(it),
        Stmt::CallBlock(it) => Some(&it.macro_decl),
        _ => None,
    }
}

/// The names that a statement sets; a macro's own name and its arguments aren't among them.
pub(super) fn names_set<'s, 'a>(statement: &'s Stmt<'a>) -> Vec<&'a str> {
    let targets: Vec<&'s Expr<'a>> = match statement {
        Stmt::ForLoop(it) => vec![&it.target],
        Stmt::WithBlock(it) => it.assignments.iter().map(|(target, _)| target).collect(),
        Stmt::Set(it) => vec![&it.target],
        Stmt::SetBlock(it) => vec![&it.target],
        Stmt::Import(it) => vec![&it.name],
        Stmt::FromImport(it) => it.names.iter().map(|(name, alias)| alias.as_ref().unwrap_or(name)).collect(),
        _ => Vec::new(),
    };
    targets.into_iter().flat_map(names_in_target).collect()
}

/// The names in the target of an assignment: one, or several in a list.
pub(super) fn names_in_target<'a>(target: &Expr<'a>) -> Vec<&'a str> {
    match target {
        Expr::Var(name) => vec![name.id],
        Expr::List(it) => it.items.iter().flat_map(names_in_target).collect(),
        Expr::Tuple(it) => it.items.iter().flat_map(names_in_target).collect(),
        _ => Vec::new(),
    }
}
