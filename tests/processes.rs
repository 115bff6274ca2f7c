//! What a tool call starts is gone when the call is answered, however it was started; and its output takes no memory.
#![cfg(target_os = "linux")]

use std::time::Duration;

use serde_json::json;

use crate::faults::whole;
use crate::runs::folder_with;
use crate::support::folder::Folder;
use crate::support::server::{Answer, Script, Server};
use crate::support::skipped;

/// What every process inherits: whoever can lock the file alone knows that none is left, wherever they were.
const HOLD: &str = "exec 9>lock; flock -s 9; ";
const LOOK: &str = "test -s pids || echo none was started; flock -n -x lock echo looked || echo some are left";

/// Runs one command in each of the tiers, and in the next turn looks for what it has left. What the answers say.
fn leaves_nothing(tool: &str, command: &str) -> Vec<(String, bool)> {
    let in_tier = |tier: &str| {
        let folder = folder_with(&format!("parent:\n  prompt: Go.\n  tools: [{tool}]\n"));
        let server = Server::start(Script::of([
            Answer::calls(&[("bash", json!({"command": format!("{HOLD}{command}")}))]),
            Answer::calls(&[("bash", json!({"command": LOOK}))]),
            Answer::text("Done."),
        ]));
        let ended = folder.legwork(&["run", "job.yaml", "--sandbox", tier]).provider(&server).run();
        ended.code(0).stdout_is("Done.\n");
        let requests = server.finish();
        assert_eq!(requests[2].results()[0].text, "looked", "{tier}: {command}");
        assert!(!folder.exists("never"), "{tier}: {command}");
        let result = &requests[1].results()[0];
        (result.text.clone(), result.is_error)
    };
    ["auto", "off"].map(in_tier).to_vec()
}

