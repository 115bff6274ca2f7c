//! Runs that fail because of keys, endpoints, time limits, signals or disks.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::running::runs::folder_with;
use crate::support::report_skipped;
use crate::support::server::{Answer, Request, ScriptedAgents, Server};
use crate::support::tcp_peer::ClosedPort;
use crate::support::test_folder::TestFolder;

const JOB: &str = "parent:\n  prompt: Go.\n  tools: [bash]\n";

/// Asserts that a run that ended early has every file of a complete record.
pub(crate) fn assert_complete_record(record: &crate::support::record::RunFolder) {
    for file in ["job.yaml", "plan.json", "events.jsonl", "transcript.md", "report.html", "result.json"] {
        assert!(record.has(file), "{file}");
    }
    assert_eq!(record.events().last().unwrap()["type"], "run_finished");
}

#[test]
fn a_missing_key_is_reported_before_anything_else() {
    let folder = folder_with(JOB);
    for value in [None, Some("")] {
        let mut program = folder.legwork(&["run", "job.yaml"]);
        if let Some(value) = value {
            program = program.env("ANTHROPIC_API_KEY", value);
        }
        program.run().assert_code(5).assert_stdout("").assert_stderr_contains("ANTHROPIC_API_KEY");
    }
    assert_eq!(folder.list(), ["job.yaml"], "nothing was written");
}

/// The disk isn't full.
#[test]
fn a_record_that_a_command_removes_is_named_as_removed() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
    folder.write("s.yaml", "parent:\n  - calls: [{ tool: bash, input: { command: rm -rf runs } }]\n  - text: done\n");
    let run = folder.legwork(&["run", "job.yaml", "--model", "replay/s.yaml", "--sandbox", "off"]).run();
    run.assert_code(5).assert_stderr_contains("deleted or changed the record").assert_not_printed("disk space");
}

#[test]
fn a_rejected_key_is_final_and_never_shown() {
    let folder = folder_with(JOB);
    let server = Server::start(|_: &Request| Answer::status(401).error("authentication_error", "invalid x-api-key"));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended
        .assert_code(5)
        .assert_stdout("")
        .assert_stderr_contains("invalid x-api-key")
        .assert_stderr_contains("ANTHROPIC_API_KEY");
    let record = ended.run_folder();
    assert_complete_record(&record);
    let result = record.result();
    assert_eq!(result["outcome"], "provider_rejected");
    assert_eq!(result["error"]["code"], "provider_rejected");
    assert_eq!(server.count(), 1);
    record.assert_absent(crate::support::server::KEY);
    ended.assert_not_printed(crate::support::server::KEY);
}

#[test]
fn an_unreachable_endpoint_is_a_temporary_failure() {
    let folder = folder_with(JOB);
    let closed = ClosedPort::hold();
    let port = closed.address().port();
    let ended = folder
        .legwork(&["run", "job.yaml"])
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"))
        .env("ANTHROPIC_API_KEY", "k-0123456789")
        .env("LEGWORK_RETRY_BASE_MS", "1")
        .run();
    ended.assert_code(75).assert_stderr_contains(&format!("127.0.0.1:{port}"));
    let record = ended.run_folder();
    assert_complete_record(&record);
    assert_eq!(record.result()["outcome"], "provider_failed");
    assert!(record.events().iter().any(|event| event["type"] == "retrying"));
}

