//! JSON Schema of what people write, made from the types and tables that read it.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::event::RunResult;
use crate::job::{Job, MODEL_PATTERN};
use crate::providers::PROVIDERS;
use crate::tools::{Builtin, TOOLS};

/// The schema of a job file, draft 2020-12. It refuses whatever has the wrong form; what takes more than one place to
/// see (a variable that isn't declared, a default that its type doesn't fit) is left to `validate`.
pub fn job_schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Job>().to_value();
    let mut definitions = match schema.get_mut("$defs").map(Value::take) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    definitions.values_mut().for_each(tidy);
    tidy(&mut schema);
    let (all, for_subagents) = (entry(TOOLS.iter(), &mut definitions), entry(shared(), &mut definitions));
    definitions.insert("ToolEntry".to_owned(), all);
    definitions.insert("SubagentToolEntry".to_owned(), for_subagents);
    if let Some(items) = definitions.get_mut("Subagent").and_then(|it| it.pointer_mut("/properties/tools/items")) {
        *items = json!({ "$ref": "#/$defs/SubagentToolEntry" });
    }
    definitions.sort_keys();
    if let Some(place) = schema.get_mut("$defs") {
        *place = Value::Object(definitions);
    }
    name_providers(&mut schema);
    schema["title"] = json!("legwork job");
    schema
}

/// The schema of `result.json`, draft 2020-12.
pub fn result_schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RunResult>().to_value()
}

/// Takes out what the types say and the reader doesn't mean: that a key may be there without a value, and the line ends
/// of comments.
fn tidy(schema: &mut Value) {
    let is_null = |schema: &Value| schema == &json!({ "type": "null" });
    match schema {
        Value::Object(parts) => {
            if let Some(Value::Array(types)) = parts.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    parts.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = parts.get_mut("anyOf") {
                choices.retain(|choice| !is_null(choice));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    parts.shift_remove("anyOf");
                    parts.extend(only);
                }
            }
            if let Some(Value::String(text)) = parts.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            parts.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// The tools that a subagent can have, too.
fn shared() -> impl Iterator<Item = &'static Builtin> {
    TOOLS.iter().filter(|tool| !tool.parent_only)
}

/// An entry of an allowlist: one of these names, or one with options. The definitions that the options use go to
/// those of the whole.
fn entry(tools: impl Iterator<Item = &'static Builtin>, definitions: &mut Map<String, Value>) -> Value {
    let mut names = Vec::new();
    let mut options = Map::new();
    for tool in tools {
        names.push(tool.name);
        let own = match (tool.options_schema)() {
            Some(Value::Object(mut own)) => {
                own.remove("$schema");
                own.remove("title");
                if let Some(Value::Object(used)) = own.remove("$defs") {
                    definitions.extend(used);
                }
                let mut own = Value::Object(own);
                tidy(&mut own);
                json!({ "anyOf": [own, { "type": "null" }] })
            }
            _ => json!({ "type": "null" }),
        };
        options.insert(tool.name.to_owned(), own);
    }
    json!({
        "description": "A tool: its name, or its name with options.",
        "anyOf": [
            { "enum": names },
            {
                "type": "object",
                "properties": options,
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ],
    })
}

/// Lets a model's name begin only with a provider that there is.
fn name_providers(schema: &mut Value) {
    match schema {
        Value::String(pattern) if pattern == MODEL_PATTERN => {
            let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).collect();
            *pattern = format!("^({})/.+$", names.join("|"));
        }
        Value::Array(items) => items.iter_mut().for_each(name_providers),
        Value::Object(parts) => parts.values_mut().for_each(name_providers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Folders of `tests/lints` whose mistakes no schema of this kind can see.
    const BEYOND: &[&str] = &[
        "bad-default",
        "bad-enum",
        "bad-secret",
        "duplicate-env",
        "duplicate-tool",
        "dynamic-include",
        "empty-prompt",
        "include-cycle",
        "key-in-env",
        "withheld-env",
        "bash-rule",
        "outside-folder",
        "secret-in-template",
        "template-syntax",
        "thinking-not-taken",
        "too-many-includes",
        "undefined-variable",
        "unknown-filter",
        "unknown-function",
        "unknown-price",
        "unknown-test",
        "unreadable-file",
        "untrusted-in-system",
        "unused-subagents",
    ];

    fn jobs() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lints");
        let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
        files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
    }

    #[test]
    fn it_agrees_with_the_reader() {
        let schema = job_schema();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let mut seen = 0;
        for path in jobs() {
            let job: Value = serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let found: Vec<String> =
                validator.iter_errors(&job).map(|error| format!("{}: {error}", error.instance_path())).collect();
            let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
            let is_good = path.file_name().unwrap().to_str().unwrap().starts_with("good");
            if is_good || BEYOND.contains(&folder) {
                assert!(found.is_empty(), "{}: {found:?}", path.display());
            } else {
                assert!(!found.is_empty(), "the schema accepts {}", path.display());
            }
            seen += 1;
        }
        assert!(seen > 60);
    }

    #[test]
    fn it_describes_tools_and_defaults() {
        let schema = job_schema();
        assert_eq!(schema["$defs"]["Parent"]["properties"]["max_turns"]["default"], 50);
        assert_eq!(schema["$defs"]["Subagent"]["properties"]["max_tokens"]["default"], 4000);
        assert_eq!(schema["$defs"]["Limits"]["properties"]["wall_clock"]["default"], "30m");
        assert_eq!(schema["additionalProperties"], false);
        let names = |definition: &str| schema["$defs"][definition]["anyOf"][0]["enum"].as_array().unwrap().len();
        assert_eq!(names("ToolEntry"), TOOLS.len());
        assert_eq!(names("SubagentToolEntry"), TOOLS.len() - 1);
    }

    #[test]
    fn it_is_the_same_every_time() {
        let printed = || serde_json::to_string_pretty(&job_schema()).unwrap();
        assert_eq!(printed(), printed());
    }
}
