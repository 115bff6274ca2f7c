//! The commands around a run: plans, inputs, records, formats, and `init`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const REPLAY: &str = "name: hello\nmodel: replay/hello.script.yaml\nparent: { prompt: Say hello., tools: [] }\n";

fn replayed() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("jobs/hello.yaml", REPLAY).write("jobs/hello.script.yaml", "parent: [{ text: Hello. }]\n");
    folder
}

#[test]
fn a_dry_run_is_deterministic_and_changes_nothing() {
    let folder = folder_with(
        "inputs: { topic: { type: string } }\nparent:\n  prompt: 'About {{ inputs.topic }} in {{ run.id }} on {{ run.date }}.'\n  \
         tools: [task, { bash: { allow: ['cargo test *'], timeout: 2m } }]\nlimits: { cost_usd: 2 }\n",
    );
    let arguments = ["run", "job.yaml", "--dry-run", "--set", "topic={{ job.name }}"];
    let first = folder.legwork(&arguments).run();
    first
        .assert_code(0)
        .assert_stdout_contains("About {{ job.name }} in <run.id> on <run.date>.")
        .assert_stdout_contains("subagent general");
    first.assert_stdout_contains("cargo test *").assert_stdout_contains("$2.00");
    assert_eq!(first.stdout, folder.legwork(&arguments).run().stdout);
    let json = folder.legwork(&arguments).arg("--format=json").run();
    json.assert_code(0);
    assert_eq!(json.json()["parent"]["max_turns"], 50);
    assert_eq!(json.json()["limits"]["wall_clock_ms"], 1_800_000);
    assert_eq!(folder.list(), ["job.yaml"]);
}

#[test]
fn inputs_come_from_all_sources_and_never_change_the_structure() {
    let folder = folder_with(
        "inputs:\n  a: { type: string }\n  b: { type: integer, default: 3 }\n  c: { type: list, default: [] }\n  \
         d: { type: boolean, default: false }\n  e: { type: path, default: src }\n  f: { type: string, default: none }\n\
         parent:\n  prompt: '{{ inputs.a }}|{{ inputs.b }}|{{ inputs.c | join(\"+\") }}|{{ inputs.d }}|{{ inputs.e }}|{{ inputs.f }}'\n  tools: []\n",
    );
    folder.write("in.yaml", "b: 7\nc: [x, y]\n").write("a.txt", "prompt: evil\ntools: [bash]\n");
    let ended = folder
        .legwork(&["run", "job.yaml", "--dry-run", "--format=json", "--inputs", "in.yaml", "--set", "a=@a.txt"])
        .arg("--set=d=true")
        .arg("--set-env=f=HOSTILE")
        .env("HOSTILE", "'; rm -rf / #")
        .run();
    ended.assert_code(0);
    let plan = ended.json();
    assert_eq!(plan["parent"]["prompt"], "prompt: evil\ntools: [bash]|7|x+y|True|src|'; rm -rf / #");
    assert_eq!(plan["parent"]["tools"], json!([]));
    let piped = folder.legwork(&["run", "job.yaml", "--dry-run", "--set", "a=@-"]).stdin("from a pipe").run();
    piped.assert_code(0).assert_stdout_contains("from a pipe|3");
}

#[test]
fn all_invalid_inputs_are_reported_and_nothing_is_written() {
    let folder = folder_with(
        "inputs:\n  topic: { type: string }\n  count: { type: integer, default: 1 }\n  where: { type: path, default: . }\n  \
         style: { type: string, enum: [google, numpy], default: google }\nparent:\n  prompt: '{{ inputs.topic }}'\n  tools: []\n",
    );
    let ended = folder
        .legwork(&[
            "run",
            "job.yaml",
            "--set",
            "topik=x",
            "--set",
            "count=many",
            "--set",
            "where=../..",
            "--set",
            "style=x",
        ])
        .run();
    ended.assert_code(3).assert_stdout("");
    for part in [
        "topik",
        "did you mean",
        "count",
        "whole number",
        "where",
        "google",
        "job.yaml:3:3",
        "--set topic=",
        "on line 4 of job.yaml",
    ] {
        let printed = ended.stderr.to_lowercase();
        assert!(printed.contains(&part.to_lowercase()), "{part} is missing\n{}", ended.stderr);
    }
    assert_eq!(folder.list(), ["job.yaml"]);
    folder.legwork(&["run", "job.yaml", "--set", "topic"]).run().assert_code(2);
    folder.legwork(&["run", "job.yaml", "--set", "topic=@gone"]).run().assert_code(3).assert_stderr_contains("gone");
}

