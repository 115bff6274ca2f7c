//! One record has one verdict: each command says the same about a record whose files don't agree.

use rustix::fs::{FlockOperation, flock};

use crate::support::program::ProgramOutput;
use crate::support::record::RunFolder;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/job.script.yaml
inputs: { n: { type: string, default: '1' } }
parent: { prompt: 'Go {{ inputs.n }}', tools: [write_file] }
";
const SCRIPT: &str = "parent:
  - calls: [{ tool: write_file, input: { path: out.txt, content: out } }]
  - text: done
";
const CUT: &str =
    "result.json ends in the middle; its journal is used instead, and `legwork show RUN --rebuild` writes it again";

/// A folder with the finished record of a key, and that of a map with a row.
fn folder() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("job.script.yaml", SCRIPT).write("rows.csv", "n\n1\n");
    keyed(&folder).assert_code(0);
    map(&folder).assert_code(0);
    folder
}

fn keyed(folder: &TestFolder) -> ProgramOutput {
    folder.legwork(&["run", "job.yaml", "--key", "k"]).run()
}

fn map(folder: &TestFolder) -> ProgramOutput {
    folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "n", "--isolate", "none"]).run()
}

fn records(folder: &TestFolder) -> [RunFolder; 2] {
    ["runs/job/k", "runs/job/map-rows/rows/1"].map(|path| RunFolder::new(folder.at(path)))
}

/// Changes a file of both records.
fn change(folder: &TestFolder, name: &str, change: fn(&mut Vec<u8>)) {
    for record in records(folder) {
        let path = record.path().join(name);
        let mut content = std::fs::read(&path).unwrap();
        change(&mut content);
        std::fs::write(path, content).unwrap();
    }
}

