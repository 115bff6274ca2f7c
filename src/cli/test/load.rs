//! Loads test cases, and reports all mistakes in them and in their jobs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::discover::DiscoveredCase;
use crate::cases::{
    self, BEFORE_FILE, Case, EVENT_FILE, EXPECT_FILE, INPUTS_FILE, RECORD_FOLDER, SCRIPT_FILE, TESTS_FOLDER,
};
use crate::cli::{read_files, replay_source};
use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::error::Error;
use crate::job::STATE_FILE;
use crate::json_schema::SchemaValidator;
use crate::lints::{self, JobTrust, UserConfig, ValidJob};
use crate::plan::{InputValues, Plan, RunContext};
use crate::providers::Model;
use crate::providers::replay::Script;
use crate::redaction::is_secret_name;
use crate::run::read_state;
use crate::yaml::{self, Node};

/// Loads cases. A job that several cases share is read once.
pub(super) struct CaseLoader {
    /// The canonical current folder. Paths below it are shown relative to it.
    current_folder: PathBuf,
    jobs: HashMap<PathBuf, Option<Arc<ValidJob>>>,
    user_config: UserConfig,
    origin: JobTrust,
    pub(super) findings: Vec<Diagnostic>,
}

impl CaseLoader {
    pub(super) fn new(current: &Path, user_config: UserConfig, origin: JobTrust) -> Self {
        let current = current.canonicalize().unwrap_or_else(|_| current.to_owned());
        Self { current_folder: current, jobs: HashMap::new(), user_config, origin, findings: Vec::new() }
    }

    /// A path as messages show it.
    pub(super) fn display_path(&self, path: &Path) -> String {
        let shown = path.strip_prefix(&self.current_folder).unwrap_or(path);
        if shown.as_os_str().is_empty() { ".".to_owned() } else { shown.to_string_lossy().into_owned() }
    }

    /// Loads a case. `None` if it has mistakes, which are added to the findings.
    pub(super) fn load_case(&mut self, found: &DiscoveredCase) -> Option<Case> {
        let DiscoveredCase { folder, job } = found;
        let shown = self.display_path(folder);
        let Some(job_file) = job else {
            let job = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            let finding = read_files::unreadable_file(
                Path::new(&shown),
                &format!("there is no job `{job}` next to the folder `{TESTS_FOLDER}`"),
            );
            self.findings.push(
                finding.help("give the folder of the cases the name of the job, or of its file without the extension"),
            );
            return None;
        };
        let job = self.load_job(job_file);
        let source = self.read_source(&folder.join(EXPECT_FILE));
        let expect = source.as_ref().and_then(|source| {
            let (expect, findings) = cases::check(source, folder, job.as_ref().map(|job| job.job()));
            self.findings.extend(findings);
            expect
        });
        let replies = self.load_replies(folder, job.as_deref());
        let inputs = Some(folder.join(INPUTS_FILE)).filter(|path| path.exists());
        let secrets = job.as_ref().and_then(|job| self.check_inputs(job, inputs.as_deref()));
        let before = job.as_ref().and_then(|job| self.load_steps(job, folder));
        let state = job.as_ref().and_then(|job| self.load_state(job, folder));
        let (job, expect, (replies, script), secrets, before) = (job?, expect?, replies?, secrets?, before?);
        let state = state?;
        Some(Case {
            name: found.name(),
            folder: folder.clone(),
            display_path: shown,
            job_file: job_file.clone(),
            job: job.name().to_owned(),
            replies,
            reply_counts: script.unused(|_| 0).into_iter().map(|left| (left.agent, left.total)).collect(),
            inputs,
            event: Some(folder.join(EVENT_FILE)).filter(|path| path.exists()),
            before,
            state,
            missing_secrets: secrets,
            env: job
                .job()
                .env
                .iter()
                .cloned()
                .chain(job.job().mcp.values().flat_map(|server| server.env.names()))
                .map(|name| name.value)
                .filter(|name| !is_secret_name(name))
                .collect(),
            expect,
        })
    }

