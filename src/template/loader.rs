//! Gathers a job's texts and the files that they include, and has each one checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minijinja::Environment;
use minijinja::machinery::{ast, parse};

use super::bounds::excess;
use super::check::Walk;
use super::{FileFault, Folder, Names, Origin, Template, Templates, Text, environment};
use crate::diagnostic::{Diagnostic, Place};
use crate::yaml::Node;

/// The greatest number of files that a job's templates may name.
pub const MAX_FILES: usize = 100;

/// How often included files may be walked: once for each set of variables that they can see.
const MAX_WALKS: usize = 2_000;

/// How many findings are kept: more than anyone is shown.
const MAX_FINDINGS: usize = 110;

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A system prompt, whose words weigh more than others.
    System,
    /// A prompt.
    Prompt,
}

/// Takes a job's texts, and finds everything that is wrong with them.
#[derive(Debug)]
pub struct Loader<'a> {
    pub(super) names: &'a Names,
    pub(super) environment: Environment<'static>,
    folder: Option<&'a Folder>,
    templates: Templates,
    faults: BTreeMap<String, FileFault>,
    findings: Vec<Diagnostic>,
    walked: BTreeSet<Visit>,
    /// There were too many, which is said once.
    is_lost: bool,
}

/// A text, and what it can see: walking it twice with the same would find the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Visit {
    name: String,
    in_system: bool,
    visible: BTreeSet<String>,
}

impl<'a> Loader<'a> {
    /// Begins with no texts. Without a folder, as for a job from standard input, every file is an error.
    pub fn new(folder: Option<&'a Folder>, names: &'a Names) -> Self {
        Self {
            names,
            environment: environment(),
            folder,
            templates: Templates::default(),
            faults: BTreeMap::new(),
            findings: Vec::new(),
            walked: BTreeSet::new(),
            is_lost: false,
        }
    }

    /// Takes a text that stands in the job file.
    pub fn text(&mut self, node: &Node, text: &str, role: Role) -> Template {
        // No file can have such a name, so that no include can reach it.
        let name = format!("\0{}", self.templates.texts.len());
        let text = Text { text: text.into(), origin: Origin::Node(node.clone()) };
        self.templates.texts.insert(name.clone(), text);
        self.walk(&name, role, BTreeSet::new(), &[]);
        Template { name }
    }

    /// Takes a text that stands in a file below the job's folder. `None`, and a finding at `place`, where it can't be
    /// read.
    pub fn file(&mut self, path: &str, place: Place, role: Role) -> Option<Template> {
        match self.read(path) {
            Ok(()) => {
                self.walk(path, role, BTreeSet::new(), &[]);
                Some(Template { name: path.to_owned() })
            }
            Err(fault) => {
                self.report_fault(path, place, &fault);
                None
            }
        }
    }

    /// The texts and what is wrong with them. With findings, the texts are fit for nothing.
    pub fn finish(self) -> (Templates, Vec<Diagnostic>) {
        (self.templates, self.findings)
    }

    /// Whether looking further makes no difference.
    pub(super) fn is_full(&self) -> bool {
        self.findings.len() >= MAX_FINDINGS
    }

    pub(super) fn report(&mut self, finding: Diagnostic) {
        let same = |other: &Diagnostic| {
            other.code == finding.code
                && other.place.span == finding.place.span
                && Arc::ptr_eq(&other.place.source, &finding.place.source)
        };
        if !self.is_full() && !self.findings.iter().any(same) {
            self.findings.push(finding);
        }
    }

