//! What is seen while runs and maps are running: live lines on a terminal, and a log elsewhere.

use rustix::process::Signal;
use serde_json::json;

use crate::running::runs::folder_with;
use crate::support::program::Program;
use crate::support::report_skipped;
use crate::support::server::{Answer, Checks, Request, ScriptedAgents, Server};
use crate::support::terminal::{Narrowing, Terminal};
use crate::support::test_folder::TestFolder;

const JOB: &str = "limits: { cost_usd: 5 }\nparent: { prompt: Parent., tools: [task], max_turns: 50 }\nsubagents: { look: { \
                   tools: [bash] } }\n";
/// Waits until the test writes the file `go`.
const WAIT: &str = "until [ -e go ]; do sleep 0.01; done";

/// A parent with this many subagents, which wait for the file `go` in their first call.
fn waiting_subagents(count: usize) -> (TestFolder, Server) {
    let folder = folder_with(JOB);
    let task = |number: usize| {
        let prompt = format!("Child {number}.");
        ("task", json!({ "agent": "look", "prompt": prompt, "description": format!("日本語 place {number}") }))
    };
    let tasks: Vec<_> = (1..=count).map(task).collect();
    let server = Server::start(move |request: &Request| match (request.prompt() == "Parent.", request.turn()) {
        (true, 0) => Answer::calls(&tasks).usage(100_000, 0),
        (true, _) => Answer::text("All seen."),
        (false, 0) => Answer::calls(&[("bash", json!({ "command": WAIT }))]).usage(100_000, 0),
        (false, _) => Answer::text("Seen."),
    });
    (folder, server)
}

fn run(folder: &TestFolder, server: &Server) -> Program {
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(server)
}

/// The live lines: those with a spinner.
fn spinners(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.starts_with(|first| ('⠀'..='⣿').contains(&first))).collect()
}

fn is_waiting(lines: &[String], count: usize) -> bool {
    spinners(lines).iter().filter(|line| line.contains("bash until")).count() == count
}

#[test]
fn live_lines_show_each_agent_and_the_nearest_limit_and_leave_nothing_behind() {
    let (folder, server) = waiting_subagents(3);
    let terminal = Terminal::start(run(&folder, &server), 120, 20);
    let lines = terminal.wait_for("three subagents", |lines| is_waiting(lines, 3));
    let live = spinners(&lines);
    assert_eq!(live.len(), 4, "{lines:#?}");
    assert!(live[0].contains(" parent ") && live[0].ends_with("waiting for 3 subagents"), "{lines:#?}");
    for number in 1..=3 {
        let line = live.iter().find(|line| line.contains(&format!(" look-{number} "))).unwrap();
        // 100,000 tokens at $3 for a million.
        assert!(line.contains(" turn 1 ") && line.contains(" 100.0k $0.30 "), "{line}");
        assert!(line.contains(&format!("日本語 place {number}: bash until [ -e go ]")), "{line}");
    }
    assert!(lines.last().unwrap().contains("$1.20 of $5.00, 24 %"), "{lines:#?}");
    folder.write("go", "");
    let (status, lines) = terminal.wait();
    assert!(status.success(), "{lines:#?}");
    assert!(spinners(&lines).is_empty() && lines.last().unwrap() == "All seen.", "{lines:#?}");
    let ended = lines.iter().filter(|line| line.contains("completed after 2 turns")).count();
    assert_eq!(ended, 3, "the end of each subagent stays on the screen: {lines:#?}");
}

