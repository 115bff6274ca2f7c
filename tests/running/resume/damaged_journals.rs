//! Records that changed after the run: journals truncated anywhere, edited, mixed or missing. A run resumes from them
//! or reports why it can't, and it repeats no call that a journal still records.
//!
//! `PROPTEST_CASES=2000 cargo test --test all resume::damage` tries more, and `PROPTEST_RNG_SEED=7` tries others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

use super::kill_points::MOST_POINTS;
use super::workload::{
    RUN, Workload, assert_not_repeated, copy_all, effects, for_each_parallel, journals, lines, started_commands,
};
use crate::support::journal::with_checksums;
use crate::support::program::ProgramOutput;
use crate::support::sample;
use crate::support::test_folder::TestFolder;

fn config() -> ProptestConfig {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let mut config = ProptestConfig { failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() };
    if !is_set("PROPTEST_CASES") {
        config.cases = 30;
    }
    if !is_set("PROPTEST_RNG_SEED") {
        config.rng_seed = RngSeed::Fixed(20_261_122);
    }
    config
}

type Journals = BTreeMap<String, Vec<u8>>;

const PARENT: &str = "events.jsonl";

/// Journals that a test has changed don't match their seal.
const TRUSTED: &[&str] = &["resume", "latest", "--trust-record"];

/// A complete run, without result.json.
struct BaselineRun {
    work: Workload,
    folder: TestFolder,
    journals: Journals,
}

impl BaselineRun {
    fn new(work: Workload) -> Self {
        let folder = work.folder();
        folder.legwork(RUN).run().assert_code(0);
        let journals = journals(&folder.at("runs/job/latest"));
        std::fs::remove_file(folder.at("runs/job/latest/result.json")).unwrap();
        Self { work, folder, journals }
    }

    /// Two runs of the same job, with different call ids and times.
    fn short() -> &'static [Self; 2] {
        static RAN: OnceLock<[BaselineRun; 2]> = OnceLock::new();
        RAN.get_or_init(|| [Self::new(Workload::short()), Self::new(Workload::short())])
    }

    /// Copies the record with these journals into a new workspace.
    fn with(&self, journals: &Journals) -> TestFolder {
        let folder = self.work.folder();
        let id = self.folder.at("runs/job/latest").canonicalize().unwrap();
        let copy = folder.at("runs/job").join(id.file_name().unwrap());
        copy_all(&id, &copy);
        for name in self.journals.keys() {
            match journals.get(name) {
                Some(bytes) => std::fs::write(copy.join(name), bytes).unwrap(),
                None => std::fs::remove_file(copy.join(name)).unwrap(),
            }
        }
        folder
    }
}

/// Resumes a record in its own workspace.
fn resume(folder: &TestFolder) -> ProgramOutput {
    let runs = std::fs::read_dir(folder.at("runs/job")).unwrap().flatten().find(|entry| entry.path().is_dir());
    folder
        .legwork(&["resume", "--workspace", ".", "--force", "--trust-record", "--sandbox", "off"])
        .arg(runs.unwrap().path())
        .run()
}

/// Asserts that the run ends in a documented way and repeats nothing that a journal records. Returns the exit code.
fn assert_invariants(folder: &TestFolder, journals: &Journals, why: &str) -> i32 {
    let ended = resume(folder);
    assert!(ended.signal().is_none() && !ended.stderr.contains("panicked"), "{why}\n{}", ended.full_output());
    assert_not_repeated(folder, why);
    let known = started_commands(journals);
    let again: Vec<String> = effects(folder).into_iter().filter(|effect| known.contains(effect)).collect();
    assert!(again.is_empty(), "{why}: {again:?} again\n{}", ended.full_output());
    let code = [0, 2, 5].into_iter().find(|code| ended.exited_with(*code));
    match code {
        Some(0) => drop(ended.assert_stdout("All done.\n")),
        Some(2) => {
            ended.assert_stdout("").assert_stderr_contains("isn't a run's record");
            assert_eq!(effects(folder), Vec::<String>::new(), "{why}");
        }
        Some(5) => drop(ended.assert_stderr_contains("doesn't match the plan")),
        _ => panic!("{why}\n{}", ended.full_output()),
    }
    code.unwrap_or_default()
}

fn has_a_line(journal: &[u8]) -> bool {
    journal.contains(&b'\n')
}

/// Asserts that truncated journals resume, unless the parent's journal doesn't mention a subagent whose journal exists.
fn resume_truncated(ran: &BaselineRun, journals: &Journals, why: &str) {
    let parent = lines(&journals[PARENT]);
    let knows = |id: &str| parent.iter().any(|event| event["data"]["child"] == id);
    let is_known = |(name, journal): (&String, &Vec<u8>)| {
        let id = Path::new(name).file_name().and_then(|name| name.to_str()?.strip_suffix(".events.jsonl"));
        !has_a_line(journal) || id.is_none_or(knows)
    };
    let expected = if has_a_line(&journals[PARENT]) && journals.iter().all(is_known) { 0 } else { 2 };
    let folder = ran.with(journals);
    if has_a_line(&journals[PARENT]) {
        assert_eq!(assert_invariants(&folder, journals, why), expected, "{why}");
    } else {
        resume(&folder).assert_code(2).assert_stdout("");
    }
}

