//! The scripts of the GitHub Action and of the component for GitLab, run as their runners run them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::actions_runner::ActionsRunner;
use crate::house::source::root;
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{Fault, ForgeAnswer, ForgeServer};
use crate::support::program::Program;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/r.yaml\ninputs: { topic: { type: string } }\nparent: { prompt: 'About {{ inputs.topic }}.', \
                   tools: [] }\nresult: { schema: { type: object } }\n";
const SCRIPT: &str = "parent:\n  - calls: [{ tool: submit_result, input: { a: 1 } }]\n  - text: \"```\\n@someone \
                      ![x](http://x.test/y)\"\n";

fn folder() -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("r.yaml", SCRIPT).write("temp/.keep", "").write("bin/.keep", "");
    folder
}

fn executable(folder: &TestFolder, name: &str, script: &str) {
    folder.write(name, script);
    fs::set_permissions(folder.at(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A script of the action.
fn step(folder: &TestFolder, script: &str) -> Program {
    runner(folder, folder.program("bash", &[]).arg(root().join("action").join(script)))
}

/// A program in the environment of a runner, with programs in `bin` before all others.
fn runner(folder: &TestFolder, program: Program) -> Program {
    let path = format!("{}:{}", folder.at("bin").display(), std::env::var("PATH").unwrap());
    program
        .env("PATH", path)
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_OUTPUT", folder.at("output"))
        .env("GITHUB_STEP_SUMMARY", folder.at("summary"))
        .env("GITHUB_RUN_ID", "77")
        .env("GITHUB_RUN_ATTEMPT", "1")
        .env("GITHUB_JOB", "Review_it")
        .env("GITHUB_ACTION", "__self")
        .env("RUNNER_TEMP", folder.at("temp"))
}

fn run(folder: &TestFolder) -> Program {
    with_settings(step(folder, "run.sh"))
}

fn with_settings(program: Program) -> Program {
    program
        .env("LEGWORK", env!("CARGO_BIN_EXE_legwork"))
        .env("LEGWORK_JOB", "job.yaml")
        .env("LEGWORK_INPUTS", "topic: \"$(touch pwned) `id` ${{ x }}\"\n")
        .env("LEGWORK_SANDBOX", "auto")
}

fn output<'a>(outputs: &'a str, name: &str) -> &'a str {
    let mut values = outputs.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("{name} in {outputs}"));
    assert_eq!(values.next(), None, "{name} is set once");
    value
}

