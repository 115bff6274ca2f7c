//! What the operator adds to a job's list: openings to private addresses, and other places for names.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::names::{HostList, HostName};

/// What the commands of a run may reach.
#[derive(Debug, Clone, Default)]
pub struct EgressRules {
    /// The job's list.
    pub list: HostList,
    /// Names whose addresses may be private.
    pub private: Vec<HostPort>,
    /// Other places for names; the first that fits counts.
    pub connect_to: Vec<ConnectTo>,
    /// The proxy through which this machine reaches others.
    pub proxy: Option<UpstreamProxy>,
}

/// A name with a port, as in `db.corp:5432`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The name.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

/// What is wrong with a value of the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(String);

impl FromStr for HostPort {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| RuleError(format!("`{text}` isn't HOST:PORT")))?;
        Ok(Self { host: parse_host(host)?, port: parse_port(port)? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Another place for a name, as `--connect-to HOST:PORT:ADDRESS:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectTo {
    /// The name; `None` for every name.
    pub host: Option<HostName>,
    /// The port; `None` for every port.
    pub port: Option<u16>,
    /// The place.
    pub target: ConnectTarget,
}

/// Where a connection goes instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectTarget {
    /// To this address.
    Address(SocketAddr),
    /// To the addresses of this name.
    Host(HostName, u16),
}

impl ConnectTo {
    /// Whether it is about this name and port.
    pub fn applies_to(&self, host: &HostName, port: u16) -> bool {
        self.host.as_ref().is_none_or(|own| own == host) && self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for ConnectTo {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError(format!("`{text}` isn't HOST:PORT:ADDRESS:PORT"));
        let (host, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (port, target) = rest.split_once(':').ok_or_else(wrong)?;
        let (address, target_port) = target.rsplit_once(':').ok_or_else(wrong)?;
        let target_port = parse_port(target_port)?;
        let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
        let target = match bare.parse::<IpAddr>() {
            Ok(address) => ConnectTarget::Address(SocketAddr::new(address, target_port)),
            Err(_) => ConnectTarget::Host(parse_host(address)?, target_port),
        };
        let host = if host.is_empty() { None } else { Some(parse_host(host)?) };
        let port = if port.is_empty() { None } else { Some(parse_port(port)?) };
        Ok(Self { host, port, target })
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}")?;
        }
        f.write_str(":")?;
        if let Some(port) = self.port {
            write!(f, "{port}")?;
        }
        match &self.target {
            ConnectTarget::Address(address) => write!(f, ":{address}"),
            ConnectTarget::Host(host, port) => write!(f, ":{host}:{port}"),
        }
    }
}

/// The proxy through which this machine reaches others: names are passed to it, so their addresses can't be checked.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    /// The name or address of the proxy.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// `user:password`, if it asks for them.
    pub credentials: Option<String>,
    /// The hosts that are reached without it: names, with everything below them, or `*`.
    pub except: Vec<String>,
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamProxy({}:{})", self.host, self.port)
    }
}

impl UpstreamProxy {
    /// Reads the variables `HTTPS_PROXY` and `NO_PROXY`.
    ///
    /// # Errors
    /// It isn't the address of an HTTP proxy.
    pub fn parse(address: &str, except: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError("HTTPS_PROXY isn't the address of an HTTP proxy (`http://HOST:PORT`)".to_owned());
        let with_scheme = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let url = reqwest::Url::parse(&with_scheme).map_err(|_| wrong())?;
        if url.scheme() != "http" {
            return Err(wrong());
        }
        let host = url.host_str().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let decoded = |text: &str| percent_decoded(text);
        let credentials = (!url.username().is_empty())
            .then(|| format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or_default())));
        let entries = except.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
        let except = entries.map(|entry| entry.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase());
        Ok(Self { host, port: url.port().unwrap_or(80), credentials, except: except.collect() })
    }

    /// Whether a name is reached through the proxy.
    pub fn is_for(&self, name: &HostName) -> bool {
        let name = name.as_str();
        let is_below = |entry: &String| name.strip_suffix(entry.as_str()).is_some_and(|rest| rest.ends_with('.'));
        !self.except.iter().any(|entry| entry == "*" || entry == name || is_below(entry))
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse_host(text: &str) -> Result<HostName, RuleError> {
    HostName::parse(text).map_err(|error| RuleError(error.to_string()))
}

fn parse_port(text: &str) -> Result<u16, RuleError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port @ 1..) if is_plain => Ok(port),
        _ => Err(RuleError(format!("`{text}` isn't a port (1 to 65535)"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_places_are_written_as_curl_writes_them() {
        for text in
            ["a.test:443:127.0.0.1:8443", ":443:[::1]:8443", "a.test::10.0.0.1:1", "::127.0.0.1:9", "a.test:1:b.test:2"]
        {
            assert_eq!(text.parse::<ConnectTo>().unwrap().to_string(), text);
        }
        for text in ["", "a.test", "a.test:443", "a.test:443:127.0.0.1", "a.test:x:127.0.0.1:1", "a b:1:127.0.0.1:1"] {
            assert!(text.parse::<ConnectTo>().is_err(), "{text}");
        }
        let every: ConnectTo = ":443:127.0.0.1:1".parse().unwrap();
        let name = HostName::parse("a.test").unwrap();
        assert!(every.applies_to(&name, 443) && !every.applies_to(&name, 80));
    }

    #[test]
    fn an_opening_needs_a_name_and_a_port() {
        assert_eq!("DB.corp:5432".parse::<HostPort>().unwrap().to_string(), "db.corp:5432");
        for text in ["db.corp", "db.corp:", "db.corp:0", "db.corp:+1", "10.0.0.1:5432", ":5"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_proxy_has_exceptions() {
        let proxy = UpstreamProxy::parse("http://me:p%40ss@proxy.corp:3128", ".corp, example.com").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.corp", 3128));
        assert_eq!(proxy.credentials.as_deref(), Some("me:p@ss"));
        let is_for = |name: &str| proxy.is_for(&HostName::parse(name).unwrap());
        assert!(is_for("a.test") && is_for("badexample.com"));
        assert!(!is_for("git.corp") && !is_for("www.example.com") && !is_for("example.com"));
        assert!(!format!("{proxy:?}").contains("p@ss"));
        assert!(UpstreamProxy::parse("socks5://proxy:1", "").is_err());
    }
}
