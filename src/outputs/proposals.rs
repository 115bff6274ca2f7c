//! What a run has proposed so far, and whether more can be accepted.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::entry::{Entry, Proposal};
use super::output::{Kind, Output, Outputs, PatchRules};
use super::review_lines::ReviewLines;
use crate::sync::IgnorePoison;

/// What the agents of a run have proposed. All of them share it.
pub struct Proposals {
    outputs: Arc<Outputs>,
    /// With the lists that steps before the agent have printed.
    known: OnceLock<Outputs>,
    changes: Option<Arc<dyn OwnChanges>>,
    trigger_changes: Option<Arc<dyn TriggerChanges>>,
    state: Mutex<Accepted>,
    /// Why the lines of a review that was accepted couldn't be checked.
    unchecked_lines: Mutex<Option<String>>,
}

/// What the run knows about its own changes when a call asks.
pub trait OwnChanges: Send + Sync {
    /// Checks the changes so far against the rules of an output. The error says why they can't be published.
    fn check(&self, rules: PatchRules) -> BoxFuture<'_, Result<(), String>>;
}

/// What the run knows about the pull request that started it.
pub trait TriggerChanges: Send + Sync {
    /// The lines that can be commented on. The error says why they aren't known, as the end of a sentence.
    fn review_lines(&self) -> BoxFuture<'_, Result<Arc<ReviewLines>, String>>;
}

/// The accepted proposals of a run: a fold over its calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accepted {
    /// The outputs, in the order of their first acceptance.
    pub entries: Vec<Entry>,
    /// Why nothing is to be done, if an agent said so and nothing was accepted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing_to_do: Option<String>,
}

/// A call that asks for acceptance. Its data is checked already.
#[derive(Debug)]
pub struct Request<'a> {
    /// The agent that calls.
    pub agent: &'a str,
    /// The call.
    pub call_id: &'a str,
    /// The output's name.
    pub name: &'a str,
    /// The key that the model gave.
    pub key: Option<String>,
    /// The number of the issue or pull request.
    pub target: Option<u64>,
    /// The data.
    pub data: Value,
}

impl Accepted {
    /// Takes the proposal of a call. An output with the id of an earlier one replaces it.
    pub fn apply(&mut self, proposal: &Proposal) {
        match proposal {
            Proposal::NothingToDo(reason) => self.nothing_to_do = Some(reason.clone()),
            Proposal::Accepted(entry) => {
                self.nothing_to_do = None;
                match self.entries.iter_mut().find(|known| known.id == entry.id) {
                    Some(known) => known.clone_from(entry),
                    None => self.entries.push((**entry).clone()),
                }
            }
        }
    }

    /// Whether nothing was proposed or declared.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.nothing_to_do.is_none()
    }
}

impl Proposals {
    /// Nothing is proposed yet. Without `changes`, those of the run aren't checked at the call, and without `trigger_changes` no
    /// lines of reviews.
    pub fn new(
        outputs: Arc<Outputs>,
        changes: Option<Arc<dyn OwnChanges>>,
        trigger_changes: Option<Arc<dyn TriggerChanges>>,
    ) -> Self {
        let (state, unchecked_lines) = (Mutex::default(), Mutex::default());
        Self { outputs, known: OnceLock::new(), changes, trigger_changes, state, unchecked_lines }
    }

    /// Checks that the comments of a review are on lines that the forge shows: one other line makes it refuse the whole review.
    /// Where the lines aren't known, publishing checks them.
    ///
    /// # Errors
    /// Says to the model which comment has no place, and where the nearest ones are.
    pub async fn check_review_lines(&self, output: &Output, target: Option<u64>, data: &Value) -> Result<(), String> {
        let comments = data.get("comments").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        let trigger = self.outputs().trigger.as_ref().and_then(|trigger| trigger.number);
        let (Kind::Review { .. }, Some(comments), Some(changes)) = (&output.kind, comments, &self.trigger_changes)
        else {
            return Ok(());
        };
        // Nothing is known about another pull request.
        if target.is_none() || target != trigger {
            return Ok(());
        }
        match changes.review_lines().await {
            Ok(lines) => lines.check(comments),
            Err(why) => {
                self.unchecked_lines.lock().ignore_poison().get_or_insert(why);
                Ok(())
            }
        }
    }

    /// Why the lines of a review weren't checked at the call, if they weren't.
    pub fn unchecked_lines(&self) -> Option<String> {
        self.unchecked_lines.lock().ignore_poison().clone()
    }

