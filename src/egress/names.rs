//! Names of hosts, and lists of the hosts that may be reached.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::refused_reason::RefusedReason;
use crate::diagnostic::suggest_name;

/// The port of a rule that names none.
pub const DEFAULT_PORT: u16 = 443;
/// The one built-in set.
pub const GITHUB: &str = "github";
/// The hosts of the set: git, the API, archives, raw files and the files of releases.
const GITHUB_HOSTS: [&str; 6] = [
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "raw.githubusercontent.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
];
/// The longest name and the longest part of one, in bytes, see RFC 1035.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// The well-known suffixes of several labels below which strangers can register names. Every single label is such a suffix, too. This
/// isn't the whole public suffix list: it would be outdated in every release, and what it guards against is a slip of a job's
/// author, whose list is reviewed.
const SUFFIXES: &[&str] = &[
    "ac.jp",
    "ac.uk",
    "co.il",
    "co.in",
    "co.jp",
    "co.ke",
    "co.kr",
    "co.nz",
    "co.th",
    "co.uk",
    "co.za",
    "com.ar",
    "com.au",
    "com.br",
    "com.cn",
    "com.co",
    "com.hk",
    "com.mx",
    "com.my",
    "com.pl",
    "com.sg",
    "com.tr",
    "com.tw",
    "com.ua",
    "com.vn",
    "edu.au",
    "edu.cn",
    "gov.au",
    "gov.br",
    "gov.cn",
    "gov.in",
    "gov.uk",
    "ltd.uk",
    "me.uk",
    "ne.jp",
    "net.au",
    "net.br",
    "net.cn",
    "net.in",
    "net.nz",
    "net.uk",
    "nhs.uk",
    "or.jp",
    "or.kr",
    "org.au",
    "org.br",
    "org.cn",
    "org.in",
    "org.nz",
    "org.uk",
    "org.za",
    "plc.uk",
    "sch.uk",
    // Hosting below which everybody can have a name.
    "amplifyapp.com",
    "appspot.com",
    "azurewebsites.net",
    "blob.core.windows.net",
    "cloudapp.net",
    "cloudfront.net",
    "deno.dev",
    "firebaseapp.com",
    "fly.dev",
    "github.io",
    "gitlab.io",
    "herokuapp.com",
    "netlify.app",
    "ngrok.app",
    "ngrok.io",
    "ngrok-free.app",
    "onrender.com",
    "pages.dev",
    "r2.dev",
    "readthedocs.io",
    "run.app",
    "s3.amazonaws.com",
    "storage.googleapis.com",
    "surge.sh",
    "trycloudflare.com",
    "vercel.app",
    "web.app",
    "workers.dev",
];

/// A name in ASCII and lower case, without a trailing dot; never an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Box<str>);

impl HostName {
    /// Reads a name; other scripts are converted.
    ///
    /// # Errors
    /// It isn't a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let invalid = || NameError::of(NameErrorKind::Invalid, None);
        if text.is_empty() {
            return Err(NameError::of(NameErrorKind::Empty, None));
        }
        if text.contains(['[', ']']) || text.bytes().filter(|byte| *byte == b':').count() > 1 {
            return Err(NameError::of(NameErrorKind::Address, None));
        }
        if text.len() > 4 * MAX_NAME {
            return Err(invalid());
        }
        let lower = text.to_ascii_lowercase();
        let needs_conversion = !lower.is_ascii() || lower.split('.').any(|label| label.starts_with("xn--"));
        let ascii = if needs_conversion { idna::domain_to_ascii(&lower).map_err(|_| invalid())? } else { lower };
        if let Some(bare) = ascii.strip_suffix('.') {
            let suggestion = Self::parse(bare).ok().map(|name| name.to_string());
            return Err(NameError::of(NameErrorKind::TrailingDot, suggestion));
        }
        if ends_in_number(&ascii) {
            return Err(NameError::of(NameErrorKind::Address, None));
        }
        let is_label = |label: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
            (1..=MAX_LABEL).contains(&label.len())
                && label.bytes().all(is_allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if ascii.len() > MAX_NAME || !ascii.split('.').all(is_label) {
            return Err(invalid());
        }
        Ok(Self(ascii.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has one or more labels before `parent`.
    fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&*parent.0).is_some_and(|labels| labels.ends_with('.'))
    }

    fn is_public_suffix(&self) -> bool {
        !self.0.contains('.') || SUFFIXES.contains(&&*self.0)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether programs would read it as an address of IPv4: its last label is a number in any notation, see the URL standard.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    !last.is_empty() && last.bytes().all(|digit| digit.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(is_hex)
}

/// Which names a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// This one.
    Exact(HostName),
    /// Those with one or more labels before this one, which isn't among them.
    Below(HostName),
}

impl HostPattern {
    /// Whether it is about this name.
    pub fn matches(&self, name: &HostName) -> bool {
        match self {
            Self::Exact(own) => own == name,
            Self::Below(parent) => name.is_below(parent),
        }
    }

    /// Whether every name that it is about is also one of the other's.
    fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(name), other) => other.matches(name),
            (Self::Below(own), Self::Below(parent)) => own == parent || own.is_below(parent),
            (Self::Below(_), Self::Exact(_)) => false,
        }
    }

    /// Whether it is a wildcard.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Self::Below(_))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// Names and a port that may be reached. As text it is an entry of a list, without the port if that is 443.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HostRule {
    /// The names.
    pub pattern: HostPattern,
    /// The port.
    pub port: u16,
}

