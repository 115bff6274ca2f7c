use serde_json::{Value, json};

use super::*;
use crate::yaml::{self, Spanned};

fn names() -> Names {
    Names { inputs: vec!["topic".to_owned(), "files".to_owned()], ..Names::default() }
}

pub(super) fn values(topic: &str) -> Value {
    json!({
        "inputs": { "topic": topic, "files": ["a", "b"] },
        "workspace": "/w",
        "job": { "name": "j" },
        "run": { "id": "1", "date": "2026-01-02" },
    })
}

pub(super) fn node(text: &str) -> Spanned<String> {
    let source = Source::new("job.yaml", serde_json::to_string(text).unwrap());
    yaml::read::<Spanned<String>>(&source).whole().unwrap()
}

fn render(text: &str, values: &Value) -> Result<String, Box<Diagnostic>> {
    let names = names();
    let node = node(text);
    let mut loader = Loader::new(None, &names);
    let template = loader.text(&node.node, &node.value, Role::Prompt);
    let (templates, findings) = loader.finish();
    assert!(findings.is_empty(), "{findings:?}");
    templates.engine(values).render(&template)
}

#[test]
fn a_value_is_text_and_nothing_more() {
    for hostile in ["{{ workspace }}", "{% include 'x' %}", "\"}}{{ run.id }}", "<b>&amp;</b>", "{% endraw %}"] {
        let rendered = render("[{{ inputs.topic }}]", &values(hostile)).unwrap();
        assert_eq!(rendered, format!("[{hostile}]"));
    }
}

#[test]
fn rendering_ends() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}";
    let finding = render(endless, &values("")).unwrap_err();
    assert_eq!(finding.code, "render-failed");
    assert!(finding.message.contains("steps"), "{}", finding.message);
    let deep = "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}";
    let finding = render(deep, &values("")).unwrap_err();
    assert!(finding.message.contains("nest too deep"), "{}", finding.message);
    assert!(finding.help.unwrap().contains("macro"));
    let long = "{% set x = 'x' * 1000000 %}{% for i in range(10) %}{{ x }}{% endfor %}";
    assert!(render(long, &values("")).unwrap_err().message.contains("4 MiB"));
}

#[test]
fn a_failure_has_its_place() {
    let finding = render("line one\nand {{ inputs.topic + 1 }}", &values("x")).unwrap_err();
    let text = &finding.place.source.text[finding.place.span.clone()];
    assert!(text.contains("inputs.topic") && !text.contains("and"), "{text}");
}

#[test]
fn a_part_that_is_not_there_is_an_error() {
    assert_eq!(render("{{ inputs[workspace] }}", &values("x")).unwrap_err().code, "render-failed");
    assert_eq!(render("{{ inputs.topic.part }}", &values("x")).unwrap_err().code, "render-failed");
}

#[test]
fn includes_are_rendered_from_memory() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("a.md"), "a\r\n{% include 'b.md' %}\n").unwrap();
    std::fs::write(outer.path().join("b.md"), "{{ inputs.topic }}").unwrap();
    let folder = Folder::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("a.md");
    let template = loader.file("a.md", node.place(), Role::Prompt).unwrap();
    let (templates, findings) = loader.finish();
    assert!(findings.is_empty(), "{findings:?}");
    drop(outer);
    assert_eq!(templates.files().collect::<Vec<_>>(), ["a.md", "b.md"]);
    assert_eq!(templates.engine(&values("x")).render(&template).unwrap(), "a\nx");
}

#[test]
fn a_failure_in_an_include_is_placed_there() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("a.md"), "fine\n{{ inputs.topic | int }}").unwrap();
    let folder = Folder::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("{% include 'a.md' %}");
    let template = loader.text(&node.node, &node.value, Role::Prompt);
    let (templates, _) = loader.finish();
    let finding = templates.engine(&values("x")).render(&template).unwrap_err();
    assert!(finding.place.source.name.ends_with("a.md"));
    assert_eq!(finding.place.start().0, 2);
}

#[test]
fn a_thicket_of_includes_is_walked_in_bounded_time() {
    let outer = tempfile::tempdir().unwrap();
    for number in 0..40 {
        let (next, text) = (number + 1, "{% set v@ = 1 %}{% include 'f#.md' %}{% set w@ = 1 %}{% include 'f#.md' %}");
        let text = text.replace('#', &next.to_string()).replace('@', &number.to_string());
        std::fs::write(outer.path().join(format!("f{number}.md")), text).unwrap();
    }
    std::fs::write(outer.path().join("f40.md"), "end").unwrap();
    let folder = Folder::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("f0.md");
    let template = loader.file("f0.md", node.place(), Role::Prompt).unwrap();
    let (templates, findings) = loader.finish();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["too-many-includes"]);
    assert_eq!(templates.engine(&values("x")).render(&template).unwrap_err().code, "render-failed");
}

#[test]
fn without_a_folder_no_file_is_read() {
    let names = names();
    let mut loader = Loader::new(None, &names);
    let node = node("a.md");
    assert!(loader.file("a.md", node.place(), Role::Prompt).is_none());
    assert_eq!(loader.finish().1[0].code, "unreadable-file");
}

#[test]
fn the_longest_chains_that_pass_fit_a_small_stack() {
    let values = values("x");
    let work = move || {
        for text in [
            format!("{{{{ 1{} }}}}", " + 1".repeat(290)),
            format!("{{{{ 1{} }}}}", "|abs".repeat(290)),
            format!("{{{{ {}1 }}}}", "not ".repeat(590)),
            format!("{{{{ {}1 }}}}", "-".repeat(590)),
            format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(140)),
            format!("{{{{ 1{} }}}}", "~1".repeat(290)),
            format!("{{% if 1 %}}a{}{{% endif %}}", "{% elif 1 %}b".repeat(199)),
            format!("{{{{ {}1{} }}}}", "(".repeat(40), ")".repeat(40)),
            format!("{{{{ {}1{} }}}}", "[".repeat(40), "]".repeat(40)),
        ] {
            assert!(render(&text, &values).is_ok(), "{text}");
        }
    };
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_mistake_at_a_letter_of_several_bytes_is_placed_at_the_whole_letter() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("a.md"), "über {{ 😀 }}").unwrap();
    let folder = Folder::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("a.md");
    loader.file("a.md", node.place(), Role::Prompt);
    let written = self::node("über {{ 😀 }}");
    loader.text(&written.node, &written.value, Role::Prompt);
    let findings = loader.finish().1;
    let marked: Vec<&str> = findings.iter().map(|found| &found.place.source.text[found.place.span.clone()]).collect();
    assert_eq!(marked, ["😀", "😀"]);
}
