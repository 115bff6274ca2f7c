use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::json;

use super::*;
use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::job::{Duration, INPUT_NAME_PATTERN, MAX_DURATION, NAME_PATTERN, PATH_PATTERN, is_input_name, is_name};
use crate::lints;
use crate::providers::replay::Script;
use crate::template::{JobDir, leaves_dir};
use crate::tools::TOOLS;
use crate::yaml::{self, Node, NodeKind};

/// How many of `validate`'s findings with a code the schema detects, too.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sees {
    Some,
    Nothing,
}

/// The codes with findings that the schema misses: how many it detects, and why.
const BEYOND: &[(&str, Sees, &str)] = &[
    ("bad-condition", Sees::Nothing, "in a template"),
    ("bad-default", Sees::Some, "a schema can't look up the default in the enum beside it; 1.0 is an integer to it"),
    ("bad-fallback", Sees::Some, "a model that is in the list twice, or whose replies come from a file"),
    ("bad-duration", Sees::Some, "a pattern can't add hours to minutes"),
    ("bad-host", Sees::Some, "a pattern can't tell a public suffix, a word or an address from a name"),
    ("bad-name", Sees::Some, "a name that is made from the file's isn't in the file"),
    ("bad-reference", Sees::Nothing, "in a schema"),
    ("bad-schema", Sees::Nothing, "a schema of schemas would be another file, and sees no expressions and references"),
    ("bad-bash-rule", Sees::Some, "a rule with quotes takes a reader of the shell's language"),
    ("bad-server", Sees::Nothing, "which headers hold secrets is beside their names"),
    ("bad-tool-lock", Sees::Nothing, "in another file"),
    ("bad-output", Sees::Nothing, "which keys belong to a kind, and which inputs a list may name"),
    ("bad-state", Sees::Nothing, "whether a value fits a schema that is beside it"),
    ("unused-state", Sees::Nothing, "in a template"),
    ("unknown-output", Sees::Nothing, "the outputs are elsewhere in the job"),
    ("wider-network", Sees::Nothing, "what the job allows is elsewhere in it"),
    ("unknown-server", Sees::Nothing, "the servers are elsewhere in the job"),
    ("bad-skill", Sees::Some, "which files are there, and how `ref` and wildcards go together"),
    ("unreadable-context", Sees::Some, "which files are there, and how `ref` and wildcards go together"),
    ("duplicate-check", Sees::Nothing, "draft 7 can't compare parts of what is in a list"),
    ("duplicate-step", Sees::Nothing, "draft 7 can't compare parts of what is in a list"),
    ("duplicate-path", Sees::Nothing, "two spellings of one path"),
    ("duplicate-tool", Sees::Some, "draft 7 can't count how often something is in a list"),
    ("dynamic-include", Sees::Nothing, "in a template"),
    ("empty-prompt", Sees::Some, "in a file"),
    ("include-cycle", Sees::Nothing, "in files"),
    ("macro-arguments", Sees::Nothing, "in a template"),
    ("confusable-names", Sees::Some, "a variable's name is made from the input's"),
    ("not-a-template", Sees::Some, "what is a tag takes a reader of templates"),
    ("unsupported-option", Sees::Some, "what single models take is a table of ours, and depends on the agent"),
    ("out-of-range", Sees::Some, "a pattern can't add minutes to seconds"),
    ("outside-folder", Sees::Some, "in a template, or a path that takes counting (`a/../..`)"),
    (
        "bad-protected-path",
        Sees::Some,
        "what is protected by default is no matter of form, and a pattern with all wildcards says less",
    ),
    ("render-failed", Sees::Nothing, "in a template"),
    ("rule-test-failed", Sees::Nothing, "a test of the rules takes a reader of the shell's language"),
    ("secret-in-template", Sees::Nothing, "in a template"),
    ("shell-syntax", Sees::Nothing, "takes a reader of the shell's language"),
    ("template-syntax", Sees::Nothing, "in a template"),
    ("too-many-includes", Sees::Nothing, "in files"),
    ("untracked-cost", Sees::Nothing, "depends on where the model is asked"),
    ("undefined-variable", Sees::Nothing, "in a template"),
    ("unknown-filter", Sees::Nothing, "in a template"),
    ("unknown-function", Sees::Nothing, "in a template"),
    ("unknown-price", Sees::Nothing, "the table of prices matches names by rules of its own"),
    ("unknown-provider", Sees::Nothing, "a server of the user's own can have any name"),
    ("unknown-test", Sees::Nothing, "in a template"),
    ("unreadable-file", Sees::Nothing, "in the folder"),
    ("untrusted-in-system", Sees::Nothing, "in a template"),
    ("context-window-too-small", Sees::Nothing, "a schema can't compare two numbers, and knows no table of windows"),
];

