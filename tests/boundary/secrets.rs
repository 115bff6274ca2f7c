//! Secrets: which processes can read them, and that nothing stored, shown or sent contains one.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, KEY, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// The token has the length of a GitHub token, so `base64` wraps it into two lines.
const TOKEN: &str = "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcdefghijABCDEFGHIJ0123456789klmnop";

const JOB: &str = "inputs: { token: { type: string, secret: true } }\nparent: { prompt: Use it., tools: [bash, read_file, write_file] }\n";

fn bash(command: &str) -> Answer {
    Answer::calls(&[("bash", json!({ "command": command }))])
}

fn run(folder: &TestFolder, server: &Server, format: &str) -> ProgramOutput {
    let run = folder.legwork(&["run", "job.yaml", "--set-env", "token=MY_TOKEN", "--format", format]);
    run.anthropic(server).env("MY_TOKEN", TOKEN).run()
}

/// Asserts that neither the text nor a part of it was printed, recorded or sent.
#[track_caller]
fn assert_absent(ended: &ProgramOutput, requests: &[std::sync::Arc<Request>], texts: &[&str]) {
    for text in texts {
        ended.assert_not_printed(text);
        ended.run_folder().assert_absent(text);
        for request in requests {
            assert!(!String::from_utf8_lossy(request.bytes()).contains(text), "{text:?} was sent");
        }
    }
}

