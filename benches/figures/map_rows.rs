//! Measures `legwork map`: a thousand rows of three turns each, a hundred at once, compared with the time that the replies
//! alone take.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::measure::measure;
use crate::server::{Answer, Checks, KEY, Request, Server};

const ROWS: usize = 1_000;
const TURNS: usize = 3;
const JOBS: usize = 100;
/// How long the server waits with each reply.
const REPLY_TIME: Duration = Duration::from_millis(50);
/// The aims: wall time as a multiple of the ideal, and peak memory in MB.
const AIMS: (f64, f64) = (1.3, 300.0);

/// Prints a line for rows that share a workspace, and one for rows with copies of their own.
pub(crate) fn print(legwork: &Path, runs: usize) {
    println!("\n| {ROWS} rows of {TURNS} turns, {JOBS} at once | ideal    | takes                | memory   | aim");
    println!("|{0:-<38}|---------:|---------------------:|---------:|----------------------", "");
    for (title, tools, calls) in
        [("reading", "[glob]", "glob"), ("writing, each in a copy", "[glob, write_file]", "write_file")]
    {
        row(legwork, runs, title, tools, calls);
    }
}

fn row(legwork: &Path, runs: usize, title: &str, tools: &str, call: &'static str) {
    let server = Server::with(Checks::None, move |request: &Request| {
        std::thread::sleep(REPLY_TIME);
        let input = match call {
            "glob" => json!({"pattern": "*"}),
            _ => json!({"path": "note.txt", "content": format!("turn {}", request.turn())}),
        };
        match request.turn() + 1 < TURNS {
            true => Answer::calls(&[(call, input)]).number_calls(request.number),
            false => Answer::text("done"),
        }
    });
    let ideal = REPLY_TIME.as_secs_f64() * 1e3 * (ROWS * TURNS) as f64 / JOBS as f64;
    let (mut walls, mut memory) = (Vec::new(), 0.0_f64);
    for _ in 0..runs.clamp(1, 3) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("home")).expect("a home");
        let job = format!(
            "model: anthropic/claude-sonnet-4-5\ninputs: {{ n: {{ type: integer }} }}\nparent: {{ prompt: \"row {{{{ inputs.n }}}}\", \
             tools: {tools} }}\nlimits: {{ tokens: 1000000 }}\n"
        );
        std::fs::write(at("job.yaml"), job).expect("the job");
        let rows: String = std::iter::once("n\n".to_owned()).chain((0..ROWS).map(|row| format!("{row}\n"))).collect();
        std::fs::write(at("rows.csv"), rows).expect("the rows");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("--measure").arg(legwork).args([
            "map",
            "job.yaml",
            "--rows",
            "rows.csv",
            "--jobs",
            &JOBS.to_string(),
        ]);
        command.current_dir(folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", at("home"));
        // The home folder is in the workspace, so it can't hold the key.
        command.env("LEGWORK_RECORD_KEY", "the key of the benchmark's records");
        command.env("NO_PROXY", "127.0.0.1").env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
        match measure(&mut command) {
            Ok(figure) => {
                walls.push(figure.wall);
                memory = memory.max(figure.memory as f64 / 1e6);
            }
            Err(why) => return println!("| {title:<36} | {why}"),
        }
    }
    walls.sort_by(f64::total_cmp);
    let takes = walls[walls.len() / 2];
    let (times, megabytes) = AIMS;
    println!(
        "| {title:<36} | {ideal:>5.0} ms | {takes:>5.0} ms ({:>4.2} times) | {memory:>5.0} MB | {times} times, {megabytes} MB",
        takes / ideal
    );
}
