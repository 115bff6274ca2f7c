use std::path::Path;
use std::time::Instant;

use crate::tools::ToolGrant;
use crate::tools::toolbox::tests::ToolHarness;

use serde_json::json;

use super::*;

fn harness_with(options: Value) -> ToolHarness {
    ToolHarness::with(&[ToolGrant { name: "bash".into(), options }], &[])
}

fn input(command: &str) -> String {
    json!({ "command": own(command) }).to_string()
}

/// Makes the sleep times in a command unique on this machine.
fn own(text: &str) -> String {
    let id = std::process::id();
    text.replace(".25", &format!(".25{id}")).replace(".5", &format!(".5{id}"))
}

#[tokio::test]
async fn output_is_in_order_and_ends_with_the_exit_code() {
    let harness = ToolHarness::new(&["bash"]);
    assert_eq!(harness.ok("bash", &input("echo a; echo b >&2; echo c")).await, "a\nb\nc");
    assert_eq!(harness.ok("bash", &input("true")).await, "(no output)");
    assert_eq!(harness.refused("bash", &input("echo x; exit 3")).await, "x\nexit code 3");
    assert_eq!(harness.refused("bash", &input("kill -9 $$")).await, "killed by signal 9");
    let root = harness.path(".").canonicalize().unwrap();
    assert_eq!(
        harness.ok("bash", &input("pwd; cat; tty; ulimit -c")).await,
        format!("{}\nnot a tty\n0", root.display())
    );
}

#[tokio::test]
async fn only_the_given_environment_is_seen() {
    let secrets = [("token".to_owned(), "hunter2-hunter2".to_owned())];
    let harness = ToolHarness::with(&[ToolGrant { name: "bash".into(), options: Value::Null }], &secrets);
    let text = harness
        .ok("bash", &input("env | grep -c CARGO_; echo $TERM $INPUT_TOKEN | base64 -w0; echo; echo $INPUT_TOKEN"))
        .await;
    assert!(text.starts_with("0\n") && text.ends_with("\n[masked:token]"), "{text}");
    assert!(text.contains("\nZHVtYiB[masked:token]IK\n"), "the base64 of `dumb hunter2-hunter2`: {text}");
}

#[tokio::test]
async fn long_output_with_secrets_is_redacted_and_truncated() {
    let secrets = [("token".to_owned(), "hunter2-hunter2".to_owned())];
    let harness = ToolHarness::with(&[ToolGrant { name: "bash".into(), options: Value::Null }], &secrets);
    let text = harness.ok("bash", &input("yes \"$INPUT_TOKEN\" | head -c 20000000")).await;
    assert!(!text.contains("hunter2-h") && text.contains("characters left out"));
    assert!(text.chars().count() <= MAX_RESULT_CHARS && text.chars().count() > MAX_RESULT_CHARS - 1000);
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed_at_the_timeout() {
    let harness = harness_with(json!({ "timeout_ms": 100 }));
    assert_eq!(harness.refused("bash", &input("echo begun; sleep 60")).await, "begun\ntimed out after 100ms");
    let command = "trap '' TERM; (trap '' TERM; setsid sleep 61.5 &); while :; do sleep 0.05; done";
    assert!(harness.refused("bash", &input(command)).await.contains("timed out"));
    assert_eq!(processes("sleep 61.5"), 0);
}

#[tokio::test]
async fn no_process_outlives_its_call() {
    let harness = ToolHarness::new(&["bash"]);
    // Less time than the leftover processes would take: a call that waited for one fails the test.
    let bound = Duration::from_secs(60);
    for command in [
        "sleep 71.25 &",
        "setsid sleep 71.25 & disown",
        "(setsid setsid sleep 71.25 >/dev/null 2>&1 &) ; echo done",
        "env -i setsid sleep 71.25 & sleep 0.05; kill -STOP $!",
        "nohup bash -c 'trap \"\" TERM HUP; setsid sleep 71.25 & wait' >/dev/null 2>&1 & sleep 0.05",
    ] {
        tokio::time::timeout(bound, harness.ok("bash", &input(command))).await.expect(command);
        assert_eq!(processes("sleep 71.25"), 0, "{command}");
    }
}

#[tokio::test]
async fn a_cancelled_command_ends_at_once() {
    let harness = ToolHarness::new(&["bash"]);
    let cancel = harness.limits.cancel.clone();
    let started = harness.path("started");
    let watch = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        cancel.cancel();
    };
    let command = input("trap '' TERM; touch started; sleep 81.5; sleep 81.5");
    let (text, ()) = tokio::join!(harness.refused("bash", &command), watch);
    assert!(text.starts_with("killed: the run was cancelled. Its effect is unknown"), "{text}");
    assert_eq!(processes("sleep 81.5"), 0);
}

