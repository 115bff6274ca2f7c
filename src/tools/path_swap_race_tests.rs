//! File tools while another thread swaps folders, files and links as fast as it can.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::toolbox::tests::ToolHarness;

const CALLS: usize = 500;
const SECRET: &str = "the secret of outside";

/// A workspace with a folder and a file that can be swapped with links to the same names outside, and a file that can be
/// swapped with a FIFO.
struct SwappingWorkspace {
    harness: ToolHarness,
    outside: PathBuf,
    pairs: Vec<(PathBuf, PathBuf)>,
}

impl SwappingWorkspace {
    fn new(tools: &[&str]) -> Self {
        let harness = ToolHarness::new(tools);
        let outside = harness.folder.path().join("outside");
        std::fs::create_dir_all(outside.join("e")).unwrap();
        for name in ["file", "e/file", "e/only-outside.txt"] {
            std::fs::write(outside.join(name), format!("harmless {SECRET}\n")).unwrap();
        }
        std::fs::write(outside.join(".gitignore"), "*\n").unwrap();
        for name in ["d/file", "d/e/file", "single", "piped"] {
            harness.write(name, "harmless\n");
        }
        let links = [("d", "link", "../outside"), ("single", "single-link", "../outside/file")];
        for (_, link, target) in links {
            symlink(target, harness.path(link)).unwrap();
        }
        assert!(std::process::Command::new("mkfifo").arg(harness.path("fifo")).status().unwrap().success());
        let mut pairs: Vec<_> = links.iter().map(|(name, link, _)| (harness.path(name), harness.path(link))).collect();
        pairs.push((harness.path("piped"), harness.path("fifo")));
        Self { harness, outside, pairs }
    }

    /// Runs `work` while the pairs are being swapped.
    fn racing<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (one, other) in &self.pairs {
                        // A file that is being replaced at this moment can't be swapped.
                        let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                    }
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            });
            while swaps.load(Ordering::Relaxed) < 10 {
                std::thread::yield_now();
            }
            let result = scope.spawn(work).join();
            done.store(true, Ordering::Relaxed);
            result
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The files outside with their contents.
    fn outside(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for folder in [self.outside.clone(), self.outside.join("e")] {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                found.push((entry.path().display().to_string(), text));
            }
        }
        found.sort();
        found
    }

    /// Calls a tool `count` times and returns how many calls succeeded. Each must end and show nothing from outside.
    fn call(&self, tool: &str, inputs: &(impl Fn(usize) -> Value + Sync), count: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut succeeded = 0;
        runtime.block_on(async {
            for number in 0..count {
                let input = inputs(number).to_string();
                let result = tokio::time::timeout(Duration::from_secs(120), self.harness.call(tool, &input)).await;
                let result = result.unwrap_or_else(|_| panic!("{tool} {input} hangs"));
                for word in [SECRET, "only-outside"] {
                    assert!(!result.text.contains(word), "{tool} {input}: {}", result.text);
                }
                succeeded += usize::from(!result.is_error);
            }
        });
        succeeded
    }
}

/// Calls a tool very often while files are being swapped. Nothing outside may be seen or changed, each call must end, and
/// some must succeed.
fn assert_stays_within(tool: &str, inputs: impl Fn(usize) -> Value + Sync) {
    let swapped = SwappingWorkspace::new(&[tool]);
    let before = swapped.outside();
    // On a busy machine, the swapping thread can win every race for a while.
    let mut rounds = (0..20).map(|_| swapped.racing(|| swapped.call(tool, &inputs, CALLS)));
    let succeeded = rounds.find(|succeeded| *succeeded > 0).unwrap_or_default();
    assert_eq!(swapped.outside(), before, "{tool} changed something outside");
    assert!(succeeded > 0, "{tool} never succeeded in the race, so it wasn't tried");
    assert_eq!(SwappingWorkspace::new(&[tool]).call(tool, &inputs, 30), 30, "{tool} fails without a race");
}

fn of<T: Copy>(number: usize, choices: &[T]) -> T {
    choices[number % choices.len()]
}

#[test]
fn write_file_stays_within() {
    assert_stays_within("write_file", |number| {
        let path = of(number, &["d/new", "d/e/file", "d/e/new", "d/x/y/new", "d/file", "single"]);
        json!({ "path": path, "overwrite": true, "content": "harmless\n" })
    });
}

#[test]
fn edit_file_stays_within() {
    assert_stays_within("edit_file", |number| {
        let path = of(number, &["d/file", "d/e/file", "single", "piped"]);
        json!({ "path": path, "old_text": "harmless", "new_text": "harmless and more" })
    });
}

#[test]
fn read_file_stays_within() {
    assert_stays_within(
        "read_file",
        |number| json!({ "path": of(number, &["d/file", "d/e/file", "single", "piped"]) }),
    );
}

#[test]
fn glob_stays_within() {
    assert_stays_within("glob", |number| {
        let (pattern, path) = of(number, &[("*", "d"), ("**/*", "."), ("d/e/*", "."), ("*", "d/e"), ("d/**", ".")]);
        json!({ "pattern": pattern, "path": path })
    });
}

#[test]
fn grep_stays_within() {
    assert_stays_within("grep", |number| {
        let path = of(number, &["d", ".", "d/e", "d/e/file", "single", "piped"]);
        json!({ "pattern": "secret|harmless", "path": path })
    });
}

#[test]
fn following_the_path_naively_escapes_in_the_same_race() {
    let swapped = SwappingWorkspace::new(&[]);
    let before = swapped.outside();
    let soon = |attempt: &(dyn Fn() -> bool + Sync)| {
        let start = Instant::now();
        swapped.racing(|| {
            loop {
                if attempt() {
                    break true;
                }
                if start.elapsed() > Duration::from_secs(120) {
                    break false;
                }
            }
        })
    };
    let harness = &swapped.harness;
    let read = |path: &str| std::fs::read_to_string(harness.path(path)).is_ok_and(|text| text.contains(SECRET));
    assert!(soon(&|| read("d/file")) && soon(&|| read("single")));
    let list = || {
        std::fs::read_dir(harness.path("d/e"))
            .is_ok_and(|mut list| list.any(|entry| entry.is_ok_and(|entry| entry.file_name() == "only-outside.txt")))
    };
    assert!(soon(&list));
    // A check before the write does not help.
    let checked = || {
        let path = harness.path("d/naive");
        let is_within = path.parent().unwrap().canonicalize().is_ok_and(|path| path.ends_with("ws/d"));
        is_within && std::fs::write(&path, "x").is_ok() && swapped.outside.join("naive").exists()
    };
    assert!(soon(&checked));
    assert_ne!(swapped.outside(), before);
}
