use super::*;
use crate::diagnostic::Source;
use crate::yaml;

fn read(text: &str) -> yaml::Decoded<Job> {
    yaml::read(&Source::new("job.yaml", text))
}

const SMALLEST: &str = "model: anthropic/x\nparent:\n  prompt: Do it.\n  tools: [task]\n";

#[test]
fn omitted_keys_have_defaults() {
    let job = read(SMALLEST).into_result().unwrap();
    assert!(job.delegates());
    assert!(!job.network.is_some());
    assert_eq!(job.keep, Keep::Always);
    assert_eq!(job.inputs().count(), 0);
    assert_eq!(job.agents().count(), 1);
    assert!(job.limits.wall_clock.is_none());
}

#[test]
fn all_forms_of_a_value_are_read() {
    let text = "\
model: { name: anthropic/x, thinking: high }
parent:
  system: { file: prompts/system.md }
  prompt: Do it.
  tools:
    - glob
    - bash: { allow: [ls] }
    - grep:
limits: { wall_clock: 1h, tool_calls: none, subagents: 3 }
";
    let job = read(text).into_result().unwrap();
    assert_eq!(job.model.value.name(), "anthropic/x");
    assert_eq!(job.model.value.options().unwrap().thinking.as_ref().unwrap().value, Thinking::High);
    assert!(
        matches!(&job.parent.system.unwrap().value, PromptText::File(file) if file.file.value == "prompts/system.md")
    );
    let names: Vec<&str> = job.parent.tools.iter().map(|tool| tool.value.name()).collect();
    assert_eq!(names, ["glob", "bash", "grep"]);
    assert_eq!(job.limits.wall_clock.unwrap().value.as_option().unwrap().milliseconds(), 3_600_000);
    assert_eq!(job.limits.tool_calls.unwrap().value, Limit::Unlimited);
    assert_eq!(job.limits.subagents.unwrap().value, Limit::Max(3));
}

#[test]
fn values_have_their_places() {
    let job = read(SMALLEST).into_result().unwrap();
    assert_eq!(job.model.place().start(), (1, 8));
    assert_eq!(job.parent.tools.value[0].place().start(), (4, 11));
    assert_eq!(job.model.node.place_of_range(0..9).end(), (1, 17));
}

#[test]
fn an_incomplete_job_is_read_partially() {
    let decoded = read("description: x\nparent:\n  tools: [glob, [nested]]\n");
    let codes: Vec<&str> = decoded.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["missing-key", "missing-key", "wrong-type"]);
    let job = decoded.value.unwrap();
    assert_eq!(job.parent.tools.value.len(), 1);
    assert!(job.model.node.is_placeholder());
    assert!(job.parent.prompt.node.is_placeholder());
}

#[test]
fn names_are_made_from_file_names() {
    for (path, name) in [
        ("tour.yaml", Some("tour")),
        ("a/b/Release_Notes.yml", Some("release-notes")),
        ("x.job.yaml", Some("x-job")),
        ("-", None),
        ("日本.yaml", None),
        ("", None),
    ] {
        assert_eq!(name_from_file(path).as_deref(), name, "{path}");
    }
    let long = name_from_file(&format!("{}-b.yaml", "a".repeat(63))).unwrap();
    assert_eq!(long, "a".repeat(63));
    assert!(is_name(&long));
}

#[test]
fn name_forms() {
    for name in ["a", "0", "find-tests-2", "a--"] {
        assert!(is_name(name), "{name}");
    }
    for name in ["", "-a", "A", "a_b", "ä", "a b", &"a".repeat(65)] {
        assert!(!is_name(name), "{name}");
    }
    assert!(is_input_name("_a1") && !is_input_name("1a") && !is_input_name("a-b") && !is_input_name(""));
}
