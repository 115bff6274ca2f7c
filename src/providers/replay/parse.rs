//! Parses a script's YAML file.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Script;
use super::script::{AgentReplies, ScriptedAnswers};
use crate::diagnostic::{Diagnostic, Severity, Source, SourceSpan};
use crate::job::SERVER_SEPARATOR;
use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall, Usage};
use crate::tools::ToolDefinition;
use crate::yaml::{self, Node, NodeKind, Spanned};

const PARENT: &str = "parent";

/// The replies of a run's agents, written in advance.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "legwork script")]
pub struct ScriptFile {
    /// The parent's replies, in order.
    parent: Spanned<Vec<Spanned<ScriptedReply>>>,
    /// The subagents' replies, by their ids: a subagent's name and its number in the order of the calls, such as
    /// `explorer-1`.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {
        "title": "id", "pattern": "^(?!parent$)", "patternErrorMessage": "the parent's replies belong in `parent`",
    }))]
    subagents: IndexMap<Spanned<String>, Spanned<Vec<Spanned<ScriptedReply>>>>,
    /// The absolute path that stands for the workspace in calls, wherever the job runs. Default: none.
    #[serde(default)]
    #[schemars(extend("pattern" = "^/[^/]", "patternErrorMessage" = "write an absolute path"))]
    workspace: Option<Spanned<String>>,
    /// Tool servers of the job that aren't started: each call of their tools has its `answer` or `error` here.
    #[serde(default)]
    mcp: Vec<Spanned<String>>,
}

/// One reply.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "reply", extend("minProperties" = 1))]
struct ScriptedReply {
    /// What the model thinks before it answers.
    #[serde(default)]
    thinking: Option<String>,
    /// What it says.
    #[serde(default)]
    text: Option<String>,
    /// The tools that it calls; they are really executed.
    #[serde(default)]
    calls: Option<Vec<ScriptedCall>>,
    /// Why the reply ends. Default: `tool_use` with calls, `end_turn` without.
    #[serde(default)]
    stop: Option<ScriptedStop>,
    /// The token usage to report. Default: none.
    #[serde(default)]
    usage: Option<Usage>,
    /// Marks a compaction summary: how many of the last turns are kept. Default: not a summary, unless one is requested.
    #[serde(default)]
    #[schemars(range(min = 1))]
    kept_turns: Option<Spanned<u32>>,
}

/// One call of a tool.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "call")]
struct ScriptedCall {
    /// The tool's name.
    tool: Spanned<String>,
    /// The tool's input.
    #[serde(default)]
    #[schemars(extend("type" = ["object", "null"]))]
    input: Option<Node>,
    /// Whether this is a mistake of the model on purpose: it calls a tool or a subagent that doesn't exist.
    #[serde(default)]
    mistaken: bool,
    /// What the tool answers, if its server is listed under `mcp`.
    #[serde(default)]
    answer: Option<Spanned<String>>,
    /// The error with which it answers instead.
    #[serde(default)]
    error: Option<Spanned<String>>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ScriptedStop {
    /// The reply is finished.
    EndTurn,
    /// The model waits for the results of its calls.
    ToolUse,
    /// The reply was truncated at `max_tokens`.
    MaxTokens,
    /// The model refuses.
    Refusal,
    /// The provider paused the reply.
    Pause,
    /// The conversation exceeds the model's context window.
    ContextFull,
}

/// A parsed script.
#[derive(Debug)]
pub struct ParsedScript {
    /// The script, unless it has errors.
    pub script: Option<Script>,
    /// The ids of its subagents.
    pub ids: Vec<Spanned<String>>,
    /// Its calls, except for mistakes on purpose.
    pub calls: Vec<CallSite>,
    /// The tool servers that it lists.
    pub servers: Vec<Spanned<String>>,
    /// All findings, sorted by location.
    pub findings: Vec<Diagnostic>,
}

/// A call in a script.
#[derive(Debug)]
pub struct CallSite {
    /// The agent that calls: `parent`, or a subagent's id.
    pub agent: String,
    /// The tool's name.
    pub tool: Spanned<String>,
    /// The subagent in its input (`agent`), if that is a string.
    pub subagent: Option<Node>,
}

impl Script {
    /// Parses a script. Calls get the ids `call-1`, `call-2`, ... within an agent.
    ///
    /// # Errors
    /// All findings.
    pub fn read(source: &Arc<Source>) -> Result<Self, Vec<Diagnostic>> {
        let read = Self::parse(source);
        read.script.ok_or(read.findings)
    }