#[test]
fn no_line_remains_when_the_size_of_the_terminal_changes() {
    for narrowing in [Narrowing::Cuts, Narrowing::Wraps] {
        let (folder, server) = waiting_subagents(3);
        let terminal = Terminal::start(run(&folder, &server), 120, 100);
        terminal.wait_for("three subagents", |lines| is_waiting(lines, 3));
        for columns in [50, 20, 90, 33] {
            terminal.resize(columns, 100, narrowing);
            // A frame in this width: the parent, three subagents and the line of the run, and nothing below.
            let is_drawn = |lines: &[String]| {
                let longest = lines.iter().rev().take(5).map(|line| line.chars().count()).max().unwrap_or_default();
                spinners(lines).len() == 4
                    && lines.last().is_some_and(|line| line.contains("$1.20"))
                    && lines.len() > 5
                    && spinners(&lines[lines.len() - 5..]).len() == 4
                    && longest < usize::from(columns)
                    && (columns < 90 || is_waiting(lines, 3))
                    && (columns > 50 || !lines.iter().any(|line| line.contains("turn 1 ")))
            };
            let lines = terminal.wait_for(&format!("{columns} columns, {narrowing:?}"), is_drawn);
            assert_eq!(lines.iter().filter(|line| line.contains("$1.20")).count(), 1, "{lines:#?}");
        }
        folder.write("go", "");
        let (status, lines) = terminal.wait();
        assert!(status.success() && spinners(&lines).is_empty(), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.contains("All seen.")).count(), 1, "{lines:#?}");
    }
}

#[test]
fn agents_that_do_not_fit_on_the_screen_are_counted() {
    let (folder, server) = waiting_subagents(4);
    let terminal = Terminal::start(run(&folder, &server), 100, 12);
    terminal.wait_for("four subagents", |lines| is_waiting(lines, 4));
    terminal.resize(100, 5, Narrowing::Cuts);
    let is_counted = |lines: &[String]| lines.iter().any(|line| line.contains("and 3 more agents"));
    let lines = terminal.wait_for("five agents in five rows", is_counted);
    assert_eq!(spinners(&lines).len(), 2, "{lines:#?}");
    // One row is enough for the line of the run.
    terminal.resize(100, 2, Narrowing::Cuts);
    terminal.wait_for("two rows", |lines| {
        spinners(lines).is_empty() && lines.last().is_some_and(|line| line.contains("$1.50 of $5.00, 30 %"))
    });
    terminal.resize(100, 12, Narrowing::Cuts);
    terminal.wait_for("all again", |lines| is_waiting(lines, 4) && !is_counted(lines));
    terminal.signal(Signal::INT);
    let (status, lines) = terminal.wait();
    assert_eq!(status.code(), Some(130), "{lines:#?}");
    assert!(spinners(&lines).is_empty(), "{lines:#?}");
}

// setsid is a program of Linux.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_stopped_by_its_shell_leaves_no_lines_and_draws_them_again() {
    let (folder, server) = waiting_subagents(2);
    // As an interactive shell does it: each job in a process group of its own, on a controlling terminal.
    let line =
        "set -m; \"$LEGWORK\" run job.yaml --sandbox off; echo stopped: $?; until [ -e fg ]; do sleep 0.01; done; fg";
    let shell = folder.program("setsid", &["--ctty", "--wait", "bash", "--norc", "-c", line]).anthropic(&server);
    let shell = shell.env("LEGWORK", env!("CARGO_BIN_EXE_legwork"));
    let terminal = Terminal::start(shell, 100, 30);
    terminal.wait_for("two subagents", |lines| is_waiting(lines, 2));
    terminal.press(b"\x1a");
    let lines = terminal.wait_for("the shell", |lines| lines.iter().any(|line| line.starts_with("stopped: ")));
    assert!(spinners(&lines).is_empty() && !lines.iter().any(|line| line.contains("$0.90")), "{lines:#?}");
    folder.write("fg", "");
    terminal.wait_for("two subagents again", |lines| is_waiting(lines, 2));
    folder.write("go", "");
    let (status, lines) = terminal.wait();
    assert!(status.success() && spinners(&lines).is_empty(), "{lines:#?}");
    assert_eq!(lines.last().unwrap(), "All seen.");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_in_the_background_of_a_shell_gets_a_log() {
    let (folder, server) = waiting_subagents(1);
    folder.write("go", "");
    let line = "set -m; \"$LEGWORK\" run job.yaml --sandbox off & wait";
    let shell = folder.program("setsid", &["--ctty", "--wait", "bash", "--norc", "-c", line]).anthropic(&server);
    let terminal = Terminal::start(shell.env("LEGWORK", env!("CARGO_BIN_EXE_legwork")), 100, 40);
    terminal.wait_for("the end", |lines| lines.iter().any(|line| line == "All seen."));
    let raw = terminal.raw();
    assert!(raw.contains("look-1         bash until") && !raw.contains("\u{1b}[?7l"), "{raw}");
    assert!(terminal.wait().0.success());
}

