//! Connects to the providers of a plan's models.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;
use crate::plan::Plan;
use crate::providers::replay::Script;
use crate::providers::{
    ConnectContext, Conversation, ConversationConfig, Model, PROVIDERS, Provider, ProviderError, ProviderErrorKind,
};
use crate::redaction::Redactor;

/// The `User-Agent` header of all requests.
pub const USER_AGENT: &str = concat!("legwork/", env!("CARGO_PKG_VERSION"));

/// The scripts and records that models of a plan answer from, by the names of the models.
pub type Scripts = BTreeMap<String, OpenedScript>;

/// A script or the replies of a record. Each run reads it from its beginning.
#[derive(Debug, Clone)]
pub struct OpenedScript {
    /// The absolute path.
    pub path: String,
    /// What was read there.
    pub script: Script,
}

/// Opens every provider that the plan's models for which `is_wanted` is true need, without sending anything. A missing key is
/// found here; where steps before the agent, or a condition, may end the run before any request, it is found when the agent starts.
///
/// # Errors
/// A provider can't be used.
pub fn connect<'a>(
    plan: &Plan,
    is_wanted: &dyn Fn(&Model) -> bool,
    with: impl Fn(&Model) -> Result<ConnectContext<'a>, Error>,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    let mut opened = BTreeMap::new();
    for model in plan.models().filter(|model| is_wanted(model)) {
        let key = model.reply_source();
        if opened.contains_key(&key) {
            continue;
        }
        let entry = model.spec().ok_or_else(|| {
            let what = format!("there is no provider `{}`", model.provider);
            let hint = "`legwork providers` lists all providers, and says where you can add a server of your own";
            Error::Provider(ProviderError::new(ProviderErrorKind::Rejected, what).with_hint(hint))
        })?;
        let provider = match (entry.connect)(&with(model)?) {
            Err(error) if plan.may_not_start() => Arc::new(Unavailable(error)) as Arc<dyn Provider>,
            provider => provider.map_err(Error::Provider)?,
        };
        opened.insert(key, provider);
    }
    Ok(opened)
}

/// A provider that can't be used.
struct Unavailable(ProviderError);

impl Provider for Unavailable {
    fn open(&self, _: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        Err(self.0.clone())
    }
}

/// Opens the providers of the plan's models that answer from scripts.
///
/// # Errors
/// A model has no script.
pub fn connect_scripts(
    plan: &Plan,
    scripts: &Scripts,
    redactor: &Redactor,
) -> Result<BTreeMap<String, Arc<dyn Provider>>, Error> {
    let script_of = |model: &Model| {
        let OpenedScript { script, .. } = scripts.get(&model.name)?;
        Some(Arc::new(script.clone().relocated_to(&plan.workspace)))
    };
    connect(plan, &Model::is_scripted, |model| {
        Ok(ConnectContext {
            env: &|_| None,
            server: None,
            settings: None,
            script: script_of(model),
            user_agent: USER_AGENT,
            redactor,
            providers: PROVIDERS,
        })
    })
}
