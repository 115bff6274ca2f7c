//! Runs and maps in the process of the tests, for what needs no process: the loop, limits, compaction, results.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use legwork::context_files::WorkspaceFiles;
use legwork::diagnostic::Source;
use legwork::error::Error;
use legwork::event::{RunOptions, RunResult};
use legwork::journal::RecordKey;
use legwork::lints::{self, JobTrust, UserConfig};
use legwork::map::recorded_row::RowPlan;
use legwork::map::rows::{self, RowFormat};
use legwork::map::{MapEnded, MapObserver, MapOptions, MapPlan, RowIds, WholeMapLimits};
use legwork::plan::{InputValues, Plan};
use legwork::pricing::Prices;
use legwork::providers::replay::Script;
use legwork::providers::user_servers::UserServers;
use legwork::providers::{ConnectContext, PROVIDERS};
use legwork::record::{Record, Recorder, new_run_id};
use legwork::replay::Replay;
use legwork::reports::{self, ANSWERS};
use legwork::run::{
    CheckedJob, ConnectedJob, Host, OpenRecord, OpenedScript, RunIdentity, RunPlaces, RunSecrets, SandboxRequest,
    Scripts, Signals, USER_AGENT, connect, run_date, start_runtime,
};
use legwork::sandbox::programs::Folders;
use legwork::template::JobDir;

use super::record::RunFolder;
use super::server::{KEY, Server};
use super::test_folder::TestFolder;

/// A job whose file is `job.yaml` in the folder of a test. It has no commands: their sandbox needs the program.
pub(crate) struct Job<'a> {
    folder: &'a TestFolder,
    variables: BTreeMap<String, String>,
}

