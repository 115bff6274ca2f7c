//! The sandbox, secrets, and what hostile text can do.

pub(crate) mod log_injection;
#[cfg(target_os = "linux")]
pub(crate) mod network;
pub(crate) mod own_programs;
#[cfg(target_os = "linux")]
pub(crate) mod sandbox;
#[cfg(target_os = "linux")]
pub(crate) mod sandbox_attacks;
#[cfg(target_os = "macos")]
pub(crate) mod seatbelt;
pub(crate) mod secrets;
