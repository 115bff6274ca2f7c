//! Reads a job's schemas, and the files that they are in.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use super::schema_walk::SchemaWalk;
use super::{MAX_BYTES, MAX_FILES, json_pointer, keywords};
use crate::diagnostic::{Diagnostic, Severity, Source, SourceSpan};
use crate::template::{JobDir, PromptFileError};
use crate::yaml::{self, Node, NodeKind};

/// How many findings are kept: more than anyone is shown.
const MAX_FINDINGS: usize = 110;

/// Takes a job's schemas, and finds everything that is wrong with them.
#[derive(Debug)]
pub struct SchemaReader<'a> {
    folder: Option<&'a JobDir>,
    files: BTreeMap<String, Result<Rc<SchemaDocument>, SchemaFileError>>,
    sources: Vec<Arc<Source>>,
    findings: Vec<Diagnostic>,
}

/// A text that holds schemas.
#[derive(Debug)]
pub(super) struct SchemaDocument {
    /// It, with places.
    pub(super) node: Node,
    /// The same as JSON.
    pub(super) json: Value,
    /// Its path from the job's folder; `None` for what stands in the job file.
    pub(super) path: Option<String>,
    /// Pointers of the schemas that have a name in it.
    pub(super) anchors: HashMap<String, String>,
}

/// Why a file can't be used.
#[derive(Debug, Clone)]
enum SchemaFileError {
    /// It couldn't be read.
    File(PromptFileError),
    /// What is wrong with its text is said already.
    Reported,
}

impl<'a> SchemaReader<'a> {
    /// Begins with no schemas. Without a folder, as for a job from standard input, every file is an error.
    pub fn new(folder: Option<&'a JobDir>) -> Self {
        Self { folder, files: BTreeMap::new(), sources: Vec::new(), findings: Vec::new() }
    }

    /// Takes what stands in a job as a schema: the schema itself, or `{ file: PATH }`. Gives one that stands alone;
    /// `None` where something is wrong with it.
    pub fn read(&mut self, node: &Node) -> Option<Value> {
        if node.is_placeholder() || node.kind() == NodeKind::Invalid {
            return None;
        }
        let root = match node.get("file").filter(|_| node.kind() == NodeKind::Mapping) {
            Some(file) => self.named(node, &file)?,
            None => {
                if node.is_null() && node.own_key().is_some_and(|key| key.place().range == node.place().range) {
                    // A key without a value is an error of its own.
                    return None;
                }
                if !matches!(node.kind(), NodeKind::Mapping | NodeKind::Boolean(_)) {
                    let message = format!("expected a JSON Schema, found {}", node.describe());
                    let help =
                        "write a mapping such as `{ type: object }`, or `{ file: PATH }` for a file that holds one";
                    self.report(Diagnostic::error("wrong-type", node.place(), message).help(help));
                    return None;
                }
                Rc::new(self.document(node.clone(), None)?)
            }
        };
        SchemaWalk::new(self, root)?.run()
    }

    /// The file that stands for a schema.
    fn named(&mut self, node: &Node, file: &Node) -> Option<Rc<SchemaDocument>> {
        let Some(path) = file.as_str() else {
            let message = format!("expected the path of a file, found {}", file.describe());
            self.report(
                Diagnostic::error("wrong-type", file.place(), message).help("write `{ file: schemas/NAME.json }`"),
            );
            return None;
        };
        if let Some((beside, _)) = node.entries().find(|(key, _)| key.text() != Some("file")) {
            let message = "beside `file` nothing else can stand: the schema is in the file";
            let help = "put it into the file; or refer to the file with `$ref: PATH` instead";
            self.report(Diagnostic::error("bad-schema", beside.place(), message).help(help));
            return None;
        }
        self.file(path, &file.place())
    }

    /// A file below the job's folder, by its path from there. `None`, and a finding at `place`, where it can't be used.
    pub(super) fn file(&mut self, path: &str, place: &SourceSpan) -> Option<Rc<SchemaDocument>> {
        if !self.files.contains_key(path) {
            let read = self.open(path);
            self.files.insert(path.to_owned(), read);
        }
        match self.files.get(path)? {
            Ok(document) => Some(Rc::clone(document)),
            Err(SchemaFileError::Reported) => None,
            Err(SchemaFileError::File(fault)) => {
                let finding = file_error(path, fault, place.clone());
                self.report(finding);
                None
            }
        }
    }

