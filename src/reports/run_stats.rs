//! Statistics of runs as text, the same in all formats.

use indexmap::IndexMap;

use super::display::serialized_name;
use crate::conversation::AgentConversation;
use crate::event::{
    Change, CheckResult, ContextCompacted, CutOffRequests, ResultsTruncated, RunResult, StepResult, Usage,
    WorkspaceChanged,
};
use crate::text::sanitize;
use crate::text::{format_size, pluralize};

/// The most changed files that formats for people list.
pub const MAX_LISTED_FILES: usize = 100;

/// The statistics of a run, as pairs of a name and a value.
pub fn run_stats(result: &RunResult) -> Vec<(&'static str, String)> {
    let tool_calls = match subagent_tool_calls(result) {
        0 => result.tool_calls.to_string(),
        by_subagents => format!("{}, and {by_subagents} by subagents", result.tool_calls),
    };
    let mut stats = vec![
        ("run", result.run_id.clone()),
        ("model", answering_models(&result.model, result.answered_by.as_deref())),
        ("turns", result.turns.to_string()),
        ("tool calls", tool_calls),
        ("tokens", usage(&result.usage)),
        ("cost", with_cut_off(estimated_cost(result.cost_usd), &result.cut_off_requests)),
        ("time", duration(result.duration_ms)),
        ("sandbox", result.sandbox.clone()),
    ];
    let ids: Vec<&str> = result.subagents.iter().map(|subagent| subagent.id.as_str()).collect();
    stats.extend((!ids.is_empty()).then(|| ("subagents", ids.join(", "))));
    let steps: Vec<String> = result.before.iter().map(step_verdict).collect();
    stats.extend((!steps.is_empty()).then(|| ("steps before", steps.join(", "))));
    stats.extend(checks(result).map(|checks| ("checks", checks)));
    stats.extend(change_totals(result).map(|changes| ("files", changes)));
    stats
}

/// An agent's model, and the fallback that answered in the end.
fn answering_models(model: &str, answered_by: Option<&str>) -> String {
    answered_by.map_or_else(|| model.to_owned(), |fallback| format!("{model}, then {fallback} (fallback)"))
}

/// The model of an agent, and the fallback that answered in the end.
pub fn agent_models(agent: &AgentConversation) -> String {
    answering_models(&agent.model, agent.finished.as_ref().and_then(|end| end.answered_by.as_deref()))
}

fn step_verdict(step: &StepResult) -> String {
    format!("{}: {}", step.name, if step.passed { "done" } else { "failed" })
}

/// The verdict of each check's last attempt, such as `tests pass: passed, lint: failed, exit code 1`, and the number of
/// attempts.
fn checks(result: &RunResult) -> Option<String> {
    let last = last_checks(result);
    let attempts = last.iter().map(|check| check.attempt).max().filter(|attempts| *attempts > 1);
    let verdict = |check: &&CheckResult| format!("{}: {}", check.name, check_verdict(check.passed, check.exit_code));
    let verdicts = last.iter().map(verdict).collect::<Vec<_>>().join(", ");
    let attempts = attempts.map(|attempts| format!(" (in {attempts} attempts)")).unwrap_or_default();
    (!last.is_empty()).then(|| format!("{verdicts}{attempts}"))
}

/// The last attempt of each check, in the order of the job.
pub fn last_checks(result: &RunResult) -> Vec<&CheckResult> {
    let by_name: IndexMap<&str, &CheckResult> =
        result.checks.iter().map(|check| (check.name.as_str(), check)).collect();
    by_name.into_values().collect()
}

/// The verdict of a check: `passed`, or `failed, exit code 1`.
pub fn check_verdict(passed: bool, exit_code: Option<i32>) -> String {
    match exit_code {
        _ if passed => "passed".to_owned(),
        Some(code) => format!("failed, exit code {code}"),
        None => "failed, no exit code".to_owned(),
    }
}