    /// Parses a script as [`Script::read`] does, with details for lints.
    pub fn parse(source: &Arc<Source>) -> ParsedScript {
        let decoded = yaml::read::<ScriptFile>(source);
        let mut findings = decoded.findings;
        let mut agents = BTreeMap::new();
        let (mut ids, mut servers) = (Vec::new(), Vec::new());
        let mut converter = Converter::default();
        let mut workspace = None;
        if let Some(file) = decoded.value {
            if let Some(path) = file.workspace.filter(|path| !path.node.is_placeholder()) {
                let folder = path.value.trim_end_matches('/');
                if !folder.starts_with('/') {
                    let message = format!("`{}` isn't the absolute path of a folder", path.value);
                    let help = "write the path that stands for the workspace in calls, such as `/workspace`";
                    findings.push(Diagnostic::error("invalid-value", path.place(), message).help(help));
                }
                workspace = Some(folder.to_owned());
            }
            servers = file.mcp;
            let names = servers.iter().filter(|name| !name.node.is_placeholder());
            converter.servers = names.map(|name| (name.value.clone(), BTreeMap::new())).collect();
            agents.insert(PARENT.to_owned(), converter.replies(PARENT, file.parent));
            for (id, said) in file.subagents {
                if id.value == PARENT {
                    let finding =
                        Diagnostic::error("invalid-value", id.place(), "a subagent can't have the id `parent`");
                    findings.push(finding.help("move the parent's replies to the key `parent`"));
                    continue;
                }
                agents.insert(id.value.clone(), converter.replies(&id.value, said));
                ids.push(id);
            }
        }
        let Converter { servers: tools, answers, calls, findings: more } = converter;
        findings.extend(more);
        findings.sort_by_key(|finding| finding.span.range.start);
        let is_wrong = findings.iter().any(|finding| finding.severity == Severity::Error);
        let name = source.name.clone();
        let script = Self { name, is_recorded: false, agents, workspace, servers: tools, answers };
        ParsedScript { script: (!is_wrong).then_some(script), ids, calls, servers, findings }
    }
}

/// Converts the replies of agents, and collects what their calls need.
#[derive(Default)]
struct Converter {
    /// The listed tool servers with their tools.
    servers: BTreeMap<String, BTreeMap<String, ToolDefinition>>,
    answers: ScriptedAnswers,
    calls: Vec<CallSite>,
    findings: Vec<Diagnostic>,
}

impl Converter {
    fn replies(&mut self, agent: &str, all: Spanned<Vec<Spanned<ScriptedReply>>>) -> AgentReplies {
        let mut calls = 0;
        let mut list = AgentReplies {
            replies: Vec::with_capacity(all.value.len()),
            place: display_place(&all.place()),
            summaries: BTreeMap::new(),
        };
        for said in all.value {
            let place = said.place();
            let shown = display_place(&place);
            let ScriptedReply { thinking, text, calls: called, stop, usage, kept_turns } = said.value;
            if let Some(kept) = kept_turns {
                if kept.value == 0 && !kept.node.is_placeholder() {
                    let finding = Diagnostic::error("out-of-range", kept.place(), "a summary keeps at least 1 turn");
                    self.findings.push(finding);
                }
                list.summaries.insert(list.replies.len(), kept.value);
            }
            if !said.node.is_placeholder() && said.node.entries().next().is_none() {
                let finding = Diagnostic::error("empty-reply", place, "this reply is empty");
                self.findings.push(finding.help("add `text` or `calls`; for an empty reply, write `text: \"\"`"));
            }
            let mut blocks: Vec<Block> = Vec::new();
            blocks.extend(thinking.map(|text| BlockContent::Thinking(text).into()));
            blocks.extend(text.filter(|text| !text.is_empty()).map(|text| BlockContent::Text(text).into()));
            let mut stop = stop.map(StopReason::from);
            for ScriptedCall { tool, input, mistaken, answer, error } in called.into_iter().flatten() {
                calls += 1;
                if !mistaken {
                    let named = input.as_ref().filter(|input| input.kind() == NodeKind::Mapping);
                    let named = ["agent", "subagent_type"].iter().find_map(|key| named?.get(key));
                    let subagent = named.filter(|name| name.as_str().is_some());
                    self.calls.push(CallSite { agent: agent.to_owned(), tool: tool.clone(), subagent });
                }
                if !mistaken {
                    self.answer(agent, &format!("call-{calls}"), &tool, (answer, error));
                }
                let tool = tool.value;
                let input = match input {
                    Some(node) if node.kind() != NodeKind::Mapping && !node.is_null() => {
                        let message =
                            format!("expected the input of a tool, which is a mapping, found {}", node.describe());
                        let finding = Diagnostic::error("wrong-type", node.place(), message);
                        self.findings.push(finding.help("write `input: { NAME: VALUE }`"));
                        continue;
                    }
                    Some(node) if !node.is_null() => node.to_json().to_string(),
                    _ => "{}".to_owned(),
                };
                let Ok(input) = RawValue::from_string(input) else { continue };
                let call = ToolCall { id: format!("call-{calls}"), tool, input: Arc::from(input), input_error: None };
                blocks.push(BlockContent::Call(call).into());
                stop = stop.or(Some(StopReason::ToolUse));
            }
            let stop = stop.unwrap_or(StopReason::EndTurn);
            let reply = Reply { blocks, stop, usage: usage.unwrap_or_default(), model: None, request_id: None };
            list.replies.push((reply, shown));
        }
        list
    }

