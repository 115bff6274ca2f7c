//! Runs that are stopped in every phase, and runs with unread output.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::running::run_failures::{assert_complete_record, wait_until};
use crate::running::runs::folder_with;
use crate::support::journal::checked_lines;
use crate::support::program::{ProgramOutput, RunningProgram};
use crate::support::record::RunFolder;
use crate::support::report_skipped;
use crate::support::server::{Answer, KEY, Request, ScriptedAgents, Server};
use crate::support::tcp_peer::{PeerBehaviour, TcpPeer};
use crate::support::test_folder::TestFolder;

const JOB: &str = "parent:\n  prompt: Go.\n  tools: [bash]\n";
const DELEGATING: &str =
    "parent:\n  prompt: Go.\n  tools: [task]\nsubagents:\n  a: { tools: [bash] }\n  b: { tools: [bash] }\n";

/// Two processes that only SIGKILL ends, one of them in its own session. Both hold `lock`.
const IGNORES_SIGNALS: &str = "exec 9>lock; flock -s 9; trap '' TERM INT HUP; \
                        setsid bash -c 'trap \"\" TERM INT HUP; touch one; sleep 301' & \
                        while ! [ -e one ]; do sleep 0.01; done; touch begun; sleep 302";

const SIGNALS: [(Signal, i32); 4] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 143)];

/// Whether the journal of the newest run contains a text.
fn wait_for_line(folder: &TestFolder, agent: &str, text: &str) {
    let name = if agent == "parent" { "events.jsonl".to_owned() } else { format!("subagents/{agent}.events.jsonl") };
    let journal = folder.at("runs/job/latest").join(name);
    wait_until(|| std::fs::read_to_string(&journal).is_ok_and(|lines| lines.contains(text)));
}

/// Asserts that no process holds the file `lock`, in any namespace or session.
pub(crate) fn assert_no_processes(folder: &TestFolder) {
    let lock = std::fs::File::open(folder.at("lock")).expect("a process has made it");
    wait_until(|| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
}

fn assert_interrupted(ended: &ProgramOutput, code: i32) -> RunFolder {
    ended.assert_code(code);
    let record = ended.run_folder();
    assert_complete_record(&record);
    let result = record.result();
    assert_eq!(
        (&result["outcome"], &result["exit_code"]),
        (&json!("interrupted"), &json!(code)),
        "{}",
        ended.full_output()
    );
    record
}

fn start(folder: &TestFolder, url: String) -> RunningProgram {
    folder.legwork(&["run", "job.yaml"]).env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", KEY).spawn()
}

/// A port whose connection queue is full: a further connection gets no answer, not even a refusal.
fn unresponsive_port() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // With the usual length of the queue, it would take many descriptors to fill it.
    rustix::net::listen(&listener, 1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(connection) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        waiting.push(connection);
        assert!(waiting.len() < 10_000, "the queue has no end");
    }
    (address, listener, waiting)
}

#[test]
fn a_signal_during_a_connect() {
    let (address, _listener, _waiting) = unresponsive_port();
    for (signal, code) in SIGNALS {
        let folder = folder_with(JOB);
        let running = start(&folder, format!("http://{address}"));
        wait_for_line(&folder, "parent", "\"request_started\"");
        running.signal(signal);
        assert_interrupted(&running.wait(), code);
    }
}

#[test]
fn a_signal_while_waiting_for_a_reply() {
    let peer = TcpPeer::start(PeerBehaviour::Silent);
    for (at, (signal, code)) in SIGNALS.into_iter().enumerate() {
        let folder = folder_with(JOB);
        let running = start(&folder, peer.url());
        peer.wait_for(at + 1);
        running.signal(signal);
        assert_interrupted(&running.wait(), code);
    }
}

