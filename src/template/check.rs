//! Finds undefined names and bad includes in a template's syntax tree, without rendering it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use minijinja::machinery::{Span, ast};

use super::check_context::CheckContext;
use super::exports::{Exports, Signature};
use super::name_check::{NameChecker, TextRole};
use super::scopes::{NameBinding, VisibleNames};
use super::syntax_tree::{argument_value, bodies, children, expressions, names_in_target};
use super::texts::TextOrigin;
use super::variables::TemplateVariables;
use crate::diagnostic::{Diagnostic, SourceSpan};

/// What checking a text needs from its loader.
pub(super) trait TextHost<'a> {
    /// The job's variables, and where findings go.
    fn context(&mut self) -> &mut CheckContext<'a>;

    /// Loads and checks a file that a text includes. Returns whether the file exists; if it doesn't, that is a finding unless
    /// `optional`.
    fn include(&mut self, path: &str, place: SourceSpan, optional: bool, from: Includer<'_>) -> bool;

    /// The names that a loaded file defines for those that import it, if they are known.
    fn exports(&self, path: &str) -> Option<Exports>;
}

/// The text that includes a file.
pub(super) struct Includer<'s> {
    pub(super) role: TextRole,
    /// The names that the file can see.
    pub(super) visible: Arc<VisibleNames>,
    /// The texts that include each other, the outermost first and this one last.
    pub(super) stack: &'s [String],
}

/// Checks one text.
pub(super) struct TemplateChecker<'h, 'a> {
    host: &'h mut dyn TextHost<'a>,
    names: NameChecker,
    /// The texts that are being checked, the outermost first and this one last.
    include_stack: Vec<String>,
    /// Names that are certainly macros.
    macros: BTreeMap<String, Signature>,
    /// Names of imported files, with what those define.
    modules: BTreeMap<String, Exports>,
}

/// Filters that, applied to a mapping, show its keys or their number, and none of its values.
const SHOW_NAMES: &[&str] = &["count", "first", "join", "last", "length", "list", "sort"];

impl<'h, 'a> TemplateChecker<'h, 'a> {
    pub(super) fn new(
        host: &'h mut dyn TextHost<'a>,
        origin: TextOrigin,
        role: TextRole,
        visible: &VisibleNames,
        include_stack: Vec<String>,
    ) -> Self {
        let names = NameChecker::new(origin, role, visible);
        Self { host, names, include_stack, macros: BTreeMap::new(), modules: BTreeMap::new() }
    }