#[test]
fn a_cut_result_is_replaced_by_the_journal_in_every_command() {
    let folder = folder();
    change(&folder, "result.json", |content| content.truncate(100));
    let legwork = |arguments: &[&str]| folder.legwork(arguments).run();
    let said = |arguments: &[&str], code: i32| {
        let ended = legwork(arguments);
        ended.assert_code(code);
        assert!(ended.full_output().contains(CUT), "{arguments:?}\n{}", ended.full_output());
        ended
    };
    let listed = legwork(&["runs", "--format", "json"]).json();
    let runs = listed["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["run"] == "job/k").unwrap();
    assert_eq!(run["outcome"], "completed", "{run}");
    assert!(run.to_string().contains("its journal is used instead"), "{run}");
    said(&["show", "job/k"], 0);
    said(&["resume", "job/k"], 0).assert_stderr_contains("only an interrupted run can be resumed");
    said(&["replay", "job/k"], 0).assert_stdout_contains("equal");
    said(&["diff", "job/k", "job/k"], 0);
    said(&["export", "job/k", "--format", "atif"], 0);
    said(&["apply", "job/k", "--check"], 0);
    let again = keyed(&folder);
    again.assert_code(0).assert_stdout("done\n").assert_stderr_contains(CUT);
    let mapped = map(&folder);
    mapped.assert_code(0).assert_stderr_contains(CUT).assert_stderr_contains("1 ended before");
    folder.write("all/keep", "");
    let gathered = legwork(&["gather", "runs/job/map-rows", "--to", "all"]);
    gathered.assert_code(0);
    assert!(gathered.full_output().contains("its journal is used instead"), "{}", gathered.full_output());
    assert!(folder.read("all/results.jsonl").contains("\"completed\""));
    // No command has changed the file; the one that they name does.
    assert_eq!(records(&folder)[0].file("result.json").len(), 100);
    legwork(&["show", "job/k", "--rebuild"]).assert_code(0);
    assert_eq!(records(&folder)[0].result()["outcome"], "completed");
    legwork(&["show", "job/k"]).assert_code(0).assert_not_printed("used instead");
}

/// What each command says about a record, and its exit code: in order `runs`, `show`, `resume`, `replay`, `diff`, `export`,
/// `apply`, `run --key`, `map`, `gather` and `runs prune`.
struct Verdict {
    words: &'static str,
    codes: [i32; 11],
    /// The commands that have nothing to say about it.
    silent: &'static [usize],
    /// The outcome that `runs` names.
    outcome: &'static str,
}

/// Which records the commands read, and with which key.
struct Asked {
    key: &'static str,
    row: &'static str,
    record_key: Option<&'static str>,
}

const ASKED: Asked = Asked { key: "k", row: "1", record_key: None };

/// Starts all commands, each with a copy of the folder, and checks what they say.
fn assert_verdict(damage: &dyn Fn(&TestFolder), verdict: &Verdict) {
    assert_verdict_of(&ASKED, damage, verdict);
}

fn assert_verdict_of(asked: &Asked, damage: &dyn Fn(&TestFolder), verdict: &Verdict) {
    let run = format!("job/{}", asked.key);
    let commands: [&[&str]; 11] = [
        &["runs"],
        &["show", &run],
        &["resume", &run],
        &["replay", &run],
        &["diff", &run, &run],
        &["export", &run, "--format", "atif"],
        &["apply", &run, "--check"],
        &["run", "job.yaml", "--key", asked.key],
        &["map", "job.yaml", "--rows", "rows.csv", "--id", "n", "--isolate", "none"],
        &["gather", "runs/job/map-rows", "--to", "all"],
        &["runs", "prune", "--keep", "0", "--dry-run"],
    ];
    let mut wrong = Vec::new();
    for (number, arguments) in commands.iter().enumerate() {
        let folder = folder();
        damage(&folder);
        folder.allow_forged_records().write("all/keep", "").write("rows.csv", format!("n\n{}\n", asked.row));
        let program = |arguments: &[&str]| match asked.record_key {
            Some(key) => folder.legwork(arguments).env("LEGWORK_RECORD_KEY", key),
            None => folder.legwork(arguments),
        };
        if number == 0 {
            let listed = program(&["runs", "--format", "json"]).run().json();
            let runs = listed["runs"].as_array().unwrap();
            let outcome = &runs.iter().find(|listed| listed["run"] == run.as_str()).unwrap()["outcome"];
            if *outcome != verdict.outcome {
                wrong.push(format!("`runs` says {outcome}"));
            }
        }
        let ended = program(arguments).run();
        let is_said = ended.full_output().contains(verdict.words);
        let code = verdict.codes[number];
        if !ended.exited_with(code) || is_said == verdict.silent.contains(&number) {
            let should = if is_said { "shouldn't say it" } else { "should say it" };
            let should = if is_said == verdict.silent.contains(&number) { should } else { "" };
            wrong.push(format!("{arguments:?}, expected {code}, {should}:\n{}", ended.full_output()));
        }
    }
    assert!(wrong.is_empty(), "`{}` isn't the verdict of:\n{}", verdict.words, wrong.join("\n"));
}

const LOST_START: &str = "its run has ended, but the first line of its journal is lost, so nobody can tell who made it; \
                          `legwork show` shows what is left";

#[test]
fn a_lost_start_has_one_verdict() {
    let verdict = Verdict {
        words: LOST_START,
        codes: [0, 0, 0, 2, 0, 0, 1, 2, 0, 0, 0],
        // It has ended, and isn't needed.
        silent: &[10],
        outcome: "completed",
    };
    let torn = |folder: &TestFolder| change(folder, "events.jsonl", |content| content.truncate(40));
    let empty = |folder: &TestFolder| change(folder, "events.jsonl", Vec::clear);
    for damage in [&torn as &dyn Fn(&TestFolder), &empty] {
        assert_verdict(damage, &verdict);
    }
}

#[test]
fn another_format_has_one_verdict() {
    let verdict = Verdict {
        words: "the record's format is 9, and this legwork reads format 2",
        codes: [0, 0, 2, 2, 2, 2, 1, 2, 2, 5, 0],
        silent: &[],
        outcome: "other_format",
    };
    let journal = |content: &mut Vec<u8>| {
        let text = String::from_utf8(content.clone()).unwrap();
        *content = text.replacen("\"format\":2", "\"format\":9", 1).into_bytes();
    };
    let result = |content: &mut Vec<u8>| {
        let text = String::from_utf8(content.clone()).unwrap();
        *content = text.replacen("\"format\": 2", "\"format\": 9", 1).into_bytes();
    };
    assert_verdict(
        &|folder| {
            change(folder, "events.jsonl", journal);
            change(folder, "result.json", result);
        },
        &verdict,
    );
}

#[test]
fn a_run_that_never_started_has_one_verdict() {
    let verdict = Verdict {
        words: "no event of its run is recorded; if no process is starting it, start a new run",
        codes: [0, 0, 2, 2, 0, 0, 1, 0, 0, 75, 0],
        // `run --key` and `map` start it; the others name its state.
        silent: &[0, 7, 8, 9, 10],
        outcome: "not_started",
    };
    let damage = |folder: &TestFolder, length: usize| {
        for record in records(folder) {
            let journal = record.path().join("events.jsonl");
            std::fs::File::options().write(true).open(journal).unwrap().set_len(length as u64).unwrap();
            for entry in std::fs::read_dir(record.path()).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if !["events.jsonl", "plan.json", "job.yaml"].contains(&name.as_str()) {
                    std::fs::remove_file(record.path().join(name)).unwrap();
                }
            }
        }
        std::fs::remove_file(folder.at("out.txt")).unwrap();
    };
    // Without any line, and with a torn first one.
    assert_verdict(&|folder| damage(folder, 0), &verdict);
    assert_verdict(&|folder| damage(folder, 40), &verdict);
}

