//! The client's side of a connection: what a server may ask for.
#![expect(deprecated, reason = "servers of older protocol versions ask for sampling and roots")]

use std::sync::{Arc, Mutex};

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomRequest, CustomResult,
    ElicitRequestParams, ElicitResult, ErrorCode, ErrorData, Implementation, ListRootsResult,
    ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::broadcast;

use super::stream_bounds::StreamBounds;
use crate::sync::IgnorePoison;

/// How many reports of progress wait to be read. Older ones are dropped.
const MAX_UNREAD_REPORTS: usize = 64;
/// The most requests of its own that a server may send.
const MAX_REQUESTS: usize = 1_000;

/// Refuses every request of a server: a run has no one to answer it, and no model to lend.
#[derive(Debug, Clone)]
pub(super) struct RefusingHandler {
    refused: Arc<Mutex<Vec<&'static str>>>,
    bounds: Arc<StreamBounds>,
    progress: broadcast::Sender<ProgressToken>,
}

impl RefusingHandler {
    pub(super) fn new(bounds: &Arc<StreamBounds>) -> Self {
        Self {
            refused: Arc::default(),
            bounds: Arc::clone(bounds),
            progress: broadcast::Sender::new(MAX_UNREAD_REPORTS),
        }
    }

    /// The calls that the server reports progress of, from now on.
    pub(super) fn progress(&self) -> broadcast::Receiver<ProgressToken> {
        self.progress.subscribe()
    }

    fn refuse(&self, what: &'static str) -> ErrorData {
        let mut refused = self.refused.lock().ignore_poison();
        refused.push(what);
        // Each of them needs an answer, which the server may not read.
        if refused.len() >= MAX_REQUESTS {
            self.bounds.violate("it sent 1000 requests of its own");
        }
        ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("legwork refuses {what}"), None)
    }

    /// How many requests were refused so far.
    pub(super) fn refused_count(&self) -> usize {
        self.refused.lock().ignore_poison().len()
    }

    /// The first request that was refused since there were `count`.
    pub(super) fn refused_since(&self, count: usize) -> Option<&'static str> {
        self.refused.lock().ignore_poison().get(count).copied()
    }
}

impl ClientHandler for RefusingHandler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("legwork", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        // No call may be under way.
        let _ = self.progress.send(params.progress_token);
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(self.refuse("sampling"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(self.refuse("elicitation"))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(self.refuse("roots"))
    }

    async fn on_custom_request(
        &self,
        _: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        Err(self.refuse("an unknown request"))
    }
}
