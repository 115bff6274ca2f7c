//! Helpers for several checks: the names that a statement sets, and the statements within it.

use std::ops::Range;

use minijinja::machinery::ast::{CallArg, Expr, Macro, Stmt};

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

/// The first byte of an expression; parentheses around its first part may begin before it. The engine's own span of a
/// filter, test or operation may begin later or at the previous token.
pub(super) fn first_byte(expression: &Expr<'_>) -> usize {
    let start = expression.span().start_offset as usize;
    match expression {
        Expr::Var(_) | Expr::Const(_) | Expr::List(_) | Expr::Map(_) => start,
        Expr::Tuple(_) | Expr::UnaryOp(_) => children(expression).first().map_or(start, |it| first_byte(it).min(start)),
        _ => children(expression).first().map_or(start, |it| first_byte(it)),
    }
}

/// The expressions within an expression, in order.
pub(super) fn children<'s, 'a>(expression: &'s Expr<'a>) -> Vec<&'s Expr<'a>> {
    match expression {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(it) => {
            let bounds = [&it.start, &it.stop, &it.step].into_iter().flatten();
            std::iter::once(&it.expr).chain(bounds).collect()
        }
        Expr::UnaryOp(it) => vec![&it.expr],
        Expr::BinOp(it) => vec![&it.left, &it.right],
        Expr::Compare(it) => std::iter::once(&it.expr).chain(it.ops.iter().map(|op| &op.expr)).collect(),
        Expr::IfExpr(it) => [&it.true_expr, &it.test_expr].into_iter().chain(&it.false_expr).collect(),
        Expr::Filter(it) => it.expr.iter().chain(it.args.iter().map(argument_value)).collect(),
        Expr::Test(it) => std::iter::once(&it.expr).chain(it.args.iter().map(argument_value)).collect(),
        Expr::GetAttr(it) => vec![&it.expr],
        Expr::GetItem(it) => vec![&it.expr, &it.subscript_expr],
        Expr::Call(it) => std::iter::once(&it.expr).chain(it.args.iter().map(argument_value)).collect(),
        Expr::List(it) => it.items.iter().collect(),
        Expr::Tuple(it) => it.items.iter().collect(),
        Expr::Map(it) => it.keys.iter().chain(&it.values).collect(),
    }
}

/// The value of an argument.
pub(super) fn argument_value<'s, 'a>(argument: &'s CallArg<'a>) -> &'s Expr<'a> {
    match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value) => value,
    }
}

/// The expressions that a statement evaluates, without those of its calls, targets and inner statements.
pub(super) fn expressions<'s, 'a>(statement: &'s Stmt<'a>) -> Vec<&'s Expr<'a>> {
    match statement {
        Stmt::EmitExpr(it) => vec![&it.expr],
        Stmt::ForLoop(it) => std::iter::once(&it.iter).chain(&it.filter_expr).collect(),
        Stmt::IfCond(it) => vec![&it.expr],
        Stmt::WithBlock(it) => it.assignments.iter().map(|(_, value)| value).collect(),
        Stmt::Set(it) => vec![&it.expr],
        Stmt::SetBlock(it) => it.filter.iter().collect(),
        Stmt::AutoEscape(it) => vec![&it.enabled],
        Stmt::FilterBlock(it) => vec![&it.filter],
        Stmt::Import(it) => vec![&it.expr],
        Stmt::FromImport(it) => vec![&it.expr],
        Stmt::Extends(it) => vec![&it.name],
        Stmt::Include(it) => vec![&it.name],
        Stmt::Macro(it) => it.defaults.iter().collect(),
        Stmt::Template(_) | Stmt::EmitRaw(_) | Stmt::Block(_) | Stmt::CallBlock(_) | Stmt::Do(_) => Vec::new(),
    }
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