/// Jobs with such differences that no fixture has: the file's name, and the text after the model.
const SHOWN: &[(&str, &str)] = &[
    ("job.yaml", "parent: { prompt: x, tools: [] }\nlimits: { wall_clock: 720h1s }\n"),
    ("job.yaml", "parent: { prompt: x, tools: [bash: { timeout: 60m1s }] }\n"),
    ("job.yaml", "parent: { prompt: x, tools: [bash: { allow: [\"echo 'a' > b\"] }] }\n"),
    ("job.yaml", "parent: { prompt: x, tools: [bash: { timeout: 1m }, bash: { timeout: 2m }] }\n"),
    ("!.yaml", "parent: { prompt: x, tools: [] }\n"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The jobs among the lints' fixtures and the example jobs.
fn fixtures() -> Vec<PathBuf> {
    let folders = files(&root().join("tests/lints")).into_iter().chain([root().join("jobs")]);
    let is_job = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".yaml") && !name.ends_with(".script.yaml")
    };
    folders.filter(|path| path.is_dir()).flat_map(|folder| files(&folder)).filter(is_job).collect()
}

fn validator() -> Validator {
    jsonschema::draft7::new(&job_schema()).unwrap()
}

/// An error that the schema reports: its place, its message, and whether a key is missing there.
struct Fault {
    spans: Vec<Range<usize>>,
    message: String,
    missing: bool,
}

fn faults(validator: &Validator, job: &Value, document: &Node) -> Vec<Fault> {
    let found = |error: jsonschema::ValidationError<'_>| {
        let pointer = error.instance_path().to_string();
        let node = pointer.split('/').skip(1).fold(document.clone(), |node, part| match node.kind() {
            NodeKind::List => node.items().nth(part.parse().unwrap()).unwrap(),
            _ => node.get(&part.replace("~1", "/").replace("~0", "~")).unwrap(),
        });
        let nodes: Vec<Node> = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                unexpected.iter().map(|key| node.get(key).unwrap()).collect()
            }
            ValidationErrorKind::PropertyNames { error } => {
                let name = error.instance().as_str().unwrap().to_owned();
                vec![node.get(&name).unwrap()]
            }
            _ => vec![node],
        };
        let with_key = |node: &Node| {
            let span = node.place().range;
            let key = node.own_key().map_or(span.clone(), |key| key.place().range);
            key.start.min(span.start)..span.end
        };
        Fault {
            spans: nodes.iter().map(with_key).collect(),
            missing: matches!(error.kind(), ValidationErrorKind::Required { .. }),
            message: format!("{pointer}: {error}"),
        }
    };
    validator.iter_errors(job).map(found).collect()
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    let inside = |inner: &Range<usize>, outer: &Range<usize>| inner.start >= outer.start && inner.end <= outer.end;
    inside(one, other) || inside(other, one)
}

