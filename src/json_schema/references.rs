//! Resolves references.

use std::rc::Rc;

use serde_json::Value;

use super::draft::{draft_of, draft_uri};
use super::json_pointer;
use super::schema_reader::{SchemaDocument, SchemaLocation};
use super::schema_walk::SchemaWalk;
use crate::diagnostic::{Diagnostic, SourceSpan, suggest_name};
use crate::text::percent_decode;

impl SchemaWalk<'_, '_> {
    /// Follows the reference of a schema, or reports why it can't.
    pub(super) fn resolve_reference(&mut self, from: &SchemaLocation, reference: &str, place: &SourceSpan) {
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let Some(number) = self.document_of(from.0, file, place) else { return };
        let document = Rc::clone(&self.documents[number]);
        let fragment = percent_decode(fragment);
        let name = document.path.as_deref().map_or("the schema", |path| path);
        let is_pointer = fragment.is_empty() || fragment.starts_with('/');
        let pointer = match document.anchors.get(&fragment).filter(|_| !is_pointer) {
            Some(pointer) => pointer.clone(),
            None if fragment == "/" && document.resolve("/").is_none() => String::new(),
            None => fragment,
        };
        let (message, near, help) = match document.resolve(&pointer) {
            Some(Value::Object(_) | Value::Bool(_)) => return self.follow(from, (number, pointer)),
            Some(other) => {
                let kind = if other.is_array() { "a list" } else { "a value" };
                let message = format!("`{reference}` leads to {kind}, which isn't a schema");
                return self.fail(Diagnostic::error("bad-reference", place.clone(), message));
            }
            None if is_pointer => (
                format!("there is no `#{pointer}` in {name}"),
                nearest_pointer(&document.json, &pointer),
                "a fragment is a path from the schema's root: `#/$defs/NAME`",
            ),
            None => (
                format!("no schema has the `$anchor` `{pointer}` in {name}"),
                suggest_name(&pointer, document.anchors.keys().map(String::as_str)).map(str::to_owned),
                "a path from the schema's root begins with `#/`: `#/$defs/NAME`",
            ),
        };
        let help = near.map_or(help.to_owned(), |near| format!("did you mean `{file}#{near}`?"));
        self.fail(Diagnostic::error("bad-reference", place.clone(), message).help(help));
    }

    /// The number of the document that a reference names before its `#`.
    fn document_of(&mut self, from: usize, file: &str, place: &SourceSpan) -> Option<usize> {
        if file.is_empty() {
            return Some(from);
        }
        // A URI in the folder of the schema's own `$id` is a file in the folder of the schema's file.
        let own_id = self.id(from).unwrap_or_default();
        let base = own_id.rsplit_once('/').map(|(base, _)| base).filter(|base| base.contains("://"));
        let relative = base.and_then(|base| file.strip_prefix(base)?.strip_prefix('/'));
        let is_named = |number: &usize| self.id(*number).is_some_and(|id| id == file || relative == Some(id));
        if let Some(number) = std::iter::once(from).chain(0..self.documents.len()).find(is_named) {
            return Some(number);
        }
        let file = relative.unwrap_or(file);
        if has_scheme(file) || file.starts_with("//") {
            let message = format!("`{file}` is a URL, and nothing is ever fetched");
            let help = "put the schema into a file below the job's folder, and refer to that by its path";
            self.fail(Diagnostic::error("bad-reference", place.clone(), message).help(help));
            return None;
        }
        let folder = self.documents[from].path.as_deref().and_then(|path| path.rsplit_once('/'));
        let written = percent_decode(file);
        let path = match folder {
            Some((folder, _)) if !written.starts_with('/') => normalize_path(&format!("{folder}/{written}")),
            _ => normalize_path(&written),
        };
        if let Some(number) = self.documents.iter().position(|known| known.path.as_deref() == Some(&path)) {
            return Some(number);
        }
        let Some(document) = self.reader.file(&path, place) else {
            self.has_errors = true;
            return None;
        };
        if !self.has_the_same_draft(&document) {
            return None;
        }
        self.documents.push(document);
        Some(self.documents.len() - 1)
    }

    /// The `$id` of a document.
    fn id(&self, number: usize) -> Option<&str> {
        let id = self.documents[number].json.get(self.draft.id_keyword())?.as_str()?;
        Some(id.trim_end_matches('#')).filter(|id| !id.is_empty())
    }

    fn has_the_same_draft(&mut self, document: &SchemaDocument) -> bool {
        let message = match draft_of(&document.json) {
            None => return true,
            Some(Ok(draft)) if draft == self.draft => return true,
            Some(Ok(_)) => {
                format!("this is of another draft than the schema that refers to it ({})", draft_uri(self.draft))
            }
            Some(Err(why)) => why,
        };
        let finding = Diagnostic::error("bad-schema", document.place("/$schema"), message);
        self.fail(finding.help("write both in the same draft"));
        false
    }
}

/// Whether it starts with a scheme, like a URL.
fn has_scheme(file: &str) -> bool {
    file.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    })
}

/// Removes `.` and `..` from a path. A path that leads out of its folder still does.
fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" if !parts.is_empty() => {}
            "." => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, ".." | "")) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The existing pointer that is nearest to a misspelled one.
fn nearest_pointer(json: &Value, pointer: &str) -> Option<String> {
    let mut at = String::new();
    let mut here = json;
    for part in json_pointer::reference_tokens(pointer) {
        let known = here.as_object()?;
        let (name, value) = match known.get_key_value(&part) {
            Some(entry) => entry,
            None => known.get_key_value(suggest_name(&part, known.keys().map(String::as_str))?)?,
        };
        here = value;
        at = json_pointer::child_pointer(&at, name);
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_and_stay_outside() {
        for (path, expected) in [
            ("a/./b.json", "a/b.json"),
            ("a/../b.json", "b.json"),
            ("a/../../b", "../b"),
            ("/etc/x", "/etc/x"),
            ("a//b", "a/b"),
        ] {
            assert_eq!(normalize_path(path), expected, "{path}");
        }
        assert_eq!(percent_decode("my%20file%2"), "my file%2");
        assert!(has_scheme("https://x") && has_scheme("file:x") && !has_scheme("a/b:c") && !has_scheme("x.json"));
    }
}
