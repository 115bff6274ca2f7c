//! Bypasses of a list of allowed commands (`bash_rules/corpus.yaml`). The rules deny all of them except those that use
//! a program's own way to run commands, and none leaves a marker outside of the workspace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::report_skipped;
use crate::support::test_folder::TestFolder;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    allow: Vec<String>,
    bypasses: Vec<BypassAttempt>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BypassAttempt {
    command: String,
    would: String,
    verdict: Verdict,
    /// Whether the bypass leaves a marker in a plain shell.
    #[serde(default = "yes")]
    leaves_marker: bool,
    /// The program that the bypass requires.
    needs: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Denied,
    Contained,
}

fn yes() -> bool {
    true
}

/// The programs of the corpus that build software.
const BUILD_TOOLS: [&str; 1] = ["cargo"];

/// The folders of the programs of this machine.
fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

impl BypassAttempt {
    /// Whether the required program is installed.
    fn can_be_tried(&self) -> bool {
        let is_there = |name: &String| std::env::split_paths(&path()).any(|folder| folder.join(name).exists());
        let tried = self.needs.as_ref().is_none_or(is_there);
        if !tried {
            report_skipped(&format!(
                "{:?} takes {}, which isn't here",
                self.command,
                self.needs.as_deref().unwrap_or("?")
            ));
        }
        tried
    }
}