/// Batch systems, timers and CPU limits send these signals, each of which ends a process by default.
#[test]
fn other_terminating_signals_count_as_sigterm() {
    let peer = TcpPeer::start(PeerBehaviour::Silent);
    let others = [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::XCPU]
        .into_iter()
        .enumerate();
    for (at, signal) in others {
        let folder = folder_with(JOB);
        let running = start(&folder, peer.url());
        peer.wait_for(at + 1);
        running.signal(signal);
        assert_interrupted(&running.wait(), 143);
    }
}

#[test]
fn a_signal_during_a_stream_discards_the_reply() {
    for (signal, code) in SIGNALS {
        let folder = folder_with(JOB);
        let server = Server::start(|_: &Request| {
            Answer::text("half of").then_call("bash", &json!({"command": "touch ran"})).cut_after_events(4).hang()
        });
        let running = start(&folder, server.url());
        server.wait_for(1);
        running.signal(signal);
        let record = assert_interrupted(&running.wait(), code);
        assert!(!folder.exists("ran") && record.result()["text"] == "");
        // The usage of the discarded reply is unknown. The run doesn't repeat the request.
        assert_eq!(server.count(), 1);
    }
}

#[test]
fn a_signal_during_a_backoff() {
    for (signal, code) in SIGNALS {
        let folder = folder_with(JOB);
        let server = Server::start(|_: &Request| {
            Answer::status(429).header("retry-after", "300").error("rate_limit_error", "slow down")
        });
        let running = start(&folder, server.url());
        wait_for_line(&folder, "parent", "\"retrying\"");
        running.signal(signal);
        assert_interrupted(&running.wait(), code);
        assert_eq!(server.count(), 1);
    }
}

#[test]
fn a_signal_during_a_tool_that_ignores_it() {
    for (signal, code) in SIGNALS {
        let folder = folder_with(JOB);
        let server = Server::start(|_: &Request| Answer::calls(&[("bash", json!({"command": IGNORES_SIGNALS}))]));
        let running = start(&folder, server.url());
        wait_until(|| folder.exists("begun"));
        running.signal(signal);
        let record = assert_interrupted(&running.wait(), code);
        assert_no_processes(&folder);
        let events = record.events();
        let finished = events.iter().find(|event| event["type"] == "call_finished").expect("the call has its answer");
        assert!(finished["data"]["result"]["text"].as_str().unwrap().contains("killed"), "{finished}");
        assert_eq!(server.count(), 1);
    }
}

#[test]
fn a_signal_while_subagents_run() {
    for (signal, code) in SIGNALS {
        let folder = folder_with(DELEGATING);
        let server = Server::start(|request: &Request| match request.prompt().as_str() {
            "Go." => Answer::calls(&[
                ("task", json!({"agent": "a", "prompt": "tool"})),
                ("task", json!({"agent": "b", "prompt": "wait"})),
            ]),
            "tool" => Answer::calls(&[("bash", json!({"command": IGNORES_SIGNALS}))]),
            _ => Answer::text("half").cut_after_events(2).hang(),
        });
        let running = start(&folder, server.url());
        server.wait_for(3);
        wait_until(|| folder.exists("begun"));
        running.signal(signal);
        let record = assert_interrupted(&running.wait(), code);
        assert_no_processes(&folder);
        let result = record.result();
        for child in ["a-1", "b-1"] {
            assert_eq!(record.events_of(child).last().unwrap()["type"], "agent_finished");
            assert!(record.summary(child).contains("outcome: interrupted"));
        }
        assert_eq!(result["subagents"].as_array().unwrap().len(), 2);
        assert_eq!(server.count(), 3);
    }
}

