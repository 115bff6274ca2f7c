//! Says more about what the reader of YAML has found: it knows types, and not what a job's keys mean.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::job::{MAX_PARALLEL_SUBAGENTS, MAX_TOKENS, MAX_TURNS};
use crate::yaml::{Node, NodeKind};

use super::ranges::{range_help, range_message};

/// What is known about a value.
enum KeyHint {
    /// The key of a number with two bounds, and its greatest value.
    Bounded(&'static str, u32),
    /// The key of a limit from 1 up.
    Counted(&'static str),
    /// A type stands where a declaration belongs: the input's name, and the type.
    BareInputType(String, String),
}

/// Replaces what is said about some values by what their keys allow.
pub(super) fn refine_findings(root: &Node, findings: &mut [Diagnostic]) {
    if !findings.iter().any(|finding| matches!(finding.code, "wrong-type" | "out-of-range")) {
        return;
    }
    let source = root.place().source;
    let known = collect_hints(root);
    for finding in findings.iter_mut().filter(|finding| Arc::ptr_eq(&finding.span.source, &source)) {
        let span = (finding.span.range.start, finding.span.range.end);
        match (finding.code, known.get(&span)) {
            ("out-of-range", Some(KeyHint::Bounded(key, most))) => {
                finding.message = range_message(key, *most);
                finding.help = Some(range_help(*most));
            }
            ("out-of-range", Some(KeyHint::Counted(key))) => {
                finding.message = format!("`{key}` must be a whole number from 1 up");
                finding.help = Some("write a number from 1 up, or `none` for no limit".to_owned());
            }
            ("wrong-type", Some(KeyHint::BareInputType(name, kind))) => {
                finding.help = Some(format!("write `{name}: {{ type: {kind} }}`"));
            }
            _ => {}
        }
    }
}

fn collect_hints(root: &Node) -> HashMap<(usize, usize), KeyHint> {
    let mut known = HashMap::new();
    let mut put = |node: Option<Node>, what: KeyHint| {
        if let Some(Range { start, end }) = node.map(|node| node.place().range) {
            known.insert((start, end), what);
        }
    };
    let agents = root.get("subagents").into_iter().flat_map(|all| all.entries().collect::<Vec<_>>());
    let agents: Vec<Node> = root.get("parent").into_iter().chain(agents.map(|(_, agent)| agent)).collect();
    for agent in &agents {
        put(agent.get("max_turns"), KeyHint::Bounded("max_turns", MAX_TURNS));
    }
    let models = agents.iter().chain([root]).filter_map(|holder| holder.get("model")).collect::<Vec<_>>();
    for holder in agents.iter().chain(&models) {
        put(holder.get("max_tokens"), KeyHint::Bounded("max_tokens", MAX_TOKENS));
    }
    if let Some(limits) = root.get("limits") {
        put(limits.get("parallel_subagents"), KeyHint::Bounded("parallel_subagents", MAX_PARALLEL_SUBAGENTS));
        for key in ["tokens", "tool_calls", "subagents"] {
            put(limits.get(key), KeyHint::Counted(key));
        }
    }
    if let Some(inputs) = root.get("inputs") {
        for (name, input) in inputs.entries() {
            let bare = name.text().zip(input.as_str()).filter(|(_, kind)| TYPES.contains(kind));
            let bare = bare.map(|(name, kind)| KeyHint::BareInputType(name.to_owned(), kind.to_owned()));
            if let Some(bare) = bare.filter(|_| input.kind() != NodeKind::Invalid) {
                put(Some(input), bare);
            }
        }
    }
    known
}

const TYPES: &[&str] = &["string", "integer", "number", "boolean", "path", "list"];
