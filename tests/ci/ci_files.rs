//! Files for CI systems: JUnit XML, variables for GitLab, and the outputs and the summary of a GitHub step.

use std::fs;

use serde_json::{Value, json};

use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, Request, Server};
use crate::support::test_folder::TestFolder;

/// Everything that could end a value or an element, begin a command, or be expanded.
const HOSTILE_TEXT: &str = "</failure><x/>]]>\n::set-output name=a::b\nLEGWORK_OUTCOME=completed\noutcome=completed\n##[add-mask]c\
    \u{1b}[2J\u{202e}\"'&amp;$CI_JOB_TOKEN ${HOME} %PATH%\u{2028}x<<EOF\r\nEOF\n";

/// A job with a result that a script answers.
fn scripted(rest: &str, result: &Value) -> TestFolder {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        format!(
            "model: replay/r.yaml\nparent: {{ prompt: Go., tools: [bash] }}\nresult: {{ schema: {{ type: object }} }}\n{rest}"
        ),
    );
    let submit = json!({ "calls": [{ "tool": "submit_result", "input": result }] });
    folder.write("r.yaml", json!({ "parent": [submit, { "text": HOSTILE_TEXT }] }).to_string());
    folder
}

fn in_actions(program: Program, folder: &TestFolder) -> Program {
    program
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_OUTPUT", folder.at("output"))
        .env("GITHUB_STEP_SUMMARY", folder.at("summary"))
}

/// The lines of a file of variables, each of which has to be one.
fn variables(text: &str) -> Vec<(String, String)> {
    let is_name = |name: &str| name.chars().all(|char| char.is_ascii_alphanumeric() || "_-".contains(char));
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line} in {text}"));
        assert!(is_name(name) && !value.contains(char::is_control), "{line} in {text}");
        (name.to_owned(), value.to_owned())
    };
    text.split_terminator('\n').map(pair).collect()
}

fn value<'a>(variables: &'a [(String, String)], name: &str) -> &'a str {
    let mut found = variables.iter().filter(|(known, _)| known == name);
    let value = &found.next().unwrap_or_else(|| panic!("{name} in {variables:?}")).1;
    assert_eq!(found.next(), None, "{name} is there once");
    value
}

/// Asserts that XML has only elements that are ours, each closed.
fn assert_xml(xml: &str) {
    let mut open = Vec::new();
    let body = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
    for piece in body.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap();
        assert!(!text.contains('>') && tag.matches('"').count().is_multiple_of(2), "{piece}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(["testsuites", "testsuite", "testcase", "failure", "error", "system-out"].contains(&name), "{piece}");
        match () {
            () if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{xml}"),
            () if tag.ends_with('/') => {}
            () => open.push(name),
        }
    }
    assert!(open.is_empty(), "{xml}");
    let steering =
        xml.chars().find(|char| char.is_control() && *char != '\n' || ('\u{202a}'..='\u{202e}').contains(char));
    assert_eq!(steering, None, "{xml}");
}

fn run(folder: &TestFolder, arguments: &[&str]) -> ProgramOutput {
    in_actions(folder.legwork(&["run", "job.yaml"]).args(arguments), folder).run()
}

