//! The files of `legwork emit`. Their shell commands run for real, with programs in place of legwork and of the engine.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::models::user_servers::configure;
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{ForgeServer, TOKEN};
use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

/// A job with an input for each kind of value.
const JOB: &str = "\
model: anthropic/claude-haiku-5-5
inputs:
  topic: { type: string }
  count: { type: integer, default: 1 }
  style: { type: string, default: plain }
  token: { type: string, secret: true }
parent:
  prompt: Write about {{ inputs.topic }} in a {{ inputs.style }} style, {{ inputs.count }} times.
  tools: []
limits: { cost_usd: 1 }
";

const ENGINES: [&str; 4] = ["slurm", "kubernetes", "github", "gitlab"];

/// What no engine may take for something else than text.
const HOSTILE: &str =
    r#"style=a'b"c $(touch pwned) `touch pwned` ${{ secrets.X }} $[[ inputs.x ]] %A \n {{ x }} # -- "#;

fn repository() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("jobs/write.yaml", JOB).write("rows.csv", "id,topic\na,one\nb,two\nc,three\n");
    folder
}

fn emit(folder: &TestFolder, engine: &str, more: &[&str]) -> ProgramOutput {
    let image: &[&str] =
        if ["kubernetes", "gitlab"].contains(&engine) { &["--image", "registry.example/legwork:1"] } else { &[] };
    let program = folder.legwork(&["emit", engine, "jobs/write.yaml", "--rows", "rows.csv", "--id", "id"]);
    program.args(["--set-env", "token=TOPIC_TOKEN", "--shards", "3"]).args(image).args(more).run()
}

fn emitted(folder: &TestFolder, engine: &str, more: &[&str]) -> String {
    let output = emit(folder, engine, more);
    output.assert_code(0);
    output.stdout
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A folder with programs that come before all others.
fn install(folder: &TestFolder, programs: &[(&str, &str)]) -> String {
    for (name, script) in programs {
        let file = format!("bin/{name}");
        folder.write(&file, format!("#!/bin/bash\n{script}\n"));
        std::fs::set_permissions(folder.at(file), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", folder.at("bin").display(), std::env::var("PATH").unwrap())
}

/// Starts a script in bash, which sees what an engine sets.
fn bash(folder: &TestFolder, path: &str, script: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(folder.path()).env_clear().env("PATH", path);
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The shell script of an engine's processes, and what the engine sets for the second of three.
fn script(engine: &str, text: &str) -> (String, Vec<(&'static str, &'static str)>) {
    match engine {
        "slurm" => (
            text.to_owned(),
            vec![("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_JOB_ID", "9"), ("SLURM_RESTART_COUNT", "0")],
        ),
        "github" => {
            let parsed = yaml(text);
            let steps = parsed["jobs"]["map"]["steps"].as_array().unwrap();
            let step = steps.iter().find(|step| step["name"] == "Run").unwrap();
            let run = step["run"].as_str().unwrap().replace("${{ matrix.shard }}", "2");
            assert!(!run.contains("${{"), "GitHub replaces this: {run}");
            (format!("set -e\n{run}"), vec![])
        }
        _ => {
            let parsed = yaml(text);
            let run = parsed["map write"]["script"][0].as_str().unwrap().to_owned();
            (format!("set -e\n{run}"), vec![("CI_NODE_INDEX", "2"), ("CI_NODE_TOTAL", "3")])
        }
    }
}

/// Replaces `$(NAME)` and `$$` in a word, as Kubernetes does.
fn expanded(word: &str) -> String {
    let mut expanded = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        assert!(!rest.starts_with('('), "Kubernetes replaces a variable: {word}");
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        }
        expanded.push('$');
    }
    expanded + rest
}

/// Words to replace in a command, by their positions, words to add, and a part of the message.
type WrongCommand = (&'static [(usize, &'static str)], &'static [&'static str], &'static str);

