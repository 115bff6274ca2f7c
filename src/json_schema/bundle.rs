//! One schema out of several files.

use serde_json::{Map, Value};

use super::MAX_BYTES;
use super::keywords::{child_pointer, keyword_value};
use super::schema_reader::too_large;
use super::schema_walk::{SchemaLocation, SchemaWalk};
use crate::diagnostic::Diagnostic;

/// The schema that a walk began with, and in it all others that it came to; every reference leads to a place within it.
pub(super) fn bundle(visit: &SchemaWalk<'_, '_>) -> Result<Value, Diagnostic> {
    let mut names: Vec<(&SchemaLocation, String)> = Vec::new();
    let definitions = visit.draft.definitions();
    let root = &visit.documents[0];
    let taken = root.json.get(definitions).and_then(Value::as_object);
    for key in visit.entry_points.iter().filter(|key| key.0 != 0) {
        let wanted = definition_name(visit, key);
        let is_free = |name: &String| {
            names.iter().all(|(_, other)| other != name) && !taken.is_some_and(|taken| taken.contains_key(name))
        };
        let numbered = (1..).map(|number| if number == 1 { wanted.clone() } else { format!("{wanted}-{number}") });
        let name = numbered.take(100_000).find(is_free).unwrap_or(wanted.clone());
        names.push((key, name));
    }
    let mut whole = relocated_schema(visit, &(0, String::new()), definitions, &names);
    if !names.is_empty()
        && let Value::Object(fields) = &mut whole
    {
        let held = fields.entry(definitions).or_insert_with(|| Value::Object(Map::new()));
        for (key, name) in &names {
            if let Value::Object(held) = &mut *held {
                held.insert(name.clone(), relocated_schema(visit, key, definitions, &names));
            }
        }
    }
    if let Value::Object(fields) = &mut whole
        && fields.contains_key("$schema")
    {
        fields.insert("$schema".to_owned(), visit.draft.uri().into());
    }
    if whole.to_string().len() > MAX_BYTES { Err(too_large(root.node.place_for_missing())) } else { Ok(whole) }
}

/// What a schema from elsewhere is to be called: after its file, and after its place there.
fn definition_name(visit: &SchemaWalk<'_, '_>, key: &SchemaLocation) -> String {
    let path = visit.documents[key.0].path.as_deref().unwrap_or_default();
    let stem = path.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
    let last = key.1.rsplit('/').next().unwrap_or_default();
    let both = if last.is_empty() { stem.to_owned() } else { format!("{stem}-{last}") };
    both.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }).collect()
}

/// A schema as it stands in the whole.
fn relocated_schema(
    visit: &SchemaWalk<'_, '_>,
    entry: &SchemaLocation,
    definitions: &str,
    names: &[(&SchemaLocation, String)],
) -> Value {
    let mut schema = visit.documents[entry.0].resolve(&entry.1).cloned().unwrap_or(Value::Bool(true));
    let inside = |key: &&SchemaLocation| key.0 == entry.0 && is_within(&key.1, &entry.1);
    for key in visit.visited.range(entry.clone()..).take_while(|key| key.0 == entry.0).filter(inside) {
        let Some(Value::Object(fields)) = schema.pointer_mut(&key.1[entry.1.len()..]) else { continue };
        // A name that leads nowhere any more.
        for name in ["$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"] {
            if fields.get(name).is_some_and(|value| value.is_string() || value.is_boolean()) {
                fields.shift_remove(name);
            }
        }
        if *key != (0, String::new()) {
            fields.shift_remove("$schema");
        }
        if let Some(target) = visit.references.get(key) {
            let pointer = bundled_pointer(target, definitions, names);
            fields.insert("$ref".to_owned(), format!("#{}", uri_fragment(&pointer)).into());
        }
        // What says nothing could still be taken for references that nobody followed.
        fields.retain(|name, value| {
            keyword_value(name).is_some() || has_visited(visit, key, name) || !value.to_string().contains("\"$")
        });
    }
    schema
}

fn is_within(pointer: &str, outer: &str) -> bool {
    pointer.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a reference leads into a keyword that is none.
fn has_visited(visit: &SchemaWalk<'_, '_>, key: &SchemaLocation, name: &str) -> bool {
    let at = child_pointer(&key.1, name);
    let next = visit.visited.range((key.0, at.clone())..).next();
    next.is_some_and(|(number, pointer)| *number == key.0 && is_within(pointer, &at))
}

/// Where a schema stands in the whole.
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

/// A pointer as a fragment: what an address can't hold is escaped.
fn uri_fragment(pointer: &str) -> String {
    let mut out = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