/// A run in one line: `4 turns, 15 tool calls, 2 subagents, 12.3k tokens in, 850 out, about $0.0123 (estimate), 20 s`.
/// Includes the tool calls of subagents, but not their turns. Leaves out tokens and cost if no model was used.
pub fn summary_line(result: &RunResult) -> String {
    let mut parts = vec![pluralize(u64::from(result.turns), "turn")];
    parts.push(pluralize(result.tool_calls.saturating_add(subagent_tool_calls(result)), "tool call"));
    if !result.subagents.is_empty() {
        parts.push(pluralize(result.subagents.len() as u64, "subagent"));
    }
    let checks = last_checks(result);
    let passed = checks.iter().filter(|check| check.passed).count();
    match checks.len() {
        0 => {}
        all if all == passed => parts.push(format!("{} passed", pluralize(all as u64, "check"))),
        all => parts.push(format!("{passed} of {} passed", pluralize(all as u64, "check"))),
    }
    if result.usage.total() > 0 {
        parts.push(usage(&result.usage));
        parts.push(result.cost_usd.map_or("cost unknown".to_owned(), |usd| estimated_cost(Some(usd))));
    }
    parts.extend(cut_off_requests(&result.cut_off_requests));
    parts.extend(change_totals(result));
    parts.push(duration(result.duration_ms));
    parts.join(", ")
}

/// `3 files changed, +12 -4`; `None` if nothing changed or changes weren't tracked. Lines are counted in the text files that
/// the record lists: `5200 files changed, +5000 -0 in the first 5000`.
pub fn change_totals(result: &RunResult) -> Option<String> {
    let changes = result.changes.as_ref().filter(|changes| !changes.is_empty())?;
    let sum = |lines: fn(&Change) -> Option<u64>| changes.iter().filter_map(lines).fold(0, u64::saturating_add);
    let (added, removed) = (sum(|change| change.lines_added), sum(|change| change.lines_removed));
    let listed = changes.len() as u64;
    let all = result.changed_files.unwrap_or(listed).max(listed);
    let part = if all > listed { format!(" in the first {listed}") } else { String::new() };
    Some(format!("{} changed, +{added} -{removed}{part}", pluralize(all, "file")))
}

/// How much changed in a file: `+12 -4`, or `binary file, 12 kB`. `None` if that isn't known.
pub fn change_size(change: &Change, minus: &str) -> Option<String> {
    match (change.lines_added.zip(change.lines_removed), change.binary) {
        (Some((added, removed)), _) => Some(format!("+{added} {minus}{removed}")),
        (None, Some(size)) => Some(format!("binary file, {}", format_size(size))),
        (None, None) => None,
    }
}

/// The changed files, at most `max` of them, one per line: `modified  +1 -1  src/a.rs`.
pub fn changed_file_lines(changed: &WorkspaceChanged, max: usize) -> String {
    let mut text = String::new();
    for change in changed.changes.iter().take(max) {
        let word = serialized_name(&change.change);
        let lines = change_size(change, "-").unwrap_or_else(|| "-".to_owned());
        text += &format!("{word:<8}  {lines:<9}  {}\n", sanitize::line(&change.path));
    }
    let listed = changed.changes.len();
    if listed > max {
        let all = changed.total.map_or(listed, |total| usize::try_from(total).unwrap_or(usize::MAX).max(listed));
        let hint = match all > listed {
            true => format!("; result.json lists the first {listed}"),
            false => "; see result.json".to_owned(),
        };
        text += &format!("and {} more{hint}\n", all - max);
    }
    if let Some(gap) = &changed.incomplete {
        text += &format!("({})\n", sanitize::line(gap));
    }
    text
}

fn subagent_tool_calls(result: &RunResult) -> u64 {
    result.subagents.iter().map(|subagent| subagent.tool_calls).fold(0, u64::saturating_add)
}

