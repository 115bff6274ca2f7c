//! `report.html` of real runs: what it shows, and that nothing in it comes alive.

mod browser;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// Text that wants to be more than text, wherever a model, a tool or a file can put it.
const HOSTILE: &str = "</pre></details></section><script>document.title='owned'</script><img src=https://evil.example/x.png \
    onerror=\"document.title='owned'\"> \" onmouseover=\"alert(1)\" ' autofocus onfocus='alert(1) <!-- subagent --> \
    <!-- conversation --> <!-- ]]> &lt;b&gt; \u{1b}[2J\u{202e}\u{200b}\u{7} javascript:alert(1) <style>*{display:none}</style>";

const JOB: &str = "\
model: anthropic/claude-sonnet-4-6
description: Finds out why large numbers break the parser, fixes it, and proves it.
parent:
  prompt: |
    Numbers above 2^31 break `parse_number`. Find the cause with three explorers at once, fix it in src/parse.py,
    and run the checks of the repository before you answer.
  tools: [read_file, grep, edit_file, bash, task]
  max_turns: 20
subagents:
  explorer:
    description: Reads code and answers one question about it.
    system: You read code and answer one question about it. You never change a file.
    tools: [read_file, glob, grep]
    max_turns: 8
limits: { cost_usd: 2.00, wall_clock: 10m, tool_calls: 100 }
checks:
  - { name: unit tests, run: sh tests/run.sh }
  - { name: no leftover prints, run: \"! grep -rn 'print(' src\" }
repairs: 2
";

const PARSE: &str = "\
MAX = 2**31 - 1


def parse_number(text):
    \"\"\"The number in a token, or None.\"\"\"
    value = 0
    for char in text:
        if not char.isdigit():
            return None
        value = value * 10 + int(char)
        if value > MAX:
            return -1
    return value
";

const TEST: &str = "\
if grep -q 'return -1' src/parse.py; then
  echo 'test_small ... ok'
  echo 'test_large ... FAILED'
  echo '  expected 4294967296, got -1 (tests/test_parse.py:14)'
  exit 1
fi
echo '2 passed'
";

fn answer(millis: u64, input: u64, cached: u64, output: u64, answer: Answer) -> Answer {
    answer.usage(input, output).cache(cached, 0).delay(Duration::from_millis(millis))
}

fn call(tool: &str, input: Value) -> Answer {
    Answer::calls(&[(tool, input)])
}

/// A run with three subagents, a failed call, a failed try, a check that fails and then passes, and a changed file.
fn repaired_run() -> (TestFolder, ProgramOutput) {
    let folder = TestFolder::new();
    folder.write("jobs/parser-fix.yaml", JOB).write("src/parse.py", PARSE).write("tests/run.sh", TEST);
    folder.write("src/lexer.py", (1..=90).map(|line| format!("TOKEN_{line} = {line}\n")).collect::<String>());
    folder.write("README.md", "# calc\n\nA small calculator.\n").commit_all();
    let overloaded = Answer::status(529).header("retry-after-ms", "120").error("overloaded_error", "Overloaded");
    let explore =
        |what: &str, prompt: &str| ("task", json!({ "agent": "explorer", "description": what, "prompt": prompt }));
    let answers = ScriptedAgents::new()
        .agent("Where is MAX", [
            answer(90, 1900, 0, 84, Answer::text("I'll look for every use.").then_call("grep", &json!({ "pattern": "MAX", "path": "src" }))),
            answer(70, 400, 1900, 51, Answer::text("`MAX` is defined in `src/parse.py` and used only in `parse_number`.")),
        ])
        .agent("How do the tests", [
            answer(60, 1900, 0, 66, call("read_file", json!({ "path": "tests/test_parse.py" }))),
            answer(80, 500, 1900, 72, call("glob", json!({ "pattern": "tests/**" }))),
            answer(90, 300, 2400, 90, Answer::text("The tests are one script, `tests/run.sh`. There is no `tests/test_parse.py`.")),
        ])
        .agent("Which tokens", [
            answer(120, 1900, 0, 70, call("read_file", json!({ "path": "src/lexer.py" }))),
            overloaded,
            answer(110, 2600, 1900, 120, Answer::text("The lexer has **90 tokens**. None of them limits the size of a number.")),
        ])
        .agent("Numbers above", [
            answer(150, 2400, 0, 210, Answer::empty().thinking("Three independent questions. The explorers can answer them at the same time.", "c2ln")
                .then_text("I'll ask three explorers at once: where the limit is, how the tests run, and what the lexer does.")
                .then_call("task", &explore("find the limit", "Where is MAX defined and used?").1)
                .then_call("task", &explore("find the tests", "How do the tests run?").1)
                .then_call("task", &explore("check the lexer", "Which tokens does the lexer have?").1)),
            answer(80, 700, 2400, 66, call("read_file", json!({ "path": "src/parse.py" }))),
            answer(90, 500, 3100, 140, call("edit_file", json!({
                "path": "src/parse.py",
                "old_text": "        if value > MAX:\n            return -1\n    return value\n",
                "new_text": "        print(value)\n        if value > MAX:\n            return -1\n    return value\n",
            }))),
            answer(60, 300, 3600, 60, call("bash", json!({ "command": "sh tests/run.sh && echo all good" }))),
            answer(70, 400, 3900, 44, Answer::text("The number is printed now, so the cause is visible.")),
            answer(90, 800, 4300, 150, Answer::text("Two checks fail. The limit itself is the cause: Python's integers have no such limit, so I remove it.")
                .then_call("edit_file", &json!({
                    "path": "src/parse.py",
                    "old_text": "        print(value)\n        if value > MAX:\n            return -1\n    return value\n",
                    "new_text": "    return value\n",
                }))
                .then_call("edit_file", &json!({ "path": "src/parse.py", "old_text": "MAX = 2**31 - 1\n\n\n", "new_text": "" }))),
            answer(60, 500, 5100, 60, call("bash", json!({ "command": "sh tests/run.sh" }))),
            answer(80, 300, 5600, 180, Answer::text("`parse_number` returned **-1** for every number above `2**31 - 1`.\n\n- The limit `MAX` came from an \
                older version in C; Python's integers don't need it.\n- I removed the limit from `src/parse.py`. No other file uses it.\n\n\
                | number | before | after |\n|---|---|---|\n| `2147483647` | 2147483647 | 2147483647 |\n| `4294967296` | -1 | 4294967296 |\n\n\
                See [the issue](https://example.org/calc/issues/7) for how to reproduce it.")),
        ]);
    let server = Server::start(answers);
    let ended = folder.legwork(&["run", "jobs/parser-fix.yaml", "--sandbox", "off"]).anthropic(&server).run();
    ended.assert_code(0);
    server.finish();
    (folder, ended)
}

/// A run with hostile text wherever there can be text. It ends at its turn limit.
fn hostile_run() -> (TestFolder, ProgramOutput) {
    let folder = TestFolder::new();
    let prompt = format!("Parent. {HOSTILE}");
    let job = json!({
        "model": "anthropic/claude-sonnet-4-6", "description": HOSTILE, "inputs": { "about": { "type": "string", "default": HOSTILE } },
        "parent": { "system": HOSTILE, "prompt": prompt, "tools": ["bash", "edit_file", "write_file", "read_file", "task"], "max_turns": 4 },
        "subagents": { "reader": { "description": HOSTILE, "system": "You read.", "tools": ["read_file"] } },
        "checks": [{ "name": "a check", "run": "true" }],
    });
    folder
        .write("job.yaml", job.to_string())
        .write("page.txt", format!("{HOSTILE}\n{}", "<".repeat(30_000)))
        .commit_all();
    let bash = json!({ "command": format!("cat page.txt; printf '%s' '{}'; exit 3", HOSTILE.replace('\'', "")) });
    let task = json!({ "agent": "reader", "description": HOSTILE, "prompt": format!("Child. {HOSTILE}") });
    let server = Server::start(
        ScriptedAgents::new()
            .agent("Child.", [call("read_file", json!({ "path": HOSTILE })), Answer::text(HOSTILE)])
            .agent("Parent.", [
                Answer::empty().thinking(HOSTILE, "c2ln").then_text(HOSTILE).then_call("bash", &bash).then_call("task", &task),
                Answer::empty()
                    .then_call("write_file", &json!({ "path": "<script>new.txt", "content": HOSTILE }))
                    .then_call("edit_file", &json!({ "path": "page.txt", "old_text": "</pre>", "new_text": HOSTILE }))
                    .then_call("no_such_tool", &json!({ HOSTILE: HOSTILE })),
                Answer::status(529).header("retry-after-ms", "1").error("overloaded_error", HOSTILE),
                call("read_file", json!({ "path": "page.txt" })),
                call("bash", json!({ "command": "false" })),
                Answer::text(&format!("# Answer\n\n{HOSTILE}\n\n![pixel](https://evil.example/p.png) [click](javascript:alert(1)) <https://evil.example/>\n\n```html\n{HOSTILE}\n```\n\n<!-- unclosed")),
            ]),
    );
    let ended = folder.legwork(&["run", "job.yaml", "--sandbox", "off"]).anthropic(&server).run();
    ended.assert_code(4);
    server.finish();
    (folder, ended)
}

/// A run of many turns with long results.
fn long_run(turns: usize) -> (TestFolder, ProgramOutput) {
    let folder = TestFolder::new();
    let lines: String = (0..600).map(|line| format!("{line}: if a < b && c > d {{ \"text\" }}\n")).collect();
    folder.write("long.txt", lines).write("short.txt", "a line\n");
    let mut replies: Vec<Value> = (0..turns)
        .map(|turn| {
            let path = if turn % 50 == 49 {
                "missing.txt"
            } else if turn % 2 == 0 {
                "long.txt"
            } else {
                "short.txt"
            };
            let mut calls = vec![json!({ "tool": "read_file", "input": { "path": path } })];
            if turn % 3 == 0 {
                calls.push(json!({ "tool": "glob", "input": { "pattern": "*.txt" } }));
            }
            json!({ "text": format!("Turn {turn}: I read **{path}** next."), "calls": calls })
        })
        .collect();
    replies.push(json!({ "text": "Done." }));
    folder.write("replies.json", json!({ "parent": replies }).to_string());
    folder.write(
        "job.yaml",
        "model: replay/replies.json\ncompaction: off\nlimits: { tool_calls: 10000 }\nparent: { prompt: Read., tools: [read_file, glob], max_turns: 5000 }\n",
    );
    folder.allow_forged_records();
    let ended = folder.legwork(&["run", "job.yaml"]).timeout(Duration::from_secs(300)).run();
    ended.assert_code(0);
    (folder, ended)
}

/// The page without its style and script.
fn body(page: &str) -> String {
    let (before, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let (middle, _) = rest.rsplit_once("<script>").unwrap();
    format!("{before}{middle}")
}

/// Every tag of a page with its attributes, as a browser reads them: our templates always quote values.
fn tags(page: &str) -> Vec<&str> {
    page.match_indices('<')
        .map(|(at, _)| {
            let rest = &page[at..];
            let mut in_quotes = false;
            let end = rest.char_indices().find(|(_, char)| {
                in_quotes ^= *char == '"';
                *char == '>' && !in_quotes
            });
            &rest[..end.map_or(rest.len(), |(at, _)| at + 1)]
        })
        .collect()
}

fn assert_inert(page: &str) {
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<style").count(), 1);
    let body = body(page);
    let allowed = [
        "a",
        "b",
        "blockquote",
        "body",
        "br",
        "button",
        "circle",
        "code",
        "dd",
        "del",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "i",
        "input",
        "ins",
        "kbd",
        "label",
        "li",
        "line",
        "main",
        "meta",
        "meter",
        "nav",
        "ol",
        "option",
        "output",
        "p",
        "pre",
        "rect",
        "s",
        "section",
        "select",
        "span",
        "strong",
        "summary",
        "svg",
        "table",
        "tbody",
        "td",
        "text",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
        "!doctype",
    ];
    for tag in tags(&body) {
        let inner = tag.trim_start_matches(['<', '/']).trim_end_matches('>');
        let (name, attributes) = inner.split_once([' ', '\n']).unwrap_or((inner, ""));
        assert!(allowed.contains(&name), "{tag}");
        let mut rest = attributes;
        while let Some((attribute, value)) = rest.split_once("=\"") {
            let attribute = attribute.rsplit(' ').next().unwrap();
            assert!(
                !attribute.starts_with("on") && !["style", "src", "srcset", "action"].contains(&attribute),
                "{tag}"
            );
            let (value, after) = value.split_once('"').unwrap();
            if attribute == "href" {
                assert!(value.starts_with('#'), "{tag}");
            }
            rest = after;
        }
    }
    for invisible in ['\u{1b}', '\u{202e}', '\u{200b}', '\u{7}'] {
        assert!(!page.contains(invisible), "{invisible:?}");
    }
    let mut ids: Vec<&str> =
        body.match_indices(" id=\"").map(|(at, it)| body[at + it.len()..].split('"').next().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "each id once");
    for link in body.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.binary_search(&link).is_ok(), "#{link} leads nowhere");
    }
}

