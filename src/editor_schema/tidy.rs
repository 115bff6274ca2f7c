//! Adapts a schema to editors, so that they show the description of a key for every form of its value.

use serde_json::{Map, Value, json};

/// Removes `null` from types: a key of a job can't be empty.
pub(super) fn drop_nulls(schema: &mut Value) {
    each(schema, &mut |parts| {
        if let Some(Value::Array(types)) = parts.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                parts.insert("type".to_owned(), only);
            }
        }
        unwrap_nullable(parts);
    });
}

/// Merges the schema of a value with that of null.
pub(super) fn merge_nullable_choice(schema: &mut Value) {
    each(schema, &mut |parts| {
        if unwrap_nullable(parts) {
            list_words(parts);
            let kind = parts.get("type").cloned().unwrap_or_default();
            parts.insert("type".to_owned(), json!([kind, "null"]));
            if let Some(Value::Array(words)) = parts.get_mut("enum") {
                words.push(Value::Null);
            }
            for key in ["enumDescriptions", "markdownEnumDescriptions"] {
                if let Some(Value::Array(descriptions)) = parts.get_mut(key) {
                    descriptions.push(json!("As if the key were left out."));
                }
            }
        }
    });
}

/// Replaces a choice between one schema and null by that schema.
fn unwrap_nullable(parts: &mut Map<String, Value>) -> bool {
    let Some(Value::Array(choices)) = parts.get_mut("anyOf") else { return false };
    let all = choices.len();
    choices.retain(|choice| choice != &json!({ "type": "null" }));
    let had_null = choices.len() < all;
    let [Value::Object(only)] = choices.as_mut_slice() else { return false };
    let only = std::mem::take(only);
    parts.shift_remove("anyOf");
    for (key, value) in only {
        // The description of the key takes precedence over that of its type.
        parts.entry(key).or_insert(value);
    }
    had_null
}

/// Removes formats, empty defaults, and the line ends in descriptions. Converts choices to the form that editors
/// support.
pub(super) fn tidy_for_editors(schema: &mut Value) {
    each(schema, &mut |parts| {
        merge_string_or_object(parts);
        list_words(parts);
        if parts.get("format").is_some_and(Value::is_string) {
            parts.shift_remove("format");
        }
        if parts.get("default").is_some_and(|default| default.is_null() || [json!([]), json!({})].contains(default)) {
            parts.shift_remove("default");
        }
        if let Some(Value::String(text)) = parts.get_mut("description") {
            *text = text.replace('\n', " ");
        }
    });
}

/// Applies a change to a schema, and then to each schema in it.
pub(super) fn each(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Object(parts) => {
            change(parts);
            parts.values_mut().for_each(|part| each(part, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each(item, change)),
        _ => {}
    }
}

/// Makes the schema of a string or a mapping depend on the value's type, so that an editor reports errors in the value
/// instead of saying that it should have the other type.
fn merge_string_or_object(parts: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = parts.get_mut("anyOf") else { return };
    let [Value::Object(text), Value::Object(mapping)] = choices.as_mut_slice() else { return };
    if text.get("type") != Some(&json!("string")) || mapping.get("type") != Some(&json!("object")) {
        return;
    }
    let (text, mut mapping) = (std::mem::take(text), std::mem::take(mapping));
    mapping.shift_remove("description");
    mapping.shift_remove("type");
    parts.shift_remove("anyOf");
    parts.insert("type".to_owned(), json!(["string", "object"]));
    let text: Map<String, Value> = text.into_iter().filter(|(key, _)| key != "type" && key != "description").collect();
    // A list of words would apply to the mapping, too.
    let has_words = ["enum", "const", "oneOf"].iter().any(|key| text.contains_key(*key));
    let (of_words, of_text) = if has_words { (text, Map::new()) } else { (Map::new(), text) };
    for (key, value) in of_text {
        parts.entry(key).or_insert(value);
    }
    parts.insert("if".to_owned(), json!({ "type": "object" }));
    parts.insert("then".to_owned(), Value::Object(mapping));
    if has_words {
        parts.insert("else".to_owned(), Value::Object(of_words));
    }
}

/// Makes the fallbacks of a model models without fallbacks. A type that contains itself would need references.
pub(super) fn nest_fallbacks(schema: &mut Value) {
    const FALLBACK: &str = "fallback";
    each(schema, &mut |parts| {
        let mut model = parts.clone();
        let properties = |model: &mut Map<String, Value>| match model.get_mut("then")?.get_mut("properties")? {
            Value::Object(properties) => properties.shift_remove(FALLBACK),
            _ => None,
        };
        let Some(mut fallback) = properties(&mut model) else { return };
        fallback["items"] = Value::Object(model);
        parts["then"]["properties"][FALLBACK] = fallback;
    });
}

/// Words that are described one by one.
fn list_words(parts: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = parts.get("oneOf") else { return };
    let words: Option<Vec<(Value, String)>> = choices
        .iter()
        .map(|choice| Some((choice.get("const")?.clone(), choice.get("description")?.as_str()?.replace('\n', " "))))
        .collect();
    let Some(words) = words else { return };
    parts.shift_remove("oneOf");
    parts.insert("type".to_owned(), json!("string"));
    set_described_values(parts, words);
}

/// One of these words, each with its description.
pub(super) fn set_described_values(parts: &mut Map<String, Value>, words: impl IntoIterator<Item = (Value, String)>) {
    let (words, descriptions): (Vec<Value>, Vec<String>) = words.into_iter().unzip();
    parts.insert("enum".to_owned(), json!(words));
    if descriptions.iter().any(|description| description.contains('`')) {
        parts.insert("markdownEnumDescriptions".to_owned(), json!(descriptions));
    }
    parts.insert("enumDescriptions".to_owned(), json!(descriptions));
}

/// Adds the default to each description, because editors don't show it, and a Markdown form if that differs.
pub(super) fn describe(schema: &mut Value) {
    each(schema, &mut |parts| {
        let default = parts.get("default").map(|default| match default {
            Value::String(text) => format!(" Default: `{text}`."),
            other => format!(" Default: `{other}`."),
        });
        let Some(Value::String(description)) = parts.get_mut("description") else { return };
        description.push_str(&default.unwrap_or_default());
        if description.contains('`') {
            let markdown = json!(description);
            parts.insert("markdownDescription".to_owned(), markdown);
        }
    });
}