/// Removes `result.json` of both records.
fn remove_results(folder: &TestFolder) {
    records(folder).iter().for_each(|record| std::fs::remove_file(record.path().join("result.json")).unwrap());
}

/// Changes a character in the line of both journals that has a text.
fn forge(folder: &TestFolder, text: &'static str) {
    for record in records(folder) {
        let path = record.path().join("events.jsonl");
        let journal = std::fs::read_to_string(&path).unwrap();
        assert!(journal.contains(text), "{journal}");
        std::fs::write(path, journal.replacen(text, &text.to_uppercase(), 1)).unwrap();
    }
}

#[test]
fn an_end_that_only_the_journal_has_is_one_verdict() {
    let verdict = Verdict {
        words: "result.json is missing; its journal is used instead, and `legwork show RUN --rebuild` writes it again",
        codes: [0; 11],
        // Those that could continue it write the file. It isn't needed to remove the record.
        silent: &[2, 7, 8, 10],
        outcome: "completed",
    };
    assert_verdict(&remove_results, &verdict);
    let folder = folder();
    remove_results(&folder);
    let journal = records(&folder)[0].file("events.jsonl");
    // The process was killed before it gave its answer.
    let resumed = folder.legwork(&["resume", "job/k"]).run();
    resumed.assert_code(0).assert_stdout("done\n").assert_stderr_contains("this run has ended before");
    assert_eq!(records(&folder)[0].result()["outcome"], "completed");
    assert_eq!(records(&folder)[0].file("events.jsonl"), journal, "it had ended, so nothing is added");
}

#[test]
fn a_changed_journal_without_a_result_has_one_verdict() {
    let verdict = Verdict {
        words: "was changed after it was written (its checksum is wrong)",
        codes: [0, 0, 2, 2, 0, 0, 1, 2, 5, 5, 0],
        silent: &[],
        outcome: "damaged",
    };
    let damage = |folder: &TestFolder| {
        remove_results(folder);
        forge(folder, "\"done\"");
    };
    assert_verdict(&damage, &verdict);
}

#[test]
fn a_changed_start_has_one_verdict() {
    let verdict = Verdict {
        words: "line 1 was changed after it was written (its checksum is wrong)",
        codes: [0, 0, 2, 2, 2, 2, 1, 2, 5, 5, 0],
        silent: &[],
        outcome: "damaged",
    };
    assert_verdict(&|folder| forge(folder, "run_started"), &verdict);
}

#[test]
fn another_format_of_the_journal_alone_has_one_verdict() {
    let verdict = Verdict {
        words: "the record's format is 9, and this legwork reads format 2",
        codes: [0, 0, 2, 2, 2, 2, 1, 2, 2, 5, 0],
        silent: &[],
        outcome: "other_format",
    };
    let journal = |content: &mut Vec<u8>| {
        let text = String::from_utf8(content.clone()).unwrap();
        *content = text.replacen("\"format\":2", "\"format\":9", 1).into_bytes();
    };
    assert_verdict(&|folder| change(folder, "events.jsonl", journal), &verdict);
}