impl HostRule {
    /// A rule about one name.
    pub fn exact(name: HostName, port: u16) -> Self {
        Self { pattern: HostPattern::Exact(name), port }
    }

    /// Reads one entry of a list: a name, a wildcard or the set, each with or without a port. Only the set is several rules.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_entry(text: &str) -> Result<Vec<Self>, NameError> {
        let (host, port) = split_port(text)?;
        if host == GITHUB {
            return GITHUB_HOSTS.iter().map(|host| Ok(Self::exact(HostName::parse(host)?, port))).collect();
        }
        Self::of(host, port).map_err(|error| error.with_port(port)).map(|rule| vec![rule])
    }

    fn of(host: &str, port: u16) -> Result<Self, NameError> {
        if let Some(parent) = host.strip_prefix("*.").filter(|parent| !parent.is_empty()) {
            let wildcard =
                |error: NameError| NameError { suggestion: error.suggestion.map(|name| format!("*.{name}")), ..error };
            if parent.contains('*') {
                return Err(NameError::of(NameErrorKind::BadWildcard, None));
            }
            let parent = HostName::parse(parent).map_err(wildcard)?;
            if parent.is_public_suffix() {
                return Err(NameError::of(NameErrorKind::WildcardBelowSuffix, None));
            }
            return Ok(Self { pattern: HostPattern::Below(parent), port });
        }
        if host.contains('*') {
            return Err(NameError::of(NameErrorKind::BadWildcard, None));
        }
        let name = HostName::parse(host)?;
        if !name.as_str().contains('.') {
            let suggestion = suggest_name(name.as_str(), [GITHUB]).map(ToOwned::to_owned);
            return Err(NameError::of(NameErrorKind::UnknownWord, suggestion));
        }
        Ok(Self::exact(name, port))
    }

    /// Whether everything that it allows is also allowed by the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.port == other.port && self.pattern.is_within(&other.pattern)
    }
}

/// Splits an entry into what is before the port and the port.
fn split_port(text: &str) -> Result<(&str, u16), NameError> {
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let suggestion = HostRule::parse_entry(host).is_ok().then(|| host.to_owned());
        return Err(NameError::of(NameErrorKind::Url, suggestion));
    }
    if text.contains('/') {
        let host = text.split('/').next().unwrap_or_default();
        let suggestion = HostRule::parse_entry(host).is_ok().then(|| host.to_owned());
        return Err(NameError::of(NameErrorKind::Url, suggestion));
    }
    if text.contains(['[', ']']) || text.bytes().filter(|byte| *byte == b':').count() > 1 {
        return Err(NameError::of(NameErrorKind::Address, None));
    }
    let Some((host, port)) = text.split_once(':') else { return Ok((text, DEFAULT_PORT)) };
    let is_plain = port.bytes().all(|digit| digit.is_ascii_digit());
    match port.parse() {
        Ok(port @ 1..) if is_plain => Ok((host, port)),
        _ => Err(NameError::of(NameErrorKind::BadPort, None)),
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pattern)?;
        if self.port == DEFAULT_PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for HostRule {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let (host, port) = split_port(&text)?;
        Self::of(host, port)
    }
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct NameError {
    /// What is wrong.
    pub kind: NameErrorKind,
    /// What was probably meant, as an entry.
    pub suggestion: Option<String>,
}

