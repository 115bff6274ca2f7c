use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::process::RunDeadline;
use crate::redaction::Redactor;

/// Held by tests that leave many processes behind, because a process that hides its origin counts for every command.
static MANY_PROCESSES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn outcome_of(command: &str, max_processes: usize) -> ProcessOutcome {
    let folder = tempfile::tempdir().unwrap();
    let minute = Duration::from_secs(60);
    let shell_command = ShellCommand {
        command: &own(command),
        shell_options: &[],
        workspace: &Workspace::open(folder.path(), Vec::new(), Vec::new()).unwrap(),
        environment: &Environment::new(&BTreeMap::new(), &[], &[]),
        sandbox: &Sandbox::off(),
        read_only: false,
        egress: None,
        timeout: minute,
        max_processes,
        limits: &CallLimits { deadline: RunDeadline::after(minute), cancel: CancellationToken::new() },
    };
    let mut output = CommandOutput::new(&Redactor::default(), 1_000);
    shell_command.run(&mut output).await.unwrap()
}

/// Makes the sleep times and names in a command unique on this machine.
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

#[tokio::test]
async fn too_many_processes_are_killed_wherever_they_went() {
    let _alone = MANY_PROCESSES.lock().await;
    for (at, start) in
        ["sleep 121.$i &", "(setsid sleep 121.$i &)", "(env -i setsid sleep 121.$i & exit)"].iter().enumerate()
    {
        let start = start.replace("$i", &format!("{at}5"));
        // Far more than enough: processes that hide their origin are also killed by other commands that end.
        let many = format!("for each in $(seq 500); do {start}\ndone; sleep 121.{at}5");
        assert_eq!(outcome_of(&many, 20).await, ProcessOutcome::TooManyProcesses, "{start}");
        assert_eq!(processes(&format!("sleep 121.{at}5")), 0, "{start}");
    }
    let few = outcome_of("for each in $(seq 5); do sleep 121.5 & done; sleep 0.3", 20).await;
    assert!(matches!(few, ProcessOutcome::Exited(_)), "{few:?}");
}

#[tokio::test]
async fn processes_that_have_ended_do_not_count() {
    let _alone = MANY_PROCESSES.lock().await;
    let many = outcome_of("for each in $(seq 40); do (setsid true &)\ndone; sleep 0.5", 20).await;
    assert!(matches!(many, ProcessOutcome::Exited(_)), "{many:?}");
}

/// The orphans of a command that has ended exist until they have been killed.
#[tokio::test]
async fn orphans_of_another_command_do_not_count() {
    let _alone = MANY_PROCESSES.lock().await;
    let many = async {
        for _ in 0..5 {
            let outcome = outcome_of("for each in $(seq 200); do (setsid sleep 123.5 &)\ndone", 2_000).await;
            assert!(matches!(outcome, ProcessOutcome::Exited(_)), "{outcome:?}");
        }
    };
    let few = async {
        for _ in 0..10 {
            let few = outcome_of("sleep 0.2", 5).await;
            assert!(matches!(few, ProcessOutcome::Exited(_)), "{few:?}");
        }
    };
    tokio::join!(many, few);
}

/// Five hundred processes, each in its own session, that start two more when another one ends.
#[tokio::test]
async fn processes_that_react_to_the_end_of_others_all_end() {
    let bomb = "export left=8; export BOMB='[ $left -gt 0 ] || exit; left=$((left - 1)); \
                setsid bash -c \"$BOMB\" bomb-122- & first=$!; setsid bash -c \"$BOMB\" bomb-122- & \
                trap \"\" TERM HUP INT; wait; sleep 122.5'; bash -c \"$BOMB\" bomb-122- & sleep 0.2";
    assert!(matches!(outcome_of(bomb, 2_000).await, ProcessOutcome::Exited(_)));
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let left = lines.filter(|line| {
        let line = String::from_utf8_lossy(line);
        line.contains(&own("bomb-122-")) || line.contains(&own("122.5"))
    });
    assert_eq!(left.count(), 0);
}
