//! A case that is made of a real run: a script of what the models replied, and what is expected as it happened.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::WORKSPACE_MARK;
use crate::event::{PARENT, RunResult};
use crate::message::{Reply, Stop, ToolCall, View};
use crate::providers::replay::moved_value;
use crate::yaml;

/// A reply of a run.
#[derive(Debug, Clone)]
pub struct Spoken {
    /// What was replied.
    pub reply: Reply,
    /// How many turns it leaves as they are, where it sums up what went before.
    pub keeps_turns: Option<u32>,
}

/// The script of a run: texts, calls and how replies ended, the workspace's path replaced by [`WORKSPACE_MARK`]. What only
/// the provider understands (signed thinking, citations) isn't in it. `with_usage`: whether tokens are counted, which
/// makes limits bite as they did. `is_mistaken` says of an agent's call whether the tool or the subagent isn't there.
pub fn script(
    replies: &BTreeMap<String, Vec<Spoken>>,
    workspace: &str,
    with_usage: bool,
    is_mistaken: impl Fn(&str, &ToolCall) -> bool,
) -> String {
    let said = |agent: &str, replies: &[Spoken]| -> Value {
        replies.iter().map(|spoken| of_reply(spoken, with_usage, &|call| is_mistaken(agent, call))).collect()
    };
    let mut file = Map::new();
    let parent = replies.get(PARENT).map(Vec::as_slice).unwrap_or_default();
    file.insert("parent".to_owned(), said(PARENT, parent));
    let mut subagents: Vec<_> = replies.iter().filter(|(id, _)| *id != PARENT).collect();
    subagents.sort_by_key(|(id, _)| number(id));
    if !subagents.is_empty() {
        let subagents = subagents.into_iter().map(|(id, replies)| (id.clone(), said(id, replies)));
        file.insert("subagents".to_owned(), Value::Object(subagents.collect()));
    }
    let mut file = Value::Object(file);
    let before = file.clone();
    moved_value(&mut file, workspace, WORKSPACE_MARK);
    if file != before
        && let Value::Object(entries) = &mut file
    {
        entries.shift_insert(0, "workspace".to_owned(), json!(WORKSPACE_MARK));
    }
    yaml::written(&file)
}

/// An id as it is sorted: `explorer-10` after `explorer-9`.
fn number(id: &str) -> (String, u64) {
    match id.rsplit_once('-') {
        Some((name, digits)) => (name.to_owned(), digits.parse().unwrap_or(0)),
        None => (id.to_owned(), 0),
    }
}

fn of_reply(spoken: &Spoken, with_usage: bool, is_mistaken: &dyn Fn(&ToolCall) -> bool) -> Value {
    let mut said = Map::new();
    let reply = &spoken.reply;
    let text = reply.text();
    let calls: Vec<Value> = reply
        .blocks
        .iter()
        .filter_map(|block| match &block.view {
            View::Call(call) => {
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
        Stop::EndTurn | Stop::Other(_) => "end_turn",
        Stop::ToolUse => "tool_use",
        Stop::MaxTokens => "max_tokens",
        Stop::Refusal => "refusal",
        Stop::Pause => "pause",
        Stop::ContextFull => "context_full",
    };
    if stop != usual && !matches!(reply.stop, Stop::Other(_)) {
        said.insert("stop".to_owned(), json!(stop));
    }
    if let Some(kept) = spoken.keeps_turns {
        said.insert("keeps_turns".to_owned(), json!(kept));
    }
    if with_usage {
        said.insert("usage".to_owned(), json!(reply.usage));
    }
    Value::Object(said)
}

/// What became of a file of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was made or changed, and there is a snapshot of it.
    Snapshot,
    /// It was made or changed, and there is no snapshot of it.
    Exists,
    /// It is gone.
    Absent,
}

/// What a run is to be held against, drafted from how it went.
#[derive(Debug, Default)]
pub struct Drafted {
    /// Files that changed, by their paths.
    pub files: BTreeMap<String, Fate>,
    /// Whether the workspace is a git repository.
    pub git: bool,
}

/// `expect.yaml` of a run that ended so.
pub fn expect(
    result: &RunResult,
    replies: &BTreeMap<String, Vec<Spoken>>,
    drafted: &Drafted,
    workspace: &str,
) -> String {
    let mut file = Map::new();
    file.insert("outcome".to_owned(), json!(result.outcome));
    file.insert("max_turns".to_owned(), json!(result.turns.max(1)));
    if let Some(data) = &result.result {
        let mut data = data.clone();
        moved_value(&mut data, workspace, WORKSPACE_MARK);
        file.insert("result".to_owned(), json!({ "is": data }));
    }
    if !drafted.files.is_empty() {
        let word = |fate: &Fate| match fate {
            Fate::Snapshot => "snapshot",
            Fate::Exists => "exists",
            Fate::Absent => "absent",
        };
        let files = drafted.files.iter().map(|(path, fate)| (path.clone(), json!(word(fate))));
        file.insert("files".to_owned(), Value::Object(files.collect()));
    }
    let calls = replies.values().flatten().flat_map(|spoken| spoken.reply.calls());
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
    if drafted.git {
        file.insert("git".to_owned(), json!([{ "message": "Start" }]));
    }
    yaml::written(&Value::Object(file))
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

    fn reply(blocks: Vec<View>, stop: Stop) -> Reply {
        let usage = Usage { input_tokens: 3, ..Usage::default() };
        Reply { blocks: blocks.into_iter().map(Block::from).collect(), stop, usage, model: None, request_id: None }
    }

    fn call(tool: &str, input: &Value) -> View {
        let input = serde_json::value::to_raw_value(input).unwrap();
        View::Call(ToolCall { id: "toolu_1".to_owned(), tool: tool.to_owned(), input: input.into(), broken: None })
    }

    #[test]
    fn a_script_says_what_was_said_and_nothing_of_where() {
        let parent = vec![
            reply(
                vec![
                    View::Thinking("Hm.".to_owned()),
                    View::Text("I look.".to_owned()),
                    call("read_file", &json!({ "path": "/home/me/w/a" })),
                    call("todo", &json!({})),
                ],
                Stop::ToolUse,
            ),
            reply(vec![View::Text("Cut".to_owned())], Stop::MaxTokens),
        ];
        let spoken = |reply| Spoken { reply, keeps_turns: None };
        let mut parent: Vec<Spoken> = parent.into_iter().map(spoken).collect();
        parent[1].keeps_turns = Some(2);
        let of = |id: &str| (id.to_owned(), vec![spoken(reply(vec![], Stop::EndTurn))]);
        let replies = BTreeMap::from([("parent".to_owned(), parent), of("a-10"), of("a-9")]);
        let text = script(&replies, "/home/me/w", false, |_, call| call.tool == "todo");
        let expected = "workspace: /workspace\nparent:\n  - text: I look.\n    calls:\n      - { tool: read_file, input: { path: \
                        /workspace/a } }\n      - { tool: todo, mistaken: true }\n  - { text: Cut, stop: max_tokens, keeps_turns: 2 }\nsubagents:\n  a-9:\n    - { \
                        text: \"\" }\n  a-10:\n    - { text: \"\" }\n";
        assert_eq!(text, expected);
        let read = Script::read(&Source::new("script.yaml", text)).unwrap();
        assert_eq!(read.left(|_| 0).iter().map(|left| left.total).sum::<usize>(), 4);
        assert!(!script(&replies, "/elsewhere", false, |_, _| false).contains("workspace:"));
        assert!(script(&replies, "/elsewhere", true, |_, _| false).contains("usage: { input_tokens: 3,"));
    }
}
