//! Loads a job's texts and the files that they include, and has each one checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use minijinja::machinery::{ast, parse};

use super::check::{Includer, TemplateChecker, TextHost};
use super::check_context::{CheckContext, push_new};
use super::exports::{Exports, exports};
use super::instrument::InstrumentedTemplate;
use super::job_dir::{JobDir, PromptFileError};
use super::name_check::TextRole;
use super::scopes::{NameBinding, VisibleNames};
use super::syntax_errors::{SyntaxError, find_errors, without_broken_tags};
use super::tags::{find_oversized_tag, tags_after_dollar};
use super::texts::{Template, TemplateText, Templates, TextOrigin};
use super::type_check::{TypeError, type_errors};
use super::variables::TemplateVariables;
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::yaml::Node;

/// The greatest number of files that a job's templates may name.
pub const MAX_FILES: usize = 100;

/// How often included files may be checked: once for each set of variables that they can see.
const MAX_WALKS: usize = 2_000;

/// The greatest number of variables that those checks may start with, counted together.
const MAX_VISIBLE: usize = 1_000_000;

/// Loads and checks the texts of a job.
#[derive(Debug)]
pub struct Loader<'a> {
    context: CheckContext<'a>,
    folder: Option<&'a JobDir>,
    templates: Templates,
    file_errors: BTreeMap<String, PromptFileError>,
    /// The names that each text defines; `None` where that isn't known.
    exports: BTreeMap<String, Option<Exports>>,
    walked: BTreeSet<VisitedText>,
    /// How often a file was checked because another text includes it.
    walks: usize,
    /// The names that each file last saw.
    last_visible: HashMap<(String, TextRole), Arc<VisibleNames>>,
    /// The number of names that all walks have seen together.
    visible: usize,
    /// Whether a limit on walks was exceeded, which is reported once.
    has_too_many_walks: bool,
}

/// A text and the names that it can see. Checking it again with the same names would find the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct VisitedText {
    name: String,
    role: TextRole,
    visible: Arc<VisibleNames>,
}

impl<'a> Loader<'a> {
    /// Creates a loader without texts. Without a folder, as for a job from standard input, every file is an error.
    pub fn new(folder: Option<&'a JobDir>, names: &'a TemplateVariables) -> Self {
        Self {
            context: CheckContext::new(names),
            folder,
            templates: Templates::default(),
            file_errors: BTreeMap::new(),
            exports: BTreeMap::new(),
            walked: BTreeSet::new(),
            walks: 0,
            last_visible: HashMap::new(),
            visible: 0,
            has_too_many_walks: false,
        }
    }

    /// Loads a text of the job file.
    pub fn text(&mut self, node: &Node, text: &str, role: TextRole) -> Template {
        // An unreadable text may use any input.
        self.context.used_inputs.is_incomplete |= node.is_placeholder() || node.is_incomplete();
        // No file can have such a name, so no include can name this text.
        let name = format!("\0{}", self.templates.texts.len());
        let text = TemplateText { text: text.into(), origin: TextOrigin::of_node(node) };
        self.templates.texts.insert(name.clone(), text);
        self.context.uses_late = false;
        self.walk(&name, role, Arc::default(), &[]);
        Template { name }
    }

    /// Loads a prompt from a file below the job's folder. Returns `None` if it can't be read, with a finding at `place`.
    pub fn file(&mut self, path: &str, place: SourceSpan, role: TextRole) -> Option<Template> {
        match self.read(path) {
            Ok(()) => {
                self.context.uses_late = false;
                self.walk(path, role, Arc::default(), &[]);
                Some(Template { name: path.to_owned() })
            }
            Err(fault) => {
                self.report_file_error(path, place, &fault);
                None
            }
        }
    }

    /// The texts and the findings. A text with an error can't be rendered.
    pub fn finish(mut self) -> (Templates, Vec<Diagnostic>) {
        self.templates.used_inputs = self.context.used_inputs;
        self.templates.used_steps = self.context.used_steps;
        self.templates.uses_state = self.context.uses_state;
        (self.templates, self.context.findings.finish())
    }