// As `docker exec` starts it: with the process group and the session of a process outside.
#[cfg(target_os = "linux")]
#[test]
fn a_run_in_a_process_namespace_has_live_lines() {
    const UNSHARE: [&str; 6] = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let (folder, server) = waiting_subagents(1);
    if !folder.program("unshare", &UNSHARE).arg("true").run().exited_with(0) {
        return report_skipped("this machine allows no namespaces");
    }
    let program = folder.program("unshare", &UNSHARE).anthropic(&server).arg(env!("CARGO_BIN_EXE_legwork"));
    let terminal = Terminal::start(program.args(["run", "job.yaml", "--sandbox", "off"]), 100, 30);
    terminal.wait_for("a subagent", |lines| is_waiting(lines, 1));
    folder.write("go", "");
    let (status, lines) = terminal.wait();
    assert!(status.success(), "{lines:#?}");
    assert_eq!(lines.last().unwrap(), "All seen.");
}

#[test]
fn text_of_models_cannot_control_the_terminal() {
    let folder = folder_with("parent: { prompt: Go., tools: [task] }\nsubagents: { a: { tools: [bash] } }\n");
    let hostile =
        "x\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{200b}\r\n::error::".to_owned() + &"長\u{301}".repeat(3_000);
    let wait = format!("{WAIT}; : '{}'", hostile.replace(['\r', '\n'], " "));
    let task = json!({ "agent": "a", "prompt": "Look.", "description": hostile });
    let server = Server::start(move |request: &Request| match (request.prompt().as_str(), request.turn()) {
        ("Go.", 0) => Answer::calls(&[("task", task.clone())]),
        ("Look.", 0) => Answer::calls(&[("bash", json!({ "command": format!(": '{hostile}' > /nowhere/x") }))]),
        ("Look.", 1) => Answer::calls(&[("bash", json!({ "command": wait }))]),
        _ => Answer::text("Done."),
    });
    let terminal = Terminal::start(run(&folder, &server).env("NO_COLOR", "1"), 80, 20);
    terminal.wait_for("the call", |lines| lines.iter().any(|line| line.contains(" a-1    turn 2 ")));
    // Drawn at least once more.
    terminal.resize(60, 20, Narrowing::Cuts);
    terminal.wait_for("the call in 60 columns", |lines| spinners(lines).iter().all(|line| !line.contains("turn")));
    folder.write("go", "");
    let raw = {
        let copy = terminal.raw();
        assert!(terminal.wait().0.success());
        copy
    };
    let mut rest = raw.clone();
    for own in ["\u{1b}[?7l", "\u{1b}[?7h", "\u{1b}[K", "\u{1b}[J", "\u{1b}[1A", "\u{1b}[2A"] {
        rest = rest.replace(own, "");
    }
    assert!(!rest.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{200b}']), "{rest:?}");
    assert!(raw.len() < 1 << 20, "{} bytes", raw.len());
}

#[test]
fn a_resumed_run_shows_what_it_has_used_before() {
    let folder = folder_with(JOB);
    let server = Server::with(Checks::AllowRepeats, {
        let go = folder.at("go");
        move |request: &Request| match (request.prompt() == "Parent.", request.turn()) {
            (true, 0) => {
                Answer::calls(&[("task", json!({ "agent": "look", "prompt": "Child.", "description": "A place" }))])
                    .usage(100_000, 0)
            }
            (false, 0) => Answer::calls(&[("bash", json!({ "command": WAIT }))]).usage(100_000, 0),
            (false, 1) if !go.exists() => Answer::empty().hang(),
            (_, _) => Answer::text("Seen."),
        }
    });
    let terminal = Terminal::start(run(&folder, &server), 120, 20);
    terminal.wait_for("the subagent", |lines| is_waiting(lines, 1));
    terminal.signal(Signal::INT);
    assert_eq!(terminal.wait().0.code(), Some(130));
    let resumed = folder.legwork(&["resume", "--sandbox", "off"]).anthropic(&server);
    let terminal = Terminal::start(resumed, 120, 20);
    let is_resumed = |lines: &[String]| {
        let child = spinners(lines).iter().any(|line| {
            line.contains(" look-1 ")
                && line.contains(" 100.0k $0.30 ")
                && line.contains("A place: thinking (last: bash until")
        });
        child && lines.last().is_some_and(|line| line.contains("$0.60 of $5.00, 12 %"))
    };
    terminal.wait_for("the resumed subagent", is_resumed);
    folder.write("go", "");
    terminal.signal(Signal::INT);
    assert_eq!(terminal.wait().0.code(), Some(130));
}

#[test]
fn a_dumb_terminal_and_ci_get_a_log() {
    for (name, value) in [("TERM", "dumb"), ("CI", "true")] {
        let folder = folder_with("parent: { prompt: Go., tools: [bash] }\n");
        folder.write(
            "replies.yaml",
            "parent: [{ calls: [{ tool: bash, input: { command: 'true' } }] }, { text: Done. }]\n",
        );
        let run = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml", "--sandbox", "off"]);
        let terminal = Terminal::start(run.env(name, value), 100, 20);
        terminal.wait_for("the end", |lines| lines.iter().any(|line| line == "Done."));
        let raw = terminal.raw();
        assert!(raw.contains("parent         bash true\r\n"), "{raw}");
        assert!(!raw.contains("\u{1b}[J") && !raw.contains("\u{1b}[?7l"), "{raw:?}");
        assert!(terminal.wait().0.success());
    }
}

#[test]
fn a_log_has_a_line_at_intervals_while_nothing_happens() {
    let (folder, server) = waiting_subagents(2);
    let running = run(&folder, &server).env("LEGWORK_HEARTBEAT_MS", "60").env("CI", "true");
    let terminal = Terminal::start(running, 400, 40);
    // The first ones may be from before both have begun their calls.
    let is_beat = |line: &&String| {
        line.starts_with("still running: parent turn 1, look-") && line.matches("bash until").count() == 2
    };
    let lines = terminal.wait_for("two lines", |lines| lines.iter().filter(is_beat).count() >= 2);
    let beat = lines.iter().rfind(is_beat).unwrap();
    assert!(beat.contains("look-1 bash until [ -e go ]") && beat.contains("look-2 bash until"), "{beat}");
    assert!(beat.ends_with("$0.90 of $5.00, 18 %"), "{beat}");
    folder.write("go", "");
    assert!(terminal.wait().0.success());
}

#[test]
fn a_log_without_heartbeats_is_quiet() {
    let (folder, server) = waiting_subagents(1);
    folder.write("go", "");
    run(&folder, &server).run().assert_code(0).assert_not_printed("still running");
}

#[test]
fn each_subagent_has_a_group_in_github_actions() {
    let folder = folder_with(
        "parent: { prompt: Parent., tools: [task, bash] }\nsubagents: { a: { tools: [bash] }, b: { tools: [bash] } }\n",
    );
    let ask = |name: &str| json!({ "tool": "task", "input": { "agent": name, "prompt": "Look.", "description": format!("::endgroup:: 100%0A {name}") } });
    let child = |name: &str, other: &str| {
        let bash = |command: String| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
        // They take turns.
        let step =
            |number: usize| bash(format!("touch {name}{number}; until [ -e {other}{number} ]; do sleep 0.01; done"));
        json!([step(1), step(2), bash("echo ::endgroup::; exit 3".to_owned()), { "text": "Done." }])
    };
    let script = json!({
        "parent": [{ "calls": [ask("a"), ask("b")] }, { "calls": [{ "tool": "bash", "input": { "command": "true" } }] }, { "text": "Both." }],
        "subagents": { "a-1": child("a", "b"), "b-1": child("b", "a") },
    });
    folder.write("replies.yaml", script.to_string());
    let run = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml", "--sandbox", "off"]);
    let ended = run.env("GITHUB_ACTIONS", "true").run();
    ended.assert_code(0);
    let mut open: Option<&str> = None;
    let mut groups = Vec::new();
    for line in ended.stderr.lines() {
        match (line.strip_prefix("::group::"), open) {
            (Some(title), None) => {
                let id = title.split(':').next().unwrap();
                assert!(title.contains("completed after 4 turns") && title.contains("100%250A"), "{title}");
                groups.push(id);
                open = Some(id);
            }
            (Some(title), Some(outer)) => panic!("{title} in {outer}\n{}", ended.stderr),
            (None, Some(_)) if line == "::endgroup::" => open = None,
            (None, Some(id)) => assert!(line.starts_with(id), "{line} in the group of {id}\n{}", ended.stderr),
            (None, None) => assert!(!line.contains("bash touch"), "{line} is in no group\n{}", ended.stderr),
        }
        assert!(!line.starts_with("::endgroup::") || line == "::endgroup::", "{line}");
    }
    groups.sort_unstable();
    assert_eq!(groups, ["a-1", "b-1"], "{}", ended.stderr);
    assert_eq!(open, None);
    for text in ["a-1            started: ", "parent         bash true", "a-1            bash failed: "] {
        ended.assert_stderr_contains(text);
    }
}

#[test]
fn the_lines_of_an_interrupted_subagent_are_printed() {
    let (folder, server) = waiting_subagents(1);
    let running = run(&folder, &server).env("GITHUB_ACTIONS", "true").spawn();
    server.wait_for(2);
    let journal = folder.at("runs/job/latest/subagents/look-1.events.jsonl");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("call_started") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    running.signal(Signal::INT);
    let ended = running.wait();
    ended.assert_code(130).assert_stderr_contains("look-1         bash until [ -e go ]");
    let [begins, ends] = ["::group::look-1: ", "::endgroup::"].map(|text| ended.stderr.matches(text).count());
    assert_eq!((begins, ends), (1, 1), "{}", ended.stderr);
}

/// Rows that wait in their first call, for the file `go` or for one of their own, `go-row1`.
fn waiting_rows(count: usize) -> (TestFolder, Server) {
    let folder = TestFolder::new();
    let lines: String = (1..=count).map(|number| format!("row{number}\n")).collect();
    folder.write("rows.csv", format!("item\n{lines}")).write(
        "job.yaml",
        "model: anthropic/claude-sonnet-4-6\nlimits: { cost_usd: 5 }\ninputs: { item: { type: string } }\nparent: { prompt: 'Item \
         {{ inputs.item }}', tools: [bash] }\n",
    );
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.turn() {
        0 => {
            let own = request.prompt().replace("Item ", "go-");
            let wait = format!("until [ -e go ] || [ -e {own} ]; do sleep 0.01; done");
            Answer::calls(&[("bash", json!({ "command": wait }))]).usage(100_000, 0)
        }
        _ => Answer::text("Seen."),
    });
    (folder, server)
}

