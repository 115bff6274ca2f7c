//! `legwork validate`: which files it checks, what it fixes, and what it prints.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;

use grep_matcher::{Captures, Matcher};
use grep_regex::RegexMatcher;
use serde_json::Value;

use crate::house::source::{read, root};
use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

const GOOD: &str = "model: replay/x\nparent: { prompt: x, tools: [] }\n";
const BAD: &str = "model: replay/x\nparent: { prompt: x, tools: [Read] } # keep\n";

/// The findings in `--format json`: file, line, column, code.
fn findings(ended: &ProgramOutput) -> Vec<(String, u64, u64, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let number = |value: &Value| value.as_u64().unwrap();
    let all = ended.json()["diagnostics"].as_array().unwrap().clone();
    all.iter().map(|it| (text(&it["file"]), number(&it["line"]), number(&it["column"]), text(&it["code"]))).collect()
}

fn codes(ended: &ProgramOutput) -> Vec<(String, String)> {
    findings(ended).into_iter().map(|(file, _, _, code)| (file, code)).collect()
}

fn pair(file: &str, code: &str) -> (String, String) {
    (file.to_owned(), code.to_owned())
}

/// A folder with something to fix in every kind of file.
fn broken_jobs() -> TestFolder {
    let folder = TestFolder::new();
    folder
        .write("jobs/good.yaml", GOOD)
        .write("jobs/a b.yaml", BAD.trim_end())
        .write(
            "jobs/crlf.yml",
            "\u{feff}# ü\r\nmodel: \"antropic/claude-haiku-4-5\"\r\nparnet:\r\n  prompt: { file: prompts/p.md }\r\n  tools: ['Read']\r\n\
             limits: { cost_usd: 1 }\r\ninputs: { topic: { type: string } }",
        )
        .write(
            "jobs/crlf.script.yaml",
            "parent: [{ txt: hi }]   # said\n",
        )
        .write(
            "jobs/deep/\"öx\"\n.yaml",
            "model: replay/x\ninputs: { topic: { type: string } }\nparent: { prompt: '{{ topic|uper }}', tools: [nonsense] }\n",
        )
        .write("jobs/prompts/p.md", "# {{ topic }}\r\n\r\n::error::x\u{1b}[2J\r\n{{ inputs.topik | trim }}");
    folder
}

/// The files of [`broken`] after the fixes.
fn assert_fixed(folder: &TestFolder) {
    assert_eq!(folder.read("jobs/good.yaml"), GOOD);
    assert_eq!(folder.read("jobs/a b.yaml"), BAD.trim_end().replace("Read", "read_file"));
    let crlf = folder.read("jobs/crlf.yml");
    assert!(crlf.starts_with("\u{feff}# ü\r\nmodel: \"anthropic/claude-haiku-4-5\"\r\nparent:\r\n"), "{crlf:?}");
    assert!(
        crlf.ends_with("tools: ['read_file']\r\nlimits: { cost_usd: 1 }\r\ninputs: { topic: { type: string } }"),
        "{crlf:?}"
    );
    assert_eq!(folder.read("jobs/crlf.script.yaml"), "parent: [{ text: hi }]   # said\n");
    assert!(folder.read("jobs/deep/\"öx\"\n.yaml").contains("'{{ inputs.topic|upper }}', tools: [nonsense] }\n"));
    let prompt = folder.read("jobs/prompts/p.md");
    assert_eq!(prompt, "# {{ inputs.topic }}\r\n\r\n::error::x\u{1b}[2J\r\n{{ inputs.topic | trim }}");
}

