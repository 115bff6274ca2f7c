//! Gathers a job's texts and the files that they include, and has each one checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use minijinja::Environment;
use minijinja::machinery::{ast, parse};

use super::check::TemplateChecker;
use super::exports::{Exports, exports};
use super::instrument::InstrumentedTemplate;
use super::scopes::VisibleNames;
use super::syntax_errors::{SyntaxError, find_errors};
use super::tag_limits::find_oversized_tag;
use super::type_check::{TypeError, type_errors};
use super::{
    JobDir, PromptFileError, Template, TemplateText, TemplateVariables, Templates, TextOrigin, UsedInputs, environment,
};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::yaml::Node;

/// The greatest number of files that a job's templates may name.
pub const MAX_FILES: usize = 100;

/// How often included files may be walked: once for each set of variables that they can see.
const MAX_WALKS: usize = 2_000;

/// How many names of variables all those walks may begin with together.
const MAX_VISIBLE: usize = 1_000_000;

/// How many findings are kept: more than anyone is shown.
const MAX_FINDINGS: usize = 110;

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextRole {
    /// A system prompt, whose words weigh more than others.
    System,
    /// A prompt.
    Prompt,
    /// What says whether something is done.
    Condition,
}

/// Takes a job's texts, and finds everything that is wrong with them.
#[derive(Debug)]
pub struct Loader<'a> {
    pub(super) names: &'a TemplateVariables,
    pub(super) environment: Environment<'static>,
    pub(super) used_inputs: UsedInputs,
    /// What is known of each input that the job declares.
    declared: HashMap<&'a str, DeclaredInput>,
    folder: Option<&'a JobDir>,
    templates: Templates,
    file_errors: BTreeMap<String, PromptFileError>,
    /// What each text defines, where that is known.
    exports: BTreeMap<String, Option<Exports>>,
    findings: Vec<Diagnostic>,
    walked: BTreeSet<VisitedText>,
    /// How often a file was walked because another text includes it.
    walks: usize,
    /// The names that each file was last walked with, and how many there were in all.
    last_visible: HashMap<(String, TextRole), Arc<VisibleNames>>,
    visible: usize,
    /// There were too many, which is said once.
    has_too_many_walks: bool,
    /// How often something was found.
    found: usize,
    /// An input whose text strangers can write and that templates see.
    pub(super) untrusted: Option<&'a str>,
}

/// What a job says of an input.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeclaredInput {
    pub(super) is_secret: bool,
    pub(super) is_untrusted: bool,
}

/// A text, and what it can see: walking it twice with the same would find the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct VisitedText {
    name: String,
    role: TextRole,
    visible: Arc<VisibleNames>,
}

impl<'a> Loader<'a> {
    /// Begins with no texts. Without a folder, as for a job from standard input, every file is an error.
    pub fn new(folder: Option<&'a JobDir>, names: &'a TemplateVariables) -> Self {
        let mut declared: HashMap<&str, DeclaredInput> = HashMap::new();
        declared.extend(names.inputs.iter().map(|name| (name.as_str(), DeclaredInput::default())));
        for name in &names.secret {
            declared.entry(name).or_default().is_secret = true;
        }
        for name in &names.untrusted {
            declared.entry(name).or_default().is_untrusted = true;
        }
        let mut untrusted = names.untrusted.iter().map(String::as_str);
        let untrusted = untrusted.find(|name| declared.get(name).is_some_and(|declared| !declared.is_secret));
        Self {
            names,
            environment: environment(),
            used_inputs: UsedInputs::default(),
            declared,
            folder,
            templates: Templates::default(),
            file_errors: BTreeMap::new(),
            exports: BTreeMap::new(),
            findings: Vec::new(),
            walked: BTreeSet::new(),
            walks: 0,
            last_visible: HashMap::new(),
            visible: 0,
            has_too_many_walks: false,
            found: 0,
            untrusted,
        }
    }

    /// Takes a text that stands in the job file.
    pub fn text(&mut self, node: &Node, text: &str, role: TextRole) -> Template {
        // What it says can't be read, so that nothing can be said to be unused.
        self.used_inputs.is_incomplete |= node.is_placeholder() || node.is_incomplete();
        // No file can have such a name, so that no include can reach it.
        let name = format!("\0{}", self.templates.texts.len());
        let text = TemplateText { text: text.into(), origin: TextOrigin::of_node(node) };
        self.templates.texts.insert(name.clone(), text);
        self.walk(&name, role, Arc::default(), &[]);
        Template { name }
    }

    /// Takes a prompt that stands in a file below the job's folder. `None`, and a finding at `place`, where it can't be
    /// read.
    pub fn file(&mut self, path: &str, place: SourceSpan, role: TextRole) -> Option<Template> {
        match self.read(path) {
            Ok(()) => {
                self.walk(path, role, Arc::default(), &[]);
                Some(Template { name: path.to_owned() })
            }
            Err(fault) => {
                self.report_file_error(path, place, &fault);
                None
            }
        }
    }

    /// The texts and what is wrong with them; those in which something is wrong can't be rendered.
    pub fn finish(mut self) -> (Templates, Vec<Diagnostic>) {
        self.templates.used_inputs = self.used_inputs;
        (self.templates, self.findings)
    }

    /// What the job says of an input; `None` where it has none of that name.
    pub(super) fn declared(&self, input: &str) -> Option<DeclaredInput> {
        self.declared.get(input).copied()
    }

