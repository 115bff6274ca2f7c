//! The key goes to the endpoint that the environment names, and nowhere else.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::running::runs::folder_with;
use crate::support::server::{Answer, KEY, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "parent: { prompt: Go., tools: [] }\n";

/// A proxy that grants every tunnel and reports what each connection sent. It reads until the connection closes or has
/// sent as much as the first message of a TLS client.
fn recording_proxy() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = listener.local_addr().expect("the port's number");
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(120)));
            let mut came = Vec::new();
            let mut buffer = [0; 4096];
            while !came.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(count @ 1..) => came.extend_from_slice(&buffer[..count]),
                    _ => break,
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            if let Ok(count) = stream.read(&mut buffer) {
                came.extend_from_slice(&buffer[..count]);
            }
            if send.send(came).is_err() {
                break;
            }
        }
    });
    (address, receive)
}

#[test]
fn redirects_do_not_forward_the_key() {
    for status in [301, 302, 303, 307, 308] {
        let folder = folder_with(JOB);
        let other = Server::start(|_: &Request| Answer::text("stolen"));
        let to = format!("http://me:pw@{}/v1/messages?key={KEY}", other.address());
        let server = Server::start(move |_: &Request| Answer::status(status).header("location", &to));
        let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
        ended.assert_code(5).assert_stderr_contains("redirects to").assert_not_printed(KEY).assert_not_printed("pw@");
        ended.run_folder().assert_absent(KEY);
        assert_eq!((other.connections(), server.count()), (0, 1), "{status}");
    }
}

#[test]
fn a_proxy_sees_a_tunnel_and_no_key() {
    let folder = folder_with(JOB);
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let (address, connections) = recording_proxy();
        let run = folder.legwork(&["run", "job.yaml"]).env("ANTHROPIC_API_KEY", KEY);
        let run = run.env("ANTHROPIC_BASE_URL", "https://models.example.test").env("LEGWORK_RETRY_BASE_MS", "1");
        let ended = run.env(variable, format!("http://me:hush-hush-hush@{address}")).run();
        ended.assert_code(75).assert_not_printed(KEY).assert_not_printed("hush-hush");
        ended.run_folder().assert_absent("hush-hush");
        let came = connections.recv_timeout(Duration::from_secs(120)).expect("a connection");
        let text = String::from_utf8_lossy(&came).to_lowercase();
        assert!(text.starts_with("connect models.example.test:443 http/1.1\r\n"), "{text}");
        assert!(text.contains("\r\nproxy-authorization: basic bwu6ahvzac1odxnolwh1c2g=\r\n"), "{text}");
        assert!(!text.contains(KEY) && !text.contains("x-api-key"), "{text}");
        // The tunnel starts with a TLS handshake.
        let end = came.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(came.get(end..end + 2), Some([0x16, 3].as_slice()), "{text}");
    }
}