#[tokio::test]
async fn dropping_a_call_kills_its_processes() {
    let harness = ToolHarness::new(&["bash"]);
    let command = input("setsid sleep 91.5 & touch started; sleep 91.5");
    let watch = async {
        while !harness.path("started").exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = harness.call("bash", &command) => panic!("it can't have ended"),
        () = watch => {}
    }
    let start = Instant::now();
    while processes("sleep 91.5") > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn concurrent_commands_do_not_kill_each_other() {
    let harness = ToolHarness::new(&["bash"]);
    let slow = input("setsid bash -c 'sleep 0.4; touch written' & sleep 0.6; ls written");
    let quick = async {
        for _ in 0..10 {
            harness.ok("bash", &input("(sleep 101.5 &)")).await;
        }
    };
    let (text, ()) = tokio::join!(harness.ok("bash", &slow), quick);
    assert!(text.starts_with("written\n"), "{text}");
}

#[tokio::test]
async fn rules_are_enforced_and_described() {
    let harness = harness_with(json!({ "allow": ["echo *", "git status"], "timeout_ms": 60_000 }));
    assert_eq!(harness.ok("bash", &input("echo 'a  b' | wc -c && cd . && echo $")).await, "5\n$");
    let text = harness.refused("bash", &input("echo a; echo b $(touch made)")).await;
    let expected =
        "not allowed: a command substitution at `$(touch made)`. Allowed: `echo *`, `git status` (`*` stands for any";
    assert!(text.starts_with(expected), "{text}");
    assert!(!harness.path("made").exists());
    assert!(harness.toolbox.specs()[0].description.contains("`git status`"));
}

/// How many processes have a command line with this beginning.
fn processes(line: &str) -> usize {
    let entries = std::fs::read_dir(Path::new("/proc")).unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|found| String::from_utf8_lossy(found).replace('\0', " ").starts_with(&own(line))).count()
}

fn check(yaml: &str) -> (Option<Value>, Vec<String>) {
    let source = crate::diagnostic::Source::new("job.yaml", yaml);
    let node = crate::yaml::read::<crate::yaml::Node>(&source).value.unwrap();
    let decoded = parse_options(Some(&node));
    let findings = decoded.findings.iter();
    let shown = findings.map(|finding| {
        let (line, column) = finding.span.start();
        format!("{}:{line}:{column}: {}", finding.code, finding.message)
    });
    (decoded.value, shown.collect())
}

#[test]
fn options_are_checked_with_their_places() {
    let (value, findings) = check("allow: [\"cargo test *\", git diff]\ntimeout: 1m30s\n");
    assert_eq!(findings, [""; 0]);
    assert_eq!(value, Some(json!({ "allow": ["cargo test *", "git diff"], "timeout_ms": 90_000 })));
    assert_eq!(parse_options(None).value, Some(json!({ "timeout_ms": 120_000 })));
    let (_, findings) = check("allow: [ls *.rs, \"*\", \"a | b\", \"x $Y\", \"\"]\n");
    assert_eq!(
        findings,
        [
            "bad-bash-rule:1:9: bad rule: `*` can only be the last word, by itself",
            "bad-bash-rule:1:18: bad rule: it allows every command; to do that, remove `allow`",
            "bad-bash-rule:1:23: bad rule: it must be one simple command",
            "bad-bash-rule:1:32: bad rule: it contains an expansion (`$`) at `$Y`",
            "bad-bash-rule:1:40: bad rule: it contains no command",
        ]
    );
    let (_, findings) = check(&format!("allow: [{}]", "ls ".repeat(10_000)));
    assert_eq!(findings, ["bad-bash-rule:1:9: bad rule: it contains more than 16 kB"]);
    let (_, findings) = check("alow: []\ntimeout: soon\n");
    assert_eq!(findings.len(), 2, "{findings:?}");
}

#[tokio::test]
async fn commands_inherit_no_open_files() {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open("/dev/null").unwrap();
    let open = rustix::io::fcntl_dupfd_cloexec(&file, 100).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    crate::process::spawn::set_close_on_exec();
    let harness = ToolHarness::new(&["bash"]);
    let text = harness.refused("bash", &input(&format!("true <&{}", open.as_raw_fd()))).await;
    assert!(text.contains("Bad file descriptor"), "{text}");
}

#[tokio::test]
async fn what_models_add_out_of_habit_is_ignored() {
    let harness = ToolHarness::new(&["bash"]);
    let input = r#"{"command": "echo a", "timeout": 1, "description": "Says a.", "run_in_background": "false"}"#;
    assert_eq!(harness.ok("bash", input).await, "a");
    let text = harness.refused("bash", r#"{"command": "echo a", "run_in_background": true}"#).await;
    assert!(text.contains("can't run in the background"), "{text}");
    harness.refused("bash", r#"{"command": "echo a", "cwd": "/"}"#).await;
}

#[tokio::test]
async fn a_command_that_gets_the_signal_first_is_cancelled_too() {
    let harness = ToolHarness::new(&["bash"]);
    let cancel = harness.limits.cancel.clone();
    let started = harness.path("started");
    let watch = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        cancel.cancel();
    };
    let command = input("touch started; kill -TERM $$");
    let (text, ()) = tokio::join!(harness.refused("bash", &command), watch);
    assert!(text.contains("the run was cancelled. Its effect is unknown"), "{text}");
    // Without a cancelled run, it is a signal like any other.
    let harness = ToolHarness::new(&["bash"]);
    assert_eq!(harness.refused("bash", &input("kill -TERM $$")).await, "killed by signal 15");
}

#[tokio::test]
async fn jobs_in_the_background_are_mentioned() {
    let harness = ToolHarness::new(&["bash"]);
    let text = harness.ok("bash", &input("sleep 60 & echo started")).await;
    assert!(text.starts_with("started\n(What the command left running in the background was ended"), "{text}");
    assert_eq!(harness.ok("bash", &input("sleep 0 & wait; echo done")).await, "done");
}