fn report(ended: &ProgramOutput) -> String {
    ended.run_folder().file("report.html")
}

#[test]
fn the_report_tells_what_happened_in_the_order_asked() {
    let (_folder, ended) = repaired_run();
    let page = report(&ended);
    assert_inert(&page);
    assert!(page.contains("<title>parser-fix: completed</title>"), "{page}");
    for part in [
        "The parent finished its work, and all 2 checks passed after 1 repair.",
        "<b class=\"tool\">bash</b> <code>sh tests/run.sh &amp;&amp; echo all good</code> <span class=\"status\">failed</span>",
        "<b class=\"tool\">task</b> <code>explorer-1: find the limit</code>",
        "<del>-        if value &gt; MAX:\n</del>",
        "1 attempt of a request failed",
        "% cached)",
        "<td>4294967296</td>",
        "the issue <span class=\"url\">(https://example.org/calc/issues/7)</span>",
        "check unit tests (failed, exit code 1, ",
        "<circle class=\"retry\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Verdict, figures, timeline, agents, conversation, checks, files, job; then the page's end.
    let mut at = 0;
    for id in [
        "verdict",
        "figures",
        "timeline",
        "agents",
        "conversation",
        "parent.t1",
        "parent.t1.c1",
        "explorer-1",
        "explorer-1.t1.c1",
        "parent.t1.c2",
        "explorer-2.t1.c1",
        "explorer-3",
        "parent.t2",
        "parent.checks-1",
        "parent.t8",
        "checks",
        "files",
        "job",
    ] {
        let found =
            page[at..].find(&format!(" id=\"{id}\"")).unwrap_or_else(|| panic!("{id} isn't where it should be"));
        at += found;
    }
    let failed = page.matches("data-failed").count();
    assert!(
        page.contains("id=\"explorer-2.t1.c1\" data-agent=\"explorer-2\" data-tool=\"read_file\" data-failed open"),
        "{failed}"
    );
}

#[test]
fn hostile_text_stays_text() {
    let (_folder, ended) = hostile_run();
    let page = report(&ended);
    assert_inert(&page);
    assert!(page.contains("<title>job: turn_limit</title>"));
    assert!(page.contains("legwork resume ") && page.contains("--limit max_turns=8"));
    assert!(page.contains("[image: pixel <span class=\"url\">(https://evil.example/p.png)</span>]"));
    assert!(page.contains("id=\"parent.t4.final\"") && page.contains("</html>"));
}

#[test]
fn a_damaged_record_shows_what_is_missing_first() {
    let (folder, ended) = repaired_run();
    folder.allow_forged_records();
    let record = ended.run_folder();
    std::fs::remove_file(record.path().join("subagents/explorer-2.events.jsonl")).unwrap();
    std::fs::remove_file(record.path().join("report.html")).unwrap();
    folder.legwork(&["show", "latest", "--rebuild"]).run().assert_code(0);
    let page = report(&ended);
    let (missing, verdict) = (page.find("subagents/explorer-2.events.jsonl"), page.find("id=\"verdict\""));
    assert!(missing.is_some() && missing < verdict, "{missing:?}");
    assert_inert(&page);
}

#[test]
fn a_long_run_has_a_page_that_a_browser_can_open() {
    let (_folder, ended) = long_run(400);
    let page = report(&ended);
    assert!(page.len() < 20_000_000, "{}", page.len());
    assert!(page.contains("id=\"parent.t400.c1\"") && page.contains("more characters in events.jsonl"));
    assert_inert(&page);
}

#[test]
fn a_reply_with_very_many_calls_is_cut() {
    let folder = TestFolder::new();
    let call = |number: usize| {
        if number == 550 {
            return json!({ "tool": "task", "input": { "agent": "look", "description": "unseen", "prompt": "?" } });
        }
        json!({ "tool": "glob", "input": { "pattern": format!("*.{number}") } })
    };
    let last = json!({ "tool": "task", "input": { "agent": "look", "description": "seen", "prompt": "?" } });
    let calls: Vec<Value> = (0..600).map(call).collect();
    let seen = |text: &str| json!([{ "text": text }]);
    let script = json!({
        "parent": [{ "calls": calls }, { "calls": [last] }, { "text": "Done." }],
        "subagents": { "look-1": seen("Not on the page."), "look-2": seen("On the page.") },
    });
    folder.write("r.json", script.to_string());
    folder.write(
        "job.yaml",
        "model: replay/r.json\nparent: { prompt: Go., tools: [glob, task] }\nsubagents: { look: { tools: [] } }\n",
    );
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0);
    let page = report(&ended);
    assert!(page.contains("100 more blocks of this reply aren't shown: see events.jsonl."));
    assert!(page.contains("id=\"parent.t1.c500\"") && !page.contains("id=\"parent.t1.c501\""));
    let (_, second) = page.split_once("id=\"parent.t2\"").unwrap();
    assert!(second.contains("id=\"look-2\"") && second.contains("On the page.") && !page.contains("Not on the page."));
}
