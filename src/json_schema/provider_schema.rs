//! Makes a schema for a tool's input that every provider accepts, from whatever a tool server has.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::json_pointer::{child_pointer, reference_tokens};
use super::keywords::for_each_subschema;
use super::tool_schema::replace_old_keywords;

/// Keywords that providers refuse at the top of a tool's schema.
const ALTERNATIVES: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// The longest name of a property that providers accept.
const MAX_NAME: usize = 64;
/// The most schemas that apply to one value.
const MAX_APPLICABLE: usize = 1_000;

/// A schema that providers accept. Inputs that models make with it can be turned into those of the server.
#[derive(Debug)]
pub struct ProviderSchema {
    schema: Value,
    /// The server's names of properties, by those that models get instead.
    names: BTreeMap<String, String>,
}

impl ProviderSchema {
    /// Repairs a schema: it is that of an object, objects have properties, arrays have items, and the names of properties are
    /// those that all providers accept.
    pub fn new(schema: Value) -> Self {
        let mut schema = without_alternatives(with_target(schema));
        let renamed = new_names(&mut schema);
        for_each_subschema(&mut schema, &mut |schema| {
            let Value::Object(fields) = schema else { return };
            fields.shift_remove("$schema");
            replace_old_keywords(fields);
            replace_booleans(fields);
            rename(fields, &renamed);
            if !fields.contains_key("type")
                && let Some(kind) = enum_type(fields)
            {
                fields.insert("type".to_owned(), kind.into());
            }
            let is = |kind: &str| match fields.get("type") {
                Some(Value::Array(kinds)) => kinds.iter().any(|known| known == kind),
                Some(known) => known == kind,
                None => false,
            };
            let (is_object, is_array) = (is("object"), is("array"));
            if is_object && !fields.get("properties").is_some_and(Value::is_object) {
                fields.insert("properties".to_owned(), json!({}));
            }
            if is_array && !fields.contains_key("items") {
                fields.insert("items".to_owned(), json!({}));
            }
            // Gemini refuses required names without a property.
            if let (Some(Value::Object(named)), Some(Value::Array(required))) =
                (fields.get("properties").cloned(), fields.get_mut("required"))
            {
                required.retain(|name| name.as_str().is_some_and(|name| named.contains_key(name)));
            }
        });
        if let Value::Object(fields) = &mut schema {
            fields.insert("type".to_owned(), "object".into());
            fields.entry("properties").or_insert_with(|| json!({}));
        }
        Self { schema, names: renamed.into_iter().map(|(original, new)| (new, original)).collect() }
    }

    /// The schema.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// An input with the server's names of properties; `None` if it has them already, or isn't JSON.
    pub fn restore(&self, input: &RawValue) -> Option<Box<RawValue>> {
        if self.names.is_empty() {
            return None;
        }
        let mut value = serde_json::from_str(input.get()).ok()?;
        self.restore_value(&mut value, vec![&self.schema]);
        to_raw_value(&value).ok()
    }

