//! The first mistakes of a new user: each leads to the next step.

use serde_json::json;

use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

const HEAD: &str = "model: anthropic/claude-sonnet-5-5\nlimits: { cost_usd: 1 }\n";
const REPLAY: [&str; 4] = ["--model", "replay/jobs/x.script.yaml", "--sandbox", "off"];

/// A folder with a job `jobs/x.yaml` and a script that answers once.
fn folder(job: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("jobs/x.yaml", format!("{HEAD}{job}")).write("jobs/x.script.yaml", "parent: [{ text: done }]\n");
    folder
}

const JOB: &str = "parent: { prompt: hi, tools: [] }\n";

fn run(folder: &TestFolder, words: &[&str]) -> ProgramOutput {
    folder.legwork(words).args(REPLAY).run()
}

/// Runs a job with a check without repairs.
fn check(run: &str) -> (TestFolder, ProgramOutput) {
    let folder = folder(&format!("{JOB}checks:\n  - name: it holds\n    run: {run}\n"));
    folder.write("a.py", "old\n");
    let ended = self::run(&folder, &["run", "jobs/x.yaml"]);
    (folder, ended)
}

#[test]
fn a_check_with_an_unquoted_exclamation_mark_is_refused_and_fixed() {
    let (folder, ended) = check("! grep old a.py");
    ended.assert_code(3).assert_stderr_contains("unknown-tag").assert_stderr_contains("'! grep old a.py'");
    folder.legwork(&["validate", "--fix"]).run().assert_code(0).assert_stderr_contains("1 fixed");
    assert!(folder.read("jobs/x.yaml").contains("run: '! grep old a.py'\n"));
    run(&folder, &["run", "jobs/x.yaml"]).assert_code(1).assert_stderr_contains("it holds");
    folder.write("a.py", "new\n");
    run(&folder, &["run", "jobs/x.yaml"]).assert_code(0);
}

#[test]
fn every_line_and_every_part_of_a_pipe_counts() {
    for (script, code) in [
        ("|\n      false\n      true", 1),
        ("'false | tail -n 5'", 1),
        ("|\n      true\n      true | tail -n 5", 0),
        ("|\n      if grep new a.py; then exit 1; fi\n      test -f a.py", 0),
        ("'grep new a.py || true'", 0),
        ("|\n      set +o pipefail\n      false | true", 0),
    ] {
        let (_, ended) = check(script);
        ended.assert_code(code);
    }
}

#[test]
fn a_command_that_is_still_writing_says_what_sigpipe_is() {
    let (folder, ended) = check("yes | head -n 1");
    ended.assert_code(1).assert_stderr_contains("exit code 141");
    folder.legwork(&["show"]).run().assert_stdout_contains("SIGPIPE").assert_stdout_contains("sed -n 1p");
}

#[test]
fn other_names_of_commands_and_options_are_known() {
    let folder = folder(JOB);
    for (word, meant) in [
        ("check", "validate"),
        ("list", "runs"),
        ("new", "init"),
        ("continue", "resume"),
        ("batch", "map"),
        ("LS", "runs"),
        ("rerun", "run"),
        ("vaildate", "validate"),
    ] {
        let ended = folder.legwork(&[word]).run();
        ended.assert_code(2).assert_stderr_contains(&format!("'{meant}'"));
        assert_eq!(ended.stderr.matches("tip:").count(), 1, "{}", ended.stderr);
    }
    folder.legwork(&["x"]).run().assert_code(2).assert_stderr_contains("'legwork run jobs/x.yaml'");
    folder.legwork(&["version"]).run().assert_code(2).assert_stderr_contains("legwork --version");
    folder.legwork(&["init", "jobs/My_job.yaml"]).run().assert_code(2).assert_stderr_contains("`legwork init my-job`");
    folder.legwork(&["jobs/x.yaml"]).run().assert_code(2).assert_stderr_contains("'legwork run jobs/x.yaml'");
    for (words, help) in [
        (&["--file", "a"][..], "without an option"),
        (&["--prompt", "hello"], "--set NAME=VALUE"),
        (&["-p", "a=b"], "--set NAME=VALUE"),
        (&["topic=a"], "'--set topic=a'"),
        (&["--max-turns", "3"], "--limit"),
        (&["--json"], "--format json"),
        (&["--yolo"], "nobody is asked"),
    ] {
        let ended = folder.legwork(&["run", "jobs/x.yaml"]).args(words.iter().copied()).run();
        ended.assert_code(2).assert_stderr_contains(help);
    }
}

