//! Attacks on the runs folder.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::attack_fixture::AttackFixture;
use super::users_and_tiers;
use crate::running::run_failures::wait_until;
use crate::support::sample;

/// Each attack adds something to the runs folder or removes something. `OWN` is the run's own record.
const ATTACKS: [&str; 12] = [
    "echo '!*' > runs/.gitignore",
    "rm -f runs/.gitignore",
    "ln -sfn ../../src runs/job/latest",
    "rm -f runs/job/latest",
    "mkdir -p runs/job/20990101-000000-aaaaaa; cp OWN/events.jsonl OWN/plan.json runs/job/20990101-000000-aaaaaa",
    "mkdir -p runs/other/20990101-000000-aaaaaa; cp OWN/events.jsonl runs/other/20990101-000000-aaaaaa; \
     ln -s 20990101-000000-aaaaaa runs/other/latest",
    "ln -s ../../../../home/token OWN/transcript.md",
    "mkdir -p OWN/subagents; ln -s ../../../../../home/token OWN/subagents/general-1.md",
    "echo x > runs/job/file",
    "echo x > OWN/changes.patch",
    "echo x > OWN/extra",
    "ln -s ../src runs/src",
];

/// A job with an input, for rows.
const MAPPED_JOB: &str =
    "model: replay/go.script.yaml\ninputs: { row: { type: string } }\nparent: { prompt: Go, tools: [bash] }\n";

/// The names and links in the runs folder, without the content of records.
fn runs_folder_state(runs: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let jobs = std::fs::read_dir(runs).unwrap().flatten().map(|entry| entry.path());
    for path in jobs.flat_map(|job| {
        let inside = std::fs::read_dir(&job).into_iter().flatten().flatten().map(|entry| entry.path());
        inside.chain([job.clone()]).collect::<Vec<_>>()
    }) {
        // Renamed entries aren't records.
        if !path.to_string_lossy().contains(".not-a-record") {
            let content = match path.is_symlink() {
                true => std::fs::read_link(&path).unwrap().to_string_lossy().into_owned(),
                false => std::fs::read_to_string(&path).unwrap_or_default(),
            };
            all.push((path, content));
        }
    }
    all.sort();
    all
}

#[test]
fn the_runs_folder_does_not_change() {
    for (user, tier) in users_and_tiers() {
        for attack in sample(ATTACKS, ATTACKS.len().div_ceil(3)) {
            let place = AttackFixture::new(user).unwrap();
            let attack = attack.replace("OWN", "$(echo runs/job/2[0-8]*)");
            let ended = place.run(tier, &[format!("PATH=/usr/bin:/bin; {attack}")]);
            let folder = ended.run_folder_in("runs/job");
            let runs = place.workspace().join("runs");
            let record = std::fs::read_link(runs.join("job/latest")).unwrap();
            let expected = [
                (runs.join(".gitignore"), "*\n".to_owned()),
                (runs.join("job"), String::new()),
                (runs.join("job").join(&record), String::new()),
                (runs.join("job/latest"), record.display().to_string()),
            ];
            assert_eq!(runs_folder_state(&runs), expected, "{user:?} in {tier:?}: {attack}\n{}", ended.full_output());
            let entries = std::fs::read_dir(runs.join("job").join(&record)).unwrap().flatten();
            let is_planted = |name: &str| name == "changes.patch" || name == "extra";
            let is_fine = |path: &Path| !path.is_symlink() && !is_planted(path.file_name().unwrap().to_str().unwrap());
            assert!(entries.into_iter().all(|entry| is_fine(&entry.path())), "{user:?} in {tier:?}: {attack}");
            let result = folder.result();
            match tier {
                super::Tier::Bubblewrap => assert_eq!(result["outcome"], "completed", "{attack}"),
                _ => assert_eq!(result["outcome"], "environment_failed", "{user:?}: {attack}\n{}", ended.full_output()),
            }
            assert_eq!(
                std::fs::read_to_string(place.root().join("home/token")).unwrap().trim(),
                super::attack_fixture::SECRET
            );
        }
    }
}

