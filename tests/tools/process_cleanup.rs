//! No process of a tool call outlives the call, no matter how it was started, and large output takes little memory.
#![cfg(target_os = "linux")]

use std::time::Duration;

use rustix::process::{Resource, Signal, getrlimit};
use serde_json::json;

use crate::running::run_failures::{assert_complete_record, wait_until};
use crate::running::runs::folder_with;
use crate::running::signals::assert_no_processes;
use crate::support::bubblewrap::{bubblewrap_works, find_program};
use crate::support::program::{Program, ProgramOutput, RunningProgram};
use crate::support::server::{Answer, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;
use crate::support::{in_parallel, report_skipped};

/// Opens and locks a file whose descriptor all processes inherit. If the file can be locked again, they have all ended.
const HOLD_LOCK: &str = "exec 9>lock; flock -s 9; ";
const CHECK_LOCK: &str = "test -s pids || echo none was started; flock -n -x lock echo looked || echo some are left";

/// The tiers. Landlock is used if there is no bwrap.
const TIERS: [&str; 3] = ["auto", "landlock", "off"];

/// Configures the program for a tier.
fn in_tier(program: Program, tier: &str) -> Program {
    match tier {
        "landlock" => program.args(["--sandbox", "auto"]).env("PATH", "/nonexistent"),
        tier => program.args(["--sandbox", tier]),
    }
}

/// A command with a PATH that works in all tiers.
fn with_path(command: &str) -> String {
    format!("PATH=/usr/local/bin:/usr/bin:/bin; {command}")
}

/// Runs one command in each tier, and searches for its processes in the next turn. Returns the results.
fn run_in_all_tiers(tool: &str, command: &str) -> Vec<(String, bool)> {
    let of_tier = |tier: &str| {
        let folder = folder_with(&format!("parent:\n  prompt: Go.\n  tools: [{tool}]\n"));
        let server = Server::start(ScriptedAgents::of([
            Answer::calls(&[("bash", json!({"command": with_path(&format!("{HOLD_LOCK}{command}"))}))]),
            Answer::calls(&[("bash", json!({"command": with_path(CHECK_LOCK)}))]),
            Answer::text("Done."),
        ]));
        let ended = in_tier(folder.legwork(&["run", "job.yaml"]), tier).anthropic(&server).run();
        ended.assert_code(0).assert_stdout("Done.\n");
        let requests = server.finish();
        assert_eq!(requests[2].results()[0].text, "looked", "{tier}: {command}");
        assert!(!folder.exists("never"), "{tier}: {command}");
        let result = &requests[1].results()[0];
        (result.text.clone(), result.is_error)
    };
    in_parallel(TIERS, of_tier)
}

#[test]
fn no_process_of_a_command_survives_its_call() {
    for command in [
        // In the background, with the pipe still open.
        "sleep 411 & echo $! >>pids; echo over",
        "trap '' TERM HUP INT; (trap '' TERM HUP INT; sleep 411; touch never) & echo $! >>pids; echo over",
        // In its own session.
        "setsid bash -c 'echo $$ >>pids; sleep 411; touch never' & while ! [ -s pids ]; do sleep 0.01; done; echo over",
        // Started by a process that has ended, over two generations.
        "( ( setsid setsid bash -c 'echo $$ >>pids; sleep 411' & ) & ); while ! [ -s pids ]; do sleep 0.01; done; echo over",
        // Stopped; and stopped in its own session, with children.
        "sleep 411 & echo $! >>pids; kill -STOP $!; echo over",
        "setsid bash -c 'sleep 411 & echo $! $$ >>pids; kill -STOP $!; kill -STOP $$; touch never' & \
         while ! [ -s pids ]; do sleep 0.01; done; echo over",
        // Without any trace of its origin in its environment.
        "env -i setsid bash -c 'echo $$ >>pids; sleep 411' & while ! [ -s pids ]; do sleep 0.01; done; echo over",
        "nohup setsid bash -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 411; done' >/dev/null 2>&1 </dev/null & \
         disown; while ! [ -s pids ]; do sleep 0.01; done; echo over",
    ] {
        for (text, _) in run_in_all_tiers("bash", command) {
            assert!(text.lines().any(|line| line == "over"), "{command}: {text}");
        }
    }
}

#[test]
fn a_command_that_times_out_is_killed_with_its_processes() {
    let command = "trap '' TERM; setsid bash -c 'trap \"\" TERM; echo $$ >>pids; sleep 412; touch never' & \
                   echo $$ >>pids; echo begun; kill -STOP $$; sleep 412";
    for result in run_in_all_tiers("{ bash: { timeout: 4s } }", command) {
        assert_eq!(result, ("begun\ntimed out after 4s".to_owned(), true));
    }
}

/// A chain of three hundred processes. Each waits for the end of its predecessor, and has already started its
/// successor.
#[test]
fn processes_that_respawn_when_killed_are_killed() {
    let command = "export LINK='echo $$ >>pids; trap \"\" TERM HUP INT; read; \
                   [ $(wc -l <pids || echo 999) -gt 300 ] && exit; exec 4> >(setsid bash -c \"$LINK\" link); exec sleep 415'; \
                   exec 4> >(setsid bash -c \"$LINK\" link); \
                   while [ $(cat pids 2>/dev/null | wc -l) -lt 1 ]; do sleep 0.01; done; echo over";
    for (text, _) in run_in_all_tiers("bash", command) {
        assert_eq!(text, "over");
    }
}

/// Seven generations with two children each: at most 255 processes, each in its own session, whose parents don't wait.
#[test]
fn a_fork_bomb_is_killed_completely() {
    let bomb = "export BOMB='echo $$ >>pids; [ $1 -gt 0 ] || exec sleep 413; \
                setsid bash -c \"$BOMB\" bomb $(($1 - 1)) & setsid bash -c \"$BOMB\" bomb $(($1 - 1)) & \
                [ $(($1 % 2)) = 0 ] && exit; trap \"\" TERM; sleep 413'; ";
    let started = format!("{bomb} bash -c \"$BOMB\" bomb 6 & ");
    let wait = "while [ $(cat pids 2>/dev/null | wc -l) -lt 20 ]; do sleep 0.01; done; echo over";
    // A process that forks while all are killed may print that it can't.
    for (text, _) in run_in_all_tiers("bash", &format!("{started}{wait}")) {
        assert_eq!(text.lines().next(), Some("over"), "{text}");
    }
    // The same, with a command that runs until it times out.
    for (text, _) in run_in_all_tiers("{ bash: { timeout: 4s } }", &format!("{started}wait; sleep 413")) {
        assert_eq!(text.lines().last(), Some("timed out after 4s"), "{text}");
    }
}

/// Counts the zombies among the children and grandchildren of the runner, and all of these processes.
fn count_zombies(running: &RunningProgram) -> (usize, usize) {
    let children = |pid: &str| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let below = children(&running.pid().to_string());
    let all: Vec<String> = below.iter().flat_map(|pid| children(pid)).chain(below.clone()).collect();
    let has_ended = |pid: &&String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    };
    (all.iter().filter(has_ended).count(), all.len())
}

