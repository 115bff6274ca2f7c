//! Publishes the entries of records: each once, whatever happens in the middle.

use std::cell::OnceCell;

use jiff::Timestamp;

use super::command_output::{CommandPlace, OutputCommand};
use super::failure::Failure;
use super::forge::{Forge, Found, Post, PullRequest, Settle, Target, Visit};
use super::mark::Mark;
use super::policy::{NO_COMMIT, NO_NUMBER};
use super::published_file::{PublishedEntry, PublishedFile, PublishedState};
use super::report::{EntryReport, EntryStatus, PublishReport};
use super::submission::Submission;
use crate::error::Error;
use crate::outputs::{self, Entry, Kind, Subject, Trigger};

/// How often something is tried whose effect isn't clear. It is looked up before each time.
const MAX_ATTEMPTS: u32 = 4;

/// What publishes records to one forge.
pub struct Publisher<'a> {
    /// The forge.
    pub forge: &'a dyn Forge,
    /// The login whose marks are believed.
    pub login: String,
    /// What started this process.
    pub trigger: &'a Trigger,
    /// The event's name, where the forge says it.
    pub event_name: Option<&'a str>,
    /// Where commands run.
    pub commands: CommandPlace,
    /// The clock.
    pub clock: fn() -> Timestamp,
    pub(super) found_number: OnceCell<Option<u64>>,
}

/// An entry with all that is known about it.
#[derive(Clone, Copy)]
pub(super) struct Publication<'a> {
    pub(super) submission: &'a Submission,
    pub(super) entry: &'a Entry,
    pub(super) output: &'a outputs::Output,
    pub(super) mark: &'a Mark,
}

impl Publication<'_> {
    /// A text of the entry.
    pub(super) fn text(&self, name: &str) -> Result<&str, Failure> {
        let text = self.entry.data.get(name).and_then(|value| value.as_str());
        text.ok_or_else(|| Failure::Refused(format!("its `{name}` isn't a text")))
    }

    /// A list of texts of the entry, empty if there is none.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let list = self.entry.data.get(name).and_then(|value| value.as_array());
        list.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }
}

impl<'a> Publisher<'a> {
    /// A publisher that asks the forge whose the token is, unless `login` says it.
    ///
    /// # Errors
    /// The forge doesn't say it.
    pub fn new(
        forge: &'a dyn Forge,
        login: Option<&str>,
        trigger: &'a Trigger,
        commands: CommandPlace,
        clock: fn() -> Timestamp,
    ) -> Result<Self, Error> {
        let login = match login {
            Some(login) => login.to_owned(),
            None => forge.login().map_err(|failure| Error::CannotPublish {
                is_temporary: matches!(failure, Failure::Unclear(_) | Failure::Later(_)),
                message: format!("the forge doesn't say whose the token is: {}", failure.message()),
                hint: match failure {
                    Failure::Unclear(_) | Failure::Later(_) => "Nothing was published. Repeat the command later.",
                    Failure::Missing(_) => {
                        "Nothing was published. Check the address of the forge's API, and the token."
                    }
                    _ => "Nothing was published. Repeat the command with a token that the forge accepts.",
                }
                .to_owned(),
            })?,
        };
        Ok(Self { forge, login, trigger, event_name: None, commands, clock, found_number: OnceCell::new() })
    }

    /// Publishes the entries of a record, changes first: a comment must not announce a pull request that isn't there. `is_wanted`
    /// says which ones; `refusal` says why one may not be published.
    ///
    /// # Errors
    /// If `published.json` can't be written.
    pub fn publish(
        &self,
        submission: &Submission,
        is_wanted: &dyn Fn(&Entry) -> bool,
        refusal: &dyn Fn(&Entry) -> Option<String>,
        file: &mut PublishedFile,
        report: &mut PublishReport,
    ) -> Result<(), Error> {
        let mut entries: Vec<&Entry> = submission.file.entries.iter().collect();
        entries.sort_by_key(|entry| !entry.kind.has_patch());
        let mut missing_change = None;
        for entry in entries {
            let id = submission.id_of(entry);
            if !is_wanted(entry) {
                let is_done = file.entry(&id).is_some_and(|known| known.state == PublishedState::Done);
                if entry.kind.has_patch() && !is_done {
                    missing_change.get_or_insert(id);
                }
                continue;
            }
            let known = file.entry(&id).filter(|known| known.state == PublishedState::Done);
            let is_done = known.is_some_and(|known| known.digest == submission.digest_of(entry));
            let status = match (&missing_change, refusal(entry).filter(|_| !is_done)) {
                (_, Some(why)) => EntryStatus::Refused(why),
                (Some(change), None) if !entry.kind.has_patch() && !is_done => {
                    EntryStatus::Waiting(format!("it may announce {change}, which isn't there"))
                }
                _ => self.publish_entry(submission, entry, file)?,
            };
            if entry.kind.has_patch() && !matches!(status, EntryStatus::Done { .. } | EntryStatus::AlreadyDone { .. }) {
                missing_change.get_or_insert_with(|| id.clone());
            }
            report.entries.push(EntryReport { id, kind: entry.kind.name(), status });
        }
        Ok(())
    }

