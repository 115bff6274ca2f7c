//! `legwork show`: what it prints of a run, in a pager or without one, and how it follows a run that is running.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::program::{Program, ProgramOutput, RunningProgram};
use crate::support::terminal::Terminal;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/r.json\nparent: { prompt: Find it., tools: [bash, task], max_turns: 9 }\n\
                   subagents: { look: { tools: [bash] } }\nchecks: [{ name: proof, run: test -e proof }]\n";

fn bash(command: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": command } })
}

/// A job whose second turn starts two subagents, and whose third turn waits for the file `go`.
fn job() -> TestFolder {
    let folder = TestFolder::new();
    let task = |what: &str| json!({ "tool": "task", "input": { "agent": "look", "description": what, "prompt": "?" } });
    let script = json!({
        "parent": [
            { "text": "First look.", "calls": [bash("echo one"), bash("echo two; exit 3")] },
            { "text": "Ask two.", "calls": [task("find the cause"), task("find the tests")] },
            { "text": "Now wait.", "calls": [bash("until [ -e go ]; do sleep 0.01; done; echo gone")] },
            { "text": "All seen." },
        ],
        "subagents": {
            "look-1": [{ "calls": [bash("echo inner; false")] }, { "text": "It is there." }],
            "look-2": [{ "calls": [bash("echo tests")] }, { "text": "None." }],
        },
    });
    folder.write("job.yaml", JOB).write("r.json", script.to_string());
    folder
}

fn run(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"])
}

/// A run whose check failed.
fn ended() -> TestFolder {
    let folder = job();
    folder.write("go", "");
    let ended = run(&folder).run();
    ended
        .assert_code(1)
        .assert_stderr_contains(&format!("errors: legwork show runs/job/{} --errors\n", ended.run_folder().id()));
    folder
}

/// Starts the run, and waits until it waits.
fn waiting(folder: &TestFolder) -> RunningProgram {
    let running = run(folder).spawn();
    folder.wait_for("runs/job/latest/subagents/look-2.md");
    running
}

fn show(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    folder.legwork(&[&["show"], arguments].concat()).run()
}

#[test]
fn an_agent_a_turn_or_the_errors_are_shown() {
    let folder = ended();
    let whole = show(&folder, &[]);
    whole
        .assert_code(0)
        .assert_stderr("")
        .assert_stdout_contains("# job: checks_failed")
        .assert_stdout_contains("All seen.");
    whole.assert_stdout_contains("- turn 1: bash `echo inner; false`");
    let agent = show(&folder, &["latest", "look-1"]);
    agent.assert_code(0).assert_stdout_contains("# look-1: completed").assert_stdout_contains("- task: find the cause");
    agent.assert_stdout_contains("inner\nexit code 1").assert_not_printed("First look.");
    let turn = show(&folder, &["--turn", "2"]);
    turn.assert_code(0)
        .assert_stdout_contains("Ask two.")
        .assert_not_printed("First look.")
        .assert_not_printed("Now wait.");
    let turn = show(&folder, &["latest", "look-2", "--turn", "2"]);
    turn.assert_code(0).assert_stdout_contains("None.").assert_not_printed("echo tests");

    let errors = show(&folder, &["--errors"]);
    errors.assert_code(0).assert_not_printed("echo one").assert_not_printed("All seen.");
    let at = |part: &str| errors.stdout.find(part).unwrap_or_else(|| panic!("{part}\n{}", errors.full_output()));
    let places = [
        "# job: checks_failed",
        "### parent, turn 1: bash `echo two; exit 3`",
        "two\nexit code 3",
        "### look-1, turn 1: bash `echo inner; false`",
        "### parent, turn 4: check proof (failed, exit code 1, ",
    ];
    assert!(places.map(at).is_sorted(), "{}", errors.full_output());
    show(&folder, &["latest", "look-2", "--errors"])
        .assert_code(0)
        .assert_stdout_contains("No call, check or request failed")
        .assert_not_printed("exit code 3");

    show(&folder, &["latest", "look-3"]).assert_code(2).assert_stderr_contains("It has: parent, look-1, look-2.");
    show(&folder, &["--follow", "latest", "look"])
        .assert_code(2)
        .assert_stderr_contains("It can have: parent, look-1.");
    show(&folder, &["--turn", "5"]).assert_code(2).assert_stderr_contains("Its last turn is 4.");
    show(&folder, &["--turn", "1", "--errors"]).assert_code(2).assert_stderr_contains("--errors");
}

