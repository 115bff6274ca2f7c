//! What is shown of outputs: in the transcript, `show`, the report, the summary of a step, and JUnit.

use serde_json::json;

use crate::support::program::{Program, ProgramOutput};
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "\
model: anthropic/claude-haiku-4-5
limits: { tokens: 1000000 }
before:
  - { name: issues, run: 'cat issues.txt' }
parent: { prompt: 'Go. {{ before.issues }}', tools: [task, { output: [comment, review, nothing_to_do] }] }
subagents: { helper: { description: Helps., tools: [{ output: [comment] }] } }
outputs:
  comment: { target: 3, max: 2 }
  review: { target: 3 }
";

/// A text that is fine for a forge, and could end a fence or come alive in a page that isn't careful.
const BODY: &str =
    "A fence:\n\n````xml\n<script>document.title='owned'</script>\n```\n![x](http://evil.example/x.png)\n````\n";

/// A run that proposes a comment and a review, and of which a subagent's and a call of the parent are refused.
pub(crate) fn proposing_run(key: &[&str]) -> (TestFolder, ProgramOutput) {
    let folder = TestFolder::new();
    folder.write("job.yaml", JOB).write("issues.txt", "first\n```\nsecond\n");
    let comments = json!([{ "path": "src/a.rs", "line": 4, "start_line": 2, "body": "Why **both**?" }]);
    let answers = ScriptedAgents::new()
        .agent(
            "Propose it",
            [Answer::calls(&[("comment", json!({ "body": "fine\n<b>bold</b>" }))]), Answer::text("Refused.")],
        )
        .agent(
            "Go. first",
            [
                Answer::calls(&[
                    ("comment", json!({ "body": "Thanks @mallory" })),
                    ("comment", json!({ "body": BODY, "key": "summary" })),
                    ("review", json!({ "body": "One thing.", "comments": comments })),
                    ("task", json!({ "agent": "helper", "description": "helps", "prompt": "Propose it." })),
                ]),
                Answer::text("Done."),
            ],
        );
    let server = Server::start(answers);
    let run = folder.legwork(&["run", "job.yaml", "--sandbox", "off", "--junit", "junit.xml"]).args(key);
    let ended = in_actions(run, &folder).anthropic(&server).run();
    ended.assert_code(0);
    server.finish();
    (folder, ended)
}

fn in_actions(program: Program, folder: &TestFolder) -> Program {
    program.env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", folder.at("summary.md"))
}

/// The part of a page from a heading on.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let at = page.find(heading).unwrap_or_else(|| panic!("no {heading:?} in {page}"));
    &page[at..]
}

#[test]
fn what_is_proposed_and_what_is_refused_is_in_every_report() {
    let (folder, ended) = proposing_run(&["--key", "k"]);
    let fence = format!("`````\n{BODY}`````\n");
    let transcript = ended.run_folder().file("transcript.md");
    let proposed = section(&transcript, "## Proposed\n");
    for part in [
        "### `summary`: comment on \\#3\n",
        &*fence,
        "### `review-1`: review of \\#3\n",
        "src\\/a\\.rs\\, lines 2 to 4",
        "### refused\\: comment\n",
        "`body`: mention at line 1, column 8",
        "### refused\\: comment of helper\\-1\n",
        "`body`: raw-html at line 2, column 1",
    ] {
        assert!(proposed.contains(part), "{part}: {proposed}");
    }
    assert!(!proposed.contains("Nothing was accepted."), "{proposed}");
    // `show` says the same, also of a record without its files.
    std::fs::remove_file(ended.run_folder().path().join("transcript.md")).unwrap();
    let shown = folder.legwork(&["show", "latest"]).run();
    shown.assert_code(0).assert_stdout_contains(proposed);
    folder.legwork(&["show", "latest", "--rebuild"]).run().assert_code(0);
    assert_eq!(ended.run_folder().file("transcript.md"), transcript);

    let report = ended.run_folder().file("report.html");
    let html = section(&report, "<section id=\"proposed\">");
    let html = &html[..html.find("</section>").unwrap()];
    for part in [
        "<b class=\"tool\">summary</b> <span class=\"meta\">comment on #3</span>",
        "&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;",
        "<p class=\"meta\">src/a.rs, lines 2 to 4</p>",
        "<strong>both</strong>",
        "<b class=\"tool\">refused: comment of helper-1</b>",
        "`body`: mention at line 1, column 8",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("<script") && !html.contains("<img"), "{html}");

    let summary = folder.read("summary.md");
    for part in [
        "| step before the agent | | time |",
        "````text\nfirst\n```\nsecond\n````\n",
        "\nProposed:\n\n- summary: comment on \\#3\n",
        &*fence,
        "- **refused\\: comment**: \\`body\\`\\: mention at line 1\\, column 8",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    let junit = folder.read("junit.xml");
    let output = section(&junit, "<system-out>");
    assert!(output.contains("proposed: review-1: review of #3\n"), "{output}");
    assert!(output.contains("refused: comment of helper-1: `body`: raw-html at line 2, column 1"), "{output}");

    // The same command again says it again, from the record.
    std::fs::remove_file(folder.at("summary.md")).unwrap();
    let again = in_actions(
        folder.legwork(&["run", "job.yaml", "--key", "k", "--sandbox", "off", "--junit", "junit.xml"]),
        &folder,
    );
    again.env("ANTHROPIC_API_KEY", "unused").run().assert_code(0);
    assert_eq!((folder.read("summary.md"), folder.read("junit.xml")), (summary, junit));
}

#[test]
fn a_run_that_proposes_nothing_says_so() {
    let folder = TestFolder::new();
    folder.write(
        "job.yaml",
        "model: replay/r.yaml\nparent: { prompt: Go., tools: [{ output: [comment, nothing_to_do] }] }\noutputs: { comment: { target: 3 } }\n",
    );
    folder.write("r.yaml", "parent:\n  - text: Done.\n");
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0);
    let transcript = ended.run_folder().file("transcript.md");
    assert!(transcript.contains("## Proposed\n\n_Nothing is proposed._\n"), "{transcript}");
    assert!(ended.run_folder().file("report.html").contains("<p class=\"meta\">Nothing is proposed.</p>"));
    folder.write(
        "r.yaml",
        "parent:\n  - calls: [{ tool: nothing_to_do, input: { reason: 'All <b>well</b>.' } }]\n  - text: Done.\n",
    );
    let ended = folder.legwork(&["run", "job.yaml"]).run();
    ended.assert_code(0);
    let transcript = ended.run_folder().file("transcript.md");
    let section = section(&transcript, "## Proposed\n");
    assert!(section.contains("### nothing to do\n\n```\nAll <b>well</b>.\n```\n"), "{section}");
    assert!(ended.run_folder().file("report.html").contains("<pre>All &lt;b&gt;well&lt;/b&gt;.</pre>"));
}
