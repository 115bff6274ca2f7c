//! The HTTP clients of the threads that send requests to an endpoint.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use reqwest::Client;

/// The HTTP clients of an endpoint, one for each thread that sends requests.
///
/// The runtime that opened a connection drives it, and each thread has a runtime of its own. If another thread used the
/// connection, each request and each part of a response would wake both.
#[derive(Default)]
pub(super) struct Clients(Mutex<HashMap<ThreadId, Client>>);

impl Clients {
    /// That of this thread.
    pub(super) fn get(&self) -> Option<Client> {
        self.lock().get(&thread::current().id()).cloned()
    }

    /// Keeps that of this thread.
    pub(super) fn insert(&self, client: Client) {
        self.lock().insert(thread::current().id(), client);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
