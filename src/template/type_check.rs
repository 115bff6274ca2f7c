//! Finds operations that fail for every value of an input's type, in branches and loops too.
//!
//! It reports only what is certain. A name that is set twice has no known type, and branches behind a test such as
//! `is number` aren't checked.

use std::collections::HashMap;
use std::ops::Range;

use minijinja::machinery::ast::{BinOpKind, Expr, Stmt, UnaryOpKind};

use super::syntax_tree::{bodies, children, declared_macro, names_in_target, names_set, range};
use super::variables::ValueType;

/// An operation that fails for every value of its operands' types.
#[derive(Debug)]
pub(super) struct TypeError {
    pub(super) range: Range<usize>,
    pub(super) message: String,
}

/// All operations in a template that can't work with the types of the inputs.
pub(super) fn type_errors(statements: &[Stmt<'_>], inputs: &HashMap<String, ValueType>) -> Vec<TypeError> {
    let mut names = NameCounts::default();
    names.statements(statements);
    let mut types = TypeChecker { inputs, names, kinds: HashMap::new(), found: Vec::new() };
    if !types.names.counts.contains_key("inputs") && !types.names.has_files {
        types.statements(statements);
    }
    types.found
}

/// How often each name is set.
#[derive(Default)]
struct NameCounts<'a> {
    counts: HashMap<&'a str, usize>,
    /// Whether the template includes or extends other files, which may set names.
    has_files: bool,
}

impl<'a> NameCounts<'a> {
    fn count(&mut self, name: &'a str) {
        *self.counts.entry(name).or_default() += 1;
    }

    fn statements(&mut self, statements: &[Stmt<'a>]) {
        for statement in statements {
            names_set(statement).into_iter().for_each(|name| self.count(name));
            if let Some(declared) = declared_macro(statement) {
                self.count(declared.name);
                declared.args.iter().flat_map(names_in_target).for_each(|name| self.count(name));
            }
            self.has_files |= matches!(statement, Stmt::Extends(_) | Stmt::Include(_));
            bodies(statement).into_iter().for_each(|body| self.statements(body));
        }
    }
}

struct TypeChecker<'a, 'i> {
    inputs: &'i HashMap<String, ValueType>,
    names: NameCounts<'a>,
    kinds: HashMap<&'a str, ValueType>,
    found: Vec<TypeError>,
}

impl<'a> TypeChecker<'a, '_> {
    fn report(&mut self, expression: &Expr<'_>, message: String) {
        self.found.push(TypeError { range: range(expression), message });
    }

