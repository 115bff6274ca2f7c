//! The way out for the commands of one run.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

use super::names::{HostList, HostName};
use super::refused_reason::RefusedReason;
use super::rules::{ConnectTo, EgressRules, HostPort, UpstreamProxy};
use super::thread::EgressThread;
use super::traffic::CallTraffic;
use super::upload::UploadMeter;
use crate::sync::IgnorePoison;

/// How many connections there are at most at once in a run.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// How much of a name that isn't one is kept, in characters.
const MAX_SHOWN: usize = 253;

/// A name as it is kept, without what could change a terminal or a log.
fn shortened(host: &str) -> String {
    host.chars().take(MAX_SHOWN).map(|char| if char.is_ascii_graphic() { char } else { '?' }).collect()
}

/// What the commands of a run may reach, and how much they may send. Clones and scopes share the limits.
#[derive(Debug, Clone)]
pub struct Egress {
    list: Arc<HostList>,
    pub(super) shared: Arc<Shared>,
}

/// What is the same for all lists of a run.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) private: Vec<HostPort>,
    pub(super) connect_to: Vec<ConnectTo>,
    pub(super) proxy: Option<UpstreamProxy>,
    pub(super) upload: UploadMeter,
    /// One for each connection.
    pub(super) slots: Semaphore,
    /// One for each connection that waits for a slot.
    pub(super) waiting: Semaphore,
    pub(super) thread: EgressThread,
}

impl Egress {
    /// The way out of a run.
    pub fn new(rules: EgressRules, upload: UploadMeter) -> Self {
        let EgressRules { list, private, connect_to, proxy } = rules;
        let shared = Shared {
            private,
            connect_to,
            proxy,
            upload,
            slots: Semaphore::new(MAX_CONNECTIONS),
            waiting: Semaphore::new(MAX_CONNECTIONS),
            thread: EgressThread::default(),
        };
        Self { list: Arc::new(list), shared: Arc::new(shared) }
    }

    /// The same with another list, for a subagent or a tool server.
    #[must_use]
    pub fn scope(&self, list: &HostList) -> Self {
        Self { list: Arc::new(list.clone()), shared: Arc::clone(&self.shared) }
    }

    /// What may be reached.
    pub fn list(&self) -> &HostList {
        &self.list
    }

    /// How much was sent, by all.
    pub fn upload(&self) -> &UploadMeter {
        &self.shared.upload
    }

    /// The way out of one command, one call or one tool server.
    pub fn call(&self) -> CallEgress {
        CallEgress { egress: self.clone(), traffic: Arc::default() }
    }
}

/// The way out of one command, one call or one tool server, and what it has reached so far. It serves while a command runs that
/// was started with it. Clones are the same.
#[derive(Debug, Clone)]
pub struct CallEgress {
    egress: Egress,
    traffic: Arc<Mutex<CallTraffic>>,
}

impl CallEgress {
    /// The way out that it is part of.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// What may be reached.
    pub fn list(&self) -> &HostList {
        self.egress.list()
    }

    /// Counts a refusal. `host` comes from a command.
    pub(super) fn refuse(&self, host: &str, port: Option<u16>, reason: RefusedReason) {
        self.traffic.lock().ignore_poison().refuse(&shortened(host), port, reason);
    }

    /// Counts a refused lookup.
    pub(super) fn refuse_lookup(&self, host: &str, is_first_kind: bool) {
        self.traffic.lock().ignore_poison().refuse_lookup(&shortened(host), is_first_kind);
    }

    /// Counts connections and bytes.
    pub(super) fn count(&self, host: &HostName, port: u16, connections: u64, sent: u64, received: u64) {
        self.traffic.lock().ignore_poison().count(host, port, connections, sent, received);
    }

    /// What was reached and refused since the last time. When a command has ended, that is all of it.
    pub fn take_traffic(&self) -> CallTraffic {
        std::mem::take(&mut *self.traffic.lock().ignore_poison())
    }
}
