//! Completes the schema of a job from tables: providers, tools, variables.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::tidy;
use crate::job::{MAX_TOKENS, MODEL_PATTERN, NAME_PATTERN, OUTPUT_KEY, Thinking};
use crate::lints::provider_keys;
use crate::process::WITHHELD;
use crate::providers::{Model, PROVIDERS, ProviderSpec, RequestOptions};
use crate::tools::{Builtin, TOOLS};

/// Models for examples.
pub(super) const EXAMPLE_MODELS: &[&str] =
    &["anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5", "openai/gpt-6.1-terra", "gemini/gemini-3.8-flash"];

/// Adds the names in the tables.
pub(super) fn fill_enums(schema: &mut Value) {
    restrict_models(schema);
    if let Some(Value::Object(variable)) = schema.pointer_mut("/properties/env/items") {
        exclude_env_variables(variable);
    }
    if let Some(Value::Object(list)) = schema.pointer_mut("/properties/parent/properties/tools") {
        restrict_tools(list, |_| true);
    }
    let of_subagents = "/properties/subagents/additionalProperties/properties/tools";
    if let Some(Value::Object(list)) = schema.pointer_mut(of_subagents) {
        restrict_tools(list, |tool| !tool.parent_only);
    }
}

/// Restricts the name of a model to possible providers, and its options to those that the provider supports.
fn restrict_models(schema: &mut Value) {
    tidy::each(schema, &mut |parts| {
        if parts.get("pattern").is_some_and(|pattern| pattern == MODEL_PATTERN) {
            // The user's own server can have any name. The path of a script may contain spaces; a model's name can't.
            let any_name = NAME_PATTERN.trim_matches(['^', '$']);
            let pattern = format!("^(replay/[^\\x00-\\x1f\\x7f]+|{any_name}/[^\\x00-\\x20\\x7f]+)$");
            let known: Vec<&str> = PROVIDERS.iter().map(|entry| entry.name).collect();
            let form =
                format!("write `PROVIDER/MODEL`; the providers are {}, and servers of your own", known.join(", "));
            parts.insert("pattern".to_owned(), json!(pattern));
            parts.insert("patternErrorMessage".to_owned(), json!(form));
            parts.insert("examples".to_owned(), json!(EXAMPLE_MODELS));
        }
        // In the added rules, the options aren't schemas.
        if parts.get("properties").is_some_and(|options| options.get("thinking").is_some_and(Value::is_object)) {
            let rules = OPTIONS.iter().filter_map(|option| unsupported_option_rule(option)).collect();
            parts.insert("allOf".to_owned(), rules);
        }
    });
}

/// The options of a model that not every provider supports.
const OPTIONS: [&str; 3] = ["thinking", "temperature", "stop"];

/// Forbids an option for providers that don't support it for any model.
fn unsupported_option_rule(option: &str) -> Option<Value> {
    let model = |entry: &ProviderSpec| Model {
        thinking: Some(Thinking::Low),
        temperature: Some(0.5),
        stop: vec!["END".to_owned()],
        ..Model::new(entry.name, "any")
    };
    let refuses = |entry: &&ProviderSpec| {
        let untaken = (entry.unsupported_options)(&RequestOptions {
            model: &model(entry),
            has_tools: false,
            max_tokens: MAX_TOKENS,
        });
        untaken.iter().any(|untaken| untaken.option == option)
    };
    let none: Vec<&str> = PROVIDERS.iter().filter(refuses).map(|entry| entry.name).collect();
    let takes_none = json!({ "pattern": format!("^({})/", none.join("|")) });
    (!none.is_empty()).then(|| {
        json!({
            "if": { "required": ["name"], "properties": { "name": takes_none } },
            "then": { "properties": { (option): false }, "errorMessage": format!("this provider doesn't support `{option}`") },
        })
    })
}

