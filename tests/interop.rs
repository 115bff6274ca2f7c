//! Software that we didn't write at the other end: the official SDKs' types in a server of Python, and a real model.

mod llama;
mod record_checks;
mod sdk;