    fn publish_entry(
        &self,
        submission: &Submission,
        entry: &Entry,
        file: &mut PublishedFile,
    ) -> Result<EntryStatus, Error> {
        let id = submission.id_of(entry);
        let digest = submission.digest_of(entry);
        let Some(output) = submission.policy.allowed.get(&entry.name) else {
            return Ok(EntryStatus::Refused(format!("the job file has no output `{}`", entry.name)));
        };
        let Some(mark) = submission.mark_of(entry) else {
            return Ok(EntryStatus::Refused(
                "its job, its key or its run has a character that marks can't have".to_owned(),
            ));
        };
        let known = file.entry(&id).cloned();
        if let Some(known) = &known
            && known.digest != digest
        {
            return Ok(EntryStatus::Refused("another output with this id was published of this record".to_owned()));
        }
        match (&known, &output.kind) {
            (Some(PublishedEntry { state: PublishedState::Done, url, .. }), _) => {
                return Ok(EntryStatus::AlreadyDone { url: url.clone() });
            }
            (Some(_), Kind::Command { repeatable: false, .. }) => {
                let why = "its command was started before, and nobody knows whether it succeeded; see what it did, then remove the \
                           entry from published.json, or write `repeatable: true` in the job";
                return Ok(EntryStatus::Refused(why.to_owned()));
            }
            _ => {}
        }
        let note = |state, url| PublishedEntry { state, digest: digest.clone(), at: (self.clock)(), url };
        if known.is_none() {
            file.set(&id, note(PublishedState::Intent, None))?;
        }
        let publication = Publication { submission, entry, output, mark: &mark };
        match self.publish_kind(&publication) {
            Ok(post) => {
                let url = post.url.filter(|url| is_address(url));
                file.set(&id, note(PublishedState::Done, url.clone()))?;
                Ok(EntryStatus::Done { url })
            }
            Err(failure) => Ok(self.explain(failure).into()),
        }
    }

    fn publish_kind(&self, publication: &Publication<'_>) -> Result<Post, Failure> {
        match &publication.output.kind {
            Kind::Comment { update, .. } => self.comment(publication, *update),
            Kind::Review { request_changes, .. } => self.review(publication, *request_changes),
            Kind::PullRequest { title_prefix, labels, draft, update, .. } => {
                self.pull_request(publication, title_prefix, labels, *draft, *update)
            }
            Kind::Push { .. } => self.push(publication),
            Kind::Issue { title_prefix, labels, .. } => self.issue(publication, title_prefix, labels),
            Kind::Labels { .. } => self.labels(publication),
            Kind::Close {} => self.close(publication),
            Kind::Check { check_name } => self.check(publication, check_name),
            Kind::Command { run, env, timeout_ms, .. } => {
                let data = &publication.entry.data;
                let command = OutputCommand {
                    run,
                    env,
                    timeout: std::time::Duration::from_millis(*timeout_ms),
                    id: &publication.mark.key,
                    data: data.get("data").unwrap_or(data),
                };
                self.commands.run(&command)?;
                Ok(nothing())
            }
        }
    }

    /// The issue or pull request that an entry is for.
    pub(super) fn target(&self, publication: &Publication<'_>) -> Result<Target, Failure> {
        let own = self.own_number()?;
        let wanted = match publication.output.target {
            Some(outputs::Target::Number(number)) => number,
            Some(outputs::Target::Any) => {
                publication.entry.target.ok_or_else(|| Failure::Refused("it has no number".to_owned()))?
            }
            Some(outputs::Target::Trigger) | None => self.trigger_number()?,
        };
        let subject = if own == Some(wanted) { self.trigger.subject } else { Subject::Issue };
        Ok(Target { subject, number: wanted })
    }