impl NameError {
    fn of(kind: NameErrorKind, suggestion: Option<String>) -> Self {
        Self { kind, suggestion }
    }

    fn with_port(self, port: u16) -> Self {
        let suggestion = self.suggestion.map(|host| if port == DEFAULT_PORT { host } else { format!("{host}:{port}") });
        Self { suggestion, ..self }
    }
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameErrorKind {
    /// Nothing is there.
    Empty,
    /// It ends with a dot.
    TrailingDot,
    /// An address in any notation.
    Address,
    /// A wildcard for names of strangers, such as `*.com`.
    WildcardBelowSuffix,
    /// A `*` at another place than as the whole first label.
    BadWildcard,
    /// A word without a dot that isn't the name of the set.
    UnknownWord,
    /// Not a number from 1 to 65535 after the colon.
    BadPort,
    /// An address of a page, or a path.
    Url,
    /// Something else than a name.
    Invalid,
}

impl fmt::Display for NameErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a host is missing",
            Self::TrailingDot => "a host is written without a dot at its end",
            Self::Address => "a host is given by its name, not by an address",
            Self::WildcardBelowSuffix => "everybody can register names below this suffix",
            Self::BadWildcard => "`*` can only stand for the first labels, as in `*.example.com`",
            Self::UnknownWord => "a host has a dot in its name, and the only named set is `github`",
            Self::BadPort => "a port is a number from 1 to 65535",
            Self::Url => "a host has no scheme and no path",
            Self::Invalid => "this isn't the name of a host",
        })
    }
}

/// The hosts that may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostList(Vec<HostRule>);

impl HostList {
    /// A list in the given order, without repetitions.
    pub fn new(rules: impl IntoIterator<Item = HostRule>) -> Self {
        let mut seen = BTreeSet::new();
        Self(rules.into_iter().filter(|rule| seen.insert(rule.clone())).collect())
    }

    /// Its rules.
    pub fn rules(&self) -> &[HostRule] {
        &self.0
    }

    /// Whether nothing may be reached.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a connection may be made.
    ///
    /// # Errors
    /// Why not.
    pub fn allows(&self, host: &HostName, port: u16) -> Result<(), RefusedReason> {
        if !self.names(host) {
            return Err(RefusedReason::NotListed);
        }
        let is_allowed = self.0.iter().any(|rule| rule.port == port && rule.pattern.matches(host));
        if is_allowed { Ok(()) } else { Err(RefusedReason::PortNotListed) }
    }

    /// Whether a name may be reached at any port.
    pub fn names(&self, host: &HostName) -> bool {
        self.0.iter().any(|rule| rule.pattern.matches(host))
    }

    /// All ports of its rules, in their order.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.0.iter().map(|rule| rule.port).collect()
    }

    /// Whether everything that it allows is also allowed by the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.first_outside(other).is_none()
    }

    /// Its first rule that allows more than the other list.
    pub fn first_outside(&self, other: &Self) -> Option<&HostRule> {
        self.0.iter().find(|rule| !other.0.iter().any(|wider| rule.is_within(wider)))
    }
}

impl FromIterator<HostRule> for HostList {
    fn from_iter<I: IntoIterator<Item = HostRule>>(rules: I) -> Self {
        Self::new(rules)
    }
}

