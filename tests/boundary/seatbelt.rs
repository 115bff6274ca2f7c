//! What commands can do on macOS. These tests drive the real program; only the hosted workflow runs them.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};

use crate::running::run_failures::wait_until;
use crate::support::program::{Program, ProgramOutput};
use crate::support::test_folder::TestFolder;

/// A folder with a job that calls `bash` once for each command. `rest` are more lines of the job.
fn prepared(rest: &str, options: &str, commands: &[&str]) -> TestFolder {
    let folder = TestFolder::new();
    let tools = format!("[bash: {{ timeout: 20s{options} }}]");
    folder
        .write("job.yaml", format!("model: replay/../replies.yaml\nparent: {{ prompt: Go., tools: {tools} }}\n{rest}"));
    let call = |command: &&str| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
    let turns: Vec<Value> = commands.iter().map(call).chain([json!({ "text": "Done." })]).collect();
    std::fs::write(outside(&folder).join("replies.yaml"), json!({ "parent": turns }).to_string()).unwrap();
    folder
}

/// A folder beside the workspace.
fn outside(folder: &TestFolder) -> &'static Path {
    Box::leak(folder.home().parent().unwrap().to_owned().into_boxed_path())
}

fn program(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml"])
}

/// The output of each command.
fn command_outputs(ended: &ProgramOutput) -> Vec<String> {
    let events = ended.run_folder().events();
    let finished = events.iter().filter_map(|entry| match entry["type"] == "call_finished" {
        true => entry["data"]["result"]["text"].as_str(),
        false => None,
    });
    finished.map(ToOwned::to_owned).collect()
}

fn run(folder: &TestFolder) -> Vec<String> {
    let ended = program(folder).run();
    ended.assert_code(0);
    assert_eq!(ended.run_folder().result()["sandbox"], "seatbelt");
    command_outputs(&ended)
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap_or_else(|_| panic!("a process id: {text}"))).unwrap()
}

