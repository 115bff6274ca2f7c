//! Measures `legwork map`: a thousand rows of three turns each, a hundred at once, compared with the time that the replies
//! alone take, and with a program that only makes the same requests and writes files of the same sizes. That program has no
//! checks and flushes nothing, so it shows what the server, which shares the processors, and the file system take. Both also
//! run in a folder in memory, where the disk doesn't count.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::aims;
use crate::baseline::{connect, request_reply};
use crate::measure::{Measurement, measure};
use crate::server::{Answer, Checks, KEY, Request, Server};

const ROWS: usize = 1_000;
const TURNS: usize = 3;
const JOBS: usize = 100;
/// How long the server waits with each reply.
const REPLY_TIME: Duration = Duration::from_millis(50);
/// The aims: wall time as a multiple of the ideal, and peak memory in MB.
const AIMS: (f64, f64) = (1.3, 300.0);
/// As long as legwork's own system prompt and its tools.
const SYSTEM_BYTES: usize = 2_000;

/// Prints a line for rows that share a workspace, and one for rows with copies of their own. Returns the folders with the
/// records, to be removed after all other measurements: on some file systems, new files take long to create for minutes
/// after many others were removed.
pub(crate) fn print(legwork: &Path, runs: usize) -> Vec<TempDir> {
    println!(
        "\n| {ROWS} rows of {TURNS} turns, {JOBS} at once | ideal    | takes                | CPU      | memory   | bare client | its CPU  | aim"
    );
    println!(
        "|{0:-<38}|---------:|---------------------:|---------:|---------:|------------:|---------:|----------------------",
        ""
    );
    let mut folders = Vec::new();
    let disk = std::env::temp_dir();
    let memory = Path::new("/dev/shm");
    let places = [("", disk.as_path()), (", in memory", memory)];
    for (place, above) in places.into_iter().filter(|(_, above)| above.is_dir()) {
        for (title, tools, call) in
            [("reading", "[glob]", "glob"), ("writing, each in a copy", "[glob, write_file]", "write_file")]
        {
            row(legwork, runs, &format!("{title}{place}"), tools, call, &mut || {
                let folder = tempfile::tempdir_in(above).expect("a temporary folder");
                let path = folder.path().to_owned();
                folders.push(folder);
                path
            });
        }
    }
    folders
}