fn map(folder: &TestFolder, server: &Server, more: &[&str]) -> Program {
    let map = ["map", "job.yaml", "--rows", "rows.csv", "--id", "item", "--isolate", "none", "--sandbox", "off"];
    folder.legwork(&map).args(more).anthropic(server)
}

#[test]
fn a_map_shows_its_active_rows_and_one_line_for_all() {
    let (folder, server) = waiting_rows(6);
    let terminal = Terminal::start(map(&folder, &server, &["--jobs", "4"]), 100, 20);
    let lines = terminal.wait_for("four rows", |lines| is_waiting(lines, 4));
    let live = spinners(&lines);
    for number in 1..=4 {
        let shown = live.iter().any(|line| line.contains(&format!(" row{number} turn 1   100.0k $0.30 ")));
        assert!(shown, "{lines:#?}");
    }
    let all = lines.last().unwrap();
    assert!(all.contains(" 0/6 rows, $1.20 ") && !all.contains("left"), "no row has ended: {all}");
    terminal.resize(100, 4, Narrowing::Cuts);
    terminal.wait_for("few rows", |lines| {
        lines.iter().any(|line| line == "  and 3 more rows") && spinners(lines).len() == 1
    });
    terminal.resize(100, 20, Narrowing::Cuts);
    terminal.wait_for("all rows", |lines| is_waiting(lines, 4));
    // Rows that have ended well are counted, and their lines are gone.
    let bar = |ended: usize| "━".repeat(5 * ended) + &"╌".repeat(30 - 5 * ended);
    for ended in 1..=4 {
        folder.write(&format!("go-row{ended}"), "");
        let active = 4.min(6 - ended);
        terminal.wait_for("fewer rows", |lines| {
            is_waiting(lines, active)
                && spinners(lines).len() == active
                && lines.last().is_some_and(|line| line.starts_with(&format!("  {} {ended}/6 rows, $", bar(ended))))
                && lines.iter().filter(|line| line.contains("/6 rows")).count() == 1
        });
    }
    folder.write("go", "");
    let (status, lines) = terminal.wait();
    assert!(status.success() && spinners(&lines).is_empty(), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("0/6 rows") || line.contains("more rows")), "{lines:#?}");
}

