//! A Python server that validates each request against the official SDKs' types and builds its replies from them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::record_checks::{assert_complete, events};
use crate::house::source::root;
use crate::support::report_skipped;
use crate::support::test_folder::TestFolder;

const MODELS: [&str; 3] = ["anthropic/claude-haiku-4-5", "openai/gpt-5.1", "openai-chat/some-model"];

const JOB: &str = "\
model: anthropic/claude-sonnet-4-6
parent:
  system: You lead.
  prompt: Find out.
  tools: [glob, read_file, task]
subagents:
  explorer: { description: Reads a note., system: You explore., tools: [read_file] }
limits: { tokens: 100000 }
";

/// The server. It ends when this value is dropped, or with the test's process.
struct SdkServer {
    child: Child,
    url: String,
}

impl SdkServer {
    /// Starts it with the Python that `LEGWORK_PYTHON` names, which has the SDKs; `None` without that variable.
    fn start() -> Option<Self> {
        let python = std::env::var_os("LEGWORK_PYTHON")?;
        let mut child = Command::new(python)
            .arg(root().join("tests/interop/server.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the Python that LEGWORK_PYTHON names");
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut port).expect("its port");
        let port: u16 = port.trim().parse().expect("its port");
        Some(Self { child, url: format!("http://127.0.0.1:{port}") })
    }
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_same_job_runs_against_servers_of_the_official_types() {
    let Some(server) = SdkServer::start() else {
        report_skipped("LEGWORK_PYTHON names no Python that has the packages of tests/interop/requirements.txt");
        return;
    };
    for model in MODELS {
        let folder = TestFolder::new();
        folder.write("job.yaml", JOB).write("notes/a.txt", "alpha\n").write("notes/b.txt", "beta\n");
        let ended = folder
            .legwork(&["run", "job.yaml", "--model", model])
            .env("ANTHROPIC_BASE_URL", &server.url)
            .env("ANTHROPIC_API_KEY", "a-key-for-anyone")
            .env("OPENAI_BASE_URL", format!("{}/v1", server.url))
            .env("OPENAI_API_KEY", "a-key-for-anyone")
            .run();
        ended.assert_code(0).assert_stdout("Heard: a says alpha; b says beta\n").assert_not_printed("a-key-for-anyone");
        let result = assert_complete(&folder, &ended);
        let totals: [&Value; 4] = ["outcome", "turns", "tool_calls", "usage"].map(|name| &result[name]);
        // Seven replies of 20 input tokens, 30 from a cache, 10 into it, and 9 output tokens.
        let usage =
            json!({"input_tokens": 140, "output_tokens": 63, "cache_read_tokens": 210, "cache_write_tokens": 70});
        assert_eq!(totals, [&json!("completed"), &json!(3), &json!(4), &usage], "{model}");
        let record = ended.run_folder();
        let page = record.summary("explorer-1");
        assert_eq!(page.matches("says").count(), 2, "as the summary, and at the end of the conversation: {page}");
        assert_eq!(events(&record, "retrying").len(), 3, "each prompt's first question was answered with an error");
        let transcript = record.transcript();
        assert_eq!(transcript.contains("Where to look?"), !model.starts_with("openai-chat/"), "{transcript}");
    }
}