#[test]
fn every_engine_starts_map_with_exactly_the_given_words() {
    let options = [
        "--jobs",
        "7",
        "--name",
        "my.map",
        "--set",
        HOSTILE,
        "--limit",
        "cost_usd=5",
        "--isolate",
        "none",
        "--out",
        "out put",
        "--model",
        "openai/gpt-5.4",
    ];
    for engine in ENGINES {
        let folder = repository();
        let text = emitted(&folder, engine, &options);
        let mut words: Vec<String> = if engine == "kubernetes" {
            let parsed = yaml(&text);
            let container = &parsed["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(container["env"][0], serde_json::json!({ "name": "LEGWORK_SHARDS", "value": "3" }));
            let command = container["command"].as_array().unwrap();
            command.iter().skip(1).map(|word| expanded(word.as_str().unwrap())).collect()
        } else {
            let path = install(&folder, &[("legwork", r#"printf '%s\n' "$@" > words"#)]);
            let (script, variables) = script(engine, &text);
            assert!(bash(&folder, &path, &script, &variables).wait().unwrap().success(), "{engine}\n{text}");
            folder.read("words").lines().map(str::to_owned).collect()
        };
        assert!(!folder.exists("pwned"), "{engine}: a value was executed");
        let shard = words.split_off(words.len() - 2);
        assert_eq!(shard, ["--shard", if engine == "kubernetes" { "auto" } else { "2/3" }], "{engine}");
        // Without a shared ledger, each of the three shards gets a part.
        let limit = if ["github", "gitlab"].contains(&engine) { "cost_usd=1.666666" } else { "cost_usd=5" };
        let expected = [
            "map",
            "jobs/write.yaml",
            "--rows",
            "rows.csv",
            "--id",
            "id",
            "--jobs",
            "7",
            "--name",
            "my.map",
            "--model",
            "openai/gpt-5.4",
            "--isolate",
            "none",
            "--out",
            "out put",
            "--set",
            HOSTILE,
            "--set-env",
            "token=TOPIC_TOKEN",
            "--limit",
            limit,
        ];
        assert_eq!(words, expected, "{engine}");
    }
}

#[test]
fn slurm_requeues_what_can_go_on_and_nothing_else() {
    let folder = repository();
    let text = emitted(&folder, "slurm", &[]);
    let programs = [
        ("legwork", r#"[ "$CODE" != 137 ] || kill -KILL $$; exit "$CODE""#),
        ("scontrol", r#"echo "$@" > requeued"#),
        ("sleep", ""),
    ];
    let path = install(&folder, &programs);
    let (script, variables) = script("slurm", &text);
    for (code, restarts, is_requeued) in [
        ("0", "0", false),
        ("1", "0", false),
        ("2", "0", false),
        ("3", "0", false),
        ("4", "0", false),
        ("5", "0", false),
        ("7", "0", false),
        ("127", "0", false),
        ("75", "0", true),
        ("75", "19", true),
        ("75", "20", false),
        ("129", "0", true),
        ("137", "0", true),
        ("143", "0", true),
    ] {
        let mut variables = variables.clone();
        variables.retain(|(name, _)| *name != "SLURM_RESTART_COUNT");
        variables.extend([("CODE", code), ("SLURM_RESTART_COUNT", restarts)]);
        let ended = bash(&folder, &path, &script, &variables).wait().unwrap();
        assert_eq!(ended.code().map(|code| code.to_string()).as_deref(), Some(code));
        assert_eq!(folder.exists("requeued"), is_requeued, "exit {code} after {restarts} restarts");
        if is_requeued {
            assert_eq!(folder.read("requeued"), "requeue 9_1\n");
            std::fs::remove_file(folder.at("requeued")).unwrap();
        }
    }
}

#[test]
fn a_signal_of_slurm_stops_legwork_and_only_the_time_limit_requeues() {
    for (signal, is_requeued) in [(Signal::USR1, true), (Signal::TERM, false)] {
        let folder = repository();
        let text = emitted(&folder, "slurm", &[]);
        // Takes a moment to close its records. Without the signal it would wait for good.
        let legwork = r#"trap 'echo closed > closed; exit 143' TERM; echo > started; while true; do read -t 0.05 < "$0.pipe"; done"#;
        let programs = [("legwork", legwork), ("scontrol", r#"echo "$@" > requeued"#), ("sleep", "")];
        let path = install(&folder, &programs);
        assert!(Command::new("mkfifo").arg(folder.at("bin/legwork.pipe")).status().unwrap().success());
        let legwork = legwork.replace(r#"< "$0.pipe""#, r#"<> "$0.pipe""#);
        install(&folder, &[("legwork", &legwork)]);
        let (script, variables) = script("slurm", &text);
        let mut child = bash(&folder, &path, &script, &variables);
        folder.wait_for("started");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert!(folder.exists("closed"));
        assert_eq!(folder.exists("requeued"), is_requeued, "{signal:?}");
    }
}

#[test]
fn ci_systems_try_again_what_can_go_on_and_nothing_else() {
    for engine in ["github", "gitlab"] {
        let folder = repository();
        let text = emitted(&folder, engine, &[]);
        // The exit codes of the attempts; then 0.
        let legwork = r#"echo x >> tries; n=$(wc -l < tries); set -- $CODES; exit "${!n:-0}""#;
        let path = install(&folder, &[("legwork", legwork), ("sleep", r#"echo "$1" >> pauses"#)]);
        let (script, mut variables) = script(engine, &text);
        for (codes, attempts, code) in [
            ("0", 1, 0),
            ("75 0", 2, 0),
            ("75 75 1", 3, 1),
            ("75 75 75 75 0", 4, 75),
            ("1", 1, 1),
            ("2", 1, 2),
            ("3", 1, 3),
            ("4", 1, 4),
            ("5", 1, 5),
            ("7", 1, 7),
            ("143", 1, 143),
        ] {
            variables.retain(|(name, _)| *name != "CODES");
            variables.push(("CODES", codes));
            let ended = bash(&folder, &path, &script, &variables).wait().unwrap();
            assert_eq!(ended.code(), Some(code), "{engine}: {codes}");
            assert_eq!(folder.read("tries").lines().count(), attempts, "{engine}: {codes}");
            let pauses = if folder.exists("pauses") { folder.read("pauses") } else { String::new() };
            assert_eq!(pauses.lines().count(), attempts - 1, "{engine}: {codes}");
            for file in ["tries", "pauses"] {
                let _ = std::fs::remove_file(folder.at(file));
            }
        }
    }
    let parsed = yaml(&emitted(&repository(), "gitlab", &[]));
    assert_eq!(parsed["map write"]["retry"]["exit_codes"], serde_json::json!([75]));
}

/// A job whose outputs are published after its map, by the script of the emitted file.
#[test]
fn ci_systems_publish_in_a_job_of_its_own() {
    let folder = repository();
    let without = emitted(&folder, "github", &[]) + &emitted(&folder, "gitlab", &[]);
    assert!(!without.contains("publish"), "{without}");
    let job = "model: replay/r.yaml\ninputs: { issue: { type: integer } }\noutputs: { comment: { target: '{{ inputs.issue }}' }, labels: { target: 3, add: [bug] } }\n\
               parent: { prompt: 'On {{ inputs.issue }}.', tools: [{ output: [comment, labels] }] }\n";
    folder
        .write("it's/write.yaml", job)
        .write("it's/r.yaml", "parent:\n  - calls: [{ tool: comment, input: { body: Hello. } }]\n  - text: Done.\n");
    folder.write("rows.csv", "id,issue\na,3\nb,4\nc,5\n").write(".gitignore", "/shards/\n/runs/\n").commit_all();
    let emit = |engine: &str, image: &[&str]| {
        let program =
            folder.legwork(&["emit", engine, "it's/write.yaml", "--rows", "rows.csv", "--id", "id", "--shards", "2"]);
        let ended = program.args(image).run();
        ended.assert_code(0);
        ended
    };
    let parsed = yaml(&emit("github", &[]).stdout);
    let publish = &parsed["jobs"]["publish"];
    assert_eq!(
        publish["permissions"],
        serde_json::json!({ "contents": "read", "issues": "write", "pull-requests": "write" })
    );
    for shard in 1..=2 {
        let shard_of = format!("{shard}/2");
        let map = folder.legwork(&[
            "map",
            "it's/write.yaml",
            "--rows",
            "rows.csv",
            "--id",
            "id",
            "--shard",
            &shard_of,
            "--sandbox",
            "off",
        ]);
        map.env("LEGWORK_RECORD_KEY", "a key of enough length").run().assert_code(0);
        std::fs::create_dir_all(folder.at("shards")).unwrap();
        std::fs::rename(folder.at("runs/write/map-rows"), folder.at(format!("shards/{shard}"))).unwrap();
    }
    let server = ForgeServer::start(Github::new(Git::default()));
    server.api().add_issue(4, &[]);
    server.api().add_issue(5, &[]);
    let steps = publish["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == "Publish").unwrap();
    let run = || {
        let path = install(&folder, &[("legwork", &format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_legwork")))]);
        let shell = folder.program("bash", &["-e", "-c", step["run"].as_str().unwrap()]).env("PATH", path);
        let shell =
            shell.env("GITHUB_API_URL", server.url()).env("GITHUB_REPOSITORY", "o/r").env("GITHUB_TOKEN", TOKEN);
        shell.env("LEGWORK_RECORD_KEY", "a key of enough length").env("LEGWORK_PUBLISH_PAUSE_MS", "0").run()
    };
    for _ in 0..2 {
        run().assert_code(0);
        assert_eq!(server.api().own_comments().len(), 3);
    }
    let parsed = yaml(&emit("gitlab", &["--image", "registry.example/legwork:1"]).stdout);
    assert_eq!(parsed["stages"], serde_json::json!(["map", "gather", "publish"]));
    let script = parsed["publish write"]["script"][0].as_str().unwrap();
    assert_eq!(script, step["run"].as_str().unwrap().replace("--to github", "--to gitlab"));
    emit("slurm", &[]).assert_stderr_contains("run `legwork publish` when the map has ended");
}

#[test]
fn gitlab_keeps_the_records_of_a_script_that_takes_too_long_and_does_not_repeat_it() {
    let parsed = yaml(&emitted(&repository(), "gitlab", &[]));
    let job = &parsed["map write"];
    assert_eq!(job["retry"]["when"], serde_json::json!(["runner_system_failure"]));
    let minutes = |value: &Value| {
        let text = value.as_str().unwrap();
        let (number, factor) = match text.strip_suffix('h') {
            Some(hours) => (hours, 60),
            None => (text.strip_suffix('m').unwrap(), 1),
        };
        number.parse::<u32>().unwrap() * factor
    };
    // Otherwise GitLab doesn't run `after_script`, which moves the records to the artifacts.
    let variables = &job["variables"];
    let scripts = minutes(&variables["RUNNER_SCRIPT_TIMEOUT"]) + minutes(&variables["RUNNER_AFTER_SCRIPT_TIMEOUT"]);
    assert!(scripts < minutes(&job["timeout"]));
}

#[test]
fn kubernetes_fails_a_shard_for_good_only_with_a_final_exit_code() {
    let parsed = yaml(&emitted(&repository(), "kubernetes", &[]));
    let spec = &parsed["spec"];
    assert_eq!((&spec["completions"], &spec["completionMode"]), (&3.into(), &"Indexed".into()));
    let rules = spec["podFailurePolicy"]["rules"].as_array().unwrap();
    // The first rule that matches decides.
    assert_eq!(rules[0]["action"], "Ignore");
    assert_eq!(rules[1]["action"], "FailIndex");
    let codes = &rules[1]["onExitCodes"];
    assert_eq!((&codes["operator"], &codes["containerName"]), (&"In".into(), &"legwork".into()));
    let codes: Vec<u64> = codes["values"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    for code in [1, 2, 3, 4, 5, 7] {
        assert!(codes.contains(&code), "{code}");
    }
    for code in [0, 75, 129, 130, 137, 143] {
        assert!(!codes.contains(&code), "{code}");
    }
    assert!(spec["backoffLimitPerIndex"].as_u64().unwrap() > 0);
}

#[test]
fn the_runners_of_github_let_bubblewrap_work() {
    let folder = repository();
    let parsed = yaml(&emitted(&folder, "github", &[]));
    let steps = parsed["jobs"]["map"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == "Install").unwrap();
    let path = install(&folder, &[("sudo", "echo \"$*\" >> commands"), ("cargo", "")]);
    let script = format!("set -e\n{}", step["run"].as_str().unwrap());
    assert!(bash(&folder, &path, &script, &[]).wait().unwrap().success());
    let commands = folder.read("commands");
    assert!(commands.contains(" bubblewrap\n") && commands.contains("apparmor_restrict_unprivileged_userns=0\n"));
}

#[test]
fn names_are_valid_for_kubernetes() {
    let folder = repository();
    let long = format!("{}-", "x".repeat(63));
    folder.write("jobs/write.yaml", format!("name: {long}\n{JOB}"));
    let parsed = yaml(&emitted(&folder, "kubernetes", &[]));
    let name = parsed["metadata"]["name"].as_str().unwrap();
    assert_eq!(name, "x".repeat(61));
}

#[test]
fn two_maps_of_a_job_have_different_names_in_kubernetes() {
    let folder = repository();
    let name =
        |more: &[&str]| yaml(&emitted(&folder, "kubernetes", more))["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(name(&[]), "write");
    let second = name(&["--name", "map2"]);
    assert!(second.starts_with("write-map2-"), "{second}");
    assert_ne!(second, name(&["--name", "MAP2"]));
}

#[test]
fn the_secrets_are_the_variables_of_the_jobs_models_and_of_secret_inputs() {
    let folder = repository();
    let secrets = |text: &str| {
        let parsed = yaml(text);
        let steps = parsed["jobs"]["map"]["steps"].as_array().unwrap().clone();
        let names = steps.iter().find(|step| step["name"] == "Run").unwrap()["env"].as_object().cloned();
        names.unwrap_or_default().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(secrets(&emitted(&folder, "github", &[])), ["ANTHROPIC_API_KEY", "TOPIC_TOKEN"]);
    let other = emitted(&folder, "github", &["--model", "gemini/gemini-3-flash"]);
    assert_eq!(secrets(&other), ["GEMINI_API_KEY", "TOPIC_TOKEN"]);
    folder.write("replies.script.yaml", "parent: [{ text: Done. }]\n");
    let scripted = emitted(&folder, "github", &["--model", "replay/replies.script.yaml"]);
    assert_eq!(secrets(&scripted), ["TOPIC_TOKEN"]);
    let manifest = emitted(&folder, "kubernetes", &[]);
    assert!(manifest.contains("--from-literal=ANTHROPIC_API_KEY=... \\\n#       --from-literal=TOPIC_TOKEN=... \\\n"));
}

#[test]
fn the_comments_name_the_other_variables_and_the_file_of_servers() {
    const FILE: &str = "# ~/.config/legwork/providers.toml, or legwork/providers.toml in $XDG_CONFIG_HOME.\n";
    let folder = repository();
    folder.write("replies.script.yaml", "parent: [{ text: Done. }]\n");
    let server =
        "[providers.local]\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\nkey_env = \"LOCAL_KEY\"\n";
    configure(&folder, &format!("{server}[providers.gemini]\ntries = 3\n"));
    let job =
        JOB.replace("model: anthropic/claude-haiku-5-5", "model: local/m\nenv: [LANG, BUILD_TOKEN, TOPIC_TOKEN, TZ]");
    for engine in ENGINES {
        folder.write("jobs/write.yaml", JOB);
        let text = emitted(&folder, engine, &[]);
        assert!(!text.contains("providers.toml") && !text.contains("aren't secrets"), "{engine}\n{text}");
        assert!(emitted(&folder, engine, &["--model", "gemini/gemini-3-flash"]).contains(FILE), "{engine}");
        folder.write("jobs/write.yaml", &job);
        let text = emitted(&folder, engine, &[]);
        assert!(text.contains("# The job also uses variables that aren't secrets (LANG, TZ): "), "{engine}\n{text}");
        assert!(text.contains(FILE) && text.contains("LOCAL_KEY") && text.contains("BUILD_TOKEN"), "{engine}\n{text}");
        // Without the file, the job isn't valid.
        assert!(emitted(&folder, engine, &["--model", "replay/replies.script.yaml"]).contains(FILE), "{engine}");
        assert!(engine == "slurm" || yaml(&text).is_object());
    }
}

#[test]
fn a_wrong_command_line_or_file_is_refused() {
    let folder = repository();
    folder
        .write("bad.csv", "id,topics\na,one\n")
        .write("none.csv", "id\na\n")
        .write("wrong.csv", "id,topic,count\na,one,1\nb,two,many\nc,three,few\n");
    let base = ["emit", "slurm", "jobs/write.yaml", "--rows", "rows.csv", "--id", "id", "--shards", "3"];
    let token = ["--set-env", "token=TOKEN"];
    let with = |changes: &[(usize, &str)], more: &[&str]| {
        let mut words = base.map(str::to_owned).to_vec();
        for (at, word) in changes {
            (*word).clone_into(&mut words[*at]);
        }
        words.extend(token.iter().chain(more).map(|word| (*word).to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        folder.legwork(&words).run()
    };
    with(&[], &[]).assert_code(0);
    let usage: &[WrongCommand] = &[
        (&[(1, "pbs")], &[], "invalid value 'pbs'"),
        (&[(8, "0")], &[], "0 is not in 1.."),
        (&[(8, "5000000")], &[], "slurm can start 4000000 at most"),
        (&[(1, "github"), (8, "257")], &[], "github can start 256 at most"),
        (&[(1, "gitlab"), (8, "201")], &["--image", "a"], "gitlab can start 200 at most"),
        (&[(1, "kubernetes"), (8, "100001")], &["--image", "a"], "kubernetes can start 100000 at most"),
        (&[(1, "kubernetes")], &[], "needs an image"),
        (&[(1, "gitlab")], &[], "needs an image"),
        (&[], &["--image", "a"], "doesn't run containers"),
        (&[(1, "gitlab")], &["--image", "a b"], "isn't the name of an image"),
        (&[(4, "-")], &[], "have no standard input"),
        (&[(1, "github"), (4, "../rows.csv")], &[], "has only the files of the repository"),
        (&[(1, "kubernetes")], &["--image", "a", "--out", "/records"], "--out /records: kubernetes has only the files"),
        (&[(1, "github")], &["--out", "../records"], "--out ../records: github has only the files"),
        (&[], &["--set", "style=a\nb"], "U+000A"),
        (&[], &["--out", "a\u{2028}b"], "U+2028"),
        (&[], &["--set", "style=\u{202e}"], "U+202E"),
        (&[], &["--set", "style=@-"], "have no standard input"),
        (&[], &["--model", "replay/missing.yaml"], "there is no such file"),
        (&[], &["--limit", "turns=3"], "a map has no such limit"),
        (&[(1, "github")], &["--limit", "tokens=2"], "3 shards can't share so little"),
        (&[], &["--limit", "cost_usd=-3"], "isn't valid for `cost_usd`"),
        (&[], &["--limit", "wall_clock=3"], "isn't a duration"),
        (&[], &["--name", "../x"], "the name of the map"),
        (&[], &["--name", "latest"], "the name of the map"),
        (&[], &["--isolate", "vm"], "invalid value 'vm'"),
        (&[], &["--jobs", "0"], "0 is not in 1.."),
    ];
    for (changes, more, message) in usage {
        with(changes, more).assert_code(2).assert_stdout("").assert_stderr_contains(message);
    }
    let invalid: &[WrongCommand] = &[
        (&[(2, "jobs/missing.yaml")], &[], "error[unreadable]"),
        (&[(4, "missing.csv")], &[], "error[unreadable]"),
        (&[(4, "jobs")], &[], "it is a folder"),
        (&[(4, "bad.csv")], &[], "error[unknown-input]"),
        (&[(4, "none.csv")], &[], "error[missing-input]"),
        (&[(6, "ids")], &[], "error[bad-row-id]"),
        (&[], &["--set", "styles=a"], "did you mean `style`?"),
        (&[], &["--set", "style=a", "--set", "style=b"], "error[duplicate-input]"),
        (&[], &["--model", "nobody/x"], "error[unknown-provider]"),
        (&[], &["--set", "style=@missing"], "error[unreadable-input]"),
        (&[(4, "wrong.csv")], &[], "wrong.csv:3:7"),
        (&[(4, "wrong.csv")], &[], "wrong.csv:4:9"),
    ];
    for (changes, more, message) in invalid {
        with(changes, more).assert_code(3).assert_stdout("").assert_stderr_contains(message);
    }
    let words = ["emit", "slurm", "jobs/write.yaml", "--rows", "rows.csv", "--id", "id", "--shards", "3"];
    let secret = folder.legwork(&words).args(["--set", "token=hunter2-hunter2"]).run();
    secret.assert_code(3).assert_stderr_contains("would be in the file").assert_not_printed("hunter2");
    folder.legwork(&words).run().assert_code(3).assert_stderr_contains("`--set-env token=VARIABLE`");
    configure(&folder, "[providers.local]\n");
    with(&[], &[]).assert_code(5).assert_stdout("").assert_stderr_contains("error[missing-key]");
}

#[test]
fn ci_systems_get_only_what_a_checkout_has() {
    const ROWS: &str = "id,topic\na,one\n";
    let folder = repository();
    folder.write("below/write.yaml", JOB).write("below/rows.csv", ROWS).commit_all();
    folder.write(".gitignore", "rows.csv\n").write("below/new.csv", ROWS).write("jobs/rows.csv", ROWS);
    let root = folder.path().canonicalize().unwrap();
    for engine in ENGINES {
        let image: &[&str] = if ["kubernetes", "gitlab"].contains(&engine) { &["--image", "a"] } else { &[] };
        let is_checkout = ["github", "gitlab"].contains(&engine);
        let emit = |below: &str, job: &str, rows: &str| {
            let words = ["emit", engine, job, "--rows", rows, "--id", "id", "--shards", "1", "--set-env", "token=T"];
            folder.legwork(&words).args(image).in_folder(folder.at(below)).run()
        };
        let output = emit("below", "write.yaml", "rows.csv");
        output.assert_code(if is_checkout { 2 } else { 0 });
        assert_eq!(output.stderr.contains(&format!("Run it in {}", root.display())), is_checkout, "{}", output.stderr);
        // git tracks the first file in spite of the rule.
        for (rows, is_ignored) in [("rows.csv", false), ("below/new.csv", false), ("jobs/rows.csv", true)] {
            let output = emit("", "jobs/write.yaml", rows);
            output.assert_code(0);
            let warning = format!("git ignores {rows}, so {engine} doesn't have it");
            assert_eq!(output.stderr.contains(&warning), is_checkout && is_ignored, "{rows}: {}", output.stderr);
        }
    }
}

#[test]
fn a_path_that_begins_with_a_dash_is_not_an_option() {
    for engine in ENGINES {
        let text = emitted(&repository(), engine, &["--out=-x"]);
        assert!(text.contains(" ./-x/write/map-rows"), "{engine}\n{text}");
        assert!(!text.contains(" -x/"), "{engine}\n{text}");
    }
}

#[test]
fn more_shards_than_rows_are_pointed_out() {
    let folder = repository();
    let output = folder.legwork(&["emit", "slurm", "jobs/write.yaml", "--rows", "rows.csv", "--id", "id"]);
    let output = output.args(["--set-env", "token=T", "--shards", "2000"]).run();
    output.assert_code(0).assert_stderr_contains("2000 shards share 3 rows");
    output.assert_stdout_contains("#SBATCH --array=0-1999\n").assert_stdout_contains("MaxArraySize=2001");
}

#[test]
fn the_command_in_the_comments_names_rows_without_a_record() {
    let folder = repository();
    folder.write("write.script.yaml", "parent: [{ text: Done. }]\n");
    let model = ["--model", "replay/write.script.yaml"];
    folder.write("first.csv", "id,topic\na,one\n");
    let map = ["map", "jobs/write.yaml", "--rows", "first.csv", "--name", "map-rows", "--id", "id"];
    folder.legwork(&map).args(["--set", "token=x"]).args(model).run().assert_code(0);
    for engine in ["slurm", "kubernetes"] {
        let text = emitted(&folder, engine, &model);
        let command = text.lines().find_map(|line| line.strip_prefix("#     legwork gather ")).unwrap();
        let words = ["gather"].into_iter().chain(command.split(' ')).collect::<Vec<_>>();
        let gathered = folder.legwork(&words).run();
        gathered.assert_code(75).assert_stdout_contains("2 missing");
    }
}

/// A server to which rows report. It keeps them waiting until it is opened.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "pods are processes with namespaces"))]
struct Reports {
    lines: Arc<Mutex<Vec<String>>>,
    is_open: Arc<AtomicBool>,
    port: u16,
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "pods are processes with namespaces"))]
impl Reports {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (lines, is_open) = (Arc::default(), Arc::default());
        let reports = Self {
            lines: Arc::clone(&lines),
            is_open: Arc::clone(&is_open),
            port: listener.local_addr().unwrap().port(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, lines, is_open) = (stream.unwrap(), Arc::clone(&lines), Arc::clone(&is_open));
                std::thread::spawn(move || {
                    let mut line = String::new();
                    let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut line);
                    lines.lock().unwrap().push(line.trim().to_owned());
                    while !is_open.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    // The process may have been killed.
                    let _ = stream.write_all(b"go on\n");
                });
            }
        });
        reports
    }

    fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }
}

#[test]
#[cfg(target_os = "linux")]
fn killed_pods_are_repeated_until_every_row_has_finished_once() {
    use std::time::Instant;

    use crate::support::program::RunningProgram;

    const ROWS: usize = 24;
    const SHARDS: usize = 4;
    let folder = TestFolder::new();
    let reports = Reports::listen();
    let job = "\
model: anthropic/claude-haiku-5-5
inputs: { item: { type: integer } }
network: open
parent: { prompt: 'Report item {{ inputs.item }}.', tools: [bash] }
limits: { cost_usd: 1 }
";
    // The name of a row's workspace is the row's id.
    let call = r#"exec 3<>/dev/tcp/127.0.0.1/PORT && echo "$PWD" >&3 && read -r answer <&3"#;
    let call = call.replace("PORT", &reports.port.to_string());
    let script = serde_json::json!({ "parent": [
        { "calls": [{ "tool": "bash", "input": { "command": call } }] },
        { "text": "Reported." },
    ] });
    let ids: Vec<String> = (0..ROWS).map(|number| format!("row-{number:02}")).collect();
    let rows: String = ids.iter().enumerate().map(|(number, id)| format!("{id},{number}\n")).collect();
    folder.write("jobs/report.yaml", job).write("replies.script.yaml", script.to_string());
    folder.write("rows.csv", format!("id,item\n{rows}"));
    let words = ["emit", "kubernetes", "jobs/report.yaml", "--rows", "rows.csv", "--id", "id", "--jobs", "2"];
    let more = ["--isolate", "copy", "--model", "replay/replies.script.yaml", "--image", "a", "--shards", "4"];
    let emitted = folder.legwork(&words).args(more).run();
    emitted.assert_code(0);
    let manifest = yaml(&emitted.stdout);
    let spec = &manifest["spec"];
    let final_codes: Vec<i64> = spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_i64)
        .collect();
    let attempts = spec["backoffLimitPerIndex"].as_u64().unwrap() + 1;
    let container = &spec["template"]["spec"]["containers"][0];
    let command: Vec<String> =
        container["command"].as_array().unwrap().iter().map(|word| expanded(word.as_str().unwrap())).collect();
    assert_eq!(command[0], "legwork");
    let pod = |index: usize| {
        let arguments: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
        let shards = container["env"][0]["value"].as_str().unwrap();
        let pod = folder.legwork(&arguments).env("JOB_COMPLETION_INDEX", index.to_string());
        pod.env("LEGWORK_SHARDS", shards).env("LEGWORK_RECORD_KEY", "0123456789abcdef0123456789abcdef")
    };

    let pods: Vec<_> = (0..SHARDS).map(|index| pod(index).spawn()).collect();
    // Every pod has two rows, which wait for an answer.
    let deadline = Instant::now() + Duration::from_secs(120);
    while reports.count() < 2 * SHARDS {
        assert!(Instant::now() < deadline, "only {} rows have reported", reports.count());
        std::thread::sleep(Duration::from_millis(5));
    }
    for (pod, signal) in pods.iter().zip([Signal::KILL, Signal::TERM, Signal::KILL]) {
        pod.signal(signal);
    }
    let mut pods = pods.into_iter();
    let mut ended: Vec<ProgramOutput> = pods.by_ref().take(3).map(RunningProgram::wait).collect();
    assert!(ended[0].signal() == Some(9) && ended[1].exited_with(143) && ended[2].signal() == Some(9));
    reports.is_open.store(true, Ordering::Relaxed);
    ended.extend(pods.map(RunningProgram::wait));
    for (index, mut output) in ended.into_iter().enumerate() {
        for _ in 1..attempts {
            let is_final = final_codes.iter().any(|code| output.exited_with(i32::try_from(*code).unwrap()));
            if output.exited_with(0) || is_final {
                break;
            }
            output = pod(index).run();
        }
        output.assert_code(0);
    }

    let mut reported: Vec<String> = Vec::new();
    for line in reports.lines.lock().unwrap().iter() {
        let id = ids.iter().find(|id| line.split('/').any(|part| part == id.as_str()));
        reported.push(id.unwrap_or_else(|| panic!("a report from no row: {line}")).clone());
    }
    reported.sort();
    assert_eq!(reported, ids, "every row reports once");
    let gathered = folder.legwork(&["gather", "runs/report/map-rows", "--rows", "rows.csv", "--id", "id"]).run();
    gathered.assert_code(0);
    let results = folder.read("runs/report/map-rows/results.jsonl");
    let results: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = results.iter().filter_map(|result| result["id"].as_str()).collect();
    assert_eq!(names, ids);
    assert!(results.iter().all(|result| result["outcome"] == "completed"), "{results:?}");
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("rows.csv", "id,topic\na,x\n");
    for name in ["pipe", "pipe.yaml", "pipe.csv"] {
        assert!(Command::new("mkfifo").arg(folder.at(name)).status().unwrap().success());
    }
    for (job, rows, more) in [
        ("pipe.yaml", "rows.csv", &[][..]),
        ("job.yaml", "pipe.csv", &[]),
        ("job.yaml", "rows.csv", &["--model", "replay/pipe"]),
        ("job.yaml", "rows.csv", &["--set", "style=@pipe"]),
    ] {
        let program = folder.legwork(&["emit", "slurm", job, "--rows", rows, "--shards", "1", "--id", "id"]);
        // The harness ends a program that hangs.
        let ended = program.args(["--set-env", "token=TOKEN"]).args(more).run();
        ended.assert_code(if more.contains(&"--model") { 2 } else { 3 });
        assert!(ended.stderr.contains("it isn't a"), "{}", ended.full_output());
    }
}
