//! What the keywords of JSON Schema hold, in all of its drafts.

use serde_json::Value;

/// What stands in a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordValue {
    /// Nothing to look into.
    Data,
    /// A schema, which the same value has to fit.
    InPlace,
    /// A list of schemas, which the same value has to fit.
    InPlaceList,
    /// Schemas by name, which the same value has to fit. Those that aren't schemas are lists of names.
    InPlaceMap,
    /// A schema for parts of the value.
    Child,
    /// A list of schemas for parts of the value.
    ChildList,
    /// Schemas by name for parts of the value, or to be referred to.
    ChildMap,
    /// A schema for parts of the value, or a list of such.
    ChildOrList,
}

use KeywordValue::{Child, ChildList, ChildMap, ChildOrList, Data, InPlace, InPlaceList, InPlaceMap};

/// Every keyword of drafts 4 to 2020-12, and some that editors and generators of schemas know.
const KEYWORDS: &[(&str, KeywordValue)] = &[
    ("$anchor", Data),
    ("$comment", Data),
    ("$defs", ChildMap),
    ("$dynamicAnchor", Data),
    ("$dynamicRef", Data),
    ("$id", Data),
    ("$recursiveAnchor", Data),
    ("$recursiveRef", Data),
    ("$ref", Data),
    ("$schema", Data),
    ("$vocabulary", Data),
    ("additionalItems", Child),
    ("additionalProperties", Child),
    ("allOf", InPlaceList),
    ("anyOf", InPlaceList),
    ("const", Data),
    ("contains", Child),
    ("contentEncoding", Data),
    ("contentMediaType", Data),
    ("contentSchema", Child),
    ("default", Data),
    ("definitions", ChildMap),
    ("dependencies", InPlaceMap),
    ("dependentRequired", Data),
    ("dependentSchemas", InPlaceMap),
    ("deprecated", Data),
    ("description", Data),
    ("else", InPlace),
    ("enum", Data),
    ("examples", Data),
    ("exclusiveMaximum", Data),
    ("exclusiveMinimum", Data),
    ("format", Data),
    ("id", Data),
    ("if", InPlace),
    ("items", ChildOrList),
    ("maxContains", Data),
    ("maxItems", Data),
    ("maxLength", Data),
    ("maxProperties", Data),
    ("maximum", Data),
    ("minContains", Data),
    ("minItems", Data),
    ("minLength", Data),
    ("minProperties", Data),
    ("minimum", Data),
    ("multipleOf", Data),
    ("not", InPlace),
    ("oneOf", InPlaceList),
    ("pattern", Data),
    ("patternProperties", ChildMap),
    ("prefixItems", ChildList),
    ("properties", ChildMap),
    ("propertyNames", Child),
    ("readOnly", Data),
    ("required", Data),
    ("then", InPlace),
    ("title", Data),
    ("type", Data),
    ("unevaluatedItems", Child),
    ("unevaluatedProperties", Child),
    ("uniqueItems", Data),
    ("writeOnly", Data),
    // Not of the standard; they say something to those who read the schema.
    ("defaultSnippets", Data),
    ("deprecationMessage", Data),
    ("enumDescriptions", Data),
    ("errorMessage", Data),
    ("example", Data),
    ("markdownDescription", Data),
    ("markdownEnumDescriptions", Data),
    ("patternErrorMessage", Data),
];

/// What a keyword holds; `None` for one that there isn't.
pub(super) fn keyword_value(keyword: &str) -> Option<KeywordValue> {
    KEYWORDS.iter().find(|(known, _)| *known == keyword).map(|(_, holds)| *holds)
}

/// All of them.
pub(super) fn keyword_names() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().map(|(keyword, _)| *keyword)
}

/// A schema within a schema.
pub(super) struct Subschema<'a> {
    /// Where it is, as a JSON pointer from the schema that it is in.
    pub(super) pointer: String,
    /// It.
    pub(super) schema: &'a Value,
    /// Whether it is held against the very value that the outer one is held against.
    pub(super) is_in_place: bool,
}

/// The schemas that stand right in a schema.
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

/// The pointer of a part.
pub(super) fn child_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Calls for a schema and for every schema in it.
pub(super) fn for_each_subschema(schema: &mut Value, what: &mut dyn FnMut(&mut Value)) {
    what(schema);
    let parts: Vec<String> = subschemas(schema).into_iter().map(|part| part.pointer).collect();
    for at in parts {
        if let Some(part) = schema.pointer_mut(&at) {
            for_each_subschema(part, what);
        }
    }
}