fn corpus() -> Corpus {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bash_rules/corpus.yaml");
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The confinement of a command.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tier {
    Off,
    Landlock,
    Bubblewrap,
}

/// A workspace with the files that the bypasses need, and a folder outside of it.
struct BypassFixture {
    folder: TestFolder,
    outside: PathBuf,
}

impl BypassFixture {
    fn new() -> Self {
        // The folder isn't below /tmp if possible, because a sandbox can have its own /tmp.
        let folder = TestFolder::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let outside = folder.path().parent().unwrap().join("outside");
        let fixture = Self { folder, outside };
        fixture.reset();
        fixture.write_stubs();
        let evil = format!("#!/bin/sh\n: > '{}'\n", fixture.mark().display());
        let run = "#!/bin/sh\necho run\n\"$@\"\n";
        fixture.folder.write("a.txt", "one\ntwo\n").write("run.sh", run).write("sub/deep/x", "x\n");
        fixture.folder.write("evil.sh", &evil).write("git", &evil).write("sub/run.sh", &evil);
        fixture.folder.write("env.sh", evil.trim_start_matches("#!/bin/sh\n"));
        for name in ["evil.sh", "git", "run.sh", "sub/run.sh"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(fixture.folder.at(name), mode).unwrap();
        }
        fixture.folder.commit_all().write("run.sh", format!("{run}# changed\n"));
        std::os::unix::fs::symlink(&fixture.outside, fixture.folder.at("out")).unwrap();
        fixture
    }

    fn mark(&self) -> PathBuf {
        self.outside.join("mark")
    }

    /// Programs that build software would build what is around the folder: these have their names and do nothing.
    fn write_stubs(&self) {
        for name in BUILD_TOOLS {
            let stub = self.stubs().join(name);
            std::fs::create_dir_all(self.stubs()).unwrap();
            std::fs::write(&stub, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
    }

    fn stubs(&self) -> PathBuf {
        self.folder.home().with_file_name("stubs")
    }

    /// A `PATH` on which the stubs are first.
    fn path_with_stubs(&self, path: &std::ffi::OsStr) -> std::ffi::OsString {
        std::env::join_paths([self.stubs()].into_iter().chain(std::env::split_paths(path))).unwrap()
    }

    fn substitute_paths(&self, command: &str) -> String {
        let mark = self.mark();
        let parts =
            [("MARK", mark.as_path()), ("OUT", &self.outside), ("WORK", &self.folder.path())].map(|(name, path)| {
                let path = path.to_str().unwrap();
                assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "{path} would have to be quoted");
                (name, path.to_owned())
            });
        parts.iter().fold(command.to_owned(), |text, (name, path)| text.replace(name, path))
    }

    /// The original content of the outside folder.
    fn reset(&self) {
        let _ = std::fs::remove_dir_all(&self.outside);
        std::fs::create_dir(&self.outside).unwrap();
        std::fs::write(self.outside.join("victim"), "an old file\n").unwrap();
    }

    /// What has changed in the outside folder; `None` if nothing has.
    fn outside_changes(&self) -> Option<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let victim = std::fs::read_to_string(self.outside.join("victim")).unwrap_or_default();
        (names != ["victim"] || victim != "an old file\n").then(|| format!("{names:?}, {victim:?}"))
    }

    /// Runs the commands through the real binary, one `bash` call each.
    fn run(&self, tier: Tier, allow: &[String], commands: &[String]) -> ProgramOutput {
        let call = |command: &str| json!({ "tool": "bash", "input": { "command": command } });
        // Some calls must succeed; otherwise the run would end as stuck.
        let batches = commands.chunks(15).map(|batch| {
            let calls = batch.iter().map(String::as_str).chain(["echo between"]).map(call);
            json!({ "calls": calls.collect::<Vec<_>>() })
        });
        let replies: Vec<Value> = batches.chain([json!({ "text": "done" })]).collect();
        let tools = json!([{ "bash": { "allow": allow, "timeout": "20s" } }]);
        let parent = json!({ "prompt": "Go.", "tools": tools, "max_turns": 1000 });
        let job = json!({ "model": "replay/job.script.yaml", "parent": parent });
        self.folder.write("job.yaml", job.to_string());
        self.folder.write("job.script.yaml", json!({ "parent": replies }).to_string());
        let sandbox = match tier {
            Tier::Off => "off",
            Tier::Landlock => "auto",
            Tier::Bubblewrap => "required",
        };
        let program = self.folder.legwork(&["run", "job.yaml", "--sandbox", sandbox]).timeout(Duration::from_secs(300));
        match tier {
            // Without bwrap, the program uses landlock.
            Tier::Landlock => program.env("PATH", self.path_with_stubs(self.path_without_bwrap().as_os_str())).run(),
            _ => program.env("PATH", self.path_with_stubs(&path())).run(),
        }
    }

    /// The results of the commands: whether each one is an error, and its text.
    fn tool_results(&self, tier: Tier, allow: &[String], commands: &[String]) -> Vec<(bool, String)> {
        let ended = self.run(tier, allow, commands);
        let record = ended.assert_code(0).run_folder();
        let results = record.events().into_iter().filter(|event| event["type"] == "call_finished").map(|event| {
            let result = &event["data"]["result"];
            (result["is_error"] == true, result["text"].as_str().unwrap().to_owned())
        });
        let answers: Vec<_> = results.filter(|(is_error, text)| *is_error || text != "between").collect();
        assert_eq!(answers.len(), commands.len());
        answers
    }

    /// Whether the tier works on this machine.
    fn is_available(&self, tier: Tier) -> bool {
        let ended = self.run(tier, &["echo *".to_owned()], &[]);
        let named = |result: &Value| result["sandbox"].as_str().map(str::to_lowercase);
        let has =
            ended.stdout == "done\n" && named(&ended.run_folder().result()) == Some(format!("{tier:?}").to_lowercase());
        if !has {
            report_skipped(&format!("no {tier:?} here: {}", ended.stderr));
        }
        has
    }

    /// A folder of links to the programs of this machine.
    fn path_without_bwrap(&self) -> PathBuf {
        let folder = self.folder.home().with_file_name("programs");
        if std::fs::create_dir(&folder).is_ok() {
            let path = path();
            let all = std::env::split_paths(&path).filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
            for program in all.flatten().filter(|program| program.file_name() != "bwrap") {
                // PATH resolves a name to the first match only.
                let _ = std::os::unix::fs::symlink(program.path(), folder.join(program.file_name()));
            }
        }
        folder
    }
}

#[test]
fn the_corpus_has_many_distinct_bypasses() {
    let corpus = corpus();
    let of = |verdict| corpus.bypasses.iter().filter(|bypass| bypass.verdict == verdict).count();
    assert!(of(Verdict::Denied) > 200 && of(Verdict::Contained) > 30);
    let mut commands: Vec<&String> = corpus.bypasses.iter().map(|bypass| &bypass.command).collect();
    commands.sort();
    let twice: Vec<_> = commands.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(twice.is_empty(), "{twice:#?}");
    assert!(corpus.bypasses.iter().all(|bypass| !bypass.would.is_empty()));
}

/// This test validates the others: a bypass that doesn't work leaves no marker in any case.
#[test]
fn each_bypass_leaves_a_marker_in_a_plain_shell() {
    let fixture = BypassFixture::new();
    let mut without = Vec::new();
    for bypass in corpus().bypasses.iter().filter(|bypass| bypass.leaves_marker && bypass.can_be_tried()) {
        fixture.reset();
        let command = fixture.substitute_paths(&bypass.command);
        let mut bash = Command::new("bash");
        bash.args(["-c", &command]).current_dir(fixture.folder.path()).env_clear();
        bash.env("PATH", fixture.path_with_stubs(&path())).env("HOME", fixture.folder.home());
        let output = bash.stdin(Stdio::null()).output().unwrap();
        let start = Instant::now();
        while fixture.outside_changes().is_none() && start.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if fixture.outside_changes().is_none() {
            without.push(format!("{command:?} ({}): {}", bypass.would, String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert!(without.is_empty(), "set `leaves_marker: false`, or fix them: {without:#?}");
}

#[test]
fn the_rules_deny_every_bypass_except_those_through_the_program_itself() {
    let fixture = BypassFixture::new();
    let corpus = corpus();
    let denied = corpus.bypasses.iter().filter(|bypass| bypass.verdict == Verdict::Denied);
    let commands: Vec<String> = denied.map(|bypass| fixture.substitute_paths(&bypass.command)).collect();
    let answers = fixture.tool_results(Tier::Off, &corpus.allow, &commands);
    let passed: Vec<_> =
        commands.iter().zip(&answers).filter(|(_, (_, text))| !text.starts_with("not allowed: ")).collect();
    assert!(passed.is_empty(), "{passed:#?}");
    assert!(
        answers.iter().all(|(is_error, text)| *is_error && text.contains("Allowed: `cargo test *`, `git status *`"))
    );
    assert_eq!(fixture.outside_changes(), None);
}

/// Tries each bypass alone and after an allowed command.
#[test]
fn a_bypass_after_an_allowed_command_is_denied() {
    let fixture = BypassFixture::new();
    let corpus = corpus();
    let denied = corpus.bypasses.iter().filter(|bypass| bypass.verdict == Verdict::Denied);
    let behind = |bypass: &BypassAttempt| {
        ["echo b && ", "echo b\n", "cd sub && cd .. && "]
            .map(|head| format!("{head}{}", fixture.substitute_paths(&bypass.command)))
    };
    let commands: Vec<String> = denied.flat_map(behind).collect();
    let answers = fixture.tool_results(Tier::Off, &corpus.allow, &commands);
    let passed: Vec<_> =
        commands.iter().zip(&answers).filter(|(_, (_, text))| !text.starts_with("not allowed: ")).collect();
    assert!(passed.is_empty(), "{passed:#?}");
    assert_eq!(fixture.outside_changes(), None);
}

#[test]
fn allowed_commands_leave_no_marker_outside_of_the_workspace() {
    let fixture = BypassFixture::new();
    let corpus = corpus();
    let bypasses: Vec<&BypassAttempt> =
        corpus.bypasses.iter().filter(|bypass| bypass.verdict == Verdict::Contained && bypass.can_be_tried()).collect();
    assert!(bypasses.len() > 10);
    let commands = bypasses.iter().map(|bypass| fixture.substitute_paths(&bypass.command));
    // A write to the git folder ends the run if the tier can't prevent it.
    let (of_git, commands): (Vec<String>, Vec<String>) = commands.partition(|command| command.starts_with("git fetch"));
    for tier in [Tier::Bubblewrap, Tier::Landlock].into_iter().filter(|tier| fixture.is_available(*tier)) {
        for command in &of_git {
            let ended = fixture.run(tier, &corpus.allow, std::slice::from_ref(command));
            let is_held = ended.exited_with(0) || ended.stderr.contains("a command changed protected files");
            assert!(is_held && fixture.outside_changes().is_none(), "{tier:?}: {command}: {}", ended.full_output());
        }
        let answers = fixture.tool_results(tier, &corpus.allow, &commands);
        for (command, (_, text)) in commands.iter().zip(&answers) {
            let ran = !text.starts_with("not allowed: ") && !text.contains("command not found");
            assert!(ran, "{tier:?}: {command}: {text}");
        }
        if fixture.outside_changes().is_some() {
            let alone = commands.iter().filter_map(|command| {
                fixture.reset();
                fixture.tool_results(tier, &corpus.allow, std::slice::from_ref(command));
                fixture.outside_changes().map(|marks| format!("{command}: {marks}"))
            });
            panic!("{tier:?} holds not all of these: {:#?}", alone.collect::<Vec<_>>());
        }
    }
}
