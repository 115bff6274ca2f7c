//! Traces that are sent when a run has ended.

use std::fmt::Write;

use serde_json::Value;

use super::collector::{Collector, Received};
use super::{TREE, folder, script, tree};
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::tcp_peer::{PeerBehaviour, TcpPeer};
use crate::support::test_folder::TestFolder;

const SECRET: &str = "a-token-that-nobody-may-see";

/// A run of a job without a network, in an environment with variables.
fn scripted(arguments: &[&str], with: impl FnOnce(Program) -> Program) -> (TestFolder, ProgramOutput) {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/s.yaml\nparent: { prompt: Hello., tools: [] }\n");
    folder.write("s.yaml", "parent: [{ text: Hi. }]\n");
    let ended = with(folder.legwork(&[&["run", "job.yaml"], arguments].concat())).run();
    (folder, ended)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn the_spans_that_are_sent_are_those_that_are_exported() {
    let (collector, server) = (Collector::start(&[]), Server::start(script()));
    let folder = folder("anthropic/claude-sonnet-4-5");
    let run = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server);
    let ended = run
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{SECRET}"))
        .run();
    ended.assert_code(0).assert_not_printed(SECRET);
    let received = collector.received();
    let [Received { path, headers, .. }] = &received[..] else { panic!("{} requests", received.len()) };
    assert_eq!((&**path, &*headers["content-type"]), ("/v1/traces", "application/x-protobuf"));
    assert_eq!(headers["authorization"], format!("Bearer {SECRET}"));
    let named: Vec<_> = received[0]
        .spans()
        .iter()
        .map(|span| {
            let is_error = span.status.as_ref().is_some_and(|status| status.code == 2);
            (hex(&span.span_id), hex(&span.parent_span_id), span.name.clone(), is_error)
        })
        .collect();
    assert_eq!(tree(&named)[..TREE.len()], TREE);
    let exported = folder.legwork(&["export", "--format", "otlp"]).run().stdout;
    assert!(named.iter().all(|(id, ..)| exported.contains(&format!("\"spanId\":\"{id}\""))));
    ended.run_folder().assert_absent(SECRET);
}

#[test]
fn the_variables_of_opentelemetry_apply() {
    let collector = Collector::start(&[]);
    let (_, ended) = scripted(&[], |run| {
        run.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/here", collector.url()))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
            .env("OTEL_SERVICE_NAME", "nightly")
            .env("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
            .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    });
    ended.assert_code(0);
    let received = collector.received();
    assert_eq!(
        (received.len(), &*received[0].path, &*received[0].headers["content-type"]),
        (1, "/here", "application/json")
    );
    let body: Value = serde_json::from_slice(&received[0].body).unwrap();
    let resource = body["resourceSpans"][0]["resource"]["attributes"].to_string();
    assert!(resource.contains("nightly"), "{resource}");
    let root = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(root["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(root["parentSpanId"], "b7ad6b7169203331");
    assert!(body.to_string().contains("Hello."), "contents were asked for");
}

#[test]
fn nothing_is_sent_unless_it_is_asked_for() {
    let collector = Collector::start(&[]);
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    for (arguments, name, value) in [
        (vec!["--offline"], "OTEL_SERVICE_NAME", "x"),
        (vec![], "OTEL_SDK_DISABLED", "true"),
        (vec![], "OTEL_TRACES_EXPORTER", "none"),
        (vec![], "TRACEPARENT", unsampled),
    ] {
        let endpoint = collector.url();
        let (_, ended) = scripted(&arguments, |run| run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env(name, value));
        ended.assert_code(0);
        assert_eq!(collector.received().len(), 0, "{name}");
    }
    let endpoint = collector.url();
    let (_, ended) = scripted(&[], |run| run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
    ended.assert_code(0);
    assert_eq!(collector.received().len(), 1, "the collector works");
}

#[test]
fn a_collector_that_fails_is_a_warning() {
    let silent = TcpPeer::start(PeerBehaviour::Silent);
    let refusing = Collector::start(&[401]);
    let closed = super::server_free_url();
    for (endpoint, why) in [
        (silent.url(), "it took longer than 300ms"),
        (refusing.url(), "the collector replied 401"),
        (closed, "onnection refused"),
    ] {
        let with_password = endpoint.replace("http://", &format!("http://user:{SECRET}@"));
        let (folder, ended) = scripted(&[], |run| {
            run.env("OTEL_EXPORTER_OTLP_ENDPOINT", with_password).env("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
        });
        ended.assert_code(0).assert_stdout("Hi.\n").assert_not_printed(SECRET);
        ended
            .assert_stderr_contains("warning: the traces weren't sent to http://127.0.0.1")
            .assert_stderr_contains(why);
        assert!(ended.run_folder().has("result.json") && folder.exists("job.yaml"));
    }
    let (_, ended) = scripted(&[], |run| {
        run.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    });
    ended.assert_code(0).assert_stderr_contains("OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or http/json");
}

#[test]
fn a_busy_collector_gets_the_spans_again() {
    let collector = Collector::start(&[503, 429]);
    let endpoint = collector.url();
    let (_, ended) = scripted(&[], |run| run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
    ended.assert_code(0);
    assert!(!ended.stderr.contains("traces"), "{}", ended.stderr);
    assert_eq!(collector.received().len(), 3);
    assert_eq!(collector.received()[0].body, collector.received()[2].body);
}

#[test]
fn commands_do_not_see_the_headers() {
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("bash", serde_json::json!({ "command": "env; cat /proc/$PPID/environ" }))]),
        Answer::text("Done."),
    ]));
    let folder =
        crate::running::runs::folder_with("parent: { prompt: Look., tools: [bash] }\nlimits: { tokens: 100000 }\n");
    let ended = folder
        .legwork(&["run", "job.yaml", "--sandbox", "off"])
        .anthropic(&server)
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("x={SECRET}"))
        .run();
    ended.assert_code(0);
    ended.run_folder().assert_absent(SECRET);
}

#[test]
fn each_row_of_a_map_is_sent_and_a_dead_collector_is_asked_once() {
    let map = |endpoint: &str| {
        let folder = TestFolder::new();
        folder.write("job.yaml", "model: replay/s.yaml\ninputs: { name: { type: string } }\nparent: { prompt: \"{{ inputs.name }}\", tools: [] }\n");
        folder.write("s.yaml", "parent: [{ text: Hi. }]\n").write("rows.csv", "id,name\na,x\nb,y\nc,z\n");
        let run = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "id", "--jobs", "1"]);
        let ended = run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).run();
        ended.assert_code(0);
        ended.stderr
    };
    let collector = Collector::start(&[]);
    map(&collector.url());
    let received = collector.received();
    let traces: std::collections::BTreeSet<Vec<u8>> =
        received.iter().map(|it| it.spans()[0].trace_id.clone()).collect();
    assert_eq!((received.len(), traces.len()), (3, 3), "a trace each");
    let refusing = Collector::start(&[401]);
    let stderr = map(&refusing.url());
    assert_eq!(refusing.received().len(), 1, "{stderr}");
    assert_eq!(stderr.matches("those of the other rows aren't sent, either").count(), 1, "{stderr}");
}
