//! Makes one schema of several files.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::cycle::{Endless, find_endless};
use super::draft::{definitions_keyword, draft_uri};
use super::enum_input::with_stand_ins;
use super::json_pointer::{child_pointer, uri_fragment};
use super::keywords::keyword_value;
use super::schema_reader::{SchemaDocument, SchemaLocation, SchemaReader, too_large};
use super::schema_walk::SchemaWalk;
use super::{MAX_BYTES, SchemaValidator};
use crate::diagnostic::Diagnostic;
use crate::yaml::{Node, NodeKind};

/// How many schemas may apply to the same value: it bounds the time of validation.
const MAX_APPLIED: u64 = 20_000;

impl SchemaReader<'_> {
    /// Reads a schema of a job: the schema itself, or `{ file: PATH }`. Returns it with everything that it refers to, or
    /// `None` if something is wrong with it.
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
        let mut walk = SchemaWalk::new(self, root)?;
        walk.run();
        if walk.has_errors {
            return None;
        }
        let place = walk.documents[0].node.place_for_missing();
        let bundled = match find_endless(&walk.in_place, MAX_APPLIED) {
            Some(endless) => Err(endless_error(&walk, &endless)),
            None => bundle(&walk),
        };
        let valid = bundled.and_then(|whole| match SchemaValidator::new(&with_stand_ins(&whole)) {
            Ok(_) => Ok(whole),
            Err(why) => Err(Diagnostic::error("bad-schema", place, format!("this isn't a JSON Schema: {why}"))),
        });
        valid.map_err(|finding| self.report(finding)).ok()
    }

    /// The schema in the file that `{ file: PATH }` names.
    fn named(&mut self, node: &Node, file: &Node) -> Option<Rc<SchemaDocument>> {
        let Some(path) = file.as_str() else {
            let message = format!("expected the path of a file, found {}", file.describe());
            let finding = Diagnostic::error("wrong-type", file.place(), message);
            self.report(finding.help("write `{ file: schemas/NAME.json }`"));
            return None;
        };
        if let Some((other, _)) = node.entries().find(|(key, _)| key.text() != Some("file")) {
            let message = "no other key is allowed next to `file`: the schema is in the file";
            let help = "put it into the file; or refer to the file with `$ref: PATH` instead";
            self.report(Diagnostic::error("bad-schema", other.place(), message).help(help));
            return None;
        }
        self.file(path, &file.place())
    }
}

fn endless_error(walk: &SchemaWalk<'_, '_>, endless: &Endless) -> Diagnostic {
    let (at, message, help) = match endless {
        Endless::Cycle((number, pointer)) => (
            (number, child_pointer(pointer, "$ref")),
            "this reference leads back to itself without going deeper into the data".to_owned(),
            "refer to it from within `properties` or `items`",
        ),
        Endless::FanOut((number, pointer)) => (
            (number, pointer.clone()),
            format!("this schema applies more than {MAX_APPLIED} schemas to the same value"),
            "refer to each schema once: an `allOf` of references to the same schema multiplies at each level",
        ),
    };
    Diagnostic::error("bad-schema", walk.documents[*at.0].place(&at.1), message).help(help)
}

/// The schema that a walk began with, with all others that it refers to below `$defs`. Every reference is a local one.
fn bundle(walk: &SchemaWalk<'_, '_>) -> Result<Value, Diagnostic> {
    let mut names: Vec<(&SchemaLocation, String)> = Vec::new();
    let definitions = definitions_keyword(walk.draft);
    let root = &walk.documents[0];
    let taken = root.json.get(definitions).and_then(Value::as_object);
    for key in walk.entry_points.iter().filter(|key| key.0 != 0) {
        let wanted = definition_name(walk, key);
        let is_free = |name: &String| {
            names.iter().all(|(_, other)| other != name) && !taken.is_some_and(|taken| taken.contains_key(name))
        };
        let numbered = (1..).map(|number| if number == 1 { wanted.clone() } else { format!("{wanted}-{number}") });
        let name = numbered.take(100_000).find(is_free).unwrap_or(wanted.clone());
        names.push((key, name));
    }
    let mut whole = relocated_schema(walk, &(0, String::new()), definitions, &names);
    if !names.is_empty()
        && let Value::Object(fields) = &mut whole
    {
        let held = fields.entry(definitions).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(held) = held {
            let moved = |key| relocated_schema(walk, key, definitions, &names);
            held.extend(names.iter().map(|(key, name)| (name.clone(), moved(key))));
        }
    }
    if let Some(named) = whole.get_mut("$schema") {
        *named = draft_uri(walk.draft).into();
    }
    if whole.to_string().len() > MAX_BYTES { Err(too_large(root.node.place_for_missing())) } else { Ok(whole) }
}

/// The name for a schema of another document, after its file and its place there.
fn definition_name(walk: &SchemaWalk<'_, '_>, key: &SchemaLocation) -> String {
    let path = walk.documents[key.0].path.as_deref().unwrap_or_default();
    let stem = path.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
    let last = key.1.rsplit('/').next().unwrap_or_default();
    let both = if last.is_empty() { stem.to_owned() } else { format!("{stem}-{last}") };
    both.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }).collect()
}

/// A schema with its references changed to those of the bundle.
fn relocated_schema(
    walk: &SchemaWalk<'_, '_>,
    entry: &SchemaLocation,
    definitions: &str,
    names: &[(&SchemaLocation, String)],
) -> Value {
    let mut schema = walk.documents[entry.0].resolve(&entry.1).cloned().unwrap_or(Value::Bool(true));
    let inside = |key: &&SchemaLocation| key.0 == entry.0 && is_within(&key.1, &entry.1);
    for key in walk.visited.range(entry.clone()..).take_while(|key| key.0 == entry.0).filter(inside) {
        let Some(Value::Object(fields)) = schema.pointer_mut(&key.1[entry.1.len()..]) else { continue };
        // No reference uses these any more.
        for name in ["$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"] {
            if fields.get(name).is_some_and(|value| value.is_string() || value.is_boolean()) {
                fields.shift_remove(name);
            }
        }
        if *key != (0, String::new()) {
            fields.shift_remove("$schema");
        }
        if let Some(target) = walk.references.get(key) {
            let pointer = bundled_pointer(target, definitions, names);
            fields.insert("$ref".to_owned(), format!("#{}", uri_fragment(&pointer)).into());
        }
        // An unknown keyword could hold what looks like a reference that wasn't followed.
        fields.retain(|name, value| {
            keyword_value(name).is_some() || has_visited(walk, key, name) || !value.to_string().contains("\"$")
        });
    }
    schema
}

fn is_within(pointer: &str, outer: &str) -> bool {
    pointer.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a reference leads into an unknown keyword.
fn has_visited(walk: &SchemaWalk<'_, '_>, key: &SchemaLocation, name: &str) -> bool {
    let at = child_pointer(&key.1, name);
    let next = walk.visited.range((key.0, at.clone())..).next();
    next.is_some_and(|(number, pointer)| *number == key.0 && is_within(pointer, &at))
}

/// The pointer of a schema in the bundle.
fn bundled_pointer(target: &SchemaLocation, definitions: &str, names: &[(&SchemaLocation, String)]) -> String {
    if target.0 == 0 {
        return target.1.clone();
    }
    let holders = names.iter().filter(|(key, _)| key.0 == target.0 && is_within(&target.1, &key.1));
    match holders.min_by_key(|(key, _)| key.1.len()) {
        Some((key, name)) => format!("/{definitions}/{name}{}", &target.1[key.1.len()..]),
        None => String::new(),
    }
}