    /// Makes a text that includes an invalid one invalid, too, and one that includes a late one late.
    fn propagate_finding(&mut self, name: &str) {
        self.context.found += usize::from(self.templates.invalid.contains(name));
        self.context.uses_late |= self.templates.late.contains(name);
    }

    fn walk(&mut self, name: &str, role: TextRole, visible: Arc<VisibleNames>, trail: &[String]) {
        let Some(text) = self.templates.texts.get(name).cloned() else { return };
        self.visible += visible.len();
        let visit = VisitedText { name: name.to_owned(), role, visible };
        if self.walked.contains(&visit) {
            return self.propagate_finding(name);
        }
        self.walks += usize::from(!trail.is_empty());
        if self.walks > MAX_WALKS || self.visible > MAX_VISIBLE {
            if !std::mem::replace(&mut self.has_too_many_walks, true) {
                let place = text.origin.place(0..0);
                let message = format!("files include each other in more than {MAX_WALKS} ways");
                let finding = Diagnostic::error("too-many-includes", place, message);
                self.context.report(finding.help("include fewer files from one another"));
            }
            return;
        }
        let found = self.context.found;
        let visible = visit.visible.clone();
        self.walked.insert(visit);
        let includer_is_late = std::mem::take(&mut self.context.uses_late);
        self.walk_text(name, text, role, &visible, trail);
        if self.context.uses_late {
            self.templates.late.insert(name.to_owned());
        }
        self.context.uses_late |= includer_is_late;
        if self.context.found > found || self.has_too_many_walks {
            self.templates.invalid.insert(name.to_owned());
        }
    }

    fn walk_text(&mut self, name: &str, text: TemplateText, role: TextRole, visible: &VisibleNames, trail: &[String]) {
        if let Some((range, why)) = find_oversized_tag(&text.text) {
            let finding = Diagnostic::error("template-syntax", text.origin.place(range), format!("template: {why}"));
            self.context.report(finding.help("split it into several tags or blocks"));
            return;
        }
        match parse(&text.text, name, Default::default()) {
            Ok(ast::Stmt::Template(root)) => {
                for range in tags_after_dollar(&text.text) {
                    let message = "the `$` isn't part of the tag: it stays in the text, before the value";
                    let finding = Diagnostic::warning("dollar-before-tag", text.origin.place(range), message);
                    self.context.report_warning(finding.help("remove the `$`: a tag here is `{{ inputs.NAME }}`"));
                }
                self.templates
                    .instrumented
                    .insert(name.to_owned(), InstrumentedTemplate::new(&text.text, &root.children));
                self.exports.insert(name.to_owned(), exports(&root.children));
                self.check_tree(name, text.origin, role, visible, trail, &root.children);
            }
            Ok(_) => {}
            Err(error) => {
                for SyntaxError { range, message, help } in find_errors(&text.text, &error) {
                    let finding = Diagnostic::error("template-syntax", text.origin.place(range), message);
                    self.context.report(finding.help(help));
                }
                let Some(repaired) = without_broken_tags(&text.text) else { return };
                if let Ok(ast::Stmt::Template(root)) = parse(&repaired.text, name, Default::default()) {
                    // A broken tag may have set any of its words.
                    let words = repaired.words.into_iter().map(|word| (word, NameBinding::Other));
                    let visible = words.chain(visible.clone()).collect();
                    self.check_tree(name, text.origin, role, &visible, trail, &root.children);
                }
            }
        }
    }