#[test]
fn a_signal_while_the_record_is_written_changes_nothing() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\n");
    let server = Server::start(|_: &Request| Answer::text(&"much to write <&>\n".repeat(4_000)));
    let running = start(&folder, server.url());
    wait_for_line(&folder, "parent", "\"run_finished\"");
    // The process may already have ended.
    let pid = Pid::from_raw(running.pid().cast_signed()).unwrap();
    let _ = kill_process(pid, Signal::TERM);
    let ended = running.wait();
    let journal = ended.run_folder().events();
    assert_eq!(journal.last().unwrap()["data"]["outcome"], "completed");
    if ended.run_folder().has("result.json") {
        assert_complete_record(&ended.run_folder());
        ended.assert_code(0);
    } else {
        // On a slow machine the result isn't written in time, but it isn't lost.
        ended.assert_code(143);
        folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0);
        assert_complete_record(&ended.run_folder());
    }
    assert_eq!(server.count(), 1);
}

/// A run that can't end by itself: one subagent is in a tool, and the program's output is unread.
fn blocked_run(folder: &TestFolder, server: &Server) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_legwork"))
        .args(["run", "job.yaml", "--format", "jsonl"])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_line(folder, "b-1", "\"reply_received\"");
    child
}

/// One subagent's tool doesn't end by itself. The other subagent's long text is sent when that tool has started.
fn busy_server(folder: &TestFolder) -> Server {
    let begun = folder.at("begun");
    Server::start(move |request: &Request| match request.prompt().as_str() {
        "Go." => Answer::calls(&[
            ("task", json!({"agent": "a", "prompt": "tool"})),
            ("task", json!({"agent": "b", "prompt": "loud"})),
        ]),
        "tool" => Answer::calls(&[("bash", json!({"command": IGNORES_SIGNALS}))]),
        _ => {
            wait_until(|| begun.exists());
            Answer::text(&"x".repeat(100_000))
        }
    })
}

#[test]
fn a_second_sigint_exits_at_once_and_kills_the_tools() {
    let folder = folder_with(DELEGATING);
    let server = busy_server(&folder);
    let mut child = blocked_run(&folder, &server);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).unwrap();
    let status = format!("/proc/{}/status", child.id());
    wait_until(|| {
        let pending = std::fs::read_to_string(&status).unwrap_or_default();
        let pending: Vec<&str> = pending.lines().filter(|line| line.contains("Pnd:")).collect();
        pending.iter().all(|line| line.ends_with("0000"))
    });
    kill_process(pid, Signal::INT).unwrap();
    // Without the second signal, the exit code would be the same as after the first.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_no_processes(&folder);
    // The exit may cut off the line that is being written, and nothing else.
    for name in ["events.jsonl", "subagents/b-1.events.jsonl"] {
        let text = folder.read(&format!("runs/job/latest/{name}"));
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        assert!(!checked_lines(name, &text[..end]).is_empty());
    }
}

#[test]
fn one_signal_ends_a_blocked_run_and_its_tools() {
    let folder = folder_with(DELEGATING);
    let server = busy_server(&folder);
    let mut child = blocked_run(&folder, &server);
    // The signal isn't SIGHUP, because the run ignores that one under `nohup`.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    wait_until(|| child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_no_processes(&folder);
}

