//! The folder of a test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::program::Program;

/// A temporary folder with a workspace and, next to it, an empty home. Removed on drop.
pub(crate) struct TestFolder {
    root: tempfile::TempDir,
    /// Whether the records in it are from runs, so that each has to replay as equal at the end.
    replays_on_drop: AtomicBool,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self::new_in(&plain_temp_dir())
    }

    /// A folder elsewhere, or with the other temporary folders if that place isn't writable.
    pub(crate) fn new_in(above: &Path) -> Self {
        super::process_state::reset();
        let named = || tempfile::Builder::new().prefix("legwork-test-").to_owned();
        let root = named().tempdir_in(above).or_else(|_| named().tempdir()).expect("a temporary folder");
        for name in ["work", "home"] {
            std::fs::create_dir(root.path().join(name)).expect("a folder in the temporary folder");
        }
        Self { root, replays_on_drop: AtomicBool::new(true) }
    }

    /// The workspace, without symbolic links in its path. The program is started in it.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("work").canonicalize().expect("the workspace")
    }

    /// The home folder that the program sees.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// A path in the workspace.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file and creates the folders above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.at(name);
        let above = path.parent().expect("a file is in a folder");
        std::fs::create_dir_all(above).and_then(|()| std::fs::write(&path, content)).expect(name);
        self
    }

    /// A file's text.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.at(name).exists()
    }

    /// Waits until a file exists; fails the test after a timeout.
    pub(crate) fn wait_for(&self, name: &str) -> &Self {
        let deadline = Instant::now() + Duration::from_secs(180);
        while !self.exists(name) {
            assert!(Instant::now() < deadline, "{name} didn't appear within three minutes");
            std::thread::sleep(Duration::from_millis(2));
        }
        self
    }

    /// Every file and folder below the workspace, relative and sorted, without `.git`.
    pub(crate) fn list(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.path()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder to list").flatten() {
                if entry.file_name() == ".git" {
                    continue;
                }
                let path = entry.path();
                found.push(path.strip_prefix(self.path()).expect("below").display().to_string());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Makes the workspace a git repository and commits everything in it.
    pub(crate) fn commit_all(&self) -> &Self {
        self.git(&["init", "--quiet", "--initial-branch=main"]);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message=start"]);
        self
    }

    /// Runs git in the workspace and returns its output.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.git_bytes(arguments)).into_owned()
    }

    /// The same, with its output as it is.
    pub(crate) fn git_bytes(&self, arguments: &[&str]) -> Vec<u8> {
        let output = Command::new("git")
            .args(["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgSign=false"])
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .output()
            .expect("git");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The program, to be started here.
    pub(crate) fn legwork(&self, arguments: &[&str]) -> Program {
        self.program(env!("CARGO_BIN_EXE_legwork"), arguments)
    }

    /// Declares that the test writes records itself, so they aren't replayed.
    pub(crate) fn allow_forged_records(&self) -> &Self {
        self.replays_on_drop.store(false, Ordering::Relaxed);
        self
    }

    /// Every record below the workspace.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        let is_record = |path: &PathBuf| path.ends_with("events.jsonl");
        let files = self.list().into_iter().map(|name| self.at(name)).filter(is_record);
        files.filter_map(|file| Some(file.parent()?.to_owned())).filter(|path| !path.ends_with("latest")).collect()
    }

    /// Any program, started like [`TestFolder::legwork`]: for tests of the harness.
    pub(crate) fn program(&self, executable: &str, arguments: &[&str]) -> Program {
        Program::new(self, executable, arguments)
    }
}

/// The number of records per test that are replayed at its end.
const MAX_REPLAYED_RECORDS: usize = 12;

impl Drop for TestFolder {
    /// Checks that every recorded run replays as equal, up to where its record ends. A record that was damaged on
    /// purpose can't be replayed, which isn't an error.
    fn drop(&mut self) {
        if std::thread::panicking() || !self.replays_on_drop.load(Ordering::Relaxed) {
            return;
        }
        for record in self.records().iter().take(MAX_REPLAYED_RECORDS) {
            if let Some(Err(why)) = super::job::replay(record) {
                panic!("{} doesn't replay as equal:\n{why}", record.display());
            }
        }
    }
}

/// A temporary folder without anything in it. Removed on drop.
pub(crate) fn empty_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(plain_temp_dir()).expect("a temporary folder")
}

/// The folder of temporary files, or `/tmp` if a shell would split its path: tests write paths into scripts.
fn plain_temp_dir() -> PathBuf {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@".contains(letter);
    let folder = std::env::temp_dir();
    if folder.to_string_lossy().chars().all(is_plain) { folder } else { PathBuf::from("/tmp") }
}
