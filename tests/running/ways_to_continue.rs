//! Every feature of a job with every way to continue a run, or to use a finished one: a table of both, and each cell runs.
//!
//! A feature is a job with a script. A way is a function that uses it. To add a feature, add a row to [`FEATURES`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::bubblewrap::bubblewrap_works;
use crate::support::program::{Program, ProgramOutput};
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::test_folder::TestFolder;

/// A job that uses a feature.
struct Feature {
    name: &'static str,
    /// The job without its model, its input `n`, and the check that `$PASS` isn't `no`.
    job: &'static str,
    script: &'static str,
    /// Files of the workspace.
    files: &'static [(&'static str, &'static str)],
    /// Options that every start needs.
    options: &'static [&'static str],
    /// A command before the first start.
    before: &'static [&'static str],
    /// The answers of a server that is used instead of the script.
    serve: Option<fn(&Request) -> Answer>,
    /// What the transcript of a whole run contains.
    shows: &'static str,
    /// Why a map refuses the job, if it does.
    refused_by_map: Option<&'static str>,
    /// Whether the sandbox must keep commands to a list of hosts.
    needs_hosts: bool,
}

const NOTHING: Feature = Feature {
    name: "",
    job: "parent: { prompt: 'Go {{ inputs.n }}', tools: [todo, bash] }\n",
    script: "parent:\n  - calls: [{ tool: bash, input: { command: echo said } }]\n  - text: done\n",
    files: &[],
    options: &[],
    before: &[],
    serve: None,
    shows: "said",
    refused_by_map: None,
    needs_hosts: false,
};

/// A tool server that changes no file.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    tool = {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "echoed"}]},
    }.get(message["method"])
    answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | answer), flush=True)
"#;
const SERVER_JOB: &str = "mcp:\n  t: { command: [/usr/bin/python3, server.py], timeout: 20s }\n\
                          parent: { prompt: 'Go {{ inputs.n }}', tools: [{ mcp: t, allow: [echo] }] }\n";
const SERVER_SCRIPT: &str = "parent:\n  - calls: [{ tool: t__echo, input: { text: hello } }]\n  - calls: [{ tool: t__echo, input: { text: again } }]\n  - text: done\n";
const SERVER_FILES: &[(&str, &str)] = &[("server.py", SERVER)];