#[test]
fn throttled_requests_are_retried() {
    let folder = folder_with(JOB);
    let server = Server::start(ScriptedAgents::of([
        Answer::status(429).header("retry-after", "0").error("rate_limit_error", "slow down"),
        Answer::status(529).error("overloaded_error", "busy"),
        Answer::text("lost").cut_after_events(3),
        Answer::text("There."),
    ]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("LEGWORK_RETRY_BASE_MS", "1").run();
    ended.assert_code(0).assert_stdout("There.\n");
    server.finish();
    assert_eq!(ended.run_folder().events().iter().filter(|event| event["type"] == "retrying").count(), 3);
}

#[test]
fn a_subagent_whose_provider_fails_ends_the_run() {
    let folder =
        folder_with("parent:\n  prompt: Go.\n  tools: [task]\nsubagents:\n  a: { tools: [] }\n  b: { tools: [] }\n");
    let server = Server::start(|request: &Request| match request.prompt().as_str() {
        "Go." => Answer::calls(&[
            ("task", json!({"agent": "a", "prompt": "slow"})),
            ("task", json!({"agent": "b", "prompt": "bad"})),
        ]),
        "slow" => Answer::empty().hang(),
        _ => Answer::status(403).error("permission_error", "not yours"),
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(5).assert_stderr_contains("not yours");
    let result = ended.run_folder().result();
    assert_eq!(result["outcome"], "provider_rejected");
    assert_eq!(result["subagents"][0]["outcome"], "interrupted");
    assert_eq!(result["subagents"][1]["outcome"], "provider_rejected");
    assert_complete_record(&ended.run_folder());
}

#[test]
fn the_wall_clock_stops_a_request_and_a_tool() {
    let job = format!("{JOB}limits: {{ wall_clock: 1s }}\n");
    let folder = folder_with(&job);
    let server = Server::start(|_: &Request| Answer::empty().hang());
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(4).assert_stderr_contains("limits.wall_clock");
    assert_eq!(ended.run_folder().result()["outcome"], "timed_out");

    let folder = folder_with(&job);
    let server = Server::start(|_: &Request| Answer::calls(&[("bash", json!({"command": "sleep 60"}))]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(4);
    assert_eq!(ended.run_folder().result()["outcome"], "timed_out");
    assert_eq!(server.count(), 1);
}

#[test]
fn a_signal_ends_the_run_with_its_record_closed() {
    let in_a_tool = |_: &Request| Answer::calls(&[("bash", json!({"command": "touch begun; sleep 61"}))]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let folder = folder_with(JOB);
        let server = Server::start(|_: &Request| Answer::empty().hang());
        let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
        server.wait_for(1);
        running.signal(signal);
        let ended = running.wait();
        ended.assert_code(code);
        assert_complete_record(&ended.run_folder());
        let result = ended.run_folder().result();
        assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("interrupted"), &json!(code)));

        let folder = folder_with(JOB);
        let server = Server::start(in_a_tool);
        let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
        wait_until(|| folder.exists("begun"));
        running.signal(signal);
        let ended = running.wait();
        ended.assert_code(code);
        assert_complete_record(&ended.run_folder());
    }
}

pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(180), "it didn't happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_impossible_out_folder_is_an_environment_failure() {
    let folder = folder_with(JOB);
    folder.write("file", "x");
    let server = Server::start(ScriptedAgents::of([]));
    let ended = folder.legwork(&["run", "job.yaml", "--out", "file"]).anthropic(&server).run();
    ended.assert_code(5).assert_stdout("").assert_stderr_contains("--out");
    assert_eq!(server.count(), 0);
}

#[test]
fn a_journal_that_cannot_be_written_stops_the_run_before_the_next_step() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/job.script.yaml\nparent: { prompt: Go., tools: [bash] }\n");
    folder.write(
        "job.script.yaml",
        "parent:\n  - calls: [{ tool: bash, input: { command: 'head -c 40000 /dev/zero | tr \"\\0\" x' } }]\n  \
         - calls: [{ tool: bash, input: { command: touch later } }]\n  - text: ok\n",
    );
    // With the signal ignored, a limit on the file size fails a write like a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 32; exec {} run job.yaml", env!("CARGO_BIN_EXE_legwork"));
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("can't be written"), "{stderr}");
    assert!(!folder.exists("later"));
    let record = crate::support::record::RunFolder::new(folder.at("runs/job/latest").canonicalize().unwrap());
    assert_eq!(record.result()["outcome"], "environment_failed");
}

#[test]
fn the_result_is_written_on_a_full_disk() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/job.script.yaml\nparent: { prompt: Go., tools: [bash] }\n");
    folder.write(
        "job.script.yaml",
        "parent:\n  - calls: [{ tool: bash, input: { command: 'cat /dev/zero >disk/fill; head -c 20000 /dev/zero | tr \"\\0\" x' } }]\n  \
         - calls: [{ tool: bash, input: { command: touch later } }]\n  - text: ok\n",
    );
    std::fs::create_dir(folder.at("disk")).unwrap();
    // The disk has one megabyte, is visible only in this shell, and disappears with it.
    let mount = "mount -t tmpfs -o size=1m none disk";
    let alone = |script: &str| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["-rm", "sh", "-c", script]).current_dir(folder.path()).env_clear();
        unshare.env("PATH", std::env::var_os("PATH").unwrap()).output()
    };
    if !alone(mount).is_ok_and(|output| output.status.success()) {
        report_skipped("no file system can be mounted here");
        return;
    }
    let program = env!("CARGO_BIN_EXE_legwork");
    let output = alone(&format!(
        "{mount}; {program} run job.yaml --out disk/runs; code=$?; cp disk/runs/job/latest/result.json .; \
         ls -A disk/runs/job/latest/ >list; exit $code"
    ));
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(!folder.exists("later"));
    let result: serde_json::Value = serde_json::from_str(&folder.read("result.json")).unwrap();
    assert_eq!(result["outcome"], "environment_failed");
    let mut files: Vec<String> = folder.read("list").lines().map(str::to_owned).collect();
    files.retain(|file| {
        !["events.jsonl", "job.yaml", "plan.json", "result.json", "workspace.start"].contains(&file.as_str())
    });
    files.retain(|file| !["transcript.md", "report.html"].contains(&file.as_str()));
    assert_eq!(files, [""; 0], "nothing else stays behind");
    assert_eq!(stderr.matches("environment_failed").count(), 1, "{stderr}");
    assert!(stderr.contains("No space left"), "{stderr}");
}

