//! The progress of a map: a line for each active row and one for all on a terminal, otherwise a log with a line for each row that
//! ends.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use indexmap::IndexMap;
use indicatif::{FormattedDuration, HumanDuration};

use super::event_line::MAX_LINE_CHARS;
use super::heartbeat::Heartbeat;
use super::live_line::LiveLine;
use super::live_run::{LiveRun, short_cost};
use super::live_screen::{LiveScreen, hidden_bar};
use super::run_progress::{LIVE_TICK, can_be_live};
use super::ticker::Ticker;
use crate::cli::env::CliEnv;
use crate::cli::output::{Console, printable};
use crate::event::{CutOffRequests, JournalEntry, Outcome, RunResult};
use crate::map::{EndedRow, MapBudget, MapStart};
use crate::plan::Plan;
use crate::pricing::Prices;
use crate::reports::run_stats;
use crate::run::{ResumeState, RunObserver, Signals};
use crate::running_clock::RunningInstant;
use crate::sync::IgnorePoison;
use crate::text::{pluralize, truncate};

/// The most columns of the bar.
const BAR_COLUMNS: usize = 30;
/// Below this width, there is no bar.
const MIN_COLUMNS_FOR_BAR: usize = 60;
/// The most active rows that a line in a log names.
const MAX_NAMED_ROWS: usize = 3;

/// Shows the progress of a map on stderr until it is finished or dropped.
pub(in crate::cli) struct MapProgress {
    shown: Arc<ShownMap>,
    ticker: Mutex<Option<Ticker>>,
}

struct ShownMap {
    console: Console,
    total: usize,
    jobs: usize,
    started: RunningInstant,
    state: Mutex<MapState>,
    /// If stderr is a terminal.
    screen: Option<LiveScreen>,
    heartbeat: Heartbeat,
    signals: Signals,
    budget: Arc<MapBudget>,
    /// The requests of earlier starts that were cut off, and what is reserved for those that the ledger doesn't count.
    cut_off: (CutOffRequests, f64),
}

#[derive(Default)]
struct MapState {
    active: IndexMap<String, ActiveRow>,
    ended: usize,
    failed: usize,
    /// Whether the cost of some row that has ended isn't known.
    is_cost_incomplete: bool,
    /// How many rows have run to their end here, and how long together.
    timed: (u32, Duration),
    says_that_it_stops: bool,
}

struct ActiveRow {
    status: Arc<LiveRow>,
    started: RunningInstant,
}

/// Takes the events of a row.
struct LiveRow(Mutex<LiveRun>);

impl RunObserver for LiveRow {
    fn event(&self, entry: &JournalEntry) {
        self.0.lock().ignore_poison().apply(entry);
    }
}

impl MapProgress {
    /// For a map whose rows are about to start.
    pub(in crate::cli) fn start(env: &CliEnv, start: &MapStart<'_>) -> Self {
        let total = start.rows;
        let is_live = can_be_live(env);
        let heartbeat = Heartbeat::new(env);
        let interval = if is_live { LIVE_TICK } else { heartbeat.tick() };
        let shown = Arc::new(ShownMap {
            console: env.console.clone(),
            total,
            jobs: start.jobs,
            started: RunningInstant::now(),
            state: Mutex::default(),
            screen: is_live.then(|| {
                let all = hidden_bar();
                all.set_length(total as u64);
                LiveScreen::start("row", all, template)
            }),
            heartbeat,
            signals: start.signals.clone(),
            budget: Arc::clone(start.budget),
            cut_off: start.cut_off,
        });
        let of_ticker = Arc::clone(&shown);
        // Without a thread, only the ends of rows are shown.
        let ticker = Ticker::start(interval, move || of_ticker.tick()).ok();
        Self { shown, ticker: Mutex::new(ticker) }
    }

    /// Shows a row that starts or continues.
    pub(in crate::cli) fn row_started(
        &self,
        id: &str,
        plan: &Plan,
        prices: &Prices,
        earlier: Option<&ResumeState>,
    ) -> Arc<dyn RunObserver> {
        let status = Arc::new(LiveRow(Mutex::new(LiveRun::new(plan, prices, earlier))));
        let row = ActiveRow { status: Arc::clone(&status), started: RunningInstant::now() };
        self.shown.state().active.insert(id.to_owned(), row);
        status
    }

