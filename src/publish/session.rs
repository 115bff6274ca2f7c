//! Publishes one run, or the rows of a map: from what was read of the records to the report.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use jiff::Timestamp;

use super::command_output::CommandPlace;
use super::connect::connect;
use super::failure::Failure;
use super::http_client::Notify;
use super::policy::refusals;
use super::published_file::{PublishedFile, PublishedOf, PublishedSeal, PublishedState, read_published};
use super::publisher::Publisher;
use super::report::{EntryReport, EntryStatus, PublishReport};
use super::submission::Submission;
use crate::error::Error;
use crate::outputs::{Entry, Forge, KindName, Preview, Subject, Target, Trigger};

/// What is published, and how.
pub struct PublishRequest {
    /// What the runs have proposed, each with what the job allows.
    pub submissions: Vec<Submission>,
    /// What was published is noted here.
    pub state: PathBuf,
    /// With what that file is sealed.
    pub seal: PublishedSeal,
    /// The job, the run or the map; the repository is that of the trigger.
    pub job: String,
    /// The run's id, or the map's name.
    pub run: String,
    /// Whether it is a map.
    pub is_map: bool,
    /// What started this process.
    pub trigger: Option<Trigger>,
    /// The only entry that is published.
    pub only: Option<String>,
    /// The login whose marks are believed.
    pub login: Option<String>,
    /// The environment.
    pub variables: BTreeMap<String, String>,
    /// Where commands run.
    pub commands: CommandPlace,
    /// The clock.
    pub clock: fn() -> Timestamp,
}

impl PublishRequest {
    /// Says what would be published, without a token and without the forge.
    ///
    /// # Errors
    /// No entry has the id of [`Self::only`], or `published.json` can't be read.
    pub fn preview(&mut self) -> Result<PublishReport, Error> {
        self.check_only()?;
        let published = read_published(&self.state, &self.seal)?;
        for submission in &mut self.submissions {
            // The forge would say the number.
            let recorded = submission.file.trigger.clone();
            submission.set_trigger(match &self.trigger {
                Some(trigger) if trigger.number.is_none() && trigger.head.is_some() => recorded,
                Some(trigger) => Some(trigger.clone()),
                None => recorded,
            });
        }
        let mut report = PublishReport::default();
        for submission in &self.submissions {
            let refusals = refusals(submission);
            for entry in self.wanted(submission) {
                let id = submission.id_of(entry);
                let done = published
                    .get(&id)
                    .filter(|known| known.state == PublishedState::Done && known.digest == submission.digest_of(entry));
                let status = match (done, refusals.get(&entry.id), submission.policy.allowed.get(&entry.name)) {
                    (Some(done), ..) => EntryStatus::AlreadyDone { url: done.url.clone() },
                    (None, Some(why), _) => EntryStatus::Refused(why.clone()),
                    (None, None, Some(output)) => {
                        let number = submission.policy.trigger.as_ref().and_then(|trigger| trigger.number);
                        let files = submission.file.patch.as_ref().map_or(0, |patch| patch.files.len() as u64);
                        EntryStatus::Planned(Preview::of(entry, Some(output), number, files))
                    }
                    (None, None, None) => EntryStatus::Refused("the job file has no such output".to_owned()),
                };
                report.entries.push(EntryReport { id, kind: entry.kind.name(), status });
            }
        }
        Ok(report)
    }

