//! Finds what no value of an input's type can do, in branches and loops too that no trial comes by.
//!
//! It only speaks where it is sure: a name that is set twice, or whatever stands behind a test such as `is number`, has
//! no known type.

use std::collections::HashMap;
use std::ops::Range;

use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Stmt};

/// What kind of value an expression has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text, a path included.
    Text,
    /// A whole number or another.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    List,
}

impl Kind {
    fn shown(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::List => "a list",
        }
    }
}

/// An operation that fails for every value of its operands' types.
#[derive(Debug)]
pub(super) struct IllTyped {
    pub(super) range: Range<usize>,
    pub(super) message: String,
}

/// Everything in a template that can't work with the types of the inputs.
pub(super) fn ill_typed(statements: &[Stmt<'_>], inputs: &HashMap<String, Kind>) -> Vec<IllTyped> {
    let mut names = Names::default();
    names.statements(statements);
    let mut types = Types { inputs, names, kinds: HashMap::new(), found: Vec::new() };
    if !types.names.counts.contains_key("inputs") && !types.names.has_files {
        types.statements(statements);
    }
    types.found
}

/// How often each name gets a value.
#[derive(Default)]
struct Names<'a> {
    counts: HashMap<&'a str, usize>,
    /// Whether other files take part, which may set names.
    has_files: bool,
}

impl<'a> Names<'a> {
    fn target(&mut self, target: &Expr<'a>) {
        match target {
            Expr::Var(name) => *self.counts.entry(name.id).or_default() += 1,
            Expr::List(it) => it.items.iter().for_each(|item| self.target(item)),
            Expr::Tuple(it) => it.items.iter().for_each(|item| self.target(item)),
            _ => {}
        }
    }

    fn statements(&mut self, statements: &[Stmt<'a>]) {
        for statement in statements {
            match statement {
                Stmt::Template(it) => self.statements(&it.children),
                Stmt::ForLoop(it) => {
                    self.target(&it.target);
                    self.statements(&it.body);
                    self.statements(&it.else_body);
                }
                Stmt::IfCond(it) => {
                    self.statements(&it.true_body);
                    self.statements(&it.false_body);
                }
                Stmt::WithBlock(it) => {
                    it.assignments.iter().for_each(|(target, _)| self.target(target));
                    self.statements(&it.body);
                }
                Stmt::Set(it) => self.target(&it.target),
                Stmt::SetBlock(it) => {
                    self.target(&it.target);
                    self.statements(&it.body);
                }
                Stmt::AutoEscape(it) => self.statements(&it.body),
                Stmt::FilterBlock(it) => self.statements(&it.body),
                Stmt::Block(it) => self.statements(&it.body),
                Stmt::Import(it) => self.target(&it.name),
                Stmt::FromImport(it) => {
                    it.names.iter().for_each(|(name, alias)| self.target(alias.as_ref().unwrap_or(name)));
                }
                Stmt::Macro(it) => self.declared(it),
                Stmt::CallBlock(it) => self.declared(&it.macro_decl),
                Stmt::Extends(_) | Stmt::Include(_) => self.has_files = true,
                Stmt::EmitExpr(_) | Stmt::EmitRaw(_) | Stmt::Do(_) => {}
            }
        }
    }

    fn declared(&mut self, declared: &ast::Macro<'a>) {
        *self.counts.entry(declared.name).or_default() += 1;
        declared.args.iter().for_each(|argument| self.target(argument));
        self.statements(&declared.body);
    }
}

struct Types<'a, 'i> {
    inputs: &'i HashMap<String, Kind>,
    names: Names<'a>,
    kinds: HashMap<&'a str, Kind>,
    found: Vec<IllTyped>,
}

impl<'a> Types<'a, '_> {
    fn report(&mut self, expression: &Expr<'_>, message: String) {
        self.found.push(IllTyped { range: super::guarded::range(expression), message });
    }

    /// Takes note of the type of a name that is set here and nowhere else.
    fn set(&mut self, target: &Expr<'a>, kind: Option<Kind>) {
        if let (Expr::Var(name), Some(kind)) = (target, kind)
            && self.names.counts.get(name.id) == Some(&1)
        {
            self.kinds.insert(name.id, kind);
        }
    }