const FEATURES: &[Feature] = &[
    Feature { name: "commands", ..NOTHING },
    Feature {
        name: "tool server",
        job: SERVER_JOB,
        script: SERVER_SCRIPT,
        files: SERVER_FILES,
        shows: "t__echo",
        ..NOTHING
    },
    Feature {
        name: "lock",
        job: SERVER_JOB,
        script: SERVER_SCRIPT,
        files: SERVER_FILES,
        before: &["mcp", "lock", "job.yaml"],
        shows: "t__echo",
        ..NOTHING
    },
    Feature {
        name: "skill",
        job: "skills: [skills/notes]\nparent: { prompt: 'Go {{ inputs.n }}', tools: [read_file] }\n",
        script: "parent:\n  - calls: [{ tool: skill, input: { name: notes } }]\n  - text: done\n",
        files: &[(
            "skills/notes/SKILL.md",
            "---\nname: notes\ndescription: How notes are written.\n---\nShort lines.\n",
        )],
        shows: "Short lines.",
        ..NOTHING
    },
    Feature {
        name: "image",
        job: "parent: { prompt: 'Go {{ inputs.n }}, look at {{ inputs.shot }}', tools: [read_file] }\n",
        script: "parent:\n  - calls: [{ tool: read_file, input: { path: shot.png } }]\n  - text: done\n",
        options: &["--set", "shot=shot.png"],
        shows: "shot.png",
        ..NOTHING
    },
    Feature {
        name: "own workspace",
        job: "parent: { prompt: 'Go {{ inputs.n }}', tools: [task] }\nsubagents:\n  writer: { description: Writes., tools: \
              [write_file], workspace: own }\n",
        script: "parent:\n  - calls: [{ tool: task, input: { agent: writer, prompt: Write. } }]\n  - text: done\n\
                 subagents:\n  writer-1:\n    - calls: [{ tool: write_file, input: { path: out.txt, content: out } }]\n    - text: wrote\n",
        shows: "wrote",
        ..NOTHING
    },
    Feature {
        name: "result",
        job: "parent: { prompt: 'Go {{ inputs.n }}', tools: [todo] }\nresult: { schema: { type: object, required: [count], properties: \
              { count: { type: integer } } } }\n",
        script: "parent:\n  - calls: [{ tool: submit_result, input: { count: 3 } }]\n  - text: done\n",
        shows: "submit_result",
        ..NOTHING
    },
    Feature {
        name: "enum of an input",
        job: "parent: { prompt: 'Go {{ inputs.n }}', tools: [todo] }\nresult: { schema: { type: object, required: [label], properties: \
              { label: { enum: '{{ inputs.labels }}' } } } }\n",
        script: "parent:\n  - calls: [{ tool: submit_result, input: { label: docs } }]\n  - text: done\n",
        options: &["--set", "labels=bug,docs"],
        shows: "submit_result",
        ..NOTHING
    },
    Feature {
        name: "steps before",
        job: "before:\n  - { name: issues, run: 'cat issues.json; echo $INPUT_N > \"$LEGWORK_FILES/n.txt\"', schema: { type: array } }\n  \
              - { name: note, run: echo shared, once: true }\nskip_if: '{{ before.issues == [] }}'\n\
              parent: { prompt: 'Go {{ inputs.n }}{% for issue in before.issues %}, {{ issue.title }}{% endfor %}, {{ before.note }}', \
              tools: [bash] }\n",
        files: &[("issues.json", "[{ \"title\": \"broken window\" }]\n")],
        shows: ", broken window, shared",
        ..NOTHING
    },
    Feature {
        name: "output",
        job: "outputs:\n  comment: { target: 7, max: 2 }\n  rules: { required: true }\n\
              parent: { prompt: 'Go {{ inputs.n }}', tools: [{ output: [comment, nothing_to_do] }] }\n",
        script: "parent:\n  - calls: [{ tool: comment, input: { body: First. } }]\n  - calls: [{ tool: comment, input: { body: Second. } }]\n  \
                 - text: done\n",
        shows: "accepted (2 of 2)",
        ..NOTHING
    },
    Feature {
        name: "state",
        job: "state: { schema: { type: object, required: [n] }, initial: { n: 0 } }\n\
              parent: { prompt: 'Go {{ inputs.n }}, {{ state.n is defined }}', tools: [todo] }\n",
        script: "parent:\n  - calls: [{ tool: set_state, input: { value: { n: 1 } } }]\n  - text: done\n",
        shows: "State for the next run",
        refused_by_map: Some("a map can't run a job with `state`"),
        ..NOTHING
    },
    Feature {
        name: "output with the list of a step",
        job: "before:\n  - { name: labels, run: cat labels.json, trusted: true, schema: { type: array } }\n\
              outputs: { labels: { target: 7, add: '{{ before.labels }}', max: 2 } }\n\
              parent: { prompt: 'Go {{ inputs.n }}', tools: [bash, { output: [labels] }] }\n",
        script: "parent:\n  - calls: [{ tool: labels, input: { add: [wontfix] } }]\n  - calls: [{ tool: labels, input: { add: [docs] } }]\n  \
                 - text: done\n",
        files: &[("labels.json", "[\"bug\", \"docs\"]\n")],
        shows: "labels of \\#7\\: add docs",
        ..NOTHING
    },
    Feature {
        name: "secret",
        job: "parent: { prompt: 'Go {{ inputs.n }}', tools: [bash] }\n",
        script: "parent:\n  - calls: [{ tool: bash, input: { command: 'echo \"got $INPUT_TOKEN\"' } }]\n  - text: done\n",
        options: &["--set-env", "token=TOKEN"],
        shows: "got [masked:",
        ..NOTHING
    },
    Feature {
        name: "host list",
        job: "network: { allow: ['api.example.com:7000'] }\nparent: { prompt: 'Go {{ inputs.n }}', tools: [bash] }\n",
        script: "parent:\n  - calls: [{ tool: bash, input: { command: '(exec 3<>/dev/tcp/files.example.com/7000) || echo refused' } }]\n  \
                 - text: done\n",
        options: &["--connect-to", "::127.0.0.1:9"],
        shows: "[no access: files.example.com",
        needs_hosts: true,
        ..NOTHING
    },
    Feature {
        name: "path",
        job: "parent: { prompt: 'Go {{ inputs.n }} in {{ inputs.folder }}', tools: [write_file] }\n",
        script: "parent:\n  - calls: [{ tool: write_file, input: { path: src/out, content: out } }]\n  - text: done\n",
        files: &[("src/a", "a\n")],
        // An absolute path below the workspace; `{workspace}` is replaced.
        options: &["--set", "folder={workspace}/src"],
        shows: "in src",
        ..NOTHING
    },
    Feature {
        name: "fallback",
        job: "parent: { prompt: 'Go {{ inputs.n }}', tools: [bash] }\nlimits: { tokens: 900000 }\n",
        serve: Some(failing_first),
        shows: "said",
        ..NOTHING
    },
];

