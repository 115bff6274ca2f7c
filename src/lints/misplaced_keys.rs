//! Keys that are right, in the wrong mapping; and keys that there are only elsewhere.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Fix};
use crate::yaml::Node;

use super::blank_prompts::is_block;
use super::key_aliases::{fold_key, is_alias_of, keys_for_alias};

/// The mappings of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyLevel {
    Job,
    Parent,
    Subagent,
    Model,
    Limits,
    Input,
    /// A prompt that is a mapping: `{ file: PATH }`.
    PromptFile,
}

const JOB: &[&str] = &[
    "inputs",
    "subagents",
    "limits",
    "env",
    "network",
    "git",
    "protect",
    "allow_changes",
    "result",
    "compaction",
    "keep",
];
pub(super) const AGENT: &[&str] = &["system", "prompt", "tools", "max_turns", "max_tokens"];
/// Keys that no help speaks of.
const OTHERS: &[&str] = &["name", "description", "model", "parent", "checks", "repairs", "returns", "file", "schema"];
/// The options of a model, each with an example.
const MODEL: &[(&str, &str)] =
    &[("thinking", "low"), ("temperature", "0"), ("stop", "[END]"), ("max_tokens", "8000"), ("context", "200000")];
const LIMITS: &[&str] = &["cost_usd", "tokens", "wall_clock", "tool_calls", "parallel_subagents"];

/// Keys of others that nothing here stands for, folded, and what to do instead.
const UNSUPPORTED_KEYS: &[(&str, &str)] = &[
    ("topp", "there is no such setting: the provider's own holds; remove it"),
    ("topk", "there is no such setting: the provider's own holds; remove it"),
    ("frequencypenalty", "there is no such setting: the provider's own holds; remove it"),
    ("presencepenalty", "there is no such setting: the provider's own holds; remove it"),
    ("seed", "there is no such setting: the provider's own holds; remove it"),
    ("settings", "the model stands under `model`, what may be used under `limits`"),
    ("provider", "the provider is part of the model's name: `model: PROVIDER/NAME`"),
    ("apikey", "no key belongs into a job file: whoever starts the job sets it in the environment"),
    ("baseurl", "a job names no endpoint: whoever starts the job sets it in the environment"),
    ("endpoint", "a job names no endpoint: whoever starts the job sets it in the environment"),
    ("permissionmode", "nobody is asked for permission: an agent has exactly its `tools`"),
    ("permissions", "nobody is asked for permission: an agent has exactly its `tools`"),
    ("approvalpolicy", "nobody is asked for permission: an agent has exactly its `tools`"),
    ("disallowedtools", "an agent has exactly its `tools`: leave out what it may not use"),
    ("deniedtools", "an agent has exactly its `tools`: leave out what it may not use"),
    ("excludetools", "an agent has exactly its `tools`: leave out what it may not use"),
    ("sandbox", "a job can't change its sandbox: whoever starts it says `--sandbox`"),
    ("sandboxmode", "a job can't change its sandbox: whoever starts it says `--sandbox`"),
    ("extensions", "there are no tool servers: name built-in tools in the agents' `tools`"),
    ("mcpservers", "there are no tool servers: name built-in tools in the agents' `tools`"),
    ("mcp", "there are no tool servers: name built-in tools in the agents' `tools`"),
    ("required", "an input without a `default` is required; remove this key"),
    ("requirement", "an input without a `default` is required; remove this key"),
    ("optional", "an input with a `default` is optional; write one instead of this key"),
    ("workspace", "whoever starts the job says `--workspace`; without it, it is the current folder"),
    ("cwd", "whoever starts the job says `--workspace`; without it, it is the current folder"),
    ("version", "a job file has no version; remove it"),
    ("color", "a job has no look; remove it"),
];

