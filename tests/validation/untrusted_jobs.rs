//! `--untrusted`: restrictions on jobs of untrusted authors.

use crate::running::runs::folder_with;
use crate::support::server::{Answer, KEY, Request, Server};
use crate::support::test_folder::TestFolder;

const PRIVILEGED_JOB: &str = "inputs: { token: { type: string, secret: true } }\nparent: { prompt: Go., tools: [bash, task] }\nsubagents: { a: { \
    description: Reads., tools: [], model: replay/x.yaml } }\nenv: [CARGO_HOME, GITHUB_TOKEN]\nnetwork: open\ngit: commit\nallow_changes: [.envrc]\n";

#[test]
fn everything_forbidden_in_an_untrusted_job_is_reported_at_once() {
    let folder = folder_with(PRIVILEGED_JOB);
    let server = Server::start(|_: &Request| Answer::text("never"));
    let arguments: [&[&str]; 3] = [
        &["validate", "job.yaml", "--untrusted", "--format", "json"],
        &["run", "job.yaml", "--untrusted", "--set-env", "token=T"],
        &["run", "job.yaml", "--untrusted", "--set-env", "token=T", "--dry-run"],
    ];
    let [found, run, dry] = arguments.map(|line| folder.legwork(line).anthropic(&server).env("T", "x-x-x-x-x").run());
    let findings = found.assert_code(3).json()["diagnostics"].as_array().unwrap().clone();
    let errors: Vec<_> = findings.iter().filter(|finding| finding["code"] == "forbidden-if-untrusted").collect();
    let lines: Vec<_> = errors.iter().map(|finding| finding["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [2, 4, 5, 5, 6, 7, 8], "{}", found.full_output());
    for ended in [run, dry] {
        ended
            .assert_code(3)
            .assert_stdout("")
            .assert_stderr_contains("forbidden-if-untrusted")
            .assert_stderr_contains("`GITHUB_TOKEN`")
            .assert_stderr_contains("network");
    }
    assert_eq!((server.connections(), folder.list()), (0, vec!["job.yaml".to_owned()]));
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0).assert_not_printed("forbidden-if-untrusted");
    folder.write(
        "checks.yaml",
        "model: anthropic/claude-haiku-4-5\nparent: { prompt: x, tools: [] }\nchecks: [{ name: a, run: ls }]\n",
    );
    folder
        .legwork(&["validate", "checks.yaml", "--untrusted"])
        .run()
        .assert_code(3)
        .assert_stdout_contains("forbidden-if-untrusted");
    folder.legwork(&["validate", "checks.yaml"]).run().assert_code(0);
}

#[test]
fn a_harmless_untrusted_job_runs() {
    let folder = folder_with("parent: { prompt: Go., tools: [read_file] }\nlimits: { tokens: 10000 }\n");
    let server = Server::start(|_: &Request| Answer::text("Done."));
    folder
        .legwork(&["run", "job.yaml", "--untrusted"])
        .anthropic(&server)
        .run()
        .assert_code(0)
        .assert_stdout("Done.\n");
    let unconfined = folder.legwork(&["run", "job.yaml", "--untrusted", "--sandbox", "off"]).anthropic(&server).run();
    unconfined.assert_code(2).assert_stdout("").assert_stderr_contains("without a sandbox");
    let replay = folder.legwork(&["run", "job.yaml", "--untrusted", "--model", "replay/mine.yaml"]);
    folder.write("mine.yaml", "parent: [{ text: Mine. }]\n");
    replay.run().assert_code(0).assert_stdout("Mine.\n");
}

#[test]
fn an_untrusted_job_that_is_a_link_reveals_no_file() {
    let folder = TestFolder::new();
    folder.write("../home/settings", format!("key: {KEY}\n"));
    std::os::unix::fs::symlink(folder.home().join("settings"), folder.at("job.yaml")).unwrap();
    std::os::unix::fs::symlink(folder.home(), folder.at("jobs")).unwrap();
    folder.write("../home/job.yaml", format!("key: {KEY}\n"));
    folder.write(
        "real/job.yaml",
        "model: anthropic/claude-haiku-4-5\nparent: { prompt: x, tools: [] }\nlimits: { tokens: 9 }\n",
    );
    for path in ["job.yaml", "jobs/job.yaml", "./jobs/../jobs/job.yaml"] {
        for command in ["run", "validate"] {
            let ended = folder.legwork(&[command, path, "--untrusted"]).run();
            ended.assert_code(3).assert_not_printed(KEY);
            assert!(ended.full_output().contains("symbolic link"), "{}", ended.full_output());
        }
    }
    folder.legwork(&["validate", "--untrusted", "real/job.yaml"]).run().assert_code(0);
    let absolute = folder.at("real/job.yaml");
    folder.legwork(&["validate", "--untrusted"]).arg(absolute).run().assert_code(0);
}

#[test]
fn cases_of_an_untrusted_job_get_no_more_than_the_job() {
    let folder = folder_with(PRIVILEGED_JOB);
    for file in ["greedy", "modest"] {
        folder.write(&format!("tests/{file}/one/script.yaml"), "parent: [{ text: Done. }]\n");
        folder.write(&format!("tests/{file}/one/expect.yaml"), "outcome: completed\n");
    }
    folder.write("greedy.yaml", format!("model: anthropic/claude-haiku-4-5\n{PRIVILEGED_JOB}"));
    let modest = "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 10000 }\n";
    folder.write("modest.yaml", modest);
    let test = |arguments: &[&str]| folder.legwork(&["test"]).args(arguments).run();
    test(&["greedy.yaml"]).assert_code(0);
    let refused = test(&["greedy.yaml", "--untrusted"]);
    refused
        .assert_code(3)
        .assert_stderr_contains("forbidden-if-untrusted")
        .assert_stderr_contains("`GITHUB_TOKEN`")
        .assert_stderr_contains("network");
    test(&["modest.yaml", "--untrusted"]).assert_code(0);
    test(&["modest.yaml", "--untrusted", "--sandbox", "off"])
        .assert_code(2)
        .assert_stderr_contains("without a sandbox");
    folder.write("../home/expect", "outcome: completed\n");
    std::fs::remove_file(folder.at("tests/modest/one/expect.yaml")).unwrap();
    std::os::unix::fs::symlink(folder.home().join("expect"), folder.at("tests/modest/one/expect.yaml")).unwrap();
    test(&["modest.yaml", "--untrusted"]).assert_code(3).assert_stderr_contains("is a symbolic link");
}

/// A repository can contain links, and `validate` and `test` print parts of the files that they read.
#[test]
fn links_out_of_the_repository_are_not_quoted() {
    use std::os::unix::fs::symlink;
    let folder = TestFolder::new();
    folder.write("../home/settings", format!("hush: {KEY}\n")).write("../home/files/a", KEY);
    let outside = folder.home().join("settings");
    let modest = "model: anthropic/claude-haiku-4-5\nparent: { prompt: { file: p.md }, tools: [] }\n";
    folder
        .write("jobs/good.yaml", modest)
        .write("jobs/p.md", "Go.\n")
        .write("jobs/file.yaml", modest.replace("p.md", "link.md"));
    for link in ["jobs/job.yaml", "jobs/x.script.yaml", "jobs/link.md", "schema.json"] {
        symlink(&outside, folder.at(link)).unwrap();
    }
    for format in ["text", "concise", "json", "github", "sarif", "gitlab"] {
        let ended = folder.legwork(&["validate", "jobs", "--format", format]).run();
        ended.assert_code(3).assert_not_printed(KEY).assert_not_printed("hush");
        assert!(ended.full_output().contains("link out of the repository"), "{}", ended.full_output());
    }
    for arguments in [
        &["validate", "jobs/job.yaml", "--diff"][..],
        &["validate", "jobs/job.yaml", "--fix"],
        &["run", "jobs/job.yaml"],
        &["run", "jobs/job.yaml", "--dry-run"],
        &["run", "jobs/file.yaml", "--dry-run"],
        &["run", "jobs/good.yaml", "--dry-run", "--inputs", "jobs/job.yaml"],
        &["run", "jobs/good.yaml", "--model", "replay/jobs/x.script.yaml"],
    ] {
        folder.legwork(arguments).run().assert_code(3).assert_not_printed(KEY).assert_not_printed("hush");
    }
    // Links within the repository are treated like any other file.
    folder.write("shared/bad.yaml", "modell: x\n");
    symlink("../shared/bad.yaml", folder.at("jobs/bad.yaml")).unwrap();
    folder.legwork(&["validate", "jobs/bad.yaml"]).run().assert_code(3).assert_stdout_contains("modell: x");

    for (file, expected) in
        [("expect.yaml", 3), ("script.yaml", 3), ("inputs.yaml", 3), ("text.md", 1), ("workspace", 1)]
    {
        let at = |file: &str| format!("jobs/tests/good/one/{file}");
        folder.write(&at("script.yaml"), "parent: [{ text: Done. }]\n");
        folder.write(&at("expect.yaml"), "text: { snapshot: true }\n").write(&at("text.md"), "Done.\n");
        folder.legwork(&["test"]).run().assert_code(0);
        let _ = std::fs::remove_file(folder.at(at(file)));
        let target = if file == "workspace" { folder.home().join("files") } else { outside.clone() };
        symlink(target, folder.at(at(file))).unwrap();
        folder.legwork(&["test"]).run().assert_code(expected).assert_not_printed(KEY).assert_not_printed("hush");
        folder.legwork(&["test", "--accept"]).run().assert_code(expected).assert_not_printed(KEY);
        std::fs::remove_file(folder.at(at(file))).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), format!("hush: {KEY}\n"));
}
