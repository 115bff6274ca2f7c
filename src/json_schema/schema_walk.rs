//! Walks a schema with everything that it refers to, and reports what is wrong with it.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use jsonschema::Draft;
use serde_json::{Value, json};

use super::draft::{draft_of, draft_uri};
use super::enum_input::{named_input, with_stand_ins};
use super::json_pointer;
use super::json_pointer::child_pointer;
use super::keywords::{keyword_names, keyword_value, subschemas};
use super::schema_reader::{SchemaDocument, SchemaLocation, SchemaReader};
use super::validator::pattern_error;
use super::violation::describe;
use crate::diagnostic::{Diagnostic, Fix, SourceSpan, suggest_name};
use crate::template::ValueType;

/// How many subschemas a schema may have.
const MAX_SCHEMAS: usize = 50_000;
/// How many regular expressions are checked one by one.
const MAX_PATTERNS: usize = 2_000;

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// The state of a walk.
pub(super) struct SchemaWalk<'r, 'a> {
    pub(super) reader: &'r mut SchemaReader<'a>,
    pub(super) draft: Draft,
    /// The document that the walk started with, and those that it reached.
    pub(super) documents: Vec<Rc<SchemaDocument>>,
    /// The root, and schemas that are referred to and aren't part of one that was visited before.
    pub(super) entry_points: Vec<SchemaLocation>,
    pub(super) visited: BTreeSet<SchemaLocation>,
    /// The target of each reference, by the schema that holds it.
    pub(super) references: HashMap<SchemaLocation, SchemaLocation>,
    /// For each schema, those that apply to the same value.
    pub(super) in_place: HashMap<SchemaLocation, Vec<SchemaLocation>>,
    queue: VecDeque<SchemaLocation>,
    patterns: HashSet<String>,
    /// Whether an error was reported.
    pub(super) has_errors: bool,
}

impl<'r, 'a> SchemaWalk<'r, 'a> {
    /// Starts at a document; `None` if its draft isn't known.
    pub(super) fn new(reader: &'r mut SchemaReader<'a>, root: Rc<SchemaDocument>) -> Option<Self> {
        let draft = match draft_of(&root.json) {
            None => Draft::Draft202012,
            Some(Ok(draft)) => draft,
            Some(Err(why)) => {
                reader.report(Diagnostic::error("bad-schema", root.place("/$schema"), why));
                return None;
            }
        };
        Some(Self {
            reader,
            draft,
            documents: vec![root],
            entry_points: Vec::new(),
            visited: BTreeSet::new(),
            references: HashMap::new(),
            in_place: HashMap::new(),
            queue: VecDeque::from([(0, String::new())]),
            patterns: HashSet::new(),
            has_errors: false,
        })
    }

    /// Walks the schema and all that it refers to, and reports every mistake.
    pub(super) fn run(&mut self) {
        while let Some(key) = self.queue.pop_front() {
            if self.visited.contains(&key) {
                continue;
            }
            self.entry_points.push(key.clone());
            self.walk(key.clone());
            self.check_against_metaschema(&key);
            if self.visited.len() > MAX_SCHEMAS {
                let place = self.documents[0].node.place_for_missing();
                let message = format!("this schema has more than {MAX_SCHEMAS} subschemas");
                self.fail(Diagnostic::error("bad-schema", place, message).help("leave out what the data doesn't need"));
                return;
            }
        }
    }

    pub(super) fn fail(&mut self, finding: Diagnostic) {
        self.has_errors = true;
        self.reader.report(finding);
    }

    /// Records a reference's target.
    pub(super) fn follow(&mut self, from: &SchemaLocation, to: SchemaLocation) {
        self.in_place.entry(from.clone()).or_default().push(to.clone());
        self.references.insert(from.clone(), to.clone());
        self.queue.push_back(to);
    }

