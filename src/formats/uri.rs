//! Files' names as other programs want them.

/// A relative path without the `./` in front.
pub(super) fn strip_dot_slash(name: &str) -> &str {
    match name.trim_start_matches("./") {
        "" => name,
        rest if rest.len() < name.len() => rest.trim_start_matches('/'),
        rest => rest,
    }
}

/// A URI (RFC 3986): relative for a relative path, `file://` for an absolute one.
pub(super) fn file_uri(name: &str) -> String {
    let plain = strip_dot_slash(name);
    let mut uri = if plain.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in plain.bytes() {
        match byte {
            // A colon would make what is before it a scheme; all else that is reserved is encoded for certainty.
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_no_dot_in_front() {
        for (name, shown) in [
            ("./jobs/a.yaml", "jobs/a.yaml"),
            ("././/a.yaml", "a.yaml"),
            ("../a.yaml", "../a.yaml"),
            ("/a.yaml", "/a.yaml"),
            (".hidden/a.yaml", ".hidden/a.yaml"),
            ("./", "./"),
        ] {
            assert_eq!(strip_dot_slash(name), shown);
        }
    }

    #[test]
    fn a_uri_holds_any_name() {
        for (name, written) in [
            ("./jobs/a b#c?.yaml", "jobs/a%20b%23c%3F.yaml"),
            ("jobs/ä\\100%.yaml", "jobs/%C3%A4%5C100%25.yaml"),
            ("a:b\n.yaml", "a%3Ab%0A.yaml"),
            ("/x y.yaml", "file:///x%20y.yaml"),
            ("../x.yaml", "../x.yaml"),
        ] {
            assert_eq!(file_uri(name), written);
        }
    }
}
