use serde_json::json;

use super::*;
use crate::diagnostic::{Diagnostic, Source};
use crate::lints::{self, ValidJob};
use crate::providers::Model;

fn valid(text: &str) -> ValidJob {
    let checked = lints::check(&Source::new("jobs/tour.yaml", text), None);
    checked.job.unwrap_or_else(|| panic!("{:?}", checked.findings))
}

fn facts() -> RunContext {
    RunContext {
        workspace: "/home/me/project".to_owned(),
        inputs_from: None,
        run_id: "<run.id>".to_owned(),
        run_date: "<run.date>".to_owned(),
        model_override: None,
        trigger: None,
    }
}

fn given(arguments: &[&str]) -> InputValues {
    let mut given = InputValues::default();
    for argument in arguments {
        given.set(argument, |_| Err(std::io::Error::other("no files here")));
    }
    given
}

fn plan(text: &str, given: &InputValues) -> Result<(Plan, SecretInputs), Vec<Diagnostic>> {
    Plan::new(&valid(text), given, &facts())
}

/// The findings as `code line:column shown text`.
fn told(findings: &[Diagnostic]) -> Vec<String> {
    let told = |finding: &Diagnostic| {
        let (line, column) = finding.span.start();
        let text = &finding.span.source.text[finding.span.range.clone()];
        format!("{} {} {line}:{column} {text}", finding.code, finding.span.source.name)
    };
    findings.iter().map(told).collect()
}

const SMALLEST: &str = "model: anthropic/x\nparent: { prompt: Do it., tools: [task] }\n";

const INPUTS: &str = "\
model: anthropic/x
inputs:
  text: { type: string }
  style: { type: string, enum: [google, numpy], default: google }
  count: { type: integer, default: 3 }
  share: { type: number, default: 0.5 }
  deep: { type: boolean, default: false }
  folder: { type: path, default: src }
  files: { type: list, default: [] }
parent:
  prompt: \"{{ inputs.text }}|{{ inputs.style }}|{{ inputs.count }}|{{ inputs.share }}|{{ inputs.deep }}|{{ inputs.folder }}|{{ inputs.files | join('+') }}\"
  tools: []
";

const SECRET: &str = "\
model: anthropic/x
inputs:
  token: { type: string, secret: true }
  topic: { type: string, default: x }