    fn read_source(&mut self, path: &Path) -> Option<Arc<Source>> {
        let shown = self.display_path(path);
        let shown = Path::new(&shown);
        let read = read_files::reject_symlinks(shown, self.origin).and_then(|()| read_files::read_source(shown));
        read.map_err(|finding| self.findings.push(finding)).ok()
    }

    fn load_job(&mut self, path: &Path) -> Option<Arc<ValidJob>> {
        if let Some(known) = self.jobs.get(path) {
            return known.clone();
        }
        let read = read_files::read_job(Path::new(&self.display_path(path)), self.origin);
        let job = read.map_err(|finding| self.findings.push(finding)).ok().and_then(|(source, folder)| {
            let checked = lints::check_with(&source, folder.as_ref(), self.origin, &self.user_config);
            // Warnings are left to `legwork validate`.
            let errors = checked.findings.into_iter().filter(|finding| finding.severity == Severity::Error);
            self.findings.extend(errors);
            checked.job.map(Arc::new)
        });
        self.jobs.insert(path.to_owned(), job.clone());
        job
    }

    /// The script or the record of a case, with its path.
    fn load_replies(&mut self, folder: &Path, job: Option<&ValidJob>) -> Option<(PathBuf, Script)> {
        let (file, record) = (folder.join(SCRIPT_FILE), folder.join(RECORD_FOLDER));
        let job = job.map(ValidJob::job);
        let (place, why, help) = match (file.exists(), record.is_dir()) {
            (true, false) => {
                let source = self.read_source(&file)?;
                let findings = lints::check_script(&source, job);
                let is_wrong = !findings.is_empty();
                self.findings.extend(findings);
                return if is_wrong { None } else { Script::read(&source).ok().map(|script| (file, script)) };
            }
            (false, true) => match replay_source::open_replay_source(&record, job) {
                Ok(script) => return Some((record, script)),
                Err(error) => (record.as_path(), error.to_string(), "copy a whole run folder".to_owned()),
            },
            (both, _) => {
                let number = if both { "both a script and" } else { "neither a script nor" };
                let help = format!(
                    "write the replies of the models to `{SCRIPT_FILE}`, or copy a run folder to `{RECORD_FOLDER}`"
                );
                (folder, format!("this case has {number} a record"), help)
            }
        };
        let shown = self.display_path(place);
        self.findings.push(read_files::unreadable_file(Path::new(&shown), &why).help(help));
        None
    }

    /// The values of the steps before the agent: a case doesn't run them.
    fn load_steps(&mut self, job: &ValidJob, folder: &Path) -> Option<Map<String, Value>> {
        let path = folder.join(BEFORE_FILE);
        let steps = &job.job().before;
        if steps.is_empty() && !path.exists() {
            return Some(Map::new());
        }
        if !path.exists() {
            let names: Vec<String> = steps.iter().map(|step| format!("{}: ...", step.name.value)).collect();
            let why = format!("the case needs the values of the job's steps, which it doesn't run: `{BEFORE_FILE}`");
            let finding = read_files::unreadable_file(Path::new(&self.display_path(folder)), &why);
            self.findings.push(finding.help(format!("write them: {}", names.join(", "))));
            return None;
        }
        let source = self.read_source(&path)?;
        let read = yaml::read::<Node>(&source);
        let is_wrong = read.findings.iter().any(|finding| finding.severity == Severity::Error);
        self.findings.extend(read.findings);
        let root = read.value.filter(|_| !is_wrong)?;
        let known = || steps.iter().map(|step| step.name.value.as_str());
        let (mut values, mut wrong) = (Map::new(), Vec::new());
        for (key, value) in root.entries() {
            let name = key.text().unwrap_or_default().to_owned();
            if !known().any(|step| step == name) {
                let finding = Diagnostic::error("unknown-key", key.place(), format!("the job has no step `{name}`"));
                wrong.push(finding.suggest(&name, known(), "remove it"));
                continue;
            }
            let json = value.to_json();
            let violations = job.schemas().before.get(&name).and_then(|schema| SchemaValidator::new(schema).ok());
            let violations = violations.map(|schema| schema.violations(&json, 1).0).unwrap_or_default();
            wrong.extend(violations.first().map(|violation| {
                let message = format!("the value doesn't fit the schema of the step: {violation}");
                Diagnostic::error("invalid-value", value.place(), message).help("change it to what the step prints")
            }));
            values.insert(name, json);
        }
        for step in known().filter(|step| !values.contains_key(*step)) {
            let finding = Diagnostic::error(
                "missing-key",
                root.place_for_missing(),
                format!("the value of the step `{step}` is missing"),
            );
            wrong.push(finding.help(format!("add `{step}: ...`; null for an optional step that failed")));
        }
        let is_complete = wrong.is_empty();
        self.findings.extend(wrong);
        is_complete.then_some(values)
    }

