//! Generates a case from a run: a script of the replies, and expectations that match what happened.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::WORKSPACE_PLACEHOLDER;
use crate::event::{PARENT, RunResult};
use crate::job::SERVER_SEPARATOR;
use crate::message::{Reply, StopReason, ToolCall, ToolResult};
use crate::providers::replay::relocate_value;
use crate::yaml;

/// A recorded reply.
#[derive(Debug, Clone)]
pub struct RecordedReply {
    /// The reply.
    pub reply: Reply,
    /// For a summary of the conversation, the number of turns that it keeps.
    pub kept_turns: Option<u32>,
    /// The results of its calls of tool servers, by the ids of the calls.
    pub answers: BTreeMap<String, ToolResult>,
}

impl RecordedReply {
    /// The names of the servers' tools that it calls.
    fn answered_tools(&self) -> impl Iterator<Item = &str> {
        self.reply.tool_calls().filter(|call| self.answers.contains_key(&call.id)).map(|call| call.tool.as_str())
    }
}

/// Generates the script of a run: texts, calls and stop reasons, with the path of the workspace replaced by
/// [`WORKSPACE_PLACEHOLDER`]. Leaves out what only the provider understands, such as signed thinking and citations.
/// `with_usage` includes token counts, so that limits apply as in the run. `is_mistaken` tells whether a call names a tool or
/// subagent that doesn't exist.
pub fn generate_script(
    replies: &BTreeMap<String, Vec<RecordedReply>>,
    workspace: &str,
    with_usage: bool,
    is_mistaken: impl Fn(&str, &ToolCall) -> bool,
) -> String {
    let script_replies = |agent: &str, replies: &[RecordedReply]| -> Value {
        replies.iter().map(|recorded| script_reply(recorded, with_usage, &|call| is_mistaken(agent, call))).collect()
    };
    let mut file = Map::new();
    let called = replies.values().flatten().flat_map(RecordedReply::answered_tools);
    let servers: BTreeSet<&str> = called.filter_map(|tool| Some(tool.split_once(SERVER_SEPARATOR)?.0)).collect();
    if !servers.is_empty() {
        file.insert("mcp".to_owned(), json!(servers));
    }
    let parent = replies.get(PARENT).map(Vec::as_slice).unwrap_or_default();
    file.insert("parent".to_owned(), script_replies(PARENT, parent));
    let mut subagents: Vec<_> = replies.iter().filter(|(id, _)| *id != PARENT).collect();
    subagents.sort_by_key(|(id, _)| agent_sort_key(id));
    if !subagents.is_empty() {
        let subagents = subagents.into_iter().map(|(id, replies)| (id.clone(), script_replies(id, replies)));
        file.insert("subagents".to_owned(), Value::Object(subagents.collect()));
    }
    let mut file = Value::Object(file);
    let before = file.clone();
    relocate_value(&mut file, workspace, WORKSPACE_PLACEHOLDER);
    if file != before
        && let Value::Object(entries) = &mut file
    {
        entries.shift_insert(0, "workspace".to_owned(), json!(WORKSPACE_PLACEHOLDER));
    }
    yaml::to_yaml(&file)
}

/// The sort key of an agent id: `explorer-10` comes after `explorer-9`.
fn agent_sort_key(id: &str) -> (String, u64) {
    match id.rsplit_once('-') {
        Some((name, digits)) => (name.to_owned(), digits.parse().unwrap_or(0)),
        None => (id.to_owned(), 0),
    }
}

fn script_reply(recorded: &RecordedReply, with_usage: bool, is_mistaken: &dyn Fn(&ToolCall) -> bool) -> Value {
    let mut entry = Map::new();
    let reply = &recorded.reply;
    let text = reply.text();
    let script_call = |call: &ToolCall| {
        let input: Value = serde_json::from_str(call.input.get()).unwrap_or_default();
        let mut entry = json!({ "tool": call.tool });
        if input.as_object().is_some_and(|input| !input.is_empty()) {
            entry["input"] = input;
        }
        if is_mistaken(call) {
            entry["mistaken"] = json!(true);
        }
        if let Some(answer) = recorded.answers.get(&call.id) {
            entry[if answer.is_error { "error" } else { "answer" }] = json!(answer.text);
        }
        entry
    };
    let calls: Vec<Value> = reply.tool_calls().map(script_call).collect();
    if !text.is_empty() || calls.is_empty() {
        entry.insert("text".to_owned(), json!(text));
    }
    let default_stop = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    if !calls.is_empty() {
        entry.insert("calls".to_owned(), Value::Array(calls));
    }
    if reply.stop != default_stop && !matches!(reply.stop, StopReason::Other(_)) {
        entry.insert("stop".to_owned(), json!(reply.stop));
    }
    if let Some(kept) = recorded.kept_turns {
        entry.insert("kept_turns".to_owned(), json!(kept));
    }
    if with_usage {
        entry.insert("usage".to_owned(), json!(reply.usage));
    }
    Value::Object(entry)
}

/// What a run did to a file of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOutcome {
    /// The file was created or changed, and has a snapshot.
    Snapshot,
    /// The file was created or changed, and has no snapshot.
    Exists,
    /// The file was deleted.
    Absent,
}