impl fmt::Display for HostList {
    /// The entries, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.0.iter().enumerate() {
            write!(f, "{}{rule}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> HostList {
        entries.iter().flat_map(|entry| HostRule::parse_entry(entry).unwrap()).collect()
    }

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn entries_are_folded_and_have_a_port() {
        for (text, shown) in [
            ("api.Example.COM", "api.example.com"),
            ("api.example.com:443", "api.example.com"),
            ("github.com:22", "github.com:22"),
            ("*.pkg.example.com:8443", "*.pkg.example.com:8443"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("XN--bcher-kva.example", "xn--bcher-kva.example"),
            ("*.bücher.example", "*.xn--bcher-kva.example"),
            ("my_bucket.s3.eu.example", "my_bucket.s3.eu.example"),
            ("ｅｘａｍｐｌｅ。com", "example.com"),
        ] {
            let rules = HostRule::parse_entry(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(HostList::new(rules.clone()).to_string(), shown, "{text}");
            let json = serde_json::to_string(&rules).unwrap();
            assert_eq!(serde_json::from_str::<Vec<HostRule>>(&json).unwrap(), rules);
        }
    }

    #[test]
    fn wrong_entries_say_what_is_wrong_and_what_was_meant() {
        use NameErrorKind::{
            Address, BadPort, BadWildcard, Empty, Invalid, TrailingDot, UnknownWord, Url, WildcardBelowSuffix,
        };
        let long = format!("{}.test", "a".repeat(64));
        for (text, kind, suggestion) in [
            ("", Empty, None),
            (":443", Empty, None),
            ("example.com.", TrailingDot, Some("example.com")),
            ("example.com.:22", TrailingDot, Some("example.com:22")),
            ("*.example.com.", TrailingDot, Some("*.example.com")),
            ("127.0.0.1", Address, None),
            ("127.0.0.1:443", Address, None),
            ("127.1", Address, None),
            ("0x7f.1", Address, None),
            ("0x7f000001", Address, None),
            ("2130706433", Address, None),
            ("0177.0.0.01", Address, None),
            ("example.0x", Address, None),
            ("１２７.0.0.1", Address, None),
            ("[::1]", Address, None),
            ("[::1]:443", Address, None),
            ("::1", Address, None),
            ("fe80::1%eth0", Address, None),
            ("*.com", WildcardBelowSuffix, None),
            ("*.co.uk", WildcardBelowSuffix, None),
            ("*.github.io", WildcardBelowSuffix, None),
            ("*", BadWildcard, None),
            ("*.", BadWildcard, None),
            ("*:443", BadWildcard, None),
            ("a.*.com", BadWildcard, None),
            ("*a.com", BadWildcard, None),
            ("*.*.example.com", BadWildcard, None),
            ("githab", UnknownWord, Some("github")),
            ("githab:22", UnknownWord, Some("github:22")),
            ("localhost", UnknownWord, None),
            ("example.com:", BadPort, None),
            ("example.com:0", BadPort, None),
            ("example.com:65536", BadPort, None),
            ("example.com:https", BadPort, None),
            ("example.com:+1", BadPort, None),
            ("https://example.com/x", Url, Some("example.com")),
            ("https://me@example.com:8443?x", Url, Some("example.com:8443")),
            ("example.com/path", Url, Some("example.com")),
            ("exam ple.com", Invalid, None),
            ("a..com", Invalid, None),
            (".example.com", Invalid, None),
            ("-a.example.com", Invalid, None),
            ("a\n.example.com", Invalid, None),
            (long.as_str(), Invalid, None),
        ] {
            let error = HostRule::parse_entry(text).expect_err(text);
            assert_eq!((error.kind, error.suggestion.as_deref()), (kind, suggestion), "{text}");
        }
        assert!(HostName::parse(&"a.".repeat(10_000)).is_err());
    }

    #[test]
    fn a_wildcard_has_one_label_or_more_and_never_the_bare_name() {
        let list = list(&["*.pkg.example.com", "b.test:22"]);
        for allowed in ["a.pkg.example.com", "a.b.pkg.example.com"] {
            assert_eq!(list.allows(&name(allowed), 443), Ok(()), "{allowed}");
        }
        for refused in ["pkg.example.com", "apkg.example.com", "example.com", "pkg.example.com.evil.test"] {
            assert_eq!(list.allows(&name(refused), 443), Err(RefusedReason::NotListed), "{refused}");
        }
        assert_eq!(list.allows(&name("b.test"), 22), Ok(()));
        assert_eq!(list.allows(&name("b.test"), 443), Err(RefusedReason::PortNotListed));
        assert_eq!(list.ports(), BTreeSet::from([22, 443]));
    }

    #[test]
    fn the_set_takes_a_port() {
        let set = list(&["github:22"]);
        assert_eq!(set.rules().len(), GITHUB_HOSTS.len());
        assert!(set.allows(&name("api.github.com"), 22).is_ok() && set.allows(&name("github.com"), 443).is_err());
    }

    #[test]
    fn narrower_lists_are_recognized() {
        let wide = list(&["*.example.com", "a.test:22"]);
        for narrow in [&["x.example.com"][..], &["*.y.example.com", "a.test:22"], &["*.example.com"], &[]] {
            assert!(list(narrow).is_within(&wide), "{narrow:?}");
        }
        for wider in ["example.com", "x.example.com:80", "a.test", "*.test.example.org"] {
            assert_eq!(list(&["x.example.com", wider]).first_outside(&wide).unwrap().to_string(), wider);
        }
        assert!(!list(&["*.a.test"]).is_within(&list(&["a.test"])));
    }
}