#[test]
fn it_agrees_with_validate_on_every_finding() {
    let validator = validator();
    let mut seen: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut unseen = Vec::new();
    let files = fixtures().into_iter().map(|path| {
        let shown = path.strip_prefix(root()).unwrap().display().to_string();
        let source = Source::new(path.file_name().unwrap().to_string_lossy(), std::fs::read_to_string(&path).unwrap());
        (shown, source, Some(path))
    });
    let shown = SHOWN.iter().map(|(name, text)| {
        (format!("{text:?}"), Source::new(*name, format!("model: anthropic/claude-sonnet-5-5\n{text}")), None)
    });
    let book = std::fs::read_dir(root().join("docs/src")).unwrap().flatten().map(|entry| entry.path());
    let pages = book.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([root().join("README.md")]);
    let pages: String = pages.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let examples = pages.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(text, _)| text);
    let examples = examples.filter(|text| text.contains("model:") && text.contains("parent:"));
    let examples = examples.map(|text| (format!("an example: {text:.60?}"), Source::new("job.yaml", text), None));
    let all: Vec<_> = files.chain(shown).chain(examples).collect();
    assert!(all.len() > 90, "{} files", all.len());
    for (shown, source, path) in all {
        // Only now: an open folder takes a descriptor.
        let folder = path.and_then(|path| JobDir::open(path.parent().unwrap()).ok());
        // Editors don't validate what isn't YAML.
        let Ok(job) = serde_yaml::from_str::<Value>(&source.text) else { continue };
        let faults = faults(&validator, &job, &yaml::read::<Node>(&source).value.unwrap());
        let checked = lints::check(&source, folder.as_ref());
        let errors: Vec<_> = checked.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
        let meets = |fault: &Fault, finding: &Diagnostic| {
            let places = std::iter::once(&finding.span).chain(finding.labels.iter().map(|label| &label.span));
            let mut here = places.filter(|place| Arc::ptr_eq(&place.source, &source));
            here.any(|place| fault.spans.iter().any(|span| overlap(span, &place.range)))
        };
        for fault in &faults {
            let is_found = errors.iter().any(|finding| meets(fault, finding));
            assert!(is_found, "{shown}: only the schema refuses this: {}", fault.message);
        }
        for finding in errors {
            // A missing key is reported for its whole mapping, so it does not account for other findings there.
            let sees = |fault: &Fault| (!fault.missing || finding.code == "missing-key") && meets(fault, finding);
            let is_seen = faults.iter().any(sees);
            seen.entry(finding.code).or_default()[usize::from(is_seen)] += 1;
            if !is_seen {
                let (line, column) = finding.span.start();
                unseen.push((finding.code, format!("{shown}:{line}:{column}: {}", finding.message)));
            }
        }
    }
    let old: Vec<String> = BEYOND
        .iter()
        .map(|(code, sees, _)| (code, *sees, seen.get(code).copied()))
        .filter(|(code, sees, found)| match found {
            Some([unseen, seen]) => *unseen == 0 || (*sees == Sees::Some) != (*seen > 0),
            // A schema reports no warnings.
            None => !lints::rules().any(|known| known.code == **code),
        })
        .map(|(code, _, found)| format!("{code}: {found:?} (unseen, seen)"))
        .collect();
    assert!(old.is_empty(), "BEYOND says otherwise: {old:#?}");
    unseen.retain(|(code, _)| !BEYOND.iter().any(|(beyond, ..)| beyond == code));
    assert!(unseen.is_empty(), "the schema accepts these; if it can't tell, say why in BEYOND: {unseen:#?}");
}

#[test]
fn a_script_is_refused_where_the_provider_refuses_it() {
    let validator = jsonschema::draft7::new(&script_schema()).unwrap();
    let scripts = files(&root().join("jobs")).into_iter().filter(|path| path.to_string_lossy().contains(".script."));
    let scripts: Vec<String> = scripts.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(scripts.len() > 3);
    let others = [
        "parent: []",
        "parent: [{ text: \"\" }]",
        "parent: [{ text: ~, thinking: ~, calls: ~, stop: ~, usage: ~ }]",
        "parent: [{ calls: [{ tool: glob, input: ~ }, { tool: none }], stop: pause, usage: { input_tokens: 1 } }]",
        "parent: []\nsubagents: { explorer-1: [{ text: x }] }",
        "parent: ~",
        "parent: [{}]",
        "parent: [x]",
        "parent: [{ txt: x }]",
        "parent: [{ text: [x] }]",
        "parent: [{ stop: ended }]",
        "parent: [{ usage: { input: 1 } }]",
        "parent: [{ usage: { input_tokens: -1 } }]",
        "parent: [{ calls: [{ input: {} }] }]",
        "parent: [{ calls: [{ tool: glob, input: x }] }]",
        "parent: []\nsubagents: { parent: [] }",
        "parent: []\nsubagents: ~",
        "subagents: {}",
        "[]",
    ];
    let mut refused = 0;
    for text in scripts.iter().map(String::as_str).chain(others) {
        let found = Script::read(&Source::new("script.yaml", text)).err();
        let accepted = validator.is_valid(&serde_yaml::from_str(text).unwrap());
        assert_eq!(accepted, found.is_none(), "{text}: {found:?}");
        refused += usize::from(!accepted);
    }
    assert_eq!(refused, 14);
}

