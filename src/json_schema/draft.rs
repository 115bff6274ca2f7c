//! The drafts of JSON Schema.

use jsonschema::Draft;
use serde_json::Value;

use crate::diagnostic::suggest_name;

/// Each draft with its `$schema`.
const DRAFTS: &[(&str, Draft)] = &[
    ("https://json-schema.org/draft/2020-12/schema", Draft::Draft202012),
    ("https://json-schema.org/draft/2019-09/schema", Draft::Draft201909),
    ("http://json-schema.org/draft-07/schema#", Draft::Draft7),
    ("http://json-schema.org/draft-06/schema#", Draft::Draft6),
    ("http://json-schema.org/draft-04/schema#", Draft::Draft4),
];

/// The draft that a schema names; `None` if it has no `$schema`.
pub(super) fn draft_of(schema: &Value) -> Option<Result<Draft, String>> {
    let Value::String(uri) = schema.get("$schema")? else {
        return Some(Err("`$schema` isn't a string".to_owned()));
    };
    let bare = bare_uri(uri);
    let found = DRAFTS.iter().find(|(known, _)| bare_uri(known) == bare).map(|(_, draft)| *draft);
    Some(found.ok_or_else(|| {
        let known = DRAFTS.iter().map(|(known, _)| bare_uri(known));
        let near = suggest_name(bare, known).unwrap_or(bare_uri(DRAFTS[0].0));
        format!("`$schema` isn't a known draft; did you mean `https://{near}`?")
    }))
}

/// A URI without its scheme and empty fragment.
fn bare_uri(uri: &str) -> &str {
    let uri = uri.trim_end_matches('#');
    uri.strip_prefix("https://").or(uri.strip_prefix("http://")).unwrap_or(uri)
}

/// The `$schema` of a draft.
pub(super) fn draft_uri(draft: Draft) -> &'static str {
    DRAFTS.iter().find(|(_, known)| *known == draft).map_or(DRAFTS[0].0, |(uri, _)| uri)
}

/// The keyword for schemas that others refer to.
pub(super) fn definitions_keyword(draft: Draft) -> &'static str {
    if matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7) { "definitions" } else { "$defs" }
}
