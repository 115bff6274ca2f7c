//! The differences between two plans, key by key. Texts of several lines are shown as a diff.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Plan;
use crate::text::diff::unified;

/// The key that identifies the items of a list. In a list without it, the order is significant.
const NAMED: &str = "name";

/// One difference between two plans.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanChange {
    /// The path of keys, such as `parent.tools.bash.timeout_ms`. Items of a list with names are under their names.
    pub path: String,
    /// The old value; `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value; `None` if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The hunks of a unified diff, if both are texts, and one has several lines or is a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl std::fmt::Display for PlanChange {
    /// One line, or one line followed by a diff, without a final line end.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, before, after, diff } = self;
        match (diff, before, after) {
            (Some(diff), ..) => write!(f, "{path}\n{}", diff.trim_end_matches('\n')),
            (None, Some(before), Some(after)) => write!(f, "{path}: {} -> {}", short(before), short(after)),
            (None, Some(before), None) => write!(f, "{path}: {} -> (nothing)", short(before)),
            (None, None, Some(after)) => write!(f, "{path}: (nothing) -> {}", short(after)),
            (None, None, None) => f.write_str(path),
        }
    }
}

/// A value in one line, shortened if it is long.
fn short(value: &Value) -> String {
    const MOST: usize = 200;
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::Object(fields) if fields.is_empty() => "there".to_owned(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl Plan {
    /// The differences between this plan and a later one, in the order of the plan's keys.
    pub fn changes_to(&self, after: &Self) -> Vec<PlanChange> {
        // Every plan can be written as JSON.
        let value = |plan: &Self| serde_json::to_value(plan).unwrap_or_default();
        diff_values(&value(self), &value(after))
    }
}

/// The differences between two values. Paths start below the root.
pub fn diff_values(before: &Value, after: &Value) -> Vec<PlanChange> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<PlanChange>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(before), Value::Object(after)) if is_model(before) && is_model(after) => {
            compare(path, &model(before), &model(after), found);
        }
        (Value::Object(before), Value::Object(after)) => compare_mappings(path, before, after, found),
        (Value::Array(old), Value::Array(new)) => match (items_by_name(old), items_by_name(new)) {
            (Some(old), Some(new)) => {
                let at = found.len();
                compare_mappings(path, &old, &new, found);
                if found.len() == at {
                    let names = |all: &Map<String, Value>| all.keys().cloned().collect::<Value>();
                    found.push(plan_change(path, Some(&names(&old)), Some(&names(&new))));
                }
            }
            _ => found.push(plan_change(path, Some(before), Some(after))),
        },
        _ => found.push(plan_change(path, Some(before), Some(after))),
    }
}

fn compare_mappings(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, found: &mut Vec<PlanChange>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, old) in before {
        match after.get(key) {
            Some(new) => compare(&below(key), old, new, found),
            None => found.push(plan_change(&below(key), Some(old), None)),
        }
    }
    for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        found.push(plan_change(&below(key), None, Some(new)));
    }
}

fn plan_change(path: &str, before: Option<&Value>, after: Option<&Value>) -> PlanChange {
    let are_texts = [before, after].into_iter().flatten().all(Value::is_string);
    let [old, new] = [before, after].map(|value| value.and_then(Value::as_str).unwrap_or_default());
    // Prompts are shown as a diff even if they are one line.
    let is_prompt = [".system", ".prompt"].iter().any(|key| path.ends_with(key));
    let several = are_texts && (is_prompt || old.trim_end().contains('\n') || new.trim_end().contains('\n'));
    let diff = several.then(|| unified(old, new));
    PlanChange { path: path.to_owned(), before: before.cloned(), after: after.cloned(), diff }
}

/// The items of a list by their names. The options of a tool are directly below its name.
fn items_by_name(items: &[Value]) -> Option<Map<String, Value>> {
    let mut all = Map::new();
    for item in items {
        let mut fields = item.as_object()?.clone();
        let name = fields.shift_remove(NAMED)?.as_str()?.to_owned();
        let value = match fields.shift_remove("options") {
            Some(options) if fields.is_empty() => options,
            options => {
                fields.extend(options.map(|options| ("options".to_owned(), options)));
                Value::Object(fields)
            }
        };
        if all.insert(name, value).is_some() {
            return None;
        }
    }
    Some(all)
}

fn is_model(fields: &Map<String, Value>) -> bool {
    fields.contains_key("provider") && fields.contains_key(NAMED)
}

