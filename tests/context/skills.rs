//! `skills`: instructions that an agent reads with the tool `skill`.

use serde_json::{Value, json};

use crate::running::runs::folder_with;
use crate::support::server::{Answer, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

const JOB: &str = "
skills: [skills/notes]
parent: { prompt: Parent., tools: [task, read_file] }
subagents:
  reviewer: { description: Reviews., system: You review., tools: [], skills: [skills/review] }
limits: { tokens: 100000 }
";

fn folder() -> TestFolder {
    let folder = folder_with(JOB);
    folder.write(
        "skills/notes/SKILL.md",
        "---\nname: notes\ndescription: Writes release notes.\nallowed-tools: Read\n---\n\n# Notes\n\nSee `style.md`.\n",
    );
    folder.write("skills/notes/style.md", "Be brief.\n");
    folder
        .write("skills/review/SKILL.md", "---\nname: review\ndescription: >\n  How to\n  review.\n---\nRead twice.\n");
    folder
}

fn skill(name: &str) -> (&'static str, Value) {
    ("skill", json!({ "name": name }))
}

fn agents() -> ScriptedAgents {
    ScriptedAgents::new().agent("Child.", [Answer::calls(&[skill("review")]), Answer::text("Reviewed.")]).agent(
        "Parent.",
        [
            Answer::calls(&[
                skill("notes"),
                skill("review"),
                ("read_file", json!({ "path": "skills/notes/style.md" })),
                ("task", json!({ "prompt": "Child.", "description": "review" })),
            ]),
            Answer::text("Done."),
        ],
    )
}

#[test]
fn an_agent_sees_names_and_descriptions_and_reads_the_rest_on_use() {
    let folder = folder();
    let server = Server::start(agents());
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Done.\n");
    let requests = server.finish();
    let parent = &requests[0];
    assert!(
        parent.system().ends_with("a description fits.\n\n- notes: Writes release notes.\n"),
        "{}",
        parent.system()
    );
    assert!(!parent.system().contains("# Notes"));
    assert_eq!(parent.tools(), ["task", "read_file", "skill"]);
    let child = requests.iter().find(|request| request.prompt() == "Child.").unwrap();
    assert!(child.system().starts_with("You review.\n\n# Skills\n\n"), "{}", child.system());
    assert!(child.system().ends_with("- notes: Writes release notes.\n- review: How to review.\n"));
    assert_eq!(child.tools(), ["skill"]);
    let results = requests.last().unwrap().results();
    let text = &results[0].text;
    assert!(
        text.contains("in the folder `skills/notes`") && text.ends_with("\n\n# Notes\n\nSee `style.md`.\n"),
        "{text}"
    );
    assert!(text.contains("written for these tools: Read."), "{text}");
    assert!(
        results[1].is_error && results[1].text == "there is no skill `review`; there are: notes",
        "{}",
        results[1].text
    );
    assert!(results[2].text.contains("Be brief."));

    let plan = ended.run_folder().plan();
    assert_eq!(plan["skills"]["skills/notes"]["body"], "# Notes\n\nSee `style.md`.\n");
    assert_eq!(plan["subagents"]["reviewer"]["skills"], json!(["skills/notes", "skills/review"]));
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run", "--verbose"]).run();
    shown.assert_code(0).assert_stdout_contains("  skills      notes in skills/notes (sha256 ");
    shown.assert_stdout_contains("tool skill").assert_stdout_contains("    | - notes: Writes release notes.\n");
    // A call of an agent's other tools is no more a skill's than before: reviewer has none.
    folder.write("skills/review/SKILL.md", "---\nname: review\ndescription: x\nallowed-tools: Bash Read\n---\nx\n");
    let validated = folder.legwork(&["validate", "job.yaml"]).run();
    validated
        .assert_code(0)
        .assert_stdout_contains("the skill `review` uses `bash` and `read_file`, and `reviewer` doesn't have that");
}

#[test]
fn the_text_that_was_planned_counts_however_the_file_changes() {
    let folder = folder_with(
        "skills: [skills/notes]\nparent: { prompt: Go., tools: [write_file] }\nlimits: { tokens: 100000 }\n",
    );
    folder.write("skills/notes/SKILL.md", "---\nname: notes\ndescription: Notes.\n---\nPlanned.\n");
    let server = Server::start(ScriptedAgents::of([
        Answer::calls(&[(
            "write_file",
            json!({ "path": "skills/notes/SKILL.md", "content": "gone", "overwrite": true }),
        )]),
        Answer::calls(&[skill("notes")]),
        Answer::text("Done."),
    ]));
    folder.legwork(&["run", "job.yaml"]).anthropic(&server).run().assert_code(0);
    let requests = server.finish();
    assert!(requests[2].results()[0].text.ends_with("\n\nPlanned.\n"));
    assert_eq!(folder.read("skills/notes/SKILL.md"), "gone");
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    folder.legwork(&["replay", "latest", "--job", "job.yaml"]).run().assert_code(0);
}

#[test]
fn a_missing_or_malformed_skill_is_found_before_anything_is_sent() {
    let folder = folder();
    for (skills, text, expected) in [
        ("skills/none", "", "`skills/none/SKILL.md` does not exist"),
        ("skills/x", "# X\n", "it has no front matter"),
        ("skills/x", "---\nname: x\n---\nx\n", "`description` is missing"),
        ("skills/x", "---\nname: y\ndescription: x\n---\nx\n", "its name is `y`, and its folder is `x`"),
        ("skills/x", &format!("---\n{}", "a: b\n".repeat(250_000)), "larger than 1 MiB"),
        ("skills/x", &format!("---\n{}", "a: b\n".repeat(200_000)), "the limit is 128 KiB"),
        ("skills/x", "---\nname: x\ndescription: x\nmetadata: &a [*a]\n---\nx\n", "line 4: "),
        ("{ folder: skills/notes, ref: main }", "", "isn't in a git repository"),
    ] {
        folder.write("skills/x/SKILL.md", text);
        folder.write(
            "job.yaml",
            format!("model: anthropic/claude-sonnet-4-6\nskills: [{skills}]\nparent: {{ prompt: Go., tools: [] }}\n"),
        );
        let ended = folder.legwork(&["run", "job.yaml"]).run();
        ended.assert_code(3).assert_stderr_contains(expected).assert_stderr_contains("bad-skill");
    }
}

#[test]
fn a_skill_of_a_commit_is_read_whatever_the_checkout_has() {
    let folder = folder_with(
        "skills: [{ folder: skills/notes, ref: main }]\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 1000 }\n",
    );
    folder.write("skills/notes/SKILL.md", "---\nname: notes\ndescription: Trusted.\n---\nTrusted.\n");
    folder.git(&["init", "--quiet", "--initial-branch=main"]);
    folder.commit_all();
    folder.write("skills/notes/SKILL.md", "---\nname: notes\ndescription: Evil.\n---\nEvil.\n");
    let shown = folder.legwork(&["run", "job.yaml", "--dry-run"]).run();
    shown.assert_code(0).assert_stdout_contains("- notes: Trusted.\n").assert_not_printed("Evil");
    shown.assert_stdout_contains("notes in skills/notes of main, commit ");
}