#[test]
fn no_process_finds_the_key_in_an_environment() {
    let folder = folder_with("parent: { prompt: Look around., tools: [bash] }\n");
    let look = "env > own; cat /proc/$PPID/environ > parents; cat /proc/self/environ";
    let server = Server::start(ScriptedAgents::of([bash(look), Answer::text("ok")]));
    let ended =
        folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("AWS_SECRET_ACCESS_KEY", "aws/aws/aws").run();
    ended.assert_code(0);
    // The command can read its own environment, so the search itself works.
    assert!(server.finish()[1].results()[0].text.contains("HOME="), "{}", ended.full_output());
    for file in ["own", "parents"] {
        let found = String::from_utf8_lossy(&std::fs::read(folder.at(file)).unwrap()).into_owned();
        assert!(!found.contains("aws/aws") && !found.contains(KEY), "{file}: {found}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn other_processes_cannot_read_our_key() {
    use std::os::unix::fs::MetadataExt;

    let folder = folder_with("parent: { prompt: Wait., tools: [] }\n");
    let server = Server::start(|_: &Request| Answer::text("never").hang());
    let running = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("HARMLESS", "1").spawn();
    server.wait_for(1);
    let environ = format!("/proc/{}/environ", running.pid());
    assert_eq!(std::fs::metadata(&environ).unwrap().uid(), 0, "a process that others can't look into belongs to root");
    match std::fs::read(&environ) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.contains("HARMLESS=1") && !text.contains(KEY), "{text}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    running.signal(rustix::process::Signal::TERM);
    running.wait().assert_code(143);
}

#[test]
fn a_secret_is_redacted_in_every_encoding() {
    let folder = folder_with(JOB);
    let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
    let command = r#"t=$INPUT_TOKEN
        echo "raw $t"; echo "url https://me:$t@host/?t=$t"; printf '{"t":"%s"}\n' "$t"
        echo "$t" | base64; echo "x$t" | base64; echo "xy$t" | base64 -w0; echo; printf %s "a:$t" | base64 -w64
        printf %s "$t" | od -An -v -tx1 | tr -d ' '; printf %s "$t" | od -An -v -tx1 | tr -d ' \n'; echo
        printf '\033[1m%s\033[0m%s\n' "${t:0:20}" "${t:20}"; echo "$t" >&2; exit 3"#;
    let server = Server::start(ScriptedAgents::of([bash(command), Answer::text("ok")]));
    let ended = run(&folder, &server, "jsonl");
    ended.assert_code(0);
    let requests = server.finish();
    let result = &requests[1].results()[0].text;
    assert_eq!(result.matches("[masked:token]").count(), 12, "{result}");
    let tails = ["Nzg5YWJjZGVm", "IzNDU2Nzg5", &hex[..20], &hex[120..]];
    assert_absent(
        &ended,
        &requests,
        &[&TOKEN[..16], &TOKEN[80..], "Z2l0aHViX3BhdF8", tails[0], tails[1], tails[2], tails[3]],
    );
}

#[test]
fn redaction_happens_before_truncation() {
    let folder = folder_with(JOB);
    // Long results keep their start and end, long lines their start.
    let flood = "yes \"$INPUT_TOKEN\" | head -n 5000";
    let line = "for i in $(seq 300); do printf '%s' \"$INPUT_TOKEN\"; done > line; wc -c line";
    let read = Answer::calls(&[("read_file", json!({ "path": "line" }))]);
    let server = Server::start(ScriptedAgents::of([bash(flood), bash(line), read, Answer::text("ok")]));
    let ended = run(&folder, &server, "json");
    ended.assert_code(0);
    assert_absent(&ended, &server.finish(), &["github_", "pat_11", "klmnop"]);
}

#[test]
fn the_providers_key_is_redacted_everywhere() {
    let folder = folder_with("parent: { prompt: Read it., tools: [read_file] }\n");
    folder.write("settings", format!("key = {KEY}\n"));
    let read = Answer::calls(&[("read_file", json!({ "path": "settings" }))]);
    let server = Server::start(ScriptedAgents::of([read, Answer::text(&format!("It is {KEY}."))]));
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("It is [masked:ANTHROPIC_API_KEY].\n");
    let requests = server.finish();
    assert_eq!(requests[1].results()[0].text, "     1\tkey = [masked:ANTHROPIC_API_KEY]");
    assert_absent(&ended, &requests, &[KEY]);
}

#[test]
fn error_messages_of_a_server_are_redacted() {
    let encoded = "c2stYW50LXRlc3QtMGExYjJjM2Q0ZTVmNjc4OQ==";
    // The message is truncated at 600 characters, which is within the token.
    let words = format!("no {KEY}, no {encoded}, {}{TOKEN}", "x".repeat(560));
    for (status, kind, outcome) in [
        (401, "authentication_error", "provider_rejected"),
        (400, "invalid_request_error", "context_full"),
        (500, "api_error", "provider_failed"),
    ] {
        let folder = folder_with(JOB);
        let words = if status == 400 { format!("prompt is too long: {words}") } else { words.clone() };
        let server = Server::start(move |_: &Request| Answer::status(status).error(kind, &words));
        let run = folder.legwork(&["run", "job.yaml", "--set-env", "token=T"]).anthropic(&server).env("T", TOKEN);
        let ended = run.env("LEGWORK_RETRY_BASE_MS", "1").run();
        assert_eq!(ended.run_folder().result()["outcome"], outcome, "{}", ended.full_output());
        ended.assert_stderr_contains("no [masked:ANTHROPIC_API_KEY], no [masked:ANTHROPIC_API_KEY]Q==,");
        assert_absent(&ended, &[], &[KEY, &encoded[..30], "github_"]);
    }
}

#[test]
fn an_unexpected_page_is_redacted_before_it_is_truncated() {
    let folder = folder_with(JOB);
    let page = format!("{}{TOKEN}", "y".repeat(190));
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", page.len());
    let server = Server::start(move |_: &Request| Answer::raw(format!("{head}{page}")));
    let run = folder.legwork(&["run", "job.yaml", "--set-env", "token=T"]).anthropic(&server).env("T", TOKEN);
    let ended = run.run();
    ended.assert_code(5).assert_stderr_contains("yyy[masked:");
    assert_absent(&ended, &[], &["github_"]);
}

#[test]
fn a_reply_with_a_secret_is_the_same_in_the_journal_and_in_every_later_request() {
    let folder = folder_with(JOB);
    let input = json!({ "command": format!("echo {TOKEN}"), "description": "say it" });
    let said = Answer::deltas(["It is git", &TOKEN[3..50], &TOKEN[50..], "."])
        .then_call("bash", &input)
        .thinking("I saw it", "c2lnbmVk")
        .allow_changed_echo();
    let clean = bash("echo clean").thinking("No secret here", "c2lnbmVkMg");
    let server = Server::start(ScriptedAgents::of([said, clean, Answer::text("ok")]));
    let ended = run(&folder, &server, "jsonl");
    ended.assert_code(0);
    let requests = server.finish();
    let sent = |request: usize| requests[request].messages()[1]["content"].clone();
    assert_eq!(sent(1), sent(2));
    let blocks = sent(1);
    let kinds: Vec<&str> = blocks.as_array().unwrap().iter().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(kinds, ["text", "tool_use"], "what signs a secret is gone");
    assert_eq!(blocks[0]["text"], "It is [masked:token].");
    assert_eq!(blocks[1]["input"]["command"], "echo [masked:token]");
    assert_eq!(requests[2].messages()[3]["content"][0]["signature"], "c2lnbmVkMg", "one without a secret keeps it");
    let journal = ended.run_folder().events();
    let replied: Vec<&Value> = journal.iter().filter(|event| event["type"] == "reply_received").collect();
    assert_eq!(replied[0]["data"]["reply"]["blocks"][0]["content"]["text"], "It is [masked:token].");
    assert_absent(&ended, &requests, &[TOKEN, "c2lnbmVkIg"]);
}

#[test]
fn a_secret_split_over_blocks_or_escaped_is_redacted() {
    let folder = folder_with(JOB);
    let escaped: String = TOKEN.chars().map(|letter| format!("\\u{:04x}", u32::from(letter))).collect();
    let call = Answer::empty().then_broken_call("bash", &format!("{{\"command\":\"echo {escaped}\"}}"));
    let two = Answer::text(&TOKEN[..40]).then_text(&TOKEN[40..]);
    let server = Server::start(ScriptedAgents::of([call, two]));
    let ended = run(&folder, &server, "text");
    ended.assert_code(0).assert_stdout("[masked:token]\n");
    assert_absent(&ended, &server.finish(), &[TOKEN, &escaped]);
    assert_eq!(ended.run_folder().result()["text"], "[masked:token]");
}

#[test]
fn a_placeholder_is_not_written_over_a_secret() {
    let folder = folder_with(JOB);
    folder.write("settings", format!("token = {TOKEN}\n"));
    let write = |content: &str| {
        Answer::calls(&[("write_file", json!({ "path": "settings", "content": content, "overwrite": true }))])
    };
    let copied = write(&format!("token = {TOKEN}\n")).allow_changed_echo();
    let server = Server::start(ScriptedAgents::of([write("token = [masked:token]\n"), copied, Answer::text("ok")]));
    let ended = run(&folder, &server, "text");
    ended.assert_code(0);
    for request in &server.finish()[1..] {
        assert!(request.results()[0].is_error, "{:?}", request.results());
    }
    assert_eq!(folder.read("settings"), format!("token = {TOKEN}\n"));
}

#[test]
fn a_placeholder_in_a_path_is_rejected_and_a_secret_in_a_path_is_not_stored() {
    let folder = folder_with(JOB);
    folder.write(&format!("w-{TOKEN}/a.txt"), "text\n");
    let input = json!({ "path": "w-[masked:token]", "content": "x" });
    // The killed command leaves the run's baseline of the workspace behind.
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[("write_file", input)]),
        bash(
            "echo more >> w-$INPUT_TOKEN/a.txt; echo new > new-$INPUT_TOKEN; echo plain > plain; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)",
        ),
        Answer::text("ok"),
    ]));
    let started = folder.legwork(&["run", "job.yaml", "--set-env", "token=MY_TOKEN", "--sandbox", "off"]);
    let ended = started.anthropic(&server).env("MY_TOKEN", TOKEN).run();
    assert!(ended.run_folder().has("workspace.start"));
    assert_absent(&ended, &[], &[TOKEN]);
    assert!(!folder.exists("w-[masked:token]"));
    let resumed = folder.legwork(&["resume", "latest", "--set-env", "token=MY_TOKEN", "--sandbox", "off"]);
    let ended = resumed.anthropic(&server).env("MY_TOKEN", TOKEN).run();
    ended.assert_code(0);
    assert!(ended.run_folder().transcript().contains("with a secret in the path"));
    let requests = server.finish();
    assert!(requests[1].results()[0].is_error, "{:?}", requests[1].results());
    assert_absent(&ended, &requests, &[TOKEN]);
    let changes = ended.run_folder().result()["changes"].to_string();
    assert!(changes.contains("plain") && !changes.contains("new-") && !changes.contains("a.txt"), "{changes}");
}