/// Says of unknown keys where they belong, and leaves out what is missing only because it stands elsewhere.
pub(super) fn refine_findings(root: &Node, findings: &mut Vec<Diagnostic>) {
    if !findings.iter().any(|finding| finding.code == "unknown-key") {
        return;
    }
    let source = root.place().source;
    let keys = keys_by_place(root);
    let below_blocks = keys_after_empty_blocks(root);
    // The keys that stand elsewhere, with the places at which they are missed.
    let mut moved = Vec::new();
    // Those that stand in a text of their own agent.
    let mut too_deep = Vec::new();
    for finding in findings.iter_mut() {
        let span = (finding.span.range.start, finding.span.range.end);
        let is_ours = finding.code == "unknown-key" && Arc::ptr_eq(&finding.span.source, &source);
        let Some((level, name)) = keys.get(&span).filter(|_| is_ours) else { continue };
        if below_blocks.contains(&span) {
            finding.help =
                Some("if it is a line of the text above it, indent it deeper than that text's key".to_owned());
            finding.fix = None;
            continue;
        }
        let is_renamed = |fix: &Fix| fold_key(&fix.replacement) != fold_key(name);
        if is_key(name) && finding.fix.as_ref().is_some_and(is_renamed) {
            // Right in another mapping, and no misspelling of what resembles it in this one.
            finding.fix = None;
        } else if finding.fix.is_some() {
            continue;
        }
        // In this mapping, which may be a text instead, the reader of YAML knows no synonyms.
        let meant =
            keys_for_alias(name).find(|key| *level == KeyLevel::Model && MODEL.iter().any(|(option, _)| option == key));
        if let (Some(meant), Some(help)) = (meant, &mut finding.help) {
            *help = format!("did you mean `{meant}`? {help}");
            continue;
        }
        if let Some((key, home, help)) = correct_level(*level, name) {
            finding.help = Some(help);
            if *level == KeyLevel::PromptFile {
                too_deep.push((key, finding.span.range.clone()));
                continue;
            }
            moved.push((key, home));
            if home == KeyLevel::Parent {
                moved.push(("parent", KeyLevel::Job));
            }
        } else if let Some((_, help)) = UNSUPPORTED_KEYS.iter().find(|(other, _)| *other == fold_key(name)) {
            finding.help = Some((*help).to_owned());
        }
    }
    let head = |level| match level {
        KeyLevel::Job => Some(root.place_for_missing()),
        KeyLevel::Parent => root.get("parent").map(|parent| parent.place_for_missing()),
        _ => None,
    };
    let mut missed: Vec<_> = moved
        .into_iter()
        .filter_map(|(key, home)| Some((format!("required key `{key}` is missing"), head(home)?.range)))
        .collect();
    let agents = |level| -> Vec<Node> {
        match level {
            KeyLevel::Parent => root.get("parent").into_iter().collect(),
            KeyLevel::Subagent => {
                let all = root.get("subagents");
                all.iter().flat_map(|all| all.entries().map(|(_, one)| one).collect::<Vec<_>>()).collect()
            }
            _ => Vec::new(),
        }
    };
    // What stands too deep in a text is missing where it belongs, and `file` is missing in its place.
    for (key, place) in &too_deep {
        let is_around = |one: &Node| one.place().range.start <= place.start && place.end <= one.place().range.end;
        for one in agents(KeyLevel::Parent).into_iter().chain(agents(KeyLevel::Subagent)).filter(is_around) {
            missed.push((format!("required key `{key}` is missing"), one.place_for_missing().range));
            let texts = ["system", "prompt"].into_iter().filter_map(|name| one.get(name));
            for text in texts.filter(is_around) {
                missed.push(("required key `file` is missing".to_owned(), text.place_for_missing().range));
            }
        }
    }
    findings.retain(|finding| {
        finding.code != "missing-key"
            || !missed.iter().any(|(message, span)| finding.message == *message && finding.span.range == *span)
    });
}

/// Whether a job has such a key somewhere.
fn is_key(name: &str) -> bool {
    let known = JOB.iter().chain(AGENT).chain(LIMITS).chain(OTHERS).copied();
    known.chain(MODEL.iter().map(|(key, _)| *key)).any(|key| fold_key(key) == fold_key(name))
}