/// The program with an unread stdout pipe.
fn run_with_unread_stdout(folder: &TestFolder, server: &Server, format: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_legwork"))
        .args(["run", "job.yaml", "--format", format])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(mut child: Child) -> (Option<i32>, String) {
    wait_until(|| child.try_wait().unwrap().is_some());
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

/// Each reply alone is larger than the capacity of a pipe.
#[test]
fn the_wall_clock_applies_while_output_is_blocked() {
    let folder =
        folder_with("parent:\n  prompt: Go.\n  tools: [todo]\n  max_turns: 1000\nlimits: { wall_clock: 2s }\n");
    let server = Server::start(|_: &Request| {
        let todo = json!({"items": [{"text": "more", "status": "pending"}]});
        Answer::calls(&[("todo", todo)]).then_block(json!({"type": "text", "text": "x".repeat(300_000)}))
    });
    let (code, text) = ended(run_with_unread_stdout(&folder, &server, "jsonl"));
    assert_eq!(code, Some(4), "{text}");
    let record = RunFolder::new(folder.at("runs/job/latest").canonicalize().unwrap());
    assert_complete_record(&record);
    assert_eq!(record.result()["outcome"], "timed_out");
    // After the first megabyte, the agent waits for the reader.
    assert!(server.count() < 8, "{}", server.count());
}

#[test]
fn writing_an_unread_answer_times_out() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\nlimits: { wall_clock: 8s }\n");
    let server = Server::start(|_: &Request| Answer::text(&"x".repeat(300_000)));
    let (code, text) = ended(run_with_unread_stdout(&folder, &server, "text"));
    let record = RunFolder::new(folder.at("runs/job/latest").canonicalize().unwrap());
    if record.result()["outcome"] == "timed_out" {
        // If the machine is too slow to finish a single reply in that time, the output fits into the pipe.
        assert_eq!(code, Some(4), "{text}");
        return;
    }
    assert_eq!(record.result()["outcome"], "completed");
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("stalled until the run's time was up"), "{text}");
}

/// Runs a shell script in which `$LEGWORK` is the path of the program.
fn in_a_shell(folder: &TestFolder, line: &str, server: &Server) -> ProgramOutput {
    folder.program("bash", &["-c", line]).anthropic(server).env("LEGWORK", env!("CARGO_BIN_EXE_legwork")).run()
}

#[test]
fn closed_outputs_neither_panic_nor_lose_the_record() {
    for closed in [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "--format jsonl >&- 2>&-", "--format json >&-"] {
        let folder = folder_with(JOB);
        let server = Server::start(ScriptedAgents::of([
            Answer::calls(&[("bash", json!({"command": "echo out; echo err >&2; cat"}))]),
            Answer::text("Done."),
        ]));
        let ended = in_a_shell(&folder, &format!("\"$LEGWORK\" run job.yaml {closed}"), &server);
        ended.assert_code(0).assert_not_printed("panicked");
        let record = ended.run_folder();
        assert_complete_record(&record);
        assert_eq!(record.result()["outcome"], "completed", "{closed}");
        let events = record.events();
        let result = events.iter().find(|event| event["type"] == "call_finished").unwrap();
        assert_eq!(result["data"]["result"]["text"], "out\nerr", "{closed}: no output went astray");
        server.finish();
    }
}

