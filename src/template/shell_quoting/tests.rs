use std::process::Command;

use serde_json::{Value, json};

use super::super::tests::node;
use super::super::{Loader, TemplateVariables, Templates, TextRole};
use crate::diagnostic::Diagnostic;

fn load(text: &str) -> (Templates, super::super::Template, Vec<Diagnostic>) {
    let names = TemplateVariables {
        inputs: ["x", "y", "n", "b", "list", "none"].map(str::to_owned).into(),
        ..TemplateVariables::default()
    };
    let mut loader = Loader::new(None, &names);
    let node = node(text);
    let template = loader.text(&node.node, &node.value, TextRole::Command);
    let (templates, findings) = loader.finish();
    (templates, template, findings)
}

fn render(text: &str, inputs: &Value) -> Result<String, Vec<String>> {
    let (templates, template, findings) = load(text);
    if !findings.is_empty() {
        return Err(findings.iter().map(|finding| finding.code.to_owned()).collect());
    }
    let values =
        json!({ "inputs": inputs, "workspace": "/w", "job": { "name": "j" }, "run": { "id": "r", "date": "d" } });
    templates
        .engine(&values)
        .render(&template)
        .map_err(|finding| vec![format!("{}: {}", finding.code, finding.message)])
}

fn bash(command: &str, folder: &std::path::Path) -> String {
    let mut bash = Command::new("bash");
    let output = bash.arg("-c").arg(command).current_dir(folder).stdin(std::process::Stdio::null()).output();
    String::from_utf8_lossy(&output.expect("bash").stdout).into_owned()
}

/// The same numbers at every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn text(&mut self, pieces: &[&str], most: usize) -> String {
        (0..self.next(most + 1)).map(|_| pieces[self.next(pieces.len())]).collect()
    }
}

#[test]
fn each_kind_of_value_becomes_words() {
    let inputs = json!({
        "x": "it's", "y": "a b", "n": -1.5, "b": true, "list": ["a b", "c'd", ""], "none": null,
    });
    for (text, command) in [
        ("echo {{ inputs.x }}", r"echo 'it'\''s'"),
        ("echo {{ inputs.x }}{{ inputs.y }}-{{ inputs.n }}", r"echo 'it'\''s''a b'-'-1.5'"),
        ("echo {{ inputs.list }} end", r"echo 'a b' 'c'\''d' '' end"),
        ("echo {{ inputs.list | map('upper') }}", r"echo 'A B' 'C'\''D' ''"),
        ("echo {{ inputs.list | join(' ') }}", r"echo 'a b c'\''d '"),
        ("echo {{ inputs.x | safe }} {{ 1 + 1 }}", r"echo 'it'\''s' '2'"),
        ("echo {{ [] }};", "echo ;"),
        ("run {{ '--deep' if inputs.b }} {{ '--flat' if not inputs.b }}", "run '--deep' "),
        ("{% for word in inputs.list %}echo {{ word }}\n{% endfor %}", "echo 'a b'\necho 'c'\\''d'\necho ''\n"),
        ("{% set z = inputs.y ~ '.rs' %}cat <{{ z }} $(echo {{ z }})", "cat <'a b.rs' $(echo 'a b.rs')"),
        ("echo \"$(printf %s {{ inputs.y }})\" {{ run.id }}", "echo \"$(printf %s 'a b')\" 'r'"),
        ("cat <<E\nit's\nE\necho {{ inputs.y }}", "cat <<E\nit's\nE\necho 'a b'"),
        ("echo it\\'s # don't\necho {{ inputs.y }}", "echo it\\'s # don't\necho 'a b'"),
        ("if [[ -f \"$a\" && $b == *.c ]]; then ((n += 1)); echo $((n + 2)) {{ inputs.y }}; fi", ""),
        ("echo ${HOME:-none} ${a%.*} {{ inputs.y }}", "echo ${HOME:-none} ${a%.*} 'a b'"),
        ("case $a in b) echo {{ inputs.y }};; esac", "case $a in b) echo 'a b';; esac"),
        ("[ {{ inputs.y }} = b ] && ( cd {{ inputs.y }} && a=({{ inputs.list }}) )", ""),
        ("cat <<< {{ inputs.y }} > {{ inputs.y }}", "cat <<< 'a b' > 'a b'"),
    ] {
        match render(text, &inputs) {
            Ok(rendered) => assert!(command.is_empty() || rendered.trim() == command.trim(), "{text}: {rendered}"),
            Err(codes) => panic!("{text}: {codes:?}"),
        }
    }
}

