use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::template::{JobDir, TemplateVariables, ValueType};
use crate::yaml::{self, Node};

/// Reads a schema next to these files: the bundle and the findings.
fn read(schema: &str, files: &[(&str, &str)]) -> (Option<serde_json::Value>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let opened = JobDir::open(folder.path()).unwrap();
    let node = yaml::read::<Node>(&Source::new("job.yaml", schema)).into_result().unwrap();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let inputs = TemplateVariables {
        inputs: names(&["labels", "depth", "title"]),
        types: [("labels", ValueType::List), ("depth", ValueType::Number), ("title", ValueType::List)]
            .map(|(name, kind)| (name.to_owned(), kind))
            .into(),
        secret: names(&["token"]),
        untrusted: names(&["title"]),
        inputs_incomplete: false,
        ..TemplateVariables::default()
    };
    let mut reader = SchemaReader::new(Some(&opened), &inputs);
    let value = reader.read(&node);
    let findings = reader.findings;
    assert!(value.is_none() == findings.iter().any(|it| it.severity == Severity::Error), "{findings:#?}");
    (value, findings.iter().map(shown).collect())
}

fn shown(finding: &Diagnostic) -> String {
    let (line, column) = finding.span.start();
    let file = finding.span.source.name.rsplit('/').next().unwrap().to_owned();
    let help = finding.help.as_deref().unwrap_or_default();
    format!("{file}:{line}:{column} {}: {} | {help}", finding.code, finding.message)
}

fn whole(schema: &str, files: &[(&str, &str)]) -> serde_json::Value {
    let (value, findings) = read(schema, files);
    assert!(findings.is_empty(), "{findings:#?}");
    value.unwrap()
}

/// Validates a value as a tool's input.
fn validate(schema: &serde_json::Value, input: &serde_json::Value) -> Result<serde_json::Value, String> {
    let input = RawValue::from_string(input.to_string()).unwrap();
    ToolSchema::new(schema).unwrap().read_validated(&input)
}

#[test]
fn files_become_one_schema_and_references_lead_into_it() {
    let schema = whole(
        "{ type: object, required: [a], properties: { a: { $ref: 'schemas/list.json' }, b: { $ref: '#/properties/a' } } }",
        &[
            (
                "schemas/list.json",
                r##"{ "$id": "https://example.com/s/list.json", "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "array", "items": { "$ref": "parts/one.yaml#/$defs/one" }, "x-note": { "$ref": "http://nowhere" } }"##,
            ),
            (
                "schemas/parts/one.yaml",
                "$defs:\n  one:\n    type: object\n    properties:\n      all: { $ref: '../list.json' }\n      self: { $ref: 'https://example.com/s/list.json' }\n      two: { $ref: '#two' }\n  other: { $anchor: two, type: integer }\n  odd: { $ref: nowhere.json }\n",
            ),
        ],
    );
    assert_eq!(schema["properties"]["a"]["$ref"], "#/$defs/list", "{schema:#}");
    assert_eq!(schema["$defs"]["list"]["items"]["$ref"], "#/$defs/one-one");
    assert_eq!(schema["$defs"]["one-one"]["properties"]["all"]["$ref"], "#/$defs/list");
    assert_eq!(schema["$defs"]["one-one"]["properties"]["self"]["$ref"], "#/$defs/list");
    assert_eq!(schema["$defs"]["one-one"]["properties"]["two"]["$ref"], "#/$defs/one-other");
    assert!(!schema.to_string().contains("nowhere") && !schema.to_string().contains("$id"), "{schema:#}");
    let fits = SchemaValidator::new(&schema).unwrap();
    assert!(fits.is_valid(&json!({ "a": [{ "all": [{}, { "two": 1 }] }] })));
    assert!(!fits.is_valid(&json!({ "a": [{ "all": [{ "two": "x" }] }] })));
    assert!(!fits.is_valid(&json!({ "a": [], "b": 1 })));
}