#[test]
fn a_stopped_map_names_the_command_that_goes_on() {
    let (folder, server) = waiting_rows(3);
    let terminal = Terminal::start(map(&folder, &server, &["--jobs", "2", "--limit", "cost_usd=50"]), 200, 40);
    terminal.wait_for("two rows", |lines| is_waiting(lines, 2));
    terminal.signal(Signal::INT);
    let (status, lines) = terminal.wait();
    assert_eq!(status.code(), Some(130), "{lines:#?}");
    // Nothing of the live lines is behind it.
    let stopping =
        lines.iter().filter(|line| *line == "stopping the rows that run; the same command continues them later");
    assert_eq!(stopping.count(), 1, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with('[')), "interrupted rows aren't listed: {lines:#?}");
    assert!(spinners(&lines).is_empty(), "{lines:#?}");
    let command = lines.last().unwrap().strip_prefix("resume: legwork ").unwrap_or_else(|| panic!("{lines:#?}"));
    folder.write("go", "");
    let words: Vec<&str> = command.split(' ').collect();
    folder.legwork(&words).anthropic(&server).run().assert_code(0).assert_stderr_contains("2 to continue, 1 to start");
}

#[test]
fn a_log_of_a_map_has_running_totals_and_says_what_runs() {
    let (folder, server) = waiting_rows(5);
    let running = map(&folder, &server, &["--jobs", "5"]).env("LEGWORK_HEARTBEAT_MS", "60").env("CI", "true");
    let terminal = Terminal::start(running, 400, 60);
    let beat = "still running: 0 of 5 rows ended, row";
    let is_beat =
        |line: &String| line.starts_with(beat) && line.contains("2 more active rows") && line.ends_with("$1.50");
    terminal.wait_for("a line", |lines| lines.iter().any(is_beat));
    folder.write("go", "");
    let (status, lines) = terminal.wait();
    assert!(status.success(), "{lines:#?}");
    let last = lines.iter().find(|line| line.starts_with("[5/5] row")).unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(last.contains(" completed: 2 turns") && last.contains("; so far $1.5"), "{last}");
}

