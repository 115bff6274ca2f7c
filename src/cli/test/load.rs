//! Cases as they are read, with everything that is wrong with them and their jobs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::find::Found;
use crate::cases::{self, Case, EXPECT_FILE, INPUTS_FILE, RECORD_FOLDER, SCRIPT_FILE, TESTS};
use crate::cli::{input, is_secret_name, script};
use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::error::Error;
use crate::lints::{self, Origin, Own, ValidJob};
use crate::plan::{Given, Plan, RunFacts};
use crate::providers::Model;
use crate::providers::replay::Script;
use crate::yaml::{self, Node};

/// Reads cases; a job that several are about is read once.
pub(super) struct Loading {
    /// The current folder, without links: what lies below is shown relative to it.
    current: PathBuf,
    jobs: HashMap<PathBuf, Option<Arc<ValidJob>>>,
    own: Own,
    origin: Origin,
    pub(super) findings: Vec<Diagnostic>,
}

impl Loading {
    pub(super) fn new(current: &Path, own: Own, origin: Origin) -> Self {
        let current = current.canonicalize().unwrap_or_else(|_| current.to_owned());
        Self { current, jobs: HashMap::new(), own, origin, findings: Vec::new() }
    }

    /// A path as it is shown.
    pub(super) fn shown(&self, path: &Path) -> String {
        let shown = path.strip_prefix(&self.current).unwrap_or(path);
        if shown.as_os_str().is_empty() { ".".to_owned() } else { shown.to_string_lossy().into_owned() }
    }

    /// A case; `None` where something is wrong, which is among the findings then.
    pub(super) fn case(&mut self, found: &Found) -> Option<Case> {
        let Found { folder, job } = found;
        let shown = self.shown(folder);
        let Some(job_file) = job else {
            let job = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            let finding =
                input::unreadable(Path::new(&shown), &format!("there is no job `{job}` beside the folder `{TESTS}`"));
            self.findings
                .push(finding.help("name the folder of the cases as the job file, without its ending, or as the job"));
            return None;
        };
        let job = self.job(job_file);
        let source = self.read(&folder.join(EXPECT_FILE));
        let expect = source.as_ref().and_then(|source| {
            let (expect, findings) = cases::check(source, folder, job.as_ref().map(|job| job.job()));
            self.findings.extend(findings);
            expect
        });
        let replies = self.replies(folder, job.as_deref());
        let inputs = Some(folder.join(INPUTS_FILE)).filter(|path| path.exists());
        let secrets = job.as_ref().and_then(|job| self.inputs(job, inputs.as_deref()));
        let (job, source, expect, (replies, script), secrets) = (job?, source?, expect?, replies?, secrets?);
        let (of, name) = (folder.parent()?.file_name()?.to_string_lossy(), folder.file_name()?.to_string_lossy());
        Some(Case {
            name: format!("{of}/{name}"),
            folder: folder.clone(),
            shown,
            job_file: job_file.clone(),
            job: job.name().to_owned(),
            replies,
            totals: script.left(|_| 0).into_iter().map(|left| (left.agent, left.total)).collect(),
            inputs,
            secrets,
            env: job.job().env.iter().map(|name| name.value.clone()).filter(|name| !is_secret_name(name)).collect(),
            expect,
            source,
        })
    }

    fn read(&mut self, path: &Path) -> Option<Arc<Source>> {
        let shown = self.shown(path);
        let shown = Path::new(&shown);
        match input::refuse_links(shown, self.origin).and_then(|()| input::read_source(shown)) {
            Ok(source) => Some(source),
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    fn job(&mut self, path: &Path) -> Option<Arc<ValidJob>> {
        if let Some(known) = self.jobs.get(path) {
            return known.clone();
        }
        let job = match input::read_job(Path::new(&self.shown(path)), self.origin) {
            Ok((source, folder)) => {
                let checked = lints::check_from(&source, folder.as_ref(), self.origin, &self.own);
                // Warnings are for `validate`.
                self.findings.extend(checked.findings.into_iter().filter(|it| it.severity == Severity::Error));
                checked.job.map(Arc::new)
            }
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        };
        self.jobs.insert(path.to_owned(), job.clone());
        job
    }

    /// The script or the record of a case, and where it lies.
    fn replies(&mut self, folder: &Path, job: Option<&ValidJob>) -> Option<(PathBuf, Script)> {
        let (file, record) = (folder.join(SCRIPT_FILE), folder.join(RECORD_FOLDER));
        let wrong = |why: &str, help: &str, shown: String| input::unreadable(Path::new(&shown), why).help(help);
        match (file.exists(), record.is_dir()) {
            (true, false) => {
                let source = self.read(&file)?;
                let findings = lints::check_script(&source, job.map(ValidJob::job));
                let is_wrong = !findings.is_empty();
                self.findings.extend(findings);
                if is_wrong { None } else { Script::read(&source).ok().map(|script| (file, script)) }
            }
            (false, true) => match script::open(&record, job.map(ValidJob::job)) {
                Ok(script) => Some((record, script)),
                Err(Error::Invalid(findings)) => {
                    self.findings.extend(findings);
                    None
                }
                Err(error) => {
                    let shown = self.shown(&record);
                    self.findings.push(wrong(&error.to_string(), "take the whole folder of a run", shown));
                    None
                }
            },
            (both, _) => {
                let why = match both {
                    true => "this case has a script and a record",
                    false => "this case has neither a script nor a record",
                };
                let help = format!(
                    "write the models' replies into `{SCRIPT_FILE}`, or copy a run's folder as `{RECORD_FOLDER}`"
                );
                let shown = self.shown(folder);
                self.findings.push(wrong(why, &help, shown));
                None
            }
        }
    }

    /// Holds the inputs against the job; the names of secret ones that have no value.
    fn inputs(&mut self, job: &ValidJob, file: Option<&Path>) -> Option<Vec<String>> {
        let mut given = Given::default();
        let mut named = Vec::new();
        if let Some(file) = file {
            let source = self.read(file)?;
            let document = yaml::read::<Node>(&source).value;
            named =
                document.iter().flat_map(Node::entries).filter_map(|(key, _)| key.text().map(str::to_owned)).collect();
            given.file(&source);
        }
        let secrets = job.job().inputs().filter(|(_, input)| input.is_secret()).map(|(name, _)| name.value.clone());
        let secrets: Vec<String> = secrets.filter(|name| !named.contains(name)).collect();
        for name in &secrets {
            given.set(&format!("{name}={}", cases::stand_in(name)), |_| Err(std::io::ErrorKind::NotFound.into()));
        }
        let model = Model::new("replay", SCRIPT_FILE);
        let facts = RunFacts {
            workspace: "/workspace".to_owned(),
            run_id: "<run.id>".to_owned(),
            run_date: "<run.date>".to_owned(),
            model_override: Some(model),
        };
        match Plan::new(job, &given, &facts) {
            Ok(_) => Some(secrets),
            Err(findings) => {
                self.findings.extend(findings);
                None
            }
        }
    }
}
