use crate::diagnostic::Source;
use crate::job::Job;
use crate::lints::{Prompts, check};
use crate::yaml::{self, Spanned};

use super::*;

fn job(kind: &str, prompt: &str) -> std::sync::Arc<Source> {
    let prompt = serde_json::to_string(prompt).unwrap();
    let text = format!(
        "model: anthropic/claude-haiku-4-5\nlimits: {{ tokens: 9 }}\ninputs: {{ x: {{ type: {kind} }}, y: {{ type: boolean }} }}\n\
         parent:\n  tools: []\n  prompt: {prompt}\n"
    );
    Source::new("job.yaml", text)
}

/// The place where rendering certainly fails, if any.
fn refused(kind: &str, prompt: &str) -> Option<String> {
    let found = check(&job(kind, prompt), None).findings;
    let failed = found.into_iter().find(|finding| finding.code == "render-failed")?;
    Some(failed.span.source.text[failed.span.range.clone()].to_owned())
}

#[test]
fn operations_that_fail_for_every_value_are_found() {
    for (kind, prompt, place) in [
        ("integer", "{% for a in inputs.x %}{{ a }}{% endfor %}", "inputs.x"),
        ("number", "{% for a in inputs.x %}{{ a }}{% endfor %}", "inputs.x"),
        ("boolean", "a {% for a in inputs.x %}{{ a }}{% endfor %}", "inputs.x"),
        ("string", "{{ inputs.x.foo }}", "inputs.x.foo"),
        ("string", "{{ inputs.x['foo'] }}", "inputs.x['foo']"),
        ("integer", "{{ inputs.x.foo }}", "inputs.x.foo"),
        ("list", "{{ inputs.x.foo }}", "inputs.x.foo"),
        ("list", "{{ inputs.x.foo.bar }}", "inputs.x.foo"),
        ("string", "{{ inputs.x + 1 }}", "inputs.x + 1"),
        ("string", "{{ -inputs.x }}", "-inputs.x"),
        ("integer", "{{ inputs.x | join(',') }}", "join(',')"),
        ("integer", "{{ inputs.x | sort }}", "sort"),
        ("list", "{{ 1 + inputs.x }}", "1 + inputs.x"),
        ("string", "{% with a = inputs.x | items %}{{ a }}{% endwith %}", "items"),
        ("integer", "{{ 'a' in inputs.x }}", "'a' in inputs.x"),
    ] {
        let found = refused(kind, prompt);
        assert!(found.as_deref().is_some_and(|found| found.contains(place)), "{kind} {prompt}: {found:?}");
    }
}

#[test]
fn operations_that_work_for_some_value_are_accepted() {
    for (kind, prompt) in [
        ("string", "{{ inputs.x | int }}"),
        ("string", "{{ (inputs.x | split('='))[1] }}"),
        ("string", "{% set a, b = inputs.x | split(';') %}{{ a }}"),
        ("string", "{% set v = (inputs.x | split(';'))[2] %}{{ v }}{{ v ~ 'a' }}{{ v | upper }}"),
        ("string", "{{ inputs.x == 'magic' or inputs.x.foo }}"),
        ("integer", "{% if inputs.x is string %}{{ inputs.x.foo }}{% endif %}"),
        ("integer", "{{ 1 // (inputs.x - 123456) }}{{ 1 // (inputs.x // 99999999) }}"),
        ("integer", "{{ [1, 2, 3][inputs.x - 55555] }}"),
        ("list", "{{ inputs.x[17] }}{{ inputs.x[1000] }}"),
        ("list", "{{ inputs.x | map('int') | sum }}"),
        ("string", "{{ inputs.x.foo is defined }}"),
        ("string", "{% if inputs.x is number %}{{ inputs.x + 1 }}{% endif %}"),
        ("string", "{% if inputs.y %}{{ inputs.x.foo | default('a') }}{% endif %}"),
        ("string", "{% set a = inputs.x %}{% if inputs.y %}{% set a = 1 %}{{ a + 1 }}{% endif %}"),
        (
            "string",
            "{% for a in [1, 2] %}{{ a + 1 }}{% endfor %}{% for a in inputs.x | split(',') %}{{ a }}{% endfor %}",
        ),
        ("string", "{% for a in inputs.x | list %}{{ (a | int(0)) + 1 }}{% endfor %}"),
        ("list", "{% for a in inputs.x %}{{ a[0] }}{{ a[1:] }}{{ a ~ 1 }}{% endfor %}"),
        ("list", "{% if inputs.y %}{{ inputs.x[0] ~ inputs.x[1:] | join }}{{ inputs.x + ['a'] }}{% endif %}"),
        ("list", "{% macro m(inputs) %}{{ inputs.x.foo }}{% endmacro %}a"),
        ("integer", "{% if inputs.y %}{{ inputs.x + 1.5 }}{{ inputs.x * 2 - 1 }}{{ 'a' * inputs.x }}{% endif %}"),
        ("boolean", "{% if inputs.x %}{{ inputs.x + 1 }}{% endif %}"),
        ("string", "{{ inputs.x.foo | default('a') }}"),
        ("string", "{% for a in inputs.x %}{{ a }}{% endfor %}"),
    ] {
        assert_eq!(refused(kind, prompt), None, "{kind} {prompt}");
    }
}

