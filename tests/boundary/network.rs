//! Lists of hosts, from a job to its record. The hosts are servers on the loopback interface, to which `--connect-to` leads.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::sandbox::path_without_bwrap;
use crate::support::bubblewrap::bubblewrap_works;
use crate::support::program::{Program, ProgramOutput};
use crate::support::record::RunFolder;
use crate::support::report_skipped;
use crate::support::test_folder::TestFolder;

/// A server that answers each line with `pong LINE`. It ends with the tests.
fn host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    port
}

fn answer(stream: &TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let _ = writeln!(&*stream, "pong {line}");
    }
}

/// A command that asks a host.
fn ask(host: &str, port: u16, text: &str) -> String {
    format!("exec 3<>/dev/tcp/{host}/{port} && echo {text} >&3 && read -r -t 20 line <&3 && echo \"$line\"")
}

/// A job with these lines whose parent runs these commands.
fn folder(job: &str, commands: &[&str]) -> TestFolder {
    let folder = TestFolder::new();
    let turns = commands.iter().map(|command| {
        let command = serde_json::to_string(command).unwrap();
        format!("  - calls: [{{ tool: bash, input: {{ command: {command} }} }}]\n")
    });
    let script = format!("parent:\n{}  - text: done\n", turns.collect::<String>());
    let job = format!("model: replay/job.script.yaml\nparent: {{ prompt: Go., tools: [bash] }}\n{job}");
    folder.write("job.yaml", job).write("job.script.yaml", script);
    folder
}

fn start(folder: &TestFolder, port: u16) -> Program {
    folder.legwork(&["run", "job.yaml", "--connect-to", &format!("::127.0.0.1:{port}")])
}

/// The data of the events of a kind.
fn events(record: &RunFolder, kind: &str) -> Vec<Value> {
    let events = record.events().into_iter().filter(|event| event["type"] == kind);
    events.map(|event| event["data"].clone()).collect()
}

fn completed(ended: &ProgramOutput) -> RunFolder {
    ended.assert_code(0);
    ended.run_folder()
}

#[test]
fn calls_checks_and_steps_reach_the_hosts_of_the_list_and_no_others() {
    if !bubblewrap_works() {
        return;
    }
    let port = host();
    let job = format!(
        "network: {{ allow: ['api.example.com:7000', {{ file: hosts/more.txt }}] }}\n\
         before: [{{ name: s, run: '{}' }}]\nchecks: [{{ name: c, run: '{}' }}]\n",
        ask("api.example.com", 7000, "step"),
        ask("db.example.com", 5432, "check"),
    );
    let allowed = ask("api.example.com", 7000, "call");
    let folder = folder(
        &job,
        &[
            &allowed,
            "echo 2>/dev/null >/dev/tcp/files.example.org/7000; echo 2>/dev/null >/dev/tcp/api.example.com/5432; true",
        ],
    );
    folder.write("hosts/more.txt", "# databases\ndb.example.com:5432\n");
    let ended = start(&folder, port).run();
    let record = completed(&ended);
    let transcript = record.transcript();
    assert!(transcript.contains("pong call"), "{transcript}");
    let used = events(&record, "network_used");
    let calls: Vec<(&str, &str)> =
        used.iter().map(|used| (used["call"].as_str().unwrap(), used["host"].as_str().unwrap())).collect();
    assert_eq!(calls, [("step s", "api.example.com"), ("call-1", "api.example.com"), ("check c", "db.example.com")]);
    assert_eq!(
        (&used[1]["port"], &used[1]["connections"], &used[1]["sent_bytes"]),
        (&json!(7000), &json!(1), &json!(5))
    );
    let refused = events(&record, "network_refused");
    assert_eq!(
        (&refused[0]["host"], &refused[0]["reason"]),
        (&json!("files.example.org"), &json!("not_listed")),
        "{refused:?}"
    );
    assert!(transcript.contains("[no access: files.example.org"), "{transcript}");
    assert!(transcript.contains("this job may reach: api.example.com:7000, db.example.com:5432]"), "{transcript}");
    ended.assert_stderr_contains("No access to files.example.org: not in this job's list");
    assert!(record.file("report.html").contains("No access to files.example.org"));
    assert_eq!(record.plan()["network"], json!({ "allow": ["api.example.com:7000", "db.example.com:5432"] }));
    let started = &events(&record, "run_started")[0];
    assert_eq!(started["options"]["connect_to"], json!([format!("::127.0.0.1:{port}")]));
    assert_eq!(record.plan()["limits"]["upload_bytes"], 50_000_000);
    let shown = folder.legwork(&["show", record.id(), "--network"]).run();
    shown
        .assert_code(0)
        .assert_stdout_contains("network:\n  allow:\n    - ")
        .assert_stdout_contains("- files.example.org\n");
    // The recorded results replay as they are.
    folder.legwork(&["replay", record.id()]).run().assert_code(0);
}

