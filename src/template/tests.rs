use serde_json::{Value, json};

use std::collections::BTreeMap;

use super::engine::{environment, value};
use super::instrument::InstrumentedTemplate;
use super::*;
use crate::diagnostic::{Diagnostic, Source};
use crate::yaml::{self, Spanned};

fn names() -> TemplateVariables {
    TemplateVariables { inputs: vec!["topic".to_owned(), "files".to_owned()], ..TemplateVariables::default() }
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
    yaml::read::<Spanned<String>>(&source).into_result().unwrap()
}

fn render(text: &str, values: &Value) -> Result<String, Box<Diagnostic>> {
    let names = names();
    let node = node(text);
    let mut loader = Loader::new(None, &names);
    let template = loader.text(&node.node, &node.value, TextRole::Prompt);
    let (templates, findings) = loader.finish();
    assert!(findings.is_empty(), "{findings:?}");
    templates.engine(values).render(&template)
}

#[test]
fn values_are_never_rendered_as_templates() {
    for hostile in ["{{ workspace }}", "{% include 'x' %}", "\"}}{{ run.id }}", "<b>&amp;</b>", "{% endraw %}"] {
        let rendered = render("[{{ inputs.topic }}]", &values(hostile)).unwrap();
        assert_eq!(rendered, format!("[{hostile}]"));
    }
}

#[test]
fn rendering_is_bounded() {
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
    let text = &finding.span.source.text[finding.span.range.clone()];
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
    let folder = JobDir::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("a.md");
    let template = loader.file("a.md", node.place(), TextRole::Prompt).unwrap();
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
    let folder = JobDir::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("{% include 'a.md' %}");
    let template = loader.text(&node.node, &node.value, TextRole::Prompt);
    let (templates, _) = loader.finish();
    let finding = templates.engine(&values("x")).render(&template).unwrap_err();
    assert!(finding.span.source.name.ends_with("a.md"));
    assert_eq!(finding.span.start().0, 2);
}

#[test]
fn nested_includes_take_bounded_time() {
    let outer = tempfile::tempdir().unwrap();
    for number in 0..40 {
        let (next, text) = (number + 1, "{% set v@ = 1 %}{% include 'f#.md' %}{% set w@ = 1 %}{% include 'f#.md' %}");
        let text = text.replace('#', &next.to_string()).replace('@', &number.to_string());
        std::fs::write(outer.path().join(format!("f{number}.md")), text).unwrap();
    }
    std::fs::write(outer.path().join("f40.md"), "end").unwrap();
    let folder = JobDir::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("f0.md");
    let template = loader.file("f0.md", node.place(), TextRole::Prompt).unwrap();
    let (templates, findings) = loader.finish();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["too-many-includes"]);
    assert_eq!(templates.engine(&values("x")).render(&template).unwrap_err().code, "render-failed");
}

#[test]
fn without_a_folder_no_file_is_read() {
    let names = names();
    let mut loader = Loader::new(None, &names);
    let node = node("a.md");
    assert!(loader.file("a.md", node.place(), TextRole::Prompt).is_none());
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
fn an_error_at_a_multibyte_character_covers_the_whole_character() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("a.md"), "über {{ 😀 }}").unwrap();
    let folder = JobDir::open(outer.path()).unwrap();
    let names = names();
    let mut loader = Loader::new(Some(&folder), &names);
    let node = node("a.md");
    loader.file("a.md", node.place(), TextRole::Prompt);
    let written = self::node("über {{ 😀 }}");
    loader.text(&written.node, &written.value, TextRole::Prompt);
    let findings = loader.finish().1;
    let marked: Vec<&str> = findings.iter().map(|found| &found.span.source.text[found.span.range.clone()]).collect();
    assert_eq!(marked, ["😀", "😀"]);
}

/// The engine's result for a text without any limits.
fn unguarded(text: &str, values: &Value) -> Option<String> {
    let mut plain = environment();
    plain.add_template("text", text).unwrap();
    plain.get_template("text").unwrap().render(value(values)).ok()
}

