//! What the parts of an event must look like.

/// The largest event file in bytes. GitHub's webhooks have at most this.
pub const MAX_EVENT_BYTES: u64 = 25 << 20;

/// Whether this is the path of a repository: names of ordinary characters with slashes between them.
pub fn is_repository(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !matches!(name, "" | "." | "..") && name.bytes().all(is_allowed)
    };
    text.len() <= 512 && text.contains('/') && text.split('/').all(is_name)
}

/// Whether this is the id of a commit that exists: the one of zeros stands for none.
pub fn is_commit(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
    matches!(text.len(), 40 | 64) && is_hex && text.bytes().any(|byte| byte != b'0')
}

/// Whether this can be the name of a branch, as git checks it.
pub fn is_branch(text: &str) -> bool {
    let is_bad = |char: char| char.is_control() || " ~^:?*[\\".contains(char);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    text.len() <= 255
        && !text.contains(is_bad)
        && !text.contains("..")
        && !text.contains("@{")
        && !text.ends_with('.')
        && !text.starts_with('-')
        && text != "@"
        && text.split('/').all(is_part)
}