#[test]
fn a_subagent_has_at_most_its_own_list() {
    if !bubblewrap_works() {
        return;
    }
    let port = host();
    for network in ["{ allow: ['a.example.com:7000', 'b.example.com:7000'] }", "open"] {
        let folder = TestFolder::new();
        let job = format!(
            "model: replay/job.script.yaml\nparent: {{ prompt: Go., tools: [task] }}\nnetwork: {network}\nsubagents:\n  \
             one: {{ description: Asks., tools: [bash], network: {{ allow: ['a.example.com:7000'] }} }}\n  \
             copy: {{ description: Asks., tools: [bash], workspace: own, network: {{ allow: ['a.example.com:7000'] }} }}\n  \
             none: {{ description: Asks., tools: [bash], network: none }}\n"
        );
        let call =
            |host: &str| json!({ "calls": [{ "tool": "bash", "input": { "command": ask(host, 7000, "hello") } }] });
        let task =
            |agent: &str| json!({ "calls": [{ "tool": "task", "input": { "agent": agent, "prompt": "Ask." } }] });
        let agent = || json!([call("a.example.com"), call("b.example.com"), { "text": "asked" }]);
        let script = json!({
            "parent": [task("one"), task("copy"), task("none"), { "text": "done" }],
            "subagents": { "one-1": agent(), "copy-1": agent(), "none-1": agent() },
        });
        folder.write("job.yaml", job).write("job.script.yaml", script.to_string());
        let record = completed(&start(&folder, port).run());
        for (id, reached) in [("one-1", true), ("copy-1", true), ("none-1", false)] {
            let results: Vec<String> = record
                .events_of(id)
                .iter()
                .filter(|event| event["type"] == "call_finished")
                .map(|event| event["data"]["result"]["text"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(results[0].contains("pong hello"), reached, "{network} {id}: {results:?}");
            assert!(!results[1].contains("pong"), "{network} {id}: {results:?}");
            let refused = results[1].contains(
                "[no access: b.example.com (not in this job's list); this job may reach: a.example.com:7000]",
            );
            assert_eq!(refused, reached, "{network} {id}: {results:?}");
        }
    }
}

/// A tool server that asks a host at each call.
const SERVER: &str = r#"
import json, socket, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    schema = {"type": "object", "properties": {"host": {"type": "string"}}}
    def ask():
        try:
            with socket.create_connection((message["params"]["arguments"]["host"], 7000), 20) as host:
                host.sendall(b"server\n")
                return host.makefile().readline()
        except OSError as error:
            return "failed: %s" % error
    result = {
        "initialize": lambda: {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}},
        "tools/list": lambda: {"tools": [{"name": "ask", "description": "Asks.", "inputSchema": schema}]},
        "tools/call": lambda: {"content": [{"type": "text", "text": ask()}]},
    }.get(message["method"])
    answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result()}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | answer), flush=True)
"#;

