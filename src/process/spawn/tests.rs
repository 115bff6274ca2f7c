use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::redaction::Redactor;
use crate::sandbox::Sandbox;
use crate::tools::environment::Environment;
use crate::tools::toolbox::CallLimits;
use crate::workspace::Workspace;

/// Held by those that leave many processes behind: one that hides where it comes from counts for every command that runs.
#[cfg(target_os = "linux")]
static CROWDS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn ended(command: &str, most: usize) -> ProcessOutcome {
    let folder = tempfile::tempdir().unwrap();
    let minute = Duration::from_secs(60);
    let scope = ToolContext {
        call_id: "1",
        workspace: &Arc::new(Workspace::open(folder.path(), Vec::new(), Vec::new()).unwrap()),
        state: &Arc::default(),
        mask: &Redactor::default(),
        environment: &Environment::from(&BTreeMap::new(), &[], &[]),
        sandbox: &Sandbox::off(),
        limits: &CallLimits { deadline: Instant::now() + minute, cancel: CancellationToken::new() },
    };
    let mut output = CommandOutput::new(&Redactor::default(), 1_000);
    run(&own(command), &scope, false, minute, most, &mut output).await.unwrap()
}

/// The same with pauses and names that nobody else has who runs these tests on this machine.
fn own(text: &str) -> String {
    let id = std::process::id();
    let marks = ["121.", "122.", "123.", "bomb-122-"];
    marks.iter().fold(text.to_owned(), |text, mark| text.replace(mark, &format!("{mark}{id}")))
}

/// How many processes have this command line.
fn processes(line: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|found| String::from_utf8_lossy(found).replace('\0', " ").trim_end() == own(line)).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_crowd_is_ended_wherever_its_processes_went() {
    let _alone = CROWDS.lock().await;
    for (at, start) in
        ["sleep 121.$i &", "(setsid sleep 121.$i &)", "(env -i setsid sleep 121.$i & exit)"].iter().enumerate()
    {
        let start = start.replace("$i", &format!("{at}5"));
        // Far more than enough: those that hide where they come from are also ended by any command that ends meanwhile.
        let many = format!("for each in $(seq 500); do {start}\ndone; sleep 121.{at}5");
        assert_eq!(ended(&many, 20).await, ProcessOutcome::TooManyProcesses, "{start}");
        assert_eq!(processes(&format!("sleep 121.{at}5")), 0, "{start}");
    }
    let few = ended("for each in $(seq 5); do sleep 121.5 & done; sleep 0.3", 20).await;
    assert!(matches!(few, ProcessOutcome::Exited(_)), "{few:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn those_that_have_ended_are_no_crowd() {
    let _alone = CROWDS.lock().await;
    let many = ended("for each in $(seq 40); do (setsid true &)\ndone; sleep 0.5", 20).await;
    assert!(matches!(many, ProcessOutcome::Exited(_)), "{many:?}");
}

/// The orphans of a command that has ended are there until they are ended, too.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_another_command_has_left_is_no_crowd() {
    let _alone = CROWDS.lock().await;
    let crowds = async {
        for _ in 0..5 {
            let many = ended("for each in $(seq 200); do (setsid sleep 123.5 &)\ndone", 2_000).await;
            assert!(matches!(many, ProcessOutcome::Exited(_)), "{many:?}");
        }
    };
    let beside = async {
        for _ in 0..10 {
            let few = ended("sleep 0.2", 5).await;
            assert!(matches!(few, ProcessOutcome::Exited(_)), "{few:?}");
        }
    };
    tokio::join!(crowds, beside);
}

/// Five hundred in all, each in a session of its own, and each starts two more when it sees another end.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_that_are_born_of_others_ends_all_end() {
    let bomb = "export left=8; export BOMB='[ $left -gt 0 ] || exit; left=$((left - 1)); \
                setsid bash -c \"$BOMB\" bomb-122- & first=$!; setsid bash -c \"$BOMB\" bomb-122- & \
                trap \"\" TERM HUP INT; wait; sleep 122.5'; bash -c \"$BOMB\" bomb-122- & sleep 0.2";
    assert!(matches!(ended(bomb, 2_000).await, ProcessOutcome::Exited(_)));
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let left = lines.filter(|line| {
        let line = String::from_utf8_lossy(line);
        line.contains(&own("bomb-122-")) || line.contains(&own("122.5"))
    });
    assert_eq!(left.count(), 0);
}