#[test]
fn a_server_in_the_form_of_other_programs_leads_to_the_form_here() {
    let server = "{ type: stdio, command: npx -y, args: [docs-server, --quiet], cwd: src }";
    let folder =
        folder(&format!("parent: {{ prompt: hi, tools: [{{ mcp: a, allow: [x] }}] }}\nmcp: {{ a: {server} }}\n"));
    let ended = folder.legwork(&["validate"]).run();
    ended.assert_code(3).assert_stdout_contains("an item: `command: [npx, -y, docs-server, --quiet]`");
    ended.assert_stdout_contains("items of the command").assert_stdout_contains("uses stdio");
    ended.assert_stdout_contains("starts in the workspace");
}

#[test]
fn what_follows_a_tag_is_no_finding_of_its_own() {
    let folder = folder(
        "parent:\n  prompt: hi\n  tools:\n    - !read file\nchecks:\n  - { name: a, run: ! [ -f x ], when: !x y }\n",
    );
    let ended = folder.legwork(&["validate", "--format", "concise"]).run();
    ended.assert_code(3);
    assert_eq!(ended.stdout.matches("error[").count(), 3, "{}", ended.stdout);
    assert_eq!(ended.stdout.matches("error[unknown-tag]").count(), 3, "{}", ended.stdout);
}

#[test]
fn a_wrong_name_of_a_job_leads_to_the_job() {
    let folder = folder(JOB);
    folder.write("jobs/review.yaml", format!("{HEAD}{JOB}"));
    for (name, meant) in [
        ("jobs/x.yml", "jobs/x.yaml"),
        ("x.yml", "jobs/x.yaml"),
        ("x", "jobs/x.yaml"),
        ("jobs/revew.yaml", "jobs/review.yaml"),
        ("jobs", "jobs/review.yaml"),
        (".", "such as `jobs/review.yaml`"),
        ("https://example.com/x.yaml", "download it"),
        ("jobs/entirely-different.yaml", "legwork init"),
    ] {
        run(&folder, &["run", name]).assert_code(3).assert_stderr_contains(meant);
    }
    let empty = TestFolder::new();
    empty.legwork(&["validate"]).run().assert_code(3).assert_stdout_contains("legwork init");
    for model in ["jobs/x.script.yaml", "x.script.yaml"] {
        let ended = folder.legwork(&["run", "jobs/x.yaml", "--model", model]).run();
        ended.assert_code(3).assert_stderr_contains(&format!("replay/{model}"));
    }
}

#[test]
fn show_leads_from_a_job_and_a_map_to_what_happened() {
    let folder = folder("inputs: { file: { type: string } }\nparent: { prompt: '{{ inputs.file }}', tools: [] }\n");
    folder.write("issues (1).csv", "file,size\nsrc/a.py,3\nsrc/b c.py,4\n");
    let map = ["map", "jobs/x.yaml", "--rows", "issues (1).csv", "--id", "file", "--ignore-columns", "size"];
    run(&folder, &map).assert_code(0);
    let maps: Vec<_> = std::fs::read_dir(folder.at("runs/x")).unwrap().flatten().collect();
    let name = maps[0].file_name().into_string().unwrap();
    assert!(name.starts_with("map-issues-1-"), "{name}");
    for words in [&["show"][..], &["show", "latest"], &["show", "x/latest"], &["show", &name]] {
        let ended = folder.legwork(words).run();
        ended.assert_code(0).assert_stdout_contains("src-a.py-").assert_stdout_contains("2 rows: 2 completed");
        ended.assert_stdout_contains("src-b-c.py-");
    }
    folder.legwork(&["export", &name, "--format", "otlp"]).run().assert_code(2).assert_stderr_contains("/ROW");
    folder.legwork(&["resume"]).run().assert_code(2).assert_stderr_contains("is a map");
    let files: Vec<_> = std::fs::read_dir(folder.at(format!("runs/x/{name}"))).unwrap().flatten().collect();
    assert!(files.iter().all(|file| !file.file_name().to_string_lossy().starts_with(".tmp")), "{files:?}");
    folder.legwork(&["show", "x"]).run().assert_code(2).assert_stderr_contains("x/latest");
    run(&folder, &["run", "jobs/x.yaml", "--set", "file=a"]).assert_code(0);
    folder.legwork(&["show", "x/latest"]).run().assert_code(0).assert_stdout_contains("done");
}

