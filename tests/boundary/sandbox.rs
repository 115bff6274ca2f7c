//! The environment of commands in the sandbox, and the choice of a tier. `sandbox_attacks` tests the restrictions.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::bubblewrap::{bubblewrap_works, find_program};
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;
use crate::support::{in_parallel, report_skipped};

/// A folder with a job that calls `bash` once for each command.
fn prepared(options: &str, commands: &[&str]) -> TestFolder {
    let folder = TestFolder::new();
    let tools = format!("[bash: {{ timeout: 20s{options} }}]");
    folder.write(
        "job.yaml",
        format!(
            "model: anthropic/claude-haiku-4-5\nlimits: {{ cost_usd: 1 }}\nparent: {{ prompt: Go., tools: {tools} }}\n"
        ),
    );
    let call = |command: &&str| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
    let turns: Vec<Value> = commands.iter().map(call).chain([json!({ "text": "Done." })]).collect();
    std::fs::write(folder.home().parent().unwrap().join("replies.yaml"), json!({ "parent": turns }).to_string())
        .unwrap();
    folder
}

fn program(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml", "--model", "replay/../replies.yaml"])
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

fn sandbox(ended: &ProgramOutput) -> String {
    ended.run_folder().result()["sandbox"].as_str().unwrap().to_owned()
}

/// Creates an executable script.
fn write_executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder of programs without `bwrap`.
pub(crate) fn path_without_bwrap(folder: &TestFolder) -> PathBuf {
    let programs = folder.home().parent().unwrap().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    for name in ["bash", "sh", "env", "cat", "ls", "sleep"] {
        symlink(find_program(name).unwrap(), programs.join(name)).unwrap();
    }
    programs
}

#[test]
fn the_home_folder_has_only_toolchains_and_exists_during_the_run() {
    if !bubblewrap_works() {
        return;
    }
    let folder = prepared(
        "",
        &[
            "ls -A ~; cat ~/.cargo/config.toml; cat ~/.cargo/credentials.toml 2>&1; touch ~/.cargo/new 2>&1; \
             echo kept > ~/kept; echo temporary > /tmp/kept; echo $TMPDIR",
            "cat ~/kept /tmp/kept; tool",
            "mkdir -p ~/mod/sub; touch ~/mod/sub/x; chmod 555 ~/mod/sub; chmod 0 ~/mod",
        ],
    );
    for (name, content) in
        [(".ssh/id", "secret"), (".cargo/config.toml", "# config\n"), (".cargo/credentials.toml", "secret-token")]
    {
        let path = folder.home().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    write_executable(&folder.home().join("tools/bin/tool"), "echo runs");
    let temporary = folder.home().parent().unwrap().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let path = format!("{}:{}", folder.home().join("tools/bin").display(), std::env::var("PATH").unwrap());
    let ended = program(&folder).env("PATH", path).env("TMPDIR", &temporary).run();
    ended.assert_code(0).assert_not_printed("sandbox");
    let printed = command_outputs(&ended);
    assert!(printed[0].starts_with(".cargo\ntools\n# config\n"), "{}", printed[0]);
    assert!(printed[0].ends_with("\n/tmp"), "{}", printed[0]);
    assert!(printed[0].contains("Read-only file system") && !printed[0].contains("secret"), "{}", printed[0]);
    assert_eq!(printed[1], "kept\ntemporary\nruns");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "the run's own folder is gone");
    assert!(!folder.home().join("kept").exists() && !folder.home().join(".cargo/new").exists());
    assert_eq!(sandbox(&ended), "bubblewrap");
}

#[test]
fn credentials_in_toolchain_folders_are_hidden_in_both_tiers() {
    for bubblewrap in [true, false] {
        if bubblewrap && !bubblewrap_works() {
            continue;
        }
        let command = "cd ~; cat .cargo/config.toml .stack/upload/credentials.json .stack/config.yaml \
                       .local/share/uv/credentials/index .dotnet/corefx/cryptography/key .cargo/bin/note 2>/dev/null";
        let folder = prepared("", &[command]);
        for name in [
            ".cargo/config.toml",
            ".stack/upload/credentials.json",
            ".stack/config.yaml",
            ".local/share/uv/credentials/index",
            ".dotnet/corefx/cryptography/key",
        ] {
            folder.write(folder.home().join(name).to_str().unwrap(), "password = 'hunter2'\n");
        }
        folder.write(folder.home().join(".cargo/bin/note").to_str().unwrap(), "shown\n");
        let mut program = program(&folder);
        if !bubblewrap {
            program = program.env("PATH", path_without_bwrap(&folder));
        }
        let ended = program.run();
        ended.assert_code(0);
        assert_eq!(sandbox(&ended), if bubblewrap { "bubblewrap" } else { "landlock" });
        assert!(command_outputs(&ended)[0].starts_with("shown"), "{}", command_outputs(&ended)[0]);
    }
}

#[test]
fn paths_allowed_below_home_are_available_in_both_tiers() {
    for bubblewrap in [true, false] {
        if bubblewrap && !bubblewrap_works() {
            continue;
        }
        let folder =
            prepared("", &["cat ~/.config/gh/hosts.yml; echo new > ~/.cache/tool/made; cat ~/.config/other 2>&1"]);
        for (name, text) in [(".config/gh/hosts.yml", "hosts\n"), (".config/other", "secret\n"), (".cache/tool/x", "")]
        {
            folder.write(folder.home().join(name).to_str().unwrap(), text);
        }
        let (read, write) = (folder.home().join(".config/gh"), folder.home().join(".cache/tool"));
        let mut program = program(&folder).arg("--allow-read").arg(read).arg("--allow-write").arg(&write);
        if !bubblewrap {
            program = program.env("PATH", path_without_bwrap(&folder));
        }
        let ended = program.run();
        ended.assert_code(0);
        let printed = &command_outputs(&ended)[0];
        assert!(printed.starts_with("hosts\n") && !printed.contains("secret"), "bubblewrap {bubblewrap}: {printed}");
        assert!(write.join("made").exists(), "bubblewrap {bubblewrap}: {printed}");
    }
}

#[test]
fn the_home_folder_is_removed_even_if_the_run_is_killed() {
    if !bubblewrap_works() {
        return;
    }
    let folder = prepared("", &["echo secret > ~/token; touch written; sleep 60"]);
    let temporary = folder.home().parent().unwrap().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let running = program(&folder).env("TMPDIR", &temporary).spawn();
    folder.wait_for("written");
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while std::fs::read_dir(&temporary).unwrap().count() > 0 {
        assert!(std::time::Instant::now() < deadline, "it is still there");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next() {
    if !bubblewrap_works() {
        return;
    }
    let folder = prepared("", &["true"]);
    let temporary = folder.home().parent().unwrap().join("temporary");
    let left = temporary.join("legwork-run-abcdef");
    std::fs::create_dir_all(left.join("home/deep")).unwrap();
    std::fs::write(left.join("lock"), "").unwrap();
    std::fs::set_permissions(left.join("home/deep"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let held = temporary.join("legwork-run-held");
    std::fs::create_dir(&held).unwrap();
    let lock = std::fs::File::create(held.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    program(&folder).env("TMPDIR", &temporary).run().assert_code(0);
    assert!(!left.exists() && held.exists());
}

#[test]
fn the_workspace_can_be_anywhere() {
    if !bubblewrap_works() {
        return;
    }
    // The workspace is in the home folder, which is otherwise hidden.
    let folder = prepared("", &["pwd; echo new > file; ls -A .."]);
    std::fs::write(folder.home().parent().unwrap().join("secret"), "").unwrap();
    let above = folder.path().parent().unwrap().to_owned();
    let ended = program(&folder).env("HOME", &above).run();
    assert_eq!(command_outputs(&ended), [format!("{}\nwork", folder.path().display())]);
    assert_eq!(folder.read("file"), "new\n");
    // The workspace is the home folder itself.
    let folder = prepared("", &["[ $HOME != $PWD ] && touch ~/x && ls -A ~; echo new > file"]);
    let ended = program(&folder).env("HOME", folder.path()).run();
    assert_eq!((command_outputs(&ended), folder.read("file")), (vec!["x".to_owned()], "new\n".to_owned()));
    // The home folder is in the workspace.
    let folder = prepared("", &["cat home/.ssh/id; touch home/x; echo new > file"]);
    folder.write("home/.ssh/id", "secret");
    let ended = program(&folder).env("HOME", folder.at("home")).run();
    assert!(!command_outputs(&ended)[0].contains("secret") && !folder.exists("home/x") && folder.exists("file"));
}

#[test]
fn allow_options_grant_access_and_read_only_removes_write_access() {
    if !bubblewrap_works() {
        return;
    }
    let commands = ["cat ~/data/file; touch ~/data/x", "touch ~/cache/x", "touch here; touch ~/own && echo own"];
    let [open, closed] = ["", ", read_only: true"].map(|options| {
        let folder = prepared(options, &commands);
        for name in ["data", "cache"] {
            std::fs::create_dir(folder.home().join(name)).unwrap();
        }
        std::fs::write(folder.home().join("data/file"), "content\n").unwrap();
        let (data, cache) = (folder.home().join("data"), folder.home().join("cache"));
        let ended = program(&folder).arg("--allow-read").arg(data).arg("--allow-write").arg(cache).run();
        ended.assert_code(0);
        assert!(
            command_outputs(&ended)[0].starts_with("content\n") && !folder.home().join("data/x").exists(),
            "{}",
            ended.full_output()
        );
        assert!(command_outputs(&ended)[2].ends_with("own"), "{}", ended.full_output());
        folder
    });
    assert!(open.home().join("cache/x").exists() && open.exists("here"));
    assert!(!closed.home().join("cache/x").exists() && !closed.exists("here"));
    let missing = prepared("", &["true"]);
    program(&missing).args(["--allow-read", "missing"]).run().assert_code(2).assert_stderr_contains("--allow-read");
}

#[test]
fn a_bwrap_that_commands_can_write_is_not_used() {
    let folder = prepared("", &["true"]);
    let programs = path_without_bwrap(&folder);
    write_executable(&folder.at("bin/bwrap"), "touch planted; exit 0");
    write_executable(&folder.at("tools/bwrap"), "touch planted; exit 0");
    for path in ["tools:.:PROGRAMS", "PROGRAMS:WORK/bin", "WORK/bin:PROGRAMS"] {
        let path =
            path.replace("PROGRAMS", programs.to_str().unwrap()).replace("WORK", folder.path().to_str().unwrap());
        program(&folder)
            .args(["--sandbox", "required"])
            .env("PATH", &path)
            .run()
            .assert_code(5)
            .assert_stderr_contains("bwrap");
        assert!(!folder.exists("planted"), "{path}");
    }
    // All users can write to this folder.
    let shared = folder.home().parent().unwrap().join("shared");
    write_executable(&shared.join("bwrap"), "touch planted; exit 0");
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = format!("{}:{}", shared.display(), programs.display());
    let ended = program(&folder).args(["--sandbox", "required"]).env("PATH", path).run();
    ended.assert_code(5).assert_stderr_contains("every user may write to");
    assert!(!folder.exists("planted") && !folder.exists("runs"), "nothing was begun");
}

#[test]
fn a_bwrap_that_fails_hangs_or_pretends_is_unavailable() {
    let programs = [
        ("echo no such luck >&2; exit 1", "no such luck"),
        ("exit 0", "capabilities"),
        ("while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"", "privileges"),
        ("exec sleep 77", "didn't end within 5 seconds"),
    ];
    in_parallel(programs, |(text, why)| {
        let folder = prepared("", &["echo ran"]);
        let programs = path_without_bwrap(&folder);
        write_executable(&programs.join("bwrap"), text);
        let ended = program(&folder).args(["--sandbox", "required"]).env("PATH", &programs).run();
        ended.assert_code(5).assert_stderr_contains("--sandbox off");
        // As root, the check of capabilities fails first.
        assert!(ended.stderr.contains(why) || ended.stderr.contains("capabilities"), "{}", ended.full_output());
        let ended = program(&folder).env("PATH", &programs).run();
        match ended.stderr.contains("landlock can't be used") {
            true => report_skipped("no landlock here"),
            false => {
                ended.assert_code(0).assert_stderr_contains("warning: sandbox: landlock");
                assert_eq!((sandbox(&ended).as_str(), command_outputs(&ended)), ("landlock", vec!["ran".to_owned()]));
            }
        }
    });
}

#[test]
fn bubblewrap_is_probed_once_for_read_write_and_read_only() {
    if !bubblewrap_works() {
        return;
    }
    let real = find_program("bwrap").unwrap();
    for (options, written) in [("", true), (", read_only: true", false)] {
        let folder = prepared(options, &["echo > new; echo ran"]);
        let programs = path_without_bwrap(&folder);
        let starts = folder.home().parent().unwrap().join("starts");
        write_executable(
            &programs.join("bwrap"),
            &format!("echo >> {}; exec {} \"$@\"", starts.display(), real.display()),
        );
        let ended = program(&folder).args(["--sandbox", "required"]).env("PATH", &programs).run();
        ended.assert_code(0);
        assert!(command_outputs(&ended)[0].ends_with("ran"), "{}", ended.full_output());
        assert_eq!(folder.exists("new"), written);
        let starts = std::fs::read_to_string(starts).unwrap().lines().count();
        assert_eq!(starts, 2, "one trial, one command");
    }
}

/// A job, and a `bwrap` whose behavior depends on which files are next to it. The first run has succeeded.
struct RememberedProbe {
    folder: TestFolder,
    programs: PathBuf,
}

impl RememberedProbe {
    /// `None` if bubblewrap doesn't work here.
    fn new() -> Option<Self> {
        if !bubblewrap_works() {
            return None;
        }
        let real = find_program("bwrap").unwrap();
        let folder = prepared("", &[]);
        let programs = path_without_bwrap(&folder);
        let text =
            "cd PROGRAMS; while [ -e slow ]; do /bin/sleep 0.02; done; [ ! -e broken ] || { echo broken >&2; exit 1; }
            [ ! -e pretends ] || { while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"; }; exec REAL \"$@\"";
        let text = text.replace("PROGRAMS", programs.to_str().unwrap()).replace("REAL", real.to_str().unwrap());
        write_executable(&programs.join("bwrap"), &text);
        let remembered = Self { folder, programs };
        let (ended, requests) = remembered.run(|_| ());
        ended.assert_code(0);
        assert_eq!((command_outputs(&ended), requests), (vec!["ran".to_owned()], 2));
        assert_eq!(std::fs::read_to_string(remembered.cache()).unwrap().lines().count(), 1);
        Some(remembered)
    }

    fn cache(&self) -> PathBuf {
        self.folder.home().join(".cache/legwork/sandbox-probes")
    }

    fn set(&self, behavior: &str) {
        std::fs::write(self.programs.join(behavior), "").unwrap();
    }

    /// Runs the job, which calls `bash` once. Returns the number of requests.
    fn run(&self, asked: impl Fn(&Path) + Send + Sync + 'static) -> (ProgramOutput, usize) {
        let programs = self.programs.clone();
        let server = Server::start(move |request: &Request| {
            asked(&programs);
            match request.turn() {
                0 => Answer::calls(&[("bash", json!({ "command": ": > changed; echo ran" }))]),
                _ => Answer::text("Done."),
            }
        });
        let program = self.folder.legwork(&["run", "job.yaml", "--sandbox", "required"]).anthropic(&server);
        let ended = program.env("PATH", &self.programs).run();
        (ended, server.finish().len())
    }
}

#[test]
fn the_first_request_waits_for_the_probe_only_if_no_earlier_run_has_passed_it() {
    let Some(remembered) = RememberedProbe::new() else { return };
    remembered.set("slow");
    // The probe ends only after the request.
    let (ended, requests) = remembered.run(|programs| drop(std::fs::remove_file(programs.join("slow"))));
    ended.assert_code(0);
    assert_eq!((command_outputs(&ended), requests), (vec!["ran".to_owned()], 2));
    assert_eq!(sandbox(&ended), "bubblewrap");
    // A file that others could have written is ignored.
    remembered.set("broken");
    std::fs::set_permissions(remembered.cache(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let (ended, requests) = remembered.run(|_| ());
    ended.assert_code(5).assert_stderr_contains("bubblewrap can't be used: broken");
    assert_eq!(requests, 0);
}

#[test]
fn the_rows_of_a_map_share_a_probe() {
    let Some(remembered) = RememberedProbe::new() else { return };
    let folder = &remembered.folder;
    let bwrap = std::fs::read_to_string(remembered.programs.join("bwrap")).unwrap();
    let count = format!("#!/bin/sh\necho >> {}", remembered.programs.join("starts").display());
    // A changed program is probed again.
    std::fs::write(remembered.programs.join("bwrap"), bwrap.replacen("#!/bin/sh", &count, 1)).unwrap();
    folder.write("rows.csv", "item\na\nb\nc\n");
    let job = folder.read("job.yaml").replace("parent:", "inputs: { item: { type: string } }\nparent:");
    folder.write("job.yaml", job.replace("Go.", "'{{ inputs.item }}'"));
    let server = Server::start(|request: &Request| match request.turn() {
        0 => Answer::calls(&[("bash", json!({ "command": "echo ran" }))]),
        _ => Answer::text("Done."),
    });
    let arguments = "map job.yaml --rows rows.csv --id item --isolate none --jobs 1 --sandbox required";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let ended = folder.legwork(&arguments).anthropic(&server).env("PATH", &remembered.programs).run();
    ended.assert_code(0);
    assert_eq!(server.finish().len(), 6);
    let starts = std::fs::read_to_string(remembered.programs.join("starts")).unwrap().lines().count();
    assert_eq!(starts, 4, "one probe, three commands");
}

#[test]
fn no_command_starts_if_a_probe_fails_that_succeeded_before() {
    for (behavior, why) in [("broken", "broken"), ("pretends", "commands")] {
        let Some(remembered) = RememberedProbe::new() else { return };
        std::fs::remove_file(remembered.folder.at("changed")).unwrap();
        remembered.set(behavior);
        let (ended, requests) = remembered.run(|_| ());
        ended.assert_code(5).assert_stderr_contains("worked in an earlier run").assert_stderr_contains(why);
        ended.assert_stderr_contains("`legwork resume` looks for another sandbox");
        assert_eq!(ended.run_folder().result()["outcome"], "environment_failed");
        assert!(!remembered.folder.exists("changed"), "{behavior}: the command ran");
        assert_eq!(requests, 1);
        // The next run finds it out before anything is spent.
        assert_eq!(std::fs::read_to_string(remembered.cache()).unwrap(), "");
        let (ended, requests) = remembered.run(|_| ());
        ended.assert_code(5).assert_stderr_contains("bubblewrap can't be used");
        assert_eq!(requests, 0);
    }
}

#[test]
fn without_a_sandbox_commands_need_sandbox_off() {
    let folder = prepared("", &["echo ran"]);
    let ended = program(&folder).args(["--sandbox", "off"]).run();
    ended.assert_code(0).assert_stderr_contains("warning: commands are not confined (sandbox: off)");
    assert_eq!((sandbox(&ended).as_str(), command_outputs(&ended)), ("off", vec!["ran".to_owned()]));
    // A job without commands needs no sandbox.
    let folder = prepared("", &[]);
    let programs = path_without_bwrap(&folder);
    folder.write("job.yaml", folder.read("job.yaml").replace("bash: { timeout: 20s }", "glob"));
    let ended = program(&folder).args(["--sandbox", "required"]).env("PATH", programs).run();
    ended.assert_code(0).assert_not_printed("sandbox");
    assert_eq!(sandbox(&ended), "unused");
}

#[test]
fn a_command_gets_sigterm_before_sigkill_and_leaves_no_process() {
    if !bubblewrap_works() {
        return;
    }
    // The duration is a number that no other test of any user on this machine has.
    let sleep = format!("sleep 177.{}", std::process::id());
    let command = format!("trap 'echo asked; exit 3' TERM; (setsid {sleep} &); echo begun; {sleep} & wait");
    let folder = prepared("", &[&command]);
    folder.write("job.yaml", folder.read("job.yaml").replace("20s", "1s"));
    let ended = program(&folder).run();
    let printed = command_outputs(&ended);
    assert!(printed[0].starts_with("begun\nasked") && printed[0].contains("timed out"), "{}", printed[0]);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let line = format!("{}\0", sleep.replace(' ', "\0"));
    assert!(!lines.into_iter().any(|found| found == line.as_bytes()), "something is left");
}

#[test]
fn environment_variables_reach_the_command_and_not_the_sandbox_launcher() {
    if !bubblewrap_works() {
        return;
    }
    let folder = prepared(
        "",
        &["echo $LD_PRELOAD $GREETING; tr '\\0' ' ' < /proc/1/environ; cat /proc/1/cmdline | tr '\\0' ' '"],
    );
    let job = folder.read("job.yaml");
    folder.write("job.yaml", format!("{job}env: [LD_PRELOAD, GREETING]\n"));
    let ended = program(&folder).env("LD_PRELOAD", "/missing.so").env("GREETING", "hello-there").run();
    let printed = &command_outputs(&ended)[0];
    assert!(printed.contains("/missing.so hello-there"), "{printed}");
    assert_eq!(printed.matches("hello-there").count(), 1, "{printed}");
}

/// A socket of another program, which a `bwrap` removes as soon as it is started, as a program that ends at that moment would.
struct VanishingSocket {
    folder: TestFolder,
    programs: PathBuf,
}

impl VanishingSocket {
    /// `None` if bubblewrap doesn't work here.
    fn new() -> Option<Self> {
        if !bubblewrap_works() {
            return None;
        }
        // Not below /tmp, of which commands have their own.
        let folder = TestFolder::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
        folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [bash] }\n");
        let above = folder.home().parent().unwrap().to_owned();
        if above.as_os_str().len() > 80 {
            report_skipped("the path of a socket would be too long");
            return None;
        }
        let programs = path_without_bwrap(&folder);
        let text = format!(
            "if [ -e {0}/armed ]; then /bin/rm {0}/armed; /bin/rm -r {0}/service; echo removed >> {0}/log; fi; exec {1} \"$@\"",
            above.display(),
            find_program("bwrap").unwrap().display()
        );
        write_executable(&programs.join("bwrap"), &text);
        Some(Self { folder, programs })
    }

    /// Makes the socket, which the next start of bubblewrap removes.
    fn arm(above: &Path) {
        let _ = std::fs::create_dir(above.join("service"));
        let socket = above.join("service/socket");
        // It stays open: a closed one isn't listed any more.
        let _ = std::os::fd::IntoRawFd::into_raw_fd(std::os::unix::net::UnixListener::bind(socket).unwrap());
        std::fs::write(above.join("armed"), "").unwrap();
    }

    fn above(&self) -> PathBuf {
        self.folder.home().parent().unwrap().to_owned()
    }

    fn run(&self, server: &Server) -> ProgramOutput {
        let program = self.folder.legwork(&["run", "job.yaml", "--sandbox", "required"]).anthropic(server);
        program.env("PATH", format!("{}:/usr/bin:/bin", self.programs.display())).run()
    }

    fn removals(&self) -> usize {
        std::fs::read_to_string(self.above().join("log")).unwrap_or_default().lines().count()
    }
}

#[test]
fn a_socket_of_another_program_that_vanishes_while_a_command_starts_does_not_end_the_run() {
    let Some(socket) = VanishingSocket::new() else { return };
    let above = socket.above();
    let server = Server::start(move |request: &Request| {
        VanishingSocket::arm(&above);
        match request.turn() {
            0..3 => Answer::calls(&[("bash", json!({ "command": "echo ran" }))]),
            _ => Answer::text("Done."),
        }
    });
    // The first one vanishes in the probe.
    VanishingSocket::arm(&socket.above());
    let ended = socket.run(&server);
    ended.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(sandbox(&ended), "bubblewrap");
    assert_eq!(command_outputs(&ended), ["ran"; 3], "without what bubblewrap printed");
    assert_eq!(socket.removals(), 4);
}

#[test]
fn a_socket_of_another_program_that_vanishes_while_a_tool_server_starts_does_not_end_the_run() {
    let Some(socket) = VanishingSocket::new() else { return };
    socket.folder.write("server.py", include_str!("../tool_servers/mcp/server.py"));
    let job = "model: anthropic/claude-haiku-4-5\nmcp: { t: { command: [/usr/bin/python3, server.py, stdio, modern] } }\n\
               parent: { prompt: Go., tools: [{ mcp: t, allow: [echo] }] }\n";
    socket.folder.write("job.yaml", job);
    let server = Server::start(|_: &Request| Answer::text("Done."));
    // The second start of bubblewrap, after the probe, is the server's.
    let wrapper = socket.programs.join("bwrap");
    let text = std::fs::read_to_string(&wrapper).unwrap();
    let again = text.replacen(
        "if [",
        &format!(
            "case \"$*\" in *server.py*) ;; *) exec {} \"$@\" ;; esac; if [",
            find_program("bwrap").unwrap().display()
        ),
        1,
    );
    std::fs::write(&wrapper, again).unwrap();
    VanishingSocket::arm(&socket.above());
    socket.run(&server).assert_code(0).assert_stdout("Done.\n");
    assert_eq!(socket.removals(), 1);
}

#[test]
fn the_home_folder_itself_can_be_opened_in_both_tiers() {
    for bubblewrap in [true, false] {
        if bubblewrap && !bubblewrap_works() {
            continue;
        }
        let folder = prepared("", &["cat ../home/notes; echo x > ~/new && cat ~/new"]);
        let home = folder.home();
        std::fs::write(home.join("notes"), "of the user\n").unwrap();
        let mut program = program(&folder).arg("--allow-read").arg(&home);
        if !bubblewrap {
            program = program.env("PATH", path_without_bwrap(&folder));
        }
        let ended = program.run();
        ended.assert_code(0);
        assert_eq!(command_outputs(&ended), ["of the user\nx"], "{bubblewrap}");
        assert!(!home.join("new").exists(), "commands have a home of their own");
    }
}
/// In a container job, the checkout belongs to another user, and a step has made it trusted.
#[test]
fn git_trusts_a_workspace_that_the_user_trusts() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make the workspace belong to someone else");
        return;
    }
    for tier in ["bubblewrap", "landlock"] {
        let folder =
            prepared("", &["PATH=/usr/local/bin:/usr/bin:/bin; git status --short; git log --oneline | wc -l"]);
        folder.commit_all();
        let mut open = vec![folder.path()];
        while let Some(path) = open.pop() {
            std::os::unix::fs::lchown(&path, Some(54_321), Some(54_321)).unwrap();
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
            }
        }
        let trusted = format!("[safe]\n\tdirectory = {}\n", folder.path().display());
        std::fs::write(folder.home().join(".gitconfig"), trusted).unwrap();
        let run = program(&folder);
        let run = if tier == "landlock" { run.env("PATH", path_without_bwrap(&folder)) } else { run };
        let outputs = command_outputs(run.run().assert_code(0));
        assert!(outputs[0].trim().ends_with('1') && !outputs[0].contains("dubious"), "{tier}: {outputs:?}");
    }
}

/// A clone that borrows its objects, as CI services make them from a cache.
#[test]
fn a_clone_that_borrows_objects_can_be_read_and_its_source_does_not_change() {
    for tier in ["bubblewrap", "landlock"] {
        for access in ["read", "commit"] {
            let commands = [
                "PATH=/usr/local/bin:/usr/bin:/bin; git log --oneline | wc -l; git show HEAD:a.txt",
                "PATH=/usr/local/bin:/usr/bin:/bin; o=$(cat .git/objects/info/alternates); chmod -R u+w $o; rm -rf $o; echo x > $o/x",
                "PATH=/usr/local/bin:/usr/bin:/bin; echo y > a.txt; git -c user.name=a -c user.email=a@b commit -qam y; git log --oneline | wc -l",
            ];
            let folder = prepared("", &commands);
            let source = folder.home().join("source");
            let git = |arguments: &[&str], within: &Path| {
                let mut git = Command::new("git");
                git.args(["-c", "user.name=a", "-c", "user.email=a@b.example"]).args(arguments).current_dir(within);
                assert!(git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap().status.success(), "{arguments:?}");
            };
            std::fs::create_dir_all(&source).unwrap();
            std::fs::write(source.join("a.txt"), "borrowed\n").unwrap();
            for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "start"]] {
                git(arguments, &source);
            }
            git(&["clone", "-q", "--shared", source.to_str().unwrap(), "clone"], folder.home().parent().unwrap());
            std::fs::rename(folder.home().parent().unwrap().join("clone/.git"), folder.path().join(".git")).unwrap();
            git(&["checkout", "-q", "--", "a.txt"], &folder.path());
            let job = folder.read("job.yaml") + &format!("git: {access}\n");
            folder.write("job.yaml", job);
            let run = program(&folder);
            let run = if tier == "landlock" { run.env("PATH", path_without_bwrap(&folder)) } else { run };
            let ended = run.run();
            let outputs = command_outputs(ended.assert_code(0));
            assert!(outputs[0].contains('1') && outputs[0].contains("borrowed"), "{tier}, {access}: {outputs:?}");
            assert_eq!(outputs[2].trim().ends_with('2'), access == "commit", "{tier}, {access}: {outputs:?}");
            git(&["fsck", "--full"], &source);
            git(&["fsck", "--full"], &folder.path());
        }
    }
}

/// Without a terminal, vim reads keys from stderr, which is a pipe.
#[test]
fn vim_ends_unless_its_commands_end_it() {
    let has_autocommands = |out: std::process::Output| String::from_utf8_lossy(&out.stdout).contains("+eval");
    if !std::process::Command::new("vim").arg("--version").output().is_ok_and(has_autocommands) {
        return report_skipped("there is no vim with autocommands");
    }
    let with_path = |command: &str| format!("PATH=/usr/local/bin:/usr/bin:/bin; {command}");
    let folder = prepared("", &[&with_path("vim a; echo ended $?"), &with_path("vim -c s/one/two/ -c wq a; cat a")]);
    folder.write("a", "one\n");
    let ended = program(&folder).run();
    let outputs = command_outputs(ended.assert_code(0));
    assert!(outputs[0].contains("ended 1") && outputs[1].trim_end().ends_with("two"), "{outputs:?}");
}

/// Nobody could close it.
#[test]
fn a_configured_editor_does_not_wait() {
    let commit = "PATH=/usr/local/bin:/usr/bin:/bin; git -c core.editor='sleep 1000' -c sequence.editor='sleep 1000' commit --amend; \
                  git -c core.pager='sleep 1000' -p log; echo $EDITOR $VISUAL $PAGER";
    let folder = prepared("", &[commit]);
    folder.commit_all();
    folder.write("job.yaml", folder.read("job.yaml") + "git: commit\n");
    let ended = program(&folder).run();
    let outputs = command_outputs(ended.assert_code(0));
    assert!(outputs[0].contains("false false cat") && !outputs[0].contains("timed out"), "{outputs:?}");
}
