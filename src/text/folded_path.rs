//! Paths as file systems compare them: a patch may be made on Linux and checked out on macOS or Windows.

use std::ffi::OsStr;
use std::path::{Component, Path};

use icu_normalizer::ComposingNormalizerBorrowed;

/// The most characters of a name that its short name on Windows begins with, before `~1`.
const SHORT_NAME_CHARS: usize = 6;

/// A path whose names are folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoldedPath(Vec<String>);

impl FoldedPath {
    /// Folds the names of a path. What isn't a name, such as the root, is left out.
    pub(crate) fn new(path: &Path) -> Self {
        let name = |part| if let Component::Normal(name) = part { Some(folded_name(name)) } else { None };
        Self(path.components().filter_map(name).collect())
    }

    /// Whether some file system takes this for the path `above`, or for one below it.
    pub(crate) fn is_within(&self, above: &Self) -> bool {
        self.0.len() >= above.0.len()
            && self.0.iter().zip(&above.0).all(|(name, wanted)| name == wanted || is_short_name(name, wanted))
    }
}

/// A name as some file system compares it: without its letter case, the characters that HFS+ ignores, the endings that NTFS
/// drops, and the difference between composed and decomposed characters.
pub(crate) fn folded_name(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let is_ignored = |char: &char| matches!(*char, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let visible: String = name.chars().filter(|char| !is_ignored(char)).collect();
    let stem = visible.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    if stem.is_ascii() {
        return stem.to_ascii_lowercase();
    }
    // Some letters are equal only in upper case, such as `s` and the long `s`.
    let normalizer = ComposingNormalizerBorrowed::new_nfc();
    let folded = normalizer.normalize(stem).to_uppercase().to_lowercase();
    normalizer.normalize(&folded).into_owned()
}

/// Whether a name can be the one that Windows gives to a file beside its long name: `GITHUB~1` for `.github`. Both are folded.
fn is_short_name(short: &str, long: &str) -> bool {
    let Some((start, number)) = short.split_once('~') else { return false };
    let number = number.split('.').next().unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let base = long.trim_start_matches('.');
    let base = base.rsplit_once('.').map_or(base, |(base, _)| base);
    let expected: String = base.chars().filter(|char| !matches!(char, '.' | ' ')).take(SHORT_NAME_CHARS).collect();
    is_number && !start.is_empty() && start == expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_within(path: &str, above: &str) -> bool {
        FoldedPath::new(Path::new(path)).is_within(&FoldedPath::new(Path::new(above)))
    }

    #[test]
    fn names_that_some_file_system_takes_for_one_are_equal() {
        for path in [
            ".github",
            ".GitHub/workflows/x",
            ".GITHUB",
            ".git\u{200d}hub/x",
            "\u{feff}.github",
            ".github.",
            ".github. ./x",
            ".github::$INDEX_ALLOCATION/x",
            "GITHUB~1/workflows/x",
            "github~2",
        ] {
            assert!(is_within(path, ".github"), "{path:?}");
        }
        for (path, above) in [
            (".vſcode/x", ".vscode"),
            (".GITLAB-CI.YML", ".gitlab-ci.yml"),
            ("GITLAB~1.YML", ".gitlab-ci.yml"),
            ("DEVCON~1", ".devcontainer"),
            ("de\u{301}ploy/x", "déploy"),
            ("DÉPLOY", "de\u{301}ploy"),
            ("한글", "한글"),
            ("a/Jobs/x", "a/jobs"),
            ("STRASSE", "straße"),
        ] {
            assert!(is_within(path, above), "{path:?} {above:?}");
        }
        for (path, above) in [
            (".github2", ".github"),
            (".githu", ".github"),
            ("x/.github", ".github"),
            (".github", ".github/workflows"),
            ("github~x", ".github"),
            ("githu~1", ".github"),
            ("~1", "x"),
            ("dèploy", "déploy"),
            ("文", "字"),
        ] {
            assert!(!is_within(path, above), "{path:?} {above:?}");
        }
    }
}
