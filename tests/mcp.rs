//! Jobs with tool servers, and servers that misbehave.

use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

const JOB: &str = "model: replay/job.script.yaml
mcp:
  t: { command: [/usr/bin/python3, server.py], env: [MY_TOKEN] }
parent:
  prompt: Go.
  tools: [{ mcp: t, allow: [echo, die, as*, env] }]
";

const SCRIPT: &str = "parent:
  - calls: [{ tool: t__echo, input: { text: hello } }, { tool: t__env }]
  - calls: [{ tool: t__ask, input: { text: x } }]
  - calls: [{ tool: t__die }]
  - calls: [{ tool: t__echo, input: { text: again } }]
  - text: done
";

fn folder(job: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", job);
    folder.write("job.script.yaml", SCRIPT);
    folder.write("server.py", include_str!("mcp/server.py"));
    folder
}

fn run(folder: &TestFolder) -> ProgramOutput {
    folder.legwork(&["run", "job.yaml"]).env("MY_TOKEN", "hunter2-hunter2").env("OPENAI_API_KEY", "secret").run()
}

#[test]
fn the_tools_of_a_server_are_called_and_its_failures_are_answered() {
    let folder = folder(JOB);
    let ended = run(&folder);
    ended.assert_code(0).assert_stdout_contains("done");
    let transcript = std::fs::read_to_string(ended.run_folder().path().join("transcript.md")).unwrap();
    for text in [
        "hello",
        "MY_TOKEN",
        "asked for elicitation, which legwork refuses",
        "it ended with exit code 3; its stderr: boom",
    ] {
        assert!(transcript.contains(text), "{text}: {transcript}");
    }
    for text in ["OPENAI_API_KEY", "hunter2", "twice", "\u{1b}"] {
        assert!(!transcript.contains(text), "{text}: {transcript}");
    }
    std::fs::remove_file(folder.path().join("server.py")).unwrap();
    folder.legwork(&["replay"]).run().assert_code(0).assert_stdout_contains("equal");
}

#[test]
fn a_server_that_cannot_be_used_ends_the_run_before_anything_is_spent() {
    for (from, to, why) in [
        ("allow: [echo, ", "allow: [nope, ", "has no tool `nope`"),
        ("/usr/bin/python3, server.py", "no-such-program", "there is no program `no-such-program`"),
        ("[/usr/bin/python3, server.py]", "[sh, -c, 'echo broken >&2; exit 4']", "exit code 4; its stderr: broken"),
    ] {
        let folder = folder(&JOB.replace(from, to));
        run(&folder).assert_code(5).assert_stderr_contains(why);
        folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
    }
}

#[test]
fn a_server_that_is_not_required_may_be_missing() {
    let folder = folder(&JOB.replace("/usr/bin/python3, server.py]", "no-such-program], required: false"));
    folder.write("job.script.yaml", "parent:\n  - text: done\n");
    run(&folder).assert_code(0).assert_stderr_contains("the run goes on without it");
}

#[test]
fn tools_that_differ_from_the_lock_file_are_refused() {
    let folder = folder(JOB);
    let tool = |name: &str, text: &str| {
        let schema = r#"{"type":"object","properties":{"text":{"type":"string"}}}"#;
        format!(r#""{name}":{{"description":"{text}","input_schema":{schema}}}"#)
    };
    let lock = |text: &str| {
        let tools = ["die", "ask", "env"].map(|name| tool(name, "Says it again.")).join(",");
        format!(r#"{{"format":1,"servers":{{"t":{{"tools":{{{},{tools}}}}}}}}}"#, tool("echo", text))
    };
    folder.write("job.mcp.lock.json", &lock("Says it again."));
    run(&folder).assert_code(0);
    folder.write("job.mcp.lock.json", &lock("Obey it."));
    run(&folder).assert_code(5).assert_stderr_contains("has other tools than expected: the description of `echo`");
}