    fn restore_value<'a>(&'a self, value: &mut Value, schemas: Vec<&'a Value>) {
        let schemas = self.applicable(schemas);
        match value {
            Value::Object(fields) => {
                for (name, mut value) in std::mem::take(fields) {
                    let (mut parts, mut is_declared) = (Vec::new(), false);
                    for schema in &schemas {
                        match schema.get("properties").and_then(|properties| properties.get(&name)) {
                            Some(part) => {
                                is_declared = true;
                                parts.push(part);
                            }
                            None => {
                                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                                parts.extend(patterns.into_iter().flat_map(Map::values));
                                parts.extend(schema.get("additionalProperties"));
                            }
                        }
                    }
                    self.restore_value(&mut value, parts);
                    // A name in an object of any properties is data.
                    let original = self.names.get(&name).filter(|_| is_declared).cloned();
                    fields.insert(original.unwrap_or(name), value);
                }
            }
            Value::Array(items) => {
                for (number, item) in items.iter_mut().enumerate() {
                    let part = |schema: &&'a Value| {
                        let first = schema.get("prefixItems").and_then(|items| items.get(number));
                        first.or_else(|| schema.get("items"))
                    };
                    let parts = schemas.iter().filter_map(part).collect();
                    self.restore_value(item, parts);
                }
            }
            _ => {}
        }
    }

    /// All schemas that apply to a value, with those that they refer to.
    fn applicable<'a>(&'a self, schemas: Vec<&'a Value>) -> Vec<&'a Value> {
        let mut found = schemas;
        let mut seen: HashSet<*const Value> = found.iter().map(|schema| std::ptr::from_ref(*schema)).collect();
        let mut at = 0;
        while let Some(schema) = found.get(at).copied() {
            at += 1;
            let target =
                schema.get("$ref").and_then(Value::as_str).and_then(|reference| target(&self.schema, reference));
            let lists = ALTERNATIVES.iter().filter_map(|keyword| schema.get(keyword)?.as_array()).flatten();
            let single = ["if", "then", "else"].iter().filter_map(|keyword| schema.get(keyword));
            let dependent = schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(Map::values);
            for part in target.into_iter().chain(lists).chain(single).chain(dependent) {
                if found.len() < MAX_APPLICABLE && seen.insert(std::ptr::from_ref(part)) {
                    found.push(part);
                }
            }
        }
        found
    }
}

/// What a reference within a schema refers to.
fn target<'a>(schema: &'a Value, reference: &str) -> Option<&'a Value> {
    schema.pointer(reference.strip_prefix('#')?)
}

/// The most references that are followed, one after the other.
const MAX_REFERENCES: usize = 20;

/// A schema that isn't only a reference to another part of it, which providers refuse.
fn with_target(mut schema: Value) -> Value {
    for _ in 0..MAX_REFERENCES {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| target(&schema, reference)).and_then(Value::as_object).cloned();
        let (Some(target), Some(fields)) = (target, schema.as_object_mut()) else { break };
        fields.shift_remove("$ref");
        for (keyword, value) in target {
            fields.entry(keyword).or_insert(value);
        }
    }
    schema
}

/// A schema without alternatives at its top, which Anthropic and OpenAI refuse: the properties of all of them are at the top,
/// and optional. The server checks the input itself.
fn without_alternatives(mut schema: Value) -> Value {
    let mut found: Vec<(String, Value)> = Vec::new();
    let mut parts = vec![&schema];
    let mut seen: HashSet<*const Value> = HashSet::from([std::ptr::from_ref(&schema)]);
    let mut at = 0;
    while let Some(part) = parts.get(at).copied() {
        at += 1;
        let named = part.get("properties").and_then(Value::as_object).into_iter().flatten();
        if at > 1 {
            found.extend(named.map(|(name, value)| (name.clone(), value.clone())));
        }
        let reference = part.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| target(&schema, reference));
        let lists = ALTERNATIVES.iter().filter_map(|keyword| part.get(keyword)?.as_array()).flatten();
        let conditional = ["then", "else"].iter().filter_map(|keyword| part.get(keyword));
        let next = target.into_iter().chain(lists).chain(conditional);
        for next in next {
            if parts.len() < MAX_APPLICABLE && seen.insert(std::ptr::from_ref(next)) {
                parts.push(next);
            }
        }
    }
    let Some(fields) = schema.as_object_mut() else { return schema };
    for key in ALTERNATIVES.iter().chain(&["not", "if", "then", "else", "enum", "const", "$ref"]) {
        fields.shift_remove(*key);
    }
    if !found.is_empty()
        && let Some(properties) =
            fields.entry("properties").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        for (name, value) in found {
            properties.entry(name).or_insert(value);
        }
    }
    schema
}

/// What a value of an enumeration without a type is, if all of its values are of one type.
fn enum_type(fields: &Map<String, Value>) -> Option<&'static str> {
    let name = |value: &Value| match value {
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some("integer"),
        Value::Number(_) => Some("number"),
        _ => None,
    };
    let values = fields.get("enum").and_then(Value::as_array).map_or_else(Vec::new, |values| values.iter().collect());
    let values = if values.is_empty() { fields.get("const").into_iter().collect() } else { values };
    let first = name(values.first()?)?;
    values.iter().all(|value| name(value) == Some(first)).then_some(first)
}