#[test]
fn fix_changes_only_the_mistakes_in_every_kind_of_file() {
    let folder = broken_jobs();
    std::fs::set_permissions(folder.at("jobs/crlf.yml"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let ended = folder.legwork(&["validate", "--fix", "--format", "json"]).run();
    ended
        .assert_code(3)
        .assert_stderr_contains("jobs/a b.yaml: 1 fixed\n")
        .assert_stderr_contains("jobs/crlf.yml: 3 fixed\n");
    ended
        .assert_stderr_contains("jobs/crlf.script.yaml: 1 fixed\n")
        .assert_stderr_contains("jobs/prompts/p.md: 2 fixed\n");
    let left = codes(&ended);
    let remaining = [pair("jobs/prompts/p.md", "hidden-characters"), pair("jobs/deep/\"öx\"\n.yaml", "unknown-tool")];
    assert_eq!(left, remaining, "only what remains is printed");
    assert_fixed(&folder);
    let mode = std::fs::metadata(folder.at("jobs/crlf.yml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    let before = folder.list();
    let again = folder.legwork(&["validate", "--fix", "--format", "json"]).run();
    again.assert_code(3).assert_stderr("");
    assert_fixed(&folder);
    assert_eq!(folder.list(), before, "nothing is left behind");
}

#[test]
fn diff_prints_only_the_diff_and_changes_nothing() {
    let folder = broken_jobs();
    let all =
        ["jobs/a b.yaml", "jobs/crlf.yml", "jobs/crlf.script.yaml", "jobs/deep/\"öx\"\n.yaml", "jobs/prompts/p.md"];
    let before = all.map(|name| folder.read(name));
    let ended = folder.legwork(&["validate", "--diff"]).run();
    ended.assert_code(3).assert_stderr_contains("error[unknown-tool]").assert_stderr_contains("jobs/prompts/p.md:4:");
    let starts = ["--- ", "+++ ", "@@ ", " ", "-", "+", "\\ "];
    let strange = ended.stdout.lines().find(|line| !starts.iter().any(|start| line.starts_with(start)));
    assert_eq!(strange, None);
    assert_eq!(ended.stdout.matches("--- a/").count() + ended.stdout.matches("--- \"a/").count(), 5);
    assert_eq!(all.map(|name| folder.read(name)), before);
    let coloured = folder.legwork(&["validate", "--diff", "jobs/a b.yaml"]).env("CLICOLOR_FORCE", "1").run();
    coloured.assert_stdout_contains("\u{1b}[31m-parent").assert_stdout_contains("\u{1b}[32m+parent");
    folder
        .legwork(&["validate", "--diff", "jobs/good.yaml"])
        .run()
        .assert_code(0)
        .assert_stdout("")
        .assert_stderr_contains("no findings");
    folder.legwork(&["validate", "--diff", "--fix"]).run().assert_code(2);
}

/// Pipes the diff of all jobs below the current folder into a program.
fn pipe_diff(folder: &TestFolder, below: &str, arguments: &str, into: &str) -> ProgramOutput {
    let line = format!("{} validate --diff {arguments} 2> /dev/null | {into}", env!("CARGO_BIN_EXE_legwork"));
    folder.program("sh", &["-c", &line]).in_folder(below).run()
}

#[test]
fn a_diff_applies_with_git_and_patch() {
    for (in_repository, below, arguments, into) in [
        (true, "", "", "git apply"),
        (true, "", "./jobs", "git apply --index"),
        (true, "jobs", ".", "git apply"),
        (false, "", "$PWD/jobs", "git apply"),
        (false, "", "jobs", "patch --silent -p1"),
    ] {
        let folder = broken_jobs();
        if in_repository {
            folder.commit_all();
        }
        let ended = pipe_diff(&folder, below, arguments, into);
        ended.assert_code(0);
        assert_fixed(&folder);
    }
}

#[test]
fn an_unwritable_file_stays_unchanged_and_others_are_fixed() {
    let folder = TestFolder::new();
    folder.write("jobs/a.yaml", BAD).write("jobs/b.yaml", BAD).write("shared/c.yaml", BAD);
    std::fs::set_permissions(folder.at("jobs/a.yaml"), std::fs::Permissions::from_mode(0o444)).unwrap();
    symlink("../shared/c.yaml", folder.at("jobs/c.yaml")).unwrap();
    symlink("../shared/c.yaml", folder.at("jobs/d.yaml")).unwrap();
    let diff = folder.legwork(&["validate", "--diff", "jobs/c.yaml", "jobs/d.yaml"]).run();
    assert_eq!(diff.stdout.matches("+++ b/shared/c.yaml\n").count(), 1, "{}", diff.full_output());
    let ended = folder.legwork(&["validate", "--fix"]).run();
    ended
        .assert_code(5)
        .assert_stderr_contains("can't fix jobs/a.yaml")
        .assert_stderr_contains("read-only")
        .assert_stdout_contains("jobs/a.yaml:2:30");
    ended.assert_stderr_contains("jobs/b.yaml: 1 fixed").assert_stderr_contains("jobs/c.yaml: 1 fixed");
    assert_eq!(folder.read("jobs/a.yaml"), BAD);
    assert_eq!(folder.read("jobs/b.yaml"), BAD.replace("Read", "read_file"));
    assert_eq!(folder.read("shared/c.yaml"), BAD.replace("Read", "read_file"));
    assert!(folder.at("jobs/c.yaml").is_symlink());
}

#[test]
fn unsafe_fixes_are_not_applied() {
    let folder = TestFolder::new();
    let text = "model: replay/x\nparent: { prompt: x, tools: [read_file, Read, Grep] }\n";
    folder.write("job.yaml", text);
    let ended = folder.legwork(&["validate", "--fix", "job.yaml"]).run();
    ended.assert_code(3).assert_stderr_contains("job.yaml: 1 fixed\n").assert_stdout_contains("unknown-tool");
    assert_eq!(folder.read("job.yaml"), text.replace("Grep", "grep"));
}

#[test]
fn a_fix_never_moves_a_value_to_another_key() {
    let folder = TestFolder::new();
    let job = |top: &str, parent: &str, limits: &str| {
        format!("model: replay/x\n{top}parent:\n  prompt: x\n  tools: []\n{parent}limits:\n  wall_clock: 1m\n{limits}")
    };
    for text in [
        job("", "  max_turns: 5\n  max-turns: 6\n", ""),
        job("Model: replay/y\n", "", ""),
        job("", "  max_turnz: 5\n  max_turnss: 6\n", ""),
        job("", "  max_turnz: 5\n  max_steps: 6\n", ""),
        job("", "  max_tools: 5\n", ""),
        job("", "", "  max_tokens: 8000\n"),
        job("", "", "  tools: 5\n"),
        job("", "  instructions: Be brief.\n", ""),
        job("network: opn\nNetwork: none\n", "", ""),
        job("subagents: { a: { tools: [] }, b: { tools: [] } }\n", "", "")
            .replace("tools: []\nlimits", "tools: [a]\nlimits"),
        job("inputs: { file1: { type: string } }\n", "", "").replace("prompt: x", "prompt: '{{ inputs.file2 }}'"),
    ] {
        folder.write("job.yaml", &text);
        folder.legwork(&["validate", "--fix", "job.yaml"]).run().assert_code(3);
        let now = folder.read("job.yaml");
        // The typo in the value can be fixed; no key changes.
        assert_eq!(now.replace("network: open", "network: opn"), text);
    }
    folder.write("job.yaml", job("Description: x\n", "  max-turns: 6\n", "  tool-calls: 7\n"));
    folder.legwork(&["validate", "--fix", "job.yaml"]).run().assert_code(0).assert_stderr_contains("job.yaml: 3 fixed");
    assert_eq!(folder.read("job.yaml"), job("description: x\n", "  max_turns: 6\n", "  tool_calls: 7\n"));
    for (model, now) in [
        ("“anthropic/claude-sonnet-5-5”", "anthropic/claude-sonnet-5-5"),
        ("\"“anthropic/claude-sonnet-5-5”\"", "\"anthropic/claude-sonnet-5-5\""),
        ("anthropic/claude-sonnet-5-5xyz", "anthropic/claude-sonnet-5-5xyz"),
        ("gemini/gemini-2.5-prooo", "gemini/gemini-2.5-prooo"),
        ("anthropic/Claude-Sonnet-5-5", "anthropic/claude-sonnet-5-5"),
    ] {
        let text =
            |model: &str| format!("model: {model}\nlimits: {{ tokens: 9 }}\nparent: {{ prompt: x, tools: [] }}\n");
        folder.write("job.yaml", text(model));
        let before = folder.legwork(&["validate", "job.yaml"]).run();
        assert_ne!(before.stdout, "", "{model}");
        folder.legwork(&["validate", "--fix", "job.yaml"]).run();
        assert_eq!(folder.read("job.yaml"), text(now));
    }
}

#[test]
fn shared_prompts_are_fixed_for_all_jobs_and_reported_once() {
    let folder = TestFolder::new();
    let job = |inputs: &str, path: &str| {
        format!("model: replay/x\ninputs: {inputs}\nparent: {{ prompt: {{ file: {path} }}, tools: [] }}\n")
    };
    folder.write("jobs/a.yaml", job("{ topic: { type: string } }", "p.md"));
    folder.write("jobs/b.yaml", job("{ topic: { type: string } }", "./p.md"));
    folder.write("jobs/p.md", "{{ topic }}\n{{ gone }}\n");
    let ended = folder.legwork(&["validate", "--format", "json"]).run();
    let place = |line, column| ("jobs/p.md".to_owned(), line, column, "undefined-variable".to_owned());
    assert_eq!(findings(&ended), [place(1, 4), place(2, 4)], "once for both jobs");
    // The other job defines neither `topic` nor `inputs.topic`.
    folder.write("jobs/c.yaml", job("{ topik: { type: string } }", "p.md")).write("jobs/p.md", "{{ inputs.topik }}\n");
    folder.legwork(&["validate", "--fix"]).run().assert_code(3).assert_stderr_contains("jobs/p.md: 1 fix skipped");
    assert_eq!(folder.read("jobs/p.md"), "{{ inputs.topik }}\n");
    std::fs::remove_file(folder.at("jobs/c.yaml")).unwrap();
    folder.legwork(&["validate", "--fix"]).run().assert_code(0).assert_stderr_contains("jobs/p.md: 1 fixed");
    assert_eq!(folder.read("jobs/p.md"), "{{ inputs.topic }}\n");
}

#[test]
fn a_shared_prompt_is_not_fixed_if_it_breaks_another_job() {
    let folder = TestFolder::new();
    let job = |input: &str, path: &str| {
        format!(
            "model: replay/x\ninputs: {{ {input}: {{ type: string }} }}\nparent: {{ prompt: {{ file: {path} }}, tools: [] }}\n"
        )
    };
    for other in ["jobs/b.yaml", "jobs/prompts/b.yml", "b.yaml"] {
        folder.write("jobs/a.yaml", job("topic", "prompts/p.md")).write("jobs/prompts/p.md", "{{ inputs.topik }}\n");
        let path = if other.starts_with("jobs/p") { "p.md" } else { "prompts/p.md" };
        folder.write(other, job("topik", &if other == "b.yaml" { format!("jobs/{path}") } else { path.to_owned() }));
        if other == "b.yaml" {
            folder.commit_all();
        }
        let ended = folder.legwork(&["validate", "--fix", "jobs/a.yaml"]).run();
        ended.assert_code(3).assert_stderr_contains("jobs/prompts/p.md: 1 fix skipped");
        assert_eq!(folder.read("jobs/prompts/p.md"), "{{ inputs.topik }}\n", "{other}");
        std::fs::remove_file(folder.at(other)).unwrap();
    }
    folder
        .legwork(&["validate", "--fix", "jobs/a.yaml"])
        .run()
        .assert_code(0)
        .assert_stderr_contains("jobs/prompts/p.md: 1 fixed");
    assert_eq!(folder.read("jobs/prompts/p.md"), "{{ inputs.topic }}\n");
}

#[test]
fn hidden_findings_are_counted() {
    let folder = TestFolder::new();
    let keys: String = (0..150).map(|number| format!("unknown_{number}: 1\n")).collect();
    let tools: String = (0..150).map(|number| format!("strange_{number}, ")).collect();
    let job = format!("model: replay/x\nparent: {{ prompt: x, tools: [{tools}] }}\n{keys}");
    folder.write("jobs/a.yaml", &job).write("jobs/b.yaml", &job);
    let ended = folder.legwork(&["validate", "jobs/a.yaml"]).run();
    ended
        .assert_code(3)
        .assert_stdout_contains("200 more findings are not shown")
        .assert_stdout_contains("\n300 errors\n");
    folder.legwork(&["validate"]).run().assert_code(3).assert_stdout_contains("\n600 errors\n");
    let github = folder.legwork(&["validate", "--format", "github"]).run();
    github.assert_code(3).assert_stdout_contains("::error::591 more errors in the log of this step\n");
    assert_eq!(github.stdout.lines().filter(|line| line.starts_with("::error file=")).count(), 9);
    // These are all findings except the nine annotations. The last one of each file counts the rest.
    assert_eq!(github.stdout.lines().filter(|line| line.starts_with("jobs/")).count(), 2 * 101 - 9);
    github.assert_stdout_contains("jobs/b.yaml:2:").assert_stdout_contains("too-many-findings]: 200 more findings");
    let many_warnings = format!(
        "model: replay/x\nparent: {{ prompt: x, tools: [task] }}\nsubagents:\n{}",
        (0..120).map(|number| format!("  a{number}: {{ tools: [] }}\n")).collect::<String>()
    );
    folder.write("jobs/a.yaml", many_warnings);
    folder.legwork(&["validate", "jobs/a.yaml"]).run().assert_code(3).assert_stdout_contains("\n120 warnings\n");
}

#[test]
fn a_limit_can_be_disabled() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: replay/x\nparent: { prompt: x, tools: [] }\nlimits: { tokens: none, cost_usd: none, tool_calls: none, wall_clock: none, subagents: none }\n");
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0).assert_stdout("");
    for limit in ["tokens: nothing", "cost_usd: much", "cost_usd: 0", "tokens: 1.5", "tokens: -1"] {
        folder
            .write("job.yaml", format!("model: replay/x\nparent: {{ prompt: x, tools: [] }}\nlimits: {{ {limit} }}\n"));
        folder.legwork(&["validate", "job.yaml"]).run().assert_code(3).assert_stdout_contains("1 error\n");
    }
}

#[test]
fn standard_input_is_validated_like_a_file() {
    let folder = TestFolder::new();
    folder.write("jobs/p.md", "{{ gone }}").write("here.md", "fine");
    let check = |arguments: &[&str], text: &str| {
        let all = [&["validate", "--format", "json"], arguments].concat();
        folder.legwork(&all).stdin(text).run()
    };
    let prompt = |path: &str| format!("model: replay/x\nparent: {{ prompt: {{ file: {path} }}, tools: [] }}\n");
    assert_eq!(codes(&check(&["-"], BAD)), [pair("<stdin>", "unknown-tool")]);
    check(&["-"], &prompt("here.md")).assert_code(0);
    let named = check(&["-", "--stdin-name", "jobs/new.yaml"], &prompt("p.md"));
    assert_eq!(codes(&named), [pair("jobs/p.md", "undefined-variable")]);
    let yet_to_come = check(&["-", "--stdin-name", "gone/new.yaml"], &prompt("p.md"));
    assert_eq!(codes(&yet_to_come), [pair("gone/new.yaml", "unreadable-file")]);
    check(&["-", "--stdin-name", "gone/new.yaml"], GOOD).assert_code(0);
    let script = check(&["-", "--stdin-name", "jobs/new.script.yaml"], "parent: [{ txt: x }]\n");
    assert_eq!(codes(&script), [pair("jobs/new.script.yaml", "unknown-key")]);
    assert_eq!(codes(&check(&["-"], &"x".repeat(5 << 20))), [pair("<stdin>", "too-large")]);
    check(&["-"], "").assert_code(3);
    check(&["-", "--fix"], BAD).assert_code(2).assert_stderr_contains("--diff");
    check(&["jobs", "--stdin-name", "x.yaml"], "").assert_code(2).assert_stderr_contains("--stdin-name");
    let diff = check(&["-", "-", "--diff", "--stdin-name", "jobs/./new.yaml"], BAD);
    diff.assert_code(3)
        .assert_stdout_contains("--- a/jobs/new.yaml\n")
        .assert_stdout_contains("+parent: { prompt: x, tools: [read_file] } # keep\n");
    assert_eq!(diff.stdout.matches("---").count(), 1);
}

#[test]
fn files_with_job_names_are_found_by_name() {
    let folder = TestFolder::new();
    folder.write("jobs/b.yml", BAD).write("jobs/a.yaml", "- list\n").write("jobs/z/y.yaml", BAD);
    folder.write("jobs/a.script.yml", "[]\n").write("jobs/notes.txt", "[").write("jobs/.hidden.yaml", "[");
    folder.write("jobs/tests/t.yaml", "[").write("jobs/z/tests/t.yaml", "[").write("jobs/drafts/d.yaml", "[");
    folder.write("jobs/tests.yaml", BAD).write("jobs/folder.yaml/inner.yaml", "[");
    folder
        .write("jobs/.gitignore", "drafts/\n")
        .write("jobs/.ignore", "ignored.yaml\n")
        .write("jobs/ignored.yaml", "[");
    // Files that git ignores only on this machine are checked.
    std::fs::create_dir_all(folder.home().join(".config/git")).unwrap();
    std::fs::write(folder.home().join(".config/git/ignore"), "*.yml\n").unwrap();
    symlink("nowhere", folder.at("jobs/link.yaml")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.at("jobs/pipe.yaml")).status().unwrap().success());
    let expected = [
        ("jobs/a.script.yml", "wrong-type"),
        ("jobs/a.yaml", "wrong-type"),
        ("jobs/b.yml", "unknown-tool"),
        ("jobs/folder.yaml", "unreadable"),
        ("jobs/link.yaml", "unreadable"),
        ("jobs/pipe.yaml", "unreadable"),
        ("jobs/tests.yaml", "unknown-tool"),
        ("jobs/z/y.yaml", "unknown-tool"),
    ];
    let expected = expected.map(|(file, code)| pair(file, code));
    let check = |paths: &[&str]| folder.legwork(&[&["validate", "--format", "json"], paths].concat()).run();
    assert_eq!(codes(&check(&[])), expected);
    assert_eq!(codes(&check(&["jobs", "./jobs/b.yml", "jobs/z/../z", "jobs/"])).len(), expected.len(), "each once");
    assert_eq!(codes(&check(&["jobs/z", "jobs"])).len(), expected.len());
    assert_eq!(
        codes(&check(&["jobs/z", "jobs"]))[0],
        pair("jobs/z/y.yaml", "unknown-tool"),
        "in the order of the paths"
    );
    let text = folder.legwork(&["validate"]).run();
    text.assert_stdout_contains("dangling symbolic link")
        .assert_stdout_contains("it is a folder")
        .assert_stdout_contains("regular file");
    text.assert_stdout_contains("8 errors\n");
}

#[test]
fn a_path_that_is_not_a_file_is_an_error_and_others_are_checked() {
    let folder = TestFolder::new();
    folder.write("good.yaml", GOOD).write("none/notes.txt", "x");
    std::fs::create_dir(folder.at("folder.yaml")).unwrap();
    symlink("loop.yaml", folder.at("loop.yaml")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.at("pipe")).status().unwrap().success());
    let paths = ["gone.yaml", "gone", "none", "folder.yaml", "loop.yaml", "pipe", "/dev/zero", "/dev/tty", "good.yaml"];
    let ended = folder
        .legwork(&[&["validate", "--format", "json"][..], &paths].concat())
        .timeout(Duration::from_secs(180))
        .run();
    let expected: Vec<_> = paths[..8].iter().map(|path| pair(path, "unreadable")).collect();
    assert_eq!(codes(ended.assert_code(3)), expected);
}