/// Measures maps and the bare client in new folders.
fn row(
    legwork: &Path,
    runs: usize,
    title: &str,
    tools: &str,
    call: &'static str,
    new_folder: &mut dyn FnMut() -> PathBuf,
) {
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
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..runs.clamp(1, 3) {
        let folder = new_folder();
        match map(legwork, &folder, tools, &server) {
            Ok(figure) => ours.push(figure),
            Err(why) => return println!("| {title:<36} | {why}"),
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("--measure").arg(std::env::current_exe().expect("this program"));
        command.arg("--map-baseline").arg(server.address().to_string()).arg(&folder);
        match measure(&mut command) {
            Ok(figure) => bare.push(figure),
            Err(why) => return println!("| {title:<36} | the bare client {why}"),
        }
    }
    let median = |figures: &[Measurement], value: fn(&Measurement) -> f64| crate::median(figures.iter().map(value));
    let (takes, cpu) = (median(&ours, |figure| figure.wall), median(&ours, |figure| figure.cpu));
    let (bare, bare_cpu) = (median(&bare, |figure| figure.wall), median(&bare, |figure| figure.cpu));
    let memory = ours.iter().map(|figure| figure.memory).max().unwrap_or_default() as f64 / 1e6;
    let (times, megabytes) = AIMS;
    if call == "glob" {
        aims::at_most(&format!("{ROWS} rows, {title}, as a multiple of the ideal"), times, takes / ideal, "times");
        aims::at_most(&format!("{ROWS} rows, {title}: memory"), megabytes, memory, "MB");
    }
    println!(
        "| {title:<36} | {ideal:>5.0} ms | {takes:>5.0} ms ({:>4.2} times) | {cpu:>5.0} ms | {memory:>5.0} MB | {bare:>8.0} ms | {bare_cpu:>5.0} ms | {times} times, {megabytes} MB",
        takes / ideal
    );
}

/// Runs the map once in a folder.
fn map(legwork: &Path, folder: &Path, tools: &str, server: &Server) -> Result<Measurement, String> {
    let at = |name: &str| folder.join(name);
    fs::create_dir(at("home")).expect("a home");
    let job = format!(
        "model: anthropic/claude-sonnet-4-5\ninputs: {{ n: {{ type: integer }} }}\nparent: {{ prompt: \"row {{{{ inputs.n }}}}\", \
         tools: {tools} }}\nlimits: {{ tokens: 1000000 }}\n"
    );
    fs::write(at("job.yaml"), job).expect("the job");
    let rows: String = std::iter::once("n\n".to_owned()).chain((0..ROWS).map(|row| format!("{row}\n"))).collect();
    fs::write(at("rows.csv"), rows).expect("the rows");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("--measure").arg(legwork).args(["map", "job.yaml", "--rows", "rows.csv", "--jobs", &JOBS.to_string()]);
    command.current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", at("home"));
    // The home folder is in the workspace, so it can't hold the key.
    command.env("LEGWORK_RECORD_KEY", "the key of the benchmark's records");
    command.env("NO_PROXY", "127.0.0.1").env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
    measure(&mut command)
}

/// Makes the requests of a map that has run in a folder, and writes files as large as those of one of its rows for each row,
/// after a copy of the workspace if the rows changed one.
pub(crate) fn baseline(address: &str, folder: &Path) {
    let rows = folder.join("runs/job/map-rows/rows");
    let record = fs::read_dir(&rows).expect("the rows").next().expect("a row").expect("a row").path();
    let files: Vec<(std::ffi::OsString, Vec<u8>)> = fs::read_dir(record)
        .expect("a record")
        .map(|entry| entry.expect("a file"))
        .map(|entry| (entry.file_name(), fs::read(entry.path()).expect("a file")))
        .collect();
    let has_changes = files.iter().any(|(name, _)| name == "changes.patch");
    let (out, next) = (folder.join("bare"), AtomicUsize::new(0));
    fs::create_dir(&out).expect("a folder");
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                let mut stream = connect(address);
                loop {
                    let row = next.fetch_add(1, Ordering::Relaxed);
                    if row >= ROWS {
                        break;
                    }
                    let copy = has_changes.then(|| copy_workspace(folder, &out.join(format!("copy-{row}"))));
                    let mut body = format!(
                        r#"{{"model":"claude-sonnet-4-5","max_tokens":8000,"stream":true,"system":"{}","messages":[{{"role":"user","content":"row {row}"}}"#,
                        "x".repeat(SYSTEM_BYTES)
                    );
                    loop {
                        let (_, calls) = request_reply(&mut stream, &body);
                        let Some(call) = calls.first() else { break };
                        if let Some(copy) = &copy {
                            fs::write(copy.join("note.txt"), &call.input).expect("a file");
                        }
                        let (id, tool, input) = (&call.id, &call.tool, &call.input);
                        body.push_str(&format!(
                            r#",{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"{tool}","input":{input}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"done"}}]}}"#
                        ));
                    }
                    let record = out.join(row.to_string());
                    fs::create_dir(&record).expect("a folder");
                    files.iter().for_each(|(name, bytes)| fs::write(record.join(name), bytes).expect("a file"));
                    if let Some(copy) = copy {
                        fs::remove_dir_all(copy).expect("no copy");
                    }
                }
            });
        }
    });
}

fn copy_workspace(folder: &Path, copy: &Path) -> PathBuf {
    fs::create_dir(copy).expect("a folder");
    for name in ["job.yaml", "rows.csv"] {
        fs::copy(folder.join(name), copy.join(name)).expect("a copy");
    }
    copy.to_owned()
}
