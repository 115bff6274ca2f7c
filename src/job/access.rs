//! What programs can use: variables of the environment and the network.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use super::prompt::{OrText, PATH_PATTERN, TextOrMapping};
use crate::egress::HostList;
use crate::yaml::Spanned;

/// The form of an environment variable's name.
pub const ENV_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// The same in words.
pub const ENV_FORM: &str = "a name is made of letters, digits and `_`, and doesn't begin with a digit";

/// The greatest number of hosts in a list, those of its files included.
pub const MAX_HOSTS: usize = 1_000;
/// The values of `network` that are a word.
const NETWORK_WORDS: &[&str] = &["none", "open"];

/// The network access of tools.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum JobNetwork {
    /// None, or all.
    Word(NetworkWord),
    /// The hosts of a list.
    Hosts(AllowedHosts),
}

/// A network without a list of hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkWord {
    /// No network.
    #[default]
    None,
    /// Unrestricted network.
    Open,
}

/// The hosts that programs may reach.
#[derive(Debug, Clone, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "hosts")]
pub struct AllowedHosts {
    /// Hosts by name, and files of them: `api.example.com` (port 443), `db.example.com:5432`, `"*.example.com"`, `github` (the hosts of
    /// GitHub), or `{ file: hosts/python.txt }`.
    #[schemars(length(max = MAX_HOSTS))]
    pub allow: Spanned<Vec<Spanned<HostEntry>>>,
}

/// A host, or a file of hosts.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum HostEntry {
    /// A name, with or without a port; or `github`.
    Host(
        #[schemars(regex(pattern = r"^[^\s/]+$"), extend("patternErrorMessage" = "write a host such as `api.example.com`, or with a port, `db.example.com:5432`"))]
         String,
    ),
    /// A file with one host a line. `#` starts a comment.
    File(HostFile),
}

/// A file of hosts.
#[derive(Debug, Clone, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "file of hosts")]
pub struct HostFile {
    /// The path of a text file below the job file's folder, relative to that folder. It has one host a line, and `#` starts a comment.
    #[schemars(regex(pattern = PATH_PATTERN), extend("patternErrorMessage" = "the path leads out of the job's folder"))]
    pub file: Spanned<String>,
}

impl JobNetwork {
    /// Whether programs get an unrestricted network.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Word(NetworkWord::Open))
    }

    /// Whether programs get any network.
    pub fn is_some(&self) -> bool {
        !matches!(self, Self::Word(NetworkWord::None))
    }

    /// Its list of hosts, if it has one.
    pub fn hosts(&self) -> Option<&AllowedHosts> {
        match self {
            Self::Word(_) => None,
            Self::Hosts(hosts) => Some(hosts),
        }
    }
}

impl Default for JobNetwork {
    fn default() -> Self {
        Self::Word(NetworkWord::None)
    }
}

/// The network access of tools, as a plan has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network.
    #[default]
    None,
    /// Unrestricted network.
    Open,
    /// These hosts: names with their ports (443 if there is none), sets and files expanded.
    Allow(#[schemars(with = "Vec<String>")] HostList),
}

impl Network {
    /// The hosts, if there is a list of them.
    pub fn hosts(&self) -> Option<&HostList> {
        match self {
            Self::Allow(hosts) => Some(hosts),
            Self::None | Self::Open => None,
        }
    }

    /// Whether nothing can be reached.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for Network {
    /// `none`, `open`, or the hosts, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Open => f.write_str("open"),
            Self::Allow(hosts) if hosts.is_empty() => f.write_str("no hosts"),
            Self::Allow(hosts) => hosts.fmt(f),
        }
    }
}

impl OrText<'_> for AllowedHosts {
    const EXPECTED: &'static str = "`none`, `open`, or `{ allow: [HOST, ...] }`";
}

impl OrText<'_> for HostFile {
    const EXPECTED: &'static str = "a host, or `{ file: PATH }`";
}

impl<'de> Deserialize<'de> for JobNetwork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::<AllowedHosts>::deserialize(deserializer)? {
            TextOrMapping::Mapping(hosts) => Self::Hosts(hosts),
            TextOrMapping::Text(word) => Self::Word(match word.as_str() {
                // The placeholder of a value that couldn't be read is empty.
                "none" | "" => NetworkWord::None,
                "open" => NetworkWord::Open,
                other => return Err(de::Error::unknown_variant(other, NETWORK_WORDS)),
            }),
        })
    }
}

impl<'de> Deserialize<'de> for HostEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TextOrMapping::deserialize(deserializer)? {
            TextOrMapping::Text(host) => Self::Host(host),
            TextOrMapping::Mapping(file) => Self::File(file),
        })
    }
}
