//! An HTTP client for each thread that sends requests to an endpoint.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use reqwest::Client;

use crate::sync::IgnorePoison;

/// The HTTP clients of an endpoint by thread, each with its own connections.
///
/// A connection is driven by the runtime that opened it, and each thread has its own runtime. If another thread used the
/// connection, each request and each part of a response would wake both threads.
#[derive(Default)]
pub(super) struct ThreadClients(Mutex<HashMap<ThreadId, Client>>);

impl ThreadClients {
    /// The client of this thread, if it has one.
    pub(super) fn get(&self) -> Option<Client> {
        self.lock().get(&thread::current().id()).cloned()
    }

    /// Sets the client of this thread.
    pub(super) fn set(&self, client: Client) {
        self.lock().insert(thread::current().id(), client);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Client>> {
        self.0.lock().ignore_poison()
    }
}
