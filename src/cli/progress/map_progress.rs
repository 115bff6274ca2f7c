//! Progress of a map: a line for each active row and one for all on a terminal, otherwise one line for each row that ends.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::screen::StderrTerm;
use super::{MAX_FPS, MAX_LINE_CHARS, agent_id_column, event_summary};
use crate::cli::output::{Console, printable};
use crate::event::{Event, JournalEntry, PARENT, RunResult};
use crate::formats::run_stats;
use crate::run::RunObserver;
use crate::text::truncate;

/// Shows the progress of a map on stderr.
pub(in crate::cli) struct MapProgress {
    console: Console,
    total: usize,
    counts: Mutex<Counts>,
    live: Option<LiveLines>,
}

#[derive(Default)]
struct Counts {
    ended: usize,
    failed: usize,
    cost: f64,
    /// Whether the cost of some row isn't known.
    is_cost_incomplete: bool,
}

struct LiveLines {
    lines: MultiProgress,
    all: ProgressBar,
}

impl MapProgress {
    /// For this many rows; live if `live` is set and stderr is a terminal.
    pub(in crate::cli) fn new(console: Console, total: usize, live: bool) -> Self {
        let live = (live && stderr().is_terminal()).then(|| {
            let target = ProgressDrawTarget::term_like_with_hz(Box::new(StderrTerm::default()), MAX_FPS);
            let lines = MultiProgress::with_draw_target(target);
            let all = lines.add(ProgressBar::new(total as u64));
            if let Ok(style) =
                ProgressStyle::with_template("{bar:30} {pos}/{len} rows  {elapsed}, about {eta} left  {wide_msg}")
            {
                all.set_style(style);
            }
            all.enable_steady_tick(Duration::from_secs(1));
            LiveLines { lines, all }
        });
        Self { console, total, counts: Mutex::default(), live }
    }

    /// Shows the events of a row, on a terminal.
    pub(in crate::cli) fn row_observer(&self, id: &str) -> Option<Arc<dyn RunObserver>> {
        let live = self.live.as_ref()?;
        let line = live.lines.insert_before(&live.all, ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4}  {wide_msg}") {
            line.set_style(style);
        }
        line.set_prefix(agent_id_column(id));
        line.enable_steady_tick(Duration::from_millis(200));
        Some(Arc::new(RowLine { lines: live.lines.clone(), line, state: Mutex::default() }))
    }

    /// Shows that a row has ended, with its result or the reason why there is none.
    pub(in crate::cli) fn row_ended(&self, id: &str, result: Result<&RunResult, &str>) {
        let mut counts = self.counts();
        counts.ended += 1;
        let is_good = result.is_ok_and(|result| result.exit_code == 0);
        counts.failed += usize::from(!is_good);
        let cost = result.map_or(Some(0.0), |result| result.cost_usd);
        counts.cost += cost.unwrap_or_default();
        counts.is_cost_incomplete |= cost.is_none();
        let what = match result {
            Ok(result) => {
                let stats = run_stats::summary_line(result);
                match &result.error {
                    Some(error) => {
                        format!("{}: {} ({stats})", result.outcome, truncate::first(&error.message, MAX_LINE_CHARS))
                    }
                    None => format!("{}: {stats}", result.outcome),
                }
            }
            Err(why) => why.to_owned(),
        };
        let width = self.total.to_string().len();
        let line = format!("[{:>width$}/{}] {} {}", counts.ended, self.total, printable(id), printable(&what));
        let Some(live) = &self.live else { return self.console.eprint(&line) };
        live.all.set_position(counts.ended as u64);
        let unknown = if counts.is_cost_incomplete { " and unknown costs" } else { "" };
        let failed = if counts.failed > 0 { format!("  {} failed", counts.failed) } else { String::new() };
        live.all.set_message(format!("{}{unknown}{failed}", run_stats::cost(Some(counts.cost))));
        // Rows that ended well are counted only.
        if !is_good {
            live.lines.suspend(|| drop(writeln!(stderr(), "{line}")));
        }
    }

    /// Prints a warning about a row.
    pub(in crate::cli) fn warning(&self, id: &str, text: &str) {
        let text = format!("row {id}: {text}");
        match &self.live {
            Some(live) => live.lines.suspend(|| self.console.warning(&text)),
            None => self.console.warning(&text),
        }
    }

    /// Removes the live lines.
    pub(in crate::cli) fn finish(&self) {
        if let Some(live) = &self.live {
            live.all.finish_and_clear();
            let _ = live.lines.clear();
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The live line of a row, removed when it is dropped.
struct RowLine {
    lines: MultiProgress,
    line: ProgressBar,
    state: Mutex<RowActivity>,
}

#[derive(Default)]
struct RowActivity {
    turn: u32,
    tokens: u64,
    activity: String,
}

impl RunObserver for RowLine {
    fn event(&self, entry: &JournalEntry) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.event {
            Event::RequestStarted(request) if entry.agent == PARENT => {
                state.turn = request.turn;
                "thinking".clone_into(&mut state.activity);
            }
            Event::ReplyReceived(received) => state.tokens = state.tokens.saturating_add(received.reply.usage.total()),
            Event::CallStarted(_) | Event::CheckStarted(_) | Event::Retrying(_) => {
                state.activity = printable(&event_summary(entry).unwrap_or_default());
            }
            _ => return,
        }
        let tokens = match state.tokens {
            0 => String::new(),
            tokens => format!("  {:>6} tokens", run_stats::tokens(tokens)),
        };
        self.line.set_message(format!("turn {:<2}{tokens}  {}", state.turn, state.activity));
    }
}

impl Drop for RowLine {
    fn drop(&mut self) {
        self.line.finish_and_clear();
        self.lines.remove(&self.line);
    }
}