#[test]
fn a_run_leaves_files_for_ci_systems() {
    let data = json!({ "text": HOSTILE_TEXT, "count": 3 });
    let checks = "checks: [{ name: good, run: 'true' }, { name: '</x> \"bad\"', run: 'exit 3' }]\n";
    let folder = scripted(checks, &data);
    folder.write("output", "before=1\n");
    let ended = run(&folder, &["--junit", "out/junit.xml", "--dotenv", "run.env"]);
    ended.assert_code(1);
    let record = format!("runs/job/{}", ended.run_folder().id());

    let xml = folder.read("out/junit.xml");
    assert_xml(&xml);
    assert!(xml.contains("<testsuite name=\"job\" tests=\"3\" failures=\"1\" errors=\"0\" "), "{xml}");
    assert!(xml.contains("<testcase name=\"run\" classname=\"job\" "), "{xml}");
    assert!(xml.contains("<testcase name=\"check good\" classname=\"job\" "), "{xml}");
    assert!(xml.contains("<failure message=\"failed, exit code 3\" type=\"checks_failed\">"), "{xml}");

    let dotenv = folder.read("run.env");
    assert!(!dotenv.contains(['$', '%']) && dotenv.len() < 5 << 10, "{dotenv}");
    let dotenv = variables(&dotenv);
    assert_eq!(value(&dotenv, "LEGWORK_OUTCOME"), "checks_failed");
    assert_eq!(value(&dotenv, "LEGWORK_EXIT_CODE"), "1");
    assert_eq!(value(&dotenv, "LEGWORK_RECORD"), record);
    assert_eq!(serde_json::from_str::<Value>(value(&dotenv, "LEGWORK_RESULT")).unwrap(), data);

    let outputs = variables(&folder.read("output"));
    assert_eq!(value(&outputs, "before"), "1");
    for (name, expected) in [
        ("outcome", "checks_failed"),
        ("exit-code", "1"),
        ("cost-usd", "0"),
        ("run-id", record.rsplit('/').next().unwrap()),
        ("record", &record),
        ("report", &format!("{record}/report.html")),
        ("transcript", &format!("{record}/transcript.md")),
    ] {
        assert_eq!(value(&outputs, name), expected);
    }
    assert_eq!(serde_json::from_str::<Value>(value(&outputs, "result")).unwrap(), data);

    let summary = folder.read("summary");
    let at = |part: &str| summary.find(part).unwrap_or_else(|| panic!("{part} in {summary}"));
    assert!(at("### ❌ job: checks\\_failed") < at("| turns |"));
    assert!(at("| turns |") < at("| good | ✅ passed |") && at("| good |") < at("\nResult:\n"));
    assert!(at("\nResult:\n") < at("\nAnswer:\n"));

    // A run that has ended leaves the same again.
    fs::remove_file(folder.at("output")).unwrap();
    let again = folder.legwork(&["resume", "latest", "--junit", "again.xml", "--dotenv", "again.env"]).run();
    again.assert_code(1);
    assert_eq!((folder.read("again.xml"), folder.read("again.env")), (xml, folder.read("run.env")));
}

#[test]
fn the_changed_files_are_in_the_summary() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/r.yaml\nparent: { prompt: Go., tools: [write_file] }\n");
    let name = "a|b`<img src=x>.txt";
    let call = json!({ "tool": "write_file", "input": { "path": name, "content": "one\ntwo\n" } });
    folder.write("r.yaml", json!({ "parent": [{ "calls": [call] }, { "text": "Done." }] }).to_string());
    run(&folder, &[]).assert_code(0);
    let summary = folder.read("summary");
    assert!(summary.contains("\n| a\\|b\\`\\<img src\\=x\\>\\.txt | added | +2 \u{2212}0 |\n"), "{summary}");
    assert!(summary.find("| file |").unwrap() < summary.find("\nAnswer:\n").unwrap(), "{summary}");
}

#[test]
fn a_run_that_failed_is_an_error_or_a_failure() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\nparent: { prompt: Go., tools: [] }\n");
    let server = Server::start(|_: &Request| Answer::status(400).error("invalid_request_error", HOSTILE_TEXT));
    let ended = in_actions(folder.legwork(&["run", "job.yaml", "--junit", "j.xml"]).anthropic(&server), &folder).run();
    ended.assert_code(5);
    let xml = folder.read("j.xml");
    assert_xml(&xml);
    assert!(
        xml.contains("tests=\"1\" failures=\"0\" errors=\"1\"") && xml.contains("type=\"provider_rejected\""),
        "{xml}"
    );
    assert_eq!(value(&variables(&folder.read("output")), "outcome"), "provider_rejected");
    let record = format!("runs/job/{}", ended.run_folder().id());
    assert!(folder.read("summary").contains(&format!("`resume: legwork resume {record}`\n")));

    let folder = scripted("", &json!([]));
    folder.write("r.yaml", json!({ "parent": [{ "text": HOSTILE_TEXT }, { "text": HOSTILE_TEXT }] }).to_string());
    run(&folder, &["--junit", "j.xml"]).assert_code(1);
    let xml = folder.read("j.xml");
    assert_xml(&xml);
    assert!(
        xml.contains("tests=\"1\" failures=\"1\" errors=\"0\"") && xml.contains("type=\"result_invalid\""),
        "{xml}"
    );
}

