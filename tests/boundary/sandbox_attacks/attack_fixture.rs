//! The setup for attacks: a workspace, its surroundings, and the attacking users.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::bubblewrap::find_program;
use crate::support::program::{Program, ProgramOutput};
use crate::support::report_skipped;
use crate::support::test_folder::TestFolder;

/// The id of an ordinary user. No machine has a user of this id.
const UNPRIVILEGED_UID: u32 = 54_321;
/// A secret in places that commands must not read.
pub(super) const SECRET: &str = "planted-secret-0f3a";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Off,
    Landlock,
    Bubblewrap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    /// The user who runs the tests.
    Current,
    /// An ordinary user, available if root runs the tests.
    Unprivileged,
}

impl User {
    pub(super) fn is_root(self) -> bool {
        self == Self::Current && rustix::process::geteuid().is_root()
    }
}

/// A folder that belongs to a user, with a workspace, a home with secrets, and a file outside of both.
pub(super) struct AttackFixture {
    folder: TestFolder,
    user: User,
}

impl AttackFixture {
    /// Creates the files. `None` if the tests can't act as that user.
    pub(super) fn new(user: User) -> Option<Self> {
        if user == User::Unprivileged && (!rustix::process::geteuid().is_root() || setpriv().is_none()) {
            return None;
        }
        let folder = TestFolder::new();
        let place = Self { folder, user };
        for (name, content) in [("home/.ssh/id", SECRET), ("home/token", SECRET), ("outside/file", SECRET)] {
            let path = place.root().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{content}\n")).unwrap();
        }
        let job = "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [bash] }\nnetwork: none\n";
        place.folder.write("job.yaml", job).write("src/main.txt", "x\n").commit_all();
        if user == User::Unprivileged {
            // Below the build folder, that user may have no access.
            link_or_copy(Path::new(env!("CARGO_BIN_EXE_legwork")), &place.root().join("legwork"));
        }
        place.chown_all();
        Some(place)
    }

    /// Adds the program that commands make single system calls with.
    pub(super) fn with_probe(self) -> Self {
        copy(&std::env::current_exe().unwrap(), &self.workspace().join("probe"));
        self.chown_all();
        self
    }

    /// Changes the owner of all files but the program under test.
    pub(super) fn chown_all(&self) {
        if self.user == User::Unprivileged {
            let mut open = vec![self.root()];
            let program = self.root().join("legwork");
            while let Some(path) = open.pop() {
                if path == program {
                    continue;
                }
                std::os::unix::fs::lchown(&path, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).unwrap();
                if path.symlink_metadata().unwrap().is_dir() {
                    open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
                }
            }
        }
    }