/// Forbids the variables that tools can't see.
fn exclude_env_variables(variable: &mut Map<String, Value>) {
    // The names of keys are compared without case.
    let letter_pattern = |letter: char| match letter {
        'A'..='Z' => format!("[{letter}{}]", letter.to_ascii_lowercase()),
        other => other.to_string(),
    };
    let any_case = |name: &str| -> String { name.chars().map(letter_pattern).collect() };
    let keys: Vec<String> = BTreeSet::from_iter(provider_keys()).into_iter().map(any_case).collect();
    let none_of = |names: &[String], message: &str| json!({ "pattern": format!("^(?!({})$)", names.join("|")), "patternErrorMessage": message });
    let withheld: Vec<String> = WITHHELD.iter().map(ToString::to_string).collect();
    let keys = none_of(&keys, "tools never get a provider's key; remove it");
    variable.insert("allOf".to_owned(), json!([keys, none_of(&withheld, "tools can't see this variable; remove it")]));
}

/// Restricts a list to these tools, each once.
fn restrict_tools(list: &mut Map<String, Value>, has: fn(&Builtin) -> bool) {
    let tools: Vec<&Builtin> = TOOLS.iter().filter(|tool| has(tool)).collect();
    let mut names = Map::from_iter([("type".to_owned(), json!("string"))]);
    tidy::set_described_values(&mut names, tools.iter().map(|tool| (json!(tool.name), first_sentence(tool))));
    let mut with_options = Map::new();
    let mut snippets = Vec::new();
    let mut twice = Vec::new();
    for tool in &tools {
        // Not suggested as keys, or an editor would merge the suggestions of a tool's name and its key.
        let mut schema = match (tool.options_schema)() {
            Some(Value::Object(mut schema)) => {
                schema.shift_remove("$schema");
                let mut schema = Value::Object(schema);
                tidy::drop_nulls(&mut schema);
                tidy::tidy_for_editors(&mut schema);
                let first = schema["properties"].as_object().and_then(|options| options.keys().next().cloned());
                schema["type"] = json!(["object", "null"]);
                snippets.push(json!({
                    "label": format!("{}: with options", tool.name),
                    "description": first_sentence(tool),
                    "body": { (tool.name): { (first.unwrap_or_default()): "$1" } },
                }));
                // Draft 7 can't count, but it can detect both forms of a name in one list.
                let entry = json!({ "type": "object", "required": [tool.name] });
                let message = format!("`{}` is listed twice", tool.name);
                twice.push(json!({
                    "if": { "contains": { "const": tool.name } },
                    "then": { "items": { "if": entry, "then": { "type": "string", "errorMessage": message } } },
                }));
                schema
            }
            _ => json!({ "type": "null", "errorMessage": "this tool has no options: write only its name" }),
        };
        schema["description"] = json!(first_sentence(tool));
        schema["doNotSuggest"] = json!(true);
        with_options.insert(tool.name.to_owned(), schema);
    }
    list.insert("uniqueItems".to_owned(), json!(true));
    list.insert("allOf".to_owned(), json!(twice));
    let entry = json!({
        "type": "object",
        "properties": with_options,
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
        "defaultSnippets": snippets,
    });
    let server = json!({
        "type": "object",
        "properties": {
            "mcp": { "type": "string", "description": "The name of a tool server." },
            "allow": {
                "type": "array",
                "description": "The names of its tools. `*` at the end of a name matches anything.",
                "items": { "type": "string", "pattern": "^([A-Za-z0-9_-]+[*]?|[*])$" },
            },
        },
        "required": ["mcp", "allow"],
        "additionalProperties": false,
    });
    let outputs = json!({
        "type": "object",
        "properties": {
            (OUTPUT_KEY): {
                "type": "array",
                "description": "The names of outputs, and `nothing_to_do`.",
                "items": { "type": "string" },
                "uniqueItems": true,
            },
        },
        "required": [OUTPUT_KEY],
        "additionalProperties": false,
    });
    list.insert("items".to_owned(), json!({ "anyOf": [names, entry, server, outputs] }));
}

/// The first sentence of a tool's description.
fn first_sentence(tool: &Builtin) -> String {
    let text = (tool.build)(&Value::Null).map(|tool| tool.description()).unwrap_or_default();
    match text.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => text,
    }
}