#[test]
fn denied_warnings_fail() {
    let folder = TestFolder::new();
    let text = "model: replay/x\nparent: { prompt: x, tools: [] }\nsubagents: { a: { description: x, tools: [] } }\n";
    folder.write("job.yaml", text).write("bad.yaml", BAD).write("good.yaml", GOOD);
    folder.legwork(&["validate", "job.yaml"]).run().assert_code(0).assert_stdout_contains("warning[unused-subagents]");
    let denied = folder.legwork(&["validate", "job.yaml", "--deny", "warnings"]).run();
    denied.assert_code(3).assert_stderr_contains("warnings are denied\n").assert_stdout_contains("1 warning\n");
    folder.legwork(&["validate", "bad.yaml", "--deny", "warnings"]).run().assert_code(3);
    folder.legwork(&["validate", "--deny", "everything"]).run().assert_code(2).assert_stderr_contains("warnings");
}

#[test]
fn a_script_is_checked_against_its_job() {
    let folder = TestFolder::new();
    let job = "model: replay/x.script.yaml\nparent: { prompt: x, tools: [task] }\nsubagents: { explorer: { description: x, tools: [] } }\n";
    let script = "parent: [{ text: x }]\nsubagents:\n  \"explorre-1\": [{ text: x }]\n";
    folder.write("x.yml", job).write("x.script.yaml", script);
    let ended = folder.legwork(&["validate", "x.script.yaml", "--format", "json"]).run();
    assert_eq!(findings(ended.assert_code(3)), [("x.script.yaml".to_owned(), 3, 3, "unknown-subagent".to_owned())]);
    folder.legwork(&["validate", ".", "--fix"]).run().assert_code(0);
    assert_eq!(folder.read("x.script.yaml"), script.replace("explorre", "explorer"));
    // Without a job, or with a job that can't be parsed, only the format of the script is checked.
    folder.write("x.script.yaml", script).write("x.yml", job.replace("tools: [task]", "tools: 7"));
    folder.legwork(&["validate", "x.script.yaml"]).run().assert_code(0);
    std::fs::remove_file(folder.at("x.yml")).unwrap();
    folder.legwork(&["validate", "x.script.yaml"]).run().assert_code(0);
    folder.write("x.script.yaml", script.replace("explorre-1", "explorre"));
    folder.legwork(&["validate", "x.script.yaml"]).run().assert_code(3).assert_stdout_contains("unknown-subagent");
}