    /// Follows one include. Whether the file is there; where it isn't, that is a finding unless `optional`.
    pub(super) fn include(&mut self, path: &str, place: Place, optional: bool, from: &Walk) -> bool {
        if from.trail.iter().any(|name| name == path) {
            let route = from.trail.iter().filter(|name| !name.starts_with('\0')).map(|name| format!("`{name}`"));
            let route = route.chain([format!("`{path}`")]).collect::<Vec<_>>().join(", ");
            self.report(
                Diagnostic::error("include-cycle", place, format!("`{path}` includes itself"))
                    .help(format!("these files include each other in turn: {route}")),
            );
            return true;
        }
        match self.read(path) {
            Ok(()) => {
                self.walk(path, from.role, from.visible(), &from.trail);
                true
            }
            Err(FileFault::Missing) if optional => false,
            Err(fault) => {
                self.report_fault(path, place, &fault);
                false
            }
        }
    }

    fn walk(&mut self, name: &str, role: Role, visible: BTreeSet<String>, trail: &[String]) {
        let Some(text) = self.templates.texts.get(name).cloned() else { return };
        let visit = Visit { name: name.to_owned(), in_system: role == Role::System, visible: visible.clone() };
        if self.walked.contains(&visit) {
            return;
        }
        if self.walked.len() >= MAX_WALKS {
            if !std::mem::replace(&mut self.is_lost, true) {
                let place = text.origin.place(0..0);
                let message = format!("files include each other in more than {MAX_WALKS} ways");
                let finding = Diagnostic::error("too-many-includes", place, message);
                self.report(finding.help("include fewer files from one another"));
            }
            return;
        }
        self.walked.insert(visit);
        if let Some((range, why)) = excess(&text.text) {
            let finding = Diagnostic::error("template-syntax", text.origin.place(range), format!("template: {why}"));
            self.report(finding.help("break it into several tags or blocks"));
            return;
        }
        match parse(&text.text, name, Default::default()) {
            Ok(ast::Stmt::Template(root)) => {
                let trail = trail.iter().cloned().chain([name.to_owned()]).collect();
                Walk::new(text.origin, role, visible, trail).template(self, &root.children);
            }
            Ok(_) => {}
            Err(error) => {
                let end = text.text.len();
                let range = error.range().unwrap_or(0..0);
                let range = range.start.min(end)..range.end.min(end);
                let detail = error.detail().unwrap_or("syntax error").to_owned();
                self.report(
                    Diagnostic::error("template-syntax", text.origin.place(range), format!("template: {detail}"))
                        .help("braces that aren't meant as a template tag go between `{% raw %}` and `{% endraw %}`"),
                );
            }
        }
    }

    /// Reads a file once, for good or ill.
    fn read(&mut self, path: &str) -> Result<(), FileFault> {
        if self.templates.texts.contains_key(path) {
            return Ok(());
        }
        if let Some(fault) = self.faults.get(path) {
            return Err(fault.clone());
        }
        let unreadable = |why: String| Err(FileFault::Unreadable(why));
        let read = match self.folder {
            None => unreadable("can't be read: the job doesn't come from a folder".to_owned()),
            Some(_) if self.templates.files().count() + self.faults.len() >= MAX_FILES => {
                unreadable(format!("is one too many: a job may name {MAX_FILES} files"))
            }
            Some(folder) => folder.read(path),
        };
        match read {
            Ok(source) => {
                let text = Text { text: source.text.as_str().into(), origin: Origin::File(source) };
                self.templates.texts.insert(path.to_owned(), text);
                Ok(())
            }
            Err(fault) => {
                self.faults.insert(path.to_owned(), fault.clone());
                Err(fault)
            }
        }
    }

    fn report_fault(&mut self, path: &str, place: Place, fault: &FileFault) {
        let below = "prompts and includes are files below the job file's own folder";
        let finding = match fault {
            FileFault::Outside => {
                Diagnostic::error("outside-folder", place, format!("`{path}` lies outside the job's folder"))
                    .help(below)
            }
            FileFault::Missing => {
                Diagnostic::error("unreadable-file", place, format!("there is no file `{path}`")).help(below)
            }
            FileFault::Unreadable(why) => Diagnostic::error("unreadable-file", place, format!("`{path}` {why}"))
                .help("name a regular file of at most 1 MiB, saved as UTF-8 text"),
        };
        self.report(finding);
    }
}
