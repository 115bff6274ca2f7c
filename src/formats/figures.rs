//! Figures in words, the same in every format.

use crate::event::{RunResult, Usage};

/// A run's figures, name by name.
pub fn of_run(result: &RunResult) -> Vec<(&'static str, String)> {
    let tool_calls = match by_subagents(result) {
        0 => result.tool_calls.to_string(),
        theirs => format!("{}, and {theirs} by subagents", result.tool_calls),
    };
    let mut figures = vec![
        ("run", result.run_id.clone()),
        ("model", result.model.clone()),
        ("turns", result.turns.to_string()),
        ("tool calls", tool_calls),
        ("tokens", usage(&result.usage)),
        ("cost", cost(result.cost_usd)),
        ("time", duration(result.duration_ms)),
        ("sandbox", result.sandbox.clone()),
    ];
    if !result.subagents.is_empty() {
        let ids: Vec<&str> = result.subagents.iter().map(|subagent| subagent.id.as_str()).collect();
        figures.push(("subagents", ids.join(", ")));
    }
    figures
}

/// The whole run in a line: `4 turns, 15 tool calls, 2 subagents, 12.3k tokens in, 850 out, $0.0123, 3 min 20 s`. The
/// subagents' tool calls count, their turns don't. What cost nothing because no model was asked isn't mentioned.
pub fn sum(result: &RunResult) -> String {
    let mut parts = vec![counted(u64::from(result.turns), "turn")];
    parts.push(counted(result.tool_calls.saturating_add(by_subagents(result)), "tool call"));
    if !result.subagents.is_empty() {
        parts.push(counted(result.subagents.len() as u64, "subagent"));
    }
    if result.usage.total() > 0 {
        parts.push(usage(&result.usage));
        parts.push(result.cost_usd.map_or("cost unknown".to_owned(), |usd| cost(Some(usd))));
    }
    parts.push(duration(result.duration_ms));
    parts.join(", ")
}

fn by_subagents(result: &RunResult) -> u64 {
    result.subagents.iter().map(|subagent| subagent.tool_calls).sum()
}

/// One agent's part: `2 turns, 3 tool calls, 12.3k tokens in, 850 out, 6.0 s`.
pub fn spent(turns: u32, tool_calls: u64, usage: &Usage, duration_ms: u64) -> String {
    let mut parts = vec![counted(u64::from(turns), "turn"), counted(tool_calls, "tool call")];
    if usage.total() > 0 {
        parts.push(self::usage(usage));
    }
    parts.push(duration(duration_ms));
    parts.join(", ")
}

fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
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

/// `850`, `12.3k`, `4.5M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..999_950 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// `$0.0123`, `$0.50`, an estimate, or `unknown`.
pub fn cost(usd: Option<f64>) -> String {
    match usd {
        None => "unknown".to_owned(),
        Some(usd) if usd >= 1.0 || (usd * 100.0).fract() == 0.0 => format!("${usd:.2}"),
        Some(usd) => format!("${usd:.4}"),
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

    #[test]
    fn a_run_that_asked_no_model_speaks_of_no_tokens() {
        let asked = Usage { input_tokens: 1_200, output_tokens: 30, ..Usage::default() };
        assert_eq!(usage(&Usage::default()), "none");
        assert_eq!(spent(1, 2, &Usage::default(), 67), "1 turn, 2 tool calls, 67 ms");
        assert_eq!(spent(2, 1, &asked, 67), "2 turns, 1 tool call, 1.2k tokens in, 30 out, 67 ms");
    }

    #[test]
    fn figures_are_short_and_never_round_up_to_another_unit() {
        assert_eq!([tokens(999), tokens(1_000), tokens(999_949), tokens(1_000_000)], ["999", "1.0k", "999.9k", "1.0M"]);
        assert_eq!([duration(999), duration(61_000), duration(7_500_000)], ["999 ms", "1 min 1 s", "2 h 5 min"]);
        assert_eq!([duration(600_000), duration(7_200_000)], ["10 min", "2 h"]);
        assert_eq!(
            [cost(None), cost(Some(0.0)), cost(Some(0.01234)), cost(Some(0.5)), cost(Some(2.5))],
            ["unknown", "$0.00", "$0.0123", "$0.50", "$2.50"]
        );
    }
}