impl<'a> Job<'a> {
    /// With an empty environment.
    pub(crate) fn in_folder(folder: &'a TestFolder) -> Self {
        Self { folder, variables: BTreeMap::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Points the provider `anthropic` at a test's server, with its key. Failed requests are repeated at once.
    pub(crate) fn anthropic(self, server: &Server) -> Self {
        let retries = self.env("LEGWORK_RETRY_BASE_MS", "1");
        retries.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY)
    }

    /// Points the providers `openai` and `openai-chat` at a test's server, with its key.
    pub(crate) fn openai(self, server: &Server) -> Self {
        self.env("OPENAI_BASE_URL", format!("{}/v1", server.url())).env("OPENAI_API_KEY", KEY)
    }

    /// Points the provider `gemini` at a test's server, with its key.
    pub(crate) fn gemini(self, server: &Server) -> Self {
        self.env("GOOGLE_GEMINI_BASE_URL", server.url()).env("GEMINI_API_KEY", KEY)
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(self) -> EndedRun {
        let (ended, warnings) = on_large_stack(|| self.with_host(|host| self.run_on(host)));
        let (result, folder) = ended.unwrap_or_else(|error| panic!("the job doesn't run: {error:?}"));
        let mut stdout = reports::find(ANSWERS, "text")(&result);
        if !stdout.is_empty() && !stdout.ends_with('\n') {
            stdout.push('\n');
        }
        EndedRun { stdout, result, folder, warnings }
    }

    /// Runs it once for each row of a CSV file, whose column `item` has the ids.
    #[track_caller]
    pub(crate) fn map(self, rows: &str, observer: &dyn MapObserver) -> MapEnded {
        let (ended, _) = self.with_host(|host| self.map_on(host, rows, observer));
        ended.unwrap_or_else(|error| panic!("the map doesn't run: {error:?}"))
    }

    /// Makes the machine and the user that it runs for. Also returns the warnings.
    fn with_host<R>(&self, run: impl FnOnce(&Host<'_>) -> R) -> (R, Vec<String>) {
        let (prices, servers, warnings) = (Prices::new(), UserServers::default(), Mutex::<Vec<String>>::default());
        let returned = run(&Host {
            variables: &self.variables,
            servers: &servers,
            prices: &prices,
            clock: Timestamp::now,
            outputs: Vec::new(),
            changeable: Arc::new(|workspace: &Path| Folders::new(&[workspace.to_owned()])),
            record_key: Arc::new(|_: &Path| Ok(Some(record_key(self.folder)))),
            warn: Arc::new(|text: &str| warnings.lock().expect("the warnings").push(text.to_owned())),
        });
        (returned, warnings.into_inner().expect("the warnings"))
    }

    fn run_on(&self, host: &Host<'_>) -> Result<(RunResult, PathBuf), Error> {
        let checked = self.check();
        let started = (host.clock)();
        let (run_id, date) = (new_run_id(&checked.job_dir, started), run_date(started));
        let run = RunIdentity { workspace: &checked.workspace, run_id: &run_id, run_date: &date };
        let (plan, secret_inputs) = checked.plan(&InputValues::default(), run)?;
        let job = self.connect(checked, &plan, host.secrets(&plan, &secret_inputs), host)?;
        let CheckedJob { out, job_dir, workspace, .. } = &job.checked;
        let recorder = Recorder::create(out, job_dir, &run_id, (host.record_key)(workspace)?)?;
        let folder = recorder.folder.clone();
        let setup = job.set_up(plan, &folder, Signals::none())?;
        let runtime = start_runtime()?;
        let ended = runtime.block_on(setup.execute(OpenRecord { recorder, before: None }));
        runtime.shutdown_background();
        Ok((ended?.result, folder))
    }

    fn map_on(&self, host: &Host<'_>, rows: &str, observer: &dyn MapObserver) -> Result<MapEnded, Error> {
        let checked = self.check();
        let rows = rows::read("rows.csv", rows.into(), RowFormat::Csv, Some("item"), checked.job.job());
        let options = MapOptions {
            name: "map-rows".to_owned(),
            rows_file: "rows.csv".to_owned(),
            ids: RowIds::Column("item".to_owned()),
            jobs: 4,
            limits: WholeMapLimits::default(),
            retry: None,
            max_failures: None,
            isolation: None,
            shard: None,
        };
        let rows = rows.map_err(Error::Invalid)?;
        let plan = MapPlan::new(options, rows, InputValues::default(), &checked, host)?;
        if !plan.has_work() {
            return plan.refresh(&checked, host);
        }
        let key = MapPlan::record_key(&checked, host)?;
        let RowPlan { plan: first, secrets } = plan.first();
        let job = self.connect(checked, first, host.secrets(first, secrets), host)?;
        plan.run(&job, &key, &Signals::none(), observer)
    }

    fn connect<'h>(
        &self,
        checked: CheckedJob,
        plan: &Plan,
        secrets: RunSecrets,
        host: &Host<'h>,
    ) -> Result<ConnectedJob<'h>, Error> {
        let variable = |name: &str| self.variables.get(name).cloned();
        let context = || ConnectContext {
            env: &variable,
            server: None,
            settings: None,
            script: None,
            user_agent: USER_AGENT,
            redactor: &secrets.redactor,
            providers: PROVIDERS,
        };
        let providers = connect(plan, &|model| !model.is_scripted(), |_| Ok(context()))?;
        let places = RunPlaces {
            job_files: vec![self.folder.at("job.yaml")],
            runs_folder: checked.out.clone(),
            home: Some(self.folder.home()),
            ..RunPlaces::default()
        };
        Ok(ConnectedJob {
            host: host.clone(),
            secrets,
            providers,
            scripts: self.scripts(plan),
            sandbox: SandboxRequest::default(),
            places,
            config_files: Vec::new(),
            options: RunOptions::default(),
            checked,
        })
    }

    fn check(&self) -> CheckedJob {
        let (workspace, user_config) = (self.folder.path(), UserConfig::default());
        let source = Source::new("job.yaml", self.folder.read("job.yaml"));
        let prompts = JobDir::open(&workspace).expect("the folder of the job");
        let files = WorkspaceFiles { root: workspace.clone(), ..WorkspaceFiles::default() };
        let report = lints::check_in(&source, Some(&prompts), JobTrust::Trusted, &user_config, Some(&files));
        let job = report.job.unwrap_or_else(|| panic!("the job is invalid: {:?}", report.findings));
        let out = workspace.join("runs");
        CheckedJob {
            job_dir: out.join(job.name()),
            source,
            job,
            user_config,
            model: None,
            workspace,
            out,
            limits: BTreeMap::new(),
            git: None,
            offline: false,
            trigger: None,
            event: None,
        }
    }

    fn scripts(&self, plan: &Plan) -> Scripts {
        let scripted = plan.models().filter(|model| model.is_scripted());
        let open = |name: &String| {
            let source = Source::new(name.as_str(), self.folder.read(name));
            let script = Script::read(&source).unwrap_or_else(|findings| panic!("{findings:?}"));
            OpenedScript { path: self.folder.at(name).display().to_string(), script }
        };
        scripted.map(|model| (model.name.clone(), open(&model.name))).collect()
    }
}

/// A run that has ended.
pub(crate) struct EndedRun {
    /// How it ended.
    pub(crate) result: RunResult,
    /// What the program would print.
    pub(crate) stdout: String,
    /// What the user was warned of.
    pub(crate) warnings: Vec<String>,
    folder: PathBuf,
}

impl EndedRun {
    /// Asserts that the program would exit with this code.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: u8) -> &Self {
        assert!(self.result.exit_code == code, "not exit code {code}: {}", self.full_output());
        self
    }