#[test]
fn a_tool_server_has_its_own_list() {
    if !bubblewrap_works() {
        return;
    }
    let port = host();
    let folder = folder("", &[]);
    let job = "model: replay/job.script.yaml\nparent: { prompt: Go., tools: [bash, { mcp: t, allow: [ask] }] }\n\
               mcp: { t: { command: [/usr/bin/python3, server.py], network: { allow: ['tracker.example.com:7000'] }, timeout: 60s } }\n";
    let command = serde_json::to_string(&ask("tracker.example.com", 7000, "x")).unwrap();
    let script = format!(
        "parent:\n  - calls: [{{ tool: t__ask, input: {{ host: tracker.example.com }} }}]\n  \
         - calls: [{{ tool: t__ask, input: {{ host: other.example.com }} }}]\n  \
         - calls: [{{ tool: bash, input: {{ command: {command} }} }}]\n  - text: done\n"
    );
    folder.write("job.yaml", job).write("job.script.yaml", script).write("server.py", SERVER);
    let record = completed(&start(&folder, port).run());
    let transcript = record.transcript();
    assert_eq!(transcript.matches("pong").count(), 1, "{transcript}");
    assert!(transcript.contains("[no access: other.example.com (not in this job's list)"), "{transcript}");
    let used = events(&record, "network_used");
    assert_eq!((&used[0]["call"], &used[0]["host"]), (&json!("call-1"), &json!("tracker.example.com")), "{used:?}");
}

#[test]
fn a_tool_server_that_does_not_start_names_the_hosts_that_it_misses() {
    if !bubblewrap_works() {
        return;
    }
    let folder = folder("", &[]);
    let job = "model: replay/job.script.yaml\nparent: { prompt: Go., tools: [{ mcp: t, allow: [ask] }] }\n\
               mcp: { t: { command: [bash, -c, 'exec 3<>/dev/tcp/registry.example.com/7000'], network: { allow: ['a.example.com:7000'] } } }\n";
    folder.write("job.yaml", job);
    let ended = start(&folder, 9).run();
    ended.assert_code(5).assert_stderr_contains("it has no access to registry.example.com (not in this job's list)");
}

#[test]
fn what_commands_send_is_a_limit_that_counts_over_resumes() {
    if !bubblewrap_works() {
        return;
    }
    let port = host();
    let send = |bytes: u32| {
        format!(
            "exec 3<>/dev/tcp/api.example.com/7000; printf '%0{bytes}d\\n' 0 >&3; read -r -t 20 line <&3; echo \"${{#line}}\""
        )
    };
    let (first, second) = (send(600), send(700));
    let folder = folder(
        "network: { allow: ['api.example.com:7000'] }\nlimits: { upload: 1kB }\n",
        &[&first, &second, "echo last"],
    );
    let ended = start(&folder, port).run();
    ended.assert_code(4).assert_stderr_contains("--limit upload=");
    let record = ended.run_folder();
    assert_eq!(record.result()["outcome"], "budget_exceeded");
    let reasons: Vec<Value> = events(&record, "network_refused").iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, [json!("upload_limit")]);
    assert_eq!(events(&record, "limit_reached")[0]["limit"], "limits.upload");
    // Raised, and then counted with what was sent before.
    let resumed = folder.legwork(&["resume", record.id(), "--limit", "upload=100kB"]).run();
    resumed.assert_code(0);
    assert_eq!(record.result()["outcome"], "completed");
    let resumes = events(&record, "resumed");
    assert_eq!(resumes[0]["options"]["connect_to"], json!([format!("::127.0.0.1:{port}")]));
}