/// What a run did to the workspace.
#[derive(Debug, Default)]
pub struct WorkspaceOutcome {
    /// The changed files, by path.
    pub files: BTreeMap<String, FileOutcome>,
    /// Whether the job has outputs, of which there is a snapshot.
    pub has_outputs: bool,
    /// Whether the workspace is a git repository.
    pub is_git_repository: bool,
}

/// Generates the `expect.yaml` of a run.
pub fn generate_expect(
    result: &RunResult,
    replies: &BTreeMap<String, Vec<RecordedReply>>,
    outcome: &WorkspaceOutcome,
    workspace: &str,
) -> String {
    let mut file = Map::new();
    file.insert("outcome".to_owned(), json!(result.outcome));
    file.insert("max_turns".to_owned(), json!(result.turns.max(1)));
    if let Some(data) = &result.result {
        let mut data = data.clone();
        relocate_value(&mut data, workspace, WORKSPACE_PLACEHOLDER);
        file.insert("result".to_owned(), json!({ "is": data }));
    }
    if let Some(state) = &result.state {
        let mut value = state.after.clone();
        relocate_value(&mut value, workspace, WORKSPACE_PLACEHOLDER);
        file.insert("state".to_owned(), json!({ "is": value }));
    }
    if !outcome.files.is_empty() {
        file.insert("files".to_owned(), json!(outcome.files));
    }
    let calls = replies.values().flatten().flat_map(|recorded| recorded.reply.tool_calls());
    let builtin = calls.map(|call| call.tool.as_str()).filter(|tool| is_tool(tool));
    let tools = builtin.chain(replies.values().flatten().flat_map(RecordedReply::answered_tools));
    let tools: BTreeMap<&str, &str> = tools.map(|tool| (tool, "called")).collect();
    if !tools.is_empty() {
        file.insert("tools".to_owned(), json!(tools));
    }
    if !result.checks.is_empty() {
        let verdict = |passed: bool| json!(if passed { "passed" } else { "failed" });
        let checks = result.checks.iter().map(|check| (check.name.clone(), verdict(check.passed)));
        file.insert("checks".to_owned(), Value::Object(checks.collect()));
    }
    if outcome.has_outputs {
        file.insert("outputs".to_owned(), json!("snapshot"));
    }
    if outcome.is_git_repository {
        file.insert("git".to_owned(), json!([{ "message": "Start" }]));
    }
    yaml::to_yaml(&Value::Object(file))
}

fn is_tool(name: &str) -> bool {
    ["skill", "submit_result", "set_state"].contains(&name) || crate::tools::TOOLS.iter().any(|tool| tool.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Source;
    use crate::message::{Block, BlockContent, ToolCall, Usage};
    use crate::providers::replay::Script;

    fn reply(blocks: Vec<BlockContent>, stop: StopReason) -> Reply {
        let usage = Usage { input_tokens: 3, ..Usage::default() };
        Reply { blocks: blocks.into_iter().map(Block::from).collect(), stop, usage, model: None, request_id: None }
    }

    fn call(tool: &str, input: &Value) -> BlockContent {
        let input = serde_json::value::to_raw_value(input).unwrap();
        BlockContent::Call(ToolCall {
            id: "toolu_1".to_owned(),
            tool: tool.to_owned(),
            input: input.into(),
            input_error: None,
        })
    }

    #[test]
    fn a_script_repeats_the_replies_without_local_paths() {
        let parent = vec![
            reply(
                vec![
                    BlockContent::Thinking("Hm.".to_owned()),
                    BlockContent::Text("I look.".to_owned()),
                    call("read_file", &json!({ "path": "/home/me/w/a" })),
                    call("todo", &json!({})),
                ],
                StopReason::ToolUse,
            ),
            reply(vec![BlockContent::Text("Cut".to_owned())], StopReason::MaxTokens),
        ];
        let recorded = |reply| RecordedReply { reply, kept_turns: None, answers: BTreeMap::new() };
        let mut parent: Vec<RecordedReply> = parent.into_iter().map(recorded).collect();
        parent[1].kept_turns = Some(2);
        let of = |id: &str| (id.to_owned(), vec![recorded(reply(vec![], StopReason::EndTurn))]);
        let replies = BTreeMap::from([("parent".to_owned(), parent), of("a-10"), of("a-9")]);
        let text = generate_script(&replies, "/home/me/w", false, |_, call| call.tool == "todo");
        let expected = "workspace: /workspace\nparent:\n- text: I look.\n  calls:\n  - tool: read_file\n    input:\n      path: \
                        /workspace/a\n  - tool: todo\n    mistaken: true\n- text: Cut\n  stop: max_tokens\n  kept_turns: 2\n\
                        subagents:\n  a-9:\n  - text: ''\n  a-10:\n  - text: ''\n";
        assert_eq!(text, expected);
        let read = Script::read(&Source::new("script.yaml", text)).unwrap();
        assert_eq!(read.unused(|_| 0).iter().map(|left| left.total).sum::<usize>(), 4);
        assert!(!generate_script(&replies, "/elsewhere", false, |_, _| false).contains("workspace:"));
        assert!(generate_script(&replies, "/elsewhere", true, |_, _| false).contains("usage:\n    input_tokens: 3\n"));
    }
}