parent: { prompt: \"{{ inputs.topic }} {{ inputs | length }}\", tools: [] }
";

#[test]
fn the_smallest_job_gets_a_general_subagent_and_all_defaults() {
    let (plan, secrets) = plan(SMALLEST, &InputValues::default()).unwrap();
    assert_eq!(plan.job, "tour");
    assert_eq!((plan.parent.max_turns, plan.parent.max_tokens), (50, 8000));
    assert_eq!(plan.limits.wall_clock_ms, Some(30 * 60 * 1000));
    assert_eq!((plan.limits.tool_calls, plan.limits.subagents), (Some(1000), Some(50)));
    assert_eq!(plan.limits.parallel_subagents, 4);
    let general = &plan.subagents["general"];
    let names: Vec<&str> = general.tools.iter().map(|grant| grant.name.as_str()).collect();
    assert_eq!(names, ["read_file", "glob", "grep"]);
    assert_eq!((general.max_turns, general.max_tokens), (30, 4000));
    assert!(general.system.contains("/home/me/project") && general.prompt.is_none());
    assert!(secrets.pairs().is_empty());
}

#[test]
fn the_general_subagent_has_the_parents_other_tools() {
    let text = "model: anthropic/x\nparent: { prompt: Do it., tools: [edit_file, task, todo] }\n";
    let (plan, _) = plan(text, &InputValues::default()).unwrap();
    let names: Vec<&str> = plan.subagents["general"].tools.iter().map(|grant| grant.name.as_str()).collect();
    assert_eq!(names, ["edit_file", "todo"]);
}

#[test]
fn no_subagent_without_task() {
    let (plan, _) =
        plan("model: anthropic/x\nparent: { prompt: Do it., tools: [glob] }\n", &InputValues::default()).unwrap();
    assert!(plan.subagents.is_empty());
    assert!(!plan.parent.system.contains("subagent"));
}

#[test]
fn every_kind_of_input_is_taken_from_arguments() {
    let arguments = [
        "text=a=b {{ workspace }}",
        "style=numpy",
        "count=-7",
        "share=2",
        "deep=true",
        "folder=/home/me/project/lib",
        "files=a.rs, b.rs",
    ];
    let (plan, _) = plan(INPUTS, &given(&arguments)).unwrap();
    assert_eq!(plan.parent.prompt.unwrap(), "a=b {{ workspace }}|numpy|-7|2|True|lib|a.rs+b.rs");
    assert_eq!(plan.inputs["files"], json!(["a.rs", "b.rs"]));
    assert_eq!(plan.inputs["folder"], json!("lib"));
}

#[test]
fn defaults_fill_in_and_keep_the_jobs_order() {
    let (plan, _) = plan(INPUTS, &given(&["text=t"])).unwrap();
    assert_eq!(plan.parent.prompt.unwrap(), "t|google|3|0.5|False|src|");
    let names: Vec<&str> = plan.inputs.keys().map(String::as_str).collect();
    assert_eq!(names, ["text", "style", "count", "share", "deep", "folder", "files"]);
}

#[test]
fn all_errors_in_inputs_are_found_at_once() {
    let arguments =
        ["style=sphinx", "count=many", "deep=yes", "folder=../x", "cuont=1", "share=1", "share=2", "nonsense"];
    let findings = plan(INPUTS, &given(&arguments)).unwrap_err();
    let mut found = told(&findings);
    found.sort();
    assert_eq!(
        found,
        [
            "bad-input --set 1:7 sphinx",
            "bad-input --set 1:6 yes",
            "bad-input --set 1:7 many",
            "bad-input --set 1:8 ../x",
            "bad-set-argument --set 1:1 nonsense",
            "duplicate-input --set 1:1 share",
            "unknown-input --set 1:1 cuont",
        ]
        .map(str::to_owned)
        .into_iter()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
    );
    let unknown = findings.iter().find(|finding| finding.code == "unknown-input").unwrap();
    assert_eq!(unknown.help.as_deref(), Some("did you mean `count`?"));
}

#[test]
fn a_missing_input_points_to_its_declaration() {
    let findings = plan(INPUTS, &InputValues::default()).unwrap_err();
    assert_eq!(told(&findings), ["missing-input jobs/tour.yaml 3:3 text"]);
    assert!(findings[0].help.as_ref().unwrap().contains("--set text=VALUE"));
}

#[test]
fn files_and_variables_give_values() {
    let mut given = InputValues::default();
    given.set("text=@notes.md", |from| {
        assert_eq!(from, ValueSource::File("notes.md"));
        Ok(b"one\ntwo\r\n".to_vec())
    });
    given.set("files=@-", |from| {
        assert_eq!(from, ValueSource::Stdin);
        Ok(b"a,b\n\nc\n".to_vec())
    });
    given.set("style=google", |_| panic!("no file is named"));
    given.set_env("folder=FOLDER", |name| (name == "FOLDER").then(|| "src/x".into()));
    let (plan, _) = plan(INPUTS, &given).unwrap();
    assert_eq!(plan.inputs["text"], json!("one\ntwo"));
    assert_eq!(plan.inputs["files"], json!(["a,b", "c"]));
    assert_eq!(plan.inputs["folder"], json!("src/x"));
}

#[test]
fn unreadable_sources_are_named() {
    let mut given = given(&["text=@missing", "style=@@odd"]);
    given.set("folder=@x", |_| Ok(vec![0xff]));
    given.set("files=@y", |_| Ok(vec![b'a'; MAX_VALUE_BYTES + 1]));
    given.set_env("count=NOTHING", |_| None);
    given.set_env("deep", |_| panic!("no variable is named"));
    let findings = plan(INPUTS, &given).unwrap_err();
    assert_eq!(
        told(&findings),
        [
            "unreadable-input --set 1:6 @missing",
            "unreadable-input --set 1:8 @x",
            "unreadable-input --set 1:7 @y",
            "unreadable-input --set-env 1:7 NOTHING",
            "bad-set-argument --set-env 1:1 deep",
            "bad-input --set 1:7 @@odd",
        ]
    );
}

#[test]
fn arguments_take_precedence_over_a_file() {
    let mut given = given(&["count=9"]);
    given.file(&Source::new("in.yaml", "text: from file\ncount: 4\nfiles: [a, b]\ndeep: true\nshare: 1\n"));
    let (plan, _) = plan(INPUTS, &given).unwrap();
    assert_eq!(plan.parent.prompt.unwrap(), "from file|google|9|1|True|src|a+b");
}

#[test]
fn mistakes_in_a_file_have_their_places() {
    let mut given = InputValues::default();
    given.file(&Source::new("in.yaml", "text: 5\ncount: 1.5\nfiles: [a, 1]\ndeep: yes\nstlye: numpy\ntext: a\n"));
    let findings = plan(INPUTS, &given).unwrap_err();
    let mut found = told(&findings);
    found.sort();
    assert_eq!(
        found,
        [
            "bad-input in.yaml 1:7 5",
            "bad-input in.yaml 2:8 1.5",
            "bad-input in.yaml 3:8 [a, 1]",
            "bad-input in.yaml 4:7 yes",
            "duplicate-key in.yaml 6:1 text",
            "unknown-input in.yaml 5:1 stlye",
        ]
    );
    let mut given = InputValues::default();
    given.file(&Source::new("in.yaml", "- a\n"));
    assert_eq!(plan(INPUTS, &given).unwrap_err()[0].code, "bad-input");
}

#[test]
fn a_secret_is_returned_separately_from_the_plan() {
    let mut given = InputValues::default();
    given.set_env("token=TOKEN", |_| Some("hunter2hunter2".into()));
    let (plan, secrets) = plan(SECRET, &given).unwrap();
    assert_eq!(secrets.pairs(), [("token".to_owned(), "hunter2hunter2".to_owned())]);
    assert_eq!(plan.secret_inputs, ["token"]);
    assert_eq!(plan.parent.prompt.as_deref(), Some("x 1"));
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"));
    assert!(!format!("{secrets:?} {given:?}").contains("hunter2"));
}

#[test]
fn no_finding_shows_a_secret() {
    let mut files = InputValues::default();
    files.file(&Source::new("in.yaml", "{ token: [hunter2], topik: hunter2, topic: 5 }\n"));
    let mut broken = InputValues::default();
    broken.file(&Source::new("in.yaml", "token: hunter2\n  x: [\n"));
    for given in [given(&["token= ", "tokn=hunter2", "token=hunter2"]), files, broken] {
        let findings = plan(SECRET, &given).unwrap_err();
        assert!(!findings.is_empty());
        for finding in findings {
            let labels = finding.labels.iter().map(|label| label.span.source.text.clone()).collect::<String>();
            let shown = format!("{} {} {labels} {:?}", finding.message, finding.span.source.text, finding.help);
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}

#[test]
fn an_empty_secret_is_refused() {
    let mut given = InputValues::default();
    given.set_env("token=TOKEN", |_| Some("".into()));
    assert_eq!(told(&plan(SECRET, &given).unwrap_err()), ["bad-input --set-env 1:7 TOKEN"]);
    let missing = plan(SECRET, &InputValues::default()).unwrap_err();
    assert!(missing[0].help.as_ref().unwrap().contains("--set-env token=VARIABLE"));
}

#[test]
fn a_prompt_that_renders_to_nothing_is_refused() {
    let text = "\
model: anthropic/x
inputs: { topic: { type: string } }
parent: { prompt: \"{% if inputs.topic %}About {{ inputs.topic }}{% endif %} \", tools: [] }
";
    assert!(plan(text, &given(&["topic=x"])).is_ok());
    assert_eq!(plan(text, &given(&["topic="])).unwrap_err()[0].code, "empty-prompt");
}

#[test]
fn every_text_that_fails_to_render_is_found() {
    let text = "\
model: anthropic/x
inputs: { topic: { type: string } }
parent: { system: \"{{ inputs.topic | float }}\", prompt: \"{{ inputs.topic | int }}\", tools: [task] }
subagents:
  a: { description: A., system: \"{{ inputs.topic | int + 1 }}\", tools: [] }
";
    let findings = plan(text, &given(&["topic=x"])).unwrap_err();
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(findings.iter().all(|finding| finding.code == "render-failed"));
}

#[test]
fn an_override_replaces_every_model() {
    let text = "\
model: { name: anthropic/x, thinking: low }
parent: { prompt: Do it., tools: [task] }
subagents:
  a: { description: A., tools: [], model: anthropic/y }
  b: { description: B., tools: [] }
";
    let job = valid(text);
    let (plan, _) = Plan::new(&job, &InputValues::default(), &facts()).unwrap();
    assert_eq!(plan.subagents["a"].model.name, "y");
    assert_eq!(plan.subagents["b"].model, plan.parent.model);
    assert_eq!(plan.parent.model.thinking, Some(crate::job::Thinking::Low));
    let model = Model::new("replay", "x.yaml");
    let facts = RunContext { model_override: Some(model.clone()), ..facts() };
    let (plan, _) = Plan::new(&job, &InputValues::default(), &facts).unwrap();
    assert_eq!(plan.parent.model, model);
    assert!(plan.subagents.values().all(|agent| agent.model == model));
}

#[test]
fn the_same_input_gives_the_same_bytes_and_they_can_be_read_back() {
    let bytes = || {
        let (plan, _) = plan(INPUTS, &given(&["text=t", "files=z,a"])).unwrap();
        serde_json::to_string_pretty(&plan).unwrap()
    };
    assert_eq!(bytes(), bytes());
    let read: Plan = serde_json::from_str(&bytes()).unwrap();
    assert_eq!(serde_json::to_string_pretty(&read).unwrap(), bytes());
}

#[test]
fn a_value_that_cannot_be_read_says_what_to_do() {
    let help_of = |fill: &dyn Fn(&mut InputValues)| {
        let mut given = InputValues::default();
        fill(&mut given);
        given.findings[0].help.clone().unwrap()
    };
    let large = help_of(&|given| given.set("a=@f", |_| Ok(vec![b'a'; super::input_values::MAX_VALUE_BYTES + 1])));
    assert!(large.contains("shorter"), "{large}");
    let binary = help_of(&|given| given.set("a=@f", |_| Ok(vec![0xff])));
    assert!(binary.contains("UTF-8"), "{binary}");
    let folder = help_of(&|given| given.set("a=@src", |_| Err(std::io::Error::other("it is a folder"))));
    assert!(folder.contains("regular file") && !folder.contains("as `@@`"), "{folder}");
    let missing = help_of(&|given| given.set("a=@gone", |_| Err(std::io::Error::other("there is no such file"))));
    assert!(missing.contains("as `@@`"), "{missing}");
    let unset = help_of(&|given| given.set_env("a=TOKEN", |_| None));
    assert!(unset.contains("set `TOKEN`"), "{unset}");
}

fn rows(job: &ValidJob, name: &str, content: &str) -> crate::map::rows::Rows {
    let format = crate::map::rows::RowFormat::detect(std::path::Path::new(name), content.as_bytes());
    crate::map::rows::read(name, content.as_bytes().to_vec(), format, None, job.job()).unwrap()
}

#[test]
fn a_row_gives_inputs_with_their_types_and_places() {
    let job = valid(INPUTS);
    let from_csv = rows(&job, "r.csv", "text,count,files\na b,7,\"x,y\"\n\"a\nb\",seven,z\n");
    let from_json = rows(&job, "r.json", r#"[{"text": "a b", "count": 7, "files": ["x", "y"]}, {"count": "7"}]"#);
    for rows in [&from_csv, &from_json] {
        let mut inputs = given(&["deep=true"]);
        inputs.set_row(&rows.source, rows.rows[0].clone());
        let (plan, _) = Plan::new(&job, &inputs, &facts()).unwrap();
        assert_eq!(plan.parent.prompt.as_deref(), Some("a b|google|7|0.5|True|src|x+y"));
    }
    let mut inputs = given(&[]);
    inputs.set_row(&from_csv.source, from_csv.rows[1].clone());
    assert_eq!(told(&Plan::new(&job, &inputs, &facts()).unwrap_err()), ["bad-input r.csv 4:4 seven"]);
    inputs.set_row(&from_json.source, from_json.rows[1].clone());
    let expected = ["bad-input r.json 1:62 \"7\"", "missing-input r.json 1:52 {\"count\": \"7\"}"];
    let mut found = told(&Plan::new(&job, &inputs, &facts()).unwrap_err());
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn an_input_of_a_row_and_an_argument_is_an_error_and_a_secret_never_belongs_to_a_row() {
    let job = valid(INPUTS);
    let rows_of_text = rows(&job, "r.csv", "text\nhello\n");
    let mut inputs = given(&["text=other"]);
    inputs.set_row(&rows_of_text.source, rows_of_text.rows[0].clone());
    let findings = Plan::new(&job, &inputs, &facts()).unwrap_err();
    assert_eq!(told(&findings), ["duplicate-input --set 1:1 text"]);
    let job = valid(SECRET);
    let topics = rows(&job, "r.csv", "topic\nhello\n");
    let mut inputs = given(&[]);
    inputs.set_row(&topics.source, topics.rows[0].clone());
    let findings = Plan::new(&job, &inputs, &facts()).unwrap_err();
    assert!(told(&findings)[0].starts_with("missing-input jobs/tour.yaml 3:3"), "{:?}", told(&findings));
}
