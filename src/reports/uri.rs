//! File names in the forms that other programs expect.

/// Strips a leading `./` from a relative path.
pub(super) fn strip_dot_slash(name: &str) -> &str {
    match name.trim_start_matches("./") {
        "" => name,
        rest if rest.len() < name.len() => rest.trim_start_matches('/'),
        rest => rest,
    }
}

/// Converts a path to a URI (RFC 3986): a relative reference, or `file://` for an absolute path.
pub(crate) fn file_uri(name: &str) -> String {
    let plain = strip_dot_slash(name);
    let mut uri = if plain.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in plain.bytes() {
        match byte {
            // A colon would end a scheme. All other reserved characters are encoded to be on the safe side.
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
    fn leading_dot_slash_is_stripped() {
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
    fn any_name_is_encoded() {
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