#[test]
fn a_file_that_cannot_be_written_does_not_lose_the_run() {
    let folder = scripted("", &json!({ "a": 1 }));
    folder.write("folder/x", "").write("file", "");
    for (arguments, why) in [
        (&["--junit", "folder"][..], "--junit folder: not a regular file"),
        (&["--dotenv", "file/x.env"], "Not a directory"),
        (&["--dotenv", "job.yaml"], "it is the job file"),
        (&["--junit", "a", "--dotenv", "a"], "--dotenv a: --junit names the same file"),
    ] {
        run(&folder, arguments).assert_code(2).assert_stderr_contains(why);
    }
    assert!(!folder.exists("runs") && folder.read("job.yaml").contains("model"), "nothing has run");
    // The run itself puts something in the way.
    let bash = json!({ "calls": [{ "tool": "bash", "input": { "command": "mkdir j.xml" } }] });
    let submit = json!({ "calls": [{ "tool": "submit_result", "input": { "a": 1 } }] });
    folder.write("r.yaml", json!({ "parent": [bash, submit, { "text": "Done." }] }).to_string());
    folder.write("j.xml", "old");
    let ended = run(&folder, &["--junit", "j.xml", "--dotenv", "run.env"]);
    ended.assert_code(5).assert_stdout("Done.\n").assert_stderr_contains("can't write j.xml");
    assert_eq!(ended.run_folder().result()["outcome"], "completed");
    assert_eq!(value(&variables(&folder.read("run.env")), "LEGWORK_OUTCOME"), "completed", "the other file is written");
    // An old file isn't mistaken for that of a run that didn't start.
    fs::remove_dir(folder.at("j.xml")).unwrap();
    folder.write("j.xml", "old").write("job.yaml", "model: [");
    run(&folder, &["--junit", "j.xml"]).assert_code(3);
    assert!(!folder.exists("j.xml"));
}

#[test]
fn devices_pipes_and_links_are_refused_and_stay() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\ninputs: { x: { type: string } }\nparent: { prompt: Go., tools: [] }\n",
    );
    folder.write("r.yaml", "parent: [{ text: Done. }]\n").write("rows.csv", "x\n1\n").write("target", "old");
    folder.program("mkfifo", &["pipe"]).run().assert_code(0);
    std::os::unix::fs::symlink("target", folder.at("link")).unwrap();
    let map: &[&str] = &["map", "job.yaml", "--rows", "rows.csv"];
    folder.legwork(map).run().assert_code(0);
    let run: &[&str] = &["run", "job.yaml", "--set", "x=1"];
    for command in
        [run, map, &["map", "job.yaml", "--rows", "rows.csv", "--name", "new"], &["gather", "runs/job/map-rows"]]
    {
        for (file, why) in
            [("pipe", "not a regular file"), ("link", "it is a link"), ("/dev/null", "not a regular file")]
        {
            let ended = folder.legwork(command).args(["--junit", file]).run();
            ended.assert_code(2).assert_stderr_contains(&format!("--junit {file}: {why}"));
        }
    }
    std::os::unix::fs::symlink("..", folder.at("above")).unwrap();
    let ended = folder.legwork(run).args(["--junit", "above/j.xml"]).run();
    ended.assert_code(2).assert_stderr_contains("`above` is a symbolic link to ").assert_stderr_contains("--junit");
    let is_pipe = std::os::unix::fs::FileTypeExt::is_fifo(&fs::metadata(folder.at("pipe")).unwrap().file_type());
    assert!(
        is_pipe && folder.at("link").is_symlink() && folder.read("target") == "old" && !folder.exists("runs/job/new")
    );
}