/// Pseudorandom texts of these pieces, the same in every run.
fn texts(pieces: &[&str], count: usize) -> Vec<String> {
    let mut state = 0x9e37_79b9_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    (0..count).map(|_| (0..next(8)).map(|_| pieces[next(pieces.len())]).collect()).collect()
}

fn pattern(pattern: &str) -> Validator {
    jsonschema::draft7::new(&json!({ "pattern": pattern })).unwrap()
}

#[test]
fn valid_durations_are_accepted_and_most_others_refused() {
    for most in [MAX_DURATION, std::time::Duration::from_secs(3600), std::time::Duration::from_secs(90)] {
        let validator = pattern(&Duration::pattern(most));
        let parts = ["0", "1", "59", "61", "90", "719", "720", "721", "3600", "43200", "007", "h", "m", "s", "s", " "];
        let mut good = 0;
        for text in texts(&parts, 6_000) {
            let accepts = validator.is_valid(&json!(text));
            match Duration::parse(&text) {
                Ok(duration) if duration.get() <= most => {
                    assert!(accepts, "{text} of at most {most:?}");
                    good += 1;
                }
                Err(why) if !why.contains("longer") => assert!(!accepts, "{text}"),
                _ => {}
            }
        }
        assert!(good > 30, "{good}");
        let seconds = most.as_secs();
        for text in [format!("{}s", seconds + 1), format!("{}m", seconds / 60 + 1), format!("{}h", seconds / 3600 + 1)]
        {
            assert!(!validator.is_valid(&json!(text)), "{text} of at most {most:?}");
        }
    }
}

#[test]
fn valid_rules_are_accepted() {
    let bash = TOOLS.iter().find(|tool| tool.name == "bash").unwrap();
    let validator = jsonschema::draft7::new(&(bash.options_schema)().unwrap()).unwrap();
    let pieces = [
        "ls", "-a", " ", " ", "*", " *", ";", "|", "&", "'", "\"", "\\", "#", "$", "$a", "=", "a=b", "(", ")", "{",
        ",", "}", "[", "]", "<", ">", "?", "~", "!", "\n", "\t", "`", "2", "\u{a0}", "é", "..", "+=",
    ];
    let (mut good, mut bad) = (0, 0);
    for rule in texts(&pieces, 6_000) {
        let options = json!({ "allow": [rule] });
        let node = yaml::read::<Node>(&Source::new("options", options.to_string())).value.unwrap();
        let accepts = validator.is_valid(&options);
        if (bash.parse_options)(Some(&node)).findings.is_empty() {
            assert!(accepts, "{rule:?}");
            good += 1;
        } else if !accepts {
            bad += 1;
        }
    }
    assert!(good > 60 && bad > 600, "{good} good, {bad} bad ones refused");
}

#[test]
fn valid_paths_and_names_are_accepted() {
    let path = pattern(PATH_PATTERN);
    for text in texts(&["/", ".", "..", "./", "a", " ", "\n", "é"], 5_000) {
        assert!(text.is_empty() || leaves_dir(&text) || path.is_valid(&json!(text)), "{text:?}");
    }
    for text in ["/etc", "..", "../a", "./../a", "", "a\0b"] {
        assert!(!path.is_valid(&json!(text)), "{text:?}");
    }
    let (name, input) = (pattern(NAME_PATTERN), pattern(INPUT_NAME_PATTERN));
    for text in texts(&["a", "Z", "0", "-", "_", "é", " ", &"x".repeat(30)], 5_000) {
        assert_eq!(name.is_valid(&json!(text)), is_name(&text), "{text:?}");
        assert_eq!(input.is_valid(&json!(text)), is_input_name(&text), "{text:?}");
    }
}

