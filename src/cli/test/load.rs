//! Cases as they are read, with everything that is wrong with them and their jobs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::discover::DiscoveredCase;
use crate::cases::{self, Case, EXPECT_FILE, INPUTS_FILE, RECORD_FOLDER, SCRIPT_FILE, TESTS_FOLDER};
use crate::cli::{is_secret_name, read_files, replay_source};
use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::error::Error;
use crate::lints::{self, JobTrust, UserConfig, ValidJob};
use crate::plan::{InputValues, Plan, RunContext};
use crate::providers::Model;
use crate::providers::replay::Script;
use crate::yaml::{self, Node};

/// Reads cases; a job that several are about is read once.
pub(super) struct CaseLoader {
    /// The current folder, without links: what lies below is shown relative to it.
    current_folder: PathBuf,
    jobs: HashMap<PathBuf, Option<Arc<ValidJob>>>,
    user_config: UserConfig,
    origin: JobTrust,
    pub(super) findings: Vec<Diagnostic>,
}

impl CaseLoader {
    pub(super) fn new(current: &Path, own: UserConfig, origin: JobTrust) -> Self {
        let current = current.canonicalize().unwrap_or_else(|_| current.to_owned());
        Self { current_folder: current, jobs: HashMap::new(), user_config: own, origin, findings: Vec::new() }
    }

    /// A path as it is shown.
    pub(super) fn display_path(&self, path: &Path) -> String {
        let shown = path.strip_prefix(&self.current_folder).unwrap_or(path);
        if shown.as_os_str().is_empty() { ".".to_owned() } else { shown.to_string_lossy().into_owned() }
    }

    /// A case; `None` where something is wrong, which is among the findings then.
    pub(super) fn load_case(&mut self, found: &DiscoveredCase) -> Option<Case> {
        let DiscoveredCase { folder, job } = found;
        let shown = self.display_path(folder);
        let Some(job_file) = job else {
            let job = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
            let finding = read_files::unreadable_file(
                Path::new(&shown),
                &format!("there is no job `{job}` beside the folder `{TESTS_FOLDER}`"),
            );
            self.findings
                .push(finding.help("name the folder of the cases as the job file, without its ending, or as the job"));
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
        let (job, source, expect, (replies, script), secrets) = (job?, source?, expect?, replies?, secrets?);
        let (of, name) = (folder.parent()?.file_name()?.to_string_lossy(), folder.file_name()?.to_string_lossy());
        Some(Case {
            name: format!("{of}/{name}"),
            folder: folder.clone(),
            display_path: shown,
            job_file: job_file.clone(),
            job: job.name().to_owned(),
            replies,
            reply_counts: script.unused(|_| 0).into_iter().map(|left| (left.agent, left.total)).collect(),
            inputs,
            missing_secrets: secrets,
            env: job.job().env.iter().map(|name| name.value.clone()).filter(|name| !is_secret_name(name)).collect(),
            expect,
            source,
        })
    }

    fn read_source(&mut self, path: &Path) -> Option<Arc<Source>> {
        let shown = self.display_path(path);
        let shown = Path::new(&shown);
        match read_files::reject_symlinks(shown, self.origin).and_then(|()| read_files::read_source(shown)) {
            Ok(source) => Some(source),
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    fn load_job(&mut self, path: &Path) -> Option<Arc<ValidJob>> {
        if let Some(known) = self.jobs.get(path) {
            return known.clone();
        }
        let job = match read_files::read_job(Path::new(&self.display_path(path)), self.origin) {
            Ok((source, folder)) => {
                let checked = lints::check_with(&source, folder.as_ref(), self.origin, &self.user_config);
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
    fn load_replies(&mut self, folder: &Path, job: Option<&ValidJob>) -> Option<(PathBuf, Script)> {
        let (file, record) = (folder.join(SCRIPT_FILE), folder.join(RECORD_FOLDER));
        let wrong =
            |why: &str, help: &str, shown: String| read_files::unreadable_file(Path::new(&shown), why).help(help);
        match (file.exists(), record.is_dir()) {
            (true, false) => {
                let source = self.read_source(&file)?;
                let findings = lints::check_script(&source, job.map(ValidJob::job));
                let is_wrong = !findings.is_empty();
                self.findings.extend(findings);
                if is_wrong { None } else { Script::read(&source).ok().map(|script| (file, script)) }
            }
            (false, true) => match replay_source::open_replay_source(&record, job.map(ValidJob::job)) {
                Ok(script) => Some((record, script)),
                Err(Error::Invalid(findings)) => {
                    self.findings.extend(findings);
                    None
                }
                Err(error) => {
                    let shown = self.display_path(&record);
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
                let shown = self.display_path(folder);
                self.findings.push(wrong(why, &help, shown));
                None
            }
        }
    }

    /// Holds the inputs against the job; the names of secret ones that have no value.
    fn check_inputs(&mut self, job: &ValidJob, file: Option<&Path>) -> Option<Vec<String>> {
        let mut given = InputValues::default();
        let mut named = Vec::new();
        if let Some(file) = file {
            let source = self.read_source(file)?;
            let document = yaml::read::<Node>(&source).value;
            named =
                document.iter().flat_map(Node::entries).filter_map(|(key, _)| key.text().map(str::to_owned)).collect();
            given.file(&source);
        }
        let secrets = job.job().inputs().filter(|(_, input)| input.is_secret()).map(|(name, _)| name.value.clone());
        let secrets: Vec<String> = secrets.filter(|name| !named.contains(name)).collect();
        for name in &secrets {
            given.set(&format!("{name}={}", cases::placeholder_secret(name)), |_| {
                Err(std::io::ErrorKind::NotFound.into())
            });
        }
        let model = Model::new("replay", SCRIPT_FILE);
        let facts = RunContext {
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