    /// Checks the run's changes so far, if an output publishes them.
    ///
    /// # Errors
    /// Says to the model why they can't be published.
    pub async fn check_changes(&self, output: &Output) -> Result<(), String> {
        match (output.kind.patch_rules(), &self.changes) {
            (Some(rules), Some(changes)) => changes.check(rules.clone()).await,
            _ => Ok(()),
        }
    }

    /// What the job allows.
    pub fn outputs(&self) -> &Outputs {
        self.known.get().unwrap_or(&self.outputs)
    }

    /// Takes the values of the steps before the agent, which no agent's tool may see before.
    ///
    /// # Errors
    /// One of them can't be a list of an output: a sentence.
    pub fn set_steps(&self, values: &Map<String, Value>) -> Result<(), String> {
        let known = self.outputs.with_step_lists(values)?;
        // The steps run once.
        let _ = self.known.set(known);
        Ok(())
    }

    /// What is accepted so far.
    pub fn accepted(&self) -> Accepted {
        self.lock().clone()
    }

    /// Takes a proposal that an earlier part of the run has recorded.
    pub fn restore(&self, proposal: &Proposal) {
        self.lock().apply(proposal);
    }

    /// Accepts an output, if the job allows one more. Returns it with what the model reads.
    ///
    /// # Errors
    /// Says to the model which limit is reached, or which key is taken.
    pub fn accept(&self, request: Request<'_>) -> Result<(Entry, String), String> {
        let Some(output) = self.outputs().allowed.get(request.name) else {
            return Err(format!("the job has no output `{}`", request.name));
        };
        let mut state = self.lock();
        let id = match &request.key {
            Some(key) => key.clone(),
            None => next_id(&state.entries, request.name),
        };
        let replaced = state.entries.iter().find(|entry| entry.id == id);
        if let Some(other) = replaced.filter(|entry| entry.name != request.name || entry.key.is_none()) {
            return Err(format!("the key `{id}` is used by an output of `{}`: choose another one", other.name));
        }
        let is_replacement = replaced.is_some();
        let others = state.entries.iter().filter(|entry| entry.name == request.name && entry.id != id);
        let used: u64 = others.map(|entry| size(&entry.data, output)).sum();
        let count = used + size(&request.data, output);
        let most = u64::from(output.max);
        if count > most {
            let noun = if matches!(output.kind, Kind::Labels { .. }) { "labels" } else { "outputs" };
            return Err(format!(
                "the limit of `{}` is {most} {noun} in a run, and this call would make it {count}; a call with the `key` of an \
                 earlier one replaces that",
                request.name
            ));
        }
        let entry = Entry {
            id,
            name: request.name.to_owned(),
            kind: output.kind.name(),
            key: request.key,
            target: request.target,
            data: request.data,
            agent: request.agent.to_owned(),
            call_id: request.call_id.to_owned(),
        };
        state.apply(&Proposal::Accepted(Box::new(entry.clone())));
        let replaces = if is_replacement { ", in place of the one with this key" } else { "" };
        Ok((entry, format!("accepted ({count} of {most}{replaces}); it is published after the run")))
    }

    /// Takes that there is nothing to do.
    ///
    /// # Errors
    /// Something is accepted already.
    pub fn declare_nothing(&self, reason: &str) -> Result<Proposal, String> {
        let mut state = self.lock();
        if let Some(first) = state.entries.first() {
            return Err(format!("`{}` is accepted already, so there is something to do", first.id));
        }
        let proposal = Proposal::NothingToDo(reason.to_owned());
        state.apply(&proposal);
        Ok(proposal)
    }

    fn lock(&self) -> MutexGuard<'_, Accepted> {
        self.state.lock().ignore_poison()
    }
}

/// How much of an output's limit its data uses.
fn size(data: &Value, output: &Output) -> u64 {
    if !matches!(output.kind, Kind::Labels { .. }) {
        return 1;
    }
    let count = |key: &str| data.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    (count("add") + count("remove")) as u64
}

/// The id of the next output without a key.
fn next_id(entries: &[Entry], name: &str) -> String {
    let own = entries.iter().filter(|entry| entry.name == name && entry.key.is_none()).count();
    let id = |number: usize| format!("{name}-{number}");
    // A key may have the form of an id.
    let is_free = |number: &usize| entries.iter().all(|entry| entry.id != id(*number));
    id((own + 1..).find(is_free).unwrap_or(own + 1))
}
