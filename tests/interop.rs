//! Tests against software of others: the types of the official SDKs in a Python server, and a real model.

mod llama;
mod record_checks;
mod sdk;
