//! `legwork map`: one job over many rows.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use legwork::map::{EndedRow, MapObserver};
use legwork::plan::Plan;
use legwork::run::{ResumeState, RunObserver};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::running::run_failures::wait_until;
use crate::support::bubblewrap::bubblewrap_works;
use crate::support::job::Job;
use crate::support::program::{ProgramOutput, RunningProgram};
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

const MAP: &[&str] = &["map", "job.yaml", "--rows", "rows.csv", "--id", "item"];

/// A job that writes a file for each row.
fn writing(rest: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        format!(
            "model: anthropic/claude-haiku-4-5\ninputs:\n  item: {{ type: string }}\nparent: {{ prompt: 'Item {{{{ \
             inputs.item }}}}', tools: [write_file] }}\n{rest}"
        ),
    );
    folder
}

/// Rows with the items a0, a1, ...
fn rows(folder: &TestFolder, count: usize) {
    let lines: String = (0..count).map(|number| format!("a{number}\n")).collect();
    folder.write("rows.csv", format!("item\n{lines}"));
}

/// Writes `out/ITEM.txt`, then answers.
fn write_then_answer(request: &Request) -> Answer {
    let item = request.prompt().trim_start_matches("Item ").to_owned();
    match request.turn() {
        0 => Answer::calls(&[("write_file", json!({"path": format!("out/{item}.txt"), "content": item}))]),
        _ => Answer::text(&format!("Wrote {item}.")),
    }
}

fn record(folder: &TestFolder, id: &str) -> RunFolder {
    RunFolder::new(folder.at("runs/job/map-rows/rows").join(id))
}

/// Asserts that rows in copies that have changed files have left only what they started from.
fn assert_only_snapshot_is_left(folder: &TestFolder) {
    let left: Vec<_> = std::fs::read_dir(folder.at("runs/.workspaces/job/map-rows")).unwrap().flatten().collect();
    let names: Vec<_> = left.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(names.len() == 1 && names[0].starts_with(".snapshot-"), "{names:?}");
}

/// The lines of results.jsonl by id.
fn results(folder: &TestFolder) -> BTreeMap<String, Value> {
    let lines = folder.read("runs/job/map-rows/results.jsonl");
    let parsed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = parsed.len();
    let by_id: BTreeMap<String, Value> =
        parsed.into_iter().map(|line| (line["id"].as_str().unwrap().to_owned(), line)).collect();
    assert_eq!(by_id.len(), count, "no row has two lines");
    by_id
}

fn outcomes(folder: &TestFolder) -> BTreeMap<String, String> {
    results(folder).into_iter().map(|(id, line)| (id, line["outcome"].as_str().unwrap().to_owned())).collect()
}

fn run(folder: &TestFolder, server: &Server, more: &[&str]) -> ProgramOutput {
    folder.legwork(MAP).args(more).anthropic(server).run()
}

#[test]
fn every_row_runs_once_and_the_same_command_reads_the_results_again() {
    let folder = writing("");
    rows(&folder, 7);
    let server = Server::start(write_then_answer);
    let ended = run(&folder, &server, &["--isolate", "none", "--jobs", "3"]);
    ended.assert_code(0).assert_stderr_contains("map-rows: 7 rows: 0 ended before, 0 to continue, 7 to start");
    ended.assert_stderr_contains("[7/7] ").assert_stdout("");
    assert_eq!(server.count(), 14);
    assert!(server.connections() <= 6, "rows reuse connections: {}", server.connections());
    for number in 0..7 {
        assert_eq!(folder.read(&format!("out/a{number}.txt")), format!("a{number}"));
        let result = record(&folder, &format!("a{number}")).result();
        assert_eq!(result["run_id"], format!("a{number}"));
        assert_eq!(result["text"], format!("Wrote a{number}."));
        assert!(!record(&folder, &format!("a{number}")).has("lease"));
    }
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
    assert!(folder.read("runs/job/map-rows/results.csv").starts_with("id,"));
    assert!(!folder.exists("runs/job/latest"), "a row isn't the newest run");
    // Neither a key nor the server is needed any more.
    let again = folder.legwork(MAP).run();
    again.assert_code(0).assert_stderr_contains("7 ended before, 0 to continue, 0 to start");
    assert_eq!(server.finish().len(), 14);
    assert_eq!(outcomes(&folder).len(), 7);
}

/// Takes down which rows start and end.
#[derive(Default)]
struct SeenRows(Mutex<Vec<String>>);

impl MapObserver for SeenRows {
    fn row_started(&self, id: &str, _: &Plan, before: Option<&ResumeState>) -> Option<Arc<dyn RunObserver>> {
        self.0.lock().unwrap().push(format!("{id} {}", if before.is_some() { "continues" } else { "starts" }));
        None
    }

    fn row_ended(&self, row: &EndedRow<'_>) {
        let outcome = row.result.map_or_else(str::to_owned, |result| result.outcome.to_string());
        self.0.lock().unwrap().push(format!("{} {outcome}", row.id));
    }
}

#[test]
fn a_map_in_this_process_shows_each_row_and_the_program_takes_it_over() {
    let folder = writing("");
    rows(&folder, 2);
    let (refuses, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_refusing, count) = (Arc::clone(&refuses), Arc::clone(&asked));
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        count.fetch_add(1, Ordering::SeqCst);
        match request.prompt().as_str() {
            "Item a1" if request.turn() == 1 && is_refusing.load(Ordering::SeqCst) => {
                Answer::status(400).error("invalid_request_error", "no")
            }
            _ => write_then_answer(request),
        }
    });
    let seen = SeenRows::default();
    let ended = Job::in_folder(&folder).anthropic(&server).map(&folder.read("rows.csv"), &seen);
    assert_eq!(ended.exit_code, 5);
    let seen_of = |seen: &SeenRows, id: &str| {
        let lines = seen.0.lock().unwrap().clone();
        lines.into_iter().filter(|line| line.starts_with(id)).collect::<Vec<_>>()
    };
    assert_eq!(seen_of(&seen, "a0"), ["a0 starts", "a0 completed"]);
    assert_eq!(seen_of(&seen, "a1"), ["a1 starts", "a1 provider_rejected"]);

    refuses.store(false, Ordering::SeqCst);
    let seen = SeenRows::default();
    let ended = Job::in_folder(&folder).anthropic(&server).map(&folder.read("rows.csv"), &seen);
    assert_eq!(seen_of(&seen, "a"), ["a1 continues", "a1 completed"]);
    assert_eq!((ended.exit_code, ended.rest.is_none(), asked.load(Ordering::SeqCst)), (0, true, 5));
    let again = folder.legwork(MAP).run();
    again.assert_code(0).assert_stderr_contains("2 ended before, 0 to continue, 0 to start");
}

#[test]
fn a_row_of_which_a_power_failure_has_left_empty_files_starts_anew() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [] }\n",
    );
    rows(&folder, 2);
    let server = Server::with(Checks::AllowRepeats, |_: &Request| Answer::text("Done."));
    run(&folder, &server, &[]).assert_code(0);
    let emptied = record(&folder, "a0");
    for name in ["events.jsonl", "plan.json", "lease"] {
        std::fs::write(emptied.path().join(name), "").unwrap();
    }
    std::fs::remove_file(emptied.path().join("result.json")).unwrap();
    let again = run(&folder, &server, &[]);
    again.assert_code(0).assert_stderr_contains("1 ended before, 0 to continue, 1 to start");
    assert_eq!(server.count(), 3);
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
    assert_eq!(emptied.result()["text"], "Done.");
}

#[test]
fn all_mistakes_are_reported_with_their_places_before_anything_is_spent() {
    let folder = TestFolder::new();
    let job = "model: anthropic/claude-haiku-4-5\ninputs:\n  item: { type: integer }\n  place: { type: string }\nparent: { \
               prompt: '{{ inputs.item }} {{ inputs.place }}', tools: [] }\n";
    folder.write("job.yaml", job);
    let bad: String = (0..100).map(|number| format!("x{number}\n")).collect();
    folder.write("rows.csv", format!("item\n1\n{bad}"));
    let server = Server::start(|_: &Request| Answer::text("never"));
    let ended =
        folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--set", "place=here"]).anthropic(&server).run();
    ended.assert_code(3);
    let found = ended.stderr.matches("error[bad-input]").count();
    assert_eq!(found, 100, "{}", ended.full_output());
    ended.assert_stderr_contains("rows.csv:3:1").assert_stderr_contains("rows.csv:102:1");
    // A number that is only too large is named as that.
    let large = "item\n99999999999999999999\n";
    let ended = folder
        .legwork(&["map", "job.yaml", "--rows", "-", "--set", "place=here"])
        .stdin(large)
        .anthropic(&server)
        .run();
    ended.assert_code(3).assert_stderr_contains("`item` doesn't fit into a 64-bit integer");
    // An input that no row and no option gives.
    let ended = folder.legwork(&["map", "job.yaml", "--rows", "-"]).stdin("item\n1\n2\n").anthropic(&server).run();
    ended.assert_code(3).assert_stderr_contains("<stdin>:2:1").assert_stderr_contains("error[missing-input]");
    // Null is no id.
    let ended = folder
        .legwork(&["map", "job.yaml", "--rows", "-", "--id", "key", "--set", "place=here"])
        .stdin("{\"key\": null, \"item\": 1}\n")
        .anthropic(&server)
        .run();
    ended.assert_code(3).assert_stderr_contains("the row has no `key`, which is its id");
    // A mistake in an option is reported once, not once for each row.
    let twice = ["map", "job.yaml", "--rows", "-", "--set", "place=a", "--set", "item=1"];
    let ended = folder.legwork(&twice).stdin("item\n1\n2\n").anthropic(&server).run();
    ended.assert_code(3);
    assert_eq!(ended.stderr.matches("error[duplicate-input]").count(), 1, "{}", ended.full_output());
    assert_eq!(server.count(), 0);
    assert!(!folder.exists("runs"), "nothing is written");
}

#[test]
fn mistakes_in_the_syntax_and_in_the_values_of_rows_are_reported_together() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/x\ninputs: { n: { type: integer } }\nparent: { prompt: '{{ inputs.n }}', tools: [] }\n",
    );
    let mixed: String =
        (0..60).map(|row| format!("{{\"n\": {row}}}\n{{\"n\": \"x\"}}\n{{\"m\": 1}}\n{{\"n\"\n")).collect();
    folder.write("rows.jsonl", mixed);
    let ended = folder.legwork(&["map", "job.yaml", "--rows", "rows.jsonl"]).run();
    // A row with the same values as an earlier one is a mistake, too.
    ended.assert_code(3).assert_stderr_contains("180 errors");
    for place in ["rows.jsonl:2:7", "rows.jsonl:3:2", "rows.jsonl:240:"] {
        ended.assert_stderr_contains(place);
    }
    // What is wrong with the header isn't repeated for each row.
    folder.write("rows.csv", "m\n1\n2\n");
    let ended = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv"]).run();
    ended.assert_code(3).assert_stderr_contains("rows.csv:1:1").assert_stderr_contains("\n1 error\n");
}