#[test]
fn another_run_that_starts_at_the_same_time_is_not_an_attack() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        let runs = place.workspace().join("runs");
        let theirs = runs.join("theirs/20990101-000000-aaaaaa");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !place.workspace().join("begun").exists() {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                std::fs::create_dir_all(&theirs).unwrap();
                let lock = std::fs::File::open(&theirs).unwrap();
                rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
                symlink("20990101-000000-aaaaaa", runs.join("theirs/latest")).unwrap();
                std::fs::write(place.workspace().join("seen"), "").unwrap();
                while !place.workspace().join("over").exists() {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            });
            let wait = "PATH=/usr/bin:/bin; touch begun; until [ -e seen ]; do sleep 0.01; done; echo done";
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| place.run(tier, &[wait.to_owned()])));
            std::fs::write(place.workspace().join("begun"), "").unwrap();
            std::fs::write(place.workspace().join("over"), "").unwrap();
            ended.unwrap().assert_code(0);
        });
        assert!(runs.join("theirs/latest").is_symlink() && theirs.is_dir(), "{user:?} in {tier:?}");
    }
}

/// A record is identified by the lock of its folder, which moves with the folder. The run writes to the record's files
/// wherever they are.
#[test]
fn a_moved_or_replaced_record_ends_the_run() {
    for (user, tier) in users_and_tiers() {
        for attack in [
            "mv OWN/events.jsonl OWN/e; cp OWN/e OWN/events.jsonl",
            "mv OWN runs/job/29990101-000000-zzzzzz",
            "mv runs/job runs/other",
        ] {
            let place = AttackFixture::new(user).unwrap();
            let own = "own=$(echo runs/job/2*)";
            let ended = place.run(tier, &[format!("PATH=/usr/bin:/bin; {own}; {}", attack.replace("OWN", "$own"))]);
            if tier == super::Tier::Bubblewrap {
                ended.assert_code(0);
                continue;
            }
            ended.assert_code(5);
            let runs = place.workspace().join("runs");
            assert!(!runs.join("job/29990101-000000-zzzzzz").exists() && !runs.join("other").exists(), "{attack}");
        }
    }
}

/// Another run of the same job starts and ends while a command runs.
#[test]
fn another_run_that_ends_at_the_same_time_is_not_an_attack() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        let wait = "PATH=/usr/bin:/bin; touch begun; until [ -e seen ]; do sleep 0.01; done; echo done";
        let first = place.program(tier, &[wait.to_owned()]).spawn();
        wait_until(|| place.workspace().join("begun").exists());
        place.program(tier, &["echo hello".to_owned()]).run().assert_code(0);
        let theirs = std::fs::read_link(place.workspace().join("runs/job/latest")).unwrap();
        place.write("seen", "");
        first.wait().assert_code(0);
        assert!(place.workspace().join("runs/job").join(&theirs).is_dir(), "{user:?} in {tier:?}");
        assert_eq!(std::fs::read_link(place.workspace().join("runs/job/latest")).unwrap(), theirs);
    }
}

/// A map whose rows have workspaces of their own starts and ends in a folder of runs in which there was none.
#[test]
fn a_map_that_starts_at_the_same_time_is_not_an_attack() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        let wait = "PATH=/usr/bin:/bin; touch begun; until [ -e seen ]; do sleep 0.01; done; echo done";
        // The first command ends while the map has its workspaces, the second one when they are gone.
        let again = wait.replace("begun", "begun-again").replace("seen", "seen-again");
        let first = place.program(tier, &[wait.to_owned(), again]).spawn();
        wait_until(|| place.workspace().join("begun").exists());
        let command = "PATH=/usr/bin:/bin; touch MARK; until [ -e MARK-over ]; do sleep 0.01; done";
        let command = command.replace("MARK", &place.workspace().join("row").to_string_lossy());
        place.write("rows.csv", "row\n1\n").write("go.yaml", MAPPED_JOB);
        let script = json!({ "parent": [{ "calls": [{ "tool": "bash", "input": { "command": command } }] }, { "text": "Done." }] });
        place.write("go.script.yaml", &script.to_string()).chown_all();
        let map = ["map", "go.yaml", "--rows", "rows.csv", "--isolate", "copy", "--sandbox", "off"];
        let map = place.legwork(tier, &map).spawn();
        wait_until(|| place.workspace().join("row").exists());
        place.write("seen", "");
        wait_until(|| place.workspace().join("begun-again").exists());
        place.write("row-over", "");
        map.wait().assert_code(0);
        place.write("seen-again", "");
        first.wait().assert_code(0);
        assert!(place.workspace().join("runs/go/map-rows/results.jsonl").is_file(), "{user:?} in {tier:?}");
    }
}
