//! The tools that a server lists: which of them agents get, and whether models can call them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::tool_lock::ToolDefinitions;
use crate::diagnostic::suggest_name;
use crate::job::{MAX_TOOL_NAME, allows_tool, model_tool_names, tool_name_error};
use crate::json_schema::{self, SchemaValidator};
use crate::redaction::Redactor;
use crate::text::truncate::ellipsize;
use crate::text::{pluralize, sanitize};
use crate::tools::ToolDefinition;

/// The most tools that a server may list.
pub(super) const MAX_LISTED: usize = 10_000;
/// The most tools that an agent can have. OpenAI accepts no more in one request.
pub const MAX_TOOLS: usize = 128;
/// The longest description of a tool, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 32 << 10;
/// The largest schema of a tool's input, in bytes.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// The longest name in a message, in characters.
const MAX_NAME_CHARS: usize = 100;
/// How many names a message lists.
const MAX_NAMES: usize = 20;

/// A tool as the server lists it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
}

/// The tools that `allow` lists, each of which must exist and be one that models can call.
///
/// # Errors
/// The first mistake, in a sentence that follows the server's name.
pub(super) fn select(
    server: &str,
    allow: &[String],
    listed: Vec<ListedTool>,
    redactor: &Redactor,
) -> Result<ToolDefinitions, String> {
    let mut by_name: BTreeMap<String, ListedTool> = BTreeMap::new();
    for tool in listed {
        if let Some(twice) = by_name.insert(tool.name.clone(), tool) {
            return Err(format!("lists the tool `{}` twice", shown(&twice.name)));
        }
    }
    for pattern in allow {
        if !by_name.keys().any(|name| allows_tool(pattern, name)) {
            return Err(format!("has no tool `{pattern}`{}", available(pattern, &by_name)));
        }
    }
    let is_used = |name: &str| allow.iter().any(|pattern| allows_tool(pattern, name));
    by_name.retain(|name, _| is_used(name));
    if by_name.len() > MAX_TOOLS {
        let count = by_name.len();
        return Err(format!(
            "has {count} tools that `allow` lists, and models can have at most {MAX_TOOLS}: list fewer"
        ));
    }
    for name in model_tool_names(server, by_name.keys().map(String::as_str)).values() {
        if name.len() > MAX_TOOL_NAME {
            let length = name.len();
            return Err(format!(
                "has a tool with the name `{name}` for models, which has {length} characters, and providers accept at most \
                 {MAX_TOOL_NAME}: give the server a shorter name"
            ));
        }
    }
    by_name.into_iter().map(|(name, tool)| Ok((name, definition(tool, redactor)?))).collect()
}

/// What tools there are instead.
fn available(wanted: &str, tools: &BTreeMap<String, ListedTool>) -> String {
    if tools.is_empty() {
        return ": it lists no tools".to_owned();
    }
    if let Some(near) = suggest_name(wanted, tools.keys().map(String::as_str)) {
        return format!(" (did you mean `{near}`?)");
    }
    let names: Vec<String> = tools.keys().take(MAX_NAMES).map(|name| format!("`{}`", shown(name))).collect();
    let more = if tools.len() > MAX_NAMES { format!(" and {} more", tools.len() - MAX_NAMES) } else { String::new() };
    format!("; it has {}{more}", names.join(", "))
}

/// A name of a server in a message.
fn shown(name: &str) -> String {
    ellipsize(&sanitize::line(name), MAX_NAME_CHARS)
}

fn definition(tool: ListedTool, redactor: &Redactor) -> Result<ToolDefinition, String> {
    let name = shown(&tool.name);
    if let Some(why) = tool_name_error(&tool.name) {
        return Err(format!("has the tool `{name}`, which can't be used: {why}"));
    }
    if tool.description.len() > MAX_DESCRIPTION_BYTES {
        let size = tool.description.len();
        return Err(format!(
            "describes the tool `{name}` with {size} bytes; at most {MAX_DESCRIPTION_BYTES} are accepted"
        ));
    }
    let size = tool.input_schema.to_string().len();
    if size > MAX_SCHEMA_BYTES {
        return Err(format!("has a schema of {size} bytes for `{name}`; at most {MAX_SCHEMA_BYTES} are accepted"));
    }
    let mut schema = tool.input_schema;
    json_schema::repair_invalid(&mut schema);
    let Value::Object(fields) = &mut schema else {
        return Err(format!("has a schema for `{name}` that isn't an object"));
    };
    fields.shift_remove("$schema");
    let is_object =
        |kind: &Value| kind == "object" || kind.as_array().is_some_and(|kinds| kinds.contains(&"object".into()));
    if fields.get("type").is_some_and(|kind| !is_object(kind)) {
        return Err(format!("has a schema for `{name}` whose type isn't `object`"));
    }
    fields.insert("type".to_owned(), "object".into());
    SchemaValidator::new(&schema)
        .map_err(|why| format!("has an invalid schema for `{name}`: {}", ellipsize(&sanitize::line(&why), 300)))?;
    sanitize_schema(&mut schema, redactor);
    Ok(ToolDefinition { description: clean(&tool.description, redactor), input_schema: schema })
}