    /// A setuid-root program, if root can create one. It prints its user id.
    pub(super) fn setuid_program(&self) -> PathBuf {
        let path = self.root().join("work/who");
        assert!(std::process::Command::new("cp").arg("/usr/bin/id").arg(&path).status().unwrap().success());
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(0), Some(0)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        }
        path
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().parent().unwrap().to_owned()
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.folder.path()
    }

    /// Changes the job's text.
    pub(super) fn edit_job(&self, from: &str, to: &str) -> &Self {
        let job = self.folder.read("job.yaml").replace(from, to);
        self.folder.write("job.yaml", job);
        self
    }

    /// Writes a file in the workspace.
    pub(super) fn write(&self, path: &str, content: &str) -> &Self {
        self.folder.write(path, content);
        self
    }

    /// Runs git in the workspace as an owner who trusts it.
    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let all = ["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b.example"];
        let mut git = std::process::Command::new("git");
        git.args(all).args(["-c", "protocol.file.allow=always"]).args(arguments).current_dir(self.workspace());
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_EDITOR", "true");
        let output = git.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Runs the job. Its parent makes these `bash` calls one after the other.
    pub(super) fn run(&self, tier: Tier, commands: &[String]) -> ProgramOutput {
        // Earlier records aren't needed.
        let _ = std::fs::remove_dir_all(self.workspace().join("runs"));
        self.program(tier, commands).run()
    }

    /// The program that runs the job. The job's parent makes these `bash` calls one after the other.
    pub(super) fn program(&self, tier: Tier, commands: &[String]) -> Program {
        let call = |command: &String| json!({ "tool": "bash", "input": { "command": command } });
        let script = json!({ "parent": [
            { "calls": commands.iter().map(call).collect::<Vec<_>>() },
            { "text": "Done." },
        ] });
        // This file is outside of the workspace: the runner reads it, and commands must not.
        let replies = self.root().join("replies.yaml");
        std::fs::write(&replies, script.to_string()).unwrap();
        self.chown_all();
        let model = format!("replay/{}", replies.display());
        let sandbox = match tier {
            Tier::Off => "off",
            Tier::Landlock => "auto",
            Tier::Bubblewrap => "required",
        };
        self.legwork(tier, &["run", "job.yaml", "--model", &model, "--sandbox", sandbox])
    }

    pub(super) fn legwork(&self, tier: Tier, arguments: &[&str]) -> Program {
        let program = match self.user {
            User::Current => self.folder.program(env!("CARGO_BIN_EXE_legwork"), arguments),
            User::Unprivileged => {
                let becoming = [
                    format!("--reuid={UNPRIVILEGED_UID}"),
                    format!("--regid={UNPRIVILEGED_UID}"),
                    "--clear-groups".into(),
                    self.root().join("legwork").display().to_string(),
                ];
                let all: Vec<&str> = becoming.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
                self.folder.program(setpriv().unwrap().to_str().unwrap(), &all)
            }
        };
        match tier {
            // Without bwrap, the program uses landlock.
            Tier::Landlock => program.env("PATH", "/nonexistent"),
            _ => program,
        }
    }

    /// The output of a run's commands, in order.
    pub(super) fn outputs(&self, tier: Tier, commands: &[String]) -> Vec<String> {
        // With landlock, the program has no PATH. Many failing calls in a row would end the run.
        let commands: Vec<String> = commands
            .iter()
            .map(|command| format!("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; {command}; :"))
            .collect();
        let ended = self.run(tier, &commands);
        let events = ended.assert_code(0).run_folder().events();
        let outputs: Vec<String> = outputs(&events).collect();
        assert_eq!(outputs.len(), commands.len(), "{}", ended.full_output());
        outputs
    }
}

pub(super) fn outputs(events: &[Value]) -> impl Iterator<Item = String> + '_ {
    let finished = events.iter().filter(|event| event["type"] == "call_finished");
    finished.map(|event| event["data"]["result"]["text"].as_str().unwrap().to_owned())
}

/// Makes a file of more than 100 MB appear elsewhere, without a copy where possible.
fn link_or_copy(source: &Path, target: &Path) {
    if std::fs::hard_link(source, target).is_err() {
        copy(source, target);
    }
}

/// Copies a program. This process doesn't do that itself: a program that another test starts meanwhile would inherit the file, open
/// for writing, and until that program closes it, no one could execute it.
fn copy(source: &Path, target: &Path) {
    assert!(std::process::Command::new("cp").arg(source).arg(target).status().unwrap().success());
    std::fs::set_permissions(target, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn setpriv() -> Option<&'static Path> {
    static SETPRIV: OnceLock<Option<PathBuf>> = OnceLock::new();
    SETPRIV.get_or_init(|| find_program("setpriv")).as_deref()
}

/// The sandbox tiers that work for a user on this machine. Each tier is probed once.
pub(super) fn tiers(user: User) -> &'static [Tier] {
    static CURRENT_TIERS: OnceLock<Vec<Tier>> = OnceLock::new();
    static UNPRIVILEGED_TIERS: OnceLock<Vec<Tier>> = OnceLock::new();
    let known = if user == User::Current { &CURRENT_TIERS } else { &UNPRIVILEGED_TIERS };
    known.get_or_init(|| {
        let Some(place) = AttackFixture::new(user) else {
            report_skipped(&format!("the tests can't act as {user:?} here: that takes root and setpriv"));
            return Vec::new();
        };
        let works = |tier: &Tier| {
            let ended = place.run(*tier, &["true".to_owned()]);
            let there = ended.stdout == "Done.\n";
            if !there {
                report_skipped(&format!("no {tier:?} here for {user:?}: {}", ended.stderr));
            }
            there
        };
        [Tier::Landlock, Tier::Bubblewrap].into_iter().filter(works).collect()
    })
}
