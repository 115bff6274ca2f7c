//! The keywords of JSON Schema in all drafts, and which of them hold schemas.

use serde_json::Value;

use super::json_pointer::child_pointer;

/// The kind of a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordValue {
    /// No schema.
    Data,
    /// A schema for the same value.
    InPlace,
    /// A list of schemas for the same value.
    InPlaceList,
    /// Schemas by name for the same value, among which may be lists of names.
    InPlaceMap,
    /// A schema for parts of the value.
    Child,
    /// A list of schemas for parts of the value.
    ChildList,
    /// Schemas by name for parts of the value, or definitions.
    ChildMap,
    /// A schema, or a list of schemas, for parts of the value.
    ChildOrList,
}

use KeywordValue::{Child, ChildList, ChildMap, ChildOrList, Data, InPlace, InPlaceList, InPlaceMap};

/// Every keyword of drafts 4 to 2020-12 by the kind of its value, and some that editors and generators use.
const KEYWORDS: &[(KeywordValue, &[&str])] = &[
    (InPlace, &["else", "if", "not", "then"]),
    (InPlaceList, &["allOf", "anyOf", "oneOf"]),
    (InPlaceMap, &["dependencies", "dependentSchemas"]),
    (Child, &["additionalItems", "additionalProperties", "contains", "contentSchema", "propertyNames"]),
    (Child, &["unevaluatedItems", "unevaluatedProperties"]),
    (ChildList, &["prefixItems"]),
    (ChildMap, &["$defs", "definitions", "patternProperties", "properties"]),
    (ChildOrList, &["items"]),
    (Data, &["$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"]),
    (Data, &["$ref", "$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "default"]),
    (Data, &["dependentRequired", "deprecated", "description", "enum", "examples"]),
    (Data, &["exclusiveMaximum", "exclusiveMinimum", "format", "id"]),
    (Data, &["maxContains", "maxItems", "maxLength", "maxProperties", "maximum"]),
    (Data, &["minContains", "minItems", "minLength", "minProperties", "minimum"]),
    (Data, &["multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly"]),
    // Not standard, but known to editors.
    (Data, &["defaultSnippets", "deprecationMessage", "enumDescriptions", "errorMessage", "example"]),
    (Data, &["markdownDescription", "markdownEnumDescriptions", "patternErrorMessage"]),
];

/// The kind of a keyword's value; `None` for an unknown keyword.
pub(super) fn keyword_value(keyword: &str) -> Option<KeywordValue> {
    KEYWORDS.iter().find(|(_, known)| known.contains(&keyword)).map(|(holds, _)| *holds)
}

/// All keywords.
pub(super) fn keyword_names() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().flat_map(|(_, keywords)| *keywords).copied()
}

/// A schema within a schema.
pub(super) struct Subschema<'a> {
    /// Its JSON pointer from the outer schema.
    pub(super) pointer: String,
    /// The schema itself.
    pub(super) schema: &'a Value,
    /// Whether it applies to the same value as the outer schema.
    pub(super) is_in_place: bool,
}

/// The direct subschemas of a schema.
pub(super) fn subschemas(schema: &Value) -> Vec<Subschema<'_>> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let Some(holds) = keyword_value(keyword) else { continue };
        let at = child_pointer("", keyword);
        let same = matches!(holds, InPlace | InPlaceList | InPlaceMap);
        match (holds, value) {
            (InPlace | Child | ChildOrList, Value::Object(_) | Value::Bool(_)) => {
                found.push(Subschema { pointer: at, schema: value, is_in_place: same });
            }
            (InPlaceList | ChildList | ChildOrList, Value::Array(items)) => {
                let each =
                    |(number, schema)| Subschema { pointer: format!("{at}/{number}"), schema, is_in_place: same };
                found.extend(items.iter().enumerate().map(each));
            }
            (InPlaceMap | ChildMap, Value::Object(named)) => {
                let named = named.iter().filter(|(_, schema)| !schema.is_array());
                found.extend(named.map(|(name, schema)| Subschema {
                    pointer: child_pointer(&at, name),
                    schema,
                    is_in_place: same,
                }));
            }
            _ => {}
        }
    }
    found
}

/// Calls a function for a schema and all its subschemas.
pub(super) fn for_each_subschema(schema: &mut Value, what: &mut dyn FnMut(&mut Value)) {
    what(schema);
    let parts: Vec<String> = subschemas(schema).into_iter().map(|part| part.pointer).collect();
    for at in parts {
        if let Some(part) = schema.pointer_mut(&at) {
            for_each_subschema(part, what);
        }
    }
}