#[test]
fn orphans_are_reaped_while_their_command_runs() {
    let command = "for each in $(seq 300); do (true &); (setsid true &); done; touch over; \
                   while ! [ -e go ]; do sleep 0.01; done";
    for tier in TIERS {
        let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
        let server = Server::start(ScriptedAgents::of([
            Answer::calls(&[("bash", json!({"command": with_path(command)}))]),
            Answer::text("Done."),
        ]));
        let running = in_tier(folder.legwork(&["run", "job.yaml"]), tier).anthropic(&server).spawn();
        wait_until(|| folder.exists("over"));
        wait_until(|| matches!(count_zombies(&running), (0, 1..)));
        folder.write("go", "");
        running.wait().assert_code(0);
    }
}

/// No process of a command outlives a killed run, and the run resumes only when they have all ended.
#[test]
fn commands_end_if_their_run_is_killed() {
    let command = "trap '' TERM HUP INT; sleep 417 & setsid sleep 417 & env -i setsid /bin/sleep 417 & \
                   ( ( setsid setsid bash -c 'trap \"\" TERM; echo $$ >>pids; sleep 417; touch never' & ) & ); \
                   while ! [ -s pids ]; do sleep 0.01; done; touch begun; sleep 417; touch never";
    for tier in TIERS {
        let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
        let server = Server::start(ScriptedAgents::of([
            Answer::calls(&[("bash", json!({"command": with_path(&format!("{HOLD_LOCK}{command}"))}))]),
            Answer::calls(&[("bash", json!({"command": with_path(CHECK_LOCK)}))]),
            Answer::text("Done."),
        ]));
        let running = in_tier(folder.legwork(&["run", "job.yaml"]), tier).anthropic(&server).spawn();
        wait_until(|| folder.exists("begun"));
        running.signal(Signal::KILL);
        running.wait();
        // The resume starts at once, and nothing else kills the processes.
        let ended = in_tier(folder.legwork(&["resume", "latest"]), tier).anthropic(&server).run();
        ended.assert_code(0).assert_stdout("Done.\n");
        assert_eq!(server.finish()[2].results()[0].text, "looked", "{tier}");
        assert_no_processes(&folder);
        assert!(!folder.exists("never"), "{tier}");
    }
}