    #[track_caller]
    pub(crate) fn assert_stdout(&self, text: &str) -> &Self {
        assert!(self.stdout == text, "the answer isn't {text:?}: {}", self.full_output());
        self
    }

    /// Asserts that the code, the message or the hint of its error contains a text.
    #[track_caller]
    pub(crate) fn assert_error_contains(&self, text: &str) -> &Self {
        let error = self.result.error.as_ref();
        let error =
            error.map(|error| format!("{}: {}\n{}", error.code, error.message, error.hint.as_deref().unwrap_or("")));
        assert!(error.is_some_and(|error| error.contains(text)), "the error lacks {text:?}: {}", self.full_output());
        self
    }

    pub(crate) fn run_folder(&self) -> RunFolder {
        RunFolder::new(&self.folder)
    }

    /// All that is known, for the message of a failed assertion.
    pub(crate) fn full_output(&self) -> String {
        format!("{:#?}\nwarnings: {:?}", self.result, self.warnings)
    }
}

/// Runs agents on a stack as large as that of the program's main thread. That of a test is smaller.
fn on_large_stack<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let thread = std::thread::Builder::new().name(name).stack_size(8 << 20).spawn_scoped(scope, run);
        thread.expect("a thread").join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

/// The key that the program finds in the home folder of a test, so that it continues what has run in this process.
fn record_key(folder: &TestFolder) -> RecordKey {
    let path = folder.home().join(".local/state/legwork/record.key");
    let above = path.parent().expect("a folder for the key");
    std::fs::create_dir_all(above).expect("a folder for the key");
    let mut new = tempfile::NamedTempFile::new_in(above).expect("a file for the key");
    new.write_all("0123456789abcdef".repeat(4).as_bytes()).expect("the key");
    // Another run may have created it.
    let _ = new.persist_noclobber(&path);
    RecordKey::new(std::fs::read_to_string(&path).expect("the key").trim())
}

/// Whether the run of a record replays as equal. `None` if the record can't be replayed, because a test has damaged it.
pub(crate) fn replay(record: &Path) -> Option<Result<(), String>> {
    on_large_stack(|| replay_here(record))
}

fn replay_here(record: &Path) -> Option<Result<(), String>> {
    let replay = Record::open(record).and_then(|record| Replay::read(&record));
    let runtime = start_runtime().expect("a runtime");
    let report = replay.and_then(|replay| runtime.block_on(replay.execute(None, &Prices::new(), None)));
    runtime.shutdown_background();
    match report {
        Ok(report) if report.exit_code(None) == 0 => Some(Ok(())),
        Ok(report) => Some(Err(report.text())),
        Err(error) if error.exit_code() == 2 => None,
        Err(error) => Some(Err(format!("{error:?}"))),
    }
}