    /// The number of the issue or pull request of this process's own event.
    pub(super) fn trigger_number(&self) -> Result<u64, Failure> {
        self.own_number()?.ok_or_else(|| Failure::Refused(NO_NUMBER.to_owned()))
    }

    /// An event may have no number, but a branch: GitHub's `workflow_run` doesn't name the pull request of a fork.
    pub(super) fn own_number(&self) -> Result<Option<u64>, Failure> {
        if let Some(number) = self.trigger.number {
            return Ok(Some(number));
        }
        if let Some(known) = self.found_number.get() {
            return Ok(*known);
        }
        let head = self.trigger.head.as_ref();
        let Some((head, repository)) = head.and_then(|head| Some((head, head.repository.as_ref()?))) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        self.forge.pull_requests_of(repository, &head.name, &mut |pull: PullRequest| {
            let is_it = pull.is_open
                && pull.head.sha == head.sha
                && pull.head.repository.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(repository));
            found.extend(is_it.then_some(pull.post.id));
            found.len() < 2
        })?;
        let number = if let [one] = found.as_slice() { Some(*one) } else { None };
        Ok(*self.found_number.get_or_init(|| number))
    }

    /// The commit that the trigger is about.
    pub(super) fn trigger_commit(&self) -> Result<String, Failure> {
        match &self.trigger.head {
            Some(head) => Ok(head.sha.clone()),
            None if self.trigger.subject == Subject::Issue => Err(Failure::Refused(NO_COMMIT.to_owned())),
            None => Ok(self.forge.pull_request(self.trigger_number()?)?.head.sha),
        }
    }

    /// Finds the post with a mark among those that `list` passes on.
    pub(super) fn find(
        &self,
        mark: &Mark,
        updates: bool,
        list: &dyn Fn(Visit<'_, Post>) -> Result<(), Failure>,
    ) -> Result<Found, Failure> {
        let mut found = Found::Nothing;
        list(&mut |post| {
            if let Some(this) = self.compare(&post, mark, updates) {
                found = this;
            }
            !matches!(found, Found::Same(_))
        })?;
        Ok(found)
    }

    /// Adds what the user can do.
    fn explain(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Forbidden(why) if self.trigger.is_fork() && self.event_name == Some("pull_request") => {
                Failure::Forbidden(format!(
                    "{why}. On `pull_request` from a fork, the token can only read: publish in a second workflow on \
                     `workflow_run`, as the book's chapter \"Acting outside\" shows"
                ))
            }
            other => other,
        }
    }
}

impl Settle for Publisher<'_> {
    fn settle(
        &self,
        find: &dyn Fn() -> Result<Found, Failure>,
        write: &dyn Fn(Option<&Post>) -> Result<Post, Failure>,
    ) -> Result<Post, Failure> {
        let mut attempt = 0;
        loop {
            let older = match find()? {
                Found::Same(post) => return Ok(post),
                Found::Older(post) => Some(post),
                Found::Nothing => None,
            };
            match write(older.as_ref()) {
                Err(Failure::Unclear(why)) if attempt + 1 == MAX_ATTEMPTS => {
                    // The last one may have had its effect, too.
                    return match find()? {
                        Found::Same(post) => Ok(post),
                        _ => Err(Failure::Unclear(why)),
                    };
                }
                Err(Failure::Unclear(_)) => {
                    self.forge.back_off(attempt);
                    attempt += 1;
                }
                written => return written,
            }
        }
    }

    fn compare(&self, post: &Post, mark: &Mark, updates: bool) -> Option<Found> {
        if !post.author.eq_ignore_ascii_case(&self.login) {
            return None;
        }
        let found = Mark::of_body(&post.body).filter(|found| found.is_same_output(mark))?;
        match () {
            () if found == *mark => Some(Found::Same(post.clone())),
            () if updates => Some(Found::Older(post.clone())),
            () if found.run == mark.run => Some(Found::Same(post.clone())),
            () => None,
        }
    }
}

/// What is published without an address.
pub(super) fn nothing() -> Post {
    Post { id: 0, author: String::new(), body: String::new(), url: None }
}

/// Whether a text of a forge can be shown as an address.
fn is_address(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://"))
        && url.len() < 2_000
        && url.bytes().all(|byte| byte.is_ascii_graphic() && !b"()[]<>\"'`\\".contains(&byte))
}