#[test]
fn a_record_of_another_key_has_one_verdict() {
    let verdict = Verdict {
        words: "made on another machine or with another key",
        codes: [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        // Who only reads it needs no key.
        silent: &[0, 1, 2, 3, 4, 5, 6, 9, 10],
        outcome: "completed",
    };
    let asked = Asked { record_key: Some("another key of this test"), ..ASKED };
    assert_verdict_of(&asked, &|_| {}, &verdict);
}

#[test]
fn a_previous_attempt_has_one_verdict() {
    let verdict = Verdict {
        words: "it is an earlier attempt of the run `",
        codes: [0, 0, 0, 0, 0, 0, 0, 2, 5, 0, 0],
        // It can be read as any other.
        silent: &[0, 1, 2, 3, 4, 5, 6, 9, 10],
        outcome: "completed",
    };
    let set_aside = |folder: &TestFolder| {
        for (from, to) in [("k", "k.1"), ("map-rows/rows/1", "map-rows/rows/1.1")] {
            std::fs::rename(folder.at("runs/job").join(from), folder.at("runs/job").join(to)).unwrap();
        }
    };
    assert_verdict_of(&Asked { key: "k.1", row: "1.1", record_key: None }, &set_aside, &verdict);
}

#[test]
fn the_record_of_another_run_has_one_verdict() {
    let verdict = Verdict {
        words: "it is the record of the run `",
        codes: [0, 0, 0, 0, 0, 0, 0, 2, 5, 5, 0],
        silent: &[0, 1, 2, 3, 4, 5, 6, 10],
        outcome: "completed",
    };
    let moved = |folder: &TestFolder| {
        for (from, to) in [("k", "other"), ("map-rows/rows/1", "map-rows/rows/2")] {
            std::fs::rename(folder.at("runs/job").join(from), folder.at("runs/job").join(to)).unwrap();
        }
    };
    assert_verdict_of(&Asked { key: "other", row: "2", record_key: None }, &moved, &verdict);
}

#[test]
fn a_foreign_record_and_a_previous_attempt_have_one_verdict() {
    let folder = folder();
    let foreign =
        |arguments: &[&str]| folder.legwork(arguments).env("LEGWORK_RECORD_KEY", "another key of this test").run();
    let words = "made on another machine or with another key";
    foreign(&["run", "job.yaml", "--key", "k"]).assert_code(2).assert_stderr_contains(words);
    let mapped = foreign(&["map", "job.yaml", "--rows", "rows.csv", "--id", "n", "--isolate", "none"]);
    mapped.assert_stderr_contains(words);
    for arguments in [&["show", "job/k"][..], &["replay", "job/k"], &["diff", "job/k", "job/k"]] {
        foreign(arguments).assert_code(0).assert_not_printed(words);
    }

    folder.legwork(&["run", "job.yaml", "--key", "k", "--fresh"]).run().assert_code(0);
    for arguments in [
        &["show", "job/k.1"][..],
        &["resume", "job/k.1"],
        &["replay", "job/k.1"],
        &["diff", "job/k", "job/k.1"],
        &["export", "job/k.1", "--format", "atif"],
    ] {
        folder.legwork(arguments).run().assert_code(0);
    }
    let listed = folder.legwork(&["runs", "--format", "json"]).run().json();
    let runs = listed["runs"].as_array().unwrap();
    let keys: Vec<_> = runs.iter().filter(|run| run["key"] == "k").map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(keys, ["job/k", "job/k.1"]);
}

#[test]
fn a_record_that_a_process_uses_is_running_even_if_its_journal_is_damaged() {
    let folder = folder();
    folder.allow_forged_records();
    remove_results(&folder);
    forge(&folder, "run_started");
    let outcome = || {
        let listed = folder.legwork(&["runs", "--format", "json"]).run().json();
        let runs = listed["runs"].as_array().unwrap();
        runs.iter().find(|run| run["run"] == "job/k").unwrap()["outcome"].clone()
    };
    let used = std::fs::File::open(records(&folder)[0].path()).unwrap();
    flock(&used, FlockOperation::LockExclusive).unwrap();
    assert_eq!(outcome(), "running");
    drop(used);
    assert_eq!(outcome(), "damaged");
}

#[test]
fn a_run_that_has_ended_stays_ended_without_the_start_of_its_journal() {
    let folder = folder();
    change(&folder, "events.jsonl", |content| content.truncate(40));
    let legwork = |arguments: &[&str]| folder.legwork(arguments).run();
    let listed = legwork(&["runs", "--format", "json"]).json();
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs.iter().find(|run| run["run"] == "job/k").unwrap()["outcome"], "completed");
    legwork(&["show", "job/k"]).assert_code(0);
    legwork(&["resume", "job/k"]).assert_code(0).assert_stderr_contains("only an interrupted run can be resumed");
    // Nobody can tell who made it, so its answer isn't given as that of the key, and no new run replaces it.
    keyed(&folder).assert_code(2).assert_stderr_contains(LOST_START);
    assert_eq!(records(&folder)[0].result()["outcome"], "completed");
    let mapped = map(&folder);
    mapped
        .assert_code(0)
        .assert_stderr_contains("1 ended before")
        .assert_stderr_contains("were made on another machine");
    folder.write("all/keep", "");
    legwork(&["gather", "runs/job/map-rows", "--to", "all"]).assert_code(0);
    folder.legwork(&["run", "job.yaml", "--key", "k", "--fresh"]).run().assert_code(0).assert_stdout("done\n");
    assert_eq!(RunFolder::new(folder.at("runs/job/k.1")).result()["outcome"], "completed");
}
