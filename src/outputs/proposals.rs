//! What a run has proposed so far, and whether more can be accepted.

use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::{Entry, Proposal};
use super::output::{Kind, Output, Outputs, PatchRules};
use crate::sync::IgnorePoison;

/// What the agents of a run have proposed. All of them share it.
pub struct Proposals {
    outputs: Arc<Outputs>,
    changes: Option<Arc<dyn OwnChanges>>,
    state: Mutex<Accepted>,
}

/// What the run knows about its own changes when a call asks.
pub trait OwnChanges: Send + Sync {
    /// Checks the changes so far against the rules of an output. The error says why they can't be published.
    fn check(&self, rules: PatchRules) -> BoxFuture<'_, Result<(), String>>;
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
    /// Nothing is proposed yet. Without `changes`, those of the run aren't checked at the call.
    pub fn new(outputs: Arc<Outputs>, changes: Option<Arc<dyn OwnChanges>>) -> Self {
        Self { outputs, changes, state: Mutex::default() }
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
        &self.outputs
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
        let Some(output) = self.outputs.allowed.get(request.name) else {
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