/// The key that is meant, the mapping that it belongs to, and how to say so.
fn correct_level(level: KeyLevel, name: &str) -> Option<(&'static str, KeyLevel, String)> {
    let known = JOB.iter().chain(AGENT).chain(LIMITS).chain(&["model", "parent"]).copied();
    let known = known.chain(MODEL.iter().map(|(key, _)| *key));
    let folded = fold_key(name);
    // No key of ours is folded longer than it is written.
    let itself: Vec<&str> = known.filter(|key| key.len() >= folded.len() && fold_key(key) == folded).collect();
    let mut meant = itself.into_iter().chain(keys_for_alias(name));
    meant.find_map(|key| {
        let is = |keys: &[&str]| keys.contains(&key);
        let own = fold_key(key) == fold_key(name);
        let called = if own { format!("`{key}`") } else { format!("here it is `{key}`, which") };
        let option = MODEL.iter().find(|(option, _)| *option == key).map(|(_, example)| {
            let is_above = matches!(level, KeyLevel::Parent | KeyLevel::Limits);
            let whose = if is_above { ", which stands at the top level" } else { "" };
            format!("is an option of the model{whose}: `model: {{ name: PROVIDER/NAME, {key}: {example} }}`")
        });
        let (home, rest) = match level {
            KeyLevel::Job if is(AGENT) => (KeyLevel::Parent, "belongs under `parent`"),
            KeyLevel::Job | KeyLevel::Parent | KeyLevel::Subagent if is(LIMITS) => {
                (KeyLevel::Limits, "belongs under `limits`, and holds for the whole run")
            }
            KeyLevel::Limits if is(&["max_turns", "max_tokens"]) => {
                (KeyLevel::Subagent, "belongs to each agent: under `parent`, or under a subagent")
            }
            KeyLevel::Job | KeyLevel::Parent | KeyLevel::Subagent | KeyLevel::Limits if option.is_some() => {
                (KeyLevel::Model, option.as_deref().unwrap_or_default())
            }
            KeyLevel::Limits if is(&["parent"]) => {
                (KeyLevel::Job, "stands one level too deep: it belongs at the top level")
            }
            KeyLevel::Parent if is(&["model"]) => {
                (KeyLevel::Job, "belongs at the top level: the parent uses the job's model")
            }
            KeyLevel::Subagent if is(&["prompt"]) => {
                (KeyLevel::Subagent, "comes with each call of `task`; what holds for all of them belongs into `system`")
            }
            KeyLevel::PromptFile if is(AGENT) => (
                KeyLevel::Parent,
                "stands one level too deep: indent it as the key above it that this mapping belongs to",
            ),
            KeyLevel::Model if is(AGENT) => {
                (KeyLevel::Subagent, "belongs to each agent: under `parent`, or under a subagent")
            }
            KeyLevel::Model if is(LIMITS) => (KeyLevel::Limits, "belongs under `limits`, and holds for the whole run"),
            KeyLevel::Parent | KeyLevel::Subagent | KeyLevel::Limits if is(JOB) => {
                (KeyLevel::Job, "belongs at the top level")
            }
            _ => return None,
        };
        Some((key, home, format!("{called} {rest}")))
    })
}

/// Every key, by its place.
fn keys_by_place(root: &Node) -> HashMap<(usize, usize), (KeyLevel, String)> {
    let mut keys = HashMap::new();
    let mut put = |level: KeyLevel, mapping: &Node| {
        for (key, _) in mapping.entries() {
            let span = key.place().range;
            keys.insert((span.start, span.end), (level, key.text().unwrap_or_default().to_owned()));
        }
    };
    put(KeyLevel::Job, root);
    for (name, level) in [("parent", KeyLevel::Parent), ("limits", KeyLevel::Limits), ("model", KeyLevel::Model)] {
        value_of_key(root, name).iter().for_each(|mapping| put(level, mapping));
    }
    for (name, level) in [("subagents", KeyLevel::Subagent), ("inputs", KeyLevel::Input)] {
        value_of_key(root, name).iter().flat_map(|all| all.entries().collect::<Vec<_>>()).for_each(|(_, one)| {
            put(level, &one);
            value_of_key(&one, "model").iter().for_each(|model| put(KeyLevel::Model, model));
            value_of_key(&one, "system").iter().for_each(|text| put(KeyLevel::PromptFile, text));
        });
    }
    for name in ["system", "prompt"] {
        let text = value_of_key(root, "parent").and_then(|parent| parent.get(name));
        text.iter().for_each(|text| put(KeyLevel::PromptFile, text));
    }
    keys
}

/// The keys of agents that follow a block without text.
fn keys_after_empty_blocks(root: &Node) -> HashSet<(usize, usize)> {
    let subagents = root.get("subagents");
    let subagents = subagents.iter().flat_map(|all| all.entries().map(|(_, one)| one).collect::<Vec<_>>());
    let mut found = HashSet::new();
    for agent in root.get("parent").into_iter().chain(subagents) {
        let entries: Vec<(Node, Node)> = agent.entries().collect();
        for pair in entries.windows(2) {
            let [(_, text), (key, _)] = pair else { continue };
            if is_block(text) && text.text().is_some_and(|text| text.trim().is_empty()) {
                found.insert((key.place().range.start, key.place().range.end));
            }
        }
    }
    found
}

/// The value of a key, or of the first that it was taken for.
fn value_of_key(root: &Node, name: &str) -> Option<Node> {
    let taken = || root.entries().find(|(key, _)| key.text().is_some_and(|key| is_alias_of(key, name)));
    root.get(name).or_else(|| taken().map(|(_, value)| value))
}
