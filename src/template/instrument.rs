//! Rewrites a template so that rendering it can't use too much memory.
//!
//! The engine limits the number of steps, not the size of values, and its operators can't be replaced. So it gets a text
//! with the same meaning in which filters of [`super::render_limits`] do the work of the operators. Each part of that text
//! has the range of the original that it comes from, for the places of errors.

use std::ops::Range;

use minijinja::Value;
use minijinja::machinery::ast;

use super::render_limits::{ADD_TEXT, CHECK, FOLD, READ};
use super::syntax_tree::range;
use super::tags::has_tags;

/// Raw text up to this size isn't counted. The limit on steps bounds how much of it can be captured.
const SMALL_TEXT: usize = 64;

/// A template that is safe to render.
#[derive(Debug, Default)]
pub(super) struct InstrumentedTemplate {
    /// The text that the engine gets.
    pub(super) text: String,
    parts: Vec<InstrumentedPart>,
}

/// A part of a template.
#[derive(Debug, Clone)]
pub(super) struct InstrumentedPart {
    /// Its range in the text that the engine gets.
    printed: Range<usize>,
    /// Its range in the original text.
    pub(super) original: Range<usize>,
}

impl InstrumentedTemplate {
    pub(super) fn new(statements: &[ast::Stmt<'_>]) -> Self {
        let mut printer = Printer::default();
        printer.statements(statements);
        // The engine drops a line end at the end of a text. The parser has dropped that of the original already.
        printer.out.text.push_str("{##}");
        printer.out
    }

    /// The smallest part that contains a range of the printed text.
    pub(super) fn part(&self, range: &Range<usize>) -> Option<&InstrumentedPart> {
        let holds = |part: &&InstrumentedPart| part.printed.start <= range.start && range.end <= part.printed.end;
        self.parts.iter().filter(holds).min_by_key(|part| part.printed.len())
    }
}

/// The precedence of an operator in the engine's grammar, the lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Choice,
    Or,
    And,
    Not,
    Compare,
    Power,
    Filter,
    Negative,
    Postfix,
}

#[derive(Default)]
struct Printer {
    out: InstrumentedTemplate,
}

