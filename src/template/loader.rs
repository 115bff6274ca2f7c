//! Gathers a job's texts and the files that they include, and has each one checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use minijinja::Environment;
use minijinja::machinery::{ast, parse};

use super::bounds::excess;
use super::check::Walk;
use super::exports::{Exports, exports};
use super::guarded::Guarded;
use super::scopes::Visible;
use super::syntax::{Mistake, mistakes};
use super::types::{IllTyped, ill_typed};
use super::{FileFault, Folder, Names, Origin, Template, Templates, Text, Uses, environment, placed};
use crate::diagnostic::{Diagnostic, Place};
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
pub enum Role {
    /// A system prompt, whose words weigh more than others.
    System,
    /// A prompt.
    Prompt,
    /// A command of bash, in which every value is quoted.
    Command,
    /// What says whether something is done.
    Condition,
}

/// Takes a job's texts, and finds everything that is wrong with them.
#[derive(Debug)]
pub struct Loader<'a> {
    pub(super) names: &'a Names,
    pub(super) environment: Environment<'static>,
    pub(super) uses: Uses,
    /// What is known of each input that the job declares.
    declared: HashMap<&'a str, Declared>,
    folder: Option<&'a Folder>,
    templates: Templates,
    faults: BTreeMap<String, FileFault>,
    /// What each text defines, where that is known.
    exports: BTreeMap<String, Option<Exports>>,
    findings: Vec<Diagnostic>,
    walked: BTreeSet<Visit>,
    /// How often a file was walked because another text includes it.
    walks: usize,
    /// The names that each file was last walked with, and how many there were in all.
    latest: HashMap<(String, Role), Arc<Visible>>,
    visible: usize,
    /// There were too many, which is said once.
    is_lost: bool,
    /// How often something was found.
    found: usize,
    /// An input whose text strangers can write and that templates see.
    pub(super) untrusted: Option<&'a str>,
}

/// What a job says of an input.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Declared {
    pub(super) is_secret: bool,
    pub(super) is_untrusted: bool,
}

/// A text, and what it can see: walking it twice with the same would find the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Visit {
    name: String,
    role: Role,
    visible: Arc<Visible>,
}