#[test]
fn short_values_are_left_alone_with_a_warning() {
    let folder = folder_with("env: [DB_PASSWORD, API_TOKEN]\nparent: { prompt: Say the word., tools: [bash] }\n");
    let server = Server::start(ScriptedAgents::of([bash("echo $DB_PASSWORD $API_TOKEN"), Answer::text("the end")]));
    let run = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env("DB_PASSWORD", "the").env("API_TOKEN", TOKEN);
    let ended = run.run();
    ended
        .assert_code(0)
        .assert_stdout("the end\n")
        .assert_stderr_contains("warning: DB_PASSWORD isn't masked")
        .assert_not_printed("API_TOKEN is not");
    assert_eq!(server.finish()[1].results()[0].text, "the [masked:API_TOKEN]");
}

#[test]
fn each_line_of_a_key_file_is_a_secret() {
    let key =
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nAgEAAoIBx9Q=\n-----END PRIVATE KEY-----\n";
    let folder = folder_with(JOB);
    let server = Server::start(ScriptedAgents::of([bash("echo \"$INPUT_TOKEN\" | cat -n | tac"), Answer::text("ok")]));
    let run = folder.legwork(&["run", "job.yaml", "--set-env", "token=T"]).anthropic(&server).env("T", key);
    let ended = run.env("GITHUB_ACTIONS", "true").run();
    ended.assert_code(0);
    let requests = server.finish();
    let text = &requests[1].results()[0].text;
    assert!(text.contains("-----END") && text.matches("[masked:token]").count() == 2, "{text}");
    let commands: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(commands, ["::add-mask::AgEAAoIBx9Q=", "::add-mask::MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"]);
}