#[test]
fn each_row_that_a_text_of_the_job_cannot_be_rendered_with_is_reported() {
    let folder = TestFolder::new();
    let job = |prompt: &str, rest: &str| {
        let head = "model: replay/x\ninputs: { s: { type: string }, n: { type: integer, default: 1 } }\n";
        format!("{head}parent: {{ prompt: \"{prompt}\", tools: [] }}\n{rest}")
    };
    let second = "{{ (inputs.s | split('-'))[1] | upper }}";
    let map = |rows: &str, more: &[&str]| {
        folder.write("rows.csv", rows);
        let ended = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv"]).args(more).run();
        ended.assert_code(3);
        ended
    };
    folder.write("job.yaml", job(second, ""));
    let ended = map("s\na-b\nb\nc\nd-e\n", &[]);
    ended.assert_stderr_contains("2 errors").assert_stderr_contains("--> rows.csv:3:1");
    ended.assert_stderr_contains("--> rows.csv:4:1").assert_stderr_contains("job.yaml:3:");
    // A row with a mistake of its own doesn't hide those of others.
    let ended = map("s,n\nb,1\nc,x\nd,1\na-b,1\n", &[]);
    ended.assert_stderr_contains("3 errors").assert_stderr_contains("--> rows.csv:2:1");
    ended.assert_stderr_contains("--> rows.csv:3:3").assert_stderr_contains("--> rows.csv:4:1");
    // What all rows share is a mistake of the job.
    let ended = map("s,n\nb,1\nc,x\nd,1\n", &[]);
    ended.assert_stderr_contains("2 errors").assert_stderr_contains("--> job.yaml:3:");
    ended.assert_stderr_contains("with this row and all others");
    let bad: String = (0..3_000).map(|row| format!("b{row}\n")).collect();
    let ended = map(&format!("s\n{bad}a-b\n"), &[]);
    ended.assert_stderr_contains("--> rows.csv:1001:1").assert_stderr_contains("2000 more findings are not shown");
    let ended = map(&format!("s\na-b\n{bad}"), &[]);
    ended.assert_stderr_contains("--> rows.csv:1002:1").assert_stderr_contains("2000 more findings are not shown");
    let ended = map(&format!("s\n{bad}"), &[]);
    ended.assert_stderr_contains("--> job.yaml:3:").assert_stderr_contains("\n1 error\n");
    // An empty prompt, a condition, and a variable of a check that is too large.
    let checks =
        "checks:\n- { name: one, when: '{{ inputs.s }}', run: 'true' }\n- { name: two, run: 'test $INPUT_S' }\n";
    folder.write("job.yaml", job("{{ inputs.s }}", checks));
    let long = "y".repeat(140_000);
    let ended = map(&format!("s\ntrue\n \nfalse\n{long}\n"), &[]);
    ended.assert_stderr_contains("4 errors");
    for (code, line) in [("empty-prompt", 3), ("bad-condition", 3), ("bad-condition", 5), ("bad-input", 5)] {
        let place = format!("--> rows.csv:{line}:1\n");
        let found = ended.stderr.split("error[").any(|it| it.starts_with(code) && it.contains(&place));
        assert!(found, "{code}: {}", ended.full_output());
    }
    // Each option with a mistake is reported, but not for each row.
    let ended = map("s,n\na,1\nb,2\n", &["--set", "s=foo", "--set", "n=7"]);
    ended.assert_stderr_contains("2 errors").assert_stderr_contains("the input `s` is also a column");
    ended.assert_stderr_contains("the input `n` is also a column");
}

#[test]
fn a_file_of_rows_that_is_not_a_table_with_a_header_is_named_as_that() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/x\ninputs: { path: { type: string }, n: { type: integer, default: 1 } }\nparent: { prompt: '{{ \
         inputs.path }}{{ inputs.n }}', tools: [] }\n",
    );
    for (rows, message, help) in [
        (
            "src\ntests\n",
            "the file seems to have no header line",
            "the first line must name the columns, separated by commas",
        ),
        ("path,src\na,b\n", "the job has no input `src`", "the first line must name the columns, separated by commas"),
        ("paht\na\n", "the job has no input `paht`", "did you mean `path`? the first line must name the columns"),
        ("path\tn\na\t1\n", "the columns are separated by tabs", "separate them with commas"),
        ("path,n\na\n", "the row has 1 field, and the header has 2", "write a comma between two fields"),
        ("path,n\na,1,b\n", "the row has 3 fields, and the header has 2", "quote fields that have a comma"),
    ] {
        let ended = folder.legwork(&["map", "job.yaml", "--rows", "-"]).stdin(rows).run();
        ended.assert_code(3).assert_stderr_contains(message).assert_stderr_contains(help);
        ended.assert_stderr_contains("\n1 error\n");
    }
}

#[test]
fn bad_options_are_named() {
    let folder = writing("");
    rows(&folder, 2);
    for (more, message) in [
        (&["--name", "../x"][..], "--name: the name `../x` is a path"),
        (&["--limit", "turns=3"], "a map has no such limit"),
        (&["--limit", "tokens=many"], "isn't valid for `tokens`"),
        (&["--junit", "rows.csv"], "--junit rows.csv: it is the rows file"),
        (&["--junit", "/proc/none/junit.xml"], "--junit /proc/none/junit.xml: can't write to /proc/none"),
        (&["--shard", "4/3"], "this isn't a shard"),
        (&["--shard", "auto"], "no variable of an engine is set"),
        (&["--jobs", "0"], "--jobs"),
    ] {
        folder.legwork(MAP).args(more).run().assert_code(2).assert_stderr_contains(message);
    }
    folder.legwork(&["map", "job.yaml", "--rows", "gone.csv"]).run().assert_code(2).assert_stderr_contains("gone.csv");
    folder.write("runs/job/map-rows/events.jsonl", "");
    folder.legwork(MAP).run().assert_code(2).assert_stderr_contains("it is the record of a run");
    folder.allow_forged_records();
}

#[test]
fn the_shard_of_an_engine_is_named_and_a_slurm_array_with_gaps_is_refused() {
    let folder = writing("");
    rows(&folder, 2);
    let slurm = |more: &[(&str, &str)]| {
        let program = folder.legwork(MAP).args(["--shard", "auto", "--dry-run"]).env("SLURM_ARRAY_TASK_ID", "3");
        more.iter()
            .fold(program, |program, (name, value)| program.env(&format!("SLURM_ARRAY_TASK_{name}"), value))
            .run()
    };
    slurm(&[("MIN", "3"), ("MAX", "7"), ("COUNT", "5")]).assert_code(0).assert_stdout_contains("in shard 1/5");
    slurm(&[("MIN", "3"), ("MAX", "7"), ("COUNT", "2")]).assert_code(2).assert_stderr_contains("the 2 tasks");
    let unbounded = slurm(&[]);
    unbounded.assert_code(2).assert_stderr_contains("--shard K/N instead").assert_not_printed("LEGWORK_SHARDS");
}

#[test]
fn a_dry_run_says_what_would_run_and_writes_nothing() {
    let folder = writing("");
    rows(&folder, 3);
    let ended = folder.legwork(MAP).arg("--dry-run").run();
    ended.assert_code(0).assert_stdout_contains("3 rows: 0 ended before, 0 to continue, 3 to start");
    ended.assert_stdout_contains("a copy of the folder for each row").assert_stdout_contains("Item a0");
    assert!(!folder.exists("runs"));
    // A worktree lacks what is in submodules.
    folder.write(".gitmodules", "").commit_all();
    let submodules = "git worktrees don't have the files of submodules and nested repositories (see .gitmodules)";
    let dry_run = |more: &[&str]| folder.legwork(MAP).arg("--dry-run").args(more).run();
    dry_run(&[]).assert_code(0).assert_stderr_contains(submodules);
    assert!(!dry_run(&["--isolate", "copy"]).assert_code(0).stderr.contains(submodules));
}

#[test]
fn a_changed_job_or_row_is_noticed_before_anything_runs() {
    let folder = writing("");
    folder.write("rows.csv", "id,item\nfirst,a0\nsecond,a1\n");
    let server = Server::start(write_then_answer);
    let map = ["map", "job.yaml", "--rows", "rows.csv", "--id", "id"];
    folder.legwork(&map).anthropic(&server).run().assert_code(0);
    assert_eq!(server.count(), 4);
    folder.write("rows.csv", "id,item\nnew,a9\nsecond,other\n");
    let changed = folder.legwork(&map).anthropic(&server).run();
    changed
        .assert_code(2)
        .assert_stderr_contains("rows/second: this record is of a run with another plan; these differ: ");
    changed.assert_stderr_contains("inputs.item").assert_stderr_contains("--name NAME");
    assert_eq!(server.count(), 4, "the new row waits, too");
    // A row that is gone keeps its record.
    folder.write("rows.csv", "id,item\nnew,a9\nsecond,a1\n");
    let ended = folder.legwork(&map).anthropic(&server).run();
    ended.assert_code(0).assert_stderr_contains("1 ended before, 0 to continue, 1 to start");
    ended.assert_stderr_contains("records of 1 row that").assert_stderr_contains("first");
    assert_eq!(server.count(), 6);
    assert_eq!(results(&folder).into_keys().collect::<Vec<_>>(), ["new", "second"]);
    let job = folder.read("job.yaml").replace("'Item", "'The item");
    folder.write("job.yaml", job);
    folder
        .legwork(&map)
        .anthropic(&server)
        .run()
        .assert_code(2)
        .assert_stderr_contains("1 more row can't continue, either: ");
    assert_eq!(server.finish().len(), 6);
}

#[test]
fn a_repository_that_git_refuses_is_named_as_the_reason() {
    let folder = writing("");
    rows(&folder, 1);
    folder.git(&["init", "--quiet"]);
    let server = Server::start(write_then_answer);
    let unborn = folder.legwork(MAP).args(["--isolate", "worktree"]).anthropic(&server).run();
    unborn.assert_code(5).assert_stderr_contains("no commit yet").assert_stderr_contains("--isolate copy");
    assert!(!folder.exists("runs/.workspaces"), "{:?}", folder.list());
    folder.write("x", "");
    folder.git(&["add", "x"]);
    folder.git(&["commit", "--quiet", "--message", "x"]);
    // As in a container whose user isn't the owner of the checkout.
    let foreign = || folder.legwork(MAP).anthropic(&server).env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1");
    foreign().run().assert_code(5).assert_stderr_contains("dubious ownership").assert_stderr_contains("--isolate copy");
    foreign().args(["--isolate", "copy"]).run().assert_code(0);
}

#[test]
fn rows_in_worktrees_leave_the_repository_as_it_is() {
    let folder = writing("");
    folder.write("kept.txt", "committed").write(".gitignore", "runs/\n").write("out/.keep", "");
    folder.commit_all();
    folder.write("kept.txt", "not committed").write("new.txt", "new");
    folder.write(".git/hooks/post-checkout", "#!/bin/sh\ntouch hooked\n");
    std::process::Command::new("chmod").arg("+x").arg(folder.at(".git/hooks/post-checkout")).status().unwrap();
    rows(&folder, 4);
    let state = || {
        [&["status", "--porcelain"][..], &["log", "--all", "--oneline"], &["branch", "--all"], &["stash", "list"]]
            .map(|arguments| folder.git(arguments))
    };
    let before = state();
    let server = Server::start(write_then_answer);
    run(&folder, &server, &[]).assert_code(0);
    assert_eq!(state(), before);
    assert!(!folder.exists("out/a0.txt") && !folder.exists("hooked"));
    for number in 0..4 {
        let patch = record(&folder, &format!("a{number}")).file("changes.patch");
        assert!(patch.contains(&format!("b/out/a{number}.txt")) && !patch.contains("kept.txt"), "{patch}");
    }
    let manifest: Value = serde_json::from_str(&folder.read("runs/job/map-rows/map.json")).unwrap();
    assert_eq!(manifest["isolation"], "worktree");
    assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1);
    assert!(!folder.exists("runs/.workspaces"), "{:?}", folder.list());
    run(&folder, &server, &["--isolate", "none"]).assert_code(2).assert_stderr_contains("another --isolate");
    // What killed processes have left is removed at the next start.
    folder.git(&["worktree", "add", "--quiet", "--detach", "runs/.workspaces/job/map-rows/a1"]);
    folder.write("runs/.workspaces/job/map-rows/.snapshot-1/.base/file", "");
    rows(&folder, 5);
    run(&folder, &server, &[]).assert_code(0);
    assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1);
    assert!(!folder.exists("runs/.workspaces"), "{:?}", folder.list());
}

