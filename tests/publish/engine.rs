//! Publishes submissions that a test makes, in the process of the test.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use legwork::error::Error;
use legwork::event::Outcome;
use legwork::outputs::{
    Branch, Entry, Forge, Kind, KindName, Output, Outputs, OutputsFile, Patch, PatchRules, Subject, Target, Trigger,
};
use legwork::publish::{
    CommandPlace, EntryStatus, PublishReport, PublishedFile, PublishedOf, PublishedSeal, Publisher, SandboxUse,
    SealCheck, Submission, connect,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::forge::{Api, ForgeServer, LOGIN, TOKEN};
use crate::support::test_folder::{TestFolder, empty_folder};

/// Everything that a publication needs.
pub(super) struct Setup {
    pub(super) submission: Submission,
    pub(super) trigger: Trigger,
    pub(super) state: PathBuf,
    pub(super) login: Option<String>,
    pub(super) variables: BTreeMap<String, String>,
    folder: tempfile::TempDir,
}

impl Setup {
    /// A run without outputs, for an issue `#3`.
    pub(super) fn new() -> Self {
        let folder = empty_folder();
        let trigger = Trigger {
            forge: Forge::Github,
            repository: "o/r".to_owned(),
            server: "https://github.example".to_owned(),
            subject: Subject::Issue,
            number: Some(3),
            head: None,
            base: None,
        };
        let file = OutputsFile {
            format: 1,
            run_id: "20260101-a".to_owned(),
            job: "triage".to_owned(),
            job_sha256: String::new(),
            files: BTreeMap::new(),
            journal_head: String::new(),
            trigger: None,
            entries: Vec::new(),
            nothing_to_do: None,
            patch: None,
        };
        let submission = Submission {
            row: None,
            folder: folder.path().to_owned(),
            outcome: Some(Outcome::Completed),
            started_at: Timestamp::UNIX_EPOCH,
            patch: Err("the run has no changes".to_owned()),
            changed: None,
            sandbox: SandboxUse::default(),
            run: file.run_id.clone(),
            seal: SealCheck::Unchecked,
            policy: Outputs::default(),
            list_steps: serde_json::Map::new(),
            file,
        };
        let state = folder.path().join("published.json");
        Self { submission, trigger, state, login: Some(LOGIN.to_owned()), variables: BTreeMap::new(), folder }
    }

    /// The same for a pull request `#7`, whose branch is `feature`.
    pub(super) fn of_pull_request(sha: &str) -> Self {
        let mut setup = Self::new();
        setup.trigger.subject = Subject::PullRequest;
        setup.trigger.number = Some(7);
        let (name, sha) = ("feature".to_owned(), sha.to_owned());
        setup.trigger.head = Some(Branch { name, sha, repository: Some(setup.trigger.repository.clone()) });
        setup
    }

    /// Adds an output, and an entry of it.
    pub(super) fn output(mut self, name: &str, kind: Kind, data: Value) -> Self {
        let count = self.submission.file.entries.iter().filter(|entry| entry.name == name).count();
        let target = kind.name().has_target().then_some(Target::Trigger);
        self.submission.file.entries.push(Entry {
            id: format!("{name}-{}", count + 1),
            name: name.to_owned(),
            kind: kind.name(),
            key: None,
            target: self.trigger.number.filter(|_| target.is_some()),
            data,
            agent: "parent".to_owned(),
            call_id: "call".to_owned(),
        });
        let output = Output { kind, target, max: 10, on_checks_failed: false };
        self.submission.policy.allowed.insert(name.to_owned(), output);
        self
    }

    pub(super) fn comment(self, body: &str) -> Self {
        self.output("comment", Kind::Comment { update: false, closes: false }, json!({ "body": body }))
    }

    /// The changes of a folder since its commit.
    pub(super) fn changes(mut self, base: &str, patch: &str) -> Self {
        let digest: String = Sha256::digest(patch).iter().map(|byte| format!("{byte:02x}")).collect();
        self.submission.file.patch =
            Some(Patch { base_commit: base.to_owned(), sha256: digest, files: Vec::new(), bytes: patch.len() as u64 });
        self.submission.patch = Ok(patch.to_owned());
        self
    }

    /// Publishes it once, as one process does.
    pub(super) fn publish<A: Api>(&self, server: &ForgeServer<A>) -> Result<PublishReport, Error> {
        let api = match self.trigger.forge {
            Forge::Github => [("GITHUB_API_URL", server.url()), ("GITHUB_TOKEN", TOKEN.to_owned())],
            Forge::Gitlab => [("CI_API_V4_URL", server.url()), ("GITLAB_TOKEN", TOKEN.to_owned())],
        };
        let quick = ["LEGWORK_PUBLISH_PAUSE_MS", "LEGWORK_RETRY_BASE_MS"].map(|name| (name, "1".to_owned()));
        let mut variables: BTreeMap<String, String> =
            api.into_iter().chain(quick).map(|(name, value)| (name.to_owned(), value)).collect();
        variables.extend(self.variables.clone());
        let forge = connect(&self.trigger, &variables, Box::new(|_| ()), true)?;
        let of = PublishedOf {
            job: self.submission.file.job.clone(),
            run: self.submission.run.clone(),
            is_map: false,
            repository: self.trigger.repository.clone(),
            server: self.trigger.server.clone(),
        };
        let mut file = PublishedFile::open(&self.state, &of, &PublishedSeal::default())?;
        let path = std::env::var_os("PATH").unwrap_or_default().into_string().expect("a PATH");
        variables.insert("PATH".to_owned(), path);
        let commands = CommandPlace { folder: self.folder.path().to_owned(), bash: "/bin/bash".into(), variables };
        let mut publisher = Publisher::new(&*forge, self.login.as_deref(), &self.trigger, commands, Timestamp::now)?;
        publisher.event_name = self.variables.get("GITHUB_EVENT_NAME").map(String::as_str);
        let mut report = PublishReport::default();
        publisher.publish(&self.submission, &|_| true, &|_| None, &mut file, &mut report)?;
        Ok(report)
    }

    /// Publishes it, and asserts that all is done.
    #[track_caller]
    pub(super) fn publish_all<A: Api>(&self, server: &ForgeServer<A>) {
        let report = self.publish(server).unwrap_or_else(|error| panic!("{error}: {:?}", error.hint()));
        let is_done =
            |status: &EntryStatus| matches!(status, EntryStatus::Done { .. } | EntryStatus::AlreadyDone { .. });
        assert!(report.entries.iter().all(|entry| is_done(&entry.status)), "{report:#?}");
        assert_eq!(report.exit_code(), 0);
    }

    /// Publishes it, and returns what became of its first entry.
    #[track_caller]
    pub(super) fn first_status<A: Api>(&self, server: &ForgeServer<A>) -> (EntryStatus, u8) {
        let mut report = self.publish(server).unwrap_or_else(|error| panic!("{error}: {:?}", error.hint()));
        let code = report.exit_code();
        (report.entries.swap_remove(0).status, code)
    }
}

/// A folder with a commit, and changes of all kinds on top of it. Returns the commit and the patch.
pub(super) fn changed_folder() -> (TestFolder, String, String) {
    let folder = TestFolder::new();
    folder.write("src/a.py", "one\ntwo\nthree\n").write("docs/old.md", "old\n").write("run.sh", "true\n");
    folder.commit_all();
    let base = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
    folder.write("src/a.py", "one\n2\nthree\n").write("docs/new/page.md", "new\n");
    std::fs::remove_file(folder.at("docs/old.md")).expect("removed");
    folder.git(&["add", "--all"]);
    folder.git(&["update-index", "--chmod=+x", "run.sh"]);
    let patch = folder.git(&["diff", "--cached", "--no-renames", "--full-index", "HEAD"]);
    folder.git(&["reset", "--quiet", "--hard"]);
    (folder, base, patch)
}

/// What patches may contain.
pub(super) fn any_patch() -> PatchRules {
    serde_json::from_value(json!({ "max_files": 100, "max_bytes": 1_000_000 })).expect("rules")
}

/// A pull request with the changes.
pub(super) fn pull_request(update: bool) -> Kind {
    Kind::PullRequest {
        title_prefix: "[bot] ".to_owned(),
        labels: vec!["automation".to_owned()],
        draft: true,
        update,
        closes: false,
        patch: any_patch(),
    }
}

/// Every kind whose name this is has a test.
pub(super) const TESTED_KINDS: &[KindName] = legwork::outputs::KINDS;
