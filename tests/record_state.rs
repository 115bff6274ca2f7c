//! One record has one verdict: each command says the same about a record whose files don't agree.

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
    keyed(&folder).assert_code(2).assert_stderr_contains("the first line of its journal is lost");
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
