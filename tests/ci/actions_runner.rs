//! A runner for workflows of GitHub: the jobs of a file with their steps and expressions, and the action of this repository with its
//! own steps. Checkouts and artifacts are folders.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::house::source::root;
use crate::support::program::ProgramOutput;
use crate::support::test_folder::TestFolder;

/// A runner, whose machine is a folder.
pub(crate) struct ActionsRunner<'a> {
    pub(crate) folder: &'a TestFolder,
    /// Variables of the machine, such as the address of the API.
    pub(crate) machine: BTreeMap<String, String>,
    /// The context `github`, with the event in `event`.
    pub(crate) github: Value,
    /// Where artifacts are kept: the runs of all workflows share it.
    pub(crate) artifacts: PathBuf,
    /// Inputs that replace those of a step of the action: where legwork is, and which sandbox this machine has.
    pub(crate) overridden: BTreeMap<&'static str, String>,
}

/// What became of a job, or of an action.
#[derive(Debug, Default)]
pub(crate) struct JobEnd {
    /// The context `steps`.
    pub(crate) steps: Map<String, Value>,
    /// What the scripts printed.
    pub(crate) printed: String,
    pub(crate) has_failed: bool,
}

/// The values of one job or one action.
struct Contexts {
    values: Map<String, Value>,
    end: JobEnd,
    env: BTreeMap<String, String>,
}