/// The statistics of one agent: `2 turns, 3 tool calls, 12.3k tokens in, 850 out, 6.0 s`.
pub fn agent_summary(turns: u32, tool_calls: u64, usage: &Usage, duration_ms: u64) -> String {
    let mut parts = vec![pluralize(u64::from(turns), "turn"), pluralize(tool_calls, "tool call")];
    if usage.total() > 0 {
        parts.push(self::usage(usage));
    }
    parts.push(duration(duration_ms));
    parts.join(", ")
}

/// `12.3k tokens in, 850 out, 9.1k cached`, or `none`.
pub fn usage(usage: &Usage) -> String {
    if usage.total() == 0 {
        return "none".to_owned();
    }
    let mut text = format!("{} tokens in, {} out", tokens(usage.prompt()), tokens(usage.output_tokens));
    if usage.cache_read_tokens > 0 {
        text.push_str(&format!(", {} cached", tokens(usage.cache_read_tokens)));
    }
    text
}

/// `12 results truncated, from about 180.0k to 60.0k tokens`.
pub fn truncation_summary(event: &ResultsTruncated) -> String {
    if event.refused {
        let count = pluralize(event.call_ids.len() as u64, "result");
        return format!("images of {count} removed, because the provider refused the request with them");
    }
    let results = pluralize(event.call_ids.len() as u64, "result");
    format!("{results} truncated, {}", token_reduction(event.tokens_before, event.tokens_after))
}

/// `once`, `3 times`.
pub fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// `conversation summarized except for the last 2 turns, from about 180.0k to 20.0k tokens`.
pub fn compaction_summary(event: &ContextCompacted) -> String {
    let kept = match event.kept_turns {
        1 => "turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    format!(
        "conversation summarized except for the last {kept}, {}",
        token_reduction(event.tokens_before, event.tokens_after)
    )
}

fn token_reduction(before: u64, after: u64) -> String {
    format!("from about {} to {} tokens", tokens(before), tokens(after))
}

/// `850`, `12.3k`, `4.5M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..999_950 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// A cost that is an estimate, since only the provider knows the bill: `about $0.0123 (estimate)`, `$0.00` or `unknown`.
pub fn estimated_cost(usd: Option<f64>) -> String {
    match usd {
        Some(usd) if is_tiny(usd) => format!("{} (estimate)", cost(Some(usd))),
        Some(usd) if usd > 0.0 => format!("about {} (estimate)", cost(Some(usd))),
        nothing => cost(nothing),
    }
}

/// Whether a cost would be shown as zero although it isn't.
fn is_tiny(usd: f64) -> bool {
    usd > 0.0 && usd + 1e-9 < 0.000_05
}

/// `including $0.98 reserved for 24 requests that were cut off`; `None` if there were none, or they cost nothing.
pub fn cut_off_requests(cut_off: &CutOffRequests) -> Option<String> {
    let reserved = match cut_off.reserved_cost_usd {
        Some(usd) if cut_off.is_none() || usd == 0.0 => return None,
        reserved => cost(reserved),
    };
    let verb = if cut_off.count == 1 { "was" } else { "were" };
    let requests = pluralize(u64::from(cut_off.count), "request");
    Some(format!("including {reserved} reserved for {requests} that {verb} cut off"))
}

/// A cost, and what of it was only reserved.
pub fn with_cut_off(cost: String, cut_off: &CutOffRequests) -> String {
    match cut_off_requests(cut_off) {
        Some(reserved) => format!("{cost}, {reserved}"),
        None => cost,
    }
}

/// `$0.0123`, `$0.50`, `less than $0.0001`, or `unknown`.
pub fn cost(usd: Option<f64>) -> String {
    match usd {
        None => "unknown".to_owned(),
        Some(usd) if usd >= 1.0 || (usd * 100.0).fract() == 0.0 => format!("${usd:.2}"),
        Some(usd) if is_tiny(usd) => "less than $0.0001".to_owned(),
        // A half is rounded up, also if a sum of fractions is a little less.
        Some(usd) => format!("${:.4}", usd + 1e-9),
    }
}