#[test]
fn many_files_with_many_findings_are_printed() {
    let folder = TestFolder::new();
    let many = format!("model: replay/x\nparent: {{ prompt: x, tools: [{}] }}\n", vec!["nonsense"; 150].join(", "));
    for number in 0..100 {
        folder.write(&format!("jobs/{number:03}.yaml"), if number % 10 == 0 { &many } else { GOOD });
    }
    let ended = folder.legwork(&["validate"]).run();
    ended
        .assert_code(3)
        .assert_stdout_contains("50 more findings are not shown")
        .assert_stdout_contains("1500 errors\n");
    // The reader closes the pipe after the first line.
    let mut child = Command::new(env!("CARGO_BIN_EXE_legwork"))
        .args(["validate", "--diff"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn the_problem_matcher_parses_a_line() {
    let matcher: Value = serde_json::from_str(&read(".github/legwork-matcher.json")).unwrap();
    let [matcher] = matcher["problemMatcher"].as_array().unwrap().as_slice() else { panic!("one matcher") };
    assert_eq!(matcher["owner"], "legwork");
    let [pattern] = matcher["pattern"].as_array().unwrap().as_slice() else { panic!("one line") };
    let expression = RegexMatcher::new(pattern["regexp"].as_str().unwrap()).unwrap();
    let parts = |line: &str| {
        let mut captures = expression.new_captures().unwrap();
        let is_match = expression.captures(line.as_bytes(), &mut captures).unwrap();
        let part = |name: &str| {
            let group = pattern[name].as_u64().unwrap() as usize;
            line[captures.get(group).unwrap()].to_owned()
        };
        is_match.then(|| ["file", "line", "column", "severity", "code", "message"].map(part))
    };
    let line = "jobs/a b:1.yaml:12:7: error[unknown-tool]: there is no tool `a:1:2: error[x]: y`";
    let expected = ["jobs/a b:1.yaml", "12", "7", "error", "unknown-tool", "there is no tool `a:1:2: error[x]: y`"];
    assert_eq!(parts(line).unwrap(), expected);
    assert_eq!(parts("a.yml:1:1: warning[no-cost-limit]: x").unwrap()[3], "warning");
    assert!(parts("2 errors, 1 warning").is_none());
    let folder = TestFolder::new();
    folder.write("jobs/a b.yaml", BAD);
    let ended = folder.legwork(&["validate", "--format", "concise"]).run();
    let found: Vec<[String; 6]> = ended.assert_code(3).stdout.lines().filter_map(parts).collect();
    let error = found.iter().find(|parts| parts[3] == "error").unwrap();
    assert_eq!(error[..5], ["jobs/a b.yaml", "2", "30", "error", "unknown-tool"]);
    assert_eq!(found.len(), ended.stdout.lines().count(), "every line is a finding\n{}", ended.full_output());
}

#[test]
fn the_pre_commit_hook_matches_jobs_and_prompts() {
    let hooks: serde_yaml::Value = serde_yaml::from_str(&read(".pre-commit-hooks.yaml")).unwrap();
    let hook = &hooks.as_sequence().unwrap()[0];
    assert_eq!(hook["id"].as_str().unwrap(), "legwork-validate");
    let words: Vec<&str> = hook["entry"].as_str().unwrap().split(' ').collect();
    let folder = TestFolder::new();
    folder.write("jobs/a.yaml", GOOD);
    assert_eq!(words[0], "legwork");
    folder.legwork(&words[1..]).run().assert_code(0);
    let matches = |key: &str, path: &str| {
        RegexMatcher::new(hook[key].as_str().unwrap()).unwrap().is_match(path.as_bytes()).unwrap()
    };
    for (path, runs) in [
        ("jobs/a.yaml", true),
        ("jobs/prompts/p.md", true),
        ("jobs/tests/t.yaml", false),
        ("jobs/x/tests/t.yaml", false),
        ("src/jobs/a.yaml", false),
    ] {
        assert_eq!(matches("files", path) && !matches("exclude", path), runs, "{path}");
    }
    assert!(root().join("Cargo.toml").exists(), "language: rust builds the repository's root");
}