    fn open(&mut self, path: &str) -> Result<Rc<SchemaDocument>, SchemaFileError> {
        let unreadable = |why: String| Err(SchemaFileError::File(PromptFileError::Unreadable(why)));
        let source = match self.folder {
            None => return unreadable("can't be read: the job doesn't come from a folder".to_owned()),
            Some(_) if self.files.len() >= MAX_FILES => {
                return unreadable(format!("is one too many: a job's schemas may name {MAX_FILES} files"));
            }
            Some(folder) => folder.read(path).map_err(SchemaFileError::File)?,
        };
        self.sources.push(Arc::clone(&source));
        let decoded = yaml::read::<Node>(&source);
        let is_wrong = decoded.findings.iter().any(|finding| finding.severity == Severity::Error);
        decoded.findings.into_iter().for_each(|finding| self.report(finding));
        let node = decoded.value.filter(|_| !is_wrong).ok_or(SchemaFileError::Reported)?;
        self.document(node, Some(path.to_owned())).map(Rc::new).ok_or(SchemaFileError::Reported)
    }

    fn document(&mut self, node: Node, path: Option<String>) -> Option<SchemaDocument> {
        let json = node.to_json();
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

    /// Reports what is wrong with a part in which nothing wrong was found yet.
    pub(super) fn report_unless_reported(&mut self, finding: Diagnostic, part: &SourceSpan) {
        let is_said = self.findings.iter().any(|other| {
            let (inner, outer) = (&other.span.range, &part.range);
            other.severity == Severity::Error
                && Arc::ptr_eq(&other.span.source, &part.source)
                && inner.start >= outer.start
                && inner.end <= outer.end
        });
        if !is_said {
            self.report(finding);
        }
    }

    /// The paths of the files that were named, from the job's folder.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The files that were read.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.iter()
    }

    /// Everything that is wrong with the schemas.
    pub fn take_findings(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.findings)
    }
}

/// Finds the schemas with names.
fn collect_anchors(schema: &Value, at: &str, anchors: &mut HashMap<String, String>) {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    // Before draft 2019-09 a name was an id that is only a fragment.
    let older = || text("$id").or_else(|| text("id")).and_then(|id| id.strip_prefix('#')).filter(|id| !id.is_empty());
    if let Some(anchor) = text("$anchor").or_else(older) {
        anchors.entry(anchor.to_owned()).or_insert_with(|| at.to_owned());
    }
    for part in keywords::subschemas(schema) {
        collect_anchors(part.schema, &format!("{at}{}", part.pointer), anchors);
    }
}

pub(super) fn too_large(place: SourceSpan) -> Diagnostic {
    Diagnostic::error("bad-schema", place, "the schema is greater than 1 MiB with all that it refers to")
        .help("leave out what the data doesn't need")
}

fn file_error(path: &str, fault: &PromptFileError, place: SourceSpan) -> Diagnostic {
    let below = "schemas are files below the job file's own folder";
    match fault {
        PromptFileError::OutsideJobDir => {
            Diagnostic::error("outside-folder", place, format!("`{path}` lies outside the job's folder")).help(below)
        }
        PromptFileError::Missing => {
            Diagnostic::error("unreadable-file", place, format!("there is no file `{path}`")).help(below)
        }
        PromptFileError::Unreadable(why) => Diagnostic::error("unreadable-file", place, format!("`{path}` {why}"))
            .help("name a regular file of at most 1 MiB, saved as UTF-8 text"),
    }
}

impl SchemaDocument {
    /// A part of it, where there is one.
    pub(super) fn resolve(&self, pointer: &str) -> Option<&Value> {
        self.json.pointer(pointer)
    }

    /// Where a part of it stands.
    pub(super) fn place(&self, pointer: &str) -> SourceSpan {
        json_pointer::report_place(&json_pointer::resolve_pointer(&self.node, pointer))
    }
}
