//! The output of `run --dry-run`: everything that would happen, without terminal escapes.

use serde_json::Value;

use crate::running::runs::folder_with;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = r#"
name: tidy
description: Tidies up.
inputs:
  folder: { type: path, default: src }
  token: { type: string, secret: true }
parent:
  prompt: Tidy {{ inputs.folder }} on {{ run.date }}.
  tools: [bash: { allow: ["cargo fmt"], timeout: 90s }, task]
  max_turns: 7
subagents:
  reader:
    description: |
      Reads code.
      Never writes.
    system: "Read in {{ workspace }}.\n\nSay what you saw."
    model: { name: anthropic/claude-haiku-4-5, thinking: low }
    tools: []
limits: { cost_usd: 1.5, tool_calls: none }
env: [CARGO_HOME, RUSTUP_HOME]
"#;

#[test]
fn the_plan_shows_everything_that_would_happen() {
    let folder = folder_with(JOB);
    let arguments = ["run", "job.yaml", "--dry-run", "--set-env", "token=TOKEN"];
    let shown = folder.legwork(&arguments).env("TOKEN", "hunter2-hunter2").run();
    shown.assert_code(0).assert_stderr("").assert_not_printed("hunter2");
    let text = shown.stdout.replace(folder.path().to_str().unwrap(), "WORKSPACE");
    let (before, rest) = text.split_once("  system\n").unwrap();
    let (system, after) = rest.split_once("  prompt\n").unwrap();
    assert_eq!(
        before,
        "\
job         tidy
description Tidies up.
workspace   WORKSPACE
input       folder = \"src\"
input       token = (secret; commands see $INPUT_TOKEN)

parent
  model       anthropic/claude-sonnet-4-6
  max_turns   7
  max_tokens  8000
  tools       bash {\"allow\":[\"cargo fmt\"],\"timeout_ms\":90000}
              task
"
    );
    assert!(system.contains("WORKSPACE") && system.lines().all(|line| line.starts_with("    |")), "{system}");
    assert_eq!(
        after,
        "    | Tidy src on <run.date>.

subagent reader
  description
    | Reads code.
    | Never writes.
  model       anthropic/claude-haiku-4-5, thinking low
  max_turns   30
  max_tokens  4000
  tools       none
  system
    | Read in WORKSPACE.
    |
    | Say what you saw.

limits
  cost                $1.50
  tokens              none
  wall clock          30 min
  tool calls          none
  subagents           50, 4 at once

env         CARGO_HOME, RUSTUP_HOME
network     none (requested)
sandbox     auto: bubblewrap, or landlock if bubblewrap doesn't work; on macOS, seatbelt
compaction  summary
keep        always
cost        at most $1.50 (limits.cost_usd)
"
    );
    assert_eq!(shown.stdout, folder.legwork(&arguments).env("TOKEN", "hunter2-hunter2").run().stdout);
    assert_eq!(folder.list(), ["job.yaml"]);
}

#[test]
fn verbose_shows_the_tools_as_sent_to_the_provider() {
    let folder = folder_with(
        "parent: { prompt: Go., tools: [bash: { allow: ['git log *'] }, glob, todo, task] }\nsubagents:\n  \
         one: { description: First., tools: [grep, read_file] }\n  two: { tools: [] }\n",
    );
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run", "--verbose"]).run();
    shown.assert_code(0);
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("task", serde_json::json!({ "agent": "one", "prompt": "Look." }))]),
        Answer::text("Seen."),
        Answer::text("Done."),
    ]));
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    let requests = server.finish();
    let mut seen = 0;
    for tool in requests[..2].iter().flat_map(|request| request.body()["tools"].as_array().unwrap()) {
        let block = |title: &str, text: &str| {
            let lines: Vec<String> = text.lines().map(|line| format!("    | {line}").trim_end().to_owned()).collect();
            format!("  {title}\n{}\n", lines.join("\n"))
        };
        let name = tool["name"].as_str().unwrap();
        shown.assert_stdout_contains(&block(&format!("tool {name}"), tool["description"].as_str().unwrap()));
        shown.assert_stdout_contains(&block(&format!("input of {name}"), &format!("{:#}", tool["input_schema"])));
        seen += 1;
    }
    assert_eq!(seen, 6);
    shown.assert_stdout_contains("    | - one: First.\n    | - two\n").assert_stdout_contains("`git log *`");
    let terse = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    assert!(!terse.stdout.contains("input of"), "{}", terse.stdout);
}

#[test]
fn verbose_requires_a_dry_run_as_text() {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
    folder
        .legwork(&["run", "job.yaml", "--verbose"])
        .run()
        .assert_code(2)
        .assert_stderr_contains("--dry-run")
        .assert_stdout("");
    let json = folder.legwork(&["run", "job.yaml", "--dry-run", "--verbose", "--format=json"]).run();
    json.assert_code(2).assert_stderr_contains("--verbose").assert_stdout("");
    assert_eq!(folder.list(), ["job.yaml"]);
}

#[test]
fn json_output_equals_the_plan_in_the_record() {
    let folder = TestFolder::new();
    let job = "model: replay/job.script.yaml\ninputs: { a: { type: string } }\nenv: [MY_TOKEN]\n\
               parent: { prompt: 'Use {{ inputs.a }}.', tools: [task, grep] }\n";
    folder.write("job.yaml", job).write("job.script.yaml", "parent: [{ text: Hello. }]\n");
    let run = |arguments: &[&str]| {
        let all = [&["run", "job.yaml", "--set", "a=hunter2-hunter2 \u{9b}31m"], arguments].concat();
        folder.legwork(&all).env("MY_TOKEN", "hunter2-hunter2").run()
    };
    let json = run(&["--dry-run", "--format=json"]);
    json.assert_code(0).assert_not_printed("hunter2");
    let recorded = run(&[]).run_folder();
    assert_eq!(json.json(), recorded.plan());
    assert_eq!(json.json()["parent"]["prompt"], "Use [masked:MY_TOKEN] \u{9b}31m.");
    let line = run(&["--dry-run", "--format=jsonl"]);
    assert_eq!(line.json_lines(), [recorded.plan()]);
}

