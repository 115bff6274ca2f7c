//! The hosts that commands may reach, by name: what a list of them means, and how connections to them are made.
//!
//! A command with such a list has no network of its own. Its connections end in this process, which knows the name that was
//! asked for: it checks the name and the first bytes, resolves the name only then, leaves out addresses that are never
//! allowed, connects to exactly those that are left, and relays. How a connection gets here depends on the sandbox's tier.

mod account;
pub mod addresses;
pub(crate) mod client_hello;
mod connector;
mod dns;
#[allow(clippy::module_inception, reason = "the type that the folder is named after")]
mod egress;
mod http_host;
pub mod names;
mod proxy;
mod refused_reason;
mod relay;
mod rules;
mod serving;
mod thread;
mod traffic;
mod upload;

pub use self::egress::{CallEgress, Egress};
pub use self::names::{DEFAULT_PORT, GITHUB, HostList, HostName, HostPattern, HostRule, NameError, NameErrorKind};
pub use self::proxy::{ProxyDoor, ProxyListener, ProxyUsers};
pub use self::refused_reason::RefusedReason;
pub use self::rules::{ConnectTarget, ConnectTo, EgressRules, HostPort, RuleError, UpstreamProxy};
pub use self::serving::{CommandSockets, Release, Serving};
pub use self::traffic::{CallTraffic, MAX_REFUSALS, Refused, Used};
pub use self::upload::UploadMeter;

/// What a command may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// Nothing.
    #[default]
    None,
    /// The hosts of the [`CallEgress`] that it is started with; nothing without one.
    Hosts,
    /// Everything.
    Open,
}