#[test]
fn rows_can_commit_in_their_worktrees_and_not_move_branches_and_tags() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/r.yaml\ninputs: { item: { type: string } }\nparent: { prompt: Go., tools: [bash] }\ngit: commit\n");
    let commands = [
        "echo new > x && git add x && git -c user.name=a -c user.email=a@b.c commit --quiet --message=row && git log --oneline",
        "git update-ref refs/heads/main HEAD",
        "git branch --force other HEAD",
        "git tag t1",
        "git pack-refs --all",
    ];
    let calls = commands.map(|command| json!({"calls": [{"tool": "bash", "input": {"command": command}}]}));
    let replies: Vec<Value> = calls.into_iter().chain([json!({"text": "Done."})]).collect();
    folder.write("r.yaml", json!({ "parent": replies }).to_string()).write("x", "old\n").write(".gitignore", "runs/\n");
    folder.commit_all();
    folder.git(&["branch", "other"]);
    rows(&folder, 1);
    let state = || [&["show-ref"][..], &["status", "--porcelain"], &["reflog", "--all"]].map(|it| folder.git(it));
    let before = state();
    let ended = folder.legwork(MAP).run();
    ended.assert_code(0);
    assert_eq!(state(), before);
    let transcript = record(&folder, "a0").transcript();
    assert!(transcript.contains(" row\n"), "{transcript}");
    assert!(record(&folder, "a0").file("changes.patch").contains("+new"));
}

#[test]
fn a_workspace_with_changes_that_do_not_fit_into_a_patch_is_kept() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\ninputs: { item: { type: string } }\nparent: { prompt: Go., tools: [bash] }\n",
    );
    let command = r"printf '\0\1' > bin; [ $(basename $PWD) = a0 ] || rm bin; echo x > text";
    let call = json!({"calls": [{"tool": "bash", "input": {"command": command}}]});
    folder.write("r.yaml", json!({"parent": [call, {"text": "Done."}]}).to_string()).write(".gitignore", "runs/\n");
    folder.commit_all();
    rows(&folder, 2);
    let ended = folder.legwork(MAP).run();
    ended.assert_code(0).assert_stderr_contains("changes.patch isn't complete: ");
    ended.assert_stderr_contains("runs/.workspaces/job/map-rows/a0\n");
    folder.legwork(MAP).run().assert_code(0);
    assert!(folder.exists("runs/.workspaces/job/map-rows/a0/bin"));
    assert!(!folder.exists("runs/.workspaces/job/map-rows/a1"));
    let pruned = folder.legwork(&["runs", "prune", "--keep", "0"]).run();
    pruned.assert_code(0);
    assert!(!folder.exists("runs/.workspaces"), "{:?}", folder.list());
    assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn rows_in_copies_see_uncommitted_files_and_change_only_their_copy() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs:\n  item: { type: string }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [glob, edit_file, read_file] }\n",
    );
    folder.write("notes.txt", "start\n1\n2\n3\n").write("deep/x.txt", "x");
    rows(&folder, 3);
    let server = Server::start(|request: &Request| match request.turn() {
        0 => Answer::calls(&[("glob", json!({"pattern": "**/*.txt"})), ("read_file", json!({"path": "notes.txt"}))]),
        1 => {
            let found = request.results();
            assert!(found[0].text.contains("deep/x.txt") && found[0].text.contains("notes.txt"), "{}", found[0].text);
            assert!(found[1].text.contains("start"), "{}", found[1].text);
            let item = request.prompt();
            Answer::calls(&[("edit_file", json!({"path": "notes.txt", "old_text": "start", "new_text": item}))])
        }
        _ => Answer::text("Done."),
    });
    run(&folder, &server, &[]).assert_code(0);
    assert_eq!(folder.read("notes.txt"), "start\n1\n2\n3\n");
    for number in 0..3 {
        let patch = record(&folder, &format!("a{number}")).file("changes.patch");
        assert!(patch.contains(&format!("+Item a{number}")) && patch.contains("-start"), "{patch}");
    }
    assert_only_snapshot_is_left(&folder);
    // Each patch is merged with what the row started from, also when it is there already.
    let apply = || folder.legwork(&["apply", "map-rows"]).run();
    apply().assert_code(1).assert_stdout_contains("1 applied").assert_stdout_contains("(changed before by a0)");
    folder.write("notes.txt", format!("{}last\n", folder.read("notes.txt")));
    apply().assert_code(1).assert_stdout_contains("1 unchanged");
    // Another row later begins with the same state.
    rows(&folder, 4);
    run(&folder, &server, &[]).assert_code(0);
    assert!(record(&folder, "a3").file("changes.patch").contains("-start"));
    // Without the copy, it begins with the workspace as it is then.
    std::fs::remove_dir_all(folder.at("runs/.workspaces")).unwrap();
    folder.write("notes.txt", "start\n");
    rows(&folder, 5);
    run(&folder, &server, &[]).assert_code(0).assert_stderr_contains("the snapshot of the workspace is gone");
    server.finish();
}

#[test]
fn a_copy_keeps_the_holes_of_a_disk_image_and_no_set_user_id_bit() {
    let folder = writing("");
    let image = std::fs::File::create(folder.at("disk.img")).unwrap();
    let bytes = 1 << 28;
    image.set_len(bytes).unwrap();
    image.write_all_at(b"data", 100_000_000).unwrap();
    folder.write("tool", "");
    std::fs::set_permissions(folder.at("tool"), Permissions::from_mode(0o4755)).unwrap();
    rows(&folder, 1);
    // The copy stays as long as the row can continue.
    let server = Server::start(|_: &Request| Answer::status(401));
    run(&folder, &server, &["--isolate", "copy"]).assert_code(5);
    let copy = std::fs::File::open(folder.at("runs/.workspaces/job/map-rows/a0/disk.img")).unwrap();
    let (found, mut data) = (copy.metadata().unwrap(), [0; 4]);
    copy.read_exact_at(&mut data, 100_000_000).unwrap();
    assert_eq!((found.len(), &data), (bytes, b"data"));
    // File systems without holes store all of it.
    let stored = image.metadata().unwrap().blocks();
    assert!(found.blocks() < stored + 1_000, "{} instead of {stored} blocks", found.blocks());
    let tool = folder.at("runs/.workspaces/job/map-rows/a0/tool").metadata().unwrap();
    assert_eq!(tool.permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_copy_that_fails_leaves_nothing() {
    let folder = writing("");
    rows(&folder, 1);
    folder.write("deep/large", vec![b'x'; 300 << 10]);
    let server = Server::start(write_then_answer);
    let line = "trap '' XFSZ && ulimit -f 128 && exec \"$0\" \"$@\"";
    let shell = folder.program("/bin/bash", &["-c", line, env!("CARGO_BIN_EXE_legwork")]);
    let failed = shell.args(MAP).args(["--isolate", "copy"]).anthropic(&server).run();
    failed.assert_code(5).assert_stderr_contains("the rows' workspaces can't be made");
    assert_eq!(failed.stderr.matches("os error").count(), 1, "{}", failed.stderr);
    let left = folder.list();
    assert!(!left.iter().any(|path| path.starts_with("runs/.workspaces") && path.contains("deep")), "{left:?}");
}

/// A repository with a folder `sub`, and a script that changes a file in the workspace after listing it.
fn repository_with_subfolder() -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs:\n  item: { type: string }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [glob, write_file] }\n",
    );
    folder.write(
        "script.yaml",
        "parent:\n  - calls: [{ tool: glob, input: { pattern: '*' } }, { tool: write_file, input: { path: kept.txt, content: \
         new, overwrite: true } }]\n  - text: Done.\n",
    );
    folder.write("sub/kept.txt", "old\n").write(".gitignore", "/ignored\n*.log\n").write("sub/skipped.log", "");
    rows(&folder, 1);
    folder.commit_all();
    folder
}

#[test]
fn a_workspace_below_the_root_of_a_repository_keeps_the_changes_of_its_rows() {
    let folder = repository_with_subfolder();
    folder.write("ignored/kept.txt", "old\n");
    std::fs::create_dir(folder.at("empty")).unwrap();
    let map = |name: &str, workspace: &str, more: &[&str]| {
        let map = ["--name", name, "--workspace", workspace, "--model", "replay/script.yaml"];
        let ended = folder.legwork(MAP).args(map).args(more).run();
        ended.assert_code(0);
        let row = RunFolder::new(folder.at("runs/job").join(name).join("rows/a0"));
        assert!(!row.file("events.jsonl").contains("skipped.log"), "{name}");
        row.file("changes.patch")
    };
    for (name, workspace, more, isolation) in [
        ("worktree", "sub", &[][..], "worktree"),
        ("copy", "sub", &["--isolate", "copy"], "copy"),
        // Git has none of its files.
        ("ignored", "ignored", &[], "copy"),
        ("empty", "empty", &[], "worktree"),
    ] {
        let patch = map(name, workspace, more);
        assert!(patch.contains("+new"), "{name}: {patch}");
        assert_eq!(patch.contains("-old"), workspace != "empty", "{name}: {patch}");
        let manifest: Value = serde_json::from_str(&folder.read(&format!("runs/job/{name}/map.json"))).unwrap();
        assert_eq!(manifest["isolation"], isolation, "{name}");
    }
    // A repository that ignores everything, as for the settings in a home folder.
    let ignored = folder.read(".gitignore");
    folder.write(".gitignore", "*\n");
    assert!(map("all", "ignored", &[]).contains("-old"));
    folder.write(".gitignore", ignored);
    let refused = ["--name", "x", "--workspace", "ignored", "--isolate", "worktree", "--model", "replay/script.yaml"];
    let refused = folder.legwork(MAP).args(refused).run();
    refused.assert_code(5).assert_stderr_contains("git ignores the workspace").assert_stderr_contains("--isolate copy");
}

#[test]
fn files_of_a_stranger_in_the_folder_of_runs_lead_to_no_other_folder() {
    let map = |folder: &TestFolder| folder.legwork(MAP).args(["--model", "replay/script.yaml"]).run();
    let precious = |folder: &TestFolder| assert_eq!(folder.read("../precious/a0/file"), "mine");
    let folder = || {
        let folder = repository_with_subfolder();
        folder.write("../precious/a0/file", "mine");
        folder
    };
    // A snapshot that map.json puts elsewhere is neither used nor removed.
    for isolation in ["copy", "worktree"] {
        let folder = folder();
        let elsewhere = folder.at("../precious/a0");
        let repository = folder.at("../other");
        folder.git(&["clone", "--quiet", ".", "../other"]);
        folder.write("../other/.git/info/attributes", "* filter=x");
        let ran = format!("touch {}; cat", folder.at("../ran").display());
        folder.git(&["-C", "../other", "config", "filter.x.smudge", &ran]);
        let snapshot = match isolation {
            "copy" => json!({ "kind": "copy", "folder": elsewhere }),
            _ => json!({
                "kind": "git", "repository": repository, "subfolder": "", "commit": folder.git(&["rev-parse", "HEAD"]).trim(),
                "tree": folder.git(&["rev-parse", "HEAD^{tree}"]).trim(),
            }),
        };
        let manifest = json!({
            "format": 1, "job": "job", "rows_file": "rows.csv", "isolation": isolation, "snapshot": snapshot,
            "started_at": "2026-01-01T00:00:00Z",
        });
        folder.write("runs/job/map-rows/map.json", manifest.to_string());
        let isolate = ["--isolate", isolation, "--model", "replay/script.yaml"];
        let ended = folder.legwork(MAP).args(isolate).run();
        ended.assert_code(0).assert_stderr_contains("the snapshot of the workspace is gone");
        precious(&folder);
        assert!(!folder.exists("../ran"), "a filter of the other repository ran");
        assert!(
            !folder.exists("../other/.git/worktrees") && record(&folder, "a0").file("changes.patch").contains("+new")
        );
    }
    // Nothing is replaced or removed below a link.
    let folder = folder();
    std::fs::create_dir_all(folder.at("runs/.workspaces/job")).unwrap();
    std::os::unix::fs::symlink(folder.at("../precious"), folder.at("runs/.workspaces/job/map-rows")).unwrap();
    map(&folder).assert_code(2).assert_stderr_contains("runs/.workspaces/job/map-rows isn't a folder");
    precious(&folder);
}