#[test]
fn github_gets_mask_commands_unless_stderr_is_a_file() {
    let folder = folder_with(
        "env: [DEPLOY_TOKEN, CARGO_HOME, SHORT_KEY]\ninputs: { token: { type: string, secret: true } }\nparent: { prompt: Go., tools: [bash] }\n",
    );
    let server = Server::start(|_: &Request| Answer::text("ok"));
    let program = |executable: &str, arguments: &[&str]| {
        let program = folder.program(executable, arguments).anthropic(&server).env("T", "50%-of\u{20ac}-it");
        program.env("DEPLOY_TOKEN", TOKEN).env("CARGO_HOME", "/opt/cargo").env("SHORT_KEY", "abc")
    };
    let executable = env!("CARGO_BIN_EXE_legwork");
    let arguments = ["run", "job.yaml", "--set-env", "token=T"];
    let result = program(executable, &arguments).env("GITHUB_ACTIONS", "true").run();
    result.assert_code(0).assert_stdout("ok\n");
    let commands: Vec<&str> = result.stderr.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(commands, ["::add-mask::50%25-of\u{20ac}-it", &format!("::add-mask::{TOKEN}")]);
    result.run_folder().assert_absent(TOKEN);
    program(executable, &arguments).run().assert_code(0).assert_not_printed("add-mask").assert_not_printed(TOKEN);
    let script = format!("exec {executable} {} 2> log", arguments.join(" "));
    program("sh", &["-c", &script]).env("GITHUB_ACTIONS", "true").run().assert_code(0);
    assert!(folder.read("log").contains("record: ") && !folder.read("log").contains("::"), "{}", folder.read("log"));
}