    /// The state with which the run begins, if the job keeps one.
    fn load_state(&mut self, job: &ValidJob, folder: &Path) -> Option<Option<Value>> {
        let path = folder.join(STATE_FILE);
        let shown = PathBuf::from(self.display_path(&path));
        let mut wrong = |why: &str, help: &str| {
            self.findings.push(read_files::unreadable_file(&shown, why).help(help));
            None
        };
        let Some(declared) = job.job().state.as_ref().map(|state| &state.value) else {
            return match path.exists() {
                true => wrong("the job keeps no state", "remove it"),
                false => Some(None),
            };
        };
        let value = match read_state(&path, job.name(), declared.max_bytes()) {
            Ok(Some(read)) => read.value,
            Ok(None) => return Some(Some(declared.initial.as_ref().map(Node::to_json).unwrap_or_default())),
            Err(Error::StateFile { why, hint, .. }) => return wrong(&why, &hint),
            Err(error) => return wrong(&error.to_string(), "write `{ \"format\": 1, \"job\": NAME, \"value\": ... }`"),
        };
        let validator = job.schemas().state.as_ref().and_then(|schema| SchemaValidator::new(schema).ok());
        let violations = validator.map(|schema| schema.violations(&value, 1).0).unwrap_or_default();
        match violations.first() {
            Some(violation) => {
                let why = format!("the value doesn't fit the schema of the state: {violation}");
                wrong(&why, "change it to what an earlier run can have left")
            }
            None => Some(Some(value)),
        }
    }

    /// Checks the inputs against the job. Returns the names of secret inputs without a value.
    fn check_inputs(&mut self, job: &ValidJob, file: Option<&Path>) -> Option<Vec<String>> {
        let mut inputs = InputValues::default();
        // The workspace of the case is made when it runs.
        inputs.read_no_files();
        let mut named = Vec::new();
        if let Some(file) = file {
            let source = self.read_source(file)?;
            let document = yaml::read::<Node>(&source).value;
            named =
                document.iter().flat_map(Node::entries).filter_map(|(key, _)| key.text().map(str::to_owned)).collect();
            inputs.file(&source);
        }
        let secrets = job.job().inputs().filter(|(_, input)| input.is_secret()).map(|(name, _)| name.value.clone());
        let secrets: Vec<String> = secrets.filter(|name| !named.contains(name)).collect();
        for name in &secrets {
            inputs.set(&format!("{name}={}", cases::placeholder_secret(name)), |_| {
                Err(std::io::ErrorKind::NotFound.into())
            });
        }
        let model = Model::new("replay", SCRIPT_FILE);
        let context = RunContext {
            workspace: "/workspace".to_owned(),
            inputs_from: None,
            run_id: "<run.id>".to_owned(),
            run_date: "<run.date>".to_owned(),
            model_override: Some(model),
            trigger: None,
        };
        Plan::new(job, &inputs, &context).map_err(|findings| self.findings.extend(findings)).ok()?;
        Some(secrets)
    }
}