fn has_ended(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

#[test]
fn ordinary_work_is_possible() {
    let folder = prepared(
        "",
        "",
        &[
            "set -e; echo x > a; ln -s a link; ln a hard; mv a b; cp b c; chmod 700 c; mkdir d; rmdir d; touch -t 202601010000 c; \
             cat < <(echo substituted); echo error > /dev/stderr; head -c 3 /dev/zero | wc -c; echo kept > ~/kept; \
             echo $TMPDIR > $TMPDIR/x; pwd; id -un > /dev/null; git --version > /dev/null; printf '#!/bin/sh\\necho script\\n' > s; \
             chmod +x s; ./s; echo all",
            "cat ~/kept; test -s $TMPDIR/x && echo kept too; ls ~ | wc -l",
        ],
    );
    let outputs = run(&folder);
    for line in ["substituted", "error", "script", "all"] {
        assert!(outputs[0].lines().any(|found| found == line), "{line}: {}", outputs[0]);
    }
    assert!(outputs[1].starts_with("kept\nkept too\n"), "{}", outputs[1]);
    assert!(folder.exists("hard") && folder.exists("c"));
    assert!(!folder.home().join("kept").exists(), "the home folder is the run's own");
}

#[test]
fn nothing_outside_can_be_changed_and_nothing_hidden_read() {
    let attack = "\
        echo x > ../planted; echo x > ~/../planted; mkdir ../folder; cat ../secret; cat $REAL/.ssh/id; ls $REAL; \
        cat $REAL/.cargo/credentials.toml; cat $REAL/.cargo/config.toml; ln ../secret alias; ln -s ../secret l; cat l; \
        cp -c ../secret clone; mv ../secret .; rm -rf ../secret; touch /private/tmp/legwork-test-planted; \
        chmod 777 ../secret; xattr -w a b ../secret; cat /System/Volumes/Data$REAL/.ssh/id; kill -0 $PPID && echo signals; \
        launchctl submit -l legwork.test -- /usr/bin/touch $PWD/../launched; \
        echo 'touch ../later' | at now; cp job.yaml s; chmod u+s s; test -u s && echo set-user-id; echo end";
    let folder = prepared("env: [REAL]\n", "", &[attack]);
    for (name, content) in
        [(".ssh/id", "secret-id"), (".cargo/credentials.toml", "secret-token"), (".cargo/config.toml", "# shown\n")]
    {
        let path = folder.home().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let around = outside(&folder);
    std::fs::write(around.join("secret"), "secret-file").unwrap();
    let before = std::fs::read_dir(around).unwrap().count();
    let real = folder.home().canonicalize().unwrap();
    let ended = program(&folder).env("REAL", &real).run();
    ended.assert_code(0);
    let printed = command_outputs(&ended).concat();
    assert!(printed.contains("# shown") && printed.contains("end"), "{printed}");
    for word in ["secret-", "signals", "set-user-id"] {
        assert!(!printed.contains(word), "{word}: {printed}");
    }
    assert_eq!(std::fs::read_to_string(around.join("secret")).unwrap(), "secret-file");
    assert_eq!(std::fs::read_dir(around).unwrap().count(), before, "{:?}", std::fs::read_dir(around).unwrap());
    assert!(!folder.exists("alias") && !folder.exists("clone"));
}

#[test]
fn protected_files_stay_as_they_are() {
    let attack = "\
        echo x >> job.yaml; rm -f job.yaml; mv job.yaml j; ln job.yaml j; echo x > .github/workflows/x.yml; rm -rf .github; \
        mv .github g; mkdir .vscode; echo x > .envrc; echo x > .git/hooks/post-checkout; mv .git g; echo x >> .git/config; \
        echo x > a/b/kept; mv a z; mv a/b a/z; rm -rf a; echo x > runs/.gitignore; touch runs/planted; mv runs r; \
        ln -sf x a/link; git commit --allow-empty -m x; git status > /dev/null && echo git reads; echo end";
    let folder = prepared("protect: [a/b/kept]\n", "", &[attack]);
    folder.write(".github/workflows/x.yml", "on: push\n").write("a/b/kept", "kept").commit_all();
    let (job, config) = (folder.read("job.yaml"), folder.read(".git/config"));
    let outputs = run(&folder);
    assert!(outputs[0].contains("git reads") && outputs[0].contains("end"), "{}", outputs[0]);
    assert_eq!((folder.read("job.yaml"), folder.read(".git/config")), (job, config));
    assert_eq!(folder.read(".github/workflows/x.yml"), "on: push\n");
    assert_eq!(folder.read("a/b/kept"), "kept");
    for path in [".vscode", ".envrc", ".git/hooks/post-checkout", "runs/planted", "g", "j", "r", "z"] {
        assert!(!folder.exists(path), "{path}");
    }
    assert_eq!(folder.git(&["rev-list", "--count", "HEAD"]).trim(), "1");
}

#[test]
fn another_spelling_of_a_protected_path_is_found_after_the_command() {
    let folder = prepared("", "", &["mkdir -p .GITHUB/workflows; echo x > .GITHUB/workflows/x.yml"]);
    // Only file systems that don't distinguish case, which is the default, have this problem.
    folder.write("probe", "");
    if folder.exists("PROBE") {
        program(&folder).run().assert_code(5).assert_stderr_contains(".github");
        assert!(!folder.exists(".github"));
    }
}

#[test]
fn commits_are_possible_if_the_job_allows_them() {
    let commit = "echo x > new; git add new; git -c user.name=a -c user.email=a@example.com commit -qm x; git log --format=%s; \
                  echo x >> .git/config";
    let folder = prepared("git: commit\n", "", &[commit]);
    folder.commit_all();
    let outputs = run(&folder);
    assert!(outputs[0].contains("x\n"), "{}", outputs[0]);
    assert_eq!(folder.git(&["rev-list", "--count", "HEAD"]).trim(), "2");
}

#[test]
fn a_read_only_shell_changes_only_its_own_folders() {
    let folder =
        prepared("", ", read_only: true", &["echo x > planted; echo x > ~/own && echo x > $TMPDIR/own && echo works"]);
    let outputs = run(&folder);
    assert!(outputs[0].contains("works") && !folder.exists("planted"), "{}", outputs[0]);
}

#[test]
fn the_network_is_closed_unless_the_job_opens_it() {
    for (rest, is_open) in [("", false), ("network: open\n", true)] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = std::env::temp_dir().join(format!("legwork-test-{}", listener.local_addr().unwrap().port()));
        let service = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let command = format!(
            "nc -z -w 2 127.0.0.1 {}; nc -w 2 -U {} < /dev/null; echo end",
            listener.local_addr().unwrap().port(),
            socket.display()
        );
        let outputs = run(&prepared(rest, "", &[&command]));
        assert!(outputs[0].contains("end"), "{}", outputs[0]);
        listener.set_nonblocking(true).unwrap();
        service.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().is_ok(), is_open, "{}", outputs[0]);
        assert!(service.accept().is_err(), "a unix socket of a service: {}", outputs[0]);
        std::fs::remove_file(socket).unwrap();
    }
}

#[test]
fn processes_that_leave_the_group_or_the_session_end_with_the_call() {
    let folder = prepared(
        "",
        "",
        &[
            "set -m; sleep 600 > /dev/null & echo $! > group; \
             perl -MPOSIX -e 'POSIX::setsid(); open F, \">session\"; print F $$; close F; sleep 600' > /dev/null & \
             until [ -s session ]; do sleep 0.05; done; sleep 0.5",
            "echo next",
        ],
    );
    run(&folder);
    for name in ["group", "session"] {
        assert!(has_ended(pid(&folder.read(name))), "{name}");
    }
}

#[test]
fn a_command_ends_when_legwork_is_killed() {
    let folder = prepared("", "", &["echo $$ > id; sleep 600 & echo $! > child; touch ready; wait"]);
    let running = program(&folder).spawn();
    folder.wait_for("ready");
    running.signal(Signal::KILL);
    running.wait();
    for name in ["id", "child"] {
        let process = pid(&folder.read(name));
        wait_until(|| has_ended(process));
    }
}

#[test]
fn the_tier_is_named() {
    let folder = TestFolder::new();
    folder.legwork(&["doctor"]).run().assert_stdout_contains("seatbelt");
    folder.legwork(&["--version", "--verbose"]).run().assert_stdout_contains("seatbelt works here");
    let folder = prepared("", "", &["true"]);
    program(&folder).args(["--sandbox", "required"]).run().assert_code(0).assert_stderr_contains("sandbox: seatbelt");
    let profile =
        Command::new("/usr/bin/sandbox-exec").args(["-p", "(version 1)(allow default)", "/usr/bin/true"]).status();
    assert!(profile.unwrap().success(), "this machine has the program");
}
