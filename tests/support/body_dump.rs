//! Request and reply bodies of the tests, written for the check against the official SDKs' types:
//! `tests/interop/check.py`.
//!
//! `LEGWORK_TEST_BODIES` names the folder; without it nothing is written. Each file has one JSON line about the body
//! and then the body itself. The same body is written once, and the file appears completely, so tests can run in
//! parallel.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// A request of our own client. The API must accept each.
    Request,
    /// A reply without streaming.
    Whole,
    /// The events of a reply, all or those up to where it was cut.
    Stream,
    /// An error instead of a reply.
    Error,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Whole => "whole",
            Self::Stream => "stream",
            Self::Error => "error",
        }
    }
}

/// The folder, if bodies are kept.
fn folder() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = PathBuf::from(std::env::var_os("LEGWORK_TEST_BODIES")?);
        std::fs::create_dir_all(&folder).expect("the folder that LEGWORK_TEST_BODIES names");
        Some(folder)
    });
    folder.as_ref()
}

/// Where a body comes from.
#[derive(Clone)]
pub(crate) struct Origin<'a> {
    /// The path of the request.
    pub(crate) path: &'a str,
    /// The test's name.
    pub(crate) test: &'a str,
    /// Types of parts that only this test's server defines, and that are sent back to it in requests.
    pub(crate) novel: &'a [String],
}

/// Keeps a body.
pub(crate) fn keep(what: What, from: &Origin<'_>, body: &[u8]) {
    let Some(folder) = folder() else { return };
    // A CONNECT names a host: it is a request to a proxy, not to an API.
    if !from.path.starts_with('/') {
        return;
    }
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let mut hash = DefaultHasher::new();
    (what, from.path, body).hash(&mut hash);
    let place = folder.join(format!("{}-{:016x}", what.word(), hash.finish()));
    if place.exists() {
        return;
    }
    let half = env!("CARGO_CRATE_NAME");
    let head = json!({"what": what.word(), "path": from.path, "test": from.test, "crate": half, "novel": from.novel});
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let part = folder.join(format!(".part-{}-{number}", std::process::id()));
    std::fs::write(&part, [format!("{head}\n").as_bytes(), body].concat()).expect("a body is kept");
    std::fs::rename(&part, &place).expect("a body is kept");
}

/// Whether a request with this `user-agent` is from our own client, and wasn't written by a test.
pub(crate) fn is_ours(user_agent: Option<&str>) -> bool {
    user_agent.is_some_and(|name| name.starts_with("legwork/"))
}

/// The name of the test that runs in this thread.
pub(crate) fn test() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}
