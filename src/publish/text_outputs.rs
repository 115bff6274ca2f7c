//! Outputs that are texts: comments, reviews, issues; and labels, ends and checks.

use super::failure::Failure;
use super::forge::{CheckRun, Found, Post, Review, Settle, Target};
use super::publisher::{Publication, Publisher, nothing};
use crate::outputs::{ProposedComment, ReviewLines};

/// The longest body that a forge accepts, in characters, without the mark.
const MAX_BODY_CHARS: usize = 65_000;
/// How long before the start of the run an issue is looked for: clocks differ.
const CLOCK_SKEW: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
/// How often labels are set until they are.
const MAX_ATTEMPTS: u32 = 4;

impl Publisher<'_> {
    pub(super) fn comment(&self, publication: &Publication<'_>, update: bool) -> Result<Post, Failure> {
        let target = self.target(publication)?;
        let mark = publication.mark;
        let body = mark.append_to(publication.text("body")?);
        let find = || self.find(mark, update, &|visit| self.forge.comments(target, visit));
        let write = |older: Option<&Post>| match older {
            Some(older) => self.forge.update_comment(target, older.id, &body),
            None => self.forge.create_comment(target, &body),
        };
        self.settle(&find, &write)
    }

    pub(super) fn review(&self, publication: &Publication<'_>, requests_changes: bool) -> Result<Post, Failure> {
        let target = self.target(publication)?;
        let comments = publication.entry.data.get("comments").cloned().unwrap_or_else(|| serde_json::json!([]));
        let comments: Vec<ProposedComment> = serde_json::from_value(comments)
            .map_err(|error| Failure::Refused(format!("its comments can't be read: {error}")))?;
        let lines = match comments.is_empty() {
            true => ReviewLines::new(&[]),
            false => ReviewLines::new(&self.forge.changed_files(target.number)?),
        };
        let (comments, moved) = lines.place(comments);
        let body = format!("{}{moved}", publication.text("body").unwrap_or_default().trim_end());
        if body.chars().count() > MAX_BODY_CHARS {
            return Err(Failure::Refused("with the comments whose lines are gone, its text is too long".to_owned()));
        }
        let commit = match &self.trigger.head {
            Some(head) if self.trigger.number == Some(target.number) => head.sha.clone(),
            _ => self.forge.pull_request(target.number)?.head.sha,
        };
        let review = Review { commit, body: body.trim_start().to_owned(), comments, requests_changes };
        self.forge.review(target.number, &review, publication.mark, self)
    }

    pub(super) fn issue(
        &self,
        publication: &Publication<'_>,
        title_prefix: &str,
        labels: &[String],
    ) -> Result<Post, Failure> {
        let mark = publication.mark;
        let title = format!("{title_prefix}{}", publication.text("title")?);
        let body = mark.append_to(publication.text("body")?);
        let mut labels = labels.to_vec();
        for label in publication.texts("labels") {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        let started = publication.submission.started_at;
        let since = started.checked_sub(CLOCK_SKEW).unwrap_or(started);
        let find = || self.find(mark, false, &|visit| self.forge.issues_since(since, visit));
        self.settle(&find, &|_| self.forge.create_issue(&title, &body, &labels))
    }

    pub(super) fn labels(&self, publication: &Publication<'_>) -> Result<Post, Failure> {
        let target = self.target(publication)?;
        self.set_labels(target, &publication.texts("add"), &publication.texts("remove"))?;
        Ok(nothing())
    }

    /// Adds and removes labels. What is so already isn't touched.
    pub(super) fn set_labels(&self, target: Target, add: &[String], remove: &[String]) -> Result<(), Failure> {
        let mut attempt = 0;
        loop {
            let there = self.forge.labels(target)?;
            let has = |label: &String| there.iter().any(|found| found.eq_ignore_ascii_case(label));
            let missing: Vec<String> = add.iter().filter(|label| !has(label)).cloned().collect();
            let set = || {
                if !missing.is_empty() {
                    self.forge.add_labels(target, &missing)?;
                }
                remove.iter().filter(|label| has(label)).try_for_each(|label| self.forge.remove_label(target, label))
            };
            match set() {
                Err(Failure::Unclear(_)) if attempt + 1 < MAX_ATTEMPTS => {
                    self.forge.back_off(attempt);
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    pub(super) fn close(&self, publication: &Publication<'_>) -> Result<Post, Failure> {
        let target = self.target(publication)?;
        let reason = publication.text("reason")?;
        let find = || match self.forge.is_open(target)? {
            true => Ok(Found::Nothing),
            false => Ok(Found::Same(nothing())),
        };
        self.settle(&find, &|_| self.forge.close(target, reason))
    }

    pub(super) fn check(&self, publication: &Publication<'_>, name: &str) -> Result<Post, Failure> {
        let check = CheckRun {
            commit: self.trigger_commit()?,
            name: name.to_owned(),
            external_id: format!("{}/{}", publication.mark.run, publication.mark.key),
            conclusion: publication.text("conclusion")?.to_owned(),
            summary: publication.text("summary")?.to_owned(),
        };
        let find = || Ok(self.forge.find_check(&check)?.map_or(Found::Nothing, Found::Same));
        self.settle(&find, &|_| self.forge.create_check(&check))
    }
}
