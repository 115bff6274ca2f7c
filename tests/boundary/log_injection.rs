//! Output that a CI system parses. No model, tool, file or server can inject commands into it, or escapes into a
//! terminal.

use serde_json::json;

use crate::running::runs::folder_with;
use crate::support::journal::with_checksums;
use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// Workflow commands in both of GitHub's forms, Azure's and TeamCity's, after every kind of line ending, and escape
/// sequences.
const HOSTILE_TEXT: &str = "::set-output name=a::b\n  ::add-mask::the\r::stop-commands::x\r\n\u{a0}::error::y\u{85}::group::z\u{2028}::debug::q\n\
    ##[group]x a ##[add-mask]b ##vso[task.setvariable variable=PATH]c ##teamcity[d]\n\u{1b}[2J\u{1b}]8;;http://a\u{7}e\u{1b}]8;;\u{7}\
    \u{9b}31m\u{202e}f\u{2066}g\u{8}\u{7f}::";

/// The lines that a CI system would execute as commands, without those of the group of a subagent.
fn ci_commands(printed: &str) -> Vec<&str> {
    let lines = printed.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}']);
    let is_command = |line: &&str| {
        let opens = |mark: &str| {
            line.match_indices(mark).any(|(at, _)| {
                line[at + mark.len()..].trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).starts_with('[')
            })
        };
        line.trim_start().starts_with("::") || opens("##")
    };
    let mut is_in_group = false;
    let is_foreign = |line: &&str| {
        let opens = |agent: &str| line.strip_prefix("::group::").is_some_and(|line| line.starts_with(agent));
        let is_own = if is_in_group {
            *line == "::endgroup::"
        } else {
            opens("general-1: ") || opens("explorer-1: completed after")
        };
        is_in_group ^= is_own;
        !is_own
    };
    lines.filter(is_command).filter(is_foreign).collect()
}

/// Asserts that neither stdout nor stderr contains anything that a CI system executes.
#[track_caller]
pub(crate) fn assert_harmless(ended: &ProgramOutput) {
    for printed in [&ended.stdout, &ended.stderr] {
        assert_eq!(ci_commands(printed), Vec::<&str>::new(), "{}", ended.full_output());
        let steering = |letter: char| {
            (letter.is_control() && letter != '\n' && letter != '\t')
                || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
        };
        let found: Vec<char> = printed.chars().filter(|letter| steering(*letter)).collect();
        assert_eq!(found, Vec::<char>::new(), "{:?}", ended.full_output());
    }
}

/// This text, escaped for a quoted YAML string.
fn yaml_escaped(text: &str) -> String {
    text.chars().map(|letter| format!("\\U{:08x}", u32::from(letter))).collect()
}

fn in_actions(program: Program) -> Program {
    program.env("CI", "true").env("GITHUB_ACTIONS", "true")
}

/// A run in which every text that can be hostile is hostile.
fn hostile_run() -> (TestFolder, Server) {
    let folder = folder_with(&format!(
        "description: \"{}\"\ninputs: {{ title: {{ type: string, untrusted: true }} }}\nparent: {{ prompt: 'Parent: {{{{ inputs.title }}}}', tools: [bash, \
         read_file, task, todo] }}\n",
        yaml_escaped(HOSTILE_TEXT)
    ));
    folder.write("notes", HOSTILE_TEXT);
    let script = ScriptedAgents::new().agent("Child:", [Answer::text(HOSTILE_TEXT)]).agent(
        "Parent:",
        [
            Answer::status(529).error("overloaded_error", HOSTILE_TEXT),
            Answer::text(HOSTILE_TEXT)
                .then_call(
                    "bash",
                    &json!({ "command": format!("cat notes >&2; : '{}'; exit 3", HOSTILE_TEXT.replace('\0', "")) }),
                )
                .then_call("read_file", &json!({ "path": format!("notes\n{HOSTILE_TEXT}") }))
                .then_call(&format!("tool{}", &HOSTILE_TEXT[..60]), &json!({ "a": HOSTILE_TEXT }))
                .then_call("todo", &json!({ "items": [{ "text": HOSTILE_TEXT, "status": "done" }] }))
                .then_call("task", &json!({ "prompt": format!("Child: {HOSTILE_TEXT}"), "description": HOSTILE_TEXT }))
                .allow_changed_echo(),
            Answer::text(&format!("{HOSTILE_TEXT}\nThe end.")),
        ],
    );
    (folder, Server::start(script))
}

