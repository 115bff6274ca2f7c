//! `--limit`: limits on the command line, and runs that resume after a limit ended them.

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::running::run_failures::assert_complete_record;
use crate::running::runs::folder_with;
use crate::support::server::{Answer, Checks, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// The text about the limit in the final request.
const FINAL_REQUEST_TEXT: &str = "The work ends here";

fn glob() -> (&'static str, Value) {
    ("glob", json!({"pattern": "*"}))
}

fn scripted(job: &str, script: &Value) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", format!("model: replay/r.yaml\n{job}")).write("r.yaml", script.to_string());
    folder
}

#[test]
fn an_override_replaces_the_jobs_limit_in_plan_and_record() {
    let folder = folder_with(
        "parent:\n  prompt: Go.\n  tools: [task, glob]\nsubagents:\n  explorer: { tools: [glob] }\nlimits: { tokens: 1000 }\n",
    );
    let given = [
        "tokens=70000",
        "cost_usd=5",
        "wall_clock=1h30m",
        "tool_calls=none",
        "limits.subagents=7",
        "parallel_subagents=2",
        "max_turns=3",
        "explorer.max_turns=4",
    ];
    let line = |first: &[&'static str]| {
        let limits = given.iter().flat_map(|limit| ["--limit", limit]);
        first.iter().copied().chain(limits).collect::<Vec<_>>()
    };
    let planned = |plan: &Value| {
        assert_eq!(
            plan["limits"],
            json!({"cost_usd": 5.0, "tokens": 70000, "wall_clock_ms": 5_400_000, "tool_calls": null, "subagents": 7,
                   "parallel_subagents": 2})
        );
        assert_eq!((&plan["parent"]["max_turns"], &plan["subagents"]["explorer"]["max_turns"]), (&json!(3), &json!(4)));
    };
    let dry = folder.legwork(&line(&["run", "job.yaml", "--dry-run", "--format", "json"])).run();
    planned(&dry.assert_code(0).assert_not_printed("no-cost-limit").json());
    let server = Server::start(ScriptedAgents::of([Answer::text("Done.")]));
    let ended = folder.legwork(&line(&["run", "job.yaml"])).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    planned(&ended.run_folder().plan());
}

#[test]
fn an_invalid_limit_is_rejected_with_the_expected_form() {
    let folder = folder_with("parent: { prompt: Go., tools: [task] }\nsubagents: { explorer: { tools: [] } }\n");
    let server = Server::start(ScriptedAgents::of([]));
    for (given, message, hint) in [
        ("cost=5", "--limit cost: there is no such limit", "cost_usd"),
        ("max_turn=5", "--limit max_turn: there is no such limit", "Did you mean `max_turns`?"),
        ("explorr.max_turns=5", "there is no such limit", "Did you mean `explorer.max_turns`?"),
        ("cost_usd=$5", "`$5` isn't valid for `cost_usd`", "US dollars, a number greater than 0, or none"),
        ("cost_usd=-1", "isn't valid for `cost_usd`", "greater than 0"),
        ("cost_usd=inf", "isn't valid for `cost_usd`", "greater than 0"),
        ("tokens=0", "isn't valid for `tokens`", "a whole number from 1 up, or none"),
        ("tokens=1.5", "isn't valid for `tokens`", "a whole number from 1 up, or none"),
        ("wall_clock=20", "`20` isn't a duration", "90s, 20m or 1h30m"),
        ("max_turns=none", "isn't valid for `max_turns`", "a whole number from 1 to 10000"),
        ("parallel_subagents=0", "isn't valid for `parallel_subagents`", "from 1 to 1000"),
        ("tokens", "expected NAME=...", ""),
    ] {
        let ended = folder.legwork(&["run", "job.yaml", "--limit", given]).anthropic(&server).run();
        ended.assert_code(2).assert_stdout("").assert_stderr_contains(message).assert_stderr_contains(hint);
        assert!(!folder.exists("runs"), "{given}");
    }
    // An unknown cost has no bound.
    folder.write(
        "job.yaml",
        "model: anthropic/claude-unheard-of # legwork: allow unknown-model\nparent: { prompt: Go., tools: [] }\n",
    );
    let ended = folder.legwork(&["run", "job.yaml", "--limit", "cost_usd=5", "--dry-run"]).run();
    assert!(!ended.exited_with(0), "{}", ended.full_output());
}