/// Without a resume, the processes end as well.
#[test]
fn commands_of_a_killed_run_end_without_a_resume() {
    for tier in TIERS {
        let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
        let command = format!("{HOLD_LOCK}(env -i setsid /bin/sleep 418 &); touch begun; sleep 418");
        let server =
            Server::start(move |_: &Request| Answer::calls(&[("bash", json!({"command": with_path(&command)}))]));
        let running = in_tier(folder.legwork(&["run", "job.yaml"]), tier).anthropic(&server).spawn();
        wait_until(|| folder.exists("begun"));
        running.signal(Signal::KILL);
        running.wait();
        assert_no_processes(&folder);
    }
}

/// Runs the program with these limits on descriptors, soft and hard.
fn with_descriptors(folder: &TestFolder, server: &Server, tier: &str, most: &str) -> ProgramOutput {
    let line = format!("ulimit -n {most} && exec \"$LEGWORK\" run job.yaml --sandbox {tier}");
    let program = folder.program("/bin/bash", &["-c", &line]).anthropic(server).timeout(Duration::from_secs(300));
    program.env("LEGWORK", env!("CARGO_BIN_EXE_legwork")).run()
}

#[test]
fn a_hundred_subagents_with_few_descriptors_lose_no_command() {
    const CHILDREN: usize = 110;
    for tier in ["auto", "off"] {
        let folder = folder_with(
            "parent:\n  prompt: Go.\n  tools: [task]\nsubagents:\n  a: { tools: [bash] }\n\
             limits: { subagents: 200, parallel_subagents: 200 }\n",
        );
        let server = Server::start(|request: &Request| match (request.prompt().as_str(), request.turn()) {
            ("Go.", 0) => {
                let tasks: Vec<String> = (0..CHILDREN).map(|number| format!("child {number}")).collect();
                let calls: Vec<_> = tasks.iter().map(|task| ("task", json!({"prompt": task}))).collect();
                Answer::calls(&calls)
            }
            ("Go.", _) | (_, 1) => Answer::text("Done."),
            (_, _) => Answer::calls(&[("bash", json!({"command": "echo x >> lines"}))]),
        });
        let ended = with_descriptors(&folder, &server, tier, "128");
        ended.assert_code(0).assert_stdout("Done.\n");
        assert_eq!(folder.read("lines").lines().count(), CHILDREN, "{tier}");
        let events = (1..=CHILDREN).flat_map(|number| ended.run_folder().events_of(&format!("a-{number}")));
        let failed = events.filter(|event| event["data"]["result"]["is_error"] == true).count();
        assert_eq!(failed, 0, "{tier}");
    }
}

/// Programs that use select(2) can't handle descriptors above 1023.
#[test]
fn the_soft_limit_of_descriptors_is_raised_and_commands_keep_theirs() {
    if getrlimit(Resource::Nofile).maximum.is_some_and(|hard| hard < 900) {
        return report_skipped("the hard limit of descriptors is below 900");
    }
    let look = "ulimit -S -n; ulimit -H -n; grep -h 'Max open files' /proc/$PPID/limits";
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("bash", json!({"command": look}))]),
        Answer::text("Done."),
    ]));
    let line = "ulimit -S -n 300 && ulimit -H -n 900 && exec \"$LEGWORK\" run job.yaml --sandbox off";
    let program = folder.program("/bin/bash", &["-c", line]).anthropic(&server);
    program.env("LEGWORK", env!("CARGO_BIN_EXE_legwork")).run().assert_code(0);
    let text = server.finish()[1].results()[0].text.clone();
    assert!(
        text.starts_with("300\n900\n") && text.split_whitespace().filter(|word| *word == "900").count() == 3,
        "{text}"
    );
}