#[test]
fn a_map_without_our_seal_decides_nothing() {
    const OTHER: &str = "made on another machine, for another workspace or with another key, and says `--isolate none`";
    const SNAPSHOT: &str = "the snapshot of the workspace in map.json isn't sealed with this key";
    let file = "runs/job/map-rows/map.json";
    let start = |folder: &TestFolder, more: &[&str]| {
        folder.legwork(MAP).args(["--model", "replay/script.yaml"]).args(more).run()
    };
    let manifest = |folder: &TestFolder| -> Value { serde_json::from_str(&folder.read(file)).unwrap() };
    let edit = |folder: &TestFolder, key: &str, value: Value| {
        let mut manifest = manifest(folder);
        manifest[key] = value;
        folder.write(file, manifest.to_string());
    };
    let folder = repository_with_subfolder();
    // More rows don't change the workspace.
    folder.git(&["rm", "--quiet", "--cached", "rows.csv"]);
    folder.write(".gitignore", "/rows.csv\n");
    folder.commit_all();
    rows(&folder, 2);
    start(&folder, &[]).assert_code(0);
    assert!(manifest(&folder)["mac"].is_string(), "{}", manifest(&folder));
    // Another isolation, whether the seal is a wrong one or none.
    rows(&folder, 3);
    let ours = folder.read(file);
    for seal in [json!("0"), manifest(&folder)["mac"].clone(), Value::Null] {
        edit(&folder, "isolation", json!("none"));
        edit(&folder, "snapshot", Value::Null);
        edit(&folder, "mac", seal);
        let planted = folder.read(file);
        for more in [&[][..], &["--dry-run"], &["--isolate", "worktree"]] {
            start(&folder, more)
                .assert_code(2)
                .assert_stderr_contains(OTHER)
                .assert_stderr_contains("add --isolate none");
        }
        assert_eq!(folder.read(file), planted);
        assert!(!folder.exists("runs/job/map-rows/rows/a2") && !folder.exists("kept.txt"));
    }
    // A seal that is ours, but of another map.
    start(&folder, &["--name", "shared", "--isolate", "none"]).assert_code(0);
    std::fs::remove_file(folder.at("kept.txt")).unwrap();
    folder.write(file, folder.read("runs/job/shared/map.json"));
    start(&folder, &[]).assert_code(2).assert_stderr_contains(OTHER);
    // What this start would do by itself needs no seal, as in maps of earlier builds, and gets one.
    folder.write(file, &ours);
    edit(&folder, "mac", Value::Null);
    let ended = start(&folder, &[]);
    ended.assert_code(0);
    assert!(!ended.stderr.contains(SNAPSHOT), "{}", ended.stderr);
    assert!(manifest(&folder)["mac"].is_string());
    // Other files than those of the user aren't shown to rows.
    rows(&folder, 4);
    edit(&folder, "mac", Value::Null);
    let ours = manifest(&folder)["snapshot"].clone();
    let mut snapshot = ours.clone();
    let empty = folder.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    snapshot["tree"] = json!(empty.trim());
    edit(&folder, "snapshot", snapshot);
    start(&folder, &[]).assert_code(0).assert_stderr_contains(SNAPSHOT);
    assert_eq!(manifest(&folder)["snapshot"], ours);
}

#[test]
fn why_git_cannot_make_worktrees_is_reported() {
    let folder = repository_with_subfolder();
    folder.git(&["init", "--quiet", "inner"]);
    folder.write("inner/file", "");
    let map = || folder.legwork(MAP).args(["--model", "replay/script.yaml"]).run();
    map()
        .assert_code(5)
        .assert_stderr_contains("'inner/' does not have a commit checked out; fatal: adding files failed");
    std::fs::remove_dir_all(folder.at("inner")).unwrap();
    // Line ends that git would change in a commit are no obstacle.
    folder.git(&["config", "core.autocrlf", "true"]);
    folder.git(&["config", "core.safecrlf", "true"]);
    folder.write("mixed.txt", "a\nb\r\n");
    map().assert_code(0);
    folder.git(&["config", "core.repositoryformatversion", "99"]);
    let ended = folder.legwork(MAP).args(["--name", "x", "--model", "replay/script.yaml"]).run();
    ended.assert_code(5).assert_stderr_contains("`git rev-parse` failed: ").assert_stderr_contains("found 99");
}

#[test]
fn shards_together_run_every_row_once() {
    let folder = writing("");
    rows(&folder, 20);
    let server = Server::start(write_then_answer);
    let running: Vec<_> = ["1/3", "2/3", "3/3"]
        .map(|shard| folder.legwork(MAP).args(["--shard", shard, "--isolate", "copy"]).anthropic(&server).spawn())
        .into();
    let ended: Vec<_> = running.into_iter().map(RunningProgram::wait).collect();
    for one in &ended {
        one.assert_code(0);
    }
    assert_eq!(server.finish().len(), 40);
    let all = outcomes(&folder);
    assert_eq!(all.len(), 20);
    assert!(all.values().all(|outcome| outcome == "completed"), "{all:?}");
    // The last shard leaves the tables of all.
    folder.legwork(MAP).run().assert_code(0).assert_stderr_contains("20 ended before");
    assert_only_snapshot_is_left(&folder);
}

#[test]
fn two_maps_on_the_same_folder_share_the_rows() {
    let folder = writing("");
    rows(&folder, 12);
    let server = Server::start(|request: &Request| write_then_answer(request).delay(Duration::from_millis(20)));
    let start = || folder.legwork(MAP).args(["--isolate", "none", "--jobs", "2"]).anthropic(&server).spawn();
    let both = [start(), start()].map(RunningProgram::wait);
    for ended in &both {
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
    }
    let last = folder.legwork(MAP).run();
    last.assert_code(0).assert_stderr_contains("12 ended before");
    assert_eq!(server.finish().len(), 24, "no row ran twice");
    assert_eq!(outcomes(&folder).len(), 12);
}

#[test]
fn no_lease_stays_in_a_record_that_has_ended() {
    let folder = writing("");
    rows(&folder, 40);
    let server = Server::with(Checks::AllowRepeats, |request: &Request| {
        write_then_answer(request).delay(Duration::from_millis(20))
    });
    let start = || folder.legwork(MAP).args(["--isolate", "none", "--jobs", "4"]).anthropic(&server).spawn();
    let with_lease = || {
        let records =
            std::fs::read_dir(folder.at("runs/job/map-rows/rows")).unwrap().flatten().map(|entry| entry.path());
        let is_left = |record: &PathBuf| {
            let names = std::fs::read_dir(record).unwrap().flatten().map(|entry| entry.file_name());
            names.into_iter().any(|name| name.to_string_lossy().starts_with("lease"))
        };
        records.filter(is_left).collect::<Vec<_>>()
    };
    // One is killed when rows have ended, whose leases it hands on.
    let killed = start();
    wait_until(|| folder.exists("runs/job/map-rows/results.jsonl") && results(&folder).len() > 4);
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(!with_lease().is_empty());
    let together: Vec<_> = (0..4).map(|_| start()).collect();
    for ended in together.into_iter().map(RunningProgram::wait) {
        assert!(ended.exited_with(0) || ended.exited_with(75), "{}", ended.full_output());
    }
    start().wait().assert_code(0);
    assert!(with_lease().is_empty(), "{:?}", with_lease());
    assert_eq!(outcomes(&folder).len(), 40);
}

#[test]
fn a_row_that_another_process_is_just_starting_is_no_damaged_one() {
    let folder = writing("");
    rows(&folder, 2);
    let server = Server::with(Checks::AllowRepeats, write_then_answer);
    let start = || folder.legwork(MAP).args(["--isolate", "none"]).anthropic(&server).run();
    // The other process has made and locked the folder of the record, and written nothing yet.
    let record = folder.at("runs/job/map-rows/rows/a0");
    std::fs::create_dir_all(&record).unwrap();
    let lock = std::fs::File::open(&record).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let beside = start();
    beside.assert_code(75);
    assert!(!beside.stderr.contains("isn't a run's record"), "{}", beside.full_output());
    drop(lock);
    start().assert_code(0);
    assert_eq!(outcomes(&folder).len(), 2);
}

#[test]
fn a_row_that_another_process_has_run_gets_no_second_line_while_the_map_runs() {
    let folder = writing("");
    rows(&folder, 3);
    let table = folder.at("runs/job/map-rows/results.jsonl");
    let done = folder.at("done");
    let of_first = OnceLock::new();
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        let inode = || table.metadata().unwrap().ino();
        let of_first = *of_first.get_or_init(inode);
        let waits_for: &dyn Fn() -> bool = match request.prompt().as_str() {
            // The first process ends this row when the second one has found that it is to run, and has written its table.
            "Item a0" => &|| inode() != of_first,
            _ => &|| done.exists(),
        };
        for _ in 0..2_000 {
            if waits_for() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        write_then_answer(request)
    });
    let start = || folder.legwork(MAP).args(["--isolate", "none", "--jobs", "1"]).anthropic(&server).spawn();
    let first = start();
    server.wait_for(1);
    let second = start();
    // Two of a0, and one of each other row: the second process is done with a0 and can't have a1.
    server.wait_for(4);
    // The next row begins while the end of a0 is flushed.
    wait_until(|| !results(&folder).is_empty());
    assert_eq!(results(&folder).into_keys().collect::<Vec<_>>(), ["a0"]);
    folder.write("done", "");
    for running in [first, second] {
        running.wait();
    }
    folder.legwork(MAP).run().assert_code(0);
    assert_eq!(outcomes(&folder).len(), 3);
}

#[test]
fn why_a_row_cannot_run_is_printed_with_quiet_too() {
    let folder = writing("");
    rows(&folder, 1);
    let server = Server::start(write_then_answer);
    folder.write("runs/job/map-rows/rows/a0/notes.txt", "not from legwork");
    let ended = run(&folder, &server, &["--isolate", "none", "--quiet"]);
    ended.assert_code(5).assert_stderr_contains("it contains `notes.txt`, and no run has started in it");
}

#[test]
fn a_signal_ends_all_rows_and_the_same_command_goes_on() {
    let folder = writing("");
    rows(&folder, 6);
    // Every second answer of the first process never ends.
    let hangs = Arc::new(AtomicBool::new(true));
    let is_first = Arc::clone(&hangs);
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| match request.turn() {
        1 if is_first.load(Ordering::SeqCst) => Answer::empty().hang(),
        _ => write_then_answer(request),
    });
    let running = folder.legwork(MAP).args(["--jobs", "3"]).anthropic(&server).spawn();
    server.wait_for(6);
    running.signal(Signal::INT);
    let ended = running.wait();
    ended.assert_code(130).assert_stderr_contains("not started: 3 rows");
    let kept = folder.at("runs/.workspaces/job/map-rows/a0/out/a0.txt");
    assert!(kept.exists(), "a row that continues keeps its workspace");
    hangs.store(false, Ordering::SeqCst);
    let ended = run(&folder, &server, &[]);
    ended.assert_code(0).assert_stderr_contains("0 ended before, 3 to continue, 3 to start");
    assert_eq!(server.count(), 6 + 3 + 6, "the calls of the first rows aren't repeated");
    assert!(!kept.exists());
    let patch = record(&folder, "a0").file("changes.patch");
    assert!(patch.contains("+++ b/out/a0.txt"), "{patch}");
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
}