#[test]
fn links_that_an_agent_makes_are_not_followed() {
    let folder = TestFolder::new();
    let job = "inputs: { x: { type: string, default: a } }\nparent: { prompt: Go., tools: [bash] }\nresult: { schema: { type: object } }\n";
    folder.write("job.yaml", format!("model: replay/r.yaml\n{job}")).write("rows.csv", "x\n1\n");
    let command =
        "ln -s ../../home/bashrc out/j.xml; ln -s ../../home/bashrc out/data; mv out moved; ln -s ../home out";
    let calls =
        json!([{ "tool": "bash", "input": { "command": command } }, { "tool": "submit_result", "input": { "a": 1 } }]);
    folder.write("r.yaml", json!({ "parent": [{ "calls": calls }, { "text": "Done." }] }).to_string());
    folder.write("home/bashrc", "mine").write("work/.keep", "");
    let options = ["--workspace", "work", "--junit", "work/out/j.xml"];
    let written = |command: &[&str], files: &[&str]| {
        folder.legwork(command).args(options).run().assert_code(0);
        assert_eq!(
            (folder.read("home/bashrc").as_str(), fs::read_dir(folder.at("home")).unwrap().count()),
            ("mine", 1)
        );
        for file in files {
            let path = folder.at("work/moved").join(file);
            assert!(path.symlink_metadata().unwrap().is_file(), "{command:?}: {file}");
        }
        fs::remove_dir_all(folder.at("work/moved")).unwrap();
        fs::remove_file(folder.at("work/out")).unwrap();
    };
    written(&["run", "job.yaml", "--result", "work/out/data"], &["j.xml", "data"]);
    written(&["map", "job.yaml", "--rows", "rows.csv", "--isolate", "none"], &["j.xml"]);
}

#[test]
fn outputs_that_cannot_be_written_are_only_a_warning() {
    let folder = scripted("", &json!({ "a": 1 }));
    let start = || folder.legwork(&["run", "job.yaml"]);
    let ended = start().env("GITHUB_ACTIONS", "true").env("GITHUB_OUTPUT", folder.at("gone/output")).run();
    ended.assert_code(0).assert_stderr_contains("can't write the outputs of the step");
    start().env("GITHUB_OUTPUT", folder.at("output")).run().assert_code(0);
    assert!(!folder.exists("output"), "this isn't GitHub Actions");
    // A result that is too large isn't cut in the middle.
    let folder = scripted("", &json!({ "a": "x".repeat(300 << 10) }));
    let ended = run(&folder, &["--dotenv", "run.env"]);
    ended.assert_code(0);
    assert_eq!(value(&variables(&folder.read("output")), "result"), "");
}

#[test]
fn a_map_leaves_a_summary_and_outputs() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: anthropic/claude-haiku-4-5\ninputs: { item: { type: string } }\nparent: { prompt: 'Item {{ inputs.item }}', tools: \
         [] }\n",
    );
    folder.write("rows.csv", "item\ngood\nbad\nworse\n");
    let server = Server::start(|request: &Request| match request.prompt().contains("good") {
        true => Answer::text("Done."),
        false => Answer::status(400).error("invalid_request_error", HOSTILE_TEXT),
    });
    let map = || in_actions(folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "item"]), &folder);
    map().anthropic(&server).run().assert_code(5);
    let outputs = variables(&folder.read("output"));
    for (name, expected) in [
        ("exit-code", "5"),
        ("rows", "3"),
        ("completed", "1"),
        ("record", "runs/job/map-rows"),
        ("report", "runs/job/map-rows/report.html"),
        ("table", "runs/job/map-rows/results.csv"),
        ("results", "runs/job/map-rows/results.jsonl"),
    ] {
        assert_eq!(value(&outputs, name), expected);
    }
    let summary = folder.read("summary");
    assert!(summary.starts_with("### ❌ job map\\-rows: 1 of 3 rows completed\n"), "{summary}");
    let reason = summary.lines().find(|line| line.ends_with(" bad\\, worse |"));
    let reason = reason.unwrap_or_else(|| panic!("{summary}"));
    assert!(reason.starts_with("| 2 | provider\\_rejected\\: ") && !reason.contains('\u{1b}'), "{reason}");
    assert!(reason.contains("\\<x\\/\\>") && !reason.contains("##["), "{reason}");
    assert!(summary.contains("`resume: legwork map job.yaml --rows rows.csv --id item`"), "{summary}");
    assert!(!summary.contains("\n::") && !summary.contains("##["), "{summary}");
    // So does one whose rows have all ended before.
    folder.write("rows.csv", "item\ngood\n").write("output", "").write("summary", "");
    map().run().assert_code(0);
    let outputs = variables(&folder.read("output"));
    assert_eq!((value(&outputs, "exit-code"), value(&outputs, "completed")), ("0", "1"));
    assert!(folder.read("summary").starts_with("### ✅ job map\\-rows: 1 of 1 row completed\n"));
}
