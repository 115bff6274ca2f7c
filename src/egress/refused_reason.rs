//! Why a command doesn't reach a host.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a connection or a lookup was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusedReason {
    /// No rule has the name.
    NotListed,
    /// A rule has the name, but not with this port.
    PortNotListed,
    /// An address was used in place of a name, or the name leads only to addresses that are never allowed.
    Address,
    /// The TLS greeting names no server.
    NoServerName,
    /// The TLS greeting names another server than the one that was looked up.
    WrongServerName,
    /// A request has another Host than the one that was looked up, or none.
    WrongHost,
    /// Something else than TLS on its port.
    NotTls,
    /// Something else than HTTP on its port.
    NotHttp,
    /// The run has sent as much as it may.
    UploadLimit,
    /// The host is allowed, but it can't be resolved or doesn't answer, or there are too many connections.
    Unreachable,
}

impl fmt::Display for RefusedReason {
    /// In words, for people and models.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotListed => "not in this job's list",
            Self::PortNotListed => "not with this port in this job's list",
            Self::Address => "an address that isn't allowed",
            Self::NoServerName => "the TLS greeting names no server",
            Self::WrongServerName => "the TLS greeting names another server",
            Self::WrongHost => "a request names another host",
            Self::NotTls => "not TLS",
            Self::NotHttp => "not HTTP",
            Self::UploadLimit => "the run may send no more",
            Self::Unreachable => "it can't be reached",
        })
    }
}

impl RefusedReason {
    /// Whether a longer list would have allowed it.
    pub fn is_about_list(self) -> bool {
        matches!(self, Self::NotListed | Self::PortNotListed)
    }
}
