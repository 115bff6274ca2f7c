//! Quotes texts for commands that people copy.

use std::path::Path;

/// Quotes a path as one shell word that can't be mistaken for an option.
pub(crate) fn shell_quote(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.starts_with('-') { quote_word(&format!("./{text}")) } else { quote_word(&text) }
}

/// Quotes a text as one shell word.
pub(crate) fn quote_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./,:+@%=".contains(letter);
    // zsh expands a word that begins with an equals sign.
    let is_bare = !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain);
    if is_bare { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