#[test]
fn the_columns_of_rows_can_be_chosen() {
    let folder = folder("inputs: { file: { type: string } }\nparent: { prompt: '{{ inputs.file }}', tools: [] }\n");
    folder.write("r.csv", "file,size,owner\nsrc/a.py,3,me\n");
    folder.write("r.jsonl", "{\"id\": \"a\", \"file\": \"x\"}\n{\"id\": \"b\", \"file\": \"y\"}\n");
    let map = |rows: &str, more: &[&str], name: &str| {
        let words = ["map", "jobs/x.yaml", "--rows", rows, "--name", name];
        folder.legwork(&words).args(more.iter().copied()).args(REPLAY).run()
    };
    map("r.csv", &[], "a").assert_code(3).assert_stderr_contains("--ignore-columns");
    // A digest alone says nothing.
    map("r.csv", &["--columns", "file"], "b").assert_code(0).assert_stderr_contains("(src/a.py) completed");
    map("r.csv", &["--ignore-columns", "size,owner"], "b").assert_code(0).assert_stderr_contains("1 ended before");
    let wrong = map("r.jsonl", &["--columns", "fil"], "c");
    wrong.assert_code(3).assert_stderr_contains("--columns names").assert_not_printed("same values");
    map("r.jsonl", &["--id", "nope"], "d").assert_code(3).assert_stderr_contains("`nope`, which --id names");
    map("r.jsonl", &["--id", "id"], "e").assert_code(0);
    let joined = folder.legwork(&["gather", "runs/x/b", "--rows", "r.csv", "--columns", "file", "--to", "t"]).run();
    joined.assert_code(0);
    let emitted =
        folder.legwork(&["emit", "slurm", "jobs/x.yaml", "--rows", "r.csv", "--shards", "1", "--columns", "file"]);
    emitted.run().assert_code(0).assert_stdout_contains("--columns file");
    map("r.csv", &["--columns", "file", "--limit", "cost_usd=none"], "f").assert_code(0);
}

#[test]
fn a_saved_case_has_only_the_files_that_the_run_used() {
    let folder = TestFolder::new();
    let job = "name: x\nmodel: anthropic/claude-sonnet-5-5\nlimits: { cost_usd: 1 }\n\
               context: [AGENTS.md]\nparent: { prompt: hi, tools: [read_file, write_file, grep] }\n";
    folder.write("jobs/x.yaml", job).write("AGENTS.md", "Be brief.\n").write("src/deep/one.txt", "1\n");
    for number in 0..30 {
        folder.write(&format!("other/{number}.txt"), "x\n");
    }
    let script = |calls: serde_json::Value| json!({ "parent": [{ "calls": calls }, { "text": "done" }] }).to_string();
    folder.write(
        "jobs/x.script.yaml",
        script(json!([
            { "tool": "read_file", "input": { "path": "./src/deep/one.txt" } },
            { "tool": "write_file", "input": { "path": "new.txt", "content": "n\n" } },
        ])),
    );
    let saved = |name: &str| run(&folder, &["run", "jobs/x.yaml", "--save-case", name]);
    let ended = saved("few");
    ended.assert_code(0).assert_stderr_contains("2 files in its workspace, which are all that the run used");
    assert!(!ended.stderr.contains("the saved case"), "{}", ended.stderr);
    let workspace = folder.at("jobs/tests/x/few/workspace");
    assert!(workspace.join("src/deep/one.txt").is_file() && workspace.join("AGENTS.md").is_file());
    assert!(!workspace.join("other").exists() && !workspace.join("jobs").exists());
    assert!(folder.read("jobs/tests/x/few/expect.yaml").contains("new.txt: snapshot"));
    folder.write("jobs/x.script.yaml", script(json!([{ "tool": "grep", "input": { "pattern": "x" } }])));
    saved("all").assert_code(0);
    assert!(folder.at("jobs/tests/x/all/workspace/other/29.txt").is_file());
}