    fn check_tree(
        &mut self,
        name: &str,
        origin: TextOrigin,
        role: TextRole,
        visible: &VisibleNames,
        trail: &[String],
        statements: &[ast::Stmt<'_>],
    ) {
        for TypeError { range, message } in type_errors(statements, &self.context.names.types) {
            let message = format!("the template can't be rendered: {message}");
            let finding = Diagnostic::error("render-failed", origin.place(range), message);
            let help = "use the input as its type allows, or change the `type` of the input";
            push_new(&mut self.templates.type_errors, finding.help(help));
        }
        let trail = trail.iter().cloned().chain([name.to_owned()]).collect();
        TemplateChecker::new(self, origin, role, visible, trail).template(statements);
    }

    /// Reads a file, unless an earlier call has read it or failed to.
    fn read(&mut self, path: &str) -> Result<(), PromptFileError> {
        if self.templates.texts.contains_key(path) {
            return Ok(());
        }
        if let Some(fault) = self.file_errors.get(path) {
            return Err(fault.clone());
        }
        let unreadable = |why: String| Err(PromptFileError::Unreadable(why));
        let read = match self.folder {
            None => unreadable("can't be read: the job doesn't come from a folder".to_owned()),
            Some(_) if self.templates.files().count() + self.file_errors.len() >= MAX_FILES => {
                unreadable(format!("is more than a job may name: {MAX_FILES} files"))
            }
            Some(folder) => folder.read(path),
        };
        match read {
            Ok(source) => {
                let text = TemplateText { text: source.text.as_str().into(), origin: TextOrigin::File(source) };
                self.templates.texts.insert(path.to_owned(), text);
                Ok(())
            }
            Err(fault) => {
                if fault == PromptFileError::Missing {
                    self.templates.missing.insert(path.to_owned());
                }
                self.file_errors.insert(path.to_owned(), fault.clone());
                Err(fault)
            }
        }
    }

    fn report_file_error(&mut self, path: &str, place: SourceSpan, fault: &PromptFileError) {
        let below = "prompts and includes must be below the folder of the job file";
        let finding = match fault {
            PromptFileError::OutsideJobDir => {
                Diagnostic::error("outside-folder", place, format!("`{path}` is outside of the job's folder"))
                    .help(below)
            }
            PromptFileError::Missing => {
                Diagnostic::error("unreadable-file", place, format!("there is no file `{path}`")).help(below)
            }
            PromptFileError::Unreadable(why) => Diagnostic::error("unreadable-file", place, format!("`{path}` {why}"))
                .help("name a regular file of at most 1 MiB, saved as UTF-8 text"),
        };
        self.context.report(finding);
    }
}

impl<'a> TextHost<'a> for Loader<'a> {
    fn context(&mut self) -> &mut CheckContext<'a> {
        &mut self.context
    }

    fn exports(&self, path: &str) -> Option<Exports> {
        self.exports.get(path).cloned().flatten()
    }

    fn include(&mut self, path: &str, place: SourceSpan, optional: bool, from: Includer<'_>) -> bool {
        if self.has_too_many_walks {
            return true;
        }
        if from.stack.iter().any(|name| name == path) {
            let route = from.stack.iter().filter(|name| !name.starts_with('\0')).map(|name| format!("`{name}`"));
            let route = route.chain([format!("`{path}`")]).collect::<Vec<_>>().join(", ");
            self.context.report(
                Diagnostic::error("include-cycle", place, format!("`{path}` includes itself"))
                    .help(format!("these files include each other: {route}")),
            );
            return true;
        }
        match self.read(path) {
            Ok(()) => {
                if let Some(includer) = from.stack.last() {
                    self.templates.includes.entry(includer.clone()).or_default().insert(path.to_owned());
                }
                let (role, visible) = (from.role, from.visible);
                let key = (path.to_owned(), role);
                if self.last_visible.get(&key).is_some_and(|latest| Arc::ptr_eq(latest, &visible)) {
                    self.propagate_finding(path);
                } else {
                    self.last_visible.insert(key, visible.clone());
                    self.walk(path, role, visible, from.stack);
                }
                true
            }
            Err(PromptFileError::Missing) if optional => false,
            Err(fault) => {
                self.report_file_error(path, place, &fault);
                false
            }
        }
    }
}