impl Printer {
    fn put(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn part(&mut self, original: Range<usize>, print: impl FnOnce(&mut Self)) {
        let start = self.out.text.len();
        print(self);
        let printed = start..self.out.text.len();
        self.out.parts.push(InstrumentedPart { printed, original });
    }

    fn statements(&mut self, statements: &[ast::Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn tag(&mut self, print: impl FnOnce(&mut Self)) {
        self.put("{% ");
        print(self);
        self.put(" %}");
    }

    fn end(&mut self, name: &str) {
        self.tag(|it| it.put(name));
    }

    fn statement(&mut self, statement: &ast::Stmt<'_>) {
        use ast::Stmt;
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            Stmt::EmitRaw(it) => self.raw(it.raw),
            Stmt::EmitExpr(it) => self.part(range(&it.expr), |printer| {
                printer.put("{{ ");
                printer.expression(&it.expr, Precedence::Choice);
                printer.put(" }}");
            }),
            Stmt::ForLoop(it) => self.for_loop(it),
            Stmt::IfCond(it) => {
                self.condition(it, "if");
                self.end("endif");
            }
            Stmt::WithBlock(it) => {
                self.tag(|printer| {
                    printer.put("with ");
                    printer.separated(&it.assignments, |printer, (target, value)| {
                        printer.target(target, true);
                        printer.put(" = ");
                        printer.expression(value, Precedence::Choice);
                    });
                });
                self.statements(&it.body);
                self.end("endwith");
            }
            Stmt::Set(it) => self.part(range(&it.expr), |printer| {
                printer.tag(|printer| {
                    printer.put("set ");
                    printer.target(&it.target, false);
                    printer.put(" = ");
                    printer.expression(&it.expr, Precedence::Choice);
                });
            }),
            Stmt::SetBlock(it) => {
                self.tag(|printer| {
                    printer.put("set ");
                    printer.target(&it.target, false);
                    if let Some(filter) = &it.filter {
                        printer.put(" | ");
                        printer.expression(filter, Precedence::Filter);
                    }
                });
                self.statements(&it.body);
                self.end("endset");
            }
            Stmt::AutoEscape(it) => {
                self.tag(|printer| {
                    printer.put("autoescape ");
                    printer.expression(&it.enabled, Precedence::Choice);
                });
                self.statements(&it.body);
                self.end("endautoescape");
            }
            Stmt::FilterBlock(it) => {
                self.tag(|printer| {
                    printer.put("filter ");
                    printer.expression(&it.filter, Precedence::Filter);
                });
                self.statements(&it.body);
                self.end("endfilter");
            }
            Stmt::Block(it) => {
                self.tag(|printer| {
                    printer.put("block ");
                    printer.put(it.name);
                    printer.put(if it.required { " required" } else { "" });
                });
                // Another file may replace it.
                self.statements(&it.body);
                self.end("endblock");
            }
            Stmt::Import(it) => self.file(&it.expr, "import ", |printer| {
                printer.put(" as ");
                printer.target(&it.name, false);
            }),
            Stmt::FromImport(it) => self.file(&it.expr, "from ", |printer| {
                printer.put(" import ");
                printer.separated(&it.names, |printer, (name, alias)| {
                    printer.target(name, false);
                    if let Some(alias) = alias {
                        printer.put(" as ");
                        printer.target(alias, false);
                    }
                });
            }),
            Stmt::Extends(it) => self.file(&it.name, "extends ", |_| {}),
            Stmt::Include(it) => self.file(&it.name, "include ", |printer| {
                printer.put(if it.ignore_missing { " ignore missing" } else { "" });
            }),
            Stmt::Macro(it) => {
                self.tag(|printer| {
                    printer.put("macro ");
                    printer.put(it.name);
                    printer.parameters(it);
                });
                self.statements(&it.body);
                self.end("endmacro");
            }
            Stmt::CallBlock(it) => {
                self.tag(|printer| {
                    printer.put("call");
                    printer.parameters(&it.macro_decl);
                    printer.put(" ");
                    printer.call(&it.call);
                });
                self.statements(&it.macro_decl.body);
                self.end("endcall");
            }
            Stmt::Do(it) => self.tag(|printer| {
                printer.put("do ");
                printer.call(&it.call);
            }),
        }
    }

    fn raw(&mut self, text: &str) {
        if text.len() > SMALL_TEXT {
            self.put(&format!("{{{{ {}|{ADD_TEXT} }}}}", text.len()));
        }
        let looks_like_a_tag = text.ends_with('{') || has_tags(text);
        if looks_like_a_tag {
            self.put("{% raw %}");
        }
        self.put(text);
        if looks_like_a_tag {
            self.put("{% endraw %}");
        }
    }

    fn for_loop(&mut self, it: &ast::Spanned<ast::ForLoop<'_>>) {
        self.part(range(&it.iter), |printer| {
            printer.tag(|printer| {
                printer.put("for ");
                printer.target(&it.target, false);
                printer.put(" in ");
                printer.expression(&it.iter, Precedence::Or);
                if let Some(filter) = &it.filter_expr {
                    printer.put(" if ");
                    printer.expression(filter, Precedence::Choice);
                }
                printer.put(if it.recursive { " recursive" } else { "" });
            });
        });
        self.statements(&it.body);
        if !it.else_body.is_empty() {
            self.end("else");
            self.statements(&it.else_body);
        }
        self.end("endfor");
    }

    fn condition(&mut self, it: &ast::IfCond<'_>, keyword: &str) {
        self.tag(|printer| {
            printer.put(keyword);
            printer.put(" ");
            printer.expression(&it.expr, Precedence::Or);
        });
        self.statements(&it.true_body);
        match it.false_body.as_slice() {
            [] => {}
            // A long chain must not nest, because the engine's parser limits the depth.
            [ast::Stmt::IfCond(next)] => self.condition(next, "elif"),
            otherwise => {
                self.end("else");
                self.statements(otherwise);
            }
        }
    }

    /// Prints a tag that names a file or a list of files.
    fn file(&mut self, name: &ast::Expr<'_>, keyword: &str, rest: impl FnOnce(&mut Self)) {
        self.part(range(name), |printer| {
            printer.tag(|printer| {
                printer.put(keyword);
                match name {
                    ast::Expr::List(list) => printer.literal(&list.items, "[", "]"),
                    ast::Expr::Tuple(tuple) => printer.literal(&tuple.items, "(", ",)"),
                    name => printer.expression(name, Precedence::Choice),
                }
                rest(printer);
            });
        });
    }

    fn parameters(&mut self, declared: &ast::Macro<'_>) {
        let without_default = declared.args.len().saturating_sub(declared.defaults.len());
        self.put("(");
        let parameters: Vec<_> = declared.args.iter().enumerate().collect();
        self.separated(&parameters, |printer, (number, name)| {
            printer.target(name, false);
            if let Some(default) = number.checked_sub(without_default).and_then(|at| declared.defaults.get(at)) {
                printer.put("=");
                printer.expression(default, Precedence::Choice);
            }
        });
        self.put(")");
    }

    fn target(&mut self, target: &ast::Expr<'_>, is_nested: bool) {
        match target {
            ast::Expr::Var(name) => self.put(name.id),
            ast::Expr::GetAttr(part) => {
                self.target(&part.expr, false);
                self.put(".");
                self.put(part.name);
            }
            ast::Expr::List(ast) => {
                self.put(if is_nested { "(" } else { "" });
                self.separated(&ast.items, |printer, item| printer.target(item, true));
                self.put(if ast.items.len() == 1 { "," } else { "" });
                self.put(if is_nested { ")" } else { "" });
            }
            // The parser produces no other targets.
            _ => {}
        }
    }

    fn separated<T>(&mut self, items: &[T], mut print: impl FnMut(&mut Self, &T)) {
        for (number, item) in items.iter().enumerate() {
            self.put(if number == 0 { "" } else { ", " });
            print(self, item);
        }
    }

    /// Prints a value that is only read, such as an operand of a comparison.
    fn read(&mut self, expression: &ast::Expr<'_>) {
        if matches!(expression, ast::Expr::Const(_)) {
            return self.expression(expression, Precedence::Postfix);
        }
        self.expression(expression, Precedence::Filter);
        self.put("|");
        self.put(READ);
    }

    /// Prints an expression, in parentheses if its precedence is lower than `least`.
    fn expression(&mut self, expression: &ast::Expr<'_>, least: Precedence) {
        let binding = binding(expression);
        self.part(range(expression), |printer| {
            printer.put(if binding < least { "(" } else { "" });
            printer.bare(expression);
            printer.put(if binding < least { ")" } else { "" });
        });
    }

    fn bare(&mut self, expression: &ast::Expr<'_>) {
        use ast::{BinOpKind, Expr};
        match expression {
            Expr::Var(it) => self.put(it.id),
            Expr::Const(it) => self.put(&constant(&it.value)),
            Expr::Slice(it) => {
                self.read_base(&it.expr);
                self.put("[");
                for (number, bound) in [&it.start, &it.stop, &it.step].into_iter().enumerate() {
                    self.put(if number == 0 { "" } else { ":" });
                    if let Some(bound) = bound {
                        self.expression(bound, Precedence::Choice);
                    }
                }
                self.put("]|");
                self.put(CHECK);
            }
            Expr::UnaryOp(it) => match it.op {
                ast::UnaryOpKind::Not => {
                    self.put("not ");
                    self.expression(&it.expr, Precedence::Not);
                }
                ast::UnaryOpKind::Neg => {
                    self.put("-");
                    self.expression(&it.expr, Precedence::Negative);
                }
            },
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScOr | BinOpKind::ScAnd => {
                    let (word, binding) = match it.op {
                        BinOpKind::ScOr => (" or ", Precedence::Or),
                        _ => (" and ", Precedence::And),
                    };
                    self.expression(&it.left, binding);
                    self.put(word);
                    let right = if binding == Precedence::Or { Precedence::And } else { Precedence::Not };
                    self.expression(&it.right, right);
                }
                BinOpKind::Pow => {
                    self.expression(&it.left, Precedence::Power);
                    self.put(" ** ");
                    self.expression(&it.right, Precedence::Filter);
                }
                op => match folded(op) {
                    Some(_) => self.fold_operators(it),
                    None => {
                        self.read(&it.left);
                        self.put(comparison(op));
                        self.read(&it.right);
                    }
                },
            },
            Expr::Compare(it) => {
                self.read(&it.expr);
                for op in &it.ops {
                    self.put(match op.op {
                        ast::CompareOpKind::Eq => " == ",
                        ast::CompareOpKind::Ne => " != ",
                        ast::CompareOpKind::Lt => " < ",
                        ast::CompareOpKind::Lte => " <= ",
                        ast::CompareOpKind::Gt => " > ",
                        ast::CompareOpKind::Gte => " >= ",
                        ast::CompareOpKind::In => " in ",
                        ast::CompareOpKind::NotIn => " not in ",
                    });
                    self.read(&op.expr);
                }
            }
            Expr::IfExpr(it) => {
                self.expression(&it.true_expr, Precedence::Or);
                self.put(" if ");
                self.expression(&it.test_expr, Precedence::Or);
                if let Some(otherwise) = &it.false_expr {
                    self.put(" else ");
                    self.expression(otherwise, Precedence::Choice);
                }
            }
            Expr::Filter(it) => {
                if let Some(value) = &it.expr {
                    self.expression(value, Precedence::Filter);
                    self.put("|");
                }
                self.put(it.name);
                if !it.args.is_empty() {
                    self.arguments(&it.args, false);
                }
            }
            Expr::Test(it) => {
                self.expression(&it.expr, Precedence::Filter);
                self.put(" is ");
                self.put(it.name);
                if !it.args.is_empty() {
                    self.arguments(&it.args, false);
                }
            }
            Expr::GetAttr(it) => {
                self.expression(&it.expr, Precedence::Postfix);
                self.put(".");
                self.put(it.name);
            }
            Expr::GetItem(it) => {
                let is_name = matches!(&it.subscript_expr, Expr::Const(it) if it.value.as_str().is_some());
                if is_name {
                    self.expression(&it.expr, Precedence::Postfix);
                } else {
                    self.read_base(&it.expr);
                }
                self.put("[");
                self.read(&it.subscript_expr);
                self.put("]");
            }
            Expr::Call(it) => self.call(it),
            Expr::List(it) => {
                self.literal(&it.items, "[", "]|");
                self.put(CHECK);
            }
            Expr::Tuple(it) => {
                self.literal(&it.items, "(", if it.items.len() == 1 { ",)|" } else { ")|" });
                self.put(CHECK);
            }
            Expr::Map(it) => {
                self.put("{");
                let pairs: Vec<_> = it.keys.iter().zip(&it.values).collect();
                self.separated(&pairs, |printer, (key, value)| {
                    printer.expression(key, Precedence::Choice);
                    printer.put(": ");
                    printer.expression(value, Precedence::Choice);
                });
                self.put("}|");
                self.put(CHECK);
            }
        }
    }

    /// Prints the value that a subscript or slice is applied to.
    fn read_base(&mut self, expression: &ast::Expr<'_>) {
        self.put("(");
        self.read(expression);
        self.put(")");
    }

    fn literal(&mut self, items: &[ast::Expr<'_>], open: &str, close: &str) {
        self.put(open);
        self.separated(items, |printer, item| printer.expression(item, Precedence::Choice));
        self.put(close);
    }

    /// Prints a chain of operators as one filter, because a long chain must not nest: `[a, b, c]|fold('~+')`.
    fn fold_operators(&mut self, last: &ast::BinOp<'_>) {
        let mut operands = vec![&last.right];
        let mut signs = vec![folded(last.op).unwrap_or_default()];
        let mut left = &last.left;
        while let ast::Expr::BinOp(it) = left
            && let Some(sign) = folded(it.op)
        {
            operands.push(&it.right);
            signs.push(sign);
            left = &it.left;
        }
        operands.push(left);
        self.put("[");
        let operands: Vec<_> = operands.into_iter().rev().collect();
        self.separated(&operands, |printer, operand| printer.expression(operand, Precedence::Choice));
        let signs: String = signs.into_iter().rev().collect();
        self.put(&format!("]|{FOLD}('{signs}')"));
    }

    fn call(&mut self, call: &ast::Spanned<ast::Call<'_>>) {
        let is_method = matches!(call.identify_call(), ast::CallType::Method(..));
        self.expression(&call.expr, Precedence::Postfix);
        self.arguments(&call.args, is_method);
    }

    fn arguments(&mut self, arguments: &[ast::CallArg<'_>], are_read: bool) {
        use ast::CallArg;
        self.put("(");
        self.separated(arguments, |printer, argument| {
            let value = match argument {
                CallArg::Pos(value) => value,
                CallArg::Kwarg(name, value) => {
                    printer.put(name);
                    printer.put("=");
                    value
                }
                CallArg::PosSplat(value) => {
                    printer.put("*");
                    value
                }
                CallArg::KwargSplat(value) => {
                    printer.put("**");
                    value
                }
            };
            match are_read {
                true => printer.read(value),
                false => printer.expression(value, Precedence::Choice),
            }
        });
        self.put(")");
    }
}

fn binding(expression: &ast::Expr<'_>) -> Precedence {
    use ast::{BinOpKind, Expr};
    match expression {
        Expr::IfExpr(_) => Precedence::Choice,
        Expr::BinOp(it) => match it.op {
            BinOpKind::ScOr => Precedence::Or,
            BinOpKind::ScAnd => Precedence::And,
            BinOpKind::Pow => Precedence::Power,
            op if folded(op).is_some() => Precedence::Filter,
            _ => Precedence::Compare,
        },
        Expr::Compare(_) => Precedence::Compare,
        Expr::UnaryOp(it) => match it.op {
            ast::UnaryOpKind::Not => Precedence::Not,
            ast::UnaryOpKind::Neg => Precedence::Negative,
        },
        Expr::Filter(_) | Expr::Test(_) | Expr::Slice(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => {
            Precedence::Filter
        }
        Expr::Var(_) | Expr::Const(_) | Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Call(_) => Precedence::Postfix,
    }
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

fn comparison(op: ast::BinOpKind) -> &'static str {
    use ast::BinOpKind;
    match op {
        BinOpKind::Ne => " != ",
        BinOpKind::Lt => " < ",
        BinOpKind::Lte => " <= ",
        BinOpKind::Gt => " > ",
        BinOpKind::Gte => " >= ",
        BinOpKind::In => " in ",
        _ => " == ",
    }
}

/// A constant as a template writes it.
fn constant(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    if value.is_none() {
        return "none".to_owned();
    }
    if value.is_number() && !value.is_integer() {
        let number = f64::try_from(value.clone()).unwrap_or_default();
        // Infinity has no literal.
        return if number.is_finite() { format!("{number:?}") } else { "1e999".to_owned() };
    }
    match value.kind() {
        minijinja::value::ValueKind::Bool => value.is_true().to_string(),
        _ => value.to_string(),
    }
}
