//! What a person sees while a run goes on: live lines on a terminal, one line an event of note elsewhere.

mod screen;

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::screen::StderrTerm;
use super::output::{Console, printable};
use crate::event::{Event, JournalEntry, PARENT};
use crate::formats::run_stats;
use crate::run::RunObserver;

/// Stands for a call's id where a check is under way; no provider gives an empty one.
const CHECK_CALL_ID: &str = "";

/// How often the live lines are drawn, at most, a second.
const MAX_FPS: u8 = 15;

/// The fitting observer for where stderr goes; live lines only on a terminal, and where they are wanted.
pub(super) fn observer(out: Console, live: bool) -> std::sync::Arc<dyn RunObserver> {
    if live && stderr().is_terminal() {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(StderrTerm::default()), MAX_FPS);
        std::sync::Arc::new(LiveProgress { lines: MultiProgress::with_draw_target(target), agents: Mutex::default() })
    } else {
        std::sync::Arc::new(LogProgress { out })
    }
}

/// A line an event, for logs.
struct LogProgress {
    out: Console,
}

impl RunObserver for LogProgress {
    fn event(&self, entry: &JournalEntry) {
        if let Some(line) = event_summary(entry) {
            self.out.eprint(&format!("{:<14} {}", entry.agent, printable(line.trim_end())));
        }
    }

    fn text(&self, _: &str, _: &str) {}
}

/// What is of note in an event.
fn event_summary(entry: &JournalEntry) -> Option<String> {
    Some(match &entry.event {
        Event::AgentStarted(started) => match &started.description {
            Some(description) => format!("starts: {description} ({})", started.model),
            None => format!("starts ({})", started.model),
        },
        Event::CallStarted(started) => match &started.child {
            Some(child) => format!("task -> {child}"),
            None => format!("{} {}", started.tool, started.subject),
        },
        Event::CallFinished(finished) if finished.result.is_error => {
            let first = finished.result.text.lines().next().unwrap_or_default();
            let short: String = first.chars().take(120).collect();
            format!("{} failed: {short}", finished.tool)
        }
        Event::Retrying(retrying) => {
            let wait = run_stats::duration(retrying.retry.wait_ms);
            format!("try {} failed, again in {wait}: {}", retrying.retry.attempt, retrying.retry.reason)
        }
        Event::ReplyDiscarded(dropped) => format!("asks again: {}", dropped.reason),
        Event::ResultsTruncated(shortened) => run_stats::truncation_summary(shortened),
        Event::ContextCompacted(summed_up) => run_stats::compaction_summary(summed_up),
        Event::LimitReached(limit) => format!("{}: {}", limit.limit, limit.message),
        Event::LimitRaised(raised) => format!("{} raised: {}", raised.limit, run_stats::LIMIT_RAISED_NOTE),
        Event::CheckStarted(started) => format!("check {}{}", started.name, attempt_suffix(started.attempt)),
        Event::CheckFinished(finished) if finished.passed => {
            format!("check {} passed in {}", finished.name, run_stats::duration(finished.duration_ms))
        }
        Event::CheckFinished(finished) => {
            let last = finished.output.trim_end().lines().next_back().unwrap_or_default();
            let short: String = last.chars().take(120).collect();
            format!("check {} {}: {short}", finished.name, run_stats::check_verdict(finished))
        }
        // The parent's end is the run's, which is told with the whole run's figures.
        Event::AgentFinished(finished) if finished.id == entry.agent && entry.agent != PARENT => {
            let spent =
                run_stats::agent_summary(finished.turns, finished.tool_calls, &finished.usage, finished.duration_ms);
            format!("{} after {spent}", finished.outcome)
        }
        _ => return None,
    })
}

fn attempt_suffix(number: u32) -> String {
    if number > 1 { format!(" (attempt {number})") } else { String::new() }
}

/// A line for the parent and every running subagent: its turn, its current tool, its tokens.
struct LiveProgress {
    lines: MultiProgress,
    agents: Mutex<HashMap<String, AgentLine>>,
}

struct AgentLine {
    line: ProgressBar,
    turn: u32,
    tokens: u64,
    running_calls: Vec<(String, String)>,
}