#[test]
fn blocked_output_neither_panics_nor_loses_the_record() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\n");
    let server = Server::start(ScriptedAgents::of([Answer::text(&"long\n".repeat(100_000))]));
    let program = env!("CARGO_BIN_EXE_legwork");
    let status = std::process::Command::new("sh")
        .args(["-c", &format!("{program} run job.yaml 2>&1 | head -c 1 >/dev/null")])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", crate::support::server::KEY)
        .status()
        .unwrap();
    assert!(status.success());
    let record = crate::support::record::RunFolder::new(folder.at("runs/job/latest").canonicalize().unwrap());
    assert_complete_record(&record);
    assert_eq!(record.result()["outcome"], "completed");
}

#[test]
fn a_deleted_record_stops_the_run_and_is_not_partly_recreated() {
    let folder = folder_with(JOB);
    let runs = folder.at("runs/job");
    let server = Server::start(move |_: &Request| {
        let _ = std::fs::remove_dir_all(&runs);
        Answer::calls(&[("bash", json!({"command": "touch ran"}))])
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(5).assert_stderr_contains("record");
    assert_eq!(server.count(), 1);
    assert!(!folder.exists("ran") && !folder.exists("runs/job"));
}

#[test]
fn usage_of_a_failed_attempt_counts_in_a_stopped_run() {
    let folder = folder_with(JOB);
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |_: &Request| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Answer::text("lost").cut_after_events(3),
        _ => Answer::empty().hang(),
    });
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("LEGWORK_RETRY_BASE_MS", "1").spawn();
    server.wait_for(2);
    running.signal(Signal::TERM);
    let ended = running.wait();
    ended.assert_code(143);
    assert_eq!(ended.run_folder().result()["usage"]["input_tokens"], 12);
}

