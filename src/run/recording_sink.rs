//! Records the events of a run, then shows them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::ResumeState;
use crate::attachment::Attachment;
use crate::error::recovery_hint;
use crate::event::{ErrorInfo, Event, JournalEntry, Outcome, PARENT, RunModel, Sink};
use crate::plan::Plan;
use crate::providers::{Provider, ProviderError};
use crate::record::Recorder;
use crate::reports::record_files::write_summary;
use crate::sync::IgnorePoison;

/// Shows what happens in a run.
pub trait RunObserver: Send + Sync {
    /// Called after an event was recorded.
    fn event(&self, entry: &JournalEntry);
}

/// Records events, then shows them.
pub(super) struct RecordingSink {
    pub(super) recorder: Arc<Recorder>,
    observers: Vec<Arc<dyn RunObserver>>,
    clock: fn() -> Timestamp,
    state: Mutex<RecordedState>,
}

/// What is known from the recorded events.
pub(super) struct RecordedState {
    pub(super) model: RunModel,
    /// Whether any call or check was started in this part of the run.
    pub(super) has_acted: bool,
    /// What to do about the first event that couldn't be written.
    recovery_hint: Option<String>,
}

impl Sink for RecordingSink {
    fn record(&self, agent: &str, event: Event) -> io::Result<()> {
        let at = (self.clock)();
        let mut state = self.state();
        state.has_acted |= matches!(event, Event::CallStarted(_) | Event::CheckStarted(_));
        // Before it is written: the spend of a subagent counts even if the event can't be written.
        state.model.apply(agent, &event, at);
        drop(state);
        let entry = self.recorder.append(agent, event, at).inspect_err(|error| self.fail(error))?;
        if let Event::AgentFinished(finished) = &entry.event
            && agent == PARENT
            && finished.subagent.is_some()
        {
            write_summary(&self.recorder, finished).inspect_err(|error| self.fail(error))?;
        }
        for observer in &self.observers {
            observer.event(&entry);
        }
        Ok(())
    }

    fn flush<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move { self.recorder.flush(agent).await.inspect_err(|error| self.fail(error)) })
    }

    fn keep(&self, attachment: &Attachment) -> io::Result<()> {
        self.recorder.write_attachment(attachment).inspect_err(|error| self.fail(error))
    }
}

impl RecordingSink {
    /// Continues the record of a run that is resumed, or begins one.
    pub(super) fn new(
        recorder: Recorder,
        observers: Vec<Arc<dyn RunObserver>>,
        clock: fn() -> Timestamp,
        before: Option<&ResumeState>,
    ) -> Self {
        let state = RecordedState {
            model: before.map(ResumeState::model).unwrap_or_default(),
            has_acted: false,
            recovery_hint: None,
        };
        Self { recorder: Arc::new(recorder), observers, clock, state: Mutex::new(state) }
    }

    /// Writes the summaries of the subagents that ended just before the run was interrupted.
    pub(super) fn write_summaries(&self) -> io::Result<()> {
        self.state().model.summaries().try_for_each(|child| write_summary(&self.recorder, child).map(drop))
    }

    /// Takes the hint of the first failure.
    fn fail(&self, error: &io::Error) {
        self.state().recovery_hint.get_or_insert_with(|| recovery_hint(error, &self.recorder.folder));
    }

    /// Adds what to do about a record that couldn't be written.
    pub(super) fn with_recovery_hint(&self, mut error: ErrorInfo) -> ErrorInfo {
        if error.code == Outcome::EnvironmentFailed.to_string() {
            error.hint = self.state().recovery_hint.clone().or(error.hint);
        }
        error
    }

    pub(super) fn state(&self) -> MutexGuard<'_, RecordedState> {
        self.state.lock().ignore_poison()
    }

    /// Whether a script or a record has replies left that no agent asked for.
    pub(super) fn unused_replies(
        &self,
        plan: &Plan,
        providers: &BTreeMap<String, Arc<dyn Provider>>,
    ) -> Option<ProviderError> {
        let agents = &self.state().model.agents;
        providers.iter().find_map(|(source, provider)| {
            let is_asked =
                |agent: &str| plan.agent(agent).is_some_and(|planned| planned.model.reply_source() == *source);
            provider.unused_replies(&|agent| {
                let replies = agents.get(agent).filter(|_| is_asked(agent)).map(|agent| agent.replies);
                replies.unwrap_or_default()
            })
        })
    }
}
