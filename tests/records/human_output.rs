//! Output for people: the transcript and its order, the progress, and the suggested next step.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, KEY, Request, ScriptedAgents, Server};
use crate::support::tcp_peer::{PeerBehaviour, TcpPeer};
use crate::support::test_folder::TestFolder;

/// A parent that starts two subagents at once.
const TWO_SUBAGENTS_JOB: &str = "parent: { system: Be brief., prompt: Ask both., tools: [task] }\nsubagents: { a: { tools: [bash] }, b: { tools: [bash] } }\n";

/// Runs [`TWO_SUBAGENTS_JOB`] so that this subagent ends last: it waits until the end of the other one is on disk.
fn run_with_last(last: &str) -> (TestFolder, ProgramOutput) {
    let folder = folder_with(TWO_SUBAGENTS_JOB);
    let child = |name: &str| {
        let other = if name == "a" { "b" } else { "a" };
        let journal = format!("runs/job/latest/subagents/{other}-1.events.jsonl");
        let command = match name == last {
            true => format!("until grep -q agent_finished {journal}; do sleep 0.01; done"),
            false => "true".to_owned(),
        };
        json!([{ "calls": [{ "tool": "bash", "input": { "command": command } }] }, { "text": format!("From {name}.") }])
    };
    let ask = |name: &str| json!({ "tool": "task", "input": { "agent": name, "prompt": "Look." } });
    let script = json!({
        "parent": [{ "calls": [ask("a"), ask("b")] }, { "text": "Both are back." }],
        "subagents": { "a-1": child("a"), "b-1": child("b") },
    });
    folder.write("replies.yaml", script.to_string());
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml", "--sandbox", "off"]).run();
    ended.assert_code(0);
    (folder, ended)
}

/// A transcript without its id and times, which differ between runs.
fn without_times(transcript: &str) -> String {
    let line = |line: &str| match line.strip_prefix("### ") {
        Some(heading) => format!("### {}\n", heading.split(" (").next().unwrap_or_default()),
        None => format!("{line}\n"),
    };
    let is_equal = |line: &&str| !line.starts_with("- run: ") && !line.starts_with("- time: ");
    transcript.lines().filter(is_equal).map(line).collect()
}

#[test]
fn parallel_calls_are_shown_in_request_order() {
    let runs = ["a", "b"].map(|last| (last, run_with_last(last)));
    for (last, (folder, ended)) in &runs {
        let record = ended.run_folder();
        let events = record.events();
        let ends: Vec<&Value> = events.iter().filter(|event| event["type"] == "call_finished").collect();
        let texts: Vec<&Value> = ends.iter().map(|event| &event["data"]["result"]["text"]).collect();
        assert_eq!(texts[1], &json!(format!("From {last}.")), "the journal has it as it happened");
        let shown = folder.legwork(&["show"]).run();
        for text in [record.transcript(), record.file("report.html"), shown.assert_code(0).stdout.clone()] {
            let (a, b) = (text.find("From a.").unwrap(), text.find("From b.").unwrap());
            assert!(a < b, "{last} ended last:\n{text}");
        }
        assert_eq!(record.result()["subagents"][0]["id"], "a-1");
    }
    let [one, other] = runs.map(|(_, (_, ended))| without_times(&ended.run_folder().transcript()));
    assert_eq!(one, other, "two equal runs read the same");
}

#[test]
fn a_transcript_separates_the_inputs_of_a_call() {
    let folder = folder_with("parent: { prompt: Go., tools: [edit_file, grep, glob, read_file] }\n");
    folder.write("src/a.txt", "one\ntwo\n");
    let script = json!({ "parent": [
        { "calls": [
            { "tool": "grep", "input": { "path": ".", "pattern": "t[w]o" } },
            { "tool": "glob", "input": { "path": "src", "pattern": "*.txt" } },
            { "tool": "read_file", "input": { "file_path": "src/a.txt" } },
            { "tool": "edit_file", "input": { "path": "src/a.txt", "old_text": "one\ntwo", "new_text": "1\n2" } },
            { "tool": "edit_file", "input": { "path": "src/a.txt", "old_text": "1\n2", "new_text": "3", "replace_all": true } },
        ] },
        { "text": "Done." },
    ] });
    folder.write("replies.yaml", script.to_string());
    let ended = folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml"]).run();
    ended.assert_code(0);
    let transcript = ended.run_folder().transcript();
    for part in [
        "### grep t\\[w\\]o (",
        "\n\n- path: `.`\n\n```\n",
        "### edit_file `src/a.txt` (",
        "\n\n```diff\n-one\n-two\n+1\n+2\n```\n\n```\n",
        "\n\n- replace_all: `true`\n\n```diff\n-1\n-2\n+3\n```\n\n```\n",
    ] {
        assert!(transcript.contains(part), "{part} is missing in\n{transcript}");
    }
    for progress in
        ["parent         grep t[w]o\n", "parent         glob *.txt\n", "parent         read_file src/a.txt\n"]
    {
        ended.assert_stderr_contains(progress);
    }
}