    /// What a file defines for those that import it, where that is known.
    pub(super) fn exports(&self, path: &str) -> Option<Exports> {
        self.exports.get(path).cloned().flatten()
    }

    /// Takes in something that makes no text wrong.
    pub(super) fn report_warning(&mut self, finding: Diagnostic) {
        let same = |other: &Diagnostic| {
            other.span.range == finding.span.range && Arc::ptr_eq(&other.span.source, &finding.span.source)
        };
        if !self.is_full() && !self.findings.iter().any(same) {
            self.findings.push(finding);
        }
    }

    /// Whether looking further makes no difference.
    pub(super) fn is_full(&self) -> bool {
        self.findings.len() >= MAX_FINDINGS
    }

    pub(super) fn report(&mut self, finding: Diagnostic) {
        self.found += 1;
        // Whoever misspells a name is read on after it.
        let is_of_a_name = finding.code.starts_with("un") && finding.code != "unreadable-file";
        self.used_inputs.is_incomplete |= self.is_full() || !(is_of_a_name || finding.code == "secret-in-template");
        let same = |other: &Diagnostic| {
            other.code == finding.code
                && other.span.range == finding.span.range
                && Arc::ptr_eq(&other.span.source, &finding.span.source)
        };
        if !self.is_full() && !self.findings.iter().any(same) {
            self.findings.push(finding);
        }
    }

    /// Follows one include. Whether the file is there; where it isn't, that is a finding unless `optional`.
    pub(super) fn include(
        &mut self,
        path: &str,
        place: SourceSpan,
        optional: bool,
        from: &mut TemplateChecker,
    ) -> bool {
        if self.has_too_many_walks {
            return true;
        }
        if from.include_stack.iter().any(|name| name == path) {
            let route =
                from.include_stack.iter().filter(|name| !name.starts_with('\0')).map(|name| format!("`{name}`"));
            let route = route.chain([format!("`{path}`")]).collect::<Vec<_>>().join(", ");
            self.report(
                Diagnostic::error("include-cycle", place, format!("`{path}` includes itself"))
                    .help(format!("these files include each other in turn: {route}")),
            );
            return true;
        }
        match self.read(path) {
            Ok(()) => {
                let (role, visible) = (from.role, from.visible());
                let key = (path.to_owned(), role);
                if self.last_visible.get(&key).is_some_and(|latest| Arc::ptr_eq(latest, &visible)) {
                    self.propagate_finding(path);
                } else {
                    self.last_visible.insert(key, visible.clone());
                    self.walk(path, role, visible, &from.include_stack);
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

    /// What was found in a text counts for those that include it, too.
    fn propagate_finding(&mut self, name: &str) {
        self.found += usize::from(self.templates.invalid.contains(name));
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
                self.report(finding.help("include fewer files from one another"));
            }
            return;
        }
        let found = self.found;
        let visible = visit.visible.clone();
        self.walked.insert(visit);
        self.walk_text(name, text, role, &visible, trail);
        if self.found > found || self.has_too_many_walks {
            self.templates.invalid.insert(name.to_owned());
        }
    }

    fn walk_text(&mut self, name: &str, text: TemplateText, role: TextRole, visible: &VisibleNames, trail: &[String]) {
        if let Some((range, why)) = find_oversized_tag(&text.text) {
            let finding = Diagnostic::error("template-syntax", text.origin.place(range), format!("template: {why}"));
            self.report(finding.help("break it into several tags or blocks"));
            return;
        }
        match parse(&text.text, name, Default::default()) {
            Ok(ast::Stmt::Template(root)) => {
                self.templates.instrumented.insert(name.to_owned(), InstrumentedTemplate::new(&root.children));
                self.exports.insert(name.to_owned(), exports(&root.children));
                for TypeError { range, message } in type_errors(&root.children, &self.names.types) {
                    let place = text.origin.place(range);
                    let same = |other: &Diagnostic| {
                        other.span.range == place.range && Arc::ptr_eq(&other.span.source, &place.source)
                    };
                    if self.templates.type_errors.len() < MAX_FINDINGS && !self.templates.type_errors.iter().any(same) {
                        let message = format!("the template can't be rendered: {message}");
                        let finding = Diagnostic::error("render-failed", place, message);
                        self.templates
                            .type_errors
                            .push(finding.help("use the input as its type allows, or change its `type`"));
                    }
                }
                let trail = trail.iter().cloned().chain([name.to_owned()]).collect();
                TemplateChecker::new(text.origin, role, visible, trail).template(self, &root.children);
            }
            Ok(_) => {}
            Err(error) => {
                for SyntaxError { range, message, help } in find_errors(&text.text, &error) {
                    let finding = Diagnostic::error("template-syntax", text.origin.place(range), message);
                    self.report(finding.help(help));
                }
            }
        }
    }

    /// Reads a file once, for good or ill.
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
                unreadable(format!("is one too many: a job may name {MAX_FILES} files"))
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
        let below = "prompts and includes are files below the job file's own folder";
        let finding = match fault {
            PromptFileError::OutsideJobDir => {
                Diagnostic::error("outside-folder", place, format!("`{path}` lies outside the job's folder"))
                    .help(below)
            }
            PromptFileError::Missing => {
                Diagnostic::error("unreadable-file", place, format!("there is no file `{path}`")).help(below)
            }
            PromptFileError::Unreadable(why) => Diagnostic::error("unreadable-file", place, format!("`{path}` {why}"))
                .help("name a regular file of at most 1 MiB, saved as UTF-8 text"),
        };
        self.report(finding);
    }
}