#[test]
fn a_run_out_of_turns_resumes_with_a_higher_limit() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [glob]\n  max_turns: 2\n");
    let server = Server::with(
        Checks::AllowRepeats,
        ScriptedAgents::of([
            Answer::calls(&[glob()]).usage(100, 10),
            Answer::calls(&[glob()]).usage(200, 10),
            Answer::text("Two turns.").usage(300, 10),
            Answer::calls(&[glob()]).usage(400, 10),
            Answer::text("Done.").usage(500, 10),
        ]),
    );
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(4).assert_stdout("Two turns.\n");
    let run = folder.records().remove(0);
    let resume = |arguments: &[&str]| folder.legwork(&["resume", "latest"]).args(arguments).anthropic(&server).run();
    resume(&[])
        .assert_code(4)
        .assert_stdout("")
        .assert_stderr_contains("has ended: turn_limit")
        .assert_stderr_contains("2 of 2 turns are used")
        .assert_stderr_contains(&format!(
            "legwork resume runs/job/{} --limit max_turns=4",
            run.file_name().unwrap().to_str().unwrap()
        ));
    for other in ["max_turns=2", "max_turns=1", "tokens=5"] {
        let refused = resume(&["--limit", other]);
        refused
            .assert_code(2)
            .assert_stdout("")
            .assert_stderr_contains("ended at its limit `max_turns`")
            .assert_stderr_contains("--limit max_turns=4");
    }
    assert_eq!(server.count(), 3);

    let ended = resume(&["--limit", "max_turns=4"]);
    ended.assert_code(0).assert_stdout("Done.\n");
    let record = ended.run_folder();
    assert_complete_record(&record);
    let result = record.result();
    assert_eq!((&result["outcome"], &result["turns"]), (&json!("completed"), &json!(4)));
    assert_eq!(result["usage"]["input_tokens"], 1_500, "the request to sum up counts");
    let requests = server.finish();
    assert!(requests[2].last_text().contains(FINAL_REQUEST_TEXT));
    let (asked, closing) = (requests[3].messages(), requests[2].messages());
    assert_eq!((asked.len(), &asked[..4]), (5, &closing[..4]), "as if it hadn't been asked to sum up");
    let blocks = |message: &Value| message["content"].as_array().unwrap().len();
    assert_eq!((blocks(&asked[4]), blocks(&closing[4])), (1, 2), "{asked:?}");
    let events = record.events();
    let resumed = events.iter().find(|event| event["type"] == "resumed").unwrap();
    assert_eq!(resumed["data"]["limits"], json!({"max_turns": "4"}));
    let raised = events.iter().find(|event| event["type"] == "limit_raised").unwrap();
    assert_eq!(raised["data"], json!({"limit": "max_turns"}));
    assert!(record.transcript().contains("_Limit max_turns raised"), "{}", record.transcript());
    assert_eq!(record.plan()["parent"]["max_turns"], 2, "the plan is what the run began with");
}

#[test]
fn a_limit_can_be_raised_twice_and_lowered_below_the_amount_used() {
    let folder = scripted(
        "parent: { prompt: Go., tools: [glob], max_turns: 1 }\n",
        &json!({"parent": [
            {"calls": [{"tool": "glob", "input": {"pattern": "*"}}]},
            {"text": "One."},
            {"calls": [{"tool": "glob", "input": {"pattern": "*"}}]},
            {"text": "Two."},
            {"calls": [{"tool": "glob", "input": {"pattern": "*"}}]},
            {"calls": [{"tool": "glob", "input": {"pattern": "*"}}]},
            {"text": "Four."},
        ]}),
    );
    folder.legwork(&["run", "job.yaml"]).run().assert_code(4).assert_stdout("One.\n");
    let resume = |limit: &str| folder.legwork(&["resume", "latest", "--limit", limit]).run();
    resume("max_turns=2").assert_code(4).assert_stdout("Two.\n");
    let killed = folder.legwork(&["resume", "latest", "--limit", "max_turns=9"]).env("LEGWORK_KILL_AFTER", "7").run();
    assert_eq!(killed.signal(), Some(9));
    let ended = resume("max_turns=1");
    ended.assert_code(4).assert_stdout("Four.\n");
    assert_eq!(ended.run_folder().result()["turns"], 4, "what was made stays made, and is followed by the end");
}

