//! The parts of a secret that are secrets by themselves: the texts in JSON, XML and base64, the pairs of forms, addresses and
//! connection strings, and the lines and assignments of a text with several lines.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::secret_names::is_secret_name;
use crate::text::percent_decode;

/// The shortest secret that is redacted, in characters. Shorter values would match innocent text.
pub const MIN_SECRET_CHARS: usize = 8;
/// The shortest part that is always redacted by itself, in characters.
const MIN_PART_CHARS: usize = 16;
/// The most levels of JSON in texts of JSON.
const MAX_DEPTH: usize = 4;

/// The parts of a secret.
pub(super) fn secret_parts(value: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    add_parts(value, 0, &mut parts);
    parts
}

fn add_parts(value: &str, depth: usize, parts: &mut BTreeSet<String>) {
    let value = value.trim();
    if depth < MAX_DEPTH
        && value.starts_with(['{', '[', '"'])
        && let Ok(data) = serde_json::from_str::<Value>(value)
    {
        add_json(&data, "", depth, parts);
        add_long_numbers(value, parts);
        return;
    }
    if depth < MAX_DEPTH
        && let Some(decoded) = base64_text(value)
    {
        // The credentials of HTTP's Basic scheme, or a file in base64.
        if let Some((_, password)) = decoded.split_once(':').filter(|_| !decoded.contains(['\n', '{'])) {
            add(password, "password", parts);
        }
        add(&decoded, "", parts);
        add_parts(&decoded, depth + 1, parts);
    }
    add_pieces(value, parts);
    if !value.contains(['\n', '\r']) {
        return;
    }
    // Some tools number the lines or convert line endings.
    for line in value.split(['\n', '\r']).map(str::trim) {
        add(line, "", parts);
        add(line.trim_start_matches("- ").trim_matches(['"', '\'']), "", parts);
        if let Some((name, text)) = assignment(line) {
            add(text, name, parts);
        }
        add_pieces(line, parts);
    }
}

/// Adds the values in a form, an address, a connection string, a list, an element of XML, or a literal of another language.
fn add_pieces(value: &str, parts: &mut BTreeSet<String>) {
    if value.starts_with('<') {
        let mut name = "";
        for piece in value.split(['<', '>']) {
            add(piece, name, parts);
            name = piece.split_whitespace().next().unwrap_or_default();
        }
        return;
    }
    // A JSON Web Token: its header is the same in many.
    let token: Vec<&str> = value.split('.').collect();
    if let [header, payload, signature] = token[..]
        && header.starts_with("eyJ")
    {
        [payload, signature].into_iter().for_each(|part| add(part, "", parts));
    }
    let separators: &[char] = match value.chars().next() {
        Some('{' | '[' | '(') => &['{', '}', '[', ']', '(', ')', ','],
        _ => &['?', '&', ';', ','],
    };
    if !value.contains(separators) {
        return;
    }
    for piece in value.split(separators).map(str::trim) {
        add_unescaped(piece.trim_matches(['"', '\'']), "", parts);
        if let Some((name, text)) = assignment(piece) {
            add_unescaped(text, name, parts);
        }
    }
}

/// Adds a part as it is written, and without the escapes of addresses.
fn add_unescaped(text: &str, name: &str, parts: &mut BTreeSet<String>) {
    add(text, name, parts);
    if text.contains(['%', '+']) {
        add(&percent_decode(&text.replace('+', " ")), name, parts);
        add(&percent_decode(text), name, parts);
    }
}

/// The text that a value is the base64 of.
fn base64_text(value: &str) -> Option<String> {
    const MIN_BASE64: usize = 12;
    if value.len() < MIN_BASE64
        || value.contains(|letter: char| !(letter.is_ascii_alphanumeric() || "+/=-_\r\n".contains(letter)))
    {
        return None;
    }
    let value: String = value.chars().filter(|letter| !"=\r\n".contains(*letter)).collect();
    let decoded = [STANDARD_NO_PAD, URL_SAFE_NO_PAD].iter().find_map(|engine| engine.decode(&value).ok())?;
    let text = String::from_utf8(decoded).ok()?;
    // Letters that happen to be base64 aren't text.
    text.chars().all(|letter| !letter.is_control() || letter.is_whitespace()).then_some(text)
}

/// Adds the texts in JSON, and numbers with a secret name, of any length.
fn add_json(data: &Value, name: &str, depth: usize, parts: &mut BTreeSet<String>) {
    match data {
        Value::String(text) => {
            add(text, name, parts);
            add_parts(text, depth + 1, parts);
        }
        Value::Number(number) if is_secret_name(name) => add(&number.to_string(), name, parts),
        Value::Array(items) => items.iter().for_each(|item| add_json(item, name, depth, parts)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| add_json(value, name, depth, parts)),
        _ => {}
    }
}

/// Adds the numbers in JSON that are too long to be innocent, as they are written: a large one isn't exact as data. A sign is left
/// out.
fn add_long_numbers(json: &str, parts: &mut BTreeSet<String>) {
    let is_numeric = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-' | '+' | 'e' | 'E');
    for word in json.split(|letter| !is_numeric(letter)) {
        let number = word.trim_start_matches('-');
        if number.len() >= MIN_PART_CHARS && number.parse::<f64>().is_ok() {
            parts.insert(number.to_owned());
        }
    }
}