#[test]
fn a_file_alone_and_a_schema_that_refers_to_itself_work() {
    let tree = "type: object\nproperties:\n  name: { type: string }\n  below: { type: array, items: { $ref: '#' } }\n";
    let schema = whole("{ file: tree.yaml }", &[("tree.yaml", tree)]);
    assert_eq!(schema["properties"]["below"]["items"]["$ref"], "#");
    let within = whole("{ type: object, properties: { tree: { $ref: tree.yaml } } }", &[("tree.yaml", tree)]);
    assert_eq!(within["$defs"]["tree"]["properties"]["below"]["items"]["$ref"], "#/$defs/tree");
    let why = validate(&schema, &json!({ "below": [{ "below": [{ "name": 1 }] }] })).unwrap_err();
    assert!(why.contains("/below/0/below/0/name: expected a string, found 1"), "{why}");
}

#[test]
fn duplicate_names_get_a_number() {
    let schema = whole(
        "{ $ref: 'a/x.json', $defs: { x: true } }",
        &[("a/x.json", r#"{ "$ref": "../b/x.json" }"#), ("b/x.json", r#"{ "type": "null" }"#)],
    );
    assert_eq!(schema["$ref"], "#/$defs/x-2");
    assert_eq!(schema["$defs"]["x-2"]["$ref"], "#/$defs/x-3");
    assert!(
        SchemaValidator::new(&schema).unwrap().is_valid(&json!(null))
            && !SchemaValidator::new(&schema).unwrap().is_valid(&json!(1))
    );
}

#[test]
fn every_error_in_a_schema_has_its_place() {
    let (_, found) = read(
        "type: object\nproperties:\n  a: { type: strin }\n  b: { type: string, pattern: '(' }\n  c: { minimum: x }\n  d: { $ref: '#/$defs/gon' }\n  \
         e: { $ref: 'https://example.com/x.json' }\n  f: { $ref: gone.json }\n  g: { $ref: ../up.json }\n  h: { requierd: [x] }\n  i: { required: true }\n\
         $defs: { gone: true }\n",
        &[],
    );
    let expected = [
        "job.yaml:3:14 bad-schema: there is no type `strin` | did you mean `string`?",
        "job.yaml:4:31 bad-schema: `(` isn't a valid regular expression",
        "job.yaml:5:17 bad-schema: `minimum`: expected a number, found \"x\"",
        "job.yaml:6:14 bad-reference: there is no `#/$defs/gon` in the schema | did you mean `#/$defs/gone`?",
        "job.yaml:7:14 bad-reference: `https://example.com/x.json` is a URL, and nothing is ever fetched",
        "job.yaml:8:14 unreadable-file: there is no file `gone.json`",
        "job.yaml:9:14 outside-folder: `../up.json` is outside of the job's folder",
        "job.yaml:10:8 unknown-keyword: `requierd` isn't a keyword of JSON Schema, and has no effect | did you mean `required`?",
        "job.yaml:11:18 bad-schema: `required`: expected a list, found true | `required` is a list of names",
    ];
    for expected in expected {
        assert!(found.iter().any(|found| found.starts_with(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn endless_and_oversized_schemas_are_errors() {
    for (schema, what) in [
        ("{ $ref: '#' }", "leads back to itself"),
        ("{ anyOf: [{ $ref: '#/$defs/a' }], $defs: { a: { allOf: [{ $ref: '#' }] } } }", "leads back to itself"),
        ("{ $dynamicRef: '#x' }", "`$dynamicRef` isn't supported"),
        ("{ properties: { a: { $id: 'https://example.com/a' } } }", "`$id` isn't allowed in a subschema"),
        ("{ $schema: 'https://json-schema.org/draft/2021-12/schema' }", "isn't a known draft"),
        ("{ file: x.json, type: object }", "no other key is allowed next to `file`"),
        ("{ file: 7 }", "expected the path of a file"),
        ("[]", "expected a JSON Schema, found a list"),
        ("{ $ref: a.json }", "of another draft"),
        ("{ $ref: 'broken.json' }", "yaml-syntax"),
        ("{ $ref: 'huge.json' }", "larger than 1 MiB"),
        ("{ $ref: '#/type', type: object }", "leads to a value, which isn't a schema"),
    ] {
        let huge = format!("{{ \"description\": \"{}\" }}", "a".repeat(MAX_BYTES - 30));
        let files = [
            ("a.json", r#"{ "$schema": "http://json-schema.org/draft-07/schema#" }"#),
            ("broken.json", "{ a: ["),
            ("huge.json", huge.as_str()),
        ];
        let (value, found) = read(schema, &files);
        assert!(value.is_none() && found.iter().any(|found| found.contains(what)), "{schema}: {found:#?}");
    }
}

#[test]
fn older_drafts_are_converted() {
    let four = whole(
        "{ $schema: 'http://json-schema.org/draft-04/schema', type: object, properties: { a: { type: number, minimum: 1, exclusiveMinimum: true } } }",
        &[],
    );
    assert!(validate(&four, &json!({ "a": 1 })).unwrap_err().contains("/a: expected more than 1, found 1"));
    assert_eq!(
        ToolSchema::new(&four).unwrap().input_schema()["properties"]["a"],
        json!({ "type": "number", "exclusiveMinimum": 1 })
    );
    let seven = whole(
        "{ $schema: 'https://json-schema.org/draft-07/schema#', items: [{ type: integer }], additionalItems: false, definitions: { b: { $id: '#b', type: 'null' } }, contains: { $ref: '#b' } }",
        &[],
    );
    assert_eq!(seven["contains"]["$ref"], "#/definitions/b");
    let submission = ToolSchema::new(&seven).unwrap();
    let shown = submission.input_schema();
    assert_eq!(shown["properties"]["result"]["prefixItems"][0]["type"], "integer");
    assert_eq!(shown["properties"]["result"]["items"], false);
    assert_eq!(shown["definitions"]["b"]["type"], "null");
}

#[test]
fn data_other_than_objects_is_wrapped_and_unwrapped() {
    for schema in [
        json!({ "type": "array", "items": { "$ref": "#/$defs/one" }, "$defs": { "one": { "anyOf": [{ "type": "integer" }, { "$ref": "#" }] } } }),
        json!({ "$ref": "#/$defs/list", "$defs": { "list": { "type": "array", "items": { "type": ["integer", "array"] } } } }),
    ] {
        let submission = ToolSchema::new(&schema).unwrap();
        let asked = submission.input_schema();
        assert_eq!((&asked["type"], &asked["required"]), (&json!("object"), &json!(["result"])));
        assert!(SchemaValidator::new(asked).unwrap().is_valid(&json!({ "result": [1, [2]] })), "{asked:#}");
        assert!(!SchemaValidator::new(asked).unwrap().is_valid(&json!({ "result": ["x"] })), "{asked:#}");
        assert_eq!(validate(&schema, &json!({ "result": [1, [2]] })).unwrap(), json!([1, [2]]));
        assert!(validate(&schema, &json!({ "result": ["x"] })).unwrap_err().contains("\n- /result/0: "));
        assert!(
            validate(&schema, &json!({ "list": [1] }))
                .unwrap_err()
                .contains("an object with only the property `result`")
        );
    }
    let odd = json!({ "type": "object", "properties": { "größe": {} } });
    assert_eq!(ToolSchema::new(&odd).unwrap().input_schema()["required"], json!(["result"]));
    let plain = json!({ "type": "object", "properties": { "a": {} } });
    assert_eq!(*ToolSchema::new(&plain).unwrap().input_schema(), plain);
}

#[test]
fn all_violations_are_reported_up_to_a_bound() {
    let schema = json!({
        "type": "object",
        "required": ["a", "b"],
        "additionalProperties": false,
        "properties": {
            "a": { "enum": ["x", "y"] },
            "b": true,
            "when": { "format": "date" },
            "many": { "type": "array", "items": { "type": "integer" } },
            "which": { "oneOf": [{ "type": "integer" }, { "type": "object", "required": ["z"] }] },
        },
    });
    let why = validate(&schema, &json!({ "a": "z", "c": 1, "when": "soon", "which": {} })).unwrap_err();
    for line in [
        "for 5 reasons:",
        "\n- /a: expected one of [\"x\",\"y\"], found \"z\"",
        "\n- the whole value: \"b\" is missing",
        "\n- the whole value: the schema doesn't allow \"c\"",
        "\n- /when: expected a string with the format `date`, found \"soon\"",
        "\n- /which: fits none of the 2 alternatives: (1) expected a whole number, found {}; (2) \"z\" is missing",
    ] {
        assert!(why.contains(line), "{line}\n{why}");
    }
    let long = "x".repeat(100_000);
    let many: Vec<&str> = vec![&long; 500];
    let why = validate(&schema, &json!({ "a": "x", "b": 1, "many": many })).unwrap_err();
    assert!(why.contains("for 500 reasons") && why.contains("and 460 more") && why.len() < 20_000, "{}", &why[..500]);
}

#[test]
fn a_schema_that_multiplies_itself_is_an_error() {
    let schema = |levels: usize| {
        let level = |at: usize| {
            let below = format!("{{ $ref: '#/$defs/a{}' }}", at + 1);
            format!("a{at}: {{ allOf: [{below}, {below}] }}, ")
        };
        let levels: String = (0..levels).map(level).collect();
        format!(
            "{{ type: object, $ref: '#/$defs/a0', $defs: {{ {levels}a{}: {{}} }} }}",
            levels.matches("allOf").count()
        )
    };
    whole(&schema(8), &[]);
    for levels in [30, 200] {
        let (_, findings) = read(&schema(levels), &[]);
        assert!(
            findings.len() == 1 && findings[0].contains("more than 20000 schemas to the same value"),
            "{findings:?}"
        );
    }
}

#[test]
fn an_enum_can_be_a_list_input() {
    let text = r##"
type: object
properties:
  label: { enum: "{{ inputs.labels }}" }
  others: { type: array, items: { $ref: "#/$defs/label" } }
$defs: { label: { enum: "{{inputs.labels}}" } }
"##;
    let schema = whole(text, &[]);
    assert_eq!(enum_inputs(&schema), ["labels", "labels"]);
    let rendered = with_enum_values(&schema, |name| {
        assert_eq!(name, "labels");
        vec![json!("bug"), json!("docs"), json!("bug")]
    });
    assert_eq!(rendered["properties"]["label"]["enum"], json!(["bug", "docs"]));
    assert_eq!(rendered["$defs"]["label"]["enum"], json!(["bug", "docs"]));
    assert!(validate(&rendered, &json!({ "label": "docs", "others": ["bug"] })).is_ok());
    assert!(validate(&rendered, &json!({ "label": "else" })).is_err());
    assert!(validate(&rendered, &json!({ "others": ["else"] })).is_err());
    let in_a_file = whole("{ file: labels.json }", &[("labels.json", r#"{ "enum": "{{ inputs.labels }}" }"#)]);
    assert_eq!(enum_inputs(&in_a_file), ["labels"]);
}

#[test]
fn an_enum_can_be_no_other_text() {
    let message = |text: &str| {
        let (value, findings) = read(&format!("{{ enum: \"{text}\" }}"), &[]);
        assert!(value.is_none());
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings[0].clone()
    };
    let list =
        "job.yaml:1:9 bad-schema: `enum` is a list of values, or `{{ inputs.NAME }}` with an input that is a list";
    for text in ["a", "", "{{ inputs }}", "{{ inputs.labels | sort }}", "x {{ inputs.labels }}", "{{ labels }}"] {
        assert!(message(text).starts_with(list), "{text}: {}", message(text));
    }
    assert!(message("{{ inputs.lables }}").ends_with("the job has no input `lables` | did you mean `inputs.labels`?"));
    for (name, why) in [("depth", "isn't a list; give it `type: list`"), ("title", "untrusted"), ("token", "is secret")]
    {
        let message = message(&format!("{{{{ inputs.{name} }}}}"));
        assert!(
            message.contains(&format!("can't use the input `{name}`, which")) && message.contains(why),
            "{message}"
        );
    }
}