    /// Remembers the type of a name that is set nowhere else.
    fn set(&mut self, target: &Expr<'a>, kind: Option<ValueType>) {
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
            Stmt::EmitExpr(it) => self.check_used(&it.expr),
            Stmt::ForLoop(it) => {
                self.check_used(&it.iter);
                let kind = self.value_type(&it.iter);
                if let Some(ValueType::Number | ValueType::Boolean) = kind {
                    let shown = kind.map_or("", ValueType::noun);
                    self.report(&it.iter, format!("{shown} can't be looped over"));
                }
                let is_flat = !it.recursive && matches!(kind, Some(ValueType::List | ValueType::Text));
                self.set(&it.target, is_flat.then_some(ValueType::Text));
                if it.filter_expr.as_ref().is_none_or(|filter| !has_test(filter)) {
                    self.statements(&it.body);
                }
                self.statements(&it.else_body);
            }
            Stmt::IfCond(it) => {
                self.check_inspected(&it.expr);
                if !has_test(&it.expr) {
                    self.statements(&it.true_body);
                    self.statements(&it.false_body);
                }
            }
            Stmt::WithBlock(it) => {
                for (target, value) in &it.assignments {
                    self.check_inspected(value);
                    let kind = self.value_type(value);
                    self.set(target, kind);
                }
                self.statements(&it.body);
            }
            Stmt::Set(it) => {
                self.check_inspected(&it.expr);
                let kind = self.value_type(&it.expr);
                self.set(&it.target, kind);
            }
            Stmt::SetBlock(it) => {
                self.statements(&it.body);
                self.set(&it.target, it.filter.is_none().then_some(ValueType::Text));
            }
            // Another file may replace a block.
            Stmt::Block(_) => {}
            _ => bodies(statement).into_iter().for_each(|body| self.statements(body)),
        }
    }

    /// Checks an expression that must be defined.
    fn check_used(&mut self, expression: &Expr<'a>) {
        let part = match expression {
            Expr::GetAttr(it) => Some((&it.expr, it.name)),
            Expr::GetItem(it) => match &it.subscript_expr {
                Expr::Const(name) => name.value.as_str().map(|_| (&it.expr, "")),
                _ => None,
            },
            _ => None,
        };
        if let Some((base, name)) = part
            && let Some(kind) = self.value_type(base)
        {
            let is_index = kind == ValueType::List && name.bytes().any(|byte| byte.is_ascii_digit());
            if !is_index {
                self.report(expression, format!("{} has no attributes", kind.noun()));
            }
            return;
        }
        self.check_inspected(expression);
    }

    /// Checks an expression that may be undefined. Its operands must be defined.
    fn check_inspected(&mut self, expression: &Expr<'a>) {
        match expression {
            Expr::GetAttr(it) => self.check_used(&it.expr),
            Expr::GetItem(it) => self.check_used(&it.expr),
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScAnd | BinOpKind::ScOr => {
                    self.check_inspected(&it.left);
                    if !has_test(&it.left) {
                        self.check_inspected(&it.right);
                    }
                }
                op => {
                    self.check_used(&it.left);
                    self.check_used(&it.right);
                    let (left, right) = (self.value_type(&it.left), self.value_type(&it.right));
                    if let (BinOpKind::In, Some(kind @ (ValueType::Number | ValueType::Boolean))) = (op, right) {
                        self.report(expression, format!("`in` can't look into {}", kind.noun()));
                    }
                    if let (Some(left), Some(right)) = (left, right)
                        && let Some(verb) = mismatch(op, left, right)
                    {
                        let (left, right) = (left.noun(), right.noun());
                        self.report(expression, format!("{left} and {right} can't be {verb}"));
                    }
                }
            },
            Expr::IfExpr(it) => {
                self.check_inspected(&it.test_expr);
                if !has_test(&it.test_expr) {
                    self.check_used(&it.true_expr);
                    it.false_expr.iter().for_each(|otherwise| self.check_used(otherwise));
                }
            }
            Expr::Filter(it) => {
                let Some(value) = &it.expr else { return };
                match it.name {
                    // These accept undefined values.
                    "default" | "d" => self.check_inspected(value),
                    _ => self.check_used(value),
                }
                let kind = self.value_type(value);
                if let Some(kind) = kind.filter(|kind| filter_refuses(it.name, *kind)) {
                    self.report(expression, format!("the filter `{}` can't take {}", it.name, kind.noun()));
                }
            }
            Expr::UnaryOp(it) => {
                self.check_inspected(&it.expr);
                if matches!(it.op, UnaryOpKind::Neg)
                    && let Some(kind @ (ValueType::Text | ValueType::List)) = self.value_type(&it.expr)
                {
                    self.report(expression, format!("{} can't be negated", kind.noun()));
                }
            }
            _ => {}
        }
    }

    /// The type of an expression, if it is known.
    fn value_type(&self, expression: &Expr<'_>) -> Option<ValueType> {
        match expression {
            Expr::Const(it) if it.value.as_str().is_some() => Some(ValueType::Text),
            Expr::Const(it) if it.value.is_number() => Some(ValueType::Number),
            Expr::Var(name) => match self.names.counts.get(name.id) {
                Some(1) => self.kinds.get(name.id).copied(),
                _ => None,
            },
            Expr::GetAttr(it) if is_inputs(&it.expr) => self.inputs.get(it.name).copied(),
            Expr::GetItem(it) if is_inputs(&it.expr) => match &it.subscript_expr {
                Expr::Const(name) => self.inputs.get(name.value.as_str()?).copied(),
                _ => None,
            },
            Expr::GetItem(it) => match (self.value_type(&it.expr)?, &it.subscript_expr) {
                (ValueType::List | ValueType::Text, Expr::Const(at)) if at.value.is_integer() => Some(ValueType::Text),
                _ => None,
            },
            Expr::BinOp(it) if matches!(it.op, BinOpKind::Concat) => Some(ValueType::Text),
            Expr::BinOp(it) => match (it.op, self.value_type(&it.left)?, self.value_type(&it.right)?) {
                (BinOpKind::Add | BinOpKind::Sub | BinOpKind::Mul, ValueType::Number, ValueType::Number) => {
                    Some(ValueType::Number)
                }
                _ => None,
            },
            Expr::Filter(it) => match it.name {
                "upper" | "lower" | "trim" | "title" | "capitalize" | "join" | "string" => Some(ValueType::Text),
                "length" | "count" | "int" | "float" if it.args.is_empty() => Some(ValueType::Number),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The participle of an operation that fails for two values.
fn mismatch(op: BinOpKind, left: ValueType, right: ValueType) -> Option<&'static str> {
    let is_plain = |kind| matches!(kind, ValueType::Text | ValueType::Number | ValueType::List);
    if !is_plain(left) || !is_plain(right) {
        return None;
    }
    match op {
        BinOpKind::Add if left != right => Some("added: `~` joins texts"),
        BinOpKind::Sub if (left, right) != (ValueType::Number, ValueType::Number) => Some("subtracted"),
        _ => None,
    }
}

/// Whether a filter fails for every value of a type.
fn filter_refuses(name: &str, kind: ValueType) -> bool {
    match name {
        "items" | "dictsort" => true,
        "batch" | "count" | "first" | "join" | "last" | "length" | "list" | "map" | "max" | "min" | "reverse"
        | "slice" | "sort" | "unique" => matches!(kind, ValueType::Number | ValueType::Boolean),
        "abs" | "round" => matches!(kind, ValueType::Text | ValueType::List),
        _ => false,
    }
}

fn is_inputs(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Var(name) if name.id == "inputs")
}

/// Whether a condition tests the type of a value, so that its branches may never be reached for the declared type.
fn has_test(condition: &Expr<'_>) -> bool {
    let is_constant = |operand: &Expr<'_>| matches!(operand, Expr::Const(_) | Expr::List(_) | Expr::Tuple(_));
    match condition {
        Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Slice(_) => false,
        Expr::Filter(it) => it.expr.as_ref().is_some_and(has_test),
        Expr::UnaryOp(it) => has_test(&it.expr),
        Expr::BinOp(it) if matches!(it.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
            has_test(&it.left) || has_test(&it.right)
        }
        // An operand is often a constant.
        Expr::BinOp(_) | Expr::Compare(_) => {
            children(condition).into_iter().any(|operand| !is_constant(operand) && has_test(operand))
        }
        _ => true,
    }
}