impl<'a> Loader<'a> {
    /// Begins with no texts. Without a folder, as for a job from standard input, every file is an error.
    pub fn new(folder: Option<&'a Folder>, names: &'a Names) -> Self {
        let mut declared: HashMap<&str, Declared> = HashMap::new();
        declared.extend(names.inputs.iter().map(|name| (name.as_str(), Declared::default())));
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
            uses: Uses::default(),
            declared,
            folder,
            templates: Templates::default(),
            faults: BTreeMap::new(),
            exports: BTreeMap::new(),
            findings: Vec::new(),
            walked: BTreeSet::new(),
            walks: 0,
            latest: HashMap::new(),
            visible: 0,
            is_lost: false,
            found: 0,
            untrusted,
        }
    }

    /// Takes a text that stands in the job file.
    pub fn text(&mut self, node: &Node, text: &str, role: Role) -> Template {
        // What it says can't be read, so that nothing can be said to be unused.
        self.uses.is_incomplete |= node.is_made_up() || node.is_torn();
        // No file can have such a name, so that no include can reach it.
        let name = format!("\0{}", self.templates.texts.len());
        let text = Text { text: text.into(), origin: Origin::of_node(node) };
        self.templates.texts.insert(name.clone(), text.clone());
        self.walk(&name, role, Arc::default(), &[]);
        let is_command = role == Role::Command;
        let found = self.found;
        if is_command && !self.templates.broken.contains(&name) {
            placed::check(self, &text);
        }
        if self.found > found {
            self.templates.broken.insert(name.clone());
        }
        Template { name, is_command }
    }

    /// Takes a prompt that stands in a file below the job's folder. `None`, and a finding at `place`, where it can't be
    /// read.
    pub fn file(&mut self, path: &str, place: Place, role: Role) -> Option<Template> {
        match self.read(path) {
            Ok(()) => {
                self.walk(path, role, Arc::default(), &[]);
                Some(Template { name: path.to_owned(), is_command: false })
            }
            Err(fault) => {
                self.report_fault(path, place, &fault);
                None
            }
        }
    }

    /// The texts and what is wrong with them; those in which something is wrong can't be rendered.
    pub fn finish(mut self) -> (Templates, Vec<Diagnostic>) {
        self.templates.uses = self.uses;
        (self.templates, self.findings)
    }

    /// A file that was read.
    pub(super) fn loaded(&self, path: &str) -> Option<Text> {
        self.templates.texts.get(path).cloned()
    }

    /// What the job says of an input; `None` where it has none of that name.
    pub(super) fn declared(&self, input: &str) -> Option<Declared> {
        self.declared.get(input).copied()
    }

    /// What a file defines for those that import it, where that is known.
    pub(super) fn exports(&self, path: &str) -> Option<Exports> {
        self.exports.get(path).cloned().flatten()
    }

    /// Takes in something that makes no text wrong.
    pub(super) fn report_warning(&mut self, finding: Diagnostic) {
        let same = |other: &Diagnostic| {
            other.place.span == finding.place.span && Arc::ptr_eq(&other.place.source, &finding.place.source)
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
        self.uses.is_incomplete |= self.is_full() || !(is_of_a_name || finding.code == "secret-in-template");
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
    pub(super) fn include(&mut self, path: &str, place: Place, optional: bool, from: &mut Walk) -> bool {
        if self.is_lost {
            return true;
        }
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
                let (role, visible) = (from.role, from.visible());
                let key = (path.to_owned(), role);
                if self.latest.get(&key).is_some_and(|latest| Arc::ptr_eq(latest, &visible)) {
                    self.pass_on(path);
                } else {
                    self.latest.insert(key, visible.clone());
                    self.walk(path, role, visible, &from.trail);
                }
                true
            }
            Err(FileFault::Missing) if optional => false,
            Err(fault) => {
                self.report_fault(path, place, &fault);
                false
            }
        }
    }

    /// What was found in a text counts for those that include it, too.
    fn pass_on(&mut self, name: &str) {
        self.found += usize::from(self.templates.broken.contains(name));
    }

    fn walk(&mut self, name: &str, role: Role, visible: Arc<Visible>, trail: &[String]) {
        let Some(text) = self.templates.texts.get(name).cloned() else { return };
        self.visible += visible.len();
        let visit = Visit { name: name.to_owned(), role, visible };
        if self.walked.contains(&visit) {
            return self.pass_on(name);
        }
        self.walks += usize::from(!trail.is_empty());
        if self.walks > MAX_WALKS || self.visible > MAX_VISIBLE {
            if !std::mem::replace(&mut self.is_lost, true) {
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
        if self.found > found || self.is_lost {
            self.templates.broken.insert(name.to_owned());
        }
    }

    fn walk_text(&mut self, name: &str, text: Text, role: Role, visible: &Visible, trail: &[String]) {
        if let Some((range, why)) = excess(&text.text) {
            let finding = Diagnostic::error("template-syntax", text.origin.place(range), format!("template: {why}"));
            self.report(finding.help("break it into several tags or blocks"));
            return;
        }
        match parse(&text.text, name, Default::default()) {
            Ok(ast::Stmt::Template(root)) => {
                self.templates.guarded.insert(name.to_owned(), Guarded::new(&root.children));
                self.exports.insert(name.to_owned(), exports(&root.children));
                for IllTyped { range, message } in ill_typed(&root.children, &self.names.kinds) {
                    let place = text.origin.place(range);
                    let same = |other: &Diagnostic| {
                        other.place.span == place.span && Arc::ptr_eq(&other.place.source, &place.source)
                    };
                    if self.templates.ill_typed.len() < MAX_FINDINGS && !self.templates.ill_typed.iter().any(same) {
                        let message = format!("the template can't be rendered: {message}");
                        let finding = Diagnostic::error("render-failed", place, message);
                        self.templates
                            .ill_typed
                            .push(finding.help("use the input as its type allows, or change its `type`"));
                    }
                }
                let trail = trail.iter().cloned().chain([name.to_owned()]).collect();
                Walk::new(text.origin, role, visible, trail).template(self, &root.children);
            }
            Ok(_) => {}
            Err(error) => {
                for Mistake { range, message, help } in mistakes(&text.text, &error) {
                    let finding = Diagnostic::error("template-syntax", text.origin.place(range), message);
                    self.report(finding.help(help));
                }
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
                if fault == FileFault::Missing {
                    self.templates.missing.insert(path.to_owned());
                }
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