/// Writes `true` and `false` in places of a schema as objects, which providers want there.
fn replace_booleans(fields: &mut Map<String, Value>) {
    let replace = |part: &mut Value| match part {
        Value::Bool(true) => *part = json!({}),
        Value::Bool(false) => *part = json!({ "not": {} }),
        _ => {}
    };
    for keyword in ["properties", "$defs", "definitions", "patternProperties"] {
        fields.get_mut(keyword).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut).for_each(replace);
    }
    for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        fields.get_mut(keyword).and_then(Value::as_array_mut).into_iter().flatten().for_each(replace);
    }
    fields.get_mut("items").into_iter().for_each(replace);
}

/// Repairs what is no valid JSON Schema, but clear, in the schemas of many servers: keywords that are null, lists of no names,
/// types of other languages, keywords of older drafts, and patterns of other engines. A valid schema stays as it is.
pub fn repair_invalid(schema: &mut Value) {
    let whole = schema.clone();
    let is_known =
        |reference: &str| target(&whole, reference).is_some() || !reference.starts_with('#') && reference.contains('#');
    let mut is_root = true;
    for_each_subschema(schema, &mut |schema| {
        let Value::Object(fields) = schema else { return };
        replace_old_keywords(fields);
        let may_be_null = |keyword: &str| matches!(keyword, "default" | "const" | "example" | "examples");
        fields.retain(|keyword, value| !value.is_null() || may_be_null(keyword) || keyword.starts_with("x-"));
        for keyword in ["properties", "patternProperties", "$defs", "definitions"] {
            // An empty map of PHP.
            if fields.get(keyword).is_some_and(|value| value.as_array().is_some_and(Vec::is_empty)) {
                fields.insert(keyword.to_owned(), json!({}));
            }
        }
        match fields.get_mut("required") {
            Some(Value::Array(names)) => {
                let mut seen = HashSet::new();
                names.retain(|name| name.is_string() && seen.insert(name.clone()));
            }
            // Draft 3 marks each property.
            Some(Value::Bool(_)) => drop(fields.shift_remove("required")),
            _ => {}
        }
        for keyword in ["title", "description"] {
            if fields.get(keyword).is_some_and(|text| text.is_number() || text.is_boolean()) {
                fields.shift_remove(keyword);
            }
        }
        if fields.get("examples").is_some_and(|examples| !examples.is_array()) {
            fields.shift_remove("examples");
        }
        if fields.get("enum").is_some_and(|values| values.as_array().is_some_and(Vec::is_empty)) {
            fields.shift_remove("enum");
        }
        let is_pattern = |pattern: &Value| super::SchemaValidator::new(&json!({ "pattern": pattern })).is_ok();
        if fields.get("pattern").is_some_and(|pattern| !is_pattern(pattern)) {
            fields.shift_remove("pattern");
        }
        repair_type(fields);
        // At the top, nothing would be left.
        let is_lost = fields.get("$ref").and_then(Value::as_str).is_some_and(|reference| !is_known(reference));
        if is_lost && !is_root {
            fields.shift_remove("$ref");
        }
        is_root = false;
    });
}