#[test]
fn a_value_that_could_leave_its_quotes_is_refused() {
    for text in [
        "echo '{{ inputs.x }}'",
        "echo \"{{ inputs.x }}\"",
        "echo $'{{ inputs.x }}'",
        "echo \"$(echo \"{{ inputs.x }}\")\"",
        "echo ${{ inputs.x }}",
        "echo \\{{ inputs.x }}",
        "echo `echo {{ inputs.x }}`",
        "echo # {{ inputs.x }}",
        "echo ${a:-{{ inputs.x }}}",
        "echo $(( {{ inputs.n }} + 1 ))",
        "(( {{ inputs.n }} > 1 ))",
        "echo $[ {{ inputs.n }} ]",
        "[[ {{ inputs.n }} -eq 1 ]]",
        "a[{{ inputs.n }}]=1",
        "a[1 + {{ inputs.n }}]=1",
        "a=([{{ inputs.n }}]=1)",
        "cat <<E\n{{ inputs.x }}\nE\n",
        "cat <<'E'\n{{ inputs.x }}\nE\n",
        "cat <<{{ inputs.x }}\n",
        "cat <<-E\n\tE \n{{ inputs.x }}\n\tE\n",
        "echo \"$(case a in a) echo \" {{ inputs.x }} \" ;; esac)\"",
        "{% if inputs.b %}'{% endif %}{{ inputs.x }}'",
        "{% for a in inputs.list %}{{ a }} '{% endfor %}",
        "echo \"{% for a in inputs.list %}\" {{ a }} {% endfor %}",
    ] {
        assert_eq!(load(text).2.first().map(|finding| finding.code), Some("misplaced-value"), "{text}");
    }
    let (_, _, findings) = load("echo {{ inputs.y }} '{{ inputs.x }}'");
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!(&finding.span.source.text[finding.span.range.clone()], "inputs.x");
}

#[test]
fn what_prints_twice_is_refused() {
    for text in [
        "{% macro f(a) %}{{ a }}{% endmacro %}echo {{ f(inputs.x) }}",
        "{% set a %}{{ inputs.x }}{% endset %}echo {{ a }}",
        "echo {% filter upper %}{{ inputs.x }}{% endfilter %}",
        "{% block a %}{{ inputs.x }}{% endblock %}",
        "{% for a in inputs.list recursive %}{{ loop(a) }}{% endfor %}",
        "{% autoescape true %}{{ inputs.x }}{% endautoescape %}",
        "echo \"\\0\"",
    ] {
        let text = text.replace("\\0", "\0");
        assert!(load(&text).2.iter().any(|finding| finding.code == "unsupported-tag-in-command"), "{text}");
    }
}

#[test]
fn what_only_shows_when_it_is_rendered_is_refused_then() {
    let inputs = json!({ "x": "a\0b", "y": "c", "list": ["a", "b"], "none": null, "n": [] });
    for (text, why) in [
        ("echo {{ inputs.x }}", "NUL"),
        ("echo {{ inputs.list | map('replace', 'a', inputs.x) }}", "NUL"),
        ("echo {{ inputs }}", "mapping"),
        ("echo {{ inputs.none }}", "none"),
        ("echo {{ [inputs.list] }}", "lists of texts"),
        ("A={{ inputs.list }}", "within a word"),
        ("echo {{ inputs.list }}.rs", "within a word"),
        ("rm x/{{ inputs.n }}", "within a word"),
        ("echo {{ inputs.list }}{{ inputs.y }}", "within a word"),
    ] {
        let refused = render(text, &inputs).expect_err(text);
        assert!(refused[0].contains(why), "{text}: {refused:?}");
    }
    assert!(render("{% if inputs.y == 'c' %}{{ inputs.y }}{% endif %}", &inputs).is_ok());
}