/// A description without secrets and without characters that people can't see: they could hide instructions for the model.
fn clean(text: &str, redactor: &Redactor) -> String {
    sanitize::text(&redactor.redact(text)).into_owned()
}

/// A name or a value in a schema, cleaned in the same way. Unlike a description, the server must get the original back.
fn clean_name(text: &str, redactor: &Redactor) -> String {
    sanitize::replace_hidden(&redactor.redact(text)).into_owned()
}

/// Cleans every text in a schema: descriptions, and the names and values that a model reads and uses.
fn sanitize_schema(schema: &mut Value, redactor: &Redactor) {
    match schema {
        Value::Object(fields) => {
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                match &mut value {
                    Value::String(text) if matches!(key.as_str(), "description" | "title") => {
                        *text = clean(text, redactor);
                    }
                    value => sanitize_schema(value, redactor),
                }
                (clean_name(&key, redactor), value)
            });
            *fields = cleaned.collect();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| sanitize_schema(item, redactor)),
        Value::String(text) => *text = clean_name(text, redactor),
        _ => {}
    }
}

/// The names and values that were cleaned, by what models read instead.
pub(super) type OriginalNames = HashMap<String, String>;

/// The names and values that are cleaned in a tool's schema.
pub(super) fn original_names(tool: &ListedTool, redactor: &Redactor) -> OriginalNames {
    let mut found = OriginalNames::new();
    let mut rest = vec![&tool.input_schema];
    let mut note = |text: &String| {
        let cleaned = clean_name(text, redactor);
        if cleaned != *text {
            found.entry(cleaned).or_insert_with(|| text.clone());
        }
    };
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                fields.keys().for_each(&mut note);
                rest.extend(fields.values());
            }
            Value::Array(items) => rest.extend(items),
            Value::String(text) => note(text),
            _ => {}
        }
    }
    found
}

/// Puts the original names and values back into the input of a call.
pub(super) fn restore_names(input: &mut Map<String, Value>, names: &OriginalNames) {
    let restored = std::mem::take(input).into_iter().map(|(key, mut value)| {
        restore_value(&mut value, names);
        (names.get(&key).cloned().unwrap_or(key), value)
    });
    *input = restored.collect();
}

fn restore_value(value: &mut Value, names: &OriginalNames) {
    match value {
        Value::Object(fields) => restore_names(fields, names),
        Value::Array(items) => items.iter_mut().for_each(|item| restore_value(item, names)),
        Value::String(text) => {
            if let Some(original) = names.get(text) {
                original.clone_into(text);
            }
        }
        _ => {}
    }
}