impl<'a> ActionsRunner<'a> {
    /// A runner for an event of the repository `o/r`.
    pub(crate) fn new(folder: &'a TestFolder, api: &str, event_name: &str, event: &Value) -> Self {
        let place = folder.home().join(format!("runner-{event_name}"));
        fs::create_dir_all(place.join("temp")).unwrap();
        fs::create_dir_all(place.join("bin")).unwrap();
        // The action would install bubblewrap.
        for name in ["sudo", "apt-get"] {
            fs::write(place.join("bin").join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(place.join("bin").join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let event_path = place.join("event.json");
        fs::write(&event_path, event.to_string()).unwrap();
        let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
        let machine = [
            ("PATH", path),
            ("RUNNER_TEMP", place.join("temp").display().to_string()),
            ("GITHUB_ACTIONS", "true".to_owned()),
            ("GITHUB_REPOSITORY", "o/r".to_owned()),
            ("GITHUB_SERVER_URL", "https://github.example".to_owned()),
            ("GITHUB_API_URL", api.to_owned()),
            ("GITHUB_EVENT_NAME", event_name.to_owned()),
            ("GITHUB_EVENT_PATH", event_path.display().to_string()),
            ("GITHUB_RUN_ID", "77".to_owned()),
            ("GITHUB_RUN_ATTEMPT", "1".to_owned()),
            ("GITHUB_STEP_SUMMARY", place.join("summary").display().to_string()),
            ("LEGWORK_PUBLISH_PAUSE_MS", "0".to_owned()),
            ("LEGWORK_RETRY_BASE_MS", "1".to_owned()),
            ("LEGWORK_USERNS_RESTRICTION", "/nonexistent".to_owned()),
        ];
        let github = json!({
            "event": event, "event_name": event_name, "event_path": event_path, "repository": "o/r", "run_id": 77,
            "run_attempt": 1, "workflow": "reviews of pulls", "token": crate::support::forge::TOKEN,
            "action_path": root(), "action_ref": "v0.1.0", "action_repository": "OWNER/legwork",
        });
        let artifacts = folder.home().join("artifacts");
        let overridden = [("path", env!("CARGO_BIN_EXE_legwork")), ("sandbox", "auto")]
            .map(|(name, value)| (name, value.to_owned()));
        let machine = machine.map(|(name, value)| (name.to_owned(), value)).into();
        Self { folder, machine, github, artifacts, overridden: overridden.into() }
    }

    /// Runs a job of a workflow.
    pub(crate) fn job(&self, workflow: &Value, name: &str) -> JobEnd {
        let job = &workflow["jobs"][name];
        let mut github = self.github.clone();
        github["job"] = json!(name);
        let mut contexts = Contexts::new(&github);
        contexts.env = self.machine.clone();
        contexts.env.insert("GITHUB_JOB".to_owned(), name.to_owned());
        if !contexts.holds(&job["if"]) {
            return contexts.end;
        }
        // A group has a value.
        if let Some(group) = job["concurrency"]["group"].as_str() {
            let group = contexts.fill(group);
            assert!(!group.ends_with('-') && !group.contains("--"), "{group}");
        }
        for (at, step) in job["steps"].as_array().expect("steps").iter().enumerate() {
            self.step(step, at, &mut contexts);
        }
        contexts.end
    }

    /// Runs a step of the action, which is in no workflow.
    pub(crate) fn action(&self, inputs: &[(&str, &str)], env: &[(&str, &str)]) -> JobEnd {
        let workflow = json!({ "jobs": { "review": { "steps": [
            { "id": "legwork", "uses": "OWNER/legwork@v0.1.0", "with": Map::from_iter(inputs.iter().map(|(name, value)| ((*name).to_owned(), json!(value)))),
              "env": Map::from_iter(env.iter().map(|(name, value)| ((*name).to_owned(), json!(value)))) },
        ] } } });
        self.job(&workflow, "review")
    }

    fn step(&self, step: &Value, at: usize, contexts: &mut Contexts) {
        let id = step["id"].as_str().map_or_else(|| format!("step-{at}"), str::to_owned);
        if !contexts.holds(&step["if"]) {
            contexts.end.steps.insert(id, json!({ "outcome": "skipped", "outputs": {} }));
            return;
        }
        let mut env = contexts.env.clone();
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            env.insert(name.clone(), contexts.fill(&text(value)));
        }
        let with = step["with"].as_object().into_iter().flatten();
        let with: BTreeMap<String, String> =
            with.map(|(name, value)| (name.clone(), contexts.fill(&text(value)))).collect();
        let (has_failed, outputs) = match (step["uses"].as_str(), step["run"].as_str()) {
            (Some(uses), None) if uses.starts_with("OWNER/legwork@") => {
                let end = self.composite(&id, &with, env, contexts);
                contexts.end.printed += &end.0;
                (end.1, end.2)
            }
            (Some(uses), None) => {
                self.builtin(uses, &with);
                (false, Map::new())
            }
            (None, Some(script)) => {
                let output = self.folder.home().join(format!("output-{at}"));
                let _ = fs::remove_file(&output);
                let ended = self.script(&contexts.fill(script), &env, &output);
                contexts.end.printed += &ended.full_output();
                let text = fs::read_to_string(output).unwrap_or_default();
                let pairs = text.lines().filter_map(|line| line.split_once('='));
                (!ended.exited_with(0), pairs.map(|(name, value)| (name.to_owned(), json!(value))).collect())
            }
            other => panic!("{other:?}"),
        };
        contexts.end.has_failed |= has_failed;
        let outcome = if has_failed { "failure" } else { "success" };
        contexts.end.steps.insert(id, json!({ "outcome": outcome, "outputs": outputs }));
    }

    fn script(&self, script: &str, env: &BTreeMap<String, String>, output: &Path) -> ProgramOutput {
        let program = self.folder.program("bash", &["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]);
        let program = env.iter().fold(program, |program, (name, value)| program.env(name, value));
        program.env("GITHUB_OUTPUT", output).run()
    }

    /// Runs the steps of action.yml. Returns what they printed, whether one failed, and the action's outputs.
    fn composite(
        &self,
        id: &str,
        with: &BTreeMap<String, String>,
        env: BTreeMap<String, String>,
        outer: &Contexts,
    ) -> (String, bool, Map<String, Value>) {
        let action = fs::read_to_string(root().join("action.yml")).unwrap();
        let action: Value = serde_yaml::from_str(&action).unwrap();
        let mut github = outer.values["github"].clone();
        github["action"] = json!(id);
        let mut contexts = Contexts::new(&github);
        contexts.env = env;
        contexts.env.insert("GITHUB_ACTION".to_owned(), id.to_owned());
        let known = action["inputs"].as_object().unwrap();
        assert_eq!(with.keys().find(|name| !known.contains_key(*name)), None, "an input of the action");
        let mut inputs = Map::new();
        for (name, input) in known {
            let default = || contexts.fill(&text(&input["default"]));
            let value = with.get(name).cloned().unwrap_or_else(default);
            assert!(!value.is_empty() || input["required"] != true, "{name} is required");
            inputs.insert(name.clone(), json!(self.overridden.get(&**name).unwrap_or(&value)));
        }
        contexts.values.insert("inputs".to_owned(), Value::Object(inputs));
        for (at, step) in action["runs"]["steps"].as_array().unwrap().iter().enumerate() {
            self.step(step, 100 + at, &mut contexts);
        }
        let outputs = action["outputs"].as_object().unwrap();
        let outputs = outputs.iter().map(|(name, it)| (name.clone(), json!(contexts.fill(&text(&it["value"])))));
        let outputs = outputs.collect();
        (contexts.end.printed, contexts.end.has_failed, outputs)
    }

    /// The actions of GitHub itself.
    fn builtin(&self, uses: &str, with: &BTreeMap<String, String>) {
        let get = |name: &str| with.get(name).map(String::as_str);
        match uses.split('@').next().unwrap() {
            "actions/checkout" => match (get("path"), get("ref")) {
                (Some(path), Some(commit)) => {
                    self.folder.git(&["worktree", "add", "--quiet", "--detach", path, commit]);
                }
                (None, Some(commit)) => drop(self.folder.git(&["checkout", "--quiet", "--detach", commit])),
                (_, None) => {}
            },
            "actions/upload-artifact" => {
                let to = self.artifacts.join(get("name").unwrap());
                let from = self.folder.at(get("path").unwrap());
                let _ = fs::remove_dir_all(&to);
                copy(&from, &if from.is_dir() { to } else { to.join(from.file_name().unwrap()) });
            }
            "actions/download-artifact" => {
                copy(&self.artifacts.join(get("name").unwrap()), &self.folder.at(get("path").unwrap()));
            }
            other => panic!("{other}"),
        }
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Contexts {
    fn new(github: &Value) -> Self {
        let values = json!({ "github": github, "strategy": { "job-index": 0 } });
        let Value::Object(values) = values else { unreachable!() };
        Self { values, end: JobEnd::default(), env: BTreeMap::new() }
    }

    /// Whether a step with this `if` runs.
    fn holds(&self, condition: &Value) -> bool {
        let condition = text(condition);
        let inner = condition.trim().trim_start_matches("${{").trim_end_matches("}}");
        let asks = ["always()", "cancelled()", "failure()"].iter().any(|name| inner.contains(name));
        let value = if inner.is_empty() { json!(true) } else { self.evaluate(inner) };
        is_true(&value) && (asks || !self.end.has_failed)
    }

    /// The text with the values of its expressions.
    fn fill(&self, text_with: &str) -> String {
        let (mut filled, mut rest) = (String::new(), text_with);
        while let Some((before, after)) = rest.split_once("${{") {
            let (expression, after) = after.split_once("}}").expect("the end of an expression");
            filled += &format!("{before}{}", text(&self.evaluate(expression)));
            rest = after;
        }
        filled + rest
    }

    fn evaluate(&self, expression: &str) -> Value {
        let mut parser = Parser { rest: expression.trim(), contexts: self };
        let value = parser.or();
        assert_eq!(parser.rest, "", "the rest of {expression}");
        value
    }
}

fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false)) && *value != "" && *value != 0
}

/// Evaluates an expression of GitHub.
struct Parser<'e> {
    rest: &'e str,
    contexts: &'e Contexts,
}

impl Parser<'_> {
    fn takes(&mut self, token: &str) -> bool {
        let found = self.rest.strip_prefix(token);
        found.inspect(|rest| self.rest = rest.trim_start()).is_some()
    }

    fn or(&mut self) -> Value {
        let mut value = self.and();
        while self.takes("||") {
            let right = self.and();
            value = if is_true(&value) { value } else { right };
        }
        value
    }

    fn and(&mut self) -> Value {
        let mut value = self.compared();
        while self.takes("&&") {
            let right = self.compared();
            value = if is_true(&value) { right } else { value };
        }
        value
    }

    fn compared(&mut self) -> Value {
        let value = self.single();
        // A missing value equals an empty text.
        if self.takes("==") {
            return json!(text(&value) == text(&self.single()));
        }
        if self.takes("!=") {
            return json!(text(&value) != text(&self.single()));
        }
        value
    }

    fn single(&mut self) -> Value {
        if self.takes("!") {
            return json!(!is_true(&self.single()));
        }
        if self.takes("(") {
            let value = self.or();
            assert!(self.takes(")"), "`)` before {}", self.rest);
            return value;
        }
        if let Some(rest) = self.rest.strip_prefix('\'') {
            let (literal, rest) = rest.split_once('\'').expect("the end of a text");
            self.rest = rest.trim_start();
            return json!(literal);
        }
        let is_name = |char: char| char.is_alphanumeric() || "._-".contains(char);
        let end = self.rest.find(|char| !is_name(char)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if self.takes("(") {
            let value = match name {
                "always" => json!(true),
                "cancelled" => json!(false),
                "toJSON" => json!(self.or().to_string()),
                other => panic!("the function {other}"),
            };
            assert!(self.takes(")"), "`)` before {}", self.rest);
            return value;
        }
        let mut parts = name.split('.');
        match parts.next().unwrap() {
            "secrets" => json!(format!("the secret {name}")),
            "steps" => parts.fold(Value::Object(self.contexts.end.steps.clone()), |value, part| value[part].clone()),
            context => {
                let known = self.contexts.values.get(context).unwrap_or_else(|| panic!("the context of {name}"));
                parts.fold(known.clone(), |value, part| value[part].clone())
            }
        }
    }
}