/// The first model answers once and then fails.
fn failing_first(request: &Request) -> Answer {
    match (request.model(), request.turn()) {
        (_, 0) => Answer::calls(&[("bash", json!({ "command": "echo said" }))]),
        ("claude-haiku-4-5", _) => Answer::status(500).error("api_error", "Down."),
        _ => Answer::text("done"),
    }
}

/// A name, and how the run is continued or used.
type Way = (&'static str, fn(&Bench));

const WAYS: &[Way] = &[
    ("kill and resume", kill_and_resume),
    ("--key again", key_again),
    ("map again", map_again),
    ("kill a map", kill_a_map),
    ("one more row", one_more_row),
    ("--retry", retry),
    ("replay", replay),
    ("gather", gather),
    ("test", test),
];

const TOKEN: &str = "a-secret-of-the-test-3141";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A folder with the job of a feature.
struct Bench {
    feature: &'static Feature,
    folder: TestFolder,
    server: Option<Server>,
    options: Vec<String>,
}

impl Bench {
    fn new(feature: &'static Feature) -> Self {
        let folder = TestFolder::new();
        let model = match feature.serve {
            None => "replay/job.script.yaml",
            Some(_) => "{ name: anthropic/claude-haiku-4-5, fallback: [anthropic/claude-opus-4-6] }",
        };
        let mut inputs = "  n: { type: string, default: '1' }\n".to_owned();
        for (name, kind) in [("shot", "image"), ("folder", "path"), ("labels", "list")] {
            if feature.options.iter().any(|option| option.starts_with(&format!("{name}="))) {
                inputs.push_str(&format!("  {name}: {{ type: {kind} }}\n"));
            }
        }
        if feature.options.contains(&"--set-env") {
            inputs.push_str("  token: { type: string, secret: true }\n");
        }
        let check = "env: [PASS]\nchecks: [{ name: passes, run: 'test \"$PASS\" != no' }]\n";
        folder
            .write("job.yaml", format!("model: {model}\ninputs:\n{inputs}{check}{}", feature.job))
            .write("job.script.yaml", feature.script)
            .write("shot.png", STANDARD.decode(PNG).unwrap())
            .write("rows.csv", "n\n1\n2\n");
        for (name, content) in feature.files {
            folder.write(name, content);
        }
        let workspace = folder.path();
        let options = feature.options.iter().map(|option| option.replace("{workspace}", &workspace.to_string_lossy()));
        let options = options.collect();
        let server = feature.serve.map(|serve| Server::with(Checks::AllowHandover, serve));
        let bench = Self { feature, folder, server, options };
        if !feature.before.is_empty() {
            bench.folder.legwork(feature.before).run().assert_code(0);
        }
        bench
    }

    fn program(&self, arguments: &[&str]) -> Program {
        let program = self.folder.legwork(arguments).env("PASS", "yes").env("TOKEN", TOKEN);
        match &self.server {
            None => program,
            Some(server) => program.anthropic(server).env("LEGWORK_RETRY_BASE_MS", "1"),
        }
    }

    /// A start of the job.
    fn start(&self, arguments: &[&str]) -> Program {
        self.program(arguments).args(&self.options)
    }

    fn map(&self) -> Program {
        self.start(&["map", "job.yaml", "--rows", "rows.csv", "--id", "n", "--jobs", "1"])
    }

    fn row(&self, id: &str) -> RunFolder {
        RunFolder::new(self.folder.at("runs/job/map-rows/rows").join(id))
    }

    /// Asserts that a run has completed with what the feature gives.
    fn assert_whole(&self, record: &RunFolder) {
        let result = record.result();
        assert_eq!(result["outcome"], "completed", "{result}");
        assert!(record.transcript().contains(self.feature.shows), "{}", record.transcript());
        record.assert_absent(TOKEN);
        if self.feature.name == "result" {
            assert_eq!(result["result"], json!({ "count": 3 }));
        }
    }

    fn assert_rows(&self, ids: &[&str]) {
        ids.iter().for_each(|id| self.assert_whole(&self.row(id)));
        let lines = self.folder.read("runs/job/map-rows/results.jsonl");
        let mut found: Vec<String> = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|line| format!("{} {}", line["id"].as_str().unwrap(), line["outcome"].as_str().unwrap()))
            .collect();
        found.sort();
        let expected: Vec<String> = ids.iter().map(|id| format!("{id} completed")).collect();
        assert_eq!(found, expected);
    }
}

