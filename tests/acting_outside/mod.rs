//! What runs propose to do outside.

mod outputs;
pub(crate) mod reports;