#[test]
fn files_from_other_editors_are_read_or_refused_with_a_reason() {
    let folder = folder(JOB);
    let job = format!("{HEAD}{JOB}");
    for text in [job.replace('\n', "\r\n"), format!("\u{feff}{job}")] {
        folder.write("jobs/x.yaml", text);
        run(&folder, &["run", "jobs/x.yaml"]).assert_code(0).assert_stdout("done\n");
    }
    folder.write("jobs/x.yaml", format!("{HEAD}parent:\n\tprompt: hi\n\ttools: []\n"));
    run(&folder, &["run", "jobs/x.yaml"]).assert_code(3).assert_stderr_contains("tab");
    folder.write("jobs/x.yaml", format!("{HEAD}parent:\nprompt: hi\ntools: []\n"));
    run(&folder, &["run", "jobs/x.yaml"]).assert_code(3).assert_stderr_contains("belongs under `parent`");
}

/// Each help can be followed as it is: it has the user's own words.
#[test]
fn the_help_about_a_first_job_has_the_users_own_words() {
    let parent = "parent: { prompt: hi, tools: [bash] }\n";
    for (job, help) in [
        ("parent: { prompt: hi, tools: 'bash, read_file' }\n".to_owned(), "write `[ITEM, ITEM]`"),
        ("parent:\n  prompt: hi\n  tools: bash, read_file\n".to_owned(), "a list is written `[bash, read_file]`"),
        ("parent:\n  prompt: hi\n  tools: bash\n".to_owned(), "a list of one item is written `[bash]`"),
        (format!("{parent}env: {{ FOO: bar, B: 1 }}\n"), "list the names, `env: [FOO, B]`"),
        (
            format!("{parent}mcp: {{ github: 'npx -y @scope/server' }}\n"),
            "`github: { command: [npx, -y, \"@scope/server\"] }`",
        ),
        (format!("{parent}mcp: {{ docs: 'https://x.y/mcp' }}\n"), "`docs: { url: https://x.y/mcp }`"),
        ("parent: { prompt: hi, tools: [mcp: github] }\n".to_owned(), "write `- { mcp: github, allow: [TOOL, ...] }`"),
        (
            format!("{parent}result: {{ summary: string }}\n"),
            "`schema: { type: object, properties: { summary: { type: string } } }`",
        ),
        ("parent:\n  prompt: hi\n  tools: []\n  system: file: prompts/x.md\n".to_owned(), "`{ file: PATH }`"),
        (format!("{parent}checks: [{{ name: a, run: b, timeout: 5 }}]\n"), "`5s`, `5m` or `5h`"),
        (format!("{parent}checks: [{{ name: a, run: b, timeout: 5 minutes }}]\n"), "write it like this: `5m`"),
        (
            "inputs: { b: { type: boolean, default: yes } }\nparent: { prompt: '{{ inputs.b }}', tools: [] }\n"
                .to_owned(),
            "write `true` or `false`, or leave out the default",
        ),
    ] {
        let folder = folder(&job);
        folder.legwork(&["validate"]).run().assert_code(3).assert_stdout_contains(help);
    }
    for (limits, help) in [
        ("cost_usd: $2", "write it without the currency: 2"),
        ("tokens: 2M", "write it in full: 2000000"),
        ("tokens: 500k", "write it in full: 500000"),
        ("wall_clock: 20 minutes", "write it like this: `20m`, or `none`"),
    ] {
        let folder = TestFolder::new();
        let job = format!("model: anthropic/claude-sonnet-5-5\nlimits:\n  {limits}\n{JOB}");
        folder.write("jobs/x.yaml", job);
        folder.legwork(&["validate"]).run().assert_code(3).assert_stdout_contains(help);
    }
    let folder = TestFolder::new();
    folder
        .write("jobs/x.yaml", format!("model: {{ provider: openai, model: gpt-5 }}\n{JOB}limits: {{ cost_usd: 1 }}\n"));
    folder.legwork(&["validate"]).run().assert_code(3).assert_stdout_contains("`name: openai/gpt-5`");
}

/// Scripts are beside their jobs. `--model` is resolved from the current folder, `model` from the job's.
#[test]
fn a_script_that_is_beside_the_job_is_found_by_its_name() {
    let folder = folder(JOB);
    let ended = folder.legwork(&["run", "jobs/x.yaml", "--model", "replay/x.script.yaml"]).run();
    ended.assert_code(3).assert_stderr_contains("did you mean `replay/jobs/x.script.yaml`?");
    folder.write("jobs/x.yaml", format!("model: replay/jobs/x.script.yaml\n{JOB}"));
    let ended = folder.legwork(&["run", "jobs/x.yaml"]).run();
    ended.assert_code(3).assert_stderr_contains("did you mean `replay/x.script.yaml`?");
}