#[test]
fn a_misspelled_secret_is_not_quoted() {
    let folder = folder_with(JOB);
    for option in ["--set", "--set-env"] {
        let ended = folder.legwork(&["run", "job.yaml", option, &format!("tokne={TOKEN}")]).run();
        ended.assert_code(3).assert_stderr_contains("tokne");
        if option == "--set" {
            ended.assert_not_printed("github_");
        }
    }
    let file = folder.legwork(&["run", "job.yaml", "--inputs", "in.yaml"]);
    folder.write("in.yaml", format!("token: [{TOKEN}]\n"));
    file.run().assert_code(3).assert_not_printed("github_");
}

#[test]
fn a_dry_run_shows_no_secret() {
    let folder = folder_with(
        "env: [MY_TOKEN]\ninputs: { q: { type: string } }\nparent: { prompt: 'Use {{ inputs.q }}.', tools: [bash] }\n",
    );
    for format in ["text", "json", "jsonl"] {
        let run = folder.legwork(&["run", "job.yaml", "--dry-run", "--format", format, "--set", &format!("q={TOKEN}")]);
        run.env("MY_TOKEN", TOKEN)
            .run()
            .assert_code(0)
            .assert_stdout_contains("Use [masked:MY_TOKEN].")
            .assert_not_printed("github_");
    }
}

#[test]
fn the_password_in_an_address_is_a_secret() {
    let folder = folder_with("env: [DATABASE]\nparent: { prompt: Go., tools: [bash] }\n");
    let server = Server::start(ScriptedAgents::of([bash("echo $DATABASE"), Answer::text("ok")]));
    let run = folder.legwork(&["run", "job.yaml"]).anthropic(&server);
    let ended = run.env("DATABASE", "postgres://app:hush-hush-hush@db/app").run();
    ended.assert_code(0);
    let requests = server.finish();
    assert_eq!(requests[1].results()[0].text, "postgres://app:[masked:DATABASE]@db/app");
    assert_absent(&ended, &requests, &["hush-hush"]);
}

