//! Addresses of servers, with what of them may be shown.

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