    /// Shows that a row has ended.
    pub(in crate::cli) fn row_ended(&self, row: &EndedRow<'_>) {
        self.shown.row_ended(row);
    }

    /// Shows that a row waits until its provider is back. With `limit`, it is the first one, and this is how long it waits at
    /// most.
    pub(in crate::cli) fn row_waits(&self, id: &str, result: &RunResult, limit: Option<Duration>) {
        self.shown.state().active.shift_remove(id);
        if let Some(limit) = limit {
            let why = result.error.as_ref().map_or("the provider failed", |error| error.message.as_str());
            self.shown.console.warning(&format!(
                "row {id}: {}; while the provider fails, no row starts, and one tries again from time to time, for {} at most",
                truncate::first(why, MAX_LINE_CHARS),
                HumanDuration(limit)
            ));
            self.shown.heartbeat.line_printed();
        }
    }

    /// Prints a warning about a row.
    pub(in crate::cli) fn warning(&self, id: &str, text: &str) {
        self.shown.console.warning(&format!("row {id}: {text}"));
        self.shown.heartbeat.line_printed();
    }

    /// Removes the live lines.
    pub(in crate::cli) fn finish(&self) {
        drop(self.ticker.lock().ignore_poison().take());
        self.shown.note_signal();
        if let Some(screen) = &self.shown.screen {
            screen.end();
        }
    }
}

impl Drop for MapProgress {
    fn drop(&mut self) {
        self.finish();
    }
}

impl ShownMap {
    fn row_ended(&self, row: &EndedRow<'_>) {
        let EndedRow { id, label, result, is_failure } = *row;
        let mut state = self.state();
        state.ended += 1;
        state.failed += usize::from(is_failure);
        let active = state.active.shift_remove(id);
        state.is_cost_incomplete |= result.is_ok_and(|result| result.cost_usd.is_none());
        let was_stopped = result.is_ok_and(|result| result.outcome == Outcome::Interrupted);
        if let Some(row) = active.filter(|_| !was_stopped) {
            state.timed = (state.timed.0.saturating_add(1), state.timed.1 + row.started.elapsed());
        }
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
        let digits = self.total.to_string().len();
        // A digest says nothing.
        let label = label.map_or(String::new(), |label| format!(" ({})", printable(label)));
        let id = printable(id);
        let line = format!("[{:>digits$}/{}] {id}{label} {}", state.ended, self.total, printable(&what));
        let so_far = self.spend_and_failures(&state);
        if let (true, true, Err(why)) = (self.console.is_quiet, is_failure, result) {
            // No record has the reason.
            self.console.warning(&format!("row {id}: {why}"));
        } else if self.screen.is_none() {
            // The lines of rows that end at the same time come in the order of their numbers.
            let line = format!("{line}; so far {so_far}");
            match result {
                // The summary has no reason for a row that couldn't run.
                Err(_) if is_failure => self.console.eprint_problem(&line),
                _ => self.console.eprint(&line),
            }
        }
        drop(state);
        match &self.screen {
            None => self.heartbeat.line_printed(),
            // Rows that ended well are counted only, and those that a signal has stopped have a line together.
            Some(_) if result.is_ok_and(|result| result.exit_code == 0) => {}
            Some(_) if was_stopped && self.signals.first().is_some() => {}
            Some(screen) => screen.print_above(&line),
        }
    }

    fn tick(&self) {
        self.note_signal();
        match &self.screen {
            Some(screen) => self.draw(screen, &self.state()),
            None if self.heartbeat.is_due() => self.console.eprint(&printable(&self.heartbeat_line(&self.state()))),
            None => {}
        }
    }

    /// Says once that a signal stops the rows. From then on there are no live lines: a second signal ends the process at once,
    /// and must leave none behind.
    fn note_signal(&self) {
        if self.signals.first().is_none() || std::mem::replace(&mut self.state().says_that_it_stops, true) {
            return;
        }
        if let Some(screen) = &self.screen {
            screen.end();
        }
        self.console.eprint("stopping the rows that run; the same command continues them later");
        self.heartbeat.line_printed();
    }