#[test]
fn only_their_owner_can_read_records() {
    let folder = folder_with("parent: { prompt: Go., tools: [task] }\n");
    let task = Answer::calls(&[("task", json!({ "prompt": "Look." }))]);
    let script = ScriptedAgents::new().agent("Look.", [Answer::text("Seen.")]).agent("Go.", [task, Answer::text("ok")]);
    let server = Server::start(script);
    let ended = folder.program("sh", &["-c", &format!("umask 0; exec {} run job.yaml", env!("CARGO_BIN_EXE_legwork"))]);
    let ended = ended.anthropic(&server).run();
    ended.assert_code(0);
    let record = ended.run_folder();
    let mut paths: Vec<_> = record.files().into_iter().map(|name| record.path().join(name)).collect();
    paths.extend([
        record.path().to_owned(),
        record.path().join("subagents"),
        record.path().parent().unwrap().to_owned(),
    ]);
    for path in paths {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

/// A run that is killed after its command wrote the secret into the workspace.
fn run_with_leaked_secret(arguments: &[&str], old: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", format!("model: replay/r.yaml\nenv: [DEPLOY_TOKEN]\n{JOB}"));
    let write =
        json!({ "tool": "bash", "input": { "command": "echo \"$INPUT_TOKEN $DEPLOY_TOKEN\" > left; echo x > other" } });
    let more = json!({ "tool": "bash", "input": { "command": "true" } });
    folder.write(
        "r.yaml",
        json!({ "parent": [{ "calls": [write] }, { "calls": [more] }, { "text": "Done." }] }).to_string(),
    );
    let run = folder.legwork(&["run", "job.yaml", "--set-env", "token=MY_TOKEN"]).args(arguments);
    let cut = run.env("MY_TOKEN", old).env("DEPLOY_TOKEN", "deploy-1-deploy").env("LEGWORK_KILL_AFTER", "8").run();
    assert_eq!(cut.signal(), Some(9), "{}", cut.full_output());
    assert!(folder.read("left").contains(old));
    folder
}

#[test]
fn a_run_does_not_resume_with_a_changed_secret_that_would_leak() {
    const OLD: &str = "the-old-value-of-it";
    let folder = run_with_leaked_secret(&[], OLD);
    let resume = |arguments: &[&str], token: &str, deploy: Option<&str>| {
        let resume = folder.legwork(&["resume", "latest", "--set-env", "token=MY_TOKEN"]).args(arguments);
        let resume = resume.env("MY_TOKEN", token);
        deploy.map(|deploy| resume.env("DEPLOY_TOKEN", deploy)).unwrap_or_else(|| {
            folder.legwork(&["resume", "latest", "--set-env", "token=MY_TOKEN"]).args(arguments).env("MY_TOKEN", token)
        })
    };
    let first = "deploy-1-deploy";
    let refused = resume(&[], "the-new-value-of-it", Some(first)).run();
    refused
        .assert_code(2)
        .assert_stdout("")
        .assert_stderr_contains("changed since the run was interrupted: token\n")
        .assert_stderr_contains("--force");
    resume(&[], OLD, Some("deploy-2-deploy")).run().assert_code(2).assert_stderr_contains(": DEPLOY_TOKEN\n");
    resume(&[], OLD, None).run().assert_code(2).assert_stderr_contains(": DEPLOY_TOKEN\n");
    // The run keeps the forced options when it is killed once more.
    let forced = resume(&["--force"], "the-new-value-of-it", Some(first)).env("LEGWORK_KILL_AFTER", "1").run();
    assert_eq!(forced.signal(), Some(9), "{}", forced.full_output());
    resume(&[], OLD, Some(first)).run().assert_code(2).assert_stderr_contains(": token\n");
    let ended = resume(&[], "the-new-value-of-it", Some(first)).run();
    ended.assert_code(0).assert_stdout("Done.\n").assert_not_printed(OLD);
    let record = ended.run_folder();
    record.assert_absent(OLD);
    assert!(!record.has("changes.patch"));
    assert_eq!(record.result()["changes"].as_array().unwrap().len(), 2);
    assert!(record.transcript().contains("the former value of a secret that changed"), "{}", record.transcript());
}

#[test]
fn a_run_resumes_with_the_same_secrets_and_keeps_its_patch() {
    const TOKEN: &str = "the-one-value-of-it";
    let folder = run_with_leaked_secret(&[], TOKEN);
    let resume = folder.legwork(&["resume", "latest", "--set-env", "token=MY_TOKEN"]);
    let ended = resume.env("MY_TOKEN", TOKEN).env("DEPLOY_TOKEN", "deploy-1-deploy").run();
    ended.assert_code(0);
    assert!(ended.run_folder().file("changes.patch").contains("[masked:token] [masked:DEPLOY_TOKEN]"));
    ended.run_folder().assert_absent(TOKEN);
    // Placeholders don't distinguish between equal values of two secrets or two runs.
    let marks = |folder: &TestFolder| {
        let journal = std::fs::read_to_string(folder.at("runs/job/latest/events.jsonl")).unwrap();
        let started: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
        started["data"]["secrets"]
            .as_object()
            .unwrap()
            .values()
            .map(|mark| mark.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let other = run_with_leaked_secret(&[], "deploy-1-deploy");
    let mut all = [marks(&folder), marks(&other)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4, "{all:?}");
}