/// The command in the last line on stderr.
fn suggested_command(ended: &ProgramOutput) -> Vec<String> {
    let last = ended.stderr.lines().last().unwrap_or_default();
    let command = last.strip_prefix("resume: legwork ").unwrap_or_else(|| panic!("{last:?}\n{}", ended.full_output()));
    let output = std::process::Command::new("sh").args(["-c", &format!("printf '%s\\n' {command}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_resumable_run_prints_the_resume_command() {
    let peer = TcpPeer::start(PeerBehaviour::Silent);
    let server = Server::start(|_: &Request| Answer::text("At last."));
    for (number, out) in ["runs", "my runs", "it's", "-x"].into_iter().enumerate() {
        let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
        let run = folder.legwork(&["run", "job.yaml"]).arg(format!("--out={out}"));
        let running = run.env("ANTHROPIC_BASE_URL", peer.url()).env("ANTHROPIC_API_KEY", KEY).spawn();
        peer.wait_for(number + 1);
        running.signal(Signal::INT);
        let interrupted = running.wait();
        let command = suggested_command(interrupted.assert_code(130));
        let ended = folder.legwork(&command.iter().map(String::as_str).collect::<Vec<_>>()).anthropic(&server).run();
        ended.assert_code(0).assert_stdout("At last.\n").assert_not_printed("legwork resume");
        assert!(command[1].trim_start_matches("./").starts_with(out), "{command:?}");
    }
}

#[test]
fn a_provider_error_names_the_resume_command() {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::status(400).error("invalid_request_error", "no credit"),
        Answer::text("At last."),
    ]));
    let rejected = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    let command = suggested_command(rejected.assert_code(5));
    assert_eq!(command[0], "resume");
    folder.legwork(&["resume"]).anthropic(&server).run().assert_code(0).assert_stdout("At last.\n");
    folder.legwork(&["replay"]).run().assert_code(0);
    folder
        .legwork(&["resume"])
        .run()
        .assert_code(0)
        .assert_stderr_contains("has ended: completed")
        .assert_stderr_contains("choose another with `legwork resume RUN`");
    folder.legwork(&["resume", "latest"]).run().assert_code(0).assert_not_printed("name another");
}

#[test]
fn a_job_named_without_extension_or_folder_is_suggested() {
    let folder = TestFolder::new();
    let job = "model: anthropic/claude-sonnet-4-5\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 1000 }\n";
    folder.write("jobs/first.yaml", job).write("second.yml", job).write("jobs/third.script.yaml", "parent: []\n");
    for (wanted, meant) in [("first", "jobs/first.yaml"), ("first.yaml", "jobs/first.yaml"), ("second", "second.yml")] {
        for command in [&["run", "--dry-run", wanted][..], &["validate", wanted], &["test", wanted]] {
            let ended = folder.legwork(command).run();
            ended.assert_code(3);
            let output = format!("{}{}", ended.stdout, ended.stderr);
            assert!(output.contains(&format!("did you mean `{meant}`?")), "{}", ended.full_output());
        }
    }
    for wanted in ["gone", "third", "third.script", "jobs", ".."] {
        folder.legwork(&["run", wanted]).run().assert_code(3).assert_not_printed("did you mean");
    }
}

#[test]
fn a_path_that_is_not_utf8_is_rejected_before_the_record_is_created() {
    let folder = folder_with("parent: { prompt: Go., tools: [bash] }\n");
    folder.write("replies.yaml", "parent: [{ text: Done. }]\n");
    let odd = folder.path().join(OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    let run = || folder.legwork(&["run", "job.yaml", "--model", "replay/replies.yaml"]);
    run().arg("--workspace").arg(&odd).run().assert_code(2).assert_stderr_contains("isn't valid UTF-8");
    std::fs::copy(folder.at("job.yaml"), odd.join("job.yaml")).unwrap();
    let there = folder.legwork(&["run", "job.yaml", "--model", "replay/../replies.yaml"]).in_folder(&odd).run();
    there.assert_code(2).assert_stderr_contains("isn't valid UTF-8");
    let job = folder.legwork(&["run", "--model", "replay/replies.yaml"]).arg(odd.join("job.yaml")).run();
    job.assert_code(2).assert_stderr_contains("isn't valid UTF-8");
    assert!(!folder.exists("runs") && !odd.join("runs").exists());
    run().run().assert_code(0);
}

#[test]
fn a_run_from_a_script_has_no_cost_warning() {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
    folder.write("replies.yaml", "parent: [{ text: Done. }]\n");
    let output = |model: &str| folder.legwork(&["run", "job.yaml", "--dry-run", "--model", model]).run();
    output("replay/replies.yaml").assert_code(0).assert_not_printed("no-cost-limit");
    output("anthropic/claude-haiku-4-5").assert_code(0).assert_stderr_contains("no-cost-limit");
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0).assert_stdout_contains("no-cost-limit");
}