    /// Takes the answer of a server's tool, which is there if the server is listed, and not otherwise.
    fn answer(
        &mut self,
        agent: &str,
        call_id: &str,
        tool: &Spanned<String>,
        (answer, error): (Option<Spanned<String>>, Option<Spanned<String>>),
    ) {
        let tools = tool.value.split_once(SERVER_SEPARATOR);
        let tools = tools.and_then(|(server, name)| Some((self.servers.get_mut(server)?, name)));
        let finding = match (tools, answer, error) {
            (None, None, None) => return,
            (None, Some(extra), _) | (None, None, Some(extra)) => {
                let message = "only calls of servers that are listed under `mcp` have an answer";
                Diagnostic::error("invalid-value", extra.place(), message)
                    .help("list the server: `mcp: [SERVER]`; or remove the answer, and the tool really runs")
            }
            (Some(_), Some(_), Some(error)) => {
                Diagnostic::error("invalid-value", error.place(), "a call has either `answer` or `error`")
                    .help("remove one of the two")
            }
            (Some(_), None, None) => {
                let message = format!("the call of `{}` has no `answer`", tool.value);
                Diagnostic::error("missing-key", tool.place(), message)
                    .help("add `answer: TEXT` or `error: TEXT`: its server is listed under `mcp`, so it doesn't run")
            }
            (Some((tools, name)), Some(text), None) => {
                tools.entry(name.to_owned()).or_insert_with(ToolDefinition::unknown);
                self.answers.insert((agent.to_owned(), call_id.to_owned()), Ok(text.value));
                return;
            }
            (Some((tools, name)), None, Some(text)) => {
                tools.entry(name.to_owned()).or_insert_with(ToolDefinition::unknown);
                self.answers.insert((agent.to_owned(), call_id.to_owned()), Err(text.value));
                return;
            }
        };
        self.findings.push(finding);
    }
}

fn display_place(place: &SourceSpan) -> String {
    let (line, column) = place.start();
    format!("{}:{line}:{column}", place.source.name)
}

impl From<ScriptedStop> for StopReason {
    fn from(ended: ScriptedStop) -> Self {
        match ended {
            ScriptedStop::EndTurn => Self::EndTurn,
            ScriptedStop::ToolUse => Self::ToolUse,
            ScriptedStop::MaxTokens => Self::MaxTokens,
            ScriptedStop::Refusal => Self::Refusal,
            ScriptedStop::Pause => Self::Pause,
            ScriptedStop::ContextFull => Self::ContextFull,
        }
    }
}