#[test]
fn what_was_sent_before_a_kill_counts() {
    if !bubblewrap_works() {
        return;
    }
    let port = host();
    let send = "exec 3<>/dev/tcp/api.example.com/7000; printf '%0600d\\n' 0 >&3; read -r -t 20 line <&3; echo ${#line}";
    let folder =
        folder("network: { allow: ['api.example.com:7000'] }\nlimits: { upload: 1kB }\n", &[send, send, "echo last"]);
    let killed = start(&folder, port).env("LEGWORK_KILL_AFTER", "8").run();
    assert_eq!(killed.signal(), Some(9), "{}", killed.full_output());
    let record = RunFolder::new(folder.records()[0].clone());
    folder.legwork(&["resume", record.id()]).run().assert_code(4);
    let sent: u64 = events(&record, "network_used").iter().map(|event| event["sent_bytes"].as_u64().unwrap()).sum();
    assert!((600..=1_000).contains(&sent), "{sent}");
}

#[test]
fn in_landlock_the_hosts_of_the_list_are_reached_by_a_proxy() {
    let port = host();
    let connect = |target: &str| {
        format!(
            "p=${{https_proxy#http://}}; exec 3<>/dev/tcp/${{p%:*}}/${{p#*:}}; printf 'CONNECT {target} HTTP/1.1\\r\\n\\r\\n' >&3; \
             read -r -t 20 status <&3; echo \"$status\"; read -r -t 20 line <&3; echo hello >&3; read -r -t 20 line <&3; echo \"$line\""
        )
    };
    let commands = [connect("api.example.com:7000"), connect("files.example.com:7000")];
    let folder = folder("network: { allow: ['api.example.com:7000'] }\n", &[&commands[0], &commands[1]]);
    let ended = start(&folder, port).env("PATH", path_without_bwrap(&folder)).run();
    if ended.full_output().contains("can't be kept to") || ended.full_output().contains("can't be confined") {
        return report_skipped("landlock doesn't work here");
    }
    let record = completed(&ended);
    assert_eq!(record.result()["sandbox"], "landlock");
    let transcript = record.transcript();
    assert_eq!(transcript.matches("pong hello").count(), 1, "{transcript}");
    assert!(transcript.contains("[no access: files.example.com:7000 (not in this job's list)"), "{transcript}");
    assert_eq!(events(&record, "network_used")[0]["host"], "api.example.com");
}

#[test]
fn without_a_sandbox_a_list_is_a_proxy_and_a_warning() {
    let port = host();
    let ask = |name: &str| {
        format!(
            "p=${{https_proxy#http://}}; exec 3<>/dev/tcp/${{p%:*}}/${{p#*:}}; printf 'CONNECT {name}:7000 HTTP/1.1\\r\\n\\r\\n' >&3; \
             read -r x <&3; echo $x; read -r x <&3; echo call >&3; read -r -t 20 x <&3; echo $x"
        )
    };
    let (allowed, refused) = (ask("api.example.com"), ask("files.example.com"));
    let folder = folder("network: { allow: ['api.example.com:7000'] }\n", &[&allowed, &refused]);
    let ended = start(&folder, port).args(["--sandbox", "off"]).run();
    ended.assert_stderr_contains("nothing enforces the list of hosts");
    let record = completed(&ended);
    assert!(record.transcript().contains("pong call"), "{}", record.transcript());
    assert_eq!(events(&record, "network_used")[0]["host"], "api.example.com");
    assert_eq!(events(&record, "network_refused")[0]["reason"], "not_listed");
}

#[test]
fn a_list_of_hosts_is_refused_where_no_network_is_allowed() {
    let folder = folder("network: { allow: [api.example.com] }\n", &["echo hello"]);
    let dry = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    dry.assert_code(0).assert_stdout_contains("api.example.com (requested)");
    let untrusted = folder.legwork(&["run", "job.yaml", "--untrusted"]).run();
    untrusted.assert_code(3).assert_stderr_contains("an untrusted job can't use the network");
    for (option, value) in [("--connect-to", "api.example.com"), ("--allow-private", "10.0.0.1:5432")] {
        folder.legwork(&["run", "job.yaml", option, value]).run().assert_code(2);
    }
    // Without a network, no list has to be kept to.
    folder.legwork(&["run", "job.yaml", "--offline", "--sandbox", "off"]).run().assert_code(0);
}
