//! Binary files in pull requests, from the run to the forge.

use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::gitlab::Gitlab;
use crate::support::forge::{Api, ForgeServer, TOKEN};
use crate::support::program::Program;
use crate::support::test_folder::TestFolder;

const JOB: &str = r#"
name: draw
model: replay/replies.yaml
outputs:
  docs: { kind: pull_request, binary: true, paths: ["docs/**"] }
parent:
  prompt: Draw.
  tools: [bash, { output: [docs] }]
"#;

const SCRIPT: &str = r#"
parent:
  - calls: [{ tool: bash, input: { command: "printf '\\0\\1\\377' > docs/new.png; printf '\\0two' > docs/logo.png; rm docs/old.bin; echo more >> docs/a.md" } }]
  - calls: [{ tool: docs, input: { title: Draw, body: Images. } }]
  - text: Done.
"#;

/// A committed folder with images.
fn prepared(job: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", job).write("replies.yaml", SCRIPT).write(".gitignore", "runs/\n");
    folder.write("docs/logo.png", b"\0one").write("docs/old.bin", b"\0\xff").write("docs/a.md", "a\n");
    folder.commit_all();
    folder
}

fn run(folder: &TestFolder) -> Program {
    folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).env("LEGWORK_RECORD_KEY", "a key of enough length")
}

/// The branch of the last run's pull request.
fn branch(folder: &TestFolder) -> String {
    let run = folder.at("runs/draw/latest").canonicalize().unwrap();
    format!("legwork/draw/{}", run.file_name().unwrap().display())
}

#[track_caller]
fn assert_published(git: &Git, branch: &str) {
    let files = ["docs/new.png", "docs/logo.png", "docs/old.bin", "docs/a.md"].map(|path| git.content(branch, path));
    let expected: [Option<&[u8]>; 4] = [Some(b"\0\x01\xff"), Some(b"\0two"), None, Some(b"a\nmore\n")];
    assert_eq!(files.each_ref().map(Option::as_deref), expected);
}

fn publish<A: Api>(folder: &TestFolder, server: &ForgeServer<A>, variables: &[(&str, &str)], more: &[&str]) -> Program {
    let program = folder.legwork(&["publish", "latest", "--job", "job.yaml"]).args(more);
    let program = program.env("LEGWORK_PUBLISH_PAUSE_MS", "0").env("LEGWORK_RETRY_BASE_MS", "1");
    let program = variables.iter().fold(program, |program, (name, value)| program.env(name, value));
    let url = server.url();
    ["GITHUB_API_URL", "CI_API_V4_URL"].iter().fold(program, |program, name| program.env(name, &url))
}

#[test]
fn images_are_published_on_github_and_applied_elsewhere() {
    let folder = prepared(JOB);
    let planned =
        "docs: pull_request, at most 1, only docs/**, 100 files and a patch of 1.0 MB at most, with binary files";
    run(&folder).args(["--dry-run"]).run().assert_code(0).assert_stdout_contains(planned);
    run(&folder).run().assert_code(0);
    let patch = folder.at("runs/draw/latest/changes.patch");
    let page = folder.legwork(&["show", "latest"]).run();
    page.assert_code(0).assert_stdout_contains("added     binary file, 1 kB  docs/new.png");
    let server = ForgeServer::start(Github::new(Git::of_commit(&folder, "main")));
    let github = [("GITHUB_REPOSITORY", "o/r"), ("GITHUB_TOKEN", TOKEN)];
    publish(&folder, &server, &github, &["--dry-run"]).run().assert_code(0).assert_stdout_contains("4 changed files");
    for _ in 0..2 {
        publish(&folder, &server, &github, &[]).run().assert_code(0);
    }
    assert_eq!(server.api().violations, [""; 0]);
    assert_published(&server.api().git, &branch(&folder));
    // The same changes in the workspace.
    let read = || ["new.png", "logo.png", "old.bin"].map(|name| std::fs::read(folder.at("docs").join(name)).ok());
    let expected = read();
    let patch = patch.canonicalize().unwrap();
    for apply in [true, false] {
        folder.git(&["checkout", "--quiet", "."]);
        folder.git(&["clean", "--quiet", "--force"]);
        assert_ne!(read(), expected);
        match apply {
            true => drop(folder.legwork(&["apply", "latest", "--trust-record"]).run().assert_code(0)),
            false => drop(folder.git(&["apply", patch.to_str().unwrap()])),
        }
        assert_eq!(read(), expected);
    }
}

