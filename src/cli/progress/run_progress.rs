//! The progress of one run: live lines on a terminal, otherwise a log.

use std::io::stderr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::FormattedDuration;

use super::event_line::event_line;
use super::heartbeat::Heartbeat;
use super::live_line::{LiveLine, pad_id};
use super::live_run::{LiveAgent, LiveRun};
use super::live_screen::{LiveScreen, hidden_bar};
use super::log_groups::LogGroups;
use super::ticker::Ticker;
use crate::cli::env::CliEnv;
use crate::cli::output::{Console, printable};
use crate::event::{Event, JournalEntry, PARENT};
use crate::plan::Plan;
use crate::pricing::Prices;
use crate::process::job_control::is_in_background;
use crate::run::{ResumeState, RunObserver, Signals};
use crate::sync::IgnorePoison;

/// How often live lines are drawn.
pub(super) const LIVE_TICK: Duration = Duration::from_millis(125);
/// The columns of an agent's id in a log.
const ID_COLUMNS: usize = 14;

/// Shows the progress of a run on stderr until it is dropped.
pub(in crate::cli) struct RunProgress {
    shown: Arc<Shown>,
    ticker: Option<Ticker>,
}

/// What is shown, which the run and a ticker change.
struct Shown {
    status: Mutex<LiveRun>,
    display: Display,
}

enum Display {
    Live(LiveScreen),
    Log { console: Console, heartbeat: Heartbeat, groups: Option<Mutex<LogGroups>> },
}

impl RunProgress {
    /// For a run that is about to start or to continue. Live lines are drawn if `is_live` is set and stderr is a terminal.
    pub(in crate::cli) fn start(
        env: &CliEnv,
        is_live: bool,
        plan: &Plan,
        prices: &Prices,
        earlier: Option<&ResumeState>,
        signals: &Signals,
    ) -> Self {
        let status = LiveRun::new(plan, prices, earlier);
        let display = match is_live {
            true => {
                let run = hidden_bar().with_elapsed(status.elapsed());
                Display::Live(LiveScreen::start("agent", run, |_| "  {msg}  {elapsed_precise}".to_owned()))
            }
            false => Display::Log {
                console: env.console.clone(),
                heartbeat: Heartbeat::new(env),
                groups: (env.variable("GITHUB_ACTIONS") == Some("true") && !env.console.is_quiet).then(Mutex::default),
            },
        };
        let interval = match &display {
            Display::Live(_) => LIVE_TICK,
            Display::Log { heartbeat, .. } => heartbeat.tick(),
        };
        let shown = Arc::new(Shown { status: Mutex::new(status), display });
        let (of_ticker, signals) = (Arc::clone(&shown), signals.clone());
        // Without a thread, only events are shown.
        let ticker = Ticker::start(interval, move || of_ticker.tick(&signals)).ok();
        Self { shown, ticker }
    }

    /// Takes the events of the run.
    pub(in crate::cli) fn observer(&self) -> Arc<dyn RunObserver> {
        Arc::clone(&self.shown) as Arc<dyn RunObserver>
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.ticker = None;
        self.shown.end();
    }
}

impl RunObserver for Shown {
    fn event(&self, entry: &JournalEntry) {
        let mut status = self.status.lock().ignore_poison();
        status.apply(entry);
        match &self.display {
            Display::Live(screen) => {
                drop(status);
                if is_shown_above(entry)
                    && let Some(line) = event_line(&entry.agent, &entry.event)
                {
                    screen.print_above(&format!("  {} {}", pad_id(&entry.agent, 16), printable(line.trim_end())));
                }
            }
            Display::Log { console, heartbeat, groups } => {
                let Some(line) = event_line(&entry.agent, &entry.event) else { return };
                let line = format!("{:<ID_COLUMNS$} {}", entry.agent, printable(line.trim_end()));
                let mut groups =
                    groups.as_ref().filter(|_| entry.agent != PARENT).map(|groups| groups.lock().ignore_poison());
                match (&entry.event, &mut groups) {
                    (Event::AgentFinished(_), Some(groups)) => {
                        let title = group_title(
                            &entry.agent,
                            &status.description(&entry.agent),
                            &event_line(&entry.agent, &entry.event).unwrap_or_default(),
                        );
                        console.eprint_raw(&groups.take(&entry.agent, &title));
                    }
                    (Event::AgentStarted(_), _) | (_, None) => console.eprint(&line),
                    (_, Some(groups)) => return groups.add(&entry.agent, line),
                }
                heartbeat.line_printed();
            }
        }
    }
}