#[test]
fn a_secret_input_reaches_bash_and_nothing_else() {
    let folder =
        folder_with("inputs: { token: { type: string, secret: true } }\nparent: { prompt: Use it., tools: [bash] }\n");
    let secret = "s3cr3t-value-42";
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[(
            "bash",
            json!({"command": "printf %s \"$INPUT_TOKEN\" > seen; echo $INPUT_TOKEN; echo -n $INPUT_TOKEN | base64; env"}),
        )]),
        Answer::text("ok"),
    ]));
    let ended = folder
        .legwork(&["run", "job.yaml", "--set-env", "token=MY_TOKEN", "--format", "jsonl"])
        .anthropic(&server)
        .env("MY_TOKEN", secret)
        .run();
    ended.assert_code(0).assert_not_printed(secret);
    assert_eq!(folder.read("seen"), secret);
    let requests = server.finish();
    let result = &requests[1].results()[0].text;
    assert!(result.contains("[masked:token]") && !result.contains(secret) && !result.contains("czNjcjN0"), "{result}");
    assert!(!result.contains("ANTHROPIC_API_KEY") && !result.contains("MY_TOKEN"), "{result}");
    ended.run_folder().assert_absent(secret);
    let template = folder_with(
        "inputs: { token: { type: string, secret: true } }\nparent: { prompt: '{{ inputs.token }}', tools: [] }\n",
    );
    template.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("secret");
}

