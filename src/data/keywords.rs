//! What the keywords of JSON Schema hold, in all of its drafts.

use serde_json::Value;

/// What stands in a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Nothing to look into.
    Data,
    /// A schema, which the same value has to fit.
    Same,
    /// A list of schemas, which the same value has to fit.
    SameList,
    /// Schemas by name, which the same value has to fit. Those that aren't schemas are lists of names.
    SameNamed,
    /// A schema for parts of the value.
    Part,
    /// A list of schemas for parts of the value.
    PartList,
    /// Schemas by name for parts of the value, or to be referred to.
    PartNamed,
    /// A schema for parts of the value, or a list of such.
    PartOrList,
}

use Holds::{Data, Part, PartList, PartNamed, PartOrList, Same, SameList, SameNamed};

/// Every keyword of drafts 4 to 2020-12, and some that editors and generators of schemas know.
const KEYWORDS: &[(&str, Holds)] = &[
    ("$anchor", Data),
    ("$comment", Data),
    ("$defs", PartNamed),
    ("$dynamicAnchor", Data),
    ("$dynamicRef", Data),
    ("$id", Data),
    ("$recursiveAnchor", Data),
    ("$recursiveRef", Data),
    ("$ref", Data),
    ("$schema", Data),
    ("$vocabulary", Data),
    ("additionalItems", Part),
    ("additionalProperties", Part),
    ("allOf", SameList),
    ("anyOf", SameList),
    ("const", Data),
    ("contains", Part),
    ("contentEncoding", Data),
    ("contentMediaType", Data),
    ("contentSchema", Part),
    ("default", Data),
    ("definitions", PartNamed),
    ("dependencies", SameNamed),
    ("dependentRequired", Data),
    ("dependentSchemas", SameNamed),
    ("deprecated", Data),
    ("description", Data),
    ("else", Same),
    ("enum", Data),
    ("examples", Data),
    ("exclusiveMaximum", Data),
    ("exclusiveMinimum", Data),
    ("format", Data),
    ("id", Data),
    ("if", Same),
    ("items", PartOrList),
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
    ("not", Same),
    ("oneOf", SameList),
    ("pattern", Data),
    ("patternProperties", PartNamed),
    ("prefixItems", PartList),
    ("properties", PartNamed),
    ("propertyNames", Part),
    ("readOnly", Data),
    ("required", Data),
    ("then", Same),
    ("title", Data),
    ("type", Data),
    ("unevaluatedItems", Part),
    ("unevaluatedProperties", Part),
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
pub(super) fn holds(keyword: &str) -> Option<Holds> {
    KEYWORDS.iter().find(|(known, _)| *known == keyword).map(|(_, holds)| *holds)
}

/// All of them.
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().map(|(keyword, _)| *keyword)
}

/// A schema within a schema.
pub(super) struct Within<'a> {
    /// Where it is, as a JSON pointer from the schema that it is in.
    pub(super) at: String,
    /// It.
    pub(super) schema: &'a Value,
    /// Whether it is held against the very value that the outer one is held against.
    pub(super) same: bool,
}

/// The schemas that stand right in a schema.
pub(super) fn within(schema: &Value) -> Vec<Within<'_>> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let Some(holds) = holds(keyword) else { continue };
        let at = child("", keyword);
        let same = matches!(holds, Same | SameList | SameNamed);
        match (holds, value) {
            (Same | Part | PartOrList, Value::Object(_) | Value::Bool(_)) => {
                found.push(Within { at, schema: value, same });
            }
            (SameList | PartList | PartOrList, Value::Array(items)) => {
                let each = |(number, schema)| Within { at: format!("{at}/{number}"), schema, same };
                found.extend(items.iter().enumerate().map(each));
            }
            (SameNamed | PartNamed, Value::Object(named)) => {
                let named = named.iter().filter(|(_, schema)| !schema.is_array());
                found.extend(named.map(|(name, schema)| Within { at: child(&at, name), schema, same }));
            }
            _ => {}
        }
    }
    found
}

/// The pointer of a part.
pub(super) fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Calls for a schema and for every schema in it.
pub(super) fn for_each(schema: &mut Value, what: &mut dyn FnMut(&mut Value)) {
    what(schema);
    let parts: Vec<String> = within(schema).into_iter().map(|part| part.at).collect();
    for at in parts {
        if let Some(part) = schema.pointer_mut(&at) {
            for_each(part, what);
        }
    }
}
