//! How much greater than a job's own texts and values something can get while it is rendered. The engine bounds steps,
//! not sizes: doubling a text again and again takes few steps and ends with all memory.

use minijinja::machinery::ast::{BinOpKind, CallArg, CallType, Const, Expr};

/// Filters that make a text or list longer by what they are given.
const BY_ARGUMENTS: &[&str] = &["batch", "format", "indent", "join", "replace", "slice"];

/// Filters whose result is a few times as long.
const BY_FORM: &[&str] = &["escape", "e", "pprint", "tojson", "urlencode"];
const FORM: u64 = 8;

/// Filters of which nothing can be told.
const UNBOUNDED: &[&str] = &["chain", "groupby", "map", "zip"];

/// The growth of one text, includes and all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// Of the values that it sets: each may be made from the one before.
    set: u64,
    /// The greatest of a value that it shows.
    shown: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { set: 1, shown: 1 }
    }
}

impl Growth {
    /// Takes in an expression whose value is gone after its use.
    pub(super) fn show(&mut self, expression: &Expr<'_>) {
        self.shown = self.shown.max(factor(expression));
    }

    /// Takes in an expression whose value stays.
    pub(super) fn keep(&mut self, expression: &Expr<'_>) {
        self.set = self.set.saturating_mul(factor(expression).max(1));
    }

    /// Takes in something of which nothing can be told.
    pub(super) fn escape(&mut self) {
        self.set = u64::MAX;
    }

    /// Takes in what came of another text.
    pub(super) fn include(&mut self, other: Self) {
        self.set = self.set.saturating_mul(other.set);
        self.shown = self.shown.max(other.shown);
    }

    /// After a loop: what grows in one round grows in each.
    pub(super) fn repeated_since(&mut self, before: Self) {
        if self.set > before.set {
            self.escape();
        }
    }

    /// How many times as large as all texts and values together anything can get.
    pub(super) fn times(self) -> u64 {
        self.set.saturating_mul(self.shown)
    }
}

/// How many times as large as its greatest part a value, or what it is made from, can be.
fn factor(expression: &Expr<'_>) -> u64 {
    let sum = |parts: &[Expr<'_>]| parts.iter().map(factor).fold(1, u64::saturating_add);
    match expression {
        Expr::Const(_) | Expr::Var(_) => 1,
        Expr::GetAttr(it) => factor(&it.expr),
        Expr::GetItem(it) => factor(&it.expr).max(factor(&it.subscript_expr)),
        Expr::Slice(it) => {
            let bounds = [&it.start, &it.stop, &it.step].into_iter().flatten().map(factor).max();
            factor(&it.expr).max(bounds.unwrap_or(1))
        }
        Expr::UnaryOp(it) => factor(&it.expr),
        Expr::BinOp(it) => {
            let (left, right) = (factor(&it.left), factor(&it.right));
            match (it.op, number(&it.left).or_else(|| number(&it.right))) {
                (BinOpKind::Mul, Some(times)) => left.max(right).saturating_mul(times),
                (BinOpKind::Mul, None) => u64::MAX,
                (BinOpKind::Add, Some(_)) => left.max(right),
                (BinOpKind::Add | BinOpKind::Concat, _) => left.saturating_add(right),
                _ => left.max(right),
            }
        }
        Expr::Compare(it) => it.ops.iter().map(|op| factor(&op.expr)).fold(factor(&it.expr), u64::max),
        Expr::IfExpr(it) => {
            let other = it.false_expr.as_ref().map_or(1, factor);
            factor(&it.test_expr).max(factor(&it.true_expr)).max(other)
        }
        Expr::Filter(it) => {
            let value = it.expr.as_ref().map_or(1, factor);
            if UNBOUNDED.contains(&it.name) {
                u64::MAX
            } else if BY_FORM.contains(&it.name) {
                value.saturating_mul(FORM).saturating_mul(lengths(&it.args))
            } else if BY_ARGUMENTS.contains(&it.name) {
                value.saturating_mul(lengths(&it.args))
            } else {
                value.saturating_add(arguments(&it.args))
            }
        }
        Expr::Test(it) => factor(&it.expr).max(arguments(&it.args)),
        Expr::Call(it) => match it.identify_call() {
            // The engine lets a range have a hundred thousand numbers.
            CallType::Function("range" | "dict") => arguments(&it.args).max(1),
            _ => u64::MAX,
        },
        Expr::List(it) => sum(&it.items),
        Expr::Tuple(it) => sum(&it.items),
        Expr::Map(it) => sum(&it.keys).max(sum(&it.values)),
    }
}

fn argument<'a, 'b>(argument: &'b CallArg<'a>) -> &'b Expr<'a> {
    match argument {
        CallArg::Pos(it) | CallArg::Kwarg(_, it) | CallArg::PosSplat(it) | CallArg::KwargSplat(it) => it,
    }
}

fn arguments(arguments: &[CallArg<'_>]) -> u64 {
    arguments.iter().map(|it| factor(argument(it))).fold(0, u64::saturating_add)
}

/// How much arguments add for each character or item: their length, or themselves where they are numbers.
fn lengths(arguments: &[CallArg<'_>]) -> u64 {
    let length = |it: &CallArg<'_>| match argument(it) {
        Expr::Const(constant) => constant.value.as_str().map(|text| text.len() as u64).or_else(|| whole(constant)),
        _ => None,
    };
    arguments.iter().map(|it| length(it).unwrap_or(u64::MAX)).fold(1, u64::saturating_add)
}

fn number(expression: &Expr<'_>) -> Option<u64> {
    match expression {
        Expr::Const(constant) => whole(constant),
        _ => None,
    }
}

fn whole(constant: &Const) -> Option<u64> {
    let value = &constant.value;
    match value.as_str() {
        Some(_) => None,
        None if value.is_number() => Some(value.as_i64().map_or(u64::MAX, i64::unsigned_abs)),
        // `true`, `none`: options.
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use minijinja::machinery::{ast::Stmt, parse};

    use super::*;

    fn times(text: &str) -> u64 {
        let Ok(Stmt::Template(root)) = parse(text, "x", Default::default()) else { panic!("{text}") };
        let mut growth = Growth::default();
        for statement in &root.children {
            match statement {
                Stmt::EmitExpr(it) => growth.show(&it.expr),
                Stmt::Set(it) => growth.keep(&it.expr),
                _ => {}
            }
        }
        growth.times()
    }

    #[test]
    fn what_people_write_hardly_grows() {
        for text in [
            "{{ a }}",
            "{{ inputs.files | join(', ') }}",
            "{{ inputs.notes | trim | indent(4) | default('none') }}",
            "{{ 'a' ~ inputs.x ~ 'b' }}",
            "{{ inputs.count * 2 + 1 }}",
            "{% set a = inputs.x %}{% set b = a ~ '.md' %}{{ b | upper }}",
        ] {
            assert!(times(text) <= 64, "{text}: {}", times(text));
        }
    }

    #[test]
    fn what_can_take_all_memory_is_seen() {
        for text in [
            "{{ 'x' * 100000000 }}".to_owned(),
            "{{ a * b }}".to_owned(),
            "{{ a | replace('a', b) }}".to_owned(),
            format!("{{{{ a{} }}}}", " | replace('a', 'aaaaaaaa')".repeat(40)),
            "{% set a = a ~ a %}".repeat(40),
            "{{ a | batch(1000000000, 'x') }}".to_owned(),
            "{{ f(a) }}".to_owned(),
        ] {
            assert!(times(&text) > 1_000_000, "{text}: {}", times(&text));
        }
    }
}