    /// Publishes what isn't there yet.
    ///
    /// # Errors
    /// There is no token, the forge doesn't say whose it is, or `published.json` can't be used.
    pub fn publish(&mut self, notify: Notify) -> Result<PublishReport, Error> {
        self.check_only()?;
        let mut report = PublishReport::default();
        if self.submissions.iter().all(|submission| self.wanted(submission).next().is_none()) {
            return Ok(report);
        }
        let entries = || self.submissions.iter().flat_map(|submission| self.wanted(submission));
        let needs_forge = entries().any(|entry| entry.kind != KindName::Command);
        let trigger = match &self.trigger {
            Some(trigger) => trigger.clone(),
            None if needs_forge => return Err(no_forge()),
            None => nowhere(),
        };
        let of = PublishedOf {
            job: self.job.clone(),
            run: self.run.clone(),
            is_map: self.is_map,
            repository: trigger.repository.clone(),
            server: trigger.server.clone(),
        };
        let mut file = PublishedFile::open(&self.state, &of, &self.seal)?;
        let needs_forge = self.has_open_entry(&file);
        let forge = connect(&trigger, &self.variables, notify, needs_forge)?;
        // Where nothing is looked for, nobody needs to know whose the token is.
        let login = if needs_forge { self.login.as_deref() } else { Some("") };
        let mut publisher = Publisher::new(&*forge, login, &trigger, self.commands.clone(), self.clock)?;
        publisher.event_name = self.variables.get("GITHUB_EVENT_NAME").map(String::as_str);
        let number = match needs_forge && self.needs_number() {
            true => publisher.own_number().map_err(|failure| cannot_ask(&failure))?,
            false => trigger.number,
        };
        let known = Trigger {
            number,
            subject: if trigger.number == number { trigger.subject } else { Subject::PullRequest },
            ..trigger.clone()
        };
        publisher.trigger = &known;
        publisher.found_number = OnceCell::new();
        for submission in &mut self.submissions {
            submission.set_trigger(Some(known.clone()));
        }
        for submission in &self.submissions {
            let refusals: HashMap<String, String> = refusals(submission);
            let is_wanted = |entry: &Entry| self.is_wanted(submission, entry);
            let refusal = |entry: &Entry| refusals.get(&entry.id).cloned();
            publisher.publish(submission, &is_wanted, &refusal, &mut file, &mut report)?;
        }
        Ok(report)
    }

    /// Whether something that needs the forge isn't published yet.
    fn has_open_entry(&self, file: &PublishedFile) -> bool {
        self.submissions.iter().any(|submission| {
            self.wanted(submission).any(|entry| {
                let known = file.entry(&submission.id_of(entry));
                entry.kind != KindName::Command && known.is_none_or(|known| known.state != PublishedState::Done)
            })
        })
    }

    /// Whether an entry is for the issue or pull request of this process's event.
    fn needs_number(&self) -> bool {
        self.submissions.iter().any(|submission| {
            let is_for_it = |entry: &Entry| {
                let output = submission.policy.allowed.get(&entry.name);
                output.is_some_and(|output| output.target == Some(Target::Trigger))
            };
            self.wanted(submission).any(is_for_it)
        })
    }

    fn is_wanted(&self, submission: &Submission, entry: &Entry) -> bool {
        self.only.as_ref().is_none_or(|only| *only == submission.id_of(entry))
    }

    fn wanted<'s>(&'s self, submission: &'s Submission) -> impl Iterator<Item = &'s Entry> {
        submission.file.entries.iter().filter(|entry| self.is_wanted(submission, entry))
    }

    fn check_only(&self) -> Result<(), Error> {
        let Some(only) = &self.only else { return Ok(()) };
        if self.submissions.iter().any(|submission| self.wanted(submission).next().is_some()) {
            return Ok(());
        }
        let ids = self.submissions.iter().flat_map(|it| it.file.entries.iter().map(|entry| it.id_of(entry)));
        let ids: Vec<String> = ids.take(20).collect();
        let known =
            if ids.is_empty() { "The record has none.".to_owned() } else { format!("There are {}.", ids.join(", ")) };
        Err(Error::usage(format!("no output has the id `{only}`"), known))
    }
}

fn cannot_ask(failure: &Failure) -> Error {
    Error::CannotPublish {
        message: format!("the pull request of this process's event can't be looked up: {}", failure.message()),
        hint: "Nothing was published. Repeat the command.".to_owned(),
        is_temporary: matches!(failure, Failure::Unclear(_) | Failure::Later(_)),
    }
}

fn no_forge() -> Error {
    Error::usage(
        "nothing says which repository this is for",
        "Run it in a workflow or a pipeline, name its event with --event FILE, or the repository with --repo OWNER/NAME and --to.",
    )
}

/// The trigger of a process that only runs commands.
fn nowhere() -> Trigger {
    Trigger {
        forge: Forge::Github,
        repository: String::new(),
        server: String::new(),
        subject: Subject::Other,
        number: None,
        head: None,
        base: None,
    }
}