/// A parent and two subagents; the second subagent uses up the limit.
const DELEGATING: &str = "parent: { prompt: Go., tools: [task, bash] }\nsubagents: { a: { tools: [bash] } }\nlimits: { tool_calls: 5, parallel_subagents: 1 }\n";

fn delegating() -> Value {
    let bash = |command: &str| json!({"tool": "bash", "input": {"command": command}});
    let task = |prompt: &str| json!({"tool": "task", "input": {"prompt": prompt}});
    json!({
        "parent": [
            {"calls": [task("one"), task("two"), bash("echo parent >> log")]},
            {"text": "So far."},
            {"text": "Done."},
        ],
        "subagents": {
            "a-1": [{"calls": [bash("echo one >> log")]}, {"text": "first"}],
            "a-2": [
                {"calls": [bash("echo two >> log"), bash("echo three >> log"), bash("echo four >> log")]},
                {"text": "cut short"},
                {"calls": [bash("echo five >> log")]},
                {"text": "second"},
            ],
        },
    })
}

const WORK: &str = "one\ntwo\nthree\nfour\nfive\nparent\n";

#[test]
fn subagents_and_calls_stopped_by_a_limit_resume() {
    let folder = scripted(DELEGATING, &delegating());
    let cut = folder.legwork(&["run", "job.yaml"]).run();
    cut.assert_code(4).assert_stdout("So far.\n");
    assert_eq!(cut.run_folder().result()["outcome"], "budget_exceeded");
    assert_eq!(folder.read("log"), "one\ntwo\nthree\n");
    let refused = folder.legwork(&["resume", "latest"]).run();
    refused
        .assert_code(4)
        .assert_stderr_contains("5 of 5 tool calls are used")
        .assert_stderr_contains("--limit tool_calls=");
    let ended = folder.legwork(&["resume", "latest", "--limit", "tool_calls=20"]).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("log"), WORK, "each once");
    let record = ended.run_folder();
    assert_complete_record(&record);
    assert!(record.summary("a-2").contains("second"), "{}", record.summary("a-2"));
    let result = record.result();
    let outcomes: Vec<&Value> = result["subagents"].as_array().unwrap().iter().map(|child| &child["outcome"]).collect();
    assert_eq!(outcomes, ["completed", "completed"]);
    let replayed = folder.legwork(&["replay", "latest"]).run();
    replayed.assert_code(0);
    // With the record as the model, the replies don't include those that the limit caused.
    std::fs::remove_file(folder.path().join("log")).unwrap();
    let model = format!("replay/{}", record.path().display());
    let again = folder.legwork(&["run", "job.yaml", "--limit", "tool_calls=20", "--model", &model]).run();
    again.assert_code(0).assert_stdout("Done.\n");
    assert_eq!(folder.read("log"), WORK);
}

#[test]
fn a_subagent_in_a_copy_adds_to_what_was_merged_before_the_limit() {
    let bash = |command: &str| json!({"tool": "bash", "input": {"command": command}});
    let task = json!({"tool": "task", "input": {"prompt": "one"}});
    let script = json!({
        "parent": [{"calls": [task]}, {"text": "So far."}, {"text": "Done."}],
        "subagents": {
            "a-1": [
                {"calls": [bash("echo one >> log"), bash("echo two >> log")]},
                {"text": "cut short"},
                {"calls": [bash("echo three >> log")]},
                {"text": "all"},
            ],
        },
    });
    let job = "parent: { prompt: Go., tools: [task] }\nsubagents: { a: { tools: [bash], workspace: own } }\nlimits: { tool_calls: \
               2 }\n";
    for git in [true, false] {
        let folder = scripted(job, &script);
        if git {
            folder.write(".gitignore", "runs/\n").commit_all();
        }
        folder.legwork(&["run", "job.yaml"]).run().assert_code(4);
        assert_eq!(folder.read("log"), "one\n");
        folder.legwork(&["resume", "--limit", "tool_calls=9"]).run().assert_code(0).assert_stdout("Done.\n");
        assert_eq!(folder.read("log"), "one\ntwo\nthree\n", "git: {git}");
        assert!(!folder.exists("runs/.workspaces"), "{:?}", folder.list());
    }
}