#[test]
fn a_run_is_followed_to_its_end() {
    let folder = job();
    let running = waiting(&folder);
    let terminal = Terminal::start(folder.legwork(&["show", "--follow"]), 100, 100);
    let lines = terminal.wait_for("the third turn", |lines| lines.iter().any(|line| line == "Now wait."));
    assert!(!lines.iter().any(|line| line.contains("gone")), "{lines:#?}");
    folder.write("go", "");
    running.wait().assert_code(1);
    let (status, lines) = terminal.wait();
    assert!(status.success(), "{lines:#?}");
    let at =
        |part: &str| lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {lines:#?}"));
    let places = [
        "Find it.",
        "First look.",
        "Ask two.",
        "look-1, turn 1: bash echo inner; false",
        "task find the cause: look-1",
        "look-2, turn 1: bash echo tests",
        "task find the tests: look-2",
        "Now wait.",
        "gone",
        "All seen.",
        "check proof (failed, exit code 1, ",
        "The run has ended: checks_failed.",
    ];
    // The calls of parallel subagents come as they end.
    let (mut first, mut second) = (places.map(at).to_vec(), places.map(at).to_vec());
    first.drain(5..7);
    second.drain(3..5);
    assert!(first.is_sorted() && second.is_sorted(), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("look-1, turn 1")).count(), 1, "{lines:#?}");

    let later = show(&folder, &["--follow"]);
    later.assert_code(0).assert_stderr("The run has ended: checks_failed.\n").assert_stdout_contains("All seen.");
    let at = |part: &str| later.stdout.find(part).unwrap_or_else(|| panic!("{part}\n{}", later.full_output()));
    let places = [
        "Ask two.",
        "- look-1, turn 1: bash",
        "find the cause",
        "- look-2, turn 1: bash",
        "find the tests",
        "Now wait.",
    ];
    assert!(places.map(at).is_sorted(), "{}", later.full_output());
    let subagent = show(&folder, &["--follow", "latest", "look-1"]);
    subagent.assert_code(0).assert_stdout_contains("It is there.").assert_not_printed("First look.");
}

