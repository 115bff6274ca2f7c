//! `legwork doctor`, `man`, and the version.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::program::{Program, ProgramOutput};
use crate::support::tcp_peer::ClosedPort;
use crate::support::test_folder::TestFolder;

/// Answers each request by its head, until the tests are over.
fn server(answer: fn(&str) -> (u16, &'static str)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let reply = move |mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < 10_000 {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let (status, body) = answer(&String::from_utf8_lossy(&head));
        write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _: std::io::Result<()> = reply(stream);
        }
    });
    address
}

/// Accepts one key, and knows only the list of models.
fn models(head: &str) -> (u16, &'static str) {
    let is_known =
        ["GET /v1/models ", "GET /v1beta/models ", "GET /deep/v1/models?x=1 "].iter().any(|it| head.starts_with(it));
    match (is_known, head.contains("right-key")) {
        (false, _) => (500, ""),
        (true, true) => (200, "{}"),
        (true, false) => (401, r#"{"error":{"type":"authentication_error","message":"invalid x-api-key"}}"#),
    }
}

fn json(program: Program) -> (ProgramOutput, Vec<Value>) {
    let ended = program.args(["--format", "json"]).run();
    let checks = ended.json()["checks"].as_array().unwrap().clone();
    (ended, checks)
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name} in {checks:#?}"))
}

#[test]
fn each_server_is_asked_whether_it_accepts_the_key() {
    let folder = TestFolder::new();
    let address = server(models);
    let doctor = || {
        folder
            .legwork(&["doctor"])
            .env("ANTHROPIC_API_KEY", "right-key")
            .env("ANTHROPIC_BASE_URL", format!("http://{address}/deep?x=1"))
            .env("OPENAI_API_KEY", "wrong-key")
            .env("OPENAI_BASE_URL", format!("http://{address}/v1"))
            .env("GEMINI_API_KEY", "right-key")
            .env("GOOGLE_GEMINI_BASE_URL", format!("http://{address}"))
    };
    let (ended, checks) = json(doctor());
    ended.assert_code(5).assert_not_printed("right-key").assert_not_printed("wrong-key");
    for (name, status) in [("anthropic", "ok"), ("gemini", "ok"), ("openai", "problem"), ("openai-chat", "problem")] {
        assert_eq!(check(&checks, name)["status"], status, "{name}: {checks:#?}");
    }
    assert!(check(&checks, "openai")["help"].as_str().unwrap().contains("OPENAI_API_KEY"), "{checks:#?}");
    let text = doctor().run();
    text.assert_code(5).assert_stdout_contains("ok       anthropic    answers and accepts the key\n");
    assert!(!folder.exists("runs"), "nothing is written");
    let (ended, checks) = json(doctor().arg("--offline"));
    ended.assert_code(0);
    assert_eq!(check(&checks, "openai")["status"], "skipped");
}

#[test]
fn what_keeps_runs_from_working_is_a_problem_with_advice() {
    let folder = TestFolder::new();
    let doctor = |more: &[&str]| json(folder.legwork(&["doctor", "--offline"]).args(more));
    let (ended, checks) = doctor(&[]);
    ended.assert_code(0);
    assert_eq!(check(&checks, "keys")["status"], "warning");
    assert_eq!(check(&checks, "disk")["status"], "ok");
    let empty = folder.legwork(&["doctor", "--offline"]).env("ANTHROPIC_API_KEY", "");
    let (ended, checks) = json(empty);
    ended.assert_code(5);
    assert_eq!(check(&checks, "anthropic")["status"], "problem");
    folder.write("file", "");
    std::os::unix::fs::symlink("nowhere", folder.at("link")).unwrap();
    for out in ["/proc/runs", "file", "file/runs", "link"] {
        let (ended, checks) = doctor(&["--out", out]);
        ended.assert_code(5);
        assert_eq!(check(&checks, "disk")["status"], "problem", "{out}");
    }
    folder.write(".config/legwork/providers.toml", "[servers.x]\nbase_url = 'ftp://x'\n");
    let broken = folder.legwork(&["doctor", "--offline"]).env("XDG_CONFIG_HOME", folder.at(".config"));
    let (ended, checks) = json(broken);
    ended.assert_code(5);
    assert_eq!(check(&checks, "configuration")["status"], "problem");
}

#[test]
fn a_page_instead_of_a_list_of_models_is_a_problem() {
    let folder = TestFolder::new();
    let page = server(|_| (200, "\n<html>Please log in</html>"));
    let list = server(|_| (200, "\n[]"));
    let doctor = folder.legwork(&["doctor"]).env("ANTHROPIC_API_KEY", "right-key").env("GEMINI_API_KEY", "right-key");
    let (ended, checks) = json(
        doctor
            .env("ANTHROPIC_BASE_URL", format!("http://{page}"))
            .env("GOOGLE_GEMINI_BASE_URL", format!("http://{list}")),
    );
    ended.assert_code(5);
    assert_eq!(check(&checks, "gemini")["status"], "ok", "{checks:#?}");
    let page = check(&checks, "anthropic");
    assert!(page["found"].as_str().unwrap().contains("Please log in"), "{page}");
    assert!(page["help"].as_str().unwrap().contains("ANTHROPIC_BASE_URL"), "{page}");
}

#[test]
fn a_record_key_that_a_run_could_not_use_is_a_warning() {
    let folder = TestFolder::new();
    folder.write("state/none/.keep", "").write("state/short/legwork/record.key", "abc").write("state/file/legwork", "");
    fs::set_permissions(folder.at("state/short/legwork/record.key"), fs::Permissions::from_mode(0o600)).unwrap();
    for (state, status, found) in [
        ("none", "ok", "the first run makes"),
        ("short", "warning", "doesn't contain a key"),
        ("file", "warning", "Not a directory"),
    ] {
        // The key must not be in the workspace.
        folder.write("work/.keep", "");
        let doctor = folder.legwork(&["doctor", "--offline"]).in_folder("work");
        let (ended, checks) = json(doctor.env("XDG_STATE_HOME", folder.at("state").join(state)));
        ended.assert_code(0);
        let key = check(&checks, "record key");
        assert!(key["status"] == status && key["found"].as_str().unwrap().contains(found), "{state}: {key}");
    }
    let inside = folder.legwork(&["doctor", "--offline"]).env("XDG_STATE_HOME", folder.at("state/none"));
    assert_eq!(check(&json(inside).1, "record key")["status"], "warning");
}

#[test]
fn a_workflow_is_told_whether_publish_has_a_token() {
    let folder = TestFolder::new();
    let doctor = || folder.legwork(&["doctor"]).env("GITHUB_REPOSITORY", "o/r");
    let publish = |program: Program| {
        let (_, checks) = json(program);
        let found = checks.iter().find(|check| check["name"] == "publish").cloned();
        found.map(|check| {
            let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
            (text("status"), text("found"), text("help"))
        })
    };
    assert_eq!(publish(folder.legwork(&["doctor"])), None, "outside of a workflow");
    let (status, found, _) = publish(doctor().env("GITHUB_TOKEN", "a-token-of-github")).unwrap();
    assert_eq!((&*status, &*found), ("ok", "there is a token for o/r"));
    let (status, found, help) = publish(doctor()).unwrap();
    assert_eq!((&*status, &*found), ("skipped", "there is no token for GitHub"));
    assert!(help.contains("GITHUB_TOKEN") && help.contains("Acting outside"), "{help}");
    let gitlab = || folder.legwork(&["doctor"]).env("CI_PROJECT_PATH", "g/r");
    let (status, found, help) = publish(gitlab().env("CI_JOB_TOKEN", "job-token")).unwrap();
    assert_eq!((&*status, &*found), ("skipped", "CI_JOB_TOKEN can't write notes, issues or merge requests"));
    assert!(help.contains("GITLAB_TOKEN") && help.contains("scope `api`"), "{help}");
    assert_eq!(publish(gitlab().env("GITLAB_TOKEN", "a-token-of-gitlab")).unwrap().1, "there is a token for g/r");
    let (status, found, help) = publish(gitlab().env("GITHUB_REPOSITORY", "o/r")).unwrap();
    assert!(status == "warning" && found.contains("are both set") && help.contains("--to github"), "{found} {help}");
}

#[test]
fn a_git_that_hangs_is_a_warning() {
    let folder = TestFolder::new();
    folder.write("bin/git", "#!/bin/sh\nexec sleep 100\n");
    fs::set_permissions(folder.at("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.at("bin").display(), std::env::var("PATH").unwrap());
    let (ended, checks) = json(folder.legwork(&["doctor", "--offline"]).env("PATH", path));
    ended.assert_code(0);
    assert_eq!(check(&checks, "git")["status"], "warning");
}

#[test]
fn a_server_without_a_list_of_models_and_one_that_is_down_are_told_apart() {
    let folder = TestFolder::new();
    let without = server(|_| (404, "not found"));
    let closed = ClosedPort::hold();
    let down = closed.address();
    let (ended, checks) = json(
        folder
            .legwork(&["doctor"])
            .env("ANTHROPIC_API_KEY", "right-key")
            .env("ANTHROPIC_BASE_URL", format!("http://{without}"))
            .env("GEMINI_API_KEY", "right-key")
            .env("GOOGLE_GEMINI_BASE_URL", format!("http://{down}")),
    );
    ended.assert_code(5);
    assert!(check(&checks, "anthropic")["found"].as_str().unwrap().contains("wasn't checked"), "{checks:#?}");
    assert!(check(&checks, "gemini")["found"].as_str().unwrap().contains("can't connect"), "{checks:#?}");
}

#[test]
fn the_version_has_details_on_request() {
    let folder = TestFolder::new();
    let version = format!("legwork {}\n", env!("CARGO_PKG_VERSION"));
    folder.legwork(&["--version"]).run().assert_code(0).assert_stdout(&version);
    folder.legwork(&["-V"]).run().assert_code(0).assert_stdout(&version);
    let details = folder.legwork(&["--version", "--verbose"]).run();
    details.assert_code(0).assert_stdout_contains(&version).assert_stdout_contains("records  format 2\n");
    details.assert_stdout_contains("\nsandbox  ").assert_stdout_contains("\ncommit   ");
    // Each tier, not only the best one.
    #[cfg(target_os = "linux")]
    if details.stdout.contains("bubblewrap works here") {
        details.assert_stdout_contains("landlock");
    }
    folder.legwork(&["--verbose"]).run().assert_code(2).assert_stderr_contains("--version");
    folder.legwork(&[]).run().assert_code(2).assert_stderr_contains("Usage: legwork");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = TestFolder::new();
    folder.legwork(&["man", "--out", "man"]).run().assert_code(0).assert_stdout("");
    let help = folder.legwork(&["--help"]).run().stdout;
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "help" && name.starts_with(char::is_lowercase)).collect();
    assert!(names.contains(&"run") && names.len() > 20, "{names:?}");
    let mut expected: Vec<String> = names.iter().map(|name| format!("legwork-{name}.1")).collect();
    expected.extend(["legwork.1", "legwork-mcp-lock.1", "legwork-runs-prune.1"].map(str::to_owned));
    expected.sort();
    let mut written: Vec<String> =
        folder.list().into_iter().filter_map(|path| Some(path.strip_prefix("man/")?.to_owned())).collect();
    written.sort();
    assert_eq!(written, expected);
    let page = folder.legwork(&["man", "run"]).run();
    page.assert_code(0).assert_stdout_contains(".TH legwork-run 1").assert_stdout_contains("\\-\\-dry\\-run");
    assert_eq!(page.stdout.trim_end(), folder.read("man/legwork-run.1").trim_end());
    let page = folder.legwork(&["man", "runs", "prune"]).run();
    page.assert_code(0).assert_stdout_contains(".TH legwork-runs-prune 1");
    let referenced = written.iter().flat_map(|page| {
        let page = folder.read(&format!("man/{page}")).replace('\\', "");
        page.lines().filter_map(|line| Some(format!("{}.1", line.strip_suffix("(1)")?))).collect::<Vec<_>>()
    });
    assert_eq!(referenced.filter(|page| !written.contains(page)).collect::<Vec<_>>(), [""; 0], "each has a page");
    folder.legwork(&["man", "nonesuch"]).run().assert_code(2).assert_stderr_contains("there is no command `nonesuch`");
    folder.legwork(&["man", "--out", "/proc/x"]).run().assert_code(5);
}