#[test]
fn rows_survive_kills_at_any_moment_and_have_no_effect_twice() {
    // `>>` shows an effect that happens twice.
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs:\n  item: { type: string }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [bash] }\n",
    );
    rows(&folder, 8);
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match request.turn() {
        0 => {
            let item = request.prompt().trim_start_matches("Item ").to_owned();
            Answer::calls(&[("bash", json!({"command": format!("echo {item} >> log-{item}")}))])
        }
        _ => Answer::text("Done."),
    });
    let start = || folder.legwork(MAP).args(["--isolate", "none", "--jobs", "4"]).anthropic(&server);
    let (mut kills, mut seen) = (0, 0);
    // Each process is killed after a number of events that differs from row to row.
    for events in [1, 2, 3, 5, 4, 6, 2, 7, 3, 9, 1, 8] {
        let ended = start().env("LEGWORK_KILL_AFTER", events.to_string()).run();
        if ended.exited_with(0) {
            break;
        }
        assert_eq!(ended.signal(), Some(9), "{}", ended.full_output());
        kills += 1;
        let listed = folder.list();
        let finished = listed.iter().filter(|name| name.ends_with("result.json")).count();
        assert!(finished >= seen, "a result was lost");
        seen = finished;
    }
    assert!(kills >= 3);
    // And at moments that nothing but the time decides.
    for _ in 0..6 {
        let running = start().spawn();
        let answered = server.count();
        while running.is_alive() && server.count() < answered + 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        running.signal(Signal::KILL);
        running.wait();
    }
    start().run().assert_code(0);
    let all = outcomes(&folder);
    assert_eq!(all.len(), 8);
    assert!(all.values().all(|outcome| outcome == "completed"), "{all:?}");
    for number in 0..8 {
        // A command that was killed just before its effect isn't repeated: the model learns that the effect is unknown.
        let log = std::fs::read_to_string(folder.at(format!("log-a{number}"))).unwrap_or_default();
        assert!(log.is_empty() || log == format!("a{number}\n"), "an effect happened twice: {log}");
        let journal = record(&folder, &format!("a{number}")).file("events.jsonl");
        assert!(!log.is_empty() || journal.contains("Its effect is unknown"), "an effect was lost without a note");
    }
}

#[test]
fn a_limit_holds_for_all_rows_and_processes() {
    let folder = writing("");
    rows(&folder, 30);
    // Each request uses 1,000 tokens.
    let server = Server::start(|request: &Request| write_then_answer(request).usage(900, 100));
    let running: Vec<_> = ["1/3", "2/3", "3/3"]
        .map(|shard| {
            let limit = ["--shard", shard, "--isolate", "none", "--limit", "tokens=40000"];
            folder.legwork(MAP).args(limit).env("LEGWORK_LEDGER_BEAT_MS", "500").anthropic(&server).spawn()
        })
        .into();
    let ended: Vec<_> = running.into_iter().map(RunningProgram::wait).collect();
    assert!(ended.iter().any(|ended| ended.exited_with(4)), "{}", ended[0].full_output());
    let used = server.count();
    assert!(used <= 40, "{used} requests of 1,000 tokens");
    // A row needs up to 2,824 tokens for a turn with a short reply and a final request.
    assert!(used >= 37, "{used}: a row waits for what others have reserved, also in other processes");
    // The spend stays spent.
    let again = run(&folder, &server, &["--limit", "tokens=41000"]);
    again.assert_code(4).assert_stderr_contains("of the map's 41000 tokens");
    assert!(server.count() <= 41);
    // With a higher limit, all rows that can run do.
    let again = run(&folder, &server, &["--limit", "tokens=1000000", "--retry", "failed"]);
    again.assert_code(0);
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
}

#[test]
fn the_command_after_a_limit_also_runs_the_rows_that_reached_it() {
    let folder = writing("");
    rows(&folder, 4);
    let server = Server::start(|request: &Request| write_then_answer(request).usage(900, 100));
    let limited = run(&folder, &server, &["--isolate", "none", "--jobs", "1", "--limit", "tokens=7000"]);
    limited.assert_code(4);
    assert!(outcomes(&folder).values().any(|outcome| outcome == "budget_exceeded"));
    let command = limited.stderr.lines().last().unwrap().strip_prefix("resume: legwork ").unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let resumed = folder.legwork(&words).anthropic(&server).run();
    resumed.assert_code(0).assert_not_printed("resume:");
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
}

#[test]
fn rows_that_reached_a_limit_of_the_map_go_on_when_it_is_higher() {
    let folder = writing("");
    rows(&folder, 6);
    // Each request uses 1,000 tokens.
    let server = Server::start(|request: &Request| write_then_answer(request).usage(900, 100));
    let start = |limit: &str| run(&folder, &server, &["--jobs", "2", "--limit", limit]);
    start("tokens=5000").assert_code(4);
    let ended = |outcome: &str| outcomes(&folder).into_values().filter(|found| found == outcome).count();
    let (completed, stopped) = (ended("completed"), ended("budget_exceeded"));
    assert!(stopped > 0 && completed + stopped < 6, "{completed} completed, {stopped} stopped");
    // Nothing is lost by another try with the same limit.
    let requests = server.count();
    start("tokens=5000")
        .assert_code(4)
        .assert_stderr_contains(&format!("{completed} ended before, {stopped} to continue"));
    assert_eq!((server.count(), ended("completed")), (requests, completed));
    start("tokens=1000000").assert_code(0);
    assert_eq!(ended("completed"), 6);
    assert_only_snapshot_is_left(&folder);
    let patch = |number: usize| record(&folder, &format!("a{number}")).file("changes.patch");
    assert!((0..6).all(|number| patch(number).contains(&format!("b/out/a{number}.txt"))));
    let first = server.finish().iter().filter(|request| request.turn() == 0).count();
    assert_eq!(first, 6, "no row starts again");
}

#[test]
fn a_row_in_its_own_workspace_goes_on_although_the_user_has_committed() {
    let folder = repository_with_subfolder();
    let in_subfolder = |server: &Server, isolation: &str| {
        let options = ["--workspace", "sub", "--isolate", isolation, "--name", isolation];
        run(&folder, server, &options)
    };
    let rejecting = Server::start(|_: &Request| Answer::status(401));
    for isolation in ["copy", "worktree", "none"] {
        in_subfolder(&rejecting, isolation).assert_code(5);
    }
    folder.git(&["commit", "--quiet", "--allow-empty", "--message=more"]);
    let server = Server::start(write_then_answer);
    for isolation in ["copy", "worktree"] {
        in_subfolder(&server, isolation).assert_code(0);
    }
    let shared = in_subfolder(&server, "none");
    shared.assert_code(5).assert_stderr_contains("is at commit").assert_stderr_contains("move its record away");
    shared.assert_not_printed("--fresh");
}

#[test]
fn a_sparse_checkout_with_files_outside_of_it_can_have_worktrees() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/script.yaml\ninputs:\n  item: { type: string }\nparent: { prompt: 'Item {{ inputs.item }}', tools: \
         [bash] }\n",
    );
    let status = json!([{ "tool": "bash", "input": { "command": "echo new > kept/new.txt; git status --short" } }]);
    folder.write("script.yaml", json!({ "parent": [{ "calls": status }, { "text": "Done." }] }).to_string());
    folder.write(".gitignore", "runs/\n").write("kept/x.txt", "x").write("left-out/y.txt", "y");
    folder.commit_all();
    folder.git(&["sparse-checkout", "set", "kept"]);
    folder.write("outside/new.txt", "new");
    rows(&folder, 2);
    folder.legwork(MAP).args(["--isolate", "worktree", "--sandbox", "off"]).run().assert_code(0);
    for id in ["a0", "a1"] {
        let patch = record(&folder, id).file("changes.patch");
        assert!(patch.contains("b/kept/new.txt") && patch.matches("diff --git").count() == 1, "{patch}");
        let transcript = record(&folder, id).transcript();
        assert!(transcript.contains("?? kept/new.txt") && !transcript.contains(" D left-out"), "{transcript}");
    }
}

#[test]
fn a_row_whose_workspace_was_removed_says_how_it_can_start_anew() {
    let folder = writing("");
    rows(&folder, 1);
    let server = Server::start(|_: &Request| Answer::status(401));
    run(&folder, &server, &[]).assert_code(5);
    std::fs::remove_dir_all(folder.at("runs/.workspaces")).unwrap();
    let again = run(&folder, &server, &[]);
    let record = folder.at("runs/job/map-rows/rows/a0");
    again.assert_stderr_contains(
        "its workspace was removed, so it can't continue. Remove its record, and the row starts again: ",
    );
    again.assert_stderr_contains(&record.to_string_lossy());
    run(&folder, &server, &["--quiet"]).assert_stderr_contains("row a0: its workspace was removed");
}

/// The files have other content in git than in the working tree, as those in Git LFS.
#[test]
fn what_git_filters_is_changed_by_rows_and_merged_although_the_user_has_committed() {
    let folder = TestFolder::new();
    let job = "model: replay/script.yaml\ninputs:\n  item: { type: string }\nparent: { prompt: 'Item {{ inputs.item }}', \
               tools: [bash] }\n";
    folder.write("job.yaml", job).write(".gitignore", "runs/\nscript.yaml\n");
    folder.write(".gitattributes", "data/** filter=mark\n").write("data/a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n");
    folder.commit_all();
    folder.git(&["config", "filter.mark.clean", "sed s/^/#/"]);
    folder.git(&["config", "filter.mark.smudge", "sed s/^#//"]);
    folder.git(&["config", "filter.mark.required", "true"]);
    folder.git(&["add", "--renormalize", "."]);
    folder.git(&["commit", "--quiet", "--message=filtered"]);
    assert!(folder.git(&["show", "HEAD:data/a.txt"]).starts_with("#1\n"));
    let command = json!([{ "tool": "bash", "input": { "command": "sed -i s/7/seven/ data/a.txt" } }]);
    folder.write("script.yaml", json!({ "parent": [{ "calls": command }, { "text": "Done." }] }).to_string());
    rows(&folder, 1);
    // Its files aren't in worktrees.
    folder.write("nested/file", "x");
    let nested = |arguments: &[&str]| folder.git(&[&["-C", "nested"], arguments].concat());
    nested(&["init", "--quiet"]);
    nested(&["add", "file"]);
    nested(&["commit", "--quiet", "--message=nested"]);

    // With this variable, git would take the patterns of legwork's own commands for names of files.
    let ended = folder.legwork(MAP).args(["--sandbox", "off"]).env("GIT_LITERAL_PATHSPECS", "1").run();
    ended.assert_code(0).assert_stderr_contains("nested repositories (nested)");
    let patch = record(&folder, "a0").file("changes.patch");
    assert!(patch.contains("\n-7\n+seven\n") && !patch.contains('#'), "{patch}");

    folder.write("data/a.txt", "1\ntwo\n3\n4\n5\n6\n7\n8\n");
    folder.git(&["commit", "--quiet", "--all", "--message=later"]);
    folder.legwork(&["apply", "map-rows"]).run().assert_code(0).assert_stdout_contains("1 applied");
    assert_eq!(folder.read("data/a.txt"), "1\ntwo\n3\n4\n5\n6\nseven\n8\n");
}

