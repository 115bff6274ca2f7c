//! Redacts the text of `providers.toml` for findings. They end up in logs, and the file may contain a key anywhere.

/// Replaces everything except known keys and values in the expected form. The length in bytes and in characters stays
/// the same, so that locations remain valid.
pub(super) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut within: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        if let Some(quotes) = within {
            mask_chars(line, &mut out);
            within = Some(quotes).filter(|quotes| !line.contains(quotes));
            continue;
        }
        let (kept, rest) = line.split_at(visible_len(line));
        out.push_str(kept);
        mask_chars(rest, &mut out);
        within = ["\"\"\"", "'''"].into_iter().find(|quotes| line.matches(quotes).count() % 2 == 1);
    }
    out
}

/// The number of bytes at the start of a line that may be shown.
fn visible_len(line: &str) -> usize {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']' | '"' | '\'' | ' ' | '\t');
    if line.trim_start().starts_with('[') {
        return line.find(|c| !is_plain(c)).unwrap_or(line.len());
    }
    let Some(equals) = line.find('=').filter(|equals| line[..*equals].chars().all(is_plain)) else { return 0 };
    let key = line[..equals].rsplit('.').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let value = line[equals + 1..].split('#').next().unwrap_or_default();
    let plain = value.trim().trim_matches(['"', '\'']);
    let is_known = match key {
        "api" => plain.len() <= 24 && plain.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
        "base_url" => !plain.contains(['@', '?']),
        "key_env" => is_env_var_name(plain),
        "key_ttl" => plain.len() <= 12 && plain.chars().all(|c| c.is_ascii_digit() || "hms".contains(c)),
        _ if plain.strip_prefix("env:").is_some_and(is_env_var_name) => key.len() <= 24,
        // An unknown key may be shown if it is too short to be a secret.
        _ => return if key.len() <= 24 { equals + 1 } else { 0 },
    };
    equals + 1 + if is_known { value.len() } else { 0 }
}

fn mask_chars(text: &str, out: &mut String) {
    out.extend(text.chars().map(|letter| match (letter, letter.len_utf8()) {
        ('\n' | '\r' | '\t' | ' ' | '"' | '\'' | '=' | ',' | '{' | '}' | '[' | ']', _) => letter,
        (_, 2) => '·',
        (_, 3) => '•',
        (_, 4) => '𝄁',
        _ => '*',
    }));
}

/// Whether a text is a variable's name in capitals, which most secrets aren't.
pub(super) fn is_env_var_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_uppercase() || first == '_')
        && chars.all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        && name.len() <= 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_except_known_syntax_is_redacted() {
        for (line, expected) in [
            ("[providers.local]\r\n", "[providers.local]\r\n"),
            ("[providers.local] # sk-123\n", "[providers.local] * ******\n"),
            ("  api = \"openai-chat\"", "  api = \"openai-chat\""),
            ("base_url = 'http://host:80/v1'\t# sk-1", "base_url = 'http://host:80/v1'\t* ****"),
            ("base_url = \"http://me:pw@host\"", "base_url = \"*****************\""),
            ("base_url = \"http://host?key=pw\"", "base_url = \"***************=**\""),
            ("key_env = \"A_KEY\"", "key_env = \"A_KEY\""),
            ("key_env = \"sk-ant-1\"", "key_env = \"********\""),
            ("api_key = \"ä日😀\"", "api_key = \"·•𝄁\""),
            ("local = { api_key = \"sk-1\" }", "local = { ******* = \"****\" }"),
            ("sk-ant-0123456789-0123456789 = 1", "**************************** = *"),
            ("# api_key = \"sk-1\"", "* ******* = \"****\""),
            ("api_key = \"\"\"\nsk-1\nx=1\"\"\"\napi = \"a\"", "api_key = \"\"\"\n****\n*=*\"\"\"\napi = \"a\""),
            ("sk-123", "******"),
        ] {
            let shown = redact(line);
            assert_eq!(shown, expected);
            assert_eq!((shown.len(), shown.chars().count()), (line.len(), line.chars().count()));
        }
    }
}
