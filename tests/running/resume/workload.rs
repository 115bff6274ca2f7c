//! Jobs whose commands each leave a marker, and the invariants of such a job after interruptions and resumes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::record::RunFolder;
use crate::support::test_folder::TestFolder;

// The runs have no sandbox, which would slow each of the many commands and has its own tests.
pub(super) const RUN: &[&str] = &["run", "job.yaml", "--model", "replay/replies.yaml", "--sandbox", "off"];
pub(super) const RESUME: &[&str] = &["resume", "latest", "--sandbox", "off"];
/// The output of a complete run.
pub(super) const DONE: &str = "All done.\n";

/// A job and its replies, named by the numbers of turns of its parent and its subagents.
#[derive(Clone)]
pub(super) struct Workload {
    script: Value,
    keep: &'static str,
    /// The job's checks and repairs, as YAML.
    checks: &'static str,
    pub(super) turns: usize,
    children: usize,
}

/// The second check passes after the parent's second answer, that is, when its fourth reply exists.
const CHECKS: &str = "
checks:
  - { name: first, run: 'true' }
  - { name: second, run: 'test $(cat runs/job/*-*/events.jsonl | grep -c [^\\\\]\"type.:.reply_received\") -ge 4' }
repairs: 2
";

fn bash(mark: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": format!("echo {mark} >> log") } })
}

fn reading() -> Value {
    json!({ "tool": "read_file", "input": { "path": "job.yaml" } })
}

fn writing(path: &str) -> Value {
    json!({ "tool": "write_file", "input": { "path": path, "content": "x" } })
}

fn task(prompt: &str) -> Value {
    json!({ "tool": "task", "input": { "prompt": prompt, "description": prompt } })
}

fn worker(name: &str) -> Value {
    json!([
        { "text": "Größe?", "calls": [bash(&format!("{name}-a")), reading()] },
        { "calls": [bash(&format!("{name}-b")), bash(&format!("{name}-c"))] },
        { "text": format!("{name} is done.") },
    ])
}

impl Workload {
    fn new(parent: &[Value], workers: Vec<Value>) -> Self {
        let (turns, children) = (parent.len(), workers.len());
        let named = |(at, worker): (usize, Value)| (format!("worker-{}", at + 1), worker);
        let workers: serde_json::Map<String, Value> = workers.into_iter().enumerate().map(named).collect();
        Self { script: json!({ "parent": parent, "subagents": workers }), keep: "always", checks: "", turns, children }
    }

    /// One turn with everything, for tests that cut at every byte.
    pub(super) fn tiny() -> Self {
        let child = json!([{ "calls": [bash("a-1")] }, { "text": "a is done." }]);
        Self::new(&[json!({ "calls": [task("a"), bash("one")] }), json!({ "text": "All done." })], vec![child])
    }

    /// Two answers; the checks fail after the first.
    pub(super) fn checked() -> Self {
        let parent = [
            json!({ "calls": [bash("one")] }),
            json!({ "text": "Is that all?" }),
            json!({ "calls": [bash("two")] }),
            json!({ "text": "All done." }),
        ];
        Self { checks: CHECKS, ..Self::new(&parent, Vec::new()) }
    }

    /// Five turns with three parallel subagents and a single one.
    pub(super) fn short() -> Self {
        let parent = [
            json!({ "text": "Zuerst.", "calls": [bash("one"), task("a"), task("b"), task("c"), reading(), bash("two")] }),
            json!({ "calls": [reading(), reading()] }),
            json!({ "calls": [bash("three"), writing("new"), task("d")] }),
            json!({ "calls": [bash("four")] }),
            json!({ "text": "All done." }),
        ];
        Self::new(&parent, ["a", "b", "c", "d"].map(worker).into())
    }

    /// Fifty turns, in every tenth of which four parallel subagents work.
    pub(super) fn long() -> Self {
        let mut workers = Vec::new();
        let mut turn = |number: usize| match number % 10 {
            4 => {
                let names: Vec<String> = ["a", "b", "c", "d"].iter().map(|name| format!("{name}{number}")).collect();
                workers.extend(names.iter().map(|name| worker(name)));
                let mut calls: Vec<Value> = names.iter().map(|name| task(name)).collect();
                calls.extend([reading(), bash(&format!("after-{number}"))]);
                json!({ "text": "Teilt euch das.", "calls": calls })
            }
            7 => json!({ "calls": [reading(), writing(&format!("new-{number}")), reading()] }),
            _ => json!({ "calls": [bash(&format!("turn-{number}"))] }),
        };
        let mut parent: Vec<Value> = (1..50).map(&mut turn).collect();
        parent.push(json!({ "text": "All done." }));
        Self::new(&parent, workers)
    }

    pub(super) fn keep(mut self, keep: &'static str) -> Self {
        self.keep = keep;
        self
    }

    /// A folder for the run.
    pub(super) fn folder(&self) -> TestFolder {
        let folder = TestFolder::new();
        let job = format!(
            "model: anthropic/claude-haiku-4-5\nkeep: {}\n\
             parent: {{ prompt: Go., tools: [task, bash, read_file, write_file], max_turns: 60 }}\n\
             subagents:\n  worker: {{ tools: [bash, read_file, todo] }}\nlimits: {{ tokens: 1000000 }}\n{}",
            self.keep, self.checks
        );
        folder.write("job.yaml", job).write("replies.yaml", self.script.to_string());
        folder
    }

    fn ids(&self) -> Vec<String> {
        (1..=self.children).map(|number| format!("worker-{number}")).collect()
    }