#[test]
fn a_closed_pipe_changes_neither_the_record_nor_the_exit_code() {
    for format in ["text", "json", "jsonl"] {
        let folder = folder_with(JOB);
        let server = Server::start(ScriptedAgents::of([Answer::text(&"long\n".repeat(20_000))]));
        let line = format!("\"$LEGWORK\" run job.yaml --format {format} | head -c 1; exit ${{PIPESTATUS[0]}}");
        let ended = in_a_shell(&folder, &line, &server);
        ended.assert_code(0).assert_not_printed("panicked");
        assert_complete_record(&ended.run_folder());
        assert_eq!(ended.run_folder().result()["outcome"], "completed");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_not_a_success() {
    if !std::path::Path::new("/dev/full").exists() {
        report_skipped("there is no /dev/full");
        return;
    }
    for (line, code) in [
        ("run job.yaml >/dev/full", 5),
        ("run job.yaml --format json >/dev/full", 5),
        ("run job.yaml --format jsonl >/dev/full", 5),
        ("run job.yaml --dry-run >/dev/full", 5),
        ("schema >/dev/full", 5),
        ("run job.yaml 2>/dev/full", 0),
        // The earlier failure takes precedence.
        ("run job.yaml --set nothing=1 >/dev/full 2>/dev/full", 3),
    ] {
        let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\nlimits: { cost_usd: 1 }\n");
        let server = Server::start(|_: &Request| Answer::text("Done."));
        let ended = in_a_shell(&folder, &format!("\"$LEGWORK\" {line}"), &server);
        ended.assert_code(code).assert_not_printed("panicked");
        if code == 5 {
            ended.assert_stderr_contains("can't write to stdout").assert_stderr_contains("No space left");
        }
        if line.starts_with("run") && !line.contains("--dry-run") && code != 3 {
            assert_complete_record(&ended.run_folder());
            assert_eq!(ended.run_folder().result()["outcome"], "completed", "{line}");
        }
    }
}

#[test]
fn exceeding_the_file_size_limit_is_an_error_and_not_a_signal() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: []\n");
    let server = Server::start(|_: &Request| Answer::text(&"x".repeat(300_000)));
    let ended = in_a_shell(&folder, "ulimit -f 100; \"$LEGWORK\" run job.yaml", &server);
    ended.assert_code(5).assert_stderr_contains("can't be written").assert_stderr_contains("File too large");
    let record = ended.run_folder();
    assert_eq!(record.result()["outcome"], "environment_failed");
    // The incomplete line at the end of the file is cut off when the journal is read.
    assert!(record.file("events.jsonl").len() <= 100 * 1024);

    let mut child = Command::new("bash")
        .args(["-c", "ulimit -f 0; exec \"$LEGWORK\" run job.yaml --out small"])
        .current_dir(folder.path())
        .env("LEGWORK", env!("CARGO_BIN_EXE_legwork"))
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", KEY)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5), "{text}");
    assert!(text.contains("--out") && text.contains("File too large"), "{text}");
    assert_eq!(server.count(), 1, "only the first run came to a request");
    assert!(!folder.exists("small"), "an empty .gitignore would let git see later records");
}

/// The model that reads it may be another process, after a resume.
#[test]
fn a_call_that_a_signal_ended_is_told_that_its_effect_is_unknown() {
    let wait = json!({ "calls": [{ "tool": "bash", "input": { "command": ": > started; sleep 300" } }] });
    let task = json!({ "calls": [{ "tool": "task", "input": { "prompt": "Look." } }] });
    let done = json!({ "text": "Done." });
    let parent = (json!({ "parent": [wait, done] }), "[bash]", "run");
    let subagent = (json!({ "parent": [task, done], "subagents": { "a-1": [wait, done] } }), "[task]", "run");
    let row = (json!({ "parent": [wait, done] }), "[bash]", "map");
    for (replies, tools, command) in [parent, subagent, row] {
        for signal in [Signal::TERM, Signal::INT] {
            let folder = TestFolder::new();
            let job = "model: replay/r.yaml\ninputs: { n: { type: string, default: x } }\n";
            let subagents = if tools == "[task]" { "subagents: { a: { tools: [bash] } }\n" } else { "" };
            folder.write(
                "job.yaml",
                format!("{job}{subagents}parent: {{ prompt: '{{{{ inputs.n }}}}', tools: {tools} }}\n"),
            );
            folder.write("r.yaml", replies.to_string()).write("rows.csv", "n\nr1\n");
            let arguments = ["map", "job.yaml", "--rows", "rows.csv", "--id", "n", "--isolate", "none"];
            let arguments = if command == "map" { &arguments[..] } else { &["run", "job.yaml"] };
            let running = folder.legwork(arguments).spawn();
            folder.wait_for("started");
            running.signal(signal);
            let ended = running.wait();
            assert!(!ended.exited_with(0), "{}", ended.full_output());
            let record = if command == "map" { "runs/job/map-rows/rows/r1" } else { "runs/job/latest" };
            let journal = if tools == "[task]" { "subagents/a-1.events.jsonl" } else { "events.jsonl" };
            let journal = folder.read(&format!("{record}/{journal}"));
            let result =
                journal.lines().find(|line| line.contains("\"call_finished\"")).unwrap_or_else(|| panic!("{journal}"));
            assert!(result.contains("killed: the run was cancelled. Its effect is unknown"), "{result}");
        }
    }
}
