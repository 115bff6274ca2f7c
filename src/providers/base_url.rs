//! Base addresses of servers: parsing, and display without secrets.

use std::net::IpAddr;

use reqwest::Url;

use crate::redaction::base64;
use crate::text::percent_decode;

/// Parses the base address of a server.
pub(super) fn parse(text: &str) -> Option<Url> {
    Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Explains why a text isn't a base address, without quoting it.
pub(super) fn invalid_reason(text: &str) -> String {
    let what = "isn't an http:// or https:// address";
    match Url::parse(text.trim()).map_err(|error| error.to_string()) {
        // Without a scheme, the example in the hint explains more.
        Err(why) if !why.starts_with("relative") => format!("{what}: {why}"),
        _ => what.to_owned(),
    }
}

/// The secrets in an address, in all forms in which a server could repeat them. They are the password (or the user
/// name, if there is no password), the `Authorization` value, and the query with its values.
pub(super) fn secret_parts(url: &Url) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut both = |written: &str| secrets.extend([written.to_owned(), percent_decode(written)]);
    match url.password() {
        Some(password) => {
            both(password);
            both(&format!("{}:{password}", url.username()));
            // As in the `Authorization` header.
            both(&base64(&format!("{}:{}", percent_decode(url.username()), percent_decode(password))));
        }
        None => both(url.username()),
    }
    if let Some(query) = url.query() {
        both(query);
        query.split('&').filter_map(|pair| pair.split_once('=')).for_each(|(_, value)| both(value));
    }
    secrets.retain(|secret| secret.len() >= 4);
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}

/// An address without credentials, query and fragment.
pub(super) fn without_credentials(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// A base address for display, without credentials, query and final slash. `None` if it isn't an http or https address.
pub fn display_base(text: &str) -> Option<String> {
    Some(without_credentials(&parse(text)?).trim_end_matches('/').to_owned())
}

/// Whether a base address is on the provider's own host or a subdomain of it. An empty address means the provider's
/// own.
pub fn is_on_host_of(text: &str, home: &str) -> bool {
    text.trim().is_empty() || parse(text).zip(parse(home)).is_some_and(|(url, home)| is_same_or_subdomain(&url, &home))
}

/// Whether a base address is on this machine. Names aren't resolved, so only reserved ones count
/// (<https://www.rfc-editor.org/rfc/rfc6761#section-6.3>).
pub fn is_loopback(text: &str) -> bool {
    parse(text).is_some_and(|url| is_loopback_url(&url))
}

/// Whether a URL is on this machine.
pub(super) fn is_loopback_url(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').rsplit('.').next() == Some("localhost"),
    }
}

/// Whether an address is on the same host as another, or on a subdomain of it (`eu.api.openai.com`).
pub(super) fn is_same_or_subdomain(url: &Url, home: &Url) -> bool {
    let (Some(host), Some(home)) = (url.host_str(), home.host_str()) else { return false };
    host == home || host.strip_suffix(home).is_some_and(|region| region.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_urls_contain_no_secrets() {
        for (text, expected) in [
            ("http://127.0.0.1:8080/v1/", Some("http://127.0.0.1:8080/v1")),
            (" https://me:secret@Host.example:443/a?key=secret#secret\n", Some("https://host.example/a")),
            ("ftp://host", None),
            ("host:8080", None),
            ("", None),
        ] {
            assert_eq!(display_base(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn loopback_addresses_are_recognized() {
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
            assert_eq!(is_loopback(text), is, "{text}");
        }
    }

    #[test]
    fn secrets_in_a_url_are_found_in_all_encodings() {
        let found = |text: &str| secret_parts(&parse(text).unwrap());
        assert_eq!(
            found("http://me:p%40ss@h/?api=2024-01-01&key=a%2Bb%2Bc"),
            [
                "api=2024-01-01&key=a%2Bb%2Bc",
                "api=2024-01-01&key=a+b+c",
                "2024-01-01",
                "me:p%40ss",
                "bWU6cEBzc",
                "a%2Bb%2Bc",
                "me:p@ss",
                "p%40ss",
                "a+b+c",
                "p@ss"
            ]
        );
        assert_eq!(found("http://token%2F1@h/"), ["token%2F1", "token/1"]);
        assert!(found("http://me@h/?x=1").is_empty());
        for (text, expected) in [("%4", "%4"), ("%zz%41", "%zzA"), ("100%", "100%"), ("%ff", "%ff"), ("%C3%A4", "ä")] {
            assert_eq!(percent_decode(text), expected);
        }
    }

    #[test]
    fn a_subdomain_matches_and_a_similar_name_does_not() {
        let home = parse("https://api.openai.com/v1").unwrap();
        for (text, is) in [
            ("https://api.openai.com", true),
            ("https://EU.api.openai.com/v1", true),
            ("https://notapi.openai.com", false),
            ("https://api.openai.com.example", false),
        ] {
            assert_eq!(is_same_or_subdomain(&parse(text).unwrap(), &home), is, "{text}");
        }
    }
}