#[test]
fn processes_that_are_killed_at_random_use_a_limit_well_and_never_exceed_it() {
    const PROCESSES: usize = 20;
    const KILLS: usize = 20;
    const LIMIT: usize = 160_000;
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nparent: { prompt: 'Item {{ inputs.item \
         }}', tools: [], max_tokens: 1000 }\n",
    );
    rows(&folder, 240);
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    // What was served counts, also if it doesn't arrive.
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        let output = request.max_tokens();
        count.fetch_add(usize::try_from(output).unwrap() + 10, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(30));
        Answer::text("Done.").usage(10, output)
    });
    let start = |process: usize| {
        let shard = format!("{}/{PROCESSES}", process + 1);
        let limit = format!("tokens={LIMIT}");
        let more = ["--isolate", "none", "--jobs", "2", "--shard", &shard, "--limit", &limit];
        folder.legwork(MAP).args(more).env("LEGWORK_LEDGER_BEAT_MS", "200").anthropic(&server).spawn()
    };
    let mut random = 0x5eed_u64;
    println!("seed {random:#x}");
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    let mut running: Vec<_> = (0..PROCESSES).map(start).collect();
    let mut kills = 0;
    for _ in 0..KILLS {
        let victim = next(PROCESSES);
        let until = server.count() + 1 + next(6);
        while server.count() < until && running.iter().any(RunningProgram::is_alive) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let process = running.swap_remove(victim);
        process.signal(Signal::KILL);
        kills += usize::from(process.wait().signal() == Some(9));
        running.push(start(victim));
        let last = running.len() - 1;
        running.swap(victim, last);
    }
    assert!(kills >= KILLS / 2, "{kills} processes were killed while they ran");
    let ended: Vec<_> = running.into_iter().map(RunningProgram::wait).collect();
    for process in &ended {
        assert!([0, 4, 75].iter().any(|code| process.exited_with(*code)), "{}", process.full_output());
    }
    let served = served.load(Ordering::SeqCst);
    println!("{served} of {LIMIT} tokens, {kills} kills");
    assert!(served <= LIMIT, "{served}");
    assert!(served * 10 >= LIMIT * 9, "{served}");
}

#[test]
fn a_map_whose_folder_is_removed_starts_no_more_rows() {
    let folder = writing("");
    rows(&folder, 12);
    let path = folder.at("runs/job/map-rows");
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        if request.number == 2 {
            // Other rows may write to it meanwhile.
            while std::fs::remove_dir_all(&path).is_err() && path.exists() {}
        }
        write_then_answer(request)
    });
    let ended = run(&folder, &server, &["--isolate", "none", "--jobs", "1"]);
    ended.assert_code(5).assert_stderr_contains("the map's folder was removed or replaced while the map ran");
    assert!(ended.stderr.contains("not started: 10 rows") && !ended.stderr.contains("table:"), "{}", ended.stderr);
    assert!(!folder.exists("runs/job/map-rows"), "half a map is left");
    run(&folder, &server, &["--isolate", "none"]).assert_code(0);
    assert_eq!(outcomes(&folder).len(), 12);
}

#[test]
fn results_from_another_machine_are_named() {
    let folder = writing("");
    rows(&folder, 2);
    let server = Server::start(write_then_answer);
    let keyed = |key: &str| {
        let key = format!("a key of many characters: {key}");
        folder.legwork(MAP).args(["--isolate", "none"]).env("LEGWORK_RECORD_KEY", key).anthropic(&server).run()
    };
    keyed("one").assert_code(0);
    let again = keyed("one");
    assert!(!again.stderr.contains("another key"), "{}", again.stderr);
    let foreign = keyed("two");
    foreign.assert_code(0).assert_stderr_contains(
        "the records of 2 ended rows were made on another machine or with another key: a0, a1; their results count",
    );
    server.finish();
}

#[test]
fn a_row_that_cannot_go_on_because_of_its_key_says_what_to_do() {
    let folder = writing("");
    rows(&folder, 2);
    let answers = AtomicUsize::new(0);
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        let is_refused = request.prompt() == "Item a0" && answers.fetch_add(1, Ordering::SeqCst) == 0;
        if is_refused { Answer::status(401) } else { write_then_answer(request) }
    });
    let keyed = |key: &str| {
        let key = format!("a key of many characters: {key}");
        folder.legwork(MAP).args(["--isolate", "none"]).env("LEGWORK_RECORD_KEY", key).anthropic(&server).run()
    };
    keyed("one").assert_code(5);
    let foreign = keyed("two");
    foreign.assert_code(5).assert_stderr_contains("Machines that share runs need the same LEGWORK_RECORD_KEY");
    foreign.assert_stderr_contains("resume: legwork map job.yaml");
    keyed("one").assert_code(0);
}

#[test]
fn what_isnt_from_legwork_in_a_maps_folder_is_named_and_not_waited_for() {
    let folder = writing("");
    rows(&folder, 2);
    let server = Server::with(Checks::AllowRepeats, write_then_answer);
    run(&folder, &server, &["--isolate", "none"]).assert_code(0);
    let map = folder.at("runs/job/map-rows");
    let kept = folder.at("kept");
    let pipe = |path: &Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let link = |path: &Path| std::os::unix::fs::symlink("/tmp", path).unwrap();
    let folder_in_place = |path: &Path| std::fs::create_dir(path).unwrap();
    let large = |path: &Path| std::fs::File::create(path).unwrap().set_len(1 << 30).unwrap();
    type Plant<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Plant<'_>); 9] = [
        ("rows/a0", &pipe),
        ("rows/a0/result.json", &pipe),
        ("rows/a0/result.json", &folder_in_place),
        ("rows/a0/result.json", &large),
        ("rows/a0/events.jsonl", &pipe),
        ("rows", &link),
        ("ledger", &link),
        ("map.json", &pipe),
        ("map.json", &large),
    ];
    for (name, plant) in cases {
        std::fs::rename(map.join(name), &kept).unwrap();
        plant(&map.join(name));
        let ended = folder.legwork(MAP).anthropic(&server).timeout(Duration::from_secs(60)).run();
        let path = map.join(name);
        let is_named = ended.stderr.contains(path.to_str().unwrap()) || name == "rows/a0/result.json";
        assert!(is_named, "{name}\n{}", ended.stderr);
        match name {
            "rows/a0/result.json" => {
                ended.assert_code(0).assert_stderr_contains("the row `a0`: result.json can't be read")
            }
            "rows/a0/events.jsonl" => {
                ended.assert_code(5).assert_stderr_contains("move the record away, and the row starts again")
            }
            _ => {
                assert!(ended.exited_with(2) || ended.exited_with(5), "{name}\n{}", ended.full_output());
                ended.assert_stderr_contains("help: ")
            }
        };
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
        std::fs::rename(&kept, &path).unwrap();
    }
    run(&folder, &server, &[]).assert_code(0);
    assert_eq!(server.count(), 4);
}

#[test]
fn a_limit_of_a_later_start_counts_what_a_killed_start_without_one_has_used() {
    let folder = writing("");
    rows(&folder, 4);
    let answer = |request: &Request| match request.prompt().as_str() {
        "Item a3" => Answer::empty().hang(),
        _ => Answer::text("Done.").usage(900, 100),
    };
    let server = Server::with(Checks::AllowRepeats, answer);
    let map = [MAP, &["--isolate", "none", "--jobs", "1"]].concat();
    let killed = folder.legwork(&map).anthropic(&server).spawn();
    server.wait_for(4);
    folder.wait_for("runs/job/map-rows/rows/a2/result.json");
    killed.signal(Signal::KILL);
    killed.wait();
    let limited = folder.legwork(&map).args(["--limit", "tokens=2500"]).anthropic(&server).run();
    limited.assert_code(4).assert_stderr_contains("3000 of the map's 2500 tokens are used");
    limited.assert_stderr_contains("--jobs 1 --limit tokens=6000");
    assert_eq!(server.count(), 4);
}

#[test]
fn an_id_column_is_the_same_at_each_start() {
    let folder = writing("");
    rows(&folder, 2);
    let server = Server::with(Checks::AllowRepeats, write_then_answer);
    run(&folder, &server, &["--isolate", "none"]).assert_code(0);
    let without = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv"]).anthropic(&server).run();
    without.assert_code(2).assert_stderr_contains("was started with --id item").assert_stderr_contains("Add --id item");
    assert_eq!(server.count(), 4);
}

#[test]
fn a_record_that_cannot_be_used_keeps_only_its_row_from_running() {
    let folder = writing("");
    rows(&folder, 3);
    let server = Server::with(Checks::AllowRepeats, write_then_answer);
    run(&folder, &server, &["--isolate", "none"]).assert_code(0);
    let at = |id: &str| folder.at("runs/job/map-rows/rows").join(id);
    // The record of another row, one without a journal, and one with a damaged result.
    std::fs::rename(at("a0"), at("a3")).unwrap();
    std::fs::write(at("a1").join("events.jsonl"), "").unwrap();
    std::fs::write(at("a2").join("result.json"), "{").unwrap();
    rows(&folder, 4);
    for _ in 0..2 {
        let ended = run(&folder, &server, &[]);
        ended.assert_code(5).assert_stderr_contains("1 can't run");
        ended
            .assert_stderr_contains("the row `a3` can't run: ")
            .assert_stderr_contains("it is the record of the run `a0`");
        // Nobody can tell any more who made the record of a1.
        ended.assert_stderr_contains("were made on another machine or with another key: a1");
        ended.assert_stderr_contains("its journal is used instead");
    }
    assert_eq!(server.count(), 8, "only a0 ran again");
    assert_eq!(outcomes(&folder).get("a2").map(String::as_str), Some("completed"));
    for id in ["a1", "a3"] {
        std::fs::rename(at(id), folder.at(id)).unwrap();
    }
    run(&folder, &server, &[]).assert_code(0);
    assert_eq!(server.count(), 12);
}

#[test]
fn a_file_of_junit_replaces_nothing_in_a_record() {
    let folder = writing("");
    rows(&folder, 1);
    let server = Server::start(write_then_answer);
    let own = "runs/job/map-rows/junit.xml";
    run(&folder, &server, &["--isolate", "none", "--junit", own]).assert_code(0);
    let before = folder.list();
    for name in ["map.json", "results.csv", "rows/a0/events.jsonl", "rows/a0/result.json"] {
        let ended = run(&folder, &server, &["--junit", &format!("runs/job/map-rows/{name}")]);
        ended.assert_code(2).assert_stderr_contains("it is part of a record");
    }
    assert_eq!(folder.list(), before);
    run(&folder, &server, &["--junit", own]).assert_code(0);
    assert_eq!(server.finish().len(), 2);
}

#[test]
fn failures_are_retried_only_if_asked_for_and_can_stop_the_map() {
    let folder = writing("checks: [{ name: good, run: 'test -e good' }]\n");
    rows(&folder, 6);
    let server = Server::start(write_then_answer);
    let ended = run(&folder, &server, &["--isolate", "none", "--jobs", "1", "--max-failures", "2", "--junit", "j.xml"]);
    ended.assert_code(1).assert_stderr_contains("not started: 4 rows").assert_stderr_contains("checks_failed");
    assert!(folder.read("j.xml").contains("<failure"));
    assert_eq!(server.count(), 4);
    folder.write("good", "");
    let ended = run(&folder, &server, &[]);
    ended.assert_code(1).assert_stderr_contains("2 ended before, 0 to continue, 4 to start");
    assert_eq!(server.count(), 12);
    let ended = run(&folder, &server, &["--retry", "failed"]);
    ended.assert_code(0).assert_stderr_contains("4 ended before, 0 to continue, 2 to start");
    assert_eq!(server.count(), 16);
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
    assert!(folder.exists("runs/job/map-rows/rows/a0.1/result.json"), "the earlier record is kept");
    // It doesn't count as another row that the file no longer has.
    folder.write("rows.csv", "item\na2\n");
    let ended = run(&folder, &server, &[]);
    ended
        .assert_code(0)
        .assert_stderr_contains("records of 5 rows that the rows file doesn't have (any more): a0, a1, a3,");
}

