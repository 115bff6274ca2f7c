use std::path::Path;
use std::time::Instant;

use crate::tools::ToolGrant;
use crate::tools::toolbox::tests::ToolHarness;

use serde_json::json;

use super::*;

fn bench_with(options: Value) -> ToolHarness {
    ToolHarness::with(&[ToolGrant { name: "bash".into(), options }], &[])
}

fn input(command: &str) -> String {
    json!({ "command": own(command) }).to_string()
}

/// The same with pauses of a length that nobody else has who runs these tests on this machine.
fn own(text: &str) -> String {
    let id = std::process::id();
    text.replace(".25", &format!(".25{id}")).replace(".5", &format!(".5{id}"))
}

#[tokio::test]
async fn output_comes_in_order_and_the_end_is_told() {
    let bench = ToolHarness::new(&["bash"]);
    assert_eq!(bench.ok("bash", &input("echo a; echo b >&2; echo c")).await, "a\nb\nc");
    assert_eq!(bench.ok("bash", &input("true")).await, "(no output)");
    assert_eq!(bench.refused("bash", &input("echo x; exit 3")).await, "x\nexit code 3");
    assert_eq!(bench.refused("bash", &input("kill -9 $$")).await, "killed by signal 9");
    let root = bench.path(".").canonicalize().unwrap();
    assert_eq!(bench.ok("bash", &input("pwd; cat; tty; ulimit -c")).await, format!("{}\nnot a tty\n0", root.display()));
}

#[tokio::test]
async fn only_the_given_environment_is_seen() {
    let secrets = [("token".to_owned(), "hunter2-hunter2".to_owned())];
    let bench = ToolHarness::with(&[ToolGrant { name: "bash".into(), options: Value::Null }], &secrets);
    let text = bench
        .ok("bash", &input("env | grep -c CARGO_; echo $TERM $INPUT_TOKEN | base64 -w0; echo; echo $INPUT_TOKEN"))
        .await;
    assert!(text.starts_with("0\n") && text.ends_with("\n[masked:token]"), "{text}");
    assert!(text.contains("\nZHVtYiB[masked:token]IK\n"), "the base64 of `dumb hunter2-hunter2`: {text}");
}

#[tokio::test]
async fn a_secret_in_a_flood_is_masked_and_the_flood_bounded() {
    let secrets = [("token".to_owned(), "hunter2-hunter2".to_owned())];
    let bench = ToolHarness::with(&[ToolGrant { name: "bash".into(), options: Value::Null }], &secrets);
    let text = bench.ok("bash", &input("yes \"$INPUT_TOKEN\" | head -c 20000000")).await;
    assert!(!text.contains("hunter2-h") && text.contains("characters left out"));
    assert!(text.chars().count() <= MAX_RESULT_CHARS && text.chars().count() > MAX_RESULT_CHARS - 1000);
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_though_it_ignores_it() {
    let bench = bench_with(json!({ "timeout_ms": 100 }));
    assert_eq!(bench.refused("bash", &input("echo begun; sleep 60")).await, "begun\ntimed out after 100ms");
    let command = "trap '' TERM; (trap '' TERM; setsid sleep 61.5 &); while :; do sleep 0.05; done";
    assert!(bench.refused("bash", &input(command)).await.contains("timed out"));
    assert_eq!(processes("sleep 61.5"), 0);
}

#[tokio::test]
async fn nothing_that_was_started_outlives_the_call() {
    let bench = ToolHarness::new(&["bash"]);
    // Less than the processes left behind would take: a call that waited for one doesn't pass.
    let bound = Duration::from_secs(60);
    for command in [
        "sleep 71.25 &",
        "setsid sleep 71.25 & disown",
        "(setsid setsid sleep 71.25 >/dev/null 2>&1 &) ; echo done",
        "env -i setsid sleep 71.25 & sleep 0.05; kill -STOP $!",
        "nohup bash -c 'trap \"\" TERM HUP; setsid sleep 71.25 & wait' >/dev/null 2>&1 & sleep 0.05",
    ] {
        tokio::time::timeout(bound, bench.ok("bash", &input(command))).await.expect(command);
        assert_eq!(processes("sleep 71.25"), 0, "{command}");
    }
}

#[tokio::test]
async fn a_cancelled_command_ends_at_once() {
    let bench = ToolHarness::new(&["bash"]);
    let cancel = bench.limits.cancel.clone();
    let started = bench.path("started");
    let watch = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        cancel.cancel();
    };
    let command = input("trap '' TERM; touch started; sleep 81.5; sleep 81.5");
    let (text, ()) = tokio::join!(bench.refused("bash", &command), watch);
    assert_eq!(text, "killed: the run was cancelled");
    assert_eq!(processes("sleep 81.5"), 0);
}

#[tokio::test]
async fn a_call_that_is_given_up_takes_its_processes_with_it() {
    let bench = ToolHarness::new(&["bash"]);
    let command = input("setsid sleep 91.5 & touch started; sleep 91.5");
    let watch = async {
        while !bench.path("started").exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = bench.call("bash", &command) => panic!("it can't have ended"),
        () = watch => {}
    }
    let start = Instant::now();
    while processes("sleep 91.5") > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn commands_side_by_side_leave_each_other_alone() {
    let bench = ToolHarness::new(&["bash"]);
    let slow = input("setsid bash -c 'sleep 0.4; touch written' & sleep 0.6; ls written");
    let quick = async {
        for _ in 0..10 {
            bench.ok("bash", &input("(sleep 101.5 &)")).await;
        }
    };
    let (text, ()) = tokio::join!(bench.ok("bash", &slow), quick);
    assert_eq!(text, "written");
}

#[tokio::test]
async fn rules_hold_and_are_told() {
    let bench = bench_with(json!({ "allow": ["echo *", "git status"], "timeout_ms": 60_000 }));
    assert_eq!(bench.ok("bash", &input("echo 'a  b' | wc -c && cd . && echo $")).await, "5\n$");
    let text = bench.refused("bash", &input("echo a; echo b $(touch made)")).await;
    let expected =
        "not allowed: a command substitution, here: `$(touch made)`. Allowed: `echo *`, `git status` (`*`: any";
    assert!(text.starts_with(expected), "{text}");
    assert!(!bench.path("made").exists());
    assert!(bench.toolbox.specs()[0].description.contains("`git status`"));
}

/// How many processes have a command line that begins so.
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
            "bad-bash-rule:1:18: bad rule: it allows every command; leave `allow` out to say that",
            "bad-bash-rule:1:23: bad rule: it must be one plain command",
            "bad-bash-rule:1:32: bad rule: it holds an expansion (`$`), here: `$Y`",
            "bad-bash-rule:1:40: bad rule: it holds no command",
        ]
    );
    let (_, findings) = check(&format!("allow: [{}]", "ls ".repeat(10_000)));
    assert_eq!(findings, ["bad-bash-rule:1:9: bad rule: it holds more than 16 kB"]);
    let (_, findings) = check("alow: []\ntimeout: soon\n");
    assert_eq!(findings.len(), 2, "{findings:?}");
}

#[tokio::test]
async fn nothing_that_was_left_open_for_us_reaches_a_command() {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open("/dev/null").unwrap();
    let open = rustix::io::fcntl_dupfd_cloexec(&file, 100).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    crate::process::spawn::set_close_on_exec();
    let bench = ToolHarness::new(&["bash"]);
    let text = bench.refused("bash", &input(&format!("true <&{}", open.as_raw_fd()))).await;
    assert!(text.contains("Bad file descriptor"), "{text}");
}