#[test]
fn limits_change_no_result() {
    let values = json!({
        "inputs": { "topic": "Über \"x\"\nb", "files": ["a", "b", "c"], "n": 7, "x": 2.5, "flag": true },
        "workspace": "/w", "job": { "name": "j" }, "run": { "id": "1", "date": "2026-01-02" },
    });
    let mut failed = Vec::new();
    for text in [
        "plain {text} { } % # {",
        "a\n\n",
        "a\n",
        "{% raw %}{{ x }}{% endraw %}{{ 1 }}",
        "{% raw %}{{% endraw %}{{ 1 }}",
        "{{ inputs }} {{ inputs.files }} {{ inputs.x }} {{ inputs.flag }} {{ none }}",
        "{{ 'it' \"s\" }} {{ 'a\\n\\\\b' }} {{ '\"' }} {{ \"'\" }} {{ '\\u00fc' }}",
        "{{ 1 + 2 * 3 - 4 / 5 // 1 % 3 }} {{ 1 * 2 ~ 'x' ~ 2 ** 3 ** 2 ~ 4 - 0 | int if 0 }}",
        "{{ (1 + 2) * (3 - 4) }} {{ 1 - (2 - 3) }} {{ 2 ** (1 + 1) }} {{ (2 ** 3) ** 2 }} {{ -2 ** 2 }} {{ -(2 + 3) }}",
        "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ (1, 2) + (3,) }} {{ [1] + [2, 3] }} {{ 'a' + 'b' }} {{ 1 + 2.5 }}",
        "{{ not true and false or true }} {{ not (true and false) }} {{ (1 or 0) and 2 }} {{ 1 < 2 < 3 }} {{ (1 < 2) == true }}",
        "{{ 1 in [1] }} {{ 1 not in [1] }} {{ not 1 in [1] }} {{ 'a' in 'abc' }} {{ 'n' in inputs }}",
        "{{ 'a' if inputs.flag else 'b' }} {{ 'a' if not inputs.flag }} {{ ('a' if 0 else 'b') if 1 else 'c' }} {{ 'a' if 0 else 'b' if 0 else 'c' }}",
        "{{ inputs.topic | upper | replace('B', 'x') | trim }} {{ -1 | abs }} {{ (-1) | abs }} {{ -(1 | abs) }} {{ 1.50 | round }}",
        "{{ 1 is odd }} {{ 1 is not odd }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ inputs.topic is string and 1 is number }} {{ 1 is eq 1 }}",
        "{{ inputs.files[0] }} {{ inputs.files[-1] }} {{ inputs.files[1:] }} {{ inputs.files[:1] }} {{ inputs.files[::-1] }} {{ inputs.topic[1:3] }} {{ inputs['n'] }}",
        "{{ inputs.files[0][0] }} {{ ([1, 2] + [3])[2] }} {{ {'a': [1, {'b': 2}]}.a[1].b }} {{ {'a': 1}['a'] }} {{ (1, 2)[1] }} {{ () }} {{ (1,) }}",
        "{% for a in inputs.files %}{{ loop.index }}{{ loop.last }}{{ a }}{{ ', ' if not loop.last }}{% else %}none{% endfor %}",
        "{% for a in [] %}x{% else %}none{% endfor %}{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}={{ v }};{% endfor %}",
        "{% for a in range(10) if a is odd %}{{ a }}{{ loop.index }}{% endfor %}{% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}",
        "{% for a in [1, [2, [3]]] recursive %}{% if a is sequence %}[{{ loop(a) }}]{% else %}{{ a }}{% endif %}{% endfor %}",
        "{% for a in 'abc' %}{{ loop.cycle('x', 'y') }}{{ loop.changed(a) }}{{ loop.previtem is defined }}{% endfor %}",
        "{% if inputs.n > 9 %}a{% elif inputs.n > 5 %}b{% elif 1 %}c{% else %}d{% endif %}{% if 0 %}a{% else %}{% if 1 %}b{% endif %}{% endif %}",
        "{% set a = 1 %}{% set a, b = [a + 1, 3] %}{% set (c, d) = (4, 5) %}{{ a }}{{ b }}{{ c }}{{ d }}{% set e = 1, 2 %}{{ e }}",
        "{% set ns = namespace(a=1, b=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}",
        "{% set a %}x{{ 1 }}{% endset %}{{ a ~ a }}{% set b | upper | replace('X', 'yy') %}x{% endset %}{{ b }}",
        "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{% with (a, b) = (1, 2) %}{{ a }}{% endwith %}{% with %}x{% endwith %}",
        "{% filter upper | trim %}  a{{ 'b' }} {% endfilter %}{% autoescape true %}{{ '<a>' }}{% endautoescape %}",
        "{% macro m(a, b=2, c=3) %}[{{ a }}{{ b }}{{ c }}{{ caller() if caller is defined }}]{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m(*[1, 2]) }}{{ m(**{'a': 3}) }}{% call m(1) %}x{% endcall %}",
        "{% macro list(items) %}{% for i in items %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(a, b=0) list('ab') %}{{ a }}{{ b }}{% endcall %}",
        "{% block a %}x{{ 1 }}{% endblock %}{{ self.a() }}{% block b %}{% endblock b %}",
        "  {%- if 1 -%}  a  {%- endif -%}  b {{- 1 -}} c {#- d -#} e",
        "{# comment #}a{#- b -#}  c{{ '{{' }}{{ '%}' }}{{ '}}' }}",
        "{{ inputs.files | join(', ') }} {{ inputs.files | join(d='-') }} {{ [{'a': 1}, {'a': 2}] | join('+', attribute='a') }} {{ 'abc' | join('-') }}",
        "{{ inputs.files | map('upper') | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [{'a': 1}] | map(attribute='a') | list }} {{ [3, 1] | sort }} {{ ['B', 'a'] | sort(case_sensitive=true) }}",
        "{{ [1, 1, 2] | unique }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1} | items }} {{ [1, 2, 3] | batch(2, 'x') }} {{ [1, 2, 3] | slice(2) }} {{ [1, 2] | zip([3, 4]) }} {{ [1] | chain([2]) }} {{ {'a': 1} | chain({'b': 2}) }}",
        "{{ [1, 2] | sum }} {{ [1, 2] | first }} {{ [1, 2] | last }} {{ [1, 2] | min }} {{ [1, 2] | max }} {{ 'abc' | reverse }} {{ [1, 2] | reverse }} {{ [1, 2] | length }} {{ inputs.topic | lines }}",
        "{{ 'a,b' | split(',') }} {{ 'a b c' | split(none, 1) }} {{ 'a\nb' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(width=3, blank=true) }} {{ [1, {'a': 'b'}] | pprint }}",
        "{{ '%s %5.2f %-4d| %05d %x %%' | format('a', 1.234, 5, 42, 255) }} {{ '%(a)s' | format({'a': 1}) }} {{ '%s' | format(inputs.files) }}",
        "{{ '3' | int + 1 }} {{ '3.5' | float }} {{ 'x' | int(default=4) }} {{ 3.7 | int }} {{ 3 | string ~ 4 }} {{ '' | bool }} {{ '<' | escape }} {{ 1 | default(2) }} {{ x | default('d') }}",
        "{{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}] | groupby('a') | list | length }}{% for g in [{'a': 1}] | groupby('a') %}{{ g.grouper }}{{ g.list }}{% endfor %}",
        "{{ range(5) }} {{ range(1, 9, 3) | list }} {{ dict(a=1, **{'b': 2}) }} {{ dict({'a': 1}) }} {{ range(3) | length }} {{ range(5)[2] }}",
        "{{ 1e300 * 10 }} {{ 1e999 }} {{ 123456789012345678901234567890 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ true + 1 }} {{ 2.0 }}",
        "{{ 'a' == 'a' }} {{ [1] == [1] }} {{ [1] < [2] }} {{ {'a': 1} == {'a': 1} }} {{ 1 == 1.0 }} {{ 'a' != 'b' }} {{ none == none }} {{ 3 >= 2 }} {{ 3 <= 2 }}",
        "{% set long %}0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789{{ 1 }}{% endset %}{{ long | length }}",
        "{% do [1].x() if 0 %}",
        "{{ workspace.part is defined }} {{ inputs.gone is undefined }} {{ inputs.topic is startingwith('Ü') }} {{ ['a'] | select('in', ['a']) | list }}",
    ] {
        let Ok(minijinja::machinery::ast::Stmt::Template(root)) =
            minijinja::machinery::parse(text, "text", Default::default())
        else {
            assert!(text.starts_with("{% do"), "{text}");
            continue;
        };
        let guarded = InstrumentedTemplate::new(text, &root.children);
        let templates =
            Templates { instrumented: BTreeMap::from([("text".to_owned(), guarded)]), ..Templates::default() };
        let template = Template { name: "text".to_owned() };
        let rendered = templates.engine(&values).render(&template);
        let shown = &templates.instrumented["text"].text;
        failed.extend(rendered.as_ref().err().map(|finding| (text, finding.message.clone())));
        assert_eq!(rendered.as_deref().ok(), unguarded(text, &values).as_deref(), "{text}\n{shown}\n{rendered:?}");
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Each of these would exhaust memory, time or the stack.
#[test]
fn memory_and_time_are_bounded() {
    for text in include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oversized_templates.txt")).lines() {
        let Err(finding) = render(text, &values("x")) else { panic!("{text}") };
        assert_eq!(finding.code, "render-failed", "{text}");
    }
}
