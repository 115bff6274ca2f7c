//! Time in which legwork can't run, because its process was stopped or the machine slept, counts for no limit.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::models::user_servers::{configure, server_config};
use crate::running::run_failures::wait_until;
use crate::running::runs::folder_with;
use crate::support::program::{ProgramOutput, RunningProgram};
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

/// Stops a program for some time.
fn suspend(program: &RunningProgram, milliseconds: u64) {
    program.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(milliseconds));
    program.signal(Signal::CONT);
    // It notices before it is stopped again.
    std::thread::sleep(Duration::from_millis(400));
}

/// A run whose bash command waits for a file, and which is suspended five times meanwhile for less than two seconds.
fn run_suspended_often(job: &str, check: &str) -> (TestFolder, ProgramOutput) {
    let folder = TestFolder::new();
    folder.write("job.yaml", format!("model: replay/r.yaml\nparent: {{ prompt: Go., tools: [bash] }}\n{job}"));
    let wait = ": > started; until [ -e go ]; do sleep 0.05; done";
    let replies = match check {
        "" => json!([{ "calls": [{ "tool": "bash", "input": { "command": wait } }] }, { "text": "Done." }]),
        _ => json!([{ "text": "Done." }]),
    };
    folder.write("r.yaml", json!({ "parent": replies }).to_string()).write("wait.sh", wait);
    let running = folder.legwork(&["run", "job.yaml"]).spawn();
    folder.wait_for("started");
    (0..5).for_each(|_| suspend(&running, 1_900));
    folder.write("go", "");
    let ended = running.wait();
    (folder, ended)
}

#[test]
fn short_suspensions_count_for_no_limit_of_a_run_or_a_call() {
    let job = "limits: { wall_clock: 8s }\n";
    let (_folder, ended) = run_suspended_often(job, "");
    ended.assert_code(0).assert_stdout("Done.\n");
    let milliseconds = ended.run_folder().result()["duration_ms"].as_u64().unwrap();
    assert!(milliseconds < 8_000, "it ran for {milliseconds} ms");
}

#[test]
fn a_suspension_counts_for_no_timeout_of_a_check() {
    let check = "checks: [{ name: waits, run: bash wait.sh, timeout: 8s }]\n";
    let (_folder, ended) = run_suspended_often(check, "wait.sh");
    ended.assert_code(0);
    assert_eq!(ended.run_folder().result()["checks"][0]["passed"], true);
}

#[test]
fn a_request_that_was_under_way_is_not_sent_again_after_a_suspension() {
    for timeouts in ["first_byte = \"4s\"", "total = \"4s\""] {
        let folder = folder_with("parent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n");
        let late = |_: &Request| Answer::text("Once.").delay(Duration::from_millis(6_200));
        let server = Server::with(Checks::None, late);
        configure(&folder, &server_config("anthropic", &server.url(), &format!("timeouts = {{ {timeouts} }}")));
        let program = folder.legwork(&["run", "job.yaml", "--model", "local/some-model"]);
        let running = program.env("LEGWORK_RETRY_BASE_MS", "1").spawn();
        wait_until(|| server.count() == 1);
        suspend(&running, 5_500);
        running.wait().assert_code(0).assert_stdout("Once.\n");
        assert_eq!(server.count(), 1, "{timeouts}");
    }
}

/// After the suspension, the first part is killed: before or after another event.
#[test]
fn a_resume_does_not_count_the_suspensions_of_the_part_before() {
    for has_event in [false, true] {
        let folder = TestFolder::new();
        let job = "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\nlimits: { wall_clock: 12s }\n";
        folder.write("job.yaml", job);
        let wait = |name: &str| {
            let command = format!(": > {name}-started; until [ -e {name}-go ]; do sleep 0.05; done");
            json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] })
        };
        folder.write("r.yaml", json!({ "parent": [wait("a"), wait("b"), { "text": "Done." }] }).to_string());
        let running = folder.legwork(&["run", "job.yaml"]).spawn();
        folder.wait_for("a-started");
        suspend(&running, 12_000);
        if has_event {
            folder.write("a-go", "").wait_for("b-started");
        }
        // The lease says that it is alive.
        std::thread::sleep(Duration::from_millis(1_500));
        running.signal(Signal::KILL);
        running.wait();
        let listed = folder.legwork(&["runs", "--format", "json"]).run().json();
        let milliseconds = listed["runs"][0]["duration_ms"].as_u64().unwrap_or_else(|| panic!("{listed}"));
        assert!((1_000..11_000).contains(&milliseconds), "{milliseconds} ms, {has_event}");
        folder.write("a-go", "").write("b-go", "");
        folder.legwork(&["resume", "latest"]).run().assert_code(0).assert_stdout("Done.\n");
    }
}