/// A change to a record.
#[derive(Debug, Clone)]
enum Damage {
    Cut(Index, Index),
    BitFlipped(Index, Index, u8),
    Removed(Index, Index),
    Swapped(Index, Index, Index),
    Duplicated(Index, Index),
    Missing(Index),
    OfAnotherRun(Index),
    OfAnotherAgent(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), at()).prop_map(|(journal, byte)| Damage::Cut(journal, byte)),
        (at(), at(), 1..=255_u8).prop_map(|(journal, byte, change)| Damage::BitFlipped(journal, byte, change)),
        (at(), at()).prop_map(|(journal, line)| Damage::Removed(journal, line)),
        (at(), at(), at()).prop_map(|(journal, one, other)| Damage::Swapped(journal, one, other)),
        (at(), at()).prop_map(|(journal, line)| Damage::Duplicated(journal, line)),
        at().prop_map(Damage::Missing),
        at().prop_map(Damage::OfAnotherRun),
        (at(), at()).prop_map(|(one, other)| Damage::OfAnotherAgent(one, other)),
    ]
}

fn damaged(mut journals: Journals, other: &Journals, damage: &Damage) -> Journals {
    let named = |index: &Index, journals: &Journals| {
        let names: Vec<String> = journals.keys().cloned().collect();
        names[index.index(names.len())].clone()
    };
    let split =
        |bytes: &[u8]| -> Vec<Vec<u8>> { bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect() };
    match damage {
        Damage::Cut(journal, at) => {
            let bytes = journals.get_mut(&named(journal, &journals)).unwrap();
            bytes.truncate(at.index(bytes.len() + 1));
        }
        Damage::BitFlipped(journal, at, change) => {
            let bytes = journals.get_mut(&named(journal, &journals)).unwrap();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= change;
            }
        }
        Damage::Removed(journal, _) | Damage::Swapped(journal, ..) | Damage::Duplicated(journal, _) => {
            let bytes = journals.get_mut(&named(journal, &journals)).unwrap();
            let mut all = split(bytes);
            if !all.is_empty() {
                let end = all.len();
                match damage {
                    Damage::Removed(_, line) => drop(all.remove(line.index(end))),
                    Damage::Swapped(_, one, other) => all.swap(one.index(end), other.index(end)),
                    Damage::Duplicated(_, line) => all.insert(line.index(end), all[line.index(end)].clone()),
                    _ => {}
                }
            }
            *bytes = all.concat();
        }
        Damage::Missing(journal) => {
            let children: Vec<String> = journals.keys().filter(|name| *name != PARENT).cloned().collect();
            if !children.is_empty() {
                journals.remove(&children[journal.index(children.len())]);
            }
        }
        Damage::OfAnotherRun(journal) => {
            let name = named(journal, other);
            journals.insert(name.clone(), other[&name].clone());
        }
        Damage::OfAnotherAgent(one, other) => {
            let from = journals[&named(other, &journals)].clone();
            *journals.get_mut(&named(one, &journals)).unwrap() = from;
        }
    }
    journals
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn journals_cut_anywhere_resume_or_are_rejected_with_a_reason(cuts in prop::collection::vec(any::<Option<Index>>(), 5)) {
        let [ran, _] = BaselineRun::short();
        let mut journals = ran.journals.clone();
        for ((_, bytes), cut) in journals.iter_mut().zip(&cuts) {
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
        }
        resume_truncated(ran, &journals, &format!("{:?}", journals.iter().map(|(name, bytes)| (name, bytes.len())).collect::<Vec<_>>()));
    }

    #[test]
    fn damaged_journals_resume_or_are_rejected_with_a_reason(damages in prop::collection::vec(damage(), 1..4)) {
        let [ran, other] = BaselineRun::short();
        let journals = damages.iter().fold(ran.journals.clone(), |journals, damage| damaged(journals, &other.journals, damage));
        let folder = ran.with(&journals);
        folder.allow_forged_records();
        if has_a_line(&journals[PARENT]) {
            assert_invariants(&folder, &journals, &format!("{damages:?}"));
        } else {
            resume(&folder).assert_code(2).assert_stdout("");
        }
    }
}

#[test]
#[ignore = "takes a minute: each journal of a run, cut at some bytes; LEGWORK_TEST_POINTS=all at every byte"]
fn a_journal_cut_at_any_byte_resumes_or_is_rejected_with_a_reason() {
    let ran = BaselineRun::new(Workload::tiny());
    for (name, bytes) in &ran.journals {
        for_each_parallel(sample(0..=bytes.len() as u64, MOST_POINTS), |end| {
            let mut journals = ran.journals.clone();
            journals.get_mut(name).unwrap().truncate(end as usize);
            resume_truncated(&ran, &journals, &format!("{name} cut at {end}"));
        });
    }
}

