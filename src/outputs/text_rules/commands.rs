//! Lines that programs read as commands: quick actions, and expressions of workflows.

use super::document::Document;
use super::lines::prefix;
use super::live::Live;
use super::rules::TextRules;
use super::violation::Finding;
use crate::outputs::Forge;

/// Commands that GitLab executes wherever they begin a line, except in some kinds of code.
const QUICK_ACTIONS: &[&str] = &[
    "add_child",
    "add_contacts",
    "add_email",
    "add_epic",
    "add_parent",
    "approve",
    "assign",
    "assign_reviewer",
    "award",
    "blocked_by",
    "blocks",
    "board_move",
    "cc",
    "checkin_reminder",
    "clear_health_status",
    "clear_parent",
    "clear_weight",
    "clone",
    "close",
    "confidential",
    "convert_to_ticket",
    "copy_metadata",
    "create_merge_request",
    "done",
    "draft",
    "due",
    "duplicate",
    "epic",
    "estimate",
    "estimate_time",
    "health_status",
    "invite_email",
    "iteration",
    "label",
    "labels",
    "link",
    "lock",
    "merge",
    "milestone",
    "move",
    "page",
    "parent_epic",
    "promote",
    "promote_to",
    "promote_to_incident",
    "publish",
    "react",
    "ready",
    "reassign",
    "reassign_reviewer",
    "rebase",
    "relabel",
    "relate",
    "remove_child",
    "remove_child_epic",
    "remove_contacts",
    "remove_due_date",
    "remove_email",
    "remove_epic",
    "remove_estimate",
    "remove_iteration",
    "remove_milestone",
    "remove_parent",
    "remove_parent_epic",
    "remove_reviewer",
    "remove_time_estimate",
    "remove_time_spent",
    "remove_zoom",
    "reopen",
    "request_review",
    "set_parent",
    "severity",
    "ship",
    "spend",
    "spend_time",
    "spent",
    "status",
    "submit_review",
    "subscribe",
    "tag",
    "target_branch",
    "timeline",
    "title",
    "todo",
    "type",
    "unapprove",
    "unassign",
    "unassign_reviewer",
    "unlabel",
    "unlink",
    "unlock",
    "unrelate",
    "unsubscribe",
    "weight",
    "wip",
    "zoom",
];

/// Commands of common review bots, which read comments without their Markdown.
const BOT_COMMANDS: &[&str] = &[
    "lgtm",
    "approve",
    "hold",
    "unhold",
    "retest",
    "ok-to-test",
    "override",
    "cherry-pick",
    "cherrypick",
    "backport",
    "automerge",
];

/// Finds a line that begins with a command.
pub(super) fn quick_action(document: &Document<'_>, rules: &TextRules<'_>) -> Option<Finding> {
    let is_gitlab = rules.own.as_ref().is_none_or(|own| own.forge == Forge::Gitlab);
    document.lines.iter().find_map(|line| {
        let text = &document.source[line.clone()];
        let in_code = !line.is_empty() && document.is_code(line.start + text.len() - text.trim_start().len());
        let mut begins = if in_code { text.len() - text.trim_start().len() } else { prefix(text).length };
        if !in_code {
            let task = ["[ ]", "[x]", "[X]"].iter().find_map(|task| text[begins..].strip_prefix(task));
            begins = task.map_or(begins, |rest| text.len() - rest.trim_start().len());
        }
        let command = text[begins..].strip_prefix('/')?;
        if !command.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
        let (name, rest) = command.split_at(command.find(|char| !is_name(char)).unwrap_or(command.len()));
        if in_code {
            let is_known = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
            let is_command = rest.is_empty() || rest.starts_with(char::is_whitespace);
            if !is_command || !(is_known(BOT_COMMANDS) || is_gitlab && is_known(QUICK_ACTIONS)) {
                return None;
            }
        }
        let hint = if in_code {
            ", also in code: begin the line with something else"
        } else {
            ": begin it with something else, or put the word in backticks"
        };
        let why = format!("a line that begins with `/{name}` can be a command{hint}");
        let at = line.start + begins;
        Some(Finding { rule: "quick-action", at, end: at + 1 + name.len(), why })
    })
}

/// Finds an expression that a workflow would evaluate.
pub(super) fn expression(live: &Live) -> Option<Finding> {
    let index = (0..live.len()).find(|index| live.has_word(*index, "${{"))?;
    let why = "a workflow that passes this text on would evaluate `${{`: put it in backticks".to_owned();
    Some(Finding { rule: "expression", at: live.at(index), end: live.at(index + 2) + 1, why })
}