    pub(super) fn template(mut self, statements: &[ast::Stmt<'_>]) {
        // A macro may call one that is defined later.
        for statement in statements {
            if let ast::Stmt::Macro(declared) = statement {
                let is_first = !self.names.is_set(declared.name);
                self.set(declared.name);
                if is_first {
                    self.macros.insert(declared.name.to_owned(), Signature::of(declared));
                }
            }
        }
        self.statements(statements);
    }

    /// The range of a name that ends its span, as in `inputs.topic`.
    fn end_of(span: Span, name: &str) -> Range<usize> {
        let end = span.end_offset as usize;
        end.saturating_sub(name.len())..end
    }

    fn set(&mut self, name: &str) {
        self.macros.remove(name);
        self.modules.remove(name);
        self.names.scopes.set(name, NameBinding::Other);
    }

    fn in_scope(&mut self, names: &[&str], walk: impl FnOnce(&mut Self)) {
        self.names.scopes.push(names);
        walk(self);
        self.names.scopes.pop();
    }

    /// The variable of the job that an expression consists of: `inputs`, `job`, `run` or `workspace`.
    fn root<'e>(&self, expression: &ast::Expr<'e>) -> Option<&'e str> {
        let ast::Expr::Var(name) = expression else { return None };
        match self.names.scopes.get(name.id) {
            Some(NameBinding::Inputs) => Some("inputs"),
            Some(NameBinding::Other) => None,
            None => {
                let is_root = name.id == "inputs" || TemplateVariables::is_late(name.id);
                (is_root || TemplateVariables::parts(name.id).is_some()).then_some(name.id)
            }
        }
    }

    fn is_inputs(&self, expression: &ast::Expr<'_>) -> bool {
        self.root(expression) == Some("inputs")
    }

    /// Checks an expression whose value isn't shown; of `inputs`, only the names can be seen.
    fn names_only(&mut self, expression: &ast::Expr<'_>) {
        if self.is_inputs(expression) {
            self.host.context().used_inputs.all = true;
        } else {
            self.expression(expression);
        }
    }

    /// Checks an assignment.
    fn assign(&mut self, target: &ast::Expr<'_>, value: &ast::Expr<'_>) {
        if let ast::Expr::Var(name) = target
            && self.is_inputs(value)
        {
            self.names.scopes.set(name.id, NameBinding::Inputs);
            return;
        }
        self.expression(value);
        self.target(target);
    }

    fn statements(&mut self, statements: &[ast::Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &ast::Stmt<'_>) {
        use ast::Stmt;
        match statement {
            Stmt::EmitRaw(it) => self.single_braces(it.raw, it.span()),
            Stmt::ForLoop(it) => {
                self.names_only(&it.iter);
                self.in_scope(&["loop"], |walk| {
                    walk.target(&it.target);
                    walk.optional(it.filter_expr.as_ref());
                    walk.statements(&it.body);
                });
                self.in_scope(&[], |walk| walk.statements(&it.else_body));
            }
            Stmt::WithBlock(it) => self.in_scope(&[], |walk| {
                for (target, value) in &it.assignments {
                    walk.assign(target, value);
                }
                walk.statements(&it.body);
            }),
            Stmt::Set(it) => self.assign(&it.target, &it.expr),
            Stmt::SetBlock(it) => {
                self.optional(it.filter.as_ref());
                self.in_scope(&[], |walk| walk.statements(&it.body));
                self.target(&it.target);
            }
            Stmt::Block(it) => self.in_scope(&["super", "self"], |walk| walk.statements(&it.body)),
            Stmt::Import(it) => {
                let exports = self.imported(&it.expr);
                self.target(&it.name);
                if let (ast::Expr::Var(name), Some((_, exports))) = (&it.name, exports) {
                    self.modules.insert(name.id.to_owned(), exports);
                }
            }
            Stmt::FromImport(it) => {
                let exports = self.imported(&it.expr);
                for (name, alias) in &it.names {
                    let target = alias.as_ref().unwrap_or(name);
                    self.target(target);
                    let (Some((path, exports)), ast::Expr::Var(name), ast::Expr::Var(target)) =
                        (&exports, name, target)
                    else {
                        continue;
                    };
                    match exports.get(name.id) {
                        Some(Some(signature)) => drop(self.macros.insert(target.id.to_owned(), signature.clone())),
                        Some(None) => {}
                        None => {
                            let place = self.names.place(name.span());
                            self.report_missing(name.id, place, &format!("`{path}` defines no"), exports);
                        }
                    }
                }
            }
            Stmt::Extends(it) => self.files(&it.name, false),
            Stmt::Include(it) => self.files(&it.name, it.ignore_missing),
            Stmt::Macro(it) => {
                let start = it.span().start_offset as usize;
                if self.macros.get(it.name).is_none_or(|known| known.start != start) {
                    self.set(it.name);
                }
                self.macro_body(it);
            }
            Stmt::CallBlock(it) => {
                self.call(&it.call);
                self.macro_body(&it.macro_decl);
            }
            Stmt::Do(it) => self.call(&it.call),
            _ => {
                expressions(statement).into_iter().for_each(|expression| self.expression(expression));
                bodies(statement).into_iter().for_each(|body| self.statements(body));
            }
        }
    }

    fn macro_body(&mut self, declared: &ast::Macro<'_>) {
        for default in &declared.defaults {
            self.expression(default);
        }
        self.in_scope(&["caller"], |walk| {
            for argument in &declared.args {
                walk.target(argument);
            }
            walk.statements(&declared.body);
        });
    }

    /// Checks the target of a `set`, a loop or an argument.
    fn target(&mut self, target: &ast::Expr<'_>) {
        match target {
            ast::Expr::GetAttr(part) => self.expression(&part.expr),
            _ => names_in_target(target).into_iter().for_each(|name| self.set(name)),
        }
    }

    /// The path of an imported file and the names that it defines, if they are known.
    fn imported(&mut self, name: &ast::Expr<'_>) -> Option<(String, Exports)> {
        self.files(name, false);
        let ast::Expr::Const(constant) = name else { return None };
        let path = constant.value.as_str()?;
        Some((path.to_owned(), self.host.exports(path)?))
    }

    fn report_missing(&mut self, name: &str, place: SourceSpan, what: &str, exports: &Exports) {
        let finding = Diagnostic::error("undefined-variable", place, format!("{what} `{name}`"));
        let names = || exports.keys().map(String::as_str);
        let listed = || names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        self.host.context().report(match crate::diagnostic::suggest_name(name, names()) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")),
            None if exports.is_empty() => finding.help("the file defines no names: add a macro or a `{% set %}` to it"),
            None => finding.help(format!("the file defines {}", listed())),
        });
    }

    /// Reports `{inputs.NAME}`, which was meant to be a tag.
    fn single_braces(&mut self, raw: &str, span: Span) {
        const START: &str = "{inputs.";
        if !raw.contains(START) {
            return;
        }
        let start = span.start_offset as usize;
        for (at, _) in raw.match_indices(START) {
            let name = &raw[at + START.len()..];
            let Some(name) = name.find('}').map(|end| name[..end].trim()) else { continue };
            if self.host.context().declared(name).is_none_or(|declared| declared.is_secret) {
                continue;
            }
            self.host.context().used_inputs.add(name);
            let range = start + at..start + at + raw[at..].find('}').map_or(0, |end| end + 1);
            let finding = Diagnostic::warning(
                "single-brace",
                self.names.at(range),
                format!("`{{inputs.{name}}}` isn't a tag: it stays in the text as it is"),
            );
            self.host
                .context()
                .report_warning(finding.help(format!("write `{{{{ inputs.{name} }}}}` for the input's value")));
        }
    }

    /// Checks the files that an include or import names. Of several, the first that exists is used.
    fn files(&mut self, name: &ast::Expr<'_>, optional: bool) {
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
                    let visible = self.names.visible();
                    let from = Includer { role: self.names.role, visible, stack: &self.include_stack };
                    found |= self.host.include(&path, self.names.place(item.span()), optional || several, from);
                }
                None => {
                    let place = self.names.place(item.span());
                    let message = "the name of the file must be written out here";
                    self.host.context().report(
                        Diagnostic::error("dynamic-include", place, message).help(
                            "write each file name as a string in quotes, and choose between them with `{% if %}`",
                        ),
                    );
                    found = true;
                }
            }
        }
        if several && !found && !optional {
            let place = self.names.place(name.span());
            let finding = Diagnostic::error("unreadable-file", place, "none of these files exists");
            self.host.context().report(finding.help("name a file that exists, or add `ignore missing`"));
        }
    }

    fn optional(&mut self, expression: Option<&ast::Expr<'_>>) {
        if let Some(expression) = expression {
            self.expression(expression);
        }
    }

    fn expression(&mut self, expression: &ast::Expr<'_>) {
        use ast::Expr;
        if self.host.context().is_full() {
            return;
        }
        match expression {
            Expr::Var(it) => self.names.variable(self.host.context(), it.id, it.span()),
            Expr::GetAttr(it) => match self.root(&it.expr) {
                Some(root) => {
                    self.names.attribute(self.host.context(), root, it.name, Self::end_of(it.span(), it.name));
                }
                None => {
                    self.module_member(&it.expr, it.name, it.span());
                    self.expression(&it.expr);
                }
            },
            Expr::GetItem(it) => {
                let constant = match &it.subscript_expr {
                    Expr::Const(constant) => constant.value.as_str(),
                    _ => None,
                };
                match (self.root(&it.expr), constant) {
                    (Some(root), Some(name)) => {
                        self.names.attribute(self.host.context(), root, name, quoted(it.subscript_expr.span()));
                    }
                    _ => {
                        self.expression(&it.expr);
                        self.expression(&it.subscript_expr);
                    }
                }
            }
            Expr::BinOp(it) if matches!(it.op, ast::BinOpKind::In) => {
                self.expression(&it.left);
                self.names_only(&it.right);
            }
            Expr::Filter(it) => {
                match (&it.expr, it.args.as_slice()) {
                    (Some(value), _) if SHOW_NAMES.contains(&it.name) => self.names_only(value),
                    (Some(value), [ast::CallArg::Pos(Expr::Const(part))])
                        if it.name == "attr" && self.is_inputs(value) && part.value.as_str().is_some() =>
                    {
                        self.names.attribute(
                            self.host.context(),
                            "inputs",
                            part.value.as_str().unwrap_or_default(),
                            quoted(part.span()),
                        );
                    }
                    (value, _) => self.optional(value.as_ref()),
                }
                self.names.filter(self.host.context(), it.name, self.names.start_of(it.span(), it.name));
                self.named_by_text(it);
                self.arguments(&it.args);
            }
            Expr::Test(it) => {
                self.names_only(&it.expr);
                self.names.test(self.host.context(), it.name, self.names.start_of(it.span(), it.name));
                self.arguments(&it.args);
            }
            Expr::Call(it) => self.call(it),
            _ => children(expression).into_iter().for_each(|child| self.expression(child)),
        }
    }

    fn arguments(&mut self, arguments: &[ast::CallArg<'_>]) {
        arguments.iter().map(argument_value).for_each(|argument| self.expression(argument));
    }

    /// Checks filters and tests that are given to another filter by name, as in `map('upper')`.
    fn named_by_text(&mut self, filter: &ast::Filter<'_>) {
        let at = match filter.name {
            "map" | "select" | "reject" => 0,
            "selectattr" | "rejectattr" => 1,
            _ => return,
        };
        let Some(ast::CallArg::Pos(ast::Expr::Const(constant))) = filter.args.get(at) else { return };
        let Some(name) = constant.value.as_str() else { return };
        let place = self.names.at(quoted(constant.span()));
        match filter.name {
            "map" => self.names.filter(self.host.context(), name, place),
            _ => self.names.test(self.host.context(), name, place),
        }
    }

    /// Checks a name in an imported file.
    fn module_member(&mut self, value: &ast::Expr<'_>, name: &str, span: Span) {
        if let ast::Expr::Var(module) = value
            && let Some(exports) = self.modules.get(module.id).filter(|it| !it.contains_key(name)).cloned()
        {
            let place = self.names.at(Self::end_of(span, name));
            self.report_missing(name, place, &format!("the file imported as `{}` defines no", module.id), &exports);
        }
    }

    /// Checks the arguments of a macro.
    fn check_macro_call(&mut self, call: &ast::Spanned<ast::Call<'_>>) {
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
        let finding = Diagnostic::error("macro-arguments", self.names.place(call.span()), message);
        self.host.context().report(match signature.arguments.as_slice() {
            [] => finding.help("the macro takes no arguments"),
            arguments => finding.help(format!("its arguments are `{}`", arguments.join("`, `"))),
        });
    }

    fn call(&mut self, call: &ast::Spanned<ast::Call<'_>>) {
        self.check_macro_call(call);
        match call.identify_call() {
            ast::CallType::Function(name) => self.names.function(self.host.context(), name, call.expr.span()),
            ast::CallType::Method(value, name) => {
                self.module_member(value, name, call.expr.span());
                self.expression(value);
                if self.has_no_methods(value) {
                    let place = self.names.at(Self::end_of(call.expr.span(), name));
                    self.names.report_function(self.host.context(), name, place, "method");
                }
            }
            ast::CallType::Block(_) => {}
            ast::CallType::Object(value) => self.expression(value),
        }
        self.arguments(&call.args);
    }

    /// Whether a value is certainly of a type without methods, such as a text or a number.
    fn has_no_methods(&self, value: &ast::Expr<'_>) -> bool {
        match value {
            ast::Expr::Const(_) | ast::Expr::List(_) | ast::Expr::Map(_) | ast::Expr::Filter(_) => true,
            ast::Expr::Var(name) => !self.names.is_set(name.id),
            ast::Expr::GetAttr(it) => self.has_no_methods(&it.expr),
            ast::Expr::GetItem(it) => self.has_no_methods(&it.expr),
            _ => false,
        }
    }
}

/// The range of a string without its quotes.
fn quoted(span: Span) -> Range<usize> {
    let start = span.start_offset as usize + 1;
    start..(span.end_offset as usize).saturating_sub(1).max(start)
}