/// What differs between the tools that were expected and those that the server has. Further tools of the server don't count:
/// agents don't get them.
pub(super) fn changes(expected: &ToolDefinitions, found: &ToolDefinitions) -> Option<String> {
    let changes: Vec<String> = expected
        .iter()
        .filter_map(|(name, old)| match found.get(name) {
            None => Some(format!("`{name}` is missing")),
            Some(new) => {
                let parts = [
                    (old.description != new.description).then_some("description"),
                    (old.input_schema != new.input_schema).then_some("input"),
                ];
                let parts: Vec<&str> = parts.into_iter().flatten().collect();
                (!parts.is_empty()).then(|| format!("the {} of `{name}`", parts.join(" and the ")))
            }
        })
        .collect();
    let count = pluralize(changes.len() as u64, "difference");
    match changes.len() {
        0 => None,
        1..=MAX_NAMES => Some(changes.join(", ")),
        _ => Some(format!("{count}, such as {}", changes[..MAX_NAMES].join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(name: &str, schema: Value) -> ListedTool {
        ListedTool { name: name.to_owned(), description: "d".to_owned(), input_schema: schema }
    }

    fn selected(allow: &[&str], tools: Vec<ListedTool>) -> Result<Vec<String>, String> {
        let allow: Vec<String> = allow.iter().map(ToString::to_string).collect();
        select("git", &allow, tools, &Redactor::default()).map(|tools| tools.into_keys().collect())
    }

    #[test]
    fn exactly_the_listed_tools_are_taken() {
        let tools = || vec![listed("log", json!({})), listed("log_all", json!({})), listed("bad name", json!({}))];
        assert_eq!(selected(&["log"], tools()).unwrap(), ["log"]);
        assert_eq!(selected(&["log*"], tools()).unwrap(), ["log", "log_all"]);
        assert!(selected(&["logs"], tools()).unwrap_err().contains("did you mean `log`"));
        assert!(selected(&["x*"], tools()).unwrap_err().contains("it has `bad name`, `log`, `log_all`"));
        assert_eq!(selected(&["*"], tools()).unwrap(), ["bad name", "log", "log_all"]);
        assert!(selected(&["*"], vec![listed("\u{1b}x", json!({}))]).unwrap_err().contains("can't be used"));
        let long = "s".repeat(64);
        let found = select(&long, &["log".to_owned()], tools(), &Redactor::default());
        assert!(found.unwrap_err().contains("a shorter name"));
        assert!(selected(&["log"], vec![]).unwrap_err().contains("lists no tools"));
        assert!(
            selected(&["log"], vec![listed("log", json!({})), listed("log", json!({}))]).unwrap_err().contains("twice")
        );
        let many = (0..200).map(|number| listed(&format!("t{number}"), json!({}))).collect();
        assert!(selected(&["*"], many).unwrap_err().contains("at most 128"));
    }

    #[test]
    fn schemas_that_are_none_are_refused() {
        for schema in
            [json!([]), json!({ "type": "string" }), json!({ "properties": 5 }), json!({ "$ref": "https://x/y" })]
        {
            assert!(selected(&["log"], vec![listed("log", schema.clone())]).is_err(), "{schema}");
        }
    }

    #[test]
    fn hidden_characters_and_secrets_are_removed() {
        let (redactor, _) = Redactor::new(&[("KEY".to_owned(), "hunter2-hunter2".to_owned())]);
        let schema = json!({ "properties": { "a": { "description": "x\u{202e}hunter2-hunter2" } } });
        let tool = ListedTool { description: "a\u{200b}\u{1b}[2Jb".to_owned(), ..listed("log", schema) };
        let found = select("git", &["log".to_owned()], vec![tool], &redactor).unwrap();
        let text = serde_json::to_string(&found).unwrap();
        assert!(text.contains("[masked:KEY]") && !text.contains("hunter2"), "{text}");
        assert!(!found["log"].description.contains(['\u{200b}', '\u{1b}']), "{text}");
    }

    #[test]
    fn hidden_characters_in_names_and_values_are_replaced_for_models_and_come_back_in_calls() {
        let hidden = "\u{202e}\u{200b}\u{e0041}\u{e0100}\u{feff}";
        let schema = json!({
            "properties": {
                format!("na{hidden}me"): { "type": "string", "enum": [format!("on{hidden}"), "👨\u{200d}👩", "\r\n"] },
                "other": { "type": "string", "default": format!("d{hidden}"), "pattern": format!("p{hidden}") },
            },
            "required": [format!("na{hidden}me")],
            "$comment": hidden,
            "x": { "title": hidden, "examples": [hidden], "const": hidden },
        });
        let tool = listed("log", schema);
        let names = original_names(&tool, &Redactor::default());
        let found = select("git", &["log".to_owned()], vec![tool], &Redactor::default()).unwrap();
        let shown = &found["log"].input_schema;
        let text = shown.to_string();
        assert!(!hidden.chars().any(|char| text.contains(char)), "{text}");
        assert_eq!(shown["required"], json!(["na_____me"]));
        assert_eq!(shown["properties"]["na_____me"]["enum"], json!(["on_____", "👨\u{200d}👩", "\r\n"]));
        let mut input = json!({ "na_____me": "on_____", "other": ["x", "👨\u{200d}👩"] });
        restore_names(input.as_object_mut().unwrap(), &names);
        let expected = json!({ format!("na{hidden}me"): format!("on{hidden}"), "other": ["x", "👨\u{200d}👩"] });
        assert_eq!(input, expected);
    }

    #[test]
    fn changed_descriptions_and_inputs_are_found() {
        let tools = |description: &str, schema: Value| {
            let definition = ToolDefinition { description: description.to_owned(), input_schema: schema };
            ToolDefinitions::from([("log".to_owned(), definition)])
        };
        let old = tools("a", json!({}));
        assert_eq!(changes(&old, &old), None);
        assert_eq!(changes(&old, &tools("b", json!({}))).unwrap(), "the description of `log`");
        assert_eq!(changes(&old, &tools("b", json!({ "x": 1 }))).unwrap(), "the description and the input of `log`");
        assert_eq!(changes(&old, &ToolDefinitions::new()).unwrap(), "`log` is missing");
        assert_eq!(changes(&ToolDefinitions::new(), &old), None);
    }
}