#[test]
fn impossible_operations_in_branches_are_found() {
    for (kind, prompt, place) in [
        ("string", "{% if inputs.x == 'magic' %}a{% else %}{{ inputs.x.foo }}{% endif %}", "inputs.x.foo"),
        ("string", "{{ 'a' if inputs.x == 'magic' else inputs.x.foo }}", "inputs.x.foo"),
        ("integer", "{% if inputs.y %}{% for a in inputs.x %}a{% endfor %}{% endif %}", "inputs.x"),
        ("list", "{% for a in inputs.x %}{{ a.foo }}{% endfor %}", "a.foo"),
        ("list", "{% for a in inputs.x %}{{ a + 1 }}{% endfor %}", "a + 1"),
        ("list", "{% for a in inputs.x %}{% if a == 'b' %}{{ a['foo'] | upper }}{% endif %}{% endfor %}", "a['foo']"),
        ("list", "{% set a = inputs.x %}{{ a.foo }}", "a.foo"),
        ("list", "{{ inputs.x[0].foo }}", "inputs.x[0].foo"),
        ("string", "{% macro m(a) %}{{ inputs.x - 1 }}{% endmacro %}a", "inputs.x - 1"),
        ("string", "{% if inputs.y %}{% with a = inputs.x %}{{ a + 1 }}{% endwith %}{% endif %}", "a + 1"),
        ("integer", "{% if inputs.y %}{{ inputs.x | length }}{% endif %}", "inputs.x | length"),
        ("boolean", "{% if not inputs.y %}{{ inputs.x | join }}{% endif %}", "inputs.x | join"),
    ] {
        let found = refused(kind, prompt);
        assert!(
            found.as_deref().is_some_and(|found| place.contains(found) || found.contains(place)),
            "{prompt}: {found:?}"
        );
    }
}

/// Deterministic pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }

    fn value(&mut self, kind: &str) -> Value {
        match kind {
            "integer" => json!([0, 1, 2, 3, -1, -8, 10, 255, 999_999_999][self.roll(9)]),
            "number" => json!([0.0, 1.0, -1.5, 0.25, 1e9, 17.0][self.roll(6)]),
            "boolean" => json!(self.roll(2) == 0),
            "list" => (0..self.roll(5)).map(|_| self.text()).collect(),
            _ => json!(self.text()),
        }
    }

    fn text(&mut self) -> String {
        (0..self.roll(6))
            .map(|_| self.pick(&["a", "b", "1", "2", "=", ".", " ", "-", "true", "\n", "%s", "Ü"]))
            .collect()
    }
}

const STEPS: &[&str] = &[
    "@ | upper",
    "@ | int",
    "@ | float",
    "@ | join(',')",
    "@ | first",
    "@ | last",
    "@.foo",
    "@['foo']",
    "@[0]",
    "@[1:]",
    "@ + 1",
    "@ + 'a'",
    "@ - 1",
    "@ * 2",
    "@ / 2",
    "@ ~ 'a'",
    "1 + @",
    "@ + @",
    "-@",
    "not @",
    "@ | split('=')",
    "@ | sort",
    "@ | sum",
    "@ | map('upper') | list",
    "@ | map('int') | list",
    "@ | replace('a', 'b')",
    "@ | format(1)",
    "'%d' | format(@)",
    "@ | round",
    "@ | abs",
    "@ | length",
    "@ | items | list",
    "@ | dictsort",
    "@ | batch(2) | list",
    "@ == 3",
    "@ < 2",
    "'a' in @",
    "@ in 'abc'",
    "@ is string",
    "@ | list",
    "@ | min",
    "@ | default('a')",
    "[@]",
    "@ | trim",
    "@ | reverse",
    "@ | unique",
    "@ | lines",
    "@ | indent",
    "@ | string",
    "@ | bool",
    "@ if inputs.y else 1",
    "@ or 1",
];

const AROUND: &[&str] = &[
    "{{ @ }}",
    "{% for a in @ %}{{ a }}{% endfor %}",
    "{% if @ %}a{% else %}b{% endif %}",
    "{% if inputs.x is string %}{{ @ }}{% endif %}",
    "{% if inputs.y %}{{ @ }}{% endif %}",
    "{% set v = @ %}{{ v }}{{ v | upper }}",
    "{% set a, b = @ %}{{ a }}",
    "{% set a %}{{ @ }}{% endset %}{{ a }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(@) }}",
    "{% filter upper %}{{ @ }}{% endfilter %}",
    "{% with a = @ %}{{ a ~ 'b' }}{% endwith %}",
];

#[test]
fn refused_operations_fail_for_every_value() {
    let mut dice = Dice(12);
    let mut count = 0;
    for _ in 0..400 {
        let kind = dice.pick(&["string", "integer", "number", "boolean", "path", "list"]);
        let mut expression = "inputs.x".to_owned();
        for _ in 0..=dice.roll(3) {
            expression = dice.pick(STEPS).replace('@', &format!("({expression})"));
        }
        let prompt = dice.pick(AROUND).replace('@', &expression.replacen("(inputs.x)", "inputs.x", 9));
        let source = job(kind, &prompt);
        if refused(kind, &prompt).is_none() {
            continue;
        }
        count += 1;
        let Spanned { value: job, node } = yaml::read::<Spanned<Job>>(&source).into_result().unwrap();
        let (prompts, _) = Prompts::load(&job, &node, None);
        for _ in 0..40 {
            // An operation in a branch fails only in the runs that reach it.
            let y = prompts.templates.type_errors.is_empty() && dice.roll(2) == 0;
            let inputs = json!({ "x": dice.value(kind), "y": y || !prompts.templates.type_errors.is_empty() });
            let values = json!({ "inputs": inputs, "workspace": "/w", "job": { "name": "j" }, "run": {} });
            let rendered = prompts.templates.engine(&values).render(prompts.prompt.as_ref().unwrap());
            assert!(rendered.is_err(), "{kind} {prompt} with {inputs}: {rendered:?}");
        }
    }
    assert!(count > 40, "{count}");
}