    fn walk(&mut self, first: SchemaLocation) {
        let (number, first) = first;
        let document = Rc::clone(&self.documents[number]);
        let mut open = vec![first];
        while let Some(at) = open.pop() {
            let Some(schema) = document.resolve(&at) else { continue };
            let key = (number, at);
            if self.visited.len() > MAX_SCHEMAS || !self.visited.insert(key.clone()) {
                continue;
            }
            self.check_schema(&document, &key, schema);
            for part in subschemas(schema) {
                let below = format!("{}{}", key.1, part.pointer);
                if part.is_in_place {
                    self.in_place.entry(key.clone()).or_default().push((number, below.clone()));
                }
                open.push(below);
            }
        }
    }

    /// Checks the keywords of one schema.
    fn check_schema(&mut self, document: &SchemaDocument, key: &SchemaLocation, schema: &Value) {
        let at = &key.1;
        let place = |keyword: &str| document.place(&child_pointer(at, keyword));
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            match (keyword.as_str(), value) {
                ("$ref", Value::String(reference)) => self.resolve_reference(key, reference, &place(keyword)),
                ("$dynamicRef" | "$recursiveRef", _) => {
                    let message = format!("`{keyword}` isn't supported");
                    self.fail(Diagnostic::error("bad-schema", place(keyword), message).help("write `$ref`"));
                }
                ("$schema", _) if !at.is_empty() => {
                    let message = "`$schema` is only allowed at the root";
                    self.fail(Diagnostic::error("bad-schema", place(keyword), message).help("remove it here"));
                }
                (id, Value::String(text))
                    if id == self.draft.id_keyword() && !at.is_empty() && !text.starts_with('#') =>
                {
                    let message = format!("`{id}` isn't allowed in a subschema");
                    let help = "remove it, and refer to it by its place: `#/$defs/NAME`";
                    self.fail(Diagnostic::error("bad-schema", place(keyword), message).help(help));
                }
                ("type", Value::String(name)) => self.check_type_name(name, place(keyword)),
                ("type", Value::Array(names)) => {
                    for (number, name) in names.iter().enumerate() {
                        if let Some(name) = name.as_str() {
                            self.check_type_name(name, document.place(&format!("{at}/type/{number}")));
                        }
                    }
                }
                ("pattern", Value::String(pattern)) => self.check_pattern(pattern, place(keyword)),
                ("enum", Value::String(text)) => self.check_enum_input(text, place(keyword)),
                ("patternProperties", Value::Object(named)) => {
                    let mapping = json_pointer::resolve_pointer(&document.node, &child_pointer(at, keyword));
                    for pattern in named.keys() {
                        let place = json_pointer::key_node(&mapping, pattern)
                            .map_or_else(|| mapping.place_for_missing(), |key| key.place());
                        self.check_pattern(pattern, place);
                    }
                }
                (unknown, _) if keyword_value(unknown).is_none() && !unknown.starts_with("x-") => {
                    let mapping = json_pointer::resolve_pointer(&document.node, at);
                    if let Some(written) = json_pointer::key_node(&mapping, unknown) {
                        let message = format!("`{unknown}` isn't a keyword of JSON Schema, and has no effect");
                        let finding = Diagnostic::warning("unknown-keyword", written.place(), message);
                        let otherwise = "remove it, or start its name with `x-`";
                        let mut finding = finding.suggest(unknown, keyword_names(), otherwise);
                        let is_free = |fix: &Fix| json_pointer::key_node(&mapping, &fix.replacement).is_none();
                        let fix = finding.fix.take().filter(is_free);
                        finding.fix = fix.map(|fix| Fix { span: written.content_place(), ..fix });
                        self.reader.report(finding);
                    }
                }
                _ => {}
            }
        }
    }

    fn check_type_name(&mut self, name: &str, place: SourceSpan) {
        if TYPES.contains(&name) {
            return;
        }
        let finding = Diagnostic::error("bad-schema", place, format!("there is no type `{name}`"));
        let aliases: [(&str, &[&str]); 7] = [
            ("string", &["str", "text"]),
            ("integer", &["int"]),
            ("number", &["float", "double"]),
            ("boolean", &["bool"]),
            ("array", &["list"]),
            ("object", &["dict", "map", "mapping"]),
            ("null", &["none"]),
        ];
        let meant = aliases.iter().find(|(_, others)| others.contains(&name)).map(|(here, _)| *here);
        self.fail(match meant.or_else(|| suggest_name(name, TYPES)) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")),
            None => finding.help(format!("there are {}", TYPES.map(|name| format!("`{name}`")).join(", "))),
        });
    }

    /// Checks an `enum` that isn't a list: it can take its values from a list input.
    fn check_enum_input(&mut self, text: &str, place: SourceSpan) {
        let Some(name) = named_input(text) else {
            let message = "`enum` is a list of values, or `{{ inputs.NAME }}` with an input that is a list";
            self.fail(Diagnostic::error("bad-schema", place, message).help("write a list, such as `[a, b]`"));
            return;
        };
        let inputs = self.reader.inputs;
        let has = |names: &[String]| names.iter().any(|known| known == name);
        let why = if has(&inputs.untrusted) {
            Some("is untrusted: whoever writes it would choose what the result may be")
        } else if has(&inputs.secret) {
            Some("is secret, and models see the schema")
        } else if has(&inputs.inputs) {
            let is_other = inputs.types.get(name).is_some_and(|kind| *kind != ValueType::List);
            is_other.then_some("isn't a list; give it `type: list`")
        } else if inputs.inputs_incomplete {
            None
        } else {
            let finding = Diagnostic::error("bad-schema", place, format!("the job has no input `{name}`"));
            let otherwise = format!("declare it: `inputs: {{ {name}: {{ type: list }} }}`");
            self.fail(match suggest_name(name, inputs.suggestable_inputs()) {
                Some(meant) => finding.help(format!("did you mean `inputs.{meant}`?")),
                None => finding.help(otherwise),
            });
            return;
        };
        if let Some(why) = why {
            let message = format!("`enum` can't use the input `{name}`, which {why}");
            self.fail(Diagnostic::error("bad-schema", place, message).help("list the values here"));
        }
    }

    fn check_pattern(&mut self, pattern: &str, place: SourceSpan) {
        if self.patterns.len() >= MAX_PATTERNS || !self.patterns.insert(pattern.to_owned()) {
            return;
        }
        if pattern_error(pattern, self.draft).is_some() {
            let message = format!("`{pattern}` isn't a valid regular expression");
            self.fail(Diagnostic::error("bad-schema", place, message).help("escape a literal bracket: `\\(`"));
        }
    }

    /// Validates a schema against its draft's meta-schema.
    fn check_against_metaschema(&mut self, key: &SchemaLocation) {
        let document = Rc::clone(&self.documents[key.0]);
        let Some(schema) = document.resolve(&key.1) else { return };
        let Ok(validator) = jsonschema::meta::validator_for(&json!({ "$schema": draft_uri(self.draft) })) else {
            return;
        };
        for error in validator.iter_errors(&with_stand_ins(schema)).take(200) {
            let at = format!("{}{}", key.1, error.instance_path());
            let name = json_pointer::reference_tokens(&at).filter(|part| part.parse::<usize>().is_err()).last();
            let message = match name {
                Some(name) => format!("`{name}`: {}", describe(&error, 0)),
                None => describe(&error, 0),
            };
            let mut finding = Diagnostic::error("bad-schema", document.place(&at), message);
            if at.ends_with("/required") && error.instance().is_boolean() {
                finding = finding.help("`required` is a list of names next to `properties`");
            }
            self.has_errors = true;
            let part = json_pointer::resolve_pointer(&document.node, &at).place();
            self.reader.report_unless_reported(finding, &part);
        }
    }
}
