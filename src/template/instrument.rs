//! Adds limits to a template, so that rendering it can't use too much memory.
//!
//! The engine limits the number of steps, not the size of values, and its operators can't be replaced. So filters of
//! [`super::render_limits`] are inserted into the text: they measure values, or do the work of the operators. All other
//! text stays as it is. The place of an error is mapped back to the original.

use std::ops::Range;

use minijinja::machinery::{ast, tokenize};

use super::render_limits::{ADD_TEXT, CHECK, FOLD, READ};
use super::syntax_tree::{argument_value, bodies, children, expressions, first_byte, range};
use super::tags::is_tag_of;

/// Raw text up to this size isn't counted. The limit on steps bounds how much of it can be captured.
const SMALL_TEXT: usize = 64;

/// A template that is safe to render.
#[derive(Debug)]
pub(super) struct InstrumentedTemplate {
    /// The text that the engine gets.
    pub(super) text: String,
    /// Its pieces in order, without gaps.
    pieces: Vec<TextPiece>,
    parts: Vec<TemplatePart>,
}

/// A piece of the text that the engine gets, and the range of the original text that it stands for.
#[derive(Debug)]
struct TextPiece {
    instrumented: Range<usize>,
    original: Range<usize>,
    /// Whether both are the same bytes.
    is_verbatim: bool,
}

/// A part of the original text, and the range to report for an error in it.
#[derive(Debug)]
struct TemplatePart {
    range: Range<usize>,
    reported: Range<usize>,
}

impl InstrumentedTemplate {
    /// Instruments the template `text`, which consists of these statements.
    pub(super) fn new(text: &str, statements: &[ast::Stmt<'_>]) -> Self {
        let tokens = tokenize(text, false, Default::default()).map_while(Result::ok);
        let tokens = tokens.map(|(_, span)| span.start_offset as usize..span.end_offset as usize).collect();
        let mut instrumenter = Instrumenter { text, tokens, edits: Vec::new(), parts: Vec::new() };
        instrumenter.statements(statements);
        let Instrumenter { mut edits, parts, .. } = instrumenter;
        edits.sort_by_key(|edit| edit.replaced.start);
        let mut instrumented = Self { text: String::with_capacity(text.len()), pieces: Vec::new(), parts };
        let mut copied = 0;
        for Edit { replaced, with, expression } in edits {
            instrumented.push(&text[copied..replaced.start], copied..replaced.start, true);
            instrumented.push(&with, expression, false);
            copied = replaced.end;
        }
        instrumented.push(&text[copied..], copied..text.len(), true);
        instrumented
    }

    fn push(&mut self, piece: &str, original: Range<usize>, is_verbatim: bool) {
        let start = self.text.len();
        self.text.push_str(piece);
        self.pieces.push(TextPiece { instrumented: start..self.text.len(), original, is_verbatim });
    }

    /// The range of the original to report for an error at a range of the instrumented text.
    pub(super) fn reported_range(&self, error: &Range<usize>) -> Option<Range<usize>> {
        let first = self.pieces.iter().find(|piece| piece.instrumented.end > error.start)?;
        let last = self.pieces.iter().find(|piece| piece.instrumented.end >= error.end)?;
        let offset = |piece: &TextPiece, at: usize| piece.original.start + (at - piece.instrumented.start);
        let start = if first.is_verbatim { offset(first, error.start) } else { first.original.start };
        let end = if last.is_verbatim { offset(last, error.end) } else { last.original.end };
        let holds = |part: &&TemplatePart| part.range.start <= start && end <= part.range.end;
        Some(self.parts.iter().filter(holds).min_by_key(|part| part.range.len())?.reported.clone())
    }
}

/// A replacement of a range of the original text, which is often empty.
struct Edit {
    replaced: Range<usize>,
    with: String,
    /// The expression that the new text belongs to.
    expression: Range<usize>,
}

/// Collects the edits for a template. Those at the same place are in the order of their texts.
struct Instrumenter<'t> {
    text: &'t str,
    tokens: Vec<Range<usize>>,
    edits: Vec<Edit>,
    parts: Vec<TemplatePart>,
}