/// A model as a job writes it, followed by its options.
fn model(fields: &Map<String, Value>) -> Value {
    let of = |key: &str| fields.get(key).and_then(Value::as_str);
    let name = format!("{}/{}", of("provider").unwrap_or_default(), of(NAMED).unwrap_or_default());
    let shown = |value: &Value| match value {
        Value::String(word) => word.clone(),
        // 0.0 and 1.0 as a job writes them.
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        other => other.to_string(),
    };
    let options = fields.iter().filter(|(key, _)| !["provider", NAMED].contains(&key.as_str()));
    let options: Vec<String> = options.map(|(key, value)| format!("{key}: {}", shown(value))).collect();
    if options.is_empty() { name.into() } else { format!("{name} ({})", options.join(", ")).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Value)) -> Plan {
        let mut plan = serde_json::json!({
            "format": 1, "job": "j", "workspace": "/w", "inputs": { "folder": "src" },
            "parent": {
                "model": { "provider": "anthropic", "name": "m" }, "system": "You are kind.\nAnd quick.\n", "prompt": "Go.",
                "tools": [{ "name": "glob" }, { "name": "bash", "options": { "allow": ["ls"], "timeout_ms": 5 } }],
                "max_turns": 5, "max_tokens": 6,
            },
            "subagents": { "explorer": {
                "model": { "provider": "anthropic", "name": "m" }, "system": "Look.", "tools": [{ "name": "grep" }],
                "max_turns": 3, "max_tokens": 4,
            } },
            "limits": {
                "cost_usd": null, "tokens": 5, "wall_clock_ms": 7, "tool_calls": null, "subagents": null,
                "parallel_subagents": 1,
            },
            "env": ["A"], "network": "none", "keep": "always",
        });
        change(&mut plan);
        serde_json::from_value(plan).unwrap()
    }

    fn shown(change: impl FnOnce(&mut Value)) -> Vec<String> {
        plan(|_| {}).changes_to(&plan(change)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_plans_have_no_differences() {
        assert_eq!(shown(|_| {}), [""; 0]);
    }

    #[test]
    fn each_changed_key_has_its_old_and_new_value() {
        let found = shown(|plan| {
            plan["parent"]["max_turns"] = 9.into();
            plan["parent"]["model"]["thinking"] = "low".into();
            plan["parent"]["model"]["temperature"] = 0.0.into();
            plan["parent"]["model"]["stop"] = serde_json::json!(["END"]);
            plan["parent"]["model"]["context"] = 200_000.into();
            plan["parent"]["tools"][1]["options"]["allow"] = serde_json::json!(["ls", "pwd"]);
            plan["parent"]["tools"][0]["name"] = "todo".into();
            plan["limits"]["cost_usd"] = 0.5.into();
            plan["checks"] = serde_json::json!([{ "name": "a.b", "run": "true", "timeout_ms": 5 }]);
            plan["inputs"]["folder"] = "lib".into();
        });
        let expected = [
            r#"inputs.folder: "src" -> "lib""#,
            r#"parent.model: "anthropic/m" -> "anthropic/m (thinking: low, temperature: 0, stop: [\"END\"], context: 200000)""#,
            "parent.tools.glob: there -> (nothing)",
            r#"parent.tools.bash.allow: ["ls"] -> ["ls","pwd"]"#,
            "parent.tools.todo: (nothing) -> there",
            "parent.max_turns: 5 -> 9",
            "limits.cost_usd: none -> 0.5",
            r#"checks: (nothing) -> [{"name":"a.b","run":"true","timeout_ms":5}]"#,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn subagents_and_the_order_of_tools_are_compared() {
        let found = shown(|plan| {
            let other = plan["subagents"]["explorer"].clone();
            plan["subagents"] = serde_json::json!({ "reader": other });
            plan["parent"]["tools"].as_array_mut().unwrap().reverse();
        });
        assert_eq!(found[0], r#"parent.tools: ["glob","bash"] -> ["bash","glob"]"#);
        assert!(found[1].starts_with("subagents.explorer: {"), "{found:?}");
        assert!(found[2].starts_with("subagents.reader: (nothing) -> {"), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_text_of_several_lines_is_a_diff() {
        let found = plan(|_| {}).changes_to(&plan(|plan| {
            plan["parent"]["system"] = "You are kind.\nAnd slow.\n".into();
        }));
        let [found] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(found.to_string(), "parent.system\n@@ -1,2 +1,2 @@\n You are kind.\n-And quick.\n+And slow.");
        assert!(found.before.is_some() && found.after.is_some());
    }
}
