//! The first example of the book's chapter on many runs, killed at random moments.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::house::source::{files, read};
use crate::support::test_folder::TestFolder;

/// The words of the first `legwork map` command of the chapter.
fn first_command() -> Vec<String> {
    let chapter = read("docs/src/many-runs.md");
    let line = chapter.lines().find(|line| line.starts_with("legwork map ")).expect("a command");
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn it_survives_fifty_kills_with_every_row_finished_exactly_once() {
    let folder = TestFolder::new();
    for path in files("jobs").into_iter().filter(|path| !path.starts_with("jobs/tests")) {
        folder.write(&path.to_string_lossy(), read(&path));
    }
    let command = first_command();
    assert!(command.contains(&"folders.csv".to_owned()), "{command:?}");
    let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut rows = 0;
    let mut more_rows = |folder: &TestFolder| {
        rows += 10;
        let folders: Vec<String> = (0..rows).map(|number| format!("part{number}")).collect();
        for name in &folders {
            folder.write(&format!("{name}/Cargo.toml"), "[package]\n");
        }
        folder.write("folders.csv", format!("folder\n{}\n", folders.join("\n")));
        rows
    };
    let mut expected = more_rows(&folder);
    let (mut kills, mut starts) = (0, 0);
    let mut random: u64 = std::process::id().into();
    while kills < 50 {
        starts += 1;
        assert!(starts < 400, "only {kills} of {starts} processes could be killed before they ended");
        let running = folder.legwork(&arguments).spawn();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(5 + (random >> 33) % 120));
        if running.is_alive() {
            running.signal(Signal::KILL);
        }
        let ended = running.wait();
        if ended.signal() == Some(9) {
            kills += 1;
        } else {
            ended.assert_code(0);
            expected = more_rows(&folder);
        }
    }
    folder.legwork(&arguments).run().assert_code(0);
    let map = "runs/find-test-framework/map-folders";
    let lines: Vec<Value> = folder
        .read(&format!("{map}/results.jsonl"))
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let ids: BTreeSet<&str> = lines.iter().filter_map(|line| line["id"].as_str()).collect();
    assert_eq!((lines.len(), ids.len()), (expected, expected), "seed {}", std::process::id());
    let temporary: Vec<_> = folder.list().into_iter().filter(|name| name.contains(".tmp-legwork-")).collect();
    assert!(temporary.is_empty(), "killed processes have left {temporary:?}");
    for line in &lines {
        assert_eq!(line["outcome"], "completed", "{line}");
        let journal = folder.read(&format!("{map}/rows/{}/events.jsonl", line["id"].as_str().expect("an id")));
        assert_eq!(journal.matches("\"type\":\"run_finished\"").count(), 1, "{line}");
        assert_eq!(journal.matches("\"type\":\"run_started\"").count(), 1, "{line}");
    }
}
