//! A script out of its YAML file.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Script;
use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::message::{Block, Reply, Stop, ToolCall, Usage, View};
use crate::yaml::{self, Kind, Node, Spanned};

const PARENT: &str = "parent";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    parent: Vec<Spanned<Said>>,
    #[serde(default)]
    subagents: IndexMap<Spanned<String>, Vec<Spanned<Said>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    calls: Option<Vec<Called>>,
    #[serde(default)]
    stop: Option<Ended>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Called {
    tool: String,
    #[serde(default)]
    input: Option<Node>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Ended {
    EndTurn,
    ToolUse,
    MaxTokens,
    Refusal,
    Pause,
    ContextFull,
}

impl Script {
    /// Reads a script's YAML: `parent` and `subagents` by id, each a list of replies with `text`, `calls` (`tool` and
    /// `input`), and where wanted `thinking`, `stop` and `usage`. Calls get the ids `call-1`, `call-2`, ... within an agent.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(source: &Arc<Source>) -> Result<Self, Vec<Diagnostic>> {
        let decoded = yaml::read::<File>(source);
        let mut findings = decoded.findings;
        let mut agents = BTreeMap::new();
        if let Some(file) = decoded.value {
            agents.insert(PARENT.to_owned(), replies(file.parent, &mut findings));
            for (id, said) in file.subagents {
                if id.value == PARENT {
                    let finding = Diagnostic::error("invalid-value", id.place(), "no subagent has the id `parent`");
                    findings.push(finding.help("the parent's replies stand in `parent`, beside `subagents`"));
                    continue;
                }
                agents.insert(id.value.clone(), replies(said, &mut findings));
            }
        }
        if findings.iter().any(|finding| finding.severity == Severity::Error) {
            findings.sort_by_key(|finding| finding.place.span.start);
            return Err(findings);
        }
        Ok(Self::new(source.name.clone(), false, agents))
    }
}

fn replies(all: Vec<Spanned<Said>>, findings: &mut Vec<Diagnostic>) -> Vec<Reply> {
    let mut calls = 0;
    let mut replies = Vec::with_capacity(all.len());
    for said in all {
        let place = said.place();
        let Said { thinking, text, calls: called, stop, usage } = said.value;
        if !said.node.is_made_up() && said.node.entries().next().is_none() {
            let finding = Diagnostic::error("empty-reply", place, "a reply that says nothing");
            findings.push(finding.help("give it `text` or `calls`; `text: \"\"` is an empty one"));
        }
        let mut blocks: Vec<Block> = Vec::new();
        blocks.extend(thinking.map(|text| View::Thinking(text).into()));
        blocks.extend(text.filter(|text| !text.is_empty()).map(|text| View::Text(text).into()));
        let mut stop = stop.map(Stop::from);
        for Called { tool, input } in called.into_iter().flatten() {
            calls += 1;
            let input = match input {
                Some(node) if node.kind() != Kind::Mapping && !node.is_null() => {
                    let message =
                        format!("expected the input of a tool, which is a mapping, found {}", node.describe());
                    let finding = Diagnostic::error("wrong-type", node.place(), message);
                    findings.push(finding.help("write `input: { NAME: VALUE }`"));
                    continue;
                }
                Some(node) if !node.is_null() => node.to_json().to_string(),
                _ => "{}".to_owned(),
            };
            let Ok(input) = RawValue::from_string(input) else { continue };
            let call = ToolCall { id: format!("call-{calls}"), tool, input: Arc::from(input), broken: None };
            blocks.push(View::Call(call).into());
            stop = stop.or(Some(Stop::ToolUse));
        }
        let stop = stop.unwrap_or(Stop::EndTurn);
        replies.push(Reply { blocks, stop, usage: usage.unwrap_or_default(), model: None, request_id: None });
    }
    replies
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::EndTurn => Self::EndTurn,
            Ended::ToolUse => Self::ToolUse,
            Ended::MaxTokens => Self::MaxTokens,
            Ended::Refusal => Self::Refusal,
            Ended::Pause => Self::Pause,
            Ended::ContextFull => Self::ContextFull,
        }
    }
}
