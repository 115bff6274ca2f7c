//! What runs propose to do outside.

mod outputs;
mod ports;
pub(crate) mod reports;