#[test]
fn following_stops_at_ctrl_c_and_the_run_goes_on() {
    let folder = job();
    let running = waiting(&folder);
    let terminal = Terminal::start(folder.legwork(&["show", "--follow"]), 100, 100);
    terminal.wait_for("the third turn", |lines| lines.iter().any(|line| line == "Now wait."));
    terminal.signal(Signal::INT);
    let (status, lines) = terminal.wait();
    // A shell reports this as exit code 130.
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{lines:#?}");
    assert!(running.is_alive());
    folder.write("go", "");
    running.wait().assert_code(1);
}

#[test]
fn following_ends_when_the_run_was_killed_or_the_reader_is_gone() {
    let folder = job();
    let running = waiting(&folder);
    // `head` closes the pipe while the run lasts.
    let command = "\"$LEGWORK\" show --follow | head -n 3";
    let head = folder.program("sh", &["-c", command]).env("LEGWORK", env!("CARGO_BIN_EXE_legwork")).run();
    head.assert_code(0).assert_stdout("## Prompt\n\n```\n").assert_stderr("");
    let following = folder.legwork(&["show", "--follow"]).spawn();
    running.signal(Signal::KILL);
    running.wait();
    let followed = following.wait();
    followed.assert_code(0).assert_stdout_contains("Now wait.").assert_not_printed("The run has ended");
    followed
        .assert_stderr_contains("no process runs this run any more, and it hasn't ended: `legwork resume runs/job/");
    show(&folder, &["--errors"])
        .assert_code(0)
        .assert_stdout_contains("# job: not finished")
        .assert_stdout_contains("exit code 3");
}

#[test]
fn a_terminal_gets_a_pager() {
    let folder = ended();
    let on_terminal = |variables: &[(&str, &str)], arguments: &[&str]| {
        let program = folder.legwork(&[&["show"], arguments].concat());
        let program = variables.iter().fold(program, |program, (name, value)| program.env(name, value));
        let terminal = Terminal::start(program, 100, 200);
        let (status, lines) = terminal.wait();
        assert!(status.success(), "{variables:?}: {lines:#?}");
        lines
    };
    // Without less on the PATH, and with a variable that says so, the text is printed.
    let no_less = folder.at("no programs");
    let no_less = no_less.to_str().unwrap();
    let plain = on_terminal(&[("PATH", no_less)], &[]);
    assert!(plain[0] == "job: checks_failed" && plain.contains(&"All seen.".to_owned()), "{plain:#?}");
    for variables in [&[("PAGER", "")][..], &[("PAGER", "cat")], &[("PAGER", "cat"), ("TERM", "dumb")]] {
        assert_eq!(on_terminal(variables, &[]), plain, "{variables:?}");
    }
    let mark = ("PAGER", "sed 's/^/page: /'");
    for (variables, arguments) in [
        (&[mark, ("LEGWORK_PAGER", "cat")][..], &[][..]),
        (&[mark], &["--no-pager"]),
        (&[mark, ("TERM", "dumb")], &[]),
        (&[mark, ("CI", "true")], &[]),
    ] {
        let lines = on_terminal(variables, arguments);
        assert!(
            lines.contains(&"All seen.".to_owned()) && !lines.iter().any(|line| line.contains("page:")),
            "{variables:?}"
        );
    }
    let paged = on_terminal(&[mark], &[]);
    assert!(paged.contains(&"page: All seen.".to_owned()) && !paged.contains(&"All seen.".to_owned()), "{paged:#?}");
    let paged = on_terminal(&[("PAGER", "cat"), ("LEGWORK_PAGER", "sed 's/^/page: /'")], &["--errors"]);
    assert!(paged[0] == "page: job: checks_failed", "{paged:#?}");
    // One that quits early, and one that can't be started.
    assert_eq!(on_terminal(&[("PAGER", "head -n 1")], &[]), ["job: checks_failed"]);
    assert_eq!(on_terminal(&[("PAGER", "true")], &[]), [""; 0]);
    let failed = on_terminal(&[("PAGER", "/no/such/pager")], &[]);
    assert!(failed.contains(&"All seen.".to_owned()), "{failed:#?}");
    assert!(
        failed.iter().any(|line| line.contains("the pager in $LEGWORK_PAGER or $PAGER can't be started")),
        "{failed:#?}"
    );
    // A pipe gets no pager.
    let piped = folder.legwork(&["show"]).env("PAGER", "sed 's/^/page: /'").run();
    piped.assert_code(0).assert_stdout_contains("\nAll seen.\n").assert_not_printed("page:");
    let command = "\"$LEGWORK\" show | head -n 1";
    let head = folder.program("sh", &["-c", command]).env("LEGWORK", env!("CARGO_BIN_EXE_legwork")).run();
    head.assert_code(0).assert_stdout("# job: checks_failed\n").assert_stderr("");
}

#[test]
fn less_gets_its_options_and_is_never_one_of_the_workspace() {
    let folder = ended();
    let write_program = |name: &str, text: &str| {
        folder.write(name, format!("#!/bin/sh\ncat > /dev/null\necho \"{text}\"\n"));
        std::fs::set_permissions(folder.at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write_program("../home/bin/less", "less $* [$LESS]");
    write_program("bin/less", "planted");
    let (bin, planted) = (folder.home().join("bin"), folder.at("bin"));
    let paths = |folders: &[&std::path::Path]| {
        let usual = std::env::var("PATH").unwrap();
        let folders = folders.iter().map(|folder| folder.to_path_buf());
        std::env::join_paths(folders.chain(std::env::split_paths(&usual))).unwrap()
    };
    let output = |variables: &[(&str, &str)]| {
        let program = folder.legwork(&["show"]).env("PATH", paths(&[&planted, &bin])).env("KEY", "x");
        let program = variables.iter().fold(program, |program, (name, value)| program.env(name, value));
        let (status, lines) = Terminal::start(program, 100, 50).wait();
        assert!(status.success(), "{lines:#?}");
        lines
    };
    assert_eq!(output(&[]), ["less -FRX []"]);
    assert_eq!(output(&[("LESS", "S")]), ["less -FRX [S]"]);
    let print = "cat > /dev/null; echo \"pager [$LESS] [$ANTHROPIC_API_KEY]\"";
    assert_eq!(output(&[("PAGER", print), ("ANTHROPIC_API_KEY", "secret-of-a-provider")]), ["pager [FRX] []"]);
    assert_eq!(output(&[("PAGER", print), ("LESS", "S")]), ["pager [S] []"]);
}

#[test]
fn of_another_format_the_pages_that_were_written_are_shown() {
    let folder = ended();
    folder.allow_forged_records();
    let record = folder.at("runs/job/latest");
    let journal = std::fs::read_to_string(record.join("events.jsonl")).unwrap();
    std::fs::write(record.join("events.jsonl"), journal.replacen("\"format\":2", "\"format\":9", 1)).unwrap();
    std::fs::write(record.join("transcript.md"), "# Written \u{1b}[2J before\n").unwrap();
    let shown = show(&folder, &[]);
    shown.assert_code(0).assert_stderr_contains("the record's format is 9").assert_stdout_contains("# Written");
    show(&folder, &["latest", "look-1"]).assert_code(0).assert_stdout_contains("It is there.");
    for arguments in [&["latest", "--errors"][..], &["latest", "../../x"], &["latest", "look-7"]] {
        show(&folder, arguments).assert_code(2).assert_stdout("").assert_stderr_contains("can read it");
    }
    let raw = folder.legwork(&["show"]).env("CI", "true").run();
    assert!(!raw.stdout.contains('\u{1b}'), "{}", raw.stdout);
}