#[test]
fn whatever_a_command_leaves_is_gone_when_the_call_is_answered() {
    for command in [
        // In the background, with the pipe held.
        "sleep 411 & echo $! >>pids; echo over",
        "trap '' TERM HUP INT; (trap '' TERM HUP INT; sleep 411; touch never) & echo $! >>pids; echo over",
        // In a session of its own.
        "setsid bash -c 'echo $$ >>pids; sleep 411; touch never' & while ! [ -s pids ]; do sleep 0.01; done; echo over",
        // Started by one that has ended, twice.
        "( ( setsid setsid bash -c 'echo $$ >>pids; sleep 411' & ) & ); while ! [ -s pids ]; do sleep 0.01; done; echo over",
        // Stopped; and stopped in a session of its own, with children.
        "sleep 411 & echo $! >>pids; kill -STOP $!; echo over",
        "setsid bash -c 'sleep 411 & echo $! $$ >>pids; kill -STOP $!; kill -STOP $$; touch never' & \
         while ! [ -s pids ]; do sleep 0.01; done; echo over",
        // Without anything in its environment that tells where it comes from.
        "env -i setsid bash -c 'echo $$ >>pids; sleep 411' & while ! [ -s pids ]; do sleep 0.01; done; echo over",
        "nohup setsid bash -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 411; done' >/dev/null 2>&1 </dev/null & \
         disown; while ! [ -s pids ]; do sleep 0.01; done; echo over",
    ] {
        for (text, _) in leaves_nothing("bash", command) {
            assert_eq!(text.lines().last(), Some("over"), "{command}");
        }
    }
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_has_started() {
    let command = "trap '' TERM; setsid bash -c 'trap \"\" TERM; echo $$ >>pids; sleep 412; touch never' & \
                   echo $$ >>pids; echo begun; kill -STOP $$; sleep 412";
    for result in leaves_nothing("{ bash: { timeout: 4s } }", command) {
        assert_eq!(result, ("begun\ntimed out after 4s".to_owned(), true));
    }
}

/// A chain of three hundred: each waits for the end of the one before it, and has the next one ready by then.
#[test]
fn processes_that_start_anew_when_others_are_killed_end_all_the_same() {
    let command = "export LINK='echo $$ >>pids; trap \"\" TERM HUP INT; read; \
                   [ $(wc -l <pids || echo 999) -gt 300 ] && exit; exec 4> >(setsid bash -c \"$LINK\" link); exec sleep 415'; \
                   exec 4> >(setsid bash -c \"$LINK\" link); \
                   while [ $(cat pids 2>/dev/null | wc -l) -lt 1 ]; do sleep 0.01; done; echo over";
    for (text, _) in leaves_nothing("bash", command) {
        assert_eq!(text, "over");
    }
}

/// Seven generations of two children each: 255 processes at most, each in a session of its own, whose parents don't wait.
#[test]
fn a_fork_bomb_of_bounded_size_is_ended_whole() {
    let bomb = "export BOMB='echo $$ >>pids; [ $1 -gt 0 ] || exec sleep 413; \
                setsid bash -c \"$BOMB\" bomb $(($1 - 1)) & setsid bash -c \"$BOMB\" bomb $(($1 - 1)) & \
                [ $(($1 % 2)) = 0 ] && exit; trap \"\" TERM; sleep 413'; ";
    let started = format!("{bomb} bash -c \"$BOMB\" bomb 6 & ");
    let wait = "while [ $(cat pids 2>/dev/null | wc -l) -lt 20 ]; do sleep 0.01; done; echo over";
    for (text, _) in leaves_nothing("bash", &format!("{started}{wait}")) {
        assert_eq!(text, "over");
    }
    // And one that goes on until the time is up.
    for (text, _) in leaves_nothing("{ bash: { timeout: 4s } }", &format!("{started}wait; sleep 413")) {
        assert_eq!(text, "timed out after 4s");
    }
}

#[test]
fn a_background_job_that_holds_the_pipe_delays_no_answer() {
    // Far less than the job would take, and the run's only way to end well.
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\nlimits: { wall_clock: 100s }\n");
    let server = Server::start(Script::of([
        Answer::calls(&[("bash", json!({"command": "(sleep 414; echo late) & setsid sleep 414 & echo soon"}))]),
        Answer::text("Done."),
    ]));
    let ended = folder.legwork(&["run", "job.yaml"]).provider(&server).run();
    ended.code(0);
    assert_eq!(server.finish()[1].results()[0].text, "soon");
}

/// The most memory in bytes that the program has taken by the time at which a command has printed so much; `None`, and a
/// word on stderr, where that can't be known.
fn memory_for(bytes: u64) -> Option<u64> {
    let folder = Folder::new();
    folder.write("job.yaml", "model: replay/r.yaml\nparent: { prompt: Go., tools: [{ bash: { timeout: 30m } }] }\n");
    let half = bytes / 2;
    let flood = format!("head -c {half} /dev/zero | tr '\\0' x; yes 0123456789 | head -c {half}");
    let hold = "touch over; while ! [ -e go ]; do sleep 0.01; done";
    let call = |command: &str| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
    let script = json!({ "parent": [call(&flood), call(hold), { "text": "Done." }] });
    folder.write("r.yaml", script.to_string());
    let running = folder.legwork(&["run", "job.yaml"]).timeout(Duration::from_secs(1_800)).spawn();
    while !folder.exists("over") {
        std::thread::sleep(Duration::from_millis(10));
        assert!(running.is_alive(), "it has ended before its time");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap_or_default();
    folder.write("go", "");
    let ended = running.wait();
    ended.code(0);
    whole(&ended.run_folder());
    let events = ended.run_folder().events();
    let finished = events.iter().find(|event| event["type"] == "call_finished").unwrap();
    let text = finished["data"]["result"]["text"].as_str().unwrap();
    assert!(text.contains("characters left out") && text.chars().count() <= 50_000);
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    if most.is_none() {
        skipped("nobody can see here what memory a process takes");
    }
    most.map(|most| most.trim().parse::<u64>().unwrap() * 1024)
}

#[test]
fn output_takes_no_memory() {
    let (Some(little), Some(much)) = (memory_for(1 << 20), memory_for(200 << 20)) else { return };
    assert!(much < 60 << 20, "{much} bytes");
    assert!(much < little + (8 << 20), "{little} bytes, and then {much}");
}

#[test]
#[ignore = "takes minutes in a debug build"]
fn three_gigabytes_of_output_take_no_memory() {
    let Some(memory) = memory_for(3 << 30) else { return };
    eprintln!("{} MiB at most", memory >> 20);
    assert!(memory < 60 << 20, "{memory} bytes");
}
