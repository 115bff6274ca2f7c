//! What may keep a record from continuing, apart from its plan.

use std::path::{Path, PathBuf};

use super::resume_state::ResumeState;
use super::secrets::RunSecrets;
use super::used_limit::UsedLimit;
use crate::error::Obstacle;
use crate::event::{Event, PARENT};
use crate::git::head_commit;
use crate::record::{Record, Recorder};

/// That the record is a copy of one that still exists.
pub(super) fn copied(state: &ResumeState, recorder: &Recorder) -> Option<Obstacle> {
    find_original(state, recorder).map(|original| Obstacle::Copied { original })
}

/// That the workspace has another commit checked out than during the run.
pub(super) fn other_commit(state: &ResumeState, workspace: &Path) -> Option<Obstacle> {
    let (_, then) = state.last_workspace();
    let now = head_commit(workspace);
    let named = |commit: Option<&str>| commit.unwrap_or("none").to_owned();
    (then != now.as_deref()).then(|| Obstacle::OtherCommit { now: named(now.as_deref()), then: named(then) })
}

/// That secrets have other values than during the run.
pub(super) fn changed_secrets(state: &ResumeState, recorder: &Recorder, secrets: &RunSecrets) -> Option<Obstacle> {
    let now = recorder.digests(&state.started.run_id, &secrets.redacted_command_secrets());
    let names: Vec<String> = state.changed_secrets(&now).into_iter().map(Into::into).collect();
    (!names.is_empty()).then_some(Obstacle::ChangedSecrets { names })
}

/// That the run ended at a limit.
pub fn reached_limit(used: &UsedLimit) -> Obstacle {
    Obstacle::Limit { name: used.name, used: used.used(), argument: used.argument() }
}

/// The record that this one is a copy of, if it still exists.
fn find_original(state: &ResumeState, recorder: &Recorder) -> Option<PathBuf> {
    let recorded = state.folder();
    // It may be the same one behind another mount.
    if recorded == recorder.folder || !recorded.is_absolute() || recorder.is_at(recorded) {
        return None;
    }
    let first = Record::open(recorded).ok()?.entries(PARENT).ok()?.next()?.ok()?;
    // After `--fresh`, another run with the same key is there.
    let is_same = matches!(&first.event, Event::RunStarted(started) if started.run_id == state.started.run_id)
        && state.started_at() == Some(first.at);
    is_same.then(|| recorded.to_owned())
}