/// Whether the line of an event stays on the terminal, above the live lines.
fn is_shown_above(entry: &JournalEntry) -> bool {
    match &entry.event {
        Event::CheckFinished(_)
        | Event::BeforeFinished(_)
        | Event::RunSkipped(_)
        | Event::Retrying(_)
        | Event::ModelChanged(_)
        | Event::ResultTaken(_)
        | Event::LimitReached(_)
        | Event::LimitRaised(_)
        | Event::NetworkRefused(_)
        | Event::ResultsTruncated(_)
        | Event::ContextCompacted(_) => true,
        // The parent's journal has the end of a subagent, too.
        Event::AgentFinished(finished) => finished.id == entry.agent && entry.agent != PARENT,
        _ => false,
    }
}

fn group_title(agent: &str, description: &str, end: &str) -> String {
    let description = if description.is_empty() { String::new() } else { format!("{description}: ") };
    format!("{agent}: {description}{end}")
}

impl Shown {
    fn tick(&self, signals: &Signals) {
        match &self.display {
            // A second signal ends the process at once, and must leave no lines behind.
            Display::Live(screen) if signals.first().is_some() => {
                if screen.end() {
                    screen.print_above("stopping; Ctrl-C again ends it at once");
                }
            }
            Display::Live(screen) => {
                let status = self.status.lock().ignore_poison();
                let agents: Vec<LiveAgent<'_>> = status.active_agents().collect();
                screen.total.set_message(status.cost_and_limit());
                screen.draw(agents.iter().map(|agent| agent_line(agent, &status)));
            }
            Display::Log { console, heartbeat, .. } => {
                if heartbeat.is_due() {
                    let status = self.status.lock().ignore_poison();
                    let (activity, limit) = (status.activity(), status.cost_and_limit());
                    let elapsed = FormattedDuration(status.elapsed());
                    drop(status);
                    console.eprint(&format!("still running: {}, {elapsed}, {limit}", printable(&activity)));
                }
            }
        }
    }

    fn end(&self) {
        match &self.display {
            Display::Live(screen) => {
                screen.end();
            }
            Display::Log { console, groups, .. } => {
                let Some(mut groups) = groups.as_ref().map(|groups| groups.lock().ignore_poison()) else { return };
                for agent in groups.open() {
                    let title =
                        group_title(&agent, &self.status.lock().ignore_poison().description(&agent), "not ended");
                    console.eprint_raw(&groups.take(&agent, &title));
                }
            }
        }
    }
}

fn agent_line<'a>(agent: &LiveAgent<'a>, run: &LiveRun) -> LiveLine<'a> {
    LiveLine {
        id: agent.id,
        turn: agent.turn(),
        spent: run.spent_by(agent.id),
        elapsed: agent.started.elapsed(),
        description: agent.description(),
        action: agent.action(),
    }
}

/// Whether live lines can be drawn on stderr. A run that starts in the background gets a log.
pub(in crate::cli) fn can_be_live(env: &CliEnv) -> bool {
    use std::io::IsTerminal;
    let is_dumb = env.variable("TERM").is_none_or(|term| term == "dumb");
    let is_wanted = !env.console.is_ci && !env.console.is_quiet;
    is_wanted && !is_dumb && stderr().is_terminal() && !is_in_background(stderr())
}