    fn statements(&mut self, statements: &[Stmt<'a>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Stmt<'a>) {
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            Stmt::EmitExpr(it) => self.used(&it.expr),
            Stmt::ForLoop(it) => {
                self.used(&it.iter);
                let kind = self.kind(&it.iter);
                if let Some(Kind::Number | Kind::Boolean) = kind {
                    let shown = kind.map_or("", Kind::shown);
                    self.report(&it.iter, format!("{shown} can't be looped over"));
                }
                let is_flat = !it.recursive && matches!(kind, Some(Kind::List | Kind::Text));
                self.set(&it.target, is_flat.then_some(Kind::Text));
                if it.filter_expr.as_ref().is_none_or(|filter| !has_test(filter)) {
                    self.statements(&it.body);
                }
                self.statements(&it.else_body);
            }
            Stmt::IfCond(it) => {
                self.looked_at(&it.expr);
                if !has_test(&it.expr) {
                    self.statements(&it.true_body);
                    self.statements(&it.false_body);
                }
            }
            Stmt::WithBlock(it) => {
                for (target, value) in &it.assignments {
                    self.looked_at(value);
                    let kind = self.kind(value);
                    self.set(target, kind);
                }
                self.statements(&it.body);
            }
            Stmt::Set(it) => {
                self.looked_at(&it.expr);
                let kind = self.kind(&it.expr);
                self.set(&it.target, kind);
            }
            Stmt::SetBlock(it) => {
                self.statements(&it.body);
                self.set(&it.target, it.filter.is_none().then_some(Kind::Text));
            }
            Stmt::AutoEscape(it) => self.statements(&it.body),
            Stmt::FilterBlock(it) => self.statements(&it.body),
            Stmt::Macro(it) => self.statements(&it.body),
            Stmt::CallBlock(it) => self.statements(&it.macro_decl.body),
            // Another file may replace a block.
            Stmt::Block(_)
            | Stmt::EmitRaw(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Do(_) => {}
        }
    }

    /// An expression whose value is needed: where it is undefined, rendering fails.
    fn used(&mut self, expression: &Expr<'a>) {
        let part = match expression {
            Expr::GetAttr(it) => Some((&it.expr, it.name)),
            Expr::GetItem(it) => match &it.subscript_expr {
                Expr::Const(name) => name.value.as_str().map(|_| (&it.expr, "")),
                _ => None,
            },
            _ => None,
        };
        if let Some((base, name)) = part
            && let Some(kind) = self.kind(base)
        {
            let is_index = kind == Kind::List && name.bytes().any(|byte| byte.is_ascii_digit());
            if !is_index {
                self.report(expression, format!("{} has no parts with names", kind.shown()));
            }
            return;
        }
        self.looked_at(expression);
    }

    /// An expression that may be undefined; not so what it is made from.
    fn looked_at(&mut self, expression: &Expr<'a>) {
        match expression {
            Expr::GetAttr(it) => self.used(&it.expr),
            Expr::GetItem(it) => self.used(&it.expr),
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScAnd | BinOpKind::ScOr => {
                    self.looked_at(&it.left);
                    if !has_test(&it.left) {
                        self.looked_at(&it.right);
                    }
                }
                op => {
                    self.used(&it.left);
                    self.used(&it.right);
                    if let (Some(left), Some(right)) = (self.kind(&it.left), self.kind(&it.right))
                        && let Some(verb) = mismatch(op, left, right)
                    {
                        let (left, right) = (left.shown(), right.shown());
                        self.report(expression, format!("{left} and {right} can't be {verb}"));
                    }
                }
            },
            Expr::IfExpr(it) => {
                self.looked_at(&it.test_expr);
                if !has_test(&it.test_expr) {
                    self.used(&it.true_expr);
                    it.false_expr.iter().for_each(|otherwise| self.used(otherwise));
                }
            }
            Expr::Filter(it) => {
                let Some(value) = &it.expr else { return };
                match it.name {
                    // These take what is undefined.
                    "default" | "d" => self.looked_at(value),
                    _ => self.used(value),
                }
                let kind = self.kind(value);
                if let ("join" | "length" | "count", Some(Kind::Number | Kind::Boolean)) = (it.name, kind) {
                    let shown = kind.map_or("", Kind::shown);
                    self.report(expression, format!("the filter `{}` can't take {shown}", it.name));
                }
            }
            _ => {}
        }
    }