fn was_killed(ended: &ProgramOutput) -> bool {
    ended.signal() == Some(9)
}

/// After how many events a run is killed: right after its start, in the middle, and near its end.
fn kills(events: usize) -> [usize; 4] {
    [1, events / 3, events * 2 / 3, events - 1]
}

fn kill_and_resume(bench: &Bench) {
    let whole = bench.start(&["run", "job.yaml"]).run();
    whole.assert_code(0);
    bench.assert_whole(&whole.run_folder());
    let events = whole.run_folder().events().len();
    let secret: &[&str] = if bench.feature.name == "secret" { &["--set-env", "token=TOKEN"] } else { &[] };
    for after in kills(events) {
        let killed = bench.start(&["run", "job.yaml"]).env("LEGWORK_KILL_AFTER", after.to_string()).run();
        assert!(was_killed(&killed), "after {after} of {events}: {}", killed.full_output());
        let resumed = bench.program(&["resume", "latest"]).args(secret).run();
        resumed.assert_code(0);
        // A command that was interrupted has no output.
        let result = resumed.run_folder().result();
        assert_eq!(result["outcome"], "completed", "{result}");
        assert_eq!(result["result"], whole.run_folder().result()["result"]);
        resumed.run_folder().assert_absent(TOKEN);
        let again = bench.program(&["resume", "latest"]).args(secret).run();
        again.assert_code(0).assert_stderr_contains("only an interrupted run can be resumed");
    }
}

fn key_again(bench: &Bench) {
    let run = || bench.start(&["run", "job.yaml", "--key", "k"]);
    let killed = run().env("LEGWORK_KILL_AFTER", "3").run();
    assert!(was_killed(&killed), "{}", killed.full_output());
    let first = run().run();
    first.assert_code(0);
    let record = RunFolder::new(bench.folder.at("runs/job/k"));
    bench.assert_whole(&record);
    let journal = record.file("events.jsonl");
    let again = run().run();
    again.assert_code(0).assert_stdout(&first.stdout);
    assert_eq!(record.file("events.jsonl"), journal, "a finished run isn't touched");
}

fn map_again(bench: &Bench) {
    bench.map().run().assert_code(0);
    bench.assert_rows(&["1", "2"]);
    let again = bench.map().run();
    again.assert_code(0).assert_stderr_contains("2 ended before, 0 to continue, 0 to start");
    bench.assert_rows(&["1", "2"]);
}

