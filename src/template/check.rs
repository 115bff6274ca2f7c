//! Finds what a template uses and doesn't have, from its syntax tree, without rendering it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use minijinja::machinery::{Span, ast};

use super::exports::{Exports, Signature};
use super::loader::{Loader, TextRole};
use super::scopes::{NameBinding, Scopes, VisibleNames};
use super::{TemplateVariables, TextOrigin};
use crate::diagnostic::{Diagnostic, SourceSpan};

/// One walk through one text.
#[derive(Debug)]
pub(super) struct TemplateChecker {
    pub(super) role: TextRole,
    /// The texts that are being walked, the outermost first and this one last.
    pub(super) include_stack: Vec<String>,
    origin: TextOrigin,
    pub(super) scopes: Scopes,
    /// Names that are macros and nothing else.
    macros: BTreeMap<String, Signature>,
    /// Names that are imported files, with what those define.
    modules: BTreeMap<String, Exports>,
}

/// Filters that show the names of a mapping's parts, or how many there are, and none of its values.
const SHOW_NAMES: &[&str] = &["count", "first", "join", "last", "length", "list", "sort"];

impl TemplateChecker {
    pub(super) fn new(origin: TextOrigin, role: TextRole, visible: &VisibleNames, trail: Vec<String>) -> Self {
        let (macros, modules) = (BTreeMap::new(), BTreeMap::new());
        Self { role, include_stack: trail, origin, scopes: Scopes::new(visible), macros, modules }
    }

    /// The names that are set at this point, beside the job's variables.
    pub(super) fn visible(&mut self) -> Arc<VisibleNames> {
        self.scopes.all_visible()
    }