#[test]
fn a_job_cannot_inject_escapes_or_lines() {
    let hostile = r"a\e[31m\u009b0m\u202e\r\n::error::x\ncost        at most $0.00\u2028b";
    let folder = folder_with(&format!(
        "description: \"{hostile}\"\ninputs:\n  text: {{ type: string, default: \"{hostile}\" }}\n  \
         list: {{ type: list, default: [\"{hostile}\"] }}\n\
         parent:\n  prompt: \"{hostile} {{{{ inputs.text }}}}\"\n  system: \"{hostile}\"\n  \
         tools: [task, bash: {{ allow: [\"echo '{hostile}'\"] }}]\nsubagents:\n  \
         a: {{ description: \"{hostile}\", system: \"{hostile}\", tools: [] }}\n"
    ));
    let workspace = folder.path().join("w\u{1b}[2J\n::error::y");
    std::fs::create_dir(&workspace).unwrap();
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run", "--verbose", "--workspace"]).arg(&workspace).run();
    shown.assert_code(0).assert_stdout_contains("at most $0.00");
    for line in shown.stdout.lines() {
        let steers = |letter: char| letter.is_control() || ('\u{2028}'..='\u{202e}').contains(&letter);
        assert!(!line.contains(steers), "{line:?}");
        assert!(!line.trim_start().starts_with("::"), "{line:?}");
    }
    let costs: Vec<&str> = shown.stdout.lines().filter(|line| line.starts_with("cost ")).collect();
    assert_eq!(costs, ["cost        unbounded: set limits.cost_usd or limits.tokens"]);
}

#[test]
fn headings_are_bold_with_colour() {
    let folder = folder_with(JOB);
    let run = || folder.legwork(&["run", "job.yaml", "--dry-run", "--set-env", "token=PATH"]);
    let (plain, bold) = (run().run(), run().env("CLICOLOR_FORCE", "1").run());
    bold.assert_stdout_contains("\n\u{1b}[1msubagent reader\u{1b}[0m\n");
    assert_eq!(bold.stdout.replace("\u{1b}[1m", "").replace("\u{1b}[0m", ""), plain.stdout);
    assert!(!plain.stdout.contains('\u{1b}'));
    assert_eq!(run().env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").run().stdout, plain.stdout);
}

#[test]
fn the_cost_bound_names_its_limit() {
    let cost = |model: &str, limits: &str| {
        let folder = folder_with(&format!("parent: {{ prompt: Go., tools: [] }}\n{limits}"));
        let shown = folder.legwork(&["run", "job.yaml", "--dry-run", "--model", model]).run();
        shown.assert_code(0);
        shown.stdout.lines().find(|line| line.starts_with("cost ")).unwrap()[12..].to_owned()
    };
    let haiku = "anthropic/claude-haiku-4-5";
    assert_eq!(cost(haiku, ""), "unbounded: set limits.cost_usd or limits.tokens");
    assert_eq!(cost(haiku, "limits: { cost_usd: 1, tokens: 10000000 }"), "at most $1.00 (limits.cost_usd)");
    let by_tokens = cost(haiku, "limits: { cost_usd: 9, tokens: 100000 }");
    let (most, day) = by_tokens.split_once(" on ").unwrap();
    assert_eq!(most, format!("at most $0.50 (limits.tokens at $5.00 per million, the highest rate of {haiku}"));
    assert!(day.len() == 11 && day.ends_with(')'), "{day}");
    let unknown = cost("anthropic/our-own", "limits: { tokens: 9 }");
    assert_eq!(unknown, "unknown: no price for anthropic/our-own; limits.tokens still applies");
    assert_eq!(cost("replay/x.yaml", ""), "free (all replies come from a script or a record)");
}

#[test]
fn a_job_that_cannot_run_has_no_plan() {
    let folder = folder_with("inputs: { a: { type: string } }\nparent: { prompt: '{{ inputs.a }}', tools: [] }\n");
    folder
        .legwork(&["run", "job.yaml", "--dry-run"])
        .run()
        .assert_code(3)
        .assert_stdout("")
        .assert_stderr_contains("--set a=");
    let empty: Value = folder.legwork(&["run", "job.yaml", "--dry-run", "--set=a=x", "--format=json"]).run().json();
    assert_eq!(empty["parent"]["prompt"], "x");
}

#[test]
fn allowed_changes_are_shown() {
    let job = "parent: { prompt: Go., tools: [bash] }\n";
    let shown = |keys: &str| {
        let ended = folder_with(&format!("{job}{keys}")).legwork(&["run", "job.yaml", "--dry-run"]).run();
        ended.assert_code(0).stdout.clone()
    };
    let plain = shown("");
    assert!(!plain.contains("\ngit ") && !plain.contains("\nprotect"), "{plain}");
    let all = shown("git: commit\nprotect: [deploy/]\nallow_changes: [.envrc, deploy/x]\n");
    for (label, value) in [("git", "commit"), ("protect", "deploy/"), ("may change", ".envrc, deploy/x")] {
        let has = |line: &str| {
            line.strip_prefix(label).is_some_and(|rest| rest.starts_with(' ') && rest.trim().starts_with(value))
        };
        assert!(all.lines().any(has), "{label}: {all}");
    }
}