/// Repairs the type of a schema: one of another language, or in capitals. One that says nothing is removed.
fn repair_type(fields: &mut Map<String, Value>) {
    const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
    let known = |name: &str| {
        let lower = name.to_ascii_lowercase();
        let meant = match lower.as_str() {
            "int" | "int32" | "int64" | "long" => "integer",
            "float" | "double" | "decimal" => "number",
            "bool" => "boolean",
            "str" | "text" | "date" | "datetime" | "uuid" | "file" => "string",
            "list" | "tuple" | "set" => "array",
            "dict" | "map" | "struct" => "object",
            "none" | "nil" | "undefined" => "null",
            other => other,
        };
        TYPES.iter().find(|name| **name == meant).copied()
    };
    match fields.get_mut("type") {
        Some(Value::String(name)) => match known(name) {
            Some(meant) => meant.clone_into(name),
            None => drop(fields.shift_remove("type")),
        },
        Some(Value::Array(names)) => {
            let mut found: Vec<&str> = Vec::new();
            for name in names.iter().filter_map(|name| known(name.as_str()?)) {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
            if found.is_empty() {
                fields.shift_remove("type");
            } else if found.len() != names.len() || !names.iter().zip(&found).all(|(name, found)| name == found) {
                *names = found.into_iter().map(Value::from).collect();
            }
        }
        _ => {}
    }
}

/// New names for the properties whose names a provider refuses, by their own names. No two properties of the schema get the
/// same name, wherever they are.
fn new_names(schema: &mut Value) -> BTreeMap<String, String> {
    let (mut taken, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for_each_subschema(schema, &mut |schema| {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        for name in properties {
            if is_accepted(name) {
                taken.insert(name.clone())
            } else {
                refused.insert(name.clone())
            };
        }
    });
    let (mut names, mut numbers) = (BTreeMap::new(), HashMap::<String, usize>::new());
    for name in refused {
        let plain = |letter: char| if is_accepted(letter.encode_utf8(&mut [0; 4])) { letter } else { '_' };
        let plain: String = name.chars().map(plain).take(MAX_NAME).collect();
        let mut new = plain.clone();
        // Many names can be the same then.
        let number = numbers.entry(plain.clone()).or_insert(1);
        while new.is_empty() || taken.contains(&new) {
            *number += 1;
            let end = format!("_{number}");
            new = plain.chars().take(MAX_NAME - end.len()).collect::<String>() + &end;
        }
        taken.insert(new.clone());
        names.insert(name, new);
    }
    names
}

/// Whether all providers accept the name of a property.
fn is_accepted(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Renames the properties of a schema, not of its subschemas.
fn rename(fields: &mut Map<String, Value>, names: &BTreeMap<String, String>) {
    if names.is_empty() {
        return;
    }
    let new = |name: &str| names.get(name).cloned().unwrap_or_else(|| name.to_owned());
    let rename_list = |list: &mut Value| {
        for item in list.as_array_mut().into_iter().flatten() {
            if let Value::String(name) = item {
                *name = new(name);
            }
        }
    };
    for keyword in ["properties", "dependentSchemas", "dependentRequired", "dependencies"] {
        if let Some(Value::Object(named)) = fields.get_mut(keyword) {
            for (name, mut value) in std::mem::take(named) {
                if keyword.starts_with("dependen") {
                    rename_list(&mut value);
                }
                named.insert(new(&name), value);
            }
        }
    }
    if let Some(required) = fields.get_mut("required") {
        rename_list(required);
    }
    if let Some(Value::String(reference)) = fields.get_mut("$ref")
        && let Some(pointer) = reference.strip_prefix('#').filter(|pointer| pointer.contains("/properties/"))
    {
        let tokens: Vec<String> = reference_tokens(pointer).collect();
        let is_property = |at: usize| at > 0 && tokens[at - 1] == "properties";
        let renamed = tokens.iter().enumerate().fold(String::new(), |pointer, (at, token)| {
            child_pointer(&pointer, &if is_property(at) { new(token) } else { token.clone() })
        });
        *reference = format!("#{renamed}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(schema: Value) -> Value {
        ProviderSchema::new(schema).schema().clone()
    }

    fn restored(schema: &ProviderSchema, input: &Value) -> Value {
        let input = to_raw_value(input).unwrap();
        serde_json::from_str(schema.restore(&input).as_deref().unwrap_or(&input).get()).unwrap()
    }

    #[test]
    fn alternatives_at_the_top_become_optional_properties() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "string" } },
            "required": ["a"],
            "oneOf": [{ "properties": { "a": {}, "b": { "anyOf": [{ "type": "null" }] } }, "required": ["b"] }, { "required": ["c"] }],
        });
        let expected = json!({
            "type": "object",
            "properties": { "a": { "type": "string" }, "b": { "anyOf": [{ "type": "null" }] } },
            "required": ["a"],
        });
        assert_eq!(repaired(schema), expected);
        assert_eq!(repaired(expected.clone()), expected);
    }

    #[test]
    fn objects_have_properties_and_arrays_have_items_at_every_level() {
        assert_eq!(repaired(json!({})), json!({ "type": "object", "properties": {} }));
        assert_eq!(repaired(json!({ "type": "object" })), json!({ "type": "object", "properties": {} }));
        assert_eq!(
            repaired(json!({ "type": ["object", "null"], "properties": null })),
            json!({ "type": "object", "properties": {} })
        );
        let nested = repaired(json!({ "type": "object", "properties": {
            "l": { "type": "array" },
            "n": { "type": ["array", "null"], "items": { "type": "object" } },
            "o": { "anyOf": [{ "type": "object" }, { "type": "array", "items": [{ "type": "array" }] }] },
            "r": { "$ref": "#/$defs/d" },
            "x": { "type": "number", "minimum": 0, "exclusiveMinimum": true },
        }, "$defs": { "d": { "type": "object", "$schema": "x" } } }));
        assert_eq!(
            nested,
            json!({ "type": "object", "properties": {
            "l": { "type": "array", "items": {} },
            "n": { "type": ["array", "null"], "items": { "type": "object", "properties": {} } },
            "o": { "anyOf": [
                { "type": "object", "properties": {} },
                { "type": "array", "prefixItems": [{ "type": "array", "items": {} }], "items": {} },
            ] },
            "r": { "$ref": "#/$defs/d" },
            "x": { "type": "number", "exclusiveMinimum": 0 },
        }, "$defs": { "d": { "type": "object", "properties": {} } } })
        );
        let only_reference =
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object", "properties": { "b": {} } } } });
        assert_eq!(repaired(only_reference)["properties"], json!({ "b": {} }));
    }

    #[test]
    fn references_and_alternatives_at_the_top_keep_all_properties() {
        let defs = json!({ "a": { "$ref": "#/$defs/b" }, "b": { "type": "object", "properties": { "x": {} } },
            "c": { "type": "object", "properties": { "y": {} } } });
        let names = |schema: Value| -> Vec<String> {
            repaired(schema)["properties"].as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(names(json!({ "$ref": "#/$defs/a", "$defs": defs })), ["x"]);
        assert_eq!(
            names(json!({ "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/c" }], "$defs": defs })),
            ["y", "x"]
        );
        let nested = json!({ "allOf": [{ "anyOf": [{ "properties": { "a": {} } }] }, { "oneOf": [{ "properties": { "b": {} } }] }] });
        assert_eq!(names(nested), ["a", "b"]);
        assert_eq!(names(json!({ "$ref": "#" })), [""; 0]);
    }

    #[test]
    fn booleans_enumerations_and_required_names_are_completed() {
        let schema = json!({ "type": "object", "required": ["a", "z"], "properties": {
            "a": true, "b": { "type": "array", "items": true }, "c": { "enum": ["x", "y"] }, "d": { "enum": [1, "x"] },
            "e": { "const": 1 }, "f": { "type": "object", "additionalProperties": false },
        } });
        let expected = json!({ "type": "object", "required": ["a"], "properties": {
            "a": {}, "b": { "type": "array", "items": {} }, "c": { "enum": ["x", "y"], "type": "string" },
            "d": { "enum": [1, "x"] }, "e": { "const": 1, "type": "integer" },
            "f": { "type": "object", "additionalProperties": false, "properties": {} },
        } });
        assert_eq!(repaired(schema), expected);
    }

    #[test]
    fn invalid_schemas_that_are_clear_are_repaired_and_valid_ones_stay() {
        let mut schema = json!({ "type": "OBJECT", "description": null, "required": ["a", "a"], "properties": {
            "a": { "type": "int", "title": 5, "required": true }, "b": { "type": "any", "description": null },
            "c": { "type": ["str", "None"], "pattern": "[z-a" }, "d": { "type": "dict", "properties": [] },
            "e": { "type": "array", "items": [{ "type": "string" }] }, "f": { "type": "integer", "minimum": 0, "exclusiveMinimum": true },
            "g": { "$ref": "#/$defs/none" }, "h": { "enum": [] }, "i": { "default": null, "examples": "x" },
        } });
        repair_invalid(&mut schema);
        let expected = json!({ "type": "object", "required": ["a"], "properties": {
            "a": { "type": "integer" }, "b": {}, "c": { "type": ["string", "null"] }, "d": { "type": "object", "properties": {} },
            "e": { "type": "array", "prefixItems": [{ "type": "string" }] }, "f": { "type": "integer", "exclusiveMinimum": 0 },
            "g": {}, "h": {}, "i": { "default": null },
        } });
        assert_eq!(schema, expected);
        repair_invalid(&mut schema);
        assert_eq!(schema, expected, "a valid schema stays");
    }

    #[test]
    fn names_that_a_provider_refuses_are_replaced_and_restored() {
        let long = "x".repeat(70);
        let schema = ProviderSchema::new(json!({
            "type": "object",
            "required": ["$filter", "a b"],
            "properties": {
                "$filter": { "type": "string" },
                "_filter": { "type": "string" },
                "a b": { "type": "object", "properties": { "\u{65e5}": { "$ref": "#/properties/$filter" } } },
                &long: { "type": "array", "items": { "$ref": "#/$defs/node" } },
                "": { "type": "object", "additionalProperties": { "type": "string" } },
            },
            "$defs": { "node": { "type": "object", "properties": { "@next": { "$ref": "#/$defs/node" } } } },
        }));
        let text = schema.schema().to_string();
        let properties = schema.schema()["properties"].as_object().unwrap();
        assert_eq!(properties.len(), 5);
        assert!(properties.keys().all(|name| is_accepted(name)), "{text}");
        let filter = &schema.schema()["required"][0];
        assert!(filter != "_filter" && properties.contains_key(filter.as_str().unwrap()), "{text}");
        let pointer = schema.schema()["properties"]["a_b"]["properties"]["_"]["$ref"].as_str().unwrap();
        assert!(target(schema.schema(), pointer).is_some(), "{text}");
        let empty = properties.keys().find(|name| schema.names.get(*name).is_some_and(String::is_empty)).unwrap();
        let input = json!({
            (filter.as_str().unwrap()): "f",
            "_filter": "g",
            "a_b": { "_": "h", "_next": "no such property" },
            (&long[..64]): [{ "_next": { "_next": {} } }],
            (empty): { "_next": "data" },
            "unknown": { "_next": 1 },
        });
        let expected = json!({
            "$filter": "f",
            "_filter": "g",
            "a b": { "\u{65e5}": "h", "_next": "no such property" },
            &long: [{ "@next": { "@next": {} } }],
            "": { "_next": "data" },
            "unknown": { "_next": 1 },
        });
        assert_eq!(restored(&schema, &input), expected);
        assert_eq!(restored(&ProviderSchema::new(json!({})), &json!({ "a": 1 })), json!({ "a": 1 }));
    }

    #[test]
    fn a_hostile_schema_takes_no_long_time() {
        let letters = ('\u{4e00}'..='\u{9fff}').map(|letter| (letter.to_string(), json!({})));
        let schema = ProviderSchema::new(json!({ "properties": letters.collect::<Map<_, _>>() }));
        assert_eq!(schema.names.len(), 0x5200);
        let mut properties = Map::new();
        for number in 0..2_000 {
            properties
                .insert(format!("${number}"), json!({ "anyOf": [{ "$ref": "#" }, { "$ref": "#/properties/$1" }] }));
        }
        let schema = ProviderSchema::new(json!({ "type": "object", "properties": properties }));
        let mut input = json!({});
        for _ in 0..100 {
            input = json!({ "_1": input });
        }
        let mut expected = json!({});
        for _ in 0..100 {
            expected = json!({ "$1": expected });
        }
        assert_eq!(restored(&schema, &input), expected);
    }
}