/// `450 ms`, `2.5 s`, `3 min 20 s`, `10 min`, `2 h 5 min`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..3_600_000 if (ms / 1_000).is_multiple_of(60) => format!("{} min", ms / 60_000),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ if (ms / 60_000).is_multiple_of(60) => format!("{} h", ms / 3_600_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ChangeKind;

    #[test]
    fn unlisted_changes_are_counted() {
        let change = |path: String| Change {
            path,
            change: ChangeKind::Added,
            lines_added: Some(2),
            lines_removed: None,
            binary: None,
        };
        let listed: Vec<Change> = (0..150).map(|number| change(number.to_string())).collect();
        let result = |changed_files: Option<u64>| -> RunResult {
            let whole = serde_json::json!({
                "format": 1, "run_id": "r", "job": "j", "outcome": "completed", "exit_code": 0, "text": "", "result": null,
                "error": null, "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:00Z",
                "duration_ms": 1, "turns": 1, "tool_calls": 0, "usage": Usage::default(), "cost_usd": null, "model": "m",
                "sandbox": "off", "subagents": [], "checks": [], "changes": listed, "changed_files": changed_files,
            });
            serde_json::from_value(whole).unwrap()
        };
        assert_eq!(change_totals(&result(None)).unwrap(), "150 files changed, +300 -0");
        assert_eq!(change_totals(&result(Some(150))).unwrap(), "150 files changed, +300 -0");
        assert_eq!(change_totals(&result(Some(170))).unwrap(), "170 files changed, +300 -0 in the first 150");
        let last = |total| {
            let changed = WorkspaceChanged { changes: listed.clone(), total, ..WorkspaceChanged::default() };
            changed_file_lines(&changed, 100).lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(last(None), "and 50 more; see result.json");
        assert_eq!(last(Some(170)), "and 70 more; result.json lists the first 150");
    }

    #[test]
    fn tokens_are_left_out_if_no_model_was_used() {
        let asked = Usage { input_tokens: 1_200, output_tokens: 30, ..Usage::default() };
        assert_eq!(usage(&Usage::default()), "none");
        assert_eq!(agent_summary(1, 2, &Usage::default(), 67), "1 turn, 2 tool calls, 67 ms");
        assert_eq!(agent_summary(2, 1, &asked, 67), "2 turns, 1 tool call, 1.2k tokens in, 30 out, 67 ms");
    }

    #[test]
    fn numbers_are_short_and_never_round_up_to_another_unit() {
        assert_eq!([tokens(999), tokens(1_000), tokens(999_949), tokens(1_000_000)], ["999", "1.0k", "999.9k", "1.0M"]);
        assert_eq!([duration(999), duration(61_000), duration(7_500_000)], ["999 ms", "1 min 1 s", "2 h 5 min"]);
        assert_eq!([duration(600_000), duration(7_200_000)], ["10 min", "2 h"]);
        assert_eq!(
            [cost(None), cost(Some(0.0)), cost(Some(0.01234)), cost(Some(0.5)), cost(Some(2.5))],
            ["unknown", "$0.00", "$0.0123", "$0.50", "$2.50"]
        );
        let estimates = [estimated_cost(None), estimated_cost(Some(0.0)), estimated_cost(Some(0.01234))];
        assert_eq!(estimates, ["unknown", "$0.00", "about $0.0123 (estimate)"]);
        assert_eq!([0.000_049, 0.000_05].map(|usd| cost(Some(usd))), ["less than $0.0001", "$0.0001"]);
        assert_eq!(estimated_cost(Some(0.000_01)), "less than $0.0001 (estimate)");
        assert_eq!([0.000_15, 0.000_15 + 1e-19, 0.000_1].map(|usd| cost(Some(usd))), ["$0.0002", "$0.0002", "$0.0001"]);
    }
}
