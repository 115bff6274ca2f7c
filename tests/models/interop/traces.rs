//! Traces as OpenTelemetry's official packages for Python decode them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::house::source::root;
use crate::records::exports::{TREE, folder, script, tree};
use crate::support::report_skipped;
use crate::support::server::Server;

#[test]
fn the_official_packages_decode_the_spans_and_know_their_attributes() {
    let Some(python) = std::env::var_os("LEGWORK_PYTHON") else {
        report_skipped("LEGWORK_PYTHON names no Python that has the packages of tests/interop/requirements.txt");
        return;
    };
    let mut collector = Command::new(python)
        .arg(root().join("tests/interop/collector.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python that LEGWORK_PYTHON names");
    let mut lines = BufReader::new(collector.stdout.take().expect("its output")).lines();
    let port = lines.next().expect("its port").expect("its port");
    let server = Server::start(script());
    let folder = folder("anthropic/claude-sonnet-4-5");
    let run = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server);
    let ended = run
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"))
        .env("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
        .run();
    ended.assert_code(0);
    drop(collector.stdin.take());
    let received: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    collector.wait().expect("its end");
    let [spans] = &received[..] else { panic!("{} requests: {received:?}\n{}", received.len(), ended.stderr) };
    let spans = spans.as_array().unwrap_or_else(|| panic!("{received:?}"));
    let text = |span: &Value, key: &str| span[key].as_str().unwrap().to_owned();
    let named: Vec<_> = spans
        .iter()
        .map(|span| (text(span, "id"), text(span, "parent"), text(span, "name"), span["is_error"] == true))
        .collect();
    assert_eq!(tree(&named)[..TREE.len()], TREE);
    for span in spans {
        assert_eq!(span["unknown"], serde_json::json!([]), "{}", span["name"]);
        assert_eq!(span["trace"], spans[0]["trace"]);
        let is_request = text(span, "name").starts_with("chat ");
        assert_eq!(span["kind"], if is_request { "SPAN_KIND_CLIENT" } else { "SPAN_KIND_INTERNAL" });
    }
    assert_eq!(spans[2]["attributes"]["gen_ai.response.finish_reasons"], serde_json::json!(["tool_call"]));
}