#[test]
fn two_processes_that_retry_the_same_rows_run_each_of_them_once() {
    let folder = writing("checks: [{ name: good, run: 'test -e good' }]\n");
    rows(&folder, 2);
    let (retries, first) = (folder.at("retries"), Arc::new(AtomicBool::new(true)));
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        // The first process waits at the first row of its retry until the second one has ended.
        if retries.exists() && first.swap(false, Ordering::SeqCst) {
            for _ in 0..2_000 {
                if !retries.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        write_then_answer(request)
    });
    run(&folder, &server, &["--isolate", "none"]).assert_code(1);
    assert_eq!(server.count(), 4);
    folder.write("retries", "");
    let retry = || folder.legwork(MAP).args(["--retry", "failed", "--jobs", "1"]).anthropic(&server);
    let waiting = retry().spawn();
    server.wait_for(5);
    retry().run().assert_code(75);
    assert_eq!(server.count(), 7, "the second process has run the second row");
    std::fs::remove_file(folder.at("retries")).unwrap();
    waiting.wait().assert_code(1);
    assert_eq!(server.count(), 8, "the first process doesn't run it again");
    assert!(!folder.exists("runs/job/map-rows/rows/a1.2"), "{:?}", folder.list());
}

#[test]
fn rows_that_fail_each_time_do_not_keep_others_from_being_retried() {
    let folder = writing("checks: [{ name: good, run: 'test -e good' }]\n");
    rows(&folder, 4);
    let server = Server::start(write_then_answer);
    let map = |more: &[&str]| {
        let options = ["--isolate", "none", "--jobs", "1", "--max-failures", "2"];
        run(&folder, &server, &[&options[..], more].concat()).assert_code(1).stderr.clone()
    };
    let rows_run = |printed: &str| -> Vec<String> {
        let ended = printed.lines().filter(|line| line.contains("checks_failed:") && line.starts_with('['));
        ended.map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(rows_run(&map(&[])), ["a0", "a1"]);
    for expected in [["a2", "a3"], ["a0", "a1"], ["a2", "a3"]] {
        assert_eq!(rows_run(&map(&["--retry", "failed"])), expected);
    }
    let last = run(&folder, &server, &["--isolate", "none", "--jobs", "1", "--max-failures", "3", "--retry", "failed"]);
    last.assert_stderr_contains("not started: 1 row; the same command continues the map");
}

#[test]
fn a_time_limit_stops_the_map_and_it_goes_on() {
    let folder = writing("");
    rows(&folder, 3);
    let hanging = Server::with(Checks::AllowRepeats, |_: &Request| Answer::empty().hang());
    let ended = run(&folder, &hanging, &["--limit", "wall_clock=1s", "--isolate", "none"]);
    ended.assert_code(4).assert_stderr_contains("the time of the map is up");
    let server = Server::with(Checks::AllowRepeats, write_then_answer);
    run(&folder, &server, &[]).assert_code(0).assert_stderr_contains("3 to continue");
    assert!(outcomes(&folder).values().all(|outcome| outcome == "completed"));
}

#[test]
fn map_and_gather_end_with_the_same_code_and_leave_out_what_was_set_aside() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs:\n  item: { type: string }\nparent: { prompt: 'Item {{ inputs.item }}', \
         tools: [write_file], max_turns: 2 }\nchecks: [{ name: good, run: 'test -e good' }]\n",
    );
    // With the number of an earlier record, the name of the first one is longer than an id may be.
    let long = format!("a0{}", "x".repeat(98));
    folder.write("rows.csv", format!("item\n{long}\na1\na2\n"));
    // The last row never comes to an end.
    let server = Server::start(|request: &Request| match request.prompt() == "Item a2" {
        true => {
            let path = format!("out/{}.txt", request.turn());
            Answer::calls(&[("write_file", json!({"path": path, "content": "x"}))])
        }
        false => write_then_answer(request),
    });
    let gather = |more: &[&str]| folder.legwork(&["gather", "runs/job/map-rows", "--format", "json"]).args(more).run();
    let agree = |more: &[&str], code: i32| {
        run(&folder, &server, more).assert_code(code);
        // Without anything to run, the same command says the same.
        run(&folder, &server, &[]).assert_code(code);
        for rows in [&[][..], &["--rows", "rows.csv", "--id", "item"]] {
            let gathered = gather(rows);
            gathered.assert_code(code);
            assert_eq!((&gathered.json()["rows"], &gathered.json()["problems"]), (&json!(3), &json!([])));
        }
    };
    agree(&["--isolate", "none", "--jobs", "1"], 1);
    folder.write("good", "");
    agree(&["--retry", "failed"], 4);
    agree(&["--retry", "failed"], 4);
    assert!(folder.exists("runs/job/map-rows/rows/a2.2/result.json"), "the earlier records are kept");
    let applied = folder.legwork(&["apply", "map-rows", "--check", "--format", "json"]).run().json();
    let named: Vec<&str> = applied["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(named, [&long, "a1", "a2"]);
    assert!(folder.exists(&format!("runs/job/map-rows/rows/{long}.1/result.json")));
    server.finish();
}

#[test]
fn the_cost_of_a_row_that_was_killed_is_part_of_the_totals() {
    let folder = writing("");
    rows(&folder, 2);
    let hangs = std::sync::atomic::AtomicBool::new(true);
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| match request.turn() {
        1 if request.prompt() == "Item a1" && hangs.swap(false, std::sync::atomic::Ordering::SeqCst) => {
            Answer::empty().hang()
        }
        _ => write_then_answer(request).usage(1_000, 100),
    });
    let running = folder.legwork(MAP).args(["--isolate", "none"]).anthropic(&server).spawn();
    server.wait_for(4);
    while !folder.exists("runs/job/map-rows/rows/a0/result.json") {
        assert!(running.is_alive());
        std::thread::sleep(Duration::from_millis(2));
    }
    running.signal(Signal::KILL);
    running.wait();
    let gathered = folder.legwork(&["gather", "runs/job/map-rows", "--format", "json"]).run();
    gathered.assert_code(75);
    // Three answers of $0.0015. What the fourth request has cost isn't known, so what was reserved for it counts.
    let totals = gathered.json();
    let reserved = totals["cut_off_requests"]["reserved_cost_usd"].as_f64().unwrap();
    assert!(totals["cut_off_requests"]["count"] == 1 && reserved > 0.04, "{totals}");
    let cost = totals["cost_usd"].as_f64().unwrap();
    assert!((cost - 0.0045 - reserved).abs() < 1e-6 && totals["rows_of_unknown_cost"] == 0, "{totals}");
    assert!(totals["usage"]["input_tokens"].as_u64().unwrap() > 3_000, "{totals}");
    // The list, the map's rows and its tables agree.
    let unfinished = |name: &str| {
        let lines = folder.read(&format!("runs/job/map-rows/{name}"));
        lines.lines().find(|line| line.contains("unfinished")).map(ToOwned::to_owned)
    };
    let listed = folder.legwork(&["runs", "--format", "json"]).run().json();
    assert_eq!((&listed["runs"][0]["cost_usd"], &listed["runs"][0]["usage"]), (&totals["cost_usd"], &totals["usage"]));
    assert_eq!(listed["runs"][0]["cut_off_requests"], totals["cut_off_requests"]);
    assert_eq!(crate::support::journal::list_error(&listed), None);
    folder.legwork(&["runs"]).run().assert_stdout_contains("$0.0");
    let shown = folder.legwork(&["show", "job/map-rows"]).run();
    shown.assert_code(0).assert_stderr_contains("`legwork gather runs/job/map-rows` writes them again");
    assert!(unfinished("results.csv").unwrap().contains(&format!(",{reserved},")));
    assert!(unfinished("results.jsonl").unwrap().contains("\"state\":\"unfinished\""));
    // The figures of the next start contain it from the beginning to the end.
    let ended = folder.legwork(MAP).args(["--isolate", "none"]).anthropic(&server).run();
    ended.assert_code(0).assert_stderr_contains("reserved for 1 request that was cut off");
    let line = |words: &str| ended.stderr.lines().find(|line| line.contains(words)).unwrap().to_owned();
    assert!(line("so far").contains("so far $0.05, including $0.0"), "{}", ended.stderr);
    assert!(line("2 completed").contains("about $0.047"), "{}", ended.stderr);
    let listed = folder.legwork(&["runs", "--format", "json"]).run().json();
    assert_eq!(listed["runs"][0]["cut_off_requests"]["reserved_cost_usd"], reserved, "{listed}");
    let table = folder.read("runs/job/map-rows/results.csv");
    assert!(table.lines().next().unwrap().contains(",cost_usd,reserved_cost_usd,"), "{table}");
    assert_eq!(table.matches(&format!(",{reserved},")).count(), 1, "{table}");
}

/// Rows that each run this command without a sandbox.
fn commanding(command: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\ninputs: { item: { type: string } }\nparent: { prompt: Go., tools: [bash] }\n",
    );
    let command = serde_json::to_string(command).unwrap();
    folder.write(
        "r.yaml",
        format!("parent:\n  - calls: [{{ tool: bash, input: {{ command: {command} }} }}]\n  - text: done\n"),
    );
    folder
}

#[test]
fn what_commands_put_in_place_of_the_files_of_a_map_is_not_written_to() {
    let map = "runs/job/map-rows";
    for (name, plant) in [
        ("a link", format!("ln -sfn $PWD/../home/victim {map}/results.jsonl")),
        ("a hard link", format!("rm -f {map}/results.jsonl; ln ../home/victim {map}/results.jsonl")),
        ("a pipe", format!("rm -f {map}/results.jsonl; mkfifo {map}/results.jsonl")),
        ("a folder behind a link", format!("mv {map}/ledger ledger && ln -s $PWD/../home/folder {map}/ledger")),
        (
            "other tables",
            format!("for name in results.csv report.html; do ln -sfn $PWD/../home/victim {map}/$name; done"),
        ),
    ] {
        let folder = commanding(&format!("mkdir planted 2>/dev/null && {{ {plant}; }}; true"));
        std::fs::create_dir(folder.home().join("folder")).unwrap();
        std::fs::write(folder.home().join("victim"), "mine\n").unwrap();
        rows(&folder, 3);
        let ended = folder.legwork(MAP).args(["--sandbox", "off", "--isolate", "none", "--jobs", "1"]).run();
        ended.assert_code(0);
        assert_eq!(std::fs::read_to_string(folder.home().join("victim")).unwrap(), "mine\n", "{name}");
        assert_eq!(std::fs::read_dir(folder.home().join("folder")).unwrap().count(), 0, "{name}");
        let lines = folder.read(&format!("{map}/results.jsonl"));
        assert_eq!(lines.lines().count(), 3, "{name}");
        assert!(!folder.at(format!("{map}/results.jsonl")).is_symlink(), "{name}");
    }
}

#[test]
fn what_git_ignores_in_the_workspace_of_a_row_is_named() {
    let folder = writing("");
    folder.write(".gitignore", "runs/\nout/\n*.log\n*.pyc\n.venv/\n").write("kept.txt", "x");
    folder.commit_all();
    rows(&folder, 2);
    // What tools keep for themselves isn't named.
    let server = Server::start(|request: &Request| match request.turn() {
        0 => {
            let paths = ["out/a.txt", "src/__pycache__/a.pyc", ".venv/pyvenv.cfg"];
            let call = |path: &&str| ("write_file", json!({ "path": path, "content": "x" }));
            Answer::calls(&paths.iter().map(call).collect::<Vec<_>>())
        }
        _ => Answer::text("Written."),
    });
    for isolate in ["worktree", "copy"] {
        let ended = run(&folder, &server, &["--isolate", isolate, "--name", isolate]);
        ended.assert_code(0);
        ended
            .assert_stderr_contains("row a0: git ignores what the row made here")
            .assert_stderr_contains("workspace: out/");
        let result = folder.read(&format!("runs/job/{isolate}/rows/a0/result.json"));
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!((&result["changes_ignored"], &result["changed_files"]), (&json!(["out/"]), &json!(0)), "{isolate}");
        assert!(!ended.stderr.contains("__pycache__"), "{}", ended.stderr);
    }
    // Where the files stay, nothing is lost.
    let ended = run(&folder, &server, &["--isolate", "none", "--name", "none"]);
    ended.assert_code(0);
    assert!(!ended.stderr.contains("git ignores"), "{}", ended.stderr);
}