    pub(super) fn template(mut self, loader: &mut Loader<'_>, statements: &[ast::Stmt<'_>]) {
        // A macro may use one that is defined after it.
        for statement in statements {
            if let ast::Stmt::Macro(declared) = statement {
                let is_first = !self.is_set(declared.name);
                self.set(declared.name);
                if is_first {
                    self.macros.insert(declared.name.to_owned(), Signature::of(declared));
                }
            }
        }
        self.statements(loader, statements);
    }

    pub(super) fn place(&self, span: Span) -> SourceSpan {
        self.at(span.start_offset as usize..span.end_offset as usize)
    }

    /// The place of a range of bytes of the text.
    pub(super) fn at(&self, range: Range<usize>) -> SourceSpan {
        self.origin.place(range)
    }

    /// The range of a name that ends its span, as in `inputs.topic`.
    fn end_of(span: Span, name: &str) -> Range<usize> {
        let end = span.end_offset as usize;
        end.saturating_sub(name.len())..end
    }

    /// The place of a name that begins its span, as in `upper(x)`.
    pub(super) fn start_of(&self, span: Span, name: &str) -> SourceSpan {
        let start = span.start_offset as usize;
        self.origin.place(start..start + name.len())
    }

    fn set(&mut self, name: &str) {
        self.macros.remove(name);
        self.modules.remove(name);
        self.scopes.set(name, NameBinding::Other);
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.scopes.get(name).is_some()
    }

    fn in_scope(&mut self, names: &[&str], walk: impl FnOnce(&mut Self)) {
        self.scopes.push(names);
        walk(self);
        self.scopes.pop();
    }

    /// The job's variable that an expression is, where it is nothing else.
    fn root<'a>(&self, expression: &ast::Expr<'a>) -> Option<&'a str> {
        let ast::Expr::Var(name) = expression else { return None };
        match self.scopes.get(name.id) {
            Some(NameBinding::Inputs) => Some("inputs"),
            Some(NameBinding::Other) => None,
            None => (name.id == "inputs" || TemplateVariables::parts(name.id).is_some()).then_some(name.id),
        }
    }

    fn is_inputs(&self, expression: &ast::Expr<'_>) -> bool {
        self.root(expression) == Some("inputs")
    }

    /// An expression of which only the names of its parts can be seen, if it is `inputs`.
    fn names_only(&mut self, loader: &mut Loader<'_>, expression: &ast::Expr<'_>) {
        if self.is_inputs(expression) {
            loader.used_inputs.all = true;
        } else {
            self.expression(loader, expression);
        }
    }

    /// `target = value`, in whichever form.
    fn assign(&mut self, loader: &mut Loader<'_>, target: &ast::Expr<'_>, value: &ast::Expr<'_>) {
        if let ast::Expr::Var(name) = target
            && self.is_inputs(value)
        {
            self.scopes.set(name.id, NameBinding::Inputs);
            return;
        }
        self.expression(loader, value);
        self.target(loader, target);
    }

    fn statements(&mut self, loader: &mut Loader<'_>, statements: &[ast::Stmt<'_>]) {
        for statement in statements {
            self.statement(loader, statement);
        }
    }

    fn statement(&mut self, loader: &mut Loader<'_>, statement: &ast::Stmt<'_>) {
        use ast::Stmt;
        match statement {
            Stmt::Template(it) => self.statements(loader, &it.children),
            Stmt::EmitExpr(it) => self.expression(loader, &it.expr),
            Stmt::EmitRaw(it) => self.single_braces(loader, it.raw, it.span()),
            Stmt::ForLoop(it) => {
                self.names_only(loader, &it.iter);
                self.in_scope(&["loop"], |walk| {
                    walk.target(loader, &it.target);
                    walk.optional(loader, it.filter_expr.as_ref());
                    walk.statements(loader, &it.body);
                });
                self.in_scope(&[], |walk| walk.statements(loader, &it.else_body));
            }
            Stmt::IfCond(it) => {
                self.expression(loader, &it.expr);
                self.statements(loader, &it.true_body);
                self.statements(loader, &it.false_body);
            }
            Stmt::WithBlock(it) => self.in_scope(&[], |walk| {
                for (target, value) in &it.assignments {
                    walk.assign(loader, target, value);
                }
                walk.statements(loader, &it.body);
            }),
            Stmt::Set(it) => self.assign(loader, &it.target, &it.expr),
            Stmt::SetBlock(it) => {
                self.optional(loader, it.filter.as_ref());
                self.in_scope(&[], |walk| walk.statements(loader, &it.body));
                self.target(loader, &it.target);
            }
            Stmt::AutoEscape(it) => {
                self.expression(loader, &it.enabled);
                self.statements(loader, &it.body);
            }
            Stmt::FilterBlock(it) => {
                self.expression(loader, &it.filter);
                self.statements(loader, &it.body);
            }
            Stmt::Block(it) => self.in_scope(&["super", "self"], |walk| walk.statements(loader, &it.body)),
            Stmt::Import(it) => {
                let exports = self.imported(loader, &it.expr);
                self.target(loader, &it.name);
                if let (ast::Expr::Var(name), Some((_, exports))) = (&it.name, exports) {
                    self.modules.insert(name.id.to_owned(), exports);
                }
            }
            Stmt::FromImport(it) => {
                let exports = self.imported(loader, &it.expr);
                for (name, alias) in &it.names {
                    let target = alias.as_ref().unwrap_or(name);
                    self.target(loader, target);
                    let (Some((path, exports)), ast::Expr::Var(name), ast::Expr::Var(target)) =
                        (&exports, name, target)
                    else {
                        continue;
                    };
                    match exports.get(name.id) {
                        Some(Some(signature)) => drop(self.macros.insert(target.id.to_owned(), signature.clone())),
                        Some(None) => {}
                        None => {
                            let place = self.place(name.span());
                            self.report_missing(loader, name.id, place, &format!("`{path}` defines no"), exports);
                        }
                    }
                }
            }
            Stmt::Extends(it) => self.files(loader, &it.name, false),
            Stmt::Include(it) => self.files(loader, &it.name, it.ignore_missing),
            Stmt::Macro(it) => {
                let start = it.span().start_offset as usize;
                if self.macros.get(it.name).is_none_or(|known| known.start != start) {
                    self.set(it.name);
                }
                self.macro_body(loader, it);
            }
            Stmt::CallBlock(it) => {
                self.call(loader, &it.call);
                self.macro_body(loader, &it.macro_decl);
            }
            Stmt::Do(it) => self.call(loader, &it.call),
        }
    }

    fn macro_body(&mut self, loader: &mut Loader<'_>, declared: &ast::Macro<'_>) {
        for default in &declared.defaults {
            self.expression(loader, default);
        }
        self.in_scope(&["caller"], |walk| {
            for argument in &declared.args {
                walk.target(loader, argument);
            }
            walk.statements(loader, &declared.body);
        });
    }

    /// What a `set`, a loop or an argument gives a value to.
    fn target(&mut self, loader: &mut Loader<'_>, target: &ast::Expr<'_>) {
        match target {
            ast::Expr::Var(name) => self.set(name.id),
            ast::Expr::List(list) => list.items.iter().for_each(|item| self.target(loader, item)),
            ast::Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.target(loader, item)),
            ast::Expr::GetAttr(part) => self.expression(loader, &part.expr),
            _ => {}
        }
    }

    /// An imported file with what it defines, where that is known.
    fn imported(&mut self, loader: &mut Loader<'_>, name: &ast::Expr<'_>) -> Option<(String, Exports)> {
        self.files(loader, name, false);
        let ast::Expr::Const(constant) = name else { return None };
        let path = constant.value.as_str()?;
        Some((path.to_owned(), loader.exports(path)?))
    }

    fn report_missing(&self, loader: &mut Loader<'_>, name: &str, place: SourceSpan, what: &str, exports: &Exports) {
        let finding = Diagnostic::error("undefined-variable", place, format!("{what} `{name}`"));
        let names = || exports.keys().map(String::as_str);
        let listed = || names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        loader.report(match crate::diagnostic::suggest_name(name, names()) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")),
            None if exports.is_empty() => finding.help("it defines nothing: add a macro or a `{% set %}` to it"),
            None => finding.help(format!("it defines {}", listed())),
        });
    }

    /// Inputs in text that were meant to be tags.
    fn single_braces(&mut self, loader: &mut Loader<'_>, raw: &str, span: Span) {
        const START: &str = "{inputs.";
        if !raw.contains(START) {
            return;
        }
        let start = span.start_offset as usize;
        for (at, _) in raw.match_indices(START) {
            let name = &raw[at + START.len()..];
            let Some(name) = name.find('}').map(|end| name[..end].trim()) else { continue };
            if loader.declared(name).is_none_or(|declared| declared.is_secret) {
                continue;
            }
            loader.used_inputs.add(name);
            let range = start + at..start + at + raw[at..].find('}').map_or(0, |end| end + 1);
            let finding = Diagnostic::warning(
                "single-brace",
                self.at(range),
                format!("`{{inputs.{name}}}` is no tag: it stays in the text as it is"),
            );
            loader.report_warning(finding.help(format!("write `{{{{ inputs.{name} }}}}` for the input's value")));
        }
    }

    /// The files that an include or import names; of several, the first that exists is taken.
    fn files(&mut self, loader: &mut Loader<'_>, name: &ast::Expr<'_>, optional: bool) {
        let dynamic = |walk: &Self, loader: &mut Loader<'_>, part: &ast::Expr<'_>| {
            loader.report(
                Diagnostic::error("dynamic-include", walk.place(part.span()), "a file's name must be written out here")
                    .help("name each file as a text in quotes, and choose between them with `{% if %}`"),
            );
        };
        let items = match name {
            ast::Expr::List(list) => list.items.iter().collect(),
            ast::Expr::Tuple(tuple) => tuple.items.iter().collect(),
            single => vec![single],
        };
        let several = items.len() > 1;
        let mut found = false;
        for item in &items {
            let path = match item {
                ast::Expr::Const(constant) => constant.value.as_str().map(str::to_owned),
                _ => None,
            };
            match path {
                Some(path) => {
                    found |= loader.include(&path, self.place(item.span()), optional || several, self);
                }
                None => {
                    dynamic(self, loader, item);
                    found = true;
                }
            }
        }
        if several && !found && !optional {
            let place = self.place(name.span());
            let finding = Diagnostic::error("unreadable-file", place, "none of these files is there");
            loader.report(finding.help("name one that is, or add `ignore missing`"));
        }
    }

    fn optional(&mut self, loader: &mut Loader<'_>, expression: Option<&ast::Expr<'_>>) {
        if let Some(expression) = expression {
            self.expression(loader, expression);
        }
    }

    fn expression(&mut self, loader: &mut Loader<'_>, expression: &ast::Expr<'_>) {
        use ast::Expr;
        if loader.is_full() {
            return;
        }
        match expression {
            Expr::Const(_) => {}
            Expr::Var(it) => self.variable(loader, it.id, it.span()),
            Expr::GetAttr(it) => match self.root(&it.expr) {
                Some(root) => self.attribute(loader, root, it.name, Self::end_of(it.span(), it.name)),
                None => {
                    self.module_member(loader, &it.expr, it.name, it.span());
                    self.expression(loader, &it.expr);
                }
            },
            Expr::GetItem(it) => {
                let constant = match &it.subscript_expr {
                    Expr::Const(constant) => constant.value.as_str(),
                    _ => None,
                };
                match (self.root(&it.expr), constant) {
                    (Some(root), Some(name)) => self.attribute(loader, root, name, quoted(it.subscript_expr.span())),
                    _ => {
                        self.expression(loader, &it.expr);
                        self.expression(loader, &it.subscript_expr);
                    }
                }
            }
            Expr::Slice(it) => {
                self.expression(loader, &it.expr);
                for bound in [&it.start, &it.stop, &it.step] {
                    self.optional(loader, bound.as_ref());
                }
            }
            Expr::UnaryOp(it) => self.expression(loader, &it.expr),
            Expr::BinOp(it) => {
                self.expression(loader, &it.left);
                match it.op {
                    ast::BinOpKind::In => self.names_only(loader, &it.right),
                    _ => self.expression(loader, &it.right),
                }
            }
            Expr::Compare(it) => {
                self.expression(loader, &it.expr);
                for op in &it.ops {
                    match op.op {
                        ast::CompareOpKind::In | ast::CompareOpKind::NotIn => self.names_only(loader, &op.expr),
                        _ => self.expression(loader, &op.expr),
                    }
                }
            }
            Expr::IfExpr(it) => {
                self.expression(loader, &it.test_expr);
                self.expression(loader, &it.true_expr);
                self.optional(loader, it.false_expr.as_ref());
            }
            Expr::Filter(it) => {
                match (&it.expr, it.args.as_slice()) {
                    (Some(value), _) if SHOW_NAMES.contains(&it.name) => self.names_only(loader, value),
                    (Some(value), [ast::CallArg::Pos(Expr::Const(part))])
                        if it.name == "attr" && self.is_inputs(value) && part.value.as_str().is_some() =>
                    {
                        self.attribute(loader, "inputs", part.value.as_str().unwrap_or_default(), quoted(part.span()));
                    }
                    (value, _) => self.optional(loader, value.as_ref()),
                }
                self.filter(loader, it.name, self.start_of(it.span(), it.name));
                self.named_by_text(loader, it);
                self.arguments(loader, &it.args);
            }
            Expr::Test(it) => {
                self.names_only(loader, &it.expr);
                self.test(loader, it.name, self.start_of(it.span(), it.name));
                self.arguments(loader, &it.args);
            }
            Expr::Call(it) => self.call(loader, it),
            Expr::List(it) => it.items.iter().for_each(|item| self.expression(loader, item)),
            Expr::Tuple(it) => it.items.iter().for_each(|item| self.expression(loader, item)),
            Expr::Map(it) => it.keys.iter().chain(&it.values).for_each(|item| self.expression(loader, item)),
        }
    }

    fn arguments(&mut self, loader: &mut Loader<'_>, arguments: &[ast::CallArg<'_>]) {
        use ast::CallArg;
        for argument in arguments {
            match argument {
                CallArg::Pos(it) | CallArg::Kwarg(_, it) | CallArg::PosSplat(it) | CallArg::KwargSplat(it) => {
                    self.expression(loader, it);
                }
            }
        }
    }

    /// Filters and tests that other filters get by their names, as in `map('upper')`.
    fn named_by_text(&mut self, loader: &mut Loader<'_>, filter: &ast::Filter<'_>) {
        let at = match filter.name {
            "map" | "select" | "reject" => 0,
            "selectattr" | "rejectattr" => 1,
            _ => return,
        };
        let Some(ast::CallArg::Pos(ast::Expr::Const(constant))) = filter.args.get(at) else { return };
        let Some(name) = constant.value.as_str() else { return };
        let place = self.at(quoted(constant.span()));
        match filter.name {
            "map" => self.filter(loader, name, place),
            _ => self.test(loader, name, place),
        }
    }

    /// A part of an imported file.
    fn module_member(&self, loader: &mut Loader<'_>, value: &ast::Expr<'_>, name: &str, span: Span) {
        if let ast::Expr::Var(module) = value
            && let Some(exports) = self.modules.get(module.id)
            && !exports.contains_key(name)
        {
            let place = self.at(Self::end_of(span, name));
            self.report_missing(loader, name, place, &format!("the file that is `{}` defines no", module.id), exports);
        }
    }

    /// Whether a macro takes what it is given.
    fn check_macro_call(&self, loader: &mut Loader<'_>, call: &ast::Spanned<ast::Call<'_>>) {
        let found = match call.identify_call() {
            ast::CallType::Function(name) => self.macros.get(name).map(|signature| (name, signature)),
            ast::CallType::Method(ast::Expr::Var(module), name) => {
                let exports = self.modules.get(module.id);
                exports.and_then(|exports| exports.get(name)?.as_ref()).map(|signature| (name, signature))
            }
            _ => None,
        };
        let Some((name, signature)) = found else { return };
        let Some(message) = signature.mistake(name, &call.args) else { return };
        let finding = Diagnostic::error("macro-arguments", self.place(call.span()), message);
        loader.report(match signature.arguments.as_slice() {
            [] => finding.help("it takes none"),
            arguments => finding.help(format!("it takes `{}`", arguments.join("`, `"))),
        });
    }

    fn call(&mut self, loader: &mut Loader<'_>, call: &ast::Spanned<ast::Call<'_>>) {
        self.check_macro_call(loader, call);
        match call.identify_call() {
            ast::CallType::Function(name) => self.function(loader, name, call.expr.span()),
            ast::CallType::Method(value, name) => {
                self.module_member(loader, value, name, call.expr.span());
                self.expression(loader, value);
                if self.has_no_methods(value) {
                    let place = self.at(Self::end_of(call.expr.span(), name));
                    self.report_function(loader, name, place, "method");
                }
            }
            ast::CallType::Block(_) => {}
            ast::CallType::Object(value) => self.expression(loader, value),
        }
        self.arguments(loader, &call.args);
    }

    /// Whether a value is surely a text, a number or the like.
    fn has_no_methods(&self, value: &ast::Expr<'_>) -> bool {
        match value {
            ast::Expr::Const(_) | ast::Expr::List(_) | ast::Expr::Map(_) | ast::Expr::Filter(_) => true,
            ast::Expr::Var(name) => !self.is_set(name.id),
            ast::Expr::GetAttr(it) => self.has_no_methods(&it.expr),
            ast::Expr::GetItem(it) => self.has_no_methods(&it.expr),
            _ => false,
        }
    }
}

/// What lies between the quotes of a string.
fn quoted(span: Span) -> Range<usize> {
    let start = span.start_offset as usize + 1;
    start..(span.end_offset as usize).saturating_sub(1).max(start)
}