#[test]
fn images_are_published_on_gitlab() {
    let folder = prepared(JOB);
    run(&folder).run().assert_code(0);
    let server = ForgeServer::start(Gitlab::new(Git::of_commit(&folder, "main")));
    let gitlab = [("CI_PROJECT_PATH", "g/r"), ("CI_SERVER_URL", "https://gitlab.example"), ("GITLAB_TOKEN", TOKEN)];
    for _ in 0..2 {
        publish(&folder, &server, &gitlab, &[]).run().assert_code(0);
    }
    assert_eq!(server.api().violations, [""; 0]);
    assert_published(&server.api().git, &branch(&folder));
}

#[test]
fn a_run_with_images_is_resumed_and_replayed_and_a_case() {
    for events in ["6", "9"] {
        let folder = prepared(JOB);
        let killed = run(&folder).env("LEGWORK_KILL_AFTER", events).run();
        assert_eq!(killed.signal(), Some(9), "{events}: {}", killed.full_output());
        let resumed = folder.legwork(&["resume", "latest"]).env("LEGWORK_RECORD_KEY", "a key of enough length").run();
        resumed.assert_code(0);
        let server = ForgeServer::start(Github::new(Git::of_commit(&folder, "main")));
        let github = [("GITHUB_REPOSITORY", "o/r"), ("GITHUB_TOKEN", TOKEN)];
        publish(&folder, &server, &github, &[]).run().assert_code(0);
        assert_published(&server.api().git, &branch(&folder));
        folder.legwork(&["replay", "latest"]).run().assert_code(0);
    }
    let folder = prepared(JOB);
    std::fs::create_dir_all(folder.at("tests/draw/images/workspace")).unwrap();
    folder.git(&["mv", "docs", "tests/draw/images/workspace/docs"]);
    folder
        .write("tests/draw/images/script.yaml", SCRIPT)
        .write("tests/draw/images/expect.yaml", "git: [{ message: Start }]\noutputs: { docs-1: { title: Draw } }\n");
    folder.legwork(&["test", "job.yaml", "--sandbox", "off"]).run().assert_code(0);
    folder.write("job.yaml", JOB.replace("binary: true, ", ""));
    let refused = folder.legwork(&["test", "job.yaml", "--sandbox", "off"]).run();
    refused.assert_code(1).assert_stdout_contains("docs");
}

#[test]
fn images_are_refused_where_the_output_takes_only_text() {
    let folder = prepared(&JOB.replace("binary: true, ", ""));
    run(&folder).run().assert_code(0);
    let why = "`docs/logo.png` is a binary file (1 kB), and the output takes only text: the job can allow it with `binary: true`";
    folder.legwork(&["show", "latest"]).run().assert_code(0).assert_stdout_contains(why);
    // The record of another job that took them.
    let folder = prepared(JOB);
    run(&folder).run().assert_code(0);
    folder.write("job.yaml", JOB.replace("binary: true, ", ""));
    let server = ForgeServer::start(Github::new(Git::of_commit(&folder, "main")));
    let github = [("GITHUB_REPOSITORY", "o/r"), ("GITHUB_TOKEN", TOKEN)];
    publish(&folder, &server, &github, &[]).run().assert_code(2).assert_stderr_contains("the job file differs");
    assert_eq!(server.writes().len(), 0);
}