#[test]
fn a_job_runs_with_its_inputs_and_sets_the_outputs() {
    let folder = folder();
    run(&folder).env("LEGWORK_LIMIT", " cost_usd=1\n\ntool_calls=7 \n").run().assert_code(0);
    let outputs = folder.read("output");
    assert_eq!(output(&outputs, "outcome"), "completed");
    assert_eq!(output(&outputs, "result"), r#"{"a":1}"#);
    let record = folder.at(output(&outputs, "record"));
    assert!(record.ends_with("runs/job/77-1---self-review-it"), "{record:?}");
    let plan = fs::read_to_string(record.join("plan.json")).unwrap();
    assert!(plan.contains("$(touch pwned) `id` ${{ x }}") && plan.contains(r#""tool_calls": 7"#), "{plan}");
    assert!(!folder.exists("pwned"));
    assert!(fs::read_to_string(output(&outputs, "answer-file")).unwrap().contains("@someone"));
    assert!(folder.read("summary").contains("completed"));
}

/// A variable can't hold 200 kB: Linux refuses to start a program with it.
#[test]
fn large_inputs_and_results_pass_as_files() {
    let folder = folder();
    let large = "word ".repeat(50_000);
    folder.write("job.yaml", JOB.replace("inputs: {", "inputs: { log: { type: string },"));
    folder.write("inputs.json", serde_json::json!({ "topic": large }).to_string()).write("ci=1.log", &large);
    let script = "parent:\n  - calls: [{ tool: submit_result, input: { a: LARGE } }]\n  - text: done\n";
    folder.write("r.yaml", script.replace("LARGE", &large));
    let files = |program: Program| {
        program
            .env("LEGWORK_INPUTS", "")
            .env("LEGWORK_INPUTS_FILE", "inputs.json")
            .env("LEGWORK_SET_FILE", "\n log=ci=1.log\n")
    };
    files(run(&folder)).run().assert_code(0);
    let outputs = folder.read("output");
    assert_eq!(output(&outputs, "result"), "");
    let result = fs::read_to_string(output(&outputs, "result-file")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["a"], large.trim());
    let plan = fs::read_to_string(folder.at(output(&outputs, "record")).join("plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!((&plan["inputs"]["topic"], &plan["inputs"]["log"]), (&large.clone().into(), &large.into()));

    files(run(&folder)).env("LEGWORK_SET_FILE", "ci.log").run().assert_code(2).assert_stdout_contains("NAME=PATH");
    fs::remove_file(folder.at("output")).unwrap();
    folder
        .write("job.yaml", JOB.replace("result: { schema: { type: object } }", ""))
        .write("r.yaml", "parent:\n  - text: a\n");
    run(&folder).env("GITHUB_ACTION", "other").run().assert_code(0);
    assert!(!folder.read("output").contains("result-file"), "a job without `result` has no file");
}

#[test]
fn an_overloaded_provider_is_asked_again_and_only_the_last_attempt_counts() {
    let folder = folder();
    let legwork = env!("CARGO_BIN_EXE_legwork");
    // The first two attempts end as if the provider were overloaded.
    let wrapper = format!(
        "#!/bin/sh\n[ \"$1\" = run ] || exec {legwork} \"$@\"\necho \"$*\" >> attempts\necho early >> \"$GITHUB_OUTPUT\"\necho early >> \"$GITHUB_STEP_SUMMARY\"\n\
         [ \"$(wc -l < attempts)\" -gt 2 ] || exit 75\nexec {legwork} \"$@\"\n"
    );
    executable(&folder, "wrapper", &wrapper);
    let retried = || run(&folder).env("LEGWORK", folder.at("wrapper")).env("LEGWORK_RETRIES", "0 0");
    retried().run().assert_code(0);
    let attempts = folder.read("attempts");
    let attempts: Vec<&str> = attempts.lines().collect();
    assert_eq!(attempts.len(), 3);
    assert!(attempts.iter().all(|attempt| *attempt == attempts[0]), "the same command continues: {attempts:?}");
    let outputs = folder.read("output");
    assert_eq!(outputs.matches("early").count(), 1, "{outputs}");
    assert_eq!(output(&outputs, "outcome"), "completed");
    fs::remove_file(folder.at("attempts")).unwrap();
    retried().env("LEGWORK_RETRIES", "0").run().assert_code(75);
    fs::remove_file(folder.at("attempts")).unwrap();
    retried().env("LEGWORK_RETRIES", "").run().assert_code(75);
    assert_eq!(folder.read("attempts").lines().count(), 1);
}

#[test]
fn other_failures_end_the_step_at_once_with_their_code() {
    let folder = folder();
    run(&folder).env("LEGWORK_INPUTS", "").run().assert_code(3).assert_stderr_contains("topic");
    run(&folder).env("LEGWORK_INPUTS", "topic: [").run().assert_code(3);
    run(&folder).env("LEGWORK_JOB", "none.yaml").run().assert_code(3);
    run(&folder).env("LEGWORK_LIMIT", "nonesuch=1").run().assert_code(2);
    run(&folder).env("LEGWORK_RETRIES", "2m").run().assert_code(2).assert_stdout_contains("`retries`");
}

/// A job that waits until the file `started` exists, and then sleeps.
fn sleeping_job(folder: &TestFolder) {
    folder.write("job.yaml", JOB.replace("tools: []", "tools: [bash]"));
    folder.write("r.yaml", "parent:\n  - calls: [{ tool: bash, input: { command: 'touch started; sleep 60' } }]\n");
}

#[test]
fn a_cancelled_step_closes_the_record() {
    let folder = folder();
    sleeping_job(&folder);
    let running = run(&folder).spawn();
    folder.wait_for("started");
    running.signal(rustix::process::Signal::TERM);
    running.wait().assert_code(143);
    assert_eq!(output(&folder.read("output"), "outcome"), "interrupted");
}

/// The runner sends SIGINT to the shell of the step and to no other process.
#[test]
fn the_signal_of_a_cancelled_workflow_reaches_the_run() {
    let folder = folder();
    sleeping_job(&folder);
    let action = fs::read_to_string(root().join("action.yml")).unwrap();
    let mut commands = action.lines().filter_map(|line| line.trim().strip_prefix("run: "));
    folder.write("step.sh", commands.find(|command| command.contains("action/run.sh")).unwrap());
    let shell = folder.program("bash", &["--noprofile", "--norc", "-e", "-o", "pipefail", "step.sh"]);
    let running = with_settings(runner(&folder, shell)).env("ACTION_PATH", root()).spawn();
    folder.wait_for("started");
    running.signal(rustix::process::Signal::INT);
    running.wait().assert_code(143);
    assert_eq!(output(&folder.read("output"), "outcome"), "interrupted");
}

#[test]
fn a_step_that_is_cancelled_between_attempts_keeps_the_outputs() {
    let folder = folder();
    executable(
        &folder,
        "wrapper",
        "#!/bin/sh\n[ \"$1\" = run ] || exit 1\necho record=r >> \"$GITHUB_OUTPUT\"\nexit 75\n",
    );
    executable(&folder, "bin/sleep", "#!/bin/sh\n[ \"$1\" = 0 ] || touch pausing\nPATH=${PATH#*:} exec sleep \"$1\"\n");
    let running = run(&folder).env("LEGWORK", folder.at("wrapper")).env("LEGWORK_RETRIES", "600").spawn();
    folder.wait_for("pausing");
    running.signal(rustix::process::Signal::TERM);
    running.wait().assert_code(75);
    assert_eq!(output(&folder.read("output"), "record"), "r");
}

/// An event of pull request 7 of the repository `o/r`, whose branch is in `head`.
fn pull_request(head: &str) -> Value {
    let branch = |name: &str, repository: &str| json!({ "ref": name, "sha": "c".repeat(40), "repo": { "full_name": repository } });
    let pull = json!({ "number": 7, "head": branch("feature", head), "base": branch("main", "o/r") });
    json!({ "repository": { "full_name": "o/r" }, "pull_request": pull })
}

fn forge() -> ForgeServer<Github> {
    let server = ForgeServer::start(Github::new(Git::default()));
    server.api().add_pull(7, "feature", &"c".repeat(40), "o/r");
    server
}

const INPUTS: (&str, &str) = ("inputs", "topic: x");

#[test]
fn an_answer_becomes_a_comment_that_later_runs_update() {
    let folder = folder();
    folder.write(
        "r.yaml",
        "parent:\n  - calls: [{ tool: submit_result, input: { a: 1 } }]\n  - text: '**Fine**: `@x`.'\n",
    );
    let server = forge();
    let runner = |event_name, event: &Value| ActionsRunner::new(&folder, &server.url(), event_name, event);
    let comment = [("job", "job.yaml"), INPUTS, ("comment", "true")];
    let event = pull_request("o/r");
    let end = runner("pull_request", &event).action(&comment, &[]);
    assert!(!end.has_failed, "{}", end.printed);
    let step = &end.steps["legwork"]["outputs"];
    assert_eq!((&step["outcome"], &step["publish-exit-code"]), (&json!("completed"), &json!("0")));
    let mark = "\n\n<!-- legwork job reviews-of-pulls-review-0-legwork ";
    let first = server.api().own_comments();
    assert!(first.len() == 1 && first[0].starts_with(&format!("**Fine**: `@x`.{mark}")), "{first:?}");
    // The artifact has what was published.
    let artifact = runner("pull_request", &event).artifacts.join("legwork-review-0-legwork-1");
    assert!(artifact.join("events.jsonl").exists() && artifact.join("published.json").exists());
    // Data without a text.
    folder.write("r.yaml", "parent:\n  - calls: [{ tool: submit_result, input: { a: 2 } }]\n  - text: ''\n");
    let mut again = runner("pull_request", &event);
    again.machine.insert("GITHUB_RUN_ID".to_owned(), "78".to_owned());
    let end = again.action(&comment, &[]);
    assert!(!end.has_failed, "{}", end.printed);
    let updated = server.api().own_comments();
    assert!(
        updated.len() == 1 && updated[0].starts_with(&format!("```json\n{{\n  \"a\": 2\n}}\n```{mark}")),
        "{updated:?}"
    );
    // What the rules of texts refuse isn't published, and nothing is rewritten.
    folder.write("r.yaml", SCRIPT);
    again.machine.insert("GITHUB_RUN_ID".to_owned(), "79".to_owned());
    let end = again.action(&comment, &[]);
    assert!(
        end.has_failed && end.printed.contains("unclosed-fence") || end.printed.contains("never ends"),
        "{}",
        end.printed
    );
    assert_eq!(server.api().own_comments(), updated);
    assert_eq!(server.api().violations, [""; 0]);
}

/// What each event does, by the sentence that the user reads.
#[test]
fn events_without_a_number_and_forks_are_answered_with_one_sentence() {
    let folder = folder();
    folder.write("r.yaml", "parent:\n  - calls: [{ tool: submit_result, input: { a: 1 } }]\n  - text: Fine.\n");
    let server = forge();
    let comment = [("job", "job.yaml"), INPUTS, ("comment", "true")];
    let schedule = json!({ "repository": { "full_name": "o/r" }, "schedule": "0 5 * * *" });
    let mut runner = ActionsRunner::new(&folder, &server.url(), "schedule", &schedule);
    let end = runner.action(&comment, &[]);
    let no_number = "this process's event has no issue and no pull request; name its event with --event FILE, or its number with --number N";
    assert!(end.has_failed && end.printed.contains(no_number), "{}", end.printed);
    let end = runner.action(&[comment[0], comment[1], comment[2], ("number", "7")], &[]);
    assert!(!end.has_failed, "{}", end.printed);
    assert_eq!(server.api().comments[0]["issue"], 7);
    // A mirror's runner may have GitLab's variables, too.
    runner.machine.insert("CI_PROJECT_PATH".to_owned(), "g/r".to_owned());
    assert!(!runner.action(&[comment[0], comment[1], comment[2], ("number", "7")], &[]).has_failed);
    // A workflow that follows another, for the pull request of a fork.
    let head =
        json!({ "head_branch": "feature", "head_sha": "c".repeat(40), "head_repository": { "full_name": "o/r" } });
    let event = json!({ "repository": { "full_name": "o/r" }, "workflow_run": head });
    let runner = ActionsRunner::new(&folder, &server.url(), "workflow_run", &event);
    let end = runner.action(&comment, &[]);
    assert!(!end.has_failed, "{}", end.printed);
    // On `pull_request` of a fork, the token can only read.
    let forbidden = ForgeAnswer::error(403, "Resource not accessible by integration");
    server.fail("PATCH", 1, Fault::Instead(forbidden.clone())).fail("POST", 1, Fault::Instead(forbidden));
    let mut runner = ActionsRunner::new(&folder, &server.url(), "pull_request", &pull_request("mallory/r"));
    runner.machine.insert("GITHUB_RUN_ID".to_owned(), "80".to_owned());
    let end = runner.action(&comment, &[]);
    assert!(
        end.has_failed && end.printed.contains("On `pull_request` from a fork, the token can only read"),
        "{}",
        end.printed
    );
    assert_eq!(end.steps["legwork"]["outputs"]["publish-exit-code"], "5");
}

#[test]
fn a_record_is_published_by_a_step_of_its_own_and_again_while_the_forge_is_busy() {
    let folder = folder();
    folder.write(
        "job.yaml",
        format!("{JOB}outputs: {{ comment: {{}} }}\n").replace("tools: []", "tools: [{ output: [comment] }]"),
    );
    let call = "parent:\n  - calls: [{ tool: comment, input: { body: '$(touch pwned) `id`' } }]\n  - calls: [{ tool: submit_result, input: { a: 1 } }]\n  - text: Done.\n";
    folder.write("r.yaml", call);
    let server = forge();
    let runner = ActionsRunner::new(&folder, &server.url(), "pull_request", &pull_request("o/r"));
    let key = [("LEGWORK_RECORD_KEY", "a key of enough length")];
    let run = runner.action(&[("job", "job.yaml"), INPUTS], &key);
    assert!(!run.has_failed && server.writes().is_empty(), "{}", run.printed);
    let record = folder.at(run.steps["legwork"]["outputs"]["record"].as_str().unwrap());
    let record = record.to_str().unwrap();
    let publish = [("job", "job.yaml"), ("publish", "true"), ("record", record), ("retries", "0")];
    let busy = ForgeAnswer::error(403, "no").header("retry-after", "999");
    server.fail("POST", 2, Fault::Instead(busy.clone()));
    let end = runner.action(&publish, &key);
    assert!(end.has_failed && end.printed.matches("later    comment-1").count() == 2, "{}", end.printed);
    assert_eq!(end.steps["legwork"]["outputs"]["publish-exit-code"], "75");
    server.fail("POST", 1, Fault::Instead(busy));
    let end = runner.action(&publish, &key);
    assert!(!end.has_failed, "{}", end.printed);
    assert_eq!(end.steps["legwork"]["outputs"]["outcome"], "", "no job is run");
    assert!(server.api().own_comments().len() == 1 && !folder.exists("pwned"));
    // With the key, a record must have been sealed with it.
    let other = [("LEGWORK_RECORD_KEY", "another key of that length")];
    assert_eq!(runner.action(&publish, &other).steps["legwork"]["outputs"]["publish-exit-code"], "");
    let unsealed =
        runner.action(&[("job", "job.yaml"), INPUTS], &[("GITHUB_RUN_ID", "81"), ("LEGWORK_RECORD_KEY", "")]);
    let record = unsealed.steps["legwork"]["outputs"]["record"].as_str().unwrap().to_owned();
    let end = runner.action(&[publish[0], publish[1], ("record", &record)], &key);
    assert!(end.has_failed && end.printed.contains("another key"), "{}", end.printed);
    let end = runner.action(&[publish[0], publish[1], publish[2], ("retries", "2m")], &key);
    assert!(end.has_failed && end.printed.contains("`retries`"), "{}", end.printed);
}

#[test]
fn the_scripts_run_with_the_tools_of_macos() {
    let folder = folder();
    // They have no long options, and another `stat`.
    let short = "#!/bin/sh\nfor word; do case $word in --*) echo \"illegal option $word\" >&2; exit 1 ;; esac; done\n\
                 PATH=${PATH#*:} exec \"${0##*/}\" \"$@\"\n";
    for tool in ["cat", "cut", "grep", "head", "tail", "tr", "wc"] {
        executable(&folder, &format!("bin/{tool}"), short);
    }
    executable(&folder, "bin/stat", "#!/bin/sh\nexit 1\n");
    run(&folder).run().assert_code(0);
    executable(&folder, "wrapper", "#!/bin/sh\necho \"$*\" > published-with\n");
    let publish = step(&folder, "publish.sh").env("LEGWORK", folder.at("wrapper")).env("LEGWORK_JOB", "job.yaml");
    let publish = publish.env("LEGWORK_RECORD", "record").env("LEGWORK_COMMENT", "true").env("LEGWORK_STEP", "a b/ü-0");
    publish.run().assert_code(0);
    assert_eq!(folder.read("published-with"), "publish record --job job.yaml --to github --comment=a-b----0\n");
}

#[test]
fn a_released_binary_is_installed_only_with_its_checksum() {
    let folder = folder();
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let inside = format!("release/legwork-{target}/legwork");
    executable(&folder, &inside, "#!/bin/sh\necho legwork 1.2.3\n");
    let archive = format!("legwork-{target}.tar.gz");
    let packed = folder.program("tar", &["-czf", &archive, "-C", "release", &format!("legwork-{target}")]).run();
    packed.assert_code(0);
    let sum = folder.program("sha256sum", &[&archive]).run().stdout;
    folder.write("SHA256SUMS", &sum);
    // Takes the files of the release from the folder.
    let curl = "#!/bin/sh\nfor last; do :; done\necho \"$last\" >> urls\nwhile [ $# -gt 0 ]; do [ \"$1\" = --output ] && out=$2; shift; done\ncp \
                \"${last##*/}\" \"$out\"\n";
    executable(&folder, "bin/curl", curl);
    let install = || {
        step(&folder, "install.sh")
            .env("LEGWORK_SANDBOX", "off")
            .env("ACTION_REPOSITORY", "o/legwork")
            .env("ACTION_REF", "v1.2.3")
            .env("GITHUB_SERVER_URL", "https://github.test")
    };
    install().run().assert_code(0).assert_stdout_contains("legwork 1.2.3");
    let urls = folder.read("urls");
    assert!(urls.starts_with(&format!("https://github.test/o/legwork/releases/download/v1.2.3/{archive}\n")), "{urls}");
    assert!(fs::metadata(output(&folder.read("output"), "legwork")).unwrap().is_file());
    folder.write("SHA256SUMS", sum.replace(|c: char| c.is_ascii_digit(), "0"));
    install().run().assert_code(1).assert_stdout_contains("its checksum differs");
    folder.write("SHA256SUMS", "");
    install().run().assert_code(1).assert_stdout_contains("its checksum differs");
    install().env("ACTION_REF", "main").run().assert_code(1).assert_stdout_contains("which version?");
    install().env("LEGWORK_VERSION", "1.2.3/../x").run().assert_code(1).assert_stdout_contains("which version?");
    install().env("LEGWORK_PATH", "none").run().assert_code(1).assert_stdout_contains("no executable file");
    fs::remove_file(folder.at("output")).unwrap();
    install().env("LEGWORK_PATH", env!("CARGO_BIN_EXE_legwork")).run().assert_code(0);
    assert!(folder.read("output").contains("legwork=/"));
}

#[test]
fn the_artifacts_and_comments_of_steps_and_matrix_jobs_have_different_names() {
    let text = fs::read_to_string(root().join("action.yml")).unwrap();
    let action: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let filled = |text: &serde_yaml::Value, step: &str, index: &str, attempt: &str| {
        let values = [
            ("github.workflow", "pull"),
            ("github.job", "review"),
            ("github.action", step),
            ("strategy.job-index", index),
            ("github.run_attempt", attempt),
        ];
        let name = text.as_str().unwrap().to_owned();
        let name =
            values.iter().fold(name, |name, (variable, value)| name.replace(&format!("${{{{ {variable} }}}}"), value));
        assert!(!name.contains(['$', '{', ' ']), "{name}");
        name
    };
    let artifact = |step, index, attempt| filled(&action["inputs"]["artifact"]["default"], step, index, attempt);
    let names = [artifact("a", "0", "1"), artifact("b", "0", "1"), artifact("a", "1", "1"), artifact("a", "0", "2")];
    assert!((1..4).all(|at| !names[at..].contains(&names[at - 1])), "{names:?}");
    let comment = |step, index, attempt| {
        let steps = action["runs"]["steps"].as_sequence().unwrap();
        let step_name = steps.iter().find_map(|step| step["env"].get("LEGWORK_STEP")).unwrap();
        filled(step_name, step, index, attempt)
    };
    let names = [comment("a", "0", "1"), comment("b", "0", "1"), comment("a", "1", "1")];
    assert!((1..3).all(|at| !names[at..].contains(&names[at - 1])), "{names:?}");
    assert_eq!(comment("a", "0", "2"), names[0], "a later attempt updates the comment");
}

#[test]
fn the_component_for_gitlab_runs_in_an_image_that_starts_legwork() {
    let folder = folder();
    let component = fs::read_to_string(root().join("templates/run.yml")).unwrap();
    let (_, job) = component.split_once("\n---\n").unwrap();
    let job: serde_json::Value = serde_yaml::from_str(job).unwrap();
    let job = job.as_object().unwrap().values().next().unwrap();
    assert_eq!(job["image"], serde_json::json!({ "name": "$[[ inputs.image ]]", "entrypoint": [""] }));
    let script: Vec<&str> = job["script"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    executable(&folder, "bin/legwork", &format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_legwork")));
    folder.write("in puts.yaml", "topic: x\n");
    let shell = folder.program("sh", &["-e", "-c", &script.join("\n")]);
    let run = runner(&folder, shell).env("LEGWORK_JOB", "job.yaml").env("LEGWORK_INPUTS", "in puts.yaml");
    let run = run.env("LEGWORK_MODEL", "").env("LEGWORK_LIMIT", "tool_calls=7").env("LEGWORK_SANDBOX", "auto");
    let run = run.env("LEGWORK_SET_FILE", "").env("LEGWORK_EVENT", "").env("LEGWORK_NUMBER", "");
    run.run().assert_code(0);
    assert!(folder.read("answer.md").contains("@someone"));
    assert_eq!(folder.read("result.json"), "{\n  \"a\": 1\n}\n");
    assert!(folder.read("legwork.env").contains("LEGWORK_OUTCOME=") && folder.exists("legwork.xml"));
}
