//! `legwork gather`: the rows of several folders in one table.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::journal::with_checksums;
use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: anthropic/claude-haiku-4-5
inputs:
  n: { type: string }
parent: { prompt: 'Answer {{ inputs.n }}.', tools: [glob], max_turns: 2 }
result: { schema: { type: object, required: [answer], properties: { answer: { type: string } } } }
limits: { tokens: 100000 }
";

/// Runs the job in the folder of another one. Its record is the row of a map in `shard`; returns its id.
fn row(folder: &TestFolder, shard: &str, text: &str) -> String {
    let result = json!({ "tool": "submit_result", "input": { "answer": text } });
    row_with(folder, shard, text, &json!([{ "calls": [result] }, { "text": text }]))
}

fn row_with(folder: &TestFolder, shard: &str, input: &str, parent: &Value) -> String {
    folder.allow_forged_records().write("job.yaml", JOB);
    fs::write(folder.home().join("replies.yaml"), json!({ "parent": parent }).to_string()).unwrap();
    let set = format!("n={input}");
    let run = ["run", "job.yaml", "--model", "replay/../home/replies.yaml", "--set", &set, "--out", "made"];
    let ended = folder.legwork(&run).run();
    let record = ended.run_folder_in("made/job");
    let id = record.id().to_owned();
    folder.write(&format!("{shard}/map.json"), r#"{ "format": 1, "job": "job" }"#);
    fs::create_dir_all(folder.at(shard).join("rows")).unwrap();
    fs::rename(record.path(), folder.at(shard).join("rows").join(&id)).unwrap();
    id
}

/// The row of an agent that uses all its turns.
fn row_at_its_limit(folder: &TestFolder, shard: &str) -> String {
    let glob = json!({ "tool": "glob", "input": { "pattern": "*" } });
    let turn = json!({ "calls": [glob] });
    row_with(folder, shard, "limit", &json!([turn, turn, { "text": "Not done." }]))
}

fn gather(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    folder.legwork(&["gather"]).args(arguments).run()
}

fn lines(folder: &TestFolder, file: &str) -> Vec<Value> {
    folder.read(file).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The kinds of problems with their rows or the last part of their paths.
fn problems(output: &Value) -> Vec<(String, String)> {
    let name = |problem: &Value| {
        let path = problem["path"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        problem["id"].as_str().map_or(path, ToOwned::to_owned)
    };
    let kind = |problem: &Value| problem["kind"].as_str().unwrap().to_owned();
    let mut found: Vec<_> =
        output["problems"].as_array().unwrap().iter().map(|problem| (kind(problem), name(problem))).collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Changes a JSON file.
fn edit(folder: &TestFolder, file: &str, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_str(&folder.read(file)).unwrap();
    change(&mut value);
    folder.write(file, value.to_string());
}

#[test]
fn the_shards_of_a_matrix_become_one_table() {
    let folder = TestFolder::new();
    let a = row(&folder, "shards/1/made/job/map-x", "one");
    let b = row(&folder, "shards/2", "=two");
    let c = row(&folder, "shards/2", "three");
    folder.write("rows.csv", format!("key,n\n{c},three\n{a},one\n{b},=two\n"));
    let before = folder.list();
    let gathered = gather(&folder, &["shards/1", "shards/2", "--rows", "rows.csv", "--id", "key", "--to", "out/all"]);
    gathered.assert_code(0).assert_stdout_contains("3 rows: 3 completed").assert_stderr("tables: out/all\n");
    let after: Vec<String> = folder.list().into_iter().filter(|name| !name.starts_with("out")).collect();
    assert_eq!(after, before, "nothing else is written");
    let rows = lines(&folder, "out/all/results.jsonl");
    let answers: Vec<_> = rows.iter().map(|row| (&row["id"], &row["inputs"]["n"], &row["result"]["answer"])).collect();
    let expected = [(json!(c), json!("three")), (json!(a), json!("one")), (json!(b), json!("=two"))];
    let expected: Vec<_> = expected.iter().map(|(id, text)| (id, text, text)).collect();
    assert_eq!(answers, expected, "in the order of the rows file");
    for row in &rows {
        let record = folder.at("out/all").join(row["record"].as_str().unwrap());
        assert!(record.join("result.json").is_file(), "{}", record.display());
        let report = format!("href=\"../../{}", row["record"].as_str().unwrap().trim_start_matches("../"));
        assert!(folder.read("out/all/report.html").contains(&report), "{report}");
    }
    let csv = folder.read("out/all/results.csv");
    assert!(csv.starts_with("id,state,outcome,exit_code,inputs.n,result.answer,text,"), "{csv}");
    assert!(csv.contains(&format!("{b},ended,completed,0,'=two,'=two,")), "{csv}");
    // The tables themselves aren't a map.
    let again = gather(&folder, &[".", "--to", "out/all", "--format", "json"]);
    again.assert_code(0);
    assert_eq!((&again.json()["rows"], &again.json()["problems"]), (&json!(3), &json!([])));
}

#[test]
fn the_first_folder_gets_the_tables_unless_another_one_is_named() {
    let folder = TestFolder::new();
    row(&folder, "a", "one");
    row(&folder, "b", "two");
    for _ in 0..2 {
        gather(&folder, &["a", "b", "--junit", "ci/junit.xml"])
            .assert_code(0)
            .assert_stdout_contains("2 rows: 2 completed");
        assert_eq!(lines(&folder, "a/results.jsonl").len(), 2);
        assert!(folder.exists("a/report.html") && !folder.exists("b/results.jsonl"));
        assert!(folder.read("ci/junit.xml").contains("tests=\"2\" failures=\"0\" errors=\"0\""));
    }
    // A folder above maps can be named again, too.
    for _ in 0..2 {
        let gathered = gather(&folder, &[".", "--format", "json"]);
        gathered.assert_code(0);
        assert_eq!((&gathered.json()["rows"], &gathered.json()["problems"]), (&json!(2), &json!([])));
    }
}

#[test]
fn every_kind_of_record_that_is_not_as_it_should_be_is_named() {
    let folder = TestFolder::new();
    let good = row(&folder, "one", "good");
    let record = folder.at("one/rows").join(&good);
    let ids: Vec<String> = (0..8).map(|number| row(&folder, "one", &format!("n{number}"))).collect();
    let at = |id: &str, file: &str| format!("one/rows/{id}/{file}");
    // The process was killed while it wrote the result: the journal has it.
    let text = folder.read(&at(&ids[0], "result.json"));
    folder.write(&at(&ids[0], "result.json"), &text[..text.len() / 2]);
    // It was killed in the middle of a line of the journal.
    fs::remove_file(folder.at(at(&ids[1], "result.json"))).unwrap();
    let journal = folder.read(&at(&ids[1], "events.jsonl"));
    let whole: String = journal.split_inclusive('\n').take(4).collect();
    folder.write(&at(&ids[1], "events.jsonl"), format!("{whole}{{\"seq\":"));
    // Someone changed the journal.
    fs::remove_file(folder.at(at(&ids[2], "result.json"))).unwrap();
    let journal = folder.read(&at(&ids[2], "events.jsonl")).replacen("n2", "n9", 1);
    folder.write(&at(&ids[2], "events.jsonl"), journal);
    // Another job, another format, another run, and a result that contradicts itself.
    edit(&folder, &at(&ids[3], "result.json"), |result| result["job"] = json!("other"));
    edit(&folder, &at(&ids[4], "result.json"), |result| result["format"] = json!(99));
    edit(&folder, &at(&ids[5], "result.json"), |result| result["run_id"] = json!("other"));
    edit(&folder, &at(&ids[6], "result.json"), |result| result["exit_code"] = json!(1));
    fs::remove_file(folder.at(at(&ids[7], "plan.json"))).unwrap();
    fs::remove_file(folder.at(at(&ids[7], "events.jsonl"))).unwrap();
    // No records at all.
    folder.write("one/rows/a-file", "x").write("one/rows/notes/readme.md", "x").write("one/rows/.DS_Store", "x");
    folder.write("one/rows/-rf/plan.json", "{}").write("one/rows/\u{1b}[2J/plan.json", "{}");
    std::os::unix::fs::symlink(&record, folder.at("one/rows/link")).unwrap();
    fs::create_dir(folder.at("one/rows/empty")).unwrap();
    fs::create_dir(folder.at("nothing")).unwrap();
    folder.write("other/map.json", r#"{ "format": 1, "job": "other" }"#).write("torn/map.json", "{ \"job\"");
    folder.write("rows.jsonl", format!("{{\"id\":\"{good}\"}}\n{{\"id\":\"gone\"}}\n"));
    let folders = ["one", "nothing", "other", "torn", "one"];
    let options = ["--rows", "rows.jsonl", "--id", "id", "--format", "json", "--to", "all", "--junit", "all/j.xml"];
    let gathered = gather(&folder, &[&folders[..], &options[..]].concat());
    gathered.assert_code(75);
    let named = problems(&gathered.json());
    for (kind, what) in [
        ("torn", ids[0].as_str()),
        ("torn", &ids[1]),
        ("damaged", &ids[2]),
        ("foreign", &ids[3]),
        ("foreign", &ids[4]),
        ("foreign", &ids[5]),
        ("damaged", &ids[6]),
        ("torn", &ids[7]),
        ("foreign", "a-file"),
        ("foreign", "notes"),
        ("foreign", "-rf"),
        ("foreign", "\u{1b}[2J"),
        ("foreign", "link"),
        ("foreign", "nothing"),
        ("foreign", "other"),
        ("torn", "torn"),
        ("duplicate", "one"),
        ("missing", "gone"),
        ("unexpected", &ids[0]),
        ("unexpected", "empty"),
    ] {
        assert!(named.contains(&(kind.to_owned(), what.to_owned())), "{kind} {what}\n{}", gathered.full_output());
    }
    assert!(!gathered.stdout.contains("DS_Store"));
    let table = lines(&folder, "all/results.jsonl");
    let state =
        |id: &str| table.iter().find(|row| row["id"] == id).map(|row| row["state"].as_str().unwrap().to_owned());
    let states: Vec<_> =
        [&good, "gone", &ids[0], &ids[1], &ids[2], &ids[3], &ids[6], &ids[7], "empty"].map(state).into();
    let expected = ["ended", "missing", "ended", "unfinished", "damaged", "", "damaged", "ended", "unfinished"];
    assert_eq!(states, expected.map(|state| (!state.is_empty()).then(|| state.to_owned())));
    let unfinished = table.iter().find(|row| row["id"] == ids[1].as_str()).unwrap();
    assert_eq!((&unfinished["inputs"]["n"], &unfinished["outcome"]), (&json!("n1"), &Value::Null));
    let text = gather(&folder, &["one", "--to", "all"]);
    text.assert_code(75).assert_stdout_contains("foreign: row link: it is a symbolic link (one/rows/link)");
    assert!(!text.stdout.contains('\u{1b}'), "{}", text.full_output());
    assert!(!folder.read("all/report.html").contains('\u{1b}'));
}

#[test]
fn the_record_that_ended_for_good_is_used_and_a_second_end_is_a_conflict() {
    let folder = TestFolder::new();
    let equal = row(&folder, "one", "equal");
    let killed = row(&folder, "one", "killed");
    let differs = row(&folder, "one", "differs");
    let inputs = row(&folder, "one", "inputs");
    copy(&folder.at("one"), &folder.at("two"));
    edit(&folder, &format!("one/rows/{killed}/result.json"), |result| {
        result["outcome"] = json!("interrupted");
        result["exit_code"] = json!(143);
    });
    let only_one = gather(&folder, &["one"]);
    only_one.assert_code(75).assert_stdout_contains("1 interrupted");
    let benign = gather(&folder, &["one", "two", "--format", "json"]);
    benign.assert_code(0);
    let mut all_duplicate = [&equal, &killed, &differs, &inputs].map(|id| ("duplicate".to_owned(), id.clone()));
    all_duplicate.sort();
    assert_eq!(problems(&benign.json()), all_duplicate);
    let row = |id: &str| lines(&folder, "one/results.jsonl").into_iter().find(|row| row["id"] == id).unwrap();
    assert_eq!(
        (&row(&killed)["outcome"], &row(&killed)["record"]),
        (&json!("completed"), &json!(format!("../two/rows/{killed}")))
    );
    edit(&folder, &format!("two/rows/{differs}/result.json"), |result| result["result"]["answer"] = json!("another"));
    let journal = format!("two/rows/{inputs}/events.jsonl");
    let other_input = folder.read(&journal).replacen("\"n\":\"inputs\"", "\"n\":\"another\"", 1);
    folder.allow_forged_records().write(&journal, with_checksums(&other_input));
    let conflict = gather(&folder, &["one", "two"]);
    conflict.assert_code(5).assert_stdout_contains(&format!("conflict: row {differs}: the row ended more than once"));
    conflict.assert_stdout_contains(&format!("conflict: row {inputs}: there is a record with other inputs"));
    conflict.assert_stdout_contains(&format!("(two/rows/{differs})"));
    assert_eq!(row(&differs)["result"]["answer"], "differs", "that of the first folder");
    assert_eq!(lines(&folder, "one/results.jsonl").len(), 4);
}

#[test]
fn the_exit_code_says_what_is_left_to_do() {
    let folder = TestFolder::new();
    let limit = row_at_its_limit(&folder, "map");
    gather(&folder, &["map"]).assert_code(4).assert_stdout_contains("1 row: 1 turn_limit");
    let id = row(&folder, "map", "x");
    let gathered_with = |outcome: &str, code: u8| {
        edit(&folder, &format!("map/rows/{id}/result.json"), |result| {
            result["outcome"] = json!(outcome);
            result["exit_code"] = json!(code);
            result["error"] = json!({ "code": outcome, "message": "Because <of> this.", "hint": null });
        });
        gather(&folder, &["map", "--junit", "junit.xml"])
    };
    gathered_with("refused", 1)
        .assert_code(1)
        .assert_stdout_contains(&format!("1 row refused: Because <of> this.: {id}"));
    let junit = folder.read("junit.xml");
    assert!(
        junit.contains("tests=\"2\" failures=\"2\" errors=\"0\"")
            && junit.contains("message=\"Because &lt;of&gt; this.\""),
        "{junit}"
    );
    gathered_with("provider_rejected", 5).assert_code(5);
    gathered_with("provider_failed", 75).assert_code(75);
    assert!(folder.read("junit.xml").contains("failures=\"1\" errors=\"1\""));
    gathered_with("completed", 0).assert_code(4);
    gathered_with("checks_failed", 1).assert_code(1);
    edit(&folder, &format!("map/rows/{limit}/result.json"), |result| result["outcome"] = json!("budget_exceeded"));
    gathered_with("timed_out", 4).assert_code(4);
    gathered_with("stuck", 4).assert_code(4);
    gathered_with("completed", 0).assert_code(4);
    fs::remove_dir_all(folder.at("map/rows").join(limit)).unwrap();
    gather(&folder, &["map"]).assert_code(0);
    folder.write("rows.csv", "n\nx\n");
    let ids = gather(&folder, &["map", "--rows", "rows.csv"]);
    ids.assert_code(75).assert_stderr_contains("if the map was started with --id COLUMN, give the same option here");
}

#[test]
fn records_without_a_manifest_belong_to_the_job_of_the_first() {
    let folder = TestFolder::new();
    row(&folder, "one", "a");
    row(&folder, "one", "b");
    fs::remove_file(folder.at("one/map.json")).unwrap();
    let mut ids: Vec<String> =
        fs::read_dir(folder.at("one/rows")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    ids.sort();
    gather(&folder, &["one"]).assert_code(0);
    edit(&folder, &format!("one/rows/{}/result.json", ids[1]), |result| result["job"] = json!("other"));
    let gathered = gather(&folder, &["one"]);
    gathered.assert_code(5).assert_stdout_contains(&format!(
        "foreign: row {}: it is a record of the job `other` instead of `job`",
        ids[1]
    ));
    gathered.assert_stdout_contains("1 row: 1 completed");
}

/// Links aren't followed, and what is behind them isn't left out silently.
#[test]
fn a_map_behind_a_symbolic_link_is_named() {
    let folder = TestFolder::new();
    row(&folder, "shards/1", "a");
    row(&folder, "elsewhere/2", "b");
    fs::create_dir(folder.at("unrelated")).unwrap();
    for (target, link) in [("../elsewhere/2", "2"), ("1", "current"), ("../unrelated", "data"), ("..", "loop")] {
        std::os::unix::fs::symlink(target, folder.at("shards").join(link)).unwrap();
    }
    let ended = gather(&folder, &["shards", "--to", "out"]);
    ended.assert_stdout_contains("foreign: there is a map behind this symbolic link");
    let named: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("foreign")).collect();
    assert!(matches!(named.as_slice(), [only] if only.contains("(shards/2)")), "{named:?}");
}

#[test]
fn tables_without_records_can_be_joined() {
    let folder = TestFolder::new();
    let a = row(&folder, "one", "a");
    let b = row(&folder, "two", "b");
    gather(&folder, &["one"]).assert_code(0);
    fs::remove_dir_all(folder.at("one/rows")).unwrap();
    let line = folder.read("one/results.jsonl");
    let other_id = line.replace(&a, "../up");
    folder.write("one/results.jsonl", format!("{line}{{}}\n{other_id}{}", &line[..line.len() / 2]));
    let gathered = gather(&folder, &["two", "one", "--format", "json"]);
    gathered.assert_code(5);
    let messages: Vec<_> = gathered.json()["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["message"].as_str().unwrap().to_owned())
        .collect();
    assert!(messages[0].starts_with("line 2 isn't a row of a map: missing field"), "{messages:?}");
    assert_eq!(messages[1..], ["line 3 isn't a row of a map: the id `../up` is a path", "line 4 is incomplete"]);
    let answers: BTreeMap<_, _> = lines(&folder, "two/results.jsonl")
        .iter()
        .map(|row| (row["id"].as_str().unwrap().to_owned(), row["result"]["answer"].clone()))
        .collect();
    assert_eq!(answers, BTreeMap::from([(a, json!("a")), (b, json!("b"))]));
}

#[test]
fn no_record_and_no_other_source_is_replaced() {
    let folder = TestFolder::new();
    let id = row(&folder, "one", "a");
    row(&folder, "two", "b");
    folder.write("rows.csv", format!("n\n{id}\n"));
    let files = ["rows.csv", "one/map.json", &format!("one/rows/{id}/result.json")].map(str::to_owned);
    let before = files.clone().map(|file| folder.read(&file));
    for (file, why) in files.iter().zip(["it is the rows file", "it is part of a record", "it is part of a record"]) {
        let refused = gather(&folder, &["one", "two", "--rows", "rows.csv", "--id", "n", "--junit", file]);
        refused.assert_code(2).assert_stderr_contains(&format!("--junit {file}: {why}"));
    }
    for (to, why) in [("one/rows", "a map's records"), (&format!("one/rows/{id}"), "the record of a run")] {
        gather(&folder, &["one", "two", "--to", to]).assert_code(2).assert_stderr_contains(why);
    }
    assert_eq!(files.map(|file| folder.read(&file)), before);
    // A table without records is the only source of its rows.
    gather(&folder, &["one"]).assert_code(0);
    fs::remove_dir_all(folder.at("one/rows")).unwrap();
    let table = folder.read("one/results.jsonl") + "damaged\n";
    folder.write("one/results.jsonl", &table);
    gather(&folder, &["one", "two"]).assert_code(2).assert_stderr_contains("has a table and no records");
    assert_eq!(folder.read("one/results.jsonl"), table);
    for _ in 0..2 {
        let gathered = gather(&folder, &["one", "two", "--to", "joined", "--format", "json"]);
        gathered.assert_code(5);
        assert_eq!(problems(&gathered.json()), [("damaged".to_owned(), "results.jsonl".to_owned())]);
    }
    // A map of another format.
    edit(&folder, "two/map.json", |map| map["format"] = json!(7));
    let gathered = gather(&folder, &["one", "two", "--to", "joined"]);
    gathered.assert_code(5).assert_stdout_contains("its map.json has the format 7, and this legwork reads format 1");
}

#[test]
fn wrong_arguments_are_explained() {
    let folder = TestFolder::new();
    folder.write("rows.csv", "id,n\na,1\na,2\n,3\n").write("empty/x", "").write("file", "");
    row(&folder, "map", "x");
    gather(&folder, &[]).assert_code(2);
    gather(&folder, &["absent/*"]).assert_code(2).assert_stderr_contains("absent/*: no such file or folder");
    gather(&folder, &["file"]).assert_code(2).assert_stderr_contains("file: it isn't a folder");
    gather(&folder, &["empty"]).assert_code(2).assert_stderr_contains("there is no map in `empty`");
    assert!(!folder.exists("empty/results.jsonl"));
    gather(&folder, &["map", "--id", "n"]).assert_code(2).assert_stderr_contains("--rows");
    gather(&folder, &["map", "--to", "file"]).assert_code(2).assert_stderr_contains("--to file: ");
    let invalid = gather(&folder, &["map", "--rows", "rows.csv", "--id", "id"]);
    invalid.assert_code(3).assert_stderr_contains("rows.csv:3:1").assert_stderr_contains("rows.csv:4:1");
    gather(&folder, &["map", "--rows", "rows.csv", "--id", "key"])
        .assert_code(3)
        .assert_stderr_contains("no column `key`");
    assert!(!folder.exists("map/results.jsonl"), "nothing was written");
}

#[test]
fn shards_of_a_map_on_separate_machines_are_gathered_until_none_is_missing() {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB);
    let submit = json!({ "tool": "submit_result", "input": { "answer": "yes" } });
    folder.write("replies.yaml", json!({ "parent": [{ "calls": [submit] }, { "text": "Done." }] }).to_string());
    let ids: Vec<String> = (0..12).map(|number| format!("row-{number}")).collect();
    let rows: String = ids.iter().map(|id| format!("{id},about {id}\n")).collect();
    folder.write("rows.csv", format!("key,n\n{rows}"));
    let map = |shard: &str, out: &str| {
        let options = ["map", "job.yaml", "--rows", "rows.csv", "--id", "key", "--model", "replay/replies.yaml"];
        folder.legwork(&options).args(["--shard", shard, "--out", out]).run()
    };
    let gather_all = |folders: &[&str]| {
        let options = ["--rows", "rows.csv", "--id", "key", "--to", "all", "--format", "json"];
        gather(&folder, &[folders, &options[..]].concat())
    };
    map("1/2", "machine-1").assert_code(0);
    let first = gather_all(&["machine-1"]);
    first.assert_code(75);
    let missing = problems(&first.json());
    assert!(
        !missing.is_empty() && missing.len() < 12 && missing.iter().all(|(kind, _)| kind == "missing"),
        "{missing:?}"
    );
    map("2/2", "machine-2").assert_code(0);
    let both = gather_all(&["machine-1", "machine-2"]);
    both.assert_code(0);
    assert_eq!(both.json()["problems"], json!([]));
    let found: Vec<Value> = lines(&folder, "all/results.jsonl").iter().map(|row| row["id"].clone()).collect();
    assert_eq!(found, ids.iter().map(|id| json!(id)).collect::<Vec<_>>());
    assert_eq!(lines(&folder, "all/results.jsonl")[3]["inputs"], json!({ "n": "about row-3" }));

    // A shard may have no rows.
    map("1/1000", "machine-3").assert_code(0).assert_stderr_contains("0 of them in shard 1/1000");
    gather_all(&["machine-1", "machine-2", "machine-3"]).assert_code(0);
    let folders = ["machine-1/job/map-rows", "machine-2/job/map-rows", "machine-3/job/map-rows"];
    let apply = |folders: &[&str]| folder.legwork(&["apply", "--check"]).args(folders).run();
    apply(&folders).assert_code(0);
    apply(&folders[2..]).assert_code(2).assert_stderr_contains("no row of this map has been started yet");
}

#[test]
fn files_that_are_no_tables_are_not_replaced() {
    let folder = TestFolder::new();
    row(&folder, "a", "one");
    for (name, mine) in
        [("results.jsonl", "{\"mine\": 1}\n"), ("results.csv", "a,b\n1,2\n"), ("report.html", "<h1>Mine</h1>\n")]
    {
        folder.write(&format!("all/{name}"), mine);
        let refused = gather(&folder, &["a", "--to", "all"]);
        refused.assert_code(2).assert_stderr_contains(&format!("{name} in it isn't from legwork"));
        assert_eq!(folder.read(&format!("all/{name}")), mine);
        assert_eq!(fs::read_dir(folder.at("all")).unwrap().count(), 1);
        fs::remove_file(folder.at("all").join(name)).unwrap();
    }
    std::os::unix::fs::symlink("../job.yaml", folder.at("all/results.csv")).unwrap();
    gather(&folder, &["a", "--to", "all"]).assert_code(2);
    fs::remove_file(folder.at("all/results.csv")).unwrap();
    for _ in 0..2 {
        gather(&folder, &["a", "--to", "all"]).assert_code(0);
    }
    fs::create_dir(folder.home().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.home().join("elsewhere"), folder.at("link")).unwrap();
    gather(&folder, &["a", "--to", "link"]).assert_code(2);
    assert_eq!(fs::read_dir(folder.home().join("elsewhere")).unwrap().count(), 0);
}