#[test]
fn a_run_with_hostile_text_everywhere_injects_nothing() {
    for format in ["text", "json", "jsonl"] {
        let (folder, server) = hostile_run();
        let run = folder
            .legwork(&["run", "job.yaml", "--set-env", "title=TITLE", "--format", format])
            .env("TITLE", HOSTILE_TEXT);
        let ended = in_actions(run.anthropic(&server)).env("LEGWORK_RETRY_BASE_MS", "1").run();
        ended
            .assert_code(0)
            .assert_stdout_contains("The end.")
            .assert_stderr_contains("task -> general-1")
            .assert_stderr_contains("\n::group::general-1: ")
            .assert_stderr_contains("bash failed: ");
        assert_harmless(&ended);
        let dry = folder.legwork(&["run", "job.yaml", "--dry-run", "--verbose", "--set-env", "title=TITLE"]);
        let dry = in_actions(dry.env("TITLE", HOSTILE_TEXT)).run();
        dry.assert_code(0);
        assert_harmless(&dry);
        // The record has the original text.
        let result = ended.run_folder().result();
        assert_eq!(result["text"], format!("{HOSTILE_TEXT}\nThe end."));
        let shown = in_actions(folder.legwork(&["show", "latest"])).run();
        shown.assert_code(0).assert_stdout_contains("The end.");
        assert_harmless(&shown);
        let kept = ended.run_folder().transcript();
        folder.legwork(&["show", "latest"]).run().assert_stdout(&kept);
        for arguments in [
            &["diff", "latest", "latest"][..],
            &["diff", "latest", "latest", "--format", "json"],
            &["replay", "latest"],
            &["replay", "latest", "--format", "json"],
            &["show", "latest", "--rebuild"],
        ] {
            let ended = in_actions(folder.legwork(arguments)).run();
            ended.assert_code(0);
            assert_harmless(&ended);
        }
    }
}

#[test]
fn a_server_error_injects_nothing() {
    let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
    let server = Server::start(|_: &Request| Answer::status(400).error("invalid_request_error", HOSTILE_TEXT));
    let ended = in_actions(folder.legwork(&["run", "job.yaml"]).anthropic(&server)).run();
    ended.assert_code(5).assert_stderr_contains("answered 400");
    assert_harmless(&ended);
}

#[test]
fn an_answer_is_exact_in_files_and_pipes() {
    let (folder, server) = hostile_run();
    let run =
        folder.legwork(&["run", "job.yaml", "--set-env", "title=TITLE"]).env("TITLE", HOSTILE_TEXT).anthropic(&server);
    let answer = format!("{HOSTILE_TEXT}\nThe end.\n");
    run.env("LEGWORK_RETRY_BASE_MS", "1").run().assert_code(0).assert_stdout(&answer);
    let (folder, server) = hostile_run();
    let script = format!("exec {} run job.yaml --set-env title=TITLE > answer", env!("CARGO_BIN_EXE_legwork"));
    let run = in_actions(folder.program("sh", &["-c", &script])).env("TITLE", HOSTILE_TEXT).anthropic(&server);
    let ended = run.env("LEGWORK_RETRY_BASE_MS", "1").run();
    assert_harmless(&ended);
    assert_eq!(folder.read("answer"), answer);
}

#[test]
fn a_hostile_job_or_command_line_injects_nothing() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        format!("model: {}\nparent: {{ prompt: x, tools: [{}] }}\n", json!(HOSTILE_TEXT), json!(HOSTILE_TEXT)),
    );
    folder.write("jobs/::error::x.yaml", "model: [\n");
    for format in ["text", "concise", "json", "sarif", "gitlab"] {
        let ended = in_actions(folder.legwork(&["validate", "job.yaml", "jobs", "--format", format])).run();
        ended.assert_code(3);
        assert_harmless(&ended);
    }
    for arguments in [
        vec!["run", "job.yaml", "--set", HOSTILE_TEXT],
        vec!["run", HOSTILE_TEXT],
        vec!["run", "job.yaml", "--format", HOSTILE_TEXT],
        vec!["run", "job.yaml", "--model", HOSTILE_TEXT],
        vec!["run", "job.yaml", "--workspace", HOSTILE_TEXT],
        vec!["run", "job.yaml", "--inputs", HOSTILE_TEXT],
        vec!["run", "job.yaml", HOSTILE_TEXT],
        vec![HOSTILE_TEXT],
        vec!["show", HOSTILE_TEXT],
        vec!["resume", HOSTILE_TEXT],
        vec!["explain", HOSTILE_TEXT],
        vec!["validate", HOSTILE_TEXT],
    ] {
        let ended = in_actions(folder.legwork(&arguments)).run();
        assert_ne!(ended.stderr.clone() + &ended.stdout, "", "{arguments:?}");
        assert_harmless(&ended);
    }
}

