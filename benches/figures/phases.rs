//! Measures the parts of a run of one turn: from the start to the first request, and from the reply to the end.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::aims;
use crate::measure::{self, epoch_ms};
use crate::median;
use crate::server::{Answer, Checks, KEY, Request, Server};

/// One measured job.
struct Row {
    title: &'static str,
    tools: &'static str,
    options: &'static [&'static str],
    /// The aims in milliseconds: to the first request, from the reply to the end, and the whole run.
    aims: [&'static str; 3],
}

const ROWS: [Row; 3] = [
    Row { title: "no commands", tools: "[]", options: &[], aims: ["6", "3", ""] },
    Row { title: "`bash`, without a sandbox", tools: "[bash]", options: &["--sandbox", "off"], aims: ["6", "3", ""] },
    Row { title: "`bash`, in the default sandbox", tools: "[bash]", options: &[], aims: ["", "3", "20"] },
];

/// When the last request arrived, in milliseconds since 1970. The reply follows at once.
static ARRIVED: Mutex<f64> = Mutex::new(0.0);

fn answer(_: &Request) -> Answer {
    *ARRIVED.lock().unwrap_or_else(PoisonError::into_inner) = epoch_ms(SystemTime::now());
    Answer::text("done")
}

/// Prints the medians.
pub(crate) fn print(legwork: &Path, runs: usize) {
    println!("\n| {:<46} | to the request   | reply to end     | whole            |", "a run of one turn, in ms, with");
    println!("|{0:-<48}|{0:-<18}|{0:-<18}|{0:-<18}|", "");
    let this_program = std::env::current_exe().expect("this program");
    for Row { title, tools, options, aims: of_parts } in ROWS {
        let server = Server::with(Checks::None, answer);
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Not one in the other: commands could write to what is remembered in the home folder.
        let (workspace, home) = (folder.path().join("work"), folder.path().join("home"));
        std::fs::create_dir(&workspace).expect("a workspace");
        std::fs::create_dir(&home).expect("a home");
        let job = format!("model: anthropic/claude-sonnet-4-6\nparent: {{ prompt: go, tools: {tools} }}\n");
        std::fs::write(workspace.join("job.yaml"), job).expect("the job");
        let mut parts: [Vec<f64>; 3] = Default::default();
        for run in 0..=runs.max(9) {
            let mut command = Command::new(&this_program);
            command.arg("--measure").arg(legwork).args(["run", "job.yaml"]).args(options);
            command.current_dir(&workspace).env_clear().env("HOME", &home);
            command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("NO_PROXY", "127.0.0.1");
            command.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
            let figure = measure::measure(&mut command).unwrap_or_else(|why| panic!("{title}: {why}"));
            let arrived = *ARRIVED.lock().unwrap_or_else(PoisonError::into_inner);
            // The first run only warms the caches. Later ones don't wait for the probe of bubblewrap.
            if run > 0 {
                parts[0].push(arrived - figure.started);
                parts[1].push(figure.started + figure.wall - arrived);
                parts[2].push(figure.wall);
            }
        }
        for ((part, what), aim) in
            parts.iter().zip(["to the first request", "from the reply to the end", "whole"]).zip(of_parts)
        {
            if let Ok(aim) = aim.parse() {
                aims::at_most(&format!("one turn, {title}: {what}"), aim, median(part.iter().copied()), "ms");
            }
        }
        let shown = |part: &[f64], aim: &str| {
            let aim = if aim.is_empty() { String::new() } else { format!(" (aim: {aim})") };
            format!("{:.1}{aim}", median(part.iter().copied()))
        };
        println!(
            "| {title:<46} | {:<16} | {:<16} | {:<16} |",
            shown(&parts[0], of_parts[0]),
            shown(&parts[1], of_parts[1]),
            shown(&parts[2], of_parts[2])
        );
    }
}