/// A command that couldn't start had no effect, and the model can't fix that.
#[test]
fn a_command_that_cannot_be_started_ends_the_run() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
    let programs = folder.home().parent().unwrap().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::fs::copy("/bin/bash", programs.join("bash")).unwrap();
    let remove = format!("/bin/rm {}", programs.join("bash").display());
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("bash", json!({"command": remove}))]),
        Answer::calls(&[("bash", json!({"command": "echo lost"}))]),
    ]));
    let program = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server);
    let ended = program.env("PATH", &programs).run();
    ended.assert_code(5).assert_stderr_contains("a command can't be started").assert_stderr_contains("legwork resume");
    assert_eq!(ended.run_folder().result()["outcome"], "environment_failed");
    assert_eq!(server.finish().len(), 2);
}

/// Bubblewrap's own process has no parent-death signal while the sandbox is made. This one leaves such a process at each call.
#[test]
fn what_bubblewrap_leaves_when_legwork_is_killed_is_ended() {
    let real = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(real) = real else { return report_skipped("there is no bwrap") };
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
    let programs = folder.home().parent().unwrap().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let held = programs.join("held");
    std::fs::write(&held, "").unwrap();
    let text = format!(
        "#!/bin/bash\nsetsid sleep 417 9>>{} </dev/null >/dev/null 2>&1 &\nexec {real} \"$@\"\n",
        held.display()
    );
    let bwrap = programs.join("bwrap");
    std::fs::write(&bwrap, text).unwrap();
    std::fs::set_permissions(&bwrap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let server = Server::start(ScriptedAgents::of([Answer::calls(&[(
        "bash",
        json!({"command": with_path("touch started; sleep 61")}),
    )])]));
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let program = folder.legwork(&["run", "job.yaml", "--sandbox", "required"]).anthropic(&server).env("PATH", path);
    let running = program.spawn();
    wait_until(|| folder.exists("started") || !running.is_alive());
    if !running.is_alive() {
        let ended = running.wait();
        assert!(ended.stderr.contains("bubblewrap can't be used"), "{}", ended.full_output());
        return report_skipped("bubblewrap doesn't work here");
    }
    assert!(is_open_somewhere(&held));
    running.signal(Signal::KILL);
    running.wait();
    wait_until(|| !is_open_somewhere(&held));
}

/// What a key command has started has another parent, and perhaps a session of its own.
#[test]
fn what_a_key_command_starts_ends_with_a_killed_run() {
    for tier in TIERS {
        let folder = TestFolder::new();
        let job = "model: p/m\nparent: { prompt: Go., tools: [bash] }\nlimits: { tokens: 100000 }\n";
        folder.write("job.yaml", job);
        let (program, held) = (folder.home().join("issue-key"), folder.home().join("held"));
        let text = format!(
            "#!/bin/sh\nPATH=/usr/bin:/bin; exec 9>>{}\nsleep 417 &\nsetsid sleep 417 &\ntouch {}\nsleep 417\n",
            held.display(),
            folder.at("begun").display()
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let config = folder.home().join(".config/legwork");
        std::fs::create_dir_all(&config).unwrap();
        let server = format!(
            "[providers.p]\napi = \"anthropic\"\nbase_url = \"http://127.0.0.1:9\"\nkey_command = [\"{}\"]\n",
            program.display()
        );
        std::fs::write(config.join("providers.toml"), server).unwrap();
        let running = in_tier(folder.legwork(&["run", "job.yaml"]), tier).spawn();
        wait_until(|| folder.exists("begun") || !running.is_alive());
        assert!(running.is_alive(), "{tier}: {}", running.wait().full_output());
        assert!(is_open_somewhere(&held), "{tier}");
        running.signal(Signal::KILL);
        running.wait();
        wait_until(|| !is_open_somewhere(&held));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn git_ends_with_a_killed_run() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/job.script.yaml\nparent: { prompt: Go., tools: [task] }\n\
         subagents: { w: { description: d, tools: [write_file], workspace: own } }\n",
    );
    let script =
        json!({ "parent": [{ "calls": [{ "tool": "task", "input": { "prompt": "x", "description": "d" } }] }] });
    folder.write("job.script.yaml", script.to_string()).commit_all();
    // Git needs minutes for it.
    std::fs::File::create(folder.at("disk.img")).unwrap().set_len(60 << 30).unwrap();
    let running = folder.legwork(&["run", "job.yaml"]).spawn();
    let git_of = |parent: u32| {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut found = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
        found.find(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            stat.contains("(git) ")
                && stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&parent.to_string())
                && line.split(|byte| *byte == 0).any(|word| word == b"add")
        })
    };
    wait_until(|| git_of(running.pid()).is_some() || !running.is_alive());
    let git = git_of(running.pid()).expect("git runs");
    running.signal(Signal::KILL);
    running.wait();
    let start = std::time::Instant::now();
    let state = || std::fs::read_to_string(format!("/proc/{git}/stat")).unwrap_or_default();
    // One that has ended stays there until the first process of the machine has looked at it.
    let is_left = || state().rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']));
    while is_left() && start.elapsed() < std::time::Duration::from_secs(20) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    if is_left() {
        let state = state();
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(git.cast_signed()).unwrap(), Signal::KILL);
        panic!("git runs although its run was killed: {state}");
    }
}