#[test]
fn file_and_job_names_inject_nothing() {
    const NAME: &str = "::stop-commands::tok";
    let folder = TestFolder::new();
    let text = "model: replay/::stop-commands::tok.script.yaml\nparent: { prompt: { file: '::stop-commands::p.md' }, Tools: [], tools: [Read] }\n";
    let job = format!("{NAME}.yaml");
    folder.write(&job, text).write("::stop-commands::p.md", "{{ nothing }}\n");
    folder.write(&format!("{NAME}.script.yaml"), "parent: [{ txt: hi }]\n");
    folder.write("jobs/::stop-commands::tok.yaml", "model: replay/x\nparent: { prompt: x, tools: [Read] }\n");
    let run = |arguments: &[&str]| {
        let ended = in_actions(folder.legwork(arguments)).run();
        assert_harmless(&ended);
        ended
    };
    for format in ["text", "concise", "json", "sarif", "gitlab"] {
        run(&["validate", &job, "jobs", "--format", format]).assert_code(3);
        run(&["validate", &job, "jobs", "--diff", "--format", format]).assert_code(3);
    }
    run(&["validate", "--fix", &job, "jobs", &format!("{NAME}.script.yaml")])
        .assert_code(3)
        .assert_stderr_contains("fixed");
    // A valid job with such a name goes through all commands.
    let good = format!("model: replay/{NAME}.script.yaml\nname: good\nparent: {{ prompt: x, tools: [] }}\n");
    folder.write(&job, good).write(&format!("{NAME}.script.yaml"), "parent: [{ text: hi }]\n");
    let out = "::set-output name=a::b";
    for arguments in [
        vec!["validate", &job],
        vec!["run", &job, "--dry-run"],
        vec!["run", &job, "--dry-run", "--verbose"],
        vec!["run", &job, "--out", out],
        vec!["run", &job, "--out", out, "--result", "::error::r.json"],
        vec!["show", "--out", out, "latest"],
        vec!["replay", "--out", out, "latest"],
        vec!["resume", "--out", out, "latest"],
        vec!["test", &job],
        vec!["test", out],
        vec!["prices", NAME],
        vec!["providers"],
        vec!["explain", NAME],
        vec!["schema"],
        vec!["init", out],
        vec!["init", NAME],
        vec!["diff", NAME, out],
        vec!["runs", "--out", out],
        vec!["runs", "--out", out, "--job", NAME],
        vec!["runs", "--out", out, "--rows", "--format", "json"],
        vec!["runs", "prune", "--keep", "0", "--dry-run", "--out", out],
    ] {
        run(&arguments);
    }
    run(&["run", &job, "--out", out]).assert_code(0).assert_stdout("hi\n");
}

#[test]
fn a_diff_in_a_log_is_sanitized_and_marked_as_not_a_patch() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: anthropic/claude-sonnet-4-6\nparent:\n  prompt: |\n    ::error::x\n  toolz: []\nlimits: { tokens: 9 }\n");
    let arguments = ["validate", "job.yaml", "--diff"];
    folder
        .legwork(&arguments)
        .run()
        .assert_code(3)
        .assert_stdout_contains("     ::error::x\n")
        .assert_not_printed("git apply");
    let ended = in_actions(folder.legwork(&arguments)).run();
    ended.assert_code(3).assert_stdout_contains("     \\::error::x\n").assert_stderr_contains("git apply");
    assert_harmless(&ended);
}

#[test]
fn other_ci_systems_are_detected_by_their_variables() {
    for (variable, value, is_ci) in [
        ("CI", "true", true),
        ("CI", "false", false),
        ("GITHUB_ACTIONS", "true", true),
        ("TF_BUILD", "True", true),
        ("TEAMCITY_VERSION", "2026.1", true),
        ("HOME", "/", false),
    ] {
        let folder = folder_with("parent: { prompt: Go., tools: [] }\n");
        let server = Server::start(ScriptedAgents::of([Answer::text("a ##vso[b]")]));
        let run = folder.legwork(&["run", "job.yaml"]).anthropic(&server).env(variable, value).run();
        run.assert_code(0).assert_stdout(if is_ci { "a ##vso\\[b]\n" } else { "a ##vso[b]\n" });
    }
}

