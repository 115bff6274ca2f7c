//! Names that say that a value is a secret.

/// Whether one of the words in a variable's name says that its value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    const ENDINGS: [&str; 7] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIALS"];
    const WORDS: [&str; 9] = ["KEY", "KEYS", "TOKENS", "SECRETS", "CREDENTIAL", "PASS", "PAT", "AUTH", "COOKIE"];
    // The value is a location, not the secret itself.
    const PLACES: [&str; 6] = ["FILE", "PATH", "DIR", "HOME", "SOCK", "URL"];
    let name = name.to_ascii_uppercase();
    let mut words = name.split('_').filter(|word| !word.is_empty()).peekable();
    let last = name.rsplit('_').next().unwrap_or_default();
    !PLACES.contains(&last)
        && words.any(|word| WORDS.contains(&word) || ENDINGS.iter().any(|ending| word.ends_with(ending)))
}
