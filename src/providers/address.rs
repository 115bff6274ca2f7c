//! Addresses of servers, with what of them may be shown.

use std::net::IpAddr;

use reqwest::Url;

/// The base address of a server, where the text is one.
pub(super) fn base(text: &str) -> Option<Url> {
    Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// An address without credentials, query and fragment.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// A base address as it may be shown: without credentials and query, and without a slash at its end; `None` where it is
/// no http or https address.
pub fn shown_base(text: &str) -> Option<String> {
    Some(shown(&base(text)?).trim_end_matches('/').to_owned())
}

/// Whether a base address lies at the host of a provider's own, or below it; an empty one means that itself.
pub fn is_at(text: &str, home: &str) -> bool {
    text.trim().is_empty() || base(text).zip(base(home)).is_some_and(|(url, home)| is_within(&url, &home))
}

/// Whether a base address is one of this machine itself. Nobody is asked for that, so of names only those that can't be
/// any other's count (<https://www.rfc-editor.org/rfc/rfc6761#section-6.3>).
pub fn is_here(text: &str) -> bool {
    let base = base(text);
    let Some(host) = base.as_ref().and_then(Url::host_str) else { return false };
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').rsplit('.').next() == Some("localhost"),
    }
}

/// Whether an address lies at the host of another one, or below it (`eu.api.openai.com`).
pub(super) fn is_within(url: &Url, home: &Url) -> bool {
    let (Some(host), Some(home)) = (url.host_str(), home.host_str()) else { return false };
    host == home || host.strip_suffix(home).is_some_and(|region| region.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_holds_no_secret() {
        for (text, expected) in [
            ("http://127.0.0.1:8080/v1/", Some("http://127.0.0.1:8080/v1")),
            (" https://me:secret@Host.example:443/a?key=secret#secret\n", Some("https://host.example/a")),
            ("ftp://host", None),
            ("host:8080", None),
            ("", None),
        ] {
            assert_eq!(shown_base(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn this_machine_has_addresses_of_its_own() {
        for (text, is) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://127.8.9.10", true),
            ("http://[::1]:11434/v1", true),
            ("http://[::ffff:127.0.0.1]/v1", true),
            ("https://me:secret@LOCALHOST:4000", true),
            ("http://models.localhost./v1", true),
            ("http://localhost.example/v1", false),
            ("http://0.0.0.0:8080", false),
            ("http://192.168.0.7:8080/v1", false),
            ("https://127.0.0.1.example", false),
            ("127.0.0.1:8080", false),
            ("", false),
        ] {
            assert_eq!(is_here(text), is, "{text}");
        }
    }

    #[test]
    fn a_region_is_within_and_a_likeness_is_not() {
        let home = base("https://api.openai.com/v1").unwrap();
        for (text, is) in [
            ("https://api.openai.com", true),
            ("https://EU.api.openai.com/v1", true),
            ("https://notapi.openai.com", false),
            ("https://api.openai.com.example", false),
        ] {
            assert_eq!(is_within(&base(text).unwrap(), &home), is, "{text}");
        }
    }
}