/// Whether a process has a file open under the number 9.
fn is_open_somewhere(file: &std::path::Path) -> bool {
    let file = file.canonicalize().unwrap();
    let open_files = std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path().join("fd/9"));
    open_files.filter_map(|open| std::fs::read_link(open).ok()).any(|open| open == file)
}

/// At each of these kills, the real bubblewrap is at another point of its start or of its end.
#[test]
fn kills_while_bubblewrap_starts_leave_no_process() {
    if !bubblewrap_works() {
        return;
    }
    in_parallel(0..4_u64, |worker| {
        // On a busy machine, many calls pass before one is seen.
        let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n  max_turns: 1000\n");
        // Bubblewrap has it in its arguments, and so has every process that it starts.
        let mark = format!("true {}", folder.path().display());
        let is_marked = |process: std::fs::DirEntry| {
            let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
        };
        let marked = || std::fs::read_dir("/proc").unwrap().flatten().any(is_marked);
        let command = mark.clone();
        let server = Server::start(move |_: &Request| Answer::calls(&[("bash", json!({"command": command}))]));
        for kill in 0..15 {
            let running = folder.legwork(&["run", "job.yaml", "--sandbox", "required"]).anthropic(&server).spawn();
            wait_until(|| marked() || !running.is_alive());
            assert!(running.is_alive(), "{}", running.wait().full_output());
            std::thread::sleep(Duration::from_millis((kill * 4 + worker) % 37));
            running.signal(Signal::KILL);
            running.wait();
        }
        wait_until(|| !marked());
    });
}