const HOSTILE: &[&str] = &[
    "'",
    "\"",
    "`",
    "$",
    "\\",
    "\n",
    " ",
    "\t",
    "!",
    "#",
    "~",
    "*",
    "?",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "|",
    "&",
    ";",
    "$(",
    "${",
    "$'",
    "-",
    "=",
    "%s",
    "a",
    "Z",
    "0",
    "é",
    "日",
    "\u{1}",
    "\r",
    "\u{7f}",
    "\u{feff}",
    "{{ x }}",
    "{% raw %}",
    "touch broken",
];

#[test]
fn bash_sees_exactly_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = Numbers(7);
    let values: Vec<String> = (0..300).map(|_| numbers.text(HOSTILE, 12)).collect();
    let prints: String = values
        .iter()
        .map(|value| render("printf '%s\\0' {{ inputs.x }}\n", &json!({ "x": value })).unwrap() + "\n")
        .collect();
    let printed = bash(&prints, folder.path());
    let seen: Vec<&str> = printed.split('\0').collect();
    assert_eq!(seen[..values.len()], values[..]);
    assert_eq!(seen.len(), values.len() + 1);
    let printed = bash(&render("printf '%s\\0' {{ inputs.x }}", &json!({ "x": values })).unwrap(), folder.path());
    assert_eq!(printed.split('\0').collect::<Vec<_>>(), seen, "a list");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

const PIECES: &[&str] = &[
    "'",
    "\"",
    "\\",
    "\n",
    " ",
    " ",
    "#",
    "$",
    "(",
    ")",
    "$(",
    "${",
    "}",
    "$((",
    "((",
    "))",
    "`",
    "<<E",
    "<<-'E'",
    "\nE\n",
    "\n\tE\n",
    "<<<",
    "<",
    "[[ ",
    " ]]",
    "[",
    "]",
    "a[",
    "a=(",
    ";",
    "&",
    "|",
    " case x in x) ",
    ";; esac",
    "$'",
    "$\"",
    "echo ",
    "a",
    "=",
    "x",
    "@(",
    "\\\n",
    ";;",
    "{",
    "\t",
    "if :; then ",
    "; fi\n",
    "EOF",
    "-",
    "!",
    "%",
    "b=",
    "shopt -s extglob\n",
];

/// Whatever the author has written around a value: where it is let through, it stays a value.
#[test]
fn no_value_becomes_a_command() {
    no_breakout(11, 30);
}

#[test]
#[ignore = "takes minutes: thousands of commands around a value"]
fn no_value_becomes_a_command_in_many() {
    no_breakout(12, 5_000);
}

fn no_breakout(seed: u64, count: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = Numbers(seed);
    let payload = ": >broken";
    let breakouts = [
        format!("';{payload};'"),
        format!("\";{payload};\""),
        format!("$({payload})"),
        format!("`{payload}`"),
        format!("\n{payload}\n"),
        format!("\nE\n{payload}\n"),
        format!("a[$({payload})]"),
        format!(")\n{payload}\n"),
        format!("}};{payload};"),
        format!("' )) ) \";{payload} #"),
        format!("' ]]\n{payload} #"),
    ];
    let mut tried = 0;
    while tried < count {
        let before = numbers.text(PIECES, 9);
        let after = numbers.text(PIECES, 5);
        let text = format!("{before}{{{{ inputs.x }}}}{after}");
        for (at, value) in breakouts.iter().enumerate() {
            // What evaluates its words is not what this is about.
            let Ok(command) = render(&text, &json!({ "x": value })) else { break };
            tried += u64::from(at == 0);
            bash(&command, folder.path());
            let broken = folder.path().join("broken").exists();
            assert!(!broken, "{value:?} got out of {text:?}: {command:?}");
        }
        for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}
