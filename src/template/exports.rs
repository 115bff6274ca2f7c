//! The names that a text defines for the texts that import it.

use std::collections::BTreeMap;

use minijinja::machinery::ast;

use super::syntax_tree::{bodies, names_set};

/// The arguments of a macro.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    /// Where it is defined; macros can have the same name.
    pub(super) start: usize,
    /// The names of its arguments.
    pub(super) arguments: Vec<String>,
}

impl Signature {
    pub(super) fn of(declared: &ast::Spanned<ast::Macro<'_>>) -> Self {
        let name = |argument: &ast::Expr<'_>| match argument {
            ast::Expr::Var(name) => name.id.to_owned(),
            _ => String::new(),
        };
        let start = declared.span().start_offset as usize;
        Self { start, arguments: declared.args.iter().map(name).collect() }
    }

    /// The error in a call of the macro.
    pub(super) fn mistake(&self, name: &str, arguments: &[ast::CallArg<'_>]) -> Option<String> {
        use ast::CallArg;
        let is_splat = |argument: &CallArg<'_>| matches!(argument, CallArg::PosSplat(_) | CallArg::KwargSplat(_));
        if arguments.iter().any(is_splat) {
            return None;
        }
        let taken = self.arguments.len();
        let given = arguments.iter().filter(|argument| matches!(argument, CallArg::Pos(_))).count();
        if given > taken {
            let arguments = if taken == 1 { "argument" } else { "arguments" };
            return Some(format!("the macro `{name}` takes {taken} {arguments}, not {given}"));
        }
        arguments.iter().find_map(|argument| {
            let CallArg::Kwarg(key, _) = argument else { return None };
            match self.arguments.iter().position(|known| known == key) {
                Some(at) if at < given => Some(format!("the macro `{name}` gets `{key}` twice")),
                Some(_) => None,
                None if *key == "caller" => None,
                None => Some(format!("the macro `{name}` has no argument `{key}`")),
            }
        })
    }
}

/// The names that a text defines. A name has a signature if it is certainly a macro.
pub(super) type Exports = BTreeMap<String, Option<Signature>>;

/// The names that a text defines. `None` if another text may define more.
pub(super) fn exports(statements: &[ast::Stmt<'_>]) -> Option<Exports> {
    let mut found = Exports::new();
    collect(statements, &mut found).then_some(found)
}

fn collect(statements: &[ast::Stmt<'_>], found: &mut Exports) -> bool {
    use ast::Stmt;
    statements.iter().all(|statement| match statement {
        Stmt::Extends(_) | Stmt::Include(_) | Stmt::Block(_) => false,
        Stmt::Macro(it) => {
            let signature = (!found.contains_key(it.name)).then(|| Signature::of(it));
            found.insert(it.name.to_owned(), signature);
            true
        }
        Stmt::CallBlock(_) => true,
        // The variables of a loop or a `with` aren't there after it, but counting them only makes the check more lenient.
        _ => {
            found.extend(names_set(statement).into_iter().map(|name| (name.to_owned(), None)));
            bodies(statement).into_iter().all(|body| collect(body, found))
        }
    })
}