    /// The number of events of a complete run.
    pub(super) fn events(&self) -> u64 {
        let folder = self.folder();
        let ended = folder.legwork(RUN).run();
        ended.assert_code(0).assert_stdout(DONE);
        journals(ended.run_folder().path()).values().map(|journal| lines(journal).len() as u64).sum()
    }

    /// Asserts that a run that was interrupted and resumed looks like an uninterrupted one, except for calls that may
    /// have been executed.
    pub(super) fn assert_complete(&self, ended: &ProgramOutput, folder: &TestFolder, why: &str) {
        assert!(ended.stdout == DONE, "{why}\n{}", ended.full_output());
        ended.assert_code(0);
        let record = ended.run_folder();
        let result = record.result();
        assert_eq!(result["outcome"], "completed", "{why}");
        assert_eq!(result["turns"], self.turns, "{why}");
        let children: Vec<&str> =
            result["subagents"].as_array().unwrap().iter().map(|child| child["id"].as_str().unwrap()).collect();
        assert_eq!(children, self.ids(), "{why}");
        for child in children {
            assert!(record.summary(child).contains(" is done."), "{why}: {child}");
        }
        let checks = result["checks"].as_array().unwrap().iter();
        let checks: Vec<_> = checks.map(|check| json!([check["name"], check["attempt"], check["passed"]])).collect();
        let expected = [
            json!(["first", 1, true]),
            json!(["second", 1, false]),
            json!(["first", 2, true]),
            json!(["second", 2, true]),
        ];
        assert!(checks == if self.checks.is_empty() { &[][..] } else { &expected[..] }, "{why}: {checks:?}");
        assert_not_repeated(folder, why);
        if self.keep == "always" {
            assert_accounted(&record, folder, why);
        }
    }
}

/// The effects of commands, with each group in order.
pub(super) fn effects(folder: &TestFolder) -> Vec<String> {
    if folder.exists("log") { folder.read("log").lines().map(str::to_owned).collect() } else { Vec::new() }
}

/// Asserts that no effect happened twice.
pub(super) fn assert_not_repeated(folder: &TestFolder, why: &str) {
    let mut effects = effects(folder);
    let all = effects.len();
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), all, "{why}: {}", folder.read("log"));
}

/// The commands that started, according to the journals.
pub(super) fn started_commands(journals: &BTreeMap<String, Vec<u8>>) -> BTreeSet<String> {
    let events: Vec<Value> = journals.values().flat_map(|journal| lines(journal)).collect();
    events.iter().filter(|event| event["type"] == "call_started").filter_map(command_mark).map(str::to_owned).collect()
}

/// The marker of a command.
fn command_mark(event: &Value) -> Option<&str> {
    event["data"]["subject"].as_str()?.strip_prefix("echo ")?.strip_suffix(" >> log")
}

/// Asserts that every call has one result and every turn has one reply, and that every command has had its effect or
/// the model was informed that it may not have.
fn assert_accounted(record: &RunFolder, folder: &TestFolder, why: &str) {
    let effects = effects(folder);
    for (name, journal) in journals(record.path()) {
        let events = lines(&journal);
        let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
        let turns: Vec<&Value> = of("reply_received").map(|event| &event["data"]["turn"]).collect();
        assert!(turns.iter().enumerate().all(|(at, turn)| **turn == at + 1), "{why}: {name} has the turns {turns:?}");
        let steps = |kind| of(kind).map(|event| (event["data"]["name"].clone(), event["data"]["attempt"].clone()));
        let begun: Vec<_> = steps("check_started").collect();
        assert_eq!(begun, steps("check_finished").collect::<Vec<_>>(), "{why}: each check is begun and ended once");
        for started in of("call_started") {
            let answers: Vec<&Value> = of("call_finished")
                .map(|event| &event["data"]["result"])
                .filter(|result| result["call_id"] == started["data"]["call_id"])
                .collect();
            let [answer] = answers.as_slice() else { panic!("{why}: {started} has the answers {answers:?}") };
            let text = answer["text"].as_str().unwrap();
            let is_reported = text.contains("was interrupted during");
            if let Some(mark) = command_mark(started) {
                // A call that was running when another agent's failure ended the run was killed. Its result says so.
                let is_reported = is_reported || text.contains("the run was cancelled");
                assert!(is_reported || effects.iter().any(|effect| effect == mark), "{why}: {mark} was lost");
            } else {
                let may_be_told = started["data"]["tool"] == "write_file";
                assert!(may_be_told || !is_reported, "{why}: {started} could have run again");
            }
        }
    }
}

/// The bytes of every journal, by file name in the run's folder.
pub(super) fn journals(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let below = std::fs::read_dir(run.join("subagents")).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = below.chain([run.join("events.jsonl")]).filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(run).expect("below the run").to_str().expect("a name").to_owned();
        Some((name, std::fs::read(path).ok()?))
    };
    all.filter_map(read).collect()
}

/// The complete lines of a journal that parse as JSON.
pub(super) fn lines(journal: &[u8]) -> Vec<Value> {
    let whole = journal.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Asserts that no complete line of an existing journal was changed or lost.
pub(super) fn assert_journals_kept(before: &BTreeMap<String, Vec<u8>>, run: &Path, why: &str) {
    let after = journals(run);
    for (name, bytes) in before {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let Some(after) = after.get(name) else { continue };
        assert!(after.starts_with(&bytes[..whole]), "{why}: {name} was changed");
    }
}

/// Runs a function for every number, on several threads.
pub(super) fn for_each_parallel(numbers: impl IntoIterator<Item = u64>, what: impl Fn(u64) + Sync) {
    let numbers: Vec<u64> = numbers.into_iter().collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
                    what(*number);
                }
            });
        }
    });
}

pub(super) fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
