//! `todo`: keeps the agent's plan.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{parse, schema};
use super::tool::{Builtin, CallFuture, Tool, ToolContext, no_options};
use super::tool_state::ToolState;
use crate::message::ToolError;
use crate::text::truncate::first;

pub(super) const BUILTIN: Builtin = Builtin {
    name: "todo",
    reads_only: false,
    starts_commands: false,
    changes_files: false,
    reads_content: false,
    parent_only: false,
    subject_field: None,
    parse_options: no_options,
    options_schema: || None,
    build: |_| Ok(Box::new(Todo)),
};

/// The most items that a plan may have.
const MAX_ITEMS: usize = 100;
/// The longest text of an item, in characters.
const MAX_TEXT_CHARS: usize = 500;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TodoInput {
    /// All steps, in order. They replace the current plan.
    #[serde(alias = "todos")]
    items: Vec<TodoItem>,
}

/// A step of an agent's plan.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "models add some fields out of habit")]
struct TodoItem {
    /// What to do, in a few words.
    #[serde(alias = "content", alias = "step", alias = "task")]
    text: String,
    /// The status of the step.
    status: TodoStatus,
    #[serde(default, rename = "activeForm", alias = "active_form")]
    #[schemars(skip)]
    active_form: Option<IgnoredAny>,
    #[serde(default)]
    #[schemars(skip)]
    id: Option<IgnoredAny>,
    #[serde(default)]
    #[schemars(skip)]
    priority: Option<IgnoredAny>,
}

/// The status of a step.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    /// Not started.
    Pending,
    /// Being worked on.
    InProgress,
    /// Finished.
    #[serde(alias = "completed")]
    Done,
}

struct Todo;

impl Tool for Todo {
    fn name(&self) -> &str {
        "todo"
    }

    fn description(&self) -> String {
        "Keeps your plan for work with several steps. Each call replaces the whole plan, so include every step with its \
         status. Have at most one step in progress, and mark steps as done immediately."
            .into()
    }

    fn input_schema(&self) -> Value {
        schema::<TodoInput>()
    }

    fn restore_state(&self, input: &RawValue, state: &ToolState) {
        if let Ok(input) = parse::<TodoInput>(input) {
            state.set_plan(render(&input.items));
        }
    }

    fn call<'a>(&'a self, input: &'a RawValue, context: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let TodoInput { items } = parse(input)?;
            if items.len() > MAX_ITEMS {
                return Err(ToolError(format!("a plan can have at most {MAX_ITEMS} steps")));
            }
            if let Some(item) = items.iter().find(|item| item.text.chars().count() > MAX_TEXT_CHARS) {
                return Err(ToolError(format!(
                    "a step can have at most {MAX_TEXT_CHARS} characters: {}...",
                    first(&item.text, 40)
                )));
            }
            if items.iter().any(|item| item.text.trim().is_empty()) {
                return Err(ToolError::new("a step has no text"));
            }
            let plan = render(&items);
            context.state.set_plan(plan.clone());
            Ok(if plan.is_empty() { "the plan is empty".to_owned() } else { plan }.into())
        })
    }
}

/// The plan with one line per step.
fn render(items: &[TodoItem]) -> String {
    let lines = items.iter().map(|item| {
        let mark = match item.status {
            TodoStatus::Pending => "[ ]",
            TodoStatus::InProgress => "[>]",
            TodoStatus::Done => "[x]",
        };
        format!("{mark} {}", item.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::toolbox::tests::ToolHarness;

    #[tokio::test]
    async fn the_whole_plan_is_replaced() {
        let harness = ToolHarness::new(&["todo"]);
        harness
            .ok(
                "todo",
                r#"{"items": [{"text": "look", "status": "in_progress"}, {"text": "leap", "status": "pending"}]}"#,
            )
            .await;
        let text = harness
            .ok(
                "todo",
                r#"{"todos": [{"content": "look", "status": "completed", "activeForm": "Looking", "id": "1", "priority": "high"},
                    {"text": "leap", "status": "in_progress"}]}"#,
            )
            .await;
        assert_eq!(text, "[x] look\n[>] leap");
        harness.refused("todo", r#"{"items": [{"text": "x", "status": "done", "other": 1}]}"#).await;
        let text = harness.refused("todo", r#"{"items": [{"text": " ", "status": "done"}]}"#).await;
        assert_eq!(text, "a step has no text");
        assert_eq!(harness.toolbox.plan(), "[x] look\n[>] leap");
        assert_eq!(harness.ok("todo", r#"{"items": []}"#).await, "the plan is empty");
        assert_eq!(harness.toolbox.plan(), "");
    }

    #[test]
    fn the_schema_lists_the_statuses() {
        let status = &schema::<TodoInput>()["properties"]["items"]["items"]["properties"]["status"];
        assert_eq!(status["enum"], serde_json::json!(["pending", "in_progress", "done"]));
    }
}