impl AgentLine {
    fn refresh(&self) {
        let doing = match self.running_calls.as_slice() {
            [] => "thinks".to_owned(),
            [(_, only)] => only.clone(),
            [(_, first), rest @ ..] => format!("{first} (and {} more)", rest.len()),
        };
        let tokens = match self.tokens {
            0 => String::new(),
            tokens => format!("  {:>6} tokens", run_stats::tokens(tokens)),
        };
        self.line.set_message(format!("turn {:<2}{tokens}  {doing}", self.turn));
    }
}

impl RunObserver for LiveProgress {
    fn event(&self, entry: &JournalEntry) {
        let mut agents = self.agents.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Event::AgentStarted(_) = &entry.event {
            let line = self.lines.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4}  {wide_msg}") {
                line.set_style(style);
            }
            line.set_prefix(agent_id_column(&entry.agent));
            line.enable_steady_tick(Duration::from_millis(100));
            agents.insert(entry.agent.clone(), AgentLine { line, turn: 1, tokens: 0, running_calls: Vec::new() });
        }
        if let Event::AgentFinished(finished) = &entry.event {
            // A subagent's end stands in its parent's journal as well.
            if finished.id != entry.agent {
                return;
            }
            if let Some(shown) = agents.remove(&entry.agent) {
                shown.line.finish_and_clear();
                self.lines.remove(&shown.line);
                if entry.agent != PARENT {
                    self.print_above(entry);
                }
            }
            return;
        }
        let Some(shown) = agents.get_mut(&entry.agent) else { return };
        match &entry.event {
            Event::RequestStarted(asked) => shown.turn = asked.turn,
            Event::ReplyReceived(replied) => shown.tokens = shown.tokens.saturating_add(replied.reply.usage.total()),
            Event::CallStarted(started) => {
                let doing = match &started.child {
                    Some(child) => format!("waits for {child}"),
                    None => format!("{} {}", started.tool, started.subject),
                };
                shown.running_calls.push((started.call_id.clone(), printable(&doing)));
            }
            Event::CallFinished(finished) => shown.running_calls.retain(|(call, _)| *call != finished.result.call_id),
            Event::CheckStarted(started) => {
                let doing = format!("check {}{}", started.name, attempt_suffix(started.attempt));
                shown.running_calls.push((CHECK_CALL_ID.to_owned(), printable(&doing)));
            }
            Event::CheckFinished(_) => {
                shown.running_calls.retain(|(call, _)| call != CHECK_CALL_ID);
                self.print_above(entry);
            }
            Event::Retrying(_)
            | Event::LimitReached(_)
            | Event::LimitRaised(_)
            | Event::ResultsTruncated(_)
            | Event::ContextCompacted(_) => {
                self.print_above(entry);
            }
            _ => {}
        }
        if let Some(shown) = agents.get(&entry.agent) {
            shown.refresh();
        }
    }

    fn text(&self, _: &str, _: &str) {}
}

impl LiveProgress {
    /// Prints what is of note in an event above the live lines, where it stays.
    fn print_above(&self, entry: &JournalEntry) {
        let text =
            format!("  {} {}", agent_id_column(&entry.agent), printable(&event_summary(entry).unwrap_or_default()));
        self.lines.suspend(|| {
            use std::io::Write;
            let _ = writeln!(stderr(), "{text}");
        });
    }
}

/// An agent's id in a column of its own. A long one loses its middle: the number at its end tells it apart.
fn agent_id_column(id: &str) -> String {
    const WIDTH: usize = 16;
    let letters: Vec<char> = id.chars().collect();
    if letters.len() <= WIDTH {
        return format!("{id:<WIDTH$}");
    }
    let tail = WIDTH / 3;
    let (head, tail) = (&letters[..WIDTH - tail - 1], &letters[letters.len() - tail..]);
    head.iter().chain(['…'].iter()).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stand_in_a_column_and_keep_their_number() {
        assert_eq!(agent_id_column("parent"), "parent          ");
        assert_eq!(agent_id_column("a-very-long-name-12"), "a-very-lon…me-12");
        assert!(
            [agent_id_column("parent"), agent_id_column(&"x".repeat(70))]
                .iter()
                .all(|shown| shown.chars().count() == 16)
        );
    }
}