#[test]
fn a_signal_ends_a_run_with_blocked_output() {
    let folder = folder_with(JOB);
    let server = Server::start(|_: &Request| {
        let long = "x".repeat(200_000);
        Answer::calls(&[("bash", json!({"command": "true"}))]).then_block(json!({"type": "text", "text": long}))
    });
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_legwork"))
        .args(["run", "job.yaml", "--format", "jsonl"])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", crate::support::server::KEY)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    server.wait_for(1);
    // The run's own reply no longer fits into the pipe, so the run writes it to the journal and then blocks.
    let journal = folder.at("runs/job/latest/events.jsonl");
    wait_until(|| std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"reply_received\"")));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    wait_until(|| child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_killed_run_shows_the_interrupted_call() {
    let folder = folder_with(JOB);
    let server = Server::start(|_: &Request| Answer::calls(&[("bash", json!({"command": "touch begun; sleep 62"}))]));
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).spawn();
    wait_until(|| folder.exists("begun"));
    running.signal(Signal::KILL);
    running.wait();
    let shown = folder.legwork(&["show", "latest"]).run();
    shown
        .assert_code(0)
        .assert_stdout_contains("# job: not finished")
        .assert_stdout_contains("### bash `touch begun; sleep 62` (not finished)")
        .assert_stdout_contains("touch begun");
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\n");
    let (told, go_on) = std::sync::mpsc::channel::<()>();
    let go_on = std::sync::Mutex::new(go_on);
    let server = Server::start(move |_: &Request| {
        let _ = go_on.lock().unwrap().recv_timeout(Duration::from_secs(120));
        Answer::text("Still here.")
    });
    let mut child = std::process::Command::new("sh")
        .args(["-c", &format!("trap '' HUP; exec {} run job.yaml", env!("CARGO_BIN_EXE_legwork"))])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", crate::support::server::KEY)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    server.wait_for(1);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::HUP).unwrap();
    told.send(()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// As under `docker exec`, the session leader is outside of the PID namespace, so its id is 0.
#[cfg(target_os = "linux")]
#[test]
fn commands_are_killed_completely_in_another_pid_namespace() {
    let folder = folder_with(JOB);
    let inside = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--"];
    let probe = std::process::Command::new("unshare").args(inside).arg("true").output();
    if !probe.is_ok_and(|ended| ended.status.success()) {
        report_skipped("no new namespace of processes here; `tools::ancestry` has the only test");
        return;
    }
    folder.write(
        "replies.yaml",
        "parent:\n  - calls: [{ tool: bash, input: { command: setsid sleep 300 & echo begun } }]\n  - text: Over.\n",
    );
    let executable = env!("CARGO_BIN_EXE_legwork");
    let arguments = inside.into_iter().chain([executable, "run", "job.yaml", "--model", "replay/replies.yaml"]);
    let ended = folder.program("unshare", &arguments.collect::<Vec<_>>()).run();
    ended.assert_code(0).assert_stdout("Over.\n");
    let events = ended.run_folder().events();
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "call_finished").collect();
    assert!(results.len() == 1 && results[0]["data"]["result"]["is_error"] != true, "{events:#?}");
}

#[test]
fn a_run_whose_parent_process_exits_ends_like_sigterm() {
    let folder = folder_with(JOB);
    let server = Server::start(|_: &Request| Answer::empty().hang());
    let line = format!("{} run job.yaml & while ! [ -e go ]; do sleep 0.02; done", env!("CARGO_BIN_EXE_legwork"));
    let shell = folder.program("sh", &["-c", &line]).anthropic(&server).spawn();
    server.wait_for(1);
    folder.write("go", "");
    // The shell has ended, but its children keep the pipes open until they end.
    let ended = shell.wait();
    ended.assert_code(0);
    let result = ended.run_folder().result();
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("interrupted"), &json!(143)));
}