#[test]
fn key_variables_are_refused_in_any_case() {
    let schema = job_schema();
    let variable = jsonschema::draft7::new(&schema["properties"]["env"]["items"]).unwrap();
    for (name, accepted) in [
        ("CARGO_HOME", true),
        ("ANTHROPIC_API_KEY_FILE", true),
        ("ANTHROPIC_API_KEY", false),
        ("anthropic_Api_key", false),
        ("GITHUB_ENV", false),
        ("github_env", true),
    ] {
        assert_eq!(variable.is_valid(&json!(name)), accepted, "{name}");
    }
}

/// The schemas of all keys, with their paths.
fn keys(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match schema {
        Value::Object(parts) => {
            for (name, part) in parts {
                if let ("properties", Value::Object(keys)) = (name.as_str(), part) {
                    found.extend(keys.iter().map(|(key, schema)| (format!("{path}/{key}"), schema.clone())));
                }
                keys(part, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| keys(item, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

#[test]
fn every_key_has_a_description() {
    assert!(jsonschema::draft7::meta::is_valid(&script_schema()));
    let schema = job_schema();
    assert!(jsonschema::draft7::meta::is_valid(&schema));
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let printed = schema.to_string();
    assert!(!printed.contains("$ref") && !printed.contains("definitions"));
    let mut all = Vec::new();
    keys(&schema, "", &mut all);
    keys(&script_schema(), "", &mut all);
    // Conditions repeat only the keys that they test.
    all.retain(|(path, _)| !path.contains("/if/") && !path.contains("/allOf/") && !path.contains("/then/then/"));
    assert!(all.len() > 50, "{}", all.len());
    for (path, key) in &all {
        let description = key["description"].as_str().unwrap_or_else(|| panic!("{path} has no description: {key}"));
        assert!(description.ends_with(['.', '!']) && !description.contains('\n'), "{path}: {description}");
        if let Some(default) = key.get("default") {
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            assert!(description.ends_with(&format!("Default: `{default}`.")), "{path}: {description}");
        }
        if let Some(words) = key.get("enum").and_then(Value::as_array) {
            for descriptions in ["enumDescriptions", "markdownEnumDescriptions"].map(|name| key.get(name)) {
                assert!(descriptions.is_none_or(|all| all.as_array().unwrap().len() == words.len()), "{path}");
            }
            assert!(key.get("enumDescriptions").is_some(), "{path}");
        }
    }
    let of = |path: &str| &all.iter().find(|(known, _)| known.ends_with(path)).unwrap().1;
    assert_eq!(of("/parent/max_turns")["default"], 50);
    assert_eq!(of("/additionalProperties/max_tokens")["default"], 4000);
    assert_eq!(of("/limits/wall_clock")["default"], "30m");
    for (path, count) in [("/parent/tools", TOOLS.len()), ("/additionalProperties/tools", TOOLS.len() - 1)] {
        let names = &of(path)["items"]["anyOf"][0];
        assert_eq!(names["enum"].as_array().unwrap().len(), count);
        assert!(names["enumDescriptions"].as_array().unwrap().iter().all(|text| text.as_str().unwrap().len() > 10));
    }
}

#[test]
fn example_models_have_prices() {
    for model in dynamic_enums::EXAMPLE_MODELS {
        let model =
            crate::lints::model_argument(model, &crate::providers::user_servers::UserServers::default()).unwrap();
        assert!(crate::pricing::Prices::new().has_price(model.price_key()) && model.retirement().is_none(), "{model}");
    }
}

#[test]
fn generation_is_deterministic() {
    assert_eq!(job_schema().to_string(), job_schema().to_string());
}

/// Values of all types, and some that are special somewhere.
fn all_values() -> Vec<Value> {
    let values = json!([
        null, true, 0, 1, -1, 1.5, 4_294_967_296_u64, "", " ", "x", "1", "0s", "1s", "/x", "../x", "none", "never", "^z", "x\ny",
        [], [null], ["x"], [1], {}, { "x": null }, { "x": 1 }
    ]);
    let Value::Array(values) = values else { unreachable!() };
    values
}

/// Files with each value at each place that a schema knows.
struct Variants<'a> {
    /// The values.
    values: &'a [Value],
    /// A key for mappings with any keys.
    key: &'a str,
}

impl Variants<'_> {
    /// What a place can contain: the values, and mappings and lists with the variants of what is in them.
    fn of(&self, schema: &Value) -> Vec<Value> {
        let parts = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
        let mut all: Vec<Value> = self.values.iter().chain(parts("enum")).chain(parts("examples")).cloned().collect();
        let forms = ["anyOf", "oneOf"].into_iter().flat_map(parts);
        let forms = forms.chain(["then", "else"].into_iter().filter_map(|key| schema.get(key)));
        all.extend(forms.flat_map(|form| self.of(form)));
        let items = schema.get("items").map(|items| self.of(items)).unwrap_or_default();
        all.extend(items.into_iter().map(|item| json!([item])));
        let required = self.required(schema);
        let mut add = |key: &str, part: &Value| {
            all.extend(self.of(part).into_iter().map(|value| {
                let mut mapping = required.clone();
                mapping.insert(key.to_owned(), value);
                Value::Object(mapping)
            }));
        };
        for (key, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            add(key, part);
        }
        if let Some(part) = schema.get("additionalProperties").filter(|part| part.is_object()) {
            add(self.key, part);
        }
        all
    }

    /// The keys that a mapping must have, each with a valid value.
    fn required(&self, schema: &Value) -> serde_json::Map<String, Value> {
        let keys = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        keys.filter_map(|key| Some((key.to_owned(), self.valid(schema["properties"].get(key)?)))).collect()
    }

    fn valid(&self, schema: &Value) -> Value {
        let validator = jsonschema::draft7::new(schema).unwrap();
        let mapping = Value::Object(self.required(schema));
        let words = schema.get("enum").and_then(Value::as_array).into_iter().flatten().cloned();
        let simple = [json!("x"), json!([]), mapping, json!("anthropic/claude-sonnet-5-5")];
        words.chain(simple).find(|value| validator.is_valid(value)).unwrap_or_else(|| panic!("{schema}"))
    }
}

/// The files that only the schema refuses, and how many it refuses and accepts.
fn only_refused_by_schema(
    schema: &Value,
    variants: &Variants<'_>,
    is_accepted: &dyn Fn(&Arc<Source>) -> bool,
) -> (Vec<String>, usize, usize) {
    let validator = jsonschema::draft7::new(schema).unwrap();
    let (accepted, refused): (Vec<Value>, Vec<Value>) =
        variants.of(schema).into_iter().partition(|value| validator.is_valid(value));
    let texts = refused.iter().map(Value::to_string);
    let wrong = texts.filter(|text| is_accepted(&Source::new("file.yaml", text.as_str()))).collect();
    (wrong, refused.len(), accepted.len())
}

#[test]
fn no_schema_refuses_what_the_program_accepts() {
    let has_no_error = |findings: &[Diagnostic]| findings.iter().all(|finding| finding.severity != Severity::Error);
    let values = all_values();
    let all =
        only_refused_by_schema(&crate::cases::expect_schema(), &Variants { values: &values, key: "bash" }, &|source| {
            crate::cases::check(source, Path::new("/none"), None).0.is_some()
        });
    assert!(all.1 > 300 && all.2 > 100, "{} refused, {} accepted", all.1, all.2);
    assert_eq!(all.0, Vec::<String>::new());
    let all = only_refused_by_schema(&script_schema(), &Variants { values: &values, key: "explorer-1" }, &|source| {
        Script::read(source).is_ok()
    });
    assert!(all.1 > 300 && all.2 > 100, "{} refused, {} accepted", all.1, all.2);
    assert_eq!(all.0, Vec::<String>::new());
    let values = [json!(null), json!(0), json!("x")];
    let all = only_refused_by_schema(&job_schema(), &Variants { values: &values, key: "ex" }, &|source| {
        has_no_error(&lints::check(source, None).findings)
    });
    assert!(all.1 > 300 && all.2 > 100, "{} refused, {} accepted", all.1, all.2);
    assert_eq!(all.0, Vec::<String>::new());
}
