//! Reads the files that hold a job's schemas.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use super::{MAX_BYTES, MAX_FILES, json_pointer, keywords};
use crate::diagnostic::{Diagnostic, Severity, Source, SourceSpan};
use crate::template::{JobDir, PromptFileError, TemplateVariables};
use crate::yaml::{self, Node};

/// How many findings are kept: more than are shown.
const MAX_FINDINGS: usize = 110;

/// Reads the schemas of a job, and reports what is wrong with them.
#[derive(Debug)]
pub struct SchemaReader<'a> {
    folder: Option<&'a JobDir>,
    /// The job's inputs, which an `enum` can take its values from.
    pub(super) inputs: &'a TemplateVariables,
    /// The files that were named, by their paths from the job's folder, or why they couldn't be read; without a reason if the
    /// errors in the text are reported.
    files: BTreeMap<String, Result<Rc<SchemaDocument>, Option<PromptFileError>>>,
    /// The files that were read.
    pub sources: Vec<Arc<Source>>,
    /// Everything that is wrong with the schemas.
    pub findings: Vec<Diagnostic>,
}

/// A schema: the number of its document, and its pointer there.
pub(super) type SchemaLocation = (usize, String);

/// A document that holds schemas.
#[derive(Debug)]
pub(super) struct SchemaDocument {
    /// Its root, with places.
    pub(super) node: Node,
    /// The same as JSON.
    pub(super) json: Value,
    /// Its path from the job's folder; `None` for the job file itself.
    pub(super) path: Option<String>,
    /// The pointers of its schemas by their `$anchor`.
    pub(super) anchors: HashMap<String, String>,
}

impl<'a> SchemaReader<'a> {
    /// Starts without schemas. If there is no folder, as for a job from standard input, every file is an error.
    pub fn new(folder: Option<&'a JobDir>, inputs: &'a TemplateVariables) -> Self {
        Self { folder, inputs, files: BTreeMap::new(), sources: Vec::new(), findings: Vec::new() }
    }

    /// A file below the job's folder, by its path from there. `None`, and a finding at `place`, where it can't be used.
    pub(super) fn file(&mut self, path: &str, place: &SourceSpan) -> Option<Rc<SchemaDocument>> {
        if !self.files.contains_key(path) {
            let read = self.open(path);
            self.files.insert(path.to_owned(), read);
        }
        match &self.files[path] {
            Ok(document) => Some(Rc::clone(document)),
            Err(fault) => {
                let below = "schemas are files below the job file's own folder";
                let finding = fault.as_ref()?.to_diagnostic(path, place.clone(), below);
                self.report(finding);
                None
            }
        }
    }

    fn open(&mut self, path: &str) -> Result<Rc<SchemaDocument>, Option<PromptFileError>> {
        let unreadable = |why: String| Err(Some(PromptFileError::Unreadable(why)));
        let source = match self.folder {
            None => return unreadable("can't be read: the job isn't in a folder".to_owned()),
            Some(_) if self.files.len() >= MAX_FILES => {
                return unreadable(format!("is one too many: a job's schemas can have {MAX_FILES} files"));
            }
            Some(folder) => folder.read(path).map_err(Some)?,
        };
        self.sources.push(Arc::clone(&source));
        let decoded = yaml::read::<Node>(&source);
        let is_wrong = decoded.findings.iter().any(|finding| finding.severity == Severity::Error);
        decoded.findings.into_iter().for_each(|finding| self.report(finding));
        let node = decoded.value.filter(|_| !is_wrong).ok_or(None)?;
        self.document(node, Some(path.to_owned())).map(Rc::new).ok_or(None)
    }

    /// The files that were read, by their paths from the job's folder.
    pub fn read_files(&self) -> Vec<(String, Arc<Source>)> {
        let source = |document: &SchemaDocument| Arc::clone(&document.node.place().source);
        let read = self.files.iter().filter_map(|(path, read)| Some((path.clone(), source(read.as_ref().ok()?))));
        read.collect()
    }

    /// The paths of the files that were named, from the job's folder.
    pub fn paths(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    pub(super) fn document(&mut self, node: Node, path: Option<String>) -> Option<SchemaDocument> {
        let json = node.to_json_without_errors();
        if json.to_string().len() > MAX_BYTES {
            self.report(too_large(node.place_for_missing()));
            return None;
        }
        let mut anchors = HashMap::new();
        collect_anchors(&json, "", &mut anchors);
        Some(SchemaDocument { node, json, path, anchors })
    }

    pub(super) fn report(&mut self, finding: Diagnostic) {
        let same = |other: &Diagnostic| {
            other.code == finding.code
                && other.span.range == finding.span.range
                && other.message == finding.message
                && Arc::ptr_eq(&other.span.source, &finding.span.source)
        };
        if self.findings.len() < MAX_FINDINGS && !self.findings.iter().any(same) {
            self.findings.push(finding);
        }
    }

    /// Reports an error, unless there is one within the same part.
    pub(super) fn report_unless_reported(&mut self, finding: Diagnostic, part: &SourceSpan) {
        let is_error = |other: &Diagnostic| other.severity == Severity::Error && other.span.is_within(part);
        if !self.findings.iter().any(is_error) {
            self.report(finding);
        }
    }
}

/// Collects the schemas with an anchor.
fn collect_anchors(schema: &Value, at: &str, anchors: &mut HashMap<String, String>) {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    // Before draft 2019-09, an anchor was an `$id` that is only a fragment.
    let older = || text("$id").or_else(|| text("id")).and_then(|id| id.strip_prefix('#')).filter(|id| !id.is_empty());
    if let Some(anchor) = text("$anchor").or_else(older) {
        anchors.entry(anchor.to_owned()).or_insert_with(|| at.to_owned());
    }
    for part in keywords::subschemas(schema) {
        collect_anchors(part.schema, &format!("{at}{}", part.pointer), anchors);
    }
}

pub(super) fn too_large(place: SourceSpan) -> Diagnostic {
    Diagnostic::error("bad-schema", place, "the schema, with all that it refers to, is larger than 1 MiB")
        .help("leave out what the data doesn't need")
}

impl SchemaDocument {
    /// The part at a pointer, if there is one.
    pub(super) fn resolve(&self, pointer: &str) -> Option<&Value> {
        self.json.pointer(pointer)
    }

    /// The place of a part.
    pub(super) fn place(&self, pointer: &str) -> SourceSpan {
        json_pointer::report_place(&json_pointer::resolve_pointer(&self.node, pointer))
    }
}