/// The journal is cut at the end of each event and in the middle of each.
#[test]
fn a_journal_with_checks_cut_anywhere_resumes() {
    let ran = BaselineRun::new(Workload::checked());
    let journal = &ran.journals[PARENT];
    let ends = journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at as u64 + 1);
    let first = ends.clone().next().unwrap();
    for_each_parallel(ends.flat_map(|end| [end, end + 30]).filter(|end| *end > first), |end| {
        let mut journals = ran.journals.clone();
        journals.get_mut(PARENT).unwrap().truncate(end as usize);
        resume_truncated(&ran, &journals, &format!("cut at {end}"));
    });
}

/// The run is interrupted while a subagent works, so the subagent and the parent have journals.
fn interrupted_in_subagent() -> (TestFolder, std::path::PathBuf) {
    let folder = Workload::tiny().folder();
    let ended = folder.legwork(RUN).env("LEGWORK_KILL_AFTER", "9").run();
    assert_eq!(ended.signal(), Some(9));
    let run = ended.run_folder().path().to_owned();
    assert!(!lines(&journals(&run)["subagents/worker-1.events.jsonl"]).is_empty());
    (folder, run)
}

#[test]
fn a_missing_journal_is_reported() {
    let (folder, run) = interrupted_in_subagent();
    let before = effects(&folder);
    std::fs::remove_file(run.join("subagents/worker-1.events.jsonl")).unwrap();
    let ended = folder.legwork(TRUSTED).run();
    ended
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("worker-1.events.jsonl")
        .assert_stderr_contains("it is missing");
    assert_eq!(effects(&folder), before);
}

#[test]
fn a_journal_of_a_subagent_that_was_never_started_is_reported() {
    let (folder, run) = interrupted_in_subagent();
    let journal = std::fs::read(run.join("subagents/worker-1.events.jsonl")).unwrap();
    std::fs::write(run.join("subagents/worker-2.events.jsonl"), &journal).unwrap();
    let ended = folder.legwork(TRUSTED).run();
    ended
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("worker-2.events.jsonl")
        .assert_stderr_contains("another agent's events");
    std::fs::remove_file(run.join("subagents/worker-2.events.jsonl")).unwrap();
    // An empty journal was created just before a kill.
    std::fs::write(run.join("subagents/worker-2.events.jsonl"), "").unwrap();
    folder.legwork(TRUSTED).run().assert_code(0);
}

#[test]
fn missing_or_changed_artifacts_are_rebuilt_from_the_journals() {
    for (from, to) in [
        ("\"Go.\"", "\"Go on.\""),
        ("\"max_turns\": 60", "\"max_turns\": 0"),
        ("\"format\": 2", "\"format\": 1"),
        ("\"format\": 2", "\"format\": "),
        ("\"worker\": {", "\"other\": {"),
    ] {
        let (folder, run) = interrupted_in_subagent();
        let [plan, job] = ["plan.json", "job.yaml"].map(|name| std::fs::read_to_string(run.join(name)).unwrap());
        assert!(plan.contains(from), "{plan}");
        std::fs::write(run.join("plan.json"), plan.replacen(from, to, 1)).unwrap();
        std::fs::remove_file(run.join("job.yaml")).unwrap();
        folder.legwork(TRUSTED).run().assert_code(0).assert_stdout("All done.\n");
        assert_not_repeated(&folder, to);
        assert_eq!(std::fs::read_to_string(run.join("plan.json")).unwrap(), plan);
        assert_eq!(std::fs::read_to_string(run.join("job.yaml")).unwrap(), job);
    }
}

#[test]
fn journals_that_differ_from_the_plan_end_at_the_first_difference() {
    let (folder, run) = interrupted_in_subagent();
    let (before, path) = (effects(&folder), run.join("events.jsonl"));
    let journal = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [("\"Go.\"", "\"Go on.\""), ("\"worker\":{", "\"other\":{")] {
        assert!(journal.contains(from), "{journal}");
        std::fs::write(&path, with_checksums(&journal.replacen(from, to, 1))).unwrap();
        let ended = folder.legwork(TRUSTED).run();
        ended.assert_code(5).assert_stdout("").assert_stderr_contains("doesn't match the plan");
        assert_eq!(effects(&folder), before, "{to}");
    }
    let text = std::fs::read_to_string(&path).unwrap().replacen("\"other\":{", "\"worker\":{", 1);
    std::fs::write(&path, with_checksums(&text)).unwrap();
    folder.legwork(TRUSTED).run().assert_code(0).assert_stdout("All done.\n");
    assert_not_repeated(&folder, "after the plan was back");
}
