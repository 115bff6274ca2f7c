//! Records in a folder that several processes reach through mounts which don't share locks, as on a cluster. bindfs is such
//! a file system: each mount has locks of its own, and an open file that loses its name gets another one.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::running::run_failures::wait_until;
use crate::support::program::{Program, ProgramOutput, RunningProgram};
use crate::support::report_skipped;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

/// A second way to a folder. It is unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    /// `None` if this system can't do it.
    fn of(folder: &TestFolder, name: &str) -> Option<Self> {
        let at = folder.home().parent()?.join(name);
        std::fs::create_dir(&at).unwrap();
        let mut bindfs = Command::new("bindfs");
        bindfs.arg("--no-allow-other").arg(folder.path()).arg(&at).stdin(Stdio::null());
        let mounted = Path::new("/dev/fuse").exists() && bindfs.output().is_ok_and(|ended| ended.status.success());
        let mount = Self(at);
        if !mounted {
            report_skipped("there is no bindfs, or it can't mount a folder here");
            return None;
        }
        // The mount is there when bindfs goes into the background.
        assert!(mount.0.join("job.yaml").exists());
        Some(mount)
    }

    fn pair(folder: &TestFolder) -> Option<[Self; 2]> {
        Some([Self::of(folder, "one")?, Self::of(folder, "other")?])
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        for program in ["fusermount3", "fusermount"] {
            let mut unmount = Command::new(program);
            unmount.arg("-u").arg("-z").arg(&self.0).stderr(Stdio::null());
            if unmount.status().is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}

/// Each call is noted by a folder in `fx`; a second one with the same name in a file.
fn noted(name: &str, then: &str) -> serde_json::Value {
    json!({ "command": format!("mkdir fx/{name} || echo {name} >> twice; {then}") })
}

/// A job with one input, and a script for a run without rows.
fn shared(calls: usize, then: &str) -> TestFolder {
    let folder = TestFolder::new();
    let call = |number: usize| json!({ "calls": [{ "tool": "bash", "input": noted(&number.to_string(), then) }] });
    let replies: Vec<_> = (0..calls).map(call).chain([json!({ "text": "Done." })]).collect();
    let job = |model: &str| {
        format!(
            "name: job\nmodel: {model}\ninputs: {{ n: {{ type: string, default: a }} }}\n\
             parent: {{ prompt: '{{{{ inputs.n }}}}', tools: [bash] }}\nlimits: {{ wall_clock: 10m }}\n"
        )
    };
    folder.write("job.yaml", job("replay/r.yaml")).write("rows.yaml", job("anthropic/claude-haiku-4-5"));
    folder.write("r.yaml", json!({ "parent": replies }).to_string());
    std::fs::create_dir(folder.at("fx")).unwrap();
    folder
}

/// A short time until a dead owner's lease is taken over.
fn legwork(folder: &TestFolder, at: &Path, arguments: &[&str]) -> Program {
    let program = folder.legwork(arguments).in_folder(at).env("LEGWORK_LEASE_OBSERVATION_MS", "3000");
    program.args(["--sandbox", "off"])
}

fn keyed(folder: &TestFolder, at: &Path) -> Program {
    legwork(folder, at, &["run", "job.yaml", "--key", "k"])
}

/// Waits until no file is left that only a run needs. bindfs removes what was open after the process has ended.
fn wait_until_clean(folder: &TestFolder) {
    let is_left = |name: &&String| {
        let name = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("lease") || name.starts_with(".tmp-legwork") || name.starts_with(".fuse_hidden")
    };
    wait_until(|| !folder.list().iter().any(|name| is_left(&name)));
}

fn count(folder: &TestFolder) -> usize {
    std::fs::read_dir(folder.at("fx")).unwrap().count()
}

#[test]
fn runs_and_maps_work_in_fuse() {
    let folder = shared(1, "true");
    folder.write("rows.csv", "n\na\nb\nc\n");
    let Some(mount) = Mount::of(&folder, "mount") else { return };
    keyed(&folder, &mount.0).run().assert_code(0).assert_stdout("Done.\n");
    keyed(&folder, &mount.0).run().assert_code(0).assert_stderr_contains("has ended before");
    std::fs::remove_dir(folder.at("fx/0")).unwrap();
    legwork(&folder, &mount.0, &["run", "job.yaml"]).run().assert_code(0).assert_stdout("Done.\n");
    for isolation in ["copy", "none"] {
        let server = Server::start(|request: &Request| Answer::text(&request.prompt()));
        let map = ["map", "rows.yaml", "--rows", "rows.csv", "--id", "n", "--name", isolation, "--isolate", isolation];
        let map = || legwork(&folder, &mount.0, &map).anthropic(&server).run();
        map().assert_code(0).assert_stderr_contains("3 rows: 3 completed");
        map().assert_code(0).assert_stderr_contains("3 ended before");
        assert_eq!(server.finish().len(), 3);
    }
    assert!(!folder.exists("twice"));
    wait_until_clean(&folder);
}

#[test]
fn an_owner_with_another_mount_keeps_its_run() {
    let folder = shared(1, "touch started; until [ -e go ]; do sleep 0.05; done");
    let Some([one, other]) = Mount::pair(&folder) else { return };
    let owner = keyed(&folder, &one.0).spawn();
    folder.wait_for("started");
    // Through another mount, without one, and through the same.
    let places = [other.0.clone(), folder.path(), one.0.clone()];
    for ended in crate::support::in_parallel(&places, |place| keyed(&folder, place).run()) {
        ended.assert_code(75).assert_stderr_contains("another process is executing this run");
    }
    folder.write("go", "");
    owner.wait().assert_code(0).assert_stdout("Done.\n");
    assert!(!folder.exists("twice"));
    assert_eq!(count(&folder), 1);
    wait_until_clean(&folder);
}

#[test]
fn the_lease_of_a_killed_owner_with_another_mount_is_taken_over_once() {
    let folder = shared(2, "touch started; until [ -e go ]; do sleep 0.05; done");
    let Some([one, other]) = Mount::pair(&folder) else { return };
    let owner = keyed(&folder, &one.0).spawn();
    folder.wait_for("started");
    owner.signal(Signal::KILL);
    owner.wait();
    std::fs::remove_file(folder.at("started")).unwrap();
    folder.write("go", "");
    let places = [other.0.clone(), folder.path(), one.0.clone()];
    let running: Vec<RunningProgram> =
        places.iter().cycle().take(9).map(|place| keyed(&folder, place).spawn()).collect();
    let ended: Vec<ProgramOutput> = running.into_iter().map(RunningProgram::wait).collect();
    for ended in &ended {
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
    }
    // All may have seen each other.
    keyed(&folder, &one.0).run().assert_code(0).assert_stdout("Done.\n");
    assert!(!folder.exists("twice"));
    assert_eq!(count(&folder), 2);
    wait_until_clean(&folder);
    let journal = folder.read("runs/job/k/events.jsonl");
    assert_eq!(journal.lines().filter(|line| line.contains("\"type\":\"resumed\"")).count(), 1);
}

#[test]
fn processes_with_different_mounts_share_the_rows_of_a_map() {
    let folder = shared(0, "");
    let rows: String = (0..12).map(|row| format!("r{row}\n")).collect();
    folder.write("rows.csv", format!("n\n{rows}"));
    let Some([one, other]) = Mount::pair(&folder) else { return };
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.turn() {
        turn @ 0..3 => Answer::calls(&[("bash", noted(&format!("{}-{turn}", request.prompt()), "sleep 0.1"))]),
        _ => Answer::text("Done."),
    });
    let map = |place: &Path| {
        let options = ["map", "rows.yaml", "--rows", "rows.csv", "--id", "n", "--isolate", "none", "--jobs", "4"];
        legwork(&folder, place, &options).anthropic(&server)
    };
    let killed = map(&one.0).spawn();
    wait_until(|| count(&folder) > 2);
    let alive = map(&other.0).spawn();
    let third = map(&folder.path()).spawn();
    server.wait_for(30);
    killed.signal(Signal::KILL);
    killed.wait();
    for ended in [alive.wait(), third.wait()] {
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
    }
    map(&one.0).run().assert_code(0);
    assert!(!folder.exists("twice"), "{}", folder.read("twice"));
    wait_until_clean(&folder);
}
