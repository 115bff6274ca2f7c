//! What a person sees while a run goes on: live lines on a terminal, one line an event of note elsewhere.

mod screen;

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::screen::Screen;
use super::print::{Out, printable};
use crate::event::{Entry, Event, PARENT};
use crate::formats::figures;
use crate::run::Observer;

/// Stands for a call's id where a check is under way; no provider gives an empty one.
const CHECK: &str = "";

/// How often the live lines are drawn, at most, a second.
const FRAMES: u8 = 15;

/// The fitting observer for where stderr goes; live lines only on a terminal, and where they are wanted.
pub(super) fn observer(out: Out, live: bool) -> std::sync::Arc<dyn Observer> {
    if live && stderr().is_terminal() {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(Screen::default()), FRAMES);
        std::sync::Arc::new(Live { lines: MultiProgress::with_draw_target(target), agents: Mutex::default() })
    } else {
        std::sync::Arc::new(Plain { out })
    }
}

/// A line an event, for logs.
struct Plain {
    out: Out,
}

impl Observer for Plain {
    fn event(&self, entry: &Entry) {
        if let Some(line) = line(entry) {
            self.out.beside(&format!("{:<14} {}", entry.agent, printable(line.trim_end())));
        }
    }

    fn text(&self, _: &str, _: &str) {}
}

/// What is of note in an event.
fn line(entry: &Entry) -> Option<String> {
    Some(match &entry.event {
        Event::AgentStarted(started) => match &started.description {
            Some(description) => format!("starts: {description} ({})", started.model),
            None => format!("starts ({})", started.model),
        },
        Event::CallStarted(started) => match &started.child {
            Some(child) => format!("task -> {child}"),
            None => format!("{} {}", started.tool, started.about),
        },
        Event::CallFinished(finished) if finished.result.is_error => {
            let first = finished.result.text.lines().next().unwrap_or_default();
            let short: String = first.chars().take(120).collect();
            format!("{} failed: {short}", finished.tool)
        }
        Event::Retrying(retrying) => {
            let wait = figures::duration(retrying.retry.wait_ms);
            format!("try {} failed, again in {wait}: {}", retrying.retry.attempt, retrying.retry.why)
        }
        Event::Dropped(dropped) => format!("asks again: {}", dropped.why),
        Event::Shortened(shortened) => figures::shortened(shortened),
        Event::SummedUp(summed_up) => figures::summed_up(summed_up),
        Event::LimitReached(limit) => format!("{}: {}", limit.limit, limit.message),
        Event::LimitRaised(raised) => format!("{} raised: {}", raised.limit, figures::RAISED),
        Event::CheckStarted(started) => format!("check {}{}", started.name, attempt(started.attempt)),
        Event::CheckFinished(finished) if finished.passed => {
            format!("check {} passed in {}", finished.name, figures::duration(finished.duration_ms))
        }
        Event::CheckFinished(finished) => {
            let last = finished.output.trim_end().lines().next_back().unwrap_or_default();
            let short: String = last.chars().take(120).collect();
            format!("check {} {}: {short}", finished.name, figures::check(finished))
        }
        // The parent's end is the run's, which is told with the whole run's figures.
        Event::AgentFinished(finished) if finished.id == entry.agent && entry.agent != PARENT => {
            let spent = figures::spent(finished.turns, finished.tool_calls, &finished.usage, finished.duration_ms);
            format!("{} after {spent}", finished.outcome)
        }
        _ => return None,
    })
}

fn attempt(number: u32) -> String {
    if number > 1 { format!(" (attempt {number})") } else { String::new() }
}

/// A line for the parent and every running subagent: its turn, its current tool, its tokens.
struct Live {
    lines: MultiProgress,
    agents: Mutex<HashMap<String, Shown>>,
}

struct Shown {
    line: ProgressBar,
    turn: u32,
    tokens: u64,
    doing: Vec<(String, String)>,
}

impl Shown {
    fn refresh(&self) {
        let doing = match self.doing.as_slice() {
            [] => "thinks".to_owned(),
            [(_, only)] => only.clone(),
            [(_, first), rest @ ..] => format!("{first} (and {} more)", rest.len()),
        };
        let tokens = match self.tokens {
            0 => String::new(),
            tokens => format!("  {:>6} tokens", figures::tokens(tokens)),
        };
        self.line.set_message(format!("turn {:<2}{tokens}  {doing}", self.turn));
    }
}

impl Observer for Live {
    fn event(&self, entry: &Entry) {
        let mut agents = self.agents.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Event::AgentStarted(_) = &entry.event {
            let line = self.lines.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4}  {wide_msg}") {
                line.set_style(style);
            }
            line.set_prefix(column(&entry.agent));
            line.enable_steady_tick(Duration::from_millis(100));
            agents.insert(entry.agent.clone(), Shown { line, turn: 1, tokens: 0, doing: Vec::new() });
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
                    self.above(entry);
                }
            }
            return;
        }
        let Some(shown) = agents.get_mut(&entry.agent) else { return };
        match &entry.event {
            Event::Asked(asked) => shown.turn = asked.turn,
            Event::Replied(replied) => shown.tokens = shown.tokens.saturating_add(replied.reply.usage.total()),
            Event::CallStarted(started) => {
                let doing = match &started.child {
                    Some(child) => format!("waits for {child}"),
                    None => format!("{} {}", started.tool, started.about),
                };
                shown.doing.push((started.call_id.clone(), printable(&doing)));
            }
            Event::CallFinished(finished) => shown.doing.retain(|(call, _)| *call != finished.result.call_id),
            Event::CheckStarted(started) => {
                let doing = format!("check {}{}", started.name, attempt(started.attempt));
                shown.doing.push((CHECK.to_owned(), printable(&doing)));
            }
            Event::CheckFinished(_) => {
                shown.doing.retain(|(call, _)| call != CHECK);
                self.above(entry);
            }
            Event::Retrying(_)
            | Event::LimitReached(_)
            | Event::LimitRaised(_)
            | Event::Shortened(_)
            | Event::SummedUp(_) => {
                self.above(entry);
            }
            _ => {}
        }
        if let Some(shown) = agents.get(&entry.agent) {
            shown.refresh();
        }
    }

    fn text(&self, _: &str, _: &str) {}
}

impl Live {
    /// Prints what is of note in an event above the live lines, where it stays.
    fn above(&self, entry: &Entry) {
        let text = format!("  {} {}", column(&entry.agent), printable(&line(entry).unwrap_or_default()));
        self.lines.suspend(|| {
            use std::io::Write;
            let _ = writeln!(stderr(), "{text}");
        });
    }
}

/// An agent's id in a column of its own. A long one loses its middle: the number at its end tells it apart.
fn column(id: &str) -> String {
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
        assert_eq!(column("parent"), "parent          ");
        assert_eq!(column("a-very-long-name-12"), "a-very-lon…me-12");
        assert!([column("parent"), column(&"x".repeat(70))].iter().all(|shown| shown.chars().count() == 16));
    }
}
