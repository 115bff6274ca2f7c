//! The scripts of the GitHub Action and of the component for GitLab, run as their runners run them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::house::source::root;
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

/// A `gh` that records what it was asked, and knows one comment.
const GH: &str = "#!/bin/sh\necho \"$*\" >> gh-calls\nfor word; do case $word in body=@*) cp \"${word#body=@}\" comment ;; esac; \
                  done\ncase \"$*\" in *--paginate*) cat existing ;; esac\n";

#[test]
fn an_answer_becomes_one_comment_in_which_nothing_is_live() {
    let folder = folder();
    executable(&folder, "bin/gh", GH);
    folder.write("existing", "").write("answer", "````\n@someone ![x](http://x.test/y)\n");
    let comment = || {
        step(&folder, "comment.sh")
            .env("LEGWORK_JOB", "jobs/a`b.yaml")
            .env("LEGWORK_STEP", "my review-job-0-a")
            .env("LEGWORK_OUTCOME", "completed")
            .env("LEGWORK_ANSWER", folder.at("answer"))
            .env("GITHUB_REPOSITORY", "o/r")
            .env("PULL_REQUEST", "12")
    };
    comment().run().assert_code(0);
    let text = folder.read("comment");
    assert!(
        text.starts_with(
            "<!-- legwork: jobs/a_b.yaml_my_review-job-0-a -->\n**legwork** `jobs/a_b.yaml`: completed\n\n`````\n"
        ),
        "{text}"
    );
    assert!(text.ends_with("\n`````\n"), "{text}");
    assert!(folder.read("gh-calls").contains("--method POST repos/o/r/issues/12/comments"));
    folder.write("existing", "991\n992\n").write("answer", "x".repeat(70_000));
    comment().run().assert_code(0);
    assert!(folder.read("gh-calls").contains("--method PATCH repos/o/r/issues/comments/991"));
    let text = folder.read("comment");
    assert!(text.len() < 65_000 && text.contains("The answer is longer"), "{}", text.len());
    // The excerpt ends in half a character, which grep takes for a binary file in such a locale.
    folder.write("answer", format!("````\n@xy\n{}", "é".repeat(40_000)));
    comment().env("LC_ALL", "C.UTF-8").run().assert_code(0);
    assert!(String::from_utf8_lossy(&fs::read(folder.at("comment")).unwrap()).contains("\n`````\n````\n@xy\n"));
    folder.write("answer", "`".repeat(60_000));
    comment().run().assert_code(0);
    assert!(folder.read("comment").len() < 65_000 && folder.read("comment").contains("60000 backticks"));
    comment().env("PULL_REQUEST", "").run().assert_code(0).assert_stdout_contains("no place for a comment");
}

#[test]
fn the_scripts_run_with_the_tools_of_macos() {
    let folder = folder();
    // They have no long options, and another `stat`.
    let short = "#!/bin/sh\nfor word; do case $word in --*) echo \"illegal option $word\" >&2; exit 1 ;; esac; done\n\
                 PATH=${PATH#*:} exec \"${0##*/}\" \"$@\"\n";
    for tool in ["cat", "cut", "grep", "head", "tr", "wc"] {
        executable(&folder, &format!("bin/{tool}"), short);
    }
    executable(&folder, "bin/stat", "#!/bin/sh\nexit 1\n");
    executable(&folder, "bin/gh", GH);
    run(&folder).run().assert_code(0);
    folder.write("existing", "991\n992\n");
    let comment = step(&folder, "comment.sh").env("LEGWORK_JOB", "job.yaml").env("LEGWORK_STEP", "step");
    let comment = comment.env("GITHUB_REPOSITORY", "o/r");
    let comment =
        comment.env("LEGWORK_ANSWER", output(&folder.read("output"), "answer-file")).env("PULL_REQUEST", "12");
    comment.run().assert_code(0);
    assert!(folder.read("gh-calls").contains("--method PATCH repos/o/r/issues/comments/991"));
    assert!(folder.read("comment").contains("@someone"));
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
    let run = run.env("LEGWORK_SET_FILE", "");
    run.run().assert_code(0);
    assert!(folder.read("answer.md").contains("@someone"));
    assert_eq!(folder.read("result.json"), "{\n  \"a\": 1\n}\n");
    assert!(folder.read("legwork.env").contains("LEGWORK_OUTCOME=") && folder.exists("legwork.xml"));
}