#[test]
fn a_github_step_summary_is_written() {
    let (folder, server) = hostile_run();
    folder.write("summary.md", "before\n");
    let run =
        folder.legwork(&["run", "job.yaml", "--set-env", "title=TITLE"]).env("TITLE", HOSTILE_TEXT).anthropic(&server);
    let run = in_actions(run).env("LEGWORK_RETRY_BASE_MS", "1");
    run.env("GITHUB_STEP_SUMMARY", folder.at("summary.md")).run().assert_code(0);
    let page = folder.read("summary.md");
    assert!(page.starts_with("before\n### ✅ job: completed\n"), "{page}");
    for part in
        ["| turns | 2 |", "| record | runs\\/job\\/", "\n| general\\-1 | \\:\\:set\\-output", "\nThe end.\n```\n"]
    {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    assert_eq!(ci_commands(&page), Vec::<&str>::new());
    // There is no summary outside of Actions, and only a message if the file can't be written or is full.
    let server = Server::start(|_: &Request| Answer::text("```\n<img src=http://a>\n````\n![x](http://a)"));
    let plain = |name: &str| {
        let run = folder.legwork(&["run", "job.yaml", "--set", "title=x"]).anthropic(&server);
        run.env("GITHUB_STEP_SUMMARY", folder.at(name))
    };
    plain("none.md").run().assert_code(0);
    assert!(!folder.exists("none.md"));
    in_actions(plain("gone/x.md")).run().assert_code(0).assert_stderr_contains("can't write the step summary");
    folder.write("full.md", "x".repeat((1 << 20) - 100));
    in_actions(plain("full.md")).run().assert_code(0).assert_stderr_contains("is full");
    in_actions(plain("fresh.md")).run().assert_code(0);
    let page = folder.read("fresh.md");
    assert!(page.ends_with("`````text\n```\n<img src=http://a>\n````\n![x](http://a)\n`````\n\n"), "{page}");
}

#[test]
fn a_step_summary_is_bounded_and_hidden_from_tools() {
    let folder = folder_with("parent: { prompt: Go., tools: [bash, task] }\nlimits: { subagents: 200 }\n");
    let tasks = (0..70).fold(Answer::calls(&[("bash", json!({ "command": "env" }))]), |answer, _| {
        answer.then_call("task", &json!({ "prompt": "Look.", "description": "d".repeat(5_000) }))
    });
    let looks = (0..70).map(|_| Answer::text("Seen."));
    let end = Answer::text(&"`".repeat(100_000));
    let server = Server::start(ScriptedAgents::new().agent("Look.", looks).agent("Go.", [tasks, end]));
    let run = in_actions(folder.legwork(&["run", "job.yaml"]).anthropic(&server));
    run.env("GITHUB_STEP_SUMMARY", folder.at("summary.md")).env("GITHUB_ENV", "/x").run().assert_code(0);
    let page = folder.read("summary.md");
    assert!(page.len() < 200 << 10, "{} bytes", page.len());
    assert!(page.contains("And 20 more subagents.") && page.contains("80000 more characters in"), "{page}");
    let requests = server.finish();
    let seen = requests.iter().flat_map(|request| request.results()).find(|result| result.text.contains("HOME="));
    assert!(!seen.expect("what env printed").text.contains("GITHUB_"));
}

/// The rules for names don't constrain a forged record.
#[test]
fn names_in_a_record_inject_nothing() {
    const NAME: &str = "::error::x\r##[group]y ##vso[z]\u{1b}]52;c;eA==\u{7}\u{202e}";
    let folder = TestFolder::new();
    let bash = json!({ "tool": "bash", "input": { "command": "echo hi > made" } });
    folder.write("r.yaml", json!({ "parent": [{ "calls": [bash] }, { "text": "Done." }] }).to_string());
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\nparent: { prompt: Go., tools: [bash] }\nchecks: [{ name: looks, run: 'true' }]\n",
    );
    let out = ["--out", "runs"];
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    let plain = folder.at("runs/job/latest").canonicalize().unwrap();
    let journal = plain.join("events.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let inner = json!(NAME).to_string();
    let inner = inner.trim_matches('"');
    let hostile = ["\"tool\":\"bash\"", "\"name\":\"looks\"", "\"job\":\"job\"", "\"path\":\"made\"", "\"sandbox\":\""];
    let mut steered = text.clone();
    for part in hostile {
        assert!(text.contains(part), "{part}: {text}");
        let (key, value) = part.split_once(':').unwrap();
        let end = if value.len() > 1 { "\"" } else { "" };
        steered = steered.replace(part, &format!("{key}:\"{inner}{end}"));
    }
    steered = steered.replace("replay/r.yaml", &format!("replay/{inner}"));
    folder.allow_forged_records();
    std::fs::write(&journal, with_checksums(&steered)).unwrap();
    let folder_name = &NAME.replace('/', "")[..NAME.len() - 3];
    folder.write(&format!("runs/{folder_name}/{folder_name}/result.json"), "{");
    for arguments in [
        &["show", "latest"][..],
        &["diff", "latest", "latest"],
        &["diff", "latest", "latest", "--format", "json"],
        &["show", "latest", "--rebuild"],
        &["show", "latest"],
        &["diff", "latest", "latest"],
        &["replay", "latest"],
        &["replay", "latest", "--format", "json"],
        &["resume", "latest", "--trust-record"],
        &["runs"],
        &["runs", "--format", "json"],
        &["runs", "prune", "--keep", "0"],
    ] {
        let ended = in_actions(folder.legwork(arguments).args(out)).run();
        assert_harmless(&ended);
        if ["show", "diff"].contains(&arguments[0]) {
            ended.assert_code(0);
        }
        if arguments[0] == "diff" {
            ended.assert_stdout_contains("error::x");
        }
    }
}

/// The visible part of rendered Markdown: everything except code blocks that start and end at the margin.
fn visible_markdown(markdown: &str) -> String {
    let (mut text, mut fence) = (String::new(), None);
    for line in markdown.lines() {
        let marks: String = line.chars().take_while(|letter| *letter == '`').collect();
        match &fence {
            None if marks.len() >= 3 => {
                assert!(!line.contains("mermaid"), "a diagram is rendered");
                fence = Some(marks);
            }
            None => text += &format!("{line}\n"),
            Some(open) if line == open => fence = None,
            Some(_) => {}
        }
    }
    assert_eq!(fence, None, "a code block stays open");
    text
}

#[test]
fn a_transcript_has_no_active_content() {
    let live = format!(
        "{HOSTILE_TEXT}\n![a](http://evil/a.png) [safe](http://evil) <img src=http://evil/b.png> [c]\n\n[c]: http://evil\n\
         - x\n  ```mermaid\n  click a http://evil\n```\n![d](http://evil)\n```sh\nls [1](2) $x | <b>\n``` \n> ~~~\n![e](http://evil)\n\
         a `b\nc` ![f](http://evil) `d`\n$$\n&#x202e;&lt;`Vec<T>[0]`\nbare http://shown/?a=1&b=2\n~~~~\n![in code](x)\n```\n"
    );
    let folder = folder_with("parent: { prompt: 'Parent:', tools: [bash, task] }\n");
    let script = ScriptedAgents::new().agent("Child:", [Answer::text(&live)]).agent(
        "Parent:",
        [
            Answer::text(&live)
                .then_call("bash", &json!({ "command": "printf '![g](http://evil)\\n````\\n\\033]52;c;eA==\\007\\n'" }))
                .then_call("![h](http://evil)", &json!({ "![i](http://evil)": "`", "j": "<img src=http://evil>" }))
                .then_call("task", &json!({ "prompt": "Child:", "description": live }))
                .allow_changed_echo(),
            Answer::text("Done."),
        ],
    );
    let server = Server::start(script);
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0);
    let record = ended.run_folder();
    for file in ["transcript.md", "subagents/general-1.md"] {
        let whole = record.file(file);
        let steering: Vec<char> = whole.chars().filter(|it| it.is_control() && !"\n\t".contains(*it)).collect();
        assert_eq!(steering, Vec::<char>::new(), "{whole}");
        assert!(!whole.contains(['\u{202e}', '\u{2066}', '\u{200b}']) && whole.contains('␛'), "{whole}");
        let body = whole.split_once("\n---\n").filter(|_| file != "transcript.md").map_or(&*whole, |(_, body)| body);
        let text = visible_markdown(body);
        assert!(text.contains("\n- x\n") && !text.contains("```mermaid"), "{whole}");
        // This is code: the first backtick has no partner.
        let text = text.replace("` ![f](http://evil) `", "").replace("`<img src=http://evil>`", "");
        for live in ["![", "](", "<img", "]: http", "$$", "&#x202e", "&lt;"] {
            let bare = text.match_indices(live).filter(|(at, _)| !text[..*at].ends_with('\\'));
            let of_ours = |at: usize| text[at..].starts_with("](subagents/general-1.md)");
            // An escaped `!` isn't an image.
            let found: Vec<_> = bare.filter(|(at, _)| !of_ours(*at) && !text[*at..].starts_with("!\\[")).collect();
            assert_eq!(found, [], "{live} in {file}: {text}");
        }
        for shown in
            ["!\\[a\\](http://evil/a.png)", "\\<img src=http://evil/b.png>", "`Vec<T>[0]`", "http://shown/?a=1&b=2"]
        {
            assert!(text.contains(shown), "{shown} is missing in {file}: {text}");
        }
        assert!(whole.contains("```sh\nls [1](2) $x | <b>\n```\n"), "{whole}");
    }
}