impl Instrumenter<'_> {
    fn insert(&mut self, at: usize, text: impl Into<String>, expression: &Range<usize>) {
        self.edits.push(Edit { replaced: at..at, with: text.into(), expression: expression.clone() });
    }

    fn statements(&mut self, statements: &[ast::Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
            bodies(statement).into_iter().for_each(|body| self.statements(body));
        }
    }

    fn statement(&mut self, statement: &ast::Stmt<'_>) {
        use ast::Stmt;
        let (span, named) = match statement {
            Stmt::EmitRaw(it) => return self.raw(it.raw),
            Stmt::CallBlock(it) => {
                self.call(&it.call);
                return it.macro_decl.defaults.iter().for_each(|default| self.expression(default));
            }
            Stmt::Do(it) => return self.call(&it.call),
            // Errors in the targets are reported at the value, errors in including a file at its name.
            Stmt::ForLoop(it) => {
                let mut tag = it.span();
                tag.end_offset = it.filter_expr.as_ref().unwrap_or(&it.iter).span().end_offset;
                (Some(tag), Some(&it.iter))
            }
            Stmt::Set(it) => (Some(it.span()), Some(&it.expr)),
            Stmt::Import(it) => (Some(it.span()), Some(&it.expr)),
            Stmt::FromImport(it) => (Some(it.span()), Some(&it.expr)),
            Stmt::Extends(it) => (Some(it.span()), Some(&it.name)),
            Stmt::Include(it) => (Some(it.span()), Some(&it.name)),
            _ => (None, None),
        };
        if let (Some(span), Some(named)) = (span, named) {
            let range_of_tag = span.start_offset as usize..span.end_offset as usize;
            self.parts.push(TemplatePart { range: range_of_tag, reported: range(named) });
        }
        expressions(statement).into_iter().for_each(|expression| self.expression(expression));
    }

    /// Counts a text of the template.
    fn raw(&mut self, raw: &str) {
        if raw.len() > SMALL_TEXT {
            let at = raw.as_ptr().addr() - self.text.as_ptr().addr();
            let count = format!("{{{{ {}|{ADD_TEXT} }}}}", raw.len());
            let before = self.text[..at].trim_end();
            let is_in_raw_block = before.rfind("{%").is_some_and(|tag| is_tag_of(&before[tag..], "raw"));
            let count = if is_in_raw_block { format!("{{% endraw %}}{count}{{% raw %}}") } else { count };
            self.insert(at, count, &(at..at));
        }
    }

    fn expression(&mut self, expression: &ast::Expr<'_>) {
        use ast::Expr;
        let place = range(expression);
        self.parts.push(TemplatePart { range: place.clone(), reported: place.clone() });
        match expression {
            Expr::BinOp(it) if folded(it.op).is_some() => self.fold_operators(it, &place),
            Expr::BinOp(it) if !matches!(it.op, ast::BinOpKind::ScAnd | ast::BinOpKind::ScOr | ast::BinOpKind::Pow) => {
                self.read(&it.left, &place);
                self.read(&it.right, &place);
            }
            Expr::Compare(it) => {
                self.read(&it.expr, &place);
                it.ops.iter().for_each(|op| self.read(&op.expr, &place));
            }
            Expr::GetItem(it) if !is_name(&it.subscript_expr) => {
                self.read(&it.expr, &place);
                self.read(&it.subscript_expr, &place);
            }
            Expr::GetItem(it) => self.base(&it.expr, &place),
            Expr::GetAttr(it) => self.base(&it.expr, &place),
            Expr::Slice(it) => {
                self.read(&it.expr, &place);
                [&it.start, &it.stop, &it.step].into_iter().flatten().for_each(|bound| self.expression(bound));
            }
            Expr::Test(it) => {
                self.expression(&it.expr);
                // An argument without parentheses can't have a filter.
                it.args.iter().map(argument_value).for_each(|argument| self.wrapped(argument, ")", &place));
            }
            Expr::Call(it) => self.call(it),
            Expr::Tuple(it)
                if it.items.first().is_some_and(|first| range(first).start < it.span().start_offset as usize) =>
            {
                // A tuple without parentheses.
                self.insert(self.extent(&it.items[0]).0.start, "(", &place);
                it.items.iter().for_each(|item| self.expression(item));
                self.insert(place.end, ")", &place);
            }
            _ => children(expression).into_iter().for_each(|child| self.expression(child)),
        }
        if is_checked(expression) {
            self.insert(place.end, format!("|{CHECK}"), &place);
        }
    }

    fn call(&mut self, call: &ast::Spanned<ast::Call<'_>>) {
        let place = call.span().start_offset as usize..call.span().end_offset as usize;
        self.base(&call.expr, &place);
        let is_method = matches!(call.identify_call(), ast::CallType::Method(..));
        for argument in call.args.iter().map(argument_value) {
            if is_method { self.read(argument, &place) } else { self.expression(argument) }
        }
    }

    /// Instruments the value that an attribute, a subscript or a call is applied to.
    fn base(&mut self, expression: &ast::Expr<'_>, user: &Range<usize>) {
        match is_checked(expression) {
            true => self.wrapped(expression, ")", user),
            false => self.expression(expression),
        }
    }

    /// Instruments a value that is only read, such as an operand of a comparison.
    fn read(&mut self, expression: &ast::Expr<'_>, reader: &Range<usize>) {
        match expression {
            // These are small.
            ast::Expr::Const(_) | ast::Expr::UnaryOp(_) => self.expression(expression),
            _ => self.wrapped(expression, &format!("|{READ})"), reader),
        }
    }

    /// Puts an expression between parentheses.
    fn wrapped(&mut self, expression: &ast::Expr<'_>, close: &str, user: &Range<usize>) {
        let Range { start, end } = self.extent(expression).0;
        self.insert(start, "(", user);
        self.expression(expression);
        self.insert(end, close, user);
    }

    /// Replaces a chain of operators by one filter, because a long chain must not nest: `[a, b, c]|fold('~+')`.
    fn fold_operators(&mut self, last: &ast::BinOp<'_>, place: &Range<usize>) {
        let mut operands = vec![&last.right];
        let mut signs = vec![folded(last.op).unwrap_or_default()];
        let mut left = &last.left;
        while let ast::Expr::BinOp(it) = left
            && let Some(sign) = folded(it.op)
            && !self.extent(left).1
        {
            operands.push(&it.right);
            signs.push(sign);
            left = &it.left;
        }
        let mut end = self.extent(left).0.start;
        let mut before = "[";
        for operand in std::iter::once(left).chain(operands.into_iter().rev()) {
            let extent = self.extent(operand).0;
            self.edits.push(Edit { replaced: end..extent.start, with: before.to_owned(), expression: place.clone() });
            self.expression(operand);
            (end, before) = (extent.end, ", ");
        }
        let signs: String = signs.into_iter().rev().collect();
        self.insert(end, format!("]|{FOLD}('{signs}')"), place);
    }

    /// The bytes of an expression with the parentheses around it, and whether there are any.
    fn extent(&self, expression: &ast::Expr<'_>) -> (Range<usize>, bool) {
        let (start, end) = (first_byte(expression), range(expression).end);
        let mut first = self.tokens.partition_point(|token| token.start < start);
        let mut after = self.tokens.partition_point(|token| token.end <= end);
        // Spans begin and end within the parentheses of their first and last part.
        let (mut unopened, mut unclosed) = (0, 0_usize);
        for token in &self.tokens[first..after.max(first)] {
            match &self.text[token.clone()] {
                "(" | "[" | "{" => unclosed += 1,
                ")" | "]" | "}" if unclosed == 0 => unopened += 1,
                ")" | "]" | "}" => unclosed -= 1,
                _ => {}
            }
        }
        (first, after) = (first.saturating_sub(unopened), after + unclosed);
        let is = |token: Option<usize>, text: &str| {
            token.and_then(|token| self.tokens.get(token)).is_some_and(|token| &self.text[token.clone()] == text)
        };
        let mut is_parenthesized = false;
        while is(first.checked_sub(1), "(") && is(Some(after), ")") {
            (first, after, is_parenthesized) = (first - 1, after + 1, true);
        }
        let start = self.tokens.get(first).map_or(start, |token| token.start);
        let end = after.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(end, |token| token.end);
        (start..end.max(start), is_parenthesized)
    }
}

/// Whether an expression produces a list or mapping whose size must be checked.
fn is_checked(expression: &ast::Expr<'_>) -> bool {
    use ast::Expr;
    matches!(expression, Expr::Slice(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_))
}

fn is_name(subscript: &ast::Expr<'_>) -> bool {
    matches!(subscript, ast::Expr::Const(it) if it.value.as_str().is_some())
}

/// The sign by which the filter `fold` knows an operator.
fn folded(op: ast::BinOpKind) -> Option<&'static str> {
    use ast::BinOpKind;
    Some(match op {
        BinOpKind::Add => "+",
        BinOpKind::Sub => "-",
        BinOpKind::Mul => "*",
        BinOpKind::Div => "/",
        // Each sign is one character.
        BinOpKind::FloorDiv => ":",
        BinOpKind::Rem => "%",
        BinOpKind::Concat => "~",
        _ => return None,
    })
}
