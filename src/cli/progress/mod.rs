//! Progress during a run: live lines on a terminal, otherwise one line per notable event.

mod map_progress;
mod screen;

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(super) use self::map_progress::MapProgress;
use self::screen::StderrTerm;
use super::output::{Console, printable};
use crate::event::{Event, JournalEntry, PARENT};
use crate::formats::run_stats;
use crate::run::RunObserver;
use crate::text::truncate;

/// The call id of a running check. The ids of providers are never empty.
const CHECK_CALL_ID: &str = "";

/// The most characters of a line of output.
const MAX_LINE_CHARS: usize = 120;

/// The most redraws of the live lines per second.
const MAX_FPS: u8 = 15;

/// The progress observer for stderr: with live lines if `live` is set and stderr is a terminal.
pub(super) fn observer(out: Console, live: bool) -> std::sync::Arc<dyn RunObserver> {
    if live && stderr().is_terminal() {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(StderrTerm::default()), MAX_FPS);
        std::sync::Arc::new(LiveProgress { lines: MultiProgress::with_draw_target(target), agents: Mutex::default() })
    } else {
        std::sync::Arc::new(LogProgress { out })
    }
}

/// Prints one line per event, for logs.
struct LogProgress {
    out: Console,
}

impl RunObserver for LogProgress {
    fn event(&self, entry: &JournalEntry) {
        if let Some(line) = event_summary(entry) {
            self.out.eprint(&format!("{:<14} {}", entry.agent, printable(line.trim_end())));
        }
    }
}

/// The line for an event; `None` if it isn't notable.
fn event_summary(entry: &JournalEntry) -> Option<String> {
    Some(match &entry.event {
        Event::AgentStarted(started) => match &started.description {
            Some(description) => format!("started: {description} ({})", started.model),
            None => format!("started ({})", started.model),
        },
        Event::CallStarted(started) => match &started.child {
            Some(child) => format!("task -> {child}"),
            None => format!("{} {}", started.tool, started.subject),
        },
        Event::CallFinished(finished) if finished.result.is_error => {
            let line = finished.result.text.lines().next().unwrap_or_default();
            format!("{} failed: {}", finished.tool, truncate::first(line, MAX_LINE_CHARS))
        }
        Event::Retrying(retrying) => {
            let wait = run_stats::duration(retrying.retry.wait_ms);
            format!("attempt {} failed, retrying in {wait}: {}", retrying.retry.attempt, retrying.retry.reason)
        }
        Event::ReplyDiscarded(event) => format!("reply discarded, asking again: {}", event.reason),
        Event::ResultsTruncated(event) => run_stats::truncation_summary(event),
        Event::ContextCompacted(event) => run_stats::compaction_summary(event),
        Event::LimitReached(limit) => format!("{}: {}", limit.limit, limit.message),
        Event::LimitRaised(raised) => format!("{} raised: {}", raised.limit, run_stats::LIMIT_RAISED_NOTE),
        Event::CheckStarted(started) if started.attempt == 1 => format!("check {}", started.name),
        Event::CheckStarted(started) => format!("check {} (attempt {})", started.name, started.attempt),
        Event::CheckFinished(finished) if finished.passed => {
            format!("check {} passed in {}", finished.name, run_stats::duration(finished.duration_ms))
        }
        Event::CheckFinished(finished) => {
            let line = finished.output.trim_end().lines().next_back().unwrap_or_default();
            let shown = truncate::first(line, MAX_LINE_CHARS);
            format!(
                "check {} {}: {shown}",
                finished.name,
                run_stats::check_verdict(finished.passed, finished.exit_code)
            )
        }
        // The end of the parent is the end of the run, which has a summary line of its own.
        Event::AgentFinished(finished) if finished.id == entry.agent && entry.agent != PARENT => {
            let stats =
                run_stats::agent_summary(finished.turns, finished.tool_calls, &finished.usage, finished.duration_ms);
            format!("{} after {stats}", finished.outcome)
        }
        _ => return None,
    })
}

/// Shows a live line for each running agent: its turn, current tool and tokens.
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
        let activity = match self.running_calls.as_slice() {
            [] => "thinking".to_owned(),
            [(_, only)] => only.clone(),
            [(_, first), rest @ ..] => format!("{first} (and {} more)", rest.len()),
        };
        let tokens = match self.tokens {
            0 => String::new(),
            tokens => format!("  {:>6} tokens", run_stats::tokens(tokens)),
        };
        self.line.set_message(format!("turn {:<2}{tokens}  {activity}", self.turn));
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
        let Some(agent) = agents.get_mut(&entry.agent) else { return };
        let activity = || printable(&event_summary(entry).unwrap_or_default());
        match &entry.event {
            Event::RequestStarted(request) => agent.turn = request.turn,
            Event::ReplyReceived(received) => agent.tokens = agent.tokens.saturating_add(received.reply.usage.total()),
            Event::CallStarted(started) => agent.running_calls.push((started.call_id.clone(), activity())),
            Event::CallFinished(finished) => agent.running_calls.retain(|(call, _)| *call != finished.result.call_id),
            Event::CheckStarted(_) => agent.running_calls.push((CHECK_CALL_ID.to_owned(), activity())),
            Event::CheckFinished(_) => {
                agent.running_calls.retain(|(call, _)| call != CHECK_CALL_ID);
                self.print_above(entry);
            }
            Event::Retrying(_)
            | Event::LimitReached(_)
            | Event::LimitRaised(_)
            | Event::ResultsTruncated(_)
            | Event::ContextCompacted(_) => self.print_above(entry),
            // The parent's journal has the end of a subagent, too.
            Event::AgentFinished(finished) if finished.id == entry.agent => {
                agent.line.finish_and_clear();
                self.lines.remove(&agent.line);
                agents.remove(&entry.agent);
                if entry.agent != PARENT {
                    self.print_above(entry);
                }
                return;
            }
            _ => {}
        }
        agent.refresh();
    }
}

impl LiveProgress {
    /// Prints the line for an event above the live lines.
    fn print_above(&self, entry: &JournalEntry) {
        let text =
            format!("  {} {}", agent_id_column(&entry.agent), printable(&event_summary(entry).unwrap_or_default()));
        self.lines.suspend(|| {
            use std::io::Write;
            let _ = writeln!(stderr(), "{text}");
        });
    }
}

/// Fits an agent id into a column. The middle of a long id is left out, so that its number is kept.
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
    fn ids_fit_a_column_and_keep_their_number() {
        assert_eq!(agent_id_column("parent"), "parent          ");
        assert_eq!(agent_id_column("a-very-long-name-12"), "a-very-lon…me-12");
        assert!(
            [agent_id_column("parent"), agent_id_column(&"x".repeat(70))]
                .iter()
                .all(|shown| shown.chars().count() == 16)
        );
    }
}