#[test]
fn rows_wait_while_the_provider_is_down_and_go_on_when_it_is_back() {
    let folder = writing("");
    rows(&folder, 12);
    let failures = AtomicUsize::new(0);
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| {
        match failures.fetch_add(1, Ordering::SeqCst) >= 60 {
            true => write_then_answer(request),
            false => Answer::status(503),
        }
    });
    let program =
        folder.legwork(MAP).args(["--jobs", "4", "--isolate", "none", "--max-failures", "1"]).anthropic(&server);
    let ended = program.env("LEGWORK_RETRY_BASE_MS", "1").env("LEGWORK_OUTAGE_MS", "36000").run();
    ended.assert_code(0).assert_stderr_contains("while the provider fails, no row starts");
    for number in 0..12 {
        assert_eq!(folder.read(&format!("out/a{number}.txt")), format!("a{number}"));
    }
    assert_eq!(folder.read("runs/job/map-rows/results.jsonl").lines().count(), 12);
}

#[test]
fn a_map_whose_provider_stays_down_ends_with_75_and_most_rows_never_start() {
    let folder = writing("");
    rows(&folder, 60);
    let server = Server::with(Checks::AllowRepeats, |_: &Request| Answer::status(503));
    let program = folder.legwork(MAP).args(["--jobs", "4", "--isolate", "none"]).anthropic(&server);
    let ended = program.env("LEGWORK_RETRY_BASE_MS", "1").env("LEGWORK_OUTAGE_MS", "2000").run();
    ended.assert_code(75).assert_stderr_contains("the provider hasn't replied").assert_stderr_contains("not started: ");
    let begun = std::fs::read_dir(folder.at("runs/job/map-rows/rows")).unwrap().count();
    assert!(begun <= 4, "{begun}");
    // The same command continues all of them.
    let server = Server::start(write_then_answer);
    run(&folder, &server, &["--jobs", "4", "--isolate", "none"]).assert_code(0);
}

/// Of an address that nobody has ever answered at.
#[test]
fn a_map_that_never_reaches_its_provider_ends_soon_and_says_what_to_check() {
    let folder = writing("");
    rows(&folder, 60);
    // A bound socket that doesn't listen: its port can't be taken, and refuses connections.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}", socket.local_addr().unwrap().port());
    let program =
        folder.legwork(MAP).args(["--jobs", "4", "--isolate", "none"]).env("ANTHROPIC_API_KEY", "sk-ant-test");
    let program = program.env("ANTHROPIC_BASE_URL", &url);
    // An outage may last for ten minutes, and the harness waits for less.
    let ended = program.env("LEGWORK_RETRY_BASE_MS", "1").env("LEGWORK_OUTAGE_MS", "600000").run();
    ended
        .assert_code(75)
        .assert_stderr_contains("stopped: no row has reached the provider for 20 seconds: can't connect to");
    ended.assert_stderr_contains("not started: 60 rows");
}

#[test]
fn a_provider_that_refuses_the_first_rows_for_all_ends_the_map_and_one_that_refuses_a_prompt_does_not() {
    let page = || {
        let body = "<html>not here</html>";
        let head = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\nconnection: close\r\n";
        Answer::raw(format!("{head}content-length: {}\r\n\r\n{body}", body.len()))
    };
    let unknown = || Answer::status(401);
    for (what, answer) in
        [("a page", Box::new(page) as Box<dyn Fn() -> Answer + Send + Sync>), ("a key", Box::new(unknown))]
    {
        let folder = writing("");
        rows(&folder, 60);
        let server = Server::with(Checks::AllowRepeats, move |_: &Request| answer());
        let ended = run(&folder, &server, &["--jobs", "2", "--isolate", "none"]);
        ended
            .assert_code(5)
            .assert_stderr_contains("stopped: the provider refuses every row, and has replied to none: ");
        ended.assert_stderr_contains("help:   ");
        let begun = std::fs::read_dir(folder.at("runs/job/map-rows/rows")).unwrap().count();
        assert!((3..=4).contains(&begun), "{what}: {begun}");
        let server = Server::start(write_then_answer);
        run(&folder, &server, &["--jobs", "4", "--isolate", "none"]).assert_code(0);
    }
    let folder = writing("");
    rows(&folder, 8);
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| Answer::status(400));
    run(&folder, &server, &["--jobs", "2", "--isolate", "none"]).assert_code(5);
    assert_eq!(std::fs::read_dir(folder.at("runs/job/map-rows/rows")).unwrap().count(), 8);
}

#[test]
fn a_map_whose_script_cannot_be_read_is_refused_before_its_rows() {
    let folder = writing("");
    rows(&folder, 3);
    folder.write("other.yaml", "parent:\n  - calls: [{ tool: bash, input: {} }]\n").write("bad.yaml", "parent: 1\n");
    std::fs::create_dir(folder.at("record")).unwrap();
    for (script, code, why) in [
        ("gone.yaml", 3, "no such file or folder"),
        ("bad.yaml", 3, "expected a list, found the integer 1"),
        ("other.yaml", 3, "the parent has no tool `bash`"),
        ("record", 2, "isn't a run's record"),
    ] {
        let model = format!("replay/{script}");
        let ended = folder.legwork(MAP).args(["--isolate", "none", "--model", &model]).run();
        ended.assert_code(code).assert_stdout("").assert_stderr_contains(script).assert_stderr_contains(why);
        assert!(!folder.exists("runs"), "{script}");
    }
}

#[test]
fn a_map_with_fewer_descriptors_than_one_row_needs_is_refused_before_the_first_row() {
    let folder = commanding("true");
    rows(&folder, 3);
    for most in ["20", "40", "63"] {
        let line = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
        let shell = folder.program("/bin/bash", &["-c", &line, env!("CARGO_BIN_EXE_legwork")]);
        let ended = shell.args(MAP).args(["--sandbox", "off", "--isolate", "none"]).run();
        ended.assert_code(5).assert_stderr_contains(&format!("at most {most} files can be open at once here"));
        ended.assert_stderr_contains("ulimit -n 1024");
        assert!(!folder.exists("runs/job/map-rows"), "{most}");
    }
    let line = "ulimit -n 64 && exec \"$0\" \"$@\"";
    let shell = folder.program("/bin/bash", &["-c", line, env!("CARGO_BIN_EXE_legwork")]);
    shell.args(MAP).args(["--sandbox", "off", "--isolate", "none"]).run().assert_code(0);
}

#[test]
fn no_more_rows_run_at_once_than_there_are_descriptors_for() {
    let folder = commanding("true");
    rows(&folder, 60);
    let line = "ulimit -n 256 && exec \"$0\" \"$@\"";
    let shell = folder.program("/bin/bash", &["-c", line, env!("CARGO_BIN_EXE_legwork")]);
    let ended = shell.args(MAP).args(["--sandbox", "off", "--isolate", "none", "--jobs", "60"]).run();
    ended.assert_code(0).assert_stderr_contains("the limit of open files (see `ulimit -n`) allows no more");
    assert_eq!(folder.read("runs/job/map-rows/results.jsonl").lines().count(), 60);
}

/// A `PATH` without bubblewrap, but with git.
#[cfg(target_os = "linux")]
fn path_with_git(folder: &TestFolder) -> std::path::PathBuf {
    use crate::boundary::sandbox::path_without_bwrap;
    use crate::support::bubblewrap::find_program;

    let programs = path_without_bwrap(folder);
    std::os::unix::fs::symlink(find_program("git").unwrap(), programs.join("git")).unwrap();
    programs
}

#[cfg(target_os = "linux")]
#[test]
fn a_row_that_may_write_above_the_workspace_is_not_blamed_for_the_worktrees_of_others() {
    for tier in ["auto", "landlock"] {
        let folder = TestFolder::new();
        folder.write(
            "job.yaml",
            "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nparent: { prompt: 'Item {{ inputs.item }}', tools: [bash] }\n",
        );
        folder.commit_all();
        rows(&folder, 4);
        let above = folder.home().parent().unwrap().to_owned();
        let go = above.join("go");
        let wait = format!("until [ -e {} ]; do sleep 0.02; done; echo waited", go.display());
        // The key that signs records is in a folder that commands may write to.
        let (home, leaked) = (folder.home().display().to_string(), above.join("leaked"));
        let key_file = format!("{home}/.local/state/legwork/record.key");
        let steal =
            format!("grep . {key_file} > {0} || rm {0}; mv {home}/.local {home}/l; rm -f {key_file}", leaked.display());
        // The first row's command runs while other rows start and end, and those end their runs after it.
        let server = Server::start(move |request: &Request| {
            let bash = |command: &str| Answer::calls(&[("bash", json!({ "command": command }))]);
            match (request.prompt().as_str(), request.turn()) {
                ("Item a0", 0) => bash(&wait),
                ("Item a1", 0) if tier == "auto" => bash(&format!("echo x > new; {steal}; true")),
                ("Item a1" | "Item a2", 0) => bash("echo x > new"),
                ("Item a3", 0) => {
                    std::fs::write(&go, "").unwrap();
                    bash("echo x > new")
                }
                _ => Answer::text("Done."),
            }
        });
        let allow = ["--jobs", "2", "--allow-write", above.to_str().unwrap(), "--allow-write", &home];
        // Git isn't taken from a folder that commands may write to, either.
        let programs = TestFolder::new();
        let key = "0123456789abcdef0123456789abcdef";
        let mut program = folder.legwork(MAP).args(allow).anthropic(&server);
        if tier == "landlock" {
            program = program.env("PATH", path_with_git(&programs));
        }
        // Only bubblewrap can hide the key's file there.
        let hides = tier == "auto" && bubblewrap_works();
        if !hides {
            program = program.env("LEGWORK_RECORD_KEY", key);
        }
        program.run().assert_code(0);
        if hides {
            assert!(!leaked.exists() && std::fs::read(&key_file).is_ok_and(|key| !key.is_empty()));
            folder
                .legwork(MAP)
                .args(allow)
                .anthropic(&server)
                .run()
                .assert_code(0)
                .assert_stderr_contains("4 ended before");
        }
        assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1, "{tier}");
        assert!(!folder.exists("runs/.workspaces"), "{tier}: {:?}", folder.list());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_is_not_blamed_for_the_worktrees_of_a_map_in_the_same_repository() {
    for tier in ["auto", "landlock"] {
        let folder = writing("");
        folder.write("run.yaml", "model: replay/run.script.yaml\nparent: { prompt: Go., tools: [bash] }\n");
        let wait =
            json!({ "tool": "bash", "input": { "command": "echo > started; until [ -e go ]; do sleep 0.02; done" } });
        folder.write("run.script.yaml", json!({ "parent": [{ "calls": [wait] }, { "text": "Done." }] }).to_string());
        folder.write(".gitignore", "runs/\n").commit_all();
        rows(&folder, 3);
        let mut program = folder.legwork(&["run", "run.yaml", "--out", "../home/runs"]);
        if tier == "landlock" {
            program = program.env("PATH", path_with_git(&folder));
        }
        let running = program.spawn();
        folder.wait_for("started");
        let server = Server::start(write_then_answer);
        run(&folder, &server, &[]).assert_code(0);
        folder.write("go", "");
        running.wait().assert_code(0).assert_stdout("Done.\n");
        assert_eq!(folder.git(&["worktree", "list"]).lines().count(), 1, "{tier}");
    }
}
