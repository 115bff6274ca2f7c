//! What the tests of the whole program stand on: a folder to work in, the real executable, a provider to talk to.

pub(crate) mod folder;
pub(crate) mod peer;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod server;
