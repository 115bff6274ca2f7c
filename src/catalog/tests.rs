use super::*;

#[test]
fn the_time_of_an_id_is_read() {
    let time = |id: &str| time_of_id(id).map(|time| time.to_string());
    assert_eq!(time("20261123-044234-1d3hq0").as_deref(), Some("2026-11-23T04:42:34Z"));
    assert_eq!([time("nightly"), time("20269923-044234-1d3hq0")], [None, None]);
}

/// Writes the record of a run that has ended.
fn write_record(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let id = file_name(folder);
    let result = serde_json::json!({
        "format": crate::event::FORMAT, "run_id": id, "outcome": "completed", "exit_code": 0, "error": null,
        "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:01Z", "duration_ms": 1000, "turns": 1,
        "tool_calls": 0, "usage": Usage::default(), "cost_usd": null, "model": "a/b",
    });
    fs::write(folder.join("result.json"), result.to_string()).unwrap();
}

fn one_entry(out: &Path) -> Entry {
    let mut entries = list(out, None, Timestamp::now(), Duration::ZERO).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

#[test]
fn a_record_that_is_used_since_it_was_listed_is_kept() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("j/k");
    write_record(&folder);
    let entry = one_entry(out.path());
    let lock = crate::record::RemovalLock::take(&folder).unwrap().unwrap();
    assert_eq!(remove(out.path(), entry.clone()).unwrap().unwrap_err(), KeepReason::Running);
    drop(lock);
    // It was resumed.
    let result = fs::read(folder.join("result.json")).unwrap();
    fs::remove_file(folder.join("result.json")).unwrap();
    fs::write(folder.join("plan.json"), "{}").unwrap();
    assert_eq!(remove(out.path(), entry.clone()).unwrap().unwrap_err(), KeepReason::Running);
    fs::write(folder.join("result.json"), result).unwrap();
    assert!(remove(out.path(), entry).unwrap().is_ok() && !folder.exists());
    assert_eq!(fs::read_dir(out.path().join("j")).unwrap().count(), 0);
}

#[test]
fn nothing_is_removed_while_a_run_watches_the_folder() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("j/k");
    write_record(&folder);
    fs::create_dir(out.path().join("j/.removed-x")).unwrap();
    std::os::unix::fs::symlink("x", out.path().join("j/latest")).unwrap();
    let entry = one_entry(out.path());
    let watching = fs::File::open(out.path()).unwrap();
    rustix::fs::flock(&watching, rustix::fs::FlockOperation::LockShared).unwrap();
    assert_eq!(remove(out.path(), entry.clone()).unwrap().unwrap_err(), KeepReason::Watched);
    remove_leftovers(out.path());
    update_latest(&out.path().join("j"), [&entry]).unwrap();
    assert_eq!(fs::read_dir(out.path().join("j")).unwrap().count(), 3);
    assert_eq!(fs::read_link(out.path().join("j/latest")).unwrap(), Path::new("x"));
    // Closing isn't enough: a program that another test starts may have a copy of the descriptor for a moment.
    rustix::fs::flock(&watching, rustix::fs::FlockOperation::Unlock).unwrap();
    update_latest(&out.path().join("j"), [&entry]).unwrap();
    assert_eq!(fs::read_link(out.path().join("j/latest")).unwrap(), Path::new("k"));
    remove_leftovers(out.path());
    assert!(remove(out.path(), entry).unwrap().is_ok() && !folder.exists());
}

/// While another process puts a link in the place of the job's folder, and the folder back.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_removed_behind_a_link_that_appears_meanwhile() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let outer = tempfile::tempdir().unwrap();
    let (out, mine) = (outer.path().join("runs"), outer.path().join("mine"));
    fs::create_dir(&out).unwrap();
    // What a link leads to looks like the record, and like one that is half removed.
    let restore = || {
        for name in ["k", ".removed-k"] {
            write_record(&mine.join(name));
        }
    };
    restore();
    std::os::unix::fs::symlink(&mine, outer.path().join("link")).unwrap();
    for _ in 0..200 {
        write_record(&out.join("j/k"));
        let entry = one_entry(&out);
        let ended = AtomicBool::new(false);
        let swap = || {
            renameat_with(CWD, out.join("j"), CWD, outer.path().join("link"), RenameFlags::EXCHANGE).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    swap();
                    swap();
                }
            });
            // Whether it is removed depends on the moment.
            let _ = remove(&out, entry);
            remove_leftovers(&out);
            ended.store(true, Ordering::Relaxed);
        });
        let left = || fs::read_dir(&mine).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
        assert!(left().len() == 2 && mine.join("k/result.json").exists(), "{:?}", left());
    }
}

#[test]
fn a_map_that_a_process_holds_between_two_rows_is_kept() {
    let out = tempfile::tempdir().unwrap();
    let map = MapFolder { path: out.path().join("j/m") };
    write_record(&map.row("one"));
    fs::create_dir(map.ledger()).unwrap();
    let manifest = serde_json::json!({
        "format": 1, "job": "j", "rows_file": "-", "isolation": "none", "snapshot": null,
        "started_at": "2026-01-01T00:00:00Z",
    });
    fs::write(map.manifest(), manifest.to_string()).unwrap();
    let entry = one_entry(out.path());
    let held = map.hold().unwrap();
    let held_by_another = map.hold().unwrap();
    drop(held);
    assert_eq!(remove(out.path(), entry.clone()).unwrap().unwrap_err(), KeepReason::Running);
    drop(held_by_another);
    let preparing = map.lock().unwrap();
    assert_eq!(remove(out.path(), entry.clone()).unwrap().unwrap_err(), KeepReason::Running);
    drop(preparing);
    // A process that another test has just started has a copy of the lock's descriptor until its program begins.
    let is_removed = || {
        let removed = remove(out.path(), entry.clone()).unwrap();
        std::thread::sleep(Duration::from_millis(if removed.is_ok() { 0 } else { 10 }));
        removed.is_ok()
    };
    assert!((0..1_000).any(|_| is_removed()) && !map.path.exists());
}
