//! Tests against third-party software: the types of the official SDKs in a Python server, and a real model.

mod llama;
mod record_checks;
mod sdk;
mod tool_servers;
mod traces;
