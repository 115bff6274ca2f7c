//! The secrets that all clones of a redactor share.

use std::sync::{Arc, RwLock};

use super::matcher::SecretMatcher;
use crate::sync::IgnorePoison;

/// How many secrets of one name can be added later. Older ones are forgotten: they are keys that have expired.
pub(super) const MAX_ADDED: usize = 64;

/// Secrets, to which others can be added at any time.
#[derive(Clone, Default)]
pub(super) struct SharedSecrets(Arc<RwLock<Secrets>>);

#[derive(Default)]
struct Secrets {
    matcher: Option<Arc<SecretMatcher>>,
    /// The markers and values that were known from the beginning.
    initial: Vec<(Arc<str>, String)>,
    /// Those that were added later, the oldest first.
    added: Vec<(Arc<str>, String)>,
}

impl Secrets {
    fn rebuild(&mut self) {
        let all = self.initial.iter().chain(&self.added);
        self.matcher = SecretMatcher::new(all.map(|(label, value)| (Arc::clone(label), value.as_str()))).map(Arc::new);
    }
}

impl SharedSecrets {
    /// Takes the marker and the value of each secret.
    pub(super) fn new(initial: Vec<(Arc<str>, String)>) -> Self {
        let mut secrets = Secrets { initial, ..Secrets::default() };
        secrets.rebuild();
        Self(Arc::new(RwLock::new(secrets)))
    }

    /// Adds a secret.
    pub(super) fn add(&self, label: Arc<str>, value: &str) {
        let mut secrets = self.0.write().ignore_poison();
        if secrets.initial.iter().chain(&secrets.added).any(|(_, known)| known == value) {
            return;
        }
        let is_same = |(known, _): &(Arc<str>, String)| *known == label;
        if secrets.added.iter().filter(|it| is_same(it)).count() >= MAX_ADDED
            && let Some(oldest) = secrets.added.iter().position(is_same)
        {
            secrets.added.remove(oldest);
        }
        secrets.added.push((label, value.to_owned()));
        secrets.rebuild();
    }

    /// Finds the current secrets; `None` if there are none.
    pub(super) fn matcher(&self) -> Option<Arc<SecretMatcher>> {
        self.0.read().ignore_poison().matcher.clone()
    }
}
