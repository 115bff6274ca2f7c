use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use super::super::object_stage::{GuardedFiles, ObjectStages};
use super::super::policy::SandboxPolicy;
use super::Landlock;
use crate::egress::NetworkAccess;

struct TestWorkspace {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl TestWorkspace {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["work", "work/kept", "home", "outside", "users-home/.ssh"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("outside/file"), "outside\n").unwrap();
        std::fs::write(root.join("users-home/.ssh/id"), "secret\n").unwrap();
        Self { _folder: folder, root }
    }

    fn policy(&self) -> SandboxPolicy {
        SandboxPolicy {
            workspace: self.root.join("work"),
            protected: vec![self.root.join("work/kept")],
            protected_links: vec![],
            allowed_changes: crate::sandbox::allowed_changes::AllowedChanges::default(),
            network: NetworkAccess::None,
            readable: vec![],
            writable: vec![],
            hidden_files: vec![],
            home: Some(self.root.join("users-home")),
            path_dirs: vec![],
            object_stages: ObjectStages::default(),
            guarded_files: GuardedFiles::default(),
        }
    }

    /// `None` if this machine has no landlock.
    fn landlock(&self) -> Option<Arc<Landlock>> {
        match Landlock::prepare(&self.policy(), &self.root.join("home")) {
            Ok(landlock) => Some(landlock),
            Err(error) => {
                eprintln!("skipped: no landlock here: {error}");
                None
            }
        }
    }

    /// Runs a script: whether it succeeds, and what it prints.
    fn run(&self, landlock: Option<&Arc<Landlock>>, read_only: bool, script: &str) -> (bool, String) {
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(script)
            .current_dir(self.root.join("work"))
            .env("ROOT", &self.root)
            .env("HOME", self.root.join("home"));
        if let Some(landlock) = landlock {
            landlock.confine(&mut command, read_only, None).unwrap();
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }
}

#[test]
fn the_probe_succeeds() {
    let place = TestWorkspace::new();
    let Some(landlock) = place.landlock() else { return };
    assert_eq!(landlock.probe(), Ok(()));
}

#[test]
fn commands_can_do_their_work() {
    let place = TestWorkspace::new();
    let Some(landlock) = place.landlock() else { return };
    for script in [
        "echo x > a && mkdir d && mv a d/b && ln d/b c && ln -s d/b e && cat e",
        "echo '#!/bin/sh' > run && chmod +x run && ./run && stat -c %a run | grep -q 7",
        "touch -d 2001-01-01 t && test $(stat -c %Y t) -lt 1000000000 && touch t && test $(stat -c %Y t) -gt 1700000000",
        "cp -p run copy && test -x copy && chmod 600 copy && chown $(id -u):$(id -g) copy",
        "echo x > \"$TMPDIR/y\" && mktemp && cat <(echo sub)",
        "cd d && chmod 700 ../t . && chmod 755 /dev/fd/3 3< ../t && test -x ../t",
        "chmod g+s d && tar c d | (mkdir -p u && tar x -C u) && ls -l /etc/ /usr/bin > /dev/null",
        "cat /etc/passwd /proc/self/status /proc/cpuinfo /proc/meminfo > /dev/null && git init -q . && git status > /dev/null",
    ] {
        let (worked, text) = place.run(Some(&landlock), false, script);
        assert!(worked, "{script}: {text}");
    }
}

#[test]
fn forbidden_actions_fail_and_would_succeed_unconfined() {
    let place = TestWorkspace::new();
    let Some(landlock) = place.landlock() else { return };
    for script in [
        "echo x >> $ROOT/outside/file",
        "cat $ROOT/outside/file",
        "cat $ROOT/users-home/.ssh/id",
        "ls $ROOT/users-home/.ssh",
        "chmod 644 $ROOT/outside/file",
        "ln -sf $ROOT/outside/file link && chmod 644 link",
        "chmod 700 ../outside",
        "touch $ROOT/outside/file",
        "touch -h -d 2001-01-01 ../outside/file",
        "chown $(id -u) ../outside/file",
        "ln $ROOT/outside/file hard",
        "mkdir $ROOT/outside/d && rmdir $ROOT/outside/d",
        "touch $ROOT/outside/.. ",
        "chmod 700 kept",
        "touch x && chmod 4755 x && rm -f x",
        "exec 3< ../outside/file",
        "kill -0 $PPID",
        "cat /proc/$PPID/environ > /dev/null",
        "(: < /dev/tcp/127.0.0.1/1) 2>&1 | grep -q refused",
        "(: < /dev/udp/127.0.0.1/53)",
    ] {
        let (worked, text) = place.run(None, false, script);
        assert!(worked, "unconfined: {script}: {text}");
        let (worked, text) = place.run(Some(&landlock), false, script);
        assert!(!worked, "confined: {script}: {text}");
    }
}

#[test]
fn a_read_only_workspace_cannot_be_changed() {
    let place = TestWorkspace::new();
    let Some(landlock) = place.landlock() else { return };
    std::fs::write(place.root.join("work/file"), "x").unwrap();
    for script in ["echo y > file", "rm file", "chmod 600 file", "touch file", "mkdir new"] {
        assert!(!place.run(Some(&landlock), true, script).0, "{script}");
    }
    assert!(place.run(Some(&landlock), true, "cat file && touch $TMPDIR/f && chmod 600 $TMPDIR/f").0);
}

#[test]
#[ignore = "prints the overhead of a call"]
fn measure_overhead() {
    let place = TestWorkspace::new();
    let Some(landlock) = place.landlock() else { return };
    let median = |confine: bool| {
        let mut times: Vec<_> = (0..200)
            .map(|_| {
                let mut command = Command::new("/bin/true");
                let start = std::time::Instant::now();
                // A pre-exec step makes std fork, as for every command of a run.
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                command.current_dir(place.root.join("work"));
                if confine {
                    landlock.confine(&mut command, false, None).unwrap();
                } else {
                    nothing(&mut command);
                }
                assert!(command.status().unwrap().success());
                start.elapsed()
            })
            .collect();
        times.sort();
        times[100]
    };
    eprintln!("unconfined {:?}, confined {:?}", median(false), median(true));
    let start = std::time::Instant::now();
    place.landlock();
    eprintln!("prepared in {:?}", start.elapsed());
    let start = std::time::Instant::now();
    landlock.probe().unwrap();
    eprintln!("tried in {:?}", start.elapsed());
}

#[allow(unsafe_code)]
fn nothing(command: &mut Command) {
    // SAFETY: the step does nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || Ok(()));
    }
}