#[test]
fn errors_name_the_proxy() {
    let folder = folder_with(JOB);
    let run = |proxy: &str| {
        let run = folder.legwork(&["run", "job.yaml"]).env("ANTHROPIC_API_KEY", KEY).env("LEGWORK_RETRY_BASE_MS", "1");
        let run = run.env("ANTHROPIC_BASE_URL", "https://models.example.test").env("HTTPS_PROXY", proxy);
        let ended = run.run();
        ended.assert_stderr_contains("help:").assert_not_printed("hush");
        ended
    };
    let refusing = |status: &str| {
        let status = status.to_owned();
        Server::with(crate::support::server::Checks::None, move |_: &Request| {
            Answer::raw(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"))
        })
    };
    let login = refusing("407 Proxy Authentication Required");
    let ended = run(&format!("http://me:hush-hush@{}", login.address()));
    ended.assert_code(5).assert_stderr_contains("the proxy for models.example.test:443 requires a user and a password");
    ended.assert_stderr_contains("set HTTPS_PROXY to");
    let blocked = refusing("403 Forbidden");
    run(&blocked.address().to_string()).assert_code(75).assert_stderr_contains("does the proxy in HTTPS_PROXY work");
    run("http://127.0.0.1:1").assert_code(75).assert_stderr_contains("does the proxy in HTTPS_PROXY work");
    for odd in ["://me:hush-hush@x", "http://me:hush-hush@:80"] {
        run(odd).assert_stderr_contains(
            "HTTPS_PROXY isn't the address of a proxy, such as http://HOST:PORT, so no proxy is used",
        );
    }
}

#[test]
fn an_invalid_address_is_explained() {
    let folder = folder_with(JOB);
    for (base, why) in [
        ("http://me:hush-hush@127.0.0.1:99999", "isn't an http:// or https:// address: invalid port number"),
        ("http://[::1", "isn't an http:// or https:// address: invalid IPv6 address"),
        ("me:hush-hush@host/v1", "isn't an http:// or https:// address\n"),
        ("host/v1", "isn't an http:// or https:// address\n"),
    ] {
        let run = folder.legwork(&["run", "job.yaml"]).env("ANTHROPIC_API_KEY", KEY);
        run.env("ANTHROPIC_BASE_URL", base)
            .run()
            .assert_code(5)
            .assert_stderr_contains(why)
            .assert_stderr_contains("help:")
            .assert_not_printed("hush");
    }
}

#[test]
fn a_plain_http_address_bypasses_the_proxy_with_a_warning() {
    let folder = folder_with(JOB);
    let (address, connections) = recording_proxy();
    let server = Server::start(ScriptedAgents::of([Answer::text("ok")]));
    // The name resolves to the loopback interface, but isn't recognizable as loopback.
    let url = format!("http://0.0.0.0:{}", server.address().port());
    let run = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("ANTHROPIC_BASE_URL", &url);
    let proxy = format!("http://{address}");
    let ended = run.env("HTTP_PROXY", &proxy).env("http_proxy", &proxy).env("ALL_PROXY", &proxy).run();
    ended
        .assert_code(0)
        .assert_stdout("ok\n")
        .assert_stderr_contains(&format!("the key is sent to {url}/v1/messages in plaintext"));
    assert!(connections.try_recv().is_err(), "the proxy was asked");
    let loopback = Server::start(ScriptedAgents::of([Answer::text("ok")]));
    folder.legwork(&["run", "job.yaml"]).anthropic(&loopback).run().assert_code(0).assert_not_printed("clear text");
}

#[test]
fn credentials_in_an_address_are_sent_and_not_shown() {
    let folder = folder_with("parent: { prompt: Go., tools: [bash] }\n");
    let server = Server::with(crate::support::server::Checks::None, |request: &Request| {
        assert_eq!(request.header("authorization"), Some("Basic bWU6aHVzaC1odXNoLWh1c2g="));
        Answer::status(401).error("authentication_error", "no me:hush-hush-hush")
    });
    let url = format!("http://me:hush-hush-hush@{}/?q=hush-query", server.address());
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("ANTHROPIC_BASE_URL", &url).run();
    ended.assert_code(5).assert_stderr_contains("answered 401").assert_not_printed("hush");
    ended.run_folder().assert_absent("hush");
    let names = folder_with("env: [ANTHROPIC_BASE_URL]\nparent: { prompt: Go., tools: [bash] }\n");
    names.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("forbidden-env");
}

#[test]
fn credentials_repeated_by_the_server_are_not_shown() {
    let folder = folder_with(JOB);
    let server = Server::with(crate::support::server::Checks::None, |request: &Request| {
        let sent = request.header("authorization").unwrap_or_default();
        Answer::status(400)
            .error("invalid_request_error", &format!("{sent}, me:p@ss hush%2Fhush hush/hush9 2a+b"))
            .nonstandard()
    });
    for (user, query) in [("me:p%40ss", "code=hush%2Fhush9"), ("p%40ssw0rd-of-mine", "code=hush%2Fhush9&key=2a%2Bb")] {
        let url = format!("http://{user}@{}/?{query}", server.address());
        let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("ANTHROPIC_BASE_URL", &url).run();
        ended.assert_code(5).assert_stderr_contains("answered 400").assert_not_printed("hush/hush9");
        ended
            .assert_not_printed("bWU6cEBzcw")
            .assert_not_printed("cEBzc3cwcmQtb2YtbWluZT")
            .assert_not_printed("cEBzc3cwcmQ");
        ended.run_folder().assert_absent("hush/hush9");
        ended.run_folder().assert_absent("cEBzc3cwcmQ");
        if user.starts_with("me") {
            ended.assert_not_printed("p@ss ");
        }
    }
    server.finish();
}

#[test]
fn no_workspace_file_can_set_a_key_or_an_address() {
    let folder = TestFolder::new();
    let server = Server::start(|_: &Request| Answer::text("stolen"));
    let text = format!("ANTHROPIC_API_KEY={KEY}\nANTHROPIC_BASE_URL={}\n", server.url());
    for name in [".env", ".env.local", ".envrc", "jobs/.env", "../home/.env", ".legwork", ".config/legwork/config.yaml"]
    {
        folder.write(name, &text);
    }
    folder.write("jobs/job.yaml", format!("model: anthropic/claude-sonnet-4-6\n{JOB}"));
    folder
        .legwork(&["run", "jobs/job.yaml"])
        .run()
        .assert_code(5)
        .assert_stderr_contains("ANTHROPIC_API_KEY is not set");
    assert_eq!(server.connections(), 0);
    assert!(!folder.exists("runs"), "nothing was begun");
}

#[test]
fn a_job_cannot_set_an_endpoint_or_a_key() {
    for extra in [
        "base_url: http://127.0.0.1:1\n",
        "api_key: sk-ant\n",
        "endpoint: http://127.0.0.1:1\n",
        "env: { ANTHROPIC_BASE_URL: http://127.0.0.1:1 }\n",
        "providers: { anthropic: { base_url: x } }\n",
        "subagents: { a: { tools: [], model: { name: anthropic/claude-haiku-4-5, base_url: x } } }\n",
    ] {
        let folder = folder_with(&format!("{extra}{JOB}"));
        folder.legwork(&["run", "job.yaml"]).env("ANTHROPIC_API_KEY", KEY).run().assert_code(3).assert_stdout("");
    }
    let keys =
        ["ANTHROPIC_API_KEY", "anthropic_api_key", "OPENAI_API_KEY", "GOOGLE_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"];
    for key in keys {
        let folder = folder_with(&format!("env: [{key}]\n{JOB}"));
        folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("api-key-in-env");
    }
}
