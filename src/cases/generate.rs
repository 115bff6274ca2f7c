//! A case that is made of a real run: a script of what the models replied, and what is expected as it happened.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::WORKSPACE_PLACEHOLDER;
use crate::event::{PARENT, RunResult};
use crate::message::{BlockContent, Reply, StopReason, ToolCall};
use crate::providers::replay::relocate_value;
use crate::yaml;

/// A reply of a run.
#[derive(Debug, Clone)]
pub struct RecordedReply {
    /// What was replied.
    pub reply: Reply,
    /// How many turns it leaves as they are, where it sums up what went before.
    pub kept_turns: Option<u32>,
}

/// The script of a run: texts, calls and how replies ended, the workspace's path replaced by [`WORKSPACE_MARK`]. What only
/// the provider understands (signed thinking, citations) isn't in it. `with_usage`: whether tokens are counted, which
/// makes limits bite as they did. `is_mistaken` says of an agent's call whether the tool or the subagent isn't there.
pub fn generate_script(
    replies: &BTreeMap<String, Vec<RecordedReply>>,
    workspace: &str,
    with_usage: bool,
    is_mistaken: impl Fn(&str, &ToolCall) -> bool,
) -> String {
    let said = |agent: &str, replies: &[RecordedReply]| -> Value {
        replies.iter().map(|spoken| script_reply(spoken, with_usage, &|call| is_mistaken(agent, call))).collect()
    };
    let mut file = Map::new();
    let parent = replies.get(PARENT).map(Vec::as_slice).unwrap_or_default();
    file.insert("parent".to_owned(), said(PARENT, parent));
    let mut subagents: Vec<_> = replies.iter().filter(|(id, _)| *id != PARENT).collect();
    subagents.sort_by_key(|(id, _)| agent_sort_key(id));
    if !subagents.is_empty() {
        let subagents = subagents.into_iter().map(|(id, replies)| (id.clone(), said(id, replies)));
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

/// An id as it is sorted: `explorer-10` after `explorer-9`.
fn agent_sort_key(id: &str) -> (String, u64) {
    match id.rsplit_once('-') {
        Some((name, digits)) => (name.to_owned(), digits.parse().unwrap_or(0)),
        None => (id.to_owned(), 0),
    }
}

fn script_reply(spoken: &RecordedReply, with_usage: bool, is_mistaken: &dyn Fn(&ToolCall) -> bool) -> Value {
    let mut said = Map::new();
    let reply = &spoken.reply;
    let text = reply.text();
    let calls: Vec<Value> = reply
        .blocks
        .iter()
        .filter_map(|block| match &block.content {
            BlockContent::Call(call) => {
                let input: Value = serde_json::from_str(call.input.get()).unwrap_or_default();
                let has_input = input.as_object().is_some_and(|input| !input.is_empty());
                let mut said = json!({ "tool": call.tool });
                if has_input {
                    said["input"] = input;
                }
                if is_mistaken(call) {
                    said["mistaken"] = json!(true);
                }
                Some(said)
            }
            _ => None,
        })
        .collect();
    if !text.is_empty() || calls.is_empty() {
        said.insert("text".to_owned(), json!(text));
    }
    let usual = if calls.is_empty() { "end_turn" } else { "tool_use" };
    if !calls.is_empty() {
        said.insert("calls".to_owned(), Value::Array(calls));
    }
    let stop = match &reply.stop {
        StopReason::EndTurn | StopReason::Other(_) => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Refusal => "refusal",
        StopReason::Pause => "pause",
        StopReason::ContextFull => "context_full",
    };
    if stop != usual && !matches!(reply.stop, StopReason::Other(_)) {
        said.insert("stop".to_owned(), json!(stop));
    }
    if let Some(kept) = spoken.kept_turns {
        said.insert("kept_turns".to_owned(), json!(kept));
    }
    if with_usage {
        said.insert("usage".to_owned(), json!(reply.usage));
    }
    Value::Object(said)
}

/// What became of a file of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOutcome {
    /// It was made or changed, and there is a snapshot of it.
    Snapshot,
    /// It was made or changed, and there is no snapshot of it.
    Exists,
    /// It is gone.
    Absent,
}

/// What a run is to be held against, drafted from how it went.
#[derive(Debug, Default)]
pub struct WorkspaceOutcome {
    /// Files that changed, by their paths.
    pub files: BTreeMap<String, FileOutcome>,
    /// Whether the workspace is a git repository.
    pub is_git_repository: bool,
}

/// `expect.yaml` of a run that ended so.
pub fn generate_expect(
    result: &RunResult,
    replies: &BTreeMap<String, Vec<RecordedReply>>,
    drafted: &WorkspaceOutcome,
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
    if !drafted.files.is_empty() {
        let word = |fate: &FileOutcome| match fate {
            FileOutcome::Snapshot => "snapshot",
            FileOutcome::Exists => "exists",
            FileOutcome::Absent => "absent",
        };
        let files = drafted.files.iter().map(|(path, fate)| (path.clone(), json!(word(fate))));
        file.insert("files".to_owned(), Value::Object(files.collect()));
    }
    let calls = replies.values().flatten().flat_map(|spoken| spoken.reply.tool_calls());
    let mut tools: Vec<&str> = calls.map(|call| call.tool.as_str()).filter(|tool| is_tool(tool)).collect();
    tools.sort_unstable();
    tools.dedup();
    if !tools.is_empty() {
        let tools = tools.into_iter().map(|tool| (tool.to_owned(), json!("called")));
        file.insert("tools".to_owned(), Value::Object(tools.collect()));
    }
    if !result.checks.is_empty() {
        let mut checks = Map::new();
        for check in &result.checks {
            checks.insert(check.name.clone(), json!(if check.passed { "passed" } else { "failed" }));
        }
        file.insert("checks".to_owned(), Value::Object(checks));
    }
    if drafted.is_git_repository {
        file.insert("git".to_owned(), json!([{ "message": "Start" }]));
    }
    yaml::to_yaml(&Value::Object(file))
}

fn is_tool(name: &str) -> bool {
    name == "submit_result" || crate::tools::TOOLS.iter().any(|tool| tool.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Source;
    use crate::message::{Block, ToolCall, Usage};
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
    fn a_script_says_what_was_said_and_nothing_of_where() {
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
        let spoken = |reply| RecordedReply { reply, kept_turns: None };
        let mut parent: Vec<RecordedReply> = parent.into_iter().map(spoken).collect();
        parent[1].kept_turns = Some(2);
        let of = |id: &str| (id.to_owned(), vec![spoken(reply(vec![], StopReason::EndTurn))]);
        let replies = BTreeMap::from([("parent".to_owned(), parent), of("a-10"), of("a-9")]);
        let text = generate_script(&replies, "/home/me/w", false, |_, call| call.tool == "todo");
        let expected = "workspace: /workspace\nparent:\n  - text: I look.\n    calls:\n      - { tool: read_file, input: { path: \
                        /workspace/a } }\n      - { tool: todo, mistaken: true }\n  - { text: Cut, stop: max_tokens, kept_turns: 2 }\nsubagents:\n  a-9:\n    - { \
                        text: \"\" }\n  a-10:\n    - { text: \"\" }\n";
        assert_eq!(text, expected);
        let read = Script::read(&Source::new("script.yaml", text)).unwrap();
        assert_eq!(read.unused(|_| 0).iter().map(|left| left.total).sum::<usize>(), 4);
        assert!(!generate_script(&replies, "/elsewhere", false, |_, _| false).contains("workspace:"));
        assert!(generate_script(&replies, "/elsewhere", true, |_, _| false).contains("usage: { input_tokens: 3,"));
    }
}