    /// Draws the lines of the active rows, and a line for all.
    fn draw(&self, screen: &LiveScreen, state: &MapState) {
        let left = state.time_left(self.total, self.jobs);
        screen.total.set_position(state.ended as u64);
        screen.total.set_message(self.spend_and_failures(state));
        screen.total.set_prefix(left.map_or(String::new(), |left| format!(", about {} left", HumanDuration(left))));
        screen.draw(state.active.iter().map(|(id, row)| {
            let status = row.status.0.lock().ignore_poison();
            let turn = status.parent().map_or(1, |parent| parent.turn());
            let (spent, action) = (status.spent(), status.main_activity());
            LiveLine { id, turn, spent, elapsed: row.started.elapsed(), description: String::new(), action }
        }));
    }

    /// What the map does, for a log.
    fn heartbeat_line(&self, state: &MapState) -> String {
        let mut parts: Vec<String> = vec![format!("{} of {} rows ended", state.ended, self.total)];
        let named = state.active.iter().take(MAX_NAMED_ROWS);
        parts.extend(named.map(|(id, row)| format!("{id} {}", row.status.0.lock().ignore_poison().main_activity())));
        if let Some(more) = state.active.len().checked_sub(MAX_NAMED_ROWS).filter(|more| *more > 0) {
            parts.push(pluralize(more as u64, "more active row"));
        }
        parts.push(FormattedDuration(self.started.elapsed()).to_string());
        parts.push(self.spend_and_failures(state));
        format!("still running: {}", parts.join(", "))
    }

    /// `$0.12 of $5.00, 1 failed`: what the whole map has cost, with other processes and earlier starts.
    fn spend_and_failures(&self, state: &MapState) -> String {
        let (spent, limits) = self.budget.spent();
        let is_incomplete = state.is_cost_incomplete
            || state.active.values().any(|row| row.status.0.lock().ignore_poison().cost().is_none());
        let (cut_off, open_cost) = &self.cut_off;
        let mut text = short_cost(spent.cost_usd + open_cost);
        if let Some(limit) = limits.cost_usd {
            text.push_str(&format!(" of {}", short_cost(limit)));
        }
        if is_incomplete {
            text.push_str(" and unknown costs");
        }
        if let Some(limit) = limits.tokens {
            text.push_str(&format!(", {} of {} tokens", run_stats::tokens(spent.tokens), run_stats::tokens(limit)));
        }
        text = run_stats::with_cut_off(text, cut_off);
        if state.failed > 0 {
            text.push_str(&format!(", {} failed", state.failed));
        }
        text
    }

    fn state(&self) -> MutexGuard<'_, MapState> {
        self.state.lock().ignore_poison()
    }
}

impl MapState {
    /// About how long the rest takes, from the rows that have run here. `None` if none has, or all that are left run longer than
    /// those did.
    ///
    /// indicatif's own estimate weighs the last 15 seconds most: of rows that take a minute, it says four weeks before one ends.
    fn time_left(&self, total: usize, jobs: usize) -> Option<Duration> {
        let (count, together) = self.timed;
        let mean = together.checked_div(count)?;
        let unstarted = total.saturating_sub(self.ended + self.active.len());
        let active: Duration = self.active.values().map(|row| mean.saturating_sub(row.started.elapsed())).sum();
        let work = mean.saturating_mul(u32::try_from(unstarted).unwrap_or(u32::MAX)).saturating_add(active);
        let at_once = jobs.min(unstarted + self.active.len()).max(1);
        let left = work / u32::try_from(at_once).unwrap_or(u32::MAX);
        (left >= Duration::from_secs(1)).then_some(left)
    }
}

/// The template of the line for all in this many columns.
fn template(columns: usize) -> String {
    let all = "{human_pos}/{human_len} rows, {msg}  {elapsed_precise}{prefix}";
    match columns < MIN_COLUMNS_FOR_BAR {
        true => format!("  {all}"),
        false => format!("  {{bar:{}}} {all}", BAR_COLUMNS.min(columns / 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_known_after_the_first_row() {
        let mut state = MapState { ended: 1, ..MapState::default() };
        assert_eq!(state.time_left(10, 3), None);
        state.timed = (1, Duration::from_secs(6));
        assert_eq!(state.time_left(10, 3), Some(Duration::from_secs(18)), "nine rows, three at once");
        assert_eq!(state.time_left(2, 3), Some(Duration::from_secs(6)), "the last row alone");
        assert_eq!(state.time_left(1, 3), None, "never 0 s");
    }
}