/// A bubblewrap passes its probe and fails later, and a command prints the same text and exits with the same code.
#[test]
fn a_sandbox_failure_is_not_a_failure_of_the_command() {
    if !bubblewrap_works() {
        return;
    }
    let real = find_program("bwrap").unwrap().display().to_string();
    let broken = "bwrap: Creating new namespace failed: Resource temporarily unavailable";
    for check in [false, true] {
        let checks = if check { "checks: [{ name: c, run: 'echo fine' }]\n" } else { "" };
        let folder = folder_with(&format!("parent:\n  prompt: Go.\n  tools: [bash]\n{checks}"));
        let programs = folder.home().parent().unwrap().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let text = format!(
            "#!/bin/bash\n[ -e {0}/broken ] || exec {real} \"$@\"\necho '{broken}' >&2\nexit 1\n",
            folder.path().display()
        );
        let bwrap = programs.join("bwrap");
        std::fs::write(&bwrap, text).unwrap();
        std::fs::set_permissions(&bwrap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let call = |command: String| Answer::calls(&[("bash", json!({"command": command}))]);
        let breaks = call("touch broken".to_owned());
        let says = call(format!("echo '{broken}' >&2; exit 1"));
        let server = match check {
            true => Server::start(ScriptedAgents::of([says, breaks, Answer::text("Done.")])),
            false => Server::start(ScriptedAgents::of([says, breaks, call("echo lost".to_owned())])),
        };
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let program =
            folder.legwork(&["run", "job.yaml", "--sandbox", "required"]).anthropic(&server).env("PATH", path);
        let ended = program.run();
        ended
            .assert_code(5)
            .assert_stderr_contains("the sandbox can't be set up")
            .assert_stderr_contains("Resource temporarily unavailable");
        assert_eq!(ended.run_folder().result()["outcome"], "environment_failed", "{check}");
        let requests = server.finish();
        assert_eq!(requests.len(), 3);
        assert!(requests[1].results()[0].text.ends_with("exit code 1"), "a command's own words are its own");
    }
}

/// The workspace, which is next to the run's folder, disappears during the run.
#[test]
fn a_workspace_that_is_moved_or_deleted_ends_the_run() {
    let call = |tool: &str, input: serde_json::Value| Answer::calls(&[(tool, input)]);
    for tier in TIERS {
        for (is_deleted, what) in
            [(false, "bash"), (true, "bash"), (false, "write_file"), (false, "check"), (true, "check")]
        {
            let checks = if what == "check" { "checks: [{ name: c, run: 'echo x > phantom' }]\n" } else { "" };
            let folder = folder_with(&format!("parent:\n  prompt: Go.\n  tools: [bash, write_file]\n{checks}"));
            folder.write("ws/file", "");
            let (workspace, moved) = (folder.at("ws"), folder.at("moved"));
            let server = Server::start(move |request: &Request| match (request.turn(), what) {
                (0, _) => call("bash", json!({"command": with_path("echo x > first")})),
                (_, what) => {
                    if is_deleted {
                        std::fs::remove_dir_all(&workspace).unwrap();
                    } else {
                        std::fs::rename(&workspace, &moved).unwrap();
                    }
                    match what {
                        "bash" => call("bash", json!({"command": with_path("echo x > phantom; pwd")})),
                        "write_file" => call("write_file", json!({"path": "phantom", "content": "x"})),
                        _ => Answer::text("Done."),
                    }
                }
            });
            let program = folder.legwork(&["run", "job.yaml", "--workspace", "ws"]).anthropic(&server);
            let ended = in_tier(program, tier).run();
            ended.assert_code(5).assert_stderr_contains("the workspace");
            assert_eq!(ended.run_folder().result()["outcome"], "environment_failed", "{tier} {what}");
            assert!(!folder.exists("ws") && !folder.exists("moved/phantom"), "{tier} {what}");
            assert_eq!(server.count(), 2, "{tier} {what}");
        }
    }
}

#[test]
fn a_bash_in_the_workspace_is_not_used() {
    for tier in ["auto", "off"] {
        let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\n");
        folder.write("bin/bash", "#!/bin/sh\ntouch planted\n").write("bin/git", "#!/bin/sh\ntouch planted\n");
        for name in ["bin/bash", "bin/git"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(folder.at(name), mode).unwrap();
        }
        let link = folder.home().join("link");
        std::os::unix::fs::symlink(folder.at("bin"), &link).unwrap();
        let server = Server::start(ScriptedAgents::of([
            Answer::calls(&[("bash", json!({"command": "echo real"}))]),
            Answer::text("Done."),
        ]));
        let path = format!("{}:{}:/usr/bin:/bin", folder.at("bin").display(), link.display());
        let ended = in_tier(folder.legwork(&["run", "job.yaml"]), tier).anthropic(&server).env("PATH", path).run();
        ended.assert_code(0);
        assert_eq!(server.finish()[1].results()[0].text, "real", "{tier}");
        assert!(!folder.exists("planted"), "{tier}");
    }
}

#[test]
fn a_background_job_that_holds_the_pipe_does_not_delay_the_result() {
    // The wall clock is much shorter than the background job, so the run would fail if it waited for the job.
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [bash]\nlimits: { wall_clock: 100s }\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("bash", json!({"command": "(sleep 414; echo late) & setsid sleep 414 & echo soon"}))]),
        Answer::text("Done."),
    ]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0);
    let text = server.finish()[1].results()[0].text.clone();
    assert!(text.starts_with("soon\n(What the command left running in the background was ended"), "{text}");
}

/// The peak memory of the program, in bytes, when a command has printed this much. If it can't be measured, returns
/// `None` and prints a note to stderr.
fn enough_memory(bytes: u64) -> Option<u64> {
    let folder = TestFolder::new();
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
    ended.assert_code(0);
    assert_complete_record(&ended.run_folder());
    let events = ended.run_folder().events();
    let finished = events.iter().find(|event| event["type"] == "call_finished").unwrap();
    let text = finished["data"]["result"]["text"].as_str().unwrap();
    assert!(text.contains("characters left out") && text.chars().count() <= 50_000);
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    if most.is_none() {
        report_skipped("the memory of a process can't be measured here");
    }
    most.map(|most| most.trim().parse::<u64>().unwrap() * 1024)
}

#[test]
fn large_output_takes_little_memory() {
    let (Some(little), Some(much)) = (enough_memory(1 << 20), enough_memory(200 << 20)) else { return };
    assert!(much < 60 << 20, "{much} bytes");
    assert!(much < little + (8 << 20), "{little} bytes, and then {much}");
}

#[test]
#[ignore = "takes minutes in a debug build"]
fn three_gigabytes_of_output_take_little_memory() {
    let Some(memory) = enough_memory(3 << 30) else { return };
    eprintln!("{} MiB at most", memory >> 20);
    assert!(memory < 60 << 20, "{memory} bytes");
}
