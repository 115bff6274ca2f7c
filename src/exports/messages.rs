//! The conversation of one agent as its provider's API gets it: the body of the next request. The loop runs again over the
//! record, so compaction, truncated results and raised limits are as they were, and the provider's own encoder writes it.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;

use super::{Export, ExportError, ExportFormat, write_json};
use crate::error::Error;
use crate::message::{Message, Reply};
use crate::providers::{
    ConnectContext, Conversation, ConversationConfig, Model, PROVIDERS, Provider, ProviderError, ProviderErrorKind,
    ProviderSpec, ReplyRequest, StreamObserver,
};
use crate::redaction::Redactor;
use crate::replay::Replay;
use crate::running_clock::RunningInstant;
use crate::sync::IgnorePoison;

/// One JSON object, the body of a request.
pub const FORMAT: ExportFormat = ExportFormat { name: "messages", options: &["--agent", "--api"], write };

/// The model's name in the request of another API than the agent's own.
const OTHER_MODEL: &str = "MODEL";

fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<Vec<String>, ExportError> {
    let record = export.record;
    let (replay, mut warnings) = Replay::read_damaged(record)?;
    let planned = record.plan.agent(export.agent).filter(|_| replay.agents().any(|id| id == export.agent));
    let Some(planned) = planned else {
        let known = replay.agents().collect::<Vec<_>>().join(", ");
        let message = format!("the record has no conversation of `{}`", export.agent);
        return Err(Error::usage(message, format!("It has those of: {known}.")).into());
    };
    let encoders =
        planned.models().map(|agent_model| Encoder::new(export, agent_model)).collect::<Result<Vec<_>, Error>>()?;
    let capture = Arc::new(Capture {
        agent: export.agent.to_owned(),
        encoders: encoders.into(),
        encoder: 0,
        conversation: Arc::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::environment("the async runtime can't be started"))?;
    let provider = Arc::clone(&capture) as Arc<dyn Provider>;
    if !runtime.block_on(replay.rebuild_conversations(&provider))? {
        warnings.push("The record can't be followed to its end, so messages may be missing.".to_owned());
    }
    let mut conversation = lock(&capture.conversation);
    let Some((conversation, encoder)) = conversation.as_mut() else {
        let why = format!("the parent's journal ends before the task of {}", export.agent);
        return Err(Error::NotARecord { path: record.folder.clone(), why }.into());
    };
    if let Some(reply) = replay.last_reply(export.agent) {
        conversation.push(&capture.encoders[*encoder].adapt(&Message::Assistant(reply)));
    }
    let request = ReplyRequest {
        max_tokens: encoder.checked_sub(1).map_or(planned.max_tokens, |at| planned.fallback[at].max_tokens),
        tools_allowed: true,
        requires_content: false,
        deadline: RunningInstant::now(),
        has_fallback: false,
    };
    let body = conversation.request_body(&request).unwrap_or_default();
    write_json(out, &String::from_utf8_lossy(&body))?;
    Ok(warnings)
}

/// The API whose messages are written, and the model for it. Another API than the agent's own doesn't have its model.
fn choose_api(agent_model: &Model, wanted: Option<&str>) -> Result<(&'static ProviderSpec, Model), Error> {
    let names = || {
        let names: Vec<&str> = apis().map(|spec| spec.name).collect();
        names.join(", ")
    };
    match (wanted, agent_model.spec()) {
        (None, Some(spec)) if !spec.is_scripted() => Ok((spec, agent_model.clone())),
        (None, Some(_)) => {
            let message = "the agent's replies came from a script, so it has no API";
            Err(Error::usage(message, format!("Choose one with --api: {}.", names())))
        }
        (None, None) => {
            let message = format!("the API of `{agent_model}` isn't known");
            Err(Error::usage(message, format!("Choose one with --api: {}.", names())))
        }
        (Some(name), spec) => match apis().find(|api| api.name == name) {
            Some(api) if spec.is_some_and(|agent_model| agent_model.name == name) => Ok((api, agent_model.clone())),
            Some(api) => Ok((api, Model::new(api.name, OTHER_MODEL))),
            None => Err(Error::usage(format!("there is no API `{name}`"), format!("The APIs are: {}.", names()))),
        },
    }
}

/// The providers with an API.
pub fn apis() -> impl Iterator<Item = &'static ProviderSpec> {
    PROVIDERS.iter().filter(|spec| !spec.is_scripted())
}