/// Adds a part unless it may also appear in innocent text: the dashed lines of a PEM file, and short texts that have no secret
/// name and don't look like a part of a key, as plain words in a configuration file.
fn add(text: &str, name: &str, parts: &mut BTreeSet<String>) {
    let text = text.trim();
    let is_key = || {
        text.chars().any(|letter| letter.is_ascii_digit())
            && text.chars().any(char::is_alphabetic)
            && !text.contains(char::is_whitespace)
    };
    let length = text.chars().count();
    let is_short = length < MIN_PART_CHARS && (length < MIN_SECRET_CHARS || !(is_secret_name(name) || is_key()));
    if !is_short && !is_dashed_line(text) {
        parts.insert(text.to_owned());
    }
}

fn is_dashed_line(text: &str) -> bool {
    text.starts_with("-----") && !text.contains(['\n', '\r'])
}

/// The name and the value of a line such as `export NAME="value"`, `name = value` or `name: value`.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start_matches("- ");
    let (name, value) = line.split_once(['=', ':'])?;
    let name = name.trim().trim_matches(['"', '\'']);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let value = value.trim().trim_end_matches(',');
    let unquoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    Some((name, unquoted.unwrap_or(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(value: &str) -> Vec<String> {
        secret_parts(value).into_iter().collect()
    }

    #[test]
    fn the_texts_in_json_are_parts() {
        let account = r#"{"type":"service_account","private_key_id":"0a1b2c3d4e5f","password":"correct horse",
            "keys":["-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nAQEF/9x=\n-----END KEY-----\n"],"port":12345678,"pin_key":87654321,
            "nested":{"inner":"{\"token\":\"swordfish\"}","region":"eu-west-1","name":"main"},"ok":true}"#;
        let found = parts(account);
        for part in ["0a1b2c3d4e5f", "correct horse", "MIIEvQIBADANBgkq", "87654321", "swordfish"] {
            assert!(found.iter().any(|known| known == part), "{part}: {found:?}");
        }
        for word in ["service_account", "12345678", "main", "-----BEGIN KEY-----", "token"] {
            assert!(!found.iter().any(|known| known == word), "{word}: {found:?}");
        }
        assert!(found.iter().any(|part| part.starts_with("-----BEGIN KEY-----\nMII")), "{found:?}");
        assert_eq!(parts("not json"), Vec::<String>::new());
        let numbers = r#"{"account":9876543210123456,"large":12345678901234567890123,"sum":1234567890123456.50,
            "below":-9988776655443322,"at":1700000000000,"port":8080}"#;
        let long = ["1234567890123456.50", "12345678901234567890123", "9876543210123456", "9988776655443322"];
        assert_eq!(parts(numbers), long, "without what other texts have, too, such as the time");
        assert_eq!(parts(r#""swordfish-1""#), ["swordfish-1"]);
    }

    #[test]
    fn the_values_of_assignments_are_parts() {
        let text = "# comment\nexport DB_PASSWORD=\"correct-horse\"\nUSER=deploy\nHOST=db.example.org\n\
                    api:\n  - token: 'abcdefgh'\n    user: someone\nTOKEN=short\n";
        let found = parts(text);
        assert!(found.contains(&"correct-horse".to_owned()) && found.contains(&"abcdefgh".to_owned()), "{found:?}");
        for word in ["deploy", "someone", "short", "db.example.org"] {
            assert!(!found.iter().any(|known| known == word), "{word}: {found:?}");
        }
    }

    #[test]
    fn the_values_in_other_notations_are_parts() {
        for (value, part) in [
            ("user=x&password=form%2Fpass&z=1", "form/pass"),
            ("user=x&password=form%2Fpass&z=1", "form%2Fpass"),
            ("postgres://db.example/x?sslkey=query-key-1", "query-key-1"),
            ("Server=x;Password=conn-pass;User Id=y", "conn-pass"),
            ("list-a-mmmm3,list-b-nnnn4", "list-b-nnnn4"),
            ("dXNlcjpiYXNpYy1wYXNzLW9vb281", "basic-pass-oooo5"),
            ("eyJwYXNzd29yZCI6ImI2NC1wYXNzLXV1dXUxIn0=", "b64-pass-uuuu1"),
            ("<c><password>xml-pass</password></c>", "xml-pass"),
            ("{'password': 'py-pass-s'}", "py-pass-s"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqd3QifQ.c2lnbmF0dXJlLXZhbHVl", "c2lnbmF0dXJlLXZhbHVl"),
            ("user: admin\nlist:\n  - item-secret-5\n", "item-secret-5"),
        ] {
            let found = parts(value);
            assert!(found.iter().any(|known| known == part), "{part}: {found:?}");
        }
        for value in
            ["correct-horse-battery-staple", "abcdefghijklmnop", "sk-ant-0123456789abcdef", "eyJhbGciOiJIUzI1NiJ9"]
        {
            assert_eq!(parts(value).len(), usize::from(value.starts_with("eyJ")), "{value}: {:?}", parts(value));
        }
        assert!(!parts("user=deploy&mode=plain").contains(&"deploy".to_owned()));
    }
}