#[test]
fn a_run_killed_after_a_raised_limit_resumes() {
    for order in ["LEGWORK_KILL_AFTER", "LEGWORK_KILL_AT"] {
        let mut number = 1;
        loop {
            let folder = scripted(DELEGATING, &delegating());
            folder.legwork(&["run", "job.yaml"]).run().assert_code(4);
            let raise = || folder.legwork(&["resume", "latest", "--limit", "tool_calls=20"]);
            let killed = raise().env(order, number.to_string()).run();
            if killed.signal().is_none() {
                killed.assert_code(0);
                break;
            }
            let record = killed.run_folder();
            // A run that is killed before it resumes still has its old outcome. A run that is killed after its last
            // operation has completed.
            let ended = match record.has("result.json").then(|| record.result()["outcome"].clone()) {
                Some(Value::String(outcome)) if outcome == "completed" => None,
                Some(_) => Some(raise().run()),
                None => Some(folder.legwork(&["resume", "latest"]).run()),
            };
            if let Some(ended) = ended {
                assert!(ended.exited_with(0) && ended.stdout == "Done.\n", "{order}={number}\n{}", ended.full_output());
            }
            let mut log: Vec<String> = folder.read("log").lines().map(str::to_owned).collect();
            log.dedup();
            let mut once = log.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), log.len(), "{order}={number}: nothing happens twice: {log:?}");
            number += 4;
        }
        assert!(number > 20, "{order}: {number}");
    }
}

#[test]
fn a_run_out_of_tokens_resumes_and_repeats_the_request_for_the_cut_reply() {
    let folder = folder_with("parent:\n  prompt: Go.\n  tools: [glob]\nlimits: { tokens: 6000 }\n");
    let answers = Mutex::new(
        [
            Answer::calls(&[glob()]).usage(1_000, 100),
            Answer::text("This is as far as I g").stop("max_tokens").usage(1_200, 300),
            Answer::text("Not done.").usage(1_300, 10),
            Answer::text("This is as far as I get.").usage(1_200, 400),
        ]
        .into_iter(),
    );
    let server = Server::with(Checks::AllowRepeats, move |_: &Request| answers.lock().unwrap().next().unwrap());
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(4).assert_stdout("Not done.\n");
    let refused = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
    refused
        .assert_code(4)
        .assert_stderr_contains("3910 of 6000 tokens are used")
        .assert_stderr_contains("--limit tokens=12000");
    let ended = folder.legwork(&["resume", "latest", "--limit", "tokens=60000"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("This is as far as I get.\n");
    let result = ended.run_folder().result();
    let usage = &result["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(4_700), &json!(810)));
    let requests = server.finish();
    assert_eq!(requests[3].messages(), requests[1].messages(), "the reply that was cut isn't part of it any more");
}

#[test]
fn a_run_out_of_time_resumes_with_a_higher_limit() {
    let folder = scripted(
        "parent: { prompt: Go., tools: [bash] }\nlimits: { wall_clock: 1s }\n",
        &json!({"parent": [{"calls": [{"tool": "bash", "input": {"command": "sleep 300"}}]}, {"text": "Done."}]}),
    );
    folder.legwork(&["run", "job.yaml"]).run().assert_code(4);
    let refused = folder.legwork(&["resume", "latest"]).run();
    refused.assert_code(4).assert_stderr_contains("has ended: timed_out").assert_stderr_contains("--limit wall_clock=");
    folder
        .legwork(&["resume", "latest", "--limit", "wall_clock=1s"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("`wall_clock`");
    let ended = folder.legwork(&["resume", "latest", "--limit", "wall_clock=10m"]).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    assert!(ended.run_folder().result()["duration_ms"].as_u64().unwrap() >= 1_000);
}

#[test]
fn journals_are_kept_while_the_run_can_resume_with_a_raised_limit() {
    let folder = scripted(&format!("{DELEGATING}keep: never\n"), &delegating());
    let cut = folder.legwork(&["run", "job.yaml"]).run();
    cut.assert_code(4);
    assert!(cut.run_folder().has("subagents/a-2.events.jsonl") && cut.run_folder().has("workspace.start"));
    let ended = folder.legwork(&["resume", "latest", "--limit", "tool_calls=none"]).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    let record = ended.run_folder();
    assert!(!record.has("subagents/a-2.events.jsonl") && !record.has("workspace.start"));
    assert_eq!(record.result()["changes"][0]["lines_added"], 6, "since the very beginning");
}