    /// The type of an expression, where it is known.
    fn kind(&self, expression: &Expr<'_>) -> Option<Kind> {
        match expression {
            Expr::Const(it) if it.value.as_str().is_some() => Some(Kind::Text),
            Expr::Const(it) if it.value.is_number() => Some(Kind::Number),
            Expr::Var(name) => match self.names.counts.get(name.id) {
                Some(1) => self.kinds.get(name.id).copied(),
                _ => None,
            },
            Expr::GetAttr(it) if is_inputs(&it.expr) => self.inputs.get(it.name).copied(),
            Expr::GetItem(it) if is_inputs(&it.expr) => match &it.subscript_expr {
                Expr::Const(name) => self.inputs.get(name.value.as_str()?).copied(),
                _ => None,
            },
            Expr::GetItem(it) => match (self.kind(&it.expr)?, &it.subscript_expr) {
                (Kind::List | Kind::Text, Expr::Const(at)) if at.value.is_integer() => Some(Kind::Text),
                _ => None,
            },
            Expr::BinOp(it) if matches!(it.op, BinOpKind::Concat) => Some(Kind::Text),
            Expr::BinOp(it) => match (it.op, self.kind(&it.left)?, self.kind(&it.right)?) {
                (BinOpKind::Add | BinOpKind::Sub | BinOpKind::Mul, Kind::Number, Kind::Number) => Some(Kind::Number),
                _ => None,
            },
            Expr::Filter(it) => match it.name {
                "upper" | "lower" | "trim" | "title" | "capitalize" | "join" | "string" => Some(Kind::Text),
                "length" | "count" | "int" | "float" if has_no_default(&it.args) => Some(Kind::Number),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What can't be done with two values, as a participle.
fn mismatch(op: BinOpKind, left: Kind, right: Kind) -> Option<&'static str> {
    let is_plain = |kind| matches!(kind, Kind::Text | Kind::Number | Kind::List);
    if !is_plain(left) || !is_plain(right) {
        return None;
    }
    match op {
        BinOpKind::Add if left != right => Some("added: `~` joins texts"),
        BinOpKind::Sub if (left, right) != (Kind::Number, Kind::Number) => Some("subtracted"),
        _ => None,
    }
}

fn has_no_default(arguments: &[CallArg<'_>]) -> bool {
    arguments.is_empty()
}

fn is_inputs(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Var(name) if name.id == "inputs")
}

/// Whether what depends on a condition may never be reached, for the condition asks what a value is.
fn has_test(condition: &Expr<'_>) -> bool {
    match condition {
        Expr::Const(_) => true,
        Expr::Test(_) | Expr::Call(_) => true,
        Expr::UnaryOp(it) => has_test(&it.expr),
        Expr::BinOp(it) => has_test_in_operation(it),
        Expr::IfExpr(_) => true,
        Expr::Filter(it) => it.expr.as_ref().is_some_and(has_test),
        Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Slice(_) => false,
        Expr::Compare(it) => has_test_here(&it.expr) || it.ops.iter().any(|op| has_test_here(&op.expr)),
        Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => true,
    }
}

fn has_test_in_operation(operation: &ast::BinOp<'_>) -> bool {
    match operation.op {
        BinOpKind::ScAnd | BinOpKind::ScOr => has_test(&operation.left) || has_test(&operation.right),
        _ => has_test_here(&operation.left) || has_test_here(&operation.right),
    }
}

/// As [`has_test`], of what a condition compares: constants are common there.
fn has_test_here(operand: &Expr<'_>) -> bool {
    !matches!(operand, Expr::Const(_) | Expr::List(_) | Expr::Tuple(_)) && has_test(operand)
}