fn kill_a_map(bench: &Bench) {
    // A run of one row has about ten events, so the second row is killed, too.
    for after in ["3", "8"] {
        let killed = bench.map().env("LEGWORK_KILL_AFTER", after).run();
        assert!(was_killed(&killed) || killed.exited_with(0), "{}", killed.full_output());
    }
    bench.map().run().assert_code(0);
    let outcome = |id: &str| bench.row(id).result()["outcome"].clone();
    assert_eq!([outcome("1"), outcome("2")], ["completed", "completed"]);
    bench.map().run().assert_code(0).assert_stderr_contains("2 ended before");
}

fn one_more_row(bench: &Bench) {
    bench.map().run().assert_code(0);
    bench.folder.write("rows.csv", "n\n1\n2\n3\n");
    bench.map().run().assert_code(0).assert_stderr_contains("2 ended before, 0 to continue, 1 to start");
    bench.assert_rows(&["1", "2", "3"]);
}

fn retry(bench: &Bench) {
    bench.map().env("PASS", "no").run().assert_code(1);
    bench.map().run().assert_code(1).assert_stderr_contains("2 ended before");
    bench.map().args(["--retry", "failed"]).run().assert_code(0);
    bench.assert_rows(&["1", "2"]);
    assert_eq!(bench.row("1.1").result()["outcome"], "checks_failed");
}

fn replay(bench: &Bench) {
    bench.start(&["run", "job.yaml"]).run().assert_code(0);
    // Neither the job nor a server is needed.
    for name in ["job.yaml", "job.script.yaml", "shot.png"] {
        std::fs::remove_file(bench.folder.at(name)).unwrap();
    }
    bench.folder.legwork(&["replay", "latest"]).run().assert_code(0).assert_stdout_contains("equal");
}

fn gather(bench: &Bench) {
    for part in ["1/2", "2/2"] {
        bench.map().args(["--shard", part]).run().assert_code(0);
    }
    let gathered = bench.folder.legwork(&["gather", "runs/job/map-rows", "--to", "all"]).run();
    gathered.assert_code(0);
    assert_eq!(bench.folder.read("all/results.jsonl").lines().count(), 2);
}

fn test(bench: &Bench) {
    let saved = bench.start(&["run", "job.yaml", "--save-case", "first"]).run();
    saved.assert_code(0);
    bench.program(&["test"]).run().assert_code(0);
}

/// The ways that run a map.
const MAPS: [fn(&Bench); 5] = [map_again, kill_a_map, one_more_row, retry, gather];

/// Uses a feature in one way. A map that refuses the job does so before its first row.
fn use_in(way: fn(&Bench), bench: &Bench) {
    match bench.feature.refused_by_map.filter(|_| MAPS.iter().any(|map| std::ptr::fn_addr_eq(*map, way))) {
        None => way(bench),
        Some(why) => {
            bench.map().run().assert_code(2).assert_stderr_contains(why);
            assert!(!bench.folder.exists("runs"));
        }
    }
}

/// Runs every feature in one way.
fn assert_way(name: &str) {
    let (_, way) = WAYS.iter().find(|(known, _)| *known == name).unwrap();
    let failed: Vec<String> = FEATURES
        .iter()
        .filter(|feature| !feature.needs_hosts || bubblewrap_works())
        .filter_map(|feature| {
            let run = std::panic::AssertUnwindSafe(|| use_in(*way, &Bench::new(feature)));
            let panic = std::panic::catch_unwind(run).err()?;
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
            Some(format!("== {}: {name}\n{why}", feature.name))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} features:\n{}", failed.len(), FEATURES.len(), failed.join("\n"));
}

macro_rules! ways {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { assert_way($name); })*

        #[test]
        fn every_way_is_a_test() {
            assert_eq!(WAYS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}

ways! {
    every_feature_survives_a_kill_and_resumes: "kill and resume",
    every_feature_runs_with_a_key_again: "--key again",
    every_feature_maps_again: "map again",
    every_feature_survives_a_killed_map: "kill a map",
    every_feature_takes_one_more_row: "one more row",
    every_feature_is_retried: "--retry",
    every_feature_replays: "replay",
    every_feature_is_gathered: "gather",
    every_feature_becomes_a_case: "test",
}