#[test]
fn the_cost_of_a_map_is_that_of_all_processes_and_is_shown_with_its_limit() {
    let (folder, server) = waiting_rows(8);
    folder.write("go", "");
    let part = |shard: &str, more: &[&str]| {
        map(&folder, &server, &["--shard", shard]).args(more).env("CI", "true").run().assert_code(0).stderr.clone()
    };
    let last = |stderr: String| stderr.lines().rfind(|line| line.contains("; so far ")).unwrap().to_owned();
    let first = last(part("1/2", &[]));
    // 100,000 tokens at $3 for a million in the first turn of each row.
    let rows = |line: &str| line[1..].split('/').next().unwrap().parse::<u32>().unwrap();
    assert!(first.contains(&format!("; so far ${:.1}", f64::from(rows(&first)) * 0.3)), "{first}");
    let second = last(part("2/2", &["--limit", "cost_usd=50", "--limit", "tokens=2000000"]));
    assert_eq!(rows(&first) + rows(&second), 8, "{second}");
    assert!(
        second.contains("; so far $2.4") && second.contains(" of $50.00, 800.") && second.ends_with("k of 2.0M tokens"),
        "{second}"
    );
}

#[test]
fn a_run_at_a_limit_names_the_command_with_a_higher_limit() {
    let folder = folder_with("parent: { prompt: Go., tools: [bash], max_turns: 1 }\n");
    let script = json!({ "parent": [
        { "calls": [{ "tool": "bash", "input": { "command": "true" } }] }, { "text": "So far." }, { "text": "Whole." },
    ] });
    folder.write("my replies.yaml", script.to_string());
    let more = ["--model", "replay/my replies.yaml", "--sandbox", "off"];
    for (start, key) in [(&["run", "job.yaml"][..], ""), (&["run", "job.yaml", "--key", "k", "--fresh"], "k")] {
        let ended = folder.legwork(start).args(more).run();
        ended
            .assert_code(4)
            .assert_stderr_contains("limit:  1 of 1 turns are used; the command below allows twice as much");
        ended.assert_stderr_contains("errors: legwork show runs/job/").assert_not_printed("read:");
        let last = ended.stderr.lines().last().unwrap();
        let expected = match key {
            "" => "resume: legwork resume runs/job/".to_owned(),
            key => format!("resume: legwork run job.yaml --key {key} --model 'replay/my replies.yaml' --sandbox off"),
        };
        assert!(last.starts_with(&expected) && last.ends_with(" --limit max_turns=2"), "{last}");
        let command = last.strip_prefix("resume: ").unwrap().replacen("legwork", "\"$LEGWORK\"", 1);
        let shell = folder.program("sh", &["-c", &command]).env("LEGWORK", env!("CARGO_BIN_EXE_legwork")).run();
        shell.assert_code(0).assert_stdout("Whole.\n");
    }
}

#[test]
fn the_command_that_goes_on_sets_secret_inputs_again() {
    let folder =
        folder_with("inputs: { token: { type: string, secret: true } }\nparent: { prompt: Go., tools: [bash] }\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::status(400).error("invalid_request_error", "no credit"),
        Answer::text("At last."),
    ]));
    let secret = "a-secret-of-many-letters";
    let start = folder.legwork(&["run", "job.yaml", "--sandbox", "off", "--set-env", "token=MY_TOKEN"]);
    let rejected = start.anthropic(&server).env("MY_TOKEN", secret).run();
    rejected.assert_code(5).assert_stderr_contains("errors: legwork show runs/job/").assert_not_printed(secret);
    let last = rejected.stderr.lines().last().unwrap();
    let words: Vec<&str> = last.strip_prefix("resume: legwork ").unwrap().split(' ').collect();
    assert_eq!(words[2..], ["--set-env", "token=MY_TOKEN"], "{last}");
    let resumed = folder.legwork(&words).anthropic(&server).env("MY_TOKEN", secret).run();
    resumed.assert_code(0).assert_stdout("At last.\n").assert_not_printed("resume:");
}
