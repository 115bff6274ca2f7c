//! What findings mean: the command that says so.

use serde_json::Value;

use crate::support::folder::Folder;

/// The whole output of `legwork explain --format json`: all rules.
fn rules() -> Vec<Value> {
    let printed = Folder::new().legwork(&["explain", "--format", "json"]).run();
    printed.code(0).stderr_is("");
    assert_eq!(printed.json()["format"], 1);
    printed.json()["rules"].as_array().expect("a list of rules").clone()
}

#[test]
fn a_code_is_explained_for_its_reader() {
    let folder = Folder::new();
    let text = folder.legwork(&["explain", "unknown-tool", "duplicate-env", "--format", "text"]).run();
    text.code(0).stdout_has("error[unknown-tool]\n\n").stdout_has("\nwarning[duplicate-env]\n\n").stdout_has("\nBad\n");
    text.stdout_has("    model: ").nowhere("```").nowhere("\u{1b}");
    let coloured = folder.legwork(&["explain", "unknown-tool", "--format=text"]).env("CLICOLOR_FORCE", "1").run();
    coloured.code(0).stdout_has("\u{1b}[1;31merror[unknown-tool]\u{1b}[0m\n");
    let piped = folder.legwork(&["explain", "unknown-tool"]).run();
    piped.code(0).stdout_has("# error[unknown-tool]\n\n").stdout_has("\n## Bad\n\n```yaml\n");
    let pasted = folder.legwork(&["explain", "error[unknown-tool]", "--format=json"]).run();
    pasted.code(0);
    let rule = &pasted.json()["rules"][0];
    assert_eq!((&rule["code"], &rule["severity"]), (&"unknown-tool".into(), &"error".into()));
    assert!(rule["page"].as_str().unwrap().contains("## Good"), "{rule}");
}

#[test]
fn without_a_code_all_are_listed() {
    let rules = rules();
    let codes: Vec<&str> = rules.iter().filter_map(|rule| rule["code"].as_str()).collect();
    assert!(codes.is_sorted() && codes.contains(&"yaml-syntax") && codes.contains(&"missing-input"), "{codes:?}");
    let list = Folder::new().legwork(&["explain"]).run();
    list.code(0);
    assert_eq!(list.stdout.lines().count(), codes.len());
    list.stdout_has("- `unknown-tool` (error): ");
    let text = Folder::new().legwork(&["explain", "--format", "text"]).run();
    assert_eq!(text.stdout.lines().filter(|line| !line.starts_with(' ')).count(), codes.len());
}

#[test]
fn an_unknown_code_is_refused_with_the_nearest() {
    let folder = Folder::new();
    let near = folder.legwork(&["explain", "unknown_tol"]).run();
    near.code(2).stdout_is("").stderr_has("unknown_tol").stderr_has("Did you mean `unknown-tool`?");
    folder.legwork(&["explain", "unknown-tool", "nonsense"]).run().code(2).stdout_is("").stderr_has("legwork explain");
}

#[test]
fn findings_say_where_to_learn_more() {
    let folder = Folder::new();
    folder.write("job.yaml", "model: anthropic/claude-haiku-4-5\nparent: { prompt: x, tools: [Bahs] }\nfoo: 1\n");
    let ended = folder.legwork(&["validate", "job.yaml"]).run();
    ended.code(3).stdout_has("`legwork explain unknown-tool");
    assert!(ended.stdout.lines().last().unwrap().starts_with("2 errors"), "{}", ended.all());
}
