//! Where the values of a command stand, as far as that can be seen without rendering it: on every way through its tags.

use minijinja::machinery::{Span, ast, parse};

use super::loader::Loader;
use super::shell_context::ShellContext;
use super::shell_quoting::VALUE_MARK;
use super::{TemplateText, TextOrigin};
use crate::diagnostic::{Diagnostic, SourceSpan};

/// So many ways through a command's tags are followed.
const MAX_WAYS: usize = 64;
/// How deep files may include each other here; the engine takes no more.
const MAX_DEPTH: usize = 5;

/// The ways through a command up to some place: what each has come to.
struct CommandPaths<'l, 'a> {
    loader: &'l mut Loader<'a>,
    shells: Vec<ShellContext>,
    /// There are too many ways; when it is rendered, every value is looked at all the same.
    too_many_paths: bool,
}

/// Reports each value that stands where it could become something else than words.
pub(super) fn check(loader: &mut Loader<'_>, text: &TemplateText) {
    let mut ways = CommandPaths { loader, shells: vec![ShellContext::default()], too_many_paths: false };
    ways.text(text, MAX_DEPTH);
}

impl CommandPaths<'_, '_> {
    fn text(&mut self, text: &TemplateText, depth: usize) {
        if let Some(at) = text.text.find(VALUE_MARK) {
            let finding = Diagnostic::error(
                "unsupported-tag-in-command",
                text.origin.place(at..at + 1),
                "no command can hold a NUL",
            );
            self.loader.report(finding.help("remove it"));
        }
        if let Ok(ast::Stmt::Template(root)) = parse(&text.text, "command", Default::default()) {
            self.statements(&text.origin, &root.children, depth);
        }
    }

    fn statements(&mut self, origin: &TextOrigin, statements: &[ast::Stmt<'_>], depth: usize) {
        for statement in statements {
            if self.too_many_paths {
                return;
            }
            self.statement(origin, statement, depth);
        }
    }

    fn statement(&mut self, origin: &TextOrigin, statement: &ast::Stmt<'_>, depth: usize) {
        use ast::Stmt;
        match statement {
            Stmt::EmitRaw(it) => self.shells.iter_mut().for_each(|shell| shell.text(it.raw)),
            Stmt::EmitExpr(it) => self.value(place(origin, it.expr.span())),
            Stmt::IfCond(it) => {
                let before = self.shells.clone();
                self.statements(origin, &it.true_body, depth);
                let after = std::mem::replace(&mut self.shells, before);
                self.statements(origin, &it.false_body, depth);
                self.join(after);
            }
            Stmt::ForLoop(it) => {
                let before = self.shells.clone();
                self.statements(origin, &it.else_body, depth);
                let without = std::mem::replace(&mut self.shells, before.clone());
                // What a round leaves open, the next one begins with.
                let mut known = before;
                loop {
                    self.statements(origin, &it.body, depth);
                    let new: Vec<ShellContext> = self.shells.drain(..).filter(|shell| !known.contains(shell)).collect();
                    if new.is_empty() || self.too_many_paths {
                        break;
                    }
                    known.extend(new.iter().cloned());
                    self.too_many_paths |= known.len() > MAX_WAYS;
                    self.shells = new;
                }
                self.shells = known;
                self.join(without);
            }
            Stmt::WithBlock(it) => self.statements(origin, &it.body, depth),
            Stmt::Include(it) => self.include(&it.name, it.ignore_missing, depth),
            // The others print nothing, or are refused in a command.
            _ => {}
        }
    }

    fn include(&mut self, name: &ast::Expr<'_>, optional: bool, depth: usize) {
        let items = match name {
            ast::Expr::List(list) => list.items.iter().collect(),
            ast::Expr::Tuple(tuple) => tuple.items.iter().collect(),
            single => vec![single],
        };
        let path = |item: &&ast::Expr<'_>| match item {
            ast::Expr::Const(constant) => constant.value.as_str().map(str::to_owned),
            _ => None,
        };
        let text = items.iter().filter_map(path).find_map(|path| self.loader.loaded_text(&path));
        match text {
            Some(text) if depth > 0 => self.text(&text, depth - 1),
            None if optional => {}
            // Said already, or when it is rendered.
            _ => self.too_many_paths = true,
        }
    }

    fn value(&mut self, place: SourceSpan) {
        let mut wrong = None;
        for shell in &mut self.shells {
            wrong = shell.value().err().or(wrong);
        }
        if let Some(why) = wrong {
            self.loader.report(super::misplaced_value(why, place));
        }
    }

    fn join(&mut self, others: Vec<ShellContext>) {
        for other in others {
            if !self.shells.contains(&other) {
                self.shells.push(other);
            }
        }
        self.too_many_paths |= self.shells.len() > MAX_WAYS;
    }
}

/// The tags that take what is printed in them for a value, or hand it on.
pub(super) fn captured_output(statement: &ast::Stmt<'_>) -> Option<(&'static str, Span)> {
    use ast::Stmt;
    Some(match statement {
        Stmt::ForLoop(it) if it.recursive => ("for ... recursive", it.span()),
        Stmt::SetBlock(it) => ("set NAME", it.span()),
        Stmt::AutoEscape(it) => ("autoescape", it.span()),
        Stmt::FilterBlock(it) => ("filter", it.span()),
        Stmt::Block(it) => ("block", it.span()),
        Stmt::Import(it) => ("import", it.span()),
        Stmt::FromImport(it) => ("from", it.span()),
        Stmt::Extends(it) => ("extends", it.span()),
        Stmt::Macro(it) => ("macro", it.span()),
        Stmt::CallBlock(it) => ("call", it.span()),
        _ => return None,
    })
}

/// What to say of such a tag in a command.
pub(super) fn captured_output_finding(tag: &str, place: SourceSpan) -> Diagnostic {
    let message = format!("a command can't have `{{% {tag} %}}`: what it prints would be quoted twice");
    Diagnostic::error("unsupported-tag-in-command", place, message)
        .help("write it out; `if`, `for`, `include`, and `set` with one value are there")
}

fn place(origin: &TextOrigin, span: Span) -> SourceSpan {
    origin.place(span.start_offset as usize..span.end_offset as usize)
}