#[test]
fn a_record_is_private_ignored_by_git_and_found_by_each_of_its_names() {
    let folder = replayed();
    let ended = folder.legwork(&["run", "jobs/hello.yaml"]).run();
    ended.assert_code(0).assert_stdout("Hello.\n");
    let record = ended.run_folder();
    for name in record.files() {
        let mode = std::fs::metadata(record.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
    assert_eq!(folder.read("runs/.gitignore"), "*\n");
    assert_eq!(std::fs::read_link(folder.at("runs/hello/latest")).unwrap().to_str().unwrap(), record.id());
    for name in ["latest", "hello/latest", record.id(), &record.id()[..15], &format!("runs/hello/{}", record.id())] {
        folder
            .legwork(&["show", name])
            .run()
            .assert_code(0)
            .assert_stdout_contains("# hello: completed")
            .assert_stdout_contains("Hello.");
    }
    folder.legwork(&["show", "gone"]).run().assert_code(2).assert_stderr_contains("gone");
    let again = folder.legwork(&["run", "jobs/hello.yaml"]).run();
    again.assert_code(0);
    assert_ne!(again.run_folder().id(), record.id());
    let elsewhere = folder.legwork(&["run", "jobs/hello.yaml", "--out", "deep/er"]).run();
    elsewhere.assert_code(0);
    assert_eq!(elsewhere.run_folder_in("deep/er/hello").result()["job"], "hello");
    folder.write("mine/keep.txt", "x");
    folder.legwork(&["run", "jobs/hello.yaml", "--out", "mine"]).run().assert_code(0);
    assert!(!folder.exists("mine/.gitignore"), "a folder that is somebody's own stays as it is");
}

#[test]
fn stdout_has_the_answer_in_the_selected_format() {
    let folder = replayed();
    let json = folder.legwork(&["run", "jobs/hello.yaml", "--format", "json"]).run();
    assert_eq!(json.json(), json.run_folder().result());
    let lines = folder.legwork(&["run", "jobs/hello.yaml", "--format", "jsonl"]).run();
    let types: Vec<Value> = lines.json_lines().into_iter().map(|line| line["type"].clone()).collect();
    assert_eq!(
        types,
        ["run_started", "agent_started", "request_started", "reply_received", "agent_finished", "run_finished"]
    );
    let kept_events: Vec<Value> = lines.run_folder().events().into_iter().map(|line| line["type"].clone()).collect();
    assert_eq!(types, kept_events);
}

#[test]
fn keep_controls_which_subagent_journals_are_kept() {
    for (keep, outcome, stays) in
        [("always", "ok", true), ("never", "ok", false), ("on_failure", "ok", false), ("on_failure", "cut", true)]
    {
        let folder = TestFolder::new();
        folder.write(
            "job.yaml",
            format!("model: replay/job.script.yaml\nkeep: {keep}\nparent: {{ prompt: Go., tools: [task] }}\n"),
        );
        let last = if outcome == "ok" { "{ text: ok }" } else { "{ text: o, stop: max_tokens }" };
        folder.write(
            "job.script.yaml",
            format!(
                "parent:\n  - calls: [{{ tool: task, input: {{ prompt: Go. }} }}]\n  - {last}\n\
                 subagents: {{ general-1: [{{ text: Fine. }}] }}\n"
            ),
        );
        let record = folder.legwork(&["run", "job.yaml"]).run().run_folder();
        assert_eq!(record.has("subagents/general-1.events.jsonl"), stays, "{keep} {outcome}");
        assert!(record.summary("general-1").contains("Fine."));
    }
}

#[test]
fn bad_job_files_are_rejected_with_a_position_and_nothing_runs() {
    let cases: &[(&str, &[u8], &str)] = &[
        ("empty", b"", ":1:1"),
        ("binary", b"model: a\n\x00\xff\xfe", ":2:"),
        ("not a mapping", b"- a\n- b\n", ":1:1"),
        ("two documents", b"model: a/b\n---\nmodel: a/b\n", ":2:"),
        ("unknown key", b"model: anthropic/x\nparnet: {}\n", ":2:1"),
        ("wrong type", b"model: anthropic/x\nparent: { prompt: x, tools: bash }\n", ":2:29"),
        ("no tools", b"model: anthropic/x\nparent: { prompt: x }\n", ":2:1"),
        ("unknown tool", b"model: anthropic/x\nparent: { prompt: x, tools: [Bahs] }\n", ":2:30"),
        ("undefined", b"model: anthropic/x\nparent: { prompt: 'x {{ y }}', tools: [] }\n", ":2:25"),
        ("unknown provider", b"model: antropic/x\nparent: { prompt: x, tools: [] }\n", ":1:8"),
        ("foreign key", b"model: anthropic/x\nparent: { prompt: x, tools: [] }\nservers: off\n", ":3:1"),
    ];
    for (name, bytes, place) in cases {
        let folder = TestFolder::new();
        folder.write("job.yaml", bytes);
        let ended = folder.legwork(&["run", "job.yaml"]).env("ANTHROPIC_API_KEY", "k-0123456789").run();
        ended.assert_code(3).assert_stdout("").assert_stderr_contains(&format!("job.yaml{place}"));
        assert_eq!(folder.list(), ["job.yaml"], "{name}");
        folder
            .legwork(&["validate", "job.yaml"])
            .run()
            .assert_code(3)
            .assert_stdout_contains(&format!("job.yaml{place}"));
    }
    let folder = TestFolder::new();
    folder.legwork(&["run", "gone.yaml"]).run().assert_code(3).assert_stderr_contains("gone.yaml");
    folder
        .legwork(&["run", "."])
        .run()
        .assert_code(3)
        .assert_stderr_contains("folder")
        .assert_stderr_contains("name a regular file");
    let big = "x: ".to_owned() + &"y".repeat(30 << 20);
    folder.write("big.yaml", big);
    folder.legwork(&["run", "big.yaml"]).run().assert_code(3).assert_stderr_contains("big.yaml:1:1");
    folder.legwork(&["run"]).run().assert_code(2);
    folder.legwork(&["run", "big.yaml", "--workspace", "gone"]).run().assert_code(2).assert_stderr_contains("gone");
}

#[test]
fn validate_finds_everything_in_a_folder_at_once() {
    let folder = replayed();
    folder.write("jobs/bad.yaml", "model: anthropic/x\nparent: { prompt: x, tools: [Bahs] }\nfoo: 1\n");
    folder.write("jobs/bad.script.yaml", "parent: [{ txt: Hello. }]\n");
    folder.write("jobs/tests/ignored.yaml", "nonsense: [\n");
    let ended = folder.legwork(&["validate", "--format", "json"]).run();
    ended.assert_code(3);
    let found: Vec<(String, String)> = ended.json()["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["file"].as_str().unwrap().to_owned(), it["code"].as_str().unwrap().to_owned()))
        .collect();
    let has = |file: &str, code: &str| found.contains(&(file.to_owned(), code.to_owned()));
    assert!(has("jobs/bad.yaml", "unknown-tool") && has("jobs/bad.yaml", "unknown-key"), "{found:?}");
    assert!(has("jobs/bad.script.yaml", "unknown-key"), "{found:?}");
    assert!(found.iter().all(|(file, _)| file.contains("bad")), "{found:?}");
    folder.legwork(&["validate", "jobs/hello.yaml"]).run().assert_code(0);
}

#[test]
fn init_writes_a_valid_job_and_never_overwrites() {
    let folder = TestFolder::new();
    folder
        .legwork(&["init"])
        .run()
        .assert_code(0)
        .assert_stderr_contains("jobs/first.yaml")
        .assert_stderr_contains("--save-case")
        .assert_stderr_contains("legwork test");
    folder.legwork(&["validate"]).run().assert_code(0);
    folder.legwork(&["run", "jobs/first.yaml", "--dry-run"]).run().assert_code(0);
    folder.legwork(&["init"]).run().assert_code(2).assert_stderr_contains("already exists");
    folder.legwork(&["init", "../x"]).run().assert_code(2);
    let schema = folder.legwork(&["schema"]).run();
    schema.assert_code(0);
    assert_eq!(schema.json(), serde_json::from_str::<Value>(&folder.read("jobs/job.schema.json")).unwrap());
    folder.write("mine/job.schema.json", "{}");
    folder.legwork(&["init", "--folder", "mine"]).run().assert_code(2).assert_stderr_contains("job.schema.json");
    assert_eq!((folder.read("mine/job.schema.json").as_str(), folder.exists("mine/first.yaml")), ("{}", false));
    folder.write("jobs/job.schema.json", "{ \"title\": \"legwork job\", \"old\": true }");
    folder.legwork(&["init", "second"]).run().assert_code(0);
    assert_eq!(schema.json(), serde_json::from_str::<Value>(&folder.read("jobs/job.schema.json")).unwrap());
    let job = folder.read("jobs/second.yaml");
    let named = job.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=").unwrap();
    assert!(folder.exists(&format!("jobs/{named}")), "an editor finds no schema at {named}");
    assert_eq!(folder.legwork(&["validate", "--format", "json"]).run().json()["diagnostics"], json!([]));
    for shell in ["bash", "zsh", "fish"] {
        folder.legwork(&["completions", shell]).run().assert_code(0).assert_stdout_contains("legwork completions");
    }
}

#[test]
fn file_tools_cannot_change_the_job_or_the_record() {
    let folder = TestFolder::new();
    folder.write("jobs/p.md", "Go on.\n");
    folder.write(
        "jobs/job.yaml",
        "model: replay/job.script.yaml\nparent: { prompt: { file: p.md }, tools: [write_file, glob, grep] }\n",
    );
    let write = |path: &str| {
        format!("      - {{ tool: write_file, input: {{ path: {path}, content: x, overwrite: true }} }}\n")
    };
    folder.write(
        "jobs/job.script.yaml",
        format!(
            "parent:\n  - calls:\n{}{}{}{}      - {{ tool: glob, input: {{ pattern: '**/*' }} }}\n  - text: ok\n",
            write("jobs/job.yaml"),
            write("jobs/./p.md"),
            write("runs/x.txt"),
            write(".git/hooks/pre-commit")
        ),
    );
    let ended = folder.legwork(&["run", "jobs/job.yaml"]).run();
    ended.assert_code(0);
    let events = ended.run_folder().events();
    let results: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "call_finished").map(|event| &event["data"]["result"]).collect();
    assert!(results[..4].iter().all(|result| result["is_error"] == true), "{results:?}");
    assert!(!results[4]["text"].as_str().unwrap().contains("runs/"));
    assert_eq!(folder.read("jobs/p.md"), "Go on.\n");
}

#[test]
fn a_limit_on_cost_needs_a_known_price() {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\nlimits: { cost_usd: 1 }\n");
    let run = |model: &str| folder.legwork(&["run", "job.yaml", "--dry-run", "--model", model]).run();
    run("anthropic/our-own-model")
        .assert_code(3)
        .assert_stderr_contains("unknown-price")
        .assert_stderr_contains("job.yaml:3:21");
    run("anthropic/claude-haiku-4-5").assert_code(0).assert_stdout_contains("at most $1.00");
}

#[test]
fn a_secret_in_a_prompt_or_a_reply_is_redacted_before_it_is_stored_or_sent() {
    let secret = "hunter2-hunter2-99";
    let folder = folder_with(
        "env: [MY_TOKEN]\ninputs: { q: { type: string } }\nparent: { prompt: 'Use {{ inputs.q }}.', tools: [bash] }\n",
    );
    let server =
        Server::start(ScriptedAgents::of([Answer::text(&format!("It is {secret}.")).thinking(secret, "c2ln")]));
    let ended = folder
        .legwork(&["run", "job.yaml", "--set", &format!("q={secret}")])
        .anthropic(&server)
        .env("MY_TOKEN", secret)
        .run();
    ended.assert_code(0).assert_stdout("It is [masked:MY_TOKEN].\n").assert_not_printed(secret);
    ended.run_folder().assert_absent(secret);
    let requests = server.finish();
    assert_eq!(requests[0].prompt(), "Use [masked:MY_TOKEN].");
}

#[test]
fn prompts_are_shown_with_relative_paths_like_their_job() {
    let folder = TestFolder::new();
    folder.write("p.md", "é {{ gone }}\r\n");
    folder.write("job.yaml", "model: replay/x\nparent: { prompt: { file: p.md }, tools: [] }\n");
    let ended = folder.legwork(&["validate", "job.yaml", "--format", "json"]).run();
    assert_eq!(ended.assert_code(3).json()["diagnostics"][0]["file"], "p.md");
}

#[test]
fn checking_large_files_takes_linear_time() {
    let folder = TestFolder::new();
    let keys: String = (0..20_000).map(|at| format!("k{at}: 1\n")).collect();
    folder.write("keys.yaml", format!("model: anthropic/x\nparent: {{ prompt: x, tools: [] }}\n{keys}"));
    let lines = "    {{ job.name }}\n".repeat(20_000);
    folder.write("names.yaml", format!("model: anthropic/x\nparent:\n  tools: []\n  prompt: |\n{lines}"));
    folder.legwork(&["validate", "keys.yaml"]).run().assert_code(3);
    folder.legwork(&["validate", "names.yaml"]).run().assert_code(0);
}

#[test]
fn completions_know_commands_options_runs_codes_and_models() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/r.yaml\nparent: { prompt: Go., tools: [] }\n");
    folder.write("r.yaml", "parent: [{ text: Done. }]\n");
    folder.legwork(&["run", "job.yaml", "--key", "first"]).run().assert_code(0);
    folder.legwork(&["run", "job.yaml", "--key", "second", "--out", "elsewhere"]).run().assert_code(0);
    let values = |words: &[&str]| -> Vec<String> {
        let ended = folder.legwork(&["completions", "bash", "--"]).args(words).run();
        ended.assert_code(0).assert_stderr("");
        ended.stdout.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    let has = |words: &[&str], value: &str| {
        let values = values(words);
        assert!(values.iter().any(|known| known == value), "{words:?}: {values:?}");
    };
    has(&["va"], "validate");
    has(&["run", "--allow-"], "--allow-write");
    has(&["run", "--sandbox", ""], "required");
    has(&["runs", "pr"], "prune");
    has(&["show", ""], "job/first");
    has(&["show", "--turn", "3", "job/"], "job/first");
    has(&["resume", "la"], "latest");
    has(&["diff", "job/first", ""], "job/first");
    has(&["apply", "job/first", ""], "job/first");
    has(&["show", "--out", "elsewhere", ""], "job/second");
    has(&["runs", "--job", ""], "job");
    has(&["explain", "unknown-t"], "unknown-tool");
    has(&["explain", "unknown-tool", "bad-d"], "bad-duration");
    has(&["run", "job.yaml", "--model", "anthropic/"], "anthropic/claude-sonnet-5-5");
    has(&["run", "--model=anthropic/claude-s"], "--model=anthropic/claude-sonnet-5-5");
    has(&["run", "--model", "=", "anthropic/claude-s"], "anthropic/claude-sonnet-5-5");
    has(&["prices", "anthropic/"], "anthropic/claude-sonnet-5-5");
    // Files, which the shell knows.
    for words in
        [&["run", ""][..], &["show", "job/first", "x"], &["validate", "j"], &["run", "--", "--m"], &["no-such", "x"]]
    {
        assert_eq!(values(words), [""; 0], "{words:?}");
    }
    // A name that a shell would have to quote.
    std::fs::create_dir(folder.at("runs/job/$(touch x)")).unwrap();
    assert!(!values(&["show", "job/"]).iter().any(|name| name.contains('$')));
    let script = folder.legwork(&["completions", "bash"]).run().stdout;
    let line = "PATH=$PROGRAMS:$PATH; COMP_WORDS=(legwork explain unknown-to); COMP_CWORD=2; _legwork; echo \"${COMPREPLY[@]}\"";
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_legwork")).parent().unwrap();
    let completed = folder.program("bash", &["-c", &format!("{script}\n{line}")]).env("PROGRAMS", programs).run();
    completed.assert_code(0).assert_stdout("unknown-tool\n").assert_stderr("");
}

#[test]
fn zsh_and_fish_know_runs_codes_models_and_outcomes() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/r.yaml\nparent: { prompt: Go., tools: [] }\n");
    folder.write("r.yaml", "parent: [{ text: Done. }]\n");
    let id = folder.legwork(&["run", "job.yaml"]).run().run_folder().result()["run_id"].as_str().unwrap().to_owned();
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_legwork")).parent().unwrap();
    let has = |shell: &str, has_shell: &str, arguments: &dyn Fn(&str) -> Vec<String>| {
        if !folder.program("sh", &["-c", has_shell]).run().exited_with(0) {
            return crate::support::report_skipped(&format!("there is no {shell}"));
        }
        for (line, value) in [
            ("legwork va", "validate"),
            ("legwork show ", &format!("job/{id}")),
            ("legwork show job/la", "job/latest"),
            (&format!("legwork resume {}", &id[..10]), &id),
            ("legwork explain unknown-to", "unknown-tool"),
            ("legwork run job.yaml --model anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5-5"),
            ("legwork runs --outcome comp", "completed"),
        ] {
            let arguments = arguments(line);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
            let completed = folder.program(shell, &arguments).env("PATH", path).run();
            completed.assert_code(0);
            let values = completed.stdout.lines().map(|line| line.split('\t').next().unwrap_or_default());
            assert!(values.clone().any(|known| known == value), "{shell}: {line}\n{}", completed.full_output());
            // Values without a description have none in zsh either.
            assert!(
                !completed.stdout.lines().any(|line| line.trim_end().ends_with("--")),
                "{}",
                completed.full_output()
            );
        }
    };
    let fish = folder.legwork(&["completions", "fish"]).run().stdout;
    has("fish", "command -v fish", &|line| {
        ["--no-config", "-c"]
            .map(ToOwned::to_owned)
            .into_iter()
            .chain([format!("{fish}\ncomplete -C '{line}'")])
            .collect()
    });
    let zsh = folder.legwork(&["completions", "zsh"]).run().stdout;
    has("zsh", "command -v zsh", &|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let words = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let stubs = "compdef() { :; }; compadd() { print -rl -- $values $descriptions; }; _files() { :; }";
        let script = format!("{stubs}\n{zsh}\nwords=({words}); CURRENT=$#words; _legwork");
        ["-f".to_owned(), "-c".to_owned(), script].into()
    });
}