/// A provider that encodes requests and never sends one. It needs no key.
fn connect(export: &Export<'_>, spec: &ProviderSpec, model: &Model) -> Result<Arc<dyn Provider>, Error> {
    let base_url_env = spec.default_endpoint.map(|endpoint| endpoint.base_url_env);
    let env = |name: &str| match name {
        name if base_url_env == Some(name) => (export.env)(name),
        name if spec.key_envs.contains(&name) || export.servers.key_envs().any(|key| key == name) => {
            Some("unused".to_owned())
        }
        _ => None,
    };
    let context = ConnectContext {
        env: &env,
        server: export.servers.get(&model.provider),
        // They don't change what a request says.
        settings: None,
        script: None,
        user_agent: concat!("legwork/", env!("CARGO_PKG_VERSION")),
        redactor: &Redactor::default(),
        providers: PROVIDERS,
    };
    (spec.connect)(&context).map_err(Error::Provider)
}

/// The conversation of the exported agent, once it is open, and the index of its encoder.
type SharedConversation = Arc<Mutex<Option<(Box<dyn Conversation>, usize)>>>;

fn lock(conversation: &SharedConversation) -> MutexGuard<'_, Option<(Box<dyn Conversation>, usize)>> {
    conversation.lock().ignore_poison()
}

/// Encodes the conversation of a model.
struct Encoder {
    /// The model in the record.
    agent_model: Model,
    /// The model in the request.
    model: Model,
    provider: Arc<dyn Provider>,
    /// Whether the model's replies are of the API that is written.
    is_own_api: bool,
}

impl Encoder {
    fn new(export: &Export<'_>, agent_model: &Model) -> Result<Self, Error> {
        let (spec, model) = choose_api(agent_model, export.api)?;
        let is_own_api =
            export.api.is_none() || agent_model.spec().is_some_and(|agent_model| agent_model.name == spec.name);
        Ok(Self { agent_model: agent_model.clone(), provider: connect(export, spec, &model)?, model, is_own_api })
    }

    /// Removes what only the API of a reply accepts, if another one is written.
    fn adapt(&self, message: &Message) -> Message {
        let mut message = message.clone();
        if let Message::Assistant(reply) = &mut message
            && !self.is_own_api
        {
            reply.blocks.iter_mut().for_each(|block| block.raw = None);
        }
        message
    }
}

/// Encodes the conversation of one agent. All replies are recorded, so none is asked for.
struct Capture {
    agent: String,
    /// One for each model of the agent.
    encoders: Arc<[Encoder]>,
    /// The index of the one that is used.
    encoder: usize,
    conversation: SharedConversation,
}

impl Provider for Capture {
    fn open(&self, config: ConversationConfig) -> Result<Box<dyn Conversation>, ProviderError> {
        let is_exported = config.agent == self.agent;
        let at = self.encoders.iter().position(|encoder| encoder.agent_model == config.model).unwrap_or_default();
        if is_exported && let Some(encoder) = self.encoders.get(at) {
            let opened = encoder.provider.open(ConversationConfig { model: encoder.model.clone(), ..config })?;
            *lock(&self.conversation) = Some((opened, at));
        }
        Ok(Box::new(Self {
            agent: self.agent.clone(),
            encoders: Arc::clone(&self.encoders),
            encoder: at,
            conversation: if is_exported { Arc::clone(&self.conversation) } else { Arc::default() },
        }))
    }
}

impl Conversation for Capture {
    fn push(&mut self, message: &Message) {
        if let Some((conversation, _)) = lock(&self.conversation).as_mut() {
            conversation.push(&self.encoders[self.encoder].adapt(message));
        }
    }

    fn ask<'a>(
        &'a mut self,
        _: ReplyRequest,
        _: &'a dyn StreamObserver,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let error = ProviderError::new(ProviderErrorKind::Differs, "the record has no reply to this");
        Box::pin(std::future::ready(Err(error)))
    }

    fn clear(&mut self) {
        lock(&self.conversation).iter_mut().for_each(|(conversation, _)| conversation.clear());
    }

    fn prompt_bytes(&self) -> usize {
        lock(&self.conversation).as_ref().map_or(0, |(conversation, _)| conversation.prompt_bytes())
    }
}
