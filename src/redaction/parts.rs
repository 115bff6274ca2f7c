//! The parts of a secret that are secrets by themselves: the texts in JSON, and the lines and assignments of a text with several
//! lines.

use std::collections::BTreeSet;

use serde_json::Value;

use super::secret_names::is_secret_name;

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
        return;
    }
    if !value.contains(['\n', '\r']) {
        return;
    }
    // Some tools number the lines or convert line endings.
    for line in value.split(['\n', '\r']).map(str::trim) {
        add(line, "", parts);
        if let Some((name, text)) = assignment(line) {
            add(text, name, parts);
        }
    }
}

/// Adds the texts in JSON, and numbers with a secret name.
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
}
