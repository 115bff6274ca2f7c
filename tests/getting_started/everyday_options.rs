//! `--quiet`, and jobs from standard input.

use serde_json::json;

use crate::running::runs::folder_with;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/r.yaml\nparent: { prompt: Go., tools: [glob] }\n";
const SCRIPT: &str = "parent:\n  - calls: [{ tool: glob, input: { pattern: '*' } }]\n  - text: Done.\n";

fn scripted() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("r.yaml", SCRIPT);
    folder
}

#[test]
fn a_quiet_run_prints_its_answer_and_nothing_else() {
    let folder = scripted();
    folder.legwork(&["run", "job.yaml", "--quiet"]).run().assert_code(0).assert_stdout("Done.\n").assert_stderr("");
    folder.legwork(&["run", "job.yaml", "-q", "--key", "k"]).run().assert_code(0).assert_stderr("");
    folder
        .legwork(&["run", "job.yaml", "-q", "--key", "k"])
        .run()
        .assert_code(0)
        .assert_stdout("Done.\n")
        .assert_stderr("");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0).assert_stderr_contains("record: runs/job/");
    folder
        .write("rows.csv", "id\na\nb\n")
        .write("map.yaml", format!("inputs: {{ id: {{ type: string, default: x }} }}\n{JOB}"));
    folder.write("map.yaml", folder.read("map.yaml").replace("Go.", "'Go {{ inputs.id }}.'"));
    folder.legwork(&["map", "map.yaml", "--rows", "rows.csv", "--quiet"]).run().assert_code(0).assert_stderr("");
}

#[test]
fn a_quiet_run_says_what_is_wrong() {
    let folder = folder_with("parent: { prompt: Go., tools: [glob], max_turns: 1 }\n");
    let warned = folder.legwork(&["run", "job.yaml", "-q", "--dry-run"]).run();
    warned.assert_code(0).assert_stderr_contains("warning[no-cost-limit]");
    let call = || Answer::calls(&[("glob", json!({ "pattern": "*" }))]);
    let server = Server::start(ScriptedAgents::of([call(), Answer::text("Cut.")]));
    let ended = folder.legwork(&["run", "job.yaml", "-q"]).anthropic(&server).run();
    ended
        .assert_code(4)
        .assert_stderr_contains("turn_limit")
        .assert_not_printed("record:")
        .assert_not_printed("started");
    folder.legwork(&["resume", "latest", "-q"]).run().assert_code(4).assert_stderr_contains("turn_limit");
    folder.write("map.yaml", "inputs: { id: { type: string } }\nmodel: replay/none.yaml\nparent: { prompt: 'Go {{ inputs.id }}.', tools: [glob], max_turns: 1 }\n");
    folder
        .write("none.yaml", "parent:\n  - calls: [{ tool: glob, input: { pattern: '*' } }]\n  - text: Cut.\n")
        .write("rows.csv", "id\na\n");
    let map = folder.legwork(&["map", "map.yaml", "--rows", "rows.csv", "--id", "id", "-q"]).run();
    map.assert_stderr_contains("turn_limit").assert_not_printed("[1/1]").assert_not_printed("report.html");
    folder.legwork(&["run", "gone.yaml", "-q"]).run().assert_code(3).assert_stderr_contains("no such file");
}

#[test]
fn a_job_is_read_from_standard_input() {
    let folder = scripted();
    let ended = folder.legwork(&["run", "-"]).stdin(JOB).run();
    ended.assert_code(0).assert_stdout("Done.\n").assert_stderr_contains("record: runs/stdin/");
    let record = ended.run_folder_in("runs/stdin");
    assert_eq!(record.file("job.yaml"), JOB);
    // Prompts, scripts and the job's name are those of the name that is given.
    folder.write("jobs/p.md", "From a file.").write("jobs/r.yaml", "parent: [{ text: Named. }]\n");
    let named = JOB.replace("Go.", "{ file: p.md }");
    let run = ["run", "-", "--stdin-name", "jobs/greet.yaml"];
    let ended = folder.legwork(&run).stdin(named.as_str()).run();
    ended.assert_code(0).assert_stdout("Named.\n");
    assert_eq!(ended.run_folder_in("runs/greet").plan()["parent"]["prompt"], "From a file.");
    let wrong = folder.legwork(&run).stdin("model: replay/r.yaml\nparent: { prompt: x, tools: [glb] }\n").run();
    wrong.assert_code(3).assert_stderr_contains("jobs/greet.yaml:2:");
    folder
        .legwork(&["run", "-", "--dry-run"])
        .stdin(JOB)
        .run()
        .assert_code(0)
        .assert_stdout_contains("job         stdin");
    folder.legwork(&["run", "-"]).run().assert_code(3);
    folder.legwork(&["run", "-"]).stdin("a\0b").run().assert_code(3);
    // The same job again is the same run.
    for _ in 0..2 {
        folder.legwork(&["run", "-", "--key", "k"]).stdin(JOB).run().assert_code(0).assert_stdout("Done.\n");
    }
}

#[test]
fn what_standard_input_cannot_be_is_refused() {
    let folder = scripted();
    for (arguments, expected) in [
        (&["run", "job.yaml", "--stdin-name", "x.yaml"][..], "--stdin-name needs `-` as the job"),
        (&["run", "-", "--set", "a=@-"], "can't be both the job and the value of an input"),
        (&["run", "-", "--save-case", "x"], "--save-case needs a job file"),
        (&["map", "-", "--rows", "-"], "can't be both the job and the rows"),
    ] {
        folder.legwork(arguments).stdin(JOB).run().assert_code(2).assert_stderr_contains(expected);
    }
}

#[test]
fn a_file_named_by_the_job_from_standard_input_is_protected() {
    let folder = TestFolder::new();
    let write = "parent: [{ calls: [{ tool: write_file, input: { path: job.yaml, content: x } }] }, { text: Done. }]\n";
    folder.write("r.yaml", write);
    let job = JOB.replace("glob", "write_file");
    folder.legwork(&["run", "-", "--stdin-name", "job.yaml"]).stdin(job.as_str()).run().assert_code(0);
    assert!(!folder.exists("job.yaml"));
}

#[test]
fn commands_end_in_filters_that_need_no_rule() {
    let folder = folder_with("parent: { prompt: Go., tools: [bash: { allow: [\"printf *\"] }] }\n");
    let bash = |command: &str| ("bash", json!({ "command": command }));
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[
            bash("printf 'b:1\\na:2\\n' | grep -v b | cut -d: -f2 | tr 2 3 | cat -n | nl"),
            bash("printf x | grep -r x"),
            bash("printf x | cat job.yaml"),
        ]),
        Answer::text("Done."),
    ]));
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    let results = server.finish().last().unwrap().results();
    assert!(!results[0].is_error && results[0].text.split_whitespace().eq(["1", "1", "3"]), "{}", results[0].text);
    for result in &results[1..] {
        assert!(result.is_error && result.text.contains("matches no rule"), "{}", result.text);
    }
}
